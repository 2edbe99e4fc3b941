//! Coverage-guided fuzzing by cargo-fuzz: runs targets, reads what libFuzzer says of them, keeps what fails.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use super::{keep, listing};
use crate::command;

/// The longest input that libFuzzer makes, in bytes.
const LONGEST_INPUT: &str = "-max_len=65536";
/// How often `tmin` tries to make a failing input smaller.
const MINIMISING_RUNS: &str = "2000";

/// Fuzzes each target for some seconds, `jobs` of them at a time; a crash is minimised and kept as a regression.
///
/// The other targets go on after a crash. A table with what was executed is printed at the end.
///
/// # Errors
/// If cargo-fuzz is missing and may not be installed, or a target cannot be built or started.
pub(super) fn run(names: &[&str], seconds: u64, jobs: usize, install: bool) -> Result<ExitCode> {
    if !has_cargo_fuzz() {
        if !install {
            bail!("cargo-fuzz is not installed: cargo install cargo-fuzz, or run this again with --install");
        }
        command::run(command::cargo().args(["install", "cargo-fuzz", "--locked"]))?;
    }
    let toolchain = toolchain();
    println!("fuzzing {} for {seconds} s each with {}", targets_in_words(names), toolchain.says());
    let mut build = toolchain.cargo_fuzz();
    build.arg("build");
    if let [name] = names {
        build.arg(name);
    }
    command::run(&mut build)?;

    let start = Instant::now();
    let waiting = Mutex::new(names.iter());
    let runs: Mutex<Vec<(String, Result<Run>)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, names.len().max(1)) {
            scope.spawn(|| {
                while let Some(name) = waiting.lock().ok().and_then(|mut names| names.next()) {
                    let run = one(&toolchain, name, seconds);
                    if let Ok(mut runs) = runs.lock() {
                        runs.push(((*name).to_owned(), run));
                    }
                }
            });
        }
    });
    let mut runs = runs.into_inner().map_err(|_| anyhow!("a thread of the fuzzing died"))?;
    runs.sort_by_key(|(name, _)| names.iter().position(|other| other == name));
    Ok(report(&runs, start.elapsed().as_secs()))
}

/// What libFuzzer said of one target, and the inputs that failed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    executed: u64,
    per_second: u64,
    seconds: u64,
    /// Edges covered.
    coverage: u64,
    kept: Vec<PathBuf>,
}

fn one(toolchain: &Toolchain, name: &str, seconds: u64) -> Result<Run> {
    let folder = command::root().join("fuzz");
    let artifacts = folder.join("artifacts").join(name);
    let before = listing(&artifacts);
    let mut fuzz = toolchain.cargo_fuzz();
    fuzz.args(["run", name]);
    for kind in ["corpus", "seeds", "regressions"] {
        let inputs = folder.join(kind).join(name);
        std::fs::create_dir_all(&inputs)?;
        fuzz.arg(inputs);
    }
    fuzz.args(["--", &format!("-max_total_time={seconds}"), LONGEST_INPUT, "-print_final_stats=1"]);
    let start = Instant::now();
    let mut child = fuzz.stderr(Stdio::piped()).spawn().context("cargo fuzz cannot be started")?;
    let mut run = Run::default();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines() {
            let line = line.context("what cargo fuzz says cannot be read")?;
            println!("{name}: {line}");
            run.read(&line);
        }
    }
    let ended = child.wait()?;
    run.seconds = start.elapsed().as_secs();
    for crash in listing(&artifacts).into_iter().filter(|path| !before.contains(path)) {
        let smallest = minimise(toolchain, name, &crash, &artifacts);
        run.kept.push(keep(&folder, name, &std::fs::read(&smallest)?)?);
    }
    if run.kept.is_empty() && !ended.success() {
        bail!("cargo fuzz run {name}: {ended}, and no input was kept");
    }
    Ok(run)
}

impl Run {
    /// Takes in one line of libFuzzer's.
    fn read(&mut self, line: &str) {
        let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
        if let Some(found) = line.strip_prefix("stat::number_of_executed_units:").and_then(number) {
            self.executed = found;
        } else if let Some(found) = line.strip_prefix("stat::average_exec_per_sec:").and_then(number) {
            self.per_second = found;
        } else if let Some(found) = line
            .strip_prefix('#')
            .and_then(|line| line.split_once(" cov: "))
            .and_then(|(_, rest)| number(rest))
        {
            self.coverage = found;
        }
    }
}

