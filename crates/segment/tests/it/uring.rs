//! What is particular to the io_uring backend: what it allocates, what it leaves behind, what it does without.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tempfile::TempDir;
use weir_segment::io::buffer::BufferPool;
use weir_segment::io::uring::{UringConfig, UringIo};
use weir_segment::io::{
    Done, Io, IoError, Op, Open, Operation, PREALLOCATION_FIRST, PREALLOCATION_MOST, SyncKind, Ticket, Wait,
    exact,
};

use crate::select::{Filter, in_thread};

/// A directory on a real disk.
pub(crate) fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Says on the terminal, also when the test succeeds, that something was not tested.
pub(crate) fn skip(why: &str) {
    let line = format!("skipped: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A ring; `None`, and said, where io_uring is refused.
pub(crate) fn ring(config: UringConfig) -> Option<UringIo> {
    static SAID: Once = Once::new();
    match UringIo::new(config) {
        Ok(io) => Some(io),
        Err(error) if matches!(error.errno(), Some(libc::EPERM | libc::ENOSYS)) => {
            let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            SAID.call_once(|| skip(&format!("all tests of the io_uring backend: {error}: {why}")));
            None
        }
        Err(error) => panic!("{error}: {error:?}"),
    }
}

fn default_ring() -> Option<UringIo> {
    ring(UringConfig::default())
}

fn reap_all(io: &mut UringIo) -> Vec<Done> {
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    done
}

fn size_on_disk(path: &std::path::Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn space_is_allocated_in_steps_that_double_and_given_back() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let path = dir.path().join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    let (mut end, mut size, mut step) = (0, 0, PREALLOCATION_FIRST);
    let chunk = Bytes::from(vec![1; 64 << 10]);
    while end < 40 << 20 {
        exact::write_all(&mut io, file, end, chunk.clone()).unwrap();
        end += 64 << 10;
        if end > size {
            size += step;
            step = (step * 2).min(PREALLOCATION_MOST);
        }
        assert_eq!(size_on_disk(&path), size, "at {end}");
        assert_eq!(io.preallocated_size(), size - end);
    }
    assert_eq!(step, PREALLOCATION_MOST);
    // An idle file gives it back, and starts small again.
    io.truncate(file, end).unwrap();
    assert_eq!((size_on_disk(&path), io.preallocated_size()), (end, 0));
    exact::write_all(&mut io, file, end, chunk.clone()).unwrap();
    assert_eq!(size_on_disk(&path), end + PREALLOCATION_FIRST);
    io.close(file).unwrap();
    assert_eq!(size_on_disk(&path), end + (64 << 10));
}

#[test]
fn a_drop_waits_for_what_is_in_flight_and_leaks_nothing() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let path = dir.path().join("log");
    let pool = BufferPool::new(0);
    let file = io.open(&path, Open::AppendNew).unwrap();
    exact::write_all(&mut io, file, 0, Bytes::from(vec![9; 1 << 20])).unwrap();
    for number in 0..64_u64 {
        let mut buffer = pool.take(100_000);
        assert_eq!(buffer.extend_from_slice(&vec![u8::try_from(number).unwrap(); 65_536]), 65_536);
        let write = Op::Write { file, at: number * 65_536, bytes: buffer.freeze() };
        assert!(io.submit(Ticket::new(number), write).is_ok());
        let read = Op::Read { file, at: 0, into: BytesMut::zeroed(1 << 19) };
        assert!(io.submit(Ticket::new(100 + number), read).is_ok());
        let sync = Op::Sync { file, what: SyncKind::Data };
        assert!(io.submit(Ticket::new(200 + number), sync).is_ok());
    }
    assert_eq!(io.in_flight(), 192);
    assert!(pool.counters().live == 64, "the backend owns the buffers");
    drop(io);
    assert_eq!(pool.counters().live, 0);
    assert_eq!(pool.counters().freed, 64);
    let written = std::fs::read(&path).unwrap();
    for number in 0..64 {
        let part = &written[number * 65_536..(number + 1) * 65_536];
        assert!(part.iter().all(|byte| usize::from(*byte) == number), "{number}");
    }
}

#[test]
fn a_drop_of_a_broken_ring_leaks_what_the_kernel_may_still_use() {
    if default_ring().is_none() {
        return;
    }
    let pool = BufferPool::new(0);
    let dir = dir();
    let path = dir.path().join("log");
    let shared = pool.clone();
    in_thread(move || {
        let config = UringConfig { here_below: Duration::ZERO, ..UringConfig::default() };
        let mut io = UringIo::new(config).unwrap();
        let file = io.open(&path, Open::AppendNew).unwrap();
        let mut buffer = shared.take(4096);
        assert_eq!(buffer.extend_from_slice(&[1; 4096]), 4096);
        let write = Op::Write { file, at: 0, bytes: buffer.freeze() };
        assert!(io.submit(Ticket::new(1), write).is_ok());
        Filter::answer(libc::EPERM).to(libc::SYS_io_uring_enter).install();
        let error = io.reap(Wait::Block, &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), Some(std::io::ErrorKind::PermissionDenied));
        assert_eq!(error.to_string(), "reap io_uring");
        drop(io);
    });
    assert_eq!(pool.counters().live, 1, "the buffer was freed");
}

