//! Metadata: brokers, topics, partitions and their leaders; may create topics.

use std::sync::Arc;

use weir_segment::layout::is_valid_topic_name;
use weir_wire::ErrorCode;
use weir_wire::msg::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use weir_wire::msg::{MetadataRequest, MetadataResponse};

use super::key_19_create_topics::check_name;
use super::{Call, text};
use crate::metadata::{Change, PartitionId, Topic};
use crate::node::{CreateTopicError, Node};
use crate::shard::{LogStatus, describe};
use crate::uuid;

/// First version that can say that no topic is to be created.
const CAN_FORBID_CREATION: i16 = 4;
/// First version whose answer may leave out a topic's name.
const NULLABLE_NAME: i16 = 12;
/// What a topic allows where nothing is forbidden: read, write, create, delete, alter, describe and
/// both for its configs. Kafka: `AclEntry.supportedOperations`.
pub(super) const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;
/// The same for the cluster.
pub(super) const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

/// Topics that belong to Kafka itself.
pub(super) fn is_internal(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

pub(super) async fn handle(call: Call, request: MetadataRequest) -> MetadataResponse {
    let node = &call.node;
    let version = call.header.api_version;
    let mut response = MetadataResponse::default();
    let address = node.advertised();
    let mut broker = MetadataResponseBroker::default();
    broker.node_id = node.metadata().node_id();
    broker.host = text(&address.host);
    broker.port = i32::from(address.port);
    response.brokers.push(broker);
    response.cluster_id = Some(text(node.metadata().cluster_id()));
    response.controller_id = node.metadata().node_id();
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    let may_create = node.config().auto_create_topics
        && (version < CAN_FORBID_CREATION || request.allow_auto_topic_creation);
    let wanted = match request.topics {
        // Version 0 has no null: an empty list asks for all.
        Some(topics) if topics.is_empty() && version == 0 => None,
        other => other,
    };
    match wanted {
        None => {
            for topic in node.metadata().topics() {
                response.topics.push(describe_topic(node, &topic));
            }
        }
        Some(topics) => {
            for wanted in topics {
                // Kafka: an id counts before the name, which Java's client then sends empty.
                let topic = match wanted.name {
                    Some(name) if wanted.topic_id.is_zero() => by_name(node, name.as_str(), may_create).await,
                    _ => by_id(node, wanted.topic_id, version),
                };
                response.topics.push(topic);
            }
        }
    }
    if request.include_topic_authorized_operations {
        for topic in &mut response.topics {
            topic.topic_authorized_operations = TOPIC_OPERATIONS;
        }
    }
    response
}

async fn by_name(node: &Node, name: &str, may_create: bool) -> MetadataResponseTopic {
    if let Some(topic) = node.metadata().topic(name) {
        return describe_topic(node, &topic);
    }
    let code = if !is_valid_topic_name(name) {
        ErrorCode::INVALID_TOPIC_EXCEPTION
    } else if !may_create || is_internal(name) {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    } else if let Err((code, why)) = check_name(node, name) {
        tracing::info!(topic = name, why, "topic not created");
        code
    } else {
        match create(node, name).await {
            Ok(()) | Err(CreateTopicError::Exists { .. }) => match node.metadata().topic(name) {
                Some(topic) => return describe_topic(node, &topic),
                None => ErrorCode::LEADER_NOT_AVAILABLE,
            },
            Err(error) => {
                tracing::warn!(topic = name, error = describe(&error), "topic not created");
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
            }
        }
    };
    let mut topic = MetadataResponseTopic::default();
    topic.error_code = code.get();
    topic.name = Some(text(name));
    topic.is_internal = is_internal(name);
    topic
}

fn by_id(node: &Node, id: weir_wire::Uuid, version: i16) -> MetadataResponseTopic {
    if let Some(topic) = node.metadata().topic_by_id(uuid::from_wire(id)) {
        return describe_topic(node, &topic);
    }
    let mut topic = MetadataResponseTopic::default();
    topic.error_code = ErrorCode::UNKNOWN_TOPIC_ID.get();
    topic.name = (version < NULLABLE_NAME).then(|| text(""));
    topic.topic_id = id;
    topic
}

async fn create(node: &Node, name: &str) -> Result<(), CreateTopicError> {
    let id = uuid::random().map_err(|error| CreateTopicError::Disk { reason: error.to_string() })?;
    let topic = Topic {
        name: name.to_owned(),
        id,
        partitions: node.config().num_partitions,
        configs: std::collections::BTreeMap::new(),
        mirror: None,
    };
    node.create_topic(topic, Change::default()).await
}

fn describe_topic(node: &Node, topic: &Arc<Topic>) -> MetadataResponseTopic {
    let mut answer = MetadataResponseTopic::default();
    answer.name = Some(text(&topic.name));
    answer.topic_id = uuid::to_wire(topic.id);
    answer.is_internal = is_internal(&topic.name);
    answer.partitions = topic.partition_ids().map(|id| describe_partition(node, id)).collect();
    answer
}

fn describe_partition(node: &Node, id: PartitionId) -> MetadataResponsePartition {
    let this = node.metadata().node_id();
    let mut answer = MetadataResponsePartition::default();
    answer.partition_index = id.partition;
    answer.replica_nodes = vec![this];
    let status = node.partition(id).map(|handle| handle.status());
    let served = matches!(
        status.as_ref().map(|status| &status.log),
        Some(LogStatus::Online(_) | LogStatus::WritesRefused { .. })
    );
    // Never lower than what a client was told before.
    answer.leader_epoch = match &status {
        Some(status) => status.leadership.leader_epoch.get(),
        None => node.metadata().leadership(id).leader_epoch.get(),
    };
    if served {
        answer.leader_id = this;
        answer.isr_nodes = vec![this];
    } else {
        // Retriable, and never UNKNOWN_TOPIC_OR_PARTITION for a topic that is here: clients forget
        // their counters at that.
        answer.error_code = ErrorCode::LEADER_NOT_AVAILABLE.get();
        answer.leader_id = -1;
        if !matches!(status.map(|status| status.log), Some(LogStatus::Loading)) {
            answer.offline_replicas = vec![this];
        }
    }
    answer
}
