//! Whole lives of a partition against a naive history of what was handed over: a power cut at every operation of named
//! workloads, and random lives with random faults. Laws R1 to R6 and R8, B2 to B10, at each of them.
//!
//! The naive history (`weir_log::fuzzing::History`) keeps every batch and answers each question by reading all of them; it
//! shares no code with what it judges. After a crash the log is opened, opened again (not a byte of the directory may
//! change), opened after one more power cut, and opened with nothing left but its `.log` files; each time producers, open
//! and aborted transactions, barriers, leader epochs, stable offset, what readers of both kinds get, and offsets for
//! timestamps must be the history's. What the disk acknowledged (its ledger) must be there.
//!
//! `cargo test` does a part. All of it: `cargo test --release -p weir-log --test it -- --ignored --nocapture simulation`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_format::BatchReader;
use weir_log::fuzzing::{
    Machine, Mirrored, Mutant, Op, Stop, Tally, What, World, bytes_of_seed, check_operations, live,
};
use weir_segment::io::sim::CrashPolicy;

use super::support::testdata;

fn produce(id: i64, size: usize) -> Op {
    Op::Produce { id, transactional: false, count: 1, size }
}

fn in_transaction(id: i64, size: usize) -> Op {
    Op::Produce { id, transactional: true, count: 1, size }
}

fn commit(id: i64) -> Op {
    Op::Marker { id, commit: true, epoch: 0, coordinator: 0 }
}

fn abort(id: i64) -> Op {
    Op::Marker { id, commit: false, epoch: 0, coordinator: 0 }
}

/// A batch of another leader: whose, its sequence, whether it is of a transaction.
fn mirrored(id: i64, sequence: i32, transactional: bool) -> Mirrored {
    let what = What::Data { id, epoch: 0, sequence, transactional };
    Mirrored { gap: 0, next_epoch: false, what, count: 2, size: 60, emptied: false }
}

fn mirrored_marker(id: i64, commit: bool) -> Mirrored {
    let what = What::Marker { id, epoch: 0, coordinator_epoch: 3, commit };
    Mirrored { what, count: 1, ..mirrored(id, 0, true) }
}

fn mirrored_barrier() -> Mirrored {
    Mirrored { what: What::Barrier, count: 1, ..mirrored(0, 0, false) }
}

/// Idempotent producers, group commit, batches sent again, rolls, a clean stop and a kill.
fn producing() -> Vec<Op> {
    let mut ops = Vec::new();
    for round in 0..3 {
        ops.extend([produce(1, 40), Op::Flush, produce(2, 300), Op::SyncBegin, produce(1, 500), Op::Sync]);
        ops.extend([produce(3, 250), Op::Again { id: 3, back: 0 }, Op::Flush, Op::Poll]);
        ops.extend([Op::Plain { count: 3, size: 100 }, produce(2, 120), Op::Sync, Op::Checkpoint]);
        ops.push(if round == 1 { Op::Kill } else { Op::Reopen });
    }
    ops.extend([Op::Again { id: 1, back: 0 }, produce(1, 30), Op::Sync]);
    ops
}

/// Transactions that are committed, aborted and open, over segments; markers without one; late batches.
fn transactions() -> Vec<Op> {
    vec![
        in_transaction(1, 200),
        in_transaction(2, 200),
        Op::Sync,
        in_transaction(3, 200),
        abort(1),
        Op::Sync,
        in_transaction(2, 900),
        Op::Flush,
        commit(2),
        Op::SyncBegin,
        in_transaction(1, 60),
        Op::Sync,
        Op::Checkpoint,
        commit(2),
        Op::Marker { id: 3, commit: false, epoch: 1, coordinator: 1 },
        Op::Sync,
        in_transaction(2, 700),
        Op::Reopen,
        in_transaction(3, 700),
        commit(1),
        Op::Sync,
        abort(2),
        produce(1, 20),
        Op::Sync,
    ]
}

