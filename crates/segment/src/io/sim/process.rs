//! [`SimIo`]: one process on a simulated machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::super::track::{OVERLAP, OpenFile, Tracker};
use super::super::{
    Advice, BLOCK_SIZE, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open, Operation,
    PREALLOCATION_FIRST, SyncKind, Ticket, Wait,
};
use super::file::{Change, Inode};
use super::machine::{Appending, FNV_START, Queued, QueuedKind, State, fnv, off_error, os_error};
use super::names::{Entry, NameChange};
use super::{place, size_of};

/// [`Io`] on a [`SimDisk`](super::SimDisk): one process.
#[derive(Debug)]
pub struct SimIo {
    state: Arc<Mutex<State>>,
    number: u64,
    generation: u64,
    track: Tracker<SimFile>,
    ops: BTreeMap<u64, Flying>,
    /// File and number of each write that is done and was not reaped: a sync does not cover it (D3).
    unreaped: Vec<(u64, u64)>,
    wake: Arc<(Mutex<bool>, Condvar)>,
}

/// An operation in flight.
#[derive(Debug)]
struct Flying {
    ticket: Ticket,
    op: Op,
    /// Whether its file could not be written to when it was submitted.
    refused: bool,
}

#[derive(Debug)]
struct SimFile {
    inode: u64,
    appending: Option<Appending>,
}

