//! What is particular to the pwrite backend: its pool of descriptors, and files that fail.

use std::time::Duration;

use bytes::Bytes;
use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};
use weir_segment::io::{Io, IoError, Op, Open, Operation, SyncKind, Ticket, Wait, exact};
use weir_segment::{LocalLog, SegmentConfig};

use crate::support::{NOW, at, batch, sync};

#[test]
fn descriptors_are_bounded_and_what_one_wrote_is_synced_before_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig { max_open_files: 4, ..PwriteConfig::default() });
    let mut files = Vec::new();
    for number in 0..20 {
        let file = io.open(&dir.path().join(format!("{number}")), Open::CreateNew).unwrap();
        exact::write_all(&mut io, file, 0, Bytes::from(vec![number; 3])).unwrap();
        exact::sync(&mut io, file, SyncKind::Data).unwrap();
        files.push(file);
        assert!(io.open_descriptors() <= 4);
    }
    for (file, number) in files.iter().zip(0_u8..) {
        assert_eq!(exact::read_exact(&mut io, *file, 0, 3).unwrap(), [number; 3][..]);
    }
    assert!(io.open_descriptors() <= 4);
    for file in &files {
        exact::write_all(&mut io, *file, 0, Bytes::from_static(b"x")).unwrap();
    }
    assert_eq!((io.open_descriptors(), io.counters().syncs_for_room), (4, 16));
    for file in &files {
        exact::sync(&mut io, *file, SyncKind::Data).unwrap();
    }
    io.open(&dir.path().join("more"), Open::CreateNew).unwrap();
    assert!(io.open_descriptors() <= 4);
    for file in files {
        io.close(file).unwrap();
    }
    assert_eq!(io.open_descriptors(), 1);
}

#[test]
fn a_log_of_many_segments_needs_few_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig { max_open_files: 8, ..PwriteConfig::default() });
    let config = SegmentConfig { segment_bytes: 200, index_interval_bytes: 0, ..SegmentConfig::default() };
    let mut log = LocalLog::open(&mut io, dir.path(), config, at(0)).unwrap();
    for base in 0..200 {
        log.append_bytes(&mut io, batch(base, 1, 100, base), NOW).unwrap();
    }
    assert_eq!(log.segments().len(), 200);
    for base in 0..200 {
        let read = log.read(&mut io, at(base), 1, at(200), true).unwrap();
        assert_eq!(read.bytes, batch(base, 1, 100, base));
        assert!(io.open_descriptors() <= 8, "{}", io.open_descriptors());
    }
    let found = log.batch_for_timestamp(&mut io, weir_format::TimestampMs::new(150), at(0)).unwrap().unwrap();
    assert_eq!(found.info.base_offset, at(150));
    assert!(io.open_descriptors() <= 8);
    log.close(&mut io).unwrap();
}

