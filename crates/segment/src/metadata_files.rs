//! `meta.properties`, `partition.metadata` and the clean-shutdown marker.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use bytes::Bytes;

use crate::checkpoint::ReadFileError;
use crate::io::{Io, IoError, durable};
use crate::layout::{CLEAN_SHUTDOWN_MARKER, META_PROPERTIES, PARTITION_METADATA, Uuid};

/// The largest of these files that is read, in bytes.
const MAX_SIZE: usize = 1 << 20;

/// What one of these files does not say rightly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetadataFormatError {
    /// Not text, or an escape of Java's properties that means no character.
    #[error("the file is not text")]
    NotText,
    /// A key is missing.
    #[error("{key} is missing")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A value means nothing.
    #[error("{key} is {found:?}, which means nothing")]
    Value {
        /// The key.
        key: &'static str,
        /// The value, cut at 64 characters.
        found: String,
    },
}

fn bad(key: &'static str, found: &str) -> MetadataFormatError {
    MetadataFormatError::Value { key, found: found.chars().take(64).collect() }
}

/// `partition.metadata`: which topic a partition's directory belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// The topic's id.
    pub topic_id: Uuid,
}

impl PartitionMetadata {
    /// Reads the bytes of the file.
    ///
    /// # Errors
    /// [`MetadataFormatError`].
    pub fn parse(bytes: &[u8]) -> Result<PartitionMetadata, MetadataFormatError> {
        let text = std::str::from_utf8(bytes).map_err(|_| MetadataFormatError::NotText)?;
        let value = |key: &'static str| {
            text.lines()
                .filter_map(|line| line.split_once(':'))
                .find_map(|(k, v)| (k.trim() == key).then(|| v.trim()))
                .ok_or(MetadataFormatError::Missing { key })
        };
        let version = value("version")?;
        if version != "0" {
            return Err(bad("version", version));
        }
        let id = value("topic_id")?;
        Ok(PartitionMetadata { topic_id: id.parse().map_err(|_| bad("topic_id", id))? })
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Bytes {
        Bytes::from(format!("version: 0\ntopic_id: {}", self.topic_id))
    }

    /// Reads the file of a partition's directory, if there is one.
    ///
    /// # Errors
    /// [`ReadFileError`].
    pub fn read(
        io: &mut dyn Io,
        dir: &Path,
    ) -> Result<Option<PartitionMetadata>, ReadFileError<MetadataFormatError>> {
        read(io, &dir.join(PARTITION_METADATA), PartitionMetadata::parse)
    }

    /// Replaces the file of a partition's directory durably.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write(&self, io: &mut dyn Io, dir: &Path) -> Result<(), IoError> {
        durable::replace(io, &dir.join(PARTITION_METADATA), self.encode())
    }
}

fn read<T>(
    io: &mut dyn Io,
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, MetadataFormatError>,
) -> Result<Option<T>, ReadFileError<MetadataFormatError>> {
    match durable::read_file(io, path, MAX_SIZE)? {
        None => Ok(None),
        Some(bytes) => parse(&bytes)
            .map(Some)
            .map_err(|source| ReadFileError::Format { path: path.to_path_buf(), source }),
    }
}

/// `.kafka_cleanshutdown`: the log directory was left by a clean stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanShutdown {
    /// The epoch of the broker that stopped; `None` from a Kafka before 3.7, which leaves the file empty, or where it
    /// cannot be read: the stop was clean all the same.
    pub broker_epoch: Option<i64>,
}

impl CleanShutdown {
    /// Reads the bytes of the marker; whatever is in it, it is one.
    pub fn parse(bytes: &[u8]) -> CleanShutdown {
        let text = std::str::from_utf8(bytes).unwrap_or_default();
        let epoch = text.split_once("\"brokerEpoch\"").and_then(|(_, rest)| {
            let rest = rest.trim_start().strip_prefix(':')?.trim_start();
            let end = rest.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(rest.len());
            rest.get(..end)?.parse::<i64>().ok()
        });
        CleanShutdown { broker_epoch: epoch.filter(|epoch| *epoch >= 0) }
    }

    /// The bytes of the marker, as Kafka writes them.
    pub fn encode(&self) -> Bytes {
        Bytes::from(format!("{{\"version\":0,\"brokerEpoch\":{}}}", self.broker_epoch.unwrap_or(-1)))
    }

    /// Reads the marker of a log directory, if there is one.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn read(io: &mut dyn Io, log_dir: &Path) -> Result<Option<CleanShutdown>, IoError> {
        let bytes = durable::read_file(io, &log_dir.join(CLEAN_SHUTDOWN_MARKER), MAX_SIZE)?;
        Ok(bytes.map(|bytes| CleanShutdown::parse(&bytes)))
    }

    /// Leaves the marker in a log directory, durably: the last act of a clean stop.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write(&self, io: &mut dyn Io, log_dir: &Path) -> Result<(), IoError> {
        durable::replace(io, &log_dir.join(CLEAN_SHUTDOWN_MARKER), self.encode())
    }

    /// Removes the marker durably: the first act after it was read, so that a crash while loading counts as one.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn remove(io: &mut dyn Io, log_dir: &Path) -> Result<(), IoError> {
        durable::remove(io, &log_dir.join(CLEAN_SHUTDOWN_MARKER))
    }
}

