//! `weir dump-log` against Kafka's own dumps, and on files that are not what they say.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_format::{
    BatchBuilder, ControlRecordType, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs,
    set_base_offset,
};
use weir_node::cli::dump_log::{DumpError, DumpOptions, MAX_BATCH_SIZE, dump};

fn golden(log: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/dump_log").join(log)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    files
}

fn dumped_with(files: &[PathBuf], options: DumpOptions) -> Result<String, DumpError> {
    let mut out = Vec::new();
    dump(files, options, &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

fn text(path: &Path) -> String {
    dumped_with(&[path.to_owned()], DumpOptions::default()).expect("it can be dumped")
}

fn json(path: &Path) -> Vec<Value> {
    let options = DumpOptions { json: true, ..DumpOptions::default() };
    let lines = dumped_with(&[path.to_owned()], options).expect("it can be dumped");
    lines.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

/// A file of this name with these bytes, in a folder that goes with the test.
struct Written {
    folder: tempfile::TempDir,
    path: PathBuf,
}

fn written(name: &str, bytes: &[u8]) -> Written {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("written");
    Written { folder, path }
}

const LOG: &str = "00000000000000000000.log";

/// What Kafka printed, but for its commentary and two things that it says wrongly of these files.
fn expected(log: &str) -> String {
    let dump = fs::read_to_string(golden(log).join("dump.txt")).expect("golden data");
    let mut lines = dump.lines().peekable();
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            continue;
        }
        if line.starts_with("Non-consecutive offsets in ") {
            let pair = lines.next_if(|line| line.starts_with("  -1 is followed by ")).expect("the false one");
            let start = pair.rsplit(' ').next().expect("an offset");
            assert!(line.contains(start), "it is the segment's own base offset: {line} {pair}");
            assert!(!lines.peek().is_some_and(|line| line.starts_with("  ")), "and the only one: {line}");
            continue;
        }
        kept.push_str(&line.replace("UNKNOWN(7)", "MIRROR_PID_RESET(7)"));
        kept.push('\n');
    }
    kept
}

fn check_golden(log: &str) {
    let files = files(&golden(log).join(format!("{log}-0")));
    let printed: String = files.iter().map(|path| text(path)).collect();
    let printed = printed.replace(&format!("{}/", golden(log).display()), "");
    let expected = expected(log);
    for (ours, kafkas) in printed.lines().zip(expected.lines()) {
        assert_eq!(ours, kafkas, "{log}");
    }
    assert_eq!(printed, expected, "{log}");
    // All at once is the same: what is odd stands behind the file in which it is.
    let together = dumped_with(&files, DumpOptions::default()).expect("they can be dumped");
    assert_eq!(together.replace(&format!("{}/", golden(log).display()), ""), expected, "{log}");
}

#[test]
fn the_text_is_that_of_kafkas_dump() {
    for log in ["plain", "idempotent", "txn-open", "kill9", "barrier", "barrier-unclean", "kraft-control"] {
        check_golden(log);
    }
}

/// Kafka's dump of this log decodes the metadata records too, which weir's does not: compared are the control batches.
#[test]
fn control_records_of_a_metadata_log_are_printed_as_kafka_prints_them() {
    let log = "internal-cluster-metadata";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../format/testdata/logs").join(log).join(LOG);
    let printed = text(&path);
    let mut lines = printed.lines();
    let mut control = Vec::new();
    while let Some(line) = lines.next() {
        if line.contains("isControl: true") {
            control.extend([line, lines.next().expect("its record")]);
        }
    }
    let expected = expected(log);
    assert_eq!(control, expected.lines().collect::<Vec<_>>());
    let value = &json(&path)[2]["control"];
    assert_eq!((&value["type"], &value["value"]["leaderId"]), (&"LEADER_CHANGE".into(), &1.into()));
    assert_eq!(value["value"]["grantingVoters"][0]["voterId"], 1);
}

/// Kafka's tool ends with an exception over such values; it also reads a LEADER_CHANGE of version 1 as one of version 0.
#[test]
fn control_values_of_kraft_that_cannot_be_read_are_said_and_newer_ones_are_read() {
    let control = |record_type, value: &[u8]| {
        let batch = BatchBuilder::new().control_record(TimestampMs::new(7), record_type, value);
        let log = written(LOG, &batch.build().expect("a batch"));
        (text(&log.path), json(&log.path)[2]["control"].clone())
    };
    let (printed, said) = control(ControlRecordType::KraftVoters, &[0, 0, 9]);
    let wanted = " controlType: KRAFT_VOTERS(6) (value of a KRAFT_VOTERS record is malformed at byte 3)\n";
    assert!(printed.ends_with(wanted), "{printed}");
    assert_eq!(said["value"]["size"], 3);
    let directory = [0xff; 16];
    let value = [&[0, 1, 0, 0, 0, 3, 2, 0, 0, 0, 3][..], &directory, &[0, 1, 0]].concat();
    let (printed, said) = control(ControlRecordType::LeaderChange, &value);
    let id = format!("{}w", "_".repeat(21));
    let wanted = format!(
        r#" LeaderChange: {{"version":1,"leaderId":3,"voters":[{{"voterId":3,"voterDirectoryId":"{id}"}}],"grantingVoters":[]}}"#
    );
    assert!(printed.trim_end().ends_with(&wanted), "{printed}");
    assert_eq!(said["value"]["voters"][0]["voterDirectoryId"], id.as_str());
}

/// The logs are those that `weir-format` reads record by record; of Kafka's dump this is the part about each log.
#[test]
fn compressed_batches_and_old_messages_are_printed_as_kafka_prints_them() {
    let codecs = ["codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "codec-broker-recompress"];
    for log in codecs.into_iter().chain(["magic-mixed"]) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../format/testdata/logs").join(log);
        let expected = expected(log);
        let logs = files(&folder).into_iter().filter(|path| path.extension().is_some_and(|end| end == "log"));
        for path in logs {
            let printed = text(&path).replace(&folder.display().to_string(), &format!("{log}-0"));
            assert!(printed.contains("| offset: "), "{log}");
            let heading = printed.lines().next().expect("a heading");
            let start = expected.find(heading).expect("the log's part");
            let part = expected.get(start..).expect("from there on");
            let part = part.split("\nDumping ").next().expect("up to the next file");
            for (ours, kafkas) in printed.lines().zip(part.lines()) {
                assert_eq!(ours, kafkas, "{log}");
            }
            assert_eq!(printed.trim_end(), part.trim_end(), "{log}");
        }
    }
}

#[test]
fn the_barrier_is_named() {
    for log in ["barrier", "barrier-unclean"] {
        let printed = text(&golden(log).join(format!("{log}-0/00000000000000000031.log")));
        assert_eq!(printed.matches("controlType: MIRROR_PID_RESET(7)").count(), 2, "{log}");
    }
}

/// DUMP-3. A program that runs cannot be opened for writing, by nobody: so this one is opened for reading only.
#[test]
fn files_are_opened_read_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(LOG);
    std::os::unix::fs::symlink(std::env::current_exe().expect("this test"), &path).expect("linked");
    let error = fs::File::options().read(true).write(true).open(&path).expect_err("it runs");
    assert_eq!(error.kind(), std::io::ErrorKind::ExecutableFileBusy);
    let error = dumped_with(&[path], DumpOptions::default()).expect_err("it is a program");
    assert!(matches!(error, DumpError::NotALog { .. }), "{error}");
}

