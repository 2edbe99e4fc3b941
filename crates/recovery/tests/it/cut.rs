//! `weir recover`: what a cut plans, refuses and does, at every crash.

use std::path::Path;

use weir_format::Offset;
use weir_recovery::cut::{self, CutConfig, CutError, CutPlan};
use weir_recovery::{LoadError, PartitionFile, RecoveryConfig, Unwatched};
use weir_segment::io::sim::{CrashPolicy, SimDisk};

use super::support::*;

fn cut_config(recovery_point: i64) -> CutConfig {
    CutConfig { side_dir: SIDE_DIR.into(), recovery_point: offset(recovery_point) }
}

fn plan(disk: &SimDisk, at: i64) -> Result<CutPlan, CutError> {
    cut::plan(&mut disk.io(), Path::new(DIR), &cut_config(0), offset(at), &mut Unwatched)
}

fn refused_as_corrupt(disk: &SimDisk, config: &RecoveryConfig) -> weir_recovery::Corruption {
    match load(disk, config) {
        Err(LoadError::Corrupt(corruption)) => *corruption,
        other => panic!("{:?}", other.map(|(_, report)| report)),
    }
}

fn end_of(disk: &SimDisk, config: &RecoveryConfig) -> Offset {
    load(disk, config).unwrap().0.log.log_end_offset()
}

#[test]
fn on_a_flipped_bit_in_the_active_segment_the_cut_gives_kafkas_log_end() {
    let disk = SimDisk::new(1);
    golden(&disk, "bitflip-active");
    let config = RecoveryConfig { recovery_point: offset(224), ..config() };
    let corruption = refused_as_corrupt(&disk, &config);
    assert_eq!(corruption.next_offset.get(), 231, "Kafka: bitflip-active, load.logEndOffset");
    assert!(corruption.to_string().contains("weir recover /data/t-0 --accept-cut 231"), "{corruption}");

    let before = disk.contents();
    let cut_config = CutConfig { recovery_point: offset(224), ..cut_config(0) };
    let plan = cut::plan(&mut disk.io(), Path::new(DIR), &cut_config, offset(231), &mut Unwatched).unwrap();
    assert_eq!(disk.contents(), before, "a plan changes nothing");
    let invalid = plan.invalid.as_ref().unwrap();
    assert_eq!((&invalid.file, invalid.position), (&corruption.file, corruption.position));
    assert_eq!((invalid.next_offset, &invalid.found), (corruption.next_offset, &corruption.found));
    let whole = disk.read_file(&corruption.file).unwrap();
    let [piece] = &plan.pieces[..] else { panic!("{:?}", plan.pieces) };
    assert_eq!((piece.position, piece.size), (corruption.position, whole.len() as u64 - corruption.position));
    // The batch of 231 to 237 is spoilt; one of two records lies behind it.
    assert_eq!((plan.batch_count(), plan.record_count()), (1, 2));
    assert_eq!(plan.offsets(), Some((offset(238), offset(240))));
    assert!(plan.unreadable_size() > 0 && plan.unreadable_size() < plan.size() && plan.is_counted());

    let archives = cut::apply(&mut disk.io(), &plan, &mut Unwatched).unwrap();
    assert_eq!(archives.len(), 1);
    let cut = usize::try_from(piece.position).unwrap();
    assert_eq!(disk.read_file(&archives[0]).unwrap(), whole[cut..]);
    assert_eq!(disk.read_file(&corruption.file).unwrap(), whole[..cut]);
    assert_eq!(end_of(&disk, &config).get(), 231);
    assert_eq!(end_of(&disk, &config).get(), 231, "again");
    assert!(matches!(self::plan(&disk, 231), Err(CutError::NothingToCut { end }) if end.get() == 231));
}

/// Three segments under two epochs, a bit flipped in the middle of the second.
fn three_segments(disk: &SimDisk) -> Vec<Vec<Vec<u8>>> {
    let segments = vec![
        (0..3).map(|n| placed(produced(5, n * 2, 2), i64::from(n) * 2, 0)).collect::<Vec<_>>(),
        (3..6).map(|n| placed(produced(5, n * 2, 2), i64::from(n) * 2, 1)).collect(),
        (6..8).map(|n| placed(produced(5, n * 2, 2), i64::from(n) * 2, 2)).collect(),
    ];
    write_segments(disk, &segments);
    segments
}

