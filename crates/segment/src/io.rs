//! The disk seam: [`Io`], its operations, its errors and its contract.
//!
//! All disk access of one shard passes through one `&mut dyn Io`: one owner, one thread, no locks. Buffers go in by
//! value and come back by value, so that a completion-based backend can own them while the kernel does.
//!
//! # Contract
//!
//! This list is the table of contents of the conformance suite (`tests/it/conformance.rs`), which runs against every
//! backend.
//!
//! - **D1** A count may be short. Backends report it; only [`exact`] loops. Zero on a non-empty write is an error.
//! - **D2** Operations in flight complete in any order. Order is imposed by waiting, never by hoping.
//! - **D3** A successful [`Op::Sync`] makes durable every write to that file whose completion was **reaped before**
//!   the sync was submitted, and every [`Io::truncate`] that returned before it. Writes still in flight are not
//!   covered. One sync runs per file at a time: a second one that is submitted waits inside the backend until the
//!   first has ended. A truncation needs [`SyncKind::All`].
//! - **D4** A new, renamed or removed name is durable only after [`Io::sync_dir`] of its directory. The length of a
//!   file counts as metadata: [`SyncKind::Data`] still covers what is needed to read the data back.
//! - **D5** A failed sync, or a failed write, poisons the file: everything that would write to it or sync it
//!   afterwards answers [`IoError::Poisoned`]. Nobody retries an fsync. Reads are still answered.
//! - **D6** Interrupted system calls never escape. Would-block never escapes.
//! - **D7** Buffers come back in [`Done`] even on error.
//! - **D8** Reads past the end are short, not errors; the caller decides what missing means. A read fills a prefix of
//!   a buffer that the caller has already initialised, so no uninitialised memory crosses the seam. What lies behind that
//!   prefix may have changed.
//! - **D9** [`Io::close`] and drop wait for what is in flight. What completed while `close` waited is delivered by the
//!   next [`Io::reap`].
//! - **D10** Every error carries operation, path, position and, where there is one, the error of the operating system
//!   as `source`.
//! - **D11** No two writes in flight in one file touch the same block of [`BLOCK_SIZE`] bytes. The second one is
//!   answered with [`IoError::Misuse`] and writes nothing. "In flight" ends when the completion is reaped.
//! - **D12** A [`FileId`] stays valid until it is closed, however many are open: a backend may close and open again
//!   the descriptor behind it. It follows [`Io::rename`]. A file is closed before it is removed.
//! - **D13** A file opened to append ([`Open::AppendNew`], [`Open::Append`]) may be longer on the disk than
//!   [`Io::len`] says: the backend may hold space behind its end that it allocated ahead, in steps that double from
//!   [`PREALLOCATION_FIRST`] to [`PREALLOCATION_MOST`], and that reads as zeros. `len` is the end of what was written,
//!   at the open the size found; reads past it are short (D8). [`Io::truncate`] and [`Io::close`] cut the file to its
//!   exact length. After a crash, or without a close, the zeros may still be there: whoever opens the file then sees
//!   them in its length.
//! - **D14** Of syncs of many files in flight, each answers for its own.
//! - **D15** Who waits may be given the work: if a small write or a sync is all that a [`Wait::Block`] or a [`Wait::Park`]
//!   would wait for, the backend may do it in the calling thread, as long as such work was short of late. The wait then
//!   ends when it is done, and a waker or a limit of time that comes meanwhile is heard of after that.
//!
//! There are no defaulted methods: a backend that cannot do something does not compile.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

pub mod ahead;
pub mod buffer;
pub mod durable;
pub mod exact;
pub mod overlay;
pub mod pwrite;
pub mod select;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the boundary to the kernel; its invariants are on top of the file")]
pub mod uring;

mod descriptors;
mod names;
mod pace;
mod track;

/// The unit of D11: no two writes in flight in one file touch the same block of this many bytes.
pub const BLOCK_SIZE: u64 = 4096;

/// The first step by which a backend allocates ahead behind the end of a file that is opened to append (D13), in bytes.
pub const PREALLOCATION_FIRST: u64 = 64 << 10;