#[test]
fn a_sync_that_fails_poisons_the_file_for_those_that_wait_too() {
    let mut io = PwriteIo::new(PwriteConfig::default());
    // It takes writes and refuses to be synced.
    let file = io.open(std::path::Path::new("/dev/null"), Open::Write).unwrap();
    for number in 0..3 {
        assert!(io.submit(Ticket::new(number), Op::Sync { file, what: SyncKind::Data }).is_ok());
    }
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    let os = done.iter().filter(|done| matches!(done.result, Err(IoError::Os { .. }))).count();
    let poisoned = |done: &weir_segment::io::Done| {
        matches!(done.result, Err(IoError::Poisoned { cause: Operation::Sync, .. }))
    };
    assert_eq!((os, done.iter().filter(|done| poisoned(done)).count()), (1, 2));
    let error = exact::write_all(&mut io, file, 0, Bytes::from_static(b"x")).unwrap_err();
    assert_eq!(error.to_string(), "write /dev/null at byte 0: refused, because sync failed earlier");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_cannot_be_opened_again_is_poisoned() {
    for failing in [Operation::Write, Operation::Sync] {
        let dir = tempfile::tempdir().unwrap();
        let mut io = PwriteIo::new(PwriteConfig { max_open_files: 1, ..PwriteConfig::default() });
        let (path, away) = (dir.path().join("file"), dir.path().join("away"));
        let file = io.open(&path, Open::CreateNew).unwrap();
        exact::write_all(&mut io, file, 0, Bytes::from_static(b"kept")).unwrap();
        exact::sync(&mut io, file, SyncKind::All).unwrap();
        // The only descriptor goes to another file, and somebody takes this one away.
        io.open(&dir.path().join("other"), Open::CreateNew).unwrap();
        std::fs::rename(&path, &away).unwrap();
        for number in 0..2 {
            // Two writes that become one system call.
            let op = match failing {
                Operation::Write => Op::Write { file, at: number * 4096, bytes: Bytes::from(vec![1; 4096]) },
                _ => Op::Sync { file, what: SyncKind::Data },
            };
            assert!(io.submit(Ticket::new(number), op).is_ok());
        }
        let mut done = Vec::new();
        while io.in_flight() > 0 {
            io.reap(Wait::Block, &mut done).unwrap();
        }
        let results: Vec<_> = done.iter().map(|done| &done.result).collect();
        assert!(
            matches!(results[..], [Err(IoError::Os { .. }), Err(IoError::Poisoned { .. })]),
            "{results:?}"
        );
        std::fs::rename(&away, &path).unwrap();
        let error = exact::write_all(&mut io, file, 4, Bytes::from_static(b"x")).unwrap_err();
        assert!(matches!(error, IoError::Poisoned { cause, .. } if cause == failing), "{error}");
        let error = exact::sync(&mut io, file, SyncKind::Data).unwrap_err();
        assert!(matches!(error, IoError::Poisoned { .. }), "{error}");
        assert_eq!(exact::read_up_to(&mut io, file, 0, 10).unwrap(), "kept");
    }
}

#[test]
fn a_full_disk_is_said_as_one() {
    let mut io = PwriteIo::new(PwriteConfig::default());
    let file = io.open(std::path::Path::new("/dev/full"), Open::Write).unwrap();
    let error = exact::write_all(&mut io, file, 7, Bytes::from_static(b"x")).unwrap_err();
    assert!(error.is_full());
    assert_eq!(error.to_string(), "write /dev/full at byte 7");
}

#[test]
fn one_sync_covers_many_appends_and_a_roll_does_not_mind_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig::default());
    let mut log = LocalLog::open(&mut io, dir.path(), SegmentConfig::default(), at(0)).unwrap();
    for base in 0..5 {
        log.append_bytes(&mut io, batch(base, 1, 100, base), NOW).unwrap();
    }
    log.settle(&mut io).unwrap();
    assert!(log.sync_begin(&mut io));
    log.append_bytes(&mut io, batch(5, 1, 100, 5), NOW).unwrap();
    assert!(!log.sync_begin(&mut io), "one at a time");
    assert_eq!(log.synced_end_offset(), at(0));
    // The sync is still in flight.
    log.roll(&mut io, None, NOW).unwrap();
    assert_eq!(log.synced_end_offset(), at(6));
    assert!(!log.is_busy() && !log.needs_sync() && io.in_flight() == 0);
    log.append_bytes(&mut io, batch(6, 1, 100, 6), NOW).unwrap();
    sync(&mut io, &mut log).unwrap();
    assert_eq!(log.synced_end_offset(), at(7));
    log.close(&mut io).unwrap();
}

#[test]
fn whoever_waits_for_one_sync_alone_does_it_without_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let sync = |file| Op::Sync { file, what: SyncKind::Data };
    for here_below in [Duration::from_secs(60), Duration::ZERO] {
        let here = u64::from(!here_below.is_zero());
        let mut io = PwriteIo::new(PwriteConfig { here_below, ..PwriteConfig::default() });
        let mut new =
            |name: &str| io.open(&dir.path().join(format!("{here} {name}")), Open::CreateNew).unwrap();
        let (file, other) = (new("file"), new("other"));
        let mut before = 0;
        let mut step = |io: &mut PwriteIo, ops: Vec<Op>, wait: Wait| {
            let count = ops.len();
            for (number, op) in (0..).zip(ops) {
                assert!(io.submit(Ticket::new(number), op).is_ok());
            }
            let mut done = Vec::new();
            io.reap(wait, &mut done).unwrap();
            while done.len() < count {
                io.reap(Wait::Block, &mut done).unwrap();
            }
            assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
            std::mem::replace(&mut before, io.counters().syncs_here).abs_diff(io.counters().syncs_here)
        };
        for wait in [Wait::Block, Wait::Park(None), Wait::Park(Some(Duration::from_secs(60)))] {
            assert_eq!(step(&mut io, vec![sync(file)], wait), here, "{wait:?}");
            assert_eq!(step(&mut io, vec![sync(file), sync(other)], wait), 0, "{wait:?}");
            // One more of the same file waits for the first, and is alone then.
            assert!(step(&mut io, vec![sync(file), sync(file)], wait) >= here, "{wait:?}");
        }
        assert_eq!(step(&mut io, vec![sync(file)], Wait::Poll), 0);
        io.waker().wake();
        assert_eq!(step(&mut io, vec![sync(file)], Wait::Park(None)), 0);
        // Nothing is lost that nobody waited for.
        assert!(io.submit(Ticket::new(1), sync(file)).is_ok());
        io.close(file).unwrap();
        let mut done = Vec::new();
        io.reap(Wait::Poll, &mut done).unwrap();
        assert!(matches!(&done[..], [done] if done.result.is_ok()), "{done:?}");
        assert!(io.submit(Ticket::new(1), sync(other)).is_ok());
    }
}

#[test]
fn a_slow_disk_is_left_to_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let here_below = Duration::from_nanos(1);
    let mut io = PwriteIo::new(PwriteConfig { here_below, ..PwriteConfig::default() });
    let file = io.open(&dir.path().join("log"), Open::CreateNew).unwrap();
    for _ in 0..5 {
        exact::sync(&mut io, file, SyncKind::Data).unwrap();
    }
    assert_eq!((io.counters().syncs_here, io.counters().file_syncs), (1, 5));
}
