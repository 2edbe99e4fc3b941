//! The hot tail: seamless, bounded, of one history, and without the disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use weir_format::{BatchBuilder, BatchReader, ControlRecordType, Offset, RecordBatch};
use weir_log::{AppendParams, HotTail, Isolation, Read, TailMemory};
use weir_segment::io::sim::SimIo;
use weir_segment::io::{self, FileId, Io, IoError};

use super::support::*;

const BOTH: [Isolation; 2] = [Isolation::Committed, Isolation::Uncommitted];

impl Bench {
    /// Opens it with a tail.
    fn open_with_tail(&self, memory: &TailMemory) -> (Open, HotTail) {
        let mut open = self.open_unclean();
        let tail = HotTail::new();
        open.log.attach_tail(tail.clone(), memory.clone());
        (open, tail)
    }
}

fn offsets_of(bytes: &[u8]) -> Vec<(i64, i64)> {
    let batches = BatchReader::new(bytes).map(|batch| batch.expect("whole batches"));
    batches.map(|batch| (batch.base_offset().get(), batch.last_offset().get())).collect()
}

/// Reads on and on, as a consumer does, and answers how many reads each of memory and disk has served.
fn read_on(open: &mut Open, tail: &HotTail, isolation: Isolation, max_bytes: usize) -> (Vec<u8>, [usize; 2]) {
    let view = open.log.view();
    let (mut at, mut all, mut served) = (view.log_start_offset, Vec::new(), [0, 0]);
    while at < view.end_for(isolation) {
        let read = match tail.read(at, max_bytes, isolation, true) {
            Some(read) => {
                served[0] += 1;
                read
            }
            None => {
                served[1] += 1;
                open.log.read(&mut *open.io, at, max_bytes, isolation, true).unwrap()
            }
        };
        assert!(!read.bytes.is_empty(), "nothing at {at}");
        assert!(read.bytes.len() <= max_bytes || offsets_of(&read.bytes).len() == 1);
        for batch in BatchReader::new(&read.bytes) {
            at = batch.unwrap().next_offset();
        }
        all.extend_from_slice(&read.bytes);
    }
    (all, served)
}

#[test]
fn a_reader_goes_from_the_disk_to_the_tail_without_a_gap() {
    let bench = Bench::new(7).segment_bytes(30_000);
    let memory = TailMemory::new(60_000);
    let (mut open, tail) = bench.open_with_tail(&memory);
    let mut all = Vec::new();
    for number in 0..150_usize {
        // Small appends, large ones, and mirrored ones of several batches.
        let size = [40, 300, 9_000, 20, 2_000][number % 5];
        let base = open.log.log_end_offset().get();
        let appended = if number % 7 == 0 {
            let mut batches = BytesMut::new();
            for step in 0..4 {
                batches.extend_from_slice(&placed(plain(1, size / 4), base + 2 * step, 0));
            }
            batches
        } else {
            placed(plain(3, size / 3), base, 0)
        };
        all.extend_from_slice(&appended);
        open.replicate(appended);
        assert!(memory.used() <= memory.max_bytes());
    }
    open.sync();
    let start = tail.start_offset();
    assert!(start > offset(100) && start < open.log.log_end_offset(), "the tail holds a part: from {start}");
    for max_bytes in [1, 500, 5_000, 25_000, 1 << 20] {
        for isolation in BOTH {
            let (read, [from_tail, from_disk]) = read_on(&mut open, &tail, isolation, max_bytes);
            assert!(read == all, "{max_bytes} {isolation:?}");
            assert!(from_tail > 0 && from_disk > 0, "{from_tail} from memory, {from_disk} from the disk");
        }
    }
    // From every offset, those in gaps included, the first batch is the one that holds it or follows.
    let batches = offsets_of(&all);
    for from in 0..open.log.log_end_offset().get() {
        let expected = batches.iter().find(|(_, last)| *last >= from).unwrap();
        let read = open.read(from, 1, Isolation::Uncommitted);
        assert_eq!(offsets_of(&read.bytes), [*expected], "{from}");
        assert_eq!(tail.read(offset(from), 1, Isolation::Uncommitted, true).is_some(), offset(from) >= start);
    }
    assert!(tail.read(open.log.log_end_offset().next().unwrap(), 1, Isolation::Uncommitted, true).is_none());
}

