//! The backend that is always there: plain system calls.
//!
//! Writes and reads happen inside `submit`, so writes are in order per file. Syncs run on a small pool of threads, one
//! at a time per file; several that wait for the same file become one. Descriptors are a bounded pool: a file without
//! unsynced writes may lose its descriptor and gets it back when it is used (D12). A file with unsynced writes keeps
//! it, because an error that the kernel has not reported yet belongs to the open file.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::UNIX_EPOCH;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use super::track::{OVERLAP, WritesInFlight};
use super::{At, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open, Operation, SyncKind, Ticket, Wait};

/// Limits of a [`PwriteIo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PwriteConfig {
    /// How many descriptors are held at most, files with unsynced writes apart. At least 1. Default 1,000.
    pub max_open_files: usize,
    /// How many operations may be in flight. At least 1. Default 1,024.
    pub queue_depth: usize,
    /// How many threads sync. At least 1. They start with the first sync. Default 4.
    pub sync_threads: usize,
}

impl Default for PwriteConfig {
    fn default() -> PwriteConfig {
        PwriteConfig { max_open_files: 1_000, queue_depth: 1_024, sync_threads: 4 }
    }
}

/// [`Io`] by plain system calls; see the [module](self).
#[derive(Debug)]
pub struct PwriteIo {
    config: PwriteConfig,
    files: BTreeMap<FileId, OpenFile>,
    next_file: u64,
    descriptors: usize,
    clock: u64,
    writes: WritesInFlight,
    ready: VecDeque<Done>,
    in_flight: usize,
    syncs_running: usize,
    pool: Option<Pool>,
    to_me: Sender<Message>,
    inbox: Receiver<Message>,
    wake_sent: Arc<AtomicBool>,
    woken: bool,
}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    writable: bool,
    descriptor: Option<Arc<File>>,
    last_used: u64,
    /// Written or cut since the last sync was submitted.
    unsynced: bool,
    poisoned: Option<Operation>,
    syncing: bool,
    waiting: Vec<(Ticket, SyncKind)>,
}

