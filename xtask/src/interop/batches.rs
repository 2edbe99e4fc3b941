//! Bytes that weir's builder wrote, read by Kafka's own classes; and compressed bytes, decompressed by Kafka's own.
//!
//! The golden record sets are taken apart by weir, put together by its builder, and must read for Kafka as they did when
//! Kafka wrote them: what was compressed there is plain here, and nothing else differs. More batches are built from what
//! is meant, which is written down beside each as Kafka should say it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use weir_format::{
    BatchBuilder, ControlRecordType, LeaderEpoch, MirrorPidReset, Offset, ProducerEpoch, ProducerId,
    RecordBatch, Sequence, TimestampMs,
};

use super::World;
use crate::command;

const READER: &str = "ReadBatches";
const DECOMPRESSOR: &str = "Decompress";

/// No batch here is larger when decompressed.
const LIMIT: usize = 1 << 20;

/// Golden items whose records weir reads and that its builder does not write: offsets ascend within a batch.
const NOT_BUILT: &[&str] = &["bad-offset-deltas-down", "bad-offset-deltas-equal"];

/// One batch and what Kafka has to say of it.
struct Built {
    name: String,
    bytes: Vec<u8>,
    wanted: Value,
}

/// Runs the checks whose names start with `batches.`.
///
/// # Errors
/// If they cannot be run; what Kafka says otherwise is a failed check.
pub(super) fn check(world: &mut World) -> Result<()> {
    let testdata = command::root().join("crates/format/testdata");
    let golden = golden(&testdata.join("batches"))?;
    ensure!(golden.len() > 45, "only {} golden items are built", golden.len());
    let meant = meant();
    let read = read_by_kafka(world, golden.iter().chain(&meant))?;
    for (name, built) in [("golden_items_built_again", &golden), ("what_was_built_is_what_was_meant", &meant)]
    {
        let result = built.iter().try_for_each(|built| said_as_wanted(built, &read));
        world.report.check(&format!("batches.{name}"), result.with_context(|| format!("of {}", built.len())));
    }
    let result = spoilt(world, &meant);
    world.report.check("batches.a_spoilt_one_is_refused", result);
    let result = decompressed(world, &testdata.join("codecs.txt"));
    world.report.check("batches.compressed_bytes_are_what_kafka_said_they_are", result);
    Ok(())
}

/// Every golden batch that the builder can write, built again, with Kafka's word on the original.
fn golden(folder: &Path) -> Result<Vec<Built>> {
    let mut built = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_set = path.extension().is_some_and(|extension| extension == "bin");
        if !is_set || name.starts_with("bomb-") || NOT_BUILT.contains(&name.as_str()) {
            continue;
        }
        let bytes = std::fs::read(&path)?;
        let kafka: Value = serde_json::from_slice(&std::fs::read(path.with_extension("json"))?)?;
        let kafkas = kafka["read"]["batches"].as_array().context("batches")?;
        let (Ok(batch), [kafka]) = (RecordBatch::parse(&bytes), kafkas.as_slice()) else { continue };
        if batch.size() != bytes.len() || kafka.get("records").is_none() {
            continue;
        }
        if let Some(bytes) = rebuilt(&batch).with_context(|| format!("{name} cannot be built"))? {
            built.push(Built {
                name: format!("golden-{name}"),
                wanted: wanted_of(kafka, bytes.len())?,
                bytes,
            });
        }
    }
    Ok(built)
}

/// The batch, taken apart and put together without its codec; `None` if its records cannot be read.
fn rebuilt(batch: &RecordBatch<'_>) -> Result<Option<Vec<u8>>> {
    let Ok(bytes) = batch.decompress(LIMIT) else { return Ok(None) };
    let Ok(records) = batch.records_in(&bytes).collect::<Result<Vec<_>, _>>() else { return Ok(None) };
    let builder = records.iter().fold(BatchBuilder::like(batch), BatchBuilder::copied);
    Ok(Some(builder.build()?.to_vec()))
}