/// What a stop of a mirror does, with transactions open; then the colliding producers; a second barrier over open ones.
fn barriers() -> Vec<Op> {
    vec![
        Op::Mirror(vec![mirrored(1, 0, true), mirrored(2, 7, true), mirrored(3, 0, false)]),
        Op::Sync,
        Op::Mirror(vec![mirrored(1, 2, true), mirrored_marker(1, true), mirrored(3, 2, true)]),
        Op::Checkpoint,
        Op::Sync,
        Op::Epoch,
        abort(2),
        abort(3),
        Op::Barrier,
        Op::Sync,
        in_transaction(1, 300),
        produce(2, 300),
        Op::Sync,
        in_transaction(3, 700),
        Op::Barrier,
        Op::Flush,
        produce(1, 60),
        Op::Sync,
        commit(3),
        in_transaction(3, 100),
        commit(3),
        Op::Sync,
        Op::Kill,
        Op::Barrier,
        Op::Barrier,
        Op::Sync,
    ]
}

/// Barriers in the middle of what a mirror fetches: in one append, over a roll, behind a gap, with batches emptied.
fn mirroring() -> Vec<Op> {
    let gap = |gap, batch: Mirrored| Mirrored { gap, ..batch };
    let emptied = |batch: Mirrored| Mirrored { emptied: true, ..batch };
    let large = |batch: Mirrored| Mirrored { size: 500, ..batch };
    let newer = |batch: Mirrored| Mirrored { next_epoch: true, ..batch };
    vec![
        Op::Mirror(vec![
            mirrored(1, 0, true),
            mirrored(2, 0, true),
            mirrored_barrier(),
            mirrored(1, 0, true),
            mirrored_marker(1, true),
        ]),
        Op::Sync,
        Op::Mirror(vec![
            large(mirrored(3, 50, true)),
            gap(9, mirrored_barrier()),
            newer(large(mirrored(3, 0, false))),
            emptied(gap(3, mirrored(1, 4, false))),
        ]),
        Op::Flush,
        Op::Mirror(vec![mirrored(2, 9, true), mirrored_marker(2, false), mirrored(2, 11, true)]),
        Op::Sync,
        Op::Checkpoint,
        Op::Mirror(vec![large(mirrored(1, 6, false)), mirrored_barrier(), large(mirrored(2, 0, false))]),
        Op::Sync,
        Op::Reopen,
        Op::Mirror(vec![newer(mirrored(1, 0, true)), gap(30, mirrored_marker(1, false))]),
        Op::Sync,
    ]
}

/// Cuts above, at and below a barrier, inside a batch, over segments, of everything; other batches in their place.
fn cutting() -> Vec<Op> {
    vec![
        produce(1, 300), // 0
        in_transaction(2, 300),
        produce(3, 300),
        Op::Sync,
        Op::Barrier, // 3
        produce(1, 300),
        in_transaction(2, 300),
        commit(2),
        Op::Sync,
        Op::Checkpoint,
        Op::Truncate(6), // above: the COMMIT goes
        abort(2),
        Op::Sync,
        Op::Truncate(4), // the barrier stays
        produce(3, 60),
        Op::Sync,
        Op::Truncate(3), // the barrier goes
        commit(2),
        produce(1, 100),
        Op::Flush,
        Op::Truncate(2),
        Op::Barrier,
        Op::Plain { count: 3, size: 400 },
        Op::Sync,
        Op::Truncate(4), // inside a batch
        produce(2, 700),
        Op::Sync,
        Op::StartOver(60),
        in_transaction(2, 100),
        Op::Sync,
        Op::Truncate(10), // below the first segment
        Op::Mirror(vec![Mirrored { gap: 3, ..mirrored(1, 5, false) }, mirrored_barrier()]),
        Op::Sync,
    ]
}

/// The log start moves: into a segment, a transaction, past barriers, to the end; producers go on.
fn deleting() -> Vec<Op> {
    vec![
        produce(1, 400), // 0
        in_transaction(2, 400),
        produce(3, 400),
        abort(2), // 3
        Op::Sync,
        in_transaction(2, 400),
        Op::Barrier, // 5
        produce(1, 400),
        in_transaction(3, 400),
        Op::Sync,
        Op::Checkpoint,
        Op::DeleteTo(1),
        Op::CheckpointStart,
        produce(1, 300), // 8
        Op::Sync,
        Op::DeleteTo(6),
        produce(1, 100),
        Op::Sync,
        Op::Kill,
        commit(3),
        Op::Sync,
        Op::DeleteTo(10),
        Op::Reopen,
        produce(1, 500),
        Op::Sync,
        Op::DeleteTo(12),
        produce(1, 50),
        Op::Sync,
    ]
}

