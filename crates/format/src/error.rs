//! What can be wrong with bytes, one enum per family of operations.
//!
//! Positions count bytes from the start of the batch; whoever knows the file adds the batch's place in it.

use thiserror::Error;

use crate::batch::Codec;
use crate::control::ControlRecordType;

/// Why bytes are not a batch that weir takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The input ends before the batch does. At the end of a file this may be a torn tail.
    #[error("batch needs {need} bytes, {have} are there")]
    Truncated {
        /// Bytes from the batch's start that are needed to go on.
        need: usize,
        /// Bytes from the batch's start that are there.
        have: usize,
    },
    /// The length field is too small for its magic, or negative.
    #[error("batch length {batch_length} is too small")]
    InvalidLength {
        /// The field as found.
        batch_length: i32,
    },
    /// A message set of magic 0 or 1.
    #[error("magic {magic} is not supported")]
    UnsupportedMagic {
        /// 0 or 1.
        magic: i8,
    },
    /// No Kafka ever wrote this magic.
    #[error("magic {magic} is unknown")]
    InvalidMagic {
        /// The field as found.
        magic: i8,
    },
    /// The bytes are not those that the writer summed.
    #[error("crc {computed:08x} of the batch at offset {base_offset} differs from its field, {stored:08x}")]
    CrcMismatch {
        /// The CRC-32C in the header.
        stored: u32,
        /// The CRC-32C of the bytes.
        computed: u32,
        /// The base offset field as found, which the CRC does not cover.
        base_offset: i64,
    },
    /// The base offset is negative.
    #[error("base offset {base_offset} is negative")]
    NegativeBaseOffset {
        /// The field as found.
        base_offset: i64,
    },
    /// The last offset delta is negative, so the batch would end before it starts.
    #[error("last offset delta {last_offset_delta} is negative")]
    NegativeLastOffsetDelta {
        /// The field as found.
        last_offset_delta: i32,
    },
    /// No offset is left behind this batch.
    #[error("base offset {base_offset} plus last offset delta {last_offset_delta} leaves no next offset")]
    OffsetOverflow {
        /// The field as found.
        base_offset: i64,
        /// The field as found.
        last_offset_delta: i32,
    },
    /// The record count is negative.
    #[error("record count {record_count} is negative")]
    NegativeRecordCount {
        /// The field as found.
        record_count: i32,
    },
}

/// Why compressed bytes cannot be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The number has no codec.
    #[error("codec {id} is unknown")]
    Unknown {
        /// The number as found.
        id: u8,
    },
    /// More would come out than the caller allows.
    #[error("more than {limit} bytes when decompressed")]
    LimitExceeded {
        /// What the caller allowed.
        limit: usize,
    },
    /// A zstd frame wants a window that is too large.
    #[error("zstd window of {window_size} bytes is above the largest, {}", 128 << 20)]
    WindowTooLarge {
        /// The window as the frame declares it.
        window_size: u64,
    },
    /// The compressed bytes end too early.
    #[error("{codec} data is cut")]
    Truncated {
        /// Their codec.
        codec: Codec,
    },
    /// The bytes are not of the codec that they are said to be.
    #[error("{codec} data is malformed: {reason}")]
    Malformed {
        /// The codec as the attributes name it.
        codec: Codec,
        /// What was found.
        reason: &'static str,
    },
    /// The codec's library could not be set up, for want of memory.
    #[error("no decoder for {codec}")]
    Library {
        /// The codec.
        codec: Codec,
    },
}

/// Why bytes are not a message of magic 0 or 1, or one that wraps others cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The input ends before the message does.
    #[error("message needs {need} bytes, {have} are there")]
    Truncated {
        /// Bytes from the message's start that are needed to go on.
        need: usize,
        /// Bytes from the message's start that are there.
        have: usize,
    },
    /// The length field is too small for its magic, or negative.
    #[error("message length {message_length} is too small")]
    InvalidLength {
        /// The field as found.
        message_length: i32,
    },
    /// It is no message of magic 0 or 1.
    #[error("magic {magic} is not that of a message")]
    NotAMessage {
        /// The field as found.
        magic: i8,
    },
    /// The bytes are not those that the writer summed.
    #[error("crc {computed:08x} of the message at offset {offset} differs from its field, {stored:08x}")]
    CrcMismatch {
        /// The CRC-32 in the message.
        stored: u32,
        /// The CRC-32 of the bytes.
        computed: u32,
        /// The offset field as found, which the CRC does not cover.
        offset: i64,
    },
    /// Key or value runs past the end of the message.
    #[error("{need} bytes at byte {position} of a message, {have} are left")]
    UnexpectedEnd {
        /// Where the field starts.
        position: usize,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that are left.
        have: usize,
    },
    /// The message's value ends before its length says.
    #[error("{size} bytes behind a message's value")]
    UnreadBytes {
        /// Bytes that no field claims.
        size: usize,
    },
    /// The offset is negative, or none is left behind it.
    #[error("message offset {offset} is not valid")]
    InvalidOffset {
        /// The offset as found, or as it follows from the wrapper's.
        offset: i64,
    },
    /// The message wraps others, in no value.
    #[error("wrapper message has no value")]
    NullWrapper,
    /// The message wraps others, and there are none.
    #[error("wrapper message wraps nothing")]
    EmptyWrapper,
    /// A message in a wrapper is compressed as well.
    #[error("message in a wrapper is compressed with {codec}")]
    NestedWrapper {
        /// Its codec.
        codec: Codec,
    },
    /// The wrapper's offset, which is that of its last message, is below the relative one of that message.
    #[error("wrapper offset {offset} is below its last relative offset {last}")]
    InvalidWrapperOffset {
        /// The wrapper's.
        offset: i64,
        /// The last inner message's.
        last: i64,
    },
    /// zstd came after messages; a wrapper with it is a mistake.
    #[error("wrapper message is compressed with {codec}")]
    InvalidCodec {
        /// Its codec.
        codec: Codec,
    },
    /// The messages in the wrapper cannot be decompressed.
    #[error("wrapped messages cannot be decompressed")]
    Codec(#[from] CodecError),
}

