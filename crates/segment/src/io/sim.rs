//! SimDisk: a disk in memory, for tests. Everything it does follows from its seed.
//!
//! # Fault model
//!
//! State per file: the bytes that were acknowledged as durable, the bytes that a reader sees, and between them the changes
//! since the last sync, in order. Per directory: the same with names. A test turns knobs, each off by default.
//!
//! | knob | models | the log must |
//! |---|---|---|
//! | [`SimDisk::reorder`] | completions in any order | survive |
//! | [`SimDisk::short`] | short reads and writes | survive |
//! | [`SimDisk::yield_always`] | nothing completes before a later reap | survive |
//! | [`SimDisk::queue_depth`] | a full queue: submit returns the operation | survive |
//! | [`SimDisk::slow`] | latency, in virtual time | survive |
//! | [`SimDisk::direct`] | writes past the page cache: whole blocks, frozen when they are submitted | survive |
//! | [`SimDisk::allocate_ahead`] | files that are longer than what was written, by zeros (D13) | survive: zeros are no batch |
//! | [`SimDisk::crash`] | power cut: each unsynced write is kept, dropped, cut at a 512-byte boundary or leaves zeros with the length grown; each unsynced name is kept or undone; an unsynced truncation may be undone | survive: acknowledged bytes are there, what is there is a prefix |
//! | [`SimDisk::full_after`] | a full disk | survive: refuse writes, keep what was acknowledged |
//! | [`SimDisk::fail_write`] | a write that fails | survive: take no more, keep what was acknowledged |
//! | [`SimDisk::fail_sync`] | a failed fsync that drops the dirty pages; the next one "succeeds" | survive: acknowledge nothing after it |
//! | [`SimDisk::read_error`] | a bad sector, sticky | detect, and say where |
//! | [`SimDisk::flip`] | bit rot in durable bytes | detect, where a checksum covers it |
//! | [`SimDisk::stale_read`] | a write that was acknowledged and synced and never landed | detect if a whole batch is missing in the middle; not claimed at the end of the log, where nothing tells it from a shorter log |
//!
//! Not modelled, and not claimed: bytes that land in another file or at another place, names that change by themselves,
//! sectors that are torn inside, and a sync that lies about everything. Rot of acknowledged bytes is detected, not
//! survived: there is one copy.
//!
//! # What a crash leaves
//!
//! A disk keeps sectors of [`SECTOR_SIZE`] bytes. After a crash each sector has, whole, one of the contents that it had in
//! the page cache since the last sync: the durable one, or the one after any of the changes that touched it. So a sector
//! of two unsynced writes is old, first or second, and an overwrite of durable bytes leaves old or new, never zeros.
//! Bytes between the old end and a new one that no kept write covers are zeros.
//!
//! The length is kept or not by itself: it grows with what is kept of a write, or with a write of which nothing is kept.
//! A smaller length is durable only after [`SyncKind::All`]; after a sync of the data it may be undone, and what was cut
//! off is there again.
//!
//! Writes in flight count as unsynced, and so do those that are done and not reaped (D3). Names are kept or undone each by
//! itself, whatever their order. Writes in flight in one file that touch the same block fail the caller (D11), from
//! whichever process they come.
//!
//! [`SyncKind::All`]: super::SyncKind::All
//!
//! # Use
//!
//! ```
//! use bytes::Bytes;
//! use std::path::Path;
//! use weir_segment::io::sim::{CrashPolicy, SimDisk};
//! use weir_segment::io::{Io, Open, SyncKind, exact};
//!
//! let disk = SimDisk::new(7);
//! let mut io = disk.io();
//! let file = io.open(Path::new("/a"), Open::CreateNew)?;
//! io.sync_dir(Path::new("/"))?;
//! exact::write_all(&mut io, file, 0, Bytes::from_static(b"one"))?;
//! exact::sync(&mut io, file, SyncKind::Data)?;
//! exact::write_all(&mut io, file, 3, Bytes::from_static(b"two"))?;
//! disk.crash(CrashPolicy::DROP_ALL);
//! assert_eq!(disk.read_file(Path::new("/a")).as_deref(), Some(&b"one"[..]));
//! # Ok::<(), weir_segment::io::IoError>(())
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod fate;
mod file;
mod machine;
mod names;
mod process;

pub use fate::{Acknowledged, CrashPolicy, DataFate, LedgerEntry, NameFate, SECTOR_SIZE};
pub use process::SimIo;

use file::Inode;
use machine::State;
use names::{Entry, NameChange};

/// A simulated machine's disk: a handle that tests keep while the code under test uses an [`SimIo`] of it.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

