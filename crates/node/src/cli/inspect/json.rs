//! An inspection as JSON. What is not known is not there: no field is null, and none is 0 or -1 for "unknown".
//!
//! The fields stand in `docs/operations.md`; a test compares them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::report::{
    BarrierReport, ControlRecord, FileReport, Finding, IndexState, LogDirReport, PartitionReport,
    SegmentReport, Severity, SideFile,
};

/// Of every object at the top.
pub(super) const API_VERSION: &str = "weir/v1";
/// Raised when a field changes its meaning or goes; not when one is added.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// An object of the fields that are known.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let known = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(known.collect::<Map<_, _>>())
}

fn some(value: impl Into<Value>) -> Option<Value> {
    Some(value.into())
}

fn opt<T: Into<Value>>(value: Option<T>) -> Option<Value> {
    value.map(Into::into)
}

fn path(path: &Path) -> Option<Value> {
    some(path.to_string_lossy())
}

fn counts<K: ToString>(counts: &BTreeMap<K, u64>) -> Option<Value> {
    let map: Map<String, Value> =
        counts.iter().map(|(key, count)| (key.to_string(), Value::from(*count))).collect();
    Some(Value::Object(map))
}

fn list<T>(items: &[T], each: impl FnMut(&T) -> Value) -> Option<Value> {
    Some(Value::Array(items.iter().map(each).collect()))
}

/// Without nulls, and without a coordinator epoch of -1, at any depth.
fn known(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let fields = fields.iter().filter_map(|(name, value)| {
                let unknown = name == "coordinatorEpoch" && value.as_i64().is_some_and(|epoch| epoch < 0);
                Some((name.clone(), known(value)?)).filter(|_| !unknown)
            });
            Some(Value::Object(fields.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(known).collect())),
        other => Some(other.clone()),
    }
}

fn offsets(from: i64, end: i64) -> Value {
    object([("from", some(from)), ("end", some(end))])
}

pub(super) fn finding(finding: &Finding) -> Value {
    object([
        ("code", some(finding.code.name())),
        ("severity", some(if finding.severity == Severity::Problem { "problem" } else { "note" })),
        ("message", some(finding.message.as_str())),
        ("file", finding.file.as_deref().and_then(path)),
        ("position", opt(finding.position)),
        ("size", opt(finding.size)),
        ("offsets", finding.offsets.map(|(from, end)| offsets(from, end))),
        ("cause", opt(finding.cause.as_deref())),
        ("remedy", opt(finding.remedy.as_deref())),
    ])
}

fn index(state: &IndexState) -> Value {
    match state {
        IndexState::Absent => object([("state", some("absent"))]),
        IndexState::Good { entry_count, preallocated } => object([
            ("state", some("good")),
            ("entryCount", some(*entry_count)),
            ("preallocated", some(*preallocated)),
        ]),
        IndexState::Wrong { reason } => object([("state", some("wrong")), ("reason", some(reason.as_str()))]),
        IndexState::NotChecked { reason } => {
            object([("state", some("notChecked")), ("reason", some(reason.as_str()))])
        }
    }
}

fn segment(segment: &SegmentReport) -> Value {
    let tail = segment.tail.as_ref().map(|tail| {
        object([
            ("code", some(tail.code.name())),
            ("position", some(tail.position)),
            ("size", some(tail.size)),
            ("preallocated", some(tail.preallocated)),
        ])
    });
    object([
        ("baseOffset", some(segment.base_offset)),
        ("endOffset", opt(segment.end_offset)),
        ("size", some(segment.size)),
        ("validSize", some(segment.valid_size)),
        ("batchCount", some(segment.batch_count)),
        ("recordCount", opt(segment.record_count)),
        ("minTimestampMs", opt(segment.min_timestamp)),
        ("maxTimestampMs", opt(segment.max_timestamp)),
        ("offsetIndex", some(index(&segment.offset_index))),
        ("timeIndex", some(index(&segment.time_index))),
        ("transactionIndex", some(index(&segment.transaction_index))),
        ("tail", tail),
    ])
}

