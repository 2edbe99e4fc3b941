//! The thread of a shard: its loop, its partitions, its syncs.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use weir_format::Offset;
use weir_log::{
    AppendError, AppendParams, Appended, DeletionScope, Durability, HotTail, LogView, TailMemory, UnifiedLog,
};
use weir_psm::{AppendOrigin, BarrierApplied, Forgotten, TransactionVersion};
use weir_segment::SegmentError;
use weir_segment::io::buffer::BufferPool;
use weir_segment::io::{Done, Io, IoError, Operation, Wait};

use super::{
    Acks, Announced, Closers, LogPoints, LogStatus, PartitionError, PartitionSpec, PartitionStatus,
    PendingAppend, ReadRequest, Request, Run, ShardConfig, describe,
};
use crate::clock;
use crate::loading::{Loaded, say_loaded};
use crate::metadata::{Leadership, PartitionId};
use crate::metrics::BarrierCounters;

/// Requests that one turn of the loop takes before it starts syncs.
pub(super) const TURN: usize = 256;
/// Reads that are served before the loop looks for appends again.
pub(super) const READS_PER_TURN: usize = 4;
/// How long a partition whose disk failed is left alone before an append tries to reopen it.
pub(super) const REOPEN_AFTER: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 5_000 });
/// Producers that one turn looks at.
const EXPIRY_SLICE: usize = 4_096;
/// Segments that one turn deletes: each costs some syncs.
const DELETIONS_PER_TURN: usize = 2;
/// How long after the start the first look for segments to delete comes at the latest.
///
/// Kafka: `LogManager.InitialTaskDelayMs`.
const FIRST_RETENTION_AFTER: Duration = Duration::from_secs(30);
/// How long nobody is told again that a partition has timestamps of the future.
const WARN_AGAIN_AFTER: Duration = Duration::from_secs(3_600);
/// Time between two syncs under `weir.flush=interval`.
pub(super) const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// How long nothing must have been appended to a partition until its file is closed, and with it the space given back
/// that was allocated behind its end.
pub(super) const REST_AFTER: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5_000 });
/// Bytes of all partitions of a shard that may wait to be written; beyond it, the shard takes no requests.
const MAX_UNWRITTEN: u64 = 64 << 20;
/// Bytes of buffers that a shard keeps for the next appends.
const KEPT_BUFFERS: usize = 16 << 20;

/// One partition, as its shard sees it.
struct Slot {
    spec: PartitionSpec,
    leadership: Leadership,
    status: watch::Sender<PartitionStatus>,
    state: SlotState,
    /// By which completions find it.
    owner: u32,
    /// Where its log is shown to readers.
    tail: HotTail,
    /// Appends answered when they and all before them are written, ascending by end.
    writing: VecDeque<Waiter>,
    /// Appends answered when durable, ascending by end.
    waiting: VecDeque<Waiter>,
    syncs_waiting: Vec<SyncWaiter>,
    /// Appends that wait for room below the bound of unsynced bytes, in order.
    held: VecDeque<PendingAppend>,
    /// Whether it is in a list of those that have something to flush or to sync.
    dirty: bool,
    /// Whether it is in the list of those that are synced by the clock.
    lazy: bool,
    /// Whether it is in the list of those that were appended to not long ago.
    warm: bool,
    /// It is to be synced, so that it can rest.
    resting: bool,
    /// Whether it is in the list of those that write a producer snapshot.
    snapshotting: bool,
    /// Whether it is in the list of those that may have segments to delete.
    cleaning: bool,
    /// When somebody was told of timestamps of the future.
    warned: Option<Instant>,
    last_append: Instant,
    /// What it has in `Shard::unwritten`.
    unwritten: u64,
    /// Why clients' writes are refused, though the log would take them.
    refuse: Option<Arc<str>>,
}

enum SlotState {
    Open(Box<UnifiedLog>),
    /// The log refused to go on: what was durable is served.
    Failed {
        log: Box<UnifiedLog>,
        reason: Arc<str>,
        /// When it may be opened again by itself; never after a failed sync, whose pages the system may hold for clean
        /// though they are not on the disk.
        reopen_at: Option<Instant>,
    },
    /// There is no log.
    Offline {
        reason: Arc<str>,
    },
}

/// An append that is answered when what is written, or the high watermark, reaches its end.
struct Waiter {
    end: Offset,
    appended: Appended,
    reply: oneshot::Sender<Result<Appended, PartitionError>>,
}

/// A call that is answered when everything up to `end` is synced, whatever `weir.flush` says.
struct SyncWaiter {
    end: Offset,
    reply: oneshot::Sender<Result<LogView, PartitionError>>,
}

impl Slot {
    fn publish(&self, log: LogStatus) {
        self.status.send_if_modified(|status| {
            let changed = status.log != log;
            status.log = log;
            changed
        });
    }

    fn publish_state(&self) {
        self.publish(match &self.state {
            SlotState::Open(log) => LogStatus::Online(*log.view()),
            SlotState::Failed { log, reason, .. } => {
                LogStatus::WritesRefused { view: *log.view(), reason: Arc::clone(reason) }
            }
            SlotState::Offline { reason } => LogStatus::Offline { reason: Arc::clone(reason) },
        });
    }

    /// From here on readers find the log that was opened, before its status says so.
    fn show_tail(&mut self, memory: &TailMemory) {
        if let SlotState::Open(log) = &mut self.state {
            log.attach_tail(self.tail.clone(), memory.clone());
        }
    }

    /// Adds a waiter in order of its end: a duplicate may wait for less than those before it.
    fn wait(&mut self, acks: Acks, waiter: Waiter) {
        let waiters = match acks {
            Acks::Written => &mut self.writing,
            Acks::Durable => &mut self.waiting,
        };
        let at = waiters.partition_point(|other| other.end <= waiter.end);
        waiters.insert(at, waiter);
    }

