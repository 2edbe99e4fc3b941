//! Random use of a log beside a model that is a list of batches.

use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;
use weir_format::{RecordBatch, TimestampMs};
use weir_segment::io::sim::{CrashPolicy, SimDisk};
use weir_segment::io::{Io, Op, Open, Ticket, Wait};
use weir_segment::layout::{FileKind, SegmentFileName};
use weir_segment::{LocalLog, SegmentConfig};

use crate::support::{DIR, NOW, at, batch, batches, open, small, sync};

#[derive(Debug, Clone)]
enum Step {
    /// (gap before, records, record size, time since the batch before) of each batch; in one call.
    Append(Vec<(i64, i64, usize, i64)>),
    Roll,
    /// In thousandths of the log.
    Truncate(i64),
    StartAt(i64),
    DeleteBefore(i64),
    Read {
        from: i64,
        max: usize,
        end: i64,
        at_least_one: bool,
    },
    Find {
        timestamp: i64,
        from: i64,
    },
    Sync,
    Reopen,
    /// Reopen, the indexes spoilt in one of several ways before.
    ReopenSpoilt(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let one = (prop_oneof![8 => Just(0_i64), 1 => 1..50_i64], 1..6_i64, 0..200_usize, -5..40_i64);
    prop_oneof![
        8 => prop::collection::vec(one, 1..6).prop_map(Step::Append),
        1 => Just(Step::Roll),
        2 => (0..1_050_i64).prop_map(Step::Truncate),
        1 => (0..2_000_i64).prop_map(Step::StartAt),
        2 => (0..1_000_i64).prop_map(Step::DeleteBefore),
        8 => (0..1_020_i64, 0..3_000_usize, 0..1_020_i64, any::<bool>())
            .prop_map(|(from, max, end, at_least_one)| Step::Read { from, max, end, at_least_one }),
        4 => (-10..1_010_i64, 0..1_000_i64).prop_map(|(timestamp, from)| Step::Find { timestamp, from }),
        2 => Just(Step::Sync),
        1 => Just(Step::Reopen),
        2 => (0..5_u8).prop_map(Step::ReopenSpoilt),
    ]
}

#[derive(Debug, Default)]
struct Model {
    batches: Vec<(i64, Bytes)>,
    end: i64,
    time: i64,
}

fn next_offset(bytes: &[u8]) -> i64 {
    RecordBatch::parse(bytes).unwrap().next_offset().get()
}

impl Model {
    fn share(&self, first: i64, thousandths: i64) -> i64 {
        (first + (self.end - first) * thousandths / 1_000).max(0)
    }

    fn largest_timestamp(&self) -> Option<i64> {
        let times = |(_, bytes): &(i64, Bytes)| RecordBatch::parse(bytes).unwrap().max_timestamp().get();
        self.batches.iter().map(times).max()
    }

    /// Base offset of the first batch that holds `from` or a higher offset and has a timestamp of at least `timestamp`.
    fn find(&self, timestamp: i64, from: i64) -> Option<i64> {
        let mut batches = self.batches.iter().map(|(_, bytes)| RecordBatch::parse(bytes).unwrap());
        let holds = |batch: &RecordBatch<'_>| {
            batch.last_offset().get() >= from && batch.max_timestamp().get() >= timestamp
        };
        batches.find(holds).map(|batch| batch.base_offset().get())
    }
}

fn spoil(disk: &SimDisk, how: u8) {
    for path in disk.files() {
        let Some(name) = SegmentFileName::of(&path) else { continue };
        if !matches!(name.kind, FileKind::OffsetIndex | FileKind::TimeIndex) {
            continue;
        }
        let bytes = disk.read_file(&path).unwrap();
        match how {
            0 => {
                disk.remove_file(&path);
            }
            1 => disk.write_file(&path, b""),
            2 => disk.write_file(&path, &vec![0; bytes.len() + 24]),
            3 => disk.write_file(&path, &bytes[..bytes.len() / 2]),
            _ => disk.write_file(&path, &[7; 48]),
        }
    }
}

