//! Directories that this repository does not carry, made by Kafka's classes and damaged, each with what Kafka makes of it
//! (`cargo xtask golden --make`): weir's load says the same, or the difference is of a kind that stands here with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_format::{
    AnyBatch, AnyBatchReader, ControlRecordType, LeaderEpoch, Offset, RecordBatch, TimestampMs,
};
use weir_log::{Isolation, OffsetSpec, ReadError};
use weir_recovery::{Corruption, CutKind, LoadError};

use super::golden::{Form, Golden, answer, golden_in, with_windows_of, without_batch_timestamps};
use super::golden_reads::{self, Outcome};
use super::support::{Open, offset};

/// Those that say how they were made; others have no answers to reads.
fn made(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let is_made = |path: &PathBuf| {
        let text = std::fs::read_to_string(path.join("expected.json"));
        text.is_ok_and(|text| text.contains("\"made\": "))
    };
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(is_made).collect();
    folders.sort();
    folders
}

/// One directory in both forms.
fn checked(log: &Path) -> Sums {
    let mut sums = Sums::default();
    for form in Form::ALL {
        check(&mut sums, log, form);
    }
    sums
}

/// Bytes, and first offset and producer id of what is listed as aborted.
type Fetched = (Vec<u8>, Vec<(i64, i64)>);

/// A batch as a plain reader sees it.
#[derive(Debug)]
struct Seen {
    segment: usize,
    base: i64,
    next: i64,
    bytes: Vec<u8>,
    /// Offset and timestamp.
    records: Vec<(i64, i64)>,
}

/// What a plain reader of the batches knows, barriers and all.
#[derive(Debug, Default)]
struct Naive {
    batches: Vec<Seen>,
    /// Producer id, and first offset of its open transaction.
    open: BTreeMap<i64, i64>,
    /// Producer id, first, last and last stable offset.
    aborted: Vec<(i64, i64, i64, i64)>,
    barriers: BTreeSet<i64>,
    /// A batch has the largest timestamp, and no such record, or records that cannot be read.
    no_latest: bool,
    malformed: bool,
    /// Leader epochs as a live follower assigns them.
    epochs: Vec<(i32, i64)>,
    start: i64,
    end: i64,
}

impl Naive {
    fn of(segments: &[(Offset, Vec<u8>)], start: i64) -> Naive {
        let mut naive = Naive { start, ..Naive::default() };
        let mut latest = -1;
        for (segment, (base, bytes)) in segments.iter().enumerate() {
            naive.end = naive.end.max(base.get());
            let mut reader = AnyBatchReader::new(bytes);
            let mut position = 0;
            while let Some(Ok(batch)) = reader.next() {
                let bytes = bytes[position..reader.position()].to_vec();
                position = reader.position();
                let (base, next) = match &batch {
                    AnyBatch::Batch(batch) => {
                        naive.batch(batch);
                        (batch.base_offset().get(), batch.next_offset().get())
                    }
                    AnyBatch::Message(message) => (message.offset().get(), message.offset().get() + 1),
                };
                naive.end = next;
                let (records, whole) = records(&batch);
                naive.malformed |= !whole;
                naive.batches.push(Seen { segment, base, next, bytes, records });
                if let AnyBatch::Batch(batch) = &batch {
                    let max = batch.max_timestamp().get();
                    latest = latest.max(max);
                    let last = naive.batches.last().unwrap();
                    naive.malformed |= last.records.iter().any(|(_, time)| *time > max);
                }
            }
        }
        let times = naive.batches.iter().flat_map(|batch| &batch.records).map(|(_, time)| *time);
        naive.no_latest = times.max().is_none_or(|of_records| of_records < latest);
        naive
    }