    /// Answers whoever waited for what its log has reached.
    fn answer(&mut self) {
        let (SlotState::Open(log) | SlotState::Failed { log, .. }) = &self.state else { return };
        let (view, written, synced) = (*log.view(), log.written_end_offset(), log.recovery_point());
        // Under a weaker `weir.flush` what is written is durable.
        let reached =
            [(&mut self.writing, written.max(view.high_watermark)), (&mut self.waiting, view.high_watermark)];
        for (waiters, end) in reached {
            while let Some(waiter) = waiters.pop_front_if(|waiter| waiter.end <= end) {
                let _ = waiter.reply.send(Ok(waiter.appended));
            }
        }
        for waiter in self.syncs_waiting.extract_if(.., |waiter| waiter.end <= synced) {
            let _ = waiter.reply.send(Ok(view));
        }
    }

    /// What was appended above `end` was cut away: nobody is told that it is there, however far the log grows again.
    fn refuse_above(&mut self, end: Offset) {
        for waiters in [&mut self.writing, &mut self.waiting] {
            let kept = waiters.partition_point(|waiter| waiter.end <= end);
            for waiter in waiters.drain(kept..) {
                let reason = Arc::from("the log was cut below what was appended");
                let _ = waiter.reply.send(Err(PartitionError::Offline { reason }));
            }
        }
        // What is left is durable.
        for waiter in &mut self.syncs_waiting {
            waiter.end = waiter.end.min(end);
        }
    }

    fn points(&self, clean: bool) -> Option<LogPoints> {
        let (log, clean) = match &self.state {
            SlotState::Open(log) => (log, clean),
            SlotState::Failed { log, .. } => (log, false),
            SlotState::Offline { .. } => return None,
        };
        let view = log.view();
        Some(LogPoints {
            topic: self.spec.topic.clone(),
            id: self.spec.id,
            log_dir: self.spec.log_dir.clone(),
            recovery_point: log.recovery_point(),
            unsettled_cut: log.unsettled_cut(),
            log_start_offset: view.log_start_offset,
            high_watermark: view.high_watermark,
            clean,
        })
    }
}

pub(super) struct Shard {
    number: usize,
    io: Box<dyn Io>,
    inbox: Receiver<(Request, Option<OwnedSemaphorePermit>)>,
    slots: HashMap<PartitionId, Slot>,
    owners: HashMap<u32, PartitionId>,
    next_owner: u32,
    pool: BufferPool,
    tail_memory: TailMemory,
    /// Partitions with something to flush or to sync.
    dirty: Vec<PartitionId>,
    /// Those of them that the full queue of the disk kept from it.
    stuck: Vec<PartitionId>,
    /// Partitions with something that is synced by the clock.
    lazy: Vec<PartitionId>,
    /// Partitions that were appended to, by when to look whether they have come to rest.
    warm: VecDeque<(Instant, PartitionId)>,
    /// Bytes of all partitions that are appended and not written.
    unwritten: u64,
    stopping: bool,
    /// Why the backend of the disk does nothing any more.
    broken: Option<Arc<str>>,
    /// Reads that wait for the appends before them, each with its room in the queue.
    reads: VecDeque<(PartitionId, ReadRequest, Option<OwnedSemaphorePermit>)>,
    /// Partitions that write a producer snapshot; the first one is moved on.
    snapshots: VecDeque<PartitionId>,
    /// Partitions whose idle producers are looked for; the first one is moved on.
    expiring: VecDeque<PartitionId>,
    /// Partitions that may have segments to delete; the first one is moved on.
    cleaning: VecDeque<PartitionId>,
    /// Frees what barriers forgot.
    sweep: Sender<Vec<Forgotten>>,
    /// What barriers did here and in the other shards.
    barriers: Arc<BarrierCounters>,
    config: ShardConfig,
    last_flush: Instant,
    last_expiry: Instant,
    next_retention: Instant,
    done: Vec<Done>,
}

#[expect(clippy::disallowed_methods, reason = "a shard measures how long its own disk takes")]
fn instant() -> Instant {
    Instant::now()
}

