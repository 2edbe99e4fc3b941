//! Log shards: plain threads that own partitions.
//!
//! A shard is one thread, one [`Io`] and the logs of its partitions; nobody else touches them, so
//! there is no lock on the way of a record. Requests come over one bounded channel, and an
//! [`IoWaker`] ends the shard's wait. Each turn of its loop takes the requests that are there,
//! appends, starts one sync per partition that has unsynced bytes and none under way, serves reads,
//! and answers whatever a finished sync has made durable: so all appends that arrive while one sync
//! runs share the next one (group commit, without a timer).
//!
//! The other side is [`PartitionHandle`]: asynchronous calls, and a `watch` channel with the
//! partition's [`PartitionStatus`], by which long polls are woken.
//!
//! Failures stay with their partition: a corrupt log is offline with its reason, a failed write or
//! sync refuses further writes until the partition is opened again from its bytes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use crossbeam_channel::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use weir_format::{LeaderEpoch, Offset};
use weir_log::{
    AppendError, Appended, ChangeError, HotTail, Isolation, LogView, Read, ReadError, TailMemory, UnifiedLog,
};
use weir_psm::{AppendOrigin, Forgotten};
use weir_segment::io::{Io, IoWaker};

use crate::loading::{HelperIo, Loaded};
use crate::metadata::{Leadership, PartitionId, ReadOnly};
use crate::metrics::BarrierCounters;

mod partition;
mod worker;

pub use partition::{PartitionHandle, PartitionSpec};
use worker::Shard;

/// What every shard is told.
#[derive(Debug, Clone, Copy)]
pub struct ShardConfig {
    /// What was written is synced by the clock (`weir.flush=interval`).
    pub flush_interval: bool,
    /// Time between two looks for producers that have been idle too long
    /// (`producer.id.expiration.check.interval.ms`).
    pub expiry_interval: Duration,
    /// Time between two looks for segments to delete (`log.retention.check.interval.ms`).
    pub retention_interval: Duration,
}

impl Default for ShardConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            flush_interval: false,
            expiry_interval: Duration::from_secs(600),
            retention_interval: Duration::from_secs(300),
        }
    }
}

/// Requests that may wait for one shard; a caller beyond them waits for room.
const QUEUE: usize = 1024;

/// Compressed batches of a shard's partitions that are looked into at once, each on a thread of its own.
const LOOKUPS: usize = 2;
/// What barriers forgot that may wait to be freed; what is more is freed by the shard.
const SWEEPINGS: usize = 64;

/// Where a partition's log stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogStatus {
    /// It is being opened: nothing can be said about its offsets yet (law O6).
    Loading,
    /// It is served.
    Online(LogView),
    /// A write or a sync failed: what was durable is served, nothing is taken.
    WritesRefused {
        /// What readers may see.
        view: LogView,
        /// What failed.
        reason: Arc<str>,
    },
    /// It could not be opened.
    Offline {
        /// What is wrong with it, and the remedy where there is one.
        reason: Arc<str>,
    },
}

/// What the rest of the node may know of a partition without asking its shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionStatus {
    /// Leader epoch and write guard that the shard enforces.
    pub leadership: Leadership,
    /// Where its log stands.
    pub log: LogStatus,
}

impl PartitionStatus {
    /// What readers may see, if anything.
    pub fn view(&self) -> Option<LogView> {
        match self.log {
            LogStatus::Online(view) | LogStatus::WritesRefused { view, .. } => Some(view),
            LogStatus::Loading | LogStatus::Offline { .. } => None,
        }
    }
}

/// When an append is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// When it is written: `acks=1`, and every append of a mirror.
    Written,
    /// When it is durable: `acks=all`.
    Durable,
}

