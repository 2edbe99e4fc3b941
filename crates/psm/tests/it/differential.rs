//! Random histories against the naive model.

use std::time::Duration;

use proptest::prelude::*;
use weir_format::{ProducerEpoch, Sequence, TimestampMs};
use weir_psm::snapshot::SnapshotPiece;
use weir_psm::{
    AppendOrigin, CompletedTransaction, ProducerStateError, PsmConfig, TransactionVersion, VerificationGuard,
};

use crate::history::{Batch, IDS, Rel, bytes_of, data, epoch, epoch_and_sequence, event, marker, rel};
use crate::model::{Event, Model, Producer, Verdict, completed_of};
use crate::support::{Gate, Outcome, offset, pid, set_base};

/// For how many steps of a history a producer is remembered.
const EXPIRATION: i64 = 30;

#[derive(Clone, Copy, Debug)]
enum Op {
    Append {
        batch: Batch,
        how: How,
    },
    /// The coordinator is asked about a producer.
    Ask {
        id: i64,
        epoch: Rel,
        seq: Rel,
        version_2: bool,
    },
    HighWatermark(u8),
    Expire {
        in_steps: i64,
        /// Entries that one slice looks at; all of them with `None`.
        slice: Option<usize>,
    },
    /// A snapshot is begun, and from now on written piece by piece.
    StartSnapshot,
    /// So many producers of it.
    Piece(usize),
    /// A snapshot is written beside the log.
    Snapshot,
    /// Snapshot, and go on from it.
    Restart,
    /// Back to a batch's border, from one of the snapshots at or below it.
    Truncate {
        snapshot: prop::sample::Index,
        to: prop::sample::Index,
    },
    /// Everything is gone.
    TruncateFully,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// A client's data, a coordinator's marker or barrier.
    Leader,
    /// A marker by the rules of transaction version 2.
    Version2,
    /// A client's data on a leader that wants a guard: the one of the last question, or an older one, or none.
    Verified(Guard),
    Mirrored,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Guard {
    Newest,
    Older,
    None,
}

fn op() -> impl Strategy<Value = Op> {
    let guard = prop_oneof![4 => Just(Guard::Newest), 1 => Just(Guard::Older), 1 => Just(Guard::None)];
    let of_data = prop_oneof![
        2 => Just(How::Leader),
        2 => guard.prop_map(How::Verified),
        2 => Just(How::Mirrored),
    ];
    let of_marker = prop_oneof![Just(How::Leader), Just(How::Version2), Just(How::Mirrored)];
    let of_barrier = prop_oneof![Just(How::Leader), Just(How::Mirrored)];
    prop_oneof![
        14 => (data(), of_data).prop_map(|(batch, how)| Op::Append { batch, how }),
        6 => (marker(), of_marker).prop_map(|(batch, how)| Op::Append { batch, how }),
        1 => of_barrier.prop_map(|how| Op::Append { batch: Batch::Barrier, how }),
        4 => (IDS, epoch(), rel(), any::<bool>())
            .prop_map(|(id, epoch, seq, version_2)| Op::Ask { id, epoch, seq, version_2 }),
        3 => any::<u8>().prop_map(Op::HighWatermark),
        2 => (0..2 * EXPIRATION, prop_oneof![Just(None), (1..4_usize).prop_map(Some)])
            .prop_map(|(in_steps, slice)| Op::Expire { in_steps, slice }),
        2 => Just(Op::StartSnapshot),
        4 => (1..4_usize).prop_map(Op::Piece),
        2 => Just(Op::Snapshot),
        1 => Just(Op::Restart),
        1 => (any::<prop::sample::Index>(), any::<prop::sample::Index>())
            .prop_map(|(snapshot, to)| Op::Truncate { snapshot, to }),
        1 => prop::bool::weighted(0.2).prop_map(|all| if all { Op::TruncateFully } else { Op::Restart }),
    ]
}

/// What the gate knows of a producer, in the model's words.
fn known(gate: &Gate, id: i64) -> Option<Producer> {
    let entry = gate.psm.entry(pid(id))?;
    Some(Producer {
        epoch: entry.producer_epoch().map_or(-1, ProducerEpoch::get),
        coordinator_epoch: entry.coordinator_epoch().unwrap_or(-1),
        last_timestamp: entry.last_timestamp().get(),
        open_since: entry.transaction_first_offset().map(|first| first.get()),
        batches: entry
            .batches()
            .iter()
            .map(|batch| {
                let raw = |sequence: Option<Sequence>| sequence.map_or(-1, Sequence::get);
                (
                    raw(batch.first_sequence()),
                    raw(batch.last_sequence()),
                    batch.first_offset().get(),
                    batch.last_offset().get(),
                )
            })
            .collect(),
    })
}

fn verdict(outcome: &Outcome) -> Verdict {
    match outcome {
        Outcome::Appended(_) => Verdict::Append,
        Outcome::Duplicate(duplicate) => {
            Verdict::Duplicate(duplicate.base_offset.get(), duplicate.last_offset.get())
        }
        Outcome::Refused(ProducerStateError::InvalidProducerEpoch { .. }) => Verdict::Epoch,
        Outcome::Refused(ProducerStateError::OutOfOrderSequence { .. }) => Verdict::Sequence,
        Outcome::Refused(ProducerStateError::InvalidTxnState { .. }) => Verdict::TransactionState,
        Outcome::Refused(ProducerStateError::TransactionCoordinatorFenced { .. }) => Verdict::Coordinator,
        Outcome::Refused(ProducerStateError::NotVerified { .. }) => Verdict::NotVerified,
        Outcome::Refused(other) => panic!("no model has {other}"),
    }
}

/// The gate, the model, and what lies around them.
struct Both {
    gate: Gate,
    model: Model,
    high_watermark: i64,
    /// Every transaction that ended, as the gate said when it did.
    completed: Vec<CompletedTransaction>,
    /// What was written beside the log, with the model as it was then.
    snapshots: Vec<(Model, Vec<u8>)>,
    /// A snapshot under way: what it has to become, and what came of it so far.
    under_way: Option<(Vec<u8>, Vec<u8>)>,
    /// Guards of each producer, oldest first: the gate's, and the model's number of it.
    guards: Vec<Vec<(Option<VerificationGuard>, Option<u64>)>>,
}

impl Both {
    fn new(max_producers: Option<usize>) -> Self {
        let producer_id_expiration = Duration::from_millis(EXPIRATION.unsigned_abs());
        let gate = Gate::with(PsmConfig { producer_id_expiration, max_producers });
        let model = Model::new(max_producers);
        Self {
            snapshots: vec![(model.clone(), gate.psm.snapshot())],
            gate,
            model,
            high_watermark: 0,
            completed: Vec::new(),
            under_way: None,
            guards: IDS.map(|_| vec![(None, None)]).collect(),
        }
    }

