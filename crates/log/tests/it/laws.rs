//! The laws R1 to R8 and B4 to B10 by name, and the cases that gave rise to them.

use bytes::BytesMut;
use proptest::prelude::*;
use weir_format::{BatchBuilder, BatchReader, Offset, ProducerId, RecordBatch, TimestampMs, TimestampType};
use weir_log::{
    AppendError, AppendParams, ChangeError, Durability, InvalidRecord, Isolation, OffsetSpec, ReadError,
};
use weir_psm::ProducerStateError;
use weir_recovery::tail::CorruptReason;
use weir_recovery::{CutKind, LoadError, NoSnapshot, ProducerStateSource};
use weir_segment::io::sim::{CrashPolicy, DataFate, NameFate};

use super::support::*;

fn client() -> AppendParams {
    AppendParams { may_start_transaction: true, ..AppendParams::client(epoch(0), NOW) }
}

fn replication() -> AppendParams {
    AppendParams::replication(epoch(5), NOW)
}

fn aborted_of(read: &weir_log::Read) -> Vec<(i64, i64, i64)> {
    let facts = |entry: &weir_segment::AbortedTransaction| {
        (entry.producer_id.get(), entry.first_offset.get(), entry.last_offset.get())
    };
    read.aborted.iter().map(facts).collect()
}

fn bases(bytes: &[u8]) -> Vec<i64> {
    BatchReader::new(bytes).map(|batch| batch.unwrap().base_offset().get()).collect()
}

// Recovery.

#[test]
fn r1_what_was_acknowledged_is_there_byte_for_byte() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    for sequence in 0..5 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 100));
    }
    open.sync();
    let acknowledged = bench.log_bytes();
    open.produce(data(Some((1, 0, 5)), false, 1, 100));
    assert_eq!(open.log.view().high_watermark, offset(5), "nothing above the sync is shown");
    bench.disk.crash(CrashPolicy::DROP_ALL);
    let mut open = bench.open_unclean();
    assert_eq!(open.read_all(Isolation::Uncommitted), acknowledged);
    assert_eq!(open.log.log_end_offset(), offset(5));
}

#[test]
fn r1_what_a_killed_process_left_unsynced_is_synced_before_it_is_served() {
    // The page cache survives a kill, so a reader sees it; then the power fails.
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..4 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 200));
    }
    open.settle();
    drop(open);
    let mut open = bench.open_unclean();
    let served = open.read_all(Isolation::Uncommitted);
    assert_eq!(bases(&served), [0, 1, 2, 3]);
    bench.disk.crash(CrashPolicy::DROP_ALL);
    assert_eq!(bench.open_unclean().read_all(Isolation::Uncommitted), served);
}

#[test]
fn r2_what_is_there_is_a_prefix_of_what_was_submitted() {
    for seed in 0..200 {
        let bench = Bench::new(seed);
        let mut open = bench.open_unclean();
        // 256 bytes each, so that two share a sector only with one that is whole.
        for sequence in 0..8 {
            let mut size = 100;
            let mut batch = data(Some((1, 0, sequence)), false, 1, size);
            while batch.len() < 512 {
                size += 512 - batch.len();
                batch = data(Some((1, 0, sequence)), false, 1, size);
                if batch.len() > 512 {
                    batch = data(Some((1, 0, sequence)), false, 1, size - (batch.len() - 512));
                }
            }
            assert_eq!(batch.len(), 512);
            open.produce(batch);
            // Each by a write of its own.
            open.settle();
        }
        let submitted = bench.log_bytes();
        bench.disk.crash(CrashPolicy { data: DataFate::Mixed, names: NameFate::Kept });
        let mut open = bench.open_unclean();
        let found = open.read_all(Isolation::Uncommitted);
        assert_eq!(found, submitted[..found.len()], "seed {seed}");
    }
}

#[test]
fn r3_what_was_truncated_stays_gone() {
    let bench = Bench::new(1).segment_bytes(600);
    let mut open = bench.open_unclean();
    for sequence in 0..10 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 200));
        open.sync();
    }
    let recovery_point = open.log.recovery_point();
    open.truncate(3);
    for policy in CrashPolicy::ALL {
        let crashed = bench.fork();
        crashed.disk.crash(policy);
        let mut options = crashed.options();
        // The checkpoint of before the cut: what it says is gone is no corruption.
        options.recovery_point = recovery_point;
        let open = crashed.open(options);
        assert_eq!(open.log.log_end_offset(), offset(3), "{policy:?}");
        assert_eq!(open.log.producers().next().unwrap().1.last_sequence().unwrap().get(), 2);
    }
}

#[test]
fn r4_after_replay_the_state_is_the_live_one() {
    let bench = Bench::new(1).segment_bytes(700);
    let mut open = bench.open_unclean();
    for batch in [
        data(Some((1, 0, 0)), true, 2, 50),
        data(Some((2, 0, 0)), true, 1, 300),
        data(Some((3, 0, 0)), false, 1, 50),
    ] {
        open.produce(batch);
    }
    open.coordinate(marker(false, 1, 0, 4));
    open.coordinate(marker(true, 2, 0, 4));
    open.produce(data(Some((2, 0, 1)), true, 1, 300));
    open.sync();
    let facts = open.facts();
    let producers = open.producers();
    assert_eq!(facts.open, [offset(6)]);
    assert_eq!(facts.last_stable_offset, offset(6));
    drop(open);
    let mut open = bench.open_unclean();
    assert_eq!(open.facts(), facts);
    assert_equal_state(&open.producers(), &producers, "replayed");
}

#[test]
fn r5_recovering_again_changes_nothing() {
    let bench = Bench::new(4).segment_bytes(700);
    let mut open = bench.open_unclean();
    for sequence in 0..9 {
        open.produce(data(Some((1, 0, sequence)), sequence > 6, 1, 200));
        open.sync();
    }
    open.produce(data(Some((1, 0, 9)), true, 1, 3000));
    bench.disk.crash(CrashPolicy { data: DataFate::Cut, names: NameFate::Kept });
    let mut first = bench.open_unclean();
    let (facts, producers) = (first.facts(), first.producers());
    drop(first);
    let files = bench.disk.contents();
    let mut second = bench.open_unclean();
    assert_eq!(second.facts(), facts);
    assert_equal_state(&second.producers(), &producers, "again");
    assert_eq!(second.report.cuts, []);
    drop(second);
    assert_eq!(bench.disk.contents(), files, "not a byte of any file");
}

#[test]
fn r6_without_any_auxiliary_file_the_state_is_the_same() {
    let bench = Bench::new(1).segment_bytes(700);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 1, 200));
    open.produce(data(Some((2, 0, 0)), true, 1, 200));
    open.coordinate(marker(false, 2, 0, 0));
    open.coordinate(barrier());
    open.produce(data(Some((2, 0, 0)), true, 1, 600));
    open.coordinate(marker(false, 2, 0, 0));
    open.sync();
    let (facts, producers) = (open.facts(), open.producers());
    assert_eq!(facts.aborted.len(), 3);
    assert_eq!(facts.barriers, [(offset(3), true)]);
    open.close();
    for clean in [true, false] {
        bench.remove_auxiliary_files();
        let mut options = bench.options();
        options.clean_shutdown = clean;
        let mut open = bench.open(options);
        assert_eq!(open.facts(), facts, "clean {clean}");
        assert_equal_state(&open.producers(), &producers, "without auxiliary files");
        let reason = NoSnapshot::NoPartitionFile;
        assert_eq!(open.report.producer_state, ProducerStateSource::Replay { from: offset(0), reason });
    }
}

#[test]
fn r6_the_log_start_is_the_largest_known_and_never_above_the_log_end() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(plain(5, 10));
    open.close();
    for (asked, start, said) in [(0, 0, None), (3, 3, None), (5, 5, None), (9, 5, Some(offset(9)))] {
        let mut options = bench.options();
        options.log_start_offset = offset(asked);
        let open = bench.open(options);
        assert_eq!(open.log.view().log_start_offset, offset(start));
        assert_eq!(open.report.log_start_above_end, said);
    }
}

