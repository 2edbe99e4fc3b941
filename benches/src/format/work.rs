//! What is measured: each work goes once over an input and answers a hash of what it has read.

use weir_format::{BatchReader, HEADER_SIZE, Record, RecordBatch, crc, header_of};

use super::input::{Input, build, mix, mix_batch, mix_header};

/// The sum over each batch's covered bytes, by the library alone.
pub fn crc_fast_alone(frames: &[&[u8]]) -> u64 {
    frames.iter().fold(0, |hash, frame| {
        let covered = frame.get(crc::CRC_COVERS_FROM..).unwrap_or_default();
        hash.wrapping_add(u64::from(crc_fast::crc32_iscsi(covered)))
    })
}

/// The sum over each batch's covered bytes, by `weir-format`.
pub fn crc_ours(frames: &[&[u8]]) -> u64 {
    frames.iter().fold(0, |hash, frame| hash.wrapping_add(u64::from(crc::batch_crc(frame))))
}

/// Every header, with the CRC checked.
///
/// # Panics
/// If the input is none.
pub fn header_walk_with_crc(bytes: &[u8]) -> u64 {
    BatchReader::new(bytes).fold(0, |hash, batch| {
        let batch = batch.expect("it is built");
        hash.wrapping_add(mix_batch(
            batch.base_offset().get(),
            batch.size(),
            batch.crc(),
            batch.record_count(),
        ))
    })
}

/// Every header, and nothing behind it.
///
/// # Panics
/// If the input is none.
pub fn header_walk(bytes: &[u8]) -> u64 {
    let (mut rest, mut hash) = (bytes, 0_u64);
    while !rest.is_empty() {
        let header = header_of(rest).expect("it is built");
        hash = hash.wrapping_add(mix_batch(
            header.base_offset().get(),
            header.size(),
            header.crc(),
            header.record_count(),
        ));
        rest = rest.get(header.size()..).unwrap_or_default();
    }
    hash
}

/// Every record with its headers, and the CRC checked.
///
/// # Panics
/// If the input is none.
pub fn record_walk_with_crc(bytes: &[u8]) -> u64 {
    BatchReader::new(bytes).fold(0, |hash, batch| hash.wrapping_add(records(&batch.expect("it is built"))))
}

/// Every record with its headers, without the CRC.
///
/// # Panics
/// If the input is none.
pub fn record_walk(bytes: &[u8]) -> u64 {
    let (mut rest, mut hash) = (bytes, 0_u64);
    while !rest.is_empty() {
        let batch = RecordBatch::parse_without_crc(rest).expect("it is built");
        hash = hash.wrapping_add(records(&batch));
        rest = rest.get(batch.size()..).unwrap_or_default();
    }
    hash
}

fn records(batch: &RecordBatch<'_>) -> u64 {
    let records = batch.records().expect("it has no codec");
    records.fold(0, |hash, record| hash.wrapping_add(look(&record.expect("it is built"))))
}

/// Every record of batches of any codec, with the CRC checked.
///
/// # Panics
/// If the input is none.
pub fn record_stream(bytes: &[u8]) -> u64 {
    let mut hash = 0_u64;
    for batch in BatchReader::new(bytes) {
        let mut records = batch.expect("it is built").record_stream(1 << 20);
        while let Some(record) = records.next_record() {
            hash = hash.wrapping_add(look(&record.expect("it is built")));
        }
    }
    hash
}

#[inline]
fn look(record: &Record<'_>) -> u64 {
    let hash = mix(record.offset.get(), record.timestamp.get(), record.key, record.value);
    record.headers().fold(hash, |hash, header| hash.wrapping_add(mix_header(header.key, header.value)))
}

/// Every batch built anew from its records. The hash is that of the headers, in which the CRC is.
pub fn builder(input: &Input) -> u64 {
    input.meant.iter().fold(0, |hash, records| {
        let batch = build(records);
        let header = header_of(&batch).expect("it is built");
        let size = batch.len().max(HEADER_SIZE);
        hash.wrapping_add(mix_batch(header.base_offset().get(), size, header.crc(), header.record_count()))
    })
}
