//! ListOffsets: offsets for timestamps, and for the ends of a log.

use std::collections::BTreeSet;

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

// Kafka's sentinels in place of a timestamp: `ListOffsetsRequest`.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;
/// First version that can say a leader epoch.
const WITH_EPOCH: i16 = 4;

pub(super) async fn handle(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let isolation =
        if request.isolation_level == READ_COMMITTED { Isolation::Committed } else { Isolation::Uncommitted };
    let mut response = ListOffsetsResponse::default();
    let repeated = repeated(&request);
    for topic in request.topics {
        let mut answer = ListOffsetsTopicResponse::default();
        for partition in &topic.partitions {
            let version = call.header.api_version;
            // Kafka: each mention of a partition that is named twice is answered with this.
            let found = if repeated.contains(&(topic.name.to_string(), partition.partition_index)) {
                Err(ErrorCode::INVALID_REQUEST)
            } else {
                find(&call.node, version, topic.name.as_str(), partition, isolation).await
            };
            let mut found = found.unwrap_or_else(|code| {
                let mut failed = unknown(partition);
                failed.error_code = code.get();
                failed
            });
            if version < WITH_EPOCH {
                found.leader_epoch = -1;
            }
            answer.partitions.push(found);
        }
        answer.name = topic.name;
        response.topics.push(answer);
    }
    response
}

/// The partitions that a request names more than once.
///
/// Kafka: `ListOffsetsRequest.duplicatePartitions`.
fn repeated(request: &ListOffsetsRequest) -> BTreeSet<(String, i32)> {
    let (mut seen, mut repeated) = (BTreeSet::new(), BTreeSet::new());
    for topic in &request.topics {
        for partition in &topic.partitions {
            if !seen.insert((topic.name.as_str(), partition.partition_index)) {
                repeated.insert((topic.name.to_string(), partition.partition_index));
            }
        }
    }
    repeated
}

fn unknown(partition: &ListOffsetsPartition) -> ListOffsetsPartitionResponse {
    let mut answer = ListOffsetsPartitionResponse::default();
    answer.partition_index = partition.partition_index;
    (answer.timestamp, answer.offset, answer.leader_epoch) = (-1, -1, -1);
    answer
}

/// First version in which a client may send this in place of a timestamp; none for a number below
/// zero that no version gives a meaning.
///
/// Kafka: `ReplicaManager.timestampMinSupportedVersion`.
fn known_since(timestamp: i64) -> Option<i16> {
    match timestamp {
        LATEST | EARLIEST | 0.. => Some(1),
        MAX_TIMESTAMP => Some(7),
        EARLIEST_LOCAL => Some(8),
        LATEST_TIERED => Some(9),
        EARLIEST_PENDING_UPLOAD => Some(11),
        _ => None,
    }
}

async fn find(
    node: &Node,
    version: i16,
    topic: &str,
    partition: &ListOffsetsPartition,
    isolation: Isolation,
) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
    // Before the partition is looked for, as in Kafka.
    if known_since(partition.timestamp).is_none_or(|since| version < since) {
        return Err(ErrorCode::UNSUPPORTED_VERSION);
    }
    let (index, epoch) = (partition.partition_index, partition.current_leader_epoch);
    let handle = served_partition(node, TopicRef::Name(topic), index, epoch)?;
    let mut answer = unknown(partition);
    let spec = match partition.timestamp {
        LATEST => OffsetSpec::Latest,
        EARLIEST => OffsetSpec::Earliest,
        MAX_TIMESTAMP => OffsetSpec::MaxTimestamp,
        EARLIEST_LOCAL => OffsetSpec::EarliestLocal,
        LATEST_TIERED => OffsetSpec::LatestTiered,
        EARLIEST_PENDING_UPLOAD => OffsetSpec::EarliestPendingUpload,
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
