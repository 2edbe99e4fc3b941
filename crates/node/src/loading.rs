//! Partitions at a start: loaded by threads of their own, several at a time, the largest first.
//!
//! A shard is not busy with loads, so it serves what it has been given already. Each log directory has its threads
//! (`num.recovery.threads.per.data.dir`), each thread a disk access of its own; a loaded log holds no open file, and is
//! handed to the shard that owns the partition. A log that cannot be loaded takes nothing with it but its partition.
//!
//! [`Starting`] is what others see of it: how far it is, and a way to end it. What was loaded until then stays so.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use weir_log::UnifiedLog;
use weir_recovery::{LoadError, Phase, ProducerStateSource, Progress, RecoveryReport, Watch};
use weir_segment::io::select::{IoConfig, SelectError, WantedBackend, select};
use weir_segment::io::{Io, IoError};
use weir_segment::layout::{FileKind, SegmentFileName, Stage};

use crate::clock;
use crate::shard::{Announced, PartitionSpec, describe};

/// Time between two lines of the log that say how far it is.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// How far a start is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadProgress {
    /// Partitions that are there.
    pub partitions_total: usize,
    /// Partitions that were loaded, or cannot be.
    pub partitions_done: usize,
    /// Those of them that cannot be.
    pub partitions_offline: usize,
    /// Bytes of logs that must be read again; 0 after a clean stop.
    pub bytes_total: u64,
    /// Bytes of them that were read.
    pub bytes_done: u64,
    /// Since the first load began; `None` before.
    pub elapsed: Option<Duration>,
}

impl LoadProgress {
    /// How much longer it takes at the pace so far, where that can be said.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        let left = self.bytes_total.checked_sub(self.bytes_done)?;
        let elapsed = self.elapsed?.as_millis();
        let left = elapsed.checked_mul(u128::from(left))?.checked_div(u128::from(self.bytes_done))?;
        Some(Duration::from_millis(u64::try_from(left).ok()?))
    }

    /// Whether everything is loaded.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.partitions_done == self.partitions_total
    }
}

impl std::fmt::Display for LoadProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} partitions", self.partitions_done, self.partitions_total)?;
        if self.bytes_total > 0 {
            let gb = |bytes: u64| bytes / 1_000_000_000;
            let tenths = |bytes: u64| bytes / 100_000_000 % 10;
            let (done, total) = (self.bytes_done, self.bytes_total);
            write!(f, ", {}.{} of {}.{} GB", gb(done), tenths(done), gb(total), tenths(total))?;
        }
        if self.partitions_offline > 0 {
            write!(f, ", {} offline", self.partitions_offline)?;
        }
        match self.time_left().map(|left| left.as_secs()) {
            Some(seconds) if !self.is_done() => write!(f, ", about {seconds} s left"),
            _ => Ok(()),
        }
    }
}

/// A start that is under way, as seen from outside.
#[derive(Debug, Default)]
pub struct Starting {
    interrupted: AtomicBool,
    partitions_total: AtomicUsize,
    partitions_done: AtomicUsize,
    partitions_offline: AtomicUsize,
    bytes_total: AtomicU64,
    bytes_done: AtomicU64,
    began: Mutex<Option<Instant>>,
    #[cfg(test)]
    pub(crate) interrupt_after: Mutex<Option<usize>>,
    #[cfg(test)]
    pub(crate) panic_at: Mutex<Option<i32>>,
}

