//! Cutting a log that is corrupt, because an operator said so: a plan that says what would go, and the cut itself.
//!
//! A load never cuts at corruption (law R8). What the operator accepts is an offset: everything below it stays,
//! everything else is put into the side directory as archives and then taken out of the log. [`plan`] reads and changes
//! nothing; [`apply`] does what a plan says, in an order that leaves the log, wherever it is interrupted, either as corrupt
//! as it was or cut, so that the same call can be made again.
//!
//! ```
//! use std::path::Path;
//! use weir_format::{BatchBuilder, Offset, TimestampMs};
//! use weir_recovery::Unwatched;
//! use weir_recovery::cut::{self, CutConfig};
//! use weir_segment::io::sim::SimDisk;
//!
//! let batch = |base| BatchBuilder::new().base_offset(base).record(TimestampMs::new(1), None, Some(b"v")).build();
//! let (zero, one, two) = (Offset::ZERO, Offset::new(1).unwrap(), Offset::new(2).unwrap());
//! let mut bytes = [batch(zero)?, batch(one)?, batch(two)?].concat();
//! let size = bytes.len() / 3;
//! bytes[size + 65] ^= 1;
//! let disk = SimDisk::new(1);
//! let file = Path::new("/data/orders-0/00000000000000000000.log");
//! disk.write_file(file, &bytes);
//!
//! let config = CutConfig { side_dir: "/data.weir/orders-0".into(), recovery_point: Offset::ZERO };
//! let mut io = disk.io();
//! let plan = cut::plan(&mut io, Path::new("/data/orders-0"), &config, one, &mut Unwatched)?;
//! assert_eq!((plan.batch_count(), plan.record_count(), plan.unreadable_size()), (1, 1, size as u64));
//! let archives = cut::apply(&mut io, &plan, &mut Unwatched)?;
//! assert_eq!(disk.read_file(file).as_deref(), Some(&bytes[..size]));
//! assert_eq!(disk.read_file(&archives[0]).as_deref(), Some(&bytes[size..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_format::{Codec, Offset};
use weir_segment::TransactionIndex;
use weir_segment::io::durable;
use weir_segment::io::{BLOCK_SIZE, FileId, Io, IoError, Open, SyncKind, exact};
use weir_segment::layout::{FileKind, LEADER_EPOCH_CHECKPOINT, SegmentFileName, Stage, file_path};

use crate::archive;
use crate::epochs::LeaderEpochCache;
use crate::error::Invalid;
use crate::messages::messages;
use crate::partition_file::PartitionFile;
use crate::replay::{Bounds, next_of};
use crate::snapshots;
use crate::tail::{self, Contents};
use crate::walk::{FileView, Frame, Walker};
use crate::watch::{Meter, Phase, Stop, Watch};

/// The most that is read of a leader-epoch checkpoint or a transaction index.
const SMALL_FILE_LIMIT: usize = 256 << 20;

/// What a cut is told about the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutConfig {
    /// weir's own files of this partition, beside the log directory: the archives go there. Made if missing.
    pub side_dir: PathBuf,
    /// `recovery-point-offset-checkpoint`; zero if unknown. It is not believed any more where it lies above the cut.
    pub recovery_point: Offset,
}

/// What a cut would do. Nothing has been done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutPlan {
    /// The partition's directory.
    pub dir: PathBuf,
    /// The offset that was accepted: nothing below it goes.
    pub offset: Offset,
    /// Where the log would end: the accepted offset, or below it where a gap lies there.
    pub log_end_offset: Offset,
    /// The first place that is not a valid batch, if there is one: why the log does not load. Without one the log may be
    /// intact, and the cut only takes data away.
    pub invalid: Option<InvalidFound>,
    /// What would go, by file, ascending.
    pub pieces: Vec<CutPiece>,
    side_dir: PathBuf,
    recovery_point: Offset,
    /// Every segment with its size when the plan was made.
    segments: Vec<(Offset, u64)>,
}

/// A place in a log that is not a valid batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFound {
    /// The file.
    pub file: PathBuf,
    /// The first byte that is not part of a valid batch.
    pub position: u64,
    /// The offset expected there: the largest one that a cut can keep everything below of.
    pub next_offset: Offset,
    /// What is wrong with the bytes.
    pub found: Invalid,
}

