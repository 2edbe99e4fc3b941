//! The question: what does a reader of the newest bytes cost, from memory and from the page cache, and what does it cost to
//! hold them?
//!
//! Unit: microseconds and CPU seconds for 10^9 bytes of a read; system calls that read, for each. Bound: from memory none of
//! these, and no copy where what is asked for was appended together. Run: `cargo xtask bench append --only newest`.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns a clock")]

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use weir_format::{LeaderEpoch, Offset, set_leader_epoch};
use weir_log::{AppendParams, HotTail, Isolation, LogConfig, OpenOptions, TailMemory, UnifiedLog};

use super::batches::{NOW, Source};
use super::plain;
use super::sections::{Options, Section};
use super::shard::partition;
use crate::cost::{Cost, Meter};
use crate::figures::quantile;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Batches are never a multiple of a block: real ones are not.
const BATCH: usize = 16 * KIB - 23;

/// What one run found.
struct Run {
    took: Vec<u64>,
    cost: Cost,
    read: u64,
    append: Cost,
    appended: u64,
}

/// Reads of the newest 1 MiB and 64 KiB.
///
/// # Errors
/// If the disk fails.
pub fn newest(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    for _ in 0..options.runs {
        for backend in &options.backends {
            for (appends, batch_count) in [("16 KiB", 1), ("1 MiB", 64)] {
                for size in [MIB, 64 * KIB] {
                    for (from, memory) in [("memory", 64 << 20), ("disk", 0)] {
                        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(&options.folder)?;
                        let mut run = measure(options, folder.path(), backend, batch_count, size, memory)?;
                        let row = format!("{backend}, {appends} appends, {} KiB from {from}", size / KIB);
                        let count = run.took.len() as f64;
                        section.figures.add(&row, "p50 us", quantile(&mut run.took, 0.5) as f64 / 1e3);
                        section.figures.add(&row, "p99 us", quantile(&mut run.took, 0.99) as f64 / 1e3);
                        section.figures.add(&row, "CPU-s/GB", run.cost.cpu_per_gb(run.read));
                        section.figures.add(&row, "reads each", run.cost.counters.read_calls as f64 / count);
                        section.figures.add(&row, "append CPU-s/GB", run.append.cpu_per_gb(run.appended));
                    }
                }
            }
        }
    }
    section.notes.push(
        "one thread, in the log itself: no socket and no channel; what is read from the disk is in the page cache, unless \
         it was written past it"
            .to_owned(),
    );
    Ok(section)
}

fn measure(
    options: &Options,
    folder: &Path,
    backend: &str,
    batch_count: usize,
    size: usize,
    memory: u64,
) -> Result<Run> {
    let mut io = super::open_backend(backend)?;
    let io = io.as_mut();
    let dir = partition(folder, 0);
    io.create_dir_all(&dir)?;
    let past = OpenOptions {
        side_dir: folder.join("side"),
        clean_shutdown: false,
        recovery_point: Offset::ZERO,
        log_start_offset: Offset::ZERO,
        now: NOW,
    };
    let (mut log, _) = UnifiedLog::open(io, &dir, LogConfig::default(), past)?;
    log.attach_tail(HotTail::new(), TailMemory::new(memory));
    let mut source = Source::new(BATCH, batch_count)?;
    let params = AppendParams::replication(LeaderEpoch::ZERO, NOW);
    let total = options.mib.min(128) << 20;
    let (mut appended, mut unsynced, mut places) = (0_u64, 0, Vec::new());
    let meter = Meter::start()?;
    while appended < total {
        let base = log.log_end_offset();
        let bytes = source.next(base)?;
        let mut bytes = bytes.try_into_mut().unwrap_or_else(|bytes| BytesMut::from(&bytes[..]));
        for batch in bytes.chunks_exact_mut(BATCH) {
            set_leader_epoch(batch, LeaderEpoch::ZERO)?;
        }
        let set_size = u64::try_from(bytes.len())?;
        places.push((appended, base));
        log.append(io, bytes, &params)?;
        appended += set_size;
        unsynced += set_size;
        if unsynced >= 4 << 20 {
            log.sync(io)?;
            unsynced = 0;
        }
    }
    log.sync(io)?;
    let append = meter.stop()?;
    // The append whose bytes begin at least `size` before the end.
    let wanted = u64::try_from(size)?.min(appended);
    let (start, from) =
        places.iter().rev().find(|(at, _)| appended - at >= wanted).context("too little appended")?;
    let available = usize::try_from(appended - start)?.min(size);
    let (mut took, mut read) = (Vec::new(), 0);
    let meter = Meter::start()?;
    for _ in 0..options.appends {
        let asked = Instant::now();
        let found = log.read(io, *from, size, Isolation::Committed, true)?;
        took.push(plain::nanoseconds(asked));
        ensure!(found.bytes.len() + BATCH > available / 2, "{} bytes of {available}", found.bytes.len());
        read += u64::try_from(found.bytes.len())?;
    }
    let cost = meter.stop()?;
    log.close(io)?;
    Ok(Run { took, cost, read, append, appended })
}
