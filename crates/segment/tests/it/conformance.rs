//! The contract of [`Io`], line by line, against every backend: each as it is, io_uring also through the page cache and
//! with failures of the kernel injected, and the real ones also behind [`Unkind`]. And in memory, over a disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_segment::io::ahead::{DEPTH, PIECE_SIZE, ReadAhead};
use weir_segment::io::buffer::BufferPool;
use weir_segment::io::overlay::OverlayIo;
use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};
use weir_segment::io::sim::SimDisk;
use weir_segment::io::{
    Advice, BLOCK_SIZE, Done, FileId, Io, IoError, Op, Open, Operation, PREALLOCATION_FIRST,
    PREALLOCATION_MOST, SyncKind, Ticket, Wait, durable, exact,
};

use crate::unkind::{Random, Unkind};

fn write(file: FileId, at: u64, bytes: &'static [u8]) -> Op {
    Op::Write { file, at, bytes: Bytes::from_static(bytes) }
}

fn submit(io: &mut dyn Io, ticket: u64, op: Op) {
    assert!(io.submit(Ticket::new(ticket), op).is_ok(), "the queue is full");
}

/// Reaps until nothing is in flight.
fn reap_all(io: &mut dyn Io) -> Vec<Done> {
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    done
}

fn one(io: &mut dyn Io, op: Op) -> Done {
    submit(io, 1, op);
    let mut done = reap_all(io);
    assert_eq!(done.len(), 1);
    done.remove(0)
}

fn new_file(io: &mut dyn Io, dir: &Path) -> FileId {
    io.open(&dir.join("file"), Open::CreateNew).unwrap()
}

fn d1_a_count_may_be_short_and_only_the_helpers_loop(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    let bytes: Vec<u8> = (0..40_000_u32).map(|n| n.to_be_bytes()[3]).collect();
    let done = one(io, Op::Write { file, at: 0, bytes: Bytes::from(bytes.clone()) });
    let count = done.result.unwrap();
    assert!((1..=40_000).contains(&count));
    exact::write_all(io, file, 0, Bytes::from(bytes.clone())).unwrap();
    assert_eq!(io.len(file).unwrap(), 40_000);
    assert_eq!(exact::read_exact(io, file, 0, 40_000).unwrap(), bytes);
    assert_eq!(exact::read_exact(io, file, 39_990, 10).unwrap(), bytes[39_990..]);
    // A write of nothing is nothing, and no error.
    assert_eq!(one(io, write(file, 3, b"")).result.unwrap(), 0);
}

fn d2_every_operation_completes_once_with_its_own_ticket(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    for number in 0..20 {
        submit(io, number, write(file, number * 4096, b"x"));
    }
    assert_eq!(io.in_flight(), 20);
    let mut tickets: Vec<u64> = reap_all(io).iter().map(|done| done.ticket.get()).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, (0..20).collect::<Vec<_>>());
    let mut done = Vec::new();
    io.reap(Wait::Block, &mut done).unwrap();
    io.reap(Wait::Poll, &mut done).unwrap();
    assert!(done.is_empty(), "nothing in flight: a block returns");
}

fn d3_syncs_of_one_file_all_complete(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    exact::write_all(io, file, 0, Bytes::from_static(b"abc")).unwrap();
    for number in 0..5 {
        let what = if number % 2 == 0 { SyncKind::Data } else { SyncKind::All };
        submit(io, number, Op::Sync { file, what });
    }
    let done = reap_all(io);
    assert_eq!(done.len(), 5);
    for done in done {
        assert_eq!(done.result.unwrap(), 0);
    }
}

