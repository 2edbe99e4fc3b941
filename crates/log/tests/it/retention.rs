//! What is deleted from the start of a log, when, and what stays known.

use bytes::BytesMut;
use weir_format::{BatchBuilder, TimestampMs, TimestampType};
use weir_log::{AppendParams, ChangeError, Deleted, DeletionScope, Isolation, RetentionConfig, UnifiedLog};

use super::support::*;

const HOUR: i64 = 60 * 60 * 1_000;

fn later(ms: i64) -> TimestampMs {
    TimestampMs::new(NOW.get() + ms)
}

/// One record of about 200 bytes with this timestamp: two of them fill a segment.
fn at(timestamp: i64) -> BytesMut {
    BatchBuilder::new().record(TimestampMs::new(timestamp), None, Some(&[b'v'; 130])).build().unwrap()
}

fn bench(retention: RetentionConfig) -> Bench {
    let mut bench = Bench::new(3).segment_bytes(450);
    bench.config.retention = retention;
    bench.config.segment.segment_ms = i64::MAX;
    bench
}

fn by_time(ms: i64) -> RetentionConfig {
    RetentionConfig { ms: Some(ms.unsigned_abs()), ..RetentionConfig::default() }
}

fn by_size(bytes: u64) -> RetentionConfig {
    RetentionConfig { bytes: Some(bytes), ..RetentionConfig::default() }
}

/// A log of batches with these timestamps, two in a segment, all durable.
fn log_of_times(bench: &Bench, times: &[i64]) -> Open {
    let mut open = bench.open_unclean();
    for &time in times {
        open.produce(at(time));
    }
    open.sync();
    open
}

fn delete(open: &mut Open, now: TimestampMs) -> Deleted {
    open.log.delete_old_segments(&mut *open.io, now, DeletionScope::Retention, usize::MAX).unwrap()
}

fn bases(log: &UnifiedLog) -> Vec<i64> {
    log.segments().iter().map(|segment| segment.base_offset.get()).collect()
}

fn start(open: &Open) -> i64 {
    open.log.view().log_start_offset.get()
}

#[test]
fn a_segment_expires_by_its_largest_timestamp_and_none_before_an_older_one() {
    let now = NOW.get();
    // The largest of each segment: now - 3 h, now - 5 h, now.
    let times = [-4 * HOUR, -3 * HOUR, -9 * HOUR, -5 * HOUR, -9 * HOUR, 0];
    let mut open = log_of_times(&bench(by_time(4 * HOUR)), &times.map(|ago| now + ago));
    assert_eq!(bases(&open.log), [0, 2, 4]);
    // The second has expired and the first has not: neither goes.
    assert_eq!(delete(&mut open, NOW), Deleted::default());
    // At the limit it stays, behind it both go.
    assert_eq!(delete(&mut open, later(HOUR)).segment_count, 0);
    let deleted = delete(&mut open, later(HOUR + 1));
    assert_eq!((deleted.segment_count, deleted.has_more), (2, false));
    assert!(deleted.size > 700, "{deleted:?}");
    assert_eq!((bases(&open.log), start(&open)), (vec![4], 4));
    assert_eq!(open.log.stats().segments_deleted, 2);
    assert_eq!(open.log.stats().bytes_deleted, deleted.size);
}

#[test]
fn an_active_segment_that_has_expired_is_left_and_goes() {
    let mut open = log_of_times(&bench(by_time(HOUR)), &[NOW.get(); 3]);
    assert_eq!(bases(&open.log), [0, 2]);
    assert_eq!(delete(&mut open, later(HOUR + 1)).segment_count, 2);
    let view = open.log.view();
    assert_eq!((bases(&open.log), start(&open)), (vec![3], 3));
    assert_eq!(
        (view.high_watermark, view.log_end_offset, view.last_stable_offset),
        (offset(3), offset(3), offset(3))
    );
    // An empty active segment is never deleted.
    assert_eq!(delete(&mut open, later(100 * HOUR)), Deleted::default());
    assert_eq!(open.produce(at(NOW.get())).base_offset, offset(3));
}

#[test]
fn nothing_goes_that_is_not_below_the_high_watermark() {
    let bench = bench(by_time(HOUR));
    let mut open = bench.open_unclean();
    open.produce(at(NOW.get()));
    assert_eq!(delete(&mut open, later(2 * HOUR)).segment_count, 0, "it is not durable");
    open.sync();
    assert_eq!(delete(&mut open, later(2 * HOUR)).segment_count, 1);
}

