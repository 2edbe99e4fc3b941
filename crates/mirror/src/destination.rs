//! What a mirror needs of the node that it writes to.
//!
//! The node implements [`Destination`] over its shards and its metadata store; tests have
//! one over plain memory with crash points. A destination has no opinion: order, and what
//! must be durable before what, is decided here.

use std::collections::BTreeMap;
use std::future::Future;

use bytes::Bytes;
use weir_format::{LeaderEpoch, Offset, ProducerEpoch, ProducerId};

use crate::record::PartitionRecord;
use crate::source::TopicPartition;

/// The newest batch of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestBatch {
    /// Its base offset.
    pub base_offset: Offset,
    /// Its CRC-32C, as stored in its header.
    pub crc: u32,
    /// Its leader epoch.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Whether it is a barrier.
    pub is_barrier: bool,
}

/// One moment of a partition's log, consistent in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogState {
    /// First offset that is served.
    pub log_start_offset: Offset,
    /// End of what is durable.
    pub high_watermark: Offset,
    /// End of what a committed reader sees.
    pub last_stable_offset: Offset,
    /// End of what is written.
    pub log_end_offset: Offset,
    /// The partition's leader epoch: the one new client batches would carry.
    pub leader_epoch: LeaderEpoch,
    /// The newest epoch in the log's leader-epoch cache.
    pub latest_epoch: Option<LeaderEpoch>,
    /// The newest batch, if the log holds one.
    pub newest_batch: Option<NewestBatch>,
}

impl LogState {
    /// Whether no batch is in the log; its end may be above 0 all the same.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest_batch.is_none()
    }
}

/// A transaction without an end in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Its producer.
    pub producer_id: ProducerId,
    /// The producer's epoch as the log has it; an ABORT carries the same. `None` if its
    /// batches carried none, which no Kafka writes.
    pub producer_epoch: Option<ProducerEpoch>,
    /// Its first offset.
    pub first_offset: Offset,
    /// The coordinator epoch of the producer's last marker, if it ever had one.
    pub coordinator_epoch: Option<i32>,
}

/// The highest producer id met, by range number (id >> 32).
pub type ProducerIdsMet = BTreeMap<u32, ProducerId>;

/// A change of what the store holds of a partition. All of it becomes durable, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state epoch that the store must still have; `None`: it must hold nothing yet.
    pub expected_state_epoch: Option<i32>,
    /// What it holds afterwards.
    pub record: PartitionRecord,
    /// The partition's leader epoch afterwards, if it changes; never lowered.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// Why the destination did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationError {
    /// The store's state epoch is another one: somebody else decided meanwhile. Reload.
    #[error("state epoch is fenced: the store has another one than was expected")]
    Fenced {
        /// What the transition expected.
        expected: Option<i32>,
        /// What the store has.
        found: Option<i32>,
    },
    /// The log refused the bytes for what they are. Fetching them again does not help.
    #[error("log refused the batch: {cause}")]
    Rejected {
        /// The log's own words.
        cause: String,
    },
    /// The log ends elsewhere than the append was to begin: it lost what was not durable.
    #[error("the log ends at {found}, not at {expected}")]
    LogEndMoved {
        /// Where it was to end.
        expected: Offset,
        /// Where it ends.
        found: Offset,
    },
    /// The set of producer-id ranges is full; nothing more can be mirrored safely.
    #[error("more than {limit} producer-id ranges have been mirrored here")]
    TooManyProducerIdRanges {
        /// The most that are kept.
        limit: usize,
    },
    /// The log or the store could not be written. May pass; retried where that is safe.
    #[error("storage failed: {cause}")]
    Storage {
        /// What failed, with path and the system's words.
        cause: String,
    },
    /// The partition is not there, or the node is shutting down.
    #[error("partition is not available: {cause}")]
    Unavailable {
        /// Why.
        cause: String,
    },
}

