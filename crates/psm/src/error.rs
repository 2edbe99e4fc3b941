//! Why a batch is refused, and why snapshot bytes are.

use weir_format::{Offset, ProducerEpoch, ProducerId, Sequence};

/// Why [`check`](crate::ProducerStateManager::check) refuses a batch. The state is as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProducerStateError {
    /// The batch is of an epoch that is over. Kafka: INVALID_PRODUCER_EPOCH (47).
    #[error(
        "epoch of producer {producer_id} at offset {offset} is {}, the last seen is {}",
        Shown(*.epoch),
        Shown(*.current_epoch)
    )]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// Where the batch would have been written.
        offset: Offset,
        /// The batch's epoch.
        epoch: Option<ProducerEpoch>,
        /// The last epoch seen of this producer.
        current_epoch: Option<ProducerEpoch>,
    },

    /// A batch is missing before this one, or this one is older than what is retained.
    /// Kafka: OUT_OF_ORDER_SEQUENCE_NUMBER (45).
    #[error("first sequence of producer {producer_id} at offset {offset} is {sequence}, expected {expected}")]
    OutOfOrderSequence {
        /// The producer.
        producer_id: ProducerId,
        /// Where the batch would have been written.
        offset: Offset,
        /// The batch's first sequence.
        sequence: Sequence,
        /// The one that would have been taken.
        expected: Sequence,
    },

    /// A batch outside of the transaction that its producer has open.
    /// Kafka: INVALID_TXN_STATE (48), "Expected transactional write from producer".
    #[error(
        "expected transactional write from producer {producer_id} at offset {offset}: its transaction from offset {transaction_first_offset} is open"
    )]
    InvalidTxnState {
        /// The producer.
        producer_id: ProducerId,
        /// Where the batch would have been written.
        offset: Offset,
        /// Where the open transaction starts.
        transaction_first_offset: Offset,
    },

    /// A batch that would open a transaction, and the coordinator was not asked about it, or
    /// something of this producer was appended since. Kafka: INVALID_TXN_STATE (48), "Record was not
    /// part of an ongoing transaction"; INVALID_PRODUCER_EPOCH is kinder, since clients recover
    /// from it.
    #[error(
        "batch of producer {producer_id} at offset {offset} is not part of a transaction that was verified"
    )]
    NotVerified {
        /// The producer.
        producer_id: ProducerId,
        /// Where the batch would have been written.
        offset: Offset,
    },

    /// A marker of a coordinator that was replaced. Kafka: TRANSACTION_COORDINATOR_FENCED (52).
    #[error(
        "coordinator epoch for producer {producer_id} at offset {offset} is {}, the last seen is {}",
        Shown(*.coordinator_epoch),
        Shown(*.current_epoch)
    )]
    TransactionCoordinatorFenced {
        /// The producer.
        producer_id: ProducerId,
        /// Where the marker would have been written.
        offset: Offset,
        /// The marker's coordinator epoch.
        coordinator_epoch: Option<i32>,
        /// The one of the producer's last marker.
        current_epoch: Option<i32>,
    },

    /// A producer id below -1. Mirrored and replayed bytes may carry one, and it counts as none;
    /// nobody else may write it. Kafka: INVALID_RECORD (87).
    #[error("producer id {producer_id} at offset {offset} is negative")]
    InvalidProducerId {
        /// Where the batch would have been written.
        offset: Offset,
        /// The id as it stands in the batch.
        producer_id: i64,
    },

    /// A client's batch with a producer id and without a sequence. Kafka: INVALID_RECORD (87).
    #[error("batch of producer {producer_id} at offset {offset} has no sequence")]
    MissingSequence {
        /// The producer.
        producer_id: ProducerId,
        /// Where the batch would have been written.
        offset: Offset,
    },

    /// A client may not write control batches. Kafka: INVALID_RECORD (87).
    #[error("control batch at offset {offset} comes from a client")]
    ControlBatchFromClient {
        /// Where the batch would have been written.
        offset: Offset,
    },

    /// A coordinator's control batch with a producer id that is neither ABORT nor COMMIT nor the
    /// barrier, or whose value is too short to be read.
    #[error("control batch of producer {producer_id} at offset {offset} is not a marker")]
    NotAMarker {
        /// The producer.
        producer_id: ProducerId,
        /// Where the batch would have been written.
        offset: Offset,
    },

    /// A control batch with a compression codec, of any origin: whether it is the barrier could
    /// not be told without inflating it, so it is no valid batch.
    #[error("control batch at offset {offset} is compressed")]
    CompressedControlBatch {
        /// The batch's base offset.
        offset: Offset,
    },

    /// The batch starts below the end of what the state covers: it was gathered, repeated, or
    /// does not follow the log.
    #[error("batch at offset {base_offset} starts below the end of the producer state, {map_end_offset}")]
    OffsetBelowEnd {
        /// The batch's base offset.
        base_offset: Offset,
        /// Where the next batch may start.
        map_end_offset: Offset,
    },

    /// The batch's offsets run backwards or past the largest offset.
    #[error("batch at offset {base_offset} has last offset delta {last_offset_delta}")]
    InvalidOffsetDelta {
        /// The batch's base offset.
        base_offset: Offset,
        /// The delta as it stands in the batch.
        last_offset_delta: i32,
    },
}

/// Why snapshot bytes are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The bytes end too early.
    #[error("producer snapshot has {found} bytes, needs {needed}")]
    Truncated {
        /// Bytes that the header and its entry count ask for.
        needed: u64,
        /// Bytes given.
        found: u64,
    },

    /// Not version 1, the only one that Kafka ever wrote.
    #[error("producer snapshot has version {found}, known is 1")]
    UnsupportedVersion {
        /// The version read.
        found: i16,
    },

    /// The checksum differs.
    #[error("producer snapshot has CRC {stored:08x}, its entries have {computed:08x}")]
    Crc {
        /// The one in the bytes.
        stored: u32,
        /// The one of the entries.
        computed: u32,
    },

    /// Something stands behind the last entry.
    #[error("producer snapshot has {count} bytes behind its last entry")]
    TrailingBytes {
        /// How many.
        count: u64,
    },

    /// An entry that nobody writes: a negative producer id, a batch that starts below offset 0 or
    /// lies at or above the snapshot's own offset, an open transaction without its batch.
    #[error("entry {index} of the producer snapshot has {field} {value}")]
    InvalidEntry {
        /// Which entry, from 0.
        index: usize,
        /// Which field, by Kafka's name.
        field: &'static str,
        /// Its value.
        value: i64,
    },

    /// Two entries of one producer.
    #[error("producer snapshot has two entries of producer {producer_id}")]
    DuplicateProducer {
        /// The producer.
        producer_id: ProducerId,
    },

    /// Two transactions that start at one offset.
    #[error("producer snapshot has two transactions from offset {first_offset}")]
    DuplicateTransaction {
        /// Where both start.
        first_offset: Offset,
    },
}

/// An epoch, or "none".
struct Shown<T>(Option<T>);

impl<T: std::fmt::Display> std::fmt::Display for Shown<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(epoch) => epoch.fmt(f),
            None => f.write_str("none"),
        }
    }
}
