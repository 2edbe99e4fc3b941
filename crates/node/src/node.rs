//! A node: its directories, its metadata, its shards and its partitions, from start to stop.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use weir_format::{LeaderEpoch, Offset, TimestampType};
use weir_log::{Durability, LogConfig, LogView, OpenOptions, RetentionConfig, TailMemory};
use weir_psm::PsmConfig;
use weir_segment::io::select::{IoConfig, SelectError, WantedBackend, select};
use weir_segment::io::{Io, durable};
use weir_segment::layout::{PARTITION_METADATA, TopicPartition};
use weir_segment::{CleanShutdown, PartitionMetadata, SegmentConfig};

use crate::clock;
use crate::config::{Address, Config, Flush, IoBackend};
use crate::data_dir::{DataDirError, DataDirs, FoundId, LogDir, write_checkpoints};
use crate::loading::{self, HelperIo, Job, Loaded, Starting};
use crate::metadata::{Change, Leadership, Metadata, MetadataError, PartitionId, Topic};
use crate::metrics::BarrierCounters;
use crate::shard::{
    Closers, LogPoints, PartitionError, PartitionHandle, PartitionSpec, ShardConfig, ShardHandle, Shards,
    describe,
};
use crate::uuid::Uuid;

/// Partitions whose leader epochs are raised by one transaction.
const EPOCHS_PER_TXN: usize = 100;

/// Descriptors that a thread beside the shards may hold.
const HELPER_FILES: usize = 64;

/// Threads that close the logs of one shard at a stop: each waits for the disk most of the time.
const CLOSE_THREADS: usize = 8;

/// Time between two writes of the checkpoint files while partitions are loaded.
const CHECKPOINT_WHILE_LOADING: Duration = Duration::from_secs(5);

/// Time between two attempts to raise the epochs that a start could not raise.
const RAISE_AGAIN_AFTER: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5_000 });

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Its directories or its store.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// No backend for disk access.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: Address,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The mirrors in the store cannot be taken up.
    #[error("the mirrors cannot be taken up")]
    Mirrors(#[source] MetadataError),
    /// The node was asked to stop while it started.
    #[error("stopped while starting")]
    Stopped,
}

impl StartError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::DataDir(error) => error.help(),
            Self::Select(_) => "--set weir.io=pwrite works everywhere".to_owned(),
            Self::Listen { .. } => {
                "give another address with --listen HOST:PORT; port 0 takes a free one".to_owned()
            }
            Self::Mirrors(_) => "restore the metadata store from a backup".to_owned(),
            Self::Stopped => "start it again".to_owned(),
        }
    }
}

/// Why a topic was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateTopicError {
    /// There is one of this name.
    #[error("Topic '{name}' already exists.")]
    Exists {
        /// The name.
        name: String,
    },
    /// Another topic has this id.
    #[error("topic id {id} belongs to topic {name}")]
    IdTaken {
        /// The id.
        id: Uuid,
        /// Its topic.
        name: String,
    },
    /// A directory of this name is there, with data that this node does not know.
    #[error("{path} is in the way: it has data of an unknown topic")]
    InTheWay {
        /// The directory.
        path: PathBuf,
    },
    /// The disk failed.
    #[error("the directory of a partition cannot be made: {reason}")]
    Disk {
        /// What failed.
        reason: String,
    },
    /// The metadata store failed, or something changed meanwhile.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The node is shutting down.
    #[error("the node is shutting down")]
    ShutDown,
}

