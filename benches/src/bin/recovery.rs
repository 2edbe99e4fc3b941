//! Measures loads of logs after a crash, and of many partitions, and draws what came out.
//!
//! `recovery [--only SECTIONS] [--gb N] [--runs N] [--chart DIR] ... [--kafka COMMAND...]`, see `--help`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use weir_benches::recovery::sections::{self, Options, Section};
use weir_benches::{chart, cost};

const HELP: &str = "\
usage: recovery [FLAGS]
  --only SECTIONS    some of unflushed,replay,small,stops (default: all)
  --gb N             GB of each log that is recovered, also as 0.5 (4)
  --runs N           runs of each row, by turns (5)
  --kafka-runs N     of Kafka's own loader (3)
  --producers N      idempotent producers of a log (100)
  --partitions N     partitions of a start (10000)
  --stopped N        partitions of a stop (1000)
  --backends NAMES   uring,pwrite (default: both)
  --drop-caches      drop the whole page cache before each run, as root; else that of the log's files
  --dir DIR          where to write; must be on the disk in question (the folder for temporary files)
  --chart DIR        where to draw; made if missing
  --kafka COMMAND... the command of Kafka's loader and its arguments, up to the end of the line; else it is left out";

type Measure = fn(&Options) -> Result<Section>;

const SECTIONS: [(&str, &str, Measure); 4] = [
    ("unflushed", "a log that was never flushed, loaded cold", sections::unflushed),
    ("replay", "producer state built again from closed segments", sections::replay),
    ("small", "many small partitions loaded", sections::small),
    ("stops", "many partitions closed", sections::stops),
];

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
    let (mut only, mut charts, mut dir) = (Vec::new(), None, std::env::temp_dir());
    let mut options = Options {
        folder: PathBuf::new(),
        runs: 5,
        size: 4_000_000_000,
        producers: 100,
        backends: vec!["uring".to_owned(), "pwrite".to_owned()],
        kafka: Vec::new(),
        kafka_runs: 3,
        small: 10_000,
        stopped: 1_000,
        drop_caches: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" => {
                println!("{HELP}");
                return Ok(());
            }
            "--drop-caches" => {
                options.drop_caches = true;
                continue;
            }
            "--kafka" => {
                options.kafka = words.by_ref().collect();
                continue;
            }
            _ => {}
        }
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        let list = || value.split(',').map(str::to_owned).collect::<Vec<_>>();
        match word.as_str() {
            "--only" => only = list(),
            "--gb" => options.size = mega(&value)? * 1_000_000,
            "--runs" => options.runs = value.parse()?,
            "--kafka-runs" => options.kafka_runs = value.parse()?,
            "--producers" => options.producers = value.parse()?,
            "--partitions" => options.small = value.parse()?,
            "--stopped" => options.stopped = value.parse()?,
            "--backends" => options.backends = list(),
            "--dir" => dir = PathBuf::from(value),
            "--chart" => charts = Some(PathBuf::from(value)),
            other => bail!("{other:?} is not known\n{HELP}"),
        }
    }
    if let Some(unknown) = only.iter().find(|name| SECTIONS.iter().all(|(known, ..)| known != name)) {
        bail!("no section {unknown:?}\n{HELP}");
    }
    if options.runs == 0 || options.size == 0 || options.producers == 0 {
        bail!("nothing to measure\n{HELP}");
    }
    let folder = tempfile::Builder::new().prefix("weir-recovery-").tempdir_in(&dir)?;
    options.folder = folder.path().to_path_buf();
    let system = cost::file_system(&options.folder);
    println!("file system: {system}; free memory {} MiB", cost::free_memory_mib());
    for (name, question, measure) in SECTIONS {
        if !only.is_empty() && !only.iter().any(|one| one == name) {
            continue;
        }
        println!("\n## {name}: {question}");
        let section = measure(&options).with_context(|| name.to_owned())?;
        print!("{}", section.figures.table());
        for note in &section.notes {
            println!("{note}");
        }
        let Some(charts) = &charts else { continue };
        std::fs::create_dir_all(charts)?;
        for (file, title, axis, groups) in &section.charts {
            let gb = options.size as f64 / 1e9;
            let note = format!("{gb} GB each, {} runs by turns, on {system}", options.runs);
            let path = charts.join(format!("recovery-{file}.svg"));
            std::fs::write(&path, chart::bars(title, axis, &note, groups))?;
            println!("drawn: {}", path.display());
        }
    }
    Ok(())
}

/// Thousandths of a number like 4 or 0.5.
fn mega(text: &str) -> Result<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{part:0<3}");
    let thousandths: u64 = digits.get(..3).context("a number of GB")?.parse()?;
    Ok(whole.parse::<u64>()? * 1_000 + thousandths)
}
