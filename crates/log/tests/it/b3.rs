//! Law B3 on whole logs: a leader, a follower that fetches from it, a mirror that fetches from the follower, and a replay,
//! each with segments of its own and fetches of its own size, loaded again or cut back in the middle, end in equal producer
//! state, with the same transaction index, leader epochs, barriers and last stable offset.
//!
//! `cargo test` tries some; 10,000 are `cargo test --release -p weir-log --test it -- --ignored b3`.

use bytes::BytesMut;
use proptest::prelude::*;
use weir_format::{BatchReader, RecordBatch};
use weir_log::{AppendParams, Isolation};
use weir_segment::io::sim::CrashPolicy;

use super::edges::{committed, delivered};
use super::splits::{Step, append_all, source, step};
use super::support::*;

/// What happens to whoever fetches, behind one of its fetches.
#[derive(Debug, Clone, Copy)]
enum Then {
    GoOn,
    /// A clean stop and a start.
    Reopen,
    /// Killed, and loaded from what snapshots there are.
    Kill,
    /// Killed and loaded from the `.log` files alone.
    Replay,
    /// Cut back by so many batches, and fetched again.
    Cut(usize),
}

fn then() -> impl Strategy<Value = Then> {
    prop_oneof![
        8 => Just(Then::GoOn),
        1 => Just(Then::Reopen),
        1 => Just(Then::Kill),
        1 => Just(Then::Replay),
        2 => (1..9_usize).prop_map(Then::Cut),
    ]
}

/// How a log is kept, and how it fetches.
#[derive(Debug, Clone)]
struct Keeper {
    segment_bytes: u32,
    max_bytes: usize,
    thens: Vec<Then>,
    seed: u64,
}

fn keeper() -> impl Strategy<Value = Keeper> {
    (300..4_000_u32, 1..3_000_usize, prop::collection::vec(then(), 12), any::<u64>())
        .prop_map(|(segment_bytes, max_bytes, thens, seed)| Keeper { segment_bytes, max_bytes, thens, seed })
}

/// A log, and whether a leader here wrote it or it came from elsewhere as it is.
#[derive(Debug, Clone)]
struct Case {
    steps: Vec<Step>,
    led: bool,
    keepers: [Keeper; 3],
}

fn cases() -> impl Strategy<Value = Case> {
    (prop::collection::vec(step(), 1..40), any::<bool>(), [keeper(), keeper(), keeper()]).prop_map(
        |(steps, led, keepers)| {
            // No leader goes back to an earlier epoch; a cut would not bring back what that contradicts.
            let steps = steps.into_iter().filter(|step| !matches!(step, Step::EarlierEpoch)).collect();
            Case { steps, led, keepers }
        },
    )
}

fn bench_of(keeper: &Keeper) -> Bench {
    let bench = Bench::new(keeper.seed).segment_bytes(keeper.segment_bytes);
    bench.disk.reorder(true);
    bench.disk.direct(keeper.seed.is_multiple_of(2));
    bench
}

/// Starts a log again.
fn again(bench: &mut Bench, open: Open, how: Then) -> Open {
    match how {
        Then::GoOn | Then::Cut(_) => open,
        Then::Reopen => {
            open.close();
            bench.open_clean()
        }
        Then::Kill | Then::Replay => {
            let recovery_point = open.log.recovery_point();
            drop(open);
            bench.disk.crash(CrashPolicy::KEEP_ALL);
            if matches!(how, Then::Replay) {
                bench.remove_auxiliary_files();
            }
            let mut options = bench.options();
            options.recovery_point = recovery_point;
            bench.open(options)
        }
    }
}

/// Appends as a leader does what a leader takes, batch by batch.
fn lead(open: &mut Open, log: &[BytesMut]) {
    for bytes in log {
        let batch = RecordBatch::parse(bytes).unwrap();
        let epoch = batch.leader_epoch().unwrap();
        let params = if batch.is_control() {
            AppendParams::coordinator(epoch, NOW)
        } else {
            AppendParams { may_start_transaction: true, ..AppendParams::client(epoch, NOW) }
        };
        let mut sent = bytes.clone();
        weir_format::set_base_offset(&mut sent, offset(0)).unwrap();
        // A client may be refused, and a batch may be a duplicate of one from before a barrier: then it is not in the log.
        let _answer = open.append(sent, &params);
    }
    open.sync();
}

