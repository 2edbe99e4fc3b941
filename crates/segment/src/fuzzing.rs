//! The oracles of the fuzz targets for names and index files. Each panics if this crate is wrong about the bytes.
//!
//! They run in ordinary tests as well, over the seeds in `fuzz/seeds` and over random bytes.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "an oracle fails by panicking, and one that unwraps wrongly should fail too"
)]

use std::path::Path;

use weir_format::{BatchBuilder, Offset, TimestampMs};

use crate::checkpoint::OffsetCheckpoint;
use crate::io::sim::SimDisk;
use crate::layout::{DirectoryName, FileKind, SegmentFileName, Uuid, file_path};
use crate::{
    CleanShutdown, LocalLog, MetaProperties, OffsetIndex, PartitionMetadata, SegmentConfig, TimeIndex,
    TransactionIndex,
};

/// One oracle: it panics if this crate is wrong about these bytes.
pub type Oracle = fn(&[u8]);

/// Every target of `fuzz/` that is this crate's, and its oracle.
pub const TARGETS: &[(&str, Oracle)] = &[("index", check_index), ("names", check_names)];

/// Any bytes as names and as the small text files of a log directory: what is understood comes back when it is written.
pub fn check_names(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        if let Some(name) = SegmentFileName::parse(text) {
            assert_eq!(SegmentFileName::parse(&name.to_string()), Some(name));
        }
        if let DirectoryName::Partition(partition) = DirectoryName::parse(text) {
            let written = partition.to_string();
            assert_eq!(DirectoryName::parse(&written), DirectoryName::Partition(partition));
        }
        if let Ok(uuid) = text.parse::<Uuid>() {
            assert_eq!(uuid.to_string(), text);
        }
    }
    if let Ok(checkpoint) = OffsetCheckpoint::parse(data) {
        assert_eq!(OffsetCheckpoint::parse(&checkpoint.encode()), Ok(checkpoint));
    }
    if let Ok(metadata) = PartitionMetadata::parse(data) {
        assert_eq!(PartitionMetadata::parse(&metadata.encode()), Ok(metadata));
    }
    if let Ok(properties) = MetaProperties::parse(data) {
        assert_eq!(MetaProperties::parse(&properties.encode()), Ok(properties));
    }
    let marker = CleanShutdown::parse(data);
    assert_eq!(CleanShutdown::parse(&marker.encode()), marker);
}

/// Any bytes as index files: what is understood is written back as it was, and whatever stands in the files beside a
/// log, no answer changes.
pub fn check_index(data: &[u8]) {
    let base = Offset::new(100).unwrap();
    if let Ok(index) = OffsetIndex::decode(base, data) {
        assert_eq!(index.encode(), data);
    }
    if let Ok(index) = TimeIndex::decode(base, data) {
        assert_eq!(index.encode(), data);
    }
    if let Ok(index) = TransactionIndex::decode(base, data) {
        assert_eq!(index.encode(), data);
    }
    let dir = Path::new("/t-0");
    // Always the same, and most of the time of an execution to build and ask.
    thread_local!(static RIGHT: (SimDisk, Vec<(i64, Option<i64>)>) = {
        let dir = Path::new("/t-0");
        let right = small_log(dir);
        let expected = answers(&right.fork(), dir);
        (right, expected)
    });
    let (right, expected) = RIGHT.with(|(right, expected)| (right.fork(), expected.clone()));
    for spoilt in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        for base in [0, 10] {
            let disk = right.fork();
            let path = file_path(dir, Offset::new(base).unwrap(), spoilt);
            let bytes = match spoilt {
                FileKind::OffsetIndex => data.to_vec(),
                // A byte of a right one changed, and cut: any other that fits the log by chance could be believed.
                _ => {
                    let mut bytes = disk.read_file(&path).unwrap();
                    let (at, bits) = (data.first().copied().unwrap_or(0), data.get(1).copied().unwrap_or(0));
                    let at = usize::from(at) % (bytes.len() + 1);
                    match bytes.get_mut(at) {
                        Some(byte) => *byte ^= bits,
                        None => bytes.truncate(usize::from(bits)),
                    }
                    bytes
                }
            };
            disk.write_file(&path, &bytes);
            assert_eq!(answers(&disk, dir), expected, "{}: {bytes:?}", path.display());
        }
    }
}