fn place(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

fn size_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

impl SimDisk {
    /// An empty disk with a root directory and all faults off.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(State::new(seed))) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process on this machine. It stops working when the machine crashes; then ask for another one.
    pub fn io(&self) -> SimIo {
        SimIo::new(&self.state)
    }

    /// A copy of the machine as it is, with a life of its own. No process of the copy is running; what they had in
    /// flight may have landed if it crashes.
    pub fn fork(&self) -> SimDisk {
        let mut state = self.state().clone();
        let queues = std::mem::take(&mut state.queues);
        state.orphans.extend(queues.into_values().flatten());
        state.generation += 1;
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    // Crashing.

    /// How many changes were asked for so far: writes, syncs, truncations, and everything that makes, renames, removes or
    /// syncs a name. They are numbered from 1.
    pub fn op_count(&self) -> u64 {
        self.state().ops
    }

    /// How many reads of files were submitted so far.
    pub fn read_count(&self) -> u64 {
        self.state().reads
    }

    /// How many files were opened so far, those included that were not there.
    pub fn open_count(&self) -> u64 {
        self.state().opens
    }

    /// Turns the machine off with change number `op`: that one may have happened or not, as any unsynced one, and
    /// everything after it fails. Then call [`SimDisk::crash`].
    pub fn crash_at(&self, op: u64) {
        self.state().crash_at = Some(op);
    }

    /// Whether [`SimDisk::crash_at`] has come.
    pub fn is_off(&self) -> bool {
        self.state().off
    }

    /// Cuts the power and turns it on again: what was not synced meets the fate of `policy`, and every [`SimIo`] from
    /// before is dead.
    pub fn crash(&self, policy: CrashPolicy) {
        self.state().crash(policy);
    }

    // Knobs.

    /// Completions come in any order.
    pub fn reorder(&self, on: bool) {
        self.state().knobs.reorder = on;
    }

    /// Reads and writes may be short.
    pub fn short(&self, on: bool) {
        self.state().knobs.short = on;
    }

    /// Nothing completes in the first reap after its submit, unless that one blocks.
    pub fn yield_always(&self, on: bool) {
        self.state().knobs.yield_always = on;
    }

    /// The disk is full when this many bytes more have been written; `None`: never.
    pub fn full_after(&self, bytes: Option<u64>) {
        let mut state = self.state();
        let used = state.used();
        state.knobs.full_at = bytes.map(|bytes| used.saturating_add(bytes));
    }

    /// The `nth` sync of a file from now on fails, from 1; its dirty pages are dropped.
    pub fn fail_sync(&self, nth: u64) {
        self.state().knobs.fail_sync = Some(nth);
    }

    /// The `nth` write from now on, from 1, fails; nothing of it is there.
    pub fn fail_write(&self, nth: u64) {
        self.state().knobs.fail_write = Some(nth);
    }

    /// The `nth` write from now on, from 1, is acknowledged and never lands.
    pub fn stale_read(&self, nth: u64) {
        self.state().knobs.stale_write = Some(nth);
    }

    /// From now on every [`Io::reap`] fails: the backend itself is broken.
    ///
    /// [`Io::reap`]: super::Io::reap
    pub fn break_reaps(&self) {
        self.state().knobs.broken_reaps = Some(0);
    }

    /// How many failed since [`SimDisk::break_reaps`].
    pub fn broken_reaps(&self) -> u64 {
        self.state().knobs.broken_reaps.unwrap_or(0)
    }

    /// Each operation takes a time in this range, in virtual nanoseconds; `None`: no time.
    pub fn slow(&self, nanoseconds: Option<Range<u64>>) {
        self.state().knobs.slow = nanoseconds;
    }

    /// At most this many operations in flight in one [`SimIo`]; `None`: any number.
    pub fn queue_depth(&self, most: Option<usize>) {
        self.state().knobs.queue_depth = most;
    }

    /// Files that are opened to append are written past the page cache: [`Io::write_alignment`] says a block, and a write
    /// puts whole blocks on the disk, as they were when it was submitted, with zeros behind the end of the file.
    ///
    /// [`Io::write_alignment`]: super::Io::write_alignment
    pub fn direct(&self, on: bool) {
        self.state().knobs.direct = on;
    }

    /// Space is allocated ahead behind the end of files that are opened to append (D13), in steps that double from this
    /// many bytes; `None`: none. For files that are opened from now on.
    pub fn allocate_ahead(&self, first_step: Option<u64>) {
        self.state().knobs.allocate_ahead = first_step;
    }

    /// Writes in flight that touch the same block are taken (D11 is not checked): what a disk makes of a caller who does
    /// that. For tests of tests.
    pub fn allow_overlap(&self, on: bool) {
        self.state().knobs.overlap_allowed = on;
    }

    /// Reads that touch these bytes of a file fail from now on.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn read_error(&self, path: &Path, range: Range<u64>) {
        let mut state = self.state();
        let inode = state.file(path);
        match inode.and_then(|inode| state.inodes.get_mut(&inode)) {
            Some(inode) => inode.bad.push(range),
            None => panic!("no file {}", path.display()),
        }
    }

    /// Changes the byte at a position of a file by these bits, durably.
    ///
    /// # Panics
    /// If there is no such file or it is shorter.
    pub fn flip(&self, path: &Path, position: u64, bits: u8) {
        let mut state = self.state();
        let inode = state.file(path);
        let inode = inode.and_then(|inode| state.inodes.get_mut(&inode));
        let Some(inode) = inode else { panic!("no file {}", path.display()) };
        assert!(position < size_of(inode.live()), "{} has no byte {position}", path.display());
        inode.flip(position, bits);
    }

    /// Virtual time, in nanoseconds.
    pub fn clock_ns(&self) -> u64 {
        self.state().clock_ns
    }

    // Looking and preparing.

    /// What a reader sees in a file.
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.file(path).and_then(|inode| state.inodes.get(&inode)).map(|inode| inode.live().to_vec())
    }

    /// What is durable under a path: what a crash that drops everything else would leave.
    pub fn durable_file(&self, path: &Path) -> Option<Vec<u8>> {
        self.state().acknowledged().remove(&Path::new("/").join(path))
    }

    /// Puts a file there, durably, with the directories above it.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        if let Some(dir) = path.parent() {
            let made = state.make_dirs(dir);
            assert!(made.is_some(), "{} has a file above it", path.display());
        }
        let inode = match state.file(path) {
            Some(inode) => inode,
            None => {
                let Some((dir, name)) = state.parent(path) else { panic!("{} is no file", path.display()) };
                let inode = state.number();
                state.change_names(dir, NameChange::Put(name, Entry::File(inode)));
                inode
            }
        };
        state.inodes.insert(inode, Inode::durably(bytes));
        for dir in state.dirs.values_mut() {
            dir.sync();
        }
    }

    /// Removes a file, durably; false if there is none.
    pub fn remove_file(&self, path: &Path) -> bool {
        let mut state = self.state();
        let Some((dir, name)) = state.parent(path) else { return false };
        let Some(dir) = state.dirs.get_mut(&dir) else { return false };
        dir.durable.remove(&name);
        dir.live.remove(&name).is_some()
    }

    /// The paths of all files, ascending.
    pub fn files(&self) -> Vec<PathBuf> {
        fn walk(state: &State, dir: u64, at: &Path, found: &mut Vec<PathBuf>) {
            let Some(names) = state.dirs.get(&dir) else { return };
            for (name, entry) in &names.live {
                match entry {
                    Entry::File(_) => found.push(at.join(name)),
                    Entry::Dir(dir) => walk(state, *dir, &at.join(name), found),
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.state(), 0, Path::new("/"), &mut found);
        found
    }

    /// Every file with what a reader sees in it: two disks are equal if this is.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.files().into_iter().filter_map(|path| Some((path.clone(), self.read_file(&path)?))).collect()
    }

    /// Copies the files of a real directory, and of those below it, to `at`.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn import(&self, from: &Path, at: &Path) -> std::io::Result<()> {
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            let to = at.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.import(&entry.path(), &to)?;
            } else {
                self.write_file(&to, &std::fs::read(entry.path())?);
            }
        }
        Ok(())
    }

    /// What was acknowledged as durable, in order.
    pub fn ledger(&self) -> Vec<LedgerEntry> {
        self.state().ledger.clone()
    }

    /// Every file of which the name was acknowledged as durable, with the bytes that were: what a crash that drops
    /// everything else leaves, and what no crash may take.
    pub fn acknowledged(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        self.state().acknowledged()
    }

    /// Keeps the trace as lines from now on; its sum is always kept.
    pub fn keep_trace(&self, on: bool) {
        self.state().knobs.keep_trace = on;
    }

    /// Every change and every completion, in order, since [`SimDisk::keep_trace`].
    pub fn trace(&self) -> Vec<String> {
        self.state().trace.clone()
    }

    /// Sum of the whole trace: equal for equal seeds and equal use.
    pub fn trace_sum(&self) -> u64 {
        self.state().trace_sum
    }
}
