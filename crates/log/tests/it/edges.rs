//! Edges that the laws meet only together: a cut inside a batch and a torn tail behind it, a spoilt index and a snapshot
//! in the middle of its segment, a full disk and an index that has to be built again.

use std::path::Path;

use bytes::BytesMut;
use proptest::prelude::*;
use weir_format::{BatchBuilder, BatchReader, Offset, RecordBatch, TimestampMs};
use weir_log::{AppendError, AppendParams, ChangeError, Isolation, OffsetSpec, OpenOptions, ReadError};
use weir_psm::{ProducerStateManager, PsmConfig};
use weir_recovery::partition_file::crc32c;
use weir_recovery::{CutKind, LoadError, NoSnapshot, PartitionFile, ProducerStateSource};
use weir_segment::io::sim::{CrashPolicy, DataFate, NameFate};
use weir_segment::io::{Io, Open as How};

use super::splits::{append_all, source, step};
use super::support::*;

fn replication() -> AppendParams {
    AppendParams::replication(epoch(5), NOW)
}

/// Offset and CRC of every batch that a reader of this isolation gets, and what it is told to leave out.
fn seen(open: &mut Open, isolation: Isolation) -> (Vec<i64>, Vec<(i64, i64)>) {
    let read = open.read(open.log.view().log_start_offset.get(), 1 << 20, isolation);
    let bases = BatchReader::new(&read.bytes).map(|batch| batch.unwrap().base_offset().get()).collect();
    let aborted = read.aborted.iter().map(|entry| (entry.first_offset.get(), entry.last_offset.get()));
    (bases, aborted.collect())
}

/// Three batches, of which the second was aborted.
fn with_an_aborted_transaction(bench: &Bench) -> Open {
    let mut open = bench.open_unclean();
    open.produce(plain(1, 10)); // 0
    open.produce(data(Some((1, 0, 0)), true, 1, 10)); // 1
    open.coordinate(marker(false, 1, 0, 0)); // 2
    open.sync();
    open
}

#[test]
fn a_log_start_inside_a_transaction_bounds_the_last_stable_offset_after_a_restart_too() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 3, 10));
    open.produce(plain(2, 10));
    open.sync();
    open.log.advance_log_start(&mut *open.io, offset(4)).unwrap();
    let live = open.log.view();
    assert_eq!(live.last_stable_offset, offset(4));
    drop(open);
    let mut options = bench.options();
    options.log_start_offset = offset(4);
    let mut open = bench.open(options);
    assert_eq!(open.log.view().last_stable_offset, live.last_stable_offset);
    // A consumer that is sent there is not out of range.
    let end = open.log.offset_for(&mut *open.io, OffsetSpec::Latest, Isolation::Committed).unwrap().unwrap();
    assert!(open.log.read(&mut *open.io, end.offset, 1 << 20, Isolation::Committed, true).is_ok());
}

#[test]
fn a_torn_tail_behind_a_cut_inside_a_batch_is_cut_and_not_called_corruption() {
    // The recovery point on disk is from before the cut, whose offset lies in the middle of a batch.
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    for base in [0, 10, 20] {
        open.replicate(placed(plain(10, 10), base, 0));
    }
    open.sync();
    let recovery_point = open.log.recovery_point();
    open.truncate(25);
    assert_eq!(open.log.log_end_offset(), offset(20));
    open.replicate(placed(plain(3, 300), 20, 1));
    open.settle();
    drop(open);
    let path = bench.path("00000000000000000000.log");
    let whole = bench.disk.read_file(&path).unwrap();
    bench.disk.write_file(&path, &whole[..whole.len() - 100]);
    let mut options = bench.options();
    options.recovery_point = recovery_point;
    let open = bench.open(options);
    assert_eq!(open.log.log_end_offset(), offset(20));
    assert_eq!(open.report.cuts.len(), 1);
}

#[test]
fn a_cut_of_which_everything_is_durable_again_is_forgotten_at_the_next() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.replicate(placed(plain(60, 1), 0, 0));
    open.sync();
    open.truncate(0);
    for base in (0..100).step_by(10) {
        open.replicate(placed(plain(10, 1), base, 1));
    }
    open.sync();
    open.truncate(90);
    // A recovery point of 50 covers bytes that were synced: rot in them is no torn tail.
    assert_eq!(open.log.partition_file().effective_recovery_point(offset(50)), offset(50));
    assert_eq!(open.log.partition_file().effective_recovery_point(offset(100)), offset(90));
}

#[test]
fn a_cut_above_one_that_is_not_made_up_for_does_not_forget_it() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.replicate(placed(plain(60, 1), 0, 0));
    open.sync();
    open.truncate(0);
    open.replicate(placed(plain(10, 1), 0, 1));
    open.replicate(placed(plain(10, 1), 10, 1));
    open.truncate(10);
    // A recovery point of 60 is from before the first cut: nothing is known to be synced by it.
    assert_eq!(open.log.partition_file().effective_recovery_point(offset(60)), offset(0));
}

#[test]
fn a_duplicate_waits_for_its_original() {
    let mut open = Bench::new(1).open_unclean();
    let first = open.produce(data(Some((1, 0, 0)), false, 3, 10));
    let again = open.produce(data(Some((1, 0, 0)), false, 3, 10));
    assert_eq!((again.duplicate, again.durable_at), (true, first.durable_at));
    assert!(open.log.view().high_watermark < again.durable_at);
}

#[test]
fn as_much_as_may_be_unsynced_is_taken() {
    let batch = plain(1, 100);
    let mut bench = Bench::new(1);
    bench.config.max_unsynced_bytes = 2 * u64::try_from(batch.len()).unwrap();
    let mut open = bench.open_unclean();
    for _ in 0..2 {
        open.produce(batch.clone());
    }
    let third = open.append(batch, &AppendParams::client(epoch(0), NOW));
    assert!(matches!(third, Err(AppendError::TooMuchUnsynced { .. })), "{third:?}");
}

