//! What several modules need.

use std::path::Path;

use bytes::Bytes;
use weir_format::{BatchBuilder, Offset, RecordBatch, TimestampMs};
use weir_segment::io::{Io, Open, SyncKind, Wait, exact};
use weir_segment::layout::{FileKind, file_path};
use weir_segment::{LocalLog, SegmentConfig, SegmentError, TransactionIndex};

pub(crate) const NOW: TimestampMs = TimestampMs::new(1_767_225_600_000);

pub(crate) const DIR: &str = "/data/topic-0";

pub(crate) fn at(offset: i64) -> Offset {
    Offset::new(offset).unwrap()
}

/// A batch of `count` records of `size` bytes from `base` on, a millisecond apart.
pub(crate) fn batch(base: i64, count: i64, size: usize, timestamp: i64) -> Bytes {
    let mut builder = BatchBuilder::new().base_offset(at(base));
    for record in 0..count {
        let fill = u8::try_from((base + record) % 251).unwrap();
        let value = vec![fill; size];
        builder = builder.record(TimestampMs::new(timestamp + record), None, Some(&value));
    }
    builder.build().unwrap().freeze()
}

/// Small segments and dense indexes.
pub(crate) fn small() -> SegmentConfig {
    SegmentConfig { segment_bytes: 1_000, index_interval_bytes: 150, ..SegmentConfig::default() }
}

pub(crate) fn open(io: &mut dyn Io, config: SegmentConfig) -> Result<LocalLog, SegmentError> {
    LocalLog::open(io, Path::new(DIR), config, at(0))
}

/// Cuts what is invalid behind the last whole batch of the last segment, as recovery would after a crash; whatever is
/// invalid in an older segment is an error.
pub(crate) fn recover(io: &mut dyn Io, config: SegmentConfig) -> LocalLog {
    let mut log = open(io, config).unwrap();
    let bases: Vec<Offset> = log.segments().map(|segment| segment.base_offset()).collect();
    for base in &bases {
        let mut walker = log.walk(io, *base, 0).unwrap();
        let mut good = 0;
        let stopped = loop {
            match walker.next(io) {
                Ok(None) => break false,
                Ok(Some((position, bytes))) => match RecordBatch::parse(&bytes) {
                    Ok(_) => good = position + u64::try_from(bytes.len()).unwrap(),
                    Err(_) => break true,
                },
                Err(_) => break true,
            }
        };
        if stopped {
            assert_eq!(Some(base), bases.last(), "an older segment holds an invalid byte at {good}");
            log.abandon(io).unwrap();
            let file = io.open(&file_path(Path::new(DIR), *base, FileKind::Log), Open::Write).unwrap();
            io.truncate(file, good).unwrap();
            exact::sync(io, file, SyncKind::All).unwrap();
            io.close(file).unwrap();
            return open(io, config).unwrap();
        }
    }
    log
}

/// Base offset and bytes of every batch in the log.
pub(crate) fn batches(io: &mut dyn Io, log: &mut LocalLog) -> Vec<(i64, Bytes)> {
    let bases: Vec<Offset> = log.segments().map(|segment| segment.base_offset()).collect();
    let mut found = Vec::new();
    for base in bases {
        let mut walker = log.walk(io, base, 0).unwrap();
        while let Some((_, bytes)) = walker.next(io).unwrap() {
            let batch = RecordBatch::parse(&bytes).unwrap();
            found.push((batch.base_offset().get(), bytes));
        }
    }
    found
}

/// Puts another transaction index in place of that of a segment, durably, as a load does.
pub(crate) fn replace_transactions(
    io: &mut dyn Io,
    log: &mut LocalLog,
    base_offset: Offset,
    index: TransactionIndex,
) {
    log.adopt_transactions(base_offset, index).unwrap();
    log.write_transactions(io).unwrap();
}

/// Syncs what was appended, as a shard does: flush, reap, one sync, reap.
pub(crate) fn sync(io: &mut dyn Io, log: &mut LocalLog) -> Result<(), SegmentError> {
    let mut done = Vec::new();
    while log.synced_end_offset() < log.log_end_offset() {
        log.flush(io);
        log.sync_begin(io);
        io.reap(Wait::Block, &mut done)?;
        for done in done.drain(..) {
            log.on_done(done).expect("nobody else uses this disk");
        }
        if log.has_failed() {
            // What failed, and not only that something did.
            return log.settle(io);
        }
    }
    Ok(())
}
