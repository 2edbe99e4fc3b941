//! [`UnifiedLog`]: one partition, whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use weir_format::{LeaderEpoch, Offset, ProducerId, TimestampMs};
use weir_psm::{OpenTransaction, ProducerStateEntry, ProducerStateManager};
use weir_recovery::{
    LastBatch, LeaderEpochCache, LoadError, LoadedLog, LogLoader, PartitionFile, RecoveryConfig,
    RecoveryReport, Unwatched, Watch,
};
use weir_segment::io::buffer::BufferPool;
use weir_segment::io::{Done, FileId, Io, IoError, durable};
use weir_segment::layout::LEADER_EPOCH_CHECKPOINT;
use weir_segment::{AbortedTransaction, LocalLog, SegmentError};

use crate::config::{Durability, LogConfig, OpenOptions};
use crate::error::{ChangeError, FailedChange, ReadError, because};
use crate::tail::{HotTail, TailMemory, TailWriter};
use crate::view::LogView;

mod append;
mod change;
mod read;
mod retention;
mod snapshot;
mod stats;

pub use read::Read;
pub(crate) use read::bounded_by_barriers;
pub use retention::{Deleted, DeletionScope};
use snapshot::SnapshotWrite;
use stats::Counters;
pub use stats::LogStats;

/// One segment, as told to tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its base offset.
    pub base_offset: Offset,
    /// Its size in bytes.
    pub size: u64,
}

/// One partition's log: the one gate through which batches enter, and everything that can be asked of it.
///
/// It owns no thread, no clock and no disk: every call that reads or writes is given the shard's [`Io`].
///
/// Appends are pipelined, and the shard moves them on: after its appends [`UnifiedLog::flush`], for each completion
/// [`UnifiedLog::on_done`], and [`UnifiedLog::sync_begin`] whenever [`UnifiedLog::needs_sync`] says so and it wants to.
/// After any other call it asks for [`UnifiedLog::progress`]: a call that had to wait may have met completions itself.
#[derive(Debug)]
pub struct UnifiedLog {
    pub(crate) dir: PathBuf,
    pub(crate) side_dir: PathBuf,
    pub(crate) config: LogConfig,
    pub(crate) log: LocalLog,
    pub(crate) psm: ProducerStateManager,
    pub(crate) epochs: LeaderEpochCache,
    pub(crate) file: PartitionFile,
    pub(crate) log_start_offset: Offset,
    pub(crate) last_batch: Option<LastBatch>,
    // INVARIANT: everything below is durable, or counts as durable by the configuration; it is not below the log start.
    high_watermark: Offset,
    /// Leader epochs in memory differ from the checkpoint.
    epochs_unsaved: bool,
    offline: bool,
    /// The change that took it offline, if it was one.
    failed_change: Option<FailedChange>,
    /// The lowest offset at which it was cut since somebody asked.
    cut_to: Option<Offset>,
    /// How often it was cut since it was opened.
    cut_count: u64,
    /// A producer snapshot on its way to the disk.
    snapshot_write: Option<Box<SnapshotWrite>>,
    /// The newest one that was tried could not be written.
    snapshot_failed: bool,
    /// Files of snapshots that were dropped, each with a completion that is still to come.
    abandoned: Vec<FileId>,
    /// Whose the tickets of its operations are.
    owner: u32,
    counters: Counters,
    view: Arc<LogView>,
    // INVARIANT: it shows `view`.
    tail: TailWriter,
}

impl UnifiedLog {
    /// Opens the log in `dir`, recovering it as `options` demand. Makes it if the directory is empty or missing.
    ///
    /// Everything found is durable: the high watermark is the log end.
    ///
    /// Cost: see [`LogLoader::load`].
    ///
    /// # Errors
    /// [`LoadError`]: corruption (nothing was cut), or the disk failed. The partition stays offline.
    pub fn open(
        io: &mut dyn Io,
        dir: &Path,
        config: LogConfig,
        options: OpenOptions,
    ) -> Result<(Self, RecoveryReport), LoadError> {
        Self::open_watched(io, dir, config, options, &mut Unwatched)
    }