#[test]
fn rot_in_what_was_acknowledged_after_a_cut_is_corruption_once_a_checkpoint_knows_of_the_cut() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.replicate(placed(plain(60, 1), 0, 0));
    open.sync();
    open.truncate(0);
    for base in (0..40).step_by(10) {
        open.replicate(placed(plain(10, 1), base, 1));
    }
    open.sync();
    // The node takes the recovery point, writes it, and says so.
    let (point, cut) = (open.log.recovery_point(), open.log.unsettled_cut().unwrap());
    assert_eq!(point, offset(40));
    let rotten = |bench: &Bench| {
        let bench = bench.fork();
        let path = bench.path("00000000000000000000.log");
        let end = bench.disk.read_file(&path).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
        bench.disk.flip(&path, end as u64, 1);
        bench
            .try_open(OpenOptions { recovery_point: point, ..bench.options() })
            .map(|open| open.report.cut_bytes())
    };
    assert!(rotten(&bench).unwrap() > 0, "a recovery point of 40 may stem from before the cut");
    open.log.recovery_point_saved(&mut *open.io, cut).unwrap();
    assert_eq!(open.log.unsettled_cut(), None);
    assert!(
        matches!(rotten(&bench), Err(LoadError::Corrupt(corruption)) if corruption.next_offset == offset(30))
    );

    // A point that was taken before another cut settles nothing.
    open.truncate(20);
    let (point, cut) = (open.log.recovery_point(), open.log.unsettled_cut().unwrap());
    open.replicate(placed(plain(10, 1), 20, 2));
    open.truncate(10);
    assert_eq!(point, offset(20));
    open.log.recovery_point_saved(&mut *open.io, cut).unwrap();
    assert_eq!(open.log.partition_file().effective_recovery_point(point), offset(10));
    // Nor does one that cannot be noted; the log goes on.
    let cut = open.log.unsettled_cut().unwrap();
    bench.disk.full_after(Some(0));
    assert!(open.log.recovery_point_saved(&mut *open.io, cut).is_err());
    bench.disk.full_after(None);
    assert!(!open.log.is_offline());
    assert_eq!(open.log.unsettled_cut(), Some(cut));
    open.log.recovery_point_saved(&mut *open.io, cut).unwrap();
    // After a start, too.
    open.truncate(0);
    drop(open);
    let mut open = bench.open_unclean();
    let cut = open.log.unsettled_cut().unwrap();
    open.log.recovery_point_saved(&mut *open.io, cut).unwrap();
    drop(open);
    assert_eq!(bench.open_unclean().log.unsettled_cut(), None);
}

#[test]
fn a_spoilt_transaction_index_is_built_again_although_a_snapshot_lies_behind_its_transactions() {
    // In the segment where the walk begins, and in one below it that is not walked.
    for segment_bytes in [1 << 20, 400] {
        let bench = Bench::new(1).segment_bytes(segment_bytes);
        let mut open = with_an_aborted_transaction(&bench);
        for _ in 0..3 {
            open.produce(plain(1, 250));
        }
        open.sync();
        let facts = open.facts();
        assert_eq!(facts.aborted.len(), 1);
        let recovery_point = open.log.recovery_point();
        open.close();
        let path = bench.path("00000000000000000000.txnindex");
        let whole = bench.disk.read_file(&path).unwrap();
        for spoilt in
            [whole[..10].to_vec(), [&whole[..], b"x"].concat(), vec![0xff; whole.len()], vec![0; 40]]
        {
            for clean_shutdown in [true, false] {
                let damaged = bench.fork();
                damaged.disk.write_file(&path, &spoilt);
                let options = OpenOptions { clean_shutdown, recovery_point, ..damaged.options() };
                let mut open = damaged.open(options);
                assert_eq!(open.facts(), facts, "clean {clean_shutdown}");
                drop(open);
                assert_eq!(damaged.disk.read_file(&path).unwrap(), whole);
            }
        }
    }
}

#[test]
fn a_full_disk_does_not_keep_aborted_transactions_from_being_known() {
    // O2, N-DISK-1: the ABORT is in the log, its index entry found no room.
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(plain(1, 10));
    open.produce(data(Some((1, 0, 0)), true, 1, 10));
    open.sync();
    let abort = marker(false, 1, 0, 0);
    bench.disk.full_after(Some(abort.len() as u64));
    open.coordinate(abort);
    open.settle();
    let failed = open.log.sync(&mut *open.io);
    assert!(matches!(failed, Err(ChangeError::Log { .. })), "{failed:?}");
    assert!(open.log.is_offline());
    drop(open);
    bench.disk.full_after(Some(0));
    for _ in 0..2 {
        let mut open = bench.open_unclean();
        assert_eq!(seen(&mut open, Isolation::Committed), (vec![0, 1, 2], vec![(1, 2)]));
        // No snapshot was tried: it would have been started from, without a look at the index.
        let skipped: Vec<_> = open.report.skipped.iter().map(|skipped| skipped.what).collect();
        assert_eq!(skipped, ["transaction index", "leader-epoch checkpoint"]);
    }
    // Once there is room again the next sync of everything makes the file whole, and so does a close.
    let mut open = bench.open_unclean();
    bench.disk.full_after(None);
    open.produce(data(Some((2, 0, 0)), true, 1, 10)); // 3
    open.coordinate(marker(false, 2, 0, 0)); // 4
    open.log.sync(&mut *open.io).unwrap();
    let appended = bench.fork();
    appended.disk.crash(CrashPolicy::KEEP_ALL);
    let path = bench.path("00000000000000000000.txnindex");
    assert_eq!(appended.disk.read_file(&path).unwrap().len(), 2 * 34);
    open.close();
    let mut open = bench.open_clean();
    assert_eq!(seen(&mut open, Isolation::Committed).1, [(1, 2), (3, 4)]);
    assert!(open.report.rebuilt.is_empty(), "{:?}", open.report.rebuilt);
}

#[test]
fn what_a_full_disk_kept_from_being_written_is_written_at_the_next_close_or_roll() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for base in 0..4 {
        // One aborted transaction in each segment, under an epoch of its own.
        open.replicate(placed(data(Some((1, 0, 2 * base)), true, 1, 150), i64::from(2 * base), base));
        open.replicate(placed(marker(false, 1, 0, 0), i64::from(2 * base + 1), base));
    }
    open.sync();
    let facts = open.facts();
    assert!(open.log.segments().len() > 2);
    drop(open);
    bench.remove_auxiliary_files();
    bench.disk.full_after(Some(0));
    let mut open = bench.open_unclean();
    assert_eq!(open.facts(), facts);
    bench.disk.full_after(None);
    open.close();
    assert!(bench.disk.read_file(&bench.path("leader-epoch-checkpoint")).is_some());
    let mut open = bench.open_clean();
    assert_eq!(open.facts(), facts);
}

#[test]
fn a_snapshot_from_before_the_first_segment_is_not_gone_on_from() {
    // The batches between it and the first segment are on no disk any more: a transaction that was open in it would
    // stay open for ever.
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 1, 250)); // 0
    open.produce(plain(1, 250)); // 1
    open.coordinate(marker(true, 1, 0, 0)); // 2: a snapshot at 2 knows the transaction
    open.produce(plain(1, 250)); // 3: a snapshot at 3
    let snapshots: Vec<i64> = open.log.partition_file().snapshots().map(|(at, _)| at.get()).collect();
    assert_eq!(snapshots, [2, 3]);
    open.sync();
    assert_eq!(open.log.view().last_stable_offset, offset(4));
    drop(open);
    for (base, suffix) in [(0, "log"), (1, "log"), (2, "log"), (3, "snapshot")] {
        assert!(bench.disk.remove_file(&bench.path(&format!("{base:020}.{suffix}"))), "{base}");
    }
    for clean in [true, false] {
        let copy = bench.fork();
        let open = if clean { copy.open_clean() } else { copy.open_unclean() };
        assert_eq!(open.log.view().last_stable_offset, offset(4), "clean {clean}");
        assert!(open.log.open_transactions().is_empty());
    }
}