#[test]
fn reads_writes_and_syncs_of_a_growing_file_all_end() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let path = dir.path().join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    let (mut submitted, mut ended, mut end, mut tail_in_flight) = (0_u64, 0, 0_u64, false);
    let mut done = Vec::new();
    while ended < 6_000 {
        while submitted < 6_000 && io.in_flight() < 40 {
            let op = match submitted % 8 {
                0 | 1 if end > 0 => Op::Read { file, at: end / 3, into: BytesMut::zeroed(30_000) },
                2 => Op::Sync { file, what: SyncKind::Data },
                // The first block is written again and again, one at a time.
                3 if !tail_in_flight => {
                    tail_in_flight = true;
                    Op::Write { file, at: 0, bytes: Bytes::from_static(&[1; 100]) }
                }
                _ => {
                    end += 12_288;
                    Op::Write { file, at: end, bytes: Bytes::from_static(&[1; 12_288]) }
                }
            };
            assert!(io.submit(Ticket::new(submitted), op).is_ok());
            submitted += 1;
        }
        io.reap(Wait::Block, &mut done).unwrap();
        for done in done.drain(..) {
            assert!(done.result.is_ok(), "{:?}", done.result);
            tail_in_flight &= !matches!(done.op, Op::Write { at: 0, .. });
            ended += 1;
        }
    }
    assert_eq!(io.len(file).unwrap(), end + 12_288);
    io.close(file).unwrap();
    assert_eq!(size_on_disk(&path), end + 12_288);
    let written = std::fs::read(&path).unwrap();
    assert!(written[12_288 * 2..].iter().all(|byte| *byte == 1));
}

