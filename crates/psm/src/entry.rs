//! What is known about one producer: [`ProducerStateEntry`] and the batches it retains.

use std::num::NonZeroU32;

use weir_format::{Offset, ProducerEpoch, Sequence, TimestampMs};

/// How many batches of one producer are remembered to recognise duplicates.
///
/// Kafka: `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`. A client may have five requests in flight.
pub const BATCHES_RETAINED: usize = 5;

/// One retained batch of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMetadata {
    last_offset: Offset,
    timestamp: TimestampMs,
    last_sequence: Option<PackedSequence>,
    /// Last offset minus first offset.
    /// INVARIANT: not negative, not above the last offset.
    offset_delta: i32,
}

/// A sequence whose absence takes no byte of its own: five of these are in every entry, and an entry is to fit three
/// lines of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedSequence(NonZeroU32);

impl PackedSequence {
    fn new(sequence: Sequence) -> Option<Self> {
        NonZeroU32::new(sequence.get().unsigned_abs().saturating_add(1)).map(Self)
    }

    fn get(self) -> Option<Sequence> {
        Sequence::new(i32::try_from(self.0.get().saturating_sub(1)).ok()?)
    }
}

impl BatchMetadata {
    /// `offset_delta` is not negative and not above `last_offset`.
    pub(crate) fn new(
        last_offset: Offset,
        offset_delta: i32,
        last_sequence: Option<Sequence>,
        timestamp: TimestampMs,
    ) -> Self {
        let last_sequence = last_sequence.and_then(PackedSequence::new);
        Self { last_offset, timestamp, last_sequence, offset_delta }
    }

    const UNUSED: Self = Self {
        last_offset: Offset::ZERO,
        timestamp: TimestampMs::NONE,
        last_sequence: None,
        offset_delta: 0,
    };

    /// Offset of the batch's first record.
    pub fn first_offset(&self) -> Offset {
        self.last_offset
            .checked_add(i64::from(self.offset_delta).wrapping_neg())
            .expect("a batch does not start below offset 0")
    }

    /// Offset of the batch's last record.
    pub fn last_offset(&self) -> Offset {
        self.last_offset
    }

    /// Last offset minus first offset.
    pub fn offset_delta(&self) -> i32 {
        self.offset_delta
    }

    /// Sequence of the first record; `None` for a batch written without sequences (a group
    /// coordinator's transactional offset commits, for example).
    ///
    /// Sequences wrap: the one before 0 is `i32::MAX`.
    pub fn first_sequence(&self) -> Option<Sequence> {
        const SEQUENCES: i64 = 1 << 31;
        let last = i64::from(self.last_sequence()?.get());
        let first = last.wrapping_sub(i64::from(self.offset_delta)).rem_euclid(SEQUENCES);
        Sequence::new(i32::try_from(first).expect("below 2^31 by the remainder"))
    }

    /// Sequence of the last record, as [`first_sequence`](Self::first_sequence).
    pub fn last_sequence(&self) -> Option<Sequence> {
        self.last_sequence.and_then(PackedSequence::get)
    }

    /// The batch's largest timestamp. After a load from a snapshot it is the entry's last
    /// timestamp, which may be that of a marker: Kafka's format keeps only one of the two.
    pub fn timestamp(&self) -> TimestampMs {
        self.timestamp
    }

    /// Whether both describe the same batch. The timestamp is left out, since a snapshot may have
    /// replaced it by a marker's.
    pub(crate) fn same_batch(&self, other: &Self) -> bool {
        self.last_offset == other.last_offset
            && self.last_sequence == other.last_sequence
            && self.offset_delta == other.offset_delta
    }
}

/// What is known about one producer id in one partition.
///
/// Kafka: `ProducerStateEntry`.
#[derive(Clone, Debug)]
pub struct ProducerStateEntry {
    batches: [BatchMetadata; BATCHES_RETAINED],
    batch_count: u8,
    pub(crate) producer_epoch: Option<ProducerEpoch>,
    pub(crate) coordinator_epoch: Option<i32>,
    pub(crate) last_timestamp: TimestampMs,
    pub(crate) transaction_first_offset: Option<Offset>,
}

