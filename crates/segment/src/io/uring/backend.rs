//! [`Io`] over the ring: which requests an operation becomes, and what their results mean.
//!
//! Files that grow at their end are written past the page cache (`O_DIRECT`), into space that is allocated ahead (D13):
//! a direct write that extends a file is the slowest way of all. The partial last block of such a write is copied and
//! filled up with zeros; where a write starts inside a block, that block is read first. Reads of these files are direct
//! too, so they meet what direct writes left, and nothing of it is in the page cache twice.
//!
//! Space is allocated only while no write of the file is in flight: the kernel waits for them anyway, and some of them
//! complete only when this thread asks for completions, which it cannot while it is in that call. Writes behind the
//! allocated space are held back meanwhile.
//!
//! A reap hands what was submitted to the kernel, all at once; writes do not wait for it once they are [`LARGE_WRITE`]
//! together. What a waiting caller would only wait for is done in its thread instead (D15): a sync in the ring is handed
//! to a thread of the kernel, and so are the ends of direct writes into allocated space.
//!
//! All other files (indexes, checkpoints, closed segments) go through the page cache: writes by `pwrite` at once, because
//! most file systems have no other way to do it and a ring would hand it to a thread; reads by the ring.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fs::{AtFlags, FallocateFlags, StatxFlags};

use super::{Descriptor, Enter, Memory, Request, Ring, UringError, outcome};
use crate::io::buffer::{self, BufferCounters, BufferPool, PoolBuffer};
use crate::io::descriptors::Descriptors;
use crate::io::pace::Pace;
use crate::io::track::{Syncs, Tracker};
use crate::io::{
    Advice, BLOCK_SIZE, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open, Operation,
    PREALLOCATION_FIRST, PREALLOCATION_MOST, SyncKind, Ticket, Wait, names,
};
use crate::units::{block_end, block_start, to_u64, to_usize};

/// [`BLOCK_SIZE`], to index memory.
const BLOCK: usize = buffer::ALIGNMENT;

/// What stands for a path in errors of the ring itself.
const RING: &str = "io_uring";

/// So many bytes of writes are handed to the kernel at once, so that the disk works while more is gathered. What is less
/// waits for the next reap. A multiple of the block size.
const LARGE_WRITE: usize = 128 << 10;

/// How often a request that was interrupted is submitted again before it is done without the ring.
const ATTEMPTS: u32 = 16;

/// Limits of a [`UringIo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UringConfig {
    /// How many descriptors are held at most, those of operations in flight apart. At least 1. Default 1,000.
    pub max_open_files: usize,
    /// How many operations may be in flight. At least 1. Default 1,024.
    pub queue_depth: usize,
    /// How many operations one system call hands to the kernel, a power of two. Default 256.
    pub ring_entries: u32,
    /// How many files are at most in the ring's own table, which saves the kernel a look-up for each operation; 0: none.
    /// Default 1,024.
    pub file_table: u32,
    /// Whether files that grow at their end are written past the page cache. Default true.
    pub direct: bool,
    /// How many bytes of aligned buffers are kept for the next use. Default 16 MiB.
    pub keep_buffers: usize,
    /// Whoever waits for one small write, or for one sync, and nothing else does it by itself, without the ring, as long
    /// as such work took less than this on average; zero: never. Default 1 ms.
    pub here_below: Duration,
}

/// What a [`UringIo`] has done, for metrics and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UringCounters {
    /// Requests that the ring has answered, but for that of the waker.
    pub ring_requests: u64,
    /// Writes that the waiting thread did by itself.
    pub writes_here: u64,
    /// Syncs that the waiting thread did by itself.
    pub syncs_here: u64,
}

impl Default for UringConfig {
    fn default() -> UringConfig {
        UringConfig {
            max_open_files: 1_000,
            queue_depth: 1_024,
            ring_entries: 256,
            file_table: 1_024,
            direct: true,
            keep_buffers: 16 << 20,
            here_below: Duration::from_millis(1),
        }
    }
}

/// [`Io`] by io_uring; see the [module](super). It stays with the thread that made it (U5):
///
/// ```compile_fail
/// fn is_send<T: Send>() {}
/// is_send::<weir_segment::io::uring::UringIo>();
/// ```
pub struct UringIo {
    config: UringConfig,
    ring: Ring<Tag>,
    track: Tracker<OpenFile>,
    descriptors: Descriptors<Rc<Descriptor>>,
    /// Descriptors that were replaced while requests counted on them: they keep their number in the ring's table.
    replaced: Vec<Rc<Descriptor>>,
    pool: BufferPool,
    /// Requests that the ring does not have yet: it gets them with the next reap, unless this thread does them itself.
    fresh: VecDeque<(Request, Tag)>,
    /// Bytes of the writes among them.
    fresh_size: usize,
    /// Requests in the ring or on their way there that are not the waker's.
    requests: usize,
    /// Those of them that read.
    reads: usize,
    /// Those of them that sync.
    syncs: usize,
    pace: Pace,
    counters: UringCounters,
    /// Writes that wait for space.
    held: usize,
    completed: Vec<(Request, Tag, i32)>,
    bell: Arc<Bell>,
    bell_fd: Rc<OwnedFd>,
    /// Whether the ring watches the bell.
    listening: bool,
    remarks: Vec<String>,
    fallocate: bool,
    #[cfg(any(test, feature = "sim"))]
    faults: Option<Box<dyn FnMut(Operation, i32) -> i32>>,
}

/// What a waker rings.
#[derive(Debug)]
struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

#[derive(Debug)]
struct OpenFile {
    /// Requests of it in the ring, syncs apart.
    requests: usize,
    append: Option<Append>,
}

/// A file that grows at its end.
#[derive(Debug)]
struct Append {
    /// Past the page cache, from memory that is aligned to this.
    direct: Option<usize>,
    /// End of what was written.
    end: u64,
    /// End of what was ever asked to be written.
    reach: u64,
    /// Size on the disk.
    allocated: u64,
    /// By how much it is allocated ahead next.
    step: u64,
    /// Writes in the ring.
    writes: usize,
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    ticket: Ticket,
    at: u64,
    bytes: Bytes,
}

