//! Batches and records of `weir-format`: walked, summed, decompressed and built.
//!
//! Question: what does it cost to look at a batch, to check its CRC, to read each of its records, and to build it?
//! Unit: bytes a second, instructions a record, allocations a batch.
//! Bound: a header walk reads 61 bytes a batch, the CRC every byte once, a record walk every length once; none of
//! them copies or allocates anything. A codec holds one block or window, and the builder one batch.
//! Run: `cargo xtask bench format` (compared and alternated, with counted allocations and, where valgrind and its
//! runner are there, counted instructions); `cargo bench -p weir-benches --bench format` for each alone.
//!
//! Every work answers a hash of all that it has read. What it must be is computed beside the input, without a decoder
//! of ours, so a benchmark that reads wrongly, or nothing, fails.

pub mod input;
pub mod work;

pub use input::{Input, Shape};