/// Why the records of a batch cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The records are compressed; nothing is known about them here.
    #[error("records are compressed with {codec}")]
    Compressed {
        /// The codec that the attributes name.
        codec: Codec,
    },
    /// A varint has more bytes than its type can need.
    #[error("varint at byte {position} is too long")]
    VarintTooLong {
        /// Where it starts.
        position: usize,
    },
    /// A field runs past the end of its record, or a record past the end of the batch.
    #[error("{need} bytes at byte {position}, {have} are left")]
    UnexpectedEnd {
        /// Where the field starts.
        position: usize,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that are left.
        have: usize,
    },
    /// A length or count is negative where it must not be.
    #[error("length {length} at byte {position} is not valid")]
    InvalidLength {
        /// Where the field starts.
        position: usize,
        /// The length as found.
        length: i32,
    },
    /// A record's fields end before its length says.
    #[error("record at byte {position} has {size} bytes behind its last field")]
    UnreadBytes {
        /// Where the record starts.
        position: usize,
        /// Bytes that no field claims.
        size: usize,
    },
    /// A record claims an offset outside of its batch.
    #[error("record offset delta {delta} is not within 0..={last_offset_delta}")]
    OffsetOutsideBatch {
        /// The record's offset delta.
        delta: i32,
        /// The last that the header allows.
        last_offset_delta: i32,
    },
    /// Bytes are left behind as many records as the header counts.
    #[error("{size} bytes behind the last of {record_count} records")]
    TrailingBytes {
        /// What the header counts.
        record_count: i32,
        /// Bytes that no record claims.
        size: usize,
    },
    /// The batch ends before as many records as the header counts.
    #[error("{found} records where the header counts {record_count}")]
    MissingRecords {
        /// What the header counts.
        record_count: i32,
        /// Records found.
        found: i32,
    },
    /// The records cannot be decompressed.
    #[error("records cannot be decompressed")]
    Codec(#[source] CodecError),
}

/// Why the value of a control record cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The record around the marker is malformed.
    #[error("marker's record is malformed")]
    Record(#[source] RecordError),
    /// The value is null or too short to hold version and coordinator epoch.
    #[error("marker's value has {size} bytes, 6 are needed")]
    ShortValue {
        /// Bytes in the value; 0 if it is null.
        size: usize,
    },
    /// The value's version is negative, which no writer writes.
    #[error("marker's value has version {version}")]
    InvalidVersion {
        /// The version as found.
        version: i16,
    },
    /// The value is null, ends within a field, or a field is not what it must be.
    #[error("value of a {record_type} record is malformed at byte {position}")]
    MalformedValue {
        /// The record's type.
        record_type: ControlRecordType,
        /// Where in the value.
        position: usize,
    },
}

/// Why a batch cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A record or the batch would be larger than Kafka's 32-bit lengths can say.
    #[error("batch or record is larger than {} bytes", i32::MAX)]
    TooLarge,
    /// An offset delta is negative, not above the one before it, or above the last one that was set.
    #[error("offset delta {delta} is not valid here")]
    OffsetDelta {
        /// The delta as given or derived.
        delta: i64,
    },
    /// No offset would be left behind the batch.
    #[error("base offset {base_offset} plus {last_offset_delta} leaves no next offset")]
    OffsetOverflow {
        /// The base offset as given.
        base_offset: i64,
        /// The last offset delta of the batch.
        last_offset_delta: i32,
    },
    /// The base timestamp was set behind the first record, whose delta counts from it.
    #[error("base timestamp set behind the first record")]
    LateBaseTimestamp,
}

/// Why bytes are not a varint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VarintError {
    /// The input ends within the varint.
    #[error("varint is cut")]
    Truncated,
    /// The last byte that the type can need still asks for another.
    #[error("varint is too long")]
    TooLong,
}

/// Why bytes are neither a batch nor a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AnyBatchError {
    /// By their magic they are a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// By their magic they are a message.
    #[error(transparent)]
    Message(#[from] MessageError),
}
