//! Every directory of the golden logs, as Kafka left it and stripped to its batches: it loads to what Kafka says of it, or
//! the difference is named here.
//!
//! Every field of `expected.json` is compared by its name; a field or a directory that nobody looks at fails the test. What
//! Kafka answers to reads is compared in `golden_reads.rs`.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use weir_format::BatchReader;
use weir_log::{AppendParams, Isolation};
use weir_psm::ProducerStateEntry;
use weir_recovery::{
    CutKind, Invalid, LoadError, NoSnapshot, ProducerStateSource, Rebuilt, RecoveryConfig, Unwatched, inspect,
};
use weir_segment::{LocalLog, OffsetIndex, TimeIndex};

use super::support::*;

/// How a directory is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// As Kafka left it, with its checkpoints and its marker.
    Load,
    /// Batches alone, nothing known.
    Replay,
}

impl Form {
    pub(super) const ALL: [Form; 2] = [Form::Load, Form::Replay];

    pub(super) fn key(self) -> &'static str {
        match self {
            Form::Load => "load",
            Form::Replay => "replay",
        }
    }
}

/// The directories, by name.
fn golden_names() -> BTreeSet<String> {
    std::fs::read_dir(testdata())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        // Single batches.
        .filter(|name| name != "batches")
        .collect()
}

