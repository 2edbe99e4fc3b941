//! `cargo xtask fuzz`: coverage-guided fuzzing of one target or all, and a smoke run of all of them on stable.
//!
//! The oracles are plain functions in the `fuzzing` modules of the crates: the smoke run and cargo-fuzz call the same.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_format::fuzzing::{self, Finding, Oracle};

use crate::command;
use crate::flags::FuzzOptions;

mod libfuzzer;

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
        FuzzOptions::Guided { target, seconds, jobs, install } => {
            let mut names: Vec<&str> = targets().into_iter().map(|(name, _)| name).collect();
            if let Some(target) = target {
                ensure!(names.contains(&target.as_str()), "no target {target:?}; see cargo xtask fuzz list");
                names.retain(|name| name == target);
            }
            libfuzzer::run(&names, *seconds, *jobs, *install)
        }
    }
}

/// Every crate's targets.
fn targets() -> Vec<(&'static str, Oracle)> {
    [
        weir_format::fuzzing::TARGETS,
        weir_log::fuzzing::TARGETS,
        weir_node::cli::inspect::fuzzing::TARGETS,
        weir_psm::fuzzing::TARGETS,
        weir_recovery::fuzzing::TARGETS,
        weir_segment::fuzzing::TARGETS,
        weir_wire::fuzzing::TARGETS,
    ]
    .concat()
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
