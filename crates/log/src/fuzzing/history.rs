//! What a partition must be, by whoever wrote it: the batches that were handed over, and every answer worked out by reading
//! them from the first one on. Slow, and short enough to be checked by eye; it uses nothing of the crates that it judges
//! but the bytes of batches.

use std::collections::BTreeSet;

use bytes::BytesMut;
use weir_format::{
    BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs, set_base_offset,
    set_leader_epoch,
};

/// What a batch is, as it was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Records of nobody.
    Plain,
    /// Records of a producer.
    Data {
        /// Whose.
        id: i64,
        /// Its epoch.
        epoch: i16,
        /// The first record's sequence.
        sequence: i32,
        /// Whether they belong to a transaction.
        transactional: bool,
    },
    /// The end of a transaction.
    Marker {
        /// Whose.
        id: i64,
        /// The producer's epoch.
        epoch: i16,
        /// The coordinator's.
        coordinator_epoch: i32,
        /// COMMIT, or ABORT.
        commit: bool,
    },
    /// `MIRROR_PID_RESET`.
    Barrier,
}

/// A batch as it was handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Where it lies.
    pub base: i64,
    /// How many offsets it takes.
    pub count: i64,
    /// Under which leader epoch.
    pub leader_epoch: i32,
    /// What it is.
    pub what: What,
    /// Timestamps of its records.
    pub stamps: Vec<i64>,
    /// Its largest timestamp, which an emptied batch has too.
    pub max_timestamp: i64,
    /// As it lies in the log.
    pub bytes: Vec<u8>,
}

impl Batch {
    /// The offset behind it.
    pub fn next(&self) -> i64 {
        self.base + self.count
    }

    fn producer(&self) -> Option<(i64, i16)> {
        match self.what {
            What::Data { id, epoch, .. } | What::Marker { id, epoch, .. } => Some((id, epoch)),
            What::Plain | What::Barrier => None,
        }
    }

    /// Makes one, with its bytes at `base`. `size` is of each record's value; `emptied` is what compaction leaves.
    pub fn make(
        what: What,
        base: i64,
        leader_epoch: i32,
        timestamp: i64,
        count: i64,
        size: usize,
        emptied: bool,
    ) -> Batch {
        let count = if matches!(what, What::Marker { .. } | What::Barrier) { 1 } else { count };
        let stamp = TimestampMs::new;
        let records: Vec<i64> =
            if emptied { Vec::new() } else { (0..count).map(|n| timestamp + n).collect() };
        let max_timestamp = timestamp + count - 1;
        let mut bytes = match what {
            What::Marker { id, epoch, coordinator_epoch, commit } => BatchBuilder::end_transaction_marker(
                commit,
                ProducerId::new(id).unwrap(),
                ProducerEpoch::new(epoch).unwrap(),
                (coordinator_epoch >= 0).then_some(coordinator_epoch),
                stamp(timestamp),
            ),
            What::Barrier => BatchBuilder::barrier(stamp(timestamp)),
            What::Plain | What::Data { .. } => {
                let mut builder = BatchBuilder::new();
                if let What::Data { id, epoch, sequence, transactional } = what {
                    builder = builder.producer(
                        ProducerId::new(id).unwrap(),
                        ProducerEpoch::new(epoch).unwrap(),
                        Sequence::new(sequence),
                    );
                    if transactional {
                        builder = builder.transactional();
                    }
                }
                builder = builder.last_offset_delta(i32::try_from(count - 1).unwrap());
                builder = builder.max_timestamp(stamp(max_timestamp));
                let fill = b'a' + u8::try_from(base.rem_euclid(26)).unwrap();
                for at in &records {
                    builder = builder.record(stamp(*at), Some(b"k"), Some(&vec![fill; size]));
                }
                builder.build().unwrap()
            }
        };
        place(&mut bytes, base, leader_epoch);
        Batch { base, count, leader_epoch, what, stamps: records, max_timestamp, bytes: bytes.to_vec() }
    }
}