impl SimIo {
    pub(super) fn new(shared: &Arc<Mutex<State>>) -> SimIo {
        let (number, generation) = {
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            // Whatever another process had in flight when it ended has landed by now, or never will.
            state.orphans.clear();
            let number = state.number();
            state.queues.insert(number, Vec::new());
            (number, state.generation)
        };
        SimIo {
            state: Arc::clone(shared),
            number,
            generation,
            track: Tracker::new(),
            ops: BTreeMap::new(),
            unreaped: Vec::new(),
            wake: Arc::new((Mutex::new(false), Condvar::new())),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if the machine runs and this process with it.
    fn running(&self, operation: Operation, path: &Path) -> Result<MutexGuard<'_, State>, IoError> {
        let state = self.state();
        if state.off || state.generation != self.generation {
            return Err(IoError::os(operation, path, None, off_error()));
        }
        Ok(state)
    }

    fn inode(&self, operation: Operation, file: FileId) -> Result<u64, IoError> {
        Ok(self.track.check_open(operation, file)?.own.inode)
    }

    /// Completes operations in flight: those that are due, or at least one if it blocks.
    fn progress(&mut self, block: bool) {
        let state = Arc::clone(&self.state);
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.generation != self.generation || state.off {
            // The machine is off: nothing completes any more but as an error.
            drop(state);
            for (_, Flying { ticket, op, .. }) in std::mem::take(&mut self.ops) {
                let (operation, position) = op_of(&op);
                let error = self.track.os(operation, op.file(), position, off_error());
                self.track.finish(ticket, op, Err(error));
            }
            return;
        }
        let knobs = state.knobs.clone();
        let Some(queue) = state.queues.get_mut(&self.number) else { return };
        if block && let Some(first) = queue.iter().map(|q| q.due_ns).min() {
            let clock = state.clock_ns.max(first);
            state.clock_ns = clock;
        }
        let clock = state.clock_ns;
        let Some(queue) = state.queues.get_mut(&self.number) else { return };
        let mut ready: Vec<u64> = queue
            .iter()
            .filter(|q| q.due_ns <= clock && (block || !knobs.yield_always || q.age > 0))
            .map(|q| q.number)
            .collect();
        for queued in queue.iter_mut() {
            queued.age = queued.age.saturating_add(1);
        }
        if knobs.slow.is_some() {
            let due: BTreeMap<u64, u64> = queue.iter().map(|q| (q.number, q.due_ns)).collect();
            ready.sort_by_key(|number| (due.get(number).copied(), *number));
        }
        if knobs.reorder {
            for last in (1..ready.len()).rev() {
                let other = place(state.chance.below(u64::try_from(last + 1).unwrap_or(1)));
                ready.swap(last, other);
            }
            let most = u64::try_from(ready.len()).unwrap_or(0);
            let least = u64::from(block).min(most);
            ready.truncate(place(least + state.chance.below(most - least + 1)));
        }
        for number in ready {
            let Some(queue) = state.queues.get_mut(&self.number) else { break };
            let Some(index) = queue.iter().position(|q| q.number == number) else { continue };
            // One sync at a time in one file: a later one waits for the earlier.
            let (inode, is_sync) = (queue[index].inode, matches!(queue[index].what, QueuedKind::Sync { .. }));
            let earlier = |q: &Queued| {
                q.inode == inode && q.number < number && matches!(q.what, QueuedKind::Sync { .. })
            };
            if is_sync && queue.iter().any(earlier) {
                continue;
            }
            let queued = queue.remove(index);
            let Some(Flying { ticket, mut op, refused }) = self.ops.remove(&number) else { continue };
            let file = op.file();
            let (operation, position) = op_of(&op);
            let path = self.path(file);
            // What was in flight when another operation of its file failed may have been done all the same.
            let is_done = !refused && self.track.is_poisoned(file) && state.chance.below(2) == 0;
            let checked = match operation {
                Operation::Read => Ok(()),
                _ if is_done => Ok(()),
                _ => self.track.check_writable(operation, file, position),
            };
            let result = checked.and_then(|()| {
                let appending = self.track.own_mut(file).and_then(|file| file.appending.as_mut());
                let (result, change) = state.complete(&queued, &mut op, &path, appending);
                self.unreaped.extend(change.map(|number| (queued.inode, number)));
                result.map_err(|source| self.track.os(operation, file, position, source))
            });
            if matches!(result, Err(IoError::Os { .. })) && operation != Operation::Read {
                self.track.poison(file, operation);
            }
            self.track.finish(ticket, op, result);
        }
    }

    /// Completes until something is ready or nothing is in flight.
    fn block(&mut self) {
        while !self.track.has_ready() && !self.ops.is_empty() {
            self.progress(true);
        }
    }
}

fn op_of(op: &Op) -> (Operation, Option<u64>) {
    match op {
        Op::Write { at, .. } => (Operation::Write, Some(*at)),
        Op::Read { at, .. } => (Operation::Read, Some(*at)),
        Op::Sync { .. } => (Operation::Sync, None),
    }
}

impl Drop for SimIo {
    fn drop(&mut self) {
        while !self.ops.is_empty() {
            self.progress(true);
        }
        let mut state = self.state();
        // What was in flight when the machine went off may still land.
        if !state.off && state.generation == self.generation {
            state.queues.remove(&self.number);
        }
    }
}

impl Io for SimIo {
    fn open(&mut self, path: &Path, how: Open) -> Result<FileId, IoError> {
        let failed = |kind| IoError::os(Operation::Open, path, None, os_error(kind));
        let mut state = self.running(Operation::Open, path)?;
        state.opens += 1;
        let found = match state.entry(path) {
            Some(Entry::Dir(_)) => return Err(failed(std::io::ErrorKind::IsADirectory)),
            Some(Entry::File(inode)) => Some(inode),
            None => None,
        };
        let inode = match (found, how) {
            (Some(_), how) if how.is_new() => return Err(failed(std::io::ErrorKind::AlreadyExists)),
            (Some(inode), _) => inode,
            (None, how) if how.is_existing() => return Err(failed(std::io::ErrorKind::NotFound)),
            (None, _) => {
                let Some((dir, name)) = state.parent(path) else {
                    return Err(failed(std::io::ErrorKind::NotFound));
                };
                let inode = state.number();
                let modified_ns = state.clock_ns;
                state.inodes.insert(inode, Inode::empty(modified_ns));
                state.change_names(dir, NameChange::Put(name, Entry::File(inode)));
                if state.count(|| format!("create {}", path.display())) {
                    return Err(IoError::os(Operation::Open, path, None, off_error()));
                }
                inode
            }
        };
        let appends = matches!(how, Open::Append | Open::AppendNew);
        let step = state.knobs.allocate_ahead.unwrap_or(PREALLOCATION_FIRST);
        let appending = appends.then(|| Appending { end: state.size(inode), step });
        drop(state);
        Ok(self.track.open(path, how != Open::Read, SimFile { inode, appending }))
    }

