//! What is walked: batches of records of one shape, and the hash of what is in them.

use std::io::Write as _;

use anyhow::{Context, Result, bail};
use weir_format::{BatchBuilder, BatchReader, HEADER_SIZE, Offset, RecordBatch, TimestampMs, crc};

/// When the first record of every input was created.
const CREATED: i64 = 1_767_225_600_000;

/// How the records of an input look, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// What tables call it.
    pub name: &'static str,
    /// Bytes of each value.
    pub value_size: usize,
    /// Headers of each record.
    pub headers: usize,
    /// Records of each batch.
    pub records: usize,
    /// Batches.
    pub batches: usize,
}

impl Shape {
    /// Records of some 100 bytes, in 64 batches of 16 KiB.
    pub const SMALL: Self = Self { name: "100 B", value_size: 84, headers: 0, records: 163, batches: 64 };
    /// Records of some 150 bytes of which three headers are a third, in 64 batches of 16 KiB.
    pub const SMALL_HEADERS: Self =
        Self { name: "100 B + 3 headers", value_size: 84, headers: 3, records: 101, batches: 64 };
    /// Records of some 1 KB, in 64 batches of 16 KiB.
    pub const LARGE: Self = Self { name: "1 KB", value_size: 1000, headers: 0, records: 16, batches: 64 };
    /// Records of some 1 KB and three headers, in 64 batches of 16 KiB.
    pub const LARGE_HEADERS: Self =
        Self { name: "1 KB + 3 headers", value_size: 1000, headers: 3, records: 15, batches: 64 };
    /// All of them.
    pub const ALL: [Self; 4] = [Self::SMALL, Self::SMALL_HEADERS, Self::LARGE, Self::LARGE_HEADERS];

    /// The same records in two batches of three: for tests.
    #[must_use]
    pub fn tiny(self) -> Self {
        Self { records: 3, batches: 2, ..self }
    }
}

/// A record as it was meant.
#[derive(Debug, Clone)]
pub struct Meant {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp.
    pub timestamp: i64,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Its headers.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Batches one behind the other, and what a walk over them must come to.
#[derive(Debug, Clone)]
pub struct Input {
    /// How it looks.
    pub shape: Shape,
    /// The batches.
    pub bytes: Vec<u8>,
    /// Bytes of the batches as they are without a codec: what figures count.
    pub plain_size: usize,
    /// The records of each batch.
    pub meant: Vec<Vec<Meant>>,
    /// What [`mix`] and [`mix_header`] come to over all records.
    pub records_hash: u64,
    /// What [`mix_batch`] comes to over all batches.
    pub headers_hash: u64,
}

impl Input {
    /// Uncompressed batches.
    pub fn plain(shape: Shape) -> Self {
        let mut input = Self {
            shape,
            bytes: Vec::new(),
            plain_size: 0,
            meant: Vec::new(),
            records_hash: 0,
            headers_hash: 0,
        };
        let mut offset = 0;
        for _ in 0..shape.batches {
            let records: Vec<Meant> = (0..shape.records).map(|index| meant(shape, offset, index)).collect();
            offset += i64::try_from(shape.records).expect("few records");
            let batch = build(&records);
            input.records_hash = input.records_hash.wrapping_add(hash_of(&records));
            input.bytes.extend_from_slice(&batch);
            input.meant.push(records);
        }
        input.plain_size = input.bytes.len();
        input.headers_hash = input.hash_of_headers();
        input
    }

    /// The same batches with their records compressed.
    ///
    /// # Errors
    /// If there is no such codec, or its library fails.
    pub fn compressed(shape: Shape, codec: &str) -> Result<Self> {
        let plain = Self::plain(shape);
        let mut bytes = Vec::new();
        for batch in BatchReader::new(&plain.bytes) {
            bytes.extend_from_slice(&compress(batch?.bytes(), codec)?);
        }
        let mut input = Self { bytes, ..plain };
        input.headers_hash = input.hash_of_headers();
        Ok(input)
    }

    /// Where each batch starts and ends, by the length fields alone.
    pub fn frames(&self) -> Vec<&[u8]> {
        let (mut rest, mut frames) = (self.bytes.as_slice(), Vec::new());
        while let Some(length) = rest.get(8..12) {
            let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
            let (frame, behind) = rest.split_at(usize::try_from(length).expect("it is built") + 12);
            frames.push(frame);
            rest = behind;
        }
        frames
    }