/// What comes back with a request.
#[derive(Debug)]
enum Tag {
    /// `before` bytes of the request lie before the operation's own, `taken` of those are in it.
    Write {
        ticket: Ticket,
        file: FileId,
        at: u64,
        bytes: Bytes,
        before: usize,
        taken: usize,
        attempts: u32,
    },
    /// `into` is the caller's buffer if the request reads into another one, from `before` bytes before `at`.
    Read {
        ticket: Ticket,
        file: FileId,
        at: u64,
        into: Option<BytesMut>,
        before: usize,
        wanted: usize,
        attempts: u32,
    },
    Sync {
        file: FileId,
        tickets: Syncs,
        attempts: u32,
        since: Instant,
    },
    Bell,
}

/// Whether it did not fail, but did not happen either.
fn is_passing(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED))
}

fn is_invalid(error: &Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// The memory alignment that direct I/O on this file needs, or why there is none.
fn direct_alignment(file: &File) -> Result<usize, String> {
    if let Ok(statx) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::DIOALIGN)
    {
        let (memory, offset) =
            (to_usize(statx.stx_dio_mem_align.into()), u64::from(statx.stx_dio_offset_align));
        return match (memory, offset) {
            (0, _) | (_, 0) => Err("this file system has no direct I/O".to_string()),
            (memory, offset) if BLOCK.is_multiple_of(memory) && BLOCK_SIZE.is_multiple_of(offset) => {
                Ok(memory)
            }
            (memory, offset) => {
                Err(format!("direct I/O wants blocks of {offset} bytes and memory aligned to {memory}"))
            }
        };
    }
    // A kernel before 6.1 does not say: try.
    let pool = BufferPool::new(0);
    let mut block = pool.take(BLOCK);
    loop {
        match file.read_at(&mut block.as_mut_capacity()[..BLOCK], 0) {
            Ok(_) => return Ok(BLOCK),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("a direct read failed: {error}")),
        }
    }
}

impl UringIo {
    /// A backend without open files.
    ///
    /// # Errors
    /// [`UringError`], if this kernel or this process may not have a ring: use another backend.
    pub fn new(config: UringConfig) -> Result<UringIo, UringError> {
        let config = UringConfig {
            max_open_files: config.max_open_files.max(1),
            queue_depth: config.queue_depth.clamp(1, 1 << 15),
            ..config
        };
        let depth = u32::try_from(config.queue_depth).unwrap_or(u32::MAX);
        let mut ring = Ring::new(config.ring_entries, depth)?;
        let mut remarks = Vec::new();
        let table = config.file_table.min(u32::try_from(config.max_open_files).unwrap_or(u32::MAX));
        if table > 0 && !ring.make_file_table(table) {
            remarks.push("no table of files in the ring".to_string());
        }
        let other = |what| move |error: rustix::io::Errno| UringError::Other { what, source: error.into() };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = rustix::event::eventfd(0, flags).map_err(other("making an eventfd"))?;
        let copy =
            fd.try_clone().map_err(|source| UringError::Other { what: "copying an eventfd", source })?;
        Ok(UringIo {
            ring,
            track: Tracker::new(),
            descriptors: Descriptors::new(config.max_open_files),
            replaced: Vec::new(),
            pool: BufferPool::new(config.keep_buffers),
            fresh: VecDeque::new(),
            fresh_size: 0,
            requests: 0,
            reads: 0,
            syncs: 0,
            pace: Pace::new(config.here_below),
            counters: UringCounters::default(),
            held: 0,
            completed: Vec::new(),
            bell: Arc::new(Bell { fd, rung: AtomicBool::new(false) }),
            bell_fd: Rc::new(copy),
            listening: false,
            remarks,
            fallocate: true,
            #[cfg(any(test, feature = "sim"))]
            faults: None,
            config,
        })
    }

