//! Log directories and the metadata store at a start: locked, checked, formatted if they are empty.
//!
//! Nothing is touched before everything was looked at. An empty directory is formatted; one that
//! is not empty and has no `meta.properties`, one whose store is missing or is another's, or one
//! that another process holds, is refused as a whole (law O3).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_segment::checkpoint::{OffsetCheckpoint, ReadFileError};
use weir_segment::io::{Io, IoError, durable};
use weir_segment::layout::{
    DirectoryName, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT, TopicPartition,
};
use weir_segment::{CleanShutdown, MetaProperties, PartitionMetadata};

use crate::config::{Config, Origin};
use crate::meta_kv::{MetaKv, MetaKvError, RedbKv};
use crate::metadata::{DEFAULT_NODE_ID, Metadata, MetadataError};
use crate::shard::{LogPoints, describe};
use crate::uuid::{self, Uuid};

/// File of the metadata store in its directory.
pub const STORE_FILE: &str = "metadata.redb";
/// Kafka's lock file in a log directory.
pub const LOCK_FILE: &str = ".lock";

/// Why a node does not start on its directories.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirError {
    /// A file stands where the directory should be.
    #[error("{path} is a file, not a directory")]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Something is in the directory, and it is not a log directory.
    #[error("{path} is not empty and has no meta.properties")]
    NotALogDir {
        /// The directory.
        path: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// Another process has the directory.
    #[error("{path} is in use by another process")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// `meta.properties` cannot be read.
    #[error("{path} cannot be read as meta.properties: {reason}")]
    MetaProperties {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The directory was formatted, but its metadata store is not there.
    #[error("{log_dir} is formatted, but its metadata store {store} is missing")]
    StoreMissing {
        /// The log directory.
        log_dir: PathBuf,
        /// Where the store should be.
        store: PathBuf,
    },
    /// The store and the directory belong to different clusters or nodes.
    #[error("{log_dir} has {name}={in_dir}, but the metadata store has {in_store}")]
    Mismatch {
        /// The log directory.
        log_dir: PathBuf,
        /// What differs.
        name: &'static str,
        /// Its value in `meta.properties`.
        in_dir: String,
        /// Its value in the store, or in the options.
        in_store: String,
    },
    /// An empty directory where the store expects partitions.
    #[error("{log_dir} is empty, but the metadata store knows {topics} topics")]
    LogDirLost {
        /// The log directory.
        log_dir: PathBuf,
        /// How many topics.
        topics: usize,
    },
    /// weir's own files would lie on another file system than the log directory.
    #[error("{log_dir} is a mount point: {side_dir} would lie on another file system")]
    OtherFileSystem {
        /// The log directory.
        log_dir: PathBuf,
        /// Where weir's own files would be.
        side_dir: PathBuf,
    },
    /// The metadata store failed.
    #[error("the metadata store cannot be used")]
    Metadata(#[source] MetadataError),
    /// The disk failed.
    #[error("the disk failed")]
    Io(#[source] IoError),
    /// The system failed.
    #[error("{operation} {path} failed")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// What helps where the system said no.
const CHECK_DISK: &str = "check the disk, its free space and the permissions";

impl DataDirError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::NotADirectory { path } => {
                format!("move {} away, or give another directory with --data-dir", path.display())
            }
            Self::NotALogDir { path, .. } => format!(
                "give an empty or a new directory, for example --data-dir {}; nothing in {} was touched",
                path.join("weir").display(),
                path.display()
            ),
            Self::InUse { .. } => {
                "stop the other process, or give another directory with --data-dir".to_owned()
            }
            Self::MetaProperties { .. } => {
                "restore the file from a backup; do not delete it: the directory would look like another's"
                    .to_owned()
            }
            Self::StoreMissing { store, .. } => format!(
                "restore {} from a backup, or set weir.metadata.dir to where it is; a directory of Apache Kafka \
                 cannot be served: mirror its topics instead",
                store.display()
            ),
            Self::Mismatch { .. } => {
                "the directory or the store was copied or swapped: put back the pair that belongs together"
                    .to_owned()
            }
            Self::LogDirLost { .. } => "is the disk mounted? Mount it and start again".to_owned(),
            Self::OtherFileSystem { log_dir, .. } => format!(
                "use a folder inside the mount: --data-dir {}, or set weir.metadata.dir",
                log_dir.join("weir").display()
            ),
            Self::Metadata(MetadataError::Store(MetaKvError::InUse { .. })) => {
                "stop the other process, or give another directory with --data-dir".to_owned()
            }
            Self::Metadata(MetadataError::Store(error)) if error.is_of_system() => CHECK_DISK.to_owned(),
            Self::Metadata(_) => "restore the metadata store from a backup".to_owned(),
            Self::Io(_) | Self::System { .. } => CHECK_DISK.to_owned(),
        }
    }
}

/// One log directory, locked.
#[derive(Debug)]
pub struct LogDir {
    /// Its path.
    pub path: PathBuf,
    /// Its id.
    pub id: Uuid,
    /// Whether it was left by a clean stop. The marker is gone by now.
    pub clean: bool,
    /// What was durable at the last checkpoint.
    pub recovery_points: OffsetCheckpoint,
    /// Where the logs start.
    pub log_starts: OffsetCheckpoint,
    /// Partitions found in it, with what they say of their topic's id.
    pub found: Vec<(TopicPartition, FoundId)>,
    _lock: File,
}

impl LogDir {
    /// weir's own directory beside it.
    pub fn side_dir(&self) -> PathBuf {
        Config::side_dir(&self.path)
    }
}

/// The id of its topic that a partition's directory says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundId {
    /// `partition.metadata` has it.
    Known(Uuid),
    /// There is no `partition.metadata`.
    Missing,
    /// There is one, and it cannot be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// Everything that a start found.
#[derive(Debug)]
pub struct DataDirs {
    /// The log directories.
    pub dirs: Vec<LogDir>,
    /// The cluster's metadata.
    pub metadata: Metadata,
    /// Whether this start formatted the directories.
    pub formatted: bool,
}

enum Found {
    /// Missing or empty.
    Empty,
    /// It has a `meta.properties`.
    Formatted(MetaProperties),
}

impl DataDirs {
    /// Looks at every directory, locks them, formats them if they are empty, opens the store,
    /// reads the checkpoints and takes the clean markers away.
    ///
    /// # Errors
    /// [`DataDirError`]; unless it is the disk's fault, nothing was changed.
    pub fn open(config: &Config, io: &mut dyn Io) -> Result<Self, DataDirError> {
        let mut looked = Vec::new();
        for path in &config.log_dirs {
            looked.push((path.clone(), look_at(path, io)?));
        }
        let store_path = config.metadata_dir.join(STORE_FILE);
        // One that cannot be looked at is there: nobody is to put another in its place.
        let store_is_there = store_path.try_exists().map_err(system("look at", &store_path))?;
        for (path, found) in &looked {
            if matches!(found, Found::Formatted(_)) && !store_is_there {
                return Err(DataDirError::StoreMissing { log_dir: path.clone(), store: store_path });
            }
        }
        let chosen =
            matches!(config.value("weir.metadata.dir"), Some((_, origin)) if origin != Origin::Default);
        if !chosen {
            for path in &config.log_dirs {
                check_file_system(path)?;
            }
        }
        // From here on directories are made.
        let mut locks = Vec::new();
        for path in &config.log_dirs {
            durable::create_dir_all(io, path).map_err(DataDirError::Io)?;
            locks.push(lock(path)?);
            durable::create_dir_all(io, &Config::side_dir(path)).map_err(DataDirError::Io)?;
        }
        durable::create_dir_all(io, &config.metadata_dir).map_err(DataDirError::Io)?;
        if !store_is_there {
            format_store(config, io, &store_path)?;
        }
        let kv =
            RedbKv::open(&store_path).map_err(|error| DataDirError::Metadata(MetadataError::Store(error)))?;
        let kv: Arc<dyn MetaKv> = Arc::new(kv);
        let metadata = Metadata::open(kv).map_err(DataDirError::Metadata)?;
        let formatted = looked.iter().all(|(_, found)| matches!(found, Found::Empty));
        let mut dirs = Vec::new();
        for ((path, found), lock) in looked.into_iter().zip(locks) {
            let id = match found {
                Found::Formatted(properties) => check_identity(&path, &properties, &metadata, config)?,
                Found::Empty => adopt(&path, &metadata, io)?,
            };
            dirs.push(read_dir(path, id, lock, io)?);
        }
        Ok(Self { dirs, metadata, formatted })
    }
}

fn system(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    let path = path.to_path_buf();
    move |source| DataDirError::System { operation, path, source }
}

/// Looks, and touches nothing.
fn look_at(path: &Path, io: &mut dyn Io) -> Result<Found, DataDirError> {
    match io.metadata(path).map_err(DataDirError::Io)? {
        None => return Ok(Found::Empty),
        Some(metadata) if !metadata.is_dir => {
            return Err(DataDirError::NotADirectory { path: path.to_path_buf() });
        }
        Some(_) => {}
    }
    let properties = MetaProperties::read(io, path).map_err(|error| match error {
        ReadFileError::Io(error) => DataDirError::Io(error),
        other => DataDirError::MetaProperties { path: path.join(META_PROPERTIES), reason: describe(&other) },
    })?;
    if let Some(properties) = properties {
        return Ok(Found::Formatted(properties));
    }
    // What a format that was interrupted may have left does not count.
    let ours = |name: &str| name == LOCK_FILE || name.starts_with(META_PROPERTIES);
    for entry in io.list(path).map_err(DataDirError::Io)? {
        let name = entry.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !ours(&name) {
            return Err(DataDirError::NotALogDir { path: path.to_path_buf(), found: name });
        }
    }
    Ok(Found::Empty)
}

/// weir's own files must lie on the log directory's file system: they are renamed and synced
/// together.
fn check_file_system(log_dir: &Path) -> Result<(), DataDirError> {
    let Ok(dir) = std::fs::metadata(log_dir) else { return Ok(()) };
    let Some(parent) = log_dir.parent() else { return Ok(()) };
    let parent = std::fs::metadata(parent).map_err(system("look at", parent))?;
    if dir.dev() == parent.dev() {
        return Ok(());
    }
    Err(DataDirError::OtherFileSystem { log_dir: log_dir.to_path_buf(), side_dir: Config::side_dir(log_dir) })
}

/// Takes both kinds of lock: one that another weir sees, in this process as well, and the one that
/// a Kafka sees. Both end when the file is dropped.
pub(crate) fn lock(log_dir: &Path) -> Result<File, DataDirError> {
    let path = log_dir.join(LOCK_FILE);
    let file = File::options().create(true).truncate(false).read(true).write(true).open(&path);
    let file = file.map_err(system("open", &path))?;
    let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    let locked = rustix::fs::flock(&file, exclusive).and_then(|()| rustix::fs::fcntl_lock(&file, exclusive));
    match locked {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::ACCESS) => {
            Err(DataDirError::InUse { path: log_dir.to_path_buf() })
        }
        Err(error) => Err(system("lock", &path)(error.into())),
    }
}

