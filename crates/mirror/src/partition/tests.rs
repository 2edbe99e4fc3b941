use super::*;
use crate::destination::NewestBatch;
use crate::record::MirrorPosition;
use proptest::prelude::*;
use weir_format::{Offset, ProducerId};

fn epoch(raw: i32) -> LeaderEpoch {
    LeaderEpoch::new(raw).expect("not negative")
}

fn offset(raw: i64) -> Offset {
    Offset::new(raw).expect("not negative")
}

fn empty_log(leader_epoch: i32) -> LogState {
    LogState {
        log_start_offset: Offset::ZERO,
        high_watermark: Offset::ZERO,
        last_stable_offset: Offset::ZERO,
        log_end_offset: Offset::ZERO,
        leader_epoch: epoch(leader_epoch),
        latest_epoch: None,
        newest_batch: None,
    }
}

fn log_with(end: i64, newest_epoch: i32, is_barrier: bool, leader_epoch: i32) -> LogState {
    LogState {
        high_watermark: offset(end),
        last_stable_offset: offset(end),
        log_end_offset: offset(end),
        latest_epoch: Some(epoch(newest_epoch)),
        newest_batch: Some(NewestBatch {
            base_offset: offset(end - 1),
            crc: 1,
            leader_epoch: Some(epoch(newest_epoch)),
            is_barrier,
        }),
        ..empty_log(leader_epoch)
    }
}

fn step(machine: &mut MirrorPartition, event: Event) -> Vec<Action> {
    machine.step(event).into_iter().collect()
}

fn stored(action: &Action) -> &Transition {
    match action {
        Action::Store(transition) => transition,
        other => panic!("expected a store, found {other:?}"),
    }
}

/// Brings a new partition into MIRRORING with a fetcher, source epoch 4, ours 15.
fn mirroring() -> MirrorPartition {
    let mut machine = MirrorPartition::load(None, &empty_log(0));
    let actions = step(&mut machine, Event::Desired(Desired::Mirroring));
    let first = stored(&actions[0]);
    assert_eq!(first.expected_state_epoch, None);
    assert_eq!((first.record.state, first.record.session), (State::LogAlignment, 1));
    assert_eq!(step(&mut machine, Event::Stored), [Action::Align]);
    let aligned = Event::Aligned { source_leader_epoch: Some(epoch(4)), log: empty_log(0) };
    let actions = step(&mut machine, aligned);
    let second = stored(&actions[0]);
    assert_eq!(second.record.state, State::Mirroring);
    assert_eq!(second.leader_epoch, Some(epoch(15)), "source + 11");
    assert_eq!(step(&mut machine, Event::Stored), [Action::StartFetcher]);
    machine
}

#[test]
fn a_stop_goes_through_every_step_in_order() {
    let mut machine = mirroring();
    assert_eq!(step(&mut machine, Event::Desired(Desired::Stopped)), [Action::Stop(StopStep::RemoveFetcher)]);
    assert_eq!(machine.shown_state(), State::Stopping);
    assert_eq!(
        step(&mut machine, Event::StopStepDone(StopOutcome::FetcherRemoved)),
        [Action::Stop(StopStep::SyncLog)]
    );
    let log = log_with(40, 4, false, 15);
    let actions = step(&mut machine, Event::StopStepDone(StopOutcome::LogSynced(log)));
    let saved = stored(&actions[0]).clone();
    assert_eq!(saved.record.state, State::Stopping);
    assert_eq!(saved.leader_epoch, Some(epoch(1015)));
    assert_eq!(
        saved.record.position,
        Some(MirrorPosition {
            session: 1,
            last_mirror_epoch: Some(epoch(4)),
            last_mirror_offset: offset(40)
        })
    );
    assert_eq!(step(&mut machine, Event::Stored), [Action::Stop(StopStep::AbortTransactions)]);
    let abort = AbortAppended {
        producer_id: ProducerId::new(7).expect("not negative"),
        first_offset: offset(3),
        offset: offset(40),
    };
    assert_eq!(
        step(&mut machine, Event::StopStepDone(StopOutcome::TransactionsAborted(vec![abort]))),
        [Action::Stop(StopStep::AppendBarrier)]
    );
    assert_eq!(
        step(&mut machine, Event::StopStepDone(StopOutcome::BarrierInLog(offset(41)))),
        [Action::Stop(StopStep::SyncBarrier)]
    );
    let log = log_with(42, 1015, true, 1015);
    let actions = step(&mut machine, Event::StopStepDone(StopOutcome::BarrierSynced(log)));
    let stopped = stored(&actions[0]);
    assert_eq!(stopped.record.state, State::Stopped);
    assert_eq!(stopped.record.barrier_offset, Some(offset(41)));
    assert_eq!(stopped.record.position, saved.record.position);
    assert_eq!(stopped.leader_epoch, None, "one bump per stop");
    assert!(!machine.record().state.is_writable(), "not before it is durable");
    assert_eq!(step(&mut machine, Event::Stored), []);
    assert!(machine.record().state.is_writable());
    assert_eq!(machine.report(), &StopReport { aborts: vec![abort], barrier: Some(offset(41)) });
    assert_eq!(step(&mut machine, Event::Desired(Desired::Stopped)), [], "stopped is stopped");
}

