//! `weir mirror`: the verbs, flags and texts of KIP-1279's `kafka-cluster-mirrors.sh`.
//!
//! Everything goes over the wire to a running node, by weir's own numbers of the KIP's APIs.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::time::Instant;
use weir_format::{BatchReader, ControlRecordType, Offset};
use weir_wire::client::{CallOptions, ClientConfig, ClientError, Connection};
use weir_wire::fetch::{FetchPartition, FetchRequest, FetchTopic};
use weir_wire::kip1279::{
    CreateClusterMirrorRequest, DeleteClusterMirrorRequest, DescribeClusterMirrorsRequest,
    DescribedMirrorPartition, ListClusterMirrorsRequest, MirrorConfig, MirrorPartitionState, MirrorTopic,
    MirrorTopicResult, StartMirrorTopic, StartMirrorTopicsRequest, StopMirrorTopicsRequest, error,
};
use weir_wire::{ErrorCode, Request, StrBytes, kip1279};

use super::Failure;
use crate::config::parse_properties;

/// How often the state of a stop is asked for.
const POLL: Duration = Duration::from_millis(50);
/// A terminal sees progress after this time, anything else a line in each [`PLAIN_PROGRESS`].
const TERMINAL_PROGRESS: Duration = Duration::from_millis(500);
const PLAIN_PROGRESS: Duration = Duration::from_secs(10);
/// Bytes of the log's end that are read at once to report a stop.
const REPORT_BYTES: i32 = 1 << 20;
/// KIP-1279: error texts in tables are cut here.
const ERROR_WIDTH: usize = 80;

/// Options of `weir mirror`.
#[derive(Debug, Args)]
pub struct Mirror {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Define a mirror of another cluster. Nothing is mirrored before `start`.
    Create(Create),
    /// Mirror topics: each is made here with the source's id, partitions and settings, read-only.
    Start(Start),
    /// Stop mirroring topics and make them writable here: position, ABORTs, barrier.
    Stop(Stop),
    /// Show the partitions of mirrors: offsets, lag, state.
    Describe(Describe),
    /// Show the mirrors.
    List(List),
    /// Forget a mirror whose topics are all stopped. The topics stay.
    Delete(Delete),
}

#[derive(Debug, Args)]
struct Node {
    /// The node to talk to; several addresses with commas are tried in order.
    #[arg(long, value_name = "HOST:PORT")]
    bootstrap_server: String,
    /// Longest wait for one answer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    request_timeout: u64,
}

#[derive(Debug, Args)]
struct Name {
    /// Name of the mirror.
    #[arg(long = "mirror", value_name = "NAME", conflicts_with = "name")]
    mirror: Option<String>,
    /// Name of the mirror.
    #[arg(value_name = "NAME", required_unless_present = "mirror")]
    name: Option<String>,
}

impl Name {
    fn get(&self) -> &str {
        self.mirror.as_deref().or(self.name.as_deref()).unwrap_or_default()
    }
}

#[derive(Debug, Args)]
struct Create {
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    name: Name,
    /// Properties of the mirror; bootstrap.servers is the source.
    #[arg(long, value_name = "FILE")]
    mirror_config: PathBuf,
}

#[derive(Debug, Args)]
struct Start {
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    name: Name,
    /// Topics, by name or pattern, with commas.
    #[arg(long, value_name = "TOPICS", value_delimiter = ',', required = true)]
    topics: Vec<String>,
    /// Topics to leave out, by name or pattern, with commas.
    #[arg(long, value_name = "TOPICS", value_delimiter = ',')]
    exclude: Vec<String>,
}