/// Makes the store under another name first, so that a store that is there is a whole one.
fn format_store(config: &Config, io: &mut dyn Io, store: &Path) -> Result<(), DataDirError> {
    let unfinished = store.with_extension("redb.new");
    if io.metadata(&unfinished).map_err(DataDirError::Io)?.is_some() {
        durable::remove(io, &unfinished).map_err(DataDirError::Io)?;
    }
    let random = || uuid::random().map_err(system("read randomness from", Path::new("/dev/urandom")));
    let mut ids = Vec::new();
    for path in &config.log_dirs {
        ids.push((random()?, path.display().to_string()));
    }
    let cluster_id = random()?.to_string();
    let node_id = config.node_id.unwrap_or(DEFAULT_NODE_ID);
    {
        let failed = |error| DataDirError::Metadata(MetadataError::Store(error));
        let kv = RedbKv::create(&unfinished).map_err(failed)?;
        Metadata::format(&kv, &cluster_id, node_id, &ids).map_err(DataDirError::Metadata)?;
    }
    // DURABLE: the formatted store, under its name.
    durable::rename(io, &unfinished, store).map_err(DataDirError::Io)?;
    tracing::info!(cluster_id, node_id, store = %store.display(), "formatted a new cluster");
    Ok(())
}

/// Gives an empty directory its identity: the one that the store has for this path, or a new one.
fn adopt(path: &Path, metadata: &Metadata, io: &mut dyn Io) -> Result<Uuid, DataDirError> {
    let text = path.display().to_string();
    let known = metadata.log_dirs().map_err(DataDirError::Metadata)?;
    let of_this_path = known.iter().find(|(_, known)| **known == text).map(|(id, _)| *id);
    let id = match of_this_path {
        Some(_) if !metadata.topics().is_empty() => {
            let topics = metadata.topics().len();
            return Err(DataDirError::LogDirLost { log_dir: path.to_path_buf(), topics });
        }
        Some(id) => id,
        None => {
            let id = uuid::random().map_err(system("read randomness from", Path::new("/dev/urandom")))?;
            metadata.add_log_dir(id, &text).map_err(DataDirError::Metadata)?;
            id
        }
    };
    let properties = MetaProperties {
        version: 1,
        cluster_id: Some(metadata.cluster_id().to_owned()),
        node_id: Some(metadata.node_id()),
        directory_id: Some(id),
        ..MetaProperties::default()
    };
    // DURABLE: the directory's identity.
    properties.write(io, path).map_err(DataDirError::Io)?;
    Ok(id)
}

