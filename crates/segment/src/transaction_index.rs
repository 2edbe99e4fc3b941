//! The transaction index of one segment: the aborted transactions whose ABORT, or barrier, stands in it.
//!
//! ```text
//! entry   0    2               10              18              26              34
//!         | v0 | producer id   | first offset  | last offset   | last stable   |     signed, big endian
//! ```
//!
//! Kafka: `TransactionIndex`, `AbortedTxn`. Kafka's own appends have ascending last offsets; here several entries may
//! end at one barrier, which Kafka's reader takes as well.

use bytes::{BufMut, Bytes, BytesMut};
use weir_format::{Offset, ProducerId};

use crate::offset_index::IndexError;

/// Size of one entry, in bytes.
pub(crate) const ENTRY_SIZE: usize = 34;

/// The only version of an entry.
const VERSION: i16 = 0;

/// One aborted transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// Offset of its first record.
    pub first_offset: Offset,
    /// Offset of its ABORT, or of the barrier that ended it.
    pub last_offset: Offset,
    /// The last stable offset once it had ended: below it, no later entry can matter to a reader.
    pub last_stable_offset: Offset,
}

impl AbortedTransaction {
    /// The 34 bytes of its entry.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(ENTRY_SIZE);
        bytes.put_i16(VERSION);
        bytes.put_i64(self.producer_id.get());
        bytes.put_i64(self.first_offset.get());
        bytes.put_i64(self.last_offset.get());
        bytes.put_i64(self.last_stable_offset.get());
        bytes.freeze()
    }
}

/// How many entries in memory are skipped at once by a search.
const BLOCK: usize = 256;

/// The transaction index of a segment, in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransactionIndex {
    // INVARIANT: last offsets never go down.
    entries: Vec<AbortedTransaction>,
    /// The smallest first offset of each [`BLOCK`] of entries.
    smallest: Vec<Offset>,
}

/// What a search must know of a run of entries to pass over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransactionBlock {
    /// How many there are.
    pub(crate) count: usize,
    /// The smallest first offset.
    pub(crate) smallest: Offset,
    /// The last offset of the last entry: none of the others is above.
    pub(crate) last_offset: Offset,
    /// The last stable offset of the last entry.
    pub(crate) last_stable_offset: Offset,
}

impl TransactionBlock {
    /// All of these entries; `None` if there are none.
    pub(crate) fn of(entries: &[AbortedTransaction]) -> Option<TransactionBlock> {
        let last = entries.last()?;
        Some(TransactionBlock {
            count: entries.len(),
            smallest: entries.iter().map(|entry| entry.first_offset).min()?,
            last_offset: last.last_offset,
            last_stable_offset: last.last_stable_offset,
        })
    }
}

impl TransactionIndex {
    /// An index without entries.
    pub fn new() -> TransactionIndex {
        TransactionIndex::default()
    }

    /// Reads the bytes of a `.txnindex` file.
    ///
    /// # Errors
    /// [`IndexError`]: rebuild it by replay.
    pub fn decode(base_offset: Offset, bytes: &[u8]) -> Result<TransactionIndex, IndexError> {
        if !bytes.len().is_multiple_of(ENTRY_SIZE) {
            return Err(IndexError::Size { size: bytes.len(), entry_size: ENTRY_SIZE });
        }
        let mut index = TransactionIndex::new();
        index.entries.reserve_exact(bytes.len() / ENTRY_SIZE);
        for (entry, raw) in bytes.chunks_exact(ENTRY_SIZE).enumerate() {
            let (version, rest) = raw.split_at(2);
            let version = version.first_chunk().copied().map(i16::from_be_bytes).unwrap_or(-1);
            if version != VERSION {
                return Err(IndexError::Version { entry, version });
            }
            let number = |slot: usize| {
                let bytes = rest.get(slot * 8..)?.first_chunk::<8>()?;
                Some(i64::from_be_bytes(*bytes))
            };
            let aborted = (|| {
                Some(AbortedTransaction {
                    producer_id: ProducerId::new(number(0)?)?,
                    first_offset: Offset::new(number(1)?)?,
                    last_offset: Offset::new(number(2)?)?,
                    last_stable_offset: Offset::new(number(3)?)?,
                })
            })()
            .ok_or(IndexError::Range { entry })?;
            // Kafka: TransactionIndex.sanityCheck.
            if aborted.last_offset < base_offset || aborted.first_offset > aborted.last_offset {
                return Err(IndexError::Range { entry });
            }
            if !index.append(aborted) {
                return Err(IndexError::Order { entry });
            }
        }
        Ok(index)
    }