impl ProducerStateEntry {
    pub(crate) const EMPTY: Self = Self {
        batches: [BatchMetadata::UNUSED; BATCHES_RETAINED],
        batch_count: 0,
        producer_epoch: None,
        coordinator_epoch: None,
        last_timestamp: TimestampMs::NONE,
        transaction_first_offset: None,
    };

    /// The epoch of the producer's last batch or marker; `None` if that carried none (-1).
    pub fn producer_epoch(&self) -> Option<ProducerEpoch> {
        self.producer_epoch
    }

    /// The coordinator epoch of the producer's last marker; `None` if it never had one, or if
    /// that marker carried -1 (the ABORT of a mirror's stop does).
    pub fn coordinator_epoch(&self) -> Option<i32> {
        self.coordinator_epoch
    }

    /// The timestamp of the producer's last batch or marker, as written by whoever wrote it.
    pub fn last_timestamp(&self) -> TimestampMs {
        self.last_timestamp
    }

    /// First offset of the producer's open transaction.
    pub fn transaction_first_offset(&self) -> Option<Offset> {
        self.transaction_first_offset
    }

    /// The retained batches of the current epoch, oldest first, at most [`BATCHES_RETAINED`].
    pub fn batches(&self) -> &[BatchMetadata] {
        self.batches.get(..usize::from(self.batch_count)).unwrap_or(&self.batches)
    }

    /// The newest retained batch.
    pub fn last_batch(&self) -> Option<&BatchMetadata> {
        self.batches().last()
    }

    /// Sequence of the producer's last record in its current epoch.
    pub fn last_sequence(&self) -> Option<Sequence> {
        self.last_batch().and_then(BatchMetadata::last_sequence)
    }

    /// Offset of the producer's last record in its current epoch; markers do not count.
    pub fn last_offset(&self) -> Option<Offset> {
        self.last_batch().map(BatchMetadata::last_offset)
    }

    /// The retained batch with exactly this epoch and these sequences.
    ///
    /// Kafka: `ProducerStateEntry.findDuplicateBatch`.
    pub(crate) fn find_duplicate(
        &self,
        epoch: Option<ProducerEpoch>,
        first_sequence: Sequence,
        last_sequence: Sequence,
    ) -> Option<&BatchMetadata> {
        if self.producer_epoch != epoch {
            return None;
        }
        self.batches().iter().find(|batch| {
            batch.last_sequence() == Some(last_sequence) && batch.first_sequence() == Some(first_sequence)
        })
    }

    /// Takes over an epoch. A different one, higher or lower, drops the retained batches.
    ///
    /// Kafka: `ProducerStateEntry.maybeUpdateProducerEpoch`.
    pub(crate) fn update_epoch(&mut self, epoch: Option<ProducerEpoch>) {
        if self.producer_epoch != epoch {
            self.batch_count = 0;
            self.producer_epoch = epoch;
        }
    }

    /// Adds a batch behind the retained ones; the oldest makes room for the sixth.
    pub(crate) fn add_batch(&mut self, batch: BatchMetadata) {
        let [_, second, third, fourth, fifth] = self.batches;
        match self.batches.get_mut(usize::from(self.batch_count)) {
            Some(next) => {
                *next = batch;
                self.batch_count = self.batch_count.saturating_add(1);
            }
            None => self.batches = [second, third, fourth, fifth, batch],
        }
    }

    /// "Equal state" as the laws mean it: the window of older batches may be shorter on one side
    /// (a snapshot keeps one batch), but what both know is the same.
    pub(crate) fn equal_state(&self, other: &Self) -> bool {
        let newest_first = |entry: &Self| entry.batches().iter().rev().copied().collect::<Vec<_>>();
        let (ours, theirs) = (newest_first(self), newest_first(other));
        self.producer_epoch == other.producer_epoch
            && self.coordinator_epoch == other.coordinator_epoch
            && self.last_timestamp == other.last_timestamp
            && self.transaction_first_offset == other.transaction_first_offset
            && ours.is_empty() == theirs.is_empty()
            && ours.iter().zip(&theirs).all(|(a, b)| a.same_batch(b))
    }
}

/// Everything that is known, retained batches included.
impl PartialEq for ProducerStateEntry {
    fn eq(&self, other: &Self) -> bool {
        self.batches() == other.batches() && self.equal_state(other)
    }
}

impl Eq for ProducerStateEntry {}
