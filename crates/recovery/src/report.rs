//! What a load found, kept, cut and rebuilt: a value, printed by the node, asserted by tests, shown by the CLI.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_format::Offset;

use crate::partition_file::PartitionFileError;

/// What [`LogLoader::load`](crate::LogLoader::load) found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The log was closed cleanly before.
    pub clean_shutdown: bool,
    /// Segments in the directory, before anything was done.
    pub segment_count: usize,
    /// Bytes of `.log` files, before anything was done.
    pub log_bytes: u64,
    /// Batches whose frame and CRC were checked.
    pub batch_count: u64,
    /// Bytes of batches whose frame and CRC were checked.
    pub checked_bytes: u64,
    /// Where the walk began; `None` if nothing was walked.
    pub walked_from: Option<Offset>,
    /// Where the log starts.
    pub log_start_offset: Offset,
    /// Where the log ends.
    pub log_end_offset: Offset,
    /// The recovery point that was given, if the log ends below it: something once synced is missing.
    pub ends_below_recovery_point: Option<Offset>,
    /// The log start that was asked for, if it lies above the log end.
    pub log_start_above_end: Option<Offset>,
    /// Where producer state came from.
    pub producer_state: ProducerStateSource,
    /// Producers known afterwards.
    pub producer_count: usize,
    /// Transactions open afterwards.
    pub open_transaction_count: usize,
    /// Barriers met, and the transactions that were aborted at them.
    pub barriers: Vec<BarrierFound>,
    /// What was cut from the ends of segments.
    pub cuts: Vec<CutTail>,
    /// What was rebuilt from the log, in the order in which it was done.
    pub rebuilt: Vec<Rebuilt>,
    /// Files of interrupted operations that were dropped or finished.
    pub leftovers: Vec<Leftover>,
    /// Files and directories without a meaning here, which were left alone: the first 32 of them, by name.
    pub foreign: Vec<ForeignFile>,
    /// How many of them there are.
    pub foreign_count: usize,
    /// Bytes of `.log` files that are left.
    pub kept_bytes: u64,
    /// Batches that a client's or coordinator's rules would have refused.
    pub tolerated_count: u64,
    /// What could be done without and failed, most likely for want of space.
    pub skipped: Vec<Skipped>,
    /// How long it took, by the caller's clock.
    pub duration: Option<Duration>,
    /// How long its phases took, by the watch's clock.
    pub times: Option<PhaseTimes>,
}

/// How long the phases of a load took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    /// Listing the directory, and finishing or dropping what interrupted operations left.
    pub leftovers: Duration,
    /// Walking batches, as often as that was necessary.
    pub walk: Duration,
    /// Opening the segments, building indexes and writing small files.
    pub rebuild: Duration,
}

/// Where producer state came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProducerStateSource {
    /// The log is empty.
    #[default]
    Empty,
    /// A snapshot that weir wrote, and the batches behind it.
    Snapshot {
        /// The snapshot's offset.
        offset: Offset,
    },
    /// All batches on disk, from the first segment.
    Replay {
        /// Where the first segment begins.
        from: Offset,
        /// Why no snapshot was used.
        reason: NoSnapshot,
    },
}

/// Why no snapshot was used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoSnapshot {
    /// There is no partition file: the directory was not written by weir, or the file was lost.
    NoPartitionFile,
    /// The partition file is not readable.
    PartitionFileUnreadable(PartitionFileError),
    /// The partition file names no snapshot that the replay could start from.
    NoneNamed,
    /// The snapshots that it names are gone, or are not what weir wrote.
    NoneIntact,
    /// The recovery point lies in the first segment, so everything is walked anyway.
    WalkedAnyway,
}

impl fmt::Display for NoSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPartitionFile => f.write_str("weir wrote no snapshot here"),
            Self::PartitionFileUnreadable(error) => error.fmt(f),
            Self::NoneNamed => f.write_str("no snapshot below the recovery point"),
            Self::NoneIntact => f.write_str("the snapshots are not those that weir wrote"),
            Self::WalkedAnyway => f.write_str("the first segment had to be walked"),
        }
    }
}

/// A barrier met by the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierFound {
    /// Where it stands.
    pub offset: Offset,
    /// Producers that were forgotten at it.
    pub producers_expired: usize,
    /// Transactions that were still open and count as aborted at it.
    pub transactions_aborted: usize,
}

/// Bytes cut from the end of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutTail {
    /// The file.
    pub file: PathBuf,
    /// Where it ends now, in bytes.
    pub position: u64,
    /// Bytes cut.
    pub size: u64,
    /// Why.
    pub kind: CutKind,
}

/// Why a tail was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CutKind {
    /// Zeros alone: space that was allocated ahead, no damage. Also what lies behind one of the other two.
    Preallocated,
    /// An unfinished write, with nothing valid behind it.
    Torn,
    /// A write that did not land before one that did. The cut bytes are in the archive.
    Hole {
        /// Where the cut bytes are.
        archive: PathBuf,
        /// Base offset of the first batch cut away.
        first_offset: Offset,
        /// One above the highest offset cut away.
        end_offset: Offset,
    },
}

