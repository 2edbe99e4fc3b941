//! Options, from a file, the environment and the command line, to one validated [`Config`].
//!
//! Precedence: `--set` over `WEIR_…` over the file over the default. A key that is not known is an
//! error that names the nearest one. This is the only place that reads the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub mod keys;

use keys::{KEYS, Kind, TOPIC_KEYS};

/// Why the options cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file {path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what its name says.
    #[error("the configuration file {path} cannot be understood: {reason}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where, and what is wrong.
        reason: String,
    },
    /// A key that is not one.
    #[error("unknown option {name:?} (from {origin})")]
    Unknown {
        /// The key.
        name: String,
        /// Where it was given.
        origin: String,
        /// The nearest known key.
        nearest: Option<&'static str>,
    },
    /// A value that its key does not take.
    #[error("{name}={value} (from {origin}) {reason}")]
    Value {
        /// The key.
        name: String,
        /// The value.
        value: String,
        /// Where it was given.
        origin: String,
        /// What is wrong.
        reason: String,
    },
    /// `--set` without an equals sign.
    #[error("--set {text:?} is not key=value")]
    Set {
        /// What was given.
        text: String,
    },
    /// No log directory was named.
    #[error("no log directory is named")]
    NoLogDir,
    /// An option's value is one that this build has no answer for.
    #[error("{name}={value} is not in this build: {reason}")]
    Unsupported {
        /// The key.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it lacks.
        reason: String,
    },
}

impl ConfigError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::Unknown { nearest: Some(nearest), .. } => format!("did you mean {nearest}?"),
            Self::Unknown { nearest: None, .. } => {
                "options have Kafka's names; this node's own begin with weir.".to_owned()
            }
            Self::NoLogDir => "give --data-dir DIR, or set log.dirs".to_owned(),
            Self::Set { .. } => "write --set log.segment.bytes=1073741824".to_owned(),
            Self::Read { .. } => "check the path and its permissions".to_owned(),
            Self::Parse { .. } => {
                "TOML with flat keys (\"log.segment.bytes\" = 1073741824), or Kafka's server.properties"
                    .to_owned()
            }
            Self::Value { name, .. } => match keys::find(name).and_then(|key| key.default) {
                Some(default) => format!("the default of {name} is {default}"),
                None => format!("correct {name}"),
            },
            Self::Unsupported { name, .. } => format!("change or remove {name}"),
        }
    }
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The table of defaults.
    Default,
    /// The configuration file.
    File,
    /// A variable of the environment.
    Environment,
    /// The command line.
    CommandLine,
}

/// An address to listen on or to tell clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Host name or address; empty: all addresses of this machine.
    pub host: String,
    /// Port; 0: any that is free.
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// When `acks=all` is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Once the bytes are synced.
    AcksAll,
    /// Once they are written; a sync follows within a second.
    Interval,
    /// Once they are written; the system syncs when it likes.
    Os,
}

/// The backend asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoBackend {
    /// The best that works here.
    Auto,
    /// `io_uring` or nothing.
    Uring,
    /// Plain system calls.
    Pwrite,
}

/// Everything that a node is told at its start, checked.
#[derive(Debug, Clone)]
pub struct Config {
    values: BTreeMap<&'static str, (String, Origin)>,
    /// Where to listen.
    pub listener: Address,
    /// What clients are told, if it is not the listener's own address.
    pub advertised: Option<Address>,
    /// Where those who watch the node are answered, if anywhere.
    pub http: Option<Address>,
    /// Log directories, at least one.
    pub log_dirs: Vec<PathBuf>,
    /// Directory of the metadata store.
    pub metadata_dir: PathBuf,
    /// This node's id; what the store has if it is not set.
    pub node_id: Option<i32>,
    /// Threads that own partitions.
    pub shards: usize,
    /// Threads of each log directory that load partitions at a start and close them at a stop.
    pub recovery_threads: usize,
    /// Backend for disk access.
    pub io: IoBackend,
    /// When `acks=all` is answered.
    pub flush: Flush,
    /// Largest request in bytes.
    pub max_request_bytes: usize,
    /// Bytes of requests in memory at once.
    pub queued_max_bytes: usize,
    /// Bytes of what was appended last that are kept in memory for readers.
    pub tail_bytes: u64,
    /// Connections at once.
    pub max_connections: usize,
    /// How long a connection may be without a request.
    pub max_idle: Duration,
    /// Whether asking for a topic's metadata creates it.
    pub auto_create_topics: bool,
    /// Partitions of a topic created without a number.
    pub num_partitions: i32,
    /// Time between two writes of the recovery points.
    pub checkpoint_interval: Duration,
    /// Milliseconds after which an idle producer id is forgotten.
    pub producer_id_expiration_ms: i64,
}

