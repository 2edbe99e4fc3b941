//! What the pwrite backend asks of the system: gathered writes, reads from memory and from the pool, hints, errors.

use std::path::Path;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use weir_segment::io::pwrite::{GATHER_MOST, PwriteConfig, PwriteIo};
use weir_segment::io::{
    Advice, Done, FileId, Io, IoError, Op, Open, Operation, SyncKind, Ticket, Wait, exact,
};

fn write(io: &mut PwriteIo, ticket: u64, file: FileId, at: u64, bytes: Bytes) {
    assert!(io.submit(Ticket::new(ticket), Op::Write { file, at, bytes }).is_ok());
}

fn reap_all(io: &mut PwriteIo) -> Vec<Done> {
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    done.sort_by_key(|done| done.ticket);
    done
}

/// So many bytes, no two pages of which are equal.
fn content(size: usize) -> Bytes {
    (0..size).map(|at| u8::try_from((at / 4_096 * 31 + at) % 251).unwrap()).collect()
}

fn new_file(io: &mut PwriteIo, dir: &Path, name: &str) -> FileId {
    io.open(&dir.join(name), Open::CreateNew).unwrap()
}

#[test]
fn adjacent_writes_are_one_call_and_each_has_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig::default());
    let (one, two) = (new_file(&mut io, dir.path(), "1"), new_file(&mut io, dir.path(), "2"));
    let whole = content(20 * 16_384);
    // Those of two files in turn, an empty one and one of another size among them.
    for number in 0..20 {
        let at = number * 16_384;
        let part = whole.slice(usize::try_from(at).unwrap()..).slice(..16_384);
        write(&mut io, number * 10, one, at, part.clone());
        write(&mut io, number * 10 + 1, two, at, part);
    }
    write(&mut io, 300, one, 20 * 16_384, Bytes::new());
    write(&mut io, 301, one, 20 * 16_384, Bytes::from_static(b"end"));
    assert_eq!(io.counters().write_calls, 0, "nothing is done before the reap");
    let done = reap_all(&mut io);
    assert_eq!(done.len(), 42);
    for done in &done {
        let Op::Write { bytes, .. } = &done.op else { panic!("{done:?}") };
        assert_eq!(*done.result.as_ref().unwrap() as usize, bytes.len());
    }
    assert_eq!((io.counters().writes, io.counters().write_calls), (42, 2));
    assert_eq!(exact::read_exact(&mut io, two, 0, whole.len()).unwrap(), whole);
    let one = exact::read_up_to(&mut io, one, 0, whole.len() + 10).unwrap();
    assert_eq!(one, [&whole[..], b"end"].concat());
}

#[test]
fn writes_that_are_not_adjacent_or_too_much_are_calls_of_their_own_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig::default());
    let file = new_file(&mut io, dir.path(), "1");
    for (ticket, at) in [(0, 0), (1, 4_096), (2, 12_288), (3, 8_192)] {
        write(&mut io, ticket, file, at, content(4_096));
    }
    assert!(reap_all(&mut io).iter().all(|done| done.result.is_ok()));
    assert_eq!(io.counters().write_calls, 3);
    // A gathered call is at most so large, and goes out when it is; a larger single one stays whole.
    let half = content(GATHER_MOST / 2);
    for number in 0..3 {
        write(&mut io, number, file, number * half.len() as u64, half.clone());
    }
    assert_eq!(io.counters().write_calls, 4);
    assert!(reap_all(&mut io).iter().all(|done| done.result.is_ok()));
    assert_eq!(io.counters().write_calls, 5);
    write(&mut io, 1, file, 0, content(3 * GATHER_MOST));
    assert_eq!(io.counters().write_calls, 6);
    // What looks at the file sees what was submitted.
    reap_all(&mut io);
    write(&mut io, 1, file, 3 * GATHER_MOST as u64, Bytes::from_static(b"x"));
    assert_eq!(io.len(file).unwrap(), 3 * GATHER_MOST as u64 + 1);
    reap_all(&mut io);
    drop(io);
    assert_eq!(std::fs::read(dir.path().join("1")).unwrap(), [&content(3 * GATHER_MOST)[..], b"x"].concat());
}

#[test]
fn what_was_gathered_is_written_when_the_backend_is_dropped_or_the_file_closed() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig::default());
    let (one, two) = (new_file(&mut io, dir.path(), "1"), new_file(&mut io, dir.path(), "2"));
    write(&mut io, 1, one, 0, Bytes::from_static(b"one"));
    write(&mut io, 2, two, 0, Bytes::from_static(b"two"));
    assert!(io.submit(Ticket::new(3), Op::Sync { file: two, what: SyncKind::Data }).is_ok());
    io.close(one).unwrap();
    assert_eq!(std::fs::read(dir.path().join("1")).unwrap(), b"one");
    drop(io);
    assert_eq!(std::fs::read(dir.path().join("2")).unwrap(), b"two");
}