/// Why a partition did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionError {
    /// Its log is still being opened.
    #[error("the partition is still loading")]
    Loading,
    /// Its log could not be opened, or a write of it failed.
    #[error("the partition is offline: {reason}")]
    Offline {
        /// What is wrong with it.
        reason: Arc<str>,
    },
    /// A mirror owns it: clients may not write (law B1).
    #[error("the partition is read-only: mirror {} is {}", .read_only.mirror, .read_only.state)]
    ReadOnly {
        /// Who owns it.
        read_only: ReadOnly,
    },
    /// No mirror owns it: nothing may be replicated into it.
    #[error("the partition is not mirrored")]
    NotMirrored,
    /// The log does not end where the append was to begin: it was opened again from its bytes.
    #[error("the log ends at {found}, not at {expected}")]
    EndMoved {
        /// Where it was to end.
        expected: Offset,
        /// Where it ends.
        found: Offset,
    },
    /// The log refused an append.
    #[error("append refused")]
    Append(#[source] AppendError),
    /// The log refused a read.
    #[error("read refused")]
    Read(#[source] ReadError),
    /// The log refused a change.
    #[error("change refused")]
    Change(#[source] ChangeError),
    /// The node is shutting down.
    #[error("the node is shutting down")]
    ShutDown,
}

/// What a shard does for a handle.
enum Request {
    Open {
        spec: Box<PartitionSpec>,
        status: watch::Sender<PartitionStatus>,
        tail: HotTail,
    },
    /// Takes over a partition that was loaded elsewhere, or cannot be.
    Adopt {
        loaded: Box<Loaded>,
        /// Why clients' writes are refused.
        refuse: Option<Arc<str>>,
    },
    Append {
        id: PartitionId,
        append: PendingAppend,
    },
    Read {
        id: PartitionId,
        read: ReadRequest,
    },
    /// Anything rarer, in order with the appends.
    Run {
        id: PartitionId,
        may: Run,
        job: LogJob,
    },
    Sync {
        id: PartitionId,
        reply: oneshot::Sender<Result<LogView, PartitionError>>,
    },
    Lead {
        id: PartitionId,
        leadership: Leadership,
        refuse: Option<Arc<str>>,
        reply: oneshot::Sender<()>,
    },
    /// Takes a partition out: its files stay as they are.
    Close {
        id: PartitionId,
        reply: oneshot::Sender<Result<(), PartitionError>>,
    },
    RunIo {
        job: IoJob,
    },
    PointSaved {
        id: PartitionId,
        cut: u64,
    },
    Points {
        reply: oneshot::Sender<Vec<LogPoints>>,
    },
    Stop {
        /// Who helps to close.
        closers: Option<Closers>,
        reply: oneshot::Sender<Vec<LogPoints>>,
    },
}

/// What a job does to its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    /// It looks, also at a log that failed.
    Look,
    /// It changes the log.
    Change,
    /// It changes the log for a client, as a write would: not while a mirror owns the partition (law B1).
    ClientChange,
    /// It changes the log for the mirror that owns the partition: not once it is stopped.
    MirrorChange,
}

/// What the handle of a partition sees, at the side of the shard that will serve it.
#[derive(Debug)]
pub(crate) struct Announced {
    pub(crate) status: watch::Sender<PartitionStatus>,
    pub(crate) tail: HotTail,
}

/// Threads that close the logs of a shard at its end, several at a time: a close waits for the disk a few times.
#[derive(Debug, Clone)]
pub(crate) struct Closers {
    pub(crate) io: HelperIo,
    /// How many for each shard.
    pub(crate) threads: usize,
}

type IoJob = Box<dyn FnOnce(&mut dyn Io) + Send>;
/// What it gives back sends the answer, once the partition's view is the one that goes with it.
type LogJob =
    Box<dyn FnOnce(Result<(&mut UnifiedLog, &mut dyn Io), PartitionError>) -> Box<dyn FnOnce()> + Send>;

struct PendingAppend {
    records: BytesMut,
    origin: AppendOrigin,
    max_leader_epoch: Option<LeaderEpoch>,
    /// Where the log must end for this append to be taken.
    expected_end: Option<Offset>,
    acks: Acks,
    /// A client's records that were checked on the way.
    records_checked: bool,
    reply: oneshot::Sender<Result<Appended, PartitionError>>,
    /// Room in the shard's queue, given back when the append has been tried.
    _room: OwnedSemaphorePermit,
}

struct ReadRequest {
    from: Offset,
    max_bytes: usize,
    isolation: Isolation,
    at_least_one: bool,
    reply: oneshot::Sender<Result<Read, PartitionError>>,
}

/// Offsets of a log that go to the checkpoint files.
#[derive(Debug, Clone)]
pub struct LogPoints {
    /// Topic name.
    pub topic: String,
    /// The partition.
    pub id: PartitionId,
    /// The log directory that holds it.
    pub log_dir: PathBuf,
    /// What is below is durable.
    pub recovery_point: Offset,
    /// The cut that this recovery point settles, once it is in the checkpoint.
    pub unsettled_cut: Option<u64>,
    /// First offset of the log.
    pub log_start_offset: Offset,
    /// What is below is readable.
    pub high_watermark: Offset,
    /// Set only by a stop: whether the log was closed whole, so that its next start needs no
    /// recovery.
    pub clean: bool,
}

/// The way to one shard.
#[derive(Clone)]
pub struct ShardHandle {
    requests: Sender<(Request, Option<OwnedSemaphorePermit>)>,
    room: Arc<Semaphore>,
    /// For those who decompress a batch to find a record in it: each may need much memory.
    lookups: Arc<Semaphore>,
    waker: IoWaker,
}

impl fmt::Debug for ShardHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardHandle").field("queued", &self.requests.len()).finish_non_exhaustive()
    }
}

