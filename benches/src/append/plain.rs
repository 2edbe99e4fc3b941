//! What a segment writer is compared with: loops over `pwrite` and `fdatasync` that a C programmer would write in an
//! hour, and a direct writer of depth 16.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns a clock")]

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::cost::{Cost, Meter};

/// Alignment that direct writes need here.
const BLOCK: usize = 4096;

/// Memory whose first byte is aligned for direct writes, filled with something that is not zeros.
#[derive(Debug)]
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    size: usize,
}

impl Aligned {
    /// `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Aligned {
        let mut bytes = vec![0; size + BLOCK];
        let start = bytes.as_ptr().addr().next_multiple_of(BLOCK) - bytes.as_ptr().addr();
        for (index, byte) in bytes.iter_mut().skip(start).take(size).enumerate() {
            *byte = (index % 251).to_le_bytes()[0] | 1;
        }
        Aligned { bytes, start, size }
    }

    /// The bytes.
    #[must_use]
    pub fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.size]
    }
}

/// Appends `total` bytes to a new file through the page cache, with one `fdatasync` behind every `group` bytes and at
/// the end; without a group only at the end.
///
/// # Errors
/// If the disk fails.
pub fn buffered(path: &Path, write_size: usize, group: Option<u64>, total: u64) -> Result<Cost> {
    let memory = Aligned::new(write_size);
    let file = create(path, false)?;
    let size = u64::try_from(write_size)?;
    let meter = Meter::start()?;
    let (mut at, mut synced) = (0, 0);
    while at < total {
        file.write_all_at(memory.get(), at)?;
        at += size;
        if group.is_some_and(|group| at - synced >= group) {
            file.sync_data()?;
            synced = at;
        }
    }
    file.sync_data()?;
    meter.stop()
}

/// Writes `total` bytes past the page cache into a new file whose space was allocated before, by `depth` threads that
/// each write the next `write_size` bytes; one `fdatasync` at the end.
///
/// # Errors
/// If the disk fails, or does not take direct writes.
pub fn direct(path: &Path, write_size: usize, depth: usize, total: u64) -> Result<Cost> {
    let memory = Aligned::new(write_size);
    let file = create(path, true)?;
    fallocate(&file, FallocateFlags::empty(), 0, total).context("no fallocate here")?;
    file.sync_all()?;
    let size = u64::try_from(write_size)?;
    let next = AtomicU64::new(0);
    let meter = Meter::start()?;
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..depth)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let at = next.fetch_add(size, Ordering::Relaxed);
                        if at + size > total {
                            return Ok(());
                        }
                        let written = file.write_at(memory.get(), at)?;
                        ensure!(written == write_size, "a direct write was cut to {written} bytes");
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a writing thread failed"))??;
        }
        Ok(())
    })?;
    file.sync_data()?;
    meter.stop()
}

/// A bare segment writer: each batch of `batch_size` bytes has its CRC-32C summed and is copied into an aligned buffer;
/// the buffer is written past the page cache into a file whose space was allocated before, and synced. With `overlapped`
/// a second thread writes and syncs, while the first fills the next buffer.
///
/// What group commit may cost: whoever does more than this per group must say what for.
///
/// # Errors
/// If the disk fails, or does not take direct writes.
pub fn prototype(path: &Path, batch_size: usize, group: usize, total: u64, overlapped: bool) -> Result<Cost> {
    let source = Aligned::new((4 << 20) / batch_size * batch_size);
    let file = create(path, true)?;
    fallocate(&file, FallocateFlags::empty(), 0, total)?;
    file.sync_all()?;
    let groups = total / u64::try_from(group)?;
    let mut at = 0;
    let mut fill = |buffer: &mut Aligned| {
        let mut filled = 0;
        while filled < group {
            let size = batch_size.min(group - filled);
            let from = at % source.size;
            let size = size.min(source.size - from);
            let batch = &source.get()[from..from + size];
            std::hint::black_box(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, batch));
            let start = buffer.start + filled;
            buffer.bytes[start..start + size].copy_from_slice(batch);
            filled += size;
            at += size;
        }
    };
    let write = |number: u64, buffer: &Aligned| -> Result<()> {
        let written = file.write_at(buffer.get(), number * u64::try_from(group)?)?;
        ensure!(written == group, "a direct write was cut to {written} bytes");
        Ok(file.sync_data()?)
    };
    let meter = Meter::start()?;
    if !overlapped {
        let mut buffer = Aligned::new(group);
        for number in 0..groups {
            fill(&mut buffer);
            write(number, &buffer)?;
        }
        return meter.stop();
    }
    std::thread::scope(|scope| -> Result<()> {
        let (full, filled) = std::sync::mpsc::sync_channel::<(u64, Aligned)>(1);
        let (empty, emptied) = std::sync::mpsc::channel();
        for _ in 0..2 {
            empty.send(Aligned::new(group))?;
        }
        let writer = scope.spawn(move || -> Result<()> {
            while let Ok((number, buffer)) = filled.recv() {
                write(number, &buffer)?;
                // The other end is gone when all is filled.
                let _ = empty.send(buffer);
            }
            Ok(())
        });
        for number in 0..groups {
            let Ok(mut buffer) = emptied.recv() else { break };
            fill(&mut buffer);
            if full.send((number, buffer)).is_err() {
                break;
            }
        }
        drop(full);
        writer.join().map_err(|_| anyhow::anyhow!("the writing thread failed"))?
    })?;
    meter.stop()
}

