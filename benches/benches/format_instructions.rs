//! Instructions of each work of `weir_benches::format`, counted by callgrind: the same on every machine of a kind.
//!
//! Question, unit and bound: see `weir_benches::format`. Valgrind hides AVX-512, so the CRC takes another path here
//! than in a measured run.
//! Run: `cargo xtask bench format`, which looks for the runner; it must be of the library's version.

#![expect(missing_docs, reason = "the macros make public items")]

#[path = "format_speed/theirs.rs"]
mod theirs;

use std::hint::black_box;

use bytes::Bytes;
use gungraun::{library_benchmark, library_benchmark_group, main};
use weir_benches::format::{Input, Shape, work};

fn plain(shape: Shape) -> Input {
    Input::plain(shape)
}

/// With the bytes as their decoder takes them.
fn shared(shape: Shape) -> (Input, Bytes) {
    let input = Input::plain(shape);
    let bytes = Bytes::from(input.bytes.clone());
    (input, bytes)
}

fn frames(shape: Shape) -> Vec<Vec<u8>> {
    Input::plain(shape).frames().into_iter().map(<[u8]>::to_vec).collect()
}

fn compressed(codec: &str) -> Input {
    Input::compressed(Shape::LARGE, codec).expect("a codec")
}

#[library_benchmark]
#[bench::batches(plain(Shape::LARGE))]
fn crc(input: Input) -> Input {
    let frames = input.frames();
    black_box(work::crc_ours(black_box(&frames)));
    drop(frames);
    input
}

#[library_benchmark]
#[bench::batches(plain(Shape::LARGE))]
fn header_walk(input: Input) -> Input {
    assert_eq!(work::header_walk(black_box(&input.bytes)), input.headers_hash);
    input
}

#[library_benchmark]
#[bench::small(plain(Shape::SMALL))]
#[bench::small_headers(plain(Shape::SMALL_HEADERS))]
#[bench::large(plain(Shape::LARGE))]
#[bench::large_headers(plain(Shape::LARGE_HEADERS))]
fn record_walk(input: Input) -> Input {
    assert_eq!(work::record_walk(black_box(&input.bytes)), input.records_hash);
    input
}

#[library_benchmark]
#[bench::small(plain(Shape::SMALL))]
#[bench::small_headers(plain(Shape::SMALL_HEADERS))]
#[bench::large(plain(Shape::LARGE))]
#[bench::large_headers(plain(Shape::LARGE_HEADERS))]
fn record_walk_with_crc(input: Input) -> Input {
    assert_eq!(work::record_walk_with_crc(black_box(&input.bytes)), input.records_hash);
    input
}

#[library_benchmark]
#[bench::small(shared(Shape::SMALL))]
#[bench::small_headers(shared(Shape::SMALL_HEADERS))]
#[bench::large(shared(Shape::LARGE))]
#[bench::large_headers(shared(Shape::LARGE_HEADERS))]
fn kafka_protocol_with_crc((input, bytes): (Input, Bytes)) -> (Input, Bytes) {
    assert_eq!(theirs::record_walk_with_crc(black_box(&bytes)), input.records_hash);
    (input, bytes)
}

#[library_benchmark]
#[bench::small(frames(Shape::SMALL))]
#[bench::small_headers(frames(Shape::SMALL_HEADERS))]
#[bench::large(frames(Shape::LARGE))]
#[bench::large_headers(frames(Shape::LARGE_HEADERS))]
fn kafka_protocol_crc_alone(frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let borrowed: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    assert_ne!(black_box(theirs::crc_alone(black_box(&borrowed))), 0);
    frames
}

#[library_benchmark]
#[bench::none(compressed("none"))]
#[bench::gzip(compressed("gzip"))]
#[bench::snappy(compressed("snappy"))]
#[bench::lz4(compressed("lz4"))]
#[bench::zstd(compressed("zstd"))]
fn record_stream(input: Input) -> Input {
    assert_eq!(work::record_stream(black_box(&input.bytes)), input.records_hash);
    input
}

#[library_benchmark]
#[bench::small(plain(Shape::SMALL))]
#[bench::large(plain(Shape::LARGE))]
fn builder(input: Input) -> Input {
    assert_eq!(work::builder(black_box(&input)), input.headers_hash);
    input
}

library_benchmark_group!(
    name = format,
    benchmarks = [
        crc,
        header_walk,
        record_walk,
        record_walk_with_crc,
        kafka_protocol_with_crc,
        kafka_protocol_crc_alone,
        record_stream,
        builder
    ]
);

main!(library_benchmark_groups = format);
