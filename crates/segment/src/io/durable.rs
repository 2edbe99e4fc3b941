//! Small files that are whole or not there: create, replace, rename and remove with the right syncs.

use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{Io, IoError, Open, SyncKind, exact};

/// Suffix of the file that [`replace`] writes first. Kafka's checkpoint writer uses the same.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// The directory of a path; "." for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// `path` with a suffix behind its whole name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// After this, `path` durably holds `bytes`; a crash before leaves what was there, whole.
///
/// Cost: one write, two syncs.
///
/// # Errors
/// Any of [`IoError`]; `path` then holds the old or the new bytes, and a `.tmp` beside it may be left.
pub fn replace(io: &mut dyn Io, path: &Path, bytes: Bytes) -> Result<(), IoError> {
    let temporary = with_suffix(path, TEMPORARY_SUFFIX);
    write_synced(io, &temporary, bytes)?;
    io.rename(&temporary, path)?;
    // DURABLE: the new content under its name.
    io.sync_dir(parent(path))
}

/// Writes and syncs a file, without its name.
fn write_synced(io: &mut dyn Io, path: &Path, bytes: Bytes) -> Result<(), IoError> {
    let file = io.open(path, Open::CreateOrOpen)?;
    let written = io
        .truncate(file, 0)
        .and_then(|()| exact::write_all(io, file, 0, bytes))
        .and_then(|()| exact::sync(io, file, SyncKind::All));
    let closed = io.close(file);
    written.and(closed)
}

/// Makes a file durably, which must not be there yet.
///
/// # Errors
/// Any of [`IoError`]; "already exists" if it is there.
pub fn create(io: &mut dyn Io, path: &Path, bytes: Bytes) -> Result<(), IoError> {
    let file = io.open(path, Open::CreateNew)?;
    let written = exact::write_all(io, file, 0, bytes).and_then(|()| exact::sync(io, file, SyncKind::All));
    let closed = io.close(file);
    written.and(closed)?;
    // DURABLE: the new file.
    io.sync_dir(parent(path))
}

/// Renames durably.
///
/// # Errors
/// Any of [`IoError`].
pub fn rename(io: &mut dyn Io, from: &Path, to: &Path) -> Result<(), IoError> {
    io.rename(from, to)?;
    if parent(from) != parent(to) {
        io.sync_dir(parent(from))?;
    }
    // DURABLE: the new name.
    io.sync_dir(parent(to))
}

/// Removes durably. A file that is not there is no error.
///
/// # Errors
/// Any of [`IoError`] but "not found".
pub fn remove(io: &mut dyn Io, path: &Path) -> Result<(), IoError> {
    match io.remove(path) {
        Ok(()) => {}
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error),
    }
    // DURABLE: the file is gone.
    io.sync_dir(parent(path))
}

/// Makes a directory's own name and the names in it durable: after a process was killed, some may not be.
///
/// # Errors
/// Any of [`IoError`].
pub fn sync_names(io: &mut dyn Io, dir: &Path) -> Result<(), IoError> {
    io.sync_dir(parent(dir))?;
    // DURABLE: names that another process made and did not live to sync.
    io.sync_dir(dir)
}

/// Makes a directory and the missing ones above it, durably.
///
/// # Errors
/// Any of [`IoError`].
pub fn create_dir_all(io: &mut dyn Io, dir: &Path) -> Result<(), IoError> {
    let mut missing = Vec::new();
    let mut at = dir;
    while io.metadata(at)?.is_none() {
        missing.push(at);
        at = parent(at);
    }
    io.create_dir_all(dir)?;
    for made in missing.iter().rev() {
        io.sync_dir(parent(made))?;
    }
    Ok(())
}

/// The whole of a small file, or `None` if it is not there.
///
/// Inputs: a file larger than `limit` bytes is an error, so that no file decides how much is allocated.
///
/// # Errors
/// Any of [`IoError`]; [`IoError::Short`] if the file is larger than the limit.
pub fn read_file(io: &mut dyn Io, path: &Path, limit: usize) -> Result<Option<Bytes>, IoError> {
    let file = match io.open(path, Open::Read) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let read = io.len(file).and_then(|size| {
        let limit_u64 = u64::try_from(limit).unwrap_or(u64::MAX);
        if size > limit_u64 {
            return Err(IoError::Short {
                at: super::At { operation: super::Operation::Read, path: path.to_path_buf(), position: None },
                done: limit_u64,
                wanted: size,
            });
        }
        exact::read_up_to(io, file, 0, usize::try_from(size).unwrap_or(limit))
    });
    io.close(file)?;
    read.map(|bytes| Some(bytes.freeze()))
}