/// Leader epochs with and without records, over rolls and cuts.
fn epochs() -> Vec<Op> {
    vec![
        produce(1, 300),
        Op::Epoch,
        Op::Epoch,
        produce(1, 300),
        Op::Sync,
        Op::Epoch,
        produce(2, 500),
        Op::Flush,
        Op::Epoch,
        Op::Sync,
        Op::Checkpoint,
        produce(2, 600),
        Op::Sync,
        Op::Truncate(2),
        Op::Epoch,
        produce(1, 300),
        Op::Sync,
        Op::DeleteTo(2),
        Op::Epoch,
        Op::Reopen,
        Op::Epoch,
        Op::Kill,
        produce(1, 900),
        Op::Sync,
        Op::Rest,
        produce(1, 10),
        Op::Sync,
    ]
}

/// Segments go by size, by age and below the log start, before and behind the snapshots that a start would need; the last
/// of all goes too.
fn retaining() -> Vec<Op> {
    let by_size = |bytes| Op::Retain { ms: None, bytes: Some(bytes), most: 9 };
    let by_age = |ms| Op::Retain { ms: Some(ms), bytes: None, most: 9 };
    vec![
        produce(1, 400), // 0
        in_transaction(2, 400),
        produce(3, 400),
        Op::Flush,
        by_size(300), // nothing is durable
        Op::Sync,
        abort(2), // 3
        produce(1, 500),
        by_size(300), // up to the newest snapshot that is durable
        Op::Sync,
        by_size(900),
        Op::Barrier, // 5
        produce(1, 500),
        in_transaction(3, 600),
        Op::Sync,
        Op::Checkpoint,
        Op::Retain { ms: Some(2), bytes: Some(2_000), most: 1 },
        Op::CheckpointStart,
        produce(2, 700), // 8
        Op::Sync,
        by_age(1),
        Op::Kill,
        commit(3),
        produce(2, 700),
        Op::Sync,
        by_size(0), // the active one is left first, and no snapshot is at its end yet
        Op::Sync,
        by_size(0),
        produce(2, 100),
        Op::Sync,
        Op::Reopen,
        by_age(0), // the stop wrote one
        Op::Epoch,
        produce(2, 100),
        Op::Sync,
    ]
}

/// Producer snapshots on their way beside appends: whole, across a barrier, ended by a cut, by a deletion, by a stop and by
/// a kill, and one begun while the one before it is still written.
fn snapshotting() -> Vec<Op> {
    let steps = |count: usize| std::iter::repeat_n([Op::SnapshotStep, Op::Poll], count).flatten();
    let mut ops = vec![produce(1, 300), in_transaction(2, 300), produce(3, 300)];
    ops.push(produce(1, 400)); // a roll, and a snapshot
    for id in [2, 3, 1] {
        ops.extend(steps(2));
        ops.extend([produce(id, 60), Op::Flush, Op::SyncBegin]);
    }
    ops.extend(steps(3));
    ops.extend([produce(3, 700), Op::SnapshotStep, Op::Poll, abort(2), produce(2, 700)]);
    ops.extend(steps(2));
    ops.extend([Op::Barrier, Op::Flush]);
    ops.extend(steps(4));
    ops.extend([produce(1, 500), produce(2, 600), Op::SnapshotStep, Op::Poll, Op::SnapshotStep]);
    ops.extend([Op::Sync, Op::Checkpoint, produce(3, 700), produce(1, 500)]);
    ops.extend(steps(1));
    ops.extend([Op::Truncate(10), produce(3, 500), produce(2, 600)]);
    ops.extend(steps(3));
    ops.extend([Op::Settle, Op::Sync, produce(1, 700), Op::Flush, Op::SyncBegin, Op::Settle]);
    ops.extend(steps(2));
    ops.extend([Op::DeleteTo(9), Op::Poll, produce(2, 700)]);
    ops.extend(steps(2));
    ops.extend([Op::Reopen, produce(3, 900), produce(1, 300)]);
    ops.extend(steps(3));
    ops.extend([Op::Kill, produce(2, 900)]);
    ops.extend(steps(6));
    ops.extend([produce(1, 100), Op::Sync]);
    ops
}

