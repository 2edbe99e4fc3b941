//! Feeding batches through the one gate, in log order: what every rebuild does, whatever asked for it.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use weir_format::{LeaderEpoch, Message, Offset, RecordBatch};
use weir_psm::{AppendOrigin, Applied, Checked, CompletedTransaction, ProducerStateManager, PsmConfig};
use weir_segment::AbortedTransaction;
use weir_segment::io::{Io, Open};
use weir_segment::layout::{FileKind, file_path};

use crate::epochs::EpochWitness;
use crate::error::{Corruption, Invalid, LoadError};
use crate::messages::messages;
use crate::partition_file::{BarrierNote, PartitionFile};
use crate::report::BarrierFound;
use crate::snapshots;
use crate::tail::CorruptReason;
use crate::walk::{FileView, Frame, Walker};

/// The newest batch of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastBatch {
    /// Its base offset; of a message of magic 0 or 1, its offset.
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

impl LastBatch {
    /// What is remembered of a batch.
    #[must_use]
    pub fn of(batch: &RecordBatch<'_>) -> Self {
        Self {
            base_offset: batch.base_offset(),
            last_offset: batch.last_offset(),
            crc: batch.crc(),
            leader_epoch: batch.leader_epoch(),
            is_barrier: batch.is_barrier(),
        }
    }

    /// What is remembered of a message of magic 0 or 1.
    #[must_use]
    pub fn of_message(message: &Message<'_>) -> Self {
        let offset = message.offset();
        Self {
            base_offset: offset,
            last_offset: offset,
            crc: message.crc(),
            leader_epoch: None,
            is_barrier: false,
        }
    }
}

/// The transaction-index entries that one commit gives, in the order in which they are written: the same for a live
/// append and for replay.
#[must_use]
pub fn aborted_entries(applied: &Applied) -> Vec<AbortedTransaction> {
    let entry = |done: &CompletedTransaction| AbortedTransaction {
        producer_id: done.producer_id,
        first_offset: done.first_offset,
        last_offset: done.last_offset,
        last_stable_offset: done.last_stable_offset,
    };
    let at_barrier = applied.barrier.iter().flat_map(|barrier| &barrier.transactions_aborted);
    applied.completed.iter().filter(|done| done.aborted).chain(at_barrier).map(entry).collect()
}

/// Notes what a commit says about a barrier in the partition file.
pub fn note_barrier(applied: &Applied, file: &mut PartitionFile) {
    if let Some(barrier) = &applied.barrier {
        let aborted_transaction = !barrier.transactions_aborted.is_empty();
        file.note_barrier(barrier.offset, BarrierNote { aborted_transaction });
    }
}

/// The state that a replay builds up.
pub(crate) struct Replay {
    pub(crate) psm: ProducerStateManager,
    pub(crate) file: PartitionFile,
    /// Batches below this one are not fed: the snapshot knows them.
    pub(crate) feed_from: Offset,
    pub(crate) witness: EpochWitness,
    pub(crate) last_batch: Option<LastBatch>,
    /// Aborted transactions of the segment that is being walked.
    pub(crate) aborted: Vec<AbortedTransaction>,
    pub(crate) barriers: Vec<BarrierFound>,
    pub(crate) tolerated_count: u64,
    pub(crate) batch_count: u64,
    pub(crate) checked_bytes: u64,
    /// A batch reaches over `feed_from`: the snapshot does not belong to this log.
    pub(crate) snapshot_is_foreign: bool,
    /// Our snapshots from where the walk has not come yet, ascending. They know of batches that are deleted, so from there
    /// on it goes on from them.
    later: VecDeque<ProducerStateManager>,
    /// The last of them that it went on from.
    pub(crate) gone_on_from: Option<Offset>,
}

impl Replay {
    /// Starts from what `psm` knows; `file` keeps its snapshots, and the barriers below that point.
    pub(crate) fn new(psm: ProducerStateManager, mut file: PartitionFile, feed_from: Offset) -> Self {
        file.forget_barriers_from(feed_from);
        Self {
            psm,
            file,
            feed_from,
            witness: EpochWitness::default(),
            last_batch: None,
            aborted: Vec::new(),
            barriers: Vec::new(),
            tolerated_count: 0,
            batch_count: 0,
            checked_bytes: 0,
            snapshot_is_foreign: false,
            later: VecDeque::new(),
            gone_on_from: None,
        }
    }

