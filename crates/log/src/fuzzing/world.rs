//! A partition, the machine under it, and what is right: operations are done to both the log and the [`History`], the
//! machine goes off, the log is opened again, and everything that can be asked of it is compared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use weir_format::{BatchReader, LeaderEpoch, Offset, RecordBatch, TimestampMs};
use weir_psm::ProducerStateError;
use weir_recovery::{CutKind, LoadError, ProducerStateSource, Rebuilt, RecoveryReport};
use weir_segment::SegmentConfig;
use weir_segment::io::sim::{CrashPolicy, DataFate, SimDisk, SimIo};
use weir_segment::io::{Done, Io, Op as DiskOp, Wait};

use super::history::{Batch, Ended, History, Retention, Verdict, What, next_sequence};
use crate::{
    AppendError, AppendParams, Appended, ChangeError, DeletionScope, Durability, Isolation, LogConfig,
    LogView, OffsetSpec, OpenOptions, Read, RetentionConfig, UnifiedLog,
};

/// The wall clock of every append, and the first timestamp.
const NOW: i64 = 1_767_225_600_000;
/// More turns than any wait takes.
const PATIENCE: usize = 100_000;

/// The disk and the settings of one world.
#[derive(Debug, Clone)]
pub struct Machine {
    /// What the disk's chance follows from.
    pub seed: u64,
    /// Completions in any order.
    pub reorder: bool,
    /// Short reads and writes.
    pub short: bool,
    /// Operations in flight.
    pub queue_depth: Option<usize>,
    /// Operations take time.
    pub slow: bool,
    /// Writes past the page cache.
    pub direct: bool,
    /// Space allocated ahead, first step in bytes.
    pub ahead: Option<u64>,
    /// Where segments are left, in bytes.
    pub segment_bytes: u32,
    /// What counts as durable.
    pub durability: Durability,
}

impl Machine {
    /// One that does nothing unusual.
    pub fn plain(seed: u64, segment_bytes: u32) -> Machine {
        Machine {
            seed,
            reorder: false,
            short: false,
            queue_depth: None,
            slow: false,
            direct: false,
            ahead: None,
            segment_bytes,
            durability: Durability::Synced,
        }
    }
}

/// What is done to a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A client's batch of nobody.
    Plain {
        /// Records.
        count: i64,
        /// Bytes of each.
        size: usize,
    },
    /// A client's batch that follows what its producer wrote.
    Produce {
        /// Whose.
        id: i64,
        /// Whether it asks for a transaction; in one it is of it anyway.
        transactional: bool,
        /// Records.
        count: i64,
        /// Bytes of each.
        size: usize,
    },
    /// A client's batch that may not follow: epoch and sequence differ by so much.
    ProduceOff {
        /// Whose.
        id: i64,
        /// By how much the epoch differs.
        epoch: i16,
        /// By how much the sequence differs.
        sequence: i32,
        /// Whether it is of a transaction.
        transactional: bool,
    },
    /// A client sends one of its last batches again.
    Again {
        /// Whose.
        id: i64,
        /// How many batches back.
        back: usize,
    },
    /// A coordinator ends a transaction, or writes a marker where there is none.
    Marker {
        /// Whose.
        id: i64,
        /// COMMIT, or ABORT.
        commit: bool,
        /// By how much the producer's epoch differs.
        epoch: i16,
        /// By how much the coordinator's epoch differs.
        coordinator: i32,
    },
    /// The coordinator writes a barrier.
    Barrier,
    /// Another leader's batches, in one append.
    Mirror(Vec<Mirrored>),
    /// What was gathered is submitted.
    Flush,
    /// Completions that are there are taken.
    Poll,
    /// A producer snapshot that is under way is moved on by one step.
    SnapshotStep,
    /// A sync is begun.
    SyncBegin,
    /// Everything is written.
    Settle,
    /// Everything is durable.
    Sync,
    /// The node writes its recovery point.
    Checkpoint,
    /// The node writes its log start.
    CheckpointStart,
    /// The log is cut at this offset.
    Truncate(i64),
    /// The log is emptied and goes on at this offset.
    StartOver(i64),
    /// The log start moves to this offset.
    DeleteTo(i64),
    /// Segments that are old, or too much, are deleted.
    Retain {
        /// How long records are kept, in milliseconds.
        ms: Option<u64>,
        /// How many bytes are kept.
        bytes: Option<u64>,
        /// How many segments may go.
        most: usize,
    },
    /// The leader epoch rises and is noted.
    Epoch,
    /// What only a log that is appended to needs is given back.
    Rest,
    /// A clean stop, and a start.
    Reopen,
    /// The process is killed, and started again.
    Kill,
    /// Readers of both kinds read everything, so many bytes at a time.
    Check(usize),
}

/// A batch of another leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirrored {
    /// Offsets that are missing in front of it.
    pub gap: i64,
    /// Whether a new leader wrote it.
    pub next_epoch: bool,
    /// What it is.
    pub what: What,
    /// Records, or offsets that compaction emptied.
    pub count: i64,
    /// Bytes of each.
    pub size: usize,
    /// Compaction took its records.
    pub emptied: bool,
}

/// Why an operation did not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The machine is off, or the partition is offline because the disk failed.
    Off,
    /// A write that the kernel had cut short left half a sector, and what lies behind it is there: that is told from rot
    /// by nothing, so the partition stays offline, and nothing of it was changed.
    HalfASector,
    /// Something is not as it must be.
    Wrong(String),
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Wrong(what.into()))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, right: &T) -> Result<(), Stop> {
    if found == right { Ok(()) } else { wrong(format!("{what}: {found:?} instead of {right:?}")) }
}

/// A way to be wrong that the checks must notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// None.
    Right,
    /// A duplicate is acknowledged when it is met.
    AcknowledgesDuplicatesAtOnce,
    /// A batch is acknowledged when it is written.
    AcknowledgesWhatIsWritten,
    /// A snapshot that somebody else wrote takes the place of ours, and is named as ours.
    TrustsForeignSnapshots,
}

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Tally {
    pub operations: u64,
    pub recoveries: u64,
    pub loads: u64,
    pub torn: u64,
    pub holes: u64,
    pub preallocated: u64,
    pub lost_unacknowledged: u64,
    pub from_snapshot: u64,
    pub barriers: u64,
    pub refused: u64,
    pub duplicates: u64,
    pub failed: u64,
    pub snapshots: u64,
    pub retained: u64,
    pub half_sectors: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Tally) {
        let Tally {
            operations,
            recoveries,
            loads,
            torn,
            holes,
            preallocated,
            lost_unacknowledged,
            from_snapshot,
            barriers,
            refused,
            duplicates,
            failed,
            snapshots,
            retained,
            half_sectors,
        } = other;
        self.operations += operations;
        self.recoveries += recoveries;
        self.loads += loads;
        self.torn += torn;
        self.holes += holes;
        self.preallocated += preallocated;
        self.lost_unacknowledged += lost_unacknowledged;
        self.from_snapshot += from_snapshot;
        self.barriers += barriers;
        self.refused += refused;
        self.duplicates += duplicates;
        self.failed += failed;
        self.snapshots += snapshots;
        self.retained += retained;
        self.half_sectors += half_sectors;
    }
}

/// A cut that was begun.
#[derive(Debug, Clone, Copy)]
struct Cutting {
    /// Everything goes, and the log goes on here.
    start_over: Option<i64>,
}

struct Process {
    io: SimIo,
    log: UnifiedLog,
}