fn read_json(name: &str, file: &str) -> Value {
    let path = testdata().join(name).join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

pub(super) struct Golden {
    pub(super) bench: Bench,
    pub(super) expected: Value,
    pub(super) form: Form,
}

fn golden(name: &str) -> Golden {
    golden_as(name, Form::Load)
}

fn golden_as(name: &str, form: Form) -> Golden {
    let mut expected = read_json(name, "expected.json");
    expected["load"]["endOffsetForEpoch"] = read_json(name, "reads.json")["endOffsetForEpoch"].clone();
    golden_in(&testdata().join(name), expected, form)
}

/// The directory in this folder, of which Kafka says this.
pub(super) fn golden_in(folder: &Path, expected: Value, form: Form) -> Golden {
    let mut bench = Bench::new(1);
    let interval = expected["indexIntervalBytes"].as_u64().unwrap_or(1024);
    bench.config.segment.index_interval_bytes = u32::try_from(interval).unwrap();
    let partition = expected["partition"].as_str().unwrap();
    bench.dir = format!("/golden/{partition}").into();
    bench.disk.import(&folder.join(partition), &bench.dir).unwrap();
    if form == Form::Replay {
        for path in bench.disk.files().iter().filter(|path| is_auxiliary(path)) {
            bench.disk.remove_file(path);
        }
    }
    Golden { bench, expected, form }
}

/// Whether Kafka removed it for its replay.
fn is_auxiliary(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    name == "leader-epoch-checkpoint"
        || [".index", ".timeindex", ".txnindex", ".snapshot"].iter().any(|suffix| name.ends_with(suffix))
}

impl Golden {
    fn options(&self) -> weir_log::OpenOptions {
        let inputs = &self.expected["inputs"];
        let number = |name: &str| offset(inputs[name].as_i64().unwrap().max(0));
        let mut options = self.bench.options();
        options.log_start_offset = number("logStartOffsetCheckpoint");
        if self.form == Form::Load {
            options.clean_shutdown = inputs["cleanShutdownMarker"].as_bool().unwrap();
            options.recovery_point = number("recoveryPointCheckpoint");
        }
        options
    }

    pub(super) fn try_open(&self) -> Result<Open, LoadError> {
        self.bench.try_open(self.options())
    }

    pub(super) fn open(&self) -> Open {
        self.try_open().unwrap()
    }

    fn recovery_config(&self) -> RecoveryConfig {
        let options = self.options();
        RecoveryConfig {
            segment: self.bench.config.segment,
            psm: self.bench.config.psm,
            clean_shutdown: options.clean_shutdown,
            recovery_point: options.recovery_point,
            log_start_offset: options.log_start_offset,
            side_dir: options.side_dir,
            now: options.now,
        }
    }
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

fn optional(value: &Value) -> Option<i64> {
    value.as_i64()
}

// What weir says, in the words of `expected.json`.

fn producer(id: weir_format::ProducerId, entry: &ProducerStateEntry) -> Value {
    let batches: Vec<Value> = entry
        .batches()
        .iter()
        .map(|batch| {
            json!({
                "firstSeq": batch.first_sequence().map_or(-1, |sequence| sequence.get()),
                "lastSeq": batch.last_sequence().map_or(-1, |sequence| sequence.get()),
                "firstOffset": batch.first_offset().get(),
                "lastOffset": batch.last_offset().get(),
                "offsetDelta": batch.offset_delta(),
                "timestamp": batch.timestamp().get(),
            })
        })
        .collect();
    json!({
        "producerId": id.get(),
        "epoch": entry.producer_epoch().map_or(-1, |epoch| i64::from(epoch.get())),
        "coordinatorEpoch": entry.coordinator_epoch().unwrap_or(-1),
        "lastTimestamp": entry.last_timestamp().get(),
        "currentTxnFirstOffset": entry.transaction_first_offset().map(|first| first.get()),
        "batches": batches,
    })
}

fn producers(open: &Open) -> Vec<Value> {
    open.log.producers().map(|(id, entry)| producer(id, entry)).collect()
}

/// The same with windows of batches as short as those that Kafka has after it loaded a snapshot.
pub(super) fn with_windows_of(mut found: Vec<Value>, expected: &Value) -> Value {
    for (found, expected) in found.iter_mut().zip(expected.as_array().unwrap()) {
        let batches = found["batches"].as_array_mut().unwrap();
        let count = expected["batches"].as_array().unwrap().len();
        batches.drain(..batches.len().saturating_sub(count));
    }
    Value::Array(found)
}

fn epochs(open: &Open) -> Value {
    let pairs = open.log.epochs().entries().iter();
    pairs.map(|entry| json!([entry.epoch.get(), entry.start_offset.get()])).collect()
}

fn aborted(open: &mut Open) -> Value {
    let entries = open.aborted();
    entries
        .iter()
        .map(|entry| {
            json!({
                "producerId": entry.producer_id.get(),
                "firstOffset": entry.first_offset.get(),
                "lastOffset": entry.last_offset.get(),
                "lastStableOffset": entry.last_stable_offset.get(),
            })
        })
        .collect()
}

fn epoch_ends(open: &Open, asked: &Value) -> Value {
    let asked = asked.as_array().unwrap().iter().map(|vector| int(&vector["epoch"]));
    asked
        .map(|asked| {
            let found = open.log.end_offset_for_epoch(epoch(i32::try_from(asked).unwrap()));
            json!({"epoch": asked, "answer": found.map(|(epoch, end)| json!([epoch.get(), end.get()]))})
        })
        .collect()
}

/// State at each offset at which Kafka has a snapshot, by cutting the log there; what Kafka's say of offsets that are no
/// end of a batch here, or lie in front of the log, is taken over.
fn snapshots(golden: &Golden, expected: &Value) -> Value {
    let expected = expected.as_object().unwrap();
    let mut found = serde_json::Map::new();
    let mut open = golden.open();
    for (name, producers_there) in expected.iter().rev() {
        let at: i64 = name.strip_suffix(".snapshot").unwrap().parse().unwrap();
        let first = open.log.segments()[0].base_offset.get();
        let state = if at < first {
            assert_eq!(producers_there, &json!([]), "Kafka kept a snapshot in front of the log");
            json!([])
        } else {
            open.truncate(at);
            assert_eq!(open.log.log_end_offset().get(), at, "Kafka took a snapshot at the end of a batch");
            with_windows_of(producers(&open), producers_there)
        };
        found.insert(name.clone(), state);
    }
    Value::Object(found)
}

/// Sizes, largest timestamps and both indexes of every segment, as the files say after a clean stop.
fn segments(golden: &Golden, open: Open) -> Value {
    let found = open.log.segments();
    open.close();
    // A load builds the indexes of what it distrusts, of other segments who asks for them.
    let built = golden.bench.disk.contents();
    let (mut io, config) = (golden.bench.disk.io(), golden.bench.config.segment);
    let mut log = LocalLog::open(&mut io, &golden.bench.dir, config, offset(0)).unwrap();
    let largest: Vec<Option<i64>> = found
        .iter()
        .map(|segment| log.segment_largest_timestamp(&mut io, segment.base_offset).unwrap())
        .map(|largest| largest.map(|largest| largest.timestamp.get()))
        .collect();
    log.abandon(&mut io).unwrap();
    let files = if golden.form == Form::Replay { built } else { golden.bench.disk.contents() };
    let of = |(segment, largest): (&weir_log::SegmentInfo, Option<i64>)| {
        let base = segment.base_offset;
        let file = |suffix: &str| {
            let name = format!("{:020}.{suffix}", base.get());
            files.get(&golden.bench.path(&name)).cloned().unwrap_or_default()
        };
        let offsets = OffsetIndex::decode(base, &file("index")).map_or(json!("spoilt"), |offsets| {
            offsets.entries().map(|entry| json!([entry.offset.get(), entry.position])).collect()
        });
        let times = TimeIndex::decode(base, &file("timeindex")).map_or(json!("spoilt"), |times| {
            times.entries().map(|entry| json!([entry.timestamp.get(), entry.offset.get()])).collect()
        });
        json!({
            "baseOffset": base.get(),
            "size": segment.size,
            "largestTimestamp": largest,
            "offsetIndex": offsets,
            "timeIndex": times,
        })
    };
    found.iter().zip(largest).map(of).collect()
}

/// What weir says where `expected.json` has this field; `None` if nobody compares it.
pub(super) fn answer(golden: &Golden, field: &str, expected: &Value) -> Option<Value> {
    let mut open = match golden.try_open() {
        Ok(open) => open,
        Err(error) => return Some(json!(error.to_string())),
    };
    let view = open.log.view();
    let unstable = |open: &Open| open.log.open_transactions().first().map(|open| open.first_offset.get());
    Some(match field {
        // How the form is opened.
        "cleanShutdown" => json!(golden.options().clean_shutdown),
        "auxiliaryFilesRemovedFirst" => json!(golden.form == Form::Replay),
        "logStartOffset" => json!(view.log_start_offset.get()),
        "logEndOffset" => {
            assert_eq!(view.high_watermark, view.log_end_offset);
            json!(view.log_end_offset.get())
        }
        "lastStableOffsetWithHighWatermarkAtEnd" => json!(view.last_stable_offset.get()),
        "firstUnstableOffset" | "firstUnstableOffsetRebuilt" => json!(unstable(&open)),
        "leaderEpochs" => epochs(&open),
        "segments" => segments(golden, open),
        "abortedTransactions" => aborted(&mut open),
        "producers" => with_windows_of(producers(&open), expected),
        "producersRebuiltWithoutSnapshots" => Value::Array(producers(&open)),
        "producerStateEndOffset" => json!(open.log.producer_state().map_end_offset().get()),
        "snapshots" => snapshots(golden, expected),
        "endOffsetForEpoch" => epoch_ends(&open, expected),
        _ => return None,
    })
}

/// Where weir's answer is another than Kafka's.
struct Exception {
    logs: &'static [&'static str],
    forms: &'static [Form],
    fields: &'static [&'static str],
    /// Why.
    reason: &'static str,
    /// What is right instead of what Kafka says.
    right: fn(&Value, &Value) -> Value,
}

