//! [`ProducerStateManager`]: the one gate, and what can be asked about its state.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_format::{Offset, ProducerEpoch, ProducerId, RecordBatch, Sequence, TimestampMs};

use crate::append_info::{AppendOrigin, DataChange, MarkerChange, ProducerAppendInfo, TransactionVersion};
use crate::barrier::{BarrierApplied, Forgotten};
use crate::entry::{BatchMetadata, ProducerStateEntry};
use crate::error::{ProducerStateError, SnapshotError};
use crate::producers::{Place, Producers};
use crate::snapshot::{self, SnapshotPiece};
use crate::unreplicated::Unreplicated;
use crate::verification::{VerificationGuard, Verifications};

/// How long producers are remembered, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PsmConfig {
    /// An entry idle for this long may be forgotten. Kafka: `producer.id.expiration.ms`, one day.
    pub producer_id_expiration: Duration,
    /// How many producers one partition remembers; `None`, the default, is Kafka's "all of them".
    ///
    /// Above it, whoever is new costs the producer with the lowest last offset its entry: the next
    /// batch of that one is taken as a first, whatever its sequence, and a batch sent again is
    /// written again. A producer with an open transaction is never evicted, so that there may be
    /// more than this many. Whom it costs is a function of the log's bytes.
    pub max_producers: Option<usize>,
}

impl Default for PsmConfig {
    fn default() -> Self {
        Self { producer_id_expiration: Duration::from_secs(24 * 60 * 60), max_producers: None }
    }
}

/// A transaction that was ended by a marker or at a barrier: one entry of the transaction index
/// if it was aborted.
///
/// Kafka: `CompletedTxn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedTransaction {
    /// Whose it was.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// Its marker, or the barrier that ended it.
    pub last_offset: Offset,
    /// Whether its records are void.
    pub aborted: bool,
    /// The last stable offset once this is replicated: the start of the earliest transaction that
    /// is still open, else the offset behind `last_offset`.
    pub last_stable_offset: Offset,
}

/// A transaction without an end, and what an ABORT for it has to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// Whose it is.
    pub producer_id: ProducerId,
    /// Its first record.
    pub first_offset: Offset,
    /// The producer's epoch; `None` if its batches carried none.
    pub producer_epoch: Option<ProducerEpoch>,
    /// The coordinator epoch of the producer's last marker, if it ever had one.
    pub coordinator_epoch: Option<i32>,
    /// When the producer was last seen, by its own clock.
    pub last_timestamp: TimestampMs,
}

/// A batch that is in the log already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateBatch {
    /// Where the first copy starts.
    pub base_offset: Offset,
    /// Where the first copy ends.
    pub last_offset: Offset,
    /// Its largest timestamp.
    pub timestamp: TimestampMs,
}

/// The answer of [`ProducerStateManager::check`].
#[derive(Debug)]
#[must_use = "a checked batch is appended and committed, or answered as a duplicate"]
pub enum Checked {
    /// The batch may be appended, and then this committed.
    Append(Transition),
    /// The batch is in the log; it is answered with these offsets and not appended.
    Duplicate(DuplicateBatch),
}

/// What one batch changes, checked and not yet done.
///
/// It can only be made by [`ProducerStateManager::check`] and is used up by
/// [`ProducerStateManager::commit`]. Dropping it leaves no trace.
#[derive(Debug)]
#[must_use = "once the batch's bytes are in the log, its transition is committed"]
pub struct Transition {
    /// INVARIANT: the manager's revision when this was checked.
    revision: u64,
    base_offset: Offset,
    next_offset: Offset,
    change: Change,
    /// Where the producer's entry was found, so that it is not searched for again.
    place: Option<Place>,
    tolerated: Vec<ProducerStateError>,
}

#[derive(Debug)]
enum Change {
    /// No producer, or a control batch that says nothing about one.
    Nothing,
    Data(DataChange),
    Marker(MarkerChange),
    Barrier,
}

