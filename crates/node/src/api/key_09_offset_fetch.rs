//! OffsetFetch: nothing was ever committed here, so every offset is −1, without an error.

use weir_wire::ErrorCode;
use weir_wire::msg::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use weir_wire::msg::{OffsetFetchRequest, OffsetFetchResponse};

use super::{Call, text};
use crate::uuid;

/// First version that names topics by id.
const BY_ID: i16 = 10;

pub(super) async fn handle(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let mut response = OffsetFetchResponse::default();
    for topic in request.topics.unwrap_or_default() {
        let mut answer = OffsetFetchResponseTopic::default();
        answer.name = topic.name;
        for index in topic.partition_indexes {
            let mut partition = OffsetFetchResponsePartition::default();
            partition.partition_index = index;
            (partition.committed_offset, partition.committed_leader_epoch) = (-1, -1);
            partition.metadata = Some(text(""));
            answer.partitions.push(partition);
        }
        response.topics.push(answer);
    }
    for group in request.groups {
        let mut answer = OffsetFetchResponseGroup::default();
        answer.group_id = group.group_id;
        for topic in group.topics.unwrap_or_default() {
            let mut found = OffsetFetchResponseTopics::default();
            let by_id = call.header.api_version >= BY_ID;
            let is_unknown =
                by_id && call.node.metadata().topic_by_id(uuid::from_wire(topic.topic_id)).is_none();
            let code = if is_unknown { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::NONE };
            found.name = topic.name;
            found.topic_id = topic.topic_id;
            for index in topic.partition_indexes {
                let mut partition = OffsetFetchResponsePartitions::default();
                partition.partition_index = index;
                (partition.committed_offset, partition.committed_leader_epoch) = (-1, -1);
                partition.metadata = Some(text(""));
                partition.error_code = code.get();
                found.partitions.push(partition);
            }
            answer.topics.push(found);
        }
        response.groups.push(answer);
    }
    response
}
