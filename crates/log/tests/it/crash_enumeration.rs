//! A power cut at every operation, under every policy, of a log that uses all of its parts: appends of many sizes with
//! several writes in flight, rolls, truncations, deletions, a clean stop.
//!
//! It is held against what the disk acknowledged (its ledger), not only against what the log says: nothing that the log
//! called durable is missing from the ledger, nothing of the ledger is missing after recovery, what is there is a prefix
//! of what was appended, and a second recovery changes nothing. Beside it, logs over a disk seam that breaks a rule, which
//! the same enumeration catches. What producers and transactions have to do with it is in `crash.rs`.

use std::collections::BTreeMap;

use bytes::BytesMut;
use weir_format::{BatchReader, RecordBatch};
use weir_log::{AppendParams, Isolation, UnifiedLog};
use weir_recovery::{CutKind, LoadError};
use weir_segment::SegmentConfig;
use weir_segment::io::sim::{CrashPolicy, DataFate, NameFate, SimDisk, SimIo};
use weir_segment::io::{
    Advice, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open as OpenFile, Ticket, Wait,
};

use super::support::*;

/// A machine: what its disk does, and by what seed.
#[derive(Debug, Clone, Copy)]
struct Machine {
    seed: u64,
    /// Writes past the page cache, in whole blocks.
    direct: bool,
    /// The first step of what is allocated ahead, in bytes.
    ahead: Option<u64>,
    /// Writes in flight that share a block are let through.
    overlap: bool,
}

impl Machine {
    const ALL: [Machine; 4] = {
        const fn machine(seed: u64, direct: bool, ahead: Option<u64>) -> Machine {
            Machine { seed, direct, ahead, overlap: false }
        }
        [
            machine(1, false, None),
            machine(2, true, None),
            machine(3, false, Some(5_000)),
            machine(4, true, Some(5_000)),
        ]
    };

    fn bench(self) -> Bench {
        let mut bench = Bench::new(self.seed);
        bench.disk.reorder(true);
        bench.disk.direct(self.direct);
        bench.disk.allocate_ahead(self.ahead);
        bench.disk.allow_overlap(self.overlap);
        bench.config.segment =
            SegmentConfig { segment_bytes: 20_000, index_interval_bytes: 1_000, ..bench.config.segment };
        bench
    }
}

/// What the log uses as its disk.
type Disk = fn(&SimDisk) -> Box<dyn Io>;

fn honest(disk: &SimDisk) -> Box<dyn Io> {
    Box::new(disk.io())
}

/// The machine went off, or the log.
struct Off;

/// One life of a log, and what it promised.
struct Life {
    bench: Bench,
    disk: Disk,
    open: Option<Open>,
    submitted: Vec<BytesMut>,
    /// Below this offset everything was called durable.
    durable: i64,
    /// A cut was begun that may or may not have happened.
    cutting_to: Option<i64>,
    log_start: i64,
    recovery_point: i64,
    clean: bool,
}

fn end_of(batch: &[u8]) -> i64 {
    RecordBatch::parse(batch).unwrap().next_offset().get()
}

impl Life {
    fn new(machine: Machine, disk: Disk) -> Life {
        Life {
            bench: machine.bench(),
            disk,
            open: None,
            submitted: Vec::new(),
            durable: 0,
            cutting_to: None,
            log_start: 0,
            recovery_point: 0,
            clean: false,
        }
    }

    fn open(&mut self) -> Result<(), Off> {
        let mut options = self.bench.options();
        options.clean_shutdown = std::mem::take(&mut self.clean);
        options.recovery_point = offset(self.recovery_point);
        options.log_start_offset = offset(self.log_start);
        let mut io = (self.disk)(&self.bench.disk);
        let config = self.bench.config.clone();
        let (log, report) = UnifiedLog::open(&mut *io, &self.bench.dir, config, options).map_err(|_| Off)?;
        self.open = Some(Open { io, log, report });
        Ok(())
    }

    fn log(&mut self) -> &mut Open {
        self.open.as_mut().unwrap()
    }

