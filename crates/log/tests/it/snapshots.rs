//! Producer snapshots that are written beside the appends.

use bytes::BytesMut;
use weir_log::{AppendParams, UnifiedLog};
use weir_segment::io::sim::CrashPolicy;

use super::retention::take;
use super::support::*;

fn client() -> AppendParams {
    AppendParams { may_start_transaction: true, ..AppendParams::client(epoch(0), NOW) }
}

/// Without finishing the snapshot that a roll begins.
fn append(open: &mut Open, batch: BytesMut) {
    open.log.append(&mut *open.io, batch, &client()).unwrap();
}

fn snapshots(log: &UnifiedLog) -> Vec<i64> {
    log.partition_file().snapshots().map(|(at, _)| at.get()).collect()
}

fn is_tmp(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|kind| kind == "tmp")
}

/// N-SNAP-3, N-PID-8: a snapshot of many producers holds what was known where its segment begins, whatever is appended
/// while it is written.
#[test]
fn n_snap_3_appends_go_on_while_a_snapshot_is_written() {
    let bench = Bench::new(5).segment_bytes(600_000);
    let mut open = bench.open_unclean();
    for id in 0..5_000 {
        append(&mut open, data(Some((2 * id, 0, 0)), false, 1, 20));
    }
    let before = open.log.producer_state().snapshot();
    let mut sequence = 1;
    while !open.log.is_writing_snapshot() {
        append(&mut open, data(None, false, 1, 9_000));
    }
    let base = open.log.segments().last().unwrap().base_offset.get();
    let (mut steps, mut appended) = (0, 0);
    while open.log.is_writing_snapshot() {
        assert!(snapshots(&open.log).is_empty(), "not before it is durable");
        open.log.snapshot_step(&mut *open.io);
        steps += 1;
        // Known ones before and behind what is encoded, and new ones among them.
        for id in [0, 2_000, 9_998] {
            append(&mut open, data(Some((id, 0, sequence)), false, 1, 5));
        }
        append(&mut open, data(Some((2 * i64::from(sequence) + 1, 0, 0)), false, 1, 5));
        (sequence, appended) = (sequence + 1, appended + 4);
        take(&mut open);
        assert!(steps < 200);
    }
    assert!(steps > 6 && appended > 20, "{steps} steps");
    let path = bench.path(&format!("{base:020}.snapshot"));
    assert_eq!(bench.disk.read_file(&path), Some(before.clone()), "the state where the segment begins");
    assert_eq!(bench.disk.durable_file(&path), Some(before));
    assert_eq!(snapshots(&open.log), [base]);
    assert_eq!(open.log.stats().snapshots_written, 1);
    open.sync();
    let state = open.producers();
    drop(open);
    let reopened = bench.open_unclean();
    assert_equal_state(&reopened.producers(), &state, "from the snapshot and the bytes behind it");
}

/// A stop closes logs by threads with a disk access of their own: what the first one has open is not theirs.
#[test]
fn a_snapshot_under_way_is_ended_before_the_log_goes_on_with_another_disk_access() {
    for steps in 0..14 {
        let bench = Bench::new(17).segment_bytes(700);
        let mut open = bench.open_unclean();
        let mut sequence = 0;
        while !open.log.is_writing_snapshot() {
            append(&mut open, data(Some((5, 0, sequence)), false, 1, 100));
            sequence += 1;
        }
        open.sync();
        for step in 0..steps {
            open.log.snapshot_step(&mut *open.io);
            // The last one is left in flight.
            if step + 1 < steps {
                take(&mut open);
            }
        }
        assert!(open.log.detach(&mut *open.io).unwrap());
        assert!(!open.log.is_writing_snapshot());
        let state = open.producers();
        let Open { log, io, .. } = open;
        let mut other = bench.disk.io();
        log.close(&mut other).unwrap();
        drop(io);
        assert!(!bench.disk.files().iter().any(|path| is_tmp(path)), "{steps} steps");
        let reopened = bench.open_clean();
        assert_equal_state(&reopened.producers(), &state, &format!("{steps} steps"));
        assert_eq!(snapshots(&reopened.log).last(), Some(&i64::from(sequence)), "{steps} steps");
    }
}

/// Five segments; at each roll a snapshot, of which a step is done behind every second append. A barrier, an open
/// transaction and a cut among them.
fn live(open: &mut Open) {
    let step = |open: &mut Open, batch: BytesMut| {
        if open.log.append(&mut *open.io, batch, &client()).is_err() {
            return;
        }
        open.log.flush(&mut *open.io);
        open.log.sync_begin(&mut *open.io);
        for _ in 0..3 {
            open.log.snapshot_step(&mut *open.io);
            let mut done = Vec::new();
            if open.io.reap(weir_segment::io::Wait::Poll, &mut done).is_ok() {
                for done in done {
                    let _ = open.log.on_done(done);
                }
            }
        }
    };
    for round in 0..4 {
        for id in 0..3 {
            step(open, data(Some((id, 0, round)), false, 1, 60));
        }
        step(open, data(Some((7, 0, round)), true, 1, 60));
        step(open, data(None, false, 1, 200));
        if round == 1 {
            let _ = open.log.append(&mut *open.io, barrier(), &AppendParams::coordinator(epoch(0), NOW));
        }
    }
    let end = open.log.log_end_offset().get();
    let _ = open.log.truncate_to(&mut *open.io, offset((end - 3).max(0)));
    for id in 20..28 {
        step(open, data(Some((id, 0, 0)), false, 1, 90));
    }
}

