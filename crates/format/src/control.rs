//! Control records: what a control batch says, which is in the key of its first record.
//!
//! Source: Kafka's `ControlRecordType` and `EndTransactionMarker`.

use std::fmt;

use crate::batch::RecordBatch;
use crate::error::{ControlError, RecordError};
use crate::ids::TimestampMs;
use crate::record::Cursor;

/// The kind of a control record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ControlRecordType {
    /// The end of an aborted transaction.
    Abort,
    /// The end of a committed transaction.
    Commit,
    /// KRaft: a new leader.
    LeaderChange,
    /// KRaft: the start of a snapshot.
    SnapshotHeader,
    /// KRaft: the end of a snapshot.
    SnapshotFooter,
    /// KRaft: the version of the protocol.
    KraftVersion,
    /// KRaft: the set of voters.
    KraftVoters,
    /// KIP-1279: the barrier. Every producer entry from before it is to be forgotten.
    MirrorPidReset,
    /// A type without a name here. It is kept, served and ignored.
    Unknown(i16),
}

impl ControlRecordType {
    /// The type of this number.
    pub const fn from_id(id: i16) -> Self {
        match id {
            0 => Self::Abort,
            1 => Self::Commit,
            2 => Self::LeaderChange,
            3 => Self::SnapshotHeader,
            4 => Self::SnapshotFooter,
            5 => Self::KraftVersion,
            6 => Self::KraftVoters,
            7 => Self::MirrorPidReset,
            id => Self::Unknown(id),
        }
    }

    /// The number in the key.
    pub const fn id(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::LeaderChange => 2,
            Self::SnapshotHeader => 3,
            Self::SnapshotFooter => 4,
            Self::KraftVersion => 5,
            Self::KraftVoters => 6,
            Self::MirrorPidReset => 7,
            Self::Unknown(id) => id,
        }
    }
}

impl fmt::Display for ControlRecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abort => "ABORT",
            Self::Commit => "COMMIT",
            Self::LeaderChange => "LEADER_CHANGE",
            Self::SnapshotHeader => "SNAPSHOT_HEADER",
            Self::SnapshotFooter => "SNAPSHOT_FOOTER",
            Self::KraftVersion => "KRAFT_VERSION",
            Self::KraftVoters => "KRAFT_VOTERS",
            Self::MirrorPidReset => "MIRROR_PID_RESET",
            Self::Unknown(id) => return write!(f, "UNKNOWN({id})"),
        })
    }
}

/// The key of a control record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlRecordKey {
    /// The key's version; not negative. Every version is read as version 0 is.
    pub version: i16,
    /// What the record is.
    pub record_type: ControlRecordType,
}

impl ControlRecordKey {
    /// The bytes of a key of version 0, for [`crate::BatchBuilder::record_at`]; `control_record` does it by itself.
    pub fn encode(record_type: ControlRecordType) -> [u8; 4] {
        let [a, b] = record_type.id().to_be_bytes();
        [0, 0, a, b]
    }

    /// Reads a key. `None` if it is shorter than four bytes or its version is negative, which Kafka takes for
    /// corruption. Bytes behind the type are ignored.
    ///
    /// Cost: four bytes are looked at.
    ///
    /// Source: Kafka's `ControlRecordType.parseTypeId`.
    pub fn decode(key: &[u8]) -> Option<Self> {
        let [a, b, c, d] = *key.first_chunk::<4>()?;
        let version = i16::from_be_bytes([a, b]);
        (version >= 0)
            .then(|| Self { version, record_type: ControlRecordType::from_id(i16::from_be_bytes([c, d])) })
    }
}

/// The control key of the first record in these bytes, which follow a header that counts at least one.
///
/// Only the fields up to the key are read, so that nothing behind it can hide it.
pub(crate) fn first_key(records: &[u8]) -> Option<ControlRecordKey> {
    let mut batch = Cursor { rest: records, position: 0 };
    let size = batch.size().ok()?;
    // A record that claims more bytes than there are still has its key where it is.
    let body = batch.rest.get(..size).unwrap_or(batch.rest);
    let mut body = Cursor { rest: body, position: 0 };
    body.take(1).ok()?;
    body.varlong().ok()?;
    body.varint().ok()?;
    ControlRecordKey::decode(body.nullable().ok()??)
}

/// The end of a transaction: an ABORT or COMMIT record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndTransactionMarker {
    /// Whether the transaction was committed; else it was aborted.
    pub commit: bool,
    /// The epoch of the transaction coordinator that wrote it; `None` if the field is negative.
    pub coordinator_epoch: Option<i32>,
    /// When it was written.
    pub timestamp: TimestampMs,
    /// The version of its value; not negative. Every version is read as version 0 is.
    pub version: i16,
}

impl EndTransactionMarker {
    /// The value of a marker: version 0 and the coordinator's epoch.
    pub(crate) fn encode_value(coordinator_epoch: Option<i32>) -> [u8; 6] {
        let [a, b, c, d] = coordinator_epoch.unwrap_or(-1).to_be_bytes();
        [0, 0, a, b, c, d]
    }

    pub(crate) fn read(batch: &RecordBatch<'_>, commit: bool) -> Result<Self, ControlError> {
        let mut records = batch.records().map_err(ControlError::Record)?;
        let none = RecordError::MissingRecords { record_count: batch.record_count(), found: 0 };
        let record = records.next().unwrap_or(Err(none)).map_err(ControlError::Record)?;
        let value = record.value.unwrap_or_default();
        let short = ControlError::ShortValue { size: value.len() };
        let [a, b, c, d, e, f] = *value.first_chunk::<6>().ok_or(short)?;
        let version = i16::from_be_bytes([a, b]);
        if version < 0 {
            return Err(ControlError::InvalidVersion { version });
        }
        let coordinator_epoch = i32::from_be_bytes([c, d, e, f]);
        Ok(Self {
            commit,
            coordinator_epoch: (coordinator_epoch >= 0).then_some(coordinator_epoch),
            timestamp: record.timestamp,
            version,
        })
    }
}
