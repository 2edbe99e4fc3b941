//! [`UnifiedLog`]: one partition, whole.

use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use weir_format::{LeaderEpoch, Offset, ProducerId, TimestampMs};
use weir_psm::{OpenTransaction, ProducerStateEntry};
use weir_recovery::{LoadError, RecoveryReport};
use weir_segment::AbortedTransaction;
use weir_segment::io::{Io, IoError};

use crate::append::{AppendParams, Appended};
use crate::config::{LogConfig, OpenOptions};
use crate::error::{AppendError, ChangeError, ReadError};
use crate::lookup::{OffsetSpec, TimestampOffset};
use crate::sync::SyncPlan;
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

/// The newest batch of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastBatch {
    /// Its base offset.
    pub base_offset: Offset,
    /// Its last offset.
    pub last_offset: Offset,
    /// Its CRC.
    pub crc: u32,
    /// Its leader epoch.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Whether it is the barrier.
    pub is_barrier: bool,
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
pub struct UnifiedLog {
    view: Arc<LogView>,
}

impl UnifiedLog {
    /// Opens the log in `dir`, recovering it as `options` demand. Makes it if the directory is empty or missing.
    ///
    /// # Errors
    /// [`LoadError`]: corruption (nothing was cut), or the disk failed. The partition stays offline.
    pub fn open(
        io: &mut dyn Io,
        dir: &Path,
        config: LogConfig,
        options: OpenOptions,
    ) -> Result<(Self, RecoveryReport), LoadError> {
        let _ = (io, dir, config, options);
        unimplemented!("lands shortly")
    }

    /// Appends batches, or answers that they are there already. The bytes are written, not yet durable: acknowledge
    /// when the high watermark reaches [`Appended::durable_at`].
    ///
    /// # Errors
    /// See [`AppendError`].
    pub fn append(
        &mut self,
        io: &mut dyn Io,
        records: BytesMut,
        params: &AppendParams,
    ) -> Result<Appended, AppendError> {
        let _ = (io, records, params);
        unimplemented!("lands shortly")
    }

    /// The newest published view.
    #[must_use]
    pub fn view(&self) -> Arc<LogView> {
        Arc::clone(&self.view)
    }

    /// What must be synced for everything appended so far to be durable; `None` if nothing must, or a plan is out.
    pub fn sync_begin(&mut self) -> Option<SyncPlan> {
        unimplemented!("lands shortly")
    }

    /// The outcome of a plan. On success the high watermark moves and a new view is published, which is returned if
    /// it differs; on failure the partition goes offline.
    pub fn sync_done(&mut self, plan: SyncPlan, result: Result<(), IoError>) -> Option<Arc<LogView>> {
        let _ = (plan, result);
        unimplemented!("lands shortly")
    }

    /// Syncs everything appended so far and publishes it, blocking: for stops.
    ///
    /// # Errors
    /// [`ChangeError::Log`] if the sync failed.
    pub fn sync(&mut self, io: &mut dyn Io) -> Result<Arc<LogView>, ChangeError> {
        let _ = io;
        unimplemented!("lands shortly")
    }

    /// Whether an earlier failure took the partition offline: it answers reads and takes nothing.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        unimplemented!("lands shortly")
    }

    /// Bytes written and not yet synced.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        unimplemented!("lands shortly")
    }

    /// Where the next batch goes, whether durable or not.
    #[must_use]
    pub fn log_end_offset(&self) -> Offset {
        unimplemented!("lands shortly")
    }

    /// What `recovery-point-offset-checkpoint` may say: everything below is synced.
    #[must_use]
    pub fn recovery_point(&self) -> Offset {
        unimplemented!("lands shortly")
    }

    /// Reads whole batches from `from`, at most `max_bytes` of them, or one if `at_least_one`.
    ///
    /// # Errors
    /// [`ReadError::OffsetOutOfRange`] below the log start or above the log end.
    pub fn read(
        &mut self,
        io: &mut dyn Io,
        from: Offset,
        max_bytes: usize,
        isolation: Isolation,
        at_least_one: bool,
    ) -> Result<Read, ReadError> {
        let _ = (io, from, max_bytes, isolation, at_least_one);
        unimplemented!("lands shortly")
    }

    /// Cuts the log at `offset`, a batch that contains it included, and restores what was known there. Synced when it
    /// returns.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub fn truncate_to(&mut self, io: &mut dyn Io, offset: Offset) -> Result<(), ChangeError> {
        let _ = (io, offset);
        unimplemented!("lands shortly")
    }

    /// Drops everything; the log is empty and goes on at `offset`. Synced when it returns.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub fn truncate_fully_and_start_at(
        &mut self,
        io: &mut dyn Io,
        offset: Offset,
    ) -> Result<(), ChangeError> {
        let _ = (io, offset);
        unimplemented!("lands shortly")
    }

    /// Moves the log start up to `offset`, at most the high watermark, and deletes the segments wholly below it.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub fn advance_log_start(&mut self, io: &mut dyn Io, offset: Offset) -> Result<(), ChangeError> {
        let _ = (io, offset);
        unimplemented!("lands shortly")
    }

    /// Notes, durably, that `epoch` began at the log end: for a partition that becomes writable or is bumped.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub fn assign_leader_epoch(&mut self, io: &mut dyn Io, epoch: LeaderEpoch) -> Result<(), ChangeError> {
        let _ = (io, epoch);
        unimplemented!("lands shortly")
    }

    /// The offset that `ListOffsets` answers.
    ///
    /// # Errors
    /// [`ReadError::Log`] if reading failed.
    pub fn offset_for(
        &mut self,
        io: &mut dyn Io,
        spec: OffsetSpec,
        isolation: Isolation,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let _ = (io, spec, isolation);
        unimplemented!("lands shortly")
    }

    /// The largest epoch not above `epoch` and where it ended; `None` if `epoch` is newer than any known.
    #[must_use]
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let _ = epoch;
        unimplemented!("lands shortly")
    }

    /// The newest leader epoch in the log.
    #[must_use]
    pub fn latest_epoch(&self) -> Option<LeaderEpoch> {
        unimplemented!("lands shortly")
    }

    /// The newest batch, durable or not.
    #[must_use]
    pub fn last_batch(&self) -> Option<LastBatch> {
        unimplemented!("lands shortly")
    }

    /// Open transactions, ascending by first offset: the order in which a stop aborts them.
    #[must_use]
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        unimplemented!("lands shortly")
    }

    /// What is known about each producer, ascending by id.
    pub fn producers(&self) -> impl Iterator<Item = (ProducerId, &ProducerStateEntry)> {
        std::iter::empty()
    }

    /// Forgets producers that have been idle too long by the wall clock; returns how many.
    pub fn expire_producers(&mut self, now: TimestampMs) -> usize {
        let _ = now;
        unimplemented!("lands shortly")
    }

    /// The segments, oldest first.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentInfo> {
        unimplemented!("lands shortly")
    }

    /// Syncs and closes: snapshot at the log end, exact sizes, trimmed indexes, partition file. The node then writes
    /// the checkpoints and, last, the clean-shutdown marker.
    ///
    /// # Errors
    /// [`ChangeError`]: it was not closed cleanly, and no marker may be written.
    pub fn close(self, io: &mut dyn Io) -> Result<(), ChangeError> {
        let _ = io;
        unimplemented!("lands shortly")
    }
}