impl Shard {
    pub(super) fn new(
        number: usize,
        io: Box<dyn Io>,
        inbox: Receiver<(Request, Option<OwnedSemaphorePermit>)>,
        sweep: Sender<Vec<Forgotten>>,
        config: ShardConfig,
        tail_memory: TailMemory,
        barriers: Arc<BarrierCounters>,
    ) -> Self {
        Self {
            number,
            io,
            inbox,
            slots: HashMap::new(),
            owners: HashMap::new(),
            next_owner: 0,
            pool: BufferPool::new(KEPT_BUFFERS),
            tail_memory,
            dirty: Vec::new(),
            stuck: Vec::new(),
            lazy: Vec::new(),
            warm: VecDeque::new(),
            unwritten: 0,
            stopping: false,
            broken: None,
            reads: VecDeque::new(),
            snapshots: VecDeque::new(),
            expiring: VecDeque::new(),
            cleaning: VecDeque::new(),
            sweep,
            barriers,
            config,
            last_flush: instant(),
            last_expiry: instant(),
            next_retention: instant() + config.retention_interval.min(FIRST_RETENTION_AFTER),
            done: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        let _span = tracing::info_span!("shard", number = self.number).entered();
        loop {
            let mut taken = 0;
            while taken < TURN && self.unwritten < MAX_UNWRITTEN {
                let received = match self.inbox.try_recv() {
                    // Of a broken backend nothing comes that is worth waiting for.
                    Err(TryRecvError::Empty)
                        if self.broken.is_some() && taken == 0 && self.reads.is_empty() =>
                    {
                        self.inbox.recv().map_err(|_| TryRecvError::Disconnected)
                    }
                    received => received,
                };
                match received {
                    Ok((Request::Stop { closers, reply }, _)) => {
                        let points = self.stop(closers.as_ref());
                        let _ = reply.send(points);
                        return;
                    }
                    Ok((request, room)) => {
                        taken += 1;
                        self.handle(request, room);
                    }
                    Err(TryRecvError::Empty) => break,
                    // Every handle is gone without a stop: the process is ending by itself.
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let has_more = !self.inbox.is_empty() || !self.reads.is_empty() || self.has_chores();
            self.start_work(has_more);
            self.serve_reads();
            let has_chores = self.do_chores();
            self.rest_if_due();
            let wait = if self.unwritten >= MAX_UNWRITTEN && self.dirty.is_empty() && self.io.in_flight() > 0
            {
                Wait::Block
            } else if has_more || has_chores || !self.inbox.is_empty() || !self.dirty.is_empty() {
                Wait::Poll
            } else {
                Wait::Park(self.park_time())
            };
            self.reap(wait);
        }
    }

    /// How long to sleep if nothing happens: until producers or old segments are to be looked at, or something
    /// written is to be synced by the clock.
    fn park_time(&self) -> Option<Duration> {
        let expiry = self.config.expiry_interval.saturating_sub(self.last_expiry.elapsed());
        let retention = self.next_retention.saturating_duration_since(instant());
        let flush = (self.config.flush_interval && !self.lazy.is_empty())
            .then(|| FLUSH_INTERVAL.saturating_sub(self.last_flush.elapsed()));
        let rest = self.warm.front().map(|(due, _)| due.saturating_duration_since(instant()));
        [flush, rest].into_iter().flatten().chain([expiry, retention]).min()
    }

    fn has_chores(&self) -> bool {
        !(self.snapshots.is_empty() && self.expiring.is_empty() && self.cleaning.is_empty())
    }

    /// What has no hurry, one small piece of each kind; whether there is more to do at once.
    fn do_chores(&mut self) -> bool {
        let now = instant();
        if now.saturating_duration_since(self.last_expiry) >= self.config.expiry_interval {
            self.last_expiry = now;
            self.begin_expiry();
        }
        if now >= self.next_retention {
            self.next_retention = now + self.config.retention_interval;
            let ids: Vec<PartitionId> = self.slots.keys().copied().collect();
            for id in ids {
                self.look_for_old_segments(id);
            }
        }
        let snapshots = self.move_snapshot_on();
        let expiring = self.move_expiry_on();
        let cleaning = self.move_cleaning_on();
        snapshots || expiring || cleaning
    }

    /// A producer is forgotten by the wall clock alone; without this, each one that ever wrote here
    /// would stay in memory and in every snapshot.
    fn begin_expiry(&mut self) {
        self.expiring.clear();
        for (id, slot) in &mut self.slots {
            if let SlotState::Open(log) = &mut slot.state {
                log.start_expiring_producers(clock::now());
                self.expiring.push_back(*id);
            }
        }
    }

    fn move_expiry_on(&mut self) -> bool {
        let Some(id) = self.expiring.front().copied() else { return false };
        let mut goes_on = false;
        if let Some(slot) = self.slots.get_mut(&id)
            && let SlotState::Open(log) = &mut slot.state
        {
            let count = log.expire_producers_slice(EXPIRY_SLICE);
            if count > 0 {
                let (topic, partition) = (slot.spec.topic.as_str(), slot.spec.id.partition);
                tracing::debug!(topic, partition, count, "idle producers forgotten");
            }
            // Beside a snapshot nobody goes, and the next look comes in time.
            goes_on = log.is_expiring_producers() && !log.is_writing_snapshot();
        }
        if !goes_on {
            self.expiring.pop_front();
        }
        !self.expiring.is_empty()
    }

    fn move_snapshot_on(&mut self) -> bool {
        let Some(id) = self.snapshots.front().copied() else { return false };
        let Some(slot) = self.slots.get_mut(&id) else {
            self.snapshots.pop_front();
            return true;
        };
        if let SlotState::Open(log) = &mut slot.state {
            let again = log.snapshot_step(&mut *self.io);
            if log.is_writing_snapshot() {
                return again;
            }
        }
        slot.snapshotting = false;
        self.snapshots.pop_front();
        // Old segments may have waited for it.
        self.look_for_old_segments(id);
        !self.snapshots.is_empty()
    }

    fn look_for_old_segments(&mut self, id: PartitionId) {
        if let Some(slot) = self.slots.get_mut(&id)
            && !slot.cleaning
        {
            slot.cleaning = true;
            self.cleaning.push_back(id);
        }
    }

    /// Deletes some old segments of a partition. While a mirror owns it only what lies below its log start, which follows
    /// the source's (law O5).
    fn move_cleaning_on(&mut self) -> bool {
        let Some(id) = self.cleaning.front().copied() else { return false };
        let mut has_more = false;
        if let Some(slot) = self.slots.get_mut(&id) {
            if let SlotState::Open(log) = &mut slot.state {
                let scope = match slot.leadership.read_only {
                    Some(_) => DeletionScope::BelowLogStart,
                    None => DeletionScope::Retention,
                };
                let (topic, partition) = (slot.spec.topic.as_str(), id.partition);
                let now = clock::now();
                match log.delete_old_segments(&mut *self.io, now, scope, DELETIONS_PER_TURN) {
                    Ok(deleted) => {
                        has_more = deleted.has_more;
                        if deleted.segment_count > 0 {
                            let (count, size) = (deleted.segment_count, deleted.size);
                            let log_start_offset = log.view().log_start_offset.get();
                            tracing::info!(
                                topic,
                                partition,
                                count,
                                size,
                                log_start_offset,
                                "old segments deleted"
                            );
                        }
                        let silent = |warned: &Instant| warned.elapsed() < WARN_AGAIN_AFTER;
                        if let Some(timestamp) = deleted.future_timestamp
                            && !slot.warned.as_ref().is_some_and(silent)
                        {
                            slot.warned = Some(instant());
                            tracing::warn!(
                                topic,
                                partition,
                                timestamp = timestamp.get(),
                                "a segment has a timestamp of the future: it does not expire by time before that, nor \
                                 does anything behind it; weir.retention.future.by.file.age=true lets its age count"
                            );
                        }
                    }
                    Err(error) => {
                        let error = describe(&error);
                        tracing::error!(topic, partition, error, "old segments are not deleted");
                    }
                }
            }
            if !has_more {
                slot.cleaning = false;
            }
        }
        if !has_more {
            self.cleaning.pop_front();
        }
        self.settle(id);
        !self.cleaning.is_empty()
    }

    /// Takes in what has ended; false if the backend is broken, and nothing will end any more.
    fn reap(&mut self, wait: Wait) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let mut done = std::mem::take(&mut self.done);
        if let Err(error) = self.io.reap(wait, &mut done) {
            // The backend itself is broken: no log of this shard can go on.
            tracing::error!(%error, "disk backend failed");
            let reason: Arc<str> = Arc::from(describe(&error));
            self.broken = Some(Arc::clone(&reason));
            let ids: Vec<PartitionId> = self.slots.keys().copied().collect();
            for id in ids {
                self.fail(id, &reason, false);
            }
            return false;
        }
        let mut changed = Vec::new();
        for done in done.drain(..) {
            self.finished(done, &mut changed);
        }
        self.done = done;
        for id in changed {
            self.settle(id);
        }
        // There may be room in the queue now.
        self.dirty.append(&mut self.stuck);
        true
    }

    /// Hands a completion to its log. What it changed is looked at once all have been taken in.
    fn finished(&mut self, done: Done, changed: &mut Vec<PartitionId>) {
        let owner = weir_segment::ticket_owner(done.ticket);
        let Some(id) = self.owners.get(&owner).copied() else { return };
        let Some(slot) = self.slots.get_mut(&id) else { return };
        match &mut slot.state {
            SlotState::Open(log) => {
                // One of a file that is not open any more tells nothing.
                if log.on_done(done).is_ok() && !changed.contains(&id) {
                    changed.push(id);
                }
            }
            SlotState::Failed { log, reopen_at, .. } => {
                let _ = log.on_done(done);
                if log.failure().is_some_and(is_of_sync) {
                    *reopen_at = None;
                }
                slot.answer();
            }
            SlotState::Offline { .. } => {}
        }
    }

    /// After something changed: publishes the view, answers whoever waited for it, takes held
    /// appends, and notes whether a flush or a sync is due.
    fn settle(&mut self, id: PartitionId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let SlotState::Open(log) = &mut slot.state else { return };
        // A call that had to wait may have met completions itself.
        log.progress();
        let unwritten = log.unwritten_bytes();
        self.unwritten = self.unwritten.saturating_sub(slot.unwritten).saturating_add(unwritten);
        slot.unwritten = unwritten;
        let (view, is_offline) = (*log.view(), log.is_offline());
        let has_work = log.has_unsent() || log.needs_sync();
        let cut = log.take_cut();
        if log.is_writing_snapshot() && !slot.snapshotting {
            slot.snapshotting = true;
            self.snapshots.push_back(id);
        }
        let has_old_segments = log.has_segments_below_start();
        let failed = is_offline.then(|| match (log.failure(), log.failed_change()) {
            (Some(error), _) => (Arc::<str>::from(describe(error)), !is_of_sync(error)),
            (None, Some(change)) => (Arc::from(change.reason.as_str()), !change.may_be_sync),
            // What nobody reported as a failed write may have been a failed sync.
            (None, None) => (Arc::from("a change of the log failed"), false),
        });
        if let Some(end) = cut {
            slot.refuse_above(end);
        }
        if let Some((reason, may_reopen)) = failed {
            // What was reached before it failed is answered as such.
            slot.answer();
            tracing::error!(topic = slot.spec.topic, partition = id.partition, %reason, "log failed");
            self.fail(id, &reason, may_reopen);
            return;
        }
        slot.publish(LogStatus::Online(view));
        slot.answer();
        if has_work {
            self.mark_dirty(id);
        }
        if has_old_segments {
            self.look_for_old_segments(id);
        }
        self.take_held(id);
    }

    fn mark_dirty(&mut self, id: PartitionId) {
        if let Some(slot) = self.slots.get_mut(&id)
            && !slot.dirty
        {
            slot.dirty = true;
            self.dirty.push(id);
        }
    }

    fn take_held(&mut self, id: PartitionId) {
        let mut changed = false;
        while let Some(append) = self.slots.get_mut(&id).and_then(|slot| slot.held.pop_front()) {
            let before = self.slots.get(&id).map(|slot| slot.held.len());
            changed |= self.append(id, append, true);
            if self.slots.get(&id).map(|slot| slot.held.len()) > before {
                // There is still no room for it.
                break;
            }
        }
        if changed {
            self.settle(id);
        }
    }

    fn handle(&mut self, request: Request, room: Option<OwnedSemaphorePermit>) {
        match request {
            Request::Open { spec, status, tail } => self.open(*spec, status, tail),
            Request::Adopt { loaded, refuse } => self.adopt(*loaded, refuse),
            Request::Append { id, append } => {
                if self.append(id, append, false) {
                    self.settle(id);
                }
            }
            Request::Read { id, read } => {
                self.reads.push_back((id, read, room));
                return;
            }
            Request::Run { id, may, job } => {
                self.reopen_if_due(id);
                let slot = self.slots.get_mut(&id);
                let answer = match slot.map(|slot| (&slot.leadership.read_only, &mut slot.state)) {
                    Some((Some(read_only), _)) if may == Run::ClientChange => {
                        job(Err(PartitionError::ReadOnly { read_only: read_only.clone() }))
                    }
                    Some((None, SlotState::Open(_))) if may == Run::MirrorChange => {
                        job(Err(PartitionError::NotMirrored))
                    }
                    Some((_, SlotState::Open(log))) => job(Ok((log, &mut *self.io))),
                    Some((_, SlotState::Failed { log, .. })) if may == Run::Look => {
                        job(Ok((log, &mut *self.io)))
                    }
                    Some((_, SlotState::Failed { reason, .. } | SlotState::Offline { reason })) => {
                        job(Err(PartitionError::Offline { reason: Arc::clone(reason) }))
                    }
                    None => job(Err(PartitionError::ShutDown)),
                };
                self.settle(id);
                // Whoever has the answer sees the view that goes with it.
                answer();
            }
            Request::Sync { id, reply } => self.sync(id, reply),
            Request::Lead { id, leadership, refuse, reply } => {
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.refuse = refuse;
                }
                self.lead(id, leadership);
                let _ = reply.send(());
            }
            Request::Close { id, reply } => {
                let _ = reply.send(self.close(id));
            }
            Request::RunIo { job } => job(&mut *self.io),
            Request::PointSaved { id, cut } => self.point_saved(id, cut),
            Request::Points { reply } => {
                let _ = reply.send(self.points());
            }
            Request::Stop { .. } => unreachable!("the loop takes a stop out itself"),
        }
        drop(room);
    }

    /// From here on the partition is led as `leadership` says.
    ///
    /// Kafka: `Partition.makeLeader` notes a new epoch at the log end, so that clients that ask for
    /// its end get one.
    fn lead(&mut self, id: PartitionId, leadership: Leadership) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        slot.leadership = leadership;
        slot.status.send_modify(|status| status.leadership = slot.leadership.clone());
        self.note_epoch(id);
    }

