//! One record batch: its frame, its header and its CRC, as a view into the caller's bytes.
//!
//! Checks are staged. [`frame_size`] needs seventeen bytes and finds where a batch ends. [`header_of`] needs the
//! header and checks that its numbers make sense. [`RecordBatch::parse`] has the whole batch and checks the CRC as well.
//!
//! Source: Kafka's `DefaultRecordBatch`.

use std::fmt;
use std::ops::Deref;

use zerocopy::byteorder::big_endian::{I16, I32, I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::control::{self, ControlRecordType, EndTransactionMarker};
use crate::crc;
use crate::error::{BatchError, ControlError, RecordError};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use crate::record::Records;
#[cfg(feature = "codec")]
use crate::{error::CodecError, stream::RecordStream};

/// Size of a batch's header; a batch without records is this long.
pub const HEADER_SIZE: usize = 61;

/// How many bytes of a batch [`frame_size`] needs: up to and with the magic.
pub const FRAME_SIZE: usize = 17;

/// The one magic that weir writes.
pub const MAGIC: i8 = 2;

/// Base offset and batch length, which the batch length does not count.
const LENGTH_COUNTS_FROM: usize = 12;

/// What the batch length counts of a header.
const SMALLEST_LENGTH: i32 = 49;

/// What the length counts of the smallest message of magic 0.
const SMALLEST_MESSAGE_LENGTH: i32 = 14;

const TIMESTAMP_TYPE_BIT: i16 = 0x08;
const TRANSACTIONAL_BIT: i16 = 0x10;
const CONTROL_BIT: i16 = 0x20;
const DELETE_HORIZON_BIT: i16 = 0x40;

/// The attributes that say nothing.
pub(crate) const OTHER_BITS: i16 = !0x7f;

/// The header as it lies in the bytes.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub(crate) base_offset: I64,
    pub(crate) batch_length: I32,
    pub(crate) partition_leader_epoch: I32,
    pub(crate) magic: i8,
    pub(crate) crc: U32,
    pub(crate) attributes: I16,
    pub(crate) last_offset_delta: I32,
    pub(crate) base_timestamp: I64,
    pub(crate) max_timestamp: I64,
    pub(crate) producer_id: I64,
    pub(crate) producer_epoch: I16,
    pub(crate) base_sequence: I32,
    pub(crate) record_count: I32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_SIZE);
const _: () = assert!(std::mem::offset_of!(RawHeader, magic) == 16);
const _: () = assert!(std::mem::offset_of!(RawHeader, crc) == 17);
const _: () = assert!(std::mem::offset_of!(RawHeader, attributes) == crc::CRC_COVERS_FROM);
const _: () = assert!(std::mem::offset_of!(RawHeader, record_count) == 57);

/// How the records of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Not at all.
    None,
    /// gzip.
    Gzip,
    /// snappy, bare or in Xerial's framing.
    Snappy,
    /// lz4, in its frame format.
    Lz4,
    /// zstd.
    Zstd,
    /// A number that Kafka has not given out: 5, 6 or 7.
    Unknown(u8),
}

impl Codec {
    /// The codec that these attributes name.
    pub const fn from_attributes(attributes: i16) -> Self {
        match attributes & 0x07 {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            5 => Self::Unknown(5),
            6 => Self::Unknown(6),
            _ => Self::Unknown(7),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Gzip => f.write_str("gzip"),
            Self::Snappy => f.write_str("snappy"),
            Self::Lz4 => f.write_str("lz4"),
            Self::Zstd => f.write_str("zstd"),
            Self::Unknown(id) => write!(f, "unknown({id})"),
        }
    }
}

/// Who set the timestamps of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimestampType {
    /// The producer, record by record.
    CreateTime,
    /// The leader, when it appended: every record has the batch's largest timestamp.
    LogAppendTime,
}

impl fmt::Display for TimestampType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateTime => "CreateTime",
            Self::LogAppendTime => "LogAppendTime",
        })
    }
}

