//! A node in this process or in its own, and a raw client.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weir_format::{
    BatchBuilder, BatchReader, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs,
};
use weir_node::config::{Config, Overrides};
use weir_node::node::Node;
use weir_node::server::{Bound, Server};
use weir_wire::client::{CallOptions, ClientConfig, Connection};
use weir_wire::fetch::{FetchPartition, FetchPartitionResponse, FetchRequest, FetchTopic};
use weir_wire::msg::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use weir_wire::msg::{CreateTopicsRequest, InitProducerIdRequest};
use weir_wire::produce::{ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceTopic};
use weir_wire::{ErrorCode, Request, StrBytes};

pub(crate) const NOW: i64 = 1_767_225_600_000;

/// The records of these tests are old.
const KEPT: &str = "log.retention.ms=-1";

/// A node in this process.
pub(crate) struct TestNode {
    pub(crate) server: Server,
}

impl TestNode {
    pub(crate) async fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[]).await
    }

    pub(crate) async fn start_with(dir: &Path, set: &[&str]) -> Self {
        let overrides = Overrides {
            data_dir: Some(dir.to_path_buf()),
            listen: Some("127.0.0.1:0".to_owned()),
            set: [KEPT].iter().chain(set).map(|text| (*text).to_owned()).collect(),
            ..Overrides::default()
        };
        Self::start_config(Config::load(&overrides).unwrap()).await
    }

    pub(crate) async fn start_config(config: Config) -> Self {
        let bound = Bound::bind(&config.listener).await.unwrap();
        let node = Node::start(config).await.unwrap();
        Self { server: Server::start(node, bound).await.unwrap() }
    }

    pub(crate) fn address(&self) -> String {
        self.server.local_addr().to_string()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(&self.address()).await
    }

    pub(crate) async fn raw(&self) -> RawClient {
        RawClient { stream: TcpStream::connect(self.address()).await.unwrap() }
    }
}

/// A node in a process of its own.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: String,
    dir: PathBuf,
}

impl Process {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    pub(crate) fn start_with(dir: &Path, set: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", dir, set)
    }

    pub(crate) fn start_at(listen: &str, dir: &Path, set: &[&str]) -> Self {
        let mut child =
            command(listen, dir, set).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(address) = line.trim_end().strip_prefix("ready ") else {
            let mut error = String::new();
            child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            panic!("no ready line but {line:?}: {error}");
        };
        // Somebody must read the log, or the node would wait for it.
        let log = child.stderr.take().unwrap();
        std::thread::Builder::new()
            .spawn(move || {
                let _ = BufReader::new(log).lines().count();
            })
            .unwrap();
        Self { address: address.to_owned(), child, dir: dir.to_path_buf() }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        assert!(self.dir.exists());
        status
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(&self.address).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(listen: &str, dir: &Path, set: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["serve", "--listen", listen, "--data-dir"]).arg(dir);
    for option in [KEPT].iter().chain(set) {
        command.args(["--set", option]);
    }
    command
}

/// Starts `weir serve` and returns when a line of its log has this text, ready or not.
pub(crate) fn serve_until_said(dir: &Path, set: &[&str], text: &str) -> (Child, String) {
    let mut command = command("127.0.0.1:0", dir, set);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "the log ends without {text:?}");
    }
    std::thread::Builder::new().spawn(move || log.lines().count()).unwrap();
    (child, line)
}