/// A log of two segments whose timestamps go up and down.
fn small_log(dir: &Path) -> SimDisk {
    let disk = SimDisk::new(0);
    let mut io = disk.io();
    crate::io::durable::create_dir_all(&mut io, dir).unwrap();
    let mut log = LocalLog::open(&mut io, dir, config(), Offset::ZERO).unwrap();
    for (base, timestamp) in
        [(0, 50), (1, 20), (2, 70), (5, 60), (8, 80), (10, 90), (11, 40), (12, 95), (15, 96)]
    {
        if base == 10 {
            log.roll(&mut io, Some(Offset::new(10).unwrap()), TimestampMs::new(0)).unwrap();
        }
        let batch = BatchBuilder::new().base_offset(Offset::new(base).unwrap());
        let batch = batch.record(TimestampMs::new(timestamp), None, Some(&[0xfe; 40])).build().unwrap();
        log.append_bytes(&mut io, batch.freeze(), TimestampMs::new(0)).unwrap();
    }
    log.close(&mut io).unwrap();
    disk
}

fn config() -> SegmentConfig {
    SegmentConfig { index_interval_bytes: 0, ..SegmentConfig::default() }
}

/// What the log says to every question.
fn answers(disk: &SimDisk, dir: &Path) -> Vec<(i64, Option<i64>)> {
    let mut io = disk.io();
    let mut log = LocalLog::open(&mut io, dir, config(), Offset::ZERO).unwrap();
    let end = log.log_end_offset();
    let mut answers = vec![(end.get(), None)];
    for from in 0..end.get() {
        let read = log.read(&mut io, Offset::new(from).unwrap(), 1, end, true).unwrap();
        answers.push((from, read.first_base_offset.map(Offset::get)));
    }
    // All that the log has lie on tens; one between each two, and one before and behind.
    for timestamp in (0..=100).step_by(5) {
        let found = log.batch_for_timestamp(&mut io, TimestampMs::new(timestamp), Offset::ZERO).unwrap();
        answers.push((timestamp, found.map(|found| found.info.base_offset.get())));
    }
    let largest = log.largest_timestamp(&mut io).unwrap();
    answers.push((largest.unwrap().timestamp.get(), largest.map(|largest| largest.offset.get())));
    answers
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folder(kind: &str, target: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target)
    }

    #[test]
    fn seeds_and_regressions_of_every_target_hold() {
        for (target, oracle) in TARGETS {
            let mut count = 0;
            for kind in ["seeds", "regressions"] {
                let Ok(entries) = std::fs::read_dir(folder(kind, target)) else { continue };
                for entry in entries {
                    let path = entry.unwrap().path();
                    if path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')) {
                        oracle(&std::fs::read(path).unwrap());
                        count += 1;
                    }
                }
            }
            assert!(count >= 5, "{target} has {count} seeds");
        }
    }

    #[test]
    fn every_oracle_has_a_target_in_the_fuzz_package() {
        for (target, _) in TARGETS {
            let source = std::fs::read_to_string(folder("fuzz_targets", &format!("{target}.rs"))).unwrap();
            assert!(source.contains(&format!("weir_segment::fuzzing::check_{target}(data)")), "{source}");
        }
    }

    /// Any change of one byte of the right offset index of the first segment.
    #[test]
    fn one_wrong_byte_in_an_index_never_changes_an_answer() {
        let dir = Path::new("/t-0");
        let right = small_log(dir).read_file(&file_path(dir, Offset::ZERO, FileKind::OffsetIndex)).unwrap();
        assert!(right.len() >= 16);
        for at in 0..right.len() {
            for bits in [1, 0x80, 0xff] {
                let mut wrong = right.clone();
                wrong[at] ^= bits;
                check_index(&wrong);
            }
        }
        for at in 0..60 {
            check_index(&[at, 1]);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn random_bytes_change_no_answer(
            relative in proptest::collection::vec((0_u8..20, 0_u16..700), 0..6),
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            check_index(&bytes);
            check_names(&bytes);
            let entries: Vec<u8> = relative
                .into_iter()
                .flat_map(|(offset, position)| [0, 0, 0, offset].into_iter().chain(u32::from(position).to_be_bytes()))
                .collect();
            check_index(&entries);
        }
    }
}
