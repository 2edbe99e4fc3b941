//! Fetch (API 1), versions 4 to 18, request and response.
//!
//! The response is written as one head with the record sets beside it, each the caller's own
//! [`Bytes`]; read, each is a slice of the frame.

use bytes::Bytes;

use crate::api::ApiKey;
use crate::codec::{Reader, Writer, tag_value};
use crate::error_code::ErrorCode;
use crate::frame::FrameBuilder;
use crate::message::{Message, Request, check_decode, check_encode};
use crate::produce::{topic_name_or_id, write_topic_name_or_id};
use crate::{DecodeError, EncodeError, Limits, StrBytes, Uuid};

const FIRST_FLEXIBLE: i16 = 12;
const FIRST_WITH_TOPIC_ID: i16 = 13;

/// `session_epoch` of a request outside any session, and of the one that closes a session.
pub const FINAL_SESSION_EPOCH: i32 = -1;
/// `session_epoch` of the request that asks for a new session.
pub const INITIAL_SESSION_EPOCH: i32 = 0;
/// `session_id` of no session.
pub const NO_SESSION_ID: i32 = 0;
/// `replica_id` of a consumer, and of a mirror.
pub const CONSUMER_REPLICA_ID: i32 = -1;
/// `current_leader_epoch` and `last_fetched_epoch` when unknown.
pub const NO_EPOCH: i32 = -1;
/// `isolation_level`: up to the high watermark.
pub const READ_UNCOMMITTED: i8 = 0;
/// `isolation_level`: up to the last stable offset, with the aborted transactions listed.
pub const READ_COMMITTED: i8 = 1;

/// Asks for records of some partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// The cluster that a KRaft voter means (12+, tagged).
    pub cluster_id: Option<StrBytes>,
    /// Who asks: a broker, or −1 for a consumer. Below 15 a field, from 15 on part of the tagged
    /// replica state (KIP-903); kept here for both.
    pub replica_id: i32,
    /// The asking broker's epoch, −1 when unknown (15+, tagged).
    pub replica_epoch: i64,
    /// How long to wait for `min_bytes`.
    pub max_wait_ms: i32,
    /// How much to wait for.
    pub min_bytes: i32,
    /// How much to answer at most; one whole batch is answered even above it.
    pub max_bytes: i32,
    /// [`READ_UNCOMMITTED`] or [`READ_COMMITTED`].
    pub isolation_level: i8,
    /// The fetch session (7+).
    pub session_id: i32,
    /// Where in the session this request stands (7+).
    pub session_epoch: i32,
    /// What to fetch; within a session, what changed.
    pub topics: Vec<FetchTopic>,
    /// What leaves the session (7+).
    pub forgotten_topics: Vec<ForgottenTopic>,
    /// The consumer's rack (11+; lost below).
    pub rack_id: StrBytes,
}

impl Default for FetchRequest {
    fn default() -> Self {
        Self {
            cluster_id: None,
            replica_id: CONSUMER_REPLICA_ID,
            replica_epoch: -1,
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: i32::MAX,
            isolation_level: READ_UNCOMMITTED,
            session_id: NO_SESSION_ID,
            session_epoch: FINAL_SESSION_EPOCH,
            topics: Vec::new(),
            forgotten_topics: Vec::new(),
            rack_id: StrBytes::default(),
        }
    }
}

/// One topic of a [`FetchRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchTopic {
    /// Its name (4 to 12), else empty.
    pub name: StrBytes,
    /// Its id (13+), else zero.
    pub topic_id: Uuid,
    /// Its partitions.
    pub partitions: Vec<FetchPartition>,
}

/// One partition of a [`FetchTopic`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// The partition.
    pub partition: i32,
    /// The leader epoch as the client knows it, [`NO_EPOCH`] when it does not (9+; lost below).
    pub current_leader_epoch: i32,
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Leader epoch of the last record the client has, [`NO_EPOCH`] when unknown (12+).
    pub last_fetched_epoch: i32,
    /// Log start offset of a follower, else −1 (5+; lost below).
    pub log_start_offset: i64,
    /// How much of this partition to answer at most; one whole batch is answered even above it.
    pub partition_max_bytes: i32,
    /// Directory of a KRaft voter, else zero (17+, tagged; lost below).
    pub replica_directory_id: Uuid,
    /// High watermark that a follower knows, `i64::MAX` when not said (18+, tagged; lost below).
    pub high_watermark: i64,
}

