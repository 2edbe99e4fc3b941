//! Law B3: the same bytes, however they are split into appends and segments and wherever the log is loaded again, give
//! the same producer state, transaction index, LSO and leader epochs.

use bytes::BytesMut;
use proptest::prelude::*;
use weir_format::RecordBatch;
use weir_segment::io::sim::CrashPolicy;

use super::support::*;

/// One batch of a source's log.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Data { producer: i64, transactional: bool, count: usize, size: usize },
    Marker { producer: i64, commit: bool, bump: bool },
    Barrier,
    Plain { count: usize },
    NextEpoch,
    EarlierEpoch,
    Gap { size: i64 },
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4_i64, any::<bool>(), 1..4_usize, 0..120_usize)
            .prop_map(|(producer, transactional, count, size)| Step::Data { producer, transactional, count, size }),
        4 => (0..4_i64, any::<bool>(), any::<bool>())
            .prop_map(|(producer, commit, bump)| Step::Marker { producer, commit, bump }),
        2 => Just(Step::Barrier),
        1 => (1..3_usize).prop_map(|count| Step::Plain { count }),
        2 => Just(Step::NextEpoch),
        1 => Just(Step::EarlierEpoch),
        1 => (1..20_i64).prop_map(|size| Step::Gap { size }),
    ]
}

/// The bytes of the source's log, batch by batch. Sequences and epochs are those of well-behaved producers, but markers
/// come whether or not a transaction is open, and barriers in the middle of transactions.
pub(crate) fn source(steps: &[Step]) -> Vec<BytesMut> {
    let mut next = 0;
    let mut leader_epoch = 0;
    let mut sequences = [0_i32; 4];
    let mut epochs = [0_i16; 4];
    let mut log = Vec::new();
    for step in steps {
        let batch = match step {
            Step::Data { producer, transactional, count, size } => {
                let index = usize::try_from(*producer).unwrap();
                let batch =
                    data(Some((*producer, epochs[index], sequences[index])), *transactional, *count, *size);
                sequences[index] += i32::try_from(*count).unwrap();
                batch
            }
            Step::Marker { producer, commit, bump } => {
                let index = usize::try_from(*producer).unwrap();
                if *bump {
                    epochs[index] += 1;
                    sequences[index] = 0;
                }
                marker(*commit, *producer, epochs[index], 1)
            }
            Step::Barrier => {
                sequences = [0; 4];
                barrier()
            }
            Step::Plain { count } => plain(*count, 10),
            Step::NextEpoch => {
                leader_epoch += 1;
                continue;
            }
            // No source should, and then one does.
            Step::EarlierEpoch => {
                leader_epoch = (leader_epoch - 2).max(0);
                continue;
            }
            Step::Gap { size } => {
                next += size;
                continue;
            }
        };
        let batch = placed(batch, next, leader_epoch);
        next = RecordBatch::parse(&batch).unwrap().next_offset().get();
        log.push(batch);
    }
    log
}

/// Appends the batches in groups whose sizes repeat `groups`.
pub(crate) fn append_all(open: &mut Open, log: &[BytesMut], groups: &[usize]) {
    let mut rest = log;
    let mut sizes = groups.iter().cycle();
    while !rest.is_empty() {
        let count = (*sizes.next().unwrap()).min(rest.len());
        let (group, later) = rest.split_at(count);
        let mut bytes = BytesMut::new();
        group.iter().for_each(|batch| bytes.extend_from_slice(batch));
        open.replicate(bytes);
        rest = later;
    }
    open.sync();
}

