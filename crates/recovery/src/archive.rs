//! Archives: what is about to be taken out of a log, kept in the side directory.
//!
//! The name says what an archive is, so that a second try after a crash writes the same file again:
//! `cut-<base offset of the segment>-<position>-<CRC-32C of its bytes>.log`.

use std::path::{Path, PathBuf};

use weir_format::Offset;
use weir_segment::io::durable::{self, TEMPORARY_SUFFIX};
use weir_segment::io::{FileId, Io, IoError, Open, SyncKind, exact};

use crate::watch::STEP;

/// Where the bytes from `position` on of the segment at `base` are kept, which have this CRC.
pub(crate) fn path_of(side_dir: &Path, base: Offset, position: u64, crc: u32) -> PathBuf {
    side_dir.join(format!("cut-{:020}-{position}-{crc:08x}.log", base.get()))
}

/// Bytes of a `.log` file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    /// The file.
    pub(crate) file: &'a Path,
    /// The first of them.
    pub(crate) position: u64,
    /// How many they are.
    pub(crate) size: u64,
}

/// Copies them, durably, under a name that the copy has only when it is complete; false if the bytes are no longer those
/// of the name. `copied` is told of each part.
pub(crate) fn copy<E: From<IoError>>(
    io: &mut dyn Io,
    bytes: Bytes<'_>,
    to: &Path,
    mut copied: impl FnMut(u64) -> Result<(), E>,
) -> Result<bool, E> {
    let mut temporary = to.as_os_str().to_owned();
    temporary.push(TEMPORARY_SUFFIX);
    let temporary = PathBuf::from(temporary);
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    let from = io.open(bytes.file, Open::Read)?;
    let into = match io.open(&temporary, Open::CreateOrOpen) {
        Ok(into) => into,
        Err(error) => {
            io.close(from)?;
            return Err(error.into());
        }
    };
    let mut write = |io: &mut dyn Io, from: FileId, into: FileId| -> Result<(), E> {
        io.truncate(into, 0)?;
        let mut done = 0;
        while done < bytes.size {
            let part = (bytes.size - done).min(STEP);
            let wanted = usize::try_from(part).unwrap_or(usize::MAX);
            let read = exact::read_exact(io, from, bytes.position + done, wanted)?.freeze();
            digest.update(&read);
            exact::write_all(io, into, done, read)?;
            done += part;
            copied(part)?;
        }
        Ok(exact::sync(io, into, SyncKind::All)?)
    };
    let written = write(io, from, into);
    let closed = io.close(into).and(io.close(from));
    written?;
    closed?;
    if !to.to_string_lossy().ends_with(&format!("-{:08x}.log", digest.finalize())) {
        io.remove(&temporary)?;
        return Ok(false);
    }
    // DURABLE: what is about to be cut, under its name.
    durable::rename(io, &temporary, to)?;
    Ok(true)
}