/// Where weir refuses what Kafka loads: a flipped bit takes the partition offline in both forms. File, and offset below
/// which all is valid.
const OFFLINE: [(&str, &str, i64); 4] = [
    // Kafka cuts at it.
    ("bitflip-active", "00000000000000000224.log", 231),
    // Kafka cuts there and deletes the later segments; without the segment's index it leaves a hole in the log.
    ("bitflip-sealed", "00000000000000000000.log", 56),
    // Kafka does not look: it lies below the recovery point.
    ("bitflip-sealed-unseen", "00000000000000000000.log", 56),
    // Kafka does not look: the clean marker is there.
    ("bitflip-clean", "00000000000000000224.log", 231),
];

const BOTH: &[Form] = &Form::ALL;
const LOAD: &[Form] = &[Form::Load];
const BARRIERS: &[&str] = &["barrier", "barrier-compacted", "barrier-unclean"];

/// `right` is given the whole file and what Kafka says in this field.
const EXCEPTIONS: &[Exception] = &[
    Exception {
        logs: BARRIERS,
        forms: BOTH,
        fields: &["producers", "producersRebuiltWithoutSnapshots"],
        reason: "Kafka 4.4 does not know the barrier; kip1279.json: before 54 nothing is known (law B2), and what comes \
                 behind it in barrier-compacted has no producer",
        right: |_, _| json!([]),
    },
    Exception {
        logs: BARRIERS,
        forms: BOTH,
        fields: &["snapshots"],
        reason: "the same, in the snapshots behind the barrier at 53",
        right: |_, kafka| {
            let known = |(name, producers): (&String, &Value)| {
                let behind = name.as_str() >= "00000000000000000054.snapshot";
                (name.clone(), if behind { json!([]) } else { producers.clone() })
            };
            Value::Object(kafka.as_object().unwrap().iter().map(known).collect())
        },
    },
    Exception {
        logs: &["codec-gzip", "codec-lz4", "codec-snappy", "codec-zstd"],
        forms: BOTH,
        fields: &["producers"],
        reason: "Kafka expires a producer when it loads a snapshot; the state before expiry is the rebuilt one",
        right: |expected, _| expected["replay"]["producersRebuiltWithoutSnapshots"].clone(),
    },
    Exception {
        logs: &["compacted", "compacted-hard"],
        forms: LOAD,
        fields: &["snapshots"],
        reason: "the snapshots that the broker wrote know a producer whose batches were compacted away since; a snapshot \
                 that weir did not write is not loaded (law B7), and the bytes say what Kafka's replay says",
        right: |expected, _| expected["replay"]["snapshots"].clone(),
    },
    Exception {
        logs: &["deleted-all"],
        forms: LOAD,
        fields: &["leaderEpochs"],
        reason: "the checkpoint that the broker left is empty, the log holds batches of an epoch: it is built again, and is \
                 what Kafka's replay says",
        right: |expected, _| expected["replay"]["leaderEpochs"].clone(),
    },
    Exception {
        logs: &["deleted-all"],
        forms: LOAD,
        fields: &["endOffsetForEpoch"],
        reason: "the same: epoch 0 is known, and ends where the log does",
        right: |_, _| json!([{"epoch": 0, "answer": [0, 150]}]),
    },
    Exception {
        logs: &["deleted-all"],
        forms: BOTH,
        fields: &["producers", "producersRebuiltWithoutSnapshots"],
        reason: "all is replayed from the first segment, not from the log start (law B7): who wrote 140 to 149 is known, and \
                 goes on at 150 as before (SNAP-6)",
        right: |_, _| {
            json!([{
                "producerId": 13, "epoch": 0, "coordinatorEpoch": -1, "lastTimestamp": 1_795_979_071_941_i64,
                "currentTxnFirstOffset": null,
                "batches": [
                    {"firstSeq": 140, "lastSeq": 148, "firstOffset": 140, "lastOffset": 148, "offsetDelta": 8,
                     "timestamp": 1_795_979_071_941_i64},
                    {"firstSeq": 149, "lastSeq": 149, "firstOffset": 149, "lastOffset": 149, "offsetDelta": 0,
                     "timestamp": 1_795_979_071_941_i64},
                ],
            }])
        },
    },
    Exception {
        logs: &["magic-v0"],
        forms: LOAD,
        fields: &["segments"],
        reason: "messages of magic 0 have no timestamp, and a time index without an entry is built again, the offset index \
                 with it: it says what Kafka's replay says",
        right: |expected, _| expected["replay"]["segments"].clone(),
    },
    Exception {
        logs: &["leader-epochs-empty-last"],
        forms: LOAD,
        fields: &["leaderEpochs"],
        reason: "Kafka drops the last epoch without records when it loads; it is in force and is kept (EPOCH-3)",
        right: |_, kafka| {
            let mut epochs = kafka.as_array().unwrap().clone();
            epochs.push(json!([8, 90]));
            Value::Array(epochs)
        },
    },
    Exception {
        logs: &["leader-epochs-empty-last"],
        forms: LOAD,
        fields: &["endOffsetForEpoch"],
        reason: "the same: of epoch 7, which never was, the newest one below it ended where epoch 8 begins",
        right: |_, kafka| {
            let answer = |vector: &Value| match int(&vector["epoch"]) {
                7 => json!({"epoch": 7, "answer": [6, 90]}),
                _ => vector.clone(),
            };
            kafka.as_array().unwrap().iter().map(answer).collect()
        },
    },
];

