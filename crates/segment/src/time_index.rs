//! The time index of one segment: from a timestamp to an offset.
//!
//! ```text
//! entry   0        8        12
//!         | timestamp       | offset |   the largest timestamp up to here; the last offset of its batch, relative
//! ```
//!
//! Timestamps ascend; offsets never go down. Kafka: `TimeIndex`.

use bytes::{BufMut, Bytes, BytesMut};
use weir_format::{Offset, TimestampMs};

use crate::offset_index::{IndexError, absolute, relative};

/// Size of one entry, in bytes.
pub(crate) const ENTRY_SIZE: usize = 12;

/// A timestamp and the last offset of the batch that has it as its largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The timestamp.
    pub timestamp: TimestampMs,
    /// The offset.
    pub offset: Offset,
}

/// The time index of a segment, in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeIndex {
    base_offset: Offset,
    // INVARIANT: timestamps ascend from 0, offsets never go down and are at most `i32::MAX`.
    entries: Vec<(i64, u32)>,
}

impl TimeIndex {
    /// An index without entries.
    pub fn new(base_offset: Offset) -> TimeIndex {
        TimeIndex { base_offset, entries: Vec::new() }
    }

    /// Reads the bytes of a `.timeindex` file.
    ///
    /// # Errors
    /// [`IndexError`]: rebuild it.
    pub fn decode(base_offset: Offset, bytes: &[u8]) -> Result<TimeIndex, IndexError> {
        if !bytes.len().is_multiple_of(ENTRY_SIZE) {
            return Err(IndexError::Size { size: bytes.len(), entry_size: ENTRY_SIZE });
        }
        let mut entries: Vec<(i64, u32)> = Vec::with_capacity(bytes.len() / ENTRY_SIZE);
        for (entry, raw) in bytes.chunks_exact(ENTRY_SIZE).enumerate() {
            let (timestamp, relative) = decode_entry(raw).ok_or(IndexError::Range { entry })?;
            absolute(base_offset, relative).ok_or(IndexError::Range { entry })?;
            let last = entries.last().copied().unwrap_or((-1, 0));
            // Zeros of a preallocated file have no place, not even as a first entry: no entry is for the base itself
            // with a timestamp of 0 unless the segment is one batch of one record from 1970; rebuilding gives it back.
            if timestamp <= last.0 || relative < last.1 || (timestamp, relative) == (0, 0) {
                return Err(IndexError::Order { entry });
            }
            entries.push((timestamp, relative));
        }
        Ok(TimeIndex { base_offset, entries })
    }

    /// The bytes of the `.timeindex` file.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.size());
        for (timestamp, relative) in &self.entries {
            bytes.put_i64(*timestamp);
            bytes.put_u32(*relative);
        }
        bytes.freeze()
    }

    /// Size of the `.timeindex` file, in bytes.
    pub fn size(&self) -> usize {
        self.entries.len() * ENTRY_SIZE
    }

    /// Adds an entry if its timestamp is above the last one's; true if it was added.
    ///
    /// Kafka: `TimeIndex.maybeAppend`. An entry that is too far from the base for this format is left out, and lookups
    /// start at an earlier one.
    pub fn append(&mut self, at: TimestampOffset) -> bool {
        let Some(relative) = relative(self.base_offset, at.offset) else { return false };
        let last = self.entries.last().copied().unwrap_or((-1, 0));
        if at.timestamp.get() <= last.0 || relative < last.1 {
            return false;
        }
        self.entries.push((at.timestamp.get(), relative));
        true
    }

    /// The largest entry at or below a timestamp: every batch before its offset has smaller timestamps only.
    pub fn lookup(&self, timestamp: TimestampMs) -> Option<TimestampOffset> {
        let count = self.entries.partition_point(|(t, _)| *t <= timestamp.get());
        let slot = count.checked_sub(1)?;
        self.entries.get(slot).map(|entry| self.absolute(*entry))
    }

    /// The last entry.
    pub fn last(&self) -> Option<TimestampOffset> {
        self.entries.last().map(|entry| self.absolute(*entry))
    }

    /// Forgets entries for `offset` and above.
    pub fn truncate_to(&mut self, offset: Offset) {
        let base = self.base_offset;
        let kept = self.entries.partition_point(|(_, r)| absolute(base, *r).is_some_and(|o| o < offset));
        self.entries.truncate(kept);
    }

    /// The entries, ascending.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = TimestampOffset> + ExactSizeIterator + '_ {
        self.entries.iter().map(|entry| self.absolute(*entry))
    }

    /// Whether a file of this many bytes has no room for one entry more and the one that closing the segment adds.
    pub(crate) fn is_full(&self, limit: u32) -> bool {
        self.entries.len() + 1 >= usize::try_from(limit).unwrap_or(usize::MAX) / ENTRY_SIZE
    }

    fn absolute(&self, (timestamp, relative): (i64, u32)) -> TimestampOffset {
        TimestampOffset {
            timestamp: TimestampMs::new(timestamp),
            offset: absolute(self.base_offset, relative).unwrap_or(self.base_offset),
        }
    }
}