/// What makes a start walk over every segment does not make it forget whose batches were in those that are deleted: it goes
/// on from each snapshot that it comes to.
#[test]
fn r4_a_walk_over_everything_still_knows_whose_batches_are_deleted() {
    let bench = Bench::new(1).segment_bytes(700);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 1, 200)); // 0
    open.produce(data(Some((2, 0, 0)), false, 1, 300)); // 1
    for sequence in 0..4 {
        open.produce(data(Some((4, 0, sequence)), false, 1, 600)); // 2 to 5, a segment each
    }
    open.produce(data(Some((3, 0, 0)), true, 1, 10)); // 6
    open.coordinate(marker(false, 3, 0, 0)); // 7
    open.sync();
    open.log.advance_log_start(&mut *open.io, offset(3)).unwrap();
    assert_eq!(open.log.segments()[0].base_offset, offset(3));
    let snapshots: Vec<i64> = open.log.partition_file().snapshots().map(|(at, _)| at.get()).collect();
    assert_eq!(snapshots, [5, 6], "none is at the first segment any more");
    let (facts, producers) = (open.facts(), open.producers());
    assert_eq!((producers.producer_count(), &facts.open[..]), (4, &[offset(0)][..]));
    drop(open);
    let known = |recovery_point| OpenOptions {
        recovery_point: offset(recovery_point),
        log_start_offset: offset(3),
        ..bench.options()
    };
    for (damage, recovery_point) in
        [("leader-epoch-checkpoint", 8), ("00000000000000000005.txnindex", 8), ("nothing", 0)]
    {
        let damaged = bench.fork();
        if damage.ends_with("txnindex") {
            damaged.disk.write_file(&damaged.path(damage), &[1; 34]);
        } else {
            damaged.disk.remove_file(&damaged.path(damage));
        }
        for again in [false, true] {
            let mut open = damaged.open(known(recovery_point));
            let what = format!("{damage}, again: {again}");
            assert_equal_state(&open.producers(), &producers, &what);
            assert_eq!(open.facts(), facts, "{what}");
        }
    }
}

#[test]
fn b7_a_snapshot_above_the_checked_offset_is_not_loaded() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 1, 10));
    open.coordinate(barrier());
    open.produce(data(Some((1, 0, 0)), false, 1, 10));
    open.sync();
    let facts = open.facts();
    assert_eq!(facts.barriers, [(offset(1), true)]);
    open.close();
    let path = bench.side_dir.join("partition");
    let mut file = PartitionFile::decode(&bench.disk.read_file(&path).unwrap()).unwrap();
    let (at, crc) = file.snapshots().last().unwrap();
    file = PartitionFile::new(offset(0));
    file.note_snapshot(at, crc);
    bench.disk.write_file(&path, &file.encode());
    let mut open = bench.open_clean();
    assert_eq!(open.facts(), facts);
    let reason = NoSnapshot::NoneNamed;
    assert_eq!(open.report.producer_state, ProducerStateSource::Replay { from: offset(0), reason });
}

#[test]
fn an_index_that_leads_behind_the_snapshots_offset_leaves_nothing_out() {
    let bench = Bench::new(1).segment_bytes(1 << 20);
    let mut open = bench.open_unclean();
    for sequence in 0..4 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 150));
    }
    open.close();
    let mut open = bench.open_clean();
    for sequence in 0..4 {
        open.produce(data(Some((2, 0, sequence)), false, 1, 150));
    }
    open.produce(data(Some((3, 0, 0)), true, 1, 150));
    open.sync();
    let (facts, producers) = (open.facts(), open.producers());
    open.close();
    // The snapshot at the end is lost, the one before is not; the index ends below it and points far behind it.
    assert!(bench.disk.remove_file(&bench.path("00000000000000000009.snapshot")));
    let path = bench.path("00000000000000000000.index");
    let mut index = bench.disk.read_file(&path).unwrap();
    let last = index[index.len() - 4..].to_vec();
    index.truncate(16);
    let size = u32::try_from(bench.log_bytes().len()).unwrap();
    for position in [last, size.to_be_bytes().to_vec(), (size + 7).to_be_bytes().to_vec()] {
        index[12..].copy_from_slice(&position);
        bench.disk.write_file(&path, &index);
        let mut open = bench.fork().open_clean();
        assert_eq!(open.facts(), facts);
        assert_equal_state(&open.producers(), &producers, "a lying index");
    }
}

/// Three segments, and what a cleaner left beside them.
fn with_leftovers(seed: u64, leave: impl Fn(&Bench, [Vec<u8>; 3])) -> (Bench, Facts, Vec<u8>) {
    let bench = Bench::new(seed).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..3 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 200));
    }
    open.sync();
    let facts = open.facts();
    let bytes = bench.log_bytes();
    drop(open);
    let segment = |base: i64| bench.disk.read_file(&bench.path(&format!("{base:020}.log"))).unwrap();
    leave(&bench, [segment(0), segment(1), segment(2)]);
    (bench, facts, bytes)
}

#[test]
fn a_swap_survives_a_power_cut_at_every_operation() {
    // TAIL-8.
    for seed in 1..=4 {
        // Two segments had been merged.
        let merged = with_leftovers(seed, |bench, [first, second, _]| {
            let path = bench.path("00000000000000000000.log.swap");
            bench.disk.write_file(&path, &[first, second].concat());
        });
        // One was being split: KAFKA-6264.
        let split = with_leftovers(seed, |bench, [first, second, _]| {
            bench.disk.write_file(&bench.path("00000000000000000000.log"), &[&first[..], &second].concat());
            bench.disk.remove_file(&bench.path("00000000000000000001.log"));
            bench.disk.write_file(&bench.path("00000000000000000000.log.cleaned"), &first);
            bench.disk.write_file(&bench.path("00000000000000000001.log.swap"), &second);
        });
        for (bench, facts, bytes) in [merged, split] {
            let first = bench.disk.op_count();
            let whole = bench.fork();
            drop(whole.open_unclean());
            let operations = whole.disk.op_count() - first;
            assert!(operations > 10);
            for names in [NameFate::Kept, NameFate::Undone, NameFate::Mixed] {
                for operation in 1..=operations {
                    let cut = bench.fork();
                    cut.disk.crash_at(first + operation);
                    assert!(cut.try_open(cut.options()).is_err(), "the disk goes off on the way");
                    cut.disk.crash(CrashPolicy { data: DataFate::Dropped, names });
                    let mut open = cut.open_unclean();
                    assert_eq!(open.facts(), facts, "{operation} {names:?}");
                    assert_eq!(cut.log_bytes(), bytes);
                }
            }
        }
    }
}

