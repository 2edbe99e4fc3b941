//! Random histories against the naive model, and the laws that hold for every history.

use proptest::prelude::*;
use weir_format::{BatchReader, ProducerEpoch, Sequence};
use weir_psm::{AppendOrigin, Applied, ProducerStateError, TransactionVersion};

use crate::model::{Event, Model, Producer, Verdict, completed_of};
use crate::support::{Data, Gate, Marker, Outcome, barrier, offset, pid, set_base};

const IDS: std::ops::Range<i64> = 0..4;

/// A step, relative to what the producer did so far, so that most steps are nearly right.
#[derive(Clone, Copy, Debug)]
enum Op {
    Data {
        id: i64,
        epoch: Rel,
        seq: Rel,
        count: i32,
        transactional: bool,
        emptied: bool,
        mirrored: bool,
    },
    Marker {
        id: i64,
        epoch: Rel,
        coordinator: Rel,
        commit: bool,
        how: How,
    },
    Barrier {
        mirrored: bool,
    },
    HighWatermark(u8),
    /// Snapshot, and go on from it.
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Rel {
    Same,
    Next,
    Back,
    Zero,
    /// Close to the wrap.
    Large,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Legacy,
    Version2,
    Mirrored,
}

fn rel() -> impl Strategy<Value = Rel> {
    prop_oneof![
        6 => Just(Rel::Next),
        3 => Just(Rel::Same),
        1 => Just(Rel::Back),
        2 => Just(Rel::Zero),
        1 => Just(Rel::Large),
    ]
}

fn epoch() -> impl Strategy<Value = Rel> {
    prop_oneof![8 => Just(Rel::Same), 2 => Just(Rel::Next), 1 => Just(Rel::Back)]
}

fn op() -> impl Strategy<Value = Op> {
    let data = (IDS, epoch(), rel(), 1..5_i32, any::<bool>(), prop::bool::weighted(0.1), any::<bool>())
        .prop_map(|(id, epoch, seq, count, transactional, emptied, mirrored)| Op::Data {
            id,
            epoch,
            seq,
            count,
            transactional,
            emptied,
            mirrored,
        });
    let how = prop_oneof![Just(How::Legacy), Just(How::Version2), Just(How::Mirrored)];
    let marker = (IDS, epoch(), epoch(), any::<bool>(), how)
        .prop_map(|(id, epoch, coordinator, commit, how)| Op::Marker { id, epoch, coordinator, commit, how });
    prop_oneof![
        12 => data,
        6 => marker,
        1 => any::<bool>().prop_map(|mirrored| Op::Barrier { mirrored }),
        3 => any::<u8>().prop_map(Op::HighWatermark),
        1 => Just(Op::Restart),
    ]
}

/// The batch that an op means, at this point of the history.
fn event(model: &Model, op: Op, timestamp: i64) -> Option<Event> {
    let step = |current: i64, rel: Rel, largest: i64| match rel {
        Rel::Same => current.max(0),
        Rel::Next => (current + 1).min(largest),
        Rel::Back => (current - 1).max(0),
        Rel::Zero => 0,
        Rel::Large => largest - 1,
    };
    match op {
        Op::Data { id, epoch, seq, count, transactional, emptied, .. } => {
            let known = model.producer(id);
            let current = known.as_ref().map_or(-1, |known| i64::from(known.epoch));
            let last = known.as_ref().and_then(|known| known.batches.last());
            let seq = match (seq, last) {
                // The same batch again.
                (Rel::Same, Some((first, ..))) => i64::from(*first),
                (Rel::Next, Some((_, i32::MAX, ..))) => 0,
                (seq, last) => step(last.map_or(-1, |last| i64::from(last.1)), seq, i64::from(i32::MAX)),
            };
            let count = match last {
                Some((first, last, ..)) if seq == i64::from(*first) && last >= first => last - first + 1,
                _ => count,
            };
            Some(Event::Data(Data {
                pid: id,
                epoch: step(current, epoch, 32_767) as i16,
                seq: seq as i32,
                count,
                transactional,
                timestamp,
                emptied,
            }))
        }
        Op::Marker { id, epoch, coordinator, commit, .. } => {
            let known = model.producer(id);
            let current = known.as_ref().map_or(-1, |known| i64::from(known.epoch));
            let current_coordinator = known.as_ref().map_or(-1, |known| i64::from(known.coordinator_epoch));
            Some(Event::Marker(Marker {
                pid: id,
                epoch: step(current, epoch, 32_767) as i16,
                coordinator_epoch: step(current_coordinator, coordinator, 100) as i32,
                commit,
                timestamp,
            }))
        }
        Op::Barrier { .. } => Some(Event::Barrier),
        Op::HighWatermark(_) | Op::Restart => None,
    }
}

fn bytes_of(event: &Event) -> Vec<u8> {
    match event {
        Event::Data(data) => data.bytes(),
        Event::Marker(marker) => marker.bytes(),
        Event::Barrier => barrier(),
    }
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
        Outcome::Refused(other) => panic!("no model has {other}"),
    }
}

