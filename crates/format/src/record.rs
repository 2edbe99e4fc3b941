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
    #[inline]
    pub fn headers(&self) -> Headers<'a> {
        Headers { rest: self.header_bytes, left: self.header_count }
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
    rest: &'a [u8],
    left: i32,
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1).filter(|left| *left >= 0)?;
        let (header, rest) = quick::header(self.rest)?;
        self.rest = rest;
        Some(header)
    }
}

/// The records of one batch, see [`crate::RecordBatch::records`].
///
/// It yields as many records as the header counts, or one error and then nothing more. Bytes behind the last record
/// are an error.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    header: BatchHeader<'a>,
    // INVARIANT: the unread end of the records' bytes; behind an error it starts with what was wrong.
    rest: &'a [u8],
    // Where `rest` ends in the batch.
    end: usize,
    found: i32,
    ended: bool,
}

impl<'a> Records<'a> {
    pub(crate) fn new(header: BatchHeader<'a>, bytes: &'a [u8]) -> Self {
        Self { header, rest: bytes, end: HEADER_SIZE.saturating_add(bytes.len()), found: 0, ended: false }
    }

    /// All steps but those to a record without a fault: the last one, and those into an error.
    ///
    /// By value, so that a walk may keep the rest of its state in registers.
    #[cold]
    fn stop(mut self) -> (Option<Result<Record<'a>, RecordError>>, Self) {
        if self.ended {
            return (None, self);
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(Some(_)));
        (step.transpose(), self)
    }

    fn step(&mut self) -> Result<Option<Record<'a>>, RecordError> {
        let record_count = self.header.record_count();
        let size = self.rest.len();
        if self.found == record_count {
            return match size {
                0 => Ok(None),
                size => Err(RecordError::TrailingBytes { record_count, size }),
            };
        }
        if size == 0 {
            return Err(RecordError::MissingRecords { record_count, found: self.found });
        }
        let mut cursor = Cursor { rest: self.rest, position: self.end.saturating_sub(size) };
        let record = Record::read(&self.header, &mut cursor)?;
        self.rest = cursor.rest;
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

    /// Reads the record at the start of `rest`, of the batch with this header; what is behind it comes as well.
    ///
    /// `None` where [`Self::read`] has an error, which it then finds and names; else both answer the same.
    #[inline]
    pub(crate) fn read_quickly(header: &BatchHeader<'_>, rest: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (body, behind) = quick::sized(rest)?;
        let (_, body) = body.split_first()?; // Attributes, of which none has a meaning yet.
        let (timestamp_delta, body) = quick::varlong(body)?;
        let (delta, body) = quick::count(body)?;
        let (key, body) = quick::nullable(body)?;
        let (value, body) = quick::nullable(body)?;
        let (header_count, header_bytes) = match body {
            [0] => (0, &[][..]),
            _ => quick::headers(body)?,
        };
        if delta > header.offset_span() {
            return None;
        }
        let offset = header.base_offset().checked_add(i64::from(delta))?;
        let timestamp = timestamp(header, timestamp_delta);
        Some((Record { offset, timestamp, key, value, header_bytes, header_count }, behind))
    }

    /// How many bytes the record at the start of `rest` has, if all of them are there.
    #[cfg(feature = "codec")]
    pub(crate) fn whole_size(rest: &[u8]) -> Option<usize> {
        let (_, behind) = quick::sized(rest)?;
        rest.len().checked_sub(behind.len())
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

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.found != self.header.record_count()
            && let Some((record, rest)) = Record::read_quickly(&self.header, self.rest)
        {
            self.rest = rest;
            self.found = self.found.saturating_add(1);
            return Some(Ok(record));
        }
        let (step, after) = self.clone().stop();
        *self = after;
        step
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The header's count is not to be trusted with memory; the bytes are, and there may be one error besides.
        let most = self.rest.len().div_ceil(SMALLEST_RECORD).saturating_add(1);
        (0, Some(if self.ended { 0 } else { most }))
    }
}

impl std::iter::FusedIterator for Records<'_> {}

/// Fields as [`Cursor`] reads them, for those who do not ask what is wrong: no position, no error, and the short forms of
/// numbers, which nearly all are, first. Each answers what it has read and what is behind it.
mod quick {
    use super::Header;
    use crate::varint;

