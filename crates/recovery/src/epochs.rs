//! Leader epochs of one partition: which epoch began at which offset.
//!
//! Both columns ascend. The cache answers `OffsetForLeaderEpoch` (KIP-101, KIP-279) and is kept in
//! `leader-epoch-checkpoint`, Kafka's text format: a version line `0`, a line with the number of entries, then one line
//! `epoch start-offset` for each.

use weir_format::{LeaderEpoch, Offset};

/// One leader epoch and the first offset written under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// The log end when it began.
    pub start_offset: Offset,
}

/// The leader epochs of a partition, ascending in epoch and in start offset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaderEpochCache {
    // INVARIANT: strictly ascending in epoch and in start offset.
    entries: Vec<EpochEntry>,
}

/// Why bytes are not a leader-epoch checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EpochCheckpointError {
    /// Not text.
    #[error("leader-epoch-checkpoint is not text")]
    NotText,
    /// The first line is not a version that we know.
    #[error("leader-epoch-checkpoint has an unknown version")]
    Version,
    /// The number of entries is missing or differs from the lines that follow.
    #[error("leader-epoch-checkpoint has a wrong entry count")]
    Count,
    /// A line is not `epoch offset`.
    #[error("leader-epoch-checkpoint line {line} is malformed")]
    Malformed {
        /// Counted from one.
        line: usize,
    },
    /// Epochs or offsets do not ascend.
    #[error("leader-epoch-checkpoint line {line} does not ascend")]
    NotAscending {
        /// Counted from one.
        line: usize,
    },
}

impl LeaderEpochCache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest entry.
    #[must_use]
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The oldest entry.
    #[must_use]
    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    /// Notes that `epoch` was in force at `start_offset`; true if that changed anything.
    ///
    /// Entries that contradict the new one, in epoch or in offset, are dropped: the log's newest bytes are right.
    /// An epoch that left no record gives way to the next one at the same offset.
    ///
    /// Source: Kafka's `LeaderEpochFileCache.assign`.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        if let Some(latest) = self.latest()
            && epoch == latest.epoch
            && start_offset >= latest.start_offset
        {
            return false;
        }
        while self.latest().is_some_and(|last| last.epoch >= epoch || last.start_offset >= start_offset) {
            self.entries.pop();
        }
        self.entries.push(EpochEntry { epoch, start_offset });
        true
    }

    /// The epoch in force at `offset`.
    #[must_use]
    pub fn epoch_for_offset(&self, offset: Offset) -> Option<LeaderEpoch> {
        let count = self.entries.partition_point(|entry| entry.start_offset <= offset);
        Some(self.entries.get(count.checked_sub(1)?)?.epoch)
    }

    /// The largest known epoch not above `epoch`, and where it ended; `None` if `epoch` is newer than anything known.
    ///
    /// The end of the newest epoch is `log_end_offset`. An epoch older than anything known ends where the oldest
    /// known one begins.
    ///
    /// Source: KIP-279; Kafka's `LeaderEpochFileCache.endOffsetFor`.
    #[must_use]
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end_offset: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if self.latest()?.epoch == epoch {
            return Some((epoch, log_end_offset));
        }
        let count = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let higher = self.entries.get(count)?;
        let floor = count.checked_sub(1).and_then(|index| self.entries.get(index));
        Some((floor.map_or(epoch, |entry| entry.epoch), higher.start_offset))
    }

    /// Forgets what began at or above `end_offset`; true if that changed anything.
    pub fn truncate_from_end(&mut self, end_offset: Offset) -> bool {
        let kept = self.entries.partition_point(|entry| entry.start_offset < end_offset);
        let changed = kept != self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// Forgets what began above `log_end_offset`, but keeps an epoch that began just there: it has no record yet and is
    /// in force all the same.
    pub fn truncate_above(&mut self, log_end_offset: Offset) -> bool {
        let kept = self.entries.partition_point(|entry| entry.start_offset <= log_end_offset);
        let changed = kept != self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// Forgets what ended at or below `start_offset`; the epoch in force there then begins there.
    pub fn truncate_from_start(&mut self, start_offset: Offset) -> bool {
        let count = self.entries.partition_point(|entry| entry.start_offset <= start_offset);
        let Some(in_force) = count.checked_sub(1) else { return false };
        if in_force == 0 && self.entries[0].start_offset == start_offset {
            return false;
        }
        self.entries.drain(..in_force);
        self.entries[0].start_offset = start_offset;
        true
    }

    /// Forgets everything.
    pub fn clear(&mut self) -> bool {
        let changed = !self.entries.is_empty();
        self.entries.clear();
        changed
    }

    /// The bytes of `leader-epoch-checkpoint`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        use std::fmt::Write as _;
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            let _infallible = writeln!(text, "{} {}", entry.epoch.get(), entry.start_offset.get());
        }
        text.into_bytes()
    }

    /// Reads the bytes of `leader-epoch-checkpoint`.
    ///
    /// # Errors
    /// The bytes are not such a file; the caller rebuilds the cache from the log.
    pub fn decode(bytes: &[u8]) -> Result<Self, EpochCheckpointError> {
        let text = std::str::from_utf8(bytes).map_err(|_| EpochCheckpointError::NotText)?;
        let mut lines = text.lines();
        if lines.next() != Some("0") {
            return Err(EpochCheckpointError::Version);
        }
        let count: usize =
            lines.next().and_then(|line| line.parse().ok()).ok_or(EpochCheckpointError::Count)?;
        let mut cache = Self::new();
        for (index, line) in lines.enumerate() {
            let number = index + 3;
            let malformed = EpochCheckpointError::Malformed { line: number };
            let (epoch, offset) = line.split_once(' ').ok_or(malformed)?;
            let epoch = epoch.parse().ok().and_then(LeaderEpoch::new).ok_or(malformed)?;
            let start_offset = offset.parse().ok().and_then(Offset::new).ok_or(malformed)?;
            if cache.latest().is_some_and(|last| last.epoch >= epoch || last.start_offset >= start_offset) {
                return Err(EpochCheckpointError::NotAscending { line: number });
            }
            cache.entries.push(EpochEntry { epoch, start_offset });
        }
        if cache.entries.len() != count {
            return Err(EpochCheckpointError::Count);
        }
        Ok(cache)
    }
}

