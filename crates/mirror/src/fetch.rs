//! What one fetch response means for one partition: a pure state machine.
//!
//! Bytes of the source are looked at here, before anything is done with them: frame and CRC
//! of each batch, offsets that only go up, epochs that are not above the limit. Nothing is
//! decompressed and nothing is rebuilt; what is appended is a slice of what came.

use std::collections::btree_map::Entry;

use bytes::Bytes;
use weir_format::{
    AnyBatch, AnyBatchError, AnyBatchReader, BatchError, LeaderEpoch, MessageError, Offset, RecordBatch,
};

use crate::destination::{LogState, ProducerIdsMet};
use crate::failure::Failure;
use crate::source::{FetchPartition, FetchedPartition, SourceCode, SourceRange, TopicId, TopicPartition};

/// Refusals in a row after which a partition is FAILED. With the back-off of
/// [`crate::partition::backoff`] that is about two and a half minutes.
pub const MAX_REFUSALS: u32 = 20;

/// Sizes of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// Bytes per partition and fetch. KIP: `fetch.max.bytes`, 1 MiB.
    pub partition_max_bytes: i32,
    /// The largest batch that is taken. `weir.mirror.max.batch.bytes`, 100 MiB.
    pub max_batch_bytes: usize,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self { partition_max_bytes: 1 << 20, max_batch_bytes: 100 << 20 }
    }
}

/// Where fetching of a partition stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchState {
    partition: TopicPartition,
    topic_id: TopicId,
    limits: FetchLimits,
    next_offset: Offset,
    log_is_empty: bool,
    last_fetched_epoch: Option<LeaderEpoch>,
    source_leader_epoch: Option<LeaderEpoch>,
    leader_epoch: LeaderEpoch,
    partition_max_bytes: i32,
    /// A first answer that cannot be true; the next one decides.
    suspect: Option<Failure>,
    refusals: u32,
}

/// What to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendPlan {
    /// Whole, checked batches: a slice of the response.
    pub records: Bytes,
    /// Give the (empty) log this start first: the source cut inside this batch.
    pub restart_at: Option<Offset>,
    /// The largest epoch that these batches may carry.
    pub max_leader_epoch: LeaderEpoch,
    /// Where the log must end before.
    pub expected_end: Offset,
    /// Producer ids in them, to be covered before.
    pub producer_ids: ProducerIdsMet,
    /// The offset behind them.
    pub next_offset: Offset,
}

/// What to do about a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchDecision {
    /// Append these bytes, then fetch on.
    Append(Box<AppendPlan>),
    /// Nothing new. Fetch on.
    Idle,
    /// Fetch again with room for a larger batch.
    Widen,
    /// Ask the source who leads, and go there.
    Refresh,
    /// Ask the source where its log starts and ends, and decide by [`FetchState::on_range`].
    AskRange,
    /// The same again later.
    BackOff(String),
    /// The same again over a new connection.
    Reconnect(String),
    /// Our leader epoch must be raised above this one first.
    RaiseEpoch(LeaderEpoch),
    /// An operator must look at it.
    Fail(Failure),
}

impl FetchState {
    /// Fetching from the end of `log` on.
    #[must_use]
    pub fn new(
        partition: TopicPartition,
        topic_id: TopicId,
        limits: FetchLimits,
        log: &LogState,
        source_leader_epoch: Option<LeaderEpoch>,
    ) -> Self {
        Self {
            partition,
            topic_id,
            limits,
            next_offset: log.log_end_offset,
            log_is_empty: log.is_empty(),
            last_fetched_epoch: log.latest_epoch,
            source_leader_epoch,
            leader_epoch: log.leader_epoch,
            partition_max_bytes: limits.partition_max_bytes,
            suspect: None,
            refusals: 0,
        }
    }

    /// The next offset to fetch: our log end.
    #[must_use]
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// The source's leader epoch as known here.
    #[must_use]
    pub fn source_leader_epoch(&self) -> Option<LeaderEpoch> {
        self.source_leader_epoch
    }

    /// How many answers in a row brought nothing but an error.
    #[must_use]
    pub fn refusals(&self) -> u32 {
        self.refusals
    }

    /// The source's metadata has this leader epoch.
    pub fn set_source_leader_epoch(&mut self, epoch: Option<LeaderEpoch>) {
        self.source_leader_epoch = epoch;
    }

    /// Our leader epoch is this one now.
    pub fn set_leader_epoch(&mut self, epoch: LeaderEpoch) {
        self.leader_epoch = self.leader_epoch.max(epoch);
    }

    /// What to ask for next.
    #[must_use]
    pub fn request(&self) -> FetchPartition {
        FetchPartition {
            partition: self.partition.clone(),
            topic_id: self.topic_id,
            fetch_offset: self.next_offset,
            current_leader_epoch: self.source_leader_epoch,
            last_fetched_epoch: self.last_fetched_epoch,
            partition_max_bytes: self.partition_max_bytes,
        }
    }

