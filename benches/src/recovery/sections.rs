//! The sections of the benchmark: each prints its rows and says what they mean.

#![expect(clippy::disallowed_methods, reason = "a benchmark owns a clock")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use weir_log::UnifiedLog;
use weir_psm::PsmConfig;
use weir_recovery::{PartitionFile, rebuild_producer_state};
use weir_segment::io::Io;

use super::input::{self, Log};
use super::kafka::Loader;
use super::plain;
use crate::append::open_backend;
use crate::chart::{Bar, Group};
use crate::cost::Meter;
use crate::figures::Figures;

/// Sizes of the batches of the logs, and what they are called.
const BATCHES: [(usize, &str); 2] = [(16 << 10, "16 KiB batches"), (256 << 10, "256 KiB batches")];

/// What is measured, and how large.
#[derive(Debug)]
pub struct Options {
    /// Where to write; on the disk in question.
    pub folder: PathBuf,
    /// Runs of each row, by turns.
    pub runs: usize,
    /// Bytes of each log.
    pub size: u64,
    /// Idempotent producers that wrote it.
    pub producers: usize,
    /// Backends of ours.
    pub backends: Vec<String>,
    /// Command of Kafka's loader; without it, it is left out.
    pub kafka: Vec<String>,
    /// Runs of Kafka's loader.
    pub kafka_runs: usize,
    /// Partitions of a start.
    pub small: usize,
    /// Partitions of a stop.
    pub stopped: usize,
    /// Whether the whole page cache is dropped, not only the files.
    pub drop_caches: bool,
}

/// What a section found.
#[derive(Debug, Default)]
pub struct Section {
    /// Every value.
    pub figures: Figures,
    /// What else is to be said.
    pub notes: Vec<String>,
    /// File, title, axis, bars.
    pub charts: Vec<(&'static str, &'static str, &'static str, Vec<Group>)>,
}

fn gb(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// The most memory that this process had, in MiB, since the last call of [`forget_peak`].
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<f64> = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn forget_peak() {
    // Where this is not allowed, the peak is that of the whole life.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

fn run_folder(options: &Options) -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("run-").tempdir_in(&options.folder)?)
}

/// A log that was never flushed, loaded cold.
///
/// # Errors
/// If the disk fails, or a load finds another log than was written.
pub fn unflushed(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    for (batch_size, label) in BATCHES {
        let folder = run_folder(options)?;
        let log = Log::write(&folder.path().join("log"), batch_size, options.size, options.producers)?;
        let prepared = match options.kafka.is_empty() {
            true => None,
            false => Some(prepare_kafka(options, &log, folder.path())?),
        };
        for run in 0..options.runs.max(options.kafka_runs) {
            if run < options.runs {
                plain_rows(options, &log, label, &mut section.figures)?;
                for backend in &options.backends {
                    ours(options, &log, backend, label, &mut section.figures)?;
                }
            }
            if let Some(prepared) = prepared.as_ref().filter(|_| run < options.kafka_runs) {
                kafkas(options, &log, prepared, label, &mut section.figures)?;
            }
        }
        section.notes.push(format!(
            "{label}: {:.3} GB in {} segments, {} producers",
            gb(log.size),
            log.files()?.len(),
            log.producers
        ));
        ratios(label, options, &mut section);
    }
    for (file, title, axis, column) in [
        ("throughput", "Loading a log that was never flushed, cold", "GB/s", "GB/s"),
        ("cpu", "CPU of loading a log that was never flushed, cold", "CPU seconds a GB", "CPU-s/GB"),
    ] {
        section.charts.push((file, title, axis, groups(&section.figures, column)));
    }
    Ok(section)
}

fn groups(figures: &Figures, column: &str) -> Vec<Group> {
    BATCHES
        .iter()
        .map(|(_, label)| Group {
            label: (*label).to_owned(),
            bars: figures
                .rows()
                .filter_map(|row| row.strip_suffix(&format!(", {label}")))
                .map(|series| Bar {
                    series: series.to_owned(),
                    values: figures.values(&format!("{series}, {label}"), column).to_vec(),
                })
                .filter(|bar| !bar.values.is_empty())
                .collect(),
        })
        .collect()
}

fn plain_rows(options: &Options, log: &Log, label: &str, figures: &mut Figures) -> Result<()> {
    let files = log.files()?;
    let ours = options.backends.iter().map(Some);
    for backend in std::iter::once(None).chain(ours) {
        log.forget(options.drop_caches)?;
        let (name, (bytes, cost)) = match backend {
            None => ("plain direct read, 16 x 256 KiB".to_owned(), plain::threads(&files, 256 << 10, 16)?),
            Some(name) => (format!("{name}, read and not looked at"), plain::ahead(&files, name)?),
        };
        ensure!(bytes == log.size, "{name} read {bytes} of {} bytes", log.size);
        let row = format!("{name}, {label}");
        figures.add(&row, "GB/s", cost.mb_per_second(bytes) / 1e3);
        figures.add(&row, "CPU-s/GB", cost.cpu_per_gb(bytes));
    }
    Ok(())
}

/// One load of ours.
fn ours(options: &Options, log: &Log, backend: &str, label: &str, figures: &mut Figures) -> Result<()> {
    let folder = run_folder(options)?;
    let dir = log.copy(folder.path())?;
    let side = folder.path().join("side");
    log.forget(options.drop_caches)?;
    let mut io = open_backend(backend)?;
    forget_peak();
    let meter = Meter::start()?;
    let (loaded, report) = input::open(io.as_mut(), &dir, &side, false)?;
    let cost = meter.stop()?;
    ensure!(loaded.log_end_offset() == log.end_offset, "{report}");
    ensure!(report.checked_bytes == log.size, "{report}");
    ensure!(report.producer_count == log.producers, "{report}");
    let row = format!("weir, {backend}, {label}");
    figures.add(&row, "GB/s", cost.mb_per_second(log.size) / 1e3);
    figures.add(&row, "CPU-s/GB", cost.cpu_per_gb(log.size));
    figures.add(&row, "peak MiB", peak_mib());
    Ok(())
}

/// The files that a Kafka which was killed has beside the logs: indexes, and snapshots at the segments' starts. Made by
/// its own recovery, which is not measured, so that what is measured reads the log once.
fn prepare_kafka(options: &Options, log: &Log, folder: &Path) -> Result<PathBuf> {
    let dir = log.copy(&folder.join("kafka"))?;
    let mut loader = Loader::start(&options.kafka)?;
    let loaded = loader.load(&dir)?;
    ensure!(loaded.end_offset == log.end_offset.get(), "Kafka finds {loaded:?}");
    loader.end()?;
    Ok(dir)
}

/// One load of Kafka's in a new Java process, and a second one in the same process, which the first has warmed up.
fn kafkas(options: &Options, log: &Log, prepared: &Path, label: &str, figures: &mut Figures) -> Result<()> {
    let mut loader = Loader::start(&options.kafka)?;
    for name in ["Kafka, new JVM", "Kafka, warm JVM"] {
        let folder = run_folder(options)?;
        let dir = log.copy(folder.path())?;
        for entry in std::fs::read_dir(prepared)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "log") {
                std::fs::copy(&path, dir.join(path.file_name().context("a name")?))?;
            }
        }
        log.forget(options.drop_caches)?;
        let loaded = loader.load(&dir)?;
        ensure!(loaded.end_offset == log.end_offset.get(), "Kafka finds {loaded:?}");
        ensure!(loaded.producers == log.producers, "Kafka finds {loaded:?}");
        let row = format!("{name}, {label}");
        figures.add(&row, "GB/s", gb(log.size) / loaded.seconds);
        figures.add(&row, "CPU-s/GB", loaded.cpu / gb(log.size));
    }
    loader.end()
}

