//! Offsets for timestamps and sentinels, as `ListOffsets` asks for them.

use std::process::Command;

use bytes::BytesMut;
use proptest::prelude::*;
use weir_format::{BatchBuilder, BatchReader, Codec, TimestampMs, TimestampType};
use weir_log::{AppendParams, Isolation, OffsetSearch, OffsetSpec};

use super::support::*;

const UNCOMMITTED: Isolation = Isolation::Uncommitted;

/// A batch with a record for each of these timestamps.
fn stamped(timestamps: &[i64]) -> BytesMut {
    let stamp = |builder: BatchBuilder, at: &i64| builder.record(TimestampMs::new(*at), None, Some(b"v"));
    timestamps.iter().fold(BatchBuilder::new(), stamp).build().unwrap()
}

/// Timestamp and offset of the answer.
fn ask(open: &mut Open, spec: OffsetSpec, isolation: Isolation) -> Option<(i64, i64)> {
    let found = open.log.offset_for(&mut *open.io, spec, isolation).unwrap();
    found.map(|found| (found.timestamp.map_or(-1, TimestampMs::get), found.offset.get()))
}

fn ask_time(open: &mut Open, timestamp: i64) -> Option<(i64, i64)> {
    ask(open, OffsetSpec::Timestamp(TimestampMs::new(timestamp)), UNCOMMITTED)
}

fn produced(batches: &[&[i64]]) -> Open {
    let mut open = Bench::new(3).open_unclean();
    for timestamps in batches {
        open.produce(stamped(timestamps));
    }
    open.sync();
    open
}

/// TIME-1.
#[test]
fn a_timestamp_between_two_records_finds_the_later_one() {
    for batches in [&[&[2, 4, 6, 8][..]][..], &[&[2], &[4], &[6], &[8]], &[&[2, 4], &[6, 8]]] {
        let mut open = produced(batches);
        for (asked, expected) in [
            (0, Some((2, 0))),
            (3, Some((4, 1))),
            (5, Some((6, 2))),
            (7, Some((8, 3))),
            (8, Some((8, 3))),
            (9, None),
        ] {
            assert_eq!(ask_time(&mut open, asked), expected, "{asked} in {batches:?}");
        }
    }
}

/// TIME-4: as a mirror appends it, who knows only what the header says.
#[test]
fn the_largest_timestamp_is_that_of_its_first_record_in_a_mirrored_batch() {
    let mut open = Bench::new(3).open_unclean();
    open.replicate(placed(stamped(&[5, 9, 7]), 0, 4));
    open.replicate(placed(stamped(&[9, 9]), 3, 4));
    open.replicate(placed(stamped(&[8]), 5, 5));
    open.sync();
    let found = open.log.offset_for(&mut *open.io, OffsetSpec::MaxTimestamp, UNCOMMITTED).unwrap().unwrap();
    assert_eq!((found.timestamp, found.offset), (Some(TimestampMs::new(9)), offset(1)));
    assert_eq!(found.leader_epoch, Some(epoch(4)), "of the record, not of the log's end");
    // The first record with at least 8 is the one with 9.
    assert_eq!(ask_time(&mut open, 8), Some((9, 1)));
}

/// TIME-6: cut below the record with the largest timestamp, in the active segment and in an older one.
#[test]
fn a_cut_takes_the_largest_timestamp_with_it() {
    for roll in [false, true] {
        let bench = if roll { Bench::new(3).segment_bytes(300) } else { Bench::new(3) };
        let mut open = bench.open_unclean();
        for number in 0..20 {
            let timestamp = if number == 12 { 5_000 } else { 100 + number };
            open.produce(stamped(&[timestamp]));
        }
        open.sync();
        assert_eq!(open.log.segments().len() > 3, roll);
        assert_eq!(ask(&mut open, OffsetSpec::MaxTimestamp, UNCOMMITTED), Some((5_000, 12)));
        assert_eq!(ask_time(&mut open, 4_000), Some((5_000, 12)));
        open.truncate(12);
        assert_eq!(ask(&mut open, OffsetSpec::MaxTimestamp, UNCOMMITTED), Some((111, 11)));
        assert_eq!(ask_time(&mut open, 4_000), None);
        assert_eq!(ask_time(&mut open, 111), Some((111, 11)));
        // And after a restart the indexes on the disk say the same.
        open.close();
        let mut open = bench.open_clean();
        assert_eq!(ask(&mut open, OffsetSpec::MaxTimestamp, UNCOMMITTED), Some((111, 11)));
        assert_eq!(ask_time(&mut open, 112), None);
    }
}