#[test]
fn b10_an_append_that_fails_behind_a_roll_leaves_what_its_bytes_say() {
    // One replicated append over three segments: an ABORT in the first, a barrier at which one is aborted in the second.
    let batches = || {
        vec![
            placed(data(Some((1, 0, 1)), true, 1, 10), 2, 0),
            placed(marker(false, 1, 0, 0), 3, 0),
            placed(plain(1, 250), 4, 1),
            placed(barrier(), 5, 1),
            placed(plain(1, 280), 6, 2),
        ]
    };
    let start = || {
        let bench = Bench::new(1).segment_bytes(400);
        let mut open = bench.open_unclean();
        open.replicate(placed(data(Some((1, 0, 0)), true, 1, 10), 0, 0));
        open.replicate(placed(data(Some((2, 0, 0)), true, 1, 10), 1, 0));
        open.sync();
        (bench, open)
    };
    let mut refused = 0;
    for room in (0..3000).step_by(19) {
        let (bench, mut open) = start();
        bench.disk.full_after(Some(room));
        let all = BytesMut::from(&batches().concat()[..]);
        let failed = open.append(all, &replication()).is_err();
        refused += usize::from(failed);
        let recovery_point = open.log.recovery_point();
        drop(open);
        bench.disk.full_after(None);
        // What the bytes say: a replay of everything.
        let bare = bench.fork();
        bare.remove_auxiliary_files();
        let mut replayed = bare.open_unclean();
        let mut options = bench.options();
        options.recovery_point = recovery_point;
        let mut open = bench.open(options);
        assert_eq!(open.facts(), replayed.facts(), "room {room}");
        assert_equal_state(&open.producers(), &replayed.producers(), "after a failed append");
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn r1_names_that_a_killed_process_left_unsynced_are_synced_before_anything_is_acknowledged() {
    // Killed between a call that makes a name and the sync of its directory: the name is there until the power fails.
    let segment = "00000000000000000000.log";
    for made in ["the directory", "the segment", "a second segment"] {
        let bench = Bench::new(1);
        let mut io = bench.disk.io();
        io.create_dir_all(bench.dir.parent().unwrap()).unwrap();
        io.sync_dir(Path::new("/")).unwrap();
        io.create_dir_all(&bench.dir).unwrap();
        if made != "the directory" {
            io.sync_dir(bench.dir.parent().unwrap()).unwrap();
            io.open(&bench.path(segment), How::CreateNew).unwrap();
        }
        if made == "a second segment" {
            io.sync_dir(&bench.dir).unwrap();
            io.open(&bench.path("00000000000000000005.log"), How::CreateNew).unwrap();
        }
        drop(io);
        let mut open = bench.open_unclean();
        let appended = open.produce(plain(1, 10));
        open.sync();
        assert_eq!(open.log.view().high_watermark, appended.durable_at);
        drop(open);
        bench.disk.crash(CrashPolicy::DROP_ALL);
        let open = bench.open_unclean();
        assert_eq!(open.log.log_end_offset(), appended.durable_at, "{made}");
        assert_eq!(open.log.last_batch().unwrap().base_offset, appended.base_offset, "{made}");
    }
}

#[test]
fn a_log_may_reach_the_largest_offset_and_goes_no_further() {
    let largest = i64::MAX;
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    open.replicate(placed(data(Some((1, 0, 0)), true, 2, 10), largest - 4, 0));
    open.replicate(placed(marker(false, 1, 0, 0), largest - 2, 0));
    open.replicate(placed(plain(1, 280), largest - 1, 0));
    assert_eq!(open.log.log_end_offset(), offset(largest));
    let params = AppendParams::client(epoch(0), NOW);
    let refused = open.append(plain(1, 1), &params);
    assert!(matches!(refused, Err(AppendError::InvalidRecord { .. } | AppendError::ProducerState { .. })));
    let beyond = {
        let mut batch = plain(1, 1);
        batch[..8].copy_from_slice(&largest.to_be_bytes());
        open.append(batch, &replication())
    };
    assert!(matches!(beyond, Err(AppendError::Batch { .. })), "{beyond:?}");
    open.sync();
    let facts = open.facts();
    assert_eq!(facts.last_stable_offset, offset(largest));
    let first = open.read(0, 1 << 20, Isolation::Committed);
    assert_eq!(first.aborted.len(), 1);
    assert!(open.read(largest, 1 << 20, Isolation::Committed).bytes.is_empty());
    drop(open);
    let mut open = bench.open_unclean();
    assert_eq!(open.facts(), facts);
    open.truncate(largest - 2);
    assert_eq!(open.log.log_end_offset(), offset(largest - 2));
    assert_eq!(open.log.open_transactions().len(), 1);
    open.close();
    // A segment that begins at the largest offset can hold nothing.
    bench.disk.write_file(&bench.path(&format!("{largest:020}.log")), b"");
    for clean in [true, false] {
        let copy = bench.fork();
        let mut open = if clean { copy.open_clean() } else { copy.open_unclean() };
        assert_eq!(open.log.log_end_offset(), offset(largest));
        assert!(open.append(plain(1, 1), &params).is_err());
        open.truncate(largest - 4);
        open.close();
    }
}

#[test]
fn timestamps_of_every_size_are_kept_found_and_do_no_harm() {
    let stamped = |at: i64| {
        let batch = BatchBuilder::new().record(TimestampMs::new(at), None, Some(&[b'v'; 120]));
        batch.build().unwrap()
    };
    let stamps = [5, i64::MAX, -1, 0, 7, i64::MAX, 3, i64::MAX - 1, -1, 6];
    let bench = Bench::new(1).segment_bytes(700);
    let mut open = bench.open_unclean();
    for at in stamps {
        open.produce(stamped(at));
        open.sync();
    }
    let check = |open: &mut Open, what: &str| {
        for asked in [0, 1, 4, 5, 6, 8, i64::MAX - 1, i64::MAX] {
            let spec = OffsetSpec::Timestamp(TimestampMs::new(asked));
            let found = open.log.offset_for(&mut *open.io, spec, Isolation::Uncommitted).unwrap();
            let expected =
                stamps.iter().position(|&at| at >= asked).map(|at| offset(i64::try_from(at).unwrap()));
            assert_eq!(found.map(|found| found.offset), expected, "{what}: {asked}");
        }
        let spec = OffsetSpec::MaxTimestamp;
        let found = open.log.offset_for(&mut *open.io, spec, Isolation::Uncommitted).unwrap().unwrap();
        assert_eq!((found.offset, found.timestamp), (offset(1), Some(TimestampMs::new(i64::MAX))), "{what}");
    };
    check(&mut open, "live");
    drop(open);
    check(&mut bench.open_unclean(), "killed");
    bench.open_unclean().close();
    check(&mut bench.open_clean(), "stopped");
    bench.remove_auxiliary_files();
    check(&mut bench.open_clean(), "bare");
}

/// Everything that writes, until something fails. Returns what was acknowledged, and the log start.
fn everything_that_writes(open: &mut Open) -> (i64, i64) {
    let (mut acknowledged, mut start) = (0, 0);
    let mut run = || -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let client = AppendParams { may_start_transaction: true, ..AppendParams::client(epoch(0), NOW) };
        let coordinator = AppendParams::coordinator(epoch(0), NOW);
        let mut take = |open: &mut Open, batch: BytesMut, params: &AppendParams| {
            open.append(batch, params).map_err(|error| failed(&error))?;
            open.sync();
            acknowledged = open.log.view().high_watermark.get();
            if open.log.is_offline() { Err("offline".to_string()) } else { Ok(()) }
        };
        take(open, data(Some((1, 0, 0)), true, 1, 100), &client)?; // 0
        take(open, data(Some((2, 0, 0)), true, 1, 100), &client)?; // 1
        take(open, marker(false, 1, 0, 0), &coordinator)?; // 2
        take(open, data(Some((3, 0, 0)), false, 3, 100), &client)?; // 3..6
        take(open, barrier(), &coordinator)?; // 6
        take(open, data(Some((1, 0, 0)), true, 1, 300), &client)?; // 7
        take(open, data(Some((2, 0, 0)), false, 1, 200), &client)?; // 8
        take(open, marker(false, 1, 0, 0), &coordinator)?; // 9
        open.log.truncate_to(&mut *open.io, offset(9)).map_err(|error| failed(&error))?;
        take(open, marker(true, 1, 0, 0), &coordinator)?; // 9
        take(open, data(Some((4, 0, 0)), true, 1, 300), &client)?; // 10
        take(open, data(Some((5, 0, 0)), false, 1, 300), &client)?; // 11
        start = 8;
        open.log.advance_log_start(&mut *open.io, offset(8)).map_err(|error| failed(&error))?;
        open.log.assign_leader_epoch(&mut *open.io, epoch(3)).map_err(|error| failed(&error))?;
        take(open, barrier(), &AppendParams::coordinator(epoch(3), NOW)) // 12
    };
    let _ended_early = run();
    (acknowledged, start)
}

/// Whatever failed: all that was acknowledged is there, and what is known is what the bytes say.
fn check_after_a_failure(bench: &Bench, acknowledged: i64, recovery_point: i64, start: i64, what: &str) {
    let options = || {
        let mut options = bench.options();
        options.recovery_point = offset(recovery_point);
        options.log_start_offset = offset(start);
        options
    };
    let mut open = bench.try_open(options()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(open.log.log_end_offset() >= offset(acknowledged), "{what}: {acknowledged} was acknowledged");
    let (facts, producers) = (open.facts(), open.producers());
    let bytes = open.read_all(Isolation::Uncommitted);
    let aborted = seen(&mut open, Isolation::Committed);
    drop(open);
    let bare = bench.fork();
    bare.disk.full_after(None);
    bare.remove_auxiliary_files();
    let mut replayed = bare.open(options());
    assert_eq!(replayed.read_all(Isolation::Uncommitted), bytes, "{what}");
    assert_eq!(seen(&mut replayed, Isolation::Committed), aborted, "{what}");
    // A replay knows neither what began in deleted segments nor an epoch without records.
    if replayed.log.segments()[0].base_offset == offset(0) {
        assert_eq!(replayed.facts(), facts, "{what}");
        assert_equal_state(&replayed.producers(), &producers, what);
    }
}

#[test]
fn a_disk_that_is_full_at_any_write_loses_nothing_and_is_served() {
    let mut early = 0;
    for room in (0..9000).step_by(31) {
        let bench = Bench::new(1).segment_bytes(600);
        let mut open = bench.open_unclean();
        bench.disk.full_after(Some(room));
        let (acknowledged, start) = everything_that_writes(&mut open);
        early += usize::from(open.log.is_offline());
        let recovery_point = open.log.recovery_point().get();
        let closed = open.log.close(&mut *open.io).is_ok();
        let what = format!("room {room}, closed {closed}");
        bench.disk.full_after(Some(0));
        check_after_a_failure(&bench, acknowledged, recovery_point, start, &format!("{what}, still full"));
        bench.disk.full_after(None);
        check_after_a_failure(&bench, acknowledged, recovery_point, start, &what);
    }
    assert!(early > 40, "{early}");
}

#[test]
fn a_sync_that_fails_at_any_place_loses_nothing_that_was_acknowledged() {
    let mut early = 0;
    for nth in 1..60 {
        let bench = Bench::new(1).segment_bytes(600);
        let mut open = bench.open_unclean();
        bench.disk.fail_sync(nth);
        let (acknowledged, start) = everything_that_writes(&mut open);
        early += usize::from(open.log.is_offline());
        let recovery_point = open.log.recovery_point().get();
        drop(open);
        bench.disk.fail_sync(1_000_000);
        bench.disk.crash(CrashPolicy::DROP_ALL);
        check_after_a_failure(&bench, acknowledged, recovery_point, start, &format!("sync {nth}"));
    }
    assert!(early > 20, "{early}");
}

#[test]
fn a_bad_sector_in_any_file_is_said_and_never_taken_for_nothing() {
    let bench = Bench::new(1).segment_bytes(600);
    let mut open = bench.open_unclean();
    let (acknowledged, start) = everything_that_writes(&mut open);
    assert_eq!((acknowledged, start), (13, 8));
    let mut options = bench.options();
    options.log_start_offset = offset(8);
    options.recovery_point = open.log.recovery_point();
    let facts = open.facts();
    drop(open);
    for (path, bytes) in bench.disk.contents() {
        let size = bytes.len() as u64;
        for clean_shutdown in [true, false] {
            let damaged = bench.fork();
            damaged.disk.read_error(&path, 0..size.max(1));
            let options = OpenOptions { clean_shutdown, ..options.clone() };
            match damaged.try_open(options) {
                // It was not needed.
                Ok(open) => assert_eq!(open.log.log_end_offset(), facts.log_end_offset, "{path:?}"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains(path.file_name().unwrap().to_str().unwrap()), "{said}");
                }
            }
        }
    }
}

/// What a consumer of Kafka's own, of any kind, delivers of a response: ids are aborted from their first offset on, and
/// stop being so at an ABORT of theirs.
pub(crate) fn delivered(read: &weir_log::Read) -> Vec<Offset> {
    let mut listed = read.aborted.clone();
    let mut ids = Vec::new();
    let mut out = Vec::new();
    for batch in BatchReader::new(&read.bytes) {
        let batch = batch.unwrap();
        listed.retain(|entry| {
            let begun = entry.first_offset <= batch.last_offset();
            if begun {
                ids.push(Some(entry.producer_id));
            }
            !begun
        });
        if batch.is_control() {
            if matches!(batch.end_transaction_marker(), Some(Ok(marker)) if !marker.commit) {
                ids.retain(|id| *id != batch.producer_id());
            }
        } else if !(batch.is_transactional() && ids.contains(&batch.producer_id())) {
            out.push(batch.base_offset());
        }
    }
    out
}

/// The data batches of a log that are committed, by looking ahead from each to what ends its transaction.
pub(crate) fn committed(log: &[BytesMut], end: Offset) -> Vec<Offset> {
    let batches: Vec<RecordBatch<'_>> = log.iter().map(|bytes| RecordBatch::parse(bytes).unwrap()).collect();
    let is_committed = |(index, batch): (usize, &RecordBatch<'_>)| {
        let ends = |later: &&RecordBatch<'_>| {
            later.is_barrier() || (later.is_control() && later.producer_id() == batch.producer_id())
        };
        let kept = batch.next_offset() <= end
            && !batch.is_control()
            && (!batch.is_transactional()
                || batches[index + 1..].iter().find(ends).is_some_and(
                    |end| matches!(end.end_transaction_marker(), Some(Ok(marker)) if marker.commit),
                ));
        kept.then(|| batch.base_offset())
    };
    batches.iter().enumerate().filter_map(is_committed).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Law B4 for any log, any size of response and any place to begin.
    #[test]
    fn b4_a_consumer_gets_exactly_what_was_committed(
        steps in proptest::collection::vec(step(), 1..40),
        segment_bytes in 300..4000_u32,
        max_bytes in 1..3000_usize,
        start in 0..60_usize,
        reload in any::<bool>(),
    ) {
        let log = source(&steps);
        prop_assume!(!log.is_empty());
        let bench = Bench::new(1).segment_bytes(segment_bytes);
        let mut open = bench.open_unclean();
        append_all(&mut open, &log, &[3]);
        if reload {
            open.close();
            open = bench.open_clean();
        }
        let end = open.log.view().last_stable_offset;
        // From a batch of the log, or from within it.
        let first = RecordBatch::parse(&log[start % log.len()]).unwrap();
        let mut at = if start % 2 == 0 { first.base_offset() } else { first.last_offset() };
        prop_assume!(at < end);
        let expected: Vec<Offset> =
            committed(&log, end).into_iter().filter(|base| *base >= first.base_offset()).collect();
        let mut got = Vec::new();
        while at < end {
            let read = open.log.read(&mut *open.io, at, max_bytes, Isolation::Committed, true).unwrap();
            // A gap at the end of a segment or of the log is all that may be empty.
            let Some(last) = BatchReader::new(&read.bytes).last() else { break };
            let next = last.unwrap().next_offset();
            prop_assert!(next > at, "a response makes progress");
            got.extend(delivered(&read));
            at = next;
        }
        prop_assert_eq!(got, expected);
    }
}

