//! Batches, partitions on SimDisk, and what is compared.

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use weir_format::{
    BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, ProducerId, RecordBatch, Sequence, TimestampMs,
};
use weir_log::{
    AppendError, AppendParams, Appended, Isolation, LogConfig, OpenOptions, RecoveryReport, UnifiedLog,
};
use weir_psm::ProducerStateManager;
use weir_recovery::LoadError;
use weir_segment::io::sim::SimDisk;
use weir_segment::io::{Done, Io, Wait};
use weir_segment::{AbortedTransaction, SegmentConfig};

pub(crate) const NOW: TimestampMs = TimestampMs::new(1_767_225_600_000);

pub(crate) fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

pub(crate) fn epoch(raw: i32) -> LeaderEpoch {
    LeaderEpoch::new(raw).unwrap()
}

/// A batch of `count` records for a producer, at offset 0: as a client sends it.
pub(crate) fn data(
    producer: Option<(i64, i16, i32)>,
    transactional: bool,
    count: usize,
    size: usize,
) -> BytesMut {
    let mut builder = BatchBuilder::new();
    if let Some((id, epoch, sequence)) = producer {
        builder = builder.producer(
            ProducerId::new(id).unwrap(),
            ProducerEpoch::new(epoch).unwrap(),
            Sequence::new(sequence),
        );
    }
    if transactional {
        builder = builder.transactional();
    }
    for index in 0..count {
        let value = vec![b'a' + u8::try_from(index % 26).unwrap(); size];
        builder = builder.record(NOW, Some(b"k"), Some(&value));
    }
    builder.build().unwrap()
}

pub(crate) fn plain(count: usize, size: usize) -> BytesMut {
    data(None, false, count, size)
}

pub(crate) fn marker(commit: bool, id: i64, producer_epoch: i16, coordinator_epoch: i32) -> BytesMut {
    BatchBuilder::end_transaction_marker(
        commit,
        ProducerId::new(id).unwrap(),
        ProducerEpoch::new(producer_epoch).unwrap(),
        (coordinator_epoch >= 0).then_some(coordinator_epoch),
        NOW,
    )
}

pub(crate) fn barrier() -> BytesMut {
    BatchBuilder::barrier(NOW)
}

/// Places a batch at an offset, under a leader epoch: as it lies in a source's log.
pub(crate) fn placed(mut batch: BytesMut, base: i64, leader_epoch: i32) -> BytesMut {
    weir_format::set_base_offset(&mut batch, offset(base)).unwrap();
    weir_format::set_leader_epoch(&mut batch, epoch(leader_epoch)).unwrap();
    batch
}

/// A source's log: batches one behind the other.
pub(crate) fn log_of(batches: &[BytesMut]) -> Vec<BytesMut> {
    let mut next = 0;
    let place = |batch: &BytesMut| {
        let batch = placed(batch.clone(), next, 0);
        next = RecordBatch::parse(&batch).unwrap().next_offset().get();
        batch
    };
    batches.iter().map(place).collect()
}

/// A partition on a simulated disk.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) disk: SimDisk,
    pub(crate) dir: PathBuf,
    pub(crate) side_dir: PathBuf,
    pub(crate) config: LogConfig,
}

impl Bench {
    pub(crate) fn new(seed: u64) -> Bench {
        let disk = SimDisk::new(seed);
        disk.yield_always(true);
        Bench {
            disk,
            dir: PathBuf::from("/data/t-0"),
            side_dir: PathBuf::from("/data.weir/t-0"),
            // Any timestamp is taken.
            config: LogConfig { message_timestamp_after_max_ms: i64::MAX, ..LogConfig::default() },
        }
    }

    pub(crate) fn segment_bytes(mut self, bytes: u32) -> Bench {
        self.config.segment =
            SegmentConfig { segment_bytes: bytes, index_interval_bytes: 200, ..self.config.segment };
        self
    }