fn d4_names_are_made_replaced_listed_and_removed(io: &mut dyn Io, dir: &Path) {
    let inner = dir.join("a/b");
    durable::create_dir_all(io, &inner).unwrap();
    durable::create(io, &inner.join("new"), Bytes::from_static(b"1")).unwrap();
    let twice = durable::create(io, &inner.join("new"), Bytes::from_static(b"2")).unwrap_err();
    assert_eq!(twice.kind(), Some(std::io::ErrorKind::AlreadyExists));
    durable::replace(io, &inner.join("new"), Bytes::from_static(b"three")).unwrap();
    durable::replace(io, &inner.join("new"), Bytes::from_static(b"33")).unwrap();
    durable::rename(io, &inner.join("new"), &dir.join("moved")).unwrap();
    assert_eq!(durable::read_file(io, &dir.join("moved"), 10).unwrap().unwrap(), "33");
    assert!(matches!(durable::read_file(io, &dir.join("moved"), 1), Err(IoError::Short { .. })));
    assert_eq!(durable::read_file(io, &inner.join("new"), 10).unwrap(), None);
    assert_eq!(io.list(&inner).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(io.list(dir).unwrap(), [dir.join("a"), dir.join("moved")]);
    assert!(io.metadata(&inner).unwrap().unwrap().is_dir);
    assert_eq!(io.metadata(&dir.join("moved")).unwrap().unwrap().size, 2);
    assert_eq!(io.metadata(&dir.join("none")).unwrap(), None);
    durable::remove(io, &dir.join("moved")).unwrap();
    durable::remove(io, &dir.join("moved")).unwrap();
    assert!(io.remove(&dir.join("moved")).unwrap_err().is_not_found());
    io.remove(&inner).unwrap();
    assert_eq!(io.list(&dir.join("a")).unwrap(), Vec::<PathBuf>::new());
    assert!(io.list(&inner).unwrap_err().is_not_found());
    assert!(io.rename(&inner, dir).unwrap_err().is_not_found());
}

fn d6_park_ends_by_waker_by_time_and_by_completion(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    let mut done = Vec::new();
    let waker = io.waker();
    waker.wake();
    waker.clone().wake();
    io.reap(Wait::Park(None), &mut done).unwrap();
    // Woken twice before the park equals once: this one ends by its time.
    io.reap(Wait::Park(Some(Duration::from_millis(1))), &mut done).unwrap();
    let thread = std::thread::Builder::new().spawn(move || waker.wake()).unwrap();
    io.reap(Wait::Park(None), &mut done).unwrap();
    thread.join().unwrap();
    assert!(done.is_empty());
    submit(io, 9, Op::Sync { file, what: SyncKind::Data });
    while done.is_empty() {
        io.reap(Wait::Park(Some(Duration::from_secs(60))), &mut done).unwrap();
    }
    assert_eq!(done[0].ticket, Ticket::new(9));
}

fn d7_buffers_come_back_also_on_error(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    io.close(file).unwrap();
    let done = one(io, write(file, 7, b"mine"));
    assert!(matches!(done.result, Err(IoError::Misuse { .. })));
    let Op::Write { bytes, at: 7, .. } = done.op else { panic!("another operation came back") };
    assert_eq!(bytes, "mine");
    let done = one(io, Op::Read { file, at: 0, into: BytesMut::zeroed(5) });
    assert!(done.result.is_err());
    let Op::Read { into, .. } = done.op else { panic!("another operation came back") };
    assert_eq!(into.len(), 5);
}

fn d8_a_read_past_the_end_is_short_and_no_error(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    exact::write_all(io, file, 0, Bytes::from_static(b"0123456789")).unwrap();
    assert_eq!(exact::read_up_to(io, file, 8, 100).unwrap(), "89");
    assert_eq!(exact::read_up_to(io, file, 10, 100).unwrap(), "");
    assert_eq!(exact::read_up_to(io, file, u64::from(u32::MAX), 100).unwrap(), "");
    let short = exact::read_exact(io, file, 8, 3).unwrap_err();
    assert!(matches!(short, IoError::Short { done: 2, wanted: 3, .. }), "{short}");
    // What was not read is left as it was.
    let mut into = BytesMut::zeroed(4);
    into.copy_from_slice(b"wxyz");
    let done = one(io, Op::Read { file, at: 9, into });
    assert_eq!(done.result.unwrap(), 1);
    let Op::Read { into, .. } = done.op else { panic!("another operation came back") };
    assert_eq!(into, "9xyz");
    // Holes read as zeros.
    io.truncate(file, 12).unwrap();
    assert_eq!(exact::read_exact(io, file, 8, 4).unwrap(), "89\0\0");
    io.truncate(file, 3).unwrap();
    assert_eq!(exact::read_up_to(io, file, 0, 100).unwrap(), "012");
}

fn d9_close_waits_and_what_it_waited_for_is_delivered(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    submit(io, 1, write(file, 0, b"late"));
    submit(io, 2, Op::Sync { file, what: SyncKind::All });
    submit(io, 3, Op::Sync { file, what: SyncKind::All });
    io.close(file).unwrap();
    let mut done = Vec::new();
    io.reap(Wait::Poll, &mut done).unwrap();
    assert_eq!(done.len(), 3);
    assert!(done.iter().all(|done| done.result.is_ok()));
    assert!(matches!(io.close(file), Err(IoError::Misuse { .. })));
    let file = io.open(&dir.join("file"), Open::Read).unwrap();
    assert!(io.len(file).unwrap() > 0);
}

fn d10_errors_say_operation_path_position_and_source(io: &mut dyn Io, dir: &Path) {
    let path = dir.join("missing");
    let error = io.open(&path, Open::Read).unwrap_err();
    assert_eq!(error.at().operation, Operation::Open);
    assert_eq!(error.at().path, path);
    assert!(error.is_not_found());
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(error.to_string(), format!("open {}", path.display()));
    let file = new_file(io, dir);
    io.close(file).unwrap();
    let file = io.open(&dir.join("file"), Open::Read).unwrap();
    let error = one(io, write(file, 4096, b"no")).result.unwrap_err();
    assert_eq!(error.to_string(), format!("write {} at byte 4096", dir.join("file").display()));
    assert_eq!(error.at().position, Some(4096));
}

fn d5_a_failed_write_poisons_the_file_but_for_reads(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    exact::write_all(io, file, 0, Bytes::from_static(b"good")).unwrap();
    io.close(file).unwrap();
    // Opened to read only: every backend fails a write then.
    let file = io.open(&dir.join("file"), Open::Read).unwrap();
    assert!(matches!(one(io, write(file, 0, b"bad")).result, Err(IoError::Os { .. })));
    for op in [write(file, 0, b"bad"), Op::Sync { file, what: SyncKind::Data }] {
        let error = one(io, op).result.unwrap_err();
        assert!(matches!(error, IoError::Poisoned { cause: Operation::Write, .. }), "{error}");
    }
    assert!(matches!(io.truncate(file, 0), Err(IoError::Poisoned { .. })));
    assert_eq!(exact::read_exact(io, file, 0, 4).unwrap(), "good");
}

fn d11_overlapping_writes_in_flight_fail_the_caller(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    submit(io, 1, write(file, 0, b"first"));
    submit(io, 2, write(file, 4095, b"same block"));
    submit(io, 3, write(file, 4096, b"next block"));
    assert!(matches!(io.truncate(file, 0), Err(IoError::Misuse { .. })));
    let mut done = reap_all(io);
    done.sort_by_key(|done| done.ticket);
    assert!(done[0].result.is_ok());
    assert!(matches!(done[1].result, Err(IoError::Misuse { .. })), "{:?}", done[1].result);
    assert!(done[2].result.is_ok());
    // Reaped is not in flight; and the file is not poisoned by it.
    exact::write_all(io, file, 1, Bytes::from_static(b"again")).unwrap();
    assert_eq!(exact::read_exact(io, file, 1, 5).unwrap(), "again");
}

fn d12_a_file_follows_its_name(io: &mut dyn Io, dir: &Path) {
    let inner = dir.join("from");
    io.create_dir_all(&inner).unwrap();
    let file = io.open(&inner.join("x"), Open::CreateOrOpen).unwrap();
    exact::write_all(io, file, 0, Bytes::from_static(b"x")).unwrap();
    exact::sync(io, file, SyncKind::Data).unwrap();
    io.rename(&inner.join("x"), &inner.join("y")).unwrap();
    assert_eq!(io.path(file), inner.join("y"));
    io.rename(&inner, &dir.join("to")).unwrap();
    assert_eq!(io.path(file), dir.join("to/y"));
    // Enough other files that a bounded pool gives the descriptor back.
    for number in 0..10 {
        io.open(&dir.join(format!("{number}")), Open::CreateNew).unwrap();
    }
    assert_eq!(exact::read_exact(io, file, 0, 1).unwrap(), "x");
    exact::write_all(io, file, 1, Bytes::from_static(b"y")).unwrap();
    assert_eq!(io.len(file).unwrap(), 2);
}

fn the_helpers_keep_the_completions_of_others(io: &mut dyn Io, dir: &Path) {
    let file = new_file(io, dir);
    let other = io.open(&dir.join("other"), Open::CreateNew).unwrap();
    for number in 0..4 {
        submit(io, number, write(other, number * 4096, b"theirs"));
    }
    exact::write_all(io, file, 0, Bytes::from_static(b"mine")).unwrap();
    exact::sync(io, file, SyncKind::Data).unwrap();
    assert_eq!(exact::read_exact(io, file, 0, 4).unwrap(), "mine");
    assert_eq!(io.in_flight(), 4);
    let mut tickets: Vec<u64> = reap_all(io).iter().map(|done| done.ticket.get()).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, [0, 1, 2, 3]);
}

