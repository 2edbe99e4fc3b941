//! A power cut at every operation of a workload, under every policy: laws R1 to R6.
//!
//! Each workload is run once to count its operations. Then, for every operation, it is run again and the machine goes
//! off there; the disk is copied for each of the fifteen policies, and each copy is recovered and checked against what
//! was submitted, acknowledged and cut by then, and against a log that saw the same batches and never crashed.

use std::collections::BTreeMap;

use bytes::BytesMut;
use weir_format::{BatchReader, Offset, RecordBatch};
use weir_log::{AppendError, AppendParams, ChangeError, Isolation};
use weir_recovery::{CutKind, ProducerStateSource};
use weir_segment::io::Wait;
use weir_segment::io::sim::{CrashPolicy, DataFate, NameFate};

use super::support::*;

/// What was asked of the log, and what it promised.
#[derive(Debug, Clone, Default)]
struct Model {
    /// Every batch handed over, as it lies in the log, in order.
    submitted: Vec<BytesMut>,
    /// Below this offset everything was acknowledged.
    acknowledged: i64,
    /// A cut was begun that may or may not have happened.
    cutting_to: Option<i64>,
    /// What the node's checkpoint says.
    recovery_point: i64,
    /// The log start that was asked for.
    log_start: i64,
    /// The newest stop was a clean one, and nothing has begun since.
    clean: bool,
}

impl Model {
    fn end_of(batch: &BytesMut) -> i64 {
        RecordBatch::parse(batch).unwrap().next_offset().get()
    }

    fn base_of(batch: &BytesMut) -> i64 {
        RecordBatch::parse(batch).unwrap().base_offset().get()
    }
}

/// The machine went off.
struct Off;

impl From<AppendError> for Off {
    fn from(error: AppendError) -> Off {
        assert!(matches!(error, AppendError::Log { .. } | AppendError::Offline), "{error:?}");
        Off
    }
}

impl From<ChangeError> for Off {
    fn from(error: ChangeError) -> Off {
        assert!(!matches!(error, ChangeError::OffsetOutOfRange { .. }), "{error:?}");
        Off
    }
}

/// A run of a workload on one disk.
struct Run {
    bench: Bench,
    open: Option<Open>,
    model: Model,
    sequences: BTreeMap<i64, i32>,
}

impl Run {
    fn start(bench: Bench) -> Run {
        Run { bench, open: None, model: Model::default(), sequences: BTreeMap::new() }
    }

    fn open(&mut self) -> Result<(), Off> {
        let mut options = self.bench.options();
        options.clean_shutdown = std::mem::take(&mut self.model.clean);
        options.recovery_point = offset(self.model.recovery_point);
        options.log_start_offset = offset(self.model.log_start);
        self.open = Some(self.bench.try_open(options).map_err(|error| {
            assert!(self.bench.disk.is_off(), "{error}");
            Off
        })?);
        Ok(())
    }

    fn log(&mut self) -> &mut Open {
        self.open.as_mut().unwrap()
    }

    fn submit(&mut self, batch: BytesMut, params: AppendParams) -> Result<(), Off> {
        let end = self.log().log.log_end_offset().get();
        self.model.submitted.push(placed(batch.clone(), end, 0));
        let appended = self.log().append(batch, &params)?;
        assert_eq!(appended.base_offset, offset(end));
        Ok(())
    }

    /// A batch of one record for a producer.
    fn data(&mut self, producer: i64, transactional: bool, size: usize) -> Result<(), Off> {
        let sequence = self.sequences.entry(producer).or_insert(0);
        let header = Some((producer, 0, *sequence));
        *sequence += 1;
        let batch = data(header, transactional, 1, size);
        let params = AppendParams { may_start_transaction: true, ..AppendParams::client(epoch(0), NOW) };
        self.submit(batch, params)
    }

    fn coordinate(&mut self, batch: BytesMut) -> Result<(), Off> {
        self.submit(batch, AppendParams::coordinator(epoch(0), NOW))
    }

    /// What was appended is written, and not synced.
    fn settle(&mut self) -> Result<(), Off> {
        let open = self.log();
        while open.log.has_unsent() || open.log.is_busy() {
            open.log.flush(&mut *open.io);
            let mut done = Vec::new();
            open.io.reap(Wait::Block, &mut done).map_err(|_| Off)?;
            for done in done {
                open.log.on_done(done).map_err(|_| Off)?;
            }
        }
        if open.log.is_offline() { Err(Off) } else { Ok(()) }
    }

