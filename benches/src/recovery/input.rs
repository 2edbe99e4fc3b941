//! Logs to recover, and what is done to them between two runs.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns a clock")]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use weir_format::{BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use weir_log::{AppendParams, LogConfig, OpenOptions, UnifiedLog};
use weir_segment::io::Io;

use crate::append::batches::{NOW, Random};
use crate::append::open_backend;

/// Name of the partition's folder: one that Kafka takes for a partition.
const PARTITION: &str = "bench-0";

/// How much is appended before it is synced.
const GROUP: u64 = 32 << 20;

/// A log, written and closed.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    /// Bytes of its `.log` files.
    pub size: u64,
    /// Where it ends.
    pub end_offset: Offset,
    /// How many producers wrote it.
    pub producers: usize,
}

impl Log {
    /// Writes at least `total` bytes in batches of about `batch_size`, by idempotent producers in turns.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn write(folder: &Path, batch_size: usize, total: u64, producers: usize) -> Result<Log> {
        let mut io = open_backend("pwrite")?;
        let mut log = open(io.as_mut(), &folder.join(PARTITION), &folder.join("side"), false)?.0;
        let mut random = Random::new(u64::try_from(batch_size)?);
        // Values of 1,000 bytes that no codec would make smaller.
        let values: Vec<Vec<u8>> = (0..1_024).map(|_| random.bytes(1_000)).collect();
        let records = (batch_size / 1_011).max(1);
        // Kafka forgets at a load whose producer has not written for a day.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let now = i64::try_from(now.as_millis())?;
        let mut sequences = vec![Sequence::ZERO; producers];
        let (mut size, mut unsynced, mut number) = (0, 0, 0_usize);
        while size < total {
            let producer = number % producers;
            number += 1;
            let id = ProducerId::new(i64::try_from(producer)? + 1_000).context("an id")?;
            let mut builder =
                BatchBuilder::new().producer(id, ProducerEpoch::ZERO, Some(sequences[producer]));
            for record in 0..records {
                let time = TimestampMs::new(now + i64::try_from(number % 1_000)?);
                let value = &values[(number * 31 + record) % values.len()];
                builder = builder.record(time, None, Some(value));
            }
            sequences[producer] = sequences[producer].plus(u32::try_from(records)?);
            let batch = builder.build()?;
            let bytes = u64::try_from(batch.len())?;
            (size, unsynced) = (size + bytes, unsynced + bytes);
            log.append(io.as_mut(), batch, &AppendParams::client(LeaderEpoch::ZERO, TimestampMs::new(now)))?;
            log.flush(io.as_mut());
            if unsynced >= GROUP {
                log.sync(io.as_mut())?;
                unsynced = 0;
            }
        }
        let end_offset = log.log_end_offset();
        log.close(io.as_mut())?;
        Ok(Log { folder: folder.to_path_buf(), size, end_offset, producers })
    }

    /// The `.log` files, in order.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.folder.join(PARTITION))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Base offsets of the segments.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn segments(&self) -> Result<Vec<Offset>> {
        let base = |path: &PathBuf| {
            let name = path.file_stem()?.to_str()?;
            Offset::new(name.parse().ok()?)
        };
        self.files()?.iter().map(|path| base(path).context("a segment's name")).collect()
    }

    /// Makes a partition's folder with the `.log` files alone, which are those of this log (hard links).
    ///
    /// # Errors
    /// If the file system has no hard links.
    pub fn copy(&self, folder: &Path) -> Result<PathBuf> {
        let dir = folder.join(PARTITION);
        std::fs::create_dir_all(&dir)?;
        for path in self.files()? {
            let name = path.file_name().context("a name")?;
            std::fs::hard_link(&path, dir.join(name))?;
        }
        Ok(dir)
    }

    /// Takes the files out of the page cache; with `all` the whole of that, which others on the machine feel, and for
    /// which one must be root.
    ///
    /// # Errors
    /// If the system does not let us.
    pub fn forget(&self, all: bool) -> Result<()> {
        for path in self.files()? {
            let file = std::fs::File::open(path)?;
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        if all {
            std::fs::write("/proc/sys/vm/drop_caches", "3").context("the page cache is not ours to drop")?;
        }
        Ok(())
    }
}

/// Opens a partition; `clean` as a marker of a clean stop says.
///
/// # Errors
/// If the disk fails or the log is corrupt.
pub fn open(
    io: &mut dyn Io,
    dir: &Path,
    side_dir: &Path,
    clean: bool,
) -> Result<(UnifiedLog, weir_recovery::RecoveryReport)> {
    let options = OpenOptions {
        side_dir: side_dir.to_path_buf(),
        clean_shutdown: clean,
        recovery_point: Offset::ZERO,
        log_start_offset: Offset::ZERO,
        now: NOW,
    };
    Ok(UnifiedLog::open(io, dir, LogConfig::default(), options)?)
}

/// Folders of partitions that hold a few small batches each, closed cleanly.
///
/// # Errors
/// If the disk fails.
pub fn small_partitions(folder: &Path, count: usize) -> Result<Vec<(PathBuf, PathBuf)>> {
    let mut io = open_backend("pwrite")?;
    let mut all = Vec::new();
    for number in 0..count {
        let dir = folder.join(format!("small-{number}"));
        let side = folder.join("side").join(number.to_string());
        let mut log = open(io.as_mut(), &dir, &side, false)?.0;
        append_small(&mut log, io.as_mut())?;
        log.close(io.as_mut())?;
        all.push((dir, side));
    }
    Ok(all)
}

/// Appends three batches of 1 KiB.
///
/// # Errors
/// If the log refuses.
pub fn append_small(log: &mut UnifiedLog, io: &mut dyn Io) -> Result<()> {
    for _ in 0..3 {
        let batch = BatchBuilder::new().record(NOW, None, Some(&[7; 1_000])).build()?;
        let appended = log.append(io, batch, &AppendParams::client(LeaderEpoch::ZERO, NOW))?;
        ensure!(!appended.duplicate, "{appended:?}");
    }
    log.flush(io);
    Ok(())
}
