//! The offset index of one segment: from an offset to a position in the `.log` file.
//!
//! ```text
//! entry   0        4        8
//!         | offset | positn |     offset relative to the segment's base; both signed, big endian, never negative
//! ```
//!
//! Entries ascend in both. Kafka: `OffsetIndex`.

use bytes::{BufMut, Bytes, BytesMut};
use weir_format::Offset;

/// Size of one entry, in bytes.
pub(crate) const ENTRY_SIZE: usize = 8;

/// One entry: the batch at `position` holds offsets up to at least `offset`, and none of an earlier batch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetIndexEntry {
    /// The last offset of the batch.
    pub offset: Offset,
    /// Where that batch starts in the `.log` file, in bytes.
    pub position: u32,
}

/// The offset index of a segment, in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetIndex {
    base_offset: Offset,
    // INVARIANT: ascending in both fields; each is at most `i32::MAX`.
    entries: Vec<(u32, u32)>,
}

/// Why bytes are not an index that can be trusted. It is then rebuilt from the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The size is no multiple of the size of an entry.
    #[error("{size} bytes are no whole number of entries of {entry_size} bytes")]
    Size {
        /// Size of the file.
        size: usize,
        /// Size of an entry.
        entry_size: usize,
    },
    /// The file is larger than the log beside it explains.
    #[error("more than {limit} bytes")]
    TooLarge {
        /// The most that is believed.
        limit: u64,
    },
    /// An entry does not follow from the one before. Zeros left by preallocation look like this.
    #[error("entry {entry} does not ascend")]
    Order {
        /// Its number, from 0.
        entry: usize,
    },
    /// An entry of a transaction index has another version.
    #[error("entry {entry} has version {version}")]
    Version {
        /// Its number, from 0.
        entry: usize,
        /// The version found.
        version: i16,
    },
    /// An entry holds a number that means nothing.
    #[error("entry {entry} holds a number that is out of range")]
    Range {
        /// Its number, from 0.
        entry: usize,
    },
}

/// `offset` relative to `base`, if an index can hold it.
pub(crate) fn relative(base: Offset, offset: Offset) -> Option<u32> {
    let relative = offset.get().checked_sub(base.get())?;
    i32::try_from(relative).ok().and_then(|r| u32::try_from(r).ok())
}

/// The offset that stands in an index as `relative`; `None` beyond the largest offset.
pub(crate) fn absolute(base: Offset, relative: u32) -> Option<Offset> {
    base.checked_add(i64::from(relative))
}

impl OffsetIndex {
    /// An index without entries.
    pub fn new(base_offset: Offset) -> OffsetIndex {
        OffsetIndex { base_offset, entries: Vec::new() }
    }

    /// Reads the bytes of an `.index` file. No entry may be for the base offset itself: none ever is.
    ///
    /// # Errors
    /// [`IndexError`]: rebuild it.
    pub fn decode(base_offset: Offset, bytes: &[u8]) -> Result<OffsetIndex, IndexError> {
        if !bytes.len().is_multiple_of(ENTRY_SIZE) {
            return Err(IndexError::Size { size: bytes.len(), entry_size: ENTRY_SIZE });
        }
        let mut entries: Vec<(u32, u32)> = Vec::with_capacity(bytes.len() / ENTRY_SIZE);
        for (entry, raw) in bytes.chunks_exact(ENTRY_SIZE).enumerate() {
            let (relative, position) = decode_entry(raw).ok_or(IndexError::Range { entry })?;
            absolute(base_offset, relative).ok_or(IndexError::Range { entry })?;
            let last = entries.last().copied().unwrap_or((0, 0));
            if relative <= last.0 || position <= last.1 {
                return Err(IndexError::Order { entry });
            }
            entries.push((relative, position));
        }
        Ok(OffsetIndex { base_offset, entries })
    }

