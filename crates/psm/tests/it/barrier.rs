//! The barrier's laws, as far as this layer can prove them.

use weir_format::{BatchBuilder, ControlRecordType, TimestampMs};
use weir_psm::{AppendOrigin, Applied, BarrierApplied, CompletedTransaction};

use crate::support::{Gate, Outcome, abort, barrier, commit, control, data, offset, pid, set_producer};

fn aborted(id: i64, first: i64, last: i64, stable: i64) -> CompletedTransaction {
    CompletedTransaction {
        producer_id: pid(id),
        first_offset: offset(first),
        last_offset: offset(last),
        aborted: true,
        last_stable_offset: offset(stable),
    }
}

/// Three transactions open, not in the order of their ids, and one that is not.
fn with_open_transactions() -> Gate {
    let mut gate = Gate::new();
    gate.mirrored(data(9, 0, 0, 2).transactional());
    gate.mirrored(data(1, 4, 0, 3));
    gate.mirrored(data(3, 0, 0, 1).transactional());
    gate.mirrored(data(9, 0, 2, 1).transactional());
    gate.mirrored(data(2, 0, 0, 1).transactional());
    gate
}

#[test]
fn b2_every_entry_is_gone_wherever_a_barrier_is_met() {
    for origin in [AppendOrigin::Coordinator, AppendOrigin::Replication] {
        let mut gate = Gate::new();
        gate.mirrored(data(5, 0, 0, 10));
        gate.mirrored_marker(commit(6, 3, 1));
        let applied = gate.append(&barrier(), origin).applied();
        assert_eq!(
            applied.barrier,
            Some(BarrierApplied { offset: offset(11), producers_expired: 2, transactions_aborted: vec![] })
        );
        assert_eq!((gate.psm.producer_count(), gate.end()), (0, 12));
        assert_eq!(gate.psm.entry(pid(5)), None);
        assert_eq!(gate.psm.last_stable_offset(offset(12)), offset(12));
    }
}

#[test]
fn b4_a_transaction_that_is_open_at_a_barrier_is_aborted_there() {
    let mut gate = with_open_transactions();
    let applied = gate.barrier().barrier.expect("it is one");
    assert_eq!(applied.producers_expired, 4);
    assert_eq!(
        applied.transactions_aborted,
        [aborted(9, 0, 8, 5), aborted(3, 5, 8, 7), aborted(2, 7, 8, 9)],
        "ascending by first offset, each naming the next that is open"
    );
    // The last stable offset moves on when the barrier is replicated, and not before.
    assert_eq!(gate.psm.open_transactions().count(), 0);
    gate.psm.on_high_watermark(offset(8));
    assert_eq!(gate.psm.last_stable_offset(offset(8)), offset(0));
    gate.psm.on_high_watermark(offset(9));
    assert_eq!(gate.psm.last_stable_offset(offset(9)), offset(9));
}

/// As if an ABORT stood at the barrier's offset for each: the same transactions, apart from where they end.
#[test]
fn b4_a_barrier_ends_transactions_as_their_aborts_would() {
    let mut at_barrier = with_open_transactions();
    let mut by_markers = at_barrier.clone();
    let ended = at_barrier.barrier().barrier.expect("it is one").transactions_aborted;
    let open: Vec<_> = by_markers.psm.open_transactions().collect();
    let completed: Vec<_> = open
        .iter()
        .map(|open| {
            by_markers.mirrored_marker(abort(open.producer_id.get(), 0, -1)).completed.expect("it was open")
        })
        .collect();
    let facts = |list: &[CompletedTransaction]| {
        list.iter().map(|ended| (ended.producer_id, ended.first_offset, ended.aborted)).collect::<Vec<_>>()
    };
    assert_eq!(facts(&ended), facts(&completed));
    assert_eq!(ended[0].last_stable_offset, completed[0].last_stable_offset);
    assert_eq!(ended[1].last_stable_offset, completed[1].last_stable_offset);
}