/// N-TIME-2: a client's time from the future does not drive what is found on a topic with append times.
#[test]
fn append_times_are_what_is_found_and_the_clients_times_are_not() {
    let mut bench = Bench::new(3);
    bench.config.message_timestamp_type = TimestampType::LogAppendTime;
    let mut open = bench.open_unclean();
    let now = NOW.get();
    for step in 0..3 {
        let at = TimestampMs::new(now + step);
        open.append(stamped(&[now + 1_000_000_000, 7]), &AppendParams::client(epoch(0), at)).unwrap();
    }
    open.sync();
    assert_eq!(ask(&mut open, OffsetSpec::MaxTimestamp, UNCOMMITTED), Some((now + 2, 4)));
    assert_eq!(ask_time(&mut open, now + 1), Some((now + 1, 2)));
    assert_eq!(ask_time(&mut open, now + 3), None);
    let read = open.read(0, 1 << 20, UNCOMMITTED);
    for batch in BatchReader::new(&read.bytes) {
        let batch = batch.expect("the CRC fits what was stored");
        assert_eq!(batch.timestamp_type(), TimestampType::LogAppendTime);
        assert!(batch.max_timestamp().get() < now + 3);
    }
}

/// LSO-11, and every other question under both isolation levels.
#[test]
fn an_open_transaction_bounds_what_a_committed_reader_is_told() {
    let mut open = Bench::new(3).open_unclean();
    open.produce(stamped(&[10, 20, 30]));
    open.produce(data(Some((7, 0, 0)), true, 2, 4));
    open.produce(stamped(&[40, 50, 60, 70]));
    open.sync();
    let (view, max) = (open.log.view(), NOW.get());
    assert_eq!((view.last_stable_offset, view.high_watermark), (offset(3), offset(9)));
    let mut ask = |spec| [Isolation::Committed, UNCOMMITTED].map(|isolation| ask(&mut open, spec, isolation));
    assert_eq!(ask(OffsetSpec::Latest), [Some((-1, 3)), Some((-1, 9))]);
    assert_eq!(ask(OffsetSpec::Earliest), [Some((-1, 0)), Some((-1, 0))]);
    assert_eq!(ask(OffsetSpec::EarliestLocal), [Some((-1, 0)), Some((-1, 0))]);
    assert_eq!(ask(OffsetSpec::LatestTiered), [None, None]);
    assert_eq!(ask(OffsetSpec::EarliestPendingUpload), [None, None]);
    assert_eq!(ask(OffsetSpec::MaxTimestamp), [None, Some((max, 3))]);
    assert_eq!(ask(OffsetSpec::Timestamp(TimestampMs::new(20))), [Some((20, 1)), Some((20, 1))]);
    assert_eq!(ask(OffsetSpec::Timestamp(TimestampMs::new(35))), [None, Some((max, 3))]);
}

/// N-LSO-6: what a restarted consumer asks for.
#[test]
fn a_position_between_the_stable_offset_and_the_log_end_is_in_range() {
    let bench = Bench::new(3);
    let mut open = bench.open_unclean();
    open.produce(data(Some((7, 0, 0)), true, 5, 4));
    open.close();
    let mut open = bench.open_clean();
    for isolation in [Isolation::Committed, UNCOMMITTED] {
        let read = open.log.read(&mut *open.io, offset(5), 1 << 20, isolation, true).unwrap();
        assert!(read.bytes.is_empty() && read.aborted.is_empty());
        assert!(open.log.read(&mut *open.io, offset(6), 1 << 20, isolation, true).is_err());
    }
    assert!(open.read(3, 1 << 20, Isolation::Committed).bytes.is_empty());
    open.coordinate(marker(true, 7, 0, 1));
    open.sync();
    assert_eq!(ask(&mut open, OffsetSpec::Latest, Isolation::Committed), Some((-1, 6)));
}

/// Nothing that is not durable is told of.
#[test]
fn what_is_only_gathered_is_no_answer() {
    let mut open = produced(&[&[10]]);
    open.produce(stamped(&[20]));
    assert_eq!(ask(&mut open, OffsetSpec::Latest, UNCOMMITTED), Some((-1, 1)));
    assert_eq!(ask_time(&mut open, 15), None);
    assert_eq!(ask(&mut open, OffsetSpec::MaxTimestamp, UNCOMMITTED), None, "as Kafka: it is above the end");
    open.sync();
    assert_eq!(ask_time(&mut open, 15), Some((20, 1)));
    assert_eq!(ask(&mut open, OffsetSpec::MaxTimestamp, UNCOMMITTED), Some((20, 1)));
}

