//! Failures that others met in production, each as a test of one log; the id of the case is in the name. Those that
//! concern producer state alone are in `weir-psm`, torn tails of every kind in `weir-recovery`.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::BytesMut;
use weir_format::{
    AnyBatch, AnyBatchReader, BatchBuilder, BatchReader, ProducerEpoch, ProducerId, RecordBatch, Sequence,
    TimestampMs, TimestampType,
};
use weir_log::{
    AppendError, AppendParams, DeletionScope, HotTail, Isolation, OffsetSpec, OpenOptions, TailMemory,
};
use weir_psm::ProducerStateError;
use weir_recovery::{CutKind, ProducerStateSource};
use weir_segment::TimeIndex;
use weir_segment::io::sim::{CrashPolicy, SimIo};
use weir_segment::io::{Advice, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open as How, Ticket, Wait};

use super::edges::delivered;
use super::support::*;

const SEGMENT: &str = "00000000000000000000.log";

fn client() -> AppendParams {
    AppendParams { may_start_transaction: true, ..AppendParams::client(epoch(0), NOW) }
}

fn bases(bytes: &[u8]) -> Vec<i64> {
    BatchReader::new(bytes).map(|batch| batch.unwrap().base_offset().get()).collect()
}

/// What a `read_committed` consumer is given from the start on, and where it ends.
fn consume(open: &mut Open, max_bytes: usize) -> (Vec<i64>, i64) {
    let mut at = open.log.view().log_start_offset;
    let mut got = Vec::new();
    loop {
        let read = open.log.read(&mut *open.io, at, max_bytes, Isolation::Committed, true).unwrap();
        let Some(last) = BatchReader::new(&read.bytes).last() else { return (got, at.get()) };
        got.extend(delivered(&read).into_iter().map(|base| base.get()));
        at = last.unwrap().next_offset();
    }
}

// Producer ids.

#[test]
fn pid_2_a_barrier_that_could_not_be_written_is_neither_shown_nor_acknowledged() {
    for room in [0, 30] {
        let bench = Bench::new(1);
        let mut open = bench.open_unclean();
        open.replicate(placed(data(Some((5, 0, 0)), false, 10, 8), 0, 0));
        open.sync();
        let producers = open.producers();
        bench.disk.full_after(Some(room));
        let appended = open.append(barrier(), &AppendParams::coordinator(epoch(1), NOW)).unwrap();
        open.settle();
        assert!(open.log.is_offline(), "and whoever waits for the barrier waits on");
        assert!(open.log.view().high_watermark < appended.durable_at);
        assert!(open.log.written_end_offset() < appended.durable_at);
        assert!(matches!(open.append(plain(1, 1), &client()), Err(AppendError::Offline)));
        drop(open);
        // With room again the stop goes on where it was: no barrier is there, and one is written.
        bench.disk.full_after(None);
        let mut open = bench.open_unclean();
        assert_eq!(open.log.partition_file().barriers().count(), 0);
        assert_equal_state(&open.producers(), &producers, "as before the barrier");
        assert_eq!(open.coordinate(barrier()).base_offset, offset(10));
        open.sync();
        assert_eq!(open.log.view().high_watermark, offset(11));
    }
}

#[test]
fn pid_4_a_producer_that_outlives_the_switch_and_a_newcomer_both_land() {
    let mut open = Bench::new(1).open_unclean();
    open.replicate(placed(data(Some((5, 0, 998)), false, 2, 8), 0, 0));
    open.coordinate(barrier());
    // Its retry of what was mirrored is taken again: duplicates are not found across a switch.
    let retried = open.produce(data(Some((5, 0, 998)), false, 2, 8));
    assert_eq!((retried.base_offset, retried.duplicate), (offset(3), false));
    assert_eq!(open.produce(data(Some((5, 0, 1000)), false, 1, 8)).base_offset, offset(5));
    // The newcomer has an id of our own range.
    let ours = (7_i64 << 32) + 1;
    assert_eq!(open.produce(data(Some((ours, 0, 0)), false, 1, 8)).base_offset, offset(6));
    assert_eq!(open.produce(data(Some((5, 0, 1001)), false, 1, 8)).base_offset, offset(7));
    open.sync();
    assert_eq!(open.log.view().high_watermark, offset(8));
}

#[test]
fn pid_6_a_negative_producer_id_is_kept_as_it_came_and_is_no_producer() {
    let mut batch = placed(data(Some((7, 0, 0)), true, 1, 8), 0, 0);
    batch[43..51].copy_from_slice(&(-7_i64).to_be_bytes());
    let crc = weir_format::crc::batch_crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    assert!(open.append(batch.clone(), &client()).is_err(), "a client may not");
    assert_eq!(open.replicate(batch.clone()).tolerated_count, 1, "what a warning and a metric count");
    open.sync();
    for bare in [false, true] {
        assert_eq!((open.log.producers().count(), open.log.open_transactions().len()), (0, 0));
        assert_eq!(open.log.view().last_stable_offset, offset(1), "it holds back nobody");
        assert_eq!(open.read_all(Isolation::Committed), batch[..]);
        drop(open);
        if bare {
            bench.remove_auxiliary_files();
        }
        open = bench.open_unclean();
        assert_eq!(open.report.tolerated_count, 1);
    }
}

#[test]
fn pid_9_a_restart_between_two_batches_of_a_producer_costs_neither_a_duplicate_nor_an_error() {
    for how in ["clean", "killed", "without snapshots"] {
        let bench = Bench::new(1).segment_bytes(400);
        let mut open = bench.open_unclean();
        let batch = |sequence| data(Some((1, 0, sequence)), false, 1, 150);
        for sequence in 0..4 {
            open.produce(batch(sequence));
            open.sync();
        }
        if how == "clean" {
            open.close();
            open = bench.open_clean();
        } else {
            drop(open);
            if how == "without snapshots" {
                bench.remove_auxiliary_files();
            }
            open = bench.open_unclean();
        }
        // The answer to the last one was lost: it comes again, and the next one behind it.
        let again = open.produce(batch(3));
        assert_eq!((again.base_offset, again.duplicate), (offset(3), true), "{how}");
        let next = open.produce(batch(4));
        assert_eq!((next.base_offset, next.duplicate), (offset(4), false), "{how}");
        let Err(AppendError::ProducerState { source }) = open.append(batch(6), &client()) else { panic!() };
        assert!(matches!(source, ProducerStateError::OutOfOrderSequence { .. }), "{how}");
    }
}

#[test]
fn pid_12_sequences_wrap_to_0_and_a_restart_remembers_where() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(data(Some((9, 0, i32::MAX - 1)), false, 2, 5));
    open.produce(data(Some((9, 0, 0)), false, 3, 5));
    open.replicate(placed(data(Some((8, 0, i32::MAX - 2)), false, 5, 5), 5, 0));
    for _ in 0..2 {
        let last = |id: i64, open: &Open| {
            let mut producers = open.log.producers();
            producers.find(|(known, _)| known.get() == id).unwrap().1.last_sequence().unwrap().get()
        };
        assert_eq!((last(9, &open), last(8, &open)), (2, 1));
        open.close();
        open = bench.open_clean();
    }
    assert_eq!(open.produce(data(Some((8, 0, 2)), false, 1, 5)).base_offset, offset(10));
}

#[test]
fn pid_15_who_is_idle_is_forgotten_by_the_wall_clock_before_a_restart_as_after_it() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), false, 1, 5));
    open.produce(data(Some((2, 0, 0)), true, 1, 5));
    open.sync();
    let day = 24 * 60 * 60 * 1_000;
    for restarted in [false, true] {
        let mut open = if restarted { bench.fork().open_unclean() } else { bench.fork().open_clean() };
        assert_eq!(open.log.expire_producers(TimestampMs::new(NOW.get() + day - 1)), 0);
        assert_eq!(open.log.expire_producers(TimestampMs::new(NOW.get() + day)), 1);
        let left: Vec<i64> = open.log.producers().map(|(id, _)| id.get()).collect();
        assert_eq!(left, [2], "an open transaction keeps its producer");
    }
}