    /// The append of a plan is done, and this is the log now.
    ///
    /// # Errors
    /// [`Failure::Destination`] if the log does not end where the plan said.
    pub fn appended(&mut self, plan: &AppendPlan, log: &LogState) -> Result<(), Failure> {
        if log.log_end_offset != plan.next_offset {
            let cause =
                format!("after an append up to {} the log ends at {}", plan.next_offset, log.log_end_offset);
            return Err(Failure::Destination { cause });
        }
        self.next_offset = log.log_end_offset;
        self.log_is_empty = log.is_empty();
        self.last_fetched_epoch = log.latest_epoch;
        self.partition_max_bytes = self.limits.partition_max_bytes;
        Ok(())
    }

    /// Decides about what came for this partition.
    ///
    /// Cost: one pass over the bytes (CRC), no copy.
    pub fn on_response(&mut self, fetched: &FetchedPartition) -> FetchDecision {
        match fetched.code {
            SourceCode::None => {}
            SourceCode::OffsetOutOfRange => return FetchDecision::AskRange,
            SourceCode::NotLeader
            | SourceCode::FencedLeaderEpoch
            | SourceCode::UnknownLeaderEpoch
            | SourceCode::UnknownTopicOrPartition
            | SourceCode::UnknownTopicId
            | SourceCode::InconsistentTopicId => {
                // Whether it is moved, deleted or recreated is for the metadata to say.
                self.refusals = self.refusals.saturating_add(1);
                return FetchDecision::Refresh;
            }
            SourceCode::CorruptMessage => {
                return self.suspect(Failure::CorruptBatch {
                    offset: self.next_offset,
                    cause: "the source finds its own data corrupt".to_owned(),
                });
            }
            code @ (SourceCode::AuthorizationFailed | SourceCode::Other(_)) => {
                return self.refused(code.to_string());
            }
        }
        if let Some(diverging) = fetched.diverging {
            return FetchDecision::Fail(Failure::Diverged {
                log_end: self.next_offset,
                epoch: diverging.epoch,
                end_offset: diverging.end_offset,
            });
        }
        let decision = self.on_records(&fetched.records);
        if matches!(decision, FetchDecision::Append(_) | FetchDecision::Idle) {
            self.suspect = None;
            self.refusals = 0;
        }
        decision
    }

    fn refused(&mut self, cause: String) -> FetchDecision {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals >= MAX_REFUSALS {
            return FetchDecision::Fail(Failure::SourceRefuses { code: cause, times: self.refusals });
        }
        FetchDecision::BackOff(format!("the source answered {cause}"))
    }

    /// M6: once over a new connection, then it is the operator's.
    fn suspect(&mut self, failure: Failure) -> FetchDecision {
        if self.suspect.take().is_some() {
            return FetchDecision::Fail(failure);
        }
        let cause = failure.to_string();
        self.suspect = Some(failure);
        FetchDecision::Reconnect(cause)
    }

    fn corrupt(&mut self, cause: impl std::fmt::Display) -> FetchDecision {
        self.suspect(Failure::CorruptBatch { offset: self.next_offset, cause: cause.to_string() })
    }

    fn on_records(&mut self, records: &Bytes) -> FetchDecision {
        let mut accepted = Accepted::new(self.next_offset);
        for batch in AnyBatchReader::new(records) {
            let verdict = match &batch {
                Ok(batch) => self.on_batch(batch, &mut accepted),
                Err(
                    AnyBatchError::Batch(BatchError::Truncated { need, have })
                    | AnyBatchError::Message(MessageError::Truncated { need, have }),
                ) => {
                    // A source may end a response within a batch; it comes again.
                    if accepted.size > 0 {
                        break;
                    }
                    Some(self.on_cut_batch(*need, *have))
                }
                Err(error) if accepted.size == 0 => Some(self.corrupt(error)),
                // What is in front is good. The next fetch begins at the bad one.
                Err(_) => break,
            };
            match verdict {
                None => {}
                Some(_) if accepted.size > 0 => break,
                Some(decision) => return decision,
            }
        }
        if accepted.size == 0 {
            return FetchDecision::Idle;
        }
        FetchDecision::Append(Box::new(AppendPlan {
            records: records.slice(..accepted.size),
            restart_at: accepted.restart_at,
            expected_end: accepted.restart_at.unwrap_or(self.next_offset),
            max_leader_epoch: self.epoch_limit(),
            producer_ids: accepted.producer_ids,
            next_offset: accepted.next_offset,
        }))
    }

    fn epoch_limit(&self) -> LeaderEpoch {
        self.source_leader_epoch.unwrap_or(self.leader_epoch).min(self.leader_epoch)
    }