    fn note_epoch(&mut self, id: PartitionId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let SlotState::Open(log) = &mut slot.state else { return };
        let epoch = slot.leadership.leader_epoch;
        if slot.leadership.read_only.is_some() || log.latest_epoch().is_some_and(|latest| latest >= epoch) {
            return;
        }
        if let Err(error) = log.assign_leader_epoch(&mut *self.io, epoch) {
            let error = describe(&error);
            tracing::warn!(
                topic = slot.spec.topic,
                partition = id.partition,
                error,
                "leader epoch not noted in the log"
            );
        }
        self.settle(id);
    }

    /// Answers whether the log may have changed.
    fn append(&mut self, id: PartitionId, append: PendingAppend, held: bool) -> bool {
        self.reopen_if_due(id);
        let Some(slot) = self.slots.get_mut(&id) else {
            let _ = append.reply.send(Err(PartitionError::ShutDown));
            return false;
        };
        let log = match &mut slot.state {
            SlotState::Open(log) => log,
            SlotState::Failed { reason, .. } | SlotState::Offline { reason } => {
                let reason = Arc::clone(reason);
                let _ = append.reply.send(Err(PartitionError::Offline { reason }));
                return false;
            }
        };
        // Law B1: looked at here, in order with every change of the guard.
        let allowed = match (append.origin, &slot.leadership.read_only) {
            (AppendOrigin::Client, Some(read_only)) => {
                Err(PartitionError::ReadOnly { read_only: read_only.clone() })
            }
            (AppendOrigin::Replication, None) => Err(PartitionError::NotMirrored),
            (AppendOrigin::Client, None) if slot.refuse.is_some() => {
                let reason = slot.refuse.clone().unwrap_or_else(|| Arc::from("refused"));
                Err(PartitionError::Offline { reason })
            }
            _ => Ok(()),
        };
        if let Err(error) = allowed {
            let _ = append.reply.send(Err(error));
            return false;
        }
        if !held && !slot.held.is_empty() {
            slot.held.push_back(append);
            return false;
        }
        let unsynced = log.unsynced_bytes();
        let more = u64::try_from(append.records.len()).unwrap_or(u64::MAX);
        if unsynced > 0 && unsynced.saturating_add(more) > slot.spec.log.max_unsynced_bytes {
            if held {
                slot.held.push_front(append);
            } else {
                slot.held.push_back(append);
            }
            self.mark_dirty(id);
            return false;
        }
        let found = log.log_end_offset();
        if let Some(expected) = append.expected_end.filter(|expected| *expected != found) {
            let _ = append.reply.send(Err(PartitionError::EndMoved { expected, found }));
            return false;
        }
        let params = AppendParams {
            origin: append.origin,
            leader_epoch: Some(slot.leadership.leader_epoch),
            max_leader_epoch: append.max_leader_epoch,
            may_start_transaction: false,
            transaction_version: TransactionVersion::Legacy,
            records_checked: append.records_checked,
            now: clock::now(),
        };
        let PendingAppend { records, acks, reply, .. } = append;
        match log.append(&mut *self.io, records, &params) {
            Ok(mut appended) => {
                for barrier in &appended.barriers {
                    self.barriers.count(params.origin, barrier);
                    report_barrier(&slot.spec.topic, id.partition, barrier);
                }
                if !appended.forgotten.is_empty() {
                    // If it is full, or gone, this thread frees it.
                    let _ = self.sweep.try_send(std::mem::take(&mut appended.forgotten));
                }
                if appended.tolerated_count > 0 {
                    let count = appended.tolerated_count;
                    tracing::debug!(
                        topic = slot.spec.topic,
                        partition = id.partition,
                        count,
                        "odd batches were taken"
                    );
                }
                // A first batch that began below the end of an empty log moved that.
                if let Some(end) = log.take_cut() {
                    slot.refuse_above(end);
                }
                slot.wait(acks, Waiter { end: appended.durable_at, appended, reply });
                slot.last_append = instant();
                slot.resting = false;
                if !slot.warm {
                    slot.warm = true;
                    self.warm.push_back((slot.last_append + REST_AFTER, id));
                }
                true
            }
            Err(error @ (AppendError::Log { .. } | AppendError::Offline)) => {
                let reason: Arc<str> = Arc::from(describe(&error));
                let may_reopen = !is_failed_sync(&error) && !log.failure().is_some_and(is_of_sync);
                log.progress();
                if let Some(end) = log.take_cut() {
                    slot.refuse_above(end);
                }
                slot.answer();
                tracing::error!(topic = slot.spec.topic, partition = id.partition, %reason, "append failed");
                self.fail(id, &reason, may_reopen);
                let _ = reply.send(Err(PartitionError::Offline { reason }));
                false
            }
            Err(error) => {
                let _ = reply.send(Err(PartitionError::Append(error)));
                false
            }
        }
    }