    fn batch(&mut self, batch: &RecordBatch<'_>) {
        let base = batch.base_offset().get();
        if let Some(epoch) = batch.leader_epoch().map(LeaderEpoch::get)
            && self.epochs.last().is_none_or(|(latest, _)| *latest != epoch)
        {
            self.epochs.retain(|(other, at)| *other < epoch && *at < base);
            self.epochs.push((epoch, base));
        }
        let after = |open: &BTreeMap<i64, i64>, last: i64| open.values().min().copied().unwrap_or(last + 1);
        if batch.is_barrier() {
            self.barriers.insert(base);
            let mut ended: Vec<(i64, i64)> = self.open.iter().map(|(id, first)| (*first, *id)).collect();
            ended.sort_unstable();
            for (first, id) in ended {
                self.open.remove(&id);
                self.aborted.push((id, first, base, after(&self.open, base)));
            }
        } else if let Some(id) = batch.producer_id() {
            let id = id.get();
            if batch.is_control() {
                let kind = batch.control_type();
                if matches!(kind, Some(ControlRecordType::Abort | ControlRecordType::Commit))
                    && let Some(first) = self.open.remove(&id)
                    && kind == Some(ControlRecordType::Abort)
                {
                    self.aborted.push((id, first, base, after(&self.open, base)));
                }
            } else if batch.is_transactional() {
                self.open.entry(id).or_insert(base);
            }
        }
    }

    fn unstable(&self) -> Option<i64> {
        self.open.values().min().copied()
    }

    /// A transaction that began below the log start is open all the same.
    fn stable(&self) -> i64 {
        self.unstable().map_or(self.end, |first| first.max(self.start))
    }

    fn aborted(&self) -> Value {
        let entry = |(id, first, last, stable): &(i64, i64, i64, i64)| json!({"producerId": id, "firstOffset": first, "lastOffset": last, "lastStableOffset": stable});
        self.aborted.iter().map(entry).collect()
    }

    /// The first record from the log start on that is not older; largest timestamp: the first that has it, if it can be read.
    fn offset_for(&self, spec: OffsetSpec) -> Option<(i64, i64)> {
        let mut records = self.batches.iter().flat_map(|batch| &batch.records);
        match spec {
            OffsetSpec::Timestamp(asked) => records
                .find(|(at, time)| *time >= asked.get() && *at >= self.start)
                .map(|(at, time)| (*time, *at)),
            _ => {
                let latest = records.clone().map(|(_, time)| *time).max().filter(|time| *time >= 0)?;
                let at = records.find(|(_, time)| *time == latest)?.0;
                (at >= self.start).then_some((latest, at))
            }
        }
    }

    /// The bytes of a fetch and what is listed as aborted: whole batches of one segment; `None` if out of range.
    fn fetch(&self, from: i64, max: usize, committed: bool) -> Option<Fetched> {
        if from < self.start || from > self.end {
            return None;
        }
        let end = if committed { self.stable() } else { self.end };
        if from >= end {
            return Some((Vec::new(), Vec::new()));
        }
        let mut taken: Vec<&Seen> = Vec::new();
        let mut size = 0;
        for batch in self.batches.iter().filter(|batch| batch.next > from && batch.base < end) {
            let fits = taken
                .first()
                .is_none_or(|first| first.segment == batch.segment && size + batch.bytes.len() <= max);
            if !fits {
                break;
            }
            size += batch.bytes.len();
            taken.push(batch);
        }
        let mut listed = Vec::new();
        if committed && let (Some(first), Some(last)) = (taken.first(), taken.last()) {
            let overlaps = |(_, begin, end, _): &&(i64, i64, i64, i64)| {
                *begin < last.next && *end >= from.max(first.base)
            };
            let aborted: Vec<&(i64, i64, i64, i64)> = self.aborted.iter().filter(overlaps).collect();
            // A response that lists what was aborted at a barrier ends before it; one that begins with it does not list it.
            let cut = aborted
                .iter()
                .map(|entry| entry.2)
                .filter(|at| self.barriers.contains(at) && *at > first.base)
                .min();
            if let Some(cut) = cut {
                taken.retain(|batch| batch.base < cut);
            }
            let end = taken.last().map_or(from, |last| last.next);
            let first = taken.first().map_or(from, |first| first.base);
            let needed = |entry: &&&(i64, i64, i64, i64)| {
                entry.1 < end && !(self.barriers.contains(&entry.2) && entry.2 <= first)
            };
            listed = aborted.iter().filter(needed).map(|entry| (entry.1, entry.0)).collect();
            listed.sort_unstable();
        }
        Some((taken.iter().flat_map(|batch| batch.bytes.clone()).collect(), listed))
    }
}

