//! What a log directory says about its partitions: marker, checkpoints, identity, and weir's own directory beside it.

use std::path::{Path, PathBuf};

use weir_format::Offset;
use weir_segment::checkpoint::OffsetCheckpoint;
use weir_segment::layout::{
    CLEAN_SHUTDOWN_MARKER, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, META_PROPERTIES,
    PARTITION_METADATA, RECOVERY_POINT_CHECKPOINT, TopicPartition, Uuid,
};
use weir_segment::{MetaProperties, PartitionMetadata};

use super::files::{Files, Holder, read_small};
use super::report::{Code, Finding, LogDirReport, Severity};
use crate::config::Config;
use crate::data_dir::STORE_FILE;
use crate::shard::describe;

/// The most that is read of a small file, in bytes.
pub(super) const SMALL_FILE_LIMIT: u64 = 64 << 20;

/// A log directory, as far as it matters to the partitions in it.
#[derive(Debug, Clone)]
pub(super) struct LogDir {
    pub(super) dir: PathBuf,
    pub(super) clean_shutdown: bool,
    pub(super) holder: Option<Holder>,
    pub(super) recovery_points: OffsetCheckpoint,
    pub(super) log_starts: OffsetCheckpoint,
    pub(super) high_watermarks: OffsetCheckpoint,
    pub(super) meta: Option<MetaProperties>,
    pub(super) side_dir: Option<PathBuf>,
    pub(super) store: Option<PathBuf>,
    pub(super) findings: Vec<Finding>,
}

impl LogDir {
    /// Reads what is there; what is not is as if it said nothing.
    pub(super) fn read(files: &dyn Files, dir: &Path) -> Self {
        let mut findings = Vec::new();
        let is_there =
            |path: &Path| files.entry(path).is_ok_and(|entry| entry.is_some()).then(|| path.to_path_buf());
        let mut checkpoint = |name: &str| small(files, dir, name, &mut findings, OffsetCheckpoint::parse);
        let recovery_points = checkpoint(RECOVERY_POINT_CHECKPOINT).unwrap_or_default();
        let log_starts = checkpoint(LOG_START_CHECKPOINT).unwrap_or_default();
        let high_watermarks = checkpoint(HIGH_WATERMARK_CHECKPOINT).unwrap_or_default();
        let meta = small(files, dir, META_PROPERTIES, &mut findings, MetaProperties::parse);
        let side_dir = is_there(&Config::side_dir(dir));
        Self {
            dir: dir.to_path_buf(),
            clean_shutdown: is_there(&dir.join(CLEAN_SHUTDOWN_MARKER)).is_some(),
            holder: files.holder(dir),
            recovery_points,
            log_starts,
            high_watermarks,
            meta,
            store: side_dir.as_ref().and_then(|side| is_there(&side.join(STORE_FILE))),
            side_dir,
            findings,
        }
    }

    /// A directory that stands alone: nothing is known around it.
    pub(super) fn none(dir: &Path) -> Self {
        Self {
            dir: dir.to_path_buf(),
            clean_shutdown: false,
            holder: None,
            recovery_points: OffsetCheckpoint::default(),
            log_starts: OffsetCheckpoint::default(),
            high_watermarks: OffsetCheckpoint::default(),
            meta: None,
            side_dir: None,
            store: None,
            findings: Vec::new(),
        }
    }

    pub(super) fn offset_of(checkpoint: &OffsetCheckpoint, name: Option<&TopicPartition>) -> Option<Offset> {
        checkpoint.offsets.get(name?).copied()
    }

    /// weir's own directory of a partition.
    pub(super) fn partition_side_dir(
        &self,
        topic_id: Option<Uuid>,
        name: Option<&TopicPartition>,
    ) -> Option<PathBuf> {
        let (topic_id, partition) = (topic_id?, name?.partition);
        Some(crate::node::partition_side_dir(&Config::side_dir(&self.dir), topic_id, partition))
    }

    pub(super) fn report(&self, partition_count: u64) -> LogDirReport {
        LogDirReport {
            dir: self.dir.clone(),
            clean_shutdown: self.clean_shutdown,
            holder: self.holder,
            cluster_id: self.meta.as_ref().and_then(|meta| meta.cluster_id.clone()),
            node_id: self.meta.as_ref().and_then(|meta| meta.node_id),
            directory_id: self.meta.as_ref().and_then(|meta| meta.directory_id),
            side_dir: self.side_dir.clone(),
            store: self.store.clone(),
            partition_count,
            findings: self.findings.clone(),
        }
    }
}

/// The topic's id in a partition's directory.
pub(super) fn topic_id(files: &dyn Files, dir: &Path, findings: &mut Vec<Finding>) -> Option<Uuid> {
    small(files, dir, PARTITION_METADATA, findings, PartitionMetadata::parse)
        .map(|metadata| metadata.topic_id)
}

/// A small file, if it is there and can be understood; else that is a finding.
fn small<T, E: std::error::Error + 'static>(
    files: &dyn Files,
    dir: &Path,
    name: &str,
    findings: &mut Vec<Finding>,
    parse: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Option<T> {
    let path = dir.join(name);
    let cause = match read_small(files, &path, SMALL_FILE_LIMIT) {
        Ok(None) => return None,
        Ok(Some(bytes)) => match parse(&bytes) {
            Ok(parsed) => return Some(parsed),
            Err(error) => describe(&error),
        },
        Err(error) => error.to_string(),
    };
    let mut finding =
        Finding::new(Code::SmallFile, Severity::Note, format!("{name} is not readable, and says nothing"));
    finding.cause = Some(cause);
    findings.push(finding.of(path));
    None
}
