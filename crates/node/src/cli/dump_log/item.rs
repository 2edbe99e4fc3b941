//! The lines of a dump: what is said, and how it looks as text and as JSON.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};
use weir_format::{
    BatchHeader, ControlRecordKey, ControlRecordType, ControlRecordValue, LeaderEpoch, Message,
    MirrorPidResetValue, Offset, ProducerEpoch, ProducerId, Record, Sequence,
};
use weir_psm::{BatchMetadata, ProducerStateEntry};

use super::{DumpOptions, kraft};

/// How many findings of one kind are kept for the end of a file; the others are counted.
const MAX_FINDINGS: usize = 10_000;
/// Of every JSON object.
const API_VERSION: &str = "weir/v1";

/// One line of a dump.
pub(super) enum Item<'a> {
    File,
    Empty,
    LogStart {
        base_offset: Offset,
    },
    Batch {
        header: &'a BatchHeader<'a>,
        position: u64,
        valid: bool,
    },
    OldBatch {
        offset: i64,
        position: u64,
        size: u64,
        magic: i8,
        reason: &'a str,
    },
    Message {
        message: &'a Message<'a>,
        position: u64,
    },
    MessageRecord {
        message: &'a Message<'a>,
        record: &'a Record<'a>,
        crc: u32,
    },
    UnreadableBatch {
        position: u64,
        size: u64,
        reason: &'a str,
    },
    Record {
        header: &'a BatchHeader<'a>,
        record: &'a Record<'a>,
    },
    NoRecords {
        reason: fmt::Arguments<'a>,
    },
    ZeroTail {
        position: u64,
        size: u64,
    },
    InvalidTail {
        position: u64,
        size: u64,
        reason: &'a str,
    },
    /// The same, with a valid batch behind.
    InvalidBytes {
        position: u64,
        size: u64,
        reason: &'a str,
    },
    /// An entry of a small file: the kind and the fields, as text and as JSON.
    Fields {
        kind: &'static str,
        fields: Vec<(&'static str, Value)>,
    },
    OffsetIndexEntry {
        offset: i64,
        position: i32,
    },
    TimeIndexEntry {
        timestamp: i64,
        offset: i64,
    },
    AbortedTransaction {
        version: i16,
        producer_id: i64,
        first_offset: i64,
        last_offset: i64,
        last_stable_offset: i64,
    },
    Producer {
        producer_id: ProducerId,
        entry: &'a ProducerStateEntry,
    },
}

/// Something odd in a file, said at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    IndexMismatch {
        offset: i64,
        found: Option<i64>,
    },
    TimestampMismatch {
        timestamp: i64,
        found: i64,
    },
    TimestampOutOfOrder {
        timestamp: i64,
        previous: i64,
    },
    OffsetNotFound {
        offset: i64,
        found: i64,
    },
    NonConsecutive {
        previous: i64,
        next: i64,
    },
    /// There is no log to look the index's entries up in.
    LogMissing,
    /// The entries go back and forth too often.
    NotLookedUp,
}

/// What was found in one file.
#[derive(Debug, Default)]
pub(super) struct Findings {
    kept: Vec<Finding>,
    more: u64,
}

