//! The records of an uncompressed batch, walked lazily and borrowed from its bytes.
//!
//! Source: Kafka's `DefaultRecord`.

use crate::batch::{BatchHeader, HEADER_SIZE, TimestampType};
use crate::error::{RecordError, VarintError};
use crate::ids::{Offset, TimestampMs};
use crate::varint;

/// The smallest record: a length of one byte and six bytes that it counts.
const SMALLEST_RECORD: usize = 7;

/// One record. Null and empty differ, for the key as for the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place in the partition.
    pub offset: Offset,
    /// Its timestamp: the producer's, or the batch's largest under LogAppendTime.
    pub timestamp: TimestampMs,
    /// The key, if it has one.
    pub key: Option<&'a [u8]>,
    /// The value, if it has one.
    pub value: Option<&'a [u8]>,
    // INVARIANT: exactly `header_count` well-formed headers; checked when the record was read.
    header_bytes: &'a [u8],
    header_count: i32,
}

impl<'a> Record<'a> {
    /// The headers in their order, keys repeating as they were written.
    pub fn headers(&self) -> Headers<'a> {
        Headers { cursor: Cursor { rest: self.header_bytes, position: 0 }, left: self.header_count }
    }
}

/// One header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The key; never null, not always UTF-8.
    pub key: &'a [u8],
    /// The value; null and empty differ.
    pub value: Option<&'a [u8]>,
}

/// The headers of one record, see [`Record::headers`].
#[derive(Debug, Clone)]
pub struct Headers<'a> {
    cursor: Cursor<'a>,
    left: i32,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1).filter(|left| *left >= 0)?;
        self.cursor.header().ok()
    }
}

/// The records of one batch, see [`crate::RecordBatch::records`].
///
/// It yields as many records as the header counts, or one error and then nothing more. Bytes behind the last record
/// are an error.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    header: BatchHeader<'a>,
    cursor: Cursor<'a>,
    found: i32,
    ended: bool,
}

impl<'a> Records<'a> {
    pub(crate) fn new(header: BatchHeader<'a>, bytes: &'a [u8]) -> Self {
        Self { header, cursor: Cursor { rest: bytes, position: HEADER_SIZE }, found: 0, ended: false }
    }

    fn step(&mut self) -> Result<Option<Record<'a>>, RecordError> {
        let record_count = self.header.record_count();
        let size = self.cursor.rest.len();
        if self.found == record_count {
            return match size {
                0 => Ok(None),
                size => Err(RecordError::TrailingBytes { record_count, size }),
            };
        }
        if size == 0 {
            return Err(RecordError::MissingRecords { record_count, found: self.found });
        }
        let record = Record::read(&self.header, &mut self.cursor)?;
        self.found = self.found.saturating_add(1);
        Ok(Some(record))
    }
}

impl<'a> Record<'a> {
    /// A record without headers.
    #[cfg(feature = "codec")]
    pub(crate) fn bare(
        offset: Offset,
        timestamp: TimestampMs,
        key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
    ) -> Self {
        Self { offset, timestamp, key, value, header_bytes: &[], header_count: 0 }
    }

    /// Reads the record at the cursor, of the batch with this header.
    pub(crate) fn read(header: &BatchHeader<'_>, cursor: &mut Cursor<'a>) -> Result<Self, RecordError> {
        let start = cursor.position;
        let length = cursor.size()?;
        let mut body = cursor.split(length)?;
        body.take(1)?; // Attributes, of which none has a meaning yet.
        let timestamp_delta = body.varlong()?;
        let delta = body.varint()?;
        let key = body.nullable()?;
        let value = body.nullable()?;
        let header_count = body.count()?;
        let header_bytes = body.rest;
        for _ in 0..header_count {
            body.header()?;
        }
        if !body.rest.is_empty() {
            return Err(RecordError::UnreadBytes { position: start, size: body.rest.len() });
        }
        let last_offset_delta = header.last_offset_delta();
        let outside = RecordError::OffsetOutsideBatch { delta, last_offset_delta };
        if delta < 0 || delta > last_offset_delta {
            return Err(outside);
        }
        let offset = header.base_offset().checked_add(i64::from(delta)).ok_or(outside)?;
        Ok(Record {
            offset,
            timestamp: timestamp(header, timestamp_delta),
            key,
            value,
            header_bytes,
            header_count,
        })
    }
}

/// Kafka: the sum of base and delta wraps, so that timestamps further apart than an i64 can say come back as written.
fn timestamp(header: &BatchHeader<'_>, delta: i64) -> TimestampMs {
    match header.timestamp_type() {
        TimestampType::CreateTime => TimestampMs::new(header.base_timestamp().get().wrapping_add(delta)),
        TimestampType::LogAppendTime => header.max_timestamp(),
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The header's count is not to be trusted with memory; the bytes are, and there may be one error besides.
        let most = self.cursor.rest.len().div_ceil(SMALLEST_RECORD).saturating_add(1);
        (0, Some(if self.ended { 0 } else { most }))
    }
}

impl std::iter::FusedIterator for Records<'_> {}

/// A place in the bytes of a batch. Nothing it answers lies outside of them.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, need: usize) -> Result<&'a [u8], RecordError> {
        let Some((taken, rest)) = self.rest.split_at_checked(need) else {
            return Err(RecordError::UnexpectedEnd { position: self.position, need, have: self.rest.len() });
        };
        self.rest = rest;
        self.position = self.position.saturating_add(need);
        Ok(taken)
    }

    fn split(&mut self, size: usize) -> Result<Cursor<'a>, RecordError> {
        let position = self.position;
        Ok(Cursor { rest: self.take(size)?, position })
    }

    fn number<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Result<(T, usize), VarintError>,
    ) -> Result<T, RecordError> {
        match decode(self.rest) {
            Ok((value, size)) => {
                self.take(size)?;
                Ok(value)
            }
            Err(VarintError::TooLong) => Err(RecordError::VarintTooLong { position: self.position }),
            Err(VarintError::Truncated) => {
                let have = self.rest.len();
                Err(RecordError::UnexpectedEnd {
                    position: self.position,
                    need: have.saturating_add(1),
                    have,
                })
            }
        }
    }

    pub(crate) fn varint(&mut self) -> Result<i32, RecordError> {
        self.number(varint::decode)
    }

    pub(crate) fn varlong(&mut self) -> Result<i64, RecordError> {
        self.number(varint::decode_long)
    }

    /// A count of things, not negative.
    fn count(&mut self) -> Result<i32, RecordError> {
        let position = self.position;
        match self.varint()? {
            length if length < 0 => Err(RecordError::InvalidLength { position, length }),
            count => Ok(count),
        }
    }

    /// A size in bytes, not negative.
    pub(crate) fn size(&mut self) -> Result<usize, RecordError> {
        let position = self.position;
        let length = self.varint()?;
        usize::try_from(length).map_err(|_| RecordError::InvalidLength { position, length })
    }

    /// Bytes, or null if their length is −1.
    pub(crate) fn nullable(&mut self) -> Result<Option<&'a [u8]>, RecordError> {
        let position = self.position;
        match self.varint()? {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(size) => self.take(size).map(Some),
                Err(_) => Err(RecordError::InvalidLength { position, length }),
            },
        }
    }

    fn header(&mut self) -> Result<Header<'a>, RecordError> {
        let size = self.size()?;
        let key = self.take(size)?;
        Ok(Header { key, value: self.nullable()? })
    }
}
