//! Batches that broke other libraries, or would: each a short table.

use weir_format::{
    BatchBuilder, BatchError, BatchReader, Codec, ControlRecordType, LeaderEpoch, Offset, ProducerEpoch,
    ProducerId, Record, RecordBatch, RecordError, Sequence, TimestampMs, TimestampType, frame_size,
    header_of, set_base_offset, set_leader_epoch, set_log_append_time,
};

use crate::support::{raw_batch, seal, testdata};

fn walk<'a>(batch: &RecordBatch<'a>) -> Result<Vec<Record<'a>>, RecordError> {
    batch.records()?.collect()
}

fn first<'a>(batch: &RecordBatch<'a>) -> Record<'a> {
    walk(batch).expect("well formed")[0]
}

#[test]
fn headers_keep_their_order_and_their_double_keys() {
    let headers: &[(&[u8], Option<&[u8]>)] =
        &[(b"k", Some(b"1")), (b"k", None), (b"", Some(b"")), (b"k", Some(b"1"))];
    let bytes = BatchBuilder::new()
        .record_with_headers(TimestampMs::new(1), None, None, headers)
        .build()
        .expect("a batch");
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    let found: Vec<_> = first(&batch).headers().map(|header| (header.key, header.value)).collect();
    assert_eq!(found, headers);
}

#[test]
fn a_header_key_need_not_be_utf8() {
    let headers: &[(&[u8], Option<&[u8]>)] = &[(&[0xff, 0xfe], Some(&[0x80]))];
    let bytes = BatchBuilder::new()
        .record_with_headers(TimestampMs::new(1), None, None, headers)
        .build()
        .expect("a batch");
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!(first(&batch).headers().next().map(|header| header.key), Some(&[0xff, 0xfe][..]));
}

#[test]
fn a_timestamp_delta_may_be_forty_days_or_wrap() {
    // Forty days in milliseconds do not fit into 32 bits.
    let day = 86_400_000_i64;
    for timestamps in [
        vec![0, 40 * day],
        vec![1_767_225_600_000, 1_767_225_600_000 - 400 * day],
        vec![-i64::MAX, i64::MAX, 0, -1, i64::MIN],
    ] {
        let mut builder = BatchBuilder::new();
        for &timestamp in &timestamps {
            builder = builder.record(TimestampMs::new(timestamp), None, None);
        }
        let bytes = builder.build().expect("a batch");
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        let found: Vec<_> =
            walk(&batch).expect("well formed").iter().map(|record| record.timestamp.get()).collect();
        assert_eq!(found, timestamps);
        assert_eq!(Some(batch.max_timestamp().get()), timestamps.iter().max().copied());
    }
}

#[test]
fn a_count_of_two_thousand_million_without_data_is_an_error_at_once() {
    let bytes = raw_batch(0, i32::MAX, 2_000_000_000, &[]);
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    let mut records = batch.records().expect("not compressed");
    let (least, most) = records.size_hint();
    assert_eq!((least, most), (0, Some(1)), "nothing may be allocated by the count");
    let error = RecordError::MissingRecords { record_count: 2_000_000_000, found: 0 };
    assert_eq!(records.next(), Some(Err(error)));
    assert_eq!(records.next(), None);
}

#[test]
fn a_header_count_of_two_thousand_million_without_data_is_an_error_at_once() {
    // Length 10, attributes, timestamp delta, offset delta, key −1, value −1, and the count.
    let record = [0x14, 0, 0, 0, 0x01, 0x01, 0x80, 0xa8, 0xd6, 0xb9, 0x07];
    let bytes = raw_batch(0, 0, 1, &record);
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!(walk(&batch), Err(RecordError::UnexpectedEnd { position: 72, need: 1, have: 0 }));
}

#[test]
fn null_and_empty_differ() {
    let bytes = BatchBuilder::new()
        .record(TimestampMs::new(1), None, Some(b""))
        .record(TimestampMs::new(1), Some(b""), None)
        .build()
        .expect("a batch");
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    let found: Vec<_> =
        walk(&batch).expect("well formed").iter().map(|record| (record.key, record.value)).collect();
    assert_eq!(found, [(None, Some(&[][..])), (Some(&[][..]), None)]);
}

