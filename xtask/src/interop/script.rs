//! Logs written by hand, batch by batch: what a node is given to mirror, or finds in its files.
//!
//! The bytes are put together here, without weir's builder, and what was meant is kept beside them: what clients must
//! read follows from that, and not from how anybody parses the bytes.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::logs::{ABORT, BARRIER, COMMIT, crc32c};
use super::raw::Writer;
use super::reading::{Part, Record, say};

const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
/// Milliseconds from one batch to the next; records of a batch are one apart.
const BETWEEN: i64 = 1000;

/// A log that is being written.
#[derive(Debug, Clone)]
pub(super) struct Script {
    /// First offset and bytes of each segment.
    segments: Vec<(i64, Vec<u8>)>,
    parts: Vec<Part>,
    end: i64,
    leader_epoch: i32,
    /// Timestamp of the next batch.
    timestamp: i64,
    /// Next sequence of each producer id.
    sequences: BTreeMap<i64, i32>,
    value_bytes: usize,
}

impl Script {
    /// An empty log under leader epoch 0, whose first batch has this timestamp.
    pub(super) fn new(timestamp: i64) -> Self {
        Self {
            segments: vec![(0, Vec::new())],
            parts: Vec::new(),
            end: 0,
            leader_epoch: 0,
            timestamp,
            sequences: BTreeMap::new(),
            value_bytes: 8,
        }
    }

    /// Bytes of the values from here on; at most 64.
    pub(super) fn values_of(mut self, bytes: usize) -> Self {
        self.value_bytes = bytes;
        self
    }

    pub(super) fn leader_epoch(mut self, epoch: i32) -> Self {
        self.leader_epoch = epoch;
        self
    }

    /// Leaves offsets out, as compaction does.
    pub(super) fn skip(mut self, count: i64) -> Self {
        self.end += count;
        self
    }

    /// The next batch starts a segment.
    pub(super) fn roll(mut self) -> Self {
        self.segments.push((self.end, Vec::new()));
        self
    }

    /// A batch of a producer without an id.
    pub(super) fn plain(self, count: i64) -> Self {
        self.data(None, 0, count)
    }

    /// A batch of an idempotent producer.
    pub(super) fn idempotent(self, id: i64, count: i64) -> Self {
        self.data(Some(id), 0, count)
    }

    /// A batch of a transaction.
    pub(super) fn transaction(self, id: i64, count: i64) -> Self {
        self.data(Some(id), TRANSACTIONAL, count)
    }

    pub(super) fn commit(self, id: i64) -> Self {
        self.marker(id, COMMIT)
    }

    pub(super) fn abort(self, id: i64) -> Self {
        self.marker(id, ABORT)
    }

    /// A barrier. The ids that come behind it are new producers', who count from 0.
    pub(super) fn barrier(mut self) -> Self {
        self.sequences.clear();
        let record = (control_key(BARRIER), vec![0; 3]);
        self.batch(CONTROL, None, Some(BARRIER), vec![record])
    }

    fn marker(self, id: i64, kind: i16) -> Self {
        let mut value = Writer::default();
        value.i16(0);
        value.i32(3);
        self.batch(TRANSACTIONAL | CONTROL, Some(id), Some(kind), vec![(control_key(kind), value.0)])
    }

    fn data(self, producer: Option<i64>, attributes: i16, count: i64) -> Self {
        let records = (self.end..self.end + count)
            .map(|offset| {
                let mut value = format!("v{offset}-").into_bytes();
                value.resize(self.value_bytes, b'.');
                (format!("k{offset}").into_bytes(), value)
            })
            .collect();
        self.batch(attributes, producer, None, records)
    }