    /// A number without its zig-zag: the lowest bit says whether it is negative.
    #[inline]
    fn raw(rest: &[u8]) -> Option<(u32, &[u8])> {
        match rest {
            [a, rest @ ..] if *a < 0x80 => Some((u32::from(*a), rest)),
            [a, b, rest @ ..] if *b < 0x80 => Some((u32::from(*a & 0x7f) | (u32::from(*b) << 7), rest)),
            _ => long_raw(rest),
        }
    }

    #[cold]
    fn long_raw(rest: &[u8]) -> Option<(u32, &[u8])> {
        let (value, size) = varint::decode_unsigned(rest).ok()?;
        Some((value, rest.get(size..)?))
    }

    /// A number that is not negative.
    #[inline]
    pub(super) fn count(rest: &[u8]) -> Option<(u32, &[u8])> {
        let (raw, rest) = raw(rest)?;
        if raw & 1 == 0 { Some((raw >> 1, rest)) } else { None }
    }

    #[inline]
    pub(super) fn varlong(rest: &[u8]) -> Option<(i64, &[u8])> {
        let (raw, rest) = match rest {
            [a, rest @ ..] if *a < 0x80 => (i64::from(*a), rest),
            [a, b, rest @ ..] if *b < 0x80 => (i64::from(*a & 0x7f) | (i64::from(*b) << 7), rest),
            _ => return long_varlong(rest),
        };
        Some(((raw >> 1) ^ (raw & 1).wrapping_neg(), rest))
    }

    fn long_varlong(rest: &[u8]) -> Option<(i64, &[u8])> {
        let (value, size) = varint::decode_long(rest).ok()?;
        Some((value, rest.get(size..)?))
    }

    /// As many bytes as the number in front of them says, which is not negative.
    #[inline]
    pub(super) fn sized(rest: &[u8]) -> Option<(&[u8], &[u8])> {
        let (size, rest) = count(rest)?;
        rest.split_at_checked(usize::try_from(size).ok()?)
    }

    #[inline]
    pub(super) fn nullable(rest: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
        let (raw, rest) = raw(rest)?;
        if raw & 1 == 0 {
            let (bytes, rest) = rest.split_at_checked(usize::try_from(raw >> 1).ok()?)?;
            return Some((Some(bytes), rest));
        }
        // One is minus one.
        if raw == 1 { Some((None, rest)) } else { None }
    }

    /// How many headers there are, and the bytes of exactly as many.
    #[inline]
    pub(super) fn headers(body: &[u8]) -> Option<(i32, &[u8])> {
        let (header_count, header_bytes) = count(body)?;
        let mut rest = header_bytes;
        for _ in 0..header_count {
            rest = header(rest)?.1;
        }
        rest.is_empty().then_some((header_count.cast_signed(), header_bytes))
    }

