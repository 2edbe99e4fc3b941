//! What takes the place of system calls that are not offered, or that fail.

use super::*;
use crate::io::exact;

fn content() -> Bytes {
    (0..1_000_000_u32).map(|at| at.to_be_bytes()[2]).collect()
}

/// Whether the file system is memory, of which nothing can leave the page cache.
#[cfg(target_os = "linux")]
fn is_in_memory(dir: &Path) -> bool {
    u64::try_from(rustix::fs::statfs(dir).unwrap().f_type) == Ok(0x0102_1994)
}

#[test]
#[cfg(target_os = "linux")]
fn without_uncached_writes_catch_up_pages_go_when_they_are_synced() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig::default());
    io.offered.uncached_writes = false;
    let file = io.open(&dir.path().join("file"), Open::CreateNew).unwrap();
    io.advise(file, Advice::CatchUp);
    for what in [SyncKind::Data, SyncKind::All] {
        exact::write_all(&mut io, file, 0, content()).unwrap();
        let read = |io: &mut PwriteIo| {
            let before = io.counters().pool_reads;
            assert_eq!(exact::read_exact(io, file, 0, 1_000_000).unwrap(), content());
            io.counters().pool_reads > before
        };
        assert!(!read(&mut io), "dirty pages stay");
        exact::sync(&mut io, file, what).unwrap();
        assert_eq!(read(&mut io), !is_in_memory(dir.path()));
    }
    assert_eq!(io.counters().uncached_write_calls, 0);
}

#[test]
fn without_reads_of_the_cache_the_pool_reads() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig::default());
    io.offered.cached_reads = false;
    let file = io.open(&dir.path().join("file"), Open::CreateNew).unwrap();
    exact::write_all(&mut io, file, 0, content()).unwrap();
    assert_eq!(exact::read_exact(&mut io, file, 7, 100_000).unwrap(), content()[7..100_007]);
    assert_eq!((io.counters().cached_reads, io.counters().pool_reads), (0, 1));
}

#[test]
fn a_flag_that_is_refused_is_not_tried_again() {
    let (at, bytes) = (0, [IoSlice::new(b"x")]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let file = File::create(&path).unwrap();
    let mut offered = Offered { uncached_writes: true, cached_reads: true };
    assert_eq!(sys::write(&mut offered, &file, at, &bytes, true).unwrap(), 1);
    // This one refuses the hint; the plain write is done all the same.
    let null = File::options().write(true).open("/dev/null").unwrap();
    assert_eq!(sys::write(&mut offered, &null, at, &bytes, true).unwrap(), 1);
    assert!(!offered.uncached_writes);
}

#[test]
fn more_files_than_descriptors_are_synced_together() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig { max_open_files: 5, ..PwriteConfig::default() });
    let mut files = Vec::new();
    for number in 0..50 {
        let file = io.open(&dir.path().join(number.to_string()), Open::CreateNew).unwrap();
        exact::write_all(&mut io, file, 0, content().slice(..10)).unwrap();
        files.push(file);
    }
    assert_eq!(io.counters().syncs_for_room, 45);
    for (number, file) in (0..).zip(&files) {
        assert!(io.submit(Ticket::new(number), Op::Sync { file: *file, what: SyncKind::Data }).is_ok());
    }
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    assert!(done.len() == 50 && done.iter().all(|done| done.result.is_ok()), "{done:?}");
    for file in files {
        io.close(file).unwrap();
        assert!(io.open_descriptors() <= 50);
    }
    assert_eq!(io.open_descriptors(), 0);
}

#[test]
fn a_sync_for_room_that_fails_poisons_the_file_that_lost_its_descriptor() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig { max_open_files: 1, ..PwriteConfig::default() });
    let null = io.open(Path::new("/dev/null"), Open::Write).unwrap();
    exact::write_all(&mut io, null, 0, Bytes::from_static(b"x")).unwrap();
    let other = io.open(&dir.path().join("other"), Open::CreateNew).unwrap();
    let error = exact::sync(&mut io, null, SyncKind::Data).unwrap_err();
    assert_eq!(error.to_string(), "sync /dev/null: refused, because sync failed earlier");
    exact::write_all(&mut io, other, 0, Bytes::from_static(b"x")).unwrap();
    exact::sync(&mut io, other, SyncKind::Data).unwrap();
}

#[test]
fn threads_start_when_all_others_are_busy() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig {
        sync_threads: 3,
        here_below: Duration::ZERO,
        ..PwriteConfig::default()
    });
    let mut files = Vec::new();
    for number in 0..10 {
        let file = io.open(&dir.path().join(number.to_string()), Open::CreateNew).unwrap();
        exact::write_all(&mut io, file, 0, content()).unwrap();
        files.push(file);
    }
    assert!(io.pool.is_none(), "writes need none");
    let threads = |io: &PwriteIo| io.pool.as_ref().map_or(0, |pool| pool.threads.len());
    for _ in 0..5 {
        exact::sync(&mut io, files[0], SyncKind::Data).unwrap();
        // One that reads only, and one that syncs.
        assert_eq!(threads(&io), 2);
    }
    for (number, file) in (0..).zip(&files) {
        assert!(io.submit(Ticket::new(number), Op::Sync { file: *file, what: SyncKind::Data }).is_ok());
    }
    assert_eq!(threads(&io), 4);
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    assert!(done.len() == 10 && done.iter().all(|done| done.result.is_ok()));
}
