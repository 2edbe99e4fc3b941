//! What is refused: with which code, and in every version that can be asked for it.

use bytes::BytesMut;
use weir_format::{BatchBuilder, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use weir_wire::api::{FIRST_PRODUCE_VERSION_WITH_RECORD_BATCHES, listed};
use weir_wire::msg::create_topics_request::CreatableReplicaAssignment;
use weir_wire::msg::describe_configs_request::DescribeConfigsResource;
use weir_wire::msg::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use weir_wire::msg::metadata_request::MetadataRequestTopic;
use weir_wire::msg::offset_fetch_request::OffsetFetchRequestGroup;
use weir_wire::msg::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use weir_wire::msg::{
    ApiVersionsRequest, CreateTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    FindCoordinatorRequest, InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
};
use weir_wire::{ApiKey, ErrorCode, StrBytes, Uuid};

use crate::delete_records::delete_records;
use crate::support::{Client, NOW, TestNode, batch, creatable, fetch_request, idempotent, produce_request};

const NOBODY: Uuid = Uuid::from_bytes([9; 16]);

#[tokio::test]
async fn every_refusal_can_be_said_in_every_version() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start_with(&dir.path().join("data"), &["message.max.bytes=2000"]).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    let topic_id = weir_node::uuid::to_wire(node.server.node().metadata().topic("t").unwrap().id);
    for range in listed(None) {
        for version in range.min..=range.max {
            refuse(&mut client, range.api_key, version, topic_id).await;
        }
    }
}