#[test]
fn n_pid_1_a_producer_that_was_aborted_at_a_stop_is_told_that_its_epoch_is_over() {
    let mut open = Bench::new(1).open_unclean();
    open.replicate(placed(data(Some((5, 0, 0)), true, 1, 8), 0, 0));
    open.coordinate(marker(false, 5, 0, -1));
    open.coordinate(barrier());
    // No coordinator here has its transaction open. The node answers this with INVALID_PRODUCER_EPOCH.
    let late = data(Some((5, 0, 1)), true, 1, 8);
    let refused = open.append(late, &AppendParams::client(epoch(0), NOW));
    assert!(
        matches!(refused, Err(AppendError::TransactionNotOpen { producer_id }) if producer_id.get() == 5)
    );
    assert!(open.log.open_transactions().is_empty());
    assert_eq!(open.log.log_end_offset(), offset(3));
}

#[test]
fn n_pid_5_epochs_that_go_back_are_replayed_and_mirrored_with_a_warning() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    let log = log_of(&[
        data(Some((5, 3, 0)), true, 1, 8),
        marker(false, 5, 3, 9),
        data(Some((5, 2, 0)), true, 1, 8),
        marker(true, 5, 2, 4),
    ]);
    let tolerated: usize = log.into_iter().map(|batch| open.replicate(batch).tolerated_count).sum();
    assert!(tolerated >= 2, "{tolerated}");
    open.sync();
    let facts = open.facts();
    assert_eq!((facts.last_stable_offset, facts.aborted.len()), (offset(4), 1));
    open.close();
    bench.remove_auxiliary_files();
    let mut open = bench.open_unclean();
    assert_eq!(open.facts(), facts);
    assert_eq!(open.report.tolerated_count, tolerated as u64);
    let (_, entry) = open.log.producers().next().unwrap();
    assert_eq!((entry.producer_epoch(), entry.coordinator_epoch()), (ProducerEpoch::new(2), Some(4)));
    // A client's append is checked against that.
    let old = open.append(data(Some((5, 1, 0)), false, 1, 8), &client());
    assert!(matches!(
        old,
        Err(AppendError::ProducerState { source: ProducerStateError::InvalidProducerEpoch { .. } })
    ));
}

#[test]
fn n_pid_9_a_client_that_carries_on_with_five_in_flight_is_in_order_behind_a_barrier() {
    let mut open = Bench::new(1).open_unclean();
    open.replicate(placed(data(Some((5, 0, 990)), false, 10, 8), 0, 0));
    open.coordinate(barrier());
    for (sequence, base) in (1_000..1_005).zip(11..) {
        let appended = open.produce(data(Some((5, 0, sequence)), false, 1, 8));
        assert_eq!((appended.base_offset, appended.duplicate), (offset(base), false));
    }
    // From the first one on they are in order, and one that comes again is answered.
    let Err(AppendError::ProducerState { source }) =
        open.append(data(Some((5, 0, 1_006)), false, 1, 8), &client())
    else {
        panic!("a gap")
    };
    assert!(matches!(source, ProducerStateError::OutOfOrderSequence { .. }));
    let again = open.produce(data(Some((5, 0, 1_000)), false, 1, 8));
    assert_eq!((again.base_offset, again.duplicate), (offset(11), true));
    open.sync();
}

// Stable offset and transactions.

#[test]
fn lso_1_a_stop_writes_an_abort_for_each_open_transaction_and_a_barrier_and_readers_reach_the_end() {
    let source = log_of(&[
        data(Some((1, 0, 0)), true, 1, 8), // 0 a
        marker(true, 1, 0, 0),             // 1
        data(Some((1, 0, 1)), true, 1, 8), // 2 a again
        marker(true, 1, 0, 0),             // 3
        plain(1, 8),                       // 4
        data(Some((2, 0, 0)), true, 1, 8), // 5 b, open
        data(Some((4, 0, 0)), true, 1, 8), // 6 d, open
        data(Some((3, 0, 0)), true, 1, 8), // 7 c
        marker(false, 3, 0, 0),            // 8
        marker(false, 4, 1, 0),            // 9 the first d is fenced
        data(Some((4, 1, 0)), true, 1, 8), // 10 d again, open
        plain(1, 8),                       // 11
    ]);
    let bench = Bench::new(1).segment_bytes(400);
    let mut open = bench.open_unclean();
    for batch in source {
        open.replicate(batch);
    }
    open.sync();
    let end_of_source = open.log.log_end_offset();
    assert_eq!(
        open.log.view().last_stable_offset,
        offset(5),
        "LSO-14: mirrored to the end, stable to the first open"
    );
    let ends: Vec<BytesMut> = open
        .log
        .open_transactions()
        .iter()
        .map(|open| {
            let coordinator_epoch = open.coordinator_epoch.unwrap_or(-1);
            marker(false, open.producer_id.get(), open.producer_epoch.unwrap().get(), coordinator_epoch)
        })
        .collect();
    assert_eq!(ends.len(), 2);
    for end in ends {
        open.coordinate(end);
    }
    open.coordinate(barrier());
    open.sync();
    assert_eq!(open.log.log_end_offset().get() - end_of_source.get(), 3, "two ABORTs and a barrier");
    for _ in 0..2 {
        // LSO-2: nothing is open, and everything is stable.
        assert!(open.log.open_transactions().is_empty());
        assert_eq!(open.log.view().last_stable_offset, open.log.log_end_offset());
        for max_bytes in [1, 200, 1 << 20] {
            // LSO-12: behind the last marker nothing follows, and the reader is at the end all the same.
            assert_eq!(consume(&mut open, max_bytes), (vec![0, 2, 4, 11], 15));
        }
        open.close();
        open = bench.open_clean();
    }
}

#[test]
fn lso_3_a_late_batch_behind_its_marker_hangs_visibly_until_it_is_aborted() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    for batch in
        log_of(&[data(Some((5, 0, 0)), true, 1, 8), marker(true, 5, 0, 0), data(Some((5, 0, 1)), true, 1, 8)])
    {
        open.replicate(batch);
    }
    open.sync();
    assert_eq!(open.log.view().last_stable_offset, offset(2));
    let hanging = open.log.open_transactions();
    let facts: Vec<_> = hanging
        .iter()
        .map(|h| (h.producer_id.get(), h.producer_epoch, h.first_offset, h.last_timestamp))
        .collect();
    assert_eq!(facts, [(5, ProducerEpoch::new(0), offset(2), NOW)]);
    open.coordinate(marker(false, 5, 0, 0));
    open.sync();
    assert_eq!(open.log.view().last_stable_offset, offset(4));
    assert_eq!(consume(&mut open, 1 << 20), (vec![0], 4));
}

#[test]
fn lso_4_n_lso_4_one_view_bounds_a_read_and_never_lies_above_what_producer_state_has_seen() {
    let mut open = Bench::new(1).open_unclean();
    open.produce(plain(1, 5)); // 0
    open.sync();
    let before = open.log.view();
    open.produce(data(Some((1, 0, 0)), true, 1, 5)); // 1
    open.produce(plain(1, 5)); // 2
    // The bytes are there before they are durable, and after.
    for step in ["gathered", "written", "synced"] {
        match step {
            "written" => open.settle(),
            "synced" => open.sync(),
            _ => {}
        }
        let view = open.log.view();
        assert!(view.last_stable_offset <= view.high_watermark, "{step}");
        assert_eq!(view.last_stable_offset, offset(1), "{step}");
        let read = open.read(0, 1 << 20, Isolation::Committed);
        assert_eq!((bases(&read.bytes), read.view.last_stable_offset), (vec![0], offset(1)), "{step}");
    }
    // A view that somebody holds does not change under them.
    assert_eq!((before.high_watermark, before.last_stable_offset), (offset(1), offset(1)));
    assert_eq!(open.log.view().high_watermark, offset(3));
}

/// B4, where the transaction began in an older segment than the barrier's.
#[test]
fn b4_what_a_barrier_ends_stands_in_the_index_of_the_barriers_segment() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    open.produce(data(Some((2, 0, 0)), true, 1, 10)); // 0
    open.produce(data(Some((1, 0, 0)), true, 1, 250)); // 1, a second segment
    open.produce(plain(1, 250)); // 2, a third
    assert_eq!(open.coordinate(barrier()).base_offset, offset(3)); // a fourth
    open.sync();
    for bare in [false, true, true] {
        let bases: Vec<i64> = open.log.segments().iter().map(|segment| segment.base_offset.get()).collect();
        assert_eq!(bases, [0, 1, 2, 3]);
        let mut index_of = |base: i64| {
            let entries = open.log.segment_transactions(&mut *open.io, offset(base)).unwrap();
            let facts = entries.iter().map(|entry| {
                let ids = (entry.producer_id.get(), entry.first_offset.get());
                (ids, entry.last_offset.get(), entry.last_stable_offset.get())
            });
            facts.collect::<Vec<_>>()
        };
        assert_eq!(index_of(3), [((2, 0), 3, 1), ((1, 1), 3, 4)]);
        assert_eq!((index_of(0), index_of(1), index_of(2)), (vec![], vec![], vec![]));
        drop(open);
        if bare {
            bench.remove_auxiliary_files();
        }
        open = bench.open_unclean();
    }
}