    fn step(&mut self, op: Op, now: i64) -> Result<(), TestCaseError> {
        match op {
            Op::Append { batch, how } => self.append(event(&self.model, batch, now), how)?,
            Op::Ask { id, epoch, seq, version_2 } => {
                let (epoch, sequence) = epoch_and_sequence(&self.model, id, epoch, seq);
                let version = if version_2 { TransactionVersion::V2 } else { TransactionVersion::Legacy };
                let guard = self.gate.psm.start_verification(
                    pid(id),
                    ProducerEpoch::new(epoch),
                    Sequence::new(sequence),
                    version,
                    TimestampMs::new(now),
                );
                let number = self.model.ask(id, epoch, sequence, version_2, now);
                prop_assert_eq!(guard.is_some(), number.is_some(), "asked about {}", id);
                self.guards[id as usize].push((guard, number));
            }
            Op::HighWatermark(part) => {
                self.high_watermark += (self.model.end - self.high_watermark) * i64::from(part) / 255;
                self.gate.psm.on_high_watermark(offset(self.high_watermark));
            }
            Op::Expire { in_steps, slice } => {
                let gone = self.expire(TimestampMs::new(now + in_steps), slice);
                // Nobody goes while a snapshot is under way.
                let meant = match self.under_way {
                    Some(_) => 0,
                    None => self.model.expire(now + in_steps, EXPIRATION, self.high_watermark),
                };
                prop_assert_eq!(gone, meant, "expired");
            }
            Op::StartSnapshot => {
                let started = self.gate.psm.start_snapshot();
                prop_assert_eq!(started, self.under_way.is_none(), "one at a time");
                if started {
                    self.under_way = Some((self.gate.psm.snapshot(), vec![0; 10]));
                }
            }
            Op::Piece(most) => self.piece(most)?,
            Op::Snapshot => self.snapshots.push((self.model.clone(), self.gate.psm.snapshot())),
            Op::Restart => {
                let snapshot = self.gate.psm.snapshot();
                self.reload(&self.model.clone(), &snapshot);
            }
            Op::Truncate { snapshot, to } => self.truncate(snapshot, to)?,
            Op::TruncateFully => {
                let end = self.model.end;
                self.gate.psm.truncate_fully_and_start_at(offset(end));
                self.under_way = None;
                self.model.clear();
                self.completed.clear();
                self.snapshots = vec![(self.model.clone(), self.gate.psm.snapshot())];
                self.high_watermark = end;
                self.gate.psm.on_high_watermark(offset(end));
            }
        }
        self.check_same()
    }