/// DUMP-5.
#[test]
fn a_folder_with_a_dot_is_no_extension() {
    let folder = tempfile::tempdir().expect("a folder");
    let partition = folder.path().join("a.b/t-0");
    fs::create_dir_all(&partition).expect("made");
    let path = partition.join(LOG);
    fs::write(&path, []).expect("written");
    assert_eq!(text(&path), format!("Dumping {}\nLog starting offset: 0\n", path.display()));
}

fn two_batches() -> Vec<u8> {
    let mut bytes = Vec::new();
    for base in [0, 2] {
        let mut batch = BatchBuilder::new()
            .producer(ProducerId::new(7).expect("id"), ProducerEpoch::ZERO, Sequence::new(i32::MAX))
            .record(TimestampMs::new(10), Some(b"k"), None)
            .record(TimestampMs::new(20), None, Some(b""))
            .build()
            .expect("a batch");
        set_base_offset(&mut batch, Offset::new(base).expect("offset")).expect("a batch");
        bytes.extend(batch);
    }
    bytes
}

/// The lines behind the second batch's last record.
fn tail_of(bytes: &[u8]) -> String {
    let log = written(LOG, bytes);
    let printed = text(&log.path);
    let (_, tail) = printed.split_once("| offset: 3 ").expect("both batches are printed");
    tail.split_once('\n').expect("a line").1.to_owned()
}