/// What would go of one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutPiece {
    /// Its `.log` file.
    pub file: PathBuf,
    /// Its base offset.
    pub base_offset: Offset,
    /// The file ends here afterwards, in bytes; with [`CutPiece::whole`] it is gone.
    pub position: u64,
    /// Bytes that go, zeros that were allocated ahead included.
    pub size: u64,
    /// The whole segment goes, with its indexes.
    pub whole: bool,
    /// Where the bytes are kept, and how many: all up to the block that holds the last one that is not zero. `None` if
    /// there is nothing but zeros.
    pub archive: Option<(PathBuf, u64)>,
    /// The valid batches among them.
    pub contents: Contents,
}

impl CutPlan {
    /// Bytes that go, zeros that were allocated ahead included.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.size).sum()
    }

    /// Bytes that are archived.
    #[must_use]
    pub fn archived_size(&self) -> u64 {
        self.pieces.iter().filter_map(|piece| piece.archive.as_ref()).map(|(_, size)| size).sum()
    }

    /// Bytes that are archived and no part of a valid batch.
    #[must_use]
    pub fn unreadable_size(&self) -> u64 {
        self.archived_size().saturating_sub(self.pieces.iter().map(|piece| piece.contents.valid_bytes).sum())
    }

    /// Valid batches that go, control batches included.
    #[must_use]
    pub fn batch_count(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.contents.batch_count).sum()
    }

    /// Records in the valid data batches that go. A compressed message of magic 0 or 1 counts as one.
    #[must_use]
    pub fn record_count(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.contents.record_count).sum()
    }

    /// The lowest offset among the valid batches that go, and the one above the highest.
    #[must_use]
    pub fn offsets(&self) -> Option<(Offset, Offset)> {
        self.pieces
            .iter()
            .filter_map(|piece| piece.contents.offsets)
            .reduce(|(first, end), (base, next)| (first.min(base), end.max(next)))
    }

    /// The lowest offset of a barrier that goes. Without it, producers from before it are known again, and ids that they
    /// had may be taken for those of producers here: what was failed over is not safe to write to.
    #[must_use]
    pub fn barrier(&self) -> Option<Offset> {
        self.pieces.iter().filter_map(|piece| piece.contents.barrier).min()
    }

    /// Whether everything was looked at. False if more places looked like a batch than the work limit allows to check:
    /// then there may be more batches than the counts say, and they are archived all the same.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.pieces.iter().all(|piece| piece.contents.counted)
    }
}

/// Why nothing was planned, or a cut was not finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// The directory holds no segment.
    #[error("{} holds no log", dir.display())]
    NoLog {
        /// The directory.
        dir: PathBuf,
    },
    /// The offset is not in the log.
    #[error("offset {offset} is not in the log, which holds {first} to {end}")]
    OutOfRange {
        /// The offset that was accepted.
        offset: Offset,
        /// Where the first segment begins.
        first: Offset,
        /// Where the log ends.
        end: Offset,
    },
    /// The log ends there, and nothing lies behind: there is nothing to cut.
    #[error("the log ends at offset {end}, and nothing lies behind it: there is nothing to cut")]
    NothingToCut {
        /// Where the log ends.
        end: Offset,
    },
    /// A batch holds offsets on both sides: accept one of the two that are named.
    #[error(
        "offset {offset} lies inside the batch of offsets {base_offset} to {next_offset}: accept one of these"
    )]
    InsideBatch {
        /// The offset that was accepted.
        offset: Offset,
        /// Where the batch begins.
        base_offset: Offset,
        /// One above its last offset.
        next_offset: Offset,
    },
    /// The log is invalid below the offset, so a cut there would not mend it.
    #[error(
        "offset {offset} lies behind byte {} of {}, where no valid batch stands ({}): nothing from offset {} on can be kept",
        invalid.position, invalid.file.display(), invalid.found, invalid.next_offset
    )]
    BehindInvalid {
        /// The offset that was accepted.
        offset: Offset,
        /// Where the first invalid byte is.
        invalid: Box<InvalidFound>,
    },
    /// A replacement of segments was interrupted, and a cut would bring it back. The next load finishes or drops it; if
    /// that is what fails, put the file aside.
    #[error("{} is left of an interrupted replacement of segments: put it aside, or start the partition once", file.display())]
    Unfinished {
        /// One of its files.
        file: PathBuf,
    },
    /// The directory is not what it was when the plan was made. The file that is named was not cut; make a new plan.
    #[error("{} has changed since the plan was made", file.display())]
    Changed {
        /// The file that differs.
        file: PathBuf,
    },
    /// The watch asked to stop. A plan has changed nothing; a cut may be half done, as after an error of the disk.
    #[error("interrupted")]
    Interrupted,
    /// The disk failed. The cut may be half done: the log is as corrupt as it was, or cut; make a new plan.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl From<Stop> for CutError {
    fn from(_: Stop) -> Self {
        Self::Interrupted
    }
}