#[test]
fn a_stop_resumed_after_a_crash_keeps_the_position_and_the_epoch() {
    let record = PartitionRecord {
        state: State::Stopping,
        state_epoch: 3,
        session: 1,
        reached_mirroring: true,
        position: Some(MirrorPosition {
            session: 1,
            last_mirror_epoch: Some(epoch(4)),
            last_mirror_offset: offset(40),
        }),
        barrier_offset: None,
        failure: None,
    };
    // The log ends behind an ABORT of our own.
    let log = log_with(41, 1015, false, 1015);
    let mut machine = MirrorPartition::load(Some(record.clone()), &log);
    assert_eq!(step(&mut machine, Event::Desired(Desired::Stopped)), [Action::Stop(StopStep::RemoveFetcher)]);
    step(&mut machine, Event::StopStepDone(StopOutcome::FetcherRemoved));
    assert_eq!(
        step(&mut machine, Event::StopStepDone(StopOutcome::LogSynced(log))),
        [Action::Stop(StopStep::AbortTransactions)],
        "the position is there: nothing is stored"
    );
    assert_eq!(machine.record(), &record);
    // A node that was told to mirror again meanwhile finishes the stop first.
    let mut machine = MirrorPartition::load(Some(record), &log);
    assert_eq!(
        step(&mut machine, Event::Desired(Desired::Mirroring)),
        [Action::Stop(StopStep::RemoveFetcher)]
    );
}

#[test]
fn a_failing_append_keeps_stopping_with_a_reason_and_is_repeated() {
    let mut machine = mirroring();
    step(&mut machine, Event::Desired(Desired::Stopped));
    step(&mut machine, Event::StopStepDone(StopOutcome::FetcherRemoved));
    step(&mut machine, Event::StopStepDone(StopOutcome::LogSynced(log_with(40, 4, false, 15))));
    step(&mut machine, Event::Stored);
    step(&mut machine, Event::StopStepDone(StopOutcome::TransactionsAborted(Vec::new())));
    let mut waits = Vec::new();
    for _ in 0..10 {
        let actions = step(&mut machine, Event::StopStepFailed { cause: "no space left".to_owned() });
        let [Action::RetryAfter(wait)] = actions[..] else { panic!("{actions:?}") };
        waits.push(wait);
        assert_eq!(machine.shown_state(), State::Stopping);
        let attention = machine.attention().expect("says why");
        assert_eq!(attention, "appending the barrier failed: no space left");
        // From the ABORTs on: the log may have come back without them.
        assert_eq!(step(&mut machine, Event::RetryDue), [Action::Stop(StopStep::AbortTransactions)]);
        step(&mut machine, Event::StopStepDone(StopOutcome::TransactionsAborted(Vec::new())));
    }
    assert_eq!(waits[..3], [100, 200, 400].map(Duration::from_millis));
    assert_eq!(waits[9], Duration::from_secs(10));
    // A step before the position is repeated by itself.
    let mut machine = mirroring();
    step(&mut machine, Event::Desired(Desired::Stopped));
    step(&mut machine, Event::StopStepDone(StopOutcome::FetcherRemoved));
    step(&mut machine, Event::StopStepFailed { cause: "sync failed".to_owned() });
    assert_eq!(step(&mut machine, Event::RetryDue), [Action::Stop(StopStep::SyncLog)]);
}