    fn batch(
        mut self,
        attributes: i16,
        producer: Option<i64>,
        control: Option<i16>,
        records: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Self {
        let count = i32::try_from(records.len()).unwrap_or(i32::MAX);
        let last = self.end + i64::from(count) - 1;
        let sequence = match producer {
            Some(id) if control.is_none() => {
                let next = self.sequences.entry(id).or_insert(0);
                let this = *next;
                *next += count;
                this
            }
            _ => -1,
        };
        let mut checked = Writer::default();
        checked.i16(attributes);
        checked.i32(count - 1);
        checked.i64(self.timestamp);
        checked.i64(self.timestamp + i64::from(count) - 1);
        checked.i64(producer.unwrap_or(-1));
        checked.i16(if producer.is_some() { 0 } else { -1 });
        checked.i32(sequence);
        checked.i32(count);
        let mut meant = Vec::new();
        for (delta, (key, value)) in (0_i64..).zip(&records) {
            let mut record = Writer::default();
            record.i8(0);
            record.varint(delta);
            record.varint(delta);
            for part in [key, value] {
                record.varint(i64::try_from(part.len()).unwrap_or(i64::MAX));
                record.0.extend_from_slice(part);
            }
            record.varint(0);
            checked.varint(i64::try_from(record.0.len()).unwrap_or(i64::MAX));
            checked.0.extend_from_slice(&record.0);
            meant.push(Record {
                offset: self.end + delta,
                timestamp: self.timestamp + delta,
                key: say(Some(key)),
                value: say(Some(value)),
            });
        }
        let mut batch = Writer::default();
        batch.i64(self.end);
        batch.i32(i32::try_from(checked.0.len() + 9).unwrap_or(i32::MAX));
        batch.i32(self.leader_epoch);
        batch.i8(2);
        batch.0.extend_from_slice(&crc32c(&checked.0).to_be_bytes());
        batch.0.extend_from_slice(&checked.0);
        if let Some((_, bytes)) = self.segments.last_mut() {
            bytes.extend_from_slice(&batch.0);
        }
        self.parts.push(Part {
            first_offset: self.end,
            last_offset: last,
            producer_id: producer.unwrap_or(-1),
            transactional: attributes & TRANSACTIONAL != 0,
            control,
            records: meant,
        });
        self.end = last + 1;
        self.timestamp += BETWEEN;
        self
    }

    /// One past the last offset.
    pub(super) fn end(&self) -> i64 {
        self.end
    }

    /// What was written, in order.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.segments.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }

    /// Puts the log into a partition's folder, in place of what is there; only the topic's id stays.
    ///
    /// # Errors
    /// If a file cannot be removed or written.
    pub(super) fn place(&self, folder: &Path) -> Result<()> {
        empty(folder)?;
        for (first, bytes) in &self.segments {
            std::fs::write(folder.join(format!("{first:020}.log")), bytes)?;
        }
        Ok(())
    }
}

fn control_key(kind: i16) -> Vec<u8> {
    let mut key = Writer::default();
    key.i16(0);
    key.i16(kind);
    key.0
}

/// Removes all files of a partition's folder but the topic's id.
pub(super) fn empty(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_file() && path.file_name().is_some_and(|name| name != "partition.metadata") {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::logs::{self, Model};

    #[test]
    fn what_is_written_reads_back_as_what_was_meant() {
        let script = Script::new(1000)
            .transaction(5, 2)
            .leader_epoch(1)
            .roll()
            .barrier()
            .skip(3)
            .idempotent(5, 3)
            .transaction(6, 1)
            .commit(6)
            .plain(1);
        let bytes = script.bytes();
        let (batches, valid) = logs::walk(&bytes);
        assert_eq!(valid, bytes.len());
        let offsets: Vec<_> = batches.iter().map(|batch| (batch.base_offset, batch.last_offset)).collect();
        assert_eq!(offsets, [(0, 1), (2, 2), (6, 8), (9, 9), (10, 10), (11, 11)]);
        let controls: Vec<_> = batches.iter().map(|batch| batch.control).collect();
        assert_eq!(controls, [None, Some(BARRIER), None, None, Some(COMMIT), None]);
        let keys: Vec<_> =
            logs::keys(&bytes, &batches[2]).expect("records").into_iter().map(|(_, key)| key).collect();
        assert_eq!(keys, ["k6", "k7", "k8"]);
        assert_eq!(batches[2].base_sequence, 0, "a new producer behind the barrier");
        let model = Model::of(&batches);
        assert_eq!(model.epochs, [(0, 0), (1, 2)]);
        assert_eq!(model.producers.keys().copied().collect::<Vec<_>>(), [5, 6]);
        assert_eq!(script.end(), model.end);
        assert_eq!(script.segments.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [0, 2]);
    }
}
