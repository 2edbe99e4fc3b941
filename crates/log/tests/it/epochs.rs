//! Leader epochs of one log: assigned, looked up, cut from either end, kept without records.

use weir_format::LeaderEpoch;
use weir_log::{AppendError, AppendParams, OpenOptions};

use super::support::*;

fn epochs(open: &Open) -> Vec<(i32, i64)> {
    open.log.epochs().entries().iter().map(|entry| (entry.epoch.get(), entry.start_offset.get())).collect()
}

fn end_of(open: &Open, asked: i32) -> Option<(i32, i64)> {
    open.log.end_offset_for_epoch(epoch(asked)).map(|(epoch, end)| (epoch.get(), end.get()))
}

fn mirror(open: &mut Open, base: i64, count: usize, leader_epoch: i32) {
    open.replicate(placed(plain(count, 10), base, leader_epoch));
}

/// Epoch 0 at 0, 3 at 20, log end 30.
fn two_epochs() -> (Bench, Open) {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    mirror(&mut open, 0, 20, 0);
    mirror(&mut open, 20, 10, 3);
    open.sync();
    (bench, open)
}

/// KIP-279: the largest epoch not above the one asked, and its end.
#[test]
fn trunc_8_an_epoch_that_was_never_here_is_answered_by_the_one_before_it() {
    let (_, open) = two_epochs();
    assert_eq!(epochs(&open), [(0, 0), (3, 20)]);
    assert_eq!(end_of(&open, 2), Some((0, 20)), "as in the case: (0, 20), then cut");
    assert_eq!(end_of(&open, 1), Some((0, 20)));
    assert_eq!(end_of(&open, 0), Some((0, 20)));
    assert_eq!(end_of(&open, 3), Some((3, 30)), "the newest ends where the log does");
    assert_eq!(end_of(&open, 4), None, "of an epoch to come nothing is known");
    // The follower {0@0, 1@10, 2@12} asked for its newest and cuts at 20, or where its own epoch 0 ends.
    let bench = Bench::new(2);
    let mut follower = bench.open_unclean();
    for (base, count, epoch) in [(0, 10, 0), (10, 2, 1), (12, 20, 2)] {
        mirror(&mut follower, base, count, epoch);
    }
    follower.sync();
    let (leader_epoch, leader_end) = end_of(&open, 2).unwrap();
    let (_, own_end) = end_of(&follower, leader_epoch).unwrap();
    follower.truncate(leader_end.min(own_end));
    assert_eq!((epochs(&follower), follower.log.log_end_offset()), (vec![(0, 0)], offset(10)));
}

#[test]
fn trunc_8_a_log_without_epochs_knows_none() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    assert_eq!((end_of(&open, 0), open.log.latest_epoch()), (None, None));
    // Below the oldest that is known: it ended before.
    mirror(&mut open, 100, 5, 7);
    assert_eq!(end_of(&open, 3), Some((3, 100)));
}

/// KAFKA-7415: it was in force, and clients ask for its end.
#[test]
fn epoch_3_an_epoch_without_records_is_known_and_stays_known() {
    let (bench, mut open) = two_epochs();
    open.log.assign_leader_epoch(&mut *open.io, epoch(1_003)).unwrap();
    let known = vec![(0, 0), (3, 20), (1_003, 30)];
    assert_eq!((epochs(&open), open.log.view().leader_epoch), (known.clone(), LeaderEpoch::new(1_003)));
    assert_eq!((end_of(&open, 3), end_of(&open, 1_003)), (Some((3, 30)), Some((1_003, 30))));
    drop(open);
    // It was durable when it was said, and neither recovery nor a clean restart takes it away.
    let open = bench.open_unclean();
    assert_eq!(epochs(&open), known);
    open.close();
    let mut open = bench.open_clean();
    assert_eq!(epochs(&open), known);
    // One below the newest does not come back, the same again changes nothing.
    open.log.assign_leader_epoch(&mut *open.io, epoch(1_000)).unwrap();
    open.log.assign_leader_epoch(&mut *open.io, epoch(1_003)).unwrap();
    assert_eq!(epochs(&open), known);
    let under = |leader| AppendParams::client(epoch(leader), NOW);
    let below = open.append(plain(1, 1), &under(1_002));
    assert!(matches!(below, Err(AppendError::LeaderEpochBelowNewest { .. })), "{below:?}");
    open.append(plain(1, 1), &under(1_003)).unwrap();
    assert_eq!((epochs(&open), end_of(&open, 1_003)), (known, Some((1_003, 31))));
}