    /// A batch of one record, taken and perhaps in flight.
    fn append(&mut self, size: usize) -> Result<(), Off> {
        let batch = data(None, false, 1, size);
        let end = self.log().log.log_end_offset().get();
        self.submitted.push(placed(batch.clone(), end, 0));
        self.log().append(batch, &AppendParams::client(epoch(0), NOW)).map_err(|_| Off)?;
        let open = self.log();
        open.log.flush(&mut *open.io);
        self.take(Wait::Poll)
    }

    fn take(&mut self, wait: Wait) -> Result<(), Off> {
        let open = self.log();
        let mut done = Vec::new();
        open.io.reap(wait, &mut done).map_err(|_| Off)?;
        for done in done {
            open.log.on_done(done).map_err(|_| Off)?;
        }
        if open.log.is_offline() {
            return Err(Off);
        }
        self.durable = self.durable.max(self.log().log.view().high_watermark.get());
        Ok(())
    }

    /// Starts a sync of what is written, with more to come behind it.
    fn begin_sync(&mut self) {
        let open = self.log();
        open.log.sync_begin(&mut *open.io);
    }

    fn sync(&mut self) -> Result<(), Off> {
        while self.log().log.recovery_point() < self.log().log.log_end_offset() {
            let open = self.log();
            open.log.flush(&mut *open.io);
            open.log.sync_begin(&mut *open.io);
            self.take(Wait::Block)?;
        }
        Ok(())
    }

    fn truncate(&mut self, to: i64) -> Result<(), Off> {
        self.cutting_to = Some(to);
        let open = self.log();
        open.log.truncate_to(&mut *open.io, offset(to)).map_err(|_| Off)?;
        self.submitted.retain(|batch| end_of(batch) <= to);
        self.durable = self.durable.min(to);
        self.cutting_to = None;
        self.recovery_point = self.recovery_point.min(to);
        Ok(())
    }

    fn delete_before(&mut self, at: i64) -> Result<(), Off> {
        self.log_start = at;
        let open = self.log();
        open.log.advance_log_start(&mut *open.io, offset(at)).map_err(|_| Off)
    }

    fn close(&mut self) -> Result<(), Off> {
        let mut open = self.open.take().unwrap();
        let end = open.log.log_end_offset().get();
        open.log.close(&mut *open.io).map_err(|_| Off)?;
        self.durable = end;
        self.recovery_point = end;
        self.clean = true;
        Ok(())
    }

    /// Everything a log does.
    fn live(&mut self) -> Result<(), Off> {
        self.open()?;
        for size in [30, 3_000, 500, 7_000] {
            self.append(size)?;
        }
        self.sync()?;
        // Appends while a sync runs, in blocks that are in flight and in ones that are not.
        self.append(900)?;
        self.begin_sync();
        for size in [4_000, 20, 300] {
            self.append(size)?;
        }
        self.sync()?;
        self.recovery_point = self.log().log.recovery_point().get();
        // Rolls, with writes in flight.
        for size in [9_000, 5_000, 12_000, 100] {
            self.append(size)?;
        }
        self.sync()?;
        // A cut inside the active segment, then over several, with other batches behind each.
        self.truncate(11)?;
        self.append(2_000)?;
        self.append(60)?;
        self.sync()?;
        self.append(1_000)?;
        self.truncate(6)?;
        for size in [700, 8_000, 15_000, 1_500] {
            self.append(size)?;
        }
        self.sync()?;
        self.delete_before(8)?;
        self.append(400)?;
        self.close()?;
        self.open()?;
        self.append(2_500)?;
        self.append(10)?;
        self.sync()?;
        self.append(6_000)
    }

    /// The batches that the disk acknowledged, from the first one on without a gap.
    fn ledger(&self) -> BTreeMap<i64, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut next = None;
        for (path, bytes) in self.bench.disk.acknowledged() {
            if path.parent() != Some(&self.bench.dir) || path.extension().is_none_or(|suffix| suffix != "log")
            {
                continue;
            }
            let mut rest = &bytes[..];
            while let Ok(batch) = RecordBatch::parse(rest) {
                let base = batch.base_offset().get();
                if next.is_some_and(|next| next != base) {
                    return found;
                }
                next = Some(batch.next_offset().get());
                found.insert(base, batch.bytes().to_vec());
                rest = &rest[batch.bytes().len()..];
            }
        }
        found
    }
}