    fn sync(&mut self, id: PartitionId, reply: oneshot::Sender<Result<LogView, PartitionError>>) {
        self.reopen_if_due(id);
        let Some(slot) = self.slots.get_mut(&id) else {
            let _ = reply.send(Err(PartitionError::ShutDown));
            return;
        };
        match &slot.state {
            SlotState::Open(log) => {
                let end = log.log_end_offset();
                slot.syncs_waiting.push(SyncWaiter { end, reply });
                self.settle(id);
            }
            SlotState::Failed { reason, .. } | SlotState::Offline { reason } => {
                let reason = Arc::clone(reason);
                let _ = reply.send(Err(PartitionError::Offline { reason }));
            }
        }
    }

    /// Submits what was appended, and one sync for each partition that has something written and unsynced and none under
    /// way: as many side by side as the queue of the disk takes.
    ///
    /// With `has_more` to do, what is submitted gets going meanwhile; else the caller waits for it, and the disk's backend
    /// may do it in this thread.
    fn start_work(&mut self, has_more: bool) {
        let by_clock = self.config.flush_interval && self.last_flush.elapsed() >= FLUSH_INTERVAL;
        if by_clock {
            self.last_flush = instant();
            for id in std::mem::take(&mut self.lazy) {
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.lazy = false;
                }
                self.mark_dirty(id);
            }
        }
        let dirty = std::mem::take(&mut self.dirty);
        if dirty.is_empty() {
            return;
        }
        for id in &dirty {
            if let Some(Slot { state: SlotState::Open(log), .. }) = self.slots.get_mut(id) {
                log.flush(&mut *self.io);
            }
        }
        if has_more {
            // Writes that complete at once are covered by the syncs that follow.
            self.reap(Wait::Poll);
        }
        for id in dirty {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            slot.dirty = false;
            let SlotState::Open(log) = &mut slot.state else { continue };
            log.flush(&mut *self.io);
            let wanted = slot.spec.log.durability == Durability::Synced
                || !slot.syncs_waiting.is_empty()
                || !slot.held.is_empty()
                || by_clock
                || slot.resting
                || self.stopping;
            if wanted {
                log.sync_begin(&mut *self.io);
            }
            if log.is_busy() {
                // Its completion brings it back.
            } else if log.has_unsent() || (wanted && log.needs_sync()) {
                slot.dirty = true;
                self.stuck.push(id);
            } else if log.needs_sync() && self.config.flush_interval && !slot.lazy {
                slot.lazy = true;
                self.lazy.push(id);
            }
        }
    }

    /// A partition to which nothing was appended for a while gives back what only appends need.
    fn rest_if_due(&mut self) {
        let now = instant();
        while let Some((_, id)) = self.warm.pop_front_if(|(due, _)| *due <= now) {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let SlotState::Open(log) = &mut slot.state else {
                slot.warm = false;
                continue;
            };
            let due = slot.last_append + REST_AFTER;
            if due > now {
                self.warm.push_back((due, id));
                continue;
            }
            match log.rest(&mut *self.io) {
                Ok(true) => {
                    slot.warm = false;
                    slot.resting = false;
                }
                // Something is not durable, or on its way.
                Ok(false) => {
                    slot.resting = true;
                    self.warm.push_back((now + REST_AFTER, id));
                    self.mark_dirty(id);
                }
                Err(_) => {
                    slot.warm = false;
                    self.settle(id);
                }
            }
        }
    }

    fn serve_reads(&mut self) {
        for _ in 0..READS_PER_TURN {
            let Some((id, read, _room)) = self.reads.pop_front() else { return };
            let answer = match self.slots.get_mut(&id).map(|slot| &mut slot.state) {
                Some(SlotState::Open(log) | SlotState::Failed { log, .. }) => log
                    .read(&mut *self.io, read.from, read.max_bytes, read.isolation, read.at_least_one)
                    .map_err(PartitionError::Read),
                Some(SlotState::Offline { reason }) => {
                    Err(PartitionError::Offline { reason: Arc::clone(reason) })
                }
                None => Err(PartitionError::ShutDown),
            };
            let _ = read.reply.send(answer);
        }
    }

    fn open(&mut self, spec: PartitionSpec, status: watch::Sender<PartitionStatus>, tail: HotTail) {
        let mut slot = self.slot(spec, status, tail);
        slot.state = match &self.broken {
            Some(reason) => SlotState::Offline { reason: Arc::clone(reason) },
            None => load(&mut *self.io, &slot.spec, slot.owner, &self.pool),
        };
        slot.show_tail(&self.tail_memory);
        slot.spec.options.clean_shutdown = false;
        slot.publish_state();
        self.insert(slot);
    }

    /// A partition that was loaded by another thread is served from here on, under the leadership that it comes with.
    fn adopt(&mut self, loaded: Loaded, refuse: Option<Arc<str>>) {
        let Loaded { spec, announced: Announced { status, tail }, log } = loaded;
        let mut slot = self.slot(spec, status, tail);
        slot.state = match (log, &self.broken) {
            (Ok(_), Some(reason)) => SlotState::Offline { reason: Arc::clone(reason) },
            (Ok(mut log), None) => {
                log.attach(slot.owner, self.pool.clone());
                SlotState::Open(log)
            }
            (Err(reason), _) => SlotState::Offline { reason },
        };
        slot.show_tail(&self.tail_memory);
        slot.spec.options.clean_shutdown = false;
        slot.refuse = refuse;
        slot.status.send_modify(|status| status.leadership = slot.leadership.clone());
        let id = slot.spec.id;
        self.insert(slot);
        // Nobody is told that it is served before its epoch stands in its log.
        self.note_epoch(id);
        if let Some(slot) = self.slots.get(&id) {
            slot.publish_state();
        }
    }

    fn insert(&mut self, slot: Slot) {
        let id = slot.spec.id;
        self.owners.insert(slot.owner, id);
        self.slots.insert(id, slot);
    }

    fn slot(&mut self, spec: PartitionSpec, status: watch::Sender<PartitionStatus>, tail: HotTail) -> Slot {
        let leadership = spec.leadership.clone();
        let owner = self.next_owner;
        self.next_owner = self.next_owner.wrapping_add(1);
        Slot {
            leadership,
            status,
            state: SlotState::Offline { reason: Arc::from("not opened") },
            owner,
            tail,
            writing: VecDeque::new(),
            waiting: VecDeque::new(),
            syncs_waiting: Vec::new(),
            held: VecDeque::new(),
            dirty: false,
            lazy: false,
            warm: false,
            resting: false,
            snapshotting: false,
            cleaning: false,
            warned: None,
            last_append: instant(),
            unwritten: 0,
            refuse: None,
            spec,
        }
    }

    /// A partition whose disk failed (it may have been full) is opened again from its bytes when
    /// somebody wants to write, or to know where it ends, and some time has passed.
    fn reopen_if_due(&mut self, id: PartitionId) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let SlotState::Failed { reopen_at: Some(reopen_at), .. } = &slot.state else { return };
        if self.broken.is_some() || instant() < *reopen_at {
            return;
        }
        // A sync of the log as it was belongs to it, and may yet fail.
        self.drain(id);
        let Some(slot) = self.slots.get_mut(&id) else { return };
        if !matches!(&slot.state, SlotState::Failed { reopen_at: Some(_), .. }) {
            return;
        }
        let failed =
            std::mem::replace(&mut slot.state, SlotState::Offline { reason: Arc::from("reopening") });
        let SlotState::Failed { log, reason, .. } = failed else { return };
        // What the checkpoints said at the start is old by now.
        let options = &mut slot.spec.options;
        options.recovery_point = log.recovery_point();
        options.log_start_offset = options.log_start_offset.max(log.view().log_start_offset);
        // It cannot be closed cleanly, which it says; what matters is that its files are given back.
        let _ = log.close(&mut *self.io);
        slot.state = match load(&mut *self.io, &slot.spec, slot.owner, &self.pool) {
            SlotState::Open(log) => {
                tracing::info!(topic = slot.spec.topic, partition = id.partition, was = %reason, "partition is back");
                SlotState::Open(log)
            }
            other => other,
        };
        slot.show_tail(&self.tail_memory);
        // Nobody is told that it is back before its epoch stands in its log.
        self.note_epoch(id);
        if let Some(slot) = self.slots.get(&id) {
            slot.publish_state();
        }
    }

    /// Nothing more is taken; what waited fails, what was durable is still served.
    fn fail(&mut self, id: PartitionId, reason: &Arc<str>, may_reopen: bool) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        self.unwritten = self.unwritten.saturating_sub(std::mem::take(&mut slot.unwritten));
        let state = std::mem::replace(&mut slot.state, SlotState::Offline { reason: Arc::clone(reason) });
        slot.state = match state {
            SlotState::Open(log) => SlotState::Failed {
                log,
                reason: Arc::clone(reason),
                reopen_at: may_reopen.then(|| instant() + REOPEN_AFTER),
            },
            other => other,
        };
        // Whoever hears that it failed finds its status to say so.
        slot.publish_state();
        let error = || PartitionError::Offline { reason: Arc::clone(reason) };
        for waiter in slot.writing.drain(..).chain(slot.waiting.drain(..)) {
            let _ = waiter.reply.send(Err(error()));
        }
        for waiter in slot.syncs_waiting.drain(..) {
            let _ = waiter.reply.send(Err(error()));
        }
        for append in slot.held.drain(..) {
            let _ = append.reply.send(Err(error()));
        }
    }

    /// Syncs to the end of one log, waiting for it, and closes it.
    fn close(&mut self, id: PartitionId) -> Result<(), PartitionError> {
        let Some(mut slot) = self.slots.remove(&id) else { return Ok(()) };
        self.owners.remove(&slot.owner);
        self.unwritten = self.unwritten.saturating_sub(slot.unwritten);
        for append in slot.held.drain(..) {
            let _ = append.reply.send(Err(PartitionError::ShutDown));
        }
        let log = match slot.state {
            SlotState::Open(log) => log,
            SlotState::Failed { log, reason, .. } => {
                // It cannot be closed cleanly, which it says; what matters is that its files are given back.
                let _ = log.close(&mut *self.io);
                return Err(PartitionError::Offline { reason });
            }
            SlotState::Offline { reason } => return Err(PartitionError::Offline { reason }),
        };
        // What waits is answered by the last sync; a close syncs too, but tells only whether it did.
        let mut log = *log;
        match log.sync(&mut *self.io) {
            Ok(view) => {
                for waiter in slot.writing.drain(..).chain(slot.waiting.drain(..)) {
                    let _ = waiter.reply.send(Ok(waiter.appended));
                }
                for waiter in slot.syncs_waiting.drain(..) {
                    let _ = waiter.reply.send(Ok(*view));
                }
            }
            Err(error) => {
                let _ = log.close(&mut *self.io);
                return Err(PartitionError::Change(error));
            }
        }
        log.close(&mut *self.io).map_err(PartitionError::Change)
    }

    /// Takes a log out that is durable and at rest, and for which nobody waits.
    fn detach(&mut self, id: PartitionId) -> Option<Box<UnifiedLog>> {
        let slot = self.slots.get_mut(&id)?;
        let waited_for =
            !slot.writing.is_empty() || !slot.waiting.is_empty() || !slot.syncs_waiting.is_empty();
        if waited_for || !slot.held.is_empty() {
            return None;
        }
        let SlotState::Open(log) = &mut slot.state else { return None };
        if !log.detach(&mut *self.io).unwrap_or(false) {
            return None;
        }
        let slot = self.slots.remove(&id)?;
        self.owners.remove(&slot.owner);
        match slot.state {
            SlotState::Open(log) => Some(log),
            _ => None,
        }
    }

    /// Waits until nothing of a partition is in flight.
    fn drain(&mut self, id: PartitionId) {
        let is_busy = |slot: &Slot| match &slot.state {
            SlotState::Open(log) | SlotState::Failed { log, .. } => log.is_busy(),
            SlotState::Offline { .. } => false,
        };
        while self.slots.get(&id).is_some_and(is_busy) {
            if !self.reap(Wait::Block) {
                return;
            }
        }
    }

    fn point_saved(&mut self, id: PartitionId, cut: u64) {
        let Some(slot) = self.slots.get_mut(&id) else { return };
        let SlotState::Open(log) = &mut slot.state else { return };
        if let Err(error) = log.recovery_point_saved(&mut *self.io, cut) {
            let error = describe(&error);
            tracing::warn!(
                topic = slot.spec.topic,
                partition = id.partition,
                error,
                "a cut is not settled yet"
            );
        }
    }

    fn points(&self) -> Vec<LogPoints> {
        self.slots.values().filter_map(|slot| slot.points(false)).collect()
    }

    /// Everything that was asked is finished, then every log is closed.
    fn stop(&mut self, closers: Option<&Closers>) -> Vec<LogPoints> {
        let ids: Vec<PartitionId> = self.slots.keys().copied().collect();
        let mut all = Vec::with_capacity(ids.len());
        // All writes and syncs run side by side before the logs are closed one by one.
        self.stopping = true;
        for id in &ids {
            self.mark_dirty(*id);
        }
        loop {
            self.start_work(true);
            let is_done = |slot: &Slot| match &slot.state {
                SlotState::Open(log) => !log.is_busy() && !log.has_unsent() && !log.needs_sync(),
                SlotState::Failed { .. } | SlotState::Offline { .. } => true,
            };
            if self.slots.values().all(is_done) || !self.reap(Wait::Block) {
                break;
            }
        }
        let mut detached = Vec::new();
        for id in ids {
            let end = match self.slots.get(&id).map(|slot| &slot.state) {
                Some(SlotState::Open(log)) => Some(log.log_end_offset()),
                _ => None,
            };
            let points = self.slots.get(&id).and_then(|slot| slot.points(true));
            if let (Some(points), Some(end), true) = (&points, end, closers.is_some())
                && let Some(log) = self.detach(id)
            {
                detached.push(Closing { log, end, points: points.clone() });
                continue;
            }
            let closed = self.close(id);
            let Some(points) = points else { continue };
            all.push(closed_points(points, end, closed));
        }
        if let Some(closers) = closers {
            all.append(&mut close_all(detached, closers, &mut *self.io));
        }
        for (_, read, _) in self.reads.drain(..) {
            let _ = read.reply.send(Err(PartitionError::ShutDown));
        }
        all
    }
}

