//! `weir inspect PATH`: explains a partition, a log directory, or a file of one, and what a start would do about it.
//!
//! It reads and never writes, takes no lock, needs no node, and may be used on the files of one that is running.

mod analyse;
mod context;
pub mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod html;
mod json;
pub mod report;
mod single;
mod target;
mod text;
mod walk;

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use weir_segment::layout::{DirectoryName, FileKind, SegmentFileName, Stage};

use super::Failure;
use super::progress::{self, Bar};
use crate::config::Config;
use crate::node::PARTITION_SIDE_DIRS;
pub use analyse::Inspection;
use context::LogDir;
use files::{DiskFiles, Entry, Files};
use report::{Code, FileReport, Finding, LogDirReport, PartitionReport, Severity, Verdict};
pub use target::TargetError;
use target::{Target, name_of};
pub use walk::Watch;

pub(super) use analyse::{MAX_SEGMENT_SIZE, shell_quoted};
pub(super) use text::{Table, escaped};

/// How long a running node is given to finish a write that is only half there.
const WRITER_PAUSE: Duration = Duration::from_millis(50);

/// Arguments of `weir inspect`.
#[derive(Debug, Clone, clap::Args)]
pub struct Inspect {
    /// A partition's directory, a log directory, a directory of these, or a file.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// One JSON object; docs/operations.md has its fields.
    #[arg(long)]
    pub json: bool,
    /// Print lists to their ends.
    #[arg(long)]
    pub all: bool,
    /// Draw each partition over its offsets into this file as well, to be opened in a browser.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// One thing that an inspection looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A log directory; its partitions follow.
    LogDir(LogDirReport),
    /// A partition.
    Partition(Box<PartitionReport>),
    /// A file by itself.
    File(FileReport),
}

/// What an inspection came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The worst verdict.
    pub verdict: Verdict,
    /// False if it was ended early.
    pub complete: bool,
    /// How many pieces there were.
    pub piece_count: u64,
    /// Something could not be read.
    pub unreadable: bool,
}

impl Outcome {
    /// 0 healthy · 3 a part could not be read · 10 it is not good · 130 ended early.
    pub fn exit_code(&self) -> u8 {
        match (self.complete, self.unreadable, self.verdict) {
            (false, ..) => 130,
            (true, true, _) => 3,
            (true, false, Verdict::Healthy) => 0,
            (true, false, _) => 10,
        }
    }
}

impl Inspect {
    /// Looks, and prints what it saw.
    ///
    /// # Errors
    /// A [`Failure`] if there is nothing to look at, or the output takes no more.
    pub fn run(mut self) -> Result<ExitCode, Failure> {
        // A partition has its name from its directory, also where that is ".", and a remedy is copied to elsewhere.
        self.path = std::path::absolute(&self.path).unwrap_or(self.path);
        let stop = Arc::new(AtomicBool::new(false));
        let total = progress::size_below(&self.path);
        let bar = Bar::new("looking", total);
        let inspect = move |stop: &AtomicBool| {
            let advance = |size| bar.advance(size);
            let wait = || {
                progress::pause(WRITER_PAUSE);
                true
            };
            let inspection = Inspection {
                files: &DiskFiles,
                watch: Watch { stop, progress: &advance },
                now: crate::clock::now(),
                wait_for_writer: &wait,
            };
            let mut page = self.html.as_deref().map(|file| Page::create(file, &self.path)).transpose()?;
            let mut stdout = io::stdout().lock();
            let mut printer = Printer::new(&self, &mut stdout);
            let done = look(&inspection, &self.path, &mut |piece| {
                if let Some(page) = &mut page {
                    page.piece(&piece);
                }
                printer.piece(piece)
            });
            bar.finish();
            let outcome = done.map_err(|error| error.into_failure())?;
            page.map_or(Ok(()), Page::finish)?;
            printer.finish(&outcome).or_else(closed).map_err(|error| output_failed(&error))?;
            Ok(ExitCode::from(outcome.exit_code()))
        };
        progress::interruptible(&stop, inspect)
    }
}

