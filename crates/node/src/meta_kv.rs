//! The metadata store: keys, values, revisions and transactions, shaped like etcd.
//!
//! One node keeps it in one file of its own ([`RedbKv`]); tests keep it in memory ([`MemoryKv`]);
//! several nodes would keep it in etcd, for which the sizes are kept small already.
//!
//! The calls block on the disk (a transaction costs one durable commit), so asynchronous callers
//! go through [`crate::metadata::Metadata`], which moves them off the runtime's threads.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, RwLock};

use redb::{ReadableDatabase as _, ReadableTable as _};

/// Most comparisons, and most operations of one branch, that a transaction may have.
///
/// etcd: `--max-txn-ops`.
pub const MAX_TXN_OPS: usize = 128;

/// Most bytes of keys and values that a transaction may have.
///
/// etcd: `--max-request-bytes`.
pub const MAX_TXN_BYTES: usize = 1_500_000;

/// A count of transactions that changed the store: 0 before the first.
pub type Revision = u64;

/// One key, its value and the revision of the transaction that last wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Revision of the last write to this key.
    pub mod_revision: Revision,
}

/// What must hold for the first branch of a transaction to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key was last written at this revision; 0 means that it is not there.
    ModRevision {
        /// The key to look at.
        key: Vec<u8>,
        /// The revision expected.
        revision: Revision,
    },
    /// The key is there and has this value.
    Value {
        /// The key to look at.
        key: Vec<u8>,
        /// The value expected.
        value: Vec<u8>,
    },
}

impl Compare {
    /// The key is not there.
    pub fn absent(key: impl Into<Vec<u8>>) -> Self {
        Self::ModRevision { key: key.into(), revision: 0 }
    }

    /// The key has this value.
    pub fn value(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::Value { key: key.into(), value: value.into() }
    }
}

/// One change of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvOp {
    /// Writes a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its new value.
        value: Vec<u8>,
    },
    /// Removes a key; nothing happens if it is not there.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
}

impl KvOp {
    /// Writes a key.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::Put { key: key.into(), value: value.into() }
    }

    /// Removes a key.
    pub fn delete(key: impl Into<Vec<u8>>) -> Self {
        Self::Delete { key: key.into() }
    }
}

/// A transaction: all comparisons, then one of two branches, all of it or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// What must hold, all of it.
    pub compare: Vec<Compare>,
    /// What is done if it holds.
    pub then: Vec<KvOp>,
    /// What is done if it does not.
    pub otherwise: Vec<KvOp>,
}

/// What a transaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxnOutcome {
    /// Whether every comparison held.
    pub succeeded: bool,
    /// The store's revision afterwards: one higher if anything was written.
    pub revision: Revision,
}

/// Why the metadata store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaKvError {
    /// The file is in use: another process has this store open.
    #[error("the metadata store {path} is in use by another process")]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// The file is not a store of ours, or a newer one.
    #[error("the metadata store {path} cannot be opened")]
    Open {
        /// The store's file.
        path: PathBuf,
        /// What the store said.
        #[source]
        source: Box<redb::Error>,
    },
    /// Reading or writing failed.
    #[error("the metadata store {path} failed")]
    Storage {
        /// The store's file.
        path: PathBuf,
        /// What the store said.
        #[source]
        source: Box<redb::Error>,
    },
    /// A transaction is larger than every backend takes.
    #[error("a transaction of {ops} operations and {bytes} bytes is too large")]
    TooLarge {
        /// Its comparisons and operations.
        ops: usize,
        /// Bytes of keys and values.
        bytes: usize,
    },
}

impl MetaKvError {
    /// Whether it was the system that said no, for want of room or of permission: what is in the store is not to blame.
    #[must_use]
    pub fn is_of_system(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Storage { source, .. } => {
                let damaged = [std::io::ErrorKind::InvalidData, std::io::ErrorKind::UnexpectedEof];
                matches!(&**source, redb::Error::Io(error) if !damaged.contains(&error.kind()))
            }
            Self::InUse { .. } | Self::TooLarge { .. } => false,
        }
    }
}