#[track_caller]
fn check_same(open: &mut Open, reference: &mut Open, what: &str) {
    assert_eq!(open.facts(), reference.facts(), "{what}");
    assert_equal_state(&open.producers(), &reference.producers(), what);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_the_same_bytes_gives_equal_state(
        steps in proptest::collection::vec(step(), 1..40),
        groups in proptest::collection::vec(1..12_usize, 1..5),
        segment_bytes in 300..4000_u32,
        reload_at in 0..40_usize,
        seed in any::<u64>(),
    ) {
        let log = source(&steps);
        prop_assume!(!log.is_empty());
        // Batch by batch, in one segment, never loaded again.
        let mut reference = Bench::new(1).open_unclean();
        append_all(&mut reference, &log, &[1]);

        let bench = Bench::new(seed).segment_bytes(segment_bytes);
        bench.disk.reorder(true);
        bench.disk.short(true);
        let mut open = bench.open_unclean();
        append_all(&mut open, &log, &groups);
        check_same(&mut open, &mut reference, "another split");

        // Loaded again without a clean stop, from whatever snapshots the rolls left.
        let recovery_point = open.log.recovery_point();
        let killed = bench.fork();
        killed.disk.crash(CrashPolicy::KEEP_ALL);
        let mut options = killed.options();
        options.recovery_point = recovery_point;
        check_same(&mut killed.open(options), &mut reference, "killed, loaded from a snapshot");
        check_same(&mut killed.open_unclean(), &mut reference, "killed, recovery point lost");

        // Loaded again after a clean stop.
        let stopped = bench.fork();
        drop(open);
        let mut open = stopped.open_unclean();
        check_same(&mut open, &mut reference, "reloaded");
        open.close();
        check_same(&mut stopped.open_clean(), &mut reference, "cleanly stopped");

        // Without any other file than the log itself (R6).
        stopped.remove_auxiliary_files();
        check_same(&mut stopped.open_clean(), &mut reference, "all auxiliary files gone, clean");
        stopped.remove_auxiliary_files();
        check_same(&mut stopped.open_unclean(), &mut reference, "all auxiliary files gone");

        // Loaded in the middle and appended to: the rest meets a state that came from a snapshot.
        let middle = Bench::new(seed).segment_bytes(segment_bytes);
        let (first, second) = log.split_at(reload_at.min(log.len()));
        let mut open = middle.open_unclean();
        append_all(&mut open, first, &groups);
        open.close();
        let mut open = middle.open_clean();
        append_all(&mut open, second, &groups);
        check_same(&mut open, &mut reference, "stopped in the middle");
    }

    /// Law B6: cutting the log anywhere restores what was known there, and what is appended then is the same again.
    #[test]
    fn a_cut_restores_what_was_known_there(
        steps in proptest::collection::vec(step(), 2..40),
        groups in proptest::collection::vec(1..12_usize, 1..5),
        segment_bytes in 300..4000_u32,
        keep in 0..40_usize,
    ) {
        // An epoch that goes back drops what it contradicts, and a cut does not bring that back: as in Kafka.
        let steps: Vec<Step> =
            steps.into_iter().filter(|step| !matches!(step, Step::EarlierEpoch)).collect();
        let log = source(&steps);
        prop_assume!(log.len() >= 2);
        let (kept, _) = log.split_at(keep.min(log.len() - 1));
        let cut = RecordBatch::parse(&log[kept.len()]).unwrap().base_offset();
        let end = kept.last().map_or(0, |batch| RecordBatch::parse(batch).unwrap().next_offset().get());

        let mut reference = Bench::new(1).open_unclean();
        append_all(&mut reference, kept, &[1]);

        let bench = Bench::new(2).segment_bytes(segment_bytes);
        let mut open = bench.open_unclean();
        append_all(&mut open, &log, &groups);
        let recovery_point = open.log.recovery_point();
        open.truncate(cut.get());
        prop_assert!(open.log.log_end_offset() >= offset(end) && open.log.log_end_offset() <= cut);
        let check = |open: &mut Open, reference: &mut Open, what: &str| {
            let (found, expected) = (open.facts(), reference.facts());
            assert_eq!(found.aborted, expected.aborted, "{what}");
            assert_eq!(found.open, expected.open, "{what}");
            assert_eq!(found.epochs, expected.epochs, "{what}");
            assert_eq!(found.barriers, expected.barriers, "{what}");
            assert_eq!(found.last_batch, expected.last_batch, "{what}");
            assert_equal_state(&open.producers(), &reference.producers(), what);
        };
        check(&mut open, &mut reference, "cut");

        // R3, with the recovery-point checkpoint of before the cut.
        let killed = bench.fork();
        killed.disk.crash(CrashPolicy::DROP_ALL);
        let mut options = killed.options();
        options.recovery_point = recovery_point;
        check(&mut killed.open(options), &mut reference, "cut, killed");

        // The source's log goes on as before.
        append_all(&mut open, &log[kept.len()..], &groups);
        let mut whole = Bench::new(1).open_unclean();
        append_all(&mut whole, &log, &[1]);
        check_same(&mut open, &mut whole, "cut, and appended again");
        prop_assert_eq!(bench.log_bytes().len(), log.iter().map(|batch| batch.len()).sum::<usize>());
    }
}
