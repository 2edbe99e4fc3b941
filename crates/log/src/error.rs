//! Why an append or a read was not done.

use weir_format::{BatchError, LeaderEpoch, MessageError, Offset, ProducerId, RecordError, TimestampMs};
use weir_psm::ProducerStateError;
use weir_segment::SegmentError;
use weir_segment::io::{IoError, Operation};

/// An error for the log, which prints its causes with it.
pub(crate) fn because<E: std::error::Error + 'static>(error: &E) -> &(dyn std::error::Error + 'static) {
    error
}

/// A change that failed and took its log offline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedChange {
    /// What failed, with its causes.
    pub reason: String,
    /// Whether that may have been a sync: then nothing tells what is on the disk, and time does not heal it.
    pub may_be_sync: bool,
}

impl FailedChange {
    pub(crate) fn of(error: &SegmentError) -> Self {
        let may_be_sync = match error {
            SegmentError::Io(IoError::Os { at, .. } | IoError::Short { at, .. }) => {
                matches!(at.operation, Operation::Sync | Operation::SyncDirectory)
            }
            _ => true,
        };
        let mut reason = error.to_string();
        let mut next = because(error).source();
        while let Some(cause) = next {
            reason = format!("{reason}: {cause}");
            next = cause.source();
        }
        Self { reason, may_be_sync }
    }
}

/// Why [`UnifiedLog::append`](crate::UnifiedLog::append) did not append.
///
/// Except for [`AppendError::Log`] nothing of the call was written and no state has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The bytes are not whole, valid batches.
    #[error("batch at byte {position} of the request is not valid")]
    Batch {
        /// Where the bad batch starts, in bytes from the start of the request.
        position: usize,
        /// What is wrong with it.
        #[source]
        source: BatchError,
    },
    /// The bytes of a source of old have the magic of a message there, and it is not whole or not valid.
    #[error("message at byte {position} of the request is not valid")]
    Message {
        /// Where the bad message starts, in bytes from the start of the request.
        position: usize,
        /// What is wrong with it.
        #[source]
        source: MessageError,
    },
    /// A client or a coordinator must append exactly one batch.
    #[error("{found} batches in one append, expected 1")]
    NotOneBatch {
        /// How many there are.
        found: usize,
    },
    /// The batch breaks a rule of its origin.
    #[error("batch is not valid: {reason}")]
    InvalidRecord {
        /// Which rule.
        reason: InvalidRecord,
    },
    /// The records of a client's batch cannot be walked, or decompressed.
    #[error("records are not valid")]
    Records {
        /// What is wrong with them.
        #[source]
        source: RecordError,
    },
    /// The batch is larger than `max.message.bytes`.
    #[error("batch has {size} bytes, the limit is {max}")]
    RecordTooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A client's batch is larger than a segment (`segment.bytes`).
    #[error("batch has {size} bytes, a segment has room for {max} (segment.bytes)")]
    RecordBatchTooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// A record's timestamp is too far from the clock (`message.timestamp.before.max.ms`,
    /// `message.timestamp.after.max.ms`).
    #[error("record {index} has timestamp {timestamp}, which is not within {earliest}..={latest}")]
    InvalidTimestamp {
        /// Which record of the batch, from 0.
        index: i32,
        /// Its timestamp.
        timestamp: TimestampMs,
        /// The earliest that is taken now.
        earliest: TimestampMs,
        /// The latest that is taken now.
        latest: TimestampMs,
    },
    /// A client's batch says that its timestamps are the broker's.
    #[error("a producer's batch may not have the timestamp type LogAppendTime")]
    LogAppendTimeFromClient,
    /// The batch would open a transaction that the coordinator does not have open on this partition.
    #[error("producer {producer_id} has no transaction open on this partition")]
    TransactionNotOpen {
        /// The producer.
        producer_id: ProducerId,
    },
    /// The producer's state forbids it: sequence, epoch or transaction.
    #[error("producer state refuses the batch")]
    ProducerState {
        /// Which rule.
        #[source]
        source: ProducerStateError,
    },
    /// Replicated bytes begin below the log end, and the log is not empty.
    #[error("first batch has offsets {first_offset}..={last_offset}, the log ends at {log_end_offset}")]
    UnexpectedOffset {
        /// Base offset of the first batch.
        first_offset: Offset,
        /// Its last offset.
        last_offset: Offset,
        /// Where the log ends.
        log_end_offset: Offset,
    },
    /// Replicated batches overlap or go backwards.
    #[error("batch at offset {found} follows one that ends at {expected}")]
    OffsetsNotMonotonic {
        /// The smallest base offset that could follow.
        expected: Offset,
        /// The base offset found.
        found: Offset,
    },
    /// A replicated batch is of a later leader epoch than the fetch was made under.
    ///
    /// What lies before `position` may be appended alone.
    #[error("batch at offset {offset} has leader epoch {epoch}, the fetch was made under {max}")]
    LeaderEpochTooHigh {
        /// The batch's epoch.
        epoch: LeaderEpoch,
        /// The largest allowed.
        max: LeaderEpoch,
        /// Base offset of the batch.
        offset: Offset,
        /// Where it starts in the request, in bytes.
        position: usize,
    },
    /// A leader would append under an epoch that its own log is ahead of: it is not the leader any more, or was never
    /// told that it is. Raise its epoch first.
    #[error("leader epoch {epoch} is below {newest}, the newest in the log")]
    LeaderEpochBelowNewest {
        /// The epoch given.
        epoch: LeaderEpoch,
        /// The newest in the log.
        newest: LeaderEpoch,
    },
    /// More may not be unsynced: append again after the next sync.
    #[error("{unsynced} bytes are not yet synced, the limit is {max}")]
    TooMuchUnsynced {
        /// What is written and not synced, in bytes.
        unsynced: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// An earlier write or sync failed. The partition takes nothing until it is opened again from its bytes.
    #[error("partition is offline until it is reloaded")]
    Offline,
    /// Writing failed. The partition is offline from now on; what is on disk is found when it is opened again.
    #[error("append failed, partition is offline")]
    Log {
        /// What failed.
        #[source]
        source: SegmentError,
    },
}