/// A running node, without its sockets.
pub struct Node {
    config: Config,
    metadata: Metadata,
    shards: Shards,
    dirs: Vec<LogDir>,
    partitions: RwLock<HashMap<PartitionId, PartitionHandle>>,
    /// How many partitions each log directory has.
    placement: tokio::sync::Mutex<Vec<usize>>,
    advertised: std::sync::OnceLock<Address>,
    /// The log starts that stand in the checkpoint files, held by whoever writes those: what is written later is not older.
    checkpoints: tokio::sync::Mutex<HashMap<PartitionId, Offset>>,
    /// Partitions whose leader epoch must still be raised before clients may write.
    owed_epochs: std::sync::Mutex<Vec<(PartitionHandle, Leadership)>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

impl Node {
    /// Opens everything and loads every partition; a partition that cannot be loaded is offline,
    /// with its reason, and the others are served.
    ///
    /// Every start that is not clean raises the leader epochs of writable partitions before it
    /// returns.
    ///
    /// # Errors
    /// [`StartError`]: nothing runs.
    pub async fn start(config: Config) -> Result<Arc<Self>, StartError> {
        Self::start_watched(config, &Starting::new()).await
    }

    /// As [`Node::start`], for somebody who wants to know how far it is, or to end it: what was loaded by then is closed,
    /// and the next start goes on from there.
    ///
    /// # Errors
    /// [`StartError`]: nothing runs. [`StartError::Stopped`] if it was interrupted.
    pub async fn start_watched(config: Config, starting: &Arc<Starting>) -> Result<Arc<Self>, StartError> {
        let wanted = match config.io {
            IoBackend::Auto => WantedBackend::Auto,
            IoBackend::Uring => WantedBackend::Uring,
            IoBackend::Pwrite => WantedBackend::Pwrite,
        };
        let opened = {
            let config = config.clone();
            let open = move || -> Result<DataDirs, StartError> {
                let (mut io, selected) = select(wanted, &IoConfig::default())?;
                let dirs = DataDirs::open(&config, &mut *io)?;
                tracing::info!(backend = %selected, "disk access");
                Ok(dirs)
            };
            tokio::task::spawn_blocking(open).await.map_err(|_| StartError::Stopped)??
        };
        Self::over(config, wanted, opened, starting).await
    }

    async fn over(
        config: Config,
        wanted: WantedBackend,
        opened: DataDirs,
        starting: &Arc<Starting>,
    ) -> Result<Arc<Self>, StartError> {
        for name in config.without_effect() {
            tracing::warn!(option = name, "read, but without effect in this build");
        }
        if config.flush != Flush::AcksAll {
            tracing::warn!("weir.flush: acks=all is answered when written, not when synced");
        }
        let limits = disk_limits(config.shards);
        let open = || -> crate::shard::OpenIo {
            Box::new(move || {
                let (io, selected) = select(wanted, &limits)?;
                tracing::debug!(backend = %selected, "disk access of a shard");
                Ok(io)
            })
        };
        let tail = TailMemory::new(config.tail_bytes);
        let open = (0..config.shards).map(|_| open()).collect();
        let shards = Shards::start(open, shard_config(&config), tail)?;
        let placement = opened.dirs.iter().map(|dir| dir.found.len()).collect();
        let node = Arc::new(Self {
            config,
            metadata: opened.metadata,
            shards,
            dirs: opened.dirs,
            partitions: RwLock::new(HashMap::new()),
            placement: tokio::sync::Mutex::new(placement),
            advertised: std::sync::OnceLock::new(),
            checkpoints: tokio::sync::Mutex::new(HashMap::new()),
            owed_epochs: std::sync::Mutex::new(Vec::new()),
        });
        let helper = HelperIo { wanted, limits: IoConfig::default().with_max_open_files(HELPER_FILES) };
        let loaded = node.load_partitions(helper, starting).await;
        if loaded.is_err() {
            node.stop().await;
        }
        loaded.map(|()| node)
    }

    /// The options.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The cluster's metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The log directories.
    pub fn log_dirs(&self) -> &[LogDir] {
        &self.dirs
    }

    /// The address that clients are told.
    pub fn advertised(&self) -> Address {
        self.advertised.get().cloned().unwrap_or(Address { host: "localhost".to_owned(), port: 0 })
    }

    /// Says where clients reach this node; the first call counts.
    pub fn set_advertised(&self, address: Address) {
        let _ = self.advertised.set(address);
    }

    /// A partition of this node.
    pub fn partition(&self, id: PartitionId) -> Option<PartitionHandle> {
        self.partitions.read().expect("no holder of this lock panics").get(&id).cloned()
    }