impl Findings {
    pub(super) fn add(&mut self, finding: Finding) {
        if self.kept.len() < MAX_FINDINGS {
            self.kept.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// The line of a finding, if it belongs under a heading.
type FindingLine = fn(Finding) -> Option<String>;

/// Where the lines go.
pub(super) struct Printer<'out> {
    out: BufWriter<&'out mut dyn Write>,
    options: DumpOptions,
}

impl<'out> Printer<'out> {
    pub(super) fn new(out: &'out mut dyn Write, options: DumpOptions) -> Self {
        Self { out: BufWriter::new(out), options }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(super) fn item(&mut self, path: &Path, item: &Item<'_>) -> io::Result<()> {
        if self.options.json { self.json_item(path, item) } else { self.text_item(path, item) }
    }

    fn text_item(&mut self, path: &Path, item: &Item<'_>) -> io::Result<()> {
        let out = &mut self.out;
        match item {
            Item::File => writeln!(out, "Dumping {}", path.display()),
            Item::Empty => writeln!(out, "{} is empty.", path.display()),
            Item::LogStart { base_offset } => writeln!(out, "Log starting offset: {base_offset}"),
            Item::Batch { header, position, valid } => {
                writeln!(
                    out,
                    "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} \
                     producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} \
                     deleteHorizonMs: {} position: {position} {}: {} size: {} magic: 2 compresscodec: {} crc: {} \
                     isvalid: {valid}",
                    header.base_offset(),
                    header.last_offset(),
                    header.record_count(),
                    or_none(header.base_sequence(), Sequence::get),
                    or_none(header.last_sequence(), Sequence::get),
                    header.raw_producer_id(),
                    or_none(header.producer_epoch(), ProducerEpoch::get),
                    or_none(header.leader_epoch(), LeaderEpoch::get),
                    header.is_transactional(),
                    header.is_control(),
                    OptionalLong(header.delete_horizon().map(|horizon| horizon.get())),
                    header.timestamp_type(),
                    header.max_timestamp(),
                    header.size(),
                    header.codec(),
                    header.crc(),
                )
            }
            Item::OldBatch { offset, position, size, magic, reason } => writeln!(
                out,
                "offset: {offset} position: {position} size: {size} magic: {magic} unreadable: {reason}"
            ),
            Item::Message { message, position } => writeln!(
                out,
                "offset: {} position: {position} {}: {} size: {} magic: {} compresscodec: {} crc: {} isvalid: true",
                message.offset(),
                TypeOf(message),
                message.timestamp(),
                message.size(),
                message.magic(),
                message.codec(),
                message.crc(),
            ),
            Item::MessageRecord { message, record, crc } => {
                write!(
                    out,
                    "| offset: {} {}: {} keySize: {} valueSize: {} isValid: true crc: {crc}",
                    record.offset,
                    TypeOf(message),
                    record.timestamp,
                    Size(record.key),
                    Size(record.value),
                )?;
                self.text_key_and_value(record)
            }
            Item::UnreadableBatch { position, size, reason } => {
                writeln!(out, "position: {position} size: {size} magic: 2 unreadable: {reason}")
            }
            Item::Record { header, record } => self.text_record(header, record),
            Item::NoRecords { reason } => writeln!(out, "| records are not shown: {reason}"),
            Item::ZeroTail { size, .. } => {
                writeln!(
                    out,
                    "Found {size} zero bytes at the end of {}: preallocated, not written yet",
                    name(path)
                )
            }
            Item::InvalidTail { position, size, reason } => {
                writeln!(out, "Found {size} invalid bytes at the end of {}", name(path))?;
                writeln!(out, "  from position {position}: {reason}")
            }
            Item::InvalidBytes { position, size, reason } => {
                writeln!(out, "Found {size} invalid bytes in {}, and a valid batch behind them", name(path))?;
                writeln!(out, "  from position {position}: {reason}")
            }
            Item::Fields { fields, .. } => {
                for (place, (name, value)) in fields.iter().enumerate() {
                    let space = if place == 0 { "" } else { " " };
                    match value {
                        Value::String(text) => {
                            write!(out, "{space}{name}: {}", shown(text.as_bytes(), true))?
                        }
                        value => write!(out, "{space}{name}: {value}")?,
                    }
                }
                writeln!(out)
            }
            Item::OffsetIndexEntry { offset, position } => {
                writeln!(out, "offset: {offset} position: {position}")
            }
            Item::TimeIndexEntry { timestamp, offset } => {
                writeln!(out, "timestamp: {timestamp} offset: {offset}")
            }
            Item::AbortedTransaction {
                version,
                producer_id,
                first_offset,
                last_offset,
                last_stable_offset,
            } => {
                writeln!(
                    out,
                    "version: {version} producerId: {producer_id} firstOffset: {first_offset} \
                     lastOffset: {last_offset} lastStableOffset: {last_stable_offset}"
                )
            }
            Item::Producer { producer_id, entry } => {
                write!(
                    out,
                    "producerId: {producer_id} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} \
                     lastTimestamp: {}",
                    or_none(entry.producer_epoch(), ProducerEpoch::get),
                    entry.coordinator_epoch().unwrap_or(-1),
                    OptionalLong(entry.transaction_first_offset().map(Offset::get)),
                    entry.last_timestamp(),
                )?;
                if let Some(batch) = entry.last_batch() {
                    write!(
                        out,
                        " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                        or_none(batch.first_sequence(), Sequence::get),
                        or_none(batch.last_sequence(), Sequence::get),
                        batch.last_offset(),
                        batch.offset_delta(),
                        batch.timestamp(),
                    )?;
                }
                writeln!(out)
            }
        }
    }

    fn text_record(&mut self, header: &BatchHeader<'_>, record: &Record<'_>) -> io::Result<()> {
        let escape = self.options.escape;
        let out = &mut self.out;
        write!(
            out,
            "| offset: {} {}: {} keySize: {} valueSize: {} sequence: {} headerKeys: [",
            record.offset,
            header.timestamp_type(),
            record.timestamp,
            Size(record.key),
            Size(record.value),
            or_none(sequence(header, record), Sequence::get),
        )?;
        for (place, field) in record.headers().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(out, "{comma}{}", shown(field.key, escape))?;
        }
        write!(out, "]")?;
        if header.is_control() {
            return writeln!(out, "{}", Control::of(record));
        }
        self.text_key_and_value(record)
    }

    fn text_key_and_value(&mut self, record: &Record<'_>) -> io::Result<()> {
        let escape = self.options.escape;
        let out = &mut self.out;
        if let Some(key) = record.key {
            write!(out, " key: {}", shown(key, escape))?;
        }
        if let Some(value) = record.value {
            write!(out, " payload: {}", shown(value, escape))?;
        }
        writeln!(out)
    }

    fn json_item(&mut self, path: &Path, item: &Item<'_>) -> io::Result<()> {
        let (kind, fields) = match item {
            // Said by every object.
            Item::File => return Ok(()),
            Item::Empty => ("EmptyIndex", json!({})),
            Item::LogStart { base_offset } => ("LogSegment", json!({ "baseOffset": base_offset.get() })),
            Item::Batch { header, position, valid } => ("RecordBatch", json_batch(header, *position, *valid)),
            Item::OldBatch { offset, position, size, magic, reason } => (
                "UnreadableMessage",
                json!({
                    "lastOffset": offset,
                    "position": position,
                    "size": size,
                    "magic": magic,
                    "reason": reason,
                }),
            ),
            Item::Message { message, position } => (
                "Message",
                json!({
                    "position": position,
                    "size": message.size(),
                    "lastOffset": message.offset().get(),
                    "timestampType": TypeOf(message).to_string(),
                    "maxTimestampMs": message.timestamp().get(),
                    "magic": message.magic(),
                    "codec": message.codec().to_string(),
                    "crc": message.crc(),
                    "isValid": true,
                }),
            ),
            Item::MessageRecord { record, crc, .. } => (
                "Record",
                json!({
                    "offset": record.offset.get(),
                    "timestampMs": record.timestamp.get(),
                    "crc": crc,
                    "key": record.key.map_or(Value::Null, json_bytes),
                    "value": record.value.map_or(Value::Null, json_bytes),
                }),
            ),
            Item::UnreadableBatch { position, size, reason } => {
                ("UnreadableBatch", json!({ "position": position, "size": size, "reason": reason }))
            }
            Item::Record { header, record } => ("Record", json_record(header, record)),
            Item::NoRecords { reason } => ("RecordsNotShown", json!({ "reason": reason.to_string() })),
            Item::ZeroTail { position, size } => ("ZeroTail", json!({ "position": position, "size": size })),
            Item::InvalidTail { position, size, reason } => {
                ("InvalidTail", json!({ "position": position, "size": size, "reason": reason }))
            }
            Item::InvalidBytes { position, size, reason } => {
                ("InvalidBytes", json!({ "position": position, "size": size, "reason": reason }))
            }
            Item::Fields { kind, fields } => {
                let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
                (*kind, Value::Object(fields.collect()))
            }
            Item::OffsetIndexEntry { offset, position } => {
                ("OffsetIndexEntry", json!({ "offset": offset, "position": position }))
            }
            Item::TimeIndexEntry { timestamp, offset } => {
                ("TimeIndexEntry", json!({ "timestampMs": timestamp, "offset": offset }))
            }
            Item::AbortedTransaction {
                version,
                producer_id,
                first_offset,
                last_offset,
                last_stable_offset,
            } => (
                "AbortedTransaction",
                json!({
                    "version": version,
                    "producerId": producer_id,
                    "firstOffset": first_offset,
                    "lastOffset": last_offset,
                    "lastStableOffset": last_stable_offset,
                }),
            ),
            Item::Producer { producer_id, entry } => ("ProducerState", json_producer(*producer_id, entry)),
        };
        self.json_line(path, kind, fields)
    }

    fn json_line(&mut self, path: &Path, kind: &str, fields: Value) -> io::Result<()> {
        let mut object = json!({ "apiVersion": API_VERSION, "kind": kind, "file": path.to_string_lossy() });
        if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
            object.extend(fields);
        }
        serde_json::to_writer(&mut self.out, &object)?;
        self.out.write_all(b"\n")
    }

    /// What is said of a file at its end, each kind under its heading.
    pub(super) fn findings(&mut self, path: &Path, findings: &Findings) -> io::Result<()> {
        if self.options.json {
            for finding in &findings.kept {
                self.json_line(path, "Finding", json_finding(*finding))?;
            }
            if findings.more > 0 {
                self.json_line(path, "Finding", json!({ "what": "more", "count": findings.more }))?;
            }
            return Ok(());
        }
        let file = path.display();
        let headings: [(String, FindingLine); 6] = [
            (format!("Mismatches in :{file}"), |finding| match finding {
                Finding::IndexMismatch { offset, found } => {
                    let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
                    Some(format!("  Index offset: {offset}, log offset: {found}"))
                }
                _ => None,
            }),
            (format!("Found timestamp mismatch in :{file}"), |finding| match finding {
                Finding::TimestampMismatch { timestamp, found } => {
                    Some(format!("  Index timestamp: {timestamp}, log timestamp: {found}"))
                }
                _ => None,
            }),
            (format!("Found out of order timestamp in :{file}"), |finding| match finding {
                Finding::TimestampOutOfOrder { timestamp, previous } => {
                    Some(format!("  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}"))
                }
                _ => None,
            }),
            (format!("The following indexed offsets are not found in :{file}"), |finding| match finding {
                Finding::OffsetNotFound { offset, found } => {
                    Some(format!("Indexed offset: {offset}, found log offset: {found}"))
                }
                _ => None,
            }),
            (format!("Non-consecutive offsets in {file}"), |finding| match finding {
                Finding::NonConsecutive { previous, next } => {
                    Some(format!("  {previous} is followed by {next}"))
                }
                _ => None,
            }),
            (format!("Not verified in {file}"), |finding| match finding {
                Finding::LogMissing => Some("  the segment's .log is not beside it".to_owned()),
                Finding::NotLookedUp => {
                    Some("  the offsets of later entries, which are out of order".to_owned())
                }
                _ => None,
            }),
        ];
        for (place, (heading, line)) in headings.into_iter().enumerate() {
            let mut lines: Vec<_> = findings.kept.iter().filter_map(|finding| line(*finding)).collect();
            // Kafka: the mismatches of an offset index come last first.
            if place == 0 {
                lines.reverse();
            }
            if !lines.is_empty() {
                writeln!(self.out, "{heading}")?;
            }
            for line in lines {
                writeln!(self.out, "{line}")?;
            }
        }
        if findings.more > 0 {
            writeln!(self.out, "  and {} more", findings.more)?;
        }
        Ok(())
    }
}

/// What a control record says.
pub(in crate::cli) enum Control {
    Marker {
        commit: bool,
        version: i16,
        coordinator_epoch: i32,
    },
    ShortMarker {
        commit: bool,
        size: usize,
    },
    /// Of KRaft: its heading and its value in Kafka's JSON.
    Kraft {
        record_type: ControlRecordType,
        heading: &'static str,
        value: String,
    },
    /// Of KRaft, and what is wrong with its value.
    SpoiltKraft {
        record_type: ControlRecordType,
        size: usize,
        reason: String,
    },
    /// Its value's form in words and as JSON.
    Barrier {
        form: String,
        value: Value,
    },
    Other {
        record_type: ControlRecordType,
        value: Value,
    },
    NoKey {
        size: usize,
    },
}

impl Control {
    pub(in crate::cli) fn of(record: &Record<'_>) -> Self {
        let key = record.key.unwrap_or_default();
        let Some(ControlRecordKey { record_type, .. }) = ControlRecordKey::decode(key) else {
            return Self::NoKey { size: key.len() };
        };
        let value = record.value.unwrap_or_default();
        let commit = record_type == ControlRecordType::Commit;
        match record_type {
            ControlRecordType::Commit | ControlRecordType::Abort => match value.first_chunk::<6>() {
                Some([a, b, c, d, e, f]) => Self::Marker {
                    commit,
                    version: i16::from_be_bytes([*a, *b]),
                    coordinator_epoch: i32::from_be_bytes([*c, *d, *e, *f]),
                },
                None => Self::ShortMarker { commit, size: value.len() },
            },
            ControlRecordType::MirrorPidReset => Self::Barrier {
                form: record.value.map_or(MirrorPidResetValue::Null, MirrorPidResetValue::decode).to_string(),
                value: record.value.map_or(Value::Null, json_barrier_value),
            },
            record_type => {
                match ControlRecordValue::decode(record_type, record.value).zip(kraft::heading(record_type)) {
                    Some((Ok(value), heading)) => {
                        Self::Kraft { record_type, heading, value: kraft::json(&value) }
                    }
                    Some((Err(error), _)) => {
                        Self::SpoiltKraft { record_type, size: value.len(), reason: error.to_string() }
                    }
                    None => Self::Other { record_type, value: json!({ "size": value.len() }) },
                }
            }
        }
    }

