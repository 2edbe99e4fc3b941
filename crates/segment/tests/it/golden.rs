//! Logs written by Kafka 4.4.0, and what Kafka says about them (see `testdata/PROVENANCE.md`).

use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_format::TimestampMs;
use weir_segment::io::Io;
use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};
use weir_segment::io::sim::SimDisk;
use weir_segment::layout::{FileKind, SegmentFileName};
use weir_segment::{LocalLog, OffsetIndex, SegmentConfig, SegmentError, TimeIndex};

use crate::support::at;

const LOGS: [&str; 4] = ["plain", "idempotent", "txn-open", "kill9"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/logs").join(name)
}

fn expected(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder(name).join("expected.json")).unwrap()).unwrap()
}

fn config() -> SegmentConfig {
    SegmentConfig { segment_bytes: 16_384, index_interval_bytes: 1_024, ..SegmentConfig::default() }
}

fn dir(name: &str) -> PathBuf {
    PathBuf::from(format!("/{name}-0"))
}

fn disk(name: &str) -> SimDisk {
    let disk = SimDisk::new(1);
    disk.import(&folder(name).join(format!("{name}-0")), &dir(name)).unwrap();
    disk
}

fn open(io: &mut dyn Io, name: &str) -> LocalLog {
    LocalLog::open(io, &dir(name), config(), at(0)).unwrap()
}