impl ShardHandle {
    async fn room(&self) -> Result<OwnedSemaphorePermit, PartitionError> {
        Arc::clone(&self.room).acquire_owned().await.map_err(|_| PartitionError::ShutDown)
    }

    fn send(&self, request: Request, room: Option<OwnedSemaphorePermit>) -> Result<(), PartitionError> {
        // The semaphore has as many permits as the channel has places, so the channel is never full.
        self.requests.try_send((request, room)).map_err(|_| PartitionError::ShutDown)?;
        self.waker.wake();
        Ok(())
    }

    /// Runs a piece of work on the shard's disk and waits for its answer.
    ///
    /// # Errors
    /// [`PartitionError::ShutDown`].
    pub async fn run_io<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut dyn Io) -> T + Send + 'static,
    ) -> Result<T, PartitionError> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(move |io: &mut dyn Io| {
            let _ = reply.send(job(io));
        });
        let room = self.room().await?;
        self.send(Request::RunIo { job }, Some(room))?;
        answer.await.map_err(|_| PartitionError::ShutDown)
    }

    /// The offsets of this shard's logs that go to the checkpoint files.
    ///
    /// # Errors
    /// [`PartitionError::ShutDown`].
    pub async fn points(&self) -> Result<Vec<LogPoints>, PartitionError> {
        let (reply, answer) = oneshot::channel();
        let room = self.room().await?;
        self.send(Request::Points { reply }, Some(room))?;
        answer.await.map_err(|_| PartitionError::ShutDown)
    }

    /// The recovery point of a partition that settles this cut is in the checkpoint, durably.
    ///
    /// # Errors
    /// [`PartitionError::ShutDown`].
    pub async fn point_saved(&self, id: PartitionId, cut: u64) -> Result<(), PartitionError> {
        let room = self.room().await?;
        self.send(Request::PointSaved { id, cut }, Some(room))
    }

    /// Opens a partition. The answer comes at once; its status says when it is loaded.
    ///
    /// # Errors
    /// [`PartitionError::ShutDown`].
    pub async fn open(&self, spec: PartitionSpec) -> Result<PartitionHandle, PartitionError> {
        let (id, topic) = (spec.id, Arc::from(spec.topic.as_str()));
        let config = Arc::new(spec.log.clone());
        let first = PartitionStatus { leadership: spec.leadership.clone(), log: LogStatus::Loading };
        let (status, watcher) = watch::channel(first);
        let (room, tail) = (self.room().await?, HotTail::new());
        self.send(Request::Open { spec: Box::new(spec), status, tail: tail.clone() }, Some(room))?;
        Ok(PartitionHandle::new(id, topic, config, self.clone(), watcher, tail))
    }

    /// A partition that is being loaded elsewhere, and what its shard needs to serve it; [`ShardHandle::adopt`] gives it to
    /// the shard, which knows nothing of it until then.
    pub(crate) fn announce(&self, spec: &PartitionSpec) -> (PartitionHandle, Announced) {
        let first = PartitionStatus { leadership: spec.leadership.clone(), log: LogStatus::Loading };
        let (status, watcher) = watch::channel(first);
        let (topic, tail) = (Arc::from(spec.topic.as_str()), HotTail::new());
        let config = Arc::new(spec.log.clone());
        let handle = PartitionHandle::new(spec.id, topic, config, self.clone(), watcher, tail.clone());
        (handle, Announced { status, tail })
    }

    /// Gives the shard a partition that was announced: served from now on, or offline. `refuse`: why clients may not
    /// write to it.
    pub(crate) async fn adopt(&self, loaded: Loaded, refuse: Option<Arc<str>>) -> Result<(), PartitionError> {
        let room = self.room().await?;
        self.send(Request::Adopt { loaded: Box::new(loaded), refuse }, Some(room))
    }
}

