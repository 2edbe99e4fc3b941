//! A roll with very many producers: how long appends wait beside the snapshot that belongs to it.
//!
//! Question: with a million producers known, how long does an append take until it is durable, across the roll of a
//! segment, if the snapshot of the producers is written at once, as Kafka does under its lock, and if it is written
//! beside the appends?
//! Unit: microseconds from an append to its durability, one append at a time, 1 KiB each, on the wall: somebody waits.
//! Bound: beside the appends, a step of the snapshot encodes 2,048 producers and submits one write of 94 KB or one sync.
//! Run: `cargo bench -p weir-benches --bench roll -- --runs 5 --dir DIR`, DIR on the disk that is meant.
//!
//! A run appends until a segment is left, takes the appends from there on, and goes on to the next way. Both ways have
//! the roll itself: the old segment synced, the new one named. `cargo test` goes over a tiny log once.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints its figures and owns a clock"
)]

use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use weir_benches::figures::{Figures, quantile};
use weir_format::{BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use weir_log::{AppendParams, LogConfig, OpenOptions, UnifiedLog};
use weir_segment::SegmentConfig;
use weir_segment::io::select::{IoConfig, WantedBackend, select};
use weir_segment::io::{Io, Wait, durable};

const NOW: TimestampMs = TimestampMs::new(1_767_225_600_000);

#[derive(Clone, Copy)]
struct Size {
    producers: i64,
    segment_bytes: u32,
    /// Appends from the roll on that are looked at.
    window: usize,
}

const MEASURED: Size = Size { producers: 1_000_000, segment_bytes: 8 << 20, window: 2_000 };
const TINY: Size = Size { producers: 5_000, segment_bytes: 64 << 10, window: 40 };

#[derive(Clone, Copy)]
enum Way {
    /// Encoded and written in the append that leaves the segment.
    AtOnce,
    /// In steps between appends.
    Beside,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::AtOnce => "at once",
            Way::Beside => "beside",
        }
    }
}

struct Bench {
    io: Box<dyn Io>,
    log: UnifiedLog,
    dir: PathBuf,
    sequence: i32,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let after =
        |flag: &str| words.iter().position(|word| word == flag).and_then(|at| words.get(at + 1)).cloned();
    let runs: u32 = after("--runs").map_or(5, |word| word.parse().expect("a number"));
    let measured = words.iter().any(|word| word == "--bench");
    let (size, runs) = if measured { (MEASURED, runs) } else { (TINY, 1) };
    let parent = after("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(parent).expect("a folder");
    let mut bench = Bench::open(folder.path(), size);
    let mut figures = Figures::default();
    for _ in 0..runs {
        for way in [Way::AtOnce, Way::Beside] {
            bench.run(size, way, &mut figures);
        }
    }
    if measured {
        print!("{}", figures.table());
    } else {
        assert_eq!(bench.log.stats().producers, usize::try_from(size.producers).expect("few"));
        println!("test roll ... ok");
    }
}

fn params() -> AppendParams {
    AppendParams::client(LeaderEpoch::ZERO, NOW)
}

fn batch(id: i64, sequence: i32, value: &[u8]) -> BytesMut {
    BatchBuilder::new()
        .producer(ProducerId::new(id).expect("not negative"), ProducerEpoch::ZERO, Sequence::new(sequence))
        .record(NOW, None, Some(value))
        .build()
        .expect("a batch")
}

impl Bench {
    /// A log that knows so many producers, all of it durable.
    fn open(folder: &Path, size: Size) -> Self {
        let (mut io, selected) = select(WantedBackend::Auto, &IoConfig::default()).expect("a backend");
        println!("{selected}");
        let dir = folder.join("t-0");
        let config = LogConfig {
            segment: SegmentConfig { segment_bytes: size.segment_bytes, ..SegmentConfig::default() },
            ..LogConfig::default()
        };
        let options = OpenOptions {
            side_dir: folder.join("t-0.weir"),
            clean_shutdown: false,
            recovery_point: Offset::ZERO,
            log_start_offset: Offset::ZERO,
            now: NOW,
        };
        let (log, _) = UnifiedLog::open(&mut *io, &dir, config, options).expect("an empty log");
        let mut bench = Self { io, log, dir, sequence: 1 };
        for id in 0..size.producers {
            bench.log.append(&mut *bench.io, batch(id, 0, b"v"), &params()).expect("taken");
            if id % 10_000 == 0 {
                bench.log.sync(&mut *bench.io).expect("synced");
            }
        }
        bench.log.sync(&mut *bench.io).expect("synced");
        bench.log.finish_snapshot(&mut *bench.io);
        bench
    }

