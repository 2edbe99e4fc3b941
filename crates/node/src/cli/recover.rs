//! `weir recover DIR --accept-cut OFFSET`: takes a corrupt end off a log, because an operator said so.
//!
//! What a start never does by itself (law R8). It says first what would go, asks, keeps what it takes away in an archive
//! that `weir dump-log` reads, and can be called again wherever it was interrupted.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use weir_format::Offset;
use weir_recovery::cut::{self, CutConfig, CutError, CutPlan};
use weir_recovery::{Progress, Watch};
use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};
use weir_segment::layout::{DirectoryName, FileKind, SegmentFileName, TopicPartition};

use super::Failure;
use super::inspect::{MAX_SEGMENT_SIZE, Table, escaped, partition_context, shell_quoted};
use super::progress::{self, Bar};
use crate::data_dir::{self, DataDirError};

/// Of the JSON object.
const SCHEMA_VERSION: u32 = 1;

/// Arguments of `weir recover`.
#[derive(Debug, Clone, clap::Args)]
pub struct Recover {
    /// The partition's directory: LOGDIR/TOPIC-PARTITION.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Cut the log here: everything below this offset stays, everything else goes into an archive. `weir inspect DIR`
    /// says which offset.
    #[arg(long, value_name = "OFFSET")]
    pub accept_cut: i64,
    /// Say what would be cut, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// The partition's name, so that nobody has to be asked.
    #[arg(long, value_name = "TOPIC-PARTITION")]
    pub confirm: Option<String>,
    /// One JSON object; docs/operations.md has its fields.
    #[arg(long)]
    pub json: bool,
}