/// What may happen to a directory.
#[derive(Debug, Clone)]
enum Damage {
    Flip { file: usize, position: usize, bits: u8 },
    Cut { file: usize, size: usize },
    Grow { file: usize, bytes: Vec<u8> },
    Write { file: usize, position: usize, bytes: Vec<u8> },
    Remove { file: usize },
    Copy { from: usize, to: usize },
    Put { name: usize, bytes: Vec<u8> },
}

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        4 => (any::<usize>(), any::<usize>(), 1..255_u8)
            .prop_map(|(file, position, bits)| Damage::Flip { file, position, bits }),
        2 => (any::<usize>(), any::<usize>()).prop_map(|(file, size)| Damage::Cut { file, size }),
        2 => (any::<usize>(), bytes()).prop_map(|(file, bytes)| Damage::Grow { file, bytes }),
        2 => (any::<usize>(), any::<usize>(), bytes())
            .prop_map(|(file, position, bytes)| Damage::Write { file, position, bytes }),
        1 => any::<usize>().prop_map(|file| Damage::Remove { file }),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Damage::Copy { from, to }),
        2 => (any::<usize>(), bytes()).prop_map(|(name, bytes)| Damage::Put { name, bytes }),
    ]
}

const NAMES: [&str; 14] = [
    "00000000000000000003.log",
    "00000000000000000000.log.swap",
    "00000000000000000002.log.swap",
    "00000000000000000002.index.swap",
    "00000000000000000001.log.cleaned",
    "00000000000000000000.log.deleted",
    "09223372036854775807.log",
    "09223372036854775807.snapshot",
    "00000000000000000007.index",
    "00000000000000000000.txnindex",
    "leader-epoch-checkpoint",
    "leader-epoch-checkpoint.tmp",
    "5.log",
    "something else",
];

fn apply(bench: &Bench, damage: &Damage) {
    let files: Vec<_> = bench.disk.contents().into_iter().collect();
    if files.is_empty() {
        return;
    }
    let pick = |index: &usize| files[index % files.len()].clone();
    match damage {
        Damage::Flip { file, position, bits } => {
            let (path, mut bytes) = pick(file);
            if let Some(size) = bytes.len().checked_sub(1) {
                bytes[position % (size + 1)] ^= bits;
                bench.disk.write_file(&path, &bytes);
            }
        }
        Damage::Cut { file, size } => {
            let (path, bytes) = pick(file);
            bench.disk.write_file(&path, &bytes[..size % (bytes.len() + 1)]);
        }
        Damage::Grow { file, bytes } => {
            let (path, before) = pick(file);
            bench.disk.write_file(&path, &[before, bytes.clone()].concat());
        }
        Damage::Write { file, position, bytes } => {
            let (path, mut before) = pick(file);
            let at = position % (before.len() + 1);
            let end = (at + bytes.len()).min(before.len());
            before[at..end].copy_from_slice(&bytes[..end - at]);
            bench.disk.write_file(&path, &before);
        }
        Damage::Remove { file } => {
            bench.disk.remove_file(&pick(file).0);
        }
        Damage::Copy { from, to } => bench.disk.write_file(&pick(to).0, &pick(from).1),
        Damage::Put { name, bytes } => {
            bench.disk.write_file(&bench.path(NAMES[name % NAMES.len()]), bytes);
        }
    }
}

fn own_directory() -> Bench {
    let bench = Bench::new(1).segment_bytes(700);
    let mut open = bench.open_unclean();
    for sequence in 0..4 {
        open.produce(data(Some((1, 0, 2 * sequence)), sequence == 3, 2, 100));
        open.produce(data(Some((2, 0, sequence)), sequence == 3, 1, 10));
    }
    open.coordinate(marker(false, 2, 0, 0));
    open.coordinate(barrier());
    open.produce(data(Some((2, 0, 0)), false, 1, 10));
    open.close();
    bench
}

fn golden_directory(name: &str) -> Bench {
    let mut bench = Bench::new(1);
    bench.dir = format!("/golden/{name}-0").into();
    let from = testdata().join(name).join(format!("{name}-0"));
    bench.disk.import(&from, &bench.dir).unwrap();
    bench
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn r7_no_bytes_in_the_directory_make_it_panic(
        which in 0..4_usize,
        damages in proptest::collection::vec(damage(), 1..6),
        clean in any::<bool>(),
        recovery_point in prop_oneof![Just(0), 0..300_i64, Just(i64::MAX)],
        log_start in prop_oneof![Just(0), 0..300_i64, Just(i64::MAX)],
    ) {
        let bench = match which {
            0 => own_directory(),
            1 => golden_directory("barrier"),
            2 => golden_directory("txn-open"),
            _ => golden_directory("kill9"),
        };
        for damage in &damages {
            apply(&bench, damage);
        }
        let mut options = bench.options();
        options.clean_shutdown = clean;
        options.recovery_point = offset(recovery_point);
        options.log_start_offset = offset(log_start);
        if let Ok(mut open) = bench.try_open(options) {
            let end = open.log.log_end_offset();
            for isolation in [Isolation::Uncommitted, Isolation::Committed] {
                for from in [0, 5, 50, 100, end.get()] {
                    let _ = open.log.read(&mut *open.io, offset(from), 5000, isolation, true);
                }
                for spec in [OffsetSpec::Earliest, OffsetSpec::MaxTimestamp, OffsetSpec::Timestamp(NOW)] {
                    let _ = open.log.offset_for(&mut *open.io, spec, isolation);
                }
            }
            if end.get() < i64::MAX - 10 {
                let _ = open.append(plain(1, 10), &client());
                let _ = open.append(barrier(), &AppendParams::coordinator(epoch(9), NOW));
                let _ = open.log.truncate_to(&mut *open.io, offset(end.get() / 2));
            }
            let _ = open.log.close(&mut *open.io);
        }
    }
}

#[test]
fn r8_a_flipped_bit_takes_the_partition_offline_and_is_reported() {
    let bench = Bench::new(1).segment_bytes(700);
    let mut open = bench.open_unclean();
    for sequence in 0..8 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 200));
        open.sync();
    }
    let segments = open.log.segments();
    let recovery_point = segments.last().unwrap().base_offset;
    drop(open);
    // In a sealed segment that is walked, and in the active one with valid batches behind.
    for (base, recovery_point) in [(Offset::ZERO, Offset::ZERO), (recovery_point, recovery_point)] {
        let damaged = bench.fork();
        let file = damaged.path(&format!("{:020}.log", base.get()));
        damaged.disk.flip(&file, 100, 0x04);
        let before = damaged.disk.contents();
        let mut options = damaged.options();
        options.recovery_point = recovery_point;
        let Err(LoadError::Corrupt(corruption)) = damaged.try_open(options) else { panic!("loaded") };
        assert_eq!((&corruption.file, corruption.position, corruption.next_offset), (&file, 0, base));
        let behind = corruption.behind.unwrap();
        assert_eq!(behind.base_offset, base.next().unwrap());
        assert_eq!(damaged.disk.contents(), before, "nothing was cut away");
    }
}

#[test]
fn r8_bytes_behind_a_lost_write_are_archived_before_they_are_cut() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(plain(1, 100));
    open.sync();
    open.produce(plain(1, 2000));
    open.produce(plain(1, 300));
    open.produce(plain(1, 300));
    open.settle();
    drop(open);
    // The second write did not land, the third and fourth did.
    let path = bench.path("00000000000000000000.log");
    let mut bytes = bench.disk.read_file(&path).unwrap();
    let batches: Vec<usize> = BatchReader::new(&bytes).map(|batch| batch.unwrap().size()).collect();
    let (from, to) = (batches[0], batches[0] + batches[1]);
    bytes[from..to].fill(0);
    bench.disk.write_file(&path, &bytes);

    let mut options = bench.options();
    options.recovery_point = offset(1);
    let open = bench.open(options);
    assert_eq!(open.log.log_end_offset(), offset(1));
    let [cut] = &open.report.cuts[..] else { panic!("{:?}", open.report.cuts) };
    let CutKind::Hole { archive, first_offset, end_offset } = &cut.kind else { panic!("{cut:?}") };
    assert_eq!((*first_offset, *end_offset), (offset(2), offset(4)));
    assert!(archive.starts_with(&bench.side_dir));
    assert_eq!(bench.disk.read_file(archive).unwrap(), bytes[from..]);
    let said = open.report.to_string();
    let place = format!("at byte {from} of 00000000000000000000.log");
    assert!(said.contains("behind a lost write cut") && said.contains(&place), "{said}");
    assert!(said.contains(&format!("weir dump-log {}", archive.display())), "{said}");
}

