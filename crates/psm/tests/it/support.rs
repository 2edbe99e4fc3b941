//! Batches and a log end to append them to.

use weir_format::{
    BatchBuilder, BatchReader, ControlRecordType, MirrorPidReset, Offset, ProducerEpoch, ProducerId,
    RecordBatch, Sequence, TimestampMs, crc,
};
use weir_psm::{
    AppendOrigin, Applied, Checked, DuplicateBatch, ProducerStateError, ProducerStateManager, PsmConfig,
    TransactionVersion, VerificationGuard,
};

pub(crate) fn offset(raw: i64) -> Offset {
    Offset::new(raw).expect("not negative")
}

pub(crate) fn pid(raw: i64) -> ProducerId {
    ProducerId::new(raw).expect("not negative")
}

/// What a batch says. Numbers are raw: -1 is Kafka's "none".
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    pub(crate) pid: i64,
    pub(crate) epoch: i16,
    pub(crate) seq: i32,
    pub(crate) count: i32,
    pub(crate) transactional: bool,
    pub(crate) timestamp: i64,
    /// Whether compaction took the records.
    pub(crate) emptied: bool,
}

/// `B(?, count, pid, epoch, seq)` of the case list.
pub(crate) fn data(pid: i64, epoch: i16, seq: i32, count: i32) -> Data {
    Data { pid, epoch, seq, count, transactional: false, timestamp: 1_000, emptied: false }
}

impl Data {
    pub(crate) fn transactional(mut self) -> Self {
        self.transactional = true;
        self
    }

    pub(crate) fn emptied(mut self) -> Self {
        self.emptied = true;
        self
    }

    pub(crate) fn at(mut self, timestamp: i64) -> Self {
        self.timestamp = timestamp;
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let timestamp = TimestampMs::new(self.timestamp);
        let mut builder = BatchBuilder::new().last_offset_delta(self.count - 1).max_timestamp(timestamp);
        if self.transactional {
            builder = builder.transactional();
        }
        if !self.emptied {
            for _ in 0..self.count {
                builder = builder.record(timestamp, None, Some(b"v"));
            }
        }
        let mut bytes = builder.build().expect("a batch").to_vec();
        set_producer(&mut bytes, self.pid, self.epoch, self.seq);
        bytes
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Marker {
    pub(crate) pid: i64,
    pub(crate) epoch: i16,
    pub(crate) coordinator_epoch: i32,
    pub(crate) commit: bool,
    pub(crate) timestamp: i64,
}

pub(crate) fn commit(pid: i64, epoch: i16, coordinator_epoch: i32) -> Marker {
    Marker { pid, epoch, coordinator_epoch, commit: true, timestamp: 2_000 }
}

pub(crate) fn abort(pid: i64, epoch: i16, coordinator_epoch: i32) -> Marker {
    Marker { commit: false, ..commit(pid, epoch, coordinator_epoch) }
}

impl Marker {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let kind = if self.commit { ControlRecordType::Commit } else { ControlRecordType::Abort };
        let mut value = vec![0, 0];
        value.extend(self.coordinator_epoch.to_be_bytes());
        control(self.pid, self.epoch, kind, &value, self.timestamp)
    }
}

/// A transactional control batch with one record.
pub(crate) fn control(
    pid: i64,
    epoch: i16,
    kind: ControlRecordType,
    value: &[u8],
    timestamp: i64,
) -> Vec<u8> {
    let mut bytes = BatchBuilder::new()
        .transactional()
        .control_record(TimestampMs::new(timestamp), kind, value)
        .build()
        .expect("a batch")
        .to_vec();
    set_producer(&mut bytes, pid, epoch, -1);
    bytes
}

pub(crate) fn barrier() -> Vec<u8> {
    MirrorPidReset::build(TimestampMs::new(3_000)).to_vec()
}

/// Writes the producer fields as raw numbers, also ones that no builder takes.
pub(crate) fn set_producer(bytes: &mut [u8], pid: i64, epoch: i16, seq: i32) {
    bytes[43..51].copy_from_slice(&pid.to_be_bytes());
    bytes[51..53].copy_from_slice(&epoch.to_be_bytes());
    bytes[53..57].copy_from_slice(&seq.to_be_bytes());
    seal(bytes);
}

pub(crate) fn seal(bytes: &mut [u8]) {
    let crc = crc::batch_crc(bytes);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
}

pub(crate) fn set_base(bytes: &mut [u8], base_offset: i64) {
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
}

/// What became of one batch.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Appended(Applied),
    Duplicate(DuplicateBatch),
    Refused(ProducerStateError),
}