/// Compares a checkpoint with the epochs that a walk over the log met.
///
/// The walk may have begun in the middle of the log, and compaction may have removed the first records of an epoch, so
/// an entry may begin before the first batch of its epoch, but not before the end of the batch in front of that.
#[derive(Debug, Clone, Default)]
pub(crate) struct EpochWitness {
    /// What assigning every batch met gives.
    cache: LeaderEpochCache,
    /// For each entry of `cache`: the end of the batch in front of its first batch, if one was met.
    floors: Vec<Option<Offset>>,
    /// End of the last batch met.
    end: Option<Offset>,
}

impl EpochWitness {
    /// A batch was met.
    pub(crate) fn observe(&mut self, epoch: Option<LeaderEpoch>, base_offset: Offset, next_offset: Offset) {
        if let Some(epoch) = epoch
            && self.cache.assign(epoch, base_offset)
        {
            self.floors.truncate(self.cache.entries.len() - 1);
            self.floors.push(self.end);
        }
        self.end = Some(next_offset);
    }

    /// Whether `checkpoint`, which may have forgotten what lies below `start`, tells the same story as the batches that
    /// were met.
    pub(crate) fn agrees_with(&self, checkpoint: &LeaderEpochCache, start: Offset) -> bool {
        let in_force =
            self.cache.entries.partition_point(|entry| entry.start_offset <= start).saturating_sub(1);
        let mut met = self.cache.entries.iter().zip(&self.floors).skip(in_force).peekable();
        let Some(first) = met.peek().map(|(entry, _)| **entry) else { return true };
        let begin = checkpoint.entries.partition_point(|entry| entry.epoch < first.epoch);
        // What the checkpoint says of older epochs must lie before the walk's first batch.
        if begin > 0 && checkpoint.entries[begin - 1].start_offset > first.start_offset.max(start) {
            return false;
        }
        for entry in &checkpoint.entries[begin..] {
            match met.peek() {
                Some((seen, floor)) if seen.epoch == entry.epoch => {
                    if entry.start_offset > seen.start_offset.max(start)
                        || floor.is_some_and(|end| entry.start_offset < end)
                    {
                        return false;
                    }
                    met.next();
                }
                // An epoch without records lies between the batches of its neighbours.
                Some((seen, floor)) => {
                    if entry.epoch > seen.epoch || floor.is_some_and(|end| entry.start_offset < end) {
                        return false;
                    }
                }
                None => {
                    if self.end.is_some_and(|end| entry.start_offset < end) {
                        return false;
                    }
                }
            }
        }
        met.next().is_none()
    }

    /// The epochs that the batches give, with all that `checkpoint` says and no batch contradicts: where an epoch began
    /// before the first batch that is left of it, and epochs of which no batch is left. Every batch was met, and the log
    /// ends at `log_end_offset`.
    pub(crate) fn completed_by(
        &self,
        checkpoint: &LeaderEpochCache,
        log_end_offset: Offset,
    ) -> LeaderEpochCache {
        let mut noted = checkpoint.entries.iter().copied().peekable();
        let mut completed = LeaderEpochCache::new();
        let met = self.cache.entries.iter().zip(&self.floors).map(|(seen, floor)| (Some(*seen), *floor));
        for (seen, floor) in met.chain([(None, self.end)]) {
            let last = seen.map_or(log_end_offset, |seen| seen.start_offset);
            let is_between = |entry: &EpochEntry| {
                entry.start_offset <= last && floor.is_none_or(|end| entry.start_offset >= end)
            };
            let before = |entry: &EpochEntry| seen.is_none_or(|seen| entry.epoch < seen.epoch);
            while let Some(entry) = noted.next_if(before) {
                // An epoch without records, between the batches of its neighbours.
                if is_between(&entry) {
                    completed.assign(entry.epoch, entry.start_offset);
                }
            }
            let Some(seen) = seen else { break };
            let same = noted.next_if(|entry| entry.epoch == seen.epoch).filter(is_between);
            completed.assign(seen.epoch, same.map_or(seen.start_offset, |entry| entry.start_offset));
        }
        completed
    }

    /// The epochs met, to be added to a checkpoint that lags behind.
    pub(crate) fn entries(&self) -> &[EpochEntry] {
        &self.cache.entries
    }
}

#[cfg(test)]
mod tests;
