//! The stop sequence: when the barrier is due, and what must be true before and after.
//!
//! Each step is a value and idempotent, so a stop that a crash interrupts starts again at
//! the first step and comes to the same end:
//!
//! ```text
//! RemoveFetcher      no fetcher, and its last append is complete
//! SyncLog            the log is durable to its end
//! SavePosition       one transaction: STOPPING, last mirror epoch and offset, new leader epoch
//! AbortTransactions  one ABORT per open transaction, ascending by first offset
//! AppendBarrier      unless the newest batch is one above the last mirror epoch
//! SyncBarrier        durable, and LSO = log end
//! SaveStopped        STOPPED: clients may write
//! ```
//!
//! The position is taken once per session: after a crash the log end lies behind ABORTs of
//! our own, which the source never had.

use weir_format::{LeaderEpoch, Offset, ProducerId};

use crate::destination::LogState;
use crate::failure::Failure;
use crate::record::{MirrorPosition, PartitionRecord};
use crate::state::MirrorPartitionState;

/// How far above the source's epoch ours is put when it is raised while mirroring.
///
/// Kafka: `MirrorMetadataManager`, increment 10, and the controller goes one beyond it.
pub const EPOCH_HEADROOM: i32 = 11;

/// Ours is raised when the source's comes closer than this.
///
/// Kafka: `MirrorMetadataManager`, threshold 3.
pub const EPOCH_THRESHOLD: i32 = 3;

/// How far a stop puts our epoch above every epoch that is known (M5).
pub const STOP_EPOCH_STEP: i32 = 1_000;

/// The largest source epoch that is mirrored: there is always room for a thousand stops.
pub const MAX_SOURCE_LEADER_EPOCH: i32 = i32::MAX - 1_000_000;

/// One step of the stop sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StopStep {
    /// The fetcher is removed and its last append is complete.
    RemoveFetcher,
    /// The log is durable to its end.
    SyncLog,
    /// Position, session and the raised leader epoch are stored with STOPPING.
    SavePosition,
    /// Every open transaction has its ABORT.
    AbortTransactions,
    /// The newest batch is a barrier of ours.
    AppendBarrier,
    /// The barrier is durable and nothing is unstable.
    SyncBarrier,
    /// STOPPED is stored.
    SaveStopped,
}

impl StopStep {
    /// All steps, in order.
    pub const ALL: [Self; 7] = [
        Self::RemoveFetcher,
        Self::SyncLog,
        Self::SavePosition,
        Self::AbortTransactions,
        Self::AppendBarrier,
        Self::SyncBarrier,
        Self::SaveStopped,
    ];

    /// What this step does, for a status line.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::RemoveFetcher => "removing the fetcher",
            Self::SyncLog => "making the log durable",
            Self::SavePosition => "storing the position and raising the leader epoch",
            Self::AbortTransactions => "aborting open transactions",
            Self::AppendBarrier => "appending the barrier",
            Self::SyncBarrier => "making the barrier durable",
            Self::SaveStopped => "storing STOPPED",
        }
    }
}

/// An ABORT that a stop appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortAppended {
    /// Whose transaction it ended.
    pub producer_id: ProducerId,
    /// Where that transaction began.
    pub first_offset: Offset,
    /// Where the ABORT stands.
    pub offset: Offset,
}

/// What a step that touches the log found or did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// `RemoveFetcher` is done.
    FetcherRemoved,
    /// `SyncLog` is done: the log now.
    LogSynced(LogState),
    /// `AbortTransactions` is done: what was appended, ascending by first offset.
    TransactionsAborted(Vec<AbortAppended>),
    /// `AppendBarrier` is done: the barrier's offset.
    BarrierInLog(Offset),
    /// `SyncBarrier` is done: the log now.
    BarrierSynced(LogState),
}

