//! [`LogLoader`]: from a directory to the parts of a log.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_format::{Offset, TimestampMs};
use weir_psm::{ProducerStateManager, PsmConfig};
use weir_segment::io::{BLOCK_SIZE, FileId, Io, IoError, Open, SyncKind, durable, exact};
use weir_segment::layout::{FileKind, LEADER_EPOCH_CHECKPOINT, file_path};
use weir_segment::{
    AbortedTransaction, IndexBuilder, LocalLog, LogSegment, SegmentConfig, SegmentError, TransactionIndex,
};

use crate::MAX_UNSYNCED_BYTES;
use crate::archive;
use crate::epochs::LeaderEpochCache;
use crate::error::{Corruption, Invalid, LoadError};
use crate::leftovers::{self, Directory};
use crate::messages::messages;
use crate::partition_file::{PartitionFile, PartitionFileError};
use crate::replay::{Bounds, LastBatch, Replay};
use crate::report::{
    CutKind, CutTail, NoSnapshot, PhaseTimes, ProducerStateSource, Rebuilt, RecoveryReport, Skipped,
};
use crate::snapshots;
use crate::tail::{self, InvalidPlace, TailRead, TailVerdict, judge_tail};
use crate::walk::{FileView, Frame, Walker};
use crate::watch::{Meter, Metered, Phase, Unwatched, Watch};

/// The most that is read of a leader-epoch checkpoint or a transaction index.
const SMALL_FILE_LIMIT: usize = 256 << 20;

/// What a load is told about the partition.
#[derive(Debug, Clone)]
pub struct RecoveryConfig {
    /// Segments and their indexes.
    pub segment: SegmentConfig,
    /// Producer state.
    pub psm: PsmConfig,
    /// Whether the clean-shutdown marker was there, and has been removed durably since.
    pub clean_shutdown: bool,
    /// `recovery-point-offset-checkpoint`; zero if unknown.
    pub recovery_point: Offset,
    /// The larger of `log-start-offset-checkpoint` and the metadata store's log start; zero if unknown.
    pub log_start_offset: Offset,
    /// weir's own files of this partition, beside the log directory. Made when something is written into it.
    pub side_dir: PathBuf,
    /// The wall clock. A load forgets nobody: idle producers go by `expire_producers`, before a restart as after it.
    pub now: TimestampMs,
}

/// The parts of a log, as found. Everything in it is synced.
#[derive(Debug)]
pub struct LoadedLog {
    /// The segments.
    pub log: LocalLog,
    /// Producer state at the log end.
    pub psm: ProducerStateManager,
    /// Leader epochs.
    pub epochs: LeaderEpochCache,
    /// They differ from the checkpoint, which could not be written.
    pub epochs_unsaved: bool,
    /// Barriers and trusted snapshots.
    pub partition_file: PartitionFile,
    /// The first offset that may be read.
    pub log_start_offset: Offset,
    /// The newest batch.
    pub last_batch: Option<LastBatch>,
}

/// Loads partitions; holds nothing.
#[derive(Debug)]
pub struct LogLoader;

impl LogLoader {
    /// Opens the log in `dir`, which is made if it is missing, and recovers it.
    ///
    /// After a clean shutdown the files are trusted, and read from the newest snapshot that weir wrote, which lies at
    /// the log end. After any other, every segment from the one that holds the recovery point is walked batch by
    /// batch. Without a snapshot that weir wrote, all batches on disk are replayed from the first segment; a snapshot
    /// is written then, so that this happens once.
    ///
    /// Cost: reads what it walks once, in order; may cut, sync and write small files. What the log can do without is
    /// not an error if it cannot be written.
    ///
    /// # Errors
    /// [`LoadError::Corrupt`]: nothing was cut, the partition stays offline.
    /// [`LoadError::Io`]: the disk failed.
    pub fn load(
        io: &mut dyn Io,
        dir: &Path,
        config: &RecoveryConfig,
    ) -> Result<(LoadedLog, RecoveryReport), LoadError> {
        Self::load_watched(io, dir, config, &mut Unwatched)
    }

    /// The same, and `watch` sees how far it is, may end it, and gives the report its durations.
    ///
    /// It is asked at least once for each MiB that is read or looked at; building the indexes of one segment and a
    /// producer snapshot are not ended halfway.
    ///
    /// # Errors
    /// As [`LogLoader::load`]; [`LoadError::Interrupted`] if the watch asked to stop: what was done stays done.
    pub fn load_watched(
        io: &mut dyn Io,
        dir: &Path,
        config: &RecoveryConfig,
        watch: &mut dyn Watch,
    ) -> Result<(LoadedLog, RecoveryReport), LoadError> {
        let mut report = RecoveryReport::default();
        let loaded = Self::load_into(io, dir, config, Purpose::Load, watch, &mut report)?;
        Ok((loaded, report))
    }