/// N-TAIL-7: readers at several distances, with fetch sizes that change, while the log grows, rolls and evicts.
#[test]
fn readers_that_lag_are_given_every_offset_once_while_the_log_grows() {
    let bench = Bench::new(7).segment_bytes(20_000);
    let memory = TailMemory::new(15_000);
    let (mut open, tail) = bench.open_with_tail(&memory);
    // Where each is, and how often it reads: the last one falls behind the tail.
    let mut readers = [(0_i64, 1), (0, 3), (0, 29)];
    let mut served = [[0, 0]; 3];
    let mut random = 1_usize;
    for turn in 0..600_usize {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let chance = random >> 33;
        open.produce(plain(1 + chance % 3, 1 + chance % 700));
        if turn % 4 == 0 {
            open.sync();
        }
        for (reader, (at, every)) in readers.iter_mut().enumerate() {
            if turn % *every != 0 {
                continue;
            }
            let (max_bytes, isolation) = (1 + chance % 9_000, BOTH[turn % 2]);
            let from_tail = tail.read(offset(*at), max_bytes, isolation, true);
            served[reader][usize::from(from_tail.is_none())] += 1;
            let read = match from_tail {
                Some(read) => read,
                None => open.log.read(&mut *open.io, offset(*at), max_bytes, isolation, true).unwrap(),
            };
            for (base, last) in offsets_of(&read.bytes) {
                assert_eq!(base, *at, "reader {reader}");
                *at = last + 1;
            }
            assert!(offset(*at) <= read.view.high_watermark);
        }
    }
    let [near, _, far] = served;
    assert!(near[0] > 500 && far[1] > 5, "from memory and from the disk: {served:?}");
    assert!(readers[0].0 > 1_000);
}

#[test]
fn a_read_of_the_tail_does_not_touch_the_disk() {
    let bench = Bench::new(7);
    let memory = TailMemory::new(40_000);
    let (mut open, tail) = bench.open_with_tail(&memory);
    for number in 0..60_usize {
        open.produce(plain(2, 1_000));
        if number % 3 == 0 {
            let (id, sequence) = (7, i32::try_from(number / 3).unwrap());
            open.produce(data(Some((id, 0, sequence)), true, 1, 200));
            open.coordinate(marker(number % 2 == 0, id, 0, 1));
        }
    }
    open.sync();
    let start = tail.start_offset();
    let end = open.log.log_end_offset();
    let before = bench.disk.read_count();
    let mut at = start;
    while at < end {
        let read = open.log.read(&mut *open.io, at, 10_000, Isolation::Committed, true).unwrap();
        at = offset(offsets_of(&read.bytes).last().unwrap().1 + 1);
    }
    assert_eq!(bench.disk.read_count(), before, "served from memory");
    let below = offset(start.get() - 1);
    open.log.read(&mut *open.io, below, 10_000, Isolation::Committed, true).unwrap();
    assert!(bench.disk.read_count() > before, "served from the disk");
}

#[test]
fn nothing_above_the_high_watermark_is_read() {
    let (mut open, tail) = Bench::new(7).open_with_tail(&TailMemory::new(1 << 20));
    open.produce(plain(2, 100));
    open.sync();
    open.produce(plain(3, 9_000));
    open.produce(plain(1, 10));
    let read = tail.read(offset(0), 1 << 20, Isolation::Uncommitted, true).unwrap();
    assert_eq!(offsets_of(&read.bytes), [(0, 1)]);
    assert_eq!(read.view.high_watermark, offset(2));
    for from in 2..=6 {
        let read = tail.read(offset(from), 1 << 20, Isolation::Uncommitted, true).unwrap();
        assert!(read.bytes.is_empty(), "{from}");
    }
    open.sync();
    let read = tail.read(offset(2), 1 << 20, Isolation::Uncommitted, true).unwrap();
    assert_eq!(offsets_of(&read.bytes), [(2, 4), (5, 5)]);
    // LSO-6 and N-LSO-4: what is open is not stable, whatever is durable.
    open.produce(data(Some((7, 0, 0)), true, 1, 10));
    open.produce(plain(1, 10));
    open.sync();
    let read = tail.read(offset(5), 1 << 20, Isolation::Committed, true).unwrap();
    assert_eq!((offsets_of(&read.bytes), read.view.last_stable_offset), (vec![(5, 5)], offset(6)));
    assert!(tail.read(offset(6), 1 << 20, Isolation::Committed, true).unwrap().bytes.is_empty());
}