/// A store of keys and values with revisions and transactions, shaped like etcd.
///
/// Calls block. What a transaction wrote is durable when the call returns.
pub trait MetaKv: Send + Sync + 'static {
    /// The value of one key, if it is there.
    ///
    /// # Errors
    /// [`MetaKvError::Storage`] if the store cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, MetaKvError>;

    /// All keys in `[start, end)`, ascending.
    ///
    /// # Errors
    /// [`MetaKvError::Storage`] if the store cannot be read.
    fn range(&self, start: &[u8], end: &[u8]) -> Result<Vec<KeyValue>, MetaKvError>;

    /// Compares, then writes one branch: durable, and all or nothing.
    ///
    /// # Errors
    /// [`MetaKvError::TooLarge`] and nothing was tried; [`MetaKvError::Storage`] and it is not
    /// known whether it was written.
    fn txn(&self, txn: Txn) -> Result<TxnOutcome, MetaKvError>;

    /// The number of transactions that changed the store.
    ///
    /// # Errors
    /// [`MetaKvError::Storage`] if the store cannot be read.
    fn revision(&self) -> Result<Revision, MetaKvError>;

    /// All keys that begin with `prefix`, ascending.
    ///
    /// # Errors
    /// [`MetaKvError::Storage`] if the store cannot be read.
    fn range_prefix(&self, prefix: &[u8]) -> Result<Vec<KeyValue>, MetaKvError> {
        let end = prefix_end(prefix);
        self.range(prefix, &end)
    }
}

/// The first key behind all those that begin with `prefix`; `prefix` must hold a byte below 0xff.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    panic!("a prefix without a byte below 0xff has no end");
}

fn check_size(txn: &Txn) -> Result<(), MetaKvError> {
    let op_bytes = |op: &KvOp| match op {
        KvOp::Put { key, value } => key.len() + value.len(),
        KvOp::Delete { key } => key.len(),
    };
    let compare_bytes = |compare: &Compare| match compare {
        Compare::ModRevision { key, .. } => key.len(),
        Compare::Value { key, value } => key.len() + value.len(),
    };
    let ops = txn.compare.len().max(txn.then.len()).max(txn.otherwise.len());
    let bytes = txn.compare.iter().map(compare_bytes).sum::<usize>()
        + txn.then.iter().chain(&txn.otherwise).map(op_bytes).sum::<usize>();
    if ops > MAX_TXN_OPS || bytes > MAX_TXN_BYTES {
        return Err(MetaKvError::TooLarge { ops, bytes });
    }
    Ok(())
}

fn holds(compare: &Compare, found: Option<(Revision, &[u8])>) -> bool {
    match compare {
        Compare::ModRevision { revision, .. } => found.map_or(0, |(revision, _)| revision) == *revision,
        Compare::Value { value, .. } => found.is_some_and(|(_, found)| found == value.as_slice()),
    }
}

fn compared_key(compare: &Compare) -> &[u8] {
    match compare {
        Compare::ModRevision { key, .. } | Compare::Value { key, .. } => key,
    }
}

/// The store in memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryKv {
    state: Mutex<MemoryState>,
}

#[derive(Debug, Default)]
struct MemoryState {
    revision: Revision,
    keys: BTreeMap<Vec<u8>, (Revision, Vec<u8>)>,
}

impl MemoryKv {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, MemoryState> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl MetaKv for MemoryKv {
    fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, MetaKvError> {
        let state = self.state();
        Ok(state.keys.get(key).map(|(revision, value)| KeyValue {
            key: key.to_vec(),
            value: value.clone(),
            mod_revision: *revision,
        }))
    }

    fn range(&self, start: &[u8], end: &[u8]) -> Result<Vec<KeyValue>, MetaKvError> {
        let state = self.state();
        if start >= end {
            return Ok(Vec::new());
        }
        let bounds = (Bound::Included(start.to_vec()), Bound::Excluded(end.to_vec()));
        let found = state.keys.range::<Vec<u8>, _>(bounds).map(|(key, (revision, value))| KeyValue {
            key: key.clone(),
            value: value.clone(),
            mod_revision: *revision,
        });
        Ok(found.collect())
    }

