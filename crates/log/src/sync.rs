//! Durability, split in two: what a sync must cover, and what is true once it has.

use weir_format::Offset;
use weir_segment::io::{FileId, Op, SyncKind};

/// What one sync of a partition covers.
///
/// The shard submits [`SyncPlan::ops`], goes on with other work, and hands the plan back to
/// [`UnifiedLog::sync_done`](crate::UnifiedLog::sync_done) with the outcome. Every append that was complete before the
/// plan was made is covered by it: that is group commit. One plan per partition at a time.
#[derive(Debug)]
#[must_use = "a plan that is not handed back blocks the partition's next sync"]
pub struct SyncPlan {
    pub(crate) number: u64,
    pub(crate) files: Vec<(FileId, SyncKind)>,
    pub(crate) end_offset: Offset,
    pub(crate) covered_bytes: u64,
}

impl SyncPlan {
    /// The operations to submit. All must succeed for the plan to have succeeded.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        self.files.iter().map(|&(file, what)| Op::Sync { file, what })
    }

    /// What is durable once it has succeeded.
    #[must_use]
    pub fn end_offset(&self) -> Offset {
        self.end_offset
    }
}