/// Kafka's word on a golden batch, in the words of `ReadBatches.java`, of the same batch without a codec.
fn wanted_of(kafka: &Value, size: usize) -> Result<Value> {
    let mut wanted = kafka.clone();
    let fields = wanted.as_object_mut().context("a batch")?;
    for field in ["crc", "valid", "ensureValid"] {
        fields.remove(field);
    }
    fields.insert("size".to_owned(), json!(size));
    fields.insert("compression".to_owned(), json!("none"));
    fields.insert("nextOffset".to_owned(), json!(kafka["lastOffset"].as_i64().context("an offset")? + 1));
    for record in fields.get_mut("records").and_then(Value::as_array_mut).into_iter().flatten() {
        let record = record.as_object_mut().context("a record")?;
        record.remove("controlType");
        record.entry("headers").or_insert_with(|| json!([]));
        record.entry("sequence").or_insert_with(|| json!(-1));
        for field in ["key", "value"] {
            let bytes = record.get_mut(field).context("bytes")?;
            *bytes = plain(bytes)?;
        }
        for header in record.get_mut("headers").and_then(Value::as_array_mut).into_iter().flatten() {
            header["value"] = plain(&header["value"])?;
        }
    }
    Ok(wanted)
}

/// Base64 as it is, where golden data says `{"b64": …}`.
fn plain(bytes: &Value) -> Result<Value> {
    match bytes {
        Value::Null => Ok(Value::Null),
        bytes => bytes.get("b64").cloned().with_context(|| format!("{bytes} is too long to be said whole")),
    }
}

