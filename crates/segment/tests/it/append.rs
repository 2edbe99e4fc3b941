//! The pipeline: gathered, written in blocks, synced in groups.

use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use weir_format::{RecordBatch, TimestampMs};
use weir_segment::io::buffer::BufferPool;
use weir_segment::io::select::{IoConfig, WantedBackend, select};
use weir_segment::io::sim::{CrashPolicy, SimDisk, SimIo};
use weir_segment::io::{Done, Io, IoError, Op, Operation, Wait, durable};
use weir_segment::layout::{FileKind, file_path};
use weir_segment::{LocalLog, SegmentConfig, SegmentError, ticket_owner};

use crate::support::{DIR, NOW, at, batch, batches, open, recover, sync};

const BLOCK: u64 = 4096;

fn disk(direct: bool) -> (SimDisk, SimIo, LocalLog) {
    seeded(1, direct)
}

fn seeded(seed: u64, direct: bool) -> (SimDisk, SimIo, LocalLog) {
    let disk = SimDisk::new(seed);
    disk.yield_always(true);
    disk.direct(direct);
    disk.allocate_ahead(direct.then_some(64 << 10));
    disk.keep_trace(true);
    let mut io = disk.io();
    durable::create_dir_all(&mut io, Path::new(DIR)).unwrap();
    let log = open(&mut io, SegmentConfig::default()).unwrap();
    (disk, io, log)
}

/// A batch of one record and of this many bytes, or a byte less where a length takes a byte more.
fn sized(base: i64, size: usize) -> Bytes {
    // The header takes 61 bytes, the record 6 to 14 more.
    let made = (size - 90..size - 66).rev().map(|value| batch(base, 1, value, NOW.get()));
    made.into_iter().find(|made| made.len() <= size).unwrap()
}

/// (Position, size) of the writes of a segment's log that were submitted.
fn writes(disk: &SimDisk) -> Vec<(u64, u64)> {
    let of_log = |line: &String| {
        let mut words = line.split(' ').skip(1);
        (words.next() == Some("write") && words.next()?.ends_with(".log"))
            .then(|| Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?)))?
    };
    disk.trace().iter().filter_map(of_log).collect()
}

fn reap(io: &mut dyn Io, log: &mut LocalLog) {
    let mut done = Vec::new();
    io.reap(Wait::Block, &mut done).unwrap();
    for done in done {
        log.on_done(done).unwrap();
    }
}

fn append(io: &mut dyn Io, log: &mut LocalLog, size: usize) -> Bytes {
    let made = sized(log.log_end_offset().get(), size);
    log.append_bytes(io, made.clone(), NOW).unwrap();
    made
}

#[test]
fn appends_are_gathered_and_go_out_in_one_write() {
    for direct in [false, true] {
        let (disk, mut io, mut log) = disk(direct);
        let all: Vec<Bytes> = (0..10).map(|_| append(&mut io, &mut log, 1_000)).collect();
        assert_eq!((writes(&disk), io.in_flight()), (vec![], 0), "so little is not submitted by an append");
        assert_eq!((log.written_end_offset(), log.log_end_offset()), (at(0), at(10)));
        assert!(log.has_unsent() && !log.is_busy() && !log.needs_sync());
        log.flush(&mut io);
        assert_eq!(writes(&disk), [(0, 10_000)]);
        assert!(!log.has_unsent() && log.is_busy());
        assert!(!log.sync_begin(&mut io), "what is in flight is not covered by a sync");
        reap(&mut io, &mut log);
        assert_eq!((log.written_end_offset(), log.synced_end_offset()), (at(10), at(0)));
        assert_eq!((log.unwritten_bytes(), log.unsynced_bytes()), (0, 10_000));
        assert!(log.sync_begin(&mut io) && !log.sync_begin(&mut io), "one at a time");
        reap(&mut io, &mut log);
        assert_eq!((log.synced_end_offset(), log.unsynced_bytes()), (at(10), 0));
        assert_eq!(log.read(&mut io, at(0), 1 << 20, at(10), true).unwrap().bytes, all.concat());
    }
}

