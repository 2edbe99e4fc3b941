//! Power cuts at every operation, under every policy, at the level of segments: whether bytes and names are as promised.
//! Producer state and what a tail means are recovery's.

use std::path::Path;

use bytes::Bytes;
use weir_format::{RecordBatch, TimestampMs};
use weir_segment::io::durable;
use weir_segment::io::sim::{CrashPolicy, SimDisk, SimIo};
use weir_segment::{LocalLog, SegmentError};

use crate::support::{DIR, NOW, at, batch, batches, open, recover, small, sync};

/// What may be on the disk.
#[derive(Debug, Clone, Default)]
struct Promise {
    /// Every batch that was submitted and not truncated since.
    submitted: Vec<(i64, Bytes)>,
    /// How many of them, from the front, are durable.
    durable: usize,
    /// How many, from the front, may have been deleted.
    may_be_deleted: usize,
    /// How many, from the front, must have been deleted.
    deleted: usize,
}

impl Promise {
    fn check(&self, found: &[(i64, Bytes)], why: &str) {
        let ends: Vec<usize> = (self.durable..=self.submitted.len()).collect();
        let starts: Vec<usize> = (self.deleted..=self.may_be_deleted).collect();
        let allowed = starts
            .iter()
            .any(|start| ends.iter().any(|end| start <= end && self.submitted[*start..*end] == *found));
        let bases = |batches: &[(i64, Bytes)]| batches.iter().map(|(base, _)| *base).collect::<Vec<_>>();
        assert!(
            allowed,
            "{why}: found {:?}, submitted {:?}, durable {}, deleted {} to {}",
            bases(found),
            bases(&self.submitted),
            self.durable,
            self.deleted,
            self.may_be_deleted
        );
    }
}

/// A workload that says at each point what it was promised.
struct Run {
    io: SimIo,
    log: LocalLog,
    promise: Promise,
}

