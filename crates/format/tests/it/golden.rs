//! What Kafka 4.4.0 wrote, and its verdict on it, against ours.

use std::path::Path;

use serde_json::Value;
use weir_format::{
    AnyBatch, AnyBatchReader, BatchBuilder, BatchError, BatchReader, Codec, ControlError, ControlRecordType,
    ControlRecordValue, Header, Message, MirrorPidReset, MirrorPidResetValue, ProducerEpoch, ProducerId,
    Record, RecordBatch, RecordError, Sequence, TimestampType,
};

use crate::support::{base64, json, manifest_dir, sha256, testdata};

/// Where we end a walk over a record set and Kafka does not, or the other way round, and why.
const BATCHES_DIFFER: &[(&str, &str)] = &[
    (
        "bad-offset-negative",
        "an offset below 0 has no place in a log; Kafka's append and index code fail on it later",
    ),
    ("bad-offset-max", "no next offset is left; Kafka reads it and then fails in recovery"),
    (
        "bad-last-delta-negative",
        "the batch would end before it starts, and the next offset would go backwards",
    ),
    ("bad-count-negative", "no walk of its records can be right"),
    (
        "bad-codec-5",
        "kept whole like any compressed batch; Kafka fails when it looks at the codec, appends refuse it",
    ),
    ("bad-codec-7", "as bad-codec-5"),
];

/// Where a walk over the records ends well for Kafka and badly for us, and why.
const RECORDS_DIFFER: &[(&str, &str)] = &[
    ("bad-count-zero", "records that nobody counts would be served and never seen"),
    ("bad-last-delta-small", "a record's offset would be that of the next batch's"),
];

fn items() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(manifest_dir().join("testdata/batches"))
        .expect("test data")
        .filter_map(|entry| {
            entry.ok()?.file_name().into_string().ok()?.strip_suffix(".bin").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() > 90, "{} items", names.len());
    names
}