#[test]
fn stopped_is_refused_while_the_log_does_not_show_it() {
    let mut machine = mirroring();
    step(&mut machine, Event::Desired(Desired::Stopped));
    step(&mut machine, Event::StopStepDone(StopOutcome::FetcherRemoved));
    step(&mut machine, Event::StopStepDone(StopOutcome::LogSynced(log_with(40, 4, false, 15))));
    step(&mut machine, Event::Stored);
    step(&mut machine, Event::StopStepDone(StopOutcome::TransactionsAborted(Vec::new())));
    step(&mut machine, Event::StopStepDone(StopOutcome::BarrierInLog(offset(40))));
    let unstable = LogState { last_stable_offset: offset(9), ..log_with(41, 1015, true, 1015) };
    let actions = step(&mut machine, Event::StopStepDone(StopOutcome::BarrierSynced(unstable)));
    assert!(matches!(actions[..], [Action::RetryAfter(_)]), "{actions:?}");
    assert_eq!(step(&mut machine, Event::RetryDue), [Action::Stop(StopStep::AbortTransactions)]);
}

#[test]
fn a_failure_removes_the_fetcher_before_it_is_stored() {
    let mut machine = mirroring();
    let failure = Failure::Gap { log_end: offset(10), source_start: offset(20) };
    let actions = step(&mut machine, Event::Failed(failure.clone()));
    assert_eq!(actions[0], Action::RemoveFetcher);
    assert_eq!(stored(&actions[1]).record.failure, Some(failure.clone()));
    assert_eq!(step(&mut machine, Event::Stored), []);
    assert_eq!(machine.shown_state(), State::Failed);
    assert_eq!(machine.attention(), Some(failure.to_string()));
    // It stays until somebody says so; then the same session goes on.
    assert_eq!(step(&mut machine, Event::Desired(Desired::Mirroring)), []);
    let actions = step(&mut machine, Event::TryAgain);
    let again = &stored(&actions[0]).record;
    assert_eq!((again.state, again.session), (State::LogAlignment, 1));
    assert!(again.reached_mirroring && again.failure.is_none());
}

#[test]
fn a_batch_ahead_of_our_epoch_fences_before_it_is_fetched_again() {
    let mut machine = mirroring();
    let actions = step(&mut machine, Event::BatchAhead(epoch(16)));
    assert_eq!(actions[0], Action::RemoveFetcher);
    let fencing = stored(&actions[1]);
    assert_eq!((fencing.record.state, fencing.leader_epoch), (State::EpochFencing, Some(epoch(27))));
    let actions = step(&mut machine, Event::Stored);
    assert_eq!(stored(&actions[0]).record.state, State::Mirroring);
    assert_eq!(step(&mut machine, Event::Stored), [Action::StartFetcher]);
    assert_eq!(machine.leader_epoch(), epoch(27));
    // One that our epoch covers already needs no bump.
    assert_eq!(step(&mut machine, Event::BatchAhead(epoch(20))), [Action::StartFetcher]);
}