/// B9: neither its value nor its other fields hide one, or fail a read or a start; and what is none is no error.
#[test]
fn b9_whatever_its_value_a_barrier_is_one_in_an_append_in_a_read_and_in_recovery() {
    let control = |key: Option<&[u8]>, value: Option<&[u8]>, id: i64| {
        let mut batch = BatchBuilder::new().control().record(NOW, key, value).build().unwrap();
        batch[43..51].copy_from_slice(&id.to_be_bytes());
        let crc = weir_format::crc::batch_crc(&batch);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        batch
    };
    let seven = Some(&[0, 0, 0, 7][..]);
    let long = [0xff; 300];
    let yes = [
        control(seven, None, -1),
        control(seven, Some(&[]), -1),
        control(seven, Some(&[0]), -1),
        control(seven, Some(&[0, 9, 0]), -1),
        control(seven, Some(&long), -1),
        control(Some(&[0, 3, 0, 7, 99]), Some(&[0, 0, 0]), -1),
        control(seven, Some(&[0, 0, 0]), 5),
        control(seven, Some(&[0, 0, 0]), -9),
    ];
    let no = [
        control(None, Some(&[0, 0, 0]), -1),
        control(Some(&[]), Some(&[0, 0, 0]), -1),
        control(Some(&[0, 0, 7]), Some(&[0, 0, 0]), -1),
        control(Some(&[0, 0, 0, 8]), Some(&[0, 0, 0]), -1),
        BatchBuilder::new().control().last_offset_delta(0).build().unwrap(),
    ];
    let cases = yes.into_iter().map(|batch| (batch, true)).chain(no.into_iter().map(|batch| (batch, false)));
    for (nth, (batch, is_one)) in cases.enumerate() {
        let bench = Bench::new(1);
        let mut open = bench.open_unclean();
        let known = data(Some((5, 0, 0)), true, 1, 8);
        let log = log_of(&[known, batch, data(Some((6, 0, 0)), false, 1, 8)]);
        let bytes = log.concat();
        open.replicate(BytesMut::from(&bytes[..]));
        open.sync();
        let left: &[i64] = if is_one { &[6] } else { &[5, 6] };
        let stable = if is_one { 3 } else { 0 };
        for bare in [false, true, true] {
            let known: Vec<i64> = open.log.producers().map(|(id, _)| id.get()).collect();
            assert_eq!(known, left, "case {nth}");
            assert_eq!(open.log.view().last_stable_offset, offset(stable), "case {nth}");
            assert_eq!(open.log.partition_file().barriers().count(), usize::from(is_one), "case {nth}");
            assert_eq!(open.read_all(Isolation::Uncommitted), bytes, "case {nth}");
            assert_eq!(open.read(1, 1, Isolation::Uncommitted).bytes, log[1][..], "case {nth}");
            drop(open);
            if bare {
                bench.remove_auxiliary_files();
            }
            open = bench.open_unclean();
        }
    }
}

// Cuts and log starts.

#[test]
fn trunc_1_trunc_3_the_old_source_is_cut_where_the_last_mirrored_epoch_ended() {
    // Three records that both have under epoch 5; then two of its own under 6, while the other side went on above it.
    let other = Bench::new(2);
    let mut target = other.open_unclean();
    for base in 0..3 {
        target.replicate(placed(plain(1, 5), base, 5));
    }
    target.append(barrier(), &AppendParams::coordinator(epoch(1_006), NOW)).unwrap();
    target.append(plain(1, 70), &AppendParams::client(epoch(1_006), NOW)).unwrap();
    target.sync();
    let bench = Bench::new(1);
    let mut old_source = bench.open_unclean();
    for base in 0..3 {
        old_source.replicate(placed(plain(1, 5), base, 5));
    }
    for base in 3..5 {
        old_source.replicate(placed(plain(1, 9), base, 6));
    }
    old_source.sync();
    // The last mirrored offset alone would keep too much, or nothing: epochs say where they part.
    let (last_epoch, end) = old_source.log.end_offset_for_epoch(epoch(5)).unwrap();
    assert_eq!((last_epoch, end), (epoch(5), offset(3)));
    assert_eq!(target.log.end_offset_for_epoch(epoch(6)), Some((epoch(5), offset(3))), "it knows none of 6");
    old_source.truncate(end.get());
    let fetched = target.read(3, 1 << 20, Isolation::Uncommitted).bytes;
    old_source.replicate(BytesMut::from(&fetched[..]));
    old_source.sync();
    assert_eq!(bench.log_bytes(), other.log_bytes(), "byte for byte");
    let bytes = old_source.read_all(Isolation::Uncommitted);
    assert_eq!(bases(&bytes), [0, 1, 2, 3, 4]);
    assert_eq!(old_source.facts().epochs, [(5, 0), (1_006, 3)]);
    drop(old_source);
    bench.disk.crash(CrashPolicy::DROP_ALL);
    let mut again = bench.open_unclean();
    assert_eq!(again.read_all(Isolation::Uncommitted), bytes);
    assert_eq!(again.facts().epochs, [(5, 0), (1_006, 3)]);
}

#[test]
fn trunc_5_n_trunc_6_a_log_that_starts_over_has_start_end_and_high_watermark_there() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.replicate(placed(plain(50, 5), 0, 0));
    open.sync();
    open.log.truncate_fully_and_start_at(&mut *open.io, offset(200)).unwrap();
    for _ in 0..2 {
        let view = open.log.view();
        let facts =
            (view.log_start_offset, view.last_stable_offset, view.high_watermark, view.log_end_offset);
        assert_eq!(facts, (offset(200), offset(200), offset(200), offset(200)));
        drop(open);
        bench.disk.crash(CrashPolicy::DROP_ALL);
        open = bench.open_unclean();
    }
    // A first mirror of a topic that starts at 500 starts at 500.
    open.log.truncate_fully_and_start_at(&mut *open.io, offset(500)).unwrap();
    assert_eq!(open.replicate(placed(plain(1, 5), 500, 0)).base_offset, offset(500));
    assert_eq!(open.log.view().log_start_offset, offset(500));
}

#[test]
fn trunc_17_epoch_5_what_is_out_of_range_or_unknown_cuts_nothing() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.replicate(placed(plain(10, 5), 0, 3));
    open.sync();
    let (facts, bytes) = (open.facts(), bench.log_bytes());
    for asked in [11, 500] {
        let refused = open.log.read(&mut *open.io, offset(asked), 100, Isolation::Uncommitted, true);
        assert!(matches!(refused, Err(weir_log::ReadError::OffsetOutOfRange { .. })));
    }
    assert_eq!(open.log.end_offset_for_epoch(epoch(9)), None, "an epoch from the future");
    assert_eq!(open.log.end_offset_for_epoch(epoch(1)), Some((epoch(1), offset(0))), "one from before");
    open.truncate(10);
    open.truncate(700);
    assert_eq!((open.facts(), bench.log_bytes()), (facts, bytes));
}

#[test]
fn n_trunc_1_what_is_left_keeps_its_offsets_and_bytes_when_the_first_segment_goes() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..6 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 250));
    }
    open.sync();
    let whole = open.read_all(Isolation::Uncommitted);
    let before = open.log.view();
    open.log.advance_log_start(&mut *open.io, offset(2)).unwrap();
    for _ in 0..2 {
        let view = open.log.view();
        assert_eq!(
            (view.high_watermark, view.log_end_offset),
            (before.high_watermark, before.log_end_offset)
        );
        let left = open.read_all(Isolation::Uncommitted);
        assert!(whole.ends_with(&left) && bases(&left) == [2, 3, 4, 5]);
        drop(open);
        let mut options = bench.options();
        options.log_start_offset = offset(2);
        open = bench.open(options);
    }
}

