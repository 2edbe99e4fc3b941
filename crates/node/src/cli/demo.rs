//! `weir demo`: the whole road in a few seconds, on this machine, by real processes of this executable.
//!
//! A is written to, mirrored by B and killed; B is stopped, written to, killed and restarted. Every sentence that it
//! prints as true was seen to be; it fails otherwise.

mod process;
mod story;

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_format::{
    BatchBuilder, BatchReader, ControlRecordType, LeaderEpoch, Offset, ProducerEpoch, ProducerId,
    RecordBatch, Sequence, TimestampMs,
};
use weir_log::{AppendParams, LogConfig, OpenOptions, UnifiedLog};
use weir_segment::PartitionMetadata;
use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};
use weir_segment::io::{Io, durable};
use weir_wire::client::{CallOptions, Connection};
use weir_wire::fetch::{self, FetchPartition, FetchRequest, FetchTopic};
use weir_wire::produce::{ProducePartition, ProduceRequest, ProduceTopic};
use weir_wire::{ErrorCode, StrBytes};

use super::Failure;
use crate::clock;
use crate::config::{Config, Overrides};
use crate::data_dir::DataDirs;
use crate::metadata::{Change, Topic};
use crate::uuid;
use process::ServedNode;
use story::Story;

const TOPIC: &str = "orders";
const MIRROR: &str = "demo";
/// The number that both clusters' producers have: Kafka hands ids out from 0.
const COLLIDING_ID: i64 = 5;
const COMMITTED_ID: i64 = 6;
const OPEN_ID: i64 = 7;
const COLLIDING_RECORDS: i64 = 10;

/// `weir demo`.
#[derive(Debug, clap::Args)]
pub struct Demo {}

impl Demo {
    /// Tells the story; the exit code says whether every claim held.
    ///
    /// # Errors
    /// A [`Failure`]: the story ended early.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed("cannot start the runtime"))?;
        Ok(if runtime.block_on(run())? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A failure of this kind, with its cause.
fn failed<E: std::error::Error>(what: impl Into<String>) -> impl FnOnce(E) -> Failure {
    move |source| Failure::failed(what).because(&source)
}

/// Tells the story on standard output; true if every claim held.
///
/// Everything is made in a temporary directory and gone afterwards.
///
/// # Errors
/// A [`Failure`]: the story ended early.
async fn run() -> Result<bool, Failure> {
    let terminal = std::io::stdout().is_terminal();
    #[expect(
        clippy::disallowed_methods,
        reason = "these two are about the terminal, not configuration of the node"
    )]
    let colour =
        terminal && std::env::var("NO_COLOR").is_err() && std::env::var("TERM").as_deref() != Ok("dumb");
    let executable = std::env::current_exe().map_err(failed("cannot find this executable"))?;
    let scratch = Scratch::new()?;
    let mut stdout = std::io::stdout().lock();
    tell(&mut stdout, colour, &executable, &scratch.path).await
}

/// A directory that goes with this value.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> Result<Self, Failure> {
        let id = uuid::random().map_err(failed("the system has no randomness to give"))?;
        let path = std::env::temp_dir().join(format!("weir-demo-{id}"));
        std::fs::create_dir(&path).map_err(failed(format!("cannot make {}", path.display())))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

