//! An inspection as text: the verdict first, then what it rests on.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_segment::layout::file_name;

use super::report::{
    BarrierReport, Code, ControlRecord, FileReport, Finding, IndexState, LogDirReport, PartitionReport,
    Severity, SideFile, Verdict,
};

/// How many of a list are printed without `--all`.
const SHORT: usize = 10;

/// Columns of text, each as wide as its widest cell.
pub(in crate::cli) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// With these headings; those with a `>` in front are of numbers, which stand to the right.
    pub(in crate::cli) fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let headings = headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![headings], right }
    }

    pub(in crate::cli) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(in crate::cli) fn print(&self, out: &mut String) {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &self.rows {
            let mut line = String::new();
            for (place, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if place > 0 {
                    line.push_str("  ");
                }
                if self.right.get(place) == Some(&true) {
                    let _infallible = write!(line, "{cell:>width$}");
                } else {
                    let _infallible = write!(line, "{cell:<width$}");
                }
            }
            let _infallible = writeln!(out, "{}", line.trim_end());
        }
    }
}

/// A line `name   text`, if there is a text.
fn line(out: &mut String, name: &str, text: impl AsRef<str>) {
    let text = text.as_ref();
    if !text.is_empty() {
        let _infallible = writeln!(out, "{name:<13} {text}");
    }
}

fn counts<K: ToString>(counts: &BTreeMap<K, u64>) -> String {
    let all: Vec<String> = counts.iter().map(|(key, count)| format!("{} {count}", key.to_string())).collect();
    all.join(", ")
}