/// What a command line says about options.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--config FILE`.
    pub file: Option<PathBuf>,
    /// `--set key=value`, in order.
    pub set: Vec<String>,
    /// `--data-dir DIR`.
    pub data_dir: Option<PathBuf>,
    /// `--listen HOST:PORT`.
    pub listen: Option<String>,
}

impl Config {
    /// Reads the file and the environment, puts the command line on top, checks all of it.
    ///
    /// # Errors
    /// A [`ConfigError`] that says what is wrong and where it was given; nothing was tried.
    pub fn load(overrides: &Overrides) -> Result<Self, ConfigError> {
        let environment = |name: &str| {
            #[expect(clippy::disallowed_methods, reason = "configuration is read here and nowhere else")]
            let value = std::env::var(name);
            value.ok()
        };
        let mut raw = Raw::default();
        if let Some(path) = &overrides.file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
            raw.file(path, &text)?;
        }
        raw.environment(environment)?;
        raw.command_line(overrides)?;
        raw.finish()
    }

    /// The value of a key and where it came from; `None` where there is none.
    pub fn value(&self, name: &str) -> Option<(&str, Origin)> {
        if let Some((value, origin)) = self.values.get(name) {
            return Some((value, *origin));
        }
        keys::find(name).and_then(|key| key.default).map(|default| (default, Origin::Default))
    }

    /// The value of a numeric key; 0 if it has none.
    pub fn number(&self, name: &str) -> i64 {
        self.value(name).and_then(|(value, _)| value.parse().ok()).unwrap_or(0)
    }

    /// Keys that were set and that this build does not act on.
    pub fn without_effect(&self) -> impl Iterator<Item = &'static str> {
        let inert = |name: &&'static str| keys::find(name).is_some_and(|key| !key.effective);
        self.values.keys().copied().filter(inert)
    }

    /// The node's value for a setting of topics, as text, and the node's key it comes from.
    pub fn topic_default(&self, name: &str) -> Option<(String, Origin)> {
        let key = keys::find_topic(name)?;
        let scaled = |name: &str, factor: i64| {
            let (value, origin) = self.values.get(name)?;
            let value: i64 = value.parse().ok()?;
            let value = if value < 0 { -1 } else { value.saturating_mul(factor) };
            Some((value.to_string(), *origin))
        };
        // Kafka: `ServerTopicConfigSynonyms`: the finer unit wins.
        let found = match name {
            "retention.ms" => scaled("log.retention.ms", 1)
                .or_else(|| scaled("log.retention.minutes", 60_000))
                .or_else(|| scaled("log.retention.hours", 3_600_000)),
            "segment.jitter.ms" => {
                scaled("log.roll.jitter.ms", 1).or_else(|| scaled("log.roll.jitter.hours", 3_600_000))
            }
            "segment.ms" => scaled("log.roll.ms", 1).or_else(|| scaled("log.roll.hours", 3_600_000)),
            _ => key.synonym.and_then(|name| self.values.get(name)).cloned(),
        };
        Some(found.unwrap_or_else(|| (key.default.to_owned(), Origin::Default)))
    }

    /// A topic's setting as a number: the topic's own, else the node's, else the default.
    ///
    /// A value that cannot be read (a topic may carry another cluster's) counts as the default.
    pub fn topic_number(&self, configs: &BTreeMap<String, String>, name: &str) -> i64 {
        let own = configs.get(name).and_then(|value| value.parse().ok());
        let node = || self.topic_default(name).and_then(|(value, _)| value.parse().ok());
        let default = || keys::find_topic(name).and_then(|key| key.default.parse().ok());
        own.or_else(node).or_else(default).unwrap_or(0)
    }

    /// weir's own directory beside a log directory.
    pub fn side_dir(log_dir: &Path) -> PathBuf {
        let mut name = log_dir.as_os_str().to_owned();
        name.push(".weir");
        PathBuf::from(name)
    }
}