/// Batches of every kind that weir writes or could write, and what is meant by each.
fn meant() -> Vec<Built> {
    const NOW: i64 = 1_767_225_600_000;
    const DAY: i64 = 86_400_000;
    let at = TimestampMs::new;
    let id = |raw| ProducerId::new(raw).expect("not negative");
    let epoch = |raw| ProducerEpoch::new(raw).expect("not negative");
    let mut all = Vec::new();
    let mut add = |name: &str, builder: BatchBuilder, said: Value, records: Vec<Value>| {
        let bytes = builder.build().expect("a batch").to_vec();
        all.push(Built { name: name.to_owned(), wanted: with_defaults(&bytes, &said, records), bytes });
    };

    let headers: [(&[u8], Option<&[u8]>); 5] = [
        (b"a", Some(b"1")),
        (b"a", None),
        (b"", Some(b"")),
        (b"a", Some(b"2")),
        ("\u{e4}".as_bytes(), Some(b"\xff")),
    ];
    add(
        "headers-null-and-empty",
        BatchBuilder::new()
            .record_with_headers(at(NOW), None, None, &headers)
            .record(at(NOW + 1), Some(b""), Some(b""))
            .record(at(NOW - 1), Some(b"k"), None),
        json!({ "maxTimestamp": NOW + 1 }),
        vec![
            record(
                0,
                NOW,
                Value::Null,
                Value::Null,
                json!([
                    { "key": "a", "value": "MQ==" }, { "key": "a", "value": null }, { "key": "", "value": "" },
                    { "key": "a", "value": "Mg==" }, { "key": "\u{e4}", "value": "/w==" },
                ]),
            ),
            record(1, NOW + 1, json!(""), json!(""), json!([])),
            record(2, NOW - 1, json!("aw=="), Value::Null, json!([])),
        ],
    );
    let mut builder = BatchBuilder::new()
        .base_offset(Offset::new(1 << 40).expect("not negative"))
        .leader_epoch(LeaderEpoch::new(1_000_012).expect("not negative"))
        .producer(id(i64::MAX), epoch(i16::MAX), Sequence::new(i32::MAX - 1))
        .transactional();
    let mut records = Vec::new();
    for (delta, sequence) in [i32::MAX - 1, i32::MAX, 0, 1, 2].into_iter().enumerate() {
        builder = builder.record(at(NOW), None, Some(b"v"));
        let offset = (1_i64 << 40) + i64::try_from(delta).expect("small");
        let mut one = record(offset, NOW, Value::Null, json!("dg=="), json!([]));
        one["sequence"] = json!(sequence);
        records.push(one);
    }
    add(
        "transactional-sequence-wrap",
        builder,
        json!({
            "baseOffset": 1_i64 << 40, "lastOffset": (1_i64 << 40) + 4, "nextOffset": (1_i64 << 40) + 5,
            "leaderEpoch": 1_000_012, "producerId": i64::MAX, "producerEpoch": i16::MAX,
            "baseSequence": i32::MAX - 1, "lastSequence": 2, "transactional": true, "maxTimestamp": NOW,
        }),
        records,
    );
    add(
        "timestamps-far-apart",
        BatchBuilder::new()
            .record(at(NOW), None, None)
            .record(at(NOW + 40 * DAY), None, None)
            .record(at(0), None, None)
            .record(at(i64::MAX), None, None),
        json!({ "maxTimestamp": i64::MAX }),
        [NOW, NOW + 40 * DAY, 0, i64::MAX]
            .into_iter()
            .zip(0..)
            .map(|(time, offset)| record(offset, time, Value::Null, Value::Null, json!([])))
            .collect(),
    );
    add(
        "log-append-time",
        BatchBuilder::new().record(at(5), None, None).record(at(6), None, None).log_append_time(at(NOW)),
        json!({ "maxTimestamp": NOW, "timestampType": "LogAppendTime" }),
        (0..2).map(|offset| record(offset, NOW, Value::Null, Value::Null, json!([]))).collect(),
    );
    add(
        "delete-horizon-and-gaps",
        BatchBuilder::new()
            .delete_horizon(at(NOW + DAY))
            .record_at(2, at(NOW), Some(b"k"), None, &[])
            .record_at(7, at(NOW + 1), Some(b"l"), Some(b"v"), &[])
            .last_offset_delta(9),
        json!({ "maxTimestamp": NOW + 1, "deleteHorizonMs": NOW + DAY, "lastOffset": 9, "nextOffset": 10 }),
        vec![
            record(2, NOW, json!("aw=="), Value::Null, json!([])),
            record(7, NOW + 1, json!("bA=="), json!("dg=="), json!([])),
        ],
    );
    add(
        "emptied-by-compaction",
        BatchBuilder::new()
            .producer(id(7), epoch(1), Sequence::new(14))
            .last_offset_delta(9)
            .max_timestamp(at(NOW)),
        json!({
            "lastOffset": 9, "nextOffset": 10, "producerId": 7, "producerEpoch": 1, "baseSequence": 14,
            "lastSequence": 23, "maxTimestamp": NOW,
        }),
        Vec::new(),
    );
    let large = vec![0x61; 1 << 20];
    let mut builder = BatchBuilder::new();
    let mut records = Vec::new();
    for number in 0..1000_i64 {
        let value = if number == 500 { &large[..] } else { &large[..300] };
        builder = builder.record(at(NOW + number), Some(&number.to_be_bytes()), Some(value));
        let key = base64(&number.to_be_bytes());
        records.push(record(number, NOW + number, json!(key), json!(base64(value)), json!([])));
    }
    add("a-thousand-records-and-a-large-one", builder, json!({ "maxTimestamp": NOW + 999 }), records);
    for (record_type, type_id, value) in [
        (ControlRecordType::LeaderChange, 2, &[0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 1, 0, 0][..]),
        (ControlRecordType::Unknown(99), 99, &[1, 2, 3]),
    ] {
        let mut one = record(0, NOW, json!(base64(&[0, 0, 0, type_id])), json!(base64(value)), json!([]));
        one["controlTypeId"] = json!(type_id);
        add(
            &format!("control-type-{type_id}"),
            BatchBuilder::new().control_record(at(NOW), record_type, value),
            json!({ "control": true, "maxTimestamp": NOW }),
            vec![one],
        );
    }

    for (commit, coordinator_epoch) in [(true, Some(3)), (false, None), (false, Some(i32::MAX))] {
        let bytes = BatchBuilder::end_transaction_marker(commit, id(5), epoch(2), coordinator_epoch, at(NOW))
            .to_vec();
        let said = coordinator_epoch.unwrap_or(-1);
        let value = [&[0, 0][..], &said.to_be_bytes()].concat();
        let mut one =
            record(0, NOW, json!(base64(&[0, 0, 0, u8::from(commit)])), json!(base64(&value)), json!([]));
        one["controlTypeId"] = json!(u8::from(commit));
        one["coordinatorEpoch"] = json!(said);
        let fields = json!({
            "control": true, "transactional": true, "producerId": 5, "producerEpoch": 2, "leaderEpoch": 0,
            "maxTimestamp": NOW,
        });
        let name = format!("marker-{}-{said}", if commit { "commit" } else { "abort" });
        all.push(Built { name, wanted: with_defaults(&bytes, &fields, vec![one]), bytes });
    }
    let bytes = MirrorPidReset::build(at(NOW)).to_vec();
    let mut one = record(0, NOW, json!("AAAABw=="), json!("AAAA"), json!([]));
    one["controlTypeId"] = json!(7);
    let fields = json!({ "control": true, "leaderEpoch": 0, "maxTimestamp": NOW });
    all.push(Built { name: "barrier".to_owned(), wanted: with_defaults(&bytes, &fields, vec![one]), bytes });
    all
}