/// Says what a barrier did.
fn report_barrier(topic: &str, partition: i32, barrier: &BarrierApplied) {
    let (offset, producers_expired) = (barrier.offset.get(), barrier.producers_expired);
    let transactions_aborted = barrier.transactions_aborted.len();
    if transactions_aborted == 0 {
        tracing::info!(topic, partition, offset, producers_expired, "barrier: producers forgotten");
        return;
    }
    // A stop ends them before its barrier: somebody else wrote this one.
    tracing::warn!(
        topic,
        partition,
        offset,
        producers_expired,
        transactions_aborted,
        "barrier: producers forgotten, transactions that were still open aborted"
    );
}

/// A log that is to be closed, and what the checkpoint files say of it then.
struct Closing {
    log: Box<UnifiedLog>,
    end: Offset,
    points: LogPoints,
}

/// What the checkpoint files say of a log that was closed, or not.
fn closed_points(
    mut points: LogPoints,
    end: Option<Offset>,
    closed: Result<(), PartitionError>,
) -> LogPoints {
    match closed {
        // A closed log is durable to its end.
        Ok(()) => {
            points.recovery_point = end.unwrap_or(points.recovery_point);
            points.high_watermark = points.recovery_point;
        }
        Err(error) => {
            let (topic, partition) = (points.topic.as_str(), points.id.partition);
            tracing::error!(topic, partition, error = describe(&error), "not closed");
            points.clean = false;
        }
    }
    points
}

