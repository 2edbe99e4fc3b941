//! What the metadata store holds of one mirrored partition, and its bytes.
//!
//! The bytes are lines of `name value`, the first one a version, so that a person with
//! nothing but the store's dump can read them.

use std::fmt::Write as _;

use weir_format::{LeaderEpoch, Offset};

use crate::failure::Failure;
use crate::state::MirrorPartitionState;

/// Last mirror epoch and offset: where the source's part of the log ends.
///
/// Written once per mirroring session (M4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorPosition {
    /// The session that it was taken in.
    pub session: u64,
    /// The newest epoch of the log then; `None` for a log without epochs.
    pub last_mirror_epoch: Option<LeaderEpoch>,
    /// The log end then: exclusive, the first offset that is not the source's.
    pub last_mirror_offset: Offset,
}

/// What is stored of a mirrored partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRecord {
    /// The state.
    pub state: MirrorPartitionState,
    /// Raised by one with every stored transition; fences whoever knows an older one.
    pub state_epoch: i32,
    /// The mirroring session: raised when a partition becomes a mirror (again).
    pub session: u64,
    /// Whether this session ever reached MIRRORING: only then is what the log holds its own.
    pub reached_mirroring: bool,
    /// The newest position that was saved, of this session or an earlier one.
    pub position: Option<MirrorPosition>,
    /// The barrier that made the partition writable.
    pub barrier_offset: Option<Offset>,
    /// Why it is FAILED.
    pub failure: Option<Failure>,
}

/// Why stored bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordCodecError {
    /// A version that this build does not know.
    #[error("mirror partition record has version {found:?}, this build knows {known:?}")]
    Version {
        /// The first line.
        found: String,
        /// What it should be.
        known: &'static str,
    },
    /// A line that cannot be read.
    #[error("mirror partition record has an unreadable line {line:?}")]
    Line {
        /// The line.
        line: String,
    },
    /// A line that must be there is not.
    #[error("mirror partition record has no {name}")]
    Missing {
        /// The line's name.
        name: &'static str,
    },
}

const VERSION: &str = "weir-mirror-partition 1";

