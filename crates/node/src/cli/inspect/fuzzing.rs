//! The oracle of the fuzz target `inspect`: any bytes as a directory. It panics if an inspection is wrong about it.
//!
//! A directory is looked at as it lies, printed both ways, and then loaded by a start on a simulated disk: what the
//! inspection said of it must be what the start does.

#![allow(clippy::missing_panics_doc, reason = "an oracle fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use weir_format::{Offset, TimestampMs};
use weir_psm::PsmConfig;
use weir_recovery::{LoadError, LogLoader, RecoveryConfig};
use weir_segment::SegmentConfig;
use weir_segment::checkpoint::OffsetCheckpoint;
use weir_segment::io::sim::SimDisk;
use weir_segment::layout::{
    CLEAN_SHUTDOWN_MARKER, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, RECOVERY_POINT_CHECKPOINT,
    TopicPartition,
};

use super::files::MemoryFiles;
use super::report::{Code, PartitionReport, Verdict};
use super::{Inspect, Inspection, Piece, Printer, Watch, look};

/// One oracle: it panics if this crate is wrong about these bytes.
pub type Oracle = fn(&[u8]);

/// Every target of `fuzz/` that is this crate's, and its oracle.
pub const TARGETS: &[(&str, Oracle)] = &[("inspect", check_inspect)];

const LOG_DIR: &str = "/data";
const DIR: &str = "/data/t-0";
const NOW: i64 = 1_767_225_600_000;

/// Names that an input may use; others are made of its bytes.
const NAMES: [&str; 16] = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000000.snapshot",
    "00000000000000000005.log",
    "00000000000000000005.index",
    "00000000000000000005.txnindex",
    "00000000000000000005.snapshot",
    "00000000000000000031.log",
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    "00000000000000000005.log.deleted",
    "00000000000000000000.log.cleaned",
    "leader-epoch-checkpoint.tmp",
    "notes.txt",
];

/// Any bytes as a directory: one byte of flags, then files, each a byte for its name, two for its size, and its bytes.
pub fn check_inspect(data: &[u8]) {
    let Some((flags, mut rest)) = data.split_first() else { return };
    let mut files = BTreeMap::new();
    while let Some((header, behind)) = rest.split_first_chunk::<3>() {
        let [name, a, b] = *header;
        let size = usize::from(u16::from_be_bytes([a, b])).min(behind.len());
        let (bytes, behind) = behind.split_at(size);
        let name = NAMES.get(usize::from(name)).copied().unwrap_or("00000000000000000000.log");
        files.insert(Path::new(DIR).join(name), bytes.to_vec());
        rest = behind;
    }
    let recovery_point = i64::from(flags >> 2);
    check_directory(&files, flags & 1 != 0, recovery_point);
}

/// A partition's directory of these files: what an inspection says of it is what a start does.
pub fn check_directory(files: &BTreeMap<PathBuf, Vec<u8>>, clean_shutdown: bool, recovery_point: i64) {
    let mut all = files.clone();
    if clean_shutdown {
        all.insert(Path::new(LOG_DIR).join(CLEAN_SHUTDOWN_MARKER), Vec::new());
    }
    let mut checkpoint = OffsetCheckpoint::default();
    let recovery_point = Offset::new(recovery_point).unwrap_or(Offset::ZERO);
    checkpoint.offsets.insert(TopicPartition::new("t", 0), recovery_point);
    all.insert(Path::new(LOG_DIR).join(RECOVERY_POINT_CHECKPOINT), checkpoint.encode().to_vec());
    let report = inspected(&all);
    let config = RecoveryConfig {
        segment: SegmentConfig::default(),
        psm: PsmConfig::default(),
        clean_shutdown,
        recovery_point,
        log_start_offset: Offset::ZERO,
        side_dir: "/data.weir/t-0".into(),
        now: TimestampMs::new(NOW),
    };
    let disk = SimDisk::new(1);
    for (path, bytes) in files {
        disk.write_file(path, bytes);
    }
    let Some(report) = report.filter(|_| !files.is_empty()) else { return };
    compare(&report, LogLoader::load(&mut disk.io(), Path::new(DIR), &config));
}