async fn tell(out: &mut dyn Write, colour: bool, executable: &Path, dir: &Path) -> Result<bool, Failure> {
    let mut story = Story::new(out, colour);
    story.title("weir demo: one topic, two clusters, and the switch between them")?;

    story.step("Cluster A holds a topic that is still being written to")?;
    let dir_a = dir.join("a");
    let topic_id = write_source(&dir_a).await?;
    let node_a = ServedNode::start(executable, &dir_a).await?;
    story.command("weir serve --data-dir a")?;
    story.line(&format!("ready {}", node_a.address()))?;
    let mut to_a = Client::connect(&node_a, topic_id).await?;
    let source = to_a.read(fetch::READ_UNCOMMITTED).await?;
    for line in describe(&source.bytes)? {
        story.line(&line)?;
    }
    story.line(&format!(
        "log end {}, last stable offset {}",
        source.high_watermark, source.last_stable_offset
    ))?;

    story.step("Cluster B mirrors it, byte for byte")?;
    let dir_b = dir.join("b");
    let node_b = ServedNode::start(executable, &dir_b).await?;
    story.command("weir serve --data-dir b")?;
    story.line(&format!("ready {}", node_b.address()))?;
    let properties = dir.join("mirror.properties");
    std::fs::write(&properties, format!("bootstrap.servers={}\n", node_a.address()))
        .map_err(failed("cannot write the mirror's properties"))?;
    let properties = properties.to_string_lossy().into_owned();
    let b = node_b.address().to_owned();
    for (verb, rest) in [("create", ["--mirror-config", &properties]), ("start", ["--topics", TOPIC])] {
        story.command(&format!("weir mirror {verb} --mirror {MIRROR} {} {}", rest[0], file_name(rest[1])))?;
        let mut arguments = vec!["mirror", verb, "--bootstrap-server", &b, "--mirror", MIRROR];
        arguments.extend(rest);
        for line in process::run(executable, &arguments).await?.lines() {
            story.line(line)?;
        }
    }
    let mut to_b = Client::connect(&node_b, topic_id).await?;
    let mirrored = to_b.read_until(source.high_watermark).await?;
    story.claim(
        "B holds A's bytes: offsets, epochs, producer ids, CRCs",
        mirrored.bytes == source.bytes && !source.bytes.is_empty(),
        format!("{} bytes on A, {} on B, lag 0", source.bytes.len(), mirrored.bytes.len()),
    )?;
    let refused = to_b.produce(colliding_batch()?).await?;
    let unchanged = to_b.read(fetch::READ_UNCOMMITTED).await?.bytes == source.bytes;
    story.claim(
        "a mirror takes no client's write",
        refused.error_code == ErrorCode::POLICY_VIOLATION && unchanged,
        format!("{}: {}", refused.error_code, refused.message),
    )?;

    story.step("A is lost. B is switched")?;
    node_a.kill().await?;
    story.line("A: killed, with a transaction open")?;
    story.command(&format!("weir mirror stop --mirror {MIRROR} --topics {TOPIC} --confirm {MIRROR}"))?;
    let stop = ["mirror", "stop", "--bootstrap-server", &b, "--mirror", MIRROR, "--topics", TOPIC];
    let stop: Vec<&str> = stop.into_iter().chain(["--confirm", MIRROR]).collect();
    for line in process::run(executable, &stop).await?.lines() {
        story.line(line)?;
    }
    let stopped = to_b.read(fetch::READ_UNCOMMITTED).await?;
    let added = stopped.bytes.slice(source.bytes.len().min(stopped.bytes.len())..);
    for line in describe(&added)? {
        story.line(&line)?;
    }
    let abort = find_control(&added, ControlRecordType::Abort)?;
    let barrier = find_control(&added, ControlRecordType::MirrorPidReset)?;
    let end = source.high_watermark;
    story.claim(
        "the stop ended the open transaction, then wrote the barrier",
        stopped.bytes.starts_with(&source.bytes)
            && abort == Some(end)
            && barrier == Some(end + 1)
            && stopped.high_watermark == end + 2
            && stopped.last_stable_offset == end + 2,
        format!(
            "ABORT at {}, MIRROR_PID_RESET at {}, last stable offset {} = log end {}",
            or_nowhere(abort),
            or_nowhere(barrier),
            stopped.last_stable_offset,
            stopped.high_watermark
        ),
    )?;

    story.step(&format!("A new producer draws id {COLLIDING_ID}, a number that A's producer had as well"))?;
    let barrier = barrier.ok_or_else(|| Failure::failed("there is no barrier to cut before"))?;
    let cut = without_the_barrier(&dir_b.join(format!("{TOPIC}-0")), &dir.join("cut"), barrier)?;
    story.claim(
        "without the barrier its records are lost, and acknowledged",
        cut.duplicate && cut.answered < cut.end_before && cut.end_after == cut.end_before,
        format!("on a copy cut before it: answered offset {}, log end stays {}", cut.answered, cut.end_after),
    )?;
    let landed = to_b.produce(colliding_batch()?).await?;
    let written = to_b.read(fetch::READ_UNCOMMITTED).await?;
    story.claim(
        "on B they are appended",
        landed.error_code == ErrorCode::NONE
            && landed.base_offset == stopped.high_watermark
            && written.high_watermark == stopped.high_watermark + COLLIDING_RECORDS,
        format!("answered offset {}, log end {}", landed.base_offset, written.high_watermark),
    )?;

    story.step("B is killed, too, and started again")?;
    let committed = to_b.read(fetch::READ_COMMITTED).await?;
    node_b.kill().await?;
    let node_b = ServedNode::start(executable, &dir_b).await?;
    story.line("B: SIGKILL")?;
    story.command("weir serve --data-dir b")?;
    story.line(&format!("ready {}", node_b.address()))?;
    let mut to_b = Client::connect(&node_b, topic_id).await?;
    let after = to_b.read_until(written.high_watermark).await?;
    story.claim(
        "everything acknowledged is there, the same bytes",
        after.bytes == written.bytes && after.high_watermark == written.high_watermark,
        format!("{} bytes, log end {}", after.bytes.len(), after.high_watermark),
    )?;
    let committed_after = to_b.read(fetch::READ_COMMITTED).await?;
    let again = to_b.produce(colliding_batch()?).await?;
    let end_after = to_b.read(fetch::READ_UNCOMMITTED).await?.high_watermark;
    story.claim(
        "so is what was known: aborted transactions, the producer's sequence",
        committed_after.aborted == committed.aborted
            && committed_after.aborted.len() == 1
            && committed_after.last_stable_offset == committed.last_stable_offset
            && again.error_code == ErrorCode::NONE
            && again.base_offset == landed.base_offset
            && end_after == written.high_watermark,
        format!(
            "{} aborted, the producer's retry answered offset {}, log end {end_after}",
            committed_after.aborted.len(),
            again.base_offset
        ),
    )?;
    story.end()
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

fn or_nowhere(offset: Option<i64>) -> String {
    offset.map_or_else(|| "no offset".to_owned(), |offset| offset.to_string())
}

/// Formats a node's directory and fills one partition through the log itself: this build has no transaction
/// coordinator to ask.
async fn write_source(data_dir: &Path) -> Result<uuid::Uuid, Failure> {
    let overrides = Overrides { data_dir: Some(data_dir.to_path_buf()), ..Overrides::default() };
    let config = Config::load(&overrides).map_err(failed("cannot configure node A"))?;
    let mut io = PwriteIo::new(PwriteConfig::default());
    let dirs = DataDirs::open(&config, &mut io).map_err(failed("cannot format node A"))?;
    let log_dir = dirs.dirs.first().ok_or_else(|| Failure::failed("node A has no log directory"))?;
    let id = uuid::random().map_err(failed("the system has no randomness to give"))?;
    let topic =
        Topic { name: TOPIC.to_owned(), id, partitions: 1, configs: Default::default(), mirror: None };
    let dir = log_dir.path.join(format!("{TOPIC}-0"));
    let made = durable::create_dir_all(&mut io, &dir)
        .and_then(|()| PartitionMetadata { topic_id: id }.write(&mut io, &dir));
    made.map_err(failed("cannot make the partition's directory"))?;
    let change = Change { put_topics: vec![topic], ..Change::default() };
    dirs.metadata.commit(change).await.map_err(failed("cannot store the topic"))?;

    let mut log = open_log(&mut io, &dir, &data_dir.with_extension("side"))?;
    let data =
        |id, first, count, transactional, word: &str| data_batch(id, first, count, transactional, word);
    let mut append = |batch: BytesMut, coordinator: bool| {
        let epoch = LeaderEpoch::ZERO;
        let params = if coordinator {
            AppendParams::coordinator(epoch, clock::now())
        } else {
            AppendParams { may_start_transaction: true, ..AppendParams::client(epoch, clock::now()) }
        };
        log.append(&mut io, batch, &params).map_err(failed("cannot write the topic"))
    };
    append(data(COLLIDING_ID, 0, COLLIDING_RECORDS, false, "order")?, false)?;
    append(data(COMMITTED_ID, 0, 5, true, "paid")?, false)?;
    let marker = BatchBuilder::end_transaction_marker(
        true,
        producer_id(COMMITTED_ID)?,
        ProducerEpoch::ZERO,
        Some(0),
        clock::now(),
    );
    append(marker, true)?;
    append(data(OPEN_ID, 0, 3, true, "half of a payment")?, false)?;
    append(data(COLLIDING_ID, COLLIDING_RECORDS, 5, false, "order")?, false)?;
    log.close(&mut io).map_err(failed("cannot close the log"))?;
    Ok(id)
}

fn open_log(io: &mut dyn Io, dir: &Path, side_dir: &Path) -> Result<UnifiedLog, Failure> {
    let options = OpenOptions {
        side_dir: side_dir.to_path_buf(),
        clean_shutdown: false,
        recovery_point: Offset::ZERO,
        log_start_offset: Offset::ZERO,
        now: clock::now(),
    };
    let opened = UnifiedLog::open(io, dir, LogConfig::default(), options);
    opened.map(|(log, _)| log).map_err(failed(format!("cannot open {}", dir.display())))
}

/// What an append to a log without the barrier did.
struct Cut {
    answered: i64,
    duplicate: bool,
    end_before: i64,
    end_after: i64,
}

/// Copies a partition, cuts the copy before the barrier and appends the colliding batch to it.
fn without_the_barrier(partition: &Path, copy: &Path, barrier: i64) -> Result<Cut, Failure> {
    let copied = std::fs::create_dir(copy).and_then(|()| {
        for entry in std::fs::read_dir(partition)? {
            let entry = entry?;
            std::fs::copy(entry.path(), copy.join(entry.file_name()))?;
        }
        Ok(())
    });
    copied.map_err(failed("cannot copy the partition"))?;
    let mut io = PwriteIo::new(PwriteConfig::default());
    let mut log = open_log(&mut io, copy, &copy.with_extension("side"))?;
    let barrier = Offset::new(barrier).ok_or_else(|| Failure::failed("the barrier has no offset"))?;
    log.truncate_to(&mut io, barrier).map_err(failed("cannot cut the copy"))?;
    let end_before = log.log_end_offset().get();
    let epoch = log.latest_epoch().unwrap_or(LeaderEpoch::ZERO);
    let appended = log
        .append(&mut io, BytesMut::from(&colliding_batch()?[..]), &AppendParams::client(epoch, clock::now()))
        .map_err(failed("cannot append to the copy"))?;
    let end_after = log.log_end_offset().get();
    Ok(Cut { answered: appended.base_offset.get(), duplicate: appended.duplicate, end_before, end_after })
}

fn producer_id(id: i64) -> Result<ProducerId, Failure> {
    ProducerId::new(id).ok_or_else(|| Failure::failed("a producer id is not negative"))
}

fn data_batch(id: i64, first: i64, count: i64, transactional: bool, word: &str) -> Result<BytesMut, Failure> {
    let sequence = i32::try_from(first).ok().and_then(Sequence::new);
    let mut builder = BatchBuilder::new().producer(producer_id(id)?, ProducerEpoch::ZERO, sequence);
    if transactional {
        builder = builder.transactional();
    }
    for number in first..first + count {
        builder = builder.record(clock::now(), None, Some(format!("{word} {number}").as_bytes()));
    }
    builder.build().map_err(failed("cannot build a batch"))
}

/// What a producer of another cluster sends that drew the same number: the same epoch, the same sequences, other
/// records.
fn colliding_batch() -> Result<Bytes, Failure> {
    let mut builder =
        BatchBuilder::new().producer(producer_id(COLLIDING_ID)?, ProducerEpoch::ZERO, Some(Sequence::ZERO));
    for number in 0..COLLIDING_RECORDS {
        let value = format!("order {number} of another producer");
        builder = builder.record(TimestampMs::new(1_767_225_600_000), None, Some(value.as_bytes()));
    }
    Ok(builder.build().map_err(failed("cannot build a batch"))?.freeze())
}

/// One line a batch.
fn describe(bytes: &[u8]) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for batch in BatchReader::new(bytes) {
        let batch = batch.map_err(failed("the node sent an invalid batch"))?;
        let first = batch.base_offset().get();
        let last = batch.last_offset().get();
        let offsets = if first == last { first.to_string() } else { format!("{first}..{last}") };
        let epoch = batch.leader_epoch().map_or_else(|| "-".to_owned(), |epoch| epoch.to_string());
        lines.push(format!("{offsets:>8}  epoch {epoch:<5} {}", kind(&batch)));
    }
    Ok(lines)
}