/// How often what happened.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    operations: u64,
    points: u64,
    torn: usize,
    holes: usize,
    zeros: usize,
    lost_unacknowledged: usize,
}

/// All that a reader sees, if it sees what the log says.
fn read_all(open: &mut Open) -> Result<Vec<u8>, String> {
    let view = open.log.view();
    let (mut at, end) = (view.log_start_offset, view.log_end_offset);
    let mut all = Vec::new();
    while at < end {
        let read = open.log.read(&mut *open.io, at, 1 << 20, Isolation::Uncommitted, true);
        let read = read.map_err(|error| error.to_string())?;
        let Some(last) = BatchReader::new(&read.bytes).last() else {
            return Err(format!("nothing is read at {at} of {end}"));
        };
        at = last.map_err(|error| error.to_string())?.next_offset();
        all.extend_from_slice(&read.bytes);
    }
    Ok(all)
}

/// What is wrong after a crash, if anything is.
fn check(
    bench: &Bench,
    life: &Life,
    ledger: &BTreeMap<i64, Vec<u8>>,
    tally: &mut Tally,
) -> Result<(), String> {
    let options = || {
        let mut options = bench.options();
        options.clean_shutdown = life.clean;
        options.recovery_point = offset(life.recovery_point);
        options.log_start_offset = offset(life.log_start);
        options
    };
    let mut open = bench.try_open(options()).map_err(|error| error.to_string())?;
    for cut in &open.report.cuts {
        match &cut.kind {
            CutKind::Torn => tally.torn += 1,
            CutKind::Preallocated => tally.zeros += 1,
            CutKind::Hole { archive, .. } => {
                tally.holes += 1;
                let archived = bench.disk.read_file(archive).map(|bytes| bytes.len() as u64);
                if archived != Some(cut.size) {
                    return Err(format!("the archive holds {archived:?} of {} bytes", cut.size));
                }
            }
            other => return Err(format!("unknown cut {other:?}")),
        }
    }
    let end = open.log.log_end_offset().get();
    let bytes = read_all(&mut open)?;
    let found: Vec<&[u8]> = BatchReader::new(&bytes).map(|batch| batch.unwrap().bytes()).collect();
    // A prefix of what was appended, from the log start on.
    let kept: Vec<&BytesMut> = life.submitted.iter().filter(|batch| end_of(batch) <= end).collect();
    let behind_start = kept.iter().filter(|batch| end_of(batch) > life.log_start);
    if !behind_start.map(|batch| &batch[..]).eq(found.iter().copied()) {
        return Err(format!("{} batches up to {end} are not those that were appended", found.len()));
    }
    tally.lost_unacknowledged += usize::from(kept.len() < life.submitted.len());
    // Nothing that was called durable is missing.
    let promised = life.durable.min(life.cutting_to.unwrap_or(i64::MAX));
    if kept.last().is_none_or(|batch| end_of(batch) < promised) && promised > 0 {
        return Err(format!("{promised} was called durable, {end} is there"));
    }
    // Nor anything that the disk acknowledged.
    if life.cutting_to.is_none() {
        let in_ledger = ledger.values().map(|batch| end_of(batch)).max().unwrap_or(0);
        if end < in_ledger {
            return Err(format!("{in_ledger} is in the ledger, {end} is there"));
        }
    }
    // A second recovery, after one more power cut, changes nothing.
    drop(open);
    bench.disk.crash(CrashPolicy::DROP_ALL);
    let mut again = bench.try_open(options()).map_err(|error| format!("again: {error}"))?;
    if !again.report.cuts.is_empty() || read_all(&mut again)? != bytes {
        return Err(format!("a second recovery changed something: {:?}", again.report.cuts));
    }
    // And the log goes on.
    let more = data(None, false, 1, 77);
    let appended =
        again.append(more, &AppendParams::client(epoch(0), NOW)).map_err(|error| error.to_string())?;
    again.sync();
    if appended.base_offset != offset(end) || again.log.view().high_watermark.get() != end + 1 {
        return Err(format!("it does not go on at {end}"));
    }
    Ok(())
}