fn check_identity(
    path: &Path,
    properties: &MetaProperties,
    metadata: &Metadata,
    config: &Config,
) -> Result<Uuid, DataDirError> {
    let mismatch = |name: &'static str, in_dir: String, in_store: String| DataDirError::Mismatch {
        log_dir: path.to_path_buf(),
        name,
        in_dir,
        in_store,
    };
    let cluster_id = properties.cluster_id.clone().unwrap_or_default();
    if cluster_id != metadata.cluster_id() {
        return Err(mismatch("cluster.id", cluster_id, metadata.cluster_id().to_owned()));
    }
    let node_id = properties.node_id.unwrap_or(-1);
    for expected in [Some(metadata.node_id()), config.node_id].into_iter().flatten() {
        if node_id != expected {
            return Err(mismatch("node.id", node_id.to_string(), expected.to_string()));
        }
    }
    let known = metadata.log_dirs().map_err(DataDirError::Metadata)?;
    match properties.directory_id {
        Some(id) if known.contains_key(&id) => Ok(id),
        other => {
            let ids: Vec<String> = known.keys().map(ToString::to_string).collect();
            let in_dir = other.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
            Err(mismatch("directory.id", in_dir, ids.join(", ")))
        }
    }
}

/// Reads what a log directory says of its past, and takes its clean marker away.
fn read_dir(path: PathBuf, id: Uuid, lock: File, io: &mut dyn Io) -> Result<LogDir, DataDirError> {
    let clean = CleanShutdown::read(io, &path).map_err(DataDirError::Io)?.is_some();
    if clean {
        // DURABLE: a crash from here on is one.
        CleanShutdown::remove(io, &path).map_err(DataDirError::Io)?;
    }
    let mut checkpoint = |name: &str| -> OffsetCheckpoint {
        match OffsetCheckpoint::read(io, &path.join(name)) {
            Ok(found) => found,
            Err(error) => {
                // Without it more is read, nothing is lost.
                tracing::warn!(dir = %path.display(), name, error = describe(&error), "checkpoint ignored");
                OffsetCheckpoint::default()
            }
        }
    };
    let recovery_points = checkpoint(RECOVERY_POINT_CHECKPOINT);
    let log_starts = checkpoint(LOG_START_CHECKPOINT);
    let mut found = Vec::new();
    for entry in io.list(&path).map_err(DataDirError::Io)? {
        let is_dir = io.metadata(&entry).map_err(DataDirError::Io)?.is_some_and(|metadata| metadata.is_dir);
        if !is_dir {
            continue;
        }
        let name = entry.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match DirectoryName::parse(&name) {
            DirectoryName::Partition(partition) => {
                let topic_id = match PartitionMetadata::read(io, &entry) {
                    Ok(Some(metadata)) => FoundId::Known(metadata.topic_id),
                    Ok(None) => FoundId::Missing,
                    Err(error) => FoundId::Unreadable { reason: describe(&error) },
                };
                found.push((partition, topic_id));
            }
            _ => tracing::warn!(dir = %entry.display(), "not a partition: left untouched"),
        }
    }
    Ok(LogDir { path, id, clean, recovery_points, log_starts, found, _lock: lock })
}