#[test]
fn the_oldest_bytes_of_all_partitions_go_first() {
    let memory = TailMemory::new(100_000);
    let mut partitions: Vec<(Open, HotTail)> =
        (0..4).map(|seed| Bench::new(seed).open_with_tail(&memory)).collect();
    let fill = |partition: &mut (Open, HotTail), count: usize| {
        for _ in 0..count {
            partition.0.produce(plain(1, 9_000));
            assert!(memory.used() <= memory.max_bytes());
        }
        partition.0.sync();
    };
    let held = |partition: &(Open, HotTail)| {
        partition.0.log.log_end_offset().get() - partition.1.start_offset().get()
    };
    for partition in &mut partitions {
        fill(partition, 2);
    }
    assert_eq!(partitions.iter().map(held).collect::<Vec<_>>(), [2, 2, 2, 2]);
    // Ten of these fit. The ninth and tenth are the third partition's; then each pushes out the oldest of all.
    fill(&mut partitions[2], 2);
    fill(&mut partitions[3], 3);
    assert_eq!(partitions.iter().map(held).collect::<Vec<_>>(), [0, 1, 4, 5]);
    // What is too large for all of it is not held, and leaves no hole behind it.
    partitions[0].0.produce(plain(1, 200_000));
    fill(&mut partitions[0], 1);
    assert_eq!(held(&partitions[0]), 1);
    // A cut and a log that ends give their memory back.
    partitions[3].0.truncate(1);
    assert_eq!(held(&partitions[3]), 0);
    let used = memory.used();
    let (open, tail) = partitions.remove(2);
    open.close();
    assert!(memory.used() < used && tail.view().is_none());
    assert!(tail.read(offset(0), 1, Isolation::Uncommitted, true).is_none());
    partitions.drain(..).for_each(|(open, _)| open.close());
    assert_eq!(memory.used(), 0);
}

#[test]
fn many_small_appends_cost_what_they_hold_and_one_copy() {
    let memory = TailMemory::new(1 << 20);
    let (mut open, tail) = Bench::new(7).open_with_tail(&memory);
    let mut size = 0;
    for _ in 0..2_000 {
        let batch = plain(1, 30);
        size += u64::try_from(batch.len()).unwrap();
        open.produce(batch);
    }
    open.sync();
    assert_eq!(tail.start_offset(), offset(0), "all of it is held");
    assert!(memory.used() < size + size / 2, "{} for {size}", memory.used());
    // A read from within a chunk, which is still growing, and over the border of another.
    let read = tail.read(offset(1_990), 1 << 20, Isolation::Uncommitted, true).unwrap();
    assert_eq!(offsets_of(&read.bytes).len(), 10);
    let read = tail.read(offset(7), 1 << 20, Isolation::Uncommitted, true).unwrap();
    assert_eq!(offsets_of(&read.bytes).len(), 1_993);
}

#[test]
fn what_was_appended_together_is_read_without_a_copy() {
    let (mut open, tail) = Bench::new(7).open_with_tail(&TailMemory::new(1 << 20));
    for _ in 0..3 {
        open.produce(plain(4, 5_000));
    }
    open.produce(plain(1, 100));
    open.sync();
    let one = |from, max| tail.read(offset(from), max, Isolation::Uncommitted, true).unwrap().bytes;
    // The last append would fit as well.
    let (first, again) = (one(8, 30_000), one(8, 25_000));
    assert_eq!(first.as_ptr(), again.as_ptr(), "a handle on the same memory");
    assert_eq!(offsets_of(&first), [(8, 11)]);
    // Where that would be little of what is asked for, it is put together.
    assert_eq!(offsets_of(&one(4, 200_000)), [(4, 7), (8, 11), (12, 12)]);
}

