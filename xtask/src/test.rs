//! `cargo xtask test`: all tests of the workspace, with the simulated disk and the fuzz oracles switched on.

use std::process::ExitCode;

use anyhow::Result;

use crate::command;

/// Runs `cargo test --workspace`; `rest` is handed to cargo.
///
/// # Errors
/// If a test fails or does not build.
pub(crate) fn run(rest: &[String]) -> Result<ExitCode> {
    let features = command::test_features()?;
    let mut cargo = command::cargo();
    cargo.arg("test");
    let chosen = rest.iter().any(|word| word == "-p" || word == "--package" || word.starts_with("-p="));
    if !chosen {
        cargo.args(["--workspace", "--features", &features]);
    }
    cargo.args(rest);
    command::run(&mut cargo)?;
    Ok(ExitCode::SUCCESS)
}