/// A partition, its machine, and its history.
pub struct World {
    disk: SimDisk,
    dir: PathBuf,
    side_dir: PathBuf,
    config: LogConfig,
    process: Option<Process>,
    /// What must be.
    pub history: History,
    mutant: Mutant,
    /// What happened.
    pub tally: Tally,
    /// Timestamps rise by a little.
    clock: i64,
    leader_epoch: i32,
    /// What the node has in its checkpoints, and whether the last stop was clean.
    recovery_point: i64,
    log_start: i64,
    clean: bool,
    /// Below here everything was acknowledged: what a power cut, and what a kill may not take.
    promised: i64,
    promised_to_a_kill: i64,
    /// The process was killed, and the power was not cut since.
    killed: bool,
    cutting: Option<Cutting>,
    /// The highest log start that was asked for, and all of them.
    deleted_to: i64,
    starts: Vec<i64>,
    /// An epoch that may or may not have been noted.
    assigning: Option<(i32, i64)>,
    /// Where replays began: producers may be known from there on.
    replayed_from: Vec<i64>,
    /// Our snapshots by offset: their CRC, and from where on their writer knew producers.
    snapshots: BTreeMap<i64, (u32, i64)>,
    /// Those of them that were not looked into yet.
    unread_snapshots: Vec<i64>,
    /// The next sync, or one after it, fails.
    sync_fails: bool,
    /// The last power cut may have kept some sectors of a write and dropped others; so may a failed sync.
    scattered: bool,
    /// Reads and writes may be short.
    short: bool,
    /// The disk is full.
    full: bool,
    /// The disk was told to fail.
    faulty: bool,
}

impl World {
    /// An empty partition on a new machine, not open.
    pub fn new(machine: &Machine, mutant: Mutant) -> World {
        let disk = SimDisk::new(machine.seed);
        disk.yield_always(true);
        disk.reorder(machine.reorder);
        disk.short(machine.short);
        disk.queue_depth(machine.queue_depth);
        disk.slow(machine.slow.then_some(1_000..90_000));
        disk.direct(machine.direct);
        disk.allocate_ahead(machine.ahead);
        let segment = SegmentConfig {
            segment_bytes: machine.segment_bytes,
            index_interval_bytes: 200,
            ..SegmentConfig::default()
        };
        World {
            disk,
            dir: PathBuf::from("/data/t-0"),
            side_dir: PathBuf::from("/data.weir/t-0"),
            config: LogConfig { segment, durability: machine.durability, ..LogConfig::default() },
            process: None,
            history: History::default(),
            mutant,
            tally: Tally::default(),
            clock: NOW,
            leader_epoch: 0,
            recovery_point: 0,
            log_start: 0,
            clean: false,
            promised: 0,
            promised_to_a_kill: 0,
            killed: false,
            cutting: None,
            deleted_to: 0,
            starts: Vec::new(),
            assigning: None,
            replayed_from: vec![0],
            snapshots: BTreeMap::new(),
            unread_snapshots: Vec::new(),
            sync_fails: false,
            scattered: false,
            short: machine.short,
            full: false,
            faulty: false,
        }
    }

    /// The same machine and history, with a life of its own; nothing runs on it, and nothing fails that did not yet.
    pub fn fork(&self) -> World {
        let disk = self.disk.fork();
        if !disk.is_off() {
            disk.crash_at(u64::MAX);
        }
        disk.full_after(None);
        disk.fail_sync(u64::MAX);
        disk.fail_write(u64::MAX);
        World {
            disk,
            dir: self.dir.clone(),
            side_dir: self.side_dir.clone(),
            config: self.config.clone(),
            process: None,
            history: self.history.clone(),
            replayed_from: self.replayed_from.clone(),
            starts: self.starts.clone(),
            snapshots: self.snapshots.clone(),
            unread_snapshots: self.unread_snapshots.clone(),
            tally: Tally::default(),
            full: false,
            faulty: false,
            ..*self
        }
    }

    /// The machine's disk.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Whether the partition is open.
    pub fn is_open(&self) -> bool {
        self.process.is_some()
    }

    /// The partition's high watermark and log start, if it is open.
    pub fn view(&self) -> Option<Arc<LogView>> {
        self.process.as_ref().map(|process| process.log.view())
    }

    fn process(&mut self) -> Result<&mut Process, Stop> {
        self.process.as_mut().ok_or(Stop::Off)
    }

    /// Does one thing after the other.
    ///
    /// # Errors
    /// The machine is off, the partition is offline, or something is wrong.
    pub fn run(&mut self, ops: &[Op]) -> Result<(), Stop> {
        ops.iter().try_for_each(|op| self.step(op))
    }

    /// Does one thing, and looks at what is known afterwards.
    ///
    /// # Errors
    /// The machine is off, the partition is offline, or something is wrong.
    pub fn step(&mut self, op: &Op) -> Result<(), Stop> {
        self.tally.operations += 1;
        if self.process.is_none() {
            self.open()?;
        }
        self.act(op)?;
        self.acknowledge()?;
        self.check_live()
    }

    fn act(&mut self, op: &Op) -> Result<(), Stop> {
        match op {
            Op::Plain { count, size } => {
                let batch = self.made(What::Plain, *count, *size);
                self.as_leader(batch, Verdict::Append)
            }
            Op::Produce { id, transactional, count, size } => {
                let known = self.history.producer(*id);
                let epoch = known.as_ref().map_or(0, |known| known.epoch);
                let sequence = known.as_ref().map_or(0, |known| next_sequence(known, epoch));
                let transactional = *transactional || known.is_some_and(|known| known.open_since.is_some());
                self.client(*id, epoch, sequence, *count, *size, transactional)
            }
            Op::ProduceOff { id, epoch, sequence, transactional } => {
                let known = self.history.producer(*id);
                let epoch = (known.as_ref().map_or(0, |known| known.epoch) + epoch).max(0);
                let next = known.as_ref().map_or(0, |known| next_sequence(known, epoch));
                let sequence = next.saturating_add(*sequence).max(0);
                self.client(*id, epoch, sequence, 1, 20, *transactional)
            }
            Op::Again { id, back } => self.again(*id, *back),
            Op::Marker { id, commit, epoch, coordinator } => {
                let known = self.history.producer(*id);
                let (now, of_coordinator) =
                    known.map_or((0, 0), |known| (known.epoch, known.coordinator_epoch));
                let epoch = (now + epoch).max(0);
                let coordinator_epoch = (of_coordinator + coordinator).max(0);
                let what = What::Marker { id: *id, epoch, coordinator_epoch, commit: *commit };
                let verdict = self.history.coordinator(*id, epoch, coordinator_epoch);
                let batch = self.made(what, 1, 0);
                self.as_leader(batch, verdict)
            }
            Op::Barrier => {
                let batch = self.made(What::Barrier, 1, 0);
                self.as_leader(batch, Verdict::Append)
            }
            Op::Mirror(batches) => self.mirror(batches),
            Op::Flush => {
                let Process { io, log } = self.process()?;
                log.flush(io);
                Ok(())
            }
            Op::Poll => {
                let Process { io, log } = self.process()?;
                log.snapshot_step(io);
                self.reap(Wait::Poll)
            }
            Op::SnapshotStep => {
                let Process { io, log } = self.process()?;
                log.snapshot_step(io);
                Ok(())
            }
            Op::SyncBegin => {
                let Process { io, log } = self.process()?;
                log.sync_begin(io);
                Ok(())
            }
            Op::Settle => self.settle(),
            Op::Sync => self.sync(),
            Op::Checkpoint => {
                self.recovery_point = self.process()?.log.recovery_point().get();
                Ok(())
            }
            Op::CheckpointStart => {
                self.log_start = self.process()?.log.view().log_start_offset.get();
                Ok(())
            }
            Op::Truncate(to) => self.truncate(*to),
            Op::StartOver(at) => self.start_over(*at),
            Op::DeleteTo(to) => self.delete_to(*to),
            Op::Retain { ms, bytes, most } => self.retain(*ms, *bytes, *most),
            Op::Epoch => self.next_epoch(),
            Op::Rest => {
                let Process { io, log } = self.process()?;
                log.rest(io).map(|_| ()).map_err(|_| Stop::Off)
            }
            Op::Reopen => self.reopen(),
            Op::Kill => {
                // A reader of the page cache would see what the disk does not have.
                if !self.kill() && !self.disk.is_off() {
                    let nth = usize::try_from(self.clock).unwrap() % CrashPolicy::ALL.len();
                    self.power_cut(CrashPolicy::ALL[nth]);
                }
                self.recover()
            }
            Op::Check(max_bytes) => self.check_reads(*max_bytes),
        }
    }

    // Appending.