impl Outcome {
    pub(crate) fn applied(self) -> Applied {
        match self {
            Self::Appended(applied) => applied,
            other => panic!("not appended: {other:?}"),
        }
    }
}

/// A producer state manager at the end of a log.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) psm: ProducerStateManager,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self::with(PsmConfig::default())
    }

    pub(crate) fn with(config: PsmConfig) -> Self {
        Self { psm: ProducerStateManager::new(config) }
    }

    pub(crate) fn end(&self) -> i64 {
        self.psm.map_end_offset().get()
    }

    pub(crate) fn append(&mut self, bytes: &[u8], origin: AppendOrigin) -> Outcome {
        let batch = RecordBatch::parse(bytes).expect("a valid batch");
        let checked = self.psm.check(&batch, self.psm.map_end_offset(), origin);
        self.finish(checked)
    }

    pub(crate) fn append_marker(&mut self, marker: Marker, version: TransactionVersion) -> Outcome {
        let bytes = marker.bytes();
        let batch = RecordBatch::parse(&bytes).expect("a valid batch");
        let checked = self.psm.check_marker(&batch, self.psm.map_end_offset(), version);
        self.finish(checked)
    }

    /// A client's batch that comes with this guard, on a leader that asks for one.
    pub(crate) fn verified(&mut self, data: Data, guard: Option<&VerificationGuard>) -> Outcome {
        let bytes = data.bytes();
        let batch = RecordBatch::parse(&bytes).expect("a valid batch");
        let end = self.psm.map_end_offset();
        let checked = self.psm.check_verified(&batch, end, AppendOrigin::Client, guard);
        self.finish(checked)
    }

    /// The ids that are known.
    pub(crate) fn ids(&self) -> Vec<i64> {
        self.psm.entries().map(|(id, _)| id.get()).collect()
    }

    pub(crate) fn client(&mut self, data: Data) -> Outcome {
        self.append(&data.bytes(), AppendOrigin::Client)
    }

    pub(crate) fn mirrored(&mut self, data: Data) -> Applied {
        self.append(&data.bytes(), AppendOrigin::Replication).applied()
    }

    pub(crate) fn mirrored_marker(&mut self, marker: Marker) -> Applied {
        self.append(&marker.bytes(), AppendOrigin::Replication).applied()
    }

    pub(crate) fn barrier(&mut self) -> Applied {
        self.append(&barrier(), AppendOrigin::Coordinator).applied()
    }

    /// Appends every batch of `log` at its own offset, as a follower or replay does.
    pub(crate) fn replay(&mut self, log: &[u8]) -> Vec<Applied> {
        BatchReader::new(log)
            .map(|batch| {
                let batch = batch.expect("a valid batch");
                let checked = self.psm.check(&batch, batch.base_offset(), AppendOrigin::Replication);
                self.finish(checked).applied()
            })
            .collect()
    }

    fn finish(&mut self, checked: Result<Checked, ProducerStateError>) -> Outcome {
        match checked {
            Ok(Checked::Append(transition)) => Outcome::Appended(self.psm.commit(transition)),
            Ok(Checked::Duplicate(duplicate)) => Outcome::Duplicate(duplicate),
            Err(error) => Outcome::Refused(error),
        }
    }

    /// Epoch, last sequence and last offset of a producer, if it is known; -1 is none.
    pub(crate) fn producer(&self, id: i64) -> Option<(i16, i32, i64)> {
        let entry = self.psm.entry(pid(id))?;
        Some((
            entry.producer_epoch().map_or(-1, ProducerEpoch::get),
            entry.last_sequence().map_or(-1, Sequence::get),
            entry.last_offset().map_or(-1, Offset::get),
        ))
    }
}