#[derive(Debug, Args)]
struct Stop {
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    name: Name,
    /// Topics, by name or pattern, with commas.
    #[arg(long, value_name = "TOPICS", value_delimiter = ',', required = true)]
    topics: Vec<String>,
    /// The mirror's name once more: needed where nobody can be asked.
    #[arg(long, value_name = "NAME")]
    confirm: Option<String>,
    /// Make topics with FAILED partitions writable, although data of the source is missing here.
    #[arg(long)]
    accept_gap: bool,
    /// Do not wait until the topics are writable.
    #[arg(long)]
    no_wait: bool,
    /// Longest wait for the topics to become writable, in seconds. The stop goes on afterwards.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

#[derive(Debug, Args)]
struct Describe {
    #[command(flatten)]
    node: Node,
    /// Name of the mirror; all of them otherwise.
    #[arg(long = "mirror", value_name = "NAME", conflicts_with = "name")]
    mirror: Option<String>,
    /// Name of the mirror; all of them otherwise.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// A JSON array, one object per partition.
    #[arg(long)]
    json: bool,
    /// Only partitions that are FAILED, with their reasons.
    #[arg(long)]
    failed: bool,
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    node: Node,
}

#[derive(Debug, Args)]
struct Delete {
    #[command(flatten)]
    node: Node,
    #[command(flatten)]
    name: Name,
}

impl Mirror {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::failed("the command cannot be started").because(&error))?;
        runtime.block_on(async {
            match self.verb {
                Verb::Create(create) => create.run().await,
                Verb::Start(start) => start.run().await,
                Verb::Stop(stop) => stop.run().await,
                Verb::Describe(describe) => describe.run().await,
                Verb::List(list) => list.run().await,
                Verb::Delete(delete) => delete.run().await,
            }
        })
    }
}

/// A connection to the node, with the node's address for messages.
struct Client {
    connection: Connection,
    address: String,
}

impl Client {
    async fn connect(node: &Node) -> Result<Self, Failure> {
        let addresses: Vec<&str> = node.bootstrap_server.split(',').map(str::trim).collect();
        let config = ClientConfig {
            client_id: "weir-mirror".to_owned(),
            request_timeout: Duration::from_secs(node.request_timeout.max(1)),
            ..ClientConfig::default()
        };
        match Connection::connect(&addresses, &config).await {
            Ok(connection) => Ok(Self { connection, address: node.bootstrap_server.clone() }),
            Err(error @ ClientError::BadAddress { .. }) => {
                Err(Failure::usage(format!("--bootstrap-server {}", node.bootstrap_server))
                    .because(&error)
                    .help("give HOST:PORT, as in localhost:9092"))
            }
            Err(error) => Err(Failure::unreachable(format!("no answer from {}", node.bootstrap_server))
                .because(&error)
                .help(
                    "is the node running, and is this its listener? weir serve prints \"ready HOST:PORT\"",
                )),
        }
    }

    async fn call<R: Request>(&mut self, request: &R, options: &CallOptions) -> Result<R::Response, Failure> {
        match self.connection.call_with(request, options).await {
            Ok((response, _)) => Ok(response),
            Err(error @ (ClientError::NotServed { .. } | ClientError::NoCommonVersion { .. })) => {
                Err(Failure::failed(format!("{} does not know mirrors", self.address))
                    .because(&error)
                    .help("weir mirror talks to a weir node, not to a Kafka broker"))
            }
            Err(error) => {
                Err(Failure::unreachable(format!("no answer from {}: it may have been done", self.address))
                    .because(&error)
                    .help("weir mirror describe shows the state"))
            }
        }
    }

    async fn ask<R: Request>(&mut self, request: &R) -> Result<R::Response, Failure> {
        self.call(request, &CallOptions::default()).await
    }

    async fn describe(&mut self, mirror: Option<&str>) -> Result<Vec<Line>, Failure> {
        let request = DescribeClusterMirrorsRequest {
            mirror_names: mirror.map(|name| vec![text(name)]),
            ..DescribeClusterMirrorsRequest::default()
        };
        let response = self.ask(&request).await?;
        refused("mirrors cannot be described", response.error_code, response.error_message.as_deref())?;
        let mut lines = Vec::new();
        for mirror in response.mirrors {
            let name = mirror.mirror_name.to_string();
            refused(
                &format!("mirror {name} cannot be described"),
                mirror.error_code,
                mirror.error_message.as_deref(),
            )?;
            for topic in mirror.topics {
                for partition in topic.partitions {
                    lines.push(Line { mirror: name.clone(), topic: topic.topic_name.to_string(), partition });
                }
            }
        }
        lines.sort_by(|a, b| {
            let key = |line: &Line| (line.mirror.clone(), line.topic.clone(), line.partition.partition_index);
            key(a).cmp(&key(b))
        });
        Ok(lines)
    }
}

/// One partition of one mirror.
struct Line {
    mirror: String,
    topic: String,
    partition: DescribedMirrorPartition,
}

impl Line {
    fn state(&self) -> &str {
        &self.partition.state_value
    }

    fn is(&self, state: MirrorPartitionState) -> bool {
        self.state() == state.name()
    }

    fn name(&self) -> String {
        format!("{}-{}", self.topic, self.partition.partition_index)
    }