#[test]
fn n_trunc_4_a_recorded_end_behind_or_at_what_is_found_is_fine_and_one_ahead_is_said() {
    for (recorded, said) in [(9, None), (10, None), (11, Some(offset(11)))] {
        let bench = Bench::new(1);
        let mut open = bench.open_unclean();
        open.replicate(placed(plain(10, 5), 0, 0));
        open.sync();
        drop(open);
        let mut options = bench.options();
        options.recovery_point = offset(recorded);
        let open = bench.open(options);
        assert_eq!(open.log.log_end_offset(), offset(10));
        assert_eq!(open.report.ends_below_recovery_point, said);
    }
}

// Tails.

#[test]
fn tail_1_a_batch_cut_at_every_byte_is_cut_off_and_stays_off() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    for sequence in 0..10 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 20));
    }
    open.close();
    let whole = bench.disk.read_file(&bench.path(SEGMENT)).unwrap();
    let last = BatchReader::new(&whole).last().unwrap().unwrap().size();
    let nine = whole.len() - last;
    for size in nine + 1..whole.len() {
        let torn = bench.fork();
        // The indexes and the snapshot of the whole file stay beside it.
        torn.disk.write_file(&torn.path(SEGMENT), &whole[..size]);
        for time in 0..2 {
            let mut open = torn.open_unclean();
            assert_eq!(open.log.log_end_offset(), offset(9), "{size}, {time}");
            assert_eq!(open.report.cuts.len(), 1 - time, "{size}");
            assert_eq!(torn.disk.read_file(&torn.path(SEGMENT)).unwrap(), whole[..nine], "{size}");
            assert_eq!(open.read_all(Isolation::Uncommitted), whole[..nine]);
            let (_, producer) = open.log.producers().next().unwrap();
            assert_eq!(producer.last_sequence().unwrap().get(), 8);
        }
    }
}

#[test]
fn tail_2_a_header_that_is_not_whole_and_a_missing_index_keep_nobody_from_starting() {
    let bench = Bench::new(1).segment_bytes(1 << 20);
    let mut open = bench.open_unclean();
    for _ in 0..5 {
        open.produce(plain(1, 200));
    }
    open.close();
    let whole = bench.disk.read_file(&bench.path(SEGMENT)).unwrap();
    let next = placed(plain(1, 200), 5, 0);
    for size in 1..=60 {
        for index in [true, false] {
            let torn = bench.fork();
            torn.disk.write_file(&torn.path(SEGMENT), &[&whole[..], &next[..size]].concat());
            if !index {
                torn.disk.remove_file(&torn.path("00000000000000000000.index"));
            }
            let mut open = torn.open_unclean();
            assert_eq!(open.read_all(Isolation::Uncommitted), whole, "{size}");
            open.close();
            let written = torn.disk.read_file(&torn.path("00000000000000000000.index")).unwrap();
            assert!(!written.is_empty(), "it is there again");
        }
    }
}

#[test]
fn tail_3_a_length_of_any_size_is_cut_at_the_end_and_said_in_the_middle() {
    for length in [0_i32, 1, 48, -1, i32::MAX] {
        let bench = Bench::new(1);
        let mut open = bench.open_unclean();
        for _ in 0..3 {
            open.produce(plain(1, 600));
        }
        open.close();
        let whole = bench.disk.read_file(&bench.path(SEGMENT)).unwrap();
        let size = whole.len() / 3;
        for nth in [1, 2] {
            let spoilt = bench.fork();
            let mut bytes = whole.clone();
            bytes[nth * size + 8..][..4].copy_from_slice(&length.to_be_bytes());
            spoilt.disk.write_file(&spoilt.path(SEGMENT), &bytes);
            match spoilt.try_open(spoilt.options()) {
                Ok(open) => assert_eq!((nth, open.log.log_end_offset()), (2, offset(2)), "{length}"),
                Err(error) => assert_eq!((nth, error.to_string().contains(SEGMENT)), (1, true), "{error}"),
            }
        }
    }
}

#[test]
fn tail_5_a_load_that_is_killed_after_a_clean_stop_is_followed_by_a_whole_recovery() {
    // The node removes the marker durably before it loads; so the second load is told that the stop was not clean.
    let bench = Bench::new(1).segment_bytes(1 << 20);
    let mut open = bench.open_unclean();
    for _ in 0..3 {
        open.produce(plain(1, 600));
    }
    open.close();
    drop(bench.open_clean());
    let path = bench.path(SEGMENT);
    let whole = bench.disk.read_file(&path).unwrap();
    bench.disk.flip(&path, 80, 1);
    // The first batch is spoilt: whoever trusts the files does not look at it.
    assert!(bench.fork().try_open(weir_log::OpenOptions { clean_shutdown: true, ..bench.options() }).is_ok());
    assert!(bench.try_open(bench.options()).is_err());
    bench.disk.write_file(&path, &whole);
    let open = bench.open_unclean();
    assert_eq!((open.report.batch_count, open.report.checked_bytes), (3, whole.len() as u64));
}

#[test]
fn tail_7_an_index_of_zeros_or_none_at_all_is_no_damage() {
    let bench = Bench::new(1);
    bench.open_unclean().close();
    let index = bench.path("00000000000000000000.index");
    let times = bench.path("00000000000000000000.timeindex");
    for (size, clean) in [(0, true), (4_096, true), (4_096, false), (10 << 20, true)] {
        let preallocated = bench.fork();
        preallocated.disk.write_file(&index, &vec![0; size]);
        preallocated.disk.write_file(&times, &vec![0; size / 12 * 12]);
        let mut options = preallocated.options();
        options.clean_shutdown = clean;
        let mut open = preallocated.open(options);
        assert_eq!((open.log.log_end_offset(), open.report.cuts.len()), (offset(0), 0), "{size} {clean}");
        assert_eq!(open.produce(plain(1, 5)).base_offset, offset(0));
        open.sync();
        assert_eq!(open.read_all(Isolation::Uncommitted).len(), preallocated.log_bytes().len());
    }
    bench.disk.remove_file(&index);
    bench.disk.remove_file(&times);
    assert_eq!(bench.open_clean().log.log_end_offset(), offset(0));
}

#[test]
fn tail_8_a_swap_that_a_crash_cut_short_costs_no_rebuilding_of_producer_state() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..4 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 200));
    }
    open.sync();
    let (facts, producers) = (open.facts(), open.producers());
    assert_eq!(open.log.partition_file().snapshots().count(), 2);
    open.close();
    let segment = |base: i64| bench.disk.read_file(&bench.path(&format!("{base:020}.log"))).unwrap();
    let merged = [segment(0), segment(1)].concat();
    for (suffix, bytes, finished) in
        [("log.swap", merged.clone(), 1), ("log.cleaned", merged, 0), ("index.swap", vec![], 1)]
    {
        for clean_shutdown in [true, false] {
            let left = bench.fork();
            left.disk.write_file(&left.path(&format!("00000000000000000000.{suffix}")), &bytes);
            let options = OpenOptions { clean_shutdown, recovery_point: offset(4), ..left.options() };
            let mut open = left.open(options);
            let source = &open.report.producer_state;
            let is_newest =
                matches!(source, ProducerStateSource::Snapshot { offset: at } if *at >= offset(3));
            assert!(is_newest, "{suffix}, clean {clean_shutdown}: {source:?}");
            let done = open.report.leftovers.iter().filter(|leftover| leftover.finished).count();
            assert_eq!((open.report.leftovers.len(), done), (1, finished), "{suffix}");
            assert_eq!(open.facts(), facts);
            assert_equal_state(&open.producers(), &producers, suffix);
        }
    }
}

#[test]
fn n_tail_7_readers_with_fetches_of_any_size_get_every_offset_once_while_it_is_appended_to() {
    let bench = Bench::new(1).segment_bytes(20_000);
    bench.disk.reorder(true);
    let mut open = bench.open_unclean();
    let mut places = [0_i64; 5];
    let mut size = 7_usize;
    for _ in 0..600 {
        size = (size * 31 + 17) % 997;
        open.produce(plain(1 + size % 3, size % 200));
        if size.is_multiple_of(5) {
            open.sync();
        }
        for (reader, at) in places.iter_mut().enumerate() {
            let max_bytes = 1 + (size * (reader + 3)) % 4_000;
            let read = open.read(*at, max_bytes, Isolation::Uncommitted);
            for batch in BatchReader::new(&read.bytes) {
                let batch = batch.unwrap();
                assert_eq!(batch.base_offset().get(), *at, "reader {reader}");
                *at = batch.next_offset().get();
            }
        }
    }
    open.sync();
    let end = open.log.log_end_offset().get();
    for at in places {
        let read = open.read(at, 1 << 20, Isolation::Uncommitted);
        assert!(at <= end && (at == end || bases(&read.bytes)[0] == at));
    }
    assert!(end > 1_000 && places.iter().all(|at| *at > 900), "{places:?} of {end}");
}