/// Says what a cut at `offset` would take away, and changes nothing.
///
/// Everything below `offset` is checked, frame and CRC, and stays. The segment that holds `offset` is cut where the first
/// batch at or above it begins, or at the first invalid byte; later segments go whole.
///
/// Cost: reads every segment once, and what would go three times. Memory: about a MiB, or one batch.
///
/// # Errors
/// [`CutError::NoLog`], [`CutError::OutOfRange`], [`CutError::NothingToCut`], [`CutError::InsideBatch`],
/// [`CutError::BehindInvalid`]: no cut at this offset. [`CutError::Unfinished`]. [`CutError::Interrupted`].
/// [`CutError::Io`].
pub fn plan(
    io: &mut dyn Io,
    dir: &Path,
    config: &CutConfig,
    offset: Offset,
    watch: &mut dyn Watch,
) -> Result<CutPlan, CutError> {
    let segments = segments_of(io, dir)?;
    let first = segments.first().ok_or_else(|| CutError::NoLog { dir: dir.to_path_buf() })?.0;
    let total = segments.iter().map(|&(_, size)| size).sum();
    // Kafka: the segment that holds the offset stays, if only as an empty file.
    let index = segments.partition_point(|&(base, _)| base <= offset);
    let Some(index) = index.checked_sub(1) else {
        let end = segments.last().map_or(first, |&(base, _)| base);
        return Err(CutError::OutOfRange { offset, first, end });
    };
    let mut meter = Meter::begin(watch, Phase::Walk, total)?;
    let mut kept = Kept { end: first, position: 0, at_end: true, found: None };
    for (number, &(base, size)) in segments.iter().enumerate().take(index + 1) {
        let next_segment = segments.get(number + 1).map(|&(base, _)| base);
        let path = file_path(dir, base, FileKind::Log);
        kept = reading(io, &path, |io, file| {
            keep(FileView { io, file, size }, base, next_segment, offset, &mut meter)
        })?;
        if let Some(found) = kept.found.take() {
            let invalid = InvalidFound { file: path, position: kept.position, next_offset: kept.end, found };
            return Err(CutError::BehindInvalid { offset, invalid: Box::new(invalid) });
        }
    }
    let later = segments.get(index + 1..).unwrap_or_default();
    if kept.at_end && kept.end < offset && later.is_empty() {
        return Err(CutError::OutOfRange { offset, first, end: kept.end });
    }
    let mut plan = CutPlan {
        dir: dir.to_path_buf(),
        offset,
        log_end_offset: kept.end,
        invalid: None,
        pieces: Vec::new(),
        side_dir: config.side_dir.clone(),
        recovery_point: config.recovery_point,
        segments: segments.clone(),
    };
    for (number, &(base, size)) in segments.iter().enumerate().skip(index) {
        let whole = number > index;
        let position = if whole { 0 } else { kept.position };
        let next_offset = if whole { base } else { kept.end };
        let file = file_path(dir, base, FileKind::Log);
        let looked = reading(io, &file, |io, id| {
            look_at_piece(FileView { io, file: id, size }, position, next_offset, &mut meter)
        })?;
        let name = |crc| archive::path_of(&config.side_dir, base, position, crc);
        if plan.invalid.is_none()
            && let Some((position, found)) = looked.invalid
        {
            let next_offset = looked.contents.end_before_invalid.unwrap_or(next_offset);
            plan.invalid = Some(InvalidFound { file: file.clone(), position, next_offset, found });
        }
        let archive = (looked.archived > 0).then(|| (name(looked.crc), looked.archived));
        plan.pieces.push(CutPiece {
            file,
            base_offset: base,
            position,
            size: size - position,
            whole,
            archive,
            contents: looked.contents.contents,
        });
    }
    if later.is_empty() && plan.pieces.iter().all(|piece| piece.archive.is_none()) {
        return Err(CutError::NothingToCut { end: plan.log_end_offset });
    }
    Ok(plan)
}