/// What happens to the indexes of a log before it is opened.
type Damage = (&'static str, fn(&SimDisk, &Path));

fn damages() -> Vec<Damage> {
    vec![
        ("as they are", |_, _| {}),
        ("gone", |disk, path| {
            disk.remove_file(path);
        }),
        ("empty", |disk, path| disk.write_file(path, b"")),
        ("zeros", |disk, path| disk.write_file(path, &[0; 4_080])),
        ("zeros behind", |disk, path| {
            let mut bytes = disk.read_file(path).unwrap();
            bytes.resize(4_080, 0);
            disk.write_file(path, &bytes);
        }),
        ("cut to one entry", |disk, path| {
            let bytes = disk.read_file(path).unwrap();
            disk.write_file(path, &bytes[..bytes.len().min(24)]);
        }),
        ("cut within an entry", |disk, path| {
            let bytes = disk.read_file(path).unwrap();
            disk.write_file(path, &bytes[..bytes.len().saturating_sub(3)]);
        }),
        ("garbage", |disk, path| disk.write_file(path, &[0x5a; 48])),
        ("another segment's", |disk, path| {
            let bytes: Vec<u8> =
                [[0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 12], [0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 40]].concat();
            disk.write_file(path, &bytes);
        }),
    ]
}

fn index_files(disk: &SimDisk) -> Vec<PathBuf> {
    let is_index = |path: &PathBuf| {
        let kind = SegmentFileName::of(path).map(|name| name.kind);
        matches!(kind, Some(FileKind::OffsetIndex | FileKind::TimeIndex))
    };
    disk.files().into_iter().filter(is_index).collect()
}

/// The indexes on the disk after a clean close are, entry by entry, what Kafka has after it loaded the log.
fn check_indexes(disk: &SimDisk, name: &str, why: &str) {
    for segment in expected(name)["segments"].as_array().unwrap() {
        let base = at(segment["baseOffset"].as_i64().unwrap());
        let bytes = |kind| {
            let path = dir(name).join(weir_segment::layout::file_name(base, kind));
            disk.read_file(&path).unwrap_or_else(|| panic!("{name}, {why}: no {}", path.display()))
        };
        let offsets: Vec<Value> = OffsetIndex::decode(base, &bytes(FileKind::OffsetIndex))
            .unwrap()
            .entries()
            .map(|entry| serde_json::json!([entry.offset.get(), entry.position]))
            .collect();
        assert_eq!(Value::from(offsets), segment["offsetIndex"], "{name}, {why}: {base}");
        let times: Vec<Value> = TimeIndex::decode(base, &bytes(FileKind::TimeIndex))
            .unwrap()
            .entries()
            .map(|entry| serde_json::json!([entry.timestamp.get(), entry.offset.get()]))
            .collect();
        assert_eq!(Value::from(times), segment["timeIndex"], "{name}, {why}: {base}");
    }
}

#[test]
fn indexes_built_again_are_kafkas() {
    for name in LOGS {
        let disk = disk(name);
        for path in disk.files() {
            if path.extension().is_some_and(|kind| kind == "index" || kind == "timeindex") {
                disk.remove_file(&path);
            }
        }
        let mut io = disk.io();
        let mut log = open(&mut io, name);
        // Those of older segments when they are first needed.
        let bases: Vec<_> = log.segments().map(|segment| segment.base_offset()).collect();
        for base in bases {
            log.segment_largest_timestamp(&mut io, base).unwrap();
        }
        log.close(&mut io).unwrap();
        check_indexes(&disk, name, "built again");
    }
}

#[test]
fn a_log_written_batch_by_batch_has_kafkas_segments_and_indexes() {
    for name in LOGS {
        let source = disk(name);
        let mut from = source.io();
        let mut log = open(&mut from, name);
        let bases: Vec<_> = log.segments().map(|segment| segment.base_offset()).collect();
        let copy = SimDisk::new(2);
        let mut to = copy.io();
        to.create_dir_all(&dir(name)).unwrap();
        // kill9 and plain rolled by size; idempotent was rolled by hand at 110.
        let mut written = open(&mut to, name);
        for base in bases {
            if name == "idempotent" && base > written.first_offset() {
                written.roll(&mut to, None, TimestampMs::new(0)).unwrap();
            }
            let mut walker = log.walk(&mut from, base, 0).unwrap();
            while let Some((_, bytes)) = walker.next(&mut from).unwrap() {
                written.append_bytes(&mut to, bytes, TimestampMs::new(0)).unwrap();
            }
        }
        written.close(&mut to).unwrap();
        check_indexes(&copy, name, "written");
        for (path, bytes) in source.contents() {
            if SegmentFileName::of(&path).is_some_and(|file| file.kind == FileKind::Log) {
                assert_eq!(copy.read_file(&path), Some(bytes), "{}", path.display());
            }
        }
    }
}

#[test]
fn damaged_indexes_never_change_an_answer() {
    const OFFSETS: &[FileKind] = &[FileKind::OffsetIndex];
    const TIMES: &[FileKind] = &[FileKind::TimeIndex];
    const BOTH: &[FileKind] = &[FileKind::OffsetIndex, FileKind::TimeIndex];
    let cases = LOGS.into_iter().flat_map(|name| [OFFSETS, TIMES, BOTH].map(|kinds| (name, kinds)));
    for (name, kinds) in cases {
        let expected = expected(name);
        for (why, damage) in damages() {
            let why = format!("{why} of {kinds:?}");
            let disk = disk(name);
            for path in index_files(&disk) {
                if SegmentFileName::of(&path).is_some_and(|file| kinds.contains(&file.kind)) {
                    damage(&disk, &path);
                }
            }
            let mut io = disk.io();
            let mut log = open(&mut io, name);
            assert_eq!(log.tail(), None, "{name}, {why}");
            assert_eq!(
                log.log_end_offset().get(),
                expected["logEndOffset"].as_i64().unwrap(),
                "{name}, {why}"
            );
            for segment in expected["segments"].as_array().unwrap() {
                let base = at(segment["baseOffset"].as_i64().unwrap());
                let largest = log.segment_largest_timestamp(&mut io, base).unwrap();
                let largest = largest.map(|largest| largest.timestamp.get());
                assert_eq!(largest, segment["largestTimestamp"].as_i64(), "{name}, {why}: {base}");
            }
            check_fetches(&mut io, &mut log, &expected, &format!("{name}, {why}"));
            check_timestamps(&mut io, &mut log, &expected, &format!("{name}, {why}"));
            log.close(&mut io).unwrap();
        }
    }
}

/// Kafka returns a partial last batch, we do not; so the sizes are compared up to there.
fn check_fetches(io: &mut dyn Io, log: &mut LocalLog, expected: &Value, why: &str) {
    let end = log.log_end_offset();
    for fetch in expected["fetches"].as_array().unwrap() {
        let from = at(fetch["offset"].as_i64().unwrap());
        if from > end {
            let refused = log.read(io, from, 1, end, true);
            assert!(matches!(refused, Err(SegmentError::OutOfRange { .. })), "{why}: {from}");
            continue;
        }
        let one = log.read(io, from, 1, end, true).unwrap();
        assert_eq!(
            one.bytes.len(),
            usize::try_from(fetch["max1"]["bytes"].as_u64().unwrap()).unwrap(),
            "{why}: {from}"
        );
        let first = fetch["max1"]["firstBatchBaseOffset"].as_i64();
        assert_eq!(one.first_base_offset.map(|o| o.get()), first, "{why}: {from}");
        assert_eq!(log.read(io, from, 1, end, false).unwrap().bytes.len(), 0);
        let many = log.read(io, from, 4_096, end, true).unwrap();
        let kafka = usize::try_from(fetch["max4096"]["bytes"].as_u64().unwrap()).unwrap();
        assert!(many.bytes.len() <= kafka, "{why}: {from}");
        assert!(many.bytes.len() + 2_000 > kafka, "{why}: {from}: {} of {kafka}", many.bytes.len());
        // Reading on from where it ended gives the batch that follows.
        if many.next_offset < end {
            let more = log.read(io, many.next_offset, 1, end, true).unwrap();
            assert_eq!(more.first_base_offset, Some(many.next_offset), "{why}: {from}");
        }
    }
}

fn check_timestamps(io: &mut dyn Io, log: &mut LocalLog, expected: &Value, why: &str) {
    for asked in expected["listOffsets"].as_array().unwrap() {
        let (ask, answer) = (asked["ask"].as_i64().unwrap(), &asked["answer"]);
        if ask < 0 {
            continue;
        }
        // The batch with the record that Kafka names.
        let found = log.batch_for_timestamp(io, TimestampMs::new(ask), at(0)).unwrap();
        let kafka = answer["offset"].as_i64().filter(|offset| *offset >= 0);
        assert_eq!(found.is_some(), kafka.is_some(), "{why}: {ask}");
        if let (Some(found), Some(offset)) = (found, kafka) {
            let offsets = found.info.base_offset.get()..=found.info.last_offset.get();
            assert!(offsets.contains(&offset), "{why}: {ask}: {offset} is not in {offsets:?}");
            assert!(answer["timestamp"].as_i64().unwrap() <= found.info.max_timestamp.get());
        }
    }
}

#[test]
fn aborted_transactions_are_kafkas() {
    let disk = disk("txn-open");
    let mut io = disk.io();
    let mut log = open(&mut io, "txn-open");
    let found = log.aborted_in_range(&mut io, at(0), at(12)).unwrap();
    let found: Vec<Value> = found
        .iter()
        .map(|aborted| {
            serde_json::json!({
                "producerId": aborted.producer_id.get(),
                "firstOffset": aborted.first_offset.get(),
                "lastOffset": aborted.last_offset.get(),
                "lastStableOffset": aborted.last_stable_offset.get(),
            })
        })
        .collect();
    assert_eq!(Value::from(found), expected("txn-open")["abortedTransactions"]);
    assert_eq!(log.aborted_in_range(&mut io, at(7), at(12)).unwrap(), []);
    assert_eq!(log.aborted_in_range(&mut io, at(0), at(5)).unwrap(), []);
}

#[test]
fn a_log_that_kafka_closed_cleanly_is_left_as_it_was() {
    for name in ["plain", "idempotent", "txn-open"] {
        let real = tempfile::tempdir().unwrap();
        let source = folder(name).join(format!("{name}-0"));
        for entry in std::fs::read_dir(&source).unwrap() {
            let path = entry.unwrap().path();
            std::fs::write(real.path().join(path.file_name().unwrap()), std::fs::read(&path).unwrap())
                .unwrap();
        }
        let mut io = PwriteIo::new(PwriteConfig::default());
        let log = LocalLog::open(&mut io, real.path(), config(), at(0)).unwrap();
        log.close(&mut io).unwrap();
        for entry in std::fs::read_dir(&source).unwrap() {
            let path = entry.unwrap().path();
            let after = std::fs::read(real.path().join(path.file_name().unwrap())).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), after, "{}", path.display());
        }
    }
}
