//! The oracles of the fuzz targets, and a seeded loop that drives them in process.
//!
//! A target in `fuzz/` is three lines over one function here. The same functions run over `fuzz/seeds` and
//! `fuzz/regressions` in an ordinary test, so that every finding stays found, and a target cannot rot.
//!
//! An oracle says more than "did not panic". Each compares this crate with a second reader, `naive`, which is
//! written for being obviously right, and looks at the bytes three ways: as they came, with the CRC made right (so that
//! what lies behind it is reached), and made into a batch that must parse.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::missing_panics_doc,
    reason = "an oracle fails by panicking, and one that indexes wrongly should fail too"
)]

mod build;
#[cfg(feature = "codec")]
mod codecs;
#[cfg(feature = "codec")]
mod messages;
mod naive;
mod smoke;

pub use build::{check_builder, check_control_key};
#[cfg(feature = "codec")]
pub use codecs::{check_gzip, check_lz4, check_snappy, check_zstd};
#[cfg(feature = "codec")]
pub use messages::check_message_set;
pub use smoke::{Finding, smoke};

use crate::batch::{BatchReader, Codec, HEADER_SIZE, RecordBatch, TimestampType, frame_size, header_of};
use crate::batch::{set_base_offset, set_leader_epoch};
use crate::error::{BatchError, RecordError};
use crate::ids::{LeaderEpoch, Offset, TimestampMs};
use crate::record::Record;
use crate::{BatchBuilder, ControlRecordType, MirrorPidReset, MirrorPidResetValue, crc};

/// One oracle: it panics if this crate is wrong about these bytes.
pub type Oracle = fn(&[u8]);

/// Every target of `fuzz/` and its oracle, by name in ascending order.
pub const TARGETS: &[(&str, Oracle)] = &[
    ("barrier", check_barrier),
    ("batch", check_batch),
    ("builder", check_builder),
    ("control_key", check_control_key),
    #[cfg(feature = "codec")]
    ("gzip", check_gzip),
    #[cfg(feature = "codec")]
    ("lz4", check_lz4),
    #[cfg(feature = "codec")]
    ("message_set", check_message_set),
    ("records", check_records),
    #[cfg(feature = "codec")]
    ("snappy", check_snappy),
    #[cfg(feature = "codec")]
    ("zstd", check_zstd),
];

/// What [`canary`] fails on.
pub const CANARY_BYTE: u8 = 0xca;

/// Fails on every input that contains [`CANARY_BYTE`]: proof that whoever drives the oracles notices a finding.
pub fn canary(data: &[u8]) {
    assert!(!data.contains(&CANARY_BYTE), "the canary sang, as it must");
}

/// What [`RecordBatch::parse`] and [`BatchReader`] say of any bytes.
pub fn check_batch(data: &[u8]) {
    for bytes in [data, &with_right_crc(data), &made_a_batch(data)] {
        batch_oracle(bytes);
        reader_oracle(bytes);
    }
    assert!(RecordBatch::parse(&made_a_batch(data)).is_ok(), "a batch by construction");
}

/// What [`RecordBatch::records`] says of any bytes behind a header.
pub fn check_records(data: &[u8]) {
    for bytes in [data, &with_right_crc(data), &made_a_batch(data)] {
        BatchReader::new(bytes).flatten().for_each(|batch| records_oracle(&batch));
    }
}

/// What is said about the barrier, of any bytes as a batch and of any bytes as a barrier's value.
pub fn check_barrier(data: &[u8]) {
    for bytes in [data, &with_right_crc(data), &made_a_batch(data)] {
        batch_oracle(bytes);
        BatchReader::new(bytes).flatten().for_each(|batch| barrier_oracle(&batch));
    }
    built_barrier_oracle(data);
    among_batches_oracle(data);
}

/// These bytes with magic 2, and the length and CRC that fit them. The rest is theirs.
fn with_right_crc(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if bytes.len() < HEADER_SIZE {
        bytes.resize(HEADER_SIZE, 0);
    }
    bytes[16] = 2;
    seal(&mut bytes);
    bytes
}

/// As [`with_right_crc`], with offsets and a count that no check refuses, and without a codec.
fn made_a_batch(data: &[u8]) -> Vec<u8> {
    let mut bytes = with_right_crc(data);
    bytes[0] &= 0x3f;
    bytes[22] &= !0x07;
    bytes[23] &= 0x7f;
    bytes[57] &= 0x7f;
    seal(&mut bytes);
    bytes
}