/// Fetches from `source` until nothing is left.
fn follow(bench: &mut Bench, keeper: &Keeper, source: &mut Open) -> Open {
    let mut open = bench.open_unclean();
    let end = source.log.log_end_offset();
    let mut thens = keeper.thens.iter();
    // Where each batch begins, in the order of the log.
    let mut bases: Vec<i64> = Vec::new();
    loop {
        let at = open.log.log_end_offset();
        let at = at.max(source.log.view().log_start_offset);
        if at >= end {
            break;
        }
        let read =
            source.log.read(&mut *source.io, at, keeper.max_bytes, Isolation::Uncommitted, true).unwrap();
        if read.bytes.is_empty() {
            break;
        }
        bases.extend(BatchReader::new(&read.bytes).map(|batch| batch.unwrap().base_offset().get()));
        open.replicate(BytesMut::from(&read.bytes[..]));
        open.sync();
        match thens.next().copied().unwrap_or(Then::GoOn) {
            Then::Cut(back) => {
                let kept = bases.len().saturating_sub(back);
                let to = bases[kept];
                bases.truncate(kept);
                open.truncate(to);
            }
            how => open = again(bench, open, how),
        }
    }
    open
}

#[track_caller]
fn check_same(open: &mut Open, reference: &mut Open, what: &str) {
    let (found, right) = (open.facts(), reference.facts());
    assert_eq!(found.aborted, right.aborted, "{what}: the transaction index");
    assert_eq!(found, right, "{what}");
    assert_equal_state(&open.producers(), &reference.producers(), what);
    assert_equal_state(&reference.producers(), &open.producers(), what);
}

