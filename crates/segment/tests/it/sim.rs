//! Each knob of [`SimDisk`] does what its name says.

use std::path::Path;

use bytes::Bytes;
use weir_segment::io::sim::{Acknowledged, CrashPolicy, DataFate, NameFate, SimDisk, SimIo};
use weir_segment::io::{
    Done, FileId, Io, IoError, Op, Open, Operation, SyncKind, Ticket, Wait, durable, exact,
};

const FILE: &str = "/file";

fn path() -> &'static Path {
    Path::new(FILE)
}

/// A disk with a durable file of 1,000 bytes `a`, open.
fn disk() -> (SimDisk, SimIo, FileId) {
    let disk = SimDisk::new(3);
    disk.write_file(path(), &[b'a'; 1_000]);
    let mut io = disk.io();
    let file = io.open(path(), Open::Write).unwrap();
    (disk, io, file)
}

fn write(io: &mut SimIo, file: FileId, at: u64, fill: u8, size: usize) {
    exact::write_all(io, file, at, Bytes::from(vec![fill; size])).unwrap();
}

fn submit(io: &mut SimIo, ticket: u64, op: Op) {
    assert!(io.submit(Ticket::new(ticket), op).is_ok());
}

fn reap(io: &mut SimIo, wait: Wait) -> Vec<Done> {
    let mut done = Vec::new();
    io.reap(wait, &mut done).unwrap();
    done
}

fn after(data: DataFate, change: impl FnOnce(&mut SimIo, FileId)) -> Vec<u8> {
    let (disk, mut io, file) = disk();
    change(&mut io, file);
    disk.crash(CrashPolicy { data, names: NameFate::Kept });
    assert!(io.len(file).is_err(), "the process from before the crash is dead");
    disk.read_file(path()).unwrap()
}

#[test]
fn an_unsynced_write_is_kept_dropped_cut_or_zeros() {
    let append = |io: &mut SimIo, file| write(io, file, 1_000, b'b', 1_500);
    let old = [b'a'; 1_000];
    assert_eq!(after(DataFate::Dropped, append), old);
    assert_eq!(after(DataFate::Kept, append), [&old[..], &[b'b'; 1_500]].concat());
    assert_eq!(after(DataFate::Zeros, append), [&old[..], &[0; 1_500]].concat());
    let cut = after(DataFate::Cut, append);
    assert!([1_024, 1_536, 2_048].contains(&cut.len()), "{}", cut.len());
    assert!(cut[..1_000] == old && cut[1_000..].iter().all(|byte| *byte == b'b'));
    // Zeros never touch what was there.
    let over = after(DataFate::Zeros, |io, file| write(io, file, 500, b'b', 1_000));
    assert_eq!(over, [&old[..], &[0; 500]].concat());
}

#[test]
fn an_unsynced_truncation_is_undone_or_kept() {
    let cut = |io: &mut SimIo, file| io.truncate(file, 10).unwrap();
    assert_eq!(after(DataFate::Dropped, cut).len(), 1_000);
    assert_eq!(after(DataFate::Kept, cut).len(), 10);
    // A smaller length needs a sync of everything.
    for (what, size) in [(SyncKind::Data, 1_000), (SyncKind::All, 10)] {
        let synced = after(DataFate::Dropped, |io, file| {
            io.truncate(file, 10).unwrap();
            exact::sync(io, file, what).unwrap();
        });
        assert_eq!(synced.len(), size, "{what:?}");
    }
}

