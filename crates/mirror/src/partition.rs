//! One mirrored partition as a pure state machine.
//!
//! [`MirrorPartition::step`] takes one event and answers at most three actions. The runner
//! carries them out and feeds back what became of them. No time, no I/O and no chance here:
//! whatever order events come in, STOPPED is reached through every step of the stop or not
//! at all, and a transition that the table does not have is a bug that ends the process.

use std::time::Duration;

use weir_format::{LeaderEpoch, Offset};

use crate::barrier::{
    self, AbortAppended, StopOutcome, StopStep, check_position, check_stoppable, raised_leader_epoch,
};
use crate::destination::{LogState, Transition};
use crate::failure::Failure;
use crate::record::PartitionRecord;
use crate::state::MirrorPartitionState as State;

/// What the operator wants of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired {
    /// Mirror it.
    Mirroring,
    /// Stop it and make it writable.
    Stopped,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The desired state was loaded or changed.
    Desired(Desired),
    /// The operator wants a FAILED partition tried again; if it is to be stopped, he takes it with
    /// what is here.
    TryAgain,
    /// The transition of the last [`Action::Store`] is durable.
    Stored,
    /// The transition of the last [`Action::Store`] was not stored.
    StoreFailed {
        /// Somebody else decided meanwhile.
        fenced: bool,
        /// What failed.
        cause: String,
    },
    /// The log fits the source; the source's epoch, and the log as it is now.
    Aligned {
        /// The source's leader epoch, if it says it.
        source_leader_epoch: Option<LeaderEpoch>,
        /// The log.
        log: LogState,
    },
    /// Something that no retry repairs.
    Failed(Failure),
    /// The log or the store did not take what was fetched; where the log ends is not known any
    /// more. The fetcher waits.
    LogFailed {
        /// What failed.
        cause: String,
    },
    /// The source's leader has this epoch.
    SourceLeaderEpoch(LeaderEpoch),
    /// The source has another leader, and cannot say whether its history is ours. The fetcher
    /// waits.
    LeaderUnproven,
    /// A fetched batch has an epoch above ours. It was not appended; the fetcher waits.
    BatchAhead(LeaderEpoch),
    /// A step of the stop is done.
    StopStepDone(StopOutcome),
    /// A step of the stop failed and may work later.
    StopStepFailed {
        /// What failed.
        cause: String,
    },
    /// The time of [`Action::RetryAfter`] is over.
    RetryDue,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Store this, then answer `Stored` or `StoreFailed`. Nothing that depends on it runs
    /// before.
    Store(Box<Transition>),
    /// Compare our log with the source's, then answer `Aligned` or `Failed`.
    Align,
    /// Fetch from our log end on.
    StartFetcher,
    /// No fetcher, and its last append complete. Needs no answer.
    RemoveFetcher,
    /// Do this step of the stop, then answer `StopStepDone` or `StopStepFailed`.
    Stop(StopStep),
    /// Answer `RetryDue` after this time.
    RetryAfter(Duration),
}

/// At most [`Actions::MAX`] actions, in the order in which they are to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    items: [Option<Action>; Self::MAX],
}

impl Actions {
    /// The most actions that one event can cause.
    pub const MAX: usize = 3;

    fn one(action: Action) -> Self {
        Self { items: [Some(action), None, None] }
    }

    fn two(first: Action, second: Action) -> Self {
        Self { items: [Some(first), Some(second), None] }
    }
}

impl IntoIterator for Actions {
    type Item = Action;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<Action>, { Self::MAX }>>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter().flatten()
    }
}

/// How long to wait before the `attempt`th retry: doubling from 100 ms to 10 s.
#[must_use]
pub fn backoff(attempt: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(10);
    FIRST.saturating_mul(1_u32 << attempt.min(10)).min(LONGEST)
}

/// How long a log that failed is left alone before it is aligned again.
const LOG_RETRY: Duration = Duration::from_secs(1);

