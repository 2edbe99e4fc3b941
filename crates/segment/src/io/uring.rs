//! The backend of speed: io_uring, and past the page cache for files that grow at their end.
//!
//! This file is the boundary to the kernel and holds all `unsafe` of the workspace: `Ring` takes requests together
//! with the memory that they are about, and gives both back with the result. What the requests mean, and how the
//! contract of [`Io`](super::Io) comes out of them, is in safe code in `uring/backend.rs`: [`UringIo`].
//!
//! # Invariants
//!
//! - **U1** A request that was submitted, and the memory that it is about, is owned by its slot in `Ring` until its
//!   completion was taken from the completion queue. Nothing outside can reach that memory for writing: what is written
//!   is [`Bytes`], which nobody can change, and what is read into was moved in.
//! - **U2** What the kernel was given the address of does not move while in flight: bytes and buffers lie on the heap,
//!   and so does the box that holds the request's vector. A slot is not used again, and its number not given out again,
//!   before its completion was taken.
//! - **U3** A file stays open while it has requests in flight: each request holds its descriptor.
//! - **U4** Dropping the ring first waits for every request; if that fails, requests and memory are leaked, never freed.
//! - **U5** One thread owns the ring: the type is neither `Send` nor `Sync`.
//! - **U6** Results are counts, or errors as negative numbers: `outcome` converts them, and nothing else does.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Error;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};

use super::buffer::PoolBuffer;

mod backend;

pub use backend::{UringConfig, UringCounters, UringIo};

/// The most bytes of one part of a request.
const MAX_PART: usize = if cfg!(test) { 1 << 16 } else { 1 << 30 };

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UringError {
    /// The kernel refused to make one, with every setting that was tried.
    #[error("io_uring_setup failed")]
    Setup {
        /// The last refusal.
        #[source]
        source: Error,
    },
    /// The kernel is too old: it lacks an operation or a feature.
    #[error("this kernel's io_uring lacks {what}")]
    Missing {
        /// What it lacks.
        what: &'static str,
    },
    /// Something else that the backend needs could not be had.
    #[error("{what} failed")]
    Other {
        /// What was being done.
        what: &'static str,
        /// The operating system's error.
        #[source]
        source: Error,
    },
}

impl UringError {
    /// The number of the operating system's error, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            UringError::Setup { source } | UringError::Other { source, .. } => source.raw_os_error(),
            UringError::Missing { .. } => None,
        }
    }
}

/// An open file, and its number in the ring's table of files if it has one.
#[derive(Debug)]
struct Descriptor {
    file: File,
    fixed: Option<u32>,
}

/// Memory that is read into. It is initialised, so that whatever a read leaves is plain bytes.
#[derive(Debug)]
enum Memory {
    /// The caller's, up to its length.
    Caller(BytesMut),
    /// Aligned, up to its capacity.
    Pool(PoolBuffer),
}

impl Memory {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Memory::Caller(bytes) => bytes,
            Memory::Pool(buffer) => buffer.as_mut_capacity(),
        }
    }
}

/// What the kernel is asked to do, with everything that it needs until it has done it (U1, U3).
#[derive(Debug)]
enum Request {
    /// Writes `first` and then `second`, which may be empty, at `at`.
    Write { file: Rc<Descriptor>, at: u64, first: Bytes, second: Bytes },
    /// Reads at most `most` bytes at `at` into the start of `into`.
    Read { file: Rc<Descriptor>, at: u64, into: Memory, most: usize },
    /// Makes a file durable, or what of it is data.
    Sync { file: Rc<Descriptor>, data_only: bool },
    /// Completes when a descriptor can be read.
    Poll { fd: Rc<OwnedFd> },
}

impl Request {
    /// How many bytes it writes.
    fn write_size(&self) -> usize {
        match self {
            Request::Write { first, second, .. } => first.len() + second.len(),
            Request::Read { .. } | Request::Sync { .. } | Request::Poll { .. } => 0,
        }
    }
}

/// A request in flight, and what its owner wants back with it.
struct Flight<T> {
    request: Request,
    vector: [libc::iovec; 2],
    tag: T,
}

struct Slot<T> {
    uses: u32,
    flight: Option<Box<Flight<T>>>,
}

/// How long [`Ring::enter`] waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enter {
    /// Not at all.
    Now,
    /// For one completion.
    One,
    /// For one completion, or this long. May return early.
    OneFor(Duration),
}

