//! What does it cost to walk batches and their records, to check their CRC, and to build them?
//!
//! `cargo bench -p weir-format --features codec` measures, in bytes a second. `cargo test` runs everything once. Either way
//! the result of each is checked, so that nothing is measured that is wrong or was left out by the compiler.
//!
//! Baselines stand beside what they are compared with: `crc_fast_alone` is the library that sums, on the same bytes;
//! `crc_alone` is our sum over the same batches without reading a header.

use std::hint::black_box;
use std::io::Write as _;

use divan::Bencher;
use divan::counter::BytesCount;
use weir_format::{BatchBuilder, BatchReader, RecordBatch, TimestampMs, crc, header_of};

/// Batches in the buffer that is walked.
const BATCHES: u64 = 64;
/// Records of 1000 bytes in each: some 16 KiB a batch.
const RECORDS: u64 = 16;
/// The sum of [`hash`] over all records: values of 1000 bytes, keys of 8, and offsets from 0 in each batch.
const RECORDS_HASH: u64 = BATCHES * (RECORDS * (2 * 1000 + 3 * 8) + RECORDS * (RECORDS - 1) / 2);

fn main() {
    divan::main();
}

/// Text that compresses about as well as JSON does.
fn value(seed: u64) -> Vec<u8> {
    let mut value = Vec::new();
    let mut state = seed;
    while value.len() < 1000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write!(value, "{{\"id\":{},\"name\":\"user-{}\"}},", state >> 44, state >> 56).expect("memory");
    }
    value.truncate(1000);
    value
}

fn batch(base: u64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for record in 0..RECORDS {
        let key = (base + record).to_be_bytes();
        let time = TimestampMs::new(1_767_225_600_000 + i64::try_from(record).expect("small"));
        builder = builder.record(time, Some(&key), Some(&value(base + record)));
    }
    builder.build().expect("a batch").to_vec()
}

fn batches() -> Vec<u8> {
    (0..BATCHES).flat_map(|index| batch(index * RECORDS)).collect()
}

/// The batches with their records compressed.
fn compressed(codec: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for batch in BatchReader::new(&batches()) {
        let batch = batch.expect("built").bytes();
        let (header, records) = batch.split_at(weir_format::HEADER_SIZE);
        let (bits, records) = match codec {
            "gzip" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(records).expect("memory");
                (1, encoder.finish().expect("memory"))
            }
            "snappy" => (2, snap::raw::Encoder::new().compress_vec(records).expect("memory")),
            "lz4" => {
                let block = lz4_flex::block::compress(records);
                let size = u32::try_from(block.len()).expect("small").to_le_bytes();
                let frame = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
                (3, [&frame[..], &size, &block, &[0; 4]].concat())
            }
            "zstd" => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("memory");
                encoder.write_all(records).expect("memory");
                (4, encoder.finish().expect("memory"))
            }
            _ => (0, records.to_vec()),
        };
        let mut batch = [header, &records].concat();
        batch[22] |= bits;
        let length = i32::try_from(batch.len() - 12).expect("small");
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = crc::batch_crc(&batch);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        bytes.extend_from_slice(&batch);
    }
    bytes
}

#[divan::bench]
fn crc_fast_alone(bencher: Bencher<'_, '_>) {
    let bytes = batches();
    let hash = crc::crc32c(&bytes);
    bencher.counter(BytesCount::new(bytes.len())).bench(|| {
        assert_eq!(crc_fast::crc32_iscsi(black_box(&bytes)), hash);
    });
}

#[divan::bench]
fn crc_ours(bencher: Bencher<'_, '_>) {
    let bytes = batches();
    let hash = crc_fast::crc32_iscsi(&bytes);
    bencher.counter(BytesCount::new(bytes.len())).bench(|| {
        assert_eq!(crc::crc32c(black_box(&bytes)), hash);
    });
}

#[divan::bench]
fn crc_alone(bencher: Bencher<'_, '_>) {
    let bytes = batches();
    let size = bytes.len() / usize::try_from(BATCHES).expect("small");
    let hash = bytes.chunks(size).fold(0, |hash, batch| hash ^ crc::batch_crc(batch));
    bencher.counter(BytesCount::new(bytes.len())).bench(|| {
        assert_eq!(black_box(&bytes).chunks(size).fold(0, |hash, batch| hash ^ crc::batch_crc(batch)), hash);
    });
}

#[divan::bench]
fn header_walk_with_crc(bencher: Bencher<'_, '_>) {
    let bytes = batches();
    bencher.counter(BytesCount::new(bytes.len())).bench(|| {
        let count: i32 =
            BatchReader::new(black_box(&bytes)).map(|batch| batch.expect("built").record_count()).sum();
        assert_eq!(u64::try_from(count), Ok(BATCHES * RECORDS));
    });
}

#[divan::bench]
fn header_walk_without_crc(bencher: Bencher<'_, '_>) {
    let bytes = batches();
    bencher.counter(BytesCount::new(bytes.len())).bench(|| {
        let (mut rest, mut count) = (black_box(&bytes[..]), 0);
        while !rest.is_empty() {
            let header = header_of(rest).expect("built");
            count += header.record_count();
            rest = &rest[header.size()..];
        }
        assert_eq!(u64::try_from(count), Ok(BATCHES * RECORDS));
    });
}

/// Something that needs every record, and is cheap beside reading it.
fn hash(record: &weir_format::Record<'_>) -> u64 {
    let size = |part: Option<&[u8]>| u64::try_from(part.map_or(0, <[u8]>::len)).expect("small");
    let offset = u64::try_from(record.offset.get()).expect("not negative");
    2 * size(record.value) + 3 * size(record.key) + offset
}

#[divan::bench]
fn record_walk(bencher: Bencher<'_, '_>) {
    let bytes = batches();
    bencher.counter(BytesCount::new(bytes.len())).bench(|| {
        let mut sum = 0;
        for batch in BatchReader::new(black_box(&bytes)) {
            for record in batch.expect("built").records().expect("plain") {
                sum += hash(&record.expect("built"));
            }
        }
        assert_eq!(sum, RECORDS_HASH);
    });
}

/// Bytes are counted as they are without a codec.
#[divan::bench(args = ["none", "gzip", "snappy", "lz4", "zstd"])]
fn record_stream(bencher: Bencher<'_, '_>, codec: &str) {
    let bytes = compressed(codec);
    bencher.counter(BytesCount::new(batches().len())).bench(|| {
        let mut sum = 0;
        for batch in BatchReader::new(black_box(&bytes)) {
            let mut records = batch.expect("built").record_stream(1 << 20);
            while let Some(record) = records.next_record() {
                sum += hash(&record.expect("built"));
            }
        }
        assert_eq!(sum, RECORDS_HASH, "{codec}");
    });
}

#[divan::bench]
fn builder(bencher: Bencher<'_, '_>) {
    let (size, value) = (batch(0).len(), value(7));
    bencher.counter(BytesCount::new(size)).bench(|| {
        let mut builder = BatchBuilder::new();
        for record in 0..RECORDS {
            let key = record.to_be_bytes();
            builder =
                builder.record(TimestampMs::new(1_767_225_600_000), Some(&key), Some(black_box(&value)));
        }
        let bytes = builder.build().expect("a batch");
        assert_eq!(RecordBatch::parse(&bytes).expect("built").size(), bytes.len());
        assert!(bytes.len().abs_diff(size) < 64);
    });
}
