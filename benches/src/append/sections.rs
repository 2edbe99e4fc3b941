//! What is measured, section by section.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns a clock")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weir_format::Offset;
use weir_segment::SegmentConfig;
use weir_segment::io::Wait;

use super::batches::{Random, Source, count_records};
use super::plain;
use super::shard::{self, Durability, Shard, append_to_one, partition};
use crate::chart::{Bar, Group};
use crate::cost::{Cost, Meter};
use crate::figures::{Figures, quantile};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Batches are never a multiple of a block: real ones are not.
const ODD: usize = 23;

/// How much to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where; must be on the disk in question.
    pub folder: PathBuf,
    /// Runs of each row, by turns.
    pub runs: usize,
    /// Bytes of a throughput run, in MiB.
    pub mib: u64,
    /// Durable appends of a latency run.
    pub appends: usize,
    /// Partitions of the open loop.
    pub partitions: usize,
    /// Length of a run of the open loop, and of a run beside readers.
    pub time: Duration,
    /// Bytes a second that are appended beside readers.
    pub reader_rate: u64,
    /// How far behind the readers are, in seconds.
    pub behind: Vec<u64>,
    /// `uring`, `pwrite` or both.
    pub backends: Vec<String>,
    /// Only rows of throughput whose name contains this: for a profiler.
    pub rows: String,
}

/// The figures of one section, and what to draw of them.
#[derive(Debug, Default)]
pub struct Section {
    /// All rows.
    pub figures: Figures,
    /// Sentences that say what a row is, or what came out.
    pub notes: Vec<String>,
    /// Title, axis and bars.
    pub charts: Vec<(&'static str, &'static str, &'static str, Vec<Group>)>,
}

/// A new folder for one run, removed with all that was written when dropped.
fn run_folder(options: &Options) -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("run-").tempdir_in(&options.folder)?)
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Works in a folder; answers how many bytes that were, and their cost.
type Run = Box<dyn FnMut(&Path) -> Result<(u64, Cost)>>;

/// One row of a throughput section.
struct Row {
    name: String,
    run: Run,
}

/// Runs all rows by turns.
fn take_turns(options: &Options, figures: &mut Figures, rows: &mut [Row]) -> Result<()> {
    for _ in 0..options.runs {
        for row in rows.iter_mut().filter(|row| row.name.contains(&options.rows)) {
            let folder = run_folder(options)?;
            let (bytes, cost) = (row.run)(folder.path()).with_context(|| row.name.clone())?;
            figures.add(&row.name, "MB/s", cost.mb_per_second(bytes));
            figures.add(&row.name, "CPU-s/GB", cost.cpu_per_gb(bytes));
            figures.add(&row.name, "rw calls/GB", cost.counters.write_calls as f64 / (bytes as f64 / 1e9));
        }
    }
    Ok(())
}

/// The bare prototypes, and whether they fill a group while the one before is written and synced.
const PROTOTYPES: [(&str, bool); 2] = [("prototype", false), ("overlapped prototype", true)];