/// Does what `plan` says, durably, and returns the archives in the order of their offsets.
///
/// Each byte is in an archive before it is taken out of the log. Afterwards the partition is loaded as after a crash; a
/// recovery point above the cut does not count any more.
///
/// Cost: one copy of what goes, with room for what goes of the first segment and one more. Several syncs a segment.
///
/// # Errors
/// [`CutError::Changed`], [`CutError::Unfinished`]; [`CutError::Interrupted`], [`CutError::Io`]: later segments may have
/// been put away, and the log is as corrupt as it was, or cut. Make a new plan and apply that.
pub fn apply(io: &mut dyn Io, plan: &CutPlan, watch: &mut dyn Watch) -> Result<Vec<PathBuf>, CutError> {
    let dir = &plan.dir;
    let now = segments_of(io, dir)?;
    let at = now
        .iter()
        .zip(&plan.segments)
        .position(|(a, b)| a != b)
        .unwrap_or(now.len().min(plan.segments.len()));
    if let Some(&(base, _)) = now.get(at).or(plan.segments.get(at)) {
        return Err(CutError::Changed { file: file_path(dir, base, FileKind::Log) });
    }
    if io.metadata(&plan.side_dir)?.is_none() {
        durable::create_dir_all(io, &plan.side_dir)?;
    }
    let mut meter = Meter::begin(watch, Phase::Archive, plan.archived_size())?;
    for piece in plan.pieces.iter().filter(|piece| !piece.whole) {
        if let Some((to, size)) = &piece.archive {
            copy(io, piece, to, *size, &mut meter)?;
        }
    }
    let end = plan.log_end_offset;
    let seen = plan.offsets().map_or(end, |(_, end)| end).max(plan.recovery_point);
    let last = plan.segments.last().map_or(end, |&(base, _)| base);
    let mut file = match snapshots::read_partition_file(io, &plan.side_dir)? {
        Some(Ok(file)) => file,
        _ => PartitionFile::default(),
    };
    file.truncate(end, seen.max(last));
    // DURABLE: a recovery point above the cut does not count, and no snapshot above it is trusted.
    snapshots::write_partition_file(io, &plan.side_dir, &file)?;
    snapshots::remove_snapshots(io, dir, |at| at > end)?;
    cut_epochs(io, dir, end)?;
    // From the end, one by one: a log that loads must never have a hole where a segment was.
    for piece in plan.pieces.iter().rev().filter(|piece| piece.whole) {
        put_away(io, dir, piece, &mut meter)?;
    }
    for piece in plan.pieces.iter().filter(|piece| !piece.whole) {
        cut_file(io, dir, piece, end)?;
    }
    Ok(plan.pieces.iter().filter_map(|piece| piece.archive.as_ref()).map(|(path, _)| path.clone()).collect())
}

/// The segments with their sizes, ascending; none may be about to be replaced.
fn segments_of(io: &mut dyn Io, dir: &Path) -> Result<Vec<(Offset, u64)>, CutError> {
    let mut segments = Vec::new();
    for path in io.list(dir)? {
        let Some(name) = SegmentFileName::of(&path) else { continue };
        if matches!(name.stage, Stage::Swap | Stage::Cleaned) {
            return Err(CutError::Unfinished { file: path });
        }
        if name.stage == Stage::Live
            && name.kind == FileKind::Log
            && path == file_path(dir, name.base_offset, FileKind::Log)
        {
            let size = io.metadata(&path)?.map_or(0, |metadata| metadata.size);
            segments.push((name.base_offset, size));
        }
    }
    segments.sort_unstable();
    Ok(segments)
}

/// Opens a file to read for as long as `read` runs.
fn reading<T>(
    io: &mut dyn Io,
    path: &Path,
    read: impl FnOnce(&mut dyn Io, FileId) -> Result<T, CutError>,
) -> Result<T, CutError> {
    let file = io.open(path, Open::Read)?;
    let done = read(io, file);
    let closed = io.close(file);
    let done = done?;
    closed?;
    Ok(done)
}

