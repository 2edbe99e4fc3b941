//! The backend that is always there: plain system calls.
//!
//! Writes are gathered: those of one file that lie one behind the other become one system call, when the caller reaps,
//! or when [`GATHER_MOST`] of them are there. They run on the caller's thread, in order per file. A read is answered at
//! once if its bytes are in the page cache; else it goes to a small pool of threads. So do syncs, but for one that is all
//! that the caller would wait for: it is done in the caller's thread (D15). Of syncs, one runs per file at a time, and
//! several that wait for the same file become one.
//!
//! Descriptors are a bounded pool (D12). A file with unsynced writes keeps its descriptor, because an error that the
//! kernel has not reported yet belongs to the open file; if all are such files, the least recently used one is synced
//! before its descriptor is given back.
//!
//! What is written to a file under [`Advice::CatchUp`] leaves the page cache when it is on the disk: by `RWF_DONTCACHE`
//! where the kernel and the file system offer it, else when it was synced.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, select, unbounded};

use super::descriptors::Descriptors;
use super::pace::Pace;
use super::track::{Syncs, Tracker};
use super::{
    Advice, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open, Operation, SyncKind, Ticket, Wait, names,
};

mod sys;

use sys::Offered;

/// How much is gathered for one write at most, in bytes. A single larger write is one system call all the same.
pub const GATHER_MOST: usize = 1 << 20;

/// How many buffers are gathered for one write at most: below the limit of every kernel.
const GATHER_COUNT: usize = 256;

/// Limits of a [`PwriteIo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PwriteConfig {
    /// How many descriptors are held at most, operations in flight apart. At least 1. Default 1,000.
    pub max_open_files: usize,
    /// How many operations may be in flight. At least 1. Default 1,024.
    pub queue_depth: usize,
    /// How many threads sync and read at most. At least 1; one more reads only, so that reads pass syncs. They start one by
    /// one, when all others are busy. Default 16: the kernel shares flushes of the disk among those who wait for one.
    pub sync_threads: usize,
    /// Whoever waits for one sync and nothing else does it by itself, without the pool, as long as syncs took less than
    /// this on average; zero: never. Default 1 ms.
    pub here_below: Duration,
}

impl Default for PwriteConfig {
    fn default() -> PwriteConfig {
        PwriteConfig {
            max_open_files: 1_000,
            queue_depth: 1_024,
            sync_threads: 16,
            here_below: Duration::from_millis(1),
        }
    }
}

/// What a [`PwriteIo`] has asked of the system, for metrics and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PwriteCounters {
    /// Writes that were submitted.
    pub writes: u64,
    /// System calls that wrote them.
    pub write_calls: u64,
    /// Those of them that the kernel was told to keep out of the page cache, and did.
    pub uncached_write_calls: u64,
    /// Reads that were answered from the page cache.
    pub cached_reads: u64,
    /// Reads that a thread of the pool did.
    pub pool_reads: u64,
    /// Syncs of one file.
    pub file_syncs: u64,
    /// Those of them that the waiting thread did by itself.
    pub syncs_here: u64,
    /// Files that were synced to give their descriptor to another.
    pub syncs_for_room: u64,
}

/// [`Io`] by plain system calls; see the [module](self).
#[derive(Debug)]
pub struct PwriteIo {
    config: PwriteConfig,
    track: Tracker<OpenFile>,
    descriptors: Descriptors<Arc<File>>,
    // INVARIANT: a file is in `order` exactly if it has a run.
    runs: BTreeMap<FileId, Run>,
    order: Vec<FileId>,
    jobs_running: usize,
    /// A sync that the pool does not have yet: it gets it with the next reap, unless this thread does it itself.
    fresh: Option<SyncJob>,
    pace: Pace,
    pool: Option<Pool>,
    to_me: Sender<Message>,
    inbox: Receiver<Message>,
    wake_sent: Arc<AtomicBool>,
    woken: bool,
    offered: Offered,
    counters: PwriteCounters,
}

#[derive(Debug)]
struct OpenFile {
    advice: Advice,
    /// Jobs of the pool that use it.
    jobs: usize,
}

