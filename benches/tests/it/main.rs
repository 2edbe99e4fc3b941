//! The benchmarks with tiny settings, as tests.

mod format;
mod start_idle;
