//! Message sets of magic 0 and 1, which Kafka wrote before 0.11: read, never written.
//!
//! A message is an offset, a length, a CRC-32 (not CRC-32C) over what follows it, magic, attributes, from magic 1 on a
//! timestamp, a key and a value. A message with a codec is a wrapper: its value is a message set, compressed. It has the
//! offset of its last message; with magic 1 those inside count from the first one. Under LogAppendTime the wrapper's
//! timestamp is theirs.
//!
//! ```text
//! byte  0        8     12    16 17 18 (magic 1)  18 or 26
//!       +--------+-----+-----+--+--+---------+------------+------------
//!       | offset |mess.|crc  |ma|at|time-    | key        | value
//!       |        |len. |32   |0/1|tr|stamp   | len, bytes | len, bytes
//!       +--------+-----+-----+--+--+---------+------------+------------
//!                            |<- the CRC covers byte 16 to the end ->
//! ```
//!
//! Where Kafka takes what is refused here: a negative offset of a message that stands in a log, bytes behind a value
//! within its message's length, and within a wrapper a message that is cut at the end or of a magic above 1. All but the
//! first are data that nobody would ever see, or only as something else. A wrong CRC of a message within a wrapper is an
//! error as it is for Kafka's consumer.
//!
//! Source: Kafka's `LegacyRecord` and `AbstractLegacyRecordBatch`.

use crate::batch::{Codec, FRAME_SIZE, RecordBatch, TimestampType};
use crate::crc;
use crate::error::{AnyBatchError, MessageError};
use crate::ids::{Offset, TimestampMs};

/// Offset and length, which the length does not count.
pub(crate) const MESSAGE_FRAME_SIZE: usize = 12;

/// Where the bytes start that a message's CRC covers: its magic.
const CRC_COVERS_FROM: usize = 16;

/// What the length counts of the smallest messages of magic 0 and 1.
const SMALLEST_LENGTHS: [i32; 2] = [14, 22];

const TIMESTAMP_TYPE_BIT: i8 = 0x08;

/// The fields of a message whose offset has not been looked at, since within a wrapper it may be relative.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnerMessage<'a> {
    pub(crate) offset: i64,
    pub(crate) crc: u32,
    pub(crate) magic: i8,
    pub(crate) attributes: i8,
    pub(crate) timestamp: TimestampMs,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

impl<'a> InnerMessage<'a> {
    /// Reads `bytes`, which are exactly one message by its length.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let mut fields = Fields { rest: bytes, position: 0 };
        let offset = i64::from_be_bytes(fields.array()?);
        let message_length = i32::from_be_bytes(fields.array()?);
        let stored = u32::from_be_bytes(fields.array()?);
        let covered = fields.rest;
        let [magic, attributes] = fields.array()?;
        let (magic, attributes) = (magic.cast_signed(), attributes.cast_signed());
        check_magic(magic, message_length)?;
        let computed = crc::crc32(covered);
        if computed != stored {
            return Err(MessageError::CrcMismatch { stored, computed, offset });
        }
        let timestamp = match magic {
            0 => TimestampMs::NONE,
            _ => TimestampMs::new(i64::from_be_bytes(fields.array()?)),
        };
        let key = fields.nullable()?;
        let value = fields.nullable()?;
        match fields.rest.len() {
            0 => Ok(Self { offset, crc: stored, magic, attributes, timestamp, key, value }),
            size => Err(MessageError::UnreadBytes { size }),
        }
    }
}

struct Fields<'a> {
    rest: &'a [u8],
    position: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, need: usize) -> Result<&'a [u8], MessageError> {
        let Some((taken, rest)) = self.rest.split_at_checked(need) else {
            let (position, have) = (self.position, self.rest.len());
            return Err(MessageError::UnexpectedEnd { position, need, have });
        };
        self.rest = rest;
        self.position = self.position.saturating_add(need);
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let taken = self.take(N)?;
        taken.first_chunk::<N>().copied().ok_or(MessageError::UnexpectedEnd {
            position: self.position,
            need: N,
            have: 0,
        })
    }

    /// Bytes behind a 32-bit length. Kafka: any negative length is null.
    fn nullable(&mut self) -> Result<Option<&'a [u8]>, MessageError> {
        match usize::try_from(i32::from_be_bytes(self.array()?)) {
            Ok(size) => self.take(size).map(Some),
            Err(_) => Ok(None),
        }
    }
}

