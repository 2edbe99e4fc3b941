//! A shard without its channel: one `Io`, some partitions, and the loop that a shard's thread runs.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns a clock")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use weir_format::Offset;
use weir_segment::io::buffer::BufferPool;
use weir_segment::io::{Done, Io, Wait};
use weir_segment::{LocalLog, SegmentConfig, ticket_owner};

use super::batches::NOW;
use crate::cost::{Cost, Meter};

/// Memory that the shard's pool keeps.
const POOL: usize = 64 << 20;

/// One `Io` and its partitions.
pub struct Shard {
    /// The disk.
    pub io: Box<dyn Io>,
    /// The partitions; a completion's owner is its index.
    pub logs: Vec<LocalLog>,
    /// Partitions that have something to submit.
    restless: BTreeSet<usize>,
    done: Vec<Done>,
    /// Operations that were reaped.
    pub reaped: u64,
    /// Of these, syncs.
    pub syncs: u64,
}

impl Shard {
    /// Opens `count` partitions in a folder, which are made if they are missing.
    ///
    /// # Errors
    /// If the backend does not run here, or the disk fails.
    pub fn open(backend: &str, folder: &Path, count: usize, config: SegmentConfig) -> Result<Shard> {
        let mut io = super::open_backend(backend)?;
        let pool = BufferPool::new(POOL);
        let mut logs = Vec::new();
        for index in 0..count {
            let dir = partition(folder, index);
            io.create_dir_all(&dir)?;
            let mut log = LocalLog::open(io.as_mut(), &dir, config, Offset::ZERO)?;
            log.attach(u32::try_from(index)?, pool.clone());
            logs.push(log);
        }
        Ok(Shard { io, logs, restless: BTreeSet::new(), done: Vec::new(), reaped: 0, syncs: 0 })
    }

    /// Appends whole batches; nothing is submitted.
    ///
    /// # Errors
    /// If the log refuses, or the disk fails.
    pub fn append(&mut self, index: usize, bytes: Bytes) -> Result<()> {
        let log = self.logs.get_mut(index).context("no such partition")?;
        log.append_bytes(self.io.as_mut(), bytes, NOW)?;
        self.restless.insert(index);
        Ok(())
    }

    /// One turn of the loop that a shard's thread runs: submits what was appended, begins a sync of each partition with at
    /// least `group` bytes that are written and not durable, and none under way, and takes completions. A shard that has
    /// more to do polls; one that has not waits.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn turn(&mut self, group: Option<u64>, wait: Wait) -> Result<()> {
        self.submit(group);
        if wait == Wait::Poll {
            // Writes that complete at once are covered by the syncs that follow.
            self.take(Wait::Poll)?;
            self.submit(group);
        }
        let wait = if self.io.in_flight() == 0 && wait == Wait::Block { Wait::Poll } else { wait };
        self.take(wait)
    }

    fn take(&mut self, wait: Wait) -> Result<()> {
        self.io.reap(wait, &mut self.done)?;
        self.reaped += u64::try_from(self.done.len())?;
        for done in std::mem::take(&mut self.done) {
            let index = usize::try_from(ticket_owner(done.ticket))?;
            let log = self.logs.get_mut(index).context("a completion of nobody")?;
            if let Err(done) = log.on_done(done) {
                bail!("a completion of nobody: {done:?}");
            }
            if let Some(error) = log.failure() {
                bail!("{error}");
            }
            self.restless.insert(index);
        }
        Ok(())
    }

    fn submit(&mut self, group: Option<u64>) {
        for index in std::mem::take(&mut self.restless) {
            let Some(log) = self.logs.get_mut(index) else { continue };
            log.flush(self.io.as_mut());
            let written = log.unsynced_bytes().saturating_sub(log.unwritten_bytes());
            if group.is_some_and(|group| written >= group)
                && log.needs_sync()
                && log.sync_begin(self.io.as_mut())
            {
                self.syncs += 1;
            }
            if log.has_unsent() || (group.is_some() && log.needs_sync()) {
                self.restless.insert(index);
            }
        }
    }

    /// Until everything of a partition is durable.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn make_durable(&mut self, index: usize) -> Result<()> {
        while self.logs.get(index).is_some_and(|log| log.synced_end_offset() < log.log_end_offset()) {
            self.restless.insert(index);
            self.turn(Some(0), Wait::Block)?;
        }
        Ok(())
    }

    /// Closes every partition: exact sizes, indexes written.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn close(mut self) -> Result<()> {
        for log in self.logs {
            log.close(self.io.as_mut())?;
        }
        Ok(())
    }
}

