//! What a mirror writes to: this node's logs and metadata.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weir_format::{BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, TimestampMs};
use weir_log::{AppendError, UnifiedLog};
use weir_mirror::destination::{
    Destination, DestinationError, LogState, NewestBatch, OpenTransaction, ProducerIdsMet, Transition,
};
use weir_mirror::record::PartitionRecord;
use weir_mirror::source::TopicPartition;
use weir_mirror::state::MirrorPartitionState;

use crate::clock;
use crate::meta_kv::{Compare, KvOp};
use crate::metadata::{
    Change, Leadership, MAX_FOREIGN_RANGES, Metadata, MetadataError, PartitionId, ReadOnly,
};
use crate::node::Node;
use crate::shard::{PartitionError, PartitionHandle, describe};

/// The store's key of what a mirror knows of a partition.
pub(super) fn record_key(id: PartitionId) -> String {
    format!("mirror-partition/{id}")
}

/// This node, as the destination of one mirror.
#[derive(Clone, Debug)]
pub struct NodeDestination {
    node: Arc<Node>,
    mirror: Arc<str>,
}

impl NodeDestination {
    /// The destination of the mirror of this name.
    pub fn new(node: Arc<Node>, mirror: impl Into<Arc<str>>) -> Self {
        Self { node, mirror: mirror.into() }
    }

    fn id(&self, partition: &TopicPartition) -> Result<PartitionId, DestinationError> {
        let topic = self.node.metadata().topic(&partition.topic).ok_or_else(|| {
            DestinationError::Unavailable { cause: format!("topic {} is not here", partition.topic) }
        })?;
        Ok(PartitionId { topic_id: topic.id, partition: partition.partition })
    }

    async fn handle(&self, partition: &TopicPartition) -> Result<PartitionHandle, DestinationError> {
        let id = self.id(partition)?;
        let handle = self.node.partition(id).ok_or_else(|| DestinationError::Unavailable {
            cause: format!("the directory of {partition} is missing"),
        })?;
        let _ = handle.loaded().await;
        Ok(handle)
    }

    async fn state_of(&self, handle: &PartitionHandle) -> Result<LogState, DestinationError> {
        let leader_epoch = self.node.metadata().leadership(handle.id()).leader_epoch;
        handle.run(move |log, _| log_state(log, leader_epoch)).await.map_err(|error| partition_error(&error))
    }
}

/// What the store holds of a partition, with its bytes for a comparison.
async fn stored(
    metadata: &Metadata,
    id: PartitionId,
) -> Result<Option<(Vec<u8>, PartitionRecord)>, DestinationError> {
    let key = record_key(id);
    let row = metadata.blocking(move |kv| kv.get(key.as_bytes())).await;
    let Some(row) = row.map_err(|error| metadata_error(&error))? else { return Ok(None) };
    let record = PartitionRecord::decode(&row.value)
        .map_err(|error| DestinationError::Storage { cause: format!("{id}: {error}") })?;
    Ok(Some((row.value, record)))
}

/// The record of a partition.
pub(crate) async fn load_record(
    metadata: &Metadata,
    id: PartitionId,
) -> Result<Option<PartitionRecord>, DestinationError> {
    Ok(stored(metadata, id).await?.map(|(_, record)| record))
}

/// The one transaction that a transition is: record, leader epoch and write guard.
pub(crate) async fn change_for(
    metadata: &Metadata,
    mirror: &str,
    id: PartitionId,
    transition: &Transition,
) -> Result<Change, DestinationError> {
    let stored = stored(metadata, id).await?;
    let found = stored.as_ref().map(|(_, record)| record.state_epoch);
    if found != transition.expected_state_epoch {
        return Err(DestinationError::Fenced { expected: transition.expected_state_epoch, found });
    }
    let key = record_key(id);
    let compare = match stored {
        Some((bytes, _)) => Compare::value(key.as_str(), bytes),
        None => Compare::absent(key.as_str()),
    };
    let record = &transition.record;
    let now = metadata.leadership(id).leader_epoch;
    let leadership = Leadership {
        leader_epoch: transition.leader_epoch.unwrap_or(now).max(now),
        read_only: (record.state != MirrorPartitionState::Stopped)
            .then(|| ReadOnly { mirror: mirror.to_owned(), state: record.state.name().to_owned() }),
    };
    Ok(Change {
        compare: vec![compare],
        partitions: vec![(id, leadership)],
        ops: vec![KvOp::put(key, record.encode())],
        ..Change::default()
    })
}

/// One moment of a log.
pub(crate) fn log_state(log: &UnifiedLog, leader_epoch: LeaderEpoch) -> LogState {
    let view = log.view();
    LogState {
        log_start_offset: view.log_start_offset,
        high_watermark: view.high_watermark,
        last_stable_offset: view.last_stable_offset,
        log_end_offset: log.log_end_offset(),
        leader_epoch,
        latest_epoch: log.latest_epoch(),
        newest_batch: log.last_batch().map(|batch| NewestBatch {
            base_offset: batch.base_offset,
            crc: batch.crc,
            leader_epoch: batch.leader_epoch,
            is_barrier: batch.is_barrier,
        }),
    }
}

/// The ABORT that ends an open transaction, before offset and leader epoch are stamped.
pub(crate) fn abort_of(transaction: &OpenTransaction, now: TimestampMs) -> BytesMut {
    BatchBuilder::end_transaction_marker(
        false,
        transaction.producer_id,
        transaction.producer_epoch.unwrap_or(ProducerEpoch::ZERO),
        transaction.coordinator_epoch,
        now,
    )
}