fn check_magic(magic: i8, message_length: i32) -> Result<(), MessageError> {
    let smallest = match magic {
        0 | 1 => usize::try_from(magic).ok().and_then(|magic| SMALLEST_LENGTHS.get(magic)),
        _ => None,
    };
    match smallest {
        None => Err(MessageError::NotAMessage { magic }),
        Some(smallest) if message_length < *smallest => Err(MessageError::InvalidLength { message_length }),
        Some(_) => Ok(()),
    }
}

/// Bytes of the whole message whose offset and length these are.
pub(crate) fn message_length(frame: &[u8]) -> Result<usize, MessageError> {
    let have = frame.len();
    let Some([_, _, _, _, _, _, _, _, a, b, c, d]) = frame.first_chunk::<MESSAGE_FRAME_SIZE>() else {
        return Err(MessageError::Truncated { need: MESSAGE_FRAME_SIZE, have });
    };
    let message_length = i32::from_be_bytes([*a, *b, *c, *d]);
    let [smallest, _] = SMALLEST_LENGTHS;
    if message_length < smallest {
        return Err(MessageError::InvalidLength { message_length });
    }
    let length =
        usize::try_from(message_length).map_err(|_| MessageError::InvalidLength { message_length })?;
    Ok(length.saturating_add(MESSAGE_FRAME_SIZE))
}

/// How long the message is whose first bytes these are, or `None` if fewer than [`FRAME_SIZE`] are there.
///
/// As [`crate::frame_size`] for batches: length and magic are checked, nothing else.
///
/// # Errors
/// [`MessageError::InvalidLength`], [`MessageError::NotAMessage`]: no message starts here.
pub fn message_size(prefix: &[u8]) -> Result<Option<usize>, MessageError> {
    let Some([.., magic]) = prefix.first_chunk::<FRAME_SIZE>() else {
        return Ok(None);
    };
    let size = message_length(prefix)?;
    let length = size.saturating_sub(MESSAGE_FRAME_SIZE);
    check_magic(magic.cast_signed(), i32::try_from(length).unwrap_or(i32::MAX))?;
    Ok(Some(size))
}

/// One whole message of magic 0 or 1 as it stands in a log or a request, plain or a wrapper of others.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    bytes: &'a [u8],
    offset: Offset,
    fields: InnerMessage<'a>,
}

impl<'a> Message<'a> {
    /// The first message of `bytes`, checked: frame, magic, CRC, fields. What lies behind it is ignored.
    ///
    /// Cost: one pass over the message for its CRC; no copy, no allocation.
    ///
    /// # Errors
    /// [`MessageError::Truncated`] if more bytes are needed; any other means that these bytes can never be a message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let have = bytes.len();
        let need = message_size(bytes)?.ok_or(MessageError::Truncated { need: FRAME_SIZE, have })?;
        let bytes = bytes.get(..need).ok_or(MessageError::Truncated { need, have })?;
        let fields = InnerMessage::parse(bytes)?;
        let invalid = MessageError::InvalidOffset { offset: fields.offset };
        let offset = Offset::new(fields.offset).ok_or(invalid)?;
        offset.next().ok_or(invalid)?;
        Ok(Self { bytes, offset, fields })
    }

    /// The message's own bytes, nothing in front and nothing behind.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of the whole message, offset and length field included.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Its offset; of a wrapper, that of the last message in it.
    pub fn offset(&self) -> Offset {
        self.offset
    }

    /// 0 or 1.
    pub fn magic(&self) -> i8 {
        self.fields.magic
    }

    /// The CRC-32 field.
    pub fn crc(&self) -> u32 {
        self.fields.crc
    }

    /// The attributes as found, bits without a meaning included.
    pub fn attributes(&self) -> i8 {
        self.fields.attributes
    }

    /// How the messages in it are compressed; [`Codec::None`] if it is a message itself and no wrapper.
    pub fn codec(&self) -> Codec {
        Codec::from_attributes(i16::from(self.fields.attributes))
    }

    /// Who set the timestamp; `None` for magic 0, which has none.
    pub fn timestamp_type(&self) -> Option<TimestampType> {
        match (self.fields.magic, self.fields.attributes & TIMESTAMP_TYPE_BIT) {
            (0, _) => None,
            (_, 0) => Some(TimestampType::CreateTime),
            _ => Some(TimestampType::LogAppendTime),
        }
    }

    /// The timestamp; of a wrapper, the largest in it. [`TimestampMs::NONE`] for magic 0.
    pub fn timestamp(&self) -> TimestampMs {
        self.fields.timestamp
    }

    /// The key, if it has one.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.fields.key
    }

    /// The value, if it has one; of a wrapper, the compressed messages.
    pub fn value(&self) -> Option<&'a [u8]> {
        self.fields.value
    }

    /// The timestamp that a wrapper of LogAppendTime gives to all in it.
    #[cfg(feature = "codec")]
    pub(crate) fn log_append_time(&self) -> Option<TimestampMs> {
        (self.timestamp_type() == Some(TimestampType::LogAppendTime)).then(|| self.timestamp())
    }

    /// Walks the records of this message: itself, or those that it wraps, each with its own offset and timestamp.
    ///
    /// Cost: a wrapper is decompressed twice, since its first offset follows from its last message; memory for its largest message
    /// and what its codec holds, see [`crate::codec`].
    ///
    /// # Errors
    /// [`MessageError::Codec`] with [`crate::CodecError::LimitExceeded`] if more than `limit` bytes would be decompressed: a
    /// larger limit may help. Any other says what is wrong with the wrapper or the first wrong message in it, and stays
    /// wrong.
    ///
    /// Source: Kafka's `AbstractLegacyRecordBatch.DeepRecordsIterator`.
    #[cfg(feature = "codec")]
    pub fn record_stream(&self, limit: usize) -> Result<crate::stream::MessageStream<'a>, MessageError> {
        crate::stream::MessageStream::new(*self, limit)
    }
}