/// The file of `--html`, written as the partitions come.
struct Page<'a> {
    path: &'a Path,
    file: io::BufWriter<std::fs::File>,
    failed: Option<io::Error>,
}

impl<'a> Page<'a> {
    fn create(path: &'a Path, of: &Path) -> Result<Self, Failure> {
        let file = std::fs::File::create(path).map_err(|error| Self::failure(path, &error))?;
        let mut page = Self { path, file: io::BufWriter::new(file), failed: None };
        page.write(&html::start(&of.display().to_string()));
        Ok(page)
    }

    fn write(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(text.as_bytes()).err();
        }
    }

    fn piece(&mut self, piece: &Piece) {
        if let Piece::Partition(report) = piece {
            self.write(&html::partition(report));
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        match self.failed.take().or_else(|| self.file.flush().err()) {
            Some(error) => Err(Self::failure(self.path, &error)),
            None => Ok(()),
        }
    }

    fn failure(path: &Path, error: &io::Error) -> Failure {
        Failure::failed(format!("cannot write {}", path.display())).because(error)
    }
}

fn closed(error: io::Error) -> io::Result<()> {
    // The other end of a pipe has seen enough.
    if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

fn output_failed(error: &io::Error) -> Failure {
    Failure::failed("cannot write the output").because(error).help("check where the output goes")
}

/// Why an inspection ended without an outcome.
#[derive(Debug)]
#[non_exhaustive]
pub enum InspectError {
    /// There is nothing to look at.
    Target(TargetError),
    /// The output took no more.
    Output(io::Error),
}

impl InspectError {
    fn into_failure(self) -> Failure {
        match self {
            Self::Target(error) => {
                let help = error.help();
                Failure::of(1, &error).help(help)
            }
            Self::Output(error) => output_failed(&error),
        }
    }
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(error) => error.fmt(f),
            Self::Output(_) => f.write_str("cannot write the output"),
        }
    }
}

impl std::error::Error for InspectError {}

/// Looks at what is at `path` and hands over each piece as it was looked at; one that is handed over is not held.
///
/// Inputs: an absolute path; the names of the directories in it say whose partition it is.
///
/// Cost: reads every segment once. Memory: a few MiB, and what is known of the producers of one partition.
///
/// # Errors
/// [`InspectError::Target`] if nothing there can be looked at, [`InspectError::Output`] if a piece was not taken.
pub fn look(
    inspection: &Inspection<'_>,
    path: &Path,
    each: &mut dyn FnMut(Piece) -> io::Result<()>,
) -> Result<Outcome, InspectError> {
    let mut looking = Looking {
        each,
        outcome: Outcome { verdict: Verdict::Healthy, complete: true, piece_count: 0, unreadable: false },
    };
    match target::target(inspection.files, path).map_err(InspectError::Target)? {
        Target::File { size } => looking.file(inspection, path, size)?,
        Target::Partition => {
            let log_dir = log_dir_of(inspection.files, path);
            let report = analyse::partition(inspection, path, &log_dir, None);
            looking.partition(report)?;
        }
        Target::LogDir => looking.log_dir(inspection, path)?,
        Target::Root(dirs) => {
            for dir in dirs {
                if looking.outcome.complete {
                    looking.log_dir(inspection, &dir)?;
                }
            }
        }
    }
    Ok(looking.outcome)
}

/// The log directory around a partition's directory.
fn log_dir_of(files: &dyn Files, partition: &Path) -> LogDir {
    match partition.parent() {
        Some(parent) if matches!(files.entry(parent), Ok(Some(Entry::Directory))) => {
            LogDir::read(files, parent)
        }
        _ => LogDir::none(partition),
    }
}

/// What the directories around a partition say that a cut has to know.
pub(super) struct PartitionContext {
    pub(super) side_dir: PathBuf,
    pub(super) recovery_point: weir_format::Offset,
    pub(super) log_start_offset: weir_format::Offset,
    pub(super) is_held: bool,
}

