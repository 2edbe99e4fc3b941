//! Oracles over compressed bytes: as they come, as they are when this crate's own libraries compressed them, and as
//! the records of a batch.

use std::cell::RefCell;
use std::io::Write as _;

use super::{choice, seal};
use crate::batch::{Codec, RecordBatch};
use crate::codec::{Decoder, Descriptor, decompress};
use crate::error::{CodecError, RecordError};

/// What an oracle lets come out.
const LIMIT: usize = 1 << 20;

/// What is said of any bytes as gzip, and of any bytes compressed with it.
pub fn check_gzip(data: &[u8]) {
    check(Codec::Gzip, data, &[gzip(data)]);
}

/// What is said of any bytes as snappy, bare and framed, and of any bytes compressed with it.
pub fn check_snappy(data: &[u8]) {
    check(Codec::Snappy, data, &[snappy(data), framed_snappy(data)]);
}

/// What is said of any bytes as lz4, and of any bytes compressed with it.
pub fn check_lz4(data: &[u8]) {
    check(Codec::Lz4, data, &[lz4(data)]);
    if decompress(Codec::Lz4, data, LIMIT).is_ok_and(|plain| !plain.is_empty()) {
        assert_eq!(
            lz4_end(data),
            Some(data.len()),
            "a frame ends where Kafka finds its end, and nothing follows"
        );
    }
}

/// Where Kafka finds the end of the lz4 frame that starts here: behind the first block size of 0, stored or not, and the
/// content checksum.
fn lz4_end(bytes: &[u8]) -> Option<usize> {
    let flags = *bytes.get(4)?;
    let mut at = if flags & 0x08 == 0 { 7 } else { 15 };
    let checksum = if flags & 0x10 == 0 { 0 } else { 4 };
    loop {
        let field = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        at += 4;
        match usize::try_from(field & 0x7fff_ffff).ok()? {
            0 => return Some(at + if flags & 0x04 == 0 { 0 } else { 4 }),
            size => at += size + checksum,
        }
    }
}

/// What is said of any bytes as zstd, and of any bytes compressed with it.
pub fn check_zstd(data: &[u8]) {
    check(Codec::Zstd, data, &[zstd(data)]);
}

fn check(codec: Codec, data: &[u8], compressed: &[Vec<u8>]) {
    codec_oracle(codec, data);
    batch_oracle(codec, data);
    for bytes in compressed {
        assert_eq!(
            decompress(codec, bytes, data.len()).as_deref(),
            Ok(data),
            "what was compressed comes back"
        );
        codec_oracle(codec, bytes);
        batch_oracle(codec, bytes);
        let mut spoilt = bytes.clone();
        let bit = choice(bytes, bytes.len() * 8);
        if let Some(byte) = spoilt.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
        codec_oracle(codec, &spoilt);
        match decompress(codec, &bytes[..choice(data, bytes.len())], LIMIT) {
            // A framed snappy stream has no end of its own.
            Ok(part) => assert!(data.starts_with(&part) && (part.is_empty() || codec == Codec::Snappy)),
            Err(error) => assert!(!matches!(error, CodecError::LimitExceeded { .. }), "{error}"),
        }
    }
}

/// In pieces as in whole, and up to the limit and no further.
fn codec_oracle(codec: Codec, bytes: &[u8]) {
    let whole = decompress(codec, bytes, LIMIT);
    let piece = 1 + choice(bytes, 5000);
    let pieces = in_pieces(codec, bytes, piece);
    match &whole {
        Ok(plain) => {
            assert!(plain.len() <= LIMIT);
            assert_eq!(pieces.as_ref(), Ok(plain), "in pieces of {piece}");
            assert_eq!(decompress(codec, bytes, plain.len()).as_ref(), Ok(plain), "no limit is reached");
            if let Some(limit) = plain.len().checked_sub(1 + choice(plain, plain.len())) {
                let error = Err(CodecError::LimitExceeded { limit });
                assert_eq!(decompress(codec, bytes, limit), error, "of {}", plain.len());
            }
        }
        Err(_) => assert!(pieces.is_err(), "an error in whole is one in pieces"),
    }
}

fn in_pieces(codec: Codec, bytes: &[u8], piece: usize) -> Result<Vec<u8>, CodecError> {
    let mut decoder = Decoder::new(codec, bytes, LIMIT, Descriptor::Checked)?;
    let mut whole = Vec::new();
    let mut into = vec![0; piece];
    loop {
        match decoder.read(&mut into)? {
            0 => break,
            size => whole.extend_from_slice(&into[..size]),
        }
    }
    assert_eq!(decoder.read(&mut into), Ok(0), "the end stays the end");
    Ok(whole)
}

/// The records of a batch, one at a time and all at once.
fn batch_oracle(codec: Codec, records: &[u8]) {
    let mut bytes = vec![0; 61];
    bytes[16] = 2;
    bytes[22] = match codec {
        Codec::Gzip => 1,
        Codec::Snappy => 2,
        Codec::Lz4 => 3,
        _ => 4,
    };
    bytes[23] = 0x7f;
    bytes[60] = u8::try_from(choice(records, 6)).expect("small");
    bytes.extend_from_slice(records);
    seal(&mut bytes);
    let batch = RecordBatch::parse(&bytes).expect("a batch by construction");
    assert_eq!(batch.codec(), codec);
    let plain = batch.decompress(LIMIT);
    let mut all = plain.as_ref().ok().map(|plain| batch.records_in(plain));
    let mut stream = batch.record_stream(LIMIT);
    loop {
        let record = stream.next_record();
        let failed = matches!(record, None | Some(Err(_)));
        match &mut all {
            None => assert!(record.is_some(), "what cannot be decompressed has no good end"),
            Some(all) => match (record, all.next()) {
                (
                    Some(Err(RecordError::TrailingBytes { record_count, size })),
                    Some(Err(RecordError::TrailingBytes { record_count: count, size: all })),
                ) => assert!(record_count == count && size <= all && size > 0),
                (record, all) => assert_eq!(record, all),
            },
        }
        if failed {
            break;
        }
    }
    assert!(stream.next_record().is_none(), "nothing follows the end");
}

pub(super) fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).expect("memory");
    encoder.finish().expect("memory")
}

pub(super) fn snappy(data: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(data).expect("fuzzed inputs are small")
}

pub(super) fn framed_snappy(data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for block in data.chunks(1000) {
        let block = snappy(block);
        bytes.extend_from_slice(&u32::try_from(block.len()).expect("small").to_be_bytes());
        bytes.extend_from_slice(&block);
    }
    bytes
}

pub(super) fn lz4(data: &[u8]) -> Vec<u8> {
    // Version 1, independent blocks of at most 64 KiB; the sum of these two bytes is 0x82.
    let mut bytes = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
    for block in data.chunks(1000) {
        let block = lz4_flex::block::compress(block);
        bytes.extend_from_slice(&u32::try_from(block.len()).expect("small").to_le_bytes());
        bytes.extend_from_slice(&block);
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

fn zstd(data: &[u8]) -> Vec<u8> {
    // A new context is a megabyte, and most of the time of an execution.
    thread_local!(static COMPRESSOR: RefCell<::zstd::bulk::Compressor<'static>> =
        RefCell::new(::zstd::bulk::Compressor::new(1).expect("memory")));
    COMPRESSOR.with_borrow_mut(|compressor| compressor.compress(data).expect("memory"))
}
