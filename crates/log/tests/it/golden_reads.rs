//! Every read that Kafka answered of the directories it wrote, answered here: the same, or the difference has a name.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_format::{AnyBatch, AnyBatchReader, Offset, TimestampMs};
use weir_log::{Isolation, OffsetSpec, ReadError};

use weir_segment::batch_info;

use super::support::*;

/// How many there are: directories, offsets for timestamps, fetches, ends of epochs.
const VECTORS: [usize; 4] = [54, 2_901, 3_654, 134];

/// Directories that are not served at all, and why. Their vectors count as answered by that.
const REFUSED: &[(&str, &str)] = &[
    ("bitflip-active", "R8: a flipped bit above the recovery point is corruption, never a torn tail"),
    (
        "bitflip-clean",
        "R8: Kafka checks nothing behind a clean marker, here the first load of a foreign log replays it",
    ),
    ("bitflip-sealed", "R8: an invalid byte in a segment that is not the last"),
    ("bitflip-sealed-unseen", "R8: an invalid byte below the recovery point, which Kafka does not look at"),
];

/// Why the answers about epochs of `deleted-all` differ.
const DELETED_EPOCHS: &str = "the first load of a foreign log meets the batches below the log start, and knows their epoch, \
     as Kafka's own replay of the same log does ([0,150])";

/// Single answers that differ: directory, vector, our answer, and why it is the better one.
const DIFFERENT: &[(&str, &str, &str, &str)] = &[
    (
        "deleted-all",
        "listOffsets -3",
        "none",
        "the record with the largest timestamp lies below the log start, where nobody can read it",
    ),
    ("deleted-all", "listOffsets -1", "-1 150 0", DELETED_EPOCHS),
    ("deleted-all", "listOffsets -2", "-1 150 0", DELETED_EPOCHS),
    ("deleted-all", "listOffsets -4", "-1 150 0", DELETED_EPOCHS),
    ("deleted-all", "endOffsetForEpoch 0", "0 150", DELETED_EPOCHS),
    (
        "leader-epochs-empty-last",
        "listOffsets -1",
        "-1 90 8",
        "the last epoch without records is kept (EPOCH-3); Kafka drops it when it loads",
    ),
    (
        "leader-epochs-empty-last",
        "endOffsetForEpoch 7",
        "6 90",
        "the last epoch without records is kept (EPOCH-3), so 7 is not above all that are known",
    ),
];

pub(super) struct Golden {
    pub(super) name: String,
    pub(super) open: Open,
    /// The `.log` files as Kafka wrote them, by base offset.
    pub(super) segments: Vec<(Offset, Vec<u8>)>,
    pub(super) reads: Value,
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(testdata())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("reads.json").exists())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

fn reads_of(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(testdata().join(name).join("reads.json")).unwrap()).unwrap()
}

/// The `.log` files on this disk, by base offset.
pub(super) fn segments(bench: &Bench) -> Vec<(Offset, Vec<u8>)> {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|suffix| suffix == "log");
    let base = |path: &Path| path.file_stem()?.to_str()?.parse().ok().map(offset);
    let files = bench.disk.files().into_iter().filter(is_log);
    files.filter_map(|path| Some((base(&path)?, bench.disk.read_file(&path)?))).collect()
}

/// The directory, loaded as a broker would at start; what is wrong with it if it is refused.
fn load(name: &str) -> Result<Golden, String> {
    let reads = reads_of(name);
    let mut bench = Bench::new(1);
    bench.config.segment.index_interval_bytes = 1024;
    let partition = reads["partition"].as_str().unwrap();
    bench.dir = format!("/golden/{partition}").into();
    bench.disk.import(&testdata().join(name).join(partition), &bench.dir).unwrap();
    let segments = segments(&bench);
    let inputs = &reads["inputs"];
    let number = |name: &str| offset(inputs[name].as_i64().unwrap().max(0));
    let mut options = bench.options();
    options.clean_shutdown = inputs["cleanShutdownMarker"].as_bool().unwrap();
    options.recovery_point = number("recoveryPointCheckpoint");
    options.log_start_offset = number("logStartOffsetCheckpoint");
    options.now = TimestampMs::new(reads["clockMs"].as_i64().unwrap());
    match bench.try_open(options) {
        Ok(open) => Ok(Golden { name: name.to_owned(), open, segments, reads }),
        Err(error) => Err(error.to_string()),
    }
}

