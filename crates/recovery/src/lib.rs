//! From a partition's directory to a usable log.
//!
//! `weir-recovery` decides what of the bytes in a directory is the log: it walks segments batch by batch, tells a torn
//! tail from corruption, feeds every batch through the one gate that live appends pass (`weir-psm`), and rebuilds
//! whatever else is missing or wrong: offset, time and transaction indexes, leader epochs, producer state.
#![forbid(unsafe_code)]

pub mod epochs;
mod error;
mod leftovers;
mod loader;
pub mod partition_file;
mod replay;
mod report;
mod snapshots;
pub mod tail;
mod walk;

pub use epochs::{EpochEntry, LeaderEpochCache};
pub use error::{Corruption, Invalid, LoadError};
pub use loader::{LoadedLog, LogLoader, RecoveryConfig};
pub use partition_file::{BarrierNote, PartitionFile};
pub use replay::{LastBatch, aborted_entries, note_barrier, rebuild_producer_state};
pub use report::{
    BarrierFound, CutKind, CutTail, Leftover, NoSnapshot, ProducerStateSource, Rebuilt, RecoveryReport,
    Skipped,
};
pub use snapshots::{partition_file_path, remove_snapshots, write_partition_file, write_snapshot};

/// How much a partition may have written and not yet synced, in bytes.
///
/// Appends wait beyond it, so a hole with more behind it was not left by a crash (law R8).
pub const MAX_UNSYNCED_BYTES: u64 = 64 << 20;
