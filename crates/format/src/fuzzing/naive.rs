//! A second reader of batches, slow and obviously right: it shares no code with the first.

use crate::batch::{Codec, RecordBatch, TimestampType};
use crate::record::Record;

/// One record as the naive reader sees it; parts are where they lie in the batch.
pub(super) struct NaiveRecord {
    timestamp_delta: i128,
    offset_delta: i128,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl NaiveRecord {
    pub(super) fn check(&self, batch: &RecordBatch<'_>, record: &Record<'_>) {
        let base = i128::from(batch.base_offset().get());
        assert_eq!(i128::from(record.offset.get()), base + self.offset_delta);
        let timestamp = match batch.timestamp_type() {
            TimestampType::LogAppendTime => i128::from(batch.max_timestamp().get()),
            TimestampType::CreateTime => {
                let sum = i128::from(batch.base_timestamp().get()) + self.timestamp_delta;
                // Back into 64 bits, as two's complement does.
                (sum + (1 << 63)).rem_euclid(1 << 64) - (1 << 63)
            }
        };
        assert_eq!(i128::from(record.timestamp.get()), timestamp);
        assert_eq!(record.key, self.key.as_deref());
        assert_eq!(record.value, self.value.as_deref());
        let headers: Vec<_> =
            record.headers().map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec))).collect();
        assert_eq!(headers, self.headers);
    }
}

/// The big-endian signed number of `size` bytes at `at`.
fn int(bytes: &[u8], at: usize, size: usize) -> Option<i128> {
    let mut value = 0_i128;
    for byte in bytes.get(at..at + size)? {
        value = value * 256 + i128::from(*byte);
    }
    let range = 1_i128 << (8 * size);
    Some(if value >= range / 2 { value - range } else { value })
}

/// The size of the batch that starts here, by its length field.
pub(super) fn size(bytes: &[u8]) -> Option<usize> {
    usize::try_from(int(bytes, 8, 4)? + 12).ok()
}

/// Every accessor of the header against the bytes.
pub(super) fn check_header(batch: &RecordBatch<'_>) {
    let bytes = batch.bytes();
    let at = |at, size| int(bytes, at, size).expect("a header");
    let some = |at, size| int(bytes, at, size).filter(|number| *number >= 0);
    let (base, delta) = (at(0, 8), at(23, 4));
    assert_eq!(i128::from(batch.base_offset().get()), base);
    assert_eq!(i128::from(batch.last_offset().get()), base + delta);
    assert_eq!(i128::from(batch.next_offset().get()), base + delta + 1);
    assert_eq!(i128::from(batch.last_offset_delta()), delta);
    assert_eq!(batch.leader_epoch().map(|epoch| i128::from(epoch.get())), some(12, 4));
    assert_eq!(i128::from(batch.crc().cast_signed()), at(17, 4));
    assert_eq!(i128::from(batch.attributes()), at(21, 2));
    assert_eq!(i128::from(batch.base_timestamp().get()), at(27, 8));
    assert_eq!(i128::from(batch.max_timestamp().get()), at(35, 8));
    assert_eq!(i128::from(batch.raw_producer_id()), at(43, 8));
    assert_eq!(batch.producer_id().map(|id| i128::from(id.get())), some(43, 8));
    assert_eq!(batch.producer_epoch().map(|epoch| i128::from(epoch.get())), some(51, 2));
    assert_eq!(batch.base_sequence().map(|sequence| i128::from(sequence.get())), some(53, 4));
    let last = some(53, 4).map(|base| (base + delta) % (1 << 31));
    assert_eq!(batch.last_sequence().map(|sequence| i128::from(sequence.get())), last);
    assert_eq!(i128::from(batch.record_count()), at(57, 4));
    let bits = bytes[22];
    assert_eq!(batch.codec() == Codec::None, bits & 7 == 0);
    assert_eq!(batch.timestamp_type() == TimestampType::LogAppendTime, bits & 8 != 0);
    assert_eq!(batch.is_transactional(), bits & 16 != 0);
    assert_eq!(batch.is_control(), bits & 32 != 0);
    assert_eq!(batch.delete_horizon().is_some(), bits & 64 != 0);
    assert_eq!(batch.is_compressed_control(), bits & 32 != 0 && bits & 7 != 0);
}