#[test]
fn r8_a_group_that_lost_the_sector_in_which_it_began_is_cut_wherever_in_it_that_was() {
    let base = 0x3_0203;
    let mut holes = 0;
    for rest in 1..=20 {
        for seed in 0..30 {
            let bench = Bench::new(seed);
            let mut open = bench.open_unclean();
            let empty = placed(plain(1, 300), base - 1, 0).len() - 300;
            open.replicate(placed(plain(1, 1024 - rest - empty), base - 1, 0));
            open.sync();
            // Two batches by one write, of which the first begins with the last bytes of a sector.
            open.replicate(placed(plain(1, 700), base, 0));
            open.replicate(placed(plain(1, 700), base + 1, 0));
            open.settle();
            let whole = bench.log_bytes();
            drop(open);
            bench.disk.crash(CrashPolicy { data: DataFate::Mixed, names: NameFate::Kept });
            let mut open = bench.open_unclean();
            let found = open.read_all(Isolation::Uncommitted);
            assert!(found.len() >= 1024 - rest && found == whole[..found.len()], "{rest} {seed}");
            holes += open.report.cuts.iter().filter(|cut| matches!(cut.kind, CutKind::Hole { .. })).count();
        }
    }
    assert!(holes >= 10, "{holes}");
}

#[test]
fn r8_a_batch_that_goes_back_or_a_compressed_control_batch_is_not_taken() {
    let compressed_control = {
        let mut batch = BytesMut::from(&placed(barrier(), 1, 0)[..]);
        batch[22] |= 1;
        let crc = weir_format::crc::batch_crc(&batch);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        RecordBatch::parse(&batch).unwrap();
        batch
    };
    for bad in [placed(plain(1, 10), 0, 0), compressed_control] {
        let bench = Bench::new(1);
        let mut open = bench.open_unclean();
        open.produce(plain(1, 10));
        open.sync();
        drop(open);
        let path = bench.path("00000000000000000000.log");
        let whole = [bench.disk.read_file(&path).unwrap(), bad.to_vec()].concat();
        // At the end of the log no crash leaves a whole batch that goes back; with a valid batch behind, both are corruption.
        bench.disk.write_file(&path, &whole);
        let at_end = bench.fork();
        match at_end.try_open(at_end.options()) {
            Err(LoadError::Corrupt(corruption)) => {
                assert_eq!(corruption.reason, CorruptReason::LowerOffset);
                assert_eq!(at_end.disk.read_file(&path).unwrap(), whole, "nothing was cut away");
            }
            Err(error) => panic!("{error}"),
            Ok(at_end) => {
                assert!(RecordBatch::parse(&bad).unwrap().is_compressed_control());
                assert_eq!(at_end.log.log_end_offset(), offset(1));
                assert_eq!(at_end.report.cuts[0].kind, CutKind::Torn);
            }
        }
        bench.disk.write_file(&path, &[whole, placed(plain(1, 10), 2, 0).to_vec()].concat());
        assert!(matches!(bench.try_open(bench.options()), Err(LoadError::Corrupt(_))));
    }
}

/// A base offset lies outside the CRC. One that rots upward, above the recovery point, leaves valid batches behind it that
/// seem to go back: they were acknowledged, and are not cut away.
#[test]
fn r8_a_base_offset_that_rots_takes_the_partition_offline_and_nothing_is_cut() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    for _ in 0..6 {
        open.produce(plain(1, 50));
        open.sync();
    }
    drop(open);
    let path = bench.path("00000000000000000000.log");
    let size = bench.disk.read_file(&path).unwrap().len() as u64 / 6;
    for batch in 0..6_u64 {
        for bit in 0..64_u64 {
            let rotten = bench.fork();
            rotten.disk.flip(&path, batch * size + bit / 8, 0x80 >> (bit % 8));
            let before = rotten.disk.contents();
            let is_up = batch & (1 << (63 - bit)) == 0;
            match rotten.try_open(rotten.options()) {
                Err(LoadError::Corrupt(_)) => assert_eq!(rotten.disk.contents(), before),
                Err(error) => panic!("{error}"),
                // A gap in front of the last batch is what a log may have; a negative offset is no batch, as any torn one.
                Ok(open) => {
                    assert!(batch == 5 && is_up, "batch {batch} bit {bit}: {:?}", open.report.cuts);
                    assert_eq!(open.report.cut_bytes() > 0, bit == 0, "batch {batch} bit {bit}");
                }
            }
        }
    }
}

#[test]
fn a_full_disk_does_not_keep_a_log_from_being_served() {
    let bench = Bench::new(1).segment_bytes(700);
    let mut open = bench.open_unclean();
    for sequence in 0..8 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 200));
    }
    open.sync();
    drop(open);
    let bytes = bench.log_bytes();
    for bare in [false, true] {
        let full = bench.fork();
        if bare {
            full.remove_auxiliary_files();
        }
        full.disk.full_after(Some(0));
        let mut open = full.open_unclean();
        assert_eq!(open.read_all(Isolation::Uncommitted), bytes);
        assert_eq!(open.log.producers().count(), 1);
        assert_eq!(open.report.skipped.is_empty(), !bare);
    }
}

#[test]
fn leftovers_of_interrupted_operations_are_dropped_or_finished() {
    // TAIL-8.
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..3 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 200));
    }
    open.sync();
    let facts = open.facts();
    drop(open);
    let second = bench.disk.read_file(&bench.path("00000000000000000001.log")).unwrap();
    for name in [
        "00000000000000000000.log.deleted",
        "00000000000000000009.log.cleaned",
        "leader-epoch-checkpoint.tmp",
    ] {
        bench.disk.write_file(&bench.path(name), b"anything");
    }
    // The cleaner had finished segment 1, and its source is still there.
    bench.disk.write_file(&bench.path("00000000000000000001.log.swap"), &second);
    let mut open = bench.open_unclean();
    assert_eq!(open.facts(), facts);
    let finished: Vec<bool> = open.report.leftovers.iter().map(|leftover| leftover.finished).collect();
    assert_eq!(finished.iter().filter(|&&finished| finished).count(), 1);
    assert_eq!(finished.len(), 4);
    assert!(bench.disk.files().iter().all(|path| {
        let name = path.to_str().unwrap();
        ![".deleted", ".cleaned", ".swap", ".tmp"].iter().any(|suffix| name.ends_with(suffix))
    }));
    // A spoilt swap is not put in place of anything.
    let mut spoilt = second;
    spoilt[80] ^= 1;
    bench.disk.write_file(&bench.path("00000000000000000001.log.swap"), &spoilt);
    assert!(matches!(bench.try_open(bench.options()), Err(LoadError::Corrupt(_))));
}

#[test]
fn a_snapshot_above_a_log_that_was_cut_from_outside_is_never_loaded() {
    // Three segments; snapshots at 1 and 2. Then someone takes the last two away, as a tool does that cuts a log.
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..3 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 250));
    }
    open.sync();
    drop(open);
    for base in [1, 2] {
        bench.disk.remove_file(&bench.path(&format!("{base:020}.log")));
    }
    // The log grows over the snapshot's offset again, with other producers, and perhaps to a snapshot above it.
    for closed in [false, true] {
        let bench = bench.fork().segment_bytes(1 << 20);
        let mut open = bench.open_unclean();
        assert_eq!(open.log.log_end_offset(), offset(1));
        for sequence in 0..4 {
            open.produce(data(Some((2, 0, sequence)), false, 1, 10));
        }
        if closed {
            open.close();
            open = bench.open_clean();
        }
        open.truncate(3);
        let known: Vec<_> =
            open.log.producers().map(|(id, entry)| (id.get(), entry.last_offset().unwrap().get())).collect();
        assert_eq!(known, [(1, 0), (2, 2)], "closed {closed}");
    }
}

#[test]
fn a_segment_whose_offsets_lie_far_above_its_base_is_opened_and_read() {
    // N-TAIL-3: older brokers left such files.
    let bench = Bench::new(1);
    let far = 2_147_483_650;
    let bytes = [placed(plain(1, 10), 0, 0), placed(data(Some((1, 0, 0)), false, 2, 10), far, 0)].concat();
    bench.disk.write_file(&bench.path("00000000000000000000.log"), &bytes);
    for _ in 0..2 {
        let mut open = bench.open_unclean();
        assert_eq!(open.log.log_end_offset(), offset(far + 2));
        assert_eq!(bases(&open.read(1, 1 << 20, Isolation::Uncommitted).bytes), [far]);
        // GAP-6: what follows goes into a segment of its own.
        let end = open.log.log_end_offset().get();
        assert_eq!(open.produce(plain(1, 10)).base_offset, offset(end));
        open.sync();
        assert_eq!(open.log.segments().last().unwrap().base_offset, offset(far + 2));
        open.truncate(end);
    }
}