/// The leader epoch of an answer is that of the record, and of an end that in force there.
#[test]
fn answers_carry_the_leader_epoch_in_force_there() {
    let mut open = Bench::new(3).open_unclean();
    for (number, leader_epoch) in [(0, 2), (1, 2), (2, 5), (3, 9)] {
        open.replicate(placed(stamped(&[10 * (i64::from(leader_epoch) + number)]), number, leader_epoch));
    }
    open.sync();
    let mut epoch_of = |spec| {
        let found = open.log.offset_for(&mut *open.io, spec, UNCOMMITTED).unwrap().unwrap();
        (found.offset.get(), found.leader_epoch.map(|epoch| epoch.get()))
    };
    assert_eq!(epoch_of(OffsetSpec::Earliest), (0, Some(2)));
    assert_eq!(epoch_of(OffsetSpec::Timestamp(TimestampMs::new(31))), (2, Some(5)));
    assert_eq!(epoch_of(OffsetSpec::MaxTimestamp), (3, Some(9)));
    assert_eq!(epoch_of(OffsetSpec::Latest), (4, Some(9)));
}

/// N-EPOCH-2 and TRUNC-8: while it grows, after a restart, and once a stop has raised the epoch.
#[test]
fn the_end_of_an_epoch_is_never_below_what_was_read_in_it() {
    let bench = Bench::new(3);
    let mut open = bench.open_unclean();
    open.replicate(placed(plain(20, 10), 0, 0));
    let end_of = |open: &Open, asked: i32| {
        open.log.end_offset_for_epoch(epoch(asked)).map(|(found, end)| (found.get(), end.get()))
    };
    for base in (20..219).step_by(10) {
        open.replicate(placed(plain(10, 10), base, 3));
        let end = end_of(&open, 3).unwrap();
        assert!(end.0 == 3 && end.1 >= open.log.view().high_watermark.get());
        if base % 50 == 0 {
            open.sync();
            assert_eq!(end_of(&open, 3).unwrap().1, open.log.view().high_watermark.get());
        }
    }
    open.sync();
    for restart in 0..3 {
        match restart {
            0 => {}
            1 => {
                open.close();
                open = bench.open_clean();
            }
            _ => {
                drop(open);
                open = bench.open_unclean();
            }
        }
        let asked = [0, 1, 2, 3, 4].map(|asked| end_of(&open, asked));
        assert_eq!(asked, [Some((0, 20)), Some((0, 20)), Some((0, 20)), Some((3, 220)), None], "{restart}");
    }
    // A stop raises the epoch, before and after anything is written under it.
    open.log.assign_leader_epoch(&mut *open.io, epoch(1_003)).unwrap();
    for count in 0..2 {
        let asked = [3, 4, 1_002, 1_003, 1_004].map(|asked| end_of(&open, asked));
        let end = 220 + count;
        assert_eq!(asked, [Some((3, 220)), Some((3, 220)), Some((3, 220)), Some((1_003, end)), None]);
        open.append(plain(1, 10), &AppendParams::client(epoch(1_003), NOW)).unwrap();
        open.sync();
    }
}

