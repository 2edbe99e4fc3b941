//! Against a small broker over real sockets, whose versions and answers the test chooses.

use super::*;
use bytes::Bytes;
use tokio::net::{TcpListener, TcpStream};
use weir_format::{BatchBuilder, TimestampMs};
use weir_wire::frame::FrameReader;
use weir_wire::msg::api_versions_response::ApiVersion;
use weir_wire::msg::describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult};
use weir_wire::msg::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use weir_wire::msg::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use weir_wire::msg::{ApiVersionsResponse, DescribeConfigsResponse, ListOffsetsResponse, MetadataResponse};
use weir_wire::{ApiKey, Limits, RequestHeader, decode};

use crate::source::FetchPartition;

const ID: [u8; 16] = [3; 16];

/// What the broker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Good,
    /// Closes each connection after one answer that is not ApiVersions.
    HangsUp,
    /// Answers fetches with a frame that ends too early.
    Truncates,
    /// Answers fetches with bytes that are no response.
    Babbles,
}

#[derive(Clone, Debug)]
struct Broker {
    newest_fetch: i16,
    newest_metadata: i16,
    manner: Manner,
    records: Bytes,
    seen: Arc<Mutex<Vec<(i16, i16)>>>,
}

impl Broker {
    fn new(newest_fetch: i16, newest_metadata: i16, manner: Manner) -> Self {
        let records = BatchBuilder::new()
            .record(TimestampMs::new(1), Some(b"k"), Some(b"v"))
            .build()
            .expect("builds")
            .freeze();
        Self { newest_fetch, newest_metadata, manner, records, seen: Arc::default() }
    }

    async fn listen(self) -> (KafkaSource, Arc<Mutex<Vec<(i16, i16)>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = i32::from(listener.local_addr().expect("bound").port());
        let seen = Arc::clone(&self.seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(self.clone().serve(stream, port));
            }
        });
        let client = ClientConfig { request_timeout: Duration::from_secs(5), ..ClientConfig::default() };
        (KafkaSource::new(vec!["127.0.0.1:1".to_owned(), format!("127.0.0.1:{port}")], client), seen)
    }

    async fn serve(self, stream: TcpStream, port: i32) {
        use tokio::io::AsyncWriteExt as _;
        let (read, mut write) = stream.into_split();
        let mut frames = FrameReader::new(read, 1 << 20);
        while let Ok(Some(frame)) = frames.next().await {
            let (header, body) = RequestHeader::decode(frame).expect("a request");
            self.seen.lock().expect("whole").push((header.api_key.get(), header.api_version));
            let version = header.api_version;
            let answer = match header.api_key {
                ApiKey::API_VERSIONS => header.respond(&self.versions()),
                ApiKey::METADATA => header.respond(&self.metadata(version, port)),
                ApiKey::LIST_OFFSETS => {
                    header.respond(&self.offsets(decode(body, version, &Limits::SERVER).expect("reads")))
                }
                ApiKey::DESCRIBE_CONFIGS => header.respond(&configs()),
                ApiKey::FETCH if self.manner == Manner::Truncates => {
                    write.write_all(&[0, 0, 1, 0, 0, 0]).await.expect("writes");
                    return;
                }
                ApiKey::FETCH if self.manner == Manner::Babbles => {
                    let mut frame = vec![0, 0, 0, 64];
                    frame.extend_from_slice(&header.correlation_id.to_be_bytes());
                    frame.resize(68, 0x7f);
                    write.write_all(&frame).await.expect("writes");
                    continue;
                }
                ApiKey::FETCH => header
                    .respond(&self.fetched(decode(body, version, &Limits::SERVER).expect("reads"), version)),
                other => panic!("{other} was not expected"),
            };
            answer.expect("can be said").write_to(&mut write).await.expect("writes");
            if self.manner == Manner::HangsUp && header.api_key != ApiKey::API_VERSIONS {
                return;
            }
        }
    }

    fn versions(&self) -> ApiVersionsResponse {
        let range = |key: ApiKey, min: i16, max: i16| {
            let mut range = ApiVersion::default();
            (range.api_key, range.min_version, range.max_version) = (key.get(), min, max);
            range
        };
        let mut response = ApiVersionsResponse::default();
        response.api_keys = vec![
            range(ApiKey::API_VERSIONS, 0, 3),
            range(ApiKey::METADATA, 0, self.newest_metadata),
            range(ApiKey::LIST_OFFSETS, 0, 4),
            range(ApiKey::FETCH, 0, self.newest_fetch),
            range(ApiKey::DESCRIBE_CONFIGS, 0, 2),
        ];
        response
    }

    fn metadata(&self, version: i16, port: i32) -> MetadataResponse {
        let mut broker = MetadataResponseBroker::default();
        (broker.node_id, broker.host, broker.port) = (4, string("127.0.0.1"), port);
        let mut partition = MetadataResponsePartition::default();
        (partition.leader_id, partition.leader_epoch) = (4, 6);
        let mut leaderless = MetadataResponsePartition::default();
        (leaderless.partition_index, leaderless.leader_id, leaderless.leader_epoch) = (1, -1, 7);
        leaderless.error_code = 5;
        let mut topic = MetadataResponseTopic::default();
        topic.name = Some(string("orders"));
        topic.partitions = vec![partition, leaderless];
        if version >= 10 {
            topic.topic_id = Uuid::from_bytes(ID);
        }
        let mut gone = MetadataResponseTopic::default();
        (gone.name, gone.error_code) = (Some(string("gone")), 3);
        let mut response = MetadataResponse::default();
        response.brokers = vec![broker];
        response.cluster_id = Some(string("far"));
        response.topics = vec![topic, gone];
        response
    }

    fn offsets(&self, request: ListOffsetsRequest) -> ListOffsetsResponse {
        let mut response = ListOffsetsResponse::default();
        for topic in request.topics {
            let mut answer = ListOffsetsTopicResponse::default();
            answer.name = topic.name.clone();
            for asked in topic.partitions {
                let mut partition = ListOffsetsPartitionResponse::default();
                partition.partition_index = asked.partition_index;
                partition.offset = if asked.timestamp == EARLIEST { 3 } else { 9 };
                if asked.partition_index == 1 {
                    partition.error_code = 6;
                }
                answer.partitions.push(partition);
            }
            response.topics.push(answer);
        }
        response
    }

    fn fetched(&self, request: fetch::FetchRequest, version: i16) -> fetch::FetchResponse {
        assert_eq!(
            (request.replica_id, request.isolation_level),
            (-1, 0),
            "a consumer that reads uncommitted"
        );
        let mut response = fetch::FetchResponse::default();
        for topic in request.topics {
            let mut answer = fetch::FetchTopicResponse::default();
            if version >= 13 {
                assert_eq!((topic.topic_id, &*topic.name), (Uuid::from_bytes(ID), ""));
                answer.topic_id = topic.topic_id;
            } else {
                assert_eq!(&*topic.name, "orders");
                answer.name = topic.name.clone();
            }
            for asked in topic.partitions {
                assert_eq!(asked.current_leader_epoch, if version >= 9 { 6 } else { -1 });
                answer.partitions.push(fetch::FetchPartitionResponse {
                    partition: asked.partition,
                    high_watermark: 9,
                    log_start_offset: 3,
                    records: Some(self.records.clone()),
                    ..fetch::FetchPartitionResponse::default()
                });
            }
            response.topics.push(answer);
        }
        response
    }
}