#[test]
fn by_size_a_segment_goes_while_the_log_is_large_enough_without_it() {
    let open = log_of_times(&bench(by_size(u64::MAX)), &[NOW.get(); 7]);
    let sizes: Vec<u64> = open.log.segments().iter().map(|segment| segment.size).collect();
    let (total, first) = (sizes.iter().sum::<u64>(), sizes[0]);
    assert_eq!(sizes.len(), 4);
    for (bytes, left) in [
        (total, vec![0, 2, 4, 6]),
        (total - first + 1, vec![0, 2, 4, 6]),
        (total - first, vec![2, 4, 6]),
        (total - 2 * first + 1, vec![2, 4, 6]),
        (total - 3 * first, vec![6]),
    ] {
        let bench = bench(by_size(bytes));
        let mut open = log_of_times(&bench, &[NOW.get(); 7]);
        delete(&mut open, NOW);
        assert_eq!(bases(&open.log), left, "{bytes} of {total}");
        assert!(open.log.stats().size >= bytes.min(total), "never less than is to be kept");
    }
    // Nothing is to be kept: the active segment goes as well.
    let mut open = log_of_times(&bench(by_size(0)), &[NOW.get(); 3]);
    assert_eq!(delete(&mut open, NOW).segment_count, 2);
    assert_eq!(bases(&open.log), [3]);
    delete(&mut open, NOW);
    assert_eq!(bases(&open.log), [3]);
}

#[test]
fn what_goes_by_its_age_counts_for_the_size_from_the_next_look_on() {
    let expired = NOW.get() - 2 * HOUR;
    let bench = bench(RetentionConfig { bytes: Some(700), ..by_time(HOUR) });
    // The first is larger than what is too much, and expired; the second is not.
    let mut open = bench.open_unclean();
    let large =
        BatchBuilder::new().record(TimestampMs::new(expired), None, Some(&[b'v'; 380])).build().unwrap();
    open.produce(large);
    for _ in 0..4 {
        open.produce(at(NOW.get()));
    }
    open.sync();
    assert_eq!(bases(&open.log), [0, 1, 3]);
    assert_eq!(delete(&mut open, NOW).segment_count, 1);
    assert_eq!(bases(&open.log), [1, 3]);
}

#[test]
fn a_look_deletes_no_more_than_it_may() {
    let mut open = log_of_times(&bench(by_time(HOUR)), &[NOW.get() - 2 * HOUR; 7]);
    let mut counts = Vec::new();
    loop {
        let once = open.log.delete_old_segments(&mut *open.io, NOW, DeletionScope::Retention, 2).unwrap();
        counts.push((once.segment_count, start(&open)));
        if !once.has_more {
            break;
        }
    }
    assert_eq!(counts, [(2, 4), (2, 7), (0, 7)]);
    assert_eq!(bases(&open.log), [7]);
}

#[test]
fn without_delete_only_what_is_below_the_log_start_goes() {
    let mut bench = bench(RetentionConfig { bytes: Some(0), ..by_time(0) });
    bench.config.delete = false;
    let mut open = log_of_times(&bench, &[NOW.get() - HOUR; 7]);
    assert_eq!(delete(&mut open, NOW).segment_count, 0);
    open.log.move_log_start(offset(5)).unwrap();
    assert!(open.log.has_segments_below_start());
    assert_eq!((bases(&open.log), start(&open)), (vec![0, 2, 4, 6], 5));
    assert_eq!(delete(&mut open, NOW).segment_count, 2);
    assert_eq!((bases(&open.log), start(&open)), (vec![4, 6], 5));
    assert!(!open.log.has_segments_below_start());
}

/// O5: while it is mirrored, the log start follows the source's and nothing else is deleted.
#[test]
fn n_time_3_a_mirrored_log_deletes_what_its_source_deleted_and_nothing_else() {
    let six_days = 6 * 24 * HOUR;
    let bench = bench(by_time(7 * 24 * HOUR));
    let mut open = bench.open_unclean();
    for (base, _) in (0..4).zip(0..) {
        open.replicate(placed(at(NOW.get() - six_days), base, 0));
    }
    open.sync();
    let mirrored = |open: &mut Open| {
        let now = later(2 * 24 * HOUR);
        open.log
            .delete_old_segments(&mut *open.io, now, DeletionScope::BelowLogStart, 9)
            .unwrap()
            .segment_count
    };
    assert_eq!(mirrored(&mut open), 0);
    open.log.move_log_start(offset(2)).unwrap();
    assert_eq!(mirrored(&mut open), 1);
    // Once it is its own, records are as old as they are, not as their copy is.
    assert_eq!(delete(&mut open, later(HOUR)).segment_count, 0);
    assert_eq!(delete(&mut open, later(25 * HOUR)).segment_count, 1);
}