/// Values with their origins, before they are checked together.
#[derive(Debug, Default)]
struct Raw {
    values: BTreeMap<&'static str, (String, Origin)>,
}

impl Raw {
    fn put(&mut self, name: &str, value: &str, origin: Origin, from: &str) -> Result<(), ConfigError> {
        let Some(key) = keys::find(name) else {
            let nearest = keys::nearest(name, KEYS.iter().map(|key| key.name));
            return Err(ConfigError::Unknown { name: name.to_owned(), origin: from.to_owned(), nearest });
        };
        let value = value.trim();
        // An empty value in a properties file is how Kafka's samples say "not set".
        if value.is_empty() && key.default.is_none() {
            return Ok(());
        }
        if let Some(reason) = key.kind.refuses(value) {
            let (name, value) = (name.to_owned(), value.to_owned());
            return Err(ConfigError::Value { name, value, origin: from.to_owned(), reason });
        }
        self.values.insert(key.name, (value.to_owned(), origin));
        Ok(())
    }

    fn file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let properties = path.extension().is_some_and(|extension| extension == "properties");
        let pairs = if properties { parse_properties(text) } else { parse_toml(text) };
        let pairs = pairs.map_err(|reason| ConfigError::Parse { path: path.to_path_buf(), reason })?;
        let from = path.display().to_string();
        for (name, value) in pairs {
            self.put(&name, &value, Origin::File, &from)?;
        }
        Ok(())
    }

    fn environment(&mut self, read: impl Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
        for key in KEYS {
            let name = keys::environment_name(key.name);
            if let Some(value) = read(&name) {
                self.put(key.name, &value, Origin::Environment, &name)?;
            }
        }
        Ok(())
    }

    fn command_line(&mut self, overrides: &Overrides) -> Result<(), ConfigError> {
        for text in &overrides.set {
            let (name, value) =
                text.split_once('=').ok_or_else(|| ConfigError::Set { text: text.clone() })?;
            self.put(name.trim(), value, Origin::CommandLine, "--set")?;
        }
        if let Some(dir) = &overrides.data_dir {
            let value = dir.display().to_string();
            self.values.remove("log.dir");
            self.put("log.dirs", &value, Origin::CommandLine, "--data-dir")?;
        }
        if let Some(listen) = &overrides.listen {
            self.put("listeners", listen, Origin::CommandLine, "--listen")?;
        }
        Ok(())
    }

    fn text(&self, name: &str) -> Option<&str> {
        let set = self.values.get(name).map(|(value, _)| value.as_str());
        set.or_else(|| keys::find(name).and_then(|key| key.default))
    }

    fn number<T: TryFrom<i64>>(&self, name: &str) -> T {
        let value = self.text(name).and_then(|value| value.parse::<i64>().ok()).unwrap_or(0);
        T::try_from(value).ok().expect("the table of keys limits this number")
    }

    fn finish(self) -> Result<Config, ConfigError> {
        let listener = self.address("listeners")?.unwrap_or(Address { host: String::new(), port: 9092 });
        let advertised = self.address("advertised.listeners")?;
        let http = self.address("weir.http.listener")?;
        let dirs = self.text("log.dirs").or_else(|| self.text("log.dir")).unwrap_or("");
        let log_dirs: Vec<PathBuf> =
            dirs.split(',').map(str::trim).filter(|dir| !dir.is_empty()).map(absolute).collect();
        let first = log_dirs.first().ok_or(ConfigError::NoLogDir)?;
        let metadata_dir = match self.text("weir.metadata.dir") {
            Some(dir) => absolute(dir),
            None => Config::side_dir(first),
        };
        let node_id = ["node.id", "broker.id"].iter().find_map(|name| self.values.get(name));
        let node_id = node_id.and_then(|(value, _)| value.parse().ok());
        let queued: i64 = self.number("queued.max.request.bytes");
        let max_request_bytes: usize = self.number("socket.request.max.bytes");
        let queued_max_bytes = usize::try_from(queued).unwrap_or_else(|_| memory_share());
        let tail: i64 = self.number("weir.tail.bytes");
        Ok(Config {
            listener,
            advertised,
            http,
            metadata_dir,
            node_id,
            shards: self.number("weir.shards"),
            recovery_threads: self.number("num.recovery.threads.per.data.dir"),
            io: match self.text("weir.io") {
                Some("uring") => IoBackend::Uring,
                Some("pwrite") => IoBackend::Pwrite,
                _ => IoBackend::Auto,
            },
            flush: match self.text("weir.flush") {
                Some("interval") => Flush::Interval,
                Some("os") => Flush::Os,
                _ => Flush::AcksAll,
            },
            max_request_bytes,
            // One request of the largest size must always fit.
            queued_max_bytes: queued_max_bytes.max(max_request_bytes),
            tail_bytes: u64::try_from(tail).unwrap_or_else(|_| machine_memory() / 8),
            max_connections: self.number("max.connections"),
            max_idle: Duration::from_millis(self.number("connections.max.idle.ms")),
            auto_create_topics: self.text("auto.create.topics.enable") == Some("true"),
            num_partitions: self.number("num.partitions"),
            checkpoint_interval: Duration::from_millis(
                self.number("log.flush.offset.checkpoint.interval.ms"),
            ),
            producer_id_expiration_ms: self.number("producer.id.expiration.ms"),
            log_dirs,
            values: self.values,
        })
    }

    fn address(&self, name: &'static str) -> Result<Option<Address>, ConfigError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let listeners: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        let unsupported = |reason: String| ConfigError::Unsupported { name, value: text.to_owned(), reason };
        // A KRaft server.properties has a controller's listener beside the clients'.
        let is_controller = |listener: &&str| listener.starts_with("CONTROLLER://");
        let client: Vec<&str> =
            listeners.iter().copied().filter(|listener| !is_controller(listener)).collect();
        let listener = match client.as_slice() {
            [] => return Ok(None),
            [one] => *one,
            _ => return Err(unsupported("one listener is served".to_owned())),
        };
        let plain = match listener.split_once("://") {
            Some(("PLAINTEXT", rest)) => rest,
            Some((protocol, _)) => {
                return Err(unsupported(format!("only PLAINTEXT listeners are served, not {protocol}")));
            }
            None => listener,
        };
        let wrong = || ConfigError::Value {
            name: name.to_owned(),
            value: text.to_owned(),
            origin: "the options".to_owned(),
            reason: "is not HOST:PORT".to_owned(),
        };
        let (host, port) = plain.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok(Some(Address { host: host.to_owned(), port }))
    }
}

