//! What an inspection found: values, printed by others.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use weir_recovery::partition_file::PartitionFileError;
use weir_segment::layout::{TopicPartition, Uuid};

use super::files::Holder;

/// How a partition is, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// A start serves all of it.
    Healthy,
    /// A start would cut its end.
    WouldCut,
    /// A start would serve it, and something that was once durable is missing.
    Incomplete,
    /// It could not be read to its end.
    Unreadable,
    /// A start would refuse it.
    Corrupt,
}

impl Verdict {
    /// The word, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::WouldCut => "wouldCut",
            Self::Incomplete => "incomplete",
            Self::Unreadable => "unreadable",
            Self::Corrupt => "corrupt",
        }
    }

    /// The word, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::WouldCut => "would cut",
            other => other.name(),
        }
    }
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; a start puts it right by itself.
    Note,
    /// It is not good.
    Problem,
}

/// What a finding is. The names are part of the JSON and are never used for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Bytes that were once synced, or that valid batches follow, are not a valid batch.
    Corrupt,
    /// An unfinished write at the end.
    TornTail,
    /// A write that did not land before one that did.
    Hole,
    /// A running node is writing here.
    BeingWritten,
    /// Space that was allocated ahead.
    Preallocated,
    /// It cannot be read.
    Unreadable,
    /// It is not a file.
    NotAFile,
    /// It is larger than any of its kind.
    TooLarge,
    /// The log ends below its recovery point.
    BelowRecoveryPoint,
    /// The log ends below a high watermark that was written down: what was acknowledged is missing.
    BelowHighWatermark,
    /// The log start lies above the log end.
    LogStartAboveEnd,
    /// There are offsets between two segments that no file has.
    SegmentGap,
    /// An index that a start would build again.
    Index,
    /// A transaction index that differs from the log.
    TransactionIndex,
    /// The leader-epoch checkpoint is absent, malformed, or contradicts the log.
    LeaderEpochs,
    /// weir's partition file is absent or not readable.
    PartitionFile,
    /// Barriers in weir's partition file differ from those in the log.
    Barriers,
    /// A small file that is not readable.
    SmallFile,
    /// A file of an interrupted operation.
    Leftover,
    /// A name that neither Kafka nor weir uses.
    UnknownName,
    /// Batches that the rules for clients would have refused.
    Tolerated,
    /// Producer state was not followed to the end.
    StateNotFollowed,
    /// A directory that is not served.
    NotServed,
    /// weir's own files are missing or are another's.
    SideDirectory,
}

impl Code {
    /// The name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Corrupt => "corrupt",
            Self::TornTail => "tornTail",
            Self::Hole => "hole",
            Self::BeingWritten => "beingWritten",
            Self::Preallocated => "preallocated",
            Self::Unreadable => "unreadable",
            Self::NotAFile => "notAFile",
            Self::TooLarge => "tooLarge",
            Self::BelowRecoveryPoint => "belowRecoveryPoint",
            Self::BelowHighWatermark => "belowHighWatermark",
            Self::LogStartAboveEnd => "logStartAboveEnd",
            Self::SegmentGap => "segmentGap",
            Self::Index => "index",
            Self::TransactionIndex => "transactionIndex",
            Self::LeaderEpochs => "leaderEpochs",
            Self::PartitionFile => "partitionFile",
            Self::Barriers => "barriers",
            Self::SmallFile => "smallFile",
            Self::Leftover => "leftover",
            Self::UnknownName => "unknownName",
            Self::Tolerated => "tolerated",
            Self::StateNotFollowed => "stateNotFollowed",
            Self::NotServed => "notServed",
            Self::SideDirectory => "sideDirectory",
        }
    }
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// In a sentence.
    pub message: String,
    /// The file.
    pub file: Option<PathBuf>,
    /// The byte in it.
    pub position: Option<u64>,
    /// The bytes that it concerns.
    pub size: Option<u64>,
    /// The first offset that it concerns, and the end.
    pub offsets: Option<(i64, i64)>,
    /// Why it is so.
    pub cause: Option<String>,
    /// A command or an act that helps.
    pub remedy: Option<String>,
}

impl Finding {
    /// A finding with nothing but its sentence.
    pub fn new(code: Code, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            code,
            severity,
            message: message.into(),
            file: None,
            position: None,
            size: None,
            offsets: None,
            cause: None,
            remedy: None,
        }
    }

    /// The same, of a file.
    #[must_use]
    pub fn of(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }
}

/// What one of a segment's indexes is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexState {
    /// There is none.
    Absent,
    /// It agrees with the log.
    Good {
        /// Its entries.
        entry_count: u64,
        /// Bytes of space behind them that were allocated ahead.
        preallocated: u64,
    },
    /// It does not, and a start builds it again where it needs it.
    Wrong {
        /// In a few words.
        reason: String,
    },
    /// It was not compared.
    NotChecked {
        /// Why.
        reason: String,
    },
}

