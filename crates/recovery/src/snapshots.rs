//! Producer snapshots: writing one so that it may be loaded again, and which may be loaded at all.
//!
//! A snapshot is trusted only if the partition file names its offset and the CRC of its bytes. The order of writing is
//! therefore: snapshot durable under its name, then the partition file that names it.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_format::Offset;
use weir_psm::{ProducerStateManager, PsmConfig};
use weir_segment::TransactionIndex;
use weir_segment::io::durable;
use weir_segment::io::{Io, IoError};
use weir_segment::layout::{FileKind, SegmentFileName, file_path};

use crate::partition_file::{
    PARTITION_FILE_LIMIT, PARTITION_FILE_NAME, PartitionFile, PartitionFileError, crc32c,
};

/// The most that is read of a snapshot.
const SNAPSHOT_LIMIT: usize = 1 << 30;
/// How many snapshots are kept. Kafka: the newest two, one of which may be the active segment's.
const SNAPSHOTS_KEPT: usize = 2;

/// The path of the partition file in a side directory.
#[must_use]
pub fn partition_file_path(side_dir: &Path) -> PathBuf {
    side_dir.join(PARTITION_FILE_NAME)
}

/// Writes the partition file durably.
///
/// # Errors
/// Any of [`IoError`]; the file then holds the old or the new bytes.
pub fn write_partition_file(io: &mut dyn Io, side_dir: &Path, file: &PartitionFile) -> Result<(), IoError> {
    if io.metadata(side_dir)?.is_none() {
        durable::create_dir_all(io, side_dir)?;
    }
    // DURABLE: barriers, trusted snapshots and a cut are known again after a crash.
    durable::replace(io, &partition_file_path(side_dir), Bytes::from(file.encode()))
}

/// Reads the partition file; `None` if there is none.
pub(crate) fn read_partition_file(
    io: &mut dyn Io,
    side_dir: &Path,
) -> Result<Option<Result<PartitionFile, PartitionFileError>>, IoError> {
    match durable::read_file(io, &partition_file_path(side_dir), PARTITION_FILE_LIMIT) {
        Ok(None) => Ok(None),
        Ok(Some(bytes)) => Ok(Some(PartitionFile::decode(&bytes))),
        // Larger than any that we wrote.
        Err(IoError::Short { .. }) => Ok(Some(Err(PartitionFileError::NotWhole))),
        Err(error) => Err(error),
    }
}

/// Writes a producer snapshot at the end of what `psm` covers, and names it in the partition file; older ones than the
/// newest two go.
///
/// The transaction indexes below that offset must be on disk: a load that starts from the snapshot does not see the batches
/// of which they are made. What they hold is noted as well, so that it sees if one of them is lost or spoilt.
///
/// # Errors
/// Any of [`IoError`]. The log can do without the snapshot; `file` names it only if all of this succeeded.
pub fn write_snapshot(
    io: &mut dyn Io,
    dir: &Path,
    side_dir: &Path,
    psm: &ProducerStateManager,
    file: &mut PartitionFile,
) -> Result<(), IoError> {
    let offset = psm.map_end_offset();
    let bytes = psm.snapshot();
    let crc = crc32c(&bytes);
    let path = file_path(dir, offset, FileKind::Snapshot);
    // What is there under this name is about to change: it must not be trusted by its old CRC.
    if file.snapshot(offset).is_some_and(|known| known != crc) {
        file.forget_snapshot(offset);
        write_partition_file(io, side_dir, file)?;
    }
    // DURABLE: the snapshot, before anything names it.
    durable::replace(io, &path, Bytes::from(bytes))?;
    let (mut named, kept) = with_snapshot(file, offset, crc);
    note_transaction_indexes(io, dir, offset, &mut named)?;
    write_partition_file(io, side_dir, &named)?;
    *file = named;
    remove_snapshots(io, dir, |at| !kept.contains(&at))
}

/// What the partition file says once the snapshot at `offset` is durable, and the offsets of the snapshots that it then
/// names: the newest two.
#[must_use]
pub fn with_snapshot(file: &PartitionFile, offset: Offset, crc: u32) -> (PartitionFile, Vec<Offset>) {
    let mut named = file.clone();
    named.note_snapshot(offset, crc);
    named.set_checked(named.checked().max(offset));
    let kept: Vec<Offset> = named.snapshots().map(|(at, _)| at).rev().take(SNAPSHOTS_KEPT).collect();
    let gone: Vec<Offset> = named.snapshots().map(|(at, _)| at).filter(|at| !kept.contains(at)).collect();
    for offset in gone {
        named.forget_snapshot(offset);
    }
    (named, kept)
}

