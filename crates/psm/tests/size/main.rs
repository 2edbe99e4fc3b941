//! What a producer costs. A binary of its own: the allocator counts the whole process, so nothing may run beside.

#![expect(clippy::print_stdout, reason = "what was measured is worth a look")]

use std::alloc::System;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use weir_format::{
    BatchBuilder, MirrorPidReset, Offset, ProducerEpoch, ProducerId, RecordBatch, Sequence, TimestampMs, crc,
};
use weir_psm::{
    AppendOrigin, Applied, Checked, ProducerStateEntry, ProducerStateManager, PsmConfig, snapshot,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn append(psm: &mut ProducerStateManager, bytes: &[u8]) -> Applied {
    let batch = RecordBatch::parse_without_crc(bytes).expect("a batch");
    match psm.check(&batch, psm.map_end_offset(), AppendOrigin::Replication) {
        Ok(Checked::Append(transition)) => psm.commit(transition),
        other => panic!("{other:?}"),
    }
}

/// A manager that knows these producers, each with so many batches.
fn filled(config: PsmConfig, ids: &[i64], batches: i32) -> ProducerStateManager {
    let mut psm = ProducerStateManager::new(config);
    let mut bytes = BatchBuilder::new()
        .producer(ProducerId::ZERO, ProducerEpoch::ZERO, Some(Sequence::ZERO))
        .record(TimestampMs::new(1), None, None)
        .build()
        .expect("a batch")
        .to_vec();
    for round in 0..batches {
        bytes[53..57].copy_from_slice(&round.to_be_bytes());
        for id in ids {
            bytes[43..51].copy_from_slice(&id.to_be_bytes());
            let _ = append(&mut psm, &bytes);
        }
    }
    psm
}

/// Bytes that are kept for each producer.
fn cost(what: &str, config: PsmConfig, ids: &[i64], batches: i32) -> usize {
    let region = Region::new(ALLOCATOR);
    let psm = filled(config, ids, batches);
    let change = region.change();
    let cost = (change.bytes_allocated - change.bytes_deallocated) / ids.len();
    println!("{cost} bytes a producer: {} {what}", ids.len());
    assert_eq!(psm.producer_count(), ids.len());
    assert!(cost <= 300, "{cost} bytes a producer: {what}");
    cost
}

/// Ids without an order, far apart.
fn scattered(count: i64) -> Vec<i64> {
    (0..count).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()) & i64::MAX).collect()
}

/// N-PID-8. Ascending ids, as a cluster hands them out, are the worst case for a tree.
fn check_cost() {
    let entry = size_of::<ProducerStateEntry>();
    println!("an entry has {entry} bytes");
    let million: Vec<i64> = (0..1_000_000).collect();
    let config = PsmConfig::default();
    cost("ascending", config, &million, 1);
    let (some, scattered) = (&million[..100_000], scattered(100_000));
    // The window lies in the entry: a full one costs no more.
    assert_eq!(cost("ascending", config, some, 1), cost("with a full window", config, some, 6));
    cost("scattered", config, &scattered, 6);
    let capped = PsmConfig { max_producers: Some(100_000), ..config };
    cost("under a cap", capped, some, 6);
    cost("scattered under a cap", capped, &scattered, 6);

    // Any number of ids under a cap costs what the cap allows.
    let region = Region::new(ALLOCATOR);
    let psm = filled(PsmConfig { max_producers: Some(10_000), ..config }, &million[..200_000], 1);
    let change = region.change();
    let kept = change.bytes_allocated - change.bytes_deallocated;
    println!("{kept} bytes for 200000 producers of whom 10000 are kept");
    assert!(kept <= 300 * 10_000, "{kept} bytes");
    assert_eq!(psm.producer_count(), 10_000);
}

/// A batch of a known producer allocates nothing, whoever sends it.
fn check_batches() {
    let ids: Vec<i64> = (0..1_000).collect();
    let mut psm = filled(PsmConfig::default(), &ids, 5);
    let mut bytes = BatchBuilder::new()
        .producer(ProducerId::new(77).expect("not negative"), ProducerEpoch::ZERO, Sequence::new(5))
        .record(TimestampMs::new(1), None, None)
        .build()
        .expect("a batch")
        .to_vec();
    let region = Region::new(ALLOCATOR);
    for origin in [AppendOrigin::Client, AppendOrigin::Replication] {
        let batch = RecordBatch::parse_without_crc(&bytes).expect("a batch");
        let Ok(Checked::Append(transition)) = psm.check(&batch, psm.map_end_offset(), origin) else {
            panic!("it is the next")
        };
        let _ = psm.commit(transition);
        bytes[53..57].copy_from_slice(&6_i32.to_be_bytes());
    }
    assert_eq!(region.change().allocations, 0);
}