    fn marker_name(commit: bool) -> &'static str {
        if commit { "COMMIT" } else { "ABORT" }
    }

    pub(in crate::cli) fn json(self) -> Value {
        match self {
            Self::Marker { commit, version, coordinator_epoch } => json!({
                "type": Self::marker_name(commit),
                "version": version,
                "coordinatorEpoch": coordinator_epoch,
            }),
            Self::ShortMarker { commit, size } => {
                json!({ "type": Self::marker_name(commit), "valueSize": size })
            }
            Self::Kraft { record_type, value, .. } => json!({
                "type": record_type.to_string(),
                "typeId": record_type.id(),
                "value": serde_json::from_str::<Value>(&value).unwrap_or(Value::Null),
            }),
            Self::SpoiltKraft { record_type, size, reason } => json!({
                "type": record_type.to_string(),
                "typeId": record_type.id(),
                "value": { "size": size, "unreadable": reason },
            }),
            Self::Barrier { value, .. } => {
                let record_type = ControlRecordType::MirrorPidReset;
                json!({ "type": record_type.to_string(), "typeId": record_type.id(), "value": value })
            }
            Self::Other { record_type, value } => {
                json!({ "type": record_type.to_string(), "typeId": record_type.id(), "value": value })
            }
            Self::NoKey { size } => json!({ "type": Value::Null, "keySize": size }),
        }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Marker { commit, coordinator_epoch, .. } => {
                write!(
                    f,
                    " endTxnMarker: {} coordinatorEpoch: {coordinator_epoch}",
                    Self::marker_name(*commit)
                )
            }
            Self::ShortMarker { commit, size } => {
                write!(
                    f,
                    " endTxnMarker: {} (value of {size} bytes is too short)",
                    Self::marker_name(*commit)
                )
            }
            Self::Kraft { heading, value, .. } => write!(f, " {heading} {value}"),
            Self::SpoiltKraft { record_type, reason, .. } => {
                write!(f, " controlType: {record_type}({}) ({reason})", record_type.id())
            }
            Self::Barrier { form, .. } => {
                let record_type = ControlRecordType::MirrorPidReset;
                let form = shown(form.as_bytes(), true);
                write!(f, " controlType: {record_type}({}) ({form})", record_type.id())
            }
            Self::Other { record_type: ControlRecordType::Unknown(id), .. } => {
                write!(f, " controlType: UNKNOWN({id})")
            }
            Self::Other { record_type, .. } => write!(f, " controlType: {record_type}({})", record_type.id()),
            Self::NoKey { size } => write!(f, " controlType: none (key of {size} bytes)"),
        }
    }
}