impl Transition {
    /// Where the batch starts.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Where the next batch may start.
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// The producer whose transaction this batch would open.
    ///
    /// For a client's batch the caller asks the transaction coordinator whether it has that
    /// transaction open on this partition, and drops the transition if not: nobody would ever
    /// end what it opens. Such a client is told INVALID_PRODUCER_EPOCH, which it recovers from.
    pub fn starts_transaction(&self) -> Option<ProducerId> {
        match &self.change {
            Change::Data(data) if data.starts_transaction => Some(data.producer_id),
            _ => None,
        }
    }

    /// Whether the batch is the barrier.
    pub fn is_barrier(&self) -> bool {
        matches!(self.change, Change::Barrier)
    }
}

/// What a commit did, for the transaction index, the report and the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The transaction that a marker ended.
    pub completed: Option<CompletedTransaction>,
    /// The batch was the barrier.
    pub barrier: Option<BarrierApplied>,
    /// The memory of what the barrier forgot, to be dropped where there is time for it.
    pub forgotten: Forgotten,
    /// How many producers were evicted by [`PsmConfig::max_producers`].
    pub producers_evicted: usize,
    /// What would have been refused from a client or a coordinator, and was taken because the
    /// bytes were validated elsewhere. Kafka warns of these.
    pub tolerated: Vec<ProducerStateError>,
}

/// The producers of one partition.
///
/// Kafka: `ProducerStateManager`.
#[derive(Clone, Debug)]
pub struct ProducerStateManager {
    config: PsmConfig,
    pub(crate) producers: Producers,
    /// By first offset.
    /// INVARIANT: exactly the entries with a `transaction_first_offset`.
    pub(crate) open_transactions: BTreeMap<Offset, ProducerId>,
    pub(crate) unreplicated: Unreplicated,
    /// What the leader asked the transaction coordinator about.
    pub(crate) verifications: Verifications,
    /// What is at or above it is not acknowledged yet.
    high_watermark: Offset,
    map_end_offset: Offset,
    /// Counts mutations, so that a transition is committed to the state it was checked against.
    revision: u64,
    /// A look for idle producers that is under way.
    pub(crate) expiry: Option<Expiry>,
}

/// How far a look for idle producers has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expiry {
    /// Places from this number on are to be looked at, with the clock as it was at the start.
    Looking { from: usize, now: TimestampMs },
    /// The memory of those who went is to be given back.
    Compacting,
}

impl ProducerStateManager {
    /// Nothing is known, from offset 0.
    pub fn new(config: PsmConfig) -> Self {
        Self {
            config,
            producers: Producers::new(config.max_producers),
            open_transactions: BTreeMap::new(),
            unreplicated: Unreplicated::default(),
            verifications: Verifications::default(),
            high_watermark: Offset::ZERO,
            map_end_offset: Offset::ZERO,
            revision: 0,
            expiry: None,
        }
    }

    /// Says what `batch` would change if it stood at `base_offset`, or why it may not.
    ///
    /// The base offset in the batch's own bytes is not looked at: a client's or coordinator's
    /// batch has none assigned yet. How much is validated depends on `origin`; markers of a
    /// coordinator are checked as those of transaction version 0 (see
    /// [`check_marker`](Self::check_marker) for others).
    ///
    /// Cost: one lookup, no copy; walks no records but the first of a control batch.
    /// # Errors
    /// Every [`ProducerStateError`]; the state is as before, and the batch must not be appended.
    /// With [`AppendOrigin::Replication`] only a compressed control batch and offsets that do not
    /// follow the log are errors.
    /// Source: Kafka's `UnifiedLog.analyzeAndValidateProducerState`, `ProducerAppendInfo`.
    pub fn check(
        &self,
        batch: &RecordBatch<'_>,
        base_offset: Offset,
        origin: AppendOrigin,
    ) -> Result<Checked, ProducerStateError> {
        self.check_batch(batch, base_offset, origin, TransactionVersion::Legacy, Verified::NotAsked)
    }

