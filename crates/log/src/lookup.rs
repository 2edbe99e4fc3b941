//! Offsets for timestamps and sentinels.

use bytes::Bytes;
use weir_format::{Codec, LeaderEpoch, Message, Offset, Record, RecordBatch, RecordError, TimestampMs};
use weir_segment::FoundBatch;
use weir_segment::io::Io;

use crate::error::ReadError;
use crate::unified_log::UnifiedLog;
use crate::view::Isolation;

/// The most that is decompressed of one batch to find a record in it, in bytes.
///
/// No producer makes such batches; what claims to be one costs this much and no more. Its answer is then where it begins.
pub const MAX_DECOMPRESSED: usize = 64 << 20;

/// What `ListOffsets` may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The end that the isolation level may see (−1).
    Latest,
    /// The log start (−2).
    Earliest,
    /// The first record with the largest timestamp (−3).
    MaxTimestamp,
    /// The first offset on local disks (−4): the log start, since nothing is tiered.
    EarliestLocal,
    /// The last tiered offset (−5): none.
    LatestTiered,
    /// The first offset that is to be tiered (−6): none.
    EarliestPendingUpload,
    /// The first record with at least this timestamp.
    Timestamp(TimestampMs),
}

/// An answer of `ListOffsets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The record's timestamp; `None` for the ends of the log.
    pub timestamp: Option<TimestampMs>,
    /// The offset.
    pub offset: Offset,
    /// The leader epoch in force there, if known.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// How far a search for an offset has come: see [`UnifiedLog::search_offset`].
#[derive(Debug)]
pub enum OffsetSearch {
    /// It has ended; `None`: no record matches that the reader may see.
    Found(Option<TimestampOffset>),
    /// The record is in this batch, or behind it.
    Inside(BatchLookup),
}

/// A batch that a record is looked for in, without the log: on any thread.
#[derive(Debug)]
pub struct BatchLookup {
    bytes: Bytes,
    /// `None`: the first record that has the largest timestamp of the batch.
    wanted: Option<TimestampMs>,
    first: Offset,
    next_offset: Offset,
}

impl BatchLookup {
    /// Whether looking into it means to decompress it: up to [`MAX_DECOMPRESSED`] bytes.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        let codec = match RecordBatch::parse_without_crc(&self.bytes) {
            Ok(batch) => batch.codec(),
            Err(_) => Message::parse(&self.bytes).map_or(Codec::None, |message| message.codec()),
        };
        codec != Codec::None
    }

    /// Looks for the record; `None`: there is none in here, or one below the log start.
    ///
    /// Where the records cannot be read, or are more than [`MAX_DECOMPRESSED`] bytes, the answer is where the batch begins,
    /// with its largest timestamp: whoever reads on from there meets the record.
    ///
    /// Cost: a walk over the records; of a compressed batch, memory for its largest record and what its codec holds.
    #[must_use]
    pub fn look(&self) -> Option<TimestampOffset> {
        if self.next_offset <= self.first {
            return None;
        }
        let Ok(batch) = RecordBatch::parse_without_crc(&self.bytes) else {
            return self.look_into(&Message::parse(&self.bytes).ok()?);
        };
        let answer = |timestamp, offset: Offset| {
            let leader_epoch = batch.leader_epoch();
            TimestampOffset { timestamp: Some(timestamp), offset, leader_epoch }
        };
        let judge = |record: Result<Record<'_>, RecordError>| match (record, self.wanted) {
            (Ok(record), Some(wanted)) if record.timestamp < wanted || record.offset < self.first => None,
            (Ok(record), None) if record.timestamp != batch.max_timestamp() => None,
            (Ok(record), _) => Some(answer(record.timestamp, record.offset)),
            (Err(_), _) => Some(answer(batch.max_timestamp(), batch.base_offset().max(self.first))),
        };
        let mut found = None;
        if let Ok(mut records) = batch.records() {
            found = records.find_map(judge);
        } else {
            let mut records = batch.record_stream(MAX_DECOMPRESSED);
            while let (None, Some(record)) = (&found, records.next_record()) {
                found = judge(record);
            }
        }
        found.filter(|found| found.offset >= self.first)
    }

    /// The same in a message of magic 0 or 1, which may wrap others.
    fn look_into(&self, message: &Message<'_>) -> Option<TimestampOffset> {
        let answer =
            |timestamp, offset| TimestampOffset { timestamp: Some(timestamp), offset, leader_epoch: None };
        let whole = Some(answer(message.timestamp(), message.offset()));
        let Ok(mut records) = message.record_stream(MAX_DECOMPRESSED) else { return whole };
        while let Some(record) = records.next_record() {
            let Ok(record) = record else { return whole };
            let matches = match self.wanted {
                Some(wanted) => record.timestamp >= wanted && record.offset >= self.first,
                None => record.timestamp == message.timestamp(),
            };
            if matches {
                return Some(answer(record.timestamp, record.offset))
                    .filter(|found| found.offset >= self.first);
            }
        }
        None
    }

    /// Where the search goes on if [`BatchLookup::look`] has found nothing; `None` if it does not.
    #[must_use]
    pub fn next_offset(&self) -> Option<Offset> {
        // Kafka: only the first batch that has the largest timestamp is looked into.
        self.wanted.map(|_| self.next_offset)
    }
}