/// `meta.properties`: whose a log directory is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetaProperties {
    /// `version`: 1 today; 0 from a Kafka that used ZooKeeper.
    pub version: i32,
    /// `cluster.id`.
    pub cluster_id: Option<String>,
    /// `node.id`, in version 0 `broker.id`.
    pub node_id: Option<i32>,
    /// `directory.id`.
    pub directory_id: Option<Uuid>,
    /// Everything else that is in the file.
    pub other: BTreeMap<String, String>,
}

impl MetaProperties {
    /// Reads the bytes of the file.
    ///
    /// # Errors
    /// [`MetadataFormatError`].
    pub fn parse(bytes: &[u8]) -> Result<MetaProperties, MetadataFormatError> {
        let mut other = parse_properties(bytes)?;
        let version = other.remove("version").ok_or(MetadataFormatError::Missing { key: "version" })?;
        let version: i32 = version.parse().map_err(|_| bad("version", &version))?;
        if !(0..=1).contains(&version) {
            return Err(bad("version", &version.to_string()));
        }
        let node_key = if version == 0 { "broker.id" } else { "node.id" };
        let node_id = match other.remove(node_key) {
            None => None,
            Some(text) => {
                Some(text.parse::<i32>().ok().filter(|id| *id >= 0).ok_or_else(|| bad(node_key, &text))?)
            }
        };
        let directory_id = match other.remove("directory.id") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| bad("directory.id", &text))?),
        };
        Ok(MetaProperties { version, cluster_id: other.remove("cluster.id"), node_id, directory_id, other })
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Bytes {
        let mut all = self.other.clone();
        all.insert("version".to_string(), self.version.to_string());
        if let Some(id) = &self.cluster_id {
            all.insert("cluster.id".to_string(), id.clone());
        }
        if let Some(id) = self.node_id {
            let key = if self.version == 0 { "broker.id" } else { "node.id" };
            all.insert(key.to_string(), id.to_string());
        }
        if let Some(id) = self.directory_id {
            all.insert("directory.id".to_string(), id.to_string());
        }
        let mut text = String::new();
        for (key, value) in &all {
            escape(&mut text, key, true);
            text.push('=');
            escape(&mut text, value, false);
            text.push('\n');
        }
        Bytes::from(text)
    }

    /// Reads the file of a log directory, if there is one.
    ///
    /// # Errors
    /// [`ReadFileError`].
    pub fn read(
        io: &mut dyn Io,
        log_dir: &Path,
    ) -> Result<Option<MetaProperties>, ReadFileError<MetadataFormatError>> {
        read(io, &log_dir.join(META_PROPERTIES), MetaProperties::parse)
    }

    /// Replaces the file of a log directory durably.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write(&self, io: &mut dyn Io, log_dir: &Path) -> Result<(), IoError> {
        durable::replace(io, &log_dir.join(META_PROPERTIES), self.encode())
    }
}

/// Reads a file of Java properties: comments, continued lines, the three separators, escapes.
///
/// # Errors
/// [`MetadataFormatError::NotText`].
pub fn parse_properties(bytes: &[u8]) -> Result<BTreeMap<String, String>, MetadataFormatError> {
    let text = std::str::from_utf8(bytes).map_err(|_| MetadataFormatError::NotText)?;
    let mut found = BTreeMap::new();
    let text = text.replace("\r\n", "\n");
    let mut lines = text.split(['\n', '\r']);
    while let Some(line) = lines.next() {
        let line = line.trim_start_matches(BLANK);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut whole = line.to_string();
        while whole.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1 {
            whole.pop();
            match lines.next() {
                Some(more) => whole.push_str(more.trim_start_matches(BLANK)),
                None => break,
            }
        }
        let (key, value) = split_property(&whole).ok_or(MetadataFormatError::NotText)?;
        found.insert(key, value);
    }
    Ok(found)
}

/// What Java's properties take for white space within a line.
const BLANK: [char; 3] = [' ', '\t', '\u{c}'];