/// The gate and the model say the same, about everything.
fn check_same(gate: &Gate, model: &Model, high_watermark: i64) -> Result<(), TestCaseError> {
    for id in IDS {
        prop_assert_eq!(known(gate, id), model.producer(id), "producer {}", id);
    }
    let open: Vec<_> =
        gate.psm.open_transactions().map(|open| (open.first_offset.get(), open.producer_id.get())).collect();
    prop_assert_eq!(open, model.open());
    prop_assert_eq!(gate.end(), model.end);
    let stable = gate.psm.last_stable_offset(offset(high_watermark)).get();
    prop_assert_eq!(stable, model.last_stable_offset(high_watermark));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_gate_says_and_knows_what_the_naive_model_does(ops in prop::collection::vec(op(), 1..60)) {
        let mut model = Model::default();
        let mut gate = Gate::new();
        let mut applied: Vec<Applied> = Vec::new();
        let mut high_watermark = 0;
        for (timestamp, op) in (1_000..).zip(ops) {
            let Some(event) = event(&model, op, timestamp) else {
                match op {
                    Op::HighWatermark(part) => {
                        high_watermark += (model.end - high_watermark) * i64::from(part) / 255;
                        gate.psm.on_high_watermark(offset(high_watermark));
                    }
                    _ => {
                        // What is unreplicated is not in a snapshot: a restart has all of it replicated.
                        high_watermark = model.end;
                        let snapshot = gate.psm.snapshot();
                        gate = Gate::new();
                        gate.psm.load_snapshot(&snapshot, offset(model.end)).expect("we wrote it");
                        model.restart();
                    }
                }
                check_same(&gate, &model, high_watermark)?;
                continue;
            };
            let (expected, outcome) = {
                let before = format!("{:?}", gate.psm);
                let bytes = bytes_of(&event);
                let (expected, outcome) = match (op, &event) {
                    (Op::Data { mirrored: false, .. }, Event::Data(data)) => {
                        (model.client(data), gate.append(&bytes, AppendOrigin::Client))
                    }
                    (Op::Marker { how: How::Legacy, .. }, Event::Marker(marker)) => {
                        (model.coordinator(marker, false), gate.append(&bytes, AppendOrigin::Coordinator))
                    }
                    (Op::Marker { how: How::Version2, .. }, Event::Marker(marker)) => {
                        (model.coordinator(marker, true), gate.append_marker(*marker, TransactionVersion::V2))
                    }
                    (Op::Barrier { mirrored: false }, _) => {
                        (Verdict::Append, gate.append(&bytes, AppendOrigin::Coordinator))
                    }
                    _ => (Verdict::Append, gate.append(&bytes, AppendOrigin::Replication)),
                };
                if !matches!(outcome, Outcome::Appended(_)) {
                    prop_assert_eq!(format!("{:?}", gate.psm), before, "what is not appended leaves no trace");
                }
                (expected, outcome)
            };
            prop_assert_eq!(expected, verdict(&outcome), "{:?}: {:?}", event, outcome);
            if let Outcome::Appended(done) = outcome {
                model.append(event);
                applied.push(done);
            }
            check_same(&gate, &model, high_watermark)?;
        }
        prop_assert_eq!(completed_of(&applied), model.completed());
    }

    /// B3, R4: any split of the same bytes into calls, and any snapshot with the rest replayed, give equal
    /// state, the same transactions and the same last stable offset. B5: meeting barriers twice is once.
    #[test]
    fn b3_every_way_through_the_same_bytes_ends_in_the_same_state(
        ops in prop::collection::vec(op(), 1..40),
        splits in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        taken in any::<prop::sample::Index>(),
    ) {
        let mut model = Model::default();
        let mut log = Vec::new();
        let mut borders = vec![0];
        for (timestamp, op) in (1_000..).zip(ops) {
            if let Some(event) = event(&model, op, timestamp) {
                let mut bytes = bytes_of(&event);
                set_base(&mut bytes, model.end);
                model.append(event);
                log.extend(bytes);
                borders.push(log.len());
            }
        }
        let mut whole = Gate::new();
        let completed = completed_of(&whole.replay(&log));
        prop_assert_eq!(&completed, &model.completed());
        let end = offset(model.end);
        whole.psm.on_high_watermark(end);
        let stable = whole.psm.last_stable_offset(end);

        // Split into fetches anywhere.
        let mut cuts: Vec<usize> = splits.iter().map(|split| *split.get(&borders)).collect();
        cuts.extend([0, log.len()]);
        cuts.sort_unstable();
        let mut split = Gate::new();
        let mut split_completed = Vec::new();
        for cut in cuts.windows(2) {
            split_completed.extend(completed_of(&split.replay(&log[cut[0]..cut[1]])));
        }
        split.psm.on_high_watermark(end);
        prop_assert!(split.psm.equal_state(&whole.psm));
        prop_assert_eq!(split.psm.snapshot(), whole.psm.snapshot());
        prop_assert_eq!(&split_completed, &completed);
        prop_assert_eq!(split.psm.last_stable_offset(end), stable);

        // From a snapshot taken anywhere.
        let at = *taken.get(&borders);
        let mut before = Gate::new();
        let mut loaded_completed = completed_of(&before.replay(&log[..at]));
        let mut loaded = Gate::new();
        loaded.psm.load_snapshot(&before.psm.snapshot(), before.psm.map_end_offset()).expect("we wrote it");
        prop_assert!(loaded.psm.equal_state(&before.psm));
        loaded_completed.extend(completed_of(&loaded.replay(&log[at..])));
        loaded.psm.on_high_watermark(end);
        prop_assert!(loaded.psm.equal_state(&whole.psm));
        prop_assert!(whole.psm.equal_state(&loaded.psm));
        prop_assert_eq!(loaded.psm.snapshot(), whole.psm.snapshot());
        prop_assert_eq!(&loaded_completed, &completed);
        prop_assert_eq!(loaded.psm.last_stable_offset(end), stable);

        // Every barrier met twice.
        let mut twice = Gate::new();
        let mut twice_aborted = Vec::new();
        for batch in BatchReader::new(&log) {
            let batch = batch.expect("valid");
            let done = twice.append(batch.bytes(), AppendOrigin::Replication).applied();
            twice_aborted.extend(completed_of(&[done]).iter().map(|ended| (ended.producer_id, ended.aborted)));
            if batch.is_barrier() {
                let again = twice.append(batch.bytes(), AppendOrigin::Replication).applied();
                let again = again.barrier.expect("it is one");
                prop_assert_eq!((again.producers_expired, again.transactions_aborted.len()), (0, 0));
            }
        }
        prop_assert_eq!(twice.psm.producer_count(), whole.psm.producer_count());
        let expected: Vec<_> = completed.iter().map(|ended| (ended.producer_id, ended.aborted)).collect();
        prop_assert_eq!(twice_aborted, expected);
    }

    /// R7: no bytes panic, and what is taken for a snapshot is written again as the same entries.
    #[test]
    fn any_snapshot_bytes_are_read_or_refused(
        count in prop_oneof![0..4_i32, any::<i32>()],
        body in prop::collection::vec(any::<u8>(), 0..200),
        trim in any::<bool>(),
        end in 0..i64::MAX,
    ) {
        let mut bytes = vec![0, 1, 0, 0, 0, 0];
        bytes.extend(count.to_be_bytes());
        bytes.extend(&body);
        if trim {
            bytes.truncate(10 + body.len() / 46 * 46);
            bytes[6..10].copy_from_slice(&i32::try_from(body.len() / 46).expect("few").to_be_bytes());
        }
        let crc = weir_format::crc::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
        let mut gate = Gate::new();
        if gate.psm.load_snapshot(&bytes, offset(end)).is_ok() {
            let mut again = Gate::new();
            again.psm.load_snapshot(&gate.psm.snapshot(), offset(end)).expect("we wrote it");
            prop_assert!(again.psm.equal_state(&gate.psm));
        } else {
            prop_assert_eq!(gate.psm.producer_count(), 0);
        }
    }
}