impl Recover {
    /// Says what would be cut; cuts it, once it is confirmed.
    ///
    /// # Errors
    /// A [`Failure`]: nothing was changed, unless it says so.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        progress::interruptible(&stop, move |stop| self.recover(stop))
    }

    fn recover(&self, stop: &AtomicBool) -> Result<ExitCode, Failure> {
        let partition = Partition::find(&self.dir)?;
        let offset = Offset::new(self.accept_cut).ok_or_else(|| {
            Failure::usage(format!("--accept-cut {} is no offset", self.accept_cut))
                .help("offsets begin at 0")
        })?;
        if let Some(name) = self.confirm.as_deref().filter(|name| *name != partition.name.to_string()) {
            return Err(Failure::usage(format!(
                "--confirm {name} is not the partition's name, {}",
                partition.name
            )));
        }
        let _lock = if self.dry_run {
            if partition.is_held {
                let _ = writeln!(
                    io::stderr(),
                    "a node has {} open: this may change",
                    partition.log_dir.display()
                );
            }
            None
        } else {
            Some(data_dir::lock(&partition.log_dir).map_err(lock_failure)?)
        };
        let mut disk = PwriteIo::new(PwriteConfig::default());
        let config =
            CutConfig { side_dir: partition.side_dir.clone(), recovery_point: partition.recovery_point };
        let mut watch = Watching { bar: Bar::new("looking", progress::size_below(&self.dir)), stop };
        let planned = cut::plan(&mut disk, &partition.dir, &config, offset, &mut watch);
        watch.bar.finish();
        let plan = match planned {
            Ok(plan) => plan,
            Err(CutError::NothingToCut { end }) if end == offset => {
                return self.nothing_to_cut(&partition, end);
            }
            Err(error) => return Err(cut_failure(&error, &partition, false)),
        };
        if self.dry_run {
            let text = plan_text(&plan, &partition);
            self.print(&text, || object(&plan, &partition, false, &[]))?;
            return Ok(ExitCode::SUCCESS);
        }
        // With --json the one object comes at the end; whoever is asked sees the plan all the same.
        let text = plan_text(&plan, &partition);
        if self.json {
            let _ = io::stderr().lock().write_all(escaped(&text).as_bytes());
        } else {
            self.print(&text, || Value::Null)?;
        }
        self.ask(&plan, &partition, stop)?;
        let mut watch = Watching { bar: Bar::new("archiving", plan.archived_size()), stop };
        let applied = cut::apply(&mut disk, &plan, &mut watch);
        watch.bar.finish();
        let archives = applied.map_err(|error| cut_failure(&error, &partition, true))?;
        let text = done_text(&plan, &partition, &archives);
        self.print(&text, || object(&plan, &partition, true, &archives))?;
        Ok(ExitCode::SUCCESS)
    }

    fn nothing_to_cut(&self, partition: &Partition, end: Offset) -> Result<ExitCode, Failure> {
        let text = format!("{}: nothing to cut: the log ends at offset {end}\n", partition.name);
        self.print(&text, || {
            json!({
                "apiVersion": "weir/v1", "kind": "Recovery", "schemaVersion": SCHEMA_VERSION,
                "dir": partition.dir.to_string_lossy(), "topic": partition.name.topic,
                "partition": partition.name.partition, "applied": false, "logEndOffset": end.get(), "size": 0,
            })
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, text: &str, object: impl FnOnce() -> Value) -> Result<(), Failure> {
        let printed = if self.json { format!("{}\n", object()) } else { escaped(text) };
        let mut out = io::stdout().lock();
        match out.write_all(printed.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::failed("cannot write the output").because(&error))
            }
            _ => Ok(()),
        }
    }

    /// Somebody says yes, or nothing is done.
    fn ask(&self, plan: &CutPlan, partition: &Partition, stop: &AtomicBool) -> Result<(), Failure> {
        if self.confirm.is_some() {
            return Ok(());
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(Failure::usage(format!(
                "a cut takes {} bytes off {}, and was not confirmed",
                plan.size(),
                partition.name
            ))
            .help(format!("add --confirm {}", partition.name)));
        }
        let mut error = io::stderr().lock();
        let _ = write!(error, "Cut {} at offset {}? [y/N] ", partition.name, plan.log_end_offset);
        let _ = error.flush();
        match progress::read_line(stop) {
            Ok(Some(answer)) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
            Ok(Some(answer)) => {
                if !answer.ends_with('\n') {
                    let _ = writeln!(error);
                }
                Err(Failure::failed("nothing was cut: it was not confirmed"))
            }
            Ok(None) => {
                let _ = writeln!(error);
                Err(Failure { code: 130, ..Failure::failed("interrupted: nothing was cut") })
            }
            Err(failed) => Err(Failure::failed("nothing was cut: no answer was read").because(&failed)),
        }
    }
}

/// Whose log it is, and what lies around it.
struct Partition {
    dir: PathBuf,
    log_dir: PathBuf,
    name: TopicPartition,
    side_dir: PathBuf,
    recovery_point: Offset,
    log_start_offset: Offset,
    is_held: bool,
}

impl Partition {
    fn find(dir: &Path) -> Result<Self, Failure> {
        let absolute = std::path::absolute(dir)
            .map_err(|error| Failure::usage(format!("{} is no path", dir.display())).because(&error))?;
        let not_one = || {
            Failure::usage(format!("{} is not a partition's directory", dir.display()))
                .help("give the directory LOGDIR/TOPIC-PARTITION; weir inspect LOGDIR lists them")
        };
        let file_name =
            absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let DirectoryName::Partition(name) = DirectoryName::parse(&file_name) else { return Err(not_one()) };
        if !absolute.is_dir() {
            return Err(not_one());
        }
        let log_dir = absolute.parent().ok_or_else(not_one)?.to_path_buf();
        for entry in std::fs::read_dir(&absolute).into_iter().flatten().flatten() {
            let is_log = SegmentFileName::of(&entry.path()).is_some_and(|name| name.kind == FileKind::Log);
            if !is_log {
                continue;
            }
            let metadata = std::fs::metadata(entry.path());
            if metadata
                .as_ref()
                .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_SEGMENT_SIZE)
            {
                continue;
            }
            // A pipe would be waited for, and a file that large is read for ever.
            return Err(Failure::failed(format!("{} is no segment", entry.path().display()))
                .help(format!("weir inspect {} says what it is", shell_quoted(&absolute))));
        }
        let context = partition_context(&absolute, &log_dir);
        Ok(Self {
            log_dir,
            name,
            side_dir: context.side_dir,
            recovery_point: context.recovery_point,
            log_start_offset: context.log_start_offset,
            is_held: context.is_held,
            dir: absolute,
        })
    }
}