#[test]
fn of_gathered_writes_that_fail_the_first_says_why_and_the_others_meet_a_poisoned_file() {
    let mut io = PwriteIo::new(PwriteConfig::default());
    // It has no room, ever.
    let file = io.open(Path::new("/dev/full"), Open::Write).unwrap();
    for number in 0..3 {
        write(&mut io, number, file, number * 4_096, content(4_096));
    }
    let done = reap_all(&mut io);
    let first = done[0].result.as_ref().unwrap_err();
    assert!(first.is_full(), "{first}");
    assert_eq!(first.to_string(), "write /dev/full at byte 0");
    assert!(std::error::Error::source(first).unwrap().to_string().contains("No space left"), "{first:?}");
    for done in &done[1..] {
        let error = done.result.as_ref().unwrap_err();
        assert!(matches!(error, IoError::Poisoned { cause: Operation::Write, .. }), "{error}");
    }
}

/// Whether the file system keeps nothing but memory, so that nothing of it can leave the page cache.
fn is_in_memory(dir: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    let kind = rustix::fs::statfs(dir).unwrap().f_type;
    u64::try_from(kind).unwrap() == TMPFS
}

fn read(io: &mut PwriteIo, file: FileId, at: u64, size: usize) -> BytesMut {
    exact::read_exact(io, file, at, size).unwrap()
}

#[test]
fn what_is_cached_is_read_at_once_and_what_is_not_by_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig::default());
    let file = new_file(&mut io, dir.path(), "1");
    let whole = content(1 << 20);
    exact::write_all(&mut io, file, 0, whole.clone()).unwrap();
    exact::sync(&mut io, file, SyncKind::All).unwrap();
    assert_eq!(read(&mut io, file, 0, whole.len()), whole);
    assert_eq!((io.counters().cached_reads, io.counters().pool_reads), (1, 0));
    // Another process drops the pages.
    let other = std::fs::File::open(dir.path().join("1")).unwrap();
    rustix::fs::fadvise(&other, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    for at in [500_000, 0, 1 << 19] {
        let into = BytesMut::zeroed(100_000);
        assert!(io.submit(Ticket::new(at), Op::Read { file, at, into }).is_ok());
    }
    for done in reap_all(&mut io) {
        let Op::Read { at, into, .. } = done.op else { panic!() };
        let count = usize::try_from(done.result.unwrap()).unwrap();
        assert!(count > 0);
        assert_eq!(into[..count], whole[usize::try_from(at).unwrap()..][..count]);
    }
    assert_eq!(io.counters().pool_reads > 0, !is_in_memory(dir.path()), "{:?}", io.counters());
    assert_eq!(read(&mut io, file, 0, whole.len()), whole);
    // Behind the end there is nothing, from memory or not.
    assert_eq!(exact::read_up_to(&mut io, file, 1 << 20, 10).unwrap(), "");
}

#[test]
fn catch_up_writes_leave_nothing_in_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig::default());
    let whole = content(1 << 20);
    for (name, advice) in [("normal", Advice::Normal), ("late", Advice::CatchUp)] {
        let file = new_file(&mut io, dir.path(), name);
        io.advise(file, advice);
        exact::write_all(&mut io, file, 0, whole.clone()).unwrap();
        exact::sync(&mut io, file, SyncKind::Data).unwrap();
        let before = io.counters();
        assert_eq!(read(&mut io, file, 0, whole.len()), whole);
        let from_memory = io.counters().pool_reads == before.pool_reads;
        assert_eq!(from_memory, advice == Advice::Normal || is_in_memory(dir.path()), "{name}");
        println!("{name}: {:?}", io.counters());
        // The hint is taken back.
        io.advise(file, Advice::Normal);
        exact::write_all(&mut io, file, 0, whole.clone()).unwrap();
        exact::sync(&mut io, file, SyncKind::Data).unwrap();
        let before = io.counters();
        read(&mut io, file, 0, whole.len());
        assert_eq!(io.counters().pool_reads, before.pool_reads, "{name}");
    }
    // Of a file that is not open it says nothing.
    let gone = new_file(&mut io, dir.path(), "gone");
    io.close(gone).unwrap();
    io.advise(gone, Advice::CatchUp);
}