#[test]
fn n_time_1_a_timestamp_of_the_future_keeps_its_segment_and_size_does_not_ask_for_it() {
    let year = 365 * 24 * HOUR;
    let times =
        [NOW.get() - 9 * HOUR, NOW.get() + 10 * year, NOW.get() - 9 * HOUR, NOW.get() - 9 * HOUR, NOW.get()];
    let mut open = log_of_times(&bench(by_time(HOUR)), &times);
    let deleted = delete(&mut open, NOW);
    assert_eq!((deleted.segment_count, deleted.future_timestamp), (0, Some(later(10 * year))));

    let mut open = log_of_times(&bench(RetentionConfig { bytes: Some(600), ..by_time(HOUR) }), &times);
    assert_eq!(delete(&mut open, NOW).segment_count, 2, "one by size, and then one by time");

    // The age of the file counts, if that is wanted. Files of the simulated disk are of 1970.
    let retention = RetentionConfig { future_by_file_age: true, ..by_time(HOUR) };
    let mut open = log_of_times(&bench(retention), &times);
    let deleted = delete(&mut open, NOW);
    assert_eq!((deleted.segment_count, deleted.future_timestamp), (2, Some(later(10 * year))));
}

#[test]
fn n_time_2_with_append_times_the_clients_time_drives_nothing() {
    let mut bench = bench(by_time(HOUR));
    bench.config.message_timestamp_type = TimestampType::LogAppendTime;
    let year = 365 * 24 * HOUR;
    let mut open = log_of_times(&bench, &[NOW.get() + 10 * year; 3]);
    let batch = weir_format::RecordBatch::parse(&open.read_all(Isolation::Uncommitted))
        .map(|batch| (batch.max_timestamp(), batch.timestamp_type()));
    assert_eq!(batch.unwrap(), (NOW, TimestampType::LogAppendTime), "the CRC fits as well");
    let deleted = delete(&mut open, later(HOUR + 1));
    assert_eq!((deleted.segment_count, deleted.future_timestamp), (2, None));
}

#[test]
fn a_segment_without_timestamps_is_as_old_as_its_file() {
    let mut open = log_of_times(&bench(by_time(HOUR)), &[-1; 3]);
    // The simulated disk's clock began at 0 and has not come far.
    assert_eq!(delete(&mut open, TimestampMs::new(HOUR - 1)).segment_count, 0);
    assert_eq!(delete(&mut open, TimestampMs::new(3 * HOUR)).segment_count, 2);
}

/// The same bytes, the same end and high watermark, before and after a restart, by retention and by DeleteRecords.
#[test]
fn n_trunc_1_removing_the_first_segment_shifts_nothing() {
    for by_retention in [true, false] {
        let bench = bench(by_time(HOUR));
        let mut open = log_of_times(&bench, &[-2 * HOUR, -2 * HOUR, 0, 0, 0].map(|ago| NOW.get() + ago));
        let before = open.read(2, 1 << 20, Isolation::Uncommitted).bytes;
        if by_retention {
            delete(&mut open, NOW);
        } else {
            open.log.advance_log_start(&mut *open.io, offset(2)).unwrap();
        }
        let look = |open: &mut Open| {
            let view = open.log.view();
            let bytes = open.read(2, 1 << 20, Isolation::Uncommitted).bytes;
            (bytes, view.log_start_offset.get(), view.high_watermark.get(), view.log_end_offset.get())
        };
        let expected = (before, 2, 5, 5);
        assert_eq!(look(&mut open), expected);
        assert_eq!(bases(&open.log), [2, 4]);
        drop(open);
        // Not even the log start's checkpoint was written.
        let mut open = bench.open_unclean();
        assert_eq!(look(&mut open), expected);
        open.close();
        let mut open = bench.open_clean();
        assert_eq!(look(&mut open), expected);
    }
}