/// A record as `ReadBatches.java` says it, without a sequence.
fn record(offset: i64, timestamp: i64, key: Value, value: Value, headers: Value) -> Value {
    json!({ "offset": offset, "timestamp": timestamp, "sequence": -1, "key": key, "value": value, "headers": headers })
}

/// A batch as `ReadBatches.java` says it: `said`, and else what a builder writes that nobody told anything.
fn with_defaults(bytes: &[u8], said: &Value, records: Vec<Value>) -> Value {
    let last = i64::try_from(records.len()).unwrap_or(0).saturating_sub(1).max(0);
    let mut wanted = json!({
        "size": bytes.len(), "baseOffset": 0, "lastOffset": last, "nextOffset": last + 1, "magic": 2,
        "count": records.len(), "leaderEpoch": -1, "producerId": -1, "producerEpoch": -1, "baseSequence": -1,
        "lastSequence": -1, "transactional": false, "control": false, "deleteHorizonMs": null,
        "compression": "none", "timestampType": "CreateTime", "maxTimestamp": -1,
    });
    for (field, value) in said.as_object().into_iter().flatten() {
        wanted[field] = value.clone();
    }
    wanted["records"] = Value::Array(records);
    wanted
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let bits =
            part.iter().chain([&0, &0]).take(3).fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte));
        for digit in 0..4 {
            let index = usize::try_from((bits >> (18 - 6 * digit)) & 0x3f).unwrap_or(0);
            let digit =
                if digit <= part.len() { DIGITS.get(index).map_or('=', |it| char::from(*it)) } else { '=' };
            text.push(digit);
        }
    }
    text
}

/// Lets Kafka read each and answers its words by name.
fn read_by_kafka<'a>(world: &World, all: impl Iterator<Item = &'a Built>) -> Result<BTreeMap<String, Value>> {
    let folder = tempfile::Builder::new().prefix("built-").tempdir_in(&world.work)?;
    for Built { name, bytes, .. } in all {
        std::fs::write(folder.path().join(format!("{name}.bin")), bytes)?;
    }
    let path = folder.path().display().to_string();
    let ended = world.tools.run_java(&world.work, READER, &[&path], "")?.must_succeed(READER)?;
    let mut read = BTreeMap::new();
    for line in ended.stdout.lines() {
        let item: Value = serde_json::from_str(line).with_context(|| format!("{READER} printed {line}"))?;
        read.insert(item["name"].as_str().context("a name")?.to_owned(), item);
    }
    Ok(read)
}

