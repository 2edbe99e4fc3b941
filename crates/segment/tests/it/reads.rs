//! What reads of older segments cost: counted, not timed.

use std::path::Path;

use proptest::prelude::*;
use weir_format::{Offset, ProducerId, TimestampMs};
use weir_segment::io::sim::{SimDisk, SimIo};
use weir_segment::io::{Io, durable};
use weir_segment::{AbortedTransaction, LocalLog, SegmentConfig, TransactionIndex};

use crate::support::{DIR, NOW, at, batch, open, replace_transactions};

fn fresh(config: SegmentConfig) -> (SimDisk, SimIo, LocalLog) {
    let disk = SimDisk::new(1);
    let mut io = disk.io();
    durable::create_dir_all(&mut io, Path::new(DIR)).unwrap();
    let log = open(&mut io, config).unwrap();
    (disk, io, log)
}

/// An index entry for each batch but the first.
fn dense() -> SegmentConfig {
    SegmentConfig { index_interval_bytes: 1, ..SegmentConfig::default() }
}

/// One closed segment of batches of one record, each `step(number)` above the one before; their base offsets.
fn closed(count: i64, step: impl Fn(i64) -> i64) -> (SimDisk, SimIo, LocalLog, Vec<i64>) {
    let (disk, mut io, mut log) = fresh(dense());
    let (mut bases, mut base) = (Vec::new(), 0);
    for number in 0..count {
        log.append_bytes(&mut io, batch(base, 1, 10, NOW.get() + base), NOW).unwrap();
        bases.push(base);
        base += step(number);
    }
    log.roll(&mut io, None, NOW).unwrap();
    log.close(&mut io).unwrap();
    let mut log = open(&mut io, dense()).unwrap();
    // The first use looks at the index as a whole.
    log.batch_at(&mut io, at(0)).unwrap();
    (disk, io, log, bases)
}

/// Finds every seventh batch; answers how many reads that took on average and at most.
fn lookups(disk: &SimDisk, io: &mut dyn Io, log: &mut LocalLog, bases: &[i64]) -> (f64, u64) {
    let (mut total, mut most, mut count) = (0, 0, 0.0);
    for pair in bases.windows(2).step_by(7) {
        for (asked, expected) in
            [(pair[0], pair[0]), (pair[1] - 1, if pair[1] - 1 == pair[0] { pair[0] } else { pair[1] })]
        {
            let before = disk.read_count();
            let found = log.batch_at(io, at(asked)).unwrap().unwrap();
            let reads = disk.read_count() - before;
            assert_eq!(found.info.base_offset, at(expected), "{asked}");
            (total, most, count) = (total + reads, most.max(reads), count + 1.0);
        }
    }
    let total = u32::try_from(total).unwrap();
    (f64::from(total) / count, most)
}

#[test]
fn a_lookup_in_a_closed_segment_guesses_where_its_entry_is() {
    // 20,000 entries: a binary search down to 256 of them took seven reads, then one for these.
    let (disk, mut io, mut log, bases) = closed(20_000, |_| 1);
    let (average, most) = lookups(&disk, &mut io, &mut log, &bases);
    // One of the index, one of headers, one of the batch; two of the index where the guess was at a border.
    assert!(average < 3.1 && most <= 4, "{average} reads on average, {most} at most");
}

#[test]
fn a_lookup_in_a_log_with_uneven_gaps_is_a_bounded_search() {
    // Nearly all batches lie at the end of the offsets, then nearly all at their start.
    for late in [false, true] {
        let (disk, mut io, mut log, bases) = closed(20_000, |number| match (late, number) {
            (false, 19_900..) | (true, ..100) => 10_000_000,
            _ => 1,
        });
        let (average, most) = lookups(&disk, &mut io, &mut log, &bases);
        // 20,000 entries are 40 blocks: six halvings, each after a guess that does not help.
        assert!(average < 8.0 && most <= 14, "{average} reads on average, {most} at most");
    }
}

#[test]
fn a_timestamp_is_found_in_a_closed_segment_by_few_reads() {
    let (disk, mut io, mut log, bases) = closed(20_000, |number| 1 + number % 3);
    log.batch_for_timestamp(&mut io, NOW, at(0)).unwrap();
    for base in bases.iter().step_by(97) {
        let before = disk.read_count();
        let found = log.batch_for_timestamp(&mut io, TimestampMs::new(NOW.get() + base), at(0)).unwrap();
        let reads = disk.read_count() - before;
        assert_eq!(found.unwrap().info.base_offset, at(*base));
        // Time index, offset index, headers, and those again from where the log is to be read, and the batch.
        assert!(reads <= 9, "{reads} reads");
    }
}

fn aborted(producer: i64, first: i64, last: i64, stable: i64) -> AbortedTransaction {
    AbortedTransaction {
        producer_id: ProducerId::new(producer).unwrap(),
        first_offset: at(first),
        last_offset: at(last),
        last_stable_offset: at(stable),
    }
}

/// `count` short transactions one after the other, while one is open over all of them.
fn short_ones_in_a_long_one(count: i64) -> TransactionIndex {
    let mut index = TransactionIndex::new();
    for number in 0..count {
        assert!(index.append(aborted(number + 1, 2 * number + 1, 2 * number + 2, 0)));
    }
    assert!(index.append(aborted(0, 0, 2 * count + 1, 2 * count + 2)));
    index
}

/// Kafka's own search, entry by entry.
fn plain(index: &TransactionIndex, from: Offset, end: Offset) -> Vec<AbortedTransaction> {
    let overlaps = |entry: &&AbortedTransaction| entry.last_offset >= from && entry.first_offset < end;
    index.entries().iter().filter(overlaps).copied().collect()
}

