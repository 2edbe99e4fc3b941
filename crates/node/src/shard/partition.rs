//! The asynchronous side of a partition.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::{oneshot, watch};
use weir_format::{Codec, LeaderEpoch, Offset};
use weir_log::{
    AppendError, Appended, ChangeError, HotTail, Isolation, LastBatch, LogConfig, LogStats, LogView,
    OffsetSearch, OffsetSpec, OpenOptions, Read, TimestampOffset, UnifiedLog, check_client_batch,
};
use weir_psm::{AppendOrigin, OpenTransaction};
use weir_segment::io::Io;

use super::{
    Acks, LogStatus, PartitionError, PartitionStatus, PendingAppend, ReadRequest, Request, Run, ShardHandle,
};
use crate::clock;
use crate::metadata::{Leadership, PartitionId};

/// A compressed batch up to this size is inflated in less time than it takes to hand it to another thread, in bytes.
const SMALL_BATCH: usize = 16 << 10;

/// What a shard needs to open a partition.
#[derive(Debug, Clone)]
pub struct PartitionSpec {
    /// Which partition.
    pub id: PartitionId,
    /// Name of its topic, for messages and checkpoint files.
    pub topic: String,
    /// The log directory that holds it.
    pub log_dir: PathBuf,
    /// Its own directory.
    pub dir: PathBuf,
    /// Settings of its log.
    pub log: LogConfig,
    /// What is known of its past.
    pub options: OpenOptions,
    /// Epoch and write guard.
    pub leadership: Leadership,
}

/// A partition: asynchronous calls to the shard that owns it.
///
/// Dropping a call's future does not undo it: what was sent is done.
#[derive(Debug, Clone)]
pub struct PartitionHandle {
    id: PartitionId,
    topic: Arc<str>,
    config: Arc<LogConfig>,
    shard: ShardHandle,
    status: watch::Receiver<PartitionStatus>,
    tail: HotTail,
}

impl PartitionHandle {
    pub(super) fn new(
        id: PartitionId,
        topic: Arc<str>,
        config: Arc<LogConfig>,
        shard: ShardHandle,
        status: watch::Receiver<PartitionStatus>,
        tail: HotTail,
    ) -> Self {
        Self { id, topic, config, shard, status, tail }
    }

    /// Which partition this is.
    pub fn id(&self) -> PartitionId {
        self.id
    }

    /// Name of its topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The shard that owns it.
    pub fn shard(&self) -> &ShardHandle {
        &self.shard
    }

    /// Its status as last published.
    pub fn status(&self) -> PartitionStatus {
        self.status.borrow().clone()
    }

