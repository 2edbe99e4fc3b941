//! Measures the segment writer beside plain loops, and draws what came out.
//!
//! `append [--only SECTIONS] [--runs N] [--mib N] [--dir DIR] [--backends NAMES] [--chart DIR] ...`, see `--help`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use weir_benches::append::newest;
use weir_benches::append::sections::{self, Options, Section};
use weir_benches::{chart, cost};

const HELP: &str = "\
usage: append [FLAGS]
  --only SECTIONS    some of groups,sizes,latency,partitions,readers,newest,scan,lookup,idle (default: all)
  --runs N           runs of each row, by turns (5)
  --mib N            MiB of a throughput run (512)
  --appends N        durable appends of a latency run (3000)
  --partitions N     partitions of the open loop (1000)
  --seconds N        length of a run of the open loop and beside readers (3)
  --reader-rate N    MB/s that are appended beside readers (5)
  --behind SECONDS   how far behind the readers are (10,60,600)
  --rows TEXT        of groups and sizes only the rows whose names contain this, for a profiler
  --backends NAMES   uring,pwrite (default: both)
  --dir DIR          where to write; must be on the disk in question (the folder for temporary files)
  --chart DIR        where to draw; made if missing";

type Measure = fn(&Options) -> Result<Section>;

const SECTIONS: [(&str, &str, Measure); 9] = [
    ("groups", "group commit, 16 KiB batches, one partition", sections::groups),
    ("sizes", "one batch an append, one partition", sections::sizes),
    ("latency", "one durable append of 16 KiB at a time", sections::latency),
    ("partitions", "ten durable appends a second to each of many partitions", sections::partitions),
    ("readers", "ten readers behind a writer", sections::readers),
    ("newest", "reads of what was appended last, from memory and from the disk", newest::newest),
    ("scan", "a log read in order", sections::scan),
    ("lookup", "the batch of a random offset", sections::lookup),
    ("idle", "an open log and nothing to do", sections::idle),
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
        mib: 512,
        appends: 3_000,
        partitions: 1_000,
        time: Duration::from_secs(3),
        reader_rate: 5_000_000,
        behind: vec![10, 60, 600],
        backends: vec!["uring".to_owned(), "pwrite".to_owned()],
        rows: String::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--help" {
            println!("{HELP}");
            return Ok(());
        }
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        let list = || value.split(',').map(str::to_owned).collect::<Vec<_>>();
        match word.as_str() {
            "--only" => only = list(),
            "--runs" => options.runs = value.parse()?,
            "--mib" => options.mib = value.parse()?,
            "--appends" => options.appends = value.parse()?,
            "--partitions" => options.partitions = value.parse()?,
            "--seconds" => options.time = Duration::from_secs_f64(value.parse()?),
            "--reader-rate" => options.reader_rate = value.parse::<u64>()? * 1_000_000,
            "--behind" => options.behind = list().iter().map(|one| one.parse()).collect::<Result<_, _>>()?,
            "--rows" => options.rows = value,
            "--backends" => options.backends = list(),
            "--dir" => dir = PathBuf::from(value),
            "--chart" => charts = Some(PathBuf::from(value)),
            other => bail!("{other:?} is not known\n{HELP}"),
        }
    }
    if let Some(unknown) = only.iter().find(|name| SECTIONS.iter().all(|(known, ..)| known != name)) {
        bail!("no section {unknown:?}\n{HELP}");
    }
    if options.runs == 0 || options.mib < 8 || options.partitions == 0 {
        bail!("nothing to measure\n{HELP}");
    }
    let folder = tempfile::Builder::new().prefix("weir-append-").tempdir_in(&dir)?;
    options.folder = folder.path().to_path_buf();
    println!(
        "file system: {}; free memory {} MiB",
        cost::file_system(&options.folder),
        cost::free_memory_mib()
    );
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
        if let Some(charts) = &charts {
            std::fs::create_dir_all(charts)?;
            for (file, title, axis, groups) in &section.charts {
                let note = format!(
                    "{} runs by turns, {} MiB each where it is bytes, on {}",
                    options.runs,
                    options.mib,
                    cost::file_system(&options.folder)
                );
                let path = charts.join(format!("append-{file}.svg"));
                std::fs::write(&path, chart::bars(title, axis, &note, groups))?;
                println!("drawn: {}", path.display());
            }
        }
    }
    Ok(())
}