/// `count` appends of `write_size` bytes, each with its own `fdatasync`: how long each took, in nanoseconds.
///
/// # Errors
/// If the disk fails.
pub fn durable_appends(
    path: &Path,
    write_size: usize,
    count: usize,
    direct: bool,
) -> Result<(Vec<u64>, Cost)> {
    let memory = Aligned::new(write_size);
    let file = create(path, direct)?;
    let size = u64::try_from(write_size)?;
    if direct {
        fallocate(&file, FallocateFlags::empty(), 0, size * u64::try_from(count)?)?;
        file.sync_all()?;
    }
    let meter = Meter::start()?;
    let mut took = Vec::with_capacity(count);
    for number in 0..u64::try_from(count)? {
        let start = Instant::now();
        file.write_all_at(memory.get(), number * size)?;
        file.sync_data()?;
        took.push(nanoseconds(start));
    }
    Ok((took, meter.stop()?))
}

/// Appends one batch every `1 / rate` seconds to the files by turns; each of `threads` threads owns its share of them and
/// syncs after every append. From when each was due to when it was durable, in nanoseconds.
///
/// # Errors
/// If the disk fails.
pub fn open_loop(
    folder: &Path,
    write_size: usize,
    files: usize,
    threads: usize,
    rate: u32,
    time: Duration,
) -> Result<(Vec<u64>, Cost)> {
    let memory = Aligned::new(write_size);
    let size = u64::try_from(write_size)?;
    let open: Vec<File> = (0..files)
        .map(|index| {
            let file = create(&folder.join(index.to_string()), false)?;
            file.write_all_at(memory.get(), 0)?;
            file.sync_data()?;
            Ok(file)
        })
        .collect::<Result<_>>()?;
    let total = u64::from(rate) * u64::try_from(time.as_millis())? / 1_000;
    let meter = Meter::start()?;
    let start = Instant::now();
    let took = std::thread::scope(|scope| -> Result<Vec<u64>> {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (open, memory) = (&open, &memory);
                scope.spawn(move || -> Result<Vec<u64>> {
                    let mut took = Vec::new();
                    let share = u64::try_from(threads)?;
                    let mut number = u64::try_from(thread)?;
                    while number < total {
                        let due = number * 1_000_000_000 / u64::from(rate);
                        let early = due.saturating_sub(nanoseconds(start));
                        if early > 0 {
                            std::thread::sleep(Duration::from_nanos(early));
                        }
                        let index = usize::try_from(number)? % open.len();
                        let at = (number / u64::try_from(open.len())? + 1) * size;
                        let file = &open[index];
                        file.write_all_at(memory.get(), at)?;
                        file.sync_data()?;
                        took.push(nanoseconds(start).saturating_sub(due));
                        number += share;
                    }
                    Ok(took)
                })
            })
            .collect();
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().map_err(|_| anyhow::anyhow!("a writing thread failed"))??);
        }
        Ok(all)
    })?;
    Ok((took, meter.stop()?))
}

