//! Any directory: a log is opened from whatever files the bytes stand for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use weir_format::{BatchBuilder, HEADER_SIZE, LeaderEpoch, Offset, TimestampMs, crc, frame_size};
use weir_recovery::{PartitionFile, RecoveryReport};
use weir_segment::SegmentConfig;
use weir_segment::io::sim::SimDisk;

use super::lives::Choices;
use crate::{AppendParams, Isolation, LogConfig, OffsetSpec, OpenOptions, UnifiedLog};

const DIR: &str = "/data/t-0";
const SIDE: &str = "/data.weir/t-0";

/// What a file may be called behind its twenty digits.
const SUFFIXES: [&str; 14] = [
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    ".log.swap",
    ".index.swap",
    ".timeindex.swap",
    ".txnindex.swap",
    ".log.cleaned",
    ".log.deleted",
    ".index.deleted",
    ".snapshot.tmp",
    ".checkpoint",
];

/// And what else may lie there.
const NAMES: [&str; 8] = [
    "leader-epoch-checkpoint",
    "partition.metadata",
    "leader-epoch-checkpoint.tmp",
    "5.log",
    "-0000000000000000001.log",
    "99999999999999999999.log",
    "00000000000000000000.log.",
    "something else",
];

/// Number of the name of the side file.
const PARTITION: usize = 255;

/// How the files are to be opened.
#[derive(Debug, Clone, Copy)]
struct Case {
    clean: bool,
    recovery_point: i64,
    log_start: i64,
    /// Batches and snapshots get the checksums that they should have, so that what lies behind them is reached.
    right_sums: bool,
    /// The side file names every snapshot.
    named: bool,
}

/// Reads a case and its files: two bytes, then for each file its offset (two bytes), the number of its suffix (one), its
/// size (two) and its bytes.
fn read_case(data: &[u8]) -> (Case, BTreeMap<PathBuf, Vec<u8>>) {
    let mut choices = Choices::new(data);
    let (flags, places) = (choices.below(256), choices.below(256));
    let place = |index: usize| [0, 1, 7, 50, 100, 250, 1_000, i64::MAX][index % 8];
    let case = Case {
        clean: flags & 1 == 1,
        right_sums: flags & 2 == 2,
        named: flags & 4 == 4,
        recovery_point: place(places),
        log_start: place(places / 8),
    };
    let mut rest = choices.take_rest();
    let mut files = BTreeMap::new();
    while let Some((head, behind)) = rest.split_first_chunk::<5>() {
        let base = match u16::from_be_bytes([head[0], head[1]]) {
            u16::MAX => i64::MAX,
            0xff00.. => i64::MAX - i64::from(head[1]),
            base => i64::from(base),
        };
        let number = usize::from(head[2]);
        let path = match number {
            PARTITION => Path::new(SIDE).join("partition"),
            number if number < 200 => {
                Path::new(DIR).join(format!("{base:020}{}", SUFFIXES[number % SUFFIXES.len()]))
            }
            number => Path::new(DIR).join(NAMES[number % NAMES.len()]),
        };
        let size = usize::from(u16::from_be_bytes([head[3], head[4]])).min(behind.len());
        let (bytes, behind) = behind.split_at(size);
        files.insert(path, bytes.to_vec());
        rest = behind;
    }
    if case.right_sums {
        files.iter_mut().for_each(|(path, bytes)| set_sums(path, bytes));
    }
    if case.named {
        let mut file = PartitionFile::new(Offset::MAX);
        for (path, bytes) in files.iter().filter(|(path, _)| has(path, ".snapshot")) {
            let digits = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
            if let Some(at) = digits.and_then(Offset::new) {
                file.note_snapshot(at, weir_recovery::partition_file::crc32c(bytes));
            }
        }
        files.insert(Path::new(SIDE).join("partition"), file.encode());
    }
    (case, files)
}

fn has(path: &Path, suffix: &str) -> bool {
    path.to_str().is_some_and(|name| name.ends_with(suffix))
}

/// Makes the checksums of whatever looks like a batch or a snapshot right.
fn set_sums(path: &Path, bytes: &mut [u8]) {
    if has(path, ".snapshot") && bytes.len() >= 10 {
        let sum = weir_recovery::partition_file::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&sum.to_be_bytes());
    }
    if !has(path, ".log") && !has(path, ".log.swap") {
        return;
    }
    let mut rest = bytes;
    while rest.len() >= HEADER_SIZE {
        let Ok(Some(size)) = frame_size(rest) else { return };
        if size > rest.len() {
            return;
        }
        let (batch, behind) = rest.split_at_mut(size);
        let sum = crc::batch_crc(batch);
        batch[17..21].copy_from_slice(&sum.to_be_bytes());
        rest = behind;
    }
}

/// What is compared between two loads.
#[derive(Debug, PartialEq)]
struct Facts {
    end: Offset,
    view: crate::LogView,
    epochs: Vec<weir_recovery::EpochEntry>,
    aborted: Vec<weir_segment::AbortedTransaction>,
    open: Vec<weir_psm::OpenTransaction>,
    snapshot: Vec<u8>,
    last_batch: Option<crate::LastBatch>,
}