fn exception(log: &str, form: Form, field: &str) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|exception| {
        exception.logs.contains(&log) && exception.forms.contains(&form) && exception.fields.contains(&field)
    })
}

/// A snapshot has one timestamp for a producer and its newest batch.
pub(super) fn without_batch_timestamps(field: &str, mut value: Value) -> Value {
    let strip = |producers: &mut Value| {
        for producer in producers.as_array_mut().unwrap() {
            for batch in producer["batches"].as_array_mut().unwrap() {
                batch.as_object_mut().unwrap().remove("timestamp");
            }
        }
    };
    match field {
        "producers" => strip(&mut value),
        "snapshots" => value.as_object_mut().unwrap().values_mut().for_each(strip),
        _ => {}
    }
    value
}

#[test]
fn every_directory_loads_to_what_kafka_says_of_it() {
    let mut failures = Vec::new();
    let mut unmet: Vec<(&'static str, Form, &'static str)> = Vec::new();
    for exception in EXCEPTIONS {
        assert!(!exception.reason.is_empty());
        for (log, form) in
            exception.logs.iter().flat_map(|log| exception.forms.iter().map(move |form| (*log, *form)))
        {
            unmet.extend(exception.fields.iter().map(|field| (log, form, *field)));
        }
    }
    let offline = |name: &str| OFFLINE.iter().any(|(log, ..)| *log == name);
    for name in golden_names().iter().filter(|name| !offline(name)) {
        for form in Form::ALL {
            let golden = golden_as(name, form);
            let fields = golden.expected[form.key()].as_object().unwrap().clone();
            for (field, kafka) in &fields {
                // Each field on a disk of its own: some answers change it.
                let fresh = Golden { bench: golden.bench.fork(), expected: golden.expected.clone(), form };
                let Some(found) = answer(&fresh, field, kafka) else {
                    panic!("{name}: nobody compares {field}");
                };
                let found = without_batch_timestamps(field, found);
                let kafka = without_batch_timestamps(field, kafka.clone());
                let right = match exception(name, form, field) {
                    None => kafka,
                    Some(exception) => {
                        let right = (exception.right)(&golden.expected, &kafka);
                        let right = without_batch_timestamps(field, right);
                        if right != kafka {
                            unmet.retain(|met| *met != (name.as_str(), form, field.as_str()));
                        }
                        right
                    }
                };
                if right != found {
                    failures.push(format!("{name} {form:?} {field}:\n  weir  {found}\n  right {right}"));
                }
            }
        }
    }
    // A field that a form does not have, such as the rebuilt state of a load, is no exception there.
    unmet.retain(|(log, form, field)| !golden_as(log, *form).expected[form.key()][*field].is_null());
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
    assert!(unmet.is_empty(), "there Kafka says what is called right: {unmet:?}");
}