#[test]
fn the_sequence_wraps_within_a_batch() {
    // PID-12: 2^31−2 and three records end at 0; 2^31−3 and five records end at 1.
    for (base, records, last) in
        [(i32::MAX - 1, 3, 0), (i32::MAX - 2, 5, 1), (0, 1, 0), (i32::MAX, 1, i32::MAX)]
    {
        let mut builder =
            BatchBuilder::new().producer(ProducerId::ZERO, ProducerEpoch::ZERO, Sequence::new(base));
        for _ in 0..records {
            builder = builder.record(TimestampMs::new(1), None, None);
        }
        let bytes = builder.build().expect("a batch");
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert_eq!(batch.last_sequence(), Sequence::new(last), "{base} and {records} records");
    }
}

#[test]
fn a_producer_id_below_minus_one_is_kept_and_is_no_producer() {
    // PID-6.
    let bytes = testdata("batches/pid-minus7.bin");
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!((batch.producer_id(), batch.raw_producer_id()), (None, -7));
    assert_eq!(batch.bytes(), bytes);
}

#[test]
fn b9_a_control_batch_of_unknown_type_or_version_is_named_and_harmless() {
    for (version, id, want) in [
        (0_i16, 99_i16, Some(ControlRecordType::Unknown(99))),
        (0, -1, Some(ControlRecordType::Unknown(-1))),
        (31_000, 7, Some(ControlRecordType::MirrorPidReset)),
        (31_000, 1, Some(ControlRecordType::Commit)),
        (-1, 7, None),
        (i16::MIN, 0, None),
    ] {
        let key = [version.to_be_bytes(), id.to_be_bytes()].concat();
        let bytes = BatchBuilder::new()
            .control()
            .record(TimestampMs::new(1), Some(&key), None)
            .build()
            .expect("a batch");
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert_eq!(batch.control_type(), want, "version {version}, type {id}");
        assert_eq!(batch.is_barrier(), want == Some(ControlRecordType::MirrorPidReset));
    }
    for id in [i16::MIN, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, i16::MAX] {
        assert_eq!(ControlRecordType::from_id(id).id(), id);
    }
}

#[test]
fn b9_a_control_batch_with_a_codec_is_named_and_not_looked_into() {
    let plain = testdata("batches/barrier-3byte.bin");
    for codec in 1..=7 {
        let mut bytes = plain.clone();
        bytes[22] |= codec;
        let bytes = seal(bytes);
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert!(batch.is_compressed_control() && batch.is_control());
        assert!(!batch.is_barrier());
        assert_eq!((batch.control_type(), batch.end_transaction_marker()), (None, None));
        assert_eq!(batch.records().err(), Some(RecordError::Compressed { codec: batch.codec() }));
    }
    assert!(!RecordBatch::parse(&plain).expect("a batch").is_compressed_control());
}

#[test]
fn b9_a_record_that_breaks_behind_its_key_is_still_a_barrier() {
    let key = [0x08, 0, 0, 0, 7];
    let cases: [(&str, Vec<u8>); 5] = [
        ("value length beyond the record", [&[0x12, 0, 0, 0][..], &key, &[0x7e]].concat()),
        ("value length −2", [&[0x12, 0, 0, 0][..], &key, &[0x03]].concat()),
        ("record length beyond the batch", [&[0x7e, 0, 0, 0][..], &key, &[0x06, 0, 0, 0, 0]].concat()),
        ("the batch ends behind the key", [&[0x10, 0, 0, 0][..], &key].concat()),
        ("bytes behind the record", [&[0x1a, 0, 0, 0][..], &key, &[0x06, 0, 0, 0, 0, 9, 9]].concat()),
    ];
    for (name, record) in cases {
        let bytes = raw_batch(0x20, 0, 1, &record);
        assert!(RecordBatch::parse(&bytes).expect("a batch").is_barrier(), "{name}");
        assert!(
            weir_format::MirrorPidReset::describe(&RecordBatch::parse(&bytes).expect("a batch")).is_some()
        );
    }
}

