//! Every key that the node knows: Kafka's names, and `weir.*` for what Kafka does not have.

/// What values a key takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A 32-bit number in this range.
    Int(i64, i64),
    /// A 64-bit number in this range.
    Long(i64, i64),
    /// A number with a fraction in this range.
    Double(f64, f64),
    /// Any text.
    Text,
    /// One of these.
    Choice(&'static [&'static str]),
    /// Texts with commas between them.
    List,
    /// A list of these.
    ListOf(&'static [&'static str]),
}

impl Kind {
    /// Why `value` is not one for this kind; `None` if it is.
    pub fn refuses(self, value: &str) -> Option<String> {
        let number = |low: i64, high: i64| match value.parse::<i64>() {
            Err(_) => Some("is not a whole number".to_owned()),
            Ok(number) if number < low || number > high => {
                Some(if high == i64::MAX || high == i64::from(i32::MAX) {
                    format!("must be at least {low}")
                } else {
                    format!("must be between {low} and {high}")
                })
            }
            Ok(_) => None,
        };
        match self {
            Self::Bool if !matches!(value, "true" | "false") => Some("must be true or false".to_owned()),
            Self::Int(low, high) | Self::Long(low, high) => number(low, high),
            Self::Double(low, high) => match value.parse::<f64>() {
                Ok(number) if number >= low && number <= high => None,
                _ => Some(format!("must be a number between {low} and {high}")),
            },
            Self::Choice(choices) if !choices.contains(&value) => {
                Some(format!("must be one of {}", choices.join(", ")))
            }
            Self::ListOf(choices) => {
                let wrong = value.split(',').map(str::trim).find(|part| !choices.contains(part));
                wrong.map(|_| format!("must be a list of {}", choices.join(", ")))
            }
            _ => None,
        }
    }

    /// Kafka's number for the type, as DescribeConfigs sends it.
    ///
    /// Kafka: `ConfigEntry.ConfigType`.
    pub fn describe_type(self) -> i8 {
        match self {
            Self::Bool => 1,
            Self::Text | Self::Choice(_) => 2,
            Self::Int(..) => 3,
            Self::Long(..) => 5,
            Self::Double(..) => 6,
            Self::List | Self::ListOf(_) => 7,
        }
    }
}

/// One key of the node.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its value where none is given; `None`: there is none.
    pub default: Option<&'static str>,
    /// What it takes.
    pub kind: Kind,
    /// Whether this build acts on it; Kafka's keys that it does not act on are read all the same.
    pub effective: bool,
    /// One line for people.
    pub doc: &'static str,
}

const fn key(name: &'static str, default: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, default: Some(default), kind, effective: true, doc }
}

const fn bare(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { name, default: None, kind, effective: true, doc }
}

const fn inert(name: &'static str, kind: Kind) -> Key {
    Key {
        name,
        default: None,
        kind,
        effective: false,
        doc: "Read for Kafka's sake; this build does not act on it.",
    }
}

/// A key with a value that clients may ask for, though this build does not act on it.
const fn shown(name: &'static str, default: &'static str, kind: Kind) -> Key {
    Key { default: Some(default), ..inert(name, kind) }
}

const INT: i64 = i32::MAX as i64;
const LONG: i64 = i64::MAX;