/// Asks for what is not to be had; an answer that its version cannot say would close the connection.
async fn refuse(client: &mut Client, api: ApiKey, version: i16, topic_id: Uuid) {
    match api {
        ApiKey::PRODUCE if version < FIRST_PRODUCE_VERSION_WITH_RECORD_BATCHES => {}
        ApiKey::PRODUCE => refuse_produce(client, version, topic_id).await,
        ApiKey::FETCH => refuse_fetch(client, version, topic_id).await,
        ApiKey::LIST_OFFSETS => {
            // Which of Kafka's sentinels each version knows.
            for (timestamp, since) in [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, i16::MAX)]
            {
                let mut request = list_offsets("t", timestamp);
                request.isolation_level = i8::from(version >= 2);
                let response = client.call_at(&request, version).await;
                let found = &response.topics[0].partitions[0];
                let code = if version >= since { ErrorCode::NONE } else { ErrorCode::UNSUPPORTED_VERSION };
                assert_eq!(ErrorCode::new(found.error_code), code, "{version} {timestamp}");
                assert!(version >= since || (found.offset, found.timestamp) == (-1, -1));
            }
            let response = client.call_at(&list_offsets("none", -1), version).await;
            assert_eq!(response.topics[0].partitions[0].error_code, 3, "{version}");
            if version >= 4 {
                let mut request = list_offsets("t", -1);
                request.topics[0].partitions[0].current_leader_epoch = 9;
                let response = client.call_at(&request, version).await;
                assert_eq!(response.topics[0].partitions[0].error_code, 75, "{version}");
            }
        }
        ApiKey::METADATA => {
            let mut request = MetadataRequest::default();
            request.allow_auto_topic_creation = true;
            let mut topics = Vec::new();
            for name in ["", "..", "no blanks", "__consumer_offsets", &"x".repeat(300)] {
                let mut topic = MetadataRequestTopic::default();
                topic.name = Some(StrBytes::from(name));
                topics.push(topic);
            }
            request.topics = Some(topics);
            let response = client.call_at(&request, version).await;
            let codes: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
            assert_eq!(codes, [17, 17, 17, 3, 17], "{version}");
            // Without a name, with an empty one, with another topic's.
            for name in [None, Some(""), Some("t")] {
                if version < 10 {
                    continue;
                }
                let mut topic = MetadataRequestTopic::default();
                topic.topic_id = NOBODY;
                topic.name = name.map(StrBytes::from);
                let mut request = MetadataRequest::default();
                request.topics = Some(vec![topic]);
                let response = client.call_at(&request, version).await;
                assert_eq!(response.topics[0].error_code, 100, "{version} {name:?}");
            }
        }
        ApiKey::OFFSET_FETCH => {
            let mut request = OffsetFetchRequest::default();
            request.require_stable = version >= 7;
            if version >= 8 {
                let mut group = OffsetFetchRequestGroup::default();
                group.topics = None;
                if version >= 9 {
                    group.member_epoch = -1;
                }
                request.groups = vec![group];
                assert_eq!(client.call_at(&request, version).await.groups.len(), 1);
            } else {
                request.topics = if version >= 2 { None } else { Some(Vec::new()) };
                assert!(client.call_at(&request, version).await.topics.is_empty());
            }
        }
        ApiKey::FIND_COORDINATOR => {
            for (key_type, code) in [(1, 15), (2, 42), (9, 42), (-1, 42)] {
                if version == 0 {
                    continue;
                }
                let mut request = FindCoordinatorRequest::default();
                request.key_type = key_type;
                if version >= 4 {
                    request.coordinator_keys = vec![StrBytes::default(), StrBytes::from("k")];
                    let response = client.call_at(&request, version).await;
                    let found: Vec<(i16, i32)> =
                        response.coordinators.iter().map(|one| (one.error_code, one.node_id)).collect();
                    assert_eq!(found, [(code, -1); 2], "{version} {key_type}");
                } else {
                    let response = client.call_at(&request, version).await;
                    assert_eq!((response.error_code, response.node_id), (code, -1), "{version} {key_type}");
                }
            }
        }
        ApiKey::API_VERSIONS => {
            if version >= 3 {
                let mut request = ApiVersionsRequest::default();
                request.client_software_name = StrBytes::from("no blanks");
                assert_eq!(client.call_at(&request, version).await.error_code, 42, "{version}");
            }
        }
        ApiKey::CREATE_TOPICS => refuse_topics(client, version).await,
        ApiKey::DELETE_RECORDS => {
            for (topic, before, code) in
                [("none", 0, 3), ("t", 9, 1), ("t", -2, 1), ("__transaction_state", 0, 17)]
            {
                let response = client.call_at(&delete_records(topic, 0, before), version).await;
                let found = &response.topics[0].partitions[0];
                assert_eq!((found.error_code, found.low_watermark), (code, -1), "{version} {topic}");
            }
        }
        ApiKey::INIT_PRODUCER_ID => {
            for (id, code) in [("", 42), ("tx", 15)] {
                let mut request = InitProducerIdRequest::default();
                request.transactional_id = Some(StrBytes::from(id));
                request.transaction_timeout_ms = 1000;
                if version >= 3 {
                    (request.producer_id, request.producer_epoch) = (7, 1);
                }
                let response = client.call_at(&request, version).await;
                let found = (response.error_code, response.producer_id, response.producer_epoch);
                assert_eq!(found, (code, -1, -1), "{version} {id}");
            }
        }
        ApiKey::OFFSET_FOR_LEADER_EPOCH => {
            let mut request = OffsetForLeaderEpochRequest::default();
            for (name, current, code) in [("none", -1, 3), ("t", 9, 75)] {
                let mut topic = OffsetForLeaderTopic::default();
                topic.topic = StrBytes::from(name);
                let mut partition = OffsetForLeaderPartition::default();
                partition.current_leader_epoch = current;
                topic.partitions.push(partition);
                request.topics = vec![topic];
                let response = client.call_at(&request, version).await;
                let found = &response.topics[0].partitions[0];
                assert_eq!(
                    (found.error_code, found.leader_epoch, found.end_offset),
                    (code, -1, -1),
                    "{version}"
                );
            }
        }
        ApiKey::DESCRIBE_CONFIGS => {
            let mut request = DescribeConfigsRequest::default();
            for (kind, name) in [(2, "none"), (2, ""), (2, ".."), (4, "x"), (8, "1"), (0, "")] {
                let mut resource = DescribeConfigsResource::default();
                (resource.resource_type, resource.resource_name) = (kind, StrBytes::from(name));
                request.resources.push(resource);
            }
            let response = client.call_at(&request, version).await;
            assert!(response.results.iter().all(|found| found.error_code != 0 && found.configs.is_empty()));
            assert_eq!(response.results.len(), 6, "{version}");
        }
        ApiKey::DESCRIBE_CLUSTER => {
            if version >= 1 {
                let mut request = DescribeClusterRequest::default();
                request.endpoint_type = 2;
                assert_eq!(client.call_at(&request, version).await.error_code, 114, "{version}");
            }
        }
        other => panic!("{other} is listed and has no refusal here"),
    }
}