/// An answer that is not Kafka's.
pub(super) struct Difference {
    golden: String,
    pub(super) vector: String,
    pub(super) ours: String,
    pub(super) kafka: String,
}

/// What differs, vector by vector.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) compared: [usize; 4],
    pub(super) differences: Vec<Difference>,
}

impl Outcome {
    fn check(&mut self, golden: &str, vector: &str, ours: &str, kafka: &str) {
        if ours != kafka {
            let [golden, vector, ours, kafka] = [golden, vector, ours, kafka].map(str::to_owned);
            self.differences.push(Difference { golden, vector, ours, kafka });
        }
    }

    /// What is not as [`DIFFERENT`] says, or no difference any more.
    fn wrong(&self) -> String {
        let mut wrong = String::new();
        for Difference { golden, vector, ours, kafka } in &self.differences {
            let named = DIFFERENT.iter().find(|named| (named.0, named.1) == (golden, vector));
            if named.is_none_or(|named| named.2 != ours) {
                let expected = named.map_or(kafka.as_str(), |named| named.2);
                let _ = writeln!(wrong, "{golden} {vector}: {ours}, expected {expected}");
            }
        }
        for (golden, vector, ..) in DIFFERENT {
            let is_met = |met: &Difference| met.golden == *golden && met.vector == *vector;
            if !self.differences.iter().any(is_met) {
                let _ = writeln!(wrong, "{golden} {vector}: no difference any more");
            }
        }
        wrong
    }
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap()
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

/// Only these fields: what a vector has besides, somebody would have to compare.
fn assert_fields(vector: &Value, fields: &[&str]) {
    for field in vector.as_object().unwrap().keys() {
        assert!(fields.contains(&field.as_str()), "nobody compares {field} of {vector}");
    }
}

fn spec_of(ask: i64) -> OffsetSpec {
    match ask {
        -1 => OffsetSpec::Latest,
        -2 => OffsetSpec::Earliest,
        -3 => OffsetSpec::MaxTimestamp,
        -4 => OffsetSpec::EarliestLocal,
        -5 => OffsetSpec::LatestTiered,
        timestamp if timestamp >= 0 => OffsetSpec::Timestamp(TimestampMs::new(timestamp)),
        other => panic!("nobody compares {other}"),
    }
}

pub(super) fn check_list_offsets(golden: &mut Golden, outcome: &mut Outcome) {
    for vector in list(&golden.reads, "listOffsets") {
        assert_fields(vector, &["ask", "answer"]);
        let ask = int(&vector["ask"]);
        let found = golden.open.log.offset_for(&mut *golden.open.io, spec_of(ask), Isolation::Uncommitted);
        let ours = match found.unwrap() {
            None => "none".to_owned(),
            Some(found) => format!(
                "{} {} {}",
                found.timestamp.map_or(-1, TimestampMs::get),
                found.offset.get(),
                found.leader_epoch.map_or(-1, |epoch| epoch.get())
            ),
        };
        let kafka = match &vector["answer"] {
            Value::Null => "none".to_owned(),
            answer if answer.get("exception").is_some() => answer["exception"].to_string(),
            answer => {
                assert_fields(answer, &["timestamp", "offset", "leaderEpoch"]);
                let epoch = answer["leaderEpoch"].as_i64().unwrap_or(-1);
                match (int(&answer["timestamp"]), int(&answer["offset"])) {
                    // On the wire both are the same.
                    (-1, -1) => "none".to_owned(),
                    (timestamp, offset) => format!("{timestamp} {offset} {epoch}"),
                }
            }
        };
        outcome.check(&golden.name, &format!("listOffsets {ask}"), &ours, &kafka);
        outcome.compared[1] += 1;
    }
}

/// The whole batches at the start of these bytes, and the offset behind them.
fn whole_batches(bytes: &[u8]) -> (&[u8], Option<Offset>) {
    let (mut at, mut next) = (0, None);
    while let Ok(batch) = batch_info(bytes.get(at..).unwrap_or_default(), 0) {
        let end = at + usize::try_from(batch.size).unwrap();
        if end > bytes.len() {
            break;
        }
        at = end;
        next = Some(batch.next_offset);
    }
    (&bytes[..at], next)
}

/// The offset of the first record, also of one that a message of magic 0 or 1 wraps.
fn first_offset(batch: &AnyBatch<'_>) -> Option<i64> {
    match batch {
        AnyBatch::Batch(batch) => Some(batch.base_offset().get()),
        AnyBatch::Message(message) => {
            let mut records = message.record_stream(1 << 20).ok()?;
            let offset = records.next_record()?.ok()?.offset.get();
            Some(offset)
        }
    }
}

impl Golden {
    /// What Kafka returned: so many bytes of the file from the batch with this base offset on.
    fn kafka_bytes(&self, first_batch: i64, size: usize) -> Option<&[u8]> {
        for (_, bytes) in &self.segments {
            let mut reader = AnyBatchReader::new(bytes);
            let mut position = 0;
            while let Some(Ok(batch)) = reader.next() {
                if first_offset(&batch) == Some(first_batch) {
                    return Some(&bytes[position..(position + size).min(bytes.len())]);
                }
                position = reader.position();
            }
        }
        None
    }
}

pub(super) fn check_fetches(golden: &mut Golden, outcome: &mut Outcome) {
    let vectors = golden.reads["fetches"].take();
    for vector in vectors.as_array().unwrap() {
        let kinds = [
            ("readUncommittedMax1", 1, Isolation::Uncommitted),
            ("readUncommittedMax4096", 4096, Isolation::Uncommitted),
            ("readCommittedMax4096", 4096, Isolation::Committed),
        ];
        assert_fields(vector, &["offset", kinds[0].0, kinds[1].0, kinds[2].0]);
        let from = int(&vector["offset"]);
        for (name, max, isolation) in kinds {
            let expected = &vector[name];
            let read = golden.open.log.read(&mut *golden.open.io, offset(from), max, isolation, true);
            let label = format!("fetches {from} {name}");
            if let Some(exception) = expected.get("exception") {
                assert_fields(expected, &["exception"]);
                let ours = match read {
                    Err(ReadError::OffsetOutOfRange { .. }) => "OffsetOutOfRangeException",
                    _ => "in range",
                };
                outcome.check(&golden.name, &label, ours, exception.as_str().unwrap());
                continue;
            }
            assert_fields(expected, &["bytes", "firstBatchBaseOffset", "aborted"]);
            let read = match read {
                Ok(read) => read,
                Err(error) => {
                    outcome.check(&golden.name, &label, &error.to_string(), "bytes");
                    continue;
                }
            };
            let size = usize::try_from(int(&expected["bytes"])).unwrap();
            // Kafka cuts the last batch where the bytes end, weir leaves it out.
            let (kafka, next) = match expected["firstBatchBaseOffset"].as_i64() {
                Some(first) => whole_batches(golden.kafka_bytes(first, size).unwrap_or_default()),
                None => (&[][..], None),
            };
            let describe = |bytes: &[u8]| {
                let first = AnyBatchReader::new(bytes).next();
                let first = first.and_then(|batch| first_offset(&batch.ok()?));
                format!("{} bytes from {first:?}", bytes.len())
            };
            outcome.check(&golden.name, &label, &describe(&read.bytes), &describe(kafka));
            if read.bytes != kafka {
                outcome.check(&golden.name, &format!("{label} bytes"), "others", "these");
            }
            let aborted = expected.get("aborted").map(|aborted| {
                let pair = |pair: &Value| (int(&pair[1]), int(&pair[0]));
                aborted.as_array().unwrap().iter().map(pair).collect::<BTreeSet<_>>()
            });
            assert!(aborted.is_none() || isolation == Isolation::Committed, "{label}");
            let Some(kafka) = aborted else { continue };
            let ours: Vec<_> = read
                .aborted
                .iter()
                .map(|entry| (entry.first_offset.get(), entry.producer_id.get()))
                .collect();
            if !ours.is_sorted() {
                let label = format!("{label} aborted, in order");
                outcome.check(&golden.name, &label, &format!("{ours:?}"), "ascending");
            }
            // Kafka's list may reach further than the bytes; what concerns them is on both.
            let needed = |entry: &&(i64, i64)| next.is_some_and(|next| entry.0 < next.get());
            let ours: BTreeSet<_> = ours.into_iter().collect();
            let missing: Vec<_> = kafka.iter().filter(needed).filter(|entry| !ours.contains(entry)).collect();
            let more: Vec<_> = ours.difference(&kafka).collect();
            let (more, missing) = (format!("{more:?} more"), format!("{missing:?} more"));
            outcome.check(&golden.name, &format!("{label} aborted"), &more, &missing);
        }
        outcome.compared[2] += 1;
    }
}

pub(super) fn check_epoch_ends(golden: &mut Golden, outcome: &mut Outcome) {
    for vector in list(&golden.reads, "endOffsetForEpoch") {
        assert_fields(vector, &["epoch", "answer"]);
        let asked = i32::try_from(int(&vector["epoch"])).unwrap();
        let text = |answer: Option<(i64, i64)>| {
            answer.map_or("none".to_owned(), |(epoch, end)| format!("{epoch} {end}"))
        };
        let ours = golden.open.log.end_offset_for_epoch(epoch(asked));
        let ours = ours.map(|(epoch, end)| (i64::from(epoch.get()), end.get()));
        let kafka = vector["answer"].as_array().map(|pair| (int(&pair[0]), int(&pair[1])));
        outcome.check(&golden.name, &format!("endOffsetForEpoch {asked}"), &text(ours), &text(kafka));
        outcome.compared[3] += 1;
    }
}

#[test]
fn every_read_is_answered_as_kafka_answers_it() {
    let mut outcome = Outcome::default();
    for name in names() {
        outcome.compared[0] += 1;
        let refused = REFUSED.iter().any(|(refused, _)| *refused == name);
        match load(&name) {
            Ok(mut golden) => {
                assert!(!refused, "{name} is not refused any more: compare it");
                assert_fields(
                    &golden.reads,
                    &[
                        "partition",
                        "clockMs",
                        "inputs",
                        "logStartOffset",
                        "logEndOffset",
                        "lastStableOffsetWithHighWatermarkAtEnd",
                        "listOffsets",
                        "fetches",
                        "endOffsetForEpoch",
                    ],
                );
                let view = golden.open.log.view();
                let bounds =
                    [view.log_start_offset, view.log_end_offset, view.last_stable_offset].map(Offset::get);
                let names = ["logStartOffset", "logEndOffset", "lastStableOffsetWithHighWatermarkAtEnd"];
                assert_eq!(bounds, names.map(|name| int(&golden.reads[name])), "{name}");
                check_list_offsets(&mut golden, &mut outcome);
                check_epoch_ends(&mut golden, &mut outcome);
                check_fetches(&mut golden, &mut outcome);
            }
            Err(error) => {
                assert!(refused, "{name} was refused: {error}");
                let reads = reads_of(&name);
                for (slot, kind) in ["listOffsets", "fetches", "endOffsetForEpoch"].into_iter().enumerate() {
                    outcome.compared[slot + 1] += list(&reads, kind).len();
                }
            }
        }
    }
    assert_eq!(outcome.wrong(), "");
    assert_eq!(outcome.compared, VECTORS, "directories, offsets for timestamps, fetches, ends of epochs");
}