/// The node's keys, ascending by name.
pub const KEYS: &[Key] = &[
    bare("advertised.listeners", Kind::List, "Address that clients are told; the listener's own if not set."),
    key(
        "auto.create.topics.enable",
        "true",
        Kind::Bool,
        "Create a topic when a client asks for its metadata.",
    ),
    inert("auto.leader.rebalance.enable", Kind::Bool),
    bare("broker.id", Kind::Int(0, INT), "Older name of node.id."),
    key(
        "connections.max.idle.ms",
        "600000",
        Kind::Long(1, LONG),
        "Milliseconds without a request after which a connection is closed.",
    ),
    inert("controller.listener.names", Kind::List),
    inert("controller.quorum.bootstrap.servers", Kind::List),
    inert("controller.quorum.voters", Kind::List),
    shown("default.replication.factor", "1", Kind::Int(1, 32767)),
    inert("delete.topic.enable", Kind::Bool),
    inert("group.initial.rebalance.delay.ms", Kind::Int(0, INT)),
    inert("inter.broker.listener.name", Kind::Text),
    inert("inter.broker.protocol.version", Kind::Text),
    inert("listener.security.protocol.map", Kind::List),
    key("listeners", "PLAINTEXT://:9092", Kind::List, "Address to listen on; port 0 takes a free one."),
    shown("log.cleaner.delete.retention.ms", "86400000", Kind::Long(0, LONG)),
    inert("log.cleaner.enable", Kind::Bool),
    key(
        "log.cleanup.policy",
        "delete",
        Kind::ListOf(&["delete", "compact"]),
        "What is done with old segments; compact keeps them all in this build.",
    ),
    bare("log.dir", Kind::Text, "The log directory, where log.dirs is not set."),
    bare("log.dirs", Kind::List, "Log directories."),
    key(
        "log.flush.offset.checkpoint.interval.ms",
        "60000",
        Kind::Int(1000, INT),
        "Milliseconds between two writes of the recovery points.",
    ),
    key("log.index.interval.bytes", "4096", Kind::Int(0, INT), "Bytes of log between two index entries."),
    key("log.index.size.max.bytes", "10485760", Kind::Int(4, INT), "Largest size of an index, in bytes."),
    inert("log.message.format.version", Kind::Text),
    bare(
        "log.message.timestamp.after.max.ms",
        Kind::Long(0, LONG),
        "How far ahead of the clock a record's timestamp may be, in milliseconds.",
    ),
    bare(
        "log.message.timestamp.before.max.ms",
        Kind::Long(0, LONG),
        "How far behind the clock a record's timestamp may be, in milliseconds.",
    ),
    key(
        "log.message.timestamp.type",
        "CreateTime",
        Kind::Choice(&["CreateTime", "LogAppendTime"]),
        "Whose clock dates records.",
    ),
    key("log.retention.bytes", "-1", Kind::Long(-1, LONG), "Bytes of a partition that are kept; -1: all."),
    key(
        "log.retention.check.interval.ms",
        "300000",
        Kind::Long(1, LONG),
        "Milliseconds between two looks for segments to delete.",
    ),
    key("log.retention.hours", "168", Kind::Int(-1, INT), "Hours that records are kept; -1: for ever."),
    bare("log.retention.minutes", Kind::Int(-1, INT), "Minutes that records are kept."),
    bare("log.retention.ms", Kind::Long(-1, LONG), "Milliseconds that records are kept."),
    key("log.roll.hours", "168", Kind::Int(1, INT), "Hours after which a segment is rolled."),
    key(
        "log.roll.jitter.hours",
        "0",
        Kind::Int(0, INT),
        "Hours by which a segment may be rolled earlier, so that not all are together.",
    ),
    bare(
        "log.roll.jitter.ms",
        Kind::Long(0, LONG),
        "Milliseconds by which a segment may be rolled earlier, so that not all are together.",
    ),
    bare("log.roll.ms", Kind::Long(1, LONG), "Milliseconds after which a segment is rolled."),
    key(
        "log.segment.bytes",
        "1073741824",
        Kind::Int(14, INT),
        "Size at which a segment is rolled, in bytes.",
    ),
    key(
        "max.connections",
        "2147483647",
        Kind::Int(1, INT),
        "Connections that may be open at once; more wait to be accepted.",
    ),
    key(
        "message.max.bytes",
        "1048588",
        Kind::Int(0, INT),
        "Largest record batch that is taken from clients, in bytes.",
    ),
    key("min.insync.replicas", "1", Kind::Int(1, INT), "Replicas that must have an acks=all write."),
    key("node.id", "1000000", Kind::Int(0, INT), "This node's id."),
    inert("num.io.threads", Kind::Int(1, INT)),
    inert("num.network.threads", Kind::Int(1, INT)),
    key("num.partitions", "1", Kind::Int(1, INT), "Partitions of topics created without a number of them."),
    key(
        "num.recovery.threads.per.data.dir",
        "2",
        Kind::Int(1, INT),
        "Threads of each log directory that load partitions at a start and close them at a stop.",
    ),
    inert("num.replica.fetchers", Kind::Int(1, INT)),
    inert("offsets.retention.minutes", Kind::Int(1, INT)),
    inert("offsets.topic.num.partitions", Kind::Int(1, INT)),
    inert("offsets.topic.replication.factor", Kind::Int(1, 32767)),
    inert("process.roles", Kind::List),
    key(
        "producer.id.expiration.check.interval.ms",
        "600000",
        Kind::Int(1, INT),
        "Milliseconds between two looks for idle producer ids.",
    ),
    key(
        "producer.id.expiration.ms",
        "86400000",
        Kind::Int(1, INT),
        "Milliseconds after which an idle producer id is forgotten.",
    ),
    key(
        "queued.max.request.bytes",
        "-1",
        Kind::Long(-1, LONG),
        "Bytes of requests that may be in memory at once; -1: an eighth of the machine's memory.",
    ),
    inert("share.coordinator.state.topic.min.isr", Kind::Int(1, 32767)),
    inert("share.coordinator.state.topic.replication.factor", Kind::Int(1, 32767)),
    inert("socket.receive.buffer.bytes", Kind::Int(-1, INT)),
    key("socket.request.max.bytes", "104857600", Kind::Int(1024, INT), "Largest request, in bytes."),
    inert("socket.send.buffer.bytes", Kind::Int(-1, INT)),
    inert("transaction.state.log.min.isr", Kind::Int(1, INT)),
    inert("transaction.state.log.num.partitions", Kind::Int(1, INT)),
    inert("transaction.state.log.replication.factor", Kind::Int(1, 32767)),
    inert("transaction.max.timeout.ms", Kind::Int(1, INT)),
    shown("unclean.leader.election.enable", "false", Kind::Bool),
    key(
        "weir.flush",
        "acks-all",
        Kind::Choice(&["acks-all", "interval", "os"]),
        "When acks=all is answered: once synced (acks-all), or once written and synced every second (interval) or never (os).",
    ),
    bare(
        "weir.http.listener",
        Kind::Text,
        "Address of /metrics, /ready and /health; not served if it is not set.",
    ),
    key("weir.io", "auto", Kind::Choice(&["auto", "uring", "pwrite"]), "Backend for disk access."),
    key(
        "weir.max.producer.ids.per.partition",
        "-1",
        Kind::Long(-1, LONG),
        "Producer ids that a partition remembers; above it the one with the lowest last offset goes. -1: all.",
    ),
    bare("weir.metadata.dir", Kind::Text, "Directory of the metadata store; LOGDIR.weir if not set."),
    key(
        "weir.retention.future.by.file.age",
        "false",
        Kind::Bool,
        "Segments with a timestamp ahead of the clock expire by the age of their file; Kafka keeps them until then.",
    ),
    key("weir.shards", "2", Kind::Int(1, 256), "Threads that own partitions."),
    key(
        "weir.tail.bytes",
        "-1",
        Kind::Long(-1, LONG),
        "Bytes of what was appended last that are kept in memory for readers; -1: an eighth of the machine's memory.",
    ),
    inert("zookeeper.connect", Kind::Text),
    inert("zookeeper.connection.timeout.ms", Kind::Int(0, INT)),
];

