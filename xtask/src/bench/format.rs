//! `cargo xtask bench format`: batches and records against plain baselines and against `kafka-protocol`.

use std::process::ExitCode;

use anyhow::Result;

use crate::command;

/// What counts instructions, besides valgrind; of the same version as the library `gungraun`.
const RUNNER: &str = "gungraun-runner";

/// Alternated speeds and their ratios, counted allocations, and counted instructions where the tools are there.
///
/// # Errors
/// If a build or a measurement fails, or something reads what it must not.
pub(super) fn run(runs: u32) -> Result<ExitCode> {
    println!("machine: {}", super::machine());
    let mut speed = bench("format_speed");
    speed.args(["--", "--runs", &runs.to_string()]);
    command::run(&mut speed)?;
    let mut counts = command::cargo();
    counts.args(["test", "--quiet", "--release", "--package", "weir-benches", "--test", "it", "--"]).args([
        "--exact",
        "format::walks_allocate_nothing",
        "--nocapture",
    ]);
    command::run(&mut counts)?;
    if command::has("valgrind") && command::has(RUNNER) {
        let mut instructions = bench("format_instructions");
        instructions.args(["--features", "instructions"]);
        command::run(&mut instructions)?;
    } else {
        println!(
            "instructions are not counted: that takes valgrind and cargo install {RUNNER} --version 0.20.0"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn bench(name: &str) -> std::process::Command {
    let mut bench = command::cargo();
    bench.args(["bench", "--quiet", "--package", "weir-benches", "--bench", name]);
    bench
}