    fn append(&mut self, event: Event, how: How) -> Result<(), TestCaseError> {
        let before = format!("{:?}", self.gate.psm);
        let bytes = bytes_of(&event);
        let (expected, outcome) = match (how, &event) {
            (How::Verified(which), Event::Data(data)) => {
                let guards = &self.guards[data.pid as usize];
                let (guard, number) = match which {
                    Guard::Newest => guards[guards.len() - 1].clone(),
                    Guard::Older => guards[guards.len() / 2].clone(),
                    Guard::None => (None, None),
                };
                (self.model.verified(data, number), self.gate.verified(*data, guard.as_ref()))
            }
            (How::Leader, Event::Data(data)) => {
                (self.model.client(data), self.gate.append(&bytes, AppendOrigin::Client))
            }
            (How::Leader, Event::Marker(marker)) => {
                (self.model.coordinator(marker, false), self.gate.append(&bytes, AppendOrigin::Coordinator))
            }
            (How::Version2, Event::Marker(marker)) => (
                self.model.coordinator(marker, true),
                self.gate.append_marker(*marker, TransactionVersion::V2),
            ),
            (How::Leader, Event::Barrier) => {
                (Verdict::Append, self.gate.append(&bytes, AppendOrigin::Coordinator))
            }
            _ => (Verdict::Append, self.gate.append(&bytes, AppendOrigin::Replication)),
        };
        if !matches!(outcome, Outcome::Appended(_)) {
            prop_assert_eq!(format!("{:?}", self.gate.psm), before, "what is not appended leaves no trace");
        }
        prop_assert_eq!(expected, verdict(&outcome), "{:?} {:?}: {:?}", how, event, outcome);
        if let Outcome::Appended(done) = outcome {
            if done.barrier.is_some() {
                self.under_way = None;
            }
            self.model.append(event);
            self.completed.extend(completed_of(&[done]));
        }
        Ok(())
    }

    fn expire(&mut self, now: TimestampMs, slice: Option<usize>) -> usize {
        let psm = &mut self.gate.psm;
        let Some(most) = slice else { return psm.expire(now) };
        psm.start_expiry(now);
        let mut gone = 0;
        for _ in 0..100 {
            gone += psm.expire_slice(most);
            if !psm.is_expiring() {
                break;
            }
        }
        assert_eq!(psm.is_expiring(), psm.snapshot_under_way().is_some(), "a look comes to an end");
        gone
    }