    /// The settings of the ring that the kernel took.
    pub fn settings(&self) -> &'static str {
        self.ring.settings()
    }

    /// What it does without, each said once, in the order in which it was found out.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// How many descriptors are held now.
    pub fn open_descriptors(&self) -> usize {
        self.descriptors.len()
    }

    /// The state of the pool of the buffers that it copies into.
    pub fn buffers(&self) -> BufferCounters {
        self.pool.counters()
    }

    /// What it has done so far.
    pub fn counters(&self) -> UringCounters {
        self.counters
    }

    /// Bytes allocated behind the ends of all open files (D13).
    pub fn preallocated_size(&self) -> u64 {
        let appends = self.track.files().filter_map(|file| file.own.append.as_ref());
        appends.map(|append| append.allocated.saturating_sub(append.end)).sum()
    }

    /// Changes the results of the kernel from now on, for tests: a count, or an error's number with a minus.
    #[cfg(any(test, feature = "sim"))]
    pub fn inject(&mut self, faults: impl FnMut(Operation, i32) -> i32 + 'static) {
        self.faults = Some(Box::new(faults));
    }

    fn remark(&mut self, remark: String) {
        if !self.remarks.contains(&remark) {
            tracing::warn!(remark, "io_uring backend");
            self.remarks.push(remark);
        }
    }

    fn append(&mut self, id: FileId) -> Option<&mut Append> {
        self.track.own_mut(id)?.append.as_mut()
    }

    // Descriptors.

    /// Gives descriptors back until one more fits: idle ones, and where there are none, dirty ones after a sync.
    fn make_room(&mut self) {
        loop {
            let ring = &mut self.ring;
            self.descriptors.make_room(|_, descriptor| {
                if let Some(number) = descriptor.fixed {
                    ring.remove_file(number);
                }
            });
            if !self.descriptors.is_full() {
                return;
            }
            let Some(file) = self.descriptors.oldest_dirty() else { return };
            let synced = self.descriptors.get(file).map(|descriptor| descriptor.file.sync_all());
            if let Some(Err(error)) = synced {
                tracing::warn!(path = %self.path(file).display(), %error, "a sync to give a descriptor back failed");
                self.track.poison(file, Operation::Sync);
            }
            self.descriptors.set_dirty(file, false);
        }
    }

    fn hold(&mut self, id: FileId, file: File) -> Rc<Descriptor> {
        let ring = &mut self.ring;
        for old in self.replaced.extract_if(.., |descriptor| Rc::strong_count(descriptor) == 1) {
            if let Some(number) = old.fixed {
                ring.remove_file(number);
            }
        }
        let fixed = self.ring.add_file(file.as_raw_fd());
        let descriptor = Rc::new(Descriptor { file, fixed });
        self.descriptors.insert(id, Rc::clone(&descriptor));
        descriptor
    }

    fn let_go(&mut self, id: FileId) {
        if let Some(descriptor) = self.descriptors.remove(id)
            && let Some(number) = descriptor.fixed
        {
            if Rc::strong_count(&descriptor) == 1 {
                self.ring.remove_file(number);
            } else {
                // A request that the kernel does not have yet would meet another file under its number.
                self.replaced.push(descriptor);
            }
        }
    }

    /// The descriptor of a file, opened again if it was given back.
    fn descriptor(&mut self, operation: Operation, id: FileId) -> Result<Rc<Descriptor>, IoError> {
        let file = self.track.check_open(operation, id)?;
        if let Some(descriptor) = self.descriptors.get(id) {
            return Ok(Rc::clone(descriptor));
        }
        let direct = file.own.append.as_ref().is_some_and(|append| append.direct.is_some());
        let (path, writable) = (file.path.clone(), file.writable);
        self.make_room();
        let mut options = File::options();
        options.read(true).write(writable);
        if direct {
            options.custom_flags(libc::O_DIRECT);
        }
        let opened = options.open(&path).map_err(|e| IoError::os(operation, &path, None, e))?;
        Ok(self.hold(id, opened))
    }

    /// Goes on through the page cache with this file.
    fn give_up_direct(&mut self, id: FileId, why: &str) -> Result<(), IoError> {
        match self.append(id) {
            Some(append) if append.direct.is_some() => append.direct = None,
            _ => return Ok(()),
        }
        let path = self.path(id);
        self.remark(format!("writes through the page cache: {why}"));
        let plain = File::options().read(true).write(true).open(&path);
        let plain = plain.map_err(|e| IoError::os(Operation::Write, &path, None, e))?;
        // Requests in flight keep the old descriptor, and count on the file, not on it.
        let pins =
            self.track.own(id).map_or(0, |file| file.requests) + usize::from(self.track.is_syncing(id));
        self.let_go(id);
        self.hold(id, plain);
        for _ in 0..pins {
            self.descriptors.pin(id);
        }
        self.descriptors.set_dirty(id, true);
        Ok(())
    }

    /// Opens a file past the page cache, if its file system lets it; else says why not.
    fn open_direct(&self, path: &Path) -> Result<(File, usize), String> {
        if !self.config.direct {
            return Err("asked for".to_string());
        }
        let mut options = File::options();
        let opened = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
        let file = opened.map_err(|error| format!("opening with O_DIRECT failed: {error}"))?;
        let alignment = direct_alignment(&file)?;
        Ok((file, alignment))
    }

    // Space.

    /// Makes the file long enough on the disk for `needed` bytes and a step more, or at least for them.
    fn allocate(&mut self, id: FileId, needed: u64) -> Result<(), IoError> {
        let needed = block_end(needed);
        let Some(append) = self.append(id) else { return Ok(()) };
        let (allocated, step) = (append.allocated, append.step);
        if needed <= allocated {
            return Ok(());
        }
        append.step = (step * 2).min(PREALLOCATION_MOST);
        let descriptor = self.descriptor(Operation::Write, id)?;
        self.descriptors.set_dirty(id, true);
        let ahead = needed.max(block_end(allocated.saturating_add(step)));
        let mut reached = self.extend(&descriptor.file, allocated, ahead);
        if ahead > needed
            && let Err(error) = &reached
            && matches!(
                error.kind(),
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
            )
        {
            // There may be room for what is written now.
            reached = self.extend(&descriptor.file, allocated, needed);
        }
        // A part may have been allocated before it failed.
        let size = match reached {
            Ok(size) => size,
            Err(_) => descriptor.file.metadata().map_or(allocated, |metadata| metadata.len()),
        };
        if let Some(append) = self.append(id) {
            append.allocated = size;
        }
        reached.map(|_| ()).map_err(|source| self.track.os(Operation::Write, id, Some(allocated), source))
    }

    fn extend(&mut self, file: &File, from: u64, to: u64) -> Result<u64, Error> {
        while self.fallocate {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), from, to.saturating_sub(from)) {
                Ok(()) => return Ok(to),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                    self.fallocate = false;
                    self.remark(
                        "files grow without space being allocated: fallocate is not supported".to_string(),
                    );
                }
                Err(error) => return Err(error.into()),
            }
        }
        // At least no direct write extends the file.
        file.set_len(to).map(|()| to)
    }

    // Writes.

    fn submit_write(&mut self, ticket: Ticket, id: FileId, at: u64, bytes: Bytes) {
        let begun = self.track.begin_write(ticket, id, at, bytes.len());
        let result = match begun.and_then(|()| self.start_write(ticket, id, at, &bytes)) {
            Ok(None) => return,
            Ok(Some(count)) => Ok(count),
            Err(error) => Err(error),
        };
        self.track.finish(ticket, Op::Write { file: id, at, bytes }, result);
    }

    /// Starts a write, holds it back, or does it: then with its count. An error poisons the file.
    fn start_write(
        &mut self,
        ticket: Ticket,
        id: FileId,
        at: u64,
        bytes: &Bytes,
    ) -> Result<Option<u32>, IoError> {
        let started = match self.track.check_writable(Operation::Write, id, Some(at)) {
            Ok(()) if bytes.is_empty() => Ok(Some(0)),
            Ok(()) => self.start_write_unchecked(ticket, id, at, bytes),
            Err(error) => Err(error),
        };
        if started.is_err() {
            self.track.poison(id, Operation::Write);
        }
        started
    }

    fn start_write_unchecked(
        &mut self,
        ticket: Ticket,
        id: FileId,
        at: u64,
        bytes: &Bytes,
    ) -> Result<Option<u32>, IoError> {
        let end = at.saturating_add(to_u64(bytes.len()));
        let Some(append) = self.append(id) else { return self.write_now(id, at, bytes).map(Some) };
        if append.direct.is_none() {
            return self.write_now(id, at, bytes).map(Some);
        }
        if block_end(end) > append.allocated {
            if append.writes > 0 {
                append.held.push_back(Held { ticket, at, bytes: bytes.clone() });
                self.held += 1;
                return Ok(None);
            }
            self.allocate(id, end)?;
        }
        let descriptor = self.descriptor(Operation::Write, id)?;
        match self.arrange(&descriptor, id, at, bytes) {
            Ok(Arranged { start, first, second, before, taken }) => {
                let request = Request::Write { file: descriptor, at: start, first, second };
                let tag =
                    Tag::Write { ticket, file: id, at, bytes: bytes.clone(), before, taken, attempts: 0 };
                if let Some(append) = self.append(id) {
                    append.reach = append.reach.max(end);
                    append.writes += 1;
                }
                self.descriptors.set_dirty(id, true);
                self.begin(id, request, tag);
                Ok(None)
            }
            Err(error) if is_invalid(&error) => {
                self.give_up_direct(id, &format!("a direct read failed: {error}"))?;
                self.write_now(id, at, bytes).map(Some)
            }
            Err(source) => Err(self.track.os(Operation::Write, id, Some(at), source)),
        }
    }

    /// Brings a write into whole blocks of aligned memory. Copies what is not; reads the blocks of which the write is only
    /// a part and the rest is something.
    fn arrange(
        &mut self,
        descriptor: &Descriptor,
        id: FileId,
        at: u64,
        bytes: &Bytes,
    ) -> Result<Arranged, Error> {
        let Some(Append { direct, reach, .. }) = self.append(id) else {
            unreachable!("{id} is opened to append")
        };
        let (alignment, reach) = (direct.unwrap_or(BLOCK), *reach);
        let start = block_start(at);
        let before = to_usize(at - start);
        if before == 0 && bytes.as_ptr().addr().is_multiple_of(alignment) {
            let whole = bytes.len() / BLOCK * BLOCK;
            if whole == bytes.len() {
                return Ok(Arranged {
                    start,
                    first: bytes.clone(),
                    second: Bytes::new(),
                    before,
                    taken: whole,
                });
            }
            let last_at = start.saturating_add(to_u64(whole));
            let last = self.last_block(descriptor, last_at, &bytes[whole..], reach)?.freeze();
            let (first, second) =
                if whole == 0 { (last, Bytes::new()) } else { (bytes.slice(..whole), last) };
            return Ok(Arranged { start, first, second, before, taken: bytes.len() });
        }
        // What does not fit into one buffer is a short count.
        let taken = bytes.len().min(buffer::LARGEST - before);
        let mut copy = self.pool.take((before + taken).next_multiple_of(BLOCK));
        if before > 0 {
            self.read_block(descriptor, start, &mut copy.as_mut_capacity()[..BLOCK])?;
            copy.set_len(before);
        }
        let in_last = (before + taken) % BLOCK;
        let to_copy = taken - in_last.min(taken);
        let copied = copy.extend_from_slice(&bytes[..to_copy]);
        assert!(copied == to_copy, "the buffer has room for the whole write");
        let rest = &bytes[to_copy..taken];
        if !rest.is_empty() {
            let last_at = start.saturating_add(to_u64(before + to_copy));
            if before + to_copy < BLOCK && before > 0 {
                // First and last block are the same one, which was read; behind what is asked to be written it is zeros.
                let at = before + to_copy;
                copy.as_mut_capacity()[at..at + rest.len()].copy_from_slice(rest);
            } else {
                let last = self.last_block(descriptor, last_at, rest, reach)?;
                let copied = copy.extend_from_slice(last.as_slice());
                assert!(copied == BLOCK, "the buffer has room for the last block");
            }
            copy.set_len((before + taken).next_multiple_of(BLOCK));
        }
        Ok(Arranged { start, first: copy.freeze(), second: Bytes::new(), before, taken })
    }

    /// The block at `at` that begins with `bytes`, and goes on with what is in the file, if that reaches so far.
    fn last_block(
        &self,
        descriptor: &Descriptor,
        at: u64,
        bytes: &[u8],
        reach: u64,
    ) -> Result<PoolBuffer, Error> {
        let mut block = self.pool.take(BLOCK);
        let memory = &mut block.as_mut_capacity()[..BLOCK];
        if reach > at.saturating_add(to_u64(bytes.len())) {
            self.read_block(descriptor, at, memory)?;
        } else {
            memory[bytes.len()..].fill(0);
        }
        memory[..bytes.len()].copy_from_slice(bytes);
        block.set_len(BLOCK);
        Ok(block)
    }

    /// The block at `at` as it is in the file; zeros behind its end.
    fn read_block(&self, descriptor: &Descriptor, at: u64, into: &mut [u8]) -> Result<(), Error> {
        loop {
            match descriptor.file.read_at(into, at) {
                Ok(count) => {
                    into[count..].fill(0);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A write through the page cache, at once.
    fn write_now(&mut self, id: FileId, at: u64, bytes: &[u8]) -> Result<u32, IoError> {
        let descriptor = self.descriptor(Operation::Write, id)?;
        self.descriptors.set_dirty(id, true);
        let written = loop {
            match descriptor.file.write_at(bytes, at) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) if !bytes.is_empty() => break Err(ErrorKind::WriteZero.into()),
                other => break other,
            }
        };
        match written {
            Ok(count) => {
                self.wrote(id, at, count);
                Ok(u32::try_from(count).unwrap_or(u32::MAX))
            }
            Err(source) => {
                self.track.poison(id, Operation::Write);
                Err(self.track.os(Operation::Write, id, Some(at), source))
            }
        }
    }

    fn wrote(&mut self, id: FileId, at: u64, count: usize) {
        if let Some(append) = self.append(id) {
            append.end = append.end.max(at.saturating_add(to_u64(count)));
            append.reach = append.reach.max(append.end);
            append.allocated = append.allocated.max(append.end);
        }
    }

    /// Starts the writes that waited for space, now that none is in flight.
    fn release_held(&mut self, id: FileId) {
        let Some(append) = self.append(id) else { return };
        if append.writes > 0 || append.held.is_empty() {
            return;
        }
        let held = std::mem::take(&mut append.held);
        self.held -= held.len();
        let needed = held.iter().map(|held| held.at.saturating_add(to_u64(held.bytes.len()))).max();
        if self.track.check_writable(Operation::Write, id, None).is_ok() {
            // All at once if it can be; what fails, fails for each write by itself.
            let _ = self.allocate(id, needed.unwrap_or(0));
        }
        for Held { ticket, at, bytes } in held {
            let result = match self.start_write(ticket, id, at, &bytes) {
                Ok(None) => continue,
                Ok(Some(count)) => Ok(count),
                Err(error) => Err(error),
            };
            self.track.finish(ticket, Op::Write { file: id, at, bytes }, result);
        }
    }

    // Reads.

    fn submit_read(&mut self, ticket: Ticket, id: FileId, at: u64, into: BytesMut) {
        let descriptor = match self.descriptor(Operation::Read, id) {
            Ok(descriptor) => descriptor,
            Err(error) => return self.track.finish(ticket, Op::Read { file: id, at, into }, Err(error)),
        };
        let (direct, end) = match self.append(id) {
            Some(append) => (append.direct.is_some(), append.end),
            None => (false, u64::MAX),
        };
        let wanted = into.len().min(to_usize(end.saturating_sub(at)));
        if wanted == 0 {
            return self.track.finish(ticket, Op::Read { file: id, at, into }, Ok(0));
        }
        let (request, tag);
        // Whole blocks into memory that is aligned need no copy. What is read behind the end is not counted.
        let blocks = wanted.next_multiple_of(BLOCK);
        let straight = direct && at.is_multiple_of(BLOCK_SIZE) && blocks <= into.len();
        if straight && into.as_ptr().addr().is_multiple_of(BLOCK) {
            request = Request::Read { file: descriptor, at, into: Memory::Caller(into), most: blocks };
            tag = Tag::Read { ticket, file: id, at, into: None, before: 0, wanted, attempts: 0 };
        } else if direct {
            let start = block_start(at);
            let before = to_usize(at - start);
            // What does not fit into one buffer is a short count.
            let wanted = wanted.min(buffer::LARGEST - before);
            let most = (before + wanted).next_multiple_of(BLOCK);
            let memory = Memory::Pool(self.pool.take(most));
            request = Request::Read { file: descriptor, at: start, into: memory, most };
            tag = Tag::Read { ticket, file: id, at, into: Some(into), before, wanted, attempts: 0 };
        } else {
            request = Request::Read { file: descriptor, at, into: Memory::Caller(into), most: wanted };
            tag = Tag::Read { ticket, file: id, at, into: None, before: 0, wanted, attempts: 0 };
        }
        self.begin(id, request, tag);
    }

    // Syncs.

    fn submit_sync(&mut self, ticket: Ticket, id: FileId, what: SyncKind) {
        if !self.track.waits(ticket, id, what) {
            self.start_sync(id, vec![(ticket, what)]);
        }
    }

    fn start_sync(&mut self, id: FileId, tickets: Syncs) {
        let checked = self.track.check_writable(Operation::Sync, id, None);
        let file = match checked.and_then(|()| self.descriptor(Operation::Sync, id)) {
            Ok(file) => file,
            Err(error) => return self.track.answer_syncs(id, tickets, Err(error)),
        };
        let data_only = tickets.iter().all(|(_, what)| *what != SyncKind::All);
        self.descriptors.set_dirty(id, false);
        self.descriptors.pin(id);
        self.track.begin_sync(id);
        self.requests += 1;
        self.syncs += 1;
        let tag = Tag::Sync { file: id, tickets, attempts: 0, since: Pace::now() };
        self.fresh.push_back((Request::Sync { file, data_only }, tag));
    }

    // The ring.

    /// Takes a read or a write for the ring.
    fn begin(&mut self, id: FileId, request: Request, tag: Tag) {
        self.descriptors.pin(id);
        if let Some(file) = self.track.own_mut(id) {
            file.requests += 1;
        }
        self.requests += 1;
        self.reads += usize::from(matches!(request, Request::Read { .. }));
        self.fresh_size += request.write_size();
        self.fresh.push_back((request, tag));
    }

    fn ended(&mut self, id: FileId) {
        self.descriptors.unpin(id);
        if let Some(file) = self.track.own_mut(id) {
            file.requests -= 1;
        }
        self.requests -= 1;
    }

    /// Hands over what waits, and waits as said.
    fn enter(&mut self, wait: Enter) -> Result<(), IoError> {
        for (request, tag) in self.fresh.drain(..) {
            self.ring.start(request, tag);
        }
        self.fresh_size = 0;
        self.ring.enter(wait).map_err(|e| IoError::os(Operation::Reap, RING, None, e))
    }

    /// The same for all but a sync that nothing else runs beside: who waits for it may do it ([`UringIo::do_here`]).
    fn hand_over_writes(&mut self) -> Result<(), IoError> {
        let sync = match self.syncs {
            1 => self.fresh.iter().position(|(request, _)| matches!(request, Request::Sync { .. })),
            _ => None,
        };
        let kept = sync.and_then(|index| self.fresh.remove(index));
        let entered = self.enter(Enter::Now);
        self.fresh.extend(kept);
        entered
    }

    /// One turn: hands over what waits, waits as said, and takes what has completed.
    fn turn(&mut self, wait: Enter) -> Result<(), IoError> {
        self.enter(wait)?;
        let mut completed = std::mem::take(&mut self.completed);
        self.ring.completed(&mut completed);
        for (request, tag, result) in completed.drain(..) {
            self.counters.ring_requests += u64::from(!matches!(tag, Tag::Bell));
            self.complete(request, tag, result);
        }
        self.completed = completed;
        if !self.fresh.is_empty() {
            // Completions start what they held back.
            self.enter(Enter::Now)?;
        }
        Ok(())
    }

    /// Does a small write or a sync that the ring does not have yet, for a caller who would only wait for it ([`Pace`]).
    /// Does nothing if there is more to wait for than writes of the same file, or if it may take long.
    fn do_here(&mut self) -> Result<(), IoError> {
        let mut fresh = self.fresh.iter();
        let is_alone = match self.syncs {
            1 => fresh.any(|(_, tag)| match tag {
                Tag::Sync { file, .. } => {
                    self.track.own(*file).is_some_and(|file| file.requests + 1 == self.requests)
                }
                _ => false,
            }),
            _ => fresh.len() == self.requests && self.requests == 1 && self.fresh_size < LARGE_WRITE,
        };
        if !is_alone || self.reads > 0 || !self.pace.is_short() {
            return Ok(());
        }
        if self.fresh.len() > 1 {
            self.hand_over_writes()?;
        }
        let Some((request, mut tag)) = self.fresh.pop_front() else { return Ok(()) };
        let begun = Pace::now();
        let done = match (&request, &mut tag) {
            (Request::Write { file, at, first, second }, _) => {
                self.fresh_size = 0;
                self.counters.writes_here += 1;
                let parts = [IoSlice::new(first), IoSlice::new(second)];
                let done = rustix::io::pwritev(&file.file, &parts, *at);
                self.pace.took(begun.elapsed());
                done
            }
            (Request::Sync { file, data_only }, Tag::Sync { since, .. }) => {
                self.counters.syncs_here += 1;
                // Not the time for which it waited for its caller.
                *since = begun;
                let sync = if *data_only { rustix::fs::fdatasync } else { rustix::fs::fsync };
                sync(&file.file).map(|()| 0)
            }
            _ => unreachable!("it is a write or a sync"),
        };
        let result = match done {
            Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
            Err(error) => error.raw_os_error().saturating_neg(),
        };
        self.complete(request, tag, result);
        Ok(())
    }

    fn complete(&mut self, request: Request, tag: Tag, result: i32) {
        #[cfg(any(test, feature = "sim"))]
        let result = self.faulty(&tag, result);
        match tag {
            Tag::Bell => {
                self.listening = false;
                self.empty_bell();
            }
            Tag::Write { file, .. } => {
                self.complete_write(request, tag, outcome(result));
                // A sync that began meanwhile did not cover it.
                self.descriptors.set_dirty(file, true);
                self.ended(file);
                if let Some(append) = self.append(file) {
                    append.writes -= 1;
                }
                self.release_held(file);
            }
            Tag::Read { file, .. } => {
                self.reads -= 1;
                self.complete_read(request, tag, outcome(result));
                self.ended(file);
            }
            Tag::Sync { .. } => self.complete_sync(request, tag, outcome(result)),
        }
    }

    #[cfg(any(test, feature = "sim"))]
    fn faulty(&mut self, tag: &Tag, result: i32) -> i32 {
        let operation = match tag {
            Tag::Write { .. } => Operation::Write,
            Tag::Read { .. } => Operation::Read,
            Tag::Sync { .. } => Operation::Sync,
            Tag::Bell => return result,
        };
        self.faults.as_mut().map_or(result, |faults| faults(operation, result))
    }

    fn complete_write(&mut self, request: Request, tag: Tag, result: Result<u32, Error>) {
        let Tag::Write { ticket, file: id, at, bytes, before, taken, attempts } = tag else {
            unreachable!("the tag is that of a write")
        };
        let Request::Write { file, at: start, first, second } = request else {
            unreachable!("a write was requested")
        };
        let count = result.as_ref().map_or(0, |count| to_usize(u64::from(*count)));
        let passing = match &result {
            Ok(_) => count > 0 && count <= before,
            Err(error) => is_passing(error),
        };
        if passing && attempts < ATTEMPTS {
            let tag = Tag::Write { ticket, file: id, at, bytes, before, taken, attempts: attempts + 1 };
            if let Some(append) = self.append(id) {
                append.writes += 1;
            }
            return self.begin(id, Request::Write { file, at: start, first, second }, tag);
        }
        let result = match result {
            Ok(0) => Err(Error::from(ErrorKind::WriteZero)),
            Ok(_) if count > before => Ok((count - before).min(taken)),
            // Every write in the ring is a direct one.
            Err(error) if is_invalid(&error) => {
                let why = format!("a direct write failed: {error}");
                let written = self.give_up_direct(id, &why).and_then(|()| self.write_now(id, at, &bytes));
                if written.is_err() {
                    self.track.poison(id, Operation::Write);
                }
                return self.track.finish(ticket, Op::Write { file: id, at, bytes }, written);
            }
            // It keeps passing: without the ring, it blocks instead.
            Ok(_) => Self::write_blocking(&file.file, start, &first, &second)
                .map(|count| count.saturating_sub(before)),
            Err(error) if is_passing(&error) => Self::write_blocking(&file.file, start, &first, &second)
                .map(|count| count.saturating_sub(before)),
            Err(error) => Err(error),
        };
        let result = match result {
            Ok(count) => {
                let count = count.min(taken);
                self.wrote(id, at, count);
                Ok(u32::try_from(count).unwrap_or(u32::MAX))
            }
            Err(source) => {
                self.track.poison(id, Operation::Write);
                Err(self.track.os(Operation::Write, id, Some(at), source))
            }
        };
        self.track.finish(ticket, Op::Write { file: id, at, bytes }, result);
    }

    /// Writes all of both parts.
    fn write_blocking(file: &File, at: u64, first: &[u8], second: &[u8]) -> Result<usize, Error> {
        file.write_all_at(first, at)?;
        file.write_all_at(second, at.saturating_add(to_u64(first.len())))?;
        Ok(first.len() + second.len())
    }

    fn complete_read(&mut self, request: Request, tag: Tag, result: Result<u32, Error>) {
        let Tag::Read { ticket, file: id, at, into, before, wanted, attempts } = tag else {
            unreachable!("the tag is that of a read")
        };
        let Request::Read { file, at: start, into: mut memory, most } = request else {
            unreachable!("a read was requested")
        };
        let passing = match &result {
            Ok(count) => *count > 0 && to_usize(u64::from(*count)) <= before,
            Err(error) => is_passing(error),
        };
        if passing && attempts < ATTEMPTS {
            let tag = Tag::Read { ticket, file: id, at, into, before, wanted, attempts: attempts + 1 };
            return self.begin(id, Request::Read { file, at: start, into: memory, most }, tag);
        }
        let result = if passing {
            // Without the ring, it blocks instead.
            let slice = memory.as_mut_slice();
            let most = most.min(slice.len());
            loop {
                match file.file.read_at(&mut slice[..most], start) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    other => break other,
                }
            }
        } else {
            result.map(|count| to_usize(u64::from(count)))
        };
        let (into, result) = match (memory, into) {
            (Memory::Caller(into), _) => (into, result.map(|count| count.min(wanted))),
            (Memory::Pool(mut buffer), Some(mut into)) => {
                let result = result.map(|count| {
                    let count = count.saturating_sub(before).min(wanted);
                    into[..count].copy_from_slice(&buffer.as_mut_capacity()[before..before + count]);
                    count
                });
                (into, result)
            }
            (Memory::Pool(_), None) => unreachable!("a read into another buffer keeps the caller's"),
        };
        let result = match result {
            Ok(count) => Ok(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(source) => Err(self.track.os(Operation::Read, id, Some(at), source)),
        };
        self.track.finish(ticket, Op::Read { file: id, at, into }, result);
    }

    fn complete_sync(&mut self, request: Request, tag: Tag, result: Result<u32, Error>) {
        let Tag::Sync { file: id, tickets, attempts, since } = tag else {
            unreachable!("the tag is that of a sync")
        };
        if let Err(error) = &result
            && is_passing(error)
            && attempts < ATTEMPTS
        {
            // It did not fail, it did not happen.
            let tag = Tag::Sync { file: id, tickets, attempts: attempts + 1, since };
            self.fresh.push_back((request, tag));
            return;
        }
        self.pace.took(since.elapsed());
        self.requests -= 1;
        self.syncs -= 1;
        self.descriptors.unpin(id);
        let result = result.map(|_| ()).map_err(|source| self.track.os(Operation::Sync, id, None, source));
        self.track.answer_syncs(id, tickets, result);
        if let Some(waiting) = self.track.end_sync(id) {
            self.start_sync(id, waiting);
        }
    }

    fn is_busy(&self) -> bool {
        self.requests > 0 || self.held > 0
    }

    /// Whether a waker was used since this was last asked.
    fn was_woken(&mut self) -> bool {
        if !self.bell.rung.load(Ordering::Acquire) {
            return false;
        }
        // First empty the bell, then let it be rung: else one that rings in between is not heard any more.
        self.empty_bell();
        self.bell.rung.swap(false, Ordering::AcqRel)
    }

    /// Makes the bell quiet. It may sound without having been rung: who rings it marks that first, and may have been heard
    /// by that alone.
    fn empty_bell(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(self.bell.fd.as_fd(), &mut count);
    }

    fn park(&mut self, limit: Option<Duration>) -> Result<(), IoError> {
        let woken = self.was_woken();
        if !woken && !self.track.has_ready() && limit != Some(Duration::ZERO) {
            self.do_here()?;
        }
        self.turn(Enter::Now)?;
        if woken || self.was_woken() || self.track.has_ready() {
            return Ok(());
        }
        #[expect(clippy::disallowed_methods, reason = "an interrupted wait goes on for the rest of its time")]
        let now = Instant::now;
        let deadline = limit.and_then(|limit| now().checked_add(limit));
        loop {
            let rest = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            if self.is_busy() {
                if !self.listening {
                    self.ring.start(Request::Poll { fd: Rc::clone(&self.bell_fd) }, Tag::Bell);
                    self.listening = true;
                }
                self.turn(rest.map_or(Enter::One, Enter::OneFor))?;
            } else {
                // Nothing is in flight: the ring need not know, and no one counts this as waiting for a disk.
                let rest = rest.and_then(|rest| rustix::event::Timespec::try_from(rest).ok());
                let mut bell = [PollFd::new(&self.bell.fd, PollFlags::IN)];
                match rustix::event::poll(&mut bell, rest.as_ref()) {
                    Ok(0) | Err(rustix::io::Errno::INTR) => {}
                    Ok(_) => self.empty_bell(),
                    Err(error) => {
                        return Err(IoError::os(Operation::Reap, RING, None, error.into()));
                    }
                }
            }
            let over = deadline.is_some_and(|deadline| deadline <= now());
            if self.was_woken() || self.track.has_ready() || over {
                return Ok(());
            }
        }
    }

    /// Waits until nothing of a file is in flight.
    fn quiesce(&mut self, id: FileId, syncs: bool) -> Result<(), IoError> {
        loop {
            let busy = self.track.own(id).is_some_and(|file| {
                let held = file.append.as_ref().is_some_and(|append| !append.held.is_empty());
                file.requests > 0 || held || (syncs && self.track.is_syncing(id))
            });
            if !busy {
                return Ok(());
            }
            self.turn(Enter::One)?;
        }
    }

    fn set_len(&mut self, operation: Operation, id: FileId, len: u64) -> Result<(), IoError> {
        let descriptor = self.descriptor(operation, id)?;
        self.descriptors.set_dirty(id, true);
        let mut result = Ok(());
        if let Some(append) = self.append(id)
            && append.end < len
            && append.end < append.allocated
        {
            // What is new reads as zeros, whatever was on its way there.
            let end = append.end;
            result = descriptor.file.set_len(end);
        }
        let result = result.and_then(|()| descriptor.file.set_len(len));
        result.map_err(|source| self.track.os(operation, id, Some(len), source))?;
        if let Some(append) = self.append(id) {
            append.end = len;
            append.reach = len;
            append.allocated = len;
            append.step = PREALLOCATION_FIRST;
        }
        Ok(())
    }
}

/// A write as the kernel gets it: whole blocks of aligned memory.
struct Arranged {
    /// Where its first block starts.
    start: u64,
    first: Bytes,
    second: Bytes,
    /// How many bytes of it lie before those of the operation.
    before: usize,
    /// How many bytes of the operation it holds.
    taken: usize,
}

impl std::fmt::Debug for UringIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringIo")
            .field("config", &self.config)
            .field("settings", &self.ring.settings())
            .field("files", &self.track.files().len())
            .field("in_flight", &self.track.in_flight())
            .finish_non_exhaustive()
    }
}