impl Default for FetchPartition {
    fn default() -> Self {
        Self {
            partition: 0,
            current_leader_epoch: NO_EPOCH,
            fetch_offset: 0,
            last_fetched_epoch: NO_EPOCH,
            log_start_offset: -1,
            partition_max_bytes: 0,
            replica_directory_id: Uuid::ZERO,
            high_watermark: i64::MAX,
        }
    }
}

/// Partitions that leave a fetch session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgottenTopic {
    /// The topic's name (7 to 12), else empty.
    pub name: StrBytes,
    /// The topic's id (13+), else zero.
    pub topic_id: Uuid,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

/// The answer to a [`FetchRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchResponse {
    /// How long the client is to be quiet.
    pub throttle_time_ms: i32,
    /// What is wrong with the request as a whole, above all its session (7+; lost below).
    pub error_code: ErrorCode,
    /// The session, [`NO_SESSION_ID`] for none (7+).
    pub session_id: i32,
    /// Topics with an answer.
    pub topics: Vec<FetchTopicResponse>,
    /// Addresses of the leaders named in the partitions (16+, tagged; lost below).
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// One topic of a [`FetchResponse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchTopicResponse {
    /// Its name (4 to 12), else empty.
    pub name: StrBytes,
    /// Its id (13+), else zero.
    pub topic_id: Uuid,
    /// Its partitions.
    pub partitions: Vec<FetchPartitionResponse>,
}

/// One partition of a [`FetchTopicResponse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchPartitionResponse {
    /// The partition.
    pub partition: i32,
    /// What is wrong with this partition, if anything.
    pub error_code: ErrorCode,
    /// High watermark, −1 on an error.
    pub high_watermark: i64,
    /// Last stable offset, −1 when unknown.
    pub last_stable_offset: i64,
    /// Log start offset, −1 when unknown (5+; lost below).
    pub log_start_offset: i64,
    /// Where the client's log left the leader's (12+, tagged; lost below): it must truncate.
    pub diverging_epoch: Option<EpochEndOffset>,
    /// Where to go instead (12+, tagged; lost below).
    pub current_leader: Option<LeaderIdAndEpoch>,
    /// What a KRaft follower must load first (12+, tagged; lost below).
    pub snapshot_id: Option<SnapshotId>,
    /// Transactions that were aborted in the range of the records; `None` for read_uncommitted.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// Replica to read from instead, −1 for none (11+; lost below).
    pub preferred_read_replica: i32,
    /// Record batches: whole but perhaps for the last, as they lie in the log. Kafka sends an empty
    /// set, never null, where there are none, errors included; so does the default.
    pub records: Option<Bytes>,
}

impl Default for FetchPartitionResponse {
    fn default() -> Self {
        Self {
            partition: 0,
            error_code: ErrorCode::NONE,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging_epoch: None,
            current_leader: None,
            snapshot_id: None,
            aborted_transactions: None,
            preferred_read_replica: -1,
            records: Some(Bytes::new()),
        }
    }
}

/// One aborted transaction in the range of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Its producer.
    pub producer_id: i64,
    /// Its first offset.
    pub first_offset: i64,
}

/// The end of a leader epoch: first offset that does not belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEndOffset {
    /// The epoch, −1 when unknown.
    pub epoch: i32,
    /// Its end, −1 when unknown.
    pub end_offset: i64,
}

/// The leader of a partition and its epoch (KIP-951).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderIdAndEpoch {
    /// The leader, −1 when unknown.
    pub leader_id: i32,
    /// Its epoch, −1 when unknown.
    pub leader_epoch: i32,
}

/// A snapshot of a KRaft log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    /// Its end offset.
    pub end_offset: i64,
    /// Its epoch.
    pub epoch: i32,
}

/// Where a broker is reached (KIP-951).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// The broker.
    pub node_id: i32,
    /// Its host.
    pub host: StrBytes,
    /// Its port.
    pub port: i32,
    /// Its rack.
    pub rack: Option<StrBytes>,
}

impl NodeEndpoint {
    pub(crate) fn decode_all(r: &mut Reader) -> Result<Vec<Self>, DecodeError> {
        r.array("node endpoints", 11, |r| {
            let node_id = r.i32("node id")?;
            let host = r.string("host")?;
            let port = r.i32("port")?;
            let rack = r.nullable_string("rack")?;
            r.tagged(|_, _| Ok(false))?;
            Ok(Self { node_id, host, port, rack })
        })
    }