#[test]
fn null_and_empty_differ_and_sequences_wrap() {
    let log = written(LOG, &two_batches());
    let printed = text(&log.path);
    let lines: Vec<_> = printed.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(
        lines[..2],
        [
            "| offset: 0 CreateTime: 10 keySize: 1 valueSize: -1 sequence: 2147483647 headerKeys: [] key: k",
            "| offset: 1 CreateTime: 20 keySize: -1 valueSize: 0 sequence: 0 headerKeys: [] payload: ",
        ]
    );
}

#[test]
fn a_zero_tail_is_named_as_preallocation() {
    let mut bytes = two_batches();
    bytes.resize(bytes.len() + 100_000, 0);
    assert_eq!(
        tail_of(&bytes),
        format!("Found 100000 zero bytes at the end of {LOG}: preallocated, not written yet\n")
    );
    // A segment that was preallocated and never written to.
    let empty = written(LOG, &[0; 4096]);
    assert!(text(&empty.path).contains("Found 4096 zero bytes"));
}

/// Any cut of the last batch, and any rubbish behind it, is named with where it starts.
#[test]
fn a_torn_tail_is_named_wherever_it_is_cut() {
    let whole = two_batches();
    let size = whole.len() / 2;
    for cut in 1..size {
        let mut bytes = two_batches();
        bytes.extend(&whole[..cut]);
        let tail = tail_of(&bytes);
        let at = whole.len();
        // A base offset of 0 starts with zeros: until more is there it may be preallocation.
        if whole[..cut].iter().all(|byte| *byte == 0) {
            assert_eq!(
                tail,
                format!("Found {cut} zero bytes at the end of {LOG}: preallocated, not written yet\n")
            );
            continue;
        }
        assert!(
            tail.starts_with(&format!(
                "Found {cut} invalid bytes at the end of {LOG}\n  from position {at}: "
            )),
            "{cut}: {tail}"
        );
    }
    for garbage in [vec![0xff; 300], b"not a batch at all, but long enough for a header of one".repeat(3)] {
        let mut bytes = two_batches();
        bytes.extend(&garbage);
        assert!(tail_of(&bytes).starts_with(&format!("Found {} invalid bytes", garbage.len())));
    }
}

#[test]
fn a_flipped_bit_is_said_and_the_walk_goes_on() {
    let mut bytes = two_batches();
    let size = bytes.len() / 2;
    bytes[size - 1] ^= 1;
    let log = written(LOG, &bytes);
    let printed = text(&log.path);
    assert_eq!(printed.matches("isvalid: false").count(), 1);
    assert_eq!(printed.matches("isvalid: true").count(), 1);
    // A header that makes no sense: its length still leads to the next batch.
    let mut bytes = two_batches();
    bytes[0] = 0xff;
    let log = written(LOG, &bytes);
    let printed = text(&log.path);
    assert!(
        printed.contains(&format!("position: 0 size: {size} magic: 2 unreadable: base offset ")),
        "{printed}"
    );
    assert!(printed.contains("baseOffset: 2 "));
}

