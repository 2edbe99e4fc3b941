//! [`UnifiedLog`]: one partition, whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weir_format::{
    LeaderEpoch, Offset, ProducerId, RecordBatch, TimestampMs, TimestampType, set_base_offset,
    set_leader_epoch, set_log_append_time,
};
use weir_psm::{
    AppendOrigin, Applied, Checked, DuplicateBatch, OpenTransaction, ProducerStateEntry,
    ProducerStateManager, Transition,
};
use weir_recovery::{
    LastBatch, LeaderEpochCache, LoadError, LoadedLog, LogLoader, PartitionFile, RecoveryConfig,
    RecoveryReport, aborted_entries, note_barrier,
};
use weir_segment::io::buffer::BufferPool;
use weir_segment::io::{Done, Io, IoError, durable};
use weir_segment::layout::LEADER_EPOCH_CHECKPOINT;
use weir_segment::{AbortedTransaction, LocalLog, SegmentError};

use crate::append::{AppendParams, Appended};
use crate::config::{Durability, LogConfig, OpenOptions};
use crate::error::{AppendError, ChangeError, InvalidRecord, ReadError};
use crate::gate;
use crate::view::{Isolation, LogView};

/// What a read returned.
#[derive(Debug, Clone)]
pub struct Read {
    /// Whole batches, as they lie on disk.
    pub bytes: Bytes,
    /// The view that the read was bounded by.
    pub view: Arc<LogView>,
    /// The aborted transactions that a `read_committed` reader needs for these bytes, ascending by first offset.
    pub aborted: Vec<AbortedTransaction>,
}

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
    // INVARIANT: everything below is durable, or counts as durable by the configuration.
    high_watermark: Offset,
    /// Leader epochs in memory differ from the checkpoint.
    epochs_unsaved: bool,
    offline: bool,
    /// The lowest offset at which it was cut since somebody asked.
    cut_to: Option<Offset>,
    view: Arc<LogView>,
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
        let recovery = RecoveryConfig {
            segment: config.segment,
            psm: config.psm,
            clean_shutdown: options.clean_shutdown,
            recovery_point: options.recovery_point,
            log_start_offset: options.log_start_offset,
            side_dir: options.side_dir.clone(),
            now: options.now,
        };
        let (loaded, report) = LogLoader::load(io, dir, &recovery)?;
        let LoadedLog { log, mut psm, epochs, epochs_unsaved, partition_file, log_start_offset, last_batch } =
            loaded;
        let high_watermark = log.log_end_offset();
        psm.on_high_watermark(high_watermark);
        let view = view_of(&log, &psm, &epochs, log_start_offset, high_watermark);
        let log = Self {
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
            cut_to: None,
            view: Arc::new(view),
        };
        Ok((log, report))
    }

    // Appending.

    /// Appends batches, or answers that they are there already.
    ///
    /// When it returns the bytes are gathered, neither written nor durable: acknowledge `acks=1` when
    /// [`UnifiedLog::written_end_offset`] reaches [`Appended::durable_at`], and `acks=all` when the high watermark does.
    /// A client or coordinator appends exactly one batch, which gets its base offset and leader epoch here; replicated
    /// bytes stay as they are.
    ///
    /// Cost: a CRC over the batches, and what [`LocalLog::append_bytes`] costs; where a segment is started the syncs of
    /// the one before, and of a producer snapshot.
    ///
    /// # Errors
    /// See [`AppendError`]. Nothing of the call was appended, and what is known is as before; after
    /// [`AppendError::Log`], and if the write fails later, the partition is offline, and what it knows is found again by
    /// opening it from its bytes (law B10).
    ///
    /// Source: Kafka's `UnifiedLog.append`.
    pub fn append(
        &mut self,
        io: &mut dyn Io,
        records: BytesMut,
        params: &AppendParams,
    ) -> Result<Appended, AppendError> {
        if self.offline {
            return Err(AppendError::Offline);
        }
        let size = to_u64(records.len());
        let (unsynced, max) = (self.log.unsynced_bytes(), self.config.max_unsynced_bytes);
        // A batch larger than the limit is taken when nothing else is unsynced.
        if unsynced > 0 && unsynced.saturating_add(size) > max {
            return Err(AppendError::TooMuchUnsynced { unsynced, max });
        }
        match params.origin {
            AppendOrigin::Client | AppendOrigin::Coordinator => self.append_as_leader(io, records, params),
            AppendOrigin::Replication => self.append_as_follower(io, records.freeze(), params),
        }
    }

    fn append_as_leader(
        &mut self,
        io: &mut dyn Io,
        mut records: BytesMut,
        params: &AppendParams,
    ) -> Result<Appended, AppendError> {
        let invalid = |reason| AppendError::InvalidRecord { reason };
        let leader_epoch = params.leader_epoch.ok_or(invalid(InvalidRecord::NoLeaderEpochGiven))?;
        if let Some(newest) = self.latest_epoch().filter(|newest| leader_epoch < *newest) {
            return Err(AppendError::LeaderEpochBelowNewest { epoch: leader_epoch, newest });
        }
        gate::single(&records, params, &self.config)?;
        let misplaced = |_| invalid(InvalidRecord::OffsetOverflow);
        let append_time =
            (self.config.message_timestamp_type == TimestampType::LogAppendTime).then_some(params.now);
        if let Some(append_time) = append_time {
            // Before producer state sees the batch: it remembers the timestamp that replay will find.
            set_log_append_time(&mut records, append_time).map_err(misplaced)?;
        }
        let batch = RecordBatch::parse_without_crc(&records).map_err(misplaced)?;
        let base_offset = self.log.log_end_offset();
        let checked = match params.origin {
            AppendOrigin::Coordinator => {
                self.psm.check_marker(&batch, base_offset, params.transaction_version)
            }
            origin => self.psm.check(&batch, base_offset, origin),
        };
        let transition = match checked.map_err(|source| AppendError::ProducerState { source })? {
            Checked::Duplicate(original) => return Ok(self.duplicate(&original, &batch)),
            Checked::Append(transition) => transition,
        };
        if params.origin == AppendOrigin::Client
            && !params.may_start_transaction
            && let Some(producer_id) = transition.starts_transaction()
        {
            return Err(AppendError::TransactionNotOpen { producer_id });
        }
        let last_offset = base_offset
            .checked_add(i64::from(batch.last_offset_delta()))
            .ok_or(invalid(InvalidRecord::OffsetOverflow))?;
        set_base_offset(&mut records, base_offset).map_err(misplaced)?;
        set_leader_epoch(&mut records, leader_epoch).map_err(misplaced)?;
        let bytes = records.freeze();
        let written = self.write(io, &bytes, params.now, Some(transition))?;
        Ok(Appended {
            base_offset,
            last_offset,
            durable_at: self.log.log_end_offset(),
            append_time,
            duplicate: false,
            log_start_offset: self.log_start_offset,
            barriers: written.barriers,
            tolerated_count: written.tolerated_count,
        })
    }

    /// The answer to a batch that is in the log already.
    fn duplicate(&self, original: &DuplicateBatch, batch: &RecordBatch<'_>) -> Appended {
        let append_time = self.config.message_timestamp_type == TimestampType::LogAppendTime;
        tracing::debug!(
            producer_id = batch.raw_producer_id(),
            base_offset = original.base_offset.get(),
            "duplicate batch"
        );
        Appended {
            base_offset: original.base_offset,
            last_offset: original.last_offset,
            durable_at: original.last_offset.next().unwrap_or(original.last_offset),
            append_time: append_time.then_some(original.timestamp),
            duplicate: true,
            log_start_offset: self.log_start_offset,
            barriers: Vec::new(),
            tolerated_count: 0,
        }
    }

    fn append_as_follower(
        &mut self,
        io: &mut dyn Io,
        bytes: Bytes,
        params: &AppendParams,
    ) -> Result<Appended, AppendError> {
        let batches = gate::replicated(&bytes, params.max_leader_epoch)?;
        let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
            return Err(AppendError::NotOneBatch { found: 0 });
        };
        let log_end_offset = self.log.log_end_offset();
        let (base_offset, last_offset) = (first.base_offset(), last.last_offset());
        if base_offset < log_end_offset {
            // Kafka: Partition.appendRecordsToFollowerOrFutureReplica. The log started inside the leader's first batch.
            let empty = self.log_start_offset == log_end_offset;
            if !empty || first.last_offset() < log_end_offset {
                return Err(AppendError::UnexpectedOffset {
                    first_offset: base_offset,
                    last_offset: first.last_offset(),
                    log_end_offset,
                });
            }
            self.truncate_fully_and_start_at(io, base_offset).map_err(|error| match error {
                ChangeError::Log { source } => AppendError::Log { source },
                _ => AppendError::Offline,
            })?;
        }
        let written = self.write(io, &bytes, params.now, None)?;
        Ok(Appended {
            base_offset,
            last_offset,
            durable_at: self.log.log_end_offset(),
            append_time: None,
            duplicate: false,
            log_start_offset: self.log_start_offset,
            barriers: written.barriers,
            tolerated_count: written.tolerated_count,
        })
    }

    /// Hands checked batches to the log, then commits them one by one, in log order.
    ///
    /// The order is the law: bytes first, then producer state, transaction index and leader epochs. If the log does not
    /// take the bytes nothing has been committed; if their write fails later, the partition is offline, nothing of it was
    /// published, acknowledged or snapshotted, and it is opened again from its bytes (B10).
    fn write(
        &mut self,
        io: &mut dyn Io,
        bytes: &Bytes,
        now: TimestampMs,
        mut checked: Option<Transition>,
    ) -> Result<Written, AppendError> {
        let first_segment = self.log.active().base_offset();
        let end_before = self.log.log_end_offset();
        let done = match self.log.append_bytes(io, bytes.clone(), now) {
            Ok(done) => done,
            Err(source) => {
                self.offline = true;
                tracing::error!(%source, dir = %self.dir.display(), "append failed, partition is offline");
                return Err(AppendError::Log { source });
            }
        };
        let mut written = Written { barriers: Vec::new(), tolerated_count: 0 };
        let mut rolled = done.rolled.iter().copied().peekable();
        let mut segment = first_segment;
        let mut rest: &[u8] = bytes;
        while !rest.is_empty() {
            // The gate has checked them, CRC included.
            let batch = RecordBatch::parse_without_crc(rest).expect("bytes that passed the gate are batches");
            rest = &rest[batch.size()..];
            while let Some(base) = rolled.next_if(|&base| base <= batch.base_offset()) {
                segment = base;
                self.on_roll(io, base, end_before);
            }
            let transition = match checked.take() {
                Some(transition) => transition,
                None => match self.psm.check(&batch, batch.base_offset(), AppendOrigin::Replication) {
                    Ok(Checked::Append(transition)) => transition,
                    refused => unreachable!("a batch that passed the gate was answered {refused:?}"),
                },
            };
            let applied = self.psm.commit(transition);
            if let Err(source) = self.index_aborted(io, segment, &applied) {
                self.offline = true;
                tracing::error!(%source, dir = %self.dir.display(), "append failed, partition is offline");
                return Err(AppendError::Log { source });
            }
            if let Some(epoch) = batch.leader_epoch()
                && self.epochs.assign(epoch, batch.base_offset())
            {
                self.epochs_unsaved = true;
            }
            note_barrier(&applied, &mut self.file);
            written.tolerated_count += applied.tolerated.len();
            written.barriers.extend(applied.barrier);
            self.last_batch = Some(LastBatch::of(&batch));
        }
        if !done.rolled.is_empty() {
            self.publish();
        }
        Ok(written)
    }

    /// A segment has been left: it is synced, and `base` is where the next one begins.
    fn on_roll(&mut self, io: &mut dyn Io, base: Offset, end_before: Offset) {
        if self.psm.map_end_offset() < base {
            self.psm.update_map_end_offset(base);
        }
        // What was there before this call is durable; of this call's batches that is said once all are committed.
        self.high_watermark = self.high_watermark.max(end_before.min(base));
        self.file.forget_cut_below(self.high_watermark);
        // Recovery walks from the segment of the recovery point, so the epochs before it must be on disk by now.
        // A snapshot is started from later, so the transaction indexes below it must be on disk as well.
        let saved = self
            .save_epochs(io)
            .and_then(|()| self.log.write_transactions(io))
            .and_then(|()| self.save_snapshot(io));
        if let Err(error) = saved {
            // The log can do without: recovery then starts at an older snapshot.
            tracing::warn!(%error, dir = %self.dir.display(), "no producer snapshot at the new segment");
        }
    }

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

    /// Writes transaction-index entries into the index of the segment that holds their marker or barrier.
    fn index_aborted(
        &mut self,
        io: &mut dyn Io,
        segment: Offset,
        applied: &Applied,
    ) -> Result<(), SegmentError> {
        let entries = aborted_entries(applied);
        if entries.is_empty() {
            return Ok(());
        }
        if segment == self.log.active().base_offset() {
            return entries.into_iter().try_for_each(|entry| self.log.append_aborted(io, entry));
        }
        // One append went over a segment's end, and this batch is before it.
        let mut index = self.log.segment_transactions(io, segment)?;
        for entry in entries {
            index.append(entry);
        }
        self.log.replace_transactions(io, segment, index)
    }

    // Durability.

    /// Gives it what a shard shares among its logs: see [`LocalLog::attach`].
    pub fn attach(&mut self, owner: u32, pool: BufferPool) {
        self.log.attach(owner, pool);
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
        self.log.on_done(done)?;
        Ok(self.progress())
    }

    /// Publishes what has become durable since the last look, and goes offline if a write or a sync has failed.
    pub fn progress(&mut self) -> Option<Arc<LogView>> {
        if let (false, Some(error)) = (self.offline, self.log.failure()) {
            tracing::error!(%error, dir = %self.dir.display(), "partition is offline");
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
        self.high_watermark = self.log.log_end_offset();
        self.publish();
    }

    /// Replaces the view if it would differ.
    fn publish(&mut self) -> Option<Arc<LogView>> {
        self.psm.on_high_watermark(self.high_watermark);
        let view = view_of(&self.log, &self.psm, &self.epochs, self.log_start_offset, self.high_watermark);
        if view == *self.view {
            return None;
        }
        self.view = Arc::new(view);
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

    /// Forgets producers that have been idle too long by the wall clock; returns how many.
    pub fn expire_producers(&mut self, now: TimestampMs) -> usize {
        self.psm.expire(now)
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

    // Reading.

    /// Reads whole batches from the one that holds `from`, at most `max_bytes`, or one batch if `at_least_one`.
    ///
    /// An uncommitted read ends at the high watermark, a committed one at the last stable offset; both end at a segment's
    /// end. A committed read lists the aborted transactions that overlap the bytes, ascending by first offset. If one of
    /// them was aborted at a barrier, the bytes end just before that barrier: clients keep an aborted producer id until
    /// they see a marker in the same response, and a barrier is none (law B4).
    ///
    /// # Errors
    /// [`ReadError::OffsetOutOfRange`] below the log start or above the log end; [`ReadError::Log`].
    ///
    /// Source: Kafka's `LocalLog.read`.
    pub fn read(
        &mut self,
        io: &mut dyn Io,
        from: Offset,
        max_bytes: usize,
        isolation: Isolation,
        at_least_one: bool,
    ) -> Result<Read, ReadError> {
        let view = self.view();
        // Kafka: a position between the high watermark and the log end is in range, and answered with nothing.
        let end_offset = self.log.log_end_offset();
        if from < view.log_start_offset || from > end_offset {
            return Err(ReadError::OffsetOutOfRange {
                asked: from,
                log_start_offset: view.log_start_offset,
                end_offset,
            });
        }
        let end = view.end_for(isolation);
        if from >= end {
            return Ok(Read { bytes: Bytes::new(), view, aborted: Vec::new() });
        }
        let failed = |source| ReadError::Log { source };
        let slice = self.log.read(io, from, max_bytes, end, at_least_one).map_err(failed)?;
        let (Some(first_base_offset), Isolation::Committed) = (slice.first_base_offset, isolation) else {
            return Ok(Read { bytes: slice.bytes, view, aborted: Vec::new() });
        };
        let upper_bound = self.upper_bound(slice.next_offset);
        let mut aborted = self.log.aborted_in_range(io, from, upper_bound).map_err(failed)?;
        // At a barrier: listed only if its records are among the bytes, and then the bytes end before the barrier.
        let at_barrier = |entry: &AbortedTransaction| self.file.aborted_at_barrier(entry.last_offset);
        let first_barrier = aborted
            .iter()
            .filter(|entry| {
                at_barrier(entry)
                    && entry.last_offset > first_base_offset
                    && entry.first_offset < slice.next_offset
            })
            .map(|entry| entry.last_offset)
            .min();
        let end_of_bytes = first_barrier.map_or(slice.next_offset, |barrier| barrier.min(slice.next_offset));
        aborted.retain(|entry| {
            !at_barrier(entry) || (entry.last_offset > first_base_offset && entry.first_offset < end_of_bytes)
        });
        aborted.sort_by_key(|entry| (entry.first_offset, entry.last_offset));
        let bytes = cut_at(slice.bytes, end_of_bytes);
        Ok(Read { bytes, view, aborted })
    }

    /// How far the list of aborted transactions reaches, for bytes that end at `end`.
    ///
    /// Kafka: `LogSegment.fetchUpperBoundOffset`. In the active segment, whose index is in memory, it is the next index
    /// entry or the log end, as in Kafka. A longer list than needed does no harm.
    fn upper_bound(&self, end: Offset) -> Offset {
        let active = self.log.active();
        if end <= active.base_offset() {
            return end;
        }
        let next_entry = active.indexes().and_then(|(offsets, _)| offsets.ceiling(end));
        next_entry.unwrap_or_else(|| self.log.log_end_offset()).max(end)
    }

    // Changing.

    fn check_online(&self) -> Result<(), ChangeError> {
        if self.offline { Err(ChangeError::Offline) } else { Ok(()) }
    }

    fn or_offline<T>(&mut self, done: Result<T, impl Into<SegmentError>>) -> Result<T, ChangeError> {
        done.map_err(|error| {
            let source: SegmentError = error.into();
            self.offline = true;
            tracing::error!(%source, dir = %self.dir.display(), "change failed, partition is offline");
            ChangeError::Log { source }
        })
    }

    /// Cuts the log at `offset`, a batch that reaches over it included, and restores what was known there (law B6).
    /// Durable when it returns. At or above the log end nothing is cut.
    ///
    /// Order: the partition file says that a cut is coming (a recovery point above it no longer counts), snapshots above
    /// it go, the log is cut and synced, leader epochs and producer state follow.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub fn truncate_to(&mut self, io: &mut dyn Io, offset: Offset) -> Result<(), ChangeError> {
        self.check_online()?;
        if offset >= self.log.log_end_offset() {
            return Ok(());
        }
        if offset < self.log.first_offset() {
            return self.truncate_fully_and_start_at(io, offset);
        }
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
        let cut = self.log.truncate_to(io, offset);
        let cut = self.or_offline(cut)?;
        assert_eq!(cut, end, "the log ends where the partition file says that it was cut");
        if self.epochs.truncate_from_end(end) {
            self.epochs_unsaved = true;
            let saved = self.save_epochs(io);
            self.or_offline(saved)?;
        }
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
        self.last_batch = last
            .as_ref()
            .and_then(|found| RecordBatch::parse_without_crc(&found.bytes).ok())
            .map(|batch| LastBatch::of(&batch));
        self.all_synced();
        Ok(())
    }

    fn note_cut(&mut self, end: Offset) {
        self.cut_to = Some(self.cut_to.map_or(end, |before| before.min(end)));
    }

    /// The lowest offset at which the log was cut since this was last asked. What was appended above it is gone, whatever
    /// offsets the log has reached since: an append that waits for such an offset is not to be acknowledged.
    pub fn take_cut(&mut self) -> Option<Offset> {
        self.cut_to.take()
    }

    fn save_partition_file(&mut self, io: &mut dyn Io) -> Result<(), ChangeError> {
        let written = weir_recovery::write_partition_file(io, &self.side_dir, &self.file);
        self.or_offline(written)
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
        let end_before = self.log.log_end_offset();
        self.file.truncate(Offset::ZERO, end_before);
        self.save_partition_file(io)?;
        let removed = weir_recovery::remove_snapshots(io, &self.dir, |_| true);
        self.or_offline(removed)?;
        self.note_cut(Offset::ZERO);
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

    /// Moves the log start up to `offset`, and deletes the segments that lie wholly below it. A lower offset than the
    /// log start changes nothing.
    ///
    /// The new log start is published at once; the node makes it durable in `log-start-offset-checkpoint`.
    ///
    /// # Errors
    /// [`ChangeError::OffsetOutOfRange`] above the high watermark; see [`ChangeError`].
    pub fn advance_log_start(&mut self, io: &mut dyn Io, offset: Offset) -> Result<(), ChangeError> {
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
        let deleted = self.log.delete_before(io, offset);
        let deleted = self.or_offline(deleted)?;
        if !deleted.is_empty() {
            let first = self.log.first_offset();
            self.file.delete_below(first);
            self.save_partition_file(io)?;
            let removed = weir_recovery::remove_snapshots(io, &self.dir, |at| at < first);
            self.or_offline(removed)?;
            let saved = self.save_epochs(io);
            self.or_offline(saved)?;
        }
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

    /// Syncs and closes: snapshot at the log end, exact sizes, indexes written, partition file. The node then writes the
    /// checkpoints and, last of all, the clean-shutdown marker.
    ///
    /// # Errors
    /// [`ChangeError`]: it was not closed cleanly, and no marker may be written.
    pub fn close(mut self, io: &mut dyn Io) -> Result<(), ChangeError> {
        let prepared = self.prepare_close(io);
        if prepared.is_err() {
            if let Err(error) = self.log.abandon(io) {
                tracing::warn!(%error, dir = %self.dir.display(), "files could not be closed");
            }
            return prepared;
        }
        self.log.close(io).map_err(|source| ChangeError::Log { source })
    }

    fn prepare_close(&mut self, io: &mut dyn Io) -> Result<(), ChangeError> {
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
    log: &LocalLog,
    psm: &ProducerStateManager,
    epochs: &LeaderEpochCache,
    log_start_offset: Offset,
    high_watermark: Offset,
) -> LogView {
    LogView {
        log_start_offset,
        // A log start that was moved into a transaction bounds it from below.
        last_stable_offset: psm.last_stable_offset(high_watermark).max(log_start_offset),
        high_watermark,
        log_end_offset: log.log_end_offset(),
        leader_epoch: epochs.latest().map(|entry| entry.epoch),
    }
}

struct Written {
    barriers: Vec<weir_psm::BarrierApplied>,
    tolerated_count: usize,
}

/// The batches that end at or below `end`.
fn cut_at(bytes: Bytes, end: Offset) -> Bytes {
    let mut size = 0;
    while let Ok(batch) = RecordBatch::parse_without_crc(&bytes[size..]) {
        if batch.next_offset() > end {
            break;
        }
        size += batch.size();
    }
    bytes.slice(..size)
}

fn to_u64(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
