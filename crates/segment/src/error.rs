//! Why a partition's files did not do what was asked.

use std::path::PathBuf;

use weir_format::{BatchError, Offset};

use crate::io::IoError;
use crate::offset_index::IndexError;

/// Why a [`LocalLog`](crate::LocalLog) did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The disk. After a failed change the log takes no further one until it is opened again.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The bytes at this place are no batch: torn or corrupt, which is for recovery to say.
    #[error("{}: no valid batch at byte {position}", path.display())]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// Where, in bytes.
        position: u64,
        /// What is wrong.
        #[source]
        source: BatchError,
    },
    /// What was handed over to be appended is not whole batches.
    #[error("no valid batch at byte {position} of what was to be appended")]
    NotBatches {
        /// Where in the bytes that were handed over.
        position: usize,
        /// What is wrong.
        #[source]
        source: BatchError,
    },
    /// A batch starts below the end of the log.
    #[error("a batch with base offset {base_offset} cannot be appended at log end offset {log_end_offset}")]
    NotMonotonic {
        /// The batch's base offset.
        base_offset: Offset,
        /// Where the log ended before it.
        log_end_offset: Offset,
    },
    /// The offset lies outside the segments.
    #[error("offset {offset} is outside {first_offset} to {log_end_offset}")]
    OutOfRange {
        /// The offset asked for.
        offset: Offset,
        /// Base offset of the first segment.
        first_offset: Offset,
        /// Where the log ends.
        log_end_offset: Offset,
    },
    /// Bytes that are no batch lie behind the last one: recovery has to judge them first.
    #[error("{}: {} bytes behind the last batch at byte {position}", path.display(), size - position)]
    Tail {
        /// Which file.
        path: PathBuf,
        /// Where they start, in bytes.
        position: u64,
        /// Size of the file, in bytes.
        size: u64,
    },
    /// A change failed earlier; the files must be opened again.
    #[error("an earlier change of {} failed", dir.display())]
    Failed {
        /// The partition's directory.
        dir: PathBuf,
    },
    /// A transaction index that cannot be read; replay rebuilds it.
    #[error("{} cannot be read", path.display())]
    TransactionIndex {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: IndexError,
    },
    /// The cleaner of a Kafka was interrupted while it replaced segments, and this cannot be finished.
    #[error("{}: the replacement of segments was not finished", path.display())]
    UnfinishedSwap {
        /// One of its files.
        path: PathBuf,
    },
    /// There is no such segment.
    #[error("{} has no segment {base_offset}", dir.display())]
    NoSegment {
        /// The partition's directory.
        dir: PathBuf,
        /// The base offset asked for.
        base_offset: Offset,
    },
}