#[test]
fn a_gap_inside_a_segment_is_said() {
    let mut batch = two_batches();
    let size = batch.len() / 2;
    set_base_offset(&mut batch[size..], Offset::new(9).expect("offset")).expect("a batch");
    let log = written(LOG, &batch);
    assert!(
        text(&log.path)
            .ends_with(&format!("Non-consecutive offsets in {}\n  1 is followed by 9\n", log.path.display()))
    );
}

#[test]
fn what_this_build_cannot_read_is_said() {
    // The codec bits of zstd over bytes that are none.
    let mut bytes = two_batches();
    bytes[22] |= 4;
    let mut old = vec![0; 40];
    old[11] = 28;
    old[16] = 1;
    bytes.extend(&old);
    let log = written(LOG, &bytes);
    let printed = text(&log.path);
    assert!(printed.contains("compresscodec: zstd"));
    assert!(printed.contains("| records are not shown: zstd data is malformed: no zstd frame"), "{printed}");
    assert!(printed.contains("size: 40 magic: 1 unreadable: crc "), "{printed}");
    assert!(!printed.contains("Non-consecutive"), "what cannot be read is not missing: {printed}");
    // A record count that the bytes do not hold.
    let mut bytes = two_batches();
    bytes[57..61].copy_from_slice(&2_000_000_000_i32.to_be_bytes());
    let log = written(LOG, &bytes);
    assert!(text(&log.path).contains("count: 2000000000 "));
    assert!(text(&log.path).contains("| records are not shown: "));
}

/// A sparse file, so that the test needs no disk: one batch that says it is larger than what is held in memory.
#[test]
fn a_batch_larger_than_memory_allows_is_named_without_its_records() {
    let mut bytes =
        BatchBuilder::new().record(TimestampMs::new(1), None, Some(b"v")).build().expect("a batch").to_vec();
    let size = MAX_BATCH_SIZE + 1;
    bytes[8..12].copy_from_slice(&i32::try_from(size - 12).expect("fits").to_be_bytes());
    let log = written(LOG, &bytes);
    fs::File::options().write(true).open(&log.path).and_then(|file| file.set_len(size)).expect("grown");
    let printed = text(&log.path);
    assert!(printed.contains(&format!("size: {size} magic: 2 compresscodec: none")), "{printed}");
    assert!(printed.contains("isvalid: false"));
    assert!(printed.contains(&format!("| records are not shown: the batch has {size} bytes")));
}

#[test]
fn control_records_are_named_whatever_they_hold() {
    let control = |kind, value: &[u8]| {
        let batch = BatchBuilder::new().control_record(TimestampMs::new(1), kind, value);
        let log = written(LOG, &batch.build().expect("a batch"));
        let line = text(&log.path).lines().find(|line| line.starts_with('|')).map(str::to_owned);
        line.and_then(|line| line.split_once("headerKeys: [] ").map(|(_, end)| end.to_owned()))
            .expect("a record")
    };
    let marker = [0, 0, 0, 0, 0, 9];
    assert_eq!(control(ControlRecordType::Commit, &marker), "endTxnMarker: COMMIT coordinatorEpoch: 9");
    assert_eq!(
        control(ControlRecordType::Abort, &[0, 0, 255, 255, 255, 255]),
        "endTxnMarker: ABORT coordinatorEpoch: -1"
    );
    assert_eq!(
        control(ControlRecordType::Abort, &[0, 0]),
        "endTxnMarker: ABORT (value of 2 bytes is too short)"
    );
    assert_eq!(
        control(ControlRecordType::LeaderChange, &[]),
        "controlType: LEADER_CHANGE(2) (value of a LEADER_CHANGE record is malformed at byte 0)"
    );
    assert_eq!(control(ControlRecordType::Unknown(99), &[]), "controlType: UNKNOWN(99)");
    assert_eq!(control(ControlRecordType::MirrorPidReset, &[7; 50]), "controlType: MIRROR_PID_RESET(7)");
    let no_key = BatchBuilder::new().control().record(TimestampMs::new(1), Some(&[0]), None);
    let log = written(LOG, &no_key.build().expect("a batch"));
    assert!(text(&log.path).contains("controlType: none (key of 1 bytes)"));
}