/// An eighth of the machine's memory, between 128 MiB and 4 GiB.
fn memory_share() -> usize {
    usize::try_from(machine_memory() / 8).unwrap_or(usize::MAX).clamp(128 << 20, 4 << 30)
}

/// The machine's memory in bytes, or what a container may use of it; 0 if nobody says.
fn machine_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let bytes = kib.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024);
    // "max" where there is no limit.
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    bytes.min(limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(u64::MAX))
}

fn absolute(dir: &str) -> PathBuf {
    // A trailing slash would hide the folder's own name, which its side directory is named after.
    let trimmed = dir.trim_end_matches('/');
    let path = Path::new(if trimmed.is_empty() { "/" } else { trimmed });
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Java's properties, as far as Kafka's files use them: `key=value` or `key: value`, comments,
/// lines continued with a backslash.
pub(crate) fn parse_properties(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut logical = line.trim_start().to_owned();
        if logical.is_empty() || logical.starts_with(['#', '!']) {
            continue;
        }
        while logical.ends_with('\\') {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next.trim_start()),
                None => break,
            }
        }
        let Some(split) = logical.find(['=', ':']) else {
            return Err(format!("line {}: no equals sign", number + 1));
        };
        let (name, value) = logical.split_at(split);
        pairs.push((name.trim().to_owned(), value[1..].trim().to_owned()));
    }
    Ok(pairs)
}

