//! The indexes of a segment, built while somebody else walks its batches: recovery reads a log once.

use std::path::Path;

use weir_format::{BatchHeader, Message, Offset, TimestampMs};

use crate::config::SegmentConfig;
use crate::io::{Io, IoError};
use crate::layout::{FileKind, file_path};
use crate::log_segment::write_index;
use crate::offset_index::OffsetIndex;
use crate::time_index::{TimeIndex, TimestampOffset};
use crate::units::to_u64;
use crate::walk::BatchInfo;

/// The offset index and the time index of one segment, from all of its batches in order.
///
/// Memory: 20 bytes for each entry, of which there is one for each `index_interval_bytes` of the log at most.
#[derive(Debug)]
pub struct IndexBuilder {
    config: SegmentConfig,
    base_offset: Offset,
    growing: Growing,
    size: u64,
    next_offset: Offset,
    first_timestamp: Option<TimestampMs>,
}

/// Indexes that grow with the log.
#[derive(Debug)]
pub(crate) struct Growing {
    pub(crate) offsets: OffsetIndex,
    pub(crate) times: TimeIndex,
    pub(crate) largest: Option<TimestampOffset>,
    pub(crate) bytes_since_entry: u64,
}

/// Takes note of one more batch. Kafka: `LogSegment.append`, and `recover`, which does the same.
pub(crate) fn note(
    (offsets, times): (&mut OffsetIndex, &mut TimeIndex),
    largest: &mut Option<TimestampOffset>,
    bytes_since_entry: &mut u64,
    config: &SegmentConfig,
    batch: &BatchInfo,
) {
    let here = TimestampOffset { timestamp: batch.max_timestamp, offset: batch.last_offset };
    if here.timestamp.get() >= 0 && largest.is_none_or(|before| before.timestamp < here.timestamp) {
        *largest = Some(here);
    }
    if *bytes_since_entry > u64::from(config.index_interval_bytes) {
        offsets.append(batch.last_offset, batch.position);
        if let Some(largest) = *largest {
            times.append(largest);
        }
        *bytes_since_entry = 0;
    }
    *bytes_since_entry = bytes_since_entry.saturating_add(batch.size);
}

impl IndexBuilder {
    /// Of a segment without batches.
    pub fn new(base_offset: Offset, config: &SegmentConfig) -> IndexBuilder {
        IndexBuilder {
            config: *config,
            base_offset,
            growing: Growing {
                offsets: OffsetIndex::new(base_offset),
                times: TimeIndex::new(base_offset),
                largest: None,
                bytes_since_entry: 0,
            },
            size: 0,
            next_offset: base_offset,
            first_timestamp: None,
        }
    }

    /// Takes note of the next batch, which lies behind those before.
    ///
    /// Cost: no allocation but for the growth of the indexes.
    pub fn batch(&mut self, header: &BatchHeader<'_>) {
        self.add(&BatchInfo::of(header, self.size));
    }

    /// Takes note of a message of magic 0 or 1 that is next.
    ///
    /// # Panics
    /// If its offset is the last one there is, which none has that was parsed.
    pub fn message(&mut self, message: &Message<'_>) {
        let next_offset = message.offset().next();
        self.add(&BatchInfo {
            position: self.size,
            size: to_u64(message.size()),
            base_offset: message.offset(),
            last_offset: message.offset(),
            next_offset: next_offset.expect("the offset of a message is not the last one there is"),
            leader_epoch: None,
            max_timestamp: message.timestamp(),
        });
    }

    fn add(&mut self, batch: &BatchInfo) {
        if self.size == 0 {
            self.first_timestamp = Some(batch.max_timestamp).filter(|first| first.get() >= 0);
        }
        let Growing { offsets, times, largest, bytes_since_entry } = &mut self.growing;
        note((offsets, times), largest, bytes_since_entry, &self.config, batch);
        self.size = batch.end();
        self.next_offset = batch.next_offset;
    }

    /// Base offset of the segment.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Size of the batches so far, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The offset behind the last batch; the base offset if there is none.
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Writes both index files of a segment that is not appended to any more, synced.
    ///
    /// # Errors
    /// [`IoError`]: then none is left that it could remove. The log can do without: they are built again when they are
    /// needed.
    pub fn write_files(mut self, io: &mut dyn Io, dir: &Path) -> Result<(), IoError> {
        self.end();
        let path = |kind| file_path(dir, self.base_offset, kind);
        let (offsets, times) = (path(FileKind::OffsetIndex), path(FileKind::TimeIndex));
        let written = write_index(io, &offsets, self.growing.offsets.encode())
            .and_then(|()| write_index(io, &times, self.growing.times.encode()));
        if written.is_err() {
            for path in [offsets, times] {
                // One that stays is looked at before it is used.
                let _ = io.remove(&path);
            }
        }
        written
    }