/// Group commit at several sizes of a group, against the direct writer and the buffered loop.
///
/// # Errors
/// If the disk fails.
pub fn groups(options: &Options) -> Result<Section> {
    let total = options.mib * 1024 * 1024;
    let mut rows: Vec<Row> = Vec::new();
    for (size, depth) in [(256 * KIB, 16), (MIB, 4)] {
        rows.push(Row {
            name: format!("plain direct {} KiB x {depth}", size / KIB),
            run: Box::new(move |folder| Ok((total, plain::direct(&folder.join("f"), size, depth, total)?))),
        });
    }
    let sizes = [16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB];
    for size in sizes {
        let name = name_of(size);
        let bytes = bytes_for(size, total);
        rows.push(Row {
            name: format!("plain buffered, group {name}"),
            run: Box::new(move |folder| {
                let group = u64::try_from(size)?;
                Ok((bytes, plain::buffered(&folder.join("f"), size.min(MIB), Some(group), bytes)?))
            }),
        });
        for (series, overlapped) in PROTOTYPES {
            rows.push(Row {
                name: format!("{series}, group {name}"),
                run: Box::new(move |folder| {
                    Ok((bytes, plain::prototype(&folder.join("f"), 16 * KIB, size, bytes, overlapped)?))
                }),
            });
        }
        for backend in &options.backends {
            let backend = backend.clone();
            // About what is received and checked at a time, so that it is still in the cache when it is copied.
            let set = size.min(256 * KIB);
            let per_set = set / (16 * KIB);
            let mut source = Source::new(16 * KIB - ODD, per_set)?;
            rows.push(Row {
                name: format!("{backend}, group {name}"),
                run: Box::new(move |folder| {
                    let set_size = (16 * KIB - ODD) * per_set;
                    let count = bytes / u64::try_from(set_size)?;
                    // What a group of batches comes to, which are a little smaller than a power of two.
                    let group = u64::try_from(set_size * (size / set))?;
                    append_to_one(&backend, folder, &mut source, count, Durability::Group(group))
                }),
            });
        }
    }
    let mut section = Section::default();
    take_turns(options, &mut section.figures, &mut rows)?;
    let figures = &section.figures;
    let direct = "plain direct 256 KiB x 16";
    // feasibility: share of the plain direct writer that a bare prototype reached, in per cent.
    let prototype = [(16 * KIB, 8.0), (256 * KIB, 45.0), (MIB, 73.0), (4 * MIB, 97.0)];
    for size in sizes {
        let name = name_of(size);
        for backend in &options.backends {
            let row = format!("{backend}, group {name}");
            let share = figures.ratio("MB/s", &row, direct).map_or(0.0, |ratio| 100.0 * ratio);
            let plain = format!("plain buffered, group {name}");
            let cpu = figures.ratio("CPU-s/GB", &row, &plain).unwrap_or(0.0);
            let speed = figures.ratio("MB/s", &row, &plain).unwrap_or(0.0);
            let [bare, overlapped] = PROTOTYPES.map(|(series, _)| {
                figures.ratio("MB/s", &row, &format!("{series}, group {name}")).unwrap_or(0.0)
            });
            let quiet = prototype
                .iter()
                .find(|(group, _)| *group == size)
                .map(|(_, share)| format!(" (a bare prototype on a quiet machine: {share:.0} %)"));
            if figures.values(&row, "MB/s").is_empty() {
                continue;
            }
            section.notes.push(format!(
                "{row}: {share:.0} % of the plain direct writer{}; {bare:.2} x the throughput of the prototype, \
                 {overlapped:.2} x overlapped; {speed:.2} x the throughput and {cpu:.2} x the CPU of the buffered loop",
                quiet.unwrap_or_default()
            ));
        }
    }
    for (title, axis) in [("Group commit: throughput", "MB/s"), ("Group commit: CPU", "CPU-s/GB")] {
        let mut drawn = vec![Group {
            label: "no group".to_owned(),
            bars: vec![Bar { series: direct.to_owned(), values: figures.values(direct, axis).to_vec() }],
        }];
        for size in sizes {
            let name = name_of(size);
            let mut bars = Vec::new();
            let plain = ["plain buffered"].into_iter().chain(PROTOTYPES.map(|(series, _)| series));
            for series in options.backends.iter().map(String::as_str).chain(plain) {
                let values = figures.values(&format!("{series}, group {name}"), axis).to_vec();
                bars.push(Bar { series: series.to_owned(), values });
            }
            drawn.push(Group { label: format!("group of {name}"), bars });
        }
        let file = if axis == "MB/s" { "groups-throughput" } else { "groups-cpu" };
        section.charts.push((file, title, axis, drawn));
    }
    Ok(section)
}

fn name_of(size: usize) -> String {
    if size >= MIB { format!("{} MiB", size / MIB) } else { format!("{} KiB", size / KIB) }
}

/// Small groups are slow: they get fewer bytes, so that a run takes about as long.
fn bytes_for(size: usize, total: u64) -> u64 {
    match size {
        size if size <= 4 * KIB => total / 32,
        size if size <= 16 * KIB => total / 8,
        size if size <= 64 * KIB => total / 4,
        _ => total,
    }
}

