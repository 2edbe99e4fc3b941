//! The process that is killed: appends at random, one sync at a time for all that came before it, and says each step.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use weir_format::{LeaderEpoch, Offset};
use weir_log::{AppendError, AppendParams, UnifiedLog};
use weir_segment::io::{Done, Io, Wait};

use super::ledger::{Kind, Line, Written};
use super::{Place, batch, config, options};
use crate::append::batches::{NOW, Random};
use crate::append::open_backend;

/// Bytes in the log at which the writer deletes from the front.
const LARGE: u64 = 10 << 20;

/// How a writer starts.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// For everything random; also what the batches are built from.
    pub seed: u64,
    /// The epoch of its first batches.
    pub epoch: LeaderEpoch,
    /// Up to where the log is known to be durable.
    pub recovery_point: Offset,
    /// The log start that was stored.
    pub log_start: Offset,
}

/// Recovers the log and writes until it is killed.
///
/// # Errors
/// Whatever fails: a writer does not end well.
pub fn run(folder: &Path, backend: &str, start: Start) -> Result<()> {
    let place = Place::below(folder);
    let mut io = open_backend(backend)?;
    let options = options(&place, start.recovery_point, start.log_start);
    let (log, _) = UnifiedLog::open(io.as_mut(), &place.dir, config(), options)?;
    let mut writer = Writer {
        io,
        log,
        seed: start.seed,
        epoch: start.epoch,
        random: Random::new(
            start.seed ^ u64::try_from(start.epoch.get())?.wrapping_mul(0x9e6c_63d0_876a_3f6b),
        ),
        said: String::new(),
        sets: Vec::new(),
        durable: Offset::ZERO,
        complete: Offset::ZERO,
        done: Vec::new(),
    };
    writer.say(&Line::Start(writer.log.view().log_start_offset, writer.log.log_end_offset()));
    writer.durable = writer.log.log_end_offset();
    writer.complete = writer.durable;
    // As a coordinator does after a restart.
    for open in writer.log.open_transactions() {
        writer.append(Kind::Abort, open.producer_id.get())?;
    }
    loop {
        writer.step()?;
    }
}

struct Writer {
    io: Box<dyn Io>,
    log: UnifiedLog,
    seed: u64,
    epoch: LeaderEpoch,
    random: Random,
    said: String,
    /// Base offsets of the last record sets, where a cut is taken.
    sets: Vec<Offset>,
    durable: Offset,
    complete: Offset,
    done: Vec<Done>,
}

impl Writer {
    fn say(&mut self, line: &Line) {
        self.said.push_str(&line.to_string());
        self.said.push('\n');
    }

    /// Hands everything said to the pipe, before what was announced is done.
    fn tell(&mut self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(self.said.as_bytes())?;
        out.flush()?;
        self.said.clear();
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        match self.random.below(1_000) {
            0..5 => self.truncate()?,
            5..15 => self.delete()?,
            15..35 => self.transaction()?,
            _ => {
                self.note_set();
                for _ in 0..=self.random.below(6) {
                    self.append(Kind::Data, -1)?;
                }
            }
        }
        self.pump(Wait::Poll)?;
        // Mostly as a shard does, at times until all is durable.
        if self.random.below(8) == 0 {
            while self.durable < self.log.log_end_offset() {
                self.pump(Wait::Block)?;
            }
        }
        Ok(())
    }

    fn note_set(&mut self) {
        if self.sets.len() >= 200 {
            self.sets.remove(0);
        }
        self.sets.push(self.log.log_end_offset());
    }

    fn transaction(&mut self) -> Result<()> {
        self.note_set();
        let producer_id = self.log.log_end_offset().get();
        self.append(Kind::Transactional, producer_id)?;
        self.append(Kind::Abort, producer_id)
    }

    fn append(&mut self, kind: Kind, producer_id: i64) -> Result<()> {
        let base_offset = self.log.log_end_offset();
        let mut written =
            Written { base_offset, last_offset: base_offset, epoch: self.epoch, kind, producer_id };
        let mut bytes = batch(self.seed, &written)?;
        written.last_offset = weir_format::header_of(&bytes)?.last_offset();
        // As a client sends it.
        weir_format::set_base_offset(&mut bytes, Offset::ZERO)?;
        self.say(&Line::Write(written));
        self.tell()?;
        let params = match kind {
            Kind::Abort => AppendParams::coordinator(self.epoch, NOW),
            _ => AppendParams { may_start_transaction: true, ..AppendParams::client(self.epoch, NOW) },
        };
        loop {
            match self.log.append(self.io.as_mut(), bytes.clone(), &params) {
                Ok(appended) => {
                    ensure!(appended.base_offset == base_offset && !appended.duplicate, "{appended:?}");
                    return self.note_progress();
                }
                Err(AppendError::TooMuchUnsynced { .. }) => self.pump(Wait::Block)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// One turn, as a shard's: submits what was gathered, begins the next sync if none is under way, takes completions.
    fn pump(&mut self, wait: Wait) -> Result<()> {
        self.log.flush(self.io.as_mut());
        self.log.sync_begin(self.io.as_mut());
        self.log.snapshot_step(self.io.as_mut());
        let wait = if self.io.in_flight() == 0 { Wait::Poll } else { wait };
        self.io.reap(wait, &mut self.done)?;
        for done in std::mem::take(&mut self.done) {
            if let Err(done) = self.log.on_done(done) {
                bail!("a completion of nobody: {done:?}");
            }
        }
        self.note_progress()
    }

    /// Says how far the log is complete and durable, if that is farther than before.
    fn note_progress(&mut self) -> Result<()> {
        ensure!(!self.log.is_offline(), "the partition is offline: {:?}", self.log.failure());
        let complete = self.log.written_end_offset();
        if complete > self.complete {
            self.complete = complete;
            self.say(&Line::Complete(complete));
        }
        let durable = self.log.view().high_watermark;
        if durable > self.durable {
            self.durable = durable;
            self.say(&Line::Durable(durable));
            self.tell()?;
        }
        Ok(())
    }

    fn truncate(&mut self) -> Result<()> {
        if self.sets.is_empty() {
            return Ok(());
        }
        let index = usize::try_from(self.random.below(u64::try_from(self.sets.len())?))?;
        let at = self.sets[index];
        if at < self.log.view().log_start_offset || at >= self.log.log_end_offset() {
            return Ok(());
        }
        self.say(&Line::Truncate(at));
        self.tell()?;
        self.log.truncate_to(self.io.as_mut(), at)?;
        self.sets.truncate(index);
        self.epoch = LeaderEpoch::new(self.epoch.get() + 1).context("no further epoch")?;
        self.durable = at;
        self.complete = at;
        self.say(&Line::Truncated(at));
        self.tell()
    }

    fn delete(&mut self) -> Result<()> {
        let size: u64 = self.log.segments().iter().map(|segment| segment.size).sum();
        let Some(at) = self.sets.get(self.sets.len() / 2).copied().filter(|_| size > LARGE) else {
            return Ok(());
        };
        if at > self.log.view().high_watermark || at <= self.log.view().log_start_offset {
            return Ok(());
        }
        // What lies behind the newest snapshot stays until there is a newer one.
        self.log.finish_snapshot(self.io.as_mut());
        if self.log.partition_file().snapshots().all(|(newest, _)| newest < at) {
            return Ok(());
        }
        self.say(&Line::Delete(at));
        self.tell()?;
        self.log.advance_log_start(self.io.as_mut(), at)?;
        self.say(&Line::Deleted(at));
        self.tell()
    }
}