/// What a stop did, for whoever asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// The ABORTs of this run; those of a run that a crash ended are in the log.
    pub aborts: Vec<AbortAppended>,
    /// The barrier's offset.
    pub barrier: Option<Offset>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing runs.
    Idle,
    /// `Store` was asked for; afterwards go on as said.
    Storing { transition: Box<Transition>, then: Then },
    /// The last store failed; it is tried again when the retry is due.
    StoreBackoff { transition: Box<Transition>, then: Then },
    /// `Align` was asked for.
    Aligning,
    /// The log failed; it is aligned again when the retry is due.
    AlignBackoff,
    /// The fetcher runs.
    Fetching,
    /// A step of the stop runs.
    Stopping(StopStep),
    /// A step of the stop failed; the sequence goes on there when the retry is due.
    StopBackoff(StopStep),
    /// Fenced: this machine decides nothing any more.
    Fenced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Align,
    StartFetcher,
    KeepFetching,
    StoreMirroring,
    Stop(StopStep),
    Settle,
    Rest,
}

/// One mirrored partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorPartition {
    /// INVARIANT: exactly what the store holds, as far as this machine was told.
    record: PartitionRecord,
    stored_before: bool,
    leader_epoch: LeaderEpoch,
    source_leader_epoch: Option<LeaderEpoch>,
    desired: Option<Desired>,
    phase: Phase,
    attempt: u32,
    /// The step of the stop that failed last; only getting beyond it ends the backing off.
    stuck_at: Option<StopStep>,
    attention: Option<String>,
    /// A failure that came while a transition was being stored.
    deferred: Option<Failure>,
    /// The operator stops a FAILED partition whatever is missing.
    accepts_loss: bool,
    /// The log as the last step of the stop saw it.
    stop_log: Option<LogState>,
    report: StopReport,
}

impl MirrorPartition {
    /// The partition as loaded: `record` is what the store holds, if anything.
    ///
    /// `log` is the log as recovery left it; if it misses what was said to be mirrored, the
    /// first event leads to FAILED with both numbers.
    #[must_use]
    pub fn load(record: Option<PartitionRecord>, log: &LogState) -> Self {
        let stored_before = record.is_some();
        let record = record.unwrap_or_else(PartitionRecord::unknown);
        let deferred = check_position(&record, log).err();
        Self {
            record,
            stored_before,
            leader_epoch: log.leader_epoch,
            source_leader_epoch: None,
            desired: None,
            phase: Phase::Idle,
            attempt: 0,
            stuck_at: None,
            attention: None,
            deferred,
            accepts_loss: false,
            stop_log: None,
            report: StopReport::default(),
        }
    }

    /// What the store holds.
    #[must_use]
    pub fn record(&self) -> &PartitionRecord {
        &self.record
    }

    /// Our leader epoch, as far as this machine was told.
    #[must_use]
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The state to show: STOPPING as soon as the stop has begun.
    #[must_use]
    pub fn shown_state(&self) -> State {
        match self.phase {
            Phase::Stopping(_)
            | Phase::StopBackoff(_)
            | Phase::Storing { then: Then::Stop(_), .. }
            | Phase::StoreBackoff { then: Then::Stop(_), .. } => State::Stopping,
            _ => self.record.state,
        }
    }

    /// What holds this partition up, in words; also the reason of FAILED.
    #[must_use]
    pub fn attention(&self) -> Option<String> {
        self.attention.clone().or_else(|| self.record.failure.as_ref().map(ToString::to_string))
    }

    /// How many attempts at the current work have failed.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What the last stop did.
    #[must_use]
    pub fn report(&self) -> &StopReport {
        &self.report
    }

    /// The step of the stop that is under way.
    #[must_use]
    pub fn stop_step(&self) -> Option<StopStep> {
        match self.phase {
            Phase::Stopping(step) | Phase::StopBackoff(step) => Some(step),
            Phase::Storing { then: Then::Stop(StopStep::AbortTransactions), .. } => {
                Some(StopStep::SavePosition)
            }
            _ => None,
        }
    }