/// One batch an append, at several sizes, without a sync, with shared syncs and with a sync each.
///
/// # Errors
/// If the disk fails.
pub fn sizes(options: &Options) -> Result<Section> {
    let total = options.mib * 1024 * 1024 / 2;
    let sizes = [KIB, 16 * KIB, 64 * KIB, MIB];
    let modes = ["no sync", "group sync", "sync each"];
    let mut rows: Vec<Row> = Vec::new();
    for size in sizes {
        for mode in modes {
            let name = format!("{}, {mode}", name_of(size));
            let bytes = match mode {
                "sync each" => (u64::try_from(size)? * 1_000).min(total / 4),
                _ => bytes_for(size, total),
            };
            rows.push(Row {
                name: format!("plain, {name}"),
                run: Box::new(move |folder| {
                    let group = match mode {
                        "no sync" => None,
                        "group sync" => Some(u64::try_from(MIB)?),
                        _ => Some(u64::try_from(size)?),
                    };
                    Ok((bytes, plain::buffered(&folder.join("f"), size, group, bytes)?))
                }),
            });
            for backend in &options.backends {
                let backend = backend.clone();
                let mut source = Source::new(size - ODD, 1)?;
                rows.push(Row {
                    name: format!("{backend}, {name}"),
                    run: Box::new(move |folder| {
                        let durability = match mode {
                            "no sync" => Durability::AtTheEnd,
                            "group sync" => Durability::Group(u64::try_from(MIB)?),
                            _ => Durability::Each,
                        };
                        let count = bytes / u64::try_from(size)?;
                        append_to_one(&backend, folder, &mut source, count, durability)
                    }),
                });
            }
        }
    }
    let mut section = Section::default();
    take_turns(options, &mut section.figures, &mut rows)?;
    let figures = &section.figures;
    let mut drawn = Vec::new();
    for size in sizes {
        for mode in modes {
            let label = format!("{}, {mode}", name_of(size));
            let plain = format!("plain, {label}");
            let mut bars = Vec::new();
            for backend in &options.backends {
                let row = format!("{backend}, {label}");
                let speed = figures.ratio("MB/s", &row, &plain).unwrap_or(0.0);
                let cpu = figures.ratio("CPU-s/GB", &row, &plain).unwrap_or(0.0);
                section.notes.push(format!(
                    "{row}: {speed:.2} x the throughput, {cpu:.2} x the CPU of the plain loop"
                ));
                bars.push(Bar { series: backend.clone(), values: figures.values(&row, "MB/s").to_vec() });
            }
            bars.push(Bar {
                series: "plain pwrite, fdatasync".to_owned(),
                values: figures.values(&plain, "MB/s").to_vec(),
            });
            drawn.push(Group { label, bars });
        }
    }
    section.charts.push(("sizes", "Appends of one batch", "MB/s", drawn));
    Ok(section)
}

/// One durable append of 16 KiB at a time.
///
/// # Errors
/// If the disk fails.
pub fn latency(options: &Options) -> Result<Section> {
    let size = 16 * KIB;
    let mut section = Section::default();
    let mut source = Source::new(size - ODD, 1)?;
    let mut names = vec!["plain buffered".to_owned(), "plain direct, allocated".to_owned()];
    names.extend(options.backends.iter().cloned());
    for _ in 0..options.runs {
        for name in &names {
            let folder = run_folder(options)?;
            let file = folder.path().join("f");
            let (mut took, cost) = match name.as_str() {
                "plain buffered" => plain::durable_appends(&file, size, options.appends, false)?,
                "plain direct, allocated" => plain::durable_appends(&file, size, options.appends, true)?,
                backend => shard::durable_appends(backend, folder.path(), &mut source, options.appends)?,
            };
            for (column, share) in [("p50 us", 0.5), ("p99 us", 0.99), ("p99.9 us", 0.999)] {
                section.figures.add(name, column, quantile(&mut took, share) as f64 / 1e3);
            }
            let each = cost.cpu.as_secs_f64() * 1e6 / options.appends as f64;
            section.figures.add(name, "CPU us each", each);
        }
    }
    for backend in &options.backends {
        for column in ["p50 us", "p99 us"] {
            for plain in ["plain buffered", "plain direct, allocated"] {
                let ratio = section.figures.ratio(column, backend, plain).unwrap_or(0.0);
                section.notes.push(format!("{backend} {column}: {ratio:.2} x {plain}"));
            }
        }
    }
    let drawn = ["p50 us", "p99 us"]
        .iter()
        .map(|column| Group {
            label: column.trim_end_matches(" us").to_owned(),
            bars: names
                .iter()
                .map(|name| Bar {
                    series: name.clone(),
                    values: section.figures.values(name, column).to_vec(),
                })
                .collect(),
        })
        .collect();
    section.charts.push(("latency", "One durable append of 16 KiB at a time", "microseconds", drawn));
    Ok(section)
}

