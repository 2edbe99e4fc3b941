//! An inspection as a page to look at: each partition over its offsets, with what stands where.
//!
//! One file without anything from elsewhere. Every shape has its facts in words, which a browser shows under the pointer.

use std::fmt::Write as _;

use super::report::{Code, PartitionReport, Severity, Verdict};
use super::text::{headline, time};

/// The width of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
/// The height of a lane and the space below it.
const LANE: f64 = 22.0;
const SPACE: f64 = 6.0;
/// Transactions that are drawn: the newest.
const MAX_TRANSACTIONS: usize = 2_000;
/// Rows in which transactions are stacked; what overlaps more lies on top of each other.
const MAX_ROWS: usize = 12;

const STYLE: &str = "\
body{font:14px/1.5 system-ui,sans-serif;margin:2rem;max-width:1100px;color:#1b1f24;background:#fff}\
h2{font-size:1rem;margin:2rem 0 .5rem}svg{width:100%;height:auto;display:block}\
text{font:11px system-ui,sans-serif;fill:#57606a}pre{white-space:pre-wrap;font-size:12px}\
.segment{fill:#d0d7de}.segment.odd{fill:#afb8c1}.epoch{fill:#ddf4ff;stroke:#54aeff}.commit{fill:#4ac26b}\
.abort{fill:#bf8700}.open{fill:#8250df}.gap{fill:#fff;stroke:#d0d7de;stroke-dasharray:2 2}.bad{fill:#cf222e}\
.barrier{stroke:#cf222e;stroke-width:2}.lso{stroke:#8250df;stroke-dasharray:4 3}\
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}text{fill:#9198a1}.segment{fill:#3d444d}\
.segment.odd{fill:#59636e}.epoch{fill:#0c2d6b}.gap{fill:#0d1117}}";

pub(super) fn start(path: &str) -> String {
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>weir inspect {0}</title><style>{STYLE}</style>\
         <h1>weir inspect {0}</h1>\
         <p>Left to right: offsets. Lanes: segments, leader epochs, transactions \
         (<b style=\"color:#4ac26b\">committed</b>, <b style=\"color:#bf8700\">aborted</b>, \
         <b style=\"color:#8250df\">open</b>). Red lines: barriers; red boxes: what is not valid; \
         dashed: offsets without a batch, and the last stable offset.</p>\n",
        escaped(path)
    )
}

fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    safe
}

/// From offsets to places in the drawing.
struct Scale {
    from: i64,
    end: i64,
}

impl Scale {
    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a place in a drawing")]
    fn x(&self, offset: i64) -> f64 {
        let all = self.end.saturating_sub(self.from).max(1) as f64;
        let part = offset.clamp(self.from, self.end).saturating_sub(self.from) as f64;
        part / all * WIDTH
    }
}

fn bar(out: &mut String, scale: &Scale, class: &str, y: f64, (from, end): (i64, i64), title: &str) {
    let (x, to) = (scale.x(from), scale.x(end));
    let _infallible = write!(
        out,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
        (to - x).max(1.0),
        LANE - SPACE,
        escaped(title)
    );
}

fn mark(out: &mut String, scale: &Scale, class: &str, height: f64, offset: i64, title: &str) {
    let x = scale.x(offset);
    let _infallible = write!(
        out,
        "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{height:.1}\"><title>{}</title></line>",
        escaped(title)
    );
}