/// Crashes at every operation, under each policy: what happened, and what went wrong.
fn enumerate(machines: &[Machine], disk: Disk, policies: &[CrashPolicy]) -> (Tally, Vec<String>) {
    let (mut tally, mut wrong) = (Tally::default(), Vec::new());
    for &machine in machines {
        let mut whole = Life::new(machine, disk);
        let finished = whole.live().is_ok();
        let count = whole.bench.disk.op_count();
        tally.operations += count;
        if !finished {
            wrong.push(format!("{machine:?}: the log went offline: {:?}", failure(&whole)));
        }
        for op in 1..=count {
            let mut life = Life::new(machine, disk);
            life.bench.disk.crash_at(op);
            assert!(life.live().is_err() || op == count);
            let ledger = life.ledger();
            let in_ledger = ledger.values().map(|batch| end_of(batch)).max().unwrap_or(0);
            if life.cutting_to.is_none() && in_ledger < life.durable {
                wrong.push(format!(
                    "{machine:?}, operation {op}: {} was called durable, {in_ledger} is in the ledger",
                    life.durable
                ));
            }
            life.open = None;
            for &policy in policies {
                tally.points += 1;
                let crashed = life.bench.fork();
                crashed.disk.crash(policy);
                if let Err(error) = check(&crashed, &life, &ledger, &mut tally) {
                    wrong.push(format!("{machine:?}, operation {op} of {count}, {policy:?}: {error}"));
                }
            }
        }
    }
    println!(
        "{} operations, {} crash points, {tally:?}, {} wrong",
        tally.operations,
        tally.points,
        wrong.len()
    );
    (tally, wrong)
}

fn failure(life: &Life) -> Option<String> {
    life.open.as_ref().and_then(|open| open.log.failure()).map(ToString::to_string)
}

/// Four machines have about 970 operations together: 14,600 crash points.
fn check_machines(machines: &[Machine]) {
    let (tally, wrong) = enumerate(machines, honest, &CrashPolicy::ALL);
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(tally.points, tally.operations * 15);
    assert!(tally.points > 3_300, "{tally:?}");
    // It met what there is to meet.
    assert!(tally.torn > 20 && tally.zeros > 50 && tally.lost_unacknowledged > 500, "{tally:?}");
}

#[test]
fn a_log_survives_a_power_cut_at_every_operation() {
    check_machines(&Machine::ALL[..1]);
}

#[test]
fn a_log_past_the_page_cache_survives_a_power_cut_at_every_operation() {
    check_machines(&Machine::ALL[1..2]);
}

#[test]
fn a_log_with_space_allocated_ahead_survives_a_power_cut_at_every_operation() {
    check_machines(&Machine::ALL[2..3]);
}

#[test]
fn a_log_past_the_page_cache_with_space_allocated_ahead_survives_a_power_cut_at_every_operation() {
    check_machines(&Machine::ALL[3..]);
}

/// A disk seam that breaks a rule, over one that does not.
struct Broken {
    inner: SimIo,
    rule: Rule,
    ready: Vec<Done>,
    /// How many of the kind that the rule is about were answered before they were done: their own answers are for
    /// nobody.
    answered: usize,
    /// What the honest seam refused, that was answered with success.
    refused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// A sync is answered when it is submitted.
    SyncsAreDone,
    /// A write is answered when it is submitted: the next one may share its block, and a sync does not cover it.
    WritesAreReaped,
}

impl Broken {
    fn boxed(disk: &SimDisk, rule: Rule) -> Box<dyn Io> {
        Box::new(Broken { inner: disk.io(), rule, ready: Vec::new(), answered: 0, refused: false })
    }
}

fn answers_syncs_at_once(disk: &SimDisk) -> Box<dyn Io> {
    Broken::boxed(disk, Rule::SyncsAreDone)
}

fn answers_writes_at_once(disk: &SimDisk) -> Box<dyn Io> {
    Broken::boxed(disk, Rule::WritesAreReaped)
}