#[test]
fn what_is_in_flight_beside_a_write_that_fails_is_done_or_not() {
    let (mut done_all_the_same, mut poisoned) = (0, 0);
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        disk.write_file(path(), b"");
        let mut io = disk.io();
        let file = io.open(path(), Open::Write).unwrap();
        disk.fail_write(1);
        for number in 0..3 {
            let bytes = Bytes::from(vec![b'x'; 4_096]);
            submit(&mut io, number, Op::Write { file, at: number * 4_096, bytes });
        }
        let mut done = Vec::new();
        while io.in_flight() > 0 {
            done.append(&mut reap(&mut io, Wait::Block));
        }
        assert!(matches!(done[0].result, Err(IoError::Os { .. })), "{:?}", done[0]);
        let left = disk.read_file(path()).unwrap();
        for (done, block) in done[1..].iter().zip(1..) {
            let there = left.get(block * 4_096..(block + 1) * 4_096) == Some(&[b'x'; 4_096]);
            match &done.result {
                Ok(4_096) => done_all_the_same += 1,
                Err(IoError::Poisoned { cause: Operation::Write, .. }) => poisoned += 1,
                other => panic!("{other:?}"),
            }
            assert_eq!(done.result.is_ok(), there, "seed {seed}, block {block}");
        }
        // What is submitted afterwards is refused (D5).
        for op in [
            Op::Write { file, at: 0, bytes: Bytes::from_static(b"x") },
            Op::Sync { file, what: SyncKind::Data },
        ] {
            submit(&mut io, 9, op);
            assert!(matches!(reap(&mut io, Wait::Block)[0].result, Err(IoError::Poisoned { .. })));
        }
    }
    assert!(done_all_the_same > 20 && poisoned > 20, "{done_all_the_same}, {poisoned}");
}

#[test]
fn of_many_syncs_in_flight_the_one_that_fails_answers_for_its_own_file() {
    let disk = SimDisk::new(1);
    let mut io = disk.io();
    let new = |io: &mut SimIo, number: u64| {
        let file = io.open(&Path::new("/").join(number.to_string()), Open::CreateNew).unwrap();
        write(io, file, 0, b'x', 1);
        file
    };
    let files: Vec<FileId> = (0..10).map(|number| new(&mut io, number)).collect();
    io.sync_dir(Path::new("/")).unwrap();
    disk.fail_sync(4);
    for (file, number) in files.iter().zip(0..) {
        let sync = Op::Sync { file: *file, what: SyncKind::Data };
        assert!(io.submit(Ticket::new(number), sync).is_ok());
    }
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.reap(Wait::Block, &mut done).unwrap();
    }
    for done in done {
        assert_eq!(done.result.is_err(), done.ticket == Ticket::new(3), "{done:?}");
    }
    let durable = disk.acknowledged();
    assert!(durable.iter().all(|(path, bytes)| bytes.is_empty() == (path == Path::new("/3"))), "{durable:?}");
}

#[test]
fn a_hole_is_left_by_a_dropped_write_before_a_kept_one() {
    let mut holes = 0;
    for seed in 0..50 {
        let disk = SimDisk::new(seed);
        disk.write_file(path(), b"");
        let mut io = disk.io();
        let file = io.open(path(), Open::Write).unwrap();
        write(&mut io, file, 0, b'a', 512);
        write(&mut io, file, 512, b'b', 600);
        disk.crash(CrashPolicy { data: DataFate::Mixed, names: NameFate::Kept });
        let left = disk.read_file(path()).unwrap();
        holes += usize::from(left.len() == 1_112 && left[..512] == [0; 512] && left[512..] == [b'b'; 600]);
    }
    assert!(holes > 0);
}

#[test]
fn a_sync_covers_only_what_was_reaped_before_it_was_submitted() {
    let (disk, mut io, file) = disk();
    write(&mut io, file, 0, b'b', 10);
    submit(&mut io, 1, Op::Write { file, at: 4_096, bytes: Bytes::from_static(b"late") });
    submit(&mut io, 2, Op::Sync { file, what: SyncKind::Data });
    while io.in_flight() > 0 {
        assert!(reap(&mut io, Wait::Block).iter().all(|done| done.result.is_ok()));
    }
    assert_eq!(disk.durable_file(path()).unwrap().len(), 1_000);
    disk.crash(CrashPolicy::DROP_ALL);
    let left = disk.read_file(path()).unwrap();
    assert_eq!((left.len(), &left[..10]), (1_000, &[b'b'; 10][..]));
}

