//! What a partition knows about its producers: sequences, epochs, open transactions, the last
//! stable offset, and what the barrier (`MIRROR_PID_RESET`) does to all of it.
//!
//! This crate deliberately has no file, no clock and no log line. Time is an argument, bytes come
//! from the caller, and what is worth saying comes back as a value. It does not decide who may
//! write either: read-only topics and coordinators are the caller's.
//!
//! Start with [`ProducerStateManager`]: [`check`](ProducerStateManager::check) says what one batch
//! would change, [`commit`](ProducerStateManager::commit) changes it. Live append, follower,
//! mirror and replay all pass through these two, one batch at a time and in log order, and nothing
//! else changes an entry. [`snapshot`] has the bytes of Kafka's `.snapshot` files.
//!
//! ```
//! use weir_format::{BatchBuilder, MirrorPidReset, Offset, ProducerEpoch, ProducerId, RecordBatch, Sequence, TimestampMs};
//! use weir_psm::{AppendOrigin, Checked, ProducerStateManager, PsmConfig};
//!
//! let now = TimestampMs::new(1_767_225_600_000);
//! let id = ProducerId::new(5).expect("not negative");
//! let data = BatchBuilder::new()
//!     .producer(id, ProducerEpoch::ZERO, Some(Sequence::ZERO))
//!     .record(now, None, Some(b"paid"))
//!     .build()?;
//! let data = RecordBatch::parse(&data)?;
//! let barrier = MirrorPidReset::build(now);
//! let barrier = RecordBatch::parse(&barrier)?;
//!
//! // A mirrored batch of producer 5 stands at offset 0.
//! let mut psm = ProducerStateManager::new(PsmConfig::default());
//! let Checked::Append(mirrored) = psm.check(&data, Offset::ZERO, AppendOrigin::Replication)? else {
//!     panic!("replicated batches are never duplicates");
//! };
//! let _ = psm.commit(mirrored);
//!
//! // A local producer that was given the same id would be taken for the mirrored one.
//! let at = psm.map_end_offset();
//! assert!(matches!(psm.check(&data, at, AppendOrigin::Client)?, Checked::Duplicate(_)));
//!
//! // Not behind a barrier.
//! let Checked::Append(reset) = psm.check(&barrier, at, AppendOrigin::Coordinator)? else {
//!     panic!("a barrier is never a duplicate");
//! };
//! assert_eq!(psm.commit(reset).barrier.expect("it is one").producers_expired, 1);
//! let at = psm.map_end_offset();
//! assert!(matches!(psm.check(&data, at, AppendOrigin::Client)?, Checked::Append(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The laws behind it stand in `docs/barrier.md`, the bytes of a snapshot in
//! `docs/on-disk-format.md`.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::as_conversions)]

mod append_info;
mod barrier;
mod entry;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod manager;
mod producers;
pub mod snapshot;
mod unreplicated;
mod verification;

pub use append_info::{AppendOrigin, TransactionVersion};
pub use barrier::{BarrierApplied, Forgotten};
pub use entry::{BATCHES_RETAINED, BatchMetadata, ProducerStateEntry};
pub use error::{ProducerStateError, SnapshotError};
pub use manager::{
    Applied, Checked, CompletedTransaction, DuplicateBatch, OpenTransaction, ProducerStateManager, PsmConfig,
    Transition,
};
pub use verification::VerificationGuard;