#[test]
fn a_log_that_failed_is_aligned_again_and_keeps_its_state() {
    let mut machine = mirroring();
    let failed = Event::LogFailed { cause: "no space left".to_owned() };
    let actions = step(&mut machine, failed.clone());
    assert_eq!(actions, [Action::RemoveFetcher, Action::RetryAfter(LOG_RETRY)]);
    assert_eq!(machine.shown_state(), State::Mirroring);
    assert!(machine.attention().expect("says why").contains("no space left"));
    assert_eq!(step(&mut machine, failed), [], "once");
    assert_eq!(step(&mut machine, Event::RetryDue), [Action::Align]);
    let aligned = Event::Aligned { source_leader_epoch: Some(epoch(4)), log: log_with(3, 4, false, 15) };
    assert_eq!(step(&mut machine, aligned), [Action::StartFetcher]);
    assert_eq!(machine.attention(), None);
    // A stop does not wait for the retry.
    step(&mut machine, Event::LogFailed { cause: "again".to_owned() });
    let stop = step(&mut machine, Event::Desired(Desired::Stopped));
    assert_eq!(stop, [Action::Stop(StopStep::RemoveFetcher)]);
    assert_eq!(step(&mut machine, Event::RetryDue), [], "the old retry is nobody's");
}

#[test]
fn the_epoch_is_raised_ahead_of_the_source_while_fetching() {
    let mut machine = mirroring();
    assert_eq!(step(&mut machine, Event::SourceLeaderEpoch(epoch(12))), []);
    let actions = step(&mut machine, Event::SourceLeaderEpoch(epoch(13)));
    let raised = stored(&actions[0]);
    assert_eq!((raised.record.state, raised.leader_epoch), (State::Mirroring, Some(epoch(24))));
    // What goes wrong meanwhile is not lost.
    let failure = Failure::SourceEndsBelow { log_end: offset(9), source_end: offset(3) };
    assert_eq!(step(&mut machine, Event::Failed(failure.clone())), []);
    let actions = step(&mut machine, Event::Stored);
    assert_eq!(actions[0], Action::RemoveFetcher);
    assert_eq!(stored(&actions[1]).record.failure, Some(failure));
}

#[test]
fn an_epoch_without_room_above_it_fails_the_partition() {
    let mut machine = mirroring();
    let actions = step(&mut machine, Event::SourceLeaderEpoch(epoch(i32::MAX - 5)));
    let failed = &stored(&actions[1]).record;
    assert!(matches!(failed.failure, Some(Failure::EpochTooHigh { .. })), "{failed:?}");
}

#[test]
fn a_partition_that_lost_mirrored_data_is_failed_with_both_numbers() {
    let record = PartitionRecord {
        state: State::Stopped,
        state_epoch: 9,
        session: 1,
        reached_mirroring: true,
        position: Some(MirrorPosition {
            session: 1,
            last_mirror_epoch: Some(epoch(4)),
            last_mirror_offset: offset(40),
        }),
        barrier_offset: Some(offset(40)),
        failure: None,
    };
    let mut machine = MirrorPartition::load(Some(record), &log_with(38, 4, false, 1015));
    let actions = step(&mut machine, Event::Desired(Desired::Stopped));
    let failed = &stored(&actions[1]).record;
    assert_eq!(failed.state, State::Failed);
    let text = failed.failure.as_ref().expect("has a reason").to_string();
    assert!(text.contains("38") && text.contains("41"), "{text}");
}

#[test]
fn a_stop_that_cannot_succeed_fails_once_and_waits_for_the_operator() {
    let record = PartitionRecord {
        state: State::Stopping,
        state_epoch: 9,
        session: 1,
        reached_mirroring: true,
        position: Some(MirrorPosition {
            session: 1,
            last_mirror_epoch: Some(epoch(4)),
            last_mirror_offset: offset(40),
        }),
        barrier_offset: None,
        failure: None,
    };
    let short = log_with(38, 4, false, 1015);
    let mut machine = MirrorPartition::load(Some(record), &short);
    let actions = step(&mut machine, Event::Desired(Desired::Stopped));
    assert_eq!(stored(&actions[1]).record.state, State::Failed);
    assert_eq!(step(&mut machine, Event::Stored), [], "neither writable nor a loop");
    assert_eq!(machine.shown_state(), State::Failed);
    // What is missing is accepted: the position is what is here, and the stop goes on from it.
    assert_eq!(step(&mut machine, Event::TryAgain), [Action::Stop(StopStep::RemoveFetcher)]);
    step(&mut machine, Event::StopStepDone(StopOutcome::FetcherRemoved));
    let actions = step(&mut machine, Event::StopStepDone(StopOutcome::LogSynced(short)));
    let saved = stored(&actions[0]).clone();
    assert_eq!(saved.record.state, State::Stopping);
    assert_eq!(saved.record.position.map(|position| position.last_mirror_offset), Some(offset(38)));
    assert_eq!(step(&mut machine, Event::Stored), [Action::Stop(StopStep::AbortTransactions)]);
}

