//! Frames, versions and requests that no client of good will sends.

use bytes::Bytes;
use weir_node::meta_kv::KvOp;
use weir_node::metadata::{Change, Leadership, PartitionId, ReadOnly};
use weir_wire::api::listed;
use weir_wire::header::decode_response_header;
use weir_wire::msg::describe_configs_request::DescribeConfigsResource;
use weir_wire::msg::find_coordinator_request::FindCoordinatorRequest;
use weir_wire::msg::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use weir_wire::msg::metadata_request::MetadataRequestTopic;
use weir_wire::msg::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use weir_wire::msg::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use weir_wire::msg::{
    ApiVersionsRequest, CreateTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
};
use weir_wire::produce::ProduceResponse;
use weir_wire::{ApiKey, ErrorCode, Limits, StrBytes, decode};

use crate::delete_records::delete_records;
use crate::support::{Client, TestNode, batch, creatable, fetch_request, produce_request};

#[tokio::test]
async fn an_unknown_version_of_api_versions_is_answered_with_version_0_and_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut raw = node.raw().await;
    raw.request(18, 99, 7, &[0, 0, 0]).await;
    let frame = raw.frame().await;
    assert_eq!(frame[..6], [0, 0, 0, 7, 0, 35]);
    let count = i32::from_be_bytes(frame[6..10].try_into().unwrap());
    assert_eq!(usize::try_from(count).unwrap(), listed(None).count());
    // The connection lives on.
    raw.request(18, 0, 8, &[]).await;
    assert_eq!(raw.frame().await[..6], [0, 0, 0, 8, 0, 0]);
}

#[tokio::test]
async fn what_cannot_be_answered_closes_that_connection_alone() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut witness = node.connect().await;
    // An unknown API, an unknown version, a body that is none.
    for (api, version, body) in [(999, 0, &[][..]), (3, 99, &[]), (1, 4, &[1, 2, 3]), (0, 2, &[0xff; 3])] {
        let mut raw = node.raw().await;
        raw.request(api, version, 1, body).await;
        raw.closed().await;
    }
    // Frames: too large, negative, and one without a header.
    for length in [i32::MAX, 104_857_601, -1] {
        let mut raw = node.raw().await;
        raw.send(&length.to_be_bytes()).await;
        raw.closed().await;
    }
    let mut raw = node.raw().await;
    raw.send(&[0, 0, 0, 2, 0, 18]).await;
    raw.closed().await;
    witness.create_topic("t", 1, &[]).await;
}

#[tokio::test]
async fn another_cluster_or_node_is_told_to_bootstrap_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    let ours = node.server.node().metadata().cluster_id().to_owned();
    for (cluster, id, code) in [
        (None, -1, ErrorCode::NONE),
        (Some(ours.as_str()), 1_000_000, ErrorCode::NONE),
        (Some("AAAAAAAAAAAAAAAAAAAAAA"), -1, ErrorCode::REBOOTSTRAP_REQUIRED),
        (Some(ours.as_str()), 1, ErrorCode::REBOOTSTRAP_REQUIRED),
    ] {
        let mut request = ApiVersionsRequest::default();
        request.client_software_name = StrBytes::from("test");
        request.client_software_version = StrBytes::from("1");
        request.cluster_id = cluster.map(StrBytes::from);
        request.node_id = id;
        assert_eq!(client.call_at(&request, 5).await.error_code, code.get());
    }
}

#[tokio::test]
async fn every_version_that_is_listed_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    let id = node.server.node().metadata().topic("t").unwrap().id;
    let topic_id = weir_node::uuid::to_wire(id);
    let mut answered = 0;
    for range in listed(None) {
        for version in range.min..=range.max {
            ask(&mut client, range.api_key, version, topic_id).await;
            answered += 1;
        }
    }
    assert!(answered > 80, "{answered}");
}