fn kind(batch: &RecordBatch<'_>) -> String {
    let producer = batch.producer_id().map_or_else(String::new, |id| format!(" of producer {id}"));
    match batch.control_type() {
        Some(control) => format!("{control}{producer}"),
        None if batch.is_transactional() => {
            format!("{} records{producer}, in a transaction", batch.record_count())
        }
        None => format!("{} records{producer}", batch.record_count()),
    }
}

fn find_control(bytes: &[u8], wanted: ControlRecordType) -> Result<Option<i64>, Failure> {
    for batch in BatchReader::new(bytes) {
        let batch = batch.map_err(failed("the node sent an invalid batch"))?;
        if batch.control_type() == Some(wanted) {
            return Ok(Some(batch.base_offset().get()));
        }
    }
    Ok(None)
}

/// A raw client of one partition.
struct Client {
    connection: Connection,
    topic_id: weir_wire::Uuid,
}

/// What a node holds of the partition.
struct Held {
    bytes: Bytes,
    high_watermark: i64,
    last_stable_offset: i64,
    aborted: Vec<(i64, i64)>,
}

/// A produce response.
struct Produced {
    error_code: ErrorCode,
    message: String,
    base_offset: i64,
}

impl Client {
    async fn connect(node: &ServedNode, topic_id: uuid::Uuid) -> Result<Self, Failure> {
        Ok(Self { connection: node.connect().await?, topic_id: uuid::to_wire(topic_id) })
    }