#[test]
fn indexes_are_looked_up_in_their_log() {
    let log = written(LOG, &two_batches());
    let size = u8::try_from(two_batches().len() / 2).expect("small");
    let entry = |offset: u8, position: u8| [0, 0, 0, offset, 0, 0, 0, position];
    let index = log.folder.path().join("00000000000000000000.index");
    let right = [entry(3, size), [0; 8]].concat();
    fs::write(&index, &right).expect("written");
    assert_eq!(text(&index), format!("Dumping {}\noffset: 3 position: {size}\n", index.display()));
    let wrong = [entry(2, size), entry(3, 5), [0; 8]].concat();
    fs::write(&index, wrong).expect("written");
    let found = "  Index offset: 3, log offset: none\n  Index offset: 2, log offset: 3\n";
    assert!(text(&index).ends_with(&format!("Mismatches in :{}\n{found}", index.display())));
    fs::write(&index, &right[..13]).expect("written");
    assert!(text(&index).contains("Found 5 invalid bytes at the end of 00000000000000000000.index"));

    let time_entry = |timestamp: u8, offset: u8| [0, 0, 0, 0, 0, 0, 0, timestamp, 0, 0, 0, offset];
    let time_index = log.folder.path().join("00000000000000000000.timeindex");
    fs::write(&time_index, [time_entry(20, 1), time_entry(20, 3), [0; 12]].concat()).expect("written");
    let printed = text(&time_index);
    assert!(
        printed
            .contains("timestamp: 20 offset: 1\ntimestamp: 20 offset: 3\nFound out of order timestamp in :")
    );
    fs::write(&time_index, [time_entry(19, 1), time_entry(30, 2), time_entry(40, 9)].concat())
        .expect("written");
    let printed = text(&time_index);
    assert!(printed.contains("  Index timestamp: 19, log timestamp: 20\n"));
    let not_found = "The following indexed offsets are not found in the log.\n\
                     Indexed offset: 2, found log offset: 3\n\
                     Indexed offset: 9, found log offset: -1\n";
    assert!(printed.ends_with(not_found), "{printed}");
    // An index that goes back and forth does not take for ever.
    let back_and_forth: Vec<u8> =
        (0..2_000).flat_map(|i| time_entry(20, if i % 2 == 0 { 3 } else { 1 })).collect();
    fs::write(&time_index, back_and_forth).expect("written");
    assert!(text(&time_index).contains("  the offsets of later entries, which are out of order\n"));

    fs::remove_file(&log.path).expect("removed");
    assert!(text(&index).ends_with("  the segment's .log is not beside it\n"));
}

#[test]
fn json_is_one_object_a_line_with_its_version_and_kind() {
    let folder = golden("barrier-unclean").join("barrier-unclean-0");
    for path in files(&folder) {
        for object in json(&path) {
            assert_eq!(object["apiVersion"], "weir/v1");
            assert_eq!(object["file"], path.to_string_lossy().as_ref());
            assert!(object["kind"].is_string());
        }
    }
    let log = json(&folder.join("00000000000000000031.log"));
    assert_eq!((&log[0]["kind"], &log[0]["baseOffset"]), (&"LogSegment".into(), &31.into()));
    let record = log.iter().find(|object| object["kind"] == "Record").expect("a record");
    assert_eq!(record["control"]["type"], "MIRROR_PID_RESET");
    assert_eq!(record["control"]["value"]["version"], 0);
    assert!(
        record["control"]["value"]["sourceClusterId"].is_string(),
        "the older form names its cluster: {record}"
    );
    let batch = log.iter().find(|object| object["kind"] == "RecordBatch").expect("a batch");
    assert_eq!((&batch["producerId"], &batch["isControl"]), (&Value::Null, &true.into()));
    let data = log.iter().filter(|object| object["kind"] == "Record" && object["value"].is_object());
    assert_eq!(data.count(), 20);
    let producers = json(&folder.join("00000000000000000031.snapshot"));
    assert_eq!(producers.len(), 2);
    assert_eq!(producers[1]["coordinatorEpoch"], 7);
    let finding = json(&folder.join("00000000000000000031.timeindex")).pop().expect("a line");
    assert_eq!((&finding["kind"], &finding["what"]), (&"Finding".into(), &"timestampMismatch".into()));

    let bytes = BatchBuilder::new().record(TimestampMs::new(1), Some(b"\xff\x00"), Some("é".as_bytes()));
    let log = written(LOG, &bytes.build().expect("a batch"));
    let record = json(&log.path).pop().expect("a record");
    assert_eq!((&record["key"]["hex"], &record["value"]["text"]), (&"ff00".into(), &"é".into()));
}