    /// Epoch of this node's leadership, as last published.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.status.borrow().leadership.leader_epoch
    }

    /// Its status, to wait for changes of.
    pub fn watch(&self) -> watch::Receiver<PartitionStatus> {
        self.status.clone()
    }

    /// Waits until it is loaded, or cannot be.
    pub async fn loaded(&self) -> PartitionStatus {
        let mut status = self.status.clone();
        match status.wait_for(|status| status.log != LogStatus::Loading).await {
            Ok(status) => status.clone(),
            Err(_) => self.status(),
        }
    }

    /// What readers may see.
    ///
    /// # Errors
    /// [`PartitionError::Loading`] or [`PartitionError::Offline`].
    pub fn view(&self) -> Result<LogView, PartitionError> {
        match &self.status.borrow().log {
            LogStatus::Online(view) | LogStatus::WritesRefused { view, .. } => Ok(*view),
            LogStatus::Loading => Err(PartitionError::Loading),
            LogStatus::Offline { reason } => Err(PartitionError::Offline { reason: Arc::clone(reason) }),
        }
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, PartitionError> {
        let (reply, answer) = oneshot::channel();
        let room = self.shard.room().await?;
        self.shard.send(request(reply), Some(room))?;
        answer.await.map_err(|_| PartitionError::ShutDown)
    }

    /// Hands an append to the shard, in order; the future that comes back has its answer.
    ///
    /// # Errors
    /// [`PartitionError::ShutDown`].
    pub async fn start_append(
        &self,
        records: BytesMut,
        origin: AppendOrigin,
        max_leader_epoch: Option<LeaderEpoch>,
        acks: Acks,
    ) -> Result<impl Future<Output = Result<Appended, PartitionError>> + Send + use<>, PartitionError> {
        self.start(records, origin, max_leader_epoch, None, acks).await
    }

    async fn start(
        &self,
        records: BytesMut,
        origin: AppendOrigin,
        max_leader_epoch: Option<LeaderEpoch>,
        expected_end: Option<Offset>,
        acks: Acks,
    ) -> Result<impl Future<Output = Result<Appended, PartitionError>> + Send + use<>, PartitionError> {
        let (reply, answer) = oneshot::channel();
        // Inflating is for whoever brings the batch, not for the thread that all partitions of a shard wait for.
        let look_into = origin == AppendOrigin::Client
            && is_compressed(&records)
            && self.status.borrow().leadership.read_only.is_none();
        let checked = if look_into { self.check(records).await } else { Ok(records) };
        match checked {
            Ok(records) => {
                let room = self.shard.room().await?;
                let append = PendingAppend {
                    records,
                    origin,
                    max_leader_epoch,
                    expected_end,
                    acks,
                    records_checked: look_into,
                    reply,
                    _room: room,
                };
                self.shard.send(Request::Append { id: self.id, append }, None)?;
            }
            Err(error) => {
                let _ = reply.send(Err(PartitionError::Append(error)));
            }
        }
        Ok(async move { answer.await.map_err(|_| PartitionError::ShutDown)? })
    }

    /// Checks a client's batch by everything that does not depend on the log.
    async fn check(&self, mut records: BytesMut) -> Result<BytesMut, AppendError> {
        let config = Arc::clone(&self.config);
        let is_small = records.len() <= SMALL_BATCH;
        let check = move || check_client_batch(&mut records, &config, clock::now()).map(|()| records);
        if is_small {
            return check();
        }
        match tokio::task::spawn_blocking(check).await {
            Ok(checked) => checked,
            Err(_) => Err(AppendError::Offline),
        }
    }

    /// Appends a client's batch, stamped with the partition's leader epoch.
    ///
    /// # Errors
    /// [`PartitionError::ReadOnly`] while a mirror owns the partition; [`PartitionError::Append`]
    /// with the log's reason; [`PartitionError::Offline`].
    pub async fn append_client(&self, records: BytesMut, acks: Acks) -> Result<Appended, PartitionError> {
        self.start_append(records, AppendOrigin::Client, None, acks).await?.await
    }

    /// Appends a marker or a barrier, stamped with the partition's leader epoch; answered when it
    /// is written. [`PartitionHandle::sync`] makes it durable whatever `weir.flush` says.
    ///
    /// # Errors
    /// [`PartitionError::Append`] with the log's reason; [`PartitionError::Offline`].
    pub async fn append_coordinator(&self, records: BytesMut) -> Result<Appended, PartitionError> {
        self.start_append(records, AppendOrigin::Coordinator, None, Acks::Written).await?.await
    }

    /// Appends another cluster's batches verbatim; answered when they are written.
    ///
    /// Offsets may have gaps, so a log that was opened again from fewer bytes would take what
    /// was fetched for a later end, and have a hole: `expected_end` is where it must end.
    ///
    /// # Errors
    /// [`PartitionError::NotMirrored`] if no mirror owns the partition; [`PartitionError::EndMoved`];
    /// [`PartitionError::Append`] with the log's reason; [`PartitionError::Offline`].
    pub async fn append_replicated(
        &self,
        records: BytesMut,
        expected_end: Offset,
        max_leader_epoch: LeaderEpoch,
    ) -> Result<Appended, PartitionError> {
        let (origin, max) = (AppendOrigin::Replication, Some(max_leader_epoch));
        self.start(records, origin, max, Some(expected_end), Acks::Written).await?.await
    }

    /// Reads whole batches from `from`; see [`UnifiedLog::read`]. What was appended lately is read here, without the shard.
    ///
    /// # Errors
    /// [`PartitionError::Read`] with the log's reason; [`PartitionError::Offline`].
    pub async fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        isolation: Isolation,
        at_least_one: bool,
    ) -> Result<Read, PartitionError> {
        if let Some(read) = self.tail.read(from, max_bytes, isolation, at_least_one) {
            return Ok(read);
        }
        let id = self.id;
        self.ask(|reply| Request::Read {
            id,
            read: ReadRequest { from, max_bytes, isolation, at_least_one, reply },
        })
        .await?
    }

    /// Changes the log, in order with the appends; the view is published afterwards.
    ///
    /// # Errors
    /// [`PartitionError::Offline`] or [`PartitionError::ShutDown`], and the job has not run.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut UnifiedLog, &mut dyn Io) -> T + Send + 'static,
    ) -> Result<T, PartitionError> {
        self.run_or_look(Run::Change, job).await
    }

    /// Looks at the log, in order with the appends, also at one that takes no writes any more.
    ///
    /// # Errors
    /// [`PartitionError::Offline`] or [`PartitionError::ShutDown`], and the job has not run.
    pub async fn look<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut UnifiedLog, &mut dyn Io) -> T + Send + 'static,
    ) -> Result<T, PartitionError> {
        self.run_or_look(Run::Look, job).await
    }

    async fn run_or_look<T: Send + 'static>(
        &self,
        may: Run,
        job: impl FnOnce(&mut UnifiedLog, &mut dyn Io) -> T + Send + 'static,
    ) -> Result<T, PartitionError> {
        let id = self.id;
        self.ask(|reply| Request::Run {
            id,
            may,
            job: Box::new(move |log| {
                let done = log.map(|(log, io)| job(log, io));
                Box::new(move || {
                    let _ = reply.send(done);
                })
            }),
        })
        .await?
    }

    /// For the mirror that owns the partition. Whether it still does is looked at where the log is changed: what was asked
    /// for before a stop cuts nothing behind it.
    async fn change(
        &self,
        job: impl FnOnce(&mut UnifiedLog, &mut dyn Io) -> Result<(), ChangeError> + Send + 'static,
    ) -> Result<LogView, PartitionError> {
        let changed = self.run_or_look(Run::MirrorChange, move |log, io| job(log, io).map(|()| *log.view()));
        changed.await?.map_err(PartitionError::Change)
    }

    /// What ListOffsets answers. The shard finds the batch; what it takes to decompress it is done elsewhere.
    ///
    /// # Errors
    /// [`PartitionError::Read`] or [`PartitionError::Offline`].
    pub async fn offset_for(
        &self,
        spec: OffsetSpec,
        isolation: Isolation,
    ) -> Result<Option<TimestampOffset>, PartitionError> {
        let mut from = None;
        loop {
            let step = self.look(move |log, io| log.search_offset(io, spec, isolation, from)).await?;
            let lookup = match step.map_err(PartitionError::Read)? {
                OffsetSearch::Found(found) => return Ok(found),
                OffsetSearch::Inside(lookup) => lookup,
            };
            let next = lookup.next_offset();
            let found = if lookup.is_compressed() {
                let lookups = Arc::clone(&self.shard.lookups);
                let _room = lookups.acquire_owned().await.map_err(|_| PartitionError::ShutDown)?;
                let look = tokio::task::spawn_blocking(move || lookup.look()).await;
                look.map_err(|_| PartitionError::ShutDown)?
            } else {
                lookup.look()
            };
            match (found, next) {
                (None, Some(next)) => from = Some(next),
                (found, _) => return Ok(found),
            }
        }
    }

    /// The largest epoch not above `epoch`, and its end.
    ///
    /// # Errors
    /// [`PartitionError::Offline`].
    pub async fn end_offset_for_epoch(
        &self,
        epoch: LeaderEpoch,
    ) -> Result<Option<(LeaderEpoch, Offset)>, PartitionError> {
        self.look(move |log, _| log.end_offset_for_epoch(epoch)).await
    }

    /// Cuts the log of a mirrored partition at `offset`; durable when it answers.
    ///
    /// # Errors
    /// [`PartitionError::NotMirrored`] unless a mirror owns the partition; [`PartitionError::Change`];
    /// [`PartitionError::Offline`].
    pub async fn truncate_to(&self, offset: Offset) -> Result<LogView, PartitionError> {
        self.change(move |log, io| log.truncate_to(io, offset)).await
    }

    /// Empties the log of a mirrored partition, which then goes on at `offset`; durable when it answers.
    ///
    /// # Errors
    /// As [`PartitionHandle::truncate_to`].
    pub async fn truncate_fully_and_start_at(&self, offset: Offset) -> Result<LogView, PartitionError> {
        self.change(move |log, io| log.truncate_fully_and_start_at(io, offset)).await
    }

    /// Moves the log start of a mirrored partition up to `offset`; the shard deletes the segments below it when it has
    /// time.
    ///
    /// # Errors
    /// As [`PartitionHandle::truncate_to`].
    pub async fn advance_log_start(&self, offset: Offset) -> Result<LogView, PartitionError> {
        self.change(move |log, _| log.move_log_start(offset)).await
    }

    /// As [`PartitionHandle::advance_log_start`], for a client; `None` is the high watermark.
    ///
    /// # Errors
    /// [`PartitionError::ReadOnly`] while a mirror owns the partition; [`PartitionError::Change`];
    /// [`PartitionError::Offline`].
    ///
    /// Source: Kafka's `Partition.deleteRecordsOnLeader`.
    pub async fn delete_records(&self, before: Option<Offset>) -> Result<LogView, PartitionError> {
        let moved = self.run_or_look(Run::ClientChange, move |log, _| {
            let before = before.unwrap_or(log.view().high_watermark);
            log.move_log_start(before).map(|()| *log.view())
        });
        moved.await?.map_err(PartitionError::Change)
    }

    /// Numbers of its log, for metrics and `describe`.
    ///
    /// # Errors
    /// [`PartitionError::Offline`].
    pub async fn stats(&self) -> Result<LogStats, PartitionError> {
        self.look(|log, _| log.stats()).await
    }

    /// Makes everything that was appended before this call durable, whatever `weir.flush` says; one
    /// sync serves all who wait.
    ///
    /// # Errors
    /// [`PartitionError::Offline`] if the sync failed.
    pub async fn sync(&self) -> Result<LogView, PartitionError> {
        let id = self.id;
        self.ask(|reply| Request::Sync { id, reply }).await?
    }

    /// Open transactions, ascending by first offset.
    ///
    /// # Errors
    /// [`PartitionError::Offline`].
    pub async fn open_transactions(&self) -> Result<Vec<OpenTransaction>, PartitionError> {
        self.look(|log, _| log.open_transactions()).await
    }

    /// The newest batch and the newest leader epoch, durable or not.
    ///
    /// # Errors
    /// [`PartitionError::Offline`].
    pub async fn last_batch(&self) -> Result<(Option<LastBatch>, Option<LeaderEpoch>), PartitionError> {
        self.look(|log, _| (log.last_batch(), log.latest_epoch())).await
    }

    /// Tells the shard what the metadata says; from its answer on, every append obeys it.
    ///
    /// # Errors
    /// [`PartitionError::ShutDown`].
    pub async fn set_leadership(&self, leadership: Leadership) -> Result<(), PartitionError> {
        let id = self.id;
        self.ask(|reply| Request::Lead { id, leadership, refuse: None, reply }).await
    }

    /// Like [`PartitionHandle::set_leadership`], but clients' writes are refused for `reason`: the
    /// epoch that they would need could not be stored.
    ///
    /// # Errors
    /// [`PartitionError::ShutDown`].
    pub async fn refuse_writes(&self, leadership: Leadership, reason: &str) -> Result<(), PartitionError> {
        let (id, refuse) = (self.id, Some(Arc::from(reason)));
        self.ask(|reply| Request::Lead { id, leadership, refuse, reply }).await
    }

    /// Syncs and closes the log; its files stay. Afterwards every call fails.
    ///
    /// # Errors
    /// [`PartitionError::Change`] if it could not be closed cleanly.
    pub async fn close(&self) -> Result<(), PartitionError> {
        let id = self.id;
        self.ask(|reply| Request::Close { id, reply }).await?
    }
}

/// Whether these bytes start with a batch that has a codec.
fn is_compressed(records: &[u8]) -> bool {
    weir_format::header_of(records).is_ok_and(|header| header.codec() != Codec::None)
}