#[derive(Debug)]
struct Pool {
    jobs: Sender<SyncJob>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct SyncJob {
    id: FileId,
    file: Arc<File>,
    what: SyncKind,
    tickets: Vec<(Ticket, SyncKind)>,
}

#[derive(Debug)]
enum Message {
    Synced { id: FileId, tickets: Vec<(Ticket, SyncKind)>, result: std::io::Result<()> },
    Wake,
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
            },
            files: BTreeMap::new(),
            next_file: 0,
            descriptors: 0,
            clock: 0,
            writes: WritesInFlight::default(),
            ready: VecDeque::new(),
            in_flight: 0,
            syncs_running: 0,
            pool: None,
            to_me,
            inbox,
            wake_sent: Arc::new(AtomicBool::new(false)),
            woken: false,
        }
    }

    /// How many descriptors are held now.
    pub fn open_descriptors(&self) -> usize {
        self.descriptors
    }

    fn at(&self, operation: Operation, file: FileId, position: Option<u64>) -> At {
        At { operation, path: self.path(file), position }
    }

    fn not_open(&self, operation: Operation, file: FileId) -> IoError {
        IoError::Misuse { at: self.at(operation, file, None), rule: "the file is not open" }
    }

    fn adopt(&mut self, path: &Path, writable: bool, descriptor: File) -> FileId {
        self.make_room();
        let id = FileId(self.next_file);
        self.next_file += 1;
        self.clock += 1;
        self.descriptors += 1;
        self.files.insert(
            id,
            OpenFile {
                path: path.to_path_buf(),
                writable,
                descriptor: Some(Arc::new(descriptor)),
                last_used: self.clock,
                unsynced: false,
                poisoned: None,
                syncing: false,
                waiting: Vec::new(),
            },
        );
        id
    }

    /// Gives descriptors back until one more fits, least recently used first.
    fn make_room(&mut self) {
        while self.descriptors >= self.config.max_open_files {
            let victim = self
                .files
                .iter_mut()
                .filter(|(_, file)| file.descriptor.is_some() && !file.unsynced && !file.syncing)
                .min_by_key(|(_, file)| file.last_used);
            let Some((_, file)) = victim else { return };
            file.descriptor = None;
            self.descriptors -= 1;
        }
    }

    /// The descriptor of a file, opened again if it was given back.
    fn descriptor(&mut self, operation: Operation, id: FileId) -> Result<Arc<File>, IoError> {
        let missing = match self.files.get(&id) {
            None => return Err(self.not_open(operation, id)),
            Some(file) => file.descriptor.is_none(),
        };
        if missing {
            self.make_room();
        }
        self.clock += 1;
        let Some(file) = self.files.get_mut(&id) else { return Err(self.not_open(operation, id)) };
        file.last_used = self.clock;
        if let Some(descriptor) = &file.descriptor {
            return Ok(Arc::clone(descriptor));
        }
        let opened = File::options().read(true).write(file.writable).open(&file.path);
        let opened = Arc::new(opened.map_err(|e| IoError::os(operation, &file.path, None, e))?);
        file.descriptor = Some(Arc::clone(&opened));
        self.descriptors += 1;
        Ok(opened)
    }

    fn check_writable(&self, operation: Operation, id: FileId, position: Option<u64>) -> Result<(), IoError> {
        match self.files.get(&id) {
            None => Err(self.not_open(operation, id)),
            Some(OpenFile { poisoned: Some(cause), .. }) => {
                Err(IoError::Poisoned { at: self.at(operation, id, position), cause: *cause })
            }
            Some(_) => Ok(()),
        }
    }

    fn poison(&mut self, id: FileId, cause: Operation) {
        if let Some(file) = self.files.get_mut(&id) {
            file.poisoned.get_or_insert(cause);
        }
    }

    fn write(&mut self, id: FileId, at: u64, bytes: &[u8]) -> Result<u32, IoError> {
        self.check_writable(Operation::Write, id, Some(at))?;
        let descriptor = self.descriptor(Operation::Write, id)?;
        if let Some(file) = self.files.get_mut(&id) {
            file.unsynced = true;
        }
        let written = loop {
            match descriptor.write_at(bytes, at) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) if !bytes.is_empty() => break Err(ErrorKind::WriteZero.into()),
                other => break other,
            }
        };
        match written {
            Ok(count) => Ok(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(error) => {
                self.poison(id, Operation::Write);
                Err(IoError::Os { at: self.at(Operation::Write, id, Some(at)), source: error })
            }
        }
    }

    fn read(&mut self, id: FileId, at: u64, into: &mut [u8]) -> Result<u32, IoError> {
        let descriptor = self.descriptor(Operation::Read, id)?;
        loop {
            match descriptor.read_at(into, at) {
                Ok(count) => return Ok(u32::try_from(count).unwrap_or(u32::MAX)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(IoError::Os { at: self.at(Operation::Read, id, Some(at)), source: error });
                }
            }
        }
    }

    fn start_sync(&mut self, id: FileId, tickets: Vec<(Ticket, SyncKind)>) {
        let what = if tickets.iter().any(|(_, what)| *what == SyncKind::All) {
            SyncKind::All
        } else {
            SyncKind::Data
        };
        let checked = self
            .check_writable(Operation::Sync, id, None)
            .and_then(|()| self.descriptor(Operation::Sync, id));
        let file = match checked {
            Ok(file) => file,
            Err(error) => return self.answer_syncs(id, tickets, Err(error)),
        };
        let job = SyncJob { id, file, what, tickets };
        let pool = match self.pool() {
            Ok(pool) => pool,
            Err(source) => {
                let error = IoError::Os { at: self.at(Operation::Sync, id, None), source };
                return self.answer_syncs(id, job.tickets, Err(error));
            }
        };
        if pool.jobs.send(job).is_err() {
            unreachable!("the pool of sync threads lives as long as its sender");
        }
        self.syncs_running += 1;
        if let Some(file) = self.files.get_mut(&id) {
            file.syncing = true;
            file.unsynced = false;
        }
    }

    fn pool(&mut self) -> std::io::Result<&Pool> {
        if self.pool.is_none() {
            let (jobs, queue) = unbounded::<SyncJob>();
            let mut threads = Vec::new();
            for number in 0..self.config.sync_threads {
                let (queue, to_me) = (queue.clone(), self.to_me.clone());
                let thread = std::thread::Builder::new()
                    .name(format!("weir-sync-{number}"))
                    .spawn(move || sync_thread(&queue, &to_me));
                match thread {
                    Ok(thread) => threads.push(thread),
                    // Fewer threads sync as well.
                    Err(error) if threads.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
            self.pool = Some(Pool { jobs, threads });
        }
        match &self.pool {
            Some(pool) => Ok(pool),
            None => unreachable!("it was made above"),
        }
    }

    /// One answer for each ticket; the first gets the error itself, the others that the file is poisoned.
    fn answer_syncs(&mut self, id: FileId, tickets: Vec<(Ticket, SyncKind)>, result: Result<(), IoError>) {
        let mut error = result.err();
        let failed = error.is_some();
        for (ticket, what) in tickets {
            let result = match error.take() {
                Some(error) => Err(error),
                None if failed => {
                    Err(IoError::Poisoned { at: self.at(Operation::Sync, id, None), cause: Operation::Sync })
                }
                None => Ok(0),
            };
            self.ready.push_back(Done { ticket, op: Op::Sync { file: id, what }, result });
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Wake => {
                self.wake_sent.store(false, Ordering::Release);
                self.woken = true;
            }
            Message::Synced { id, tickets, result } => {
                self.syncs_running -= 1;
                let result = result.map_err(|source| {
                    self.poison(id, Operation::Sync);
                    IoError::Os { at: self.at(Operation::Sync, id, None), source }
                });
                self.answer_syncs(id, tickets, result);
                let waiting = match self.files.get_mut(&id) {
                    Some(file) => {
                        file.syncing = false;
                        std::mem::take(&mut file.waiting)
                    }
                    None => Vec::new(),
                };
                if !waiting.is_empty() {
                    self.start_sync(id, waiting);
                }
            }
        }
    }

    fn wait_for_message(&mut self) {
        match self.inbox.recv() {
            Ok(message) => self.take(message),
            Err(_) => unreachable!("this value holds a sender of its own inbox"),
        }
    }

    fn deliver(&mut self, done: &mut Vec<Done>) {
        for item in self.ready.drain(..) {
            self.writes.end(&item);
            self.in_flight -= 1;
            done.push(item);
        }
    }
}

fn sync_thread(queue: &Receiver<SyncJob>, to_owner: &Sender<Message>) {
    while let Ok(SyncJob { id, file, what, tickets }) = queue.recv() {
        let result = match what {
            SyncKind::Data => file.sync_data(),
            SyncKind::All => file.sync_all(),
        };
        drop(file);
        if to_owner.send(Message::Synced { id, tickets, result }).is_err() {
            return;
        }
    }
}

impl Drop for PwriteIo {
    fn drop(&mut self) {
        if let Some(Pool { jobs, threads }) = self.pool.take() {
            drop(jobs);
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
        Ok(self.adopt(path, how != Open::Read, file))
    }

    fn close(&mut self, file: FileId) -> Result<(), IoError> {
        loop {
            match self.files.get(&file) {
                None => return Err(self.not_open(Operation::Close, file)),
                Some(open) if open.syncing => self.wait_for_message(),
                Some(_) => break,
            }
        }
        if let Some(OpenFile { descriptor: Some(_), .. }) = self.files.remove(&file) {
            self.descriptors -= 1;
        }
        Ok(())
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.files.get(&file).map(|f| f.path.clone()).unwrap_or_default()
    }

    fn write_alignment(&self, _: FileId) -> u64 {
        1
    }

    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        let descriptor = self.descriptor(Operation::Length, file)?;
        let metadata = descriptor.metadata();
        metadata
            .map(|m| m.len())
            .map_err(|source| IoError::Os { at: self.at(Operation::Length, file, None), source })
    }

    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        self.check_writable(Operation::Truncate, file, Some(len))?;
        if self.writes.any(file) {
            let at = self.at(Operation::Truncate, file, Some(len));
            return Err(IoError::Misuse { at, rule: "a write is in flight on this file" });
        }
        let descriptor = self.descriptor(Operation::Truncate, file)?;
        if let Some(open) = self.files.get_mut(&file) {
            open.unsynced = true;
        }
        descriptor.set_len(len).map_err(|source| {
            self.poison(file, Operation::Truncate);
            IoError::Os { at: self.at(Operation::Truncate, file, Some(len)), source }
        })
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), IoError> {
        std::fs::rename(from, to).map_err(|e| IoError::os(Operation::Rename, from, None, e))?;
        for file in self.files.values_mut() {
            if let Ok(rest) = file.path.strip_prefix(from) {
                file.path = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
            }
        }
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), IoError> {
        let metadata = std::fs::symlink_metadata(path);
        let removed = match metadata {
            Ok(metadata) if metadata.is_dir() => std::fs::remove_dir(path),
            Ok(_) => std::fs::remove_file(path),
            Err(error) => Err(error),
        };
        removed.map_err(|e| IoError::os(Operation::Remove, path, None, e))
    }

    fn list(&mut self, dir: &Path) -> Result<Vec<PathBuf>, IoError> {
        let failed = |e| IoError::os(Operation::List, dir, None, e);
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            paths.push(entry.map_err(failed)?.path());
        }
        paths.sort();
        Ok(paths)
    }

    fn metadata(&mut self, path: &Path) -> Result<Option<Metadata>, IoError> {
        match std::fs::metadata(path) {
            Ok(metadata) => {
                let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let is_dir = metadata.is_dir();
                Ok(Some(Metadata {
                    is_dir,
                    size: if is_dir { 0 } else { metadata.len() },
                    modified_ms: since.and_then(|since| i64::try_from(since.as_millis()).ok()),
                }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(IoError::os(Operation::Metadata, path, None, error)),
        }
    }

    fn create_dir_all(&mut self, dir: &Path) -> Result<(), IoError> {
        std::fs::create_dir_all(dir).map_err(|e| IoError::os(Operation::CreateDirectory, dir, None, e))
    }

    fn sync_dir(&mut self, dir: &Path) -> Result<(), IoError> {
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|e| IoError::os(Operation::SyncDirectory, dir, None, e))
    }

    fn submit(&mut self, ticket: Ticket, op: Op) -> Result<(), Op> {
        if self.in_flight >= self.config.queue_depth {
            return Err(op);
        }
        self.in_flight += 1;
        let (op, result) = match op {
            Op::Write { file, at, bytes } => {
                let result = if !self.files.contains_key(&file) {
                    Err(self.not_open(Operation::Write, file))
                } else if self.writes.begin(file, ticket, at, bytes.len()) {
                    self.write(file, at, &bytes)
                } else {
                    Err(IoError::Misuse { at: self.at(Operation::Write, file, Some(at)), rule: OVERLAP })
                };
                (Op::Write { file, at, bytes }, result)
            }
            Op::Read { file, at, mut into } => {
                let result = self.read(file, at, &mut into);
                (Op::Read { file, at, into }, result)
            }
            Op::Sync { file, what } => {
                match self.files.get_mut(&file) {
                    Some(open) if open.syncing => open.waiting.push((ticket, what)),
                    _ => self.start_sync(file, vec![(ticket, what)]),
                }
                return Ok(());
            }
        };
        self.ready.push_back(Done { ticket, op, result });
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        while let Ok(message) = self.inbox.try_recv() {
            self.take(message);
        }
        match wait {
            Wait::Poll => {}
            Wait::Block => {
                while self.ready.is_empty() && self.syncs_running > 0 {
                    self.wait_for_message();
                }
            }
            Wait::Park(limit) => {
                if self.ready.is_empty() && !self.woken {
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
        self.deliver(done);
        Ok(())
    }

    fn put_back(&mut self, done: Vec<Done>) {
        self.in_flight += done.len();
        for item in done.into_iter().rev() {
            self.ready.push_front(item);
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
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