/// The epoch of ours that a source epoch calls for while mirroring, if ours is too low.
///
/// # Errors
/// [`Failure::EpochTooHigh`] for an epoch that leaves no room above it.
pub fn raised_leader_epoch(
    ours: LeaderEpoch,
    source: Option<LeaderEpoch>,
) -> Result<Option<LeaderEpoch>, Failure> {
    let Some(source) = source else { return Ok(None) };
    let room = || LeaderEpoch::new(source.get().checked_add(EPOCH_HEADROOM)?);
    match room() {
        Some(raised) if source.get() <= MAX_SOURCE_LEADER_EPOCH => {
            let close = i64::from(source.get()) > i64::from(ours.get()) - i64::from(EPOCH_THRESHOLD);
            Ok(close.then_some(raised).filter(|raised| *raised > ours))
        }
        _ => Err(epoch_too_high(source)),
    }
}

/// The leader epoch that a stop gives the partition (M5): a thousand above every known one.
///
/// # Errors
/// [`Failure::EpochTooHigh`] when there is no room left.
pub fn stop_leader_epoch(
    ours: LeaderEpoch,
    newest_in_log: Option<LeaderEpoch>,
    source_last_seen: Option<LeaderEpoch>,
) -> Result<LeaderEpoch, Failure> {
    let largest = [Some(ours), newest_in_log, source_last_seen].into_iter().flatten().max().unwrap_or(ours);
    largest
        .get()
        .checked_add(STOP_EPOCH_STEP)
        .and_then(LeaderEpoch::new)
        .ok_or_else(|| epoch_too_high(largest))
}

fn epoch_too_high(epoch: LeaderEpoch) -> Failure {
    let limit = LeaderEpoch::new(MAX_SOURCE_LEADER_EPOCH).unwrap_or(epoch);
    Failure::EpochTooHigh { epoch, limit }
}

/// The position that a stop must store now; `None` when this session's is already stored,
/// and unchanged for a session that never mirrored (M4).
#[must_use]
pub fn position_to_save(record: &PartitionRecord, log: &LogState) -> Option<MirrorPosition> {
    if position_is_saved(record) || !record.reached_mirroring {
        return record.position;
    }
    Some(MirrorPosition {
        session: record.session,
        last_mirror_epoch: log.latest_epoch,
        last_mirror_offset: log.log_end_offset,
    })
}

/// Whether the transaction of `SavePosition` has been done in this session.
#[must_use]
pub fn position_is_saved(record: &PartitionRecord) -> bool {
    record.state == MirrorPartitionState::Stopping || record.position_of_session().is_some()
}

/// Checks that the log still holds what was said to be mirrored (M4).
///
/// # Errors
/// [`Failure::LogShorterThanPosition`] with both numbers.
pub fn check_position(record: &PartitionRecord, log: &LogState) -> Result<(), Failure> {
    let stored = record.position.map(|position| position.last_mirror_offset);
    // A session that mirrors has a log of its own; what an older one stored was aligned away.
    let stored = stored.filter(|_| position_is_saved(record) || record.state.is_writable());
    let barrier_end = record.barrier_offset.and_then(Offset::next).filter(|_| record.state.is_writable());
    match stored.max(barrier_end) {
        Some(last_mirror_offset) if log.log_end_offset < last_mirror_offset => {
            Err(Failure::LogShorterThanPosition { log_end: log.log_end_offset, last_mirror_offset })
        }
        _ => Ok(()),
    }
}

/// The barrier that a stop of ours left as the newest batch, if it is there.
///
/// A barrier that came from the source carries an epoch that is not above the last mirror
/// epoch, and does not count.
#[must_use]
pub fn barrier_in_log(record: &PartitionRecord, log: &LogState) -> Option<Offset> {
    let last_mirror_epoch = record.position.and_then(|position| position.last_mirror_epoch);
    let newest = log.newest_batch?;
    (newest.is_barrier && newest.leader_epoch > last_mirror_epoch).then_some(newest.base_offset)
}