// The barrier.

/// One open transaction on each side of an ordinary ABORT, then a barrier at which both are aborted.
fn aborted_at_a_barrier() -> Open {
    let mut open = Bench::new(1).open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 1, 10)); // 0, aborted at the barrier
    open.produce(data(Some((2, 0, 0)), true, 1, 10)); // 1, aborted at 2
    open.coordinate(marker(false, 2, 0, 0)); // 2
    open.produce(data(Some((3, 0, 0)), true, 1, 10)); // 3, aborted at the barrier
    open.produce(plain(1, 10)); // 4
    let barrier = open.coordinate(barrier()); // 5
    assert_eq!(barrier.barriers[0].transactions_aborted.len(), 2);
    open.produce(data(Some((1, 0, 0)), true, 1, 10)); // 6, a new transaction of the same id
    open.coordinate(marker(true, 1, 0, 0)); // 7
    open.sync();
    open
}

#[test]
fn b4_a_transaction_open_at_a_barrier_is_aborted_there() {
    let mut open = aborted_at_a_barrier();
    let entries: Vec<_> = open
        .aborted()
        .iter()
        .map(|e| (e.producer_id.get(), e.first_offset.get(), e.last_offset.get(), e.last_stable_offset.get()))
        .collect();
    // In ascending order of first offset; each one's LSO is the next one still open, the last one's is behind the barrier.
    assert_eq!(entries, [(2, 1, 2, 0), (1, 0, 5, 3), (3, 3, 5, 6)]);
    assert_eq!(open.log.view().last_stable_offset, offset(8));
    assert!(open.log.open_transactions().is_empty());
}

#[test]
fn b4_a_response_that_lists_such_a_transaction_ends_just_before_the_barrier() {
    let mut open = aborted_at_a_barrier();
    let read = open.read(0, 1 << 20, Isolation::Committed);
    assert_eq!(bases(&read.bytes), [0, 1, 2, 3, 4]);
    assert_eq!(aborted_of(&read), [(1, 0, 5), (2, 1, 2), (3, 3, 5)]);
    // The reader goes on at the barrier: nothing of before is listed, and the committed batch of id 1 is delivered.
    let read = open.read(5, 1 << 20, Isolation::Committed);
    assert_eq!(bases(&read.bytes), [5, 6, 7]);
    assert_eq!(aborted_of(&read), []);
    let read = open.read(6, 1 << 20, Isolation::Committed);
    assert_eq!((bases(&read.bytes), aborted_of(&read)), (vec![6, 7], vec![]));
    // From the middle: what overlaps.
    let read = open.read(4, 1 << 20, Isolation::Committed);
    assert_eq!((bases(&read.bytes), aborted_of(&read)), (vec![4], vec![(1, 0, 5), (3, 3, 5)]));
    // An uncommitted reader is told nothing and gets everything.
    let read = open.read(0, 1 << 20, Isolation::Uncommitted);
    assert_eq!((bases(&read.bytes).len(), aborted_of(&read)), (8, vec![]));
}

#[test]
fn b4_what_a_client_keeps_until_a_marker_hides_nothing_that_was_committed() {
    // A client of any kind: ids become aborted at their first offset, and stop being so at a marker of theirs.
    let mut open = aborted_at_a_barrier();
    for max_bytes in [1, 80, 160, 400, 1 << 20] {
        let mut at = 0;
        let mut delivered = Vec::new();
        while at < 8 {
            let read = open.read(at, max_bytes, Isolation::Committed);
            let mut aborted = read.aborted.clone();
            let mut ids: Vec<ProducerId> = Vec::new();
            for batch in BatchReader::new(&read.bytes) {
                let batch = batch.unwrap();
                aborted.retain(|entry| {
                    let begun = entry.first_offset <= batch.last_offset();
                    if begun {
                        ids.push(entry.producer_id);
                    }
                    !begun
                });
                let id = batch.producer_id();
                if batch.is_control() {
                    if matches!(batch.end_transaction_marker(), Some(Ok(marker)) if !marker.commit) {
                        ids.retain(|&known| Some(known) != id);
                    }
                } else if !batch.is_transactional() || !ids.iter().any(|&known| Some(known) == id) {
                    delivered.push(batch.base_offset().get());
                }
                at = batch.next_offset().get();
            }
        }
        assert_eq!(delivered, [4, 6], "{max_bytes}");
    }
}

#[test]
fn b5_meeting_the_barrier_twice_equals_once() {
    let mut once = Bench::new(1).open_unclean();
    let mut twice = Bench::new(1).open_unclean();
    for open in [&mut once, &mut twice] {
        open.produce(data(Some((1, 0, 0)), true, 1, 10));
        open.coordinate(barrier());
    }
    let second = twice.coordinate(barrier());
    assert_eq!((second.barriers[0].producers_expired, second.barriers[0].transactions_aborted.len()), (0, 0));
    assert_equal_state(&once.producers(), &twice.producers(), "twice");
    assert_eq!(once.aborted(), twice.aborted());
}

#[test]
fn b6_truncating_below_a_barrier_restores_what_was_known() {
    let mut open = Bench::new(1).segment_bytes(300).open_unclean();
    open.produce(data(Some((1, 0, 0)), false, 3, 100));
    open.produce(data(Some((2, 0, 0)), true, 1, 10));
    let before = open.producers();
    open.coordinate(barrier());
    open.produce(data(Some((1, 0, 0)), false, 1, 200));
    open.sync();
    assert_eq!(open.log.producers().count(), 1);
    open.truncate(4);
    assert_equal_state(&open.producers(), &before, "below the barrier");
    assert_eq!(open.log.open_transactions().len(), 1);
    assert_eq!(open.log.view().last_stable_offset, offset(3));
    assert_eq!(open.aborted(), []);
    assert_eq!(open.log.partition_file().barriers().count(), 0);
    // A producer that goes on is in sequence again.
    let taken = open.append(data(Some((1, 0, 3)), false, 1, 10), &client()).unwrap();
    assert_eq!(taken.base_offset, offset(4));
}

#[test]
fn b7_a_snapshot_of_before_the_barrier_does_not_bring_entries_back() {
    // SNAP-7: snapshot, then the barrier in the tail, then a crash.
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), false, 1, 250));
    open.produce(data(Some((2, 0, 0)), false, 1, 100));
    let snapshots: Vec<i64> = open.log.partition_file().snapshots().map(|(at, _)| at.get()).collect();
    assert_eq!(snapshots, [1]);
    open.coordinate(barrier());
    open.sync();
    let recovery_point = open.log.recovery_point();
    drop(open);
    bench.disk.crash(CrashPolicy::DROP_ALL);
    let mut options = bench.options();
    options.recovery_point = recovery_point;
    let open = bench.open(options);
    assert_eq!(open.report.producer_state, ProducerStateSource::Snapshot { offset: offset(1) });
    assert_eq!(open.log.producers().count(), 0);
}

#[test]
fn b7_a_snapshot_that_weir_did_not_write_is_not_loaded() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), false, 1, 10));
    let stale = open.producers().snapshot();
    open.coordinate(barrier());
    open.close();
    // Another Kafka opened the directory: it wrote what survives the barrier into the snapshot at the log end.
    let path = bench.path("00000000000000000002.snapshot");
    assert!(bench.disk.read_file(&path).is_some());
    bench.disk.write_file(&path, &stale);
    let open = bench.open_clean();
    let reason = NoSnapshot::NoneIntact;
    assert_eq!(open.report.producer_state, ProducerStateSource::Replay { from: offset(0), reason });
    assert_eq!(open.log.producers().count(), 0);
}

#[test]
fn b7_a_spoilt_snapshot_or_partition_file_costs_a_replay_and_nothing_else() {
    // SNAP-2.
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 1, 10));
    open.sync();
    let (facts, producers) = (open.facts(), open.producers());
    open.close();
    let snapshot = bench.path("00000000000000000001.snapshot");
    let partition = bench.side_dir.join("partition");
    for path in [snapshot, partition] {
        let bytes = bench.disk.read_file(&path).unwrap();
        for spoilt in [&bytes[..0], &bytes[..bytes.len() / 2], &[&bytes[..], b"x"].concat()] {
            let damaged = bench.fork();
            damaged.disk.write_file(&path, spoilt);
            let mut open = damaged.open_clean();
            assert!(matches!(open.report.producer_state, ProducerStateSource::Replay { .. }));
            assert_eq!(open.facts(), facts);
            assert_equal_state(&open.producers(), &producers, "spoilt");
        }
    }
}

