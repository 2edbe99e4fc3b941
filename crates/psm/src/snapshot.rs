//! The bytes of a `.snapshot` file: what Kafka keeps of its producers on disk. No file here.
//!
//! ```text
//!  0  version               int16   1
//!  2  crc                   uint32  CRC-32C of everything behind it
//!  6  entry count           int32
//! 10  entries, 46 bytes each:
//!      0  producer_id               int64
//!      8  epoch                     int16   -1: none
//!     10  last_sequence             int32   -1: none
//!     14  last_offset               int64   -1: no batch in this epoch
//!     22  offset_delta              int32   last minus first offset of that batch
//!     26  timestamp                 int64   of the last batch or marker
//!     34  coordinator_epoch         int32   -1: none
//!     38  current_txn_first_offset  int64   -1: none
//! ```
//!
//! All big-endian. Kafka writes the entries in the order of a hash map, and reads any; ours are
//! ascending by producer id.

use weir_format::{Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs, crc};

use crate::entry::{BatchMetadata, ProducerStateEntry};
use crate::error::SnapshotError;

/// The version of the format, Kafka's `PRODUCER_SNAPSHOT_VERSION`.
pub const VERSION: i16 = 1;
/// Where the entry count starts, and what the checksum covers from.
const ENTRIES_START: usize = 6;
/// Bytes before the first entry.
pub const HEADER_SIZE: usize = 10;
/// Bytes of one entry.
const ENTRY_SIZE: usize = 46;

/// Writes entries in the order given; `count` is how many there are.
///
/// # Panics
/// If there are more than 2^31 - 1 entries, or not `count`.
pub fn encode<'a>(
    count: usize,
    entries: impl Iterator<Item = (ProducerId, &'a ProducerStateEntry)>,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_SIZE.saturating_add(count.saturating_mul(ENTRY_SIZE)));
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend(0_u32.to_be_bytes());
    let count = i32::try_from(count).expect("fewer than 2^31 producers");
    bytes.extend(count.to_be_bytes());
    let mut written = 0_i32;
    for (producer_id, entry) in entries {
        encode_entry(producer_id, entry, &mut bytes);
        written = written.saturating_add(1);
    }
    assert_eq!(written, count, "as many entries as were announced");
    let (header, covered) = bytes.split_at_mut(ENTRIES_START);
    let crc = crc::crc32c(covered).to_be_bytes();
    for (to, from) in header.iter_mut().skip(2).zip(crc) {
        *to = from;
    }
    bytes
}

/// Writes one entry.
pub(crate) fn encode_entry(producer_id: ProducerId, entry: &ProducerStateEntry, bytes: &mut Vec<u8>) {
    let batch = entry.last_batch();
    let last_sequence = entry.last_sequence().map_or(-1, Sequence::get);
    bytes.extend(producer_id.get().to_be_bytes());
    bytes.extend(entry.producer_epoch().map_or(-1, ProducerEpoch::get).to_be_bytes());
    bytes.extend(last_sequence.to_be_bytes());
    bytes.extend(entry.last_offset().map_or(-1, Offset::get).to_be_bytes());
    bytes.extend(batch.map_or(0, BatchMetadata::offset_delta).to_be_bytes());
    bytes.extend(entry.last_timestamp().get().to_be_bytes());
    bytes.extend(entry.coordinator_epoch().unwrap_or(-1).to_be_bytes());
    bytes.extend(entry.transaction_first_offset().map_or(-1, Offset::get).to_be_bytes());
}

/// A piece of a snapshot that is encoded while its state goes on changing: bytes for a place in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotPiece {
    /// Entries, behind those of the piece before.
    Entries {
        /// Where they belong, in bytes from the start of the file.
        position: u64,
        /// Their bytes; none if all of this piece's producers came after the snapshot was begun.
        bytes: Vec<u8>,
    },
    /// The last piece: what the file starts with. Only with it is the file whole.
    Header {
        /// Its bytes, for position 0.
        bytes: [u8; HEADER_SIZE],
        /// The snapshot covers the log below this offset, which names its file.
        offset: Offset,
        /// CRC-32C of the whole file.
        crc: u32,
    },
}

/// How far a snapshot is encoded that is not encoded at once.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    offset: Offset,
    count: i32,
    position: u64,
    /// CRC-32C of everything from the count to `position`.
    crc: u32,
}

impl Pieces {
    pub(crate) fn new(offset: Offset, count: usize) -> Self {
        let count = i32::try_from(count).expect("fewer than 2^31 producers");
        Self { offset, count, position: size(HEADER_SIZE), crc: crc::crc32c(&count.to_be_bytes()) }
    }

    pub(crate) fn offset(&self) -> Offset {
        self.offset
    }