/// Looks at a tree and prints it both ways; the report of its one partition.
fn inspected(files: &BTreeMap<PathBuf, Vec<u8>>) -> Option<PartitionReport> {
    let files = MemoryFiles { files: files.clone(), held: false };
    let stop = AtomicBool::new(false);
    let inspection = Inspection {
        files: &files,
        watch: Watch { stop: &stop, progress: &|_| {} },
        now: TimestampMs::new(NOW),
        wait_for_writer: &|| false,
    };
    let mut found = None;
    for json in [false, true] {
        let arguments = Inspect { path: DIR.into(), json, all: true, html: None };
        let mut out = Vec::new();
        let mut printer = Printer::new(&arguments, &mut out);
        let outcome = look(&inspection, &arguments.path, &mut |piece| {
            if let Piece::Partition(report) = &piece {
                found = Some(report.as_ref().clone());
            }
            printer.piece(piece)
        });
        let Ok(outcome) = outcome else { return None };
        printer.finish(&outcome).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("it is text");
        if json {
            let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
            assert_no_unknown(&value, "");
        }
        assert!(
            !text.chars().any(|c| c.is_control() && c != '\n'),
            "a terminal is told nothing that it obeys"
        );
    }
    found
}

/// Unknown is absent: no null anywhere.
fn assert_no_unknown(value: &serde_json::Value, at: &str) {
    match value {
        serde_json::Value::Null => panic!("{at} is null"),
        serde_json::Value::Array(items) => items.iter().for_each(|item| assert_no_unknown(item, at)),
        serde_json::Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| assert_no_unknown(value, &format!("{at}.{name}")));
        }
        _ => {}
    }
}

type Loaded = Result<(weir_recovery::LoadedLog, weir_recovery::RecoveryReport), LoadError>;

/// What a start did with a copy, against what the inspection said.
pub fn compare(said: &PartitionReport, loaded: Loaded) {
    let has = |code| said.findings.iter().any(|finding| finding.code == code);
    // A start finishes swaps and may be stopped by a mistake in them; that is told and not foretold.
    if has(Code::Leftover) || has(Code::NotAFile) {
        return;
    }
    match loaded {
        Ok((log, report)) => {
            // A start after a clean stop looks at less than an inspection, which may find more.
            let looked_at_all = report.batch_count == said.batch_count();
            if !looked_at_all {
                return;
            }
            assert!(
                !matches!(said.verdict, Verdict::Corrupt),
                "a start takes what was called {:?}: {:?}",
                said.verdict,
                said.findings
            );
            assert_eq!(said.log_end_offset, report.log_end_offset.get(), "log end");
            assert_eq!(said.log_start_offset, report.log_start_offset.get(), "log start");
            assert_eq!(said.cut_size, report.cut_bytes(), "bytes cut: {:?} {:?}", said.findings, report.cuts);
            assert_eq!(
                said.verdict == Verdict::WouldCut,
                report.cut_bytes() > 0 && said.verdict == Verdict::WouldCut
            );
            let producers = u64::try_from(log.psm.producer_count()).expect("few");
            assert_eq!(said.producers.count, producers, "producers");
            let open: Vec<i64> = log.psm.open_transactions().map(|open| open.first_offset.get()).collect();
            let said_open: Vec<i64> = said.producers.open.iter().map(|open| open.first_offset).collect();
            assert_eq!(said_open, open, "open transactions");
            let barriers: Vec<i64> = report.barriers.iter().map(|barrier| barrier.offset.get()).collect();
            let said_barriers: Vec<i64> =
                said.control.barriers.iter().map(|barrier| barrier.offset).collect();
            assert_eq!(said_barriers, barriers, "barriers");
        }
        Err(LoadError::Corrupt(corruption)) => {
            let first = said.findings.iter().find(|finding| finding.code == Code::Corrupt);
            let first = first.unwrap_or_else(|| panic!("{corruption} was not seen: {:?}", said.findings));
            assert_eq!(first.position, Some(corruption.position), "{corruption}");
            assert_eq!(first.file.as_deref(), Some(corruption.file.as_path()));
            assert_eq!(said.log_end_offset, corruption.next_offset.get());
            assert_eq!(said.verdict, Verdict::Corrupt);
        }
        Err(error) => panic!("a start failed otherwise: {error}"),
    }
}
