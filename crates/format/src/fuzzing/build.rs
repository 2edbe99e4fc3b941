//! Oracles over what is written: batches by any sequence of the builder's steps, and control keys and values.

use crate::BatchBuilder;
use crate::batch::{HEADER_SIZE, RecordBatch, TimestampType};
use crate::control::{ControlRecordKey, ControlRecordType};
use crate::control_value::ControlRecordValue;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};

/// Takes the bytes as steps of the builder: it is built if and only if no step was wrong, and reads as was meant.
pub fn check_builder(data: &[u8]) {
    let mut script = Script(data);
    let mut builder = BatchBuilder::new();
    let mut meant = Meant::default();
    while let Some(step) = script.byte() {
        builder = meant.step(step % 14, &mut script, builder);
    }
    let built = builder.build();
    assert_eq!(built.is_err(), meant.is_wrong(), "{:?}", built.as_ref().err());
    let Ok(bytes) = built else { return };
    let batch = RecordBatch::parse(&bytes).expect("what is built is a batch");
    assert_eq!(batch.size(), bytes.len());
    meant.check(&batch);
}

/// Takes the bytes as a control record's key and as its value.
pub fn check_control_key(data: &[u8]) {
    let number =
        |at: usize| data.get(at..at + 2).map(|two| i16::from(two[0].cast_signed()) * 256 + i16::from(two[1]));
    let naive = number(0).zip(number(2)).filter(|(version, _)| *version >= 0);
    let key = ControlRecordKey::decode(data);
    assert_eq!(key.map(|key| (key.version, key.record_type.id())), naive);
    if let Some(key) = key {
        assert_eq!(ControlRecordKey::decode(&data[..4]), Some(key), "what follows the type says nothing");
        assert_eq!(ControlRecordKey::encode(key.record_type)[2..], data[2..4]);
        assert!(!key.record_type.to_string().is_empty());
    }
    for id in -1..9 {
        let record_type = ControlRecordType::from_id(id);
        let value = ControlRecordValue::decode(record_type, Some(data));
        assert_eq!(value.is_some(), (2..=6).contains(&id), "type {id}");
        let Some(value) = value else { continue };
        let longer = [data, b"behind"].concat();
        match value {
            Ok(value) => {
                let again = ControlRecordValue::decode(record_type, Some(&longer));
                assert_eq!(again, Some(Ok(value)), "what follows the value says nothing");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        let batch = BatchBuilder::new().control_record(TimestampMs::new(1), record_type, data).build();
        let batch = batch.expect("a fuzzed value fits");
        let batch = RecordBatch::parse(&batch).expect("a batch");
        assert_eq!(batch.control_type(), Some(record_type), "no value makes or hides a type");
    }
}

struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// As many bytes as the next one says, or null.
    fn part(&mut self) -> Option<&'a [u8]> {
        let size = usize::from(self.byte()?);
        if size == 255 {
            return None;
        }
        let (part, rest) = self.0.split_at(size.min(self.0.len()));
        self.0 = rest;
        Some(part)
    }

    /// A number of any size: most are small, some are at the ends.
    fn number(&mut self) -> i64 {
        match self.byte().unwrap_or(0) {
            kind @ 0..200 => i64::from(kind),
            200 => i64::MAX,
            201 => i64::MIN,
            202 => i64::from(i32::MAX),
            203 => i64::from(i32::MAX) + 1,
            204 => -1,
            _ => (0..8).fold(0, |number, _| (number << 8) | i64::from(self.byte().unwrap_or(0))),
        }
    }

    fn time(&mut self) -> TimestampMs {
        TimestampMs::new(self.number())
    }
}

type MeantHeader = (Vec<u8>, Option<Vec<u8>>);

struct MeantRecord {
    delta: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<MeantHeader>,
}

/// What the steps so far mean.
#[derive(Default)]
struct Meant {
    base_offset: i64,
    leader_epoch: Option<LeaderEpoch>,
    producer: Option<(ProducerId, ProducerEpoch, Option<Sequence>)>,
    transactional: bool,
    control: bool,
    delete_horizon: bool,
    append_time: Option<i64>,
    base_timestamp: Option<i64>,
    max_timestamp: Option<i64>,
    largest_timestamp: Option<i64>,
    last_offset_delta: Option<i32>,
    next_delta: i64,
    records: Vec<MeantRecord>,
    wrong: bool,
}