    pub(crate) fn encode_all(endpoints: &[Self]) -> Result<Vec<u8>, EncodeError> {
        tag_value(|w| {
            w.array("node endpoints", endpoints, |w, endpoint| {
                w.i32(endpoint.node_id);
                w.string("host", &endpoint.host)?;
                w.i32(endpoint.port);
                w.nullable_string("rack", endpoint.rack.as_deref())?;
                w.no_tags()
            })
        })
    }
}

impl LeaderIdAndEpoch {
    const UNKNOWN: Self = Self { leader_id: -1, leader_epoch: -1 };

    /// `None` when both are unknown, which is how a client reads an absent field.
    pub(crate) fn decode(r: &mut Reader) -> Result<Option<Self>, DecodeError> {
        let leader = Self { leader_id: r.i32("leader id")?, leader_epoch: r.i32("leader epoch")? };
        r.tagged(|_, _| Ok(false))?;
        Ok(Some(leader).filter(|leader| *leader != Self::UNKNOWN))
    }

    pub(crate) fn encode(self) -> Result<Vec<u8>, EncodeError> {
        tag_value(|w| {
            w.i32(self.leader_id);
            w.i32(self.leader_epoch);
            w.no_tags()
        })
    }
}

impl Message for FetchRequest {
    const NAME: &'static str = "FetchRequest";
    const VERSIONS: (i16, i16) = (4, 18);

    fn decode(body: Bytes, version: i16, limits: &Limits) -> Result<Self, DecodeError> {
        check_decode(Self::NAME, version, Self::VERSIONS)?;
        let mut r = Reader::new(body, version >= FIRST_FLEXIBLE, limits);
        let mut request = Self::default();
        if version <= 14 {
            request.replica_id = r.i32("replica id")?;
        }
        request.max_wait_ms = r.i32("max wait")?;
        request.min_bytes = r.i32("min bytes")?;
        request.max_bytes = r.i32("max bytes")?;
        request.isolation_level = r.i8("isolation level")?;
        if version >= 7 {
            request.session_id = r.i32("session id")?;
            request.session_epoch = r.i32("session epoch")?;
        }
        let by_id = version >= FIRST_WITH_TOPIC_ID;
        request.topics = r.array("topics", 3, |r| {
            let (name, topic_id) = topic_name_or_id(r, by_id)?;
            let partitions = r.array("partitions", 16, |r| decode_partition(r, version))?;
            r.tagged(|_, _| Ok(false))?;
            Ok(FetchTopic { name, topic_id, partitions })
        })?;
        if version >= 7 {
            request.forgotten_topics = r.array("forgotten topics", 3, |r| {
                let (name, topic_id) = topic_name_or_id(r, by_id)?;
                let partitions = r.array("forgotten partitions", 4, |r| r.i32("partition"))?;
                r.tagged(|_, _| Ok(false))?;
                Ok(ForgottenTopic { name, topic_id, partitions })
            })?;
        }
        if version >= 11 {
            request.rack_id = r.string("rack id")?;
        }
        r.tagged(|r, tag| match tag {
            0 => {
                request.cluster_id = r.nullable_string("cluster id")?;
                Ok(true)
            }
            1 if version >= 15 => {
                request.replica_id = r.i32("replica id")?;
                request.replica_epoch = r.i64("replica epoch")?;
                r.tagged(|_, _| Ok(false))?;
                Ok(true)
            }
            _ => Ok(false),
        })?;
        r.finish()?;
        Ok(request)
    }