    pub(crate) fn entries(&mut self, bytes: Vec<u8>) -> SnapshotPiece {
        let position = self.position;
        self.crc = crc::crc32c_joined(self.crc, crc::crc32c(&bytes), size(bytes.len()));
        self.position = position.saturating_add(size(bytes.len()));
        SnapshotPiece::Entries { position, bytes }
    }

    /// # Panics
    /// If there were not as many entries as the count says.
    pub(crate) fn header(self) -> SnapshotPiece {
        let entries = self.position.saturating_sub(size(HEADER_SIZE));
        let expected = u64::from(self.count.unsigned_abs()).saturating_mul(size(ENTRY_SIZE));
        assert_eq!(entries, expected, "as many entries as were announced");
        let mut bytes = [0; HEADER_SIZE];
        let fields = VERSION.to_be_bytes().into_iter().chain(self.crc.to_be_bytes());
        for (to, from) in bytes.iter_mut().zip(fields.chain(self.count.to_be_bytes())) {
            *to = from;
        }
        let covered = self.position.saturating_sub(size(ENTRIES_START));
        let crc = crc::crc32c_joined(
            crc::crc32c(bytes.get(..ENTRIES_START).unwrap_or_default()),
            self.crc,
            covered,
        );
        SnapshotPiece::Header { bytes, offset: self.offset, crc }
    }
}

/// Reads entries in the order in which they stand; they may repeat a producer.
///
/// Cost: one vector of as many entries as the bytes really hold.
/// # Errors
/// Every [`SnapshotError`] but those about two entries that contradict each other.
/// Source: Kafka's `ProducerStateManager.readSnapshot`.
pub fn decode(bytes: &[u8]) -> Result<Vec<(ProducerId, ProducerStateEntry)>, SnapshotError> {
    let truncated = |needed: u64| SnapshotError::Truncated { needed, found: size(bytes.len()) };
    let header_size = size(HEADER_SIZE);
    let mut fields = Fields(bytes);
    let version = fields.i16().ok_or_else(|| truncated(header_size))?;
    if version != VERSION {
        return Err(SnapshotError::UnsupportedVersion { found: version });
    }
    let stored = fields.u32().ok_or_else(|| truncated(header_size))?;
    let covered = fields.0;
    let count = fields.i32().ok_or_else(|| truncated(header_size))?;
    let count = usize::try_from(count).map_err(|_| SnapshotError::InvalidEntry {
        index: 0,
        field: "entry_count",
        value: i64::from(count),
    })?;
    let needed = size(count).saturating_mul(size(ENTRY_SIZE)).saturating_add(header_size);
    if size(bytes.len()) < needed {
        return Err(truncated(needed));
    }
    let computed = crc::crc32c(covered);
    if stored != computed {
        return Err(SnapshotError::Crc { stored, computed });
    }
    if size(bytes.len()) > needed {
        return Err(SnapshotError::TrailingBytes { count: size(bytes.len()).saturating_sub(needed) });
    }
    // The bytes hold `count` entries, so it may size the vector.
    let mut entries = Vec::with_capacity(count);
    for index in 0..count {
        entries.push(fields.entry(index).ok_or_else(|| truncated(needed))??);
    }
    Ok(entries)
}

fn size(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// What is left to read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// `None` if the bytes end.
    fn entry(&mut self, index: usize) -> Option<Result<(ProducerId, ProducerStateEntry), SnapshotError>> {
        let producer_id = self.i64()?;
        let epoch = self.i16()?;
        let last_sequence = self.i32()?;
        let last_offset = self.i64()?;
        let offset_delta = self.i32()?;
        let timestamp = TimestampMs::new(self.i64()?);
        let coordinator_epoch = self.i32()?;
        let transaction_first_offset = self.i64()?;

        let invalid = |field, value| SnapshotError::InvalidEntry { index, field, value };
        let Some(producer_id) = ProducerId::new(producer_id) else {
            return Some(Err(invalid("producer_id", producer_id)));
        };
        let mut entry = ProducerStateEntry::EMPTY;
        // Kafka: anything negative counts as "none" here.
        entry.update_epoch(ProducerEpoch::new(epoch));
        entry.coordinator_epoch = (coordinator_epoch >= 0).then_some(coordinator_epoch);
        entry.last_timestamp = timestamp;
        entry.transaction_first_offset = Offset::new(transaction_first_offset);
        if let Some(last_offset) = Offset::new(last_offset) {
            if offset_delta < 0 || i64::from(offset_delta) > last_offset.get() {
                return Some(Err(invalid("offset_delta", i64::from(offset_delta))));
            }
            let last_sequence = Sequence::new(last_sequence);
            entry.add_batch(BatchMetadata::new(last_offset, offset_delta, last_sequence, timestamp));
        }
        Some(Ok((producer_id, entry)))
    }
}