#[test]
fn b9_a_barrier_with_a_producer_id_is_a_barrier_and_its_id_is_ignored() {
    let mut open = Bench::new(1).open_unclean();
    open.produce(data(Some((1, 0, 0)), false, 1, 10));
    let mut odd = placed(barrier(), 1, 0);
    odd[43..51].copy_from_slice(&9_i64.to_be_bytes());
    let crc = weir_format::crc::batch_crc(&odd);
    odd[17..21].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(open.replicate(odd).barriers.len(), 1);
    assert_eq!(open.log.producers().count(), 0);
}

#[test]
fn b10_a_refused_append_leaves_no_trace() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 1, 10));
    open.sync();
    let (facts, producers, bytes) = (open.facts(), open.producers(), bench.log_bytes());
    let valid = [placed(data(Some((7, 0, 0)), false, 1, 10), 1, 0), placed(barrier(), 2, 0)].concat();
    let with_behind = |bad: &[u8]| BytesMut::from(&[&valid[..], bad].concat()[..]);
    let mut flipped = placed(plain(1, 10), 3, 0);
    flipped[70] ^= 1;
    for bad in [
        with_behind(&flipped),
        with_behind(&placed(plain(1, 10), 2, 0)),
        with_behind(&placed(plain(1, 10), 3, 6)),
        with_behind(&placed(plain(1, 10), 3, 0)[..40]),
    ] {
        assert!(open.append(bad, &replication()).is_err());
        assert_eq!(
            open.facts(),
            facts,
            "the valid batches in front, barrier included, were not taken either"
        );
        assert_equal_state(&open.producers(), &producers, "refused");
        assert_eq!(bench.log_bytes(), bytes);
    }
}

#[test]
fn b10_after_a_failed_write_the_state_is_what_the_bytes_say() {
    for room in [0, 1, 60, 61, 100, 130, 200] {
        let bench = Bench::new(1);
        let mut open = bench.open_unclean();
        open.produce(data(Some((1, 0, 0)), true, 1, 10));
        open.sync();
        let (facts, producers) = (open.facts(), open.producers());
        bench.disk.full_after(Some(room));
        let bytes = [
            placed(data(Some((1, 0, 1)), true, 1, 10), 1, 0),
            placed(barrier(), 2, 0),
            placed(plain(1, 300), 3, 0),
        ]
        .concat();
        let view = *open.log.view();
        let appended = open.append(BytesMut::from(&bytes[..]), &replication()).unwrap();
        open.settle();
        // It was neither acknowledged nor published, and nothing more is taken (N-TAIL-1).
        assert!(open.log.is_offline() && open.log.failure().is_some_and(weir_segment::io::IoError::is_full));
        assert!(open.log.written_end_offset() < appended.durable_at);
        assert_eq!(*open.log.view(), view);
        assert_eq!(open.log.log_end_offset(), offset(1), "the log is what is known to be written");
        assert!(matches!(open.append(plain(1, 1), &client()), Err(AppendError::Offline)));
        assert!(!open.log.has_unsent() && !open.log.needs_sync() && !open.log.sync_begin(&mut *open.io));
        drop(open);
        bench.disk.full_after(None);
        let mut open = bench.open_unclean();
        let end = open.log.log_end_offset().get();
        assert!((1..=3).contains(&end), "whole batches that landed are kept");
        if end == 1 {
            assert_eq!(open.facts(), facts);
            assert_equal_state(&open.producers(), &producers, "reloaded");
        }
        assert_eq!(open.log.producers().count(), usize::from(end < 3), "room {room}");
    }
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_nobody_syncs_again() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(plain(1, 10));
    open.sync();
    open.produce(plain(1, 10));
    bench.disk.fail_sync(1);
    open.sync();
    assert!(open.log.is_offline());
    assert_eq!(open.log.view().high_watermark, offset(1));
    assert!(matches!(open.append(plain(1, 1), &client()), Err(AppendError::Offline)));
    assert!(!open.log.sync_begin(&mut *open.io));
    assert!(matches!(open.log.sync(&mut *open.io), Err(ChangeError::Offline)));
    assert!(
        matches!(open.log.close(&mut *open.io), Err(ChangeError::Offline)),
        "and no clean marker may follow"
    );
}

// Producer ids that two clusters hand out.

/// What a mirror holds of a source whose producer 5 wrote ten records and one transaction was aborted.
fn mirrored(bench: &Bench) -> Open {
    let mut open = bench.open_unclean();
    let source = log_of(&[data(Some((5, 0, 0)), false, 10, 8)]);
    open.replicate(source[0].clone());
    open.sync();
    open
}

#[test]
fn pid_1_a_new_producer_with_a_mirrored_id_is_appended_after_the_barrier() {
    let bench = Bench::new(1);
    let mut open = mirrored(&bench);
    assert_eq!(open.coordinate(barrier()).base_offset, offset(10));
    let taken = open.append(data(Some((5, 0, 0)), false, 10, 9), &client()).unwrap();
    assert_eq!((taken.base_offset, taken.last_offset, taken.duplicate), (offset(11), offset(20), false));
    open.sync();
    assert_eq!(open.log.log_end_offset(), offset(21));
    let bytes = open.read_all(Isolation::Uncommitted);
    let counts: Vec<i32> = BatchReader::new(&bytes).map(|batch| batch.unwrap().record_count()).collect();
    assert_eq!(counts, [10, 1, 10], "both sets are readable");
}

#[test]
fn pid_1b_a_batch_of_another_length_is_appended_after_the_barrier() {
    let bench = Bench::new(1);
    let mut open = mirrored(&bench);
    open.coordinate(barrier());
    let taken = open.append(data(Some((5, 0, 0)), false, 4, 9), &client()).unwrap();
    assert_eq!(taken.base_offset, offset(11));
}

/// The negative control: on a log cut before the barrier the same batches are lost or refused.
#[test]
fn without_the_barrier_the_colliding_batch_is_answered_as_a_duplicate_and_lost() {
    let bench = Bench::new(1);
    let mut open = mirrored(&bench);
    open.coordinate(barrier());
    open.sync();
    open.truncate(10);
    let answered = open.append(data(Some((5, 0, 0)), false, 10, 9), &client()).unwrap();
    assert_eq!((answered.base_offset, answered.duplicate), (offset(0), true));
    assert_eq!(open.log.log_end_offset(), offset(10), "nothing was appended");
    let refused = open.append(data(Some((5, 0, 0)), false, 4, 9), &client());
    let Err(AppendError::ProducerState { source: ProducerStateError::OutOfOrderSequence { .. } }) = refused
    else {
        panic!("{refused:?}")
    };
}

#[test]
fn pid_5_a_chained_mirror_knows_only_the_second_producer_of_an_id() {
    // A wrote, B stopped and wrote with the same id, C mirrors B.
    let b = Bench::new(1);
    let mut on_b = b.open_unclean();
    on_b.replicate(log_of(&[data(Some((5, 0, 0)), false, 3, 8)])[0].clone());
    on_b.coordinate(barrier());
    on_b.append(data(Some((5, 0, 0)), false, 3, 8), &client()).unwrap();
    on_b.sync();
    let bytes = on_b.read_all(Isolation::Uncommitted);
    let c = Bench::new(2);
    let mut on_c = c.open_unclean();
    on_c.replicate(BytesMut::from(&bytes[..]));
    on_c.sync();
    assert_eq!(c.log_bytes(), bytes, "byte for byte");
    let producers: Vec<_> = on_c.log.producers().collect();
    let [(id, entry)] = &producers[..] else { panic!("{producers:?}") };
    assert_eq!(
        (
            id.get(),
            entry.producer_epoch().unwrap().get(),
            entry.last_sequence().unwrap().get(),
            entry.last_offset()
        ),
        (5, 0, 2, Some(offset(6)))
    );
    assert_eq!(on_c.coordinate(barrier()).base_offset, offset(7), "its own fail-over writes its own barrier");
}