/// N-GAP-2: batches further apart than 32 bits say, in one chunk.
#[test]
fn offsets_far_apart_in_one_chunk_do_not_wrap() {
    let (mut open, tail) = Bench::new(7).open_with_tail(&TailMemory::new(1 << 20));
    let apart = (1 << 31) + 5;
    let bases: Vec<i64> = (0..5).map(|number| number * apart).collect();
    for base in &bases {
        open.replicate(placed(plain(1, 10), *base, 0));
    }
    open.sync();
    assert_eq!(open.log.segments().len(), 5, "an index on the disk cannot say it either");
    for (number, base) in bases.iter().enumerate() {
        for from in [*base, *base - 1, *base - apart / 2] {
            let Some(from) = Offset::new(from) else { continue };
            let read = tail.read(from, 1, Isolation::Uncommitted, true).unwrap();
            assert_eq!(offsets_of(&read.bytes), [(*base, *base)], "{from}");
        }
        let read = tail.read(offset(*base), 1 << 20, Isolation::Uncommitted, true).unwrap();
        assert_eq!(offsets_of(&read.bytes).len(), 5 - number);
    }
}

/// GAP-1, GAP-3, GAP-7: what compaction leaves.
#[test]
fn an_offset_that_was_compacted_away_is_answered_with_the_batch_that_holds_it_or_follows() {
    let batch = |base: i64, kept: &[i64]| {
        let mut builder =
            BatchBuilder::new().base_offset(offset(base)).last_offset_delta(9).base_timestamp(NOW);
        for delta in kept {
            builder = builder.record_at(*delta, NOW, None, Some(b"v"), &[]);
        }
        placed(builder.build().unwrap(), base, 0)
    };
    for memory in [0, 1 << 20] {
        let bench = Bench::new(7);
        let (mut open, _) = bench.open_with_tail(&TailMemory::new(memory));
        open.replicate(batch(0, &[0, 3]));
        open.replicate(batch(40, &[]));
        open.replicate(batch(1_110, &[9]));
        open.sync();
        for (from, expected) in [
            (5, 0),
            (9, 0),
            (10, 40),
            (39, 40),
            (49, 40),
            (50, 1_110),
            (700, 1_110),
            (1_110, 1_110),
            (1_119, 1_110),
        ] {
            for isolation in BOTH {
                let read = open.read(from, 1, isolation);
                assert_eq!(offsets_of(&read.bytes), [(expected, expected + 9)], "{from}");
            }
        }
        assert_eq!(offsets_of(&open.read_all(Isolation::Committed)).len(), 3);
        assert!(open.read(1_120, 1, Isolation::Uncommitted).bytes.is_empty());
    }
}

/// What an application is given by a client that reads committed data: offsets of batches. As clients do it: an aborted
/// producer id is kept until a marker of it within the same response.
fn delivered(read: &Read) -> Vec<i64> {
    let mut coming: Vec<_> =
        read.aborted.iter().map(|entry| (entry.first_offset, entry.producer_id)).collect();
    assert!(coming.is_sorted_by_key(|(first, _)| *first), "ascending");
    coming.reverse();
    let (mut aborted, mut delivered) = (BTreeSet::new(), Vec::new());
    for batch in BatchReader::new(&read.bytes) {
        let batch = batch.unwrap();
        while let Some((_, id)) = coming.pop_if(|(first, _)| *first <= batch.last_offset()) {
            aborted.insert(id);
        }
        let Some(id) = batch.producer_id().filter(|_| batch.is_transactional()) else {
            delivered.extend((!batch.is_control()).then_some(batch.base_offset().get()));
            continue;
        };
        if batch.is_control() {
            if batch.control_type() == Some(ControlRecordType::Abort) {
                aborted.remove(&id);
            }
        } else if !aborted.contains(&id) {
            delivered.push(batch.base_offset().get());
        }
    }
    delivered
}

/// One step of a history: who, and what happens.
#[derive(Debug, Clone, Copy)]
enum Step {
    Plain(usize),
    Data(i64, usize),
    End(i64, bool),
    Barrier,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_usize..9_500).prop_map(Step::Plain),
        6 => (0_i64..4, 1_usize..300).prop_map(|(id, size)| Step::Data(id, size)),
        5 => (0_i64..4, any::<bool>()).prop_map(|(id, commit)| Step::End(id, commit)),
        1 => Just(Step::Barrier),
    ]
}