    fn lag(&self) -> Option<i64> {
        let source = known(self.partition.source_offset)?;
        Some(source.saturating_sub(known(self.partition.destination_offset)?).max(0))
    }
}

/// Unknown is absent, never −1.
fn known(number: i64) -> Option<i64> {
    (number >= 0).then_some(number)
}

fn text(text: &str) -> StrBytes {
    StrBytes::from(text.to_owned())
}

fn code_name(code: ErrorCode) -> String {
    match kip1279::error_name(code) {
        Some(name) => name.to_owned(),
        None => code.to_string(),
    }
}

/// What to do about a refusal.
fn remedy(code: ErrorCode) -> &'static str {
    match code {
        error::UNKNOWN_CLUSTER_MIRROR => "weir mirror list shows the mirrors; weir mirror create makes one",
        error::CLUSTER_MIRROR_ALREADY_EXISTS => {
            "weir mirror start adds topics to it; weir mirror delete forgets it"
        }
        error::READ_ONLY_TOPIC => {
            "add --accept-gap to make it writable with what is here; what the source had beyond is then missing"
        }
        error::CLUSTER_MIRROR_NOT_EMPTY => "weir mirror stop makes them writable first",
        error::TOPIC_NOT_IN_CLUSTER_MIRROR => "weir mirror describe shows its topics",
        error::TOPIC_ALREADY_IN_CLUSTER_MIRROR => "stop it in the other mirror first",
        error::INVALID_CLUSTER_MIRROR_STATE => {
            "mirror it into another node, or delete the topic here if its data may go"
        }
        ErrorCode::NETWORK_EXCEPTION => {
            "check bootstrap.servers, and that the source's advertised listeners are reachable from this node"
        }
        ErrorCode::INVALID_CONFIG => "correct it in the file given with --mirror-config",
        ErrorCode::INCONSISTENT_TOPIC_ID => {
            "a mirrored topic has the source's id: delete the topic here if its data may go, then start again"
        }
        ErrorCode::INCONSISTENT_CLUSTER_ID => "check bootstrap.servers",
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
            "check the name; patterns are whole-name regular expressions"
        }
        ErrorCode::KAFKA_STORAGE_ERROR => "the node's log says more; check its disk",
        _ => "the node's log says more",
    }
}

fn refused(what: &str, code: ErrorCode, message: Option<&str>) -> Result<(), Failure> {
    if code.is_none() {
        return Ok(());
    }
    let mut failure = Failure::failed(what).help(remedy(code));
    let name = code_name(code);
    failure.cause = Some(message.map_or(name.clone(), |message| format!("{message} ({name})")));
    Err(failure)
}

fn print(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        // Whoever read it has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::failed("standard output cannot be written").because(&error)),
        Ok(()) => Ok(()),
    }
}

/// Says on standard error which topics were refused, and answers the names of the others.
fn sort_results(verb: &str, results: &[MirrorTopicResult]) -> (Vec<String>, usize) {
    let mut done = Vec::new();
    let mut refusals = 0;
    for result in results {
        let what = format!("topic {} was not {verb}", result.name);
        match refused(&what, result.error_code, result.error_message.as_deref()) {
            Ok(()) => done.push(result.name.to_string()),
            Err(failure) => {
                refusals += 1;
                eprintln!("{failure}");
            }
        }
    }
    (done, refusals)
}

