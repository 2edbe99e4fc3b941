//! What interrupted operations left in a partition's directory, and what belongs there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use weir_format::Offset;
use weir_segment::io::durable::TEMPORARY_SUFFIX;
use weir_segment::io::{Io, IoError, Open};
use weir_segment::layout::{
    FileKind, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SegmentFileName, Stage, file_path,
};

use crate::error::{Corruption, Invalid, LoadError};
use crate::messages::messages;
use crate::replay::next_of;
use crate::report::{ForeignFile, Leftover};
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
    /// What has no meaning here, and is left alone; not more than [`MOST_FOREIGN`] of them.
    pub(crate) foreign: Vec<ForeignFile>,
    /// How many there are.
    pub(crate) foreign_count: usize,
}

/// How many foreign files a report names.
const MOST_FOREIGN: usize = 32;

/// Lists the directory, and drops or finishes what interrupted operations left.
///
/// `.deleted` and `.tmp` are dropped, and so is `.cleaned`. A `.swap` is finished, unless it belongs to a split whose
/// other part is still `.cleaned`. An index without its log is dropped. Directories and names without a meaning here are
/// left alone, and said.
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
        let name = SegmentFileName::of(&path);
        let is_read = name.is_some_and(|name| path == file_path(dir, name.base_offset, name.kind))
            || path == dir.join(LEADER_EPOCH_CHECKPOINT);
        let name = name.filter(|name| name.stage != Stage::Live);
        if !is_read && name.is_none() && !is_temporary(&path) {
            continue;
        }
        // A pipe would be waited for. What is gone by now is missed when it is opened.
        match io.metadata(&path)? {
            Some(metadata) if metadata.is_file => {}
            Some(_) if is_read => return Err(LoadError::NotAFile { path }),
            _ => continue,
        }
        match name {
            None if is_read => {}
            None => dropped.push(path),
            Some(name) => match name.stage {
                Stage::Live => {}
                Stage::Deleted => dropped.push(path),
                Stage::Cleaned => {
                    first_cleaned =
                        Some(first_cleaned.map_or(name.base_offset, |first| first.min(name.base_offset)));
                    dropped.push(path);
                }
                Stage::Swap => swaps.push((name, path)),
            },
        }
    }
    // Kafka (KAFKA-6264): such a swap is part of a split that was not finished; its source is still there.
    let (dropped_swaps, swaps): (Vec<_>, Vec<_>) =
        swaps.into_iter().partition(|(name, _)| first_cleaned.is_some_and(|first| name.base_offset >= first));
    // Nothing is touched before all of them are known to be whole.
    let mut replaced = Vec::new();
    for (name, path) in swaps.iter().filter(|(name, _)| name.kind == FileKind::Log) {
        replaced.push(name.base_offset..end_of_swap(io, path, name.base_offset)?);
    }
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
    finish_swaps(io, dir, &swaps, &replaced, leftovers)?;
    let changed = !leftovers.is_empty();
    let directory = scan(io, dir, leftovers)?;
    if changed || !leftovers.is_empty() {
        // DURABLE: leftovers are gone or in place.
        io.sync_dir(dir)?;
    }
    Ok(directory)
}

/// Whether it is what [`durable::replace`](weir_segment::io::durable::replace) writes first, of a file that has a meaning
/// here.
fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_suffix(TEMPORARY_SUFFIX)).is_some_and(|name| {
        SegmentFileName::parse(name).is_some()
            || name == LEADER_EPOCH_CHECKPOINT
            || name == PARTITION_METADATA
    })
}

fn is_dir(io: &mut dyn Io, path: &Path) -> Result<bool, IoError> {
    Ok(io.metadata(path)?.is_some_and(|metadata| metadata.is_dir))
}

/// Puts finished swaps in place of the segments that they replace: those that begin among the offsets of one of them.
fn finish_swaps(
    io: &mut dyn Io,
    dir: &Path,
    swaps: &[(SegmentFileName, PathBuf)],
    replaced: &[Range<Offset>],
    leftovers: &mut Vec<Leftover>,
) -> Result<(), LoadError> {
    if !replaced.is_empty() {
        for path in io.list(dir)? {
            let Some(name) = SegmentFileName::of(&path).filter(|name| name.stage == Stage::Live) else {
                continue;
            };
            // Not what lies between two of them: a segment is split in two without a gap, and else there is only one.
            if replaced.iter().any(|offsets| offsets.contains(&name.base_offset)) {
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
    let mut view = FileView { io: &mut *io, file, size };
    let mut walker = Walker::new(0);
    let mut end = base_offset;
    let outcome = loop {
        match walker.next(&mut view) {
            Ok(Frame::Batch(batch)) => end = end.max(batch.next_offset()),
            Ok(Frame::End) => break Ok(end),
            Ok(Frame::Invalid(error)) => {
                let position = walker.position();
                let finished = std::mem::replace(&mut walker, Walker::new(position)).finish(view.io);
                let run = finished.and_then(|()| {
                    messages(&mut view, position, |message| {
                        end = end.max(next_of(message));
                        Ok(Ok(()))
                    })
                });
                let found = match run {
                    Err(error) => break Err(error.into()),
                    Ok(run) if run.position > position => {
                        walker = Walker::new(run.position);
                        continue;
                    }
                    Ok(run) => run.stopped.unwrap_or(Invalid::Batch(error)),
                };
                break Err(LoadError::Corrupt(Box::new(Corruption {
                    file: path.to_path_buf(),
                    position,
                    next_offset: end,
                    found,
                    reason: CorruptReason::SealedSegment,
                    behind: None,
                    last_segment: None,
                })));
            }
            Err(error) => break Err(error.into()),
        }
    };
    let finished = walker.finish(io);
    io.close(file)?;
    let end = outcome?;
    finished?;
    Ok(end)
}

/// What is in the directory now; indexes without their log are dropped.
fn scan(io: &mut dyn Io, dir: &Path, leftovers: &mut Vec<Leftover>) -> Result<Directory, LoadError> {
    let mut directory = Directory::default();
    let mut indexes: BTreeMap<PathBuf, Offset> = BTreeMap::new();
    for path in io.list(dir)? {
        // A name with other than twenty digits is not one that this crate opens.
        let name =
            SegmentFileName::of(&path).filter(|name| path == file_path(dir, name.base_offset, name.kind));
        let Some(name) = name else {
            if path != dir.join(LEADER_EPOCH_CHECKPOINT) && path != dir.join(PARTITION_METADATA) {
                directory.foreign_count += 1;
                if directory.foreign.len() < MOST_FOREIGN {
                    let is_dir = is_dir(io, &path)?;
                    directory.foreign.push(ForeignFile { file: path, is_dir });
                }
            }
            continue;
        };
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
