//! `weir inspect` on everything that Kafka wrote, on weir's own directories, and on directories that hold anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use serde_json::Value;
use weir_format::{
    BatchBuilder, ControlRecordType, MirrorPidReset, Offset, ProducerEpoch, ProducerId, Sequence,
    TimestampMs, set_base_offset,
};
use weir_node::cli::inspect::files::{DiskFiles, MemoryFiles};
use weir_node::cli::inspect::fuzzing;
use weir_node::cli::inspect::report::{Code, IndexState, PartitionReport, Verdict};
use weir_node::cli::inspect::{Inspect, Inspection, Outcome, Piece, Printer, Watch, look};
use weir_psm::PsmConfig;
use weir_recovery::{LogLoader, RecoveryConfig};
use weir_segment::SegmentConfig;
use weir_segment::io::sim::SimDisk;

use crate::golden::{Golden, names, tree};
use crate::support::{Process, TestNode, batch};

/// Of what Kafka wrote; the clock of an age.
const NOW: i64 = 1_795_990_000_000;

fn offset(offset: i64) -> Offset {
    Offset::new(offset).unwrap()
}

/// Looks at a path of the real disk: pieces, text, JSON, and what it came to.
fn looked(path: &Path, all: bool) -> (Vec<Piece>, String, Value, Outcome) {
    let stop = AtomicBool::new(false);
    let inspection = Inspection {
        files: &DiskFiles,
        watch: Watch { stop: &stop, progress: &|_| {} },
        now: TimestampMs::new(NOW),
        wait_for_writer: &|| false,
    };
    let (mut pieces, mut printed, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
    for json in [false, true] {
        let arguments = Inspect { path: path.to_path_buf(), json, all, html: None };
        let mut out = Vec::new();
        let mut printer = Printer::new(&arguments, &mut out);
        pieces = Vec::new();
        let outcome = look(&inspection, path, &mut |piece| {
            pieces.push(piece.clone());
            printer.piece(piece)
        });
        let outcome = outcome.unwrap();
        printer.finish(&outcome).unwrap();
        printed.push(String::from_utf8(out).unwrap());
        outcomes.push(outcome);
    }
    assert_eq!(outcomes[0], outcomes[1]);
    let json = serde_json::from_str(&printed[1]).unwrap();
    (pieces, printed.swap_remove(0), json, outcomes[0])
}

pub(crate) fn partition(path: &Path) -> PartitionReport {
    let (pieces, ..) = looked(path, false);
    pieces
        .into_iter()
        .find_map(|piece| match piece {
            Piece::Partition(report) => Some(*report),
            _ => None,
        })
        .expect("a partition")
}

fn weir(arguments: &[&str], path: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).arg(path).output().unwrap()
}

/// A log directory with one of what Kafka wrote, and the partition's directory in it.
fn golden(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let log_dir = folder.path().join("data");
    fs::create_dir(&log_dir).unwrap();
    let dir = Golden::read(name).write_into(&log_dir);
    (folder, dir)
}