#[test]
fn a_sync_does_not_cover_what_is_done_and_not_reaped() {
    let (disk, mut io, file) = disk();
    let other = io.open(path(), Open::Write).unwrap();
    submit(&mut io, 1, Op::Write { file, at: 0, bytes: Bytes::from_static(b"b") });
    // Closing waits for what is in flight on the file, and gives its completions to the next reap.
    io.close(file).unwrap();
    assert_eq!(disk.read_file(path()).unwrap()[0], b'b');
    submit(&mut io, 2, Op::Sync { file: other, what: SyncKind::All });
    while io.in_flight() > 0 {
        reap(&mut io, Wait::Block);
    }
    assert_eq!(disk.durable_file(path()).unwrap()[0], b'a');
    exact::sync(&mut io, other, SyncKind::Data).unwrap();
    assert_eq!(disk.durable_file(path()).unwrap()[0], b'b');
}

#[test]
fn what_was_in_flight_at_a_crash_may_have_landed() {
    let (disk, mut io, file) = disk();
    submit(&mut io, 1, Op::Write { file, at: 0, bytes: Bytes::from_static(b"b") });
    let landed = |policy| {
        let copy = disk.fork();
        assert_eq!(copy.read_file(path()).unwrap()[0], b'a', "nobody saw it yet");
        copy.crash(policy);
        copy.read_file(path()).unwrap()[0]
    };
    assert_eq!((landed(CrashPolicy::KEEP_ALL), landed(CrashPolicy::DROP_ALL)), (b'b', b'a'));
    // With the machine on, a process that starts later finds that it never will.
    let copy = disk.fork();
    drop(copy.io());
    copy.crash(CrashPolicy::KEEP_ALL);
    assert_eq!(copy.read_file(path()).unwrap()[0], b'a');
    drop(io);
    assert_eq!(disk.read_file(path()).unwrap()[0], b'b');
}

#[test]
fn a_failed_write_leaves_nothing_and_poisons_the_file() {
    let (disk, mut io, file) = disk();
    disk.fail_write(2);
    write(&mut io, file, 0, b'b', 1);
    let error = exact::write_all(&mut io, file, 1, Bytes::from_static(b"b")).unwrap_err();
    assert_eq!(error.to_string(), "write /file at byte 1");
    assert!(matches!(exact::sync(&mut io, file, SyncKind::Data), Err(IoError::Poisoned { .. })));
    assert_eq!(disk.read_file(path()).unwrap()[..3], *b"baa");
}

/// A file of 1,000 bytes to append to, on a disk that allocates ahead.
fn appended(direct: bool) -> (SimDisk, SimIo, FileId) {
    let disk = SimDisk::new(3);
    disk.write_file(path(), &[b'a'; 1_000]);
    disk.direct(direct);
    disk.allocate_ahead(Some(2_000));
    let mut io = disk.io();
    let file = io.open(path(), Open::Append).unwrap();
    write(&mut io, file, 1_000, b'b', 100);
    (disk, io, file)
}

#[test]
fn space_is_allocated_ahead_and_seen_by_all_but_the_one_who_appends() {
    let (disk, mut io, file) = appended(false);
    assert_eq!(io.len(file).unwrap(), 1_100);
    assert_eq!(exact::read_up_to(&mut io, file, 1_090, 100).unwrap(), [b'b'; 10][..]);
    let reader = io.open(path(), Open::Read).unwrap();
    assert_eq!(io.len(reader).unwrap(), 3_000);
    assert_eq!(io.metadata(path()).unwrap().unwrap().size, 3_000);
    assert_eq!(exact::read_up_to(&mut io, reader, 1_099, 3).unwrap(), [b'b', 0, 0][..]);
    // The next step is twice as large.
    write(&mut io, file, 1_100, b'c', 2_000);
    assert_eq!(io.len(reader).unwrap(), 7_000);
    // Whoever opens it while it is like this, finds the zeros in its length.
    let mut other = disk.io();
    let again = other.open(path(), Open::Append).unwrap();
    assert_eq!(other.len(again).unwrap(), 7_000);
    io.truncate(file, 1_050).unwrap();
    assert_eq!((io.len(file).unwrap(), io.len(reader).unwrap()), (1_050, 1_050));
    write(&mut io, file, 1_050, b'd', 10);
    io.close(file).unwrap();
    assert_eq!(disk.read_file(path()).unwrap().len(), 1_060);
}