/// The largest step by which a backend allocates ahead (D13), in bytes.
pub const PREALLOCATION_MOST: u64 = 16 << 20;

/// All disk access of one shard. One owner, one thread: `&mut self`, no locks.
///
/// The contract D1 to D15 is in the documentation of the [module](self).
pub trait Io {
    /// Opens a file. Blocking.
    ///
    /// # Errors
    /// [`IoError::Os`], with "not found" or "already exists" as its source where `how` says so.
    fn open(&mut self, path: &Path, how: Open) -> Result<FileId, IoError>;

    /// Waits for what is in flight on this file and gives its descriptor back (D9); a file that was opened to append has
    /// its exact length then (D13). Blocking.
    ///
    /// # Errors
    /// [`IoError::Misuse`] if the file is not open. [`IoError::Os`] if allocated space behind its end could not be cut:
    /// it is closed all the same, and zeros stay behind its end.
    fn close(&mut self, file: FileId) -> Result<(), IoError>;

    /// The path of an open file; empty if it is not open.
    fn path(&self, file: FileId) -> PathBuf;

    /// The multiple at which a write to this file best starts, in bytes, and to which its memory is best aligned: 1, or
    /// [`BLOCK_SIZE`] for a file that the backend writes past the page cache.
    ///
    /// A write that starts elsewhere, or lies elsewhere in memory, is right all the same and costs a copy, or a read of
    /// the block in which it starts. Whoever appends sends the block that was not full again from its start; buffers of a
    /// [`buffer::BufferPool`] are aligned. How a write ends never matters. 1 if the file is not open.
    fn write_alignment(&self, file: FileId) -> u64;

    /// Size of the file in bytes (D13). Blocking.
    ///
    /// # Errors
    /// [`IoError::Os`]; [`IoError::Misuse`] if the file is not open.
    fn len(&mut self, file: FileId) -> Result<u64, IoError>;

    /// Says how the file will be used from now on: a hint, which changes what it costs and nothing else. Nothing happens
    /// if the file is not open.
    fn advise(&mut self, file: FileId, advice: Advice);

    /// Sets the size of the file: what lies behind is gone, what is new reads as zeros. Durable after the next sync of
    /// everything ([`SyncKind::All`], D3). Blocking; no write may be in flight on this file.
    ///
    /// # Errors
    /// [`IoError::Os`], which poisons the file; [`IoError::Poisoned`]; [`IoError::Misuse`] if a write is in flight.
    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError>;

    /// Renames a file or a directory, replacing a file that is there. Durable after [`Io::sync_dir`] (D4). Blocking.
    ///
    /// # Errors
    /// [`IoError::Os`].
    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), IoError>;

    /// Removes a file, or an empty directory. Durable after [`Io::sync_dir`] (D4). Blocking.
    ///
    /// # Errors
    /// [`IoError::Os`], also if nothing is there.
    fn remove(&mut self, path: &Path) -> Result<(), IoError>;

    /// The full paths of everything in a directory, in ascending order of name. Blocking.
    ///
    /// # Errors
    /// [`IoError::Os`], also if the directory is missing.
    fn list(&mut self, dir: &Path) -> Result<Vec<PathBuf>, IoError>;

    /// What is at a path, or `None`. Blocking.
    ///
    /// # Errors
    /// [`IoError::Os`], but not for a missing path.
    fn metadata(&mut self, path: &Path) -> Result<Option<Metadata>, IoError>;

    /// Makes a directory and the missing ones above it. Durable after [`Io::sync_dir`] of each parent. Blocking.
    ///
    /// # Errors
    /// [`IoError::Os`].
    fn create_dir_all(&mut self, dir: &Path) -> Result<(), IoError>;

    /// Makes the names in this directory durable (D4). Blocking.
    ///
    /// # Errors
    /// [`IoError::Os`]. What was renamed may then be durable or not: nobody retries.
    fn sync_dir(&mut self, dir: &Path) -> Result<(), IoError>;

    /// Hands an operation over. It completes in a later [`Io::reap`], with the same ticket.
    ///
    /// A backend may gather what was handed over until the next reap: whoever has nothing to wait for polls.
    ///
    /// # Errors
    /// The operation itself, untouched, if the queue is full: reap, then submit it again.
    fn submit(&mut self, ticket: Ticket, op: Op) -> Result<(), Op>;

    /// Appends what has completed to `done`; see [`Wait`] for when it returns.
    ///
    /// # Errors
    /// [`IoError::Os`] if the backend itself broke. Failures of operations are in their [`Done`].
    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError>;

    /// Gives completions back: the next [`Io::reap`] delivers them first, in this order. For code like [`exact`] that
    /// waits for one operation and meets the completions of others.
    fn put_back(&mut self, done: Vec<Done>);

    /// How many operations were submitted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// A handle by which any thread ends the current or the next [`Wait::Park`].
    fn waker(&self) -> IoWaker;
}