    /// All that a reader gets, from offset 0.
    async fn read(&mut self, isolation_level: i8) -> Result<Held, Failure> {
        let mut held =
            Held { bytes: Bytes::new(), high_watermark: 0, last_stable_offset: 0, aborted: Vec::new() };
        let mut bytes = BytesMut::new();
        let mut next = 0;
        loop {
            let partition = FetchPartition {
                fetch_offset: next,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            };
            let topic = FetchTopic {
                name: StrBytes::from(TOPIC),
                topic_id: self.topic_id,
                partitions: vec![partition],
            };
            let request = FetchRequest {
                max_wait_ms: 0,
                min_bytes: 0,
                isolation_level,
                topics: vec![topic],
                ..FetchRequest::default()
            };
            let response = self.call(&request).await?;
            let answered = |code| Failure::failed(format!("the node answered a fetch with {code}"));
            if response.error_code != ErrorCode::NONE {
                return Err(answered(response.error_code));
            }
            let found = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
            let found =
                found.ok_or_else(|| Failure::failed("the node answered a fetch without the partition"))?;
            if found.error_code == ErrorCode::UNKNOWN_TOPIC_ID
                || found.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER
            {
                return Ok(held);
            }
            if found.error_code != ErrorCode::NONE {
                return Err(answered(found.error_code));
            }
            held.high_watermark = found.high_watermark;
            held.last_stable_offset = found.last_stable_offset;
            for aborted in found.aborted_transactions.unwrap_or_default() {
                held.aborted.push((aborted.producer_id, aborted.first_offset));
            }
            let records = found.records.unwrap_or_default();
            let mut reached = next;
            for batch in BatchReader::new(&records) {
                let batch = batch.map_err(failed("the node sent an invalid batch"))?;
                reached = batch.next_offset().get();
            }
            bytes.extend_from_slice(&records);
            held.bytes = bytes.clone().freeze();
            if reached == next {
                held.aborted.sort_unstable();
                held.aborted.dedup();
                return Ok(held);
            }
            next = reached;
        }
    }