fn seal(bytes: &mut [u8]) {
    let length = i32::try_from(bytes.len() - 12).expect("fuzzed inputs are small");
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc::batch_crc(bytes);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// A number that depends on the bytes alone: which bit is flipped, where is cut.
fn choice(bytes: &[u8], below: usize) -> usize {
    usize::try_from(crc::crc32c(bytes)).expect("32 bits") % below.max(1)
}

fn batch_oracle(bytes: &[u8]) {
    let parsed = RecordBatch::parse(bytes);
    match frame_size(bytes) {
        Ok(None) => {
            assert!(bytes.len() < 17);
            assert_eq!(parsed.err(), Some(BatchError::Truncated { need: HEADER_SIZE, have: bytes.len() }));
            return;
        }
        Ok(Some(size)) => assert!(size >= HEADER_SIZE && naive::size(bytes) == Some(size)),
        Err(error) => {
            assert_eq!(parsed.err(), Some(error));
            return;
        }
    }
    match parsed {
        Ok(batch) => parsed_oracle(bytes, &batch),
        Err(BatchError::Truncated { need, have }) => assert!(have == bytes.len() && need > have),
        Err(error) => {
            let longer = [bytes, &[0; 3]].concat();
            assert_eq!(
                RecordBatch::parse(&longer).err(),
                Some(error),
                "what follows a batch says nothing of it"
            );
        }
    }
}

fn parsed_oracle(bytes: &[u8], batch: &RecordBatch<'_>) {
    let size = batch.size();
    assert!(std::ptr::eq(batch.bytes(), &raw const bytes[..size]), "the view is the input's own bytes");
    naive::check_header(batch);
    let again = format!("{batch:?}");
    assert_eq!(again, format!("{:?}", RecordBatch::parse(&bytes[..size]).expect("its own bytes")));
    assert_eq!(again, format!("{:?}", RecordBatch::parse_without_crc(bytes).expect("as parsed")));
    assert_eq!(format!("{:?}", batch.header()), format!("{:?}", header_of(bytes).expect("as parsed")));

    for have in [0, 16, 17, 60, 61, choice(bytes, size), size - 1] {
        let have = have.min(size - 1);
        let error = RecordBatch::parse(&bytes[..have]).err();
        assert!(
            matches!(error, Some(BatchError::Truncated { have: said, .. }) if said == have),
            "cut at {have}"
        );
    }

    let mut changed = bytes[..size].to_vec();
    let bit = 17 * 8 + choice(bytes, (size - 17) * 8);
    changed[bit / 8] ^= 1 << (bit % 8);
    assert!(matches!(RecordBatch::parse(&changed), Err(BatchError::CrcMismatch { .. })), "bit {bit} flipped");
    changed[bit / 8] ^= 1 << (bit % 8);

    set_base_offset(&mut changed, Offset::ZERO).expect("a batch at 0 always fits");
    set_leader_epoch(&mut changed, LeaderEpoch::MAX).expect("a batch");
    let patched = RecordBatch::parse(&changed).expect("the CRC covers neither");
    assert_eq!((patched.base_offset(), patched.leader_epoch()), (Offset::ZERO, Some(LeaderEpoch::MAX)));
    assert_eq!(patched.bytes()[16..], batch.bytes()[16..]);
    assert_eq!((patched.is_barrier(), patched.control_type()), (batch.is_barrier(), batch.control_type()));
    changed[12..16].copy_from_slice(&bytes[12..16]);
    set_base_offset(&mut changed, batch.base_offset()).expect("where it was");
    assert_eq!(changed, bytes[..size]);
}

/// A batch's place, size and CRC, and whether it is a barrier.
type Seen = (Offset, usize, u32, bool);

/// The batches in front of the first error, and where that is.
fn read(bytes: &[u8]) -> (Vec<Seen>, usize) {
    let mut reader = BatchReader::new(bytes);
    let mut seen = Vec::new();
    for batch in reader.by_ref() {
        match batch {
            Ok(batch) => seen.push((batch.base_offset(), batch.size(), batch.crc(), batch.is_barrier())),
            Err(_) => break,
        }
    }
    assert!(reader.next().is_none(), "nothing follows the end");
    (seen, reader.position())
}

fn reader_oracle(bytes: &[u8]) {
    let (seen, position) = read(bytes);
    assert_eq!(seen.iter().map(|(_, size, ..)| size).sum::<usize>(), position, "batches lie side by side");
    assert!(position <= bytes.len());
    let cut = choice(bytes, seen.len() + 1);
    let cut_position = seen[..cut].iter().map(|(_, size, ..)| size).sum();
    let (front, front_end) = read(&bytes[..cut_position]);
    let (back, back_end) = read(&bytes[cut_position..]);
    assert_eq!((front_end, cut_position + back_end), (cut_position, position));
    assert_eq!([front, back].concat(), seen, "where bytes are split says nothing of the batches");
}

fn records_oracle(batch: &RecordBatch<'_>) {
    let mut records = match batch.records() {
        Ok(records) => records,
        Err(error) => {
            assert!(batch.codec() != Codec::None);
            assert_eq!(error, RecordError::Compressed { codec: batch.codec() });
            return;
        }
    };
    let most = records.size_hint().1.expect("bytes bound it");
    let mut found: Vec<Record<'_>> = Vec::new();
    let mut failed = false;
    for record in records.by_ref() {
        assert!(!failed, "nothing follows an error");
        match record {
            Ok(record) => found.push(record),
            Err(_) => failed = true,
        }
    }
    assert!(records.next().is_none() && found.len() + usize::from(failed) <= most);
    let naive = naive::records(batch);
    assert_eq!(naive.is_none(), failed, "both readers find the records well formed, or neither");
    let Some(naive) = naive else { return };
    assert_eq!(found.len(), naive.len());
    assert_eq!(i32::try_from(found.len()), Ok(batch.record_count()));
    for (record, naive) in found.iter().zip(&naive) {
        naive.check(batch, record);
        for part in [record.key, record.value].into_iter().flatten() {
            let (whole, part) = (batch.bytes().as_ptr_range(), part.as_ptr_range());
            assert!(whole.start <= part.start && part.end <= whole.end, "views lie within the batch");
        }
    }
    rebuild_oracle(batch, &found);
}

/// What was read, written again and read again, is the same.
fn rebuild_oracle(batch: &RecordBatch<'_>, records: &[Record<'_>]) {
    if !records.windows(2).all(|pair| pair[0].offset < pair[1].offset) {
        return;
    }
    let builder = records.iter().fold(BatchBuilder::like(batch), BatchBuilder::copied);
    let bytes = builder.build().expect("what was read can be written");
    if batch.timestamp_type() == TimestampType::CreateTime {
        assert!(bytes.len() <= batch.size(), "we write the shortest form");
    }
    let again = RecordBatch::parse(&bytes).expect("what was written can be read");
    for fields in [0..8, 12..17, 21..HEADER_SIZE] {
        assert_eq!(
            again.bytes()[fields.clone()],
            batch.bytes()[fields],
            "but for size and CRC the same header"
        );
    }
    let walk = again.records().expect("not compressed");
    for (again, record) in walk.zip(records) {
        let again = again.expect("well formed");
        assert_eq!((again.offset, again.timestamp), (record.offset, record.timestamp));
        assert_eq!((again.key, again.value), (record.key, record.value));
        assert!(again.headers().eq(record.headers()));
    }
}

