//! Producer state: a batch applied, a barrier, an expiry, a snapshot written and loaded.
//!
//! Question: what does a batch cost beside so many known producers, and how long does a partition stand still when all
//! of them are forgotten, expire, are written or are loaded?
//! Unit: nanoseconds a batch and milliseconds, of this thread's CPU time, which others on the machine disturb less than
//! its time on the wall; that is printed beside where somebody waits for it.
//! Bound: a batch of a known producer is one search in a tree of ids and one entry changed in place, and allocates
//! nothing. A barrier touches no entry. A snapshot is one pass and one allocation, 46 bytes a producer.
//! Run: `cargo xtask bench psm`, or `cargo bench -p weir-benches --bench psm -- --runs 9`.
//!
//! Batches come from known producers in a random order, each with its next sequence, and are parsed before the clock
//! starts, but where it says "with the header". `cargo test` goes once over tiny states and checks what they end in.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints its figures and owns a clock"
)]

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use weir_benches::figures::Figures;
use weir_format::{
    BatchBuilder, MirrorPidReset, Offset, ProducerEpoch, ProducerId, RecordBatch, Sequence, TimestampMs,
};
use weir_psm::{AppendOrigin, Applied, Checked, ProducerStateManager, PsmConfig};

/// How large everything is.
#[derive(Clone, Copy)]
struct Size {
    /// Known producers beside a batch.
    beside: [usize; 3],
    /// Batches of one sample.
    batches: usize,
    /// Producers that a barrier forgets, and that a snapshot holds.
    all: usize,
    /// Of them, those that expire.
    idle: usize,
}

const MEASURED: Size =
    Size { beside: [1, 10_000, 1_000_000], batches: 100_000, all: 1_000_000, idle: 100_000 };
const TINY: Size = Size { beside: [1, 10, 100], batches: 200, all: 1_000, idle: 100 };

const EXPIRATION: Duration = Duration::from_secs(3_600);
/// When the idle ones wrote last.
const THEN: TimestampMs = TimestampMs::new(0);
const NOW: TimestampMs = TimestampMs::new(3_600_000);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let place = words.iter().position(|word| word == "--runs");
    let runs: u32 =
        place.and_then(|place| words.get(place + 1)).map_or(9, |word| word.parse().expect("a number"));
    // cargo passes this word to benchmarks and not to tests.
    let measured = words.iter().any(|word| word == "--bench");
    let (size, runs) = if measured { (MEASURED, runs) } else { (TINY, 1) };

    let mut figures = Figures::default();
    let apply = applies(size, runs, &mut figures);
    let whole = wholes(size, runs, &mut figures);
    if measured {
        print!("{}", figures.table());
        goals(&figures, size);
    } else {
        assert_eq!((apply, whole), (0xc89d_1845, 0xe153_0bb8), "the states that everything ends in");
        println!("test psm ... ok");
    }
}

fn row(what: &str, beside: usize) -> String {
    format!("{what}, {beside} known")
}

/// Batches beside so many producers; the CRC of all that is known afterwards.
fn applies(size: Size, runs: u32, figures: &mut Figures) -> u32 {
    let mut states: Vec<State> = size.beside.iter().map(|beside| State::new(*beside, size.batches)).collect();
    for _ in 0..runs {
        for state in &mut states {
            let beside = state.known;
            figures.add(&row("a batch of a client", beside), "ns", state.apply(AppendOrigin::Client, false));
            figures.add(
                &row("a batch of a mirror", beside),
                "ns",
                state.apply(AppendOrigin::Replication, false),
            );
            let with_header = state.apply(AppendOrigin::Replication, true);
            figures.add(&row("the same with the header", beside), "ns", with_header);
            figures.add(
                &row("plain: an id in a tree", beside),
                "ns",
                state.searched(&state.tree, BTreeMap::get),
            );
            figures.add(
                &row("plain: an id in a hash map", beside),
                "ns",
                state.searched(&state.hash, HashMap::get),
            );
        }
    }
    let known: Vec<u8> = states.iter().flat_map(|state| state.psm.snapshot()).collect();
    weir_format::crc::crc32c(&known)
}

/// A state, and batches for it.
struct State {
    known: usize,
    psm: ProducerStateManager,
    /// Whose batch comes when, over and over.
    order: Vec<i64>,
    /// How many came.
    done: usize,
    /// How many come in one sample.
    batches: usize,
    tree: BTreeMap<i64, u32>,
    hash: HashMap<i64, u32>,
}

/// So many are made ready before the clock starts: they fit into a cache, as a batch does that has just come in.
const READY: usize = 500;