/// The header of one batch of magic 2, whose numbers have been checked to make sense; nothing is known about the
/// bytes behind it.
#[derive(Clone, Copy)]
pub struct BatchHeader<'a> {
    raw: &'a RawHeader,
    // INVARIANT: what `size` says of the length field, at least HEADER_SIZE.
    size: usize,
    // INVARIANT: base offset + last offset delta, and one more, are offsets.
    base_offset: Offset,
    last_offset: Offset,
    next_offset: Offset,
    // INVARIANT: the header's last offset delta, which is not negative.
    offset_span: u32,
}

impl<'a> BatchHeader<'a> {
    fn new(raw: &'a RawHeader, size: usize) -> Result<Self, BatchError> {
        let base = raw.base_offset.get();
        let delta = raw.last_offset_delta.get();
        let count = raw.record_count.get();
        let base_offset = Offset::new(base).ok_or(BatchError::NegativeBaseOffset { base_offset: base })?;
        let offset_span = u32::try_from(delta)
            .map_err(|_| BatchError::NegativeLastOffsetDelta { last_offset_delta: delta })?;
        let overflow = BatchError::OffsetOverflow { base_offset: base, last_offset_delta: delta };
        let last_offset = base_offset.checked_add(i64::from(delta)).ok_or(overflow)?;
        let next_offset = last_offset.next().ok_or(overflow)?;
        if count < 0 {
            return Err(BatchError::NegativeRecordCount { record_count: count });
        }
        Ok(Self { raw, size, base_offset, last_offset, next_offset, offset_span })
    }

    /// The fields as they lie in the bytes.
    pub(crate) fn raw(&self) -> &'a RawHeader {
        self.raw
    }

    /// Bytes of the whole batch, header and length field included.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Offset of the first record that the batch was written with; compaction may have taken it since.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Offset of the last record that the batch was written with; compaction may have taken it since.
    pub fn last_offset(&self) -> Offset {
        self.last_offset
    }

    /// Where the next batch may start: one above [`Self::last_offset`].
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// The last offset relative to the base offset; not negative.
    pub fn last_offset_delta(&self) -> i32 {
        self.raw.last_offset_delta.get()
    }

    /// As [`Self::last_offset_delta`].
    #[inline]
    pub(crate) fn offset_span(&self) -> u32 {
        self.offset_span
    }

    /// Under which leader the batch was appended; `None` if the field is negative, as in a producer's request.
    pub fn leader_epoch(&self) -> Option<LeaderEpoch> {
        LeaderEpoch::new(self.raw.partition_leader_epoch.get())
    }

    /// The CRC-32C field.
    pub fn crc(&self) -> u32 {
        self.raw.crc.get()
    }

    /// The attributes as found, bits without a meaning included.
    pub fn attributes(&self) -> i16 {
        self.raw.attributes.get()
    }

    /// How the records are compressed.
    pub fn codec(&self) -> Codec {
        Codec::from_attributes(self.attributes())
    }

    /// Who set the timestamps.
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes() & TIMESTAMP_TYPE_BIT == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch is part of a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes() & TRANSACTIONAL_BIT != 0
    }

    /// Whether the batch holds control records, which no application sees.
    pub fn is_control(&self) -> bool {
        self.attributes() & CONTROL_BIT != 0
    }

    /// Whether this is a control batch with a codec, which no Kafka writes and weir refuses (law B9). Its records are
    /// not looked at.
    pub fn is_compressed_control(&self) -> bool {
        self.is_control() && self.codec() != Codec::None
    }

    /// When the cleaner may drop the tombstones in this batch, if it has set that.
    pub fn delete_horizon(&self) -> Option<TimestampMs> {
        (self.attributes() & DELETE_HORIZON_BIT != 0).then(|| self.base_timestamp())
    }

    /// What the records' timestamp deltas count from.
    pub fn base_timestamp(&self) -> TimestampMs {
        TimestampMs::new(self.raw.base_timestamp.get())
    }

    /// The largest timestamp, as the writer said; [`TimestampMs::NONE`] if there is none.
    pub fn max_timestamp(&self) -> TimestampMs {
        TimestampMs::new(self.raw.max_timestamp.get())
    }

    /// Who produced the batch; `None` if the field is negative, whatever its value.
    pub fn producer_id(&self) -> Option<ProducerId> {
        ProducerId::new(self.raw.producer_id.get())
    }

    /// The producer id field as found: −1 is "none", less is a mistake that must be kept and may be counted.
    pub fn raw_producer_id(&self) -> i64 {
        self.raw.producer_id.get()
    }

    /// The producer's epoch; `None` if the field is negative.
    pub fn producer_epoch(&self) -> Option<ProducerEpoch> {
        ProducerEpoch::new(self.raw.producer_epoch.get())
    }

    /// The first record's sequence; `None` if the field is negative.
    pub fn base_sequence(&self) -> Option<Sequence> {
        Sequence::new(self.raw.base_sequence.get())
    }

    /// The last record's sequence, which may be below the first's where they wrapped; `None` if there are none.
    pub fn last_sequence(&self) -> Option<Sequence> {
        Some(self.base_sequence()?.plus(self.offset_span))
    }

    /// How many records the header counts; not negative, and not to be trusted before a walk has ended well.
    pub fn record_count(&self) -> i32 {
        self.raw.record_count.get()
    }
}