#[test]
fn an_idle_ring_costs_nothing() {
    fn cpu_ns() -> u64 {
        let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
    let mut done = Vec::new();
    // The ring watches the waker from the first park with something in flight.
    assert!(io.submit(Ticket::new(1), Op::Sync { file, what: SyncKind::Data }).is_ok());
    while done.is_empty() {
        io.reap(Wait::Park(None), &mut done).unwrap();
    }
    // And once woken, it sleeps again.
    io.waker().wake();
    io.reap(Wait::Park(None), &mut done).unwrap();
    let before = cpu_ns();
    io.reap(Wait::Park(Some(Duration::from_secs(1))), &mut done).unwrap();
    let used = Duration::from_nanos(cpu_ns() - before);
    assert!(used < Duration::from_millis(10), "{used:?} of a second");
    assert_eq!(done.len(), 1);
}

#[test]
fn a_wake_is_never_lost() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let (count, waker) = (Arc::clone(&sent), io.waker());
    let thread = std::thread::Builder::new().spawn(move || {
        for _ in 0..20_000 {
            count.fetch_add(1, Ordering::Release);
            waker.wake();
        }
    });
    let mut done = Vec::new();
    let mut round = 0_u64;
    while sent.load(Ordering::Acquire) < 20_000 {
        // With and without something in flight.
        if round.is_multiple_of(3) {
            let write = Op::Write { file, at: round * 4096, bytes: Bytes::from_static(b"x") };
            assert!(io.submit(Ticket::new(round), write).is_ok());
        }
        round += 1;
        let seen = sent.load(Ordering::Acquire);
        io.reap(Wait::Park(Some(Duration::from_secs(30))), &mut done).unwrap();
        assert!(sent.load(Ordering::Acquire) > seen || !done.is_empty() || seen > 0);
        done.clear();
    }
    thread.unwrap().join().unwrap();
    // The last wake may still be there; after it, a park ends by its time.
    for _ in 0..2 {
        reap_all(&mut io);
        io.reap(Wait::Park(Some(Duration::from_millis(1))), &mut done).unwrap();
    }
}

#[test]
fn descriptors_are_bounded_also_when_every_file_is_unsynced() {
    let config = UringConfig { max_open_files: 8, ..UringConfig::default() };
    let Some(mut io) = ring(config) else { return };
    let dir = dir();
    let mut files = Vec::new();
    for number in 0..100_u8 {
        let file = io.open(&dir.path().join(format!("{number}")), Open::AppendNew).unwrap();
        exact::write_all(&mut io, file, 0, Bytes::from(vec![number; 5])).unwrap();
        files.push(file);
        assert!(io.open_descriptors() <= 8, "{}", io.open_descriptors());
    }
    for (file, number) in files.iter().zip(0_u8..) {
        exact::write_all(&mut io, *file, 5, Bytes::from(vec![number; 5])).unwrap();
        assert_eq!(exact::read_up_to(&mut io, *file, 0, 100).unwrap(), vec![number; 10]);
        exact::sync(&mut io, *file, SyncKind::Data).unwrap();
    }
    assert!(io.open_descriptors() <= 8);
    for file in files {
        io.close(file).unwrap();
    }
    assert_eq!(io.open_descriptors(), 0);
}

#[test]
fn no_space_is_allocated_while_a_write_of_the_file_is_in_flight() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let path = dir.path().join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    if io.write_alignment(file) == 1 {
        return skip("space while a direct write is in flight: this file system has no direct I/O");
    }
    let length = || std::fs::metadata(&path).unwrap().len();
    for (number, at) in [(1, 0), (2, 1 << 20), (3, 4096)] {
        let write = Op::Write { file, at, bytes: Bytes::from(vec![u8::try_from(number).unwrap(); 4096]) };
        assert!(io.submit(Ticket::new(number), write).is_ok());
        // The second one is held back, which is no reason to hold back what has space.
        assert_eq!(length(), PREALLOCATION_FIRST);
    }
    let done = reap_all(&mut io);
    assert_eq!(done.len(), 3);
    assert!(done.iter().all(|done| matches!(done.result, Ok(4096))), "{done:?}");
    assert!(length() > 1 << 20);
    for (number, at) in [(1, 0), (2, 1 << 20), (3, 4096)] {
        assert_eq!(exact::read_exact(&mut io, file, at, 4096).unwrap(), vec![number; 4096]);
    }
}

