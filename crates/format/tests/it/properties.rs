//! What must hold for any batch: properties over generated ones.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_format::{
    BatchBuilder, BatchError, BatchReader, MirrorPidReset, Offset, ProducerEpoch, ProducerId, RecordBatch,
    RecordError, Sequence, TimestampMs,
};

type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

#[derive(Debug, Clone)]
struct Meant {
    gap: u8,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Headers,
}

prop_compose! {
    fn record()(
        gap in prop_oneof![8 => Just(0_u8), 1 => any::<u8>()],
        timestamp in prop_oneof![4 => 0..4_000_000_000_000_i64, 1 => any::<i64>()],
        key in option::of(vec(any::<u8>(), 0..12)),
        value in option::of(vec(any::<u8>(), 0..200)),
        headers in vec((vec(any::<u8>(), 0..5), option::of(vec(any::<u8>(), 0..5))), 0..4),
    ) -> Meant {
        Meant { gap, timestamp, key, value, headers }
    }
}

prop_compose! {
    fn batch()(
        base_offset in 0..i64::MAX / 2,
        producer in option::of((0..=i64::MAX, 0..=i16::MAX, option::of(0..=i32::MAX))),
        records in vec(record(), 0..8),
        transactional: bool,
        control: bool,
    ) -> (Vec<u8>, Vec<Meant>) {
        let mut builder = BatchBuilder::new().base_offset(Offset::new(base_offset).expect("not negative"));
        if let Some((id, epoch, sequence)) = producer {
            let id = ProducerId::new(id).expect("not negative");
            let epoch = ProducerEpoch::new(epoch).expect("not negative");
            builder = builder.producer(id, epoch, sequence.and_then(Sequence::new));
        }
        if transactional {
            builder = builder.transactional();
        }
        if control {
            builder = builder.control();
        }
        let mut delta = 0;
        for meant in &records {
            delta += i64::from(meant.gap);
            let headers: Vec<(&[u8], Option<&[u8]>)> =
                meant.headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
            let timestamp = TimestampMs::new(meant.timestamp);
            builder = builder.record_at(delta, timestamp, meant.key.as_deref(), meant.value.as_deref(), &headers);
            delta += 1;
        }
        (builder.build().expect("a batch").to_vec(), records)
    }
}

proptest! {
    #[test]
    fn what_was_built_is_what_was_meant((bytes, meant) in batch()) {
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        prop_assert_eq!(batch.bytes(), &bytes[..]);
        let records: Result<Vec<_>, RecordError> = batch.records().expect("not compressed").collect();
        let records = records.expect("well formed");
        prop_assert_eq!(records.len(), meant.len());
        let mut next = batch.base_offset().get();
        for (record, meant) in records.iter().zip(&meant) {
            prop_assert_eq!(record.offset.get(), next + i64::from(meant.gap));
            next = record.offset.get() + 1;
            prop_assert_eq!(record.timestamp.get(), meant.timestamp);
            prop_assert_eq!(record.key, meant.key.as_deref());
            prop_assert_eq!(record.value, meant.value.as_deref());
            let headers: Headers =
                record.headers().map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec))).collect();
            prop_assert_eq!(&headers, &meant.headers);
        }
        let largest = meant.iter().map(|meant| meant.timestamp).max().unwrap_or(-1);
        prop_assert_eq!(batch.max_timestamp().get(), largest);
    }

    #[test]
    fn any_cut_is_an_error((bytes, _) in batch()) {
        for have in 0..bytes.len() {
            let error = RecordBatch::parse(&bytes[..have]).err();
            let truncated = matches!(error, Some(BatchError::Truncated { have: said, .. }) if said == have);
            prop_assert!(truncated, "{have} bytes: {error:?}");
        }
    }

    #[test]
    fn any_flip_in_the_crcs_range_is_an_error_and_any_other_changes_its_field_alone(
        (bytes, _) in batch(),
        at: prop::sample::Index,
        bit in 0..8_u8,
    ) {
        let at = at.index(bytes.len());
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << bit;
        let before = RecordBatch::parse(&bytes).expect("a batch");
        let after = RecordBatch::parse(&flipped);
        match at {
            17.. => prop_assert!(matches!(after, Err(BatchError::CrcMismatch { .. })), "{after:?}"),
            8..12 | 16 => prop_assert!(after.is_err(), "{after:?}"),
            12..16 => {
                let after = after.expect("a batch");
                prop_assert_ne!(format!("{after:?}"), format!("{before:?}"), "the epoch is another");
                prop_assert_eq!(after.base_offset(), before.base_offset());
                prop_assert_eq!(after.records().expect("not compressed").collect::<Vec<_>>(),
                    before.records().expect("not compressed").collect::<Vec<_>>());
            }
            _ => match after {
                Ok(after) => {
                    prop_assert_ne!(after.base_offset(), before.base_offset());
                    prop_assert_eq!(after.leader_epoch(), before.leader_epoch());
                    let values = |batch: &RecordBatch<'_>| -> Vec<Option<Vec<u8>>> {
                        batch.records().expect("not compressed")
                            .map(|record| record.expect("well formed").value.map(<[u8]>::to_vec)).collect()
                    };
                    prop_assert_eq!(values(&after), values(&before));
                }
                Err(error) => {
                    let negative = matches!(error, BatchError::NegativeBaseOffset { .. });
                    prop_assert!(negative || matches!(error, BatchError::OffsetOverflow { .. }), "{error}");
                }
            },
        }
    }

    #[test]
    fn batches_read_the_same_wherever_the_bytes_are_split(
        batches in vec(prop_oneof![3 => batch().prop_map(|(bytes, _)| bytes),
            1 => any::<i64>().prop_map(|at| MirrorPidReset::build(TimestampMs::new(at)).to_vec())], 0..6),
        cut: prop::sample::Index,
    ) {
        let whole = batches.concat();
        let cut = cut.index(batches.len() + 1);
        let (front, back) = (batches[..cut].concat(), batches[cut..].concat());
        let read = |bytes: &[u8]| -> Vec<(Vec<u8>, bool)> {
            BatchReader::new(bytes).map(|batch| batch.expect("a batch"))
                .map(|batch| (batch.bytes().to_vec(), batch.is_barrier())).collect()
        };
        prop_assert_eq!(read(&whole), [read(&front), read(&back)].concat());
    }

    #[test]
    fn a_walk_over_any_record_bytes_ends_within_them(
        records in vec(any::<u8>(), 0..300),
        count in prop_oneof![0..10, any::<i32>()],
        last_offset_delta in prop_oneof![0..10, 0..=i32::MAX],
    ) {
        let bytes = crate::support::raw_batch(0, last_offset_delta, count, &records);
        let parsed = RecordBatch::parse(&bytes);
        if count < 0 {
            prop_assert_eq!(parsed.err(), Some(BatchError::NegativeRecordCount { record_count: count }));
        } else {
            let walk: Vec<_> = parsed.expect("a batch").records().expect("not compressed").collect();
            prop_assert!(walk.len() <= records.len() / 7 + 1, "{} steps in {} bytes", walk.len(), records.len());
            prop_assert!(walk.iter().rev().skip(1).all(Result::is_ok), "nothing follows an error");
        }
    }
}
