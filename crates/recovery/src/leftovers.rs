//! What interrupted operations left in a partition's directory, and what belongs there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use weir_format::{Offset, RecordBatch};
use weir_segment::io::durable::TEMPORARY_SUFFIX;
use weir_segment::io::{Io, IoError, Open};
use weir_segment::layout::{FileKind, SegmentFileName, Stage, file_path};

use crate::error::{Corruption, Invalid, LoadError};
use crate::report::Leftover;
use crate::tail::CorruptReason;
use crate::walk::{FileView, Frame, Walker};

/// The files of a partition's directory that have a meaning, by their offset.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    /// Base offsets of the segments.
    pub(crate) segments: BTreeSet<Offset>,
    /// Offsets of the producer snapshots.
    pub(crate) snapshots: BTreeSet<Offset>,
    /// Base offsets of the segments that have a transaction index.
    pub(crate) transaction_indexes: BTreeSet<Offset>,
}

/// Lists the directory, and drops or finishes what interrupted operations left.
///
/// `.deleted` and `.tmp` are dropped, and so is `.cleaned`. A `.swap` is finished, unless it belongs to a split whose
/// other part is still `.cleaned`. An index without its log is dropped.
///
/// Source: Kafka's `LogLoader.removeTempFilesAndCollectSwapFiles` and `load`.
pub(crate) fn settle(
    io: &mut dyn Io,
    dir: &Path,
    leftovers: &mut Vec<Leftover>,
) -> Result<Directory, LoadError> {
    let mut dropped: Vec<PathBuf> = Vec::new();
    let mut swaps: Vec<(SegmentFileName, PathBuf)> = Vec::new();
    let mut first_cleaned: Option<Offset> = None;
    for path in io.list(dir)? {
        if path.to_str().is_some_and(|name| name.ends_with(TEMPORARY_SUFFIX)) {
            dropped.push(path);
            continue;
        }
        let Some(name) = SegmentFileName::of(&path) else { continue };
        match name.stage {
            Stage::Live => {}
            Stage::Deleted => dropped.push(path),
            Stage::Cleaned => {
                first_cleaned =
                    Some(first_cleaned.map_or(name.base_offset, |first| first.min(name.base_offset)));
                dropped.push(path);
            }
            Stage::Swap => swaps.push((name, path)),
        }
    }
    // Kafka (KAFKA-6264): such a swap is part of a split that was not finished; its source is still there.
    let (dropped_swaps, swaps): (Vec<_>, Vec<_>) =
        swaps.into_iter().partition(|(name, _)| first_cleaned.is_some_and(|first| name.base_offset >= first));
    for (_, path) in dropped_swaps {
        io.remove(&path)?;
        leftovers.push(Leftover { file: path, finished: false });
    }
    if !leftovers.is_empty() {
        // DURABLE: a swap must not outlive the `.cleaned` that says that it is not finished.
        io.sync_dir(dir)?;
    }
    for path in dropped {
        io.remove(&path)?;
        leftovers.push(Leftover { file: path, finished: false });
    }
    finish_swaps(io, dir, &swaps, leftovers)?;
    let changed = !leftovers.is_empty();
    let directory = scan(io, dir, leftovers)?;
    if changed || !leftovers.is_empty() {
        // DURABLE: leftovers are gone or in place.
        io.sync_dir(dir)?;
    }
    Ok(directory)
}

/// Puts finished swaps in place of the segments that they replace.
fn finish_swaps(
    io: &mut dyn Io,
    dir: &Path,
    swaps: &[(SegmentFileName, PathBuf)],
    leftovers: &mut Vec<Leftover>,
) -> Result<(), LoadError> {
    let mut replaced: Option<(Offset, Offset)> = None;
    for (name, path) in swaps.iter().filter(|(name, _)| name.kind == FileKind::Log) {
        let end = end_of_swap(io, path, name.base_offset)?;
        replaced = Some(match replaced {
            None => (name.base_offset, end),
            Some((from, to)) => (from.min(name.base_offset), to.max(end)),
        });
    }
    if let Some((from, to)) = replaced {
        for path in io.list(dir)? {
            let Some(name) = SegmentFileName::of(&path) else { continue };
            if name.stage == Stage::Live && name.base_offset >= from && name.base_offset < to {
                io.remove(&path)?;
            }
        }
        // DURABLE: what is replaced is gone before its successor has a name, or both would claim the same offsets.
        io.sync_dir(dir)?;
    }
    for (name, path) in swaps {
        io.rename(path, &file_path(dir, name.base_offset, name.kind))?;
        leftovers.push(Leftover { file: path.clone(), finished: true });
    }
    Ok(())
}

/// Where the offsets of a swapped-in log end; it must be valid to its last byte.
fn end_of_swap(io: &mut dyn Io, path: &Path, base_offset: Offset) -> Result<Offset, LoadError> {
    let file = io.open(path, Open::Read)?;
    let size = io.len(file)?;
    let mut view = FileView { io, file, size };
    let mut walker = Walker::new(0);
    let mut end = base_offset;
    let outcome = loop {
        match walker.next(&mut view) {
            Ok(Frame::Batch(bytes)) => {
                if let Ok(batch) = RecordBatch::parse_without_crc(&bytes) {
                    end = end.max(batch.next_offset());
                }
            }
            Ok(Frame::End) => break Ok(end),
            Ok(Frame::Invalid(error)) => {
                break Err(LoadError::Corrupt(Box::new(Corruption {
                    file: path.to_path_buf(),
                    position: walker.position(),
                    next_offset: end,
                    found: Invalid::Batch(error),
                    reason: CorruptReason::SealedSegment,
                    behind: None,
                    last_segment: None,
                })));
            }
            Err(error) => break Err(error.into()),
        }
    };
    io.close(file)?;
    outcome
}

/// What is in the directory now; indexes without their log are dropped.
fn scan(io: &mut dyn Io, dir: &Path, leftovers: &mut Vec<Leftover>) -> Result<Directory, IoError> {
    let mut directory = Directory::default();
    let mut indexes: BTreeMap<PathBuf, Offset> = BTreeMap::new();
    for path in io.list(dir)? {
        let Some(name) = SegmentFileName::of(&path) else { continue };
        // A name with other than twenty digits is not one that this crate opens, so it is left alone.
        if path != file_path(dir, name.base_offset, name.kind) {
            continue;
        }
        match name.kind {
            FileKind::Log => {
                directory.segments.insert(name.base_offset);
            }
            FileKind::Snapshot => {
                directory.snapshots.insert(name.base_offset);
            }
            FileKind::OffsetIndex | FileKind::TimeIndex => {
                indexes.insert(path, name.base_offset);
            }
            FileKind::TransactionIndex => {
                directory.transaction_indexes.insert(name.base_offset);
                indexes.insert(path, name.base_offset);
            }
        }
    }
    for (path, base_offset) in indexes {
        if !directory.segments.contains(&base_offset) {
            io.remove(&path)?;
            leftovers.push(Leftover { file: path, finished: false });
        }
    }
    Ok(directory)
}