impl Starting {
    /// Nothing has begun.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Ends the start at the next place where that is possible. What was done stays done, and no clean marker is left.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
    }

    /// Whether it is to end.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> LoadProgress {
        let total = self.bytes_total.load(Ordering::Relaxed);
        LoadProgress {
            partitions_total: self.partitions_total.load(Ordering::Relaxed),
            partitions_done: self.partitions_done.load(Ordering::Relaxed),
            partitions_offline: self.partitions_offline.load(Ordering::Relaxed),
            bytes_total: total,
            bytes_done: self.bytes_done.load(Ordering::Relaxed).min(total),
            elapsed: self.began.lock().unwrap_or_else(PoisonError::into_inner).map(|began| began.elapsed()),
        }
    }

    fn begin(&self, jobs: &[VecDeque<Job>]) {
        let all = || jobs.iter().flatten();
        self.partitions_total.store(all().count(), Ordering::Relaxed);
        self.bytes_total.store(all().map(|job| job.bytes).sum(), Ordering::Relaxed);
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Some(now());
    }

    fn loaded(&self, is_offline: bool) {
        self.partitions_offline.fetch_add(usize::from(is_offline), Ordering::Relaxed);
        let _done = self.partitions_done.fetch_add(1, Ordering::Relaxed) + 1;
        #[cfg(test)]
        if self.interrupt_after.lock().unwrap().is_some_and(|after| _done >= after) {
            self.interrupt();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a start says how long it took and will take")]
fn now() -> Instant {
    Instant::now()
}

/// A partition to load.
#[derive(Debug)]
pub(crate) struct Job {
    /// Which, and what is known of its past.
    pub(crate) spec: PartitionSpec,
    /// What its handle sees: that it is being loaded.
    pub(crate) announced: Announced,
    /// Bytes of its log that must be read again.
    bytes: u64,
}

impl Job {
    /// A partition whose log has not been looked at.
    pub(crate) fn new(spec: PartitionSpec, announced: Announced) -> Self {
        Self { spec, announced, bytes: 0 }
    }
}

/// A partition that was loaded, or cannot be.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Which.
    pub(crate) spec: PartitionSpec,
    /// What its handle sees.
    pub(crate) announced: Announced,
    /// Its log, without open files; or why there is none.
    pub(crate) log: Result<Box<UnifiedLog>, Arc<str>>,
}

/// Disk access for threads beside the shards.
#[derive(Debug, Clone)]
pub(crate) struct HelperIo {
    /// What the node's shards use.
    pub(crate) wanted: WantedBackend,
    /// Limits of one of them.
    pub(crate) limits: IoConfig,
}

impl HelperIo {
    /// Opens one, on the thread that uses it.
    ///
    /// # Errors
    /// If no backend can be had, not even the plain one.
    pub(crate) fn open(&self) -> Result<Box<dyn Io>, SelectError> {
        let opened = select(self.wanted, &self.limits).or_else(|error| {
            // One more ring may be too much where the shards have theirs.
            tracing::warn!(error = describe(&error), "partitions are loaded without io_uring");
            select(WantedBackend::Pwrite, &self.limits)
        });
        opened.map(|(io, _)| io)
    }
}

/// Loads the partitions of each log directory, which `jobs` has one list of, by `threads` threads a directory. They come
/// by the channel as they are loaded, which ends when all are, or when the start was interrupted.
///
/// Blocking: it measures first what is to be read.
///
/// # Errors
/// If no disk access can be had to look at the files.
pub(crate) fn load(
    mut jobs: Vec<VecDeque<Job>>,
    threads: usize,
    io: &HelperIo,
    starting: &Arc<Starting>,
) -> Result<mpsc::UnboundedReceiver<Loaded>, SelectError> {
    let mut looking = io.open()?;
    for job in jobs.iter_mut().flatten() {
        if !starting.is_interrupted() {
            job.bytes = unflushed_bytes(&mut *looking, &job.spec).unwrap_or(0);
        }
    }
    drop(looking);
    for of_dir in &mut jobs {
        // The largest first, so that none of them is what all others have waited for.
        of_dir.make_contiguous().sort_by_key(|job| std::cmp::Reverse(job.bytes));
    }
    starting.begin(&jobs);
    let (results, loaded) = mpsc::unbounded_channel();
    for of_dir in jobs {
        let count = threads.min(of_dir.len());
        let of_dir = Arc::new(Mutex::new(of_dir));
        for number in 0..count {
            let (of_dir, io, starting) = (Arc::clone(&of_dir), io.clone(), Arc::clone(starting));
            let results = results.clone();
            let work = move || load_some(&of_dir, &io, &starting, &results);
            let thread = std::thread::Builder::new().name(format!("load-{number}")).spawn(work);
            if let Err(error) = thread {
                // One of them is enough, and without one there is no channel to wait for.
                tracing::warn!(%error, "a thread to load partitions cannot be started");
            }
        }
    }
    Ok(loaded)
}

/// Bytes of a log that a load must read: the segments from that of the recovery point on.
fn unflushed_bytes(io: &mut dyn Io, spec: &PartitionSpec) -> Result<u64, IoError> {
    if spec.options.clean_shutdown {
        return Ok(0);
    }
    let mut segments = Vec::new();
    for path in io.list(&spec.dir)? {
        if let Some(name) = SegmentFileName::of(&path)
            && name.kind == FileKind::Log
            && name.stage == Stage::Live
        {
            let size = io.metadata(&path)?.map_or(0, |metadata| metadata.size);
            segments.push((name.base_offset, size));
        }
    }
    segments.sort_unstable();
    let first = segments.partition_point(|(base, _)| *base <= spec.options.recovery_point).saturating_sub(1);
    Ok(segments.iter().skip(first).map(|(_, size)| size).sum())
}

/// What one thread does until nothing is left to load, or it is to end.
fn load_some(
    jobs: &Mutex<VecDeque<Job>>,
    helper: &HelperIo,
    starting: &Starting,
    results: &mpsc::UnboundedSender<Loaded>,
) {
    let mut io = None;
    while !starting.is_interrupted() {
        let mut open = match io.take().map_or_else(|| helper.open(), Ok) {
            Ok(open) => open,
            Err(error) => {
                // Others may have one.
                tracing::error!(
                    error = describe(&error),
                    "a thread that loads partitions has no disk access"
                );
                return;
            }
        };
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(Job { mut spec, announced, bytes }) = next else { return };
        let loading = AssertUnwindSafe(|| load_one(&mut *open, &mut spec, bytes, starting));
        let log = match catch_unwind(loading) {
            Ok(Some(log)) => {
                io = Some(open);
                log
            }
            Ok(None) => return,
            // A mistake of ours that one log brings to light takes no other one along. The disk access may be in the
            // middle of something, so another one goes on.
            Err(_) => Err("its load panicked, which is a mistake of weir's: please report it".to_owned()),
        };
        let log = log.map_err(|reason| {
            let (topic, partition) = (spec.topic.as_str(), spec.id.partition);
            tracing::error!(topic, partition, reason, "partition is offline");
            Arc::from(reason)
        });
        starting.loaded(log.is_err());
        if results.send(Loaded { spec, announced, log }).is_err() {
            return;
        }
    }
}

/// What a load tells a start.
struct JobWatch<'a> {
    starting: &'a Starting,
    /// Bytes of this load.
    bytes: u64,
    /// Those of them that were told.
    told: u64,
    began: Instant,
}