struct Watching<'a> {
    bar: Bar,
    stop: &'a AtomicBool,
}

impl Watch for Watching<'_> {
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.bar.set(progress.bytes_done, progress.bytes_total);
        if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn now(&mut self) -> Option<Duration> {
        None
    }
}

fn lock_failure(error: DataDirError) -> Failure {
    let help = match &error {
        DataDirError::InUse { .. } => {
            "stop the node first: a log is not cut under a node that has it open; --dry-run says what would be cut"
                .to_owned()
        }
        other => other.help(),
    };
    Failure::of(1, &error).help(help)
}

fn cut_failure(error: &CutError, partition: &Partition, is_applying: bool) -> Failure {
    let command =
        |offset: &Offset| format!("weir recover {} --accept-cut {offset}", shell_quoted(&partition.dir));
    match error {
        CutError::OutOfRange { first, end, .. } => {
            Failure::of(2, error).help(format!("an offset from {first} to {end} makes sense: {}", command(end)))
        }
        CutError::NothingToCut { end } => Failure::of(2, error).help(format!(
            "the log is whole up to its end, offset {end}: weir inspect {} says more",
            shell_quoted(&partition.dir)
        )),
        CutError::InsideBatch { base_offset, next_offset, .. } => {
            Failure::of(2, error).help(format!("{}, or {}", command(next_offset), command(base_offset)))
        }
        CutError::BehindInvalid { invalid, .. } => {
            Failure::of(2, error).help(format!("the most that can be kept: {}", command(&invalid.next_offset)))
        }
        CutError::NoLog { .. } => {
            Failure::of(2, error).help("check the path; a partition's directory has .log files in it")
        }
        CutError::Interrupted => Failure { code: 130, ..Failure::of(130, error) }.help(if is_applying {
            "nothing was cut; an archive may be left, and the same command writes it again"
        } else {
            "nothing was changed"
        }),
        CutError::Changed { .. } => Failure::of(1, error).help("nothing was cut; give the command again"),
        CutError::Unfinished { .. } => Failure::of(1, error).help("nothing was cut"),
        CutError::Io(_) if is_applying => Failure::of(1, error).help(
            "the log is as corrupt as it was, or cut; mend what the disk says, and give the same command again",
        ),
        _ => Failure::of(1, error).help("nothing was changed; check the disk and the permissions"),
    }
}