// Gaps.

/// A batch that compaction left with the records at these deltas.
fn with_gaps(deltas: &[i64], last: i32) -> BytesMut {
    let mut builder = BatchBuilder::new().last_offset_delta(last).max_timestamp(NOW);
    for delta in deltas {
        builder = builder.record_at(*delta, NOW, Some(b"k"), Some(b"v"), &[]);
    }
    builder.build().unwrap()
}

#[test]
fn gap_1_gap_7_an_offset_that_compaction_took_is_answered_with_the_batch_that_holds_or_follows_it() {
    for segment_bytes in [1 << 20, 100] {
        let bench = Bench::new(1).segment_bytes(segment_bytes);
        let mut open = bench.open_unclean();
        open.replicate(placed(with_gaps(&[0, 3], 9), 0, 0));
        open.replicate(placed(plain(10, 5), 1_110, 0));
        open.sync();
        for _ in 0..2 {
            for (from, right) in [(0, 0), (5, 0), (9, 0), (10, 1_110), (700, 1_110), (1_115, 1_110)] {
                let read = open.read(from, 1, Isolation::Uncommitted);
                assert_eq!(bases(&read.bytes), [right], "{from}");
            }
            assert!(open.read(1_120, 100, Isolation::Uncommitted).bytes.is_empty());
            drop(open);
            bench.remove_auxiliary_files();
            open = bench.open_unclean();
        }
    }
}

#[test]
fn gap_2_a_run_of_control_batches_is_served_with_the_data_behind_it() {
    let mut open = Bench::new(1).open_unclean();
    for id in 1..4 {
        open.produce(data(Some((id, 0, 0)), true, 1, 5));
    }
    for id in 1..4 {
        open.coordinate(marker(false, id, 0, 0));
    }
    open.coordinate(barrier());
    open.produce(plain(1, 5)); // 7
    open.sync();
    for isolation in [Isolation::Uncommitted, Isolation::Committed] {
        assert_eq!(bases(&open.read(3, 1 << 20, isolation).bytes), [3, 4, 5, 6, 7]);
        assert_eq!(bases(&open.read(3, 1, isolation).bytes), [3], "and one by one, each moves on");
        assert_eq!(bases(&open.read(6, 1, isolation).bytes), [6]);
    }
}

#[test]
fn gap_3_gap_5_a_batch_without_records_is_kept_served_and_counted() {
    let emptied = BatchBuilder::new()
        .producer(ProducerId::new(7).unwrap(), ProducerEpoch::ZERO, Sequence::new(30))
        .last_offset_delta(9)
        .max_timestamp(TimestampMs::new(NOW.get() + 5))
        .build()
        .unwrap();
    let emptied = placed(emptied, 40, 2);
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.replicate(emptied.clone());
    open.sync();
    for _ in 0..3 {
        assert_eq!(open.log.log_end_offset(), offset(50));
        assert_eq!(open.read(0, 1, Isolation::Committed).bytes, emptied[..]);
        let (id, entry) = open.log.producers().next().unwrap();
        assert_eq!((id.get(), entry.last_sequence().unwrap().get()), (7, 39));
        assert_eq!((entry.last_offset(), entry.last_timestamp().get()), (Some(offset(49)), NOW.get() + 5));
        assert_eq!(open.facts().epochs, [(2, 40)]);
        drop(open);
        bench.remove_auxiliary_files();
        open = bench.open_unclean();
    }
    assert_eq!(
        open.append(data(Some((7, 0, 40)), false, 1, 5), &AppendParams::client(epoch(2), NOW))
            .unwrap()
            .base_offset,
        offset(50)
    );
}

#[test]
fn gap_10_an_idempotent_producer_goes_on_over_a_compacted_log() {
    let mut bench = Bench::new(1);
    bench.config.compact = true;
    let mut open = bench.open_unclean();
    let mut kept = with_gaps(&[2], 4);
    weir_format::set_base_offset(&mut kept, offset(10)).unwrap();
    open.replicate(placed(data(Some((1, 0, 0)), false, 5, 5), 0, 0));
    open.replicate(placed(kept, 10, 0));
    open.replicate(placed(data(Some((1, 0, 5)), false, 2, 5), 30, 0));
    assert_eq!(open.produce(data(Some((1, 0, 7)), false, 1, 5)).base_offset, offset(32));
    assert!(open.produce(data(Some((1, 0, 5)), false, 2, 5)).duplicate);
    // And behind a failover, whoever it is.
    assert_eq!(open.coordinate(barrier()).base_offset, offset(33));
    assert_eq!(open.produce(data(Some((1, 0, 0)), false, 1, 5)).base_offset, offset(34));
    assert_eq!(open.produce(data(Some((1, 0, 1)), false, 1, 5)).base_offset, offset(35));
}

#[test]
fn n_gap_2_batches_further_apart_than_31_bits_are_found_read_and_recovered() {
    let far = (1_i64 << 31) + 5;
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    let all: Vec<i64> = (0..4).map(|nth| nth * far).collect();
    for base in &all {
        open.replicate(placed(data(Some((1, 0, 0)), false, 1, 5), *base, 0));
    }
    open.sync();
    for _ in 0..2 {
        assert_eq!(bases(&open.read_all(Isolation::Uncommitted)), all);
        for base in &all[1..] {
            for from in [base - 1, *base] {
                assert_eq!(bases(&open.read(from, 1, Isolation::Uncommitted).bytes), [*base], "{from}");
            }
        }
        drop(open);
        bench.remove_auxiliary_files();
        open = bench.open_unclean();
    }
}

/// KAFKA-9080: what a source of old holds is taken as it is, whatever is inside it.
#[test]
fn n_gap_6_messages_of_old_formats_are_mirrored_untouched() {
    for name in ["magic-v0", "magic-v1", "magic-mixed"] {
        let mut source = Bench::new(1);
        source.dir = format!("/golden/{name}-0").into();
        source.disk.import(&testdata().join(name).join(format!("{name}-0")), &source.dir).unwrap();
        let mut at_source = source.open_unclean();
        let (bytes, end) = (source.log_bytes(), at_source.log.log_end_offset());
        let parts: Vec<AnyBatch<'_>> = AnyBatchReader::new(&bytes).map(Result::unwrap).collect();
        for (segment_bytes, together, memory) in [
            (1 << 30, 1, 0),
            (2_000, 3, 1 << 20),
            (300, 1, 1 << 20),
            (700, 7, 3_000),
            (1 << 30, 1_000, 1 << 20),
        ] {
            let bench = Bench::new(2).segment_bytes(segment_bytes);
            let mut open = bench.open_unclean();
            open.log.attach_tail(HotTail::new(), TailMemory::new(memory));
            for group in parts.chunks(together) {
                let group: Vec<u8> = group.iter().flat_map(AnyBatch::bytes).copied().collect();
                open.replicate(BytesMut::from(&group[..]));
            }
            open.sync();
            for start in ["live", "stopped", "killed", "bare"] {
                let what = format!("{name}, {segment_bytes}, {together}, {start}");
                match start {
                    "live" => {}
                    "stopped" => {
                        open.close();
                        open = bench.open_clean();
                        let source = &open.report.producer_state;
                        assert_eq!(*source, ProducerStateSource::Snapshot { offset: end }, "{what}");
                    }
                    _ => {
                        drop(open);
                        if start == "bare" {
                            bench.remove_auxiliary_files();
                        }
                        open = bench.open_unclean();
                    }
                }
                assert!(bench.log_bytes() == bytes, "{what}");
                assert_eq!(open.log.log_end_offset(), end, "{what}");
                assert_eq!(open.log.view().last_stable_offset, end, "{what}");
                assert_eq!(open.log.last_batch(), at_source.log.last_batch(), "{what}");
                assert_eq!(open.facts().epochs, at_source.facts().epochs, "{what}");
                assert_equal_state(&open.producers(), &at_source.producers(), &what);
                for from in 0..end.get() {
                    let found = open.read(from, 1, Isolation::Committed).bytes;
                    let expected = parts.iter().find(|part| part.last_offset() >= offset(from)).unwrap();
                    assert!(found == expected.bytes(), "{what}: from {from}");
                }
                let time = |open: &mut Open, at| {
                    let spec = OffsetSpec::Timestamp(TimestampMs::new(at));
                    open.log.offset_for(&mut *open.io, spec, Isolation::Uncommitted).unwrap()
                };
                for at in [0, NOW.get(), NOW.get() + 100_000, i64::MAX] {
                    assert_eq!(time(&mut open, at), time(&mut at_source, at), "{what}: {at}");
                }
            }
            // What a message wraps may be of lower offsets than its own: a segment that it opens begins below them.
            let mut ends = std::collections::BTreeSet::from([0]);
            for part in &parts {
                let is_message = matches!(part, AnyBatch::Message(_));
                ends.insert(part.last_offset().get() + 1);
                for segment in open.log.segments() {
                    let base = segment.base_offset.get();
                    let opens = open.read(base, 1, Isolation::Uncommitted).bytes == part.bytes();
                    assert!(
                        !(is_message && opens) || ends.contains(&base),
                        "{name}, {segment_bytes}: {base}"
                    );
                }
            }
            // A cut falls between them, and what is known of the last one is right.
            let middle = parts[parts.len() / 2].last_offset();
            open.truncate(middle.get() + 1);
            assert_eq!(open.log.last_batch().unwrap().last_offset, middle);
            let known = open.log.last_batch();
            drop(open);
            assert_eq!(bench.open_unclean().log.last_batch(), known);
        }
        // Clients are held to the newest format.
        let mut open = Bench::new(3).open_unclean();
        let first = AnyBatchReader::new(&bytes).next().unwrap().unwrap();
        assert!(open.append(BytesMut::from(first.bytes()), &client()).is_err());
        let mut flipped = first.bytes().to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        let params = AppendParams::replication(epoch(5), NOW);
        let refused = open.append(BytesMut::from(&flipped[..]), &params);
        assert!(matches!(refused, Err(AppendError::Message { position: 0, .. })), "{refused:?}");
    }
}