    fn sync(&mut self) -> Result<(), Off> {
        let open = self.log();
        while !open.log.is_offline() && open.log.recovery_point() < open.log.log_end_offset() {
            open.log.flush(&mut *open.io);
            open.log.sync_begin(&mut *open.io);
            let mut done = Vec::new();
            open.io.reap(Wait::Block, &mut done).map_err(|_| Off)?;
            for done in done {
                open.log.on_done(done).map_err(|_| Off)?;
            }
        }
        if open.log.is_offline() {
            return Err(Off);
        }
        self.acknowledge();
        Ok(())
    }

    fn acknowledge(&mut self) {
        let view = self.log().log.view();
        self.model.acknowledged = self.model.acknowledged.max(view.high_watermark.get());
    }

    /// The node writes its checkpoint.
    fn checkpoint(&mut self) {
        self.model.recovery_point = self.log().log.recovery_point().get();
    }

    fn truncate(&mut self, to: i64) -> Result<(), Off> {
        self.model.cutting_to = Some(to);
        let open = self.open.as_mut().unwrap();
        open.log.truncate_to(&mut *open.io, offset(to))?;
        self.model.submitted.retain(|batch| Model::end_of(batch) <= to);
        self.model.acknowledged = self.model.acknowledged.min(to);
        self.model.cutting_to = None;
        self.acknowledge();
        Ok(())
    }

    fn close(&mut self) -> Result<(), Off> {
        let mut open = self.open.take().unwrap();
        let end = open.log.log_end_offset().get();
        open.log.close(&mut *open.io)?;
        self.model.acknowledged = end;
        self.model.recovery_point = end;
        self.model.clean = true;
        Ok(())
    }
}

type Workload = fn(&mut Run) -> Result<(), Off>;

/// Idempotent producers, group commit, rolls.
fn produce(run: &mut Run) -> Result<(), Off> {
    run.open()?;
    for producer in [1, 2, 1] {
        run.data(producer, false, 40)?;
        run.sync()?;
    }
    for _ in 0..3 {
        for producer in [1, 2, 3] {
            run.data(producer, false, 300)?;
        }
        run.sync()?;
        run.checkpoint();
    }
    run.data(3, false, 900)?;
    run.sync()?;
    run.close()?;
    run.open()?;
    run.data(3, false, 20)?;
    run.sync()
}

/// Transactions across segments, a barrier with some open, and producers that come again after it.
fn transactions(run: &mut Run) -> Result<(), Off> {
    run.open()?;
    for producer in [1, 2, 3] {
        run.data(producer, true, 200)?;
        run.sync()?;
    }
    run.coordinate(marker(false, 1, 0, 0))?;
    run.sync()?;
    run.data(2, true, 900)?;
    run.sync()?;
    run.checkpoint();
    run.coordinate(marker(true, 2, 0, 0))?;
    run.sync()?;
    run.data(1, true, 10)?;
    run.sync()?;
    run.coordinate(barrier())?;
    run.sync()?;
    run.sequences.clear();
    run.data(1, false, 10)?;
    run.sync()?;
    run.data(3, true, 1200)?;
    run.sync()?;
    run.coordinate(marker(false, 3, 0, 0))?;
    run.sync()?;
    run.coordinate(barrier())?;
    run.sync()
}

/// Cuts: inside the active segment, over several, below a barrier; then other batches at the same offsets.
fn cuts(run: &mut Run) -> Result<(), Off> {
    run.open()?;
    for producer in [1, 2, 3, 1, 2, 3] {
        run.data(producer, producer == 2, 400)?;
        run.sync()?;
    }
    run.coordinate(barrier())?;
    run.sync()?;
    run.checkpoint();
    run.sequences.clear();
    run.data(1, false, 10)?;
    run.sync()?;
    run.truncate(7)?;
    run.data(4, false, 15)?;
    run.sync()?;
    run.truncate(2)?;
    run.sequences.insert(5, 0);
    run.data(5, false, 700)?;
    run.data(5, false, 10)?;
    run.sync()?;
    run.checkpoint();
    run.data(5, true, 10)?;
    run.sync()
}

/// What a log that saw these batches and never crashed knows.
fn reference(batches: &[BytesMut]) -> Open {
    let mut open = Bench::new(1).open_unclean();
    for batch in batches {
        open.replicate(batch.clone());
    }
    open.sync();
    open
}

struct Known {
    facts: Facts,
    producers: weir_psm::ProducerStateManager,
}

/// Facts by the bytes of the log: each is worked out once.
#[derive(Default)]
struct References {
    known: BTreeMap<Vec<u8>, Known>,
}