impl AppendError {
    /// Which record of the batch is at fault, from 0, where one record is.
    #[must_use]
    pub fn record_index(&self) -> Option<i32> {
        match self {
            Self::InvalidTimestamp { index, .. }
            | Self::InvalidRecord {
                reason: InvalidRecord::NoKey { index } | InvalidRecord::OffsetDelta { index, .. },
            } => Some(*index),
            _ => None,
        }
    }
}

/// The rule that a batch breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidRecord {
    /// A client's batch must start at offset 0: the leader assigns the others.
    BaseOffset {
        /// The base offset found.
        base_offset: Offset,
    },
    /// A client may not write control batches.
    ControlBatchFromClient,
    /// A control batch must not be compressed.
    CompressedControlBatch,
    /// A coordinator writes markers, barriers and its own records, and these are none of them.
    NotAControlBatch,
    /// A producer id below −1.
    NegativeProducerId {
        /// The id as it stands in the batch.
        producer_id: i64,
    },
    /// A client's batch has no records.
    NoRecords,
    /// The header's record count and last offset delta disagree.
    CountAndDelta {
        /// The header's count.
        record_count: i32,
        /// The header's last offset delta.
        last_offset_delta: i32,
    },
    /// A client's batch has a producer id and no sequence.
    NoSequence,
    /// The records' offset deltas do not count up from 0.
    OffsetDelta {
        /// Which record, from 0.
        index: i32,
        /// Its offset delta.
        delta: i64,
    },
    /// A record without a key, and the topic is compacted.
    NoKey {
        /// Which record, from 0.
        index: i32,
    },
    /// The codec has no number that Kafka gave out.
    UnknownCodec {
        /// The number.
        codec: u8,
    },
    /// A replicated batch carries no leader epoch.
    MissingLeaderEpoch,
    /// A leader must say under which epoch it appends.
    NoLeaderEpochGiven,
    /// The batch leaves no offset behind it.
    OffsetOverflow,
}

impl std::fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BaseOffset { base_offset } => write!(f, "base offset {base_offset} instead of 0"),
            Self::ControlBatchFromClient => f.write_str("control batch from a client"),
            Self::CompressedControlBatch => f.write_str("compressed control batch"),
            Self::NotAControlBatch => f.write_str("not a control batch"),
            Self::NegativeProducerId { producer_id } => write!(f, "producer id {producer_id}"),
            Self::NoRecords => f.write_str("no records"),
            Self::CountAndDelta { record_count, last_offset_delta } => {
                write!(f, "record count {record_count} with last offset delta {last_offset_delta}")
            }
            Self::NoSequence => f.write_str("producer id without a sequence"),
            Self::OffsetDelta { index, delta } => write!(f, "record {index} has offset delta {delta}"),
            Self::NoKey { index } => write!(f, "record {index} has no key, and the topic is compacted"),
            Self::UnknownCodec { codec } => write!(f, "unknown compression codec {codec}"),
            Self::MissingLeaderEpoch => f.write_str("replicated batch without a leader epoch"),
            Self::NoLeaderEpochGiven => f.write_str("no leader epoch to append under"),
            Self::OffsetOverflow => f.write_str("no offset is left behind the batch"),
        }
    }
}

/// Why a read was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The offset lies outside of the log.
    #[error("offset {asked} is outside of {log_start_offset}..={end_offset}")]
    OffsetOutOfRange {
        /// What was asked for.
        asked: Offset,
        /// The first offset that may be read.
        log_start_offset: Offset,
        /// The last offset that may be asked for.
        end_offset: Offset,
    },
    /// The offset lies outside of what is left of a log that failed: where that starts and ends is said by its bytes, once
    /// it is opened from them again.
    #[error("offset {asked} is outside of a log that is offline until it is reloaded")]
    Offline {
        /// What was asked for.
        asked: Offset,
    },
    /// Reading failed.
    #[error("read failed")]
    Log {
        /// What failed.
        #[source]
        source: SegmentError,
    },
}

/// Why the log was not changed as asked: truncation, log start, close.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The offset lies outside of what the operation allows.
    #[error("offset {asked} is outside of {first}..={last}")]
    OffsetOutOfRange {
        /// What was asked for.
        asked: Offset,
        /// The smallest that is allowed.
        first: Offset,
        /// The largest that is allowed.
        last: Offset,
    },
    /// An earlier write or sync failed. The partition takes nothing until it is opened again from its bytes.
    #[error("partition is offline until it is reloaded")]
    Offline,
    /// It failed on the way. The partition is offline from now on; what is on disk is found when it is opened again.
    #[error("change failed, partition is offline")]
    Log {
        /// What failed.
        #[source]
        source: SegmentError,
    },
    /// Producer state could not be rebuilt from the log.
    #[error("replay failed, partition is offline")]
    Replay {
        /// Why.
        #[source]
        source: weir_recovery::LoadError,
    },
}
