//! One segment: a `.log` file and its three indexes.
//!
//! The indexes of the active segment are in memory and are written when it is closed or rolled; those of older
//! segments are read where they lie. An index that is absent, empty, cut or wrong is built again from the log, when it
//! is first needed: it never changes an answer, only how long it takes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use weir_format::{BatchError, Offset, TimestampMs};

use crate::config::SegmentConfig;
use crate::error::SegmentError;
use crate::index_builder::{self, Growing, IndexBuilder};
use crate::io::{FileId, Io, IoError, Open, SyncKind, durable, exact};
use crate::layout::{FileKind, file_path};
use crate::offset_index::{self, IndexError, OffsetIndex};
use crate::time_index::{self, TimeIndex, TimestampOffset};
use crate::transaction_index::{self, AbortedTransaction, TransactionBlock, TransactionIndex};
use crate::units::to_u64;
use crate::walk::{BatchInfo, HeaderWalker, WalkError};

/// An index is built again if more than this many batches lie behind its last entry.
const MOST_UNINDEXED: usize = 1_000;

/// The largest index file that is read into memory, in bytes; a larger one is built again.
const MAX_INDEX_SIZE: usize = 64 << 20;

/// How much of an index file one step of a search reads, in bytes.
const SEARCH_BLOCK: usize = 4_096;

/// The largest transaction index that is believed beside a smaller log, in bytes. Every entry has a batch of at least 61
/// bytes behind it, most of them in the same segment; one that was open at a barrier may have it before.
const MAX_TRANSACTION_INDEX_SIZE: u64 = 64 << 20;

/// How many entries of a transaction index are read at once.
const TRANSACTION_BLOCK: usize = 1_024;

/// One segment of a log.
///
/// Memory: about 40 bytes until it is first read or written, so that a node may have hundreds of thousands.
#[derive(Debug)]
pub struct LogSegment {
    dir: Arc<Path>,
    base_offset: Offset,
    /// Size of its `.log` file when it was found.
    found_size: u64,
    used: Option<Box<UsedSegment>>,
}

impl LogSegment {
    /// A segment whose `.log` file has been found.
    pub(crate) fn found(dir: &Arc<Path>, base_offset: Offset, size: u64) -> LogSegment {
        LogSegment { dir: Arc::clone(dir), base_offset, found_size: size, used: None }
    }

    /// Makes the `.log` file of an empty segment, its name durable.
    pub(crate) fn create(
        io: &mut dyn Io,
        dir: &Arc<Path>,
        base_offset: Offset,
        now: Option<TimestampMs>,
    ) -> Result<LogSegment, IoError> {
        let used = Some(Box::new(UsedSegment::create(io, dir, base_offset, now)?));
        Ok(LogSegment { dir: Arc::clone(dir), base_offset, found_size: 0, used })
    }

    /// The offset in the names of its files: no offset in it is lower.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Size of its batches, in bytes.
    pub fn size(&self) -> u64 {
        self.used.as_ref().map_or(self.found_size, |used| used.size)
    }

    /// Path of its `.log` file.
    pub fn log_path(&self) -> PathBuf {
        file_path(&self.dir, self.base_offset, FileKind::Log)
    }

    /// The indexes, where they are in memory.
    pub fn indexes(&self) -> Option<(&OffsetIndex, &TimeIndex)> {
        match &self.used.as_ref()?.indexes {
            Indexes::Memory { offsets, times } => Some((offsets, times)),
            _ => None,
        }
    }

    /// The transaction index, where it is in memory.
    pub fn transaction_index(&self) -> Option<&TransactionIndex> {
        self.used.as_ref()?.transactions.as_ref()
    }

    /// What it needs to be read and written, if it was before.
    pub(crate) fn used_mut(&mut self) -> Option<&mut UsedSegment> {
        self.used.as_deref_mut()
    }

    /// What it needs to be read and written.
    pub(crate) fn begin_use(&mut self) -> &mut UsedSegment {
        let (dir, base_offset, size) = (&self.dir, self.base_offset, self.found_size);
        self.used.get_or_insert_with(|| Box::new(UsedSegment::found(dir, base_offset, size)))
    }

    /// Removes the segment, durably; its `.log` is renamed first, as Kafka does.
    pub(crate) fn remove(mut self, io: &mut dyn Io) -> Result<(), IoError> {
        self.begin_use().remove(io)
    }
}

/// A segment that is read or written: what is known of it, and its open files.
#[derive(Debug)]
pub(crate) struct UsedSegment {
    dir: Arc<Path>,
    base_offset: Offset,
    // INVARIANT: the bytes below `size` are whole batches, as far as they were looked at.
    size: u64,
    log: Option<FileId>,
    writable: bool,
    indexes: Indexes,
    index_files: [Option<FileId>; 3],
    transactions: Option<TransactionIndex>,
    /// What a search must know of each [`TRANSACTION_BLOCK`] of the file. `None`: not looked at yet.
    // INVARIANT: of the file as it lies there, which is not replaced without this being dropped.
    transaction_blocks: Option<Box<[TransactionBlock]>>,
    /// The file does not hold what is in memory, and has to be written whole.
    // INVARIANT: then the index is in memory.
    transactions_unwritten: bool,
    /// `None`: not looked for yet.
    largest_timestamp: Option<Option<TimestampOffset>>,
    /// `None`: not looked for yet. The largest timestamp of the first batch, if it is one.
    first_timestamp: Option<Option<TimestampMs>>,
    bytes_since_index_entry: u64,
    created: Option<TimestampMs>,
}

#[derive(Debug)]
enum Indexes {
    /// Not looked at yet.
    Unknown,
    /// In memory.
    Memory { offsets: OffsetIndex, times: TimeIndex },
    /// On the disk, found to be good.
    Files { offsets: FileIndex, times: FileIndex },
}

/// What is known of an index file: enough to guess where an entry is. Offsets are relative here.
#[derive(Debug, Clone, Copy, Default)]
struct FileIndex {
    count: u64,
    /// What the first entry is for; 0 without one.
    first: i64,
    /// What the last entry is for; 0 without one.
    last: i64,
}

/// What a walk over a whole segment finds.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) valid_size: u64,
    pub(crate) next_offset: Offset,
    pub(crate) stopped_by: Option<BatchError>,
}