    /// The same, and where the walk comes to one of `later`, it goes on from there.
    pub(crate) fn going_on_from(mut self, later: VecDeque<ProducerStateManager>) -> Self {
        self.later = later;
        self
    }

    /// All below `next` was met, and what comes now ends at `end`.
    pub(crate) fn reach(&mut self, next: Offset, end: Offset) {
        let is_due = |psm: &ProducerStateManager| psm.map_end_offset() <= next || psm.map_end_offset() < end;
        while self.later.front().is_some_and(is_due) {
            let Some(psm) = self.later.pop_front() else { return };
            let offset = psm.map_end_offset();
            // Else it lies inside a batch, and belongs to another log.
            if offset <= next {
                self.psm = psm;
                self.psm.on_high_watermark(offset);
                self.gone_on_from = Some(offset);
            }
        }
    }

    /// One message of magic 0 or 1, valid and above all before it: it has no producer and no leader epoch.
    pub(crate) fn message(&mut self, message: &Message<'_>) {
        let next_offset = next_of(message);
        self.batch_count += 1;
        self.checked_bytes += u64::try_from(message.size()).unwrap_or(u64::MAX);
        self.witness.observe(None, message.offset(), next_offset);
        self.last_batch = Some(LastBatch::of_message(message));
        self.reach(message.offset(), next_offset);
        if next_offset > self.feed_from {
            self.psm.update_map_end_offset(next_offset);
            self.psm.on_high_watermark(next_offset);
        }
    }

    /// One batch, valid and above all before it.
    pub(crate) fn batch(&mut self, batch: &RecordBatch<'_>) -> Result<(), Invalid> {
        let is_known = batch.base_offset() < self.feed_from;
        if !is_known {
            self.reach(batch.base_offset(), batch.next_offset());
        }
        let checked = match is_known {
            true => None,
            false => match self.psm.check(batch, batch.base_offset(), AppendOrigin::Replication) {
                Ok(checked) => Some(checked),
                // It is no part of the log, so nothing of it is remembered.
                Err(error) => return Err(Invalid::Refused(error)),
            },
        };
        self.batch_count += 1;
        self.checked_bytes += u64::try_from(batch.size()).unwrap_or(u64::MAX);
        self.witness.observe(batch.leader_epoch(), batch.base_offset(), batch.next_offset());
        self.last_batch = Some(LastBatch::of(batch));
        self.snapshot_is_foreign |= is_known && batch.next_offset() > self.feed_from;
        // Duplicates are searched for clients only.
        let Some(Checked::Append(transition)) = checked else { return Ok(()) };
        let applied = self.psm.commit(transition);
        self.psm.on_high_watermark(batch.next_offset());
        self.tolerated_count += u64::try_from(applied.tolerated.len()).unwrap_or(u64::MAX);
        self.aborted.extend(aborted_entries(&applied));
        note_barrier(&applied, &mut self.file);
        if let Some(barrier) = &applied.barrier {
            self.barriers.push(BarrierFound {
                offset: barrier.offset,
                producers_expired: barrier.producers_expired,
                transactions_aborted: barrier.transactions_aborted.len(),
            });
        }
        Ok(())
    }
}

/// The offset behind a message, which has one: it was parsed.
pub(crate) fn next_of(message: &Message<'_>) -> Offset {
    message.offset().next().expect("an offset of a message is not the last one there is")
}

/// What is expected of the next batch of a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The smallest base offset.
    pub(crate) next_offset: Offset,
    /// Where the next segment begins, if there is one: no batch reaches beyond.
    pub(crate) next_segment: Option<Offset>,
}

impl Bounds {
    /// What is wrong with a valid message at this place; moves on if nothing is.
    ///
    /// Of a wrapper, only the offset of its last message is known.
    pub(crate) fn admit_message(&mut self, message: &Message<'_>) -> Result<(), Invalid> {
        if message.offset() < self.next_offset {
            return Err(Invalid::OffsetBelowEnd { base_offset: message.offset() });
        }
        let next_offset = next_of(message);
        if let Some(segment) = self.next_segment
            && next_offset > segment
        {
            return Err(Invalid::BeyondNextSegment { next_offset, segment });
        }
        self.next_offset = next_offset;
        Ok(())
    }

