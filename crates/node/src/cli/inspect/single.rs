//! A file by itself.

use std::path::Path;

use weir_format::Offset;
use weir_psm::snapshot;
use weir_recovery::{LeaderEpochCache, PartitionFile};
use weir_segment::checkpoint::OffsetCheckpoint;
use weir_segment::layout::{
    CLEAN_SHUTDOWN_MARKER, FileKind, HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT, META_PROPERTIES, PARTITION_METADATA, RECOVERY_POINT_CHECKPOINT, SegmentFileName,
};
use weir_segment::{
    CleanShutdown, MetaProperties, OffsetIndex, PartitionMetadata, TimeIndex, TransactionIndex,
};

use super::analyse::{Inspection, MAX_SEGMENT_SIZE, valid_within};
use super::context::SMALL_FILE_LIMIT;
use super::files::read_small;
use super::report::{Code, FileReport, Finding, Severity};
use super::target::{file_kind, name_of};
use super::walk::{Halt, Tail};
use crate::shard::describe;

type Facts = Result<Vec<String>, String>;

/// Looks at a file that is not a segment; false if somebody ended it early.
pub(super) fn file(inspection: &Inspection<'_>, path: &Path, size: u64) -> (FileReport, bool) {
    let name = name_of(path);
    let segment_file = SegmentFileName::parse(&name);
    let what = match segment_file.map(|name| name.kind) {
        Some(FileKind::Log) => "segment of an interrupted operation",
        Some(FileKind::OffsetIndex) => "offset index",
        Some(FileKind::TimeIndex) => "time index",
        Some(FileKind::TransactionIndex) => "transaction index",
        Some(FileKind::Snapshot) => "producer snapshot",
        None => file_kind(&name),
    };
    let mut report = FileReport {
        file: path.to_path_buf(),
        what: what.to_owned(),
        size,
        facts: Vec::new(),
        findings: Vec::new(),
    };
    let is_batches = name.starts_with("cut-") || segment_file.is_some_and(|name| name.kind == FileKind::Log);
    let facts = if is_batches {
        match batches(inspection, path) {
            Ok(facts) => Ok(facts),
            Err(Halt::Interrupted) => return (report, false),
            Err(Halt::Io(error)) => Err(error.to_string()),
        }
    } else {
        match read_small(inspection.files, path, SMALL_FILE_LIMIT) {
            Ok(bytes) => small(&name, segment_file, &bytes.unwrap_or_default()),
            Err(error) => Err(error.to_string()),
        }
    };
    match facts {
        Ok(facts) => report.facts = facts,
        Err(cause) => {
            let mut finding = Finding::new(
                Code::SmallFile,
                Severity::Problem,
                format!("this is no {what} that can be used"),
            );
            finding.cause = Some(cause);
            finding.remedy = Some(remedy(segment_file.is_some(), &name).to_owned());
            report.findings.push(finding.of(path));
        }
    }
    (report, true)
}

fn remedy(of_segment: bool, name: &str) -> &'static str {
    match name {
        _ if of_segment => "nothing is lost: a start builds it again from the log",
        LEADER_EPOCH_CHECKPOINT => "nothing is lost: a start builds the leader epochs from the log",
        META_PROPERTIES => "restore it from a copy: without it the directory is no log directory",
        PARTITION_METADATA => "restore it from a copy: without it nobody knows whose partition this is",
        _ => "nothing is lost: a start does without it and reads more",
    }
}

fn batches(inspection: &Inspection<'_>, path: &Path) -> Result<Vec<String>, Halt> {
    let file = inspection.files.open(path)?;
    let size = file.size()?;
    let mut tail = Tail { file: &*file, watch: &inspection.watch, size: size.min(MAX_SEGMENT_SIZE) };
    Ok(vec![match valid_within(&mut tail)? {
        None => "no whole batch is in it".to_owned(),
        Some((from, end)) => format!("batches of offsets {from}..{end} are in it: weir dump-log prints them"),
    }])
}

