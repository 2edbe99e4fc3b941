//! `cargo xtask bench start-idle`: start and idle cost of `weir serve`.

use std::process::ExitCode;

use anyhow::Result;

use crate::flags::StartIdleOptions;
use crate::{command, interop};

/// Builds, then measures; with Kafka in the same run, alternated, if asked for.
///
/// # Errors
/// If a build or a measurement fails.
pub(super) fn run(options: &StartIdleOptions) -> Result<ExitCode> {
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
    println!("machine: {}", super::machine());
    command::run(&mut bench)?;
    Ok(ExitCode::SUCCESS)
}