    /// Accepts the batch and answers `None`, or says what to do if it is the first one.
    fn on_batch(&mut self, batch: &AnyBatch<'_>, accepted: &mut Accepted) -> Option<FetchDecision> {
        let (size, limit) = (batch.bytes().len(), self.limits.max_batch_bytes);
        let is_first = accepted.size == 0;
        if size > limit {
            if !is_first {
                return Some(FetchDecision::Idle);
            }
            return Some(self.suspect(Failure::BatchTooLarge { offset: self.next_offset, size, limit }));
        }
        let (base, next_offset) = match batch {
            AnyBatch::Batch(batch) => (batch.base_offset(), batch.next_offset()),
            AnyBatch::Message(message) => {
                let offset = message.offset();
                (offset, offset.next().unwrap_or(offset))
            }
        };
        if base < accepted.next_offset {
            // The source's log starts inside this batch; an empty log takes it whole.
            let contains = is_first && self.log_is_empty && batch.last_offset() >= accepted.next_offset;
            if !contains {
                let cause = format!("base offset {base} is below {}", accepted.next_offset);
                return Some(if is_first { self.corrupt(cause) } else { FetchDecision::Idle });
            }
            accepted.restart_at = Some(base);
        }
        // A message of magic 0 or 1 has neither a leader epoch nor a producer.
        if let AnyBatch::Batch(batch) = batch
            && let Some(decision) = self.on_fields(batch, is_first, accepted)
        {
            return Some(decision);
        }
        accepted.size = accepted.size.saturating_add(size);
        accepted.next_offset = next_offset;
        None
    }

    /// What control bit, leader epoch and producer id of a batch say.
    fn on_fields(
        &mut self,
        batch: &RecordBatch<'_>,
        is_first: bool,
        accepted: &mut Accepted,
    ) -> Option<FetchDecision> {
        let base = batch.base_offset();
        if batch.is_compressed_control() {
            let cause = format!("control batch at offset {base} is compressed");
            return Some(if is_first { self.corrupt(cause) } else { FetchDecision::Idle });
        }
        if let Some(epoch) = batch.leader_epoch() {
            if self.source_leader_epoch.is_some_and(|source| epoch > source) {
                // Either our metadata is old, or the source says what cannot be.
                if !is_first {
                    return Some(FetchDecision::Idle);
                }
                self.refusals = self.refusals.saturating_add(1);
                if self.refusals >= MAX_REFUSALS {
                    let cause = format!("batch epoch {epoch} is above the source leader's own epoch");
                    return Some(FetchDecision::Fail(Failure::CorruptBatch { offset: base, cause }));
                }
                return Some(FetchDecision::Refresh);
            }
            if epoch > self.leader_epoch {
                return Some(FetchDecision::RaiseEpoch(epoch));
            }
        }
        if let Some(id) = batch.producer_id() {
            let number = u32::try_from(id.get() >> 32).unwrap_or(u32::MAX);
            match accepted.producer_ids.entry(number) {
                Entry::Vacant(entry) => {
                    entry.insert(id);
                }
                Entry::Occupied(mut entry) => {
                    let highest = id.max(*entry.get());
                    entry.insert(highest);
                }
            }
        }
        None
    }

    /// The answer to a fetch of this partition alone was larger than any that is taken.
    pub fn on_oversized(&mut self, size: usize, limit: usize) -> FetchDecision {
        self.suspect(Failure::BatchTooLarge { offset: self.next_offset, size, limit })
    }

    /// The first batch does not end within the response.
    fn on_cut_batch(&mut self, need: usize, have: usize) -> FetchDecision {
        if have == 0 {
            return FetchDecision::Idle;
        }
        let limit = self.limits.max_batch_bytes;
        if need > limit {
            return self.suspect(Failure::BatchTooLarge { offset: self.next_offset, size: need, limit });
        }
        match i32::try_from(need) {
            Ok(need) if need > self.partition_max_bytes => {
                self.partition_max_bytes = need;
                FetchDecision::Widen
            }
            _ => self.corrupt(format!("the batch needs {need} bytes, the response ends after {have}")),
        }
    }

    /// Decides after OFFSET_OUT_OF_RANGE, by where the source's log starts and ends.
    pub fn on_range(&mut self, range: SourceRange) -> FetchDecision {
        if range.start > self.next_offset {
            return FetchDecision::Fail(Failure::Gap {
                log_end: self.next_offset,
                source_start: range.start,
            });
        }
        if range.end < self.next_offset {
            let failure = Failure::SourceEndsBelow { log_end: self.next_offset, source_end: range.end };
            // A leader that has just been elected may not know its high watermark yet.
            // Where it ends may differ each time: it is written to.
            if self.suspect.replace(failure.clone()).is_some_and(|first| first.name() == failure.name()) {
                return FetchDecision::Fail(failure);
            }
            self.refusals = self.refusals.saturating_add(1);
            return FetchDecision::Refresh;
        }
        self.refusals = self.refusals.saturating_add(1);
        FetchDecision::BackOff(format!(
            "the source answered OFFSET_OUT_OF_RANGE to {}, which lies within its log",
            self.next_offset
        ))
    }
}

struct Accepted {
    size: usize,
    next_offset: Offset,
    restart_at: Option<Offset>,
    producer_ids: ProducerIdsMet,
}

impl Accepted {
    fn new(next_offset: Offset) -> Self {
        Self { size: 0, next_offset, restart_at: None, producer_ids: ProducerIdsMet::new() }
    }
}

#[cfg(test)]
mod tests;
