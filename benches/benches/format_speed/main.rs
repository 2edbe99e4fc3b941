//! Batches and records against plain baselines and against `kafka-protocol`, alternated in one run.
//!
//! Question: how much of the checksum library's speed is left to a walk over batches, and how does reading every record
//! compare with the decoder that a Rust program would otherwise use?
//! Unit: GB per second of this thread's CPU time, which others on the machine disturb less than its time on the wall,
//! and ratios of medians over the samples of one run.
//! Bound: see `weir_benches::format`; no work of ours here allocates or copies.
//! Run: `cargo xtask bench format`, or `cargo bench -p weir-benches --bench format_speed -- --runs 9`.
//!
//! What each side does in the record walks: both check magic and CRC, read every field of every record and look at
//! every key, value and header with the same function. `kafka-protocol` cannot be asked to leave the CRC out, so
//! "without CRC" is its time less that of its own CRC alone on the same bytes, in the same round.
//! `cargo test` goes once over tiny inputs and checks the hashes.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod theirs;

use std::hint::black_box;

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use weir_benches::format::{Input, Shape, work};

/// One thing that is measured: its name, its bytes, what it must answer.
struct Item<'a> {
    name: String,
    size: usize,
    hash: u64,
    work: Box<dyn Fn() -> u64 + 'a>,
    /// How often it runs in one sample.
    repeats: u32,
    /// Nanoseconds of one run, sample by sample.
    samples: Vec<f64>,
}

impl<'a> Item<'a> {
    fn new(name: String, size: usize, hash: u64, work: impl Fn() -> u64 + 'a) -> Self {
        Self { name, size, hash, work: Box::new(work), repeats: 1, samples: Vec::new() }
    }

    /// Runs it `repeats` times; nanoseconds of one.
    fn sample(&self) -> f64 {
        let start = cpu_nanoseconds();
        for _ in 0..self.repeats {
            assert_eq!((self.work)(), self.hash, "{} reads something else", self.name);
        }
        (cpu_nanoseconds() - start) / f64::from(self.repeats)
    }

    fn gigabytes(&self, nanoseconds: f64) -> f64 {
        self.size as f64 / nanoseconds
    }

    fn median(&self) -> f64 {
        median(&self.samples)
    }