#[test]
fn space_allocated_ahead_is_there_after_a_crash_or_not() {
    let after = |policy: CrashPolicy, last: fn(&mut SimIo, FileId)| {
        let (disk, mut io, file) = appended(false);
        last(&mut io, file);
        disk.crash(policy);
        let mut io = disk.io();
        let file = io.open(path(), Open::Append).unwrap();
        io.len(file).unwrap()
    };
    let nothing: fn(&mut SimIo, FileId) = |_, _| {};
    assert_eq!(after(CrashPolicy::DROP_ALL, nothing), 1_000);
    assert_eq!(after(CrashPolicy::KEEP_ALL, nothing), 3_000);
    let zeros = CrashPolicy { data: DataFate::Zeros, names: NameFate::Kept };
    assert_eq!(after(zeros, nothing), 3_000);
    // A sync of the data keeps it; the cut of a close needs a sync of everything.
    let synced = |io: &mut SimIo, file| exact::sync(io, file, SyncKind::Data).unwrap();
    assert_eq!(after(CrashPolicy::DROP_ALL, synced), 3_000);
    let closed = |io: &mut SimIo, file| {
        exact::sync(io, file, SyncKind::All).unwrap();
        io.close(file).unwrap();
    };
    assert_eq!(after(CrashPolicy::DROP_ALL, closed), 3_000);
    assert_eq!(after(CrashPolicy::KEEP_ALL, closed), 1_100);
}

#[test]
fn a_write_past_the_page_cache_is_whole_blocks() {
    let (disk, mut io, file) = appended(true);
    assert_eq!(io.write_alignment(file), 4_096);
    let reader = io.open(path(), Open::Read).unwrap();
    assert_eq!(io.write_alignment(reader), 1);
    let left = disk.read_file(path()).unwrap();
    assert_eq!(left, [&[b'a'; 1_000][..], &[b'b'; 100], &[0; 2_996]].concat());
    // In the middle, what is around it stays.
    write(&mut io, file, 500, b'c', 10);
    assert_eq!(disk.read_file(path()).unwrap()[1_050], b'b');
    assert_eq!(io.len(file).unwrap(), 1_100);
    disk.direct(false);
    assert_eq!(io.write_alignment(file), 1);
}

#[test]
fn overlapping_writes_in_flight_fail_whichever_file_or_process_they_come_from() {
    let (disk, mut io, file) = disk();
    let again = io.open(path(), Open::Write).unwrap();
    submit(&mut io, 1, Op::Write { file, at: 0, bytes: Bytes::from_static(b"1") });
    submit(&mut io, 2, Op::Write { file: again, at: 10, bytes: Bytes::from_static(b"2") });
    let mut other = disk.io();
    let theirs = other.open(path(), Open::Write).unwrap();
    let error = exact::write_all(&mut other, theirs, 20, Bytes::from_static(b"3")).unwrap_err();
    assert!(matches!(error, IoError::Misuse { .. }), "{error}");
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        done.extend(reap(&mut io, Wait::Block));
    }
    done.sort_by_key(|done| done.ticket);
    assert!(done[0].result.is_ok());
    assert!(matches!(done[1].result, Err(IoError::Misuse { .. })), "{:?}", done[1].result);
    assert_eq!(disk.read_file(path()).unwrap()[..21].iter().filter(|byte| **byte != b'a').count(), 1);
}

