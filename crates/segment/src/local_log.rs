//! The ordered segments of one partition.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use weir_format::{BatchError, Offset, RecordBatch, TimestampMs, message_size};

use crate::appender::{Appender, MAX_UNWRITTEN, Settled, again};
use crate::config::SegmentConfig;
use crate::error::SegmentError;
use crate::index_builder::IndexBuilder;
use crate::io::buffer::BufferPool;
use crate::io::{Done, FileId, Io, IoError, Operation, SyncKind, Wait, exact};
use crate::layout::{FileKind, SegmentFileName, Stage};
use crate::log_segment::{LogSegment, Scan, UsedSegment};
use crate::time_index::TimestampOffset;
use crate::transaction_index::{AbortedTransaction, TransactionIndex};
use crate::units::to_u64;
use crate::walk::{BatchInfo, BatchWalker, batch_info};

/// How many readers' places are remembered, so that reading on needs no index.
const REMEMBERED_PLACES: usize = 8;

/// How many bytes of buffers a log without a pool of its shard keeps.
const OWN_POOL: usize = 4 << 20;

/// The segments of one partition: appended to at their end, read by offset, cut at either side.
///
/// Appends are pipelined. [`LocalLog::append`] gathers and returns; [`LocalLog::flush`] submits what was gathered;
/// [`LocalLog::sync_begin`] submits one sync for all that has been written since the last; whoever reaps hands
/// completions to [`LocalLog::on_done`], until [`LocalLog::written_end_offset`] and [`LocalLog::synced_end_offset`] are
/// where they are wanted. [`LocalLog::settle`] and [`LocalLog::sync`] do all that and wait. Every other change waits for
/// what is in flight by itself.
///
/// It knows nothing of producers, leader epochs or of when something may be acknowledged. After a failed change, write
/// or sync it takes no further one ([`SegmentError::Failed`]) until it is opened again: what its files say then is the
/// truth.
#[derive(Debug)]
pub struct LocalLog {
    dir: Arc<Path>,
    config: SegmentConfig,
    // INVARIANT: never empty; the last one is active, and its indexes are in memory.
    segments: BTreeMap<Offset, LogSegment>,
    /// Bases of the segments that may have aborted transactions in their index; of most logs, none.
    with_transactions: BTreeSet<Offset>,
    log_end_offset: Offset,
    synced_end_offset: Offset,
    tail: Option<Tail>,
    failed: bool,
    /// What failed, if it was a write or a sync.
    failure: Option<IoError>,
    /// The growing end of the active segment, from the first append on.
    // INVARIANT: it is of the `.log` file of the active segment, and ends where that does.
    appender: Option<Appender>,
    owner: u32,
    pool: BufferPool,
    // Offset, base of its segment, and where in it the first batch with this or a higher offset starts.
    places: VecDeque<(Offset, Offset, u64)>,
}

/// Bytes behind the last batch of the active segment that are no batch: torn or corrupt, which recovery judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Base offset of the segment.
    pub base_offset: Offset,
    /// Where they start in its `.log` file, in bytes.
    pub position: u64,
    /// Size of that file, in bytes.
    pub size: u64,
    /// What is wrong with the first of them.
    pub error: BatchError,
}

/// What [`LocalLog::append`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogAppend {
    /// First offset that was appended.
    pub base_offset: Offset,
    /// Last offset that was appended.
    pub last_offset: Offset,
    /// Bases of the segments that were made for it.
    pub rolled: Vec<Offset>,
}

/// Whole batches read from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadSlice {
    /// Their bytes; empty if there is nothing to read.
    pub bytes: Bytes,
    /// Base offset of the first batch, which may be below the offset asked for.
    pub first_base_offset: Option<Offset>,
    /// Where to read on: behind the last batch, or the offset asked for.
    pub next_offset: Offset,
}

/// A batch that was looked for, with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundBatch {
    /// Its header.
    pub info: BatchInfo,
    /// All of it.
    pub bytes: Bytes,
}

impl LocalLog {
    /// Opens the segments of a directory as they are. Without one, an empty segment is made at `start`.
    ///
    /// Names and indexes are checked, batches only behind the last index entry of the active segment, and no CRC: what
    /// is behind the last batch there is said by [`LocalLog::tail`]. What a crash left of a removal is removed.
    ///
    /// Cost: a listing and one call per segment; a few reads of the active one.
    ///
    /// # Errors
    /// [`SegmentError::Io`]; [`SegmentError::UnfinishedSwap`].
    pub fn open(
        io: &mut dyn Io,
        dir: &Path,
        config: SegmentConfig,
        start: Offset,
    ) -> Result<LocalLog, SegmentError> {
        LocalLog::open_walked(io, dir, config, start, None)
    }