    /// As [`check`](Self::check), and a batch that would open a transaction is refused unless
    /// `guard` is of the verification that is under way for its producer.
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`ProducerStateError::NotVerified`].
    /// Source: Kafka's `UnifiedLog.batchMissingRequiredVerification`, KIP-890.
    pub fn check_verified(
        &self,
        batch: &RecordBatch<'_>,
        base_offset: Offset,
        origin: AppendOrigin,
        guard: Option<&VerificationGuard>,
    ) -> Result<Checked, ProducerStateError> {
        self.check_batch(batch, base_offset, origin, TransactionVersion::Legacy, Verified::By(guard))
    }

    /// As [`check`](Self::check) with [`AppendOrigin::Coordinator`], for a marker that was
    /// numbered by the rules of `version`.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    /// Source: KIP-890; Kafka's `ProducerAppendInfo.checkProducerEpoch`.
    pub fn check_marker(
        &self,
        batch: &RecordBatch<'_>,
        base_offset: Offset,
        version: TransactionVersion,
    ) -> Result<Checked, ProducerStateError> {
        self.check_batch(batch, base_offset, AppendOrigin::Coordinator, version, Verified::NotAsked)
    }

    fn check_batch(
        &self,
        batch: &RecordBatch<'_>,
        base_offset: Offset,
        origin: AppendOrigin,
        version: TransactionVersion,
        verified: Verified<'_>,
    ) -> Result<Checked, ProducerStateError> {
        if base_offset < self.map_end_offset {
            return Err(ProducerStateError::OffsetBelowEnd {
                base_offset,
                map_end_offset: self.map_end_offset,
            });
        }
        let (last_offset, next_offset) = ends(base_offset, batch.last_offset_delta())?;
        let mut transition = Transition {
            revision: self.revision,
            base_offset,
            next_offset,
            change: Change::Nothing,
            place: None,
            tolerated: Vec::new(),
        };
        if batch.is_control() {
            self.check_control(batch, origin, version, &mut transition)?;
            return Ok(Checked::Append(transition));
        }
        let Some(producer_id) = producer_id(batch, base_offset, origin, &mut transition.tolerated)? else {
            return Ok(Checked::Append(transition));
        };
        let found = self.producers.find(producer_id);
        let entry = found.map(|(_, entry)| entry);
        let epoch = batch.producer_epoch();
        if origin == AppendOrigin::Client
            && let Some(original) = entry
                .and_then(|entry| entry.find_duplicate(epoch, batch.base_sequence()?, batch.last_sequence()?))
        {
            return Ok(Checked::Duplicate(DuplicateBatch {
                base_offset: original.first_offset(),
                last_offset: original.last_offset(),
                timestamp: original.timestamp(),
            }));
        }
        let info = ProducerAppendInfo {
            producer_id,
            entry,
            verification: self.verifications.get(producer_id),
            origin,
            offset: base_offset,
        };
        if let Verified::By(guard) = verified
            && origin != AppendOrigin::Replication
            && batch.is_transactional()
            && !self.has_open_transaction(producer_id, epoch)
        {
            info.check_verified(epoch, self.verifications.fits(producer_id, guard))?;
        }
        let metadata = BatchMetadata::new(
            last_offset,
            batch.last_offset_delta(),
            batch.last_sequence(),
            batch.max_timestamp(),
        );
        transition.change = Change::Data(info.data_batch(
            epoch,
            batch.base_sequence(),
            metadata,
            batch.is_transactional(),
            &mut transition.tolerated,
        )?);
        transition.place = found.map(|(place, _)| place);
        Ok(Checked::Append(transition))
    }

    fn check_control(
        &self,
        batch: &RecordBatch<'_>,
        origin: AppendOrigin,
        version: TransactionVersion,
        transition: &mut Transition,
    ) -> Result<(), ProducerStateError> {
        let offset = transition.base_offset;
        if origin == AppendOrigin::Client {
            return Err(ProducerStateError::ControlBatchFromClient { offset });
        }
        if batch.is_compressed_control() {
            return Err(ProducerStateError::CompressedControlBatch { offset });
        }
        if batch.is_barrier() {
            transition.change = Change::Barrier;
            return Ok(());
        }
        let Some(producer_id) = producer_id(batch, offset, origin, &mut transition.tolerated)? else {
            return Ok(());
        };
        // Kafka: an empty control batch is what the cleaner left of a transaction whose records
        // are all gone.
        if batch.record_count() == 0 {
            return Ok(());
        }
        let Some(Ok(marker)) = batch.end_transaction_marker() else {
            // Kafka: throws here in replication and recovery too, and cannot load such a log.
            let error = ProducerStateError::NotAMarker { producer_id, offset };
            if origin != AppendOrigin::Replication {
                return Err(error);
            }
            transition.tolerated.push(error);
            return Ok(());
        };
        let found = self.producers.find(producer_id);
        let info = ProducerAppendInfo {
            producer_id,
            entry: found.map(|(_, entry)| entry),
            verification: None,
            origin,
            offset,
        };
        let marker = MarkerChange {
            producer_id,
            epoch: batch.producer_epoch(),
            coordinator_epoch: marker.coordinator_epoch,
            timestamp: marker.timestamp,
            aborted: !marker.commit,
        };
        let marker = info.end_transaction_marker(marker, version, &mut transition.tolerated)?;
        transition.change = Change::Marker(marker);
        transition.place = found.map(|(place, _)| place);
        Ok(())
    }

    /// Whether this producer has a transaction of this epoch open.
    fn has_open_transaction(&self, producer_id: ProducerId, epoch: Option<ProducerEpoch>) -> bool {
        self.producers
            .get(producer_id)
            .is_some_and(|entry| entry.transaction_first_offset.is_some() && entry.producer_epoch == epoch)
    }

    /// Notes that the transaction coordinator is being asked about a transaction that this batch
    /// would open; `None` if it is open, and there is nothing to ask.
    ///
    /// The guard comes back with the batch, through [`check_verified`](Self::check_verified), once
    /// the coordinator said yes. Until then a batch of this producer with a higher sequence is
    /// out of order, and under transaction version 2 the first that is known of a producer has
    /// sequence 0. It ends with a transactional batch, a marker or a barrier, when the partition is
    /// truncated or loaded, and after the time that idle producers have.
    ///
    /// Source: Kafka's `UnifiedLog.maybeStartTransactionVerification`, KIP-890.
    pub fn start_verification(
        &mut self,
        producer_id: ProducerId,
        epoch: Option<ProducerEpoch>,
        first_sequence: Option<Sequence>,
        version: TransactionVersion,
        now: TimestampMs,
    ) -> Option<VerificationGuard> {
        if self.has_open_transaction(producer_id, epoch) {
            return None;
        }
        let guard = self.verifications.start(producer_id, epoch, first_sequence, version, now);
        self.changed();
        Some(guard)
    }

    /// Does what a checked batch changes; the state is then that of a log that ends behind it.
    ///
    /// The batch's write has been submitted: nothing that depends on it may be acknowledged,
    /// published or snapshotted before its bytes are in the log, and if they do not get there the
    /// state has to be built again from the log.
    ///
    /// Cost: none but the entry's own if its producer is known, else one insertion. A barrier takes
    /// time by the open transactions that it aborts, not by the producers that it forgets:
    /// [`Applied::forgotten`] holds their memory.
    /// # Panics
    /// If the state changed after the check, or the transition is another manager's: batches are
    /// checked and committed one at a time, never gathered, since gathering is how entries from
    /// before a barrier come back.
    #[must_use = "a completed transaction belongs into the transaction index"]
    pub fn commit(&mut self, transition: Transition) -> Applied {
        assert_eq!(
            transition.revision, self.revision,
            "a transition is committed to the state it was checked against"
        );
        let mut applied = Applied { tolerated: transition.tolerated, ..Applied::default() };
        let offset = transition.base_offset;
        match transition.change {
            Change::Nothing => {}
            Change::Data(data) => {
                self.apply_data(&data, transition.place, offset);
                applied.producers_evicted = self.producers.evict(data.producer_id);
            }
            Change::Marker(marker) => {
                applied.completed = self.apply_marker(&marker, transition.place, offset);
                applied.producers_evicted = self.producers.evict(marker.producer_id);
            }
            Change::Barrier => {
                let (barrier, forgotten) = self.apply_barrier(offset, after(offset));
                applied.barrier = Some(barrier);
                applied.forgotten = forgotten;
            }
        }
        self.map_end_offset = transition.next_offset;
        self.changed();
        applied
    }

    /// Kafka: `ProducerStateManager.update`.
    fn apply_data(&mut self, data: &DataChange, place: Option<Place>, base_offset: Offset) {
        self.producers.update(data.producer_id, place, |entry| {
            entry.update_epoch(data.epoch);
            entry.add_batch(data.batch);
            entry.last_timestamp = data.batch.timestamp();
            if data.starts_transaction {
                entry.transaction_first_offset = Some(base_offset);
            }
        });
        if data.starts_transaction {
            self.open_transactions.insert(base_offset, data.producer_id);
        }
        if data.is_transactional {
            self.verifications.end(data.producer_id);
        }
    }

    /// Kafka: `ProducerAppendInfo.appendEndTxnMarker`, `ProducerStateManager.completeTxn`.
    fn apply_marker(
        &mut self,
        marker: &MarkerChange,
        place: Option<Place>,
        offset: Offset,
    ) -> Option<CompletedTransaction> {
        self.verifications.end(marker.producer_id);
        let first_offset = self.producers.update(marker.producer_id, place, |entry| {
            entry.update_epoch(marker.epoch);
            entry.coordinator_epoch = marker.coordinator_epoch;
            entry.last_timestamp = marker.timestamp;
            entry.transaction_first_offset.take()
        })?;
        let producer_id = self.open_transactions.remove(&first_offset);
        assert_eq!(
            producer_id,
            Some(marker.producer_id),
            "an entry's open transaction is in the list of open transactions"
        );
        self.unreplicated.complete(first_offset, offset);
        Some(CompletedTransaction {
            producer_id: marker.producer_id,
            first_offset,
            last_offset: offset,
            aborted: marker.aborted,
            last_stable_offset: self.first_undecided_offset().unwrap_or_else(|| after(offset)),
        })
    }

    /// Start of the earliest transaction that is open, or whose end is at or above the high
    /// watermark.
    pub fn first_unstable_offset(&self) -> Option<Offset> {
        [self.first_undecided_offset(), self.unreplicated.first_offset()].into_iter().flatten().min()
    }

    /// Start of the earliest open transaction.
    fn first_undecided_offset(&self) -> Option<Offset> {
        self.open_transactions.keys().next().copied()
    }

    /// The offset below which everything is decided and replicated. It may lie below the log
    /// start, when that was moved into a transaction.
    pub fn last_stable_offset(&self, high_watermark: Offset) -> Offset {
        self.first_unstable_offset().map_or(high_watermark, |unstable| unstable.min(high_watermark))
    }

    /// Lets go of the transactions whose end is replicated, so that the last stable offset moves.
    /// What is below it counts as acknowledged: see [`expire`](Self::expire).
    ///
    /// Replay calls this as it goes, with the offset it has reached: completed transactions are
    /// kept in memory until then.
    pub fn on_high_watermark(&mut self, high_watermark: Offset) {
        self.high_watermark = high_watermark;
        self.unreplicated.remove_below(high_watermark);
    }

    /// As [`on_high_watermark`](Self::on_high_watermark); the state's end is not below the log
    /// start afterwards. Entries stay, as their producers may go on.
    ///
    /// Kafka: `ProducerStateManager.onLogStartOffsetIncremented`.
    pub fn on_log_start_offset(&mut self, log_start_offset: Offset) {
        self.unreplicated.remove_below(log_start_offset);
        if self.map_end_offset < log_start_offset {
            self.update_map_end_offset(log_start_offset);
        }
    }

    /// Every open transaction, ascending by first offset, which is the order in which a stop
    /// aborts them.
    pub fn open_transactions(&self) -> impl Iterator<Item = OpenTransaction> {
        self.open_transactions.values().filter_map(|producer_id| self.open_transaction(*producer_id))
    }

    /// How many transactions are open.
    pub fn open_transaction_count(&self) -> usize {
        self.open_transactions.len()
    }

    /// The open transaction of one producer.
    pub fn open_transaction(&self, producer_id: ProducerId) -> Option<OpenTransaction> {
        let entry = self.producers.get(producer_id)?;
        Some(OpenTransaction {
            producer_id,
            first_offset: entry.transaction_first_offset()?,
            producer_epoch: entry.producer_epoch(),
            coordinator_epoch: entry.coordinator_epoch(),
            last_timestamp: entry.last_timestamp(),
        })
    }

    /// Every entry, ascending by producer id.
    pub fn entries(&self) -> impl Iterator<Item = (ProducerId, &ProducerStateEntry)> {
        self.producers.iter()
    }

    /// What is known about one producer.
    pub fn entry(&self, producer_id: ProducerId) -> Option<&ProducerStateEntry> {
        self.producers.get(producer_id)
    }

    /// How many producers are known.
    pub fn producer_count(&self) -> usize {
        self.producers.len()
    }

    /// The state covers the log below this offset. A snapshot is named by it.
    pub fn map_end_offset(&self) -> Offset {
        self.map_end_offset
    }

    /// Moves the end of what the state covers, over offsets that hold no batch.
    ///
    /// # Panics
    /// If it would move back: what was known at a lower offset is only in a snapshot or the log.
    pub fn update_map_end_offset(&mut self, offset: Offset) {
        assert!(
            offset >= self.map_end_offset,
            "the producer state's end moves forward only: {} to {offset}",
            self.map_end_offset
        );
        self.map_end_offset = offset;
        self.changed();
    }

    /// Forgets the producers that were idle for the configured time, by the wall clock. Returns how
    /// many.
    ///
    /// Never one with an open transaction, nor one with a request in flight: a batch at or above
    /// the high watermark, which its client may send again until it is acknowledged, or a
    /// verification under way. (The time that counts is the producer's own, so that a request in
    /// flight may look a year old.)
    ///
    /// Kafka: `ProducerStateManager.removeExpiredProducers`.
    pub fn expire(&mut self, now: TimestampMs) -> usize {
        self.start_expiry(now);
        self.expire_slice(usize::MAX)
    }

    /// Begins a look for idle producers, as [`expire`](Self::expire), that
    /// [`expire_slice`](Self::expire_slice) goes on with. One that is under way begins anew.
    pub fn start_expiry(&mut self, now: TimestampMs) {
        self.expiry = Some(Expiry::Looking { from: 0, now });
    }

    /// Whether [`expire_slice`](Self::expire_slice) has something to do.
    pub fn is_expiring(&self) -> bool {
        self.expiry.is_some()
    }

    /// Goes on with a look for idle producers; returns how many were forgotten.
    ///
    /// While a snapshot is under way nothing is done: what is known does not go before it is
    /// written. A barrier, a load and an emptied log end a look.
    ///
    /// Cost: a look at `most` entries, a search for each that goes; all that is at hand where no
    /// more than `most` are known, which costs less.
    pub fn expire_slice(&mut self, most: usize) -> usize {
        if self.producers.frozen_at().is_some() {
            return 0;
        }
        let Some(expiry) = self.expiry else { return 0 };
        let Expiry::Looking { from, now } = expiry else {
            if self.producers.compact(most) {
                self.expiry = None;
            }
            // Places have moved.
            self.changed();
            return 0;
        };
        let limit_ms = i64::try_from(self.config.producer_id_expiration.as_millis()).unwrap_or(i64::MAX);
        let verifications = if from == 0 { self.verifications.expire(now, limit_ms) } else { 0 };
        let Self { producers, verifications: under_way, high_watermark, .. } = self;
        let unwanted = |producer_id: ProducerId, entry: &ProducerStateEntry| {
            now.get().saturating_sub(entry.last_timestamp.get()) >= limit_ms
                && entry.transaction_first_offset.is_none()
                && entry.last_offset().is_none_or(|last| last < *high_watermark)
                && under_way.get(producer_id).is_none()
        };
        let (expired, next) = if from == 0 && producers.place_count() <= most {
            (producers.forget(unwanted), None)
        } else {
            producers.forget_some(from, most, unwanted)
        };
        self.expiry = match next {
            Some(from) => Some(Expiry::Looking { from, now }),
            None => self.producers.is_mostly_vacant().then_some(Expiry::Compacting),
        };
        if expired > 0 || verifications > 0 {
            self.changed();
        }
        expired
    }

    /// Forgets everything; the log is empty and starts at `offset`.
    ///
    /// Kafka: `ProducerStateManager.truncateFullyAndStartAt`.
    pub fn truncate_fully_and_start_at(&mut self, offset: Offset) {
        let nobody = self.producers.emptied();
        self.replace(nobody, BTreeMap::new(), offset);
    }

    fn replace(
        &mut self,
        producers: Producers,
        open_transactions: BTreeMap<Offset, ProducerId>,
        map_end_offset: Offset,
    ) {
        self.producers = producers;
        self.open_transactions = open_transactions;
        self.unreplicated = Unreplicated::default();
        self.verifications.end_all();
        self.expiry = None;
        self.high_watermark = self.high_watermark.min(map_end_offset);
        self.map_end_offset = map_end_offset;
        self.changed();
    }

    /// The bytes of a `.snapshot` file for [`map_end_offset`](Self::map_end_offset).
    ///
    /// Of each producer only its newest batch fits, and of transactions only the open ones.
    pub fn snapshot(&self) -> Vec<u8> {
        snapshot::encode(self.producers.len(), self.entries())
    }

    /// Begins a snapshot of the state as it is now, at [`map_end_offset`](Self::map_end_offset),
    /// whose bytes come from [`snapshot_piece`](Self::snapshot_piece) while batches are committed.
    /// False, and nothing was done, while one is under way.
    ///
    /// A barrier, a load and an emptied log end it: then no piece comes any more, and what was
    /// written of it is void.
    ///
    /// Cost: none. Until it is encoded, the first change of each producer that is not encoded yet
    /// costs 46 bytes and an insertion.
    pub fn start_snapshot(&mut self) -> bool {
        if self.producers.frozen_at().is_some() {
            return false;
        }
        self.producers.freeze(self.map_end_offset);
        true
    }

    /// The offset of the snapshot that is under way.
    pub fn snapshot_under_way(&self) -> Option<Offset> {
        self.producers.frozen_at()
    }

    /// The next piece of the snapshot that is under way, of at most `most` producers; the last one
    /// is its header. `None` if none is under way.
    ///
    /// All pieces together are what [`snapshot`](Self::snapshot) gave when it was begun.
    ///
    /// Cost: 46 bytes and some 50 ns a producer.
    pub fn snapshot_piece(&mut self, most: usize) -> Option<SnapshotPiece> {
        self.producers.snapshot_piece(most.max(1))
    }

    /// Ends the snapshot that is under way: nobody wants it any more.
    pub fn drop_snapshot(&mut self) {
        self.producers.thaw();
    }

    /// Replaces the state by that of a snapshot, whose name says that it covers the log below
    /// `map_end_offset`. No producer is expired: [`expire`](Self::expire) does that, once
    /// [`on_high_watermark`](Self::on_high_watermark) has said what is acknowledged.
    ///
    /// Cost: linear in the bytes, however many entries they announce.
    /// # Errors
    /// Every [`SnapshotError`]; the state is as before, and an older snapshot or none is the next
    /// to try.
    pub fn load_snapshot(&mut self, bytes: &[u8], map_end_offset: Offset) -> Result<(), SnapshotError> {
        let mut open_transactions = BTreeMap::new();
        let entries = snapshot::decode(bytes)?;
        for (index, (producer_id, entry)) in entries.iter().enumerate() {
            let invalid = |field, offset: Offset| {
                Err(SnapshotError::InvalidEntry { index, field, value: offset.get() })
            };
            let last_offset = entry.last_offset();
            // Kafka: KAFKA-6683. State from above its own offset was in memory before its batch was in the log.
            if let Some(last_offset) = last_offset
                && last_offset >= map_end_offset
            {
                return invalid("last_offset", last_offset);
            }
            if let Some(first_offset) = entry.transaction_first_offset() {
                // A transaction is opened by a batch, and that is in front of the newest one or is it.
                if last_offset.is_none_or(|last_offset| first_offset > last_offset) {
                    return invalid("current_txn_first_offset", first_offset);
                }
                if open_transactions.insert(first_offset, *producer_id).is_some() {
                    return Err(SnapshotError::DuplicateTransaction { first_offset });
                }
            }
        }
        let producers = Producers::load(self.config.max_producers, entries)
            .map_err(|producer_id| SnapshotError::DuplicateProducer { producer_id })?;
        self.replace(producers, open_transactions, map_end_offset);
        Ok(())
    }

    /// Whether both know the same, as the barrier's laws mean it: the same producer ids, and of
    /// each the same epoch, last sequence, last offset, coordinator epoch, last timestamp and
    /// first offset of its open transaction. The window of older batches may be shorter on one
    /// side, since a snapshot keeps one batch, but never different. What is unreplicated depends
    /// on the high watermark and is not compared, nor is where the state ends.
    pub fn equal_state(&self, other: &Self) -> bool {
        self.producers.len() == other.producers.len()
            && self
                .entries()
                .zip(other.entries())
                .all(|((our_id, ours), (their_id, theirs))| our_id == their_id && ours.equal_state(theirs))
    }

    fn changed(&mut self) {
        self.revision = self.revision.wrapping_add(1);
    }
}