impl UnifiedLog {
    /// The offset that `ListOffsets` answers; `None` if no record that the isolation level may see matches.
    ///
    /// The answer to a timestamp is the first record with at least that timestamp, in the order of offsets, also where
    /// timestamps go up and down, and inside compressed batches; what it is not exact for see [`BatchLookup::look`]. That
    /// to [`OffsetSpec::MaxTimestamp`] is the first record of the first batch that has the largest timestamp of the log.
    /// Records of control batches count. As in Kafka a match that the reader may not see is answered with none.
    ///
    /// Cost: a few reads of indexes, one batch, and a walk over its records. A shard that has other work decompresses
    /// elsewhere: [`UnifiedLog::search_offset`].
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
        let mut from = None;
        loop {
            match self.search_offset(io, spec, isolation, from)? {
                OffsetSearch::Found(found) => return Ok(found),
                OffsetSearch::Inside(lookup) => match (lookup.look(), lookup.next_offset()) {
                    (None, Some(next)) => from = Some(next),
                    (found, _) => return Ok(found),
                },
            }
        }
    }

    /// One step of [`UnifiedLog::offset_for`]: finds the batch, and leaves it to the caller to look into it. If nothing
    /// matches there, ask again from [`BatchLookup::next_offset`].
    ///
    /// Cost: a few reads of indexes, one batch.
    ///
    /// # Errors
    /// [`ReadError::Log`] if reading failed.
    pub fn search_offset(
        &mut self,
        io: &mut dyn Io,
        spec: OffsetSpec,
        isolation: Isolation,
        from: Option<Offset>,
    ) -> Result<OffsetSearch, ReadError> {
        let view = self.view();
        let (start, end) = (view.log_start_offset, view.end_for(isolation));
        let failed = |source| ReadError::Log { source };
        let nowhere = |offset, leader_epoch| {
            OffsetSearch::Found(Some(TimestampOffset { timestamp: None, offset, leader_epoch }))
        };
        let (found, wanted, first) = match spec {
            OffsetSpec::Latest => return Ok(nowhere(end, self.latest_epoch())),
            OffsetSpec::Earliest | OffsetSpec::EarliestLocal => {
                return Ok(nowhere(start, self.epochs.epoch_for_offset(start)));
            }
            OffsetSpec::LatestTiered | OffsetSpec::EarliestPendingUpload => {
                return Ok(OffsetSearch::Found(None));
            }
            OffsetSpec::MaxTimestamp => {
                (self.log.batch_of_largest_timestamp(io).map_err(failed)?, None, start)
            }
            OffsetSpec::Timestamp(timestamp) => {
                let first = from.map_or(start, |from| from.max(start));
                if first >= end {
                    return Ok(OffsetSearch::Found(None));
                }
                let found = self.log.batch_for_timestamp(io, timestamp, first).map_err(failed)?;
                (found, Some(timestamp), first)
            }
        };
        // A batch lies below where a reader must stop, or behind it as a whole; but for a log start inside of a batch, with an
        // open transaction before it, where that is as much as may be read. Kafka: the latter is answered as if it were not
        // there, though an earlier record might do.
        let Some(FoundBatch { info, bytes }) = found.filter(|found| found.info.next_offset <= end) else {
            return Ok(OffsetSearch::Found(None));
        };
        Ok(OffsetSearch::Inside(BatchLookup { bytes, wanted, first, next_offset: info.next_offset }))
    }
}

#[cfg(test)]
mod tests {
    use weir_format::BatchBuilder;

    use super::*;

    /// Three records of 1 KiB at 20, 21 and 22 with timestamps 5, 9 and 7.
    fn lookup(wanted: Option<i64>, first: i64) -> BatchLookup {
        let value = vec![7; 1 << 10];
        let mut builder = BatchBuilder::new().base_offset(at(20));
        for timestamp in [5, 9, 7] {
            builder = builder.record(TimestampMs::new(timestamp), None, Some(&value));
        }
        let bytes = builder.build().unwrap().freeze();
        let wanted = wanted.map(TimestampMs::new);
        BatchLookup { bytes, wanted, first: at(first), next_offset: at(23) }
    }

    fn at(offset: i64) -> Offset {
        Offset::new(offset).unwrap()
    }

    fn found(lookup: &BatchLookup) -> Option<(i64, i64)> {
        lookup.look().map(|found| (found.offset.get(), found.timestamp.unwrap().get()))
    }

    #[test]
    fn a_batch_that_cannot_be_read_is_answered_with_where_it_begins() {
        assert_eq!(found(&lookup(Some(6), 20)), Some((21, 9)));
        // The length of the first record is negative, and so the log has had it from its source.
        let mut bytes = lookup(None, 20).bytes.to_vec();
        bytes[weir_format::HEADER_SIZE] = 1;
        let spoilt = |wanted, first| {
            let bytes = Bytes::copy_from_slice(&bytes);
            found(&BatchLookup { bytes, ..lookup(wanted, first) })
        };
        assert_eq!(spoilt(Some(6), 20), Some((20, 9)));
        assert_eq!(spoilt(Some(6), 21), Some((21, 9)), "not below the start");
        assert_eq!(spoilt(None, 20), Some((20, 9)));
        assert_eq!(spoilt(None, 23), None, "the whole batch lies below the start");
    }

    #[test]
    fn what_lies_below_the_log_start_is_no_answer() {
        assert_eq!(found(&lookup(Some(6), 22)), Some((22, 7)));
        assert_eq!(found(&lookup(Some(8), 22)), None);
        assert_eq!(found(&lookup(None, 22)), None, "the largest lies below the start");
    }
}
