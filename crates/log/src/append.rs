//! What goes into an append, what comes out of it.

use weir_format::{LeaderEpoch, Offset, TimestampMs};
use weir_psm::{AppendOrigin, BarrierApplied, Forgotten, TransactionVersion};

/// Who appends, and under what.
#[derive(Debug, Clone, Copy)]
pub struct AppendParams {
    /// Who appends, which says how much is validated.
    pub origin: AppendOrigin,
    /// The leader epoch that a leader's append is stamped with. Needed by `Client` and `Coordinator`.
    pub leader_epoch: Option<LeaderEpoch>,
    /// The largest leader epoch that a replicated batch may carry: the epoch that the fetch was made under.
    pub max_leader_epoch: Option<LeaderEpoch>,
    /// Whether a client's batch may open a transaction: only when the coordinator has it open on this partition.
    pub may_start_transaction: bool,
    /// The rules by which a coordinator's marker was numbered.
    pub transaction_version: TransactionVersion,
    /// Whether the bytes of a client's batch are what [`check_client_batch`](crate::check_client_batch) took with this
    /// log's configuration: then neither its CRC nor its records are looked at again.
    pub records_checked: bool,
    /// The wall clock: the append time of LogAppendTime topics, and what timestamps are held against.
    pub now: TimestampMs,
}

impl AppendParams {
    /// A producer's batch, which may not open a transaction.
    #[must_use]
    pub fn client(leader_epoch: LeaderEpoch, now: TimestampMs) -> Self {
        Self {
            origin: AppendOrigin::Client,
            leader_epoch: Some(leader_epoch),
            max_leader_epoch: None,
            may_start_transaction: false,
            transaction_version: TransactionVersion::Legacy,
            records_checked: false,
            now,
        }
    }

    /// A marker or barrier of this node.
    #[must_use]
    pub fn coordinator(leader_epoch: LeaderEpoch, now: TimestampMs) -> Self {
        Self { origin: AppendOrigin::Coordinator, ..Self::client(leader_epoch, now) }
    }

    /// Bytes of another leader's log, fetched under `max_leader_epoch`.
    #[must_use]
    pub fn replication(max_leader_epoch: LeaderEpoch, now: TimestampMs) -> Self {
        Self {
            origin: AppendOrigin::Replication,
            leader_epoch: None,
            max_leader_epoch: Some(max_leader_epoch),
            ..Self::client(max_leader_epoch, now)
        }
    }
}

/// What an append did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record: of the original, if this is a duplicate.
    pub base_offset: Offset,
    /// Offset of the last record: of the original, if this is a duplicate.
    pub last_offset: Offset,
    /// It is durable, and may be acknowledged to `acks=all`, once the high watermark is at least this.
    /// A duplicate is acknowledged by the durability of its original.
    pub durable_at: Offset,
    /// The timestamp that every record was given, if the topic's timestamps are append times.
    pub append_time: Option<TimestampMs>,
    /// Nothing was written: the batch is in the log already.
    pub duplicate: bool,
    /// Where the log starts, as the response says it.
    pub log_start_offset: Offset,
    /// The barriers among the batches, in log order, and what each changed.
    pub barriers: Vec<BarrierApplied>,
    /// The memory of what those barriers forgot: giving back that of a million producers takes some 20 ms, so it is for
    /// whoever has the time to drop it.
    pub forgotten: Vec<Forgotten>,
    /// How many batches were taken that a client's or a coordinator's rules would have refused. Kafka warns of these.
    pub tolerated_count: usize,
}
