//! Produce (API 0), versions 0 to 13, request and response.
//!
//! Versions 0 to 2 carry the old record formats: they are decoded so that they can be refused in
//! their own version, not stored. Version 13 names topics by id alone (KIP-516).

use bytes::Bytes;

use crate::api::ApiKey;
use crate::codec::{Reader, Writer};
use crate::error_code::ErrorCode;
use crate::fetch::{LeaderIdAndEpoch, NodeEndpoint};
use crate::frame::FrameBuilder;
use crate::message::{Message, Request, check_decode, check_encode};
use crate::{DecodeError, EncodeError, Limits, StrBytes, Uuid};

const FIRST_FLEXIBLE: i16 = 9;
const FIRST_WITH_TOPIC_ID: i16 = 13;

/// Records of some partitions, to be appended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceRequest {
    /// The transactional id (3+).
    pub transactional_id: Option<StrBytes>,
    /// What to wait for: 0 nothing (and no response), 1 the leader, −1 the in-sync replicas.
    pub acks: i16,
    /// How long to wait for the replicas.
    pub timeout_ms: i32,
    /// Topics in the client's order.
    pub topics: Vec<ProduceTopic>,
}

/// One topic of a [`ProduceRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceTopic {
    /// Its name (0 to 12), else empty.
    pub name: StrBytes,
    /// Its id (13+), else zero.
    pub topic_id: Uuid,
    /// Its partitions in the client's order.
    pub partitions: Vec<ProducePartition>,
}

/// One partition of a [`ProduceTopic`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducePartition {
    /// The partition.
    pub index: i32,
    /// Its record batches as the client sent them: a slice of the frame, unchecked.
    pub records: Option<Bytes>,
}

/// The answer to a [`ProduceRequest`]; none is sent for `acks` 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceResponse {
    /// Topics in the request's order.
    pub topics: Vec<ProduceTopicResponse>,
    /// How long the client is to be quiet (1+).
    pub throttle_time_ms: i32,
    /// Addresses of the leaders named in the partitions (10+, tagged; lost below).
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// One topic of a [`ProduceResponse`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProduceTopicResponse {
    /// Its name (0 to 12), else empty.
    pub name: StrBytes,
    /// Its id (13+), else zero.
    pub topic_id: Uuid,
    /// Its partitions.
    pub partitions: Vec<ProducePartitionResponse>,
}

/// One partition of a [`ProduceTopicResponse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducePartitionResponse {
    /// The partition.
    pub index: i32,
    /// What became of the records.
    pub error_code: ErrorCode,
    /// Offset of the first record, −1 on an error.
    pub base_offset: i64,
    /// When the broker appended, for topics with LogAppendTime, else −1 (2+).
    pub log_append_time_ms: i64,
    /// Log start offset, −1 when unknown (5+).
    pub log_start_offset: i64,
    /// Which batches were at fault (8+; lost below).
    pub record_errors: Vec<BatchIndexAndErrorMessage>,
    /// What to tell the user (8+; lost below).
    pub error_message: Option<StrBytes>,
    /// Where to go instead (10+, tagged; lost below).
    pub current_leader: Option<LeaderIdAndEpoch>,
}

impl Default for ProducePartitionResponse {
    fn default() -> Self {
        Self {
            index: 0,
            error_code: ErrorCode::NONE,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            error_message: None,
            current_leader: None,
        }
    }
}

/// One batch that was at fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchIndexAndErrorMessage {
    /// Its index in the record set.
    pub batch_index: i32,
    /// What is wrong with it.
    pub batch_index_error_message: Option<StrBytes>,
}

impl Message for ProduceRequest {
    const NAME: &'static str = "ProduceRequest";
    const VERSIONS: (i16, i16) = (0, 13);

    fn decode(body: Bytes, version: i16, limits: &Limits) -> Result<Self, DecodeError> {
        check_decode(Self::NAME, version, Self::VERSIONS)?;
        let mut r = Reader::new(body, version >= FIRST_FLEXIBLE, limits);
        let transactional_id = if version >= 3 { r.nullable_string("transactional id")? } else { None };
        let acks = r.i16("acks")?;
        let timeout_ms = r.i32("timeout")?;
        let topics = r.array("topics", 3, |r| {
            let (name, topic_id) = topic_name_or_id(r, version >= FIRST_WITH_TOPIC_ID)?;
            let partitions = r.array("partitions", 5, |r| {
                let index = r.i32("partition")?;
                let records = r.records("records")?;
                r.tagged(|_, _| Ok(false))?;
                Ok(ProducePartition { index, records })
            })?;
            r.tagged(|_, _| Ok(false))?;
            Ok(ProduceTopic { name, topic_id, partitions })
        })?;
        r.tagged(|_, _| Ok(false))?;
        r.finish()?;
        Ok(Self { transactional_id, acks, timeout_ms, topics })
    }

    fn encode(&self, version: i16, out: &mut FrameBuilder) -> Result<(), EncodeError> {
        check_encode(Self::NAME, version, Self::VERSIONS)?;
        let mut w = Writer::new(out, version >= FIRST_FLEXIBLE);
        if version >= 3 {
            w.nullable_string("transactional id", self.transactional_id.as_deref())?;
        } else if self.transactional_id.is_some() {
            let (message, field) = (Self::NAME, "transactional_id");
            return Err(EncodeError::NotRepresentable { message, field, version });
        }
        w.i16(self.acks);
        w.i32(self.timeout_ms);
        w.array("topics", &self.topics, |w, topic| {
            write_topic_name_or_id(w, version >= FIRST_WITH_TOPIC_ID, &topic.name, topic.topic_id)?;
            w.array("partitions", &topic.partitions, |w, partition| {
                w.i32(partition.index);
                w.records("records", partition.records.as_ref())?;
                w.no_tags()
            })?;
            w.no_tags()
        })?;
        w.no_tags()
    }
}

