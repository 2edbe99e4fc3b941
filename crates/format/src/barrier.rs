//! The barrier, `MIRROR_PID_RESET` of KIP-1279: the control batch behind which every producer entry is forgotten.
//!
//! Two clusters hand out the same producer ids. When a mirrored log turns writable, the barrier is what keeps a new
//! producer from being taken for an old one of the same number. `docs/barrier.md` tells the whole of it.
//!
//! It is recognised by the control bit and by the type in the key of the first record, and by nothing else. Its value
//! is empty in meaning, has two known forms, and may have any other: it is described, never obeyed.

use std::fmt;

use bytes::BytesMut;

use crate::batch::RecordBatch;
use crate::builder::BatchBuilder;
use crate::control::ControlRecordType;
use crate::ids::{LeaderEpoch, Offset, TimestampMs};
use crate::varint;

/// Version 0 and no tagged field.
const VALUE: [u8; 3] = [0, 0, 0];

/// One barrier as found in a log: where, when, and what its value looks like.
///
/// ```
/// use weir_format::{BatchBuilder, BatchReader, LeaderEpoch, MirrorPidReset, Offset, TimestampMs};
/// use weir_format::{set_base_offset, set_leader_epoch};
///
/// // A leader of epoch 12 ends a mirror whose log has one record.
/// let now = TimestampMs::new(1_767_225_600_000);
/// let mut log = BatchBuilder::new().record(now, None, Some(b"mirrored")).build()?;
/// let mut barrier = MirrorPidReset::build(now);
/// set_base_offset(&mut barrier, Offset::new(1).expect("not negative"))?;
/// set_leader_epoch(&mut barrier, LeaderEpoch::new(12).expect("not negative"))?;
/// log.extend_from_slice(&barrier);
///
/// // Whoever reads that log forgets its producers where the barrier stands.
/// let mut found = Vec::new();
/// for batch in BatchReader::new(&log) {
///     if let Some(barrier) = MirrorPidReset::describe(&batch?) {
///         found.push((barrier.offset.get(), barrier.leader_epoch, barrier.timestamp));
///     }
/// }
/// assert_eq!(found, [(1, LeaderEpoch::new(12), now)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: KIP-1279.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorPidReset<'a> {
    /// Its batch's base offset, which is its own: as weir and the KIP write it, a barrier is one batch of one record.
    pub offset: Offset,
    /// The leader epoch under which it was appended, which is the one behind the stop's bump.
    pub leader_epoch: Option<LeaderEpoch>,
    /// When it was written, by the clock of the cluster that stopped mirroring.
    pub timestamp: TimestampMs,
    /// The form of its value.
    pub value: MirrorPidResetValue<'a>,
}

/// The value of a barrier, by its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MirrorPidResetValue<'a> {
    /// There is none.
    Null,
    /// The form that weir writes: a version and tagged fields.
    Current {
        /// The version, 0 as written today.
        version: i16,
        /// How many tagged fields there are; none as written today.
        tagged_fields: u32,
    },
    /// The older form, which names the cluster that was mirrored.
    WithSourceClusterId {
        /// The version, 0 as written then.
        version: i16,
        /// The id of the source cluster.
        source_cluster_id: &'a str,
        /// How many tagged fields there are.
        tagged_fields: u32,
    },
    /// Bytes that no known form explains, or a record that ends within them.
    Unrecognised {
        /// How many bytes of it are there.
        size: usize,
    },
}

impl<'a> MirrorPidReset<'a> {
    /// A barrier batch of the 3-byte form, ready to be appended by a leader: base offset 0, and a leader epoch of 0
    /// that the leader overwrites with its own ([`crate::set_base_offset`], [`crate::set_leader_epoch`]). 75 bytes.
    ///
    /// Cost: one small allocation.
    ///
    /// Source: KIP-1279, `MemoryRecords` and `MirrorPidResetRecord.json` as of 053f9385.
    pub fn build(timestamp: TimestampMs) -> BytesMut {
        BatchBuilder::barrier(timestamp)
    }