fn d12_more_files_are_in_use_than_descriptors(io: &mut dyn Io, dir: &Path) {
    let mut files = Vec::new();
    for number in 0..12_u8 {
        let how = if number % 2 == 0 { Open::AppendNew } else { Open::CreateNew };
        files.push(io.open(&dir.join(format!("{number}")), how).unwrap());
    }
    // Unsynced, in turns.
    for round in 0..3_u64 {
        for (file, number) in files.iter().zip(0_u8..) {
            exact::write_all(io, *file, round * 2, Bytes::from(vec![number; 2])).unwrap();
        }
    }
    for (file, number) in files.iter().zip(0_u8..) {
        assert_eq!(exact::read_up_to(io, *file, 0, 100).unwrap(), vec![number; 6]);
        assert_eq!(io.len(*file).unwrap(), 6);
        io.close(*file).unwrap();
        assert_eq!(io.metadata(&dir.join(format!("{number}"))).unwrap().unwrap().size, 6);
    }
}

fn size_on_disk(io: &mut dyn Io, path: &Path) -> u64 {
    io.metadata(path).unwrap().unwrap().size
}

/// All of a file, through another handle: with a backend that has a page cache, from there.
fn read_otherwise(io: &mut dyn Io, path: &Path) -> BytesMut {
    let file = io.open(path, Open::Read).unwrap();
    let bytes = exact::read_up_to(io, file, 0, 64 << 20).unwrap();
    io.close(file).unwrap();
    bytes
}