    /// All partitions of this node, in no order.
    pub fn partitions(&self) -> Vec<PartitionHandle> {
        self.partitions.read().expect("no holder of this lock panics").values().cloned().collect()
    }

    async fn load_partitions(&self, helper: HelperIo, starting: &Arc<Starting>) -> Result<(), StartError> {
        let mut known: HashMap<(String, i32), Uuid> = HashMap::new();
        for topic in self.metadata.topics() {
            for id in topic.partition_ids() {
                known.insert((topic.name.clone(), id.partition), topic.id);
            }
        }
        let mut homes: HashMap<PartitionId, usize> = HashMap::new();
        // Offline, and why was said.
        let mut explained: HashSet<PartitionId> = HashSet::new();
        for (place, dir) in self.dirs.iter().enumerate() {
            for (partition, topic_id) in &dir.found {
                let expected = known.get(&(partition.topic.clone(), partition.partition));
                let path = dir.path.join(partition.to_string());
                let id = expected
                    .map(|topic_id| PartitionId { topic_id: *topic_id, partition: partition.partition });
                match (id, topic_id) {
                    (Some(id), FoundId::Known(found)) if id.topic_id == *found => {
                        if let Some(other) = homes.insert(id, place) {
                            tracing::error!(
                                dir = %path.display(), other = %self.dirs[other].path.display(),
                                "a partition is in two log directories: offline, both left untouched; move the \
                                 copy that is not wanted out of its log directory"
                            );
                            explained.insert(id);
                        }
                    }
                    (Some(id), FoundId::Missing) => {
                        tracing::error!(
                            dir = %path.display(),
                            "nothing says whose log this is: offline, left untouched; if it is not a copy from \
                             elsewhere, write the lines \"version: 0\" and \"topic_id: {}\" into its \
                             {PARTITION_METADATA} and start again",
                            id.topic_id
                        );
                        explained.insert(id);
                    }
                    (Some(id), FoundId::Unreadable { reason }) => {
                        tracing::error!(
                            dir = %path.display(), reason,
                            "{PARTITION_METADATA} cannot be read: offline, left untouched; check its permissions \
                             and the disk, and start again"
                        );
                        explained.insert(id);
                    }
                    (_, found) => {
                        let found = match found {
                            FoundId::Known(id) => id.to_string(),
                            FoundId::Missing | FoundId::Unreadable { .. } => "unknown".to_owned(),
                        };
                        tracing::error!(
                            dir = %path.display(), topic_id = found,
                            "stray partition: the metadata store does not know it; left untouched"
                        );
                    }
                }
            }
        }
        for id in &explained {
            // Of a copy and its original, nobody knows here which has what was acknowledged.
            homes.remove(id);
        }
        let mut handles = Vec::new();
        let mut jobs: Vec<VecDeque<Job>> = self.dirs.iter().map(|_| VecDeque::new()).collect();
        for topic in self.metadata.topics() {
            for id in topic.partition_ids() {
                let Some(place) = homes.get(&id) else {
                    if !explained.contains(&id) {
                        let name = format!("{}-{}", topic.name, id.partition);
                        tracing::error!(
                            partition = name,
                            "its directory is missing: offline, not made anew; put it back while the node is stopped"
                        );
                    }
                    continue;
                };
                let spec = self.spec(&topic, id, &self.dirs[*place]);
                let (handle, announced) = self.shard(id).announce(&spec);
                handles.push(handle);
                jobs[*place].push_back(Job::new(spec, announced));
            }
        }
        self.partitions
            .write()
            .expect("no holder of this lock panics")
            .extend(handles.iter().map(|handle| (handle.id(), handle.clone())));
        let threads = self.config.recovery_threads;
        let begin = {
            let starting = Arc::clone(starting);
            move || loading::load(jobs, threads, &helper, &starting)
        };
        let mut loaded = tokio::task::spawn_blocking(begin).await.map_err(|_| StartError::Stopped)??;
        let adopting = async {
            let (mut some, mut kept) = (Vec::new(), tokio::time::Instant::now());
            while loaded.recv_many(&mut some, EPOCHS_PER_TXN).await > 0 {
                self.adopt(std::mem::take(&mut some)).await?;
                if kept.elapsed() >= CHECKPOINT_WHILE_LOADING {
                    // What was recovered is not read again after a crash.
                    kept = tokio::time::Instant::now();
                    self.write_checkpoints().await.map_err(|_| StartError::Stopped)?;
                }
            }
            Ok::<(), StartError>(())
        };
        tokio::select! {
            adopted = adopting => adopted?,
            never = loading::say_how_far(starting) => match never {},
        }
        if starting.is_interrupted() || !starting.progress().is_done() {
            tracing::info!("the start ends: {}", starting.progress());
            return Err(StartError::Stopped);
        }
        for handle in &handles {
            handle.loaded().await;
        }
        Ok(())
    }