impl References {
    fn of(&mut self, batches: &[BytesMut]) -> &Known {
        let key = batches.concat();
        self.known.entry(key).or_insert_with(|| {
            let mut open = reference(batches);
            Known { facts: open.facts(), producers: open.producers() }
        })
    }
}

/// How often what happened.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    recovered: usize,
    torn: usize,
    holes: usize,
    lost_unacknowledged: usize,
    from_snapshot: usize,
}

/// Laws R1 to R6 for one crashed disk.
fn check_recovered(bench: &Bench, model: &Model, references: &mut References, tally: &mut Tally, what: &str) {
    let options = || {
        let mut options = bench.options();
        options.clean_shutdown = model.clean;
        options.recovery_point = offset(model.recovery_point);
        options
    };
    let mut open = bench.try_open(options()).unwrap_or_else(|error| panic!("{what}: {error}"));
    tally.recovered += 1;
    for cut in &open.report.cuts {
        match &cut.kind {
            CutKind::Torn => tally.torn += 1,
            CutKind::Hole { archive, .. } => {
                tally.holes += 1;
                assert_eq!(bench.disk.read_file(archive).map(|bytes| bytes.len() as u64), Some(cut.size));
            }
            _ => {}
        }
    }
    if matches!(open.report.producer_state, ProducerStateSource::Snapshot { .. }) {
        tally.from_snapshot += 1;
    }
    let bytes = open.read_all(Isolation::Uncommitted);
    let found: Vec<&[u8]> = BatchReader::new(&bytes).map(|batch| batch.unwrap().bytes()).collect();
    // R2, and R3: a finished cut took its batches out of the model.
    assert!(found.len() <= model.submitted.len(), "{what}: more than was submitted");
    let kept = &model.submitted[..found.len()];
    tally.lost_unacknowledged += usize::from(kept.len() < model.submitted.len());
    for (found, submitted) in found.iter().zip(kept) {
        assert_eq!(*found, &submitted[..], "{what}: not what was submitted");
    }
    // R1.
    let promised = model.acknowledged.min(model.cutting_to.unwrap_or(i64::MAX));
    let must_end: i64 =
        model.submitted.iter().map(Model::end_of).filter(|&end| end <= promised).max().unwrap_or(0);
    let end = kept.last().map_or(0, Model::end_of);
    assert!(end >= must_end, "{what}: {must_end} was acknowledged, {end} is there");
    // R4.
    let known = references.of(kept);
    assert_eq!(open.facts(), known.facts, "{what}");
    assert_equal_state(&open.producers(), &known.producers, what);
    // R5, after one more power cut: what recovery found it has made durable.
    drop(open);
    bench.disk.crash(CrashPolicy::DROP_ALL);
    let mut again = bench.try_open(options()).unwrap_or_else(|error| panic!("{what}, again: {error}"));
    assert_eq!(again.report.cuts, [], "{what}, again");
    assert_eq!(again.facts(), known.facts, "{what}, again");
    assert_equal_state(&again.producers(), &known.producers, what);
    assert_eq!(again.read_all(Isolation::Uncommitted), bytes, "{what}, again");
    drop(again);
    // R6.
    bench.remove_auxiliary_files();
    let mut bare = bench.try_open(options()).unwrap_or_else(|error| panic!("{what}, bare: {error}"));
    assert_eq!(bare.facts(), known.facts, "{what}, bare");
    assert_equal_state(&bare.producers(), &known.producers, what);
    assert_eq!(bare.read_all(Isolation::Uncommitted), bytes, "{what}, bare");
}

/// Crashes a workload at every operation; how many disks were recovered.
fn enumerate(workload: Workload, segment_bytes: u32) -> Tally {
    let tally = enumerate_with(workload, segment_bytes, 3, &CrashPolicy::ALL);
    assert!(tally.torn > 0 && tally.from_snapshot > 0, "{tally:?}");
    tally
}

