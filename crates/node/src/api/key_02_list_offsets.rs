//! ListOffsets: offsets for timestamps, and for the ends of a log.

use weir_format::TimestampMs;
use weir_log::{Isolation, OffsetSpec};
use weir_wire::ErrorCode;
use weir_wire::fetch::READ_COMMITTED;
use weir_wire::msg::list_offsets_request::ListOffsetsPartition;
use weir_wire::msg::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use weir_wire::msg::{ListOffsetsRequest, ListOffsetsResponse};

use super::{Call, TopicRef, served_partition};
use crate::error_code;
use crate::node::Node;

/// Oldest of Kafka's sentinels that this API version list knows.
const EARLIEST_PENDING_UPLOAD: i64 = -6;
/// First version that can say a leader epoch.
const WITH_EPOCH: i16 = 4;

pub(super) async fn handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let isolation =
        if request.isolation_level == READ_COMMITTED { Isolation::Committed } else { Isolation::Uncommitted };
    let mut response = ListOffsetsResponse::default();
    for topic in request.topics {
        let mut answer = ListOffsetsTopicResponse::default();
        for partition in &topic.partitions {
            let found = find(&call.node, topic.name.as_str(), partition, isolation).await;
            let mut found = found.unwrap_or_else(|code| {
                let mut failed = unknown(partition);
                failed.error_code = code.get();
                failed
            });
            if call.header.api_version < WITH_EPOCH {
                found.leader_epoch = -1;
            }
            answer.partitions.push(found);
        }
        answer.name = topic.name;
        response.topics.push(answer);
    }
    response
}

fn unknown(partition: &ListOffsetsPartition) -> ListOffsetsPartitionResponse {
    let mut answer = ListOffsetsPartitionResponse::default();
    answer.partition_index = partition.partition_index;
    (answer.timestamp, answer.offset, answer.leader_epoch) = (-1, -1, -1);
    answer
}

async fn find(
    node: &Node,
    topic: &str,
    partition: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
    let (index, epoch) = (partition.partition_index, partition.current_leader_epoch);
    let handle = served_partition(node, TopicRef::Name(topic), index, epoch)?;
    let mut answer = unknown(partition);
    let spec = match partition.timestamp {
        -1 => OffsetSpec::Latest,
        // −4, the earliest offset on local disks: nothing is tiered.
        -2 | -4 => OffsetSpec::Earliest,
        -3 => OffsetSpec::MaxTimestamp,
        // −5 and −6 ask for tiered data, of which there is none.
        EARLIEST_PENDING_UPLOAD..=-5 => return Ok(answer),
        other if other < EARLIEST_PENDING_UPLOAD => return Err(ErrorCode::UNSUPPORTED_VERSION),
        timestamp => OffsetSpec::Timestamp(TimestampMs::new(timestamp)),
    };
    let found = handle.offset_for(spec, isolation).await;
    if let Some(found) = found.map_err(|error| error_code::of_partition(&error))? {
        answer.offset = found.offset.get();
        answer.timestamp = found.timestamp.map_or(-1, |timestamp| timestamp.get());
        answer.leader_epoch = found.leader_epoch.map_or(-1, |epoch| epoch.get());
    }
    Ok(answer)
}
