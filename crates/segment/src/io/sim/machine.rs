//! The machine: its files and directories, its clock, and what is in flight on it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use super::fate::{Acknowledged, Chance, CrashPolicy, LedgerEntry, NameFate};
use super::file::{Change, Inode};
use super::names::{Directory, Entry, NameChange};
use super::{place, size_of};
use crate::io::{BLOCK_SIZE, Op, PREALLOCATION_MOST};

/// What a test has turned on.
#[derive(Debug, Clone, Default)]
pub(super) struct Knobs {
    pub(super) reorder: bool,
    pub(super) short: bool,
    pub(super) yield_always: bool,
    pub(super) full_at: Option<u64>,
    pub(super) fail_sync: Option<u64>,
    pub(super) fail_write: Option<u64>,
    pub(super) stale_write: Option<u64>,
    pub(super) slow: Option<Range<u64>>,
    pub(super) queue_depth: Option<usize>,
    pub(super) direct: bool,
    pub(super) allocate_ahead: Option<u64>,
    pub(super) overlap_allowed: bool,
    /// How often a backend that is broken was asked for completions.
    pub(super) broken_reaps: Option<u64>,
    pub(super) keep_trace: bool,
}

#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) chance: Chance,
    pub(super) clock_ns: u64,
    pub(super) knobs: Knobs,
    pub(super) ops: u64,
    pub(super) reads: u64,
    pub(super) opens: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) off: bool,
    pub(super) generation: u64,
    next_number: u64,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) dirs: BTreeMap<u64, Directory>,
    /// What is in flight, by process.
    pub(super) queues: BTreeMap<u64, Vec<Queued>>,
    /// Writes in flight of processes that are no more.
    pub(super) orphans: Vec<Queued>,
    pub(super) ledger: Vec<LedgerEntry>,
    pub(super) trace: Vec<String>,
    pub(super) trace_sum: u64,
}

/// An operation in flight. A copy of it stays with the process.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) number: u64,
    pub(super) op_number: u64,
    pub(super) inode: u64,
    pub(super) due_ns: u64,
    /// How many reaps it has seen.
    pub(super) age: u32,
    pub(super) what: QueuedKind,
}

#[derive(Debug, Clone)]
pub(super) enum QueuedKind {
    /// `bytes` is what the caller wrote, `image` what goes to the disk for it.
    Write {
        at: u64,
        bytes: Bytes,
        image: Option<Image>,
    },
    Read,
    Sync {
        covers: u64,
        everything: bool,
    },
}

/// Whole blocks, as they were when the write was submitted.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub(super) at: u64,
    pub(super) bytes: Bytes,
}

/// What a process knows of a file that it opened to append (D13).
#[derive(Debug, Clone, Copy)]
pub(super) struct Appending {
    /// End of what was written.
    pub(super) end: u64,
    /// How much is allocated ahead next.
    pub(super) step: u64,
}

/// FNV-1a over words of eight bytes, the last one filled up with zeros: tests compare it, and it is worked out for every
/// write and every sync.
pub(super) fn fnv(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words
        .iter()
        .chain([&last])
        .fold(sum, |sum, word| (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x0000_0100_0000_01b3))
}

pub(super) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

pub(super) fn os_error(kind: std::io::ErrorKind) -> std::io::Error {
    std::io::Error::from(kind)
}

fn io_error() -> std::io::Error {
    // EIO, which has no kind of its own.
    std::io::Error::from_raw_os_error(5)
}

pub(super) fn off_error() -> std::io::Error {
    std::io::Error::other("the simulated machine is off")
}