#[test]
fn a_cut_in_a_middle_segment_archives_the_later_ones_whole() {
    let disk = SimDisk::new(1);
    three_segments(&disk);
    // A first load makes snapshots, indexes, the partition file and the epoch checkpoint.
    let (loaded, _) = load(&disk, &config()).unwrap();
    assert_eq!(loaded.epochs.latest().unwrap().epoch.get(), 2);
    let size = disk.read_file(&log_path(0)).unwrap().len() as u64 / 3;
    disk.flip(&log_path(6), size + 70, 1);
    let corruption = refused_as_corrupt(&disk, &config());
    assert_eq!((corruption.next_offset.get(), corruption.position), (8, size));
    let (second, third) = (disk.read_file(&log_path(6)).unwrap(), disk.read_file(&log_path(12)).unwrap());

    let plan = plan(&disk, 8).unwrap();
    let shape: Vec<_> =
        plan.pieces.iter().map(|piece| (piece.base_offset.get(), piece.position, piece.whole)).collect();
    assert_eq!(shape, [(6, size, false), (12, 0, true)]);
    assert_eq!((plan.batch_count(), plan.record_count()), (3, 6));
    assert_eq!((plan.offsets(), plan.unreadable_size()), (Some((offset(10), offset(16))), size));
    assert_eq!(plan.invalid.as_ref().map(|invalid| invalid.next_offset.get()), Some(8));

    let archives = cut::apply(&mut disk.io(), &plan, &mut Unwatched).unwrap();
    let [of_second, of_third] = &archives[..] else { panic!("{archives:?}") };
    assert_eq!(disk.read_file(of_second).unwrap(), second[usize::try_from(size).unwrap()..]);
    assert_eq!(disk.read_file(of_third).unwrap(), third);
    for suffix in ["log", "index", "timeindex", "txnindex"] {
        assert_eq!(disk.read_file(&file(12, suffix)), None, "{suffix}");
    }
    let (loaded, report) = load(&disk, &RecoveryConfig { clean_shutdown: true, ..config() }).unwrap();
    assert_eq!((loaded.log.log_end_offset().get(), report.segment_count), (8, 2));
    let epochs: Vec<_> =
        loaded.epochs.entries().iter().map(|e| (e.epoch.get(), e.start_offset.get())).collect();
    assert_eq!(epochs, [(0, 0), (1, 6)]);
    let (_, producer) = loaded.psm.entries().next().unwrap();
    assert_eq!(producer.last_offset().map(Offset::get), Some(7), "no snapshot of what was cut is loaded");
}

#[test]
fn an_epoch_that_began_at_the_cut_goes_with_its_batches() {
    let disk = SimDisk::new(1);
    three_segments(&disk);
    load(&disk, &config()).unwrap();
    let plan = plan(&disk, 12).unwrap();
    cut::apply(&mut disk.io(), &plan, &mut Unwatched).unwrap();
    let (loaded, _) = load(&disk, &config()).unwrap();
    let latest = loaded.epochs.latest().unwrap();
    assert_eq!((latest.epoch.get(), latest.start_offset.get()), (1, 6));
}

#[test]
fn a_recovery_point_above_the_cut_does_not_count_any_more() {
    let disk = SimDisk::new(1);
    three_segments(&disk);
    load(&disk, &config()).unwrap();
    let cut_config = cut_config(16);
    let plan = cut::plan(&mut disk.io(), Path::new(DIR), &cut_config, offset(8), &mut Unwatched).unwrap();
    assert_eq!(plan.invalid, None, "an intact log is cut as well");
    cut::apply(&mut disk.io(), &plan, &mut Unwatched).unwrap();
    let file = disk.read_file(&Path::new(SIDE_DIR).join("partition")).unwrap();
    let file = PartitionFile::decode(&file).unwrap();
    assert_eq!(file.effective_recovery_point(offset(16)).get(), 8);
    // Else the torn tail of a later append would be called corruption.
    let mut bytes = disk.read_file(&log_path(6)).unwrap();
    bytes.extend_from_slice(b"torn");
    disk.write_file(&log_path(6), &bytes);
    assert_eq!(end_of(&disk, &RecoveryConfig { recovery_point: offset(16), ..config() }).get(), 8);
}