async fn refuse_produce(client: &mut Client, version: i16, topic_id: Uuid) {
    let by_id = version >= 13;
    let damaged = {
        let mut bytes = batch(&["a"]);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        bytes
    };
    let unknown = if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
    let id = ProducerId::new(77).unwrap();
    let cases = [
        ("none", 0, batch(&["a"]), -1, unknown),
        ("t", 5, batch(&["a"]), -1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -5, batch(&["a"]), -1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, batch(&["a"]), 7, ErrorCode::INVALID_REQUIRED_ACKS),
        ("t", 0, damaged, -1, ErrorCode::CORRUPT_MESSAGE),
        ("t", 0, batch(&[&"x".repeat(3000)]), 1, ErrorCode::MESSAGE_TOO_LARGE),
        ("t", 0, BytesMut::new(), -1, ErrorCode::INVALID_RECORD),
        ("t", 0, transactional(id, 0), -1, ErrorCode::INVALID_PRODUCER_EPOCH),
    ];
    for (topic, index, records, acks, code) in cases {
        let mut request = produce_request(topic, index, records.freeze(), acks);
        if by_id {
            let id = if topic == "t" { topic_id } else { NOBODY };
            (request.topics[0].name, request.topics[0].topic_id) = (StrBytes::default(), id);
        }
        let response = client.call_at(&request, version).await;
        let found = &response.topics[0].partitions[0];
        assert_eq!((found.index, found.error_code), (index, code), "{version} {topic}");
        assert_eq!(found.base_offset, -1, "{version} {code}");
    }
}

async fn refuse_fetch(client: &mut Client, version: i16, topic_id: Uuid) {
    let by_id = version >= 13;
    let unknown = if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
    let mut cases = vec![
        ("none", 0, 0, -1, unknown),
        ("t", 5, 0, -1, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, 999_999, -1, ErrorCode::OFFSET_OUT_OF_RANGE),
        ("t", 0, -1, -1, ErrorCode::OFFSET_OUT_OF_RANGE),
    ];
    if version >= 9 {
        cases.push(("t", 0, 0, 9, ErrorCode::UNKNOWN_LEADER_EPOCH));
    }
    for (topic, index, offset, epoch, code) in cases {
        for isolation in [0, 1] {
            let mut request = fetch_request(topic, offset);
            request.isolation_level = isolation;
            request.topics[0].partitions[0].partition = index;
            request.topics[0].partitions[0].current_leader_epoch = epoch;
            if by_id {
                let id = if topic == "t" { topic_id } else { NOBODY };
                (request.topics[0].name, request.topics[0].topic_id) = (StrBytes::default(), id);
            }
            let response = client.call_at(&request, version).await;
            let found = &response.topics[0].partitions[0];
            assert_eq!((found.partition, found.error_code), (index, code), "{version} {topic} {offset}");
            // Some clients cannot read a null here.
            assert!(found.records.as_ref().is_some_and(bytes::Bytes::is_empty), "{version} {code}");
        }
    }
    if version >= 7 {
        let mut request = fetch_request("t", 0);
        (request.session_id, request.session_epoch) = (5, 5);
        let response = client.call_at(&request, version).await;
        assert_eq!(response.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND, "{version}");
    }
}