    fn best(&self) -> f64 {
        self.samples.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// What this thread has computed so far.
fn cpu_nanoseconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str, default: u32| {
        let place = words.iter().position(|word| word == flag);
        place.and_then(|place| words.get(place + 1)).map_or(default, |word| word.parse().expect("a number"))
    };
    // cargo passes this word to benchmarks and not to tests.
    let measured = words.iter().any(|word| word == "--bench");
    let runs = if measured { value("--runs", 9) } else { 1 };
    let milliseconds = if measured { value("--milliseconds", 40) } else { 0 };

    let shapes = Shape::ALL.map(|shape| if measured { shape } else { shape.tiny() });
    let inputs: Vec<Input> = shapes.into_iter().map(Input::plain).collect();
    let large = inputs.iter().find(|input| input.shape.name == Shape::LARGE.name).expect("it is one of them");
    let packed: Vec<(&str, Input)> = ["none", "gzip", "snappy", "lz4", "zstd"]
        .map(|codec| (codec, Input::compressed(large.shape, codec).expect("a codec")))
        .into();
    let shared: Vec<Bytes> = inputs.iter().map(|input| Bytes::from(input.bytes.clone())).collect();
    let frames: Vec<Vec<&[u8]>> = inputs.iter().map(Input::frames).collect();

    let parts = &large.frames();

    let mut items = Vec::new();
    let whole = u64::from(crc_fast::crc32_iscsi(&large.bytes));
    let size = large.bytes.len();
    items.push(Item::new("crc, one buffer: crc-fast".to_owned(), size, whole, || {
        u64::from(crc_fast::crc32_iscsi(black_box(&large.bytes)))
    }));
    items.push(Item::new("crc, one buffer: ours".to_owned(), size, whole, || {
        u64::from(weir_format::crc::crc32c(black_box(&large.bytes)))
    }));
    let sums = work::crc_fast_alone(parts);
    items.push(Item::new("crc, batches: crc-fast".to_owned(), size, sums, move || {
        work::crc_fast_alone(black_box(parts))
    }));
    items.push(Item::new("crc, batches: ours".to_owned(), size, sums, move || {
        work::crc_ours(black_box(parts))
    }));
    items.push(Item::new("header walk with crc".to_owned(), size, large.headers_hash, || {
        work::header_walk_with_crc(black_box(&large.bytes))
    }));
    items.push(Item::new("header walk without crc".to_owned(), size, large.headers_hash, || {
        work::header_walk(black_box(&large.bytes))
    }));
    for ((input, shared), frames) in inputs.iter().zip(&shared).zip(&frames) {
        let (name, size, hash) = (input.shape.name, input.bytes.len(), input.records_hash);
        items.push(Item::new(format!("{name}: kafka-protocol"), size, hash, || {
            theirs::record_walk_with_crc(black_box(shared))
        }));
        items.push(Item::new(format!("{name}: its crc alone"), size, work::crc_ours(frames), || {
            theirs::crc_alone(black_box(frames))
        }));
        items.push(Item::new(format!("{name}: ours"), size, hash, || {
            work::record_walk_with_crc(black_box(&input.bytes))
        }));
        items.push(Item::new(format!("{name}: ours without crc"), size, hash, || {
            work::record_walk(black_box(&input.bytes))
        }));
    }
    for (codec, input) in &packed {
        items.push(Item::new(
            format!("record stream, {codec}"),
            input.plain_size,
            input.records_hash,
            || work::record_stream(black_box(&input.bytes)),
        ));
    }
    items.push(Item::new("builder, 1 KB".to_owned(), size, large.headers_hash, || {
        work::builder(black_box(large))
    }));
    measure(&mut items, runs, milliseconds);
    if measured {
        print(&items);
        for input in &inputs {
            println!("{}: {} records in {} bytes", input.shape.name, records(input), input.bytes.len());
        }
        ratios(&items, &inputs);
    } else {
        println!("test format_speed ... ok ({} works answered their hashes)", items.len());
    }
}

fn records(input: &Input) -> usize {
    input.shape.records * input.shape.batches
}

/// Each item once in every round, so that what disturbs one disturbs its neighbours as well.
fn measure(items: &mut [Item<'_>], runs: u32, milliseconds: u32) {
    for item in items.iter_mut() {
        // Twice: the first warms up.
        item.sample();
        let once = item.sample();
        let repeats = (f64::from(milliseconds) * 1e6 / once).clamp(1.0, 1e6);
        item.repeats = format!("{repeats:.0}").parse().expect("a number");
    }
    for _ in 0..runs {
        for item in items.iter_mut() {
            let sample = item.sample();
            item.samples.push(sample);
        }
    }
}

fn print(items: &[Item<'_>]) {
    println!("{:<36} {:>8} {:>8}   GB/s, every sample", "work", "median", "best");
    for item in items {
        let samples: Vec<String> =
            item.samples.iter().map(|sample| format!("{:.2}", item.gigabytes(*sample))).collect();
        let (median, best) = (item.gigabytes(item.median()), item.gigabytes(item.best()));
        println!("{:<36} {median:>8.2} {best:>8.2}   {}", item.name, samples.join(" "));
    }
}

fn ratios(items: &[Item<'_>], inputs: &[Input]) {
    let find = |name: &str| items.iter().find(|item| item.name == name).expect("it was measured");
    let ratio = |what: &str, wanted: &str, slow: f64, fast: f64, worst: f64| {
        println!("{what:<58} {:>6.2}   best {worst:>6.2}   wanted {wanted}", slow / fast);
    };
    println!("{:<58} {:>6}", "ratio of medians", "");
    for kind in ["one buffer", "batches"] {
        let (ours, base) = (find(&format!("crc, {kind}: ours")), find(&format!("crc, {kind}: crc-fast")));
        let what = format!("crc, {kind}: ours / crc-fast");
        ratio(&what, ">= 0.80", base.median(), ours.median(), base.best() / ours.best());
    }
    let (walk, base) = (find("header walk with crc"), find("crc, batches: crc-fast"));
    ratio(
        "header walk with crc / crc-fast alone",
        ">= 0.80 or 15 GB/s",
        base.median(),
        walk.median(),
        base.best() / walk.best(),
    );
    for input in inputs {
        let name = input.shape.name;
        let theirs = find(&format!("{name}: kafka-protocol"));
        let sum = find(&format!("{name}: its crc alone"));
        let (ours, bare) = (find(&format!("{name}: ours")), find(&format!("{name}: ours without crc")));
        let what = format!("{name}, with crc: ours / kafka-protocol");
        ratio(&what, ">= 5", theirs.median(), ours.median(), theirs.best() / ours.best());
        let rest: Vec<f64> =
            theirs.samples.iter().zip(&sum.samples).map(|(whole, crc)| whole - crc).collect();
        let best = rest.iter().copied().fold(f64::INFINITY, f64::min);
        let what = format!("{name}, without crc: ours / kafka-protocol less its crc");
        ratio(&what, ">= 5", median(&rest), bare.median(), best / bare.best());
        println!(
            "{:<58} {:.1} ns theirs ({:.1} without crc), {:.1} ns ours ({:.1} without crc)",
            "  a record",
            theirs.median() / records(input) as f64,
            median(&rest) / records(input) as f64,
            ours.median() / records(input) as f64,
            bare.median() / records(input) as f64,
        );
    }
}