/// How a segment's bytes end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentTail {
    /// Where the last valid batch ends.
    pub position: u64,
    /// Bytes from there that are more than space allocated ahead.
    pub size: u64,
    /// Bytes of space allocated ahead.
    pub preallocated: u64,
    /// What they are.
    pub code: Code,
}

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    /// The number in its name.
    pub base_offset: i64,
    /// Bytes of its `.log`.
    pub size: u64,
    /// Valid batches and messages.
    pub batch_count: u64,
    /// Bytes in them.
    pub valid_size: u64,
    /// Records as their batches count them; `None` with wrappers of old formats, which do not.
    pub record_count: Option<u64>,
    /// The offset behind its last batch.
    pub end_offset: Option<i64>,
    /// The first record's timestamp of any batch, the smallest.
    pub min_timestamp: Option<i64>,
    /// The largest timestamp.
    pub max_timestamp: Option<i64>,
    /// `.index`.
    pub offset_index: IndexState,
    /// `.timeindex`.
    pub time_index: IndexState,
    /// `.txnindex`.
    pub transaction_index: IndexState,
    /// How it ends, if not with its last batch.
    pub tail: Option<SegmentTail>,
}

/// Sums over the batches of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchSummary {
    /// Batches and messages by magic.
    pub magic: BTreeMap<i8, u64>,
    /// By codec.
    pub codec: BTreeMap<String, u64>,
    /// Control batches.
    pub control: u64,
    /// Transactional batches, control batches left out.
    pub transactional: u64,
    /// Batches with a producer id and no transaction.
    pub idempotent: u64,
    /// Batches without a record.
    pub empty: u64,
}

/// Offsets that no batch covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub from: i64,
    /// The offset behind them.
    pub end: i64,
}

/// One control record that is not a barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlRecord {
    /// Where it stands.
    pub offset: i64,
    /// Its leader epoch.
    pub leader_epoch: Option<i32>,
    /// Its time.
    pub timestamp: Option<i64>,
    /// Whose it is.
    pub producer_id: Option<i64>,
    /// Of which epoch.
    pub producer_epoch: Option<i16>,
    /// The first offset of the transaction that it ended, if one was open.
    pub transaction_first_offset: Option<i64>,
    /// As dump-log says it.
    pub text: String,
    /// As dump-log says it in JSON.
    pub value: Value,
}

/// One barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BarrierReport {
    /// Where it stands.
    pub offset: i64,
    /// Its leader epoch.
    pub leader_epoch: Option<i32>,
    /// Its time.
    pub timestamp: Option<i64>,
    /// The form of its value, in words.
    pub text: String,
    /// The same as JSON.
    pub value: Value,
    /// Producers that were forgotten at it; `None` where state was not followed.
    pub producers_expired: Option<u64>,
    /// Transactions that were aborted at it: producer id and first offset. No more than a thousand.
    pub transactions_aborted: Vec<(i64, i64)>,
    /// How many there were.
    pub transactions_aborted_count: Option<u64>,
}

/// The control records of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlReport {
    /// How many of each type.
    pub counts: BTreeMap<String, u64>,
    /// Barriers, ascending.
    pub barriers: Vec<BarrierReport>,
    /// The others, ascending.
    pub others: Vec<ControlRecord>,
    /// Those of both kinds that are only counted.
    pub omitted: u64,
}

/// A producer at the log end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerReport {
    /// Its id.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: Option<i16>,
    /// Its last sequence.
    pub last_sequence: Option<i32>,
    /// Its last batch's last offset.
    pub last_offset: Option<i64>,
    /// The coordinator epoch of its last marker.
    pub coordinator_epoch: Option<i32>,
    /// When it was last seen, by its own clock.
    pub last_timestamp: Option<i64>,
}

/// A transaction without an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenTransactionReport {
    /// Whose it is.
    pub producer_id: i64,
    /// Of which epoch.
    pub producer_epoch: Option<i16>,
    /// Where it begins.
    pub first_offset: i64,
    /// When its first batch was written.
    pub first_timestamp: Option<i64>,
    /// How long ago that is, in milliseconds.
    pub age_ms: Option<i64>,
}

/// What is known about producers at the end of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProducersReport {
    /// Up to which offset the log was followed.
    pub at: i64,
    /// How many there are.
    pub count: u64,
    /// Some of them: those with the highest last offsets.
    pub some: Vec<ProducerReport>,
    /// How many transactions are open.
    pub open_count: u64,
    /// The earliest of them.
    pub open: Vec<OpenTransactionReport>,
    /// Below it everything is decided.
    pub last_stable_offset: i64,
}

/// One leader epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochReport {
    /// Its number.
    pub epoch: i32,
    /// Where it begins.
    pub start_offset: i64,
    /// The log has a batch of it.
    pub has_batches: bool,
    /// The checkpoint has it.
    pub in_checkpoint: bool,
}

/// One producer snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotReport {
    /// The number in its name.
    pub offset: i64,
    /// In bytes.
    pub size: u64,
    /// Producers in it, if it can be read.
    pub producer_count: Option<u64>,
    /// `None` if a start may load it, else why it does not.
    pub distrust: Option<String>,
}