impl UsedSegment {
    fn found(dir: &Arc<Path>, base_offset: Offset, size: u64) -> UsedSegment {
        UsedSegment {
            dir: Arc::clone(dir),
            base_offset,
            size,
            log: None,
            writable: false,
            indexes: Indexes::Unknown,
            index_files: [None, None, None],
            transactions: None,
            transaction_blocks: None,
            transactions_unwritten: false,
            largest_timestamp: None,
            first_timestamp: None,
            bytes_since_index_entry: 0,
            created: None,
        }
    }

    fn create(
        io: &mut dyn Io,
        dir: &Arc<Path>,
        base_offset: Offset,
        now: Option<TimestampMs>,
    ) -> Result<UsedSegment, IoError> {
        let mut segment = UsedSegment::found(dir, base_offset, 0);
        segment.log = Some(io.open(&segment.log_path(), Open::AppendNew)?);
        segment.writable = true;
        segment.indexes =
            Indexes::Memory { offsets: OffsetIndex::new(base_offset), times: TimeIndex::new(base_offset) };
        segment.transactions = Some(TransactionIndex::new());
        segment.largest_timestamp = Some(None);
        segment.first_timestamp = Some(None);
        segment.created = now;
        // DURABLE: the name of the new segment.
        io.sync_dir(dir)?;
        Ok(segment)
    }