impl JobWatch<'_> {
    fn tell(&mut self, done: u64) {
        // A walk that begins again goes back, and what was told is not taken back.
        let done = done.min(self.bytes);
        self.starting.bytes_done.fetch_add(done.saturating_sub(self.told), Ordering::Relaxed);
        self.told = self.told.max(done);
    }
}

impl Watch for JobWatch<'_> {
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        if progress.phase == Phase::Walk {
            // More than was thought: without the files that a clean stop left, all of it is read.
            let more = progress.bytes_total.saturating_sub(self.bytes);
            self.bytes += more;
            self.starting.bytes_total.fetch_add(more, Ordering::Relaxed);
            self.tell(progress.bytes_done);
        }
        if self.starting.is_interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn now(&mut self) -> Option<Duration> {
        Some(self.began.elapsed())
    }
}

/// Loads one partition; `None` if it was interrupted.
fn load_one(
    io: &mut dyn Io,
    spec: &mut PartitionSpec,
    bytes: u64,
    starting: &Starting,
) -> Option<Result<Box<UnifiedLog>, String>> {
    #[cfg(test)]
    {
        let panics = *starting.panic_at.lock().unwrap() == Some(spec.id.partition);
        assert!(!panics, "a test wants it");
    }
    spec.options.now = clock::now();
    let mut watch = JobWatch { starting, bytes, told: 0, began: now() };
    let opened = UnifiedLog::open_watched(io, &spec.dir, spec.log.clone(), spec.options.clone(), &mut watch);
    let log = match opened {
        Err(LoadError::Interrupted) => return None,
        Ok((mut log, report)) => {
            say_loaded(spec, &report);
            match log.detach(io) {
                Ok(true) => Ok(Box::new(log)),
                Ok(false) => unreachable!("what was just loaded is durable"),
                Err(error) => Err(describe(&error)),
            }
        }
        Err(error) => Err(describe(&error)),
    };
    watch.tell(watch.bytes);
    Some(log)
}

/// Says what a load found; quietly where a clean stop left nothing to say.
pub(crate) fn say_loaded(spec: &PartitionSpec, report: &RecoveryReport) {
    let (topic, partition) = (spec.topic.as_str(), spec.id.partition);
    let is_replayed = matches!(report.producer_state, ProducerStateSource::Replay { .. });
    let is_as_left = spec.options.clean_shutdown && !is_replayed && report.cuts.is_empty();
    if is_as_left || report.segment_count == 0 {
        tracing::debug!(topic, partition, %report, "log opened");
    } else {
        tracing::info!(topic, partition, %report, "log recovered");
    }
}

/// Says every few seconds how far a start is.
pub(crate) async fn say_how_far(starting: &Starting) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(SAID_EVERY).await;
        tracing::info!("loading: {}", starting.progress());
    }
}

#[cfg(test)]
mod tests {
    use weir_format::{LeaderEpoch, Offset, TimestampMs};
    use weir_log::{LogConfig, OpenOptions};