#[test]
fn what_waits_to_be_submitted_keeps_its_descriptor_and_its_number() {
    // One descriptor and one number in the ring's table, which the next file would like to have.
    let config = UringConfig { max_open_files: 1, file_table: 1, ..UringConfig::default() };
    for what in ["write", "read", "sync"] {
        let Some(mut io) = ring(config) else { return };
        let dir = dir();
        let path = |name: &str| dir.path().join(name);
        let open = |io: &mut UringIo, name| io.open(&path(name), Open::AppendNew).unwrap();
        let file = open(&mut io, "mine");
        exact::write_all(&mut io, file, 0, Bytes::from(vec![1; 4096])).unwrap();
        exact::sync(&mut io, file, SyncKind::All).unwrap();
        let op = match what {
            "write" => Op::Write { file, at: 4096, bytes: Bytes::from(vec![2; 4096]) },
            "read" => Op::Read { file, at: 0, into: BytesMut::zeroed(4096) },
            _ => Op::Sync { file, what: SyncKind::Data },
        };
        assert!(io.submit(Ticket::new(1), op).is_ok());
        let other = open(&mut io, "other");
        assert_eq!(io.open_descriptors(), 2, "{what}: that of an operation in flight stays");
        let done = reap_all(&mut io).remove(0);
        let count = if what == "sync" { 0 } else { 4096 };
        assert_eq!(done.result.unwrap(), count, "{what}");
        if let Op::Read { into, .. } = done.op {
            assert!(into == [1; 4096][..]);
        }
        io.close(file).unwrap();
        io.close(other).unwrap();
        let size = if what == "write" { 8192 } else { 4096 };
        assert_eq!(std::fs::read(path("mine")).unwrap().len(), size, "{what}");
        assert_eq!(std::fs::read(path("other")).unwrap(), b"", "{what}: another file's bytes");
    }
}

#[test]
fn whoever_reads_through_the_page_cache_meanwhile_sees_what_was_written() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let path = dir.path().join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    let end = Arc::new(AtomicU64::new(0));
    let (published, from) = (Arc::clone(&end), path.clone());
    let reader = std::thread::Builder::new().spawn(move || {
        let mut checked = 0;
        loop {
            let end = usize::try_from(published.load(Ordering::Acquire)).unwrap();
            let read = std::fs::read(&from).unwrap();
            assert!(read.len() >= end);
            for (place, byte) in read[..end].iter().enumerate() {
                assert!(usize::from(*byte) == place / 1_000 % 250 + 1, "byte {place} of {end}");
            }
            checked += 1;
            if end >= 400_000 {
                return checked;
            }
        }
    });
    // A tail that is sent again and again, from the start of its block.
    for number in 0..400_usize {
        let start = number * 1_000 / 4_096 * 4_096;
        let bytes: Vec<u8> = (start..(number + 1) * 1_000)
            .map(|place| u8::try_from(place / 1_000 % 250 + 1).unwrap())
            .collect();
        exact::write_all(&mut io, file, u64::try_from(start).unwrap(), Bytes::from(bytes)).unwrap();
        end.store(u64::try_from((number + 1) * 1_000).unwrap(), Ordering::Release);
    }
    assert!(reader.unwrap().join().unwrap() > 0);
}

#[test]
fn a_failed_write_and_a_failed_sync_poison_the_file() {
    for failing in [Operation::Write, Operation::Sync] {
        let Some(mut io) = default_ring() else { return };
        let dir = dir();
        let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
        io.inject(move |operation, result| if operation == failing { -libc::EIO } else { result });
        for number in 0..3 {
            let op = match failing {
                Operation::Write => Op::Write { file, at: number * 4096, bytes: Bytes::from_static(b"x") },
                _ => Op::Sync { file, what: SyncKind::Data },
            };
            assert!(io.submit(Ticket::new(number), op).is_ok());
        }
        let done = reap_all(&mut io);
        assert_eq!(done.len(), 3);
        assert!(done.iter().any(|done| matches!(done.result, Err(IoError::Os { .. }))));
        assert!(done.iter().all(|done| done.result.is_err()));
        let error = exact::write_all(&mut io, file, 0, Bytes::from_static(b"x")).unwrap_err();
        assert!(matches!(error, IoError::Poisoned { cause, .. } if cause == failing), "{error}");
        assert!(matches!(io.truncate(file, 0), Err(IoError::Poisoned { .. })));
        io.close(file).unwrap();
    }
}