/// A power cut at every operation while snapshots are written between appends: what is found is what the bytes say.
#[test]
fn a_crash_beside_a_snapshot_costs_a_replay_and_nothing_else() {
    let workload = |crash_at: Option<u64>| {
        let bench = Bench::new(11).segment_bytes(700);
        bench.disk.reorder(true);
        let mut open = bench.open_unclean();
        if let Some(op) = crash_at {
            bench.disk.crash_at(op);
        }
        live(&mut open);
        (bench, open)
    };
    let (whole, open) = workload(None);
    assert!(open.log.stats().snapshots_written >= 2, "{:?}", open.log.stats());
    drop(open);
    let operations = whole.disk.op_count();
    assert!(operations > 150, "{operations}");
    let (mut tried, mut from_snapshot) = (0, 0);
    for op in 1..=operations {
        for policy in CrashPolicy::ALL {
            let (bench, open) = workload(Some(op));
            drop(open);
            bench.disk.crash(policy);
            let Ok(mut found) = bench.try_open(bench.options()) else { continue };
            let bare = bench.fork();
            bare.remove_auxiliary_files();
            let mut replayed = bare.open_unclean();
            let what = format!("crash at {op} of {operations}, {policy:?}");
            assert_equal_state(&found.producers(), &replayed.producers(), &what);
            let (mut found_facts, replayed_facts) = (found.facts(), replayed.facts());
            // Epochs without records are in the checkpoint alone, and here there are none.
            found_facts.epochs.truncate(replayed_facts.epochs.len());
            assert_eq!(found_facts, replayed_facts, "{what}");
            tried += 1;
            from_snapshot += usize::from(!snapshots(&found.log).is_empty());
        }
    }
    assert!(tried > 2_000 && from_snapshot > 500, "{tried} tried, {from_snapshot} with a snapshot");
}

/// A log whose roll has begun a snapshot at offset 3, moved on by so many steps.
fn under_way(bench: &Bench, steps: usize) -> Open {
    let mut open = bench.open_unclean();
    for id in 0..3 {
        append(&mut open, data(Some((id, 0, 0)), false, 1, 150));
    }
    append(&mut open, data(Some((3, 0, 0)), false, 1, 150));
    assert_eq!(open.log.segments().last().unwrap().base_offset, offset(3));
    assert!(open.log.is_writing_snapshot());
    for _ in 0..steps {
        open.log.snapshot_step(&mut *open.io);
        take(&mut open);
    }
    open.settle();
    open
}

/// What was in flight for a snapshot that was dropped comes home, and nobody asks whose it is.
#[test]
fn a_dropped_snapshots_completion_is_taken() {
    for write_in_flight in [true, false] {
        let bench = Bench::new(1).segment_bytes(700);
        let mut open = under_way(&bench, 0);
        if !write_in_flight {
            // The header's write is over, its sync is not.
            for _ in 0..2 {
                open.log.snapshot_step(&mut *open.io);
                open.reap();
            }
        }
        open.log.snapshot_step(&mut *open.io);
        assert_eq!(open.io.in_flight(), 1);
        open.truncate(1);
        let mut done = Vec::new();
        open.io.reap(weir_segment::io::Wait::Poll, &mut done).unwrap();
        assert_eq!(done.len(), 1);
        for done in done {
            assert!(open.log.on_done(done).is_ok());
        }
        append(&mut open, data(Some((9, 0, 0)), false, 1, 20));
        open.sync();
    }
}

/// How many steps make one whole: more than any test does.
const STEPS: usize = 14;

