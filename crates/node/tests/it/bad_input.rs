//! Bad input: a source that is none, or a hostile one, and things that stand where others belong. One
//! clear line says what and what to do; nothing acknowledged is lost, nothing half is taken for whole.
//!
//! Shown elsewhere: unknown request versions, oversized and negative frames
//! (`protocol::what_cannot_be_answered_closes_that_connection_alone`); a wrong bootstrap list, a topic with
//! another id (`mirror::what_cannot_be_mirrored_is_said_in_one_go`); a full folder, a file in a folder's place
//! (`lifecycle::what_cannot_be_served_is_said_in_one_place_with_a_remedy`); a full disk on SimDisk
//! (`shard::tests` of this crate, and `edges` of the log).

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use weir_format::{
    BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs, set_leader_epoch,
};
use weir_mirror::runner::PartitionStatus;
use weir_mirror::source::TopicPartition;
use weir_mirror::state::MirrorPartitionState;
use weir_node::mirror_host::MirrorError;
use weir_wire::fetch::{FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse};
use weir_wire::frame::FrameReader;
use weir_wire::msg::api_versions_response::ApiVersion;
use weir_wire::msg::describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult};
use weir_wire::msg::list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use weir_wire::msg::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use weir_wire::msg::offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use weir_wire::msg::{
    ApiVersionsResponse, DescribeConfigsResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataResponse,
    OffsetForLeaderEpochRequest,
};
use weir_wire::{ApiKey, ErrorCode, Limits, RequestHeader, StrBytes, Uuid, decode};

use crate::support::{
    Client, NOW, Process, TestNode, batch, fetch_request, instant, produce_request, serve_fails,
};

const MARKER: &str = ".kafka_cleanshutdown";
const TOPIC: &str = "orders";

// --- a source that is none ---

/// Something at an address that is not Kafka: says `greeting` to each byte that comes, or closes at once.
async fn stranger(greeting: Option<&'static [u8]>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            match greeting {
                Some([]) => drop(stream),
                Some(greeting) => {
                    let _ = stream.readable().await;
                    let _ = stream.write_all(greeting).await;
                    held.push(stream);
                }
                None => held.push(stream),
            }
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_at_the_sources_address_is_said_in_one_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("b")).await;
    let http: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let tls_alert: &[u8] = &[0x15, 0x03, 0x03, 0, 2, 2, 10];
    let short: &[u8] = &[0, 0, 0, 6, 0, 0, 0, 0, 0, 0];
    let cases = [
        ("nobody", "127.0.0.1:1".to_owned(), "refused"),
        ("no such name", "no-such-host.invalid:9092".to_owned(), "no-such-host.invalid"),
        ("a silent one", stranger(None).await, "did not answer"),
        ("one that closes", stranger(Some(&[])).await, ""),
        ("a web server", stranger(Some(http)).await, "frame"),
        ("a TLS listener", stranger(Some(tls_alert)).await, ""),
        ("a cut answer", stranger(Some(short)).await, ""),
    ];
    for (name, address, says) in cases {
        let file = dir.path().join("mirror.properties");
        let text = format!("bootstrap.servers={address}\nsocket.connection.setup.timeout.ms=400\n");
        std::fs::write(&file, text).unwrap();
        let server = node.address();
        let output = {
            let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_weir"));
            command.args([
                "mirror",
                "create",
                "--bootstrap-server",
                &server,
                "--mirror",
                "dr",
                "--mirror-config",
            ]);
            command.arg(&file).stdin(Stdio::null()).output().await.unwrap()
        };
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        let kinds: Vec<&str> = error.lines().map(|line| line.split(' ').next().unwrap_or_default()).collect();
        assert_eq!(kinds, ["error:", "cause:", "help:"], "{name}: {error}");
        assert!(error.contains(&address) && error.contains(says), "{name}: {error}");
        assert!(!error.contains("panic"), "{name}: {error}");
        assert!(node.server.mirrors().list().is_empty(), "{name}: nothing was stored");
    }
    assert!(node.server.stop().await);
}

// --- a hostile source ---

/// What the source does with fetches of partition 1; partition 0 is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Good,
    /// A bit of the second batch is another.
    FlippedBit,
    /// The second batch comes again and again.
    OffsetsGoBack,
    /// What was asked for comes under another partition's number.
    AnotherPartition,
    /// The stream ends inside the answer.
    CutAnswer,
    /// A frame that is no answer.
    Babbles,
    /// An answer of more than is taken, to whoever asks for partition 1 first.
    Oversized,
    /// The topic has got one partition more, and fetches are not answered.
    Grown,
    /// No answer at all.
    Silent,
    /// The leader epoch in its metadata leaves no room above it.
    HugeEpoch,
    /// Producer ids at the end of what can be said.
    HugeProducerId,
}