/// A closed segment with this transaction index, and an active one behind it.
fn with_transactions(index: &TransactionIndex) -> (SimDisk, SimIo, LocalLog) {
    let (disk, mut io, mut log) = fresh(SegmentConfig::default());
    log.append_bytes(&mut io, batch(0, 1, 10, 1), NOW).unwrap();
    log.roll(&mut io, Some(at(1_000_000)), NOW).unwrap();
    replace_transactions(&mut io, &mut log, at(0), index.clone());
    (disk, io, log)
}

#[test]
fn aborted_transactions_of_a_closed_segment_cost_a_block_however_many_there_are() {
    let index = short_ones_in_a_long_one(60_000);
    let (disk, mut io, mut log) = with_transactions(&index);
    let ask =
        |log: &mut LocalLog, io: &mut SimIo, from, end| log.aborted_in_range(io, at(from), at(end)).unwrap();
    let before = disk.read_count();
    ask(&mut log, &mut io, 1, 2);
    assert!(disk.read_count() - before >= 58, "the file is read when it is first asked for, not before");
    for from in (0..120_000).step_by(1_009) {
        let before = disk.read_count();
        let found = ask(&mut log, &mut io, from, from + 20);
        assert_eq!(found, plain(&index, at(from), at(from + 20)), "{from}");
        // The block of what is asked for, one more where that is at its border, and that of the long transaction.
        assert!(disk.read_count() - before <= 3, "{} reads at {from}", disk.read_count() - before);
    }
    // What takes the place of the file is looked at anew.
    let other = short_ones_in_a_long_one(10);
    replace_transactions(&mut io, &mut log, at(0), other.clone());
    assert_eq!(ask(&mut log, &mut io, 0, 50), plain(&other, at(0), at(50)));
    replace_transactions(&mut io, &mut log, at(0), TransactionIndex::new());
    assert_eq!(ask(&mut log, &mut io, 0, 50), []);
    // And after a restart.
    replace_transactions(&mut io, &mut log, at(0), other.clone());
    log.close(&mut io).unwrap();
    let mut log = open(&mut io, SegmentConfig::default()).unwrap();
    assert_eq!(ask(&mut log, &mut io, 0, 50), plain(&other, at(0), at(50)));
}

#[test]
fn segments_without_aborted_transactions_are_not_looked_at() {
    let (disk, mut io, mut log) = fresh(SegmentConfig::default());
    for base in 0..50 {
        log.append_bytes(&mut io, batch(base, 1, 10, 1), NOW).unwrap();
        log.roll(&mut io, None, NOW).unwrap();
    }
    log.append_bytes(&mut io, batch(50, 1, 10, 1), NOW).unwrap();
    log.append_aborted(&mut io, log.active().base_offset(), aborted(7, 3, 50, 51)).unwrap();
    // Another that ends later; its entry is in the file of a closed segment at the end.
    log.roll(&mut io, None, NOW).unwrap();
    log.append_bytes(&mut io, batch(51, 1, 10, 1), NOW).unwrap();
    for restart in [false, true] {
        if restart {
            log.close(&mut io).unwrap();
            log = open(&mut io, SegmentConfig::default()).unwrap();
        }
        let (reads, opens) = (disk.read_count(), disk.open_count());
        assert_eq!(log.aborted_in_range(&mut io, at(0), at(10)).unwrap(), [aborted(7, 3, 50, 51)]);
        assert!(disk.read_count() - reads <= 2, "one file, of 52 segments");
        assert!(disk.open_count() - opens <= 2, "and nobody asks whether the others have one");
        let before = disk.read_count();
        assert_eq!(log.aborted_in_range(&mut io, at(51), at(52)).unwrap(), []);
        assert_eq!(disk.read_count(), before, "nor is one that ends before");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Over the borders of blocks and of segments, from memory and from the disk.
    #[test]
    fn a_range_finds_every_transaction_that_overlaps_it(
        ends in proptest::collection::vec((0_usize..6, 1_usize..5), 1..1_500),
        cut in 0_usize..1_500,
        ranges in proptest::collection::vec((0_i64..8_000, 0_i64..2_000), 1..20),
    ) {
        // Each step begins some transactions and ends one of them.
        let (mut open_ones, mut next, mut entries) = (Vec::new(), 0_i64, Vec::new());
        for (which, begun) in &ends {
            for _ in 0..*begun {
                open_ones.push(next);
                next += 1;
            }
            let first = open_ones.remove(which % open_ones.len());
            let stable = open_ones.first().copied().unwrap_or(next + 1);
            entries.push(aborted(first, first, next, stable));
            next += 1;
        }
        let cut = cut.min(entries.len());
        let (older, newer) = entries.split_at(cut);
        let border = older.last().map_or(1, |last| last.last_offset.get() + 1);
        let (_disk, mut io, mut log) = fresh(SegmentConfig::default());
        log.append_bytes(&mut io, batch(0, 1, 10, 1), NOW).unwrap();
        for entry in older {
            log.append_aborted(&mut io, log.active().base_offset(), *entry).unwrap();
        }
        log.roll(&mut io, Some(at(border)), NOW).unwrap();
        log.append_bytes(&mut io, batch(border, 1, 10, 1), NOW).unwrap();
        for entry in newer {
            log.append_aborted(&mut io, log.active().base_offset(), *entry).unwrap();
        }
        for (from, size) in ranges {
            let end = from + size;
            let found = log.aborted_in_range(&mut io, at(from.min(border)), at(end)).unwrap();
            let overlaps = |entry: &&AbortedTransaction| {
                entry.last_offset >= at(from.min(border)) && entry.first_offset < at(end)
            };
            prop_assert_eq!(found, entries.iter().filter(overlaps).copied().collect::<Vec<_>>());
        }
    }
}
