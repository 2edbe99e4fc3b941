//! A log that was never flushed, loaded after a crash: beside a plain read of its files and beside Kafka's own loader.
//!
//! Question: how fast does a start after a kill walk a log, cold, and with what CPU? What do many small partitions cost at
//! a start and at a stop?
//! Unit: 10^9 bytes a second, CPU seconds for 10^9 bytes, MiB of memory at the most.
//! Bound: every byte is read once, past the page cache, and its CRC computed where the read has put it; a batch is
//! copied only where it lies on the border of two reads. The plain reads look at nothing.
//! Run: `cargo xtask bench recovery`.
//!
//! All rows of a section take turns in one run, each over the same `.log` files (hard links), which are taken out of the
//! page cache before. What the machine below caches is not known.

pub mod input;
pub mod kafka;
pub mod plain;
pub mod sections;