fn facts(io: &mut dyn weir_segment::io::Io, log: &mut UnifiedLog) -> Facts {
    let mut aborted = Vec::new();
    for segment in log.segments() {
        aborted.extend(log.segment_transactions(io, segment.base_offset).unwrap());
    }
    Facts {
        end: log.log_end_offset(),
        view: *log.view(),
        epochs: log.epochs().entries().to_vec(),
        aborted,
        open: log.open_transactions(),
        snapshot: log.producer_state().snapshot(),
        last_batch: log.last_batch(),
    }
}

fn config() -> LogConfig {
    let segment =
        SegmentConfig { segment_bytes: 4_000, index_interval_bytes: 200, ..SegmentConfig::default() };
    LogConfig { segment, ..LogConfig::default() }
}

fn open(disk: &SimDisk, case: &Case) -> Option<(weir_segment::io::sim::SimIo, UnifiedLog, RecoveryReport)> {
    let options = OpenOptions {
        side_dir: SIDE.into(),
        clean_shutdown: case.clean,
        recovery_point: Offset::new(case.recovery_point).unwrap(),
        log_start_offset: Offset::new(case.log_start).unwrap(),
        now: TimestampMs::new(1_767_225_600_000),
    };
    let mut io = disk.io();
    match UnifiedLog::open(&mut io, Path::new(DIR), config(), options) {
        Ok((log, report)) => Some((io, log, report)),
        Err(error) => {
            // Whoever is on call reads it.
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// Opens it twice: the second time nothing is cut, no byte changes, and the same is known (R5).
fn check_twice(disk: &SimDisk, case: &Case) -> Option<Facts> {
    let (mut io, mut log, first) = open(disk, case)?;
    let known = facts(&mut io, &mut log);
    drop((io, log));
    let files = disk.contents();
    let (mut io, mut log, second) = open(disk, case).expect("what was opened once is opened again");
    assert_eq!(facts(&mut io, &mut log), known);
    assert_eq!(second.cuts, [], "cut first: {:?}", first.cuts);
    drop((io, log));
    assert_eq!(disk.contents(), files, "not a byte of any file");
    for cut in &first.cuts {
        if let Some(archive) = cut.kind.archive() {
            assert_eq!(disk.read_file(archive).unwrap().len() as u64, cut.size);
        }
    }
    Some(known)
}

/// Any bytes as the files of a partition's directory: the log is opened or refused; what was opened is opened again and
/// nothing changes; it answers what it is asked and goes on (R5, R7).
pub fn check_directory(data: &[u8]) {
    let (case, files) = read_case(data);
    let disk = SimDisk::new(1);
    for (path, bytes) in &files {
        disk.write_file(path, bytes);
    }
    let bare = disk.fork();
    for path in files.keys().filter(|path| !has(path, ".log")) {
        bare.remove_file(path);
    }
    check_twice(&bare, &Case { clean: false, ..case });
    let Some(known) = check_twice(&disk, &case) else { return };
    let (mut io, mut log, _) = open(&disk, &case).expect("it was opened before");
    let (start, end) = (known.view.log_start_offset, known.end);
    assert!(start <= known.view.last_stable_offset && known.view.last_stable_offset <= end);
    for isolation in [Isolation::Uncommitted, Isolation::Committed] {
        for from in [start.get(), start.get() / 2 + end.get() / 2, end.get()] {
            let _read = log.read(&mut io, Offset::new(from).unwrap(), 5_000, isolation, true);
        }
        for spec in
            [OffsetSpec::Earliest, OffsetSpec::MaxTimestamp, OffsetSpec::Timestamp(TimestampMs::new(5))]
        {
            let _found = log.offset_for(&mut io, spec, isolation);
        }
    }
    if end.get() > i64::MAX - 10 {
        return;
    }
    let newest = log.latest_epoch().map_or(0, LeaderEpoch::get);
    let epoch = LeaderEpoch::new(newest).unwrap();
    let now = TimestampMs::new(1_767_225_600_000);
    let more: BytesMut = BatchBuilder::new().record(now, None, Some(b"more")).build().unwrap();
    let appended = log.append(&mut io, more, &AppendParams::client(epoch, now)).unwrap();
    assert_eq!(appended.base_offset, end);
    log.append(&mut io, BatchBuilder::barrier(now), &AppendParams::coordinator(epoch, now)).unwrap();
    assert_eq!(log.producers().count(), 0);
    log.close(&mut io).unwrap();
    let after = Case { clean: true, ..case };
    let (mut io, mut log, _) = open(&disk, &after).expect("what was closed is opened");
    assert_eq!(log.log_end_offset().get(), end.get() + 2);
    assert_eq!(log.producers().count(), 0);
    log.truncate_to(&mut io, end).unwrap();
    assert_eq!(log.log_end_offset(), end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        let data =
            [&[7, 9][..], &[0, 3, 0, 0, 2], b"ab", &[0xff, 0xff, 4, 0, 1], b"c", &[0, 0, 255, 0, 9], b"x"];
        let (case, files) = read_case(&data.concat());
        assert!(case.clean && case.right_sums && case.named);
        assert_eq!((case.recovery_point, case.log_start), (1, 1));
        let names: Vec<&str> = files.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "/data/t-0/00000000000000000003.log",
                "/data/t-0/09223372036854775807.snapshot",
                "/data.weir/t-0/partition"
            ]
        );
        assert_eq!(files[Path::new("/data/t-0/00000000000000000003.log")], b"ab");
    }
}
