//! File and directory names, in one place. They are Kafka's.
//!
//! ```text
//! <log dir>/meta.properties  recovery-point-offset-checkpoint  log-start-offset-checkpoint
//!           replication-offset-checkpoint  .kafka_cleanshutdown
//!           <topic>-<partition>/partition.metadata  leader-epoch-checkpoint
//!                               00000000000000000000.log .index .timeindex .txnindex .snapshot
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use weir_format::Offset;

/// `recovery-point-offset-checkpoint`: up to where each partition is known to be on the disk.
pub const RECOVERY_POINT_CHECKPOINT: &str = "recovery-point-offset-checkpoint";
/// `log-start-offset-checkpoint`: each partition's log start where it is above its first segment's base.
pub const LOG_START_CHECKPOINT: &str = "log-start-offset-checkpoint";
/// `replication-offset-checkpoint`: each partition's high watermark.
pub const HIGH_WATERMARK_CHECKPOINT: &str = "replication-offset-checkpoint";
/// `leader-epoch-checkpoint`, in a partition's directory.
pub const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
/// `partition.metadata`, in a partition's directory.
pub const PARTITION_METADATA: &str = "partition.metadata";
/// `meta.properties`, in a log directory.
pub const META_PROPERTIES: &str = "meta.properties";
/// `.kafka_cleanshutdown`, in a log directory after a clean stop.
pub const CLEAN_SHUTDOWN_MARKER: &str = ".kafka_cleanshutdown";

/// Suffix of a file whose removal has begun.
pub const DELETED_SUFFIX: &str = ".deleted";
/// Suffix of a file that the cleaner has not finished.
pub const CLEANED_SUFFIX: &str = ".cleaned";
/// Suffix of a file that the cleaner has finished and not yet put in place.
pub const SWAP_SUFFIX: &str = ".swap";

/// The most characters that a topic's name has.
pub const MAX_TOPIC_NAME: usize = 249;

/// The files named by an offset in a partition's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// `.log`: the batches.
    Log,
    /// `.index`: offset to position.
    OffsetIndex,
    /// `.timeindex`: timestamp to offset.
    TimeIndex,
    /// `.txnindex`: aborted transactions.
    TransactionIndex,
    /// `.snapshot`: producer state at the offset of its name.
    Snapshot,
}

impl FileKind {
    /// Every kind.
    pub const ALL: [FileKind; 5] = [
        FileKind::Log,
        FileKind::OffsetIndex,
        FileKind::TimeIndex,
        FileKind::TransactionIndex,
        FileKind::Snapshot,
    ];

    /// Its suffix, with the dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            FileKind::Log => ".log",
            FileKind::OffsetIndex => ".index",
            FileKind::TimeIndex => ".timeindex",
            FileKind::TransactionIndex => ".txnindex",
            FileKind::Snapshot => ".snapshot",
        }
    }
}

/// How far a file is from being in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It is in place.
    Live,
    /// `.deleted`.
    Deleted,
    /// `.cleaned`.
    Cleaned,
    /// `.swap`.
    Swap,
}

/// The name of a file of a partition: `00000000000000000042.index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentFileName {
    /// The offset in the name.
    pub base_offset: Offset,
    /// What it holds.
    pub kind: FileKind,
    /// Whether it is in place.
    pub stage: Stage,
}

impl SegmentFileName {
    /// Reads a file name; `None` if it is none of these.
    ///
    /// Kafka takes any digits before the dot; so do we, and write twenty.
    pub fn parse(name: &str) -> Option<SegmentFileName> {
        let stages =
            [(DELETED_SUFFIX, Stage::Deleted), (CLEANED_SUFFIX, Stage::Cleaned), (SWAP_SUFFIX, Stage::Swap)];
        let (name, stage) = stages
            .iter()
            .find_map(|(suffix, stage)| Some((name.strip_suffix(suffix)?, *stage)))
            .unwrap_or((name, Stage::Live));
        let kind = FileKind::ALL.into_iter().find(|kind| name.ends_with(kind.suffix()))?;
        let digits = name.strip_suffix(kind.suffix())?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some(SegmentFileName { base_offset: Offset::new(digits.parse().ok()?)?, kind, stage })
    }

