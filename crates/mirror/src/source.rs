//! What is asked of the source cluster, as request and response values.
//!
//! The runner speaks to a [`Source`]; [`crate::kafka_source`] is the one over Kafka's
//! protocol, and tests have a seeded simulation. Everything a source says is untrusted.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use weir_format::{LeaderEpoch, Offset};

/// A topic's name and a partition's number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name, the same here and at the source.
    pub topic: Arc<str>,
    /// The partition's number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// The partition `partition` of `topic`.
    #[must_use]
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// The sixteen bytes of a topic id; all zero means that the source has none (before 2.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// Whether this says "no id".
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for TopicId {
    /// As Kafka prints it: 22 characters of unpadded, URL-safe base 64.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::with_capacity(22);
        let mut push = |bits: u32| {
            let index = usize::try_from(bits & 63).unwrap_or(0);
            text.push(char::from(ALPHABET[index]));
        };
        for chunk in self.0.chunks(3) {
            let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
            let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
            push(bits >> 18);
            push(bits >> 12);
            if chunk.len() == 3 {
                push(bits >> 6);
                push(bits);
            }
        }
        f.write_str(&text)
    }
}

/// A broker of the source cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub i32);

impl fmt::Display for BrokerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An error code inside a response of the source, by what we do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceCode {
    /// No error.
    None,
    /// The offset lies outside of the source's log (1).
    OffsetOutOfRange,
    /// The source found its own data corrupt (2, 87).
    CorruptMessage,
    /// No such topic or partition (3).
    UnknownTopicOrPartition,
    /// Not the leader any more, no leader, or one whose disk failed (5, 6, 9, 56).
    NotLeader,
    /// Our knowledge of the leader's epoch is old (74).
    FencedLeaderEpoch,
    /// The broker's knowledge of the leader's epoch is old (75).
    UnknownLeaderEpoch,
    /// No topic with this id (100).
    UnknownTopicId,
    /// Another topic has this id, or the topic another id (103).
    InconsistentTopicId,
    /// The credentials do not allow it (29, 30, 31).
    AuthorizationFailed,
    /// Any other code, by its number.
    Other(i16),
}

impl SourceCode {
    /// The meaning of Kafka's number.
    ///
    /// Source: Kafka, `org.apache.kafka.common.protocol.Errors`.
    #[must_use]
    pub const fn from_code(code: i16) -> Self {
        match code {
            0 => Self::None,
            1 => Self::OffsetOutOfRange,
            2 | 87 => Self::CorruptMessage,
            3 => Self::UnknownTopicOrPartition,
            5 | 6 | 9 | 56 => Self::NotLeader,
            29..=31 => Self::AuthorizationFailed,
            74 => Self::FencedLeaderEpoch,
            75 => Self::UnknownLeaderEpoch,
            100 => Self::UnknownTopicId,
            103 => Self::InconsistentTopicId,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for SourceCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::None => "NONE",
            Self::OffsetOutOfRange => "OFFSET_OUT_OF_RANGE",
            Self::CorruptMessage => "CORRUPT_MESSAGE",
            Self::UnknownTopicOrPartition => "UNKNOWN_TOPIC_OR_PARTITION",
            Self::NotLeader => "NOT_LEADER_OR_FOLLOWER",
            Self::FencedLeaderEpoch => "FENCED_LEADER_EPOCH",
            Self::UnknownLeaderEpoch => "UNKNOWN_LEADER_EPOCH",
            Self::UnknownTopicId => "UNKNOWN_TOPIC_ID",
            Self::InconsistentTopicId => "INCONSISTENT_TOPIC_ID",
            Self::AuthorizationFailed => "AUTHORIZATION_FAILED",
            Self::Other(code) => return write!(f, "error code {code}"),
        };
        f.write_str(name)
    }
}

/// Why a call to the source gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Nothing could be reached, or the connection broke. Retried with back-off.
    #[error("source cannot be reached: {cause}")]
    Unreachable {
        /// Which addresses were tried and what each said.
        cause: String,
    },
    /// No answer in time. Retried with back-off.
    #[error("source broker {broker} did not answer within {after_ms} ms")]
    TimedOut {
        /// The broker that was asked.
        broker: String,
        /// How long it had.
        after_ms: u64,
    },
    /// The answer could not be decoded. The connection is closed; retried over a new one.
    #[error("answer of the source could not be decoded: {cause}")]
    Malformed {
        /// What is wrong with it.
        cause: String,
    },
    /// The answer is larger than any that is taken. The connection is closed.
    #[error("answer of source broker {broker} has {size} bytes, more than the {limit} that are taken")]
    TooLarge {
        /// The broker that was asked.
        broker: String,
        /// Bytes of the answer, as it says.
        size: usize,
        /// The most that is taken.
        limit: usize,
    },
    /// The source speaks no version that we speak.
    #[error("source does not support {api} in a version that weir speaks ({cause})")]
    Unsupported {
        /// The API's name.
        api: &'static str,
        /// The versions of both sides.
        cause: String,
    },
    /// The source answered the whole request with an error.
    #[error("source answered {code} to {api}")]
    Refused {
        /// The API's name.
        api: &'static str,
        /// What it said.
        code: SourceCode,
    },
    /// Another cluster answers at the source's address. Nothing of it is used.
    #[error("cluster at the source's address is {found}, this mirror is bound to {expected}")]
    WrongCluster {
        /// The cluster id stored at first contact.
        expected: String,
        /// The cluster id that was answered now.
        found: String,
    },
}

/// One partition as the source's metadata has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePartition {
    /// Its leader, if it has one now.
    pub leader: Option<BrokerId>,
    /// Its leader epoch, if the source says it (Metadata 7, Kafka 2.1).
    pub leader_epoch: Option<LeaderEpoch>,
}