/// A log of several segments with everything in it, its snapshots in the middle of segments and at their ends.
fn with_every_auxiliary_file() -> Bench {
    let bench = Bench::new(1).segment_bytes(900);
    let mut open = bench.open_unclean();
    for round in 0..3_i32 {
        open.produce(data(Some((1, 0, 3 * round)), true, 3, 60));
        open.produce(data(Some((2, 0, round)), round == 1, 1, 200));
        open.coordinate(marker(round == 2, 1, 0, 0));
        open.produce(data(Some((3, 0, 2 * round)), false, 2, 100));
        if round == 1 {
            open.coordinate(barrier());
        }
        open.close();
        open = bench.open_clean();
    }
    open.produce(data(Some((4, 0, 0)), true, 1, 10));
    open.close();
    bench
}

/// One way to spoil a file: which, how, where, with what.
type Damage = (usize, u8, usize, [u8; 6]);

fn spoil(bench: &Bench, damage: &Damage, suffixes: &[&str]) {
    let (file, how, position, bytes) = damage;
    let files: Vec<_> = bench
        .disk
        .contents()
        .into_iter()
        .filter(|(path, _)| suffixes.iter().any(|suffix| path.to_str().unwrap().ends_with(suffix)))
        .collect();
    if files.is_empty() {
        return;
    }
    let (path, before) = &files[file % files.len()];
    let at = position % (before.len() + 1);
    let mut after = before.clone();
    match how % 6 {
        0 => after.truncate(at),
        1 => after.extend_from_slice(bytes),
        2 => after.iter_mut().skip(at).zip(bytes).for_each(|(to, from)| *to = *from),
        3 => after.iter_mut().skip(at).take(1).for_each(|to| *to ^= bytes[0] | 1),
        4 => after.clone_from(&files[position % files.len()].1),
        _ => {
            bench.disk.remove_file(path);
            return;
        }
    }
    bench.disk.write_file(path, &after);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// While the log is whole, files that can be built from it change nothing but how long a load takes.
    #[test]
    fn no_auxiliary_file_changes_what_is_known_or_read(
        damages in proptest::collection::vec(any::<Damage>(), 1..6),
        clean in any::<bool>(),
        recovery_point in 0..40_i64,
    ) {
        let bench = with_every_auxiliary_file();
        let mut whole = bench.fork().open_clean();
        let (facts, producers) = (whole.facts(), whole.producers());
        let suffixes = [".index", ".timeindex", ".snapshot", "/partition"];
        damages.iter().for_each(|damage| spoil(&bench, damage, &suffixes));
        let mut options = bench.options();
        options.clean_shutdown = clean;
        options.recovery_point = offset(recovery_point.min(facts.log_end_offset.get()));
        let mut open = bench.open(options);
        prop_assert_eq!(open.facts(), facts.clone());
        assert_equal_state(&open.producers(), &producers, "spoilt");
        for from in 0..facts.log_end_offset.get() {
            for isolation in [Isolation::Uncommitted, Isolation::Committed] {
                let found = open.read(from, 300, isolation);
                let expected = whole.read(from, 300, isolation);
                prop_assert_eq!(&found.bytes, &expected.bytes);
                prop_assert_eq!(delivered(&found), delivered(&expected));
            }
        }
        for at in [0, NOW.get(), NOW.get() + 1] {
            let spec = OffsetSpec::Timestamp(TimestampMs::new(at));
            let found = open.log.offset_for(&mut *open.io, spec, Isolation::Uncommitted).unwrap();
            prop_assert_eq!(found, whole.log.offset_for(&mut *whole.io, spec, Isolation::Uncommitted).unwrap());
        }
        // And once more, after what was built again has been written.
        open.close();
        let mut again = bench.open_clean();
        prop_assert_eq!(again.facts(), facts);
        assert_equal_state(&again.producers(), &producers, "again");
    }
}