    /// The bytes of the `.index` file.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.size());
        for (relative, position) in &self.entries {
            bytes.put_u32(*relative);
            bytes.put_u32(*position);
        }
        bytes.freeze()
    }

    /// Size of the `.index` file, in bytes.
    pub fn size(&self) -> usize {
        self.entries.len() * ENTRY_SIZE
    }

    /// Adds an entry.
    ///
    /// False, and nothing is added, if it is not above the last entry or too far from the base for this format: lookups
    /// then start at an earlier entry and find the same.
    pub fn append(&mut self, offset: Offset, position: u64) -> bool {
        let Some(relative) = relative(self.base_offset, offset) else { return false };
        let Some(position) = i32::try_from(position).ok().and_then(|p| u32::try_from(p).ok()) else {
            return false;
        };
        let last = self.entries.last().copied().unwrap_or((0, 0));
        if relative <= last.0 || position <= last.1 {
            return false;
        }
        self.entries.push((relative, position));
        true
    }

    /// Where to start looking for `offset`: the position of the largest entry at or below it; 0 without one.
    pub fn lookup(&self, offset: Offset) -> u64 {
        let count = self.count_up_to(offset);
        match count.checked_sub(1).and_then(|slot| self.entries.get(slot)) {
            Some((_, position)) => u64::from(*position),
            None => 0,
        }
    }

    /// The offset of the first entry at or above `offset`.
    pub fn ceiling(&self, offset: Offset) -> Option<Offset> {
        let base = self.base_offset;
        let below = self.entries.partition_point(|(r, _)| absolute(base, *r).is_some_and(|o| o < offset));
        self.entries.get(below).and_then(|(relative, _)| absolute(base, *relative))
    }

    /// Forgets entries for `offset` and above.
    pub fn truncate_to(&mut self, offset: Offset) {
        let base = self.base_offset;
        let kept = self.entries.partition_point(|(r, _)| absolute(base, *r).is_some_and(|o| o < offset));
        self.entries.truncate(kept);
    }

    /// Forgets entries for `position` and behind.
    pub(crate) fn truncate_to_position(&mut self, position: u64) {
        let kept = self.entries.partition_point(|(_, p)| u64::from(*p) < position);
        self.entries.truncate(kept);
    }

    /// The entries, ascending.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = OffsetIndexEntry> + ExactSizeIterator + '_ {
        let base = self.base_offset;
        self.entries.iter().map(move |(relative, position)| OffsetIndexEntry {
            offset: absolute(base, *relative).unwrap_or(base),
            position: *position,
        })
    }

    /// Whether a file of this many bytes has no room for one entry more.
    pub(crate) fn is_full(&self, limit: u32) -> bool {
        self.entries.len() >= usize::try_from(limit).unwrap_or(usize::MAX) / ENTRY_SIZE
    }

    fn count_up_to(&self, offset: Offset) -> usize {
        let base = self.base_offset;
        self.entries.partition_point(|(r, _)| absolute(base, *r).is_some_and(|o| o <= offset))
    }
}

/// Relative offset and position of an entry, if neither is negative.
pub(crate) fn decode_entry(raw: &[u8]) -> Option<(u32, u32)> {
    let raw = raw.first_chunk::<ENTRY_SIZE>()?;
    let [a, b, c, d, e, f, g, h] = *raw;
    let relative = u32::try_from(i32::from_be_bytes([a, b, c, d])).ok()?;
    let position = u32::try_from(i32::from_be_bytes([e, f, g, h])).ok()?;
    Some((relative, position))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: i64) -> Offset {
        Offset::new(offset).unwrap()
    }

    #[test]
    fn entries_are_eight_bytes_big_endian() {
        let mut index = OffsetIndex::new(at(1000));
        assert!(index.append(at(1020), 0x0102_0304));
        assert_eq!(&index.encode()[..], [0, 0, 0, 20, 1, 2, 3, 4]);
        assert_eq!(OffsetIndex::decode(at(1000), &index.encode()), Ok(index));
    }

    #[test]
    fn bytes_that_no_writer_leaves_are_refused() {
        let check = |bytes: &[u8]| OffsetIndex::decode(at(7), bytes).unwrap_err();
        assert_eq!(check(&[0; 7]), IndexError::Size { size: 7, entry_size: 8 });
        assert_eq!(check(&[0; 16]), IndexError::Order { entry: 0 });
        assert_eq!(check(&[0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 10]), IndexError::Order { entry: 1 });
        assert_eq!(check(&[0xff, 0, 0, 5, 0, 0, 0, 9]), IndexError::Range { entry: 0 });
        let top = OffsetIndex::decode(at(i64::MAX), &[0, 0, 0, 5, 0, 0, 0, 9]);
        assert_eq!(top, Err(IndexError::Range { entry: 0 }));
    }

    #[test]
    fn an_entry_that_is_too_far_from_the_base_is_left_out() {
        let mut index = OffsetIndex::new(at(0));
        assert!(!index.append(at(1 << 31), 10));
        assert!(index.append(at((1 << 31) - 1), 10));
        assert!(!index.append(at((1 << 31) - 1), 11));
    }

    proptest! {
        #[test]
        fn a_lookup_is_a_linear_scan(
            steps in proptest::collection::vec((1_i64..50, 1_u64..5_000), 0..60),
            asked in 0_i64..4_000,
            cut in 0_i64..4_000,
        ) {
            let mut index = OffsetIndex::new(at(100));
            let (mut offset, mut position, mut plain) = (100, 0, Vec::new());
            for (o, p) in steps {
                offset += o;
                position += p;
                prop_assert!(index.append(at(offset), position));
                plain.push((offset, position));
            }
            let scan = plain.iter().rev().find(|(o, _)| *o <= asked).map_or(0, |(_, p)| *p);
            prop_assert_eq!(index.lookup(at(asked)), scan);
            let next = plain.iter().map(|(o, _)| *o).find(|o| *o >= asked);
            prop_assert_eq!(index.ceiling(at(asked)).map(Offset::get), next);
            prop_assert_eq!(OffsetIndex::decode(at(100), &index.encode()).unwrap(), index.clone());
            index.truncate_to(at(cut));
            plain.retain(|(o, _)| *o < cut);
            let left: Vec<_> = index.entries().map(|e| (e.offset.get(), u64::from(e.position))).collect();
            prop_assert_eq!(left, plain);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), base in 0_i64..i64::MAX) {
            if let Ok(index) = OffsetIndex::decode(at(base), &bytes) {
                prop_assert_eq!(&index.encode()[..], &bytes[..]);
            }
        }
    }
}