    /// The same, with a report that is filled as far as the load comes.
    pub(crate) fn load_into(
        io: &mut dyn Io,
        dir: &Path,
        config: &RecoveryConfig,
        purpose: Purpose,
        watch: &mut dyn Watch,
        report: &mut RecoveryReport,
    ) -> Result<LoadedLog, LoadError> {
        match io.metadata(dir)? {
            None => durable::create_dir_all(io, dir)?,
            Some(metadata) if !metadata.is_dir => {
                return Err(LoadError::NotADirectory { path: dir.to_path_buf() });
            }
            // What is appended to a file is gone with its name.
            Some(_) if !config.clean_shutdown => {
                durable::sync_names(io, dir)?;
                if io.metadata(&config.side_dir)?.is_some() {
                    durable::sync_names(io, &config.side_dir)?;
                }
            }
            Some(_) => {}
        }
        report.clean_shutdown = config.clean_shutdown;
        let mut meter = Meter::begin(watch, Phase::Leftovers, 0)?;
        let begun = meter.now();
        let mut found = leftovers::settle(io, dir, &mut report.leftovers)?;
        report.foreign = std::mem::take(&mut found.foreign);
        report.foreign_count = found.foreign_count;
        let known = Known::read(io, dir, config)?;
        let settled = meter.now();
        let mut load =
            Load { io, dir, config, purpose, found, known, report, last_indexes: None, cuts: Vec::new() };
        let mut mode = Mode::default();
        let walked = loop {
            match load.walk(mode, &mut meter)? {
                Outcome::Done(walked) => break *walked,
                Outcome::Again(next) => {
                    assert_ne!(next, mode, "every further walk asks for more than the one before");
                    mode = next;
                }
            }
        };
        let walked_at = meter.now();
        let (loaded, report) = load.finish(walked, &mut meter)?;
        if let (Some(begun), Some(settled), Some(walked), Some(done)) =
            (begun, settled, walked_at, meter.now())
        {
            report.duration = Some(done.saturating_sub(begun));
            report.times = Some(PhaseTimes {
                leftovers: settled.saturating_sub(begun),
                walk: walked.saturating_sub(settled),
                rebuild: done.saturating_sub(walked),
            });
        }
        Ok(loaded)
    }
}

/// What the small files say, before the log is looked at.
struct Known {
    partition_file: Option<Result<PartitionFile, PartitionFileError>>,
    /// `None`: absent or not readable.
    epochs: Option<LeaderEpochCache>,
    epochs_absent: bool,
    recovery_point: Offset,
}

impl Known {
    fn read(io: &mut dyn Io, dir: &Path, config: &RecoveryConfig) -> Result<Self, LoadError> {
        let partition_file = snapshots::read_partition_file(io, &config.side_dir)?;
        let recovery_point = match &partition_file {
            Some(Ok(file)) => file.effective_recovery_point(config.recovery_point),
            _ => config.recovery_point,
        };
        let bytes = match durable::read_file(io, &dir.join(LEADER_EPOCH_CHECKPOINT), SMALL_FILE_LIMIT) {
            Ok(bytes) => bytes,
            Err(IoError::Short { .. }) => Some(Bytes::new()),
            Err(error) => return Err(error.into()),
        };
        let epochs_absent = bytes.is_none();
        let epochs = bytes.and_then(|bytes| LeaderEpochCache::decode(&bytes).ok());
        Ok(Self { partition_file, epochs, epochs_absent, recovery_point })
    }

    fn usable_file(&self) -> Option<&PartitionFile> {
        match &self.partition_file {
            Some(Ok(file)) => Some(file),
            _ => None,
        }
    }
}

/// What a load is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The log is used afterwards.
    Load,
    /// Somebody wants to know, over a disk that only remembers: what nobody would read is not built.
    Look,
}

/// How much is trusted; each retry trusts less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mode {
    /// Walk segments from their first byte, whatever an index says.
    whole_segments: bool,
    /// Walk everything and use no snapshot.
    everything: bool,
}

enum Outcome {
    Done(Box<Walked>),
    Again(Mode),
}

/// What a walk found.
struct Walked {
    replay: Replay,
    epochs: LeaderEpochCache,
    epochs_changed: bool,
    log_end_offset: Offset,
    /// Transaction indexes that differ from what the log says.
    transaction_indexes: Vec<(Offset, TransactionIndex)>,
    /// All batches on disk were replayed because no snapshot was ours.
    replayed_for_want_of_ours: bool,
    /// Everything was walked because something was not as it was noted.
    distrusted_notes: bool,
}

/// Where a walk begins.
struct Plan {
    first_segment: usize,
    position: u64,
    feed_from: Offset,
    psm: ProducerStateManager,
    source: ProducerStateSource,
    /// Snapshots of ours that the walk comes to.
    later: VecDeque<ProducerStateManager>,
}

struct Load<'a> {
    io: &'a mut dyn Io,
    dir: &'a Path,
    config: &'a RecoveryConfig,
    purpose: Purpose,
    found: Directory,
    known: Known,
    report: &'a mut RecoveryReport,
    /// Indexes of the last segment, if the walk was over all of its batches.
    last_indexes: Option<IndexBuilder>,
    /// What the walk found to cut; nothing is, until it is done.
    cuts: Vec<Cut>,
}

impl<'a> Load<'a> {
    /// Base offsets of the segments, ascending.
    fn bases(&self) -> Vec<Offset> {
        self.found.segments.iter().copied().collect()
    }

    /// The segment from which an unclean start distrusts everything; `None` after a clean shutdown.
    fn first_distrusted(&self, bases: &[Offset]) -> Option<usize> {
        if self.config.clean_shutdown {
            return None;
        }
        Some(bases.partition_point(|&base| base <= self.known.recovery_point).saturating_sub(1))
    }