/// A ring with its requests in flight. `T` is what the owner wants back with each.
struct Ring<T> {
    ring: IoUring,
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    /// Slots whose request did not fit into the submission queue yet.
    backlog: VecDeque<usize>,
    in_flight: usize,
    /// Free numbers in the table of files; empty if there is no table.
    files: Vec<u32>,
    has_files: bool,
    settings: Settings,
    // U5: a raw pointer is neither Send nor Sync.
    _thread: PhantomData<*const ()>,
}

/// The result of a request: a count, or an error (U6).
fn outcome(result: i32) -> Result<u32, Error> {
    // Only what is negative has an absolute value that is an error's number.
    u32::try_from(result).map_err(|_| Error::from_raw_os_error(result.saturating_neg()))
}

fn part(size: usize) -> u32 {
    u32::try_from(size.min(MAX_PART)).unwrap_or(0)
}

fn iovec(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len().min(MAX_PART) }
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Builds an operation for a file, by its number in the table or by its descriptor.
macro_rules! for_file {
    ($file:expr, |$target:ident| $build:expr) => {
        match $file.fixed {
            Some(number) => {
                let $target = Fixed(number);
                $build
            }
            None => {
                let $target = Fd($file.file.as_raw_fd());
                $build
            }
        }
    };
}

impl<T> Flight<T> {
    /// The request in the kernel's form. Every address in it is of memory that this value owns, and every length is at
    /// most that memory's.
    fn entry(&mut self) -> squeue::Entry {
        match &mut self.request {
            Request::Write { file, at, first, second } if second.is_empty() || first.len() > MAX_PART => {
                let (address, size, at) = (first.as_ptr(), part(first.len()), *at);
                for_file!(file, |target| opcode::Write::new(target, address, size).offset(at).build())
            }
            Request::Write { file, at, first, second } => {
                self.vector = [iovec(first), iovec(second)];
                let (address, at) = (self.vector.as_ptr(), *at);
                for_file!(file, |target| opcode::Writev::new(target, address, 2).offset(at).build())
            }
            Request::Read { file, at, into, most } => {
                let memory = into.as_mut_slice();
                let size = part(memory.len().min(*most));
                let (address, at) = (memory.as_mut_ptr(), *at);
                for_file!(file, |target| opcode::Read::new(target, address, size).offset(at).build())
            }
            Request::Sync { file, data_only } => {
                let flags = if *data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
                for_file!(file, |target| opcode::Fsync::new(target).flags(flags).build())
            }
            Request::Poll { fd } => {
                let events = u32::from(libc::POLLIN.unsigned_abs());
                opcode::PollAdd::new(Fd(fd.as_raw_fd()), events).build()
            }
        }
    }
}

impl<T> Ring<T> {
    /// A ring for at most `depth` requests, `entries` of which are submitted by one call, with the best settings that
    /// this kernel takes.
    fn new(entries: u32, depth: u32) -> Result<Ring<T>, UringError> {
        let (ring, settings) = build(entries, depth)?;
        Ring::over(ring, settings)
    }

    /// The same over what the kernel gave.
    fn over(ring: IoUring, settings: Settings) -> Result<Ring<T>, UringError> {
        // Waiting with a limit of time needs it (Linux 5.11), and so does not losing completions (5.5).
        if !ring.params().is_feature_ext_arg() {
            return Err(UringError::Missing { what: "waiting with a limit of time" });
        }
        if !ring.params().is_feature_nodrop() {
            return Err(UringError::Missing { what: "completions that are never dropped" });
        }
        let other = |what| move |source| UringError::Other { what, source };
        // A seccomp profile may let a ring be made and not be used.
        ring.submit().map_err(other("calling io_uring_enter"))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(other("asking io_uring for its operations"))?;
        let needed = [
            (opcode::Write::CODE, "the operation Write"),
            (opcode::Writev::CODE, "the operation Writev"),
            (opcode::Read::CODE, "the operation Read"),
            (opcode::Fsync::CODE, "the operation Fsync"),
            (opcode::PollAdd::CODE, "the operation PollAdd"),
        ];
        for (code, what) in needed {
            if !probe.is_supported(code) {
                return Err(UringError::Missing { what });
            }
        }
        Ok(Ring {
            ring,
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            in_flight: 0,
            files: Vec::new(),
            has_files: false,
            settings,
            _thread: PhantomData,
        })
    }