    /// As [`LocalLog::open`], after a walk over all batches of the last segment: its index files are not trusted, and its
    /// batches not looked at again.
    ///
    /// Cost: a listing and one call per segment; no read of a `.log` file, unless the file has another size than what was
    /// walked.
    ///
    /// # Errors
    /// As [`LocalLog::open`].
    pub fn open_walked(
        io: &mut dyn Io,
        dir: &Path,
        config: SegmentConfig,
        start: Offset,
        walked: Option<IndexBuilder>,
    ) -> Result<LocalLog, SegmentError> {
        let dir: Arc<Path> = Arc::from(dir);
        let mut segments = BTreeMap::new();
        let mut others = Vec::new();
        for path in io.list(&dir)? {
            let Some(name) = SegmentFileName::of(&path) else { continue };
            if path.file_name() != Some(std::ffi::OsStr::new(&name.to_string())) {
                // Not written with twenty digits: not by any Kafka.
                continue;
            }
            match (name.stage, name.kind) {
                // Nobody's: a segment is a file.
                (Stage::Deleted | Stage::Cleaned | Stage::Swap, _)
                    if io.metadata(&path)?.is_some_and(|metadata| !metadata.is_file) => {}
                (Stage::Deleted | Stage::Cleaned, _) => io.remove(&path)?,
                (Stage::Swap, _) => return Err(SegmentError::UnfinishedSwap { path }),
                (Stage::Live, FileKind::Log) => {
                    let size = io.metadata(&path)?.map_or(0, |metadata| metadata.size);
                    segments.insert(name.base_offset, LogSegment::found(&dir, name.base_offset, size));
                }
                (Stage::Live, FileKind::Snapshot) => {}
                (Stage::Live, kind) => others.push((name.base_offset, path, kind)),
            }
        }
        // What is left of a removed segment.
        let mut with_transactions = BTreeSet::new();
        for (base_offset, path, kind) in others {
            if !segments.contains_key(&base_offset) {
                io.remove(&path)?;
            } else if kind == FileKind::TransactionIndex {
                with_transactions.insert(base_offset);
            }
        }
        if segments.is_empty() {
            segments.insert(start, LogSegment::create(io, &dir, start, None)?);
        }
        let mut log = LocalLog {
            dir,
            config,
            segments,
            with_transactions,
            log_end_offset: start,
            synced_end_offset: start,
            tail: None,
            failed: false,
            failure: None,
            appender: None,
            owner: 0,
            pool: BufferPool::new(OWN_POOL),
            places: VecDeque::new(),
        };
        log.activate_last(io, walked)?;
        // Most logs are not appended to soon.
        log.active_mut().rest(io)?;
        Ok(log)
    }

    /// The partition's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its options.
    pub fn config(&self) -> &SegmentConfig {
        &self.config
    }

    /// Sets options for what is appended from now on.
    pub fn set_config(&mut self, config: SegmentConfig) {
        self.config = config;
    }

    /// Gives it what a shard shares among its logs: the pool of buffers, and an owner for its tickets, by which the shard
    /// finds the log that a completion belongs to ([`ticket_owner`](crate::ticket_owner)).
    pub fn attach(&mut self, owner: u32, pool: BufferPool) {
        self.owner = owner;
        self.pool = pool;
        if let Some(appender) = &mut self.appender {
            appender.set_owner(owner);
        }
    }

    /// The offset behind the last batch, written or not; after a failure, behind the last one that is known to be written.
    pub fn log_end_offset(&self) -> Offset {
        self.log_end_offset
    }

    /// Base offset of the first segment.
    pub fn first_offset(&self) -> Offset {
        self.segments.keys().next().copied().unwrap_or(self.log_end_offset)
    }