    fn encode(&self, version: i16, out: &mut FrameBuilder) -> Result<(), EncodeError> {
        check_encode(Self::NAME, version, Self::VERSIONS)?;
        if version < 7 && !self.forgotten_topics.is_empty() {
            let (message, field) = (Self::NAME, "forgotten_topics");
            return Err(EncodeError::NotRepresentable { message, field, version });
        }
        let mut w = Writer::new(out, version >= FIRST_FLEXIBLE);
        if version <= 14 {
            w.i32(self.replica_id);
        }
        w.i32(self.max_wait_ms);
        w.i32(self.min_bytes);
        w.i32(self.max_bytes);
        w.i8(self.isolation_level);
        if version >= 7 {
            w.i32(self.session_id);
            w.i32(self.session_epoch);
        }
        let by_id = version >= FIRST_WITH_TOPIC_ID;
        w.array("topics", &self.topics, |w, topic| {
            write_topic_name_or_id(w, by_id, &topic.name, topic.topic_id)?;
            w.array("partitions", &topic.partitions, |w, partition| encode_partition(w, version, partition))?;
            w.no_tags()
        })?;
        if version >= 7 {
            w.array("forgotten topics", &self.forgotten_topics, |w, topic| {
                write_topic_name_or_id(w, by_id, &topic.name, topic.topic_id)?;
                w.array("forgotten partitions", &topic.partitions, |w, partition| {
                    w.i32(*partition);
                    Ok(())
                })?;
                w.no_tags()
            })?;
        }
        if version >= 11 {
            w.string("rack id", &self.rack_id)?;
        }
        let mut tags = Vec::new();
        if let Some(cluster_id) = &self.cluster_id {
            tags.push((0, tag_value(|w| w.string("cluster id", cluster_id))?));
        }
        if version >= 15 && (self.replica_id, self.replica_epoch) != (CONSUMER_REPLICA_ID, -1) {
            let value = tag_value(|w| {
                w.i32(self.replica_id);
                w.i64(self.replica_epoch);
                w.no_tags()
            })?;
            tags.push((1, value));
        }
        w.tagged(&tags)
    }
}

impl Request for FetchRequest {
    const API_KEY: ApiKey = ApiKey::FETCH;
    type Response = FetchResponse;
}

fn decode_partition(r: &mut Reader, version: i16) -> Result<FetchPartition, DecodeError> {
    let mut partition = FetchPartition { partition: r.i32("partition")?, ..FetchPartition::default() };
    if version >= 9 {
        partition.current_leader_epoch = r.i32("current leader epoch")?;
    }
    partition.fetch_offset = r.i64("fetch offset")?;
    if version >= 12 {
        partition.last_fetched_epoch = r.i32("last fetched epoch")?;
    }
    if version >= 5 {
        partition.log_start_offset = r.i64("log start offset")?;
    }
    partition.partition_max_bytes = r.i32("partition max bytes")?;
    r.tagged(|r, tag| match tag {
        0 if version >= 17 => {
            partition.replica_directory_id = r.uuid("replica directory id")?;
            Ok(true)
        }
        1 if version >= 18 => {
            partition.high_watermark = r.i64("high watermark")?;
            Ok(true)
        }
        _ => Ok(false),
    })?;
    Ok(partition)
}

fn encode_partition(w: &mut Writer<'_>, version: i16, partition: &FetchPartition) -> Result<(), EncodeError> {
    w.i32(partition.partition);
    if version >= 9 {
        w.i32(partition.current_leader_epoch);
    }
    w.i64(partition.fetch_offset);
    if version >= 12 {
        w.i32(partition.last_fetched_epoch);
    }
    if version >= 5 {
        w.i64(partition.log_start_offset);
    }
    w.i32(partition.partition_max_bytes);
    let mut tags = Vec::new();
    if version >= 17 && !partition.replica_directory_id.is_zero() {
        tags.push((0, partition.replica_directory_id.as_bytes().to_vec()));
    }
    if version >= 18 && partition.high_watermark != i64::MAX {
        tags.push((1, partition.high_watermark.to_be_bytes().to_vec()));
    }
    w.tagged(&tags)
}

impl Message for FetchResponse {
    const NAME: &'static str = "FetchResponse";
    const VERSIONS: (i16, i16) = (4, 18);

    fn decode(body: Bytes, version: i16, limits: &Limits) -> Result<Self, DecodeError> {
        check_decode(Self::NAME, version, Self::VERSIONS)?;
        let mut r = Reader::new(body, version >= FIRST_FLEXIBLE, limits);
        let mut response = Self { throttle_time_ms: r.i32("throttle time")?, ..Self::default() };
        if version >= 7 {
            response.error_code = ErrorCode::new(r.i16("error code")?);
            response.session_id = r.i32("session id")?;
        }
        response.topics = r.array("topics", 3, |r| {
            let (name, topic_id) = topic_name_or_id(r, version >= FIRST_WITH_TOPIC_ID)?;
            let partitions = r.array("partitions", 24, |r| decode_partition_response(r, version))?;
            r.tagged(|_, _| Ok(false))?;
            Ok(FetchTopicResponse { name, topic_id, partitions })
        })?;
        r.tagged(|r, tag| {
            let known = tag == 0 && version >= 16;
            if known {
                response.node_endpoints = NodeEndpoint::decode_all(r)?;
            }
            Ok(known)
        })?;
        r.finish()?;
        Ok(response)
    }

