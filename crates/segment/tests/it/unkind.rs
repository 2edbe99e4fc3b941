//! [`Unkind`]: a backend that does less than it is asked, and says so late and in any order, as D1 and D2 allow.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use weir_segment::io::{Advice, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open, Ticket, Wait};

/// Chance that follows from a seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).checked_rem(bound).unwrap_or(0)
    }
}

/// Another backend, with short counts and completions in any order.
pub(crate) struct Unkind {
    inner: Box<dyn Io>,
    random: Random,
    asked: BTreeMap<u64, Asked>,
    next: u64,
    front: Vec<Done>,
    ready: Vec<Done>,
    /// D9: the next reap delivers everything.
    closed: bool,
}

/// What was asked for under a ticket of the inner backend, beside what that one got.
enum Asked {
    Write(Ticket, Op),
    Read(Ticket, BytesMut),
    Sync(Ticket),
}

impl Unkind {
    pub(crate) fn new(inner: Box<dyn Io>, seed: u64) -> Unkind {
        Unkind {
            inner,
            random: Random::new(seed),
            asked: BTreeMap::new(),
            next: 0,
            front: Vec::new(),
            ready: Vec::new(),
            closed: false,
        }
    }

    /// A part of something that has this size.
    fn part(&mut self, size: usize) -> usize {
        if size < 2 || self.random.below(2) == 0 {
            return size;
        }
        usize::try_from(1 + self.random.below(u64::try_from(size).unwrap())).unwrap()
    }

    fn restore(&mut self, done: Done) -> Done {
        match (self.asked.remove(&done.ticket.get()).unwrap(), done.op) {
            (Asked::Write(ticket, op), _) => Done { ticket, op, result: done.result },
            (Asked::Read(ticket, rest), Op::Read { file, at, mut into }) => {
                into.unsplit(rest);
                Done { ticket, op: Op::Read { file, at, into }, result: done.result }
            }
            (Asked::Sync(ticket), op) => Done { ticket, op, result: done.result },
            _ => panic!("another operation came back"),
        }
    }
}

impl Io for Unkind {
    fn open(&mut self, path: &Path, how: Open) -> Result<FileId, IoError> {
        self.inner.open(path, how)
    }

    fn close(&mut self, file: FileId) -> Result<(), IoError> {
        self.closed = true;
        self.inner.close(file)
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.inner.path(file)
    }

    fn write_alignment(&self, file: FileId) -> u64 {
        self.inner.write_alignment(file)
    }

    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        self.inner.len(file)
    }

    fn advise(&mut self, file: FileId, advice: Advice) {
        self.inner.advise(file, advice);
    }

    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        self.inner.truncate(file, len)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), IoError> {
        self.inner.rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> Result<(), IoError> {
        self.inner.remove(path)
    }

    fn list(&mut self, dir: &Path) -> Result<Vec<PathBuf>, IoError> {
        self.inner.list(dir)
    }

    fn metadata(&mut self, path: &Path) -> Result<Option<Metadata>, IoError> {
        self.inner.metadata(path)
    }

    fn create_dir_all(&mut self, dir: &Path) -> Result<(), IoError> {
        self.inner.create_dir_all(dir)
    }

    fn sync_dir(&mut self, dir: &Path) -> Result<(), IoError> {
        self.inner.sync_dir(dir)
    }

    fn submit(&mut self, ticket: Ticket, op: Op) -> Result<(), Op> {
        let number = self.next;
        let (asked, less) = match op {
            Op::Write { file, at, bytes } => {
                let part = bytes.slice(..self.part(bytes.len()));
                (Asked::Write(ticket, Op::Write { file, at, bytes }), Op::Write { file, at, bytes: part })
            }
            Op::Read { file, at, mut into } => {
                let part = self.part(into.len());
                let rest = into.split_off(part);
                (Asked::Read(ticket, rest), Op::Read { file, at, into })
            }
            Op::Sync { file, what } => (Asked::Sync(ticket), Op::Sync { file, what }),
        };
        if let Err(back) = self.inner.submit(Ticket::new(number), less) {
            return Err(match (asked, back) {
                (Asked::Write(_, op), _) => op,
                (Asked::Read(_, rest), Op::Read { file, at, mut into }) => {
                    into.unsplit(rest);
                    Op::Read { file, at, into }
                }
                (_, op) => op,
            });
        }
        self.next += 1;
        self.asked.insert(number, asked);
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        let before = done.len();
        done.append(&mut self.front);
        let have = done.len() > before || !self.ready.is_empty();
        let mut inner = Vec::new();
        self.inner.reap(if have { Wait::Poll } else { wait }, &mut inner)?;
        for item in inner {
            let restored = self.restore(item);
            self.ready.push(restored);
        }
        let least = u64::from(wait != Wait::Poll && done.len() == before && !self.ready.is_empty());
        let most = u64::try_from(self.ready.len()).unwrap();
        let mut count = least + self.random.below(most - least + 1);
        if std::mem::take(&mut self.closed) {
            count = most;
        }
        for _ in 0..count {
            let index = usize::try_from(self.random.below(u64::try_from(self.ready.len()).unwrap())).unwrap();
            done.push(self.ready.swap_remove(index));
        }
        Ok(())
    }

    fn put_back(&mut self, done: Vec<Done>) {
        self.front.splice(..0, done);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.front.len() + self.ready.len()
    }

    fn waker(&self) -> IoWaker {
        self.inner.waker()
    }
}