/// Reads it from the real files.
pub(super) fn partition_context(dir: &Path, log_dir: &Path) -> PartitionContext {
    let around = LogDir::read(&DiskFiles, log_dir);
    let name = match DirectoryName::parse(&name_of(dir)) {
        DirectoryName::Partition(name) => Some(name),
        _ => None,
    };
    let topic_id = context::topic_id(&DiskFiles, dir, &mut Vec::new());
    // A directory without an identity is nobody's; its archives have its name.
    let nameless = || Config::side_dir(log_dir).join(PARTITION_SIDE_DIRS).join(name_of(dir));
    PartitionContext {
        side_dir: around.partition_side_dir(topic_id, name.as_ref()).unwrap_or_else(nameless),
        recovery_point: LogDir::offset_of(&around.recovery_points, name.as_ref())
            .unwrap_or(weir_format::Offset::ZERO),
        log_start_offset: LogDir::offset_of(&around.log_starts, name.as_ref())
            .unwrap_or(weir_format::Offset::ZERO),
        is_held: around.holder.is_some(),
    }
}

struct Looking<'a> {
    each: &'a mut dyn FnMut(Piece) -> io::Result<()>,
    outcome: Outcome,
}

impl Looking<'_> {
    fn give(&mut self, piece: Piece) -> Result<(), InspectError> {
        self.outcome.piece_count = self.outcome.piece_count.saturating_add(1);
        (self.each)(piece).or_else(closed).map_err(InspectError::Output)
    }

    fn partition(&mut self, report: PartitionReport) -> Result<(), InspectError> {
        self.outcome.verdict = self.outcome.verdict.max(report.verdict);
        self.outcome.complete &= report.complete;
        self.findings(&report.findings);
        self.give(Piece::Partition(Box::new(report)))
    }

    fn findings(&mut self, findings: &[Finding]) {
        self.outcome.unreadable |= findings.iter().any(|finding| finding.code == Code::Unreadable);
    }

    fn file(&mut self, inspection: &Inspection<'_>, path: &Path, size: u64) -> Result<(), InspectError> {
        let segment = SegmentFileName::of(path).filter(|name| {
            name.stage == Stage::Live
                && name.kind == FileKind::Log
                && weir_segment::layout::file_name(name.base_offset, name.kind) == name_of(path)
        });
        if let Some(name) = segment {
            let dir = path.parent().unwrap_or(path);
            let log_dir = log_dir_of(inspection.files, dir);
            let mut report = analyse::partition(inspection, dir, &log_dir, Some(name.base_offset.get()));
            let of_file = |finding: &Finding| finding.file.as_deref().is_none_or(|file| file == path);
            report.findings.retain(of_file);
            return self.partition(report);
        }
        let (report, complete) = single::file(inspection, path, size);
        self.outcome.complete &= complete;
        self.findings(&report.findings);
        if report.findings.iter().any(|finding| finding.severity == Severity::Problem) {
            self.outcome.verdict = self.outcome.verdict.max(Verdict::Incomplete);
        }
        self.give(Piece::File(report))
    }

    fn log_dir(&mut self, inspection: &Inspection<'_>, dir: &Path) -> Result<(), InspectError> {
        let mut log_dir = LogDir::read(inspection.files, dir);
        let (partitions, others) = target::partitions(inspection.files, dir)
            .map_err(|source| InspectError::Target(TargetError::Io { path: dir.to_path_buf(), source }))?;
        for other in others {
            let name = name_of(&other);
            let message = format!("{name} is no partition that is served, and is left alone");
            log_dir.findings.push(Finding::new(Code::NotServed, Severity::Note, message).of(other));
        }
        let known = |topic: &str, partition: i32| {
            let name = format!("{topic}-{partition}");
            partitions.iter().any(|path| name_of(path) == name)
        };
        let gone: Vec<String> = log_dir
            .recovery_points
            .offsets
            .iter()
            .filter(|(name, end)| end.get() > 0 && !known(&name.topic, name.partition))
            .map(|(name, end)| format!("{name} (synced up to {end})"))
            .collect();
        if !gone.is_empty() {
            let named: Vec<&str> = gone.iter().take(10).map(String::as_str).collect();
            let message = format!(
                "the recovery-point checkpoint names {} partitions that have no directory here: {}",
                gone.len(),
                named.join(", ")
            );
            log_dir.findings.push(Finding::new(Code::NotServed, Severity::Note, message));
        }
        if log_dir.meta.is_some() && log_dir.store.is_none() {
            let message = "weir's metadata store is not beside it: a start refuses the directory unless \
                           weir.metadata.dir says where it is; a Kafka's directory has none";
            log_dir.findings.push(Finding::new(Code::SideDirectory, Severity::Note, message));
        }
        let count = u64::try_from(partitions.len()).unwrap_or(u64::MAX);
        self.give(Piece::LogDir(log_dir.report(count)))?;
        for path in partitions {
            if !self.outcome.complete {
                break;
            }
            let report = analyse::partition(inspection, &path, &log_dir, None);
            self.partition(report)?;
        }
        Ok(())
    }
}