    /// Gives partitions that were loaded to their shards. Each is served from then on, a writable one under a leader epoch
    /// that is stored.
    async fn adopt(&self, mut loaded: Vec<Loaded>) -> Result<(), StartError> {
        let mut raised: BTreeMap<PartitionId, Leadership> = BTreeMap::new();
        for one in &mut loaded {
            let id = one.spec.id;
            one.spec.leadership = self.metadata.leadership(id);
            if let Ok(log) = &one.log
                && let Some(leadership) =
                    self.epoch_after_start(&one.spec.leadership, &log.view(), one.spec.options.clean_shutdown)
            {
                raised.insert(id, leadership);
            }
        }
        let stored = match raised.is_empty() {
            true => Ok(()),
            false => {
                let partitions = raised.iter().map(|(id, leadership)| (*id, leadership.clone()));
                let change = Change { partitions: partitions.collect(), ..Change::default() };
                self.metadata.commit(change).await.map(|_| ())
            }
        };
        for mut one in loaded {
            let id = one.spec.id;
            let mut refuse = None;
            if let Some(leadership) = raised.remove(&id) {
                match &stored {
                    Ok(()) => one.spec.leadership = leadership,
                    Err(error) => {
                        let reason = self.epoch_not_raised(one.spec.topic.as_str(), id, error);
                        if let Some(handle) = self.partition(id) {
                            self.owed_epochs().push((handle, leadership));
                        }
                        refuse = Some(Arc::from(reason));
                    }
                }
            }
            self.shard(id).adopt(one, refuse).await.map_err(|_| StartError::Stopped)?;
        }
        Ok(())
    }

    /// Says that an epoch cannot be raised, and why writes are refused meanwhile.
    fn epoch_not_raised(&self, topic: &str, id: PartitionId, error: &MetadataError) -> String {
        let error = describe(error);
        tracing::error!(
            topic,
            partition = id.partition,
            error,
            "the leader epoch cannot be raised: reads are served, writes refused"
        );
        format!("its leader epoch cannot be raised: {error}")
    }

    /// The leadership that a partition must get before it is served, if it is another one.
    ///
    /// A mirrored partition keeps its epochs. A writable one gets one above its own and its log's
    /// newest after a start that was not clean, and is never below its log's newest.
    fn epoch_after_start(&self, now: &Leadership, view: &LogView, clean: bool) -> Option<Leadership> {
        if now.read_only.is_some() {
            return None;
        }
        let newest = view.leader_epoch.map_or(-1, LeaderEpoch::get);
        let own = now.leader_epoch.get();
        let wanted = if clean { own.max(newest) } else { own.max(newest).saturating_add(1) };
        let wanted = LeaderEpoch::new(wanted)?;
        (wanted != now.leader_epoch).then_some(Leadership { leader_epoch: wanted, read_only: None })
    }