    /// The same, and `watch` sees how far it is, and may end it: see [`LogLoader::load_watched`].
    ///
    /// # Errors
    /// As [`UnifiedLog::open`]; [`LoadError::Interrupted`] if the watch asked to stop.
    pub fn open_watched(
        io: &mut dyn Io,
        dir: &Path,
        config: LogConfig,
        options: OpenOptions,
        watch: &mut dyn Watch,
    ) -> Result<(Self, RecoveryReport), LoadError> {
        let recovery = RecoveryConfig {
            segment: config.segment,
            psm: config.psm,
            clean_shutdown: options.clean_shutdown,
            recovery_point: options.recovery_point,
            log_start_offset: options.log_start_offset,
            side_dir: options.side_dir.clone(),
            now: options.now,
        };
        let (loaded, report) = LogLoader::load_watched(io, dir, &recovery, watch)?;
        let LoadedLog { log, mut psm, epochs, epochs_unsaved, partition_file, log_start_offset, last_batch } =
            loaded;
        let high_watermark = log.log_end_offset();
        psm.on_high_watermark(high_watermark);
        let view = view_of(&psm, &epochs, log_start_offset, high_watermark, high_watermark);
        let view = Arc::new(view);
        let (no_tail, no_memory) = (HotTail::new(), TailMemory::new(0));
        let tail = TailWriter::attach(no_tail, no_memory, Arc::clone(&view), high_watermark);
        let mut log = Self {
            dir: dir.to_path_buf(),
            side_dir: options.side_dir,
            config,
            log,
            psm,
            epochs,
            file: partition_file,
            log_start_offset,
            last_batch,
            high_watermark,
            epochs_unsaved,
            offline: false,
            failed_change: None,
            cut_to: None,
            cut_count: 0,
            snapshot_write: None,
            snapshot_failed: false,
            abandoned: Vec::new(),
            owner: 0,
            counters: Counters::default(),
            view,
            tail,
        };
        log.jitter_rolls();
        log.note_newest_epoch();
        log.publish();
        Ok((log, report))
    }

    // Durability.

    /// Gives it what a shard shares among its logs: see [`LocalLog::attach`].
    pub fn attach(&mut self, owner: u32, pool: BufferPool) {
        self.owner = owner;
        self.log.attach(owner, pool);
    }

    /// Shows this log, from now on, in `tail`: its view, and what is appended, as long as `memory` has room for it. Readers
    /// with a handle on `tail` need no shard for it.
    pub fn attach_tail(&mut self, tail: HotTail, memory: TailMemory) {
        self.tail = TailWriter::attach(tail, memory, self.view(), self.log.log_end_offset());
    }

    /// Submits what was appended, as far as writes in flight and the queue allow: see [`LocalLog::flush`].
    pub fn flush(&mut self, io: &mut dyn Io) {
        if !self.offline {
            self.log.flush(io);
        }
    }

    /// Submits one sync for every append that has been written; false if there is nothing to do, one is in flight, or the
    /// queue is full. That is group commit: what is written while it runs shares the next one.
    pub fn sync_begin(&mut self, io: &mut dyn Io) -> bool {
        !self.offline && self.log.sync_begin(io)
    }

    /// Takes the completion of a write or a sync. The high watermark moves with what has become durable, and the new view
    /// is returned if it differs from the published one. A failure takes the partition offline, and nobody tries again.
    ///
    /// # Errors
    /// The completion itself, if it belongs to nobody here.
    #[expect(clippy::result_large_err, reason = "a completion that is given back is a value, not a failure")]
    pub fn on_done(&mut self, done: Done) -> Result<Option<Arc<LogView>>, Done> {
        match self.log.on_done(done) {
            Ok(()) => Ok(self.progress()),
            Err(done) => self.snapshot_done(done).map(|()| None),
        }
    }

    /// Publishes what has become durable since the last look, and goes offline if a write or a sync has failed.
    pub fn progress(&mut self) -> Option<Arc<LogView>> {
        if let (false, Some(error)) = (self.offline, self.log.failure()) {
            tracing::error!(error = because(error), dir = %self.dir.display(), "partition is offline");
        }
        self.offline |= self.log.has_failed();
        let durable = match self.config.durability {
            Durability::Synced => self.log.synced_end_offset(),
            Durability::Written => self.log.written_end_offset(),
        };
        if durable <= self.high_watermark {
            return None;
        }
        self.high_watermark = durable;
        self.publish()
    }

