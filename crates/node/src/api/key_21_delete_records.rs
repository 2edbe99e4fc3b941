//! DeleteRecords: moves the log starts of partitions.
//!
//! What lies below a log start is not readable any more as soon as it is moved, and its segments are deleted soon after. It
//! is answered once the log starts are in `log-start-offset-checkpoint`, so that they do not move back.

use weir_format::Offset;
use weir_wire::ErrorCode;
use weir_wire::msg::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use weir_wire::msg::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::{Call, TopicRef, find_partition};
use crate::error_code;
use crate::node::Node;
use crate::shard::describe;

/// Kafka: `DeleteRecordsRequest.HIGH_WATERMARK`.
const HIGH_WATERMARK: i64 = -1;
/// Kafka: `DeleteRecordsResponse.INVALID_LOW_WATERMARK`.
const NO_LOW_WATERMARK: i64 = -1;
/// Kafka: `Topic.INTERNAL_TOPICS`.
const INTERNAL_TOPICS: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

pub(super) async fn handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let mut response = DeleteRecordsResponse::default();
    let mut has_moved = false;
    for topic in request.topics {
        let mut answer = DeleteRecordsTopicResult::default();
        for partition in &topic.partitions {
            let mut result = DeleteRecordsPartitionResult::default();
            result.partition_index = partition.partition_index;
            result.low_watermark = NO_LOW_WATERMARK;
            let index = partition.partition_index;
            match delete(&call.node, topic.name.as_str(), index, partition.offset).await {
                Ok(log_start_offset) => {
                    result.low_watermark = log_start_offset.get();
                    has_moved = true;
                }
                Err(code) => result.error_code = code.get(),
            }
            answer.partitions.push(result);
        }
        answer.name = topic.name;
        response.topics.push(answer);
    }
    if has_moved && let Err(error) = call.node.write_checkpoints().await {
        tracing::warn!(error = describe(&error), "log starts moved, and not written down");
    }
    response
}

/// Kafka: `ReplicaManager.deleteRecordsOnLocalLog`, `Partition.deleteRecordsOnLeader`.
async fn delete(node: &Node, topic: &str, partition: i32, before: i64) -> Result<Offset, ErrorCode> {
    if INTERNAL_TOPICS.contains(&topic) {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    let handle = find_partition(node, TopicRef::Name(topic), partition)?;
    let configs = node.metadata().topic_by_id(handle.id().topic_id).map(|topic| topic.configs.clone());
    if node.log_config(&configs.unwrap_or_default()).is_compacted_only() {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    let before = match before {
        HIGH_WATERMARK => None,
        before => Some(Offset::new(before).ok_or(ErrorCode::OFFSET_OUT_OF_RANGE)?),
    };
    let view = handle.delete_records(before).await;
    let view = view.map_err(|error| {
        tracing::debug!(topic, partition, error = describe(&error), "records not deleted");
        error_code::of_partition(&error)
    })?;
    Ok(view.log_start_offset)
}
