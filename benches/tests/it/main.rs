//! The benchmarks with tiny settings, as tests.

mod start_idle;