/// Kafka found the one batch valid and says of it what is wanted, field by field.
fn said_as_wanted(built: &Built, read: &BTreeMap<String, Value>) -> Result<()> {
    let Built { name, wanted, .. } = built;
    let item = read.get(name).with_context(|| format!("{name}: Kafka did not see it"))?;
    if let Some(error) = item.get("error") {
        bail!("{name}: {error}");
    }
    let [batch] = item["batches"].as_array().context("batches")?.as_slice() else {
        bail!("{name}: {} is not one batch", item["batches"]);
    };
    let (said, wanted) = (batch.as_object().context("a batch")?, wanted.as_object().context("a batch")?);
    for field in said.keys().chain(wanted.keys()) {
        let (said, wanted) = (said.get(field), wanted.get(field));
        ensure!(
            said == wanted,
            "{name}: {field} is {} for Kafka, and meant was {}",
            short(said),
            short(wanted)
        );
    }
    Ok(())
}

fn short(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    if text.chars().count() > 300 { text.chars().take(300).chain(['…']).collect() } else { text }
}

/// That these checks can fail: a flipped bit in the CRC, one in a value, a cut, and a field that is not as meant.
fn spoilt(world: &World, meant: &[Built]) -> Result<()> {
    let good = meant.iter().find(|built| built.name == "barrier").context("the barrier")?;
    let spoilt = |name: &str, spoil: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.bytes.clone();
        spoil(&mut bytes);
        Built { name: name.to_owned(), bytes, wanted: good.wanted.clone() }
    };
    let all = [
        spoilt("crc", &|bytes| bytes[17] ^= 1),
        spoilt("value", &|bytes| bytes[72] ^= 1),
        spoilt("cut", &|bytes| bytes.truncate(74)),
        spoilt("epoch", &|bytes| bytes[15] ^= 1),
    ];
    let read = read_by_kafka(world, all.iter())?;
    for built in &all {
        ensure!(said_as_wanted(built, &read).is_err(), "{}: nobody noticed", built.name);
    }
    Ok(())
}

/// Kafka's decompressors say today of each line what the line says.
fn decompressed(world: &World, path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = path.display().to_string();
    let ended = world.tools.run_java(&world.work, DECOMPRESSOR, &[&file], "")?.must_succeed(DECOMPRESSOR)?;
    let mut said = ended.stdout.lines();
    let mut count = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, _codec, verdict @ .., _bytes] = words.as_slice() else { bail!("{line} is no case") };
        let wanted = format!("{name} {}", verdict.join(" "));
        let said = said.next().context("Kafka ended early")?;
        ensure!(said == wanted, "Kafka says {said:?}, and {path:?} has {wanted:?}");
        count += 1;
    }
    ensure!(count > 100, "only {count} cases");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let table = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (bytes, text) in table {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn golden_items_are_built_again_and_a_wrong_field_is_named() {
        let folder = command::root().join("crates/format/testdata/batches");
        let golden = golden(&folder).expect("golden data");
        assert!(golden.len() > 45, "only {} items", golden.len());
        let built = golden.iter().find(|built| built.name == "golden-v2-gzip").expect("it is there");
        let say = |batch: &Value| {
            BTreeMap::from([(built.name.clone(), json!({ "name": built.name, "batches": [batch] }))])
        };
        said_as_wanted(built, &say(&built.wanted)).expect("as wanted");
        let mut other = built.wanted.clone();
        other["records"][1]["value"] = json!("AA==");
        let error = said_as_wanted(built, &say(&other)).expect_err("another value");
        assert!(error.to_string().contains("records"), "{error}");
        let mut other = built.wanted.clone();
        other["surprise"] = json!(1);
        assert!(said_as_wanted(built, &say(&other)).is_err(), "a field that nobody expects");
    }
}