/// Offsets and timestamps, and whether all records could be read.
fn records(batch: &AnyBatch<'_>) -> (Vec<(i64, i64)>, bool) {
    let mut found = Vec::new();
    let mut add = |record: weir_format::Record<'_>| found.push((record.offset.get(), record.timestamp.get()));
    match batch {
        AnyBatch::Batch(batch) => {
            let mut records = batch.record_stream(1 << 24);
            while let Some(record) = records.next_record() {
                match record {
                    Ok(record) => add(record),
                    Err(_) => return (found, false),
                }
            }
        }
        AnyBatch::Message(message) => {
            let Ok(mut records) = message.record_stream(1 << 24) else { return (found, false) };
            while let Some(record) = records.next_record() {
                match record {
                    Ok(record) => add(record),
                    Err(_) => return (found, false),
                }
            }
        }
    }
    (found, true)
}

/// Everything about one directory in one form.
struct Case<'a> {
    golden: &'a Golden,
    naive: Naive,
    /// Kafka's replay ends with the same segments.
    same_content: bool,
    start_above_end: bool,
    /// The leader-epoch checkpoint as it lies.
    checkpoint: String,
    /// Leader epochs as weir has them.
    epochs: Vec<(i32, i64)>,
}

impl Case<'_> {
    fn other(&self) -> &Value {
        &self.golden.expected[if self.golden.form == Form::Load { "replay" } else { "load" }]
    }

    /// Why `ours` is right, where Kafka says something else.
    fn kind(&self, field: &str, ours: &Value, kafka: &Value) -> Option<&'static str> {
        let replay = &self.golden.expected["replay"];
        if self.start_above_end {
            return Some("R6: the log start above the end is the end; Kafka drops the log");
        }
        Some(match field {
            "endOffsetForEpoch" => {
                let epochs = &self.epochs;
                let right = |asked: i64| {
                    let higher = epochs.iter().find(|(epoch, _)| i64::from(*epoch) > asked);
                    let floor = epochs.iter().rev().find(|(epoch, _)| i64::from(*epoch) <= asked);
                    match (floor, higher) {
                        (Some((epoch, _)), None) => {
                            (i64::from(*epoch) == asked).then(|| json!([asked, self.naive.end]))
                        }
                        (Some((epoch, _)), Some((_, end))) => Some(json!([epoch, end])),
                        (None, Some((_, end))) => Some(json!([asked, end])),
                        (None, None) => None,
                    }
                };
                let right = kafka
                    .as_array()?
                    .iter()
                    .map(|vector| json!({"epoch": vector["epoch"], "answer": right(int(&vector["epoch"]))}));
                if *ours != right.collect::<Value>() {
                    return None;
                }
                "EPOCH-3, R6: as the epochs that are right"
            }
            "producers" | "producersRebuiltWithoutSnapshots" => {
                if !replay["exception"].is_null() {
                    return Some("B7: replayed from the first segment; Kafka's own replay fails");
                }
                let from = if !self.naive.barriers.is_empty() {
                    &replay["producersRebuiltFromLastBarrier"]
                } else {
                    &replay["producersRebuiltFromFirstSegment"]
                };
                let from = without_batch_timestamps("producers", from.clone());
                let ours = without_batch_timestamps("producers", ours.clone());
                // Kafka forgets who has not written for a day, and a timestamp of -1 is long ago.
                let mut ours_known = ours.clone();
                let day = 86_400_000;
                let clock = int(&self.golden.expected["clockMs"]);
                ours_known.as_array_mut()?.retain(|entry| {
                    int(&entry["lastTimestamp"]) > clock - day || !entry["currentTxnFirstOffset"].is_null()
                });
                let ours = ours_known;
                // Some of these come from a snapshot, with one batch a producer.
                let (ours_then, from_then) = (ours.as_array()?, from.as_array()?);
                let same = ours_then.len() == from_then.len()
                    && with_windows_of(ours_then.clone(), &from) == with_windows_of(from_then.clone(), &ours);
                if !self.same_content || !same {
                    return None;
                }
                if !self.naive.barriers.is_empty() {
                    "B2: the barrier"
                } else {
                    "B7: replayed from the first segment"
                }
            }
            "abortedTransactions" if *ours == self.naive.aborted() => "B4, R4: what the batches say",
            "lastStableOffsetWithHighWatermarkAtEnd" if int(ours) == self.naive.stable() => {
                "B4, R4: what the batches say"
            }
            "firstUnstableOffset" | "firstUnstableOffsetRebuilt"
                if ours.as_i64() == self.naive.unstable() =>
            {
                "B4: what the batches say"
            }
            "leaderEpochs" if *ours == *self.other().get(field)? => "R6: as in Kafka's other form",
            "leaderEpochs" => {
                let mut epochs: Vec<(i32, i64)> = serde_json::from_value(ours.clone()).unwrap();
                let without_records = epochs.last().is_some_and(|(_, at)| *at == self.naive.end);
                let mut right = self.naive.epochs.clone();
                if without_records {
                    epochs.pop();
                }
                // What lies below the log start is one entry, from the log start on.
                let start = self.naive.start;
                let below = right.iter().rev().find(|(_, at)| *at < start).copied();
                right.retain(|(_, at)| *at >= start);
                if let Some((epoch, _)) = below
                    && right.first().is_none_or(|(_, at)| *at > start)
                    && start < self.naive.end
                {
                    right.insert(0, (epoch, start));
                }
                match (epochs == right, without_records) {
                    (true, false) => "R4: what the batches say",
                    (true, true) => "EPOCH-3: what the batches say, and the newest, which has none",
                    // Between and in front of batches the checkpoint's word stands, if no batch denies it.
                    (false, _) => {
                        let all: Vec<(i32, i64)> = serde_json::from_value(ours.clone()).unwrap();
                        let at = |offset: i64| {
                            all.iter().rev().find(|(_, at)| *at <= offset).map(|(epoch, _)| *epoch)
                        };
                        let agrees = right.iter().all(|(epoch, from)| at(*from) == Some(*epoch));
                        let is_said = |(epoch, _): &(i32, i64)| {
                            let said = self.checkpoint.split_whitespace();
                            self.naive.epochs.iter().any(|(other, _)| other == epoch)
                                || said.filter_map(|word| word.parse().ok()).any(|word: i32| word == *epoch)
                        };
                        if !agrees || !all.iter().all(is_said) {
                            return None;
                        }
                        "R6: what the checkpoint says, which no batch denies"
                    }
                }
            }
            "segments" => {
                let [load, replay] =
                    ["load", "replay"].map(|form| self.golden.expected[form]["segments"].as_array());
                let of = |form: Option<&Vec<Value>>, segment: &Value| {
                    form.into_iter()
                        .flatten()
                        .find(|other| other["baseOffset"] == segment["baseOffset"])
                        .cloned()
                };
                let mut why = "R6: an index as Kafka builds it";
                for segment in ours.as_array()? {
                    let kafkas: Vec<Value> =
                        [of(load, segment), of(replay, segment)].into_iter().flatten().collect();
                    for field in ["size", "largestTimestamp", "offsetIndex", "timeIndex"] {
                        if kafkas.iter().any(|kafkas| kafkas[field] == segment[field]) {
                            continue;
                        }
                        let name = format!("{:020}.index", int(&segment["baseOffset"]));
                        let file = self.golden.bench.disk.read_file(&self.golden.bench.path(&name));
                        let is_missing = file.is_none_or(|bytes| bytes.is_empty());
                        if segment[field] != "spoilt" && !(field == "offsetIndex" && is_missing) {
                            return None;
                        }
                        why = "a spoilt or missing index is built when it is first used";
                    }
                }
                why
            }
            _ => return None,
        })
    }
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap()
}