fn configs() -> DescribeConfigsResponse {
    let config = |name: &str, value: Option<&str>, source: i8| {
        let mut config = DescribeConfigsResourceResult::default();
        (config.name, config.value, config.config_source) = (string(name), value.map(string), source);
        config
    };
    let mut result = DescribeConfigsResult::default();
    result.resource_type = TOPIC_RESOURCE;
    result.resource_name = string("orders");
    result.configs = vec![
        config("retention.ms", Some("-1"), SET_ON_THE_TOPIC),
        config("segment.bytes", Some("1073741824"), 5),
        config("secret", None, SET_ON_THE_TOPIC),
    ];
    let mut response = DescribeConfigsResponse::default();
    response.results = vec![result];
    response
}

fn orders(partition: i32) -> TopicPartition {
    TopicPartition::new("orders", partition)
}

fn request(topic_id: TopicId) -> FetchRequest {
    FetchRequest {
        partitions: vec![FetchPartition {
            partition: orders(0),
            topic_id,
            fetch_offset: Offset::new(3).expect("not negative"),
            current_leader_epoch: LeaderEpoch::new(6),
            last_fetched_epoch: LeaderEpoch::new(5),
            partition_max_bytes: 1 << 20,
        }],
        max_wait_ms: 10,
        min_bytes: 1,
        max_bytes: 1 << 20,
    }
}

#[tokio::test]
async fn a_new_source_is_fetched_by_topic_id() {
    let broker = Broker::new(18, 13, Manner::Good);
    let records = broker.records.clone();
    let (source, seen) = broker.listen().await;
    let topics: [Arc<str>; 2] = [Arc::from("orders"), Arc::from("gone")];
    let metadata = source.metadata(Some(&topics)).await.expect("answers");
    assert_eq!(metadata.cluster_id.as_deref(), Some("far"));
    assert_eq!(metadata.topics["gone"].code, SourceCode::UnknownTopicOrPartition);
    let found = &metadata.topics["orders"];
    assert_eq!(found.id, TopicId(ID));
    assert_eq!(found.partitions[&0].leader, Some(BrokerId(4)));
    assert_eq!(found.partitions[&0].leader_epoch, LeaderEpoch::new(6));
    assert_eq!(found.partitions[&1].leader, None);
    let fetched = source.fetch(BrokerId(4), request(TopicId(ID))).await.expect("answers");
    assert_eq!(fetched[0].partition, orders(0));
    assert_eq!(fetched[0].records, records);
    assert_eq!(fetched[0].high_watermark, Offset::new(9));
    assert!(seen.lock().expect("whole").contains(&(1, 18)));
    assert!(matches!(
        source.fetch(BrokerId(5), request(TopicId(ID))).await,
        Err(SourceError::Unreachable { .. })
    ));
}