    /// All pieces together are the snapshot as it was when it was begun.
    fn piece(&mut self, most: usize) -> Result<(), TestCaseError> {
        let piece = self.gate.psm.snapshot_piece(most);
        prop_assert_eq!(piece.is_some(), self.under_way.is_some());
        let (Some(piece), Some((whole, written))) = (piece, &mut self.under_way) else { return Ok(()) };
        match piece {
            SnapshotPiece::Entries { position, bytes } => {
                prop_assert_eq!(position, written.len() as u64);
                prop_assert!(bytes.len() <= 46 * most);
                written.extend(bytes);
            }
            SnapshotPiece::Header { bytes, crc, .. } => {
                written[..10].copy_from_slice(&bytes);
                prop_assert_eq!(&*written, &*whole, "the pieces and the whole");
                prop_assert_eq!(crc, weir_format::crc::crc32c(whole));
                self.under_way = None;
            }
        }
        Ok(())
    }

    /// A new manager from a snapshot; all of it is replicated, since nothing else is in a snapshot.
    fn reload(&mut self, model: &Model, snapshot: &[u8]) {
        let guards = self.model.clone();
        self.model = model.clone();
        self.model.restart();
        self.model.keep_counting_guards(&guards);
        self.gate.psm.load_snapshot(snapshot, offset(self.model.end)).expect("we wrote it");
        self.under_way = None;
        self.high_watermark = self.model.end;
        self.gate.psm.on_high_watermark(offset(self.high_watermark));
    }

    fn truncate(
        &mut self,
        snapshot: prop::sample::Index,
        to: prop::sample::Index,
    ) -> Result<(), TestCaseError> {
        let (model, bytes) = snapshot.get(&self.snapshots).clone();
        let from = model.end;
        let behind: Vec<(i64, Event)> =
            self.model.history.iter().filter(|(base, _)| *base >= from).copied().collect();
        let kept = &behind[..to.index(behind.len() + 1)];
        self.reload(&model, &bytes);
        self.completed.retain(|ended| ended.last_offset.get() < from);
        for (base, event) in kept {
            let mut bytes = bytes_of(event);
            set_base(&mut bytes, *base);
            let applied = self.gate.replay(&bytes);
            self.completed.extend(completed_of(&applied));
            self.model.append(*event);
        }
        let end = self.model.end;
        self.snapshots.retain(|(model, _)| model.end <= end);
        self.high_watermark = end;
        self.gate.psm.on_high_watermark(offset(end));
        Ok(())
    }

    /// The gate and the model say the same, about everything.
    fn check_same(&self) -> Result<(), TestCaseError> {
        let (gate, model) = (&self.gate, &self.model);
        for id in IDS {
            prop_assert_eq!(known(gate, id), model.producer(id), "producer {}", id);
        }
        prop_assert_eq!(gate.psm.producer_count(), gate.ids().len());
        let open: Vec<_> = gate
            .psm
            .open_transactions()
            .map(|open| (open.first_offset.get(), open.producer_id.get()))
            .collect();
        prop_assert_eq!(open, model.open());
        prop_assert_eq!(gate.end(), model.end);
        let stable = gate.psm.last_stable_offset(offset(self.high_watermark)).get();
        prop_assert_eq!(stable, model.last_stable_offset(self.high_watermark));
        Ok(())
    }
}

fn check_history(ops: Vec<Op>, max_producers: Option<usize>) -> Result<(), TestCaseError> {
    let mut both = Both::new(max_producers);
    for (now, op) in (1_000..).zip(ops) {
        both.step(op, now)?;
    }
    prop_assert_eq!(both.completed, both.model.completed());
    Ok(())
}

fn histories() -> impl Strategy<Value = (Vec<Op>, Option<usize>)> {
    (prop::collection::vec(op(), 1..70), prop_oneof![2 => Just(None), 1 => (0..5_usize).prop_map(Some)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Barriers, restarts, truncations, expiry, the cap and verifications included.
    #[test]
    fn the_gate_says_and_knows_what_the_naive_model_does((ops, max_producers) in histories()) {
        check_history(ops, max_producers)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "minutes: cargo test --release -p weir-psm --test it -- --ignored"]
    fn the_gate_and_the_naive_model_agree_on_100_000_histories((ops, max_producers) in histories()) {
        check_history(ops, max_producers)?;
    }
}
