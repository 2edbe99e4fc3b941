//! What a partition may be told: limits, timestamps, durability.

use std::path::PathBuf;

use weir_format::{Offset, TimestampMs, TimestampType};
use weir_psm::PsmConfig;
use weir_segment::SegmentConfig;

/// How much a partition may have written and not yet synced. Appends wait beyond it.
///
/// Recovery relies on it: what lies further behind a hole cannot have been unsynced (law R8).
pub const MAX_UNSYNCED_BYTES: u64 = weir_recovery::MAX_UNSYNCED_BYTES;

/// Settings of one partition's log.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Segments and their indexes.
    pub segment: SegmentConfig,
    /// Producer state.
    pub psm: PsmConfig,
    /// Largest batch that a client may append, in bytes (`max.message.bytes`). Replication is not limited by it.
    pub max_message_bytes: usize,
    /// How many bytes the records of a client's batch may have once they are decompressed
    /// (`max.decompressed.message.bytes`).
    pub max_decompressed_message_bytes: usize,
    /// How far a client's timestamps may lie behind the clock (`message.timestamp.before.max.ms`), in milliseconds.
    pub message_timestamp_before_max_ms: i64,
    /// How far a client's timestamps may lie ahead of the clock (`message.timestamp.after.max.ms`), in milliseconds.
    pub message_timestamp_after_max_ms: i64,
    /// The topic is compacted (`cleanup.policy`): a client's records must have keys.
    pub compact: bool,
    /// Old segments are deleted (`cleanup.policy`).
    pub delete: bool,
    /// What is deleted when it is old, or too much.
    pub retention: RetentionConfig,
    /// Up to how much earlier than `segment.ms` a segment is left (`segment.jitter.ms`), in milliseconds: another part of
    /// it for each segment, so that not all partitions roll together.
    pub segment_jitter_ms: i64,
    /// Who sets timestamps (`message.timestamp.type`). Replication keeps the bytes as they are.
    pub message_timestamp_type: TimestampType,
    /// What *durable* means (`weir.flush`).
    pub durability: Durability,
    /// Bytes written and not synced beyond which an append is answered with [`AppendError::TooMuchUnsynced`].
    /// Not above [`MAX_UNSYNCED_BYTES`].
    ///
    /// [`AppendError::TooMuchUnsynced`]: crate::AppendError::TooMuchUnsynced
    pub max_unsynced_bytes: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment: SegmentConfig::default(),
            psm: PsmConfig::default(),
            // Kafka: 1 MiB plus the header's room, `LogConfig.DEFAULT_MAX_MESSAGE_BYTES`.
            max_message_bytes: 1_048_588,
            max_decompressed_message_bytes: 2_147_483_639,
            message_timestamp_before_max_ms: i64::MAX,
            message_timestamp_after_max_ms: 60 * 60 * 1_000,
            compact: false,
            delete: true,
            retention: RetentionConfig::default(),
            segment_jitter_ms: 0,
            message_timestamp_type: TimestampType::CreateTime,
            durability: Durability::Synced,
            max_unsynced_bytes: MAX_UNSYNCED_BYTES,
        }
    }
}

impl LogConfig {
    /// Whether the topic is compacted and nothing of it is deleted because it is old: then clients may not delete
    /// records either.
    #[must_use]
    pub fn is_compacted_only(&self) -> bool {
        self.compact && !self.delete
    }
}

/// When segments are deleted, where [`LogConfig::delete`] says that they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionConfig {
    /// How long records are kept after the largest timestamp of their segment (`retention.ms`), in milliseconds; `None`
    /// (-1) and the default of this struct: for ever.
    pub ms: Option<u64>,
    /// How many bytes of the partition are kept at least (`retention.bytes`); `None` (-1): all.
    pub bytes: Option<u64>,
    /// A segment whose largest timestamp is ahead of the clock expires by the age of its file, where in Kafka it stays
    /// until the clock has caught up, and with it everything behind it.
    pub future_by_file_age: bool,
}

/// When appended bytes count as durable: the high watermark is their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// When a sync has covered them (`weir.flush=acks-all`).
    #[default]
    Synced,
    /// When they are written (`weir.flush=interval` and `os`): Kafka's own, weaker promise.
    Written,
}

/// What [`UnifiedLog::open`](crate::UnifiedLog::open) is told about the partition's past.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// weir's own files of this partition: beside the log directory, never inside it. Made if missing.
    pub side_dir: PathBuf,
    /// Whether the clean-shutdown marker was there, *and* has been removed durably before this call.
    pub clean_shutdown: bool,
    /// `recovery-point-offset-checkpoint`; zero if unknown.
    pub recovery_point: Offset,
    /// The larger of `log-start-offset-checkpoint` and what the metadata store says; zero if unknown.
    pub log_start_offset: Offset,
    /// The wall clock. A load forgets nobody: idle producers go by `expire_producers`, before a restart as after it.
    pub now: TimestampMs,
}