/// LSO-2, LSO-17: after the stop's ABORTs nothing is open, and the barrier has nothing to report.
#[test]
fn b4_a_stop_leaves_nothing_for_the_barrier_to_abort() {
    let mut gate = with_open_transactions();
    let open: Vec<_> = gate.psm.open_transactions().collect();
    assert!(open.is_sorted_by_key(|transaction| transaction.first_offset));
    for transaction in open {
        let marker = abort(
            transaction.producer_id.get(),
            transaction.producer_epoch.map_or(-1, |epoch| epoch.get()),
            transaction.coordinator_epoch.unwrap_or(-1),
        );
        let applied = gate.append(&marker.bytes(), AppendOrigin::Coordinator).applied();
        assert_eq!(applied.completed.map(|ended| ended.first_offset), Some(transaction.first_offset));
    }
    let applied = gate.barrier().barrier.expect("it is one");
    assert_eq!(applied.transactions_aborted, []);
    gate.psm.on_high_watermark(offset(gate.end()));
    assert_eq!(gate.psm.last_stable_offset(offset(gate.end())).get(), gate.end());
}

/// 2.2, 13.4 of the notes on KIP-1279: upstream the last stable offset is stuck for good here.
#[test]
fn b4_a_later_marker_changes_no_transaction_and_sets_the_epochs() {
    let mut gate = with_open_transactions();
    gate.barrier();
    let applied = gate.mirrored_marker(commit(9, 2, 6));
    assert_eq!((applied.completed, applied.tolerated), (None, vec![]));
    let entry = gate.psm.entry(pid(9)).expect("the marker made one");
    assert_eq!(entry.producer_epoch().map(|epoch| epoch.get()), Some(2));
    assert_eq!((entry.coordinator_epoch(), entry.batches().len()), (Some(6), 0));
    // Later data of that id starts a transaction of its own.
    gate.mirrored(data(9, 2, 0, 1).transactional());
    let open: Vec<_> = gate.psm.open_transactions().map(|open| open.first_offset.get()).collect();
    assert_eq!(open, [10]);
}

/// What was completed before, and is not replicated yet, still holds the last stable offset.
#[test]
fn unreplicated_transactions_survive_a_barrier() {
    let mut gate = Gate::new();
    gate.mirrored(data(5, 0, 0, 2).transactional());
    gate.mirrored_marker(commit(5, 0, 0));
    gate.barrier();
    gate.psm.on_high_watermark(offset(2));
    assert_eq!(gate.psm.last_stable_offset(offset(2)), offset(0));
    gate.psm.on_high_watermark(offset(3));
    assert_eq!(gate.psm.last_stable_offset(offset(3)), offset(3));
}

#[test]
fn b5_meeting_a_barrier_twice_equals_meeting_it_once() {
    let mut once = with_open_transactions();
    once.barrier();
    let mut twice = once.clone();
    let again = twice.barrier();
    let nothing = BarrierApplied { offset: offset(9), producers_expired: 0, transactions_aborted: vec![] };
    assert_eq!(again, Applied { barrier: Some(nothing), ..Applied::default() });
    assert!(once.psm.equal_state(&twice.psm));
    for gate in [&mut once, &mut twice] {
        gate.mirrored(data(3, 0, 7, 2).transactional());
    }
    let states = [&once, &twice].map(|gate| gate.psm.entry(pid(3)).expect("known").last_sequence());
    assert_eq!(states[0], states[1]);
}

/// Case 5 of the notes on KIP-1279: upstream puts producer 5 back after the walk.
#[test]
fn b3_a_barrier_in_the_middle_of_a_fetch_forgets_what_stands_before_it() {
    let mut log = Vec::new();
    let parts: [(i64, Vec<u8>); 4] = [
        (0, data(5, 0, 0, 3).transactional().bytes()),
        (3, abort(5, 0, 0).bytes()),
        (4, barrier()),
        (5, data(5, 0, 0, 2).bytes()),
    ];
    for (base, mut bytes) in parts {
        crate::support::set_base(&mut bytes, base);
        log.extend(bytes);
    }
    let mut gate = Gate::new();
    gate.replay(&log);
    assert_eq!(gate.psm.producer_count(), 1);
    let batches = gate.psm.entry(pid(5)).expect("known").batches().len();
    assert_eq!((gate.producer(5), batches), (Some((0, 1, 6)), 1));
}

/// SNAP-7: a snapshot from before the barrier and the barrier in the tail.
#[test]
fn b6_what_was_known_below_it_is_in_the_snapshot_from_below_it() {
    let mut gate = with_open_transactions();
    let below = gate.psm.clone();
    let snapshot = gate.psm.snapshot();
    gate.barrier();
    gate.mirrored(data(1, 0, 0, 1));
    let above = gate.psm.clone();
    // Truncated below it: loading what was taken there restores it.
    gate.psm.load_snapshot(&snapshot, offset(8)).expect("we wrote it");
    assert!(gate.psm.equal_state(&below));
    assert!(gate.psm.open_transactions().eq(below.open_transactions()));
    // Replayed again: the barrier forgets again.
    gate.barrier();
    gate.mirrored(data(1, 0, 0, 1));
    assert!(gate.psm.equal_state(&above));
}