// Timestamps.

#[test]
fn time_4_the_largest_timestamp_of_mirrored_bytes_is_found_by_reading_the_batch() {
    let mut open = Bench::new(1).open_unclean();
    let mut batch = BatchBuilder::new();
    for stamp in [5, 9, 7] {
        batch = batch.record(TimestampMs::new(stamp), None, Some(b"v"));
    }
    open.replicate(placed(batch.build().unwrap(), 0, 0));
    open.sync();
    let found = open.log.offset_for(&mut *open.io, OffsetSpec::MaxTimestamp, Isolation::Uncommitted).unwrap();
    assert_eq!(
        found.map(|found| (found.offset, found.timestamp)),
        Some((offset(1), Some(TimestampMs::new(9))))
    );
}

fn stamped(at: i64) -> BytesMut {
    BatchBuilder::new().record(TimestampMs::new(at), None, Some(&[b'v'; 120])).build().unwrap()
}

#[test]
fn time_6_the_last_entry_of_a_segments_time_index_is_its_largest_timestamp_and_where_it_is() {
    let bench = Bench::new(1).segment_bytes(600);
    let mut open = bench.open_unclean();
    // The largest of the first segment is neither its first nor its last.
    for at in [10, 30, 20, 40] {
        open.produce(stamped(at));
    }
    open.sync();
    let second = open.log.segments()[1].base_offset;
    assert_eq!(second, offset(3));
    let check = |bench: &Bench| {
        let bytes = bench.disk.read_file(&bench.path("00000000000000000000.timeindex")).unwrap();
        let index = TimeIndex::decode(offset(0), &bytes).unwrap();
        let last = index.last().unwrap();
        assert_eq!((last.timestamp.get(), last.offset), (30, offset(1)));
    };
    check(&bench);
    // After a cut the entries above it are gone, and the largest of what is left is asked for.
    open.truncate(1);
    open.close();
    let bytes = bench.disk.read_file(&bench.path("00000000000000000000.timeindex")).unwrap();
    let last = TimeIndex::decode(offset(0), &bytes).unwrap().last().unwrap();
    assert_eq!((last.timestamp.get(), last.offset), (10, offset(0)));
}

#[test]
fn n_time_5_a_clock_that_was_set_back_leaves_the_time_index_in_order() {
    let mut bench = Bench::new(1).segment_bytes(800);
    bench.config.message_timestamp_type = TimestampType::LogAppendTime;
    let mut open = bench.open_unclean();
    let hour = 3_600_000;
    let clock = [0, 5, -hour, 7 - hour, hour, 10].map(|by| TimestampMs::new(NOW.get() + by));
    for now in clock {
        open.append(stamped(1), &AppendParams { now, ..client() }).unwrap();
    }
    open.sync();
    for _ in 0..2 {
        let mut find = |at: i64| {
            let spec = OffsetSpec::Timestamp(TimestampMs::new(NOW.get() + at));
            let found = open.log.offset_for(&mut *open.io, spec, Isolation::Uncommitted).unwrap();
            found.map(|found| found.offset.get())
        };
        assert_eq!(
            (find(-hour), find(1), find(6), find(hour), find(hour + 1)),
            (Some(0), Some(1), Some(4), Some(4), None)
        );
        open.close();
        open = bench.open_clean();
    }
    for path in bench.disk.files().iter().filter(|path| path.extension().is_some_and(|s| s == "timeindex")) {
        let bytes = bench.disk.read_file(path).unwrap();
        let stamps: Vec<i64> =
            bytes.chunks(12).map(|entry| i64::from_be_bytes(entry[..8].try_into().unwrap())).collect();
        assert!(stamps.is_sorted(), "{stamps:?}");
    }
}

// Leader epochs.

#[test]
fn n_epoch_2_the_end_of_an_epoch_is_never_below_what_was_served_under_it() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.append(plain(200, 1), &AppendParams::client(epoch(3), NOW)).unwrap();
    open.sync();
    open.append(plain(19, 1), &AppendParams::client(epoch(3), NOW)).unwrap();
    open.sync();
    let served = open.log.view().high_watermark;
    assert_eq!(open.log.end_offset_for_epoch(epoch(3)), Some((epoch(3), offset(219))));
    for policy in CrashPolicy::ALL {
        let crashed = bench.fork();
        crashed.disk.crash(policy);
        let mut open = crashed.open_unclean();
        let (_, end) = open.log.end_offset_for_epoch(epoch(3)).unwrap();
        assert!(end >= served, "{policy:?}");
        // A stop raises it once.
        open.log.assign_leader_epoch(&mut *open.io, epoch(1_003)).unwrap();
        assert_eq!(open.log.end_offset_for_epoch(epoch(3)), Some((epoch(3), offset(219))));
        assert_eq!(open.log.end_offset_for_epoch(epoch(700)), Some((epoch(3), offset(219))));
    }
}

#[test]
fn epoch_3_an_epoch_without_records_outlives_a_log_start_that_nobody_had_written_down() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for base in 0..4 {
        open.replicate(placed(plain(2, 250), 2 * base, 3));
    }
    open.sync();
    open.log.assign_leader_epoch(&mut *open.io, epoch(7)).unwrap();
    // Inside a segment: the checkpoint of epochs begins there, and the log's first batch before it.
    open.log.advance_log_start(&mut *open.io, offset(3)).unwrap();
    assert_eq!(open.facts().epochs, [(3, 3), (7, 8)]);
    drop(open);
    bench.disk.crash(CrashPolicy::DROP_ALL);
    let mut open = bench.open_unclean();
    assert_eq!((open.log.view().log_start_offset, open.facts().epochs), (offset(2), vec![(3, 2), (7, 8)]));
}

#[test]
fn the_epoch_in_force_at_the_log_start_outlives_a_cut_to_there() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    for base in 0..4 {
        open.replicate(placed(plain(1, 20), base, 3));
    }
    open.sync();
    open.log.advance_log_start(&mut *open.io, offset(2)).unwrap();
    open.truncate(2);
    assert_eq!(open.facts().epochs, [(3, 2)], "records of it are still in the segment");
    drop(open);
    let mut options = bench.options();
    options.log_start_offset = offset(2);
    assert_eq!(bench.open(options).facts().epochs, [(3, 2)]);
}

// Snapshots.