#[tokio::test]
async fn an_old_source_is_fetched_by_name() {
    for (newest_fetch, newest_metadata, used) in [(10, 7, 10), (12, 9, 12), (18, 9, 12)] {
        let (source, seen) = Broker::new(newest_fetch, newest_metadata, Manner::Good).listen().await;
        let metadata = source.metadata(None).await.expect("answers");
        let id = metadata.topics["orders"].id;
        assert!(id.is_zero());
        let fetched = source.fetch(BrokerId(4), request(id)).await.expect("answers");
        assert_eq!(fetched[0].partition, orders(0));
        assert!(seen.lock().expect("whole").contains(&(1, used)), "{newest_fetch}");
    }
}

#[tokio::test]
async fn ranges_and_settings_are_read() {
    let (source, _) = Broker::new(18, 13, Manner::Good).listen().await;
    source.metadata(None).await.expect("answers");
    let range = source.range(BrokerId(4), &orders(0), LeaderEpoch::new(6)).await.expect("answers");
    assert_eq!((range.start.get(), range.end.get()), (3, 9));
    let refused = source.range(BrokerId(4), &orders(1), None).await;
    assert!(matches!(refused, Err(SourceError::Refused { code: SourceCode::NotLeader, .. })));
    let topics: [Arc<str>; 1] = [Arc::from("orders")];
    let configs = source.topic_configs(&topics).await.expect("answers");
    let names: Vec<&str> = configs["orders"].iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["retention.ms", "secret"], "only what was set on the topic");
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_opened_again() {
    let (source, seen) = Broker::new(18, 13, Manner::HangsUp).listen().await;
    for _ in 0..3 {
        source.metadata(None).await.expect("answers");
        source.fetch(BrokerId(4), request(TopicId(ID))).await.expect("answers");
        source.range(BrokerId(4), &orders(0), None).await.expect("answers");
    }
    assert!(seen.lock().expect("whole").len() > 9);
}

#[tokio::test]
async fn answers_that_are_none_are_told_by_kind() {
    let (source, _) = Broker::new(18, 13, Manner::Truncates).listen().await;
    source.metadata(None).await.expect("answers");
    let answer = source.fetch(BrokerId(4), request(TopicId(ID))).await;
    assert!(matches!(answer, Err(SourceError::Unreachable { .. })), "{answer:?}");
    let (source, _) = Broker::new(18, 13, Manner::Babbles).listen().await;
    source.metadata(None).await.expect("answers");
    let answer = source.fetch(BrokerId(4), request(TopicId(ID))).await;
    assert!(matches!(answer, Err(SourceError::Malformed { .. })), "{answer:?}");
    let nowhere = KafkaSource::new(vec!["127.0.0.1:1".to_owned()], ClientConfig::default());
    let answer = nowhere.metadata(None).await.expect_err("nobody is there").to_string();
    assert!(answer.contains("127.0.0.1:1"), "{answer}");
}

#[tokio::test]
async fn a_broker_of_another_cluster_is_neither_learned_nor_fetched_from() {
    let (source, seen) = Broker::new(13, 12, Manner::Good).listen().await;
    let source = source.bound_to(Some("far".to_owned()));
    source.metadata(None).await.expect("the right cluster");
    source.fetch(BrokerId(4), request(TopicId(ID))).await.expect("fetches");
    // Another cluster has taken the address, with the same broker id.
    let source = source.bound_to(Some("near".to_owned()));
    source.reconnect(BrokerId(4)).await;
    let asked = |seen: &[(i16, i16)]| seen.iter().filter(|(api, _)| *api == 1).count();
    let before = asked(&seen.lock().expect("whole"));
    for error in [
        source.fetch(BrokerId(4), request(TopicId(ID))).await.expect_err("another cluster"),
        source
            .range(BrokerId(4), &TopicPartition::new("orders", 0), None)
            .await
            .expect_err("another cluster"),
    ] {
        let SourceError::WrongCluster { expected, found } = error else { panic!("{error}") };
        assert_eq!((expected.as_str(), found.as_str()), ("near", "far"));
    }
    assert_eq!(asked(&seen.lock().expect("whole")), before, "it was not even asked");
    // Its metadata says whose it is, and its brokers are not taken over.
    let (source, _) = Broker::new(13, 12, Manner::Good).listen().await;
    let source = source.bound_to(Some("near".to_owned()));
    assert_eq!(source.metadata(None).await.expect("an answer").cluster_id.as_deref(), Some("far"));
    assert!(source.link(BrokerId(4)).is_err());
}