/// Reads files from their beginning to their end.
///
/// # Errors
/// If the disk fails.
pub fn read_files(files: &[PathBuf], step: usize) -> Result<(u64, Cost)> {
    let mut memory = vec![0; step];
    let meter = Meter::start()?;
    let mut read = 0;
    for path in files {
        let file = File::open(path)?;
        let mut at = 0;
        loop {
            let count = file.read_at(&mut memory, at)?;
            if count == 0 {
                break;
            }
            at += u64::try_from(count)?;
            std::hint::black_box(&memory);
        }
        read += at;
    }
    Ok((read, meter.stop()?))
}

/// Reads `count` times `step` bytes at random: nanoseconds each.
///
/// # Errors
/// If the disk fails.
pub fn random_reads(files: &[PathBuf], step: usize, count: usize, seed: u64) -> Result<Vec<u64>> {
    let mut memory = vec![0; step];
    let path = files.first().context("no file")?;
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut random = super::batches::Random::new(seed);
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let at = random.below(size.saturating_sub(u64::try_from(step)?));
        let start = Instant::now();
        file.read_exact_at(&mut memory, at)?;
        took.push(nanoseconds(start));
        std::hint::black_box(&memory);
    }
    Ok(took)
}

/// Ten cursors, each from `distance` bytes before the end, read `step` bytes by turns for `time`: bytes and seconds.
///
/// # Errors
/// If the disk fails.
pub fn ten_readers(files: &[PathBuf], step: usize, distance: u64, time: Duration) -> Result<(u64, f64)> {
    let mut open = Vec::new();
    let mut total = 0;
    for path in files {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        open.push((total, size, file));
        total += size;
    }
    let first = total.saturating_sub(distance);
    let mut cursors: Vec<u64> =
        (0..10).map(|number| (first + number * total / 2_000).min(total - 1)).collect();
    let starts = cursors.clone();
    let mut memory = vec![0; step];
    let (start, mut read) = (Instant::now(), 0);
    while start.elapsed() < time {
        for (cursor, begin) in cursors.iter_mut().zip(&starts) {
            let found = open.iter().find(|(base, size, _)| *base <= *cursor && *cursor < base + size);
            let Some((base, _, file)) = found else {
                *cursor = *begin;
                continue;
            };
            let count = file.read_at(&mut memory, *cursor - base)?;
            std::hint::black_box(&memory);
            *cursor += u64::try_from(count)?;
            read += u64::try_from(count)?;
        }
    }
    Ok((read, start.elapsed().as_secs_f64()))
}

/// Nanoseconds since then.
pub(crate) fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn create(path: &Path, direct: bool) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    if direct {
        options.custom_flags(i32::try_from(OFlags::DIRECT.bits())?);
    }
    options.open(path).with_context(|| format!("cannot create {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(path: &Path, write_size: usize, times: usize) -> bool {
        std::fs::read(path).expect("it is there") == Aligned::new(write_size).get().repeat(times)
    }

    #[test]
    fn every_loop_writes_all_of_its_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        buffered(&path("a"), 1_000, Some(2_000), 5_000).expect("buffered");
        assert!(whole(&path("a"), 1_000, 5));
        let (took, _) = durable_appends(&path("b"), 512, 3, false).expect("durable");
        assert!(took.len() == 3 && whole(&path("b"), 512, 3));
        // A memory file system takes no direct writes.
        if create(&path("probe"), true).is_ok() {
            direct(&path("c"), BLOCK, 3, 7 * 4096).expect("direct");
            assert!(whole(&path("c"), BLOCK, 7));
            let (took, _) = durable_appends(&path("d"), BLOCK, 2, true).expect("direct and durable");
            assert!(took.len() == 2 && whole(&path("d"), BLOCK, 2));
            for (name, overlapped) in [("e", false), ("f", true)] {
                prototype(&path(name), 1_000, 2 * BLOCK, 8 * 4096, overlapped).expect("the prototype");
                let bytes = std::fs::read(path(name)).expect("it is there");
                let source = Aligned::new((4 << 20) / 1_000 * 1_000);
                assert_eq!(bytes.len(), 8 * BLOCK, "{name}");
                assert!(bytes == source.get()[..8 * BLOCK], "{name}: not the source in order");
            }
        }
    }
}