    /// What is wrong with a valid batch at this place; moves on if nothing is.
    pub(crate) fn admit(&mut self, batch: &RecordBatch<'_>) -> Result<(), Invalid> {
        if batch.base_offset() < self.next_offset {
            return Err(Invalid::OffsetBelowEnd { base_offset: batch.base_offset() });
        }
        if let Some(segment) = self.next_segment
            && batch.next_offset() > segment
        {
            return Err(Invalid::BeyondNextSegment { next_offset: batch.next_offset(), segment });
        }
        if batch.is_compressed_control() {
            return Err(Invalid::CompressedControlBatch);
        }
        self.next_offset = batch.next_offset();
        Ok(())
    }
}

/// Producer state of the log below `end`, from a snapshot and the bytes on disk: for truncation (law B6).
///
/// `segments` are the base offsets of all segments; the log has been cut at `end` already and is intact.
///
/// # Errors
/// [`LoadError::Corrupt`] if a segment is not valid to its end; [`LoadError::Io`].
pub fn rebuild_producer_state(
    io: &mut dyn Io,
    dir: &Path,
    segments: &[Offset],
    end: Offset,
    file: &PartitionFile,
    config: PsmConfig,
) -> Result<ProducerStateManager, LoadError> {
    let mut limit = end;
    let first_base = segments.first().copied().unwrap_or(end);
    loop {
        let snapshot = snapshots::load_newest(io, dir, file, first_base, limit, config)?;
        let feed_from = snapshot.as_ref().map_or(Offset::ZERO, ProducerStateManager::map_end_offset);
        let psm = snapshot.unwrap_or_else(|| ProducerStateManager::new(config));
        let mut replay = Replay::new(psm, file.clone(), feed_from);
        let first = segments.partition_point(|&base| base <= feed_from).saturating_sub(1);
        let bases: BTreeMap<Offset, Option<Offset>> = segments
            .iter()
            .enumerate()
            .skip(first)
            .map(|(index, &base)| (base, segments.get(index + 1).copied()))
            .collect();
        for (base, next_segment) in bases {
            walk_intact(io, dir, base, next_segment, end, &mut replay)?;
        }
        if replay.snapshot_is_foreign && feed_from > Offset::ZERO {
            let Some(below) = feed_from.checked_add(-1) else { continue };
            limit = below;
            continue;
        }
        let mut psm = replay.psm;
        if psm.map_end_offset() < end {
            psm.update_map_end_offset(end);
        }
        return Ok(psm);
    }
}

/// Walks one segment that must be valid up to `end` or to its last byte.
fn walk_intact(
    io: &mut dyn Io,
    dir: &Path,
    base: Offset,
    next_segment: Option<Offset>,
    end: Offset,
    replay: &mut Replay,
) -> Result<(), LoadError> {
    let path = file_path(dir, base, FileKind::Log);
    let file = io.open(&path, Open::Read)?;
    let size = io.len(file)?;
    let mut view = FileView { io: &mut *io, file, size };
    let mut walker = Walker::new(0);
    let mut bounds = Bounds { next_offset: base, next_segment };
    let outcome = loop {
        let position = walker.position();
        if bounds.next_offset >= end {
            break Ok(());
        }
        let found = match walker.next(&mut view) {
            Ok(Frame::End) => break Ok(()),
            Ok(Frame::Invalid(error)) => {
                let finished = std::mem::replace(&mut walker, Walker::new(position)).finish(view.io);
                let run = finished.and_then(|()| {
                    messages(&mut view, position, |message| {
                        if bounds.next_offset >= end {
                            return Ok(Err(Invalid::OffsetBelowEnd { base_offset: message.offset() }));
                        }
                        Ok(bounds.admit_message(message).map(|()| replay.message(message)))
                    })
                });
                match run {
                    Err(error) => break Err(error.into()),
                    Ok(run) if run.position > position => {
                        walker = Walker::new(run.position);
                        continue;
                    }
                    Ok(run) => Err(run.stopped.unwrap_or(Invalid::Batch(error))),
                }
            }
            Ok(Frame::Batch(batch)) => bounds.admit(&batch).and_then(|()| replay.batch(&batch)),
            Err(error) => break Err(error.into()),
        };
        if let Err(found) = found {
            break Err(LoadError::Corrupt(Box::new(Corruption {
                file: path.clone(),
                position,
                next_offset: bounds.next_offset,
                found,
                reason: CorruptReason::BelowRecoveryPoint,
                behind: None,
                last_segment: None,
            })));
        }
    };
    let finished = walker.finish(io);
    io.close(file)?;
    outcome.and_then(|()| Ok(finished?))
}
