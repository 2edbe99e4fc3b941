//! Every work over tiny inputs, and `kafka-protocol` as a second opinion.

#[path = "../../benches/format_speed/theirs.rs"]
mod theirs;

use std::path::Path;

use bytes::Bytes;
use kafka_protocol::records::{Compression, RecordBatchDecoder};
use weir_benches::format::{Input, Shape, work};
use weir_format::{BatchReader, Codec};

fn check_work(name: &str, shape: Shape, found: u64, meant: u64) {
    assert_eq!(found, meant, "{name} over {}", shape.name);
}

#[test]
fn every_work_reads_what_was_meant() {
    for shape in Shape::ALL.map(Shape::tiny) {
        let input = Input::plain(shape);
        let frames = input.frames();
        assert_eq!(frames.len(), shape.batches, "{}", shape.name);
        check_work("crc", shape, work::crc_ours(&frames), theirs::crc_alone(&frames));
        check_work("crc-fast", shape, work::crc_fast_alone(&frames), theirs::crc_alone(&frames));
        check_work("header walk", shape, work::header_walk(&input.bytes), input.headers_hash);
        check_work("with crc", shape, work::header_walk_with_crc(&input.bytes), input.headers_hash);
        check_work("record walk", shape, work::record_walk(&input.bytes), input.records_hash);
        check_work("with crc", shape, work::record_walk_with_crc(&input.bytes), input.records_hash);
        check_work("builder", shape, work::builder(&input), input.headers_hash);
        let shared = Bytes::from(input.bytes.clone());
        check_work("kafka-protocol", shape, theirs::record_walk_with_crc(&shared), input.records_hash);
        for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
            let packed = Input::compressed(shape, codec).expect("a codec");
            check_work(codec, shape, work::record_stream(&packed.bytes), input.records_hash);
            let headers = work::header_walk(&packed.bytes);
            check_work(codec, shape, headers, packed.headers_hash);
        }
    }
}

#[test]
fn the_hashes_are_those_that_they_always_were() {
    // Pinned, so that input and work cannot change their minds together.
    let hashes = Shape::ALL.map(Shape::tiny).map(|shape| {
        let input = Input::plain(shape);
        (input.records_hash, input.headers_hash)
    });
    let pinned = [
        (45_360_682_622_744, 30_311_272_769),
        (137_784_083_868_782, 16_644_856_238),
        (45_120_164_492_640, 22_291_737_582),
        (137_543_565_738_678, 16_468_038_881),
    ];
    assert_eq!(hashes, pinned);
}

#[test]
fn the_shapes_are_batches_of_16_kib() {
    for shape in Shape::ALL {
        let input = Input::plain(Shape { batches: 1, ..shape });
        assert!(input.bytes.len().abs_diff(16 << 10) < 700, "{}: {} bytes", shape.name, input.bytes.len());
    }
}

