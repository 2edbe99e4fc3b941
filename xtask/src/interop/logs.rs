//! An independent reader of Kafka's files and a naive model of what a partition's bytes mean.
//!
//! Nothing here is weir's own code: the checks would prove little if both sides shared a parser.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

const HEADER: usize = 61;
/// Control record types: 0 ABORT, 1 COMMIT, 7 MIRROR_PID_RESET.
pub(super) const ABORT: i16 = 0;
pub(super) const COMMIT: i16 = 1;
pub(super) const BARRIER: i16 = 7;

/// The header of one record batch, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) position: usize,
    pub(super) size: usize,
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) attributes: i16,
    pub(super) max_timestamp: i64,
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) base_sequence: i32,
    pub(super) count: i32,
    /// The type in the first record's key, for a control batch.
    pub(super) control: Option<i16>,
    /// The coordinator epoch of an end transaction marker.
    pub(super) coordinator_epoch: Option<i32>,
}

impl Batch {
    pub(super) fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    pub(super) fn codec(&self) -> i16 {
        self.attributes & 7
    }
}

/// The valid batches at the start of `bytes`, and how many bytes they take.
pub(super) fn walk(bytes: &[u8]) -> (Vec<Batch>, usize) {
    let mut batches = Vec::new();
    let mut position = 0;
    while let Some(batch) = bytes.get(position..).and_then(|rest| batch_at(rest, position)) {
        position += batch.size;
        batches.push(batch);
    }
    (batches, position)
}

fn batch_at(bytes: &[u8], position: usize) -> Option<Batch> {
    let length = usize::try_from(i32_at(bytes, 8)?).ok()?;
    let size = length.checked_add(12)?;
    if size < HEADER || bytes.len() < size || bytes.get(16) != Some(&2) {
        return None;
    }
    let checked = bytes.get(21..size)?;
    if bytes.get(17..21)? != crc32c(checked).to_be_bytes() {
        return None;
    }
    let base_offset = i64_at(bytes, 0)?;
    let attributes = i16_at(bytes, 21)?;
    let mut batch = Batch {
        position,
        size,
        base_offset,
        last_offset: base_offset + i64::from(i32_at(bytes, 23)?),
        leader_epoch: i32_at(bytes, 12)?,
        attributes,
        max_timestamp: i64_at(bytes, 35)?,
        producer_id: i64_at(bytes, 43)?,
        producer_epoch: i16_at(bytes, 51)?,
        base_sequence: i32_at(bytes, 53)?,
        count: i32_at(bytes, 57)?,
        control: None,
        coordinator_epoch: None,
    };
    if attributes & 0x20 != 0 {
        let (_, key, value) = records(bytes.get(HEADER..size)?, 1).ok()?.into_iter().next()?;
        batch.control = key.as_deref().and_then(|key| i16_at(key, 2));
        batch.coordinator_epoch = value.as_deref().and_then(|value| i32_at(value, 2));
    }
    Some(batch)
}

type RawRecord = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Offset delta, key and value of the first `count` records.
fn records(mut bytes: &[u8], count: i32) -> Result<Vec<RawRecord>> {
    let mut found = Vec::new();
    for _ in 0..count {
        let size = usize::try_from(varint(&mut bytes)?)?;
        let (mut record, rest) = bytes.split_at_checked(size).context("a record is cut short")?;
        bytes = rest;
        record = record.get(1..).context("a record without attributes")?;
        varint(&mut record)?;
        let delta = varint(&mut record)?;
        let key = part(&mut record)?;
        let value = part(&mut record)?;
        found.push((delta, key, value));
    }
    Ok(found)
}

fn part(record: &mut &[u8]) -> Result<Option<Vec<u8>>> {
    let size = varint(record)?;
    if size < 0 {
        return Ok(None);
    }
    let (taken, rest) = record.split_at_checked(usize::try_from(size)?).context("a record is cut short")?;
    *record = rest;
    Ok(Some(taken.to_vec()))
}