    #[inline]
    pub(super) fn header(rest: &[u8]) -> Option<(Header<'_>, &[u8])> {
        let (key, rest) = sized(rest)?;
        let (value, rest) = nullable(rest)?;
        Some((Header { key, value }, rest))
    }
}

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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::batch::RecordBatch;
    use crate::builder::BatchBuilder;

    /// A header whose base offset leaves room for five records, by `shape` at the very end of what offsets can say.
    fn batch(shape: bool) -> Vec<u8> {
        let base = if shape { i64::MAX - 5 } else { 42 };
        let builder = BatchBuilder::new().base_offset(Offset::new(base).expect("not negative"));
        let builder = builder.base_timestamp(TimestampMs::new(-3)).last_offset_delta(4);
        if shape { builder.log_append_time(TimestampMs::new(77)) } else { builder }
            .build()
            .expect("a batch")
            .to_vec()
    }

    /// Whatever the bytes: where the careful reader has a record, the quick one has the same, and else none.
    fn check_agrees(shape: bool, bytes: &[u8]) {
        let batch = batch(shape);
        let header = RecordBatch::parse(&batch).expect("built").header();
        let mut cursor = Cursor { rest: bytes, position: 0 };
        let careful = Record::read(&header, &mut cursor).ok().map(|record| (record, cursor.rest));
        let quick = Record::read_quickly(&header, bytes);
        assert_eq!(quick, careful, "{bytes:?}");
        if let Some((record, rest)) = quick {
            let mut cursor = Cursor { rest: record.header_bytes, position: 0 };
            let careful: Vec<_> =
                (0..record.header_count).map(|_| cursor.header().expect("it was checked")).collect();
            assert_eq!(record.headers().collect::<Vec<_>>(), careful, "{bytes:?}");
            assert!(rest.len() < bytes.len());
        }
    }

    /// Numbers of every size, in their shortest form or one byte longer than it.
    fn number() -> impl Strategy<Value = Vec<u8>> {
        let raw = prop_oneof![8 => 0..12_u64, 2 => 0..400_u64, 1 => 0..1_u64 << 34, 1 => any::<u64>()];
        (raw, any::<bool>()).prop_map(|(raw, longer)| {
            let mut bytes = bytes::BytesMut::new();
            varint::encode_unsigned_long(raw, &mut bytes);
            let mut bytes = bytes.to_vec();
            if longer && let Some(last) = bytes.last_mut() {
                *last |= 0x80;
                bytes.push(0);
            }
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn quick_and_careful_readers_agree_on_any_bytes(shape: bool, bytes in vec(0..24_u8, 0..40)) {
            check_agrees(shape, &bytes);
        }

        #[test]
        fn quick_and_careful_readers_agree_on_what_is_nearly_a_record(
            shape: bool,
            attributes: u8,
            numbers in vec(number(), 4..12),
            cut in 0..3_usize,
        ) {
            let mut body = vec![attributes];
            for number in &numbers {
                body.extend_from_slice(number);
            }
            body.truncate(body.len() - cut);
            let mut bytes = bytes::BytesMut::new();
            varint::encode(i32::try_from(body.len()).expect("small"), &mut bytes);
            bytes.extend_from_slice(&body);
            check_agrees(shape, &bytes);
        }
    }

    fn meets(bytes: &[u8]) -> Option<Record<'_>> {
        check_agrees(false, bytes);
        let batch = batch(false);
        let header = RecordBatch::parse(&batch).expect("built").header();
        Record::read_quickly(&header, bytes).map(|(record, _)| record)
    }

    #[test]
    fn the_properties_meet_records_of_every_kind() {
        // What the generators above can make, once each by hand, so that agreement is not agreement on nothing.
        let plain = meets(&[14, 0, 2, 4, 2, b'k', 0, 0]).expect("a record");
        assert_eq!((plain.offset.get(), plain.timestamp.get()), (44, -2));
        assert_eq!((plain.key, plain.value), (Some(&b"k"[..]), Some(&b""[..])));
        let headers = meets(&[22, 0, 0, 0, 1, 1, 4, 2, b'h', 1, 0, 0]).expect("a record");
        assert_eq!(headers.headers().count(), 2);
        // Longer forms of numbers than they need.
        assert!(meets(&[0x8c, 0x80, 0, 0, 0, 0, 1, 1, 0]).is_some());
        assert!(meets(&[16, 0, 0x81, 0x80, 0, 0, 1, 1, 0]).is_some());
        // An offset delta of 5 where the header's last is 4, of -1, a cut, bytes behind, too many headers.
        assert!(meets(&[12, 0, 0, 10, 1, 1, 0]).is_none());
        assert!(meets(&[12, 0, 0, 1, 1, 1, 0]).is_none());
        assert!(meets(&[12, 0, 0, 0, 1, 1]).is_none());
        assert!(meets(&[14, 0, 0, 0, 1, 1, 0, 0]).is_none());
        assert!(meets(&[12, 0, 0, 0, 1, 1, 2]).is_none());
        assert!(meets(&[12, 0, 0, 0, 3, 1, 0]).is_none());
    }

    #[test]
    fn a_walk_ends_behind_its_error() {
        let bytes = BatchBuilder::new()
            .record(TimestampMs::new(1), Some(b"k"), None)
            .record(TimestampMs::new(2), Some(b"k"), None)
            .build()
            .expect("a batch");
        let header = RecordBatch::parse(&bytes).expect("built").header();
        let records = &bytes[HEADER_SIZE..];
        let second = records.len() / 2;
        // The second record's offset delta goes beyond the batch; the first is left in peace.
        let mut wrong = records.to_vec();
        wrong[second + 3] = 10;
        let mut walk = Records::new(header, &wrong);
        assert!(walk.next().is_some_and(|record| record.is_ok()));
        assert_eq!(
            walk.next(),
            Some(Err(RecordError::OffsetOutsideBatch { delta: 5, last_offset_delta: 1 }))
        );
        assert_eq!((walk.next(), walk.size_hint()), (None, (0, Some(0))));
        // Positions count from the batch's start.
        let mut walk = Records::new(header, &records[..records.len() - 1]);
        assert!(walk.next().is_some_and(|record| record.is_ok()));
        let position = HEADER_SIZE + second + 1;
        assert_eq!(walk.next(), Some(Err(RecordError::UnexpectedEnd { position, need: 7, have: 6 })));
        assert_eq!(walk.next(), None);
    }
}