/// Writes the checkpoint files of one log directory. Partitions that are not among `points`, since
/// they could not be opened, keep what the files say of them.
///
/// # Errors
/// The first file that could not be read or replaced; those before it were replaced, or none.
pub fn write_checkpoints(io: &mut dyn Io, log_dir: &Path, points: &[LogPoints]) -> Result<(), IoError> {
    let mut old = |name: &str| match OffsetCheckpoint::read(io, &log_dir.join(name)) {
        Ok(found) => Ok(found),
        // What is not read would be lost by writing the rest.
        Err(ReadFileError::Io(error)) => Err(error),
        // A start has said what is wrong with it, and went without it.
        Err(_) => Ok(OffsetCheckpoint::default()),
    };
    let mut recovery = old(RECOVERY_POINT_CHECKPOINT)?;
    let mut starts = old(LOG_START_CHECKPOINT)?;
    let mut watermarks = old(HIGH_WATERMARK_CHECKPOINT)?;
    for point in points.iter().filter(|point| point.log_dir == log_dir) {
        let partition = TopicPartition::new(point.topic.as_str(), point.id.partition);
        recovery.offsets.insert(partition.clone(), point.recovery_point);
        watermarks.offsets.insert(partition.clone(), point.high_watermark);
        // Kafka: only a log start that the first segment does not show is written.
        if point.log_start_offset > weir_format::Offset::ZERO {
            starts.offsets.insert(partition, point.log_start_offset);
        } else {
            starts.offsets.remove(&partition);
        }
    }
    recovery.write(io, &log_dir.join(RECOVERY_POINT_CHECKPOINT))?;
    starts.write(io, &log_dir.join(LOG_START_CHECKPOINT))?;
    watermarks.write(io, &log_dir.join(HIGH_WATERMARK_CHECKPOINT))
}

#[cfg(test)]
mod tests;