#[test]
fn b4_an_index_that_lost_what_was_aborted_at_a_barrier_is_built_again() {
    // A Kafka that does not know the barrier recovered the segment: its index knows ABORTs alone. Or the file is gone.
    for segment_bytes in [1 << 20, 500] {
        let bench = Bench::new(1).segment_bytes(segment_bytes);
        let mut open = bench.open_unclean();
        open.produce(data(Some((1, 0, 0)), true, 1, 10)); // 0
        open.produce(data(Some((2, 0, 0)), true, 1, 10)); // 1
        open.coordinate(marker(false, 2, 0, 0)); // 2
        open.coordinate(barrier()); // 3
        for _ in 0..4 {
            open.produce(plain(1, 300));
        }
        open.sync();
        let facts = open.facts();
        assert_eq!(facts.aborted.len(), 2);
        let recovery_point = open.log.recovery_point();
        open.close();
        let path = bench.path("00000000000000000000.txnindex");
        let whole = bench.disk.read_file(&path).unwrap();
        for left in [Some(34), Some(0), None] {
            for clean_shutdown in [true, false] {
                let damaged = bench.fork();
                match left {
                    Some(size) => damaged.disk.write_file(&path, &whole[..size]),
                    None => assert!(damaged.disk.remove_file(&path)),
                }
                let options = OpenOptions { clean_shutdown, recovery_point, ..damaged.options() };
                let mut open = damaged.open(options);
                assert_eq!(open.facts(), facts, "{left:?}, clean {clean_shutdown}");
                drop(open);
                assert_eq!(damaged.disk.read_file(&path).unwrap(), whole);
            }
        }
    }
}