#[test]
fn every_golden_directory_is_there_and_looked_at() {
    let names = golden_names();
    assert_eq!(names.len(), 54);
    for (name, ..) in OFFLINE {
        assert!(names.contains(name));
    }
    // Every field of every file is compared by the test above; these two say how a directory is opened.
    for name in &names {
        let golden = golden(name);
        let keys: Vec<&str> = golden.expected.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["clockMs", "inputs", "load", "partition", "readWithKafka", "replay"], "{name}");
        let inputs: Vec<&str> =
            golden.expected["inputs"].as_object().unwrap().keys().map(String::as_str).collect();
        let known = [
            "cleanShutdownMarker",
            // Not trusted: the high watermark is the end of what is durable.
            "highWatermarkCheckpoint",
            "logStartOffsetCheckpoint",
            "recoveryPointCheckpoint",
        ];
        assert_eq!(inputs, known, "{name}");
    }
}

#[test]
fn a_look_at_every_directory_finds_what_the_load_finds_and_changes_nothing() {
    for name in golden_names() {
        for form in Form::ALL {
            let golden = golden_as(&name, form);
            let (before, ops) = (golden.bench.disk.contents(), golden.bench.disk.op_count());
            let config = golden.recovery_config();
            let found =
                inspect(&mut golden.bench.disk.io(), &golden.bench.dir, &config, &mut Unwatched).unwrap();
            assert_eq!(golden.bench.disk.contents(), before, "{name} {form:?}");
            assert_eq!(golden.bench.disk.op_count(), ops, "{name} {form:?}");
            match golden.try_open() {
                Ok(mut open) => {
                    assert_eq!(found.corruption, None, "{name} {form:?}");
                    assert_eq!(found.report, open.report, "{name} {form:?}");
                    assert_equal_state(&found.producers, open.log.producer_state(), &name);
                    assert_eq!(found.aborted_transactions, open.aborted(), "{name} {form:?}");
                    assert_eq!(&found.epochs, open.log.epochs(), "{name} {form:?}");
                    assert_eq!(
                        found.last_stable_offset,
                        open.log.view().last_stable_offset,
                        "{name} {form:?}"
                    );
                }
                Err(LoadError::Corrupt(corruption)) => {
                    assert_eq!(found.corruption.as_ref(), Some(&*corruption), "{name} {form:?}");
                    assert_eq!(found.log_end_offset, corruption.next_offset, "{name} {form:?}");
                }
                Err(error) => panic!("{name} {form:?}: {error}"),
            }
        }
    }
}