/// One setting of a topic.
#[derive(Debug, Clone, Copy)]
pub struct TopicKey {
    /// Its name.
    pub name: &'static str,
    /// The node's key that is its default, if there is one.
    pub synonym: Option<&'static str>,
    /// Its value where nobody gives one.
    pub default: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// One line for people.
    pub doc: &'static str,
}

const fn topic(
    name: &'static str,
    synonym: &'static str,
    default: &'static str,
    kind: Kind,
    doc: &'static str,
) -> TopicKey {
    let synonym = if synonym.is_empty() { None } else { Some(synonym) };
    TopicKey { name, synonym, default, kind, doc }
}

/// The settings of topics, ascending by name: all of Kafka 4.4's, so that a topic of any source can
/// be described and made here with the settings that it has there.
///
/// Kafka: `TopicConfig`, `LogConfig`.
pub const TOPIC_KEYS: &[TopicKey] = &[
    topic(
        "cleanup.policy",
        "log.cleanup.policy",
        "delete",
        Kind::ListOf(&["delete", "compact"]),
        "What is done with old segments.",
    ),
    topic("compression.gzip.level", "", "-1", Kind::Int(-1, 9), "Level of gzip."),
    topic("compression.lz4.level", "", "9", Kind::Int(1, 17), "Level of lz4."),
    topic(
        "compression.type",
        "",
        "producer",
        Kind::Choice(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
        "Codec of stored batches; producer: as they come.",
    ),
    topic("compression.zstd.level", "", "3", Kind::Int(-131_072, 22), "Level of zstd."),
    topic(
        "delete.retention.ms",
        "log.cleaner.delete.retention.ms",
        "86400000",
        Kind::Long(0, LONG),
        "Milliseconds that tombstones are kept.",
    ),
    topic(
        "errors.deadletterqueue.group.enable",
        "",
        "false",
        Kind::Bool,
        "Take records that share groups gave up.",
    ),
    topic(
        "file.delete.delay.ms",
        "",
        "60000",
        Kind::Long(0, LONG),
        "Milliseconds before a deleted file is removed.",
    ),
    topic("flush.messages", "", "9223372036854775807", Kind::Long(1, LONG), "Records between forced syncs."),
    topic("flush.ms", "", "9223372036854775807", Kind::Long(0, LONG), "Milliseconds between forced syncs."),
    topic(
        "follower.replication.throttled.replicas",
        "",
        "",
        Kind::List,
        "Replicas whose copying is throttled.",
    ),
    topic(
        "index.interval.bytes",
        "log.index.interval.bytes",
        "4096",
        Kind::Int(0, INT),
        "Bytes of log between two index entries.",
    ),
    topic(
        "leader.replication.throttled.replicas",
        "",
        "",
        Kind::List,
        "Replicas whose copying is throttled.",
    ),
    topic("local.retention.bytes", "", "-2", Kind::Long(-2, LONG), "Bytes kept here of a tiered partition."),
    topic(
        "local.retention.ms",
        "",
        "-2",
        Kind::Long(-2, LONG),
        "Milliseconds kept here of a tiered partition.",
    ),
    topic(
        "max.compaction.lag.ms",
        "",
        "9223372036854775807",
        Kind::Long(1, LONG),
        "Longest wait for compaction.",
    ),
    topic(
        "max.decompressed.message.bytes",
        "",
        "2147483639",
        Kind::Int(0, INT),
        "Largest batch once decompressed.",
    ),
    topic(
        "max.message.bytes",
        "message.max.bytes",
        "1048588",
        Kind::Int(0, INT),
        "Largest record batch, in bytes.",
    ),
    topic(
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
        "3600000",
        Kind::Long(0, LONG),
        "How far ahead a timestamp may be.",
    ),
    topic(
        "message.timestamp.before.max.ms",
        "log.message.timestamp.before.max.ms",
        "9223372036854775807",
        Kind::Long(0, LONG),
        "How far back a timestamp may be.",
    ),
    topic(
        "message.timestamp.type",
        "log.message.timestamp.type",
        "CreateTime",
        Kind::Choice(&["CreateTime", "LogAppendTime"]),
        "Whose clock dates records.",
    ),
    topic(
        "min.cleanable.dirty.ratio",
        "",
        "0.5",
        Kind::Double(0.0, 1.0),
        "Share of a log that starts compaction.",
    ),
    topic("min.compaction.lag.ms", "", "0", Kind::Long(0, LONG), "Shortest wait for compaction."),
    topic(
        "min.insync.replicas",
        "min.insync.replicas",
        "1",
        Kind::Int(1, INT),
        "Replicas that acks=all needs.",
    ),
    topic("preallocate", "", "false", Kind::Bool, "Reserve the space of new segments."),
    topic("remote.copy.lag.bytes", "", "-1", Kind::Long(-1, LONG), "Bytes that tiering may lag."),
    topic("remote.copy.lag.ms", "", "0", Kind::Long(-1, LONG), "Milliseconds that tiering may lag."),
    topic("remote.log.copy.disable", "", "false", Kind::Bool, "Stop tiering."),
    topic(
        "remote.log.delete.on.disable",
        "",
        "false",
        Kind::Bool,
        "Delete tiered data when tiering is turned off.",
    ),
    topic("remote.storage.enable", "", "false", Kind::Bool, "Tier this topic."),
    topic("retention.bytes", "log.retention.bytes", "-1", Kind::Long(-1, LONG), "Bytes of a partition kept."),
    topic(
        "retention.ms",
        "log.retention.ms",
        "604800000",
        Kind::Long(-1, LONG),
        "Milliseconds that records are kept.",
    ),
    topic(
        "segment.bytes",
        "log.segment.bytes",
        "1073741824",
        Kind::Int(14, INT),
        "Size of a segment, in bytes.",
    ),
    topic(
        "segment.index.bytes",
        "log.index.size.max.bytes",
        "10485760",
        Kind::Int(4, INT),
        "Largest size of an index.",
    ),
    topic(
        "segment.jitter.ms",
        "log.roll.jitter.ms",
        "0",
        Kind::Long(0, LONG),
        "Random part of the time of a roll.",
    ),
    topic("segment.ms", "log.roll.ms", "604800000", Kind::Long(1, LONG), "Age at which a segment is rolled."),
    topic(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        "false",
        Kind::Bool,
        "Let a replica that lacks records lead.",
    ),
];

/// The key of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The topic setting of this name.
pub fn find_topic(name: &str) -> Option<&'static TopicKey> {
    TOPIC_KEYS.iter().find(|key| key.name == name)
}

