//! `cargo xtask bench <name>`: builds in release what is measured, and runs the benchmark of that name.

mod append;
mod format;
mod psm;
mod recovery;
mod start_idle;

use std::process::ExitCode;

use anyhow::Result;

use crate::flags::BenchOptions;

/// Runs one benchmark; its figures go to standard output, below a line that names the machine.
///
/// # Errors
/// If a build or a measurement fails.
pub(crate) fn run(options: &BenchOptions) -> Result<ExitCode> {
    match options {
        BenchOptions::StartIdle(options) => start_idle::run(options),
        BenchOptions::Append(rest) => append::run(rest),
        BenchOptions::Format { runs } => format::run(*runs),
        BenchOptions::Psm { runs } => psm::run(*runs),
        BenchOptions::Recovery(rest) => recovery::run(rest),
    }
}

/// Processor, count and kernel: a figure without them says little.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |rest| rest.trim_start_matches(['\t', ' ', ':']));
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!("{count} x {model}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}