/// How to open a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A file that must not be there yet, to read and write.
    CreateNew,
    /// A file to read and write, made empty if it is missing.
    CreateOrOpen,
    /// A file that must not be there yet and grows at its end, to read and write (D13).
    AppendNew,
    /// An existing file that grows at its end, to read and write (D13).
    Append,
}

#[cfg(any(test, feature = "sim"))]
impl Open {
    /// Whether the file must be there.
    pub(crate) fn is_existing(self) -> bool {
        matches!(self, Open::Read | Open::Write | Open::Append)
    }

    /// Whether the file must not be there.
    pub(crate) fn is_new(self) -> bool {
        matches!(self, Open::CreateNew | Open::AppendNew)
    }
}

/// A file opened by an [`Io`]. Never reused while that `Io` lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub(crate) u64);

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}", self.0)
    }
}

/// The caller's name for an operation in flight. The upper half of the numbers belongs to [`exact`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    pub(crate) const EXACT: Ticket = Ticket(1 << 63);

    /// A ticket of the caller; the highest bit of the number is dropped.
    pub const fn new(number: u64) -> Ticket {
        Ticket(number & !(1 << 63))
    }

    /// The number it was made from.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// One operation on a file.
#[derive(Debug)]
pub enum Op {
    /// Writes a prefix of `bytes` at `at`.
    Write {
        /// The file.
        file: FileId,
        /// Position in the file, in bytes.
        at: u64,
        /// What to write.
        bytes: Bytes,
    },
    /// Reads from `at` into a prefix of `into`, at most its length.
    Read {
        /// The file.
        file: FileId,
        /// Position in the file, in bytes.
        at: u64,
        /// Where to; its length (not its capacity) is the most that is read.
        into: BytesMut,
    },
    /// Makes what was written durable (D3).
    Sync {
        /// The file.
        file: FileId,
        /// How much of it.
        what: SyncKind,
    },
}

impl Op {
    /// The file that it works on.
    pub fn file(&self) -> FileId {
        match self {
            Op::Write { file, .. } | Op::Read { file, .. } | Op::Sync { file, .. } => *file,
        }
    }
}

/// What a sync covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncKind {
    /// The bytes and what is needed to read them back, a greater length included (`fdatasync`).
    Data,
    /// The same and all other metadata, a smaller length included (`fsync`).
    All,
}

/// How a file will be used: see [`Io::advise`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// What is written is soon read.
    Normal,
    /// What is written is read late or never, and there is much of it: it should not push out of the page cache what
    /// others read.
    CatchUp,
}

/// A completed operation.
#[derive(Debug)]
pub struct Done {
    /// The ticket of the submit.
    pub ticket: Ticket,
    /// The operation, with its buffer (D7).
    pub op: Op,
    /// How many bytes were written or read; 0 for a sync.
    pub result: Result<u32, IoError>,
}

/// How long [`Io::reap`] waits; D15 says what it may do meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Poll,
    /// Until at least one operation has completed. With nothing in flight: not at all.
    Block,
    /// Until at least one operation has completed, or [`IoWaker::wake`] was called, or this much time has passed, also
    /// with nothing in flight.
    Park(Option<Duration>),
}

