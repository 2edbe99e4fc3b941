//! Small files, many at once: each is old or new, whole, whatever happens.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_segment::io::pwrite::{MANY, PwriteConfig, PwriteIo};
use weir_segment::io::sim::{CrashPolicy, SimDisk};
use weir_segment::io::{Io, IoError, Op, Open, Operation, SyncKind, Ticket, Wait, durable, exact};

/// Three files in two directories, old and new; one of them is not there before.
fn files() -> BTreeMap<PathBuf, (Option<Bytes>, Bytes)> {
    let file = |path: &str, old: Option<usize>, new: usize| {
        let content = |fill: u8, size: usize| Bytes::from(vec![fill; size]);
        (PathBuf::from(path), (old.map(|size| content(b'o', size)), content(b'n', new)))
    };
    [file("/a/one", Some(700), 40), file("/a/two", Some(10), 1_400), file("/b/three", None, 600)].into()
}

fn machine(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.yield_always(true);
    disk.short(seed % 2 == 1);
    disk.reorder(seed % 3 == 1);
    for (path, (old, _)) in files() {
        disk.write_file(&path, &old.clone().unwrap_or_default());
        if old.is_none() {
            disk.remove_file(&path);
        }
    }
    // What an earlier attempt left, longer than what comes.
    disk.write_file(Path::new("/a/one.tmp"), &[b'x'; 3_000]);
    disk
}

fn replace(disk: &SimDisk) -> Result<(), IoError> {
    durable::replace_all(&mut disk.io(), files().into_iter().map(|(path, (_, new))| (path, new)))
}

#[test]
fn many_small_files_are_each_old_or_new_after_a_power_cut_at_every_operation() {
    let (mut points, mut mixed) = (0, 0);
    for seed in 0..4 {
        let whole = machine(seed);
        let first = whole.op_count();
        replace(&whole).unwrap();
        for op in first + 1..=whole.op_count() {
            let off = machine(seed);
            off.crash_at(op);
            assert!(replace(&off).is_err());
            for policy in CrashPolicy::ALL {
                points += 1;
                let disk = off.fork();
                disk.crash(policy);
                let mut count_new = 0;
                for (path, (old, new)) in files() {
                    let left = disk.read_file(&path).map(Bytes::from);
                    let is_new = left.as_ref() == Some(&new);
                    assert!(
                        is_new || left == old,
                        "seed {seed}, operation {op}, {policy:?}: {}",
                        path.display()
                    );
                    count_new += usize::from(is_new);
                }
                mixed += usize::from(count_new == 1 || count_new == 2);
            }
        }
        // After it returned, all are new, under every policy.
        for policy in CrashPolicy::ALL {
            let disk = whole.fork();
            disk.crash(policy);
            for (path, (_, new)) in files() {
                assert_eq!(disk.read_file(&path).map(Bytes::from), Some(new), "{policy:?}");
            }
            assert!(!disk.files().iter().any(|path| path.extension().is_some_and(|suffix| suffix == "tmp")));
        }
    }
    println!("{points} crash points");
    assert!(points > 900, "{points}");
    assert!(mixed > 0, "no crash came between two names");
}

#[test]
fn many_small_files_cost_one_sync_of_each_directory() {
    let disk = machine(0);
    disk.keep_trace(true);
    replace(&disk).unwrap();
    let trace = disk.trace();
    let count = |what: &str| trace.iter().filter(|line| line.contains(what)).count();
    assert_eq!((count(" sync /"), count(" rename "), count(" sync directory ")), (3, 3, 2));
    let place = |what: &str, last: bool| {
        let found = |line: &String| line.contains(what);
        if last { trace.iter().rposition(found) } else { trace.iter().position(found) }
    };
    assert!(place(" sync /", true) < place(" rename ", false), "{trace:?}");
    assert!(place(" rename ", true) < place(" sync directory ", false), "{trace:?}");
}

#[test]
fn of_a_path_that_is_named_twice_the_last_bytes_count() {
    let disk = SimDisk::new(1);
    let file = |fill: &'static [u8]| (PathBuf::from("/x"), Bytes::from_static(fill));
    durable::replace_all(&mut disk.io(), [file(b"1"), file(b"2")]).unwrap();
    assert_eq!(disk.durable_file(Path::new("/x")).unwrap(), b"2");
    durable::replace_all(&mut disk.io(), []).unwrap();
}

