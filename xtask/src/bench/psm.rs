//! `cargo xtask bench psm`: producer state at up to a million producers.

use std::process::ExitCode;

use anyhow::Result;

use crate::command;

/// Batches applied, a barrier, expiry, snapshots: every value, and the bytes that a producer costs.
///
/// # Errors
/// If a build or a measurement fails, or a state is not what it must be.
pub(super) fn run(runs: u32) -> Result<ExitCode> {
    println!("machine: {}", super::machine());
    let mut bench = command::cargo();
    bench.args(["bench", "--quiet", "--package", "weir-benches", "--bench", "psm", "--"]);
    bench.args(["--runs", &runs.to_string()]);
    command::run(&mut bench)?;
    let mut size = command::cargo();
    size.args([
        "test",
        "--quiet",
        "--release",
        "--package",
        "weir-psm",
        "--test",
        "size",
        "--",
        "--nocapture",
    ]);
    command::run(&mut size)?;
    Ok(ExitCode::SUCCESS)
}
