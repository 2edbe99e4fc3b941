//! DescribeClusterMirrors (99 in KIP-1279).

use std::collections::BTreeMap;

use weir_format::{LeaderEpoch, Offset};
use weir_mirror::runner::PartitionStatus;
use weir_wire::kip1279::{
    DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse, DescribedMirror, DescribedMirrorPartition,
    DescribedMirrorTopic,
};

use super::{Call, text};
use crate::metadata::PartitionId;
use crate::mirror_host::MirrorSummary;
use crate::node::Node;

pub(super) async fn handle(
    call: Call,
    request: DescribeClusterMirrorsRequest,
) -> DescribeClusterMirrorsResponse {
    let names: Vec<String> = match request.mirror_names {
        Some(names) => names.iter().map(|name| name.to_string()).collect(),
        None => call.mirrors.list().into_iter().map(|mirror| mirror.name).collect(),
    };
    let mut response = DescribeClusterMirrorsResponse::default();
    for name in names {
        let described = match call.mirrors.describe(&name) {
            Ok((summary, partitions)) => {
                let asked = request.cluster_id.as_deref();
                if asked.is_some() && asked != summary.source_cluster_id.as_deref() {
                    continue;
                }
                describe(&call.node, &summary, partitions)
            }
            Err(error) => DescribedMirror {
                error_code: error.code(),
                error_message: Some(text(&error.to_string())),
                mirror_name: text(&name),
                ..DescribedMirror::default()
            },
        };
        response.mirrors.push(described);
    }
    response
}

fn describe(node: &Node, summary: &MirrorSummary, partitions: Vec<PartitionStatus>) -> DescribedMirror {
    let mut topics: BTreeMap<String, Vec<DescribedMirrorPartition>> =
        summary.topics.keys().map(|topic| (topic.clone(), Vec::new())).collect();
    for status in partitions {
        let topic = status.partition.topic.to_string();
        topics.entry(topic).or_default().push(partition(node, &status));
    }
    let topics = topics
        .into_iter()
        .map(|(topic, partitions)| DescribedMirrorTopic { topic_name: text(&topic), partitions });
    DescribedMirror {
        mirror_name: text(&summary.name),
        source_bootstrap: Some(text(&summary.source_bootstrap)),
        source_cluster_id: summary.source_cluster_id.as_deref().map(text),
        topics: topics.collect(),
        ..DescribedMirror::default()
    }
}

/// What is durable here: what a client that is switched over would find.
fn durable_end(node: &Node, status: &PartitionStatus) -> Option<Offset> {
    let topic = node.metadata().topic(&status.partition.topic)?;
    let id = PartitionId { topic_id: topic.id, partition: status.partition.partition };
    Some(node.partition(id)?.view().ok()?.high_watermark)
}

fn partition(node: &Node, status: &PartitionStatus) -> DescribedMirrorPartition {
    let position = status.position;
    let offset = |offset: Option<Offset>| offset.map_or(-1, Offset::get);
    let epoch = |epoch: Option<LeaderEpoch>| epoch.map_or(-1, LeaderEpoch::get);
    DescribedMirrorPartition {
        partition_index: status.partition.partition,
        state_value: text(status.state.name()),
        error_message: status.attention.as_deref().map(text),
        retry_attempt: i16::try_from(status.attempt).unwrap_or(i16::MAX),
        source_offset: offset(status.source_offset),
        destination_offset: offset(durable_end(node, status)),
        last_mirror_epoch: epoch(position.and_then(|position| position.last_mirror_epoch)),
        last_mirror_offset: offset(position.map(|position| position.last_mirror_offset)),
        failure: status.failure.as_deref().map(text),
        last_fetch_age_ms: status
            .last_fetch_age
            .map_or(-1, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX)),
        barrier_offset: offset(status.barrier_offset),
        leader_epoch: epoch(status.leader_epoch),
    }
}