fn run(seed: u64, steps: &[Step], config: SegmentConfig) -> Result<(SimDisk, Model), TestCaseError> {
    let disk = SimDisk::new(seed);
    disk.yield_always(true);
    disk.reorder(seed.is_multiple_of(2));
    disk.short(seed.is_multiple_of(3));
    disk.queue_depth(seed.is_multiple_of(5).then_some(1));
    disk.slow(seed.is_multiple_of(7).then_some(1..100));
    disk.direct(seed.is_multiple_of(2));
    disk.allocate_ahead(seed.is_multiple_of(3).then_some(1_000));
    disk.io().create_dir_all(Path::new(DIR)).unwrap();
    let mut io = disk.io();
    let mut log = open(&mut io, config).unwrap();
    let mut model = Model { time: NOW.get(), ..Model::default() };
    for step in steps {
        let first = log.first_offset().get();
        match step {
            Step::Append(parts) => {
                let mut bytes = Vec::new();
                for (gap, count, size, later) in parts {
                    model.time += later;
                    let made = batch(model.end + gap, *count, *size, model.time);
                    model.batches.push((model.end + gap, made.clone()));
                    model.end += gap + count;
                    bytes.extend_from_slice(&made);
                }
                let done = log.append_bytes(&mut io, bytes.into(), NOW).unwrap();
                prop_assert_eq!(done.last_offset.get() + 1, model.end);
            }
            Step::Roll => {
                log.roll(&mut io, None, NOW).unwrap();
            }
            Step::Truncate(share) => {
                let target = model.share(first, *share);
                log.truncate_to(&mut io, at(target)).unwrap();
                if target < model.end {
                    let kept = model.batches.partition_point(|(_, bytes)| next_offset(bytes) <= target);
                    model.batches.truncate(kept);
                    model.end = log.log_end_offset().get();
                    let last = model.batches.last().map(|(_, bytes)| next_offset(bytes));
                    let base = log.active().base_offset().get();
                    prop_assert_eq!(model.end, last.unwrap_or(0).max(base));
                    prop_assert!(model.end <= target);
                }
            }
            Step::StartAt(offset) => {
                log.truncate_fully_and_start_at(&mut io, at(*offset)).unwrap();
                model.batches.clear();
                model.end = *offset;
            }
            Step::DeleteBefore(share) => {
                let target = model.share(first, *share);
                log.delete_before(&mut io, at(target)).unwrap();
                let first = log.first_offset().get();
                prop_assert!(first <= target.max(log.active().base_offset().get()));
                model.batches.retain(|(base, _)| *base >= first);
                let next = log.segments().nth(1).map(|segment| segment.base_offset().get());
                prop_assert!(
                    next.is_none_or(|next| next > target),
                    "a whole segment below {} is left",
                    target
                );
            }
            Step::Read { from, max, end, at_least_one } => {
                let (from, end) = (model.share(first, *from), model.share(first, *end));
                check_read(&mut io, &mut log, &model, (from, *max, end, *at_least_one))?;
            }
            Step::Find { timestamp, from } => {
                let (least, most) = (NOW.get() - 100, model.time + 10);
                let timestamp = least + (most - least) * timestamp / 1_000;
                let from = model.share(first, *from).min(model.end);
                let found = log.batch_for_timestamp(&mut io, TimestampMs::new(timestamp), at(from)).unwrap();
                prop_assert_eq!(found.map(|found| found.info.base_offset.get()), model.find(timestamp, from));
            }
            Step::Sync => {
                sync(&mut io, &mut log).unwrap();
                prop_assert_eq!(log.synced_end_offset().get(), model.end);
            }
            Step::Reopen | Step::ReopenSpoilt(_) => {
                log.close(&mut io).unwrap();
                if let Step::ReopenSpoilt(how) = step {
                    spoil(&disk, *how);
                }
                log = open(&mut io, config).unwrap();
                prop_assert_eq!(log.tail(), None);
                let largest = log.largest_timestamp(&mut io).unwrap().map(|largest| largest.timestamp.get());
                prop_assert_eq!(largest, model.largest_timestamp());
            }
        }
        prop_assert_eq!(log.log_end_offset().get(), model.end);
        let last = log.last_batch(&mut io).unwrap().map(|found| found.bytes);
        prop_assert_eq!(last.as_ref(), model.batches.last().map(|(_, bytes)| bytes));
    }
    prop_assert_eq!(batches(&mut io, &mut log), model.batches.clone());
    for segment in log.segments() {
        prop_assert!(segment.size() <= 1_000 || segment.size() <= 6 * 300, "a segment of {}", segment.size());
    }
    log.close(&mut io).unwrap();
    Ok((disk, model))
}

