//! The oracle over message sets of magic 0 and 1, with a reader of its own.

use super::choice;
use super::codecs::{framed_snappy, gzip, lz4, snappy};
use crate::batch::Codec;
use crate::error::MessageError;
use crate::message_set::{AnyBatch, AnyBatchReader, Message, MessageSetReader, message_size};

const LIMIT: usize = 1 << 20;

/// What is said of any bytes as a message set, and of message sets and wrappers that hold any bytes.
pub fn check_message_set(data: &[u8]) {
    for bytes in [data, &with_right_crc(data)] {
        message_oracle(bytes);
        reader_oracle(bytes);
    }
    for magic in [0, 1] {
        built_oracle(magic, data);
    }
}

/// These bytes with a magic of 0 or 1, and the length and CRC that fit them.
fn with_right_crc(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if bytes.len() < 34 {
        bytes.resize(34, 0);
    }
    bytes[0] &= 0x3f;
    bytes[16] &= 1;
    seal(&mut bytes);
    bytes
}

fn seal(bytes: &mut [u8]) {
    let length = i32::try_from(bytes.len() - 12).expect("fuzzed inputs are small");
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    // The naive reader has its own, bit by bit.
    let crc = crate::crc::crc32(&bytes[16..]);
    bytes[12..16].copy_from_slice(&crc.to_be_bytes());
}

/// CRC-32 bit by bit.
fn slow_crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// A message as the naive reader sees it: its size, key and value.
type Naive = (usize, Option<Vec<u8>>, Option<Vec<u8>>);

fn naive(bytes: &[u8]) -> Option<Naive> {
    let offset = i64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
    let length = i32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?);
    let size = usize::try_from(length).ok()? + 12;
    let bytes = bytes.get(..size)?;
    let magic = *bytes.get(16)?;
    if magic > 1 || !(0..i64::MAX).contains(&offset) {
        return None;
    }
    let stored = u32::from_be_bytes(bytes.get(12..16)?.try_into().ok()?);
    if stored != slow_crc(&bytes[16..]) {
        return None;
    }
    let mut at = if magic == 0 { 18 } else { 26 };
    let mut parts = Vec::new();
    for _ in 0..2 {
        let length = i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
        at += 4;
        parts.push(match usize::try_from(length) {
            Ok(size) => Some(bytes.get(at..at + size)?.to_vec()),
            Err(_) => None,
        });
        at += parts.last()?.as_ref().map_or(0, Vec::len);
    }
    let value = parts.pop()?;
    (at == size).then_some((size, parts.pop()?, value))
}

fn message_oracle(bytes: &[u8]) {
    let parsed = Message::parse(bytes);
    let ours = parsed.map(|message| {
        let owned = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
        (message.size(), owned(message.key()), owned(message.value()))
    });
    assert_eq!(ours.clone().ok(), naive(bytes), "both readers see the message, or neither");
    let Ok(message) = parsed else { return };
    let size = message.size();
    assert!(std::ptr::eq(message.bytes(), &raw const bytes[..size]), "the view is the input's own bytes");
    assert_eq!(message_size(bytes), Ok(Some(size)));
    assert!(matches!(AnyBatch::parse(bytes), Ok(AnyBatch::Message(_))));
    for have in [0, 16, 17, choice(bytes, size), size - 1] {
        let have = have.min(size - 1);
        let error = Message::parse(&bytes[..have]).err();
        assert!(matches!(error, Some(MessageError::Truncated { have: said, .. }) if said == have), "{have}");
    }
    let mut changed = bytes[..size].to_vec();
    let bit = 12 * 8 + choice(bytes, (size - 12) * 8);
    changed[bit / 8] ^= 1 << (bit % 8);
    assert!(Message::parse(&changed).is_err(), "bit {bit} flipped");
    stream_oracle(&message);
}

