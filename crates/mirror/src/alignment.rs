//! Whether our log fits the source's, and from where.
//!
//! This version takes an empty log, or one that the same session mirrored and whose newest
//! batch the source still has. Anything else is FAILED with the reason; nothing is cut.

use weir_format::{AnyBatch, AnyBatchReader, Offset};

use crate::destination::{LogState, NewestBatch};
use crate::failure::Failure;
use crate::record::PartitionRecord;
use crate::source::{FetchedPartition, SourceRange};

/// What to do to align a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlignmentPlan {
    /// It fits. Fetch from the log end on.
    Fits,
    /// The log is empty: give it the source's start.
    StartLogAt(Offset),
    /// Fetch at this offset and compare with our newest batch, by [`compare_newest`].
    CompareNewest {
        /// Where to fetch.
        fetch_offset: Offset,
        /// What we have there.
        newest: NewestBatch,
    },
    /// It does not fit.
    Fail(Failure),
}

/// Decides how `log` is aligned with a source that has `range`.
#[must_use]
pub fn plan(record: &PartitionRecord, log: &LogState, range: SourceRange) -> AlignmentPlan {
    let log_end = log.log_end_offset;
    let Some(newest) = log.newest_batch else {
        if record.reached_mirroring {
            return inside(log_end, range).map_or(AlignmentPlan::Fits, AlignmentPlan::Fail);
        }
        if log_end == range.start {
            return AlignmentPlan::Fits;
        }
        return AlignmentPlan::StartLogAt(range.start);
    };
    if !record.reached_mirroring {
        return AlignmentPlan::Fail(Failure::LogNotEmpty { log_start: log.log_start_offset, log_end });
    }
    if let Some(failure) = inside(log_end, range) {
        return AlignmentPlan::Fail(failure);
    }
    if range.start == log_end {
        // The source has removed all that we have, and nothing that we have not: no gap, and
        // nothing left to compare. An idle topic with retention looks like this.
        return AlignmentPlan::Fits;
    }
    AlignmentPlan::CompareNewest { fetch_offset: newest.base_offset.max(range.start), newest }
}

fn inside(log_end: Offset, range: SourceRange) -> Option<Failure> {
    if range.start > log_end {
        Some(Failure::Gap { log_end, source_start: range.start })
    } else if range.end < log_end {
        Some(Failure::SourceEndsBelow { log_end, source_end: range.end })
    } else {
        None
    }
}