fn number(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// A number, where Kafka says −1 for none.
fn some(value: &Value, field: &str) -> Option<i64> {
    Some(number(value, field)).filter(|number| *number >= 0)
}

fn check_header(name: &str, batch: &RecordBatch<'_>, kafka: &Value) {
    assert_eq!(i64::try_from(batch.size()), Ok(number(kafka, "size")), "{name}: size");
    assert_eq!(batch.base_offset().get(), number(kafka, "baseOffset"), "{name}: base offset");
    assert_eq!(batch.last_offset().get(), number(kafka, "lastOffset"), "{name}: last offset");
    assert_eq!(batch.next_offset().get(), number(kafka, "lastOffset") + 1, "{name}: next offset");
    assert_eq!(format!("{:x}", batch.crc()), kafka["crc"].as_str().expect("a CRC"), "{name}: crc");
    assert_eq!(i64::from(batch.record_count()), number(kafka, "count"), "{name}: count");
    let epoch = batch.leader_epoch().map(|epoch| i64::from(epoch.get()));
    assert_eq!(epoch, some(kafka, "leaderEpoch"), "{name}: leader epoch");
    assert_eq!(batch.raw_producer_id(), number(kafka, "producerId"), "{name}: producer id");
    assert_eq!(batch.producer_id().map(ProducerId::get), some(kafka, "producerId"), "{name}: producer id");
    let epoch = batch.producer_epoch().map(|epoch| i64::from(epoch.get()));
    assert_eq!(epoch, some(kafka, "producerEpoch"), "{name}: producer epoch");
    let sequence = |sequence: Option<Sequence>| sequence.map(|sequence| i64::from(sequence.get()));
    assert_eq!(sequence(batch.base_sequence()), some(kafka, "baseSequence"), "{name}: base sequence");
    assert_eq!(sequence(batch.last_sequence()), some(kafka, "lastSequence"), "{name}: last sequence");
    assert_eq!(Some(batch.is_transactional()), kafka["transactional"].as_bool(), "{name}: transactional");
    assert_eq!(Some(batch.is_control()), kafka["control"].as_bool(), "{name}: control");
    let horizon = batch.delete_horizon().map(|horizon| horizon.get());
    assert_eq!(horizon, kafka["deleteHorizonMs"].as_i64(), "{name}: delete horizon");
    assert_eq!(Some(batch.codec().to_string().as_str()), kafka["compression"].as_str(), "{name}: codec");
    assert_eq!(Some(batch.timestamp_type().to_string().as_str()), kafka["timestampType"].as_str(), "{name}");
    assert_eq!(batch.max_timestamp().get(), number(kafka, "maxTimestamp"), "{name}: max timestamp");
}

fn check_bytes(what: &str, ours: Option<&[u8]>, kafka: &Value) {
    match (ours, kafka) {
        (None, Value::Null) => {}
        (Some(ours), Value::Object(kafka)) => match kafka.get("b64").and_then(Value::as_str) {
            Some(text) => assert_eq!(ours, base64(text), "{what}"),
            None => {
                assert_eq!(u64::try_from(ours.len()).ok(), kafka["len"].as_u64(), "{what}: length");
                assert_eq!(Some(sha256(ours).as_str()), kafka["sha256"].as_str(), "{what}: bytes");
            }
        },
        (ours, kafka) => panic!("{what}: {ours:?} is {kafka} for Kafka"),
    }
}

fn check_record(name: &str, record: &Record<'_>, kafka: &Value) {
    let what = format!("{name}: record at {}", record.offset);
    if let Some(control_type) = kafka["controlType"].as_str().filter(|name| !name.starts_with("UNKNOWN")) {
        check_control_value(&what, control_type, record);
    }
    assert_eq!(record.offset.get(), number(kafka, "offset"), "{what}");
    assert_eq!(record.timestamp.get(), number(kafka, "timestamp"), "{what}: timestamp");
    check_bytes(&format!("{what}: key"), record.key, &kafka["key"]);
    check_bytes(&format!("{what}: value"), record.value, &kafka["value"]);
    let ours: Vec<Header<'_>> = record.headers().collect();
    match &kafka["headers"] {
        Value::Null => assert!(ours.is_empty(), "{what}: headers"),
        Value::Array(kafkas) => {
            assert_eq!(ours.len(), kafkas.len(), "{what}: headers");
            ours.iter().zip(kafkas).for_each(|(ours, kafkas)| check_header_of_record(&what, ours, kafkas));
        }
        // Many headers are told by their count and the two at the ends.
        kafkas => {
            assert_eq!(u64::try_from(ours.len()).ok(), kafkas["count"].as_u64(), "{what}: headers");
            check_header_of_record(&what, &ours[0], &kafkas["first"]);
            check_header_of_record(&what, &ours[ours.len() - 1], &kafkas["last"]);
        }
    }
}

fn check_header_of_record(what: &str, ours: &Header<'_>, kafka: &Value) {
    let key = kafka["key"].as_str().expect("a key");
    assert_eq!(String::from_utf8_lossy(ours.key), key, "{what}: header key");
    check_bytes(&format!("{what}: header {key}"), ours.value, &kafka["value"]);
}

/// One batch that Kafka and we both read.
fn check_batch(name: &str, batch: &RecordBatch<'_>, kafka: &Value) {
    if kafka.get("size").is_some() {
        check_header(name, batch, kafka);
    }
    let none = Vec::new();
    let kafkas_records = kafka["records"].as_array().unwrap_or(&none);
    let kafkas_count = match &kafka["recordsRead"]["count"] {
        Value::Null => kafkas_records.len(),
        count => count.as_u64().and_then(|count| usize::try_from(count).ok()).expect("a count"),
    };
    if cfg!(not(feature = "codec")) && batch.codec() != Codec::None {
        assert_eq!(batch.records().err(), Some(RecordError::Compressed { codec: batch.codec() }), "{name}");
        return;
    }
    let ours = walk(name, batch, kafkas_records);
    let differs = RECORDS_DIFFER.iter().any(|(differs, _)| *differs == name);
    match (ours, kafka.get("stoppedBy")) {
        (Ok(ours), None) => {
            assert!(!differs, "{name} is listed as different");
            // Of damaged logs Kafka's answer lists the batches alone.
            if kafka.get("records").is_some() || kafka.get("recordsRead").is_some() {
                assert_eq!(ours, kafkas_count, "{name}: records");
            }
            if kafka.get("records").is_some() {
                check_control(name, batch, kafkas_records.first());
            }
        }
        (Err(error), None) => assert!(differs, "{name}: Kafka reads the records, and we {error}"),
        // Kafka's walk failed over the meaning of the control record, not over the record.
        (Ok(_), Some(_)) if batch.is_control() => check_spoilt_control(name, batch),
        (Ok(_), Some(stopped)) => panic!("{name}: Kafka fails with {stopped}, and we read it"),
        (Err(_), Some(_)) => assert!(!differs, "{name} is listed as different"),
    }
}

/// Checks each record against Kafka's and answers how many there are, whichever way the batch can be walked.
fn walk(name: &str, batch: &RecordBatch<'_>, kafkas: &[Value]) -> Result<usize, RecordError> {
    let mut count = 0;
    let mut check = |record: &Record<'_>| {
        if let Some(kafka) = kafkas.get(count) {
            check_record(name, record, kafka);
        }
        count += 1;
    };
    #[cfg(feature = "codec")]
    {
        let mut stream = batch.record_stream(1 << 31);
        while let Some(record) = stream.next_record() {
            check(&record?);
        }
    }
    #[cfg(not(feature = "codec"))]
    for record in batch.records()? {
        check(&record?);
    }
    Ok(count)
}

