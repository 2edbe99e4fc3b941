//! Offsets for timestamps and sentinels.

use weir_format::{LeaderEpoch, Offset, TimestampMs};

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