#[test]
fn a_stop_without_room_for_its_epoch_fails_once() {
    let mut machine = MirrorPartition::load(None, &empty_log(i32::MAX - 5));
    step(&mut machine, Event::Desired(Desired::Stopped));
    step(&mut machine, Event::Stored);
    step(&mut machine, Event::StopStepDone(StopOutcome::FetcherRemoved));
    let log = empty_log(i32::MAX - 5);
    let actions = step(&mut machine, Event::StopStepDone(StopOutcome::LogSynced(log)));
    assert_eq!(stored(&actions[1]).record.state, State::Failed);
    assert_eq!(step(&mut machine, Event::Stored), []);
}

#[test]
fn a_fetcher_that_ends_while_an_epoch_is_stored_is_started_again() {
    for last in [Event::LogFailed { cause: "no space left".to_owned() }, Event::BatchAhead(epoch(16))] {
        let mut machine = mirroring();
        let actions = step(&mut machine, Event::SourceLeaderEpoch(epoch(14)));
        assert_eq!(stored(&actions[0]).leader_epoch, Some(epoch(25)));
        let failed = Event::StoreFailed { fenced: false, cause: "no space left".to_owned() };
        assert!(matches!(step(&mut machine, failed)[..], [Action::RetryAfter(_)]));
        // Those were the fetcher's last words: nobody else will say them again.
        step(&mut machine, last.clone());
        assert!(matches!(step(&mut machine, Event::RetryDue)[..], [Action::Store(_)]));
        assert_eq!(step(&mut machine, Event::Stored), [Action::Align], "{last:?}");
    }
}

#[test]
fn a_stop_of_a_session_that_never_mirrored_keeps_the_older_position() {
    let older =
        MirrorPosition { session: 1, last_mirror_epoch: Some(epoch(4)), last_mirror_offset: offset(40) };
    let record = PartitionRecord {
        state: State::Failed,
        state_epoch: 12,
        session: 2,
        reached_mirroring: false,
        position: Some(older),
        barrier_offset: None,
        failure: Some(Failure::LogNotEmpty { log_start: offset(0), log_end: offset(60) }),
    };
    let mut machine = MirrorPartition::load(Some(record), &log_with(60, 1015, false, 1015));
    assert_eq!(step(&mut machine, Event::Desired(Desired::Stopped)), [], "not writable by itself");
    step(&mut machine, Event::TryAgain);
    step(&mut machine, Event::StopStepDone(StopOutcome::FetcherRemoved));
    let actions =
        step(&mut machine, Event::StopStepDone(StopOutcome::LogSynced(log_with(60, 1015, false, 1015))));
    let saved = stored(&actions[0]);
    assert_eq!(saved.record.position, Some(older));
    assert_eq!(saved.leader_epoch, Some(epoch(2015)));
}

#[test]
fn a_fenced_machine_decides_nothing_any_more() {
    let mut machine = mirroring();
    step(&mut machine, Event::SourceLeaderEpoch(epoch(13)));
    let fenced = Event::StoreFailed { fenced: true, cause: "state epoch is fenced".to_owned() };
    assert_eq!(step(&mut machine, fenced), [Action::RemoveFetcher]);
    assert!(machine.is_fenced());
    assert_eq!(step(&mut machine, Event::Desired(Desired::Stopped)), []);
}

// --- any order of events and failures, over a simulated destination ---