/// One message of magic 0 or 1 that Kafka and we both read.
fn check_message(name: &str, message: &Message<'_>, kafka: &Value) {
    assert_eq!(i64::try_from(message.size()), Ok(number(kafka, "size")), "{name}: size");
    assert_eq!(message.offset().get(), number(kafka, "lastOffset"), "{name}: last offset");
    assert_eq!(i64::from(message.magic()), number(kafka, "magic"), "{name}: magic");
    assert_eq!(format!("{:x}", message.crc()), kafka["crc"].as_str().expect("a CRC"), "{name}: crc");
    assert_eq!(Some(message.codec().to_string().as_str()), kafka["compression"].as_str(), "{name}: codec");
    let timestamp_type =
        message.timestamp_type().map_or("NoTimestampType".to_owned(), |kind| kind.to_string());
    assert_eq!(Some(timestamp_type.as_str()), kafka["timestampType"].as_str(), "{name}: timestamp type");
    assert_eq!(message.timestamp().get(), number(kafka, "maxTimestamp"), "{name}: max timestamp");
    #[cfg(feature = "codec")]
    {
        let kafkas = kafka["records"].as_array().expect("records");
        let mut stream = message.record_stream(1 << 20).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut count = 0;
        while let Some(record) = stream.next_record() {
            let record = record.unwrap_or_else(|error| panic!("{name}: {error}"));
            if count == 0 {
                assert_eq!(record.offset.get(), number(kafka, "baseOffset"), "{name}: base offset");
            }
            check_record(name, &record, &kafkas[count]);
            count += 1;
        }
        assert_eq!(count, kafkas.len(), "{name}: records");
    }
}

fn check_any(name: &str, ours: &AnyBatch<'_>, kafka: &Value) {
    match ours {
        AnyBatch::Batch(batch) => check_batch(name, batch, kafka),
        AnyBatch::Message(message) => check_message(name, message, kafka),
    }
}

/// Kafka says no more of these values than their bytes; that they are read whole is what is checked.
fn check_control_value(what: &str, control_type: &str, record: &Record<'_>) {
    let kraft = [
        ControlRecordType::LeaderChange,
        ControlRecordType::SnapshotHeader,
        ControlRecordType::SnapshotFooter,
        ControlRecordType::KraftVersion,
        ControlRecordType::KraftVoters,
    ];
    if let Some(kind) = kraft.into_iter().find(|kind| kind.to_string() == control_type) {
        let value = ControlRecordValue::decode(kind, record.value).expect("a type of KRaft");
        assert!(value.is_ok(), "{what}: {value:?}");
    }
}

fn check_control(name: &str, batch: &RecordBatch<'_>, first: Option<&Value>) {
    let id = first.and_then(|first| first.get("controlTypeId")).and_then(Value::as_i64);
    assert_eq!(batch.control_type().map(|kind| i64::from(kind.id())), id, "{name}: control type");
    assert_eq!(batch.is_barrier(), id == Some(7), "{name}: barrier");
    assert_eq!(MirrorPidReset::describe(batch).is_some(), id == Some(7), "{name}: barrier");
    let epoch = first.and_then(|first| first.get("coordinatorEpoch")).and_then(Value::as_i64);
    let marker = batch.end_transaction_marker().map(|marker| marker.expect("well formed"));
    assert_eq!(marker.map(|marker| marker.commit), epoch.map(|_| id == Some(1)), "{name}: marker");
    let coordinator_epoch = marker.and_then(|marker| marker.coordinator_epoch).map(i64::from);
    assert_eq!(coordinator_epoch, epoch, "{name}: coordinator epoch");
}