/// A source's log with these steps, and the base offsets that a committed reader is to be given.
fn history(steps: &[Step]) -> (Vec<BytesMut>, Vec<i64>) {
    let mut batches = Vec::new();
    let mut open: [Vec<i64>; 4] = Default::default();
    let (mut sequences, mut wanted, mut at) = ([0_i32; 4], Vec::new(), 0_i64);
    for step in steps.iter().copied().chain((0..4).map(|id| Step::End(id, true))) {
        let slot = |id: i64| usize::try_from(id).unwrap();
        let batch = match step {
            Step::Plain(size) => {
                wanted.push(at);
                plain(1, size)
            }
            Step::Data(id, size) => {
                open[slot(id)].push(at);
                let sequence = sequences[slot(id)];
                sequences[slot(id)] += 1;
                data(Some((id, 0, sequence)), true, 1, size)
            }
            Step::End(id, commit) => {
                let ended = std::mem::take(&mut open[slot(id)]);
                wanted.extend(ended.into_iter().filter(|_| commit));
                marker(commit, id, 0, 1)
            }
            Step::Barrier => {
                open.iter_mut().for_each(Vec::clear);
                sequences = [0; 4];
                barrier()
            }
        };
        batches.push(placed(batch, at, 0));
        at += 1;
    }
    wanted.sort_unstable();
    (batches, wanted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 96 } else { 2048 }))]

    /// Law B4 and the list of aborted transactions, from memory and from the disk, over the border of the two, after a
    /// restart: exactly the committed records.
    #[test]
    fn committed_readers_are_given_the_same_by_memory_and_by_disk(
        steps in proptest::collection::vec(step(), 1..70),
        memory in prop_oneof![Just(0_u64), 2_000_u64..40_000, Just(1 << 22)],
        segment_bytes in 1_000_u32..20_000,
        max_bytes in 1_usize..12_000,
        together in 1_usize..4,
        start in 0_usize..40,
        restart: bool,
    ) {
        let bench = Bench::new(11).segment_bytes(segment_bytes);
        let (mut open, _) = bench.open_with_tail(&TailMemory::new(memory));
        let (batches, wanted) = history(&steps);
        for group in batches.chunks(together) {
            open.replicate(BytesMut::from(&group.concat()[..]));
        }
        open.sync();
        if restart {
            open.close();
            open = bench.open_clean();
        }
        let end = open.log.log_end_offset();
        prop_assert_eq!(open.log.view().last_stable_offset, end, "everything has ended");
        let first = i64::try_from(start.min(batches.len() - 1)).unwrap();
        let (mut at, mut given) = (offset(first), Vec::new());
        while at < end {
            let read = open.log.read(&mut *open.io, at, max_bytes, Isolation::Committed, true).unwrap();
            prop_assert!(!read.bytes.is_empty(), "nothing at {}", at);
            prop_assert_eq!(offsets_of(&read.bytes)[0].0, at.get());
            at = offset(offsets_of(&read.bytes).last().unwrap().1 + 1);
            given.extend(delivered(&read));
        }
        let wanted: Vec<i64> = wanted.into_iter().filter(|base| *base >= first).collect();
        prop_assert_eq!(given, wanted);
    }
}