#[test]
fn pid_7_mirroring_may_start_at_any_offset_and_sequence() {
    let mut open = Bench::new(1).open_unclean();
    open.log.truncate_fully_and_start_at(&mut *open.io, offset(100)).unwrap();
    let taken = open.replicate(placed(data(Some((7, 0, 55)), false, 1, 8), 100, 3));
    assert_eq!(taken.base_offset, offset(100));
    let (id, entry) = open.log.producers().next().unwrap();
    assert_eq!((id.get(), entry.last_sequence().unwrap().get()), (7, 55));
    assert_eq!(open.log.view().log_start_offset, offset(100));
}

// The gate.

#[test]
fn clients_append_exactly_one_valid_batch_of_records() {
    let mut open = Bench::new(1).open_unclean();
    let invalid = |result: Result<weir_log::Appended, AppendError>| match result {
        Err(AppendError::InvalidRecord { reason }) => reason,
        other => panic!("{other:?}"),
    };
    let two = [plain(1, 1), plain(1, 1)].concat();
    let two = open.append(BytesMut::from(&two[..]), &client());
    assert!(matches!(two, Err(AppendError::NotOneBatch { found: 2 })));
    assert_eq!(invalid(open.append(barrier(), &client())), InvalidRecord::ControlBatchFromClient);
    let elsewhere = placed(plain(1, 1), 7, 0);
    assert_eq!(
        invalid(open.append(elsewhere, &client())),
        InvalidRecord::BaseOffset { base_offset: offset(7) }
    );
    let empty = BatchBuilder::new().last_offset_delta(0).build().unwrap();
    assert_eq!(invalid(open.append(empty, &client())), InvalidRecord::NoRecords);
    let gap = BatchBuilder::new().record(NOW, None, None).last_offset_delta(4).build().unwrap();
    let reason = InvalidRecord::CountAndDelta { record_count: 1, last_offset_delta: 4 };
    assert_eq!(invalid(open.append(gap, &client())), reason);
    let re_sum = |mut batch: BytesMut, change: &dyn Fn(&mut BytesMut)| {
        change(&mut batch);
        let crc = weir_format::crc::batch_crc(&batch);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        batch
    };
    // PID-6.
    let negative = re_sum(plain(1, 1), &|batch| batch[43..51].copy_from_slice(&(-7_i64).to_be_bytes()));
    let reason = InvalidRecord::NegativeProducerId { producer_id: -7 };
    assert_eq!(invalid(open.append(negative.clone(), &client())), reason);
    let unknown = re_sum(plain(1, 1), &|batch| batch[22] |= 6);
    assert_eq!(invalid(open.append(unknown, &client())), InvalidRecord::UnknownCodec { codec: 6 });
    let records = re_sum(plain(2, 1), &|batch| batch[61] = 0);
    assert!(matches!(open.append(records, &client()), Err(AppendError::Records { .. })));
    let mut flipped = plain(1, 1);
    flipped[65] ^= 1;
    assert!(matches!(open.append(flipped, &client()), Err(AppendError::Batch { position: 0, .. })));
    let large = open.append(plain(1, 1 << 21), &client());
    assert!(matches!(large, Err(AppendError::RecordTooLarge { max: 1_048_588, .. })));
    let in_transaction = data(Some((1, 0, 0)), true, 1, 1);
    let refused = open.append(in_transaction, &AppendParams::client(epoch(0), NOW));
    assert!(matches!(refused, Err(AppendError::TransactionNotOpen { .. })));
    assert_eq!(open.log.log_end_offset(), Offset::ZERO);
    // The same id is taken from a source, as no producer.
    open.replicate(placed(negative, 0, 0));
    assert_eq!(open.log.producers().count(), 0);
}

#[test]
fn leaders_stamp_offset_and_epoch_and_followers_keep_the_bytes() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.append(plain(3, 5), &AppendParams::client(epoch(4), NOW)).unwrap();
    let appended = open.append(plain(2, 5), &AppendParams::client(epoch(4), NOW)).unwrap();
    assert_eq!(
        (appended.base_offset, appended.last_offset, appended.durable_at),
        (offset(3), offset(4), offset(5))
    );
    let as_sent = placed(plain(1, 5), 9, 5);
    open.replicate(as_sent.clone());
    open.sync();
    let bytes = open.read_all(Isolation::Uncommitted);
    let found: Vec<_> = BatchReader::new(&bytes)
        .map(|batch| batch.map(|b| (b.base_offset().get(), b.leader_epoch().unwrap().get())).unwrap())
        .collect();
    assert_eq!(found, [(0, 4), (3, 4), (9, 5)], "a gap is taken from a source");
    assert!(bytes.ends_with(&as_sent));
    assert_eq!(open.facts().epochs, [(4, 0), (5, 9)]);
    assert_eq!(open.log.end_offset_for_epoch(epoch(4)), Some((epoch(4), offset(9))));
}

#[test]
fn no_leader_appends_under_an_epoch_that_its_log_is_ahead_of() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.replicate(placed(plain(1, 5), 0, 5));
    let before = open.facts();
    let stale = AppendParams::client(epoch(4), NOW);
    for (batch, params) in
        [(plain(1, 5), stale), (BatchBuilder::barrier(NOW), AppendParams::coordinator(epoch(4), NOW))]
    {
        let refused = open.append(batch, &params);
        let Err(AppendError::LeaderEpochBelowNewest { epoch: given, newest }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((given, newest), (epoch(4), epoch(5)));
    }
    assert_eq!(open.facts(), before);
    open.append(plain(1, 5), &AppendParams::client(epoch(5), NOW)).unwrap();
}

#[test]
fn append_time_is_the_brokers_where_the_topic_says_so() {
    // N-TIME-2.
    let mut bench = Bench::new(1);
    bench.config.message_timestamp_type = TimestampType::LogAppendTime;
    let mut open = bench.open_unclean();
    let later = TimestampMs::new(NOW.get() + 5);
    let params = AppendParams { now: later, ..client() };
    let appended = open.append(data(Some((1, 0, 0)), false, 2, 5), &params).unwrap();
    assert_eq!(appended.append_time, Some(later));
    let duplicate = open.append(data(Some((1, 0, 0)), false, 2, 5), &client()).unwrap();
    assert_eq!((duplicate.append_time, duplicate.duplicate), (Some(later), true));
    open.sync();
    let bytes = open.read_all(Isolation::Uncommitted);
    let batch = RecordBatch::parse(&bytes).unwrap();
    assert_eq!((batch.timestamp_type(), batch.max_timestamp()), (TimestampType::LogAppendTime, later));
}