/// Many partitions with ten durable appends a second each, due at fixed times.
///
/// # Errors
/// If the disk fails.
pub fn partitions(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    let mut source = Source::new(KIB - ODD, 1)?;
    let rate = u32::try_from(options.partitions * 10)?;
    let mut names = vec!["plain, 8 threads".to_owned()];
    names.extend(options.backends.iter().cloned());
    for _ in 0..options.runs {
        for name in &names {
            let folder = run_folder(options)?;
            let figures = &mut section.figures;
            if name.starts_with("plain") {
                let (mut took, cost) =
                    plain::open_loop(folder.path(), KIB, options.partitions, 8, rate, options.time)?;
                add_open_loop(figures, name, &mut took, &cost);
                figures.add(name, "syncs/append", 1.0);
                continue;
            }
            let mut done =
                shard::open_loop(name, folder.path(), &mut source, options.partitions, rate, options.time)?;
            let count = done.took.len();
            add_open_loop(figures, name, &mut done.took, &done.cost);
            figures.add(name, "syncs/append", done.syncs as f64 / count as f64);
            figures.add(name, "allocated MB", mb(done.preallocated));
            figures.add(name, "at rest MB", mb(done.preallocated_at_rest));
        }
    }
    let drawn = ["p50 ms", "p99 ms"]
        .iter()
        .map(|column| Group {
            label: column.trim_end_matches(" ms").to_owned(),
            bars: names
                .iter()
                .map(|name| Bar {
                    series: name.clone(),
                    values: section.figures.values(name, column).to_vec(),
                })
                .collect(),
        })
        .collect();
    section.notes.push(format!(
        "{} partitions, {rate} appends of 1 KiB a second, each timed from when it was due to when it was durable",
        options.partitions
    ));
    section.charts.push((
        "partitions",
        "Durable appends to many partitions, each timed from when it was due",
        "milliseconds",
        drawn,
    ));
    Ok(section)
}

fn add_open_loop(figures: &mut Figures, name: &str, took: &mut [u64], cost: &Cost) {
    for (column, share) in [("p50 ms", 0.5), ("p99 ms", 0.99), ("p99.9 ms", 0.999)] {
        figures.add(name, column, quantile(took, share) as f64 / 1e6);
    }
    figures.add(name, "% of a core", 100.0 * cost.cpu.as_secs_f64() / cost.wall.as_secs_f64());
}

/// Reads a whole log in order, cold and warm, a MiB at a time.
///
/// # Errors
/// If the disk fails.
pub fn scan(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    let total = options.mib * 1024 * 1024;
    let folder = run_folder(options)?;
    let log = Prepared::write(folder.path(), "pwrite", total, SegmentConfig::default())?;
    for _ in 0..options.runs {
        for cold in [true, false] {
            let state = if cold { "cold" } else { "warm" };
            for name in std::iter::once("plain").chain(options.backends.iter().map(String::as_str)) {
                if cold {
                    log.forget()?;
                } else {
                    plain::read_files(&log.files()?, MIB)?;
                }
                let (bytes, cost) = match name {
                    "plain" => plain::read_files(&log.files()?, MIB)?,
                    backend => log.read_through(backend, MIB)?,
                };
                ensure!(bytes >= log.size, "{name} read {bytes} of {} bytes", log.size);
                let row = format!("{name}, {state}");
                section.figures.add(&row, "MB/s", cost.mb_per_second(bytes));
                section.figures.add(&row, "CPU-s/GB", cost.cpu_per_gb(bytes));
            }
        }
    }
    let drawn = ["cold", "warm"]
        .iter()
        .map(|state| Group {
            label: (*state).to_owned(),
            bars: options
                .backends
                .iter()
                .map(String::as_str)
                .chain(["plain"])
                .map(|name| Bar {
                    series: if name == "plain" { "plain pread".to_owned() } else { name.to_owned() },
                    values: section.figures.values(&format!("{name}, {state}"), "MB/s").to_vec(),
                })
                .collect(),
        })
        .collect();
    section.charts.push(("scan", "Reading a log in order, 1 MiB at a time", "MB/s", drawn));
    Ok(section)
}