    /// The settings that the kernel took.
    fn settings(&self) -> &'static str {
        self.settings.name()
    }

    /// Makes a table for `count` files, with which the kernel need not look a descriptor up for each request. Whether it
    /// has one afterwards: without, everything works.
    fn make_file_table(&mut self, count: u32) -> bool {
        if count > 0 && !self.has_files && self.ring.submitter().register_files_sparse(count).is_ok() {
            self.files = (0..count).rev().collect();
            self.has_files = true;
        }
        self.has_files
    }

    /// Puts a file into the table, if there is one with room.
    fn add_file(&mut self, fd: RawFd) -> Option<u32> {
        let number = self.files.pop()?;
        match self.ring.submitter().register_files_update(number, &[fd]) {
            Ok(1) => Some(number),
            _ => {
                self.files.push(number);
                None
            }
        }
    }

    /// Takes a file out of the table. No request of it is in flight.
    fn remove_file(&mut self, number: u32) {
        // If the kernel keeps the entry, its number is not given out again.
        if let Ok(1) = self.ring.submitter().register_files_update(number, &[-1]) {
            self.files.push(number);
        }
    }

    /// Takes a request. The kernel gets it with the next [`Ring::enter`].
    fn start(&mut self, request: Request, tag: T) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { uses: 0, flight: None });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        assert!(slot.flight.is_none(), "slot {index} is in use");
        slot.flight = Some(Box::new(Flight { request, vector: [EMPTY; 2], tag }));
        self.in_flight += 1;
        if !self.backlog.is_empty() || !self.push(index) {
            self.backlog.push_back(index);
        }
    }

    /// The number of a slot's current use.
    fn user_data(index: usize, uses: u32) -> u64 {
        u64::from(uses) << 32 | u64::try_from(index).unwrap_or(0) & u64::from(u32::MAX)
    }

    /// Puts the request of a slot into the submission queue; false if that is full.
    fn push(&mut self, index: usize) -> bool {
        let slot = &mut self.slots[index];
        let Some(flight) = slot.flight.as_mut() else { unreachable!("slot {index} holds no request") };
        let entry = flight.entry().user_data(Self::user_data(index, slot.uses));
        let mut queue = self.ring.submission();
        // SAFETY: `push` wants every parameter of the entry to be valid until the operation has ended. `Flight::entry`
        // takes each address from memory that the flight owns, with a length of at most that memory's. The flight is in
        // its slot and leaves it only in `Ring::completed`, when its completion was taken, or is leaked (U1, U4). Neither
        // the boxed flight nor the heap memory of its bytes and buffers moves meanwhile, and the slot is not used again
        // (U2). Memory that the kernel writes to is initialised bytes of which the flight holds the only handle (U1). The
        // descriptor is open as long as the flight holds it (U3).
        unsafe { queue.push(&entry) }.is_ok()
    }

    /// Hands over what waits, and waits for completions as `wait` says. Does nothing if there is nothing to do.
    ///
    /// # Errors
    /// If the ring is broken. Interruptions and shortages are not errors.
    fn enter(&mut self, wait: Enter) -> Result<(), Error> {
        loop {
            while let Some(index) = self.backlog.front().copied() {
                if !self.push(index) {
                    break;
                }
                self.backlog.pop_front();
            }
            let more = !self.backlog.is_empty();
            let ready = !self.ring.completion().is_empty();
            let queue = self.ring.submission();
            let (queued, work) = (!queue.is_empty(), queue.taskrun() || queue.cq_overflow());
            drop(queue);
            let want = usize::from(wait != Enter::Now && !ready && !more && self.in_flight > 0);
            if want == 0 && !queued && !work {
                return Ok(());
            }
            let submitter = self.ring.submitter();
            let entered = match wait {
                Enter::OneFor(limit) if want > 0 => {
                    let limit = Timespec::from(limit);
                    submitter.submit_with_args(want, &SubmitArgs::new().timespec(&limit))
                }
                _ => submitter.submit_and_wait(want),
            };
            match entered.map_err(|error| (error.raw_os_error(), error)) {
                Ok(_) if more => {}
                Ok(_) => return Ok(()),
                Err((Some(libc::ETIME), _)) => return Ok(()),
                Err((Some(libc::EINTR), _)) => {
                    if matches!(wait, Enter::OneFor(_)) {
                        return Ok(());
                    }
                }
                // The kernel is short of memory, or wants completions to be taken first.
                Err((Some(libc::EAGAIN | libc::EBUSY), _)) => {
                    if wait != Enter::One || !self.ring.completion().is_empty() {
                        return Ok(());
                    }
                    pause();
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Takes what has completed: each request with its memory, its tag and its result, for [`outcome`].
    fn completed(&mut self, into: &mut Vec<(Request, T, i32)>) {
        for entry in self.ring.completion() {
            let (data, result) = (entry.user_data(), entry.result());
            assert!(!cqueue::more(entry.flags()), "a request completes once");
            let index = usize::try_from(data & u64::from(u32::MAX)).unwrap_or(usize::MAX);
            let slot = self.slots.get_mut(index).filter(|slot| Self::user_data(index, slot.uses) == data);
            let Some(slot) = slot else {
                panic!("the kernel completed request {data:#x}, which is not in flight")
            };
            let Some(flight) = slot.flight.take() else {
                panic!("the kernel completed request {data:#x} twice");
            };
            slot.uses = slot.uses.wrapping_add(1);
            self.free.push(index);
            self.in_flight -= 1;
            into.push((flight.request, flight.tag, result));
        }
    }

    /// Whether a request is in flight that the kernel does something to memory or to a file for.
    fn owes(&self) -> bool {
        let mut flights = self.slots.iter().filter_map(|slot| slot.flight.as_ref());
        flights.any(|flight| !matches!(flight.request, Request::Poll { .. }))
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let mut ended = Vec::new();
        while self.owes() {
            if self.enter(Enter::One).is_err() {
                // U4: the kernel may still use them.
                for slot in &mut self.slots {
                    if let Some(flight) = slot.flight.take() {
                        Box::leak(flight);
                    }
                }
                return;
            }
            self.completed(&mut ended);
            ended.clear();
        }
    }
}

/// A millisecond, for a kernel that is short of something.
fn pause() {
    let millisecond = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // Interrupted or not, the time that it took does not matter.
    let _ = rustix::event::poll(&mut [], Some(&millisecond));
}

/// Settings of a ring, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settings {
    /// Completions are worked on when this thread asks for them, and by no interrupt before (Linux 6.1).
    Deferred,
    /// This thread is not interrupted for completions (Linux 5.19).
    Cooperative,
    /// What every kernel has.
    Plain,
    /// The same, for little memory.
    Small,
}

impl Settings {
    const ALL: [Settings; 4] = [Settings::Deferred, Settings::Cooperative, Settings::Plain, Settings::Small];

    fn name(self) -> &'static str {
        match self {
            Settings::Deferred => "single issuer, deferred task work",
            Settings::Cooperative => "cooperative task work",
            Settings::Plain => "plain settings",
            Settings::Small => "plain settings and few entries",
        }
    }

    fn build(self, entries: u32, completions: u32) -> Result<IoUring, Error> {
        let mut builder = IoUring::builder();
        builder.setup_clamp();
        match self {
            Settings::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
                builder.setup_cqsize(completions).build(entries)
            }
            Settings::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag().setup_cqsize(completions).build(entries)
            }
            Settings::Plain => builder.setup_cqsize(completions).build(entries),
            // Completions beyond its short queue are kept by the kernel.
            Settings::Small => builder.build(entries.min(16)),
        }
    }
}

/// Asks the kernel for a ring: the best settings first, then plainer ones.
fn build(entries: u32, depth: u32) -> Result<(IoUring, Settings), UringError> {
    let entries = entries.clamp(1, 4_096);
    // One more for the poll of the waker; a completion queue this long cannot overflow.
    let completions = depth.saturating_add(1).max(entries.saturating_mul(2)).next_power_of_two();
    let mut last = Error::from_raw_os_error(libc::EINVAL);
    for settings in Settings::ALL {
        match settings.build(entries, completions) {
            Ok(ring) => return Ok((ring, settings)),
            // Unknown settings, or too much memory: less may do.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOMEM)) => last = error,
            Err(source) => return Err(UringError::Setup { source }),
        }
    }
    Err(UringError::Setup { source: last })
}

#[cfg(test)]
mod tests;