    fn made(&mut self, what: What, count: i64, size: usize) -> Batch {
        self.clock += 1;
        Batch::make(what, self.history.end, self.leader_epoch, self.clock, count, size, false)
    }

    fn client(
        &mut self,
        id: i64,
        epoch: i16,
        sequence: i32,
        count: i64,
        size: usize,
        transactional: bool,
    ) -> Result<(), Stop> {
        let verdict = self.history.client(id, epoch, sequence, count, transactional);
        let batch = self.made(What::Data { id, epoch, sequence, transactional }, count, size);
        self.as_leader(batch, verdict)
    }

    fn again(&mut self, id: i64, back: usize) -> Result<(), Stop> {
        let Some(known) = self.history.producer(id) else { return Ok(()) };
        let Some(original) = known.batches.len().checked_sub(back + 1).map(|at| known.batches[at]) else {
            return Ok(());
        };
        let transactional = known.open_since.is_some();
        self.client(id, known.epoch, original.0, original.3 - original.2 + 1, 20, transactional)
    }

    /// A client's or a coordinator's batch, of which this is said.
    fn as_leader(&mut self, batch: Batch, verdict: Verdict) -> Result<(), Stop> {
        let epoch = LeaderEpoch::new(self.leader_epoch).unwrap();
        let now = TimestampMs::new(NOW);
        let params = match batch.what {
            What::Plain | What::Data { .. } => AppendParams {
                may_start_transaction: true,
                // As checked before segments were made smaller.
                records_checked: batch.bytes.len() > self.config.segment.segment_bytes as usize,
                ..AppendParams::client(epoch, now)
            },
            What::Marker { .. } | What::Barrier => AppendParams::coordinator(epoch, now),
        };
        // As it is sent: at offset 0, under no epoch.
        let mut sent = BytesMut::from(&batch.bytes[..]);
        weir_format::set_base_offset(&mut sent, Offset::ZERO).unwrap();
        let base = batch.base;
        let last = batch.next() - 1;
        if verdict == Verdict::Append {
            self.tally.barriers += u64::from(batch.what == What::Barrier);
            self.history.push(batch);
        }
        let Process { io, log } = self.process()?;
        let result = log.append(io, sent, &params);
        match (result, verdict) {
            (Err(AppendError::Log { .. } | AppendError::Offline), _) => Err(Stop::Off),
            (Ok(appended), Verdict::Append) => {
                same("appended at", &place_of(&appended), &(base, last, false))?;
                same("durable at", &appended.durable_at.get(), &(last + 1))
            }
            (Ok(appended), Verdict::Duplicate(first, last)) => {
                self.tally.duplicates += 1;
                same("duplicate of", &place_of(&appended), &(first, last, true))?;
                if self.mutant == Mutant::AcknowledgesDuplicatesAtOnce {
                    self.promised = self.promised.max(last + 1);
                }
                same("durable at", &appended.durable_at.get(), &(last + 1))
            }
            (Err(AppendError::ProducerState { source }), verdict) => {
                self.tally.refused += 1;
                let said = match source {
                    ProducerStateError::InvalidProducerEpoch { .. } => Verdict::Epoch,
                    ProducerStateError::OutOfOrderSequence { .. } => Verdict::Sequence,
                    ProducerStateError::InvalidTxnState { .. } => Verdict::TransactionState,
                    ProducerStateError::TransactionCoordinatorFenced { .. } => Verdict::Coordinator,
                    other => return wrong(format!("refused: {other}")),
                };
                same("refused", &said, &verdict)
            }
            (result, verdict) => wrong(format!("{result:?} instead of {verdict:?}")),
        }
    }

    fn mirror(&mut self, batches: &[Mirrored]) -> Result<(), Stop> {
        let mut bytes = BytesMut::new();
        let first = self.history.end;
        for mirrored in batches {
            self.leader_epoch += i32::from(mirrored.next_epoch);
            self.clock += 1;
            let base = self.history.end + mirrored.gap;
            let Mirrored { what, count, size, emptied, .. } = *mirrored;
            let batch = Batch::make(what, base, self.leader_epoch, self.clock, count, size, emptied);
            bytes.extend_from_slice(&batch.bytes);
            self.tally.barriers += u64::from(what == What::Barrier);
            self.history.push(batch);
        }
        let params =
            AppendParams::replication(LeaderEpoch::new(self.leader_epoch).unwrap(), TimestampMs::new(NOW));
        let end = self.history.end;
        let Process { io, log } = self.process()?;
        match log.append(io, bytes, &params) {
            Ok(appended) => {
                let base = first + batches.first().map_or(0, |batch| batch.gap);
                same("mirrored to", &place_of(&appended), &(base, end - 1, false))
            }
            Err(AppendError::Log { .. } | AppendError::Offline) => Err(Stop::Off),
            Err(error) => wrong(format!("a mirror's batches are refused: {error}")),
        }
    }

    // Moving on.

    fn reap(&mut self, wait: Wait) -> Result<(), Stop> {
        let Process { io, log } = self.process()?;
        let mut done: Vec<Done> = Vec::new();
        io.reap(wait, &mut done).map_err(|_| Stop::Off)?;
        for done in done {
            if log.on_done(done).is_err() {
                return wrong("a completion belongs to nobody");
            }
        }
        Ok(())
    }

    fn wait_until(&mut self, is_so: impl Fn(&UnifiedLog) -> bool, sync: bool) -> Result<(), Stop> {
        for _ in 0..PATIENCE {
            let Process { io, log } = self.process()?;
            if log.is_offline() {
                return Err(Stop::Off);
            }
            if is_so(log) {
                return Ok(());
            }
            log.flush(io);
            if sync {
                log.sync_begin(io);
            }
            self.reap(Wait::Block)?;
            self.acknowledge()?;
        }
        wrong("it never ends")
    }

    fn settle(&mut self) -> Result<(), Stop> {
        self.wait_until(|log| !log.has_unsent() && !log.is_busy(), false)
    }

    /// All is durable, and a snapshot that was under way is named.
    fn sync(&mut self) -> Result<(), Stop> {
        self.wait_until(|log| log.recovery_point() >= log.log_end_offset() && !log.is_busy(), true)?;
        let Process { io, log } = self.process()?;
        log.finish_snapshot(io);
        Ok(())
    }

    /// What is acknowledged by now must be there after any crash.
    fn acknowledge(&mut self) -> Result<(), Stop> {
        let mutant = self.mutant;
        let written_is_durable = self.config.durability == Durability::Written;
        let process = self.process()?;
        process.log.progress();
        if process.log.is_offline() {
            return Err(Stop::Off);
        }
        let log = &process.log;
        let high_watermark = log.view().high_watermark.get();
        let (written, synced) = (log.written_end_offset().get(), log.recovery_point().get());
        let promised = if written_is_durable { synced } else { high_watermark };
        if synced > high_watermark || high_watermark > written {
            return wrong(format!("synced {synced}, high watermark {high_watermark}, written {written}"));
        }
        self.promised = self.promised.max(promised);
        if mutant == Mutant::AcknowledgesWhatIsWritten {
            self.promised = self.promised.max(written);
        }
        self.promised_to_a_kill = self.promised_to_a_kill.max(written);
        Ok(())
    }

    // Changing.

    fn changed(&mut self, result: Result<(), ChangeError>) -> Result<(), Stop> {
        match result {
            Ok(()) => Ok(()),
            Err(ChangeError::Log { .. } | ChangeError::Offline) => Err(Stop::Off),
            Err(ChangeError::Replay { source: LoadError::Io(_) }) => Err(Stop::Off),
            Err(error) => wrong(format!("a change is refused: {error}")),
        }
    }