/// Whether it is a barrier depends on the control bit and the first record's key alone.
fn barrier_oracle(batch: &RecordBatch<'_>) {
    let key = naive::first_control_key(batch.bytes());
    let is_barrier = key.is_some_and(|(version, id)| version >= 0 && id == 7);
    assert_eq!(batch.is_barrier(), is_barrier, "both readers see a barrier, or neither");
    let control_type = key.filter(|(version, _)| *version >= 0).map(|(_, id)| ControlRecordType::from_id(id));
    assert_eq!(batch.control_type(), control_type);
    assert_eq!(MirrorPidReset::recognise(batch), is_barrier);
    let description = MirrorPidReset::describe(batch);
    assert_eq!(description.is_some(), is_barrier);
    if let Some(description) = description {
        assert_eq!(description.offset, batch.base_offset());
        assert!(!description.to_string().is_empty());
    }
    assert!(!(is_barrier && batch.end_transaction_marker().is_some()), "a barrier ends no transaction");
    assert!(!(is_barrier && batch.is_compressed_control()));

    // Everything behind the key may be anything.
    if let Some(behind) = naive::behind_first_key(batch.bytes()) {
        let mut bytes = batch.bytes().to_vec();
        let noise = crc::crc32c(&bytes).to_be_bytes();
        for (place, noise) in bytes[behind..].iter_mut().zip(noise.iter().cycle()) {
            *place ^= noise;
        }
        seal(&mut bytes);
        let changed = RecordBatch::parse(&bytes).expect("the header is the same");
        assert_eq!(changed.is_barrier(), is_barrier, "no value makes or hides a barrier");
        assert_eq!(changed.control_type(), batch.control_type());
    }

    // And so may every field of the header that says neither "control" nor "compressed" nor "no record".
    let mut bytes = batch.bytes().to_vec();
    bytes[22] ^= 0x18;
    for place in &mut bytes[27..57] {
        *place ^= 0xa5;
    }
    seal(&mut bytes);
    let changed = RecordBatch::parse(&bytes).expect("offsets and count are the same");
    assert_eq!(changed.is_barrier(), is_barrier, "producer, sequence and timestamps say nothing");

    let mut bytes = batch.bytes().to_vec();
    bytes[22] &= !0x20;
    seal(&mut bytes);
    let plain = RecordBatch::parse(&bytes).expect("the rest is the same");
    assert!(!plain.is_barrier() && plain.control_type().is_none(), "without the control bit it is data");
}