type Workload = (&'static str, fn() -> Vec<Op>);

const WORKLOADS: [Workload; 9] = [
    ("producing", producing),
    ("transactions", transactions),
    ("barriers", barriers),
    ("mirroring", mirroring),
    ("cutting", cutting),
    ("deleting", deleting),
    ("epochs", epochs),
    ("retaining", retaining),
    ("snapshotting", snapshotting),
];

fn machines() -> [Machine; 4] {
    let machine = Machine { reorder: true, ..Machine::plain(1, 1_000) };
    [
        machine.clone(),
        Machine { seed: 2, direct: true, ..machine.clone() },
        Machine { seed: 3, ahead: Some(1_500), short: true, ..machine.clone() },
        Machine { seed: 4, direct: true, ahead: Some(5_000), queue_depth: Some(2), slow: true, ..machine },
    ]
}

/// What an enumeration found.
#[derive(Default)]
struct Found {
    operations: u64,
    points: u64,
    tally: Tally,
    wrong: Vec<String>,
}

impl Found {
    fn say(&self, what: &str) {
        println!(
            "{what}: {} disk operations, {} crash points, {:?}, {} wrong",
            self.operations,
            self.points,
            self.tally,
            self.wrong.len()
        );
    }
}

/// Cuts the power at every `stride`th operation of the disk, under each policy.
fn enumerate(workload: &Workload, machine: &Machine, mutant: Mutant, stride: usize) -> Found {
    let (name, ops) = (workload.0, workload.1());
    let mut whole = World::new(machine, mutant);
    let finished = whole.run(&ops);
    assert_eq!(finished, Ok(()), "{name} on {machine:?}");
    let count = whole.disk().op_count();
    let mut found = Found { operations: count, ..Found::default() };
    for op in (1..=count).step_by(stride) {
        let mut world = World::new(machine, mutant);
        world.disk().crash_at(op);
        let stopped = world.run(&ops);
        let what = |policy: &dyn std::fmt::Debug, stop: Stop| {
            format!("{name}, operation {op} of {count}, {policy:?}, {machine:?}: {stop:?}")
        };
        match stopped {
            Ok(()) | Err(Stop::Off) if world.disk().is_off() => {}
            stopped => found.wrong.push(format!("{name}, operation {op}: {stopped:?}")),
        }
        if let Err(stop) = world.check_ledger() {
            found.wrong.push(what(&"ledger", stop));
        }
        let ledger = world.ledger_to_keep();
        for policy in CrashPolicy::ALL {
            found.points += 1;
            let mut crashed = world.fork();
            crashed.power_cut(policy);
            let checked = crashed.recover().and_then(|()| match &ledger {
                Some(ledger) => crashed.check_against(ledger),
                None => Ok(()),
            });
            found.tally.add(&crashed.tally);
            if let Err(stop) = checked
                && stop != Stop::HalfASector
            {
                found.wrong.push(what(&policy, stop));
            }
        }
    }
    found
}

fn check_workload(name: &str) {
    let workload = WORKLOADS.iter().find(|workload| workload.0 == name).unwrap();
    let stride = if cfg!(debug_assertions) { 7 } else { 1 };
    let found = enumerate(workload, &machines()[0], Mutant::Right, stride);
    found.say(name);
    assert!(found.wrong.is_empty(), "{} wrong, the first: {}", found.wrong.len(), found.wrong[0]);
    assert!(found.points > 150 && found.tally.from_snapshot > 0, "{:?}", found.tally);
}

#[test]
fn producing_survives_power_cuts() {
    check_workload("producing");
}

#[test]
fn transactions_survive_power_cuts() {
    check_workload("transactions");
}

#[test]
fn barriers_over_open_transactions_survive_power_cuts() {
    check_workload("barriers");
}

#[test]
fn barriers_in_the_middle_of_a_fetch_survive_power_cuts() {
    check_workload("mirroring");
}

#[test]
fn cuts_above_at_and_below_a_barrier_survive_power_cuts() {
    check_workload("cutting");
}

#[test]
fn deletions_survive_power_cuts() {
    check_workload("deleting");
}

#[test]
fn leader_epochs_survive_power_cuts() {
    check_workload("epochs");
}

#[test]
fn retention_survives_power_cuts() {
    check_workload("retaining");
}

#[test]
fn snapshots_beside_appends_survive_power_cuts() {
    check_workload("snapshotting");
}

/// A roll syncs what it leaves, its indexes and its name; each of these syncs fails once.
#[test]
fn a_log_is_opened_again_after_a_sync_that_failed_in_a_roll() {
    let (mut offline, mut went_on) = (0, 0);
    for machine in machines() {
        for nth in 1..12 {
            let mut world = World::new(&Machine { short: false, ..machine.clone() }, Mutant::Right);
            let before = [produce(1, 300), in_transaction(2, 300), Op::Sync, abort(2), produce(3, 100)];
            assert_eq!(world.run(&before), Ok(()));
            world.fail_sync(nth);
            // The roll, with batches before it that are not synced yet.
            let stopped = world.run(&[produce(1, 600), Op::SnapshotStep, Op::Sync]);
            match stopped {
                Ok(()) => went_on += 1,
                Err(Stop::Off) => offline += 1,
                Err(wrong) => panic!("sync {nth} on {machine:?}: {wrong:?}"),
            }
            assert_eq!(world.check_ledger(), Ok(()), "sync {nth} on {machine:?}");
            let ledger = world.ledger_to_keep().unwrap();
            for policy in CrashPolicy::ALL {
                let mut crashed = world.fork();
                crashed.power_cut(policy);
                let again = crashed.recover().and_then(|()| crashed.check_against(&ledger));
                assert_eq!(again, Ok(()), "sync {nth}, {policy:?}, {machine:?}");
                // And it goes on.
                let more = [produce(1, 600), produce(3, 700), Op::Sync, Op::Reopen];
                assert_eq!(crashed.run(&more), Ok(()), "sync {nth}, {policy:?}, {machine:?}");
            }
        }
    }
    assert!(offline >= 8 && went_on >= 8, "{offline} offline, {went_on} went on");
}

#[test]
#[ignore = "minutes: cargo test --release -p weir-log --test it -- --ignored --nocapture simulation"]
fn every_workload_survives_a_power_cut_at_every_operation_on_every_machine() {
    let mut all = Found::default();
    for workload in &WORKLOADS {
        for machine in &machines() {
            let found = enumerate(workload, machine, Mutant::Right, 1);
            found.say(&format!("{}, machine {}", workload.0, machine.seed));
            all.operations += found.operations;
            all.points += found.points;
            all.tally.add(&found.tally);
            all.wrong.extend(found.wrong);
        }
    }
    all.say("all");
    assert!(all.wrong.is_empty(), "{} wrong, the first: {}", all.wrong.len(), all.wrong[0]);
    assert!(all.tally.torn > 100 && all.tally.holes > 0 && all.tally.preallocated > 100, "{:?}", all.tally);
}

// Random lives.

/// Lives of these seeds, on two threads: what happened. The first that fails is said, with its number.
fn live_all(seeds: std::ops::Range<u64>, mutant: Mutant) -> (Tally, Option<(u64, String)>) {
    let next = AtomicU64::new(seeds.start);
    let result = Mutex::new((Tally::default(), None::<(u64, String)>));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || result.lock().unwrap().1.is_some() {
                return;
            }
            let (tally, lived) = live(&bytes_of_seed(seed), mutant);
            let mut result = result.lock().unwrap();
            result.0.add(&tally);
            if let Err(wrong) = lived
                && result.1.as_ref().is_none_or(|earlier| seed < earlier.0)
            {
                result.1 = Some((seed, wrong));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    result.into_inner().unwrap()
}

fn check_seeds(seeds: std::ops::Range<u64>) -> Tally {
    let count = seeds.end - seeds.start;
    let (tally, failed) = live_all(seeds, Mutant::Right);
    println!("{count} lives, {tally:?}");
    if let Some((seed, wrong)) = failed {
        panic!("seed {seed}: {wrong}\nto see it again, write {seed} into crates/log/testdata/lives.txt");
    }
    tally
}

#[test]
fn some_random_lives_are_right() {
    let tally = check_seeds(0..50);
    assert!(tally.recoveries > 100 && tally.lost_unacknowledged > 20 && tally.barriers > 50, "{tally:?}");
}

/// Seeds of lives that once were not right, one a line.
#[test]
fn lives_that_once_went_wrong_are_right() {
    let text = std::fs::read_to_string(testdata().join("lives.txt")).unwrap();
    let mut count = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let seed = line.split_whitespace().next().unwrap().parse().unwrap();
        check_operations(&bytes_of_seed(seed));
        count += 1;
    }
    assert!(count > 0);
}

#[test]
#[ignore = "minutes: cargo test --release -p weir-log --test it -- --ignored --nocapture simulation"]
fn ten_thousand_random_lives_are_right() {
    let tally = check_seeds(0..10_000);
    assert!(tally.holes > 50 && tally.torn > 500 && tally.failed > 200 && tally.refused > 500, "{tally:?}");
}

#[test]
fn the_same_seed_is_the_same_life() {
    for seed in 0..8 {
        let run = || {
            let mut world = World::new(&Machine { slow: true, ..machines()[3].clone() }, Mutant::Right);
            world.disk().keep_trace(true);
            let done = world.run(&WORKLOADS[seed % WORKLOADS.len()].1());
            world.power_cut(CrashPolicy::ALL[seed]);
            (done, world.recover(), world.disk().trace(), world.disk().contents())
        };
        let (one, other) = (run(), run());
        assert!(one.2.len() > 50);
        assert_eq!(one, other);
    }
    for seed in 0..8 {
        let bytes = bytes_of_seed(seed);
        assert_eq!(live(&bytes, Mutant::Right), live(&bytes, Mutant::Right));
    }
}

// Tests of the tests: the same lives, of a node or a log that is wrong, are noticed.

/// The first life in which the mutant is noticed, and how.
fn caught(mutant: Mutant, seeds: u64) -> String {
    let (tally, failed) = live_all(0..seeds, mutant);
    let (seed, wrong) = failed.unwrap_or_else(|| panic!("{mutant:?} is not noticed: {tally:?}"));
    let first = wrong.lines().next().unwrap_or_default().to_string();
    println!("{mutant:?}: seed {seed}: {first}");
    first
}

#[test]
fn a_duplicate_that_is_acknowledged_before_its_original_is_durable_is_caught() {
    let said = caught(Mutant::AcknowledgesDuplicatesAtOnce, 500);
    assert!(said.contains("durable") || said.contains("acknowledged"), "{said}");
    // And by the enumeration, where the duplicate comes right behind its original.
    let found = enumerate(&WORKLOADS[0], &machines()[0], Mutant::AcknowledgesDuplicatesAtOnce, 3);
    assert!(found.wrong.len() > 5, "{}", found.wrong.len());
}

#[test]
fn a_batch_that_is_acknowledged_when_it_is_written_is_caught() {
    let said = caught(Mutant::AcknowledgesWhatIsWritten, 200);
    assert!(said.contains("durable") || said.contains("acknowledged"), "{said}");
}

#[test]
fn a_foreign_snapshot_that_is_trusted_is_caught() {
    let said = caught(Mutant::TrustsForeignSnapshots, 200);
    let what_it_knew = ["producer", "open transactions", "barriers"];
    assert!(what_it_knew.iter().any(|what| said.contains(what)), "{said}");
}

/// The world itself is not blind: what a reader gets is compared with what was handed over.
#[test]
fn a_history_that_differs_in_one_batch_is_noticed() {
    let mut world = World::new(&Machine::plain(1, 1_000), Mutant::Right);
    assert_eq!(world.run(&[produce(1, 10), in_transaction(2, 10), Op::Sync, Op::Check(100)]), Ok(()));
    let mut other = world.fork();
    other.history.batches[0].bytes[70] ^= 1;
    assert!(matches!(other.open(), Err(Stop::Wrong(wrong)) if wrong.contains("R2")));
    let mut other = world.fork();
    let What::Data { transactional, .. } = &mut other.history.batches[1].what else { panic!("data") };
    *transactional = false;
    assert!(matches!(other.open(), Err(Stop::Wrong(wrong)) if wrong.contains("producer")));
    let mut other = world.fork();
    other.history.assigned.push((1, 2));
    assert!(matches!(other.open(), Err(Stop::Wrong(wrong)) if wrong.contains("epochs")));
    assert_eq!(world.fork().open(), Ok(()));
    assert!(BatchReader::new(&world.history.batches[0].bytes).next().is_some());
}