#[test]
fn whole_blocks_fly_together_and_the_next_write_waits_for_the_last_block_alone() {
    let (disk, mut io, mut log) = disk(true);
    disk.slow(Some(1..1_000_000));
    disk.reorder(true);
    let mut all: Vec<Bytes> = (0..30).map(|_| append(&mut io, &mut log, 100_001)).collect();
    let end = 3_000_030;
    let full = writes(&disk);
    assert!(full.len() > 9, "full ones go out at once: {full:?}");
    log.flush(&mut io);
    let sent = writes(&disk);
    assert_eq!(sent[..full.len()], full);
    assert_eq!(sent.iter().map(|(_, size)| size).sum::<u64>(), end);
    assert!(sent.len() <= 13 && sent.iter().all(|(_, size)| *size <= 256 << 10), "{sent:?}");
    assert_eq!(io.in_flight(), sent.len(), "all at once");
    assert!(sent.iter().all(|(position, _)| position.is_multiple_of(BLOCK)), "{sent:?}");
    assert_eq!(sent.last(), Some(&(end / BLOCK * BLOCK, end % BLOCK)), "the last block alone");
    // What comes meanwhile is gathered.
    for _ in 0..3 {
        all.push(append(&mut io, &mut log, 100));
        log.flush(&mut io);
    }
    assert_eq!(writes(&disk), sent);
    assert!(log.has_unsent());
    // The last block is all that the next write waits for.
    while writes(&disk).len() == sent.len() {
        reap(&mut io, &mut log);
        log.flush(&mut io);
    }
    let start = end / BLOCK * BLOCK;
    assert_eq!(writes(&disk)[sent.len()..], [(start, end + 300 - start)], "its block again, from its start");
    log.settle(&mut io).unwrap();
    assert_eq!(batches(&mut io, &mut log).concat_bytes(), all.concat());
}

#[test]
fn nothing_is_sent_twice_through_the_page_cache() {
    let (disk, mut io, mut log) = disk(false);
    let mut all = Vec::new();
    for size in [100, 5_000, 70_000, 300, 1_500_000, 4_096, 90_001, 100] {
        all.push(append(&mut io, &mut log, size));
        log.settle(&mut io).unwrap();
    }
    let sent = writes(&disk);
    let mut end = 0;
    for (position, size) in &sent {
        assert_eq!(*position, end, "{sent:?}");
        end += size;
    }
    assert_eq!(sent.len(), all.len() + 1, "one write for each, two for more than a MiB: {sent:?}");
    assert_eq!(batches(&mut io, &mut log).concat_bytes(), all.concat());
}

trait Concat {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl Concat for Vec<(i64, Bytes)> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect()
    }
}

#[test]
fn a_gap_in_what_is_written_is_not_gone_over() {
    // The first of two writes is late: nothing behind it counts as written, and no sync covers it.
    let (disk, mut io, mut log) = disk(true);
    disk.reorder(true);
    disk.slow(Some(1..1_000_000));
    let mut late = 0;
    for round in 0..20 {
        let before = log.written_end_offset();
        let from = writes(&disk).len();
        for _ in 0..8 {
            append(&mut io, &mut log, 1 << 18);
        }
        log.flush(&mut io);
        let mut sent: Vec<(u64, u64)> = writes(&disk)[from..].to_vec();
        assert!(sent.len() > 1, "round {round}: {sent:?}");
        while log.written_end_offset() < log.log_end_offset() {
            let mut done: Vec<Done> = Vec::new();
            io.reap(Wait::Block, &mut done).unwrap();
            for done in done {
                let Op::Write { at, .. } = &done.op else { panic!("{done:?}") };
                late += usize::from(*at != sent[0].0);
                let first_is_out = *at == sent[0].0;
                sent.retain(|(position, _)| position != at);
                log.on_done(done).unwrap();
                if !first_is_out && sent.first().is_some_and(|first| first.0 < BLOCK) {
                    assert_eq!(log.written_end_offset(), before);
                }
            }
            let written: u64 = (1 << 18) * u64::try_from(log.written_end_offset().get()).unwrap();
            assert!(sent.first().is_none_or(|(position, _)| written <= *position + BLOCK), "round {round}");
            assert!(!log.needs_sync() || log.synced_end_offset() < log.written_end_offset());
        }
        sync(&mut io, &mut log).unwrap();
    }
    assert!(late > 10, "{late} writes came before an earlier one");
}