fn varint(bytes: &mut &[u8]) -> Result<i64> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        let (first, rest) = bytes.split_first().context("a varint is cut short")?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).checked_shl(shift).unwrap_or(0);
        if first & 0x80 == 0 {
            return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
        }
    }
    bail!("a varint is too long")
}

/// Offsets and keys of an uncompressed data batch.
pub(super) fn keys(log: &[u8], batch: &Batch) -> Result<Vec<(i64, String)>> {
    ensure!(batch.codec() == 0, "the batch at offset {} is compressed", batch.base_offset);
    let bytes = log.get(batch.position + HEADER..batch.position + batch.size).context("no such batch")?;
    Ok(records(bytes, batch.count)?
        .into_iter()
        .map(|(delta, key, _)| {
            (batch.base_offset + delta, String::from_utf8_lossy(&key.unwrap_or_default()).into_owned())
        })
        .collect())
}

/// One partition's log files as one run of bytes.
#[derive(Debug)]
pub(super) struct Log {
    /// The valid bytes of all segments, in order.
    pub(super) bytes: Vec<u8>,
    pub(super) batches: Vec<Batch>,
    pub(super) segments: usize,
    /// What lies behind the last valid batch is not all zeros.
    pub(super) dirty_tail: bool,
}

impl Log {
    /// Reads the `.log` files of a partition's folder. Only the last one may have anything behind its batches.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut log = Self { bytes: Vec::new(), batches: Vec::new(), segments: 0, dirty_tail: false };
        let files = files(folder, "log")?;
        ensure!(!files.is_empty(), "{} has no log file", folder.display());
        let last = files.len() - 1;
        for (index, file) in files.iter().enumerate() {
            let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            let (batches, valid) = walk(&bytes);
            let (valid_bytes, rest) = bytes.split_at(valid);
            let zeros = rest.iter().all(|byte| *byte == 0);
            ensure!(
                index == last || rest.is_empty(),
                "{} has {} bytes behind its batches",
                file.display(),
                rest.len()
            );
            log.dirty_tail |= !zeros;
            let start = log.bytes.len();
            log.batches
                .extend(batches.into_iter().map(|batch| Batch { position: batch.position + start, ..batch }));
            log.bytes.extend_from_slice(valid_bytes);
            log.segments += 1;
        }
        Ok(log)
    }

    /// One past the last offset.
    pub(super) fn end(&self) -> i64 {
        self.batches.last().map_or(0, |batch| batch.last_offset + 1)
    }
}

/// The files of one kind, in the order of their offsets.
pub(super) fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    found.sort();
    Ok(found)
}

/// What one producer id's entry must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) epoch: i16,
    pub(super) last_sequence: i32,
    pub(super) last_offset: i64,
    pub(super) offset_delta: i32,
    pub(super) timestamp: i64,
    pub(super) coordinator_epoch: i32,
    pub(super) first_offset: i64,
}

/// One entry of a transaction index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aborted {
    pub(super) producer_id: i64,
    pub(super) first_offset: i64,
    pub(super) last_offset: i64,
    pub(super) last_stable_offset: i64,
}

/// What a partition's bytes mean, worked out slowly and obviously.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) producers: BTreeMap<i64, Producer>,
    pub(super) aborted: Vec<Aborted>,
    /// First offset of each open transaction, with its producer id.
    pub(super) open: BTreeMap<i64, i64>,
    pub(super) end: i64,
    pub(super) barriers: Vec<i64>,
    /// Leader epoch and the first offset under it.
    pub(super) epochs: Vec<(i32, i64)>,
}

impl Model {
    pub(super) fn of(batches: &[Batch]) -> Self {
        let mut model = Self::default();
        for batch in batches {
            model.apply(batch);
        }
        model
    }

    /// Where read_committed readers stop, when everything is below the high watermark.
    pub(super) fn last_stable_offset(&self) -> i64 {
        self.open.keys().next().copied().unwrap_or(self.end)
    }

