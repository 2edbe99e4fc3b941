//! From a partition's directory to a [`PartitionReport`]: what is there, and what a start of weir would do about it.
//!
//! It walks every segment as a start after a crash does, with the same judge of torn tails, the same gate for producer
//! state and the same bounds, and goes on behind what is corrupt as far as that can be read.
//! Nothing is held of a batch once it is counted; what is held besides is bounded by the constants below.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weir_format::{Codec, LeaderEpoch, MirrorPidReset, Offset, ProducerId, RecordBatch, TimestampMs};
use weir_psm::{AppendOrigin, Applied, Checked, ProducerStateManager, PsmConfig, snapshot};
use weir_recovery::partition_file::{PARTITION_FILE_LIMIT, PARTITION_FILE_NAME};
use weir_recovery::tail::{CorruptReason, InvalidPlace, TailVerdict, ValidBehind, judge_tail};
use weir_recovery::{Invalid, LeaderEpochCache, MAX_UNSYNCED_BYTES, PartitionFile, aborted_entries};
use weir_segment::io::BLOCK_SIZE;
use weir_segment::io::durable::TEMPORARY_SUFFIX;
use weir_segment::layout::{
    DirectoryName, FileKind, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SegmentFileName, Stage, file_path,
};
use weir_segment::{AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex};

use super::context::{LogDir, SMALL_FILE_LIMIT, topic_id};
use super::files::{Entry, FileBytes, Files, read_small, read_up_to};
use super::report::{
    ArchiveReport, BarrierReport, BatchSummary, Code, ControlRecord, ControlReport, EpochReport, Finding,
    Gap, IndexState, OpenTransactionReport, PartitionReport, ProducerReport, ProducersReport, SegmentReport,
    SegmentTail, Severity, SideFile, SnapshotReport, Verdict,
};
use super::walk::{Halt, OldMessage, Step, Tail, Walker, Watch, data_end};
use crate::cli::dump_log::Control;
use crate::shard::describe;

/// Files of a partition that are not named by an offset.
const KNOWN: [&str; 2] = [LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA];
/// No segment is larger: Kafka's and weir's end at 2 GiB, and one batch of that size.
pub(in crate::cli) const MAX_SEGMENT_SIZE: u64 = 5 << 30;
/// No index beside a segment is larger than this.
const MAX_INDEX_SIZE: u64 = 64 << 20;
/// Snapshots up to this size are decoded, not only counted.
const MAX_DECODED_SNAPSHOT: u64 = 16 << 20;
/// A file system tells data from holes by blocks of at most this size.
const LARGEST_DISK_BLOCK: u64 = 64 << 10;
/// Larger ones weir never loads.
const MAX_SNAPSHOT: u64 = 1 << 30;
/// Control records that are kept; others are counted.
const MAX_CONTROL_RECORDS: usize = 200_000;
/// Control records whose values may be of any size and are kept.
const MAX_LARGE_CONTROL_RECORDS: usize = 1_000;
/// Transactions that are named at one barrier.
const MAX_ABORTED_AT_BARRIER: usize = 1_000;
/// Producers that are followed at a time: about half a GiB.
const MAX_PRODUCERS: usize = 2_000_000;
/// Producers and open transactions that are named.
const MAX_NAMED: usize = 1_000;
/// Gaps that are named.
const MAX_GAPS: usize = 1_000;
/// Corrupt places behind which the walk goes on.
const MAX_CORRUPT_PLACES: usize = 8;
/// Findings of one kind that are kept.
const MAX_FINDINGS: usize = 100;
/// Leader epochs of which it is known whether they have batches.
const MAX_EPOCHS: usize = 1 << 20;

/// What an inspection is told.
pub struct Inspection<'a> {
    /// Where to read.
    pub files: &'a dyn Files,
    /// Whether to go on.
    pub watch: Watch<'a>,
    /// The wall clock, for ages.
    pub now: TimestampMs,
    /// Waits until a running node may have written more; false if nothing else writes here.
    pub wait_for_writer: &'a dyn Fn() -> bool,
}

/// Looks at one partition's directory. Never fails: what cannot be read is part of the report.
///
/// With `only`, at the segment of that base offset alone: nothing is known of what stands in front of it.
pub(super) fn partition(
    inspection: &Inspection<'_>,
    dir: &Path,
    log_dir: &LogDir,
    only: Option<i64>,
) -> PartitionReport {
    let mut analysis = Analysis::new(inspection, dir, log_dir);
    match analysis.run(only) {
        Ok(()) => {}
        Err(Halt::Interrupted) => {
            analysis.report.complete = false;
            analysis.follow.end = analysis.follow.end.max(analysis.follow.psm.map_end_offset());
            analysis.settle(analysis.follow.first);
        }
        Err(Halt::Io(error)) => analysis.unreadable(dir.to_path_buf(), &error),
    }
    analysis.finish()
}

/// What stands in the directory, by name.
#[derive(Default)]
struct Names {
    /// Base offset of each segment, and what its `.log` is.
    segments: BTreeMap<i64, PathBuf>,
    snapshots: Vec<(i64, PathBuf)>,
    others: BTreeMap<(i64, FileKind), PathBuf>,
}

struct Analysis<'a> {
    files: &'a dyn Files,
    watch: &'a Watch<'a>,
    inspection: &'a Inspection<'a>,
    log_dir: &'a LogDir,
    report: PartitionReport,
    side_file: Option<PartitionFile>,
    recovery_point: Offset,
    high_watermark: Offset,
    follow: Follow,
    corrupt_places: usize,
    large_control_records: usize,
}