/// A transaction: first offset, end, class and words.
type Drawn = (i64, i64, &'static str, String);

fn transactions(report: &PartitionReport) -> Vec<Drawn> {
    let mut drawn: Vec<Drawn> = Vec::new();
    for record in &report.control.others {
        let Some(first) = record.transaction_first_offset else { continue };
        let class = if record.text.contains("COMMIT") { "commit" } else { "abort" };
        let who = record.producer_id.map(|id| format!("producer {id}")).unwrap_or_default();
        drawn.push((
            first,
            record.offset.saturating_add(1),
            class,
            format!("{who}, {first}..{}: {}", record.offset, record.text),
        ));
    }
    for barrier in &report.control.barriers {
        for (id, first) in &barrier.transactions_aborted {
            let words = format!("producer {id}, {first}..{}: aborted at the barrier", barrier.offset);
            drawn.push((*first, barrier.offset, "abort", words));
        }
    }
    for open in &report.producers.open {
        let words = format!("producer {}, open from {}", open.producer_id, open.first_offset);
        drawn.push((open.first_offset, report.log_end_offset, "open", words));
    }
    drawn.sort();
    let left_out = drawn.len().saturating_sub(MAX_TRANSACTIONS);
    drawn.split_off(left_out)
}

/// One partition.
pub(super) fn partition(report: &PartitionReport) -> String {
    let from = report.segments.first().map_or(report.log_start_offset, |segment| segment.base_offset);
    let ends = report.segments.iter().filter_map(|segment| segment.end_offset);
    let end = ends.chain([report.log_end_offset]).max().unwrap_or(from).max(from.saturating_add(1));
    let scale = Scale { from, end };
    let mut shapes = String::new();
    let mut y = 0.0;
    for (place, segment) in report.segments.iter().enumerate() {
        let class = if place % 2 == 0 { "segment" } else { "segment odd" };
        let next = report.segments.get(place.saturating_add(1)).map_or(end, |next| next.base_offset);
        let words = format!(
            "{:020}.log: offsets {}..{}, {} bytes, {} batches",
            segment.base_offset,
            segment.base_offset,
            segment.end_offset.unwrap_or(segment.base_offset),
            segment.size,
            segment.batch_count
        );
        bar(
            &mut shapes,
            &scale,
            class,
            y,
            (segment.base_offset, segment.end_offset.unwrap_or(next).min(next)),
            &words,
        );
    }
    for gap in &report.gaps {
        bar(
            &mut shapes,
            &scale,
            "gap",
            y,
            (gap.from, gap.end),
            &format!("no batch covers {}..{}", gap.from, gap.end),
        );
    }
    for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Problem) {
        if let Some(range) = finding.offsets {
            bar(&mut shapes, &scale, "bad", y, range, &finding.message);
        }
    }
    y += LANE;
    for (place, epoch) in report.epochs.iter().enumerate() {
        let next = report.epochs.get(place.saturating_add(1)).map_or(end, |next| next.start_offset);
        let words = format!("leader epoch {} from offset {}", epoch.epoch, epoch.start_offset);
        bar(&mut shapes, &scale, "epoch", y, (epoch.start_offset, next), &words);
    }
    y += LANE;
    let mut rows: Vec<i64> = Vec::new();
    for (first, behind, class, words) in transactions(report) {
        let free = rows.iter().position(|taken| *taken <= first);
        let row = free.unwrap_or(if rows.len() < MAX_ROWS { rows.len() } else { MAX_ROWS - 1 });
        if row == rows.len() {
            rows.push(behind);
        } else if let Some(taken) = rows.get_mut(row) {
            *taken = (*taken).max(behind);
        }
        let row = u32::try_from(row).unwrap_or(0);
        bar(&mut shapes, &scale, class, y + f64::from(row) * LANE, (first, behind), &words);
    }
    let height = y + f64::from(u32::try_from(rows.len()).unwrap_or(0)) * LANE;
    for barrier in &report.control.barriers {
        let words = format!("MIRROR_PID_RESET at offset {}, {}", barrier.offset, barrier.text);
        mark(&mut shapes, &scale, "barrier", height, barrier.offset, &words);
    }
    if report.producers.open_count > 0 {
        let offset = report.producers.last_stable_offset;
        mark(&mut shapes, &scale, "lso", height, offset, &format!("last stable offset {offset}"));
    }
    let times = report.timestamps().map(|(first, last)| format!(", {} to {}", time(first), time(last)));
    let mut findings = String::new();
    for finding in report.findings.iter().filter(|finding| finding.code != Code::Preallocated) {
        let remedy = finding.remedy.as_ref().map(|remedy| format!("\n  {remedy}")).unwrap_or_default();
        let _infallible = writeln!(findings, "{}{}", finding.message, remedy);
    }
    let colour = if report.verdict == Verdict::Healthy { "#4ac26b" } else { "#cf222e" };
    format!(
        "<h2 style=\"border-left:6px solid {colour};padding-left:.5rem\">{}</h2>\
         <svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\">{shapes}\
         <text x=\"0\" y=\"{:.0}\">{from}</text><text x=\"{WIDTH}\" y=\"{:.0}\" text-anchor=\"end\">{end}</text></svg>\
         <p>{} bytes, {} segments, {} batches{}</p><pre>{}</pre>\n",
        escaped(&headline(report)),
        height + 16.0,
        height + 12.0,
        height + 12.0,
        report.size(),
        report.segments.len(),
        report.batch_count(),
        times.unwrap_or_default(),
        escaped_lines(&findings)
    )
}

fn escaped_lines(text: &str) -> String {
    text.lines().map(escaped).collect::<Vec<_>>().join("\n")
}
