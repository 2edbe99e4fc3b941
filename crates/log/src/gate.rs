//! What is checked of bytes before they may enter the log, by who brings them. Nothing here changes anything, but for a
//! client's largest timestamp that is not what its records say.

use bytes::BytesMut;
use weir_format::{
    AnyBatch, AnyBatchError, AnyBatchReader, BatchReader, Codec, LeaderEpoch, Offset, Record, RecordBatch,
    TimestampMs, TimestampType, frame_size, set_max_timestamp,
};
use weir_psm::AppendOrigin;

use crate::append::AppendParams;
use crate::config::LogConfig;
use crate::error::{AppendError, InvalidRecord};

fn invalid(reason: InvalidRecord) -> AppendError {
    AppendError::InvalidRecord { reason }
}

/// Checks the one batch of a client's or coordinator's append, by the rules of its origin.
///
/// Source: Kafka's `UnifiedLog.analyzeAndValidateRecords` and `LogValidator.validateBatch`.
pub(crate) fn single(
    bytes: &mut BytesMut,
    params: &AppendParams,
    config: &LogConfig,
) -> Result<(), AppendError> {
    if params.origin == AppendOrigin::Client {
        if params.records_checked {
            return Ok(());
        }
        return check_client_batch(bytes, config, params.now);
    }
    let batch = whole(bytes)?;
    if !batch.is_control() {
        return Err(invalid(InvalidRecord::NotAControlBatch));
    }
    Ok(())
}

/// Checks the one batch that a client appends by everything that does not depend on the log, so that the thread that owns
/// the log need not: see [`AppendParams::records_checked`]. Largest timestamp and CRC are written anew if the largest
/// timestamp is not what the records say.
///
/// Cost: one pass for the CRC, one over the records; compressed ones are inflated, one at a time and at most
/// `max.decompressed.message.bytes`.
///
/// # Errors
/// Those of [`AppendError`] that name what is wrong with the batch; the bytes are as before.
///
/// Source: Kafka's `UnifiedLog.analyzeAndValidateRecords`, `LogValidator.validateBatch` and `validateRecord`.
pub fn check_client_batch(
    bytes: &mut BytesMut,
    config: &LogConfig,
    now: TimestampMs,
) -> Result<(), AppendError> {
    // The size first: a batch that is too large is called that, and costs no pass for its CRC.
    if let Ok(Some(size)) = frame_size(bytes) {
        let max = config.max_message_bytes;
        if size > max {
            return Err(AppendError::RecordTooLarge { size, max });
        }
        // Kafka holds this against what replicas and coordinators append as well. Here the bytes of another log are taken
        // as they are (law M6), and a barrier that could not be written would leave a partition read-only (law B11).
        let max = usize::try_from(config.segment.segment_bytes).unwrap_or(usize::MAX);
        if size > max {
            return Err(AppendError::RecordBatchTooLarge { size, max });
        }
    }
    let batch = whole(bytes)?;
    client_header(&batch)?;
    let largest = client_records(&batch, config, now)?;
    // With append times the largest timestamp is set where the batch is appended.
    if config.message_timestamp_type == TimestampType::CreateTime && batch.max_timestamp() != largest {
        set_max_timestamp(bytes, largest).map_err(|source| AppendError::Batch { position: 0, source })?;
    }
    Ok(())
}

/// The batch that all of the bytes are.
fn whole(bytes: &[u8]) -> Result<RecordBatch<'_>, AppendError> {
    let batch = RecordBatch::parse(bytes).map_err(|source| AppendError::Batch { position: 0, source })?;
    if batch.size() != bytes.len() {
        let found = BatchReader::new(bytes).count();
        return Err(AppendError::NotOneBatch { found });
    }
    if batch.is_compressed_control() {
        return Err(invalid(InvalidRecord::CompressedControlBatch));
    }
    if batch.raw_producer_id() < -1 {
        return Err(invalid(InvalidRecord::NegativeProducerId { producer_id: batch.raw_producer_id() }));
    }
    Ok(batch)
}

fn client_header(batch: &RecordBatch<'_>) -> Result<(), AppendError> {
    if batch.base_offset() != Offset::ZERO {
        return Err(invalid(InvalidRecord::BaseOffset { base_offset: batch.base_offset() }));
    }
    let (record_count, last_offset_delta) = (batch.record_count(), batch.last_offset_delta());
    if record_count == 0 {
        return Err(invalid(InvalidRecord::NoRecords));
    }
    if i64::from(last_offset_delta) + 1 != i64::from(record_count) {
        return Err(invalid(InvalidRecord::CountAndDelta { record_count, last_offset_delta }));
    }
    if batch.is_control() {
        return Err(invalid(InvalidRecord::ControlBatchFromClient));
    }
    if batch.producer_id().is_some() && batch.base_sequence().is_none() {
        return Err(invalid(InvalidRecord::NoSequence));
    }
    if let Codec::Unknown(codec) = batch.codec() {
        return Err(invalid(InvalidRecord::UnknownCodec { codec }));
    }
    // Kafka refuses this where the topic has append times, and elsewhere takes the bit away.
    if batch.timestamp_type() == TimestampType::LogAppendTime {
        return Err(AppendError::LogAppendTimeFromClient);
    }
    Ok(())
}

