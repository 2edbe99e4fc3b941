//! `cargo xtask fuzz`: coverage-guided fuzzing of one target, and a smoke run of all of them on stable.
//!
//! The oracles are plain functions in the `fuzzing` modules of the crates: the smoke run and cargo-fuzz call the same.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use weir_format::fuzzing::{self, Finding, Oracle};

use crate::command;
use crate::flags::FuzzOptions;

/// Where the smoke run's random numbers begin: the same inputs in the same order on every machine.
const SEED: u64 = 0x7765_6972;
/// Mutated inputs between two looks at the clock.
const ROUNDS: u64 = 100;
/// How long the smoke run stays with one target; a slow machine tries fewer inputs, not others.
const SMOKE: Duration = Duration::from_secs(5);

/// Lists, smokes or fuzzes.
///
/// # Errors
/// If a target is not known, the tools are missing, or a crash was found.
pub(crate) fn run(options: &FuzzOptions) -> Result<ExitCode> {
    match options {
        FuzzOptions::List => {
            for (name, _) in targets() {
                println!("{name}");
            }
            Ok(ExitCode::SUCCESS)
        }
        FuzzOptions::Smoke => smoke(&command::root().join("fuzz"), SMOKE),
        FuzzOptions::Target { name, seconds, install } => {
            ensure!(
                targets().iter().any(|(target, _)| target == name),
                "no target {name:?}; see cargo xtask fuzz --list"
            );
            fuzz(name, *seconds, *install)
        }
    }
}

/// Every crate's targets.
fn targets() -> Vec<(&'static str, Oracle)> {
    [weir_format::fuzzing::TARGETS, weir_segment::fuzzing::TARGETS, weir_wire::fuzzing::TARGETS].concat()
}