#[test]
fn reads_and_syncs_of_the_pool_all_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig { sync_threads: 1, ..PwriteConfig::default() });
    let mut files = Vec::new();
    for number in 0..20 {
        let file = new_file(&mut io, dir.path(), &number.to_string());
        exact::write_all(&mut io, file, 0, content(1 << 18)).unwrap();
        files.push(file);
    }
    exact::sync(&mut io, files[0], SyncKind::All).unwrap();
    let other = std::fs::File::open(dir.path().join("0")).unwrap();
    rustix::fs::fadvise(&other, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    for (ticket, file) in (100..).zip(&files) {
        let op = Op::Sync { file: *file, what: SyncKind::Data };
        assert!(io.submit(Ticket::new(ticket), op).is_ok());
    }
    let into = BytesMut::zeroed(1 << 18);
    assert!(io.submit(Ticket::new(7), Op::Read { file: files[0], at: 0, into }).is_ok());
    let mut done = Vec::new();
    while !done.iter().any(|done: &Done| done.ticket == Ticket::new(7)) {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    let rest = io.in_flight();
    assert_eq!(reap_all(&mut io).len(), rest);
}

/// How long this thread has run, in seconds.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Alternated in one run: the rounds of each way, in milliseconds of the clock and of this thread.
#[expect(clippy::print_stdout, reason = "it measures")]
fn measure(rounds: usize, ways: &mut [(&str, &mut dyn FnMut())]) {
    let mut all = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for (times, (_, way)) in all.iter_mut().zip(ways.iter_mut()) {
            let (start, start_cpu) = (now(), cpu());
            way();
            times.push((start.elapsed().as_secs_f64() * 1e3, (cpu() - start_cpu) * 1e3));
        }
    }
    for (times, (name, _)) in all.iter().zip(ways.iter()) {
        let clock: Vec<String> = times.iter().map(|(time, _)| format!("{time:.0}")).collect();
        let cpu: Vec<String> = times.iter().map(|(_, time)| format!("{time:.0}")).collect();
        println!("{name:<44} {} ms, CPU {} ms", clock.join(" "), cpu.join(" "));
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}

/// `cargo test --release -p weir-segment --test it measure_ -- --ignored --nocapture --test-threads 1`
#[test]
#[ignore = "a measurement"]
fn measure_gathered_writes() {
    const TOTAL: u64 = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    for size in [1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576_u64] {
        let bytes = content(usize::try_from(size).unwrap());
        let number = std::cell::Cell::new(0);
        let run = |at_once: u64| {
            number.set(number.get() + 1);
            let mut io = PwriteIo::new(PwriteConfig::default());
            let file = new_file(&mut io, dir.path(), &format!("{size}-{}", number.get()));
            let mut done = Vec::new();
            for ticket in 0..TOTAL / size {
                write(&mut io, ticket, file, ticket * size, bytes.clone());
                if (ticket + 1) % at_once == 0 {
                    while io.in_flight() > 0 {
                        io.reap(Wait::Block, &mut done).unwrap();
                    }
                    done.clear();
                }
            }
            exact::sync(&mut io, file, SyncKind::Data).unwrap();
            std::fs::remove_file(io.path(file)).unwrap();
        };
        let plain = || {
            let path = dir.path().join("plain");
            let file = std::fs::File::create(&path).unwrap();
            for number in 0..TOTAL / size {
                std::os::unix::fs::FileExt::write_all_at(&file, &bytes, number * size).unwrap();
            }
            file.sync_data().unwrap();
            std::fs::remove_file(path).unwrap();
        };
        println!("64 MiB in writes of {size} bytes, one sync at the end:");
        // D11: writes in flight share no block, so below a block they go one by one.
        let at_once = if size < 4_096 { 1 } else { 64 };
        measure(
            7,
            &mut [
                ("  one at a time", &mut || run(1)),
                ("  64 at a time, gathered", &mut || run(at_once)),
                ("  plain loop of write_all_at", &mut || plain()),
            ],
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn measure_many_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let round = |io: &mut PwriteIo, files: &[FileId], at: u64, what: Option<SyncKind>| {
        for file in files {
            exact::write_all(io, *file, at, content(16_384)).unwrap();
        }
        let start = now();
        match what {
            None => files.iter().for_each(|file| exact::sync(io, *file, SyncKind::Data).unwrap()),
            Some(what) => {
                for (ticket, file) in (0..).zip(files) {
                    assert!(io.submit(Ticket::new(ticket), Op::Sync { file: *file, what }).is_ok());
                }
                assert!(reap_all(io).iter().all(|done| done.result.is_ok()));
            }
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    for count in [16, 32, 100, 1_000] {
        let ways = [
            ("one by one", 4, None),
            ("all submitted, 4 threads", 4, Some(SyncKind::Data)),
            ("all submitted, 16 threads", 16, Some(SyncKind::Data)),
            ("all submitted, 64 threads", 64, Some(SyncKind::Data)),
        ];
        let open = |(name, sync_threads, what)| {
            let config = PwriteConfig {
                max_open_files: 2_000,
                queue_depth: 2_000,
                sync_threads,
                ..PwriteConfig::default()
            };
            let mut io = PwriteIo::new(config);
            let name_of = |number| format!("{count}-{sync_threads}-{what:?}-{number}");
            let files: Vec<FileId> =
                (0..count).map(|number| new_file(&mut io, dir.path(), &name_of(number))).collect();
            (name, what, io, files, Vec::new())
        };
        let mut ways = ways.map(open);
        for number in 0..5 {
            for (_, what, io, files, times) in &mut ways {
                times.push(format!("{:.1}", round(io, files, number * 16_384, *what)));
            }
        }
        println!("{count} files, 16 KiB dirty in each, ms:");
        for (name, .., times) in ways {
            println!("  {name:<26} {}", times.join(" "));
        }
    }
}