/// Law B4, its two sentences one by one, from memory and from the disk.
#[test]
fn a_response_that_lists_what_a_barrier_ended_ends_before_the_barrier() {
    for memory in [0, 1 << 20] {
        let (mut open, _) = Bench::new(7).open_with_tail(&TailMemory::new(memory));
        // [T pid 5][T pid 6][pid 6 aborted][barrier][T pid 5][COMMIT 5], one offset each.
        let steps = [
            data(Some((5, 0, 0)), true, 1, 10),
            data(Some((6, 0, 0)), true, 1, 10),
            marker(false, 6, 0, 1),
            barrier(),
            data(Some((5, 0, 0)), true, 1, 10),
            marker(true, 5, 0, 1),
        ];
        for batch in log_of(&steps) {
            open.replicate(batch);
        }
        open.sync();
        let mut read = |from| {
            let read = open.read(from, 1 << 20, Isolation::Committed);
            let aborted: Vec<_> = read
                .aborted
                .iter()
                .map(|entry| (entry.producer_id.get(), entry.first_offset.get()))
                .collect();
            (offsets_of(&read.bytes).iter().map(|(base, _)| *base).collect::<Vec<_>>(), aborted)
        };
        assert_eq!(read(0), (vec![0, 1, 2], vec![(5, 0), (6, 1)]));
        // The data of 5 lies below, and the transaction overlaps all the same.
        assert_eq!(read(1), (vec![1, 2], vec![(5, 0), (6, 1)]));
        assert_eq!(read(2), (vec![2], vec![(5, 0), (6, 1)]));
        // The first batch is the barrier, then lies behind it.
        assert_eq!(read(3), (vec![3, 4, 5], vec![]));
        assert_eq!(read(4), (vec![4, 5], vec![]));
    }
}

/// A batch whose leader epoch says in which history it was appended.
fn of_history(number: i32, base: Offset, size: usize) -> BytesMut {
    placed(plain(2, size), base.get(), number)
}

/// Every batch of a read is of one history: one that was there when the view was taken.
///
/// `cuts[n]` is where history `n` begins, above which nothing of an earlier one is left.
fn check_history(read: &Read, cuts: &[i64]) {
    let newest = read.view.leader_epoch.map_or(0, |epoch| usize::try_from(epoch.get()).unwrap());
    for batch in BatchReader::new(&read.bytes) {
        let batch: RecordBatch<'_> = batch.unwrap();
        let history = usize::try_from(batch.leader_epoch().unwrap().get()).unwrap();
        assert!(history <= newest, "a batch of history {history} under a view of {newest}");
        assert!(batch.next_offset() <= read.view.high_watermark, "above the high watermark");
        for cut in cuts.iter().take(newest + 1).skip(history + 1) {
            assert!(
                batch.last_offset().get() < *cut,
                "offset {} of history {history} under a view of {newest}, which cut at {cut}",
                batch.last_offset(),
            );
        }
    }
}

/// LSO-4 and TRUNC-7, for every field of a view: readers on other threads while the log is cut and grows again.
#[test]
fn a_cut_under_a_reader_never_mixes_two_histories() {
    let bench = Bench::new(13).segment_bytes(60_000);
    let (mut open, tail) = bench.open_with_tail(&TailMemory::new(200_000));
    let cuts = Mutex::new(vec![0_i64]);
    let (done, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for reader in 0..2_i64 {
            let (tail, cuts, done, reads) = (tail.clone(), &cuts, &done, &reads);
            scope.spawn(move || {
                let mut turn = reader;
                while !done.load(Ordering::Relaxed) {
                    turn += 1;
                    let (start, end) = match tail.view() {
                        Some(view) => (tail.start_offset().get(), view.high_watermark.get()),
                        None => continue,
                    };
                    let from = offset(end - (turn * 7) % (end - start + 1).max(1));
                    let Some(read) = tail.read(from, 40_000, Isolation::Uncommitted, true) else { continue };
                    let cuts = cuts.lock().unwrap().clone();
                    check_history(&read, &cuts);
                    reads.fetch_add(usize::from(!read.bytes.is_empty()), Ordering::Relaxed);
                }
            });
        }
        let mut number = 0;
        let mut round = 0_i64;
        while round < 60 || (reads.load(Ordering::Relaxed) < 2_000 && round < 2_000) {
            round += 1;
            for step in 0..12_usize {
                let base = open.log.log_end_offset();
                open.replicate(of_history(number, base, [20, 5_000, 300][step % 3]));
                if step % 4 == 3 {
                    open.sync();
                }
            }
            let end = open.log.log_end_offset().get();
            let cut = if round % 9 == 0 { end / 2 } else { end - round % 13 };
            open.truncate(cut);
            number += 1;
            cuts.lock().unwrap().push(open.log.log_end_offset().get());
            // On the log's own thread as well, from the disk.
            let from = open.log.log_end_offset().get() - 20;
            let read = open.read(from.max(0), 40_000, Isolation::Uncommitted);
            check_history(&read, &cuts.lock().unwrap());
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) >= 500, "{reads:?} reads met the tail");
}

