//! Names on a real file system: what the backends that use one have in common. All blocking.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{IoError, Metadata, Operation};

/// [`Io::rename`](super::Io::rename), without what it means for open files.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), IoError> {
    std::fs::rename(from, to).map_err(|e| IoError::os(Operation::Rename, from, None, e))
}

/// [`Io::remove`](super::Io::remove).
pub(super) fn remove(path: &Path) -> Result<(), IoError> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.map_err(|e| IoError::os(Operation::Remove, path, None, e))
}

/// [`Io::list`](super::Io::list).
pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>, IoError> {
    let failed = |e| IoError::os(Operation::List, dir, None, e);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// [`Io::metadata`](super::Io::metadata).
pub(super) fn metadata(path: &Path) -> Result<Option<Metadata>, IoError> {
    match std::fs::metadata(path) {
        Ok(metadata) => {
            let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let is_dir = metadata.is_dir();
            Ok(Some(Metadata {
                is_dir,
                is_file: metadata.is_file(),
                size: if is_dir { 0 } else { metadata.len() },
                modified_ms: since.and_then(|since| i64::try_from(since.as_millis()).ok()),
            }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(IoError::os(Operation::Metadata, path, None, error)),
    }
}

/// [`Io::create_dir_all`](super::Io::create_dir_all).
pub(super) fn create_dir_all(dir: &Path) -> Result<(), IoError> {
    std::fs::create_dir_all(dir).map_err(|e| IoError::os(Operation::CreateDirectory, dir, None, e))
}

/// [`Io::sync_dir`](super::Io::sync_dir).
pub(super) fn sync_dir(dir: &Path) -> Result<(), IoError> {
    let opened = File::open(dir).map_err(|e| IoError::os(Operation::SyncDirectory, dir, None, e))?;
    loop {
        match opened.sync_all() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(IoError::os(Operation::SyncDirectory, dir, None, error)),
        }
    }
}