impl Request for ProduceRequest {
    const API_KEY: ApiKey = ApiKey::PRODUCE;
    type Response = ProduceResponse;
    const CLIENT_VERSIONS: (i16, i16) = (crate::api::FIRST_PRODUCE_VERSION_WITH_RECORD_BATCHES, 13);
}

impl Message for ProduceResponse {
    const NAME: &'static str = "ProduceResponse";
    const VERSIONS: (i16, i16) = (0, 13);

    fn decode(body: Bytes, version: i16, limits: &Limits) -> Result<Self, DecodeError> {
        check_decode(Self::NAME, version, Self::VERSIONS)?;
        let mut r = Reader::new(body, version >= FIRST_FLEXIBLE, limits);
        let topics = r.array("topics", 3, |r| {
            let (name, topic_id) = topic_name_or_id(r, version >= FIRST_WITH_TOPIC_ID)?;
            let partitions = r.array("partitions", 14, |r| decode_partition_response(r, version))?;
            r.tagged(|_, _| Ok(false))?;
            Ok(ProduceTopicResponse { name, topic_id, partitions })
        })?;
        let throttle_time_ms = if version >= 1 { r.i32("throttle time")? } else { 0 };
        let mut node_endpoints = Vec::new();
        r.tagged(|r, tag| {
            let known = tag == 0 && version >= 10;
            if known {
                node_endpoints = NodeEndpoint::decode_all(r)?;
            }
            Ok(known)
        })?;
        r.finish()?;
        Ok(Self { topics, throttle_time_ms, node_endpoints })
    }

    fn encode(&self, version: i16, out: &mut FrameBuilder) -> Result<(), EncodeError> {
        check_encode(Self::NAME, version, Self::VERSIONS)?;
        let mut w = Writer::new(out, version >= FIRST_FLEXIBLE);
        w.array("topics", &self.topics, |w, topic| {
            write_topic_name_or_id(w, version >= FIRST_WITH_TOPIC_ID, &topic.name, topic.topic_id)?;
            w.array("partitions", &topic.partitions, |w, partition| {
                encode_partition_response(w, version, partition)
            })?;
            w.no_tags()
        })?;
        if version >= 1 {
            w.i32(self.throttle_time_ms);
        }
        let mut tags = Vec::new();
        if version >= 10 && !self.node_endpoints.is_empty() {
            tags.push((0, NodeEndpoint::encode_all(&self.node_endpoints)?));
        }
        w.tagged(&tags)
    }
}

fn decode_partition_response(r: &mut Reader, version: i16) -> Result<ProducePartitionResponse, DecodeError> {
    let index = r.i32("partition")?;
    let error_code = ErrorCode::new(r.i16("error code")?);
    let base_offset = r.i64("base offset")?;
    let log_append_time_ms = if version >= 2 { r.i64("log append time")? } else { -1 };
    let log_start_offset = if version >= 5 { r.i64("log start offset")? } else { -1 };
    let mut record_errors = Vec::new();
    let mut error_message = None;
    if version >= 8 {
        record_errors = r.array("record errors", 5, |r| {
            let batch_index = r.i32("batch index")?;
            let batch_index_error_message = r.nullable_string("batch error message")?;
            r.tagged(|_, _| Ok(false))?;
            Ok(BatchIndexAndErrorMessage { batch_index, batch_index_error_message })
        })?;
        error_message = r.nullable_string("error message")?;
    }
    let mut current_leader = None;
    r.tagged(|r, tag| {
        let known = tag == 0 && version >= 10;
        if known {
            current_leader = LeaderIdAndEpoch::decode(r)?;
        }
        Ok(known)
    })?;
    Ok(ProducePartitionResponse {
        index,
        error_code,
        base_offset,
        log_append_time_ms,
        log_start_offset,
        record_errors,
        error_message,
        current_leader,
    })
}

fn encode_partition_response(
    w: &mut Writer<'_>,
    version: i16,
    partition: &ProducePartitionResponse,
) -> Result<(), EncodeError> {
    w.i32(partition.index);
    w.i16(partition.error_code.get());
    w.i64(partition.base_offset);
    if version >= 2 {
        w.i64(partition.log_append_time_ms);
    }
    if version >= 5 {
        w.i64(partition.log_start_offset);
    }
    if version >= 8 {
        w.array("record errors", &partition.record_errors, |w, error| {
            w.i32(error.batch_index);
            w.nullable_string("batch error message", error.batch_index_error_message.as_deref())?;
            w.no_tags()
        })?;
        w.nullable_string("error message", partition.error_message.as_deref())?;
    }
    let mut tags = Vec::new();
    if let Some(leader) = partition.current_leader.filter(|_| version >= 10) {
        tags.push((0, leader.encode()?));
    }
    w.tagged(&tags)
}

/// A topic is named by name up to some version of an API, and by id from the next one on.
pub(crate) fn topic_name_or_id(r: &mut Reader, by_id: bool) -> Result<(StrBytes, Uuid), DecodeError> {
    if by_id { Ok((StrBytes::default(), r.uuid("topic id")?)) } else { Ok((r.string("topic")?, Uuid::ZERO)) }
}

pub(crate) fn write_topic_name_or_id(
    w: &mut Writer<'_>,
    by_id: bool,
    name: &StrBytes,
    topic_id: Uuid,
) -> Result<(), EncodeError> {
    if by_id {
        w.uuid(topic_id);
        Ok(())
    } else {
        w.string("topic", name)
    }
}