/// Producer state and leader epochs, as far as they could be followed.
struct Follow {
    psm: ProducerStateManager,
    /// False behind the first place that a start would not pass.
    served: bool,
    /// Whether producer state is followed; not behind that place either.
    on: bool,
    epochs: LeaderEpochCache,
    epochs_with_batches: BTreeMap<i32, ()>,
    last_epoch: Option<LeaderEpoch>,
    /// When each open transaction's first batch was written.
    begun: BTreeMap<ProducerId, TimestampMs>,
    tolerated: u64,
    barriers_met: u64,
    /// Base offset of the first segment.
    first: Offset,
    /// Behind the last batch that a start would serve.
    end: Offset,
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn known(timestamp: TimestampMs) -> Option<i64> {
    (timestamp != TimestampMs::NONE).then(|| timestamp.get())
}

impl<'a> Analysis<'a> {
    fn new(inspection: &'a Inspection<'a>, dir: &Path, log_dir: &'a LogDir) -> Self {
        let name = dir.file_name().map(|name| name.to_string_lossy());
        let name = name.and_then(|name| match DirectoryName::parse(&name) {
            DirectoryName::Partition(name) => Some(name),
            _ => None,
        });
        let recovery_point = LogDir::offset_of(&log_dir.recovery_points, name.as_ref());
        let high_watermark = LogDir::offset_of(&log_dir.high_watermarks, name.as_ref());
        let report = PartitionReport {
            dir: dir.to_path_buf(),
            name,
            topic_id: None,
            verdict: Verdict::Healthy,
            cut_size: 0,
            complete: true,
            clean_shutdown: log_dir.clean_shutdown,
            holder: log_dir.holder,
            recovery_point: recovery_point.map(Offset::get),
            high_watermark: high_watermark.map(Offset::get),
            log_start_offset: 0,
            log_end_offset: 0,
            segments: Vec::new(),
            batches: BatchSummary::default(),
            gaps: Vec::new(),
            gap_count: 0,
            gap_offset_count: 0,
            control: ControlReport::default(),
            producers: ProducersReport::default(),
            epochs: Vec::new(),
            snapshots: Vec::new(),
            side_dir: None,
            side_file: SideFile::Absent,
            archives: Vec::new(),
            findings: Vec::new(),
        };
        Self {
            files: inspection.files,
            watch: &inspection.watch,
            inspection,
            log_dir,
            report,
            side_file: None,
            recovery_point: recovery_point.unwrap_or(Offset::ZERO),
            high_watermark: high_watermark.unwrap_or(Offset::ZERO),
            follow: Follow {
                psm: ProducerStateManager::new(PsmConfig::default()),
                served: true,
                on: true,
                epochs: LeaderEpochCache::new(),
                epochs_with_batches: BTreeMap::new(),
                last_epoch: None,
                begun: BTreeMap::new(),
                tolerated: 0,
                barriers_met: 0,
                first: Offset::ZERO,
                end: Offset::ZERO,
            },
            corrupt_places: 0,
            large_control_records: 0,
        }
    }

    fn add(&mut self, finding: Finding) {
        let same = self.report.findings.iter().filter(|other| other.code == finding.code).count();
        if same < MAX_FINDINGS {
            self.report.findings.push(finding);
        }
    }

    fn unreadable(&mut self, path: PathBuf, error: &std::io::Error) {
        let mut finding = Finding::new(Code::Unreadable, Severity::Problem, "it cannot be read").of(path);
        finding.cause = Some(error.to_string());
        finding.remedy = Some("check that this user may read it, and the disk's own log".to_owned());
        self.add(finding);
    }

    /// Whether what went wrong is that a running node took the file away.
    fn is_gone(&self, error: &std::io::Error) -> bool {
        self.log_dir.holder.is_some() && error.kind() == std::io::ErrorKind::NotFound
    }

    fn run(&mut self, only: Option<i64>) -> Result<(), Halt> {
        let dir = self.report.dir.clone();
        let mut findings = Vec::new();
        self.report.topic_id = topic_id(self.files, &dir, &mut findings);
        for finding in findings {
            self.add(finding);
        }
        self.report.side_dir =
            self.log_dir.partition_side_dir(self.report.topic_id, self.report.name.as_ref());
        self.read_side_file();
        let names = self.list(&dir)?;
        let bases: Vec<i64> = names.segments.keys().copied().collect();
        let mut expected = None;
        let first = only.or(bases.first().copied()).and_then(Offset::new).unwrap_or(Offset::ZERO);
        self.follow.first = first;
        self.follow.end = first;
        for (place, base) in bases.iter().enumerate() {
            let next = bases.get(place.saturating_add(1)).copied();
            if only.is_none_or(|only| only == *base) {
                self.segment(&names, *base, next, &mut expected)?;
            }
        }
        if only.is_some() {
            self.producers(self.follow.end);
            self.report.log_start_offset = first.get();
            self.report.log_end_offset = self.follow.end.get();
            return Ok(());
        }
        self.settle(first);
        self.leader_epochs(&dir);
        self.snapshots(&names, first)?;
        self.archives()?;
        Ok(())
    }

    fn read_side_file(&mut self) {
        let Some(side_dir) = self.report.side_dir.clone() else { return };
        let path = side_dir.join(PARTITION_FILE_NAME);
        let limit = u64::try_from(PARTITION_FILE_LIMIT).unwrap_or(SMALL_FILE_LIMIT);
        let bytes = match read_small(self.files, &path, limit) {
            Ok(None) => return,
            Ok(Some(bytes)) => bytes,
            Err(error) => return self.unreadable(path, &error),
        };
        match PartitionFile::decode(&bytes) {
            Ok(file) => {
                self.recovery_point = file.effective_recovery_point(self.recovery_point);
                self.high_watermark = file.effective_recovery_point(self.high_watermark);
                if self.report.recovery_point.is_some() {
                    self.report.recovery_point = Some(self.recovery_point.get());
                }
                self.report.side_file = SideFile::Good {
                    checked: file.checked().get(),
                    barrier_count: number(file.barriers().count()),
                    cut: file.cut().map(|cut| (cut.to.get(), cut.from.get())),
                };
                self.side_file = Some(file);
            }
            Err(error) => {
                self.report.side_file = SideFile::Unreadable(error);
                let message =
                    "weir's partition file is not readable: a start replays the log from its first segment";
                let mut finding = Finding::new(Code::PartitionFile, Severity::Note, message).of(path);
                finding.cause = Some(error.to_string());
                self.add(finding);
            }
        }
    }

    fn list(&mut self, dir: &Path) -> Result<Names, Halt> {
        let mut names = Names::default();
        for path in self.files.list(dir)? {
            let file_name =
                path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let of_kafka = KNOWN.contains(&file_name.as_str());
            let name = SegmentFileName::of(&path);
            let entry = match self.files.entry(&path) {
                Ok(Some(entry)) => entry,
                Ok(None) => continue,
                Err(error) => {
                    self.unreadable(path, &error);
                    continue;
                }
            };
            if (name.is_some() || of_kafka) && !matches!(entry, Entry::File { .. }) {
                let what = if entry == Entry::Directory { "a directory" } else { "no file" };
                let message = format!("{file_name} is {what}, and is named as a file of the partition");
                let mut finding = Finding::new(Code::NotAFile, Severity::Problem, message).of(path);
                finding.remedy = Some("move it out of the partition's directory".to_owned());
                self.add(finding);
                continue;
            }
            let Some(name) = name else {
                let of_known = |name: &str| SegmentFileName::parse(name).is_some() || KNOWN.contains(&name);
                if file_name.strip_suffix(TEMPORARY_SUFFIX).is_some_and(of_known) {
                    self.leftover(path, &file_name, "a start drops it");
                } else if !of_kafka {
                    let message = format!("{file_name} is neither Kafka's nor weir's, and is left alone");
                    self.add(Finding::new(Code::UnknownName, Severity::Note, message).of(path));
                }
                continue;
            };
            match name.stage {
                Stage::Live if path != file_path(dir, name.base_offset, name.kind) => {
                    let message = format!("{file_name} has not twenty digits, and is left alone");
                    self.add(Finding::new(Code::UnknownName, Severity::Note, message).of(path));
                }
                Stage::Live => {
                    let base = name.base_offset.get();
                    match name.kind {
                        FileKind::Log => drop(names.segments.insert(base, path)),
                        FileKind::Snapshot => names.snapshots.push((base, path)),
                        kind => drop(names.others.insert((base, kind), path)),
                    }
                }
                Stage::Swap => {
                    self.leftover(path, &file_name, "a start puts it in place first, if its like is whole");
                }
                Stage::Deleted | Stage::Cleaned => self.leftover(path, &file_name, "a start drops it"),
            }
        }
        let orphans: Vec<_> =
            names.others.iter().filter(|((base, _), _)| !names.segments.contains_key(base)).collect();
        let orphans: Vec<PathBuf> = orphans.into_iter().map(|(_, path)| path.clone()).collect();
        for path in orphans {
            let file_name =
                path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            self.leftover(path, &file_name, "its .log is not there: a start drops it");
        }
        Ok(names)
    }

