//! Kafka's primitive types, for the messages that this crate encodes and decodes by itself.
//!
//! [`Reader`] never allocates by a number it read, and slices strings and records out of the frame
//! without copying. [`Writer`] collects small fields in one buffer and takes records as they are.

use bytes::{BufMut, Bytes};

use crate::frame::FrameBuilder;
use crate::{DecodeError, EncodeError, Limits, StrBytes, Uuid};

/// Reads one message body from its first byte to its last.
pub(crate) struct Reader {
    bytes: Bytes,
    position: usize,
    /// Exclusive; less than the body's length only inside a tagged field.
    end: usize,
    flexible: bool,
    elements_left: usize,
    limits: Limits,
}

impl Reader {
    pub(crate) fn new(bytes: Bytes, flexible: bool, limits: &Limits) -> Self {
        let end = bytes.len();
        Self { bytes, position: 0, end, flexible, elements_left: limits.max_array_elements, limits: *limits }
    }

    fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// Everything that was not read.
    pub(crate) fn rest(self) -> Bytes {
        self.bytes.slice(self.position..self.end)
    }

    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { count }),
        }
    }

    fn need(&self, field: &'static str, need: usize) -> Result<(), DecodeError> {
        let have = self.remaining();
        if need <= have {
            Ok(())
        } else {
            Err(DecodeError::Truncated { field, position: self.position, need, have })
        }
    }

    fn array_of<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        self.need(field, N)?;
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[self.position..self.position + N]);
        self.position += N;
        Ok(value)
    }

    pub(crate) fn i8(&mut self, field: &'static str) -> Result<i8, DecodeError> {
        Ok(i8::from_be_bytes(self.array_of(field)?))
    }

    pub(crate) fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        Ok(self.array_of::<1>(field)? != [0])
    }

    pub(crate) fn i16(&mut self, field: &'static str) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array_of(field)?))
    }

    pub(crate) fn i32(&mut self, field: &'static str) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array_of(field)?))
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array_of(field)?))
    }

    pub(crate) fn uuid(&mut self, field: &'static str) -> Result<Uuid, DecodeError> {
        Ok(Uuid::from_bytes(self.array_of(field)?))
    }

    fn unsigned_varint(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let start = self.position;
        let mut value = 0_u32;
        for shift in [0_u32, 7, 14, 21, 28] {
            let [byte] = self.array_of::<1>(field)?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Varint { position: start })
    }

    /// A length or count: `None` for null. `fixed` is how it is written in versions that are not flexible.
    fn length(&mut self, field: &'static str, fixed: Fixed) -> Result<Option<usize>, DecodeError> {
        let position = self.position;
        let length = if self.flexible {
            i64::from(self.unsigned_varint(field)?) - 1
        } else {
            match fixed {
                Fixed::I16 => i64::from(self.i16(field)?),
                Fixed::I32 => i64::from(self.i32(field)?),
            }
        };
        if length == -1 {
            return Ok(None);
        }
        usize::try_from(length).map(Some).map_err(|_| DecodeError::BadLength { field, position, length })
    }

    pub(crate) fn nullable_string(&mut self, field: &'static str) -> Result<Option<StrBytes>, DecodeError> {
        let Some(length) = self.length(field, Fixed::I16)? else { return Ok(None) };
        self.string_of(field, length).map(Some)
    }

    pub(crate) fn string(&mut self, field: &'static str) -> Result<StrBytes, DecodeError> {
        let position = self.position;
        self.nullable_string(field)?.ok_or(DecodeError::Null { field, position })
    }

    /// A string with an int16 length in every version, as the client id of a request header.
    pub(crate) fn nullable_string_fixed(
        &mut self,
        field: &'static str,
    ) -> Result<Option<StrBytes>, DecodeError> {
        let flexible = std::mem::replace(&mut self.flexible, false);
        let value = self.nullable_string(field);
        self.flexible = flexible;
        value
    }

    fn string_of(&mut self, field: &'static str, length: usize) -> Result<StrBytes, DecodeError> {
        self.need(field, length)?;
        if length > self.limits.max_string_bytes {
            return Err(DecodeError::TooLarge { field, size: length, limit: self.limits.max_string_bytes });
        }
        let position = self.position;
        self.position += length;
        StrBytes::try_from(self.bytes.slice(position..position + length))
            .map_err(|_| DecodeError::NotUtf8 { field, position })
    }

    /// A record set, sliced out of the frame.
    pub(crate) fn records(&mut self, field: &'static str) -> Result<Option<Bytes>, DecodeError> {
        let Some(length) = self.length(field, Fixed::I32)? else { return Ok(None) };
        self.need(field, length)?;
        let position = self.position;
        self.position += length;
        Ok(Some(self.bytes.slice(position..position + length)))
    }

    /// An array of structures that are at least `min_size` bytes each on the wire.
    pub(crate) fn nullable_array<T>(
        &mut self,
        field: &'static str,
        min_size: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        assert!(min_size > 0, "an element without bytes would make the count unbounded");
        let position = self.position;
        let Some(count) = self.length(field, Fixed::I32)? else { return Ok(None) };
        let limit = self.elements_left.min(self.remaining() / min_size);
        if count > limit {
            return Err(DecodeError::TooMany { field, position, count, limit });
        }
        self.elements_left -= count;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(element(self)?);
        }
        Ok(Some(values))
    }

    pub(crate) fn array<T>(
        &mut self,
        field: &'static str,
        min_size: usize,
        element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let position = self.position;
        self.nullable_array(field, min_size, element)?.ok_or(DecodeError::Null { field, position })
    }

    /// Tagged fields of a flexible version: `known` reads those it knows and says so, the others are
    /// skipped. Nothing in versions that are not flexible.
    pub(crate) fn tagged(
        &mut self,
        mut known: impl FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        if !self.flexible {
            return Ok(());
        }
        let position = self.position;
        let count = self.unsigned_varint("tagged fields")?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let limit = self.limits.max_tagged_fields.min(self.remaining() / 2);
        if count > limit {
            return Err(DecodeError::TooMany { field: "tagged fields", position, count, limit });
        }
        let mut previous = None;
        for _ in 0..count {
            let position = self.position;
            let tag = self.unsigned_varint("tag")?;
            if let Some(previous) = previous.filter(|previous| *previous >= tag) {
                return Err(DecodeError::TagOrder { position, previous, tag });
            }
            previous = Some(tag);
            let size = usize::try_from(self.unsigned_varint("tagged field")?).unwrap_or(usize::MAX);
            self.need("tagged field", size)?;
            let end = self.position + size;
            let outer = std::mem::replace(&mut self.end, end);
            let is_known = known(self, tag)?;
            if is_known && self.position != end {
                return Err(DecodeError::TagSize { position, tag, size });
            }
            self.position = end;
            self.end = outer;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Fixed {
    I16,
    I32,
}

/// Writes one message body.
pub(crate) struct Writer<'a> {
    out: &'a mut FrameBuilder,
    flexible: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut FrameBuilder, flexible: bool) -> Self {
        Self { out, flexible }
    }

    pub(crate) fn i8(&mut self, value: i8) {
        self.out.head().put_i8(value);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.out.head().put_u8(u8::from(value));
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.out.head().put_i16(value);
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.out.head().put_i32(value);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.out.head().put_i64(value);
    }

    pub(crate) fn uuid(&mut self, value: Uuid) {
        self.out.head().put_slice(value.as_bytes());
    }

    fn unsigned_varint(&mut self, mut value: u32) {
        let head = self.out.head();
        while value >= 0x80 {
            // The low seven bits always fit a byte.
            head.put_u8(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        head.put_u8(u8::try_from(value).unwrap_or(0));
    }

    fn length(
        &mut self,
        field: &'static str,
        fixed: Fixed,
        length: Option<usize>,
    ) -> Result<(), EncodeError> {
        let too_long = || EncodeError::TooLong { field, length: length.unwrap_or(0) };
        if self.flexible {
            let value = match length {
                None => 0,
                Some(length) => u32::try_from(length)
                    .ok()
                    .and_then(|length| length.checked_add(1))
                    .ok_or_else(too_long)?,
            };
            self.unsigned_varint(value);
            return Ok(());
        }
        match (fixed, length) {
            (Fixed::I16, None) => self.i16(-1),
            (Fixed::I32, None) => self.i32(-1),
            (Fixed::I16, Some(length)) => self.i16(i16::try_from(length).map_err(|_| too_long())?),
            (Fixed::I32, Some(length)) => self.i32(i32::try_from(length).map_err(|_| too_long())?),
        }
        Ok(())
    }

    pub(crate) fn nullable_string(
        &mut self,
        field: &'static str,
        value: Option<&str>,
    ) -> Result<(), EncodeError> {
        self.length(field, Fixed::I16, value.map(str::len))?;
        if let Some(value) = value {
            self.out.head().put_slice(value.as_bytes());
        }
        Ok(())
    }

    pub(crate) fn string(&mut self, field: &'static str, value: &str) -> Result<(), EncodeError> {
        self.nullable_string(field, Some(value))
    }

    /// A string with an int16 length in every version, as the client id of a request header.
    pub(crate) fn nullable_string_fixed(
        &mut self,
        field: &'static str,
        value: Option<&str>,
    ) -> Result<(), EncodeError> {
        let flexible = std::mem::replace(&mut self.flexible, false);
        let result = self.nullable_string(field, value);
        self.flexible = flexible;
        result
    }

    /// A record set: its length here, its bytes behind, not copied.
    pub(crate) fn records(&mut self, field: &'static str, value: Option<&Bytes>) -> Result<(), EncodeError> {
        self.length(field, Fixed::I32, value.map(Bytes::len))?;
        if let Some(value) = value {
            self.out.append(value.clone());
        }
        Ok(())
    }

    pub(crate) fn array<T>(
        &mut self,
        field: &'static str,
        values: &[T],
        element: impl FnMut(&mut Self, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.nullable_array(field, Some(values), element)
    }

    pub(crate) fn nullable_array<T>(
        &mut self,
        field: &'static str,
        values: Option<&[T]>,
        mut element: impl FnMut(&mut Self, &T) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.length(field, Fixed::I32, values.map(<[T]>::len))?;
        values.unwrap_or_default().iter().try_for_each(|value| element(self, value))
    }

    /// The tagged fields that have a value, as (tag, encoded value), ascending. Nothing in versions
    /// that are not flexible.
    pub(crate) fn tagged(&mut self, fields: &[(u32, Vec<u8>)]) -> Result<(), EncodeError> {
        if !self.flexible {
            return Ok(());
        }
        assert!(fields.is_sorted_by(|a, b| a.0 < b.0), "tagged fields are written in ascending order");
        let too_long = |length| EncodeError::TooLong { field: "tagged field", length };
        self.unsigned_varint(u32::try_from(fields.len()).map_err(|_| too_long(fields.len()))?);
        for (tag, value) in fields {
            self.unsigned_varint(*tag);
            self.unsigned_varint(u32::try_from(value.len()).map_err(|_| too_long(value.len()))?);
            self.out.head().put_slice(value);
        }
        Ok(())
    }

    /// No tagged field.
    pub(crate) fn no_tags(&mut self) -> Result<(), EncodeError> {
        self.tagged(&[])
    }
}

/// The value of one tagged field, which is always in a flexible version.
pub(crate) fn tag_value(
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
) -> Result<Vec<u8>, EncodeError> {
    let mut out = FrameBuilder::new();
    write(&mut Writer::new(&mut out, true))?;
    Ok(out.finish()?.to_vec_without_length())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8], flexible: bool) -> Reader {
        Reader::new(Bytes::copy_from_slice(bytes), flexible, &Limits::SERVER)
    }

    #[test]
    fn an_unsigned_varint_of_five_bytes_holds_exactly_32_bits() {
        assert_eq!(reader(&[0xff, 0xff, 0xff, 0xff, 0x0f], true).unsigned_varint("v").unwrap(), u32::MAX);
        for bad in [&[0xff, 0xff, 0xff, 0xff, 0x10][..], &[0xff, 0xff, 0xff, 0xff, 0x8f, 0]] {
            assert!(matches!(
                reader(bad, true).unsigned_varint("v"),
                Err(DecodeError::Varint { position: 0 })
            ));
        }
        for value in [0, 1, 127, 128, 16_383, 16_384, u32::MAX - 1, u32::MAX] {
            let bytes = tag_value(|writer| {
                writer.unsigned_varint(value);
                Ok(())
            })
            .unwrap();
            assert_eq!(reader(&bytes, true).unsigned_varint("v").unwrap(), value);
        }
    }

    #[test]
    fn null_empty_and_full_strings_differ_in_both_encodings() {
        for flexible in [false, true] {
            for value in [None, Some(""), Some("kafka")] {
                let mut out = FrameBuilder::new();
                Writer::new(&mut out, flexible).nullable_string("s", value).unwrap();
                let bytes = out.finish().unwrap().to_vec_without_length();
                let mut reader = reader(&bytes, flexible);
                assert_eq!(reader.nullable_string("s").unwrap().as_deref(), value);
                reader.finish().unwrap();
            }
        }
        assert!(matches!(reader(&[0], true).string("s"), Err(DecodeError::Null { .. })));
        assert!(matches!(
            reader(&[0xff, 0xfe], false).string("s"),
            Err(DecodeError::BadLength { length: -2, .. })
        ));
        assert!(matches!(reader(&[2, 0xff], true).string("s"), Err(DecodeError::NotUtf8 { .. })));
    }

    #[test]
    fn a_count_that_the_rest_of_the_body_cannot_hold_is_refused_before_it_is_allocated() {
        let mut reader = reader(&[0x7f, 0xff, 0xff, 0xff], false);
        let error = reader.array("a", 4, |reader| reader.i32("x")).unwrap_err();
        assert!(matches!(error, DecodeError::TooMany { count: 0x7fff_ffff, limit: 0, .. }), "{error}");
    }

    #[test]
    fn all_arrays_of_a_message_share_one_budget_of_elements() {
        let limits = Limits { max_array_elements: 5, ..Limits::SERVER };
        let bytes = Bytes::from_static(&[0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 3, 1, 2, 3]);
        let mut reader = Reader::new(bytes, false, &limits);
        assert_eq!(reader.array("a", 1, |reader| reader.i8("x")).unwrap(), [1, 2, 3]);
        assert!(matches!(
            reader.array("a", 1, |reader| reader.i8("x")),
            Err(DecodeError::TooMany { count: 3, limit: 2, .. })
        ));
    }

    #[test]
    fn tagged_fields_are_ascending_and_filled_by_their_values() {
        let read = |bytes: &[u8]| {
            let mut found = None;
            reader(bytes, true)
                .tagged(|reader, tag| {
                    if tag == 1 {
                        found = Some(reader.i16("t")?);
                    }
                    Ok(tag == 1)
                })
                .map(|()| found)
        };
        assert_eq!(read(&[2, 1, 2, 0, 7, 5, 1, 9]).unwrap(), Some(7));
        assert!(matches!(read(&[2, 1, 2, 0, 7, 1, 1, 9]), Err(DecodeError::TagOrder { .. })));
        assert!(matches!(read(&[1, 1, 3, 0, 7, 0]), Err(DecodeError::TagSize { size: 3, .. })));
        assert!(matches!(read(&[1, 1, 1, 0, 7]), Err(DecodeError::Truncated { need: 2, have: 1, .. })));
        assert!(matches!(read(&[0x7f]), Err(DecodeError::TooMany { .. })));
    }
}