/// What a start logs until it is ready; then the node is stopped.
pub(crate) fn log_of_a_start(dir: &Path) -> String {
    let mut child = command("127.0.0.1:0", dir, &[]).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains(" ready ") {
        assert!(log.read_line(&mut said).unwrap() > 0, "{said}");
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    std::io::Read::read_to_string(&mut log, &mut said).unwrap();
    child.wait().unwrap();
    said
}

/// Runs `weir serve` where it must end by itself: exit code and standard error.
pub(crate) fn serve_fails(dir: &Path, set: &[&str]) -> (i32, String) {
    let output = command("127.0.0.1:0", dir, set).output().unwrap();
    assert!(output.stdout.is_empty(), "no ready line");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A client that says exactly what it is told to.
pub(crate) struct Client {
    pub(crate) connection: Connection,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        let config = ClientConfig { request_timeout: Duration::from_secs(20), ..ClientConfig::default() };
        Self { connection: Connection::connect(&[address], &config).await.unwrap() }
    }

    pub(crate) async fn call<R: Request>(&mut self, request: &R) -> R::Response {
        self.connection.call(request).await.unwrap()
    }

    pub(crate) async fn call_at<R: Request>(&mut self, request: &R, version: i16) -> R::Response {
        let options = CallOptions { min_version: version, max_version: version, ..CallOptions::default() };
        self.connection.call_with(request, &options).await.unwrap().0
    }

    pub(crate) async fn create_topic(&mut self, name: &str, partitions: i32, configs: &[(&str, &str)]) {
        let mut request = CreateTopicsRequest::default();
        request.topics.push(creatable(name, partitions, configs));
        let response = self.call(&request).await;
        let code = ErrorCode::new(response.topics[0].error_code);
        assert!(code.is_none(), "{code} {:?}", response.topics[0].error_message);
    }

    pub(crate) async fn producer_id(&mut self) -> ProducerId {
        let mut request = InitProducerIdRequest::default();
        request.transactional_id = None;
        request.transaction_timeout_ms = 60_000;
        let response = self.call(&request).await;
        assert_eq!(response.error_code, 0);
        ProducerId::new(response.producer_id).unwrap()
    }

    pub(crate) async fn produce(
        &mut self,
        topic: &str,
        records: BytesMut,
        acks: i16,
    ) -> ProducePartitionResponse {
        let request = produce_request(topic, 0, records.freeze(), acks);
        let response = self.call_at(&request, 12).await;
        response.topics[0].partitions[0].clone()
    }

    pub(crate) async fn fetch(&mut self, request: &FetchRequest) -> FetchPartitionResponse {
        let response = self.call_at(request, 12).await;
        assert!(response.error_code.is_none());
        assert_eq!(response.session_id, 0);
        response.topics[0].partitions[0].clone()
    }

    /// Values of all records from `from` to the high watermark.
    pub(crate) async fn values(&mut self, topic: &str, from: i64) -> Vec<String> {
        let mut values = Vec::new();
        let mut from = from;
        loop {
            let answer = self.fetch(&fetch_request(topic, from)).await;
            assert!(answer.error_code.is_none(), "{}", answer.error_code);
            let records = answer.records.unwrap();
            if records.is_empty() {
                return values;
            }
            for batch in BatchReader::new(&records) {
                let batch = batch.unwrap();
                from = batch.next_offset().get();
                for record in batch.records().unwrap() {
                    let value = record.unwrap().value.unwrap().to_vec();
                    values.push(String::from_utf8(value).unwrap());
                }
            }
        }
    }
}

pub(crate) fn creatable(name: &str, partitions: i32, configs: &[(&str, &str)]) -> CreatableTopic {
    let mut topic = CreatableTopic::default();
    topic.name = StrBytes::from(name);
    topic.num_partitions = partitions;
    topic.replication_factor = 1;
    for (name, value) in configs {
        let mut config = CreatableTopicConfig::default();
        config.name = StrBytes::from(*name);
        config.value = Some(StrBytes::from(*value));
        topic.configs.push(config);
    }
    topic
}

pub(crate) fn produce_request(topic: &str, index: i32, records: Bytes, acks: i16) -> ProduceRequest {
    ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 10_000,
        topics: vec![ProduceTopic {
            name: StrBytes::from(topic),
            partitions: vec![ProducePartition { index, records: Some(records) }],
            ..Default::default()
        }],
    }
}

pub(crate) fn fetch_request(topic: &str, from: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        topics: vec![FetchTopic {
            name: StrBytes::from(topic),
            partitions: vec![FetchPartition {
                fetch_offset: from,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A batch without a producer.
pub(crate) fn batch(values: &[&str]) -> BytesMut {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder = builder.record(TimestampMs::new(NOW), None, Some(value.as_bytes()));
    }
    builder.build().unwrap()
}

/// A batch of an idempotent producer.
pub(crate) fn idempotent(id: ProducerId, epoch: i16, sequence: i32, values: &[&str]) -> BytesMut {
    let epoch = ProducerEpoch::new(epoch).unwrap();
    let mut builder = BatchBuilder::new().producer(id, epoch, Sequence::new(sequence));
    for value in values {
        builder = builder.record(TimestampMs::new(NOW), None, Some(value.as_bytes()));
    }
    builder.build().unwrap()
}

/// Base offset and leader epoch of each batch of a record set.
pub(crate) fn offsets_and_epochs(records: &[u8]) -> Vec<(Offset, Option<LeaderEpoch>)> {
    BatchReader::new(records)
        .map(|batch| batch.map(|batch| (batch.base_offset(), batch.leader_epoch())).unwrap())
        .collect()
}

/// Bytes over a socket.
pub(crate) struct RawClient {
    pub(crate) stream: TcpStream,
}

impl RawClient {
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends a header alone: API, version, correlation id, no client id; then `body`.
    pub(crate) async fn request(&mut self, api: i16, version: i16, correlation: i32, body: &[u8]) {
        let mut frame = Vec::new();
        frame.extend_from_slice(&api.to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&correlation.to_be_bytes());
        frame.extend_from_slice(&(-1_i16).to_be_bytes());
        frame.extend_from_slice(body);
        let size = i32::try_from(frame.len()).unwrap();
        let mut bytes = size.to_be_bytes().to_vec();
        bytes.extend(frame);
        self.send(&bytes).await;
    }

    pub(crate) async fn frame(&mut self) -> Vec<u8> {
        let size = self.stream.read_i32().await.unwrap();
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        self.stream.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    /// Waits until the node closes the connection; fails if it sends anything first.
    pub(crate) async fn closed(&mut self) {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_secs(5), self.stream.read(&mut byte)).await;
        match read.expect("the connection is closed in time") {
            Ok(count) => assert_eq!(count, 0),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the test measures a wait")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