#[test]
fn a_terminal_is_told_nothing_that_it_would_obey() {
    let bytes = BatchBuilder::new().record(TimestampMs::new(1), None, Some(b"\x1b[2Jgone\n"));
    let log = written(LOG, &bytes.build().expect("a batch"));
    let plain = text(&log.path);
    assert!(plain.contains("payload: \x1b[2Jgone\n\n"), "a file gets what Kafka would print");
    let options = DumpOptions { escape: true, ..DumpOptions::default() };
    let escaped = dumped_with(std::slice::from_ref(&log.path), options).expect("it can be dumped");
    assert!(escaped.contains("payload: \\u{1b}[2Jgone\\n\n"), "{escaped}");
}

#[test]
fn what_is_no_file_of_a_partition_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("00000000000000000000.txt"), "x").expect("written");
    fs::write(path("orders.log"), "x").expect("written");
    fs::write(
        path("00000000000000000005.log"),
        "no batch, and longer than a header of one would ever be, so there",
    )
    .expect("written");
    fs::write(path("00000000000000000005.snapshot"), [0, 1, 2]).expect("written");
    fs::create_dir(path("00000000000000000006.log")).expect("made");
    let rows = [
        ("00000000000000000000.txt", 2, "is not a file of a partition"),
        ("orders.log", 2, "does not start with an offset"),
        ("00000000000000000006.log", 2, "is a directory"),
        (".", 2, "is a directory"),
        ("00000000000000000007.log", 1, "cannot read "),
        ("nowhere.log", 1, "cannot read "),
        ("00000000000000000005.log", 1, "is not a log segment: "),
        ("00000000000000000005.snapshot", 1, "is not a valid producer snapshot"),
    ];
    for (name, code, says) in rows {
        let error = dumped_with(&[path(name)], DumpOptions::default()).expect_err(name);
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.exit_code(), code, "{error}");
        assert!(!error.help().is_empty());
    }
    // Names are looked at before anything is printed.
    let mut out = Vec::new();
    let files = [golden("plain/plain-0").join(LOG), path("orders.log")];
    dump(&files, DumpOptions::default(), &mut out).expect_err("the second name is wrong");
    assert!(out.is_empty());
}

/// The other end of a pipe has seen enough.
#[test]
fn a_closed_pipe_is_no_error() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let file = [golden("plain/plain-0").join(LOG)];
    dump(&file, DumpOptions::default(), &mut Closed).expect("it is over");
}

/// R7: no bytes panic, hang or take memory that they ask for.
#[test]
fn any_bytes_are_dumped_or_refused() {
    let golden_log = fs::read(golden("barrier/barrier-0").join(LOG)).expect("golden data");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let folder = tempfile::tempdir().expect("a folder");
    for _ in 0..300 {
        let mut bytes = golden_log.clone();
        for _ in 0..1 + random() % 8 {
            let at = usize::try_from(random() % bytes.len() as u64).expect("small");
            bytes[at] = u8::try_from(random() % 256).expect("a byte");
        }
        bytes.truncate(usize::try_from(random() % (bytes.len() as u64 + 1)).expect("small"));
        for extension in ["log", "index", "timeindex", "txnindex", "snapshot"] {
            let path = folder.path().join(format!("00000000000000000000.{extension}"));
            fs::write(&path, &bytes).expect("written");
            for json in [false, true] {
                let _ = dumped_with(std::slice::from_ref(&path), DumpOptions { json, escape: true });
            }
        }
    }
}