fn check_spoilt_control(name: &str, batch: &RecordBatch<'_>) {
    match name {
        "barrier-key-empty" | "barrier-key-null" | "barrier-key-short" | "barrier-key-version-negative" => {
            assert_eq!(batch.control_type(), None, "{name}");
            assert!(!batch.is_barrier(), "{name}");
            assert_eq!(batch.end_transaction_marker(), None, "{name}");
        }
        "control-commit-value-short" => {
            assert_eq!(batch.control_type(), Some(ControlRecordType::Commit));
            assert_eq!(batch.end_transaction_marker(), Some(Err(ControlError::ShortValue { size: 2 })));
        }
        _ => panic!("{name}: Kafka cannot read this control record"),
    }
}

#[test]
fn our_verdict_on_every_item_is_kafkas_or_has_a_reason() {
    for name in items() {
        let bytes = testdata(&format!("batches/{name}.bin"));
        let kafka = json(&format!("batches/{name}.json"));
        let kafkas: Vec<&Value> = kafka["read"]["batches"]
            .as_array()
            .expect("batches")
            .iter()
            .take_while(|batch| batch["valid"] == true)
            .collect();
        let differs = BATCHES_DIFFER.iter().any(|(differs, _)| *differs == name);
        let mut ours = Vec::new();
        for batch in AnyBatchReader::new(&bytes) {
            match batch {
                Ok(batch) => ours.push(batch),
                Err(_) => break,
            }
        }
        assert_eq!(
            ours.len() != kafkas.len(),
            differs,
            "{name}: {} batches, {} for Kafka",
            ours.len(),
            kafkas.len()
        );
        for (ours, kafkas) in ours.iter().zip(kafkas) {
            check_any(&name, ours, kafkas);
        }
    }
}

#[test]
fn every_item_that_cannot_be_a_batch_says_why() {
    let table = [
        (
            "bad-crc",
            BatchError::CrcMismatch { stored: 1_798_835_969, computed: 1_395_220_653, base_offset: 42 },
        ),
        ("bad-crc-field", BatchError::CrcMismatch { stored: 0, computed: 1_798_835_969, base_offset: 42 }),
        ("bad-length-0", BatchError::InvalidLength { batch_length: 0 }),
        ("bad-length-1", BatchError::InvalidLength { batch_length: 1 }),
        ("bad-length-13", BatchError::InvalidLength { batch_length: 13 }),
        ("bad-length-48", BatchError::InvalidLength { batch_length: 48 }),
        (
            "bad-length-49",
            BatchError::CrcMismatch { stored: 1_798_835_969, computed: 2_451_564_093, base_offset: 42 },
        ),
        ("bad-length-max", BatchError::Truncated { need: 2_147_483_659, have: 136 }),
        ("bad-length-minus1", BatchError::InvalidLength { batch_length: -1 }),
        (
            "bad-length-one-less",
            BatchError::CrcMismatch { stored: 1_798_835_969, computed: 2_358_911_049, base_offset: 42 },
        ),
        ("bad-length-one-more", BatchError::Truncated { need: 137, have: 136 }),
        ("bad-magic-127", BatchError::InvalidMagic { magic: 127 }),
        ("bad-magic-3", BatchError::InvalidMagic { magic: 3 }),
        ("bad-magic-negative", BatchError::InvalidMagic { magic: -1 }),
        ("bad-offset-negative", BatchError::NegativeBaseOffset { base_offset: -1 }),
        ("bad-offset-max", BatchError::OffsetOverflow { base_offset: i64::MAX, last_offset_delta: 2 }),
        ("bad-last-delta-negative", BatchError::NegativeLastOffsetDelta { last_offset_delta: -1 }),
        ("bad-count-negative", BatchError::NegativeRecordCount { record_count: -1 }),
        ("cut-in-body", BatchError::Truncated { need: 136, have: 133 }),
        ("cut-in-header", BatchError::Truncated { need: 136, have: 40 }),
        ("cut-in-length", BatchError::Truncated { need: 61, have: 10 }),
        ("zeros-4096", BatchError::InvalidLength { batch_length: 0 }),
        ("v0-none", BatchError::UnsupportedMagic { magic: 0 }),
        ("v1-none", BatchError::UnsupportedMagic { magic: 1 }),
    ];
    for (name, want) in table {
        let bytes = testdata(&format!("batches/{name}.bin"));
        assert_eq!(RecordBatch::parse(&bytes).err(), Some(want), "{name}");
    }
}