/// Whether the first batch that was fetched is our newest one: same base offset, same CRC.
///
/// # Errors
/// [`Failure::NewestBatchDiffers`] with what is there instead.
pub fn compare_newest(newest: &NewestBatch, fetched: &FetchedPartition) -> Result<(), Failure> {
    let differs =
        |found: String| Failure::NewestBatchDiffers { offset: newest.base_offset, crc: newest.crc, found };
    if let Some(diverging) = fetched.diverging {
        return Err(Failure::Diverged {
            log_end: newest.base_offset,
            epoch: diverging.epoch,
            end_offset: diverging.end_offset,
        });
    }
    let (found, offset, crc) = match AnyBatchReader::new(&fetched.records).next() {
        None => return Err(differs("no batch".to_owned())),
        Some(Err(error)) => return Err(differs(error.to_string())),
        Some(Ok(AnyBatch::Batch(batch))) => ("batch", batch.base_offset(), batch.crc()),
        Some(Ok(AnyBatch::Message(message))) => ("message", message.offset(), message.crc()),
    };
    if (offset, crc) != (newest.base_offset, newest.crc) {
        return Err(differs(format!("a {found} at offset {offset} with CRC {crc:#010x}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{SourceCode, TopicPartition};
    use bytes::Bytes;
    use weir_format::{BatchBuilder, LeaderEpoch, RecordBatch, TimestampMs};

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).expect("not negative")
    }

    fn log(start: i64, end: i64, newest: Option<(i64, u32)>) -> LogState {
        LogState {
            log_start_offset: offset(start),
            high_watermark: offset(end),
            last_stable_offset: offset(end),
            log_end_offset: offset(end),
            leader_epoch: LeaderEpoch::new(11).expect("not negative"),
            latest_epoch: None,
            newest_batch: newest.map(|(base, crc)| NewestBatch {
                base_offset: offset(base),
                crc,
                leader_epoch: None,
                is_barrier: false,
            }),
        }
    }

    fn record(reached_mirroring: bool) -> PartitionRecord {
        PartitionRecord { reached_mirroring, session: 1, ..PartitionRecord::unknown() }
    }

    #[test]
    fn alignment_by_table() {
        use AlignmentPlan::{CompareNewest, Fail, Fits, StartLogAt};
        let range = |start, end| SourceRange { start: offset(start), end: offset(end) };
        let compare = |fetch, base| CompareNewest {
            fetch_offset: offset(fetch),
            newest: log(0, 0, Some((base, 7))).newest_batch.expect("given"),
        };
        let gap = |log_end, source_start| {
            Fail(Failure::Gap { log_end: offset(log_end), source_start: offset(source_start) })
        };
        let below = |log_end, source_end| {
            Fail(Failure::SourceEndsBelow { log_end: offset(log_end), source_end: offset(source_end) })
        };
        let not_empty = |log_start, log_end| {
            Fail(Failure::LogNotEmpty { log_start: offset(log_start), log_end: offset(log_end) })
        };
        let cases = [
            ("first mirror", false, log(0, 0, None), range(0, 100), Fits),
            (
                "first mirror, source start 500",
                false,
                log(0, 0, None),
                range(500, 900),
                StartLogAt(offset(500)),
            ),
            ("emptied before", false, log(700, 700, None), range(500, 900), StartLogAt(offset(500))),
            ("somebody else's data", false, log(0, 9, Some((8, 7))), range(0, 100), not_empty(0, 9)),
            ("restart, nothing came yet", true, log(500, 500, None), range(500, 500), Fits),
            ("restart, source went on", true, log(500, 500, None), range(400, 600), Fits),
            ("restart, overtaken", true, log(500, 500, None), range(501, 600), gap(500, 501)),
            ("restart, source recreated", true, log(500, 500, None), range(0, 3), below(500, 3)),
            ("restart", true, log(0, 9, Some((8, 7))), range(0, 100), compare(8, 8)),
            (
                "restart, start inside the newest",
                true,
                log(0, 19, Some((8, 7))),
                range(10, 100),
                compare(10, 8),
            ),
            ("restart, source emptied to our end", true, log(0, 19, Some((8, 7))), range(19, 19), Fits),
            ("restart, overtaken with data", true, log(0, 19, Some((8, 7))), range(20, 100), gap(19, 20)),
            ("restart, source lost data", true, log(0, 19, Some((8, 7))), range(0, 18), below(19, 18)),
        ];
        for (name, reached, log, range, expected) in cases {
            assert_eq!(plan(&record(reached), &log, range), expected, "{name}");
        }
    }

    #[test]
    fn the_newest_batch_must_have_the_same_offset_and_crc() {
        let bytes = BatchBuilder::new()
            .base_offset(offset(8))
            .record(TimestampMs::new(1), None, Some(b"value"))
            .build()
            .expect("builds");
        let crc = RecordBatch::parse(&bytes).expect("parses").crc();
        let fetched = |records: Bytes| FetchedPartition {
            partition: TopicPartition::new("t", 0),
            code: SourceCode::None,
            high_watermark: None,
            log_start_offset: None,
            diverging: None,
            records,
        };
        let bytes = bytes.freeze();
        let newest = |base, crc| log(0, 9, Some((base, crc))).newest_batch.expect("given");
        assert_eq!(compare_newest(&newest(8, crc), &fetched(bytes.clone())), Ok(()));
        for (newest, records) in [
            (newest(8, crc ^ 1), bytes.clone()),
            (newest(7, crc), bytes.clone()),
            (newest(8, crc), Bytes::new()),
            (newest(8, crc), bytes.slice(..bytes.len() - 1)),
        ] {
            let result = compare_newest(&newest, &fetched(records));
            assert!(matches!(result, Err(Failure::NewestBatchDiffers { .. })), "{result:?}");
        }
    }
}