    /// Reads again and again until the log reaches `end`.
    async fn read_until(&mut self, end: i64) -> Result<Held, Failure> {
        for _ in 0..1_000 {
            let held = self.read(fetch::READ_UNCOMMITTED).await?;
            if held.high_watermark >= end {
                return Ok(held);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(Failure::failed(format!("the log did not reach offset {end} in 10 seconds")))
    }

    async fn produce(&mut self, records: Bytes) -> Result<Produced, Failure> {
        let partition = ProducePartition { index: 0, records: Some(records) };
        let topic = ProduceTopic {
            name: StrBytes::from(TOPIC),
            topic_id: self.topic_id,
            partitions: vec![partition],
        };
        let request =
            ProduceRequest { transactional_id: None, acks: -1, timeout_ms: 10_000, topics: vec![topic] };
        let response = self.call(&request).await?;
        let found = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
        let found =
            found.ok_or_else(|| Failure::failed("the node answered a produce without the partition"))?;
        Ok(Produced {
            error_code: found.error_code,
            message: found.error_message.map(|message| message.to_string()).unwrap_or_default(),
            base_offset: found.base_offset,
        })
    }

    async fn call<R: weir_wire::Request>(&mut self, request: &R) -> Result<R::Response, Failure> {
        let called = self.connection.call_with(request, &CallOptions::default()).await;
        called.map(|(response, _)| response).map_err(failed("the node did not answer"))
    }
}