/// A batch at a random offset, in the page cache.
///
/// # Errors
/// If the disk fails.
pub fn lookup(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    let total = options.mib * 1024 * 1024;
    let folder = run_folder(options)?;
    let log = Prepared::write(folder.path(), "pwrite", total, SegmentConfig::default())?;
    let count = options.appends * 4;
    plain::read_files(&log.files()?, MIB)?;
    for run in 0..options.runs {
        for backend in &options.backends {
            let mut shard = Shard::open(backend, folder.path(), 1, SegmentConfig::default())?;
            // A closed segment: its index is on the disk and not in memory.
            let end = shard.logs[0].log_end_offset();
            let seed = u64::try_from(run)?;
            for (row, closed) in [("active segment", false), ("closed segment", true)] {
                if closed {
                    shard.logs[0].roll(shard.io.as_mut(), None, super::batches::NOW)?;
                }
                let mut random = Random::new(seed);
                let mut took = Vec::with_capacity(count);
                let meter = Meter::start()?;
                for _ in 0..count {
                    let offset = Offset::new(i64::try_from(random.below(u64::try_from(end.get())?))?);
                    let offset = offset.context("an offset")?;
                    let start = Instant::now();
                    let found = shard.logs[0].batch_at(shard.io.as_mut(), offset)?.context("it is there")?;
                    took.push(plain::nanoseconds(start));
                    ensure!(
                        found.info.base_offset <= offset && offset <= found.info.last_offset,
                        "{found:?}"
                    );
                }
                let cost = meter.stop()?;
                let name = format!("{backend}, {row}");
                section.figures.add(&name, "p50 us", quantile(&mut took, 0.5) as f64 / 1e3);
                section.figures.add(&name, "p99 us", quantile(&mut took, 0.99) as f64 / 1e3);
                let reads = cost.counters.read_calls as f64 / count as f64;
                section.figures.add(&name, "reads each", reads);
            }
            shard.logs[0].truncate_to(shard.io.as_mut(), end)?;
            drop(shard);
            log.drop_empty_segment(end)?;
        }
        let mut took = plain::random_reads(&log.files()?, 16 * KIB, count, u64::try_from(run)?)?;
        section.figures.add("plain, one pread of 16 KiB", "p50 us", quantile(&mut took, 0.5) as f64 / 1e3);
        section.figures.add("plain, one pread of 16 KiB", "p99 us", quantile(&mut took, 0.99) as f64 / 1e3);
        section.figures.add("plain, one pread of 16 KiB", "reads each", 1.0);
    }
    section.notes.push("a lookup finds the batch of a random offset and reads all of it (16 KiB)".to_owned());
    Ok(section)
}