impl Meant {
    fn step(&mut self, step: u8, script: &mut Script<'_>, builder: BatchBuilder) -> BatchBuilder {
        match step {
            0..=2 => {
                let (timestamp, key, value) = (script.time(), script.part(), script.part());
                self.record(self.next_delta, timestamp, key, value, &[]);
                builder.record(timestamp, key, value)
            }
            3 | 4 => {
                let delta = if step == 3 {
                    self.next_delta + i64::from(script.byte().unwrap_or(0))
                } else {
                    script.number()
                };
                let (timestamp, key, value) = (script.time(), script.part(), script.part());
                let count = usize::from(script.byte().unwrap_or(0) % 4);
                let headers: Vec<(&[u8], Option<&[u8]>)> =
                    (0..count).map(|_| (script.part().unwrap_or_default(), script.part())).collect();
                self.record(delta, timestamp, key, value, &headers);
                builder.record_at(delta, timestamp, key, value, &headers)
            }
            5 => {
                let base_offset = Offset::new(script.number()).unwrap_or(Offset::ZERO);
                self.base_offset = base_offset.get();
                builder.base_offset(base_offset)
            }
            6 => {
                let Some(epoch) = i32::try_from(script.number()).ok().and_then(LeaderEpoch::new) else {
                    return builder;
                };
                self.leader_epoch = Some(epoch);
                builder.leader_epoch(epoch)
            }
            7 => {
                let id = ProducerId::new(script.number());
                let epoch = i16::try_from(script.number()).ok().and_then(ProducerEpoch::new);
                let sequence = i32::try_from(script.number()).ok().and_then(Sequence::new);
                let (Some(id), Some(epoch)) = (id, epoch) else { return builder };
                self.producer = Some((id, epoch, sequence));
                builder.producer(id, epoch, sequence)
            }
            8 => {
                self.transactional = true;
                builder.transactional()
            }
            9 => {
                let (time, horizon) = (script.time(), script.byte() == Some(1));
                self.wrong |= !self.records.is_empty();
                self.base_timestamp = Some(time.get());
                self.delete_horizon |= horizon;
                if horizon { builder.delete_horizon(time) } else { builder.base_timestamp(time) }
            }
            10 => {
                let time = script.time();
                self.max_timestamp = Some(time.get());
                builder.max_timestamp(time)
            }
            11 => {
                let time = script.time();
                self.append_time = Some(time.get());
                builder.log_append_time(time)
            }
            12 => {
                let Ok(delta) = i32::try_from(script.number()) else { return builder };
                self.last_offset_delta = Some(delta);
                builder.last_offset_delta(delta)
            }
            _ => {
                let id = i16::from(script.byte().unwrap_or(0)) - 1;
                let (timestamp, value) = (script.time(), script.part().unwrap_or_default());
                let [a, b] = id.to_be_bytes();
                self.control = true;
                self.record(self.next_delta, timestamp, Some(&[0, 0, a, b]), Some(value), &[]);
                builder.control_record(timestamp, ControlRecordType::from_id(id), value)
            }
        }
    }

    fn record(
        &mut self,
        delta: i64,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        if delta < self.next_delta || delta > i64::from(i32::MAX) {
            self.wrong = true;
            return;
        }
        let timestamp = timestamp.get();
        self.next_delta = delta + 1;
        self.base_timestamp.get_or_insert(timestamp);
        self.largest_timestamp =
            Some(self.largest_timestamp.map_or(timestamp, |largest| largest.max(timestamp)));
        let owned = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
        let headers = headers.iter().map(|(key, value)| (key.to_vec(), owned(*value))).collect();
        self.records.push(MeantRecord { delta, timestamp, key: owned(key), value: owned(value), headers });
    }

    fn last_delta(&self) -> i64 {
        let last = self.records.last().map_or(0, |record| record.delta);
        self.last_offset_delta.map_or(last, i64::from)
    }

    fn is_wrong(&self) -> bool {
        let last = self.records.last().map_or(0, |record| record.delta);
        let next = i128::from(self.base_offset) + i128::from(self.last_delta()) + 1;
        self.wrong || self.last_delta() < last || next > i128::from(i64::MAX)
    }

    fn check(&self, batch: &RecordBatch<'_>) {
        assert_eq!(batch.base_offset().get(), self.base_offset);
        assert_eq!(i64::from(batch.last_offset_delta()), self.last_delta());
        assert_eq!(batch.leader_epoch(), self.leader_epoch);
        let producer = self.producer;
        assert_eq!(batch.producer_id(), producer.map(|(id, ..)| id));
        assert_eq!(batch.producer_epoch(), producer.map(|(_, epoch, _)| epoch));
        assert_eq!(batch.base_sequence(), producer.and_then(|(.., sequence)| sequence));
        assert_eq!((batch.is_transactional(), batch.is_control()), (self.transactional, self.control));
        let base = self.base_timestamp.unwrap_or(-1);
        assert_eq!(batch.base_timestamp().get(), base);
        assert_eq!(batch.delete_horizon().map(TimestampMs::get), self.delete_horizon.then_some(base));
        let max_timestamp = self.append_time.or(self.max_timestamp).or(self.largest_timestamp);
        assert_eq!(batch.max_timestamp().get(), max_timestamp.unwrap_or(-1));
        let log_append_time = batch.timestamp_type() == TimestampType::LogAppendTime;
        assert_eq!(log_append_time, self.append_time.is_some());
        assert_eq!(usize::try_from(batch.record_count()), Ok(self.records.len()));
        assert!(batch.size() >= HEADER_SIZE);
        let mut walk = batch.records().expect("not compressed");
        for meant in &self.records {
            let record = walk.next().expect("as many").expect("well formed");
            assert_eq!(record.offset.since(batch.base_offset()), meant.delta);
            assert_eq!(record.timestamp.get(), self.append_time.unwrap_or(meant.timestamp));
            assert_eq!((record.key, record.value), (meant.key.as_deref(), meant.value.as_deref()));
            let headers: Vec<MeantHeader> = record
                .headers()
                .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                .collect();
            assert_eq!(headers, meant.headers);
        }
        assert!(walk.next().is_none());
    }
}
