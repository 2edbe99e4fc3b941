//! What Kafka 4.4.0 wrote, and its verdict on it, against ours.

use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_format::{
    AnyBatch, AnyBatchError, AnyBatchReader, BatchBuilder, BatchError, BatchReader, Codec, ControlError,
    ControlRecordKey, ControlRecordType, ControlRecordValue, HEADER_SIZE, Header, Message, MessageError,
    MirrorPidReset, MirrorPidResetValue, ProducerId, Record, RecordBatch, RecordError, Sequence, varint,
};

use crate::support::{base64, manifest_dir, seal, sha256, testdata};

/// Why we end a walk where Kafka reads on, if that is why: what is refused has a place in no log.
fn stricter_about_batches(error: &AnyBatchError) -> Option<&'static str> {
    Some(match error {
        AnyBatchError::Batch(BatchError::NegativeBaseOffset { .. }) => {
            "an offset below 0 has no place in a log; Kafka's append and index code fail on it later"
        }
        AnyBatchError::Batch(BatchError::OffsetOverflow { .. }) => {
            "no next offset is left; Kafka reads it and then fails in recovery"
        }
        AnyBatchError::Batch(BatchError::NegativeLastOffsetDelta { .. }) => {
            "the batch would end before it starts, and the next offset would go backwards"
        }
        AnyBatchError::Batch(BatchError::NegativeRecordCount { .. }) => "no walk of its records can be right",
        AnyBatchError::Batch(BatchError::InvalidMagic { .. }) => {
            "no batch has it; Kafka takes all above 2 for 2"
        }
        AnyBatchError::Message(MessageError::InvalidOffset { .. }) => "as a batch's offset below 0",
        AnyBatchError::Message(MessageError::UnreadBytes { .. }) => "data that nobody would ever see",
        _ => return None,
    })
}

/// Why we go on where Kafka's walk over batches ends, if that is why.
fn looser_about_batches(batch: &AnyBatch<'_>) -> Option<&'static str> {
    let (codec, records_are_wrong) = match batch {
        AnyBatch::Batch(batch) => (batch.codec(), false),
        #[cfg(feature = "codec")]
        AnyBatch::Message(message) => (message.codec(), message.record_stream(1 << 31).is_err()),
        #[cfg(not(feature = "codec"))]
        AnyBatch::Message(message) => (message.codec(), message.codec() != Codec::None),
    };
    match codec {
        Codec::Unknown(_) => Some(
            "kept whole like any compressed batch; Kafka fails when it looks at the codec, appends refuse it",
        ),
        _ if records_are_wrong => {
            Some("an error of its records; Kafka reads them to find a wrapper's first offset")
        }
        _ => None,
    }
}

/// Why a walk over records ends badly for us and well for Kafka, if that is why.
fn stricter_about_records(error: &RecordError) -> Option<&'static str> {
    Some(match error {
        RecordError::TrailingBytes { record_count: 0, .. } => {
            "records that nobody counts would be served and never seen"
        }
        RecordError::OffsetOutsideBatch { .. } => "a record's offset would be another batch's",
        RecordError::InvalidLength { length: ..-1, .. } => "null is -1; what less means would be a guess",
        _ => return None,
    })
}

/// Likewise over the messages in a wrapper.
#[cfg(feature = "codec")]
fn stricter_about_messages(error: &MessageError) -> Option<&'static str> {
    Some(match error {
        MessageError::UnreadBytes { .. } | MessageError::Truncated { .. } => {
            "data that nobody would ever see"
        }
        MessageError::InvalidOffset { .. } => "an offset below 0 has no place in a log",
        MessageError::NotAMessage { .. } => "a magic that was never a message's",
        _ => return None,
    })
}

