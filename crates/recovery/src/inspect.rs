//! A look at a partition's directory that changes nothing: what a load would find, keep, cut and rebuild.
//!
//! It is the load itself, over an [`OverlayIo`] that keeps every change in memory, so the answers cannot differ. Where a
//! load refuses, the corruption is a value, and the state is that of the log in front of it. It may run beside a node that
//! appends to the log, rolls it and deletes from it.
//!
//! ```
//! use std::path::Path;
//! use weir_format::{BatchBuilder, Offset, TimestampMs};
//! use weir_psm::PsmConfig;
//! use weir_recovery::{RecoveryConfig, Unwatched, inspect};
//! use weir_segment::SegmentConfig;
//! use weir_segment::io::sim::SimDisk;
//!
//! let now = TimestampMs::new(1_767_225_600_000);
//! let disk = SimDisk::new(1);
//! let batch = BatchBuilder::new().record(now, None, Some(b"kept")).build()?;
//! disk.write_file(Path::new("/data/t-0/00000000000000000000.log"), &[&batch[..], b"torn"].concat());
//! let before = disk.contents();
//! let config = RecoveryConfig {
//!     segment: SegmentConfig::default(),
//!     psm: PsmConfig::default(),
//!     clean_shutdown: false,
//!     recovery_point: Offset::ZERO,
//!     log_start_offset: Offset::ZERO,
//!     side_dir: "/data.weir/t-0".into(),
//!     now,
//! };
//! let found = inspect(&mut disk.io(), Path::new("/data/t-0"), &config, &mut Unwatched)?;
//! assert_eq!(found.corruption, None);
//! assert_eq!((found.report.cut_bytes(), found.log_end_offset.get()), (4, 1));
//! assert_eq!(disk.contents(), before);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use weir_format::Offset;
use weir_psm::ProducerStateManager;
use weir_segment::io::overlay::OverlayIo;
use weir_segment::io::{Io, IoError, Open};
use weir_segment::layout::{FileKind, SegmentFileName, Stage, file_path};
use weir_segment::{AbortedTransaction, LogSegment};

use crate::epochs::LeaderEpochCache;
use crate::error::{Corruption, LoadError};
use crate::loader::{LoadedLog, LogLoader, Purpose, RecoveryConfig};
use crate::partition_file::PartitionFile;
use crate::replay::LastBatch;
use crate::report::RecoveryReport;
use crate::watch::Watch;

/// How often a look begins again because files went while it ran, or the log was cut in memory.
const MOST_ATTEMPTS: u32 = 5;

/// What a load of a directory would find. Nothing has been changed.
#[derive(Debug)]
pub struct Inspection {
    /// What a load would do. With a corruption: what it would do if the log were cut there.
    pub report: RecoveryReport,
    /// Why the partition does not load, if it does not.
    pub corruption: Option<Corruption>,
    /// The first offset that may be read.
    pub log_start_offset: Offset,
    /// Where the log ends, or where the corruption begins.
    pub log_end_offset: Offset,
    /// The last stable offset, if everything below the log end is durable.
    pub last_stable_offset: Offset,
    /// The segments that would be left.
    pub segments: Vec<InspectedSegment>,
    /// Producer state at the log end.
    pub producers: ProducerStateManager,
    /// Leader epochs.
    pub epochs: LeaderEpochCache,
    /// Barriers and trusted snapshots.
    pub partition_file: PartitionFile,
    /// Every aborted transaction, in the order of the files; of a transaction index that is spoilt, none.
    pub aborted_transactions: Vec<AbortedTransaction>,
    /// The newest batch.
    pub last_batch: Option<LastBatch>,
    /// The newest segment has grown since it was looked at: somebody appends, and a torn tail may be a write that was not
    /// finished yet.
    pub grows: bool,
}

/// A segment as a load would leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InspectedSegment {
    /// Its base offset.
    pub base_offset: Offset,
    /// Bytes of valid batches.
    pub size: u64,
}

/// Looks at the log in `dir` as a load would, and changes nothing: not one byte is written below it.
///
/// Files that grow meanwhile are looked at as they were at first. Where files go, the look begins again.
///
/// Cost: what the load would read, twice if the log is corrupt. Memory: as a load, and for each small file that a load
/// would write; no index, no snapshot and no archive is built.
///
/// # Errors
/// [`LoadError::NotADirectory`], also if nothing is there; [`LoadError::Interrupted`]; [`LoadError::Io`] if the disk
/// failed, or files went again and again.
pub fn inspect(
    io: &mut dyn Io,
    dir: &Path,
    config: &RecoveryConfig,
    watch: &mut dyn Watch,
) -> Result<Inspection, LoadError> {
    let mut attempt = 1;
    loop {
        match look(io, dir, config, watch) {
            Err(LoadError::Io(error)) if attempt < MOST_ATTEMPTS && has_changed(&error) => attempt += 1,
            done => return done,
        }
    }
}