impl CutKind {
    /// Where the cut bytes are, if they are kept.
    #[must_use]
    pub fn archive(&self) -> Option<&Path> {
        match self {
            Self::Preallocated | Self::Torn => None,
            Self::Hole { archive, .. } => Some(archive),
        }
    }
}

/// Something rebuilt from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rebuilt {
    /// The offset and time index of a segment.
    Indexes {
        /// Base offset of the segment.
        segment: Offset,
    },
    /// The transaction index of a segment, because it differed from what the log says.
    TransactionIndex {
        /// Base offset of the segment.
        segment: Offset,
    },
    /// The leader-epoch cache.
    LeaderEpochs,
    /// The partition file.
    PartitionFile,
}

/// A file of an interrupted operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its name.
    pub file: PathBuf,
    /// Whether the operation was finished; else the file was dropped.
    pub finished: bool,
}

/// A file or directory that has no meaning in a partition's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignFile {
    /// Its path.
    pub file: PathBuf,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Something that recovery can do without, and that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// What.
    pub what: &'static str,
    /// Why.
    pub cause: String,
}

impl Default for RecoveryReport {
    fn default() -> Self {
        Self {
            clean_shutdown: false,
            segment_count: 0,
            log_bytes: 0,
            batch_count: 0,
            checked_bytes: 0,
            walked_from: None,
            log_start_offset: Offset::ZERO,
            log_end_offset: Offset::ZERO,
            ends_below_recovery_point: None,
            log_start_above_end: None,
            producer_state: ProducerStateSource::Empty,
            producer_count: 0,
            open_transaction_count: 0,
            barriers: Vec::new(),
            cuts: Vec::new(),
            rebuilt: Vec::new(),
            leftovers: Vec::new(),
            foreign: Vec::new(),
            foreign_count: 0,
            kept_bytes: 0,
            tolerated_count: 0,
            skipped: Vec::new(),
            duration: None,
            times: None,
        }
    }
}

impl RecoveryReport {
    /// Bytes cut from the ends of segments, preallocated zeros left out.
    #[must_use]
    pub fn cut_bytes(&self) -> u64 {
        self.cuts.iter().filter(|cut| cut.kind != CutKind::Preallocated).map(|cut| cut.size).sum()
    }

    /// The same report with the time that the load took.
    #[must_use]
    pub fn with_duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }
}

fn name_of(file: &Path) -> std::path::Display<'_> {
    Path::new(file.file_name().unwrap_or_default()).display()
}

/// One line for the log, without the directory: whoever prints it knows the partition.
impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "offsets {}..{}, {} segments, {} bytes checked, producer state ",
            self.log_start_offset, self.log_end_offset, self.segment_count, self.checked_bytes
        )?;
        match &self.producer_state {
            ProducerStateSource::Empty => f.write_str("empty")?,
            ProducerStateSource::Snapshot { offset } => write!(f, "from snapshot {offset}")?,
            ProducerStateSource::Replay { from, reason } => write!(f, "replayed from {from} ({reason})")?,
        }
        for cut in &self.cuts {
            let (size, position, file) = (cut.size, cut.position, name_of(&cut.file));
            match &cut.kind {
                CutKind::Preallocated => continue,
                CutKind::Torn => write!(f, ", torn tail of {size} bytes cut")?,
                CutKind::Hole { first_offset, end_offset, .. } => {
                    write!(
                        f,
                        ", {size} bytes with offsets {first_offset}..{end_offset} behind a lost write cut"
                    )?;
                }
            }
            write!(f, " at byte {position} of {file}")?;
            if let Some(archive) = cut.kind.archive() {
                write!(f, " and kept: `weir dump-log {}` shows them", archive.display())?;
            }
        }
        let aborted: usize = self.barriers.iter().map(|barrier| barrier.transactions_aborted).sum();
        if aborted > 0 {
            write!(f, ", {aborted} transactions aborted at a barrier")?;
        }
        if let Some(first) = self.foreign.first() {
            write!(f, ", {} foreign files left alone ({})", self.foreign_count, name_of(&first.file))?;
        }
        if let Some(recovery_point) = self.ends_below_recovery_point {
            write!(
                f,
                ", ends below the recovery point {recovery_point}: offsets {}..{recovery_point} were on the disk and are \
                 gone, restore them from a copy or mirror the topic again",
                self.log_end_offset
            )?;
        }
        if let Some(asked) = self.log_start_above_end {
            write!(f, ", asked to start at {asked}, above its end")?;
        }
        for skipped in &self.skipped {
            write!(f, ", {} skipped: {}", skipped.what, skipped.cause)?;
        }
        Ok(())
    }
}