    fn apply(&mut self, batch: &Batch) {
        if self.epochs.last().is_none_or(|(epoch, _)| batch.leader_epoch > *epoch) {
            self.epochs.push((batch.leader_epoch, batch.base_offset));
        }
        match batch.control {
            Some(BARRIER) => {
                let open: Vec<(i64, i64)> = std::mem::take(&mut self.open).into_iter().collect();
                for (index, (first_offset, producer_id)) in open.iter().enumerate() {
                    let next = open.get(index + 1).map_or(batch.base_offset + 1, |(first, _)| *first);
                    self.aborted.push(Aborted {
                        producer_id: *producer_id,
                        first_offset: *first_offset,
                        last_offset: batch.base_offset,
                        last_stable_offset: next,
                    });
                }
                self.producers.clear();
                self.barriers.push(batch.base_offset);
            }
            Some(kind @ (ABORT | COMMIT)) if batch.producer_id >= 0 => {
                let entry = self.entry(batch);
                let first_offset = std::mem::replace(&mut entry.first_offset, -1);
                entry.timestamp = batch.max_timestamp;
                entry.coordinator_epoch = batch.coordinator_epoch.unwrap_or(-1);
                if first_offset >= 0 {
                    self.open.remove(&first_offset);
                    if kind == ABORT {
                        let next = self.open.keys().next().copied().unwrap_or(batch.last_offset + 1);
                        self.aborted.push(Aborted {
                            producer_id: batch.producer_id,
                            first_offset,
                            last_offset: batch.last_offset,
                            last_stable_offset: next,
                        });
                    }
                }
            }
            Some(_) => {}
            None if batch.producer_id >= 0 => {
                let entry = self.entry(batch);
                entry.last_sequence = batch.base_sequence.wrapping_add(batch.count - 1) & i32::MAX;
                entry.last_offset = batch.last_offset;
                entry.offset_delta = i32::try_from(batch.last_offset - batch.base_offset).unwrap_or(-1);
                entry.timestamp = batch.max_timestamp;
                if batch.is_transactional() && entry.first_offset < 0 {
                    entry.first_offset = batch.base_offset;
                    self.open.insert(batch.base_offset, batch.producer_id);
                }
            }
            None => {}
        }
        self.end = batch.last_offset + 1;
    }

    /// The entry of a batch's producer, under that batch's epoch: a new epoch forgets the old batches.
    fn entry(&mut self, batch: &Batch) -> &mut Producer {
        let fresh = Producer {
            epoch: batch.producer_epoch,
            last_sequence: -1,
            last_offset: -1,
            offset_delta: 0,
            timestamp: -1,
            coordinator_epoch: -1,
            first_offset: -1,
        };
        let entry = self.producers.entry(batch.producer_id).or_insert_with(|| fresh.clone());
        if entry.epoch != batch.producer_epoch {
            let kept = (entry.coordinator_epoch, entry.first_offset);
            *entry = fresh;
            (entry.coordinator_epoch, entry.first_offset) = kept;
        }
        entry
    }
}

/// The entries of a `.snapshot` file.
pub(super) fn read_snapshot(path: &Path) -> Result<BTreeMap<i64, Producer>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let body = bytes.get(6..).context("a short snapshot")?;
    ensure!(i16_at(&bytes, 0) == Some(1), "{} has another version", path.display());
    ensure!(
        bytes.get(2..6) == Some(crc32c(body).to_be_bytes().as_slice()),
        "{} has a wrong CRC",
        path.display()
    );
    let count = usize::try_from(i32_at(body, 0).context("a short snapshot")?)?;
    let entries = body.get(4..).unwrap_or_default();
    ensure!(entries.len() == count * 46, "{} says {count} entries", path.display());
    let mut found = BTreeMap::new();
    for entry in entries.chunks_exact(46) {
        let read = || {
            Some((
                i64_at(entry, 0)?,
                Producer {
                    epoch: i16_at(entry, 8)?,
                    last_sequence: i32_at(entry, 10)?,
                    last_offset: i64_at(entry, 14)?,
                    offset_delta: i32_at(entry, 22)?,
                    timestamp: i64_at(entry, 26)?,
                    coordinator_epoch: i32_at(entry, 34)?,
                    first_offset: i64_at(entry, 38)?,
                },
            ))
        };
        let (id, producer) = read().context("a short entry")?;
        found.insert(id, producer);
    }
    Ok(found)
}

