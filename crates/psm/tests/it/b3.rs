//! B3, R4: whatever way the same bytes come, they end in the same state.
//!
//! Question: does anything depend on where a fetch, an append, a segment or a snapshot ends?
//! `cargo test` tries some hundred logs; all 100,000 of the law are
//! `cargo test --release -p weir-psm --test it -- --ignored`.

use proptest::prelude::*;
use weir_format::BatchReader;
use weir_psm::{AppendOrigin, CompletedTransaction, PsmConfig};

use crate::history::{Batch, batch, bytes_of, event};
use crate::model::{Model, completed_of};
use crate::support::{Gate, offset, set_base};

/// What happens behind a batch.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The next one comes with it.
    GoOn,
    /// A fetch or append ends: all so far is replicated.
    Replicated,
    /// A snapshot is written.
    Snapshot,
    /// A new manager goes on from a snapshot of here.
    Restart,
    /// A new manager goes on from the snapshot that was written last, and meets what is behind it again.
    Reload,
    /// The same after the log was cut at a batch in front of this one, and grew again.
    CutAndReload(prop::sample::Index),
}

fn then() -> impl Strategy<Value = Then> {
    prop_oneof![
        6 => Just(Then::GoOn),
        3 => Just(Then::Replicated),
        3 => Just(Then::Snapshot),
        1 => Just(Then::Restart),
        1 => Just(Then::Reload),
        1 => any::<prop::sample::Index>().prop_map(Then::CutAndReload),
    ]
}

/// A log, how often everybody may be known, and two ways through it.
#[derive(Clone, Debug)]
struct Case {
    batches: Vec<Batch>,
    ways: [Vec<Then>; 2],
    max_producers: Option<usize>,
}

fn cases() -> impl Strategy<Value = Case> {
    let way = || prop::collection::vec(then(), 40);
    (
        prop::collection::vec(batch(), 1..40),
        way(),
        way(),
        prop_oneof![2 => Just(None), 1 => (0..5_usize).prop_map(Some)],
    )
        .prop_map(|(batches, one, other, max_producers)| Case {
            batches,
            ways: [one, other],
            max_producers,
        })
}

/// The log, and where in it each batch starts and the last one ends.
fn written(case: &Case) -> (Vec<u8>, Vec<usize>, Model) {
    let mut model = Model::new(case.max_producers);
    let mut log = Vec::new();
    let mut borders = vec![0];
    for (timestamp, batch) in (1_000..).zip(&case.batches) {
        let event = event(&model, *batch, timestamp);
        let mut bytes = bytes_of(&event);
        set_base(&mut bytes, model.end);
        model.append(event);
        log.extend(bytes);
        borders.push(log.len());
    }
    (log, borders, model)
}

/// What one way through the log ends in.
struct End {
    gate: Gate,
    completed: Vec<CompletedTransaction>,
}

fn walk(config: PsmConfig, log: &[u8], borders: &[usize], way: &[Then]) -> End {
    let mut gate = Gate::with(config);
    let mut completed: Vec<CompletedTransaction> = Vec::new();
    // The number of batches below each snapshot.
    let mut snapshots = vec![(0, gate.psm.snapshot(), 0_i64)];
    let batches = borders.len() - 1;
    for done in 0..batches {
        completed.extend(completed_of(&gate.replay(&log[borders[done]..borders[done + 1]])));
        let here = done + 1;
        let end = gate.psm.map_end_offset();
        let mut back_to = None;
        match way[done] {
            Then::GoOn => {}
            Then::Replicated => gate.psm.on_high_watermark(end),
            Then::Snapshot => snapshots.push((here, gate.psm.snapshot(), end.get())),
            Then::Restart => {
                let snapshot = gate.psm.snapshot();
                gate = Gate::with(config);
                gate.psm.load_snapshot(&snapshot, end).expect("we wrote it");
            }
            Then::Reload => back_to = Some(here),
            Then::CutAndReload(at) => {
                let at = at.index(here + 1);
                snapshots.retain(|(below, ..)| *below <= at);
                back_to = Some(at);
            }
        }
        if let Some(at) = back_to {
            let (below, snapshot, end) = snapshots.last().expect("the empty one is never cut");
            gate = Gate::with(config);
            gate.psm.load_snapshot(snapshot, offset(*end)).expect("we wrote it");
            completed.retain(|ended| ended.last_offset.get() < *end);
            for range in [*below..at, at..here] {
                completed.extend(completed_of(&gate.replay(&log[borders[range.start]..borders[range.end]])));
            }
        }
    }
    gate.psm.on_high_watermark(gate.psm.map_end_offset());
    End { gate, completed }
}

fn check_case(case: &Case) -> Result<(), TestCaseError> {
    let (log, borders, model) = written(case);
    let config = PsmConfig { max_producers: case.max_producers, ..PsmConfig::default() };
    let whole = walk(config, &log, &borders, &[Then::GoOn; 40]);
    prop_assert_eq!(&whole.completed, &model.completed());
    let known: Vec<i64> = model.known().into_iter().map(|(id, _)| id).collect();
    prop_assert_eq!(whole.gate.ids(), known);
    let end = offset(model.end);
    prop_assert_eq!(whole.gate.psm.map_end_offset(), end);
    for way in &case.ways {
        let other = walk(config, &log, &borders, way);
        prop_assert!(other.gate.psm.equal_state(&whole.gate.psm));
        prop_assert!(whole.gate.psm.equal_state(&other.gate.psm));
        prop_assert_eq!(other.gate.psm.snapshot(), whole.gate.psm.snapshot());
        prop_assert!(other.gate.psm.open_transactions().eq(whole.gate.psm.open_transactions()));
        prop_assert_eq!(&other.completed, &whole.completed, "the transaction index");
        prop_assert_eq!(other.gate.psm.last_stable_offset(end), whole.gate.psm.last_stable_offset(end));
        prop_assert_eq!(other.gate.psm.map_end_offset(), end);
    }
    check_twice(&log, &whole)
}

/// B5: every barrier met twice.
fn check_twice(log: &[u8], whole: &End) -> Result<(), TestCaseError> {
    let mut twice = Gate::new();
    let mut ended = Vec::new();
    for batch in BatchReader::new(log) {
        let batch = batch.expect("valid");
        let done = twice.append(batch.bytes(), AppendOrigin::Replication).applied();
        ended.extend(completed_of(&[done]).iter().map(|ended| (ended.producer_id, ended.aborted)));
        if batch.is_barrier() {
            prop_assert_eq!(twice.psm.producer_count(), 0);
            let again = twice.append(batch.bytes(), AppendOrigin::Replication).applied();
            let again = again.barrier.expect("it is one");
            prop_assert_eq!((again.producers_expired, again.transactions_aborted.len()), (0, 0));
        }
    }
    let expected: Vec<_> = whole.completed.iter().map(|ended| (ended.producer_id, ended.aborted)).collect();
    prop_assert_eq!(ended, expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn b3_every_way_through_the_same_bytes_ends_in_the_same_state(case in cases()) {
        check_case(&case)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "minutes: cargo test --release -p weir-psm --test it -- --ignored"]
    fn b3_100_000_logs_end_in_the_same_state_on_every_way(case in cases()) {
        check_case(&case)?;
    }
}
