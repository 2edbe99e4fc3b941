//! Records of compressed batches and wrapper messages, one at a time, in memory that what is really there bounds.

use crate::batch::{BatchHeader, Codec, HEADER_SIZE};
use crate::codec::{Decoder, Descriptor, Feed};
use crate::error::{CodecError, MessageError, RecordError};
use crate::ids::{Offset, TimestampMs};
use crate::message_set::{InnerMessage, MESSAGE_FRAME_SIZE, Message, message_length};
use crate::record::{Cursor, Record};

/// The most bytes that a varint has.
const LARGEST_VARINT: usize = 5;

/// The records of one batch of any codec, see [`crate::RecordBatch::record_stream`].
///
/// Each record borrows from the stream, so it is no iterator: take one record with [`Self::next_record`], be done with it, take
/// the next. It ends as [`crate::Records`] does: as many records as the header counts, or one error and then nothing.
/// Positions in errors count from the start of the batch as it would be without a codec.
///
/// ```
/// use weir_format::{BatchBuilder, RecordBatch, TimestampMs};
///
/// let bytes = BatchBuilder::new().record(TimestampMs::new(1), Some(b"k"), Some(b"v")).build()?;
/// let mut records = RecordBatch::parse(&bytes)?.record_stream(1 << 20);
/// while let Some(record) = records.next_record() {
///     assert_eq!(record?.value, Some(&b"v"[..]));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RecordStream<'a> {
    header: BatchHeader<'a>,
    // The error is kept until somebody asks for the first record.
    feed: Result<Feed<'a>, CodecError>,
    found: i32,
    ended: bool,
}

impl<'a> RecordStream<'a> {
    pub(crate) fn new(header: BatchHeader<'a>, bytes: &'a [u8], limit: usize) -> Self {
        let feed = Decoder::new(header.codec(), bytes, limit, Descriptor::Checked).map(Feed::new);
        Self { header, feed, found: 0, ended: false }
    }

    /// The next record; `None` behind the last one and behind an error.
    ///
    /// Cost: no copy but for what the codec writes, and for the rest of a chunk when the next one comes.
    ///
    /// # Errors
    /// [`RecordError::Codec`] with [`CodecError::LimitExceeded`] if more than the limit would come out: a larger one may help. Any
    /// other says that the records are not what the header says, and stays so.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>, RecordError>> {
        if self.ended {
            return None;
        }
        match self.find() {
            Ok(Some(size)) => {
                self.found = self.found.saturating_add(1);
                let feed = self.feed.as_mut().ok()?;
                let position = feed.position().saturating_add(HEADER_SIZE);
                let rest = feed.consume(size);
                let record = match Record::read_quickly(&self.header, rest) {
                    Some((record, _)) => Ok(record),
                    None => Record::read(&self.header, &mut Cursor { rest, position }),
                };
                self.ended = record.is_err();
                Some(record)
            }
            Ok(None) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }

    /// How many bytes the next record has, all of which are in the feed then.
    fn find(&mut self) -> Result<Option<usize>, RecordError> {
        let record_count = self.header.record_count();
        let feed = match &mut self.feed {
            Ok(feed) => feed,
            Err(error) => return Err(RecordError::Codec(*error)),
        };
        // Most records are in the feed already, and then nothing more need be known of them here.
        if self.found != record_count
            && let Some(size) = Record::whole_size(feed.fill(0)?)
        {
            return Ok(Some(size));
        }
        let position = feed.position().saturating_add(HEADER_SIZE);
        let start = feed.fill(LARGEST_VARINT)?;
        if self.found == record_count {
            return match start.len() {
                0 => Ok(None),
                size => Err(RecordError::TrailingBytes { record_count, size }),
            };
        }
        if start.is_empty() {
            return Err(RecordError::MissingRecords { record_count, found: self.found });
        }
        let mut cursor = Cursor { rest: start, position };
        let length = cursor.size()?;
        let prefix = cursor.position.saturating_sub(position);
        let size = prefix.saturating_add(length);
        let have = feed.fill(size)?.len();
        if have < size {
            let position = position.saturating_add(prefix);
            let have = have.saturating_sub(prefix);
            return Err(RecordError::UnexpectedEnd { position, need: length, have });
        }
        Ok(Some(size))
    }
}

/// The records of one message of magic 0 or 1, see [`Message::record_stream`].
///
/// A message that is not compressed is one record; one that is wraps others. As [`RecordStream`] it lends.
#[derive(Debug)]
pub struct MessageStream<'a> {
    inner: Inner<'a>,
    ended: bool,
}

