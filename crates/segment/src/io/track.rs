//! What every backend keeps track of: open files and whether they may be written to (D5), writes in flight (D11), and what
//! has completed and was not reaped.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use super::{At, BLOCK_SIZE, Done, FileId, IoError, Op, Operation, SyncKind, Ticket};

/// The rule that a write breaks which shares a block with another one in flight (D11).
pub(crate) const OVERLAP: &str = "another write in flight touches the same block";

/// Syncs of one file.
pub(crate) type Syncs = Vec<(Ticket, SyncKind)>;

/// The files and operations of a backend. `F` is what it knows of an open file by itself.
#[derive(Debug)]
pub(crate) struct Tracker<F> {
    files: BTreeMap<FileId, OpenFile<F>>,
    next_file: u64,
    writes: WritesInFlight,
    ready: VecDeque<Done>,
    in_flight: usize,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile<F> {
    pub(crate) path: PathBuf,
    pub(crate) writable: bool,
    poisoned: Option<Operation>,
    /// Whether a sync of it runs, and those that wait until that has ended (D3).
    syncing: bool,
    waiting: Syncs,
    /// What the backend knows of it.
    pub(crate) own: F,
}

impl<F> Tracker<F> {
    pub(crate) fn new() -> Tracker<F> {
        Tracker {
            files: BTreeMap::new(),
            next_file: 0,
            writes: WritesInFlight::default(),
            ready: VecDeque::new(),
            in_flight: 0,
        }
    }

    // Files.

    pub(crate) fn open(&mut self, path: &Path, writable: bool, own: F) -> FileId {
        let id = FileId(self.next_file);
        self.next_file += 1;
        let path = path.to_path_buf();
        let file = OpenFile { path, writable, poisoned: None, syncing: false, waiting: Vec::new(), own };
        self.files.insert(id, file);
        id
    }

    pub(crate) fn close(&mut self, id: FileId) -> Option<OpenFile<F>> {
        self.files.remove(&id)
    }

    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = &OpenFile<F>> {
        self.files.values()
    }

    /// An open file, or the caller is told that it is none.
    pub(crate) fn check_open(&self, operation: Operation, id: FileId) -> Result<&OpenFile<F>, IoError> {
        self.files.get(&id).ok_or_else(|| self.misuse(operation, id, None, "the file is not open"))
    }

    pub(crate) fn own(&self, id: FileId) -> Option<&F> {
        self.files.get(&id).map(|file| &file.own)
    }

    pub(crate) fn own_mut(&mut self, id: FileId) -> Option<&mut F> {
        self.files.get_mut(&id).map(|file| &mut file.own)
    }

    /// The path of an open file; empty if it is not open.
    pub(crate) fn path(&self, id: FileId) -> PathBuf {
        self.files.get(&id).map(|file| file.path.clone()).unwrap_or_default()
    }

    /// Open files follow a rename of them or of a directory above them (D12).
    pub(crate) fn renamed(&mut self, from: &Path, to: &Path) {
        for file in self.files.values_mut() {
            if let Ok(rest) = file.path.strip_prefix(from) {
                file.path = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
            }
        }
    }

    // Errors (D10).

    fn at(&self, operation: Operation, id: FileId, position: Option<u64>) -> At {
        At { operation, path: self.path(id), position }
    }

    pub(crate) fn os(
        &self,
        operation: Operation,
        id: FileId,
        position: Option<u64>,
        source: Error,
    ) -> IoError {
        IoError::Os { at: self.at(operation, id, position), source }
    }

    pub(crate) fn misuse(
        &self,
        operation: Operation,
        id: FileId,
        position: Option<u64>,
        rule: &'static str,
    ) -> IoError {
        IoError::Misuse { at: self.at(operation, id, position), rule }
    }

    /// Nothing is written to this file, or synced, any more (D5).
    pub(crate) fn poison(&mut self, id: FileId, cause: Operation) {
        if let Some(file) = self.files.get_mut(&id) {
            file.poisoned.get_or_insert(cause);
        }
    }

    pub(crate) fn is_poisoned(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|file| file.poisoned.is_some())
    }

    /// Whether this file may be written to, or synced.
    pub(crate) fn check_writable(
        &self,
        operation: Operation,
        id: FileId,
        position: Option<u64>,
    ) -> Result<(), IoError> {
        let file = self.check_open(operation, id)?;
        if let Some(cause) = file.poisoned {
            return Err(IoError::Poisoned { at: self.at(operation, id, position), cause });
        }
        if !file.writable && operation != Operation::Sync {
            return Err(self.os(operation, id, position, ErrorKind::PermissionDenied.into()));
        }
        Ok(())
    }