/// Kafka cuts at a flipped bit, or does not see it. weir takes the partition offline, and changes nothing.
#[test]
fn a_flipped_bit_is_corruption_and_nothing_is_cut() {
    for ((name, file, next_offset), form) in
        OFFLINE.into_iter().flat_map(|log| Form::ALL.map(|form| (log, form)))
    {
        let golden = golden_as(name, form);
        // Indexes of segments in front of the place may be built, and say nothing of their own.
        let all_but_indexes = || {
            let mut files = golden.bench.disk.contents();
            files.retain(|path, _| {
                path.extension().is_none_or(|suffix| suffix != "index" && suffix != "timeindex")
            });
            files
        };
        let before = all_but_indexes();
        let Err(LoadError::Corrupt(corruption)) = golden.try_open() else {
            panic!("{name} {form:?} was loaded")
        };
        assert!(matches!(corruption.found, Invalid::Batch(_)), "{name}: {corruption}");
        assert_eq!(corruption.file, golden.bench.path(file), "{name}");
        assert_eq!(corruption.next_offset, offset(next_offset), "{name}");
        let sealed = name.starts_with("bitflip-sealed");
        assert_eq!(corruption.last_segment.is_some(), sealed, "{name}");
        assert!(corruption.behind.is_some_and(|behind| behind.base_offset > offset(next_offset)), "{name}");
        let text = corruption.to_string();
        let place = format!("{file}: corrupt at byte {}", corruption.position);
        assert!(text.contains(&place) && text.contains("weir dump-log"), "{text}");
        let remedy = format!("weir recover {} --accept-cut {next_offset}", golden.bench.dir.display());
        assert!(text.contains(&remedy), "{text}");
        assert_eq!(all_but_indexes(), before, "{name}: nothing was changed");
    }
}