/// B7: one of before the barrier may be finished or dropped; none holds anybody at or behind it.
#[test]
fn b7_a_barrier_beside_a_snapshot_leaves_none_behind_it_with_entries_of_before() {
    let (mut dropped, mut written) = (0, 0);
    for steps in 0..STEPS {
        let bench = Bench::new(1).segment_bytes(700);
        let mut open = under_way(&bench, steps);
        open.log.append(&mut *open.io, barrier(), &AppendParams::coordinator(epoch(0), NOW)).unwrap();
        open.log.finish_snapshot(&mut *open.io);
        match &snapshots(&open.log)[..] {
            [] => dropped += 1,
            [3] => written += 1,
            other => panic!("{other:?}"),
        }
        assert!(!bench.disk.files().iter().any(|path| is_tmp(path)), "{steps} steps");
        assert_eq!(open.log.producers().count(), 0);
        // The next roll is one like any other.
        append(&mut open, data(Some((9, 0, 0)), false, 1, 200));
        append(&mut open, data(Some((9, 0, 1)), false, 1, 300));
        open.log.finish_snapshot(&mut *open.io);
        let newest = snapshots(&open.log).last().copied().unwrap();
        assert!(newest > 4, "{newest}");
        let bytes = bench.disk.read_file(&bench.path(&format!("{newest:020}.snapshot"))).unwrap();
        assert_eq!(weir_psm::snapshot::decode(&bytes).unwrap().len(), 1, "{steps} steps");
        open.sync();
        let state = open.producers();
        drop(open);
        assert_equal_state(&bench.open_unclean().producers(), &state, "reopened");
    }
    assert!(dropped > 0 && written > 0, "{dropped} dropped, {written} written");
}

/// B6: what is cut away takes along the snapshots above it, also one that is being written or named.
#[test]
fn b6_a_cut_beside_a_snapshot_leaves_none_above_it() {
    for steps in 0..STEPS {
        for (to, kept) in [(2, false), (3, true), (0, false)] {
            let bench = Bench::new(1).segment_bytes(700);
            let mut open = under_way(&bench, steps);
            open.truncate(to);
            let named = snapshots(&open.log);
            assert!(named.is_empty() || (kept && named == [3]), "{steps} steps, cut to {to}: {named:?}");
            assert!(!open.log.is_writing_snapshot());
            let ids: Vec<i64> = open.log.producers().map(|(id, _)| id.get()).collect();
            assert_eq!(ids, (0..to).collect::<Vec<_>>());
            // Other producers at the same offsets, and then as after a crash.
            for id in 0..3 {
                append(&mut open, data(Some((70 + id, 0, 0)), false, 1, 250));
            }
            open.sync();
            let state = open.producers();
            drop(open);
            assert_equal_state(&bench.open_unclean().producers(), &state, "reopened");
            assert!(!bench.disk.files().iter().any(|path| is_tmp(path)), "{steps} steps");
        }
    }
}

#[test]
fn a_clean_stop_beside_a_snapshot_leaves_the_one_of_its_end() {
    for steps in 0..STEPS {
        let bench = Bench::new(1).segment_bytes(700);
        let open = under_way(&bench, steps);
        let state = open.producers();
        open.close();
        let mut open = bench.open_clean();
        assert_eq!(snapshots(&open.log).last(), Some(&4));
        assert_equal_state(&open.producers(), &state, "reopened");
        assert!(!bench.disk.files().iter().any(|path| is_tmp(path)), "{steps} steps");
        append(&mut open, data(Some((3, 0, 1)), false, 1, 10));
    }
}

/// A disk that refuses a snapshot's write or sync keeps nobody from appending.
#[test]
fn a_snapshot_that_cannot_be_written_is_done_without() {
    for (write, nth) in [(true, 1), (true, 2), (false, 1)] {
        let bench = Bench::new(1).segment_bytes(700);
        let mut open = under_way(&bench, 0);
        if write {
            bench.disk.fail_write(nth);
        } else {
            bench.disk.fail_sync(nth);
        }
        open.log.finish_snapshot(&mut *open.io);
        assert_eq!((snapshots(&open.log), open.log.is_offline()), (vec![], false));
        assert!(!bench.disk.files().iter().any(|path| is_tmp(path)));
        for id in 10..13 {
            append(&mut open, data(Some((id, 0, 0)), false, 1, 200));
        }
        open.log.finish_snapshot(&mut *open.io);
        open.sync();
        assert_eq!(snapshots(&open.log).len(), 1, "the next one is written");
        let state = open.producers();
        drop(open);
        assert_equal_state(&bench.open_unclean().producers(), &state, "reopened");
    }
}

/// D1, and a queue that is full: a snapshot's bytes are whole all the same.
#[test]
fn short_writes_and_a_full_queue_only_take_longer() {
    for (short, depth) in [(true, None), (false, Some(1)), (true, Some(1))] {
        let bench = Bench::new(7).segment_bytes(700);
        let mut open = bench.open_unclean();
        for id in 0..3 {
            append(&mut open, data(Some((id, 0, 0)), false, 1, 150));
        }
        let before = open.log.producer_state().snapshot();
        append(&mut open, data(Some((3, 0, 0)), false, 1, 150));
        bench.disk.short(short);
        bench.disk.queue_depth(depth);
        open.log.flush(&mut *open.io);
        open.log.finish_snapshot(&mut *open.io);
        let path = bench.path("00000000000000000003.snapshot");
        assert_eq!(bench.disk.durable_file(&path), Some(before));
        assert_eq!(snapshots(&open.log), [3]);
    }
}