impl State {
    fn new(known: usize, batches: usize) -> Self {
        let mut psm = ProducerStateManager::new(PsmConfig::default());
        let mut bytes = batch(THEN);
        for id in 0..number(known) {
            set_producer(&mut bytes, id, 0);
            let _ = append(&mut psm, &bytes);
        }
        Self {
            known,
            psm,
            order: shuffled(known),
            done: 0,
            batches,
            tree: (0..number(known)).map(|id| (id, 7)).collect(),
            hash: (0..number(known)).map(|id| (id, 7)).collect(),
        }
    }

    /// Nanoseconds of one batch.
    fn apply(&mut self, origin: AppendOrigin, with_header: bool) -> f64 {
        let mut ready = vec![batch(THEN); READY.min(self.batches)];
        let (mut took, mut applied) = (Duration::ZERO, 0);
        while applied < self.batches {
            for bytes in &mut ready {
                let sequence = i32::try_from(1 + self.done / self.known).expect("few");
                set_producer(bytes, self.order[self.done % self.known], sequence);
                self.done += 1;
            }
            took += if with_header {
                self.parse_and_apply(&ready, origin)
            } else {
                self.apply_parsed(&ready, origin)
            };
            applied += ready.len();
        }
        nanoseconds(took) / applied as f64
    }

    fn parse_and_apply(&mut self, ready: &[Vec<u8>], origin: AppendOrigin) -> Duration {
        let start = cpu();
        for bytes in ready {
            self.check_and_commit(&RecordBatch::parse_without_crc(bytes).expect("a batch"), origin);
        }
        cpu() - start
    }

    fn apply_parsed(&mut self, ready: &[Vec<u8>], origin: AppendOrigin) -> Duration {
        let parse = |bytes| RecordBatch::parse_without_crc(bytes).expect("a batch");
        let batches: Vec<RecordBatch<'_>> = ready.iter().map(|bytes| parse(bytes)).collect();
        let start = cpu();
        for batch in &batches {
            self.check_and_commit(batch, origin);
        }
        cpu() - start
    }

    fn check_and_commit(&mut self, batch: &RecordBatch<'_>, origin: AppendOrigin) {
        match self.psm.check(batch, self.psm.map_end_offset(), origin) {
            Ok(Checked::Append(transition)) => {
                black_box(self.psm.commit(transition));
            }
            refused => panic!("{refused:?}"),
        }
    }

    fn searched<M>(&self, map: &M, get: impl for<'a> Fn(&'a M, &i64) -> Option<&'a u32>) -> f64 {
        let ids = self.order.iter().cycle().take(self.batches);
        let start = cpu();
        let sum: u64 = ids.filter_map(|id| get(map, black_box(id))).map(|value| u64::from(*value)).sum();
        let took = nanoseconds(cpu() - start);
        assert_eq!(sum, 7 * self.batches as u64);
        took / self.batches as f64
    }
}

/// Everything that takes all producers at once; the CRC of what was written.
fn wholes(size: Size, runs: u32, figures: &mut Figures) -> u32 {
    let millions = |what: &str| format!("{what}, {} producers", size.all);
    let closed = filled(size.all, size.idle, false).snapshot();
    let open = filled(size.all, 0, true).snapshot();
    let few = filled(size.idle, size.idle, false).snapshot();
    let mut timed = |row: String, took: Took| {
        figures.add(&row, "ms CPU", took.cpu.as_secs_f64() * 1e3);
        figures.add(&row, "ms wall", took.wall.as_secs_f64() * 1e3);
    };
    for _ in 0..runs {
        let (took, mut psm) = time(|| loaded(&closed));
        timed(millions("snapshot loaded"), took);
        let (took, written) = time(|| psm.snapshot());
        timed(millions("snapshot written"), took);
        assert_eq!(written, closed);
        let (took, copy) = time(|| black_box(&written).clone());
        timed(millions("plain: a copy of its bytes"), took);
        drop((written, copy));

        let (took, expired) = time(|| psm.expire(NOW));
        timed(format!("{} of {} producers expired", size.idle, size.all), took);
        assert_eq!(expired, size.idle);
        drop(psm);
        let mut psm = loaded(&few);
        let (took, expired) = time(|| psm.expire(NOW));
        timed(format!("{} of {} producers expired", size.idle, size.idle), took);
        assert_eq!((expired, psm.producer_count()), (size.idle, 0));

        for (state, what) in [(&closed, "barrier"), (&open, "barrier, all transactions open")] {
            let mut psm = loaded(state);
            let barrier = MirrorPidReset::build(NOW);
            let (took, applied) = time(|| append(&mut psm, &barrier));
            timed(millions(what), took);
            let Applied { barrier, forgotten, .. } = applied;
            let barrier = barrier.expect("it is one");
            assert_eq!(barrier.producers_expired, size.all);
            let aborted = if what == "barrier" { 0 } else { size.all };
            assert_eq!((barrier.transactions_aborted.len(), psm.producer_count()), (aborted, 0));
            let (took, ()) = time(|| drop(forgotten));
            timed(millions(&format!("{what}: its memory given back")), took);
        }
    }
    weir_format::crc::crc32c(&[closed, open, few].concat())
}