#[test]
fn what_a_short_write_left_behind_is_gone_after_a_truncation() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
    // It says less than it did.
    io.inject(|operation, result| if operation == Operation::Write { result.min(512) } else { result });
    assert!(io.submit(Ticket::new(1), Op::Write { file, at: 0, bytes: Bytes::from(vec![1; 8_192]) }).is_ok());
    assert!(matches!(reap_all(&mut io)[0].result, Ok(512)));
    assert_eq!(io.len(file).unwrap(), 512);
    io.truncate(file, 6_000).unwrap();
    let read = exact::read_up_to(&mut io, file, 0, 10_000).unwrap();
    assert_eq!(read, [vec![1; 512], vec![0; 5_488]].concat());
}

#[test]
fn direct_writes_that_are_refused_go_through_the_page_cache_from_then_on() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let path = dir.path().join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    if io.write_alignment(file) == 1 {
        return skip("a refused direct write: this file system has no direct I/O");
    }
    let mut left = 8;
    io.inject(move |operation, result| {
        left -= 1;
        if operation == Operation::Write && left < 3 { -libc::EINVAL } else { result }
    });
    let mut done = Vec::new();
    for number in 0..32_u64 {
        let bytes = Bytes::from(vec![u8::try_from(number + 1).unwrap(); 4_096]);
        assert!(io.submit(Ticket::new(number), Op::Write { file, at: number * 4_096, bytes }).is_ok());
        if number % 5 == 4 {
            io.reap(Wait::Block, &mut done).unwrap();
        }
    }
    done.extend(reap_all(&mut io));
    assert_eq!(done.len(), 32);
    let results: Vec<_> = done.iter().map(|done| &done.result).collect();
    assert!(results.iter().all(|result| matches!(result, Ok(4_096))), "{results:?}");
    assert_eq!(io.write_alignment(file), 1);
    assert_eq!(io.remarks().len(), 1, "{:?}", io.remarks());
    assert!(io.remarks()[0].contains("a direct write failed"), "{:?}", io.remarks());
    exact::sync(&mut io, file, SyncKind::Data).unwrap();
    io.close(file).unwrap();
    let expected: Vec<u8> = (1..=32).flat_map(|number| vec![number; 4_096]).collect();
    assert!(std::fs::read(&path).unwrap() == expected);
}

#[test]
fn a_file_that_can_be_written_neither_way_is_poisoned() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let path = dir.path().join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    if io.write_alignment(file) == 1 {
        return skip("a refused direct write: this file system has no direct I/O");
    }
    io.inject(|operation, result| if operation == Operation::Write { -libc::EINVAL } else { result });
    // There is nothing to open without O_DIRECT any more.
    std::fs::remove_file(&path).unwrap();
    let error = exact::write_all(&mut io, file, 0, Bytes::from_static(b"x")).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    let error = exact::write_all(&mut io, file, 0, Bytes::from_static(b"x")).unwrap_err();
    assert!(matches!(error, IoError::Poisoned { cause: Operation::Write, .. }), "{error}");
}

#[test]
fn a_file_that_cannot_be_opened_again_is_poisoned() {
    for failing in [Operation::Write, Operation::Sync] {
        let Some(mut io) = ring(UringConfig { max_open_files: 1, ..UringConfig::default() }) else { return };
        let dir = dir();
        let (path, away) = (dir.path().join("log"), dir.path().join("away"));
        let file = io.open(&path, Open::AppendNew).unwrap();
        exact::write_all(&mut io, file, 0, Bytes::from_static(b"kept")).unwrap();
        exact::sync(&mut io, file, SyncKind::All).unwrap();
        // The only descriptor goes to another file, and somebody takes this one away.
        io.open(&dir.path().join("other"), Open::AppendNew).unwrap();
        std::fs::rename(&path, &away).unwrap();
        let error = match failing {
            Operation::Write => exact::write_all(&mut io, file, 4, Bytes::from_static(b"x")),
            _ => exact::sync(&mut io, file, SyncKind::Data),
        };
        assert!(error.unwrap_err().is_not_found());
        std::fs::rename(&away, &path).unwrap();
        let error = exact::write_all(&mut io, file, 4, Bytes::from_static(b"x")).unwrap_err();
        assert!(matches!(error, IoError::Poisoned { cause, .. } if cause == failing), "{error}");
        let error = exact::sync(&mut io, file, SyncKind::Data).unwrap_err();
        assert!(matches!(error, IoError::Poisoned { .. }), "{error}");
        assert_eq!(exact::read_up_to(&mut io, file, 0, 10).unwrap(), "kept");
    }
}