/// SNAP-6, KIP-360: who wrote what is gone may go on.
#[test]
fn snap_6_a_producer_goes_on_when_all_its_records_are_deleted() {
    let bench = bench(by_time(HOUR));
    let mut open = bench.open_unclean();
    open.produce(data(Some((5, 0, 0)), false, 3, 60));
    open.sync();
    assert_eq!(delete(&mut open, later(2 * HOUR)).segment_count, 0, "what is known of 5 is written first");
    open.log.finish_snapshot(&mut *open.io);
    assert_eq!(delete(&mut open, later(2 * HOUR)).segment_count, 1);
    assert_eq!(start(&open), 3);
    let again = open.produce(data(Some((5, 0, 3)), false, 1, 60));
    assert_eq!((again.base_offset, again.duplicate), (offset(3), false));
    // The one before is still known: sent again it is answered.
    assert!(open.produce(data(Some((5, 0, 0)), false, 3, 60)).duplicate);
    open.close();
    let mut open = bench.open_clean();
    let next = open.produce(data(Some((5, 0, 4)), false, 1, 60));
    assert_eq!(next.base_offset, offset(4));
}

/// SNAP-4.
#[test]
fn snap_4_snapshots_of_before_the_first_segment_go_and_later_ones_stay() {
    let bench = bench(by_time(HOUR));
    let mut open =
        log_of_times(&bench, &[-2 * HOUR, -2 * HOUR, -2 * HOUR, -2 * HOUR, 0].map(|ago| NOW.get() + ago));
    let snapshots =
        |open: &Open| open.log.partition_file().snapshots().map(|(at, _)| at.get()).collect::<Vec<_>>();
    let on_disk = |bench: &Bench| {
        let names = bench
            .disk
            .files()
            .into_iter()
            .filter(|path| path.extension().is_some_and(|kind| kind == "snapshot"));
        names.map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap()).collect::<Vec<i64>>()
    };
    assert_eq!((snapshots(&open), on_disk(&bench)), (vec![2, 4], vec![2, 4]));
    open.log.move_log_start(offset(3)).unwrap();
    open.log.delete_old_segments(&mut *open.io, NOW, DeletionScope::BelowLogStart, 9).unwrap();
    assert_eq!(
        (snapshots(&open), on_disk(&bench)),
        (vec![2, 4], vec![2, 4]),
        "the first segment begins at 2"
    );
    delete(&mut open, NOW);
    assert_eq!((snapshots(&open), on_disk(&bench)), (vec![4], vec![4]));
    // With all of the log gone, so are they; producers are still known, see SNAP-6.
    delete(&mut open, later(2 * HOUR));
    assert_eq!((snapshots(&open), bases(&open.log)), (on_disk(&bench), vec![5]));
}

/// A log start inside of an open transaction: the last stable offset is the log start until the transaction ends, and the
/// marker that ends it is taken as always.
#[test]
fn a_log_start_inside_a_transaction_bounds_what_is_stable_and_breaks_nothing() {
    let bench = bench(by_time(HOUR));
    let mut open = bench.open_unclean();
    open.produce(data(Some((5, 0, 0)), true, 1, 130)); // 0
    open.produce(at(NOW.get())); // 1
    open.produce(data(Some((5, 0, 1)), true, 1, 130)); // 2
    open.produce(at(NOW.get())); // 3
    open.sync();
    assert_eq!(open.log.view().last_stable_offset, offset(0));
    open.log.move_log_start(offset(2)).unwrap();
    open.log.delete_old_segments(&mut *open.io, NOW, DeletionScope::BelowLogStart, 9).unwrap();
    assert_eq!((bases(&open.log), start(&open)), (vec![2], 2));
    assert_eq!(open.log.view().last_stable_offset, offset(2));
    assert_eq!(open.read(2, 1 << 20, Isolation::Committed).bytes.len(), 0);
    let reopened = {
        let fork = bench.fork();
        let options = weir_log::OpenOptions { log_start_offset: offset(2), ..fork.options() };
        fork.open(options)
    };
    // The segment in which it began is gone: replayed from what is there, it begins where its first record is.
    assert_eq!(reopened.log.view().last_stable_offset, offset(2));
    open.coordinate(marker(false, 5, 0, 0)); // 4
    open.sync();
    assert_eq!(open.log.view().last_stable_offset, offset(5));
    let read = open.read(2, 1 << 20, Isolation::Committed);
    let aborted: Vec<(i64, i64)> =
        read.aborted.iter().map(|entry| (entry.producer_id.get(), entry.first_offset.get())).collect();
    assert_eq!(aborted, [(5, 0)]);
    assert_eq!(open.log.open_transactions(), []);
}