#[test]
fn b9_a_key_that_is_not_within_its_record_is_no_key() {
    for (name, record) in [
        ("record length ends within the key", &[0x0e, 0, 0, 0, 0x08, 0, 0, 0, 7, 0x01, 0][..]),
        ("batch ends within the key", &[0x1a, 0, 0, 0, 0x08, 0, 0, 0]),
        ("negative record length", &[0x01, 0, 0, 0, 0x08, 0, 0, 0, 7, 0x01, 0]),
        ("negative key length", &[0x14, 0, 0, 0, 0x03, 0, 0, 0, 7, 0x01, 0]),
        ("no byte at all", &[]),
    ] {
        let bytes = raw_batch(0x20, 0, 1, record);
        assert_eq!(RecordBatch::parse(&bytes).expect("a batch").control_type(), None, "{name}");
    }
}

#[test]
fn a_batch_that_compaction_emptied_keeps_its_header() {
    // GAP-3 and GAP-5.
    let bytes = testdata("batches/v2-empty.bin");
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!((batch.record_count(), batch.last_offset_delta()), (0, 9));
    assert_eq!((batch.next_offset().get(), batch.last_sequence()), (50, Sequence::new(23)));
    assert_eq!(walk(&batch), Ok(Vec::new()));
}

#[test]
fn the_delete_horizon_is_the_base_timestamp_and_the_records_keep_theirs() {
    let bytes = testdata("batches/v2-delete-horizon.bin");
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!(batch.delete_horizon(), Some(batch.base_timestamp()));
    assert_eq!(first(&batch).timestamp.get(), 1_767_225_600_000);
    assert!(batch.base_timestamp() > batch.max_timestamp());
}

#[test]
fn log_append_time_is_every_records_timestamp() {
    let mut bytes = BatchBuilder::new()
        .record(TimestampMs::new(5), None, Some(b"a"))
        .record(TimestampMs::new(6), None, Some(b"b"))
        .build()
        .expect("a batch");
    let tail = bytes.len();
    bytes.extend_from_slice(b"next batch");
    set_log_append_time(&mut bytes, TimestampMs::new(99)).expect("a batch");
    assert_eq!(&bytes[tail..], b"next batch");
    let batch = RecordBatch::parse(&bytes).expect("the CRC is right again");
    assert_eq!(batch.timestamp_type(), TimestampType::LogAppendTime);
    assert_eq!((batch.max_timestamp().get(), batch.base_timestamp().get()), (99, 5));
    assert!(walk(&batch).expect("well formed").iter().all(|record| record.timestamp.get() == 99));
}

#[test]
fn a_largest_timestamp_that_was_set_stays_whatever_the_records_say() {
    let at = TimestampMs::new;
    let before = BatchBuilder::new().max_timestamp(at(5)).record(at(9), None, None);
    let behind = BatchBuilder::new().record(at(9), None, None).max_timestamp(at(5));
    for builder in [before, behind] {
        let bytes = builder.build().expect("a batch");
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert_eq!((batch.max_timestamp(), first(&batch).timestamp), (at(5), at(9)));
    }
}

#[test]
fn a_batch_written_again_without_some_records_keeps_the_rest_of_its_header() {
    let bytes = testdata("batches/v2-transactional.bin");
    let mut odd = bytes.clone();
    odd[21] = 0xff; // Bits without a meaning.
    odd[12..16].copy_from_slice(&(-7_i32).to_be_bytes());
    odd[43..51].copy_from_slice(&(-7_i64).to_be_bytes());
    for bytes in [bytes, seal(odd)] {
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        let records = walk(&batch).expect("well formed");
        assert!(records.len() > 1);
        let again = BatchBuilder::like(&batch).copied(&records[1]).build().expect("a batch");
        assert_eq!((&again[..8], &again[12..17]), (&bytes[..8], &bytes[12..17]));
        assert_eq!((&again[21..57], &again[57..61]), (&bytes[21..57], &[0, 0, 0, 1][..]));
        let again = RecordBatch::parse(&again).expect("a batch");
        assert_eq!(walk(&again), Ok(vec![records[1]]));
        // The offset of a record that was passed is not to be had any more.
        let back = BatchBuilder::like(&batch).copied(&records[1]).copied(&records[0]).build();
        assert_eq!(back.err(), Some(weir_format::BuildError::OffsetDelta { delta: 0 }));
    }
}

