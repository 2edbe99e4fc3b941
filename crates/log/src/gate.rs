//! What is checked of bytes before they may enter the log, by who brings them. Nothing here changes anything.

use weir_format::{BatchReader, Codec, LeaderEpoch, Offset, RecordBatch, frame_size};
use weir_psm::AppendOrigin;

use crate::append::AppendParams;
use crate::config::LogConfig;
use crate::error::{AppendError, InvalidRecord};

fn invalid(reason: InvalidRecord) -> AppendError {
    AppendError::InvalidRecord { reason }
}

/// The one batch of a client's or coordinator's append, by the rules of its origin.
///
/// Source: Kafka's `UnifiedLog.analyzeAndValidateRecords` and `LogValidator.validateBatch`.
pub(crate) fn single<'a>(
    bytes: &'a [u8],
    params: &AppendParams,
    config: &LogConfig,
) -> Result<RecordBatch<'a>, AppendError> {
    // The size first: a batch that is too large is called that, and costs no pass for its CRC.
    if let Ok(Some(size)) = frame_size(bytes)
        && size > config.max_message_bytes
        && params.origin == AppendOrigin::Client
    {
        return Err(AppendError::RecordTooLarge { size, max: config.max_message_bytes });
    }
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
    match params.origin {
        AppendOrigin::Client => client(&batch)?,
        _ if !batch.is_control() => return Err(invalid(InvalidRecord::NotAControlBatch)),
        _ => {}
    }
    Ok(batch)
}

fn client(batch: &RecordBatch<'_>) -> Result<(), AppendError> {
    if batch.base_offset() != Offset::ZERO {
        return Err(invalid(InvalidRecord::BaseOffset { base_offset: batch.base_offset() }));
    }
    if batch.is_control() {
        return Err(invalid(InvalidRecord::ControlBatchFromClient));
    }
    if let Codec::Unknown(codec) = batch.codec() {
        return Err(invalid(InvalidRecord::UnknownCodec { codec }));
    }
    let (record_count, last_offset_delta) = (batch.record_count(), batch.last_offset_delta());
    if record_count == 0 {
        return Err(invalid(InvalidRecord::NoRecords));
    }
    if i64::from(last_offset_delta) + 1 != i64::from(record_count) {
        return Err(invalid(InvalidRecord::CountAndDelta { record_count, last_offset_delta }));
    }
    if batch.codec() == Codec::None {
        let records = batch.records().map_err(|source| AppendError::Records { source })?;
        for record in records {
            record.map_err(|source| AppendError::Records { source })?;
        }
    }
    Ok(())
}

/// The batches of a replicated append: whole, valid, in order, of no later epoch than allowed. Bytes stay as they are.
///
/// Source: Kafka's `UnifiedLog.appendAsFollower`; KAFKA-18723.
pub(crate) fn replicated<'a>(
    bytes: &'a [u8],
    max_leader_epoch: Option<LeaderEpoch>,
) -> Result<Vec<RecordBatch<'a>>, AppendError> {
    let mut batches: Vec<RecordBatch<'a>> = Vec::new();
    let mut reader = BatchReader::new(bytes);
    loop {
        let position = reader.position();
        let Some(batch) = reader.next() else { break };
        let batch = batch.map_err(|source| AppendError::Batch { position, source })?;
        if let Some(last) = batches.last()
            && batch.base_offset() < last.next_offset()
        {
            return Err(AppendError::OffsetsNotMonotonic {
                expected: last.next_offset(),
                found: batch.base_offset(),
            });
        }
        if batch.is_compressed_control() {
            return Err(invalid(InvalidRecord::CompressedControlBatch));
        }
        let Some(epoch) = batch.leader_epoch() else {
            return Err(invalid(InvalidRecord::MissingLeaderEpoch));
        };
        if let Some(max) = max_leader_epoch
            && epoch > max
        {
            return Err(AppendError::LeaderEpochTooHigh {
                epoch,
                max,
                offset: batch.base_offset(),
                position,
            });
        }
        batches.push(batch);
    }
    if batches.is_empty() {
        return Err(AppendError::NotOneBatch { found: 0 });
    }
    Ok(batches)
}