/// The folder of a partition.
#[must_use]
pub fn partition(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("bench-{index}"))
}

/// Bytes that are appended between two turns of the loop, unless a group is smaller.
const TURN: u64 = 1_000_000;

/// When an append counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// All is synced once, at the end.
    AtTheEnd,
    /// One sync for about this many bytes; the next ones are appended while it runs, so at most twice as much is not
    /// durable.
    Group(u64),
    /// The next append begins when this one is durable.
    Each,
}

/// Appends `count` record sets of a source to one partition of a new folder.
///
/// # Errors
/// If the disk fails.
pub fn append_to_one(
    backend: &str,
    folder: &Path,
    source: &mut super::batches::Source,
    count: u64,
    durability: Durability,
) -> Result<(u64, Cost)> {
    let mut shard = Shard::open(backend, folder, 1, SegmentConfig::default())?;
    let meter = Meter::start()?;
    let (mut size, mut gathered) = (0, 0);
    for _ in 0..count {
        let base = shard.logs.first().context("no partition")?.log_end_offset();
        let set = source.next(base)?;
        let set_size = u64::try_from(set.len())?;
        size += set_size;
        // Whether one more may be appended before something becomes durable. A set larger than the group is a group of its
        // own.
        let has_room = |shard: &Shard| match durability {
            Durability::Group(group) => unsynced(shard) + set_size <= group.max(set_size).saturating_mul(2),
            Durability::AtTheEnd | Durability::Each => true,
        };
        let group = match durability {
            Durability::Group(group) => Some(group),
            Durability::AtTheEnd | Durability::Each => None,
        };
        while !has_room(&shard) {
            shard.turn(group, Wait::Block)?;
        }
        shard.append(0, set)?;
        gathered += set_size;
        match durability {
            Durability::Each => shard.make_durable(0)?,
            // What a shard finds in its queue at a time goes out at once; less would only make small writes.
            _ if gathered < group.unwrap_or(TURN).min(TURN) => continue,
            _ if has_room(&shard) => shard.turn(group, Wait::Poll)?,
            // Nothing more is in the queue: it waits, above.
            _ => {}
        }
        gathered = 0;
    }
    shard.make_durable(0)?;
    let cost = meter.stop()?;
    shard.close()?;
    Ok((size, cost))
}

fn unsynced(shard: &Shard) -> u64 {
    shard.logs.first().map_or(0, LocalLog::unsynced_bytes)
}

/// Times `count` durable appends, one at a time: nanoseconds each.
///
/// # Errors
/// If the disk fails.
pub fn durable_appends(
    backend: &str,
    folder: &Path,
    source: &mut super::batches::Source,
    count: usize,
) -> Result<(Vec<u64>, Cost)> {
    let mut shard = Shard::open(backend, folder, 1, SegmentConfig::default())?;
    let meter = Meter::start()?;
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let base = shard.logs.first().context("no partition")?.log_end_offset();
        let start = Instant::now();
        shard.append(0, source.next(base)?)?;
        shard.make_durable(0)?;
        took.push(super::plain::nanoseconds(start));
    }
    let cost = meter.stop()?;
    shard.close()?;
    Ok((took, cost))
}