/// Opens the disk of a shard; called once on the shard's own thread.
pub type OpenIo = Box<dyn FnOnce() -> Result<Box<dyn Io>, weir_segment::io::select::SelectError> + Send>;

/// The shards of a node.
#[derive(Debug)]
pub struct Shards {
    handles: Vec<ShardHandle>,
    barriers: Arc<BarrierCounters>,
    threads: std::sync::Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Shards {
    /// Starts one thread per element of `open`. What is appended is kept for readers as long as `tail` has room for it.
    ///
    /// # Errors
    /// The first shard's reason if a backend cannot be had; nothing runs then.
    pub fn start(
        open: Vec<OpenIo>,
        config: ShardConfig,
        tail: TailMemory,
    ) -> Result<Self, weir_segment::io::select::SelectError> {
        let mut handles = Vec::new();
        let mut threads = Vec::new();
        let barriers = Arc::new(BarrierCounters::default());
        let (sweep, sweepings) = crossbeam_channel::bounded(SWEEPINGS);
        let sweeper = std::thread::Builder::new().name("sweeper".to_owned());
        // It ends with the last shard.
        let sweeper = sweeper.spawn(move || sweepings.iter().for_each(drop::<Vec<Forgotten>>));
        threads.push(sweeper.expect("the system can start a thread"));
        for (number, open) in open.into_iter().enumerate() {
            let (requests, inbox) = crossbeam_channel::bounded(QUEUE + 2);
            let (started, start) = crossbeam_channel::bounded(1);
            let tail = tail.clone();
            let (sweep, barriers) = (sweep.clone(), Arc::clone(&barriers));
            let main = move || match open() {
                Ok(io) => {
                    let _ = started.send(Ok(io.waker()));
                    drop(started);
                    Shard::new(number, io, inbox, sweep, config, tail, barriers).run();
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            };
            let builder = std::thread::Builder::new().name(format!("shard-{number}"));
            let thread = builder.spawn(main).expect("the system can start a thread");
            threads.push(thread);
            match start.recv().expect("a shard says whether it started") {
                Ok(waker) => {
                    let room = Arc::new(Semaphore::new(QUEUE));
                    let lookups = Arc::new(Semaphore::new(LOOKUPS));
                    handles.push(ShardHandle { requests, room, lookups, waker });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self { handles, barriers, threads: std::sync::Mutex::new(threads) })
    }

    /// The shard of a partition: always the same one.
    pub fn of(&self, id: PartitionId) -> &ShardHandle {
        let mut bytes = id.topic_id.0.to_vec();
        bytes.extend_from_slice(&id.partition.to_be_bytes());
        let hash = usize::try_from(crc32c::crc32c(&bytes)).unwrap_or(0);
        &self.handles[hash % self.handles.len()]
    }

    /// What barriers did in all of them.
    pub fn barriers(&self) -> &BarrierCounters {
        &self.barriers
    }

    /// All shards.
    pub fn all(&self) -> &[ShardHandle] {
        &self.handles
    }

    /// Finishes what was asked, syncs and closes every log, ends the threads.
    ///
    /// Answers what the checkpoint files must say, with what could not be closed cleanly marked.
    pub async fn stop(&self) -> Vec<LogPoints> {
        self.stop_with(None).await
    }

    /// As [`Shards::stop`], where the logs of each shard are closed by several threads.
    pub(crate) async fn stop_with(&self, closers: Option<Closers>) -> Vec<LogPoints> {
        let mut points = Vec::new();
        let mut answers = Vec::new();
        for shard in &self.handles {
            shard.room.close();
            let (reply, answer) = oneshot::channel();
            let closers = closers.clone();
            if shard.send(Request::Stop { closers, reply }, None).is_ok() {
                answers.push(answer);
            }
        }
        for answer in answers {
            points.extend(answer.await.unwrap_or_default());
        }
        let threads = std::mem::take(&mut *self.threads.lock().expect("no holder of this lock panics"));
        for thread in threads {
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        points
    }
}

/// An error with its causes, in one line.
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