    fn leftover(&mut self, path: PathBuf, name: &str, what: &str) {
        let message = format!("{name} is left of an interrupted operation: {what}");
        self.add(Finding::new(Code::Leftover, Severity::Note, message).of(path));
    }

    /// Walks one segment. `expected` is the offset behind the last batch of the segment before, where that is known.
    fn segment(
        &mut self,
        names: &Names,
        base: i64,
        next: Option<i64>,
        expected: &mut Option<i64>,
    ) -> Result<(), Halt> {
        let Some(path) = names.segments.get(&base).cloned() else { return Ok(()) };
        let opened = self.files.open(&path).and_then(|file| Ok((file.size()?, file)));
        let (size, file) = match opened {
            Ok(opened) => opened,
            Err(error) if self.is_gone(&error) => return Ok(()),
            Err(error) => {
                self.unreadable(path, &error);
                self.lose();
                *expected = None;
                return Ok(());
            }
        };
        let index = |kind| names.others.get(&(base, kind)).cloned();
        let mut run = SegmentRun {
            path: path.clone(),
            base: Offset::new(base).unwrap_or(Offset::ZERO),
            next: next.and_then(Offset::new),
            bounds: Offset::new(base).unwrap_or(Offset::ZERO),
            offset_index: self.offset_index(index(FileKind::OffsetIndex), base),
            transaction_index: self.transaction_index(index(FileKind::TransactionIndex), base),
            segment: SegmentReport {
                base_offset: base,
                size,
                batch_count: 0,
                valid_size: 0,
                record_count: Some(0),
                end_offset: None,
                min_timestamp: None,
                max_timestamp: None,
                offset_index: IndexState::Absent,
                time_index: IndexState::Absent,
                transaction_index: IndexState::Absent,
                tail: None,
            },
        };
        if let Some(end) = *expected
            && base > end
        {
            self.gap(end, base);
            let message = format!(
                "offsets {end}..{base} are between two segments: the topic is compacted, or a segment is missing"
            );
            let mut finding = Finding::new(Code::SegmentGap, Severity::Note, message).of(path.clone());
            finding.offsets = Some((end, base));
            self.add(finding);
        }
        *expected = Some(base);
        let mut limit = size;
        if size > MAX_SEGMENT_SIZE {
            let message = format!(
                "{size} bytes are more than a segment has: the first {MAX_SEGMENT_SIZE} are looked at"
            );
            self.add(Finding::new(Code::TooLarge, Severity::Problem, message).of(path));
            limit = MAX_SEGMENT_SIZE;
        }
        let walked = self.walk(&*file, limit, &mut run, expected);
        let halted = match walked {
            Ok(()) => None,
            Err(Halt::Interrupted) => Some(Halt::Interrupted),
            Err(Halt::Io(error)) => {
                self.unreadable(run.path.clone(), &error);
                self.lose();
                *expected = None;
                None
            }
        };
        run.segment.offset_index = run.offset_index.finish();
        run.segment.transaction_index =
            std::mem::replace(&mut run.transaction_index, TransactionCheck::Absent).finish(self.follow.on);
        if halted.is_none() {
            run.segment.time_index = self.time_index(index(FileKind::TimeIndex), &run.segment);
        }
        if run.segment.tail.as_ref().is_some_and(|tail| tail.code == Code::Corrupt) {
            for state in [&mut run.segment.offset_index, &mut run.segment.time_index] {
                if matches!(state, IndexState::Wrong { .. }) {
                    *state = IndexState::NotChecked { reason: "the segment is corrupt".to_owned() };
                }
            }
        }
        self.index_findings(&run);
        self.report.segments.push(run.segment);
        halted.map_or(Ok(()), Err)
    }

    /// What lies behind would not be served.
    fn lose(&mut self) {
        self.follow.served = false;
        self.follow.on = false;
    }

    fn index_findings(&mut self, run: &SegmentRun) {
        let segment = &run.segment;
        let states = [
            (FileKind::OffsetIndex, Code::Index, &segment.offset_index),
            (FileKind::TimeIndex, Code::Index, &segment.time_index),
            (FileKind::TransactionIndex, Code::TransactionIndex, &segment.transaction_index),
        ];
        for (kind, code, state) in states {
            let IndexState::Wrong { reason } = state else { continue };
            let path = file_path(&self.report.dir, run.base, kind);
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let message = format!("{name} {reason}: a start builds it again where it is needed");
            self.add(Finding::new(code, Severity::Note, message).of(path));
        }
    }

    fn gap(&mut self, from: i64, end: i64) {
        self.report.gap_count = self.report.gap_count.saturating_add(1);
        let size = u64::try_from(end.saturating_sub(from)).unwrap_or(0);
        self.report.gap_offset_count = self.report.gap_offset_count.saturating_add(size);
        if self.report.gaps.len() < MAX_GAPS {
            self.report.gaps.push(Gap { from, end });
        }
    }

    fn walk(
        &mut self,
        file: &dyn FileBytes,
        size: u64,
        run: &mut SegmentRun,
        expected: &mut Option<i64>,
    ) -> Result<(), Halt> {
        let watch = self.watch;
        let mut walker = Walker::new(file, watch, 0, size);
        let mut looked_again = 0;
        loop {
            let (position, found) = match walker.next()? {
                Step::End => break,
                Step::Old { position, size, message } => {
                    match self.old_message(run, position, size, message) {
                        Ok(()) => {
                            *expected = Some(run.bounds.get());
                            continue;
                        }
                        Err(found) => (position, found),
                    }
                }
                Step::Batch { position, size, batch } => {
                    match self.batch(run, position, size, &batch, *expected) {
                        Ok(()) => {
                            *expected = Some(run.bounds.get());
                            continue;
                        }
                        Err(found) => (position, found),
                    }
                }
                Step::Invalid { position, error } => (position, Invalid::Batch(error)),
            };
            walker.seek(position);
            // A running node may be in the middle of a write.
            if self.log_dir.holder.is_some() && run.next.is_none() && looked_again < 3 {
                looked_again += 1;
                if (self.inspection.wait_for_writer)() {
                    let size = file.size()?.min(MAX_SEGMENT_SIZE);
                    run.segment.size = file.size()?;
                    walker = Walker::new(file, watch, position, size);
                    continue;
                }
            }
            match self.invalid(file, walker.size(), run, position, found)? {
                None => break,
                Some(behind) => {
                    walker.seek(behind.position);
                    run.bounds = behind.base_offset;
                    // What lies between is lost, not compacted.
                    *expected = Some(behind.base_offset.get());
                }
            }
        }
        if self.follow.served {
            self.follow.end = run.bounds;
        }
        Ok(())
    }