    /// Reads the last part of a path.
    pub fn of(path: &Path) -> Option<SegmentFileName> {
        SegmentFileName::parse(path.file_name()?.to_str()?)
    }
}

impl fmt::Display for SegmentFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Live => "",
            Stage::Deleted => DELETED_SUFFIX,
            Stage::Cleaned => CLEANED_SUFFIX,
            Stage::Swap => SWAP_SUFFIX,
        };
        write!(f, "{:020}{}{stage}", self.base_offset.get(), self.kind.suffix())
    }
}

/// The name of a file in place, twenty digits and a suffix.
pub fn file_name(base_offset: Offset, kind: FileKind) -> String {
    SegmentFileName { base_offset, kind, stage: Stage::Live }.to_string()
}

/// The path of a file in place.
pub fn file_path(dir: &Path, base_offset: Offset, kind: FileKind) -> PathBuf {
    dir.join(file_name(base_offset, kind))
}

/// A topic's partition: the name of its directory is `<topic>-<partition>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: String,
    /// The partition's number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition of a topic.
    pub fn new(topic: impl Into<String>, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Whether Kafka takes this as the name of a topic: 1 to 249 of `[a-zA-Z0-9._-]`, and neither `.` nor `..`.
pub fn is_valid_topic_name(name: &str) -> bool {
    (1..=MAX_TOPIC_NAME).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// What the name of a directory in a log directory means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryName {
    /// A partition's directory.
    Partition(TopicPartition),
    /// `<topic>-<partition>.<uuid>-delete`: the removal of a partition has begun.
    Delete(TopicPartition),
    /// `<topic>-<partition>.<uuid>-future`: a replica on its way from another log directory.
    Future(TopicPartition),
    /// `<topic>-<partition>.<uuid>-stray`: put aside, because its topic was not known.
    Stray(TopicPartition),
    /// None of Kafka's.
    Unknown,
}

impl DirectoryName {
    /// Reads the name of a directory.
    pub fn parse(name: &str) -> DirectoryName {
        if let Some(partition) = partition_of(name) {
            return DirectoryName::Partition(partition);
        }
        type Make = fn(TopicPartition) -> DirectoryName;
        let kinds: [(&str, Make); 3] = [
            ("-delete", DirectoryName::Delete),
            ("-future", DirectoryName::Future),
            ("-stray", DirectoryName::Stray),
        ];
        for (suffix, make) in kinds {
            let parts = name.strip_suffix(suffix).and_then(|name| name.rsplit_once('.'));
            if let Some((partition, _unique)) = parts
                && let Some(partition) = partition_of(partition)
            {
                return make(partition);
            }
        }
        DirectoryName::Unknown
    }
}

fn partition_of(name: &str) -> Option<TopicPartition> {
    let (topic, partition) = name.rsplit_once('-')?;
    let digits = !partition.is_empty() && partition.bytes().all(|b| b.is_ascii_digit());
    if !digits || !is_valid_topic_name(topic) {
        return None;
    }
    Some(TopicPartition::new(topic, partition.parse().ok()?))
}

/// Kafka's `Uuid`: sixteen bytes, written as 22 characters of URL-safe base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Text that is no [`Uuid`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not 22 characters of URL-safe base64")]
pub struct UuidError {
    /// What was found.
    pub found: String,
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 128 bits and 4 zero bits behind them make 22 sextets.
        let bits = u128::from_be_bytes(self.0);
        for sextet in 0..22_u32 {
            let value = if sextet < 21 { (bits >> (122 - 6 * sextet)) & 63 } else { (bits << 4) & 63 };
            let letter = usize::try_from(value).ok().and_then(|v| BASE64.get(v)).copied().unwrap_or(b'A');
            write!(f, "{}", char::from(letter))?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = UuidError;

    fn from_str(text: &str) -> Result<Uuid, UuidError> {
        let refused = || UuidError { found: text.chars().take(64).collect() };
        if text.len() != 22 {
            return Err(refused());
        }
        let mut bits: u128 = 0;
        for (place, byte) in text.bytes().enumerate() {
            let value = BASE64.iter().position(|b| *b == byte).ok_or_else(refused)?;
            let value = u128::try_from(value).map_err(|_| refused())?;
            if place < 21 {
                bits = (bits << 6) | value;
            } else {
                bits = (bits << 2) | (value >> 4);
                if value & 15 != 0 {
                    return Err(refused());
                }
            }
        }
        Ok(Uuid(bits.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn file_names_have_twenty_digits_and_kafkas_suffixes() {
        let base = Offset::new(112).unwrap();
        let names: Vec<_> = FileKind::ALL.into_iter().map(|kind| file_name(base, kind)).collect();
        assert_eq!(
            names,
            [
                "00000000000000000112.log",
                "00000000000000000112.index",
                "00000000000000000112.timeindex",
                "00000000000000000112.txnindex",
                "00000000000000000112.snapshot",
            ]
        );
        for (name, kind) in names.iter().zip(FileKind::ALL) {
            for (suffix, stage) in [
                ("", Stage::Live),
                (".deleted", Stage::Deleted),
                (".cleaned", Stage::Cleaned),
                (".swap", Stage::Swap),
            ] {
                let name = format!("{name}{suffix}");
                let parsed = SegmentFileName::parse(&name).unwrap();
                assert_eq!(parsed, SegmentFileName { base_offset: base, kind, stage });
                assert_eq!(parsed.to_string(), name);
            }
        }
    }

    #[test]
    fn names_of_nothing_of_ours_are_refused() {
        for name in [
            "",
            ".log",
            "a.log",
            "-1.log",
            "+1.log",
            "1.txt",
            "1.log.tmp",
            "99999999999999999999.log",
            "1.logs",
        ] {
            assert_eq!(SegmentFileName::parse(name), None, "{name}");
        }
        assert_eq!(SegmentFileName::parse("9223372036854775807.log").unwrap().base_offset.get(), i64::MAX);
    }

    #[test]
    fn directory_names_say_what_they_are() {
        let check =
            |name: &str, expected: DirectoryName| assert_eq!(DirectoryName::parse(name), expected, "{name}");
        check("orders-0", DirectoryName::Partition(TopicPartition::new("orders", 0)));
        check("my-topic.v1-12", DirectoryName::Partition(TopicPartition::new("my-topic.v1", 12)));
        let unique = "0123456789abcdef0123456789abcdef";
        check(&format!("a-1.{unique}-delete"), DirectoryName::Delete(TopicPartition::new("a", 1)));
        check(&format!("a-1.{unique}-future"), DirectoryName::Future(TopicPartition::new("a", 1)));
        check(&format!("a-1.{unique}-stray"), DirectoryName::Stray(TopicPartition::new("a", 1)));
        for name in ["a", "-0", "a-", "a--1x", "lost+found", "a-99999999999", "..-0", "a b-0"] {
            check(name, DirectoryName::Unknown);
        }
    }

    #[test]
    fn a_uuid_is_written_as_kafka_writes_it() {
        // From a partition.metadata written by Kafka 4.4.0.
        let text = "Wb3rH7TcQqm0P8TmWY7qLg";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!(uuid.0[..3], [0x59, 0xbd, 0xeb]);
        for bad in ["", "Wb3rH7TcQqm0P8TmWY7qL", "Wb3rH7TcQqm0P8TmWY7qL=", "Wb3rH7TcQqm0P8TmWY7qLh"] {
            assert!(bad.parse::<Uuid>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_uuid_comes_back(bytes in any::<[u8; 16]>()) {
            prop_assert_eq!(Uuid(bytes).to_string().parse::<Uuid>().unwrap(), Uuid(bytes));
        }

        #[test]
        fn no_name_panics(name in ".{0,40}") {
            let _ = SegmentFileName::parse(&name);
            let _ = DirectoryName::parse(&name);
        }
    }
}