    fn truncate(&mut self, to: i64) -> Result<(), Stop> {
        if to >= self.history.end {
            return self.cut_epochs(to);
        }
        if to < self.history.first_base {
            return self.begin_start_over(to, |log, io, to| log.truncate_to(io, to));
        }
        let start_before = self.process()?.log.view().log_start_offset.get();
        self.cutting = Some(Cutting { start_over: None });
        self.promised = self.promised.min(to);
        self.promised_to_a_kill = self.promised_to_a_kill.min(to);
        let Process { io, log } = self.process()?;
        let result = log.truncate_to(io, Offset::new(to).unwrap());
        self.changed(result)?;
        let log = &self.process()?.log;
        let end = log.log_end_offset().get();
        let start = log.view().log_start_offset.get();
        let snapshots: Vec<i64> = log.partition_file().snapshots().map(|(at, _)| at.get()).collect();
        self.history.cut_epochs(start_before, end);
        self.history.batches.retain(|batch| batch.next() <= to);
        let least = self.history.batches.last().map_or(0, Batch::next);
        if end < least || end > to {
            return wrong(format!("cut at {to}, the log ends at {end}, its last batch at {least}"));
        }
        self.history.end = end;
        (self.promised, self.promised_to_a_kill) = (self.promised.min(end), self.promised_to_a_kill.min(end));
        self.history.knowledge.retain(|(at, _)| *at < end.max(1));
        self.cutting = None;
        self.log_start = self.log_start.min(start);
        if end <= self.history.clipped_to {
            self.history.clipped_to = start;
        }
        // Epochs may be known from there on alone, whatever the node remembers of the log start.
        self.starts.push(start);
        if self.history.on_disk().next().is_none() {
            self.history.epochs_from = end;
        }
        // Producers are known from the newest snapshot that is left and what lies behind it, or from the first segment.
        let first_base = self.history.first_base;
        match snapshots.into_iter().rfind(|at| *at <= end && *at >= first_base) {
            Some(snapshot) => self.adopt_snapshot(snapshot, end),
            None => {
                self.history.reloaded_at = 0;
                self.history.knows_from(end, first_base);
                self.replayed_from.push(first_base);
            }
        }
        Ok(())
    }

    /// A cut that leaves every batch takes an epoch that began at the log end.
    fn cut_epochs(&mut self, to: i64) -> Result<(), Stop> {
        self.cutting = Some(Cutting { start_over: None });
        let Process { io, log } = self.process()?;
        let result = log.truncate_to(io, Offset::new(to).unwrap());
        self.changed(result)?;
        self.cutting = None;
        let start = self.process()?.log.view().log_start_offset.get();
        self.history.cut_epochs(start, to);
        Ok(())
    }

    fn start_over(&mut self, at: i64) -> Result<(), Stop> {
        self.begin_start_over(at, |log, io, at| log.truncate_fully_and_start_at(io, at))
    }

    fn begin_start_over(
        &mut self,
        at: i64,
        change: impl Fn(&mut UnifiedLog, &mut dyn Io, Offset) -> Result<(), ChangeError>,
    ) -> Result<(), Stop> {
        self.cutting = Some(Cutting { start_over: Some(at) });
        (self.promised, self.promised_to_a_kill) = (0, 0);
        let Process { io, log } = self.process()?;
        let result = change(log, io, Offset::new(at).unwrap());
        self.changed(result)?;
        self.started_over(at);
        Ok(())
    }

    fn started_over(&mut self, at: i64) {
        self.cutting = None;
        self.history = History { end: at, first_base: at, ..History::default() };
        self.replayed_from = vec![at];
        self.deleted_to = at;
        self.starts.clear();
        self.log_start = self.log_start.min(at);
    }

    fn delete_to(&mut self, to: i64) -> Result<(), Stop> {
        self.deleted_to = self.deleted_to.max(to);
        self.starts.push(to);
        let Process { io, log } = self.process()?;
        let result = log.advance_log_start(io, Offset::new(to).unwrap());
        self.changed(result)?;
        self.history.first_base = first_base(&self.process()?.log);
        Ok(())
    }

    fn retain(&mut self, ms: Option<u64>, bytes: Option<u64>, most: usize) -> Result<(), Stop> {
        let now = self.clock;
        let log = &self.process()?.log;
        let bases: Vec<i64> = log.segments().iter().map(|segment| segment.base_offset.get()).collect();
        let view = log.view();
        let (start, high_watermark) = (view.log_start_offset.get(), view.high_watermark.get());
        let snapshot = log.partition_file().snapshots().map(|(at, _)| at.get()).max().unwrap_or(0);
        let nobody = log.producers().next().is_none();
        let newest = log.last_batch().map_or(i64::MAX, |last| last.base_offset.get());
        let known_from = if nobody { i64::MAX } else { snapshot };
        let may = Retention { now, ms, bytes, most, start, high_watermark, known_from };
        let kept = self.history.first_kept(&bases, &may);
        // Where snapshots fail nobody waits for one.
        let anyway = self.history.first_kept(&bases, &Retention { known_from: i64::MAX, ..may });
        // Where leader epochs cannot be written the newest batch stays.
        let newest = bases.iter().rfind(|base| **base <= newest).copied().unwrap_or(i64::MAX);
        let rights =
            if self.faulty { vec![kept, anyway, kept.min(newest), anyway.min(newest)] } else { vec![kept] };
        self.deleted_to = rights.iter().fold(self.deleted_to, |to, right| to.max(*right));
        self.starts.extend(rights.iter().map(|right| *right.max(&start)));
        let Process { io, log } = self.process()?;
        log.config.retention = RetentionConfig { ms, bytes, future_by_file_age: false };
        let result = log.delete_old_segments(io, TimestampMs::new(now), DeletionScope::Retention, most);
        let deleted = result.as_ref().map_or(0, |deleted| deleted.segment_count);
        self.changed(result.map(|_| ()))?;
        if self.disk.is_off() {
            // What fails alone, as leader epochs do, may have met it.
            return Err(Stop::Off);
        }
        let log = &self.process()?.log;
        let (first, now_starts) = (first_base(log), log.view().log_start_offset.get());
        if !rights.contains(&first) {
            return wrong(format!(
                "retention: the log begins at {first} instead of {rights:?}, was {bases:?}"
            ));
        }
        let gone = bases.iter().filter(|base| **base < first).count();
        same("retention: segments", &deleted, &gone)?;
        same("retention: log start", &now_starts, &if gone > 0 { start.max(first) } else { start })?;
        self.tally.retained += u64::try_from(gone).unwrap();
        self.history.first_base = first;
        Ok(())
    }

    fn next_epoch(&mut self) -> Result<(), Stop> {
        self.leader_epoch += 1;
        let noted = (self.leader_epoch, self.history.end);
        self.assigning = Some(noted);
        let Process { io, log } = self.process()?;
        let result = log.assign_leader_epoch(io, LeaderEpoch::new(noted.0).unwrap());
        self.changed(result)?;
        self.assigning = None;
        self.history.assigned.push(noted);
        Ok(())
    }

    // Stopping and starting.

    /// The process ends without a word, what it had in flight is done. False if a sync of it failed: then the page cache
    /// holds what the disk does not have, and a power cut is all that can follow.
    pub fn kill(&mut self) -> bool {
        self.killed = true;
        let Some(Process { mut io, .. }) = self.process.take() else { return true };
        let mut done: Vec<Done> = Vec::new();
        while io.in_flight() > 0 && io.reap(Wait::Block, &mut done).is_ok() {}
        let failed = |done: &Done| matches!(done.op, DiskOp::Sync { .. }) && done.result.is_err();
        !done.iter().any(failed)
    }

    /// The power is cut; what was not synced meets this fate.
    pub fn power_cut(&mut self, policy: CrashPolicy) {
        self.process = None;
        self.scattered = self.sync_fails || matches!(policy.data, DataFate::Mixed | DataFate::Cut);
        self.disk.crash(policy);
        self.promised_to_a_kill = self.promised;
        self.killed = false;
    }

    /// A disk that failed works again.
    pub fn repair(&mut self) {
        (self.full, self.faulty, self.sync_fails) = (false, false, false);
        self.disk.full_after(None);
        self.disk.fail_sync(u64::MAX);
        self.disk.fail_write(u64::MAX);
    }

    /// The disk is full once it has taken so many bytes more.
    pub fn fill(&mut self, room: u64) {
        (self.full, self.faulty) = (true, true);
        self.disk.full_after(Some(room));
    }

    /// A write fails, from now on the `nth`.
    pub fn fail_write(&mut self, nth: u64) {
        self.faulty = true;
        self.disk.fail_write(nth);
    }