/// An open transaction in the mirror's terms.
pub(crate) fn open_transaction(open: &weir_psm::OpenTransaction) -> OpenTransaction {
    OpenTransaction {
        producer_id: open.producer_id,
        producer_epoch: open.producer_epoch,
        first_offset: open.first_offset,
        coordinator_epoch: open.coordinator_epoch,
    }
}

fn partition_error(error: &PartitionError) -> DestinationError {
    let cause = describe(error);
    match error {
        PartitionError::EndMoved { expected, found } => {
            DestinationError::LogEndMoved { expected: *expected, found: *found }
        }
        PartitionError::Append(
            AppendError::UnexpectedOffset { .. } | AppendError::TooMuchUnsynced { .. },
        ) => DestinationError::Storage { cause },
        PartitionError::Append(_) | PartitionError::ReadOnly { .. } | PartitionError::NotMirrored => {
            DestinationError::Rejected { cause }
        }
        PartitionError::Loading | PartitionError::ShutDown => DestinationError::Unavailable { cause },
        _ => DestinationError::Storage { cause },
    }
}

fn metadata_error(error: &MetadataError) -> DestinationError {
    let cause = describe(error);
    match error {
        MetadataError::ForeignRangesFull => {
            DestinationError::TooManyProducerIdRanges { limit: MAX_FOREIGN_RANGES }
        }
        MetadataError::ShutDown => DestinationError::Unavailable { cause },
        _ => DestinationError::Storage { cause },
    }
}

impl Destination for NodeDestination {
    async fn log_state(&self, partition: &TopicPartition) -> Result<LogState, DestinationError> {
        let handle = self.handle(partition).await?;
        self.state_of(&handle).await
    }

    async fn append(
        &self,
        partition: &TopicPartition,
        records: Bytes,
        expected_end: Offset,
        max_leader_epoch: LeaderEpoch,
    ) -> Result<LogState, DestinationError> {
        let handle = self.handle(partition).await?;
        // A response that holds one partition is taken as it is; of others, a part is copied.
        let records = records.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let appended = handle.append_replicated(records, expected_end, max_leader_epoch).await;
        appended.map_err(|error| partition_error(&error))?;
        self.state_of(&handle).await
    }

    async fn start_log_at(
        &self,
        partition: &TopicPartition,
        offset: Offset,
    ) -> Result<LogState, DestinationError> {
        let handle = self.handle(partition).await?;
        if !self.state_of(&handle).await?.is_empty() {
            return Err(DestinationError::Rejected { cause: "the log is not empty".to_owned() });
        }
        let moved = handle.truncate_fully_and_start_at(offset).await;
        moved.map_err(|error| partition_error(&error))?;
        self.state_of(&handle).await
    }

    async fn advance_log_start(
        &self,
        partition: &TopicPartition,
        offset: Offset,
    ) -> Result<LogState, DestinationError> {
        let handle = self.handle(partition).await?;
        handle.advance_log_start(offset).await.map_err(|error| partition_error(&error))?;
        self.state_of(&handle).await
    }

    async fn sync(&self, partition: &TopicPartition) -> Result<LogState, DestinationError> {
        let handle = self.handle(partition).await?;
        handle.sync().await.map_err(|error| partition_error(&error))?;
        self.state_of(&handle).await
    }

    async fn open_transactions(
        &self,
        partition: &TopicPartition,
    ) -> Result<Vec<OpenTransaction>, DestinationError> {
        let handle = self.handle(partition).await?;
        let open = handle.open_transactions().await.map_err(|error| partition_error(&error))?;
        Ok(open.iter().map(open_transaction).collect())
    }

    async fn append_abort(
        &self,
        partition: &TopicPartition,
        transaction: &OpenTransaction,
    ) -> Result<Offset, DestinationError> {
        let handle = self.handle(partition).await?;
        let appended = handle.append_coordinator(abort_of(transaction, clock::now())).await;
        Ok(appended.map_err(|error| partition_error(&error))?.base_offset)
    }

    async fn append_barrier(&self, partition: &TopicPartition) -> Result<Offset, DestinationError> {
        let handle = self.handle(partition).await?;
        let appended = handle.append_coordinator(BatchBuilder::barrier(clock::now())).await;
        Ok(appended.map_err(|error| partition_error(&error))?.base_offset)
    }

    async fn cover_producer_ids(&self, met: &ProducerIdsMet) -> Result<(), DestinationError> {
        let noted = self.node.metadata().note_mirrored_producer_ids(met.values().copied()).await;
        noted.map_err(|error| metadata_error(&error))
    }

    async fn load(&self, partition: &TopicPartition) -> Result<Option<PartitionRecord>, DestinationError> {
        load_record(self.node.metadata(), self.id(partition)?).await
    }

    async fn store(
        &self,
        partition: &TopicPartition,
        transition: &Transition,
    ) -> Result<(), DestinationError> {
        let id = self.id(partition)?;
        let metadata = self.node.metadata();
        let change = change_for(metadata, &self.mirror, id, transition).await?;
        // DURABLE: state, position, leader epoch and write guard, all of it or nothing.
        match self.node.commit(change).await {
            Ok(()) => Ok(()),
            Err(MetadataError::Conflict) => {
                let found = load_record(metadata, id).await?.map(|record| record.state_epoch);
                Err(DestinationError::Fenced { expected: transition.expected_state_epoch, found })
            }
            Err(error) => Err(metadata_error(&error)),
        }
    }
}
