//! Message sets of magic 0 and 1, made wrong on purpose.

use weir_format::{
    AnyBatch, AnyBatchReader, Codec, CodecError, Message, MessageError, MessageSetReader, TimestampMs,
    TimestampType, crc, message_size,
};

use crate::support::testdata;

/// One message; `attributes` and `value` are as given, so it may be a wrapper.
fn message(
    magic: i8,
    attributes: u8,
    offset: i64,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Vec<u8> {
    let mut covered = vec![magic.to_be_bytes()[0], attributes];
    if magic > 0 {
        covered.extend_from_slice(&timestamp.to_be_bytes());
    }
    for bytes in [key, value] {
        let length = bytes.map_or(-1, |bytes| i32::try_from(bytes.len()).expect("small"));
        covered.extend_from_slice(&length.to_be_bytes());
        covered.extend_from_slice(bytes.unwrap_or_default());
    }
    let length = i32::try_from(covered.len() + 4).expect("small");
    [&offset.to_be_bytes()[..], &length.to_be_bytes(), &crc::crc32(&covered).to_be_bytes(), &covered].concat()
}

/// These bytes as bare snappy: one literal.
fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut compressed = Vec::new();
    let mut size = bytes.len();
    while size > 0x7f {
        compressed.push(0x80 | u8::try_from(size & 0x7f).expect("seven bits"));
        size >>= 7;
    }
    compressed.push(u8::try_from(size).expect("seven bits"));
    let last = u16::try_from(bytes.len() - 1).expect("small");
    compressed.push(61 << 2);
    compressed.extend_from_slice(&last.to_le_bytes());
    compressed.extend_from_slice(bytes);
    compressed
}

fn wrapper(magic: i8, attributes: u8, offset: i64, timestamp: i64, inner: &[Vec<u8>]) -> Vec<u8> {
    message(magic, attributes | 2, offset, timestamp, None, Some(&snappy(&inner.concat())))
}

fn inner(magic: i8, offset: i64) -> Vec<u8> {
    message(magic, 0, offset, 100 + offset, Some(b"k"), Some(b"v"))
}

/// Offset and timestamp of every record.
fn records(bytes: &[u8]) -> Result<Vec<(i64, i64)>, MessageError> {
    let message = Message::parse(bytes)?;
    let mut stream = message.record_stream(1 << 15)?;
    let mut found = Vec::new();
    while let Some(record) = stream.next_record() {
        let record = record?;
        found.push((record.offset.get(), record.timestamp.get()));
    }
    assert!(stream.next_record().is_none());
    Ok(found)
}

#[test]
fn offsets_in_a_wrapper_of_magic_1_count_back_from_the_wrappers() {
    let consecutive: Vec<_> = (0..3).map(|offset| inner(1, offset)).collect();
    assert_eq!(records(&wrapper(1, 0, 22, 102, &consecutive)), Ok(vec![(20, 100), (21, 101), (22, 102)]));
    // Compaction leaves gaps, and the base follows from the last.
    let gaps = [inner(1, 1), inner(1, 7)];
    assert_eq!(records(&wrapper(1, 0, 27, 107, &gaps)), Ok(vec![(21, 101), (27, 107)]));
    // Some versions of librdkafka left the wrapper's offset at 0.
    assert_eq!(records(&wrapper(1, 0, 0, 102, &consecutive)), Ok(vec![(0, 100), (1, 101), (2, 102)]));
    let error = MessageError::InvalidWrapperOffset { offset: 1, last: 2 };
    assert_eq!(records(&wrapper(1, 0, 1, 102, &consecutive)), Err(error));
}

#[test]
fn offsets_in_a_wrapper_of_magic_0_are_what_they_say() {
    // N-GAP-6: brokers before 0.10 kept what the producer sent in some of them, so they are not checked against
    // each other.
    let set = [inner(0, 5), inner(0, 9), inner(0, 9)];
    assert_eq!(records(&wrapper(0, 0, 9, 0, &set)), Ok(vec![(5, -1), (9, -1), (9, -1)]));
}