#[test]
fn after_a_failed_write_the_log_is_what_is_known_to_be_written() {
    // N-TAIL-1: one of several writes fails, those behind it succeed, or some of them.
    let mut behind = 0;
    for (seed, direct) in (0..8).flat_map(|seed| [(seed, false), (seed, true)]) {
        for nth in 1..=4 {
            let (disk, mut io, mut log) = seeded(seed, direct);
            let mut all = vec![append(&mut io, &mut log, 5_000)];
            sync(&mut io, &mut log).unwrap();
            for _ in 0..4 {
                all.push(append(&mut io, &mut log, 1 << 20));
            }
            disk.fail_write(nth);
            let failed = log.settle(&mut io).unwrap_err();
            assert!(matches!(failed, SegmentError::Io(_)), "{failed}");
            let mut done = Vec::new();
            while io.in_flight() > 0 {
                io.reap(Wait::Block, &mut done).unwrap();
                for done in done.drain(..) {
                    log.on_done(done).unwrap();
                }
            }
            let end = log.log_end_offset();
            assert_eq!(log.written_end_offset(), end);
            assert!(end >= at(1) && end < at(5), "write {nth}: {end}");
            assert_eq!(log.synced_end_offset(), at(1));
            let count = usize::try_from(end.get()).unwrap();
            let there = disk.read_file(&file_path(Path::new(DIR), at(0), FileKind::Log)).unwrap();
            let expected = all[..count].concat();
            assert_eq!(there[..expected.len()], expected, "write {nth}");
            let later = there.get(expected.len() + (1 << 20)..).unwrap_or_default();
            behind += u64::from(later.iter().any(|byte| *byte != 0));
            assert_eq!(log.read(&mut io, at(0), 8 << 20, at(9), true).unwrap().bytes, expected);
            assert!(matches!(
                log.append_bytes(&mut io, sized(5, 100), NOW),
                Err(SegmentError::Failed { .. })
            ));
            assert!(!log.has_unsent() && !log.needs_sync() && !log.sync_begin(&mut io));
            assert!(log.failure().is_some() && log.close(&mut io).is_err(), "no clean stop");
        }
    }
    assert!(behind > 3, "{behind} times something landed behind a write that failed");
}

#[test]
fn a_write_that_is_heard_of_behind_one_that_failed_is_read_like_any_other() {
    let (disk, mut io, mut log) = disk(true);
    let mut all = Vec::new();
    for base in 0..6 {
        all.push(batch(base, 1, 100_000, NOW.get() + base));
        log.append_bytes(&mut io, all.last().unwrap().clone(), NOW).unwrap();
    }
    log.flush(&mut io);
    disk.fail_write(2);
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    assert!(done.iter().any(|done| done.result.is_ok()));
    // Those that failed are heard of first (D2).
    done.sort_by_key(|done| done.result.is_ok());
    for done in done {
        log.on_done(done).unwrap();
        let end = log.log_end_offset();
        assert_eq!(log.written_end_offset(), end);
        let expected = all[..usize::try_from(end.get()).unwrap()].concat();
        assert_eq!(log.size(), u64::try_from(expected.len()).unwrap(), "whole batches, all of them");
        assert_eq!(log.read(&mut io, at(0), 8 << 20, at(9), true).unwrap().bytes, expected);
        let lost = TimestampMs::new(NOW.get() + end.get());
        assert_eq!(log.batch_for_timestamp(&mut io, lost, at(0)).unwrap(), None);
    }
    assert_eq!(log.log_end_offset(), at(1), "the first write ends within the second one");
}

#[test]
fn a_failed_sync_stands_before_a_failed_write() {
    let (disk, mut io, mut log) = disk(false);
    append(&mut io, &mut log, 100);
    log.settle(&mut io).unwrap();
    disk.fail_sync(1);
    append(&mut io, &mut log, 100);
    assert!(log.sync_begin(&mut io));
    log.flush(&mut io);
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    // The write is heard of first.
    done.sort_by_key(|done| !matches!(done.op, Op::Write { .. }));
    for (done, operation) in done.into_iter().zip([Operation::Write, Operation::Sync]) {
        log.on_done(done).unwrap();
        assert_eq!(log.failure().unwrap().at().operation, operation);
    }
    assert_eq!(log.synced_end_offset(), at(0));
}

