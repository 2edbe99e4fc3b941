//! From a partition's directory to a usable log.
//!
//! `weir-recovery` decides what of the bytes in a directory is the log. It walks segments batch by batch, tells a torn
//! tail from corruption (two different answers, two different actions), feeds every batch through the one gate that live
//! appends pass too (`weir-psm`), and rebuilds what is missing or wrong beside the log: offset, time and transaction
//! indexes, leader epochs, producer state. What it found and did is a value, [`RecoveryReport`].
//!
//! It deliberately opens no socket, reads no clock, starts no thread, decides nothing about who may write, and cuts
//! nothing that was ever acknowledged: corruption is an error that names file, byte and remedy.
//!
//! Start from [`LogLoader::load`], or [`LogLoader::load_watched`] if somebody waits; [`tail::judge_tail`] is the table of
//! torn tails, [`PartitionFile`] what weir knows beside Kafka's own files, [`cut`] what an operator does about corruption, and [`inspect()`]
//! a look that changes nothing.
//!
//! ```
//! use std::path::Path;
//! use weir_format::{BatchBuilder, Offset, TimestampMs};
//! use weir_psm::PsmConfig;
//! use weir_recovery::{CutKind, LogLoader, RecoveryConfig};
//! use weir_segment::SegmentConfig;
//! use weir_segment::io::sim::SimDisk;
//!
//! // A partition whose last batch was cut by a power failure.
//! let now = TimestampMs::new(1_767_225_600_000);
//! let batch = BatchBuilder::new().record(now, None, Some(b"kept")).build()?;
//! let disk = SimDisk::new(1);
//! let file = Path::new("/data/orders-0/00000000000000000000.log");
//! disk.write_file(file, &[&batch[..], &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]].concat());
//!
//! let config = RecoveryConfig {
//!     segment: SegmentConfig::default(),
//!     psm: PsmConfig::default(),
//!     clean_shutdown: false,
//!     recovery_point: Offset::ZERO,
//!     log_start_offset: Offset::ZERO,
//!     side_dir: "/data.weir/orders-0".into(),
//!     now,
//! };
//! let (loaded, report) = LogLoader::load(&mut disk.io(), Path::new("/data/orders-0"), &config)?;
//! assert_eq!(loaded.log.log_end_offset().get(), 1);
//! assert_eq!(report.cuts[0].kind, CutKind::Torn);
//! assert_eq!(report.cut_bytes(), 11);
//! assert_eq!(disk.read_file(file).as_deref(), Some(&batch[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The long document is `docs/on-disk-format.md`, with the laws R1 to R8 and their tests.
#![forbid(unsafe_code)]

mod archive;
pub mod cut;
pub mod epochs;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod inspect;
mod leftovers;
mod loader;
mod messages;
pub mod partition_file;
mod replay;
mod report;
mod snapshots;
pub mod tail;
mod walk;
mod watch;

pub use epochs::{EpochEntry, LeaderEpochCache};
pub use error::{Corruption, Invalid, LoadError};
pub use inspect::{InspectedSegment, Inspection, inspect};
pub use loader::{LoadedLog, LogLoader, RecoveryConfig};
pub use partition_file::{BarrierNote, PartitionFile};
pub use replay::{LastBatch, aborted_entries, note_barrier, rebuild_producer_state};
pub use report::{
    BarrierFound, CutKind, CutTail, ForeignFile, Leftover, NoSnapshot, PhaseTimes, ProducerStateSource,
    Rebuilt, RecoveryReport, Skipped,
};
pub use snapshots::{
    partition_file_path, remove_snapshots, with_snapshot, write_partition_file, write_snapshot,
};
pub use tail::Contents;
pub use watch::{Phase, Progress, Unwatched, Watch};

/// How much a partition may have written and not yet synced, in bytes.
///
/// Appends wait beyond it, so a hole with more behind it was not left by a crash (law R8).
pub const MAX_UNSYNCED_BYTES: u64 = 64 << 20;