/// A file is gone, or shorter than it was.
fn has_changed(error: &IoError) -> bool {
    error.is_not_found() || matches!(error, IoError::Short { .. })
}

fn look(
    base: &mut dyn Io,
    dir: &Path,
    config: &RecoveryConfig,
    watch: &mut dyn Watch,
) -> Result<Inspection, LoadError> {
    let mut corruption = None;
    let mut first_report: Option<RecoveryReport> = None;
    let mut cuts = 0;
    let mut io = OverlayIo::new(base);
    if io.metadata(dir)?.is_none_or(|metadata| !metadata.is_dir) {
        return Err(LoadError::NotADirectory { path: dir.to_path_buf() });
    }
    let (loaded, report) = loop {
        let mut report = RecoveryReport::default();
        match LogLoader::load_into(&mut io, dir, config, Purpose::Look, watch, &mut report) {
            Ok(loaded) => break (loaded, report),
            // The next walk may trust less and meet an earlier place, but not often.
            Err(LoadError::Corrupt(found)) if cuts < MOST_ATTEMPTS => {
                cuts += 1;
                cut_above(&mut io, dir, &found)?;
                corruption.get_or_insert(*found);
                first_report.get_or_insert(report);
            }
            Err(error) => return Err(error),
        }
    };
    let report = match first_report {
        None => report,
        Some(first) => RecoveryReport {
            segment_count: first.segment_count,
            log_bytes: first.log_bytes,
            leftovers: first.leftovers,
            ..report
        },
    };
    let LoadedLog { mut log, mut psm, epochs, partition_file, log_start_offset, last_batch, .. } = loaded;
    let log_end_offset = log.log_end_offset();
    let segments: Vec<InspectedSegment> = log
        .segments()
        .map(|segment: &LogSegment| InspectedSegment {
            base_offset: segment.base_offset(),
            size: segment.size(),
        })
        .collect();
    let mut aborted_transactions = Vec::new();
    for segment in &segments {
        if let Ok(index) = log.segment_transactions(&mut io, segment.base_offset) {
            aborted_transactions.extend_from_slice(index.entries());
        }
    }
    log.abandon(&mut io).map_err(crate::loader::open_error)?;
    psm.on_high_watermark(log_end_offset);
    let last_stable_offset = psm.last_stable_offset(log_end_offset).max(log_start_offset);
    drop(io);
    let grows = corruption.is_none()
        && match segments.last() {
            Some(last) => {
                let path = file_path(dir, last.base_offset, FileKind::Log);
                let cut: u64 = report.cuts.iter().filter(|cut| cut.file == path).map(|cut| cut.size).sum();
                base.metadata(&path)?.is_some_and(|metadata| metadata.size > last.size + cut)
            }
            None => false,
        };
    Ok(Inspection {
        report,
        corruption,
        log_start_offset,
        log_end_offset,
        last_stable_offset,
        segments,
        producers: psm,
        epochs,
        partition_file,
        aborted_transactions,
        last_batch,
        grows,
    })
}

/// Cuts the log in memory where it is corrupt, so that the next load gets by.
fn cut_above(io: &mut OverlayIo<'_>, dir: &Path, found: &Corruption) -> Result<(), LoadError> {
    let corrupt = SegmentFileName::of(&found.file).filter(|name| name.stage == Stage::Live);
    for path in io.list(dir)? {
        let Some(name) = SegmentFileName::of(&path) else { continue };
        let goes = match corrupt {
            Some(corrupt) => name.stage == Stage::Live && name.base_offset > corrupt.base_offset,
            // A replacement that cannot be finished: without it, the segments are what they were.
            None => name.stage == Stage::Swap,
        };
        if goes && name.kind != FileKind::Snapshot {
            io.remove(&path)?;
        }
    }
    if corrupt.is_some() {
        let file = io.open(&found.file, Open::Write)?;
        let cut = io.truncate(file, found.position);
        io.close(file)?;
        cut?;
    }
    Ok(())
}