fn number<N: ToString>(number: Option<N>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// A time as RFC 3339 in UTC, or the number if no calendar has it.
pub(super) fn time(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let Some((year, month, day)) = civil(days).filter(|(year, ..)| (0..=9999).contains(year)) else {
        return format!("{ms} ms");
    };
    let (seconds, millis) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a number of days since 1970.
///
/// Source: Howard Hinnant's `civil_from_days`.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    let z = days.checked_add(719_468)?;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era.checked_mul(400)?.checked_add(year_of_era)?;
    Some((if month <= 2 { year + 1 } else { year }, month, day))
}

/// How long something is, roughly.
pub(super) fn age(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        ..=0 => format!("{ms} ms"),
        1..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The first line: what is the matter, in one sentence.
pub(super) fn headline(report: &PartitionReport) -> String {
    let title = report.title();
    let first = report.findings.iter().find(|finding| finding.severity == Severity::Problem);
    let message = first.map(|finding| finding.message.as_str()).unwrap_or_default();
    let cut_short = if report.complete { "" } else { "interrupted, so far: " };
    match report.verdict {
        Verdict::Healthy if !report.complete => format!("{title}: {cut_short}nothing wrong"),
        Verdict::Healthy => {
            let live = if report.holder.is_some() { ", and a node is running on it" } else { "" };
            format!("{title}: healthy{live}")
        }
        Verdict::WouldCut => format!("{title}: {cut_short}would cut {} bytes: {message}", report.cut_size),
        verdict => format!("{title}: {cut_short}{}: {message}", verdict.words()),
    }
}

fn finding_lines(out: &mut String, finding: &Finding, headline: bool) {
    if !headline {
        let mark = if finding.severity == Severity::Problem { "problem" } else { "note" };
        line(out, mark, &finding.message);
    }
    if let Some(cause) = &finding.cause {
        line(out, "  cause", cause);
    }
    if let Some((from, end)) = finding.offsets.filter(|_| finding.code == Code::Corrupt) {
        line(out, "  behind it", format!("offsets {from}..{end}, which a start does not serve"));
    }
    if let Some(remedy) = &finding.remedy {
        line(out, "  remedy", remedy);
    }
}

/// A whole partition.
pub(super) fn partition(out: &mut String, report: &PartitionReport, all: bool) {
    let _infallible = writeln!(out, "{}", headline(report));
    let problem = report.findings.iter().find(|finding| finding.severity == Severity::Problem);
    if let Some(problem) = problem {
        finding_lines(out, problem, true);
    }
    let rest = report.findings.iter().filter(|finding| problem.is_none_or(|problem| problem != *finding));
    for finding in rest {
        finding_lines(out, finding, false);
    }
    out.push('\n');
    log_lines(out, report);
    out.push('\n');
    segments(out, report, all);
    control(out, report, all);
    producers(out, report, all);
    epochs(out, report, all);
    gaps(out, report, all);
    weirs_own(out, report);
}

fn log_lines(out: &mut String, report: &PartitionReport) {
    line(
        out,
        "log",
        format!(
            "offsets {}..{}, {} bytes, {}, {} in {}",
            report.log_start_offset,
            report.log_end_offset,
            report.size(),
            some(report.segments.len(), "segment"),
            report
                .record_count()
                .map_or_else(|| "records not counted".to_owned(), |count| things(count, "record")),
            batch_word(report.batch_count()),
        ),
    );
    if let Some((first, last)) = report.timestamps() {
        line(out, "times", format!("{} to {}", time(first), time(last)));
    }
    let mut closed = match (report.holder, report.clean_shutdown) {
        (Some(holder), _) => match holder.pid {
            Some(pid) => format!("open in process {pid}"),
            None => "open in another process".to_owned(),
        },
        (None, true) => "cleanly".to_owned(),
        (None, false) => "not cleanly: a start reads again what lies above the recovery point".to_owned(),
    };
    if let Some(point) = report.recovery_point {
        let _infallible = write!(closed, "; recovery point {point}");
    }
    if let Some(watermark) = report.high_watermark {
        let _infallible = write!(closed, "; high watermark {watermark}");
    }
    line(out, "closed", closed);
    let batches = &report.batches;
    if report.batch_count() > 0 {
        line(
            out,
            "batches",
            format!(
                "magic {}; codec {}; {} transactional, {} idempotent, {} control, {} empty",
                counts(&batches.magic),
                counts(&batches.codec),
                batches.transactional,
                batches.idempotent,
                batches.control,
                batches.empty
            ),
        );
    }
    if let Some(id) = report.topic_id {
        line(out, "topic id", id.to_string());
    }
}

fn batch_word(count: u64) -> String {
    if count == 1 { "1 batch".to_owned() } else { format!("{count} batches") }
}

fn things(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

fn some(count: usize, thing: &str) -> String {
    things(u64::try_from(count).unwrap_or(u64::MAX), thing)
}

fn index(state: &IndexState) -> String {
    match state {
        IndexState::Absent => "-".to_owned(),
        IndexState::Good { entry_count, .. } => format!("{entry_count} ok"),
        IndexState::Wrong { .. } => "wrong".to_owned(),
        IndexState::NotChecked { .. } => "?".to_owned(),
    }
}

fn segments(out: &mut String, report: &PartitionReport, all: bool) {
    if report.segments.is_empty() {
        line(out, "segments", "none");
        return;
    }
    let mut table = Table::new(&[
        "SEGMENT",
        ">BYTES",
        ">BATCHES",
        ">RECORDS",
        ">END",
        "LAST TIME",
        "INDEX",
        "TIMEINDEX",
        "TXNINDEX",
        "TAIL",
    ]);
    let left_out = if all { 0 } else { report.segments.len().saturating_sub(3 * SHORT) };
    for segment in report.segments.iter().skip(left_out) {
        let tail = segment.tail.as_ref().map(|tail| match tail.code {
            Code::Preallocated => format!("{} bytes allocated ahead", tail.preallocated),
            Code::TornTail => format!("{} bytes torn", tail.size),
            Code::Hole => format!("{} bytes behind a lost write", tail.size),
            Code::BeingWritten => format!("{} bytes being written", tail.size),
            _ => format!("corrupt at byte {}", tail.position),
        });
        table.row([
            weir_format::Offset::new(segment.base_offset)
                .map(|base| file_name(base, weir_segment::layout::FileKind::Log))
                .unwrap_or_default(),
            segment.size.to_string(),
            segment.batch_count.to_string(),
            number(segment.record_count),
            number(segment.end_offset),
            segment.max_timestamp.map_or_else(|| "-".to_owned(), time),
            index(&segment.offset_index),
            index(&segment.time_index),
            index(&segment.transaction_index),
            tail.unwrap_or_default(),
        ]);
    }
    table.print(out);
    more(out, left_out, "segments before these");
}

fn more(out: &mut String, count: usize, what: &str) {
    if count > 0 {
        let _infallible = writeln!(out, "... {count} {what}: --all prints them");
    }
}

fn producer(id: Option<i64>, epoch: Option<i16>) -> String {
    match (id, epoch) {
        (Some(id), Some(epoch)) => format!("producer {id} epoch {epoch}"),
        (Some(id), None) => format!("producer {id}"),
        (None, _) => String::new(),
    }
}

fn barrier_line(barrier: &BarrierReport) -> String {
    let mut text = format!("{}: MIRROR_PID_RESET", barrier.offset);
    if let Some(epoch) = barrier.leader_epoch {
        let _infallible = write!(text, ", leader epoch {epoch}");
    }
    if let Some(at) = barrier.timestamp {
        let _infallible = write!(text, ", {}", time(at));
    }
    let _infallible = write!(text, ", {}", barrier.text);
    if let Some(expired) = barrier.producers_expired {
        let _infallible = write!(text, ", {} forgotten", things(expired, "producer"));
    }
    if let Some(count) = barrier.transactions_aborted_count.filter(|count| *count > 0) {
        let named = barrier.transactions_aborted.iter().take(SHORT);
        let named: Vec<String> = named.map(|(id, first)| format!("producer {id} from {first}")).collect();
        let _infallible =
            write!(text, ", {} aborted ({})", things(count, "open transaction"), named.join(", "));
    }
    text
}

fn control_row(record: &ControlRecord) -> String {
    let mut text = format!("{}: {}", record.offset, record.text);
    let who = producer(record.producer_id, record.producer_epoch);
    if !who.is_empty() {
        let _infallible = write!(text, ", {who}");
    }
    if let Some(first) = record.transaction_first_offset {
        let _infallible = write!(text, ", transaction from {first}");
    }
    if let Some(epoch) = record.leader_epoch {
        let _infallible = write!(text, ", leader epoch {epoch}");
    }
    if let Some(at) = record.timestamp {
        let _infallible = write!(text, ", {}", time(at));
    }
    text
}

fn control(out: &mut String, report: &PartitionReport, all: bool) {
    let control = &report.control;
    if control.counts.is_empty() {
        return;
    }
    let _infallible = writeln!(out);
    line(out, "control", counts(&control.counts));
    for barrier in &control.barriers {
        let _infallible = writeln!(out, "  {}", barrier_line(barrier));
    }
    let left_out = if all { 0 } else { control.others.len().saturating_sub(SHORT) };
    for record in control.others.iter().skip(left_out) {
        let _infallible = writeln!(out, "  {}", control_row(record));
    }
    more(out, left_out, "before these");
    if control.omitted > 0 {
        let _infallible =
            writeln!(out, "  {} more are only counted: weir dump-log prints them", control.omitted);
    }
}

fn producers(out: &mut String, report: &PartitionReport, all: bool) {
    let producers = &report.producers;
    if producers.count == 0
        && producers.open_count == 0
        && report.batches.idempotent == 0
        && report.batches.transactional == 0
    {
        return;
    }
    let _infallible = writeln!(out);
    line(
        out,
        "producers",
        format!(
            "{} at offset {}, before idle ones are forgotten; {} open; last stable offset {}",
            producers.count,
            producers.at,
            things(producers.open_count, "transaction"),
            producers.last_stable_offset
        ),
    );
    for open in producers.open.iter().take(if all { usize::MAX } else { SHORT }) {
        let begun = open.first_timestamp.map(|at| format!(", begun {}", time(at))).unwrap_or_default();
        let age = open.age_ms.map(|ms| format!(" ({} ago)", age(ms))).unwrap_or_default();
        let who = producer(Some(open.producer_id), open.producer_epoch);
        let _infallible = writeln!(out, "  open: {who} from offset {}{begun}{age}", open.first_offset);
    }
    let mut table =
        Table::new(&["  PRODUCER", ">EPOCH", ">SEQUENCE", ">LAST OFFSET", ">COORDINATOR", "LAST SEEN"]);
    for producer in producers.some.iter().take(if all { usize::MAX } else { SHORT }) {
        table.row([
            format!("  {}", producer.producer_id),
            number(producer.producer_epoch),
            number(producer.last_sequence),
            number(producer.last_offset),
            number(producer.coordinator_epoch),
            producer.last_timestamp.map_or_else(|| "-".to_owned(), time),
        ]);
    }
    if !producers.some.is_empty() {
        table.print(out);
    }
    let count = usize::try_from(producers.count).unwrap_or(usize::MAX);
    let printed = producers.some.len().min(if all { usize::MAX } else { SHORT });
    more(out, count.saturating_sub(printed), "more");
}

fn epochs(out: &mut String, report: &PartitionReport, all: bool) {
    if report.epochs.is_empty() {
        return;
    }
    let left_out = if all { 0 } else { report.epochs.len().saturating_sub(SHORT) };
    let epochs: Vec<String> = report
        .epochs
        .iter()
        .skip(left_out)
        .map(|epoch| {
            let mark = match (epoch.has_batches, epoch.in_checkpoint) {
                (true, true) => "",
                (true, false) => " (not in the checkpoint)",
                (false, _) => " (no batch)",
            };
            format!("{} from {}{mark}", epoch.epoch, epoch.start_offset)
        })
        .collect();
    let _infallible = writeln!(out);
    line(out, "leader epochs", epochs.join(", "));
    more(out, left_out, "before these");
}

fn gaps(out: &mut String, report: &PartitionReport, all: bool) {
    if report.gap_count == 0 {
        return;
    }
    let named = report.gaps.iter().take(if all { usize::MAX } else { SHORT });
    let named: Vec<String> = named.map(|gap| format!("{}..{}", gap.from, gap.end)).collect();
    let count = usize::try_from(report.gap_count).unwrap_or(usize::MAX);
    line(
        out,
        "gaps",
        format!(
            "{} with {} offsets that no batch covers: {}",
            report.gap_count,
            report.gap_offset_count,
            named.join(", ")
        ),
    );
    more(out, count.saturating_sub(named.len()), "more");
}

fn weirs_own(out: &mut String, report: &PartitionReport) {
    if !report.snapshots.is_empty() {
        let _infallible = writeln!(out);
    }
    for snapshot in &report.snapshots {
        let count = snapshot
            .producer_count
            .map_or_else(|| "not readable".to_owned(), |count| things(count, "producer"));
        let trust = match &snapshot.distrust {
            None => "trusted".to_owned(),
            Some(reason) => format!("not loaded: {reason}"),
        };
        line(out, "snapshot", format!("at {}, {count}, {trust}", snapshot.offset));
    }
    match &report.side_file {
        SideFile::Absent => {}
        SideFile::Unreadable(_) => line(out, "weir's file", "not readable"),
        SideFile::Good { checked, barrier_count, cut } => {
            let cut = cut.map(|(to, from)| format!("; cut from {from} to {to}")).unwrap_or_default();
            line(
                out,
                "weir's file",
                format!("{} known below offset {checked}{cut}", things(*barrier_count, "barrier")),
            );
        }
    }
    for archive in &report.archives {
        let offsets = archive
            .offsets
            .map_or_else(|| "no whole batch".to_owned(), |(from, end)| format!("offsets {from}..{end}"));
        line(out, "archive", format!("{}, {} bytes, {offsets}", archive.file.display(), archive.size));
    }
}

/// The head of a log directory.
pub(super) fn log_dir(out: &mut String, report: &LogDirReport) {
    let mut text = things(report.partition_count, "partition");
    match report.holder {
        Some(holder) => {
            let _infallible = match holder.pid {
                Some(pid) => write!(text, "; open in process {pid}"),
                None => write!(text, "; open in another process"),
            };
        }
        None if report.clean_shutdown => text.push_str("; closed cleanly"),
        None => text.push_str("; not closed cleanly"),
    }
    if let Some(id) = &report.cluster_id {
        let _infallible = write!(text, "; cluster {id}");
    }
    if let Some(id) = report.node_id {
        let _infallible = write!(text, "; node {id}");
    }
    let _infallible = writeln!(out, "log directory {}: {text}", report.dir.display());
    if let Some(side) = &report.side_dir {
        let store = if report.store.is_some() { "" } else { ", without a metadata store" };
        line(out, "weir's own", format!("{}{store}", side.display()));
    }
    for finding in &report.findings {
        finding_lines(out, finding, false);
    }
}

/// Partitions, a row each, the worst first, and what is wrong with those that are not healthy.
pub(super) fn partitions(out: &mut String, reports: &[PartitionReport]) {
    let mut sorted: Vec<&PartitionReport> = reports.iter().collect();
    sorted.sort_by(|a, b| {
        b.verdict.cmp(&a.verdict).then_with(|| {
            let key = |report: &PartitionReport| {
                report.name.as_ref().map(|name| (name.topic.clone(), name.partition))
            };
            key(a).cmp(&key(b))
        })
    });
    for report in sorted.iter().filter(|report| report.verdict != Verdict::Healthy || !report.complete) {
        let _infallible = writeln!(out, "{}", headline(report));
        let mut first = true;
        for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Problem) {
            finding_lines(out, finding, first);
            first = false;
        }
        out.push('\n');
    }
    let mut table = Table::new(&[
        "PARTITION",
        "VERDICT",
        ">START",
        ">END",
        ">BYTES",
        ">SEGMENTS",
        ">RECORDS",
        ">OPEN",
        ">BARRIERS",
        ">NOTES",
    ]);
    for report in &sorted {
        let notes = report.findings.iter().filter(|finding| finding.severity == Severity::Note).count();
        let barriers = report.control.counts.get("MIRROR_PID_RESET").copied().unwrap_or(0);
        table.row([
            report.title(),
            if report.complete { report.verdict.words().to_owned() } else { "interrupted".to_owned() },
            report.log_start_offset.to_string(),
            report.log_end_offset.to_string(),
            report.size().to_string(),
            report.segments.len().to_string(),
            number(report.record_count()),
            report.producers.open_count.to_string(),
            barriers.to_string(),
            notes.to_string(),
        ]);
    }
    table.print(out);
}

/// A file by itself.
pub(super) fn file(out: &mut String, report: &FileReport) {
    let problem = report.findings.iter().find(|finding| finding.severity == Severity::Problem);
    let name = report.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match problem {
        None => {
            let _infallible = writeln!(out, "{name}: healthy: {}, {} bytes", report.what, report.size);
        }
        Some(problem) => {
            let _infallible = writeln!(
                out,
                "{name}: not good: {}, {} bytes: {}",
                report.what, report.size, problem.message
            );
            finding_lines(out, problem, true);
        }
    }
    for fact in &report.facts {
        let _infallible = writeln!(out, "  {fact}");
    }
    for finding in report.findings.iter().filter(|finding| problem.is_none_or(|problem| problem != *finding))
    {
        finding_lines(out, finding, false);
    }
}

/// Text that a terminal does not obey: control characters as escapes, but for ends of lines.
pub(in crate::cli) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}
