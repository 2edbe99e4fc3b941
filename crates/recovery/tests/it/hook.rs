//! A disk that a test reaches into while it is used.

use std::path::{Path, PathBuf};

use weir_segment::io::sim::SimIo;
use weir_segment::io::{
    Advice, Done, FileId, Io, IoError, IoWaker, Metadata, Op, Open, Operation, Ticket, Wait,
};

type Hook = Box<dyn FnMut(Operation, &Path) -> Result<(), IoError>>;

/// Calls `hook` before it opens, lists, looks at or renames anything.
pub(crate) struct HookIo {
    pub(crate) inner: SimIo,
    pub(crate) hook: Hook,
}

impl Io for HookIo {
    fn open(&mut self, path: &Path, how: Open) -> Result<FileId, IoError> {
        (self.hook)(Operation::Open, path)?;
        self.inner.open(path, how)
    }

    fn close(&mut self, file: FileId) -> Result<(), IoError> {
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
        (self.hook)(Operation::Rename, to)?;
        self.inner.rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> Result<(), IoError> {
        self.inner.remove(path)
    }

    fn list(&mut self, dir: &Path) -> Result<Vec<PathBuf>, IoError> {
        (self.hook)(Operation::List, dir)?;
        self.inner.list(dir)
    }

    fn metadata(&mut self, path: &Path) -> Result<Option<Metadata>, IoError> {
        (self.hook)(Operation::Metadata, path)?;
        self.inner.metadata(path)
    }

    fn create_dir_all(&mut self, dir: &Path) -> Result<(), IoError> {
        self.inner.create_dir_all(dir)
    }

    fn sync_dir(&mut self, dir: &Path) -> Result<(), IoError> {
        self.inner.sync_dir(dir)
    }

    fn submit(&mut self, ticket: Ticket, op: Op) -> Result<(), Op> {
        self.inner.submit(ticket, op)
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), IoError> {
        self.inner.reap(wait, done)
    }

    fn put_back(&mut self, done: Vec<Done>) {
        self.inner.put_back(done);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn waker(&self) -> IoWaker {
        self.inner.waker()
    }
}