#[test]
fn a_sync_that_is_refused_after_a_failed_write_does_not_hide_it() {
    let (disk, mut io, mut log) = disk(false);
    append(&mut io, &mut log, 100);
    log.settle(&mut io).unwrap();
    append(&mut io, &mut log, 100);
    disk.full_after(Some(0));
    log.flush(&mut io);
    assert!(log.sync_begin(&mut io));
    let mut refused = 0;
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
        for done in done.drain(..) {
            refused += u32::from(matches!(&done.result, Err(IoError::Poisoned { .. })));
            log.on_done(done).unwrap();
        }
    }
    assert_eq!(refused, 1);
    assert!(log.failure().unwrap().is_full(), "{:?}", log.failure());
}

#[test]
fn full_buffers_are_on_their_way_before_anybody_flushes() {
    let (_disk, mut io, mut log) = disk(true);
    append(&mut io, &mut log, 255 << 10);
    assert!(!log.is_busy());
    for _ in 0..4 {
        append(&mut io, &mut log, 100 << 10);
    }
    assert!(log.is_busy() && log.has_unsent());
    let before = log.unwritten_bytes();
    io.reap(Wait::Block, &mut Vec::new()).unwrap();
    assert_eq!(log.unwritten_bytes(), before, "the log has not heard of it");
    drop(log);
}

#[test]
fn what_waits_in_memory_is_bounded() {
    let (_disk, mut io, mut log) = disk(true);
    let pool = BufferPool::new(0);
    log.attach(7, pool.clone());
    let mut most = 0;
    for _ in 0..200 {
        append(&mut io, &mut log, 300_000);
        most = most.max(log.unwritten_bytes());
        if log.unsynced_bytes() > 32 << 20 {
            // The simulated disk keeps what is not synced.
            sync(&mut io, &mut log).unwrap();
            assert!(pool.counters().live_size <= 12 << 20, "{:?}", pool.counters());
        }
    }
    assert!(most > 7 << 20 && most <= 8 << 20, "{most} bytes waited");
    sync(&mut io, &mut log).unwrap();
    assert_eq!(pool.counters().live, 0);
    assert_eq!(log.unwritten_bytes(), 0);
}

#[test]
fn much_at_a_time_is_not_copied_where_the_backend_takes_it_as_it_is() {
    for direct in [false, true] {
        let (disk, mut io, mut log) = disk(direct);
        let pool = BufferPool::new(0);
        log.attach(0, pool.clone());
        // Received into an aligned buffer, at the start of a block.
        let made = sized(0, (1 << 20) + 300);
        let received = BufferPool::new(0);
        let mut buffer = received.take(made.len());
        assert_eq!(buffer.extend_from_slice(&made), made.len());
        let memory = buffer.freeze();
        let range = memory.as_ptr().addr()..memory.as_ptr().addr() + memory.len();
        log.append_bytes(&mut io, memory, NOW).unwrap();
        log.flush(&mut io);
        let mut done = Vec::new();
        while io.in_flight() > 0 {
            io.reap(Wait::Block, &mut done).unwrap();
        }
        let inside = |done: &&Done| matches!(&done.op, Op::Write { bytes, .. } if range.contains(&bytes.as_ptr().addr()));
        let passed: usize = done
            .iter()
            .filter(inside)
            .map(|done| match &done.op {
                Op::Write { bytes, .. } => bytes.len(),
                _ => 0,
            })
            .sum();
        assert_eq!(passed, if direct { 1 << 20 } else { made.len() }, "direct {direct}");
        for done in done {
            assert_eq!(ticket_owner(done.ticket), 0);
            log.on_done(done).unwrap();
        }
        sync(&mut io, &mut log).unwrap();
        assert_eq!(disk.read_file(log.active().log_path().as_path()).unwrap()[..made.len()], made);
        assert_eq!((received.counters().live, pool.counters().live), (0, 0), "all memory is given back");
    }
}

#[test]
fn a_completion_of_another_is_given_back() {
    let (_disk, mut io, mut log) = disk(false);
    log.attach(9, BufferPool::new(0));
    append(&mut io, &mut log, 100);
    log.flush(&mut io);
    let mut done = Vec::new();
    io.reap(Wait::Block, &mut done).unwrap();
    let done = done.pop().unwrap();
    assert_eq!(ticket_owner(done.ticket), 9);
    let mut other = {
        let mut io = SimDisk::new(2).io();
        durable::create_dir_all(&mut io, Path::new(DIR)).unwrap();
        open(&mut io, SegmentConfig::default()).unwrap()
    };
    let done = other.on_done(done).unwrap_err();
    log.on_done(done).unwrap();
    assert_eq!(log.written_end_offset(), at(1));
}