    fn plan(&mut self, bases: &[Offset], mode: Mode) -> Result<Plan, LoadError> {
        let first_base = bases.first().copied().unwrap_or(Offset::ZERO);
        let distrusted = self.first_distrusted(bases);
        let fresh = |reason| Plan {
            first_segment: 0,
            position: 0,
            feed_from: Offset::ZERO,
            psm: ProducerStateManager::new(self.config.psm),
            source: ProducerStateSource::Replay { from: first_base, reason },
            later: VecDeque::new(),
        };
        let file = match &self.known.partition_file {
            None => return Ok(fresh(NoSnapshot::NoPartitionFile)),
            Some(Err(error)) => return Ok(fresh(NoSnapshot::PartitionFileUnreadable(*error))),
            Some(Ok(file)) => file.clone(),
        };
        if mode.everything {
            // Segments before the first may be deleted, and with them batches of which only a snapshot knows.
            let psm = self.config.psm;
            let later = snapshots::load_all(self.io, self.dir, &file, first_base, psm)?;
            return Ok(Plan { later, ..fresh(NoSnapshot::WalkedAnyway) });
        }
        // A snapshot in the middle of a segment that is rebuilt would leave its transaction index half known.
        let limit = match distrusted {
            None => offset_max(),
            Some(index) => bases.get(index).copied().unwrap_or(first_base),
        };
        // Nor would the batches that are left tell of those whose segments are gone: then a later one does, if what is
        // noted of the transactions below it is what is found.
        let limits = if first_base > Offset::ZERO { vec![limit, offset_max()] } else { vec![limit] };
        let (mut loaded, mut reason) = (None, NoSnapshot::NoneNamed);
        for limit in limits {
            if loaded.is_none() && file.usable_snapshots(first_base, limit).next().is_some() {
                reason = NoSnapshot::NoneIntact;
                loaded =
                    snapshots::load_newest(self.io, self.dir, &file, first_base, limit, self.config.psm)?;
            }
        }
        let Some(psm) = loaded else {
            let first = distrusted == Some(0) && reason == NoSnapshot::NoneNamed;
            return Ok(fresh(if first { NoSnapshot::WalkedAnyway } else { reason }));
        };
        let feed_from = psm.map_end_offset();
        let of_snapshot = bases.partition_point(|&base| base <= feed_from).saturating_sub(1);
        let first_segment = distrusted.map_or(of_snapshot, |index| index.min(of_snapshot));
        let position = match (distrusted, bases.get(first_segment)) {
            (None, Some(&base)) if !mode.whole_segments => self.indexed_position(base, feed_from)?,
            _ => 0,
        };
        let source = ProducerStateSource::Snapshot { offset: feed_from };
        Ok(Plan { first_segment, position, feed_from, psm, source, later: VecDeque::new() })
    }