/// A partition that is opened again shows in the same place.
#[test]
fn a_log_that_is_opened_again_is_shown_by_the_same_handle() {
    let bench = Bench::new(7);
    let memory = TailMemory::new(1 << 20);
    let (mut open, tail) = bench.open_with_tail(&memory);
    open.produce(plain(2, 100));
    open.sync();
    assert_eq!(tail.view(), Some(open.log.view()));
    open.close();
    assert_eq!(tail.view(), None);
    let mut open = bench.open_clean();
    open.log.attach_tail(tail.clone(), memory.clone());
    assert_eq!((tail.view(), tail.start_offset()), (Some(open.log.view()), offset(2)));
    assert!(tail.read(offset(0), 1, Isolation::Uncommitted, true).is_none());
    open.produce(plain(1, 100));
    open.sync();
    let read = tail.read(offset(2), 1, Isolation::Uncommitted, true).unwrap();
    assert_eq!(offsets_of(&read.bytes), [(2, 2)]);
    assert_eq!(read.bytes, Bytes::copy_from_slice(&open.read(2, 1, Isolation::Uncommitted).bytes));
}

/// A disk that calls somebody when a file gets its name, and does not go on before that returns.
struct Held<'a> {
    inner: SimIo,
    on_rename: &'a mut dyn FnMut(&Path),
}

impl Io for Held<'_> {
    fn open(&mut self, path: &Path, how: io::Open) -> Result<FileId, IoError> {
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
    fn advise(&mut self, file: FileId, advice: io::Advice) {
        self.inner.advise(file, advice);
    }
    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        self.inner.len(file)
    }
    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        self.inner.truncate(file, len)
    }
    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), IoError> {
        (self.on_rename)(to);
        self.inner.rename(from, to)
    }
    fn remove(&mut self, path: &Path) -> Result<(), IoError> {
        self.inner.remove(path)
    }
    fn list(&mut self, dir: &Path) -> Result<Vec<PathBuf>, IoError> {
        self.inner.list(dir)
    }
    fn metadata(&mut self, path: &Path) -> Result<Option<io::Metadata>, IoError> {
        self.inner.metadata(path)
    }
    fn create_dir_all(&mut self, dir: &Path) -> Result<(), IoError> {
        self.inner.create_dir_all(dir)
    }
    fn sync_dir(&mut self, dir: &Path) -> Result<(), IoError> {
        self.inner.sync_dir(dir)
    }
    fn submit(&mut self, ticket: io::Ticket, op: io::Op) -> Result<(), io::Op> {
        self.inner.submit(ticket, op)
    }
    fn reap(&mut self, wait: io::Wait, done: &mut Vec<io::Done>) -> Result<(), IoError> {
        self.inner.reap(wait, done)
    }
    fn put_back(&mut self, done: Vec<io::Done>) {
        self.inner.put_back(done);
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
    fn waker(&self) -> io::IoWaker {
        self.inner.waker()
    }
}

/// The barrier is held in the middle of its append, between its bytes and what it forgets, until readers have read: they
/// take the view and the bytes of before.
#[test]
fn readers_read_while_a_barrier_is_appended() {
    const PRODUCERS: i64 = 1_000;
    let size = data(Some((0, 0, 0)), true, 1, 1).len();
    // The barrier needs a segment of its own: the leader epochs are written in the midst of its append.
    let bench = Bench::new(1).segment_bytes(u32::try_from(size).unwrap() * 1_000);
    let (mut open, tail) = bench.open_with_tail(&TailMemory::new(4 << 20));
    open_transactions(&mut open, PRODUCERS);
    let before = tail.view().unwrap();
    let (inside, is_inside) = mpsc::channel();
    let (has_read, reads) = mpsc::channel();
    std::thread::scope(|scope| {
        let tail = tail.clone();
        scope.spawn(move || {
            while is_inside.recv().is_ok() {
                for isolation in BOTH {
                    let read = tail.read(offset(PRODUCERS - 5), 1 << 10, isolation, true).unwrap();
                    assert_eq!(read.bytes.is_empty(), isolation == Isolation::Committed);
                    assert_eq!((&read.view, &tail.view().unwrap()), (&before, &before));
                }
                has_read.send(()).unwrap();
            }
        });
        let mut held = 0;
        let mut on_rename = |to: &Path| {
            if to.ends_with("leader-epoch-checkpoint") {
                inside.send(()).unwrap();
                reads.recv_timeout(Duration::from_secs(30)).expect("readers wait for the append");
                held += 1;
            }
        };
        let mut io = Held { inner: bench.disk.io(), on_rename: &mut on_rename };
        assert!(open.log.detach(&mut *open.io).unwrap());
        let params = AppendParams::coordinator(epoch(0), NOW);
        let appended = open.log.append(&mut io, barrier(), &params).unwrap();
        assert_eq!(appended.barriers[0].producers_expired, 1_000);
        open.log.sync(&mut io).unwrap();
        drop(io);
        assert_eq!(held, 1);
        drop(inside);
    });
    let after = tail.view().unwrap();
    assert_eq!((after.high_watermark, after.last_stable_offset), (offset(1_001), offset(1_001)));
}