/// A barrier with these bytes as its value, one with them as its timestamp, and what is no barrier.
fn built_barrier_oracle(data: &[u8]) {
    let timestamp =
        TimestampMs::new(i64::from_be_bytes(std::array::from_fn(|at| data.get(at).copied().unwrap_or(0))));
    let built = MirrorPidReset::build(timestamp);
    let batch = RecordBatch::parse(&built).expect("what we build is a batch");
    let leader_epoch = Some(LeaderEpoch::ZERO);
    let value = MirrorPidResetValue::Current { version: 0, tagged_fields: 0 };
    let meant = MirrorPidReset { offset: Offset::ZERO, leader_epoch, timestamp, value };
    assert_eq!(MirrorPidReset::describe(&batch), Some(meant), "what we build is what we meant");
    assert_eq!((batch.producer_id(), batch.size(), batch.record_count()), (None, 75, 1));

    let with = |record_type| {
        let builder = BatchBuilder::new().control_record(timestamp, record_type, data);
        builder.build().expect("a fuzzed value fits")
    };
    let bytes = with(ControlRecordType::MirrorPidReset);
    let barrier = RecordBatch::parse(&bytes).expect("a batch");
    let described = MirrorPidReset::describe(&barrier).expect("whatever its value");
    assert_eq!(described.value, MirrorPidResetValue::decode(data));
    barrier_oracle(&barrier);
    for id in [-1, 0, 1, 2, 3, 4, 5, 6, 8] {
        let bytes = with(ControlRecordType::from_id(id));
        let other = RecordBatch::parse(&bytes).expect("a batch");
        assert!(!other.is_barrier() && MirrorPidReset::describe(&other).is_none(), "type {id}");
    }

    // The older form, with as much of the bytes as is text.
    let text = String::from_utf8_lossy(&data[..data.len().min(100)]);
    let id: String = text.chars().take(30).collect();
    if !id.is_empty() {
        let length = u8::try_from(id.len() + 1).expect("thirty characters");
        let value = [&[0, 0, length][..], id.as_bytes(), &[0]].concat();
        match MirrorPidResetValue::decode(&value) {
            MirrorPidResetValue::WithSourceClusterId { source_cluster_id, .. } => {
                assert_eq!(source_cluster_id, id)
            }
            // Rare bytes are tagged fields as well; the current form is tried first.
            MirrorPidResetValue::Current { tagged_fields, .. } => {
                assert_eq!(tagged_fields, u32::from(length))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A barrier among other batches is met once wherever the bytes are split, and twice if it is there twice.
fn among_batches_oracle(data: &[u8]) {
    let made = made_a_batch(data);
    let own = usize::from(RecordBatch::parse(&made).expect("a batch by construction").is_barrier());
    let barrier = MirrorPidReset::build(TimestampMs::new(1));
    let parts: [&[u8]; 5] = [&made, &barrier, &barrier, &made, data];
    let whole = parts.concat();
    let barriers = |bytes: &[u8]| read(bytes).0.iter().filter(|(.., is_barrier)| *is_barrier).count();
    let behind = barriers(data);
    assert_eq!(barriers(&whole), 2 + 2 * own + behind);
    for cut in 0..=parts.len() {
        let found = barriers(&parts[..cut].concat()) + barriers(&parts[cut..].concat());
        assert_eq!(found, 2 + 2 * own + behind, "split in front of part {cut}");
    }
}

#[cfg(test)]
mod tests;