/// What [`Io::metadata`] says about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Whether it is a regular file: bytes that stay. To open a pipe may wait for ever.
    pub is_file: bool,
    /// Size in bytes (0 for a directory).
    pub size: u64,
    /// When it was last modified, in milliseconds since 1970, where known.
    pub modified_ms: Option<i64>,
}

/// Ends the current or the next [`Wait::Park`] of the [`Io`] that gave it, from any thread. Waking twice before a park
/// equals waking once.
#[derive(Clone)]
pub struct IoWaker {
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl IoWaker {
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> IoWaker {
        IoWaker { wake: Arc::new(wake) }
    }

    /// Wakes. Never blocks.
    pub fn wake(&self) {
        (self.wake)();
    }
}

impl fmt::Debug for IoWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IoWaker")
    }
}

/// What was being done when an error came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`Io::open`].
    Open,
    /// [`Io::close`].
    Close,
    /// [`Io::len`].
    Length,
    /// [`Io::truncate`].
    Truncate,
    /// [`Io::rename`].
    Rename,
    /// [`Io::remove`].
    Remove,
    /// [`Io::list`].
    List,
    /// [`Io::metadata`].
    Metadata,
    /// [`Io::create_dir_all`].
    CreateDirectory,
    /// [`Io::sync_dir`].
    SyncDirectory,
    /// [`Op::Write`].
    Write,
    /// [`Op::Read`].
    Read,
    /// [`Op::Sync`].
    Sync,
    /// [`Io::reap`].
    Reap,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Close => "close",
            Operation::Length => "length of",
            Operation::Truncate => "truncate",
            Operation::Rename => "rename",
            Operation::Remove => "remove",
            Operation::List => "list",
            Operation::Metadata => "metadata of",
            Operation::CreateDirectory => "create directory",
            Operation::SyncDirectory => "sync directory",
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Sync => "sync",
            Operation::Reap => "reap",
        })
    }
}

/// What an error is about: operation, path and position (D10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// What was being done.
    pub operation: Operation,
    /// To which file or directory.
    pub path: PathBuf,
    /// At which byte, where that has a meaning.
    pub position: Option<u64>,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.path.display())?;
        if let Some(position) = self.position {
            write!(f, " at byte {position}")?;
        }
        Ok(())
    }
}

/// Why the disk did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The operating system said no.
    #[error("{at}")]
    Os {
        /// What it is about.
        at: At,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// An earlier sync or write of this file failed; nothing more is written to it (D5).
    #[error("{at}: refused, because {cause} failed earlier")]
    Poisoned {
        /// What it is about.
        at: At,
        /// The operation that failed first.
        cause: Operation,
    },
    /// A write or a read stopped making progress before it was whole.
    #[error("{at}: {done} of {wanted} bytes")]
    Short {
        /// What it is about.
        at: At,
        /// How many bytes were written or read.
        done: u64,
        /// How many were asked for.
        wanted: u64,
    },
    /// The caller broke the contract; nothing was done.
    #[error("{at}: {rule}")]
    Misuse {
        /// What it is about.
        at: At,
        /// The rule that was broken.
        rule: &'static str,
    },
}

impl IoError {
    pub(crate) fn os(
        operation: Operation,
        path: impl Into<PathBuf>,
        position: Option<u64>,
        source: std::io::Error,
    ) -> IoError {
        IoError::Os { at: At { operation, path: path.into(), position }, source }
    }

    /// What it is about.
    pub fn at(&self) -> &At {
        match self {
            IoError::Os { at, .. }
            | IoError::Poisoned { at, .. }
            | IoError::Short { at, .. }
            | IoError::Misuse { at, .. } => at,
        }
    }

    /// The kind of the operating system's error, where there is one.
    pub fn kind(&self) -> Option<std::io::ErrorKind> {
        match self {
            IoError::Os { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Whether the file or directory was missing.
    pub fn is_not_found(&self) -> bool {
        self.kind() == Some(std::io::ErrorKind::NotFound)
    }

    /// Whether the disk, or the quota on it, is full.
    pub fn is_full(&self) -> bool {
        matches!(self.kind(), Some(std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded))
    }
}
