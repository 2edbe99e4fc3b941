//! Offsets for timestamps and sentinels.

use weir_format::{LeaderEpoch, Offset, RecordBatch, TimestampMs, TimestampType};
use weir_segment::FoundBatch;
use weir_segment::io::Io;

use crate::error::ReadError;
use crate::unified_log::UnifiedLog;
use crate::view::Isolation;

/// What `ListOffsets` may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The end that the isolation level may see (−1).
    Latest,
    /// The log start (−2), also as the earliest local offset (−4): nothing is tiered.
    Earliest,
    /// The record with the largest timestamp (−3).
    MaxTimestamp,
    /// The first record with at least this timestamp.
    Timestamp(TimestampMs),
}

/// An answer of `ListOffsets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The record's timestamp; `None` for `Latest` and `Earliest`.
    pub timestamp: Option<TimestampMs>,
    /// The offset.
    pub offset: Offset,
    /// The leader epoch in force there, if known.
    pub leader_epoch: Option<LeaderEpoch>,
}

impl UnifiedLog {
    /// The offset that `ListOffsets` answers; `None` if no record that the isolation level may see matches.
    ///
    /// Records of uncompressed batches are looked at one by one. Of a compressed batch the answer is where it starts, and
    /// its largest timestamp: exact once the codecs are there.
    ///
    /// Cost: a few reads of indexes, one batch.
    ///
    /// # Errors
    /// [`ReadError::Log`] if reading failed.
    ///
    /// Source: Kafka's `UnifiedLog.fetchOffsetByTimestamp`, `Partition.fetchOffsetForTimestamp`.
    pub fn offset_for(
        &mut self,
        io: &mut dyn Io,
        spec: OffsetSpec,
        isolation: Isolation,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let view = self.view();
        let end = view.end_for(isolation);
        let failed = |source| ReadError::Log { source };
        let found = match spec {
            OffsetSpec::Latest => {
                let leader_epoch = self.latest_epoch();
                return Ok(Some(TimestampOffset { timestamp: None, offset: end, leader_epoch }));
            }
            OffsetSpec::Earliest => {
                let offset = view.log_start_offset;
                let leader_epoch = self.epochs.epoch_for_offset(offset);
                return Ok(Some(TimestampOffset { timestamp: None, offset, leader_epoch }));
            }
            OffsetSpec::MaxTimestamp => {
                let largest = self.log.batch_of_largest_timestamp(io).map_err(failed)?;
                largest.as_ref().and_then(record_of_largest_timestamp)
            }
            OffsetSpec::Timestamp(timestamp) => {
                self.log.offset_for_timestamp(io, timestamp, view.log_start_offset).map_err(failed)?.map(
                    |answer| TimestampOffset {
                        timestamp: Some(answer.timestamp),
                        offset: answer.offset,
                        leader_epoch: answer.leader_epoch,
                    },
                )
            }
        };
        Ok(found.filter(|answer| answer.offset < end && answer.offset >= view.log_start_offset))
    }
}

/// The first record of a batch that has its largest timestamp.
fn record_of_largest_timestamp(found: &FoundBatch) -> Option<TimestampOffset> {
    let batch = RecordBatch::parse_without_crc(&found.bytes).ok()?;
    let largest = batch.max_timestamp();
    let answer =
        |offset| TimestampOffset { timestamp: Some(largest), offset, leader_epoch: batch.leader_epoch() };
    let Ok(records) = batch.records() else { return Some(answer(batch.base_offset())) };
    let append_time = batch.timestamp_type() == TimestampType::LogAppendTime;
    let first = records.map_while(Result::ok).find(|record| append_time || record.timestamp == largest);
    Some(answer(first.map_or(batch.base_offset(), |record| record.offset)))
}