fn enumerate_with(workload: Workload, segment_bytes: u32, seed: u64, policies: &[CrashPolicy]) -> Tally {
    let bench = || {
        let bench = Bench::new(seed).segment_bytes(segment_bytes);
        // Every other seed: past the page cache, with space allocated ahead.
        bench.disk.direct(seed.is_multiple_of(2));
        bench.disk.allocate_ahead(seed.is_multiple_of(2).then_some(1_500));
        bench
    };
    let mut whole = Run::start(bench());
    assert!(workload(&mut whole).is_ok(), "the workload runs");
    let count = whole.bench.disk.op_count();
    let mut references = References::default();
    let mut tally = Tally::default();
    for op in 1..=count {
        let mut run = Run::start(bench());
        run.bench.disk.crash_at(op);
        let finished = workload(&mut run).is_ok();
        assert!(run.bench.disk.is_off() || finished);
        run.open = None;
        for &policy in policies {
            let crashed = run.bench.fork();
            crashed.disk.crash(policy);
            let what = format!("seed {seed}, operation {op} of {count}, {policy:?}");
            check_recovered(&crashed, &run.model, &mut references, &mut tally, &what);
        }
    }
    println!("{count} operations, {tally:?}");
    // Every operation under every policy, and the workload is one that a crash can hurt.
    assert_eq!(tally.recovered as u64, count * policies.len() as u64);
    assert!(tally.lost_unacknowledged > 0, "{tally:?}");
    tally
}

#[test]
fn produce_survives_a_power_cut_at_every_operation() {
    let tally = enumerate(produce, 2000);
    assert!(tally.recovered > 1500 && tally.from_snapshot > 0, "{tally:?}");
}

/// Several writes unsynced at once: later ones land without earlier ones.
#[test]
fn group_commit_survives_a_power_cut_at_every_operation() {
    fn group_commit(run: &mut Run) -> Result<(), Off> {
        run.open()?;
        for _ in 0..3 {
            for producer in [1, 2, 3, 4] {
                run.data(producer, false, 600)?;
                run.settle()?;
            }
            run.sync()?;
        }
        run.checkpoint();
        Ok(())
    }
    let mixed = [CrashPolicy { data: DataFate::Mixed, names: NameFate::Kept }];
    let mut holes = 0;
    for seed in 0..12 {
        holes += enumerate_with(group_commit, 1 << 20, seed, &mixed).holes;
    }
    assert!(holes > 20, "{holes} holes were met");
}

#[test]
fn transactions_survive_a_power_cut_at_every_operation() {
    assert!(enumerate(transactions, 1500).recovered > 1300);
}

#[test]
fn cuts_survive_a_power_cut_at_every_operation() {
    assert!(enumerate(cuts, 1000).recovered > 1800);
}

/// Moving the log start deletes segments; what is left is a suffix, and a start below the log start is never served.
#[test]
fn deletion_survives_a_power_cut_at_every_operation() {
    fn delete(run: &mut Run) -> Result<(), Off> {
        run.open()?;
        for producer in [1, 2, 3, 1, 2, 3, 1] {
            run.data(producer, false, 400)?;
            run.sync()?;
        }
        run.checkpoint();
        run.model.log_start = 5;
        let open = run.open.as_mut().unwrap();
        open.log.advance_log_start(&mut *open.io, offset(5))?;
        run.data(2, false, 400)?;
        run.sync()
    }
    let bench = || Bench::new(3).segment_bytes(1000);
    let mut whole = Run::start(bench());
    assert!(delete(&mut whole).is_ok());
    let whole_producers = whole.log().producers();
    let count = whole.bench.disk.op_count();
    println!("{count} operations, {} crashed disks", count * CrashPolicy::ALL.len() as u64);
    for op in 1..=count {
        let mut run = Run::start(bench());
        run.bench.disk.crash_at(op);
        let finished = delete(&mut run).is_ok();
        run.open = None;
        for policy in CrashPolicy::ALL {
            let crashed = run.bench.fork();
            crashed.disk.crash(policy);
            let what = format!("operation {op} of {count}, {policy:?}");
            let mut options = crashed.options();
            options.recovery_point = offset(run.model.recovery_point);
            options.log_start_offset = offset(run.model.log_start);
            let mut open = crashed.try_open(options).unwrap_or_else(|error| panic!("{what}: {error}"));
            let end = open.log.log_end_offset().get();
            assert!(end >= run.model.acknowledged, "{what}");
            let start = open.log.view().log_start_offset.get();
            assert_eq!(start, run.model.log_start.min(end), "{what}");
            let bytes = open.read_all(Isolation::Uncommitted);
            for batch in BatchReader::new(&bytes) {
                let batch = batch.unwrap();
                let submitted =
                    run.model.submitted.iter().find(|s| Model::base_of(s) == batch.base_offset().get());
                assert_eq!(submitted.map(|s| &s[..]), Some(batch.bytes()), "{what}");
            }
            // The snapshots that a roll left know the producers of deleted segments.
            if finished && end == Model::end_of(run.model.submitted.last().unwrap()) {
                assert_equal_state(&open.producers(), &whole_producers, &what);
            }
            assert!(open.log.segments()[0].base_offset <= Offset::new(start).unwrap(), "{what}");
        }
    }
}