#[test]
fn offsets_that_cut_nothing_or_lie_outside_or_inside_a_batch_or_behind_the_corruption_are_refused() {
    let disk = SimDisk::new(1);
    three_segments(&disk);
    let before = disk.contents();
    assert!(matches!(plan(&disk, 16), Err(CutError::NothingToCut { end }) if end.get() == 16));
    assert!(
        matches!(plan(&disk, 17), Err(CutError::OutOfRange { first, end, .. }) if (first.get(), end.get()) == (0, 16))
    );
    for inside in [1, 9, 15] {
        match plan(&disk, inside) {
            Err(CutError::InsideBatch { base_offset, next_offset, .. }) => {
                assert_eq!((base_offset.get(), next_offset.get()), (inside - 1, inside + 1));
            }
            other => panic!("{inside}: {other:?}"),
        }
    }
    let size = disk.read_file(&log_path(0)).unwrap().len() as u64 / 3;
    disk.flip(&log_path(6), size + 70, 1);
    for behind in [9, 10, 12, 14, 16] {
        match plan(&disk, behind) {
            Err(CutError::BehindInvalid { invalid, .. }) => {
                assert_eq!((invalid.file, invalid.position), (log_path(6), size), "{behind}");
                assert_eq!(invalid.next_offset.get(), 8, "{behind}");
            }
            other => panic!("{behind}: {other:?}"),
        }
    }
    disk.flip(&log_path(6), size + 70, 1);
    assert_eq!(disk.contents(), before);

    let moved = SimDisk::new(1);
    write_segments(&moved, &[vec![placed(plain(1, 5), 4, 0)]]);
    assert!(matches!(plan(&moved, 3), Err(CutError::OutOfRange { first, .. }) if first.get() == 4));
    moved.write_file(&Path::new(DIR).join("00000000000000000004.log.swap"), b"");
    assert!(matches!(plan(&moved, 4), Err(CutError::Unfinished { .. })));
    let empty = SimDisk::new(1);
    empty.write_file(&Path::new(DIR).join("leader-epoch-checkpoint"), b"0\n0\n");
    assert!(matches!(plan(&empty, 0), Err(CutError::NoLog { .. })));
}

#[test]
fn cuts_at_the_edges_of_segments_and_in_gaps_end_where_the_plan_says() {
    let segments = |disk: &SimDisk| {
        write_segments(
            disk,
            &[
                vec![placed(plain(2, 5), 0, 0), placed(plain(2, 5), 10, 0)],
                vec![placed(plain(2, 5), 20, 0)],
                vec![placed(plain(2, 5), 30, 0)],
            ],
        );
    };
    for (at, end, left) in [
        // Everything goes; the first segment stays as an empty file.
        (0, 0, 1),
        // A gap inside a segment, one at its end, the border itself.
        (5, 2, 1),
        (10, 2, 1),
        (15, 12, 1),
        (20, 20, 2),
        (22, 22, 2),
        (25, 22, 2),
        (30, 30, 3),
    ] {
        let disk = SimDisk::new(1);
        segments(&disk);
        let plan = plan(&disk, at).unwrap();
        assert_eq!(plan.log_end_offset.get(), end, "{at}");
        cut::apply(&mut disk.io(), &plan, &mut Unwatched).unwrap();
        let (loaded, report) = load(&disk, &config()).unwrap();
        assert_eq!((loaded.log.log_end_offset().get(), report.segment_count), (end, left), "{at}");
    }
}