#[test]
fn every_item_whose_records_are_broken_says_why() {
    let table = [
        ("bad-count-huge", RecordError::MissingRecords { record_count: i32::MAX, found: 3 }),
        ("bad-count-more", RecordError::MissingRecords { record_count: 4, found: 3 }),
        ("bad-count-less", RecordError::TrailingBytes { record_count: 2, size: 38 }),
        ("bad-count-zero", RecordError::TrailingBytes { record_count: 0, size: 75 }),
        ("bad-headers-more", RecordError::UnexpectedEnd { position: 70, need: 1, have: 0 }),
        ("bad-headers-negative", RecordError::InvalidLength { position: 69, length: -1 }),
        ("bad-key-length", RecordError::InvalidLength { position: 65, length: -2 }),
        ("bad-record-length-negative", RecordError::InvalidLength { position: 61, length: -1 }),
        ("bad-record-length-more", RecordError::UnexpectedEnd { position: 62, need: 63, have: 8 }),
        ("bad-trailing-bytes", RecordError::TrailingBytes { record_count: 1, size: 7 }),
        ("bad-varint-long", RecordError::VarintTooLong { position: 61 }),
        ("bad-last-delta-small", RecordError::OffsetOutsideBatch { delta: 2, last_offset_delta: 1 }),
    ];
    for (name, want) in table {
        let bytes = testdata(&format!("batches/{name}.bin"));
        let batch = RecordBatch::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let walk: Result<Vec<Record<'_>>, RecordError> = batch.records().expect("not compressed").collect();
        assert_eq!(walk.err(), Some(want), "{name}");
    }
}

#[test]
fn b9_the_value_of_a_barrier_is_described_and_never_hides_it() {
    use MirrorPidResetValue::{Current, Null, Unrecognised, WithSourceClusterId};
    let source_cluster_id = "MkU3OEVBNTcwNTJENDM2Qk";
    let table = [
        ("barrier-3byte", Current { version: 0, tagged_fields: 0 }),
        ("barrier-3byte-as-built", Current { version: 0, tagged_fields: 0 }),
        ("barrier-26byte", WithSourceClusterId { version: 0, source_cluster_id, tagged_fields: 0 }),
        ("barrier-empty-value", Unrecognised { size: 0 }),
        ("barrier-null-value", Null),
        ("barrier-value-tags", Current { version: 0, tagged_fields: 1 }),
        ("barrier-value-version1-tags", Current { version: 1, tagged_fields: 2 }),
        ("barrier-key-long", Current { version: 0, tagged_fields: 0 }),
        ("barrier-key-version1", Current { version: 0, tagged_fields: 0 }),
        ("barrier-logappendtime", Current { version: 0, tagged_fields: 0 }),
        ("barrier-transactional", Current { version: 0, tagged_fields: 0 }),
        ("barrier-two-records", Current { version: 0, tagged_fields: 0 }),
        ("barrier-with-pid", Current { version: 0, tagged_fields: 0 }),
    ];
    for (name, want) in table {
        let bytes = testdata(&format!("batches/{name}.bin"));
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert_eq!(MirrorPidReset::describe(&batch).map(|barrier| barrier.value), Some(want), "{name}");
    }
    for name in ["barrier-no-record", "barrier-not-control", "barrier-second-record", "barrier-key-short"] {
        let bytes = testdata(&format!("batches/{name}.bin"));
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert_eq!(MirrorPidReset::describe(&batch), None, "{name}");
    }
}