    /// Whether somebody else has taken the partition over; load it again.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.phase == Phase::Fenced
    }

    /// Takes one event and says what to do.
    ///
    /// An event that does not belong to what is under way (a fetcher's last words after it
    /// was removed, for instance) changes nothing.
    ///
    /// # Panics
    /// If the machine itself would make a transition that the table does not have.
    pub fn step(&mut self, event: Event) -> Actions {
        if self.phase == Phase::Fenced {
            return Actions::default();
        }
        match event {
            Event::Desired(desired) => {
                self.desired = Some(desired);
                self.settle_if_interruptible()
            }
            Event::TryAgain => {
                if self.phase == Phase::Idle && self.record.state == State::Failed {
                    self.realign()
                } else {
                    Actions::default()
                }
            }
            Event::Stored => self.stored(),
            Event::StoreFailed { fenced, cause } => self.store_failed(fenced, cause),
            Event::Aligned { source_leader_epoch, log } => self.aligned(source_leader_epoch, &log),
            Event::Failed(failure) => self.failed(failure),
            Event::LogFailed { cause } => self.log_failed(cause),
            Event::SourceLeaderEpoch(epoch) => self.source_epoch(epoch),
            Event::LeaderUnproven => self.leader_unproven(),
            Event::BatchAhead(epoch) => self.batch_ahead(epoch),
            Event::StopStepDone(outcome) => self.stop_step_done(outcome),
            Event::StopStepFailed { cause } => match self.phase {
                Phase::Stopping(step) => {
                    // A log that failed may have been opened again without what was not durable:
                    // ABORTs that were written are looked for once more.
                    let cause = format!("{} failed: {cause}", step.describe());
                    self.stop_backoff(step, step.min(StopStep::AbortTransactions), cause)
                }
                _ => Actions::default(),
            },
            Event::RetryDue => match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::StoreBackoff { transition, then } => {
                    self.phase = Phase::Storing { transition: transition.clone(), then };
                    Actions::one(Action::Store(transition))
                }
                Phase::StopBackoff(step) => self.stop_at(step),
                Phase::AlignBackoff => self.align(),
                other => {
                    self.phase = other;
                    Actions::default()
                }
            },
        }
    }

    fn settle_if_interruptible(&mut self) -> Actions {
        match self.phase {
            Phase::Idle => self.settle(),
            Phase::Aligning | Phase::AlignBackoff | Phase::Fetching
                if self.desired == Some(Desired::Stopped) =>
            {
                self.settle()
            }
            // A stop runs to its end; a store is awaited. Both look at `desired` afterwards.
            _ => Actions::default(),
        }
    }

    /// Decides from what is stored and what is wanted. KIP-1279: the decision that is made
    /// on every metadata change.
    fn settle(&mut self) -> Actions {
        if let Some(failure) = self.deferred.take() {
            // A stop ends fetching with what is here: what the fetcher met meanwhile is no matter.
            let stopping = self.desired == Some(Desired::Stopped);
            if !stopping || matches!(failure, Failure::LogShorterThanPosition { .. }) {
                return self.store_failure(failure);
            }
        }
        let Some(desired) = self.desired else {
            self.phase = Phase::Idle;
            return Actions::default();
        };
        match (desired, self.record.state) {
            (_, State::Stopping) => self.stop_at(StopStep::RemoveFetcher),
            (Desired::Stopped, State::Stopped) => self.idle(),
            (Desired::Stopped, State::Unknown) => {
                let record = self.next_session();
                self.store(record, None, Then::Stop(StopStep::RemoveFetcher))
            }
            // M3: never writable by itself, after a restart no more than before it.
            (Desired::Stopped, State::Failed) if !self.accepts_loss => self.idle(),
            (Desired::Stopped, _) => self.stop_at(StopStep::RemoveFetcher),
            (Desired::Mirroring, State::Unknown | State::Stopped) => {
                let record = self.next_session();
                self.store(record, None, Then::Align)
            }
            (Desired::Mirroring, State::Failed) => self.idle(),
            // PAUSING and PAUSED are not entered by this version; a store that has them is
            // left as it is, read-only.
            (Desired::Mirroring, State::Pausing | State::Paused) => self.idle(),
            (
                Desired::Mirroring,
                State::LogAlignment | State::EpochFencing | State::UleRecovery | State::Mirroring,
            ) => self.align(),
        }
    }

    fn idle(&mut self) -> Actions {
        self.phase = Phase::Idle;
        Actions::default()
    }

    fn align(&mut self) -> Actions {
        self.phase = Phase::Aligning;
        Actions::one(Action::Align)
    }

    fn next_session(&self) -> PartitionRecord {
        PartitionRecord {
            state: State::LogAlignment,
            session: self.record.session.saturating_add(1),
            reached_mirroring: false,
            barrier_offset: None,
            failure: None,
            ..self.record.clone()
        }
    }

    /// A FAILED partition is aligned again: in its session, unless a stop of that session
    /// has already written behind the position.
    fn realign(&mut self) -> Actions {
        if self.desired != Some(Desired::Mirroring) {
            self.accepts_loss = self.desired == Some(Desired::Stopped);
            return self.settle();
        }
        let record = if self.record.position_of_session().is_some() {
            self.next_session()
        } else {
            PartitionRecord { state: State::LogAlignment, failure: None, ..self.record.clone() }
        };
        self.store(record, None, Then::Align)
    }

    fn store(&mut self, record: PartitionRecord, leader_epoch: Option<LeaderEpoch>, then: Then) -> Actions {
        assert!(
            record.state.may_follow(self.record.state),
            "no transition from {} to {}",
            self.record.state,
            record.state
        );
        assert!(
            leader_epoch.is_none_or(|epoch| epoch >= self.leader_epoch),
            "a leader epoch never goes down"
        );
        let transition = Box::new(Transition {
            expected_state_epoch: self.stored_before.then_some(self.record.state_epoch),
            record: PartitionRecord { state_epoch: self.record.state_epoch.saturating_add(1), ..record },
            leader_epoch,
        });
        self.phase = Phase::Storing { transition: transition.clone(), then };
        Actions::one(Action::Store(transition))
    }

    /// FAILED, and nothing more by itself, a stop included.
    fn store_failure(&mut self, failure: Failure) -> Actions {
        self.accepts_loss = false;
        let record = PartitionRecord { state: State::Failed, failure: Some(failure), ..self.record.clone() };
        let Actions { items: [store, ..] } = self.store(record, None, Then::Rest);
        Actions { items: [Some(Action::RemoveFetcher), store, None] }
    }

    fn stored(&mut self) -> Actions {
        let (transition, then) = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Storing { transition, then } => (transition, then),
            other => {
                self.phase = other;
                return Actions::default();
            }
        };
        self.record = transition.record;
        self.stuck_at = None;
        self.stored_before = true;
        if let Some(epoch) = transition.leader_epoch {
            self.leader_epoch = epoch;
        }
        self.attempt = 0;
        self.attention = None;
        // A stop that was asked for while this was stored comes first.
        let stop_wanted = self.desired == Some(Desired::Stopped) && self.record.state.wants_fetcher();
        match then {
            Then::Stop(step) => self.stop_at(step),
            Then::Rest => self.idle(),
            _ if stop_wanted || self.deferred.is_some() => self.settle(),
            Then::Align => self.align(),
            Then::StartFetcher => {
                self.phase = Phase::Fetching;
                Actions::one(Action::StartFetcher)
            }
            Then::KeepFetching => {
                self.phase = Phase::Fetching;
                Actions::default()
            }
            Then::StoreMirroring => {
                let record = PartitionRecord { state: State::Mirroring, ..self.record.clone() };
                self.store(record, None, Then::StartFetcher)
            }
            Then::Settle => self.settle(),
        }
    }

    fn store_failed(&mut self, fenced: bool, cause: String) -> Actions {
        let (transition, then) = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Storing { transition, then } => (transition, then),
            other => {
                self.phase = other;
                return Actions::default();
            }
        };
        if fenced {
            self.phase = Phase::Fenced;
            self.attention = Some(cause);
            return Actions::one(Action::RemoveFetcher);
        }
        self.attention = Some(format!("state {} could not be stored: {cause}", transition.record.state));
        self.phase = Phase::StoreBackoff { transition, then };
        self.retry()
    }

    fn retry(&mut self) -> Actions {
        let wait = backoff(self.attempt);
        self.attempt = self.attempt.saturating_add(1);
        Actions::one(Action::RetryAfter(wait))
    }

    fn aligned(&mut self, source: Option<LeaderEpoch>, log: &LogState) -> Actions {
        if self.phase != Phase::Aligning {
            return Actions::default();
        }
        self.attention = None;
        self.source_leader_epoch = self.source_leader_epoch.max(source);
        self.leader_epoch = self.leader_epoch.max(log.leader_epoch);
        let known = self.source_leader_epoch.max(log.latest_epoch);
        let raised = match raised_leader_epoch(self.leader_epoch, known) {
            Ok(raised) => raised,
            Err(failure) => return self.store_failure(failure),
        };
        if self.record.state == State::Mirroring && self.record.reached_mirroring && raised.is_none() {
            self.phase = Phase::Fetching;
            return Actions::one(Action::StartFetcher);
        }
        let record =
            PartitionRecord { state: State::Mirroring, reached_mirroring: true, ..self.record.clone() };
        self.store(record, raised, Then::StartFetcher)
    }

    fn failed(&mut self, failure: Failure) -> Actions {
        match self.phase {
            Phase::Aligning | Phase::Fetching => self.store_failure(failure),
            Phase::Storing { then: Then::KeepFetching, .. }
            | Phase::StoreBackoff { then: Then::KeepFetching, .. } => {
                self.deferred.get_or_insert(failure);
                Actions::default()
            }
            _ => Actions::default(),
        }
    }

    /// A full disk may get room again: the state stays, and where the log ends is asked anew.
    fn log_failed(&mut self, cause: String) -> Actions {
        if self.phase != Phase::Fetching {
            return self.fetcher_ended();
        }
        self.attention = Some(format!("the destination failed: {cause}"));
        self.phase = Phase::AlignBackoff;
        Actions::two(Action::RemoveFetcher, Action::RetryAfter(LOG_RETRY))
    }

    /// The fetcher has said its last words while an epoch is being stored: afterwards another one
    /// begins, from where the log ends then.
    fn fetcher_ended(&mut self) -> Actions {
        match &mut self.phase {
            Phase::Storing { then, .. } | Phase::StoreBackoff { then, .. } if *then == Then::KeepFetching => {
                *then = Then::Align;
                Actions::one(Action::RemoveFetcher)
            }
            _ => Actions::default(),
        }
    }

    /// The newest batch is compared again before anything is appended behind it.
    fn leader_unproven(&mut self) -> Actions {
        if self.phase != Phase::Fetching {
            return self.fetcher_ended();
        }
        self.phase = Phase::Aligning;
        Actions::two(Action::RemoveFetcher, Action::Align)
    }

    fn source_epoch(&mut self, epoch: LeaderEpoch) -> Actions {
        self.source_leader_epoch = self.source_leader_epoch.max(Some(epoch));
        if self.phase != Phase::Fetching {
            return Actions::default();
        }
        match raised_leader_epoch(self.leader_epoch, self.source_leader_epoch) {
            Ok(None) => Actions::default(),
            Ok(raised) => {
                let record = self.record.clone();
                self.store(record, raised, Then::KeepFetching)
            }
            Err(failure) => self.store_failure(failure),
        }
    }

    fn batch_ahead(&mut self, epoch: LeaderEpoch) -> Actions {
        self.source_leader_epoch = self.source_leader_epoch.max(Some(epoch));
        if self.phase != Phase::Fetching {
            return self.fetcher_ended();
        }
        match raised_leader_epoch(self.leader_epoch, self.source_leader_epoch) {
            // The fetcher's knowledge was old: ours is high enough already.
            Ok(None) => Actions::one(Action::StartFetcher),
            Ok(raised) => {
                let record = PartitionRecord { state: State::EpochFencing, ..self.record.clone() };
                let Actions { items: [store, ..] } = self.store(record, raised, Then::StoreMirroring);
                Actions { items: [Some(Action::RemoveFetcher), store, None] }
            }
            Err(failure) => self.store_failure(failure),
        }
    }

    // --- the stop sequence ---

    fn stop_at(&mut self, step: StopStep) -> Actions {
        match step {
            StopStep::SavePosition => self.save_position(),
            StopStep::SaveStopped => self.save_stopped(),
            step => {
                self.phase = Phase::Stopping(step);
                Actions::one(Action::Stop(step))
            }
        }
    }

    fn stop_backoff(&mut self, failed: StopStep, resume_at: StopStep, cause: String) -> Actions {
        self.attention = Some(cause);
        self.stuck_at = Some(failed);
        self.phase = Phase::StopBackoff(resume_at);
        self.retry()
    }

    fn stop_step_done(&mut self, outcome: StopOutcome) -> Actions {
        let Phase::Stopping(step) = self.phase else { return Actions::default() };
        let next = match (step, outcome) {
            (StopStep::RemoveFetcher, StopOutcome::FetcherRemoved) => StopStep::SyncLog,
            (StopStep::SyncLog, StopOutcome::LogSynced(log)) => {
                if let Err(failure) = check_position(&self.record, &log)
                    && !self.accepts_loss
                {
                    return self.store_failure(failure);
                }
                self.stop_log = Some(log);
                StopStep::SavePosition
            }
            (StopStep::AbortTransactions, StopOutcome::TransactionsAborted(aborts)) => {
                self.report.aborts.extend(aborts);
                StopStep::AppendBarrier
            }
            (StopStep::AppendBarrier, StopOutcome::BarrierInLog(offset)) => {
                self.report.barrier = Some(offset);
                StopStep::SyncBarrier
            }
            (StopStep::SyncBarrier, StopOutcome::BarrierSynced(log)) => {
                self.stop_log = Some(log);
                StopStep::SaveStopped
            }
            // An answer to another step: the one that is under way is still awaited.
            _ => return Actions::default(),
        };
        if self.stuck_at.is_none_or(|stuck| step >= stuck) {
            self.attempt = 0;
            self.stuck_at = None;
            self.attention = None;
        }
        self.stop_at(next)
    }

    fn save_position(&mut self) -> Actions {
        let Some(log) = self.stop_log.take() else { return self.stop_at(StopStep::SyncLog) };
        if log.high_watermark != log.log_end_offset {
            let cause =
                format!("the log ends at {} and is durable to {}", log.log_end_offset, log.high_watermark);
            return self.stop_backoff(StopStep::SyncLog, StopStep::SyncLog, cause);
        }
        if self.record.state == State::Stopping {
            return self.stop_at(StopStep::AbortTransactions);
        }
        self.leader_epoch = self.leader_epoch.max(log.leader_epoch);
        let mut position = barrier::position_to_save(&self.record, &log);
        let lost = position.as_mut().filter(|position| position.last_mirror_offset > log.log_end_offset);
        let lost = lost.map(|position| {
            position.last_mirror_epoch = log.latest_epoch;
            position.last_mirror_offset = log.log_end_offset;
        });
        // A stop that FAILED after this transaction has its epoch already: one per stop, unless
        // offsets behind it are given out once more.
        let raised = if barrier::position_is_saved(&self.record) && lost.is_none() {
            None
        } else {
            match barrier::stop_leader_epoch(self.leader_epoch, log.latest_epoch, self.source_leader_epoch) {
                Ok(raised) => Some(raised),
                Err(failure) => return self.store_failure(failure),
            }
        };
        let record =
            PartitionRecord { state: State::Stopping, position, failure: None, ..self.record.clone() };
        self.store(record, raised, Then::Stop(StopStep::AbortTransactions))
    }

    fn save_stopped(&mut self) -> Actions {
        let Some(log) = self.stop_log.take() else { return self.stop_at(StopStep::AbortTransactions) };
        match check_stoppable(&self.record, &log) {
            Ok(barrier) => {
                self.report.barrier = Some(barrier);
                let record = PartitionRecord {
                    state: State::Stopped,
                    barrier_offset: Some(barrier),
                    ..self.record.clone()
                };
                self.store(record, None, Then::Settle)
            }
            Err(not_yet) => {
                let cause = format!("not writable yet: {not_yet}");
                self.stop_backoff(StopStep::SaveStopped, StopStep::AbortTransactions, cause)
            }
        }
    }
}

#[cfg(test)]
mod tests;