#[test]
fn b7_a_snapshot_whose_offset_lies_inside_a_batch_belongs_to_another_log() {
    // Named, whole and with the right CRC: a side file and a snapshot that were copied from elsewhere.
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    for sequence in [0, 10, 20] {
        open.produce(data(Some((1, 0, sequence)), false, 10, 5));
    }
    let producers = open.producers();
    open.close();
    let mut other = ProducerStateManager::new(PsmConfig::default());
    other.update_map_end_offset(offset(15));
    let bytes = other.snapshot();
    let mut file = PartitionFile::new(offset(30));
    file.note_snapshot(offset(15), crc32c(&bytes));
    bench.disk.write_file(&bench.path("00000000000000000015.snapshot"), &bytes);
    bench.disk.write_file(&bench.side_dir.join("partition"), &file.encode());
    for clean in [true, false] {
        let copy = bench.fork();
        let mut open = if clean { copy.open_clean() } else { copy.open_unclean() };
        assert_equal_state(&open.producers(), &producers, "loaded");
        open.truncate(20);
        let known: Vec<_> = open.log.producers().map(|(_, entry)| entry.last_offset().unwrap()).collect();
        assert_eq!(known, [offset(19)], "cut, clean {clean}");
    }
}

#[test]
fn no_snapshot_is_named_before_the_transaction_indexes_below_it_are_written() {
    // An index cannot be synced, and a snapshot behind it could be; then the process is killed.
    let bench = Bench::new(1).segment_bytes(1000);
    let mut open = bench.open_unclean();
    for producer in 1..4 {
        open.produce(data(Some((producer, 0, 0)), true, 1, 10));
        open.coordinate(marker(false, producer, 0, 0));
    }
    open.produce(plain(1, 800)); // 6, a second segment
    open.sync();
    assert_eq!(open.log.segments().len(), 2);
    let aborted = open.aborted();
    assert_eq!(aborted.len(), 3);
    drop(open);
    bench.remove_auxiliary_files();
    let check = |bench: &Bench, recovery_point: Offset, what: &str| {
        bench.disk.full_after(None);
        bench.disk.fail_sync(1_000_000);
        let options = OpenOptions { recovery_point, ..bench.options() };
        assert_eq!(bench.open(options).aborted(), aborted, "{what}");
    };
    let mut skipped = 0;
    for nth in 1..16 {
        let loaded = bench.fork();
        loaded.disk.fail_sync(nth);
        if let Ok(open) = loaded.try_open(loaded.options()) {
            skipped +=
                usize::from(open.report.skipped.iter().any(|skipped| skipped.what == "transaction index"));
            let recovery_point = open.log.recovery_point();
            drop(open);
            check(&loaded, recovery_point, &format!("load, sync {nth}"));
        }

        let rolled = bench.fork();
        rolled.disk.full_after(Some(0));
        let mut open = rolled.open_unclean();
        assert_eq!(open.aborted(), aborted);
        rolled.disk.full_after(None);
        rolled.disk.fail_sync(nth);
        let _refused = open.append(plain(1, 800), &AppendParams::client(epoch(0), NOW));
        let recovery_point = open.log.recovery_point();
        drop(open);
        check(&rolled, recovery_point, &format!("roll, sync {nth}"));
    }
    assert_eq!(skipped, 1, "one of the syncs is the index's");
}

#[test]
fn a_sync_from_before_a_cut_does_not_answer_for_the_one_after_it() {
    let mut open = Bench::new(1).open_unclean();
    open.produce(plain(3, 10));
    open.settle();
    assert!(open.log.sync_begin(&mut *open.io));
    open.truncate(0);
    assert!(!open.log.is_busy(), "a cut waits for it");
    open.produce(plain(2, 10));
    open.settle();
    assert_eq!(open.log.view().high_watermark, offset(0), "its bytes are not synced yet");
    assert!(open.log.sync_begin(&mut *open.io));
    open.reap();
    assert_eq!(open.log.view().high_watermark, offset(2));
}

#[test]
fn a_log_that_starts_over_knows_no_epoch_of_before() {
    for start in [0, 200] {
        let bench = Bench::new(1);
        let mut open = bench.open_unclean();
        open.replicate(placed(plain(10, 10), 0, 3));
        open.replicate(placed(plain(10, 10), 10, 5));
        open.sync();
        open.log.truncate_fully_and_start_at(&mut *open.io, offset(start)).unwrap();
        assert_eq!(open.log.latest_epoch(), None);
        open.replicate(placed(plain(1, 10), start, 5));
        open.sync();
        let facts = open.facts();
        assert_eq!(facts.epochs, [(5, start)]);
        drop(open);
        bench.disk.crash(CrashPolicy::DROP_ALL);
        assert_eq!(bench.open_unclean().facts(), facts);
    }
}

