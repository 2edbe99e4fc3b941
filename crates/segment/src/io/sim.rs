//! SimDisk: a disk in memory, for tests. Everything it does follows from its seed.
//!
//! # Fault model
//!
//! State per file: the bytes that are durable, the bytes that a reader sees, and between them the changes since the last
//! sync, in order. Per directory: the same with names. A test turns knobs, each off by default.
//!
//! | knob | models | the log must |
//! |---|---|---|
//! | [`SimDisk::reorder`] | completions in any order | survive |
//! | [`SimDisk::short`] | short reads and writes | survive |
//! | [`SimDisk::yield_always`] | nothing completes before a later reap | survive |
//! | [`SimDisk::queue_depth`] | a full queue: submit returns the operation | survive |
//! | [`SimDisk::slow`] | latency, in virtual time | survive |
//! | [`SimDisk::crash`] | power cut: each unsynced write is kept, dropped, cut at a 512-byte boundary or leaves zeros with the length grown; each unsynced name is kept or undone; an unsynced truncation may be undone | survive: acknowledged bytes are there, what is there is a prefix |
//! | [`SimDisk::full_after`] | a full disk | survive: refuse writes, keep what was acknowledged |
//! | [`SimDisk::fail_sync`] | a failed fsync that drops the dirty pages; the next one "succeeds" | survive: acknowledge nothing after it |
//! | [`SimDisk::read_error`] | a bad sector, sticky | detect, and say where |
//! | [`SimDisk::flip`] | bit rot in durable bytes | detect, where a checksum covers it |
//! | [`SimDisk::stale_read`] | a write that was acknowledged and synced and never landed | detect if a whole batch is missing in the middle; not claimed at the end of the log, where nothing tells it from a shorter log |
//!
//! Not modelled: bytes that land in another file or at another place, names that change by themselves, and a sync that
//! lies about everything. Rot of acknowledged bytes is detected, not survived: there is one copy.
//!
//! Writes in flight in one file that touch the same block fail the caller (D11). A write takes effect when it is reaped;
//! in flight at a crash, it counts as unsynced.
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

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::track::{OVERLAP, WritesInFlight};
use super::{Advice, At, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open, Operation, Ticket, Wait};

/// The unit in which a crash cuts writes, in bytes.
pub const SECTOR_SIZE: u64 = 512;

/// What a crash does to each change of a file since its last sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataFate {
    /// It is there.
    Kept,
    /// It is not there.
    Dropped,
    /// A write is there up to a boundary of 512 bytes; a truncation by the toss of a coin.
    Cut,
    /// Behind the old end there are zeros where the write was to be; a truncation is there.
    Zeros,
    /// Any of these, for each change by itself.
    Mixed,
}

/// What a crash does to each change of a directory since it was last synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameFate {
    /// It is there.
    Kept,
    /// It is not there.
    Undone,
    /// Either, for each change by itself.
    Mixed,
}

/// What a crash leaves of everything that was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CrashPolicy {
    /// Of writes and truncations.
    pub data: DataFate,
    /// Of names.
    pub names: NameFate,
}

impl CrashPolicy {
    /// Everything is there: a process that was killed.
    pub const KEEP_ALL: CrashPolicy = CrashPolicy { data: DataFate::Kept, names: NameFate::Kept };
    /// Nothing is there.
    pub const DROP_ALL: CrashPolicy = CrashPolicy { data: DataFate::Dropped, names: NameFate::Undone };
    /// Every combination.
    pub const ALL: [CrashPolicy; 15] = {
        let data = [DataFate::Kept, DataFate::Dropped, DataFate::Cut, DataFate::Zeros, DataFate::Mixed];
        let names = [NameFate::Kept, NameFate::Undone, NameFate::Mixed];
        let mut all = [CrashPolicy::KEEP_ALL; 15];
        let mut at = 0;
        while at < all.len() {
            all[at] = CrashPolicy { data: data[at % data.len()], names: names[at / data.len()] };
            at += 1;
        }
        all
    };
}

/// Something that was acknowledged as durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The number of the operation that did it; see [`SimDisk::op_count`].
    pub op: u64,
    /// The file or directory.
    pub path: PathBuf,
    /// What is durable of it.
    pub what: Acknowledged,
}