#[derive(Clone)]
struct HostileSource {
    manner: Arc<Mutex<Manner>>,
    port: u16,
}

fn batch_at(offset: i64, values: &[&str]) -> BytesMut {
    let mut builder = BatchBuilder::new().base_offset(Offset::new(offset).unwrap());
    for value in values {
        builder = builder.record(TimestampMs::new(NOW), None, Some(value.as_bytes()));
    }
    let mut bytes = builder.build().unwrap();
    set_leader_epoch(&mut bytes, LeaderEpoch::new(4).unwrap()).unwrap();
    bytes
}

/// The log of each partition: offsets 0 to 2, and 2 to 4.
fn good_log() -> [BytesMut; 2] {
    [batch_at(0, &["a", "b"]), batch_at(2, &["c", "d"])]
}

fn text(text: &str) -> StrBytes {
    StrBytes::from(text)
}

impl HostileSource {
    async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let source = Self { manner: Arc::new(Mutex::new(manner)), port };
        let serving = source.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        source
    }

    fn manner(&self) -> Manner {
        *self.manner.lock().unwrap()
    }

    async fn serve(self, stream: TcpStream) {
        let (read, mut write) = stream.into_split();
        let mut frames = FrameReader::new(read, 1 << 20);
        while let Ok(Some(frame)) = frames.next().await {
            let (header, body) = RequestHeader::decode(frame).expect("weir asks what can be read");
            let version = header.api_version;
            let answer = match header.api_key {
                ApiKey::API_VERSIONS => header.respond(&versions()),
                ApiKey::METADATA => header.respond(&self.metadata()),
                ApiKey::LIST_OFFSETS => {
                    header.respond(&offsets(decode(body, version, &Limits::SERVER).expect("reads")))
                }
                ApiKey::DESCRIBE_CONFIGS => header.respond(&configs()),
                ApiKey::FETCH => {
                    let correlation = header.correlation_id.to_be_bytes();
                    let mut bytes = Vec::new();
                    match self.manner() {
                        Manner::Silent => std::future::pending::<()>().await,
                        Manner::CutAnswer | Manner::Grown => bytes.extend_from_slice(&[0, 0, 1, 0, 0, 0]),
                        Manner::Babbles => {
                            bytes.extend_from_slice(&64_i32.to_be_bytes());
                            bytes.extend_from_slice(&correlation);
                            bytes.resize(68, 0x7f);
                        }
                        _ => {}
                    }
                    if !bytes.is_empty() {
                        let _ = write.write_all(&bytes).await;
                        return;
                    }
                    let request: FetchRequest = decode(body, version, &Limits::SERVER).expect("reads");
                    let first = request.topics.first().and_then(|topic| topic.partitions.first());
                    if self.manner() == Manner::Oversized && first.is_some_and(|first| first.partition == 1) {
                        let _ = write.write_all(&i32::MAX.to_be_bytes()).await;
                        return;
                    }
                    header.respond(&self.fetched(request).await)
                }
                other => panic!("{other} was not expected"),
            };
            if answer.expect("can be said").write_to(&mut write).await.is_err() {
                return;
            }
        }
    }

    fn metadata(&self) -> MetadataResponse {
        let mut broker = MetadataResponseBroker::default();
        (broker.node_id, broker.host, broker.port) = (4, text("127.0.0.1"), i32::from(self.port));
        let mut topic = MetadataResponseTopic::default();
        (topic.name, topic.topic_id) = (Some(text(TOPIC)), Uuid::from_bytes([7; 16]));
        for index in 0..if self.manner() == Manner::Grown { 3 } else { 2 } {
            let mut partition = MetadataResponsePartition::default();
            let huge = index == 1 && self.manner() == Manner::HugeEpoch;
            partition.leader_epoch = if huge { i32::MAX } else { 4 };
            (partition.partition_index, partition.leader_id) = (index, 4);
            topic.partitions.push(partition);
        }
        let mut response = MetadataResponse::default();
        response.brokers = vec![broker];
        response.cluster_id = Some(text("hostile"));
        response.topics = vec![topic];
        response
    }

    async fn fetched(&self, request: FetchRequest) -> FetchResponse {
        let manner = self.manner();
        let mut response = FetchResponse::default();
        let mut nothing = true;
        for topic in request.topics {
            let mut answer =
                FetchTopicResponse { topic_id: topic.topic_id, name: topic.name, ..Default::default() };
            for asked in topic.partitions {
                let hostile = asked.partition == 1;
                let [first, mut second] = good_log();
                if hostile && manner == Manner::FlippedBit {
                    let at = second.len() - 2;
                    second[at] ^= 1;
                }
                if hostile && manner == Manner::HugeProducerId {
                    let builder = BatchBuilder::new()
                        .base_offset(Offset::new(2).unwrap())
                        .producer(ProducerId::new(i64::MAX).unwrap(), ProducerEpoch::ZERO, Sequence::new(0))
                        .record(TimestampMs::new(NOW), None, Some(b"c"))
                        .record(TimestampMs::new(NOW), None, Some(b"d"));
                    second = builder.build().unwrap();
                    set_leader_epoch(&mut second, LeaderEpoch::new(4).unwrap()).unwrap();
                }
                let records = match asked.fetch_offset {
                    0 => first,
                    2 => second,
                    _ if hostile && manner == Manner::OffsetsGoBack => second,
                    _ => BytesMut::new(),
                };
                nothing &= records.is_empty();
                let elsewhere = hostile && manner == Manner::AnotherPartition;
                answer.partitions.push(FetchPartitionResponse {
                    partition: if elsewhere { 9 } else { asked.partition },
                    high_watermark: 4,
                    last_stable_offset: 4,
                    log_start_offset: 0,
                    records: Some(records.freeze()),
                    ..Default::default()
                });
            }
            response.topics.push(answer);
        }
        if nothing {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        response
    }
}