fn ratios(label: &str, options: &Options, section: &mut Section) {
    let figures = &section.figures;
    let plain = format!("plain direct read, 16 x 256 KiB, {label}");
    let mut notes = Vec::new();
    for backend in &options.backends {
        let ours = format!("weir, {backend}, {label}");
        let mut against = vec![plain.clone(), format!("{backend}, read and not looked at, {label}")];
        against.extend(["Kafka, new JVM", "Kafka, warm JVM"].map(|name| format!("{name}, {label}")));
        for other in against {
            if let (Some(speed), Some(cpu)) =
                (figures.ratio("GB/s", &ours, &other), figures.ratio("CPU-s/GB", &ours, &other))
            {
                notes.push(format!("{ours} / {other}: {speed:.2} of the GB/s, {cpu:.3} of the CPU-s/GB"));
            }
        }
    }
    section.notes.append(&mut notes);
}

/// Producer state built again from closed segments, as a truncation does.
///
/// # Errors
/// If the disk fails, or another state comes out.
pub fn replay(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    let folder = run_folder(options)?;
    let log = Log::write(&folder.path().join("log"), 16 << 10, options.size, options.producers)?;
    let (dir, segments) = (log.copy(folder.path())?, log.segments()?);
    for _ in 0..options.runs {
        for backend in &options.backends {
            log.forget(options.drop_caches)?;
            let mut io = open_backend(backend)?;
            let meter = Meter::start()?;
            let file = PartitionFile::default();
            let state = rebuild_producer_state(
                io.as_mut(),
                &dir,
                &segments,
                log.end_offset,
                &file,
                PsmConfig::default(),
            )?;
            let cost = meter.stop()?;
            ensure!(state.producer_count() == log.producers, "{} producers", state.producer_count());
            let row = format!("{backend}, 16 KiB batches, cold");
            section.figures.add(&row, "GB/s", cost.mb_per_second(log.size) / 1e3);
            section.figures.add(&row, "CPU-s/GB", cost.cpu_per_gb(log.size));
        }
    }
    Ok(section)
}