    fn txn(&self, txn: Txn) -> Result<TxnOutcome, MetaKvError> {
        check_size(&txn)?;
        let mut state = self.state();
        let succeeded = txn.compare.iter().all(|compare| {
            let found = state.keys.get(compared_key(compare));
            holds(compare, found.map(|(revision, value)| (*revision, value.as_slice())))
        });
        let ops = if succeeded { txn.then } else { txn.otherwise };
        if !ops.is_empty() {
            state.revision += 1;
            let revision = state.revision;
            for op in ops {
                match op {
                    KvOp::Put { key, value } => {
                        state.keys.insert(key, (revision, value));
                    }
                    KvOp::Delete { key } => {
                        state.keys.remove(&key);
                    }
                }
            }
        }
        Ok(TxnOutcome { succeeded, revision: state.revision })
    }

    fn revision(&self) -> Result<Revision, MetaKvError> {
        Ok(self.state().revision)
    }
}

/// Keys, each with the revision of its last write and its value.
const KEYS: redb::TableDefinition<'_, &[u8], (u64, &[u8])> = redb::TableDefinition::new("keys");
/// One row: the store's revision.
const REVISION: redb::TableDefinition<'_, (), u64> = redb::TableDefinition::new("revision");

/// Memory that the store may use for its pages: it holds kilobytes, not gigabytes.
const CACHE_BYTES: usize = 1 << 20;

/// The store of one node: one file, every transaction durable.
///
/// After a failed write (the disk was full, say) the library below takes nothing more until its
/// file is opened again, which the next call does: it then has what its last durable transaction
/// left.
#[derive(Debug)]
pub struct RedbKv {
    path: PathBuf,
    /// Emptied by a failure, filled by the next call.
    db: RwLock<Option<redb::Database>>,
    broken: AtomicBool,
}

/// The store, open while this lives.
type OpenDb<'a> = std::sync::RwLockReadGuard<'a, Option<redb::Database>>;

impl RedbKv {
    /// Opens the store at `path`, which must be there.
    ///
    /// # Errors
    /// [`MetaKvError::InUse`] if another process has it open; [`MetaKvError::Open`] if it is not
    /// there or is not a store.
    pub fn open(path: &Path) -> Result<Self, MetaKvError> {
        let db = builder().open(path).map_err(|error| open_error(path, error))?;
        Ok(Self::over(path, db))
    }

    /// Makes an empty store at `path`, where nothing may be; durable when it returns, except for
    /// the folder's entry, which the caller syncs.
    ///
    /// # Errors
    /// [`MetaKvError::Open`] if the file cannot be made.
    pub fn create(path: &Path) -> Result<Self, MetaKvError> {
        let db = builder().create(path).map_err(|error| open_error(path, error))?;
        let store = Self::over(path, db);
        {
            let open = store.db()?;
            let write = db_of(&open).begin_write().map_err(|error| store.failed(error))?;
            {
                write.open_table(KEYS).map_err(|error| store.failed(error))?;
                let mut revision = write.open_table(REVISION).map_err(|error| store.failed(error))?;
                revision.insert((), 0).map_err(|error| store.failed(error))?;
            }
            // DURABLE: the empty store.
            write.commit().map_err(|error| store.failed(error))?;
        }
        Ok(store)
    }

    fn over(path: &Path, db: redb::Database) -> Self {
        Self { path: path.to_path_buf(), db: RwLock::new(Some(db)), broken: AtomicBool::new(false) }
    }

    /// The database, opened again if it failed.
    fn db(&self) -> Result<OpenDb<'_>, MetaKvError> {
        if self.broken.load(Ordering::Acquire) {
            let mut db = self.db.write().expect("no holder of this lock panics");
            // Closed first: the file has one owner.
            *db = None;
            *db = Some(builder().open(&self.path).map_err(|error| open_error(&self.path, error))?);
            self.broken.store(false, Ordering::Release);
        }
        Ok(self.db.read().expect("no holder of this lock panics"))
    }