/// Sends a request of this version that touches as many fields as it has; an answer that its
/// version cannot say would close the connection.
async fn ask(client: &mut Client, api: ApiKey, version: i16, topic_id: weir_wire::Uuid) {
    let t = || StrBytes::from("t");
    match api {
        // No client of ours would send the old formats: see the test below.
        ApiKey::PRODUCE if version < 3 => {}
        ApiKey::PRODUCE => {
            let mut request = produce_request("t", 0, batch(&["a"]).freeze(), -1);
            if version >= 13 {
                (request.topics[0].name, request.topics[0].topic_id) = (StrBytes::default(), topic_id);
            }
            let mut unknown = request.topics[0].clone();
            unknown.partitions[0].index = 9;
            request.topics.push(unknown);
            let response = client.call_at(&request, version).await;
            let codes: Vec<ErrorCode> =
                response.topics.iter().map(|topic| topic.partitions[0].error_code).collect();
            assert_eq!(codes, [ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION], "{version}");
        }
        ApiKey::FETCH => {
            let mut request = fetch_request("t", 0);
            request.isolation_level = 1;
            if version >= 13 {
                (request.topics[0].name, request.topics[0].topic_id) = (StrBytes::default(), topic_id);
            }
            let mut unknown = request.topics[0].clone();
            unknown.partitions[0].partition = 9;
            request.topics.push(unknown);
            let response = client.call_at(&request, version).await;
            assert_eq!(response.topics[0].partitions[0].error_code, ErrorCode::NONE, "{version}");
            assert!(!response.topics[0].partitions[0].records.as_ref().unwrap().is_empty());
            let code = response.topics[1].partitions[0].error_code;
            assert_eq!(code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "{version}");
        }
        ApiKey::LIST_OFFSETS => {
            let mut request = ListOffsetsRequest::default();
            let mut topic = ListOffsetsTopic::default();
            topic.name = t();
            for (index, timestamp) in [(0, 5), (9, -2)] {
                let mut partition = ListOffsetsPartition::default();
                partition.partition_index = index;
                partition.current_leader_epoch = -1;
                partition.timestamp = timestamp;
                topic.partitions.push(partition);
            }
            request.topics.push(topic);
            let response = client.call_at(&request, version).await;
            let codes: Vec<i16> =
                response.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
            assert_eq!(codes, [0, 3], "{version}");
        }
        ApiKey::METADATA => {
            let mut request = MetadataRequest::default();
            request.allow_auto_topic_creation = true;
            let name = format!("made-by-metadata-{version}");
            let names = ["t", name.as_str(), "not a name"];
            request.topics = Some(
                names
                    .into_iter()
                    .map(|name| {
                        let mut topic = MetadataRequestTopic::default();
                        topic.name = Some(StrBytes::from(name));
                        topic
                    })
                    .collect(),
            );
            let response = client.call_at(&request, version).await;
            let codes: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
            assert_eq!(codes, [0, 0, 17], "{version}");
            assert_eq!(response.topics[1].partitions[0].leader_id, 1_000_000);
            if version >= 10 {
                // As Java's client sends it: the id, and an empty name.
                for (id, code) in [(topic_id, 0), (weir_wire::Uuid::from_bytes([9; 16]), 100)] {
                    let mut topic = MetadataRequestTopic::default();
                    (topic.topic_id, topic.name) = (id, Some(StrBytes::default()));
                    let mut request = MetadataRequest::default();
                    request.topics = Some(vec![topic]);
                    let response = client.call_at(&request, version).await;
                    assert_eq!((response.topics[0].error_code, response.topics[0].topic_id), (code, id));
                }
            }
            let mut all = MetadataRequest::default();
            all.topics = if version == 0 { Some(Vec::new()) } else { None };
            all.allow_auto_topic_creation = true;
            assert!(client.call_at(&all, version).await.topics.len() >= 2);
        }
        ApiKey::OFFSET_FETCH => {
            let mut request = OffsetFetchRequest::default();
            if version < 8 {
                request.group_id = StrBytes::from("g");
                let mut topic = OffsetFetchRequestTopic::default();
                topic.name = t();
                topic.partition_indexes = vec![0, 1];
                request.topics = Some(vec![topic]);
                let response = client.call_at(&request, version).await;
                assert_eq!(response.topics[0].partitions[1].committed_offset, -1);
                assert_eq!(response.topics[0].partitions[1].error_code, 0);
                return;
            }
            let mut group = OffsetFetchRequestGroup::default();
            group.group_id = StrBytes::from("g");
            let mut topic = OffsetFetchRequestTopics::default();
            if version >= 10 {
                topic.topic_id = topic_id;
            } else {
                topic.name = t();
            }
            topic.partition_indexes = vec![0];
            group.topics = Some(vec![topic]);
            if version >= 9 {
                group.member_epoch = -1;
            }
            request.groups = vec![group];
            let response = client.call_at(&request, version).await;
            let found = &response.groups[0].topics[0].partitions[0];
            assert_eq!((found.committed_offset, found.error_code), (-1, 0), "{version}");
        }
        ApiKey::FIND_COORDINATOR => {
            for (key_type, code) in [(0, 0), (1, 15)] {
                if version == 0 && key_type == 1 {
                    continue;
                }
                let mut request = FindCoordinatorRequest::default();
                request.key_type = key_type;
                if version >= 4 {
                    request.coordinator_keys = vec![StrBytes::from("g")];
                    let response = client.call_at(&request, version).await;
                    assert_eq!(response.coordinators[0].error_code, code, "{version}");
                } else {
                    request.key = StrBytes::from("g");
                    let response = client.call_at(&request, version).await;
                    assert_eq!(response.error_code, code, "{version}");
                }
            }
        }
        ApiKey::API_VERSIONS => {
            let mut request = ApiVersionsRequest::default();
            if version >= 3 {
                request.client_software_name = StrBytes::from("test");
                request.client_software_version = StrBytes::from("1");
            }
            let response = client.call_at(&request, version).await;
            assert_eq!(response.error_code, 0, "{version}");
            assert_eq!(response.api_keys[0].min_version, 0, "Produce from 0");
        }
        ApiKey::CREATE_TOPICS => {
            let mut request = CreateTopicsRequest::default();
            request.topics.push(creatable(&format!("made-by-{version}"), 2, &[("retention.ms", "-1")]));
            request.topics.push(creatable("t", 1, &[]));
            let response = client.call_at(&request, version).await;
            let codes: Vec<i16> = response.topics.iter().map(|topic| topic.error_code).collect();
            assert_eq!(codes, [0, 36], "{version}");
        }
        ApiKey::DELETE_RECORDS => {
            let mut request = delete_records("t", 0, 0);
            request.topics.extend(delete_records("t", 9, 0).topics);
            let response = client.call_at(&request, version).await;
            let found: Vec<(i16, i64)> = response
                .topics
                .iter()
                .map(|topic| (topic.partitions[0].error_code, topic.partitions[0].low_watermark))
                .collect();
            assert_eq!(found, [(0, 0), (3, -1)], "{version}");
        }
        ApiKey::INIT_PRODUCER_ID => {
            let mut request = InitProducerIdRequest::default();
            request.transactional_id = None;
            request.transaction_timeout_ms = 1000;
            assert_eq!(client.call_at(&request, version).await.error_code, 0, "{version}");
            request.transactional_id = Some(StrBytes::from("tx"));
            assert_eq!(client.call_at(&request, version).await.error_code, 15, "{version}");
        }
        ApiKey::OFFSET_FOR_LEADER_EPOCH => {
            let mut request = OffsetForLeaderEpochRequest::default();
            let mut topic = OffsetForLeaderTopic::default();
            topic.topic = t();
            for (index, epoch) in [(0, 0), (0, 7), (9, 0)] {
                let mut partition = OffsetForLeaderPartition::default();
                (partition.partition, partition.leader_epoch) = (index, epoch);
                partition.current_leader_epoch = -1;
                topic.partitions.push(partition);
            }
            request.topics.push(topic);
            let response = client.call_at(&request, version).await;
            let found: Vec<(i16, i32)> = response.topics[0]
                .partitions
                .iter()
                .map(|partition| (partition.error_code, partition.leader_epoch))
                .collect();
            assert_eq!(found, [(0, 0), (0, -1), (3, -1)], "{version}");
        }
        ApiKey::DESCRIBE_CONFIGS => {
            let mut request = DescribeConfigsRequest::default();
            request.include_synonyms = true;
            request.include_documentation = version >= 3;
            for (kind, name) in [(2, "t"), (4, "1000000"), (2, "none"), (4, "7"), (99, "")] {
                let mut resource = DescribeConfigsResource::default();
                resource.resource_type = kind;
                resource.resource_name = StrBytes::from(name);
                request.resources.push(resource);
            }
            let response = client.call_at(&request, version).await;
            let codes: Vec<i16> = response.results.iter().map(|result| result.error_code).collect();
            assert_eq!(codes, [0, 0, 3, 42, 42], "{version}");
            assert!(response.results[0].configs.len() > 30);
        }
        ApiKey::DESCRIBE_CLUSTER => {
            let mut request = DescribeClusterRequest::default();
            request.include_cluster_authorized_operations = true;
            request.endpoint_type = 1;
            let response = client.call_at(&request, version).await;
            assert_eq!((response.error_code, response.brokers.len()), (0, 1), "{version}");
        }
        other => panic!("{other} is listed and not asked for here"),
    }
}

