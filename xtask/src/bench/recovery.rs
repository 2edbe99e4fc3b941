//! `cargo xtask bench recovery`: loads of logs after a crash, beside plain reads and Kafka's own loader.

use std::process::ExitCode;

use anyhow::Result;

use crate::{command, interop};

/// Leaves Kafka out; everything else is the benchmark's own.
const WITHOUT_KAFKA: &str = "--without-kafka";

/// Builds and runs the benchmark; `rest` are its own flags, which it explains with `--help`. Apache Kafka's loader runs
/// beside ours unless `--without-kafka` is among them.
///
/// # Errors
/// If a build or the measurement fails.
pub(super) fn run(rest: &[String]) -> Result<ExitCode> {
    println!("machine: {}", super::machine());
    let folder = tempfile::Builder::new().prefix("weir-bench-").tempdir()?;
    let mut bench = command::cargo();
    bench
        .args(["run", "--quiet", "--release", "--package", "weir-benches", "--bin", "recovery", "--"])
        .args(rest.iter().filter(|word| *word != WITHOUT_KAFKA));
    if !rest.iter().any(|word| word == WITHOUT_KAFKA || word == "--help") {
        let kafka = interop::kafka_loader_for_bench(folder.path())?;
        println!("beside: Apache Kafka's loader, 1 GiB heap");
        bench.arg("--kafka").arg(kafka.get_program()).args(kafka.get_args());
    }
    command::run(&mut bench)?;
    Ok(ExitCode::SUCCESS)
}