#[test]
fn a_read_beside_a_write_ends_where_what_is_written_does() {
    for (direct, flushed) in [(false, false), (false, true), (true, false), (true, true)] {
        let (_disk, mut io, mut log) = disk(direct);
        let first = append(&mut io, &mut log, 5_000);
        log.settle(&mut io).unwrap();
        append(&mut io, &mut log, 9_000);
        if flushed {
            log.flush(&mut io);
        }
        assert_eq!(log.written_end_offset(), at(1), "the second one is gathered, or in flight");
        let read = log.read(&mut io, at(0), 1 << 20, log.written_end_offset(), true).unwrap();
        assert_eq!((read.bytes, read.next_offset), (first, at(1)), "{direct} {flushed}");
        log.settle(&mut io).unwrap();
        log.close(&mut io).unwrap();
    }
}

#[test]
fn a_read_in_a_gap_before_a_new_segment_finds_nothing_until_that_is_written() {
    for (direct, flushed) in [(false, false), (false, true), (true, false), (true, true)] {
        let (_disk, mut io, mut log) = disk(direct);
        log.set_config(SegmentConfig { segment_bytes: 1_000, ..SegmentConfig::default() });
        append(&mut io, &mut log, 900);
        sync(&mut io, &mut log).unwrap();
        // As a mirror of a compacted partition gets it.
        let behind = sized(100, 900);
        assert_eq!(log.append_bytes(&mut io, behind.clone(), NOW).unwrap().rolled, [at(100)]);
        if flushed {
            log.flush(&mut io);
        }
        let durable = log.synced_end_offset();
        assert_eq!(durable, at(100), "the old segment is durable up to the new one");
        let read = log.read(&mut io, at(1), 1 << 20, durable, true).unwrap();
        assert_eq!((read.bytes.len(), read.next_offset), (0, at(1)), "{direct} {flushed}");
        sync(&mut io, &mut log).unwrap();
        let read = log.read(&mut io, at(1), 1 << 20, log.synced_end_offset(), true).unwrap();
        assert_eq!((read.bytes, read.next_offset), (behind, at(101)));
    }
}

#[test]
fn a_log_at_rest_holds_no_file_and_no_space_and_goes_on() {
    for direct in [false, true] {
        let (disk, mut io, mut log) = disk(direct);
        let path = log.active().log_path();
        let mut all = Vec::new();
        for round in 0..4 {
            all.push(append(&mut io, &mut log, 5_000 + 300 * round));
            assert!(!log.rest(&mut io).unwrap(), "it is not written");
            log.settle(&mut io).unwrap();
            assert!(!log.rest(&mut io).unwrap(), "it is not durable");
            sync(&mut io, &mut log).unwrap();
            if direct {
                assert!(disk.read_file(&path).unwrap().len() >= 64 << 10, "space is allocated ahead");
            }
            assert!(log.rest(&mut io).unwrap());
            assert_eq!(disk.read_file(&path).unwrap(), all.concat(), "cut to its length");
            assert_eq!(log.synced_end_offset(), log.log_end_offset());
            assert_eq!(log.read(&mut io, at(0), 1 << 20, at(9), true).unwrap().bytes, all.concat());
        }
        log.close(&mut io).unwrap();
    }
}