/// `barrier` and `barrier-unclean`: all as Kafka says, but for producers, which are as `kip1279.json` says.
fn check_barrier(name: &str) {
    let golden = golden(name);
    let mut open = golden.open();

    // B7: the snapshots at 31 and 54 were written by a Kafka that does not know the barrier.
    let reason = NoSnapshot::NoPartitionFile;
    assert_eq!(open.report.producer_state, ProducerStateSource::Replay { from: offset(0), reason });
    let barriers: Vec<_> = open
        .report
        .barriers
        .iter()
        .map(|found| (found.offset.get(), found.producers_expired, found.transactions_aborted))
        .collect();
    assert_eq!(barriers, [(31, 2, 0), (53, 2, 0)]);
    assert_eq!(open.log.producers().count(), 0, "at 54 nothing is known");

    // State at every offset that kip1279.json names, by cutting the log there.
    let kip: Value =
        serde_json::from_str(&std::fs::read_to_string(testdata().join(name).join("kip1279.json")).unwrap())
            .unwrap();
    let mut before: Vec<(i64, &Value)> = kip["producersBeforeOffset"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(at, producers)| (at.parse().unwrap(), producers))
        .collect();
    before.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let keys: Vec<&str> = kip.as_object().unwrap().keys().map(String::as_str).collect();
    let known =
        ["abortedTransactions", "lastStableOffset", "produceAtTheEnd", "producersBeforeOffset", "source"];
    assert_eq!(keys, known, "the last but one is PID-1 below");
    assert_eq!(open.log.view().last_stable_offset.get(), int(&kip["lastStableOffset"]));
    let mut aborted = aborted(&mut open);
    for entry in aborted.as_array_mut().unwrap() {
        entry.as_object_mut().unwrap().remove("lastStableOffset");
    }
    assert_eq!(aborted, kip["abortedTransactions"]);
    assert_eq!(before.len(), 6);
    drop(open);
    for (at, producers) in before {
        let mut open = golden.open();
        open.truncate(at);
        assert_eq!(open.log.log_end_offset(), offset(at));
        let producers = producers.as_array().unwrap();
        assert_eq!(open.log.producers().count(), producers.len(), "before {at}");
        for ((id, entry), expected) in open.log.producers().zip(producers) {
            assert_eq!(id.get(), int(&expected["producerId"]), "before {at}");
            let found_epoch = entry.producer_epoch().map(|epoch| i64::from(epoch.get()));
            assert_eq!(found_epoch, optional(&expected["epoch"]), "before {at}");
            let last_sequence = entry.last_sequence().map(|sequence| i64::from(sequence.get()));
            assert_eq!(last_sequence, optional(&expected["lastSequence"]), "before {at}");
            assert_eq!(
                entry.last_offset().map(|last| last.get()),
                optional(&expected["lastOffset"]),
                "before {at}"
            );
            if let Some(coordinator) = optional(&expected["coordinatorEpoch"]) {
                assert_eq!(entry.coordinator_epoch().map(i64::from), Some(coordinator), "before {at}");
            }
            let open_from = entry.transaction_first_offset().map(|first| first.get());
            assert_eq!(open_from, optional(&expected["currentTxnFirstOffset"]), "before {at}");
        }
    }

    // PID-1 on Kafka's own bytes: the colliding batch gets the log end, and is not taken for a duplicate.
    let golden = self::golden(name);
    let mut open = golden.open();
    let params = AppendParams::client(epoch(2), NOW);
    let taken = open.append(data(Some((5, 0, 0)), false, 10, 8), &params).unwrap();
    assert_eq!((taken.base_offset, taken.duplicate), (offset(54), false));
    assert_eq!(open.log.log_end_offset(), offset(64));
}