/// One record, in a form that both decoders can be brought to.
#[derive(Debug, PartialEq)]
struct Flat {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What we read, or `None` if it is no batch of readable records.
fn ours(bytes: &[u8]) -> Option<Vec<Flat>> {
    let mut flat = Vec::new();
    for batch in BatchReader::new(bytes) {
        let mut records = batch.ok()?.record_stream(1 << 20);
        while let Some(record) = records.next_record() {
            let record = record.ok()?;
            let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
            flat.push(Flat {
                offset: record.offset.get(),
                timestamp: record.timestamp.get(),
                key: owned(record.key),
                value: owned(record.value),
                headers: record.headers().map(|header| (header.key.to_vec(), owned(header.value))).collect(),
            });
        }
    }
    Some(flat)
}

/// What `kafka-protocol` reads of bytes that we have read.
fn theirs(bytes: &[u8]) -> Result<Vec<Flat>, String> {
    let mut rest = Bytes::copy_from_slice(bytes);
    let mut sets = Vec::new();
    while !rest.is_empty() {
        // Its own codecs are left out: two of them are C libraries, of which we link one ourselves.
        let set = RecordBatchDecoder::decode_with_custom_compression(&mut rest, Some(decompress));
        sets.push(set.map_err(|error| format!("{error:#}"))?);
    }
    let owned = |bytes: &Option<Bytes>| bytes.as_ref().map(|bytes| bytes.to_vec());
    Ok(sets
        .into_iter()
        .flat_map(|set| set.records)
        .map(|record| Flat {
            offset: record.offset,
            timestamp: record.timestamp,
            key: owned(&record.key),
            value: owned(&record.value),
            headers: record
                .headers
                .iter()
                .map(|(key, value)| (key.as_bytes().to_vec(), owned(value)))
                .collect(),
        })
        .collect())
}

fn decompress(bytes: &mut Bytes, codec: Compression) -> anyhow::Result<Bytes> {
    let codec = match codec {
        Compression::None => Codec::None,
        Compression::Gzip => Codec::Gzip,
        Compression::Snappy => Codec::Snappy,
        Compression::Lz4 => Codec::Lz4,
        Compression::Zstd => Codec::Zstd,
    };
    Ok(weir_format::codec::decompress(codec, bytes, 1 << 20)?.into())
}

/// A batch that `kafka-protocol` reads otherwise than Kafka does, and what it makes of a record.
type Difference = (&'static str, fn(&mut Flat));

const DIFFERENT: &[Difference] = &[
    // Its headers are a map: of two with one key it keeps the last, at the place of the first.
    ("v2-headers-nulls", |record| {
        let mut kept: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for (key, value) in record.headers.drain(..) {
            match kept.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = value,
                None => kept.push((key, value)),
            }
        }
        record.headers = kept;
    }),
    // It drops the batch's largest timestamp, which under LogAppendTime is every record's, and answers the producer's.
    ("v2-logappendtime", |record| record.timestamp = 1_767_225_600_000 + record.offset - 42),
];

#[test]
fn kafka_protocol_reads_the_same_records_of_golden_batches() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/format/testdata/batches");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .expect("golden data")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let (mut same, mut different) = (0, Vec::new());
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "bin")) {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let bytes = std::fs::read(path).expect("golden data");
        // Their decoder reserves memory by the batch's word, so it is not given what we refuse.
        let Some(mut flat) = ours(&bytes) else { continue };
        let found = theirs(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        if found == flat {
            same += 1;
            continue;
        }
        if let Some((_, difference)) = DIFFERENT.iter().find(|(known, _)| *known == name) {
            flat.iter_mut().for_each(difference);
        }
        assert_eq!(found, flat, "{name}");
        different.push(name);
    }
    let known: Vec<&str> = DIFFERENT.iter().map(|(name, _)| *name).collect();
    assert_eq!(different, known);
    assert!(same >= 40, "{same} batches are the same");
}

#[test]
fn walks_allocate_nothing() {
    for shape in Shape::ALL.map(|shape| Shape { batches: 4, ..shape }) {
        let input = Input::plain(shape);
        let shared = Bytes::from(input.bytes.clone());
        let print = |what: &str, work: &mut dyn FnMut() -> u64| {
            let mut hash = 0;
            let used = allocation_counter::measure(|| hash = work());
            assert_ne!(hash, 0);
            let batches = 4;
            println!(
                "allocations a batch: {:<18} {what:<24} {:>5}, {:>7} bytes",
                shape.name,
                used.count_total / batches,
                used.bytes_total / batches
            );
            used.count_total
        };
        assert_eq!(print("header walk with crc", &mut || work::header_walk_with_crc(&input.bytes)), 0);
        assert_eq!(print("record walk with crc", &mut || work::record_walk_with_crc(&input.bytes)), 0);
        // The counter counts: their decoder makes one list a batch at least.
        assert!(print("kafka-protocol", &mut || theirs::record_walk_with_crc(&shared)) >= 4);
        print("builder", &mut || work::builder(&input));
        for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
            let packed = Input::compressed(shape, codec).expect("a codec");
            print(&format!("stream, {codec}"), &mut || work::record_stream(&packed.bytes));
        }
    }
}