impl Run {
    fn append(&mut self, count: i64, size: usize) -> Result<(), SegmentError> {
        let base = self.log.log_end_offset().get();
        let made = batch(base, count, size, NOW.get() + base);
        self.promise.submitted.push((base, made.clone()));
        let rolled = self.log.append_bytes(&mut self.io, made, NOW)?.rolled;
        if !rolled.is_empty() {
            self.promise.durable = self.promise.submitted.len() - 1;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), SegmentError> {
        sync(&mut self.io, &mut self.log)?;
        self.promise.durable = self.promise.submitted.len();
        Ok(())
    }

    fn truncate(&mut self, offset: i64) -> Result<(), SegmentError> {
        let below = |bytes: &Bytes| RecordBatch::parse(bytes).unwrap().next_offset() <= at(offset);
        let kept = self.promise.submitted.partition_point(|(_, bytes)| below(bytes));
        self.promise.durable = self.promise.durable.min(kept);
        self.log.truncate_to(&mut self.io, at(offset))?;
        self.promise.submitted.truncate(kept);
        self.promise.durable = kept;
        Ok(())
    }

    fn delete_before(&mut self, offset: i64) -> Result<(), SegmentError> {
        let below = self.promise.submitted.partition_point(|(base, _)| *base < offset);
        self.promise.may_be_deleted = below;
        self.log.delete_before(&mut self.io, at(offset))?;
        let first = self.log.first_offset().get();
        self.promise.deleted = self.promise.submitted.partition_point(|(base, _)| *base < first);
        self.promise.may_be_deleted = self.promise.deleted;
        Ok(())
    }

    fn start_at(&mut self, offset: i64) -> Result<(), SegmentError> {
        self.promise.durable = self.promise.deleted;
        self.log.truncate_fully_and_start_at(&mut self.io, at(offset))?;
        self.promise = Promise::default();
        Ok(())
    }

    fn work(&mut self) -> Result<(), SegmentError> {
        for _ in 0..5 {
            self.append(3, 120)?;
        }
        self.sync()?;
        self.append(2, 700)?;
        self.append(1, 50)?;
        self.sync()?;
        self.truncate(13)?;
        self.append(2, 60)?;
        self.append(4, 200)?;
        self.sync()?;
        self.append(1, 600)?;
        self.truncate(5)?;
        for _ in 0..4 {
            self.append(2, 210)?;
        }
        self.log.roll(&mut self.io, None, NOW)?;
        self.promise.durable = self.promise.submitted.len();
        self.append(1, 20)?;
        self.delete_before(9)?;
        self.sync()?;
        self.start_at(4)?;
        self.append(1, 20)?;
        self.sync()
    }
}

/// Runs the workload on a machine that goes off at an operation; what it was promised until then.
fn run(disk: &SimDisk) -> (Promise, bool) {
    let mut io = disk.io();
    let Ok(log) = open(&mut io, small()) else { return (Promise::default(), false) };
    let mut run = Run { io, log, promise: Promise::default() };
    let done = run.work().is_ok();
    (run.promise, done)
}

fn fresh(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    durable::create_dir_all(&mut disk.io(), Path::new(DIR)).unwrap();
    disk.yield_always(true);
    disk.short(seed % 2 == 1);
    disk.direct(seed >= 2);
    disk.allocate_ahead((seed >= 2).then_some(700));
    disk
}

/// On four kinds of disk: with short writes or not, through the page cache or past it with space allocated ahead.
#[test]
fn a_power_cut_at_every_operation_leaves_what_was_promised() {
    let mut points = 0;
    for seed in 0..4 {
        let disk = fresh(seed);
        let first = disk.op_count();
        assert!(run(&disk).1, "the workload runs without a crash");
        let last = disk.op_count();
        assert!(last > first + 60, "{first} to {last}");
        for op in first + 1..=last {
            let machine = fresh(seed);
            machine.crash_at(op);
            let (promise, done) = run(&machine);
            assert!(!done && machine.is_off(), "seed {seed}: operation {op} was not reached");
            for policy in CrashPolicy::ALL {
                let why = format!("seed {seed}, operation {op}, {policy:?}");
                let disk = machine.fork();
                disk.crash(policy);
                disk.short(false);
                check_after_crash(&disk, &promise, &why);
                points += 1;
            }
        }
    }
    println!("{points} crash points");
    assert!(points > 7_000, "{points}");
}

fn check_after_crash(disk: &SimDisk, promise: &Promise, why: &str) {
    let mut io = disk.io();
    let mut log = recover(&mut io, small());
    let found = batches(&mut io, &mut log);
    promise.check(&found, why);
    // The log knows nothing of space that was allocated ahead: what it opened is as long as what it holds.
    let held: u64 = found.iter().map(|(_, bytes)| u64::try_from(bytes.len()).unwrap()).sum();
    assert_eq!(log.size(), held, "{why}");
    // Where the log starts over, or below everything, it is at least empty and usable.
    let end = log.log_end_offset();
    assert!(found.last().is_none_or(|(base, _)| *base < end.get()), "{why}");
    // Every batch is found by its offset, whatever the indexes on the disk were.
    for (base, bytes) in &found {
        let read = log.read(&mut io, at(*base), 1, end, true).unwrap();
        assert_eq!(read.bytes, bytes, "{why}: read at {base}");
    }
    // Recovering again changes nothing, and the log takes appends.
    log.abandon(&mut io).unwrap();
    let mut log = recover(&mut io, small());
    assert_eq!(batches(&mut io, &mut log), found, "{why}: recovered twice");
    let more = batch(log.log_end_offset().get(), 2, 30, NOW.get());
    log.append_bytes(&mut io, more.clone(), NOW).unwrap();
    log.close(&mut io).unwrap();
    let mut log = open(&mut io, small()).unwrap();
    assert_eq!(batches(&mut io, &mut log).last().unwrap().1, more, "{why}: appended");
    // Nothing of a removal is left.
    let leftovers: Vec<_> =
        disk.files().into_iter().filter(|path| path.to_string_lossy().contains(".deleted")).collect();
    assert_eq!(leftovers, Vec::<std::path::PathBuf>::new(), "{why}");
}

#[test]
fn a_failed_sync_ends_the_writing_until_the_log_is_opened_again() {
    let disk = fresh(0);
    let mut io = disk.io();
    let mut log = open(&mut io, small()).unwrap();
    let good = batch(0, 2, 50, 1);
    log.append_bytes(&mut io, good.clone(), NOW).unwrap();
    sync(&mut io, &mut log).unwrap();
    log.append_bytes(&mut io, batch(2, 2, 50, 1), NOW).unwrap();
    disk.fail_sync(1);
    assert!(matches!(sync(&mut io, &mut log), Err(SegmentError::Io(_))));
    assert_eq!(log.synced_end_offset(), at(2));
    let refused = log.append_bytes(&mut io, batch(4, 1, 5, 1), NOW);
    assert!(matches!(refused, Err(SegmentError::Failed { .. })), "{refused:?}");
    assert!(log.close(&mut io).is_err(), "this is no clean stop");
    // The pages of the failed sync are lost although a reader saw them.
    disk.crash(CrashPolicy::KEEP_ALL);
    let mut io = disk.io();
    let mut log = recover(&mut io, small());
    assert_eq!(batches(&mut io, &mut log), [(0, good)]);
}

#[test]
fn a_full_disk_refuses_and_keeps_what_was_there() {
    let disk = fresh(1);
    let mut io = disk.io();
    let mut log = open(&mut io, small()).unwrap();
    let good = batch(0, 2, 50, 1);
    log.append_bytes(&mut io, good.clone(), NOW).unwrap();
    sync(&mut io, &mut log).unwrap();
    disk.full_after(Some(40));
    log.append_bytes(&mut io, batch(2, 2, 50, 1), NOW).unwrap();
    let refused = log.settle(&mut io).unwrap_err();
    assert!(matches!(&refused, SegmentError::Io(error) if error.is_full()), "{refused}");
    assert_eq!(log.log_end_offset(), at(2));
    assert_eq!(log.read(&mut io, at(0), 1_000, at(2), true).unwrap().bytes, good);
    log.abandon(&mut io).unwrap();
    let mut log = recover(&mut io, small());
    assert_eq!(batches(&mut io, &mut log), [(0, good)]);
}

#[test]
fn a_full_disk_keeps_nobody_from_opening_and_reading_without_indexes() {
    let disk = fresh(0);
    let mut io = disk.io();
    let mut log = open(&mut io, small()).unwrap();
    for base in 0..12 {
        log.append_bytes(&mut io, batch(base, 1, 200, base), NOW).unwrap();
    }
    assert!(log.segments().len() > 2);
    log.close(&mut io).unwrap();
    for path in disk.files() {
        if path.extension().is_some_and(|extension| extension != "log") {
            disk.remove_file(&path);
        }
    }
    disk.full_after(Some(0));
    let mut log = open(&mut io, small()).unwrap();
    for base in 0..12 {
        let read = log.read(&mut io, at(base), 1, at(12), true).unwrap();
        assert_eq!(read.bytes, batch(base, 1, 200, base));
        let found = log.batch_for_timestamp(&mut io, TimestampMs::new(base), at(0)).unwrap().unwrap();
        assert_eq!(found.info.base_offset, at(base));
    }
    assert!(log.close(&mut io).is_err(), "this is no clean stop");
    // With room again, what was left half written changes nothing, and is put right.
    disk.full_after(None);
    let mut log = open(&mut io, small()).unwrap();
    assert_eq!(log.read(&mut io, at(2), 1, at(12), true).unwrap().bytes, batch(2, 1, 200, 2));
    log.close(&mut io).unwrap();
    assert!(
        disk.contents()
            .iter()
            .any(|(path, bytes)| path.ends_with("00000000000000000000.index") && !bytes.is_empty())
    );
}

#[test]
fn a_bad_sector_is_an_error_that_says_where() {
    let disk = fresh(0);
    let mut io = disk.io();
    let mut log = open(&mut io, small()).unwrap();
    log.append_bytes(&mut io, batch(0, 2, 50, 1), NOW).unwrap();
    let path = log.active().log_path().to_path_buf();
    disk.read_error(&path, 100..101);
    let error = log.read(&mut io, at(0), 1_000, at(2), true).unwrap_err();
    assert!(error.to_string().starts_with(&format!("read {} at byte", path.display())), "{error}");
}