impl fmt::Debug for BatchHeader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchHeader")
            .field("base_offset", &self.base_offset)
            .field("last_offset", &self.last_offset)
            .field("size", &self.size)
            .field("leader_epoch", &self.raw.partition_leader_epoch.get())
            .field("crc", &format_args!("{:08x}", self.crc()))
            .field("attributes", &format_args!("{:#06x}", self.attributes()))
            .field("base_timestamp", &self.base_timestamp())
            .field("max_timestamp", &self.max_timestamp())
            .field("producer_id", &self.raw_producer_id())
            .field("producer_epoch", &self.raw.producer_epoch.get())
            .field("base_sequence", &self.raw.base_sequence.get())
            .field("record_count", &self.record_count())
            .finish()
    }
}

/// One whole batch of magic 2 and where its bytes are. All of [`BatchHeader`] can be asked of it.
#[derive(Clone, Copy)]
pub struct RecordBatch<'a> {
    header: BatchHeader<'a>,
    bytes: &'a [u8],
}

impl<'a> RecordBatch<'a> {
    /// The first batch of `bytes`, checked: frame, magic, header, CRC. What lies behind it is ignored.
    ///
    /// Cost: one pass over the batch for its CRC; no copy, no allocation.
    ///
    /// # Errors
    /// [`BatchError::Truncated`] if more bytes are needed; any other means that these bytes can never be a batch.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let bytes = whole_frame(bytes)?;
        let raw = raw_header(bytes)?;
        let computed = crc::batch_crc(bytes);
        let stored = raw.crc.get();
        if computed != stored {
            return Err(BatchError::CrcMismatch { stored, computed, base_offset: raw.base_offset.get() });
        }
        Ok(Self { header: BatchHeader::new(raw, bytes.len())?, bytes })
    }

    /// As [`Self::parse`], without the CRC: for bytes that this process has verified before and held since.
    ///
    /// Cost: none that depends on the batch's size.
    ///
    /// # Errors
    /// As [`Self::parse`], except [`BatchError::CrcMismatch`].
    pub fn parse_without_crc(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let bytes = whole_frame(bytes)?;
        Ok(Self { header: BatchHeader::new(raw_header(bytes)?, bytes.len())?, bytes })
    }

    /// The batch's own bytes, nothing in front and nothing behind.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The header alone.
    pub fn header(&self) -> BatchHeader<'a> {
        self.header
    }

    /// Walks the records, lazily: each step reads one record and borrows its key, value and headers.
    ///
    /// Cost: one pass over the records as they are asked for; no copy, no allocation.
    ///
    /// # Errors
    /// [`RecordError::Compressed`] if there is a codec: take `record_stream`. Malformed records are errors of the walk: the
    /// batch is what its writer summed, so refuse it from a producer, and keep it where it was mirrored or stands in a log.
    ///
    /// Source: Kafka's `DefaultRecordBatch.iterator` and `DefaultRecord`.
    pub fn records(&self) -> Result<Records<'a>, RecordError> {
        match self.codec() {
            Codec::None => Ok(Records::new(self.header, self.record_bytes())),
            codec => Err(RecordError::Compressed { codec }),
        }
    }

    /// What kind of control batch this is, by the key of its first record alone.
    ///
    /// `None` if it is not a control batch, or has no record, no key, a short key or a key of a negative version, or
    /// is compressed. None of these is an error: what cannot be recognised is kept as it is.
    ///
    /// Cost: reads at most the first record's fields up to its key.
    ///
    /// Source: Kafka's `ControlRecordType.parseTypeId`.
    pub fn control_type(&self) -> Option<ControlRecordType> {
        if !self.is_control() || self.codec() != Codec::None || self.record_count() == 0 {
            return None;
        }
        Some(control::first_key(self.record_bytes())?.record_type)
    }

    /// Whether this is the barrier: a control batch whose first record's key has the type `MIRROR_PID_RESET`.
    /// Nothing else counts (law B9).
    ///
    /// Cost: reads at most the first record's fields up to its key.
    pub fn is_barrier(&self) -> bool {
        self.control_type() == Some(ControlRecordType::MirrorPidReset)
    }

    /// The end transaction marker in this batch; `None` if it is not an ABORT or COMMIT.
    ///
    /// Cost: reads the first record; no copy, no allocation.
    ///
    /// The inner error is [`ControlError::Record`], [`ControlError::ShortValue`] or [`ControlError::InvalidVersion`]: the key
    /// says that a transaction ends, and its value not by whose word. A Kafka can neither append nor load such a batch.
    ///
    /// Source: Kafka's `EndTransactionMarker.deserializeValue`.
    pub fn end_transaction_marker(&self) -> Option<Result<EndTransactionMarker, ControlError>> {
        let commit = match self.control_type()? {
            ControlRecordType::Commit => true,
            ControlRecordType::Abort => false,
            _ => return None,
        };
        Some(EndTransactionMarker::read(self, commit))
    }

    /// Decompresses the records' bytes, if they are at most `limit` bytes then; without a codec it copies them.
    /// [`Self::records_in`] walks them.
    ///
    /// Cost: memory for what comes out, grown as it comes, and at most one window or block of the codec besides.
    ///
    /// # Errors
    /// [`CodecError::LimitExceeded`] as soon as more would come out; any other means that these bytes can never be
    /// decompressed.
    #[cfg(feature = "codec")]
    pub fn decompress(&self, limit: usize) -> Result<Vec<u8>, CodecError> {
        crate::codec::decompress(self.codec(), self.record_bytes(), limit)
    }

    /// Walks the records in these bytes, which are the decompressed ones of this batch (`decompress`), as
    /// [`Self::records`] does. Positions in errors count from the start of the batch as it would be without a codec.
    pub fn records_in<'b>(&self, decompressed: &'b [u8]) -> Records<'b>
    where
        'a: 'b,
    {
        Records::new(self.header, decompressed)
    }

    /// Walks the records of a batch of any codec and holds one at a time; at most `limit` bytes are decompressed.
    ///
    /// What is wrong with the compressed bytes is an error of the walk, [`RecordError::Codec`].
    ///
    /// Cost: memory for the largest record that really is there and what its codec holds; see [`crate::codec`].
    #[cfg(feature = "codec")]
    pub fn record_stream(&self, limit: usize) -> RecordStream<'a> {
        RecordStream::new(self.header, self.record_bytes(), limit)
    }

    /// The bytes behind the header.
    fn record_bytes(&self) -> &'a [u8] {
        self.bytes.get(HEADER_SIZE..).unwrap_or_default()
    }
}

