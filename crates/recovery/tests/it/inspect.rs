//! A look finds what a load finds, changes nothing, and stands a node that works on the same files.

use std::path::Path;

use weir_format::BatchBuilder;
use weir_recovery::{CutKind, Inspection, LoadError, RecoveryConfig, Unwatched, inspect};
use weir_segment::io::Operation;
use weir_segment::io::sim::SimDisk;

use super::hook::HookIo;
use super::support::*;

fn look(disk: &SimDisk, config: &RecoveryConfig) -> Inspection {
    let (before, ops) = (disk.contents(), disk.op_count());
    let found = inspect(&mut disk.io(), Path::new(DIR), config, &mut Unwatched).unwrap();
    assert_eq!(disk.contents(), before, "a look changes nothing");
    assert_eq!(disk.op_count(), ops, "and asks the disk for no change");
    found
}

/// Looks, then loads: the same findings.
fn check_same(disk: &SimDisk, config: &RecoveryConfig) -> Inspection {
    let found = look(disk, config);
    assert_eq!(found.corruption, None);
    let (loaded, report) = load(disk, config).unwrap();
    assert_eq!(found.report, report);
    assert_eq!(found.log_end_offset, loaded.log.log_end_offset());
    assert_eq!(found.log_start_offset, loaded.log_start_offset);
    assert!(found.producers.equal_state(&loaded.psm));
    assert_eq!(found.epochs, loaded.epochs);
    assert_eq!(found.last_batch, loaded.last_batch);
    let segments: Vec<_> =
        loaded.log.segments().map(|segment| (segment.base_offset(), segment.size())).collect();
    let seen: Vec<_> = found.segments.iter().map(|segment| (segment.base_offset, segment.size)).collect();
    assert_eq!(seen, segments);
    assert!(!found.grows);
    found
}

/// Two segments: a transaction that is aborted by the barrier, and one that stays open.
fn transactions(disk: &SimDisk) {
    let barrier = || {
        let mut batch = BatchBuilder::barrier(NOW);
        weir_format::set_base_offset(&mut batch, offset(3)).unwrap();
        weir_format::set_leader_epoch(&mut batch, weir_format::LeaderEpoch::ZERO).unwrap();
        batch.to_vec()
    };
    write_segments(
        disk,
        &[
            vec![placed(produced(7, 0, 2), 0, 0), placed(produced(8, 0, 1).transactional(), 2, 0), barrier()],
            vec![placed(produced(8, 0, 1).transactional(), 4, 1), placed(produced(9, 0, 3), 5, 1)],
        ],
    );
}

#[test]
fn a_look_finds_what_a_load_finds() {
    let disk = SimDisk::new(1);
    transactions(&disk);
    let found = check_same(&disk, &config());
    assert_eq!(found.last_stable_offset.get(), 4);
    assert_eq!(found.producers.producer_count(), 2);
    let aborted: Vec<_> = found
        .aborted_transactions
        .iter()
        .map(|entry| (entry.producer_id.get(), entry.last_offset.get()))
        .collect();
    assert_eq!(aborted, [(8, 3)]);
    // As after a clean stop, from the snapshot that the load has written.
    let found = check_same(&disk, &RecoveryConfig { clean_shutdown: true, ..config() });
    assert_eq!(found.report.rebuilt, []);
}