    /// The bytes of the `.txnindex` file.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.size());
        for entry in &self.entries {
            bytes.put_slice(&entry.encode());
        }
        bytes.freeze()
    }

    /// Size of the `.txnindex` file, in bytes.
    pub fn size(&self) -> usize {
        self.entries.len() * ENTRY_SIZE
    }

    /// Adds an entry; false, and nothing is added, if it ends before the last one.
    pub fn append(&mut self, aborted: AbortedTransaction) -> bool {
        if self.entries.last().is_some_and(|last| aborted.last_offset < last.last_offset) {
            return false;
        }
        match self.smallest.last_mut() {
            Some(smallest) if !self.entries.len().is_multiple_of(BLOCK) => {
                *smallest = aborted.first_offset.min(*smallest);
            }
            _ => self.smallest.push(aborted.first_offset),
        }
        self.entries.push(aborted);
        true
    }

    /// Forgets what ends at `offset` or above.
    pub fn truncate_to(&mut self, offset: Offset) {
        let kept = self.entries.partition_point(|entry| entry.last_offset < offset);
        self.entries.truncate(kept);
        self.smallest.truncate(kept.div_ceil(BLOCK));
        let rest = self.entries.chunks(BLOCK).next_back().and_then(TransactionBlock::of);
        if let (Some(smallest), Some(rest)) = (self.smallest.last_mut(), rest) {
            *smallest = rest.smallest;
        }
    }

    /// Adds to `found` what overlaps `[from, end)`, in the order of the file; true if no later segment can hold more.
    ///
    /// Cost: a binary search, then one look at each entry that may overlap and at each 256 others up to the first whose
    /// last stable offset is `end` or above. A transaction that stays open long makes these many: nothing of what ends
    /// meanwhile is passed over one by one.
    ///
    /// Kafka: `TransactionIndex.collectAbortedTxns`, which looks at every entry from the first one on.
    pub fn collect(&self, from: Offset, end: Offset, found: &mut Vec<AbortedTransaction>) -> bool {
        self.look(from, end, |entry| {
            if entry.first_offset < end {
                found.push(*entry);
            }
        })
    }

    /// Gives every entry that may overlap `[from, end)`, and few others.
    fn look(&self, from: Offset, end: Offset, mut each: impl FnMut(&AbortedTransaction)) -> bool {
        let mut at = self.entries.partition_point(|entry| entry.last_offset < from);
        let before = at.checked_sub(1).and_then(|before| self.entries.get(before));
        if before.is_some_and(|before| before.last_stable_offset >= end) {
            return true;
        }
        while at < self.entries.len() {
            let block = at / BLOCK;
            let block_end = block.saturating_add(1).saturating_mul(BLOCK).min(self.entries.len());
            let entries = self.entries.get(at..block_end).unwrap_or_default();
            let skips = self.smallest.get(block).is_some_and(|smallest| *smallest >= end);
            // Last stable offsets never go down, so the last one speaks for those that are passed over.
            let looked_at = if skips { entries.len().saturating_sub(1) } else { 0 };
            for entry in entries.iter().skip(looked_at) {
                each(entry);
                if entry.last_stable_offset >= end {
                    return true;
                }
            }
            at = block_end;
        }
        false
    }

    /// The entries, in the order of the file.
    pub fn entries(&self) -> &[AbortedTransaction] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn aborted(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
        AbortedTransaction {
            producer_id: ProducerId::new(producer).unwrap(),
            first_offset: Offset::new(first).unwrap(),
            last_offset: Offset::new(last).unwrap(),
            last_stable_offset: Offset::new(stable).unwrap(),
        }
    }

    fn at(offset: i64) -> Offset {
        Offset::new(offset).unwrap()
    }

    #[test]
    fn an_entry_is_34_bytes_as_kafka_writes_them() {
        let mut index = TransactionIndex::new();
        assert!(index.append(aborted(5, 5, 6, 2)));
        let bytes = index.encode();
        let hex = "0000 0000000000000005 0000000000000005 0000000000000006 0000000000000002".replace(' ', "");
        assert_eq!(bytes.iter().map(|b| format!("{b:02x}")).collect::<String>(), hex);
        assert_eq!(TransactionIndex::decode(Offset::ZERO, &bytes), Ok(index));
        let mut other = bytes.to_vec();
        other[1] = 1;
        let refused = TransactionIndex::decode(Offset::ZERO, &other);
        assert_eq!(refused, Err(IndexError::Version { entry: 0, version: 1 }));
        assert_eq!(TransactionIndex::decode(at(7), &bytes), Err(IndexError::Range { entry: 0 }));
        assert_eq!(
            TransactionIndex::decode(Offset::ZERO, &bytes[1..]),
            Err(IndexError::Size { size: 33, entry_size: 34 })
        );
    }

    #[test]
    fn several_may_end_at_one_barrier_and_none_before_the_last() {
        let mut index = TransactionIndex::new();
        assert!(index.append(aborted(1, 3, 20, 5)));
        assert!(index.append(aborted(2, 5, 20, 21)));
        assert!(!index.append(aborted(3, 1, 19, 21)));
        index.truncate_to(at(20));
        assert_eq!(index.entries(), []);
    }

    #[test]
    fn what_overlaps_a_range_is_collected_and_the_search_ends_at_the_stable_offset() {
        let mut index = TransactionIndex::new();
        for entry in [aborted(1, 0, 10, 11), aborted(2, 5, 20, 11), aborted(3, 25, 30, 31)] {
            assert!(index.append(entry));
        }
        let collect = |from, end| {
            let mut found = Vec::new();
            let complete = index.collect(at(from), at(end), &mut found);
            (found.iter().map(|a| a.producer_id.get()).collect::<Vec<_>>(), complete)
        };
        assert_eq!(collect(0, 5), (vec![1], true));
        assert_eq!(collect(8, 11), (vec![1], true));
        assert_eq!(collect(11, 26), (vec![2, 3], true));
        assert_eq!(collect(21, 40), (vec![3], false));
        assert_eq!(collect(31, 40), (vec![], false));
    }

    /// Kafka's own search, entry by entry.
    fn plain(index: &TransactionIndex, from: Offset, end: Offset) -> Vec<AbortedTransaction> {
        let mut found = Vec::new();
        for entry in index.entries() {
            if entry.last_offset >= from && entry.first_offset < end {
                found.push(*entry);
            }
            if entry.last_stable_offset >= end {
                break;
            }
        }
        found
    }

    /// Transactions as a log ends them: `steps` says how many more were begun before each end, and which one ends.
    fn history(steps: &[(u8, u8)]) -> TransactionIndex {
        let mut index = TransactionIndex::new();
        let (mut open, mut next): (Vec<i64>, i64) = (Vec::new(), 0);
        for (begun, ends) in steps {
            for _ in 0..*begun {
                open.push(next);
                next += 1;
            }
            if open.is_empty() {
                continue;
            }
            let first = open.remove(usize::from(*ends) % open.len());
            let stable = open.first().copied().unwrap_or(next + 1);
            assert!(index.append(aborted(first, first, next, stable)));
            next += 1;
        }
        index
    }

    #[test]
    fn a_long_transaction_does_not_make_each_search_look_at_all_that_ended_meanwhile() {
        // The first one stays open while a hundred thousand others are aborted; then it is.
        let mut index = TransactionIndex::new();
        for number in 1..100_000 {
            assert!(index.append(aborted(number, 2 * number, 2 * number + 1, 0)));
        }
        assert!(index.append(aborted(0, 0, 200_000, 200_001)));
        let mut found = Vec::new();
        assert!(index.collect(at(4), at(9), &mut found));
        let ids: Vec<i64> = found.iter().map(|entry| entry.producer_id.get()).collect();
        assert_eq!(ids, [2, 3, 4, 0]);
        let mut looked_at = 0;
        assert!(index.look(at(4), at(9), |_| looked_at += 1));
        // Two blocks of 256, and one entry of each of 389 others.
        assert!(looked_at < 2 * BLOCK + 390, "{looked_at} of {}", index.entries().len());
    }

    proptest! {
        #[test]
        fn a_search_finds_what_a_walk_over_every_entry_finds(
            steps in proptest::collection::vec((0_u8..4, any::<u8>()), 0..900),
            from in 0_i64..2_000,
            size in 0_i64..600,
            cut in 0_i64..2_500,
        ) {
            let mut index = history(&steps);
            for _ in 0..2 {
                let mut found = Vec::new();
                let complete = index.collect(at(from), at(from + size), &mut found);
                prop_assert_eq!(&found, &plain(&index, at(from), at(from + size)));
                let stable = index.entries().last().map(|entry| entry.last_stable_offset);
                prop_assert_eq!(complete, stable.is_some_and(|stable| stable >= at(from + size)));
                index.truncate_to(at(cut));
                // As if no more had ever been in it.
                let mut anew = TransactionIndex::new();
                for entry in index.entries() {
                    prop_assert!(anew.append(*entry));
                }
                prop_assert_eq!(&index, &anew);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..140)) {
            if let Ok(index) = TransactionIndex::decode(Offset::ZERO, &bytes) {
                prop_assert_eq!(&index.encode()[..], &bytes[..]);
            }
        }
    }
}