/// Fields that are compared elsewhere, or not at all.
const NOT_HERE: &[&str] = &[
    // Of the same log, from other places.
    "producersRebuiltFromFirstSegment",
    "producersRebuiltFromLastBarrier",
    // Which of Kafka's snapshots lie there says nothing of the log.
    "snapshots",
    "listOffsets",
    "fetches",
];

#[derive(Default)]
struct Sums {
    kinds: BTreeMap<String, BTreeSet<String>>,
    same: usize,
    wrong: Vec<String>,
}

impl Sums {
    fn kind(&mut self, kind: impl Into<String>, name: &str) {
        self.kinds.entry(kind.into()).or_default().insert(name.to_owned());
    }
}

fn short(text: &str) -> String {
    text.chars().take(600).collect()
}

/// What weir cuts as torn, and Kafka's recovery keeps: it knows no magic, and asks for no order.
fn kept_by_kafka(expected: &Value, report: &weir_recovery::RecoveryReport) -> Option<String> {
    let cut = report.cuts.iter().find(|cut| cut.kind == CutKind::Torn)?;
    let name = cut.file.file_name()?.to_str()?;
    let segments = expected["segments"].as_array()?;
    let segment = segments.iter().find(|segment| segment["file"] == name)?;
    let batches = segment["batches"].as_array()?;
    let batch = batches.iter().find(|batch| {
        int(&batch["position"]) >= i64::try_from(cut.position).unwrap() && batch["valid"] == true
    })?;
    let magic = int(&batch["magic"]);
    (!(0..=2).contains(&magic))
        .then(|| "R8: cut as torn, a batch of no known magic; Kafka keeps it".to_owned())
}