fn json_barrier_value(value: &[u8]) -> Value {
    match MirrorPidResetValue::decode(value) {
        MirrorPidResetValue::Current { version, tagged_fields } => {
            json!({ "version": version, "taggedFields": tagged_fields })
        }
        MirrorPidResetValue::WithSourceClusterId { version, source_cluster_id, tagged_fields } => {
            json!({ "version": version, "sourceClusterId": source_cluster_id, "taggedFields": tagged_fields })
        }
        _ => json!({ "size": value.len() }),
    }
}

fn json_batch(header: &BatchHeader<'_>, position: u64, valid: bool) -> Value {
    json!({
        "position": position,
        "size": header.size(),
        "baseOffset": header.base_offset().get(),
        "lastOffset": header.last_offset().get(),
        "count": header.record_count(),
        "baseSequence": header.base_sequence().map(Sequence::get),
        "lastSequence": header.last_sequence().map(Sequence::get),
        "producerId": header.producer_id().map(ProducerId::get),
        "producerEpoch": header.producer_epoch().map(ProducerEpoch::get),
        "leaderEpoch": header.leader_epoch().map(LeaderEpoch::get),
        "isTransactional": header.is_transactional(),
        "isControl": header.is_control(),
        "deleteHorizonMs": header.delete_horizon().map(|horizon| horizon.get()),
        "timestampType": header.timestamp_type().to_string(),
        "maxTimestampMs": header.max_timestamp().get(),
        "magic": 2,
        "codec": header.codec().to_string(),
        "crc": header.crc(),
        "isValid": valid,
    })
}