#[test]
fn attribute_bits_without_a_meaning_are_kept() {
    let bytes = testdata("batches/attributes-unused-bits.bin");
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!(batch.attributes().cast_unsigned() & 0xff80, 0xff80);
    assert!(!batch.is_control() && !batch.is_transactional());
    assert_eq!((batch.codec(), batch.delete_horizon()), (Codec::None, None));
    assert_eq!(batch.bytes(), bytes);
}

#[test]
fn bytes_behind_a_record_within_its_length_are_an_error() {
    // The fields take 6 bytes.
    for size in [1, 2, 50] {
        let record = [&[0, 0, 0, 0x01, 0x01, 0][..], &vec![9; size]].concat();
        let length = u8::try_from(2 * record.len()).expect("small");
        let bytes = raw_batch(0, 0, 1, &[&[length][..], &record].concat());
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert_eq!(walk(&batch), Err(RecordError::UnreadBytes { position: 61, size }));
    }
}

#[test]
fn a_record_outside_of_its_batch_is_an_error() {
    for delta in [0x01, 0x02, 0x0a] {
        let bytes = raw_batch(0, 0, 1, &[0x0c, 0, 0, delta, 0x01, 0x01, 0]);
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert!(matches!(walk(&batch), Err(RecordError::OffsetOutsideBatch { .. })), "{delta}");
    }
}

#[test]
fn base_offset_and_leader_epoch_are_patched_outside_of_the_crc() {
    let mut bytes = testdata("batches/v2-none-as-built.bin");
    let before = bytes.clone();
    set_base_offset(&mut bytes, Offset::new(1 << 40).expect("not negative")).expect("a batch");
    set_leader_epoch(&mut bytes, LeaderEpoch::new(77).expect("not negative")).expect("a batch");
    let batch = RecordBatch::parse(&bytes).expect("the CRC is still right");
    assert_eq!((batch.base_offset().get(), batch.leader_epoch()), (1 << 40, LeaderEpoch::new(77)));
    let changed: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != before[at]).collect();
    assert!(changed.iter().all(|&at| at < 8 || (12..16).contains(&at)), "{changed:?}");
}

#[test]
fn a_refused_patch_changes_nothing() {
    let good = testdata("batches/v2-none.bin");
    let mut bytes = good.clone();
    let error = set_base_offset(&mut bytes, Offset::MAX).err();
    assert_eq!(error, Some(BatchError::OffsetOverflow { base_offset: i64::MAX, last_offset_delta: 2 }));
    assert_eq!(bytes, good);
    let mut short = good[..60].to_vec();
    assert!(set_base_offset(&mut short, Offset::ZERO).is_err());
    assert!(set_leader_epoch(&mut short, LeaderEpoch::ZERO).is_err());
    assert!(set_log_append_time(&mut short, TimestampMs::new(1)).is_err());
    assert_eq!(short, good[..60]);
}

#[test]
fn a_frame_needs_seventeen_bytes_and_a_header_sixty_one() {
    let bytes = testdata("batches/v2-none.bin");
    for have in 0..=bytes.len() {
        let cut = &bytes[..have];
        assert_eq!(frame_size(cut), Ok((have >= 17).then_some(bytes.len())), "{have} bytes");
        match header_of(cut) {
            Ok(header) => assert!(have >= 61 && header.size() == bytes.len(), "{have} bytes"),
            Err(error) => {
                assert!(have < 61 && error == BatchError::Truncated { need: 61, have }, "{have}: {error}")
            }
        }
        let need = if have < 17 { 61 } else { bytes.len() };
        let want = (have < bytes.len()).then_some(BatchError::Truncated { need, have });
        assert_eq!(RecordBatch::parse(cut).err(), want, "{have} bytes");
    }
}

#[test]
fn the_reader_ends_at_a_clean_end_and_stays_at_the_first_error() {
    let two = testdata("batches/two-batches.bin");
    let mut reader = BatchReader::new(&two);
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2);
    assert_eq!(reader.position(), two.len());

    let mut reader = BatchReader::new(&two[..two.len() - 1]);
    assert!(reader.next().is_some_and(|batch| batch.is_ok()));
    assert_eq!(reader.next().and_then(Result::err), Some(BatchError::Truncated { need: 136, have: 135 }));
    assert!(reader.next().is_none());
    assert_eq!(reader.position(), 136);
    assert!(BatchReader::new(&[]).next().is_none());
}