/// The snapshot is linear, and one allocation; a load keeps what the entries cost, and no count sizes anything that the
/// bytes do not hold.
fn check_snapshots() {
    let ids: Vec<i64> = (0..100_000).collect();
    let psm = filled(PsmConfig::default(), &ids, 1);
    let region = Region::new(ALLOCATOR);
    let bytes = psm.snapshot();
    assert_eq!(bytes.len(), 10 + 46 * ids.len());
    assert_eq!(region.change().allocations, 1);

    let region = Region::new(ALLOCATOR);
    let mut loaded = ProducerStateManager::new(PsmConfig::default());
    loaded.load_snapshot(&bytes, Offset::MAX).expect("we wrote it");
    let change = region.change();
    let kept = (change.bytes_allocated - change.bytes_deallocated) / ids.len();
    println!("{kept} bytes a producer: {} loaded", ids.len());
    assert!(kept <= 300, "{kept} bytes a producer");
    assert!(loaded.equal_state(&psm));

    for count in [1, 1_000, i32::MAX] {
        let mut bytes = [&[0, 1, 0, 0, 0, 0], &count.to_be_bytes()[..], &[7; 45]].concat();
        let crc = crc::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
        let region = Region::new(ALLOCATOR);
        assert!(snapshot::decode(&bytes).is_err());
        assert_eq!(region.change().bytes_allocated, 0, "{count} entries were announced");
    }
}

/// What the law allows.
const MOST: Duration = Duration::from_millis(50);

/// The fastest of some, or the first that is fast enough: what else runs on the machine is not measured.
fn fastest(most: Duration, mut measure: impl FnMut() -> Duration) -> Duration {
    let first = measure();
    (0..30)
        .try_fold(first, |best, _| if best < most { Err(best) } else { Ok(best.min(measure())) })
        .unwrap_or_else(|best| best)
}

/// A barrier, with the memory of what it forgot given back or without.
fn barrier_time(filled: &ProducerStateManager, with_memory: bool) -> Duration {
    let barrier = MirrorPidReset::build(TimestampMs::new(2));
    fastest(MOST, || {
        let mut psm = filled.clone();
        #[expect(clippy::disallowed_methods, reason = "this measures")]
        let start = Instant::now();
        let mut applied = append(&mut psm, &barrier);
        let forgotten = std::mem::take(&mut applied.forgotten);
        let without = start.elapsed();
        assert_eq!(format!("{forgotten:?}"), format!("Forgotten({})", filled.producer_count()));
        drop(forgotten);
        let took = if with_memory { start.elapsed() } else { without };
        let barrier = applied.barrier.expect("it is one");
        assert_eq!(barrier.producers_expired, filled.producer_count());
        assert_eq!((psm.producer_count(), psm.first_unstable_offset()), (0, None));
        took
    })
}

/// PID-14. The law is 50 ms for a million, in release; a debug build is allowed that for a tenth.
fn check_times() {
    let count = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let ids: Vec<i64> = (0..count).collect();
    let psm = filled(PsmConfig::default(), &ids, 1);
    for with_memory in [false, true] {
        let took = barrier_time(&psm, with_memory);
        let what = if with_memory { "with their memory" } else { "without their memory" };
        println!("a barrier over {count} producers takes {took:?} {what}");
        assert!(took < MOST, "{took:?}");
    }
}

/// The memory that a barrier forgot is the caller's to give back.
fn check_forgotten() {
    let ids: Vec<i64> = (0..10_000).collect();
    let mut psm = filled(PsmConfig::default(), &ids, 1);
    let region = Region::new(ALLOCATOR);
    let applied = append(&mut psm, &MirrorPidReset::build(TimestampMs::new(2)));
    let before = region.change().bytes_deallocated;
    assert!(before < 1_000, "{before} bytes were given back at the barrier");
    drop(applied);
    let after = region.change().bytes_deallocated;
    assert!(after >= 192 * ids.len(), "{after} bytes");
}

/// One test, so that nothing else allocates meanwhile.
#[test]
fn a_producer_costs_at_most_300_bytes_and_a_barrier_forgets_them_at_once() {
    check_cost();
    check_batches();
    check_snapshots();
    check_forgotten();
    check_times();
}