fn place(bytes: &mut BytesMut, base: i64, leader_epoch: i32) {
    set_base_offset(bytes, Offset::new(base).unwrap()).unwrap();
    set_leader_epoch(bytes, LeaderEpoch::new(leader_epoch).unwrap()).unwrap();
}

/// What a leader says of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes into the log.
    Append,
    /// It is there; first and last offset of the original.
    Duplicate(i64, i64),
    /// Its producer's epoch is over.
    Epoch,
    /// Its sequence does not follow.
    Sequence,
    /// It is outside the transaction that its producer has open.
    TransactionState,
    /// Its coordinator's epoch is over.
    Coordinator,
}

/// What is known of a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// Its epoch.
    pub epoch: i16,
    /// Of its last marker; −1 if it had none.
    pub coordinator_epoch: i32,
    /// Of its last batch or marker.
    pub last_timestamp: i64,
    /// Where its open transaction begins.
    pub open_since: Option<i64>,
    /// Its window: first and last sequence, first and last offset.
    pub batches: Vec<(i32, i32, i64, i64)>,
}

/// A transaction that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Whose.
    pub id: i64,
    /// Its first offset.
    pub first: i64,
    /// Its marker's offset, or the barrier's.
    pub last: i64,
    /// Not committed.
    pub aborted: bool,
    /// The first offset of the earliest that was still open, or the one behind `last`.
    pub stable: i64,
}

/// When segments may go.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// The clock.
    pub now: i64,
    /// How long records are kept, in milliseconds.
    pub ms: Option<u64>,
    /// How many bytes are kept.
    pub bytes: Option<u64>,
    /// How many segments may go.
    pub most: usize,
    /// Where the log starts.
    pub start: i64,
    /// What lies at or above stays.
    pub high_watermark: i64,
    /// A start knows the producers from here on without any batch.
    pub known_from: i64,
}

/// All batches of a log.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Every batch that is in it, ascending; also those of segments that were deleted.
    pub batches: Vec<Batch>,
    /// Where it ends.
    pub end: i64,
    /// Where its first segment begins.
    pub first_base: i64,
    /// From each offset on, transactions were ended by a state that knew what lies at or above the second one: what was
    /// replayed began there. The last is what is known now. Empty: everything.
    pub knowledge: Vec<(i64, i64)>,
    /// Below here each producer's window is its newest batch alone: a snapshot was loaded.
    pub reloaded_at: i64,
    /// Leader epochs that were noted without a record, and where.
    pub assigned: Vec<(i32, i64)>,
    /// Leader epochs are known from here on: the log was once empty here.
    pub epochs_from: i64,
    /// And from here on alone: the log once started here, and a start that is forgotten brings nothing back.
    pub clipped_to: i64,
}

impl History {
    /// Puts a batch behind all others.
    pub fn push(&mut self, batch: Batch) {
        assert!(batch.base >= self.end, "batches ascend");
        self.end = batch.next();
        self.batches.push(batch);
    }

    /// The batches that are in a segment.
    pub fn on_disk(&self) -> impl DoubleEndedIterator<Item = &Batch> {
        self.batches.iter().filter(|batch| batch.base >= self.first_base)
    }

    /// Producers are known from here on.
    pub fn known_from(&self) -> i64 {
        self.knowledge.last().map_or(0, |known| known.1)
    }

    /// From now on, of what ends at or above `at`, only what lies at or above `from` is known.
    pub fn knows_from(&mut self, at: i64, from: i64) {
        if self.known_from() != from {
            if self.knowledge.is_empty() {
                self.knowledge.push((0, 0));
            }
            self.knowledge.push((at, from));
        }
    }

    fn known(&self) -> impl DoubleEndedIterator<Item = &Batch> {
        self.known_above(self.known_from())
    }

    fn known_above(&self, from: i64) -> impl DoubleEndedIterator<Item = &Batch> {
        self.batches.iter().filter(move |batch| batch.base >= from)
    }