    /// Whether the batch is a barrier; the same as [`RecordBatch::is_barrier`], and costs the same.
    pub fn recognise(batch: &RecordBatch<'_>) -> bool {
        batch.is_barrier()
    }

    /// What this barrier says of itself, or `None` if the batch is not one. Never fails for the sake of a value.
    ///
    /// A foreign barrier may have a producer id, which says nothing; its bytes are kept as they are.
    /// The time is the batch's largest timestamp: the record's own, or the leader's under LogAppendTime.
    ///
    /// Cost: reads the first record; no copy, no allocation.
    pub fn describe(batch: &RecordBatch<'a>) -> Option<Self> {
        if !batch.is_barrier() {
            return None;
        }
        let value = match batch.records().ok().and_then(|mut records| records.next()) {
            Some(Ok(record)) => match record.value {
                Some(value) => MirrorPidResetValue::decode(value),
                None => MirrorPidResetValue::Null,
            },
            _ => MirrorPidResetValue::Unrecognised { size: 0 },
        };
        Some(Self {
            offset: batch.base_offset(),
            leader_epoch: batch.leader_epoch(),
            timestamp: batch.max_timestamp(),
            value,
        })
    }

    /// Key type and value of the record, for the builder.
    pub(crate) const RECORD: (ControlRecordType, [u8; 3]) = (ControlRecordType::MirrorPidReset, VALUE);
}

impl fmt::Display for MirrorPidReset<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MIRROR_PID_RESET at offset {}", self.offset)?;
        if let Some(leader_epoch) = self.leader_epoch {
            write!(f, ", leader epoch {leader_epoch}")?;
        }
        write!(f, ", timestamp {}, {}", self.timestamp, self.value)
    }
}

impl<'a> MirrorPidResetValue<'a> {
    /// Which known form takes up all of `value`, the current one first.
    ///
    /// Cost: one pass over the value; nothing is allocated, whatever counts and lengths it claims.
    pub fn decode(value: &'a [u8]) -> Self {
        let unrecognised = Self::Unrecognised { size: value.len() };
        let Some((version, rest)) = value.split_first_chunk::<2>() else {
            return unrecognised;
        };
        let version = i16::from_be_bytes(*version);
        if let Some(tagged_fields) = tagged_fields(rest) {
            return Self::Current { version, tagged_fields };
        }
        older(rest).map_or(unrecognised, |(source_cluster_id, tagged_fields)| Self::WithSourceClusterId {
            version,
            source_cluster_id,
            tagged_fields,
        })
    }
}

impl fmt::Display for MirrorPidResetValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("no value"),
            Self::Current { version, tagged_fields: 0 } => write!(f, "value version {version}"),
            Self::Current { version, tagged_fields } => {
                write!(f, "value version {version} with {tagged_fields} tagged fields")
            }
            Self::WithSourceClusterId { version, source_cluster_id, .. } => {
                write!(f, "value version {version} of source cluster {source_cluster_id}")
            }
            Self::Unrecognised { size } => write!(f, "value of {size} bytes in no known form"),
        }
    }
}

/// How many tagged fields these bytes are, if they are nothing else.
fn tagged_fields(bytes: &[u8]) -> Option<u32> {
    let (count, mut rest) = unsigned(bytes)?;
    for _ in 0..count {
        let (_tag, behind_tag) = unsigned(rest)?;
        let (size, behind_size) = unsigned(behind_tag)?;
        rest = behind_size.get(usize::try_from(size).ok()?..)?;
    }
    rest.is_empty().then_some(count)
}

/// A compact string that is neither null nor empty, then tagged fields.
fn older(bytes: &[u8]) -> Option<(&str, u32)> {
    let (length_and_one, rest) = unsigned(bytes)?;
    let length = length_and_one.checked_sub(1).filter(|length| *length > 0)?;
    let (id, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    Some((std::str::from_utf8(id).ok()?, tagged_fields(rest)?))
}

fn unsigned(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (value, size) = varint::decode_unsigned(bytes).ok()?;
    Some((value, bytes.get(size..)?))
}

#[cfg(test)]
mod tests;