async fn refuse_topics(client: &mut Client, version: i16) {
    let mut assigned = creatable("assigned", -1, &[]);
    assigned.replication_factor = -1;
    let mut assignment = CreatableReplicaAssignment::default();
    assignment.broker_ids = vec![1];
    assigned.assignments = vec![assignment];
    let mut null = creatable("null", 1, &[("retention.ms", "")]);
    null.configs[0].value = None;
    let mut request = CreateTopicsRequest::default();
    request.topics = vec![
        creatable("t", 1, &[]),
        creatable("", 1, &[]),
        creatable("a/b", 1, &[]),
        creatable("zero", 0, &[]),
        creatable("twice", 1, &[]),
        creatable("twice", 1, &[]),
        assigned,
        null,
    ];
    let response = client.call_at(&request, version).await;
    let codes: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [36, 17, 17, 37, 42, 39, 40], "{version}");
    assert!(response.topics.iter().all(|topic| topic.error_message.is_some()));
}

fn list_offsets(topic: &str, timestamp: i64) -> ListOffsetsRequest {
    let mut request = ListOffsetsRequest::default();
    let mut wanted = ListOffsetsTopic::default();
    wanted.name = StrBytes::from(topic);
    let mut partition = ListOffsetsPartition::default();
    (partition.timestamp, partition.current_leader_epoch) = (timestamp, -1);
    wanted.partitions.push(partition);
    request.topics.push(wanted);
    request
}

fn transactional(id: ProducerId, sequence: i32) -> BytesMut {
    BatchBuilder::new()
        .producer(id, ProducerEpoch::new(0).unwrap(), Sequence::new(sequence))
        .transactional()
        .record(TimestampMs::new(NOW), None, Some(b"a"))
        .build()
        .unwrap()
}

#[tokio::test]
async fn no_client_opens_a_transaction_that_nobody_would_end() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    let id = client.producer_id().await;
    // With every acks, with and without a transactional id, of a new producer and of a known one.
    for (round, acks, name) in [(0, 1, None), (1, -1, Some("tx")), (2, -1, None)] {
        let mut request = produce_request("t", 0, transactional(id, round).freeze(), acks);
        request.transactional_id = name.map(StrBytes::from);
        let response = client.call_at(&request, 9).await;
        let found = &response.topics[0].partitions[0];
        assert_eq!(found.error_code, ErrorCode::INVALID_PRODUCER_EPOCH);
        let answer = client.produce("t", idempotent(id, 0, round, &["idempotent"]), -1).await;
        assert_eq!((answer.error_code, answer.base_offset), (ErrorCode::NONE, i64::from(round)));
    }
    // Whoever reads committed data waits for nobody.
    let mut request = fetch_request("t", 0);
    request.isolation_level = 1;
    let answer = client.fetch(&request).await;
    assert_eq!((answer.high_watermark, answer.last_stable_offset), (3, 3));
}

#[tokio::test]
async fn a_topic_made_by_a_question_keeps_the_rules_of_one_that_is_ordered() {
    let dir = tempfile::tempdir().unwrap();
    let set = ["auto.create.topics.enable=true"];
    let node = TestNode::start_with(&dir.path().join("data"), &set).await;
    let mut client = node.connect().await;
    client.create_topic("a.b", 1, &[]).await;
    for version in [1, 13] {
        let mut topic = MetadataRequestTopic::default();
        topic.name = Some(StrBytes::from("a_b"));
        let mut request = MetadataRequest::default();
        request.topics = Some(vec![topic]);
        request.allow_auto_topic_creation = true;
        let response = client.call_at(&request, version).await;
        assert_eq!(ErrorCode::new(response.topics[0].error_code), ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    assert_eq!(node.server.node().metadata().topics().len(), 1);
}
