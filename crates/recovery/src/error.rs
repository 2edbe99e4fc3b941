//! Why a partition could not be loaded.

use std::path::PathBuf;

use weir_format::{BatchError, MessageError, Offset};
use weir_psm::ProducerStateError;
use weir_segment::SegmentError;
use weir_segment::io::IoError;

use crate::tail::{CorruptReason, ValidBehind};
use crate::watch::Stop;

/// Why [`LogLoader::load`](crate::LogLoader::load) did not load.
///
/// A load changes no `.log` file before it has walked the whole log, so where it fails for what it met in one, all of them
/// are as they were. It may have dropped or finished what interrupted operations left, and built again the indexes of
/// segments that were whole. One that fails later, for the disk, may have cut torn tails, and is to be done again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Bytes that were once synced, or that valid batches follow, are not a valid batch.
    ///
    /// The partition stays offline, and not a byte of the log is changed; the message names the place and what can be done.
    #[error("{0}")]
    Corrupt(Box<Corruption>),
    /// The watch asked to stop.
    ///
    /// What was done stays done. The directory loads as it would have before; load it again.
    #[error("interrupted")]
    Interrupted,
    /// The path is not a directory.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A directory or a pipe has the name of a file that a load reads. Nothing was changed.
    #[error("{} is not a regular file: move it out of the partition's directory, and start again", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Bytes that were about to be cut are not those that were judged: somebody else writes into the directory.
    #[error("{} has changed while it was loaded: stop what else writes there, and start again", file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// The walk and the segments do not agree on where the log ends: a mistake of ours.
    #[error(
        "{}: its batches end at offset {walked}, its segments at {opened}: a mistake of weir's; nothing was appended, \
         keep a copy of the directory and report it",
        dir.display()
    )]
    EndsDiffer {
        /// The partition's directory.
        dir: PathBuf,
        /// Where the walk ended.
        walked: Offset,
        /// Where the opened segments end.
        opened: Offset,
    },
    /// The segments could not be opened after they had been walked.
    #[error(transparent)]
    Segment(SegmentError),
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl From<Stop> for LoadError {
    fn from(_: Stop) -> Self {
        Self::Interrupted
    }
}

/// Where a log is corrupt, and what lies behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The file.
    pub file: PathBuf,
    /// The first byte that is not part of a valid batch.
    pub position: u64,
    /// The offset expected there: everything below it is valid.
    pub next_offset: Offset,
    /// What is wrong with the bytes.
    pub found: Invalid,
    /// Why they were not cut as a torn tail.
    pub reason: CorruptReason,
    /// Valid batches behind, in the same file.
    pub behind: Option<ValidBehind>,
    /// Where the last segment of the directory begins, if that is another one.
    pub last_segment: Option<Offset>,
}

impl std::fmt::Display for Corruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: corrupt at byte {}, where offset {} is expected: {} (not a torn tail: {})",
            self.file.display(),
            self.position,
            self.next_offset,
            self.found,
            self.reason
        )?;
        if let Some(behind) = self.behind {
            write!(f, "; offsets {}..{} lie behind it", behind.base_offset, behind.end_offset)?;
        }
        if let Some(last) = self.last_segment {
            write!(f, "; later segments follow, the last from offset {last}")?;
        }
        write!(
            f,
            "; the log was not changed: `weir dump-log {}` shows it; `weir recover {} --accept-cut {}` cuts the log there \
             and keeps what it cuts; or restore the directory from a copy, or mirror the topic again",
            self.file.display(),
            self.file.parent().unwrap_or(&self.file).display(),
            self.next_offset
        )
    }
}

/// What is wrong at an invalid place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalid {
    /// No valid batch starts here.
    Batch(BatchError),
    /// A message of magic 0 or 1 starts here, and is not whole or not sound.
    Message(MessageError),
    /// A valid batch starts here, below the offset expected.
    OffsetBelowEnd {
        /// Its base offset.
        base_offset: Offset,
    },
    /// A valid batch starts here, and reaches into the next segment.
    BeyondNextSegment {
        /// One above its last offset.
        next_offset: Offset,
        /// Where the next segment begins.
        segment: Offset,
    },
    /// A valid control batch starts here, and is compressed (law B9).
    CompressedControlBatch,
    /// A valid batch starts here that producer state cannot take.
    Refused(ProducerStateError),
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Batch(error) => error.fmt(f),
            Self::Message(error) => error.fmt(f),
            Self::OffsetBelowEnd { base_offset } => write!(f, "a batch of offset {base_offset}"),
            Self::BeyondNextSegment { next_offset, segment } => {
                write!(f, "a batch that ends at offset {next_offset}, beyond the next segment's {segment}")
            }
            Self::CompressedControlBatch => f.write_str("a compressed control batch"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}