    /// Lets go of what only a log that is appended to needs, if everything is durable: see [`LocalLog::rest`].
    ///
    /// # Errors
    /// [`ChangeError::Log`]; the partition is then offline.
    pub fn rest(&mut self, io: &mut dyn Io) -> Result<bool, ChangeError> {
        self.check_online()?;
        let rested = self.log.rest(io);
        self.or_offline(rested)
    }

    /// Closes every file, if everything is durable, so that the log may go on with another [`Io`]: see
    /// [`LocalLog::detach`]. A producer snapshot that is under way is ended.
    ///
    /// # Errors
    /// [`ChangeError::Log`]; the partition is then offline.
    pub fn detach(&mut self, io: &mut dyn Io) -> Result<bool, ChangeError> {
        self.check_online()?;
        let detached = self.log.detach(io);
        let detached = self.or_offline(detached)?;
        if detached {
            self.end_snapshot(io);
            // Their completions come here no more, and the other one may give their numbers to other files.
            self.abandoned.clear();
        }
        Ok(detached)
    }

    /// Syncs everything appended so far and publishes it, blocking: for stops.
    ///
    /// # Errors
    /// [`ChangeError::Log`] if the sync failed; the partition is then offline.
    pub fn sync(&mut self, io: &mut dyn Io) -> Result<Arc<LogView>, ChangeError> {
        self.check_online()?;
        let synced = self.log.sync(io);
        self.or_offline(synced)?;
        self.all_synced();
        Ok(self.view())
    }

    /// Everything in the log is durable.
    fn all_synced(&mut self) {
        self.high_watermark = self.log.log_end_offset().max(self.log_start_offset);
        self.publish();
    }

    /// Replaces the view if it would differ.
    fn publish(&mut self) -> Option<Arc<LogView>> {
        self.publish_up_to(self.log.log_end_offset())
    }

    /// The same, of a log of which only what is below `end` counts. It may end below its start, and is shown empty then.
    fn publish_up_to(&mut self, end: Offset) -> Option<Arc<LogView>> {
        self.psm.on_high_watermark(self.high_watermark);
        let (start, end) = (self.log_start_offset, end.max(self.log_start_offset));
        let view = view_of(&self.psm, &self.epochs, start, self.high_watermark, end);
        if view == *self.view {
            return None;
        }
        self.view = Arc::new(view);
        self.tail.publish(&self.view);
        Some(self.view())
    }

    // State.

    /// The newest published view.
    #[must_use]
    pub fn view(&self) -> Arc<LogView> {
        Arc::clone(&self.view)
    }

