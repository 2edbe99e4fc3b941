//! Record batches of an exact size, to append again and again under the next offsets.

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use weir_format::{BatchBuilder, BatchReader, Offset, RecordBatch, TimestampMs, set_base_offset};

/// Any fixed moment: benchmarks do not depend on the clock.
pub const NOW: TimestampMs = TimestampMs::new(1_767_225_600_000);

/// One batch of exactly `size` bytes, of records of about 1 KiB whose values are not compressible.
///
/// # Errors
/// If there is no such batch: `size` must leave room for a header and a record.
pub fn batch_of(size: usize, seed: u64) -> Result<BytesMut> {
    let mut random = Random::new(seed);
    let records = (size / 1_100).max(1);
    let values: Vec<Vec<u8>> = (0..records).map(|_| random.bytes(1_000)).collect();
    let tail = random.bytes(size);
    // The sizes of varints change with what they count, so the last value is fitted in a few steps.
    let mut last = size.checked_sub(100).context("too small for a batch")?.min(1_000);
    for _ in 0..8 {
        let mut builder = BatchBuilder::new();
        for value in values.iter().skip(1) {
            builder = builder.record(NOW, None, Some(value));
        }
        let batch = builder.record(NOW, None, tail.get(..last)).build()?;
        if batch.len() == size {
            return Ok(batch);
        }
        last = (last + size).checked_sub(batch.len()).context("too small for a batch")?;
    }
    anyhow::bail!("no batch of {size} bytes")
}

/// Batches laid one behind the other, appended under ever higher offsets.
#[derive(Debug)]
pub struct Source {
    sets: Vec<Bytes>,
    next: usize,
}

impl Source {
    /// Record sets of `batch_count` batches of `batch_size` bytes, as many as fill 4 MiB (at least one), so that what is
    /// appended is not always the same few cache lines.
    ///
    /// # Errors
    /// If there is no such batch.
    pub fn new(batch_size: usize, batch_count: usize) -> Result<Source> {
        let batches: Vec<BytesMut> = (0..4)
            .map(|seed| batch_of(batch_size, seed + u64::try_from(batch_size)?))
            .collect::<Result<_>>()?;
        let set_size = batch_size * batch_count;
        let count = ((4 << 20) / set_size).clamp(1, 64);
        let mut pick = batches.iter().cycle();
        let sets = (0..count)
            .map(|_| {
                let mut set = BytesMut::with_capacity(set_size);
                for batch in pick.by_ref().take(batch_count) {
                    set.extend_from_slice(batch);
                }
                set.freeze()
            })
            .collect();
        Ok(Source { sets, next: 0 })
    }

    /// The next record set, checked (frame and CRC) and with offsets from `base`.
    ///
    /// Cost: one pass for the CRC; no copy once whoever got it before has let go of it. What a broker does with what it
    /// received.
    ///
    /// # Errors
    /// Never for what [`Source::new`] made.
    pub fn next(&mut self, base: Offset) -> Result<Bytes> {
        let index = self.next;
        self.next = (self.next + 1) % self.sets.len();
        let mut set = match std::mem::take(&mut self.sets[index]).try_into_mut() {
            Ok(set) => set,
            Err(shared) => BytesMut::from(&shared[..]),
        };
        let (mut at, mut offset) = (0, base);
        while at < set.len() {
            let rest = &mut set[at..];
            let size = weir_format::header_of(rest)?.size();
            let one = rest.get_mut(..size).context("a batch is cut short")?;
            let count = i64::from(RecordBatch::parse(one)?.header().last_offset_delta()) + 1;
            set_base_offset(one, offset)?;
            offset = offset.checked_add(count).context("the log is full")?;
            at += size;
        }
        self.sets[index] = set.freeze();
        Ok(self.sets[index].clone())
    }
}

/// Records in whole batches, and the offset behind the last.
///
/// # Errors
/// If a batch is not whole.
pub fn count_records(bytes: &[u8]) -> Result<(u64, Option<Offset>)> {
    let (mut count, mut end) = (0, None);
    for batch in BatchReader::new(bytes) {
        let header = batch?.header();
        count += u64::try_from(header.record_count())?;
        end = Some(header.next_offset());
    }
    Ok((count, end))
}

/// A small generator that gives the same numbers for the same seed, on any machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
    }

    /// The next number (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    /// This many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_have_the_size_that_was_asked_for() {
        for size in [1 << 10, 16 << 10, 64 << 10, 1 << 20, 200, 5_000] {
            let batch = batch_of(size, 1).expect("a batch");
            assert_eq!(batch.len(), size);
            RecordBatch::parse(&batch).expect("it is whole");
        }
        assert!(batch_of(90, 1).is_err());
    }

    #[test]
    fn record_sets_follow_each_other() {
        let mut source = Source::new(16 << 10, 4).expect("a source");
        let mut end = Offset::new(7).expect("an offset");
        for _ in 0..100 {
            let base = end;
            let set = source.next(base).expect("a set");
            assert_eq!(set.len(), 64 << 10);
            let first = weir_format::header_of(&set).expect("whole").base_offset();
            assert_eq!(first, base);
            let (count, next) = count_records(&set).expect("whole");
            end = next.expect("not empty");
            assert_eq!(u64::try_from(end.get() - base.get()).expect("ascending"), count);
        }
    }
}
