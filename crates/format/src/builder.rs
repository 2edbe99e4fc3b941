//! The only writer of batches.
//!
//! Source: Kafka's `MemoryRecordsBuilder` and `DefaultRecordBatch.writeHeader`.

use bytes::{BufMut, BytesMut};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{I16, I32, I64, U32};

use crate::barrier::MirrorPidReset;
use crate::batch::{self, BatchHeader, HEADER_SIZE, MAGIC, OTHER_BITS, RawHeader, TimestampType};
use crate::control::{ControlRecordKey, ControlRecordType, EndTransactionMarker};
use crate::crc;
use crate::error::BuildError;
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::record::Record;
use crate::varint;

/// Builds one uncompressed batch of magic 2.
///
/// Without further words it has base offset 0, leader epoch −1, CreateTime, no producer, and records at consecutive
/// offsets. Mistakes are remembered and answered by [`Self::build`].
///
/// ```
/// use weir_format::{BatchBuilder, ProducerEpoch, ProducerId, RecordBatch, Sequence, TimestampMs};
///
/// let bytes = BatchBuilder::new()
///     .producer(ProducerId::new(9).expect("not negative"), ProducerEpoch::ZERO, Sequence::new(2_147_483_646))
///     .record(TimestampMs::new(1), Some(b"a"), None)
///     .record(TimestampMs::new(2), Some(b"b"), Some(b""))
///     .record(TimestampMs::new(3), None, Some(b"c"))
///     .build()?;
/// let batch = RecordBatch::parse(&bytes)?;
/// assert_eq!(batch.last_sequence(), Some(Sequence::ZERO));
/// assert_eq!(batch.records()?.count(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    base_offset: Offset,
    leader_epoch: i32,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    transactional: bool,
    control: bool,
    append_time: Option<TimestampMs>,
    delete_horizon: bool,
    other_bits: i16,
    base_timestamp: Option<TimestampMs>,
    max_timestamp: Option<TimestampMs>,
    largest_timestamp: Option<TimestampMs>,
    last_offset_delta: Option<i32>,
    // INVARIANT: HEADER_SIZE bytes for the header, then the records so far.
    bytes: BytesMut,
    scratch: BytesMut,
    record_count: i32,
    next_delta: i64,
    error: Option<BuildError>,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// A batch without records.
    pub fn new() -> Self {
        let mut bytes = BytesMut::new();
        bytes.put_bytes(0, HEADER_SIZE);
        Self {
            base_offset: Offset::ZERO,
            leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            transactional: false,
            control: false,
            append_time: None,
            delete_horizon: false,
            other_bits: 0,
            base_timestamp: None,
            max_timestamp: None,
            largest_timestamp: None,
            last_offset_delta: None,
            bytes,
            scratch: BytesMut::new(),
            record_count: 0,
            next_delta: 0,
            error: None,
        }
    }

    /// A batch without records whose header is otherwise as this one: offsets, leader epoch, producer, flags and timestamps
    /// as found, also where no other step could set them. Only its codec is gone.
    ///
    /// With [`Self::copied`] a batch is written again without its codec, or without some of its records.
    ///
    /// Cost: one small allocation.
    ///
    /// ```
    /// use weir_format::{BatchBuilder, RecordBatch, TimestampMs};
    ///
    /// let now = TimestampMs::new(1_767_225_600_000);
    /// let bytes = BatchBuilder::new().record(now, Some(b"a"), None).record(now, Some(b"b"), Some(b"1")).build()?;
    /// let batch = RecordBatch::parse(&bytes)?;
    ///
    /// // Without its tombstones, and with the offsets and timestamps that it had.
    /// let mut builder = BatchBuilder::like(&batch);
    /// for record in batch.records()? {
    ///     let record = record?;
    ///     if record.value.is_some() {
    ///         builder = builder.copied(&record);
    ///     }
    /// }
    /// let bytes = builder.build()?;
    /// let cleaned = RecordBatch::parse(&bytes)?;
    /// assert_eq!((cleaned.record_count(), cleaned.next_offset()), (1, batch.next_offset()));
    /// assert_eq!(cleaned.records()?.next().expect("one")?.offset, batch.last_offset());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn like(header: &BatchHeader<'_>) -> Self {
        let raw = header.raw();
        let log_append_time = header.timestamp_type() == TimestampType::LogAppendTime;
        Self {
            base_offset: header.base_offset(),
            leader_epoch: raw.partition_leader_epoch.get(),
            producer_id: raw.producer_id.get(),
            producer_epoch: raw.producer_epoch.get(),
            base_sequence: raw.base_sequence.get(),
            transactional: header.is_transactional(),
            control: header.is_control(),
            append_time: log_append_time.then(|| header.max_timestamp()),
            delete_horizon: header.delete_horizon().is_some(),
            other_bits: header.attributes() & OTHER_BITS,
            base_timestamp: Some(header.base_timestamp()),
            max_timestamp: Some(header.max_timestamp()),
            last_offset_delta: Some(header.last_offset_delta()),
            ..Self::new()
        }
    }

    /// An ABORT or COMMIT marker, ready to be appended by a leader: base offset 0, and a leader epoch of 0 that the leader
    /// overwrites with its own. The coordinator's epoch is −1 where unknown.
    ///
    /// Cost: one small allocation.
    ///
    /// Source: Kafka's `MemoryRecords.withEndTransactionMarker` and `EndTransactionMarker`.
    pub fn end_transaction_marker(
        commit: bool,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: Option<i32>,
        timestamp: TimestampMs,
    ) -> BytesMut {
        let record_type = if commit { ControlRecordType::Commit } else { ControlRecordType::Abort };
        Self::new()
            .leader_epoch(LeaderEpoch::ZERO)
            .producer(producer_id, producer_epoch, None)
            .transactional()
            .control_record(timestamp, record_type, &EndTransactionMarker::encode_value(coordinator_epoch))
            .build()
            .expect("one small record is always a batch")
    }

    /// The barrier, ready to be appended by a leader; see [`MirrorPidReset::build`].
    pub fn barrier(timestamp: TimestampMs) -> BytesMut {
        let (record_type, value) = MirrorPidReset::RECORD;
        Self::new()
            .leader_epoch(LeaderEpoch::ZERO)
            .control_record(timestamp, record_type, &value)
            .build()
            .expect("one small record is always a batch")
    }

    /// Sets the base offset.
    #[must_use]
    pub fn base_offset(mut self, base_offset: Offset) -> Self {
        self.base_offset = base_offset;
        self
    }

    /// Sets the leader epoch.
    #[must_use]
    pub fn leader_epoch(mut self, leader_epoch: LeaderEpoch) -> Self {
        self.leader_epoch = leader_epoch.get();
        self
    }

    /// Sets the producer. Without a sequence the field is −1, as in control batches.
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base_sequence: Option<Sequence>) -> Self {
        self.producer_id = id.get();
        self.producer_epoch = epoch.get();
        self.base_sequence = base_sequence.map_or(-1, Sequence::get);
        self
    }

    /// Makes the batch part of its producer's transaction, so it should have one: a Kafka takes it from none.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    /// Makes it a control batch, whose first record's key should be a control record's: [`Self::control_record`] does both.
    #[must_use]
    pub fn control(mut self) -> Self {
        self.control = true;
        self
    }

    /// Makes it a batch of LogAppendTime: every record has this timestamp when read.
    #[must_use]
    pub fn log_append_time(mut self, timestamp: TimestampMs) -> Self {
        self.append_time = Some(timestamp);
        self
    }

    /// Sets what the records' deltas count from; else it is the first record's timestamp. Before the first record.
    #[must_use]
    pub fn base_timestamp(mut self, timestamp: TimestampMs) -> Self {
        if self.record_count > 0 {
            self.fail(BuildError::LateBaseTimestamp);
        }
        self.base_timestamp = Some(timestamp);
        self
    }

    /// Sets the delete horizon, which takes the base timestamp's place. Before the first record.
    #[must_use]
    pub fn delete_horizon(mut self, timestamp: TimestampMs) -> Self {
        self.delete_horizon = true;
        self.base_timestamp(timestamp)
    }

    /// Sets the largest timestamp, whatever the records' are; else it is their own, or −1 without any.
    #[must_use]
    pub fn max_timestamp(mut self, timestamp: TimestampMs) -> Self {
        self.max_timestamp = Some(timestamp);
        self
    }

    /// Sets the last offset delta, as in a batch whose last records were compacted away; else it is the last record's.
    #[must_use]
    pub fn last_offset_delta(mut self, delta: i32) -> Self {
        self.last_offset_delta = Some(delta);
        self
    }

    /// Adds a record at the next offset.
    #[must_use]
    pub fn record(self, timestamp: TimestampMs, key: Option<&[u8]>, value: Option<&[u8]>) -> Self {
        self.record_with_headers(timestamp, key, value, &[])
    }

    /// Adds a record with headers at the next offset. They stay in their order, also where keys repeat.
    #[must_use]
    pub fn record_with_headers(
        self,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Self {
        let delta = self.next_delta;
        self.record_at(delta, timestamp, key, value, headers)
    }

    /// Adds a control record at the next offset, and makes it a control batch.
    #[must_use]
    pub fn control_record(
        self,
        timestamp: TimestampMs,
        record_type: ControlRecordType,
        value: &[u8],
    ) -> Self {
        self.control().record(timestamp, Some(&ControlRecordKey::encode(record_type)), Some(value))
    }

    /// Adds a record at this offset delta, which must be above the one before it: compaction leaves such gaps.
    #[must_use]
    pub fn record_at(
        mut self,
        offset_delta: i64,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Self {
        if let Err(error) = self.push(offset_delta, timestamp, key, value, headers) {
            self.fail(error);
        }
        self
    }

    /// Adds a record that was read, at its own offset, which must be above the one before it; the base offset is to be set
    /// before. Under LogAppendTime it is written with the time that it was read with.
    ///
    /// Cost: one copy of the record, and an allocation if it has headers.
    #[must_use]
    pub fn copied(self, record: &Record<'_>) -> Self {
        let headers: Vec<_> = record.headers().map(|header| (header.key, header.value)).collect();
        let delta = record.offset.since(self.base_offset);
        self.record_at(delta, record.timestamp, record.key, record.value, &headers)
    }

    /// The batch: header, CRC and records, ready to be sent or to be stamped with offset and leader epoch.
    ///
    /// Cost: one pass for the CRC; no copy.
    ///
    /// # Errors
    /// The first mistake made on the way here. [`BuildError::TooLarge`] asks for fewer records in a batch; the others are
    /// offsets or timestamps that no batch can have, and stay mistakes however often it is tried.
    ///
    /// Source: Kafka's `DefaultRecordBatch.writeHeader`.
    pub fn build(mut self) -> Result<BytesMut, BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let last_record = self.next_delta.saturating_sub(1).max(0);
        let last_offset_delta = match self.last_offset_delta {
            Some(delta) => delta,
            None => i32::try_from(last_record).map_err(|_| BuildError::OffsetDelta { delta: last_record })?,
        };
        if i64::from(last_offset_delta) < last_record {
            return Err(BuildError::OffsetDelta { delta: i64::from(last_offset_delta) });
        }
        let base_offset = self.base_offset.get();
        let overflow = BuildError::OffsetOverflow { base_offset, last_offset_delta };
        self.base_offset.checked_add(i64::from(last_offset_delta)).and_then(Offset::next).ok_or(overflow)?;
        let length = self.bytes.len().checked_sub(12).ok_or(BuildError::TooLarge)?;
        let batch_length = i32::try_from(length).map_err(|_| BuildError::TooLarge)?;
        let timestamp_type = match self.append_time {
            Some(_) => TimestampType::LogAppendTime,
            None => TimestampType::CreateTime,
        };
        let attributes =
            batch::attributes(timestamp_type, self.transactional, self.control, self.delete_horizon)
                | self.other_bits;
        let max_timestamp =
            self.append_time.or(self.max_timestamp).or(self.largest_timestamp).unwrap_or(TimestampMs::NONE);
        let mut header = RawHeader {
            base_offset: I64::new(base_offset),
            batch_length: I32::new(batch_length),
            partition_leader_epoch: I32::new(self.leader_epoch),
            magic: MAGIC,
            crc: U32::new(0),
            attributes: I16::new(attributes),
            last_offset_delta: I32::new(last_offset_delta),
            base_timestamp: I64::new(self.base_timestamp.unwrap_or(TimestampMs::NONE).get()),
            max_timestamp: I64::new(max_timestamp.get()),
            producer_id: I64::new(self.producer_id),
            producer_epoch: I16::new(self.producer_epoch),
            base_sequence: I32::new(self.base_sequence),
            record_count: I32::new(self.record_count),
        };
        self.write_header(&header);
        header.crc.set(crc::batch_crc(&self.bytes));
        self.write_header(&header);
        Ok(self.bytes)
    }

    fn write_header(&mut self, header: &RawHeader) {
        for (place, byte) in self.bytes.iter_mut().zip(header.as_bytes()) {
            *place = *byte;
        }
    }

    fn push(
        &mut self,
        offset_delta: i64,
        timestamp: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) -> Result<(), BuildError> {
        let misplaced = BuildError::OffsetDelta { delta: offset_delta };
        let delta = i32::try_from(offset_delta).map_err(|_| misplaced)?;
        if offset_delta < self.next_delta {
            return Err(misplaced);
        }
        let record_count = self.record_count.checked_add(1).ok_or(BuildError::TooLarge)?;
        let header_count = i32::try_from(headers.len()).map_err(|_| BuildError::TooLarge)?;
        let base = *self.base_timestamp.get_or_insert(timestamp);

        let body = &mut self.scratch;
        body.clear();
        body.put_u8(0);
        // Kafka: the difference wraps, and wraps back when it is read.
        varint::encode_long(timestamp.get().wrapping_sub(base.get()), body);
        varint::encode(delta, body);
        put_nullable(body, key)?;
        put_nullable(body, value)?;
        varint::encode(header_count, body);
        for (key, value) in headers {
            put_nullable(body, Some(key))?;
            put_nullable(body, *value)?;
        }
        let length = i32::try_from(body.len()).map_err(|_| BuildError::TooLarge)?;
        varint::encode(length, &mut self.bytes);
        self.bytes.extend_from_slice(&self.scratch);

        self.record_count = record_count;
        self.next_delta = offset_delta.saturating_add(1);
        self.largest_timestamp =
            Some(self.largest_timestamp.map_or(timestamp, |largest| largest.max(timestamp)));
        Ok(())
    }

    fn fail(&mut self, error: BuildError) {
        self.error.get_or_insert(error);
    }
}

fn put_nullable(into: &mut BytesMut, bytes: Option<&[u8]>) -> Result<(), BuildError> {
    let Some(bytes) = bytes else {
        varint::encode(-1, into);
        return Ok(());
    };
    let length = i32::try_from(bytes.len()).map_err(|_| BuildError::TooLarge)?;
    varint::encode(length, into);
    into.extend_from_slice(bytes);
    Ok(())
}