/// Why a stop may not end yet although its steps have run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotStoppable {
    /// The position is not stored.
    #[error("the position is not stored")]
    PositionNotSaved,
    /// The newest batch is not a barrier of ours.
    #[error("the newest batch of the log is not the barrier")]
    NoBarrier,
    /// The barrier is not durable.
    #[error("the log ends at {log_end} and is durable to {high_watermark}")]
    NotDurable {
        /// The log's end.
        log_end: Offset,
        /// The end of what is durable.
        high_watermark: Offset,
    },
    /// A transaction is still open.
    #[error("the log ends at {log_end} and is stable to {last_stable_offset}")]
    NotStable {
        /// The log's end.
        log_end: Offset,
        /// The last stable offset.
        last_stable_offset: Offset,
    },
}

/// Everything that STOPPED promises (M2), checked against the log itself.
///
/// # Errors
/// [`NotStoppable`]: the partition stays STOPPING and the steps run again.
pub fn check_stoppable(record: &PartitionRecord, log: &LogState) -> Result<Offset, NotStoppable> {
    if record.state != MirrorPartitionState::Stopping {
        return Err(NotStoppable::PositionNotSaved);
    }
    let barrier = barrier_in_log(record, log).ok_or(NotStoppable::NoBarrier)?;
    let (log_end, high_watermark) = (log.log_end_offset, log.high_watermark);
    if high_watermark != log_end {
        return Err(NotStoppable::NotDurable { log_end, high_watermark });
    }
    if log.last_stable_offset != log_end {
        return Err(NotStoppable::NotStable { log_end, last_stable_offset: log.last_stable_offset });
    }
    if barrier.next() != Some(log_end) {
        return Err(NotStoppable::NoBarrier);
    }
    Ok(barrier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::NewestBatch;

    fn epoch(raw: i32) -> LeaderEpoch {
        LeaderEpoch::new(raw).expect("not negative")
    }

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).expect("not negative")
    }

    fn log(end: i64, newest: Option<(i64, i32, bool)>) -> LogState {
        LogState {
            log_start_offset: offset(0),
            high_watermark: offset(end),
            last_stable_offset: offset(end),
            log_end_offset: offset(end),
            leader_epoch: epoch(1005),
            latest_epoch: newest.map(|(_, e, _)| epoch(e)),
            newest_batch: newest.map(|(base, e, is_barrier)| NewestBatch {
                base_offset: offset(base),
                crc: 1,
                leader_epoch: Some(epoch(e)),
                is_barrier,
            }),
        }
    }

    fn stopping(last_mirror_epoch: i32, last_mirror_offset: i64) -> PartitionRecord {
        PartitionRecord {
            state: MirrorPartitionState::Stopping,
            state_epoch: 4,
            session: 1,
            reached_mirroring: true,
            position: Some(MirrorPosition {
                session: 1,
                last_mirror_epoch: Some(epoch(last_mirror_epoch)),
                last_mirror_offset: offset(last_mirror_offset),
            }),
            barrier_offset: None,
            failure: None,
        }
    }

    #[test]
    fn the_epoch_is_raised_to_eleven_above_the_source_when_it_comes_within_three() {
        for (ours, source, raised) in [
            (11, 0, None),
            (11, 8, None),
            (11, 9, Some(20)),
            (11, 11, Some(22)),
            (0, 0, Some(11)),
            (5, 900, Some(911)),
        ] {
            let found = raised_leader_epoch(epoch(ours), Some(epoch(source))).expect("has room");
            assert_eq!(found.map(LeaderEpoch::get), raised, "ours {ours}, source {source}");
        }
        assert_eq!(raised_leader_epoch(epoch(0), None), Ok(None));
        assert!(raised_leader_epoch(epoch(0), Some(epoch(MAX_SOURCE_LEADER_EPOCH))).is_ok());
        assert!(raised_leader_epoch(epoch(0), Some(epoch(MAX_SOURCE_LEADER_EPOCH + 1))).is_err());
        assert!(raised_leader_epoch(epoch(0), Some(epoch(i32::MAX))).is_err());
    }

    #[test]
    fn a_stop_goes_a_thousand_above_the_largest_of_all_known_epochs() {
        let stop = |ours, log: Option<i32>, source: Option<i32>| {
            stop_leader_epoch(epoch(ours), log.map(epoch), source.map(epoch)).map(LeaderEpoch::get)
        };
        assert_eq!(stop(11, Some(3), Some(4)), Ok(1011));
        assert_eq!(stop(1, Some(30), Some(4)), Ok(1030));
        assert_eq!(stop(1, Some(3), Some(40)), Ok(1040));
        assert_eq!(stop(0, None, None), Ok(1000));
        assert!(stop(i32::MAX - 999, None, None).is_err());
    }

    #[test]
    fn the_position_is_taken_once_per_session() {
        let mut record = stopping(5, 100);
        record.state = MirrorPartitionState::Mirroring;
        record.position = None;
        let first = position_to_save(&record, &log(100, Some((99, 5, false)))).expect("taken");
        assert_eq!((first.last_mirror_epoch, first.last_mirror_offset), (Some(epoch(5)), offset(100)));
        record.state = MirrorPartitionState::Stopping;
        record.position = Some(first);
        assert_eq!(position_to_save(&record, &log(103, Some((102, 1005, true)))), Some(first));
        record.state = MirrorPartitionState::Failed;
        assert_eq!(position_to_save(&record, &log(103, Some((102, 1005, true)))), Some(first));
    }

    #[test]
    fn a_session_that_never_mirrored_keeps_the_position_of_the_one_before() {
        let mut record = stopping(5, 100);
        let before = record.position;
        record.state = MirrorPartitionState::LogAlignment;
        record.session = 2;
        record.reached_mirroring = false;
        assert_eq!(position_to_save(&record, &log(200, Some((199, 1005, false)))), before);
        record.position = None;
        assert_eq!(position_to_save(&record, &log(200, Some((199, 1005, false)))), None);
    }

    #[test]
    fn a_barrier_of_the_source_is_not_ours() {
        let record = stopping(1005, 43);
        assert_eq!(barrier_in_log(&record, &log(43, Some((42, 1005, true)))), None);
        assert_eq!(barrier_in_log(&record, &log(44, Some((43, 2005, true)))), Some(offset(43)));
        assert_eq!(barrier_in_log(&record, &log(44, Some((43, 2005, false)))), None);
        assert_eq!(barrier_in_log(&record, &log(0, None)), None);
    }

    #[test]
    fn stopped_needs_position_barrier_durability_and_stability() {
        let record = stopping(5, 42);
        let good = log(43, Some((42, 1005, true)));
        assert_eq!(check_stoppable(&record, &good), Ok(offset(42)));
        let unsynced = LogState { high_watermark: offset(42), ..good };
        assert!(matches!(check_stoppable(&record, &unsynced), Err(NotStoppable::NotDurable { .. })));
        let unstable = LogState { last_stable_offset: offset(7), ..good };
        assert!(matches!(check_stoppable(&record, &unstable), Err(NotStoppable::NotStable { .. })));
        let none = log(43, Some((42, 1005, false)));
        assert_eq!(check_stoppable(&record, &none), Err(NotStoppable::NoBarrier));
        let mirroring = PartitionRecord { state: MirrorPartitionState::Mirroring, ..record };
        assert_eq!(check_stoppable(&mirroring, &good), Err(NotStoppable::PositionNotSaved));
    }

    #[test]
    fn a_log_that_lost_mirrored_data_is_seen() {
        let record = stopping(5, 42);
        assert_eq!(check_position(&record, &log(42, None)), Ok(()));
        assert!(check_position(&record, &log(41, None)).is_err());
        let stopped = PartitionRecord {
            state: MirrorPartitionState::Stopped,
            barrier_offset: Some(offset(44)),
            ..record.clone()
        };
        assert_eq!(check_position(&stopped, &log(45, None)), Ok(()));
        assert!(check_position(&stopped, &log(44, None)).is_err(), "the barrier itself is gone");
        let older = PartitionRecord { state: MirrorPartitionState::Mirroring, session: 2, ..record };
        assert_eq!(check_position(&older, &log(3, None)), Ok(()), "another session's position");
    }
}
