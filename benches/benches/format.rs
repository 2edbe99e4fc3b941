//! Each work of `weir_benches::format` alone, in bytes a second.
//!
//! Question, unit and bound: see `weir_benches::format`.
//! Run: `cargo bench -p weir-benches --bench format`. `cargo test` runs everything once, and either way the hash of each
//! is checked.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::BytesCount;
use weir_benches::format::{Input, Shape, work};

#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

fn shape(name: &str) -> Shape {
    *Shape::ALL.iter().find(|shape| shape.name == name).expect("one of the shapes")
}

fn names() -> impl Iterator<Item = &'static str> {
    Shape::ALL.into_iter().map(|shape| shape.name)
}

fn run(bencher: Bencher<'_, '_>, size: usize, hash: u64, work: impl Fn() -> u64 + Sync) {
    bencher.counter(BytesCount::new(size)).bench(|| assert_eq!(work(), hash));
}

#[divan::bench]
fn crc_fast_alone(bencher: Bencher<'_, '_>) {
    let input = Input::plain(Shape::LARGE);
    let frames = input.frames();
    run(bencher, input.bytes.len(), work::crc_ours(&frames), || work::crc_fast_alone(black_box(&frames)));
}

#[divan::bench]
fn crc_ours(bencher: Bencher<'_, '_>) {
    let input = Input::plain(Shape::LARGE);
    let frames = input.frames();
    run(bencher, input.bytes.len(), work::crc_fast_alone(&frames), || work::crc_ours(black_box(&frames)));
}

#[divan::bench]
fn header_walk_with_crc(bencher: Bencher<'_, '_>) {
    let input = Input::plain(Shape::LARGE);
    run(bencher, input.bytes.len(), input.headers_hash, || {
        work::header_walk_with_crc(black_box(&input.bytes))
    });
}

#[divan::bench]
fn header_walk(bencher: Bencher<'_, '_>) {
    let input = Input::plain(Shape::LARGE);
    run(bencher, input.bytes.len(), input.headers_hash, || work::header_walk(black_box(&input.bytes)));
}

#[divan::bench(args = names())]
fn record_walk_with_crc(bencher: Bencher<'_, '_>, name: &str) {
    let input = Input::plain(shape(name));
    run(bencher, input.bytes.len(), input.records_hash, || {
        work::record_walk_with_crc(black_box(&input.bytes))
    });
}

#[divan::bench(args = names())]
fn record_walk(bencher: Bencher<'_, '_>, name: &str) {
    let input = Input::plain(shape(name));
    run(bencher, input.bytes.len(), input.records_hash, || work::record_walk(black_box(&input.bytes)));
}

/// Bytes are counted as they are without a codec.
#[divan::bench(args = ["none", "gzip", "snappy", "lz4", "zstd"])]
fn record_stream(bencher: Bencher<'_, '_>, codec: &str) {
    let input = Input::compressed(Shape::LARGE, codec).expect("a codec");
    run(bencher, input.plain_size, input.records_hash, || work::record_stream(black_box(&input.bytes)));
}

#[divan::bench(args = names())]
fn builder(bencher: Bencher<'_, '_>, name: &str) {
    let input = Input::plain(shape(name));
    run(bencher, input.bytes.len(), input.headers_hash, || work::builder(black_box(&input)));
}
