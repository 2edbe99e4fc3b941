//! What a log does at its edges.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_format::{BatchBuilder, ProducerId, RecordBatch, TimestampMs};
use weir_segment::io::sim::{SimDisk, SimIo};
use weir_segment::io::{Io, durable};
use weir_segment::layout::{FileKind, file_path};
use weir_segment::{AbortedTransaction, LocalLog, SegmentConfig, SegmentError, TransactionIndex};

use crate::support::{DIR, NOW, at, batch, batches, open, recover, replace_transactions, small};

fn fresh(config: SegmentConfig) -> (SimDisk, SimIo, LocalLog) {
    let disk = SimDisk::new(1);
    disk.yield_always(true);
    let mut io = disk.io();
    durable::create_dir_all(&mut io, Path::new(DIR)).unwrap();
    let log = open(&mut io, config).unwrap();
    (disk, io, log)
}

fn append(io: &mut SimIo, log: &mut LocalLog, bytes: Bytes) -> Vec<i64> {
    let batch = RecordBatch::parse(&bytes).unwrap();
    let rolled = log.append(io, &batch, NOW).unwrap().rolled;
    rolled.iter().map(|base| base.get()).collect()
}

fn file(base: i64, kind: FileKind) -> PathBuf {
    file_path(Path::new(DIR), at(base), kind)
}

fn bases(log: &LocalLog) -> Vec<i64> {
    log.segments().map(|segment| segment.base_offset().get()).collect()
}

#[test]
fn a_segment_ends_by_size_and_a_larger_batch_is_taken_alone() {
    let (_disk, mut io, mut log) = fresh(small());
    assert_eq!(append(&mut io, &mut log, batch(0, 1, 5_000, 1)), [0; 0]);
    assert_eq!(append(&mut io, &mut log, batch(1, 1, 10, 1)), [1]);
    assert_eq!(append(&mut io, &mut log, batch(2, 1, 800, 1)), [0; 0]);
    assert_eq!(append(&mut io, &mut log, batch(3, 1, 800, 1)), [3]);
    assert_eq!(append(&mut io, &mut log, batch(9, 1, 5_000, 1)), [9]);
    let sizes: Vec<bool> = log.segments().map(|segment| segment.size() <= 1_000).collect();
    assert_eq!(sizes, [false, true, true, false]);
}

#[test]
fn a_segment_ends_by_the_time_in_its_batches() {
    let config = SegmentConfig { segment_ms: 1_000, ..SegmentConfig::default() };
    let (_disk, mut io, mut log) = fresh(config);
    assert_eq!(append(&mut io, &mut log, batch(0, 1, 10, 5_000)), [0; 0]);
    log.close(&mut io).unwrap();
    // The first timestamp is known again after opening.
    let mut log = open(&mut io, config).unwrap();
    assert_eq!(append(&mut io, &mut log, batch(1, 1, 10, 6_000)), [0; 0]);
    assert_eq!(append(&mut io, &mut log, batch(2, 1, 10, 6_001)), [2]);
    // A record from far away starts a segment, and what follows it is timed by it.
    assert_eq!(append(&mut io, &mut log, batch(3, 1, 10, i64::MAX)), [3]);
    assert_eq!(append(&mut io, &mut log, batch(4, 1, 10, 7_000)), [0; 0]);
    // Cut empty, a segment is timed by its next first batch.
    log.truncate_to(&mut io, at(3)).unwrap();
    assert_eq!(append(&mut io, &mut log, batch(3, 1, 10, 7_001)), [0; 0]);
    assert_eq!(append(&mut io, &mut log, batch(4, 1, 10, 8_002)), [4]);
}