fn barrier(barrier: &BarrierReport) -> Value {
    let aborted = list(&barrier.transactions_aborted, |(producer_id, first_offset)| {
        object([("producerId", some(*producer_id)), ("firstOffset", some(*first_offset))])
    });
    object([
        ("offset", some(barrier.offset)),
        ("leaderEpoch", opt(barrier.leader_epoch)),
        ("timestampMs", opt(barrier.timestamp)),
        ("control", known(&barrier.value)),
        ("producersExpired", opt(barrier.producers_expired)),
        ("transactionsAbortedCount", opt(barrier.transactions_aborted_count)),
        ("transactionsAborted", aborted.filter(|_| barrier.transactions_aborted_count.is_some())),
    ])
}

fn control_record(record: &ControlRecord) -> Value {
    object([
        ("offset", some(record.offset)),
        ("leaderEpoch", opt(record.leader_epoch)),
        ("timestampMs", opt(record.timestamp)),
        ("producerId", opt(record.producer_id)),
        ("producerEpoch", opt(record.producer_epoch)),
        ("transactionFirstOffset", opt(record.transaction_first_offset)),
        ("control", known(&record.value)),
    ])
}

fn side_file(file: &SideFile) -> Value {
    match file {
        SideFile::Absent => object([("state", some("absent"))]),
        SideFile::Unreadable(error) => {
            object([("state", some("unreadable")), ("reason", some(error.to_string()))])
        }
        SideFile::Good { checked, barrier_count, cut } => object([
            ("state", some("good")),
            ("checkedOffset", some(*checked)),
            ("barrierCount", some(*barrier_count)),
            ("cut", cut.map(|(to, from)| object([("to", some(to)), ("from", some(from))]))),
        ]),
    }
}

fn open_in(holder: Option<super::files::Holder>) -> Option<Value> {
    holder.map(|holder| object([("pid", opt(holder.pid))]))
}