/// An epoch without records gives way to the next one at the same offset: it never was in force for anything.
#[test]
fn an_epoch_without_records_gives_way_to_the_next_at_its_offset() {
    let (bench, mut open) = two_epochs();
    open.log.assign_leader_epoch(&mut *open.io, epoch(5)).unwrap();
    open.log.assign_leader_epoch(&mut *open.io, epoch(6)).unwrap();
    assert_eq!(epochs(&open), [(0, 0), (3, 20), (6, 30)]);
    mirror(&mut open, 30, 1, 6);
    open.sync();
    drop(open);
    assert_eq!(epochs(&bench.open_unclean()), [(0, 0), (3, 20), (6, 30)]);
}

/// From the end: what began above the cut goes, what began below it stays, also across restarts.
#[test]
fn a_cut_takes_the_epochs_that_began_above_it() {
    for (to, left) in [
        (31, vec![(0, 0), (3, 20), (9, 30)]),
        (30, vec![(0, 0), (3, 20)]),
        (25, vec![(0, 0), (3, 20)]),
        (20, vec![(0, 0)]),
        (5, vec![(0, 0)]),
        (0, vec![]),
    ] {
        let bench = Bench::new(1);
        let mut open = bench.open_unclean();
        // Batches of one record, so that every offset is a border.
        for at in 0..32 {
            mirror(
                &mut open,
                at,
                1,
                if at < 20 {
                    0
                } else if at < 30 {
                    3
                } else {
                    9
                },
            );
        }
        open.sync();
        open.truncate(to);
        assert_eq!(epochs(&open), left, "cut to {to}");
        drop(open);
        assert_eq!(epochs(&bench.open_unclean()), left, "cut to {to}, reopened");
    }
}

/// Kafka cuts the epochs also where there is nothing to cut in the log: who led and wrote nothing would else differ from
/// every later leader.
#[test]
fn a_cut_at_the_log_end_takes_an_epoch_that_began_there() {
    let (bench, mut open) = two_epochs();
    open.log.assign_leader_epoch(&mut *open.io, epoch(1_003)).unwrap();
    open.truncate(31);
    assert_eq!(epochs(&open), [(0, 0), (3, 20), (1_003, 30)], "above the log end");
    open.truncate(30);
    let left = [(0, 0), (3, 20)];
    assert_eq!((&epochs(&open)[..], open.log.view().leader_epoch), (&left[..], LeaderEpoch::new(3)));
    drop(open);
    bench.disk.crash(weir_segment::io::sim::CrashPolicy::DROP_ALL);
    assert_eq!(epochs(&bench.open_unclean()), left, "it was durable");
}

/// Epochs are noted no lower than the log start. A cut below it takes them all, as in Kafka, where none is known then; here
/// the one of what is left on disk is, as a start finds it.
#[test]
fn a_cut_below_the_log_start_leaves_the_epoch_of_what_is_left() {
    for (start, known, left) in [
        (0, vec![(0, 0), (3, 20), (1_003, 30)], vec![(0, 0), (3, 20), (1_003, 30)]),
        (38, vec![(1_003, 38)], vec![(3, 35)]),
    ] {
        let bench = Bench::new(1).segment_bytes(1_000);
        let mut open = bench.open_unclean();
        mirror(&mut open, 0, 20, 0);
        mirror(&mut open, 20, 10, 3);
        open.log.assign_leader_epoch(&mut *open.io, epoch(1_003)).unwrap();
        // Behind a gap, in a segment of its own.
        open.replicate(placed(plain(5, 100), 35, 1_003));
        open.sync();
        assert_eq!(open.log.segments().last().unwrap().base_offset, offset(35));
        open.log.move_log_start(offset(start)).unwrap();
        assert_eq!(epochs(&open), known);
        open.truncate(36);
        assert_eq!((epochs(&open), open.log.log_end_offset()), (left.clone(), offset(35)), "from {start}");
        drop(open);
        bench.disk.crash(weir_segment::io::sim::CrashPolicy::DROP_ALL);
        let options = OpenOptions { log_start_offset: offset(start), ..bench.options() };
        assert_eq!(epochs(&bench.open(options)), left, "from {start}, reopened");
    }
}