#[test]
fn a_batch_without_timestamp_is_timed_by_the_clock() {
    let config = SegmentConfig { segment_ms: 1_000, ..SegmentConfig::default() };
    let (_disk, mut io, mut log) = fresh(config);
    let made = |base: i64| batch(base, 1, 10, -1);
    log.append_bytes(&mut io, made(0), TimestampMs::new(0)).unwrap();
    assert!(log.append_bytes(&mut io, made(1), TimestampMs::new(1_000)).unwrap().rolled.is_empty());
    assert_eq!(log.append_bytes(&mut io, made(2), TimestampMs::new(1_001)).unwrap().rolled, [at(2)]);
    assert_eq!(log.largest_timestamp(&mut io).unwrap(), None);
}

#[test]
fn a_segment_ends_when_an_index_is_full_and_no_index_file_is_larger() {
    let config =
        SegmentConfig { segment_index_bytes: 48, index_interval_bytes: 0, ..SegmentConfig::default() };
    let (disk, mut io, mut log) = fresh(config);
    let mut all = Vec::new();
    for base in 0..30 {
        all.extend_from_slice(&batch(base, 1, 10, base));
    }
    // Also where they come in one piece.
    assert!(!log.append_bytes(&mut io, all.into(), NOW).unwrap().rolled.is_empty());
    log.close(&mut io).unwrap();
    for path in disk.files() {
        let size = disk.read_file(&path).unwrap().len();
        assert!(path.extension().unwrap() == "log" || size <= 48, "{}: {size}", path.display());
    }
}

#[test]
fn an_offset_too_far_from_the_base_starts_a_segment() {
    let (_disk, mut io, mut log) = fresh(SegmentConfig::default());
    let far = i64::from(i32::MAX);
    assert_eq!(append(&mut io, &mut log, batch(0, 1, 10, 1)), [0; 0]);
    assert_eq!(append(&mut io, &mut log, batch(far, 1, 10, 1)), [0; 0]);
    assert_eq!(append(&mut io, &mut log, batch(far + 1, 1, 10, 1)), [far + 1]);
    assert_eq!(append(&mut io, &mut log, batch(3 * far, 1, 10, 1)), [3 * far]);
    // Also an empty first segment.
    log.truncate_fully_and_start_at(&mut io, at(7)).unwrap();
    assert_eq!(append(&mut io, &mut log, batch(8 + far, 1, 10, 1)), [8 + far]);
    assert_eq!(bases(&log), [7, 8 + far]);
    assert_eq!(log.read(&mut io, at(7), 1, at(i64::MAX), true).unwrap().first_base_offset, Some(at(8 + far)));
}

#[test]
fn a_segment_of_an_old_broker_with_offsets_too_far_from_its_base_opens_and_reads() {
    let disk = SimDisk::new(1);
    let far = 2_147_483_650;
    let bytes = [batch(0, 1, 300, 1), batch(far, 1, 300, 2), batch(far + 1, 2, 300, 3)].concat();
    disk.write_file(&file(0, FileKind::Log), &bytes);
    let mut io = disk.io();
    for rolled in [vec![far + 3], vec![]] {
        let mut log = open(&mut io, small()).unwrap();
        assert_eq!(log.log_end_offset(), at(far + 3));
        assert_eq!(log.read(&mut io, at(1), 1, at(far + 3), true).unwrap().first_base_offset, Some(at(far)));
        assert_eq!(
            log.read(&mut io, at(far + 2), 1, at(far + 3), true).unwrap().bytes,
            batch(far + 1, 2, 300, 3)
        );
        assert_eq!(append(&mut io, &mut log, batch(far + 3, 1, 10, 1)), rolled);
        log.truncate_to(&mut io, at(far + 3)).unwrap();
        log.close(&mut io).unwrap();
    }
}