/// What Kafka's reader says of the place that weir calls corrupt.
fn kafka_at(expected: &Value, corruption: &Corruption) -> String {
    let name = corruption.file.file_name().unwrap().to_str().unwrap();
    let segments = expected["segments"].as_array().unwrap();
    let Some(segment) = segments.iter().find(|segment| segment["file"] == name) else {
        return "no such segment".to_owned();
    };
    let batches = segment["batches"].as_array().unwrap();
    let at = batches.iter().find(|batch| batch["position"] == corruption.position);
    match at {
        Some(batch) => match batch["valid"].as_bool() {
            Some(false) => "CRC wrong".to_owned(),
            Some(true) => "valid".to_owned(),
            None => format!("batch without verdict: {}", batch["stoppedBy"]),
        },
        None if segment["endOfLastReadableBatch"] == corruption.position => {
            "its reader stops there".to_owned()
        }
        None => "no batch of its there".to_owned(),
    }
}

fn check(sums: &mut Sums, folder: &Path, form: Form) {
    let dir_name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let name = format!("{dir_name} {}", form.key());
    let expected: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("expected.json")).unwrap()).unwrap();
    let golden = golden_in(folder, expected, form);
    let kafka = golden.expected[form.key()].clone();
    let made = golden.expected["made"].as_str().unwrap_or("?").to_owned();
    let fresh =
        |golden: &Golden| Golden { bench: golden.bench.fork(), expected: golden.expected.clone(), form };
    let once = fresh(&golden);
    let opened = match once.try_open() {
        Ok(opened) => opened,
        Err(LoadError::Corrupt(corruption)) => {
            let place = kafka_at(&golden.expected, &corruption);
            let does = match kafka["exception"].as_str() {
                Some(exception) => format!("fails with {exception}"),
                None if int(&kafka["logEndOffset"]) == corruption.next_offset.get() => "cuts".to_owned(),
                None if int(&kafka["logEndOffset"]) < corruption.next_offset.get() => "ends below".to_owned(),
                None => "goes on".to_owned(),
            };
            let found = format!("{:?}", corruption.found);
            let found = found.split([' ', '{', '(']).take(2).collect::<Vec<_>>().join("(");
            let kind = format!(
                "R8: offline ({found}, {:?}); Kafka's reader: {place}, its load {does}",
                corruption.reason
            );
            sums.kind(kind, &name);
            return;
        }
        Err(error) => {
            sums.wrong
                .push(format!("{name} [{made}]: load fails: {error}; Kafka {}", short(&kafka.to_string())));
            return;
        }
    };
    if let Some(exception) = kafka["exception"].as_str() {
        sums.kind(format!("R7: loaded, where Kafka fails with {exception}"), &name);
        return;
    }
    let log_segments = |value: &Value| -> Vec<(i64, i64)> {
        let segments = value["segments"].as_array();
        segments.into_iter().flatten().map(|s| (int(&s["baseOffset"]), int(&s["size"]))).collect()
    };
    let ours: Vec<(i64, i64)> = opened
        .log
        .segments()
        .iter()
        .map(|segment| (segment.base_offset.get(), i64::try_from(segment.size).unwrap()))
        .collect();
    let same_content = ours == log_segments(&golden.expected["replay"]);
    let start = opened.log.view().log_start_offset.get();
    let naive = Naive::of(&golden_reads::segments(&once.bench), start);
    let epochs =
        opened.log.epochs().entries().iter().map(|entry| (entry.epoch.get(), entry.start_offset.get()));
    let epochs = epochs.collect();
    let start_above_end = opened.report.log_start_above_end.is_some();
    let checkpoint = golden.bench.disk.read_file(&golden.bench.path("leader-epoch-checkpoint"));
    let checkpoint = String::from_utf8_lossy(&checkpoint.unwrap_or_default()).into_owned();
    let kept = kept_by_kafka(&golden.expected, &opened.report);
    let case = Case { golden: &golden, naive, same_content, start_above_end, checkpoint, epochs };
    drop(opened);
    let is_far = |segment: &Value| {
        let name = segment["file"].as_str().unwrap();
        let base: i64 = name.strip_suffix(".log").and_then(|digits| digits.parse().ok()).unwrap_or(0);
        segment["batches"]
            .as_array()
            .unwrap()
            .iter()
            .any(|batch| int(&batch["lastOffset"]) - base > i64::from(i32::MAX))
    };
    let kept =
        kept.or_else(|| {
            golden.expected["segments"].as_array().unwrap().iter().any(is_far).then(|| {
                "GAP-6: offsets too far from the base stay in one segment; Kafka splits it".to_owned()
            })
        });
    if let Some(kept) = kept {
        sums.kind(kept, &name);
        return;
    }
    let strays = folder.join("t-0");
    let is_stray = |name: &str| {
        name.strip_suffix(".log").is_some_and(|digits| digits.len() != 20 && digits.parse::<u64>().is_ok())
    };
    if std::fs::read_dir(strays).unwrap().any(|entry| is_stray(&entry.unwrap().file_name().to_string_lossy()))
    {
        sums.kind("a segment's name has twenty digits; Kafka takes others, and opens another file", &name);
        return;
    }
    for (field, kafka) in kafka.as_object().unwrap() {
        if NOT_HERE.contains(&field.as_str()) {
            continue;
        }
        let ours = answer(&fresh(&golden), field, kafka).unwrap_or_else(|| panic!("nobody compares {field}"));
        let ours = without_batch_timestamps(field, ours);
        let kafka = without_batch_timestamps(field, kafka.clone());
        if ours == kafka {
            sums.same += 1;
            continue;
        }
        match case.kind(field, &ours, &kafka) {
            Some(kind) => sums.kind(format!("{field}: {kind}"), &name),
            None => sums.wrong.push(format!(
                "{name} [{made}] {field}:\n  weir  {}\n  kafka {}",
                short(&ours.to_string()),
                short(&kafka.to_string())
            )),
        }
    }
    // Reads.
    let open = fresh(&golden).open();
    let segments = golden_reads::segments(&once.bench);
    let mut reads = golden_reads::Golden { name: name.clone(), open, segments, reads: kafka.clone() };
    let mut outcome = Outcome::default();
    golden_reads::check_list_offsets(&mut reads, &mut outcome);
    golden_reads::check_epoch_ends(&mut reads, &mut outcome);
    golden_reads::check_fetches(&mut reads, &mut outcome);
    sums.same += outcome.compared[1] + outcome.compared[2] + outcome.compared[3]
        - outcome.differences.len().min(outcome.compared[1]);
    let naive = &case.naive;
    for wrong in not_naive(&mut reads.open, naive, &kafka) {
        sums.wrong.push(format!("{name} [{made}] not what the batches say: {wrong}"));
    }
    let mut other = Outcome::default();
    if case.other()["exception"].is_null() {
        reads.reads = case.other().clone();
        golden_reads::check_list_offsets(&mut reads, &mut other);
        golden_reads::check_epoch_ends(&mut reads, &mut other);
        golden_reads::check_fetches(&mut reads, &mut other);
    }
    let in_other = |vector: &str| {
        let asked = case.other()["exception"].is_null();
        asked && !other.differences.iter().any(|difference| difference.vector == vector)
    };
    for difference in outcome.differences {
        let vector = &difference.vector;
        let what = vector.split(' ').next().unwrap_or_default();
        let kind =
            if difference.kafka.contains("Exception") && difference.kafka != "OffsetOutOfRangeException" {
                format!("Kafka fails with {}", difference.kafka)
            } else if !naive.barriers.is_empty() && what == "fetches" && vector.contains("readCommitted") {
                "B4: what the batches say".to_owned()
            } else if naive.unstable().is_some_and(|first| first < naive.start)
                && vector.contains("readCommitted")
            {
                "R4: as live, what began below the log start is open".to_owned()
            } else if !case.other()["exception"].is_null() && vector.contains("readCommitted") {
                "B7: what the batches say; Kafka's own replay fails".to_owned()
            } else if what == "listOffsets" {
                "what the batches say".to_owned()
            } else if in_other(vector) {
                "R6: as in Kafka's other form".to_owned()
            } else if case.start_above_end {
                "R6: the log start above the end is the end; Kafka drops the log".to_owned()
            } else if what == "endOffsetForEpoch" {
                "as the epochs that are right".to_owned()
            } else {
                let (ours, kafka) = (&difference.ours, &difference.kafka);
                sums.wrong.push(format!("{name} [{made}] {vector}: weir {ours}, kafka {kafka}"));
                continue;
            };
        sums.kind(format!("{what}: {kind}"), &name);
    }
}