/// Counts down to the one that a knob means.
fn is_the_nth(left: &mut Option<u64>) -> bool {
    match left {
        Some(0) | None => false,
        Some(left) => {
            *left -= 1;
            *left == 0
        }
    }
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        State {
            chance: Chance::new(seed),
            clock_ns: 0,
            knobs: Knobs::default(),
            ops: 0,
            reads: 0,
            opens: 0,
            crash_at: None,
            off: false,
            generation: 0,
            next_number: 0,
            inodes: BTreeMap::new(),
            dirs: BTreeMap::from([(0, Directory::default())]),
            queues: BTreeMap::new(),
            orphans: Vec::new(),
            ledger: Vec::new(),
            trace: Vec::new(),
            trace_sum: FNV_START,
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let line = line();
        self.trace_sum = fnv(fnv(self.trace_sum, line.as_bytes()), b"\n");
        if self.knobs.keep_trace {
            self.trace.push(line);
        }
    }

    /// Counts a change; true if the machine goes off with it.
    pub(super) fn count(&mut self, what: impl FnOnce() -> String) -> bool {
        self.ops += 1;
        let number = self.ops;
        self.note(|| format!("{number} {}", what()));
        if self.crash_at == Some(self.ops) {
            self.off = true;
            self.note(|| "off".to_string());
        }
        self.off
    }

    pub(super) fn parts(path: &Path) -> Vec<String> {
        path.components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect()
    }

    pub(super) fn dir(&self, parts: &[String]) -> Option<u64> {
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
    pub(super) fn parent(&self, path: &Path) -> Option<(u64, String)> {
        let mut parts = State::parts(path);
        let name = parts.pop()?;
        Some((self.dir(&parts)?, name))
    }

    pub(super) fn entry(&self, path: &Path) -> Option<Entry> {
        match self.parent(path) {
            Some((dir, name)) => self.dirs.get(&dir)?.live.get(&name).copied(),
            None if State::parts(path).is_empty() => Some(Entry::Dir(0)),
            None => None,
        }
    }

    pub(super) fn file(&self, path: &Path) -> Option<u64> {
        match self.entry(path)? {
            Entry::File(inode) => Some(inode),
            Entry::Dir(_) => None,
        }
    }

    pub(super) fn change_names(&mut self, dir: u64, change: NameChange) {
        if let Some(dir) = self.dirs.get_mut(&dir) {
            dir.change(change);
        }
    }

    pub(super) fn make_dirs(&mut self, path: &Path) -> Option<()> {
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

    /// The bytes of all files.
    pub(super) fn used(&self) -> u64 {
        self.inodes.values().map(|inode| size_of(inode.live())).sum()
    }

    pub(super) fn size(&self, inode: u64) -> u64 {
        self.inodes.get(&inode).map_or(0, |inode| size_of(inode.live()))
    }

    /// Changes a file, and says by which number.
    pub(super) fn change_file(&mut self, inode: u64, change: Change) -> u64 {
        let number = self.number();
        let now = self.clock_ns;
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.change(number, change);
            inode.modified_ns = now;
        }
        number
    }

    /// The whole blocks that a write becomes where the page cache is passed by.
    pub(super) fn image(&self, inode: u64, at: u64, bytes: &[u8]) -> Option<Image> {
        if !self.knobs.direct || bytes.is_empty() {
            return None;
        }
        let live = self.inodes.get(&inode)?.live();
        let start = at / BLOCK_SIZE * BLOCK_SIZE;
        let until = at.checked_add(size_of(bytes))?.checked_next_multiple_of(BLOCK_SIZE)?;
        let mut image = vec![0; place(until - start)];
        let old = live.get(place(start)..live.len().min(place(until))).unwrap_or_default();
        image[..old.len()].copy_from_slice(old);
        image[place(at - start)..][..bytes.len()].copy_from_slice(bytes);
        Some(Image { at: start, bytes: Bytes::from(image) })
    }

    /// Whether another write in flight, of any process, touches the same block of this file.
    pub(super) fn overlaps(&self, inode: u64, at: u64, size: usize) -> bool {
        let blocks = |at: u64, size: usize| {
            let last = at.saturating_add(u64::try_from(size).unwrap_or(u64::MAX).saturating_sub(1));
            (at / BLOCK_SIZE, last / BLOCK_SIZE)
        };
        let (first, last) = blocks(at, size);
        size > 0
            && self.queues.values().flatten().filter(|queued| queued.inode == inode).any(|queued| {
                match &queued.what {
                    QueuedKind::Write { at, bytes, .. } if !bytes.is_empty() => {
                        let (other_first, other_last) = blocks(*at, bytes.len());
                        other_first <= last && first <= other_last
                    }
                    _ => false,
                }
            })
    }

    /// Does an operation; its count, and the number of the change if it was a write.
    pub(super) fn complete(
        &mut self,
        queued: &Queued,
        op: &mut Op,
        path: &Path,
        appending: Option<&mut Appending>,
    ) -> (Result<u32, std::io::Error>, Option<u64>) {
        if self.off {
            return (Err(off_error()), None);
        }
        let mut change = None;
        let result = match (&queued.what, op) {
            (QueuedKind::Write { at, bytes, image }, _) => {
                let done = self.complete_write(queued.inode, *at, bytes, image.as_ref(), appending);
                done.map(|(count, number)| {
                    change = number;
                    count
                })
            }
            (QueuedKind::Read, Op::Read { at, into, .. }) => {
                let end = appending.map_or(u64::MAX, |appending| appending.end);
                self.complete_read(queued.inode, *at, into, end)
            }
            (QueuedKind::Sync { covers, everything }, _) => {
                self.complete_sync(queued, *covers, *everything, path)
            }
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
        (result, change)
    }

    fn complete_write(
        &mut self,
        inode: u64,
        at: u64,
        bytes: &Bytes,
        image: Option<&Image>,
        mut appending: Option<&mut Appending>,
    ) -> Result<(u32, Option<u64>), std::io::Error> {
        let mut count = bytes.len();
        if self.knobs.short && count > 1 && self.chance.coin() {
            count = place(1 + self.chance.below(size_of(bytes) - 1));
        }
        if is_the_nth(&mut self.knobs.fail_write) {
            return Err(io_error());
        }
        if let Some(full_at) = self.knobs.full_at {
            let room = full_at.saturating_sub(self.used());
            let fits = place(self.size(inode).saturating_add(room).saturating_sub(at));
            if fits == 0 && !bytes.is_empty() {
                return Err(os_error(std::io::ErrorKind::StorageFull));
            }
            count = count.min(fits);
        }
        let end = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        let mut change = None;
        if !is_the_nth(&mut self.knobs.stale_write) {
            if let Some(appending) = &mut appending
                && self.allocate_ahead(inode, end, appending.step)
            {
                appending.step = appending.step.saturating_mul(2).min(PREALLOCATION_MOST);
            }
            // A short write has no whole blocks; nor has one on a disk that is filling up.
            let image = image.filter(|image| {
                let until = image.at.saturating_add(size_of(&image.bytes));
                let grows = until.saturating_sub(self.size(inode));
                count == bytes.len()
                    && self.knobs.full_at.is_none_or(|full_at| self.used().saturating_add(grows) <= full_at)
            });
            let write = match image {
                Some(image) => Change::Write { at: image.at, bytes: image.bytes.clone() },
                None => Change::Write { at, bytes: bytes.slice(..count) },
            };
            change = Some(self.change_file(inode, write));
        }
        if let Some(appending) = appending {
            appending.end = appending.end.max(end);
        }
        Ok((u32::try_from(count).unwrap_or(u32::MAX), change))
    }

    /// Makes a file longer than what is written needs, if that is turned on and there is room.
    fn allocate_ahead(&mut self, inode: u64, end: u64, step: u64) -> bool {
        let size = self.size(inode);
        let target = end.max(size.saturating_add(step));
        let fits = |full_at: u64| self.used().saturating_add(target - size) <= full_at;
        let wanted = self.knobs.allocate_ahead.is_some() && end > size && self.knobs.full_at.is_none_or(fits);
        if wanted {
            self.change_file(inode, Change::Grow(target));
        }
        wanted
    }

    fn complete_read(
        &mut self,
        inode: u64,
        at: u64,
        into: &mut [u8],
        end: u64,
    ) -> Result<u32, std::io::Error> {
        let short = self.knobs.short && self.chance.coin();
        let random = self.chance.next();
        let Some(inode) = self.inodes.get(&inode) else { return Ok(0) };
        let live = inode.live();
        let end = at.saturating_add(size_of(into)).min(size_of(live)).min(end);
        let mut count = place(end.saturating_sub(at));
        if short && count > 1 {
            count = 1 + place(random % u64::try_from(count - 1).unwrap_or(1));
        }
        let read = at..at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if inode.bad.iter().any(|bad| bad.start < read.end && read.start < bad.end) {
            return Err(io_error());
        }
        into[..count].copy_from_slice(&live[place(at).min(live.len())..][..count]);
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn complete_sync(
        &mut self,
        queued: &Queued,
        covers: u64,
        everything: bool,
        path: &Path,
    ) -> Result<u32, std::io::Error> {
        let fails = is_the_nth(&mut self.knobs.fail_sync);
        let Some(inode) = self.inodes.get_mut(&queued.inode) else { return Ok(0) };
        if fails {
            // The pages count as clean: a reader still sees them, the disk never gets them.
            inode.lose(covers);
            return Err(io_error());
        }
        inode.sync(covers, everything, &mut self.chance);
        let durable = inode.durable();
        let what = Acknowledged::File { size: size_of(durable), sum: fnv(FNV_START, durable) };
        self.ledger.push(LedgerEntry { op: queued.op_number, path: path.to_path_buf(), what });
        Ok(0)
    }

    /// What is on the disk after a power cut.
    pub(super) fn crash(&mut self, policy: CrashPolicy) {
        self.note(|| format!("crash {policy:?}"));
        // Each crash point has fates of its own, also where nothing before it was left to chance.
        self.chance.stir(self.trace_sum);
        // Writes in flight may have landed.
        let queues = std::mem::take(&mut self.queues);
        let orphans = std::mem::take(&mut self.orphans);
        for queued in orphans.into_iter().chain(queues.into_values().flatten()) {
            if let QueuedKind::Write { at, bytes, image } = queued.what {
                let number = self.number();
                let (at, bytes) = image.map_or((at, bytes), |image| (image.at, image.bytes));
                if let Some(inode) = self.inodes.get_mut(&queued.inode) {
                    inode.may_have(number, at, bytes);
                }
            }
        }
        for inode in self.inodes.values_mut() {
            inode.crash(policy.data, &mut self.chance);
        }
        for dir in self.dirs.values_mut() {
            dir.crash(|| match policy.names {
                NameFate::Kept => true,
                NameFate::Undone => false,
                NameFate::Mixed => self.chance.coin(),
            });
        }
        self.generation += 1;
        self.off = false;
        self.crash_at = None;
    }

    /// The files under their durable names, with their durable bytes.
    pub(super) fn acknowledged(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut dirs = vec![(0, PathBuf::from("/"))];
        while let Some((dir, at)) = dirs.pop() {
            let Some(names) = self.dirs.get(&dir) else { continue };
            for (name, entry) in &names.durable {
                match entry {
                    Entry::Dir(inner) => dirs.push((*inner, at.join(name))),
                    Entry::File(inode) => {
                        let bytes = self.inodes.get(inode).map(|inode| inode.durable().to_vec());
                        found.extend(bytes.map(|bytes| (at.join(name), bytes)));
                    }
                }
            }
        }
        found
    }
}