/// A crash may leave a checkpoint that begins behind what is left of the log, or is empty: nothing is said of offsets of
/// which nothing is known, and what the newest batch says is.
#[test]
fn where_no_epoch_is_known_the_newest_batch_says_which_is_in_force() {
    let bench = Bench::new(1).segment_bytes(500);
    let mut open = bench.open_unclean();
    // Each in a segment of its own: a start looks at the last one.
    for (base, leader_epoch) in [(0, 0), (3, 2), (9, 2), (11, 2)] {
        open.replicate(placed(plain(2, 150), base, leader_epoch));
    }
    open.close();
    let checkpoint = bench.path("leader-epoch-checkpoint");
    let options =
        |start| OpenOptions { clean_shutdown: true, log_start_offset: offset(start), ..bench.options() };
    // The log had started at 11, which nobody wrote down.
    bench.disk.write_file(&checkpoint, b"0\n1\n2 11\n");
    let mut open = bench.open(options(0));
    assert_eq!(epochs(&open), [(2, 11)]);
    open.truncate(11);
    assert_eq!(epochs(&open), [(2, 9)], "not what lies before");
    open.close();
    for (start, known) in [(0, [(2, 9)]), (11, [(2, 11)])] {
        bench.disk.write_file(&checkpoint, b"0\n0\n");
        let open = bench.open(options(start));
        assert_eq!((epochs(&open), open.log.view().leader_epoch), (known.to_vec(), LeaderEpoch::new(2)));
    }
}

/// From the start: the epoch in force at the log start begins there, and one without records behind it stays.
#[test]
fn a_log_start_that_moves_takes_the_epochs_that_ended_below_it() {
    for (start, left) in [
        (0, vec![(0, 0), (3, 20), (1_003, 30)]),
        (7, vec![(0, 7), (3, 20), (1_003, 30)]),
        (20, vec![(3, 20), (1_003, 30)]),
        (29, vec![(3, 29), (1_003, 30)]),
        (30, vec![(1_003, 30)]),
    ] {
        let (bench, mut open) = two_epochs();
        open.log.assign_leader_epoch(&mut *open.io, epoch(1_003)).unwrap();
        open.log.move_log_start(offset(start)).unwrap();
        assert_eq!(epochs(&open), left, "log start {start}");
        assert_eq!(end_of(&open, 1_003), Some((1_003, 30)));
        drop(open);
        let options = OpenOptions { log_start_offset: offset(start), ..bench.options() };
        assert_eq!(epochs(&bench.open(options)), left, "log start {start}, reopened");
    }
}

/// KAFKA-9491 (TRUNC-5).
#[test]
fn trunc_5_a_log_that_starts_anew_has_start_end_and_high_watermark_together() {
    let (bench, mut open) = two_epochs();
    open.log.truncate_fully_and_start_at(&mut *open.io, offset(200)).unwrap();
    let look = |open: &Open| {
        let view = open.log.view();
        [view.log_start_offset, view.last_stable_offset, view.high_watermark, view.log_end_offset]
            .map(|at| at.get())
    };
    assert_eq!((look(&open), epochs(&open)), ([200; 4], vec![]));
    drop(open);
    let mut open = bench.open_unclean();
    assert_eq!((look(&open), epochs(&open)), ([200; 4], vec![]));
    mirror(&mut open, 200, 1, 4);
    assert_eq!(epochs(&open), [(4, 200)]);
}

/// The end that is told of an epoch is never below an offset that was served in it.
#[test]
fn n_epoch_2_the_end_of_an_epoch_is_not_below_what_was_served_in_it() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    for at in 0..220 {
        mirror(&mut open, at, 1, 3);
        if at % 50 == 0 {
            open.sync();
        }
        let served = open.log.view().high_watermark.get();
        assert!(end_of(&open, 3).unwrap().1 >= served, "{at}");
    }
    open.sync();
    drop(open);
    let mut open = bench.open_unclean();
    assert_eq!(end_of(&open, 3), Some((3, 220)));
    open.log.assign_leader_epoch(&mut *open.io, epoch(1_003)).unwrap();
    assert_eq!(end_of(&open, 3), Some((3, 220)), "right after the failover");
}