    /// Where the walk over a trusted segment may begin to find all that is at or above `offset`.
    fn indexed_position(&mut self, base: Offset, offset: Offset) -> Result<u64, LoadError> {
        let path = file_path(self.dir, base, FileKind::OffsetIndex);
        let bytes = match durable::read_file(self.io, &path, SMALL_FILE_LIMIT) {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(IoError::Short { .. }) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        Ok(weir_segment::OffsetIndex::decode(base, &bytes).map_or(0, |index| index.lookup(offset)))
    }

    /// One walk over what `mode` does not trust. Writes indexes that it has built; nothing else.
    fn walk(&mut self, mode: Mode, meter: &mut Meter<'_>) -> Result<Outcome, LoadError> {
        let bases = self.bases();
        self.cuts.clear();
        let plan = self.plan(&bases, mode)?;
        let mut total = 0;
        for &base in bases.iter().skip(plan.first_segment) {
            let metadata = self.io.metadata(&file_path(self.dir, base, FileKind::Log))?;
            total += metadata.map_or(0, |metadata| metadata.size);
        }
        meter.enter(Phase::Walk, total.saturating_sub(plan.position))?;
        let distrusted = self.first_distrusted(&bases);
        let replayed_for_want_of_ours = matches!(
            &plan.source,
            ProducerStateSource::Replay { reason, .. } if *reason != NoSnapshot::WalkedAnyway
        );
        let file = self.known.usable_file().cloned().unwrap_or_default();
        let mut replay = Replay::new(plan.psm, file, plan.feed_from).going_on_from(plan.later);
        let mut log_end_offset = bases.first().copied().unwrap_or(Offset::ZERO);
        let mut transaction_indexes = Vec::new();
        let mut misnoted = false;
        self.report.producer_state = plan.source;
        self.report.segment_count = bases.len();
        self.report.log_bytes = 0;
        self.report.walked_from = bases.get(plan.first_segment).copied();
        for (index, &base) in bases.iter().enumerate() {
            if index < plan.first_segment {
                let size = self.io.metadata(&file_path(self.dir, base, FileKind::Log))?.map_or(0, |m| m.size);
                self.report.log_bytes += size;
                // Its batches are not read, so only the partition file knows whether its index is right.
                let end = bases.get(index + 1).copied().unwrap_or(plan.feed_from).min(plan.feed_from);
                let transactions = self.read_transactions(base)?;
                if !transactions.is_some_and(|index| replay.file.knows_transactions(base, &index, end)) {
                    return Ok(Outcome::Again(Mode { everything: true, ..mode }));
                }
                continue;
            }
            let part = SegmentPart {
                base,
                next_segment: bases.get(index + 1).copied(),
                last_segment: bases.last().copied().filter(|&last| last != base),
                position: if index == plan.first_segment { plan.position } else { 0 },
                sync: distrusted.is_some_and(|first| index >= first),
            };
            let Some(end) = self.walk_segment(&part, &mut replay, meter)? else {
                return Ok(Outcome::Again(Mode { whole_segments: true, ..mode }));
            };
            log_end_offset = end;
            match self.compare_transactions(&part, &replay)? {
                Compared::Same => {}
                Compared::Misnoted => misnoted = true,
                Compared::Differs(right) => transaction_indexes.push((base, right)),
                Compared::Unknown => return Ok(Outcome::Again(Mode { everything: true, ..mode })),
            }
        }
        replay.reach(log_end_offset, log_end_offset);
        if let Some(offset) = replay.gone_on_from {
            self.report.producer_state = ProducerStateSource::Snapshot { offset };
        }
        if replay.snapshot_is_foreign || plan.feed_from > log_end_offset {
            return Ok(Outcome::Again(Mode { everything: true, ..mode }));
        }
        let first_base = bases.first().copied().unwrap_or(Offset::ZERO);
        let start = self.config.log_start_offset.max(first_base).min(log_end_offset);
        let whole = plan.first_segment == 0 && plan.position == 0;
        match self.settle_epochs(&replay, start, log_end_offset, whole) {
            None => Ok(Outcome::Again(Mode { everything: true, ..mode })),
            Some((epochs, epochs_changed)) => Ok(Outcome::Done(Box::new(Walked {
                replay,
                epochs,
                epochs_changed,
                log_end_offset,
                transaction_indexes,
                replayed_for_want_of_ours,
                distrusted_notes: mode.everything || misnoted,
            }))),
        }
    }

    /// Walks one segment; its end, or `None` if the walk did not begin at a batch.
    fn walk_segment(
        &mut self,
        part: &SegmentPart,
        replay: &mut Replay,
        meter: &mut Meter<'_>,
    ) -> Result<Option<Offset>, LoadError> {
        let path = file_path(self.dir, part.base, FileKind::Log);
        let mut indexes = part.sync.then(|| IndexBuilder::new(part.base, &self.config.segment));
        // Opened to append, a file is read past the page cache where the backend can.
        let file = self.io.open(&path, Open::Append)?;
        let walked = self.walk_file(part, file, replay, &mut indexes, meter);
        let closed = self.io.close(file);
        let walked = walked?;
        closed?;
        let end = match walked {
            Stopped::NoBatch => return Ok(None),
            Stopped::End { next_offset } => next_offset,
            Stopped::Invalid { size, position, next_offset, found } => {
                // Looks at single sectors follow, which the page cache makes cheap.
                let file = self.io.open(&path, Open::Read)?;
                let before = meter.enter(Phase::Tail, size - position);
                let judged = before.map_err(LoadError::from).and_then(|before| {
                    let place = Place { file: path, size, position, next_offset, found };
                    let cut = self.judge(part, place, file, meter)?;
                    meter.resume(before);
                    meter.add(size - position)?;
                    Ok(cut)
                });
                let closed = self.io.close(file);
                self.cuts.push(judged?);
                closed?;
                next_offset
            }
        };
        self.keep_indexes(part, indexes);
        Ok(Some(end))
    }

    /// Index files of a distrusted segment may have been written to since they were last synced: those that the walk has
    /// built take their place.
    fn keep_indexes(&mut self, part: &SegmentPart, indexes: Option<IndexBuilder>) {
        let Some(indexes) = indexes else { return };
        if part.next_segment.is_none() {
            self.last_indexes = Some(indexes);
        } else if self.purpose == Purpose::Load {
            let written = indexes.write_files(self.io, self.dir);
            self.can_do_without("index files", written);
        }
    }

    fn walk_file(
        &mut self,
        part: &SegmentPart,
        file: FileId,
        replay: &mut Replay,
        indexes: &mut Option<IndexBuilder>,
        meter: &mut Meter<'_>,
    ) -> Result<Stopped, LoadError> {
        replay.aborted.clear();
        meter.tell()?;
        let size = self.io.len(file)?;
        self.report.log_bytes += size;
        if part.position > 0 && part.position >= size {
            return Ok(Stopped::NoBatch);
        }
        let mut view = FileView { io: &mut *self.io, file, size };
        let mut walker = Walker::new(part.position);
        let walked = walk_batches(part, &mut view, &mut walker, replay, indexes, meter);
        let finished = walker.finish(self.io);
        let stopped = walked?;
        finished?;
        if part.sync && matches!(stopped, Stopped::End { .. }) {
            // DURABLE: what a killed process wrote and never synced is about to be acknowledged by being read.
            exact::sync(self.io, file, SyncKind::Data)?;
        }
        Ok(stopped)
    }

    /// Says what is to be cut at a place that is not valid, or that it is corruption.
    fn judge(
        &mut self,
        part: &SegmentPart,
        place: Place,
        file: FileId,
        meter: &mut Meter<'_>,
    ) -> Result<Cut, LoadError> {
        let Place { file: path, size, position, next_offset, found } = place;
        let view = FileView { io: &mut *self.io, file, size };
        let mut view = Metered { view, meter };
        let place = InvalidPlace {
            position,
            next_offset,
            recovery_point: if self.config.clean_shutdown { offset_max() } else { self.known.recovery_point },
            last_segment: part.next_segment.is_none(),
            max_unsynced: MAX_UNSYNCED_BYTES,
        };
        // After a clean shutdown nothing is expected behind the last batch but preallocated zeros.
        let clean_zeros = self.config.clean_shutdown && tail::zeros_until(&mut view, position, size)?;
        let verdict = if clean_zeros { TailVerdict::Zeros } else { judge_tail(&mut view, &place)? };
        // Behind it is space that was allocated ahead, by whole blocks.
        let data_end = match &verdict {
            TailVerdict::Zeros => position,
            TailVerdict::Hole { behind, .. } => tail::data_end(&mut view, position)?.max(behind.end_position),
            TailVerdict::Torn | TailVerdict::Corrupt { .. } => tail::data_end(&mut view, position)?,
        };
        let data_end =
            if data_end > position { data_end.next_multiple_of(BLOCK_SIZE).min(size) } else { position };
        let kind = match verdict {
            TailVerdict::Corrupt { reason, behind } => {
                return Err(LoadError::Corrupt(Box::new(Corruption {
                    file: path,
                    position,
                    next_offset,
                    found,
                    reason,
                    behind,
                    last_segment: part.last_segment,
                })));
            }
            TailVerdict::Zeros => None,
            TailVerdict::Torn => Some(CutKind::Torn),
            TailVerdict::Hole { behind, .. } => Some(CutKind::Hole {
                archive: Self::archive_path(self.config, part.base, &mut view, position, data_end)?,
                first_offset: behind.base_offset,
                end_offset: behind.end_offset,
            }),
        };
        Ok(Cut { file: path, size, position, data_end, kind })
    }

    /// Where the bytes that are about to be cut will be kept.
    fn archive_path<R: TailRead>(
        config: &RecoveryConfig,
        base: Offset,
        view: &mut R,
        position: u64,
        end: u64,
    ) -> Result<PathBuf, R::Error> {
        let crc = tail::crc(view, crc_fast::CrcAlgorithm::Crc32Iscsi, position, end)?;
        let crc = u32::try_from(crc).expect("a 32-bit CRC fits 32 bits");
        Ok(archive::path_of(&config.side_dir, base, position, crc))
    }

    /// Takes off the ends of segments what the walk said: the first change that a load makes in a `.log` file, and it has
    /// met no corruption anywhere.
    fn cut(&mut self, meter: &mut Meter<'_>) -> Result<(), LoadError> {
        if self.cuts.is_empty() {
            return Ok(());
        }
        let archived = self.cuts.iter().filter(|cut| cut.archive().is_some()).map(Cut::data_size).sum();
        meter.enter(Phase::Archive, archived)?;
        for cut in std::mem::take(&mut self.cuts) {
            if let (Some(to), Purpose::Load) = (cut.archive(), self.purpose) {
                if self.io.metadata(&self.config.side_dir)?.is_none() {
                    durable::create_dir_all(self.io, &self.config.side_dir)?;
                }
                let bytes = archive::Bytes { file: &cut.file, position: cut.position, size: cut.data_size() };
                let add = |part| -> Result<(), LoadError> { Ok(meter.add(part)?) };
                if !archive::copy(self.io, bytes, to, add)? {
                    return Err(LoadError::Changed { file: cut.file });
                }
            }
            let file = self.io.open(&cut.file, Open::Write)?;
            // DURABLE: what was cut stays gone (R3), and what is kept is there (R1).
            let done =
                self.io.truncate(file, cut.position).and_then(|()| exact::sync(self.io, file, SyncKind::All));
            let closed = self.io.close(file);
            done?;
            closed?;
            let Cut { file, size, position, data_end, kind } = cut;
            let ahead = (size > data_end).then_some(CutKind::Preallocated);
            for (kind, size) in [(kind, data_end - position), (ahead, size - data_end)] {
                if let Some(kind) = kind {
                    self.report.cuts.push(CutTail { file: file.clone(), position, size, kind });
                }
            }
        }
        Ok(())
    }

    /// The transaction index of a segment as it is on disk; `None` if it is spoilt.
    fn read_transactions(&mut self, base: Offset) -> Result<Option<TransactionIndex>, LoadError> {
        // Most segments have none, and there may be many segments.
        if !self.found.transaction_indexes.contains(&base) {
            return Ok(Some(TransactionIndex::new()));
        }
        let path = file_path(self.dir, base, FileKind::TransactionIndex);
        match durable::read_file(self.io, &path, SMALL_FILE_LIMIT) {
            Ok(bytes) => Ok(TransactionIndex::decode(base, &bytes.unwrap_or_default()).ok()),
            // Larger than any that is right.
            Err(IoError::Short { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What the transaction index of a walked segment should be, and whether it is.
    fn compare_transactions(&mut self, part: &SegmentPart, replay: &Replay) -> Result<Compared, LoadError> {
        let on_disk = self.read_transactions(part.base)?;
        // What was aborted below the snapshot is only in the index, or in the bytes that were not fed.
        if replay.feed_from > part.base {
            let end = part.next_segment.unwrap_or(replay.feed_from).min(replay.feed_from);
            let knows = |index: &TransactionIndex| replay.file.knows_transactions(part.base, index, end);
            if !on_disk.as_ref().is_some_and(knows) {
                return Ok(Compared::Unknown);
            }
        }
        let mut right = TransactionIndex::new();
        let below = |entry: &&AbortedTransaction| entry.last_offset < replay.feed_from;
        for entry in on_disk.iter().flat_map(|index| index.entries()).filter(below).chain(&replay.aborted) {
            right.append(*entry);
        }
        if on_disk.as_ref() != Some(&right) {
            return Ok(Compared::Differs(right));
        }
        // A crash may have come between the index and its note.
        let indexed = replay.file.indexed();
        let is_noted = part.base >= indexed || replay.file.knows_transactions(part.base, &right, indexed);
        Ok(if is_noted { Compared::Same } else { Compared::Misnoted })
    }

    /// The leader epochs, and whether they differ from the checkpoint; `None` if only a walk over everything can tell.
    fn settle_epochs(
        &self,
        replay: &Replay,
        start: Offset,
        log_end_offset: Offset,
        whole: bool,
    ) -> Option<(LeaderEpochCache, bool)> {
        if let Some(checkpoint) = &self.known.epochs {
            let mut epochs = checkpoint.clone();
            epochs.truncate_above(log_end_offset);
            for entry in replay.witness.entries() {
                if epochs.latest().is_none_or(|latest| entry.epoch > latest.epoch) {
                    epochs.assign(entry.epoch, entry.start_offset);
                }
            }
            // If the walk's first epoch had to be added, others may be missing between the checkpoint and the walk.
            let first = replay.witness.entries().first();
            let whole_story = whole
                || first
                    .is_none_or(|first| checkpoint.entries().iter().any(|entry| entry.epoch == first.epoch));
            if whole_story && replay.witness.agrees_with(&epochs, start) {
                epochs.truncate_from_start(start);
                let changed = epochs != *checkpoint;
                return Some((epochs, changed));
            }
        }
        if !whole {
            return None;
        }
        let nothing = LeaderEpochCache::new();
        let known = self.known.epochs.as_ref().unwrap_or(&nothing);
        let mut epochs = replay.witness.completed_by(known, log_end_offset);
        epochs.truncate_from_start(start);
        // Of messages alone there is no epoch, and a checkpoint that says so saves the next start this walk.
        let is_empty = epochs.entries().is_empty() && replay.last_batch.is_none();
        let changed = !(self.known.epochs_absent && is_empty);
        Some((epochs, changed))
    }

    /// Writes what differs, opens the segments, and makes the report.
    fn finish(
        mut self,
        walked: Walked,
        meter: &mut Meter<'_>,
    ) -> Result<(LoadedLog, &'a mut RecoveryReport), LoadError> {
        let Walked { replay, epochs, epochs_changed, log_end_offset, transaction_indexes, .. } = walked;
        let Replay { mut psm, mut file, last_batch, .. } = replay;
        let bases = self.bases();
        if psm.map_end_offset() < log_end_offset {
            psm.update_map_end_offset(log_end_offset);
        }
        file.set_checked(log_end_offset);
        self.cut(meter)?;
        self.drop_snapshots_above(log_end_offset, &mut file)?;
        let mut log = self.open_segments(&bases, log_end_offset)?;
        if let Some(first) = self.first_distrusted(&bases) {
            // The walk has built them.
            let size_of = |log: &LocalLog, base| {
                log.segments().find(|segment| segment.base_offset() == base).map_or(0, LogSegment::size)
            };
            meter.enter(Phase::Rebuild, bases[first..].iter().map(|&base| size_of(&log, base)).sum())?;
            for &segment in &bases[first..] {
                if let Err(stop) = meter.tell() {
                    log.abandon(self.io).map_err(open_error)?;
                    return Err(stop.into());
                }
                if let Err(stop) = meter.add(size_of(&log, segment)) {
                    log.abandon(self.io).map_err(open_error)?;
                    return Err(stop.into());
                }
                self.report.rebuilt.push(Rebuilt::Indexes { segment });
            }
        }
        let notes_are_old = walked.distrusted_notes || !transaction_indexes.is_empty();
        for (segment, index) in transaction_indexes {
            log.adopt_transactions(segment, index).map_err(open_error)?;
            self.report.rebuilt.push(Rebuilt::TransactionIndex { segment });
        }
        let written = match self.purpose {
            Purpose::Load => log.write_transactions(self.io),
            Purpose::Look => Ok(()),
        };
        let transactions_written = self.can_do_without("transaction index", written);
        let mut epochs_unsaved = false;
        if epochs_changed {
            self.report.rebuilt.push(Rebuilt::LeaderEpochs);
            let path = self.dir.join(LEADER_EPOCH_CHECKPOINT);
            let written = durable::replace(self.io, &path, Bytes::from(epochs.encode()));
            epochs_unsaved = !self.can_do_without("leader-epoch checkpoint", written);
        }
        if notes_are_old {
            file.forget_transactions();
        }
        // A start from a snapshot looks at no transaction index below it, and at no batch that would say its epoch.
        let may_be_started_from = transactions_written && !epochs_unsaved;
        if walked.replayed_for_want_of_ours && last_batch.is_some() && may_be_started_from {
            self.report.rebuilt.push(Rebuilt::PartitionFile);
            let written = match self.purpose {
                Purpose::Load => {
                    snapshots::write_snapshot(self.io, self.dir, &self.config.side_dir, &psm, &mut file)
                }
                Purpose::Look => Ok(()),
            };
            self.can_do_without("producer snapshot", written);
        } else if notes_are_old && transactions_written && self.purpose == Purpose::Load {
            let noted = snapshots::note_transaction_indexes(self.io, self.dir, log_end_offset, &mut file)
                .and_then(|()| snapshots::write_partition_file(self.io, &self.config.side_dir, &file));
            self.can_do_without("partition file", noted);
        }
        let last_batch = match last_batch {
            None => self.find_last_batch(&bases)?,
            found => found,
        };
        let first_base = log.first_offset();
        let asked = self.config.log_start_offset;
        let log_start_offset = asked.max(first_base).min(log_end_offset);
        let report = &mut *self.report;
        report.log_start_above_end = (asked > log_end_offset).then_some(asked);
        let recovery_point = self.known.recovery_point;
        report.ends_below_recovery_point = (recovery_point > log_end_offset).then_some(recovery_point);
        report.log_start_offset = log_start_offset;
        report.log_end_offset = log_end_offset;
        report.kept_bytes = log.size();
        report.batch_count = replay.batch_count;
        report.checked_bytes = replay.checked_bytes;
        report.tolerated_count = replay.tolerated_count;
        report.barriers = replay.barriers;
        report.producer_count = psm.producer_count();
        report.open_transaction_count = psm.open_transactions().count();
        if last_batch.is_none() && psm.producer_count() == 0 {
            report.producer_state = ProducerStateSource::Empty;
        }
        let loaded = LoadedLog {
            log,
            psm,
            epochs,
            epochs_unsaved,
            partition_file: file,
            log_start_offset,
            last_batch,
        };
        Ok((loaded, self.report))
    }

    /// Opens the segments, which end where the walk did.
    fn open_segments(&mut self, bases: &[Offset], log_end_offset: Offset) -> Result<LocalLog, LoadError> {
        let mut indexes_dropped = false;
        loop {
            let walked = self.last_indexes.take();
            let log = LocalLog::open_walked(self.io, self.dir, self.config.segment, Offset::ZERO, walked);
            let log = log.map_err(open_error)?;
            if log.log_end_offset() == log_end_offset && log.tail().is_none() {
                return Ok(log);
            }
            let opened = log.log_end_offset();
            log.abandon(self.io).map_err(open_error)?;
            if indexes_dropped {
                let dir = self.dir.to_path_buf();
                return Err(LoadError::EndsDiffer { dir, walked: log_end_offset, opened });
            }
            // An index that lies about where batches are.
            self.drop_indexes(bases)?;
            indexes_dropped = true;
        }
    }

    /// A snapshot above the log end is of bytes that are gone: it must never be loaded once the log has grown again.
    fn drop_snapshots_above(
        &mut self,
        log_end_offset: Offset,
        file: &mut PartitionFile,
    ) -> Result<(), LoadError> {
        let above: Vec<Offset> =
            file.snapshots().map(|(offset, _)| offset).filter(|&offset| offset > log_end_offset).collect();
        for &offset in &above {
            file.forget_snapshot(offset);
        }
        if self.found.snapshots.iter().any(|&offset| offset > log_end_offset) {
            // Needs no space, so it works on a full disk, where the file that names them cannot be written.
            snapshots::remove_snapshots(self.io, self.dir, |offset| offset > log_end_offset)?;
        }
        if !above.is_empty() {
            let written = snapshots::write_partition_file(self.io, &self.config.side_dir, file);
            self.can_do_without("partition file", written);
        }
        Ok(())
    }

    /// Removes index files, which are built again when they are needed.
    fn drop_indexes(&mut self, bases: &[Offset]) -> Result<(), LoadError> {
        for &segment in bases {
            for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
                let path = file_path(self.dir, segment, kind);
                if self.io.metadata(&path)?.is_some() {
                    self.io.remove(&path)?;
                }
            }
        }
        Ok(())
    }

    /// The newest batch, when the walk met none: the last one of the newest segment that has any.
    fn find_last_batch(&mut self, bases: &[Offset]) -> Result<Option<LastBatch>, LoadError> {
        for &base in bases.iter().rev() {
            let path = file_path(self.dir, base, FileKind::Log);
            let start = self.indexed_position(base, offset_max())?;
            for position in [start, 0] {
                let file = self.io.open(&path, Open::Read)?;
                let last = self.io.len(file).and_then(|size| {
                    let mut view = FileView { io: &mut *self.io, file, size };
                    last_in(&mut view, position)
                });
                self.io.close(file)?;
                if let Some(last) = last? {
                    return Ok(Some(last));
                }
            }
        }
        Ok(None)
    }

    /// Notes a failure that does not keep the log from being served, on a full disk for example; whether there was none.
    fn can_do_without(&mut self, what: &'static str, done: Result<(), IoError>) -> bool {
        let Err(error) = done else { return true };
        let because: &(dyn std::error::Error + 'static) = &error;
        tracing::warn!(error = because, what, dir = %self.dir.display(), "could not be written, going on without");
        self.report.skipped.push(Skipped { what, cause: error.to_string() });
        false
    }
}

/// A transaction index on disk, compared with what a walk found.
enum Compared {
    Same,
    /// It is right, and the partition file says that it is another one.
    Misnoted,
    Differs(TransactionIndex),
    /// It is spoilt, and the walk did not see all that belongs into it.
    Unknown,
}

/// One segment of a walk.
struct SegmentPart {
    base: Offset,
    next_segment: Option<Offset>,
    last_segment: Option<Offset>,
    position: u64,
    sync: bool,
}

/// Where a walk stopped at something that is no batch of this log.
struct Place {
    file: PathBuf,
    /// Of the file, in bytes.
    size: u64,
    position: u64,
    next_offset: Offset,
    found: Invalid,
}

/// What is to be cut from the end of a segment, once the whole log was walked.
struct Cut {
    file: PathBuf,
    /// Of the file, in bytes.
    size: u64,
    /// Where it will end.
    position: u64,
    /// Behind it is space that was allocated ahead.
    data_end: u64,
    /// Of what lies in front of `data_end`.
    kind: Option<CutKind>,
}

impl Cut {
    /// Bytes that go, and were not only allocated.
    fn data_size(&self) -> u64 {
        self.data_end - self.position
    }

    /// Where they are kept.
    fn archive(&self) -> Option<&Path> {
        self.kind.as_ref().and_then(CutKind::archive)
    }
}

fn offset_max() -> Offset {
    Offset::new(i64::MAX).expect("not negative")
}

/// Where a walk over one segment ended.
enum Stopped {
    /// At the end of the file.
    End { next_offset: Offset },
    /// At something that is no batch of this log.
    Invalid { size: u64, position: u64, next_offset: Offset, found: Invalid },
    /// Where it began, led by an index: that is no reason to doubt the log.
    NoBatch,
}

/// Feeds the batches of one segment, from the first to the first byte that is none.
fn walk_batches(
    part: &SegmentPart,
    view: &mut FileView<'_>,
    walker: &mut Walker,
    replay: &mut Replay,
    indexes: &mut Option<IndexBuilder>,
    meter: &mut Meter<'_>,
) -> Result<Stopped, LoadError> {
    let size = view.size;
    let mut bounds = Bounds { next_offset: part.base, next_segment: part.next_segment };
    loop {
        let (position, next_offset) = (walker.position(), bounds.next_offset);
        let found = match walker.next(view)? {
            Frame::End => return Ok(Stopped::End { next_offset }),
            Frame::Invalid(error) => {
                std::mem::replace(walker, Walker::new(position)).finish(view.io)?;
                let mut led_astray = false;
                let run = messages(view, position, |message| -> Result<_, LoadError> {
                    meter.add(u64::try_from(message.size()).unwrap_or(u64::MAX))?;
                    led_astray |= position > 0
                        && position == part.position
                        && bounds.next_offset == part.base
                        && message.offset() > replay.feed_from;
                    Ok(bounds.admit_message(message).map(|()| {
                        replay.message(message);
                        if let Some(indexes) = indexes.as_mut() {
                            indexes.message(message);
                        }
                    }))
                })?;
                if led_astray {
                    return Ok(Stopped::NoBatch);
                }
                *walker = Walker::new(run.position);
                if run.position > position {
                    continue;
                }
                Err(run.stopped.unwrap_or(Invalid::Batch(error)))
            }
            // An index that leads behind what is looked for would leave batches out.
            Frame::Batch(batch)
                if position > 0 && position == part.position && batch.base_offset() > replay.feed_from =>
            {
                return Ok(Stopped::NoBatch);
            }
            Frame::Batch(batch) => {
                let fed = bounds.admit(&batch).and_then(|()| replay.batch(&batch));
                if let (Ok(()), Some(indexes)) = (&fed, indexes.as_mut()) {
                    indexes.batch(&batch.header());
                }
                fed
            }
        };
        if let Err(found) = found {
            if position == part.position && position > 0 {
                return Ok(Stopped::NoBatch);
            }
            return Ok(Stopped::Invalid { size, position, next_offset, found });
        }
        meter.add(walker.position() - position)?;
    }
}

/// The last valid batch from `position` on.
fn last_in(view: &mut FileView<'_>, position: u64) -> Result<Option<LastBatch>, IoError> {
    let mut walker = Walker::new(position);
    let mut last = None;
    let walked = loop {
        match walker.next(view) {
            Ok(Frame::Batch(batch)) => last = Some(LastBatch::of(&batch)),
            Ok(Frame::Invalid(_)) => {
                let position = walker.position();
                std::mem::replace(&mut walker, Walker::new(position)).finish(view.io)?;
                let run = messages(view, position, |message| -> Result<_, IoError> {
                    last = Some(LastBatch::of_message(message));
                    Ok(Ok(()))
                })?;
                if run.position == position {
                    break Ok(last);
                }
                walker = Walker::new(run.position);
            }
            Ok(Frame::End) => break Ok(last),
            Err(error) => break Err(error),
        }
    };
    walker.finish(view.io)?;
    walked
}

pub(crate) fn open_error(error: SegmentError) -> LoadError {
    match error {
        SegmentError::Io(error) => LoadError::Io(error),
        error => LoadError::Segment(error),
    }
}