#[test]
fn what_is_interrupted_for_ever_is_done_without_the_ring() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let path = dir.path().join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    io.inject(|operation, result| if operation == Operation::Sync { result } else { -libc::EAGAIN });
    exact::write_all(&mut io, file, 0, Bytes::from(vec![3; 10_000])).unwrap();
    assert_eq!(exact::read_exact(&mut io, file, 9_000, 1_000).unwrap(), vec![3; 1_000]);
    io.close(file).unwrap();
    assert!(std::fs::read(&path).unwrap() == vec![3; 10_000]);
}

#[test]
fn a_ring_of_one_entry_and_a_short_queue_take_many_operations() {
    let config = UringConfig { ring_entries: 1, queue_depth: 3, ..UringConfig::default() };
    let Some(mut io) = ring(config) else { return };
    let dir = dir();
    let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
    let write = |number: u64| Op::Write { file, at: number * 4096, bytes: Bytes::from_static(b"x") };
    for number in 0..3 {
        assert!(io.submit(Ticket::new(number), write(number)).is_ok());
    }
    let Err(Op::Write { at: 12_288, .. }) = io.submit(Ticket::new(3), write(3)) else {
        panic!("the queue was full");
    };
    assert_eq!(reap_all(&mut io).len(), 3);
    assert!(io.submit(Ticket::new(3), write(3)).is_ok());
    assert_eq!(reap_all(&mut io).len(), 1);
}

#[test]
fn whoever_waits_for_one_thing_alone_does_it_without_the_ring() {
    let dir = dir();
    let write = |file, at, size: usize| Op::Write { file, at, bytes: Bytes::from(vec![7; size]) };
    let sync = |file| Op::Sync { file, what: SyncKind::Data };
    for here_below in [Duration::from_secs(60), Duration::ZERO] {
        let Some(mut io) = ring(UringConfig { here_below, ..UringConfig::default() }) else { return };
        let here = u64::from(!here_below.is_zero());
        let mut name = 0;
        let mut new = |io: &mut UringIo| {
            name += 1;
            io.open(&dir.path().join(format!("{here} {name}")), Open::AppendNew).unwrap()
        };
        let (file, other) = (new(&mut io), new(&mut io));
        if io.write_alignment(file) == 1 {
            return skip("work without the ring: this file system has no direct I/O");
        }
        let mut before = io.counters();
        // What was done by this thread (writes, syncs) and by the ring.
        let mut step = |io: &mut UringIo, ops: Vec<Op>, wait: Wait| {
            for (number, op) in (0..).zip(ops) {
                assert!(io.submit(Ticket::new(number), op).is_ok());
            }
            let mut done = Vec::new();
            io.reap(wait, &mut done).unwrap();
            let first = done.len();
            done.extend(reap_all(io));
            assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
            let now = io.counters();
            let counts = (
                now.writes_here - before.writes_here,
                now.syncs_here - before.syncs_here,
                now.ring_requests - before.ring_requests,
            );
            before = now;
            (counts, first)
        };
        for wait in [Wait::Block, Wait::Park(None), Wait::Park(Some(Duration::from_secs(60)))] {
            let small = step(&mut io, vec![write(file, 0, 5_000)], wait);
            assert_eq!(small, ((here, 0, 1 - here), 1), "{wait:?}");
            assert_eq!(step(&mut io, vec![sync(file)], wait), ((0, here, 1 - here), 1), "{wait:?}");
            // Writes of the same file go on meanwhile.
            let (counts, _) =
                step(&mut io, vec![write(file, 0, 4_096), write(file, 8_192, 9), sync(file)], wait);
            assert_eq!(counts, (0, here, 3 - here), "{wait:?}");
            // One who waits for more hears of the first.
            let (counts, _) = step(&mut io, vec![sync(file), sync(other)], wait);
            assert_eq!(counts, (0, 0, 2), "{wait:?}");
            let (counts, _) = step(&mut io, vec![write(other, 0, 9), sync(file)], wait);
            assert_eq!(counts.1, 0, "{wait:?}");
            let read = Op::Read { file, at: 0, into: BytesMut::zeroed(9) };
            let (counts, _) = step(&mut io, vec![read, sync(file)], wait);
            assert_eq!(counts, (0, 0, 2), "{wait:?}");
            let (counts, _) = step(&mut io, vec![write(file, 0, 1 << 20)], wait);
            assert_eq!((counts.0, counts.2), (0, 1), "{wait:?}");
        }
        // Who does not wait, or was woken, gives it to the ring.
        assert_eq!(step(&mut io, vec![write(file, 0, 9)], Wait::Poll).0.0, 0);
        io.waker().wake();
        assert_eq!(step(&mut io, vec![write(file, 0, 9)], Wait::Park(None)).0.0, 0);
    }
}

