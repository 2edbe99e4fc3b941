//! What a partition shows to readers: one immutable value, replaced as a whole.

use weir_format::{LeaderEpoch, Offset};

/// The state of a partition that readers and mirrors may see.
///
/// Every offset of one view belongs to one moment: a reader that takes one view never sees data above the last stable
/// offset because it read the high watermark twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogView {
    /// The first offset that may be read.
    pub log_start_offset: Offset,
    /// `read_committed` readers see what is below: not above the high watermark, nor above the first open transaction.
    pub last_stable_offset: Offset,
    /// What is below is durable here; readers see nothing above.
    pub high_watermark: Offset,
    /// Where the next batch goes, as of the moment of the view. Nothing above the high watermark is readable.
    pub log_end_offset: Offset,
    /// The newest leader epoch in the log.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// What a reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// Everything below the high watermark.
    Uncommitted,
    /// Everything below the last stable offset.
    Committed,
}

impl LogView {
    /// Where a reader of this isolation must stop.
    #[must_use]
    pub fn end_for(&self, isolation: Isolation) -> Offset {
        match isolation {
            Isolation::Uncommitted => self.high_watermark,
            Isolation::Committed => self.last_stable_offset,
        }
    }
}