#[test]
fn overlapping_writes_that_are_allowed_lose_bytes() {
    let mut lost = 0;
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        disk.write_file(path(), b"");
        disk.direct(true);
        disk.reorder(true);
        disk.allow_overlap(true);
        let mut io = disk.io();
        let file = io.open(path(), Open::Append).unwrap();
        submit(&mut io, 1, Op::Write { file, at: 0, bytes: Bytes::from_static(b"first") });
        submit(&mut io, 2, Op::Write { file, at: 0, bytes: Bytes::from_static(b"firstsecond") });
        while io.in_flight() > 0 {
            assert!(reap(&mut io, Wait::Block).iter().all(|done| done.result.is_ok()));
        }
        assert_eq!(io.len(file).unwrap(), 11);
        lost += usize::from(disk.read_file(path()).unwrap()[..11] == *b"first\0\0\0\0\0\0");
    }
    assert!((1..20).contains(&lost), "{lost}");
}

#[test]
fn names_are_undone_unless_the_directory_was_synced() {
    let disk = SimDisk::new(1);
    let mut io = disk.io();
    durable::create(&mut io, Path::new("/kept"), Bytes::from_static(b"1")).unwrap();
    io.create_dir_all(Path::new("/dir")).unwrap();
    io.rename(Path::new("/kept"), Path::new("/moved")).unwrap();
    let made = io.open(Path::new("/made"), Open::CreateNew).unwrap();
    exact::write_all(&mut io, made, 0, Bytes::from_static(b"2")).unwrap();
    exact::sync(&mut io, made, SyncKind::All).unwrap();
    let undone = disk.fork();
    undone.crash(CrashPolicy { data: DataFate::Kept, names: NameFate::Undone });
    assert_eq!(undone.files(), [Path::new("/kept")]);
    assert!(undone.io().metadata(Path::new("/dir")).unwrap().is_none());
    disk.crash(CrashPolicy { data: DataFate::Dropped, names: NameFate::Kept });
    assert_eq!(disk.files(), [Path::new("/made"), Path::new("/moved")]);
    assert_eq!(disk.read_file(Path::new("/made")).unwrap(), b"2");
    assert!(disk.io().metadata(Path::new("/dir")).unwrap().unwrap().is_dir);
}

#[test]
fn a_file_renamed_without_a_sync_is_empty_under_its_name() {
    let disk = SimDisk::new(1);
    let mut io = disk.io();
    let file = io.open(Path::new("/tmp"), Open::CreateNew).unwrap();
    exact::write_all(&mut io, file, 0, Bytes::from_static(b"content")).unwrap();
    io.rename(Path::new("/tmp"), Path::new("/name")).unwrap();
    io.sync_dir(Path::new("/")).unwrap();
    disk.crash(CrashPolicy::DROP_ALL);
    assert_eq!(disk.read_file(Path::new("/name")).unwrap(), b"");
}

#[test]
fn small_files_are_replaced_whole_at_every_operation() {
    let disk = SimDisk::new(1);
    durable::replace(&mut disk.io(), Path::new("/small"), Bytes::from_static(b"old")).unwrap();
    let first = disk.op_count();
    let replace =
        |disk: &SimDisk| durable::replace(&mut disk.io(), Path::new("/small"), Bytes::from(vec![b'n'; 700]));
    let whole = disk.fork();
    replace(&whole).unwrap();
    for op in first + 1..=whole.op_count() {
        for policy in CrashPolicy::ALL {
            let disk = disk.fork();
            disk.crash_at(op);
            assert!(replace(&disk).is_err());
            disk.crash(policy);
            let left = disk.read_file(Path::new("/small")).unwrap();
            assert!(left == b"old" || left == [b'n'; 700], "operation {op}, {policy:?}: {left:?}");
        }
    }
    whole.crash(CrashPolicy::DROP_ALL);
    assert_eq!(whole.read_file(Path::new("/small")).unwrap(), [b'n'; 700]);
}

