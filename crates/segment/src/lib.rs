//! One partition's files: the disk seam, segments, indexes and small durable files.
#![deny(unsafe_code)]

pub mod checkpoint;
mod config;
mod error;
pub mod io;
pub mod layout;
mod local_log;
mod log_segment;
mod metadata_files;
mod offset_index;
mod time_index;
mod transaction_index;
mod walk;

pub use config::{SegmentConfig, SegmentConfigError};
pub use error::SegmentError;
pub use local_log::{FoundBatch, LocalLog, LogAppend, ReadSlice, SyncTarget, Tail, TimestampAnswer};
pub use log_segment::LogSegment;
pub use metadata_files::{
    CleanShutdown, MetaProperties, MetadataFormatError, PartitionMetadata, parse_properties,
};
pub use offset_index::{IndexError, OffsetIndex, OffsetIndexEntry};
pub use time_index::{TimeIndex, TimestampOffset};
pub use transaction_index::{AbortedTransaction, TransactionIndex};
pub use walk::{BatchInfo, BatchWalker, HeaderWalker, WalkError};