impl PartitionRecord {
    /// A partition of which nothing was ever stored.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            state: MirrorPartitionState::Unknown,
            state_epoch: 0,
            session: 0,
            reached_mirroring: false,
            position: None,
            barrier_offset: None,
            failure: None,
        }
    }

    /// The position, if it was saved in the session that is running.
    #[must_use]
    pub fn position_of_session(&self) -> Option<MirrorPosition> {
        self.position.filter(|position| position.session == self.session)
    }

    /// The record as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{VERSION}\n");
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name} {value}");
        };
        line("state", &self.state);
        line("state_epoch", &self.state_epoch);
        line("session", &self.session);
        line("reached_mirroring", &self.reached_mirroring);
        if let Some(position) = self.position {
            line("position_session", &position.session);
            line("last_mirror_offset", &position.last_mirror_offset.get());
            if let Some(epoch) = position.last_mirror_epoch {
                line("last_mirror_epoch", &epoch.get());
            }
        }
        if let Some(offset) = self.barrier_offset {
            line("barrier_offset", &offset.get());
        }
        if let Some(failure) = &self.failure {
            line("failure_name", &failure.name());
            line("failure_text", &failure.to_string().replace(['\n', '\r'], " "));
        }
        text.into_bytes()
    }

    /// The record in these bytes. Lines with unknown names are an error: a newer version
    /// that means something by them says so in the first line.
    ///
    /// # Errors
    /// [`RecordCodecError`]: the store was written by something else; touch nothing.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordCodecError> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        if first != VERSION {
            return Err(RecordCodecError::Version { found: first.to_owned(), known: VERSION });
        }
        let mut record = Self::unknown();
        let (mut state, mut state_epoch, mut session) = (None, None, None);
        let (mut position_session, mut epoch, mut offset) = (None, None, None);
        let (mut failure_name, mut failure_text) = (None, None);
        for line in lines {
            let unreadable = || RecordCodecError::Line { line: line.to_owned() };
            let (name, value) = line.split_once(' ').ok_or_else(unreadable)?;
            let number = || value.parse::<i64>().map_err(|_| unreadable());
            match name {
                "state" => {
                    state = Some(MirrorPartitionState::from_name(value).ok_or_else(unreadable)?);
                }
                "state_epoch" => {
                    state_epoch = Some(value.parse::<i32>().map_err(|_| unreadable())?);
                }
                "session" => session = Some(value.parse::<u64>().map_err(|_| unreadable())?),
                "reached_mirroring" => {
                    record.reached_mirroring = value.parse().map_err(|_| unreadable())?;
                }
                "position_session" => {
                    position_session = Some(value.parse::<u64>().map_err(|_| unreadable())?);
                }
                "last_mirror_offset" => {
                    offset = Some(Offset::new(number()?).ok_or_else(unreadable)?);
                }
                "last_mirror_epoch" => {
                    let raw = value.parse::<i32>().map_err(|_| unreadable())?;
                    epoch = Some(LeaderEpoch::new(raw).ok_or_else(unreadable)?);
                }
                "barrier_offset" => {
                    record.barrier_offset = Some(Offset::new(number()?).ok_or_else(unreadable)?);
                }
                "failure_name" => failure_name = Some(value.to_owned()),
                "failure_text" => failure_text = Some(value.to_owned()),
                _ => return Err(unreadable()),
            }
        }
        record.state = state.ok_or(RecordCodecError::Missing { name: "state" })?;
        record.state_epoch = state_epoch.ok_or(RecordCodecError::Missing { name: "state_epoch" })?;
        record.session = session.ok_or(RecordCodecError::Missing { name: "session" })?;
        record.position = match (position_session, offset) {
            (Some(session), Some(last_mirror_offset)) => {
                Some(MirrorPosition { session, last_mirror_epoch: epoch, last_mirror_offset })
            }
            (None, None) if epoch.is_none() => None,
            (None, _) => return Err(RecordCodecError::Missing { name: "position_session" }),
            (_, None) => return Err(RecordCodecError::Missing { name: "last_mirror_offset" }),
        };
        record.failure = match (failure_name, failure_text) {
            (Some(name), Some(text)) => Some(Failure::Stored { name, text }),
            (None, None) => None,
            (None, _) => return Err(RecordCodecError::Missing { name: "failure_name" }),
            (_, None) => return Err(RecordCodecError::Missing { name: "failure_text" }),
        };
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).expect("not negative")
    }

    #[test]
    fn a_record_comes_back_as_it_was_stored() {
        let mut record = PartitionRecord::unknown();
        assert_eq!(PartitionRecord::decode(&record.encode()), Ok(record.clone()));
        record.state = MirrorPartitionState::Failed;
        record.state_epoch = 12;
        record.session = 3;
        record.reached_mirroring = true;
        record.position = Some(MirrorPosition {
            session: 2,
            last_mirror_epoch: LeaderEpoch::new(7),
            last_mirror_offset: offset(500),
        });
        record.barrier_offset = Some(offset(501));
        let failure = Failure::Gap { log_end: offset(10), source_start: offset(20) };
        record.failure = Some(failure.clone());
        let back = PartitionRecord::decode(&record.encode()).expect("decodes");
        let stored = back.failure.clone().expect("kept");
        assert_eq!((stored.name(), stored.to_string()), ("gap", failure.to_string()));
        record.failure = back.failure.clone();
        assert_eq!(back, record);
        assert_eq!(back.encode(), record.encode());
        assert_eq!(back.position_of_session(), None, "an older session's position");
    }

    #[test]
    fn a_failure_text_over_several_lines_stays_one_line() {
        let mut record = PartitionRecord::unknown();
        record.failure = Some(Failure::Destination { cause: "a\nstate STOPPED\r\nb".to_owned() });
        let back = PartitionRecord::decode(&record.encode()).expect("decodes");
        assert_eq!(back.state, MirrorPartitionState::Unknown);
    }

    #[test]
    fn bytes_of_something_else_are_refused() {
        for bytes in [
            &b""[..],
            b"weir-mirror-partition 2\nstate STOPPED\n",
            b"weir-mirror-partition 1\nstate STOPPED\n",
            b"weir-mirror-partition 1\nstate OPEN\nstate_epoch 0\nsession 0\n",
            b"weir-mirror-partition 1\nstate STOPPED\nstate_epoch 0\nsession 0\nlast_mirror_offset 5\n",
            b"weir-mirror-partition 1\nstate STOPPED\nstate_epoch 0\nsession 0\nlast_mirror_epoch 5\n",
            b"weir-mirror-partition 1\nstate STOPPED\nstate_epoch 0\nsession 0\nbarrier_offset -1\n",
            b"weir-mirror-partition 1\nstate STOPPED\nstate_epoch 0\nsession 0\nwhat 1\n",
            b"\xff\xfe",
        ] {
            assert!(PartitionRecord::decode(bytes).is_err(), "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