#[test]
fn a_failed_sync_drops_its_pages_poisons_the_file_and_the_next_one_succeeds() {
    let (disk, mut io, file) = disk();
    write(&mut io, file, 0, b'b', 10);
    disk.fail_sync(1);
    assert!(matches!(exact::sync(&mut io, file, SyncKind::Data), Err(IoError::Os { .. })));
    assert!(matches!(exact::sync(&mut io, file, SyncKind::Data), Err(IoError::Poisoned { .. })));
    // As a program that opens the file again and syncs would find it.
    let again = io.open(path(), Open::Write).unwrap();
    assert_eq!(exact::read_exact(&mut io, again, 0, 10).unwrap(), [b'b'; 10][..]);
    exact::sync(&mut io, again, SyncKind::Data).unwrap();
    assert_eq!(disk.durable_file(path()).unwrap(), [b'a'; 1_000]);
}

#[test]
fn a_full_disk_takes_what_fits() {
    let (disk, mut io, file) = disk();
    disk.full_after(Some(5));
    submit(&mut io, 1, Op::Write { file, at: 1_000, bytes: Bytes::from_static(b"0123456789") });
    let done = reap(&mut io, Wait::Block);
    assert_eq!(*done[0].result.as_ref().unwrap(), 5);
    // Overwriting needs no room.
    write(&mut io, file, 0, b'b', 10);
    let error = exact::write_all(&mut io, file, 1_005, Bytes::from_static(b"5")).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert!(matches!(
        exact::write_all(&mut io, file, 0, Bytes::from_static(b"5")),
        Err(IoError::Poisoned { .. })
    ));
    disk.full_after(None);
    let again = io.open(path(), Open::Write).unwrap();
    exact::write_all(&mut io, again, 1_005, Bytes::from_static(b"5")).unwrap();
}

#[test]
fn a_full_disk_allocates_nothing_ahead_and_takes_what_fits() {
    for direct in [false, true] {
        let (disk, mut io, file) = appended(direct);
        io.truncate(file, 1_000).unwrap();
        disk.full_after(Some(150));
        write(&mut io, file, 1_000, b'b', 100);
        assert_eq!(disk.read_file(path()).unwrap().len(), 1_100, "neither a step nor a whole block fits");
        submit(&mut io, 1, Op::Write { file, at: 1_100, bytes: Bytes::from(vec![b'c'; 100]) });
        assert_eq!(*reap(&mut io, Wait::Block)[0].result.as_ref().unwrap(), 50);
        let error = exact::write_all(&mut io, file, 1_150, Bytes::from_static(b"c")).unwrap_err();
        assert!(error.is_full(), "{error}");
        assert_eq!(io.len(file).unwrap(), 1_150);
    }
}

#[test]
fn a_bad_sector_stays_bad_and_a_flipped_bit_stays_flipped() {
    let (disk, mut io, file) = disk();
    disk.read_error(path(), 100..101);
    for _ in 0..2 {
        assert!(matches!(exact::read_up_to(&mut io, file, 90, 20), Err(IoError::Os { .. })));
    }
    assert_eq!(exact::read_up_to(&mut io, file, 101, 5).unwrap(), "aaaaa");
    disk.flip(path(), 200, 1);
    disk.crash(CrashPolicy::DROP_ALL);
    assert_eq!(disk.read_file(path()).unwrap()[199..202], [b'a', b'a' ^ 1, b'a']);
}

#[test]
fn a_lost_write_is_acknowledged_and_never_there() {
    let (disk, mut io, file) = disk();
    disk.stale_read(2);
    write(&mut io, file, 0, b'1', 1);
    write(&mut io, file, 1, b'2', 1);
    write(&mut io, file, 2, b'3', 1);
    exact::sync(&mut io, file, SyncKind::Data).unwrap();
    assert_eq!(disk.durable_file(path()).unwrap()[..4], *b"1a3a");
}

#[test]
fn a_full_queue_returns_the_operation() {
    let (disk, mut io, file) = disk();
    disk.queue_depth(Some(1));
    submit(&mut io, 1, Op::Sync { file, what: SyncKind::Data });
    let op = Op::Write { file, at: 0, bytes: Bytes::from_static(b"back") };
    let Err(Op::Write { bytes, .. }) = io.submit(Ticket::new(2), op) else { panic!("it was taken") };
    assert_eq!(bytes, "back");
    // The helpers make room and lose nothing.
    exact::write_all(&mut io, file, 0, bytes).unwrap();
    assert_eq!(reap(&mut io, Wait::Poll)[0].ticket, Ticket::new(1));
}

