//! One partition's files: the disk seam, segments, indexes and small durable files.
#![deny(unsafe_code)]

pub mod checkpoint;
mod config;
pub mod io;
pub mod layout;
mod metadata_files;
mod offset_index;
mod time_index;
mod transaction_index;
mod walk;

pub use config::{SegmentConfig, SegmentConfigError};
pub use metadata_files::{
    CleanShutdown, MetaProperties, MetadataFormatError, PartitionMetadata, parse_properties,
};
pub use offset_index::{IndexError, OffsetIndex, OffsetIndexEntry};
pub use time_index::{TimeIndex, TimestampOffset};
pub use transaction_index::{AbortedTransaction, TransactionIndex};
pub use walk::{BatchInfo, BatchWalker, HeaderWalker, WalkError};
