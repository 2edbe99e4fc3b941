//! [`OverlayIo`]: the files of another [`Io`], and every change to them in memory alone.
//!
//! What runs on it sees its own changes, and the disk below is only read. A size is taken when a file is first looked at,
//! so that a file that grows meanwhile stays as it was; one that shrinks or goes is met as an error of the read.
//!
//! Writes to a file take a copy of it into memory; cutting, renaming and removing cost nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::track::Tracker;
use super::{Advice, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open, Operation, Ticket, Wait, exact};
use crate::units::{to_u64, to_usize};

/// An [`Io`] that reads another one's files and keeps every change in memory.
pub struct OverlayIo<'a> {
    base: &'a mut dyn Io,
    /// What is known of a path: its file, or that it is gone. Other paths are as the base says.
    names: BTreeMap<PathBuf, Option<usize>>,
    dirs: BTreeSet<PathBuf>,
    files: Vec<File>,
    track: Tracker<OpenFile>,
    /// From the base's names for open files to ours.
    of_base: BTreeMap<FileId, FileId>,
    /// Completions of what its owner had in flight on the base: the base gets them back.
    others: Vec<Done>,
}

enum File {
    /// The first bytes of a file of the base.
    Base { path: PathBuf, size: u64, modified_ms: Option<i64> },
    /// A file that was written.
    Memory(Vec<u8>),
}

#[derive(Clone, Copy)]
struct OpenFile {
    file: usize,
    base: Option<FileId>,
}

impl std::fmt::Debug for OverlayIo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OverlayIo").field("changed", &self.names.keys()).finish_non_exhaustive()
    }
}

fn count(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn refused(operation: Operation, path: &Path, kind: ErrorKind) -> IoError {
    IoError::os(operation, path, None, kind.into())
}

impl<'a> OverlayIo<'a> {
    /// Over what `base` sees now.
    pub fn new(base: &'a mut dyn Io) -> OverlayIo<'a> {
        OverlayIo {
            base,
            names: BTreeMap::new(),
            dirs: BTreeSet::new(),
            files: Vec::new(),
            track: Tracker::new(),
            of_base: BTreeMap::new(),
            others: Vec::new(),
        }
    }

    /// The file at a path, if there is one.
    fn find(&mut self, path: &Path) -> Result<Option<usize>, IoError> {
        if let Some(known) = self.names.get(path) {
            return Ok(*known);
        }
        match self.base.metadata(path)? {
            Some(metadata) if !metadata.is_dir => {
                let (size, modified_ms) = (metadata.size, metadata.modified_ms);
                let file = self.add(File::Base { path: path.to_path_buf(), size, modified_ms });
                self.names.insert(path.to_path_buf(), Some(file));
                Ok(Some(file))
            }
            _ => Ok(None),
        }
    }

    fn add(&mut self, file: File) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }

    fn size(&self, file: usize) -> u64 {
        match self.files.get(file) {
            Some(File::Base { size, .. }) => *size,
            Some(File::Memory(bytes)) => to_u64(bytes.len()),
            None => 0,
        }
    }

    fn opened(&self, operation: Operation, file: FileId) -> Result<OpenFile, IoError> {
        Ok(self.track.check_open(operation, file)?.own)
    }

    /// The bytes of an open file in memory, copied there if they are not.
    fn bytes_mut(&mut self, operation: Operation, file: FileId) -> Result<&mut Vec<u8>, IoError> {
        let OpenFile { file, base } = self.opened(operation, file)?;
        if let (Some(File::Base { size, .. }), Some(base)) = (self.files.get(file), base) {
            let bytes = exact::read_exact(self.base, base, 0, to_usize(*size))?.to_vec();
            if let Some(file) = self.files.get_mut(file) {
                *file = File::Memory(bytes);
            }
        }
        match self.files.get_mut(file) {
            Some(File::Memory(bytes)) => Ok(bytes),
            _ => unreachable!("a file of the base was opened there, and is in memory now"),
        }
    }

    fn write(&mut self, file: FileId, at: u64, bytes: &[u8]) -> Result<u32, IoError> {
        self.track.check_writable(Operation::Write, file, Some(at))?;
        if !bytes.is_empty() {
            let (start, end) = (to_usize(at), to_usize(at).saturating_add(bytes.len()));
            let whole = self.bytes_mut(Operation::Write, file)?;
            if whole.len() < end {
                whole.resize(end, 0);
            }
            if let Some(into) = whole.get_mut(start..end) {
                into.copy_from_slice(bytes);
            }
        }
        Ok(count(bytes.len()))
    }

    fn cut(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        let index = self.opened(Operation::Truncate, file)?.file;
        match self.files.get_mut(index) {
            Some(File::Base { size, .. }) if len <= *size => *size = len,
            _ => self.bytes_mut(Operation::Truncate, file)?.resize(to_usize(len), 0),
        }
        Ok(())
    }

    /// What a change has come to; one that failed poisons its file (D5).
    fn changed<T>(
        &mut self,
        operation: Operation,
        file: FileId,
        result: Result<T, IoError>,
    ) -> Result<T, IoError> {
        if result.is_err() {
            self.track.poison(file, operation);
        }
        result
    }

    /// Does an operation in memory; an operation for the base is given back with the file's name there.
    fn do_here(&mut self, ticket: Ticket, op: &mut Op) -> Result<Result<u32, IoError>, FileId> {
        match op {
            Op::Sync { file, .. } => Ok(self.track.check_writable(Operation::Sync, *file, None).map(|()| 0)),
            Op::Write { file, at, bytes } => {
                if let Err(error) = self.track.begin_write(ticket, *file, *at, bytes.len()) {
                    return Ok(Err(error));
                }
                let written = self.write(*file, *at, bytes);
                Ok(self.changed(Operation::Write, *file, written))
            }
            Op::Read { file, at, into } => {
                let opened = match self.opened(Operation::Read, *file) {
                    Ok(opened) => opened,
                    Err(error) => return Ok(Err(error)),
                };
                match (self.files.get(opened.file), opened.base) {
                    (Some(File::Memory(bytes)), _) => {
                        let rest = bytes.get(to_usize(*at)..).unwrap_or_default();
                        let size = rest.len().min(into.len());
                        if let (Some(into), Some(rest)) = (into.get_mut(..size), rest.get(..size)) {
                            into.copy_from_slice(rest);
                        }
                        Ok(Ok(count(size)))
                    }
                    (_, Some(base)) => Err(base),
                    (_, None) => Ok(Ok(0)),
                }
            }
        }
    }

    /// Closes a file of the base. What was in flight on it is taken while it still has our name.
    fn close_base(&mut self, base: FileId) -> Result<(), IoError> {
        let closed = self.base.close(base);
        let mut found = Vec::new();
        let taken = self.base.reap(Wait::Poll, &mut found);
        for done in found {
            self.take(done);
        }
        self.of_base.remove(&base);
        closed.and(taken)
    }

    /// Takes a completion of the base, as ours.
    fn take(&mut self, Done { ticket, mut op, mut result }: Done) {
        let (Some(&ours), Op::Read { file, at, .. }) = (self.of_base.get(&op.file()), &mut op) else {
            return self.others.push(Done { ticket, op, result });
        };
        *file = ours;
        let size = self.track.own(ours).map_or(0, |opened| self.size(opened.file));
        let most = u32::try_from(size.saturating_sub(*at)).unwrap_or(u32::MAX);
        result = result.map(|count| count.min(most));
        self.track.finish(ticket, op, result);
    }
}

impl Drop for OverlayIo<'_> {
    fn drop(&mut self) {
        for base in self.of_base.keys().copied().collect::<Vec<_>>() {
            // Nothing was written to it.
            let _ = self.close_base(base);
        }
        self.base.put_back(std::mem::take(&mut self.others));
    }
}