impl Drop for UringIo {
    fn drop(&mut self) {
        // D9. If the ring is broken, it leaks what the kernel may still use.
        while self.is_busy() && self.turn(Enter::One).is_ok() {}
    }
}

impl Io for UringIo {
    fn open(&mut self, path: &Path, how: Open) -> Result<FileId, IoError> {
        self.make_room();
        let failed = |e| IoError::os(Operation::Open, path, None, e);
        let writable = how != Open::Read;
        let mut options = File::options();
        options.read(true).write(writable);
        match how {
            Open::Read | Open::Write | Open::Append => {}
            Open::CreateNew | Open::AppendNew => {
                options.create_new(true);
            }
            Open::CreateOrOpen => {
                options.create(true).truncate(false);
            }
        }
        // Without O_DIRECT first: where it is refused, a new file is left behind.
        let mut file = options.open(path).map_err(failed)?;
        let mut append = None;
        if matches!(how, Open::Append | Open::AppendNew) {
            let size = file.metadata().map_err(failed)?.len();
            let direct = match self.open_direct(path) {
                Ok((direct, alignment)) => {
                    file = direct;
                    Some(alignment)
                }
                Err(why) => {
                    self.remark(format!("writes through the page cache: {why}"));
                    None
                }
            };
            append = Some(Append {
                direct,
                end: size,
                reach: size,
                allocated: size,
                step: PREALLOCATION_FIRST,
                writes: 0,
                held: VecDeque::new(),
            });
        }
        let id = self.track.open(path, writable, OpenFile { requests: 0, append });
        self.hold(id, file);
        Ok(id)
    }

