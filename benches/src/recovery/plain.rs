//! What a load is compared with: reads of the same files past the page cache, by which nothing is looked at.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use weir_segment::io::Open;
use weir_segment::io::ahead::ReadAhead;

use crate::append::open_backend;
use crate::cost::{Cost, Meter};

/// Alignment that direct reads need here.
const BLOCK: usize = 4096;

/// Reads the files past the page cache by `depth` threads, of which each reads the next `step` bytes.
///
/// # Errors
/// If the disk fails, or does not take direct reads.
pub fn threads(files: &[PathBuf], step: usize, depth: usize) -> Result<(u64, Cost)> {
    let size = u64::try_from(step)?;
    let meter = Meter::start()?;
    let read = AtomicU64::new(0);
    for path in files {
        let flags = i32::try_from(OFlags::DIRECT.bits())?;
        let file = File::options().read(true).custom_flags(flags).open(path);
        let file = file.with_context(|| format!("no direct reads of {}", path.display()))?;
        let next = AtomicU64::new(0);
        let length = file.metadata()?.len();
        std::thread::scope(|scope| -> Result<()> {
            let running: Vec<_> = (0..depth)
                .map(|_| {
                    scope.spawn(|| -> Result<()> {
                        let mut memory = vec![0; step + BLOCK];
                        let start = memory.as_ptr().addr().next_multiple_of(BLOCK) - memory.as_ptr().addr();
                        let memory = &mut memory[start..start + step];
                        loop {
                            let at = next.fetch_add(size, Ordering::Relaxed);
                            if at >= length {
                                return Ok(());
                            }
                            let count = file.read_at(memory, at)?;
                            std::hint::black_box(&memory);
                            read.fetch_add(u64::try_from(count)?, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for thread in running {
                thread.join().map_err(|_| anyhow::anyhow!("a reading thread failed"))??;
            }
            Ok(())
        })?;
    }
    let cost = meter.stop()?;
    Ok((read.into_inner(), cost))
}

/// Reads the files through a backend as a walk does, and looks at nothing.
///
/// # Errors
/// If the disk fails.
pub fn ahead(files: &[PathBuf], backend: &str) -> Result<(u64, Cost)> {
    let mut io = open_backend(backend)?;
    let meter = Meter::start()?;
    let mut read = 0;
    for path in files {
        let file = io.open(path, Open::Append)?;
        let size = io.len(file)?;
        let mut ahead = ReadAhead::new(file, 0, size);
        while let Some(piece) = ahead.next(io.as_mut())? {
            read += u64::try_from(std::hint::black_box(piece.bytes()).len())?;
            ahead.give_back(piece);
        }
        io.close(file)?;
    }
    Ok((read, meter.stop()?))
}