/// Bytes that were cut away and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveReport {
    /// The file.
    pub file: PathBuf,
    /// In bytes.
    pub size: u64,
    /// Offsets of the first valid batch in it and behind the last one.
    pub offsets: Option<(i64, i64)>,
}

/// weir's own file beside a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SideFile {
    /// There is none: weir never loaded this directory, or its file was lost.
    Absent,
    /// It cannot be used.
    Unreadable(PartitionFileError),
    /// All barriers below `checked` are listed, and so many.
    Good {
        /// The checked offset.
        checked: i64,
        /// Barriers listed.
        barrier_count: u64,
        /// A recovery point above the first, up to the second, counts as the first.
        cut: Option<(i64, i64)>,
    },
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReport {
    /// Its directory.
    pub dir: PathBuf,
    /// By the directory's name.
    pub name: Option<TopicPartition>,
    /// From `partition.metadata`.
    pub topic_id: Option<Uuid>,
    /// How it is.
    pub verdict: Verdict,
    /// Bytes that a start would cut, space allocated ahead left out.
    pub cut_size: u64,
    /// False if somebody ended the inspection early: all the rest is as far as it got.
    pub complete: bool,
    /// Whether the log directory was left by a clean stop.
    pub clean_shutdown: bool,
    /// Who has the log directory open.
    pub holder: Option<Holder>,
    /// From the checkpoint, as a start would take it.
    pub recovery_point: Option<i64>,
    /// From the checkpoint.
    pub high_watermark: Option<i64>,
    /// Where the log starts, as far as the files tell.
    pub log_start_offset: i64,
    /// Where it ends: behind the last batch that a start would serve.
    pub log_end_offset: i64,
    /// Its segments.
    pub segments: Vec<SegmentReport>,
    /// Sums over its batches.
    pub batches: BatchSummary,
    /// Offsets that no batch covers, the first of them.
    pub gaps: Vec<Gap>,
    /// How many there are.
    pub gap_count: u64,
    /// And how many offsets in them.
    pub gap_offset_count: u64,
    /// Control records.
    pub control: ControlReport,
    /// Producers; `None` if state was not followed at all.
    pub producers: ProducersReport,
    /// Leader epochs.
    pub epochs: Vec<EpochReport>,
    /// Producer snapshots.
    pub snapshots: Vec<SnapshotReport>,
    /// weir's own directory for it, where it is known.
    pub side_dir: Option<PathBuf>,
    /// weir's own file.
    pub side_file: SideFile,
    /// Archives.
    pub archives: Vec<ArchiveReport>,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

impl PartitionReport {
    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).fold(0, u64::saturating_add)
    }

    /// Valid batches of all segments.
    pub fn batch_count(&self) -> u64 {
        self.segments.iter().map(|segment| segment.batch_count).fold(0, u64::saturating_add)
    }

    /// Records of all segments, if all are counted.
    pub fn record_count(&self) -> Option<u64> {
        self.segments.iter().try_fold(0_u64, |sum, segment| Some(sum.saturating_add(segment.record_count?)))
    }

    /// The smallest and the largest timestamp.
    pub fn timestamps(&self) -> Option<(i64, i64)> {
        let first = self.segments.iter().filter_map(|segment| segment.min_timestamp).min()?;
        let last = self.segments.iter().filter_map(|segment| segment.max_timestamp).max()?;
        Some((first, last))
    }

    /// The name, or the path.
    pub fn title(&self) -> String {
        match &self.name {
            Some(name) => name.to_string(),
            None => self.dir.display().to_string(),
        }
    }

    /// Lets go of what only a full print needs.
    pub fn shorten(&mut self) {
        self.control.omitted =
            self.control.omitted.saturating_add(u64::try_from(self.control.others.len()).unwrap_or(0));
        self.control.others = Vec::new();
        self.producers.some = Vec::new();
        self.gaps = Vec::new();
    }
}

/// A log directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDirReport {
    /// Its path.
    pub dir: PathBuf,
    /// Whether it was left by a clean stop.
    pub clean_shutdown: bool,
    /// Who has it open.
    pub holder: Option<Holder>,
    /// From `meta.properties`.
    pub cluster_id: Option<String>,
    /// From `meta.properties`.
    pub node_id: Option<i32>,
    /// From `meta.properties`.
    pub directory_id: Option<Uuid>,
    /// weir's own directory beside it, if it is there.
    pub side_dir: Option<PathBuf>,
    /// The metadata store in it.
    pub store: Option<PathBuf>,
    /// Partitions in it.
    pub partition_count: u64,
    /// What was found about the directory itself.
    pub findings: Vec<Finding>,
}

/// A file by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReport {
    /// Its path.
    pub file: PathBuf,
    /// What it is, by its name.
    pub what: String,
    /// In bytes.
    pub size: u64,
    /// What is in it, a line each.
    pub facts: Vec<String>,
    /// What is wrong with it.
    pub findings: Vec<Finding>,
}