    use super::*;
    use crate::metadata::{Leadership, PartitionId};
    use crate::shard::{ShardConfig, Shards};
    use crate::uuid::Uuid;

    /// One thread has the longest work behind it first; of several, none is left alone with it at the end.
    #[tokio::test]
    async fn the_largest_is_loaded_first_and_what_was_closed_cleanly_last() {
        let root = tempfile::tempdir().unwrap();
        // The segments of each with their sizes, the recovery point, and whether it was closed cleanly.
        type Log = (&'static [(i64, usize)], i64, bool);
        let logs: [Log; 5] = [
            (&[(0, 2_000)], 0, false),
            // What lies below the recovery point is not read.
            (&[(0, 9_000), (5, 1_000)], 7, false),
            (&[(0, 1_500), (5, 1_500)], 0, false),
            (&[(0, 50_000)], 0, true),
            (&[], 0, false),
        ];
        let open: crate::shard::OpenIo =
            Box::new(|| Ok(select(WantedBackend::Pwrite, &IoConfig::default())?.0));
        let shards = Shards::start(vec![open], ShardConfig::default(), weir_log::TailMemory::new(0)).unwrap();
        let mut jobs = VecDeque::new();
        let mut handles = Vec::new();
        for (number, (segments, recovery_point, clean_shutdown)) in (0..).zip(logs) {
            let dir = root.path().join(format!("t-{number}"));
            std::fs::create_dir(&dir).unwrap();
            for (base, size) in segments {
                std::fs::write(dir.join(format!("{base:020}.log")), vec![0; *size]).unwrap();
            }
            let spec = PartitionSpec {
                id: PartitionId { topic_id: Uuid([1; 16]), partition: number },
                topic: "t".to_owned(),
                log_dir: root.path().to_path_buf(),
                dir,
                log: LogConfig::default(),
                options: OpenOptions {
                    side_dir: root.path().join(format!("side-{number}")),
                    clean_shutdown,
                    recovery_point: Offset::new(recovery_point).unwrap(),
                    log_start_offset: Offset::ZERO,
                    now: TimestampMs::new(0),
                },
                leadership: Leadership { leader_epoch: LeaderEpoch::ZERO, read_only: None },
            };
            let (handle, announced) = shards.all()[0].announce(&spec);
            handles.push(handle);
            jobs.push_back(Job::new(spec, announced));
        }
        let io = HelperIo { wanted: WantedBackend::Pwrite, limits: IoConfig::default() };
        let starting = Starting::new();
        // One that panics is offline as any other that cannot be loaded, and the thread goes on.
        *starting.panic_at.lock().unwrap() = Some(0);
        let mut loaded = load(vec![jobs], 1, &io, &starting).unwrap();
        let (mut order, mut panicked) = (Vec::new(), Vec::new());
        while let Some(one) = loaded.recv().await {
            order.push(one.spec.id.partition);
            panicked.extend(one.log.err().filter(|reason| reason.contains("panicked")));
        }
        assert_eq!((order, panicked.len()), (vec![2, 0, 1, 3, 4], 1));
        // Without weir's own files all of a log is read, whatever was thought before.
        assert_eq!(starting.progress().bytes_total, 3_000 + 2_000 + 10_000 + 50_000);
        assert!(starting.progress().is_done());
        // The one that panicked has not said how far it was.
        assert_eq!(starting.progress().bytes_done, 63_000);
        shards.stop().await;
    }

    #[test]
    fn progress_says_what_is_left_and_how_long_that_takes() {
        let progress = LoadProgress {
            partitions_total: 10,
            partitions_done: 4,
            partitions_offline: 1,
            bytes_total: 12_340_000_000,
            bytes_done: 3_085_000_000,
            elapsed: Some(Duration::from_secs(2)),
        };
        assert_eq!(progress.time_left(), Some(Duration::from_secs(6)));
        let text = "4 of 10 partitions, 3.0 of 12.3 GB, 1 offline, about 6 s left";
        assert_eq!(progress.to_string(), text);
        let clean = LoadProgress { bytes_total: 0, bytes_done: 0, partitions_offline: 0, ..progress };
        assert_eq!((clean.time_left(), clean.to_string().as_str()), (None, "4 of 10 partitions"));
        let done = LoadProgress { partitions_done: 10, bytes_done: progress.bytes_total, ..progress };
        assert!(done.is_done() && !progress.is_done());
        assert_eq!(done.to_string(), "10 of 10 partitions, 12.3 of 12.3 GB, 1 offline");
    }
}
