//! Changing: cuts, and leader epochs.

use weir_format::{LeaderEpoch, Message, Offset, RecordBatch};
use weir_recovery::LastBatch;
use weir_segment::io::Io;

use super::UnifiedLog;
use crate::error::ChangeError;

impl UnifiedLog {
    /// Cuts the log at `offset`, a batch that reaches over it included, and restores what was known there (law B6).
    /// Durable when it returns. At the log end nothing is cut but a leader epoch that began there.
    ///
    /// Order: the partition file says that a cut is coming (a recovery point above it no longer counts), snapshots above
    /// it go, the log is cut and synced, producer state and leader epochs follow.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub fn truncate_to(&mut self, io: &mut dyn Io, offset: Offset) -> Result<(), ChangeError> {
        self.check_online()?;
        if offset >= self.log.log_end_offset() {
            // Kafka: UnifiedLog.truncateTo. Who led here and wrote nothing would differ from every later leader for ever.
            self.cut_epochs(io, offset)?;
            self.publish();
            return Ok(());
        }
        if offset < self.log.first_offset() {
            return self.truncate_fully_and_start_at(io, offset);
        }
        self.end_snapshot(io);
        let end_before = self.log.log_end_offset();
        // A batch that reaches over the offset goes as a whole, so the log may end below it.
        let end = self.log.end_if_truncated(io, offset);
        let end = self.or_offline(end)?;
        // What an earlier cut left open is settled once all of it was synced again.
        self.file.forget_cut_below(self.log.synced_end_offset());
        self.file.truncate(end, end_before);
        self.save_partition_file(io)?;
        let removed = weir_recovery::remove_snapshots(io, &self.dir, |at| at > end);
        self.or_offline(removed)?;
        self.note_cut(end);
        self.tail.clear(end);
        let cut = self.log.truncate_to(io, offset);
        let cut = self.or_offline(cut)?;
        assert_eq!(cut, end, "the log ends where the partition file says that it was cut");
        self.log_start_offset = self.log_start_offset.min(end);
        let segments: Vec<Offset> = self.log.segments().map(weir_segment::LogSegment::base_offset).collect();
        let rebuilt =
            weir_recovery::rebuild_producer_state(io, &self.dir, &segments, end, &self.file, self.config.psm);
        self.psm = match rebuilt {
            Ok(psm) => psm,
            Err(source) => {
                self.offline = true;
                return Err(ChangeError::Replay { source });
            }
        };
        let last = self.log.last_batch(io);
        let last = self.or_offline(last)?;
        self.last_batch =
            last.as_ref().and_then(|found| match RecordBatch::parse_without_crc(&found.bytes) {
                Ok(batch) => Some(LastBatch::of(&batch)),
                Err(_) => Message::parse(&found.bytes).ok().map(|message| LastBatch::of_message(&message)),
            });
        self.cut_epochs(io, end)?;
        self.all_synced();
        Ok(())
    }

    /// Forgets, durably, the leader epochs that are noted from `end` on.
    ///
    /// Source: Kafka's `LeaderEpochFileCache.truncateFromEndAsyncFlush`. Epochs are noted no lower than the log start, so
    /// one without records that began below it goes with those that began there.
    fn cut_epochs(&mut self, io: &mut dyn Io, end: Offset) -> Result<(), ChangeError> {
        if !self.epochs.truncate_from_end(end) {
            return Ok(());
        }
        self.note_newest_epoch();
        self.epochs_unsaved = true;
        let saved = self.save_epochs(io);
        self.or_offline(saved)
    }

    /// Where no leader epoch is known, because the log was cut to its start: what is left on disk was written under one as
    /// well, the newest batch under the one that is in force.
    pub(super) fn note_newest_epoch(&mut self) {
        let left = self.last_batch.filter(|last| last.base_offset >= self.log.first_offset());
        if let (None, Some(last)) = (self.latest_epoch(), left)
            && let Some(epoch) = last.leader_epoch
        {
            self.epochs_unsaved |= self.epochs.assign(epoch, last.base_offset.max(self.log_start_offset));
        }
    }

    pub(super) fn note_cut(&mut self, end: Offset) {
        self.cut_to = Some(self.cut_to.map_or(end, |before| before.min(end)));
    }

    /// The lowest offset at which the log was cut since this was last asked. What was appended above it is gone, whatever
    /// offsets the log has reached since: an append that waits for such an offset is not to be acknowledged.
    pub fn take_cut(&mut self) -> Option<Offset> {
        self.cut_to.take()
    }

    /// Drops everything; the log is empty and goes on at `offset`. Durable when it returns.
    ///
    /// # Errors
    /// See [`ChangeError`].
    ///
    /// Source: Kafka's `UnifiedLog.truncateFullyAndStartAt`.
    pub fn truncate_fully_and_start_at(
        &mut self,
        io: &mut dyn Io,
        offset: Offset,
    ) -> Result<(), ChangeError> {
        self.check_online()?;
        self.end_snapshot(io);
        let end_before = self.log.log_end_offset();
        self.file.truncate(Offset::ZERO, end_before);
        self.save_partition_file(io)?;
        let removed = weir_recovery::remove_snapshots(io, &self.dir, |_| true);
        self.or_offline(removed)?;
        self.note_cut(Offset::ZERO);
        self.tail.clear(offset);
        let cut = self.log.truncate_fully_and_start_at(io, offset);
        self.or_offline(cut)?;
        self.file.set_checked(offset);
        if self.epochs.clear() {
            self.epochs_unsaved = true;
            let saved = self.save_epochs(io);
            self.or_offline(saved)?;
        }
        self.psm.truncate_fully_and_start_at(offset);
        self.log_start_offset = offset;
        self.last_batch = None;
        self.all_synced();
        Ok(())
    }

    /// Notes, durably, that `epoch` began at the log end: for a partition that becomes writable or whose epoch is raised.
    /// An epoch that is not above the newest changes nothing.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub fn assign_leader_epoch(&mut self, io: &mut dyn Io, epoch: LeaderEpoch) -> Result<(), ChangeError> {
        self.check_online()?;
        if self.latest_epoch().is_some_and(|latest| epoch <= latest) {
            return Ok(());
        }
        self.epochs.assign(epoch, self.log.log_end_offset());
        self.epochs_unsaved = true;
        let saved = self.save_epochs(io);
        self.or_offline(saved)?;
        self.publish();
        Ok(())
    }
}