/// One topic as the source's metadata has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTopic {
    /// `None`, or why the source says nothing of this topic.
    pub code: SourceCode,
    /// Its id; zero if the source has none.
    pub id: TopicId,
    /// Whether the source calls it internal.
    pub is_internal: bool,
    /// Its partitions by number.
    pub partitions: BTreeMap<i32, SourcePartition>,
}

/// What the source says of itself and of topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceMetadata {
    /// The source's cluster id; absent before Kafka 0.10.1.
    pub cluster_id: Option<String>,
    /// Topics by name: those asked for, or all.
    pub topics: BTreeMap<String, SourceTopic>,
}

/// What to fetch of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// Which partition.
    pub partition: TopicPartition,
    /// The topic's id at the source; zero if it has none.
    pub topic_id: TopicId,
    /// From this offset on: our log end.
    pub fetch_offset: Offset,
    /// The source's leader epoch as we know it; checked by the source.
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the last batch that we have; the source checks that it has it too.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// At most so many bytes; one batch that is larger comes whole.
    pub partition_max_bytes: i32,
}

/// One fetch: several partitions of one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// In the order in which the source fills the response.
    pub partitions: Vec<FetchPartition>,
    /// How long the source may wait for data.
    pub max_wait_ms: i32,
    /// How many bytes end the waiting.
    pub min_bytes: i32,
    /// At most so many bytes over all partitions.
    pub max_bytes: i32,
}

/// What was fetched of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    /// Which partition.
    pub partition: TopicPartition,
    /// `None`, or why there is no data.
    pub code: SourceCode,
    /// The source's high watermark.
    pub high_watermark: Option<Offset>,
    /// The source's log start, if it says it (Fetch 5).
    pub log_start_offset: Option<Offset>,
    /// The source has another history than we: its newest common epoch and that one's end.
    pub diverging: Option<Diverging>,
    /// Record batches, the last one perhaps cut. Not looked at yet.
    pub records: Bytes,
}

/// Where the source's history leaves ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diverging {
    /// The largest epoch of the source that is not above our last fetched one.
    pub epoch: Option<LeaderEpoch>,
    /// Where that epoch ends at the source.
    pub end_offset: Option<Offset>,
}

/// Start and end of a partition at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// Its log start.
    pub start: Offset,
    /// Its high watermark: what a consumer calls its end.
    pub end: Offset,
}

/// A topic's setting that was set on the topic itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    /// Kafka's name of the setting.
    pub name: String,
    /// Its value; `None` for one that the source hides.
    pub value: Option<String>,
}

/// Settings of a topic that are never copied from the source.
///
/// Source: KIP-1279, default of `topic.properties.exclude`, and `mirror.name`.
pub const EXCLUDED_TOPIC_CONFIGS: [&str; 11] = [
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
    "min.insync.replicas",
    "mirror.name",
    "mirror.replication.throttled.replicas",
    "mirror.support.unclean.leader.election",
    "unclean.leader.election.enable",
];

/// The source cluster, as far as a mirror needs it.
///
/// Each call may take as long as the network does and may be dropped at any await.
pub trait Source: Send + Sync + 'static {
    /// What the source says of these topics; of all topics for `None`.
    ///
    /// Asks any broker that answers, bootstrap addresses included.
    ///
    /// # Errors
    /// [`SourceError`] when no broker gave a usable answer.
    fn metadata(
        &self,
        topics: Option<&[Arc<str>]>,
    ) -> impl Future<Output = Result<SourceMetadata, SourceError>> + Send;

    /// One fetch from one broker, as a consumer that reads uncommitted.
    ///
    /// # Errors
    /// [`SourceError`] when the broker gave no usable answer as a whole.
    fn fetch(
        &self,
        broker: BrokerId,
        request: FetchRequest,
    ) -> impl Future<Output = Result<Vec<FetchedPartition>, SourceError>> + Send;

    /// Start and end of a partition, from its leader.
    ///
    /// # Errors
    /// [`SourceError`]; [`SourceError::Refused`] with the partition's own code.
    fn range(
        &self,
        broker: BrokerId,
        partition: &TopicPartition,
        leader_epoch: Option<LeaderEpoch>,
    ) -> impl Future<Output = Result<SourceRange, SourceError>> + Send;

    /// The settings that were set on each of these topics themselves.
    ///
    /// # Errors
    /// [`SourceError`] when no broker gave a usable answer.
    fn topic_configs(
        &self,
        topics: &[Arc<str>],
    ) -> impl Future<Output = Result<BTreeMap<Arc<str>, Vec<TopicConfig>>, SourceError>> + Send;

    /// Closes the connection to this broker, so that the next call opens a new one. Does not wait
    /// for a call that is under way.
    fn reconnect(&self, broker: BrokerId) -> impl Future<Output = ()> + Send;

    /// Whether fetches say where the source's history leaves ours (Fetch 12, Kafka 2.7). Where
    /// they do not, a new leader may have another history and go on as if nothing was.
    fn tells_divergence(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_id_is_printed_as_kafka_prints_it() {
        // Checked with org.apache.kafka.common.Uuid: these are its METADATA_TOPIC_ID and ZERO_UUID.
        let mut one = [0; 16];
        one[15] = 1;
        assert_eq!(TopicId(one).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(TopicId::default().to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(TopicId([255; 16]).to_string(), "_____________________w");
    }

    #[test]
    fn the_excluded_settings_are_sorted_and_unique() {
        assert!(EXCLUDED_TOPIC_CONFIGS.windows(2).all(|w| w[0] < w[1]));
    }
}
