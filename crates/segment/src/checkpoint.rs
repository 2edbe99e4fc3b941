//! Kafka's small text files of a log directory, read tolerantly and replaced durably.
//!
//! A checkpoint is lines: version `0`, how many entries follow, the entries with their fields separated by spaces. An
//! empty file has no entries. Kafka: `CheckpointFile`, `OffsetCheckpointFile`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use bytes::Bytes;
use weir_format::Offset;

use crate::io::{Io, IoError, durable};
use crate::layout::TopicPartition;

/// The largest checkpoint file that is read, in bytes: some million partitions.
const MAX_SIZE: usize = 1 << 28;

/// Why bytes are no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointFormatError {
    /// Not UTF-8.
    #[error("the file is not text")]
    NotText,
    /// Another version than 0.
    #[error("line 1 is {found:?}, not the version 0")]
    Version {
        /// The line, cut at 64 characters.
        found: String,
    },
    /// A line that does not mean anything.
    #[error("line {line} is {found:?}, which is no entry")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The line, cut at 64 characters.
        found: String,
    },
    /// Fewer or more entries than line 2 promises.
    #[error("line 2 promises {expected} entries, and there are {found}")]
    Count {
        /// What line 2 says.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// One partition twice.
    #[error("line {line} names a partition for the second time")]
    Duplicate {
        /// Its number, from 1.
        line: usize,
    },
}

/// Why a small file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadFileError<E: std::error::Error + 'static> {
    /// The disk.
    #[error(transparent)]
    Io(#[from] IoError),
    /// What is in it.
    #[error("{} cannot be understood", path.display())]
    Format {
        /// Which file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        #[source]
        source: E,
    },
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Reads the lines of a checkpoint; `entry` gets the fields of one line and says `None` if they mean nothing.
fn parse_lines<T>(
    bytes: &[u8],
    mut entry: impl FnMut(&[&str]) -> Option<T>,
) -> Result<Vec<T>, CheckpointFormatError> {
    let text = std::str::from_utf8(bytes).map_err(|_| CheckpointFormatError::NotText)?;
    let mut lines = text.lines();
    let Some(version) = lines.next() else { return Ok(Vec::new()) };
    if version.trim().parse() != Ok(0_i32) {
        return Err(CheckpointFormatError::Version { found: cut(version) });
    }
    let count = lines.next().unwrap_or_default();
    let expected: usize =
        count.trim().parse().map_err(|_| CheckpointFormatError::Line { line: 2, found: cut(count) })?;
    let mut entries = Vec::new();
    for (index, line) in lines.enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let parsed = entry(&fields);
        entries
            .push(parsed.ok_or_else(|| CheckpointFormatError::Line { line: index + 3, found: cut(line) })?);
    }
    if entries.len() != expected {
        return Err(CheckpointFormatError::Count { expected, found: entries.len() });
    }
    Ok(entries)
}

/// An offset for each partition of a log directory: `recovery-point-offset-checkpoint`,
/// `log-start-offset-checkpoint` or `replication-offset-checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OffsetCheckpoint {
    /// The entries.
    pub offsets: BTreeMap<TopicPartition, Offset>,
}

impl OffsetCheckpoint {
    /// Reads the bytes of the file.
    ///
    /// # Errors
    /// [`CheckpointFormatError`].
    pub fn parse(bytes: &[u8]) -> Result<OffsetCheckpoint, CheckpointFormatError> {
        let entries = parse_lines(bytes, |fields| match fields {
            [topic, partition, offset] => {
                let partition: i32 = partition.parse().ok().filter(|p| *p >= 0)?;
                Some((TopicPartition::new(*topic, partition), Offset::new(offset.parse().ok()?)?))
            }
            _ => None,
        })?;
        let mut offsets = BTreeMap::new();
        for (index, (partition, offset)) in entries.into_iter().enumerate() {
            if offsets.insert(partition, offset).is_some() {
                return Err(CheckpointFormatError::Duplicate { line: index + 3 });
            }
        }
        Ok(OffsetCheckpoint { offsets })
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Bytes {
        let mut text = format!("0\n{}\n", self.offsets.len());
        for (partition, offset) in &self.offsets {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} {} {}", partition.topic, partition.partition, offset.get());
        }
        Bytes::from(text)
    }

    /// Reads the file; without one there are no entries.
    ///
    /// # Errors
    /// [`ReadFileError`]: the caller says whether it can do without (a lost recovery point costs a longer replay).
    pub fn read(
        io: &mut dyn Io,
        path: &Path,
    ) -> Result<OffsetCheckpoint, ReadFileError<CheckpointFormatError>> {
        match durable::read_file(io, path, MAX_SIZE)? {
            None => Ok(OffsetCheckpoint::default()),
            Some(bytes) => OffsetCheckpoint::parse(&bytes)
                .map_err(|source| ReadFileError::Format { path: path.to_path_buf(), source }),
        }
    }

    /// Replaces the file durably.
    ///
    /// # Errors
    /// [`IoError`]; the file then has the old or the new entries.
    pub fn write(&self, io: &mut dyn Io, path: &Path) -> Result<(), IoError> {
        durable::replace(io, path, self.encode())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_checkpoint_written_by_kafka_is_read_and_written_again() {
        let bytes = b"0\n2\norders 0 240\norders 11 7\n";
        let checkpoint = OffsetCheckpoint::parse(bytes).unwrap();
        assert_eq!(checkpoint.offsets[&TopicPartition::new("orders", 11)].get(), 7);
        assert_eq!(&checkpoint.encode()[..], bytes);
        assert_eq!(OffsetCheckpoint::parse(b"0\n0\n").unwrap(), OffsetCheckpoint::default());
        assert_eq!(OffsetCheckpoint::parse(b"").unwrap(), OffsetCheckpoint::default());
    }

    #[test]
    fn each_way_to_be_broken_has_a_name() {
        let check = |bytes: &[u8], message: &str| {
            assert_eq!(OffsetCheckpoint::parse(bytes).unwrap_err().to_string(), message);
        };
        check(b"\xff\n", "the file is not text");
        check(b"\0\0\0\0", "line 1 is \"\\0\\0\\0\\0\", not the version 0");
        check(b"1\n0\n", "line 1 is \"1\", not the version 0");
        check(b"0\nx\n", "line 2 is \"x\", which is no entry");
        check(b"0\n2\na 0 1\n", "line 2 promises 2 entries, and there are 1");
        check(b"0\n1\na 0\n", "line 3 is \"a 0\", which is no entry");
        check(b"0\n1\na 0 -1\n", "line 3 is \"a 0 -1\", which is no entry");
        check(b"0\n2\na 0 1\na 0 1\n", "line 4 names a partition for the second time");
    }

    proptest! {
        #[test]
        fn entries_come_back(entries in proptest::collection::btree_map(("[a-z.]{1,9}", 0..i32::MAX), 0..i64::MAX, 0..20)) {
            let offsets = entries
                .into_iter()
                .map(|((topic, partition), offset)| (TopicPartition { topic, partition }, Offset::new(offset).unwrap()))
                .collect();
            let checkpoint = OffsetCheckpoint { offsets };
            prop_assert_eq!(OffsetCheckpoint::parse(&checkpoint.encode()).unwrap(), checkpoint);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = OffsetCheckpoint::parse(&bytes);
        }
    }
}