/// A state of so many producers, the first of them idle.
fn filled(count: usize, idle: usize, open: bool) -> ProducerStateManager {
    let mut psm = ProducerStateManager::new(config());
    let (mut old, mut new) = (batch(THEN), batch(NOW));
    if open {
        // The transactional bit.
        old[22] |= 0x10;
        new[22] |= 0x10;
    }
    for (index, id) in (0..number(count)).enumerate() {
        let bytes = if index < idle { &mut old } else { &mut new };
        set_producer(bytes, id, 0);
        let _ = append(&mut psm, bytes);
    }
    psm
}

fn config() -> PsmConfig {
    PsmConfig { producer_id_expiration: EXPIRATION, ..PsmConfig::default() }
}

fn loaded(snapshot: &[u8]) -> ProducerStateManager {
    let end = Offset::new(1 << 40).expect("not negative");
    let mut psm = ProducerStateManager::new(config());
    psm.load_snapshot(snapshot, end).expect("we wrote it");
    psm.on_high_watermark(end);
    psm
}

/// What is wanted, beside what was measured; on a machine of its own, CPU time and wall time are the same here.
fn goals(figures: &Figures, size: Size) {
    let lines = [
        (row("a batch of a client", size.beside[1]), "ns", 200.0),
        (row("a batch of a mirror", size.beside[1]), "ns", 200.0),
        (format!("barrier, {} producers", size.all), "ms CPU", 50.0),
        (format!("barrier, all transactions open, {} producers", size.all), "ms CPU", 50.0),
        (format!("{} of {} producers expired", size.idle, size.idle), "ms CPU", 10.0),
        (format!("{} of {} producers expired", size.idle, size.all), "ms CPU", 10.0),
    ];
    for (row, column, goal) in lines {
        let median = figures.median(&row, column).expect("it was measured");
        println!("{row:<62} median {median:>7.2} {column}, wanted <= {goal}");
    }
    for beside in size.beside {
        let (ours, plain) = (row("a batch of a client", beside), row("plain: an id in a tree", beside));
        let ratio = figures.ratio("ns", &ours, &plain).expect("it was measured");
        println!("{ours:<62} {ratio:>7.2} times a search in a tree");
    }
    let (ours, plain) = ("snapshot written", "plain: a copy of its bytes");
    let rows = [ours, plain].map(|what| format!("{what}, {} producers", size.all));
    let ratio = figures.ratio("ms CPU", &rows[0], &rows[1]).expect("it was measured");
    println!("{:<62} {ratio:>7.2} times a copy of its bytes", rows[0]);
}

fn batch(at: TimestampMs) -> Vec<u8> {
    BatchBuilder::new()
        .producer(ProducerId::ZERO, ProducerEpoch::ZERO, Some(Sequence::ZERO))
        .record(at, None, Some(b"v"))
        .build()
        .expect("a batch")
        .to_vec()
}

fn set_producer(bytes: &mut [u8], id: i64, sequence: i32) {
    bytes[43..51].copy_from_slice(&id.to_be_bytes());
    bytes[53..57].copy_from_slice(&sequence.to_be_bytes());
}

fn append(psm: &mut ProducerStateManager, bytes: &[u8]) -> Applied {
    let batch = RecordBatch::parse_without_crc(bytes).expect("a batch");
    match psm.check(&batch, psm.map_end_offset(), AppendOrigin::Replication) {
        Ok(Checked::Append(transition)) => psm.commit(transition),
        refused => panic!("{refused:?}"),
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).expect("few")
}

/// The ids below `count` in an order without a pattern, the same every time.
fn shuffled(count: usize) -> Vec<i64> {
    let mut ids: Vec<i64> = (0..number(count)).collect();
    let mut state = 0x7765_6972_u64;
    for last in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let other = usize::try_from((state >> 33) % (last as u64 + 1)).expect("small");
        ids.swap(last, other);
    }
    ids
}

struct Took {
    cpu: Duration,
    wall: Duration,
}

fn time<T>(work: impl FnOnce() -> T) -> (Took, T) {
    let (start, begun) = (Instant::now(), cpu());
    let result = work();
    (Took { cpu: cpu() - begun, wall: start.elapsed() }, result)
}

/// What this thread has computed so far.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}