#[test]
fn barrier_loads_to_what_the_kip_says() {
    check_barrier("barrier");
}

#[test]
fn barrier_unclean_loads_to_what_the_kip_says() {
    check_barrier("barrier-unclean");
}

#[test]
fn a_foreign_directory_is_replayed_once() {
    let golden = golden("barrier");
    let open = golden.open();
    assert_eq!(open.report.rebuilt, [Rebuilt::PartitionFile]);
    open.close();
    let open = golden.bench.open_clean();
    assert_eq!(open.report.producer_state, ProducerStateSource::Snapshot { offset: offset(54) });
    assert_eq!(open.report.walked_from, Some(offset(31)), "the first segment is not read again");
    assert_eq!(open.log.last_batch().map(|last| last.is_barrier), Some(true));
    let barriers: Vec<_> = open.log.partition_file().barriers().map(|(at, _)| at.get()).collect();
    assert_eq!(barriers, [31, 53]);
}

/// Logs whose last bytes are torn, and were above the recovery point: cut as Kafka cuts them.
#[test]
fn torn_tails_are_cut_where_kafka_cuts_them() {
    for (name, torn) in [
        ("torn-body", true),
        ("torn-header", true),
        // Five bytes of the batch are left, the upper ones of its offset, and those are zeros.
        ("torn-length", false),
        ("garbage-tail", true),
        ("short-tail", true),
        ("zeros-tail", false),
        ("kill9-prealloc", false),
    ] {
        let golden = golden(name);
        let mut open = golden.open();
        let [cut] = &open.report.cuts[..] else { panic!("{name}: {:?}", open.report.cuts) };
        assert_eq!(cut.kind, if torn { CutKind::Torn } else { CutKind::Preallocated }, "{name}");
        assert_eq!(golden.bench.disk.read_file(&cut.file).unwrap().len() as u64, cut.position, "{name}");
        // R5: the same again, and nothing left to cut.
        let facts = open.facts();
        drop(open);
        let mut again = golden.open();
        assert_eq!(again.facts(), facts, "{name}");
        assert_eq!(again.report.cuts, [], "{name}");
    }
}

#[test]
fn a_missing_epoch_checkpoint_is_rebuilt_from_the_log() {
    let golden = golden("no-epoch-checkpoint");
    let open = golden.open();
    assert!(open.report.rebuilt.contains(&Rebuilt::LeaderEpochs));
}

/// Kafka drops the last epoch without records when it loads; we keep it (EPOCH-3).
#[test]
fn the_last_epoch_without_records_is_kept() {
    let golden = golden("leader-epochs-empty-last");
    let open = golden.open();
    let last = open.log.epochs().latest().unwrap();
    assert_eq!((last.epoch.get(), last.start_offset.get()), (8, 90));
    let kafka = golden.expected["load"]["leaderEpochs"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((int(&kafka[0]), int(&kafka[1])), (6, 60), "what Kafka's own load ends with");
}

#[test]
fn a_log_start_inside_a_batch_is_kept() {
    let golden = golden("deleted-records");
    let mut open = golden.open();
    let read = open.read(174, 1, Isolation::Uncommitted);
    let first = BatchReader::new(&read.bytes).next().unwrap().unwrap();
    assert!(first.base_offset() <= offset(174) && first.last_offset() >= offset(174));
}
