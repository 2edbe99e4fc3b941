//! What a client's batch must be like before it may enter a log, compressed or not.

use std::io::Write as _;

use bytes::BytesMut;
use weir_format::{
    BatchBuilder, ProducerEpoch, ProducerId, RecordBatch, Sequence, TimestampMs, TimestampType, crc,
};
use weir_log::{AppendError, AppendParams, InvalidRecord, LogConfig, check_client_batch};

use super::support::*;

/// As a client's codec makes it of a batch without one: gzip.
fn gzip(batch: &BytesMut) -> BytesMut {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(&batch[61..]).unwrap();
    let records = encoder.finish().unwrap();
    let mut bytes = BytesMut::from(&batch[..61]);
    bytes.extend_from_slice(&records);
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[22] |= 1;
    sealed(bytes)
}

fn sealed(mut bytes: BytesMut) -> BytesMut {
    let crc = crc::batch_crc(&bytes);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Both as it is and compressed.
fn both(batch: &BytesMut) -> [BytesMut; 2] {
    [batch.clone(), gzip(batch)]
}

fn at(timestamps: &[i64]) -> BytesMut {
    let record =
        |builder: BatchBuilder, time: &i64| builder.record(TimestampMs::new(*time), Some(b"k"), Some(b"v"));
    timestamps.iter().fold(BatchBuilder::new(), record).build().unwrap()
}

fn check(batch: &BytesMut, config: &LogConfig) -> Result<BytesMut, AppendError> {
    let mut bytes = batch.clone();
    check_client_batch(&mut bytes, config, NOW).map(|()| bytes)
}

fn invalid(batch: &BytesMut, config: &LogConfig) -> InvalidRecord {
    match check(batch, config) {
        Err(AppendError::InvalidRecord { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn timestamps_too_far_from_the_clock_are_refused_and_their_record_is_named() {
    let now = NOW.get();
    let config = LogConfig {
        message_timestamp_before_max_ms: 1_000,
        message_timestamp_after_max_ms: 500,
        ..LogConfig::default()
    };
    for batch in both(&at(&[now - 1_000, now + 500, -1])) {
        // At the limits, and a record without a timestamp, which is none that is wrong.
        assert!(check(&batch, &config).is_ok());
    }
    for (wrong, index) in [(vec![now, now - 1_001], 1), (vec![now + 501, now], 0)] {
        for batch in both(&at(&wrong)) {
            let error = check(&batch, &config).unwrap_err();
            assert_eq!(error.record_index(), Some(index));
            let AppendError::InvalidTimestamp { timestamp, earliest, latest, .. } = error else {
                panic!("{error}")
            };
            assert_eq!(timestamp.get(), wrong[usize::try_from(index).unwrap()]);
            assert_eq!((earliest.get(), latest.get()), (now - 1_000, now + 500));
        }
    }
    // Kafka's defaults: any past, an hour ahead.
    assert!(check(&at(&[0, now + 3_600_000]), &LogConfig::default()).is_ok());
    assert!(check(&at(&[now + 3_600_001]), &LogConfig::default()).is_err());
    // Nobody looks at what the broker replaces.
    let append_time = LogConfig { message_timestamp_type: TimestampType::LogAppendTime, ..config };
    assert!(check(&at(&[now + 9_999_999]), &append_time).is_ok());
}

#[test]
fn a_client_may_not_say_that_its_timestamps_are_the_brokers() {
    let batch = BatchBuilder::new().record(NOW, None, None).log_append_time(NOW).build().unwrap();
    for kind in [TimestampType::CreateTime, TimestampType::LogAppendTime] {
        let config = LogConfig { message_timestamp_type: kind, ..LogConfig::default() };
        assert!(matches!(check(&batch, &config), Err(AppendError::LogAppendTimeFromClient)));
    }
}

/// Kafka does the same: its time index, and ours, believe the header.
#[test]
fn a_largest_timestamp_that_its_records_do_not_have_is_put_right() {
    for wrong in [0, NOW.get() + 77, i64::MAX, -1] {
        for batch in both(&at(&[NOW.get() - 5, NOW.get() - 3, NOW.get() - 9])) {
            let mut lying = batch.clone();
            lying[35..43].copy_from_slice(&wrong.to_be_bytes());
            let taken = check(&sealed(lying), &LogConfig::default()).unwrap();
            assert_eq!(taken, batch, "with the CRC of what is right");
        }
    }
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    let mut lying = at(&[NOW.get() - 5]);
    lying[35..43].copy_from_slice(&i64::MAX.to_be_bytes());
    open.produce(sealed(lying));
    open.sync();
    let read = open.read(0, 1 << 20, weir_log::Isolation::Uncommitted);
    assert_eq!(RecordBatch::parse(&read.bytes).unwrap().max_timestamp().get(), NOW.get() - 5);
}

#[test]
fn a_compacted_topic_takes_no_record_without_a_key() {
    let config = LogConfig { compact: true, ..LogConfig::default() };
    let batch =
        BatchBuilder::new().record(NOW, Some(b""), None).record(NOW, None, Some(b"v")).build().unwrap();
    for batch in both(&batch) {
        assert_eq!(invalid(&batch, &config), InvalidRecord::NoKey { index: 1 });
        assert!(check(&batch, &LogConfig::default()).is_ok());
    }
    for batch in both(&at(&[NOW.get()])) {
        assert!(check(&batch, &config).is_ok());
    }
}

#[test]
fn records_count_up_from_0_and_are_as_many_as_the_header_says() {
    let config = LogConfig::default();
    let two = BatchBuilder::new().record(NOW, None, None).record(NOW, None, None).build().unwrap();
    let skipped = BatchBuilder::new()
        .record(NOW, None, None)
        .record_at(2, NOW, None, None, &[])
        .last_offset_delta(2)
        .build()
        .unwrap();
    for batch in both(&skipped) {
        // Three are claimed and two there.
        assert!(check(&batch, &config).is_err());
    }
    // The second record's offset delta: behind a record of 7 bytes, and 3 of its own.
    let mut repeated = two.clone();
    assert_eq!((repeated[71], repeated.len()), (2, 75));
    repeated[71] = 0;
    let repeated = sealed(repeated);
    for batch in both(&repeated) {
        assert_eq!(invalid(&batch, &config), InvalidRecord::OffsetDelta { index: 1, delta: 0 });
    }
    for batch in both(&two) {
        let mut more = batch.clone();
        more[57..61].copy_from_slice(&3_i32.to_be_bytes());
        more[23..27].copy_from_slice(&2_i32.to_be_bytes());
        assert!(matches!(check(&sealed(more), &config), Err(AppendError::Records { .. })));
        let mut fewer = batch.clone();
        fewer[57..61].copy_from_slice(&1_i32.to_be_bytes());
        fewer[23..27].copy_from_slice(&0_i32.to_be_bytes());
        assert!(matches!(check(&sealed(fewer), &config), Err(AppendError::Records { .. })));
    }
}

/// A batch that nobody could inflate would stop every consumer behind it.
#[test]
fn what_cannot_be_inflated_or_is_too_much_then_is_refused() {
    let large = data(None, false, 40, 1_000);
    let compressed = gzip(&large);
    assert!(compressed.len() < large.len() / 5);
    assert!(check(&compressed, &LogConfig::default()).is_ok());
    let bounded = LogConfig { max_decompressed_message_bytes: large.len() / 2, ..LogConfig::default() };
    assert!(matches!(check(&compressed, &bounded), Err(AppendError::Records { .. })));
    let mut spoilt = compressed.clone();
    let middle = spoilt.len() / 2;
    spoilt[middle] ^= 0x10;
    assert!(matches!(check(&sealed(spoilt), &LogConfig::default()), Err(AppendError::Records { .. })));
    let mut other_codec = compressed;
    other_codec[22] = (other_codec[22] & !7) | 4;
    assert!(matches!(check(&sealed(other_codec), &LogConfig::default()), Err(AppendError::Records { .. })));
}

/// In the order of Kafka's checks: what is first said to be wrong.
#[test]
fn a_header_of_a_client_is_refused_by_name() {
    let config = LogConfig::default();
    let producer = ProducerId::new(5).unwrap();
    let no_sequence = BatchBuilder::new()
        .producer(producer, ProducerEpoch::ZERO, None)
        .record(NOW, None, None)
        .build()
        .unwrap();
    assert_eq!(invalid(&no_sequence, &config), InvalidRecord::NoSequence);
    let with_sequence = BatchBuilder::new()
        .producer(producer, ProducerEpoch::ZERO, Sequence::new(7))
        .record(NOW, None, None)
        .build()
        .unwrap();
    assert!(check(&with_sequence, &config).is_ok());
    let mut negative = with_sequence.clone();
    negative[43..51].copy_from_slice(&(-7_i64).to_be_bytes());
    // PID-6.
    assert_eq!(invalid(&sealed(negative), &config), InvalidRecord::NegativeProducerId { producer_id: -7 });
    assert_eq!(invalid(&barrier(), &config), InvalidRecord::ControlBatchFromClient);
    let mut codec = with_sequence.clone();
    codec[22] |= 6;
    assert_eq!(invalid(&sealed(codec), &config), InvalidRecord::UnknownCodec { codec: 6 });
    let small = LogConfig { max_message_bytes: with_sequence.len() - 1, ..LogConfig::default() };
    assert!(matches!(check(&with_sequence, &small), Err(AppendError::RecordTooLarge { .. })));
    let twice = BytesMut::from(&[&with_sequence[..], &with_sequence[..]].concat()[..]);
    assert!(matches!(check(&twice, &config), Err(AppendError::NotOneBatch { found: 2 })));
}

/// What was checked before is not looked at again, and what was not is.
#[test]
fn a_batch_is_looked_into_once() {
    let mut bench = Bench::new(1);
    bench.config.compact = true;
    let mut open = bench.open_unclean();
    let batch = gzip(&BatchBuilder::new().record(NOW, None, Some(b"v")).build().unwrap());
    let params = AppendParams::client(epoch(0), NOW);
    let refused = open.append(batch.clone(), &params);
    assert!(matches!(refused, Err(AppendError::InvalidRecord { .. })), "{refused:?}");
    assert_eq!(open.log.log_end_offset(), offset(0));
    open.append(batch, &AppendParams { records_checked: true, ..params }).unwrap();
    assert_eq!(open.log.log_end_offset(), offset(1));
}

#[test]
fn a_clients_batch_that_no_segment_has_room_for_is_refused_and_one_of_another_log_is_not() {
    let batch = at(&[1, 2]);
    let mut bench = Bench::new(1).segment_bytes(u32::try_from(batch.len()).unwrap());
    let mut open = bench.open_unclean();
    open.produce(batch.clone());
    open.close();
    bench = bench.segment_bytes(u32::try_from(batch.len()).unwrap() - 1);
    let mut open = bench.open_clean();
    let refused = open.append(batch.clone(), &AppendParams::client(epoch(0), NOW));
    let is_named = |size, max| size == batch.len() && max == batch.len() - 1;
    let Err(AppendError::RecordBatchTooLarge { size, max }) = refused else { panic!("{refused:?}") };
    assert!(is_named(size, max));
    // Of two limits the smaller one is said as Kafka says it: max.message.bytes comes first.
    let mut config = bench.config.clone();
    config.segment.segment_bytes += 1;
    config.max_message_bytes = batch.len();
    assert!(check(&batch, &config).is_ok(), "at both limits");
    let config = LogConfig { max_message_bytes: batch.len() - 2, ..bench.config.clone() };
    assert!(matches!(check(&batch, &config), Err(AppendError::RecordTooLarge { .. })));
    // Law M6, and a barrier is written whatever a segment has room for (law B11).
    open.replicate(placed(batch, 2, 0));
    open.log.close(&mut *open.io).unwrap();
    let mut open = bench.segment_bytes(14).open_clean();
    assert_eq!(open.coordinate(barrier()).base_offset, offset(4));
}
