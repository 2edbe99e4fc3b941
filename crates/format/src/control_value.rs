//! What the control records of KRaft say in their values.
//!
//! Nothing here decides what a control record *is*: that is its key's word alone.
//!
//! Source: Kafka's `LeaderChangeMessage`, `SnapshotHeaderRecord`, `SnapshotFooterRecord`, `KRaftVersionRecord` and
//! `VotersRecord`.

use crate::control::ControlRecordType;
use crate::error::ControlError;
use crate::ids::TimestampMs;
use crate::varint;

/// The value of a control record of KRaft.
///
/// A version above those known is read as the newest known one; tagged fields are skipped, and so are bytes behind them, as
/// Kafka's readers do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlRecordValue<'a> {
    /// LEADER_CHANGE: who leads, and who voted.
    LeaderChange {
        /// The value's version.
        version: i16,
        /// The new leader's node id.
        leader_id: i32,
        /// Who may vote; only ids, and from version 1 on directory ids.
        voters: Vec<Voter<'a>>,
        /// Who voted for the leader.
        granting_voters: Vec<Voter<'a>>,
    },
    /// SNAPSHOT_HEADER: where the snapshot ends.
    SnapshotHeader {
        /// The value's version.
        version: i16,
        /// The timestamp of the last record that the snapshot contains.
        last_contained_log_timestamp: TimestampMs,
    },
    /// SNAPSHOT_FOOTER: the snapshot is whole.
    SnapshotFooter {
        /// The value's version.
        version: i16,
    },
    /// KRAFT_VERSION: which protocol the voters speak.
    KraftVersion {
        /// The value's version.
        version: i16,
        /// The protocol's version.
        kraft_version: i16,
    },
    /// KRAFT_VOTERS: the set of voters.
    KraftVoters {
        /// The value's version.
        version: i16,
        /// The voters with their endpoints and the versions they take.
        voters: Vec<Voter<'a>>,
    },
}

/// One voter of a KRaft quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter<'a> {
    /// Its node id.
    pub id: i32,
    /// Its directory id, a UUID; `None` where the version has none.
    pub directory_id: Option<[u8; 16]>,
    /// Where it listens; none in a LEADER_CHANGE.
    pub endpoints: Vec<Endpoint<'a>>,
    /// The smallest and the largest protocol version that it takes; `None` in a LEADER_CHANGE.
    pub kraft_versions: Option<(i16, i16)>,
}

/// Where a voter listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint<'a> {
    /// The listener's name; not always UTF-8.
    pub name: &'a [u8],
    /// The host; not always UTF-8.
    pub host: &'a [u8],
    /// The port.
    pub port: u16,
}

impl<'a> ControlRecordValue<'a> {
    /// Reads the value of a record of this type; `None` if the type is not one of KRaft's.
    ///
    /// Cost: memory for voters and endpoints that are really there; names and hosts are borrowed.
    ///
    /// # Errors
    /// The inner error is [`ControlError::MalformedValue`], or [`ControlError::InvalidVersion`] for a negative version. Say
    /// it and go on: what the record *is* follows from its key, and its bytes are to be kept.
    pub fn decode(
        record_type: ControlRecordType,
        value: Option<&'a [u8]>,
    ) -> Option<Result<Self, ControlError>> {
        let kraft = matches!(
            record_type,
            ControlRecordType::LeaderChange
                | ControlRecordType::SnapshotHeader
                | ControlRecordType::SnapshotFooter
                | ControlRecordType::KraftVersion
                | ControlRecordType::KraftVoters
        );
        let mut fields = Fields { rest: value.unwrap_or_default(), position: 0 };
        kraft.then(|| match fields.value(record_type) {
            Ok((version, _)) if version < 0 => Err(ControlError::InvalidVersion { version }),
            Ok((_, value)) => Ok(value),
            Err(Malformed) => Err(ControlError::MalformedValue { record_type, position: fields.position }),
        })
    }
}

/// The fields end, or one of them makes no sense, at the place that was reached.
struct Malformed;

struct Fields<'a> {
    rest: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    fn value(&mut self, record_type: ControlRecordType) -> Result<(i16, ControlRecordValue<'a>), Malformed> {
        let version = self.i16()?;
        let value = match record_type {
            ControlRecordType::LeaderChange => ControlRecordValue::LeaderChange {
                version,
                leader_id: self.i32()?,
                voters: self.list(|fields| fields.leader_change_voter(version))?,
                granting_voters: self.list(|fields| fields.leader_change_voter(version))?,
            },
            ControlRecordType::SnapshotHeader => ControlRecordValue::SnapshotHeader {
                version,
                last_contained_log_timestamp: TimestampMs::new(i64::from_be_bytes(self.array()?)),
            },
            ControlRecordType::KraftVersion => {
                ControlRecordValue::KraftVersion { version, kraft_version: self.i16()? }
            }
            ControlRecordType::KraftVoters => {
                ControlRecordValue::KraftVoters { version, voters: self.list(Self::voter)? }
            }
            _ => ControlRecordValue::SnapshotFooter { version },
        };
        self.tagged_fields()?;
        Ok((version, value))
    }

    fn leader_change_voter(&mut self, version: i16) -> Result<Voter<'a>, Malformed> {
        let id = self.i32()?;
        let directory_id = if version >= 1 { Some(self.array()?) } else { None };
        self.tagged_fields()?;
        Ok(Voter { id, directory_id, endpoints: Vec::new(), kraft_versions: None })
    }

    fn voter(&mut self) -> Result<Voter<'a>, Malformed> {
        let id = self.i32()?;
        let directory_id = Some(self.array()?);
        let endpoints = self.list(Self::endpoint)?;
        let kraft_versions = Some((self.i16()?, self.i16()?));
        self.tagged_fields()?;
        self.tagged_fields()?;
        Ok(Voter { id, directory_id, endpoints, kraft_versions })
    }

    fn endpoint(&mut self) -> Result<Endpoint<'a>, Malformed> {
        let name = self.string()?;
        let host = self.string()?;
        let port = u16::from_be_bytes(self.array()?);
        self.tagged_fields()?;
        Ok(Endpoint { name, host, port })
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or(Malformed)?;
        self.rest = rest;
        self.position = self.position.saturating_add(size);
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.first_chunk::<N>().copied().ok_or(Malformed)
    }

    fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn unsigned(&mut self) -> Result<u32, Malformed> {
        let (value, size) = varint::decode_unsigned(self.rest).map_err(|_| Malformed)?;
        self.take(size)?;
        Ok(value)
    }

    /// A compact array: its count and one more, then its elements, none of which is empty.
    fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.unsigned()?.checked_sub(1).ok_or(Malformed)?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(list)
    }

    /// A compact string: its size and one more, then its bytes.
    fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let size = self.unsigned()?.checked_sub(1).ok_or(Malformed)?;
        self.take(usize::try_from(size).map_err(|_| Malformed)?)
    }

    fn tagged_fields(&mut self) -> Result<(), Malformed> {
        for _ in 0..self.unsigned()? {
            self.unsigned()?;
            let size = self.unsigned()?;
            self.take(usize::try_from(size).map_err(|_| Malformed)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