fn versions() -> ApiVersionsResponse {
    let range = |key: ApiKey, min: i16, max: i16| {
        let mut range = ApiVersion::default();
        (range.api_key, range.min_version, range.max_version) = (key.get(), min, max);
        range
    };
    let mut response = ApiVersionsResponse::default();
    response.api_keys = vec![
        range(ApiKey::API_VERSIONS, 0, 3),
        range(ApiKey::METADATA, 0, 12),
        range(ApiKey::LIST_OFFSETS, 0, 4),
        range(ApiKey::FETCH, 0, 13),
        range(ApiKey::DESCRIBE_CONFIGS, 0, 2),
    ];
    response
}

fn offsets(request: ListOffsetsRequest) -> ListOffsetsResponse {
    let mut response = ListOffsetsResponse::default();
    for topic in request.topics {
        let mut answer = ListOffsetsTopicResponse::default();
        answer.name = topic.name.clone();
        for asked in topic.partitions {
            let mut partition = ListOffsetsPartitionResponse::default();
            partition.partition_index = asked.partition_index;
            partition.offset = if asked.timestamp == -2 { 0 } else { 4 };
            answer.partitions.push(partition);
        }
        response.topics.push(answer);
    }
    response
}

/// Settings that this build does not know, or whose values it cannot use.
fn configs() -> DescribeConfigsResponse {
    let mut result = DescribeConfigsResult::default();
    result.resource_type = 2;
    result.resource_name = text(TOPIC);
    for (name, value) in [("segment.bytes", "many"), ("from.the.future", "1"), ("retention.ms", "-1")] {
        let mut config = DescribeConfigsResourceResult::default();
        (config.name, config.value, config.config_source) = (text(name), Some(text(value)), 1);
        result.configs.push(config);
    }
    let mut response = DescribeConfigsResponse::default();
    response.results = vec![result];
    response
}

async fn mirror_of(node: &TestNode, name: &str, port: u16) {
    let configs = [
        ("bootstrap.servers", format!("127.0.0.1:{port}")),
        ("request.timeout.ms", "400".to_owned()),
        ("fetch.wait.max.ms", "50".to_owned()),
    ];
    let configs = configs.map(|(key, value)| (key.to_owned(), Some(value)));
    node.server.mirrors().create(name, configs).await.unwrap();
    let started = node.server.mirrors().start_topics(name, &[TOPIC.to_owned()], &[]).await.unwrap();
    assert!(started.iter().all(|(_, result)| result.is_ok()), "{started:?}");
}

