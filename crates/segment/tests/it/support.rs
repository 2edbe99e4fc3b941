//! What several modules need.

use bytes::Bytes;
use weir_format::{BatchBuilder, Offset, TimestampMs};
use weir_segment::SegmentConfig;

pub(crate) fn at(offset: i64) -> Offset {
    Offset::new(offset).unwrap()
}

pub(crate) const NOW: TimestampMs = TimestampMs::new(1_767_225_600_000);

/// A batch of `count` records of `size` bytes from `base` on, with ascending timestamps.
pub(crate) fn batch(base: i64, count: i64, size: usize, timestamp: i64) -> Bytes {
    let mut builder = BatchBuilder::new().base_offset(at(base));
    for record in 0..count {
        let fill = u8::try_from((base + record) % 251).unwrap();
        let value = vec![fill; size];
        builder = builder.record(TimestampMs::new(timestamp + record), None, Some(&value));
    }
    builder.build().unwrap().freeze()
}

/// Small segments and dense indexes.
pub(crate) fn small() -> SegmentConfig {
    SegmentConfig { segment_bytes: 1_000, index_interval_bytes: 150, ..SegmentConfig::default() }
}