/// Ten readers at several distances behind a writer.
///
/// # Errors
/// If the disk fails.
pub fn readers(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    let farthest = options.behind.iter().copied().max().unwrap_or(1);
    let total = options.reader_rate * (farthest + 20);
    let config = SegmentConfig { segment_bytes: 256 << 20, ..SegmentConfig::default() };
    let folder = run_folder(options)?;
    let log = Prepared::write(folder.path(), "pwrite", total, config)?;
    for _ in 0..options.runs {
        for behind in &options.behind {
            for backend in &options.backends {
                log.forget()?;
                let run = beside_readers(options, folder.path(), backend, config, *behind)?;
                let row = format!("{backend}, {behind} s behind");
                section.figures.add(&row, "read MB/s", mb(run.read) / run.seconds);
                section.figures.add(&row, "read p99 ms", run.read_p99);
                section.figures.add(&row, "append p50 ms", run.append_p50);
                section.figures.add(&row, "append p99 ms", run.append_p99);
            }
            log.forget()?;
            let (read, seconds) =
                plain::ten_readers(&log.files()?, 256 * KIB, options.reader_rate * behind, options.time)?;
            section.figures.add(&format!("plain pread, {behind} s behind"), "read MB/s", mb(read) / seconds);
        }
    }
    section.notes.push(format!(
        "one thread appends {:.0} MB/s durably and serves ten readers that ask for 256 KiB as fast as they are answered; \
         nothing is cached when a run begins; the plain loop only reads",
        mb(options.reader_rate)
    ));
    let drawn = options
        .behind
        .iter()
        .map(|behind| Group {
            label: format!("{behind} s behind"),
            bars: options
                .backends
                .iter()
                .map(String::as_str)
                .chain(["plain pread"])
                .map(|name| Bar {
                    series: name.to_owned(),
                    values: section
                        .figures
                        .values(&format!("{name}, {behind} s behind"), "read MB/s")
                        .to_vec(),
                })
                .collect(),
        })
        .collect();
    section.charts.push(("readers", "Ten readers behind a writer", "MB/s read by all ten", drawn));
    Ok(section)
}

struct BesideReaders {
    read: u64,
    seconds: f64,
    read_p99: f64,
    append_p50: f64,
    append_p99: f64,
}