async fn until(
    node: &TestNode,
    index: i32,
    what: &str,
    holds: impl Fn(&PartitionStatus) -> bool,
) -> PartitionStatus {
    let deadline = instant() + Duration::from_secs(20);
    loop {
        let (_, statuses) = node.server.mirrors().describe("dr").unwrap();
        let status = statuses
            .into_iter()
            .find(|status| status.partition == TopicPartition::new(TOPIC, index))
            .unwrap();
        if holds(&status) {
            return status;
        }
        assert!(instant() < deadline, "{what}: {status:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Reads until there is as much as there should be, as what is mirrored is read when it is durable.
async fn until_bytes(client: &mut Client, index: i32, expected: &[u8], what: Manner) {
    let deadline = instant() + Duration::from_secs(10);
    loop {
        let found = bytes_of(client, index).await;
        if found == expected {
            return;
        }
        assert!(expected.starts_with(&found) && instant() < deadline, "{what:?}: {found:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn bytes_of(client: &mut Client, index: i32) -> Bytes {
    let mut bytes = BytesMut::new();
    for _ in 0..3 {
        let mut request = fetch_request(TOPIC, 0);
        request.topics[0].partitions[0].partition = index;
        request.topics[0].partitions[0].fetch_offset = match bytes.len() {
            0 => 0,
            some if some == good_log()[0].len() => 2,
            _ => 4,
        };
        let answer = client.fetch(&request).await;
        assert!(answer.error_code.is_none(), "{}", answer.error_code);
        bytes.extend_from_slice(&answer.records.unwrap());
    }
    bytes.freeze()
}

/// What becomes of partition 1, by what the source does with it.
enum End {
    /// FAILED for this reason; the words of it.
    Failed(&'static str, &'static [&'static str]),
    /// It stays as it is and says this, until the source is good again.
    Waits(&'static str),
    /// It is mirrored.
    Mirrored,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_source_spoils_one_partition_at_most_and_writes_nothing_that_is_not_whole() {
    let cases = [
        (Manner::FlippedBit, End::Failed("corrupt-batch", &["fetch offset 2"])),
        (Manner::OffsetsGoBack, End::Failed("corrupt-batch", &["base offset 2 is below 4"])),
        (Manner::HugeEpoch, End::Failed("epoch-too-high", &["2147483647"])),
        (Manner::AnotherPartition, End::Waits("")),
        (Manner::CutAnswer, End::Waits("Fetch")),
        (Manner::Babbles, End::Waits("Fetch")),
        (Manner::Oversized, End::Failed("batch-too-large", &["2147483647"])),
        (Manner::Silent, End::Waits("did not answer")),
        (Manner::HugeProducerId, End::Mirrored),
    ];
    for (manner, end) in cases {
        let dir = tempfile::tempdir().unwrap();
        let node = TestNode::start(&dir.path().join("b")).await;
        let source = HostileSource::start(manner).await;
        mirror_of(&node, "dr", source.port).await;
        let mut client = node.connect().await;
        let [first, second] = good_log();
        let whole = [&first[..], &second[..]].concat();
        let at_end = |status: &PartitionStatus| status.log_end_offset == Offset::new(4);
        let expected = match end {
            End::Failed(name, words) => {
                let failed = |status: &PartitionStatus| status.state == MirrorPartitionState::Failed;
                let status = until(&node, 1, "FAILED", failed).await;
                assert_eq!(status.failure.as_deref(), Some(name), "{manner:?}");
                let why = status.attention.expect("says why");
                assert!(words.iter().all(|word| why.contains(word)), "{manner:?}: {why}");
                // The other partition of the same broker goes on.
                until(&node, 0, "the other one is mirrored", at_end).await;
                match manner {
                    Manner::HugeEpoch | Manner::Oversized => 0,
                    Manner::FlippedBit => first.len(),
                    _ => whole.len(),
                }
            }
            End::Waits(words) => {
                if !words.is_empty() {
                    let says = |status: &PartitionStatus| {
                        status.attention.as_deref().is_some_and(|attention| attention.contains(words))
                    };
                    let status = until(&node, 1, words, says).await;
                    assert_ne!(status.state, MirrorPartitionState::Failed, "{manner:?}");
                    assert_ne!(status.log_end_offset, Offset::new(4), "{manner:?}");
                } else {
                    until(&node, 0, "the other one is mirrored", at_end).await;
                    assert_eq!(bytes_of(&mut client, 1).await, Bytes::new(), "{manner:?}");
                }
                *source.manner.lock().unwrap() = Manner::Good;
                until(&node, 1, "mirrored when the source is good again", at_end).await;
                whole.len()
            }
            End::Mirrored => {
                until(&node, 1, "mirrored", at_end).await;
                assert_ne!(client.producer_id().await.get() >> 32, i64::MAX >> 32, "B12");
                // Its bytes are others than the good ones.
                usize::MAX
            }
        };
        until(&node, 0, "the other one", at_end).await;
        until_bytes(&mut client, 0, &whole, manner).await;
        if expected != usize::MAX {
            until_bytes(&mut client, 1, &whole[..expected], manner).await;
        }
        let request = produce_request(TOPIC, 1, batch(&["no"]).freeze(), -1);
        let refused = client.call_at(&request, 12).await.topics[0].partitions[0].clone();
        assert_eq!(refused.error_code, ErrorCode::POLICY_VIOLATION, "{manner:?}");
        // What the source set and this build cannot use is left out; what it can is there.
        let topic = node.server.node().metadata().topic(TOPIC).unwrap();
        assert_eq!(topic.configs.keys().collect::<Vec<_>>(), ["retention.ms"]);
        let began = instant();
        assert!(node.server.stop().await, "{manner:?}: closed cleanly");
        assert!(began.elapsed() < Duration::from_secs(8), "{manner:?}: {:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_needs_no_source_that_answers() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("b")).await;
    let source = HostileSource::start(Manner::Good).await;
    mirror_of(&node, "dr", source.port).await;
    for index in 0..2 {
        until(&node, index, "mirrored", |status| status.log_end_offset == Offset::new(4)).await;
    }
    *source.manner.lock().unwrap() = Manner::Silent;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = instant();
    let stopped = node.server.mirrors().stop_topics("dr", &[TOPIC.to_owned()], false).await.unwrap();
    assert!(stopped[0].1.is_ok(), "{stopped:?}");
    for index in 0..2 {
        until(&node, index, "STOPPED", |status| status.state == MirrorPartitionState::Stopped).await;
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(node.server.stop().await);
}

/// TRUNC-22: what is in a partition that is not here would be missed only after the switch.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_grew_at_the_source_says_so_and_is_stopped_only_with_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("b")).await;
    let source = HostileSource::start(Manner::Good).await;
    mirror_of(&node, "dr", source.port).await;
    for index in 0..2 {
        until(&node, index, "mirrored", |status| status.log_end_offset == Offset::new(4)).await;
    }
    *source.manner.lock().unwrap() = Manner::Grown;
    let topics = [TOPIC.to_owned()];
    let deadline = instant() + Duration::from_secs(20);
    while node.server.mirrors().partitions_at_source("dr", TOPIC).unwrap() != Some(3) {
        assert!(instant() < deadline, "the next round says it");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let refused = node.server.mirrors().stop_topics("dr", &topics, false).await.unwrap();
    let Err(error @ MirrorError::TopicFailed { .. }) = &refused[0].1 else { panic!("{refused:?}") };
    assert!(error.to_string().contains("3 partitions at the source, 2 of them here"), "{error}");
    let accepted = node.server.mirrors().stop_topics("dr", &topics, true).await.unwrap();
    assert!(accepted[0].1.is_ok(), "{accepted:?}");
    for index in 0..2 {
        until(&node, index, "STOPPED", |status| status.state == MirrorPartitionState::Stopped).await;
    }
    assert!(node.server.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_has_one_mirror_also_while_and_after_it_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("b")).await;
    let source = HostileSource::start(Manner::Good).await;
    mirror_of(&node, "dr", source.port).await;
    let address = ("bootstrap.servers".to_owned(), Some(format!("127.0.0.1:{}", source.port)));
    let mirrors = Arc::clone(node.server.mirrors());
    mirrors.create("other", [address]).await.unwrap();
    let topics = [TOPIC.to_owned()];
    let refused = async || {
        let started = mirrors.start_topics("other", &topics, &[]).await.unwrap();
        let [(_, Err(MirrorError::TopicInOtherMirror { mirror, .. }))] = &started[..] else {
            panic!("{started:?}")
        };
        assert_eq!(mirror, "dr");
    };
    refused().await;
    // Started twice by its own mirror is no error, nor is stopped twice.
    assert!(mirrors.start_topics("dr", &topics, &[]).await.unwrap()[0].1.is_ok());
    for _ in 0..2 {
        assert!(mirrors.stop_topics("dr", &topics, false).await.unwrap()[0].1.is_ok());
        // A stop that is under way is not turned round by another mirror's start.
        refused().await;
    }
    for index in 0..2 {
        until(&node, index, "STOPPED", |status| status.state == MirrorPartitionState::Stopped).await;
    }
    refused().await;
    assert!(node.connect().await.produce(TOPIC, batch(&["ours"]), -1).await.error_code.is_none());
    assert!(node.server.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_is_taken_in_front_of_the_barrier_however_hard_clients_try() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("b")).await;
    let source = HostileSource::start(Manner::Good).await;
    mirror_of(&node, "dr", source.port).await;
    until(&node, 0, "mirrored", |status| status.log_end_offset == Offset::new(4)).await;
    let mut producers = Vec::new();
    for number in 0..4_i16 {
        let mut client = node.connect().await;
        producers.push(tokio::spawn(async move {
            let mut offsets = Vec::new();
            while offsets.len() < 5 {
                let acks = if number % 2 == 0 { -1 } else { 1 };
                let answer = client.produce(TOPIC, batch(&["client"]), acks).await;
                match answer.error_code {
                    ErrorCode::NONE => offsets.push(answer.base_offset),
                    code => assert_eq!(code, ErrorCode::POLICY_VIOLATION),
                }
            }
            offsets
        }));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    node.server.mirrors().stop_topics("dr", &[TOPIC.to_owned()], false).await.unwrap();
    let status = until(&node, 0, "STOPPED", |status| status.state == MirrorPartitionState::Stopped).await;
    assert_eq!(status.barrier_offset, Offset::new(4));
    for producer in producers {
        assert!(producer.await.unwrap().iter().all(|offset| *offset > 4));
    }
    assert!(node.server.stop().await);
}

/// What a consumer is told that has read batches of this leader epoch, and asks where it ended.
async fn end_of_epoch(client: &mut Client, epoch: i32) -> (ErrorCode, i64) {
    let mut partition = OffsetForLeaderPartition::default();
    (partition.current_leader_epoch, partition.leader_epoch) = (-1, epoch);
    let mut topic = OffsetForLeaderTopic::default();
    topic.topic = StrBytes::from(TOPIC);
    topic.partitions.push(partition);
    let mut request = OffsetForLeaderEpochRequest::default();
    request.replica_id = -1;
    request.topics.push(topic);
    let response = client.call(&request).await;
    let found = &response.topics[0].partitions[0];
    (ErrorCode::new(found.error_code), found.end_offset)
}

/// N-FAIL-1: a consumer that was told "out of range" once starts over, or at the end, or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_ahead_of_a_mirror_is_not_sent_away_before_the_end_is_final() {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::start(&dir.path().join("b")).await;
    let source = HostileSource::start(Manner::Good).await;
    mirror_of(&node, "dr", source.port).await;
    let mut client = node.connect().await;
    // From its first moment on, before anything was fetched, until it is stopped.
    let ahead = fetch_request(TOPIC, 1_000);
    let mut of_a_follower = ahead.clone();
    of_a_follower.topics[0].partitions[0].last_fetched_epoch = 77;
    let deadline = instant() + Duration::from_secs(20);
    loop {
        let (_, statuses) = node.server.mirrors().describe("dr").unwrap();
        for request in [&ahead, &of_a_follower] {
            let code = client.fetch(request).await.error_code;
            assert_eq!(code, ErrorCode::NOT_LEADER_OR_FOLLOWER, "{:?}", statuses[0].state);
        }
        // "Not known" would make it think that what it has read was cut.
        let (code, end) = end_of_epoch(&mut client, 77).await;
        assert_eq!((code, end), (ErrorCode::UNKNOWN_LEADER_EPOCH, -1), "{:?}", statuses[0].state);
        if statuses[0].log_end_offset == Offset::new(4) {
            break;
        }
        assert!(instant() < deadline, "{statuses:?}");
    }
    node.server.mirrors().stop_topics("dr", &[TOPIC.to_owned()], false).await.unwrap();
    until(&node, 0, "STOPPED", |status| status.state == MirrorPartitionState::Stopped).await;
    assert_eq!(client.fetch(&ahead).await.error_code, ErrorCode::OFFSET_OUT_OF_RANGE, "now it is true");
    assert_eq!(end_of_epoch(&mut client, i32::MAX).await, (ErrorCode::NONE, -1), "and so is this");
    assert!(node.server.stop().await);
}

#[tokio::test]
async fn a_connection_without_a_request_gives_its_place_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let set = ["connections.max.idle.ms=400", "max.connections=3"];
    let node = TestNode::start_with(&dir.path().join("data"), &set).await;
    let mut silent = node.raw().await;
    let mut begun = node.raw().await;
    begun.send(&[0, 0]).await;
    let mut busy = node.raw().await;
    for request in 0..8 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        busy.request(18, 0, request, &[]).await;
        busy.frame().await;
    }
    silent.closed().await;
    begun.closed().await;
    // There is room again, and who speaks is kept.
    let mut next = node.raw().await;
    next.request(18, 0, 1, &[]).await;
    assert!(!next.frame().await.is_empty());
    busy.request(18, 0, 9, &[]).await;
    busy.frame().await;
}

// --- things in the place of others ---

fn weir_beside(data: &Path) -> std::path::PathBuf {
    let mut name = data.file_name().unwrap().to_owned();
    name.push(".weir");
    data.with_file_name(name)
}

#[tokio::test]
async fn a_metadata_store_that_is_none_refuses_the_start_and_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut process = Process::start(&data);
    let mut client = process.connect().await;
    client.create_topic("t", 1, &[]).await;
    assert!(client.produce("t", batch(&["kept"]), -1).await.error_code.is_none());
    process.signal(Signal::TERM);
    assert!(process.wait().success());
    let store = weir_beside(&data).join("metadata.redb");
    let whole = std::fs::read(&store).unwrap();
    let log = data.join("t-0/00000000000000000000.log");
    let before = std::fs::read(&log).unwrap();
    let mut flipped = whole.clone();
    // The header page; what is behind it is checked by the store's own sums.
    for byte in &mut flipped[..64] {
        *byte ^= 0x5a;
    }
    for (what, bytes) in [
        ("missing", None),
        ("empty", Some(Vec::new())),
        ("zeros", Some(vec![0; whole.len()])),
        ("half", Some(whole[..whole.len() / 2].to_vec())),
        ("another file", Some(b"not a store".to_vec())),
        ("spoiled", Some(flipped)),
    ] {
        match &bytes {
            Some(bytes) => std::fs::write(&store, bytes).unwrap(),
            None => std::fs::remove_file(&store).unwrap(),
        }
        let (code, error) = serve_fails(&data, &[]);
        assert_eq!(code, 1, "{what}: {error}");
        assert!(error.contains("error: ") && error.contains("metadata store"), "{what}: {error}");
        assert!(error.contains("help: restore"), "{what}: {error}");
        assert!(!error.contains("panicked"), "{what}: {error}");
        assert_eq!(std::fs::read(&log).unwrap(), before, "{what}");
        assert_eq!(store.exists(), bytes.is_some(), "{what}: none was made anew");
        assert!(data.join(MARKER).exists(), "{what}: the marker of the clean stop still counts");
    }
    std::fs::write(&store, &whole).unwrap();
    let process = Process::start(&data);
    assert_eq!(process.connect().await.values("t", 0).await, ["kept"]);
}

#[test]
fn a_file_in_the_place_of_weirs_own_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::write(weir_beside(&data), b"a letter").unwrap();
    let (code, error) = serve_fails(&data, &[]);
    assert_eq!(code, 1, "{error}");
    let kinds = |word: &str| error.lines().any(|line| line.starts_with(word));
    assert!(kinds("error: ") && kinds("help: ") && error.contains("data.weir"), "{error}");
    assert_eq!(std::fs::read(weir_beside(&data)).unwrap(), b"a letter");
    // Out of the way, the start works: nothing half was left that it would stumble over.
    std::fs::remove_file(weir_beside(&data)).unwrap();
    drop(Process::start(&data));
}

#[tokio::test]
async fn a_file_in_the_place_of_a_partition_takes_that_one_offline() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut process = Process::start(&data);
    let mut client = process.connect().await;
    for topic in ["gone", "kept"] {
        client.create_topic(topic, 1, &[]).await;
        assert!(client.produce(topic, batch(&[topic]), -1).await.error_code.is_none());
    }
    process.signal(Signal::TERM);
    assert!(process.wait().success());
    std::fs::rename(data.join("gone-0"), dir.path().join("aside")).unwrap();
    std::fs::write(data.join("gone-0"), b"a letter").unwrap();
    let mut process = Process::start(&data);
    let mut client = process.connect().await;
    assert_eq!(client.values("kept", 0).await, ["kept"]);
    assert_eq!(client.fetch(&fetch_request("gone", 0)).await.error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    let refused = client.produce("gone", batch(&["no"]), -1).await;
    assert_eq!(refused.error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    process.signal(Signal::TERM);
    process.wait();
    assert_eq!(std::fs::read(data.join("gone-0")).unwrap(), b"a letter");
    std::fs::remove_file(data.join("gone-0")).unwrap();
    std::fs::rename(dir.path().join("aside"), data.join("gone-0")).unwrap();
    let process = Process::start(&data);
    assert_eq!(process.connect().await.values("gone", 0).await, ["gone"]);
}

// --- signals and losses at a start ---

#[tokio::test]
async fn a_start_that_is_ended_on_its_way_leaves_no_marker_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut process = Process::start(&data);
    let mut client = process.connect().await;
    client.create_topic("t", 4, &[]).await;
    let value = "x".repeat(100_000);
    for _ in 0..100 {
        assert!(client.produce("t", batch(&[&value]), -1).await.error_code.is_none());
    }
    process.signal(Signal::KILL);
    process.wait();
    let mut ended_early = 0;
    for wait in 0..40 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let deadline = instant() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() {
            assert!(instant() < deadline, "a start does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!error.contains("panicked"), "{error}");
        if output.stdout.is_empty() {
            // Before the handlers were there the signal itself ended it; afterwards it was heard.
            assert!(output.status.code().is_none_or(|code| code == 0), "{:?} {error}", output.status);
            // What was loaded whole by then is closed as by every stop.
            let loaded = error.matches("log recovered").count();
            let clean = std::fs::remove_file(data.join(MARKER)).is_ok();
            assert!(!clean || loaded == 4, "not whole, so not clean: {error}");
            ended_early += usize::from(!clean);
        } else {
            // It came up whole, and ended as every node does.
            assert!(output.status.success(), "{error}");
            std::fs::remove_file(data.join(MARKER)).unwrap();
        }
    }
    assert!(ended_early > 0, "no start was ended early");
    let process = Process::start(&data);
    assert_eq!(process.connect().await.values("t", 0).await.len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_partition_that_lost_its_barrier_takes_no_write_from_its_first_moment() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("b");
    let node = TestNode::start(&data).await;
    let source = HostileSource::start(Manner::Good).await;
    mirror_of(&node, "dr", source.port).await;
    for index in 0..2 {
        until(&node, index, "mirrored", |status| status.log_end_offset == Offset::new(4)).await;
    }
    node.server.mirrors().stop_topics("dr", &[TOPIC.to_owned()], false).await.unwrap();
    for index in 0..2 {
        until(&node, index, "STOPPED", |status| status.state == MirrorPartitionState::Stopped).await;
    }
    node.server.stop().await;
    // A disk that lied: the barrier, in a segment of its own since the data is older by the clock,
    // is not there after the power came back.
    let [first, second] = good_log();
    std::fs::write(data.join("orders-0/00000000000000000004.log"), b"").unwrap();
    std::fs::remove_file(data.join(MARKER)).unwrap();
    std::fs::remove_file(data.join("recovery-point-offset-checkpoint")).unwrap();
    for _ in 0..2 {
        let node = TestNode::start(&data).await;
        let mut client = node.connect().await;
        let refused = client.produce(TOPIC, batch(&["no"]), -1).await;
        assert_eq!(refused.error_code, ErrorCode::POLICY_VIOLATION, "{:?}", refused.error_message);
        let status = until(&node, 0, "FAILED", |status| status.state == MirrorPartitionState::Failed).await;
        let why = status.attention.expect("says why");
        assert!(why.contains('4') && why.contains('5'), "both numbers: {why}");
        // Only with a word more is it writable, and only behind a barrier.
        let refused = node.server.mirrors().stop_topics("dr", &[TOPIC.to_owned()], false).await.unwrap();
        assert!(matches!(&refused[0].1, Err(MirrorError::TopicFailed { .. })), "{refused:?}");
        assert_eq!(bytes_of(&mut client, 0).await.len(), first.len() + second.len());
        node.server.stop().await;
    }
    let node = TestNode::start(&data).await;
    until(&node, 0, "FAILED", |status| status.state == MirrorPartitionState::Failed).await;
    let accepted = node.server.mirrors().stop_topics("dr", &[TOPIC.to_owned()], true).await.unwrap();
    assert!(accepted[0].1.is_ok(), "{accepted:?}");
    let status = until(&node, 0, "STOPPED", |status| status.state == MirrorPartitionState::Stopped).await;
    assert_eq!(status.barrier_offset, Offset::new(4));
    let landed = node.connect().await.produce(TOPIC, batch(&["ours"]), -1).await;
    assert_eq!((landed.error_code, landed.base_offset), (ErrorCode::NONE, 5));
    assert!(node.server.stop().await);
}