/// The names of the record sets in this folder, in ascending order.
fn items_of(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .filter_map(|entry| {
            entry.ok()?.file_name().into_string().ok()?.strip_suffix(".bin").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

fn batches() -> PathBuf {
    manifest_dir().join("testdata/batches")
}

fn items() -> Vec<String> {
    let names = items_of(&batches());
    assert_eq!(names.len(), 107, "every item of the golden data is here");
    names
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn answer(path: &Path) -> Value {
    serde_json::from_slice(&read(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn number(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or_else(|| panic!("{field} of {value}"))
}

/// A number, where Kafka says −1 for none.
fn some(value: &Value, field: &str) -> Option<i64> {
    Some(number(value, field)).filter(|number| *number >= 0)
}

/// What Kafka says of a batch, of a record and of a header; a field that nobody compares would be a gap.
const BATCH_FIELDS: &[&str] = &[
    "position",
    "size",
    "baseOffset",
    "lastOffset",
    "magic",
    "crc",
    "valid",
    "ensureValid",
    "count",
    "leaderEpoch",
    "producerId",
    "producerEpoch",
    "baseSequence",
    "lastSequence",
    "transactional",
    "control",
    "deleteHorizonMs",
    "compression",
    "timestampType",
    "maxTimestamp",
    "records",
    "recordsRead",
    "stoppedBy",
];
const RECORD_FIELDS: &[&str] = &[
    "offset",
    "timestamp",
    "sequence",
    "key",
    "value",
    "headers",
    "controlType",
    "controlTypeId",
    "coordinatorEpoch",
];

fn check_fields(what: &str, kafka: &Value, known: &[&str]) {
    for field in kafka.as_object().expect("an object").keys() {
        assert!(known.contains(&field.as_str()), "{what}: nobody compares {field}");
    }
}

fn check_header(name: &str, batch: &RecordBatch<'_>, kafka: &Value) {
    assert_eq!(i64::try_from(batch.size()), Ok(number(kafka, "size")), "{name}: size");
    assert_eq!(batch.base_offset().get(), number(kafka, "baseOffset"), "{name}: base offset");
    assert_eq!(batch.last_offset().get(), number(kafka, "lastOffset"), "{name}: last offset");
    assert_eq!(batch.next_offset().get(), number(kafka, "lastOffset") + 1, "{name}: next offset");
    assert_eq!(kafka["magic"], 2, "{name}: magic");
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

/// `sequence` is what the batch gives to the record; messages of magic 0 and 1 have none.
fn check_record(name: &str, record: &Record<'_>, sequence: Option<Sequence>, kafka: &Value) {
    let what = format!("{name}: record at {}", record.offset);
    check_fields(&what, kafka, RECORD_FIELDS);
    match kafka["controlType"].as_str() {
        None => {
            let kafkas = kafka["sequence"].as_i64().filter(|it| *it >= 0);
            assert_eq!(sequence.map(|it| i64::from(it.get())), kafkas, "{what}: sequence");
        }
        // Of a control record Kafka's answer leaves the sequence out.
        Some(control_type) => {
            let key =
                ControlRecordKey::decode(record.key.expect("a control record has a key")).expect("a key");
            assert_eq!(i64::from(key.record_type.id()), number(kafka, "controlTypeId"), "{what}: type");
            // Kafka 4.4.0 has no name for the barrier yet.
            let ours = match key.record_type {
                ControlRecordType::MirrorPidReset | ControlRecordType::Unknown(_) => "UNKNOWN".to_owned(),
                named => named.to_string(),
            };
            assert_eq!(ours, control_type, "{what}: type");
        }
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

/// One batch that Kafka and we both read. Answers whether we agree about its records as well, or have a reason.
fn check_batch(name: &str, batch: &RecordBatch<'_>, kafka: &Value) -> bool {
    check_fields(name, kafka, BATCH_FIELDS);
    if kafka.get("size").is_some() {
        check_header(name, batch, kafka);
    } else {
        // Of the bombs Kafka's answer has less.
        assert_eq!(batch.base_offset().get(), number(kafka, "baseOffset"), "{name}: base offset");
        assert_eq!(batch.last_offset().get(), number(kafka, "lastOffset"), "{name}: last offset");
    }
    assert!(kafka["ensureValid"].is_null() || kafka["ensureValid"] == "ok", "{name}: Kafka finds it valid");
    let none = Vec::new();
    let kafkas_records = kafka["records"].as_array().unwrap_or(&none);
    let kafkas_count = match &kafka["recordsRead"]["count"] {
        Value::Null => kafkas_records.len(),
        count => count.as_u64().and_then(|count| usize::try_from(count).ok()).expect("a count"),
    };
    if cfg!(not(feature = "codec")) && batch.codec() != Codec::None {
        assert_eq!(batch.records().err(), Some(RecordError::Compressed { codec: batch.codec() }), "{name}");
        return true;
    }
    let ours = walk(name, batch, kafka);
    let stopped = kafka.get("stoppedBy").or_else(|| kafka["recordsRead"].get("stoppedBy"));
    let agreed = ours.is_ok() || stopped.is_some();
    match (ours, stopped) {
        (Ok(ours), None) => {
            // Of damaged logs Kafka's answer lists the batches alone.
            if kafka.get("records").is_some() || kafka.get("recordsRead").is_some() {
                assert_eq!(ours, kafkas_count, "{name}: records");
            }
            if kafka.get("records").is_some() {
                check_control(name, batch, kafkas_records.first());
            }
        }
        (Err(error), None) => {
            let reason = stricter_about_records(&error);
            assert!(reason.is_some(), "{name}: Kafka reads the records, and we {error}");
        }
        (Ok(_), Some(stopped)) => {
            // Kafka's walk failed over the meaning of the control record, not over the record.
            let why = format!("{name}: Kafka fails with {stopped}, and we read it");
            assert!(batch.is_control() && says_nothing(batch), "{why}");
        }
        (Err(_), Some(_)) => {}
    }
    agreed
}

/// Whether a key of this control batch is none, or its marker's value too short to be one.
fn says_nothing(batch: &RecordBatch<'_>) -> bool {
    let no_key = |record: Record<'_>| record.key.and_then(ControlRecordKey::decode).is_none();
    batch.records().is_ok_and(|records| records.flatten().any(no_key))
        || batch.end_transaction_marker().is_some_and(|marker| marker.is_err())
}

/// Checks each record against Kafka's and answers how many there are, whichever way the batch can be walked.
fn walk(name: &str, batch: &RecordBatch<'_>, kafka: &Value) -> Result<usize, RecordError> {
    let (mut count, mut bytes) = (0, 0);
    let kafkas = kafka["records"].as_array();
    let mut check = |record: &Record<'_>| {
        if let Some(kafka) = kafkas.and_then(|kafkas| kafkas.get(count)) {
            let delta = u32::try_from(record.offset.since(batch.base_offset())).expect("within the batch");
            let sequence = batch.base_sequence().map(|first| first.plus(delta));
            check_record(name, record, sequence, kafka);
        }
        count += 1;
        bytes += record_size(batch, record);
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
    if let Some(wanted) = kafka["recordsRead"]["bytes"].as_u64() {
        assert_eq!(u64::try_from(bytes), Ok(wanted), "{name}: bytes of all records");
    }
    Ok(count)
}

/// What Kafka calls a record's size in bytes: all of it, written in the shortest form.
fn record_size(batch: &RecordBatch<'_>, record: &Record<'_>) -> usize {
    let value = record.value.map_or(0, <[u8]>::len);
    if value < 1 << 16 {
        return 0; // It is compared for the bombs alone, whose records are large.
    }
    let mut fields = bytes::BytesMut::new();
    varint::encode_long(record.timestamp.since(batch.base_timestamp()), &mut fields);
    varint::encode(i32::try_from(record.offset.since(batch.base_offset())).expect("small"), &mut fields);
    varint::encode(record.key.map_or(-1, |key| i32::try_from(key.len()).expect("small")), &mut fields);
    varint::encode(i32::try_from(value).expect("below 2 GiB"), &mut fields);
    let size = 1 + fields.len() + record.key.map_or(0, <[u8]>::len) + value + 1;
    fields.clear();
    varint::encode(i32::try_from(size).expect("below 2 GiB"), &mut fields);
    fields.len() + size
}

/// As [`check_batch`], of a message of magic 0 or 1.
fn check_message(name: &str, message: &Message<'_>, kafka: &Value) -> bool {
    check_fields(name, kafka, BATCH_FIELDS);
    assert!(kafka["ensureValid"].is_null() || kafka["ensureValid"] == "ok", "{name}: Kafka finds it valid");
    // What a message has no field for: Kafka says so in its own words, and we have nothing to ask.
    for none in ["leaderEpoch", "producerId", "producerEpoch", "baseSequence", "lastSequence"] {
        assert_eq!(number(kafka, none), -1, "{name}: {none}");
    }
    assert!(kafka["count"].is_null() && kafka["deleteHorizonMs"].is_null(), "{name}");
    assert!(kafka["transactional"] == false && kafka["control"] == false, "{name}");
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
    match (walk_message(name, message, kafka), kafka.get("stoppedBy")) {
        (Ok(count), None) => {
            // Of damaged logs Kafka's answer lists the messages alone.
            let kafkas = kafka["records"].as_array().map(Vec::len);
            assert!(
                kafkas.is_none_or(|kafkas| count == kafkas),
                "{name}: {count} records, {kafkas:?} for Kafka"
            );
        }
        (Err(error), None) => {
            let reason = stricter_about_messages(&error);
            assert!(reason.is_some(), "{name}: Kafka reads the messages, and we {error}");
            return false;
        }
        (Ok(_), Some(stopped)) => panic!("{name}: Kafka fails with {stopped}, and we read it"),
        (Err(_), Some(_)) => {}
    }
    true
}

/// As [`walk`], of a message of magic 0 or 1.
#[cfg(feature = "codec")]
fn walk_message(name: &str, message: &Message<'_>, kafka: &Value) -> Result<usize, MessageError> {
    let kafkas = kafka["records"].as_array();
    let mut stream = message.record_stream(1 << 31)?;
    let mut count = 0;
    while let Some(record) = stream.next_record() {
        let record = record?;
        if let Some(kafkas) = kafkas {
            if count == 0 {
                assert_eq!(record.offset.get(), number(kafka, "baseOffset"), "{name}: base offset");
            }
            check_record(name, &record, None, kafkas.get(count).unwrap_or(&Value::Null));
        }
        count += 1;
    }
    Ok(count)
}

fn check_any(name: &str, ours: &AnyBatch<'_>, kafka: &Value) -> bool {
    match ours {
        AnyBatch::Batch(batch) => check_batch(name, batch, kafka),
        AnyBatch::Message(message) => check_message(name, message, kafka),
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

/// What was compared.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Compared {
    batches: usize,
    records: usize,
    /// Where our verdict is another, for a reason that is written down above.
    differ: usize,
}

impl Compared {
    fn add(&mut self, kafka: &Value, differs: bool) {
        self.differ += usize::from(differs);
        self.batches += 1;
        self.records += kafka["records"].as_array().map_or(0, Vec::len);
        self.records +=
            kafka["recordsRead"]["count"].as_u64().map_or(0, |count| usize::try_from(count).expect("small"));
    }
}

/// One record set: its bytes are those that Kafka was asked about, and our verdict is Kafka's, or stricter and listed.
fn check_item(folder: &Path, name: &str) -> Compared {
    let bytes = read(&folder.join(format!("{name}.bin")));
    let kafka = answer(&folder.join(format!("{name}.json")));
    assert_eq!(u64::try_from(bytes.len()).ok(), kafka["size"].as_u64(), "{name}: size");
    assert_eq!(Some(sha256(&bytes).as_str()), kafka["sha256"].as_str(), "{name}: bytes");
    let all = kafka["read"]["batches"].as_array().expect("batches");
    let kafkas: Vec<&Value> = all.iter().take_while(|batch| batch["valid"] == true).collect();
    let mut ours = Vec::new();
    let mut reader = AnyBatchReader::new(&bytes);
    let mut error = None;
    for batch in reader.by_ref() {
        match batch {
            Ok(batch) => ours.push(batch),
            Err(found) => error = Some(found),
        }
    }
    let (found, wanted) = (ours.len(), kafkas.len());
    let mut compared = Compared::default();
    if found == wanted {
        // Kafka stops without a word before a batch that is cut, and with one before anything else.
        let good = kafkas.len() == all.len() && kafka["read"].get("stoppedBy").is_none();
        let whole = good && reader.position() == bytes.len();
        assert_eq!(error.is_none(), whole, "{name}: {error:?}");
    } else {
        let goes_on = ours.get(wanted).is_some_and(|batch| looser_about_batches(batch).is_some());
        let ends = kafkas.get(found).zip(error).is_some_and(|(kafka, error)| {
            stricter_about_batches(&error).is_some() || kafka.get("stoppedBy").is_some()
        });
        assert!(goes_on || ends, "{name}: {found} batches, {wanted} for Kafka, {error:?}");
        compared.differ += 1;
    }
    for (ours, kafkas) in ours.iter().zip(kafkas) {
        let differs = !check_any(name, ours, kafkas);
        compared.add(kafkas, differs);
    }
    compared
}

#[test]
fn our_verdict_on_every_item_is_kafkas_or_has_a_reason() {
    let mut compared = 0;
    let mut differ = Vec::new();
    for name in items() {
        let item = check_item(&batches(), &name);
        compared += item.batches;
        if item.differ > 0 {
            differ.push(name);
        }
    }
    assert!(compared > 80, "only {compared} batches");
    let wanted = [
        "bad-codec-5",
        "bad-codec-7",
        "bad-count-negative",
        "bad-count-zero",
        "bad-last-delta-negative",
        "bad-last-delta-small",
        "bad-offset-max",
        "bad-offset-negative",
    ];
    assert_eq!(differ, wanted);
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

/// One log: every segment, read to where Kafka's reader ends, and what it says of each batch.
fn check_log(folder: &Path) -> Compared {
    let expected = answer(&folder.join("expected.json"));
    let partition = expected["partition"].as_str().map(|name| folder.join(name)).filter(|name| name.is_dir());
    let partition = partition.unwrap_or_else(|| folder.to_owned());
    let mut compared = Compared::default();
    'segments: for segment in expected["segments"].as_array().expect("segments") {
        check_fields(
            "a segment",
            segment,
            &["file", "size", "batches", "endOfLastReadableBatch", "stoppedBy"],
        );
        let file = partition.join(segment["file"].as_str().expect("a name"));
        let name = file.display().to_string();
        let bytes = read(&file);
        assert_eq!(i64::try_from(bytes.len()), Ok(number(segment, "size")), "{name}: size");
        let mut reader = AnyBatchReader::new(&bytes);
        let kafkas = segment["batches"].as_array().expect("batches");
        let valid = kafkas.iter().take_while(|batch| batch["valid"] == true);
        for kafkas in valid.clone() {
            assert_eq!(i64::try_from(reader.position()), Ok(number(kafkas, "position")), "{name}");
            let batch = match reader.next().expect("as many batches") {
                Ok(batch) => batch,
                Err(error) => {
                    let reason = stricter_about_batches(&error);
                    assert!(reason.is_some(), "{name}: {error}");
                    compared.differ += 1;
                    continue 'segments;
                }
            };
            let differs = !check_any(&name, &batch, kafkas);
            compared.add(kafkas, differs);
        }
        let end = i64::try_from(reader.position()).expect("a position");
        let all_valid = valid.count() == kafkas.len();
        if all_valid {
            assert_eq!(end, number(segment, "endOfLastReadableBatch"), "{name}: where the last batch ends");
        }
        let whole = all_valid && end == number(segment, "size");
        assert!(!whole || segment.get("stoppedBy").is_none(), "{name}: Kafka fails, and we do not");
        assert_eq!(reader.next().is_none(), whole, "{name}: we end where Kafka does, and say so");
    }
    compared
}

/// The folders of a folder, in ascending order.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

#[test]
fn every_batch_of_kafkas_logs_reads_as_kafka_reads_it() {
    let mut all = Compared::default();
    for log in folders(&manifest_dir().join("testdata/logs")) {
        let compared = check_log(&log);
        all.batches += compared.batches;
        all.records += compared.records;
        all.differ += compared.differ;
    }
    assert!(all.batches > 500 && all.records > 1500, "only {all:?}");
    assert_eq!(all.differ, 0, "what a Kafka wrote has nothing that is refused here");
}

/// Kafka says no more of these values than their bytes; that those which a Kafka wrote are read whole is what is checked.
#[test]
fn every_value_of_a_control_record_that_kafka_wrote_is_read() {
    let kraft = testdata("logs/internal-cluster-metadata/00000000000000000000.log");
    let made = ["leader-change", "snapshot-header", "snapshot-footer", "kraft-version", "kraft-voters"];
    let made = made.map(|name| testdata(&format!("batches/control-{name}.bin"))).concat();
    let mut types = std::collections::BTreeSet::new();
    for batch in [kraft, made].iter().flat_map(|bytes| BatchReader::new(bytes)) {
        let batch = batch.expect("valid");
        let Some(record_type) = batch.control_type() else { continue };
        for record in batch.records().expect("not compressed") {
            let value = ControlRecordValue::decode(record_type, record.expect("well formed").value);
            assert!(value.is_some_and(|value| value.is_ok()), "{record_type} at {}", batch.base_offset());
            types.insert(record_type.id());
        }
    }
    assert_eq!(types, (2..=6).collect());
}

#[test]
fn control_records_that_kafka_cannot_read_say_why() {
    for name in ["key-empty", "key-null", "key-short", "key-version-negative"] {
        let bytes = testdata(&format!("batches/barrier-{name}.bin"));
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert_eq!(batch.control_type(), None, "{name}");
        assert!(!batch.is_barrier(), "{name}");
        assert_eq!(batch.end_transaction_marker(), None, "{name}");
    }
    let bytes = testdata("batches/control-commit-value-short.bin");
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!(batch.control_type(), Some(ControlRecordType::Commit));
    assert_eq!(batch.end_transaction_marker(), Some(Err(ControlError::ShortValue { size: 2 })));
}

/// Golden data that this repository does not carry, in the folder that `WEIR_GOLDEN_DIR` names: `cargo xtask golden`
/// runs this, reads its lines and says what they mean.
#[test]
#[ignore = "it needs a folder of golden data; cargo xtask golden DIR"]
fn golden_data_in_a_folder_reads_as_kafka_reads_it() {
    let folder =
        PathBuf::from(std::env::var_os("WEIR_GOLDEN_DIR").expect("WEIR_GOLDEN_DIR names the folder"));
    let mut failed = 0;
    let mut one = |name: &str, check: &dyn Fn() -> Compared| match std::panic::catch_unwind(
        std::panic::AssertUnwindSafe(check),
    ) {
        Ok(Compared { batches, records, differ }) => {
            println!("golden ok {name} {batches} {records} {differ}")
        }
        Err(_) => {
            failed += 1;
            println!("golden failed {name}");
        }
    };
    let (logs, items) = (folder.join("logs"), folder.join("batches"));
    for log in if logs.is_dir() { folders(&logs) } else { Vec::new() } {
        let name = log.file_name().expect("a name").to_string_lossy().into_owned();
        one(&format!("logs/{name}"), &|| check_log(&log));
    }
    for name in if items.is_dir() { items_of(&items) } else { Vec::new() } {
        one(&format!("batches/{name}"), &|| check_item(&items, &name));
    }
    assert_eq!(failed, 0, "{failed} failed");
}

/// Builds the batch anew from what was read of it, which is `records`: its own, or the decompressed ones.
///
/// Under LogAppendTime a record reads as the batch's largest timestamp; what its producer said stands in its delta, and is
/// read with that bit taken away.
fn rebuilt(batch: &RecordBatch<'_>, records: &[u8]) -> Vec<u8> {
    let mut create_time = batch.bytes().to_vec();
    create_time[22] &= !0x08;
    let create_time = RecordBatch::parse_without_crc(&create_time).expect("the header is as good as before");
    let records: Vec<_> =
        create_time.records_in(records).map(|record| record.expect("well formed")).collect();
    let builder = records.iter().fold(BatchBuilder::like(batch), BatchBuilder::copied);
    builder.build().expect("a batch").to_vec()
}

/// Items whose records can be read and that the builder cannot write, and why.
const NOT_BUILT: &[(&str, &str)] = &[
    ("bad-offset-deltas-down", "offsets ascend within a batch"),
    ("bad-offset-deltas-equal", "offsets ascend within a batch"),
    ("bomb-gzip-64mib", "64 MiB and no news"),
    ("bomb-zstd-1gib", "1 GiB and no news"),
    ("bomb-zstd-one-record-256mib", "256 MiB and no news"),
];

/// Whether it was taken apart and put together: Kafka's bytes again, or of a compressed batch, those that its producer
/// compressed.
fn check_rebuilt(name: &str, batch: &RecordBatch<'_>) -> bool {
    let records = match batch.codec() {
        Codec::None => batch.bytes()[HEADER_SIZE..].to_vec(),
        #[cfg(feature = "codec")]
        _ => match batch.decompress(1 << 20) {
            Ok(records) => records,
            Err(_) => return false,
        },
        #[cfg(not(feature = "codec"))]
        _ => return false,
    };
    if batch.records_in(&records).any(|record| record.is_err()) {
        return false;
    }
    let again = rebuilt(batch, &records);
    if batch.codec() == Codec::None {
        assert_eq!(again, batch.bytes(), "{name} at {}", batch.base_offset());
        return true;
    }
    let mut plain = batch.bytes()[..HEADER_SIZE].to_vec();
    plain[22] &= !0x07;
    plain.extend_from_slice(&records);
    assert_eq!(again, seal(plain), "{name} at {}", batch.base_offset());
    true
}

#[test]
fn what_kafka_wrote_and_we_build_again_is_the_same_byte_for_byte() {
    let mut built = 0;
    for name in items() {
        let left_out = NOT_BUILT.iter().any(|(left_out, _)| *left_out == name);
        let bytes = testdata(&format!("batches/{name}.bin"));
        for batch in BatchReader::new(&bytes).map_while(Result::ok) {
            if !left_out {
                built += usize::from(check_rebuilt(&name, &batch));
            }
        }
    }
    // The rest of the 107 are not whole batches of well-formed records, or older than batches.
    assert_eq!(built, if cfg!(feature = "codec") { 56 } else { 52 }, "items");
    for log in folders(&manifest_dir().join("testdata/logs")) {
        for segment in answer(&log.join("expected.json"))["segments"].as_array().expect("segments") {
            let file = log.join(segment["file"].as_str().expect("a name"));
            let name = file.display().to_string();
            for batch in AnyBatchReader::new(&read(&file)) {
                if let AnyBatch::Batch(batch) = batch.unwrap_or_else(|error| panic!("{name}: {error}")) {
                    let done = check_rebuilt(&name, &batch);
                    assert!(done || cfg!(not(feature = "codec")), "{name} at {}", batch.base_offset());
                    built += usize::from(done);
                }
            }
        }
    }
    assert!(built > 240, "only {built} batches");
}
