//! One partition of a Kafka log, whole.
//!
//! [`UnifiedLog`] owns the parts of a partition and the one gate through which batches enter it, whoever brings them:
//! clients, this node's coordinators, or the log of another leader. It answers reads under both isolation levels, finds
//! offsets for timestamps and leader epochs, cuts the log and restores what was known there, and says what is durable.
//!
//! It deliberately knows no socket, no topic name, no mirror and no configuration file. It owns no thread and no clock:
//! the shard that owns the partition passes its [`Io`](weir_segment::io::Io) and the time to every call. It does not
//! decide who may write.
//!
//! Start from [`UnifiedLog::open`], [`UnifiedLog::append`] with [`AppendParams`], and [`LogView`], which is what readers
//! may see. A batch is acknowledged when the high watermark reaches [`Appended::durable_at`], and the high watermark
//! moves when a sync has covered it: [`UnifiedLog::flush`], [`UnifiedLog::sync_begin`] and [`UnifiedLog::on_done`] share
//! writes and syncs between appends.
//!
//! ```
//! use std::path::Path;
//! use weir_format::{BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
//! use weir_log::{AppendParams, Isolation, LogConfig, OpenOptions, UnifiedLog};
//! use weir_segment::io::sim::SimDisk;
//!
//! let now = TimestampMs::new(1_767_225_600_000);
//! let disk = SimDisk::new(1);
//! let mut io = disk.io();
//! let options = OpenOptions {
//!     side_dir: "/data.weir/orders-0".into(),
//!     clean_shutdown: false,
//!     recovery_point: Offset::ZERO,
//!     log_start_offset: Offset::ZERO,
//!     now,
//! };
//! let (mut log, report) = UnifiedLog::open(&mut io, Path::new("/data/orders-0"), LogConfig::default(), options)?;
//! assert_eq!(report.batch_count, 0);
//!
//! let five = ProducerId::new(5).expect("not negative");
//! let batch = BatchBuilder::new()
//!     .producer(five, ProducerEpoch::ZERO, Some(Sequence::ZERO))
//!     .record(now, Some(b"key"), Some(b"value"))
//!     .build()?;
//! let epoch = LeaderEpoch::ZERO;
//! let appended = log.append(&mut io, batch.clone(), &AppendParams::client(epoch, now))?;
//! assert_eq!(appended.base_offset, Offset::ZERO);
//! assert!(log.view().high_watermark < appended.durable_at, "gathered, not durable");
//! log.sync(&mut io)?;
//! assert!(log.view().high_watermark >= appended.durable_at);
//!
//! // The same batch again is answered, not written. Behind a barrier nothing of before is known, and it is written.
//! assert!(log.append(&mut io, batch.clone(), &AppendParams::client(epoch, now))?.duplicate);
//! log.append(&mut io, BatchBuilder::barrier(now), &AppendParams::coordinator(epoch, now))?;
//! let again = log.append(&mut io, batch, &AppendParams::client(epoch, now))?;
//! assert_eq!((again.base_offset.get(), again.duplicate), (2, false));
//!
//! log.sync(&mut io)?;
//! let read = log.read(&mut io, Offset::ZERO, 1 << 20, Isolation::Committed, true)?;
//! assert_eq!(weir_format::BatchReader::new(&read.bytes).count(), 3);
//! log.close(&mut io)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The long documents are `docs/on-disk-format.md` and `docs/barrier.md`.
#![forbid(unsafe_code)]

mod append;
mod config;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gate;
mod lookup;
mod tail;
mod unified_log;
mod view;

pub use append::{AppendParams, Appended};
pub use config::{Durability, LogConfig, MAX_UNSYNCED_BYTES, OpenOptions, RetentionConfig};
pub use error::{AppendError, ChangeError, FailedChange, InvalidRecord, ReadError};
pub use gate::check_client_batch;
pub use lookup::{BatchLookup, MAX_DECOMPRESSED, OffsetSearch, OffsetSpec, TimestampOffset};
pub use tail::{HotTail, TailMemory};
pub use unified_log::{Deleted, DeletionScope, LogStats, Read, SegmentInfo, UnifiedLog};
pub use view::{Isolation, LogView};
pub use weir_recovery::{LastBatch, LoadError, RecoveryReport};