fn check_case(case: &Case) {
    let log = source(&case.steps);
    if log.is_empty() {
        return;
    }
    let [leader, follower, mirror] = &case.keepers;
    let mut on_leader = bench_of(leader);
    let mut first = on_leader.open_unclean();
    if case.led {
        lead(&mut first, &log);
    } else {
        append_all(&mut first, &log, &[3]);
    }
    let bytes = first.read_all(Isolation::Uncommitted);
    let log: Vec<BytesMut> =
        BatchReader::new(&bytes).map(|batch| BytesMut::from(batch.unwrap().bytes())).collect();
    if log.is_empty() {
        return;
    }
    // Batch by batch, in one segment, never loaded again.
    let mut reference = Bench::new(1).open_unclean();
    append_all(&mut reference, &log, &[1]);
    check_same(&mut first, &mut reference, "leader");
    let mut on_follower = bench_of(follower);
    let mut second = follow(&mut on_follower, follower, &mut first);
    check_same(&mut second, &mut reference, "follower");
    let mut on_mirror = bench_of(mirror);
    let mut third = follow(&mut on_mirror, mirror, &mut second);
    check_same(&mut third, &mut reference, "chained mirror");
    for open in [&mut second, &mut third] {
        assert!(open.read_all(Isolation::Uncommitted) == bytes, "byte for byte");
    }
    // Replays of each, from its own segments.
    for (bench, open) in [(&mut on_leader, first), (&mut on_follower, second), (&mut on_mirror, third)] {
        let mut replayed = again(bench, open, Then::Replay);
        check_same(&mut replayed, &mut reference, "replay");
        // And readers of each get exactly what was committed.
        let end = replayed.log.view().last_stable_offset;
        let (mut at, mut got) = (offset(0), Vec::new());
        while at < end {
            let read = replayed
                .log
                .read(&mut *replayed.io, at, leader.max_bytes, Isolation::Committed, true)
                .unwrap();
            let Some(last) = BatchReader::new(&read.bytes).last() else { break };
            got.extend(delivered(&read));
            at = last.unwrap().next_offset();
        }
        assert_eq!(got, committed(&log, end), "committed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn b3_leader_follower_chained_mirror_and_replay_end_in_equal_state(case in cases()) {
        check_case(&case);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "minutes: cargo test --release -p weir-log --test it -- --ignored b3"]
    fn b3_10_000_logs_end_in_equal_state_on_every_node(case in cases()) {
        check_case(&case);
    }
}

// The sequence that goes wrong wherever a barrier is not obeyed: a transaction of id 5 that is open at a barrier, and one
// of another producer 5 behind it.

const FIVE: i64 = 5;
const SIX: i64 = 6;

fn transactional(id: i64, size: usize) -> BytesMut {
    data(Some((id, 0, 0)), true, 1, size)
}

/// `[T pid 5][T pid 6][barrier][T pid 5][COMMIT pid 5]`, at offsets 0 to 4.
fn five_and_six(size: usize) -> Vec<BytesMut> {
    log_of(&[
        transactional(FIVE, size),
        transactional(SIX, size),
        barrier(),
        transactional(FIVE, 10),
        marker(true, FIVE, 0, 0),
    ])
}

/// What a `read_committed` consumer is given from `start`, whatever the size of its fetches.
fn given(open: &mut Open, start: i64, max_bytes: usize) -> Vec<i64> {
    let (mut at, mut got) = (offset(start), Vec::new());
    let end = open.log.view().last_stable_offset;
    while at < end {
        let read = open.log.read(&mut *open.io, at, max_bytes, Isolation::Committed, true).unwrap();
        let Some(last) = BatchReader::new(&read.bytes).last() else { break };
        got.extend(delivered(&read).into_iter().map(|base| base.get()));
        at = last.unwrap().next_offset();
    }
    got
}

/// The same before and after every kind of start, whatever the fetches: from the log start, and from the barrier on.
fn check_given(bench: &mut Bench, mut open: Open, expected: &[i64]) {
    let mut reference: Option<(Facts, weir_psm::ProducerStateManager)> = None;
    for how in [Then::GoOn, Then::Kill, Then::Reopen, Then::Replay, Then::Reopen] {
        open = again(bench, open, how);
        for max_bytes in [1, 90, 170, 1 << 20] {
            for start in [0, 1, 2, 3] {
                let right: Vec<i64> = expected.iter().copied().filter(|base| *base >= start).collect();
                let start = start.max(open.log.view().log_start_offset.get());
                assert_eq!(given(&mut open, start, max_bytes), right, "{how:?}, {max_bytes} from {start}");
            }
        }
        let (facts, producers) = (open.facts(), open.producers());
        let (right, of_right) = reference.get_or_insert_with(|| (facts.clone(), producers.clone()));
        assert_eq!(facts, *right, "{how:?}");
        assert_equal_state(&producers, of_right, "started again");
    }
}

#[test]
fn of_two_producers_5_the_one_behind_the_barrier_is_committed_and_the_other_is_not() {
    // In one segment; with the barrier opening one; each batch in its own. In one append and one by one.
    for (segment_bytes, size) in [(1 << 20, 10), (600, 200), (100, 10)] {
        for groups in [&[5][..], &[1], &[2, 3], &[3, 2]] {
            let mut bench = Bench::new(1).segment_bytes(segment_bytes);
            let mut open = bench.open_unclean();
            append_all(&mut open, &five_and_six(size), groups);
            let bases: Vec<i64> = open.log.segments().iter().map(|s| s.base_offset.get()).collect();
            assert_eq!(bases.contains(&2), segment_bytes <= 600, "{bases:?}");
            let aborted: Vec<(i64, i64, i64)> = open
                .aborted()
                .iter()
                .map(|e| (e.producer_id.get(), e.first_offset.get(), e.last_offset.get()))
                .collect();
            assert_eq!(aborted, [(FIVE, 0, 2), (SIX, 1, 2)]);
            assert_eq!(open.log.producers().map(|(id, _)| id.get()).collect::<Vec<_>>(), [FIVE]);
            check_given(&mut bench, open, &[3]);
        }
    }
}

#[test]
fn with_everything_before_the_barrier_compacted_away_the_one_behind_it_is_committed() {
    let all = five_and_six(10);
    let emptied = |base: i64, id: i64| {
        let batch = weir_format::BatchBuilder::new()
            .producer(
                weir_format::ProducerId::new(id).unwrap(),
                weir_format::ProducerEpoch::ZERO,
                weir_format::Sequence::new(0),
            )
            .transactional()
            .last_offset_delta(0)
            .build()
            .unwrap();
        placed(batch, base, 0)
    };
    let kept: [Vec<BytesMut>; 4] = [
        // Nothing before it is left.
        all[2..].to_vec(),
        // The batches, without their records.
        vec![emptied(0, FIVE), emptied(1, SIX), all[2].clone(), all[3].clone(), all[4].clone()],
        // One of them.
        vec![emptied(1, SIX), all[2].clone(), all[3].clone(), all[4].clone()],
        vec![all[0].clone(), all[2].clone(), all[3].clone(), all[4].clone()],
    ];
    for log in kept {
        for segment_bytes in [1 << 20, 100] {
            let mut bench = Bench::new(1).segment_bytes(segment_bytes);
            let mut open = bench.open_unclean();
            append_all(&mut open, &log, &[2]);
            check_given(&mut bench, open, &[3]);
        }
    }
}

#[test]
fn after_a_truncation_to_the_barrier_a_commit_in_its_place_commits_the_first() {
    for segment_bytes in [1 << 20, 600, 100] {
        let mut bench = Bench::new(1).segment_bytes(segment_bytes);
        let mut open = bench.open_unclean();
        append_all(&mut open, &five_and_six(200), &[5]);
        open.truncate(2);
        assert_eq!(open.log.open_transactions().len(), 2);
        assert_eq!((open.aborted(), open.log.partition_file().barriers().count()), (vec![], 0));
        open.coordinate(marker(true, FIVE, 0, 0));
        open.sync();
        assert_eq!(open.log.view().last_stable_offset, offset(1), "6 is still open");
        check_given(&mut bench, open, &[0]);
        // The same with 6 ended: everything is stable, and its batch is not given.
        let mut open = bench.open_unclean();
        open.coordinate(marker(false, SIX, 0, 0));
        open.sync();
        assert_eq!(open.log.view().last_stable_offset, offset(4));
        check_given(&mut bench, open, &[0]);
    }
}
