//! The benchmarks with tiny settings, as tests.

mod append;
mod format;
mod kill;
mod recovery;
mod start_idle;
