//! [`LogLoader`]: from a directory to the parts of a log.

use std::path::{Path, PathBuf};

use weir_format::{LeaderEpoch, Offset, TimestampMs};
use weir_psm::PsmConfig;
use weir_segment::SegmentConfig;
use weir_segment::io::Io;

use crate::error::LoadError;
use crate::report::RecoveryReport;

/// What a load is told about the partition.
#[derive(Debug, Clone)]
pub struct RecoveryConfig {
    /// Segments and their indexes.
    pub segment: SegmentConfig,
    /// Producer state.
    pub psm: PsmConfig,
    /// Whether the clean-shutdown marker was there, and has been removed durably since.
    pub clean_shutdown: bool,
    /// `recovery-point-offset-checkpoint`; zero if unknown.
    pub recovery_point: Offset,
    /// The larger of `log-start-offset-checkpoint` and the metadata store's log start; zero if unknown.
    pub log_start_offset: Offset,
    /// weir's own files of this partition, beside the log directory. Made when something is written into it.
    pub side_dir: PathBuf,
    /// The wall clock.
    pub now: TimestampMs,
}