/// TOML, read as a flat list: tables and dotted keys are joined with dots.
fn parse_toml(text: &str) -> Result<Vec<(String, String)>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line =
            error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        format!("line {line}: {}", error.message())
    })?;
    let mut pairs = Vec::new();
    flatten("", &table, &mut pairs)?;
    Ok(pairs)
}

fn flatten(prefix: &str, table: &toml::Table, into: &mut Vec<(String, String)>) -> Result<(), String> {
    for (name, value) in table {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(table) => flatten(&name, table, into)?,
            toml::Value::Array(values) => {
                let parts: Result<Vec<String>, String> =
                    values.iter().map(|value| scalar(&name, value)).collect();
                into.push((name, parts?.join(",")));
            }
            other => {
                let value = scalar(&name, other)?;
                into.push((name, value));
            }
        }
    }
    Ok(())
}

fn scalar(name: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        _ => Err(format!("{name} is neither text, number, truth value nor a list of them")),
    }
}

/// Whether `configs` are settings that a topic can have: what is wrong with the first that is not.
///
/// Kafka: `LogConfig.validate`.
///
/// # Errors
/// Kafka's words for the setting that is refused.
pub fn check_topic_configs(configs: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, value) in configs {
        let Some(key) = TOPIC_KEYS.iter().find(|key| key.name == name) else {
            let nearest = keys::nearest(name, TOPIC_KEYS.iter().map(|key| key.name));
            let hint = nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
            return Err(format!("Unknown topic config name: {name}{hint}"));
        };
        if matches!(key.kind, Kind::List) && value.is_empty() {
            continue;
        }
        if let Some(reason) = key.kind.refuses(value) {
            return Err(format!("Invalid value {value} for configuration {name}: {reason}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        file: &str,
        name: &str,
        set: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Config, ConfigError> {
        let mut raw = Raw::default();
        raw.file(Path::new(name), file)?;
        raw.environment(|name| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })?;
        let set = set.iter().map(|text| (*text).to_owned()).collect();
        raw.command_line(&Overrides { set, ..Overrides::default() })?;
        raw.finish()
    }

    #[test]
    fn the_command_line_beats_the_environment_beats_the_file() {
        let file = "\"log.dirs\" = \"/a\"\n\"num.partitions\" = 2\n\"message.max.bytes\" = 10\n";
        let environment = [("WEIR_NUM_PARTITIONS", "3"), ("WEIR_LOG_SEGMENT_BYTES", "777")];
        let config = load(file, "x.toml", &["num.partitions=4"], &environment).unwrap();
        assert_eq!(config.num_partitions, 4);
        assert_eq!(config.value("num.partitions"), Some(("4", Origin::CommandLine)));
        assert_eq!(config.value("log.segment.bytes"), Some(("777", Origin::Environment)));
        assert_eq!(config.value("message.max.bytes"), Some(("10", Origin::File)));
        assert_eq!(config.value("log.index.interval.bytes"), Some(("4096", Origin::Default)));
        assert_eq!(config.value("log.retention.ms"), None);
    }

    #[test]
    fn toml_is_read_with_dotted_keys_tables_and_lists() {
        let file = "log.dirs = [\"/a\", \"/b\"]\n[weir]\nio = \"pwrite\"\nshards = 1\n";
        let config = load(file, "x.toml", &[], &[]).unwrap();
        assert_eq!(config.log_dirs, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(config.metadata_dir, PathBuf::from("/a.weir"));
        assert_eq!((config.io, config.shards), (IoBackend::Pwrite, 1));
    }

    #[test]
    fn a_server_properties_of_kafka_is_read() {
        let file = "# The role\nprocess.roles=broker,controller\nnode.id=7\nlog.dirs=/tmp/kraft\n\
            listeners=PLAINTEXT://:9092,CONTROLLER://:9093\nlog.retention.hours=168\n\
            log.segment.bytes = 10\\\n   24\nadvertised.listeners=PLAINTEXT://localhost:9092\n";
        let config = load(file, "server.properties", &[], &[]).unwrap();
        assert_eq!(config.node_id, Some(7));
        assert_eq!(config.listener, Address { host: String::new(), port: 9092 });
        assert_eq!(config.advertised.as_ref().unwrap().to_string(), "localhost:9092");
        assert_eq!(config.topic_number(&BTreeMap::new(), "segment.bytes"), 1024);
        assert_eq!(config.topic_number(&BTreeMap::new(), "retention.ms"), 604_800_000);
        let without_effect: Vec<&str> = config.without_effect().collect();
        assert_eq!(without_effect, ["process.roles"]);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error = load("", "x.toml", &["log.segment.byte=1"], &[]).unwrap_err();
        assert_eq!(error.to_string(), "unknown option \"log.segment.byte\" (from --set)");
        assert_eq!(error.help(), "did you mean log.segment.bytes?");
        let error = load("zzz = 1", "x.toml", &[], &[]).unwrap_err();
        assert_eq!(error.to_string(), "unknown option \"zzz\" (from x.toml)");
    }

    #[test]
    fn what_cannot_be_served_is_said_at_once() {
        let refused = |set: &[&str]| load("log.dirs=\"/a\"", "x.toml", set, &[]).unwrap_err().to_string();
        assert_eq!(refused(&["num.partitions=0"]), "num.partitions=0 (from --set) must be at least 1");
        assert!(refused(&["listeners=SSL://a:1"]).contains("only PLAINTEXT"));
        assert!(refused(&["listeners=PLAINTEXT://a:1,PLAINTEXT://b:2"]).contains("one listener"));
        assert!(refused(&["listeners=nowhere"]).contains("is not HOST:PORT"));
        assert!(matches!(load("", "x.toml", &[], &[]), Err(ConfigError::NoLogDir)));
        assert!(matches!(load("= 3", "x.toml", &[], &[]), Err(ConfigError::Parse { .. })));
        assert!(matches!(load("a", "x.properties", &[], &[]), Err(ConfigError::Parse { .. })));
    }

    #[test]
    fn addresses_are_read_with_and_without_protocol() {
        for (text, shown) in
            [("127.0.0.1:0", "127.0.0.1:0"), ("PLAINTEXT://[::1]:5", "[::1]:5"), (":9092", ":9092")]
        {
            let config = load("log.dirs=\"/a\"", "x.toml", &[&format!("listeners={text}")], &[]).unwrap();
            assert_eq!(config.listener.to_string(), shown);
        }
    }

    #[test]
    fn topic_settings_are_checked_with_kafkas_names() {
        let check = |name: &str, value: &str| {
            check_topic_configs(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
        };
        assert_eq!(check("retention.ms", "-1"), Ok(()));
        assert_eq!(check("follower.replication.throttled.replicas", ""), Ok(()));
        assert!(check("retention.ms", "soon").unwrap_err().contains("is not a whole number"));
        assert!(check("retention.msec", "1").unwrap_err().contains("did you mean retention.ms?"));
    }
}