    fn failed(&self, error: impl Into<redb::Error>) -> MetaKvError {
        let error = error.into();
        if matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo) {
            self.broken.store(true, Ordering::Release);
        }
        MetaKvError::Storage { path: self.path.clone(), source: Box::new(error) }
    }
}

fn builder() -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    builder
}

fn db_of<'a>(open: &'a OpenDb<'_>) -> &'a redb::Database {
    open.as_ref().expect("a store that could not be opened again is broken, and was tried again")
}

fn open_error(path: &Path, error: redb::DatabaseError) -> MetaKvError {
    match error {
        redb::DatabaseError::DatabaseAlreadyOpen => MetaKvError::InUse { path: path.to_path_buf() },
        other => MetaKvError::Open { path: path.to_path_buf(), source: Box::new(other.into()) },
    }
}

impl MetaKv for RedbKv {
    fn get(&self, key: &[u8]) -> Result<Option<KeyValue>, MetaKvError> {
        let open = self.db()?;
        let read = db_of(&open).begin_read().map_err(|error| self.failed(error))?;
        let keys = read.open_table(KEYS).map_err(|error| self.failed(error))?;
        let found = keys.get(key).map_err(|error| self.failed(error))?;
        Ok(found.map(|row| {
            let (mod_revision, value) = row.value();
            KeyValue { key: key.to_vec(), value: value.to_vec(), mod_revision }
        }))
    }

    fn range(&self, start: &[u8], end: &[u8]) -> Result<Vec<KeyValue>, MetaKvError> {
        if start >= end {
            return Ok(Vec::new());
        }
        let open = self.db()?;
        let read = db_of(&open).begin_read().map_err(|error| self.failed(error))?;
        let keys = read.open_table(KEYS).map_err(|error| self.failed(error))?;
        let mut found = Vec::new();
        for row in keys.range::<&[u8]>(start..end).map_err(|error| self.failed(error))? {
            let (key, row) = row.map_err(|error| self.failed(error))?;
            let (mod_revision, value) = row.value();
            found.push(KeyValue { key: key.value().to_vec(), value: value.to_vec(), mod_revision });
        }
        Ok(found)
    }

    fn txn(&self, txn: Txn) -> Result<TxnOutcome, MetaKvError> {
        check_size(&txn)?;
        let open = self.db()?;
        let write = db_of(&open).begin_write().map_err(|error| self.failed(error))?;
        let mut outcome = TxnOutcome { succeeded: true, revision: 0 };
        let changed;
        {
            let mut keys = write.open_table(KEYS).map_err(|error| self.failed(error))?;
            for compare in &txn.compare {
                let found = keys.get(compared_key(compare)).map_err(|error| self.failed(error))?;
                outcome.succeeded &= holds(compare, found.as_ref().map(|row| row.value()));
            }
            let mut table = write.open_table(REVISION).map_err(|error| self.failed(error))?;
            let revision = table.get(()).map_err(|error| self.failed(error))?.map_or(0, |row| row.value());
            outcome.revision = revision;
            let ops = if outcome.succeeded { &txn.then } else { &txn.otherwise };
            changed = !ops.is_empty();
            if changed {
                outcome.revision = revision + 1;
                table.insert((), outcome.revision).map_err(|error| self.failed(error))?;
            }
            for op in ops {
                match op {
                    KvOp::Put { key, value } => {
                        keys.insert(key.as_slice(), (outcome.revision, value.as_slice()))
                            .map_err(|error| self.failed(error))?;
                    }
                    KvOp::Delete { key } => {
                        keys.remove(key.as_slice()).map_err(|error| self.failed(error))?;
                    }
                }
            }
        }
        if changed {
            // DURABLE: the transaction.
            write.commit().map_err(|error| self.failed(error))?;
        } else {
            write.abort().map_err(|error| self.failed(error))?;
        }
        Ok(outcome)
    }