/// Runs every target in this process, and a canary that must be caught.
fn smoke(folder: &Path, time: Duration) -> Result<ExitCode> {
    let mut failed = 0;
    let mut all_seeds = Vec::new();
    for (name, oracle) in targets() {
        let seeds = inputs(folder, name)?;
        let start = Instant::now();
        match smoke_one(oracle, &seeds, time) {
            Ok(rounds) => {
                let took = start.elapsed().as_secs_f64();
                println!("fuzz {name}: {} seeds and {rounds} mutations in {took:.1} s", seeds.len());
            }
            Err(finding) => {
                failed += 1;
                let kept = keep(folder, name, &finding.input)?;
                println!("fuzz {name}: FAILED in round {}, the input is {}", finding.round, kept.display());
            }
        }
        all_seeds.extend(seeds.into_iter().filter(|seed| !seed.contains(&fuzzing::CANARY_BYTE)));
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let canary = smoke_one(fuzzing::canary, &all_seeds, time);
    std::panic::set_hook(hook);
    match canary {
        Ok(rounds) => {
            failed += 1;
            println!(
                "fuzz canary: FAILED, {rounds} mutations did not find its fault: this run would find nothing"
            );
        }
        Err(finding) => println!("fuzz canary: caught in round {}, as it must be", finding.round),
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The seeds, then mutations of them until the time is over; how many, or the first that failed.
fn smoke_one(oracle: Oracle, seeds: &[Vec<u8>], time: Duration) -> Result<u64, Finding> {
    let start = Instant::now();
    let mut rounds = 0;
    fuzzing::smoke(oracle, seeds, SEED, 0)?;
    while start.elapsed() < time {
        fuzzing::smoke(oracle, seeds, SEED.wrapping_add(rounds), ROUNDS)
            .map_err(|finding| Finding { round: rounds + finding.round, ..finding })?;
        rounds += ROUNDS;
    }
    Ok(rounds)
}

/// Seeds and regressions of a target; at least an empty input.
fn inputs(folder: &Path, name: &str) -> Result<Vec<Vec<u8>>> {
    let mut inputs = vec![Vec::new()];
    for kind in ["seeds", "regressions"] {
        let mut paths = listing(&folder.join(kind).join(name));
        paths.sort();
        for path in paths.into_iter().filter(|path| path.is_file()) {
            inputs.push(std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
        }
    }
    Ok(inputs)
}

/// Runs cargo-fuzz for some seconds; a crash is minimised and kept.
fn fuzz(name: &str, seconds: u64, install: bool) -> Result<ExitCode> {
    if !has_cargo_fuzz() {
        if !install {
            bail!("cargo-fuzz is not installed: cargo install cargo-fuzz, or run this again with --install");
        }
        command::run(command::cargo().args(["install", "cargo-fuzz", "--locked"]))?;
    }
    let toolchain = toolchain();
    println!("fuzzing {name} for {seconds} s with {}", toolchain.says());
    let folder = command::root().join("fuzz");
    for kind in ["seeds", "regressions"] {
        std::fs::create_dir_all(folder.join(kind).join(name))?;
    }
    let artifacts = folder.join("artifacts").join(name);
    let before = listing(&artifacts);
    let corpus = folder.join("corpus").join(name);
    std::fs::create_dir_all(&corpus)?;
    let mut run = toolchain.cargo_fuzz();
    run.args(["run", name]).arg(&corpus);
    for kind in ["seeds", "regressions"] {
        run.arg(folder.join(kind).join(name));
    }
    run.args(["--", &format!("-max_total_time={seconds}"), "-max_len=65536"]);
    let ended = run.status().context("cargo fuzz cannot be started")?;
    let crashes: Vec<PathBuf> =
        listing(&artifacts).into_iter().filter(|path| !before.contains(path)).collect();
    if crashes.is_empty() {
        ensure!(ended.success(), "cargo fuzz: {ended}");
        println!("fuzz {name}: no crash in {seconds} s");
        return Ok(ExitCode::SUCCESS);
    }
    for crash in &crashes {
        let smallest = minimise(&toolchain, name, crash, &artifacts);
        let input = std::fs::read(&smallest)?;
        println!("fuzz {name}: a crash, kept as {}", keep(&folder, name, &input)?.display());
    }
    Ok(ExitCode::FAILURE)
}

/// The smallest input that still fails; the given one if none is found.
fn minimise(toolchain: &Toolchain, name: &str, crash: &Path, artifacts: &Path) -> PathBuf {
    let before = listing(artifacts);
    let ended = toolchain.cargo_fuzz().args(["tmin", name, "--runs", "2000"]).arg(crash).status();
    if !ended.is_ok_and(|status| status.success()) {
        return crash.to_path_buf();
    }
    let mut found: Vec<PathBuf> =
        listing(artifacts).into_iter().filter(|path| !before.contains(path)).collect();
    found.sort_by_key(|path| std::fs::metadata(path).map_or(u64::MAX, |metadata| metadata.len()));
    found.into_iter().next().unwrap_or_else(|| crash.to_path_buf())
}

/// Stores an input under `fuzz/regressions/TARGET/`, named by its content.
fn keep(folder: &Path, name: &str, input: &[u8]) -> Result<PathBuf> {
    let folder = folder.join("regressions").join(name);
    std::fs::create_dir_all(&folder)?;
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let path = folder.join(format!("{hash:016x}"));
    std::fs::write(&path, input)?;
    Ok(path)
}

fn listing(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder)
        .map(|entries| entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
        .unwrap_or_default()
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
    fn a_short_smoke_run_passes_and_hears_the_canary() {
        let code =
            smoke(&command::root().join("fuzz"), Duration::from_millis(200)).expect("the seeds can be read");
        assert_eq!(code, ExitCode::SUCCESS);
    }

    #[test]
    fn the_targets_are_the_files_of_the_fuzz_package() {
        let mut files: Vec<String> = listing(&command::root().join("fuzz/fuzz_targets"))
            .iter()
            .filter_map(|path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
            .collect();
        files.sort();
        let mut names: Vec<&str> = targets().into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(files, names);
    }

    #[test]
    fn a_kept_input_is_read_again_by_the_next_run() {
        let folder = tempfile::tempdir().expect("a folder");
        keep(folder.path(), "t", b"bad").expect("kept");
        assert!(inputs(folder.path(), "t").expect("read").contains(&b"bad".to_vec()));
    }
}