/// A partition's directory `t-0` with these segments.
fn written(segments: &[(i64, Vec<u8>)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data/t-0");
    fs::create_dir_all(&dir).unwrap();
    for (base, bytes) in segments {
        fs::write(dir.join(format!("{base:020}.log")), bytes).unwrap();
    }
    (folder, dir)
}

fn data(base: i64, producer: i64, sequence: i32, is_transactional: bool) -> Vec<u8> {
    let id = ProducerId::new(producer).unwrap();
    let mut builder = BatchBuilder::new().producer(id, ProducerEpoch::ZERO, Sequence::new(sequence));
    if is_transactional {
        builder = builder.transactional();
    }
    at(base, &builder.record(TimestampMs::new(NOW - 3_600_000), None, Some(b"v")).build().unwrap())
}

fn at(base: i64, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    set_base_offset(&mut bytes, offset(base)).unwrap();
    bytes
}

fn has(report: &PartitionReport, code: Code) -> bool {
    report.findings.iter().any(|finding| finding.code == code)
}

#[test]
fn what_an_inspection_says_of_every_directory_that_kafka_wrote_is_what_a_start_does() {
    for name in names() {
        let golden = Golden::read(&name);
        for rebuilt in [false, true] {
            let mut golden = golden.clone();
            if rebuilt {
                golden.files.retain(|name, _| name.ends_with(".log") || name == "partition.metadata");
                (golden.clean_shutdown, golden.recovery_point) = (false, 0);
            }
            let folder = tempfile::tempdir().unwrap();
            let dir = golden.write_into(folder.path());
            let said = partition(&dir);
            let disk = SimDisk::new(1);
            for (name, bytes) in &golden.files {
                disk.write_file(&dir.join(name), bytes);
            }
            let config = RecoveryConfig {
                segment: SegmentConfig::default(),
                psm: PsmConfig::default(),
                clean_shutdown: golden.clean_shutdown,
                recovery_point: offset(golden.recovery_point.max(0)),
                log_start_offset: offset(golden.log_start.max(0)),
                side_dir: "/side".into(),
                now: TimestampMs::new(NOW),
            };
            eprintln!("{name}, rebuilt: {rebuilt}");
            fuzzing::compare(&said, LogLoader::load(&mut disk.io(), &dir, &config));
        }
    }
}

/// What is wrong with those that are not healthy, by name; all others are healthy.
const NOT_HEALTHY: &[(&str, Verdict, Option<Code>)] = &[
    ("bitflip-active", Verdict::Corrupt, Some(Code::Corrupt)),
    ("bitflip-clean", Verdict::Corrupt, Some(Code::Corrupt)),
    ("bitflip-sealed", Verdict::Corrupt, Some(Code::Corrupt)),
    ("bitflip-sealed-unseen", Verdict::Corrupt, Some(Code::Corrupt)),
    ("garbage-tail", Verdict::WouldCut, Some(Code::TornTail)),
    ("short-tail", Verdict::WouldCut, Some(Code::TornTail)),
    // What is torn here was acknowledged.
    ("torn-body", Verdict::Incomplete, Some(Code::BelowHighWatermark)),
    ("torn-header", Verdict::Incomplete, Some(Code::BelowHighWatermark)),
    ("torn-length", Verdict::Incomplete, Some(Code::BelowHighWatermark)),
];

#[test]
fn the_verdict_of_everything_that_kafka_wrote() {
    for name in names() {
        let (_folder, dir) = golden(&name);
        let report = partition(&dir);
        let expected = NOT_HEALTHY.iter().find(|(other, ..)| *other == name);
        let (verdict, code) =
            expected.map_or((Verdict::Healthy, None), |(_, verdict, code)| (*verdict, *code));
        assert_eq!(report.verdict, verdict, "{name}: {:#?}", report.findings);
        if let Some(code) = code {
            assert_eq!(report.findings[0].code, code, "{name}: the worst comes first");
        }
        let output = weir(&["inspect"], &dir);
        let exit = if verdict == Verdict::Healthy { 0 } else { 10 };
        assert_eq!(output.status.code(), Some(exit), "{name}");
        let text = String::from_utf8(output.stdout).unwrap();
        let first = text.lines().next().unwrap();
        let title = report.title();
        assert!(first.starts_with(&format!("{title}: {}", verdict.words())), "{first}");
    }
}

#[test]
fn a_cut_below_the_high_watermark_is_not_said_to_lose_nothing() {
    for (name, is_below) in [("torn-body", true), ("garbage-tail", false)] {
        let (_folder, dir) = golden(name);
        let (_, text, json, _) = looked(&dir, false);
        assert_eq!(text.contains("nothing acknowledged is in them"), !is_below, "{text}");
        assert_eq!(
            text.contains("below its high watermark 179: offsets that were once acknowledged"),
            is_below,
            "{text}"
        );
        let codes: Vec<_> =
            json["items"][0]["findings"].as_array().unwrap().iter().map(|f| &f["code"]).collect();
        assert_eq!(codes.contains(&&"belowHighWatermark".into()), is_below, "{codes:?}");
    }
}

#[test]
fn corruption_is_explained_with_a_command_to_copy() {
    let (_folder, dir) = golden("bitflip-active");
    let (_, text, json, outcome) = looked(&dir, false);
    let expected = "bitflip-active-0: corrupt: 00000000000000000224.log is not valid at byte 1328, where offset 231 is \
                    expected\n\x20 cause       crc 3e88dfa2 of the batch at offset 231 differs from its field, ";
    let (first, rest) = text.split_at(expected.len().min(text.len()));
    let shape = |text: &str| text.replace(|c: char| c.is_ascii_hexdigit(), "#");
    assert_eq!(shape(first), shape(expected), "{text}");
    assert!(rest.contains(" (not a torn tail: valid batches lie behind it)\n"), "{text}");
    assert!(!text.contains("note "), "nothing else is wrong: {text}");
    assert!(text.contains("  behind it   offsets 231..240, which a start does not serve\n"), "{text}");
    let remedy = format!("weir recover {} --accept-cut 231", dir.display());
    assert!(text.contains(&format!("  remedy      {remedy}\n")), "{text}");
    let finding = &json["items"][0]["findings"][0];
    assert_eq!((&finding["code"], &finding["remedy"]), (&"corrupt".into(), &remedy.into()));
    assert_eq!(finding["offsets"], serde_json::json!({ "from": 231, "end": 240 }));
    assert_eq!(outcome.exit_code(), 10);
    // Behind it is counted, and is not part of the log that a start would serve.
    let item = &json["items"][0];
    assert_eq!((&item["logEndOffset"], &item["segments"][2]["endOffset"]), (&231.into(), &240.into()));
}

#[test]
fn a_barrier_and_what_ended_at_it_is_told() {
    // A producer, an open transaction of another, then the barrier, then both ids again.
    let barrier = at(3, &MirrorPidReset::build(TimestampMs::new(NOW)));
    let bytes =
        [data(0, 5, 0, false), data(1, 6, 0, true), data(2, 7, 0, true), barrier, data(4, 5, 0, false)]
            .concat();
    let (_folder, dir) = written(&[(0, bytes)]);
    let report = partition(&dir);
    let met = &report.control.barriers[0];
    assert_eq!((met.offset, met.producers_expired, met.leader_epoch), (3, Some(3), Some(0)));
    assert_eq!(met.transactions_aborted, [(6, 1), (7, 2)]);
    assert_eq!(met.transactions_aborted_count, Some(2));
    assert_eq!((report.producers.count, report.producers.open_count), (1, 0));
    assert_eq!(report.producers.last_stable_offset, 5);
    let (_, text, json, _) = looked(&dir, false);
    let line = "  3: MIRROR_PID_RESET, leader epoch 0, 2026-11-29T22:06:40.000Z, value version 0, 3 producers forgotten, \
                2 open transactions aborted (producer 6 from 1, producer 7 from 2)\n";
    assert!(text.contains(line), "{text}");
    let told = &json["items"][0]["controlRecords"]["barriers"][0];
    assert_eq!((&told["producersExpired"], &told["control"]["value"]["version"]), (&3.into(), &0.into()));

    let (_folder, dir) = golden("barrier-unclean");
    let report = partition(&dir);
    let offsets: Vec<i64> = report.control.barriers.iter().map(|barrier| barrier.offset).collect();
    assert_eq!(offsets, [31, 53]);
    assert!(report.control.barriers[0].text.contains("of source cluster "), "{:?}", report.control.barriers);
}

#[test]
fn markers_are_told_with_their_coordinator_epochs_and_the_transactions_that_they_ended() {
    let marker = |base, kind, epoch: i32| {
        let id = ProducerId::new(6).unwrap();
        let value = [&[0, 0][..], &epoch.to_be_bytes()].concat();
        let builder = BatchBuilder::new().producer(id, ProducerEpoch::ZERO, None).transactional();
        at(base, &builder.control_record(TimestampMs::new(NOW), kind, &value).build().unwrap())
    };
    let bytes = [
        data(0, 6, 0, true),
        marker(1, ControlRecordType::Commit, 9),
        data(2, 6, 1, true),
        marker(3, ControlRecordType::Abort, -1),
    ]
    .concat();
    let (_folder, dir) = written(&[(0, bytes)]);
    let (_, text, json, _) = looked(&dir, false);
    for line in [
        "  1: endTxnMarker: COMMIT coordinatorEpoch: 9, producer 6 epoch 0, transaction from 0, ",
        "  3: endTxnMarker: ABORT coordinatorEpoch: -1, producer 6 epoch 0, transaction from 2, ",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let others = &json["items"][0]["controlRecords"]["others"];
    assert_eq!((&others[0]["control"]["coordinatorEpoch"], &others[0]["producerId"]), (&9.into(), &6.into()));
    assert_eq!(others[1]["control"].get("coordinatorEpoch"), None, "unknown is absent");
    assert_eq!(
        (&others[0]["transactionFirstOffset"], &others[1]["transactionFirstOffset"]),
        (&0.into(), &2.into())
    );
}

#[test]
fn open_transactions_are_told_with_their_age() {
    let bytes = [data(0, 6, 0, true), data(1, 7, 0, true), data(2, 6, 1, true)].concat();
    let (_folder, dir) = written(&[(0, bytes)]);
    let report = partition(&dir);
    let open: Vec<_> =
        report.producers.open.iter().map(|open| (open.producer_id, open.first_offset, open.age_ms)).collect();
    assert_eq!(open, [(6, 0, Some(3_600_000)), (7, 1, Some(3_600_000))]);
    assert_eq!(report.producers.last_stable_offset, 0);
    let (_, text, ..) = looked(&dir, false);
    assert!(
        text.contains(
            "  open: producer 6 epoch 0 from offset 0, begun 2026-11-29T21:06:40.000Z (60 min ago)\n"
        ),
        "{text}"
    );
}

#[test]
fn leader_epochs_are_told_also_those_without_a_batch() {
    let (_folder, dir) = golden("leader-epochs-empty-last");
    let epochs: Vec<_> = partition(&dir)
        .epochs
        .iter()
        .map(|epoch| (epoch.epoch, epoch.start_offset, epoch.has_batches))
        .collect();
    assert_eq!(epochs, [(0, 0, true), (2, 30, true), (6, 60, true), (8, 90, false)]);
    let (_, text, ..) = looked(&dir, false);
    assert!(text.contains("0 from 0, 2 from 30, 6 from 60, 8 from 90 (no batch)\n"), "{text}");
    // Without the checkpoint, and with one that the log contradicts.
    let checkpoint = dir.join("leader-epoch-checkpoint");
    fs::write(&checkpoint, "0\n2\n0 0\n2 31\n").unwrap();
    assert!(has(&partition(&dir), Code::LeaderEpochs));
    fs::remove_file(&checkpoint).unwrap();
    let report = partition(&dir);
    assert!(has(&report, Code::LeaderEpochs));
    assert!(report.epochs.iter().all(|epoch| !epoch.in_checkpoint && epoch.has_batches));
    assert_eq!(report.verdict, Verdict::Healthy, "a start mends it");
}

#[test]
fn indexes_are_held_against_the_log() {
    let (_folder, dir) = golden("txn-tv2");
    let report = partition(&dir);
    let good = |state: &IndexState| matches!(state, IndexState::Good { .. } | IndexState::Absent);
    for segment in &report.segments {
        assert!(good(&segment.offset_index) && good(&segment.time_index), "{segment:?}");
        assert!(good(&segment.transaction_index), "{segment:?}");
    }
    assert!(report.segments.iter().any(
        |segment| matches!(segment.transaction_index, IndexState::Good { entry_count, .. } if entry_count > 0)
    ));
    let name = |kind: &str| {
        let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let mut names: Vec<_> =
            names.filter(|path| path.extension().is_some_and(|end| end == kind)).collect();
        names.sort();
        names.into_iter().find(|path| fs::metadata(path).unwrap().len() > 0).unwrap()
    };
    for (kind, code) in
        [("index", Code::Index), ("timeindex", Code::Index), ("txnindex", Code::TransactionIndex)]
    {
        let path = name(kind);
        let right = fs::read(&path).unwrap();
        let mut wrong = right.clone();
        // The position, the timestamp's high byte, the first offset: each stays an index, of another log.
        let byte = match kind {
            "index" => 7,
            "timeindex" => wrong.len() - 12,
            _ => 17,
        };
        wrong[byte] ^= 1;
        fs::write(&path, &wrong).unwrap();
        let report = partition(&dir);
        assert!(has(&report, code), "{kind}: {report:#?}");
        assert_eq!(report.verdict, Verdict::Healthy, "a start mends it");
        fs::write(&path, &right).unwrap();
        assert!(!has(&partition(&dir), code), "{kind}");
    }
}

#[test]
fn gaps_are_counted_and_a_gap_between_segments_is_a_finding() {
    let (_folder, dir) =
        written(&[(0, [data(0, 5, 0, false), data(4, 5, 1, false)].concat()), (9, data(9, 5, 2, false))]);
    let report = partition(&dir);
    assert_eq!((report.gap_count, report.gap_offset_count), (2, 7));
    assert_eq!(report.gaps.iter().map(|gap| (gap.from, gap.end)).collect::<Vec<_>>(), [(1, 4), (5, 9)]);
    assert!(has(&report, Code::SegmentGap));
    let (_folder, dir) = golden("compacted");
    let report = partition(&dir);
    assert!(report.gap_count > 0 && report.verdict == Verdict::Healthy);
}

/// A write that did not land, and one behind it that did.
#[test]
fn a_hole_is_told_with_what_a_start_would_put_aside() {
    let value = vec![7; 3000];
    let big = |base| {
        let batch = BatchBuilder::new().record(TimestampMs::new(1), None, Some(&value)).build().unwrap();
        at(base, &batch)
    };
    let mut bytes = [big(0), big(1), big(2)].concat();
    let size = bytes.len() / 3;
    bytes[size..size * 2].fill(0);
    let (_folder, dir) = written(&[(0, bytes.clone())]);
    let report = partition(&dir);
    assert_eq!((report.verdict, report.cut_size), (Verdict::WouldCut, (2 * size) as u64));
    assert_eq!(report.findings[0].code, Code::Hole);
    assert_eq!(report.findings[0].offsets, Some((2, 3)));
    assert_eq!(report.log_end_offset, 1);
    // The same below the recovery point is corruption.
    fs::write(dir.parent().unwrap().join("recovery-point-offset-checkpoint"), "0\n1\nt 0 3\n").unwrap();
    let report = partition(&dir);
    assert_eq!((report.verdict, report.recovery_point), (Verdict::Corrupt, Some(3)));
}

#[test]
fn what_is_missing_below_the_recovery_point_is_said() {
    let (_folder, dir) = written(&[(0, data(0, 5, 0, false))]);
    fs::write(dir.parent().unwrap().join("recovery-point-offset-checkpoint"), "0\n1\nt 0 8\n").unwrap();
    fs::write(dir.parent().unwrap().join("log-start-offset-checkpoint"), "0\n1\nt 0 4\n").unwrap();
    let report = partition(&dir);
    assert_eq!(report.verdict, Verdict::Incomplete);
    assert!(has(&report, Code::BelowRecoveryPoint) && has(&report, Code::LogStartAboveEnd));
    assert_eq!(
        report.findings.iter().find(|finding| finding.code == Code::BelowRecoveryPoint).unwrap().offsets,
        Some((1, 8))
    );
}

/// Its successor's first byte was written behind a sync of all of it.
#[test]
fn a_torn_end_of_a_sealed_segment_is_corruption_and_of_the_last_one_is_not() {
    let torn = |base| data(base, 5, 0, false)[..40].to_vec();
    let (_folder, dir) = written(&[
        (0, [data(0, 5, 0, false), torn(1)].concat()),
        (2, [data(2, 5, 2, false), torn(3)].concat()),
    ]);
    let report = partition(&dir);
    let codes: Vec<_> =
        report.findings.iter().filter(|f| f.size.is_some()).map(|f| (f.code, f.size)).collect();
    assert_eq!(codes, [(Code::Corrupt, Some(40)), (Code::TornTail, Some(40))], "{:#?}", report.findings);
    assert_eq!((report.verdict, report.log_end_offset), (Verdict::Corrupt, 1));
    fs::write(dir.join(format!("{:020}.log", 0)), data(0, 5, 0, false)).unwrap();
    let report = partition(&dir);
    assert_eq!((report.verdict, report.cut_size, report.log_end_offset), (Verdict::WouldCut, 40, 3));
}

/// Also behind what is corrupt: three places in two segments, and the batches between them are counted.
#[test]
fn the_walk_goes_on_behind_what_is_corrupt() {
    let batches = |from: i64| (from..from + 5).map(|base| data(base, 5, i32::try_from(base).unwrap(), false));
    let mut first: Vec<u8> = batches(0).flatten().collect();
    let mut second: Vec<u8> = batches(5).flatten().collect();
    let size = first.len() / 5;
    first[size + 65] ^= 1;
    first[3 * size + 65] ^= 1;
    second[size + 65] ^= 1;
    let (_folder, dir) = written(&[(0, first), (5, second)]);
    let report = partition(&dir);
    let places: Vec<_> = report.findings.iter().filter(|finding| finding.code == Code::Corrupt).collect();
    assert_eq!(places.len(), 3, "{places:#?}");
    assert_eq!(report.segments.iter().map(|segment| segment.batch_count).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((report.log_end_offset, report.producers.at, report.producers.count), (1, 1, 1));
    let remedies: Vec<_> = places.iter().filter_map(|place| place.remedy.as_deref()).collect();
    assert_eq!(
        remedies,
        [format!("weir recover {} --accept-cut 1", dir.display())],
        "one cut mends all of them"
    );
    assert_eq!(places[0].offsets, Some((1, 10)));
}

/// A batch of four MiB is read in pieces, and is the same as any other.
#[test]
fn a_long_batch_is_looked_at_in_a_mib() {
    let value = vec![7; 4 << 20];
    let long = BatchBuilder::new()
        .producer(ProducerId::new(8).unwrap(), ProducerEpoch::ZERO, Sequence::new(3))
        .record(TimestampMs::new(5), None, Some(&value))
        .build()
        .unwrap();
    let bytes = [data(0, 5, 0, false), at(1, &long), data(2, 5, 1, false)].concat();
    let (_folder, dir) = written(&[(0, bytes.clone())]);
    let report = partition(&dir);
    assert_eq!((report.verdict, report.batch_count(), report.record_count()), (Verdict::Healthy, 3, Some(3)));
    assert_eq!((report.producers.count, report.log_end_offset), (2, 3));
    assert_eq!(report.producers.some[1].last_sequence, Some(3));
    // A bit of it far behind what is held of it.
    let mut bytes = bytes;
    bytes[3 << 20] ^= 1;
    let (_folder, dir) = written(&[(0, bytes)]);
    let report = partition(&dir);
    assert_eq!((report.verdict, report.log_end_offset), (Verdict::Corrupt, 1));
}

#[test]
fn an_inspection_that_is_ended_says_what_it_saw() {
    let bytes: Vec<u8> =
        (0..200).flat_map(|base| data(base, 5, i32::try_from(base).unwrap(), false)).collect();
    let segments: Vec<_> = (0..4)
        .map(|place| {
            let bytes: Vec<u8> = (0..200).flat_map(|base| data(place * 200 + base, 5, 0, false)).collect();
            (place * 200, bytes)
        })
        .collect();
    assert_eq!(bytes.len(), segments[0].1.len());
    let files = segments
        .iter()
        .map(|(base, bytes)| (PathBuf::from(format!("/data/t-0/{base:020}.log")), bytes.clone()));
    let files = MemoryFiles { files: files.collect(), held: false };
    let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = |size| {
        if read.fetch_add(size, Ordering::Relaxed) >= bytes.len() as u64 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let inspection = Inspection {
        files: &files,
        watch: Watch { stop: &stop, progress: &progress },
        now: TimestampMs::new(NOW),
        wait_for_writer: &|| false,
    };
    let arguments = Inspect { path: "/data/t-0".into(), json: false, all: false, html: None };
    let mut out = Vec::new();
    let mut printer = Printer::new(&arguments, &mut out);
    let mut reports = Vec::new();
    let outcome = look(&inspection, &arguments.path, &mut |piece| {
        reports.push(piece.clone());
        printer.piece(piece)
    });
    let outcome = outcome.unwrap();
    printer.finish(&outcome).unwrap();
    assert_eq!((outcome.complete, outcome.exit_code()), (false, 130));
    let Piece::Partition(report) = &reports[0] else { panic!("a partition") };
    assert!((200..600).contains(&report.log_end_offset), "{report:?}");
    assert_eq!(report.producers.count, 1);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("t-0: interrupted, so far: nothing wrong\n"), "{text}");
}

#[test]
fn nothing_is_changed_and_no_lock_is_taken() {
    for name in ["bitflip-active", "torn-body", "kill9-prealloc", "snapshot-bad-crc", "no-indexes", "barrier"]
    {
        let (folder, dir) = golden(name);
        let before = tree(folder.path());
        for arguments in [
            &["inspect"][..],
            &["inspect", "--json"],
            &["dump-log"],
            &["recover", "--dry-run", "--accept-cut", "0"],
        ] {
            weir(arguments, &dir);
        }
        weir(&["inspect"], dir.parent().unwrap());
        assert_eq!(tree(folder.path()), before, "{name}");
    }
}

#[test]
fn paths_that_are_nothing_to_look_at_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("empty")).unwrap();
    fs::create_dir(path("other")).unwrap();
    fs::write(path("other/notes.txt"), "x").unwrap();
    fs::create_dir_all(path("data/t-0")).unwrap();
    fs::create_dir(path("data.weir")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let rows = [
        ("nowhere", "is not there", "check the path; is the disk mounted?"),
        ("empty", "holds nothing that Kafka or weir writes", "it is empty"),
        ("other", "holds nothing that Kafka or weir writes", "give a partition's directory"),
        ("data.weir", "is weir's own directory beside ", "look at both with weir inspect "),
        ("pipe", "is neither a directory nor a file", "give a partition's directory"),
    ];
    for (name, error, help) in rows {
        let output = weir(&["inspect"], &path(name));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(error) && said.contains(&format!("help: {help}")), "{said}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(weir(&["inspect", "--nonsense"], &path("empty")).status.code(), Some(2));
}

#[test]
fn a_log_directory_is_a_table_with_the_worst_first() {
    let folder = tempfile::tempdir().unwrap();
    let log_dir = folder.path().join("data");
    fs::create_dir(&log_dir).unwrap();
    for name in ["plain", "bitflip-active", "txn-open"] {
        let mut golden = Golden::read(name);
        if name == "bitflip-active" {
            // The last by name.
            golden.partition.topic = "zeta".to_owned();
        }
        (golden.recovery_point, golden.log_start, golden.high_watermark) = (-1, -1, -1);
        golden.write_into(&log_dir);
    }
    fs::create_dir(log_dir.join("gone-0.0123456789abcdef0123456789abcdef-delete")).unwrap();
    fs::write(log_dir.join("meta.properties"), "version=1\ncluster.id=abc\nnode.id=3\n").unwrap();
    fs::write(log_dir.join("recovery-point-offset-checkpoint"), "0\n1\nlost 0 7\n").unwrap();
    let (pieces, text, json, outcome) = looked(&log_dir, false);
    assert_eq!((pieces.len(), outcome.verdict, outcome.exit_code()), (4, Verdict::Corrupt, 10));
    let first = text.lines().next().unwrap();
    let head =
        format!("log directory {}: 3 partitions; closed cleanly; cluster abc; node 3", log_dir.display());
    assert_eq!(first, head);
    let table: Vec<_> = text.lines().skip_while(|line| !line.starts_with("PARTITION")).collect();
    let firsts: Vec<_> = table.iter().map(|row| row.split_whitespace().next().unwrap()).collect();
    assert_eq!(firsts, ["PARTITION", "zeta-0", "plain-0", "txn-open-0"]);
    assert!(text.contains("zeta-0: corrupt: "), "{text}");
    assert!(text.contains("lost-0 (synced up to 7)"), "{text}");
    assert!(text.contains("-delete is no partition that is served"), "{text}");
    assert_eq!(json["items"][0]["kind"], "LogDirectory");
    assert_eq!(
        json["summary"],
        serde_json::json!({"verdict": "corrupt", "complete": true, "itemCount": 4, "exitCode": 10})
    );
    // A directory of log directories, and the same by a relative path.
    let (pieces, ..) = looked(folder.path(), false);
    assert_eq!(pieces.len(), 4);
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["inspect", "."])
        .current_dir(log_dir.join("txn-open-0"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("txn-open-0: healthy\n"), "{said}");
    assert!(said.contains("closed        cleanly"), "the marker beside it is seen: {said}");
}

#[test]
fn files_by_themselves_are_explained() {
    let (_folder, dir) = golden("txn-open");
    let log_dir = dir.parent().unwrap();
    let first = |name: &Path| looked(name, false).1.lines().next().unwrap().to_owned();
    let said = first(&dir.join("00000000000000000000.log"));
    assert_eq!(said, "txn-open-0: healthy");
    for (name, what) in [
        ("00000000000000000012.snapshot", "healthy: producer snapshot, "),
        ("00000000000000000000.txnindex", "healthy: transaction index, 34 bytes"),
        ("leader-epoch-checkpoint", "healthy: leader-epoch checkpoint, "),
        ("partition.metadata", "healthy: partition metadata, "),
    ] {
        let said = first(&dir.join(name));
        assert!(said.starts_with(&format!("{name}: {what}")), "{said}");
    }
    let said = looked(&log_dir.join("recovery-point-offset-checkpoint"), false).1;
    assert!(said.contains("  txn-open-0: 12\n"), "{said}");
    fs::write(dir.join("leader-epoch-checkpoint"), "nonsense").unwrap();
    let (_, text, _, outcome) = looked(&dir.join("leader-epoch-checkpoint"), false);
    assert!(text.starts_with("leader-epoch-checkpoint: not good: "), "{text}");
    assert_eq!(outcome.exit_code(), 10);
    // A sealed segment is judged as one, also by itself.
    let (_folder, dir) = golden("bitflip-sealed");
    let corrupt = looked(&dir.join("00000000000000000000.log"), false).3;
    assert_eq!(corrupt.verdict, Verdict::Corrupt);
    let whole = looked(&dir.join("00000000000000000112.log"), false).3;
    assert_eq!(whole.verdict, Verdict::Healthy, "the corruption is in another file");
}

/// Names of fields as they nest, without the numbers of a list and the keys of a count.
fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let counted = ["byMagic", "byCodec", "byType"].iter().any(|counts| at.ends_with(counts));
                let at = if counted { format!("{at}.*") } else { format!("{at}.{name}") };
                paths(value, at.trim_start_matches('.'), found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{at}[]"), found)),
        _ => {
            found.insert(at.to_owned());
        }
    }
}

/// The fields that `docs/operations.md` documents for a kind.
pub(crate) fn documented(heading: &str) -> BTreeSet<String> {
    let doc = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let doc = fs::read_to_string(doc).unwrap();
    let (_, section) = doc.split_once(&format!("### {heading}\n")).expect("the section is there");
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect()
}

/// N-DUMP-3: whoever reads the JSON relies on its fields. A field that goes or changes its meaning raises the version.
#[test]
fn the_fields_of_the_json_are_those_of_the_document() {
    let mut found = BTreeSet::new();
    for name in names() {
        let (_folder, dir) = golden(&name);
        let json = looked(dir.parent().unwrap(), true).2;
        assert_eq!(
            (&json["apiVersion"], &json["kind"], &json["schemaVersion"]),
            (&"weir/v1".into(), &"Inspection".into(), &1.into())
        );
        paths(&json, "", &mut found);
    }
    let barrier = at(1, &MirrorPidReset::build(TimestampMs::new(NOW)));
    let (_folder, dir) = written(&[(0, [data(0, 6, 0, true), barrier].concat())]);
    let log_dir = dir.parent().unwrap();
    fs::write(
        log_dir.join("meta.properties"),
        "version=1\ncluster.id=abc\nnode.id=3\ndirectory.id=Wb3rH7TcQqm0P8TmWY7qLg\n",
    )
    .unwrap();
    fs::write(dir.join("partition.metadata"), "version: 0\ntopic_id: Wb3rH7TcQqm0P8TmWY7qLg").unwrap();
    let side = log_dir.with_file_name("data.weir").join("partitions/Wb3rH7TcQqm0P8TmWY7qLg-0");
    fs::create_dir_all(&side).unwrap();
    fs::write(side.join("cut-00000000000000000000-0-00000000.log"), data(3, 5, 0, false)).unwrap();
    fs::write(log_dir.with_file_name("data.weir").join("metadata.redb"), "").unwrap();
    let mut file = weir_recovery::PartitionFile::new(offset(9));
    file.truncate(offset(4), offset(9));
    fs::write(side.join("partition"), file.encode()).unwrap();
    paths(&looked(log_dir, true).2, "", &mut found);
    fs::write(side.join("partition"), "nonsense").unwrap();
    fs::write(dir.join("00000000000000000000.index"), [1; 8]).unwrap();
    paths(&looked(log_dir, true).2, "", &mut found);
    paths(&looked(&dir.join("partition.metadata"), true).2, "", &mut found);
    // KRaft's values are Kafka's, and as many as its records have.
    found.retain(|path| !path.starts_with("items[].controlRecords.others[].control.value."));
    // Who has a directory open is known of a running node only; so is an index that was not compared.
    found.insert("items[].openIn.pid".to_owned());
    let documented = documented("Fields of `weir inspect --json`");
    let missing: Vec<_> = found.difference(&documented).collect();
    let unseen: Vec<_> = documented.difference(&found).collect();
    assert!(missing.is_empty() && unseen.is_empty(), "not documented: {missing:#?}\nnever seen: {unseen:#?}");
}

/// A terminal would obey what a cluster's id or a file's name says.
#[test]
fn nothing_printed_is_obeyed_by_a_terminal() {
    let (_folder, dir) = written(&[(0, data(0, 5, 0, false))]);
    fs::write(dir.join("\u{1b}[2Jgone"), "").unwrap();
    fs::write(dir.parent().unwrap().join("meta.properties"), "version=1\ncluster.id=\u{1b}[2J\n").unwrap();
    let text = looked(dir.parent().unwrap(), true).1;
    assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2Jgone"), "{text}");
}

#[tokio::test]
async fn a_running_node_is_looked_at_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let mut node = Process::start(&data_dir);
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    for value in ["a", "b", "c"] {
        client.produce("t", batch(&[value]), -1).await;
    }
    let dir = data_dir.join("t-0");
    let report = partition(&dir);
    assert_eq!((report.verdict, report.log_end_offset), (Verdict::Healthy, 3), "{:#?}", report.findings);
    let held = report.holder.expect("it is in use");
    assert!(held.pid.is_some());
    assert!(report.topic_id.is_some() && report.side_dir.is_some());
    let (_, text, _, outcome) = looked(&dir, false);
    assert!(text.starts_with("t-0: healthy, and a node is running on it\n"), "{text}");
    assert_eq!(outcome.exit_code(), 0);
    client.produce("t", batch(&["d"]), -1).await;
    assert_eq!(client.values("t", 0).await, ["a", "b", "c", "d"]);

    // Killed: healthy or with an end that the next start cuts, and nothing that was acknowledged is missing.
    node.signal(rustix::process::Signal::KILL);
    node.wait();
    let report = partition(&dir);
    assert!(report.holder.is_none() && report.log_end_offset == 4, "{report:#?}");
    assert!(matches!(report.verdict, Verdict::Healthy | Verdict::WouldCut));

    // Stopped cleanly: weir's own snapshot is trusted.
    let node = TestNode::start(&data_dir).await;
    assert!(node.server.stop().await);
    let report = partition(&dir);
    assert_eq!((report.verdict, report.clean_shutdown), (Verdict::Healthy, true));
    let trusted: Vec<_> = report.snapshots.iter().filter(|snapshot| snapshot.distrust.is_none()).collect();
    assert_eq!(
        trusted.iter().map(|snapshot| snapshot.offset).collect::<Vec<_>>(),
        [4],
        "{:#?}",
        report.snapshots
    );
    // One bit, and it is not.
    let path = dir.join(format!("{:020}.snapshot", 4));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(partition(&dir).snapshots.iter().all(|snapshot| snapshot.distrust.is_some()));
}

#[test]
fn a_snapshot_that_weir_did_not_write_is_said_not_to_be_trusted() {
    let (_folder, dir) = golden("txn-open");
    let (_, text, ..) = looked(&dir, false);
    let line = "snapshot      at 12, 4 producers, not loaded: weir did not write it: it may hold producers from before a barrier\n";
    assert!(text.contains(line), "{text}");
    for (name, why) in [
        ("snapshot-empty", "not loaded: "),
        ("snapshot-half", "not loaded: "),
        ("snapshot-version-99", "version 99"),
    ] {
        let (_folder, dir) = golden(name);
        let text = looked(&dir, false).1;
        assert!(text.contains("not readable, not loaded: ") && text.contains(why), "{name}: {text}");
    }
}

/// What is in the directory besides regular files: nothing of it is waited for, followed for ever, or taken for a segment.
#[test]
fn pipes_links_and_directories_in_the_place_of_files_are_named() {
    use rustix::fs::{CWD, FileType, mknodat};
    let (folder, dir) = golden("plain");
    let name = |base: i64| dir.join(format!("{base:020}.log"));
    mknodat(CWD, name(500), FileType::Fifo, 0o600.into(), 0).unwrap();
    mknodat(CWD, dir.join("00000000000000000500.index"), FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::create_dir(name(600)).unwrap();
    std::os::unix::fs::symlink(name(700), name(700)).unwrap();
    std::os::unix::fs::symlink("/dev/zero", name(800)).unwrap();
    std::os::unix::fs::symlink("nowhere", name(900)).unwrap();
    std::os::unix::fs::symlink(".", dir.join("again")).unwrap();
    mknodat(CWD, dir.join("leader-epoch-checkpoint.tmp"), FileType::Fifo, 0o600.into(), 0).unwrap();
    fs::remove_file(dir.join("leader-epoch-checkpoint")).unwrap();
    mknodat(CWD, dir.join("leader-epoch-checkpoint"), FileType::Fifo, 0o600.into(), 0).unwrap();
    let report = partition(&dir);
    assert_eq!((report.verdict, report.log_end_offset), (Verdict::Unreadable, 240), "{:#?}", report.findings);
    let named = |code| {
        let of = report.findings.iter().filter(|finding| finding.code == code);
        of.map(|finding| finding.file.as_ref().unwrap().file_name().unwrap().to_string_lossy().into_owned())
            .collect::<BTreeSet<_>>()
    };
    let not_files = named(Code::NotAFile);
    for base in [500, 600, 800, 900] {
        assert!(not_files.contains(&format!("{base:020}.log")), "{not_files:?}");
    }
    assert!(
        named(Code::Unreadable).contains("00000000000000000700.log"),
        "a link to itself: {:?}",
        report.findings
    );
    assert!(named(Code::UnknownName).contains("again"));
    // Each by itself, and by the other tools: an answer, and no waiting.
    for base in [500, 600, 700, 800, 900] {
        for arguments in [&["inspect"][..], &["dump-log"]] {
            let output = weir(arguments, &name(base));
            assert!(!output.status.success(), "{arguments:?} {base}");
            assert!(!output.stderr.is_empty() || !output.stdout.is_empty());
        }
    }
    weir(&["recover", "--dry-run", "--accept-cut", "1"], &dir);
    drop(folder);
}

/// A file of a size that no segment has, nearly all of it a hole, and others that are all hole.
#[test]
fn huge_files_of_nothing_are_not_read_for_ever() {
    let (_folder, dir) = written(&[(0, data(0, 5, 0, false)), (5, data(5, 5, 1, false))]);
    let grow = |name: &str, size: u64| {
        fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join(name))
            .unwrap()
            .set_len(size)
            .unwrap();
    };
    grow("00000000000000000005.log", 1 << 43);
    grow("00000000000000000005.index", 1 << 42);
    grow("00000000000000000005.timeindex", 1 << 42);
    grow("00000000000000000005.txnindex", 1 << 42);
    grow("00000000000000000005.snapshot", 1 << 33);
    grow("leader-epoch-checkpoint", 1 << 42);
    grow("partition.metadata", 1 << 42);
    let report = partition(&dir);
    assert!(has(&report, Code::TooLarge) && has(&report, Code::Index), "{:#?}", report.findings);
    assert_eq!(report.log_end_offset, 6);
}

fn mutated() -> impl Strategy<Value = (String, Vec<(u8, u32, u16)>, bool, i64)> {
    let names = prop::sample::select(names());
    let mutations = prop::collection::vec((any::<u8>(), any::<u32>(), any::<u16>()), 1..6);
    (names, mutations, any::<bool>(), 0_i64..300)
}

/// Damages files: a bit, a cut, a length that lies, a swap of two files' names, zeros, or bytes of another file.
fn damage(files: &mut BTreeMap<PathBuf, Vec<u8>>, (what, at, value): (u8, u32, u16)) {
    let names: Vec<PathBuf> = files.keys().cloned().collect();
    let Some(name) = names.get(usize::from(value) % names.len().max(1)).cloned() else { return };
    let other = names[usize::try_from(at).unwrap() % names.len()].clone();
    let mut bytes = files.remove(&name).unwrap();
    let place = usize::try_from(at).unwrap() % bytes.len().max(1);
    match what % 8 {
        0 if !bytes.is_empty() => bytes[place] ^= 1 << (value % 8),
        1 => bytes.truncate(place),
        2 => {
            // The length field of some batch: the first one behind a place, counted by its magic.
            let length = i32::from(value.cast_signed()) << (value % 16);
            if let Some(field) = bytes.get_mut(8..12) {
                field.copy_from_slice(&length.to_be_bytes());
            }
        }
        3 => {
            let theirs = files.remove(&other).unwrap_or_default();
            files.insert(other, std::mem::replace(&mut bytes, theirs));
        }
        4 => bytes.extend(vec![0; usize::from(value)]),
        5 => {
            let end = (place + usize::from(value)).min(bytes.len());
            bytes[place..end].fill(0);
        }
        6 => {
            let theirs = files.get(&other).cloned().unwrap_or_default();
            let end = (place + theirs.len()).min(bytes.len());
            let size = end - place;
            bytes[place..end].copy_from_slice(&theirs[..size]);
        }
        _ => {
            let renamed = name.with_file_name(format!("{:020}.log", at % 500));
            files.insert(renamed, bytes);
            return;
        }
    }
    files.insert(name, bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// R7, and more than that: whatever the bytes are, what an inspection says of them is what a start does.
    #[test]
    fn any_damage_is_explained_as_a_start_would_see_it((name, mutations, clean, recovery_point) in mutated()) {
        let golden = Golden::read(&name);
        let mut files: BTreeMap<PathBuf, Vec<u8>> =
            golden.files.into_iter().map(|(name, bytes)| (Path::new("/data/t-0").join(name), bytes)).collect();
        for mutation in mutations {
            damage(&mut files, mutation);
        }
        fuzzing::check_directory(&files, clean, recovery_point);
    }

    /// Any bytes as a directory, by the oracle of the fuzz target.
    #[test]
    fn any_bytes_are_a_directory(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        fuzzing::check_inspect(&bytes);
    }
}

/// What once failed under the fuzz target, and what it begins with.
#[test]
fn seeds_and_regressions_of_the_fuzz_target_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    for (target, oracle) in fuzzing::TARGETS {
        let source = fs::read_to_string(folder.join(format!("fuzz_targets/{target}.rs"))).unwrap();
        assert!(
            source.contains(&format!("weir_node::cli::inspect::fuzzing::check_{target}(data)")),
            "{source}"
        );
        let mut count = 0;
        for kind in ["seeds", "regressions"] {
            let Ok(entries) = fs::read_dir(folder.join(kind).join(target)) else { continue };
            for entry in entries {
                oracle(&fs::read(entry.unwrap().path()).unwrap());
                count += 1;
            }
        }
        assert!(count >= 5, "{target} has {count} seeds");
    }
}

/// The other end of a pipe has seen enough.
#[test]
fn a_closed_pipe_is_no_error_of_an_inspection() {
    let (_folder, dir) = golden("txn-long");
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["inspect", "--all"])
        .arg(&dir)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.len()),
        (Some(0), 0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::io::stderr().flush().unwrap();
}