fn stream_oracle(message: &Message<'_>) {
    let mut stream = match message.record_stream(LIMIT) {
        Ok(stream) => stream,
        Err(_) => {
            assert!(message.codec() != Codec::None, "a message that wraps nothing is a record");
            return;
        }
    };
    let mut count = 0;
    loop {
        match stream.next_record() {
            Some(Ok(record)) => {
                count += 1;
                assert_eq!(record.headers().count(), 0);
                if message.magic() == 1 && message.offset().get() != 0 {
                    // Nothing in a wrapper need be in order, but the last one has the wrapper's offset.
                    assert!(count > 1 || message.codec() != Codec::None || record.offset == message.offset());
                }
            }
            Some(Err(_)) => break,
            None => {
                assert!(count > 0, "a message is a record or wraps some");
                break;
            }
        }
    }
    assert!(stream.next_record().is_none(), "nothing follows the end");
}

fn reader_oracle(bytes: &[u8]) {
    let mut reader = MessageSetReader::new(bytes);
    let sizes: usize = reader.by_ref().flatten().map(|message| message.size()).sum();
    assert_eq!(sizes, reader.position(), "messages lie side by side");
    assert!(reader.next().is_none());
    let mut any = AnyBatchReader::new(bytes);
    let any_sizes: usize = any.by_ref().flatten().map(|any| any.bytes().len()).sum();
    assert!(any_sizes == any.position() && any_sizes >= sizes, "whoever reads all reads messages too");
}

/// A message of this magic with a timestamp of 7 and no key.
fn message(magic: u8, attributes: u8, offset: i64, value: &[u8]) -> Vec<u8> {
    let mut bytes = [&offset.to_be_bytes()[..], &[0; 8], &[magic, attributes]].concat();
    if magic == 1 {
        bytes.extend_from_slice(&7_i64.to_be_bytes());
    }
    bytes.extend_from_slice(&(-1_i32).to_be_bytes());
    bytes.extend_from_slice(&i32::try_from(value.len()).expect("small").to_be_bytes());
    bytes.extend_from_slice(value);
    seal(&mut bytes);
    bytes
}

/// Any bytes in pieces as messages, plain and wrapped with every codec, come back with their offsets.
fn built_oracle(magic: u8, data: &[u8]) {
    let pieces: Vec<&[u8]> = data.chunks(1 + choice(data, 700)).collect();
    let base = i64::try_from(choice(data, 1 << 20)).expect("small");
    let offset = |index: usize| base + i64::try_from(index).expect("small");
    let plain: Vec<u8> =
        pieces.iter().enumerate().flat_map(|(at, piece)| message(magic, 0, offset(at), piece)).collect();
    let read: Vec<_> = MessageSetReader::new(&plain).map(|message| message.expect("built")).collect();
    assert_eq!(read.len(), pieces.len());
    for (at, (message, piece)) in read.iter().zip(&pieces).enumerate() {
        assert_eq!((message.offset().get(), message.value()), (offset(at), Some(*piece)));
    }
    if pieces.is_empty() {
        return;
    }
    let relative = if magic == 1 { base } else { 0 };
    let inner: Vec<u8> = pieces
        .iter()
        .enumerate()
        .flat_map(|(at, piece)| message(magic, 0, offset(at) - relative, piece))
        .collect();
    let last = offset(pieces.len() - 1);
    let wrapped = [(1, gzip(&inner)), (2, snappy(&inner)), (2, framed_snappy(&inner)), (3, lz4(&inner))];
    for (attributes, value) in wrapped {
        let bytes = message(magic, attributes, last, &value);
        let wrapper = Message::parse(&bytes).expect("built");
        let mut stream = wrapper.record_stream(inner.len()).expect("a wrapper");
        for (at, piece) in pieces.iter().enumerate() {
            let record = stream.next_record().expect("as many").expect("well formed");
            let timestamp = if magic == 1 { 7 } else { -1 };
            assert_eq!((record.offset.get(), record.timestamp.get()), (offset(at), timestamp));
            assert_eq!((record.key, record.value), (None, Some(*piece)));
        }
        assert!(stream.next_record().is_none());
        let limit = inner.len() - 1;
        let error = wrapper.record_stream(limit).err();
        assert!(error.is_some(), "{} bytes do not fit into {limit}", inner.len());
    }
}