fn check_read(
    io: &mut dyn Io,
    log: &mut LocalLog,
    model: &Model,
    (from, max, end, at_least_one): (i64, usize, i64, bool),
) -> Result<(), TestCaseError> {
    if from > model.end {
        prop_assert!(log.read(io, at(from), max, at(end), at_least_one).is_err());
        return Ok(());
    }
    let read = log.read(io, at(from), max, at(end), at_least_one).unwrap();
    let mut expected = Vec::new();
    let mut next = None;
    for (base, bytes) in model.batches.iter().filter(|(_, bytes)| next_offset(bytes) > from) {
        let fits = expected.len() + bytes.len() <= max || (expected.is_empty() && at_least_one);
        if !fits || next_offset(bytes) > end || *base >= end || from >= end {
            break;
        }
        if read.bytes.len() == expected.len() && !expected.is_empty() {
            // A read may end where a segment does.
            next = Some(*base);
            break;
        }
        expected.extend_from_slice(bytes);
    }
    prop_assert_eq!(&read.bytes[..], &expected[..]);
    if let Some(next) = next {
        let border = log.segments().any(|s| (read.next_offset.get()..=next).contains(&s.base_offset().get()));
        prop_assert!(border, "a read ended at {} for no reason", read.next_offset);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_a_list_of_batches(seed in any::<u64>(), steps in prop::collection::vec(step(), 1..40)) {
        run(seed, &steps, small())?;
    }
}

/// A fixed use of a log with every kind of step and every knob.
fn traced(seed: u64) -> (u64, u64, Vec<usize>) {
    let steps = [
        Step::Append(vec![(0, 5, 100, 1), (3, 4, 90, -2), (0, 5, 150, 9)]),
        Step::Sync,
        Step::Append(vec![(0, 5, 180, 5); 5]),
        Step::Read { from: 300, max: 900, end: 1_000, at_least_one: true },
        Step::Truncate(700),
        Step::Reopen,
        Step::Append(vec![(0, 2, 10, 5); 3]),
        Step::DeleteBefore(600),
        Step::ReopenSpoilt(2),
        Step::Find { timestamp: 500, from: 0 },
    ];
    let (disk, _) = run(seed, &steps, small()).unwrap();
    // What a crash leaves of writes that are done or in flight follows from the seed as well.
    disk.queue_depth(None);
    let mut io = disk.io();
    let file = io.open(Path::new("/crash"), Open::AppendNew).unwrap();
    for number in 0..20 {
        let bytes = Bytes::from(vec![1; 3_000]);
        assert!(io.submit(Ticket::new(number), Op::Write { file, at: number * 4_096, bytes }).is_ok());
        io.reap(Wait::Poll, &mut Vec::new()).unwrap();
    }
    let left = CrashPolicy::ALL.map(|policy| {
        let copy = disk.fork();
        copy.crash(policy);
        let bytes = copy.read_file(Path::new("/crash")).unwrap_or_default();
        bytes.iter().zip(1..).filter(|(byte, _)| **byte == 1).map(|(_, place)| place).sum()
    });
    (disk.trace_sum(), disk.op_count(), left.to_vec())
}

#[test]
fn one_seed_gives_one_trace() {
    // 210 turns every knob on.
    assert_eq!(traced(210), traced(210));
    assert_ne!(traced(210).0, traced(420).0);
}

#[test]
#[ignore = "run by the test below, as a process of its own"]
fn print_the_trace_of_one_seed() {
    println!("trace {:?}", traced(210));
}

#[test]
fn one_seed_gives_one_trace_in_two_processes() {
    let child = || {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "model::print_the_trace_of_one_seed", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find(|line| line.contains("trace (")).expect("the child printed no trace").to_string()
    };
    let (first, second) = (child(), child());
    assert_eq!(first, second);
    assert!(first.ends_with(&format!("trace {:?}", traced(210))), "{first}");
}