/// What of a segment stays.
struct Kept {
    /// One above the last offset that stays.
    end: Offset,
    /// Where the bytes end that stay.
    position: u64,
    /// No batch begins there: it is the end of the segment.
    at_end: bool,
    /// What is wrong there, if the walk did not come further.
    found: Option<Invalid>,
}

/// Walks a segment up to `offset`.
fn keep(
    mut view: FileView<'_>,
    base: Offset,
    next_segment: Option<Offset>,
    offset: Offset,
    meter: &mut Meter<'_>,
) -> Result<Kept, CutError> {
    let mut walker = Walker::new(0);
    let kept = keep_batches(&mut view, &mut walker, base, next_segment, offset, meter);
    walker.finish(view.io)?;
    kept
}

fn keep_batches(
    view: &mut FileView<'_>,
    walker: &mut Walker,
    base: Offset,
    next_segment: Option<Offset>,
    offset: Offset,
    meter: &mut Meter<'_>,
) -> Result<Kept, CutError> {
    let mut bounds = Bounds { next_offset: base, next_segment };
    let size = view.size;
    meter.tell()?;
    loop {
        let position = walker.position();
        let end = bounds.next_offset;
        if end >= offset {
            return Ok(Kept { end, position, at_end: false, found: None });
        }
        let found = match walker.next(view)? {
            Frame::End => return Ok(Kept { end, position, at_end: true, found: None }),
            // Allocated ahead, as a load sees it.
            Frame::Invalid(_) if tail::zeros_until(view, position, size)? => {
                return Ok(Kept { end, position, at_end: true, found: None });
            }
            Frame::Invalid(error) => {
                std::mem::replace(walker, Walker::new(position)).finish(view.io)?;
                let mut reached = false;
                let run = messages(view, position, |message| -> Result<_, CutError> {
                    let (end, next_offset) = (bounds.next_offset, next_of(message));
                    // Where the first of a wrapper's messages is, only its codec knows.
                    if end < offset && next_offset > offset && message.codec() != Codec::None {
                        return Err(CutError::InsideBatch { offset, base_offset: end, next_offset });
                    }
                    reached = end >= offset || message.offset() >= offset;
                    if reached {
                        return Ok(Err(Invalid::OffsetBelowEnd { base_offset: message.offset() }));
                    }
                    meter.add(u64::try_from(message.size()).unwrap_or(u64::MAX))?;
                    Ok(bounds.admit_message(message))
                })?;
                *walker = Walker::new(run.position);
                if reached {
                    let end = bounds.next_offset;
                    return Ok(Kept { end, position: run.position, at_end: false, found: None });
                }
                if run.position > position {
                    continue;
                }
                Err(run.stopped.unwrap_or(Invalid::Batch(error)))
            }
            Frame::Batch(batch) => {
                let range = (batch.base_offset(), batch.next_offset());
                bounds.admit(&batch).map(|()| range)
            }
        };
        match found {
            Err(found) => return Ok(Kept { end, position, at_end: false, found: Some(found) }),
            // A gap lies at the offset.
            Ok((base_offset, _)) if base_offset >= offset => {
                return Ok(Kept { end, position, at_end: false, found: None });
            }
            Ok((base_offset, next_offset)) if next_offset > offset => {
                return Err(CutError::InsideBatch { offset, base_offset, next_offset });
            }
            Ok(_) => meter.add(walker.position() - position)?,
        }
    }
}

/// What a piece holds.
struct Looked {
    contents: tail::Survey,
    invalid: Option<(u64, Invalid)>,
    /// How much of it is archived.
    archived: u64,
    crc: u32,
}