    /// The ids of which something is known.
    pub fn ids(&self) -> BTreeSet<i64> {
        let ids = self.known().filter_map(|batch| batch.producer()).map(|(id, _)| id);
        ids.filter(|id| self.producer(*id).is_some()).collect()
    }

    /// What a producer wrote, or what was written for it, since the last barrier.
    fn events_of(&self, id: i64) -> Vec<&Batch> {
        let known: Vec<&Batch> = self.known().collect();
        let first = known.iter().rposition(|batch| batch.what == What::Barrier).map_or(0, |at| at + 1);
        known[first..].iter().filter(|batch| batch.producer().is_some_and(|of| of.0 == id)).copied().collect()
    }

    /// What is known of a producer at the end.
    pub fn producer(&self, id: i64) -> Option<Producer> {
        let events = self.events_of(id);
        let last = events.last()?;
        let (_, epoch) = last.producer()?;
        // The newest run of one epoch, and of it the newest five.
        let other = |batch: &&Batch| batch.producer().is_some_and(|of| of.1 != epoch);
        let run = events.iter().rposition(other).map_or(0, |at| at + 1);
        let mut batches: Vec<_> = events[run..].iter().filter_map(|batch| window_entry(batch)).collect();
        let before = batches.iter().filter(|batch| batch.3 < self.reloaded_at).count();
        batches.drain(..before.saturating_sub(1));
        batches.drain(..batches.len().saturating_sub(5));
        let marker = events.iter().rposition(|batch| matches!(batch.what, What::Marker { .. }));
        let coordinator_epoch = match marker.map(|at| events[at].what) {
            Some(What::Marker { coordinator_epoch, .. }) => coordinator_epoch,
            _ => -1,
        };
        let opens = |batch: &&&Batch| matches!(batch.what, What::Data { transactional: true, .. });
        let open_since = events[marker.map_or(0, |at| at + 1)..].iter().find(opens).map(|batch| batch.base);
        Some(Producer { epoch, coordinator_epoch, last_timestamp: last.max_timestamp, open_since, batches })
    }

    /// What a leader says of a client's batch.
    pub fn client(&self, id: i64, epoch: i16, sequence: i32, count: i64, transactional: bool) -> Verdict {
        let Some(known) = self.producer(id) else { return Verdict::Append };
        let last = wrapped(i64::from(sequence) + count - 1);
        let same = |batch: &&(i32, i32, i64, i64)| batch.0 == sequence && batch.1 == last;
        if epoch == known.epoch
            && let Some(original) = known.batches.iter().find(same)
        {
            return Verdict::Duplicate(original.2, original.3);
        }
        if epoch < known.epoch {
            return Verdict::Epoch;
        }
        if sequence != next_sequence(&known, epoch) {
            return Verdict::Sequence;
        }
        if known.open_since.is_some() && !transactional {
            return Verdict::TransactionState;
        }
        Verdict::Append
    }

    /// What a leader says of its coordinator's marker.
    pub fn coordinator(&self, id: i64, epoch: i16, coordinator_epoch: i32) -> Verdict {
        match self.producer(id) {
            Some(known) if epoch < known.epoch => Verdict::Epoch,
            Some(known) if coordinator_epoch < known.coordinator_epoch => Verdict::Coordinator,
            _ => Verdict::Append,
        }
    }

    /// Every transaction that ended, in the order in which they did; and those that are open, by first offset and id.
    pub fn transactions(&self) -> (Vec<Ended>, Vec<(i64, i64)>) {
        self.transactions_above(self.known_from())
    }

