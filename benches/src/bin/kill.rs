//! Kill -9 rounds over one partition: writes, kills, recovers, compares.
//!
//! `kill rounds FOLDER [--backend uring|pwrite] [--checkers NAMES] [--rounds N] [--seed N]`, where the folder is made and
//! stays; `kill write FOLDER ...` is the writer that the rounds start and kill; `kill close FOLDER` recovers what is there
//! and ends it cleanly.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a program prints what it found")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use weir_benches::kill::{self, Rounds, writer};
use weir_format::{LeaderEpoch, Offset};

const USAGE: &str =
    "usage: kill rounds FOLDER [--backend uring|pwrite] [--checkers uring,pwrite] [--rounds N] [--seed N]";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(command), Some(folder)) = (words.next(), words.next()) else { bail!(USAGE) };
    let folder = PathBuf::from(folder);
    let mut backend = "pwrite".to_owned();
    let mut checkers = Vec::new();
    let (mut count, mut seed, mut epoch, mut recovery_point, mut log_start) = (5, 1, 0, 0, 0);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--backend" => backend = value,
            "--checkers" => checkers = value.split(',').map(str::to_owned).collect(),
            "--rounds" => count = value.parse()?,
            "--seed" => seed = value.parse()?,
            "--epoch" => epoch = value.parse()?,
            "--recovery-point" => recovery_point = value.parse()?,
            "--log-start" => log_start = value.parse()?,
            _ => bail!("{word:?} is not known\n{USAGE}"),
        }
    }
    match command.as_str() {
        "write" => {
            let start = writer::Start {
                seed,
                epoch: LeaderEpoch::new(epoch).context("no epoch")?,
                recovery_point: Offset::new(recovery_point).context("no offset")?,
                log_start: Offset::new(log_start).context("no offset")?,
            };
            writer::run(&folder, &backend, start)
        }
        "close" => kill::close(&folder, &backend),
        "rounds" => {
            // Says at once what does not run here.
            weir_benches::append::open_backend(&backend)?;
            std::fs::create_dir_all(&folder)?;
            if checkers.is_empty() {
                checkers.push(backend.clone());
            }
            let program = std::env::current_exe()?;
            let rounds = Rounds { program, folder, backend: backend.clone(), checkers, count, seed };
            let totals = kill::run(&rounds, |round, totals| {
                if round.is_multiple_of(10) {
                    println!("round {round}: {totals:?}");
                }
            })?;
            println!("{backend}, seed {seed}: {totals:?}");
            println!(
                "{backend}: {} rounds, {} batches acknowledged, 0 lost",
                totals.rounds, totals.acknowledged
            );
            Ok(())
        }
        other => bail!("{other:?} is not known\n{USAGE}"),
    }
}