/// The directories that Kafka's clients wrote with each codec, and one that a broker compressed again.
#[test]
fn the_exact_record_is_found_inside_compressed_batches() {
    let mut seen = Vec::new();
    for name in
        ["codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "codec-broker-recompress", "timestamps"]
    {
        let mut bench = Bench::new(1);
        bench.dir = format!("/golden/{name}-0").into();
        bench.disk.import(&testdata().join(name).join(format!("{name}-0")), &bench.dir).unwrap();
        let mut open = bench.open_unclean();
        let bytes = open.read_all(UNCOMMITTED);
        // Every record, by a plain walk.
        let mut records: Vec<(i64, i64)> = Vec::new();
        for batch in BatchReader::new(&bytes) {
            let batch = batch.unwrap();
            seen.push(batch.codec());
            let mut stream = batch.record_stream(1 << 30);
            while let Some(record) = stream.next_record() {
                let record = record.unwrap();
                records.push((record.timestamp.get(), record.offset.get()));
            }
        }
        assert!(records.len() >= 20, "{name}");
        let largest = records.iter().map(|(timestamp, _)| *timestamp).max().unwrap();
        let first = |matches: &dyn Fn(i64) -> bool| records.iter().copied().find(|(at, _)| matches(*at));
        assert_eq!(
            ask(&mut open, OffsetSpec::MaxTimestamp, UNCOMMITTED),
            first(&|at| at == largest),
            "{name}"
        );
        for (timestamp, _) in records.clone() {
            for asked in [timestamp, timestamp.saturating_add(1)].into_iter().filter(|asked| *asked >= 0) {
                assert_eq!(ask_time(&mut open, asked), first(&|at| at >= asked), "{asked} in {name}");
            }
        }
    }
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        assert!(seen.contains(&codec), "{codec:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 64 } else { 1024 }))]

    /// Timestamps that go up and down, several segments, a log start within a batch, an open transaction.
    #[test]
    fn an_answer_is_the_first_of_a_plain_walk(
        batches in proptest::collection::vec(proptest::collection::vec(0_i64..40, 1..4), 1..40),
        segment_bytes in 150_u32..800,
        start in 0_usize..20,
        open_at in proptest::option::of(0_usize..40),
        restart: bool,
    ) {
        let bench = Bench::new(5).segment_bytes(segment_bytes);
        let mut open = bench.open_unclean();
        let (mut records, mut stable) = (Vec::new(), None);
        for (number, timestamps) in batches.iter().enumerate() {
            let mut next = i64::try_from(records.len()).unwrap();
            if open_at == Some(number) {
                stable = Some(next);
                open.produce(data(Some((7, 0, 0)), true, 1, 4));
                records.push((NOW.get(), next));
                next += 1;
            }
            open.produce(stamped(timestamps));
            records.extend(timestamps.iter().zip(next..).map(|(timestamp, offset)| (*timestamp, offset)));
        }
        open.sync();
        let start = i64::try_from(start.min(records.len() - 1)).unwrap();
        open.log.advance_log_start(&mut *open.io, offset(start)).unwrap();
        if restart {
            open.close();
            let mut options = bench.options();
            options.clean_shutdown = true;
            options.log_start_offset = offset(start);
            open = bench.open(options);
        }
        let end = i64::try_from(records.len()).unwrap();
        for (isolation, end) in [(Isolation::Committed, stable.unwrap_or(end).max(start)), (UNCOMMITTED, end)] {
            prop_assert_eq!(ask(&mut open, OffsetSpec::Latest, isolation), Some((-1, end)));
            for asked in 0..42 {
                let first = records.iter().copied().find(|(at, offset)| *at >= asked && *offset >= start);
                let expected = first.filter(|(_, offset)| *offset < end);
                let spec = OffsetSpec::Timestamp(TimestampMs::new(asked));
                prop_assert_eq!(ask(&mut open, spec, isolation), expected, "{} from {}", asked, start);
            }
            // Of what has been deleted the largest may still be known, and is no answer.
            let found = ask(&mut open, OffsetSpec::MaxTimestamp, isolation);
            let largest = records.iter().filter(|(_, offset)| *offset >= start).map(|(at, _)| *at).max();
            if let Some((timestamp, offset)) = found {
                prop_assert!(offset >= start && offset < end);
                prop_assert_eq!(Some(timestamp), largest);
                let first = records.iter().find(|(at, other)| *at == timestamp && *other >= start);
                prop_assert_eq!(first, Some(&(timestamp, offset)));
            } else if start == 0 && stable.is_none() {
                prop_assert!(false, "a log with records has a largest timestamp");
            }
        }
    }
}

/// A record of 256 MiB in 8 KiB, and a thousand of 1 MiB in 45 KiB.
#[test]
fn a_bomb_costs_no_more_memory_than_the_limit() {
    let program = std::env::current_exe().unwrap();
    let name = "timestamps::prints_what_a_bomb_costs";
    let output = Command::new(program)
        .args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let cost: u64 =
        text.lines().find_map(|line| line.split("cost: ").nth(1)).unwrap().trim().parse().unwrap();
    // The limit, what a buffer that grows was before, and a window of the codec.
    assert!(cost < 230 << 20, "{} MiB", cost >> 20);
}

/// A line of `/proc/self/status`, in bytes.
fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn prints_what_a_bomb_costs() {
    let before = status("VmRSS:");
    for (name, last) in
        [("bomb-zstd-one-record-256mib", 42), ("bomb-zstd-1gib", 1_065), ("bomb-gzip-64mib", 105)]
    {
        let bytes = std::fs::read(testdata().join("batches").join(format!("{name}.bin"))).unwrap();
        let mut open = Bench::new(3).open_unclean();
        open.replicate(placed(BytesMut::from(&bytes[..]), 42, 0));
        open.sync();
        // From the first record, then from the last, before which all others are passed over.
        for start in [42, last] {
            open.log.advance_log_start(&mut *open.io, offset(start)).unwrap();
            for spec in [OffsetSpec::Timestamp(TimestampMs::new(1)), OffsetSpec::Timestamp(NOW)] {
                assert_eq!(ask(&mut open, spec, UNCOMMITTED), Some((NOW.get(), start)), "{name}");
            }
        }
        let search =
            open.log.search_offset(&mut *open.io, OffsetSpec::Timestamp(NOW), UNCOMMITTED, None).unwrap();
        let OffsetSearch::Inside(lookup) = search else { panic!("the record is in the batch") };
        assert!(lookup.is_compressed());
    }
    println!("cost: {}", status("VmHWM:").saturating_sub(before));
}