/// A zig-zag varint of `bits` bits at `at`, and where it ends.
fn varint(bytes: &[u8], at: usize, bits: u32) -> Option<(i128, usize)> {
    let longest = if bits == 32 { 5 } else { 10 };
    let mut value = 0_u128;
    for index in 0..longest {
        let byte = *bytes.get(at + index)?;
        value += u128::from(byte % 128) << (7 * index);
        if byte < 128 {
            let raw = i128::try_from(value % (1 << bits)).ok()?;
            let number = if raw % 2 == 0 { raw / 2 } else { -(raw / 2) - 1 };
            return Some((number, at + index + 1));
        }
    }
    None
}

/// Bytes behind a varint length at `at` that end at or before `end`, and where they end.
fn sized(bytes: &[u8], at: usize, end: usize) -> Option<(Option<Vec<u8>>, usize)> {
    let (length, at) = varint(bytes.get(..end)?, at, 32)?;
    if length == -1 {
        return Some((None, at));
    }
    let behind = at.checked_add(usize::try_from(length).ok()?)?;
    if behind > end {
        return None;
    }
    Some((Some(bytes.get(at..behind)?.to_vec()), behind))
}

/// All records of an uncompressed batch, or `None` if anything is wrong with any of them.
pub(super) fn records(batch: &RecordBatch<'_>) -> Option<Vec<NaiveRecord>> {
    let bytes = batch.bytes();
    let mut at = 61;
    let mut found = Vec::new();
    for _ in 0..batch.record_count() {
        let (length, start) = varint(bytes, at, 32)?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        let record = bytes.get(..end)?;
        record.get(start)?;
        let (timestamp_delta, at_delta) = varint(record, start + 1, 64)?;
        let (offset_delta, at_key) = varint(record, at_delta, 32)?;
        let (key, at_value) = sized(record, at_key, end)?;
        let (value, at_headers) = sized(record, at_value, end)?;
        let (header_count, mut at_header) = varint(record, at_headers, 32)?;
        if header_count < 0 {
            return None;
        }
        let mut headers = Vec::new();
        for _ in 0..header_count {
            let (key, at_value) = sized(record, at_header, end)?;
            let (value, behind) = sized(record, at_value, end)?;
            headers.push((key?, value));
            at_header = behind;
        }
        if at_header != end || offset_delta < 0 || offset_delta > i128::from(batch.last_offset_delta()) {
            return None;
        }
        found.push(NaiveRecord { timestamp_delta, offset_delta, key, value, headers });
        at = end;
    }
    (at == bytes.len()).then_some(found)
}

/// Where the first record's key lies in a plain control batch that counts a record.
fn first_control_key_place(bytes: &[u8]) -> Option<(usize, usize)> {
    let bits = bytes[22];
    if bits & 32 == 0 || bits & 7 != 0 || int(bytes, 57, 4)? == 0 {
        return None;
    }
    let (length, start) = varint(bytes, 61, 32)?;
    // A record that claims more than there is ends with the batch.
    let end = start.checked_add(usize::try_from(length).ok()?)?.min(bytes.len());
    let record = bytes.get(..end)?;
    record.get(start)?;
    let (_, at) = varint(record, start + 1, 64)?;
    let (_, at) = varint(record, at, 32)?;
    let (length, at) = varint(record, at, 32)?;
    let behind = at.checked_add(usize::try_from(length).ok()?)?;
    (behind <= end).then_some((at, behind))
}

/// Version and type in the first control record's key, if there are four bytes of it.
pub(super) fn first_control_key(bytes: &[u8]) -> Option<(i16, i16)> {
    let (at, behind) = first_control_key_place(bytes)?;
    if behind - at < 4 {
        return None;
    }
    Some((i16::try_from(int(bytes, at, 2)?).ok()?, i16::try_from(int(bytes, at + 2, 2)?).ok()?))
}

/// Where the bytes behind the first control record's key start.
pub(super) fn behind_first_key(bytes: &[u8]) -> Option<usize> {
    Some(first_control_key_place(bytes)?.1)
}
