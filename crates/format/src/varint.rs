//! Kafka's variable-length integers: seven bits a byte, the lowest first; signed ones zig-zag.
//!
//! Decoding takes at most five bytes for 32 bits and ten for 64. Longer forms than needed are read, and bits beyond
//! the type's width are dropped, as Kafka does: what it reads as a barrier must be one here.
//!
//! Source: Kafka's `ByteUtils`.

use bytes::{BufMut, BytesMut};

use crate::error::VarintError;

/// Reads an unsigned 32-bit varint from the start of `bytes`; answers it and how many bytes it took.
///
/// # Errors
/// [`VarintError::Truncated`] if `bytes` ends within it, [`VarintError::TooLong`] beyond five bytes.
pub fn decode_unsigned(bytes: &[u8]) -> Result<(u32, usize), VarintError> {
    let mut value = 0_u32;
    let mut shift = 0_u32;
    for (index, &byte) in bytes.iter().take(5).enumerate() {
        value |= u32::from(byte & 0x7f).wrapping_shl(shift);
        if byte & 0x80 == 0 {
            return Ok((value, index.saturating_add(1)));
        }
        shift = shift.saturating_add(7);
    }
    Err(unfinished(bytes.len(), 5))
}

/// Reads an unsigned 64-bit varint from the start of `bytes`; answers it and how many bytes it took.
///
/// # Errors
/// [`VarintError::Truncated`] if `bytes` ends within it, [`VarintError::TooLong`] beyond ten bytes.
pub fn decode_unsigned_long(bytes: &[u8]) -> Result<(u64, usize), VarintError> {
    let mut value = 0_u64;
    let mut shift = 0_u32;
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).wrapping_shl(shift);
        if byte & 0x80 == 0 {
            return Ok((value, index.saturating_add(1)));
        }
        shift = shift.saturating_add(7);
    }
    Err(unfinished(bytes.len(), 10))
}

/// Reads a zig-zag 32-bit varint from the start of `bytes`; answers it and how many bytes it took.
///
/// # Errors
/// As [`decode_unsigned`].
pub fn decode(bytes: &[u8]) -> Result<(i32, usize), VarintError> {
    let (raw, size) = decode_unsigned(bytes)?;
    Ok(((raw >> 1).cast_signed() ^ (raw & 1).cast_signed().wrapping_neg(), size))
}

/// Reads a zig-zag 64-bit varint ("varlong") from the start of `bytes`; answers it and how many bytes it took.
///
/// # Errors
/// As [`decode_unsigned_long`].
pub fn decode_long(bytes: &[u8]) -> Result<(i64, usize), VarintError> {
    let (raw, size) = decode_unsigned_long(bytes)?;
    Ok(((raw >> 1).cast_signed() ^ (raw & 1).cast_signed().wrapping_neg(), size))
}

/// Writes an unsigned 32-bit varint in its shortest form.
pub fn encode_unsigned(value: u32, into: &mut BytesMut) {
    encode_unsigned_long(u64::from(value), into);
}

/// Writes an unsigned 64-bit varint in its shortest form.
pub fn encode_unsigned_long(mut value: u64, into: &mut BytesMut) {
    loop {
        let [low, ..] = value.to_le_bytes();
        value >>= 7;
        if value == 0 {
            into.put_u8(low & 0x7f);
            return;
        }
        into.put_u8(low | 0x80);
    }
}

/// Writes a zig-zag 32-bit varint in its shortest form.
pub fn encode(value: i32, into: &mut BytesMut) {
    encode_unsigned(((value << 1) ^ (value >> 31)).cast_unsigned(), into);
}

/// Writes a zig-zag 64-bit varint in its shortest form.
pub fn encode_long(value: i64, into: &mut BytesMut) {
    encode_unsigned_long(((value << 1) ^ (value >> 63)).cast_unsigned(), into);
}

fn unfinished(have: usize, longest: usize) -> VarintError {
    if have < longest { VarintError::Truncated } else { VarintError::TooLong }
}

#[cfg(test)]
mod tests;