fn beside_readers(
    options: &Options,
    folder: &Path,
    backend: &str,
    config: SegmentConfig,
    behind: u64,
) -> Result<BesideReaders> {
    let mut shard = Shard::open(backend, folder, 1, config)?;
    let mut source = Source::new(64 * KIB - ODD, 1)?;
    let set_size = u64::try_from(64 * KIB - ODD)?;
    let before = shard.logs[0].log_end_offset();
    // Offsets are as evenly spread as bytes.
    let size = shard.logs[0].size();
    let records = options.reader_rate * behind * u64::try_from(before.get())? / size.max(1);
    let first = before.get().saturating_sub(i64::try_from(records)?).max(0);
    let mut cursors: Vec<Offset> = (0..10)
        // A little apart, as consumers are: never quite at the same place.
        .map(|number| Offset::new(first + (number * before.get() / 2_000).min(before.get() - first)))
        .collect::<Option<_>>()
        .context("an offset")?;
    let starts = cursors.clone();
    let (mut read, mut reads, mut appends) = (0, Vec::new(), Vec::new());
    let start = Instant::now();
    let (mut appended, mut pending) = (0_u64, std::collections::VecDeque::new());
    while start.elapsed() < options.time {
        for index in 0..cursors.len() {
            let due = appended * set_size * 1_000_000_000 / options.reader_rate;
            if plain::nanoseconds(start) >= due {
                let base = shard.logs[0].log_end_offset();
                shard.append(0, source.next(base)?)?;
                pending.push_back((shard.logs[0].log_end_offset(), due));
                appended += 1;
            }
            let asked = Instant::now();
            let end = shard.logs[0].synced_end_offset();
            let answer = shard.logs[0].read(shard.io.as_mut(), cursors[index], 256 * KIB, end, true)?;
            reads.push(plain::nanoseconds(asked));
            read += u64::try_from(answer.bytes.len())?;
            // One that has caught up starts over.
            cursors[index] = if answer.bytes.is_empty() { starts[index] } else { answer.next_offset };
            shard.turn(Some(1), Wait::Poll)?;
            let now = plain::nanoseconds(start);
            let durable = shard.logs[0].synced_end_offset();
            while let Some((_, due)) = pending.pop_front_if(|(end, _)| *end <= durable) {
                appends.push(now.saturating_sub(due));
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    shard.make_durable(0)?;
    let now = plain::nanoseconds(start);
    appends.extend(pending.into_iter().map(|(_, due)| now.saturating_sub(due)));
    shard.logs[0].truncate_to(shard.io.as_mut(), before)?;
    shard.close()?;
    Ok(BesideReaders {
        read,
        seconds,
        read_p99: quantile(&mut reads, 0.99) as f64 / 1e6,
        append_p50: quantile(&mut appends, 0.5) as f64 / 1e6,
        append_p99: quantile(&mut appends, 0.99) as f64 / 1e6,
    })
}

/// CPU of a process that holds an open log and has nothing to do.
///
/// # Errors
/// If the disk fails.
pub fn idle(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    let mut source = Source::new(KIB - ODD, 1)?;
    for _ in 0..options.runs.min(2) {
        for backend in &options.backends {
            let folder = run_folder(options)?;
            let mut shard = Shard::open(backend, folder.path(), 1, SegmentConfig::default())?;
            shard.append(0, source.next(Offset::ZERO)?)?;
            shard.make_durable(0)?;
            let meter = Meter::start()?;
            let start = Instant::now();
            let time = options.time * 2;
            let mut turns = 0_u32;
            while start.elapsed() < time {
                // A shard parks without a limit; with one, we find out how often it comes back.
                shard.turn(Some(1), Wait::Park(Some(time.saturating_sub(start.elapsed()))))?;
                turns += 1;
            }
            let cost = meter.stop()?;
            let share = 100.0 * cost.cpu.as_secs_f64() / cost.wall.as_secs_f64();
            section.figures.add(backend, "% of a core", share);
            section.figures.add(backend, "turns", f64::from(turns));
            shard.close()?;
        }
    }
    Ok(section)
}

/// A log that was written before the measurement.
struct Prepared {
    folder: PathBuf,
    size: u64,
}

impl Prepared {
    fn write(folder: &Path, backend: &str, total: u64, config: SegmentConfig) -> Result<Prepared> {
        let mut shard = Shard::open(backend, folder, 1, config)?;
        let mut source = Source::new(16 * KIB - ODD, 64)?;
        while shard.logs[0].size() < total {
            let base = shard.logs[0].log_end_offset();
            shard.append(0, source.next(base)?)?;
            shard.turn(None, Wait::Poll)?;
        }
        shard.make_durable(0)?;
        let size = shard.logs[0].size();
        shard.close()?;
        Ok(Prepared { folder: folder.to_path_buf(), size })
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(partition(&self.folder, 0))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        files.sort();
        Ok(files)
    }

    /// Takes the files out of the page cache.
    fn forget(&self) -> Result<()> {
        for path in self.files()? {
            let file = std::fs::File::open(path)?;
            file.sync_data()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        Ok(())
    }

    fn read_through(&self, backend: &str, step: usize) -> Result<(u64, Cost)> {
        let config = SegmentConfig::default();
        let mut shard = Shard::open(backend, &self.folder, 1, config)?;
        let meter = Meter::start()?;
        let end = shard.logs[0].log_end_offset();
        let (mut at, mut bytes, mut records) = (shard.logs[0].first_offset(), 0, 0);
        while at < end {
            let answer = shard.logs[0].read(shard.io.as_mut(), at, step, end, true)?;
            ensure!(!answer.bytes.is_empty(), "nothing at {at:?}");
            bytes += u64::try_from(answer.bytes.len())?;
            at = answer.next_offset;
            records += 1;
            std::hint::black_box(&answer.bytes);
        }
        let cost = meter.stop()?;
        ensure!(records > 0, "nothing was read");
        shard.close()?;
        Ok((bytes, cost))
    }

    /// Removes the empty segment that a roll has made, so that the next run finds what this one found.
    fn drop_empty_segment(&self, base: Offset) -> Result<()> {
        for extension in ["log", "index", "timeindex", "txnindex"] {
            let path = partition(&self.folder, 0).join(format!("{:020}.{extension}", base.get()));
            if path.is_file() {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Records in the files of a partition, read by plain means, and how many bytes they are.
///
/// # Errors
/// If a file is not whole batches.
pub fn records_in(folder: &Path, index: usize) -> Result<(u64, u64)> {
    let prepared = Prepared { folder: folder.to_path_buf(), size: 0 };
    ensure!(index == 0, "one partition is looked at");
    let (mut records, mut size) = (0, 0);
    for path in prepared.files()? {
        let bytes = std::fs::read(path)?;
        records += count_records(&bytes)?.0;
        size += u64::try_from(bytes.len())?;
    }
    Ok((records, size))
}