    async fn raise_epochs(&self, raise: Vec<(PartitionHandle, Leadership)>) {
        for part in raise.chunks(EPOCHS_PER_TXN) {
            let partitions = part.iter().map(|(handle, leadership)| (handle.id(), leadership.clone()));
            let change = Change { partitions: partitions.collect(), ..Change::default() };
            let stored = self.metadata.commit(change).await;
            for (handle, leadership) in part {
                let told = match &stored {
                    Ok(_) => handle.set_leadership(leadership.clone()).await,
                    Err(error) => {
                        let reason = self.epoch_not_raised(handle.topic(), handle.id(), error);
                        self.owed_epochs().push((handle.clone(), leadership.clone()));
                        let kept = self.metadata.leadership(handle.id());
                        handle.refuse_writes(kept, &reason).await
                    }
                };
                if told.is_err() {
                    return;
                }
            }
        }
    }

    fn owed_epochs(&self) -> std::sync::MutexGuard<'_, Vec<(PartitionHandle, Leadership)>> {
        self.owed_epochs.lock().expect("no holder of this lock panics")
    }

    /// Tries again, until it is done, to raise the epochs that a start could not raise: then clients
    /// may write.
    pub async fn raise_owed_epochs(&self) {
        while !self.owed_epochs().is_empty() {
            tokio::time::sleep(RAISE_AGAIN_AFTER).await;
            let owed = std::mem::take(&mut *self.owed_epochs());
            let count = owed.len();
            self.raise_epochs(owed).await;
            let left = self.owed_epochs().len();
            if left < count {
                tracing::info!(raised = count - left, left, "leader epochs raised: writes are taken");
            }
        }
    }

    /// What barriers did since it started.
    pub fn barriers(&self) -> &BarrierCounters {
        self.shards.barriers()
    }

    fn shard(&self, id: PartitionId) -> &ShardHandle {
        self.shards.of(id)
    }

    fn spec(&self, topic: &Topic, id: PartitionId, dir: &LogDir) -> PartitionSpec {
        let name = TopicPartition::new(topic.name.as_str(), id.partition);
        let offset = |offsets: &BTreeMap<TopicPartition, Offset>| offsets.get(&name).copied();
        PartitionSpec {
            id,
            topic: topic.name.clone(),
            log_dir: dir.path.clone(),
            dir: dir.path.join(name.to_string()),
            log: self.log_config(&topic.configs),
            options: OpenOptions {
                side_dir: side_dir_of(dir, id),
                clean_shutdown: dir.clean,
                recovery_point: offset(&dir.recovery_points.offsets).unwrap_or(Offset::ZERO),
                log_start_offset: offset(&dir.log_starts.offsets).unwrap_or(Offset::ZERO),
                now: clock::now(),
            },
            leadership: self.metadata.leadership(id),
        }
    }