fn json_record(header: &BatchHeader<'_>, record: &Record<'_>) -> Value {
    let headers: Vec<Value> = record
        .headers()
        .map(|field| json!({ "key": json_bytes(field.key), "value": field.value.map(json_bytes) }))
        .collect();
    let mut object = json!({
        "offset": record.offset.get(),
        "timestampMs": record.timestamp.get(),
        "sequence": sequence(header, record).map(Sequence::get),
        "headers": headers,
    });
    if header.is_control() {
        object["control"] = Control::of(record).json();
    } else {
        object["key"] = record.key.map_or(Value::Null, json_bytes);
        object["value"] = record.value.map_or(Value::Null, json_bytes);
    }
    object
}

fn json_producer(producer_id: ProducerId, entry: &ProducerStateEntry) -> Value {
    let batch = |batch: &BatchMetadata| {
        json!({
            "firstSequence": batch.first_sequence().map(Sequence::get),
            "lastSequence": batch.last_sequence().map(Sequence::get),
            "firstOffset": batch.first_offset().get(),
            "lastOffset": batch.last_offset().get(),
        })
    };
    json!({
        "producerId": producer_id.get(),
        "producerEpoch": entry.producer_epoch().map(ProducerEpoch::get),
        "coordinatorEpoch": entry.coordinator_epoch(),
        "transactionFirstOffset": entry.transaction_first_offset().map(Offset::get),
        "lastTimestampMs": entry.last_timestamp().get(),
        "lastBatch": entry.last_batch().map(batch),
    })
}