impl Io for Broken {
    fn open(&mut self, path: &std::path::Path, how: OpenFile) -> Result<FileId, IoError> {
        self.inner.open(path, how)
    }
    fn close(&mut self, file: FileId) -> Result<(), IoError> {
        self.inner.close(file)
    }
    fn path(&self, file: FileId) -> std::path::PathBuf {
        self.inner.path(file)
    }
    fn write_alignment(&self, file: FileId) -> u64 {
        self.inner.write_alignment(file)
    }
    fn advise(&mut self, file: FileId, advice: Advice) {
        self.inner.advise(file, advice);
    }
    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        self.inner.len(file)
    }
    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        self.inner.truncate(file, len)
    }
    fn rename(&mut self, from: &std::path::Path, to: &std::path::Path) -> Result<(), IoError> {
        self.inner.rename(from, to)
    }
    fn remove(&mut self, path: &std::path::Path) -> Result<(), IoError> {
        self.inner.remove(path)
    }
    fn list(&mut self, dir: &std::path::Path) -> Result<Vec<std::path::PathBuf>, IoError> {
        self.inner.list(dir)
    }
    fn metadata(&mut self, path: &std::path::Path) -> Result<Option<Metadata>, IoError> {
        self.inner.metadata(path)
    }
    fn create_dir_all(&mut self, dir: &std::path::Path) -> Result<(), IoError> {
        self.inner.create_dir_all(dir)
    }
    fn sync_dir(&mut self, dir: &std::path::Path) -> Result<(), IoError> {
        self.inner.sync_dir(dir)
    }

    fn submit(&mut self, ticket: Ticket, op: Op) -> Result<(), Op> {
        let (again, result) = match (&op, self.rule) {
            (Op::Sync { file, what }, Rule::SyncsAreDone) => (Op::Sync { file: *file, what: *what }, 0),
            (Op::Write { file, at, bytes }, Rule::WritesAreReaped) => {
                let again = Op::Write { file: *file, at: *at, bytes: bytes.clone() };
                (again, u32::try_from(bytes.len()).unwrap())
            }
            _ => return self.inner.submit(ticket, op),
        };
        self.inner.submit(ticket, op)?;
        self.answered += 1;
        self.ready.push(Done { ticket, op: again, result: Ok(result) });
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        let wait = if self.ready.is_empty() { wait } else { Wait::Poll };
        let mut inner = Vec::new();
        loop {
            self.inner.reap(wait, &mut inner)?;
            for item in inner.drain(..) {
                match (&item.op, self.rule) {
                    (Op::Sync { .. }, Rule::SyncsAreDone) | (Op::Write { .. }, Rule::WritesAreReaped) => {
                        self.answered -= 1;
                        self.refused |= matches!(item.result, Err(IoError::Misuse { .. }));
                    }
                    _ => self.ready.push(item),
                }
            }
            if wait != Wait::Block || !self.ready.is_empty() || self.inner.in_flight() == 0 {
                break;
            }
        }
        done.append(&mut self.ready);
        if self.refused {
            let error = std::io::Error::other("the disk refused a write that was answered with success");
            let at = weir_segment::io::At {
                operation: weir_segment::io::Operation::Reap,
                path: std::path::PathBuf::new(),
                position: None,
            };
            return Err(IoError::Os { at, source: error });
        }
        Ok(())
    }

    fn put_back(&mut self, done: Vec<Done>) {
        self.ready.splice(0..0, done);
    }
    fn in_flight(&self) -> usize {
        self.inner.in_flight() - self.answered + self.ready.len()
    }
    fn waker(&self) -> IoWaker {
        self.inner.waker()
    }
}

/// What a broken log needs to be caught: each fate of data, names kept.
fn few_policies() -> Vec<CrashPolicy> {
    CrashPolicy::ALL.into_iter().filter(|policy| policy.names == NameFate::Kept).collect()
}

#[test]
fn a_log_that_acknowledges_before_the_sync_is_caught() {
    let (_, wrong) = enumerate(&Machine::ALL[2..3], answers_syncs_at_once, &few_policies());
    let count = |what: &str| wrong.iter().filter(|error| error.contains(what)).count();
    assert!(count("is in the ledger") > 10 && count("was called durable") > 10, "{wrong:?}");
}