/// What a sync made durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acknowledged {
    /// A file with this size and this sum (FNV-1a) of its bytes.
    File {
        /// Size in bytes.
        size: u64,
        /// Sum of the bytes.
        sum: u64,
    },
    /// A directory with these names.
    Names(Vec<String>),
}

/// A simulated machine's disk: a handle that tests keep while the code under test uses an [`SimIo`] of it.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone, Default)]
struct Knobs {
    reorder: bool,
    short: bool,
    yield_always: bool,
    full_at: Option<u64>,
    fail_sync: Option<u64>,
    stale_write: Option<u64>,
    slow: Option<(u64, u64)>,
    queue_depth: Option<usize>,
    keep_trace: bool,
}

#[derive(Debug, Clone)]
struct State {
    random: u64,
    clock_ns: u64,
    knobs: Knobs,
    ops: u64,
    crash_at: Option<u64>,
    off: bool,
    generation: u64,
    next_number: u64,
    inodes: BTreeMap<u64, Inode>,
    dirs: BTreeMap<u64, Directory>,
    queues: BTreeMap<u64, Vec<Queued>>,
    ledger: Vec<LedgerEntry>,
    trace: Vec<String>,
    trace_sum: u64,
}

#[derive(Debug, Clone, Default)]
struct Inode {
    durable: Vec<u8>,
    live: Vec<u8>,
    unsynced: Vec<(u64, Change)>,
    bad: Vec<Range<u64>>,
    modified_ns: u64,
}

