//! One partition's files, and the only door to the disk.
//!
//! It holds the disk seam ([`io::Io`], its contract and its backends), the segments of a partition with their three
//! indexes ([`LocalLog`]), and the names and small text files of a log directory ([`layout`], [`checkpoint`]). All files
//! are Kafka's own, so that Kafka's tools read what is closed here.
//!
//! It deliberately knows nothing of producers and transactions (it stores their index entries and judges none), of leader
//! epochs, of what a torn tail means, and of when something may be acknowledged. Those belong to `weir-psm`,
//! `weir-recovery` and `weir-log`.
//!
//! Start with [`LocalLog`], [`io::Io`] and, for tests, `io::sim::SimDisk` (feature `sim`).
//!
//! ```
//! use weir_format::{BatchBuilder, Offset, RecordBatch, TimestampMs};
//! use weir_segment::io::{Io, Wait, pwrite::{PwriteConfig, PwriteIo}};
//! use weir_segment::{LocalLog, SegmentConfig};
//!
//! let dir = tempfile::tempdir()?;
//! let mut io = PwriteIo::new(PwriteConfig::default());
//! let mut log = LocalLog::open(&mut io, dir.path(), SegmentConfig::default(), Offset::ZERO)?;
//!
//! let now = TimestampMs::new(1_767_225_600_000);
//! let bytes = BatchBuilder::new().record(now, Some(b"key"), Some(b"value")).build()?;
//! log.append(&mut io, &RecordBatch::parse(&bytes)?, now)?;
//!
//! // It has been gathered. A flush submits it, and one sync makes durable whatever was written before it. A shard does
//! // this for many logs and many appends at a time; `LocalLog::sync` does it for one.
//! let mut done = Vec::new();
//! while log.synced_end_offset() < log.log_end_offset() {
//!     log.flush(&mut io);
//!     log.sync_begin(&mut io);
//!     io.reap(Wait::Block, &mut done)?;
//!     for done in done.drain(..) {
//!         log.on_done(done).expect("nobody else uses this disk");
//!     }
//!     assert!(log.failure().is_none());
//! }
//!
//! let read = log.read(&mut io, Offset::ZERO, 1_024, log.log_end_offset(), true)?;
//! assert_eq!(read.bytes, bytes);
//! log.close(&mut io)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The long document is `docs/on-disk-format.md`.

#![deny(unsafe_code)]

mod appender;
pub mod checkpoint;
mod config;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod index_builder;
pub mod io;
pub mod layout;
mod local_log;
mod log_segment;
mod metadata_files;
mod offset_index;
mod time_index;
mod transaction_index;
mod units;
mod walk;

pub use appender::{ticket, ticket_owner};
pub use config::{SegmentConfig, SegmentConfigError};
pub use error::SegmentError;
pub use index_builder::IndexBuilder;
pub use local_log::{FoundBatch, LocalLog, LogAppend, ReadSlice, Tail};
pub use log_segment::LogSegment;
pub use metadata_files::{
    CleanShutdown, MetaProperties, MetadataFormatError, PartitionMetadata, parse_properties,
};
pub use offset_index::{IndexError, OffsetIndex, OffsetIndexEntry};
pub use time_index::{TimeIndex, TimestampOffset};
pub use transaction_index::{AbortedTransaction, TransactionIndex};
pub use walk::{BatchInfo, BatchWalker, HeaderWalker, WalkError, batch_info};