fn d13_a_file_opened_to_append_says_its_end_and_has_it_when_closed(io: &mut dyn Io, dir: &Path) {
    let path = dir.join("log");
    assert!(io.open(&path, Open::Append).unwrap_err().is_not_found());
    let file = io.open(&path, Open::AppendNew).unwrap();
    let twice = io.open(&path, Open::AppendNew).unwrap_err();
    assert_eq!(twice.kind(), Some(std::io::ErrorKind::AlreadyExists));
    assert_eq!(io.len(file).unwrap(), 0);
    assert_eq!(exact::read_up_to(io, file, 0, 10).unwrap(), "");
    exact::write_all(io, file, 0, Bytes::from_static(b"hello")).unwrap();
    assert_eq!(io.len(file).unwrap(), 5);
    assert_eq!(exact::read_up_to(io, file, 0, 10_000).unwrap(), "hello");
    assert_eq!(exact::read_up_to(io, file, 5, 10).unwrap(), "");
    let on_disk = size_on_disk(io, &path);
    assert!((5..=PREALLOCATION_MOST).contains(&on_disk), "{on_disk}");
    // What is there behind the end is zeros.
    assert!(read_otherwise(io, &path)[5..].iter().all(|byte| *byte == 0));
    io.truncate(file, 5).unwrap();
    assert_eq!(size_on_disk(io, &path), 5);
    exact::write_all(io, file, 5, Bytes::from(vec![7; 100_000])).unwrap();
    exact::sync(io, file, SyncKind::Data).unwrap();
    assert_eq!(io.len(file).unwrap(), 100_005);
    io.close(file).unwrap();
    assert_eq!(size_on_disk(io, &path), 100_005);
    let file = io.open(&path, Open::Append).unwrap();
    assert_eq!(io.len(file).unwrap(), 100_005);
    exact::write_all(io, file, 100_005, Bytes::from_static(b"more")).unwrap();
    io.close(file).unwrap();
    assert_eq!(read_otherwise(io, &path)[100_000..], b"\x07\x07\x07\x07\x07more"[..]);
}

fn d13_what_a_truncation_adds_reads_as_zeros(io: &mut dyn Io, dir: &Path) {
    let path = dir.join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    exact::write_all(io, file, 0, Bytes::from(vec![1; 10_000])).unwrap();
    io.truncate(file, 5_000).unwrap();
    assert_eq!(io.len(file).unwrap(), 5_000);
    io.truncate(file, 9_000).unwrap();
    assert_eq!(io.len(file).unwrap(), 9_000);
    let bytes = exact::read_up_to(io, file, 0, 20_000).unwrap();
    assert_eq!(bytes, [vec![1; 5_000], vec![0; 4_000]].concat());
    // A hole between the end and a write, too.
    exact::write_all(io, file, 20_000, Bytes::from_static(b"x")).unwrap();
    assert_eq!(exact::read_exact(io, file, 8_999, 11_002).unwrap()[..11_001], vec![0; 11_001]);
    io.truncate(file, 0).unwrap();
    assert_eq!((io.len(file).unwrap(), size_on_disk(io, &path)), (0, 0));
    assert_eq!(exact::read_up_to(io, file, 0, 20_000).unwrap(), "");
}

fn d13_space_behind_the_end_is_bounded(io: &mut dyn Io, dir: &Path) {
    let path = dir.join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    let chunk = Bytes::from(vec![5; 100_000]);
    for number in 0..30 {
        exact::write_all(io, file, number * 100_000, chunk.clone()).unwrap();
        let end = io.len(file).unwrap();
        assert_eq!(end, (number + 1) * 100_000);
        // Each step is as long as all before it together, and one more of the first.
        let most = (end + PREALLOCATION_FIRST + BLOCK_SIZE).min(PREALLOCATION_MOST);
        let behind = size_on_disk(io, &path) - end;
        assert!(behind <= most, "{behind} bytes behind the end {end}");
    }
    io.close(file).unwrap();
    assert_eq!(size_on_disk(io, &path), 3_000_000);
}

fn d14_many_files_answer_each_for_itself(io: &mut dyn Io, dir: &Path) {
    let mut files = Vec::new();
    for number in 0..40 {
        let file = io.open(&dir.join(format!("{number}")), Open::AppendNew).unwrap();
        exact::write_all(io, file, 0, Bytes::from_static(b"x")).unwrap();
        files.push(file);
    }
    io.close(files[3]).unwrap();
    for (file, ticket) in files.iter().zip(0..) {
        submit(io, ticket, Op::Sync { file: *file, what: SyncKind::Data });
    }
    let mut done = reap_all(io);
    done.sort_by_key(|done| done.ticket);
    assert_eq!(done.len(), 40);
    for (done, number) in done.iter().zip(0..) {
        assert_eq!(done.result.is_ok(), number != 3, "{number}: {:?}", done.result);
    }
}

fn advice_changes_nothing_that_can_be_read(io: &mut dyn Io, dir: &Path) {
    let file = io.open(&dir.join("log"), Open::AppendNew).unwrap();
    for (advice, at) in [(Advice::CatchUp, 0), (Advice::Normal, 3)] {
        io.advise(file, advice);
        exact::write_all(io, file, at, Bytes::from_static(b"abc")).unwrap();
        exact::sync(io, file, SyncKind::Data).unwrap();
    }
    assert_eq!(exact::read_up_to(io, file, 0, 10).unwrap(), "abcabc");
    io.close(file).unwrap();
    io.advise(file, Advice::CatchUp);
}