    fn transactions_above(&self, from: i64) -> (Vec<Ended>, Vec<(i64, i64)>) {
        let mut ended = Vec::new();
        let mut open: Vec<(i64, i64)> = Vec::new();
        for batch in self.known_above(from) {
            let mut end = |open: &mut Vec<(i64, i64)>, which: usize, aborted| {
                let (first, id) = open.remove(which);
                let stable = open.first().map_or(batch.base + 1, |open| open.0);
                ended.push(Ended { id, first, last: batch.base, aborted, stable });
            };
            match batch.what {
                What::Data { id, transactional: true, .. } if open.iter().all(|open| open.1 != id) => {
                    open.push((batch.base, id));
                }
                What::Marker { id, commit, .. } => {
                    if let Some(which) = open.iter().position(|open| open.1 == id) {
                        end(&mut open, which, !commit);
                    }
                }
                What::Barrier => {
                    while !open.is_empty() {
                        end(&mut open, 0, true);
                    }
                }
                What::Data { .. } | What::Plain => {}
            }
        }
        (ended, open)
    }

    /// What the transaction indexes of the segments hold.
    pub fn aborted(&self) -> Vec<Ended> {
        let everything = [(0, 0)];
        let knowledge = if self.knowledge.is_empty() { &everything[..] } else { &self.knowledge };
        let ends = knowledge.iter().skip(1).map(|known| known.0).chain([i64::MAX]);
        let noted = knowledge.iter().zip(ends).flat_map(|((at, from), until)| {
            let (ended, _) = self.transactions_above(*from);
            ended.into_iter().filter(move |ended| ended.last >= *at && ended.last < until)
        });
        noted.filter(|ended| ended.aborted && ended.last >= self.first_base).collect()
    }

    /// The barriers on disk, and whether a transaction was open at each.
    pub fn barriers(&self) -> Vec<(i64, bool)> {
        let aborted = self.aborted();
        let barriers = self.on_disk().filter(|batch| batch.what == What::Barrier);
        barriers.map(|batch| (batch.base, aborted.iter().any(|ended| ended.last == batch.base))).collect()
    }