fn json_finding(finding: Finding) -> Value {
    match finding {
        Finding::IndexMismatch { offset, found } => {
            json!({ "what": "indexMismatch", "offset": offset, "logOffset": found })
        }
        Finding::TimestampMismatch { timestamp, found } => {
            json!({ "what": "timestampMismatch", "timestampMs": timestamp, "logTimestampMs": found })
        }
        Finding::TimestampOutOfOrder { timestamp, previous } => {
            json!({ "what": "timestampOutOfOrder", "timestampMs": timestamp, "previousTimestampMs": previous })
        }
        Finding::OffsetNotFound { offset, found } => json!({
            "what": "offsetNotFound",
            "offset": offset,
            "logOffset": (found >= 0).then_some(found),
        }),
        Finding::NonConsecutive { previous, next } => {
            json!({ "what": "nonConsecutiveOffsets", "offset": previous, "nextOffset": next })
        }
        Finding::LogMissing => json!({ "what": "logMissing" }),
        Finding::NotLookedUp => json!({ "what": "notLookedUp" }),
    }
}

/// Text as a string, anything else as hexadecimal: `{"text": …}` or `{"hex": …}`.
fn json_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "hex": hex })
        }
    }
}

/// Bytes as text, as far as they are; for a terminal without anything that it would obey.
fn shown(bytes: &[u8], escape: bool) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    if escape && text.chars().any(char::is_control) {
        let escaped = text.chars().flat_map(|c| {
            let escape = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escape.into_iter().flatten().chain(plain)
        });
        return Cow::Owned(escaped.collect());
    }
    text
}