    fn old_message(
        &mut self,
        run: &mut SegmentRun,
        position: u64,
        size: u64,
        message: OldMessage,
    ) -> Result<(), Invalid> {
        let last = Offset::new(message.last_offset).unwrap_or(run.bounds);
        if last < run.bounds {
            return Err(Invalid::OffsetBelowEnd { base_offset: last });
        }
        let next_offset = last.next().unwrap_or(last);
        if let Some(segment) = run.next
            && next_offset > segment
        {
            return Err(Invalid::BeyondNextSegment { next_offset, segment });
        }
        let batches = &mut self.report.batches;
        count(&mut batches.magic, message.magic);
        count_text(&mut batches.codec, message.codec);
        let plain = message.codec == Codec::None;
        run.count(position, size, if plain { Some(1) } else { None }, last);
        run.time(message.timestamp, message.timestamp);
        run.bounds = next_offset;
        Ok(())
    }

    fn batch(
        &mut self,
        run: &mut SegmentRun,
        position: u64,
        size: u64,
        batch: &RecordBatch<'_>,
        expected: Option<i64>,
    ) -> Result<(), Invalid> {
        if batch.base_offset() < run.bounds {
            return Err(Invalid::OffsetBelowEnd { base_offset: batch.base_offset() });
        }
        if let Some(segment) = run.next
            && batch.next_offset() > segment
        {
            return Err(Invalid::BeyondNextSegment { next_offset: batch.next_offset(), segment });
        }
        if batch.is_compressed_control() {
            return Err(Invalid::CompressedControlBatch);
        }
        let applied = self.follow(batch)?;
        run.bounds = batch.next_offset();
        if let Some(end) = expected.filter(|end| batch.base_offset().get() > *end) {
            self.gap(end, batch.base_offset().get());
        }
        self.summarise(batch);
        if let Some(applied) = &applied {
            for entry in aborted_entries(applied) {
                run.transaction_index.expect(&entry);
            }
        } else if run.segment.batch_count == 0 {
            run.transaction_index.skip();
        }
        if batch.is_control() {
            self.control(batch, applied.as_ref());
        }
        run.offset_index.batch(position, batch.base_offset());
        let records = u64::try_from(batch.record_count()).unwrap_or(0);
        run.count(position, size, Some(records), batch.last_offset());
        run.time(batch.base_timestamp(), batch.max_timestamp());
        Ok(())
    }

    /// Feeds the gate; `None` where state is not followed any more.
    fn follow(&mut self, batch: &RecordBatch<'_>) -> Result<Option<Applied>, Invalid> {
        let follow = &mut self.follow;
        if !follow.on {
            return Ok(None);
        }
        if follow.psm.producer_count() > MAX_PRODUCERS {
            follow.on = false;
            let at = follow.psm.map_end_offset();
            let message =
                format!("there are more than {MAX_PRODUCERS} producers at offset {at}: not followed further");
            self.add(Finding::new(Code::StateNotFollowed, Severity::Note, message));
            return Ok(None);
        }
        let transition = match follow.psm.check(batch, batch.base_offset(), AppendOrigin::Replication) {
            Ok(Checked::Append(transition)) => transition,
            Ok(Checked::Duplicate(_)) => return Ok(None),
            Err(error) => return Err(Invalid::Refused(error)),
        };
        if let Some(producer_id) = transition.starts_transaction() {
            follow.begun.insert(producer_id, batch.max_timestamp());
        }
        let applied = follow.psm.commit(transition);
        follow.psm.on_high_watermark(batch.next_offset());
        follow.tolerated = follow.tolerated.saturating_add(number(applied.tolerated.len()));
        if let Some(done) = &applied.completed {
            follow.begun.remove(&done.producer_id);
        }
        if applied.barrier.is_some() {
            follow.begun.clear();
            follow.barriers_met = follow.barriers_met.saturating_add(1);
        }
        if let Some(epoch) = batch.leader_epoch()
            && follow.last_epoch != Some(epoch)
        {
            follow.last_epoch = Some(epoch);
            follow.epochs.assign(epoch, batch.base_offset());
            if follow.epochs_with_batches.len() < MAX_EPOCHS {
                follow.epochs_with_batches.insert(epoch.get(), ());
            }
        }
        Ok(Some(applied))
    }

    fn summarise(&mut self, batch: &RecordBatch<'_>) {
        let batches = &mut self.report.batches;
        count(&mut batches.magic, 2);
        count_codec(&mut batches.codec, batch.codec());
        let kind = match (batch.is_control(), batch.is_transactional(), batch.producer_id()) {
            (true, _, _) => Some(&mut batches.control),
            (false, true, _) => Some(&mut batches.transactional),
            (false, false, Some(_)) => Some(&mut batches.idempotent),
            (false, false, None) => None,
        };
        if let Some(count) = kind {
            *count = count.saturating_add(1);
        }
        if batch.record_count() == 0 {
            batches.empty = batches.empty.saturating_add(1);
        }
    }

    fn control(&mut self, batch: &RecordBatch<'_>, applied: Option<&Applied>) {
        let record = batch.records().ok().and_then(|mut records| records.next()).and_then(Result::ok);
        let control = record.as_ref().map(Control::of);
        let kind = match (batch.control_type(), &control) {
            (Some(kind), _) => kind.to_string(),
            (None, _) if batch.record_count() == 0 => "none (empty batch)".to_owned(),
            (None, _) => "none (no key)".to_owned(),
        };
        count_text(&mut self.report.control.counts, kind);
        let (offset, timestamp) = (batch.base_offset().get(), known(batch.max_timestamp()));
        let leader_epoch = batch.leader_epoch().map(LeaderEpoch::get);
        let held = self.report.control.barriers.len().saturating_add(self.report.control.others.len());
        let is_small = batch.end_transaction_marker().is_some();
        let too_many_large = !is_small && self.large_control_records >= MAX_LARGE_CONTROL_RECORDS;
        if held >= MAX_CONTROL_RECORDS || (too_many_large && !batch.is_barrier()) {
            self.report.control.omitted = self.report.control.omitted.saturating_add(1);
            return;
        }
        if !is_small {
            self.large_control_records = self.large_control_records.saturating_add(1);
        }
        let value = |control: Option<Control>| control.map_or(serde_json::Value::Null, Control::json);
        if let Some(barrier) = MirrorPidReset::describe(batch) {
            let met = applied.and_then(|applied| applied.barrier.as_ref());
            let aborted = met.map(|met| met.transactions_aborted.as_slice()).unwrap_or_default();
            let named = aborted.iter().take(MAX_ABORTED_AT_BARRIER);
            let text = barrier.value.to_string().chars().take(300).collect();
            self.report.control.barriers.push(BarrierReport {
                offset,
                leader_epoch,
                timestamp,
                text,
                value: value(control),
                producers_expired: met.map(|met| number(met.producers_expired)),
                transactions_aborted: named
                    .map(|done| (done.producer_id.get(), done.first_offset.get()))
                    .collect(),
                transactions_aborted_count: met.map(|met| number(met.transactions_aborted.len())),
            });
            return;
        }
        let text = control.as_ref().map_or_else(|| "no record".to_owned(), |control| control.to_string());
        let done = applied.and_then(|applied| applied.completed.as_ref());
        self.report.control.others.push(ControlRecord {
            offset,
            leader_epoch,
            timestamp,
            producer_id: batch.producer_id().map(ProducerId::get),
            producer_epoch: batch.producer_epoch().map(weir_format::ProducerEpoch::get),
            transaction_first_offset: done.map(|done| done.first_offset.get()),
            text: text.trim().chars().take(300).collect(),
            value: value(control),
        });
    }

