//! The segment writer against plain loops over the same disk.
//!
//! Question: what share of the disk does [`LocalLog`](weir_segment::LocalLog) reach, what CPU does it take, and how long
//! does a durable append last, with each backend, beside loops that do nothing but write?
//! Unit: 10^6 bytes a second, CPU seconds for 10^9 bytes, microseconds.
//! Bound: the bytes of a batch are read once for their CRC and copied once into an aligned buffer; one write for each
//! MiB, one sync for each group. Past the page cache nothing else touches them.
//! Run: `cargo xtask bench append`.
//!
//! All figures of a section come from one run, in which the rows take turns; each is the median of all runs, which are
//! printed. Durable figures depend on the file system: without a journal a sync is cheaper than usual.

pub mod batches;
pub mod newest;
pub mod plain;
pub mod sections;
pub mod shard;

use anyhow::{Context, Result};
use weir_segment::io::Io;
use weir_segment::io::select::{WantedBackend, select};

/// The backend that was asked for, and only that one.
///
/// # Errors
/// If it does not run here; the text says why.
pub fn open_backend(name: &str) -> Result<Box<dyn Io>> {
    let wanted: WantedBackend = name.parse()?;
    let (io, _) = select(wanted, &Default::default()).with_context(|| format!("no {name} here"))?;
    Ok(io)
}