/// The sequence of one record: the batch's first, and as many on as its offset is.
fn sequence(header: &BatchHeader<'_>, record: &Record<'_>) -> Option<Sequence> {
    let delta = u32::try_from(record.offset.since(header.base_offset())).ok()?;
    Some(header.base_sequence()?.plus(delta))
}

fn name(path: &Path) -> Cow<'_, str> {
    path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default()
}

/// Kafka prints -1 for none.
fn or_none<T, N: From<i16>>(value: Option<T>, number: impl FnOnce(T) -> N) -> N {
    value.map_or_else(|| N::from(-1_i16), number)
}

/// A size, -1 for null.
struct Size<'a>(Option<&'a [u8]>);

impl fmt::Display for Size<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => bytes.len().fmt(f),
            None => f.write_str("-1"),
        }
    }
}

/// Who set a message's timestamp, as Kafka prints it.
struct TypeOf<'a>(&'a Message<'a>);

impl fmt::Display for TypeOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.timestamp_type() {
            Some(timestamp_type) => timestamp_type.fmt(f),
            None => f.write_str("NoTimestampType"),
        }
    }
}

/// As Java prints it.
struct OptionalLong(Option<i64>);

impl fmt::Display for OptionalLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => write!(f, "OptionalLong[{value}]"),
            None => f.write_str("OptionalLong.empty"),
        }
    }
}