    /// A sync fails, from now on the `nth`.
    pub fn fail_sync(&mut self, nth: u64) {
        (self.faulty, self.sync_fails) = (true, true);
        self.disk.fail_sync(nth);
    }

    fn reopen(&mut self) -> Result<(), Stop> {
        let Some(Process { mut io, log }) = self.process.take() else { return Err(Stop::Off) };
        let (end, start) = (log.log_end_offset().get(), log.view().log_start_offset.get());
        if log.close(&mut io).is_err() {
            return Err(Stop::Off);
        }
        (self.promised, self.promised_to_a_kill) = (end, end);
        (self.recovery_point, self.log_start) = (end, start);
        self.clean = true;
        drop(io);
        self.open()
    }

    /// Foreign bytes in place of our newest snapshot, named as ours: what trusting them comes to.
    fn plant_foreign_snapshot(&self) {
        let Some(bytes) = self.disk.read_file(&self.side_dir.join("partition")) else { return };
        let Ok(mut file) = weir_recovery::PartitionFile::decode(&bytes) else { return };
        let Some((at, _)) = file.snapshots().last() else { return };
        // What a Kafka that does not know the barrier keeps: every producer that ever wrote.
        let mut foreign = weir_psm::ProducerStateManager::new(self.config.psm);
        for batch in self.history.on_disk().filter(|batch| batch.next() <= at.get()) {
            let parsed = RecordBatch::parse(&batch.bytes).unwrap();
            if parsed.is_barrier() {
                continue;
            }
            let base = parsed.base_offset();
            if let Ok(weir_psm::Checked::Append(transition)) =
                foreign.check(&parsed, base, weir_psm::AppendOrigin::Replication)
            {
                let _applied = foreign.commit(transition);
            }
        }
        if foreign.map_end_offset() < at {
            foreign.update_map_end_offset(at);
        }
        let bytes = foreign.snapshot();
        file.note_snapshot(at, weir_recovery::partition_file::crc32c(&bytes));
        let name = weir_segment::layout::file_path(&self.dir, at, weir_segment::layout::FileKind::Snapshot);
        self.disk.write_file(&name, &bytes);
        self.disk.write_file(&self.side_dir.join("partition"), &file.encode());
    }

    /// Opens the log: everything that must be there is, and everything that is known is right.
    ///
    /// # Errors
    /// The machine is off, or something is wrong.
    pub fn open(&mut self) -> Result<(), Stop> {
        self.tally.loads += 1;
        if self.mutant == Mutant::TrustsForeignSnapshots {
            self.plant_foreign_snapshot();
        }
        let options = OpenOptions {
            side_dir: self.side_dir.clone(),
            // The marker is removed before the first log is opened.
            clean_shutdown: std::mem::take(&mut self.clean),
            recovery_point: Offset::new(self.recovery_point).unwrap(),
            log_start_offset: Offset::new(self.log_start).unwrap(),
            now: TimestampMs::new(NOW),
        };
        let half_a_sector = (self.short && self.scattered).then(|| self.log_bytes());
        let named = self.disk.read_file(&self.side_dir.join("partition"));
        let named = named.and_then(|bytes| weir_recovery::PartitionFile::decode(&bytes).ok());
        let named = named.iter().flat_map(|file| file.snapshots()).map(|(at, _)| at.get()).collect();
        let mut io = self.disk.io();
        let (log, report) = match UnifiedLog::open(&mut io, &self.dir, self.config.clone(), options) {
            // Also where it went off with something that the log can do without.
            Ok(_) | Err(_) if self.disk.is_off() => return Err(Stop::Off),
            Ok(opened) => opened,
            // Also on a full disk: what lies behind a hole is archived before it is cut, and there is no room for that.
            Err(LoadError::Io(_)) if self.faulty => return Err(Stop::Off),
            Err(LoadError::Corrupt(corruption)) if half_a_sector.is_some() => {
                let next = corruption.next_offset.get();
                let promised = if self.killed { self.promised_to_a_kill } else { self.promised };
                let acknowledged = self.history.batches.iter().map(Batch::next).filter(|at| *at <= promised);
                if corruption.last_segment.is_some() || acknowledged.max().is_some_and(|at| at > next) {
                    return wrong(format!("acknowledged bytes are called corrupt: {corruption:?}"));
                }
                if half_a_sector != Some(self.log_bytes()) {
                    return wrong(format!("something was cut: {corruption:?}"));
                }
                self.tally.half_sectors += 1;
                return Err(Stop::HalfASector);
            }
            Err(error) => return wrong(format!("it cannot be opened: {error}")),
        };
        self.count(&report)?;
        self.process = Some(Process { io, log });
        self.adopt(&report, named)?;
        self.check_live()
    }

    fn count(&mut self, report: &RecoveryReport) -> Result<(), Stop> {
        for cut in &report.cuts {
            match &cut.kind {
                CutKind::Torn => self.tally.torn += 1,
                CutKind::Preallocated => self.tally.preallocated += 1,
                CutKind::Hole { archive, .. } => {
                    self.tally.holes += 1;
                    let archived = self.disk.read_file(archive).map(|bytes| bytes.len() as u64);
                    same("archived bytes", &archived, &Some(cut.size))?;
                }
                other => return wrong(format!("an unknown cut {other:?}")),
            }
        }
        if matches!(report.producer_state, ProducerStateSource::Snapshot { .. }) {
            self.tally.from_snapshot += 1;
        }
        Ok(())
    }

