//! What a path is: a partition, a log directory, several of these, or a file.

use std::io;
use std::path::{Path, PathBuf};

use weir_recovery::partition_file::PARTITION_FILE_NAME;
use weir_segment::layout::{
    CLEAN_SHUTDOWN_MARKER, DirectoryName, HIGH_WATERMARK_CHECKPOINT, LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT, META_PROPERTIES, PARTITION_METADATA, RECOVERY_POINT_CHECKPOINT, SegmentFileName,
};

use super::files::{Entry, Files};

/// What there is to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// A file by itself.
    File { size: u64 },
    /// One partition's directory.
    Partition,
    /// A log directory with these partitions.
    LogDir,
    /// A directory of log directories.
    Root(Vec<PathBuf>),
}

/// Why a path cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Nothing is there.
    #[error("{} is not there", path.display())]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// A pipe, a socket or a device.
    #[error("{} is neither a directory nor a file", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// Nothing in it is known.
    #[error("{} holds nothing that Kafka or weir writes", path.display())]
    Nothing {
        /// The path as given.
        path: PathBuf,
        /// How many names are in it.
        names: usize,
    },
    /// weir's own directory beside a log directory.
    #[error("{} is weir's own directory beside {}", path.display(), log_dir.display())]
    SideDir {
        /// The path as given.
        path: PathBuf,
        /// What it belongs to.
        log_dir: PathBuf,
    },
    /// The system does not let it be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl TargetError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::Missing { .. } => "check the path; is the disk mounted?".to_owned(),
            Self::NotAFile { .. } => {
                "give a partition's directory, a log directory, or a file in one".to_owned()
            }
            Self::Nothing { names: 0, .. } => {
                "it is empty: `weir serve` would format it as a new log directory".to_owned()
            }
            Self::Nothing { .. } => {
                "give a partition's directory, a log directory, or a file in one".to_owned()
            }
            Self::SideDir { log_dir, .. } => {
                format!("look at both with weir inspect {}", super::analyse::shell_quoted(log_dir))
            }
            Self::Io { .. } => "check that this user may read it, and the disk's own log".to_owned(),
        }
    }
}

const LOG_DIR_FILES: [&str; 5] = [
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEAN_SHUTDOWN_MARKER,
];

/// Looks at names only.
pub(super) fn target(files: &dyn Files, path: &Path) -> Result<Target, TargetError> {
    let io = |source| TargetError::Io { path: path.to_path_buf(), source };
    match files.entry(path).map_err(io)? {
        None => return Err(TargetError::Missing { path: path.to_path_buf() }),
        Some(Entry::File { size }) => return Ok(Target::File { size }),
        Some(Entry::Other) => return Err(TargetError::NotAFile { path: path.to_path_buf() }),
        Some(Entry::Directory) => {}
    }
    let names = files.list(path).map_err(io)?;
    let own = name_of(path);
    match kind(files, &names) {
        Some(kind) => return Ok(kind),
        None if matches!(DirectoryName::parse(&own), DirectoryName::Partition(_)) => {
            return Ok(Target::Partition);
        }
        None => {}
    }
    let side = own.strip_suffix(".weir").filter(|name| !name.is_empty());
    if let Some(log_dir) = side.map(|name| path.with_file_name(name))
        && matches!(files.entry(&log_dir), Ok(Some(Entry::Directory)))
    {
        return Err(TargetError::SideDir { path: path.to_path_buf(), log_dir });
    }
    let within: Vec<PathBuf> = names
        .iter()
        .filter(|path| matches!(files.entry(path), Ok(Some(Entry::Directory))))
        .filter(|path| {
            files.list(path).is_ok_and(|names| matches!(kind(files, &names), Some(Target::LogDir)))
        })
        .cloned()
        .collect();
    if within.is_empty() {
        return Err(TargetError::Nothing { path: path.to_path_buf(), names: names.len() });
    }
    Ok(Target::Root(within))
}

/// What a directory with these names in it is, if it is a partition or a log directory.
fn kind(files: &dyn Files, names: &[PathBuf]) -> Option<Target> {
    let is_directory = |path: &Path| matches!(files.entry(path), Ok(Some(Entry::Directory)));
    let is_partition = |path: &PathBuf| {
        !matches!(DirectoryName::parse(&name_of(path)), DirectoryName::Unknown) && is_directory(path)
    };
    if names.iter().any(|path| LOG_DIR_FILES.contains(&name_of(path).as_str()))
        || names.iter().any(is_partition)
    {
        return Some(Target::LogDir);
    }
    let of_partition = |path: &PathBuf| {
        let name = name_of(path);
        SegmentFileName::parse(&name).is_some()
            || [LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA].contains(&name.as_str())
    };
    names.iter().any(of_partition).then_some(Target::Partition)
}

/// The partitions of a log directory, and what else is in it.
pub(super) fn partitions(files: &dyn Files, dir: &Path) -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut partitions, mut others) = (Vec::new(), Vec::new());
    for path in files.list(dir)? {
        let name = name_of(&path);
        if !matches!(files.entry(&path), Ok(Some(Entry::Directory))) {
            continue;
        }
        match DirectoryName::parse(&name) {
            DirectoryName::Partition(_) => partitions.push(path),
            _ => others.push(path),
        }
    }
    partitions.sort_by_key(|path| match DirectoryName::parse(&name_of(path)) {
        DirectoryName::Partition(name) => Some((name.topic, name.partition)),
        _ => None,
    });
    Ok((partitions, others))
}

pub(super) fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What a file is, by its name.
pub(super) fn file_kind(name: &str) -> &'static str {
    match name {
        LEADER_EPOCH_CHECKPOINT => "leader-epoch checkpoint",
        PARTITION_METADATA => "partition metadata",
        META_PROPERTIES => "identity of a log directory",
        RECOVERY_POINT_CHECKPOINT => "recovery-point checkpoint",
        LOG_START_CHECKPOINT => "log-start checkpoint",
        HIGH_WATERMARK_CHECKPOINT => "high-watermark checkpoint",
        CLEAN_SHUTDOWN_MARKER => "clean-shutdown marker",
        PARTITION_FILE_NAME => "weir's partition file",
        name if name.starts_with("cut-") && name.ends_with(".log") => "archive of what was cut",
        _ => "file of no known name",
    }
}