/// One file, without anything from elsewhere, and nothing of a name is markup.
#[test]
fn a_partition_is_drawn_over_its_offsets() {
    let barrier = at(3, &MirrorPidReset::build(TimestampMs::new(NOW)));
    let bytes =
        [data(0, 5, 0, false), data(1, 6, 0, true), data(2, 7, 0, true), barrier, data(4, 8, 0, true)]
            .concat();
    let (folder, dir) = written(&[(0, bytes), (9, data(9, 5, 0, false))]);
    let odd = dir.with_file_name("<b>-0");
    fs::rename(&dir, &odd).unwrap();
    let page = folder.path().join("page.html");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["inspect", "--html"])
        .args([&page, &odd])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(page).unwrap();
    let count = |class: &str| page.matches(&format!("class=\"{class}\"")).count();
    assert_eq!(
        ["segment", "segment odd", "abort", "open", "barrier", "lso", "gap"].map(count),
        [1, 1, 2, 1, 1, 1, 1]
    );
    assert!(page.contains("<title>producer 6, 1..3: aborted at the barrier</title>"), "{page}");
    assert!(!page.contains("<b>-0") && page.contains("&lt;b&gt;-0"), "a name is no markup");
    assert!(!page.contains("http") && !page.contains("<script"), "nothing from elsewhere");
}