#[test]
fn snap_4_a_snapshot_from_before_the_first_segment_goes_and_later_ones_stay() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..6 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 250));
    }
    open.sync();
    open.log.advance_log_start(&mut *open.io, offset(5)).unwrap();
    let snapshots: Vec<_> = bench
        .disk
        .files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "snapshot"))
        .collect();
    assert_eq!(snapshots, [bench.path("00000000000000000005.snapshot")]);
    assert_eq!(open.log.producers().count(), 1, "what is known stays");
    // And it is what a start goes on from: the producer's older batches are gone.
    drop(open);
    let mut options = bench.options();
    options.recovery_point = offset(6);
    let mut open = bench.open(options);
    assert_eq!(open.produce(data(Some((1, 0, 6)), false, 1, 5)).base_offset, offset(6));
    assert!(open.report.cuts.iter().all(|cut| cut.kind == CutKind::Preallocated));
}

/// Each snapshot on the disk holds what a replay of the bytes below it gives, and nobody at or above its own offset.
fn check_snapshots(bench: &Bench, what: &str) -> Vec<i64> {
    let names =
        bench.disk.files().into_iter().filter(|path| path.extension().is_some_and(|k| k == "snapshot"));
    let mut found = Vec::new();
    for path in names {
        let at: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let entries = weir_psm::snapshot::decode(&bench.disk.read_file(&path).unwrap()).unwrap();
        assert!(entries.iter().all(|(_, entry)| entry.last_offset() < Some(offset(at))), "{what}: {at}");
        let below = bench.fork();
        below.remove_auxiliary_files();
        let mut replayed = below.open_unclean();
        replayed.truncate(at);
        let facts = |(id, entry): (ProducerId, &weir_psm::ProducerStateEntry)| {
            (id, entry.last_sequence(), entry.last_offset(), entry.transaction_first_offset())
        };
        let known: Vec<_> = replayed.log.producers().map(facts).collect();
        let held: Vec<_> = entries.iter().map(|(id, entry)| facts((*id, entry))).collect();
        assert_eq!(held, known, "{what}: {at}");
        found.push(at);
    }
    found
}

#[test]
fn snap_1_no_snapshot_knows_what_an_append_that_failed_would_have_changed() {
    // Refused behind its first, valid batch; then a roll.
    let bench = Bench::new(1).segment_bytes(600);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), false, 1, 100));
    let mut spoilt = placed(plain(1, 10), 2, 0);
    spoilt[70] ^= 1;
    let bytes = [&placed(data(Some((1, 0, 1)), true, 1, 100), 1, 0)[..], &spoilt].concat();
    let params = AppendParams::replication(epoch(5), NOW);
    assert!(open.append(BytesMut::from(&bytes[..]), &params).is_err());
    open.produce(plain(1, 500));
    open.sync();
    assert_eq!(check_snapshots(&bench, "refused"), [1]);
    drop(open);

    // Taken, and then not written, or in part.
    let last = data(Some((1, 0, 1)), true, 1, 100);
    let size = last.len() as u64;
    for room in [0, 30, size - 1, size] {
        let bench = Bench::new(1).segment_bytes(600);
        let mut open = bench.open_unclean();
        open.produce(data(Some((1, 0, 0)), false, 1, 100));
        open.sync();
        bench.disk.full_after(Some(room));
        open.produce(last.clone());
        open.settle();
        assert_eq!(open.log.is_offline(), room < size, "room {room}");
        // It does not close cleanly, and is opened again.
        let _refused = open.log.close(&mut *open.io);
        bench.disk.full_after(None);
        check_snapshots(&bench, &format!("closed, room {room}"));
        let mut open = bench.open_unclean();
        let next = i32::from(room == size);
        assert_eq!(
            open.log.producers().next().unwrap().1.last_sequence().unwrap().get(),
            next,
            "room {room}"
        );
        for _ in 0..2 {
            open.produce(plain(1, 500));
        }
        open.sync();
        assert!(check_snapshots(&bench, &format!("rolled, room {room}")).len() > 1);
    }
}

#[test]
fn snap_2_a_snapshot_that_lost_its_pages_is_passed_over_for_the_older_one() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..5 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 250));
    }
    open.sync();
    assert_eq!(check_snapshots(&bench, "whole"), [3, 4]);
    let (facts, producers) = (open.facts(), open.producers());
    let recovery_point = open.log.recovery_point();
    drop(open);
    let path = bench.path("00000000000000000004.snapshot");
    let whole = bench.disk.read_file(&path).unwrap();
    let from = |bench: &Bench| {
        let mut open = bench.open(OpenOptions { recovery_point, ..bench.options() });
        assert_eq!(open.facts(), facts);
        assert_equal_state(&open.producers(), &producers, "loaded");
        open.report.producer_state
    };
    assert_eq!(from(&bench.fork()), ProducerStateSource::Snapshot { offset: offset(4) });
    let mut zeros = whole.clone();
    zeros[whole.len() / 2..].fill(0);
    for spoilt in [&[][..], &whole[..whole.len() / 2], &whole[..whole.len() - 1], &zeros] {
        let damaged = bench.fork();
        damaged.disk.write_file(&path, spoilt);
        for _ in 0..2 {
            assert_eq!(from(&damaged), ProducerStateSource::Snapshot { offset: offset(3) }, "{spoilt:?}");
        }
    }
}

#[test]
fn snap_7_a_snapshot_at_a_barriers_offset_is_of_before_it_and_one_behind_it_knows_nobody() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 1, 250)); // 0
    // The snapshot of a clean stop stands where the barrier does.
    open.close();
    let mut open = bench.open_clean();
    assert_eq!(open.coordinate(barrier()).base_offset, offset(1));
    open.sync();
    let at_barrier = bench.disk.read_file(&bench.path("00000000000000000001.snapshot")).unwrap();
    assert_eq!(weir_psm::snapshot::decode(&at_barrier).unwrap().len(), 1, "it is of before the barrier");
    let facts = open.facts();
    let recovery_point = open.log.recovery_point();
    // Killed: the barrier in the tail is met again.
    let killed = bench.fork();
    killed.disk.crash(CrashPolicy::DROP_ALL);
    let mut again = killed.open(OpenOptions { recovery_point, ..killed.options() });
    assert_eq!(again.report.producer_state, ProducerStateSource::Snapshot { offset: offset(1) });
    assert_eq!((again.facts(), again.log.producers().count()), (facts.clone(), 0));
    // Stopped: the snapshot behind it holds nobody.
    open.close();
    let behind = bench.disk.read_file(&bench.path("00000000000000000002.snapshot")).unwrap();
    assert_eq!(weir_psm::snapshot::decode(&behind).unwrap(), []);
    let mut open = bench.open_clean();
    assert_eq!(open.report.producer_state, ProducerStateSource::Snapshot { offset: offset(2) });
    assert_eq!((open.facts(), open.log.producers().count()), (facts.clone(), 0));
    open.close();
    // The one of before under the name of the one behind, as a Kafka leaves it that knows no barrier.
    bench.disk.write_file(&bench.path("00000000000000000002.snapshot"), &at_barrier);
    for clean_shutdown in [true, false] {
        let foreign = bench.fork();
        let mut open = foreign.open(OpenOptions { clean_shutdown, recovery_point, ..foreign.options() });
        assert_eq!(open.report.producer_state, ProducerStateSource::Snapshot { offset: offset(1) });
        assert_eq!((open.facts(), open.log.producers().count()), (facts.clone(), 0));
    }
}

/// B7: what lies below the log start is gone for readers, and says who was there all the same.
#[test]
fn b7_without_the_partition_file_the_first_segment_is_where_a_replay_begins_and_not_the_log_start() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), false, 2, 10));
    open.coordinate(barrier());
    open.produce(data(Some((2, 0, 0)), true, 1, 10)); // 3
    open.produce(plain(2, 10));
    open.sync();
    open.log.advance_log_start(&mut *open.io, offset(5)).unwrap();
    let producers = open.producers();
    let facts = open.facts();
    open.close();
    assert!(bench.disk.remove_file(&bench.side_dir.join("partition")));
    for clean_shutdown in [true, false] {
        let replayed = bench.fork();
        let options = OpenOptions { clean_shutdown, log_start_offset: offset(5), ..replayed.options() };
        let mut open = replayed.open(options.clone());
        let reason = weir_recovery::NoSnapshot::NoPartitionFile;
        assert_eq!(open.report.producer_state, ProducerStateSource::Replay { from: offset(0), reason });
        assert_eq!(open.log.view().log_start_offset, offset(5));
        assert_eq!(open.facts().barriers, facts.barriers);
        assert_eq!(open.log.open_transactions().len(), 1);
        assert_equal_state(&open.producers(), &producers, "replayed");
        open.close();
        // Once.
        let open = replayed.open(OpenOptions { clean_shutdown: true, ..options });
        assert_eq!(open.report.producer_state, ProducerStateSource::Snapshot { offset: offset(6) });
    }
}