    fn revision(&self) -> Result<Revision, MetaKvError> {
        let open = self.db()?;
        let read = db_of(&open).begin_read().map_err(|error| self.failed(error))?;
        let table = read.open_table(REVISION).map_err(|error| self.failed(error))?;
        Ok(table.get(()).map_err(|error| self.failed(error))?.map_or(0, |row| row.value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_both(check: impl Fn(&dyn MetaKv)) {
        check(&MemoryKv::new());
        let dir = tempfile::tempdir().unwrap();
        check(&RedbKv::create(&dir.path().join("store")).unwrap());
    }

    fn put(key: &str, value: &str) -> Txn {
        Txn { then: vec![KvOp::put(key, value)], ..Txn::default() }
    }

    #[test]
    fn a_transaction_takes_one_branch_whole() {
        check_both(|kv| {
            assert_eq!(kv.revision().unwrap(), 0);
            assert_eq!(kv.txn(put("a", "1")).unwrap(), TxnOutcome { succeeded: true, revision: 1 });
            let guarded = |expected: &str| Txn {
                compare: vec![Compare::value("a", expected), Compare::absent("b")],
                then: vec![KvOp::put("b", "then"), KvOp::delete("a")],
                otherwise: vec![KvOp::put("c", "otherwise")],
            };
            assert_eq!(kv.txn(guarded("2")).unwrap(), TxnOutcome { succeeded: false, revision: 2 });
            assert_eq!(kv.get(b"c").unwrap().unwrap().value, b"otherwise");
            assert_eq!(kv.get(b"b").unwrap(), None);
            assert_eq!(kv.txn(guarded("1")).unwrap(), TxnOutcome { succeeded: true, revision: 3 });
            assert_eq!(kv.get(b"a").unwrap(), None);
            let b = kv.get(b"b").unwrap().unwrap();
            assert_eq!((b.value.as_slice(), b.mod_revision), (&b"then"[..], 3));
            let empty = Txn { compare: vec![Compare::absent("zz")], ..Txn::default() };
            assert_eq!(kv.txn(empty).unwrap(), TxnOutcome { succeeded: true, revision: 3 });
        });
    }

    #[test]
    fn a_range_is_ascending_and_half_open() {
        check_both(|kv| {
            for key in ["p/b", "p/a", "p0", "o", "p/c"] {
                kv.txn(put(key, key)).unwrap();
            }
            let keys = |found: Vec<KeyValue>| {
                found.into_iter().map(|kv| String::from_utf8(kv.key).unwrap()).collect::<Vec<_>>()
            };
            assert_eq!(keys(kv.range_prefix(b"p/").unwrap()), ["p/a", "p/b", "p/c"]);
            assert_eq!(keys(kv.range(b"p/b", b"p/c").unwrap()), ["p/b"]);
            assert_eq!(keys(kv.range(b"z", b"a").unwrap()), Vec::<String>::new());
        });
    }

    #[test]
    fn a_transaction_beyond_the_limits_is_refused_untried() {
        check_both(|kv| {
            let many = (0..=MAX_TXN_OPS).map(|index| KvOp::put(index.to_string(), "x")).collect();
            let txn = Txn { then: many, ..Txn::default() };
            assert!(matches!(kv.txn(txn), Err(MetaKvError::TooLarge { ops: 129, .. })));
            let long = Txn { then: vec![KvOp::put("k", vec![0; MAX_TXN_BYTES])], ..Txn::default() };
            assert!(matches!(kv.txn(long), Err(MetaKvError::TooLarge { .. })));
            assert_eq!(kv.revision().unwrap(), 0);
        });
    }

    #[test]
    fn what_was_committed_is_there_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let kv = RedbKv::create(&path).unwrap();
        kv.txn(put("a", "1")).unwrap();
        assert!(matches!(RedbKv::open(&path), Err(MetaKvError::InUse { .. })));
        drop(kv);
        let kv = RedbKv::open(&path).unwrap();
        assert_eq!(kv.get(b"a").unwrap().unwrap().mod_revision, 1);
        assert_eq!(kv.revision().unwrap(), 1);
        drop(kv);
        assert!(matches!(RedbKv::open(&dir.path().join("none")), Err(MetaKvError::Open { .. })));
        std::fs::write(dir.path().join("text"), b"not a store").unwrap();
        assert!(matches!(RedbKv::open(&dir.path().join("text")), Err(MetaKvError::Open { .. })));
    }
}
