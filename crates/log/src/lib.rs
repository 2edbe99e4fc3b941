//! One partition of a Kafka log, whole: the append gate, reads, truncation, durability.
#![forbid(unsafe_code)]

mod append;
mod config;
mod error;
mod gate;
mod lookup;
mod sync;
mod unified_log;
mod view;

pub use append::{AppendParams, Appended};
pub use config::{Durability, LogConfig, MAX_UNSYNCED_BYTES, OpenOptions};
pub use error::{AppendError, ChangeError, InvalidRecord, ReadError};
pub use lookup::{OffsetSpec, TimestampOffset};
pub use sync::SyncPlan;
pub use unified_log::{Read, SegmentInfo, UnifiedLog};
pub use view::{Isolation, LogView};
pub use weir_recovery::{LastBatch, LoadError, RecoveryReport};