    /// Opens the log after a crash, and once more in every way that must come to the same: again, again after one more
    /// power cut, and without any file but the `.log` files.
    ///
    /// # Errors
    /// The machine is off, or something is wrong.
    pub fn recover(&mut self) -> Result<(), Stop> {
        self.tally.recoveries += 1;
        self.open()?;
        if self.mutant == Mutant::TrustsForeignSnapshots {
            return Ok(());
        }
        let named = |what: &'static str| {
            move |stop| match stop {
                Stop::Wrong(found) => Stop::Wrong(format!("{what}: {found}")),
                other => Stop::Wrong(format!("{what}: {other:?}")),
            }
        };
        let mut again = self.fork();
        let before = again.disk.contents();
        again.open().map_err(named("again"))?;
        let cuts = again.tally.torn + again.tally.holes + again.tally.preallocated;
        same("again: cuts", &cuts, &0)?;
        again.process = None;
        let after = again.disk.contents();
        // What a failing disk did not take is written now.
        if after != before && !self.faulty {
            let differ: Vec<_> = after
                .iter()
                .filter(|(path, bytes)| before.get(*path) != Some(*bytes))
                .map(|(path, _)| path)
                .chain(before.keys().filter(|path| !after.contains_key(*path)))
                .collect();
            return wrong(format!("again: {differ:?} differ"));
        }
        let mut cut = self.fork();
        cut.power_cut(CrashPolicy::DROP_ALL);
        cut.open().map_err(named("after one more power cut"))?;
        let mut bare = self.fork();
        bare.remove_auxiliary_files();
        bare.history.assigned.clear();
        bare.starts.clear();
        bare.history.batches.retain(|batch| batch.base >= self.history.first_base);
        bare.clean = self.clock % 2 == 0;
        bare.open().map_err(named("bare"))?;
        bare.check_reads(700).map_err(named("bare"))?;
        self.tally.loads += 3;
        self.check_reads(900)
    }

    fn remove_auxiliary_files(&self) {
        for path in self.disk.files() {
            let is_log = path.extension().is_some_and(|suffix| suffix == "log");
            if (path.starts_with(&self.dir) && !is_log) || path.starts_with(&self.side_dir) {
                self.disk.remove_file(&path);
            }
        }
    }

    /// The `.log` files, one behind the other.
    fn log_bytes(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for path in self.disk.files() {
            if path.parent() == Some(&self.dir) && path.extension().is_some_and(|suffix| suffix == "log") {
                all.extend(self.disk.read_file(&path).unwrap_or_default());
            }
        }
        all
    }

    /// What is on the disk becomes the history: it must be a prefix of it, with all that was promised.
    fn adopt(&mut self, report: &RecoveryReport, named: Vec<i64>) -> Result<(), Stop> {
        self.note_snapshots();
        let log = &self.process()?.log;
        let (first, end) = (first_base(log), log.log_end_offset().get());
        let start = log.view().log_start_offset.get();
        let epochs = epochs_of(log);
        if let Some(Cutting { start_over: Some(at), .. }) = self.cutting
            && self.log_bytes().is_empty()
            && (first == at || first == 0)
            && end == first
        {
            let of_before = self.epoch_events();
            self.started_over(first);
            self.adopt_epochs(&epochs, &of_before, start, report)?;
            return self.adopt_promise(end);
        }
        let before = self.history.first_base;
        if first < before || first > before.max(self.deleted_to) {
            return wrong(format!(
                "the first segment is {first}, was {before}, deleted to {}",
                self.deleted_to
            ));
        }
        let kept: Vec<&Batch> =
            self.history.batches.iter().filter(|batch| batch.base >= first && batch.next() <= end).collect();
        let bytes: Vec<u8> = kept.iter().flat_map(|batch| batch.bytes.iter().copied()).collect();
        if bytes != self.log_bytes() {
            return wrong(format!("the bytes up to {end} are not those that were submitted (R2, R3)"));
        }
        let promised = if self.killed { self.promised_to_a_kill } else { self.promised };
        let promised = self.history.batches.iter().map(Batch::next).filter(|next| *next <= promised).max();
        if promised.is_some_and(|promised| promised > end) {
            return wrong(format!("{promised:?} was acknowledged, the log ends at {end} (R1)"));
        }
        let last = kept.last().map_or(first, |batch| batch.next());
        if end < last || end > self.history.end.max(first) {
            return wrong(format!("the log ends at {end}, its last batch at {last}"));
        }
        let lost = self.history.batches.last().is_some_and(|batch| batch.next() > end);
        self.tally.lost_unacknowledged += u64::from(lost);
        let of_before = self.epoch_events();
        self.history.first_base = first;
        self.history.end = end;
        self.history.batches.retain(|batch| batch.next() <= end);
        self.history.knowledge.retain(|(at, _)| *at <= end);
        self.adopt_epochs(&epochs, &of_before, start, report)?;
        self.cutting = None;
        let expected_start = self.log_start.max(first).min(end);
        same("log start", &start, &expected_start)?;
        match report.producer_state {
            ProducerStateSource::Snapshot { offset } => {
                let before = self.history.knowledge.clone();
                self.adopt_snapshot(offset.get(), offset.get());
                // Where all was walked, it began with nobody and went on from each snapshot that it came to.
                if report.walked_from.map(Offset::get) == Some(first) && self.check_aborted().is_err() {
                    let named = named.into_iter().filter(|at| *at >= first && *at <= offset.get());
                    let of = |at: i64| (at, self.snapshots.get(&at).map_or(first, |(_, from)| *from));
                    let walked: Vec<_> = [(0, first)].into_iter().chain(named.map(of)).collect();
                    self.history.knowledge = walked;
                    if self.check_producers().is_err() {
                        self.history.knowledge = before;
                    }
                }
            }
            _ => {
                self.history.reloaded_at = 0;
                self.history.knowledge = vec![(0, first)];
                self.replayed_from.push(first);
                // The one at the end was written by this load, and knows what it replayed.
                if report.rebuilt.contains(&Rebuilt::PartitionFile) {
                    self.snapshots.remove(&end);
                }
            }
        }
        self.adopt_promise(end)
    }

    /// Notes who wrote which snapshot.
    fn note_snapshots(&mut self) {
        let Some(Process { log, .. }) = &self.process else { return };
        let from = self.history.known_from();
        for (at, crc) in log.partition_file().snapshots() {
            if self.snapshots.get(&at.get()).is_none_or(|noted| noted.0 != crc) {
                self.snapshots.insert(at.get(), (crc, from));
                self.unread_snapshots.push(at.get());
            }
        }
    }

    /// What new snapshots say is what the history said of the log up to there (B7).
    fn check_snapshots(&mut self) -> Result<(), Stop> {
        for at in std::mem::take(&mut self.unread_snapshots) {
            // What trusting it comes to is to be seen.
            if self.mutant == Mutant::TrustsForeignSnapshots {
                continue;
            }
            let Some((crc, from)) = self.snapshots.get(&at).copied() else { continue };
            let kind = weir_segment::layout::FileKind::Snapshot;
            let path = weir_segment::layout::file_path(&self.dir, Offset::new(at).unwrap(), kind);
            let Some(bytes) = self.disk.read_file(&path) else {
                // It was removed, and the disk did not take a partition file without it.
                if self.faulty {
                    continue;
                }
                return wrong(format!("the snapshot at {at} is named and not there"));
            };
            same("CRC of a snapshot", &weir_recovery::partition_file::crc32c(&bytes), &crc)?;
            let entries = match weir_psm::snapshot::decode(&bytes) {
                Ok(entries) => entries,
                Err(error) => return wrong(format!("the snapshot at {at}: {error}")),
            };
            let found: Vec<_> = entries.iter().map(|(id, entry)| (id.get(), known_of(entry))).collect();
            let mut past = History { knowledge: Vec::new(), ..self.history.clone() };
            past.batches.retain(|batch| batch.next() <= at);
            past.reloaded_at = at;
            let rights = [from].into_iter().chain(self.replayed_from.iter().copied()).map(|from| {
                past.knowledge = vec![(0, from)];
                let of = |id: i64| past.producer(id).map(|known| (id, known));
                past.ids().into_iter().filter_map(of).collect::<Vec<_>>()
            });
            let rights: Vec<_> = rights.collect();
            if !rights.contains(&found) {
                return wrong(format!("the snapshot at {at} says {found:?} instead of {:?}", rights[0]));
            }
            self.tally.snapshots += 1;
        }
        Ok(())
    }

    /// Producers are known from a snapshot. It may have been written by a life that knew more, or less, than the last one.
    fn adopt_snapshot(&mut self, snapshot: i64, at: i64) {
        self.history.reloaded_at = snapshot;
        let now = self.history.known_from();
        let written = self.snapshots.get(&snapshot).map_or(now, |(_, from)| *from);
        self.history.knowledge.retain(|(since, _)| *since < at.max(1));
        let live = self.history.knowledge.clone();
        for from in [written, now].into_iter().chain(self.replayed_from.clone()) {
            self.history.knows_from(at, from);
            if self.check_producers().is_ok() {
                return;
            }
            self.history.knowledge.clone_from(&live);
        }
    }

    fn adopt_promise(&mut self, end: i64) -> Result<(), Stop> {
        let log = &self.process()?.log;
        same("high watermark", &log.view().high_watermark.get(), &end)?;
        (self.promised, self.promised_to_a_kill, self.killed) = (end, end, false);
        Ok(())
    }

    /// Every epoch that was ever met or noted, and where.
    fn epoch_events(&self) -> Vec<(i32, i64)> {
        let of_batches = self.history.batches.iter().map(|batch| (batch.leader_epoch, batch.base));
        of_batches.chain(self.history.assigned.iter().copied()).chain(self.assigning).collect()
    }

    /// The epochs are those of the history. One of which the first batch was lost may be known without it.
    fn adopt_epochs(
        &mut self,
        found: &[(i32, i64)],
        of_before: &[(i32, i64)],
        start: i64,
        report: &RecoveryReport,
    ) -> Result<(), Stop> {
        let end = self.history.end;
        self.history.assigned.retain(|(_, at)| *at <= end);
        let noted = self.history.assigned.clone();
        let without: Vec<(i32, i64)> = noted.iter().copied().filter(|(_, at)| *at < end).collect();
        let mut choices = vec![noted.clone()];
        // Where written is durable, a power cut may take what lies below a log start, and with it what was noted there.
        if self.cutting.is_some() || self.starts.iter().any(|at| *at > end) {
            choices.push(without.clone());
        }
        choices.extend(self.assigning.filter(|(_, at)| *at <= end).map(|new| [&noted[..], &[new]].concat()));
        // Where the log start that the epochs were clipped to is forgotten, the batches say where each began.
        if self.starts.iter().any(|at| *at > start) {
            choices.push(noted.iter().copied().filter(|(_, at)| *at == end).collect());
        }
        let newest = self.history.epochs(start).last().map_or(-1, |newest| newest.0);
        let lost = of_before.iter().filter(|(epoch, at)| *at >= end && *epoch > newest);
        choices.extend(lost.map(|(epoch, _)| [&without[..], &[(*epoch, end)]].concat()));
        // An empty log may remember the epoch that was in force when it was cut, or none.
        if self.history.on_disk().next().is_none()
            && (self.cutting.is_some() || self.history.batches.is_empty())
        {
            self.history.epochs_from = end;
            choices.push(Vec::new());
            choices.extend(of_before.iter().map(|(epoch, _)| vec![(*epoch, start)]));
        }
        // Rebuilt from the batches, an epoch that began in a gap begins anywhere in it: at its first batch, or where the
        // log had once started.
        if report.rebuilt.contains(&Rebuilt::LeaderEpochs) {
            let in_gap = |from: i64, to: i64| {
                from < to && self.history.batches.iter().all(|batch| batch.next() <= from || batch.base >= to)
            };
            let moved = |(epoch, at): (i32, i64)| {
                let now = found.iter().find(|entry| entry.0 == epoch && in_gap(at, entry.1));
                (epoch, now.map_or(at, |now| now.1))
            };
            let all: Vec<Vec<(i32, i64)>> = choices
                .iter()
                .map(|choice| {
                    // One that gave way at its offset does not come back when the next one moves.
                    let gave_way =
                        |one: &(i32, i64)| choice.iter().any(|other| other.1 == one.1 && other.0 > one.0);
                    choice.iter().copied().filter(|one| !gave_way(one)).map(moved).collect()
                })
                .collect();
            choices.extend(all);
        }
        self.assigning = None;
        let right = self.history.epochs(start);
        let starts: Vec<i64> = [0].into_iter().chain(self.starts.iter().copied()).collect();
        // What was rebuilt from the batches knows no epoch of which none is left, and nobody can ask for its records.
        let first_base = self.history.first_base;
        let epochs_from = self.history.epochs_from;
        let known_from = [epochs_from, epochs_from.max(first_base), first_base];
        for choice in choices {
            self.history.assigned = choice;
            for (clipped_to, known_from) in starts.iter().flat_map(|at| known_from.map(|from| (*at, from))) {
                self.history.clipped_to = clipped_to.min(end);
                self.history.epochs_from = known_from;
                if self.history.epochs(start) == found {
                    return Ok(());
                }
            }
        }
        let on_disk: Vec<_> =
            self.history.on_disk().map(|batch| (batch.base, batch.next(), batch.leader_epoch)).collect();
        wrong(format!(
            "leader epochs: {found:?} instead of {right:?} or what a crash makes of it; noted {noted:?}, end {end}, {on_disk:?}"
        ))
    }

    // Comparing.

    fn check_producers(&self) -> Result<(), Stop> {
        let Some(Process { log, .. }) = &self.process else { return Err(Stop::Off) };
        let found: Vec<i64> = log.producers().map(|(id, _)| id.get()).collect();
        let right: Vec<i64> = self.history.ids().into_iter().collect();
        same("producers", &found, &right)?;
        for (id, entry) in log.producers() {
            same(&format!("producer {id}"), &Some(known_of(entry)), &self.history.producer(id.get()))?;
        }
        let found: Vec<(i64, i64)> = log
            .open_transactions()
            .iter()
            .map(|open| (open.first_offset.get(), open.producer_id.get()))
            .collect();
        same("open transactions", &found, &self.history.transactions().1)
    }

    /// What the log knows is what its history says.
    fn check_live(&mut self) -> Result<(), Stop> {
        self.note_snapshots();
        self.check_producers()?;
        self.check_snapshots()?;
        let history = &self.history;
        let Some(Process { log, .. }) = &self.process else { return Err(Stop::Off) };
        same("log end", &log.log_end_offset().get(), &history.end)?;
        let view = log.view();
        let (start, high_watermark) = (view.log_start_offset.get(), view.high_watermark.get());
        if start > high_watermark {
            return wrong(format!("the log starts at {start}, above its high watermark {high_watermark}"));
        }
        let stable = history.last_stable_offset(high_watermark).max(start);
        same("last stable offset", &view.last_stable_offset.get(), &stable)?;
        same("leader epochs", &epochs_of(log), &history.epochs(start))?;
        for (epoch, _) in history.epochs(start) {
            let asked = LeaderEpoch::new(epoch).unwrap();
            let next = history.epochs(start).iter().find(|entry| entry.0 > epoch).map(|entry| entry.1);
            let right = (epoch, next.unwrap_or(history.end));
            let found = log.end_offset_for_epoch(asked).map(|(epoch, end)| (epoch.get(), end.get()));
            same("end of an epoch", &found, &Some(right))?;
        }
        let barriers: Vec<(i64, bool)> = log
            .partition_file()
            .barriers()
            .map(|(at, note)| (at.get(), note.aborted_transaction))
            .filter(|(at, _)| *at >= history.first_base)
            .collect();
        same("barriers", &barriers, &history.barriers())?;
        self.check_aborted()
    }

    fn check_aborted(&mut self) -> Result<(), Stop> {
        let Some(Process { io, log }) = &mut self.process else { return Err(Stop::Off) };
        let mut aborted = Vec::new();
        for segment in log.segments() {
            let Ok(entries) = log.segment_transactions(io, segment.base_offset) else {
                return Err(Stop::Off);
            };
            aborted.extend(entries.iter().map(|entry| Ended {
                id: entry.producer_id.get(),
                first: entry.first_offset.get(),
                last: entry.last_offset.get(),
                aborted: true,
                stable: entry.last_stable_offset.get(),
            }));
        }
        same("aborted transactions", &aborted, &self.history.aborted())
    }

    /// Readers of both kinds get what they must, and so does whoever asks for a timestamp.
    fn check_reads(&mut self, max_bytes: usize) -> Result<(), Stop> {
        let history = &self.history;
        let Some(Process { io, log }) = &mut self.process else { return Err(Stop::Off) };
        let view = log.view();
        let (start, stable) = (view.log_start_offset.get(), view.last_stable_offset.get());
        for isolation in [Isolation::Uncommitted, Isolation::Committed] {
            let end = view.end_for(isolation).get();
            let (mut at, mut bytes, mut delivered) = (start, Vec::new(), Vec::new());
            while at < end {
                let Ok(read) = log.read(io, Offset::new(at).unwrap(), max_bytes, isolation, true) else {
                    return Err(Stop::Off);
                };
                delivered.extend(delivered_of(&read));
                let Some(last) = BatchReader::new(&read.bytes).last() else { break };
                let next = last.map_err(|error| Stop::Wrong(format!("a reader gets no batch: {error}")))?;
                at = next.next_offset().get();
                bytes.extend_from_slice(&read.bytes);
            }
            let right = history.on_disk().filter(|batch| batch.next() > start && batch.next() <= end);
            let right: Vec<u8> = right.flat_map(|batch| batch.bytes.iter().copied()).collect();
            if bytes != right {
                return wrong(format!("a reader, {isolation:?}, got other bytes than were submitted"));
            }
            if isolation == Isolation::Committed {
                same("committed", &delivered, &history.committed(start, stable))?;
            }
        }
        let stamps = [NOW, (NOW + self.clock) / 2, self.clock - 3, self.clock, self.clock + 100];
        for asked in stamps {
            let spec = OffsetSpec::Timestamp(TimestampMs::new(asked));
            let Ok(found) = log.offset_for(io, spec, Isolation::Uncommitted) else { return Err(Stop::Off) };
            let found = found.map(|found| (found.offset.get(), found.timestamp.map_or(-1, TimestampMs::get)));
            let right = history.offset_for_timestamp(asked, start);
            let right = right.filter(|(at, _)| *at < view.high_watermark.get());
            same(&format!("offset for {asked}"), &found, &right)?;
        }
        Ok(())
    }

    /// Whether what was promised is in the ledger of the disk, just before it is put to the test.
    ///
    /// # Errors
    /// Something was called durable that the disk does not know.
    pub fn check_ledger(&self) -> Result<(), Stop> {
        if self.cutting.is_some() {
            return Ok(());
        }
        let ledger = self.ledger();
        for batch in self.history.on_disk() {
            if batch.base >= self.deleted_to && batch.next() <= self.promised && !ledger.contains(batch) {
                return wrong(format!("{} was called durable and is not in the ledger", batch.base));
            }
        }
        Ok(())
    }

    /// The batches that the disk acknowledged.
    fn ledger(&self) -> Ledger {
        let mut found = BTreeMap::new();
        for (path, bytes) in self.disk.acknowledged() {
            if path.parent() != Some(&self.dir) || path.extension().is_none_or(|suffix| suffix != "log") {
                continue;
            }
            for batch in BatchReader::new(&bytes).map_while(Result::ok) {
                found.insert(batch.base_offset().get(), batch.bytes().to_vec());
            }
        }
        Ledger(found)
    }

    /// Whether all that the disk had acknowledged before a crash is in the history now, which is what was found.
    ///
    /// # Errors
    /// Something of the ledger is not there.
    pub fn check_against(&self, ledger: &Ledger) -> Result<(), Stop> {
        for (base, bytes) in &ledger.0 {
            if *base >= self.history.first_base
                && !self.history.batches.iter().any(|batch| batch.base == *base && batch.bytes == *bytes)
            {
                return wrong(format!("{base} is in the ledger and not in the log (R1)"));
            }
        }
        Ok(())
    }

    /// The ledger, if it is a promise: not while a cut is under way.
    pub fn ledger_to_keep(&self) -> Option<Ledger> {
        self.cutting.is_none().then(|| self.ledger())
    }

    /// A bit rots: where a CRC covers it the log says so, by file and position, and changes nothing (R8).
    ///
    /// # Errors
    /// It was not noticed, or something was changed.
    pub fn check_rot(&self, choice: u64) -> Result<(), Stop> {
        let rotten = self.fork();
        let logs: Vec<(PathBuf, Vec<u8>)> = rotten
            .disk
            .contents()
            .into_iter()
            .filter(|(path, bytes)| {
                path.parent() == Some(&self.dir)
                    && path.extension().is_some_and(|suffix| suffix == "log")
                    && !bytes.is_empty()
            })
            .collect();
        if logs.is_empty() {
            return Ok(());
        }
        let nth = usize::try_from(choice % logs.len() as u64).unwrap();
        let (path, bytes) = &logs[nth];
        let position = choice.wrapping_mul(0x9e37_79b9_7f4a_7c15) % bytes.len() as u64;
        rotten.disk.flip(path, position, 1 << (choice % 8));
        // Outside of every CRC: base offset and leader epoch.
        let mut start = 0;
        for batch in BatchReader::new(bytes).map_while(Result::ok) {
            if position < start + batch.bytes().len() as u64 {
                break;
            }
            start += batch.bytes().len() as u64;
        }
        let covered = !matches!(position - start, 0..8 | 12..16);
        // Behind the recovery point the last batch of the last segment would be a torn tail; before it no segment but
        // that one is looked at.
        let is_last = first_digits(path)
            == self
                .process
                .as_ref()
                .map_or(0, |p| p.log.segments().last().map_or(0, |segment| segment.base_offset.get()));
        let recovery_point = if is_last { self.history.end } else { 0 };
        // After a cut a recovery point may stem from before it, until the log has grown above where it was cut.
        let counted = self.process.as_ref().map_or(0, |process| {
            let end = process.log.log_end_offset();
            process.log.partition_file().effective_recovery_point(end).get()
        });
        if is_last && counted < self.history.end {
            return Ok(());
        }
        let before = rotten.disk.contents();
        let options = OpenOptions {
            side_dir: self.side_dir.clone(),
            clean_shutdown: false,
            recovery_point: Offset::new(recovery_point).unwrap(),
            log_start_offset: Offset::new(self.log_start).unwrap(),
            now: TimestampMs::new(NOW),
        };
        let opened = UnifiedLog::open(&mut rotten.disk.io(), &self.dir, self.config.clone(), options.clone());
        match opened {
            Err(LoadError::Corrupt(corruption)) => {
                same("file", &corruption.file, path)?;
                if covered && corruption.position > position {
                    return wrong(format!("{position} is rotten, {} is named", corruption.position));
                }
                let after = rotten.disk.contents();
                // Indexes of segments that the walk found whole may have been built again: as a load of the intact log
                // builds them.
                let intact = self.fork();
                let _opened =
                    UnifiedLog::open(&mut intact.disk.io(), &self.dir, self.config.clone(), options);
                let built = intact.disk.contents();
                let is_built = |path: &Path| {
                    let is_index =
                        path.extension().is_some_and(|suffix| suffix == "index" || suffix == "timeindex");
                    is_index
                        && first_digits(path) < first_digits(&corruption.file)
                        && after.get(path) == built.get(path)
                };
                let differ = |path: &&PathBuf| after.get(*path) != before.get(*path) && !is_built(path);
                let changed: Vec<&PathBuf> = after.keys().chain(before.keys()).filter(differ).collect();
                same("files that were changed", &changed, &Vec::new())
            }
            Err(error) if covered => wrong(format!("rot at {position} of {}: {error}", path.display())),
            Ok(_) if covered => wrong(format!("rot at {position} of {} is not noticed", path.display())),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// What producer state says of a producer, in the history's words.
fn known_of(entry: &weir_psm::ProducerStateEntry) -> super::history::Producer {
    let raw = |sequence: Option<weir_format::Sequence>| sequence.map_or(-1, weir_format::Sequence::get);
    let batch = |batch: &weir_psm::BatchMetadata| {
        (
            raw(batch.first_sequence()),
            raw(batch.last_sequence()),
            batch.first_offset().get(),
            batch.last_offset().get(),
        )
    };
    super::history::Producer {
        epoch: entry.producer_epoch().map_or(-1, weir_format::ProducerEpoch::get),
        coordinator_epoch: entry.coordinator_epoch().unwrap_or(-1),
        last_timestamp: entry.last_timestamp().get(),
        open_since: entry.transaction_first_offset().map(Offset::get),
        batches: entry.batches().iter().map(batch).collect(),
    }
}

/// The offset in a file's name.
fn first_digits(path: &Path) -> i64 {
    path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()).unwrap_or(0)
}

/// Batches that a disk acknowledged, by base offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger(BTreeMap<i64, Vec<u8>>);

impl Ledger {
    fn contains(&self, batch: &Batch) -> bool {
        self.0.get(&batch.base) == Some(&batch.bytes)
    }
}

fn place_of(appended: &Appended) -> (i64, i64, bool) {
    (appended.base_offset.get(), appended.last_offset.get(), appended.duplicate)
}

fn first_base(log: &UnifiedLog) -> i64 {
    log.segments().first().map_or(0, |segment| segment.base_offset.get())
}

fn epochs_of(log: &UnifiedLog) -> Vec<(i32, i64)> {
    log.epochs().entries().iter().map(|entry| (entry.epoch.get(), entry.start_offset.get())).collect()
}

/// What a consumer of Kafka's own, of any kind, delivers of a response: ids are aborted from their first offset on, and
/// stop being so at an ABORT of theirs.
fn delivered_of(read: &Read) -> Vec<i64> {
    let mut listed = read.aborted.clone();
    let mut ids = Vec::new();
    let mut out = Vec::new();
    for batch in BatchReader::new(&read.bytes).map_while(Result::ok) {
        listed.retain(|entry| {
            let begun = entry.first_offset <= batch.last_offset();
            if begun {
                ids.push(Some(entry.producer_id));
            }
            !begun
        });
        if batch.is_control() {
            if matches!(batch.end_transaction_marker(), Some(Ok(marker)) if !marker.commit) {
                ids.retain(|id| *id != batch.producer_id());
            }
        } else if !(batch.is_transactional() && ids.contains(&batch.producer_id())) {
            out.push(batch.base_offset().get());
        }
    }
    out
}