/// Notes what the transaction indexes on disk hold below `end`, of the segments of which it is not known.
///
/// # Errors
/// Any of [`IoError`]; an index that cannot be read as one is not noted, nor is what lies behind it.
pub(crate) fn note_transaction_indexes(
    io: &mut dyn Io,
    dir: &Path,
    end: Offset,
    file: &mut PartitionFile,
) -> Result<(), IoError> {
    let mut segments = Vec::new();
    let mut with_index = BTreeSet::new();
    for path in io.list(dir)? {
        let Some(name) = SegmentFileName::of(&path) else { continue };
        if path != file_path(dir, name.base_offset, name.kind) {
            continue;
        }
        match name.kind {
            FileKind::Log => segments.push(name.base_offset),
            FileKind::TransactionIndex => drop(with_index.insert(name.base_offset)),
            _ => {}
        }
    }
    segments.sort_unstable();
    // The last segment that was noted before may have grown since.
    let first = segments.partition_point(|&base| base <= file.indexed()).saturating_sub(1);
    for &base in segments.get(first..).unwrap_or_default().iter().take_while(|&&base| base < end) {
        let mut index = TransactionIndex::new();
        if with_index.contains(&base) {
            let path = file_path(dir, base, FileKind::TransactionIndex);
            let bytes = match durable::read_file(io, &path, SNAPSHOT_LIMIT) {
                Err(IoError::Short { .. }) => None,
                read => read?,
            };
            match bytes.and_then(|bytes| TransactionIndex::decode(base, &bytes).ok()) {
                Some(found) => index = found,
                None => return Ok(()),
            }
        }
        file.note_transactions(base, &index, end);
    }
    file.set_indexed(file.indexed().max(end));
    Ok(())
}

/// Removes the snapshots in the directory that `unwanted` picks, whoever wrote them.
///
/// # Errors
/// Any of [`IoError`]; what is left is not trusted and does no harm.
pub fn remove_snapshots(
    io: &mut dyn Io,
    dir: &Path,
    unwanted: impl Fn(Offset) -> bool,
) -> Result<(), IoError> {
    let mut removed = false;
    for path in io.list(dir)? {
        let Some(name) = SegmentFileName::of(&path) else { continue };
        if name.kind == FileKind::Snapshot && unwanted(name.base_offset) {
            io.remove(&path)?;
            removed = true;
        }
    }
    if removed { io.sync_dir(dir) } else { Ok(()) }
}

/// The newest snapshot from `first` to `limit` that weir wrote and that is intact.
pub(crate) fn load_newest(
    io: &mut dyn Io,
    dir: &Path,
    file: &PartitionFile,
    first: Offset,
    limit: Offset,
    config: PsmConfig,
) -> Result<Option<ProducerStateManager>, IoError> {
    for (offset, crc) in file.usable_snapshots(first, limit).rev() {
        if let Some(psm) = load(io, dir, offset, crc, config)? {
            return Ok(Some(psm));
        }
    }
    Ok(None)
}

/// Every snapshot from `first` on that weir wrote and that is intact, ascending: there are no more than two.
pub(crate) fn load_all(
    io: &mut dyn Io,
    dir: &Path,
    file: &PartitionFile,
    first: Offset,
    config: PsmConfig,
) -> Result<VecDeque<ProducerStateManager>, IoError> {
    let mut found = VecDeque::new();
    for (offset, crc) in file.usable_snapshots(first, file.checked()) {
        found.extend(load(io, dir, offset, crc, config)?);
    }
    Ok(found)
}

/// One snapshot, if it is there and intact.
fn load(
    io: &mut dyn Io,
    dir: &Path,
    offset: Offset,
    crc: u32,
    config: PsmConfig,
) -> Result<Option<ProducerStateManager>, IoError> {
    let bytes = match durable::read_file(io, &file_path(dir, offset, FileKind::Snapshot), SNAPSHOT_LIMIT) {
        Ok(Some(bytes)) => bytes,
        Ok(None) | Err(IoError::Short { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut psm = ProducerStateManager::new(config);
    let is_ours = crc32c(&bytes) == crc && psm.load_snapshot(&bytes, offset).is_ok();
    Ok(is_ours.then_some(psm))
}
