//! The start of the log: what is deleted from it, and when.

use weir_format::{Offset, TimestampMs};
use weir_segment::io::Io;

use super::UnifiedLog;
use crate::error::{ChangeError, because};

/// Which segments [`UnifiedLog::delete_old_segments`] may delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletionScope {
    /// Those that lie wholly below the log start, which somebody moved: of a partition that follows another's log start,
    /// or is compacted and not deleted.
    BelowLogStart,
    /// Those, and what retention by time and by size lets go.
    Retention,
}

/// What [`UnifiedLog::delete_old_segments`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deleted {
    /// How many segments went.
    pub segment_count: usize,
    /// Their size in bytes.
    pub size: u64,
    /// Ask again: as many as were allowed went, and there may be more.
    pub has_more: bool,
    /// The largest timestamp of the segment at which deletion by time stopped, if it is ahead of the clock: nothing behind
    /// it expires before the clock has reached it.
    pub future_timestamp: Option<TimestampMs>,
}

impl UnifiedLog {
    /// Moves the log start up to `offset`, and deletes the segments that lie wholly below it. A lower offset than the
    /// log start changes nothing.
    ///
    /// The new log start is published at once; the node makes it durable in `log-start-offset-checkpoint`.
    ///
    /// Cost: some syncs for each segment; [`UnifiedLog::move_log_start`] leaves them for later.
    ///
    /// # Errors
    /// [`ChangeError::OffsetOutOfRange`] above the high watermark; see [`ChangeError`].
    pub fn advance_log_start(&mut self, io: &mut dyn Io, offset: Offset) -> Result<(), ChangeError> {
        self.move_log_start(offset)?;
        let below = self.log_start_offset.min(self.deletable_below(io));
        self.delete_below(io, below)
    }

    /// Moves the log start up to `offset`. The segments that then lie wholly below it are deleted by
    /// [`UnifiedLog::delete_old_segments`]. A lower offset than the log start changes nothing.
    ///
    /// Producers of what is gone stay known, and a transaction that began below the new log start stays open: the last
    /// stable offset is the log start until it ends. Leader epochs without an offset left go, but for the one in force.
    ///
    /// The new log start is published at once; the node makes it durable in `log-start-offset-checkpoint`.
    ///
    /// Cost: none on the disk.
    ///
    /// # Errors
    /// [`ChangeError::OffsetOutOfRange`] above the high watermark; [`ChangeError::Offline`].
    ///
    /// Source: Kafka's `UnifiedLog.maybeIncrementLogStartOffset`.
    pub fn move_log_start(&mut self, offset: Offset) -> Result<(), ChangeError> {
        self.check_online()?;
        if offset > self.high_watermark {
            return Err(ChangeError::OffsetOutOfRange {
                asked: offset,
                first: self.log_start_offset,
                last: self.high_watermark,
            });
        }
        if offset <= self.log_start_offset {
            return Ok(());
        }
        self.log_start_offset = offset;
        self.epochs_unsaved |= self.epochs.truncate_from_start(offset);
        self.psm.on_log_start_offset(offset);
        self.publish();
        Ok(())
    }

    /// Whether segments lie wholly below the log start that may go: not those that wait for a snapshot.
    #[must_use]
    pub fn has_segments_below_start(&self) -> bool {
        let below = self.log_start_offset.min(self.needed_from());
        self.log.segments().nth(1).is_some_and(|second| second.base_offset() <= below)
    }

    /// Deletes the oldest segments that may go, at most `most` of them.
    ///
    /// A segment goes as a whole, and none before an older one: below the log start; while the log is larger than
    /// `retention.bytes` without it; when its largest timestamp is more than `retention.ms` ago (of a segment without
    /// timestamps its file's age counts). None goes that reaches above the high watermark. The active segment is left for
    /// a new one first. The log start moves before anything is removed. None goes that a start would need to know the
    /// producers: where no snapshot behind it is durable yet, it waits for the call after that.
    ///
    /// Cost: some syncs for each segment that goes; a look at one index of the first that stays.
    ///
    /// # Errors
    /// See [`ChangeError`]. What could not be read about a segment's timestamps keeps it, and is logged.
    ///
    /// Source: Kafka's `UnifiedLog.deleteOldSegments`.
    pub fn delete_old_segments(
        &mut self,
        io: &mut dyn Io,
        now: TimestampMs,
        scope: DeletionScope,
        most: usize,
    ) -> Result<Deleted, ChangeError> {
        self.check_online()?;
        let scope = if self.config.delete { scope } else { DeletionScope::BelowLogStart };
        let mut deleted = Deleted::default();
        let end = self.log.log_end_offset();
        let bases: Vec<(Offset, u64)> =
            self.log.segments().take(most.saturating_add(1)).map(|s| (s.base_offset(), s.size())).collect();
        let is_whole = bases.len() == self.log.segments().len();
        // What is more than wanted; once a segment goes by its age, size has no say any more, as in Kafka.
        let mut excess = match self.config.retention.bytes {
            Some(bytes) if scope == DeletionScope::Retention => Some(self.log.size().saturating_sub(bytes)),
            _ => None,
        };
        let mut start = self.log_start_offset;
        for (index, &(base, size)) in bases.iter().take(most).enumerate() {
            let next = bases.get(index + 1).map(|(next, _)| *next);
            let is_active = next.is_none() && is_whole;
            let upper = next.unwrap_or(end);
            if self.high_watermark < upper || (is_active && size == 0) {
                break;
            }
            let is_below = !is_active && upper <= self.log_start_offset;
            if !is_below && scope == DeletionScope::BelowLogStart {
                break;
            }
            if is_below || excess.is_some_and(|excess| excess > 0 && excess >= size) {
                excess = excess.map(|excess| excess.saturating_sub(size));
            } else if self.is_expired(io, base, now, &mut deleted) {
                excess = None;
            } else {
                break;
            }
            if is_active {
                let rolled = self.log.roll(io, None, now);
                let rolled = self.or_offline(rolled)?;
                self.on_roll(io, rolled, rolled);
            }
            if upper > self.deletable_below(io) {
                break;
            }
            start = start.max(upper);
            deleted.segment_count += 1;
            deleted.size = deleted.size.saturating_add(size);
        }
        if deleted.segment_count == 0 {
            return Ok(deleted);
        }
        deleted.has_more = deleted.segment_count == most;
        let below = bases.get(deleted.segment_count).map_or(end, |(base, _)| *base);
        self.move_log_start(start)?;
        self.delete_below(io, below)?;
        Ok(deleted)
    }

