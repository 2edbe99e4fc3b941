//! OffsetForLeaderEpoch: where an epoch ended, by which clients find out what was cut.

use weir_format::LeaderEpoch;
use weir_wire::ErrorCode;
use weir_wire::msg::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use weir_wire::msg::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};
use weir_wire::msg::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::{Call, TopicRef, served_partition};
use crate::error_code;
use crate::node::Node;

pub(super) async fn handle(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse {
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in request.topics {
        let mut answer = OffsetForLeaderTopicResult::default();
        for partition in &topic.partitions {
            let mut end = EpochEndOffset::default();
            end.partition = partition.partition;
            (end.leader_epoch, end.end_offset) = (-1, -1);
            match find(&call.node, topic.topic.as_str(), partition).await {
                Ok(Some((epoch, offset))) => (end.leader_epoch, end.end_offset) = (epoch, offset),
                Ok(None) => {}
                Err(code) => end.error_code = code.get(),
            }
            answer.partitions.push(end);
        }
        answer.topic = topic.topic;
        response.topics.push(answer);
    }
    response
}

async fn find(
    node: &Node,
    topic: &str,
    partition: &OffsetForLeaderPartition,
) -> Result<Option<(i32, i64)>, ErrorCode> {
    let (index, current) = (partition.partition, partition.current_leader_epoch);
    let handle = served_partition(node, TopicRef::Name(topic), index, current)?;
    let Some(epoch) = LeaderEpoch::new(partition.leader_epoch) else { return Ok(None) };
    // Before the log is looked at: a stop that ends meanwhile makes what is there final.
    let is_mirrored = handle.status().leadership.read_only.is_some();
    let found = handle.end_offset_for_epoch(epoch).await;
    match found.map_err(|error| error_code::of_partition(&error))? {
        Some((epoch, end)) => Ok(Some((epoch.get(), end.get()))),
        // Law O6: an epoch newer than all that were mirrored has not come yet, and may. "Not known" would make the client
        // think that what it has read was cut.
        None if is_mirrored => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        None => Ok(None),
    }
}
