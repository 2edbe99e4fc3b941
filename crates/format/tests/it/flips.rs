//! Every cut and every flipped bit of every batch that Kafka wrote: an error, or a change of one field that the CRC
//! does not cover.

use weir_format::{
    AnyBatch, AnyBatchReader, BatchError, BatchReader, RecordBatch, frame_size, header_of, message_size,
};

use crate::support::{manifest_dir, testdata};

/// Of larger batches not every bit is flipped: every one of the header, and one in each of this many bytes behind it.
/// CRC-32C finds any single flipped bit, whatever the size; what is tried here is that it is asked.
const SMALL: usize = 4096;
const STRIDE: usize = 1009;

/// Every batch of Kafka's that is valid and stands alone in its item, and the first ones of every log.
fn batches() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let folder = manifest_dir().join("testdata");
    for entry in std::fs::read_dir(folder.join("batches")).expect("test data") {
        let name = entry.expect("an entry").file_name().into_string().expect("ASCII names");
        if name.ends_with(".bin") {
            let bytes = testdata(&format!("batches/{name}"));
            if RecordBatch::parse(&bytes).is_ok_and(|batch| batch.size() == bytes.len()) {
                found.push((name, bytes));
            }
        }
    }
    assert!(found.len() > 65, "only {} items", found.len());
    for entry in std::fs::read_dir(folder.join("logs")).expect("test data") {
        let log = entry.expect("an entry").file_name().into_string().expect("ASCII names");
        let bytes = testdata(&format!("logs/{log}/00000000000000000000.log"));
        for batch in
            BatchReader::new(&bytes).map_while(Result::ok).filter(|batch| batch.size() <= SMALL).take(5)
        {
            found.push((format!("{log} at {}", batch.base_offset()), batch.bytes().to_vec()));
        }
    }
    assert!(found.len() > 100, "only {} batches", found.len());
    found
}

/// Every bit of small batches; of large ones a header's, and some.
fn bits(size: usize) -> impl Iterator<Item = usize> {
    (0..size * 8)
        .filter(move |bit| size <= SMALL || bit / 8 < 61 || bit % (8 * STRIDE) == bit / (8 * STRIDE) % 8)
}

/// Everything that a batch says, by name.
fn said(batch: &RecordBatch<'_>) -> Vec<(&'static str, String)> {
    let records = batch.records().map(|records| {
        records
            .map(|record| {
                let record = record.map(|record| {
                    let headers: Vec<_> = record.headers().collect();
                    let delta = record.offset.since(batch.base_offset());
                    format!("{delta} {} {:?} {:?} {headers:?}", record.timestamp, record.key, record.value)
                });
                format!("{record:?}")
            })
            .collect::<Vec<_>>()
    });
    vec![
        ("base offset", batch.base_offset().to_string()),
        ("last offset", batch.last_offset().to_string()),
        ("next offset", batch.next_offset().to_string()),
        ("leader epoch", format!("{:?}", batch.leader_epoch())),
        ("size", batch.size().to_string()),
        ("last offset delta", batch.last_offset_delta().to_string()),
        ("crc", batch.crc().to_string()),
        ("attributes", batch.attributes().to_string()),
        ("base timestamp", batch.base_timestamp().to_string()),
        ("max timestamp", batch.max_timestamp().to_string()),
        ("producer", format!("{} {:?}", batch.raw_producer_id(), batch.producer_epoch())),
        ("sequences", format!("{:?} {:?}", batch.base_sequence(), batch.last_sequence())),
        ("record count", batch.record_count().to_string()),
        ("control", format!("{:?} {:?}", batch.control_type(), batch.end_transaction_marker())),
        ("records", format!("{records:?}")),
    ]
}

fn changed(before: &RecordBatch<'_>, after: &RecordBatch<'_>) -> Vec<&'static str> {
    said(before).into_iter().zip(said(after)).filter(|(a, b)| a != b).map(|((name, _), _)| name).collect()
}

#[test]
fn every_proper_prefix_of_every_batch_is_an_error() {
    for (name, bytes) in batches() {
        for have in 0..bytes.len() {
            let cut = &bytes[..have];
            let error = RecordBatch::parse(cut).err();
            let wanted = matches!(error, Some(BatchError::Truncated { need, have: said }) if said == have && need > have);
            assert!(wanted, "{name} cut at {have}: {error:?}");
            assert!(RecordBatch::parse_without_crc(cut).is_err(), "{name} cut at {have}, CRC not looked at");
            assert!(AnyBatch::parse(cut).is_err(), "{name} cut at {have}, of any magic");
            // A reader ends well before the first byte, and nowhere else.
            assert_eq!(BatchReader::new(cut).next().is_none(), have == 0, "{name} cut at {have}");
            assert!(BatchReader::new(cut).all(|batch| batch.is_err()), "{name} cut at {have}");
            assert!(AnyBatchReader::new(cut).all(|batch| batch.is_err()), "{name} cut at {have}");
        }
    }
}