/// Key and value of one logical line, without their escapes; `None` if an escape means no character.
fn split_property(line: &str) -> Option<(String, String)> {
    // An escape is a UTF-16 unit: two of them may be one character.
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut chars = line.chars().peekable();
    let mut in_key = true;
    while let Some(c) = chars.next() {
        if in_key && (c == '=' || c == ':' || BLANK.contains(&c)) {
            in_key = false;
            let mut separated = !BLANK.contains(&c);
            while let Some(next) =
                chars.next_if(|next| BLANK.contains(next) || (!separated && matches!(next, '=' | ':')))
            {
                separated |= !BLANK.contains(&next);
            }
            continue;
        }
        let into = if in_key { &mut key } else { &mut value };
        let c = match c {
            '\\' => match chars.next() {
                None => break,
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some('u') => {
                    let mut unit = 0;
                    for _ in 0..4 {
                        unit = unit << 4 | chars.next()?.to_digit(16)?;
                    }
                    into.push(u16::try_from(unit).ok()?);
                    continue;
                }
                Some(other) => other,
            },
            c => c,
        };
        into.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    Some((String::from_utf16(&key).ok()?, String::from_utf16(&value).ok()?))
}

fn escape(into: &mut String, text: &str, is_key: bool) {
    for (place, c) in text.chars().enumerate() {
        match c {
            '\n' => into.push_str("\\n"),
            '\t' => into.push_str("\\t"),
            '\r' => into.push_str("\\r"),
            '\u{c}' => into.push_str("\\f"),
            ' ' if is_key || place == 0 => into.push_str("\\ "),
            '\\' | '=' | ':' | '#' | '!' => {
                into.push('\\');
                into.push(c);
            }
            ' '..='~' => into.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(into, "\\u{unit:04X}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn partition_metadata_written_by_kafka_is_read_and_written_again() {
        let bytes = b"version: 0\ntopic_id: Wb3rH7TcQqm0P8TmWY7qLg";
        let metadata = PartitionMetadata::parse(bytes).unwrap();
        assert_eq!(&metadata.encode()[..], bytes);
        let check = |bytes: &[u8], message: &str| {
            assert_eq!(PartitionMetadata::parse(bytes).unwrap_err().to_string(), message);
        };
        check(b"", "version is missing");
        check(b"version: 1\n", "version is \"1\", which means nothing");
        check(b"version: 0\n", "topic_id is missing");
        check(b"version: 0\ntopic_id: x\n", "topic_id is \"x\", which means nothing");
        check(b"\xff", "the file is not text");
    }

    #[test]
    fn the_marker_of_every_kafka_counts() {
        let marker = CleanShutdown { broker_epoch: Some(12) };
        assert_eq!(&marker.encode()[..], b"{\"version\":0,\"brokerEpoch\":12}");
        assert_eq!(CleanShutdown::parse(&marker.encode()), marker);
        for bytes in [&b""[..], b"\xff\xff", b"{\"version\":0}", b"{\"version\":0,\"brokerEpoch\":-1}"] {
            assert_eq!(CleanShutdown::parse(bytes), CleanShutdown { broker_epoch: None });
        }
    }

    #[test]
    fn meta_properties_written_by_kafka_is_read() {
        let text = "#\n#Sun Nov 29 20:40:00 UTC 2026\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=Wb3rH7TcQqm0P8TmWY7qLg\nnode.id=1\nversion=1\n";
        let meta = MetaProperties::parse(text.as_bytes()).unwrap();
        assert_eq!(meta.cluster_id.as_deref(), Some("MkU3OEVBNTcwNTJENDM2Qg"));
        assert_eq!((meta.version, meta.node_id), (1, Some(1)));
        assert_eq!(meta.directory_id.unwrap().to_string(), "Wb3rH7TcQqm0P8TmWY7qLg");
        assert_eq!(MetaProperties::parse(&meta.encode()), Ok(meta));
        let old = MetaProperties::parse(b"version=0\nbroker.id = 7\nodd\\ key: a\\\n  b\n").unwrap();
        assert_eq!(old.node_id, Some(7));
        assert_eq!(old.other["odd key"], "ab");
        assert_eq!(MetaProperties::parse(b"a=b\n").unwrap_err().to_string(), "version is missing");
        let refused = MetaProperties::parse(b"version=1\nnode.id=-4\n").unwrap_err().to_string();
        assert_eq!(refused, "node.id is \"-4\", which means nothing");
    }

    #[test]
    fn escapes_blanks_and_line_ends_are_those_of_java() {
        let other = |text: &str| {
            MetaProperties::parse(format!("version=0\n{text}").as_bytes()).map(|meta| meta.other)
        };
        let one = |key: &str, value: &str| Ok(BTreeMap::from([(key.to_string(), value.to_string())]));
        assert_eq!(other(r"a=\u00e9\uD83D\uDE00"), one("a", "\u{e9}\u{1f600}"));
        assert_eq!(other("a\u{a0}b = c\u{2003}d"), one("a\u{a0}b", "c\u{2003}d"));
        assert_eq!(other("\u{c}a\u{c}b\\\r\n\tc\r#d\r\n!e"), one("a", "bc"));
        for malformed in [r"a=\uD83D", r"a=\uDE00\uD83D", r"a=\u12", r"a=\u+123", r"a=\uwxyz"] {
            assert_eq!(other(malformed), Err(MetadataFormatError::NotText), "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn properties_come_back(entries in proptest::collection::btree_map("[a-z .=:#\\\\\u{a0}\u{1f600}]{1,9}", "[ -~\u{e9}\u{2003}\u{10fe5b}\n\r\u{c}]{0,12}", 0..8)) {
            let meta = MetaProperties { version: 1, other: entries, ..MetaProperties::default() };
            prop_assert_eq!(MetaProperties::parse(&meta.encode()).unwrap(), meta);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = PartitionMetadata::parse(&bytes);
            let _ = CleanShutdown::parse(&bytes);
            let _ = MetaProperties::parse(&bytes);
        }
    }
}
