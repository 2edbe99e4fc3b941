//! Changing: cuts, and leader epochs.

use weir_format::{LeaderEpoch, Message, Offset, RecordBatch};
use weir_psm::ProducerStateManager;
use weir_recovery::{LastBatch, PartitionFile};
use weir_segment::LogSegment;
use weir_segment::io::Io;

use super::UnifiedLog;
use crate::error::ChangeError;

impl UnifiedLog {
    /// Cuts the log at `offset`, a batch that reaches over it included, and restores what was known there (law B6).
    /// Durable when it returns. At the log end nothing is cut but a leader epoch that began there.
    ///
    /// Order: what was known there is found, or nothing is done; the partition file says that a cut is coming (a recovery
    /// point above it no longer counts); readers are shown what will be left; snapshots above it go, the log is cut and
    /// synced, leader epochs follow.
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
        // A batch that reaches over the offset goes as a whole, so the log may end below it.
        let end = self.log.end_if_truncated(io, offset);
        let end = self.or_offline(end)?;
        let mut file = self.file.clone();
        // What an earlier cut left open is settled once all of it was synced again.
        file.forget_cut_below(self.log.synced_end_offset());
        file.truncate(end, self.log.log_end_offset());
        let psm = self.producer_state_at(io, end, &file)?;
        self.save_cut(io, file)?;
        self.psm = psm;
        self.log_start_offset = self.log_start_offset.min(end);
        self.high_watermark = self.high_watermark.min(end);
        self.show_cut(end, end);
        let removed = weir_recovery::remove_snapshots(io, &self.dir, |at| at > end);
        self.or_offline(removed)?;
        let cut = self.log.truncate_to(io, offset);
        let cut = self.or_offline(cut)?;
        assert_eq!(cut, end, "the log ends where the partition file says that it was cut");
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

    /// What is known of producers below `end`, of which `file` will say that the log is cut there.
    fn producer_state_at(
        &mut self,
        io: &mut dyn Io,
        end: Offset,
        file: &PartitionFile,
    ) -> Result<ProducerStateManager, ChangeError> {
        let segments: Vec<Offset> =
            self.log.segments().map(LogSegment::base_offset).take_while(|base| *base <= end).collect();
        weir_recovery::rebuild_producer_state(io, &self.dir, &segments, end, file, self.config.psm).map_err(
            |source| {
                self.offline = true;
                ChangeError::Replay { source }
            },
        )
    }

    /// Writes the partition file that says that a cut is coming: from here on the log is never again what it was.
    fn save_cut(&mut self, io: &mut dyn Io, file: PartitionFile) -> Result<(), ChangeError> {
        // A recovery point that was taken before it settles nothing from here on.
        self.cut_count += 1;
        let written = weir_recovery::write_partition_file(io, &self.side_dir, &file);
        self.or_offline(written)?;
        self.file = file;
        Ok(())
    }

    /// Shows readers a log that ends at `end`, before anything goes: if the cut then fails on the way, nobody is shown what
    /// may be gone. What was appended above `cut_to` will be.
    fn show_cut(&mut self, cut_to: Offset, end: Offset) {
        self.cut_to = Some(self.cut_to.map_or(cut_to, |before| before.min(cut_to)));
        self.tail.clear(end);
        self.publish_up_to(end);
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
        self.start_over(io, offset, offset)
    }

    /// The same, for a log that is shown to start at `log_start_offset`, at or above `offset`, whatever comes below it.
    pub(super) fn start_over(
        &mut self,
        io: &mut dyn Io,
        offset: Offset,
        log_start_offset: Offset,
    ) -> Result<(), ChangeError> {
        self.check_online()?;
        self.end_snapshot(io);
        let mut file = self.file.clone();
        file.truncate(Offset::ZERO, self.log.log_end_offset());
        self.save_cut(io, file)?;
        self.psm.truncate_fully_and_start_at(offset);
        self.epochs_unsaved |= self.epochs.clear();
        self.last_batch = None;
        // Not yet the new start, if that is higher: what is still there if the cut fails may be opened and read again.
        self.log_start_offset = self.log_start_offset.min(log_start_offset);
        self.high_watermark = self.log_start_offset;
        self.show_cut(Offset::ZERO, self.log_start_offset);
        let removed = weir_recovery::remove_snapshots(io, &self.dir, |_| true);
        self.or_offline(removed)?;
        let cut = self.log.truncate_fully_and_start_at(io, offset);
        self.or_offline(cut)?;
        self.file.set_checked(offset);
        let saved = self.save_epochs(io);
        self.or_offline(saved)?;
        self.log_start_offset = log_start_offset;
        self.tail.clear(offset);
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