fn the_alignment_of_writes_is_one_or_a_block(io: &mut dyn Io, dir: &Path) {
    let log = io.open(&dir.join("log"), Open::AppendNew).unwrap();
    let index = io.open(&dir.join("index"), Open::CreateNew).unwrap();
    assert!([1, BLOCK_SIZE].contains(&io.write_alignment(log)));
    assert_eq!(io.write_alignment(index), 1);
    io.close(log).unwrap();
    assert_eq!(io.write_alignment(log), 1);
    let log = io.open(&dir.join("log"), Open::Read).unwrap();
    assert_eq!(io.write_alignment(log), 1);
}

/// Bytes that differ from block to block.
fn pattern(from: usize, size: usize) -> Vec<u8> {
    (from..from + size).map(|at| u8::try_from((at / 7 + at / 4096 * 31) % 251).unwrap()).collect()
}

fn writes_that_start_and_end_anywhere_are_right(io: &mut dyn Io, dir: &Path) {
    let path = dir.join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    let mut end = 0;
    // Tails on, before and behind the borders of blocks.
    for size in
        [1, 4_095, 1, 4_094, 1, 1, 4_096, 4_097, 8_191, 100, 70_000, 12_288, 3, 4_093, 8_192, 1_300_001]
    {
        let bytes = pattern(end, size);
        // The memory starts anywhere, too.
        let mut unaligned = vec![0; end % 13];
        unaligned.extend_from_slice(&bytes);
        let start = u64::try_from(end).unwrap();
        exact::write_all(io, file, start, Bytes::from(unaligned).slice(end % 13..)).unwrap();
        end += size;
        assert_eq!(io.len(file).unwrap(), u64::try_from(end).unwrap());
        let from = end.saturating_sub(9_000);
        let read = exact::read_exact(io, file, u64::try_from(from).unwrap(), end - from).unwrap();
        assert!(read == pattern(from, end - from), "after {size} bytes up to {end}");
    }
    let whole = pattern(0, end);
    assert!(exact::read_up_to(io, file, 0, end + 1).unwrap() == whole);
    assert!(read_otherwise(io, &path)[..end] == whole);
    io.close(file).unwrap();
    assert!(read_otherwise(io, &path) == whole);
}

fn a_tail_that_is_sent_again_from_its_block_grows(io: &mut dyn Io, dir: &Path) {
    let path = dir.join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    let pool = BufferPool::new(1 << 20);
    let block = usize::try_from(io.write_alignment(file)).unwrap();
    let mut end = 0_usize;
    for size in [100, 200, 3_796, 1, 4_095, 5_000, 20_000, 96, 4_096, 60_000] {
        let start = end / block * block;
        let mut buffer = pool.take(end + size - start);
        assert_eq!(buffer.extend_from_slice(&pattern(start, end + size - start)), end + size - start);
        exact::write_all(io, file, u64::try_from(start).unwrap(), buffer.freeze()).unwrap();
        end += size;
        assert_eq!(io.len(file).unwrap(), u64::try_from(end).unwrap());
        assert!(exact::read_up_to(io, file, 0, end + 10).unwrap() == pattern(0, end), "{end}");
    }
    io.close(file).unwrap();
    assert!(read_otherwise(io, &path) == pattern(0, end));
}

fn many_writes_in_flight_in_a_growing_file_all_land(io: &mut dyn Io, dir: &Path) {
    let path = dir.join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    let (count, size) = (48_u64, 40_960_usize);
    let mut sent = 0;
    let mut done = Vec::new();
    for number in 0..count {
        let at = number * 40_960;
        let mut op = Op::Write { file, at, bytes: Bytes::from(pattern(usize::try_from(at).unwrap(), size)) };
        while let Err(back) = io.submit(Ticket::new(number), op) {
            op = back;
            io.reap(Wait::Block, &mut done).unwrap();
        }
        sent += 1;
    }
    assert_eq!(sent, count);
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    for done in done {
        let Op::Write { at, bytes, .. } = done.op else { panic!("another operation came back") };
        let written = usize::try_from(done.result.unwrap()).unwrap();
        assert!(written > 0);
        exact::write_all(io, file, at + u64::try_from(written).unwrap(), bytes.slice(written..)).unwrap();
    }
    let whole = pattern(0, 48 * 40_960);
    assert!(exact::read_up_to(io, file, 0, whole.len() + 1).unwrap() == whole);
    io.close(file).unwrap();
    assert!(read_otherwise(io, &path) == whole);
}

fn a_read_never_sees_what_was_there_before_a_write(io: &mut dyn Io, dir: &Path) {
    let path = dir.join("log");
    let file = io.open(&path, Open::AppendNew).unwrap();
    let other = io.open(&path, Open::Read).unwrap();
    let size = 20_000;
    for round in 0..20_u8 {
        exact::write_all(io, file, 0, Bytes::from(vec![round; size])).unwrap();
        // Both ways to read, in turns, so that either finds what the other left in a cache.
        for _ in 0..2 {
            assert!(exact::read_exact(io, file, 0, size).unwrap() == vec![round; size], "{round}");
            assert!(
                exact::read_exact(io, other, 0, size).unwrap() == vec![round; size],
                "{round}, the other"
            );
        }
        exact::write_all(io, file, 4_097, Bytes::from_static(b"x")).unwrap();
        assert_eq!(exact::read_exact(io, other, 4_096, 3).unwrap(), [round, b'x', round][..]);
    }
}

