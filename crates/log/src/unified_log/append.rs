//! Appending: the gate for batches, and what a roll does.

use bytes::{Bytes, BytesMut};
use weir_format::{
    Message, Offset, RecordBatch, TimestampMs, TimestampType, set_base_offset, set_leader_epoch,
    set_log_append_time,
};
use weir_psm::{AppendOrigin, Applied, Checked, DuplicateBatch, Transition};
use weir_recovery::{LastBatch, aborted_entries, note_barrier};
use weir_segment::SegmentError;
use weir_segment::io::Io;

use super::UnifiedLog;
use crate::append::{AppendParams, Appended};
use crate::error::{AppendError, ChangeError, InvalidRecord, because};
use crate::gate;

impl UnifiedLog {
    /// Appends batches, or answers that they are there already.
    ///
    /// When it returns the bytes are gathered, neither written nor durable: acknowledge `acks=1` when
    /// [`UnifiedLog::written_end_offset`] reaches [`Appended::durable_at`], and `acks=all` when the high watermark does.
    /// A client or coordinator appends exactly one batch, which gets its base offset and leader epoch here; replicated
    /// bytes stay as they are.
    ///
    /// Cost: a CRC over the batches, and what [`weir_segment::LocalLog::append_bytes`] costs; where a segment is started the syncs of
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
        gate::single(&mut records, params, &self.config)?;
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
        set_base_offset(&mut records, base_offset).map_err(misplaced)?;
        set_leader_epoch(&mut records, leader_epoch).map_err(misplaced)?;
        let appended = self.write(io, &records.freeze(), params.now, Some(transition))?;
        Ok(Appended { append_time, ..appended })
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
            forgotten: Vec::new(),
            tolerated_count: 0,
        }
    }

    fn append_as_follower(
        &mut self,
        io: &mut dyn Io,
        bytes: Bytes,
        params: &AppendParams,
    ) -> Result<Appended, AppendError> {
        let found = gate::replicated(&bytes, params.max_leader_epoch)?;
        let log_end_offset = self.log.log_end_offset();
        let base_offset = found.base_offset;
        if base_offset < log_end_offset {
            // Kafka: Partition.appendRecordsToFollowerOrFutureReplica. The log started inside the leader's first batch.
            let empty = self.log_start_offset == log_end_offset;
            if !empty || found.first_last_offset < log_end_offset {
                return Err(AppendError::UnexpectedOffset {
                    first_offset: base_offset,
                    last_offset: found.first_last_offset,
                    log_end_offset,
                });
            }
            // What lies below the log start stays below it: somebody deleted it.
            self.start_over(io, base_offset, self.log_start_offset).map_err(|error| match error {
                ChangeError::Log { source } => AppendError::Log { source },
                _ => AppendError::Offline,
            })?;
        }
        self.write(io, &bytes, params.now, None)
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
    ) -> Result<Appended, AppendError> {
        let first_segment = self.log.active().base_offset();
        let end_before = self.log.log_end_offset();
        let done = match self.log.append_bytes(io, bytes.clone(), now) {
            Ok(done) => done,
            Err(source) => {
                self.offline = true;
                tracing::error!(error = because(&source), dir = %self.dir.display(), "append failed, partition is offline");
                return Err(AppendError::Log { source });
            }
        };
        self.tail.push(bytes, self.log.log_end_offset());
        let mut appended = Appended {
            base_offset: done.base_offset,
            last_offset: done.last_offset,
            durable_at: self.log.log_end_offset(),
            append_time: None,
            duplicate: false,
            log_start_offset: self.log_start_offset,
            barriers: Vec::new(),
            forgotten: Vec::new(),
            tolerated_count: 0,
        };
        let mut rolled = done.rolled.iter().copied().peekable();
        let mut segment = first_segment;
        let mut rest: &[u8] = bytes;
        while !rest.is_empty() {
            // The gate has checked them, CRC included.
            let Ok(batch) = RecordBatch::parse_without_crc(rest) else {
                let message =
                    Message::parse(rest).expect("bytes that passed the gate are batches or messages");
                rest = &rest[message.size()..];
                while let Some(base) = rolled.next_if(|&base| base <= message.offset()) {
                    segment = base;
                    self.on_roll(io, base, end_before);
                }
                // It has no producer and no leader epoch.
                let next =
                    message.offset().next().expect("the offset of a message is not the last one there is");
                self.psm.update_map_end_offset(next);
                // A checkpoint says that there is none, or each start would look for one.
                self.epochs_unsaved |= self.epochs.entries().is_empty();
                self.last_batch = Some(LastBatch::of_message(&message));
                continue;
            };
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
                tracing::error!(error = because(&source), dir = %self.dir.display(), "append failed, partition is offline");
                return Err(AppendError::Log { source });
            }
            if let Some(epoch) = batch.leader_epoch()
                && self.epochs.assign(epoch, batch.base_offset().max(self.log_start_offset))
            {
                self.epochs_unsaved = true;
            }
            note_barrier(&applied, &mut self.file);
            self.counters.count(&applied);
            appended.tolerated_count += applied.tolerated.len();
            if let Some(barrier) = applied.barrier {
                appended.barriers.push(barrier);
                appended.forgotten.push(applied.forgotten);
            }
            self.last_batch = Some(LastBatch::of(&batch));
        }
        if !done.rolled.is_empty() {
            self.publish();
        }
        Ok(appended)
    }

    /// A segment has been left: it is synced, and `base` is where the next one begins.
    pub(super) fn on_roll(&mut self, io: &mut dyn Io, base: Offset, end_before: Offset) {
        if self.psm.map_end_offset() < base {
            self.psm.update_map_end_offset(base);
        }
        // What was there before this call is durable; of this call's batches that is said once all are committed.
        self.high_watermark = self.high_watermark.max(end_before.min(base));
        self.file.forget_cut_below(self.high_watermark);
        self.begin_snapshot(io, base);
        self.jitter_rolls();
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
        self.tail.push_aborted(&entries, applied.barrier.is_some());
        // Where one append went over a segment's end, and this batch is before it, `on_roll` writes the index.
        entries.into_iter().try_for_each(|entry| self.log.append_aborted(io, segment, entry))
    }
}

pub(super) fn to_u64(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