fn look_at_piece(
    mut view: FileView<'_>,
    position: u64,
    next_offset: Offset,
    meter: &mut Meter<'_>,
) -> Result<Looked, CutError> {
    meter.tell()?;
    let size = view.size;
    let contents = tail::survey(&mut view, position, next_offset)?;
    // Zeros may be the end of the last batch.
    let data_end = tail::data_end(&mut view, position)?.max(contents.end_position.unwrap_or(position));
    let archive_end =
        if data_end > position { data_end.next_multiple_of(BLOCK_SIZE).min(size) } else { position };
    let invalid = match contents.invalid_at.filter(|&at| at < data_end) {
        None => None,
        Some(at) => {
            let mut walker = Walker::new(at);
            let invalid = walker.next(&mut view).map(|frame| match frame {
                Frame::Invalid(error) => Some((at, Invalid::Batch(error))),
                Frame::End => None,
                // A valid batch that is no part of this log: its offset goes back, or it is a compressed control batch.
                Frame::Batch(batch) if batch.is_compressed_control() => {
                    Some((at, Invalid::CompressedControlBatch))
                }
                Frame::Batch(batch) => {
                    Some((at, Invalid::OffsetBelowEnd { base_offset: batch.base_offset() }))
                }
            });
            walker.finish(view.io)?;
            invalid?
        }
    };
    let crc = tail::crc(&mut view, crc_fast::CrcAlgorithm::Crc32Iscsi, position, archive_end)?;
    meter.add(size - position)?;
    Ok(Looked {
        contents,
        invalid,
        archived: archive_end - position,
        crc: u32::try_from(crc).expect("a 32-bit CRC fits 32 bits"),
    })
}

/// Copies the archived part of a piece, durably, under a name that it has only when it is complete.
fn copy(
    io: &mut dyn Io,
    piece: &CutPiece,
    to: &Path,
    size: u64,
    meter: &mut Meter<'_>,
) -> Result<(), CutError> {
    let bytes = archive::Bytes { file: &piece.file, position: piece.position, size };
    match archive::copy(io, bytes, to, |part| -> Result<(), CutError> { Ok(meter.add(part)?) })? {
        true => Ok(()),
        false => Err(CutError::Changed { file: piece.file.clone() }),
    }
}

/// Takes a whole segment out of the log.
fn put_away(io: &mut dyn Io, dir: &Path, piece: &CutPiece, meter: &mut Meter<'_>) -> Result<(), CutError> {
    // A rename from one directory to another may lose the file in a crash: one name gone, the other not yet there.
    if let Some((to, size)) = &piece.archive {
        copy(io, piece, to, *size, meter)?;
    }
    io.remove(&piece.file)?;
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TransactionIndex] {
        remove_if_there(io, &file_path(dir, piece.base_offset, kind))?;
    }
    // DURABLE: this segment is gone before the one in front of it is touched.
    Ok(io.sync_dir(dir)?)
}

fn remove_if_there(io: &mut dyn Io, path: &Path) -> Result<(), IoError> {
    match io.remove(path) {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Cuts the segment that stays.
fn cut_file(io: &mut dyn Io, dir: &Path, piece: &CutPiece, end: Offset) -> Result<(), CutError> {
    // After a crash no index may speak of batches that are no longer there.
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        remove_if_there(io, &file_path(dir, piece.base_offset, kind))?;
    }
    let path = file_path(dir, piece.base_offset, FileKind::TransactionIndex);
    match read_small(io, &path)? {
        None => {}
        Some(bytes) => match TransactionIndex::decode(piece.base_offset, &bytes) {
            Ok(mut index) => {
                let before = index.entries().len();
                index.truncate_to(end);
                if index.entries().is_empty() {
                    remove_if_there(io, &path)?;
                } else if index.entries().len() < before {
                    durable::replace(io, &path, index.encode())?;
                }
            }
            // The next load builds it again.
            Err(_) => remove_if_there(io, &path)?,
        },
    }
    io.sync_dir(dir)?;
    let file = io.open(&piece.file, Open::Write)?;
    // DURABLE: the cut.
    let cut = io.truncate(file, piece.position).and_then(|()| exact::sync(io, file, SyncKind::All));
    let closed = io.close(file);
    cut?;
    Ok(closed?)
}

/// Forgets the leader epochs that began at or above the cut.
fn cut_epochs(io: &mut dyn Io, dir: &Path, end: Offset) -> Result<(), CutError> {
    let path = dir.join(LEADER_EPOCH_CHECKPOINT);
    let Some(mut epochs) = read_small(io, &path)?.and_then(|bytes| LeaderEpochCache::decode(&bytes).ok())
    else {
        // The next load builds it again.
        return Ok(());
    };
    if epochs.truncate_from_end(end) {
        durable::replace(io, &path, Bytes::from(epochs.encode()))?;
    }
    Ok(())
}

fn read_small(io: &mut dyn Io, path: &Path) -> Result<Option<Bytes>, IoError> {
    match durable::read_file(io, path, SMALL_FILE_LIMIT) {
        Err(IoError::Short { .. }) => Ok(Some(Bytes::new())),
        other => other,
    }
}