fn an_append_file_equals_its_model_whatever_is_done_to_it(io: &mut dyn Io, dir: &Path) {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let path = dir.join(format!("log{seed}"));
        let mut file = io.open(&path, Open::AppendNew).unwrap();
        let mut model: Vec<u8> = Vec::new();
        for step in 0..60 {
            let len = u64::try_from(model.len()).unwrap();
            match random.below(10) {
                0..=4 => {
                    let at = match random.below(4) {
                        0 => random.below(len + 1),
                        1 => len / BLOCK_SIZE * BLOCK_SIZE,
                        2 if random.below(8) == 0 => len + random.below(10_000),
                        _ => len,
                    };
                    let most = 1 << random.below(17);
                    let size = usize::try_from(random.below(most) + 1).unwrap();
                    let bytes: Vec<u8> =
                        (0..size).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
                    exact::write_all(io, file, at, Bytes::from(bytes.clone())).unwrap();
                    let at = usize::try_from(at).unwrap();
                    if model.len() < at + size {
                        model.resize(at + size, 0);
                    }
                    model[at..at + size].copy_from_slice(&bytes);
                }
                5 => {
                    let len =
                        if random.below(3) == 0 { len + random.below(9_000) } else { random.below(len + 1) };
                    io.truncate(file, len).unwrap();
                    model.resize(usize::try_from(len).unwrap(), 0);
                }
                6 => {
                    io.close(file).unwrap();
                    assert_eq!(size_on_disk(io, &path), len, "seed {seed} step {step}");
                    file = io.open(&path, Open::Append).unwrap();
                }
                7 => exact::sync(io, file, SyncKind::Data).unwrap(),
                _ => {
                    let at = usize::try_from(random.below(len + 100)).unwrap();
                    let size = usize::try_from(random.below(20_000)).unwrap();
                    let read = exact::read_up_to(io, file, u64::try_from(at).unwrap(), size).unwrap();
                    let expected = &model[at.min(model.len())..(at + size).min(model.len())];
                    assert!(read == expected, "seed {seed} step {step}: {size} bytes at {at} of {len}");
                }
            }
            assert_eq!(io.len(file).unwrap(), u64::try_from(model.len()).unwrap(), "seed {seed} step {step}");
        }
        assert!(exact::read_up_to(io, file, 0, model.len() + 1).unwrap() == model, "seed {seed}");
        io.close(file).unwrap();
        assert!(read_otherwise(io, &path) == model, "seed {seed}");
    }
}