/// Prints a line a target; failure if one was not run or an input failed.
fn report(runs: &[(String, Result<Run>)], seconds: u64) -> ExitCode {
    println!(
        "\n{:<14} {:>8} {:>13} {:>10} {:>7}  result",
        "target", "seconds", "executions", "exec/s", "edges"
    );
    let (mut executed, mut failed) = (0_u64, false);
    for (name, run) in runs {
        match run {
            Ok(run) => {
                executed += run.executed;
                failed |= !run.kept.is_empty();
                let result = match run.kept.as_slice() {
                    [] => "no crash".to_owned(),
                    kept => {
                        let kept: Vec<_> = kept.iter().map(|path| path.display().to_string()).collect();
                        format!("CRASH, kept as {}", kept.join(", "))
                    }
                };
                println!(
                    "{name:<14} {:>8} {:>13} {:>10} {:>7}  {result}",
                    run.seconds, run.executed, run.per_second, run.coverage
                );
            }
            Err(error) => {
                failed = true;
                println!("{name:<14} {:>8} {:>13} {:>10} {:>7}  NOT RUN: {error:#}", "-", "-", "-", "-");
            }
        }
    }
    let fuzzed: u64 = runs.iter().filter_map(|(_, run)| run.as_ref().ok()).map(|run| run.seconds).sum();
    println!("{} targets, {executed} executions, {fuzzed} s of fuzzing in {seconds} s", runs.len());
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn targets_in_words(names: &[&str]) -> String {
    match names {
        [name] => (*name).to_owned(),
        names => format!("{} targets", names.len()),
    }
}

/// The smallest input that still fails; the given one if none is found.
fn minimise(toolchain: &Toolchain, name: &str, crash: &Path, artifacts: &Path) -> PathBuf {
    let before = listing(artifacts);
    let ended = toolchain.cargo_fuzz().args(["tmin", name, "--runs", MINIMISING_RUNS]).arg(crash).status();
    if !ended.is_ok_and(|status| status.success()) {
        return crash.to_path_buf();
    }
    let mut found: Vec<PathBuf> =
        listing(artifacts).into_iter().filter(|path| !before.contains(path)).collect();
    found.sort_by_key(|path| std::fs::metadata(path).map_or(u64::MAX, |metadata| metadata.len()));
    found.into_iter().next().unwrap_or_else(|| crash.to_path_buf())
}

fn has_cargo_fuzz() -> bool {
    command::cargo().args(["fuzz", "--version"]).output().is_ok_and(|output| output.status.success())
}

/// The compiler that builds with coverage.
enum Toolchain {
    Nightly,
    /// Stable with the variable that lets it take nightly's options.
    Stable,
}

fn toolchain() -> Toolchain {
    let nightly = Command::new("rustup").args(["run", "nightly", "rustc", "--version"]).output();
    if nightly.is_ok_and(|output| output.status.success()) { Toolchain::Nightly } else { Toolchain::Stable }
}

impl Toolchain {
    fn says(&self) -> &'static str {
        match self {
            Self::Nightly => "the nightly toolchain",
            Self::Stable => "the stable toolchain and RUSTC_BOOTSTRAP=1 (there is no nightly)",
        }
    }

    fn cargo_fuzz(&self) -> Command {
        let mut command = match self {
            Self::Nightly => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo", "fuzz"]);
                // cargo of another toolchain must not inherit what ours was told.
                command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN").env_remove("RUSTC");
                command
            }
            Self::Stable => {
                let mut command = command::cargo();
                command.arg("fuzz").env("RUSTC_BOOTSTRAP", "1");
                command
            }
        };
        command.current_dir(command::root());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libfuzzer_says_is_read() {
        let mut run = Run::default();
        for line in [
            "INFO: Seed: 1",
            "#1000\tREDUCE cov: 41 ft: 55 corp: 3/9b lim: 4 exec/s: 0 rss: 40Mb L: 3/4 MS: 1 ChangeBit-",
            "#280262\tDONE   cov: 212 ft: 1001 corp: 3/9b lim: 4096 exec/s: 4594 rss: 500Mb",
            "Done 280262 runs in 61 second(s)",
            "stat::number_of_executed_units: 280262",
            "stat::average_exec_per_sec:     4594",
        ] {
            run.read(line);
        }
        assert_eq!(run, Run { executed: 280_262, per_second: 4594, coverage: 212, ..Run::default() });
    }

    #[test]
    fn a_crash_or_a_target_that_did_not_run_fails_the_whole() {
        let crash = || Run { kept: vec![PathBuf::from("fuzz/regressions/batch/0")], ..Run::default() };
        let name = || "batch".to_owned();
        assert_eq!(report(&[(name(), Ok(Run::default()))], 1), ExitCode::SUCCESS);
        assert_eq!(report(&[(name(), Ok(Run::default())), (name(), Ok(crash()))], 1), ExitCode::FAILURE);
        assert_eq!(report(&[(name(), Err(anyhow!("no compiler")))], 1), ExitCode::FAILURE);
    }
}