    /// Says what an invalid place is; where to go on behind it, if anywhere.
    fn invalid(
        &mut self,
        file: &dyn FileBytes,
        size: u64,
        run: &mut SegmentRun,
        position: u64,
        found: Invalid,
    ) -> Result<Option<ValidBehind>, Halt> {
        // Zeros that nobody wrote need not be read to be seen: those up to the next block of any disk say the same.
        let block = position.checked_next_multiple_of(LARGEST_DISK_BLOCK).unwrap_or(size);
        let seen = if block < size && file.is_unwritten_from(block) { block } else { size };
        let mut tail = Tail { file, watch: self.watch, size: seen };
        let clean = self.report.clean_shutdown;
        let place = InvalidPlace {
            position,
            next_offset: run.bounds,
            recovery_point: if clean { Offset::MAX } else { self.recovery_point },
            last_segment: run.next.is_none(),
            max_unsynced: MAX_UNSYNCED_BYTES,
        };
        let end = data_end(&mut tail, position)?;
        let verdict =
            if clean && end <= position { TailVerdict::Zeros } else { judge_tail(&mut tail, &place)? };
        let data_end = match &verdict {
            TailVerdict::Zeros => position,
            TailVerdict::Hole { behind, .. } => end.max(behind.end_position),
            _ => end,
        };
        let data_end = if data_end > position {
            data_end.checked_next_multiple_of(BLOCK_SIZE).unwrap_or(size).min(size)
        } else {
            position
        };
        let ends = |code| {
            Some(SegmentTail {
                position,
                size: data_end.saturating_sub(position),
                preallocated: size.saturating_sub(data_end),
                code,
            })
        };
        let live = self.log_dir.holder.is_some() && run.next.is_none();
        let name = run.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let cut = data_end.saturating_sub(position);
        let mut finding = match verdict {
            TailVerdict::Zeros => {
                run.segment.tail = ends(Code::Preallocated);
                let allocated = size.saturating_sub(position);
                let message = format!(
                    "{name} has {allocated} bytes of zeros behind its last batch: space allocated ahead"
                );
                Finding::new(Code::Preallocated, Severity::Note, message)
            }
            TailVerdict::Torn | TailVerdict::Hole { .. } if live => {
                run.segment.tail = ends(Code::BeingWritten);
                let message = format!("{cut} bytes of {name} are being written");
                Finding::new(Code::BeingWritten, Severity::Note, message)
            }
            TailVerdict::Torn => {
                run.segment.tail = ends(Code::TornTail);
                self.report.cut_size = self.report.cut_size.saturating_add(cut);
                let message = format!(
                    "{name} ends in an unfinished write: a start cuts {cut} bytes at byte {position}{}",
                    if self.high_watermark > run.bounds { "" } else { "; nothing acknowledged is in them" }
                );
                Finding::new(Code::TornTail, Severity::Problem, message)
            }
            TailVerdict::Hole { behind, .. } => {
                run.segment.tail = ends(Code::Hole);
                self.report.cut_size = self.report.cut_size.saturating_add(cut);
                let message = format!(
                    "{name} has a write that did not land before later ones that did: a start puts {cut} bytes from \
                     byte {position} on, with offsets {}..{}, into an archive and cuts them",
                    behind.base_offset, behind.end_offset
                );
                let mut finding = Finding::new(Code::Hole, Severity::Problem, message);
                finding.offsets = Some((behind.base_offset.get(), behind.end_offset.get()));
                finding
            }
            TailVerdict::Corrupt { reason, behind } => {
                return Ok(self.corrupt(run, position, size, data_end, &found, reason, behind));
            }
        };
        finding.cause = (finding.code != Code::Preallocated).then(|| found.to_string());
        finding.file = Some(run.path.clone());
        finding.position = Some(position);
        finding.size =
            Some(if finding.code == Code::Preallocated { size.saturating_sub(position) } else { cut });
        self.add(finding);
        Ok(None)
    }

    #[expect(clippy::too_many_arguments, reason = "one caller; a struct would only rename them")]
    fn corrupt(
        &mut self,
        run: &mut SegmentRun,
        position: u64,
        size: u64,
        data_end: u64,
        found: &Invalid,
        reason: CorruptReason,
        behind: Option<ValidBehind>,
    ) -> Option<ValidBehind> {
        let offset = run.bounds;
        let name = run.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let message = format!("{name} is not valid at byte {position}, where offset {offset} is expected");
        let mut finding = Finding::new(Code::Corrupt, Severity::Problem, message).of(run.path.clone());
        finding.cause = Some(format!("{found} (not a torn tail: {reason})"));
        finding.position = Some(position);
        finding.size = Some(size.saturating_sub(position));
        let end = behind.map(|behind| behind.end_offset.get());
        let synced = Some(self.recovery_point.get()).filter(|point| *point > offset.get());
        finding.offsets = end.or(run.next.map(Offset::get)).or(synced).map(|end| (offset.get(), end));
        if self.follow.served {
            self.lose();
            self.follow.end = offset;
            finding.remedy =
                Some(format!("weir recover {} --accept-cut {offset}", shell_quoted(&self.report.dir)));
            run.segment.tail = Some(SegmentTail {
                position,
                size: data_end.saturating_sub(position),
                preallocated: size.saturating_sub(data_end),
                code: Code::Corrupt,
            });
        }
        self.add(finding);
        self.corrupt_places = self.corrupt_places.saturating_add(1);
        behind.filter(|behind| behind.position > position && self.corrupt_places < MAX_CORRUPT_PLACES)
    }

    fn offset_index(&mut self, path: Option<PathBuf>, base: i64) -> OffsetCheck {
        let Some(path) = path else { return OffsetCheck::Done(IndexState::Absent) };
        let (bytes, preallocated) = match self.index_bytes(&path, 8) {
            Ok(found) => found,
            Err(state) => return OffsetCheck::Done(state),
        };
        match OffsetIndex::decode(Offset::new(base).unwrap_or(Offset::ZERO), &bytes) {
            Ok(index) => OffsetCheck::Open { index, at: 0, wrong: 0, preallocated },
            Err(error) => OffsetCheck::Done(IndexState::Wrong { reason: format!("is no index: {error}") }),
        }
    }