#[test]
fn what_is_refused_changes_nothing() {
    let (disk, mut io, mut log) = fresh(small());
    append(&mut io, &mut log, batch(5, 2, 10, 1));
    let before = disk.contents();
    let refused = log.append_bytes(&mut io, batch(6, 1, 10, 1), NOW).unwrap_err();
    assert_eq!(refused.to_string(), "a batch with base offset 6 cannot be appended at log end offset 7");
    let twice = [batch(9, 1, 10, 1), batch(8, 1, 10, 1)].concat();
    assert!(matches!(log.append_bytes(&mut io, twice.into(), NOW), Err(SegmentError::NotMonotonic { .. })));
    let torn = batch(9, 1, 10, 1);
    let torn = [torn.clone(), torn.slice(..torn.len() - 1)].concat();
    assert!(log.append_bytes(&mut io, torn.into(), NOW).is_err());
    assert!(matches!(
        log.append_bytes(&mut io, Bytes::new(), NOW),
        Err(SegmentError::NotBatches { position: 0, .. })
    ));
    assert_eq!(disk.contents(), before);
    assert!(!log.has_failed());
    append(&mut io, &mut log, batch(7, 1, 10, 1));
    let outside = log.read(&mut io, at(9), 10, at(9), true).unwrap_err().to_string();
    assert_eq!(outside, "offset 9 is outside 0 to 8");
}

#[test]
fn bytes_behind_the_last_batch_are_said_and_nothing_is_appended_before_they_are_cut() {
    let whole = batch(0, 3, 50, 1);
    let next = batch(3, 1, 50, 1);
    for cut in 1..next.len() {
        let disk = SimDisk::new(1);
        disk.write_file(&file(0, FileKind::Log), &[&whole[..], &next[..cut]].concat());
        let mut io = disk.io();
        let mut log = open(&mut io, small()).unwrap();
        let tail = *log.tail().unwrap();
        let size = u64::try_from(whole.len() + cut).unwrap();
        assert_eq!((tail.position, tail.size), (u64::try_from(whole.len()).unwrap(), size), "{cut}");
        assert_eq!(log.log_end_offset(), at(3));
        assert!(matches!(log.append_bytes(&mut io, next.clone(), NOW), Err(SegmentError::Tail { .. })));
        assert!(log.roll(&mut io, None, NOW).is_err());
        assert_eq!(log.read(&mut io, at(0), 10_000, at(9), true).unwrap().bytes, whole);
        log.abandon(&mut io).unwrap();
        let mut log = recover(&mut io, small());
        assert_eq!(log.tail(), None);
        log.append_bytes(&mut io, next.clone(), NOW).unwrap();
        assert_eq!(batches(&mut io, &mut log).len(), 2);
    }
}

#[test]
fn a_corrupt_batch_below_the_end_is_an_error_that_says_where() {
    let (disk, mut io, mut log) = fresh(small());
    for base in 0..8 {
        append(&mut io, &mut log, batch(base, 1, 300, 1));
    }
    log.close(&mut io).unwrap();
    // The length field of the second batch of the first segment.
    let position = u64::try_from(batch(0, 1, 300, 1).len()).unwrap();
    disk.flip(&file(0, FileKind::Log), position + 8, 0x80);
    let mut log = open(&mut io, small()).unwrap();
    assert_eq!(log.read(&mut io, at(0), 1, at(8), true).unwrap().bytes, batch(0, 1, 300, 1));
    let error = log.read(&mut io, at(1), 1, at(8), true).unwrap_err();
    let expected = format!("{}: no valid batch at byte {position}", file(0, FileKind::Log).display());
    assert_eq!(error.to_string(), expected);
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(log.read(&mut io, at(3), 1, at(8), true).unwrap().bytes, batch(3, 1, 300, 1));
}

#[test]
fn what_a_removal_left_is_removed_and_nothing_else() {
    let (disk, mut io, mut log) = fresh(small());
    append(&mut io, &mut log, batch(0, 1, 10, 1));
    log.close(&mut io).unwrap();
    for name in [
        "00000000000000000050.log.deleted",
        "00000000000000000050.index",
        "00000000000000000060.timeindex",
        "00000000000000000060.txnindex.deleted",
        "00000000000000000060.log.cleaned",
    ] {
        disk.write_file(&Path::new(DIR).join(name), b"left");
    }
    for name in ["leader-epoch-checkpoint", "5.log", "00000000000000000060.snapshot", "notes.txt"] {
        disk.write_file(&Path::new(DIR).join(name), b"kept");
    }
    let log = open(&mut io, small()).unwrap();
    assert_eq!(bases(&log), [0]);
    let left: Vec<_> =
        disk.files().iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_string()).collect();
    assert_eq!(
        left,
        [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000060.snapshot",
            "5.log",
            "leader-epoch-checkpoint",
            "notes.txt",
        ]
    );
    disk.write_file(&Path::new(DIR).join("00000000000000000000.log.swap"), b"");
    assert!(matches!(open(&mut io, small()), Err(SegmentError::UnfinishedSwap { .. })));
}

