//! Batches, directories on SimDisk, and the golden ones.

use std::path::{Path, PathBuf};

use weir_format::{
    BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, ProducerId, RecordBatch, Sequence, TimestampMs,
};
use weir_psm::PsmConfig;
use weir_recovery::{LoadError, LoadedLog, LogLoader, RecoveryConfig, RecoveryReport};
use weir_segment::SegmentConfig;
use weir_segment::io::sim::SimDisk;

pub(crate) const NOW: TimestampMs = TimestampMs::new(1_767_225_600_000);
pub(crate) const DIR: &str = "/data/t-0";
pub(crate) const SIDE_DIR: &str = "/data.weir/t-0";

pub(crate) fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

/// A batch at an offset, under an epoch.
pub(crate) fn placed(builder: BatchBuilder, base: i64, epoch: i32) -> Vec<u8> {
    let mut batch = builder.build().unwrap();
    weir_format::set_base_offset(&mut batch, offset(base)).unwrap();
    weir_format::set_leader_epoch(&mut batch, LeaderEpoch::new(epoch).unwrap()).unwrap();
    batch.to_vec()
}

/// `count` records of `size` bytes each.
pub(crate) fn plain(count: usize, size: usize) -> BatchBuilder {
    (0..count).fold(BatchBuilder::new(), |builder, index| {
        let value = vec![b'a' + u8::try_from(index % 26).unwrap(); size];
        builder.record(NOW, Some(b"k"), Some(&value))
    })
}

/// The same of a producer.
pub(crate) fn produced(id: i64, sequence: i32, count: usize) -> BatchBuilder {
    plain(count, 20).producer(
        ProducerId::new(id).unwrap(),
        ProducerEpoch::ZERO,
        Some(Sequence::new(sequence).unwrap()),
    )
}

/// Writes segments: the batches of each, one behind the other, as their base offsets say.
pub(crate) fn write_segments(disk: &SimDisk, segments: &[Vec<Vec<u8>>]) {
    for batches in segments {
        let first = RecordBatch::parse(&batches[0]).unwrap().base_offset();
        disk.write_file(&log_path(first.get()), &batches.concat());
    }
}

pub(crate) fn log_path(base: i64) -> PathBuf {
    file(base, "log")
}

pub(crate) fn file(base: i64, suffix: &str) -> PathBuf {
    Path::new(DIR).join(format!("{base:020}.{suffix}"))
}

pub(crate) fn config() -> RecoveryConfig {
    RecoveryConfig {
        segment: SegmentConfig { index_interval_bytes: 200, ..SegmentConfig::default() },
        psm: PsmConfig::default(),
        clean_shutdown: false,
        recovery_point: Offset::ZERO,
        log_start_offset: Offset::ZERO,
        side_dir: SIDE_DIR.into(),
        now: NOW,
    }
}

/// Loads and lets go of the files.
pub(crate) fn load(
    disk: &SimDisk,
    config: &RecoveryConfig,
) -> Result<(LoadedLog, RecoveryReport), LoadError> {
    LogLoader::load(&mut disk.io(), Path::new(DIR), config)
}

/// A golden directory of `weir-log`, at the usual place.
pub(crate) fn golden(disk: &SimDisk, name: &str) {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../log/testdata").join(name);
    disk.import(&testdata.join(format!("{name}-0")), Path::new(DIR)).unwrap();
}
