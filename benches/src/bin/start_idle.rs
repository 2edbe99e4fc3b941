//! Measures start and idle of weir, and of another broker in the same run if its command is given.
//!
//! `start-idle --weir PATH [--runs N] [--idle-seconds N] [--beside PORT COMMAND...]`

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir_benches::start_idle::{Figures, measure, median};

struct Options {
    weir: PathBuf,
    runs: usize,
    idle: Duration,
    beside: Option<(u16, Vec<String>)>,
}

fn main() -> Result<()> {
    let options = options()?;
    let folder = tempfile::Builder::new().prefix("weir-start-idle-").tempdir()?;
    let data = folder.path().join("data");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // The first start formats the folder and is not counted.
    run_weir(&options.weir, &data, Duration::ZERO, folder.path())?;
    for _ in 0..options.runs {
        ours.push(run_weir(&options.weir, &data, options.idle, folder.path())?);
        if let Some((port, command)) = &options.beside {
            let (program, arguments) = command.split_first().context("--beside needs a command")?;
            let log = folder.path().join("beside.log");
            if theirs.is_empty() {
                measure(Command::new(program).args(arguments), *port, Duration::ZERO, &log)?;
            }
            theirs.push(measure(Command::new(program).args(arguments), *port, options.idle, &log)?);
        }
    }
    print("weir", &ours);
    if !theirs.is_empty() {
        print("beside", &theirs);
        for (name, read) in ROWS {
            let (ours, theirs) =
                (median(ours.iter().map(read).collect()), median(theirs.iter().map(read).collect()));
            if ours > 0.0 {
                println!("ratio {name}: beside / weir = {:.1}", theirs / ours);
            } else {
                println!("ratio {name}: weir's median is 0, beside {theirs:.3}");
            }
        }
    }
    let goals = [("to serving, s", 0.1), ("resident, MiB", 30.0), ("idle, % of a core", 0.5)];
    for (name, read) in ROWS {
        if let Some((_, goal)) = goals.iter().find(|(goal, _)| *goal == name) {
            let value = median(ours.iter().map(read).collect());
            println!(
                "goal {name}: {value:.3} / {goal} = {:.2} ({})",
                value / goal,
                if value < *goal { "met" } else { "NOT met" }
            );
        }
    }
    Ok(())
}

type Row = (&'static str, fn(&Figures) -> f64);

const ROWS: [Row; 4] = [
    ("to serving, s", |figures| figures.to_serving.as_secs_f64()),
    ("CPU to serving, s", |figures| figures.cpu_to_serving.as_secs_f64()),
    ("resident, MiB", |figures| figures.resident_mib),
    ("idle, % of a core", |figures| figures.idle_percent),
];

fn print(who: &str, figures: &[Figures]) {
    for (name, read) in ROWS {
        let values: Vec<f64> = figures.iter().map(read).collect();
        let list: Vec<String> = values.iter().map(|value| format!("{value:.3}")).collect();
        println!("{who:<7} {name:<18} median {:>8.3}  of {}", median(values), list.join(" "));
    }
}

fn run_weir(weir: &Path, data: &Path, idle: Duration, folder: &Path) -> Result<Figures> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let mut command = Command::new(weir);
    command
        .arg("serve")
        .args(["--set", &format!("log.dirs={}", data.display())])
        .args(["--set", &format!("listeners=PLAINTEXT://127.0.0.1:{port}")]);
    measure(&mut command, port, idle, &folder.join("weir.log"))
        .with_context(|| std::fs::read_to_string(folder.join("weir.log")).unwrap_or_default())
}

fn options() -> Result<Options> {
    let mut options = Options { weir: PathBuf::new(), runs: 5, idle: Duration::from_secs(20), beside: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--weir" => options.weir = PathBuf::from(value()?),
            "--runs" => options.runs = value()?.parse()?,
            "--idle-seconds" => options.idle = Duration::from_secs(value()?.parse()?),
            "--beside" => {
                let port = value()?.parse()?;
                options.beside = Some((port, words.collect()));
                break;
            }
            other => bail!("{other:?} is not known"),
        }
    }
    if options.weir.as_os_str().is_empty() || options.runs == 0 {
        bail!("usage: start-idle --weir PATH [--runs N] [--idle-seconds N] [--beside PORT COMMAND...]");
    }
    Ok(options)
}