    fn transaction_index(&mut self, path: Option<PathBuf>, base: i64) -> TransactionCheck {
        let Some(path) = path else { return TransactionCheck::Absent };
        let (bytes, preallocated) = match self.index_bytes(&path, 34) {
            Ok(found) => found,
            Err(state) => return TransactionCheck::Done(state),
        };
        match TransactionIndex::decode(Offset::new(base).unwrap_or(Offset::ZERO), &bytes) {
            Ok(index) => {
                TransactionCheck::Open { index, at: 0, differs: false, followed: true, preallocated }
            }
            Err(error) => {
                TransactionCheck::Done(IndexState::Wrong { reason: format!("is no index: {error}") })
            }
        }
    }

    fn time_index(&mut self, path: Option<PathBuf>, segment: &SegmentReport) -> IndexState {
        let Some(path) = path else { return IndexState::Absent };
        let (bytes, preallocated) = match self.index_bytes(&path, 12) {
            Ok(found) => found,
            Err(state) => return state,
        };
        let base = Offset::new(segment.base_offset).unwrap_or(Offset::ZERO);
        let index = match TimeIndex::decode(base, &bytes) {
            Ok(index) => index,
            Err(error) => return IndexState::Wrong { reason: format!("is no index: {error}") },
        };
        let end = segment.end_offset.unwrap_or(segment.base_offset);
        if let Some(last) = index.last() {
            if last.offset.get() >= end {
                return IndexState::Wrong {
                    reason: format!("names offset {}, which the log has not", last.offset),
                };
            }
            if segment.max_timestamp.is_none_or(|largest| last.timestamp.get() > largest) {
                let reason = format!("names timestamp {}, which the log has not", last.timestamp);
                return IndexState::Wrong { reason };
            }
        }
        IndexState::Good { entry_count: number(index.entries().len()), preallocated }
    }