#[test]
fn what_is_gathered_may_be_cut_at_any_batch() {
    for direct in [false, true] {
        for cut in 0..=6 {
            let (disk, mut io, mut log) = disk(direct);
            let mut all: Vec<Bytes> = (0..2).map(|_| append(&mut io, &mut log, 3_000)).collect();
            sync(&mut io, &mut log).unwrap();
            all.extend((0..2).map(|_| append(&mut io, &mut log, 3_000)));
            log.flush(&mut io);
            all.extend((0..2).map(|_| append(&mut io, &mut log, 3_000)));
            assert_eq!(log.truncate_to(&mut io, at(cut)).unwrap(), at(cut));
            all.truncate(usize::try_from(cut).unwrap());
            assert_eq!(log.log_end_offset(), at(cut));
            assert!(cut == 6 || log.written_end_offset() == at(cut), "a cut waits for what is in flight");
            for _ in 0..3 {
                all.push(append(&mut io, &mut log, 2_000));
            }
            sync(&mut io, &mut log).unwrap();
            disk.crash(CrashPolicy::DROP_ALL);
            let mut io = disk.io();
            let mut log = recover(&mut io, SegmentConfig::default());
            assert_eq!(batches(&mut io, &mut log).concat_bytes(), all.concat(), "cut at {cut}");
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Append(Vec<usize>),
    /// One large append of aligned memory.
    Aligned(usize),
    Flush,
    SyncBegin,
    Poll,
    Block,
    Settle,
    Sync,
    Rest,
    Roll,
    Truncate(u8),
    Read(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![4 => 100_usize..3_000, 2 => 3_000_usize..9_000, 1 => 60_000_usize..200_000];
    prop_oneof![
        8 => prop::collection::vec(size, 1..4).prop_map(Step::Append),
        1 => (60_000_usize..2_500_000).prop_map(Step::Aligned),
        6 => Just(Step::Flush),
        3 => Just(Step::SyncBegin),
        6 => Just(Step::Poll),
        3 => Just(Step::Block),
        1 => Just(Step::Settle),
        1 => Just(Step::Sync),
        1 => Just(Step::Rest),
        1 => Just(Step::Roll),
        1 => any::<u8>().prop_map(Step::Truncate),
        2 => any::<u8>().prop_map(Step::Read),
    ]
}

/// Runs the steps; whatever they are, what is said to be written is in the files, what is said to be durable survives a
/// power cut, and no two writes share a block in flight (the disk refuses that).
fn run(seed: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let disk = SimDisk::new(seed);
    disk.yield_always(seed.is_multiple_of(2));
    disk.direct(seed & 4 > 0);
    disk.allocate_ahead((seed & 8 > 0).then_some(16 << 10));
    disk.reorder(seed & 16 > 0);
    disk.short(seed & 32 > 0);
    disk.slow((seed & 64 > 0).then_some(1..100_000));
    disk.queue_depth((seed & 128 > 0).then_some(2));
    let mut io = disk.io();
    durable::create_dir_all(&mut io, Path::new(DIR)).unwrap();
    let mut log = open(&mut io, SegmentConfig::default()).unwrap();
    let mut all: Vec<Bytes> = Vec::new();
    let next = |all: &[Bytes]| i64::try_from(all.len()).unwrap();
    for step in steps {
        match step {
            Step::Append(sizes) => {
                for size in sizes {
                    let made = sized(next(&all), *size);
                    log.append_bytes(&mut io, made.clone(), NOW).unwrap();
                    all.push(made);
                }
            }
            Step::Aligned(size) => {
                let made = sized(next(&all), *size);
                let mut buffer = BufferPool::new(0).take(made.len());
                assert_eq!(buffer.extend_from_slice(&made), made.len());
                log.append_bytes(&mut io, buffer.freeze(), NOW).unwrap();
                all.push(made);
            }
            Step::Flush => log.flush(&mut io),
            Step::SyncBegin => {
                let needed = log.needs_sync();
                let begun = log.sync_begin(&mut io);
                prop_assert!(begun == needed || seed & 128 > 0);
            }
            Step::Poll | Step::Block => {
                let wait = if matches!(step, Step::Poll) { Wait::Poll } else { Wait::Block };
                let mut done = Vec::new();
                io.reap(wait, &mut done).unwrap();
                for done in done {
                    prop_assert!(done.result.is_ok(), "{:?}", done);
                    log.on_done(done).unwrap();
                }
            }
            Step::Settle => {
                log.settle(&mut io).unwrap();
                prop_assert_eq!(log.written_end_offset(), log.log_end_offset());
            }
            Step::Sync => {
                log.sync(&mut io).unwrap();
                prop_assert_eq!(log.synced_end_offset(), log.log_end_offset());
                prop_assert_eq!(log.unsynced_bytes(), 0);
            }
            Step::Rest => {
                log.rest(&mut io).unwrap();
            }
            Step::Roll => {
                log.roll(&mut io, None, NOW).unwrap();
                prop_assert_eq!(log.synced_end_offset(), log.log_end_offset());
            }
            Step::Truncate(share) => {
                let to = next(&all) * i64::from(*share) / 255;
                log.truncate_to(&mut io, at(to)).unwrap();
                all.truncate(usize::try_from(to).unwrap());
            }
            Step::Read(share) => {
                let from = next(&all) * i64::from(*share) / 256;
                let read = log.read(&mut io, at(from), 1, at(i64::MAX), true).unwrap();
                let expected = all.get(usize::try_from(from).unwrap()).cloned().unwrap_or_default();
                prop_assert_eq!(read.bytes, expected);
            }
        }
        prop_assert_eq!(log.log_end_offset(), at(next(&all)));
        let (written, synced) = (log.written_end_offset(), log.synced_end_offset());
        prop_assert!(synced <= written && written <= log.log_end_offset());
        for (end, of_disk) in
            [(written, SimDisk::read_file as fn(&SimDisk, &Path) -> _), (synced, SimDisk::durable_file)]
        {
            let mut there = Vec::new();
            for segment in log.segments() {
                let mut bytes = of_disk(&disk, &segment.log_path()).unwrap_or_default();
                bytes.truncate(usize::try_from(segment.size()).unwrap());
                there.extend_from_slice(&bytes);
            }
            let expected = all[..usize::try_from(end.get()).unwrap()].concat();
            prop_assert!(
                there.starts_with(&expected),
                "{:?}: not what is said to be there below {}",
                step,
                end
            );
        }
    }
    let synced = usize::try_from(log.synced_end_offset().get()).unwrap();
    let policy = CrashPolicy::ALL[usize::try_from(seed).unwrap() % CrashPolicy::ALL.len()];
    disk.crash(policy);
    disk.short(false);
    let mut io = disk.io();
    let mut log = recover(&mut io, SegmentConfig::default());
    let found = batches(&mut io, &mut log);
    prop_assert!(found.len() >= synced, "{} of {} durable ones are there", found.len(), synced);
    for ((base, bytes), expected) in found.iter().zip(&all) {
        prop_assert_eq!(bytes, expected, "{}", base);
        RecordBatch::parse(bytes).unwrap();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_what_is_said_to_be_written_or_durable_is(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(seed, &steps)?;
    }
}

/// On a real disk, by the ring where it is to be had and by plain calls.
#[test]
fn many_logs_share_one_disk_and_their_syncs_run_side_by_side() {
    for wanted in [WantedBackend::Pwrite, WantedBackend::Auto] {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (mut io, selected) = select(wanted, &IoConfig::default()).unwrap();
        let io = &mut *io;
        let open = |io: &mut dyn Io, number: usize| {
            let dir = root.path().join(format!("t-{number}"));
            io.create_dir_all(&dir).unwrap();
            LocalLog::open(io, &dir, SegmentConfig::default(), at(0)).unwrap()
        };
        let mut logs: Vec<LocalLog> = (0..20).map(|number| open(io, number)).collect();
        let mut all = vec![Vec::new(); logs.len()];
        for (log, owner) in logs.iter_mut().zip(0..) {
            log.attach(owner, BufferPool::new(1 << 20));
        }
        let mut most = 0;
        for round in 0..5 {
            for (number, log) in logs.iter_mut().enumerate() {
                for size in [500, 5_000, 70_000 * (round % 3) + 100 * number + 100] {
                    let made = sized(log.log_end_offset().get(), size);
                    all[number].extend_from_slice(&made);
                    log.append_bytes(io, made, NOW).unwrap();
                }
            }
            while logs.iter().any(|log| log.synced_end_offset() < log.log_end_offset()) {
                for log in &mut logs {
                    log.flush(io);
                    log.sync_begin(io);
                }
                most = most.max(io.in_flight());
                let mut done = Vec::new();
                io.reap(Wait::Block, &mut done).unwrap();
                for done in done {
                    let owner = usize::try_from(ticket_owner(done.ticket)).unwrap();
                    logs[owner].on_done(done).unwrap();
                }
                assert!(logs.iter().all(|log| log.failure().is_none()), "{selected:?}");
            }
            // Each third one rests, and goes on in a file that ends inside a block.
            for log in logs.iter_mut().step_by(3) {
                assert!(log.rest(io).unwrap());
            }
        }
        assert!(most >= 15, "{most} in flight");
        for (number, mut log) in logs.into_iter().enumerate() {
            let path = log.active().log_path();
            assert_eq!(batches(io, &mut log).concat_bytes(), all[number], "{selected:?}");
            log.close(io).unwrap();
            assert_eq!(std::fs::read(path).unwrap(), all[number], "{selected:?}");
        }
    }
}
