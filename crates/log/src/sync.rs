//! Durability, split in two: what a sync must cover, and what is true once it has.

use weir_format::Offset;
use weir_segment::SyncTarget;
use weir_segment::io::Op;

/// What one sync of a partition covers.
///
/// The shard submits [`SyncPlan::ops`] before it calls the partition again (a roll closes the file), goes on with other work, and hands the plan back to
/// [`UnifiedLog::sync_done`](crate::UnifiedLog::sync_done) with the outcome. Every append that was complete before the
/// plan was made is covered by it: that is group commit. One plan per partition at a time.
#[derive(Debug)]
#[must_use = "a plan that is not handed back blocks the partition's next sync"]
pub struct SyncPlan {
    pub(crate) number: u64,
    pub(crate) target: SyncTarget,
}

impl SyncPlan {
    /// The operations to submit. All must succeed for the plan to have succeeded.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        std::iter::once(Op::Sync { file: self.target.file, what: self.target.what })
    }

    /// What is durable once it has succeeded, unless the log is cut before.
    #[must_use]
    pub fn end_offset(&self) -> Offset {
        self.target.end_offset
    }
}