/// Timestamp and relative offset of an entry, if neither is negative.
pub(crate) fn decode_entry(raw: &[u8]) -> Option<(i64, u32)> {
    let raw = raw.first_chunk::<ENTRY_SIZE>()?;
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *raw;
    let timestamp = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let relative = u32::try_from(i32::from_be_bytes([i, j, k, l])).ok()?;
    (timestamp >= 0).then_some((timestamp, relative))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(timestamp: i64, offset: i64) -> TimestampOffset {
        TimestampOffset { timestamp: TimestampMs::new(timestamp), offset: Offset::new(offset).unwrap() }
    }

    #[test]
    fn entries_are_twelve_bytes_and_only_ascend() {
        let base = Offset::new(100).unwrap();
        let mut index = TimeIndex::new(base);
        assert!(!index.append(entry(-1, 100)));
        assert!(index.append(entry(258, 103)));
        assert!(!index.append(entry(258, 104)));
        assert!(!index.append(entry(300, 102)));
        assert_eq!(&index.encode()[..], [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3]);
        assert_eq!(TimeIndex::decode(base, &index.encode()), Ok(index.clone()));
        assert_eq!(index.lookup(TimestampMs::new(257)), None);
        assert_eq!(index.lookup(TimestampMs::new(258)), Some(entry(258, 103)));
        assert_eq!(TimeIndex::decode(base, &[0; 24]), Err(IndexError::Order { entry: 0 }));
        assert_eq!(TimeIndex::decode(base, &[0; 5]), Err(IndexError::Size { size: 5, entry_size: 12 }));
        assert_eq!(TimeIndex::decode(base, &[0xff; 12]), Err(IndexError::Range { entry: 0 }));
    }

    proptest! {
        #[test]
        fn a_lookup_is_a_linear_scan(
            steps in proptest::collection::vec((1_i64..50, 0_i64..50), 0..60),
            asked in 0_i64..4_000,
            cut in 0_i64..4_000,
        ) {
            let mut index = TimeIndex::new(Offset::new(100).unwrap());
            let (mut timestamp, mut offset, mut plain) = (5, 100, Vec::new());
            for (t, o) in steps {
                timestamp += t;
                offset += o;
                prop_assert!(index.append(entry(timestamp, offset)));
                plain.push(entry(timestamp, offset));
            }
            let scan = plain.iter().rev().find(|e| e.timestamp.get() <= asked).copied();
            prop_assert_eq!(index.lookup(TimestampMs::new(asked)), scan);
            index.truncate_to(Offset::new(cut).unwrap());
            plain.retain(|e| e.offset.get() < cut);
            prop_assert_eq!(index.entries().collect::<Vec<_>>(), plain);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), base in 0_i64..i64::MAX) {
            if let Ok(index) = TimeIndex::decode(Offset::new(base).unwrap(), &bytes) {
                prop_assert_eq!(&index.encode()[..], &bytes[..]);
            }
        }
    }
}