/// What else could be done under the lock that readers take: it is known in one file, and that knows no producer.
#[test]
fn no_producer_is_known_where_the_lock_of_readers_is_taken() {
    let tail = include_str!("../../src/tail.rs");
    assert!(tail.contains("Mutex<State>") && !tail.contains("weir_psm"));
    for file in ["append", "change", "read", "retention", "snapshot", "stats"] {
        let path = format!("{}/src/unified_log/{file}.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).unwrap();
        assert!(!source.contains("Mutex") && !source.contains(".lock()"), "{path}");
    }
}

/// Batches that open a transaction each.
fn open_transactions(open: &mut Open, producers: i64) {
    for first in (0..producers).step_by(1_000) {
        let mut batches = BytesMut::new();
        for id in first..(first + 1_000).min(producers) {
            batches.extend_from_slice(&placed(data(Some((id, 0, 0)), true, 1, 1), id, 0));
        }
        open.replicate(batches);
        open.sync();
    }
}

/// Prints what a barrier over a million producers takes, and the longest read beside it.
#[test]
#[ignore = "a figure: run it in release, alone"]
fn prints_the_longest_read_beside_a_barrier_over_a_million_producers() {
    let (append, worst, reads) = read_beside_a_barrier(1_000_000);
    println!(
        "barrier over 1,000,000 open transactions: {append:?}; longest of {reads} reads beside it: {worst:?}"
    );
}

/// How long a barrier takes that ends so many transactions, the longest read meanwhile, and how many there were.
#[expect(clippy::disallowed_methods, reason = "what is asked is how long it takes")]
fn read_beside_a_barrier(producers: i64) -> (Duration, Duration, usize) {
    let bench = Bench::new(1);
    let memory = TailMemory::new(4 << 20);
    let (mut open, tail) = bench.open_with_tail(&memory);
    open_transactions(&mut open, producers);
    let view = tail.view().unwrap();
    assert_eq!((view.high_watermark, view.last_stable_offset), (offset(producers), offset(0)));
    let from = offset(producers - 50);
    let is_over = AtomicBool::new(false);
    let is_reading = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut worst, mut reads) = (Duration::ZERO, 0);
            while !is_over.load(Ordering::Acquire) {
                let begun = Instant::now();
                // What Fetch and ListOffsets ask for: bytes, and the ends of the log.
                let read = tail.read(from, 1 << 10, Isolation::Uncommitted, true).unwrap();
                let now = tail.view().unwrap();
                worst = worst.max(begun.elapsed());
                assert!(!read.bytes.is_empty() && now.last_stable_offset == offset(0));
                reads += 1;
                is_reading.store(true, Ordering::Release);
            }
            (worst, reads)
        });
        while !is_reading.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let appended =
            open.log.append(&mut *open.io, barrier(), &AppendParams::coordinator(epoch(0), NOW)).unwrap();
        let append = begun.elapsed();
        is_over.store(true, Ordering::Release);
        assert_eq!(appended.barriers[0].producers_expired, usize::try_from(producers).unwrap());
        let (worst, reads) = reader.join().unwrap();
        (append, worst, reads)
    })
}