/// The environment's name of a key: `log.segment.bytes` is `WEIR_LOG_SEGMENT_BYTES`, `weir.io` is
/// `WEIR_IO`.
pub fn environment_name(key: &str) -> String {
    let key = key.strip_prefix("weir.").unwrap_or(key);
    format!("WEIR_{}", key.replace(['.', '-'], "_").to_uppercase())
}

/// The known name that is nearest to `name`, if one is near enough to be meant.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.map(|candidate| (distance(name, candidate), candidate)).min()?;
    (near.0 <= 2.max(name.len() / 3)).then_some(near.1)
}

fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(128).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, from) in left.chars().take(128).enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_defaults_are_legal() {
        assert!(TOPIC_KEYS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for key in KEYS {
            let refused = key.default.and_then(|default| key.kind.refuses(default));
            assert_eq!(refused, None, "{}", key.name);
        }
        for key in TOPIC_KEYS {
            if !key.default.is_empty() {
                assert_eq!(key.kind.refuses(key.default), None, "{}", key.name);
            }
            if let Some(synonym) = key.synonym {
                assert!(find(synonym).is_some(), "{synonym}");
            }
        }
    }

    #[test]
    fn no_key_of_ours_is_a_prefix_of_another_and_environment_names_differ() {
        let ours: Vec<&str> =
            KEYS.iter().map(|key| key.name).filter(|name| name.starts_with("weir.")).collect();
        for one in &ours {
            let prefix = format!("{one}.");
            assert!(!ours.iter().any(|other| other.starts_with(&prefix)), "{one}");
        }
        let mut names: Vec<String> = KEYS.iter().map(|key| environment_name(key.name)).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(environment_name("log.segment.bytes"), "WEIR_LOG_SEGMENT_BYTES");
        assert_eq!(environment_name("weir.io"), "WEIR_IO");
    }

    #[test]
    fn a_typing_error_finds_its_key() {
        let names = || KEYS.iter().map(|key| key.name);
        assert_eq!(nearest("log.segment.byte", names()), Some("log.segment.bytes"));
        assert_eq!(nearest("num.partition", names()), Some("num.partitions"));
        assert_eq!(nearest("xyzzy", names()), None);
    }

    #[test]
    fn values_of_the_wrong_kind_are_refused() {
        let refused = |name: &str, value: &str| find(name).unwrap().kind.refuses(value);
        assert_eq!(refused("num.partitions", "3"), None);
        assert_eq!(refused("num.partitions", "0").unwrap(), "must be at least 1");
        assert_eq!(refused("num.partitions", "three").unwrap(), "is not a whole number");
        assert_eq!(refused("weir.io", "magic").unwrap(), "must be one of auto, uring, pwrite");
        assert_eq!(refused("auto.create.topics.enable", "yes").unwrap(), "must be true or false");
        assert_eq!(refused("log.cleanup.policy", "delete,compact"), None);
        assert!(refused("log.cleanup.policy", "delete,keep").is_some());
    }
}