/// What is read ahead of a file from a position to an end, and how that ended.
fn read_ahead(
    io: &mut dyn Io,
    mut ahead: ReadAhead,
    mut each: impl FnMut(&mut dyn Io),
) -> (Vec<u8>, Result<(), IoError>) {
    let mut all = Vec::new();
    let outcome = loop {
        match ahead.next(io) {
            Ok(Some(piece)) => {
                all.extend_from_slice(piece.bytes());
                ahead.give_back(piece);
                each(io);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    ahead.finish(io).unwrap();
    assert_eq!(io.in_flight(), 0);
    (all, outcome)
}

fn a_file_of_any_size_is_read_ahead(io: &mut dyn Io, dir: &Path) {
    let longest = pattern(0, PIECE_SIZE + 4_097);
    for size in [0, 1, 511, 512, 513, 4_095, 4_096, 4_097, PIECE_SIZE - 1, PIECE_SIZE, longest.len()] {
        let path = dir.join(size.to_string());
        let (bytes, end) = (&longest[..size], u64::try_from(size).unwrap());
        let file = io.open(&path, Open::AppendNew).unwrap();
        exact::write_all(io, file, 0, Bytes::copy_from_slice(bytes)).unwrap();
        io.close(file).unwrap();
        for how in [Open::Append, Open::Read] {
            let file = io.open(&path, how).unwrap();
            for start in [0, 1, 4_096, size.saturating_sub(1), size].into_iter().filter(|at| *at <= size) {
                let ahead = ReadAhead::new(file, u64::try_from(start).unwrap(), end);
                let (all, outcome) = read_ahead(io, ahead, |_| {});
                outcome.unwrap();
                assert!(all == bytes[start..], "{size} bytes from {start}");
            }
            io.close(file).unwrap();
        }
    }
}

fn a_file_that_grows_or_is_cut_while_it_is_read_ahead(io: &mut dyn Io, dir: &Path) {
    let (path, piece) = (dir.join("log"), u64::try_from(PIECE_SIZE).unwrap());
    let size = PIECE_SIZE * (DEPTH + 2);
    let file = io.open(&path, Open::AppendNew).unwrap();
    exact::write_all(io, file, 0, Bytes::from(vec![7; size])).unwrap();
    io.close(file).unwrap();
    let end = u64::try_from(size).unwrap() - 10;
    let file = io.open(&path, Open::Append).unwrap();
    let other = io.open(&path, Open::Write).unwrap();
    exact::write_all(io, other, u64::try_from(size).unwrap(), Bytes::from_static(b"more")).unwrap();
    let (all, outcome) = read_ahead(io, ReadAhead::new(file, 0, end), |_| {});
    outcome.unwrap();
    assert!(all == [7].repeat(size - 10));
    // Cut behind what may be in flight already, once the first piece is there.
    let (cut, mut is_cut) = (piece * u64::try_from(DEPTH + 1).unwrap() + 100, false);
    let (all, outcome) = read_ahead(io, ReadAhead::new(file, 0, end), |io| {
        if !is_cut {
            io.truncate(other, cut).unwrap();
            is_cut = true;
        }
    });
    assert!(all == [7].repeat(PIECE_SIZE * (DEPTH + 1)), "every piece that is whole");
    match outcome {
        Err(IoError::Short { at, done: 100, .. }) => assert_eq!(at.position, Some(cut)),
        other => panic!("{other:?}"),
    }
}

/// On a real disk, in a directory of its own, with few descriptors.
fn on_pwrite(check: fn(&mut dyn Io, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let config = PwriteConfig { max_open_files: 3, ..PwriteConfig::default() };
    check(&mut PwriteIo::new(config), dir.path());
}

/// The same behind [`Unkind`].
fn on_unkind_pwrite(check: fn(&mut dyn Io, &Path)) {
    for seed in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        check(
            &mut Unkind::new(Box::new(PwriteIo::new(pool_always(PwriteConfig::default()))), seed),
            dir.path(),
        );
    }
}

/// Nothing is done by the thread that waits.
fn pool_always(config: PwriteConfig) -> PwriteConfig {
    PwriteConfig { here_below: Duration::ZERO, ..config }
}

/// On a SimDisk with everything that a caller has to survive turned on.
fn on_sim(check: fn(&mut dyn Io, &Path)) {
    on_sims(check, 40);
}

/// The same for what writes megabytes.
fn on_few_sims(check: fn(&mut dyn Io, &Path)) {
    on_sims(check, 8);
}

fn on_sims(check: fn(&mut dyn Io, &Path), count: u64) {
    for seed in 0..count {
        let disk = SimDisk::new(seed);
        disk.reorder(seed % 2 == 1);
        disk.yield_always(seed % 3 == 1);
        disk.slow((seed % 5 == 1).then_some(10..1_000));
        disk.short(seed % 7 == 1);
        let dir = Path::new("/dir");
        disk.io().create_dir_all(dir).unwrap();
        check(&mut disk.io(), dir);
    }
}

/// In memory, over a SimDisk.
fn on_overlay(check: fn(&mut dyn Io, &Path)) {
    let disk = SimDisk::new(1);
    let dir = Path::new("/dir");
    disk.io().create_dir_all(dir).unwrap();
    let ops = disk.op_count();
    check(&mut OverlayIo::new(&mut disk.io()), dir);
    assert_eq!(disk.op_count(), ops, "the disk was asked for no change");
}

#[cfg(target_os = "linux")]
mod ring {
    use super::{Duration, Io, Operation, Path, Random, Unkind};
    use crate::uring::{dir, ring};
    use weir_segment::io::uring::UringConfig;

    /// Nothing is done by the thread that waits.
    fn ring_always(config: UringConfig) -> UringConfig {
        UringConfig { here_below: Duration::ZERO, ..config }
    }

    /// Past the page cache, on a real disk, with few descriptors.
    pub(super) fn on_uring(check: fn(&mut dyn Io, &Path)) {
        let Some(mut io) = ring(UringConfig { max_open_files: 3, ..UringConfig::default() }) else { return };
        check(&mut io, dir().path());
    }

    /// Through the page cache, with a ring that takes one request at a time and no table of files.
    pub(super) fn on_uring_buffered(check: fn(&mut dyn Io, &Path)) {
        let config = ring_always(UringConfig {
            direct: false,
            ring_entries: 1,
            file_table: 0,
            ..UringConfig::default()
        });
        let Some(mut io) = ring(config) else { return };
        check(&mut io, dir().path());
    }

    /// With a kernel that interrupts, that has no time, and that does less than it was asked.
    pub(super) fn on_uring_with_faults(check: fn(&mut dyn Io, &Path)) {
        for seed in 0..4 {
            let config = UringConfig::default();
            let Some(mut io) = ring(if seed % 2 == 0 { config } else { ring_always(config) }) else { return };
            let mut random = Random::new(seed);
            io.inject(move |operation, result| match random.below(6) {
                _ if result <= 0 && operation != Operation::Sync => result,
                0 => -libc::EINTR,
                1 => -libc::EAGAIN,
                2 => -libc::ECANCELED,
                // Direct counts are whole sectors.
                3 if operation != Operation::Sync && result > 512 => {
                    let sectors = u64::try_from(result / 512).unwrap();
                    512 * i32::try_from(1 + random.below(sectors)).unwrap()
                }
                _ => result,
            });
            check(&mut io, dir().path());
        }
    }

    /// Behind [`Unkind`].
    pub(super) fn on_unkind_uring(check: fn(&mut dyn Io, &Path)) {
        for seed in 0..4 {
            let Some(io) = ring(ring_always(UringConfig::default())) else { return };
            check(&mut Unkind::new(Box::new(io), seed), dir().path());
        }
    }
}

macro_rules! conformance {
    ($($name:ident on $sim:ident),* $(,)?) => {
        mod pwrite { $(#[test] fn $name() { super::on_pwrite(super::$name); })* }
        mod unkind_pwrite { $(#[test] fn $name() { super::on_unkind_pwrite(super::$name); })* }
        mod sim { $(#[test] fn $name() { super::$sim(super::$name); })* }
        #[cfg(target_os = "linux")]
        mod uring { $(#[test] fn $name() { super::ring::on_uring(super::$name); })* }
        #[cfg(target_os = "linux")]
        mod uring_buffered { $(#[test] fn $name() { super::ring::on_uring_buffered(super::$name); })* }
        #[cfg(target_os = "linux")]
        mod uring_with_faults { $(#[test] fn $name() { super::ring::on_uring_with_faults(super::$name); })* }
        #[cfg(target_os = "linux")]
        mod unkind_uring { $(#[test] fn $name() { super::ring::on_unkind_uring(super::$name); })* }
    };
}

conformance!(
    d1_a_count_may_be_short_and_only_the_helpers_loop on on_sim,
    d2_every_operation_completes_once_with_its_own_ticket on on_sim,
    d3_syncs_of_one_file_all_complete on on_sim,
    d4_names_are_made_replaced_listed_and_removed on on_sim,
    d5_a_failed_write_poisons_the_file_but_for_reads on on_sim,
    d6_park_ends_by_waker_by_time_and_by_completion on on_sim,
    d7_buffers_come_back_also_on_error on on_sim,
    d8_a_read_past_the_end_is_short_and_no_error on on_sim,
    d9_close_waits_and_what_it_waited_for_is_delivered on on_sim,
    d10_errors_say_operation_path_position_and_source on on_sim,
    d11_overlapping_writes_in_flight_fail_the_caller on on_sim,
    d12_a_file_follows_its_name on on_sim,
    d12_more_files_are_in_use_than_descriptors on on_sim,
    d13_a_file_opened_to_append_says_its_end_and_has_it_when_closed on on_sim,
    d13_what_a_truncation_adds_reads_as_zeros on on_sim,
    d13_space_behind_the_end_is_bounded on on_few_sims,
    d14_many_files_answer_each_for_itself on on_sim,
    advice_changes_nothing_that_can_be_read on on_sim,
    the_alignment_of_writes_is_one_or_a_block on on_sim,
    writes_that_start_and_end_anywhere_are_right on on_few_sims,
    a_tail_that_is_sent_again_from_its_block_grows on on_few_sims,
    many_writes_in_flight_in_a_growing_file_all_land on on_few_sims,
    a_read_never_sees_what_was_there_before_a_write on on_sim,
    an_append_file_equals_its_model_whatever_is_done_to_it on on_few_sims,
    the_helpers_keep_the_completions_of_others on on_sim,
    a_file_of_any_size_is_read_ahead on on_few_sims,
    a_file_that_grows_or_is_cut_while_it_is_read_ahead on on_few_sims,
);

macro_rules! overlay {
    ($($name:ident),* $(,)?) => {
        mod overlay { $(#[test] fn $name() { super::on_overlay(super::$name); })* }
    };
}

// All of them but one: the overlay renames no directories.
overlay!(
    d1_a_count_may_be_short_and_only_the_helpers_loop,
    d2_every_operation_completes_once_with_its_own_ticket,
    d3_syncs_of_one_file_all_complete,
    d4_names_are_made_replaced_listed_and_removed,
    d5_a_failed_write_poisons_the_file_but_for_reads,
    d6_park_ends_by_waker_by_time_and_by_completion,
    d7_buffers_come_back_also_on_error,
    d8_a_read_past_the_end_is_short_and_no_error,
    d9_close_waits_and_what_it_waited_for_is_delivered,
    d10_errors_say_operation_path_position_and_source,
    d11_overlapping_writes_in_flight_fail_the_caller,
    d12_more_files_are_in_use_than_descriptors,
    d13_a_file_opened_to_append_says_its_end_and_has_it_when_closed,
    d13_what_a_truncation_adds_reads_as_zeros,
    d13_space_behind_the_end_is_bounded,
    d14_many_files_answer_each_for_itself,
    advice_changes_nothing_that_can_be_read,
    the_alignment_of_writes_is_one_or_a_block,
    writes_that_start_and_end_anywhere_are_right,
    a_tail_that_is_sent_again_from_its_block_grows,
    many_writes_in_flight_in_a_growing_file_all_land,
    a_read_never_sees_what_was_there_before_a_write,
    an_append_file_equals_its_model_whatever_is_done_to_it,
    the_helpers_keep_the_completions_of_others,
    a_file_of_any_size_is_read_ahead,
    a_file_that_grows_or_is_cut_while_it_is_read_ahead,
);