#[test]
fn a_cut_at_a_barrier_says_that_it_goes_and_brings_back_who_was_known_before_it() {
    let barrier = |base: i64| {
        let mut batch = weir_format::BatchBuilder::barrier(NOW);
        weir_format::set_base_offset(&mut batch, offset(base)).unwrap();
        weir_format::set_leader_epoch(&mut batch, weir_format::LeaderEpoch::ZERO).unwrap();
        batch.to_vec()
    };
    let start = SimDisk::new(1);
    let batches = vec![
        placed(produced(5, 0, 2), 0, 0),
        barrier(2),
        placed(produced(6, 0, 2), 3, 0),
        barrier(5),
        placed(produced(7, 0, 2), 6, 0),
    ];
    write_segments(&start, &[batches]);
    let known = |disk: &SimDisk| -> Vec<i64> {
        load(disk, &config()).unwrap().0.psm.entries().map(|(id, _)| id.get()).collect()
    };
    assert_eq!(known(&start), [7]);
    for (at, gone, left) in [
        (6, None, vec![]),
        (5, Some(5), vec![6]),
        (3, Some(5), vec![]),
        (2, Some(2), vec![5]),
        (0, Some(2), vec![]),
    ] {
        let disk = start.fork();
        let plan = plan(&disk, at).unwrap();
        assert_eq!((plan.log_end_offset.get(), plan.barrier().map(Offset::get)), (at, gone));
        cut::apply(&mut disk.io(), &plan, &mut Unwatched).unwrap();
        assert_eq!(known(&disk), left, "{at}");
        let file =
            PartitionFile::decode(&disk.read_file(&Path::new(SIDE_DIR).join("partition")).unwrap()).unwrap();
        assert!(file.barriers().all(|(barrier, _)| barrier.get() < at), "{at}");
    }
}

#[test]
fn a_directory_that_has_changed_since_the_plan_is_not_cut() {
    let disk = SimDisk::new(1);
    three_segments(&disk);
    let plan = plan(&disk, 8).unwrap();
    let grown = [disk.read_file(&log_path(12)).unwrap(), placed(plain(1, 1), 16, 2)].concat();
    let other = disk.fork();
    other.write_file(&log_path(12), &grown);
    let before = other.contents();
    let refused = cut::apply(&mut other.io(), &plan, &mut Unwatched);
    assert!(matches!(refused, Err(CutError::Changed { file }) if file == log_path(12)));
    assert_eq!(other.contents(), before);
    // The size is the same, the bytes are not: what is archived must be what was counted.
    let other = disk.fork();
    other.flip(&log_path(6), other.read_file(&log_path(6)).unwrap().len() as u64 - 1, 1);
    let before = other.contents();
    let refused = cut::apply(&mut other.io(), &plan, &mut Unwatched);
    assert!(matches!(refused, Err(CutError::Changed { file }) if file == log_path(6)));
    assert_eq!(other.contents(), before);
}

#[test]
fn a_full_disk_at_any_point_of_a_cut_leaves_it_to_be_done_again() {
    let start = SimDisk::new(1);
    three_segments(&start);
    load(&start, &config()).unwrap();
    let size = start.read_file(&log_path(0)).unwrap().len() as u64 / 3;
    start.flip(&log_path(6), size + 70, 1);
    let third = start.read_file(&log_path(12)).unwrap();
    let mut refused = 0;
    for room in (0..).step_by(40) {
        let disk = start.fork();
        let plan = plan(&disk, 8).unwrap();
        disk.full_after(Some(room));
        let done = cut::apply(&mut disk.io(), &plan, &mut Unwatched);
        disk.full_after(None);
        let Err(error) = done else { break };
        assert!(matches!(error, CutError::Io(error) if error.is_full()), "{room}");
        refused += 1;
        assert_eq!(refused_as_corrupt(&disk, &config()).next_offset.get(), 8, "{room}");
        let plan = self::plan(&disk, 8).unwrap();
        cut::apply(&mut disk.io(), &plan, &mut Unwatched).unwrap();
        assert_eq!(end_of(&disk, &config()).get(), 8, "{room}");
        assert!(all_bytes(&disk).1.contains(&third), "{room}");
    }
    assert!(refused > 5, "{refused}");
}