    fn run(&mut self, size: Size, way: Way, figures: &mut Figures) {
        let mut taken = Vec::new();
        let mut rolled = None;
        let mut steps = 0_u32;
        while taken.len() < size.window || self.log.is_writing_snapshot() {
            let start = Instant::now();
            let is_roll = self.append(way);
            if rolled.is_none() && is_roll {
                rolled = Some(start);
                if let Way::AtOnce = way {
                    self.write_at_once();
                }
            }
            self.until_durable(way, &mut steps);
            if rolled.is_some() && taken.len() < size.window {
                taken.push(u64::try_from(start.elapsed().as_nanos()).expect("short"));
            }
            if let (Way::AtOnce, true) = (way, is_roll) {
                // What was measured did its work already; this one is not looked at.
                self.log.finish_snapshot(&mut *self.io);
            }
        }
        let took = rolled.expect("a segment was left").elapsed();
        let slow = taken.iter().filter(|nanoseconds| **nanoseconds > 10_000_000).count();
        let mut micros = |share| quantile(&mut taken, share) as f64 / 1e3;
        for (column, share) in [("us p50", 0.5), ("us p99", 0.99), ("us p99.9", 0.999), ("us max", 1.0)] {
            figures.add(way.name(), column, micros(share));
        }
        figures.add(way.name(), "over 10 ms", slow as f64);
        if let Way::Beside = way {
            figures.add(way.name(), "ms until named", took.as_secs_f64() * 1e3);
            figures.add(way.name(), "steps", f64::from(steps));
        }
    }

    /// Whether the append left a segment.
    fn append(&mut self, _: Way) -> bool {
        let before = self.log.is_writing_snapshot();
        let id = i64::from(self.sequence % 97);
        let sequence = 1 + self.sequence / 97;
        let sequence = if self.sequence % 97 == 0 { sequence - 1 } else { sequence };
        self.sequence += 1;
        let records = batch(id, sequence.max(1), &[b'v'; 950]);
        // Whose turn it is does not matter, only that they are known.
        let _ = self.log.append(&mut *self.io, records, &params());
        self.log.is_writing_snapshot() && !before
    }

    /// As it was done before: in one go, where the segment is left.
    fn write_at_once(&mut self) {
        let bytes = self.log.producer_state().snapshot();
        durable::replace(&mut *self.io, &self.dir.join("at-once"), Bytes::from(bytes)).expect("written");
    }

    /// As a shard does it for one client that waits.
    fn until_durable(&mut self, way: Way, steps: &mut u32) {
        let end = self.log.log_end_offset();
        let mut done = Vec::new();
        while self.log.view().high_watermark < end {
            self.log.flush(&mut *self.io);
            self.log.sync_begin(&mut *self.io);
            let mut again = false;
            if let Way::Beside = way
                && self.log.is_writing_snapshot()
            {
                again = self.log.snapshot_step(&mut *self.io);
                *steps += 1;
            }
            let wait = if again { Wait::Poll } else { Wait::Block };
            self.io.reap(wait, &mut done).expect("a backend that works");
            for done in done.drain(..) {
                self.log.on_done(done).map_err(|_| "nobody else's").expect("ours");
            }
        }
    }
}