#[test]
fn a_look_says_what_would_be_cut_and_where_it_would_go() {
    let good = placed(plain(1, 40), 0, 0);
    for (behind, kind) in [
        (b"torn".to_vec(), "torn"),
        (vec![0; 5000], "preallocated"),
        ([vec![0; 700], placed(plain(1, 40), 9, 0)].concat(), "hole"),
    ] {
        let disk = SimDisk::new(1);
        disk.write_file(&log_path(0), &[good.clone(), behind].concat());
        let found = check_same(&disk, &config());
        let kinds: Vec<_> = found
            .report
            .cuts
            .iter()
            .map(|cut| match &cut.kind {
                CutKind::Torn => "torn",
                CutKind::Preallocated => "preallocated",
                CutKind::Hole { archive, .. } => {
                    assert!(
                        disk.read_file(archive).is_some(),
                        "{}: where the load has put it",
                        archive.display()
                    );
                    "hole"
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, [kind]);
    }
}

#[test]
fn leftovers_are_told_and_stay() {
    let disk = SimDisk::new(1);
    transactions(&disk);
    disk.write_file(&file(0, "log.deleted"), b"old");
    disk.write_file(&file(0, "index.cleaned"), b"");
    disk.write_file(&Path::new(DIR).join("leader-epoch-checkpoint.tmp"), b"0");
    disk.write_file(&file(99, "index"), b"");
    let found = check_same(&disk, &config());
    assert_eq!(found.report.leftovers.len(), 4, "{:?}", found.report.leftovers);
}

#[test]
fn corruption_is_a_value_and_the_state_is_that_of_the_log_in_front_of_it() {
    let disk = SimDisk::new(1);
    transactions(&disk);
    let first = placed(produced(8, 0, 1).transactional(), 4, 1).len() as u64;
    // With nothing valid behind it the place would be a torn tail.
    let second = [disk.read_file(&log_path(4)).unwrap(), placed(plain(1, 5), 8, 1)].concat();
    disk.write_file(&log_path(4), &second);
    disk.flip(&log_path(4), first + 65, 4);
    let Err(LoadError::Corrupt(expected)) = load(&disk, &config()) else { panic!("it was loaded") };
    assert_eq!(expected.next_offset.get(), 5);
    let found = look(&disk, &config());
    assert_eq!(found.corruption.as_ref(), Some(&*expected));
    assert_eq!((found.log_end_offset.get(), found.last_stable_offset.get()), (5, 4));
    assert_eq!(found.producers.producer_count(), 1);
    assert_eq!(found.report.segment_count, 2);

    // In an older segment: what follows is not looked at.
    let disk = SimDisk::new(1);
    transactions(&disk);
    disk.flip(&log_path(0), 65, 4);
    let found = look(&disk, &config());
    assert_eq!(found.corruption.map(|corruption| corruption.position), Some(0));
    assert_eq!((found.log_end_offset.get(), found.segments.len()), (0, 1));
    assert_eq!(found.report.segment_count, 2);
}

#[test]
fn a_node_that_appends_meanwhile_does_not_disturb_a_look() {
    let disk = SimDisk::new(1);
    transactions(&disk);
    let (path, mut opens, writer) = (log_path(4), 0, disk.clone());
    let hook = move |operation: Operation, at: &Path| {
        if operation == Operation::Open && at == log_path(4) {
            opens += 1;
            let mut bytes = writer.read_file(at).unwrap();
            bytes.extend(placed(plain(1, 5), 7 + opens, 1));
            writer.write_file(at, &bytes);
        }
        Ok(())
    };
    let before = disk.read_file(&path).unwrap();
    let mut io = HookIo { inner: disk.io(), hook: Box::new(hook) };
    let found = inspect(&mut io, Path::new(DIR), &config(), &mut Unwatched).unwrap();
    assert_eq!((found.log_end_offset.get(), found.segments[1].size), (8, before.len() as u64));
    assert!(found.grows);
    assert_eq!(found.report.cuts, []);
}

#[test]
fn a_node_that_deletes_meanwhile_makes_a_look_begin_again() {
    let disk = SimDisk::new(1);
    transactions(&disk);
    let (mut listed, deleter) = (0, disk.clone());
    let hook = move |operation: Operation, at: &Path| {
        if operation == Operation::Open && at == log_path(0) {
            deleter.remove_file(at);
        }
        listed += i32::from(operation == Operation::List);
        assert!(listed < 20, "it does not end");
        Ok(())
    };
    let mut io = HookIo { inner: disk.io(), hook: Box::new(hook) };
    let found = inspect(&mut io, Path::new(DIR), &config(), &mut Unwatched).unwrap();
    assert_eq!((found.log_start_offset.get(), found.segments.len()), (4, 1));

    // A disk on which everything goes again and again is not looked at for ever.
    let disk = SimDisk::new(1);
    transactions(&disk);
    let keeper = disk.clone();
    let hook = move |operation: Operation, at: &Path| {
        if at == log_path(0) && operation == Operation::Open {
            keeper.remove_file(at);
        } else if operation == Operation::List {
            transactions(&keeper);
        }
        Ok(())
    };
    let mut io = HookIo { inner: disk.io(), hook: Box::new(hook) };
    let found = inspect(&mut io, Path::new(DIR), &config(), &mut Unwatched);
    assert!(matches!(found, Err(LoadError::Io(error)) if error.is_not_found()));
}

#[test]
fn a_look_at_nothing_makes_no_directory() {
    let disk = SimDisk::new(1);
    let missing = inspect(&mut disk.io(), Path::new(DIR), &config(), &mut Unwatched);
    assert!(matches!(missing, Err(LoadError::NotADirectory { .. })));
    assert_eq!(disk.op_count(), 0);
}