    fn close(&mut self, file: FileId) -> Result<(), IoError> {
        self.track.check_open(Operation::Close, file)?;
        self.quiesce(file, true)?;
        let mut cut = Ok(());
        if !self.track.is_poisoned(file)
            && let Some(Append { end, allocated, .. }) = self.append(file)
            && *allocated > *end
        {
            let end = *end;
            cut = self.set_len(Operation::Close, file, end);
        }
        self.let_go(file);
        self.track.close(file);
        cut
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.track.path(file)
    }

    fn write_alignment(&self, file: FileId) -> u64 {
        let append = self.track.own(file).and_then(|file| file.append.as_ref());
        if append.is_some_and(|append| append.direct.is_some()) { BLOCK_SIZE } else { 1 }
    }

    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        if let Some(append) = self.append(file) {
            return Ok(append.end);
        }
        let descriptor = self.descriptor(Operation::Length, file)?;
        let metadata = descriptor.file.metadata();
        metadata.map(|m| m.len()).map_err(|source| self.track.os(Operation::Length, file, None, source))
    }

    fn advise(&mut self, _: FileId, _: Advice) {
        // What is much is written past the page cache anyway.
    }

    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        self.track.check_truncate(file, len)?;
        self.quiesce(file, false)?;
        let cut = self.set_len(Operation::Truncate, file, len);
        if cut.is_err() {
            self.track.poison(file, Operation::Truncate);
        }
        cut
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), IoError> {
        names::rename(from, to)?;
        self.track.renamed(from, to);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), IoError> {
        names::remove(path)
    }

    fn list(&mut self, dir: &Path) -> Result<Vec<PathBuf>, IoError> {
        names::list(dir)
    }

    fn metadata(&mut self, path: &Path) -> Result<Option<Metadata>, IoError> {
        names::metadata(path)
    }

    fn create_dir_all(&mut self, dir: &Path) -> Result<(), IoError> {
        names::create_dir_all(dir)
    }

    fn sync_dir(&mut self, dir: &Path) -> Result<(), IoError> {
        names::sync_dir(dir)
    }

    fn submit(&mut self, ticket: Ticket, op: Op) -> Result<(), Op> {
        if !self.track.admit(self.config.queue_depth) {
            return Err(op);
        }
        match op {
            Op::Write { file, at, bytes } => {
                self.submit_write(ticket, file, at, bytes);
                if self.fresh_size >= LARGE_WRITE {
                    // A ring that is broken says so when it is reaped.
                    let _ = self.hand_over_writes();
                }
            }
            Op::Read { file, at, into } => self.submit_read(ticket, file, at, into),
            Op::Sync { file, what } => self.submit_sync(ticket, file, what),
        }
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        match wait {
            Wait::Poll => self.turn(Enter::Now)?,
            Wait::Block => {
                if !self.track.has_ready() {
                    self.do_here()?;
                }
                self.turn(Enter::Now)?;
                while !self.track.has_ready() && self.is_busy() {
                    self.turn(Enter::One)?;
                }
            }
            Wait::Park(limit) => self.park(limit)?,
        }
        self.track.deliver(done);
        Ok(())
    }

    fn put_back(&mut self, done: Vec<Done>) {
        self.track.put_back(done);
    }

    fn in_flight(&self) -> usize {
        self.track.in_flight()
    }

    fn waker(&self) -> IoWaker {
        let bell = Arc::clone(&self.bell);
        IoWaker::new(move || {
            if !bell.rung.swap(true, Ordering::AcqRel) {
                // Eight bytes that are not zero, whatever the byte order. It cannot be full: it was empty.
                let _ = rustix::io::write(bell.fd.as_fd(), &[1; 8]);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct_file(dir: &Path) -> Option<(UringIo, FileId)> {
        let Ok(mut io) = UringIo::new(UringConfig::default()) else {
            eprintln!("skipped: io_uring is refused here");
            return None;
        };
        let file = io.open(&dir.join("log"), Open::AppendNew).unwrap();
        if io.write_alignment(file) == 1 {
            eprintln!("skipped: this file system has no direct I/O");
            return None;
        }
        Some((io, file))
    }

    #[test]
    fn a_number_of_the_table_is_kept_while_requests_count_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let Some((mut io, file)) = direct_file(dir.path()) else { return };
        let number = |io: &mut UringIo| io.descriptors.get(file).and_then(|descriptor| descriptor.fixed);
        let before = number(&mut io);
        let write = |at| Op::Write { file, at, bytes: Bytes::from_static(b"x") };
        assert!(io.submit(Ticket::new(1), write(0)).is_ok());
        io.give_up_direct(file, "a test").unwrap();
        let during = number(&mut io);
        assert!(before.is_some() && during.is_some() && during != before, "{before:?}, {during:?}");
        io.reap(Wait::Block, &mut Vec::new()).unwrap();
        // Nobody counts on it any more: it is given out again.
        let other = io.open(&dir.path().join("other"), Open::AppendNew).unwrap();
        assert_eq!(io.descriptors.get(other).and_then(|descriptor| descriptor.fixed), before);
    }

    #[test]
    fn a_write_that_a_sync_did_not_cover_leaves_its_descriptor_dirty() {
        let dir = tempfile::tempdir().unwrap();
        let Some((mut io, file)) = direct_file(dir.path()) else { return };
        let write = Op::Write { file, at: 0, bytes: Bytes::from_static(b"x") };
        assert!(io.submit(Ticket::new(1), write).is_ok());
        assert!(io.submit(Ticket::new(2), Op::Sync { file, what: SyncKind::Data }).is_ok());
        while io.in_flight() > 0 {
            io.reap(Wait::Block, &mut Vec::new()).unwrap();
        }
        assert_eq!(io.descriptors.oldest_dirty(), Some(file));
        crate::io::exact::sync(&mut io, file, SyncKind::Data).unwrap();
        assert_eq!(io.descriptors.oldest_dirty(), None);
    }

    #[test]
    fn a_bell_that_sounds_late_costs_one_look() {
        let Ok(mut io) = UringIo::new(UringConfig::default()) else {
            return eprintln!("skipped: io_uring is refused here");
        };
        let dir = tempfile::tempdir().unwrap();
        let file = io.open(&dir.path().join("log"), Open::AppendNew).unwrap();
        let mut done = Vec::new();
        for busy in [false, true] {
            // Busy with something that the ring does not hear of: it is never over.
            io.requests += usize::from(busy);
            // What a waker does after the mark, when that was already seen.
            rustix::io::write(io.bell.fd.as_fd(), &[1; 8]).unwrap();
            let cpu = || {
                let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
                line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
            };
            let before = cpu();
            io.reap(Wait::Park(Some(Duration::from_millis(300))), &mut done).unwrap();
            let used = Duration::from_nanos(cpu() - before);
            io.waker().wake();
            io.reap(Wait::Park(None), &mut done).unwrap();
            io.requests -= usize::from(busy);
            assert!(used < Duration::from_millis(30), "{used:?}, busy {busy}");
            assert!(done.is_empty());
        }
        io.close(file).unwrap();
    }
}