    fn close(&mut self, file: FileId) -> Result<(), IoError> {
        self.inode(Operation::Close, file)?;
        while self.ops.values().any(|flying| flying.op.file() == file) {
            self.progress(true);
        }
        match self.track.close(file) {
            // What is allocated behind the end goes (D13).
            Some(OpenFile {
                path, own: SimFile { inode, appending: Some(Appending { end, .. }) }, ..
            }) => {
                let Ok(mut state) = self.running(Operation::Close, &path) else { return Ok(()) };
                if state.size(inode) <= end {
                    return Ok(());
                }
                state.change_file(inode, Change::Length(end));
                match state.count(|| format!("cut {} {end}", path.display())) {
                    true => Err(IoError::os(Operation::Close, path, Some(end), off_error())),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.track.path(file)
    }

    fn write_alignment(&self, file: FileId) -> u64 {
        let appends = self.track.own(file).is_some_and(|file| file.appending.is_some());
        if appends && self.state().knobs.direct { BLOCK_SIZE } else { 1 }
    }

    fn advise(&mut self, _: FileId, _: Advice) {}

    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        let inode = self.inode(Operation::Length, file)?;
        let path = self.path(file);
        let state = self.running(Operation::Length, &path)?;
        let appending = self.track.own(file).and_then(|file| file.appending);
        Ok(appending.map_or_else(|| state.size(inode), |appending| appending.end))
    }

    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        let inode = self.inode(Operation::Truncate, file)?;
        self.track.check_truncate(file, len)?;
        let path = self.path(file);
        let mut state = self.running(Operation::Truncate, &path)?;
        state.change_file(inode, Change::Length(len));
        let off = state.count(|| format!("truncate {} {len}", path.display()));
        drop(state);
        if let Some(appending) = self.track.own_mut(file).and_then(|file| file.appending.as_mut()) {
            appending.end = len;
        }
        if off { Err(IoError::os(Operation::Truncate, path, Some(len), off_error())) } else { Ok(()) }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), IoError> {
        let failed = |kind| IoError::os(Operation::Rename, from, None, os_error(kind));
        let mut state = self.running(Operation::Rename, from)?;
        let entry = state.entry(from).ok_or_else(|| failed(std::io::ErrorKind::NotFound))?;
        let target = state.parent(to).ok_or_else(|| failed(std::io::ErrorKind::NotFound))?;
        let source = state.parent(from).ok_or_else(|| failed(std::io::ErrorKind::NotFound))?;
        match (entry, state.entry(to)) {
            (Entry::File(_), Some(Entry::Dir(_))) => return Err(failed(std::io::ErrorKind::IsADirectory)),
            (Entry::Dir(_), Some(Entry::File(_))) => return Err(failed(std::io::ErrorKind::NotADirectory)),
            _ => {}
        }
        if source.0 == target.0 {
            state.change_names(source.0, NameChange::Move(source.1, target.1, entry));
        } else {
            state.change_names(target.0, NameChange::Put(target.1, entry));
            state.change_names(source.0, NameChange::Remove(source.1));
        }
        if state.count(|| format!("rename {} {}", from.display(), to.display())) {
            return Err(IoError::os(Operation::Rename, from, None, off_error()));
        }
        drop(state);
        self.track.renamed(from, to);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), IoError> {
        let failed = |kind| IoError::os(Operation::Remove, path, None, os_error(kind));
        let mut state = self.running(Operation::Remove, path)?;
        let entry = state.entry(path).ok_or_else(|| failed(std::io::ErrorKind::NotFound))?;
        let (dir, name) = state.parent(path).ok_or_else(|| failed(std::io::ErrorKind::NotFound))?;
        if let Entry::Dir(inner) = entry
            && state.dirs.get(&inner).is_some_and(|dir| !dir.live.is_empty())
        {
            return Err(failed(std::io::ErrorKind::DirectoryNotEmpty));
        }
        state.change_names(dir, NameChange::Remove(name));
        if state.count(|| format!("remove {}", path.display())) {
            return Err(IoError::os(Operation::Remove, path, None, off_error()));
        }
        Ok(())
    }

    fn list(&mut self, dir: &Path) -> Result<Vec<PathBuf>, IoError> {
        let state = self.running(Operation::List, dir)?;
        let number = state.dir(&State::parts(dir));
        match number.and_then(|number| state.dirs.get(&number)) {
            Some(names) => Ok(names.live.keys().map(|name| dir.join(name)).collect()),
            None => Err(IoError::os(Operation::List, dir, None, os_error(std::io::ErrorKind::NotFound))),
        }
    }

    fn metadata(&mut self, path: &Path) -> Result<Option<Metadata>, IoError> {
        let state = self.running(Operation::Metadata, path)?;
        Ok(match state.entry(path) {
            None => None,
            Some(Entry::Dir(_)) => {
                Some(Metadata { is_dir: true, is_file: false, size: 0, modified_ms: None })
            }
            Some(Entry::File(inode)) => state.inodes.get(&inode).map(|inode| Metadata {
                is_dir: false,
                is_file: true,
                size: size_of(inode.live()),
                modified_ms: i64::try_from(inode.modified_ns / 1_000_000).ok(),
            }),
        })
    }

    fn create_dir_all(&mut self, dir: &Path) -> Result<(), IoError> {
        let mut state = self.running(Operation::CreateDirectory, dir)?;
        if state.dir(&State::parts(dir)).is_some() {
            return Ok(());
        }
        if state.make_dirs(dir).is_none() {
            let error = os_error(std::io::ErrorKind::AlreadyExists);
            return Err(IoError::os(Operation::CreateDirectory, dir, None, error));
        }
        if state.count(|| format!("create directory {}", dir.display())) {
            return Err(IoError::os(Operation::CreateDirectory, dir, None, off_error()));
        }
        Ok(())
    }

    fn sync_dir(&mut self, dir: &Path) -> Result<(), IoError> {
        let mut state = self.running(Operation::SyncDirectory, dir)?;
        let Some(number) = state.dir(&State::parts(dir)) else {
            let error = os_error(std::io::ErrorKind::NotFound);
            return Err(IoError::os(Operation::SyncDirectory, dir, None, error));
        };
        if state.count(|| format!("sync directory {}", dir.display())) {
            return Err(IoError::os(Operation::SyncDirectory, dir, None, off_error()));
        }
        let op = state.ops;
        if let Some(names) = state.dirs.get_mut(&number) {
            names.sync();
            let what = super::Acknowledged::Names(names.durable.keys().cloned().collect());
            state.ledger.push(super::LedgerEntry { op, path: dir.to_path_buf(), what });
        }
        Ok(())
    }

    fn submit(&mut self, ticket: Ticket, op: Op) -> Result<(), Op> {
        let depth = self.state().knobs.queue_depth;
        if !self.track.admit(depth.unwrap_or(usize::MAX).max(1)) {
            return Err(op);
        }
        let file = op.file();
        let (operation, position) = op_of(&op);
        let begun = self.inode(operation, file).and_then(|inode| {
            let Op::Write { at, bytes, .. } = &op else { return Ok(inode) };
            let (allowed, overlaps) = {
                let state = self.state();
                (state.knobs.overlap_allowed, state.overlaps(inode, *at, bytes.len()))
            };
            match allowed {
                true => Ok(inode),
                // Those of another process, too.
                false if overlaps => Err(self.track.misuse(operation, file, position, OVERLAP)),
                false => self.track.begin_write(ticket, file, *at, bytes.len()).map(|()| inode),
            }
        });
        let inode = match begun {
            Ok(inode) => inode,
            Err(error) => {
                self.track.finish(ticket, op, Err(error));
                return Ok(());
            }
        };
        let path = self.path(file);
        let generation = self.generation;
        let appends = self.track.own(file).is_some_and(|file| file.appending.is_some());
        // Done and not reaped: a sync that is submitted now does not cover it.
        let unreaped = self.unreaped.iter().filter(|(of, _)| *of == inode).map(|(_, number)| *number).min();
        let number = {
            let mut state = self.state();
            let number = state.number();
            if !state.off && state.generation == generation {
                let what = match &op {
                    Op::Write { at, bytes, .. } => {
                        let image = appends.then(|| state.image(inode, *at, bytes)).flatten();
                        QueuedKind::Write { at: *at, bytes: bytes.clone(), image }
                    }
                    Op::Read { .. } => QueuedKind::Read,
                    Op::Sync { what, .. } => {
                        let covers = unreaped.map_or(number, |unreaped| unreaped - 1);
                        QueuedKind::Sync { covers, everything: *what == SyncKind::All }
                    }
                };
                let due_ns = match state.knobs.slow.clone() {
                    None => state.clock_ns,
                    Some(slow) => {
                        state.clock_ns + slow.start + state.chance.below(slow.end.saturating_sub(slow.start))
                    }
                };
                // A sync is not due before an earlier one of its file, for which it waits.
                let is_sync = |what: &QueuedKind| matches!(what, QueuedKind::Sync { .. });
                let before = state.queues.get(&self.number).into_iter().flatten();
                let earlier = before.filter(|q| q.inode == inode && is_sync(&q.what)).map(|q| q.due_ns).max();
                let due_ns = if is_sync(&what) { due_ns.max(earlier.unwrap_or(0)) } else { due_ns };
                match &op {
                    Op::Write { at, bytes, .. } => {
                        let (at, size, sum) = (*at, bytes.len(), fnv(FNV_START, bytes));
                        state.count(|| format!("write {} {at} {size} {sum:016x}", path.display()));
                    }
                    Op::Sync { what, .. } => {
                        let what = *what;
                        state.count(|| format!("sync {} {what:?}", path.display()));
                    }
                    Op::Read { .. } => state.reads += 1,
                }
                let op_number = state.ops;
                let queued = Queued { number, op_number, inode, due_ns, age: 0, what };
                state.queues.entry(self.number).or_default().push(queued);
            }
            number
        };
        let refused = self.track.check_writable(operation, file, position).is_err();
        self.ops.insert(number, Flying { ticket, op, refused });
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        if let Some(count) = &mut self.state().knobs.broken_reaps {
            *count += 1;
            return Err(IoError::os(Operation::Reap, "sim", None, os_error(std::io::ErrorKind::Other)));
        }
        match wait {
            Wait::Poll => self.progress(false),
            Wait::Block => self.block(),
            Wait::Park(limit) => {
                let wake = Arc::clone(&self.wake);
                let (flag, bell) = &*wake;
                let mut woken = flag.lock().unwrap_or_else(PoisonError::into_inner);
                if self.track.has_ready() || *woken {
                    self.progress(false);
                } else if !self.ops.is_empty() {
                    self.block();
                } else if let Some(limit) = limit {
                    let (guard, _) = bell
                        .wait_timeout_while(woken, limit, |woken| !*woken)
                        .unwrap_or_else(PoisonError::into_inner);
                    woken = guard;
                } else {
                    woken = bell.wait_while(woken, |woken| !*woken).unwrap_or_else(PoisonError::into_inner);
                }
                *woken = false;
            }
        }
        self.unreaped.clear();
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
        let wake = Arc::clone(&self.wake);
        IoWaker::new(move || {
            let (flag, bell) = &*wake;
            *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
            bell.notify_all();
        })
    }
}
