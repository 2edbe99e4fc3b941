//! What an inspection reads: names, sizes and bytes. It takes no lock and writes nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::process::{Flock, FlockType};

use crate::data_dir::LOCK_FILE;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A file, and its size in bytes.
    File {
        /// In bytes.
        size: u64,
    },
    /// A directory.
    Directory,
    /// Something else, which is never opened: a pipe, a socket, a device, a link to nothing.
    Other,
}

/// Who has a log directory open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its process id, where the system tells.
    pub pid: Option<i32>,
}

/// A tree of files, to be read.
pub trait Files {
    /// The full paths of everything in a directory, in ascending order of name.
    ///
    /// # Errors
    /// Those of the system.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// What is at a path, links followed; `None` if nothing is.
    ///
    /// # Errors
    /// Those of the system.
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>>;

    /// Opens a file; whatever else is there is an error and does not make this wait.
    ///
    /// # Errors
    /// Those of the system.
    fn open(&self, path: &Path) -> io::Result<Box<dyn FileBytes>>;

    /// Who has the log directory open, by its lock file, which is only asked and never taken.
    fn holder(&self, log_dir: &Path) -> Option<Holder>;
}

/// An open file.
pub trait FileBytes {
    /// Its size now, in bytes.
    ///
    /// # Errors
    /// Those of the system.
    fn size(&self) -> io::Result<u64>;

    /// Reads into a prefix of `into`; 0 at the end of the file.
    ///
    /// # Errors
    /// Those of the system.
    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Whether the file has nothing but zeros from a position on because nothing was ever written there; false if that
    /// would have to be read to be known.
    fn is_unwritten_from(&self, position: u64) -> bool;
}

/// Fills `into` as far as the file goes.
pub(super) fn read_up_to(file: &dyn FileBytes, position: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest_position(position, filled), rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn rest_position(position: u64, filled: usize) -> u64 {
    position.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX))
}

/// The whole of a small file; `None` if it is not there.
///
/// # Errors
/// Those of the system; [`ErrorKind::FileTooLarge`] above `limit` bytes.
pub(super) fn read_small(files: &dyn Files, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    if files.entry(path)?.is_none() {
        return Ok(None);
    }
    let file = files.open(path)?;
    let size = file.size()?;
    if size > limit {
        let reason = format!("{size} bytes are more than such a file has");
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    let mut bytes = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let read = read_up_to(&*file, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskFiles;

impl Files for DiskFiles {
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut paths =
            std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(Some(Entry::Directory)),
            Ok(found) if found.is_file() => Ok(Some(Entry::File { size: found.len() })),
            Ok(_) => Ok(Some(Entry::Other)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(std::fs::symlink_metadata(path).is_ok().then_some(Entry::Other))
            }
            Err(error) => Err(error),
        }
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FileBytes>> {
        // Non-blocking: whoever opens a pipe for reading waits for its writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let found = file.metadata()?;
        if found.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        if !found.is_file() {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "not a file but a pipe, a socket or a device",
            ));
        }
        Ok(Box::new(DiskFile(file)))
    }

    fn holder(&self, log_dir: &Path) -> Option<Holder> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(log_dir.join(LOCK_FILE), flags, Mode::empty()).ok()?;
        let held = rustix::process::fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok()??;
        Some(Holder { pid: held.pid.map(|pid| pid.as_raw_nonzero().get()) })
    }
}

struct DiskFile(File);

impl FileBytes for DiskFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(into, position)
    }

    fn is_unwritten_from(&self, position: u64) -> bool {
        rustix::fs::seek(&self.0, SeekFrom::Data(position)) == Err(rustix::io::Errno::NXIO)
    }
}

/// Files in memory: a directory of any bytes, for tests.
#[derive(Debug, Clone, Default)]
pub struct MemoryFiles {
    /// Every file by its full path.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// Whether the log directories are in use.
    pub held: bool,
}

impl Files for MemoryFiles {
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for path in self.files.keys() {
            let Ok(below) = path.strip_prefix(dir) else { continue };
            if let Some(name) = below.components().next() {
                let path = dir.join(name);
                if paths.last() != Some(&path) {
                    paths.push(path);
                }
            }
        }
        paths.sort();
        paths.dedup();
        if paths.is_empty() { Err(ErrorKind::NotFound.into()) } else { Ok(paths) }
    }

    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        if let Some(bytes) = self.files.get(path) {
            return Ok(Some(Entry::File { size: u64::try_from(bytes.len()).unwrap_or(u64::MAX) }));
        }
        let below = self.files.range(path.to_path_buf()..).any(|(file, _)| file.starts_with(path));
        Ok(below.then_some(Entry::Directory))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn FileBytes>> {
        match self.files.get(path) {
            Some(bytes) => Ok(Box::new(MemoryFile(bytes.clone()))),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn holder(&self, _: &Path) -> Option<Holder> {
        self.held.then_some(Holder { pid: None })
    }
}

struct MemoryFile(Vec<u8>);

impl FileBytes for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        u64::try_from(self.0.len()).map_err(io::Error::other)
    }

    fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(position).ok().and_then(|from| self.0.get(from..)).unwrap_or_default();
        let size = rest.len().min(into.len());
        for (to, from) in into.iter_mut().zip(rest) {
            *to = *from;
        }
        Ok(size)
    }

    fn is_unwritten_from(&self, position: u64) -> bool {
        let rest = usize::try_from(position).ok().and_then(|from| self.0.get(from..)).unwrap_or_default();
        rest.is_empty()
    }
}