impl<'a> Deref for RecordBatch<'a> {
    type Target = BatchHeader<'a>;

    fn deref(&self) -> &Self::Target {
        &self.header
    }
}

impl fmt::Debug for RecordBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecordBatch").field(&self.header).finish()
    }
}

/// Walks the batches of a buffer, each checked as by [`RecordBatch::parse`].
///
/// It ends at the buffer's end if that is a batch's end, and behind the first error otherwise; [`Self::position`] then
/// says where the invalid bytes start.
#[derive(Debug, Clone)]
pub struct BatchReader<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> BatchReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, failed: false }
    }

    /// Where the next batch starts: behind everything that was valid so far.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for BatchReader<'a> {
    type Item = Result<RecordBatch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        if self.failed || rest.is_empty() {
            return None;
        }
        let batch = RecordBatch::parse(rest);
        match &batch {
            Ok(batch) => self.position = self.position.saturating_add(batch.size()),
            Err(_) => self.failed = true,
        }
        Some(batch)
    }
}

impl std::iter::FusedIterator for BatchReader<'_> {}

/// How long the batch is whose first bytes these are, or `None` if fewer than [`FRAME_SIZE`] are there.
///
/// Length and magic are checked, nothing else: for walks over a file that reads batch by batch. The length may be any up
/// to 2 GiB, so it sizes no buffer before it is compared with what is there.
///
/// # Errors
/// [`BatchError::InvalidLength`], [`BatchError::UnsupportedMagic`], [`BatchError::InvalidMagic`]: no batch starts here.
pub fn frame_size(prefix: &[u8]) -> Result<Option<usize>, BatchError> {
    let Some(frame) = prefix.first_chunk::<FRAME_SIZE>() else {
        return Ok(None);
    };
    let [_, _, _, _, _, _, _, _, a, b, c, d, _, _, _, _, magic] = *frame;
    let batch_length = i32::from_be_bytes([a, b, c, d]);
    let magic = magic.cast_signed();
    let smallest = match magic {
        MAGIC => SMALLEST_LENGTH,
        _ => SMALLEST_MESSAGE_LENGTH,
    };
    if batch_length < smallest {
        return Err(BatchError::InvalidLength { batch_length });
    }
    match magic {
        MAGIC => {}
        0 | 1 => return Err(BatchError::UnsupportedMagic { magic }),
        _ => return Err(BatchError::InvalidMagic { magic }),
    }
    let length = usize::try_from(batch_length).map_err(|_| BatchError::InvalidLength { batch_length })?;
    Ok(Some(length.saturating_add(LENGTH_COUNTS_FROM)))
}