#[derive(Debug)]
enum Inner<'a> {
    Plain(Message<'a>),
    Wrapped(Box<Wrapped<'a>>),
}

#[derive(Debug)]
struct Wrapped<'a> {
    wrapper: Message<'a>,
    feed: Feed<'a>,
    // What an inner message's offset counts from.
    base_offset: i64,
}

impl<'a> MessageStream<'a> {
    pub(crate) fn new(message: Message<'a>, limit: usize) -> Result<Self, MessageError> {
        let codec = message.codec();
        if codec == Codec::None {
            return Ok(Self { inner: Inner::Plain(message), ended: false });
        }
        if codec == Codec::Zstd {
            return Err(MessageError::InvalidCodec { codec });
        }
        let value = message.value().ok_or(MessageError::NullWrapper)?;
        let descriptor = if message.magic() == 0 { Descriptor::Ignored } else { Descriptor::Checked };
        let feed = || Ok::<_, MessageError>(Feed::new(Decoder::new(codec, value, limit, descriptor)?));
        let mut wrapped = Wrapped { wrapper: message, feed: feed()?, base_offset: 0 };
        let mut last = None;
        while let Some(inner) = wrapped.next_inner()? {
            last = Some(inner.offset);
        }
        let last = last.ok_or(MessageError::EmptyWrapper)?;
        let offset = message.offset().get();
        // The wrapper has its last message's offset, and those inside count from the first. An offset of 0 is what
        // some versions of librdkafka sent, with nothing to be counted from.
        if message.magic() == 1 && offset != 0 {
            if offset < last {
                return Err(MessageError::InvalidWrapperOffset { offset, last });
            }
            wrapped.base_offset = offset.wrapping_sub(last);
        }
        wrapped.feed = feed()?;
        Ok(Self { inner: Inner::Wrapped(Box::new(wrapped)), ended: false })
    }

    /// The next record; `None` behind the last one and behind an error.
    ///
    /// # Errors
    /// As [`Message::record_stream`], which has read the messages once already: what is left is an offset that none has.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>, MessageError>> {
        Some(self.next_record_and_crc()?.map(|(record, _)| record))
    }

    /// As [`Self::next_record`], with the CRC field of the message that is the record, which was right.
    ///
    /// # Errors
    /// As [`Self::next_record`].
    pub fn next_record_and_crc(&mut self) -> Option<Result<(Record<'_>, u32), MessageError>> {
        if self.ended {
            return None;
        }
        match &mut self.inner {
            Inner::Plain(message) => {
                self.ended = true;
                let (key, value) = (message.key(), message.value());
                Some(Ok((Record::bare(message.offset(), message.timestamp(), key, value), message.crc())))
            }
            Inner::Wrapped(wrapped) => {
                let record = wrapped.next_record();
                self.ended = !matches!(record, Ok(Some(_)));
                record.transpose()
            }
        }
    }
}

impl Wrapped<'_> {
    fn next_inner(&mut self) -> Result<Option<InnerMessage<'_>>, MessageError> {
        let start = self.feed.fill(MESSAGE_FRAME_SIZE)?;
        if start.is_empty() {
            return Ok(None);
        }
        let need = message_length(start)?;
        let have = self.feed.fill(need)?.len();
        if have < need {
            return Err(MessageError::Truncated { need, have });
        }
        let inner = InnerMessage::parse(self.feed.consume(need))?;
        match Codec::from_attributes(i16::from(inner.attributes)) {
            Codec::None => Ok(Some(inner)),
            codec => Err(MessageError::NestedWrapper { codec }),
        }
    }

    fn next_record(&mut self) -> Result<Option<(Record<'_>, u32)>, MessageError> {
        let base_offset = self.base_offset;
        let append_time: Option<TimestampMs> = self.wrapper.log_append_time();
        let Some(inner) = self.next_inner()? else {
            return Ok(None);
        };
        let offset = base_offset.checked_add(inner.offset).and_then(Offset::new);
        let offset = offset.ok_or(MessageError::InvalidOffset { offset: inner.offset })?;
        // Kafka: a message within may be of the other magic, and one of magic 0 has no timestamp of anybody's.
        let timestamp = append_time.filter(|_| inner.magic > 0).unwrap_or(inner.timestamp);
        Ok(Some((Record::bare(offset, timestamp, inner.key, inner.value), inner.crc)))
    }
}