    /// What a `read_committed` reader may see of what lies below `high_watermark`.
    pub fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        let (ended, open) = self.transactions();
        let unreplicated = ended.iter().filter(|ended| ended.last >= high_watermark).map(|ended| ended.first);
        unreplicated.chain(open.iter().map(|open| open.0)).chain([high_watermark]).min().unwrap_or(0)
    }

    /// Where the log begins once the oldest of its segments, which begin at `bases`, have gone as far as they may.
    pub fn first_kept(&self, bases: &[i64], may: &Retention) -> i64 {
        let mut kept = bases.first().copied().unwrap_or(0);
        let mut by_age = false;
        for (index, base) in bases.iter().enumerate().take(may.most) {
            let next = bases.get(index + 1).copied();
            let end = next.unwrap_or(self.end);
            let inside: Vec<&Batch> =
                self.batches.iter().filter(|batch| batch.base >= *base && batch.base < end).collect();
            let size_from = |from: i64| -> usize {
                self.batches.iter().filter(|batch| batch.base >= from).map(|batch| batch.bytes.len()).sum()
            };
            let below_start = next.is_some_and(|next| next <= may.start);
            let too_much = !by_age
                && may.bytes.is_some_and(|bytes| {
                    let more = |from| u64::try_from(size_from(from)).unwrap();
                    more(*base) > bytes && more(end) >= bytes
                });
            // What holds nothing is as old as its file.
            let newest = inside.iter().map(|batch| batch.max_timestamp).max().unwrap_or(0);
            let too_old = may.ms.is_some_and(|ms| u64::try_from(may.now - newest).is_ok_and(|age| age > ms));
            let is_empty = next.is_none() && inside.is_empty();
            if is_empty
                || end > may.high_watermark.min(may.known_from)
                || !(below_start || too_much || too_old)
            {
                break;
            }
            by_age |= !below_start && !too_much;
            kept = end;
        }
        kept
    }

    /// A cut at `end` of a log that started at `start` takes the epochs that are noted from there on; none is noted below
    /// the log start. Where that takes all, the newest batch that is left says which is in force from there on.
    pub fn cut_epochs(&mut self, start: i64, end: i64) {
        if self.epochs(start).iter().all(|entry| entry.1 >= end) {
            self.assigned.clear();
            let left = self.on_disk().rfind(|batch| batch.next() <= end).map(|batch| batch.base);
            self.epochs_from = left.unwrap_or(end);
            self.clipped_to = 0;
        }
        self.assigned.retain(|(_, at)| *at < end);
    }

    /// The leader epochs and where each began, of a log that starts at `start`.
    pub fn epochs(&self, start: i64) -> Vec<(i32, i64)> {
        let of_batches = self.batches.iter().map(|batch| (batch.leader_epoch, batch.base));
        let noted = of_batches.chain(self.assigned.iter().copied());
        let mut noted: Vec<(i32, i64)> = noted.filter(|(_, at)| *at >= self.epochs_from).collect();
        noted.sort_unstable();
        let mut epochs: Vec<(i32, i64)> = Vec::new();
        for (epoch, at) in noted {
            if epochs.last().is_some_and(|last| last.0 == epoch) {
                continue;
            }
            // An epoch without records gives way to the next one that begins at the same offset.
            epochs.retain(|earlier| earlier.1 < at);
            epochs.push((epoch, at));
        }
        let start = start.max(self.clipped_to);
        let in_force = epochs.iter().rposition(|entry| entry.1 <= start).unwrap_or(0);
        epochs.drain(..in_force);
        if let Some(first) = epochs.first_mut() {
            first.1 = first.1.max(start);
        }
        epochs
    }

    /// Base offsets of the data that a `read_committed` reader who starts at `start` gets, up to `end`: each batch looks
    /// ahead to what ends its transaction.
    pub fn committed(&self, start: i64, end: i64) -> Vec<i64> {
        let delivered = |(index, batch): (usize, &Batch)| {
            let What::Data { id, transactional, .. } = batch.what else {
                return (batch.what == What::Plain).then_some(batch.base);
            };
            let ends = |later: &&Batch| match later.what {
                What::Marker { id: whose, .. } => whose == id,
                What::Barrier => true,
                What::Data { .. } | What::Plain => false,
            };
            let commits = |later: &Batch| matches!(later.what, What::Marker { commit: true, .. });
            let kept = !transactional || self.batches[index + 1..].iter().find(ends).is_some_and(commits);
            kept.then_some(batch.base)
        };
        let in_range = |(_, batch): &(usize, &Batch)| batch.next() > start && batch.next() <= end;
        self.batches.iter().enumerate().filter(in_range).filter_map(delivered).collect()
    }

    /// The first record at or above `start` whose timestamp is not below `asked`.
    pub fn offset_for_timestamp(&self, asked: i64, start: i64) -> Option<(i64, i64)> {
        self.on_disk().find_map(|batch| {
            let control = matches!(batch.what, What::Marker { .. } | What::Barrier);
            let stamps: &[i64] =
                if control { std::slice::from_ref(&batch.max_timestamp) } else { &batch.stamps };
            (batch.base..)
                .zip(stamps)
                .find_map(|(at, stamp)| (at >= start && *stamp >= asked).then_some((at, *stamp)))
        })
    }
}

/// A batch's place in its producer's window.
fn window_entry(batch: &Batch) -> Option<(i32, i32, i64, i64)> {
    let What::Data { sequence, .. } = batch.what else { return None };
    Some((sequence, wrapped(i64::from(sequence) + batch.count - 1), batch.base, batch.next() - 1))
}

/// Behind the largest sequence comes 0.
fn wrapped(sequence: i64) -> i32 {
    i32::try_from(sequence.rem_euclid(1 << 31)).unwrap()
}

/// The sequence that follows for a batch of this epoch.
pub(super) fn next_sequence(known: &Producer, epoch: i16) -> i32 {
    match known.batches.last() {
        Some((_, last, ..)) if epoch == known.epoch => wrapped(i64::from(*last) + 1),
        _ => 0,
    }
}