    /// The settings of a log, from its topic's and the node's.
    pub fn log_config(&self, configs: &BTreeMap<String, String>) -> LogConfig {
        let number = |name: &str| self.config.topic_number(configs, name);
        let bounded = |name: &str, least: u32| {
            u32::try_from(number(name)).unwrap_or(u32::MAX).clamp(least, i32::MAX.unsigned_abs())
        };
        let timestamp_type = configs
            .get("message.timestamp.type")
            .cloned()
            .or_else(|| self.config.topic_default("message.timestamp.type").map(|(value, _)| value));
        let append_time = timestamp_type.as_deref() == Some("LogAppendTime");
        let policy = configs
            .get("cleanup.policy")
            .cloned()
            .or_else(|| self.config.topic_default("cleanup.policy").map(|(value, _)| value))
            .unwrap_or_default();
        let policy = |wanted: &str| policy.split(',').any(|part| part.trim() == wanted);
        // -1: for ever, or all of it.
        let kept = |name: &str| u64::try_from(number(name)).ok();
        let expiration = u64::try_from(self.config.producer_id_expiration_ms).unwrap_or(u64::MAX);
        LogConfig {
            segment: SegmentConfig {
                segment_bytes: bounded("segment.bytes", 1),
                segment_ms: number("segment.ms").max(1),
                segment_index_bytes: bounded("segment.index.bytes", 24),
                index_interval_bytes: bounded("index.interval.bytes", 0),
            },
            psm: PsmConfig {
                producer_id_expiration: Duration::from_millis(expiration),
                max_producers: usize::try_from(self.config.number("weir.max.producer.ids.per.partition"))
                    .ok(),
            },
            max_message_bytes: usize::try_from(number("max.message.bytes")).unwrap_or(0),
            max_decompressed_message_bytes: usize::try_from(number("max.decompressed.message.bytes"))
                .unwrap_or(0),
            message_timestamp_before_max_ms: number("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms: number("message.timestamp.after.max.ms"),
            compact: policy("compact"),
            delete: policy("delete"),
            retention: RetentionConfig {
                ms: kept("retention.ms"),
                bytes: kept("retention.bytes"),
                future_by_file_age: self
                    .config
                    .value("weir.retention.future.by.file.age")
                    .map(|(value, _)| value)
                    == Some("true"),
            },
            segment_jitter_ms: number("segment.jitter.ms"),
            message_timestamp_type: if append_time {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            durability: match self.config.flush {
                Flush::AcksAll => Durability::Synced,
                Flush::Interval | Flush::Os => Durability::Written,
            },
            ..LogConfig::default()
        }
    }

    /// Makes a topic: its directories first, then its rows, together with `change`, whose
    /// comparisons must hold; when it returns, its partitions are served.
    ///
    /// The directories come first so that a topic in the store has them: one whose directory is
    /// missing at a start is a loss, and is never made anew. A crash in between leaves directories
    /// without data, which the next creation of that name takes over.
    ///
    /// # Errors
    /// [`CreateTopicError`]; there is no topic then.
    pub async fn create_topic(&self, topic: Topic, change: Change) -> Result<(), CreateTopicError> {
        let mut placement = self.placement.lock().await;
        if self.metadata.topic(&topic.name).is_some() {
            return Err(CreateTopicError::Exists { name: topic.name });
        }
        if let Some(other) = self.metadata.topic_by_id(topic.id) {
            return Err(CreateTopicError::IdTaken { id: topic.id, name: other.name.clone() });
        }
        let mut homes = Vec::new();
        let mut counts = placement.clone();
        for id in topic.partition_ids() {
            let place = (0..counts.len()).min_by_key(|place| counts[*place]).unwrap_or(0);
            counts[place] += 1;
            homes.push((id, place));
        }
        let wanted: Vec<(PathBuf, Uuid)> = homes
            .iter()
            .map(|(id, place)| {
                let name = TopicPartition::new(topic.name.as_str(), id.partition).to_string();
                (self.dirs[*place].path.join(name), id.topic_id)
            })
            .collect();
        let shard = self.shards.all()[0].clone();
        let made = shard.run_io(move |io| make_partition_dirs(io, &wanted)).await;
        made.map_err(|_| CreateTopicError::ShutDown)??;
        let topic_change = Change { put_topics: vec![topic.clone()], ..change };
        self.metadata.commit(topic_change).await?;
        *placement = counts;
        drop(placement);
        for (id, place) in homes {
            let mut spec = self.spec(&topic, id, &self.dirs[place]);
            // Nothing is in it: there is nothing to recover, and no checkpoint of an older topic
            // of this name counts.
            spec.options.clean_shutdown = false;
            spec.options.recovery_point = Offset::ZERO;
            spec.options.log_start_offset = Offset::ZERO;
            let leadership = spec.leadership.clone();
            let handle = self.shard(id).open(spec).await.map_err(|_| CreateTopicError::ShutDown)?;
            if handle.loaded().await.view().is_some() {
                handle.set_leadership(leadership).await.map_err(|_| CreateTopicError::ShutDown)?;
            }
            self.partitions.write().expect("no holder of this lock panics").insert(id, handle);
        }
        tracing::info!(topic = topic.name, topic_id = %topic.id, partitions = topic.partitions, "topic created");
        Ok(())
    }

    /// Commits a change and tells the shards of every partition whose leadership it changes.
    ///
    /// # Errors
    /// [`MetadataError`]: nothing has changed.
    pub async fn commit(&self, change: Change) -> Result<(), MetadataError> {
        let led = change.partitions.clone();
        self.metadata.commit(change).await?;
        for (id, leadership) in led {
            if let Some(handle) = self.partition(id) {
                handle.set_leadership(leadership).await.map_err(|_| MetadataError::ShutDown)?;
            }
        }
        Ok(())
    }

    /// Writes the checkpoint files of every log directory; whether all of them were. What the disk refuses is logged.
    ///
    /// # Errors
    /// [`PartitionError::ShutDown`].
    pub async fn write_checkpoints(&self) -> Result<bool, PartitionError> {
        let mut written = self.checkpoints.lock().await;
        self.write_checkpoints_and_note(&mut written).await
    }

    /// Makes log starts durable that were moved; which of them are. One write serves all who ask at the same time.
    ///
    /// # Errors
    /// [`PartitionError::ShutDown`].
    pub async fn write_log_starts(
        &self,
        moved: &[(PartitionId, Offset)],
    ) -> Result<Vec<bool>, PartitionError> {
        let mut written = self.checkpoints.lock().await;
        let stands = |written: &HashMap<PartitionId, Offset>, (id, start): &(PartitionId, Offset)| {
            *start == Offset::ZERO || written.get(id).is_some_and(|found| found >= start)
        };
        if !moved.iter().all(|moved| stands(&written, moved)) {
            self.write_checkpoints_and_note(&mut written).await?;
        }
        Ok(moved.iter().map(|moved| stands(&written, moved)).collect())
    }

    async fn write_checkpoints_and_note(
        &self,
        written: &mut HashMap<PartitionId, Offset>,
    ) -> Result<bool, PartitionError> {
        let mut points = Vec::new();
        for shard in self.shards.all() {
            points.extend(shard.points().await?);
        }
        let dirs: Vec<PathBuf> = self.dirs.iter().map(|dir| dir.path.clone()).collect();
        let shard = &self.shards.all()[0];
        let write = move |io: &mut dyn Io| {
            let is_written = |dir: &PathBuf| match write_checkpoints(io, dir, &points) {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), error = describe(&error), "checkpoints not written");
                    false
                }
            };
            let (done, failed): (Vec<PathBuf>, Vec<PathBuf>) = dirs.into_iter().partition(is_written);
            points.retain(|point| done.contains(&point.log_dir));
            (points, failed.is_empty())
        };
        let (points, all) = shard.run_io(write).await?;
        written.extend(points.iter().map(|point| (point.id, point.log_start_offset)));
        for (id, cut) in points.iter().filter_map(|point| Some((point.id, point.unsettled_cut?))) {
            self.shard(id).point_saved(id, cut).await?;
        }
        Ok(all)
    }

    /// Writes the checkpoint files every now and then, until the node stops; only what changed
    /// wakes the disk.
    pub async fn checkpoint_loop(&self) {
        let mut last: Vec<(PartitionId, Offset, Offset)> = Vec::new();
        loop {
            tokio::time::sleep(self.config.checkpoint_interval).await;
            let mut now: Vec<(PartitionId, Offset, Offset)> = self
                .partitions()
                .iter()
                .filter_map(|handle| {
                    let view = handle.view().ok()?;
                    Some((handle.id(), view.high_watermark, view.log_start_offset))
                })
                .collect();
            now.sort_unstable();
            if now == last {
                continue;
            }
            match self.write_checkpoints().await {
                Ok(true) => last = now,
                // What the disk refused is tried again.
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }

    /// Finishes what was asked, closes every log, writes the checkpoints and, where everything was
    /// closed whole, the clean marker. Answers whether all of it was clean.
    pub async fn stop(&self) -> bool {
        // An epoch that is still owed is owed by the next start as well, so it must not look clean.
        let owed = self.owed_epochs().len();
        let limits = IoConfig::default().with_max_open_files(HELPER_FILES);
        let io = HelperIo { wanted: WantedBackend::Pwrite, limits };
        let points = self.shards.stop_with(Some(Closers { io, threads: CLOSE_THREADS })).await;
        let unloaded: usize = self
            .metadata
            .topics()
            .iter()
            .map(|topic| usize::try_from(topic.partitions).unwrap_or(0))
            .sum::<usize>()
            .saturating_sub(points.len());
        let unclean = unloaded + owed;
        let dirs: Vec<PathBuf> = self.dirs.iter().map(|dir| dir.path.clone()).collect();
        let leave = move || leave_dirs(&dirs, &points, unclean);
        tokio::task::spawn_blocking(leave).await.unwrap_or(false)
    }
}

/// In weir's own directory, those of the partitions.
pub(crate) const PARTITION_SIDE_DIRS: &str = "partitions";

fn shard_config(config: &Config) -> ShardConfig {
    let interval = |name: &str| Duration::from_millis(u64::try_from(config.number(name)).unwrap_or(1));
    ShardConfig {
        flush_interval: config.flush == Flush::Interval,
        expiry_interval: interval("producer.id.expiration.check.interval.ms"),
        retention_interval: interval("log.retention.check.interval.ms"),
    }
}

/// weir's own directory of one partition, beside the log directory.
fn side_dir_of(dir: &LogDir, id: PartitionId) -> PathBuf {
    partition_side_dir(&dir.side_dir(), id.topic_id, id.partition)
}

/// weir's own directory of one partition, in the one beside its log directory.
pub(crate) fn partition_side_dir(side_dir: &Path, topic_id: Uuid, partition: i32) -> PathBuf {
    side_dir.join(PARTITION_SIDE_DIRS).join(format!("{topic_id}-{partition}"))
}

/// Makes the directories of a topic's partitions, with the topic's id in them.
fn make_partition_dirs(io: &mut dyn Io, wanted: &[(PathBuf, Uuid)]) -> Result<(), CreateTopicError> {
    let failed = |error: weir_segment::io::IoError| CreateTopicError::Disk { reason: describe(&error) };
    for (path, _) in wanted {
        if io.metadata(path).map_err(failed)?.is_some() && holds_data(io, path).map_err(failed)? {
            return Err(CreateTopicError::InTheWay { path: path.clone() });
        }
    }
    for (path, topic_id) in wanted {
        durable::create_dir_all(io, path).map_err(failed)?;
        PartitionMetadata { topic_id: *topic_id }.write(io, path).map_err(failed)?;
    }
    Ok(())
}

/// Whether anything but an identity and empty files is in a directory.
fn holds_data(io: &mut dyn Io, dir: &Path) -> Result<bool, weir_segment::io::IoError> {
    for entry in io.list(dir)? {
        let is_identity =
            entry.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PARTITION_METADATA));
        let size = io.metadata(&entry)?.map_or(0, |found| if found.is_dir { 1 } else { found.size });
        if !is_identity && size > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Half of the descriptors that this process may have, shared by its shards; the other half is for connections.
fn disk_limits(shards: usize) -> IoConfig {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let most = IoConfig::default().pwrite.max_open_files;
    IoConfig::default().with_max_open_files((limit / 2 / shards.max(1)).clamp(16, most))
}

/// The last acts of a stop.
fn leave_dirs(dirs: &[PathBuf], points: &[LogPoints], unclean: usize) -> bool {
    // The shards' disks are closed by now; names and small files are what this one is for.
    let Ok((mut io, _)) = select(WantedBackend::Pwrite, &IoConfig::default()) else { return false };
    let mut all_clean = true;
    for dir in dirs {
        let clean =
            points.iter().filter(|point| &point.log_dir == dir).all(|point| point.clean) && unclean == 0;
        let left = write_checkpoints(&mut *io, dir, points).and_then(|()| {
            if clean {
                // DURABLE: everything above is, so the next start needs no recovery.
                CleanShutdown { broker_epoch: None }.write(&mut *io, dir)?;
            }
            Ok(())
        });
        if let Err(error) = &left {
            tracing::error!(dir = %dir.display(), error = describe(error), "no clean marker");
        }
        all_clean &= clean && left.is_ok();
    }
    all_clean
}

#[cfg(test)]
mod tests;
