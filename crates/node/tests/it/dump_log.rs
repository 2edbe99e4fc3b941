//! `weir dump-log` against Kafka's own dumps, and on files that are not what they say.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_format::{
    BatchBuilder, ControlRecordType, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs,
    set_base_offset,
};
use weir_node::cli::dump_log::{DumpError, DumpOptions, MAX_BATCH_SIZE, dump};

fn dumps() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/dump_log")
}

/// The partition's directory of one of those that Kafka wrote.
fn golden(log: &str) -> PathBuf {
    let partition = crate::golden::Golden::read(log).partition;
    crate::golden::testdata().join(log).join(partition.to_string())
}

/// What Kafka printed of it.
fn kafkas_dump(log: &str) -> String {
    let mut text = Vec::new();
    let file = fs::File::open(dumps().join(format!("{log}.txt.gz"))).expect("golden data");
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut text).expect("gzip");
    String::from_utf8_lossy(&text).into_owned()
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

/// What Kafka printed, but for its commentary and what it says wrongly of these files: the barrier is no unknown record,
/// and a segment's own base offset does not follow on -1.
fn expected(dump: &str) -> String {
    let mut lines = dump.lines().peekable();
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            continue;
        }
        if line.starts_with("Non-consecutive offsets in ") {
            let name = line.rsplit('/').next().and_then(|name| name.split('.').next()).expect("a file");
            let base: i64 = name.parse().expect("its base offset");
            if let Some(pair) = lines.next_if(|line| line.starts_with("  -1 is followed by ")) {
                let start: i64 =
                    pair.rsplit(' ').next().and_then(|start| start.parse().ok()).expect("an offset");
                let pair = (start != base).then(|| format!("  {} is followed by {start}\n", base - 1));
                if pair.is_some() || lines.peek().is_some_and(|line| line.starts_with("  ")) {
                    kept.push_str(&format!("{line}\n{}", pair.unwrap_or_default()));
                }
                continue;
            }
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// Logs whose records Kafka's tool was told to decode: of these the batches are compared.
const DECODED: [&str; 2] = ["internal-consumer-offsets", "internal-transaction-state"];

/// Ours, as Kafka's would be printed: without the value of a barrier, and with paths as in its dump.
fn as_kafka_prints(log: &str, printed: &str) -> String {
    let root = format!("{}/", crate::golden::testdata().join(log).display());
    let printed = printed.replace(&root, "");
    let lines = printed.lines().map(|line| match line.split_once("controlType: MIRROR_PID_RESET(7) (") {
        Some((front, _)) => format!("{front}controlType: UNKNOWN(7)\n"),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// DumpLogSegments' own files: Kafka prints nothing of checkpoints and identities.
fn files_of_kafkas_tool(folder: &Path) -> Vec<PathBuf> {
    let is_one = |path: &PathBuf| path.extension().is_some_and(|end| end != "metadata");
    files(folder).into_iter().filter(is_one).collect()
}

/// Kafka's tool ends with an exception where a log, or the log beside an index, ends in something that is no batch; what it
/// printed before that is compared, and what weir says of the rest is checked by name.
const KAFKA_THROWS: &[(&str, &str, &str)] = &[
    // Kafka prints a batch of magic 37 first.
    ("garbage-tail", "00000000000000000110.log", "Found 412 invalid bytes at the end of "),
    ("kill9-prealloc", "00000000000000000192.log", "zero bytes at the end of "),
    ("kill9-prealloc", "00000000000000000192.timeindex", "timestamp: 0 offset: 192"),
    ("zeros-tail", "00000000000000000110.log", "zero bytes at the end of "),
    ("zeros-tail", "00000000000000000110.timeindex", "timestamp: 1795979054880 offset: 119"),
    // The cut left zeros alone of the last batch; Kafka does not look at what they are.
    ("torn-length", "00000000000000000118.log", "Found 5 zero bytes at the end of "),
];

#[test]
fn the_text_is_that_of_kafkas_dump_for_everything_that_kafka_wrote() {
    let mut wrong = Vec::new();
    for log in crate::golden::names() {
        if log == "internal-cluster-metadata" {
            continue;
        }
        let theirs = expected(&kafkas_dump(&log));
        for path in files_of_kafkas_tool(&golden(&log)) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            let printed = match dumped_with(std::slice::from_ref(&path), DumpOptions::default()) {
                Ok(printed) => as_kafka_prints(&log, &printed),
                Err(error) => {
                    // Kafka's tool says what is wrong in a line, and goes on.
                    assert!(
                        log.starts_with("snapshot-") && name.ends_with(".snapshot"),
                        "{log} {name}: {error}"
                    );
                    let heading = format!("Dumping {log}-0/{name}\n");
                    let (_, said) = theirs.split_once(&heading).expect("Kafka dumped it");
                    assert!(!said.starts_with("producerId: "), "{log} {name}: Kafka can read it: {said}");
                    continue;
                }
            };
            let heading = printed.lines().next().expect("a heading").to_owned();
            let Some(start) = theirs.find(&heading) else {
                wrong.push(format!("{log} {name}: Kafka did not dump it: {heading}"));
                continue;
            };
            let part = theirs.get(start..).expect("from there on");
            let end =
                part.get(1..).and_then(|rest| rest.find("\nDumping ")).map_or(part.len(), |end| end + 2);
            let part = part.get(..end).expect("up to the next file");
            // Of the damaged copies Kafka's tool was asked for the records without their keys and values.
            let command = format!("--deep-iteration --files {}", heading.trim_start_matches("Dumping "));
            let without_data = kafkas_dump(&log).contains(&command);
            let same = |ours: &str, kafkas: &str| {
                let rest = ours.strip_prefix(kafkas);
                let data = |rest: &str| rest.starts_with(" key: ") || rest.starts_with(" payload: ");
                rest == Some("") || (without_data && rest.is_some_and(data))
            };
            let throws = KAFKA_THROWS.iter().find(|(other, file, _)| *other == log && *file == name);
            // Where a tail begins, and what is wrong there, is weir's own addition.
            let printed = printed.lines().filter(|line| !line.starts_with("  from position "));
            let compared = |line: &&str| !DECODED.contains(&log.as_str()) || line.starts_with("baseOffset: ");
            let (mut ours, mut kafkas) = (printed.filter(compared), part.lines().filter(compared));
            loop {
                match (ours.next(), kafkas.next()) {
                    (None, None) => break,
                    (Some(a), Some(b)) if same(a, b) => {}
                    (Some(a), _) if throws.is_some_and(|(.., says)| a.contains(says)) => break,
                    (a, b) => {
                        wrong.push(format!("{log} {name}:\n  ours   {a:?}\n  Kafka's {b:?}"));
                        break;
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check_golden(log: &str, folder: &Path, dump: &str) {
    let files = files(folder);
    let printed: String = files.iter().map(|path| text(path)).collect();
    let root = format!("{}/", folder.parent().expect("a parent").display());
    assert_eq!(printed.replace(&root, ""), expected(dump), "{log}");
    // All at once is the same: what is odd stands behind the file in which it is. So is the directory.
    let together = dumped_with(&files, DumpOptions::default()).expect("they can be dumped");
    assert_eq!(together, printed, "{log}");
    let folder = dumped_with(&[folder.to_owned()], DumpOptions::default()).expect("it can be dumped");
    assert_eq!(folder, printed, "{log}");
}

#[test]
fn the_control_records_of_kraft_are_printed_as_kafka_prints_them() {
    let dump = fs::read_to_string(dumps().join("kraft-control/dump.txt")).expect("golden data");
    check_golden("kraft-control", &dumps().join("kraft-control/kraft-control-0"), &dump);
}

/// Kafka's dump of this log decodes the metadata records too, which weir's does not: compared are the control batches.
#[test]
fn control_records_of_a_metadata_log_are_printed_as_kafka_prints_them() {
    let log = "internal-cluster-metadata";
    let path = golden(log).join(LOG);
    let printed = text(&path);
    let mut lines = printed.lines();
    let mut control = Vec::new();
    while let Some(line) = lines.next() {
        if line.contains("isControl: true") {
            control.extend([line, lines.next().expect("its record")]);
        }
    }
    let dump = fs::read_to_string(dumps().join(log).join("dump.txt")).expect("golden data");
    assert_eq!(control, expected(&dump).lines().collect::<Vec<_>>());
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

#[test]
fn the_barrier_is_named() {
    for log in ["barrier", "barrier-unclean"] {
        let printed = text(&golden(log).join("00000000000000000031.log"));
        let form = if log == "barrier" { "(value version 0)" } else { "(value version 0 of source cluster " };
        assert_eq!(
            printed.matches(&format!("controlType: MIRROR_PID_RESET(7) {form}")).count(),
            2,
            "{log}: {printed}"
        );
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
    assert_eq!(
        control(ControlRecordType::MirrorPidReset, &[7; 50]),
        "controlType: MIRROR_PID_RESET(7) (value of 50 bytes in no known form)"
    );
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
    let not_found = format!(
        "The following indexed offsets are not found in :{}\nIndexed offset: 2, found log offset: 3\n\
         Indexed offset: 9, found log offset: -1\n",
        time_index.display()
    );
    assert!(printed.ends_with(&not_found), "{printed}");
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
    let folder = golden("barrier-unclean");
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
        ("00000000000000000006.log", 2, "is a directory without a file of a partition"),
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
    let files = [golden("plain").join(LOG), path("orders.log")];
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
    let file = [golden("plain").join(LOG)];
    dump(&file, DumpOptions::default(), &mut Closed).expect("it is over");
}

/// R7: no bytes panic, hang or take memory that they ask for.
#[test]
fn any_bytes_are_dumped_or_refused() {
    let golden_log = fs::read(golden("barrier").join(LOG)).expect("golden data");
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

/// What was cut away can be read, from its first whole batch on.
#[test]
fn archives_are_printed_from_their_first_whole_batch_on() {
    let bytes = two_batches();
    let size = bytes.len() / 2;
    let archive = written(
        "cut-00000000000000000000-4096-0badcafe.log",
        &[&vec![0; 300][..], &bytes, &[9; 10]].concat(),
    );
    let printed = text(&archive.path);
    assert!(printed.contains("Found 300 invalid bytes in cut-00000000000000000000-4096-0badcafe.log, and a valid batch behind them\n  from position 0: "), "{printed}");
    assert!(printed.contains("baseOffset: 2 ") && printed.contains(&format!("position: {} ", 300 + size)));
    assert!(printed.contains("Found 10 invalid bytes at the end of cut-"));
    let kinds: Vec<_> =
        json(&archive.path).iter().map(|object| object["kind"].as_str().map(str::to_owned)).collect();
    assert_eq!(kinds[1].as_deref(), Some("InvalidBytes"));
    // A segment whose first batch has lost its frame goes on behind it, too.
    let mut bytes = two_batches();
    bytes[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    let log = written(LOG, &bytes);
    assert!(text(&log.path).contains(&format!("Found {size} invalid bytes in ")));
}

#[test]
fn small_files_are_printed() {
    let mut file = weir_recovery::PartitionFile::new(Offset::new(60).expect("offset"));
    let offset = |offset| Offset::new(offset).expect("offset");
    file.note_barrier(offset(31), weir_recovery::BarrierNote { aborted_transaction: false });
    file.note_barrier(offset(53), weir_recovery::BarrierNote { aborted_transaction: true });
    file.note_snapshot(offset(54), 0xff);
    let uuid = "Wb3rH7TcQqm0P8TmWY7qLg";
    let rows = [
        (
            "leader-epoch-checkpoint",
            b"0\n2\n0 0\n8 90\n".to_vec(),
            "epoch: 0 startOffset: 0\nepoch: 8 startOffset: 90\n",
        ),
        (
            "partition",
            file.encode(),
            "checkedOffset: 60\nbarrierOffset: 31 abortedTransaction: false\nbarrierOffset: 53 abortedTransaction: true\n\
             snapshotOffset: 54 crc: 000000ff\n",
        ),
        (
            "partition.metadata",
            format!("version: 0\ntopic_id: {uuid}").into_bytes(),
            "topicId: Wb3rH7TcQqm0P8TmWY7qLg\n",
        ),
        ("recovery-point-offset-checkpoint", b"0\n1\nt 0 7\n".to_vec(), "topic: t partition: 0 offset: 7\n"),
        (
            "meta.properties",
            b"version=1\ncluster.id=abc\nnode.id=3\n".to_vec(),
            "version: 1 clusterId: abc nodeId: 3\n",
        ),
        (".kafka_cleanshutdown", b"{\"version\":0,\"brokerEpoch\":9}".to_vec(), "brokerEpoch: 9\n"),
    ];
    for (name, bytes, lines) in rows {
        let small = written(name, &bytes);
        assert_eq!(text(&small.path), format!("Dumping {}\n{lines}", small.path.display()));
        assert!(json(&small.path).iter().all(|object| object["apiVersion"] == "weir/v1"));
        let spoilt = written(name, b"\xff\xfe nonsense");
        if name != ".kafka_cleanshutdown" {
            let error =
                dumped_with(std::slice::from_ref(&spoilt.path), DumpOptions::default()).expect_err(name);
            assert!(matches!(error, DumpError::SmallFile { .. }), "{name}: {error}");
        }
    }
}

/// An index of many entries that point into a long tail of zeros: each is one read, not a look through the tail.
#[test]
fn an_index_that_points_at_nothing_is_not_looked_up_for_ever() {
    let log = written(LOG, &two_batches());
    fs::File::options().write(true).open(&log.path).and_then(|file| file.set_len(1 << 34)).expect("grown");
    let entries =
        (1..20_000_u32).flat_map(|entry| [entry.to_be_bytes(), (entry << 12).to_be_bytes()].concat());
    let index = log.folder.path().join("00000000000000000000.index");
    fs::write(&index, entries.collect::<Vec<u8>>()).expect("written");
    let printed = text(&index);
    assert_eq!(printed.matches(", log offset: none").count(), 10_000);
    assert!(printed.contains("  9999 more\n") || printed.contains("9999"), "{}", printed.len());
}

/// Kafka's tool goes on, too.
#[test]
fn a_file_that_cannot_be_dumped_keeps_none_of_the_others_from_being() {
    let folder = golden("snapshot-bad-crc");
    let mut out = Vec::new();
    let error =
        dump(std::slice::from_ref(&folder), DumpOptions::default(), &mut out).expect_err("one is spoilt");
    assert!(matches!(error, DumpError::Snapshot { .. }) && error.exit_code() == 1, "{error}");
    let printed = String::from_utf8_lossy(&out).into_owned();
    assert!(
        printed.contains("00000000000000000110.log\n") && printed.contains("leader-epoch-checkpoint\n"),
        "{printed}"
    );
    assert!(printed.contains("topicId: "), "the last of them: {printed}");
}