    /// Size of its batches, in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Path of its `.log` file.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.path(FileKind::Log)
    }

    /// The transaction index, where it is in memory.
    pub(crate) fn transaction_index(&self) -> Option<&TransactionIndex> {
        self.transactions.as_ref()
    }

    /// Whether it can be appended to.
    pub(crate) fn is_active(&self) -> bool {
        self.writable && matches!(self.indexes, Indexes::Memory { .. })
    }

    fn path(&self, kind: FileKind) -> PathBuf {
        file_path(&self.dir, self.base_offset, kind)
    }

    fn invalid(&self, position: u64, source: BatchError) -> SegmentError {
        SegmentError::Invalid { path: self.log_path(), position, source }
    }

    fn walk_error(&self, error: WalkError) -> SegmentError {
        match error {
            WalkError::Io(error) => SegmentError::Io(error),
            WalkError::Invalid { position, source } => self.invalid(position, source),
        }
    }

    /// The `.log` file, opened if it is not.
    pub(crate) fn log(&mut self, io: &mut dyn Io) -> Result<FileId, IoError> {
        match self.log {
            Some(file) => Ok(file),
            None => {
                let how = if self.writable { Open::Append } else { Open::Read };
                let file = io.open(&self.log_path(), how)?;
                self.log = Some(file);
                Ok(file)
            }
        }
    }

    /// The `.log` file, to write.
    pub(crate) fn writable_log(&mut self, io: &mut dyn Io) -> Result<FileId, IoError> {
        if !self.writable {
            if let Some(file) = self.log.take() {
                io.close(file)?;
            }
            self.writable = true;
        }
        self.log(io)
    }

    // Appending.

    /// Whether the batch has to go into a new segment. Kafka: `LogSegment.shouldRoll`.
    pub(crate) fn needs_roll(
        &self,
        config: &SegmentConfig,
        last_offset: Offset,
        batch_size: u64,
        max_timestamp: TimestampMs,
        now: TimestampMs,
    ) -> bool {
        let fits_index = offset_index::relative(self.base_offset, last_offset).is_some();
        if self.size == 0 {
            return !fits_index;
        }
        let waited = match self.first_timestamp {
            Some(Some(first)) => max_timestamp.get().saturating_sub(first.get()),
            _ => self.created.map_or(0, |created| now.get().saturating_sub(created.get())),
        };
        let grown = self.size.saturating_add(batch_size);
        let full = match &self.indexes {
            Indexes::Memory { offsets, times } => {
                offsets.is_full(config.segment_index_bytes) || times.is_full(config.segment_index_bytes)
            }
            _ => false,
        };
        // A position in an index is at most i32::MAX.
        let most = u64::from(config.segment_bytes).min(u64::from(i32::MAX.unsigned_abs()));
        grown > most || waited > config.segment_ms || full || !fits_index
    }

    /// Takes note of a batch that has been written behind the others. Kafka: `LogSegment.append`.
    pub(crate) fn appended(&mut self, config: &SegmentConfig, batch: &BatchInfo, now: TimestampMs) {
        assert_eq!(batch.position, self.size, "a batch is appended behind the others");
        if self.size == 0 {
            let first = Some(batch.max_timestamp).filter(|first| first.get() >= 0);
            self.first_timestamp = Some(first);
        }
        self.created.get_or_insert(now);
        self.index(config, batch);
        self.size = batch.end();
    }

    /// Takes note of where its batches end after a write that failed.
    pub(crate) fn end_at(&mut self, size: u64) {
        self.size = size;
    }

    fn index(&mut self, config: &SegmentConfig, batch: &BatchInfo) {
        let Indexes::Memory { offsets, times } = &mut self.indexes else {
            unreachable!("the indexes of a segment that is written are in memory")
        };
        let mut largest = self.largest_timestamp.flatten();
        index_builder::note((offsets, times), &mut largest, &mut self.bytes_since_index_entry, config, batch);
        self.largest_timestamp = Some(largest);
    }

    /// Adds an aborted transaction to the index of this segment, in memory: the file follows when the segment is left or
    /// synced whole. A start after a crash finds it in the batches of the segment, which it walks.
    pub(crate) fn append_aborted(
        &mut self,
        io: &mut dyn Io,
        aborted: AbortedTransaction,
    ) -> Result<(), SegmentError> {
        let mut index = match self.transactions.take() {
            Some(index) => index,
            None => self.read_transactions(io)?,
        };
        self.transactions_unwritten |= index.append(aborted);
        self.transactions = Some(index);
        Ok(())
    }

    /// Puts another transaction index in place of this one: in memory, until [`Self::write_transactions`] has worked.
    pub(crate) fn adopt_transactions(&mut self, index: TransactionIndex) {
        self.transactions = Some(index);
        self.transactions_unwritten = true;
    }

    /// Writes the transaction index whole and durably, if the file does not hold it.
    pub(crate) fn write_transactions(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        let (true, Some(index)) = (self.transactions_unwritten, &self.transactions) else { return Ok(()) };
        let (is_empty, bytes) = (index.entries().is_empty(), index.encode());
        let path = self.path(FileKind::TransactionIndex);
        self.transaction_blocks = None;
        let [_, _, file] = &mut self.index_files;
        if let Some(file) = file.take() {
            io.close(file)?;
        }
        if is_empty {
            durable::remove(io, &path)?;
        } else {
            durable::replace(io, &path, bytes)?;
        }
        self.transactions_unwritten = false;
        if !self.writable {
            self.transactions = None;
        }
        Ok(())
    }

    // Opening and closing.

    /// Makes the segment one that can be appended to: indexes in memory, its batches behind the last entry looked at.
    ///
    /// `walked`: what a walk over all of its batches has built; no batch is looked at again, and no index file.
    pub(crate) fn activate(
        &mut self,
        io: &mut dyn Io,
        config: &SegmentConfig,
        walked: Option<IndexBuilder>,
    ) -> Result<Scan, SegmentError> {
        let file = self.writable_log(io)?;
        self.close_index_files(io)?;
        self.size = io.len(file)?;
        self.bytes_since_index_entry = 0;
        self.first_timestamp = None;
        let scan = match walked {
            Some(walked) if walked.base_offset() == self.base_offset && walked.size() == self.size => {
                self.adopt_indexes(walked)
            }
            // Whoever walked it had no trust in the files.
            Some(_) => self.build_indexes(io, config)?,
            None => match self.load_indexes(io)? {
                Some(scan) => scan,
                None => self.build_indexes(io, config)?,
            },
        };
        self.size = scan.valid_size;
        if self.first_timestamp.is_none() {
            self.load_first_timestamp(io)?;
        }
        if self.transactions.is_none() {
            match self.read_transactions(io) {
                Ok(index) => self.transactions = Some(index),
                Err(SegmentError::TransactionIndex { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(scan)
    }

    /// Takes the indexes that a walk has built.
    fn adopt_indexes(&mut self, walked: IndexBuilder) -> Scan {
        let scan = Scan { valid_size: walked.size(), next_offset: walked.next_offset(), stopped_by: None };
        let (Growing { offsets, times, largest, bytes_since_entry }, first_timestamp) = walked.into_parts();
        self.indexes = Indexes::Memory { offsets, times };
        self.largest_timestamp = Some(largest);
        self.bytes_since_index_entry = bytes_since_entry;
        self.first_timestamp = Some(first_timestamp);
        scan
    }

    /// The indexes of the files, if they are good, and what is behind their last entries.
    fn load_indexes(&mut self, io: &mut dyn Io) -> Result<Option<Scan>, SegmentError> {
        let base = self.base_offset;
        let mut read = |kind| read_if_small(io, &self.path(kind));
        let (offsets, times) = (read(FileKind::OffsetIndex)?, read(FileKind::TimeIndex)?);
        let (Some(offsets), Some(times)) = (offsets, times) else { return Ok(None) };
        let (Ok(offsets), Ok(times)) = (OffsetIndex::decode(base, &offsets), TimeIndex::decode(base, &times))
        else {
            return Ok(None);
        };
        let last_offsets = offsets.entries().next_back().map(|e| (e.offset, u64::from(e.position)));
        let last_time = times.last();
        self.indexes = Indexes::Memory { offsets, times };
        self.check_last_entries(io, last_offsets, last_time)
    }

    /// Whether the last entries fit the log, and what a walk behind them finds. `None`: build the indexes again.
    fn check_last_entries(
        &mut self,
        io: &mut dyn Io,
        last_offsets: Option<(Offset, u64)>,
        last_time: Option<TimestampOffset>,
    ) -> Result<Option<Scan>, SegmentError> {
        let (last_offset, start) = last_offsets.unwrap_or((self.base_offset, 0));
        if start > 0 && start >= self.size {
            return Ok(None);
        }
        let file = self.log(io)?;
        let mut largest = last_time;
        let mut scan = Scan { valid_size: start, next_offset: self.base_offset, stopped_by: None };
        let mut walker = HeaderWalker::new(file, start, self.size);
        for number in 0.. {
            match walker.next(io) {
                Ok(None) => break,
                Ok(Some(batch)) => {
                    if number >= MOST_UNINDEXED
                        || (number == 0 && start > 0 && batch.base_offset > last_offset)
                    {
                        return Ok(None);
                    }
                    if batch.max_timestamp.get() >= 0
                        && largest.is_none_or(|largest| largest.timestamp < batch.max_timestamp)
                    {
                        largest = Some(TimestampOffset {
                            timestamp: batch.max_timestamp,
                            offset: batch.last_offset,
                        });
                    }
                    scan.valid_size = walker.position();
                    scan.next_offset = batch.next_offset;
                }
                Err(WalkError::Invalid { .. }) if number == 0 && start > 0 => return Ok(None),
                Err(WalkError::Invalid { source, .. }) => {
                    scan.stopped_by = Some(source);
                    break;
                }
                Err(error) => return Err(self.walk_error(error)),
            }
        }
        if let Some(last) = last_time {
            let start = self.lookup(io, last.offset)?.unwrap_or(0);
            let holds = match self.locate_from(io, last.offset, start) {
                Ok(Some(batch)) => batch.base_offset <= last.offset && batch.max_timestamp == last.timestamp,
                Ok(None) | Err(SegmentError::Invalid { .. }) => false,
                Err(error) => return Err(error),
            };
            if !holds {
                return Ok(None);
            }
        } else if self.size > 0 {
            return Ok(None);
        }
        self.largest_timestamp = Some(largest);
        Ok(Some(scan))
    }

    /// Builds both indexes from the headers of the log. Kafka: `LogSegment.recover`, whose CRC check is recovery's.
    pub(crate) fn build_indexes(
        &mut self,
        io: &mut dyn Io,
        config: &SegmentConfig,
    ) -> Result<Scan, SegmentError> {
        let file = self.log(io)?;
        let base = self.base_offset;
        self.indexes = Indexes::Memory { offsets: OffsetIndex::new(base), times: TimeIndex::new(base) };
        self.largest_timestamp = Some(None);
        self.bytes_since_index_entry = 0;
        let mut scan = Scan { valid_size: 0, next_offset: base, stopped_by: None };
        let mut walker = HeaderWalker::new(file, 0, self.size);
        loop {
            match walker.next(io) {
                Ok(None) => break,
                Ok(Some(batch)) => {
                    self.index(config, &batch);
                    scan.valid_size = batch.end();
                    scan.next_offset = batch.next_offset;
                }
                Err(WalkError::Invalid { source, .. }) => {
                    scan.stopped_by = Some(source);
                    break;
                }
                Err(error) => return Err(self.walk_error(error)),
            }
        }
        self.end_time_index();
        self.bytes_since_index_entry = 0;
        Ok(scan)
    }

    /// The last entry of the time index is the largest timestamp. Kafka: `onBecomeInactiveSegment`.
    fn end_time_index(&mut self) {
        if let (Indexes::Memory { times, .. }, Some(Some(largest))) =
            (&mut self.indexes, self.largest_timestamp)
        {
            times.append(largest);
        }
    }

    fn load_first_timestamp(&mut self, io: &mut dyn Io) -> Result<(), SegmentError> {
        let file = self.log(io)?;
        let first = match HeaderWalker::new(file, 0, self.size).next(io) {
            Ok(first) => first,
            Err(WalkError::Invalid { .. }) => None,
            Err(error) => return Err(self.walk_error(error)),
        };
        self.first_timestamp = Some(first.map(|batch| batch.max_timestamp).filter(|t| t.get() >= 0));
        Ok(())
    }

    /// Cuts the log to its exact size and makes it and its indexes durable, so that it is a plain Kafka segment.
    pub(crate) fn finish(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        let file = self.writable_log(io)?;
        // Whatever the length says: there may be allocated space behind it (D13), which the sync is to see cut.
        io.truncate(file, self.size)?;
        // DURABLE: every batch of this segment.
        exact::sync(io, file, SyncKind::All)?;
        self.end_time_index();
        if let Indexes::Memory { offsets, times } = &self.indexes {
            write_index(io, &self.path(FileKind::OffsetIndex), offsets.encode())?;
            write_index(io, &self.path(FileKind::TimeIndex), times.encode())?;
        }
        self.write_transactions(io)
    }

    /// Ends the time in which the segment is written: what is in memory of it is let go.
    pub(crate) fn deactivate(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        if let Indexes::Memory { offsets, times } = &self.indexes {
            self.indexes = files_of(self.base_offset, offsets, times);
        }
        self.transactions = None;
        self.writable = false;
        if let Some(file) = self.log.take() {
            io.close(file)?;
        }
        Ok(())
    }

    /// Closes the `.log` file of a segment that is not appended to for a while. It is opened again when it is needed.
    pub(crate) fn rest(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        match self.log.take() {
            Some(file) => io.close(file),
            None => Ok(()),
        }
    }

    fn close_index_files(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        for file in &mut self.index_files {
            if let Some(file) = file.take() {
                io.close(file)?;
            }
        }
        Ok(())
    }

    /// Closes every file of the segment.
    pub(crate) fn close(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        let indexes = self.close_index_files(io);
        self.rest(io).and(indexes)
    }

    // Cutting and removing.

    /// Cuts the active segment at a position where a batch starts, which is the first with offsets that are cut.
    pub(crate) fn cut(
        &mut self,
        io: &mut dyn Io,
        config: &SegmentConfig,
        position: u64,
    ) -> Result<Scan, SegmentError> {
        // The index files go first: after a crash they must not speak of batches that are no longer there.
        self.remove_index_files(io)?;
        let file = self.writable_log(io)?;
        io.truncate(file, position)?;
        // DURABLE: what was cut off stays gone.
        exact::sync(io, file, SyncKind::All)?;
        self.size = position;
        let scan = match self.cut_indexes(io, position)? {
            Some(scan) => scan,
            None => self.build_indexes(io, config)?,
        };
        self.bytes_since_index_entry = 0;
        self.size = scan.valid_size;
        if self.size == 0 {
            self.created = None;
        }
        self.load_first_timestamp(io)?;
        let mut index = match self.transactions.take() {
            Some(index) => index,
            None => match self.read_transactions(io) {
                Ok(index) => index,
                Err(SegmentError::TransactionIndex { .. }) => return Ok(scan),
                Err(error) => return Err(error),
            },
        };
        let before = index.entries().len();
        index.truncate_to(scan.next_offset);
        if index.entries().len() < before {
            self.adopt_transactions(index);
            self.write_transactions(io)?;
        } else {
            self.transactions = Some(index);
        }
        Ok(scan)
    }

    /// Cuts indexes in memory along with the log. `None`: build them again.
    fn cut_indexes(&mut self, io: &mut dyn Io, position: u64) -> Result<Option<Scan>, SegmentError> {
        let file = self.log(io)?;
        let Indexes::Memory { offsets, .. } = &mut self.indexes else { return Ok(None) };
        offsets.truncate_to_position(position);
        let last_offsets = offsets.entries().next_back().map(|e| (e.offset, u64::from(e.position)));
        let start = last_offsets.map_or(0, |(_, position)| position);
        let mut walker = HeaderWalker::new(file, start, position);
        let mut end = self.base_offset;
        loop {
            match walker.next(io) {
                Ok(Some(batch)) => end = batch.next_offset,
                Ok(None) => break,
                Err(WalkError::Io(error)) => return Err(error.into()),
                Err(WalkError::Invalid { .. }) => return Ok(None),
            }
        }
        let Indexes::Memory { times, .. } = &mut self.indexes else { return Ok(None) };
        times.truncate_to(end);
        let last_time = times.last();
        self.check_last_entries(io, last_offsets, last_time)
    }

    fn remove_index_files(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        self.close_index_files(io)?;
        let mut removed = false;
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
            match io.remove(&self.path(kind)) {
                Ok(()) => removed = true,
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        if removed {
            io.sync_dir(&self.dir)?;
        }
        Ok(())
    }

    fn remove(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        self.close(io)?;
        let path = self.log_path();
        let deleted = durable::with_suffix(&path, crate::layout::DELETED_SUFFIX);
        io.rename(&path, &deleted)?;
        // DURABLE: the segment is gone from the log.
        io.sync_dir(&self.dir)?;
        let rest = [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TransactionIndex];
        for path in rest.into_iter().map(|kind| self.path(kind)).chain([deleted]) {
            match io.remove(&path) {
                Ok(()) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    // Looking things up.

    /// The first batch that holds `offset` or a higher one, if this segment has one.
    ///
    /// `hint`: a position where a batch starts that is not behind it.
    pub(crate) fn locate(
        &mut self,
        io: &mut dyn Io,
        config: &SegmentConfig,
        offset: Offset,
        hint: Option<u64>,
    ) -> Result<Option<BatchInfo>, SegmentError> {
        if self.size == 0 {
            return Ok(None);
        }
        if let Some(hint) = hint.filter(|hint| *hint < self.size) {
            return self.locate_from(io, offset, hint);
        }
        self.check_indexes(io, config)?;
        if let Some(start) = self.lookup(io, offset)? {
            match self.locate_from(io, offset, start) {
                // Where the index led to a batch behind the one that is asked for, or to none, it is wrong.
                Ok(Some(batch)) if start == 0 || batch.position > start || batch.base_offset <= offset => {
                    return Ok(Some(batch));
                }
                Ok(None) => return Ok(None),
                Ok(Some(_)) => {}
                Err(SegmentError::Invalid { position, source, .. }) if start == 0 => {
                    return Err(self.invalid(position, source));
                }
                Err(SegmentError::Invalid { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.rebuild_indexes(io, config)?;
        let start = self.lookup(io, offset)?.unwrap_or(0);
        self.locate_from(io, offset, start)
    }

    /// Where this segment would end if every batch that holds `offset` or a higher one were cut off.
    pub(crate) fn end_below(
        &mut self,
        io: &mut dyn Io,
        config: &SegmentConfig,
        offset: Offset,
    ) -> Result<Offset, SegmentError> {
        let Some(below) = offset.checked_add(-1).filter(|below| *below >= self.base_offset) else {
            return Ok(self.base_offset);
        };
        if self.size == 0 {
            return Ok(self.base_offset);
        }
        self.check_indexes(io, config)?;
        let indexed = self.lookup(io, below)?.unwrap_or(0);
        let file = self.log(io)?;
        // An index that leads to no batch below the offset is wrong; the walk then begins at the first batch.
        for start in [indexed, 0] {
            let mut end = (start == 0).then_some(self.base_offset);
            let mut walker = HeaderWalker::new(file, start, self.size);
            loop {
                match walker.next(io) {
                    Ok(Some(batch)) if batch.last_offset < offset => end = Some(batch.next_offset),
                    Ok(_) => break,
                    Err(WalkError::Invalid { .. }) if start > 0 => {
                        end = None;
                        break;
                    }
                    Err(error) => return Err(self.walk_error(error)),
                }
            }
            if let Some(end) = end {
                return Ok(end);
            }
        }
        unreachable!("a walk from the first batch finds an end")
    }

    fn locate_from(
        &mut self,
        io: &mut dyn Io,
        offset: Offset,
        start: u64,
    ) -> Result<Option<BatchInfo>, SegmentError> {
        let file = self.log(io)?;
        let mut walker = HeaderWalker::new(file, start, self.size);
        loop {
            match walker.next(io) {
                Ok(Some(batch)) if batch.last_offset >= offset => return Ok(Some(batch)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.walk_error(error)),
            }
        }
    }

    /// Where to start looking for `offset`; `None` if an index file is not what it was found to be.
    fn lookup(&mut self, io: &mut dyn Io, offset: Offset) -> Result<Option<u64>, SegmentError> {
        match &self.indexes {
            Indexes::Memory { offsets, .. } => Ok(Some(offsets.lookup(offset))),
            Indexes::Unknown => Ok(Some(0)),
            Indexes::Files { offsets, .. } => {
                let (index, base) = (*offsets, self.base_offset);
                let wanted = offset.get().saturating_sub(base.get());
                if wanted < index.first || index.count == 0 {
                    return Ok(Some(0));
                }
                let file = self.index_file(io, FileKind::OffsetIndex)?;
                let found = search(io, file, index, offset_index::ENTRY_SIZE, wanted, |raw| {
                    offset_index::decode_entry(raw).map(|(relative, _)| i64::from(relative))
                })?;
                Ok(match found {
                    Search::Before => Some(0),
                    Search::At(raw) => offset_index::decode_entry(&raw)
                        .map(|(_, position)| u64::from(position))
                        .filter(|position| *position < self.size),
                    Search::Broken => None,
                })
            }
        }
    }

    fn lookup_time(
        &mut self,
        io: &mut dyn Io,
        timestamp: TimestampMs,
    ) -> Result<Option<TimestampOffset>, SegmentError> {
        match &self.indexes {
            Indexes::Memory { times, .. } => Ok(times.lookup(timestamp)),
            Indexes::Unknown => Ok(None),
            Indexes::Files { times, .. } => {
                let (index, base) = (*times, self.base_offset);
                if timestamp.get() < index.first || index.count == 0 {
                    return Ok(None);
                }
                let file = self.index_file(io, FileKind::TimeIndex)?;
                let found = search(io, file, index, time_index::ENTRY_SIZE, timestamp.get(), |raw| {
                    time_index::decode_entry(raw).map(|(timestamp, _)| timestamp)
                })?;
                let Search::At(raw) = found else { return Ok(None) };
                Ok(time_index::decode_entry(&raw).and_then(|(timestamp, relative)| {
                    let offset = offset_index::absolute(base, relative)?;
                    Some(TimestampOffset { timestamp: TimestampMs::new(timestamp), offset })
                }))
            }
        }
    }

    fn index_file(&mut self, io: &mut dyn Io, kind: FileKind) -> Result<FileId, IoError> {
        let path = self.path(kind);
        let [offsets, times, transactions] = &mut self.index_files;
        let place = match kind {
            FileKind::TimeIndex => times,
            FileKind::TransactionIndex => transactions,
            _ => offsets,
        };
        match place {
            Some(file) => Ok(*file),
            None => {
                let file = io.open(&path, Open::Read)?;
                *place = Some(file);
                Ok(file)
            }
        }
    }

    /// Looks at the indexes of an older segment before they are used for the first time.
    fn check_indexes(&mut self, io: &mut dyn Io, config: &SegmentConfig) -> Result<(), SegmentError> {
        if !matches!(self.indexes, Indexes::Unknown) {
            return Ok(());
        }
        match self.index_file_counts(io)? {
            Some((offsets, times)) => {
                let last_offsets = self.last_offset_entry(io, offsets)?;
                let last_time = self.last_time_entry(io, times)?;
                let first_offset = self.first_offset_entry(io, offsets)?;
                let first_time = self.first_time_entry(io, times)?;
                let base = self.base_offset.get();
                let relative = last_offsets.flatten().map(|(last, _)| last.get().saturating_sub(base));
                let offsets = FileIndex {
                    count: offsets,
                    first: first_offset.unwrap_or(0),
                    last: relative.unwrap_or(0),
                };
                let last = last_time.flatten().map(|last| last.timestamp.get());
                let times =
                    FileIndex { count: times, first: first_time.unwrap_or(0), last: last.unwrap_or(0) };
                self.indexes = Indexes::Files { offsets, times };
                let good = match (last_offsets, last_time) {
                    (Some(last_offsets), Some(last_time)) => {
                        self.check_last_entries(io, last_offsets, last_time)?.is_some()
                    }
                    _ => false,
                };
                if !good {
                    return self.rebuild_indexes(io, config);
                }
                // Of a closed segment, the last entry of the time index is the largest timestamp.
                if self.largest_timestamp.flatten() != last_time.flatten() {
                    return self.rebuild_indexes(io, config);
                }
                Ok(())
            }
            None => self.rebuild_indexes(io, config),
        }
    }

    fn index_file_counts(&mut self, io: &mut dyn Io) -> Result<Option<(u64, u64)>, SegmentError> {
        let mut count = |kind, entry: usize| -> Result<Option<u64>, SegmentError> {
            let entry = to_u64(entry);
            let metadata = io.metadata(&self.path(kind))?;
            Ok(metadata.filter(|m| !m.is_dir && m.size % entry == 0).map(|m| m.size / entry))
        };
        let offsets = count(FileKind::OffsetIndex, offset_index::ENTRY_SIZE)?;
        let times = count(FileKind::TimeIndex, time_index::ENTRY_SIZE)?;
        Ok(offsets.zip(times))
    }

    /// `None`: it is no entry. `Some(None)`: there is none.
    fn last_offset_entry(
        &mut self,
        io: &mut dyn Io,
        count: u64,
    ) -> Result<Option<Option<(Offset, u64)>>, SegmentError> {
        let Some(raw) = self.last_entry(io, FileKind::OffsetIndex, count, offset_index::ENTRY_SIZE)? else {
            return Ok(Some(None));
        };
        let base = self.base_offset;
        Ok(offset_index::decode_entry(&raw)
            .filter(|(relative, position)| *relative > 0 && *position > 0)
            .and_then(|(relative, position)| {
                Some((offset_index::absolute(base, relative)?, u64::from(position)))
            })
            .map(Some))
    }

    fn last_time_entry(
        &mut self,
        io: &mut dyn Io,
        count: u64,
    ) -> Result<Option<Option<TimestampOffset>>, SegmentError> {
        let Some(raw) = self.last_entry(io, FileKind::TimeIndex, count, time_index::ENTRY_SIZE)? else {
            return Ok(Some(None));
        };
        let base = self.base_offset;
        Ok(time_index::decode_entry(&raw).and_then(|(timestamp, relative)| {
            let offset = offset_index::absolute(base, relative)?;
            Some(Some(TimestampOffset { timestamp: TimestampMs::new(timestamp), offset }))
        }))
    }

    /// What the first entry is for, relative to the base; `None` if there is none, or it is no entry.
    fn first_offset_entry(&mut self, io: &mut dyn Io, count: u64) -> Result<Option<i64>, SegmentError> {
        let (kind, size) = (FileKind::OffsetIndex, offset_index::ENTRY_SIZE);
        let raw = self.entry(io, kind, count.min(1).checked_sub(1), size)?;
        Ok(raw.and_then(|raw| offset_index::decode_entry(&raw)).map(|(relative, _)| i64::from(relative)))
    }

    fn first_time_entry(&mut self, io: &mut dyn Io, count: u64) -> Result<Option<i64>, SegmentError> {
        let (kind, size) = (FileKind::TimeIndex, time_index::ENTRY_SIZE);
        let raw = self.entry(io, kind, count.min(1).checked_sub(1), size)?;
        Ok(raw.and_then(|raw| time_index::decode_entry(&raw)).map(|(timestamp, _)| timestamp))
    }

    fn last_entry(
        &mut self,
        io: &mut dyn Io,
        kind: FileKind,
        count: u64,
        entry_size: usize,
    ) -> Result<Option<Bytes>, SegmentError> {
        self.entry(io, kind, count.checked_sub(1), entry_size)
    }

    /// The bytes of the entry with this number, if it is given one.
    fn entry(
        &mut self,
        io: &mut dyn Io,
        kind: FileKind,
        number: Option<u64>,
        entry_size: usize,
    ) -> Result<Option<Bytes>, SegmentError> {
        let Some(number) = number else { return Ok(None) };
        let file = self.index_file(io, kind)?;
        let at = number.saturating_mul(to_u64(entry_size));
        Ok(Some(exact::read_up_to(io, file, at, entry_size)?.freeze()))
    }

    /// Builds the indexes again. Those of an older segment go to the disk, if it takes them.
    pub(crate) fn rebuild_indexes(
        &mut self,
        io: &mut dyn Io,
        config: &SegmentConfig,
    ) -> Result<(), SegmentError> {
        self.close_index_files(io)?;
        let scan = self.build_indexes(io, config)?;
        tracing::debug!(path = %self.log_path().display(), "built the indexes again");
        let Indexes::Memory { offsets, times } = &self.indexes else { return Ok(()) };
        if self.writable || scan.stopped_by.is_some() {
            return Ok(());
        }
        let files = files_of(self.base_offset, offsets, times);
        let written = write_index(io, &self.path(FileKind::OffsetIndex), offsets.encode())
            .and_then(|()| write_index(io, &self.path(FileKind::TimeIndex), times.encode()));
        match written {
            Ok(()) => self.indexes = files,
            // A full or read-only disk: they stay in memory.
            Err(error) => tracing::warn!(%error, "the indexes were built again, but not written"),
        }
        Ok(())
    }

    /// The largest timestamp in the segment and the last offset of the first batch that has it.
    pub(crate) fn largest_timestamp(
        &mut self,
        io: &mut dyn Io,
        config: &SegmentConfig,
    ) -> Result<Option<TimestampOffset>, SegmentError> {
        if self.size == 0 {
            return Ok(None);
        }
        self.check_indexes(io, config)?;
        if let Some(known) = self.largest_timestamp {
            return Ok(known);
        }
        if let Indexes::Files { times, .. } = self.indexes {
            let last = self.last_time_entry(io, times.count)?.flatten();
            self.largest_timestamp = Some(last);
        }
        Ok(self.largest_timestamp.flatten())
    }

    /// The first batch at or behind `from` that has a timestamp of at least `timestamp`.
    pub(crate) fn locate_timestamp(
        &mut self,
        io: &mut dyn Io,
        config: &SegmentConfig,
        timestamp: TimestampMs,
        from: Offset,
    ) -> Result<Option<BatchInfo>, SegmentError> {
        let mut start = from;
        if let Some(entry) = self.lookup_time(io, timestamp)? {
            // The batch of an entry has its timestamp; else the index is wrong, and so may be what it leaves out.
            let batch = self.locate(io, config, entry.offset, None)?;
            if batch.is_some_and(|batch| batch.max_timestamp == entry.timestamp) {
                start = entry.offset.max(from);
            } else {
                self.rebuild_indexes(io, config)?;
                start = self.lookup_time(io, timestamp)?.map_or(from, |entry| entry.offset.max(from));
            }
        }
        let Some(first) = self.locate(io, config, start, None)? else { return Ok(None) };
        let file = self.log(io)?;
        let mut walker = HeaderWalker::new(file, first.position, self.size);
        loop {
            match walker.next(io) {
                Ok(Some(batch)) if batch.max_timestamp >= timestamp => return Ok(Some(batch)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) => return Err(self.walk_error(error)),
            }
        }
    }

    /// The last batch of the segment.
    pub(crate) fn last_info(
        &mut self,
        io: &mut dyn Io,
        config: &SegmentConfig,
    ) -> Result<Option<BatchInfo>, SegmentError> {
        self.check_indexes(io, config)?;
        let top = self.base_offset.checked_add(i64::from(i32::MAX)).unwrap_or(self.base_offset);
        let start = self.lookup(io, top)?.unwrap_or(0);
        let file = self.log(io)?;
        let mut walker = HeaderWalker::new(file, start, self.size);
        let mut last = None;
        while let Some(batch) = walker.next(io).map_err(|error| self.walk_error(error))? {
            last = Some(batch);
        }
        Ok(last)
    }

    /// Reads bytes of the log, all of them.
    pub(crate) fn read(&mut self, io: &mut dyn Io, at: u64, size: u64) -> Result<Bytes, SegmentError> {
        let file = self.log(io)?;
        let size = usize::try_from(size.min(self.size.saturating_sub(at))).unwrap_or(usize::MAX);
        Ok(exact::read_exact(io, file, at, size)?.freeze())
    }

    /// Reads the whole transaction index from its file. Without one it has no entries.
    pub(crate) fn read_transactions(&mut self, io: &mut dyn Io) -> Result<TransactionIndex, SegmentError> {
        let mut whole = TransactionIndex::new();
        let base = self.base_offset;
        let path = self.path(FileKind::TransactionIndex);
        let limit = self.size.max(MAX_TRANSACTION_INDEX_SIZE);
        each_transaction_block(io, &path, base, limit, |block| {
            for entry in block.entries() {
                whole.append(*entry);
            }
            true
        })?;
        Ok(whole)
    }

    /// Adds what overlaps `[from, end)` to `found`; true if no later segment can hold more.
    ///
    /// The file of a segment that is not written is read whole once, when this is first asked; afterwards only the blocks
    /// of it in which an entry may overlap.
    pub(crate) fn collect_aborted(
        &mut self,
        io: &mut dyn Io,
        from: Offset,
        end: Offset,
        found: &mut Vec<AbortedTransaction>,
    ) -> Result<bool, SegmentError> {
        if let Some(index) = &self.transactions {
            return Ok(index.collect(from, end, found));
        }
        let blocks = match self.transaction_blocks.take() {
            Some(blocks) => blocks,
            None => self.read_transaction_blocks(io)?,
        };
        let collected = self.collect_from_blocks(io, &blocks, from, end, found);
        self.transaction_blocks = Some(blocks);
        collected
    }

    fn read_transaction_blocks(&mut self, io: &mut dyn Io) -> Result<Box<[TransactionBlock]>, SegmentError> {
        let path = self.path(FileKind::TransactionIndex);
        let limit = self.size.max(MAX_TRANSACTION_INDEX_SIZE);
        let mut blocks: Vec<TransactionBlock> = Vec::new();
        let mut unordered = None;
        each_transaction_block(io, &path, self.base_offset, limit, |block| {
            let first = block.entries().first().map(|entry| entry.last_offset);
            if first < blocks.last().map(|before| before.last_offset) {
                unordered = Some(blocks.len() * TRANSACTION_BLOCK);
                return false;
            }
            blocks.extend(TransactionBlock::of(block.entries()));
            true
        })?;
        match unordered {
            Some(entry) => Err(SegmentError::TransactionIndex { path, source: IndexError::Order { entry } }),
            None => Ok(blocks.into_boxed_slice()),
        }
    }

    fn collect_from_blocks(
        &mut self,
        io: &mut dyn Io,
        blocks: &[TransactionBlock],
        from: Offset,
        end: Offset,
        found: &mut Vec<AbortedTransaction>,
    ) -> Result<bool, SegmentError> {
        let start = blocks.partition_point(|block| block.last_offset < from);
        let before = start.checked_sub(1).and_then(|before| blocks.get(before));
        // Last stable offsets never go down, so the last entry of a block speaks for all of it.
        if before.is_some_and(|before| before.last_stable_offset >= end) {
            return Ok(true);
        }
        for (number, block) in blocks.iter().enumerate().skip(start) {
            if block.smallest < end {
                let file = self.index_file(io, FileKind::TransactionIndex)?;
                let at = to_u64(number * TRANSACTION_BLOCK * transaction_index::ENTRY_SIZE);
                let bytes = exact::read_exact(io, file, at, block.count * transaction_index::ENTRY_SIZE)?;
                let entries = TransactionIndex::decode(self.base_offset, &bytes).map_err(|source| {
                    let path = self.path(FileKind::TransactionIndex);
                    SegmentError::TransactionIndex { path, source }
                })?;
                if entries.collect(from, end, found) {
                    return Ok(true);
                }
            }
            if block.last_stable_offset >= end {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What is known of the files of these indexes.
fn files_of(base: Offset, offsets: &OffsetIndex, times: &TimeIndex) -> Indexes {
    let relative = |entry: offset_index::OffsetIndexEntry| entry.offset.get().saturating_sub(base.get());
    let offsets = FileIndex {
        count: to_u64(offsets.entries().len()),
        first: offsets.entries().next().map_or(0, relative),
        last: offsets.entries().next_back().map_or(0, relative),
    };
    let timestamp = |entry: TimestampOffset| entry.timestamp.get();
    let times = FileIndex {
        count: to_u64(times.entries().len()),
        first: times.entries().next().map_or(0, timestamp),
        last: times.last().map_or(0, timestamp),
    };
    Indexes::Files { offsets, times }
}

/// Reads a transaction index block by block, until `each` says that it is enough.
fn each_transaction_block(
    io: &mut dyn Io,
    path: &Path,
    base: Offset,
    limit: u64,
    mut each: impl FnMut(&TransactionIndex) -> bool,
) -> Result<(), SegmentError> {
    let file = match io.open(path, Open::Read) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let read = walk_transaction_blocks(io, file, path, base, limit, &mut each);
    io.close(file)?;
    read
}

fn walk_transaction_blocks(
    io: &mut dyn Io,
    file: FileId,
    path: &Path,
    base: Offset,
    limit: u64,
    each: &mut impl FnMut(&TransactionIndex) -> bool,
) -> Result<(), SegmentError> {
    let invalid = |source| SegmentError::TransactionIndex { path: path.to_path_buf(), source };
    let end = io.len(file)?;
    if end > limit {
        return Err(invalid(IndexError::TooLarge { limit }));
    }
    let most = TRANSACTION_BLOCK * transaction_index::ENTRY_SIZE;
    let mut at = 0;
    while at < end {
        let size = usize::try_from(end - at).unwrap_or(most).min(most);
        let bytes = exact::read_exact(io, file, at, size)?;
        if !each(&TransactionIndex::decode(base, &bytes).map_err(invalid)?) {
            return Ok(());
        }
        at += to_u64(size);
    }
    Ok(())
}

fn read_if_small(io: &mut dyn Io, path: &Path) -> Result<Option<Bytes>, IoError> {
    match durable::read_file(io, path, MAX_INDEX_SIZE) {
        Err(IoError::Short { .. }) => Ok(None),
        other => other,
    }
}

/// Writes an index file whole, cut to its exact size, and syncs it. Its name needs no sync: a missing one is built again.
pub(crate) fn write_index(io: &mut dyn Io, path: &Path, bytes: Bytes) -> Result<(), IoError> {
    let file = io.open(path, Open::CreateOrOpen)?;
    let size = to_u64(bytes.len());
    let written = exact::write_all(io, file, 0, bytes)
        .and_then(|()| io.truncate(file, size))
        .and_then(|()| exact::sync(io, file, SyncKind::All));
    let closed = io.close(file);
    written.and(closed)
}

enum Search {
    /// Every entry is above what is looked for.
    Before,
    /// The last entry that is not above it.
    At(Bytes),
    /// The file is not what it was found to be.
    Broken,
}

/// The last entry of an index file that is not above `wanted`; `key` says what an entry is for.
///
/// Entries are about evenly spread in most logs, so where it is can be guessed, and a guess reads a block around it. Every
/// other step halves what is left, so that a log in which they are not costs twice a binary search and no more.
///
/// Cost: one read of a block of 4 KiB in most logs, or two.
fn search(
    io: &mut dyn Io,
    file: FileId,
    index: FileIndex,
    entry_size: usize,
    wanted: i64,
    key: impl Fn(&[u8]) -> Option<i64>,
) -> Result<Search, SegmentError> {
    let size = to_u64(entry_size);
    let per_block = to_u64(SEARCH_BLOCK) / size;
    let (mut low, mut high) = (0, index.count);
    // INVARIANT: entries below `low` are not above what is wanted, and those from `high` are; the best of the former:
    let mut best = None;
    let (mut low_key, mut high_key) = (index.first, index.last);
    for step in 0_u32.. {
        if low >= high {
            break;
        }
        let left = high - low;
        let guess = if step % 2 == 0 && low_key <= high_key {
            // The product does not overflow: a key has 64 bits, and a count of entries in a file fewer.
            let part = i128::from(wanted.clamp(low_key, high_key)) - i128::from(low_key);
            let whole = (i128::from(high_key) - i128::from(low_key)).max(1);
            low + u64::try_from(i128::from(left) * part / whole).unwrap_or(0).min(left)
        } else {
            low + left / 2
        };
        let first = guess.saturating_sub(per_block / 2).clamp(low, high.saturating_sub(per_block).max(low));
        let count = (high - first).min(per_block);
        let Ok(bytes) = usize::try_from(count * size) else { return Ok(Search::Broken) };
        let block = exact::read_up_to(io, file, first * size, bytes)?.freeze();
        let mut entries = block.chunks_exact(entry_size);
        let (Some(start), Some(end)) = (entries.next(), entries.next_back().or(block.get(..entry_size)))
        else {
            return Ok(Search::Broken);
        };
        let (Some(start), Some(end)) = (key(start), key(end)) else { return Ok(Search::Broken) };
        if block.len() != bytes || start > end {
            return Ok(Search::Broken);
        }
        if start > wanted {
            (high, high_key) = (first, start);
            continue;
        }
        (low, low_key) = (first + count, end);
        let mut at = 0;
        for (number, raw) in block.chunks_exact(entry_size).enumerate() {
            match key(raw) {
                Some(key) if key <= wanted => at = number,
                Some(_) => {
                    // What is wanted lies between two entries of this block.
                    high = low;
                    break;
                }
                None => return Ok(Search::Broken),
            }
        }
        best = Some(block.slice(at * entry_size..(at + 1) * entry_size));
    }
    Ok(best.map_or(Search::Before, Search::At))
}