#[test]
fn replicated_batches_are_in_order_and_of_no_later_epoch() {
    let mut open = Bench::new(1).segment_bytes(500).open_unclean();
    open.replicate(placed(plain(2, 5), 0, 1));
    let first = placed(plain(1, 5), 2, 5);
    let later = placed(plain(1, 5), 3, 6);
    let bytes = BytesMut::from(&[&first[..], &later].concat()[..]);
    // TRUNC-13: the caller learns where to cut, and appends what lies before.
    let refused = open.append(bytes.clone(), &replication());
    let Err(AppendError::LeaderEpochTooHigh { position, offset: at, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((position, at), (first.len(), offset(3)));
    open.replicate(BytesMut::from(&bytes[..position]));
    let again = open.append(first, &replication());
    assert!(matches!(again, Err(AppendError::UnexpectedOffset { .. })));
    let mut compressed = placed(barrier(), 3, 5);
    compressed[22] |= 2;
    let crc = weir_format::crc::batch_crc(&compressed);
    compressed[17..21].copy_from_slice(&crc.to_be_bytes());
    for params in [replication(), AppendParams::coordinator(epoch(5), NOW)] {
        let refused = open.append(compressed.clone(), &params);
        let reason = InvalidRecord::CompressedControlBatch;
        assert!(matches!(refused, Err(AppendError::InvalidRecord { reason: r }) if r == reason));
    }
    let data_of_a_coordinator = open.append(plain(1, 1), &AppendParams::coordinator(epoch(5), NOW));
    let reason = InvalidRecord::NotAControlBatch;
    assert!(matches!(data_of_a_coordinator, Err(AppendError::InvalidRecord { reason: r }) if r == reason));
    let without_epoch = open.append(BytesMut::from(&plain(1, 1)[..]), &replication());
    let reason = InvalidRecord::MissingLeaderEpoch;
    assert!(matches!(without_epoch, Err(AppendError::InvalidRecord { reason: r }) if r == reason));
    assert!(matches!(
        open.append(BytesMut::new(), &replication()),
        Err(AppendError::NotOneBatch { found: 0 })
    ));
    // M6: a batch larger than a segment is taken, whole.
    let large = placed(plain(1, 3000), 3, 5);
    let size = large.len();
    open.replicate(large);
    open.replicate(placed(plain(1, 10), 4, 5));
    let sizes: Vec<u64> = open.log.segments().iter().map(|segment| segment.size).collect();
    assert!(sizes.contains(&(size as u64)), "{sizes:?}");
}

#[test]
fn an_empty_log_starts_again_at_the_sources_first_batch() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.log.truncate_fully_and_start_at(&mut *open.io, offset(174)).unwrap();
    // The source's log starts inside its first batch.
    let taken = open.replicate(placed(plain(10, 5), 170, 0));
    assert_eq!((taken.base_offset, taken.log_start_offset), (offset(170), offset(174)));
    assert_eq!(open.log.log_end_offset(), offset(180));
    // What the source's DeleteRecords hid is not shown here, not even for a moment.
    let before = open.log.view();
    assert_eq!((before.log_start_offset, before.high_watermark), (offset(174), offset(174)));
    assert!(
        before.last_stable_offset <= before.high_watermark && before.high_watermark <= before.log_end_offset
    );
    open.sync();
    let view = open.log.view();
    assert_eq!((view.log_start_offset, view.high_watermark), (offset(174), offset(180)));
    let below = open.log.read(&mut *open.io, offset(173), 1 << 20, Isolation::Uncommitted, true);
    assert!(matches!(below, Err(ReadError::OffsetOutOfRange { .. })), "{below:?}");
    let facts = open.facts();
    let mut options = bench.options();
    options.log_start_offset = offset(174);
    assert_eq!(bench.fork().open(options).facts(), facts);
    let behind = open.append(placed(plain(10, 5), 170, 0), &replication());
    assert!(matches!(behind, Err(AppendError::UnexpectedOffset { .. })), "not on a log that holds something");
    open.log.truncate_fully_and_start_at(&mut *open.io, offset(200)).unwrap();
    let wholly_below = open.append(placed(plain(10, 5), 170, 0), &replication());
    assert!(matches!(wholly_below, Err(AppendError::UnexpectedOffset { .. })));
}

// Durability.

#[test]
fn a_sync_covers_what_was_written_before_it_began_and_nothing_else() {
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(plain(1, 10));
    open.produce(plain(1, 10));
    assert_eq!(open.log.written_end_offset(), offset(0), "gathered");
    assert!(!open.log.sync_begin(&mut *open.io), "nothing is written");
    open.log.flush(&mut *open.io);
    assert!(!open.log.sync_begin(&mut *open.io), "what is in flight is not covered (D3)");
    open.settle();
    assert_eq!((open.log.written_end_offset(), open.log.recovery_point()), (offset(2), offset(0)));
    assert!(open.log.needs_sync() && open.log.sync_begin(&mut *open.io));
    open.produce(plain(1, 10));
    assert!(!open.log.needs_sync() && !open.log.sync_begin(&mut *open.io), "one at a time");
    open.reap();
    let view = open.log.view();
    assert_eq!((view.high_watermark, open.log.log_end_offset()), (offset(2), offset(3)));
    assert!(open.log.unsynced_bytes() > 0);
    open.sync();
    assert_eq!(open.log.view().high_watermark, offset(3));
    assert_eq!(open.log.unsynced_bytes(), 0);
    assert!(!open.log.needs_sync(), "nothing is unsynced");
}

#[test]
fn a_cut_waits_for_a_sync_in_flight_and_what_comes_behind_it_needs_its_own() {
    let mut open = Bench::new(1).open_unclean();
    for _ in 0..4 {
        open.produce(plain(1, 10));
    }
    open.settle();
    assert!(open.log.sync_begin(&mut *open.io));
    open.truncate(1);
    open.produce(plain(1, 10));
    open.settle();
    assert_eq!(open.log.view().high_watermark, offset(1));
    open.sync();
    assert_eq!(open.log.view().high_watermark, offset(2));
}

#[test]
fn a_duplicate_is_acknowledged_by_the_durability_of_its_original() {
    let mut open = Bench::new(1).open_unclean();
    let original = open.append(data(Some((1, 0, 0)), false, 3, 5), &client()).unwrap();
    let duplicate = open.append(data(Some((1, 0, 0)), false, 3, 5), &client()).unwrap();
    assert!(duplicate.duplicate);
    assert_eq!((duplicate.base_offset, duplicate.last_offset), (original.base_offset, original.last_offset));
    assert!(open.log.view().high_watermark < duplicate.durable_at, "the original is not durable yet");
    open.sync();
    assert!(open.log.view().high_watermark >= duplicate.durable_at);
}

#[test]
fn appends_wait_while_too_much_is_unsynced() {
    let mut bench = Bench::new(1);
    bench.config.max_unsynced_bytes = 1000;
    let mut open = bench.open_unclean();
    open.produce(plain(1, 900));
    let refused = open.append(plain(1, 900), &client());
    assert!(matches!(refused, Err(AppendError::TooMuchUnsynced { max: 1000, .. })));
    open.sync();
    open.produce(plain(1, 2000));
}

#[test]
fn under_a_weaker_promise_written_is_durable() {
    let mut bench = Bench::new(1);
    bench.config.durability = Durability::Written;
    let mut open = bench.open_unclean();
    let appended = open.produce(plain(1, 10));
    assert_eq!(open.log.view().high_watermark, offset(0), "gathered");
    open.settle();
    assert_eq!(open.log.view().high_watermark, appended.durable_at);
    assert_eq!(open.log.recovery_point(), offset(0), "but not synced");
}

#[test]
fn a_roll_makes_what_was_before_it_durable() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    open.produce(plain(1, 250));
    open.produce(plain(1, 250));
    assert_eq!(open.log.view().high_watermark, offset(1));
    bench.disk.crash(CrashPolicy::DROP_ALL);
    assert_eq!(bench.open_unclean().log.log_end_offset(), offset(1));
}

#[test]
fn a_roll_leaves_a_snapshot_and_the_newest_two_are_kept() {
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..5 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 250));
    }
    let kept: Vec<i64> = open.log.partition_file().snapshots().map(|(at, _)| at.get()).collect();
    assert_eq!(kept, [3, 4]);
    let files: Vec<_> = bench
        .disk
        .files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|s| s == "snapshot"))
        .collect();
    assert_eq!(
        files,
        [bench.path("00000000000000000003.snapshot"), bench.path("00000000000000000004.snapshot")]
    );
    // SNAP-1: a snapshot knows nothing at or above its own offset.
    let bytes = bench.disk.read_file(&files[1]).unwrap();
    let entries = weir_psm::snapshot::decode(&bytes).unwrap();
    assert_eq!(entries[0].1.last_offset(), Some(offset(3)));
}

// Reading.

#[test]
fn the_last_stable_offset_waits_until_the_marker_is_below_the_high_watermark() {
    // LSO-6.
    let mut open = Bench::new(1).open_unclean();
    open.produce(data(Some((1, 0, 0)), true, 5, 5));
    open.sync();
    assert_eq!(open.log.view().last_stable_offset, offset(0));
    open.coordinate(marker(true, 1, 0, 0));
    assert_eq!(open.log.view().last_stable_offset, offset(0), "the marker is not durable");
    open.sync();
    assert_eq!(open.log.view().last_stable_offset, offset(6));
}

#[test]
fn both_isolation_levels_bound_every_answer() {
    // LSO-11, N-LSO-6.
    let mut open = Bench::new(1).open_unclean();
    open.produce(plain(3, 5));
    open.produce(data(Some((1, 0, 0)), true, 2, 5));
    open.produce(plain(4, 5));
    open.sync();
    let at = |open: &mut Open, spec, isolation| {
        open.log.offset_for(&mut *open.io, spec, isolation).unwrap().map(|answer| answer.offset.get())
    };
    assert_eq!(at(&mut open, OffsetSpec::Latest, Isolation::Committed), Some(3));
    assert_eq!(at(&mut open, OffsetSpec::Latest, Isolation::Uncommitted), Some(9));
    assert_eq!(bases(&open.read(0, 1 << 20, Isolation::Committed).bytes), [0]);
    assert_eq!(bases(&open.read(0, 1 << 20, Isolation::Uncommitted).bytes), [0, 3, 5]);
    assert!(open.read(7, 100, Isolation::Committed).bytes.is_empty(), "between LSO and log end is in range");
    assert!(open.read(9, 100, Isolation::Committed).bytes.is_empty());
    let outside = open.log.read(&mut *open.io, offset(10), 100, Isolation::Committed, true);
    assert!(matches!(outside, Err(ReadError::OffsetOutOfRange { .. })));
}