    pub(crate) fn fork(&self) -> Bench {
        Bench { disk: self.disk.fork(), ..self.clone() }
    }

    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            side_dir: self.side_dir.clone(),
            clean_shutdown: false,
            recovery_point: Offset::ZERO,
            log_start_offset: Offset::ZERO,
            now: NOW,
        }
    }

    pub(crate) fn try_open(&self, options: OpenOptions) -> Result<Open, LoadError> {
        let mut io = self.disk.io();
        let (log, report) = UnifiedLog::open(&mut io, &self.dir, self.config.clone(), options)?;
        Ok(Open { io: Box::new(io), log, report })
    }

    pub(crate) fn open(&self, options: OpenOptions) -> Open {
        self.try_open(options).unwrap()
    }

    /// After a crash, with nothing known of the recovery point.
    pub(crate) fn open_unclean(&self) -> Open {
        self.open(self.options())
    }

    pub(crate) fn open_clean(&self) -> Open {
        self.open(OpenOptions { clean_shutdown: true, ..self.options() })
    }

    /// Removes everything but the `.log` files.
    pub(crate) fn remove_auxiliary_files(&self) {
        for path in self.disk.files() {
            let is_log = path.extension().is_some_and(|suffix| suffix == "log");
            if (path.starts_with(&self.dir) && !is_log) || path.starts_with(&self.side_dir) {
                assert!(self.disk.remove_file(&path));
            }
        }
    }

    /// The `.log` files, one behind the other.
    pub(crate) fn log_bytes(&self) -> Vec<u8> {
        let files = self.disk.contents();
        let logs = files.iter().filter(|(path, _)| {
            path.parent() == Some(&self.dir) && path.extension().is_some_and(|suffix| suffix == "log")
        });
        logs.flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// An open partition and the disk that it is given.
pub(crate) struct Open {
    pub(crate) io: Box<dyn Io>,
    pub(crate) log: UnifiedLog,
    pub(crate) report: RecoveryReport,
}

impl Open {
    pub(crate) fn append(&mut self, batch: BytesMut, params: &AppendParams) -> Result<Appended, AppendError> {
        let appended = self.log.append(&mut *self.io, batch, params)?;
        // What a shard does between other work.
        self.log.finish_snapshot(&mut *self.io);
        Ok(appended)
    }

    /// As a client, under epoch 0.
    pub(crate) fn produce(&mut self, batch: BytesMut) -> Appended {
        let params = AppendParams { may_start_transaction: true, ..AppendParams::client(epoch(0), NOW) };
        match self.append(batch.clone(), &params) {
            // Checked before segments were made that small.
            Err(AppendError::RecordBatchTooLarge { .. }) => {
                self.append(batch, &AppendParams { records_checked: true, ..params }).unwrap()
            }
            appended => appended.unwrap(),
        }
    }

    pub(crate) fn coordinate(&mut self, batch: BytesMut) -> Appended {
        self.append(batch, &AppendParams::coordinator(epoch(0), NOW)).unwrap()
    }

    pub(crate) fn replicate(&mut self, bytes: BytesMut) -> Appended {
        self.append(bytes, &AppendParams::replication(epoch(i32::MAX), NOW)).unwrap()
    }

    /// Everything that was appended is written.
    pub(crate) fn settle(&mut self) {
        while !self.log.is_offline() && (self.log.has_unsent() || self.log.is_busy()) {
            self.log.flush(&mut *self.io);
            self.reap();
        }
    }

    /// As a shard does it: flush, reap, one sync, reap, and every completion handed over.
    pub(crate) fn sync(&mut self) {
        while !self.log.is_offline() && self.log.recovery_point() < self.log.log_end_offset() {
            self.log.flush(&mut *self.io);
            self.log.sync_begin(&mut *self.io);
            self.reap();
        }
    }

    /// Waits for one completion, and takes in what there is.
    pub(crate) fn reap(&mut self) {
        let mut done: Vec<Done> = Vec::new();
        self.io.reap(Wait::Block, &mut done).unwrap();
        for done in done {
            self.log.on_done(done).map_err(|_| "nobody else uses this disk").unwrap();
        }
    }

    pub(crate) fn read(&mut self, from: i64, max_bytes: usize, isolation: Isolation) -> weir_log::Read {
        self.log.read(&mut *self.io, offset(from), max_bytes, isolation, true).unwrap()
    }

    /// All that a reader sees from the log start, by reading on and on.
    pub(crate) fn read_all(&mut self, isolation: Isolation) -> Vec<u8> {
        let view = self.log.view();
        let mut at = view.log_start_offset;
        let mut all = Vec::new();
        loop {
            let read = self.log.read(&mut *self.io, at, 1 << 20, isolation, true).unwrap();
            if read.bytes.is_empty() {
                assert_eq!(at, view.end_for(isolation), "a reader reaches the end");
                return all;
            }
            for batch in weir_format::BatchReader::new(&read.bytes) {
                at = batch.unwrap().next_offset();
            }
            all.extend_from_slice(&read.bytes);
            // A gap at the end is skipped by nothing: the reader is where the log ends.
            if at >= view.end_for(isolation) {
                return all;
            }
        }
    }

    pub(crate) fn close(mut self) {
        self.log.close(&mut *self.io).unwrap();
    }

    pub(crate) fn truncate(&mut self, to: i64) {
        self.log.truncate_to(&mut *self.io, offset(to)).unwrap();
    }

    /// Every aborted transaction noted in any segment, in the order of the files.
    pub(crate) fn aborted(&mut self) -> Vec<AbortedTransaction> {
        let segments = self.log.segments();
        segments
            .iter()
            .flat_map(|segment| self.log.segment_transactions(&mut *self.io, segment.base_offset).unwrap())
            .collect()
    }

    /// What laws compare, apart from producers.
    pub(crate) fn facts(&mut self) -> Facts {
        Facts {
            log_end_offset: self.log.log_end_offset(),
            last_stable_offset: self.log.view().last_stable_offset,
            aborted: self.aborted(),
            epochs: self
                .log
                .epochs()
                .entries()
                .iter()
                .map(|entry| (entry.epoch.get(), entry.start_offset.get()))
                .collect(),
            open: self.log.open_transactions().iter().map(|open| open.first_offset).collect(),
            barriers: self
                .log
                .partition_file()
                .barriers()
                .map(|(at, note)| (at, note.aborted_transaction))
                .collect(),
            last_batch: self.log.last_batch().map(|last| (last.base_offset, last.crc)),
        }
    }

    pub(crate) fn producers(&self) -> ProducerStateManager {
        self.log.producer_state().clone()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) log_end_offset: Offset,
    pub(crate) last_stable_offset: Offset,
    pub(crate) aborted: Vec<AbortedTransaction>,
    pub(crate) epochs: Vec<(i32, i64)>,
    pub(crate) open: Vec<Offset>,
    pub(crate) barriers: Vec<(Offset, bool)>,
    pub(crate) last_batch: Option<(Offset, u32)>,
}

#[track_caller]
pub(crate) fn assert_equal_state(a: &ProducerStateManager, b: &ProducerStateManager, what: &str) {
    assert!(
        a.equal_state(b),
        "{what}: {:?} differs from {:?}",
        a.entries().collect::<Vec<_>>(),
        b.entries().collect::<Vec<_>>()
    );
}

pub(crate) fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}