    /// The last entry of the time index is the largest timestamp. Kafka: `onBecomeInactiveSegment`.
    fn end(&mut self) {
        if let Some(largest) = self.growing.largest {
            self.growing.times.append(largest);
        }
        self.growing.bytes_since_entry = 0;
    }

    /// What it found, and the timestamp of the first batch.
    pub(crate) fn into_parts(mut self) -> (Growing, Option<TimestampMs>) {
        self.end();
        (self.growing, self.first_timestamp)
    }
}

#[cfg(test)]
mod tests {
    use weir_format::{BatchBuilder, BatchReader};

    use super::*;
    use crate::io::sim::SimDisk;
    use crate::local_log::LocalLog;

    const LOG: &str = "/log/00000000000000000000.log";

    /// A log whose timestamps go up and down, appended and closed as usual; its batches.
    fn written(disk: &SimDisk, config: &SegmentConfig) -> Vec<u8> {
        let mut io = disk.io();
        let mut log = LocalLog::open(&mut io, Path::new("/log"), *config, Offset::ZERO).unwrap();
        for number in 0..200_i64 {
            let time = TimestampMs::new(1_000 + (number * 37) % 101 + number / 3);
            let value = vec![7; usize::try_from(number * 13 % 700).unwrap()];
            let base = log.log_end_offset();
            let batch =
                BatchBuilder::new().base_offset(base).record(time, None, Some(&value)).build().unwrap();
            log.append_bytes(&mut io, batch.freeze(), time).unwrap();
        }
        log.close(&mut io).unwrap();
        disk.read_file(Path::new(LOG)).unwrap()
    }

    fn walked(bytes: &[u8], config: &SegmentConfig) -> IndexBuilder {
        let mut indexes = IndexBuilder::new(Offset::ZERO, config);
        for batch in BatchReader::new(bytes) {
            indexes.batch(&batch.unwrap().header());
        }
        indexes
    }

    #[test]
    fn a_walk_builds_the_indexes_that_appends_have_built() {
        let config = SegmentConfig { index_interval_bytes: 900, ..SegmentConfig::default() };
        let disk = SimDisk::new(1);
        disk.io().create_dir_all(Path::new("/log")).unwrap();
        disk.io().create_dir_all(Path::new("/other")).unwrap();
        let bytes = written(&disk, &config);
        let indexes = walked(&bytes, &config);
        assert_eq!((indexes.size(), indexes.next_offset().get()), (bytes.len() as u64, 200));
        indexes.write_files(&mut disk.io(), Path::new("/other")).unwrap();
        for name in ["00000000000000000000.index", "00000000000000000000.timeindex"] {
            let file = |dir: &str| disk.read_file(&Path::new(dir).join(name)).unwrap();
            assert!(file("/log").len() > 100, "{name}");
            assert!(file("/log") == file("/other"), "{name}");
        }
    }

    #[test]
    fn a_log_that_was_walked_is_opened_without_its_batches_being_read() {
        let config = SegmentConfig { index_interval_bytes: 900, ..SegmentConfig::default() };
        let disk = SimDisk::new(1);
        disk.io().create_dir_all(Path::new("/log")).unwrap();
        let bytes = written(&disk, &config);
        for name in ["00000000000000000000.index", "00000000000000000000.timeindex"] {
            disk.write_file(&Path::new("/log").join(name), b"not an index");
        }
        let plain = {
            let mut io = disk.io();
            LocalLog::open(&mut io, Path::new("/log"), config, Offset::ZERO).unwrap()
        };
        let built = |log: &LocalLog| {
            let (offsets, times) = log.active().indexes().unwrap();
            (offsets.clone(), times.clone())
        };
        disk.read_error(Path::new(LOG), 0..bytes.len() as u64);
        let mut io = disk.io();
        let walked = Some(walked(&bytes, &config));
        let log = LocalLog::open_walked(&mut io, Path::new("/log"), config, Offset::ZERO, walked).unwrap();
        assert_eq!(log.log_end_offset().get(), 200);
        assert!(built(&log) == built(&plain));
    }
}