/// What survives a crash, and what does not.
#[derive(Clone, Debug)]
struct SimulatedDestination {
    record: Option<PartitionRecord>,
    leader_epoch: LeaderEpoch,
    batches: Vec<SimBatch>,
    durable: usize,
    open: Vec<i64>,
    saved_positions: Vec<(u64, MirrorPosition)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SimBatch {
    epoch: i32,
    kind: SimKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimKind {
    Data,
    Begin,
    SourceBarrier,
    Abort(i64),
    Barrier,
}

impl SimulatedDestination {
    fn new() -> Self {
        Self {
            record: None,
            leader_epoch: epoch(0),
            batches: Vec::new(),
            durable: 0,
            open: Vec::new(),
            saved_positions: Vec::new(),
        }
    }

    fn end(&self) -> i64 {
        i64::try_from(self.batches.len()).expect("small")
    }

    fn reopen(&mut self) {
        self.batches.truncate(self.durable);
        self.open = Vec::new();
        for (at, batch) in self.batches.iter().enumerate() {
            match batch.kind {
                SimKind::Begin => self.open.push(i64::try_from(at).expect("small")),
                SimKind::Abort(first) => self.open.retain(|open| *open != first),
                SimKind::SourceBarrier | SimKind::Barrier => self.open.clear(),
                SimKind::Data => {}
            }
        }
    }

    fn append(&mut self, batch_epoch: i32, kind: SimKind) {
        match kind {
            SimKind::Begin => self.open.push(self.end()),
            SimKind::Abort(first) => self.open.retain(|open| *open != first),
            SimKind::SourceBarrier | SimKind::Barrier => self.open.clear(),
            SimKind::Data => {}
        }
        self.batches.push(SimBatch { epoch: batch_epoch, kind });
    }

    fn log(&self) -> LogState {
        let newest = self.batches.last();
        let durable = i64::try_from(self.durable).expect("small");
        LogState {
            log_start_offset: Offset::ZERO,
            high_watermark: offset(durable),
            last_stable_offset: offset(self.open.first().copied().unwrap_or(durable).min(durable)),
            log_end_offset: offset(self.end()),
            leader_epoch: self.leader_epoch,
            latest_epoch: newest.map(|batch| epoch(batch.epoch)),
            newest_batch: newest.map(|batch| NewestBatch {
                base_offset: offset(self.end() - 1),
                crc: 0,
                leader_epoch: Some(epoch(batch.epoch)),
                is_barrier: matches!(batch.kind, SimKind::Barrier | SimKind::SourceBarrier),
            }),
        }
    }

    fn store(&mut self, transition: &Transition) -> Event {
        let found = self.record.as_ref().map(|record| record.state_epoch);
        if found != transition.expected_state_epoch {
            return Event::StoreFailed { fenced: true, cause: "fenced".to_owned() };
        }
        let before = self.record.clone().unwrap_or_else(PartitionRecord::unknown);
        let record = &transition.record;
        assert!(record.state.may_follow(before.state), "{} -> {}", before.state, record.state);
        if let Some(raised) = transition.leader_epoch {
            assert!(raised >= self.leader_epoch);
            self.leader_epoch = raised;
        }
        if record.state == State::Stopping {
            let log = self.log();
            assert_eq!(log.high_watermark, log.log_end_offset, "the position is of a durable log");
            assert!(log.latest_epoch.is_none_or(|newest| self.leader_epoch.get() >= newest.get()), "M5");
            if let Some(position) = record.position.filter(|p| p.session == record.session) {
                self.saved_positions.push((record.session, position));
            }
        }
        if record.state == State::Stopped && before.state != State::Stopped {
            self.check_writable(record);
        }
        self.record = Some(record.clone());
        Event::Stored
    }

    /// M2, on the bytes: position saved, epoch raised, transactions ended, barrier durable.
    fn check_writable(&self, record: &PartitionRecord) {
        assert_eq!(self.durable, self.batches.len(), "durable to its end");
        assert!(self.open.is_empty(), "LSO = log end");
        let newest = self.batches.last().expect("holds the barrier");
        assert!(matches!(newest.kind, SimKind::Barrier | SimKind::SourceBarrier));
        let mirrored = record.position.and_then(|p| p.last_mirror_epoch).map_or(-1, LeaderEpoch::get);
        assert!(newest.epoch > mirrored, "a barrier of ours");
        if record.reached_mirroring {
            let position = record.position_of_session().expect("saved in this session");
            let end = usize::try_from(position.last_mirror_offset.get()).expect("small");
            let ours = &self.batches[end..];
            assert!(
                ours.iter().all(|b| matches!(b.kind, SimKind::Abort(_) | SimKind::Barrier)),
                "only ABORTs and the barrier stand behind the position: {ours:?}"
            );
            assert_eq!(ours.iter().filter(|b| b.kind == SimKind::Barrier).count(), 1);
            assert!(self.leader_epoch.get() >= position.last_mirror_epoch.map_or(0, LeaderEpoch::get) + 1000);
        }
    }

    fn stop_step(&mut self, step: StopStep, record: &PartitionRecord, disk: bool) -> Event {
        let failed = Event::StopStepFailed { cause: "simulated".to_owned() };
        let outcome = match step {
            StopStep::RemoveFetcher => StopOutcome::FetcherRemoved,
            StopStep::SyncLog | StopStep::SyncBarrier => {
                if !disk {
                    return failed;
                }
                self.durable = self.batches.len();
                match step {
                    StopStep::SyncLog => StopOutcome::LogSynced(self.log()),
                    _ => StopOutcome::BarrierSynced(self.log()),
                }
            }
            StopStep::AbortTransactions => {
                let mut aborts = Vec::new();
                for first in self.open.clone() {
                    if !disk && !aborts.is_empty() {
                        return failed;
                    }
                    let at = offset(self.end());
                    self.append(self.leader_epoch.get(), SimKind::Abort(first));
                    aborts.push(AbortAppended {
                        producer_id: ProducerId::new(first).expect("not negative"),
                        first_offset: offset(first),
                        offset: at,
                    });
                }
                StopOutcome::TransactionsAborted(aborts)
            }
            StopStep::AppendBarrier => {
                let offset_found = barrier::barrier_in_log(record, &self.log());
                let at = match offset_found {
                    Some(at) => at,
                    None if !disk => return failed,
                    None => {
                        let at = offset(self.end());
                        self.append(self.leader_epoch.get(), SimKind::Barrier);
                        at
                    }
                };
                StopOutcome::BarrierInLog(at)
            }
            StopStep::SavePosition | StopStep::SaveStopped => panic!("these are stores"),
        };
        Event::StopStepDone(outcome)
    }
}

#[derive(Clone, Debug)]
enum Input {
    /// Carry the next action out; the disk or the store fails if `false`.
    Act(bool),
    /// An event that nobody asked for.
    Stray(Event),
    /// The source has another batch.
    Fetched(u8),
    Crash,
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let stray = prop_oneof![
        Just(Event::Desired(Desired::Mirroring)),
        Just(Event::Desired(Desired::Stopped)),
        Just(Event::Desired(Desired::Stopped)),
        Just(Event::TryAgain),
        Just(Event::RetryDue),
        Just(Event::LogFailed { cause: "stray".to_owned() }),
        Just(Event::Failed(Failure::Gap { log_end: offset(1), source_start: offset(2) })),
        (0..60_i32).prop_map(|raw| Event::SourceLeaderEpoch(epoch(raw))),
        (0..60_i32).prop_map(|raw| Event::BatchAhead(epoch(raw))),
        Just(Event::StopStepFailed { cause: "stray".to_owned() }),
    ];
    let input = prop_oneof![
        12 => Just(Input::Act(true)),
        2 => Just(Input::Act(false)),
        3 => stray.prop_map(Input::Stray),
        4 => (0..4_u8).prop_map(Input::Fetched),
        1 => Just(Input::Crash),
    ];
    proptest::collection::vec(input, 1..160)
}

struct World {
    disk: SimulatedDestination,
    machine: MirrorPartition,
    desired: Desired,
    todo: std::collections::VecDeque<Action>,
    fetching: bool,
    source_epoch: i32,
}

impl World {
    fn new() -> Self {
        let disk = SimulatedDestination::new();
        let machine = MirrorPartition::load(None, &disk.log());
        let mut world = Self {
            disk,
            machine,
            desired: Desired::Mirroring,
            todo: std::collections::VecDeque::new(),
            fetching: false,
            source_epoch: 4,
        };
        world.event(Event::Desired(Desired::Mirroring));
        world
    }

    fn event(&mut self, event: Event) {
        if let Event::Desired(desired) = event {
            self.desired = desired;
        }
        self.todo.extend(self.machine.step(event));
        if self.machine.is_fenced() {
            panic!("nobody else writes here");
        }
    }

    fn act(&mut self, works: bool) {
        let Some(action) = self.todo.pop_front() else { return };
        match action {
            Action::Store(transition) => {
                let answer = if works {
                    self.disk.store(&transition)
                } else {
                    Event::StoreFailed { fenced: false, cause: "simulated".to_owned() }
                };
                self.event(answer);
            }
            Action::Align => {
                if works {
                    let log = self.disk.log();
                    let fits = log.is_empty() || self.machine.record().reached_mirroring;
                    self.event(if fits {
                        Event::Aligned { source_leader_epoch: Some(epoch(self.source_epoch)), log }
                    } else {
                        Event::Failed(Failure::LogNotEmpty {
                            log_start: log.log_start_offset,
                            log_end: log.log_end_offset,
                        })
                    });
                } else {
                    self.todo.push_back(Action::Align);
                }
            }
            Action::StartFetcher => self.fetching = true,
            Action::RemoveFetcher => self.fetching = false,
            Action::Stop(step) => {
                if step == StopStep::RemoveFetcher {
                    self.fetching = false;
                }
                let record = self.machine.record().clone();
                let answer = self.disk.stop_step(step, &record, works);
                self.event(answer);
            }
            Action::RetryAfter(_) => self.event(Event::RetryDue),
        }
    }

    fn fetched(&mut self, what: u8) {
        // A fetcher appends only what the machine's epoch covers, and only while it is there.
        if !self.fetching || self.source_epoch > self.machine.leader_epoch().get() {
            return;
        }
        assert!(!self.machine.record().state.is_writable(), "a fetcher never runs on a writable partition");
        let kind = match what {
            0 => SimKind::Begin,
            1 => SimKind::SourceBarrier,
            _ => SimKind::Data,
        };
        self.disk.append(self.source_epoch, kind);
        if what == 3 {
            self.disk.durable = self.disk.batches.len();
            self.source_epoch = (self.source_epoch + 1).min(60);
        }
    }

    fn crash(&mut self) {
        self.disk.reopen();
        self.todo.clear();
        self.fetching = false;
        self.machine = MirrorPartition::load(self.disk.record.clone(), &self.disk.log());
        self.event(Event::Desired(self.desired));
    }

    fn check(&self) {
        let record = self.disk.record.clone().unwrap_or_else(PartitionRecord::unknown);
        assert_eq!(&record, self.machine.record(), "the machine knows what the store holds");
        let mut positions = std::collections::BTreeMap::new();
        for (session, position) in &self.disk.saved_positions {
            assert_eq!(positions.entry(*session).or_insert(*position), position, "one position per session");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// M2, M4, B11: whatever order events, failures and crashes come in. The checks are in
    /// `SimulatedDestination::store`, where STOPPED would become true.
    #[test]
    fn no_path_reaches_stopped_without_a_durable_barrier(inputs in inputs()) {
        let mut world = World::new();
        for input in inputs {
            match input {
                Input::Act(works) => world.act(works),
                Input::Stray(event) => world.event(event),
                Input::Fetched(what) => world.fetched(what),
                Input::Crash => world.crash(),
            }
            world.check();
        }
        // However it went, an operator who wants it stopped gets it stopped.
        world.event(Event::Desired(Desired::Stopped));
        for _ in 0..60 {
            world.act(true);
            world.check();
        }
        prop_assert!(world.todo.is_empty());
        if world.machine.record().state == State::Failed {
            // What had failed takes a word more.
            world.event(Event::TryAgain);
            for _ in 0..60 {
                world.act(true);
                world.check();
            }
            prop_assert!(world.todo.is_empty());
        }
        prop_assert_eq!(world.machine.record().state, State::Stopped);
    }
}