/// A log in these folders: its name, its segments' bytes by name, and what Kafka says of it.
fn check_log(folder: &Path) -> usize {
    let expected = std::fs::read(folder.join("expected.json")).expect("Kafka's answer");
    let expected: Value = serde_json::from_slice(&expected).expect("JSON");
    let partition = expected["partition"].as_str().map(|name| folder.join(name)).filter(|name| name.is_dir());
    let partition = partition.unwrap_or_else(|| folder.to_owned());
    let mut count = 0;
    for segment in expected["segments"].as_array().expect("segments") {
        let file = partition.join(segment["file"].as_str().expect("a name"));
        let name = file.display().to_string();
        let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut reader = AnyBatchReader::new(&bytes);
        let kafkas = segment["batches"].as_array().expect("batches");
        let valid = kafkas.iter().take_while(|batch| batch["valid"] == true);
        for kafkas in valid.clone() {
            assert_eq!(i64::try_from(reader.position()), Ok(number(kafkas, "position")), "{name}");
            let batch =
                reader.next().expect("as many batches").unwrap_or_else(|error| panic!("{name}: {error}"));
            check_any(&name, &batch, kafkas);
            count += 1;
        }
        let end = i64::try_from(reader.position()).expect("a position");
        let whole = valid.count() == kafkas.len() && end == number(segment, "size");
        assert_eq!(reader.next().is_none(), whole, "{name}: we end where Kafka does, and say so");
    }
    count
}

fn check_logs(folder: &Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        count += check_log(&entry.expect("an entry").path());
    }
    count
}

#[test]
fn every_batch_of_kafkas_logs_reads_as_kafka_reads_it() {
    let count = check_logs(&manifest_dir().join("testdata/logs"));
    assert!(count > 500, "only {count} batches");
    // All of Kafka's logs are more than this repository carries.
    if let Some(folder) = std::env::var_os("WEIR_GOLDEN_DIR") {
        let count = check_logs(Path::new(&folder));
        assert!(count > 0, "no batch in {}", folder.display());
    }
}

/// Builds the batch anew from what was read of it.
fn rebuilt(batch: &RecordBatch<'_>) -> Vec<u8> {
    let mut builder = BatchBuilder::new()
        .base_offset(batch.base_offset())
        .last_offset_delta(batch.last_offset_delta())
        .base_timestamp(batch.base_timestamp());
    if batch.delete_horizon().is_some() {
        builder = builder.delete_horizon(batch.base_timestamp());
    }
    if let Some(leader_epoch) = batch.leader_epoch() {
        builder = builder.leader_epoch(leader_epoch);
    }
    if let Some(producer_id) = batch.producer_id() {
        let epoch = batch.producer_epoch().unwrap_or(ProducerEpoch::ZERO);
        builder = builder.producer(producer_id, epoch, batch.base_sequence());
    }
    if batch.is_transactional() {
        builder = builder.transactional();
    }
    if batch.is_control() {
        builder = builder.control();
    }
    for record in batch.records().expect("not compressed") {
        let record = record.expect("well formed");
        let headers: Vec<_> = record.headers().map(|header| (header.key, header.value)).collect();
        let delta = record.offset.since(batch.base_offset());
        builder = builder.record_at(delta, record.timestamp, record.key, record.value, &headers);
    }
    builder = match batch.timestamp_type() {
        TimestampType::CreateTime => builder.max_timestamp(batch.max_timestamp()),
        TimestampType::LogAppendTime => builder.log_append_time(batch.max_timestamp()),
    };
    builder.build().expect("a batch").to_vec()
}

#[test]
fn what_kafka_wrote_and_we_build_again_is_the_same_byte_for_byte() {
    let mut count = 0;
    let mut check = |name: &str, bytes: &[u8]| {
        for batch in BatchReader::new(bytes) {
            let batch = batch.unwrap_or_else(|error| panic!("{name}: {error}"));
            if batch.codec() == Codec::None {
                assert_eq!(rebuilt(&batch), batch.bytes(), "{name} at {}", batch.base_offset());
                count += 1;
            }
        }
    };
    for name in items() {
        // Under LogAppendTime the records' own timestamps are not readable, so they cannot be written again.
        let lost = name.ends_with("logappendtime");
        let plain = ["v2-none", "v2-idempotent", "v2-transactional", "v2-headers", "v2-sequence", "v2-empty"];
        let more = ["v2-delete", "control-", "barrier-", "gap-", "two-batches", "second-batch"];
        if !lost && plain.iter().chain(&more).any(|start| name.starts_with(start)) {
            check(&name, &testdata(&format!("batches/{name}.bin")));
        }
    }
    for log in ["barrier", "barrier-unclean", "compacted", "headers-nulls", "timestamps"] {
        for segment in json(&format!("logs/{log}/expected.json"))["segments"].as_array().expect("segments") {
            let file = segment["file"].as_str().expect("a name");
            check(file, &testdata(&format!("logs/{log}/{file}")));
        }
    }
    assert!(count > 90, "only {count} batches");
}