#[test]
fn what_a_killed_process_had_allocated_ahead_is_cut_and_no_damage() {
    let bench = Bench::new(1);
    bench.disk.direct(true);
    bench.disk.allocate_ahead(Some(16 << 20));
    let mut open = bench.open_unclean();
    open.produce(plain(3, 100));
    open.sync();
    let acknowledged = open.read_all(Isolation::Uncommitted);
    open.produce(plain(1, 9_000));
    open.settle();
    drop(open);
    let path = bench.path("00000000000000000000.log");
    let whole = bench.disk.read_file(&path).unwrap();
    assert!(whole.len() >= 16 << 20, "{} bytes", whole.len());
    // Killed behind the last write, in the middle of it, and before it.
    for (landed, torn) in [(usize::MAX, false), (5_000, true), (0, false)] {
        let killed = bench.fork();
        let mut bytes = whole.clone();
        let from = acknowledged.len().saturating_add(landed).min(bytes.len());
        bytes[from..].fill(0);
        killed.disk.write_file(&path, &bytes);
        let mut open = killed.open(killed.options());
        let end = if landed == usize::MAX { 4 } else { 3 };
        assert_eq!(open.log.log_end_offset(), offset(end));
        assert!(open.read_all(Isolation::Uncommitted).starts_with(&acknowledged));
        let kinds: Vec<bool> = open.report.cuts.iter().map(|cut| cut.kind == CutKind::Preallocated).collect();
        assert_eq!(kinds, if torn { vec![false, true] } else { vec![true] }, "{:?}", open.report.cuts);
        let cut: u64 = open.report.cuts.iter().map(|cut| cut.size).sum();
        assert_eq!(cut + open.log.segments()[0].size, whole.len() as u64);
        assert_eq!(open.report.cut_bytes() > 0, torn, "space allocated ahead is not counted");
        assert!(open.report.cut_bytes() < 10_000);
        assert_eq!(open.report.to_string().contains("torn"), torn, "{}", open.report);
        assert_eq!(killed.disk.read_file(&path).unwrap().len() as u64, open.log.segments()[0].size);
    }
}

/// Three segments, the first of them with an aborted transaction, the others with producers.
fn with_something_to_cut(seed: u64) -> (Bench, Open) {
    let bench = Bench::new(seed).segment_bytes(400);
    let mut open = with_an_aborted_transaction(&bench);
    for sequence in 0..4 {
        open.produce(data(Some((5, 0, sequence)), false, 1, 150));
    }
    open.sync();
    assert!(open.log.segments().len() > 2, "{:?}", open.log.segments());
    (bench, open)
}

#[test]
fn a_log_whose_producers_cannot_be_known_is_not_cut() {
    let (bench, mut open) = with_something_to_cut(1);
    let (before, files) = (open.log.view(), bench.disk.contents());
    let first = bench.path("00000000000000000000.log");
    // In the value of a record: no header says so, and it is met by whoever reads all of the batch.
    bench.disk.flip(&first, 70, 1);
    // No snapshot says what was known: the batch is needed.
    for path in bench.disk.files() {
        if path.extension().is_some_and(|kind| kind == "snapshot") {
            assert!(bench.disk.remove_file(&path));
        }
    }
    let cut = open.log.truncate_to(&mut *open.io, offset(4));
    assert!(matches!(cut, Err(ChangeError::Replay { .. })), "{cut:?}");
    assert!(open.log.is_offline());
    assert_eq!(open.log.view(), before);
    for (path, bytes) in files.iter().filter(|(path, _)| **path != first) {
        if path.extension().is_some_and(|kind| kind == "log") {
            assert_eq!(bench.disk.read_file(path).as_ref(), Some(bytes), "{path:?}");
        }
    }
    let read = open.read(6, 1 << 20, Isolation::Uncommitted);
    assert_eq!(BatchReader::new(&read.bytes).count(), 1, "what was to be cut");
    // Where it starts and ends is final once it was opened from its bytes (law O6).
    let beyond = open.log.read(&mut *open.io, offset(8), 1, Isolation::Uncommitted, true);
    assert!(matches!(beyond, Err(ReadError::Offline { .. })), "{beyond:?}");
}

#[test]
fn a_cut_that_fails_at_any_place_leaves_nothing_shown_that_may_be_gone() {
    type Change = fn(&mut Open) -> Result<(), ChangeError>;
    let changes: [(&str, Change, i64); 3] = [
        ("cut", |open| open.log.truncate_to(&mut *open.io, offset(4)), 4),
        ("start over above", |open| open.log.truncate_fully_and_start_at(&mut *open.io, offset(90)), 0),
        ("start over below", |open| open.log.truncate_fully_and_start_at(&mut *open.io, offset(3)), 0),
    ];
    type Fault = fn(&Bench, u64);
    let faults: [Fault; 2] =
        [|bench, nth| bench.disk.fail_sync(nth), |bench, nth| bench.disk.fail_write(nth)];
    for (name, change, left) in changes {
        let mut shown = [0, 0];
        for (fault, nth) in faults.iter().flat_map(|fault| (1..20).map(move |nth| (fault, nth))) {
            let (bench, mut open) = with_something_to_cut(1);
            let before = open.log.view();
            fault(&bench, nth);
            if change(&mut open).is_ok() {
                continue;
            }
            let name = format!("{name} {nth}");
            assert!(open.log.is_offline(), "{name}");
            let after = open.log.view();
            // Either nothing has begun, or what goes is shown to nobody.
            let is_whole = after == before;
            shown[usize::from(is_whole)] += 1;
            assert!(is_whole || after.high_watermark == offset(left), "{name}: {after:?}");
            assert!(after.last_stable_offset <= after.high_watermark, "{name}: {after:?}");
            for isolation in [Isolation::Committed, Isolation::Uncommitted] {
                // It asserts that a reader comes to the end of what is shown.
                open.read_all(isolation);
            }
        }
        assert!(shown[0] > 0 && shown[1] > 0, "{name}: {shown:?}");
    }
}

#[test]
fn no_snapshot_is_named_by_a_start_that_could_not_write_the_leader_epochs() {
    let mut without = 0;
    for nth in 1..12 {
        let mut bench = Bench::new(1);
        bench.config.retention.ms = Some(0);
        let mut open = bench.open_unclean();
        for number in 0..4 {
            let epoch = i32::try_from(number).unwrap();
            open.replicate(placed(data(Some((5, 0, epoch)), false, 1, 10), number, epoch));
        }
        open.sync();
        // The active segment is left for an empty one, and nothing is deleted yet.
        let later = TimestampMs::new(NOW.get() + 1_000);
        let scope = weir_log::DeletionScope::Retention;
        open.log.delete_old_segments(&mut *open.io, later, scope, 1).unwrap();
        assert_eq!(open.log.segments().len(), 2);
        drop(open);
        // Weir's own file is gone, and the checkpoint of epochs is an old one.
        bench.disk.remove_file(&bench.side_dir.join("partition"));
        bench.disk.write_file(&bench.path("leader-epoch-checkpoint"), b"0\n1\n0 0\n");
        bench.disk.fail_write(nth);
        let Ok(open) = bench.try_open(bench.options()) else { continue };
        without += open.report.skipped.len();
        drop(open);
        bench.disk.fail_write(u64::MAX);
        let open = bench.open(OpenOptions { recovery_point: offset(4), ..bench.options() });
        assert_eq!(open.log.latest_epoch(), Some(epoch(3)), "write {nth}");
    }
    assert!(without > 1, "{without}");
}