#[tokio::test]
async fn the_oldest_produce_versions_are_listed_and_refused_in_their_own_words() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    node.connect().await.create_topic("t", 1, &[]).await;
    let mut raw = node.raw().await;
    for version in 0..3 {
        let request = produce_request("t", 0, batch(&["a"]).freeze(), 1);
        raw.request(0, version, 5, &weir_wire::encode(&request, version).unwrap()).await;
        let frame = Bytes::from(raw.frame().await);
        let (correlation, body) = decode_response_header(ApiKey::PRODUCE, version, frame).unwrap();
        let response: ProduceResponse = decode(body, version, &Limits::CLIENT).unwrap();
        let code = response.topics[0].partitions[0].error_code;
        assert_eq!((correlation, code), (5, ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT), "{version}");
    }
}

#[tokio::test]
async fn topics_are_created_by_kafkas_rules() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("a.b", 1, &[]).await;
    let long = "x".repeat(250);
    let mut two = creatable("factor", 1, &[]);
    two.replication_factor = 2;
    let topics = [
        (creatable("a_b", 1, &[]), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (creatable("", 1, &[]), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (creatable("..", 1, &[]), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (creatable("no blanks", 1, &[]), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (creatable(&long, 1, &[]), ErrorCode::INVALID_TOPIC_EXCEPTION),
        (creatable("zero", 0, &[]), ErrorCode::INVALID_PARTITIONS),
        (creatable("minus", -2, &[]), ErrorCode::INVALID_PARTITIONS),
        (creatable("many", i32::MAX, &[]), ErrorCode::POLICY_VIOLATION),
        (two, ErrorCode::INVALID_REPLICATION_FACTOR),
        (creatable("config", 1, &[("retention.msec", "1")]), ErrorCode::INVALID_CONFIG),
        (creatable("value", 1, &[("retention.ms", "soon")]), ErrorCode::INVALID_CONFIG),
        (creatable("a.b", 1, &[]), ErrorCode::TOPIC_ALREADY_EXISTS),
    ];
    for (topic, code) in topics {
        let mut request = CreateTopicsRequest::default();
        let name = topic.name.as_str().to_owned();
        request.topics.push(topic);
        let response = client.call(&request).await;
        assert_eq!(ErrorCode::new(response.topics[0].error_code), code, "{name}");
        assert!(response.topics[0].error_message.is_some(), "{name}");
    }
    let mut request = CreateTopicsRequest::default();
    request.validate_only = true;
    request.topics.push(creatable("later", -1, &[]));
    let response = client.call(&request).await;
    assert_eq!((response.topics[0].error_code, response.topics[0].num_partitions), (0, 1));
    assert!(node.server.node().metadata().topic("later").is_none());
    assert_eq!(node.server.node().metadata().topics().len(), 1);
}

#[tokio::test]
async fn asking_for_a_topic_creates_it_only_where_that_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for (number, (allowed, may, made)) in
        [("true", true, true), ("true", false, false), ("false", true, false)].into_iter().enumerate()
    {
        let option = format!("auto.create.topics.enable={allowed}");
        let path = dir.path().join(number.to_string());
        let node = TestNode::start_with(&path, &[&option, "num.partitions=3"]).await;
        let mut request = MetadataRequest::default();
        let mut topic = MetadataRequestTopic::default();
        topic.name = Some(StrBytes::from("new"));
        request.topics = Some(vec![topic]);
        request.allow_auto_topic_creation = may;
        let response = node.connect().await.call(&request).await;
        let (code, count) = if made { (0, 3) } else { (3, 0) };
        assert_eq!((response.topics[0].error_code, response.topics[0].partitions.len()), (code, count));
        assert!(node.server.stop().await);
    }
}

#[tokio::test]
async fn a_partition_that_a_mirror_owns_takes_no_client_write() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("data")).await;
    let mut client = node.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.produce("t", batch(&["before"]), -1).await;
    let topic = node.server.node().metadata().topic("t").unwrap();
    let id = PartitionId { topic_id: topic.id, partition: 0 };
    let mut leadership: Leadership = node.server.node().metadata().leadership(id);
    leadership.read_only = Some(ReadOnly { mirror: "dr".to_owned(), state: "MIRRORING".to_owned() });
    let change = Change {
        partitions: vec![(id, leadership.clone())],
        ops: vec![KvOp::put("elsewhere", "x")],
        ..Change::default()
    };
    node.server.node().commit(change).await.unwrap();
    let answer = client.produce("t", batch(&["refused"]), -1).await;
    assert_eq!(answer.error_code, ErrorCode::POLICY_VIOLATION);
    let message = answer.error_message.unwrap();
    assert!(message.as_str().contains("dr") && message.as_str().contains("MIRRORING"), "{message:?}");
    assert_eq!(client.values("t", 0).await, ["before"]);
    leadership.read_only = None;
    let change = Change { partitions: vec![(id, leadership)], ..Change::default() };
    node.server.node().commit(change).await.unwrap();
    assert_eq!(client.produce("t", batch(&["after"]), -1).await.base_offset, 1);
}