/// The entries of all `.txnindex` files of a folder.
pub(super) fn read_aborted(folder: &Path) -> Result<Vec<Aborted>> {
    let mut found = Vec::new();
    for file in files(folder, "txnindex")? {
        let bytes = std::fs::read(&file)?;
        ensure!(bytes.len() % 34 == 0, "{} has {} bytes", file.display(), bytes.len());
        for entry in bytes.chunks_exact(34) {
            let read = || {
                Some(Aborted {
                    producer_id: i64_at(entry, 2)?,
                    first_offset: i64_at(entry, 10)?,
                    last_offset: i64_at(entry, 18)?,
                    last_stable_offset: i64_at(entry, 26)?,
                })
            };
            found.push(read().context("a short entry")?);
        }
    }
    Ok(found)
}

/// The lines of `leader-epoch-checkpoint`: epoch and start offset.
pub(super) fn read_epochs(folder: &Path) -> Result<Vec<(i32, i64)>> {
    let path = folder.join("leader-epoch-checkpoint");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut epochs = Vec::new();
    for line in text.lines().skip(2) {
        let (epoch, start) =
            line.split_once(' ').with_context(|| format!("{line:?} in {}", path.display()))?;
        epochs.push((epoch.parse()?, start.trim().parse()?));
    }
    Ok(epochs)
}

fn i16_at(bytes: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// CRC-32C by a table, as in the RFC.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0_u32; 256];
        let mut index = 0_u32;
        let mut slot = 0_usize;
        while slot < 256 {
            let mut value = index;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
                bit += 1;
            }
            table[slot] = value;
            index += 1;
            slot += 1;
        }
        table
    };
    let mut crc = u32::MAX;
    for byte in bytes {
        let [low, ..] = crc.to_le_bytes();
        crc = TABLE.get(usize::from(low ^ byte)).copied().unwrap_or(0) ^ (crc >> 8);
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    fn data(base_offset: i64, producer_id: i64, transactional: bool) -> Batch {
        Batch {
            position: 0,
            size: 0,
            base_offset,
            last_offset: base_offset + 1,
            leader_epoch: 3,
            attributes: if transactional { 0x10 } else { 0 },
            max_timestamp: 1000,
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            count: 2,
            control: None,
            coordinator_epoch: None,
        }
    }

    fn control(base_offset: i64, producer_id: i64, kind: i16) -> Batch {
        Batch {
            last_offset: base_offset,
            attributes: 0x30,
            count: 1,
            base_sequence: -1,
            control: Some(kind),
            coordinator_epoch: Some(9),
            ..data(base_offset, producer_id, true)
        }
    }

    #[test]
    fn transactions_end_by_markers_and_at_a_barrier() {
        let model = Model::of(&[
            data(0, 5, true),
            data(2, 6, true),
            data(4, 7, false),
            control(6, 5, ABORT),
            control(7, -1, BARRIER),
            data(8, 5, false),
        ]);
        let aborted: Vec<_> = model
            .aborted
            .iter()
            .map(|one| (one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset))
            .collect();
        assert_eq!(aborted, [(5, 0, 6, 2), (6, 2, 7, 8)]);
        assert_eq!(model.producers.keys().copied().collect::<Vec<_>>(), [5]);
        assert_eq!((model.last_stable_offset(), model.end), (10, 10));
        assert_eq!(model.barriers, [7]);
        assert_eq!(model.epochs, [(3, 0)]);
    }

    #[test]
    fn an_open_transaction_holds_the_last_stable_offset() {
        let model = Model::of(&[data(0, 5, false), data(2, 6, true), data(4, 5, false)]);
        assert_eq!((model.last_stable_offset(), model.end), (2, 6));
        assert_eq!(model.producers[&6].first_offset, 2);
    }

    #[test]
    fn bytes_that_are_no_batch_end_the_walk() {
        assert_eq!(walk(&[]), (Vec::new(), 0));
        assert_eq!(walk(&[0; 100]), (Vec::new(), 0));
        assert_eq!(walk(&[0xff; 100]), (Vec::new(), 0));
    }
}