fn aborted(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: ProducerId::new(producer).unwrap(),
        first_offset: at(first),
        last_offset: at(last),
        last_stable_offset: at(stable),
    }
}

#[test]
fn aborted_transactions_are_found_over_segments_and_cut_with_their_markers() {
    let (_disk, mut io, mut log) = fresh(small());
    let mut expected = Vec::new();
    for base in 0..12 {
        append(&mut io, &mut log, batch(base, 1, 300, 1));
        if base % 2 == 1 {
            let entry = aborted(base, base - 1, base, base + 1);
            log.append_aborted(&mut io, log.active().base_offset(), entry).unwrap();
            expected.push(entry);
        }
    }
    // Two that end at one barrier.
    append(&mut io, &mut log, batch(12, 1, 10, 1));
    for entry in [aborted(20, 3, 12, 4), aborted(21, 4, 12, 13)] {
        log.append_aborted(&mut io, log.active().base_offset(), entry).unwrap();
        expected.push(entry);
    }
    assert!(log.segments().len() > 3);
    let find = |io: &mut SimIo, log: &mut LocalLog, from: i64, end: i64| {
        log.aborted_in_range(io, at(from), at(end)).unwrap()
    };
    assert_eq!(find(&mut io, &mut log, 0, 100), expected);
    assert_eq!(find(&mut io, &mut log, 4, 6), [expected[2]]);
    assert_eq!(find(&mut io, &mut log, 12, 13), expected[6..]);
    log.close(&mut io).unwrap();
    let mut log = open(&mut io, small()).unwrap();
    assert_eq!(find(&mut io, &mut log, 0, 100), expected);
    log.truncate_to(&mut io, at(12)).unwrap();
    assert_eq!(find(&mut io, &mut log, 0, 100), expected[..6]);
    log.truncate_to(&mut io, at(5)).unwrap();
    assert_eq!(find(&mut io, &mut log, 0, 100), expected[..2]);
    log.close(&mut io).unwrap();
    let mut log = open(&mut io, small()).unwrap();
    assert_eq!(find(&mut io, &mut log, 0, 100), expected[..2]);
    // What a replay found takes the place of what was there.
    let base = log.active().base_offset();
    let mut index = TransactionIndex::new();
    assert!(index.append(aborted(9, 4, 4, 5)));
    replace_transactions(&mut io, &mut log, base, index.clone());
    assert_eq!(log.segment_transactions(&mut io, base).unwrap(), index);
    replace_transactions(&mut io, &mut log, base, TransactionIndex::new());
    log.append_aborted(&mut io, log.active().base_offset(), aborted(10, 4, 4, 5)).unwrap();
    assert_eq!(find(&mut io, &mut log, 4, 5), [aborted(10, 4, 4, 5)]);
}

#[test]
fn a_spoilt_transaction_index_is_named_and_keeps_nobody_from_opening() {
    let (disk, mut io, mut log) = fresh(small());
    append(&mut io, &mut log, batch(0, 2, 10, 1));
    log.append_aborted(&mut io, log.active().base_offset(), aborted(1, 0, 1, 2)).unwrap();
    log.close(&mut io).unwrap();
    disk.write_file(&file(0, FileKind::TransactionIndex), &[9; 40]);
    let mut log = open(&mut io, small()).unwrap();
    assert_eq!(log.read(&mut io, at(0), 1, at(2), true).unwrap().next_offset, at(2));
    let error = log.aborted_in_range(&mut io, at(0), at(2)).unwrap_err();
    assert!(matches!(error, SegmentError::TransactionIndex { .. }), "{error}");
    assert!(log.segment_transactions(&mut io, at(0)).is_err());
}

