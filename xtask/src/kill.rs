//! `cargo xtask kill`: kill -9 rounds over one partition, with each backend that runs here.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::command;
use crate::flags::KillOptions;

/// Builds and runs the rounds; a round that fails leaves its folder, and says where.
///
/// # Errors
/// If the build fails, or a round does.
pub(crate) fn run(options: &KillOptions) -> Result<ExitCode> {
    let program = build(&["--release"])?;
    for backend in &options.backends {
        let folder = tempfile::Builder::new().prefix("weir-kill-").tempdir()?.keep();
        command::run(
            Command::new(&program)
                .arg("rounds")
                .arg(&folder)
                .args(["--backend", backend, "--checkers", &options.backends.join(",")])
                .args(["--rounds", &options.rounds.to_string()])
                .args(["--seed", &options.seed.to_string()]),
        )
        .with_context(|| format!("the files are in {}", folder.display()))?;
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the program of the rounds and says where it is.
///
/// # Errors
/// If the build fails.
pub(crate) fn build(more: &[&str]) -> Result<PathBuf> {
    let text = command::output(
        command::cargo()
            .args(["build", "--package", "weir-benches", "--bin", "kill"])
            .args(["--message-format", "json-render-diagnostics"])
            .args(more),
    )?;
    text.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "kill")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo build did not say where the binary is")
}