    /// The same for a truncation, during which no write may be in flight.
    pub(crate) fn check_truncate(&self, id: FileId, len: u64) -> Result<(), IoError> {
        self.check_writable(Operation::Truncate, id, Some(len))?;
        match self.writes.ranges.contains_key(&id) {
            true => Err(self.misuse(Operation::Truncate, id, Some(len), "a write is in flight on this file")),
            false => Ok(()),
        }
    }

    // Operations.

    /// Counts an operation in; false, and not counted, if so many are in flight.
    pub(crate) fn admit(&mut self, depth: usize) -> bool {
        let admitted = self.in_flight < depth;
        self.in_flight += usize::from(admitted);
        admitted
    }

    /// Counts a write in among those of its file (D11).
    pub(crate) fn begin_write(
        &mut self,
        ticket: Ticket,
        id: FileId,
        at: u64,
        size: usize,
    ) -> Result<(), IoError> {
        self.check_open(Operation::Write, id)?;
        if !self.writes.begin(id, ticket, at, size) {
            return Err(self.misuse(Operation::Write, id, Some(at), OVERLAP));
        }
        Ok(())
    }

    /// What an operation has come to.
    pub(crate) fn finish(&mut self, ticket: Ticket, op: Op, result: Result<u32, IoError>) {
        self.ready.push_back(Done { ticket, op, result });
    }

    /// Whether a reap has something to deliver.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Delivers what has completed: it is not in flight any more.
    pub(crate) fn deliver(&mut self, done: &mut Vec<Done>) {
        for item in self.ready.drain(..) {
            self.writes.end(&item);
            self.in_flight -= 1;
            done.push(item);
        }
    }

    pub(crate) fn put_back(&mut self, done: Vec<Done>) {
        self.in_flight += done.len();
        for item in done.into_iter().rev() {
            self.ready.push_front(item);
        }
    }

    // Syncs, of which one runs per file at a time (D3).

    /// A sync that waits for the one that runs; false if none does.
    pub(crate) fn waits(&mut self, ticket: Ticket, id: FileId, what: SyncKind) -> bool {
        match self.files.get_mut(&id) {
            Some(file) if file.syncing => file.waiting.push((ticket, what)),
            _ => return false,
        }
        true
    }

    pub(crate) fn begin_sync(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.syncing = true;
        }
    }

    pub(crate) fn is_syncing(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|file| file.syncing)
    }

    /// Answers those whom a sync was for: the first gets the error itself, the others that the file is poisoned.
    pub(crate) fn answer_syncs(&mut self, id: FileId, syncs: Syncs, result: Result<(), IoError>) {
        if result.is_err() {
            self.poison(id, Operation::Sync);
        }
        let mut error = result.err();
        let failed = error.is_some();
        for (ticket, what) in syncs {
            let result = match error.take() {
                Some(error) => Err(error),
                None if failed => {
                    Err(IoError::Poisoned { at: self.at(Operation::Sync, id, None), cause: Operation::Sync })
                }
                None => Ok(0),
            };
            self.finish(ticket, Op::Sync { file: id, what }, result);
        }
    }

    /// Ends the sync that runs; those that waited for it are one sync now.
    pub(crate) fn end_sync(&mut self, id: FileId) -> Option<Syncs> {
        let file = self.files.get_mut(&id)?;
        file.syncing = false;
        Some(std::mem::take(&mut file.waiting)).filter(|waiting| !waiting.is_empty())
    }
}

/// The writes in flight, per file.
#[derive(Debug, Default)]
struct WritesInFlight {
    ranges: BTreeMap<FileId, Vec<(Ticket, u64, u64)>>,
}

impl WritesInFlight {
    /// Notes a write; false, and not noted, if it shares a block with another one in flight.
    fn begin(&mut self, file: FileId, ticket: Ticket, at: u64, size: usize) -> bool {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        if size == 0 {
            return true;
        }
        let first = at / BLOCK_SIZE;
        let last = at.saturating_add(size - 1) / BLOCK_SIZE;
        let ranges = self.ranges.entry(file).or_default();
        if ranges.iter().any(|(_, a, b)| *a <= last && first <= *b) {
            return false;
        }
        ranges.push((ticket, first, last));
        true
    }

    /// Ends the write that a completion is about, if it is about one that was begun.
    fn end(&mut self, done: &Done) {
        let Op::Write { file, at, .. } = &done.op else { return };
        if matches!(done.result, Err(IoError::Misuse { .. })) {
            return;
        }
        let first = at / BLOCK_SIZE;
        if let Some(ranges) = self.ranges.get_mut(file) {
            ranges.retain(|(ticket, begun, _)| (*ticket, *begun) != (done.ticket, first));
            if ranges.is_empty() {
                self.ranges.remove(file);
            }
        }
    }
}