/// 0 all, 3 some, 1 none.
fn exit_of(done: usize, refusals: usize) -> ExitCode {
    match (done, refusals) {
        (_, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(1),
        _ => ExitCode::from(3),
    }
}

impl Create {
    async fn run(self) -> Result<ExitCode, Failure> {
        let file = self.mirror_config.display();
        let properties = std::fs::read_to_string(&self.mirror_config).map_err(|error| {
            Failure::usage(format!("--mirror-config {file} cannot be read")).because(&error)
        })?;
        let pairs = parse_properties(&properties).map_err(|cause| Failure {
            cause: Some(cause),
            ..Failure::usage(format!("--mirror-config {file}"))
        })?;
        let configs = pairs
            .into_iter()
            .map(|(name, value)| MirrorConfig { name: text(&name), value: Some(text(&value)) })
            .collect();
        let name = self.name.get();
        let mut client = Client::connect(&self.node).await?;
        let response = client.ask(&CreateClusterMirrorRequest { mirror_name: text(name), configs }).await?;
        refused(
            &format!("mirror {name} was not created"),
            response.error_code,
            response.error_message.as_deref(),
        )?;
        print(&format!("Created mirror {name}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Start {
    async fn run(self) -> Result<ExitCode, Failure> {
        let name = self.name.get();
        let mut client = Client::connect(&self.node).await?;
        let topics = self
            .topics
            .iter()
            .map(|topic| StartMirrorTopic { topic_name: text(topic), ..StartMirrorTopic::default() });
        let request = StartMirrorTopicsRequest {
            mirror_name: text(name),
            topics: topics.collect(),
            exclude_patterns: self.exclude.iter().map(|pattern| text(pattern)).collect(),
            ..StartMirrorTopicsRequest::default()
        };
        let response = client.ask(&request).await?;
        let what = format!("no topic of mirror {name} was started");
        refused(&what, response.error_code, response.error_message.as_deref())?;
        let (started, refusals) = sort_results("started", &response.topics);
        if response.topics.is_empty() {
            return Err(Failure::failed(format!(
                "no topic of the source matches {}",
                self.topics.join(", ")
            ))
            .help(remedy(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)));
        }
        if !started.is_empty() {
            print(&format!("Started {} topic(s) in mirror {name}: [{}]", started.len(), started.join(", ")))?;
            eprintln!(
                "undo: weir mirror stop --mirror {name} --topics {} (makes them writable here)",
                started.join(",")
            );
        }
        Ok(exit_of(started.len(), refusals))
    }
}

impl Stop {
    async fn run(self) -> Result<ExitCode, Failure> {
        let name = self.name.get();
        self.confirm(name)?;
        let mut client = Client::connect(&self.node).await?;
        let request = StopMirrorTopicsRequest {
            mirror_name: text(name),
            topics: self.topics.iter().map(|topic| MirrorTopic { topic_name: text(topic) }).collect(),
            accept_gap: self.accept_gap,
            ..StopMirrorTopicsRequest::default()
        };
        let response = client.ask(&request).await?;
        let what = format!("no topic of mirror {name} was stopped");
        refused(&what, response.error_code, response.error_message.as_deref())?;
        let (stopping, refusals) = sort_results("stopped", &response.topics);
        if stopping.is_empty() {
            return Ok(exit_of(0, refusals.max(1)));
        }
        if self.no_wait {
            print(&format!("Stopping [{}] topic(s) in mirror {name}", stopping.join(", ")))?;
            eprintln!("they are writable once weir mirror describe shows STOPPED");
            return Ok(exit_of(stopping.len(), refusals));
        }
        let lines = self.wait(&mut client, name, &stopping).await?;
        print(&format!("Stopped [{}] topic(s) in mirror {name}", stopping.join(", ")))?;
        for line in &lines {
            print(&report(&mut client, line).await?)?;
        }
        Ok(exit_of(stopping.len(), refusals))
    }

    /// The name once more, typed or given.
    fn confirm(&self, name: &str) -> Result<(), Failure> {
        if let Some(confirmed) = &self.confirm {
            if confirmed == name {
                return Ok(());
            }
            return Err(Failure::usage(format!("--confirm {confirmed} is not the mirror's name, {name}")));
        }
        let topics = self.topics.join(", ");
        // Where the question would not be seen, nobody answers it.
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Failure::usage(format!(
                "a stop makes {topics} writable here, and was not confirmed"
            ))
            .help(format!("add --confirm {name}")));
        }
        eprintln!(
            "Mirroring of {topics} ends, and clients may write here. The source should take no more writes."
        );
        eprint!("Type the mirror's name to stop it: ");
        let mut typed = String::new();
        std::io::stdin()
            .read_line(&mut typed)
            .map_err(|error| Failure::failed("nothing was stopped: no name was read").because(&error))?;
        if typed.trim() == name {
            return Ok(());
        }
        Err(Failure::failed(format!("nothing was stopped: {:?} is not {name}", typed.trim())))
    }

    /// Waits until every partition is STOPPED, and answers them.
    async fn wait(&self, client: &mut Client, name: &str, topics: &[String]) -> Result<Vec<Line>, Failure> {
        let began = Instant::now();
        let deadline = began + Duration::from_secs(self.timeout);
        let terminal = std::io::stderr().is_terminal();
        let mut next_word = began + if terminal { TERMINAL_PROGRESS } else { PLAIN_PROGRESS };
        loop {
            let lines: Vec<Line> = client
                .describe(Some(name))
                .await?
                .into_iter()
                .filter(|line| topics.contains(&line.topic))
                .collect();
            let open: Vec<&Line> =
                lines.iter().filter(|line| !line.is(MirrorPartitionState::Stopped)).collect();
            let Some(first) = open.first() else { return Ok(lines) };
            let why = |line: &Line| {
                let reason = line.partition.error_message.as_deref().unwrap_or("under way");
                format!("{} is {}: {reason}", line.name(), line.state())
            };
            // What is FAILED stays so; what has not begun to stop yet shows its old state.
            let is_failed = |line: &&Line| line.is(MirrorPartitionState::Failed);
            if began.elapsed() > Duration::from_secs(2) && open.iter().all(is_failed) {
                let failure = Failure {
                    code: if open.len() == lines.len() { 1 } else { 3 },
                    cause: Some(open.iter().map(|line| why(line)).collect::<Vec<_>>().join("; ")),
                    ..Failure::failed(format!(
                        "{} of {} partitions cannot be stopped",
                        open.len(),
                        lines.len()
                    ))
                };
                return Err(failure.help(
                    "they stay read-only; --accept-gap makes them writable with what is here, without the rest",
                ));
            }
            let now = Instant::now();
            if now >= deadline {
                let failure = Failure {
                    cause: Some(why(first)),
                    ..Failure::unreachable(format!(
                        "{} of {} partitions are not writable after {} s",
                        open.len(),
                        lines.len(),
                        self.timeout
                    ))
                };
                return Err(failure.help(format!(
                    "the stop goes on by itself; weir mirror describe {name} shows when it is done"
                )));
            }
            if now >= next_word {
                let done = lines.len() - open.len();
                eprintln!("stopped {done}/{} partitions; {}", lines.len(), why(first));
                next_word = now + PLAIN_PROGRESS;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// What the stop wrote behind the mirrored data of a partition, read from the log itself.
async fn report(client: &mut Client, line: &Line) -> Result<String, Failure> {
    let partition = &line.partition;
    let mut words = format!("{}:", line.name());
    let barrier = known(partition.barrier_offset);
    let mut at = known(partition.last_mirror_offset).or(barrier);
    let mut aborts = 0;
    while let (Some(from), Some(end)) = (at, barrier) {
        if from > end {
            break;
        }
        let request = FetchRequest {
            max_bytes: REPORT_BYTES,
            topics: vec![FetchTopic {
                name: text(&line.topic),
                partitions: vec![FetchPartition {
                    partition: partition.partition_index,
                    fetch_offset: from,
                    partition_max_bytes: REPORT_BYTES,
                    ..FetchPartition::default()
                }],
                ..FetchTopic::default()
            }],
            ..FetchRequest::default()
        };
        // By name: topics have ids from version 13 on.
        let by_name = CallOptions { max_version: 12, ..CallOptions::default() };
        let response = client.call(&request, &by_name).await?;
        let answer = response.topics.into_iter().flat_map(|topic| topic.partitions).next();
        let Some(answer) = answer.filter(|answer| answer.error_code.is_none()) else { break };
        let records = answer.records.unwrap_or_default();
        let mut next = from;
        for batch in BatchReader::new(&records).map_while(Result::ok) {
            let offset = batch.base_offset();
            if offset.get() > end {
                break;
            }
            if batch.control_type() == Some(ControlRecordType::Abort) {
                aborts += 1;
                let id = batch.raw_producer_id();
                let _ = write!(words, " ABORT of producer {id} at {offset},");
            }
            next = batch.next_offset().get();
        }
        if next == from {
            break;
        }
        at = Some(next);
    }
    if aborts == 0 {
        words.push_str(" no open transaction,");
    }
    match barrier.and_then(Offset::new) {
        Some(offset) => {
            let _ = write!(words, " MIRROR_PID_RESET at {offset}");
        }
        None => words.push_str(" no barrier known"),
    }
    if let Some(epoch) = known(i64::from(partition.leader_epoch)) {
        let _ = write!(words, ", leader epoch {epoch}");
    }
    Ok(words)
}

impl Describe {
    async fn run(self) -> Result<ExitCode, Failure> {
        let mut client = Client::connect(&self.node).await?;
        let mut lines = client.describe(self.mirror.as_deref().or(self.name.as_deref())).await?;
        if self.failed {
            lines.retain(|line| line.is(MirrorPartitionState::Failed));
        }
        if self.json {
            print(&json(&lines))?;
        } else if lines.is_empty() {
            print(if self.failed { "No failed partitions found" } else { "No mirror partitions found" })?;
        } else if self.failed {
            print(&failed_table(&lines))?;
        } else {
            print(&table(&lines))?;
            for line in &lines {
                if let Some(reason) = &line.partition.error_message {
                    eprintln!("{} is {}: {reason}", line.name(), line.state());
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A name that does not fit is cut on the left, so that its end, which differs, stays.
fn fit(name: &str, width: usize) -> String {
    let count = name.chars().count();
    if count <= width {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(count - width.saturating_sub(3)).collect();
    format!("...{tail}")
}

fn row(cells: &[(&str, usize)]) -> String {
    let mut row = String::new();
    for (cell, width) in cells {
        let _ = write!(row, "{:<width$} ", fit(cell, *width));
    }
    row.truncate(row.trim_end().len());
    row
}

fn number(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn table(lines: &[Line]) -> String {
    let columns = |cells: [&str; 7]| {
        let widths = [30, 40, 10, 15, 18, 10, 12];
        row(&cells.into_iter().zip(widths).collect::<Vec<_>>())
    };
    let mut table = vec![columns([
        "MIRROR",
        "TOPIC",
        "PARTITION",
        "SOURCE-OFFSET",
        "DESTINATION-OFFSET",
        "LAG",
        "STATE",
    ])];
    for line in lines {
        let partition = &line.partition;
        table.push(columns([
            &line.mirror,
            &line.topic,
            &partition.partition_index.to_string(),
            &number(known(partition.source_offset)),
            &number(known(partition.destination_offset)),
            &number(line.lag()),
            line.state(),
        ]));
    }
    table.join("\n")
}

fn failed_table(lines: &[Line]) -> String {
    // RETRY is 7 wide in the KIP, and its longest word is 12 long: that one pushes.
    let columns = |cells: [&str; 3], retry: &str, error: &str| {
        let row = row(&cells.into_iter().zip([30, 40, 10]).collect::<Vec<_>>());
        format!("{row:<82} {retry:<7} {error}")
    };
    let mut table = vec![columns(["MIRROR", "TOPIC", "PARTITION"], "RETRY", "ERROR")];
    for line in lines {
        let partition = &line.partition;
        let reason = partition.error_message.as_deref().unwrap_or("-");
        let reason: String = if reason.chars().count() > ERROR_WIDTH {
            reason.chars().take(ERROR_WIDTH - 3).chain("...".chars()).collect()
        } else {
            reason.to_owned()
        };
        // Nothing is retried by itself in this version.
        let cells = [&*line.mirror, &line.topic, &partition.partition_index.to_string()];
        table.push(columns(cells, "NonRetryable", &reason));
    }
    table.join("\n")
}

fn json(lines: &[Line]) -> String {
    let items = lines.iter().map(|line| {
        let partition = &line.partition;
        serde_json::json!({
            "mirror": line.mirror,
            "topic": line.topic,
            "partition": partition.partition_index,
            "sourceOffset": known(partition.source_offset),
            "destinationOffset": known(partition.destination_offset),
            "lag": line.lag(),
            "state": line.state(),
            "retryAttempt": partition.retry_attempt,
            "errorMessage": partition.error_message.as_deref(),
            "failure": partition.failure.as_deref(),
            "lastFetchAgeMs": known(partition.last_fetch_age_ms),
            "lastMirrorEpoch": known(i64::from(partition.last_mirror_epoch)),
            "lastMirrorOffset": known(partition.last_mirror_offset),
            "barrierOffset": known(partition.barrier_offset),
            "leaderEpoch": known(i64::from(partition.leader_epoch)),
        })
    });
    let array = serde_json::Value::Array(items.collect());
    serde_json::to_string_pretty(&array).unwrap_or_else(|_| array.to_string())
}

impl List {
    async fn run(self) -> Result<ExitCode, Failure> {
        let mut client = Client::connect(&self.node).await?;
        let response = client.ask(&ListClusterMirrorsRequest::default()).await?;
        refused("mirrors cannot be listed", response.error_code, response.error_message.as_deref())?;
        if response.mirrors.is_empty() {
            print("No mirrors found")?;
            return Ok(ExitCode::SUCCESS);
        }
        let columns = |cells: [&str; 4]| row(&cells.into_iter().zip([30, 10, 26, 50]).collect::<Vec<_>>());
        print(&columns(["MIRROR", "TOPICS", "SOURCE-CLUSTER-ID", "SOURCE-BOOTSTRAP-SERVER"]))?;
        for mirror in response.mirrors {
            let id = if mirror.source_cluster_id.is_empty() { "-" } else { &mirror.source_cluster_id };
            let topics = mirror.topic_count.to_string();
            print(&columns([&mirror.mirror_name, &topics, id, &mirror.source_bootstrap]))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Delete {
    async fn run(self) -> Result<ExitCode, Failure> {
        let name = self.name.get();
        let mut client = Client::connect(&self.node).await?;
        let request =
            DeleteClusterMirrorRequest { mirror_name: text(name), ..DeleteClusterMirrorRequest::default() };
        let response = client.ask(&request).await?;
        refused(
            &format!("mirror {name} was not deleted"),
            response.error_code,
            response.error_message.as_deref(),
        )?;
        print(&format!("Deleted mirror {name}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(topic: &str, state: &str, source: i64, destination: i64, reason: Option<&str>) -> Line {
        let partition = DescribedMirrorPartition {
            state_value: text(state),
            source_offset: source,
            destination_offset: destination,
            error_message: reason.map(text),
            ..DescribedMirrorPartition::default()
        };
        Line { mirror: "dr".to_owned(), topic: topic.to_owned(), partition }
    }

    #[test]
    fn the_table_has_the_kips_columns_and_says_unknown_as_a_dash() {
        let long = "x".repeat(50);
        let lines = [line("orders", "MIRRORING", 120, 100, None), line(&long, "LOG_ALIGNMENT", -1, 0, None)];
        let table = table(&lines);
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(
            rows[0],
            format!(
                "{:<30} {:<40} {:<10} {:<15} {:<18} {:<10} STATE",
                "MIRROR", "TOPIC", "PARTITION", "SOURCE-OFFSET", "DESTINATION-OFFSET", "LAG"
            )
        );
        assert_eq!(
            rows[1],
            format!("{:<30} {:<40} {:<10} {:<15} {:<18} {:<10} MIRRORING", "dr", "orders", 0, 120, 100, 20)
        );
        assert!(rows[2].contains(&format!("...{}", "x".repeat(37))), "{}", rows[2]);
        assert!(rows[2].contains(" -               0 "), "{}", rows[2]);
    }

    #[test]
    fn the_table_of_failed_ones_has_the_reason_cut_at_eighty() {
        let lines = [line("orders", "FAILED", 9, 3, Some(&"w".repeat(100)))];
        let table = failed_table(&lines);
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(
            rows[0],
            format!("{:<30} {:<40} {:<10} {:<7} ERROR", "MIRROR", "TOPIC", "PARTITION", "RETRY")
        );
        let reason = format!("{}...", "w".repeat(77));
        assert_eq!(rows[1], format!("{:<30} {:<40} {:<10} NonRetryable {reason}", "dr", "orders", 0));
    }

    #[test]
    fn json_says_null_for_what_is_unknown() {
        let parsed: serde_json::Value =
            serde_json::from_str(&json(&[line("orders", "MIRRORING", -1, 7, None)])).expect("is JSON");
        assert_eq!(parsed[0]["sourceOffset"], serde_json::Value::Null);
        assert_eq!(parsed[0]["lag"], serde_json::Value::Null);
        assert_eq!(parsed[0]["destinationOffset"], 7);
        assert_eq!(json(&[]), "[]");
    }

    #[test]
    fn a_refusal_names_the_code_and_what_to_do() {
        let failure = refused(
            "mirror dr was not created",
            error::CLUSTER_MIRROR_ALREADY_EXISTS,
            Some("mirror dr exists"),
        )
        .expect_err("is an error");
        let said = failure.to_string();
        assert!(said.starts_with("error: mirror dr was not created\ncause: mirror dr exists (CLUSTER_MIRROR_ALREADY_EXISTS)\nhelp: "), "{said}");
        assert!(refused("x", ErrorCode::NONE, None).is_ok());
    }

    #[test]
    fn exit_codes_tell_all_from_some_and_none() {
        assert_eq!(exit_of(2, 0), ExitCode::SUCCESS);
        assert_eq!(exit_of(1, 1), ExitCode::from(3));
        assert_eq!(exit_of(0, 1), ExitCode::from(1));
    }
}
