//! `cargo xtask bench append`: the segment writer against plain loops over the same disk.

use std::process::ExitCode;

use anyhow::Result;

use crate::command;

/// Builds and runs the benchmark; `rest` are its own flags, which it explains with `--help`.
///
/// # Errors
/// If the build or the measurement fails.
pub(super) fn run(rest: &[String]) -> Result<ExitCode> {
    println!("machine: {}", super::machine());
    let mut bench = command::cargo();
    bench
        .args(["run", "--quiet", "--release", "--package", "weir-benches", "--bin", "append", "--"])
        .args(rest);
    command::run(&mut bench)?;
    Ok(ExitCode::SUCCESS)
}