/// The bytes of the log and of the archives.
fn all_bytes(disk: &SimDisk) -> (Vec<u8>, Vec<Vec<u8>>) {
    let log = disk
        .contents()
        .into_iter()
        .filter(|(path, _)| path.starts_with(DIR) && path.extension().is_some_and(|suffix| suffix == "log"));
    let archives = disk.contents().into_iter().filter(|(path, _)| {
        path.starts_with(SIDE_DIR) && path.extension().is_some_and(|suffix| suffix == "log")
    });
    (log.flat_map(|(_, bytes)| bytes).collect(), archives.map(|(_, bytes)| bytes).collect())
}

#[test]
fn a_crash_at_every_operation_of_a_cut_leaves_it_to_be_done_again_and_loses_nothing() {
    let start = SimDisk::new(1);
    let segments = three_segments(&start);
    load(&start, &config()).unwrap();
    let size = segments[0][0].len() as u64;
    start.flip(&log_path(6), size + 70, 1);
    let second = start.read_file(&log_path(6)).unwrap();
    let third = start.read_file(&log_path(12)).unwrap();
    let kept = [segments[0].concat(), second[..segments[0][0].len()].to_vec()].concat();
    let mut crashes = 0;
    for at in 1.. {
        let running = start.fork();
        let mut io = running.io();
        let plan = cut::plan(&mut io, Path::new(DIR), &cut_config(16), offset(8), &mut Unwatched).unwrap();
        running.crash_at(running.op_count() + at);
        if cut::apply(&mut io, &plan, &mut Unwatched).is_ok() {
            assert!(!running.is_off());
            break;
        }
        for policy in CrashPolicy::ALL {
            crashes += 1;
            let crashed = running.fork();
            crashed.crash(policy);
            let config = RecoveryConfig { recovery_point: offset(16), ..config() };
            let looked = crashed.fork();
            match load(&looked, &config) {
                Ok((loaded, report)) => {
                    assert_eq!(loaded.log.log_end_offset().get(), 8, "operation {at}");
                    assert_eq!(report.cut_bytes(), 0, "operation {at}: cut by the load and by nobody's word");
                }
                Err(LoadError::Corrupt(corruption)) => assert_eq!(corruption.next_offset.get(), 8),
                Err(other) => panic!("operation {at}: {other}"),
            }
            match self::plan(&crashed, 8) {
                Ok(plan) => drop(cut::apply(&mut crashed.io(), &plan, &mut Unwatched).unwrap()),
                Err(CutError::NothingToCut { .. }) => {}
                Err(other) => panic!("operation {at}: {other}"),
            }
            assert_eq!(end_of(&crashed, &config).get(), 8, "operation {at}");
            let (log, archives) = all_bytes(&crashed);
            assert_eq!(log, kept, "operation {at}");
            assert!(archives.contains(&second[segments[0][0].len()..].to_vec()), "operation {at}");
            assert!(archives.contains(&third), "operation {at}");
        }
    }
    assert!(crashes > 60, "{crashes}");
}

#[test]
fn a_crash_in_a_cut_of_an_intact_log_leaves_a_prefix_without_a_hole() {
    let start = SimDisk::new(1);
    let whole = three_segments(&start).concat().concat();
    for at in 1.. {
        let running = start.fork();
        let mut io = running.io();
        let plan = cut::plan(&mut io, Path::new(DIR), &cut_config(16), offset(2), &mut Unwatched).unwrap();
        running.crash_at(running.op_count() + at);
        if cut::apply(&mut io, &plan, &mut Unwatched).is_ok() {
            break;
        }
        for policy in CrashPolicy::ALL {
            let crashed = running.fork();
            crashed.crash(policy);
            load(&crashed, &RecoveryConfig { recovery_point: offset(16), ..config() }).unwrap();
            let (log, _) = all_bytes(&crashed);
            assert!(whole.starts_with(&log), "operation {at}: {} bytes are no prefix", log.len());
        }
    }
}