    /// Whether an earlier failure took the partition offline: it answers reads and takes nothing.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.offline
    }

    /// The write or sync that took the partition offline, if it was one.
    #[must_use]
    pub fn failure(&self) -> Option<&IoError> {
        self.log.failure()
    }

    /// The change of the log that took the partition offline, if it was one.
    #[must_use]
    pub fn failed_change(&self) -> Option<&FailedChange> {
        self.failed_change.as_ref()
    }

    /// Bytes appended and not yet written.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        self.log.unwritten_bytes()
    }

    /// Bytes appended and not yet synced.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        self.log.unsynced_bytes()
    }

    /// Up to where every append has been written: what `acks=1` waits for.
    #[must_use]
    pub fn written_end_offset(&self) -> Offset {
        self.log.written_end_offset()
    }

    /// Whether [`UnifiedLog::flush`] has something to submit, now or once a write in flight was reaped.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.offline && self.log.has_unsent()
    }

    /// Whether [`UnifiedLog::sync_begin`] has something to do.
    #[must_use]
    pub fn needs_sync(&self) -> bool {
        !self.offline && self.log.needs_sync()
    }

    /// Whether writes or a sync of this log are in flight: their completions come by [`UnifiedLog::on_done`].
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.log.is_busy()
    }

    /// Where the next batch goes, whether durable or not.
    #[must_use]
    pub fn log_end_offset(&self) -> Offset {
        self.log.log_end_offset()
    }

    /// What `recovery-point-offset-checkpoint` may say: everything below is synced.
    #[must_use]
    pub fn recovery_point(&self) -> Offset {
        self.log.synced_end_offset()
    }

    /// Which cut of the log a checkpoint of the recovery point would settle, if there is one that the checkpoint on the disk
    /// may not know of: for [`UnifiedLog::recovery_point_saved`], asked for together with the recovery point.
    #[must_use]
    pub fn unsettled_cut(&self) -> Option<u64> {
        self.file.cut().map(|_| self.cut_count)
    }

    /// A recovery point that was asked for together with [`UnifiedLog::unsettled_cut`] is in the checkpoint, durably. If the
    /// log was not cut again meanwhile, recovery points count as they are from now on; else nothing happens, as while a
    /// producer snapshot is under way.
    ///
    /// Cost: a small file, replaced.
    ///
    /// # Errors
    /// Any of [`IoError`]: a recovery point that may stem from before the cut goes on to count as lower.
    pub fn recovery_point_saved(&mut self, io: &mut dyn Io, cut: u64) -> Result<(), IoError> {
        if self.offline || self.unsettled_cut() != Some(cut) || self.snapshot_write.is_some() {
            return Ok(());
        }
        let mut settled = self.file.clone();
        settled.forget_cut();
        weir_recovery::write_partition_file(io, &self.side_dir, &settled)?;
        self.file = settled;
        Ok(())
    }

    /// The newest leader epoch in the log.
    #[must_use]
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        self.epochs.latest().map(|entry| entry.epoch)
    }

    /// The leader epochs of the log.
    #[must_use]
    pub fn epochs(&self) -> &LeaderEpochCache {
        &self.epochs
    }

    /// The largest epoch not above `epoch` and where it ended; `None` if `epoch` is newer than any known.
    ///
    /// Source: KIP-279.
    #[must_use]
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.epochs.end_offset_for(epoch, self.log.log_end_offset())
    }

    /// The newest batch, durable or not.
    #[must_use]
    pub fn last_batch(&self) -> Option<LastBatch> {
        self.last_batch
    }

    /// Barriers and trusted snapshots.
    #[must_use]
    pub fn partition_file(&self) -> &PartitionFile {
        &self.file
    }

    /// Open transactions, ascending by first offset: the order in which a stop aborts them.
    #[must_use]
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.psm.open_transactions().collect()
    }

    /// What is known about each producer, ascending by id.
    pub fn producers(&self) -> impl Iterator<Item = (ProducerId, &ProducerStateEntry)> {
        self.psm.entries()
    }

    /// Producer state, whole.
    #[must_use]
    pub fn producer_state(&self) -> &ProducerStateManager {
        &self.psm
    }

    /// Forgets producers that have been idle too long by the wall clock; returns how many. None goes while a producer
    /// snapshot is under way.
    ///
    /// Cost: a look at each of them; [`UnifiedLog::expire_producers_slice`] does it in parts.
    pub fn expire_producers(&mut self, now: TimestampMs) -> usize {
        let expired = self.psm.expire(now);
        self.counters.expired(expired);
        expired
    }

    /// Begins a look for idle producers that [`UnifiedLog::expire_producers_slice`] goes on with.
    pub fn start_expiring_producers(&mut self, now: TimestampMs) {
        self.psm.start_expiry(now);
    }

    /// Whether a look for idle producers is under way.
    #[must_use]
    pub fn is_expiring_producers(&self) -> bool {
        self.psm.is_expiring()
    }

    /// Goes on with a look for idle producers, at no more than `most` of them; returns how many were forgotten. While a
    /// producer snapshot is under way it does nothing.
    pub fn expire_producers_slice(&mut self, most: usize) -> usize {
        let expired = self.psm.expire_slice(most);
        self.counters.expired(expired);
        expired
    }

    /// The segments, oldest first.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let info = |segment: &weir_segment::LogSegment| SegmentInfo {
            base_offset: segment.base_offset(),
            size: segment.size(),
        };
        self.log.segments().map(info).collect()
    }

    /// The aborted transactions noted in one segment's index, in its order.
    ///
    /// # Errors
    /// [`ReadError::Log`] if there is no such segment, or its index cannot be read.
    pub fn segment_transactions(
        &mut self,
        io: &mut dyn Io,
        base_offset: Offset,
    ) -> Result<Vec<AbortedTransaction>, ReadError> {
        let index =
            self.log.segment_transactions(io, base_offset).map_err(|source| ReadError::Log { source })?;
        Ok(index.entries().to_vec())
    }

    /// The next segment is left at a time of its own, if so configured.
    ///
    /// Kafka: `LogConfig.randomSegmentJitter`. A number that is as good as any, and the same in every run.
    fn jitter_rolls(&mut self) {
        let most = self.config.segment_jitter_ms.min(self.config.segment.segment_ms);
        if most <= 0 {
            return;
        }
        let mut name = self.dir.as_os_str().as_encoded_bytes().to_vec();
        name.extend(self.log.active().base_offset().get().to_be_bytes());
        let jitter = i64::from(weir_format::crc::crc32c(&name)).rem_euclid(most);
        let segment_ms = self.config.segment.segment_ms - jitter;
        self.log.set_config(weir_segment::SegmentConfig { segment_ms, ..self.config.segment });
    }

    // Saving, and failing.

    fn save_snapshot(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        weir_recovery::write_snapshot(io, &self.dir, &self.side_dir, &self.psm, &mut self.file)
    }

    fn save_epochs(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        if self.epochs_unsaved {
            let path = self.dir.join(LEADER_EPOCH_CHECKPOINT);
            // DURABLE: leader epochs, also those without records.
            durable::replace(io, &path, Bytes::from(self.epochs.encode()))?;
            self.epochs_unsaved = false;
        }
        Ok(())
    }

    fn check_online(&self) -> Result<(), ChangeError> {
        if self.offline { Err(ChangeError::Offline) } else { Ok(()) }
    }

    fn or_offline<T>(&mut self, done: Result<T, impl Into<SegmentError>>) -> Result<T, ChangeError> {
        done.map_err(|error| {
            let source: SegmentError = error.into();
            self.offline = true;
            self.failed_change.get_or_insert_with(|| FailedChange::of(&source));
            tracing::error!(error = because(&source), dir = %self.dir.display(), "change failed, partition is offline");
            ChangeError::Log { source }
        })
    }

    // Closing.

    /// Syncs and closes: snapshot at the log end, exact sizes, indexes written, partition file. The node then writes the
    /// checkpoints and, last of all, the clean-shutdown marker.
    ///
    /// # Errors
    /// [`ChangeError`]: it was not closed cleanly, and no marker may be written.
    pub fn close(mut self, io: &mut dyn Io) -> Result<(), ChangeError> {
        let prepared = self.prepare_close(io);
        if prepared.is_err() {
            self.end_snapshot(io);
            if let Err(error) = self.log.abandon(io) {
                tracing::warn!(error = because(&error), dir = %self.dir.display(), "files could not be closed");
            }
            return prepared;
        }
        self.log.close(io).map_err(|source| ChangeError::Log { source })
    }

    fn prepare_close(&mut self, io: &mut dyn Io) -> Result<(), ChangeError> {
        self.end_snapshot(io);
        self.sync(io)?;
        if self.psm.map_end_offset() < self.log.log_end_offset() {
            self.psm.update_map_end_offset(self.log.log_end_offset());
        }
        self.file.set_checked(self.log.log_end_offset());
        self.file.forget_cut_below(self.high_watermark);
        let saved = self.save_epochs(io);
        self.or_offline(saved)?;
        let saved = self.save_snapshot(io);
        self.or_offline(saved)
    }
}

/// What a partition in this state shows to readers.
fn view_of(
    psm: &ProducerStateManager,
    epochs: &LeaderEpochCache,
    log_start_offset: Offset,
    high_watermark: Offset,
    log_end_offset: Offset,
) -> LogView {
    LogView {
        log_start_offset,
        // A log start that was moved into a transaction bounds it from below.
        last_stable_offset: psm.last_stable_offset(high_watermark).max(log_start_offset),
        high_watermark,
        log_end_offset,
        leader_epoch: epochs.latest().map(|entry| entry.epoch),
    }
}