    /// The entries of an index, and how many bytes of zeros follow them.
    fn index_bytes(&mut self, path: &Path, entry_size: usize) -> Result<(Vec<u8>, u64), IndexState> {
        let mut bytes = match read_small(self.files, path, MAX_INDEX_SIZE) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err(IndexState::Absent),
            Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
                return Err(IndexState::Wrong { reason: format!("is no index: {error}") });
            }
            Err(error) => {
                self.unreadable(path.to_path_buf(), &error);
                return Err(IndexState::NotChecked { reason: error.to_string() });
            }
        };
        let whole = bytes.len();
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
        let used = used.checked_next_multiple_of(entry_size).unwrap_or(whole).min(whole);
        bytes.truncate(used);
        Ok((bytes, number(whole.saturating_sub(used))))
    }

    /// Where the log begins and ends, and who is known there.
    fn settle(&mut self, first: Offset) {
        let end = self.follow.end;
        let asked =
            LogDir::offset_of(&self.log_dir.log_starts, self.report.name.as_ref()).unwrap_or(Offset::ZERO);
        self.report.log_start_offset = asked.max(first).min(end.max(first)).get();
        self.report.log_end_offset = end.get();
        let live = self.log_dir.holder.is_some();
        if self.follow.served && self.report.complete {
            if asked > end {
                let message = format!("the log start {asked} of the checkpoint lies above the log end {end}");
                let mut finding = Finding::new(Code::LogStartAboveEnd, Severity::Problem, message);
                finding.offsets = Some((end.get(), asked.get()));
                self.add(finding);
            }
            if self.recovery_point > end && !live {
                let point = self.recovery_point;
                let message = format!(
                    "the log ends at offset {end}, below its recovery point {point}: offsets that were once synced are \
                     missing"
                );
                let mut finding = Finding::new(Code::BelowRecoveryPoint, Severity::Problem, message);
                finding.offsets = Some((end.get(), point.get()));
                finding.remedy =
                    Some("look for a copy of the directory, and for what the disk reports".to_owned());
                self.add(finding);
            }
            if self.high_watermark > end.max(self.recovery_point) && !live {
                let watermark = self.high_watermark;
                let message = format!(
                    "the log ends at offset {end}, below its high watermark {watermark}: offsets that were once \
                     acknowledged are missing"
                );
                let mut finding = Finding::new(Code::BelowHighWatermark, Severity::Problem, message);
                finding.offsets = Some((end.get(), watermark.get()));
                finding.remedy =
                    Some("look for another replica or a copy: a start goes on without them".to_owned());
                self.add(finding);
            }
            self.barriers_of_side_file(end);
        }
        if self.follow.tolerated > 0 {
            let message = format!(
                "{} batches break the rules that clients are held to; they were taken from a leader, and are kept",
                self.follow.tolerated
            );
            self.add(Finding::new(Code::Tolerated, Severity::Note, message));
        }
        self.producers(end);
    }

    fn barriers_of_side_file(&mut self, end: Offset) {
        let Some(file) = &self.side_file else { return };
        let below = file.checked().min(end);
        let listed: Vec<i64> =
            file.barriers().map(|(at, _)| at.get()).filter(|at| *at < below.get()).collect();
        let first = self.report.log_start_offset;
        let met: Vec<i64> = self
            .report
            .control
            .barriers
            .iter()
            .map(|barrier| barrier.offset)
            .filter(|at| *at < below.get())
            .collect();
        let listed: Vec<i64> = listed.into_iter().filter(|at| *at >= first).collect();
        let met: Vec<i64> = met.into_iter().filter(|at| *at >= first).collect();
        if listed != met && self.report.control.omitted == 0 {
            let message = format!(
                "weir's partition file lists {} barriers below offset {below}, the log has {}: remove the file, and a \
                 start replays the log",
                listed.len(),
                met.len()
            );
            self.add(Finding::new(Code::Barriers, Severity::Problem, message));
        }
    }

    fn producers(&mut self, end: Offset) {
        let psm = &self.follow.psm;
        let now = self.inspection.now;
        let producers = &mut self.report.producers;
        producers.at = if self.follow.on { end.get() } else { psm.map_end_offset().get() };
        producers.count = number(psm.producer_count());
        producers.last_stable_offset = psm.last_stable_offset(end).get();
        let mut newest: BTreeMap<(i64, i64), ProducerReport> = BTreeMap::new();
        for (producer_id, entry) in psm.entries() {
            let last_offset = entry.last_offset().map(Offset::get);
            newest.insert(
                (last_offset.unwrap_or(-1), producer_id.get()),
                ProducerReport {
                    producer_id: producer_id.get(),
                    producer_epoch: entry.producer_epoch().map(weir_format::ProducerEpoch::get),
                    last_sequence: entry.last_sequence().map(weir_format::Sequence::get),
                    last_offset,
                    coordinator_epoch: entry.coordinator_epoch(),
                    last_timestamp: known(entry.last_timestamp()),
                },
            );
            if newest.len() > MAX_NAMED {
                newest.pop_first();
            }
        }
        producers.some = newest.into_values().rev().collect();
        for open in psm.open_transactions() {
            producers.open_count = producers.open_count.saturating_add(1);
            if producers.open.len() < MAX_NAMED {
                let begun = self.follow.begun.get(&open.producer_id).copied().and_then(known);
                producers.open.push(OpenTransactionReport {
                    producer_id: open.producer_id.get(),
                    producer_epoch: open.producer_epoch.map(weir_format::ProducerEpoch::get),
                    first_offset: open.first_offset.get(),
                    first_timestamp: begun,
                    age_ms: begun.map(|begun| now.get().saturating_sub(begun)).filter(|age| *age >= 0),
                });
            }
        }
    }

    fn leader_epochs(&mut self, dir: &Path) {
        let path = dir.join(LEADER_EPOCH_CHECKPOINT);
        let checkpoint = match read_small(self.files, &path, SMALL_FILE_LIMIT) {
            Ok(None) => None,
            Ok(Some(bytes)) => Some(LeaderEpochCache::decode(&bytes)),
            Err(error) => return self.unreadable(path, &error),
        };
        let end = self.follow.end;
        let of_log = self.follow.epochs.entries();
        let mut epochs: BTreeMap<i32, EpochReport> = BTreeMap::new();
        for entry in of_log {
            let report = EpochReport {
                epoch: entry.epoch.get(),
                start_offset: entry.start_offset.get(),
                has_batches: true,
                in_checkpoint: false,
            };
            epochs.insert(entry.epoch.get(), report);
        }
        let problem = match &checkpoint {
            None if of_log.is_empty() => None,
            None => Some("there is no leader-epoch checkpoint".to_owned()),
            Some(Err(error)) => Some(error.to_string()),
            Some(Ok(cache)) => {
                let start = self.report.log_start_offset;
                let mut wrong = None;
                for entry in of_log {
                    let listed = cache.entries().iter().find(|listed| listed.epoch == entry.epoch);
                    let fits = listed.is_some_and(|listed| {
                        listed.start_offset <= entry.start_offset || listed.start_offset.get() <= start
                    });
                    if !fits {
                        wrong = Some(format!(
                            "it does not have epoch {} at offset {}",
                            entry.epoch, entry.start_offset
                        ));
                        break;
                    }
                }
                for entry in cache.entries().iter().filter(|entry| entry.start_offset <= end) {
                    let has_batches = self.follow.epochs_with_batches.contains_key(&entry.epoch.get());
                    epochs.insert(
                        entry.epoch.get(),
                        EpochReport {
                            epoch: entry.epoch.get(),
                            start_offset: entry.start_offset.get(),
                            has_batches,
                            in_checkpoint: true,
                        },
                    );
                }
                let above = cache.entries().iter().find(|entry| entry.start_offset > end);
                let above = above.filter(|_| self.follow.served && self.log_dir.holder.is_none());
                wrong.or_else(|| {
                    above.map(|above| {
                        format!("epoch {} begins at {}, above the log end", above.epoch, above.start_offset)
                    })
                })
            }
        };
        self.report.epochs = epochs.into_values().collect();
        if let Some(problem) = problem {
            let message = format!("{problem}: a start builds the leader epochs from the log");
            self.add(Finding::new(Code::LeaderEpochs, Severity::Note, message).of(path));
        }
    }

    fn snapshots(&mut self, names: &Names, first: Offset) -> Result<(), Halt> {
        for (offset, path) in &names.snapshots {
            let opened = self.files.open(path).and_then(|file| Ok((file.size()?, file)));
            let (size, file) = match opened {
                Ok(opened) => opened,
                Err(error) if self.is_gone(&error) => continue,
                Err(error) => {
                    self.unreadable(path.clone(), &error);
                    continue;
                }
            };
            let looked = self.snapshot(&*file, size, *offset, first)?;
            self.report.snapshots.push(looked);
        }
        Ok(())
    }

    fn snapshot(
        &self,
        file: &dyn FileBytes,
        size: u64,
        offset: i64,
        first: Offset,
    ) -> Result<SnapshotReport, Halt> {
        let mut header = [0; 10];
        let read = read_up_to(file, 0, &mut header)?;
        let [v, w, _, _, _, _, a, b, c, d] = header;
        let count = i64::from(i32::from_be_bytes([a, b, c, d]));
        let is_whole = read == header.len()
            && i16::from_be_bytes([v, w]) == snapshot::VERSION
            && u64::try_from(count).is_ok_and(|count| count.saturating_mul(46).saturating_add(10) == size);
        let mut spoilt = None;
        let mut crc = 0;
        if size <= MAX_DECODED_SNAPSHOT {
            let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
            let read = read_up_to(file, 0, &mut bytes)?;
            bytes.truncate(read);
            crc = weir_recovery::partition_file::crc32c(&bytes);
            spoilt = snapshot::decode(&bytes).err().map(|error| describe(&error));
        } else if size > MAX_SNAPSHOT {
            spoilt = Some(format!("{size} bytes are more than a snapshot has"));
        } else {
            let mut piece = vec![0; 1 << 20];
            let mut at = 0_u64;
            while at < size {
                let read = read_up_to(file, at, &mut piece)?;
                if read == 0 {
                    break;
                }
                crc = crc32c::crc32c_append(crc, piece.get(..read).unwrap_or_default());
                at = at.saturating_add(number(read));
                let mut tail = Tail { file, watch: self.watch, size };
                weir_recovery::tail::TailRead::read_at(&mut tail, 0, &mut [])?;
            }
            if !is_whole {
                spoilt = Some(format!("{size} bytes do not hold {count} producers"));
            }
        }
        let at = Offset::new(offset).unwrap_or(Offset::ZERO);
        let noted = self.side_file.as_ref().and_then(|side| side.snapshot(at));
        let distrust = match (&self.side_file, noted) {
            _ if spoilt.is_some() => spoilt.clone(),
            (None, _) => {
                Some("weir did not write it: it may hold producers from before a barrier".to_owned())
            }
            (Some(_), None) => Some("weir's partition file does not name it".to_owned()),
            (Some(_), Some(noted)) if noted != crc => {
                Some(format!("its CRC is {crc:08x}, and {noted:08x} in weir's partition file"))
            }
            (Some(side), _) if at > side.checked() => {
                Some(format!("barriers are known up to offset {} only", side.checked()))
            }
            _ if at < first => Some("it is from before the first segment".to_owned()),
            _ if at > self.follow.end => Some("it lies above the log end".to_owned()),
            _ => None,
        };
        let producer_count =
            is_whole.then(|| u64::try_from(count).ok()).flatten().filter(|_| spoilt.is_none());
        Ok(SnapshotReport { offset, size, producer_count, distrust })
    }

    fn archives(&mut self) -> Result<(), Halt> {
        let Some(side_dir) = self.report.side_dir.clone() else { return Ok(()) };
        let Ok(paths) = self.files.list(&side_dir) else { return Ok(()) };
        for path in paths {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if !name.starts_with("cut-") || !matches!(self.files.entry(&path), Ok(Some(Entry::File { .. }))) {
                continue;
            }
            let (size, file) = match self.files.open(&path).and_then(|file| Ok((file.size()?, file))) {
                Ok(opened) => opened,
                Err(error) => {
                    self.unreadable(path, &error);
                    continue;
                }
            };
            let mut tail = Tail { file: &*file, watch: self.watch, size: size.min(MAX_SEGMENT_SIZE) };
            let offsets = valid_within(&mut tail)?;
            self.report.archives.push(ArchiveReport { file: path, size, offsets });
        }
        Ok(())
    }

    fn finish(mut self) -> PartitionReport {
        let report = &mut self.report;
        let verdict = |finding: &Finding| match (finding.severity, finding.code) {
            (Severity::Note, _) => Verdict::Healthy,
            (_, Code::Corrupt) => Verdict::Corrupt,
            (_, Code::Unreadable | Code::NotAFile | Code::TooLarge) => Verdict::Unreadable,
            (_, Code::TornTail | Code::Hole) => Verdict::WouldCut,
            _ => Verdict::Incomplete,
        };
        report.findings.sort_by_key(|finding| std::cmp::Reverse(verdict(finding)));
        report.verdict = report.findings.first().map_or(Verdict::Healthy, verdict);
        // What the first corruption puts out of reach is all that lies behind it, in later segments too.
        let end = report.segments.iter().filter_map(|segment| segment.end_offset).max();
        if let Some(first) = report
            .findings
            .iter_mut()
            .find(|finding| finding.remedy.is_some() && finding.code == Code::Corrupt)
            && let (Some((from, to)), Some(end)) = (first.offsets, end)
        {
            first.offsets = Some((from, to.max(end)));
        }
        self.report
    }
}

