//! `cargo xtask <command>`: everything the project runs on itself, each thing under one name.
//!
//! CI runs these commands and nothing else, so what fails there can be repeated here by name.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line tool speaks on standard output")]
#![expect(clippy::disallowed_methods, reason = "xtask runs programs and waits for them with the real clock")]

mod bench;
mod ci;
mod command;
mod flags;
mod fuzz;
mod golden;
mod interop;
mod kill;
mod seccomp;
mod test;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match flags::parse(&arguments) {
        Ok(command) => match dispatch(command) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
        Err(usage) => {
            eprintln!("error: {usage}\n\n{}", flags::HELP);
            ExitCode::from(2)
        }
    }
}

fn dispatch(command: flags::Command) -> anyhow::Result<ExitCode> {
    match command {
        flags::Command::Help => {
            println!("{}", flags::HELP);
            Ok(ExitCode::SUCCESS)
        }
        flags::Command::Test { rest } => test::run(&rest),
        flags::Command::Ci => ci::run(),
        flags::Command::Tidy { bless } => tidy::run(bless),
        flags::Command::Fuzz(options) => fuzz::run(&options),
        flags::Command::Golden(options) => golden::run(&options),
        flags::Command::Interop(options) => interop::run(&options),
        flags::Command::Kill(options) => kill::run(&options),
        flags::Command::Bench(options) => bench::run(&options),
        flags::Command::Seccomp { refusal, command } => seccomp::run(refusal, &command),
    }
}