#[test]
fn a_cut_takes_the_index_files_away_before_the_bytes() {
    let (disk, mut io, mut log) = fresh(small());
    for base in 0..5 {
        append(&mut io, &mut log, batch(base, 1, 100, 1));
    }
    log.close(&mut io).unwrap();
    let mut log = open(&mut io, small()).unwrap();
    assert!(disk.read_file(&file(0, FileKind::OffsetIndex)).is_some());
    log.truncate_to(&mut io, at(2)).unwrap();
    assert!(disk.durable_file(&file(0, FileKind::OffsetIndex)).is_none());
    assert!(disk.durable_file(&file(0, FileKind::TimeIndex)).is_none());
    log.close(&mut io).unwrap();
    assert!(disk.durable_file(&file(0, FileKind::TimeIndex)).is_some());
}

#[test]
fn an_older_segment_is_synced_and_exact_before_its_successor_is_there() {
    let (disk, mut io, mut log) = fresh(small());
    append(&mut io, &mut log, batch(0, 1, 300, 1));
    // Preallocated space, as another backend will leave it.
    let log_file = log.log_file(&mut io, at(0)).unwrap();
    io.truncate(log_file, 65_536).unwrap();
    append(&mut io, &mut log, batch(1, 1, 900, 1));
    assert_eq!(bases(&log), [0, 1]);
    assert_eq!(disk.durable_file(&file(0, FileKind::Log)).unwrap(), batch(0, 1, 300, 1));
    let ledger = disk.ledger();
    let synced = ledger.iter().rposition(|entry| entry.path == file(0, FileKind::Log)).unwrap();
    let named = ledger.iter().rposition(|entry| entry.path == Path::new(DIR)).unwrap();
    assert!(synced < named);
}

#[test]
fn max_timestamp_is_the_first_batch_that_has_it() {
    let (_disk, mut io, mut log) = fresh(small());
    let mut builder = BatchBuilder::new();
    for timestamp in [5, 9, 7] {
        builder = builder.record(TimestampMs::new(timestamp), None, Some(&[0; 300]));
    }
    append(&mut io, &mut log, builder.build().unwrap().freeze());
    append(&mut io, &mut log, batch(3, 1, 500, 9));
    append(&mut io, &mut log, batch(4, 1, 500, 8));
    assert_eq!(log.segments().len(), 3);
    let found = log.batch_of_largest_timestamp(&mut io).unwrap().unwrap();
    assert_eq!((found.info.base_offset, found.info.max_timestamp), (at(0), TimestampMs::new(9)));
    let mut ask = |timestamp, from| {
        let found = log.batch_for_timestamp(&mut io, TimestampMs::new(timestamp), at(from)).unwrap();
        found.map(|found| found.info.base_offset.get())
    };
    // From within a batch, that one, wherever its matching record is.
    assert_eq!([ask(8, 0), ask(8, 2), ask(8, 3), ask(8, 4)], [Some(0), Some(0), Some(3), Some(4)]);
    assert_eq!([ask(9, 3), ask(9, 4), ask(10, 0)], [Some(3), None, None]);
}

#[test]
fn timestamps_2_4_6_8_are_found_as_kafka_finds_them() {
    let (_disk, mut io, mut log) = fresh(small());
    for (offset, timestamp) in [(0, 2), (1, 4), (2, 6), (3, 8)] {
        append(&mut io, &mut log, batch(offset, 1, 400, timestamp));
    }
    let mut ask = |timestamp| {
        let found = log.batch_for_timestamp(&mut io, TimestampMs::new(timestamp), at(0)).unwrap();
        found.map(|found| found.info.base_offset.get())
    };
    assert_eq!(
        [ask(3), ask(5), ask(7), ask(9), ask(2), ask(-1)],
        [Some(1), Some(2), Some(3), None, Some(0), Some(0)]
    );
}