#[test]
fn snap_8_messages_of_before_producers_leave_no_producer_and_are_no_error() {
    for name in ["magic-v0", "magic-v1", "magic-mixed"] {
        let mut bench = Bench::new(1);
        bench.dir = format!("/golden/{name}-0").into();
        bench.disk.import(&testdata().join(name).join(format!("{name}-0")), &bench.dir).unwrap();
        let before = bench.log_bytes();
        let mut open = bench.open_unclean();
        let of_batches = open.log.producers().count();
        assert!(name == "magic-mixed" || of_batches == 0, "{name}: {of_batches}");
        let end = open.log.log_end_offset();
        assert_eq!(open.log.view().last_stable_offset, end);
        // What comes behind them has its producer, and a snapshot holds that one.
        let (first, second) = (data(Some((77, 0, 0)), false, 1, 8), data(Some((77, 0, 1)), false, 1, 8));
        let params = AppendParams::client(epoch(1_000), NOW);
        assert_eq!(open.append(first, &params).unwrap().base_offset, end);
        open.close();
        let mut open = bench.open_clean();
        assert_eq!(open.log.producers().count(), of_batches + 1, "{name}");
        assert_eq!(open.append(second, &params).unwrap().base_offset, end.next().unwrap());
        open.sync();
        assert_eq!(bench.log_bytes()[..before.len()], before, "{name}: untouched");
    }
}

/// What a disk was asked for, and what it keeps back.
#[derive(Default)]
struct Asked {
    lists: Cell<usize>,
    /// Syncs of files with these endings do not end.
    slow: Cell<&'static [&'static str]>,
    kept_back: RefCell<Vec<Done>>,
}

struct Watched {
    inner: SimIo,
    asked: Rc<Asked>,
}

fn watched(bench: &Bench, options: OpenOptions) -> (Open, Rc<Asked>) {
    let asked = Rc::new(Asked::default());
    let mut io = Watched { inner: bench.disk.io(), asked: Rc::clone(&asked) };
    let (log, report) =
        weir_log::UnifiedLog::open(&mut io, &bench.dir, bench.config.clone(), options).unwrap();
    (Open { io: Box::new(io), log, report }, asked)
}

impl Io for Watched {
    fn open(&mut self, path: &Path, how: How) -> Result<FileId, IoError> {
        self.inner.open(path, how)
    }
    fn close(&mut self, file: FileId) -> Result<(), IoError> {
        self.inner.close(file)
    }
    fn path(&self, file: FileId) -> PathBuf {
        self.inner.path(file)
    }
    fn write_alignment(&self, file: FileId) -> u64 {
        self.inner.write_alignment(file)
    }
    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        self.inner.len(file)
    }
    fn advise(&mut self, file: FileId, advice: Advice) {
        self.inner.advise(file, advice);
    }
    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        self.inner.truncate(file, len)
    }
    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), IoError> {
        self.inner.rename(from, to)
    }
    fn remove(&mut self, path: &Path) -> Result<(), IoError> {
        self.inner.remove(path)
    }
    fn list(&mut self, dir: &Path) -> Result<Vec<PathBuf>, IoError> {
        self.asked.lists.set(self.asked.lists.get() + 1);
        self.inner.list(dir)
    }
    fn metadata(&mut self, path: &Path) -> Result<Option<Metadata>, IoError> {
        self.inner.metadata(path)
    }
    fn create_dir_all(&mut self, dir: &Path) -> Result<(), IoError> {
        self.inner.create_dir_all(dir)
    }
    fn sync_dir(&mut self, dir: &Path) -> Result<(), IoError> {
        self.inner.sync_dir(dir)
    }
    fn submit(&mut self, ticket: Ticket, op: Op) -> Result<(), Op> {
        self.inner.submit(ticket, op)
    }
    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        let mut all = Vec::new();
        self.inner.reap(wait, &mut all)?;
        for one in all {
            let path = self.inner.path(one.op.file());
            let is_slow = |ending: &&str| path.to_str().unwrap().ends_with(ending);
            if matches!(one.op, Op::Sync { .. }) && self.asked.slow.get().iter().any(is_slow) {
                self.asked.kept_back.borrow_mut().push(one);
            } else {
                done.push(one);
            }
        }
        Ok(())
    }
    fn put_back(&mut self, done: Vec<Done>) {
        self.inner.put_back(done);
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.asked.kept_back.borrow().len()
    }
    fn waker(&self) -> IoWaker {
        self.inner.waker()
    }
}

#[test]
fn n_snap_2_deleting_records_lists_no_directory_however_much_is_in_it() {
    let bench = Bench::new(1).segment_bytes(300);
    for number in 0..500 {
        bench.disk.write_file(&bench.path(&format!("{number:06}.of-somebody")), b"");
    }
    let (mut open, asked) = watched(&bench, bench.options());
    assert!(asked.lists.get() > 0, "a start lists it");
    for sequence in 0..40 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 250));
        open.sync();
    }
    assert_eq!(open.log.segments().len(), 40);
    asked.lists.set(0);
    for (sequence, start) in (40..).zip((1..40).step_by(3)) {
        // As a shard does it: the log start at once, the segments later, appends and their snapshots in between.
        open.log.move_log_start(offset(start)).unwrap();
        open.produce(data(Some((1, 0, sequence)), false, 1, 250));
        open.sync();
        open.log.delete_old_segments(&mut *open.io, NOW, DeletionScope::BelowLogStart, 9).unwrap();
        assert_eq!(open.log.segments()[0].base_offset, offset(start));
        open.log.advance_log_start(&mut *open.io, offset(start + 1)).unwrap();
        assert_eq!(open.log.segments()[0].base_offset, offset(start + 1));
    }
    assert_eq!(asked.lists.get(), 0);
}

#[test]
fn n_snap_3_a_snapshot_whose_sync_does_not_end_holds_up_neither_appends_nor_acknowledgements() {
    for slow in [&[".snapshot.tmp"][..], &["/partition.tmp"]] {
        let bench = Bench::new(5).segment_bytes(700);
        let (mut open, asked) = watched(&bench, bench.options());
        asked.slow.set(slow);
        let named = |open: &Open| open.log.partition_file().snapshots().count();
        for sequence in 0..40 {
            let batch = data(Some((1, 0, sequence)), false, 1, 200);
            open.log.append(&mut *open.io, batch, &client()).unwrap();
            // acks=all waits for the sync of the data alone.
            open.sync();
            assert_eq!(open.log.view().high_watermark, offset(i64::from(sequence) + 1));
            while open.log.snapshot_step(&mut *open.io) {}
        }
        assert!(open.log.segments().len() > 10 && open.log.is_writing_snapshot());
        assert_eq!((named(&open), asked.kept_back.borrow().len()), (0, 1), "{slow:?}");
        // The recovery point is where the data is durable, and a start at it knows the producers without the snapshot.
        let recovery_point = open.log.recovery_point();
        assert_eq!(recovery_point, offset(40));
        let state = open.producers();
        let killed = bench.fork();
        killed.disk.crash(CrashPolicy::DROP_ALL);
        let found = killed.open(OpenOptions { recovery_point, ..killed.options() });
        assert!(matches!(found.report.producer_state, ProducerStateSource::Replay { .. }));
        assert_equal_state(&found.producers(), &state, "without a snapshot");
        // The sync ends, and what waited for it goes on.
        asked.slow.set(&[]);
        let ended = std::mem::take(&mut *asked.kept_back.borrow_mut());
        open.io.put_back(ended);
        open.log.finish_snapshot(&mut *open.io);
        assert_eq!(named(&open), 1, "{slow:?}");
        check_snapshots(&bench, "ended");
    }
}

/// Without a batch the parts that a test looks at are not there.
#[test]
fn batches_of_these_tests_are_what_they_say() {
    let batch = placed(with_gaps(&[0, 3], 9), 0, 0);
    let batch = RecordBatch::parse(&batch).unwrap();
    let deltas: Vec<i64> = batch.records().unwrap().map(|record| record.unwrap().offset.get()).collect();
    assert_eq!((deltas, batch.next_offset()), (vec![0, 3], offset(10)));
}