/// The node's side of a mirrored partition.
///
/// No call is made for a partition while another one for it is under way. A call that was
/// begun is awaited to its end; dropping it must not leave half of it done.
pub trait Destination: Send + Sync + 'static {
    /// The log as it stands now, bytes that are written but not durable included.
    ///
    /// # Errors
    /// [`DestinationError::Unavailable`].
    fn log_state(
        &self,
        partition: &TopicPartition,
    ) -> impl Future<Output = Result<LogState, DestinationError>> + Send;

    /// Appends batches verbatim, with origin `Replication`. Answers when they are written;
    /// they become durable by the node's own group commit.
    ///
    /// `expected_end`: where the log must end, checked with the append. A log that was opened
    /// again from its bytes after a failure may end earlier, and since offsets may have gaps
    /// it would take the bytes and have a hole (M3).
    /// `max_leader_epoch`: a batch with a larger epoch is refused.
    /// Either all of `records` is appended, or none.
    ///
    /// # Errors
    /// [`DestinationError::LogEndMoved`], [`DestinationError::Storage`]: ask for the log's
    /// state and align again. [`DestinationError::Rejected`].
    fn append(
        &self,
        partition: &TopicPartition,
        records: Bytes,
        expected_end: Offset,
        max_leader_epoch: LeaderEpoch,
    ) -> impl Future<Output = Result<LogState, DestinationError>> + Send;

    /// Gives an empty log another start: truncate fully and start at `offset`.
    ///
    /// # Errors
    /// [`DestinationError::Storage`]; [`DestinationError::Rejected`] if the log is not empty.
    fn start_log_at(
        &self,
        partition: &TopicPartition,
        offset: Offset,
    ) -> impl Future<Output = Result<LogState, DestinationError>> + Send;

    /// Moves the log start up to `offset`, never down and never above the high watermark.
    ///
    /// # Errors
    /// [`DestinationError::Storage`].
    fn advance_log_start(
        &self,
        partition: &TopicPartition,
        offset: Offset,
    ) -> impl Future<Output = Result<LogState, DestinationError>> + Send;

    /// Makes the log durable to its end, whatever `weir.flush` says, then answers it.
    ///
    /// # Errors
    /// [`DestinationError::Storage`].
    fn sync(
        &self,
        partition: &TopicPartition,
    ) -> impl Future<Output = Result<LogState, DestinationError>> + Send;

    /// The transactions without an end, ascending by first offset.
    ///
    /// # Errors
    /// [`DestinationError::Unavailable`].
    fn open_transactions(
        &self,
        partition: &TopicPartition,
    ) -> impl Future<Output = Result<Vec<OpenTransaction>, DestinationError>> + Send;

    /// Appends one ABORT with origin `Coordinator`, stamped with the partition's leader
    /// epoch; the producer's epoch unchanged, the coordinator's as given or −1.
    ///
    /// # Errors
    /// [`DestinationError::Storage`] and [`DestinationError::Rejected`].
    fn append_abort(
        &self,
        partition: &TopicPartition,
        transaction: &OpenTransaction,
    ) -> impl Future<Output = Result<Offset, DestinationError>> + Send;

    /// Appends one barrier with origin `Coordinator`, stamped with the partition's leader
    /// epoch, and answers its offset.
    ///
    /// # Errors
    /// [`DestinationError::Storage`] and [`DestinationError::Rejected`].
    fn append_barrier(
        &self,
        partition: &TopicPartition,
    ) -> impl Future<Output = Result<Offset, DestinationError>> + Send;

    /// Makes durable that these producer ids were mirrored here, before a batch with one
    /// of them is appended: afterwards none of their ranges is ever handed out, and an id
    /// of our own range lies below the floor. Cheap when all is known already.
    ///
    /// # Errors
    /// [`DestinationError::TooManyProducerIdRanges`] and [`DestinationError::Storage`].
    fn cover_producer_ids(
        &self,
        met: &ProducerIdsMet,
    ) -> impl Future<Output = Result<(), DestinationError>> + Send;

    /// What the store holds of a partition.
    ///
    /// # Errors
    /// [`DestinationError::Storage`].
    fn load(
        &self,
        partition: &TopicPartition,
    ) -> impl Future<Output = Result<Option<PartitionRecord>, DestinationError>> + Send;

    /// Stores a transition as one metadata transaction. When it answers, the change is
    /// durable, the write guard follows it, and the log's leader epoch is the new one.
    ///
    /// # Errors
    /// [`DestinationError::Fenced`] and [`DestinationError::Storage`].
    fn store(
        &self,
        partition: &TopicPartition,
        transition: &Transition,
    ) -> impl Future<Output = Result<(), DestinationError>> + Send;
}