    /// [`mix_batch`] over the bytes at their places, without a decoder.
    fn hash_of_headers(&self) -> u64 {
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        self.frames().iter().fold(0, |hash, frame| {
            let (size, crc) = (frame.len(), number(&frame[17..21]));
            let crc = u32::try_from(crc).expect("four bytes");
            let (base, count) = (number(&frame[..8]).cast_signed(), number(&frame[57..61]));
            hash.wrapping_add(mix_batch(base, size, crc, i32::try_from(count).expect("it is built")))
        })
    }
}

/// A number for a record without its headers.
#[inline]
pub fn mix(offset: i64, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> u64 {
    offset
        .cast_unsigned()
        .wrapping_add(timestamp.cast_unsigned().wrapping_mul(3))
        .wrapping_add(part(key).wrapping_mul(5))
        .wrapping_add(part(value).wrapping_mul(7))
}

/// A number for a header.
#[inline]
pub fn mix_header(key: &[u8], value: Option<&[u8]>) -> u64 {
    part(Some(key)).wrapping_mul(11).wrapping_add(part(value).wrapping_mul(13))
}

/// A number for a batch's header.
#[inline]
pub fn mix_batch(base_offset: i64, size: usize, crc: u32, count: i32) -> u64 {
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    base_offset
        .cast_unsigned()
        .wrapping_add(size.wrapping_mul(3))
        .wrapping_add(u64::from(crc).wrapping_mul(5))
        .wrapping_add(u64::from(count.cast_unsigned()).wrapping_mul(7))
}

/// Length and last byte; null and empty differ.
#[inline]
fn part(bytes: Option<&[u8]>) -> u64 {
    let Some(bytes) = bytes else { return 1 << 40 };
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    size.wrapping_add(u64::from(bytes.last().copied().unwrap_or(1)) << 32)
}

/// The batch that holds these records.
///
/// # Panics
/// If they are no batch.
pub fn build(records: &[Meant]) -> Vec<u8> {
    let base = records.first().map_or(0, |first| first.offset);
    let mut builder = BatchBuilder::new().base_offset(Offset::new(base).expect("not negative"));
    for record in records {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            record.headers.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
        let time = TimestampMs::new(record.timestamp);
        builder = builder.record_with_headers(time, Some(&record.key), Some(&record.value), &headers);
    }
    builder.build().expect("a batch").to_vec()
}

fn hash_of(records: &[Meant]) -> u64 {
    let mut hash = 0_u64;
    for record in records {
        hash =
            hash.wrapping_add(mix(record.offset, record.timestamp, Some(&record.key), Some(&record.value)));
        for (key, value) in &record.headers {
            hash = hash.wrapping_add(mix_header(key, Some(value)));
        }
    }
    hash
}

fn meant(shape: Shape, base: i64, index: usize) -> Meant {
    let index = i64::try_from(index).expect("few records");
    let offset = base + index;
    let headers = (0..shape.headers).map(|number| {
        (
            format!("trace-{number}").into_bytes(),
            format!("{:08x}", offset.wrapping_mul(2_654_435_761)).into_bytes(),
        )
    });
    Meant {
        offset,
        // Records of one batch lie a few milliseconds apart.
        timestamp: CREATED + base + index * 3,
        key: offset.to_be_bytes().to_vec(),
        value: value(offset.cast_unsigned(), shape.value_size),
        headers: headers.collect(),
    }
}

/// Text that compresses about as well as JSON does.
fn value(seed: u64, size: usize) -> Vec<u8> {
    let mut value = Vec::new();
    let mut state = seed;
    while value.len() < size {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write!(value, "{{\"id\":{},\"name\":\"user-{}\"}},", state >> 44, state >> 56).expect("memory");
    }
    value.truncate(size);
    value
}

/// One batch with its records compressed.
fn compress(batch: &[u8], codec: &str) -> Result<Vec<u8>> {
    let (header, records) = batch.split_at_checked(HEADER_SIZE).context("a batch")?;
    let (bits, records) = match codec {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(records)?;
            (1, encoder.finish()?)
        }
        "snappy" => (2, snap::raw::Encoder::new().compress_vec(records)?),
        "lz4" => {
            let block = lz4_flex::block::compress(records);
            let size = u32::try_from(block.len())?.to_le_bytes();
            let frame = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
            (3, [&frame[..], &size, &block, &[0; 4]].concat())
        }
        "zstd" => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3)?;
            encoder.write_all(records)?;
            (4, encoder.finish()?)
        }
        "none" => (0, records.to_vec()),
        other => bail!("no codec {other:?}"),
    };
    let mut batch = [header, &records].concat();
    batch[22] |= bits;
    let length = i32::try_from(batch.len() - 12)?;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc::batch_crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    RecordBatch::parse(&batch)?;
    Ok(batch)
}