#[test]
fn time_is_virtual_and_order_is_by_chance() {
    let (disk, mut io, file) = disk();
    disk.slow(Some(1_000..2_000));
    submit(&mut io, 1, Op::Sync { file, what: SyncKind::Data });
    assert!(reap(&mut io, Wait::Poll).is_empty());
    assert_eq!(disk.clock_ns(), 0);
    assert_eq!(reap(&mut io, Wait::Block).len(), 1);
    assert!((1_000..2_000).contains(&disk.clock_ns()));
    let order = |seed| {
        let disk = SimDisk::new(seed);
        disk.write_file(path(), b"");
        disk.reorder(true);
        let mut io = disk.io();
        let file = io.open(path(), Open::Write).unwrap();
        for number in 0..6 {
            submit(&mut io, number, Op::Write { file, at: number * 4_096, bytes: Bytes::from_static(b"x") });
        }
        let mut order = Vec::new();
        while io.in_flight() > 0 {
            order.extend(reap(&mut io, Wait::Block).iter().map(|done| done.ticket.get()));
        }
        order
    };
    assert_eq!(order(5), order(5));
    assert!((0..20).any(|seed| order(seed) != [0, 1, 2, 3, 4, 5]));
}

#[test]
fn nothing_completes_at_once_when_it_must_yield() {
    let (disk, mut io, file) = disk();
    disk.yield_always(true);
    submit(&mut io, 1, Op::Sync { file, what: SyncKind::Data });
    assert!(reap(&mut io, Wait::Poll).is_empty());
    assert_eq!(reap(&mut io, Wait::Poll).len(), 1);
}

#[test]
fn short_counts_are_made_whole_by_the_helpers() {
    let (disk, mut io, file) = disk();
    disk.short(true);
    let mut shorter = 0;
    for _ in 0..20 {
        submit(&mut io, 1, Op::Write { file, at: 0, bytes: Bytes::from_static(b"0123456789") });
        let count = *reap(&mut io, Wait::Block)[0].result.as_ref().unwrap();
        assert!((1..=10).contains(&count));
        shorter += usize::from(count < 10);
    }
    assert!((1..20).contains(&shorter));
}

#[test]
fn the_ledger_says_what_was_acknowledged() {
    let (disk, mut io, file) = disk();
    write(&mut io, file, 1_000, b'b', 24);
    assert_eq!(disk.ledger(), []);
    exact::sync(&mut io, file, SyncKind::Data).unwrap();
    io.sync_dir(Path::new("/")).unwrap();
    let ledger = disk.ledger();
    assert!(matches!(ledger[0].what, Acknowledged::File { size: 1_024, .. }), "{ledger:?}");
    assert_eq!(ledger[0].path, path());
    assert_eq!(ledger[1].what, Acknowledged::Names(vec!["file".to_string()]));
    assert_eq!((ledger[0].op, ledger[1].op), (2, 3));
    let acknowledged = disk.acknowledged();
    assert_eq!(acknowledged[path()].len(), 1_024);
    // What was acknowledged is there after every crash.
    write(&mut io, file, 1_024, b'c', 100);
    io.rename(path(), Path::new("/other")).unwrap();
    for policy in CrashPolicy::ALL {
        let copy = disk.fork();
        copy.crash(policy);
        let left = copy.read_file(path()).or_else(|| copy.read_file(Path::new("/other"))).unwrap();
        assert_eq!(left[..1_024], acknowledged[path()], "{policy:?}");
    }
    io.rename(Path::new("/other"), path()).unwrap();
    disk.keep_trace(true);
    write(&mut io, file, 0, b'c', 1);
    assert_eq!(disk.trace().len(), 2, "{:?}", disk.trace());
}