/// Walks the records of a client's batch; its largest timestamp.
fn client_records(
    batch: &RecordBatch<'_>,
    config: &LogConfig,
    now: TimestampMs,
) -> Result<TimestampMs, AppendError> {
    let malformed = |source| AppendError::Records { source };
    let mut walk = Walk { index: 0, largest: TimestampMs::NONE, config, now };
    if batch.codec() == Codec::None {
        for record in batch.records().map_err(malformed)? {
            walk.step(&record.map_err(malformed)?)?;
        }
        return Ok(walk.largest);
    }
    let mut records = batch.record_stream(config.max_decompressed_message_bytes);
    while let Some(record) = records.next_record() {
        walk.step(&record.map_err(malformed)?)?;
    }
    Ok(walk.largest)
}

struct Walk<'a> {
    index: i32,
    largest: TimestampMs,
    config: &'a LogConfig,
    now: TimestampMs,
}

impl Walk<'_> {
    fn step(&mut self, record: &Record<'_>) -> Result<(), AppendError> {
        let index = self.index;
        // A client's batch starts at offset 0.
        if record.offset.get() != i64::from(index) {
            return Err(invalid(InvalidRecord::OffsetDelta { index, delta: record.offset.get() }));
        }
        if self.config.compact && record.key.is_none() {
            return Err(invalid(InvalidRecord::NoKey { index }));
        }
        let timestamp = record.timestamp;
        if self.config.message_timestamp_type == TimestampType::CreateTime && timestamp != TimestampMs::NONE {
            let age = self.now.get().saturating_sub(timestamp.get());
            let (before, after) =
                (self.config.message_timestamp_before_max_ms, self.config.message_timestamp_after_max_ms);
            if age > before || age < after.saturating_neg() {
                return Err(AppendError::InvalidTimestamp {
                    index,
                    timestamp,
                    earliest: TimestampMs::new(self.now.get().saturating_sub(before)),
                    latest: TimestampMs::new(self.now.get().saturating_add(after)),
                });
            }
        }
        self.largest = self.largest.max(timestamp);
        self.index = index.saturating_add(1);
        Ok(())
    }
}

/// The offsets of a replicated append.
pub(crate) struct Replicated {
    /// Base offset of the first batch; of a message of magic 0 or 1, its offset.
    pub(crate) base_offset: Offset,
    /// Last offset of the first one.
    pub(crate) first_last_offset: Offset,
    /// Last offset of the last one.
    pub(crate) last_offset: Offset,
}

/// The batches of a replicated append: whole, valid, in order, of no later epoch than allowed. Bytes stay as they are.
///
/// Messages of magic 0 and 1 are taken as well: a source may hold them in front of its first batches. They have no leader
/// epoch, and what they wrap is not looked at.
///
/// Source: Kafka's `UnifiedLog.appendAsFollower`; KAFKA-18723, KAFKA-9080.
pub(crate) fn replicated(
    bytes: &[u8],
    max_leader_epoch: Option<LeaderEpoch>,
) -> Result<Replicated, AppendError> {
    let mut found: Option<Replicated> = None;
    let mut reader = AnyBatchReader::new(bytes);
    loop {
        let position = reader.position();
        let Some(batch) = reader.next() else { break };
        let batch = batch.map_err(|error| match error {
            AnyBatchError::Message(source) => AppendError::Message { position, source },
            AnyBatchError::Batch(source) => AppendError::Batch { position, source },
            _ => AppendError::NotOneBatch { found: 0 },
        })?;
        let (base_offset, last_offset) = match &batch {
            AnyBatch::Batch(batch) => (batch.base_offset(), batch.last_offset()),
            AnyBatch::Message(message) => (message.offset(), message.offset()),
        };
        if let Some(before) = &found
            && base_offset <= before.last_offset
        {
            let expected = before.last_offset.next().unwrap_or(before.last_offset);
            return Err(AppendError::OffsetsNotMonotonic { expected, found: base_offset });
        }
        if let AnyBatch::Batch(batch) = &batch {
            replicated_batch(batch, max_leader_epoch, position)?;
        }
        found
            .get_or_insert(Replicated { base_offset, first_last_offset: last_offset, last_offset })
            .last_offset = last_offset;
    }
    found.ok_or(AppendError::NotOneBatch { found: 0 })
}

fn replicated_batch(
    batch: &RecordBatch<'_>,
    max_leader_epoch: Option<LeaderEpoch>,
    position: usize,
) -> Result<(), AppendError> {
    if batch.is_compressed_control() {
        return Err(invalid(InvalidRecord::CompressedControlBatch));
    }
    let Some(epoch) = batch.leader_epoch() else {
        return Err(invalid(InvalidRecord::MissingLeaderEpoch));
    };
    match max_leader_epoch.filter(|max| epoch > *max) {
        Some(max) => {
            Err(AppendError::LeaderEpochTooHigh { epoch, max, offset: batch.base_offset(), position })
        }
        None => Ok(()),
    }
}