#[test]
fn a_log_that_lets_two_writes_share_a_block_in_flight_is_caught() {
    // The disk refuses.
    let mut life = Life::new(Machine::ALL[1], answers_writes_at_once);
    assert!(life.live().is_err() && !life.bench.disk.is_off());
    // And where it does not, bytes are lost that were called durable.
    let machine = Machine { overlap: true, ..Machine::ALL[1] };
    let (_, wrong) = enumerate(&[machine], answers_writes_at_once, &few_policies());
    assert!(wrong.iter().filter(|error| error.contains("was called durable")).count() > 10, "{wrong:?}");
}

/// Appends batches of a block and more, each a write of its own, and leaves them in flight or done, not synced.
fn three_writes(seed: u64) -> (Bench, Vec<BytesMut>) {
    let mut life = Life::new(Machine { seed, ..Machine::ALL[0] }, honest);
    assert!(life.open().is_ok() && life.append(100).is_ok() && life.sync().is_ok());
    for size in [6_000, 5_000, 4_500] {
        assert!(life.append(size).is_ok());
        let open = life.log();
        open.settle();
    }
    assert_eq!(life.durable, 1);
    (life.bench, life.submitted)
}

#[test]
fn a_later_write_that_is_kept_behind_one_that_is_dropped_is_a_hole_and_is_cut() {
    let mut holes = 0;
    for seed in 0..60 {
        let (bench, submitted) = three_writes(seed);
        bench.disk.crash(CrashPolicy { data: DataFate::Mixed, names: NameFate::Kept });
        let before = bench.log_bytes();
        let mut open = bench.open_unclean();
        let end = usize::try_from(open.log.log_end_offset().get()).unwrap();
        assert!((1..=4).contains(&end), "what was acknowledged is there");
        assert_eq!(open.read_all(Isolation::Uncommitted), submitted[..end].concat());
        for cut in &open.report.cuts {
            let CutKind::Hole { archive, first_offset, end_offset } = &cut.kind else { continue };
            holes += 1;
            assert!(first_offset.get() > i64::try_from(end).unwrap() && *end_offset <= offset(4));
            // It is kept aside, whole; what is left out is space that was allocated ahead.
            let place = usize::try_from(cut.position).unwrap();
            let kept = bench.disk.read_file(archive).unwrap();
            assert_eq!(u64::try_from(kept.len()).unwrap(), cut.size);
            assert!(before[place..].starts_with(&kept));
            assert!(before[place + kept.len()..].iter().all(|byte| *byte == 0));
        }
        assert_eq!(bench.log_bytes(), submitted[..end].concat());
    }
    assert!(holes > 5, "{holes}");
}

#[test]
fn a_flipped_bit_in_an_acknowledged_batch_before_valid_ones_is_reported_and_nothing_is_cut() {
    for direct in [false, true] {
        let mut life = Life::new(Machine { direct, ..Machine::ALL[2] }, honest);
        assert!(life.open().is_ok());
        for size in [700, 5_000, 300] {
            assert!(life.append(size).is_ok());
        }
        assert!(life.sync().is_ok());
        life.open = None;
        let path = life.bench.path("00000000000000000000.log");
        let position = life.submitted[0].len();
        life.bench.disk.flip(&path, u64::try_from(position + 3_000).unwrap(), 4);
        for policy in CrashPolicy::ALL {
            let crashed = life.bench.fork();
            crashed.disk.crash(policy);
            let before = crashed.disk.contents();
            let Err(LoadError::Corrupt(corruption)) = crashed.try_open(crashed.options()) else {
                panic!("direct {direct}, {policy:?}: it was opened");
            };
            assert_eq!((&corruption.file, corruption.position), (&path, u64::try_from(position).unwrap()));
            assert_eq!(corruption.next_offset, offset(1));
            let behind = corruption.behind.unwrap();
            assert_eq!((behind.base_offset, behind.end_offset), (offset(2), offset(3)));
            assert_eq!(crashed.disk.contents(), before, "not a byte was changed");
        }
    }
}