#[test]
fn the_builder_refuses_what_no_reader_would_take() {
    use weir_format::BuildError;
    let now = TimestampMs::new(1);
    let at =
        |delta| BatchBuilder::new().record_at(3, now, None, None, &[]).record_at(delta, now, None, None, &[]);
    assert_eq!(at(3).build().err(), Some(BuildError::OffsetDelta { delta: 3 }));
    assert_eq!(at(-1).build().err(), Some(BuildError::OffsetDelta { delta: -1 }));
    assert_eq!(at(1 << 31).build().err(), Some(BuildError::OffsetDelta { delta: 1 << 31 }));
    assert_eq!(at(4).last_offset_delta(3).build().err(), Some(BuildError::OffsetDelta { delta: 3 }));
    assert_eq!(
        BatchBuilder::new().last_offset_delta(-1).build().err(),
        Some(BuildError::OffsetDelta { delta: -1 })
    );
    // The first of several mistakes is the one that is told.
    let two = at(-1).base_timestamp(now).record_at(-7, now, None, None, &[]);
    assert_eq!(two.build().err(), Some(BuildError::OffsetDelta { delta: -1 }));
    let late = BatchBuilder::new().record(now, None, None).base_timestamp(now);
    assert_eq!(late.build().err(), Some(BuildError::LateBaseTimestamp));
    let overflow = BatchBuilder::new().base_offset(Offset::MAX).record(now, None, None);
    let error = BuildError::OffsetOverflow { base_offset: i64::MAX, last_offset_delta: 0 };
    assert_eq!(overflow.build().err(), Some(error));
}

#[test]
fn where_kafka_reads_a_record_that_is_refused_here_there_is_a_reason() {
    let null = "null is written as -1; no writer writes less, and what it meant would be a guess";
    let outside = "its offset would be another batch's, and be met twice or never";
    for (what, reason, record) in [
        ("key length -2", null, &[0, 0, 0, 0x03, 0x02, b'v', 0][..]),
        ("value length -2", null, &[0, 0, 0, 0x02, b'k', 0x03, 0]),
        ("header value length -2", null, &[0, 0, 0, 0x01, 0x01, 0x02, 0x02, b'h', 0x03]),
        ("an offset delta below 0", outside, &[0, 0, 0x01, 0x01, 0x01, 0]),
        ("an offset delta above the last", outside, &[0, 0, 0x12, 0x01, 0x01, 0]),
    ] {
        let length = u8::try_from(2 * record.len()).expect("small");
        let bytes = raw_batch(0, 0, 1, &[&[length][..], record].concat());
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        assert!(walk(&batch).is_err(), "{what}: {reason}");
    }
}

#[test]
fn varints_are_read_as_kafka_reads_them_longer_than_needed_and_beyond_their_width() {
    // Both yield a key of one byte and a value of one byte for Kafka; the second drops the bits that do not fit.
    for key_length in [[0x82, 0x80, 0x80, 0x80, 0x00], [0x82, 0x80, 0x80, 0x80, 0x70]] {
        let record = [&[0, 0x80, 0x80, 0x00, 0x80, 0x00][..], &key_length, b"k", &[0x02, b'v', 0]].concat();
        let length = u8::try_from(2 * record.len()).expect("small");
        let bytes = raw_batch(0, 0, 1, &[&[length][..], &record].concat());
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        let record = first(&batch);
        assert_eq!(
            (record.key, record.value, record.timestamp.get()),
            (Some(&b"k"[..]), Some(&b"v"[..]), 1_000)
        );
    }
    // Ten bytes of a timestamp delta, of which the last says more than one bit.
    let record = [&[0][..], &[0x80; 9], &[0x7f, 0, 0x02, b'k', 0x02, b'v', 0]].concat();
    let length = u8::try_from(2 * record.len()).expect("small");
    let bytes = raw_batch(0, 0, 1, &[&[length][..], &record].concat());
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!(first(&batch).timestamp.get(), 4_611_686_018_427_388_904);
}