    /// Whether the largest timestamp of a segment is longer ago than records are kept.
    fn is_expired(&mut self, io: &mut dyn Io, base: Offset, now: TimestampMs, deleted: &mut Deleted) -> bool {
        let Some(limit) = self.config.retention.ms else { return false };
        let stamp = self.log.segment_largest_timestamp(io, base).map(|found| found.map(|at| at.timestamp));
        let mut stamp = match stamp {
            Ok(stamp) => stamp,
            Err(error) => {
                tracing::warn!(error = because(&error), dir = %self.dir.display(), "a segment's age is not known, it is kept");
                return false;
            }
        };
        if let Some(future) = stamp.filter(|stamp| *stamp > now) {
            deleted.future_timestamp = Some(future);
            if !self.config.retention.future_by_file_age {
                return false;
            }
            stamp = None;
        }
        let stamp = stamp.map(TimestampMs::get).or_else(|| {
            let segment = self.log.segments().find(|segment| segment.base_offset() == base)?;
            io.metadata(&segment.log_path()).ok().flatten()?.modified_ms
        });
        stamp.is_some_and(|stamp| u64::try_from(now.get().saturating_sub(stamp)).is_ok_and(|age| age > limit))
    }

    /// From where on a start needs the batches: to know the producers (law R4), from where the newest snapshot ends; to
    /// know the newest leader epoch, the newest of them, as long as that is not written down.
    ///
    /// Where snapshots fail, on a full disk for one, segments go all the same: else nothing would ever make room.
    fn needed_from(&self) -> Offset {
        let newest = self.last_batch.filter(|_| self.epochs_unsaved);
        let newest = newest.map_or(Offset::MAX, |last| last.base_offset);
        if self.psm.producer_count() == 0 || self.snapshot_failed {
            return newest;
        }
        self.file.snapshots().map(|(at, _)| at).max().unwrap_or(Offset::ZERO).min(newest)
    }

    /// The same, once leader epochs are written, and a snapshot is begun at the end of a log to which nothing is appended
    /// any more, if it needs one.
    fn deletable_below(&mut self, io: &mut dyn Io) -> Offset {
        if let Err(error) = self.save_epochs(io) {
            tracing::warn!(error = because(&error), dir = %self.dir.display(), "leader epochs not written, the newest batch stays");
        }
        let end = self.log.log_end_offset();
        if self.needed_from() < end
            && self.log.segments().last().is_some_and(|active| active.base_offset() == end)
        {
            self.begin_snapshot(io, end);
        }
        self.needed_from()
    }

    /// Deletes the segments wholly below `offset`, which is not above the log start, with what is known of them.
    fn delete_below(&mut self, io: &mut dyn Io, offset: Offset) -> Result<(), ChangeError> {
        let sizes: u64 = self.log.segments().map(weir_segment::LogSegment::size).sum();
        let deleted = self.log.delete_before(io, offset);
        let deleted = self.or_offline(deleted)?;
        if deleted.is_empty() {
            return Ok(());
        }
        let left: u64 = self.log.segments().map(weir_segment::LogSegment::size).sum();
        self.counters.segments_deleted += super::append::to_u64(deleted.len());
        self.counters.bytes_deleted += sizes.saturating_sub(left);
        let first = self.log.first_offset();
        self.settle_naming(io);
        let gone: Vec<Offset> = self.file.snapshots().map(|(at, _)| at).filter(|at| *at < first).collect();
        self.file.delete_below(first);
        let written = weir_recovery::write_partition_file(io, &self.side_dir, &self.file);
        self.or_offline(written)?;
        for offset in gone {
            self.remove_snapshot(io, offset);
        }
        let saved = self.save_epochs(io);
        self.or_offline(saved)
    }
}
