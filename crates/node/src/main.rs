//! The binary `weir`: parse, run, print, exit code.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser as _;
use weir_node::cli::{self, Cli};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Usage errors have exit code 2, help and version 0; a closed pipe is no error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match cli::run(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.code)
        }
    }
}