/// One partition.
pub(super) fn partition(report: &PartitionReport) -> Value {
    let producers = &report.producers;
    object([
        ("kind", some("Partition")),
        ("dir", path(&report.dir)),
        ("topic", report.name.as_ref().and_then(|name| some(name.topic.as_str()))),
        ("partition", report.name.as_ref().and_then(|name| some(name.partition))),
        ("topicId", report.topic_id.and_then(|id| some(id.to_string()))),
        ("verdict", some(report.verdict.name())),
        ("complete", some(report.complete)),
        ("cutSize", some(report.cut_size)),
        ("cleanShutdown", some(report.clean_shutdown)),
        ("openIn", open_in(report.holder)),
        ("recoveryPoint", opt(report.recovery_point)),
        ("highWatermark", opt(report.high_watermark)),
        ("logStartOffset", some(report.log_start_offset)),
        ("logEndOffset", some(report.log_end_offset)),
        ("size", some(report.size())),
        ("batchCount", some(report.batch_count())),
        ("recordCount", opt(report.record_count())),
        ("findings", list(&report.findings, finding)),
        ("segments", list(&report.segments, segment)),
        (
            "batches",
            some(object([
                ("byMagic", counts(&report.batches.magic)),
                ("byCodec", counts(&report.batches.codec)),
                ("control", some(report.batches.control)),
                ("transactional", some(report.batches.transactional)),
                ("idempotent", some(report.batches.idempotent)),
                ("empty", some(report.batches.empty)),
            ])),
        ),
        (
            "gaps",
            some(object([
                ("count", some(report.gap_count)),
                ("offsetCount", some(report.gap_offset_count)),
                ("first", list(&report.gaps, |gap| offsets(gap.from, gap.end))),
            ])),
        ),
        (
            "controlRecords",
            some(object([
                ("byType", counts(&report.control.counts)),
                ("barriers", list(&report.control.barriers, barrier)),
                ("others", list(&report.control.others, control_record)),
                ("omitted", some(report.control.omitted)),
            ])),
        ),
        (
            "producers",
            some(object([
                ("atOffset", some(producers.at)),
                ("count", some(producers.count)),
                (
                    "newest",
                    list(&producers.some, |producer| {
                        object([
                            ("producerId", some(producer.producer_id)),
                            ("producerEpoch", opt(producer.producer_epoch)),
                            ("lastSequence", opt(producer.last_sequence)),
                            ("lastOffset", opt(producer.last_offset)),
                            ("coordinatorEpoch", opt(producer.coordinator_epoch)),
                            ("lastTimestampMs", opt(producer.last_timestamp)),
                        ])
                    }),
                ),
            ])),
        ),
        (
            "openTransactions",
            some(object([
                ("count", some(producers.open_count)),
                ("lastStableOffset", some(producers.last_stable_offset)),
                (
                    "first",
                    list(&producers.open, |open| {
                        object([
                            ("producerId", some(open.producer_id)),
                            ("producerEpoch", opt(open.producer_epoch)),
                            ("firstOffset", some(open.first_offset)),
                            ("firstTimestampMs", opt(open.first_timestamp)),
                            ("ageMs", opt(open.age_ms)),
                        ])
                    }),
                ),
            ])),
        ),
        (
            "leaderEpochs",
            list(&report.epochs, |epoch| {
                object([
                    ("epoch", some(epoch.epoch)),
                    ("startOffset", some(epoch.start_offset)),
                    ("hasBatches", some(epoch.has_batches)),
                    ("inCheckpoint", some(epoch.in_checkpoint)),
                ])
            }),
        ),
        (
            "snapshots",
            list(&report.snapshots, |snapshot| {
                object([
                    ("offset", some(snapshot.offset)),
                    ("size", some(snapshot.size)),
                    ("producerCount", opt(snapshot.producer_count)),
                    ("trusted", some(snapshot.distrust.is_none())),
                    ("reason", opt(snapshot.distrust.as_deref())),
                ])
            }),
        ),
        ("sideDir", report.side_dir.as_deref().and_then(path)),
        ("partitionFile", some(side_file(&report.side_file))),
        (
            "archives",
            list(&report.archives, |archive| {
                object([
                    ("file", path(&archive.file)),
                    ("size", some(archive.size)),
                    ("offsets", archive.offsets.map(|(from, end)| offsets(from, end))),
                ])
            }),
        ),
    ])
}

/// A log directory.
pub(super) fn log_dir(report: &LogDirReport) -> Value {
    object([
        ("kind", some("LogDirectory")),
        ("dir", path(&report.dir)),
        ("partitionCount", some(report.partition_count)),
        ("cleanShutdown", some(report.clean_shutdown)),
        ("openIn", open_in(report.holder)),
        ("clusterId", opt(report.cluster_id.as_deref())),
        ("nodeId", opt(report.node_id)),
        ("directoryId", report.directory_id.and_then(|id| some(id.to_string()))),
        ("sideDir", report.side_dir.as_deref().and_then(path)),
        ("metadataStore", report.store.as_deref().and_then(path)),
        ("findings", list(&report.findings, finding)),
    ])
}

/// A file by itself.
pub(super) fn file(report: &FileReport) -> Value {
    object([
        ("kind", some("File")),
        ("file", path(&report.file)),
        ("what", some(report.what.as_str())),
        ("size", some(report.size)),
        ("facts", list(&report.facts, |fact| Value::from(fact.as_str()))),
        ("findings", list(&report.findings, finding)),
    ])
}

/// The last of the items' siblings: what a script looks at first.
pub(super) fn summary(verdict: &str, complete: bool, item_count: u64, exit_code: u8) -> Value {
    object([
        ("verdict", some(verdict)),
        ("complete", some(complete)),
        ("itemCount", some(item_count)),
        ("exitCode", some(exit_code)),
    ])
}