#[test]
fn timestamps_are_found_record_by_record() {
    // TIME-1, TIME-4.
    let mut open = Bench::new(1).open_unclean();
    let stamped = |stamps: &[i64]| {
        let mut batch = BatchBuilder::new();
        for &stamp in stamps {
            batch = batch.record(TimestampMs::new(stamp), None, Some(b"v"));
        }
        batch.build().unwrap()
    };
    open.produce(stamped(&[2, 4, 6, 8]));
    open.sync();
    let find = |open: &mut Open, stamp| {
        let spec = OffsetSpec::Timestamp(TimestampMs::new(stamp));
        let found = open.log.offset_for(&mut *open.io, spec, Isolation::Uncommitted).unwrap();
        found.map(|answer| (answer.offset.get(), answer.timestamp.unwrap().get()))
    };
    assert_eq!(find(&mut open, 3), Some((1, 4)));
    assert_eq!(find(&mut open, 5), Some((2, 6)));
    assert_eq!(find(&mut open, 7), Some((3, 8)));
    assert_eq!(find(&mut open, 9), None);
    open.produce(stamped(&[15, 19, 17]));
    open.sync();
    let largest =
        open.log.offset_for(&mut *open.io, OffsetSpec::MaxTimestamp, Isolation::Uncommitted).unwrap();
    let largest = largest.unwrap();
    assert_eq!((largest.offset, largest.timestamp), (offset(5), Some(TimestampMs::new(19))));
}

// Changing.

#[test]
fn everything_on_disk_is_served_after_a_restart_whatever_a_checkpoint_says() {
    // N-LSO-1.
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(plain(100, 5));
    open.sync();
    drop(open);
    let mut options = bench.options();
    options.recovery_point = offset(60);
    let mut open = bench.open(options);
    assert_eq!(open.log.view().high_watermark, offset(100));
    assert_eq!(bases(&open.read_all(Isolation::Committed)), [0]);
}

#[test]
fn moving_the_log_start_shifts_nothing() {
    // N-TRUNC-1, SNAP-4, SNAP-6.
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for sequence in 0..6 {
        open.produce(data(Some((1, 0, sequence)), false, 1, 250));
    }
    open.sync();
    let above = open.log.advance_log_start(&mut *open.io, offset(7));
    assert!(matches!(above, Err(ChangeError::OffsetOutOfRange { .. })));
    open.log.advance_log_start(&mut *open.io, offset(4)).unwrap();
    open.log.advance_log_start(&mut *open.io, offset(2)).unwrap();
    let view = open.log.view();
    assert_eq!((view.log_start_offset, view.high_watermark), (offset(4), offset(6)));
    assert_eq!(open.log.segments()[0].base_offset, offset(4));
    assert_eq!(bases(&open.read_all(Isolation::Uncommitted)), [4, 5]);
    assert!(open.log.partition_file().snapshots().all(|(at, _)| at >= offset(4)));
    open.append(data(Some((1, 0, 6)), false, 1, 10), &client()).unwrap();
    open.close();
    let open = bench.open_clean();
    assert_eq!(open.log.view().log_start_offset, offset(4), "the first segment says so");
    assert_eq!(open.log.log_end_offset(), offset(7));
    // All records deleted: the producer still goes on.
    let mut open = open;
    open.log.advance_log_start(&mut *open.io, offset(7)).unwrap();
    open.append(data(Some((1, 0, 7)), false, 1, 10), &client()).unwrap();
}

#[test]
fn an_epoch_without_records_survives_a_crash() {
    // EPOCH-3.
    let bench = Bench::new(1);
    let mut open = bench.open_unclean();
    open.produce(plain(2, 5));
    open.sync();
    open.log.assign_leader_epoch(&mut *open.io, epoch(1003)).unwrap();
    open.log.assign_leader_epoch(&mut *open.io, epoch(1002)).unwrap();
    assert_eq!(open.log.view().leader_epoch, Some(epoch(1003)));
    drop(open);
    bench.disk.crash(CrashPolicy::DROP_ALL);
    let open = bench.open_unclean();
    assert_eq!(open.log.latest_epoch(), Some(epoch(1003)));
    assert_eq!(open.log.end_offset_for_epoch(epoch(0)), Some((epoch(0), offset(2))));
}

#[test]
fn a_spoilt_epoch_checkpoint_is_rebuilt() {
    // EPOCH-2.
    let bench = Bench::new(1).segment_bytes(300);
    let mut open = bench.open_unclean();
    for (base, leader_epoch) in [(0, 0), (1, 3), (2, 3), (3, 7)] {
        open.replicate(placed(plain(1, 250), base, leader_epoch));
    }
    open.sync();
    let epochs = open.facts().epochs;
    assert_eq!(epochs, [(0, 0), (3, 1), (7, 3)]);
    open.close();
    let path = bench.path("leader-epoch-checkpoint");
    for spoilt in [&b""[..], b"0\n1\n0 0\n", b"0\n2\n0 0\n9 2\n", b"0\n3\n0 0\n3 2\n7 3\n", b"\xff\xfe"] {
        for clean in [true, false] {
            let damaged = bench.fork();
            damaged.disk.write_file(&path, spoilt);
            let mut options = damaged.options();
            options.clean_shutdown = clean;
            options.recovery_point = offset(4);
            let mut open = damaged.open(options);
            // A walk that begins behind the mistake cannot see it; everything that was walked is right.
            if spoilt != b"0\n3\n0 0\n3 2\n7 3\n" {
                assert_eq!(open.facts().epochs, epochs, "{spoilt:?}, clean {clean}");
            }
        }
    }
}

#[test]
fn a_file_in_the_folders_place_is_said() {
    let bench = Bench::new(1);
    bench.disk.write_file(&bench.dir, b"");
    let refused = bench.try_open(bench.options());
    assert!(matches!(refused, Err(LoadError::NotADirectory { .. })));
}

#[test]
fn a_real_disk_gives_the_same_as_the_simulated_one() {
    use weir_log::{OpenOptions, UnifiedLog};
    use weir_segment::io::Io;
    use weir_segment::io::select::{IoConfig, WantedBackend, select};

    let run = |io: Box<dyn Io>, root: &std::path::Path| -> (Facts, weir_psm::ProducerStateManager, Vec<u8>) {
        let bench = Bench::new(1).segment_bytes(600);
        let options = |clean_shutdown| OpenOptions {
            side_dir: root.join("data.weir/t-0"),
            clean_shutdown,
            ..bench.options()
        };
        let dir = root.join("data/t-0");
        let open = |mut io: Box<dyn Io>, clean| {
            let (log, report) =
                UnifiedLog::open(&mut *io, &dir, bench.config.clone(), options(clean)).unwrap();
            Open { io, log, report }
        };
        let mut on_disk = open(io, false);
        for sequence in 0..6 {
            on_disk.produce(data(Some((1, 0, sequence)), sequence > 3, 1, 200));
            on_disk.sync();
        }
        on_disk.coordinate(barrier());
        on_disk.produce(data(Some((1, 0, 0)), false, 1, 200));
        on_disk.truncate(7);
        on_disk.produce(data(Some((2, 0, 0)), true, 1, 200));
        let Open { mut io, log, .. } = on_disk;
        log.close(&mut *io).unwrap();
        let mut again = open(io, true);
        assert_eq!(again.report.producer_state, ProducerStateSource::Snapshot { offset: offset(8) });
        let bytes = again.read_all(Isolation::Uncommitted);
        (again.facts(), again.producers(), bytes)
    };
    let simulated = run(Box::new(Bench::new(9).disk.io()), std::path::Path::new("/"));
    assert_eq!(simulated.0.aborted.len(), 1);
    for backend in [WantedBackend::Pwrite, WantedBackend::Uring] {
        let io = match select(backend, &IoConfig::default()) {
            Ok((io, _)) => io,
            Err(refused) => {
                eprintln!("skipped: {refused}");
                continue;
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let real = run(io, folder.path());
        assert_eq!(real.0, simulated.0, "{backend:?}");
        assert_equal_state(&real.1, &simulated.1, "real and simulated");
        assert_eq!(real.2, simulated.2, "{backend:?}");
    }
}