    /// The segments, ascending.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &LogSegment> + ExactSizeIterator {
        self.segments.values()
    }

    /// The segment that is appended to.
    pub fn active(&self) -> &LogSegment {
        match self.segments.values().next_back() {
            Some(segment) => segment,
            None => unreachable!("a log has at least one segment"),
        }
    }

    /// The bytes of all segments.
    pub fn size(&self) -> u64 {
        self.segments.values().map(LogSegment::size).fold(0, u64::saturating_add)
    }

    /// What was found behind the last batch when the log was opened, until it is cut.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Whether an earlier change, write or sync failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The write or sync that failed. A sync that failed stands before a write: nothing is known of the file then.
    pub fn failure(&self) -> Option<&IoError> {
        self.failure.as_ref()
    }

    fn active_mut(&mut self) -> &mut UsedSegment {
        match self.segments.values_mut().next_back() {
            Some(segment) => segment.begin_use(),
            None => unreachable!("a log has at least one segment"),
        }
    }

    fn segment_mut(&mut self, base_offset: Offset) -> Result<&mut UsedSegment, SegmentError> {
        match self.segments.get_mut(&base_offset) {
            Some(segment) => Ok(segment.begin_use()),
            None => Err(SegmentError::NoSegment { dir: self.dir.to_path_buf(), base_offset }),
        }
    }

    /// Base of the segment that holds `offset`, if it is not below all of them.
    fn floor(&self, offset: Offset) -> Option<Offset> {
        self.segments.range(..=offset).next_back().map(|(base, _)| *base)
    }

    /// Base of the segment behind the one at `base`.
    fn base_above(&self, base: Offset) -> Option<Offset> {
        self.segments.range((Bound::Excluded(base), Bound::Unbounded)).next().map(|(base, _)| *base)
    }

    /// Runs a change; if it fails, no further one is taken.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut LocalLog) -> Result<T, SegmentError>,
    ) -> Result<T, SegmentError> {
        if self.failed {
            return Err(SegmentError::Failed { dir: self.dir.to_path_buf() });
        }
        let result = change(self);
        if let Err(error) = &result {
            // What was refused before anything was done has changed nothing.
            let changed = !matches!(
                error,
                SegmentError::NotBatches { .. }
                    | SegmentError::NotMonotonic { .. }
                    | SegmentError::OutOfRange { .. }
                    | SegmentError::Tail { .. }
                    | SegmentError::NoSegment { .. }
            );
            if changed {
                self.fail();
            }
        }
        result
    }

    /// Takes no further change. What is not known to be written is no part of the log any more.
    fn fail(&mut self) {
        self.failed = true;
        if let Some(appender) = &self.appender {
            let (size, end) = (appender.written_end_position(), appender.written_end_offset());
            self.active_mut().end_at(size);
            self.log_end_offset = end;
        }
    }

    fn activate_last(&mut self, io: &mut dyn Io, walked: Option<IndexBuilder>) -> Result<(), SegmentError> {
        let config = self.config;
        let scan = self.active_mut().activate(io, &config, walked)?;
        self.adopt(io, &scan)
    }

    /// Takes the end of the active segment as the end of the log.
    fn adopt(&mut self, io: &mut dyn Io, scan: &Scan) -> Result<(), SegmentError> {
        self.log_end_offset = scan.next_offset;
        self.synced_end_offset = scan.next_offset;
        self.places.clear();
        let base_offset = self.active().base_offset();
        let active = self.active_mut();
        self.tail = match scan.stopped_by {
            None => None,
            Some(error) => {
                let file = active.log(io)?;
                Some(Tail { base_offset, position: scan.valid_size, size: io.len(file)?, error })
            }
        };
        Ok(())
    }

    // Appending.

    /// Appends one batch; see [`LocalLog::append_bytes`].
    ///
    /// Cost: one more copy of the batch than [`LocalLog::append_bytes`].
    ///
    /// # Errors
    /// As [`LocalLog::append_bytes`].
    pub fn append(
        &mut self,
        io: &mut dyn Io,
        batch: &RecordBatch<'_>,
        now: TimestampMs,
    ) -> Result<LogAppend, SegmentError> {
        self.append_bytes(io, Bytes::copy_from_slice(batch.bytes()), now)
    }

    /// Appends whole batches, whose offsets ascend from the log end offset; gaps are taken.
    ///
    /// When it returns, the bytes have been gathered. What fills a buffer (256 KiB) is on its way to the disk;
    /// [`LocalLog::flush`] submits the rest.
    /// It waits only if a segment is left, or if more than 8 MiB of this log wait to be written. Frames and headers are
    /// looked at, no CRC.
    ///
    /// Cost: one copy, or none where the backend takes the bytes as they are (64 KiB and more); for each segment that is
    /// started the syncs of the one before.
    ///
    /// # Errors
    /// [`SegmentError::NotBatches`], [`SegmentError::NotMonotonic`], [`SegmentError::Tail`]: nothing was changed.
    /// [`SegmentError::Io`]: a part may be in the file, and the log takes no further change.
    pub fn append_bytes(
        &mut self,
        io: &mut dyn Io,
        bytes: Bytes,
        now: TimestampMs,
    ) -> Result<LogAppend, SegmentError> {
        self.change(|log| {
            log.check_no_tail()?;
            let batches = log.check_batches(&bytes)?;
            let (Some(first), Some(last)) = (batches.first(), batches.last()) else {
                let have = bytes.len();
                let source = BatchError::Truncated { need: weir_format::HEADER_SIZE, have };
                return Err(SegmentError::NotBatches { position: 0, source });
            };
            let done = LogAppend {
                base_offset: first.base_offset,
                last_offset: last.last_offset,
                rolled: Vec::new(),
            };
            log.append_checked(io, &bytes, &batches, now, done)
        })
    }

    fn check_no_tail(&self) -> Result<(), SegmentError> {
        match &self.tail {
            Some(tail) => Err(SegmentError::Tail {
                path: crate::layout::file_path(&self.dir, tail.base_offset, FileKind::Log),
                position: tail.position,
                size: tail.size,
            }),
            None => Ok(()),
        }
    }

    /// Where a segment begins whose first batch is this one, whose bytes these are.
    fn base_of_next(&self, first: &BatchInfo, bytes: &[u8]) -> Offset {
        if !matches!(message_size(bytes), Ok(Some(_))) {
            return first.base_offset;
        }
        // A message may wrap others, of lower offsets than its own, as many as an index can say.
        // Source: Kafka's `UnifiedLog.maybeRoll`.
        let lowest = first.last_offset.get().saturating_sub(i64::from(i32::MAX));
        Offset::new(lowest).map_or(self.log_end_offset, |lowest| self.log_end_offset.max(lowest))
    }

    /// The batches in `bytes`, messages of magic 0 and 1 among them, with their positions in it.
    fn check_batches(&self, bytes: &[u8]) -> Result<Vec<BatchInfo>, SegmentError> {
        let mut batches = Vec::new();
        let (mut at, mut end) = (0, self.log_end_offset);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let not_batches = |source| SegmentError::NotBatches { position: at, source };
            let info = batch_info(rest, to_u64(at)).map_err(not_batches)?;
            let size = usize::try_from(info.size).unwrap_or(usize::MAX);
            if size > rest.len() {
                return Err(not_batches(BatchError::Truncated { need: size, have: rest.len() }));
            }
            if info.base_offset < end {
                return Err(SegmentError::NotMonotonic {
                    base_offset: info.base_offset,
                    log_end_offset: end,
                });
            }
            end = info.next_offset;
            batches.push(info);
            at += size;
        }
        Ok(batches)
    }

    fn append_checked(
        &mut self,
        io: &mut dyn Io,
        bytes: &Bytes,
        batches: &[BatchInfo],
        now: TimestampMs,
        mut done: LogAppend,
    ) -> Result<LogAppend, SegmentError> {
        let config = self.config;
        let range = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
        let mut rest = batches;
        while let Some(first) = rest.first() {
            let roll = |segment: &UsedSegment, b: &BatchInfo| {
                segment.needs_roll(&config, b.last_offset, b.size, b.max_timestamp, now)
            };
            if roll(self.active_mut(), first) {
                let base = self.base_of_next(first, bytes.get(range(first.position)..).unwrap_or_default());
                self.roll_to(io, base, now)?;
                done.rolled.push(base);
            }
            // One write for all batches that go into this segment.
            let active = self.active_mut();
            let start = active.size();
            let mut count = 0;
            for batch in rest {
                if count > 0 && roll(active, batch) {
                    break;
                }
                let placed = BatchInfo { position: active.size(), ..*batch };
                active.appended(&config, &placed, now);
                count += 1;
            }
            let (group, later) = rest.split_at(count);
            rest = later;
            let Some(last) = group.last() else { break };
            let part = bytes.slice(range(first.position)..range(last.end()));
            let size = active.size();
            if let Err(error) = self.gather(io, start, part, last.next_offset) {
                // Without these batches; if there is an appender, it knows how many of those before go, too.
                self.active_mut().end_at(start);
                return Err(error);
            }
            assert_eq!(
                self.appender.as_ref().map(Appender::end),
                Some(size),
                "the appender ends where the log does"
            );
            self.log_end_offset = last.next_offset;
        }
        Ok(done)
    }

    /// Starts a new segment at `base`, or at the log end offset if that is higher, and returns its base offset.
    ///
    /// The old one is cut to its exact size and durable, with its indexes, before the new one is made.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Tail`].
    pub fn roll(
        &mut self,
        io: &mut dyn Io,
        base: Option<Offset>,
        now: TimestampMs,
    ) -> Result<Offset, SegmentError> {
        self.change(|log| {
            log.check_no_tail()?;
            let base = base.unwrap_or(log.log_end_offset).max(log.log_end_offset);
            log.roll_to(io, base, now)?;
            Ok(base)
        })
    }

    fn roll_to(&mut self, io: &mut dyn Io, base: Offset, now: TimestampMs) -> Result<(), SegmentError> {
        assert!(base >= self.log_end_offset, "a segment starts at the end of the log or behind it");
        if self.active().base_offset() == base {
            assert_eq!(self.active().size(), 0, "a segment with batches does not end at its base");
            return Ok(());
        }
        self.quiesce(io)?;
        let active = self.active_mut();
        active.finish(io)?;
        self.all_synced();
        self.appender = None;
        self.active_mut().deactivate(io)?;
        let segment = LogSegment::create(io, &self.dir, base, Some(now))?;
        self.segments.insert(base, segment);
        self.log_end_offset = base;
        self.synced_end_offset = base;
        Ok(())
    }

    /// Hands bytes that are to stand at `start`, the end of the active segment, to its appender.
    fn gather(
        &mut self,
        io: &mut dyn Io,
        start: u64,
        bytes: Bytes,
        end_offset: Offset,
    ) -> Result<(), SegmentError> {
        if self.appender.is_none() {
            let file = self.active_mut().writable_log(io)?;
            let (owner, pool) = (self.owner, self.pool.clone());
            self.appender = Some(Appender::new(io, file, owner, pool, start, self.log_end_offset));
        }
        let size = to_u64(bytes.len());
        let has_room = |appender: &Appender| {
            appender.is_written() || appender.unwritten().saturating_add(size) <= MAX_UNWRITTEN
        };
        if !self.appender.as_ref().is_some_and(has_room) {
            self.wait(io, has_room)?;
        }
        if let Some(appender) = &mut self.appender {
            appender.take(bytes, end_offset);
            appender.submit(io);
        }
        Ok(())
    }

    // Writing and durability.

    /// Submits what was gathered, as far as writes in flight and the queue allow. Call it again after completions as long
    /// as [`LocalLog::has_unsent`] says so: what shares a block with a write in flight waits for it (D11), and takes along
    /// what arrives meanwhile.
    ///
    /// Cost: no copy but of the last block; a write per MiB, and one for the last block behind 64 KiB or more.
    pub fn flush(&mut self, io: &mut dyn Io) {
        if !self.failed
            && let Some(appender) = &mut self.appender
        {
            appender.flush(io);
        }
    }

    /// Submits a sync that covers every append whose write has been reaped. False, and nothing was done, if there is none
    /// that is not durable, a sync of this log is in flight, or the queue is full.
    ///
    /// One at a time, so that what is written while it runs shares the next one.
    pub fn sync_begin(&mut self, io: &mut dyn Io) -> bool {
        match &mut self.appender {
            Some(appender) if !self.failed => appender.sync_begin(io),
            _ => false,
        }
    }

    /// Takes the completion of a write or a sync of this log; afterwards look at [`LocalLog::written_end_offset`],
    /// [`LocalLog::synced_end_offset`] and [`LocalLog::has_failed`].
    ///
    /// # Errors
    /// The completion itself, if it belongs to nobody here.
    #[expect(clippy::result_large_err, reason = "a completion that is given back is a value, not a failure")]
    pub fn on_done(&mut self, done: Done) -> Result<(), Done> {
        let Some(appender) = &mut self.appender else { return Err(done) };
        let settled = appender.on_done(done)?;
        if !self.failed {
            self.synced_end_offset = self.synced_end_offset.max(appender.synced_end_offset());
        }
        match settled {
            Settled::Write => {
                if self.failed {
                    // One that was in flight before the one that failed.
                    self.fail();
                }
            }
            Settled::Sync => {}
            Settled::Failed(error) => {
                // A sync that was refused because a write had failed says less than that write.
                let is_failed_sync = match &error {
                    IoError::Poisoned { cause, .. } => *cause == Operation::Sync,
                    error => error.at().operation == Operation::Sync,
                };
                if self.failure.is_none() || is_failed_sync {
                    self.failure = Some(error);
                }
                self.fail();
            }
        }
        Ok(())
    }

    /// Up to where every append has been written: it survives the process, not the machine.
    pub fn written_end_offset(&self) -> Offset {
        match &self.appender {
            Some(appender) => appender.written_end_offset(),
            None => self.log_end_offset,
        }
    }

    /// The offset below which everything is known to be durable since the log was opened.
    ///
    /// What was there at opening counts as durable only if the caller knows so: see the recovery point.
    pub fn synced_end_offset(&self) -> Offset {
        self.synced_end_offset
    }

    /// Bytes appended and not yet written.
    pub fn unwritten_bytes(&self) -> u64 {
        self.appender.as_ref().map_or(0, Appender::unwritten)
    }

    /// Bytes appended and not yet durable.
    pub fn unsynced_bytes(&self) -> u64 {
        self.appender.as_ref().map_or(0, Appender::unsynced)
    }

    /// Whether a flush has something to submit, now or once a write in flight was reaped.
    pub fn has_unsent(&self) -> bool {
        !self.failed && self.appender.as_ref().is_some_and(Appender::has_unsent)
    }

    /// Whether [`LocalLog::sync_begin`] has something to do.
    pub fn needs_sync(&self) -> bool {
        !self.failed && self.appender.as_ref().is_some_and(Appender::needs_sync)
    }

    /// Whether writes or a sync of this log are in flight.
    pub fn is_busy(&self) -> bool {
        self.appender.as_ref().is_some_and(Appender::is_busy)
    }

    /// Flushes and reaps until `until` holds. Completions of others are kept for the next reap.
    fn wait(&mut self, io: &mut dyn Io, until: impl Fn(&Appender) -> bool) -> Result<(), SegmentError> {
        let (mut done, mut others) = (Vec::new(), Vec::new());
        let outcome = loop {
            if self.failed {
                break Err(self.failed_error());
            }
            let Some(appender) = &mut self.appender else { break Ok(()) };
            appender.flush(io);
            if until(appender) {
                break Ok(());
            }
            if let Err(error) = io.reap(Wait::Block, &mut done) {
                self.fail();
                break Err(error.into());
            }
            others.extend(done.drain(..).filter_map(|done| self.on_done(done).err()));
        };
        if !others.is_empty() {
            io.put_back(others);
        }
        outcome
    }

    /// Why the log takes nothing: what failed, or that something did.
    fn failed_error(&self) -> SegmentError {
        match &self.failure {
            Some(error) => SegmentError::Io(again(error)),
            None => SegmentError::Failed { dir: self.dir.to_path_buf() },
        }
    }

    /// Waits until everything that was appended is written. Blocking.
    ///
    /// # Errors
    /// [`SegmentError::Io`] if a write or a sync failed, [`SegmentError::Failed`].
    pub fn settle(&mut self, io: &mut dyn Io) -> Result<(), SegmentError> {
        self.wait(io, Appender::is_written)
    }

    /// Waits until everything is written and nothing is in flight on the active segment, so that it may be cut.
    fn quiesce(&mut self, io: &mut dyn Io) -> Result<(), SegmentError> {
        self.wait(io, |appender| appender.is_written() && !appender.is_syncing())
    }

    /// What a lookup needs: everything is written. A log that failed is what was written.
    fn settle_to_read(&mut self, io: &mut dyn Io) -> Result<(), SegmentError> {
        if self.failed { Ok(()) } else { self.settle(io) }
    }

    /// Makes everything durable: the active segment and its transaction index. Blocking.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Failed`].
    pub fn sync(&mut self, io: &mut dyn Io) -> Result<(), SegmentError> {
        self.change(|log| {
            log.quiesce(io)?;
            let active = log.active_mut();
            let file = active.writable_log(io)?;
            // DURABLE: every batch of the active segment; older ones were synced when they were left.
            exact::sync(io, file, SyncKind::All)?;
            log.write_transactions(io)?;
            log.all_synced();
            Ok(())
        })
    }

    fn all_synced(&mut self) {
        self.synced_end_offset = self.log_end_offset;
        if let Some(appender) = &mut self.appender {
            appender.synced_whole();
        }
    }

    /// Lets go of what only a log that is appended to needs: its open file, with the space that was allocated behind its
    /// end (D13), and its last block. False, and nothing was done, unless everything is durable and nothing in flight.
    ///
    /// The next append opens the file again.
    ///
    /// # Errors
    /// [`SegmentError::Io`] if the file could not be cut; the log takes no further change.
    pub fn rest(&mut self, io: &mut dyn Io) -> Result<bool, SegmentError> {
        if self.failed {
            return Ok(false);
        }
        if let Some(appender) = &self.appender
            && (!appender.is_written() || appender.is_busy() || appender.needs_sync())
        {
            return Ok(false);
        }
        self.change(|log| {
            log.appender = None;
            log.active_mut().rest(io)?;
            Ok(true)
        })
    }

    /// Closes every file, if everything is durable and nothing in flight, so that it may go on with another [`Io`]; else
    /// false, and nothing was done. Files are opened again when they are needed.
    ///
    /// # Errors
    /// As [`LocalLog::rest`].
    pub fn detach(&mut self, io: &mut dyn Io) -> Result<bool, SegmentError> {
        if !self.rest(io)? {
            return Ok(false);
        }
        self.change(|log| {
            for segment in log.segments.values_mut().filter_map(LogSegment::used_mut) {
                segment.close(io)?;
            }
            Ok(true)
        })
    }

    /// Ends the use of the log: everything durable, files cut to their exact sizes, closed.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Failed`]: this was no clean stop.
    pub fn close(mut self, io: &mut dyn Io) -> Result<(), SegmentError> {
        let finished = self.change(|log| {
            log.check_no_tail()?;
            log.quiesce(io)?;
            log.active_mut().finish(io)?;
            log.all_synced();
            Ok(io.sync_dir(&log.dir)?)
        });
        self.abandon(io).and(finished)
    }

    /// Closes the files as they are: all of them, also behind one that fails.
    ///
    /// # Errors
    /// [`SegmentError::Io`]: the first one.
    pub fn abandon(mut self, io: &mut dyn Io) -> Result<(), SegmentError> {
        let mut first = Ok(());
        for segment in self.segments.values_mut().filter_map(LogSegment::used_mut) {
            let closed = segment.close(io);
            first = first.and(closed);
        }
        Ok(first?)
    }

    // Reading.

    /// Whole batches from the one that holds `from`, or the first behind it, below `end`.
    ///
    /// Inputs: `max_bytes` is what is returned at most; a first batch that is larger is returned alone with
    /// `at_least_one`. `end` is exclusive, and no batch that reaches beyond it is returned. A read ends at the end of a
    /// segment.
    ///
    /// Cost: one read of the batches, one or two small ones to find them.
    ///
    /// # Errors
    /// [`SegmentError::OutOfRange`] if `from` is outside the segments; [`SegmentError::Invalid`].
    pub fn read(
        &mut self,
        io: &mut dyn Io,
        from: Offset,
        max_bytes: usize,
        end: Offset,
        at_least_one: bool,
    ) -> Result<ReadSlice, SegmentError> {
        let start = self.check_range(from)?;
        let nothing = ReadSlice { bytes: Bytes::new(), first_base_offset: None, next_offset: from };
        let end = end.min(self.log_end_offset);
        if from >= end {
            return Ok(nothing);
        }
        if end > self.written_end_offset() {
            self.settle_to_read(io)?;
        }
        let config = self.config;
        let active = self.active().base_offset();
        // What is gathered behind it is not in the file yet.
        let written = self.appender.as_ref().map_or(u64::MAX, Appender::written);
        let mut at = Some(start);
        while let Some(base) = at {
            at = self.base_above(base);
            if base >= end {
                // Behind a gap; what is gathered for it may not be in its file yet.
                return Ok(nothing);
            }
            let hint = self.places.iter().find(|(offset, segment, _)| (*offset, *segment) == (from, base));
            let hint = hint.map(|(_, _, position)| *position);
            let segment = self.segment_mut(base)?;
            let Some(first) = segment.locate(io, &config, from, hint)? else { continue };
            if first.next_offset > end {
                return Ok(nothing);
            }
            let budget = to_u64(max_bytes);
            if first.size > budget && !at_least_one {
                return Ok(nothing);
            }
            let mut size = budget.max(first.size);
            if base == active {
                size = size.min(written.saturating_sub(first.position));
            }
            let bytes = segment.read(io, first.position, size)?;
            let (size, next_offset) =
                whole_batches(&bytes, end).map_err(|(at, source)| SegmentError::Invalid {
                    path: segment.log_path(),
                    position: first.position.saturating_add(to_u64(at)),
                    source,
                })?;
            let size = if size == 0 { usize::try_from(first.size).unwrap_or(usize::MAX) } else { size };
            let next_offset = next_offset.unwrap_or(first.next_offset);
            self.remember(next_offset, base, first.position.saturating_add(to_u64(size)));
            return Ok(ReadSlice {
                bytes: bytes.slice(..size),
                first_base_offset: Some(first.base_offset),
                next_offset,
            });
        }
        Ok(nothing)
    }

    fn remember(&mut self, offset: Offset, base: Offset, position: u64) {
        self.places.retain(|place| *place != (offset, base, position));
        if self.places.len() >= REMEMBERED_PLACES {
            self.places.pop_front();
        }
        self.places.push_back((offset, base, position));
    }

    /// Base of the segment to start reading `from`.
    fn check_range(&self, from: Offset) -> Result<Offset, SegmentError> {
        let out_of_range = SegmentError::OutOfRange {
            offset: from,
            first_offset: self.first_offset(),
            log_end_offset: self.log_end_offset,
        };
        match self.floor(from) {
            Some(base) if from <= self.log_end_offset => Ok(base),
            _ => Err(out_of_range),
        }
    }

    /// The largest timestamp of the log and the last offset of the first batch that has it.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Invalid`].
    pub fn largest_timestamp(&mut self, io: &mut dyn Io) -> Result<Option<TimestampOffset>, SegmentError> {
        let config = self.config;
        let mut largest: Option<TimestampOffset> = None;
        for segment in self.segments.values_mut().map(LogSegment::begin_use) {
            if let Some(found) = segment.largest_timestamp(io, &config)?
                && largest.is_none_or(|largest| largest.timestamp < found.timestamp)
            {
                largest = Some(found);
            }
        }
        Ok(largest)
    }

    /// The largest timestamp of one segment.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Invalid`], [`SegmentError::NoSegment`].
    pub fn segment_largest_timestamp(
        &mut self,
        io: &mut dyn Io,
        base_offset: Offset,
    ) -> Result<Option<TimestampOffset>, SegmentError> {
        let config = self.config;
        self.segment_mut(base_offset)?.largest_timestamp(io, &config)
    }

    /// The first batch that has the largest timestamp of the log.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Invalid`].
    pub fn batch_of_largest_timestamp(
        &mut self,
        io: &mut dyn Io,
    ) -> Result<Option<FoundBatch>, SegmentError> {
        match self.largest_timestamp(io)? {
            Some(largest) => self.batch_at(io, largest.offset),
            None => Ok(None),
        }
    }

    /// The batch that holds `offset`, or the first behind it.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Invalid`], [`SegmentError::OutOfRange`].
    pub fn batch_at(&mut self, io: &mut dyn Io, offset: Offset) -> Result<Option<FoundBatch>, SegmentError> {
        self.settle_to_read(io)?;
        let start = self.check_range(offset)?;
        let config = self.config;
        let mut at = Some(start);
        while let Some(base) = at {
            at = self.base_above(base);
            let segment = self.segment_mut(base)?;
            if let Some(info) = segment.locate(io, &config, offset, None)? {
                return Ok(Some(FoundBatch { info, bytes: segment.read(io, info.position, info.size)? }));
            }
        }
        Ok(None)
    }

    /// The last batch of the log.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Invalid`].
    pub fn last_batch(&mut self, io: &mut dyn Io) -> Result<Option<FoundBatch>, SegmentError> {
        self.settle_to_read(io)?;
        let config = self.config;
        let Some(last) = Offset::new(self.log_end_offset.get().saturating_sub(1)) else { return Ok(None) };
        for segment in self.segments.values_mut().rev() {
            if segment.size() == 0 {
                continue;
            }
            let segment = segment.begin_use();
            // The last offset of an older segment may lie well below the base of its successor.
            let mut found = segment.locate(io, &config, last, None)?;
            if found.is_none() {
                found = segment.last_info(io, &config)?;
            }
            return match found {
                Some(info) => {
                    Ok(Some(FoundBatch { info, bytes: segment.read(io, info.position, info.size)? }))
                }
                None => Ok(None),
            };
        }
        Ok(None)
    }

    /// The first batch that holds `from` or a higher offset and has a timestamp of at least `timestamp`.
    ///
    /// Its matching record may lie below `from`, or be missing where only such a one matches: ask again from behind it.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Invalid`], [`SegmentError::OutOfRange`].
    pub fn batch_for_timestamp(
        &mut self,
        io: &mut dyn Io,
        timestamp: TimestampMs,
        from: Offset,
    ) -> Result<Option<FoundBatch>, SegmentError> {
        self.settle_to_read(io)?;
        let start = self.check_range(from)?;
        let config = self.config;
        let mut at = Some(start);
        while let Some(base) = at {
            at = self.base_above(base);
            let segment = self.segment_mut(base)?;
            let largest = segment.largest_timestamp(io, &config)?;
            if largest.is_some_and(|largest| largest.timestamp < timestamp) {
                continue;
            }
            if let Some(info) = segment.locate_timestamp(io, &config, timestamp, from)? {
                return Ok(Some(FoundBatch { info, bytes: segment.read(io, info.position, info.size)? }));
            }
        }
        Ok(None)
    }

    // Aborted transactions.

    /// Adds an aborted transaction to the index of the segment which holds its ABORT or barrier: in memory. The file
    /// follows by [`LocalLog::sync`] and [`LocalLog::write_transactions`], and when an active segment is left.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::NoSegment`], [`SegmentError::TransactionIndex`].
    pub fn append_aborted(
        &mut self,
        io: &mut dyn Io,
        base_offset: Offset,
        aborted: AbortedTransaction,
    ) -> Result<(), SegmentError> {
        self.change(|log| {
            log.segment_mut(base_offset)?.append_aborted(io, aborted)?;
            log.with_transactions.insert(base_offset);
            Ok(())
        })
    }

    /// The aborted transactions that overlap `[from, end)`, also those that end behind it. Kafka:
    /// `LocalLog.collectAbortedTransactions`.
    ///
    /// Cost: however many entries there are, a search and those that overlap. Each index file is read whole once; a
    /// segment without one costs nothing.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::TransactionIndex`].
    pub fn aborted_in_range(
        &mut self,
        io: &mut dyn Io,
        from: Offset,
        end: Offset,
    ) -> Result<Vec<AbortedTransaction>, SegmentError> {
        let mut found = Vec::new();
        let first = self.floor(from).unwrap_or_else(|| self.first_offset());
        for base in self.with_transactions.range(first..) {
            let Some(segment) = self.segments.get_mut(base) else { continue };
            if segment.begin_use().collect_aborted(io, from, end, &mut found)? {
                break;
            }
        }
        Ok(found)
    }

    /// All aborted transactions of one segment.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::NoSegment`]; [`SegmentError::TransactionIndex`]: replay has to give it again.
    pub fn segment_transactions(
        &mut self,
        io: &mut dyn Io,
        base_offset: Offset,
    ) -> Result<TransactionIndex, SegmentError> {
        let segment = self.segment_mut(base_offset)?;
        match segment.transaction_index() {
            Some(index) => Ok(index.clone()),
            None => segment.read_transactions(io),
        }
    }

    /// Puts what a replay found in place of the transaction index of one segment: it is used from now on, and is on the
    /// disk once [`LocalLog::write_transactions`] has worked.
    ///
    /// # Errors
    /// [`SegmentError::NoSegment`].
    pub fn adopt_transactions(
        &mut self,
        base_offset: Offset,
        index: TransactionIndex,
    ) -> Result<(), SegmentError> {
        self.segment_mut(base_offset)?.adopt_transactions(index);
        self.with_transactions.insert(base_offset);
        Ok(())
    }

    /// Writes, durably, the transaction indexes that are not on the disk as they are in memory: usually none.
    ///
    /// # Errors
    /// [`IoError`]; the log goes on with what is in memory. Until this works, producer state that covers the segments
    /// must not be trusted by a later start.
    pub fn write_transactions(&mut self, io: &mut dyn Io) -> Result<(), IoError> {
        let mut used = self.segments.values_mut().filter_map(LogSegment::used_mut);
        used.try_for_each(|segment| segment.write_transactions(io))
    }

    // Cutting.

    /// Where [`LocalLog::truncate_to`] would leave the log end offset.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Invalid`].
    pub fn end_if_truncated(&mut self, io: &mut dyn Io, offset: Offset) -> Result<Offset, SegmentError> {
        if offset >= self.log_end_offset {
            return Ok(self.log_end_offset);
        }
        let Some(base) = self.floor(offset) else { return Ok(offset) };
        self.settle_to_read(io)?;
        let config = self.config;
        self.segment_mut(base)?.end_below(io, &config, offset)
    }

    /// Cuts off every batch that holds `offset` or a higher one, durably, and returns the log end offset.
    ///
    /// A batch that reaches over `offset` goes as a whole, so the log may then end below it: unlike in Kafka, the log
    /// end offset is always what the bytes say, now and after a restart. Below the first segment everything goes, and the
    /// log starts at `offset`.
    ///
    /// Later segments are removed from the last one down, each name durably, so that a crash leaves a shorter log and
    /// never one with a hole. The recovery point must be at or below `offset` before.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::Invalid`].
    pub fn truncate_to(&mut self, io: &mut dyn Io, offset: Offset) -> Result<Offset, SegmentError> {
        self.change(|log| {
            if offset >= log.log_end_offset {
                return Ok(log.log_end_offset);
            }
            log.quiesce(io)?;
            log.appender = None;
            let Some(base) = log.floor(offset) else {
                return log.start_over(io, offset);
            };
            log.tail = None;
            log.remove_above(io, base)?;
            let config = log.config;
            let active = log.active_mut();
            if !active.is_active() {
                active.activate(io, &config, None)?;
            }
            let cut = active.locate(io, &config, offset, None)?;
            let scan = match cut {
                Some(batch) => active.cut(io, &config, batch.position)?,
                // The offset lies in a gap at the end of the segment: nothing to cut.
                None => {
                    let size = active.size();
                    active.cut(io, &config, size)?
                }
            };
            log.adopt(io, &scan)?;
            Ok(log.log_end_offset)
        })
    }

    /// Removes everything, and starts again with an empty segment at `offset`. Durable.
    ///
    /// After a crash the log is a prefix of what it was, or empty, or the new one.
    ///
    /// # Errors
    /// [`SegmentError::Io`].
    pub fn truncate_fully_and_start_at(
        &mut self,
        io: &mut dyn Io,
        offset: Offset,
    ) -> Result<(), SegmentError> {
        self.change(|log| {
            log.quiesce(io)?;
            log.appender = None;
            log.start_over(io, offset).map(|_| ())
        })
    }

    fn start_over(&mut self, io: &mut dyn Io, offset: Offset) -> Result<Offset, SegmentError> {
        self.tail = None;
        self.with_transactions.clear();
        while let Some((_, segment)) = self.segments.pop_last() {
            if let Err(error) = segment.remove(io) {
                // The log keeps a segment, so that what is asked of it meets an error and not an assertion.
                self.segments.insert(offset, LogSegment::found(&self.dir, offset, 0));
                return Err(error.into());
            }
        }
        let segment = LogSegment::create(io, &self.dir, offset, None);
        let segment = match segment {
            Ok(segment) => segment,
            Err(error) => {
                self.segments.insert(offset, LogSegment::found(&self.dir, offset, 0));
                return Err(error.into());
            }
        };
        self.segments.insert(offset, segment);
        self.log_end_offset = offset;
        self.synced_end_offset = offset;
        self.places.clear();
        Ok(offset)
    }

    fn remove_above(&mut self, io: &mut dyn Io, base: Offset) -> Result<Vec<Offset>, SegmentError> {
        let mut removed = Vec::new();
        let above: Vec<Offset> =
            self.segments.range((Bound::Excluded(base), Bound::Unbounded)).map(|(b, _)| *b).collect();
        for base in above.into_iter().rev() {
            if let Some(segment) = self.segments.remove(&base) {
                self.with_transactions.remove(&base);
                segment.remove(io)?;
                removed.push(base);
            }
        }
        if !removed.is_empty() {
            self.places.clear();
        }
        Ok(removed)
    }

    /// Removes the segments that lie wholly below `offset`, the first one first, durably; the active one stays. Returns
    /// their base offsets.
    ///
    /// # Errors
    /// [`SegmentError::Io`].
    pub fn delete_before(&mut self, io: &mut dyn Io, offset: Offset) -> Result<Vec<Offset>, SegmentError> {
        self.change(|log| {
            let mut removed = Vec::new();
            loop {
                let mut bases = log.segments.keys();
                let (Some(first), Some(second)) = (bases.next().copied(), bases.next().copied()) else {
                    break;
                };
                if second > offset {
                    break;
                }
                if let Some(segment) = log.segments.remove(&first) {
                    log.with_transactions.remove(&first);
                    segment.remove(io)?;
                    removed.push(first);
                }
            }
            log.places.retain(|(_, base, _)| !removed.contains(base));
            Ok(removed)
        })
    }

    // For recovery.

    /// Walks the whole batches of one segment from a position, to the end of its file as it was found.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::NoSegment`].
    pub fn walk(
        &mut self,
        io: &mut dyn Io,
        base_offset: Offset,
        position: u64,
    ) -> Result<BatchWalker, SegmentError> {
        self.settle_to_read(io)?;
        let file = self.log_file(io, base_offset)?;
        let size = io.len(file)?;
        Ok(BatchWalker::new(file, position, size))
    }

    /// The `.log` file of one segment, open to read.
    ///
    /// # Errors
    /// [`SegmentError::Io`], [`SegmentError::NoSegment`].
    pub fn log_file(&mut self, io: &mut dyn Io, base_offset: Offset) -> Result<FileId, SegmentError> {
        Ok(self.segment_mut(base_offset)?.log(io)?)
    }
}

/// How many of these bytes are whole batches below `end`, and the offset behind them.
fn whole_batches(bytes: &[u8], end: Offset) -> Result<(usize, Option<Offset>), (usize, BatchError)> {
    let (mut at, mut next) = (0, None);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let info = match batch_info(rest, to_u64(at)) {
            Err(BatchError::Truncated { .. }) => break,
            info => info.map_err(|source| (at, source))?,
        };
        if info.size > to_u64(rest.len()) || info.next_offset > end {
            break;
        }
        at += usize::try_from(info.size).unwrap_or(usize::MAX);
        next = Some(info.next_offset);
    }
    Ok((at, next))
}