/// The offset behind the last batch.
fn next_of(bytes: &[u8]) -> Option<i64> {
    let last = AnyBatchReader::new(bytes).filter_map(Result::ok).last()?;
    Some(match last {
        AnyBatch::Batch(batch) => batch.next_offset().get(),
        AnyBatch::Message(message) => message.offset().get() + 1,
    })
}

/// Every read that Kafka was asked for, answered by weir otherwise than by a plain reader of the batches.
fn not_naive(open: &mut Open, naive: &Naive, kafka: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for vector in kafka["listOffsets"].as_array().unwrap() {
        let spec = match int(&vector["ask"]) {
            _ if naive.malformed => continue,
            -3 if naive.no_latest => continue,
            -3 => OffsetSpec::MaxTimestamp,
            asked if asked >= 0 => OffsetSpec::Timestamp(TimestampMs::new(asked)),
            _ => continue,
        };
        let found = open.log.offset_for(&mut *open.io, spec, Isolation::Uncommitted).unwrap();
        let found = found.map(|found| (found.timestamp.map_or(-1, TimestampMs::get), found.offset.get()));
        let right = naive.offset_for(spec);
        if found != right {
            wrong.push(format!("{spec:?}: {found:?}, right {right:?}"));
        }
    }
    for vector in kafka["fetches"].as_array().unwrap() {
        let from = int(&vector["offset"]);
        for (max, committed) in [(1, false), (4096, false), (4096, true)] {
            let isolation = if committed { Isolation::Committed } else { Isolation::Uncommitted };
            let found = match open.log.read(&mut *open.io, offset(from), max, isolation, true) {
                Ok(read) => {
                    let aborted = read.aborted.iter();
                    let aborted = aborted.map(|entry| (entry.first_offset.get(), entry.producer_id.get()));
                    Some((read.bytes.to_vec(), aborted.collect::<Vec<_>>()))
                }
                Err(ReadError::OffsetOutOfRange { .. }) => None,
                Err(error) => {
                    wrong.push(format!("fetch of {from}: {error}"));
                    continue;
                }
            };
            let right = naive.fetch(from, max, committed);
            // Entries that concern none of the bytes do no harm; Kafka lists them too.
            let end = right.as_ref().and_then(|(bytes, _)| next_of(bytes)).unwrap_or(from);
            let found = found.map(|(bytes, mut aborted)| {
                aborted.retain(|entry| entry.0 < end);
                (bytes, aborted)
            });
            if found != right {
                let short = |answer: Option<Fetched>| answer.map(|(bytes, aborted)| (bytes.len(), aborted));
                wrong.push(format!(
                    "fetch of {from}, {max}, {committed}: {:?}, right {:?}",
                    short(found),
                    short(right)
                ));
            }
        }
    }
    wrong
}

#[test]
#[ignore = "it needs a folder of golden data; cargo xtask golden DIR"]
fn logs_in_a_folder_load_as_kafka_loads_them() {
    let folder =
        PathBuf::from(std::env::var_os("WEIR_GOLDEN_DIR").expect("WEIR_GOLDEN_DIR names the folder"));
    let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut failed = 0;
    for log in made(&folder.join("logs")) {
        let name = log.file_name().unwrap().to_string_lossy().into_owned();
        let sums = std::panic::catch_unwind(|| checked(&log));
        let Ok(sums) = sums else {
            failed += 1;
            println!("golden failed loads/{name}");
            continue;
        };
        for wrong in &sums.wrong {
            println!("{wrong}");
        }
        if sums.wrong.is_empty() {
            println!("golden loaded loads/{name} {} {}", sums.same, sums.kinds.len());
        } else {
            failed += 1;
            println!("golden failed loads/{name}");
        }
        for (kind, names) in sums.kinds {
            kinds.entry(kind).or_default().extend(names);
        }
    }
    for (kind, names) in &kinds {
        println!("golden reason {} {kind}", names.len());
    }
    assert_eq!(failed, 0, "{failed} failed");
}