/// Closes logs that are at rest, several at a time; what no thread of its own can be had for is closed here.
fn close_all(logs: Vec<Closing>, closers: &Closers, here: &mut dyn Io) -> Vec<LogPoints> {
    let threads = closers.threads.min(logs.len());
    let (left, closed) = (Mutex::new(logs), Mutex::new(Vec::new()));
    let close = |io: &mut dyn Io| {
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(Closing { log, end, points }) = next else { return };
            let points = closed_points(points, Some(end), log.close(io).map_err(PartitionError::Change));
            closed.lock().unwrap_or_else(PoisonError::into_inner).push(points);
        }
    };
    std::thread::scope(|scope| {
        for number in 1..threads {
            let work = || match closers.io.open() {
                Ok(mut io) => close(&mut *io),
                // The others have more to do then.
                Err(error) => {
                    tracing::warn!(error = describe(&error), "a thread that closes has no disk access")
                }
            };
            let thread = std::thread::Builder::new().name(format!("close-{number}"));
            if let Err(error) = thread.spawn_scoped(scope, work) {
                tracing::warn!(%error, "a thread to close partitions cannot be started");
            }
        }
        close(here);
    });
    closed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the log of `spec`, making it if that is wanted.
fn load(io: &mut dyn Io, spec: &PartitionSpec, owner: u32, pool: &BufferPool) -> SlotState {
    let mut options = spec.options.clone();
    options.now = clock::now();
    let (topic, partition) = (spec.topic.as_str(), spec.id.partition);
    match UnifiedLog::open(io, &spec.dir, spec.log.clone(), options) {
        Ok((mut log, report)) => {
            log.attach(owner, pool.clone());
            say_loaded(spec, &report);
            SlotState::Open(Box::new(log))
        }
        Err(error) => {
            let reason = describe(&error);
            tracing::error!(topic, partition, reason, "partition is offline");
            SlotState::Offline { reason: Arc::from(reason) }
        }
    }
}

/// Whether a sync failed somewhere below this error: then nothing tells what is on the disk.
fn is_failed_sync(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let found = match error.downcast_ref::<SegmentError>() {
            // It stands for the error in it, which is no cause of its own.
            Some(SegmentError::Io(error)) => Some(error),
            _ => error.downcast_ref::<IoError>(),
        };
        if found.is_some_and(is_of_sync) {
            return true;
        }
        next = error.source();
    }
    false
}

fn is_of_sync(error: &IoError) -> bool {
    let is_sync = |operation: &Operation| matches!(operation, Operation::Sync | Operation::SyncDirectory);
    match error {
        IoError::Os { at, .. } => is_sync(&at.operation),
        IoError::Poisoned { cause, .. } => is_sync(cause),
        _ => false,
    }
}