#[test]
fn log_append_time_of_a_wrapper_is_every_messages() {
    let set = [inner(1, 0), inner(1, 1)];
    let bytes = wrapper(1, 0x08, 1, 777, &set);
    let message = Message::parse(&bytes).expect("a message");
    assert_eq!(message.timestamp_type(), Some(TimestampType::LogAppendTime));
    assert_eq!(records(&bytes), Ok(vec![(0, 777), (1, 777)]));
    assert_eq!(records(&wrapper(1, 0, 1, 777, &set)), Ok(vec![(0, 100), (1, 101)]));
}

/// What Kafka 4.4.0's reader yields for each, asked of it by hand; a check of the inner magic that came later refused old
/// data, and was only ever one of brokers (N-GAP-6).
#[test]
fn messages_in_a_wrapper_may_be_of_the_other_magic_and_in_any_order() {
    let (zero, one) = (|offset| inner(0, offset), |offset| inner(1, offset));
    assert_eq!(records(&wrapper(1, 0, 22, 777, &[zero(0), zero(1)])), Ok(vec![(21, -1), (22, -1)]));
    assert_eq!(records(&wrapper(1, 8, 22, 777, &[one(0), zero(1)])), Ok(vec![(21, 777), (22, -1)]));
    assert_eq!(records(&wrapper(1, 0, 22, 777, &[one(0), zero(1)])), Ok(vec![(21, 100), (22, -1)]));
    assert_eq!(records(&wrapper(0, 0, 1, 0, &[one(0), one(1)])), Ok(vec![(0, 100), (1, 101)]));
    assert_eq!(records(&wrapper(0, 8, 1, 777, &[zero(0), zero(1)])), Ok(vec![(0, -1), (1, -1)]));
    let down = [one(2), one(1), one(0)];
    assert_eq!(records(&wrapper(1, 0, 22, 777, &down)), Ok(vec![(24, 102), (23, 101), (22, 100)]));
}

#[test]
fn a_wrapper_that_cannot_be_one_says_why() {
    let one = inner(1, 0);
    let nested = wrapper(1, 0, 0, 1, std::slice::from_ref(&one));
    let mut spoilt = one.clone();
    *spoilt.last_mut().expect("bytes") ^= 1;
    for (what, bytes, want) in [
        ("no value", message(1, 2, 5, 1, None, None), MessageError::NullWrapper),
        ("empty", message(1, 2, 5, 1, None, Some(&[])), MessageError::EmptyWrapper),
        (
            "a wrapper in it",
            wrapper(1, 0, 5, 1, &[nested]),
            MessageError::NestedWrapper { codec: Codec::Snappy },
        ),
        (
            "a batch in it",
            wrapper(1, 0, 50, 1, &[testdata("batches/v2-none.bin")]),
            MessageError::NotAMessage { magic: 2 },
        ),
        ("zstd", message(1, 4, 5, 1, None, Some(b"x")), MessageError::InvalidCodec { codec: Codec::Zstd }),
        (
            "codec 5",
            message(1, 5, 5, 1, None, Some(b"x")),
            MessageError::Codec(CodecError::Unknown { id: 5 }),
        ),
        (
            "a cut message",
            wrapper(1, 0, 5, 1, &[one.clone(), one[..20].to_vec()]),
            MessageError::Truncated { need: 36, have: 20 },
        ),
        (
            "a cut length",
            wrapper(1, 0, 5, 1, &[one.clone(), one[..7].to_vec()]),
            MessageError::Truncated { need: 12, have: 7 },
        ),
    ] {
        assert_eq!(records(&bytes), Err(want), "{what}");
    }
    assert!(matches!(records(&wrapper(1, 0, 5, 1, &[spoilt])), Err(MessageError::CrcMismatch { .. })));
    let too_much = wrapper(1, 0, 5, 1, &vec![one; 1000]);
    let error = CodecError::LimitExceeded { limit: 1 << 15 };
    assert_eq!(records(&too_much), Err(MessageError::Codec(error)));
}