/// Prints pieces: JSON as they come, text at the end, since the verdict stands first.
pub struct Printer<'out> {
    out: &'out mut dyn Write,
    json: bool,
    all: bool,
    items: u64,
    log_dirs: Vec<(LogDirReport, Vec<PartitionReport>)>,
    text: String,
}

impl<'out> Printer<'out> {
    /// Prints as the arguments say.
    pub fn new(arguments: &Inspect, out: &'out mut dyn Write) -> Self {
        let (json, all) = (arguments.json, arguments.all);
        Self { out, json, all, items: 0, log_dirs: Vec::new(), text: String::new() }
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// The output took no more.
    pub fn piece(&mut self, piece: Piece) -> io::Result<()> {
        if self.json {
            return self.json_piece(&piece);
        }
        match piece {
            Piece::File(report) => text::file(&mut self.text, &report),
            Piece::LogDir(report) => self.log_dirs.push((report, Vec::new())),
            Piece::Partition(mut report) => match self.log_dirs.last_mut() {
                Some((log_dir, partitions)) => {
                    if log_dir.partition_count > 1 {
                        report.shorten();
                    }
                    partitions.push(*report);
                }
                None => text::partition(&mut self.text, &report, self.all),
            },
        }
        Ok(())
    }

    fn json_piece(&mut self, piece: &Piece) -> io::Result<()> {
        let value = match piece {
            Piece::LogDir(report) => json::log_dir(report),
            Piece::Partition(report) => json::partition(report),
            Piece::File(report) => json::file(report),
        };
        self.json_start()?;
        if self.items > 0 {
            self.out.write_all(b",\n")?;
        }
        self.items = self.items.saturating_add(1);
        serde_json::to_writer(&mut *self.out, &value)?;
        Ok(())
    }

    fn json_start(&mut self) -> io::Result<()> {
        if self.items > 0 {
            return Ok(());
        }
        let (api, schema) = (json::API_VERSION, json::SCHEMA_VERSION);
        writeln!(
            self.out,
            "{{\"apiVersion\":\"{api}\",\"kind\":\"Inspection\",\"schemaVersion\":{schema},\"items\":["
        )
    }

    /// Prints what is left, and the sum of it.
    ///
    /// # Errors
    /// The output took no more.
    pub fn finish(mut self, outcome: &Outcome) -> io::Result<()> {
        if self.json {
            self.json_start()?;
            let summary = json::summary(
                outcome.verdict.name(),
                outcome.complete,
                outcome.piece_count,
                outcome.exit_code(),
            );
            writeln!(self.out, "\n],\"summary\":{summary}}}")?;
            return self.out.flush();
        }
        for (place, (log_dir, partitions)) in self.log_dirs.iter().enumerate() {
            if place > 0 {
                self.text.push('\n');
            }
            text::log_dir(&mut self.text, log_dir);
            if !partitions.is_empty() {
                self.text.push('\n');
            }
            match partitions.as_slice() {
                [] => {}
                [partition] => text::partition(&mut self.text, partition, self.all),
                partitions => text::partitions(&mut self.text, partitions),
            }
        }
        self.out.write_all(text::escaped(&self.text).as_bytes())?;
        self.out.flush()
    }
}