/// The header at the start of `bytes`, of which only [`HEADER_SIZE`] need be there. The CRC is not checked.
///
/// Cost: none that depends on the batch's size.
///
/// # Errors
/// [`BatchError::Truncated`] if the header is not whole; any other means that no batch starts here.
pub fn header_of(bytes: &[u8]) -> Result<BatchHeader<'_>, BatchError> {
    match frame_size(bytes)? {
        Some(size) => BatchHeader::new(raw_header(bytes)?, size),
        None => Err(BatchError::Truncated { need: HEADER_SIZE, have: bytes.len() }),
    }
}

/// Writes the base offset of the batch at the start of `bytes`. The CRC does not cover it and stays right.
///
/// # Errors
/// As [`header_of`], and [`BatchError::OffsetOverflow`] if the batch would not fit below the largest offset; nothing
/// is written then.
pub fn set_base_offset(bytes: &mut [u8], base_offset: Offset) -> Result<(), BatchError> {
    check_frame(bytes)?;
    let raw = raw_header_mut(bytes)?;
    let before = raw.base_offset;
    raw.base_offset.set(base_offset.get());
    if let Err(error) = BatchHeader::new(raw, HEADER_SIZE) {
        raw.base_offset = before;
        return Err(error);
    }
    Ok(())
}