/// What a check knows of the question to the transaction coordinator.
#[derive(Clone, Copy)]
enum Verified<'a> {
    /// It is the caller's own affair.
    NotAsked,
    /// The guard that came back with the batch, if one did.
    By(Option<&'a VerificationGuard>),
}

/// The batch's last offset, and the one behind it.
fn ends(base_offset: Offset, last_offset_delta: i32) -> Result<(Offset, Offset), ProducerStateError> {
    let invalid = ProducerStateError::InvalidOffsetDelta { base_offset, last_offset_delta };
    if last_offset_delta < 0 {
        return Err(invalid);
    }
    let last_offset = base_offset.checked_add(i64::from(last_offset_delta));
    last_offset.and_then(|last| Some((last, last.next()?))).ok_or(invalid)
}

/// The offset behind one that a batch was checked at.
fn after(offset: Offset) -> Offset {
    offset.next().expect("a checked batch has an offset behind it")
}

/// The batch's producer; an id below -1 is refused, but for bytes that were validated elsewhere,
/// where it counts as none.
///
/// Kafka: `RecordBatch.hasProducerId` is "above -1".
fn producer_id(
    batch: &RecordBatch<'_>,
    offset: Offset,
    origin: AppendOrigin,
    tolerated: &mut Vec<ProducerStateError>,
) -> Result<Option<ProducerId>, ProducerStateError> {
    let producer_id = batch.producer_id();
    if producer_id.is_none() && batch.raw_producer_id() != -1 {
        let error = ProducerStateError::InvalidProducerId { offset, producer_id: batch.raw_producer_id() };
        if origin != AppendOrigin::Replication {
            return Err(error);
        }
        tolerated.push(error);
    }
    Ok(producer_id)
}