/// Offsets of the first valid batch anywhere in a file, and behind the last.
pub(super) fn valid_within(tail: &mut Tail<'_>) -> Result<Option<(i64, i64)>, Halt> {
    let place = InvalidPlace {
        position: 0,
        next_offset: Offset::ZERO,
        recovery_point: Offset::ZERO,
        // The answer for a sealed segment says what lies behind, whatever it is.
        last_segment: false,
        max_unsynced: MAX_UNSYNCED_BYTES,
    };
    Ok(match judge_tail(tail, &place)? {
        TailVerdict::Corrupt { behind, .. } => {
            behind.map(|behind| (behind.base_offset.get(), behind.end_offset.get()))
        }
        _ => None,
    })
}

fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    let count = counts.entry(key).or_insert(0);
    *count = count.saturating_add(1);
}

fn count_text(counts: &mut BTreeMap<String, u64>, key: impl ToString) {
    count(counts, key.to_string());
}

/// As [`count_text`], for each of many batches.
fn count_codec(counts: &mut BTreeMap<String, u64>, codec: Codec) {
    let name = match codec {
        Codec::None => "none",
        _ => return count_text(counts, codec),
    };
    match counts.get_mut(name) {
        Some(count) => *count = count.saturating_add(1),
        None => count_text(counts, codec),
    }
}

/// A path as a shell takes it.
pub(in crate::cli) fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+' | ':' | '@');
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// One segment being walked.
struct SegmentRun {
    path: PathBuf,
    base: Offset,
    next: Option<Offset>,
    /// The smallest offset that the next batch may have.
    bounds: Offset,
    offset_index: OffsetCheck,
    transaction_index: TransactionCheck,
    segment: SegmentReport,
}

impl SegmentRun {
    fn count(&mut self, position: u64, size: u64, records: Option<u64>, last: Offset) {
        let segment = &mut self.segment;
        segment.batch_count = segment.batch_count.saturating_add(1);
        segment.valid_size = segment.valid_size.saturating_add(size);
        segment.record_count =
            segment.record_count.zip(records).map(|(sum, records)| sum.saturating_add(records));
        segment.end_offset = Some(last.get().saturating_add(1));
        segment.size = segment.size.max(position.saturating_add(size));
    }

    fn time(&mut self, first: TimestampMs, last: TimestampMs) {
        let segment = &mut self.segment;
        segment.min_timestamp = [segment.min_timestamp, known(first)].into_iter().flatten().min();
        segment.max_timestamp = [segment.max_timestamp, known(last)].into_iter().flatten().max();
    }
}

/// An offset index while its segment is walked: an entry is right if a batch starts at its position, at or below its
/// offset.
enum OffsetCheck {
    Done(IndexState),
    Open { index: OffsetIndex, at: usize, wrong: u64, preallocated: u64 },
}

impl OffsetCheck {
    fn batch(&mut self, position: u64, base_offset: Offset) {
        let Self::Open { index, at, wrong, .. } = self else { return };
        while let Some(entry) = index.entries().nth(*at) {
            if u64::from(entry.position) > position {
                return;
            }
            if u64::from(entry.position) < position || entry.offset < base_offset {
                *wrong = wrong.saturating_add(1);
            }
            *at = at.saturating_add(1);
        }
    }

    fn finish(&mut self) -> IndexState {
        match self {
            Self::Done(state) => state.clone(),
            Self::Open { index, at, wrong, preallocated } => {
                let count = index.entries().len();
                let wrong = wrong.saturating_add(number(count.saturating_sub(*at)));
                if wrong == 0 {
                    return IndexState::Good { entry_count: number(count), preallocated: *preallocated };
                }
                IndexState::Wrong { reason: format!("has {wrong} of {count} entries that point at no batch") }
            }
        }
    }
}

/// A transaction index while its segment is walked.
enum TransactionCheck {
    Absent,
    Done(IndexState),
    Open { index: TransactionIndex, at: usize, differs: bool, followed: bool, preallocated: u64 },
}

impl TransactionCheck {
    fn expect(&mut self, entry: &AbortedTransaction) {
        match self {
            Self::Absent => {
                *self = Self::Done(IndexState::Wrong {
                    reason: "is not there, and a transaction was aborted in this segment".to_owned(),
                });
            }
            Self::Done(_) => {}
            Self::Open { index, at, differs, .. } => {
                *differs |= index.entries().get(*at) != Some(entry);
                *at = at.saturating_add(1);
            }
        }
    }

    fn skip(&mut self) {
        if let Self::Open { followed, .. } = self {
            *followed = false;
        }
    }

    fn finish(self, still_followed: bool) -> IndexState {
        match self {
            Self::Absent => IndexState::Absent,
            Self::Done(state) => state,
            Self::Open { followed, .. } if !followed || !still_followed => {
                IndexState::NotChecked { reason: "the log in front of it could not be followed".to_owned() }
            }
            Self::Open { index, at, differs, preallocated, .. } => {
                let count = index.entries().len();
                if differs || at != count {
                    return IndexState::Wrong { reason: "differs from what the log says".to_owned() };
                }
                IndexState::Good { entry_count: number(count), preallocated }
            }
        }
    }
}