#[test]
fn a_log_start_never_passes_the_high_watermark() {
    let bench = bench(RetentionConfig::default());
    let mut open = bench.open_unclean();
    open.produce(at(NOW.get()));
    open.sync();
    open.produce(at(NOW.get()));
    let refused = open.log.move_log_start(offset(2));
    assert!(matches!(refused, Err(ChangeError::OffsetOutOfRange { .. })), "{refused:?}");
    open.log.move_log_start(offset(1)).unwrap();
    open.log.move_log_start(offset(0)).unwrap();
    assert_eq!(start(&open), 1);
}

/// What is deleted while a snapshot is written, at whatever point, leaves a log that opens as the bytes say.
#[test]
fn deleting_beside_a_snapshot_under_way_keeps_what_the_partition_file_says_true() {
    for steps in 0..12 {
        let bench = bench(by_time(HOUR));
        let mut open = bench.open_unclean();
        for time in [-2 * HOUR, -2 * HOUR, -2 * HOUR, -2 * HOUR] {
            open.produce(at(NOW.get() + time));
        }
        open.sync();
        let params = AppendParams::client(epoch(0), NOW);
        open.log.append(&mut *open.io, at(NOW.get()), &params).unwrap();
        assert!(open.log.is_writing_snapshot());
        for _ in 0..steps {
            open.log.snapshot_step(&mut *open.io);
            take(&mut open);
        }
        open.sync();
        assert_eq!(delete(&mut open, NOW).segment_count, 2, "{steps} steps");
        open.log.finish_snapshot(&mut *open.io);
        let named: Vec<i64> = open.log.partition_file().snapshots().map(|(at, _)| at.get()).collect();
        assert_eq!(named, [4], "{steps} steps");
        for name in named {
            assert!(bench.disk.read_file(&bench.path(&format!("{name:020}.snapshot"))).is_some());
        }
        let state = open.producers();
        drop(open);
        let open = bench.open_unclean();
        assert_equal_state(&open.producers(), &state, "reopened");
        assert!(!bench.disk.files().iter().any(|path| path.extension().is_some_and(|kind| kind == "tmp")));
    }
}

/// Takes in what has ended, if something has.
pub(crate) fn take(open: &mut Open) {
    let mut done = Vec::new();
    open.io.reap(weir_segment::io::Wait::Poll, &mut done).unwrap();
    for done in done {
        open.log.on_done(done).map_err(|_| "nobody else uses this disk").unwrap();
    }
}

#[test]
fn segments_of_a_topic_with_jitter_are_left_at_times_of_their_own() {
    let day = 24 * HOUR;
    let mut bench = Bench::new(1);
    bench.config.segment.segment_ms = day;
    bench.config.segment_jitter_ms = 6 * HOUR;
    let mut open = bench.open_unclean();
    let mut lasted = Vec::new();
    let mut first = NOW.get();
    for step in 0..600 {
        let time = NOW.get() + step * HOUR / 4;
        let before = bases(&open.log).len();
        open.produce(at(time));
        if bases(&open.log).len() > before {
            lasted.push(time - first);
            first = time;
        }
    }
    assert!(lasted.len() >= 6, "{lasted:?}");
    // A step is a quarter of an hour, and the batch that comes too late starts the next one.
    assert!(lasted.iter().all(|ms| (18 * HOUR..=day + HOUR / 2).contains(ms)), "{lasted:?}");
    lasted.dedup();
    assert!(lasted.len() > 3, "{lasted:?}");
}

#[test]
fn no_segment_goes_that_a_start_would_need_to_know_the_producers() {
    // The snapshot of the last segment is not begun, under way, durable, and cannot be written.
    for (steps, broken) in [(0, false), (2, false), (usize::MAX, false), (0, true)] {
        let bench = bench(by_time(HOUR));
        let mut open = bench.open_unclean();
        for sequence in 0..4 {
            open.produce(data(Some((5, 0, sequence)), false, 1, 130));
        }
        open.sync();
        let much_later = later(3 * HOUR);
        // The active one is left for a new one, whose snapshot has to be there first.
        let first = delete(&mut open, much_later);
        assert!(open.log.is_writing_snapshot());
        assert_eq!(first.segment_count, 1, "behind it lies a snapshot: {:?}", bases(&open.log));
        if broken {
            bench.disk.full_after(Some(0));
            open.log.finish_snapshot(&mut *open.io);
            bench.disk.full_after(None);
        }
        for _ in 0..steps.min(100) {
            open.log.snapshot_step(&mut *open.io);
            take(&mut open);
        }
        let whole = steps == usize::MAX || broken;
        assert_eq!(delete(&mut open, much_later).segment_count, usize::from(whole), "{steps} steps");
        let state = open.producers();
        if broken {
            continue;
        }
        drop(open);
        bench.disk.crash(weir_segment::io::sim::CrashPolicy::DROP_ALL);
        let open = bench.open_unclean();
        assert_equal_state(&open.producers(), &state, &format!("{steps} steps"));
    }
}