    fn encode(&self, version: i16, out: &mut FrameBuilder) -> Result<(), EncodeError> {
        check_encode(Self::NAME, version, Self::VERSIONS)?;
        if version < 7 && self.session_id != NO_SESSION_ID {
            let (message, field) = (Self::NAME, "session_id");
            return Err(EncodeError::NotRepresentable { message, field, version });
        }
        let mut w = Writer::new(out, version >= FIRST_FLEXIBLE);
        w.i32(self.throttle_time_ms);
        if version >= 7 {
            w.i16(self.error_code.get());
            w.i32(self.session_id);
        }
        w.array("topics", &self.topics, |w, topic| {
            write_topic_name_or_id(w, version >= FIRST_WITH_TOPIC_ID, &topic.name, topic.topic_id)?;
            w.array("partitions", &topic.partitions, |w, partition| {
                encode_partition_response(w, version, partition)
            })?;
            w.no_tags()
        })?;
        let mut tags = Vec::new();
        if version >= 16 && !self.node_endpoints.is_empty() {
            tags.push((0, NodeEndpoint::encode_all(&self.node_endpoints)?));
        }
        w.tagged(&tags)
    }
}

fn decode_partition_response(r: &mut Reader, version: i16) -> Result<FetchPartitionResponse, DecodeError> {
    let mut partition = FetchPartitionResponse {
        partition: r.i32("partition")?,
        error_code: ErrorCode::new(r.i16("error code")?),
        high_watermark: r.i64("high watermark")?,
        last_stable_offset: r.i64("last stable offset")?,
        ..FetchPartitionResponse::default()
    };
    if version >= 5 {
        partition.log_start_offset = r.i64("log start offset")?;
    }
    partition.aborted_transactions = r.nullable_array("aborted transactions", 16, |r| {
        let producer_id = r.i64("producer id")?;
        let first_offset = r.i64("first offset")?;
        r.tagged(|_, _| Ok(false))?;
        Ok(AbortedTransaction { producer_id, first_offset })
    })?;
    if version >= 11 {
        partition.preferred_read_replica = r.i32("preferred read replica")?;
    }
    partition.records = r.records("records")?;
    r.tagged(|r, tag| {
        match tag {
            0 => {
                let value =
                    EpochEndOffset { epoch: r.i32("diverging epoch")?, end_offset: r.i64("end offset")? };
                let unknown = EpochEndOffset { epoch: -1, end_offset: -1 };
                partition.diverging_epoch = Some(value).filter(|value| *value != unknown);
                r.tagged(|_, _| Ok(false))?;
            }
            1 => partition.current_leader = LeaderIdAndEpoch::decode(r)?,
            2 => {
                let value = SnapshotId { end_offset: r.i64("end offset")?, epoch: r.i32("epoch")? };
                let unknown = SnapshotId { end_offset: -1, epoch: -1 };
                partition.snapshot_id = Some(value).filter(|value| *value != unknown);
                r.tagged(|_, _| Ok(false))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(partition)
}

fn encode_partition_response(
    w: &mut Writer<'_>,
    version: i16,
    partition: &FetchPartitionResponse,
) -> Result<(), EncodeError> {
    w.i32(partition.partition);
    w.i16(partition.error_code.get());
    w.i64(partition.high_watermark);
    w.i64(partition.last_stable_offset);
    if version >= 5 {
        w.i64(partition.log_start_offset);
    }
    w.nullable_array("aborted transactions", partition.aborted_transactions.as_deref(), |w, aborted| {
        w.i64(aborted.producer_id);
        w.i64(aborted.first_offset);
        w.no_tags()
    })?;
    if version >= 11 {
        w.i32(partition.preferred_read_replica);
    }
    w.records("records", partition.records.as_ref())?;
    if version < FIRST_FLEXIBLE {
        return Ok(());
    }
    let mut tags = Vec::new();
    if let Some(diverging) = partition.diverging_epoch {
        let value = tag_value(|w| {
            w.i32(diverging.epoch);
            w.i64(diverging.end_offset);
            w.no_tags()
        })?;
        tags.push((0, value));
    }
    if let Some(leader) = partition.current_leader {
        tags.push((1, leader.encode()?));
    }
    if let Some(snapshot) = partition.snapshot_id {
        let value = tag_value(|w| {
            w.i64(snapshot.end_offset);
            w.i32(snapshot.epoch);
            w.no_tags()
        })?;
        tags.push((2, value));
    }
    w.tagged(&tags)
}