fn small(name: &str, segment_file: Option<SegmentFileName>, bytes: &[u8]) -> Facts {
    if let Some(name) = segment_file {
        return indexed(name, bytes);
    }
    let text = |error: &dyn std::error::Error| describe(error);
    let checkpoint = |bytes: &[u8]| {
        let checkpoint = OffsetCheckpoint::parse(bytes).map_err(|error| text(&error))?;
        Ok(checkpoint.offsets.iter().map(|(partition, offset)| format!("{partition}: {offset}")).collect())
    };
    match name {
        RECOVERY_POINT_CHECKPOINT | LOG_START_CHECKPOINT | HIGH_WATERMARK_CHECKPOINT => checkpoint(bytes),
        LEADER_EPOCH_CHECKPOINT => {
            let cache = LeaderEpochCache::decode(bytes).map_err(|error| text(&error))?;
            let entries = cache.entries().iter();
            Ok(entries.map(|entry| format!("epoch {} from {}", entry.epoch, entry.start_offset)).collect())
        }
        PARTITION_METADATA => {
            let metadata = PartitionMetadata::parse(bytes).map_err(|error| text(&error))?;
            Ok(vec![format!("topic id {}", metadata.topic_id)])
        }
        META_PROPERTIES => {
            let meta = MetaProperties::parse(bytes).map_err(|error| text(&error))?;
            let fields = [
                meta.cluster_id.map(|id| format!("cluster {id}")),
                meta.node_id.map(|id| format!("node {id}")),
                meta.directory_id.map(|id| format!("directory {id}")),
            ];
            Ok(fields.into_iter().flatten().collect())
        }
        CLEAN_SHUTDOWN_MARKER => {
            let epoch = CleanShutdown::parse(bytes).broker_epoch;
            Ok(vec![
                epoch.map_or_else(|| "no broker epoch".to_owned(), |epoch| format!("broker epoch {epoch}")),
            ])
        }
        weir_recovery::partition_file::PARTITION_FILE_NAME => {
            let file = PartitionFile::decode(bytes).map_err(|error| text(&error))?;
            let mut facts = vec![format!("barriers are known below offset {}", file.checked())];
            facts.extend(file.barriers().map(|(at, note)| {
                let aborted = if note.aborted_transaction { ", a transaction was aborted at it" } else { "" };
                format!("barrier at {at}{aborted}")
            }));
            facts.extend(file.snapshots().map(|(at, crc)| format!("snapshot at {at}, CRC {crc:08x}")));
            facts.extend(file.cut().map(|cut| format!("cut from {} to {}", cut.from, cut.to)));
            Ok(facts)
        }
        _ => Ok(vec!["neither Kafka nor weir writes a file of this name".to_owned()]),
    }
}

fn indexed(name: SegmentFileName, bytes: &[u8]) -> Facts {
    let base = name.base_offset;
    let used = |entry_size: usize| {
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
        let used = used.checked_next_multiple_of(entry_size).unwrap_or(bytes.len()).min(bytes.len());
        (bytes.get(..used).unwrap_or_default(), bytes.len().saturating_sub(used))
    };
    let facts = |count: usize, range: Option<(Offset, Offset)>, zeros: usize| {
        let range = range.map(|(first, last)| format!(", offsets {first} to {last}")).unwrap_or_default();
        let mut facts = vec![format!("{count} entries{range}")];
        if zeros > 0 {
            facts.push(format!("{zeros} bytes of zeros behind them: space allocated ahead"));
        }
        Ok(facts)
    };
    match name.kind {
        FileKind::Log => Ok(Vec::new()),
        FileKind::OffsetIndex => {
            let (bytes, zeros) = used(8);
            let index = OffsetIndex::decode(base, bytes).map_err(|error| error.to_string())?;
            let range = index.entries().next().zip(index.entries().next_back());
            facts(index.entries().len(), range.map(|(first, last)| (first.offset, last.offset)), zeros)
        }
        FileKind::TimeIndex => {
            let (bytes, zeros) = used(12);
            let index = TimeIndex::decode(base, bytes).map_err(|error| error.to_string())?;
            let range = index.entries().next().zip(index.entries().next_back());
            facts(index.entries().len(), range.map(|(first, last)| (first.offset, last.offset)), zeros)
        }
        FileKind::TransactionIndex => {
            let (bytes, zeros) = used(34);
            let index = TransactionIndex::decode(base, bytes).map_err(|error| error.to_string())?;
            let range = index.entries().first().zip(index.entries().last());
            facts(
                index.entries().len(),
                range.map(|(first, last)| (first.first_offset, last.last_offset)),
                zeros,
            )
        }
        FileKind::Snapshot => {
            let entries = snapshot::decode(bytes).map_err(|error| describe(&error))?;
            let open = entries.iter().filter(|(_, entry)| entry.transaction_first_offset().is_some()).count();
            Ok(vec![format!(
                "{} producers before offset {base}, {open} with an open transaction",
                entries.len()
            )])
        }
    }
}
