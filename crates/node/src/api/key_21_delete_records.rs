//! DeleteRecords: moves the log starts of partitions.
//!
//! What lies below a log start is not readable any more as soon as it is moved, and its segments are deleted soon after. It
//! is answered once the log starts are in `log-start-offset-checkpoint`, so that they do not move back. Where they cannot be
//! written down the answer is an error that clients retry: then it is not known whether a restart still has the records.

use weir_format::Offset;
use weir_wire::ErrorCode;
use weir_wire::msg::delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use weir_wire::msg::{DeleteRecordsRequest, DeleteRecordsResponse};

use super::{Call, TopicRef, find_partition};
use crate::error_code;
use crate::metadata::PartitionId;
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
    let mut moved = Vec::new();
    for topic in request.topics {
        let mut answer = DeleteRecordsTopicResult::default();
        for partition in &topic.partitions {
            let mut result = DeleteRecordsPartitionResult::default();
            result.partition_index = partition.partition_index;
            result.low_watermark = NO_LOW_WATERMARK;
            let index = partition.partition_index;
            match delete(&call.node, topic.name.as_str(), index, partition.offset).await {
                Ok((id, log_start_offset)) => {
                    result.low_watermark = log_start_offset.get();
                    moved.push((id, log_start_offset));
                }
                Err(code) => result.error_code = code.get(),
            }
            answer.partitions.push(result);
        }
        answer.name = topic.name;
        response.topics.push(answer);
    }
    let written = call.node.write_log_starts(&moved).await;
    let code = written.as_ref().map_or_else(error_code::of_partition, |_| ErrorCode::KAFKA_STORAGE_ERROR);
    let mut is_written = written.unwrap_or_default().into_iter();
    let results = response.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
    for result in results.filter(|result| result.error_code == ErrorCode::NONE.get()) {
        if !is_written.next().unwrap_or(false) {
            result.low_watermark = NO_LOW_WATERMARK;
            result.error_code = code.get();
        }
    }
    response
}

/// Kafka: `ReplicaManager.deleteRecordsOnLocalLog`, `Partition.deleteRecordsOnLeader`.
async fn delete(
    node: &Node,
    topic: &str,
    partition: i32,
    before: i64,
) -> Result<(PartitionId, Offset), ErrorCode> {
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
    Ok((handle.id(), view.log_start_offset))
}