/// What an open loop over many partitions came to.
#[derive(Debug)]
pub struct OpenLoop {
    /// From when an append was due to when it was durable, in nanoseconds.
    pub took: Vec<u64>,
    /// The whole run.
    pub cost: Cost,
    /// Syncs that it took.
    pub syncs: u64,
    /// Bytes that are allocated on the disk and not used, while all partitions are appended to.
    pub preallocated: u64,
    /// The same once all are at rest.
    pub preallocated_at_rest: u64,
}

/// Appends one batch every `1 / rate` seconds, to the partitions by turns, durably, for `time`.
///
/// # Errors
/// If the disk fails, or the shard falls ever further behind.
pub fn open_loop(
    backend: &str,
    folder: &Path,
    source: &mut super::batches::Source,
    partitions: usize,
    rate: u32,
    time: Duration,
) -> Result<OpenLoop> {
    let mut shard = Shard::open(backend, folder, partitions, SegmentConfig::default())?;
    // The first append of a partition opens its file: that is not what is asked here.
    for index in 0..partitions {
        shard.append(index, source.next(Offset::ZERO)?)?;
    }
    for index in 0..partitions {
        shard.make_durable(index)?;
    }
    let total = u64::from(rate) * time.as_millis().try_into().unwrap_or(u64::MAX) / 1_000;
    let mut waiting: Vec<std::collections::VecDeque<(Offset, u64)>> = vec![Default::default(); partitions];
    let mut took = Vec::new();
    let syncs = shard.syncs;
    let meter = Meter::start()?;
    let start = Instant::now();
    let due_at = |number: u64| number * 1_000_000_000 / u64::from(rate);
    let mut next = 0;
    // INVARIANT: partitions with appends that are not durable.
    let mut open = BTreeSet::new();
    while next < total || !open.is_empty() {
        let now = super::plain::nanoseconds(start);
        ensure!(now < due_at(total) + 30_000_000_000, "{backend} does not keep up");
        while next < total && due_at(next) <= now {
            let index = usize::try_from(next)? % partitions;
            let base = shard.logs.get(index).context("no partition")?.log_end_offset();
            shard.append(index, source.next(base)?)?;
            let end = shard.logs.get(index).context("no partition")?.log_end_offset();
            waiting[index].push_back((end, due_at(next)));
            open.insert(index);
            next += 1;
        }
        let idle = due_at(next).saturating_sub(super::plain::nanoseconds(start));
        let wait = match next < total {
            _ if !shard.restless.is_empty() && shard.io.in_flight() == 0 => Wait::Poll,
            true => Wait::Park(Some(Duration::from_nanos(idle))),
            false => Wait::Block,
        };
        shard.turn(Some(1), wait)?;
        let now = super::plain::nanoseconds(start);
        open.retain(|index| {
            let durable = shard.logs[*index].synced_end_offset();
            while let Some((_, due)) = waiting[*index].pop_front_if(|(end, _)| *end <= durable) {
                took.push(now.saturating_sub(due));
            }
            !waiting[*index].is_empty()
        });
    }
    let cost = meter.stop()?;
    let preallocated = unused(folder, &shard)?;
    let syncs = shard.syncs - syncs;
    let mut logs = std::mem::take(&mut shard.logs);
    for log in &mut logs {
        ensure!(log.rest(shard.io.as_mut())?, "a log with everything durable does not rest");
    }
    shard.logs = logs;
    let preallocated_at_rest = unused(folder, &shard)?;
    shard.close()?;
    Ok(OpenLoop { took, cost, syncs, preallocated, preallocated_at_rest })
}

/// Bytes of the files behind the ends of the logs.
fn unused(folder: &Path, shard: &Shard) -> Result<u64> {
    let mut unused = 0;
    for (index, log) in shard.logs.iter().enumerate() {
        let name = format!("{:020}.log", log.active().base_offset().get());
        let size = std::fs::metadata(partition(folder, index).join(name))?.len();
        unused += size.saturating_sub(log.active().size());
    }
    Ok(unused)
}
