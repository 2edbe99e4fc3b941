//! `cargo xtask bench start-idle`: builds weir in release and runs the benchmark of that name.

use std::process::ExitCode;

use anyhow::Result;

use crate::flags::BenchOptions;
use crate::{command, interop};

/// Builds, then measures; with Kafka in the same run, alternated, if asked for.
///
/// # Errors
/// If a build or a measurement fails.
pub(crate) fn run(options: &BenchOptions) -> Result<ExitCode> {
    let weir = interop::build_weir(&["--release"])?;
    let folder = tempfile::Builder::new().prefix("weir-bench-").tempdir()?;
    let mut bench = command::cargo();
    bench
        .args(["run", "--quiet", "--release", "--package", "weir-benches", "--bin", "start-idle", "--"])
        .arg("--weir")
        .arg(&weir)
        .args(["--runs", &options.runs.to_string()])
        .args(["--idle-seconds", &options.idle_seconds.to_string()]);
    if options.with_kafka {
        let (kafka, port) = interop::kafka_for_bench(folder.path())?;
        println!("beside: Apache Kafka, 1 GiB heap");
        bench.args(["--beside", &port.to_string()]).arg(kafka.get_program()).args(kafka.get_args());
    }
    println!("machine: {}", machine());
    command::run(&mut bench)?;
    Ok(ExitCode::SUCCESS)
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
