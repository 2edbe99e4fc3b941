//! Fields that a version cannot say: the table at `weir_wire::msg`, as a test.

use weir_wire::{Message, encode, msg};

/// `set` makes a message that is encoded in exactly the versions of `good`.
fn check<M: Message + Default>(good: std::ops::RangeInclusive<i16>, set: impl Fn(&mut M)) {
    let mut message = M::default();
    set(&mut message);
    for version in M::VERSIONS.0..=M::VERSIONS.1 {
        let result = encode(&message, version);
        assert_eq!(result.is_ok(), good.contains(&version), "{} {version}: {result:?}", M::NAME);
    }
}

#[test]
fn fields_that_are_not_ignorable_fail_in_the_versions_that_the_table_names() {
    check::<msg::ListOffsetsResponse>(4..=11, |response| {
        let mut topic = msg::list_offsets_response::ListOffsetsTopicResponse::default();
        let mut partition = msg::list_offsets_response::ListOffsetsPartitionResponse::default();
        partition.leader_epoch = 3;
        topic.partitions.push(partition);
        response.topics.push(topic);
    });
    check::<msg::MetadataResponse>(8..=10, |response| response.cluster_authorized_operations = 1);
    check::<msg::MetadataResponse>(8..=13, |response| {
        let mut topic = msg::metadata_response::MetadataResponseTopic::default();
        topic.name = Some("t".into());
        topic.topic_authorized_operations = 1;
        response.topics.push(topic);
    });
    check::<msg::MetadataResponse>(12..=13, |response| {
        let mut topic = msg::metadata_response::MetadataResponseTopic::default();
        topic.name = None;
        response.topics.push(topic);
    });
    check::<msg::OffsetFetchResponse>(1..=7, |response| {
        response.topics.push(msg::offset_fetch_response::OffsetFetchResponseTopic::default());
    });
    check::<msg::OffsetFetchResponse>(8..=10, |response| {
        response.groups.push(msg::offset_fetch_response::OffsetFetchResponseGroup::default());
    });
    check::<msg::FindCoordinatorResponse>(0..=3, |response| response.node_id = 1);
    check::<msg::FindCoordinatorResponse>(0..=3, |response| response.error_code = 15);
    check::<msg::FindCoordinatorResponse>(4..=6, |response| {
        response.coordinators.push(msg::find_coordinator_response::Coordinator::default());
    });
    check::<msg::DescribeClusterResponse>(1..=2, |response| response.endpoint_type = 2);
    check::<msg::DescribeClusterResponse>(2..=2, |response| {
        let mut broker = msg::describe_cluster_response::DescribeClusterBroker::default();
        broker.is_fenced = true;
        response.brokers.push(broker);
    });
}

#[test]
fn ignorable_fields_are_left_out_where_a_version_cannot_say_them() {
    check::<msg::MetadataResponse>(0..=13, |response| {
        response.cluster_id = Some("c".into());
        response.controller_id = 1;
        response.throttle_time_ms = 1;
        let mut topic = msg::metadata_response::MetadataResponseTopic::default();
        topic.name = Some("t".into());
        topic.topic_id = weir_wire::Uuid::from_bytes([1; 16]);
        topic.is_internal = true;
        let mut partition = msg::metadata_response::MetadataResponsePartition::default();
        partition.leader_epoch = 5;
        partition.offline_replicas = vec![1];
        topic.partitions.push(partition);
        response.topics.push(topic);
    });
    check::<msg::OffsetFetchResponse>(1..=10, |response| {
        response.throttle_time_ms = 1;
        response.error_code = 16;
    });
    check::<msg::CreateTopicsResponse>(2..=7, |response| {
        let mut topic = msg::create_topics_response::CreatableTopicResult::default();
        topic.name = "t".into();
        topic.topic_id = weir_wire::Uuid::from_bytes([1; 16]);
        topic.num_partitions = 4;
        topic.configs = Some(Vec::new());
        response.topics.push(topic);
    });
    check::<msg::ApiVersionsResponse>(0..=5, |response| response.throttle_time_ms = 1);
}