/// Many small partitions, loaded one after the other and by several threads, clean and not.
///
/// # Errors
/// If the disk fails.
pub fn small(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    let folder = run_folder(options)?;
    let dirs = input::small_partitions(folder.path(), options.small)?;
    for _ in 0..options.runs {
        for backend in &options.backends {
            for (clean, state) in [(true, "clean"), (false, "after a kill")] {
                for threads in [1, 2, 8] {
                    let before = resident_mib();
                    let start = Instant::now();
                    let meter = Meter::start()?;
                    let loaded = load_all(backend, &dirs, clean, threads)?;
                    let cost = meter.stop()?;
                    let seconds = start.elapsed().as_secs_f64();
                    ensure!(loaded.len() == dirs.len(), "{} loaded", loaded.len());
                    let row = format!("{backend}, {state}, {threads} threads");
                    let count = dirs.len() as f64;
                    section.figures.add(&row, "s", seconds);
                    section.figures.add(&row, "CPU us each", cost.cpu.as_secs_f64() * 1e6 / count);
                    section.figures.add(
                        &row,
                        "KiB each",
                        (resident_mib() - before).max(0.0) * 1024.0 / count,
                    );
                    section.figures.add(&row, "files open", open_files());
                }
            }
        }
    }
    section.notes.push(format!(
        "{} partitions of three batches of 1 KiB; files open: of this process when all are loaded, beside what it has anyway",
        dirs.len()
    ));
    Ok(section)
}

/// Descriptors of this process that are files of partitions.
fn open_files() -> f64 {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return 0.0 };
    let is_log = |path: PathBuf| path.extension().is_some_and(|extension| extension == "log");
    entries.flatten().filter(|entry| std::fs::read_link(entry.path()).is_ok_and(is_log)).count() as f64
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<f64> = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// Loads partitions by so many threads, each with an `Io` of its own.
fn load_all(
    backend: &str,
    dirs: &[(PathBuf, PathBuf)],
    clean: bool,
    threads: usize,
) -> Result<Vec<UnifiedLog>> {
    let left = Mutex::new(dirs.iter());
    let load = || -> Result<Vec<UnifiedLog>> {
        let mut io: Box<dyn Io> = open_backend(backend)?;
        let mut loaded = Vec::new();
        loop {
            let next = left.lock().map_err(|_| anyhow::anyhow!("a thread failed"))?.next();
            let Some((dir, side)) = next else { return Ok(loaded) };
            let mut log = input::open(io.as_mut(), dir, side, clean)?.0;
            ensure!(log.detach(io.as_mut())?, "a log that was just loaded is at rest");
            loaded.push(log);
        }
    };
    let mut all = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(load)).collect();
        for thread in running {
            all.append(&mut thread.join().map_err(|_| anyhow::anyhow!("a loading thread failed"))??);
        }
        Ok(())
    })?;
    Ok(all)
}

/// Many partitions that were appended to, closed one after the other and by several threads.
///
/// # Errors
/// If the disk fails.
pub fn stops(options: &Options) -> Result<Section> {
    let mut section = Section::default();
    let folder = run_folder(options)?;
    let dirs = input::small_partitions(folder.path(), options.stopped)?;
    for _ in 0..options.runs {
        for threads in [1, 2, 4, 8, 16] {
            let mut io = open_backend("pwrite")?;
            let mut logs = Vec::new();
            for (dir, side) in &dirs {
                let mut log = input::open(io.as_mut(), dir, side, true)?.0;
                input::append_small(&mut log, io.as_mut())?;
                log.sync(io.as_mut())?;
                ensure!(log.detach(io.as_mut())?, "a log that was synced is at rest");
                logs.push(log);
            }
            let left = Mutex::new(logs);
            let close = || -> Result<()> {
                let mut io = open_backend("pwrite")?;
                loop {
                    let next = left.lock().map_err(|_| anyhow::anyhow!("a thread failed"))?.pop();
                    let Some(log) = next else { return Ok(()) };
                    log.close(io.as_mut())?;
                }
            };
            let start = Instant::now();
            let meter = Meter::start()?;
            std::thread::scope(|scope| -> Result<()> {
                let running: Vec<_> = (0..threads).map(|_| scope.spawn(close)).collect();
                for thread in running {
                    thread.join().map_err(|_| anyhow::anyhow!("a closing thread failed"))??;
                }
                Ok(())
            })?;
            let cost = meter.stop()?;
            let row = format!("{threads} threads");
            section.figures.add(&row, "s", start.elapsed().as_secs_f64());
            section.figures.add(&row, "CPU us each", cost.cpu.as_secs_f64() * 1e6 / dirs.len() as f64);
        }
    }
    section
        .notes
        .push(format!("{} partitions, three batches of 1 KiB appended to each and synced", dirs.len()));
    Ok(section)
}
