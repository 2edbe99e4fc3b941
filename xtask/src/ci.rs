//! `cargo xtask ci`: the list of steps, in order, each printed with its time.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use weir_segment::io::select::{IoConfig, WantedBackend, select};

use crate::seccomp::Refusal;
use crate::{command, flags, fuzz, tidy};

/// How one step ended.
struct Outcome {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
    note: String,
}

/// Runs every step, also behind a failed one, and prints the table.
///
/// # Errors
/// Never for a failed step: that is the exit code.
pub(crate) fn run() -> Result<ExitCode> {
    let features = command::test_features()?;
    let mut outcomes = Vec::new();
    step(&mut outcomes, "fmt", || {
        command::run(command::cargo().args(["fmt", "--all", "--check"]))?;
        let fuzz = command::root().join("fuzz/Cargo.toml");
        if fuzz.is_file() {
            command::run(command::cargo().args(["fmt", "--check", "--manifest-path"]).arg(fuzz))?;
        }
        Ok(String::new())
    });
    step(&mut outcomes, "clippy", || {
        command::run(
            command::cargo()
                .args(["clippy", "--workspace", "--all-targets", "--features"])
                .args([&features, "--", "-D", "warnings"]),
        )?;
        Ok(String::new())
    });
    step(&mut outcomes, "tidy", || {
        let report = tidy::check(&command::root())?;
        report.print();
        anyhow::ensure!(report.findings.is_empty(), "{} findings", report.findings.len());
        Ok(String::new())
    });
    step(&mut outcomes, "test", || {
        cargo_test(&["--workspace", "--lib", "--bins", "--tests", "--features", &features])
    });
    step(&mut outcomes, "uring", || on_backend("uring"));
    step(&mut outcomes, "pwrite", || on_backend("pwrite"));
    for refusal in [Refusal::Eperm, Refusal::Enosys] {
        step(&mut outcomes, refusal.name(), || where_refused(refusal));
    }
    step(&mut outcomes, "doc tests", || cargo_test(&["--workspace", "--doc", "--features", &features]));
    step(&mut outcomes, "fuzz smoke", || {
        let code = fuzz::run(&flags::FuzzOptions::Smoke)?;
        anyhow::ensure!(code == ExitCode::SUCCESS, "a target failed");
        Ok(String::new())
    });
    step(&mut outcomes, "docs", || {
        command::run(
            command::cargo()
                .args(["doc", "--workspace", "--no-deps", "--document-private-items"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )?;
        Ok(String::new())
    });
    step(&mut outcomes, "demo", || {
        command::run(command::cargo().args(["run", "--quiet", "--", "demo"]))?;
        Ok(String::new())
    });
    Ok(summary(&outcomes))
}

fn step(outcomes: &mut Vec<Outcome>, name: &'static str, work: impl FnOnce() -> Result<String>) {
    println!("\n=== {name}");
    let start = Instant::now();
    let result = work();
    let took = start.elapsed();
    let (failure, note) = match result {
        Ok(note) => (None, note),
        Err(error) => (Some(format!("{error:#}")), String::new()),
    };
    println!(
        "=== {name}: {} in {:.1} s",
        if failure.is_none() { "ok" } else { "FAILED" },
        took.as_secs_f64()
    );
    outcomes.push(Outcome { name, took, failure, note });
}

fn summary(outcomes: &[Outcome]) -> ExitCode {
    println!("\n{:<12} {:>9}  result", "step", "time");
    for outcome in outcomes {
        let result = outcome.failure.as_deref().map_or("ok", |_| "FAILED");
        println!("{:<12} {:>7.1} s  {result} {}", outcome.name, outcome.took.as_secs_f64(), outcome.note);
    }
    for outcome in outcomes {
        if let Some(failure) = &outcome.failure {
            println!("{}: {failure}", outcome.name);
        }
    }
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
    println!("{} steps ok, {failed} failed", outcomes.len().saturating_sub(failed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The node's own tests on one backend. Segment's run on each of them anyway.
fn on_backend(name: &'static str) -> Result<String> {
    let wanted: WantedBackend = name.parse()?;
    if let Err(refused) = select(wanted, &IoConfig::default()) {
        println!("skipped: {refused}");
        return Ok("(skipped: it is refused here)".to_owned());
    }
    count_tests(command::cargo().env("WEIR_IO", name).args(["test", "-p", "weir-node"]))
}

/// The tests that touch a disk, in processes whose kernel refuses io_uring.
fn where_refused(refusal: Refusal) -> Result<String> {
    let cargo = command::cargo();
    let mut wrapped = std::process::Command::new(std::env::current_exe()?);
    wrapped.current_dir(command::root()).args(["seccomp", refusal.name(), "--"]);
    wrapped.arg(cargo.get_program()).args(["test", "-p", "weir-segment", "-p", "weir-node"]);
    match refusal {
        Refusal::Eperm => wrapped.arg("--tests"),
        // Both errors lead to the same backend: once all tests, once those of the choice and of the road.
        Refusal::Enosys => wrapped.args(["--test", "it", "--", "select::", "lifecycle::", "produce_fetch::"]),
    };
    count_tests(&mut wrapped)
}

/// Runs `cargo test` and adds up what its harnesses say.
fn cargo_test(arguments: &[&str]) -> Result<String> {
    count_tests(command::cargo().arg("test").args(arguments))
}

fn count_tests(command: &mut std::process::Command) -> Result<String> {
    let mut total = Total::default();
    command::run_looking(command, |line| total.add(line))?;
    anyhow::ensure!(total.passed > 0, "no test ran");
    Ok(format!("({} passed, {} failed, {} ignored)", total.passed, total.failed, total.ignored))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Total {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Total {
    fn add(&mut self, line: &str) {
        let Some(rest) = line.trim().strip_prefix("test result: ") else { return };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<u64>().context("not a count") else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_lines_are_added_up() {
        let mut total = Total::default();
        total.add(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s",
        );
        total.add("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out");
        total.add("test foo ... ok");
        assert_eq!(total, Total { passed: 14, failed: 3, ignored: 1 });
    }
}