#[test]
fn b7_no_snapshot_behind_a_barrier_holds_an_entry_from_before_it() {
    let mut gate = with_open_transactions();
    gate.barrier();
    assert_eq!(weir_psm::snapshot::decode(&gate.psm.snapshot()), Ok(vec![]));
}

/// B9: control bit and key alone. Every value, a producer id, other key versions: still a barrier.
#[test]
fn b9_the_key_alone_makes_a_barrier() {
    let seven = ControlRecordType::MirrorPidReset;
    let mut long_key = BatchBuilder::new()
        .control()
        .record(TimestampMs::new(1), Some(&[0, 3, 0, 7, 99, 99]), None)
        .build()
        .expect("a batch")
        .to_vec();
    set_producer(&mut long_key, -1, -1, -1);
    let yes = [
        control(-1, -1, seven, &[], 1),
        control(-1, -1, seven, &[0, 0, 0], 1),
        control(-1, -1, seven, &[255; 100], 1),
        control(5, 0, seven, &[0, 0, 0], 1),
        control(-9, 0, seven, &[0, 0, 0], 1),
        long_key,
    ];
    for bytes in yes {
        let mut gate = with_open_transactions();
        let applied = gate.append(&bytes, AppendOrigin::Replication).applied();
        let barrier = applied.barrier.expect("it is one");
        assert_eq!((barrier.producers_expired, barrier.transactions_aborted.len()), (4, 3));
        assert_eq!(gate.psm.producer_count(), 0, "its own producer id is ignored");
    }

    let with_key = |key: Option<&[u8]>| {
        BatchBuilder::new()
            .control()
            .record(TimestampMs::new(1), key, None)
            .build()
            .expect("a batch")
            .to_vec()
    };
    let no = [
        with_key(None),
        with_key(Some(&[])),
        with_key(Some(&[0, 0, 7])),
        with_key(Some(&[0, 0, 0, 8])),
        BatchBuilder::new().control().build().expect("a batch").to_vec(),
        BatchBuilder::new()
            .record(TimestampMs::new(1), Some(&[0, 0, 0, 7]), None)
            .build()
            .expect("a batch")
            .to_vec(),
    ];
    for bytes in no {
        let mut gate = with_open_transactions();
        let before = gate.psm.clone();
        let applied = gate.append(&bytes, AppendOrigin::Replication).applied();
        assert_eq!(applied, Applied::default(), "no barrier, and no error");
        assert!(gate.psm.equal_state(&before));
    }
}

/// B10: the state changes when the bytes are in the log, and a check that led to nothing is nothing.
#[test]
fn b10_a_barrier_that_was_not_appended_leaves_no_trace() {
    let gate = with_open_transactions();
    let before = format!("{:?}", gate.psm);
    let bytes = barrier();
    let batch = weir_format::RecordBatch::parse(&bytes).expect("a batch");
    let checked = gate.psm.check(&batch, offset(8), AppendOrigin::Coordinator).expect("taken");
    let weir_psm::Checked::Append(transition) = checked else { panic!("no duplicate") };
    assert!(transition.is_barrier());
    assert_eq!((transition.base_offset(), transition.next_offset()), (offset(8), offset(9)));
    drop(transition);
    assert_eq!(format!("{:?}", gate.psm), before);
}

/// PID-5: a chain A, B, C. What B's local producer wrote behind its barrier is all that C knows.
#[test]
fn a_chained_mirror_knows_what_its_source_knows() {
    let mut b = Gate::new();
    b.mirrored(data(5, 0, 0, 3));
    b.barrier();
    assert!(matches!(b.client(data(5, 0, 0, 3)), Outcome::Appended(_)));

    let mut c = Gate::new();
    c.mirrored(data(5, 0, 0, 3));
    c.append(&barrier(), AppendOrigin::Replication).applied();
    c.mirrored(data(5, 0, 0, 3));
    assert_eq!(c.producer(5), Some((0, 2, 6)));
    assert!(c.psm.equal_state(&b.psm));
    assert_eq!(c.barrier().barrier.map(|barrier| barrier.producers_expired), Some(1));
}