#[test]
fn a_slow_disk_is_left_to_the_ring() {
    let here_below = Duration::from_nanos(1);
    let Some(mut io) = ring(UringConfig { here_below, ..UringConfig::default() }) else { return };
    let dir = dir();
    let file = io.open(&dir.path().join("log"), Open::CreateNew).unwrap();
    for _ in 0..5 {
        exact::sync(&mut io, file, SyncKind::Data).unwrap();
    }
    assert_eq!((io.counters().syncs_here, io.counters().ring_requests), (1, 4));
}

#[test]
fn large_writes_begin_before_anybody_reaps() {
    let Some(mut io) = default_ring() else { return };
    let dir = dir();
    let path = dir.path().join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    if io.write_alignment(file) == 1 {
        return skip("early writes: this file system has no direct I/O");
    }
    let pool = BufferPool::new(0);
    let mut buffer = pool.take(1 << 17);
    assert_eq!(buffer.extend_from_slice(&[3; 1 << 17]), 1 << 17);
    let write = Op::Write { file, at: 0, bytes: buffer.freeze() };
    assert!(io.submit(Ticket::new(1), write).is_ok());
    let is_there = || {
        std::thread::yield_now();
        std::fs::read(&path).unwrap().get(..1 << 17) == Some(&[3; 1 << 17][..])
    };
    assert!((0..1_000_000).any(|_| is_there()), "nothing is written");
    assert_eq!(reap_all(&mut io).len(), 1);
}

#[test]
fn what_fails_in_the_waiting_thread_poisons_as_in_the_ring() {
    for failing in [Operation::Write, Operation::Sync] {
        let Some(mut io) = default_ring() else { return };
        let dir = dir();
        let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
        if io.write_alignment(file) == 1 {
            return skip("failures without the ring: this file system has no direct I/O");
        }
        io.inject(move |operation, result| if operation == failing { -libc::EIO } else { result });
        let written = exact::write_all(&mut io, file, 0, Bytes::from_static(b"x"));
        let synced = exact::sync(&mut io, file, SyncKind::Data);
        let counters = io.counters();
        assert_eq!(counters.ring_requests, 0, "{counters:?}");
        let error = if failing == Operation::Write { written.unwrap_err() } else { synced.unwrap_err() };
        assert!(matches!(&error, IoError::Os { at, .. } if at.operation == failing), "{error}");
        let error = exact::write_all(&mut io, file, 0, Bytes::from_static(b"x")).unwrap_err();
        assert!(matches!(error, IoError::Poisoned { cause, .. } if cause == failing), "{error}");
    }
}