impl Io for OverlayIo<'_> {
    fn open(&mut self, path: &Path, how: Open) -> Result<FileId, IoError> {
        let existing = matches!(how, Open::Read | Open::Write | Open::Append);
        let file = match self.find(path)? {
            Some(_) if matches!(how, Open::CreateNew | Open::AppendNew) => {
                return Err(refused(Operation::Open, path, ErrorKind::AlreadyExists));
            }
            Some(file) => file,
            None if existing => return Err(refused(Operation::Open, path, ErrorKind::NotFound)),
            None => {
                let file = self.add(File::Memory(Vec::new()));
                self.names.insert(path.to_path_buf(), Some(file));
                file
            }
        };
        let base = match self.files.get(file) {
            Some(File::Base { path, .. }) => Some(self.base.open(path, Open::Read)?),
            _ => None,
        };
        let ours = self.track.open(path, how != Open::Read, OpenFile { file, base });
        if let Some(base) = base {
            self.of_base.insert(base, ours);
        }
        Ok(ours)
    }

    fn close(&mut self, file: FileId) -> Result<(), IoError> {
        let base = self.opened(Operation::Close, file)?.base;
        let closed = match base {
            Some(base) => self.close_base(base),
            None => Ok(()),
        };
        self.track.close(file);
        closed
    }

    fn path(&self, file: FileId) -> PathBuf {
        self.track.path(file)
    }

    fn write_alignment(&self, _: FileId) -> u64 {
        1
    }

    fn len(&mut self, file: FileId) -> Result<u64, IoError> {
        let file = self.opened(Operation::Length, file)?.file;
        Ok(self.size(file))
    }

    fn advise(&mut self, _: FileId, _: Advice) {}

    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoError> {
        self.track.check_truncate(file, len)?;
        let cut = self.cut(file, len);
        self.changed(Operation::Truncate, file, cut)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<(), IoError> {
        let file = self.find(from)?.ok_or_else(|| refused(Operation::Rename, from, ErrorKind::NotFound))?;
        self.names.insert(from.to_path_buf(), None);
        self.names.insert(to.to_path_buf(), Some(file));
        self.track.renamed(from, to);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> Result<(), IoError> {
        if self.metadata(path)?.is_none() {
            return Err(refused(Operation::Remove, path, ErrorKind::NotFound));
        }
        self.dirs.remove(path);
        self.names.insert(path.to_path_buf(), None);
        Ok(())
    }

    fn list(&mut self, dir: &Path) -> Result<Vec<PathBuf>, IoError> {
        let listed = match self.base.list(dir) {
            Err(error) if error.is_not_found() && self.dirs.contains(dir) => Vec::new(),
            listed => listed?,
        };
        let mut paths: BTreeSet<PathBuf> = listed.into_iter().collect();
        for (path, file) in self.names.iter().filter(|(path, _)| path.parent() == Some(dir)) {
            match file {
                Some(_) => paths.insert(path.clone()),
                None => paths.remove(path),
            };
        }
        paths.extend(self.dirs.iter().filter(|made| made.parent() == Some(dir)).cloned());
        Ok(paths.into_iter().collect())
    }

    fn metadata(&mut self, path: &Path) -> Result<Option<Metadata>, IoError> {
        if self.dirs.contains(path) {
            return Ok(Some(Metadata { is_dir: true, is_file: false, size: 0, modified_ms: None }));
        }
        match self.find(path)? {
            Some(file) => {
                let modified_ms = match self.files.get(file) {
                    Some(File::Base { modified_ms, .. }) => *modified_ms,
                    _ => None,
                };
                Ok(Some(Metadata { is_dir: false, is_file: true, size: self.size(file), modified_ms }))
            }
            None if self.names.contains_key(path) => Ok(None),
            None => self.base.metadata(path),
        }
    }

    fn create_dir_all(&mut self, dir: &Path) -> Result<(), IoError> {
        for made in dir.ancestors() {
            if self.metadata(made)?.is_none() {
                self.dirs.insert(made.to_path_buf());
            }
        }
        Ok(())
    }

    fn sync_dir(&mut self, _: &Path) -> Result<(), IoError> {
        Ok(())
    }

    fn submit(&mut self, ticket: Ticket, mut op: Op) -> Result<(), Op> {
        match self.do_here(ticket, &mut op) {
            Ok(result) => self.track.finish(ticket, op, result),
            Err(base) => {
                let ours = op.file();
                if let Op::Read { file, .. } = &mut op {
                    *file = base;
                }
                if let Err(mut op) = self.base.submit(ticket, op) {
                    if let Op::Read { file, .. } = &mut op {
                        *file = ours;
                    }
                    return Err(op);
                }
            }
        }
        self.track.admit(usize::MAX);
        Ok(())
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        let wait = if self.track.has_ready() { Wait::Poll } else { wait };
        let mut found = Vec::new();
        let reaped = self.base.reap(wait, &mut found);
        for done in found {
            self.take(done);
        }
        self.track.deliver(done);
        reaped
    }

    fn put_back(&mut self, done: Vec<Done>) {
        self.track.put_back(done);
    }

    fn in_flight(&self) -> usize {
        self.track.in_flight()
    }

    fn waker(&self) -> IoWaker {
        self.base.waker()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::pwrite::{PwriteConfig, PwriteIo};
    use super::super::sim::SimDisk;
    use super::super::{SyncKind, durable};
    use super::*;

    #[test]
    fn changes_are_seen_above_and_not_made_below() {
        let disk = SimDisk::new(1);
        for name in ["/d/cut", "/d/written", "/d/renamed", "/d/removed"] {
            disk.write_file(Path::new(name), b"0123456789");
        }
        let before = disk.contents();
        let (ops, mut base) = (disk.op_count(), disk.io());
        let mut io = OverlayIo::new(&mut base);

        let cut = io.open(Path::new("/d/cut"), Open::Write).unwrap();
        io.truncate(cut, 4).unwrap();
        exact::sync(&mut io, cut, SyncKind::All).unwrap();
        assert_eq!(&exact::read_up_to(&mut io, cut, 1, 100).unwrap()[..], b"123");
        io.truncate(cut, 6).unwrap();
        assert_eq!(&exact::read_up_to(&mut io, cut, 0, 100).unwrap()[..], b"0123\0\0");

        let written = io.open(Path::new("/d/written"), Open::Append).unwrap();
        exact::write_all(&mut io, written, 8, Bytes::from_static(b"abcd")).unwrap();
        assert_eq!(&exact::read_up_to(&mut io, written, 0, 100).unwrap()[..], b"01234567abcd");
        assert_eq!(io.len(written).unwrap(), 12);

        io.rename(Path::new("/d/renamed"), Path::new("/d/new")).unwrap();
        io.remove(Path::new("/d/removed")).unwrap();
        assert!(io.open(Path::new("/d/removed"), Open::Read).unwrap_err().is_not_found());
        durable::create_dir_all(&mut io, Path::new("/e/f")).unwrap();
        durable::replace(&mut io, Path::new("/e/f/made"), Bytes::from_static(b"made")).unwrap();
        assert_eq!(durable::read_file(&mut io, Path::new("/e/f/made"), 9).unwrap().unwrap(), "made");
        assert_eq!(durable::read_file(&mut io, Path::new("/d/new"), 99).unwrap().unwrap(), "0123456789");

        let names = |io: &mut OverlayIo<'_>, dir| {
            let paths = io.list(Path::new(dir)).unwrap();
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&mut io, "/d"), ["/d/cut", "/d/new", "/d/written"]);
        assert_eq!(names(&mut io, "/e"), ["/e/f"]);
        assert_eq!(names(&mut io, "/e/f"), ["/e/f/made"]);
        io.close(cut).unwrap();
        io.close(written).unwrap();
        assert_eq!(io.in_flight(), 0);
        drop(io);
        assert_eq!(disk.contents(), before);
        assert_eq!(disk.op_count(), ops, "the disk was asked for no change");
    }

    #[test]
    fn a_file_that_grows_stays_as_it_was_first_seen() {
        let disk = SimDisk::new(1);
        let path = Path::new("/d/grows");
        disk.write_file(path, b"0123");
        let mut base = disk.io();
        let mut io = OverlayIo::new(&mut base);
        assert_eq!(io.metadata(path).unwrap().unwrap().size, 4);
        disk.write_file(path, b"0123456789");
        let file = io.open(path, Open::Read).unwrap();
        assert_eq!(&exact::read_up_to(&mut io, file, 0, 100).unwrap()[..], b"0123");
        assert!(matches!(exact::read_exact(&mut io, file, 2, 3), Err(IoError::Short { .. })));
    }

    #[test]
    fn a_file_that_became_shorter_is_not_taken_for_whole_when_it_is_written() {
        let disk = SimDisk::new(1);
        let path = Path::new("/d/shrinks");
        disk.write_file(path, b"0123456789");
        let mut base = disk.io();
        let mut io = OverlayIo::new(&mut base);
        let file = io.open(path, Open::Write).unwrap();
        disk.write_file(path, b"0123");
        let error = exact::write_all(&mut io, file, 10, Bytes::from_static(b"x")).unwrap_err();
        assert!(matches!(error, IoError::Short { done: 4, wanted: 10, .. }), "{error}");
    }

    #[test]
    fn what_completes_while_a_file_is_closed_is_delivered_as_it_was_asked_for() {
        let disk = SimDisk::new(1);
        disk.yield_always(true);
        for name in ["/d/one", "/d/two"] {
            disk.write_file(Path::new(name), b"0123456789");
        }
        let mut base = disk.io();
        // So that the names for open files differ.
        base.open(Path::new("/d/two"), Open::Read).unwrap();
        let mut io = OverlayIo::new(&mut base);
        let one = io.open(Path::new("/d/one"), Open::Write).unwrap();
        io.truncate(one, 7).unwrap();
        let two = io.open(Path::new("/d/two"), Open::Read).unwrap();
        for (number, file) in [(1, one), (2, two)] {
            let read = Op::Read { file, at: 5, into: bytes::BytesMut::zeroed(10) };
            assert!(io.submit(Ticket::new(number), read).is_ok());
        }
        io.close(one).unwrap();
        let mut done = Vec::new();
        while io.in_flight() > 0 {
            io.reap(Wait::Block, &mut done).unwrap();
        }
        done.sort_by_key(|done| done.ticket);
        let found: Vec<(FileId, u32)> =
            done.iter().map(|done| (done.op.file(), *done.result.as_ref().unwrap())).collect();
        assert_eq!(found, [(one, 2), (two, 5)]);
    }

    #[test]
    fn files_that_were_left_open_are_closed_below() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"0123").unwrap();
        let mut base = PwriteIo::new(PwriteConfig::default());
        let mut io = OverlayIo::new(&mut base);
        let file = io.open(&path, Open::Read).unwrap();
        assert_eq!(&exact::read_up_to(&mut io, file, 0, 100).unwrap()[..], b"0123");
        drop(io);
        assert_eq!(base.open_descriptors(), 0);
    }
}