#[test]
fn a_log_start_that_moves_keeps_the_segments_that_a_start_would_need() {
    let bench = bench(RetentionConfig::default());
    let mut open = bench.open_unclean();
    for sequence in 0..4 {
        let params = AppendParams::client(epoch(0), NOW);
        open.log.append(&mut *open.io, data(Some((5, 0, sequence)), false, 1, 130), &params).unwrap();
    }
    open.sync();
    assert!(open.log.is_writing_snapshot() && bases(&open.log).len() > 1, "{:?}", bases(&open.log));
    let end = open.log.log_end_offset();
    open.log.advance_log_start(&mut *open.io, end).unwrap();
    assert_eq!((start(&open), bases(&open.log)[0]), (end.get(), 0));
    // Whoever asks again and again until none are left does not ask for these.
    assert!(!open.log.has_segments_below_start());
    open.log.finish_snapshot(&mut *open.io);
    assert!(open.log.has_segments_below_start());
    open.log.delete_old_segments(&mut *open.io, NOW, DeletionScope::BelowLogStart, 9).unwrap();
    assert_ne!(bases(&open.log)[0], 0);
    let state = open.producers();
    drop(open);
    assert_equal_state(&bench.open_unclean().producers(), &state, "reopened");
}

/// All of a log is old, and its active segment is left for a new one. A write fails somewhere on the way, the power goes at
/// some operation behind it, and nobody has written a recovery point down, or the newest.
#[test]
fn the_newest_epoch_outlives_the_last_batch_that_has_it() {
    let mut deleted = 0;
    for with_producer in [false, true] {
        for nth in 0..12 {
            for op in 1..200 {
                let bench = bench(by_time(HOUR));
                let mut open = bench.open_unclean();
                for number in 0..4 {
                    let producer = with_producer.then_some((5, 0, i32::try_from(number).unwrap()));
                    let epoch = if number < 3 { 0 } else { 7 };
                    open.replicate(placed(data(producer, false, 1, 130), number, epoch));
                }
                open.sync();
                bench.disk.fail_write(nth);
                bench.disk.crash_at(bench.disk.op_count() + op);
                let much_later = later(3 * HOUR);
                for _ in 0..3 {
                    let scope = DeletionScope::Retention;
                    if open.log.delete_old_segments(&mut *open.io, much_later, scope, 9).is_err() {
                        break;
                    }
                    open.log.finish_snapshot(&mut *open.io);
                }
                let is_over = !bench.disk.is_off();
                deleted += open.log.stats().segments_deleted;
                let recovery_point = open.log.recovery_point();
                drop(open);
                bench.disk.fail_write(u64::MAX);
                bench.disk.crash(weir_segment::io::sim::CrashPolicy::DROP_ALL);
                for recovery_point in [offset(0), recovery_point] {
                    let again = bench.fork();
                    let options = weir_log::OpenOptions { recovery_point, ..again.options() };
                    let open = again.open(options);
                    let what = format!("write {nth}, op {op}, from {recovery_point}");
                    assert_eq!(open.log.log_end_offset(), offset(4), "{what}");
                    assert_eq!(open.log.latest_epoch(), Some(epoch(7)), "{what}");
                }
                if is_over {
                    break;
                }
            }
        }
    }
    assert!(deleted > 50, "{deleted}");
}

#[test]
fn producers_of_deleted_segments_are_known_whatever_recovery_point_was_written_down() {
    for kept in 1..5 {
        let bench = bench(RetentionConfig::default());
        let mut open = bench.open_unclean();
        open.produce(data(Some((5, 0, 0)), false, 1, 130));
        for number in 0..9 {
            open.produce(data(Some((6, 0, number)), false, 1, 130));
        }
        open.sync();
        let segments = bases(&open.log);
        let start = offset(segments[segments.len() - kept]);
        open.log.advance_log_start(&mut *open.io, start).unwrap();
        assert_eq!(open.log.segments().len(), kept);
        let state = open.producers();
        drop(open);
        for recovery_point in segments {
            let again = bench.fork();
            let options = weir_log::OpenOptions { recovery_point: offset(recovery_point), ..again.options() };
            let what = format!("{kept} segments, from {recovery_point}");
            assert_equal_state(&again.open(options).producers(), &state, &what);
        }
    }
}