#[test]
fn more_files_than_are_open_at_once_are_replaced_on_a_real_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig { max_open_files: 300, ..PwriteConfig::default() });
    let file = |number: u32| (dir.path().join(number.to_string()), Bytes::from(vec![b'x'; 10]));
    durable::replace_all(&mut io, (0..600).map(file)).unwrap();
    assert_eq!(io.list(dir.path()).unwrap().len(), 600);
    assert_eq!(durable::read_file(&mut io, &dir.path().join("599"), 10).unwrap().unwrap(), [b'x'; 10][..]);
    assert_eq!((io.counters().file_system_syncs, io.open_descriptors()), (3, 0));
}

/// Writes a byte to each of so many files.
fn written(io: &mut dyn Io, dir: &Path, count: usize) -> Vec<weir_segment::io::FileId> {
    (0..count)
        .map(|number| {
            let file = io.open(&dir.join(number.to_string()), Open::CreateNew).unwrap();
            exact::write_all(io, file, 0, Bytes::from_static(b"x")).unwrap();
            file
        })
        .collect()
}

#[test]
fn syncing_many_files_makes_each_durable_beside_what_is_in_flight() {
    for seed in 0..10 {
        let disk = SimDisk::new(seed);
        disk.reorder(true);
        disk.queue_depth(Some(5));
        let mut io = disk.io();
        let files = written(&mut io, Path::new("/"), 20);
        io.sync_dir(Path::new("/")).unwrap();
        let late = Op::Write { file: files[0], at: 4_096, bytes: Bytes::from_static(b"late") };
        assert!(io.submit(Ticket::new(7), late).is_ok());
        durable::sync_many(&mut io, &files).unwrap();
        assert_eq!(disk.acknowledged().len(), 20);
        assert!(disk.acknowledged().values().all(|bytes| bytes == b"x"), "seed {seed}");
        let mut done = Vec::new();
        io.reap(Wait::Block, &mut done).unwrap();
        assert_eq!((done.len(), done[0].ticket), (1, Ticket::new(7)));
    }
}

#[test]
fn of_many_syncs_the_one_that_fails_answers_for_its_own_file() {
    let disk = SimDisk::new(1);
    let mut io = disk.io();
    let files = written(&mut io, Path::new("/"), 10);
    io.sync_dir(Path::new("/")).unwrap();
    disk.fail_sync(4);
    let error = durable::sync_many(&mut io, &files).unwrap_err();
    assert_eq!(error.to_string(), "sync /3");
    let durable = disk.acknowledged();
    assert!(durable.iter().all(|(path, bytes)| bytes.is_empty() == (path == Path::new("/3"))), "{durable:?}");
    for (number, file) in files.iter().enumerate() {
        let again = exact::sync(&mut io, *file, SyncKind::Data);
        assert_eq!(again.is_err(), number == 3, "{again:?}");
    }
}

#[test]
fn many_syncs_together_are_one_sync_of_their_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let mut io = PwriteIo::new(PwriteConfig::default());
    let files = written(&mut io, dir.path(), MANY);
    durable::sync_many(&mut io, &files[1..]).unwrap();
    assert_eq!((io.counters().file_system_syncs, io.counters().file_syncs), (0, MANY as u64 - 1));
    durable::sync_many(&mut io, &files).unwrap();
    assert_eq!(io.counters().file_system_syncs, 1);
    // Two of one file are one, and a close does not wait for a reap.
    for number in 0..2 {
        assert!(io.submit(Ticket::new(number), Op::Sync { file: files[0], what: SyncKind::Many }).is_ok());
    }
    io.close(files[0]).unwrap();
    let mut done = Vec::new();
    io.reap(Wait::Poll, &mut done).unwrap();
    assert!(done.len() == 2 && done.iter().all(|done| done.result.is_ok()), "{done:?}");
    // A poisoned file answers at once, and only for itself.
    let read_only = io.open(&dir.path().join("1"), Open::Read).unwrap();
    assert!(exact::write_all(&mut io, read_only, 0, Bytes::from_static(b"no")).is_err());
    let mut all = files[1..].to_vec();
    all.insert(7, read_only);
    let error = durable::sync_many(&mut io, &all).unwrap_err();
    assert!(matches!(error, IoError::Poisoned { cause: Operation::Write, .. }), "{error}");
    durable::sync_many(&mut io, &files[1..]).unwrap();
}