/// Writes of one file, one behind the other, that were submitted and not yet done.
#[derive(Debug)]
struct Run {
    at: u64,
    size: usize,
    parts: Vec<(Ticket, Bytes)>,
}

#[derive(Debug)]
struct Pool {
    syncs: Sender<SyncJob>,
    reads: Sender<ReadJob>,
    sync_queue: Receiver<SyncJob>,
    read_queue: Receiver<ReadJob>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct SyncJob {
    id: FileId,
    file: Arc<File>,
    what: SyncKind,
    /// Whether its pages are of no use once they are on the disk.
    forget: bool,
    tickets: Syncs,
}

#[derive(Debug)]
struct ReadJob {
    id: FileId,
    file: Arc<File>,
    ticket: Ticket,
    at: u64,
    into: BytesMut,
}

#[derive(Debug)]
enum Message {
    Synced { id: FileId, tickets: Syncs, took: Duration, result: std::io::Result<()> },
    Read { id: FileId, ticket: Ticket, at: u64, into: BytesMut, result: std::io::Result<usize> },
    Wake,
}

fn count_of(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

impl PwriteIo {
    /// A backend without open files and without threads.
    pub fn new(config: PwriteConfig) -> PwriteIo {
        let (to_me, inbox) = unbounded();
        PwriteIo {
            config: PwriteConfig {
                max_open_files: config.max_open_files.max(1),
                queue_depth: config.queue_depth.max(1),
                sync_threads: config.sync_threads.max(1),
                here_below: config.here_below,
            },
            track: Tracker::new(),
            descriptors: Descriptors::new(config.max_open_files),
            runs: BTreeMap::new(),
            order: Vec::new(),
            jobs_running: 0,
            fresh: None,
            pace: Pace::new(config.here_below),
            pool: None,
            to_me,
            inbox,
            wake_sent: Arc::new(AtomicBool::new(false)),
            woken: false,
            offered: Offered::here(),
            counters: PwriteCounters::default(),
        }
    }

    /// How many descriptors of files are held now.
    pub fn open_descriptors(&self) -> usize {
        self.descriptors.len()
    }

    /// What it has asked of the system so far.
    pub fn counters(&self) -> PwriteCounters {
        self.counters
    }

    // Descriptors.

    /// Gives descriptors back until one more fits: idle ones, then those of files with unsynced writes, synced.
    fn make_room(&mut self) {
        self.descriptors.make_room(|_, _| {});
        while self.descriptors.is_full() {
            let Some(oldest) = self.descriptors.oldest_dirty() else { return };
            self.counters.syncs_for_room += 1;
            // DURABLE: what was written through this descriptor, whose errors would go with it.
            let synced = match self.descriptors.remove(oldest) {
                Some(descriptor) => descriptor.sync_all(),
                None => Ok(()),
            };
            if synced.is_err() {
                self.track.poison(oldest, Operation::Sync);
            }
        }
    }

    /// The descriptor of a file, opened again if it was given back.
    fn descriptor(
        &mut self,
        operation: Operation,
        id: FileId,
        position: Option<u64>,
    ) -> Result<Arc<File>, IoError> {
        let file = self.track.check_open(operation, id)?;
        if let Some(descriptor) = self.descriptors.get(id) {
            return Ok(Arc::clone(descriptor));
        }
        let (path, writable) = (file.path.clone(), file.writable);
        self.make_room();
        let opened = File::options().read(true).write(writable).open(&path);
        let opened = Arc::new(opened.map_err(|error| IoError::os(operation, path, position, error))?);
        self.descriptors.insert(id, Arc::clone(&opened));
        Ok(opened)
    }

    // Writes.

    fn submit_write(&mut self, ticket: Ticket, file: FileId, at: u64, bytes: Bytes) {
        if let Err(error) = self.track.begin_write(ticket, file, at, bytes.len()) {
            return self.track.finish(ticket, Op::Write { file, at, bytes }, Err(error));
        }
        self.counters.writes += 1;
        let size = bytes.len();
        let size_u64 = u64::try_from(size).unwrap_or(u64::MAX);
        let follows = self.runs.get(&file).is_some_and(|run| {
            run.at.checked_add(u64::try_from(run.size).unwrap_or(u64::MAX)) == Some(at)
                && at.checked_add(size_u64).is_some()
                && run.size.saturating_add(size) <= GATHER_MOST
                && run.parts.len() < GATHER_COUNT
        });
        if !follows {
            self.flush_writes(file);
        }
        let run = self.runs.entry(file).or_insert_with(|| {
            self.order.push(file);
            Run { at, size: 0, parts: Vec::new() }
        });
        run.size += size;
        run.parts.push((ticket, bytes));
        if run.size >= GATHER_MOST {
            self.flush_writes(file);
        }
    }

    /// Does the writes of a file that were gathered.
    fn flush_writes(&mut self, file: FileId) {
        if let Some(run) = self.runs.remove(&file) {
            self.order.retain(|other| *other != file);
            self.write_run(file, run);
        }
    }

    /// Does all writes that were gathered.
    fn flush_all_writes(&mut self) {
        for file in std::mem::take(&mut self.order) {
            if let Some(run) = self.runs.remove(&file) {
                self.write_run(file, run);
            }
        }
    }

    fn write_run(&mut self, id: FileId, run: Run) {
        let mut at = run.at;
        let mut parts = run.parts.into_iter();
        let (mut written, mut result) = (0, Ok(()));
        let checked = self.track.check_writable(Operation::Write, id, Some(at));
        match checked.and_then(|()| self.descriptor(Operation::Write, id, Some(at))) {
            Err(error) => {
                self.track.poison(id, Operation::Write);
                result = Err(error);
            }
            Ok(descriptor) => {
                self.descriptors.set_dirty(id, true);
                let uncached = self.is_catching_up(id);
                let all: Vec<Bytes> = parts.as_slice().iter().map(|(_, bytes)| bytes.clone()).collect();
                let (count, outcome) = self.write_all(&descriptor, at, all, uncached);
                written = count;
                if let Err(source) = outcome {
                    let failed_at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
                    result = Err(self.track.os(Operation::Write, id, Some(failed_at), source));
                    self.track.poison(id, Operation::Write);
                }
            }
        }
        // What was written whole succeeded, the next one has the error, and the others met a poisoned file.
        for (ticket, bytes) in parts.by_ref() {
            let size = bytes.len();
            let answer = if written >= size && (size > 0 || result.is_ok()) {
                written -= size;
                Ok(count_of(size))
            } else {
                written = 0;
                match std::mem::replace(&mut result, Ok(())) {
                    Err(error) => Err(error),
                    Ok(()) => self.track.check_writable(Operation::Write, id, Some(at)).map(|()| 0),
                }
            };
            let op = Op::Write { file: id, at, bytes };
            at = at.saturating_add(u64::try_from(size).unwrap_or(u64::MAX));
            self.track.finish(ticket, op, answer);
        }
    }

    /// Writes buffers one behind the other; how many bytes were written, and what ended it if not all were.
    fn write_all(
        &mut self,
        file: &File,
        at: u64,
        mut parts: Vec<Bytes>,
        uncached: bool,
    ) -> (usize, std::io::Result<()>) {
        let (mut written, mut first) = (0_usize, 0_usize);
        loop {
            while parts.get(first).is_some_and(Bytes::is_empty) {
                first += 1;
            }
            let rest = parts.get(first..).unwrap_or_default();
            if rest.is_empty() {
                return (written, Ok(()));
            }
            let slices: Vec<IoSlice<'_>> = rest.iter().map(|bytes| IoSlice::new(bytes)).collect();
            let position = at.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
            self.counters.write_calls += 1;
            let wrote = sys::write(&mut self.offered, file, position, &slices, uncached);
            self.counters.uncached_write_calls += u64::from(uncached && self.offered.uncached_writes);
            let mut count = match wrote {
                Ok(0) => return (written, Err(ErrorKind::WriteZero.into())),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return (written, Err(error)),
            };
            written += count;
            for part in parts.iter_mut().skip(first) {
                let taken = part.len().min(count);
                part.advance(taken);
                count -= taken;
                if count == 0 {
                    break;
                }
            }
        }
    }

    // Reads.

    fn submit_read(&mut self, ticket: Ticket, id: FileId, at: u64, mut into: BytesMut) {
        // A read of what was submitted sees it.
        self.flush_writes(id);
        let answer = self.descriptor(Operation::Read, id, Some(at)).and_then(|descriptor| {
            let found = loop {
                match sys::read_cached(&mut self.offered, &descriptor, at, &mut into) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    other => break other,
                }
            };
            match found {
                Ok(Some(count)) => Ok(Ok(count_of(count))),
                Ok(None) => Ok(Err(descriptor)),
                Err(source) => Err(self.track.os(Operation::Read, id, Some(at), source)),
            }
        });
        let result = match answer {
            Ok(Ok(count)) => {
                self.counters.cached_reads += 1;
                Ok(count)
            }
            Err(error) => Err(error),
            Ok(Err(descriptor)) => {
                self.counters.pool_reads += 1;
                match self.pool() {
                    Ok(pool) => {
                        let job = ReadJob { id, file: descriptor, ticket, at, into };
                        if pool.reads.send(job).is_err() {
                            unreachable!("the pool of threads lives as long as its sender");
                        }
                        self.job_started(id);
                        return;
                    }
                    Err(source) => Err(self.track.os(Operation::Read, id, Some(at), source)),
                }
            }
        };
        self.track.finish(ticket, Op::Read { file: id, at, into }, result);
    }

    // Syncs.

    fn job_started(&mut self, id: FileId) {
        self.jobs_running += 1;
        self.descriptors.pin(id);
        if let Some(file) = self.track.own_mut(id) {
            file.jobs += 1;
        }
    }

    fn job_ended(&mut self, id: FileId) {
        self.jobs_running -= 1;
        self.descriptors.unpin(id);
        if let Some(file) = self.track.own_mut(id) {
            file.jobs -= 1;
        }
    }

    fn sync_started(&mut self, id: FileId) {
        self.job_started(id);
        self.descriptors.set_dirty(id, false);
    }

    fn submit_sync(&mut self, ticket: Ticket, id: FileId, what: SyncKind) {
        if !self.track.waits(ticket, id, what) {
            self.start_sync(id, vec![(ticket, what)]);
        }
    }

    fn start_sync(&mut self, id: FileId, tickets: Syncs) {
        let checked = self.track.check_writable(Operation::Sync, id, None);
        let file = match checked.and_then(|()| self.descriptor(Operation::Sync, id, None)) {
            Ok(file) => file,
            Err(error) => return self.track.answer_syncs(id, tickets, Err(error)),
        };
        let all = tickets.iter().any(|(_, what)| *what == SyncKind::All);
        let what = if all { SyncKind::All } else { SyncKind::Data };
        let forget = !self.offered.uncached_writes && self.is_catching_up(id);
        self.track.begin_sync(id);
        let job = SyncJob { id, file, what, forget, tickets };
        if self.fresh.is_none() && self.jobs_running == 0 {
            self.fresh = Some(job);
            return;
        }
        self.hand_over();
        self.start_job(job);
    }

    /// Gives the pool the sync that it does not have yet.
    fn hand_over(&mut self) {
        if let Some(job) = self.fresh.take() {
            self.start_job(job);
        }
    }

    /// Does the sync that the pool does not have yet, for a caller who would only wait for it ([`Pace`]).
    fn sync_here(&mut self) {
        let Some(job) = self.fresh.take() else { return };
        self.counters.syncs_here += 1;
        self.sync_started(job.id);
        let synced = sync_job(job);
        self.take(synced);
    }

    fn start_job(&mut self, job: SyncJob) {
        let id = job.id;
        match self.pool() {
            Ok(pool) => {
                if pool.syncs.send(job).is_err() {
                    unreachable!("the pool of threads lives as long as its sender");
                }
                self.sync_started(id);
            }
            Err(error) => {
                let error = self.track.os(Operation::Sync, id, None, error);
                // Nothing was synced and nothing is known to be lost: but nobody may go on as if it had been.
                self.track.answer_syncs(id, job.tickets, Err(error));
                self.sync_ended(id);
            }
        }
    }

    /// The pool, with one more thread if all are busy and it may have more.
    fn pool(&mut self) -> std::io::Result<&Pool> {
        if self.pool.is_none() {
            let (syncs, sync_queue) = unbounded();
            let (reads, read_queue) = unbounded();
            self.pool = Some(Pool { syncs, reads, sync_queue, read_queue, threads: Vec::new() });
        }
        let Some(pool) = &mut self.pool else { unreachable!("it was made above") };
        // The first thread only reads, so one sync needs two.
        while pool.threads.len() <= self.config.sync_threads.min(self.jobs_running.saturating_add(1)) {
            let (read_queue, to_me) = (pool.read_queue.clone(), self.to_me.clone());
            let number = pool.threads.len();
            let sync_queue = (number > 0).then(|| pool.sync_queue.clone());
            let thread = std::thread::Builder::new()
                .name(format!("weir-disk-{number}"))
                .spawn(move || pool_thread(sync_queue.as_ref(), &read_queue, &to_me));
            match thread {
                Ok(thread) => pool.threads.push(thread),
                // Fewer threads do as well, but one has to sync.
                Err(error) if pool.threads.len() < 2 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(pool)
    }

    fn is_catching_up(&self, id: FileId) -> bool {
        self.track.own(id).is_some_and(|file| file.advice == Advice::CatchUp)
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Wake => {
                self.wake_sent.store(false, Ordering::Release);
                self.woken = true;
            }
            Message::Read { id, ticket, at, into, result } => {
                self.job_ended(id);
                let result = match result {
                    Ok(count) => Ok(count_of(count)),
                    Err(source) => Err(self.track.os(Operation::Read, id, Some(at), source)),
                };
                self.track.finish(ticket, Op::Read { file: id, at, into }, result);
            }
            Message::Synced { id, tickets, took, result } => {
                self.job_ended(id);
                self.counters.file_syncs += 1;
                self.pace.took(took);
                let result = result.map_err(|source| self.track.os(Operation::Sync, id, None, source));
                self.track.answer_syncs(id, tickets, result);
                self.sync_ended(id);
            }
        }
    }

    /// Starts the sync of those who waited until the one before had ended.
    fn sync_ended(&mut self, id: FileId) {
        if let Some(waiting) = self.track.end_sync(id) {
            self.start_sync(id, waiting);
        }
    }

    /// Waits until something has ended. Something is under way.
    fn wait_for_message(&mut self) {
        self.hand_over();
        match self.inbox.recv() {
            Ok(message) => self.take(message),
            Err(_) => unreachable!("this value holds a sender of its own inbox"),
        }
    }
}

fn pool_thread(syncs: Option<&Receiver<SyncJob>>, reads: &Receiver<ReadJob>, to_owner: &Sender<Message>) {
    loop {
        let message = match syncs {
            None => match reads.recv() {
                Ok(job) => read_job(job),
                Err(_) => return,
            },
            Some(syncs) => select! {
                recv(reads) -> job => match job {
                    Ok(job) => read_job(job),
                    Err(_) => return,
                },
                recv(syncs) -> job => match job {
                    Ok(job) => sync_job(job),
                    Err(_) => return,
                },
            },
        };
        if to_owner.send(message).is_err() {
            return;
        }
    }
}

fn read_job(job: ReadJob) -> Message {
    let ReadJob { id, file, ticket, at, mut into } = job;
    let result = loop {
        match file.read_at(&mut into, at) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    drop(file);
    Message::Read { id, ticket, at, into, result }
}

fn sync_job(job: SyncJob) -> Message {
    let SyncJob { id, file, what, forget, tickets } = job;
    let begun = Pace::now();
    let result = sync_descriptor(&file, what, forget);
    Message::Synced { id, tickets, took: begun.elapsed(), result }
}

fn sync_descriptor(file: &File, what: SyncKind, forget: bool) -> std::io::Result<()> {
    loop {
        let result = match what {
            SyncKind::Data => file.sync_data(),
            SyncKind::All => file.sync_all(),
        };
        match result {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(()) if forget => {
                sys::forget_pages(file);
                return Ok(());
            }
            other => return other,
        }
    }
}

impl Drop for PwriteIo {
    fn drop(&mut self) {
        self.flush_all_writes();
        self.hand_over();
        // Syncs that wait for others of their file start when those end.
        while self.jobs_running > 0 {
            self.wait_for_message();
            self.hand_over();
        }
        if let Some(Pool { syncs, reads, threads, .. }) = self.pool.take() {
            drop((syncs, reads));
            for thread in threads {
                // A thread that panicked has nothing left to wait for.
                let _ = thread.join();
            }
        }
    }
}

impl Io for PwriteIo {
    fn open(&mut self, path: &Path, how: Open) -> Result<FileId, IoError> {
        self.make_room();
        let mut options = File::options();
        options.read(true);
        match how {
            Open::Read => {}
            Open::Write | Open::Append => {
                options.write(true);
            }
            Open::CreateNew | Open::AppendNew => {
                options.write(true).create_new(true);
            }
            Open::CreateOrOpen => {
                options.write(true).create(true).truncate(false);
            }
        }
        let file = options.open(path).map_err(|e| IoError::os(Operation::Open, path, None, e))?;
        let own = OpenFile { advice: Advice::Normal, jobs: 0 };
        let id = self.track.open(path, how != Open::Read, own);
        self.descriptors.insert(id, Arc::new(file));
        Ok(id)
    }

    fn close(&mut self, file: FileId) -> Result<(), IoError> {
        self.flush_writes(file);
        self.track.check_open(Operation::Close, file)?;
        while self.track.own(file).is_some_and(|open| open.jobs > 0) || self.track.is_syncing(file) {
            self.wait_for_message();
        }
        self.track.close(file);
        self.descriptors.remove(file);
        Ok(())
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.track.path(file)
    }

    fn write_alignment(&self, _: FileId) -> u64 {
        1
    }

    fn advise(&mut self, file: FileId, advice: Advice) {
        self.flush_writes(file);
        if let Some(file) = self.track.own_mut(file) {
            file.advice = advice;
        }
    }

    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        self.flush_writes(file);
        let descriptor = self.descriptor(Operation::Length, file, None)?;
        let metadata = descriptor.metadata();
        metadata.map(|m| m.len()).map_err(|source| self.track.os(Operation::Length, file, None, source))
    }

    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        self.track.check_truncate(file, len)?;
        let descriptor = self.descriptor(Operation::Truncate, file, Some(len))?;
        self.descriptors.set_dirty(file, true);
        loop {
            match descriptor.set_len(len) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    self.track.poison(file, Operation::Truncate);
                    return Err(self.track.os(Operation::Truncate, file, Some(len), source));
                }
            }
        }
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
            Op::Write { file, at, bytes } => self.submit_write(ticket, file, at, bytes),
            Op::Read { file, at, into } => self.submit_read(ticket, file, at, into),
            Op::Sync { file, what } => self.submit_sync(ticket, file, what),
        }
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        self.flush_all_writes();
        while let Ok(message) = self.inbox.try_recv() {
            self.take(message);
        }
        let may_wait = match wait {
            Wait::Poll => false,
            Wait::Block => true,
            Wait::Park(limit) => !self.woken && limit != Some(Duration::ZERO),
        };
        if may_wait && !self.track.has_ready() && self.jobs_running == 0 && self.pace.is_short() {
            self.sync_here();
        }
        self.hand_over();
        match wait {
            Wait::Poll => {}
            Wait::Block => {
                while !self.track.has_ready() && self.jobs_running > 0 {
                    self.wait_for_message();
                }
            }
            Wait::Park(limit) => {
                if !self.track.has_ready() && !self.woken {
                    let message = match limit {
                        None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                        Some(limit) => self.inbox.recv_timeout(limit),
                    };
                    if let Ok(message) = message {
                        self.take(message);
                    }
                }
                self.woken = false;
            }
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
        let (sent, to_me) = (Arc::clone(&self.wake_sent), self.to_me.clone());
        IoWaker::new(move || {
            if !sent.swap(true, Ordering::AcqRel) {
                // The inbox may be gone with its owner: then there is nobody to wake.
                let _ = to_me.send(Message::Wake);
            }
        })
    }
}

#[cfg(test)]
mod tests;