/// Walks the messages of a buffer, each checked as by [`Message::parse`]; wrappers are one message.
///
/// It ends at the buffer's end if that is a message's end, and behind the first error otherwise; [`Self::position`] then
/// says where the invalid bytes start.
#[derive(Debug, Clone)]
pub struct MessageSetReader<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> MessageSetReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, failed: false }
    }

    /// Where the next message starts: behind everything that was valid so far.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for MessageSetReader<'a> {
    type Item = Result<Message<'a>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        if self.failed || rest.is_empty() {
            return None;
        }
        let message = Message::parse(rest);
        match &message {
            Ok(message) => self.position = self.position.saturating_add(message.size()),
            Err(_) => self.failed = true,
        }
        Some(message)
    }
}

impl std::iter::FusedIterator for MessageSetReader<'_> {}

/// What may stand in a log that is older than magic 2: a batch, or a message of magic 0 or 1.
#[derive(Debug, Clone, Copy)]
pub enum AnyBatch<'a> {
    /// A batch of magic 2.
    Batch(RecordBatch<'a>),
    /// A message of magic 0 or 1, plain or a wrapper.
    Message(Message<'a>),
}

impl<'a> AnyBatch<'a> {
    /// The first batch or message of `bytes`, by its magic, checked as [`RecordBatch::parse`] and [`Message::parse`] do.
    ///
    /// # Errors
    /// Theirs. Bytes of another magic, and too few to see it, are no batch.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AnyBatchError> {
        match bytes.get(CRC_COVERS_FROM) {
            Some(0 | 1) => Ok(Self::Message(Message::parse(bytes)?)),
            _ => Ok(Self::Batch(RecordBatch::parse(bytes)?)),
        }
    }

    /// Its own bytes, nothing in front and nothing behind.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Batch(batch) => batch.bytes(),
            Self::Message(message) => message.bytes(),
        }
    }

    /// Offset of the last record in it.
    pub fn last_offset(&self) -> Offset {
        match self {
            Self::Batch(batch) => batch.last_offset(),
            Self::Message(message) => message.offset(),
        }
    }
}

/// Walks batches and messages of a buffer as they come, each checked as by [`AnyBatch::parse`].
///
/// It ends as [`crate::BatchReader`] does.
#[derive(Debug, Clone)]
pub struct AnyBatchReader<'a> {
    bytes: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> AnyBatchReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0, failed: false }
    }

    /// Where the next one starts: behind everything that was valid so far.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for AnyBatchReader<'a> {
    type Item = Result<AnyBatch<'a>, AnyBatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        if self.failed || rest.is_empty() {
            return None;
        }
        let found = AnyBatch::parse(rest);
        match &found {
            Ok(found) => self.position = self.position.saturating_add(found.bytes().len()),
            Err(_) => self.failed = true,
        }
        Some(found)
    }
}

impl std::iter::FusedIterator for AnyBatchReader<'_> {}