#[test]
fn every_flipped_bit_of_every_batch_is_an_error_or_changes_its_field_alone() {
    for (name, good) in batches() {
        let before = RecordBatch::parse(&good).expect("a batch");
        // A length that grew may find its bytes: those of the next batch.
        let behind = [&good[..], &good, &[0xa5; 300]].concat();
        let mut bytes = behind.clone();
        for bit in bits(good.len()) {
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            let what = format!("{name}: byte {}, bit {}", bit / 8, bit % 8);
            let (alone, followed) = (RecordBatch::parse(&bytes[..good.len()]), RecordBatch::parse(&bytes));
            let any = AnyBatch::parse(&bytes);
            match bit / 8 {
                // The sign of the base offset; the rest of it, since no batch here stands at the end of all offsets.
                0 if bit == 0 => {
                    for error in [alone.err(), followed.err()] {
                        assert!(
                            matches!(error, Some(BatchError::NegativeBaseOffset { .. })),
                            "{what}: {error:?}"
                        );
                    }
                    assert!(any.is_err() && header_of(&bytes).is_err(), "{what}");
                }
                0..8 => {
                    let after = alone.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!(
                        changed(&before, &after),
                        ["base offset", "last offset", "next offset"],
                        "{what}"
                    );
                    assert!(any.is_ok() && followed.is_ok(), "{what}");
                }
                // Its sign as well: a negative epoch is none, as Kafka's -1 is, and its bytes stay.
                12..16 => {
                    let after = alone.unwrap_or_else(|error| panic!("{what}: {error}"));
                    let wanted: &[&str] = match (before.leader_epoch(), after.leader_epoch()) {
                        (None, None) => &[],
                        _ => &["leader epoch"],
                    };
                    assert_eq!(changed(&before, &after), wanted, "{what}");
                    assert_eq!(after.leader_epoch().is_some(), bytes[12] < 0x80, "{what}");
                    assert_eq!(after.bytes(), &bytes[..good.len()], "{what}");
                }
                8..12 => {
                    for error in [alone.err(), followed.err()] {
                        let wanted = matches!(
                            error,
                            Some(
                                BatchError::InvalidLength { .. }
                                    | BatchError::Truncated { .. }
                                    | BatchError::CrcMismatch { .. }
                            )
                        );
                        assert!(wanted, "{what}: {error:?}");
                    }
                    assert!(any.is_err(), "{what}");
                }
                // 2 becomes 0, 3, 6, 10, 18, 34, 66 and -126: two of these have a reader of their own, and its CRC.
                16 => {
                    let magic = bytes[16].cast_signed();
                    let wanted = match magic {
                        0 | 1 => BatchError::UnsupportedMagic { magic },
                        _ => BatchError::InvalidMagic { magic },
                    };
                    assert_eq!((alone.err(), followed.err()), (Some(wanted), Some(wanted)), "{what}");
                    assert_eq!(frame_size(&bytes), Err(wanted), "{what}");
                    assert_eq!(message_size(&bytes).is_ok(), magic == 0, "{what}");
                    assert!(any.is_err(), "{what}");
                    assert!(AnyBatchReader::new(&bytes).next().is_some_and(|any| any.is_err()), "{what}");
                }
                _ => {
                    for error in [alone.err(), followed.err()] {
                        assert!(matches!(error, Some(BatchError::CrcMismatch { .. })), "{what}: {error:?}");
                    }
                    assert!(any.is_err(), "{what}");
                }
            }
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
        }
        assert_eq!(bytes, behind);
    }
}

/// Every message of magic 0 and 1 likewise: its CRC covers all from its magic on, and its length must fit.
#[test]
fn every_cut_and_every_flipped_bit_of_every_message_is_an_error_or_changes_its_offset_alone() {
    let mut count = 0;
    for log in ["magic-v0", "magic-v1"] {
        let log = testdata(&format!("logs/{log}/00000000000000000000.log"));
        let messages = AnyBatchReader::new(&log).map_while(Result::ok);
        for message in messages.filter(|any| any.bytes().len() <= SMALL).take(12) {
            let good = message.bytes();
            count += 1;
            for have in 0..good.len() {
                assert!(AnyBatch::parse(&good[..have]).is_err(), "cut at {have}");
            }
            let mut bytes = [good, good].concat();
            for bit in 0..good.len() * 8 {
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
                match AnyBatch::parse(&bytes) {
                    Ok(AnyBatch::Message(after)) => {
                        assert!((1..64).contains(&bit), "bit {bit}");
                        assert_eq!(after.bytes()[8..], good[8..], "bit {bit}");
                    }
                    Ok(AnyBatch::Batch(_)) => panic!("bit {bit} makes a batch"),
                    Err(_) => assert!(!(1..64).contains(&bit), "bit {bit}"),
                }
                bytes[bit / 8] ^= 0x80 >> (bit % 8);
            }
        }
    }
    assert_eq!(count, 24);
}