#[test]
fn a_message_that_cannot_be_one_says_why() {
    let good = inner(1, 7);
    assert_eq!(message_size(&good[..16]), Ok(None));
    assert_eq!(message_size(&good), Ok(Some(good.len())));
    for size in 0..good.len() {
        let error = Message::parse(&good[..size]).expect_err("cut");
        assert!(matches!(error, MessageError::Truncated { have, need } if have == size && need > size));
    }
    for bit in 8 * 8..good.len() * 8 {
        let mut flipped = good.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Message::parse(&flipped).is_err(), "bit {bit}");
    }
    assert_eq!(records(&message(1, 0, -1, 1, None, None)), Err(MessageError::InvalidOffset { offset: -1 }));
    assert_eq!(
        records(&message(0, 0, i64::MAX, 1, None, None)),
        Err(MessageError::InvalidOffset { offset: i64::MAX })
    );
    let batch = testdata("batches/v2-none.bin");
    assert_eq!(Message::parse(&batch).err(), Some(MessageError::NotAMessage { magic: 2 }));
}

#[test]
fn lengths_within_a_message_are_checked_and_null_is_not_empty() {
    let spoil = |key_length: i32, value_length: i32, rest: &[u8]| {
        let mut bytes = message(0, 0, 1, 0, None, None);
        bytes.truncate(18);
        bytes.extend_from_slice(&key_length.to_be_bytes());
        bytes.extend_from_slice(&value_length.to_be_bytes());
        bytes.extend_from_slice(rest);
        let length = i32::try_from(bytes.len() - 12).expect("small");
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = crc::crc32(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_be_bytes());
        bytes
    };
    let parts = |bytes: &[u8]| {
        Message::parse(bytes).map(|m| (m.key().map(<[u8]>::to_vec), m.value().map(<[u8]>::to_vec)))
    };
    assert_eq!(parts(&spoil(-1, 2, b"ab")), Ok((None, Some(b"ab".to_vec()))));
    assert_eq!(parts(&spoil(0, 0, b"")), Ok((Some(Vec::new()), Some(Vec::new()))));
    assert_eq!(parts(&spoil(-2, i32::MIN, b"")), Ok((None, None)), "Kafka: any negative length is null");
    assert_eq!(
        parts(&spoil(-1, 3, b"ab")),
        Err(MessageError::UnexpectedEnd { position: 26, need: 3, have: 2 })
    );
    assert_eq!(
        parts(&spoil(-1, i32::MAX, b"ab")),
        Err(MessageError::UnexpectedEnd { position: 26, need: 2_147_483_647, have: 2 })
    );
    assert_eq!(parts(&spoil(-1, 1, b"ab")), Err(MessageError::UnreadBytes { size: 1 }));
}

#[test]
fn a_log_of_all_three_magics_is_read_in_its_order() {
    let log = [inner(0, 0), inner(1, 1), testdata("batches/v2-none.bin"), inner(1, 50)].concat();
    let mut reader = AnyBatchReader::new(&log);
    let offsets: Vec<_> = reader.by_ref().map(|any| any.expect("valid").last_offset().get()).collect();
    assert_eq!((offsets, reader.position()), (vec![0, 1, 44, 50], log.len()));
    let mut messages = MessageSetReader::new(&log);
    assert_eq!(messages.by_ref().filter(Result::is_ok).count(), 2, "it stops where the batch is");
    assert_eq!(messages.position(), inner(0, 0).len() + inner(1, 1).len());
    let AnyBatch::Message(message) = AnyBatch::parse(&log).expect("valid") else { panic!("magic 0") };
    assert_eq!((message.timestamp_type(), message.timestamp()), (None, TimestampMs::NONE));
    assert!(AnyBatchReader::new(&[0; 4096]).next().is_some_and(|any| any.is_err()));
}
