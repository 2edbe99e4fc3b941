//! The command line: what is said to it, and how it answers.
//!
//! Data goes to standard output, everything else to standard error. Exit codes: 0 done · 1 refused
//! or failed · 2 wrong usage or options, nothing was tried · 3 partly done · 4 unreachable or timed
//! out, state unknown · 10 looked, and it is not good · 130 interrupted.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bar;
pub mod demo;
pub mod dump_log;
pub mod inspect;
pub mod mirror;
mod progress;
pub mod recover;
pub mod serve;

/// A failure, told to a person: what, why, and what to do.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub code: u8,
    /// What failed.
    pub error: String,
    /// Why, if it is known.
    pub cause: Option<String>,
    /// What to do.
    pub help: Option<String>,
}

impl Failure {
    /// A failure with exit code 1.
    pub fn failed(error: impl Into<String>) -> Self {
        Self { code: 1, error: error.into(), cause: None, help: None }
    }

    /// A failure with exit code 2: wrong usage or options, nothing was tried.
    pub fn usage(error: impl Into<String>) -> Self {
        Self { code: 2, ..Self::failed(error) }
    }

    /// A failure with exit code 4: the other side cannot be reached or did not answer in time, so
    /// that its state is not known.
    pub fn unreachable(error: impl Into<String>) -> Self {
        Self { code: 4, ..Self::failed(error) }
    }

    /// The same failure with the causes of an error.
    #[must_use]
    pub fn because(mut self, error: &dyn std::error::Error) -> Self {
        self.cause = Some(crate::shard::describe(error));
        self
    }

    /// The same failure with a remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// An error and its causes: the first is what failed, the others are why.
    #[must_use]
    pub fn of(code: u8, error: &dyn std::error::Error) -> Self {
        let cause = error.source().map(crate::shard::describe);
        Self { code, error: error.to_string(), cause, help: None }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error: {}", self.error)?;
        if let Some(cause) = &self.cause {
            write!(f, "\ncause: {cause}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\nhelp: {help}")?;
        }
        Ok(())
    }
}

/// A Kafka log node: mirrors, serves, and takes over when it must.
#[derive(Debug, Parser)]
#[command(name = "weir", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the whole road in a few seconds: mirror, lose the source, switch, write, kill, recover.
    Demo(demo::Demo),
    /// Serve a data directory to Kafka clients.
    Serve(serve::Serve),
    /// Print what stands in a partition's files, as Kafka's DumpLogSegments does.
    DumpLog(dump_log::DumpLog),
    /// Explain a partition, a log directory or a file of one, and what a start would do about it.
    Inspect(inspect::Inspect),
    /// Take a corrupt end off a log, which a start never does by itself.
    Recover(recover::Recover),
    /// Mirror topics of another cluster, and switch to them.
    Mirror(mirror::Mirror),
}

/// Does what the command line says.
///
/// # Errors
/// A [`Failure`] to be printed; its code is the exit code.
pub fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Demo(demo) => demo.run(),
        Command::Serve(serve) => serve.run(),
        Command::DumpLog(dump_log) => dump_log.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Recover(recover) => recover.run(),
        Command::Mirror(mirror) => mirror.run(),
    }
}
