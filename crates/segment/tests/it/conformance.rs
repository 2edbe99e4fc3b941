//! The contract of [`Io`], line by line, against every backend.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};
use weir_segment::io::sim::SimDisk;
use weir_segment::io::{
    Done, FileId, Io, IoError, Op, Open, Operation, SyncKind, Ticket, Wait, durable, exact,
};

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

/// On a real disk, in a directory of its own, with few descriptors.
fn on_pwrite(check: fn(&mut dyn Io, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let config = PwriteConfig { max_open_files: 3, ..PwriteConfig::default() };
    check(&mut PwriteIo::new(config), dir.path());
}

/// On a SimDisk with everything that a caller has to survive turned on.
fn on_sim(check: fn(&mut dyn Io, &Path)) {
    for seed in 0..40 {
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

macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod pwrite { $(#[test] fn $name() { super::on_pwrite(super::$name); })* }
        mod sim { $(#[test] fn $name() { super::on_sim(super::$name); })* }
    };
}

conformance!(
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
    d12_a_file_follows_its_name,
    the_helpers_keep_the_completions_of_others,
);