fn counted(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

fn range(offsets: Option<(Offset, Offset)>) -> String {
    offsets.map_or_else(|| "-".to_owned(), |(from, end)| format!("{from}..{end}"))
}

/// What would go, the sum first.
fn plan_text(plan: &CutPlan, partition: &Partition) -> String {
    let mut out = String::new();
    let more = if plan.is_counted() { "" } else { ", and perhaps more" };
    let _infallible = writeln!(
        out,
        "{}: a cut at offset {} takes away {} bytes: {} in {}{more}, offsets {}, and {} bytes that are no batch",
        partition.name,
        plan.log_end_offset,
        plan.size(),
        counted(plan.record_count(), "record", "records"),
        counted(plan.batch_count(), "valid batch", "valid batches"),
        range(plan.offsets()),
        plan.unreadable_size(),
    );
    match &plan.invalid {
        Some(invalid) => {
            let _infallible = writeln!(
                out,
                "not valid: {} at byte {}, where offset {} is expected: {}",
                invalid.file.display(),
                invalid.position,
                invalid.next_offset,
                invalid.found
            );
            if invalid.next_offset > plan.log_end_offset {
                let _infallible = writeln!(
                    out,
                    "warning: offsets {}..{} are valid and go too: --accept-cut {} keeps them",
                    plan.log_end_offset, invalid.next_offset, invalid.next_offset
                );
            }
        }
        None => out.push_str("warning: every batch behind the cut is valid: the cut only takes data away\n"),
    }
    if let Some(barrier) = plan.barrier() {
        let _infallible = write!(
            out,
            "warning: the barrier at offset {barrier} goes: a partition that was failed over is not safe to write to \
             without it, mirror it again"
        );
        let is_kept = plan.invalid.as_ref().is_none_or(|invalid| invalid.next_offset > barrier);
        let _infallible = match barrier.next().filter(|_| is_kept) {
            Some(behind) => writeln!(out, "; --accept-cut {behind} keeps it"),
            None => writeln!(out),
        };
    }
    if plan.log_end_offset < partition.log_start_offset {
        let _infallible = writeln!(
            out,
            "warning: the log starts at offset {}: nothing that can be read is left, and offsets from {} on are given out \
             again",
            partition.log_start_offset, plan.log_end_offset
        );
    }
    let mut table =
        Table::new(&["SEGMENT", ">FROM BYTE", ">BYTES", ">BATCHES", ">RECORDS", "OFFSETS", "ARCHIVE"]);
    for piece in &plan.pieces {
        let name = piece.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        table.row([
            name,
            if piece.whole { "all".to_owned() } else { piece.position.to_string() },
            piece.size.to_string(),
            piece.contents.batch_count.to_string(),
            piece.contents.record_count.to_string(),
            range(piece.contents.offsets),
            piece.archive.as_ref().map_or_else(|| "-".to_owned(), |(path, _)| path.display().to_string()),
        ]);
    }
    table.print(&mut out);
    out
}

fn done_text(plan: &CutPlan, partition: &Partition, archives: &[PathBuf]) -> String {
    let mut out = format!("{}: cut, the log ends at offset {}\n", partition.name, plan.log_end_offset);
    for archive in archives {
        let _infallible = writeln!(out, "kept in {}: weir dump-log prints it", archive.display());
    }
    out
}

fn object(plan: &CutPlan, partition: &Partition, applied: bool, archives: &[PathBuf]) -> Value {
    let offsets = |offsets: Option<(Offset, Offset)>| {
        offsets.map(|(from, end)| json!({ "from": from.get(), "end": end.get() }))
    };
    let path = |path: &Path| Value::from(path.to_string_lossy());
    let pieces: Vec<Value> = plan
        .pieces
        .iter()
        .map(|piece| {
            without_nulls(json!({
                "file": path(&piece.file),
                "baseOffset": piece.base_offset.get(),
                "position": piece.position,
                "size": piece.size,
                "whole": piece.whole,
                "batchCount": piece.contents.batch_count,
                "recordCount": piece.contents.record_count,
                "offsets": offsets(piece.contents.offsets),
                "archive": piece.archive.as_ref().map(|(archive, _)| path(archive)),
            }))
        })
        .collect();
    let invalid = plan.invalid.as_ref().map(|invalid| {
        json!({
            "file": path(&invalid.file),
            "position": invalid.position,
            "nextOffset": invalid.next_offset.get(),
            "cause": invalid.found.to_string(),
        })
    });
    let archives: Vec<Value> = archives.iter().map(|archive| path(archive)).collect();
    without_nulls(json!({
        "apiVersion": "weir/v1",
        "kind": "Recovery",
        "schemaVersion": SCHEMA_VERSION,
        "dir": path(&partition.dir),
        "topic": partition.name.topic,
        "partition": partition.name.partition,
        "applied": applied,
        "offset": plan.offset.get(),
        "logEndOffset": plan.log_end_offset.get(),
        "invalid": invalid,
        "size": plan.size(),
        "unreadableSize": plan.unreadable_size(),
        "batchCount": plan.batch_count(),
        "recordCount": plan.record_count(),
        "counted": plan.is_counted(),
        "offsets": offsets(plan.offsets()),
        "barrierOffset": plan.barrier().map(Offset::get),
        "pieces": pieces,
        "archives": archives,
    }))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect())
        }
        other => other,
    }
}