/// Writes the leader epoch of the batch at the start of `bytes`. The CRC does not cover it and stays right.
///
/// # Errors
/// As [`header_of`] for the frame; nothing is written then.
pub fn set_leader_epoch(bytes: &mut [u8], leader_epoch: LeaderEpoch) -> Result<(), BatchError> {
    check_frame(bytes)?;
    raw_header_mut(bytes)?.partition_leader_epoch.set(leader_epoch.get());
    Ok(())
}

/// Makes the batch at the start of `bytes` one of LogAppendTime with this timestamp, and writes its CRC anew.
///
/// Cost: one pass over the batch for its CRC.
///
/// # Errors
/// As [`RecordBatch::parse_without_crc`]; nothing is written then.
///
/// Source: Kafka's `DefaultRecordBatch.setMaxTimestamp`.
pub fn set_log_append_time(bytes: &mut [u8], timestamp: TimestampMs) -> Result<(), BatchError> {
    let size = RecordBatch::parse_without_crc(bytes)?.size();
    let have = bytes.len();
    let batch = bytes.get_mut(..size).ok_or(BatchError::Truncated { need: size, have })?;
    let raw = raw_header_mut(batch)?;
    raw.attributes.set(raw.attributes.get() | TIMESTAMP_TYPE_BIT);
    raw.max_timestamp.set(timestamp.get());
    let crc = crc::batch_crc(batch);
    raw_header_mut(batch)?.crc.set(crc);
    Ok(())
}

/// Writes the largest timestamp of the batch at the start of `bytes`, and its CRC anew: a client may have said another.
///
/// Cost: one pass over the batch for its CRC.
///
/// # Errors
/// As [`RecordBatch::parse_without_crc`]; nothing is written then.
///
/// Source: Kafka's `DefaultRecordBatch.setMaxTimestamp`.
pub fn set_max_timestamp(bytes: &mut [u8], timestamp: TimestampMs) -> Result<(), BatchError> {
    let size = RecordBatch::parse_without_crc(bytes)?.size();
    let have = bytes.len();
    let batch = bytes.get_mut(..size).ok_or(BatchError::Truncated { need: size, have })?;
    raw_header_mut(batch)?.max_timestamp.set(timestamp.get());
    let crc = crc::batch_crc(batch);
    raw_header_mut(batch)?.crc.set(crc);
    Ok(())
}

pub(crate) fn attributes(
    timestamp_type: TimestampType,
    transactional: bool,
    control: bool,
    delete_horizon: bool,
) -> i16 {
    let bit = |set: bool, bit: i16| if set { bit } else { 0 };
    bit(timestamp_type == TimestampType::LogAppendTime, TIMESTAMP_TYPE_BIT)
        | bit(transactional, TRANSACTIONAL_BIT)
        | bit(control, CONTROL_BIT)
        | bit(delete_horizon, DELETE_HORIZON_BIT)
}

fn check_frame(bytes: &[u8]) -> Result<(), BatchError> {
    match frame_size(bytes)? {
        Some(_) => Ok(()),
        None => Err(BatchError::Truncated { need: HEADER_SIZE, have: bytes.len() }),
    }
}

/// The first batch's bytes, exactly.
fn whole_frame(bytes: &[u8]) -> Result<&[u8], BatchError> {
    let have = bytes.len();
    let need = frame_size(bytes)?.ok_or(BatchError::Truncated { need: HEADER_SIZE, have })?;
    bytes.get(..need).ok_or(BatchError::Truncated { need, have })
}

fn raw_header(bytes: &[u8]) -> Result<&RawHeader, BatchError> {
    match RawHeader::ref_from_prefix(bytes) {
        Ok((raw, _)) => Ok(raw),
        Err(_) => Err(BatchError::Truncated { need: HEADER_SIZE, have: bytes.len() }),
    }
}

fn raw_header_mut(bytes: &mut [u8]) -> Result<&mut RawHeader, BatchError> {
    let have = bytes.len();
    match RawHeader::mut_from_prefix(bytes) {
        Ok((raw, _)) => Ok(raw),
        Err(_) => Err(BatchError::Truncated { need: HEADER_SIZE, have }),
    }
}
