//! Benchmarks of weir: each says its question, its unit and how to run it, and also runs as a test with tiny
//! settings.
//!
//! Figures are ratios of one run, not absolutes: what weir is compared with runs in the same minutes on the same
//! machine. What measures a process uses nothing of weir's own code, so that it cannot share a fault with what it measures.

#![forbid(unsafe_code)]

pub mod append;
pub mod chart;
pub mod cost;
pub mod figures;
pub mod format;
pub mod kill;
pub mod recovery;
pub mod start_idle;