#[derive(Debug, Clone)]
enum Change {
    Write { at: u64, bytes: Bytes },
    Length(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    File(u64),
    Dir(u64),
}

#[derive(Debug, Clone, Default)]
struct Directory {
    durable: BTreeMap<String, Entry>,
    live: BTreeMap<String, Entry>,
    unsynced: Vec<NameChange>,
}

#[derive(Debug, Clone)]
enum NameChange {
    Put(String, Entry),
    Remove(String),
    Move(String, String, Entry),
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, Entry>) {
        match self {
            NameChange::Put(name, entry) => {
                names.insert(name.clone(), *entry);
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
            NameChange::Move(from, to, entry) => {
                names.remove(from);
                names.insert(to.clone(), *entry);
            }
        }
    }
}

/// An operation in flight. A copy of it stays with the [`SimIo`].
#[derive(Debug, Clone)]
struct Queued {
    number: u64,
    op_number: u64,
    inode: u64,
    due_ns: u64,
    /// How many reaps it has seen.
    age: u32,
    what: QueuedKind,
}

#[derive(Debug, Clone)]
enum QueuedKind {
    Write { at: u64, bytes: Bytes },
    Read,
    Sync { covers: u64 },
}

fn place(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

fn size_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn fnv(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

fn put(file: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (start, end) = (place(at), place(at).saturating_add(bytes.len()));
    if bytes.is_empty() {
        return;
    }
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}

fn os_error(kind: std::io::ErrorKind) -> std::io::Error {
    std::io::Error::from(kind)
}

fn io_error() -> std::io::Error {
    // EIO, which has no kind of its own.
    std::io::Error::from_raw_os_error(5)
}

fn off_error() -> std::io::Error {
    std::io::Error::other("the simulated machine is off")
}

impl Inode {
    fn apply(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Write { at, bytes: new } => put(bytes, *at, new),
            Change::Length(size) => bytes.resize(place(*size), 0),
        }
    }
}

impl State {
    fn random(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.random() % bound }
    }

    fn coin(&mut self) -> bool {
        self.random() & 1 == 1
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let line = line();
        self.trace_sum = fnv(fnv(self.trace_sum, line.as_bytes()), b"\n");
        if self.knobs.keep_trace {
            self.trace.push(line);
        }
    }

    /// Counts a change; true if the machine goes off with it.
    fn count(&mut self, what: impl FnOnce() -> String) -> bool {
        self.ops += 1;
        let number = self.ops;
        self.note(|| format!("{number} {}", what()));
        if self.crash_at == Some(self.ops) {
            self.off = true;
            self.note(|| "off".to_string());
        }
        self.off
    }

    fn parts(path: &Path) -> Vec<String> {
        path.components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect()
    }

    fn dir(&self, parts: &[String]) -> Option<u64> {
        let mut at = 0;
        for part in parts {
            match self.dirs.get(&at)?.live.get(part)? {
                Entry::Dir(next) => at = *next,
                Entry::File(_) => return None,
            }
        }
        Some(at)
    }

    /// The directory of a path and the name in it.
    fn parent(&self, path: &Path) -> Option<(u64, String)> {
        let mut parts = State::parts(path);
        let name = parts.pop()?;
        Some((self.dir(&parts)?, name))
    }

    fn entry(&self, path: &Path) -> Option<Entry> {
        match self.parent(path) {
            Some((dir, name)) => self.dirs.get(&dir)?.live.get(&name).copied(),
            None if State::parts(path).is_empty() => Some(Entry::Dir(0)),
            None => None,
        }
    }

    fn file(&self, path: &Path) -> Option<u64> {
        match self.entry(path)? {
            Entry::File(inode) => Some(inode),
            Entry::Dir(_) => None,
        }
    }

    fn change_names(&mut self, dir: u64, change: NameChange) {
        if let Some(dir) = self.dirs.get_mut(&dir) {
            change.apply(&mut dir.live);
            dir.unsynced.push(change);
        }
    }

    fn make_dirs(&mut self, path: &Path) -> Option<()> {
        let mut at = 0;
        for part in State::parts(path) {
            at = match self.dirs.get(&at)?.live.get(&part) {
                Some(Entry::Dir(next)) => *next,
                Some(Entry::File(_)) => return None,
                None => {
                    let made = self.number();
                    self.dirs.insert(made, Directory::default());
                    self.change_names(at, NameChange::Put(part, Entry::Dir(made)));
                    made
                }
            };
        }
        Some(())
    }

    fn used(&self) -> u64 {
        self.inodes.values().map(|inode| size_of(&inode.live)).sum()
    }

    fn change_file(&mut self, inode: u64, change: Change) {
        let number = self.number();
        let now = self.clock_ns;
        if let Some(inode) = self.inodes.get_mut(&inode) {
            Inode::apply(&mut inode.live, &change);
            inode.unsynced.push((number, change));
            inode.modified_ns = now;
        }
    }

    fn complete(&mut self, queued: &Queued, op: &mut Op, path: &Path) -> Result<u32, std::io::Error> {
        if self.off {
            return Err(off_error());
        }
        let result = match (&queued.what, op) {
            (QueuedKind::Write { at, bytes }, _) => self.complete_write(queued.inode, *at, bytes),
            (QueuedKind::Read, Op::Read { at, into, .. }) => self.complete_read(queued.inode, *at, into),
            (QueuedKind::Sync { covers }, _) => self.complete_sync(queued, *covers, path),
            (QueuedKind::Read, _) => unreachable!("a read is queued as a read"),
        };
        let number = queued.op_number;
        match &result {
            Ok(count) => {
                let count = *count;
                self.note(|| format!("done {number} {count}"));
            }
            Err(error) => {
                let error = error.to_string();
                self.note(|| format!("done {number} {error}"));
            }
        }
        result
    }

    fn complete_write(&mut self, inode: u64, at: u64, bytes: &Bytes) -> Result<u32, std::io::Error> {
        let mut count = bytes.len();
        if self.knobs.short && count > 1 && self.coin() {
            count = place(1 + self.below(size_of(bytes) - 1));
        }
        if let Some(full_at) = self.knobs.full_at {
            let used = self.used();
            let size = self.inodes.get(&inode).map_or(0, |inode| size_of(&inode.live));
            let room = full_at.saturating_sub(used);
            let fits = place(size.saturating_add(room).saturating_sub(at));
            if fits == 0 && !bytes.is_empty() {
                return Err(os_error(std::io::ErrorKind::StorageFull));
            }
            count = count.min(fits);
        }
        let stale = match &mut self.knobs.stale_write {
            Some(0) | None => false,
            Some(left) => {
                *left -= 1;
                *left == 0
            }
        };
        if !stale {
            self.change_file(inode, Change::Write { at, bytes: bytes.slice(..count) });
        }
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn complete_read(&mut self, inode: u64, at: u64, into: &mut [u8]) -> Result<u32, std::io::Error> {
        let short = self.knobs.short && self.coin();
        let random = self.random();
        let Some(inode) = self.inodes.get(&inode) else { return Ok(0) };
        let end = at.saturating_add(size_of(into)).min(size_of(&inode.live));
        let mut count = place(end.saturating_sub(at));
        if short && count > 1 {
            count = 1 + place(random % u64::try_from(count - 1).unwrap_or(1));
        }
        let read = at..at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if inode.bad.iter().any(|bad| bad.start < read.end && read.start < bad.end) {
            return Err(io_error());
        }
        into[..count].copy_from_slice(&inode.live[place(at).min(inode.live.len())..][..count]);
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn complete_sync(&mut self, queued: &Queued, covers: u64, path: &Path) -> Result<u32, std::io::Error> {
        let fails = match &mut self.knobs.fail_sync {
            Some(0) | None => false,
            Some(left) => {
                *left -= 1;
                *left == 0
            }
        };
        let Some(inode) = self.inodes.get_mut(&queued.inode) else { return Ok(0) };
        let covered = inode.unsynced.iter().take_while(|(number, _)| *number <= covers).count();
        for (_, change) in inode.unsynced.drain(..covered) {
            // After a failed sync the pages count as clean: a reader still sees them, the disk never gets them.
            if !fails {
                Inode::apply(&mut inode.durable, &change);
            }
        }
        if fails {
            return Err(io_error());
        }
        let what = Acknowledged::File { size: size_of(&inode.durable), sum: fnv(FNV_START, &inode.durable) };
        self.ledger.push(LedgerEntry { op: queued.op_number, path: path.to_path_buf(), what });
        Ok(0)
    }

    /// What is on the disk after a power cut.
    fn crash(&mut self, policy: CrashPolicy) {
        self.note(|| format!("crash {policy:?}"));
        // Writes in flight may have landed.
        let queues = std::mem::take(&mut self.queues);
        for queued in queues.into_values().flatten() {
            if let QueuedKind::Write { at, bytes } = queued.what {
                let number = self.number();
                if let Some(inode) = self.inodes.get_mut(&queued.inode) {
                    inode.unsynced.push((number, Change::Write { at, bytes }));
                }
            }
        }
        let inodes: Vec<u64> = self.inodes.keys().copied().collect();
        for number in inodes {
            let Some(inode) = self.inodes.get_mut(&number) else { continue };
            let changes = std::mem::take(&mut inode.unsynced);
            let mut bytes = std::mem::take(&mut inode.durable);
            for (_, change) in changes {
                self.settle(&mut bytes, &change, policy.data);
            }
            if let Some(inode) = self.inodes.get_mut(&number) {
                inode.live.clone_from(&bytes);
                inode.durable = bytes;
            }
        }
        let dirs: Vec<u64> = self.dirs.keys().copied().collect();
        for number in dirs {
            let Some(dir) = self.dirs.get_mut(&number) else { continue };
            let changes = std::mem::take(&mut dir.unsynced);
            let mut names = std::mem::take(&mut dir.durable);
            for change in changes {
                let kept = match policy.names {
                    NameFate::Kept => true,
                    NameFate::Undone => false,
                    NameFate::Mixed => self.coin(),
                };
                if kept {
                    change.apply(&mut names);
                }
            }
            if let Some(dir) = self.dirs.get_mut(&number) {
                dir.live.clone_from(&names);
                dir.durable = names;
            }
        }
        self.generation += 1;
        self.off = false;
        self.crash_at = None;
    }

    fn settle(&mut self, bytes: &mut Vec<u8>, change: &Change, fate: DataFate) {
        let fate = match fate {
            DataFate::Mixed => {
                let fates = [DataFate::Kept, DataFate::Dropped, DataFate::Cut, DataFate::Zeros];
                fates[place(self.below(4))]
            }
            fate => fate,
        };
        match (fate, change) {
            (DataFate::Dropped, _) => {}
            (DataFate::Cut, Change::Length(_)) => {
                if self.coin() {
                    Inode::apply(bytes, change);
                }
            }
            (DataFate::Cut, Change::Write { at, bytes: new }) => {
                let end = at.saturating_add(size_of(new));
                let (first, last) = (at / SECTOR_SIZE + 1, end / SECTOR_SIZE);
                // A boundary inside the write, or its start where there is none.
                let kept =
                    if first <= last { (first + self.below(last - first + 1)) * SECTOR_SIZE - at } else { 0 };
                put(bytes, *at, &new[..place(kept).min(new.len())]);
            }
            (DataFate::Zeros, Change::Write { at, bytes: new }) => {
                let end = place(at.saturating_add(size_of(new)));
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
            }
            (DataFate::Zeros | DataFate::Kept | DataFate::Mixed, _) => Inode::apply(bytes, change),
        }
    }
}

impl SimDisk {
    /// An empty disk with a root directory and all faults off.
    pub fn new(seed: u64) -> SimDisk {
        let state = State {
            random: seed,
            clock_ns: 0,
            knobs: Knobs::default(),
            ops: 0,
            crash_at: None,
            off: false,
            generation: 0,
            next_number: 0,
            inodes: BTreeMap::new(),
            dirs: BTreeMap::from([(0, Directory::default())]),
            queues: BTreeMap::new(),
            ledger: Vec::new(),
            trace: Vec::new(),
            trace_sum: FNV_START,
        };
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process on this machine. It stops working when the machine crashes; then ask for another one.
    pub fn io(&self) -> SimIo {
        let mut state = self.state();
        let number = state.number();
        state.queues.insert(number, Vec::new());
        SimIo {
            state: Arc::clone(&self.state),
            number,
            generation: state.generation,
            files: BTreeMap::new(),
            next_file: 0,
            writes: WritesInFlight::default(),
            ops: BTreeMap::new(),
            ready: VecDeque::new(),
            in_flight: 0,
            wake: Arc::new((Mutex::new(false), Condvar::new())),
        }
    }

    /// A copy of the machine as it is, with a life of its own.
    pub fn fork(&self) -> SimDisk {
        let mut state = self.state().clone();
        // No process of the copy is running.
        state.queues.clear();
        state.generation += 1;
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    // Crashing.

    /// How many changes were asked for so far: writes, syncs, truncations, and everything that makes, renames, removes or
    /// syncs a name. They are numbered from 1.
    pub fn op_count(&self) -> u64 {
        self.state().ops
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

    /// The `nth` write from now on, from 1, is acknowledged and never lands.
    pub fn stale_read(&self, nth: u64) {
        self.state().knobs.stale_write = Some(nth);
    }

    /// Each operation takes a time in this range, in virtual nanoseconds; `None`: no time.
    pub fn slow(&self, nanoseconds: Option<Range<u64>>) {
        self.state().knobs.slow = nanoseconds.map(|range| (range.start, range.end));
    }

    /// At most this many operations in flight in one [`SimIo`]; `None`: any number.
    pub fn queue_depth(&self, most: Option<usize>) {
        self.state().knobs.queue_depth = most;
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
        assert!(position < size_of(&inode.live), "{} has no byte {position}", path.display());
        inode.live[place(position)] ^= bits;
        if let Some(byte) = inode.durable.get_mut(place(position)) {
            *byte ^= bits;
        }
    }

    /// Virtual time, in nanoseconds.
    pub fn clock_ns(&self) -> u64 {
        self.state().clock_ns
    }

    // Looking and preparing.

    /// What a reader sees in a file.
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.file(path).and_then(|inode| state.inodes.get(&inode)).map(|inode| inode.live.clone())
    }

    /// What is durable under a path: what a crash that drops everything else would leave.
    pub fn durable_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let mut at = 0;
        let mut parts = State::parts(path);
        let name = parts.pop()?;
        for part in parts {
            match state.dirs.get(&at)?.durable.get(&part)? {
                Entry::Dir(next) => at = *next,
                Entry::File(_) => return None,
            }
        }
        match state.dirs.get(&at)?.durable.get(&name)? {
            Entry::File(inode) => state.inodes.get(inode).map(|inode| inode.durable.clone()),
            Entry::Dir(_) => None,
        }
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
        let content = Inode { durable: bytes.to_vec(), live: bytes.to_vec(), ..Inode::default() };
        state.inodes.insert(inode, content);
        for dir in state.dirs.values_mut() {
            dir.durable = dir.live.clone();
            dir.unsynced.clear();
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

/// [`Io`] on a [`SimDisk`]: one process.
#[derive(Debug)]
pub struct SimIo {
    state: Arc<Mutex<State>>,
    number: u64,
    generation: u64,
    files: BTreeMap<FileId, SimFile>,
    next_file: u64,
    writes: WritesInFlight,
    ops: BTreeMap<u64, (Ticket, Op)>,
    ready: VecDeque<Done>,
    in_flight: usize,
    wake: Arc<(Mutex<bool>, Condvar)>,
}

#[derive(Debug)]
struct SimFile {
    path: PathBuf,
    inode: u64,
    writable: bool,
    poisoned: Option<Operation>,
}

impl SimIo {
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

    fn at(&self, operation: Operation, file: FileId, position: Option<u64>) -> At {
        At { operation, path: self.path(file), position }
    }

    fn misuse(
        &self,
        operation: Operation,
        file: FileId,
        position: Option<u64>,
        rule: &'static str,
    ) -> IoError {
        IoError::Misuse { at: self.at(operation, file, position), rule }
    }

    fn inode(&self, operation: Operation, file: FileId) -> Result<u64, IoError> {
        let open = self.files.get(&file);
        open.map(|f| f.inode).ok_or_else(|| self.misuse(operation, file, None, "the file is not open"))
    }

    fn check_writable(
        &self,
        operation: Operation,
        file: FileId,
        position: Option<u64>,
    ) -> Result<(), IoError> {
        match self.files.get(&file) {
            None => Err(self.misuse(operation, file, position, "the file is not open")),
            Some(SimFile { poisoned: Some(cause), .. }) => {
                Err(IoError::Poisoned { at: self.at(operation, file, position), cause: *cause })
            }
            Some(SimFile { writable: false, .. }) if operation != Operation::Sync => Err(IoError::Os {
                at: self.at(operation, file, position),
                source: os_error(std::io::ErrorKind::PermissionDenied),
            }),
            Some(_) => Ok(()),
        }
    }

    fn poison(&mut self, file: FileId, cause: Operation) {
        if let Some(file) = self.files.get_mut(&file) {
            file.poisoned.get_or_insert(cause);
        }
    }

    /// Completes operations in flight: those that are due, or at least one if it blocks.
    fn progress(&mut self, block: bool) {
        let state = Arc::clone(&self.state);
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.generation != self.generation || state.off {
            // The machine is off: nothing completes any more but as an error.
            drop(state);
            for (_, (ticket, op)) in std::mem::take(&mut self.ops) {
                let (operation, position) = op_of(&op);
                let at = self.at(operation, op.file(), position);
                self.ready.push_back(Done {
                    ticket,
                    op,
                    result: Err(IoError::Os { at, source: off_error() }),
                });
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
                let other = place(state.below(u64::try_from(last + 1).unwrap_or(1)));
                ready.swap(last, other);
            }
            let most = u64::try_from(ready.len()).unwrap_or(0);
            let least = u64::from(block).min(most);
            ready.truncate(place(least + state.below(most - least + 1)));
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
            let Some((ticket, mut op)) = self.ops.remove(&number) else { continue };
            let file = op.file();
            let (operation, position) = op_of(&op);
            let path = self.path(file);
            let checked = match operation {
                Operation::Read => Ok(()),
                _ => self.check_writable(operation, file, position),
            };
            let result = checked.and_then(|()| {
                let result = state.complete(&queued, &mut op, &path);
                result.map_err(|source| IoError::Os { at: self.at(operation, file, position), source })
            });
            if matches!(result, Err(IoError::Os { .. })) && operation != Operation::Read {
                self.poison(file, operation);
            }
            self.ready.push_back(Done { ticket, op, result });
        }
    }

    /// Completes until something is ready or nothing is in flight.
    fn block(&mut self) {
        while self.ready.is_empty() && !self.ops.is_empty() {
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
                state.inodes.insert(inode, Inode { modified_ns, ..Inode::default() });
                state.change_names(dir, NameChange::Put(name, Entry::File(inode)));
                if state.count(|| format!("create {}", path.display())) {
                    return Err(IoError::os(Operation::Open, path, None, off_error()));
                }
                inode
            }
        };
        drop(state);
        let file = FileId(self.next_file);
        self.next_file += 1;
        let writable = how != Open::Read;
        self.files.insert(file, SimFile { path: path.to_path_buf(), inode, writable, poisoned: None });
        Ok(file)
    }

    fn close(&mut self, file: FileId) -> Result<(), IoError> {
        self.inode(Operation::Close, file)?;
        while self.ops.values().any(|(_, op)| op.file() == file) {
            self.progress(true);
        }
        self.files.remove(&file);
        Ok(())
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.files.get(&file).map(|f| f.path.clone()).unwrap_or_default()
    }

    fn write_alignment(&self, _: FileId) -> u64 {
        1
    }

    fn advise(&mut self, _: FileId, _: Advice) {}

    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        let inode = self.inode(Operation::Length, file)?;
        let path = self.path(file);
        let state = self.running(Operation::Length, &path)?;
        Ok(state.inodes.get(&inode).map_or(0, |inode| size_of(&inode.live)))
    }

    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        let inode = self.inode(Operation::Truncate, file)?;
        self.check_writable(Operation::Truncate, file, Some(len))?;
        if self.writes.any(file) {
            let rule = "a write is in flight on this file";
            return Err(self.misuse(Operation::Truncate, file, Some(len), rule));
        }
        let path = self.path(file);
        let mut state = self.running(Operation::Truncate, &path)?;
        state.change_file(inode, Change::Length(len));
        if state.count(|| format!("truncate {} {len}", path.display())) {
            return Err(IoError::os(Operation::Truncate, path, Some(len), off_error()));
        }
        Ok(())
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
        for file in self.files.values_mut() {
            if let Ok(rest) = file.path.strip_prefix(from) {
                file.path = if rest.as_os_str().is_empty() { to.to_path_buf() } else { to.join(rest) };
            }
        }
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
            Some(Entry::Dir(_)) => Some(Metadata { is_dir: true, size: 0, modified_ms: None }),
            Some(Entry::File(inode)) => state.inodes.get(&inode).map(|inode| Metadata {
                is_dir: false,
                size: size_of(&inode.live),
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
            names.unsynced.clear();
            names.durable = names.live.clone();
            let what = Acknowledged::Names(names.durable.keys().cloned().collect());
            state.ledger.push(LedgerEntry { op, path: dir.to_path_buf(), what });
        }
        Ok(())
    }

    fn submit(&mut self, ticket: Ticket, op: Op) -> Result<(), Op> {
        let depth = self.state().knobs.queue_depth;
        if depth.is_some_and(|depth| self.in_flight >= depth.max(1)) {
            return Err(op);
        }
        self.in_flight += 1;
        let file = op.file();
        let (operation, position) = op_of(&op);
        let mut refused = self.inode(operation, file).err();
        if refused.is_none()
            && let Op::Write { at, bytes, .. } = &op
            && !self.writes.begin(file, ticket, *at, bytes.len())
        {
            refused = Some(self.misuse(operation, file, position, OVERLAP));
        }
        if let Some(error) = refused {
            self.ready.push_back(Done { ticket, op, result: Err(error) });
            return Ok(());
        }
        let inode = self.files.get(&file).map_or(0, |file| file.inode);
        let path = self.path(file);
        let generation = self.generation;
        let number = {
            let mut state = self.state();
            let number = state.number();
            if !state.off && state.generation == generation {
                let what = match &op {
                    Op::Write { at, bytes, .. } => QueuedKind::Write { at: *at, bytes: bytes.clone() },
                    Op::Read { .. } => QueuedKind::Read,
                    Op::Sync { .. } => QueuedKind::Sync { covers: number },
                };
                let due_ns = match state.knobs.slow {
                    None => state.clock_ns,
                    Some((least, end)) => state.clock_ns + least + state.below(end.saturating_sub(least)),
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
                    Op::Read { .. } => {}
                }
                let op_number = state.ops;
                let queued = Queued { number, op_number, inode, due_ns, age: 0, what };
                state.queues.entry(self.number).or_default().push(queued);
            }
            number
        };
        self.ops.insert(number, (ticket, op));
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        match wait {
            Wait::Poll => self.progress(false),
            Wait::Block => self.block(),
            Wait::Park(limit) => {
                let wake = Arc::clone(&self.wake);
                let (flag, bell) = &*wake;
                let mut woken = flag.lock().unwrap_or_else(PoisonError::into_inner);
                if !self.ready.is_empty() || *woken {
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
        for item in self.ready.drain(..) {
            self.writes.end(&item);
            self.in_flight -= 1;
            done.push(item);
        }
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
        let wake = Arc::clone(&self.wake);
        IoWaker::new(move || {
            let (flag, bell) = &*wake;
            *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
            bell.notify_all();
        })
    }
}
