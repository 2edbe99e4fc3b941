//! What an interrupted replacement of segments leaves, at every point where it may be interrupted, and what else may lie
//! in a directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weir_format::{BatchReader, RecordBatch};
use weir_recovery::{CutKind, ForeignFile, LoadError, NoSnapshot, ProducerStateSource, RecoveryConfig};
use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};
use weir_segment::io::sim::SimDisk;

use super::support::*;

/// Offsets of all records of the log, by reading it.
fn records(disk: &SimDisk) -> Vec<i64> {
    let mut io = disk.io();
    let (loaded, _) = weir_recovery::LogLoader::load(&mut io, Path::new(DIR), &config()).unwrap();
    let mut log = loaded.log;
    let end = log.log_end_offset();
    let (mut at, mut found) = (log.first_offset(), Vec::new());
    while at < end {
        let read = log.read(&mut io, at, 1 << 20, end, true).unwrap();
        if read.bytes.is_empty() {
            break;
        }
        for batch in BatchReader::new(&read.bytes) {
            found.extend(batch.unwrap().records().unwrap().map(|record| record.unwrap().offset.get()));
        }
        at = read.next_offset;
    }
    found
}

/// One step of `LocalLog.replaceSegments` and of the deletion behind it.
#[derive(Debug, Clone)]
enum Step {
    Write(PathBuf, Vec<u8>),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Step {
    fn apply(&self, disk: &SimDisk) {
        match self {
            Step::Write(path, bytes) => disk.write_file(path, bytes),
            Step::Rename(from, to) => {
                let bytes = disk.read_file(from).unwrap();
                disk.write_file(to, &bytes);
                assert!(disk.remove_file(from));
            }
            Step::Remove(path) => assert!(disk.remove_file(path)),
        }
    }
}

const KINDS: [&str; 4] = ["log", "index", "timeindex", "txnindex"];

/// What Kafka's cleaner does to put `new` in place of `old`: base offset, and the files by their suffix.
///
/// Source: Kafka's `Cleaner.cleanSegments`, `LocalLog.replaceSegments`, `LogSegment.changeFileSuffixes`.
fn replacement(old: &[i64], new: &[(i64, BTreeMap<&str, Vec<u8>>)]) -> Vec<Step> {
    let staged = |base: i64, kind: &str, stage: &str| file(base, &format!("{kind}{stage}"));
    let mut steps = Vec::new();
    for (base, files) in new {
        steps.extend(
            files.iter().map(|(kind, bytes)| Step::Write(staged(*base, kind, ".cleaned"), bytes.clone())),
        );
    }
    let renames = |new: &[(i64, BTreeMap<&str, Vec<u8>>)], from: &str, to: &str| -> Vec<Step> {
        let mut steps = Vec::new();
        for (base, files) in new {
            for kind in KINDS.iter().filter(|kind| files.contains_key(**kind)) {
                steps.push(Step::Rename(staged(*base, kind, from), staged(*base, kind, to)));
            }
        }
        steps
    };
    // The last one first (KAFKA-6264).
    let mut reversed = new.to_vec();
    reversed.reverse();
    steps.extend(renames(&reversed, ".cleaned", ".swap"));
    for base in old {
        steps.extend(KINDS.map(|kind| Step::Rename(file(*base, kind), staged(*base, kind, ".deleted"))));
    }
    steps.extend(renames(new, ".swap", ""));
    for base in old {
        steps.extend(KINDS.map(|kind| Step::Remove(staged(*base, kind, ".deleted"))));
    }
    steps
}

/// The batches of a segment, and index files that say nothing but are there.
fn segment_files(batches: &[Vec<u8>]) -> BTreeMap<&'static str, Vec<u8>> {
    KINDS.into_iter().map(|kind| (kind, if kind == "log" { batches.concat() } else { Vec::new() })).collect()
}

#[test]
fn a_replacement_interrupted_anywhere_leaves_the_old_segments_or_the_new_ones() {
    // TAIL-8. Ten offsets a segment; those that compaction keeps are the even ones.
    let batch = |base: i64, count: usize| placed(plain(count, 30), base, 0);
    let old: Vec<Vec<Vec<u8>>> =
        (0..4).map(|segment| (0..5).map(|n| batch(segment * 10 + n * 2, 2)).collect()).collect();
    let kept = |from: i64, to: i64| -> Vec<Vec<u8>> { (from..to).step_by(2).map(|n| batch(n, 1)).collect() };
    let all: Vec<i64> = (0..40).collect();
    let even = |from: i64, to: i64| -> Vec<i64> {
        all.iter().copied().filter(|n| !(from..to).contains(n) || n % 2 == 0).collect()
    };
    for (what, replaced, new, after) in [
        ("two into one", vec![10, 20], vec![(10, kept(10, 30))], even(10, 30)),
        ("one into one", vec![10], vec![(10, kept(10, 20))], even(10, 20)),
        ("one split in two", vec![10], vec![(10, kept(10, 16)), (16, kept(16, 20))], even(10, 20)),
        (
            "one into nothing",
            vec![10],
            vec![(10, vec![])],
            all.iter().copied().filter(|n| !(10..20).contains(n)).collect(),
        ),
    ] {
        let new: Vec<_> = new.iter().map(|(base, batches)| (*base, segment_files(batches))).collect();
        let steps = replacement(&replaced, &new);
        let start = SimDisk::new(1);
        write_segments(&start, &old);
        for base in [0, 10, 20, 30] {
            for kind in &KINDS[1..] {
                start.write_file(&file(base, kind), &[]);
            }
        }
        let (mut olds, mut news) = (0, 0);
        for done in 0..=steps.len() {
            let disk = start.fork();
            steps[..done].iter().for_each(|step| step.apply(&disk));
            let found = records(&disk);
            if found == all {
                olds += 1;
                assert_eq!(news, 0, "{what} after {done} steps: back to the old ones");
            } else {
                news += 1;
                assert_eq!(
                    found,
                    after,
                    "{what} after {done} steps, the last one {:?}",
                    steps.get(done.wrapping_sub(1))
                );
            }
            for path in disk.files().iter().filter(|path| path.starts_with(DIR)) {
                let name = path.to_str().unwrap();
                let stages = [".cleaned", ".swap", ".deleted"];
                assert!(
                    !stages.iter().any(|stage| name.ends_with(stage)),
                    "{what} after {done} steps: {name}"
                );
            }
            assert_eq!(records(&disk), found, "{what} after {done} steps, again");
        }
        assert!(olds > 4 && news > 8, "{what}: {olds}, {news}");
    }
}

#[test]
fn a_spoilt_swap_is_corruption_and_nothing_is_replaced() {
    let disk = SimDisk::new(1);
    write_segments(&disk, &[vec![placed(plain(2, 30), 0, 0)], vec![placed(plain(2, 30), 2, 0)]]);
    let mut swap = placed(plain(1, 30), 0, 0);
    swap[70] ^= 1;
    disk.write_file(&file(0, "log.swap"), &swap);
    // What would be dropped stays as well.
    disk.write_file(&file(9, "log.cleaned"), b"x");
    disk.write_file(&file(9, "log.deleted"), b"x");
    disk.write_file(&file(9, "index"), b"x");
    let before = disk.contents();
    let Err(LoadError::Corrupt(corruption)) = load(&disk, &config()) else { panic!("it was loaded") };
    assert_eq!((corruption.file, corruption.position), (file(0, "log.swap"), 0));
    assert_eq!(disk.contents(), before);
}

#[test]
fn a_replacement_takes_no_segment_that_lies_between_what_it_replaces() {
    let disk = SimDisk::new(1);
    let batch = |base: i64, count: usize| placed(plain(count, 30), base, 0);
    write_segments(&disk, &[vec![batch(0, 10)], vec![batch(10, 10)], vec![batch(20, 10)]]);
    disk.write_file(&file(0, "log.swap"), &batch(0, 1));
    disk.write_file(&file(20, "log.swap"), &batch(20, 1));
    let expected: Vec<i64> = [0].into_iter().chain(10..20).chain([20]).collect();
    assert_eq!(records(&disk), expected);
    assert_eq!(disk.read_file(&log_path(10)), Some(batch(10, 10)));
}

#[test]
fn a_load_that_meets_corruption_has_changed_no_log_file() {
    // Zeros that were allocated ahead in an older segment, an unfinished write in the last, a flipped bit in between.
    let start = SimDisk::new(1);
    aborted_transactions(&start);
    // A snapshot where the last segment begins, as a roll leaves it.
    let last = start.read_file(&log_path(12)).unwrap();
    assert!(start.remove_file(&log_path(12)));
    load(&start, &config()).unwrap();
    start.write_file(&log_path(12), &last);
    let logs = |disk: &SimDisk| -> BTreeMap<PathBuf, Vec<u8>> {
        disk.contents()
            .into_iter()
            .filter(|(path, _)| path.extension().is_some_and(|of| of == "log"))
            .collect()
    };
    let grow = |disk: &SimDisk, base: i64, more: &[u8]| {
        disk.write_file(&log_path(base), &[&disk.read_file(&log_path(base)).unwrap()[..], more].concat());
    };
    grow(&start, 0, &[0; 5000]);
    grow(&start, 12, b"torn");
    let flipped = start.fork();
    flipped.flip(&log_path(8), 70, 1);
    let before = logs(&flipped);
    let Err(LoadError::Corrupt(corruption)) = load(&flipped, &config()) else { panic!("it was loaded") };
    assert_eq!(corruption.file, log_path(8));
    assert_eq!(logs(&flipped), before);

    // The first walk looks at the end alone, and only the next one, over everything, meets the flipped bit.
    let flipped = start.fork();
    flipped.flip(&log_path(0), 70, 1);
    let point = RecoveryConfig { recovery_point: offset(12), ..config() };
    let before = logs(&flipped);
    load(&flipped.fork(), &point).unwrap();
    assert!(flipped.remove_file(&file(4, "txnindex")));
    let Err(LoadError::Corrupt(corruption)) = load(&flipped, &point) else { panic!("it was loaded") };
    assert_eq!(corruption.file, log_path(0));
    assert_eq!(logs(&flipped), before);
    // Without it, both ends are cut.
    let (_, report) = load(&start, &config()).unwrap();
    let cuts: Vec<_> = report.cuts.iter().map(|cut| (cut.file.clone(), cut.size)).collect();
    assert_eq!(cuts, [(log_path(0), 5000), (log_path(12), 4)]);
}

#[test]
fn what_was_cut_is_said_with_its_place() {
    let disk = SimDisk::new(1);
    write_segments(&disk, &[vec![placed(plain(2, 30), 0, 0)]]);
    disk.write_file(&log_path(100), &placed(plain(3, 30), 100, 0)[..80]);
    let (_, report) = load(&disk, &config()).unwrap();
    assert_eq!(report.cuts[0].kind, CutKind::Torn);
    let said = report.to_string();
    assert!(said.contains("torn tail of 80 bytes cut at byte 0 of 00000000000000000100.log"), "{said}");
}

#[test]
fn a_segment_under_a_wrong_name_keeps_every_byte() {
    let disk = SimDisk::new(1);
    write_segments(&disk, &[vec![placed(plain(2, 30), 0, 0)]]);
    disk.write_file(&log_path(100), &[placed(plain(3, 30), 4, 0), placed(plain(3, 30), 7, 0)].concat());
    let before = disk.read_file(&log_path(100));
    let Err(LoadError::Corrupt(corruption)) = load(&disk, &config()) else { panic!("it was loaded") };
    assert_eq!((corruption.file, corruption.position), (log_path(100), 0));
    assert!(disk.read_file(&log_path(100)) == before);
}

#[test]
fn what_is_no_regular_file_under_a_name_that_is_read_is_said_and_not_waited_for() {
    let names = ["log", "index", "timeindex", "txnindex", "snapshot"].map(|kind| file(0, kind));
    let checkpoint = Path::new(DIR).join("leader-epoch-checkpoint");
    for path in names.into_iter().chain([checkpoint]) {
        let disk = SimDisk::new(1);
        disk.write_file(&log_path(7), &placed(plain(1, 30), 7, 0));
        disk.write_file(&path.join("x"), b"");
        disk.write_file(&file(9, "log.deleted"), b"x");
        let before = disk.contents();
        let refused = load(&disk, &config());
        assert!(
            matches!(&refused, Err(LoadError::NotAFile { path: said }) if *said == path),
            "{}",
            path.display()
        );
        assert_eq!(disk.contents(), before);
    }
    // Pipes, which have no end.
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("t-0");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("00000000000000000000.log"), placed(plain(1, 30), 0, 0)).unwrap();
    let pipe = |name: &str| {
        let path = dir.join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    let config = RecoveryConfig { side_dir: folder.path().join("side"), ..config() };
    let load = || weir_recovery::LogLoader::load(&mut PwriteIo::new(PwriteConfig::default()), &dir, &config);
    // One that is not read is left alone.
    for name in ["pipe", "00000000000000000005.log.swap", "00000000000000000005.log.deleted"] {
        pipe(name);
    }
    let (_, report) = load().unwrap();
    assert_eq!(report.foreign_count, 3);
    for name in ["00000000000000000001.log", "00000000000000000000.index", "leader-epoch-checkpoint"] {
        let _ = std::fs::remove_file(dir.join(name));
        let path = pipe(name);
        let refused = load().map(|(_, report)| report);
        assert!(matches!(&refused, Err(LoadError::NotAFile { path: said }) if *said == path), "{refused:?}");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn names_and_directories_without_a_meaning_are_left_alone_and_said() {
    let disk = SimDisk::new(1);
    let batch = placed(plain(1, 30), 0, 0);
    disk.write_file(&log_path(0), &batch);
    let foreign = [
        "00000000000000000000-0000000000.checkpoint",
        "0.log",
        "000000000000000000000.log",
        "notes.txt",
        "notes.txt.tmp",
        "remote_log_snapshot",
    ];
    for name in foreign {
        disk.write_file(&Path::new(DIR).join(name), b"anything");
    }
    // Directories, even under names that would be dropped if they were files.
    for name in ["backup", "00000000000000000005.log.deleted", "00000000000000000005.log.swap"] {
        disk.write_file(&Path::new(DIR).join(name).join("00000000000000000000.log"), &batch);
    }
    disk.write_file(&Path::new(DIR).join("partition.metadata"), b"version: 0\n");
    let (_, report) = load(&disk, &config()).unwrap();
    let mut expected: Vec<ForeignFile> = foreign
        .into_iter()
        .map(|name| ForeignFile { file: Path::new(DIR).join(name), is_dir: false })
        .chain(
            ["backup", "00000000000000000005.log.deleted", "00000000000000000005.log.swap"]
                .map(|name| ForeignFile { file: Path::new(DIR).join(name), is_dir: true }),
        )
        .collect();
    expected.sort_by(|a, b| a.file.cmp(&b.file));
    assert_eq!((&report.foreign, report.foreign_count), (&expected, 9));
    assert_eq!(report.leftovers, []);
    assert!(report.to_string().contains("9 foreign files left alone"), "{report}");
    for name in foreign {
        assert_eq!(disk.read_file(&Path::new(DIR).join(name)).as_deref(), Some(&b"anything"[..]), "{name}");
    }
    assert_eq!(disk.read_file(&Path::new(DIR).join("backup/00000000000000000000.log")), Some(batch.clone()));

    // Thousands of them fill no report.
    for number in 0..1000 {
        disk.write_file(&Path::new(DIR).join(format!("x{number}")), b"");
    }
    let (_, report) = load(&disk, &config()).unwrap();
    assert_eq!((report.foreign.len(), report.foreign_count), (32, 1009));

    // But a directory where a segment should be is no log.
    disk.write_file(&file(7, "log").join("x"), b"");
    let before = disk.contents();
    assert!(matches!(load(&disk, &config()), Err(LoadError::NotAFile { path }) if path == file(7, "log")));
    assert_eq!(disk.contents(), before);
}

#[test]
fn a_recovery_point_or_log_start_beyond_the_log_end_is_said_and_does_no_harm() {
    let disk = SimDisk::new(1);
    write_segments(&disk, &[vec![placed(plain(2, 30), 0, 0)], vec![placed(plain(2, 30), 2, 0)]]);
    for clean_shutdown in [false, true] {
        for beyond in [5, 1_000_000, i64::MAX] {
            let config = RecoveryConfig {
                clean_shutdown,
                recovery_point: offset(beyond),
                log_start_offset: offset(beyond),
                ..config()
            };
            let (loaded, report) = load(&disk, &config).unwrap();
            assert_eq!(report.ends_below_recovery_point, Some(offset(beyond)));
            assert_eq!(report.log_start_above_end, Some(offset(beyond)));
            assert_eq!((loaded.log.log_end_offset().get(), loaded.log_start_offset.get()), (4, 4));
        }
    }
}

/// A partition file that is missing, foreign or of a later version is as good as none: everything is replayed, once.
#[test]
fn a_partition_file_that_says_nothing_costs_one_replay() {
    let disk = SimDisk::new(1);
    write_segments(&disk, &[vec![placed(produced(5, 0, 2), 0, 0)], vec![placed(produced(5, 2, 2), 2, 0)]]);
    load(&disk, &config()).unwrap();
    let path = Path::new(SIDE_DIR).join("partition");
    let good = disk.read_file(&path).unwrap();
    let clean = RecoveryConfig { clean_shutdown: true, ..config() };
    let source = |disk: &SimDisk| load(disk, &clean).unwrap().1.producer_state;
    assert_eq!(source(&disk), ProducerStateSource::Snapshot { offset: offset(4) });

    let text = String::from_utf8(good.clone()).unwrap();
    let later = text.replace("weir-partition 2", "weir-partition 3");
    for (what, bytes) in [
        ("missing", None),
        ("empty", Some(vec![])),
        ("of a later version", Some(later.into_bytes())),
        ("of an earlier version", Some(text.replace("weir-partition 2", "weir-partition 1").into_bytes())),
        ("garbage", Some(vec![0xff; 3000])),
        ("cut", Some(good[..good.len() - 3].to_vec())),
    ] {
        let disk = disk.fork();
        match &bytes {
            None => drop(disk.remove_file(&path)),
            Some(bytes) => disk.write_file(&path, bytes),
        }
        match source(&disk) {
            ProducerStateSource::Replay { from, reason } => {
                assert_eq!(from.get(), 0, "{what}");
                let unreadable = matches!(reason, NoSnapshot::PartitionFileUnreadable(_));
                assert_eq!(unreadable, bytes.is_some(), "{what}: {reason}");
            }
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(disk.read_file(&path).as_ref(), Some(&good), "{what}: written again");
        assert_eq!(source(&disk), ProducerStateSource::Snapshot { offset: offset(4) }, "{what}: once");
    }
}

#[test]
fn an_epoch_checkpoint_of_any_bytes_gives_the_epochs_of_the_log() {
    let disk = SimDisk::new(1);
    write_segments(&disk, &[vec![placed(plain(2, 30), 0, 3), placed(plain(2, 30), 2, 5)]]);
    let path = Path::new(DIR).join("leader-epoch-checkpoint");
    for bytes in [
        &b""[..],
        b"0",
        b"0\n2\n3 0\n",
        b"0\n1\n3 0\n5 2\n",
        b"1\n2\n3 0\n5 2\n",
        b"0\n2\n5 2\n3 0\n",
        b"0\n2\n3 0\n5 1\n",
        b"0\n2\n3 0\n6 2\n",
        b"0\n99999999999999999999\n",
        b"0\n-1\n",
        &[0xff; 4096],
        &[0; 4096],
    ] {
        for clean_shutdown in [false, true] {
            let disk = disk.fork();
            disk.write_file(&path, bytes);
            let (loaded, _) = load(&disk, &RecoveryConfig { clean_shutdown, ..config() }).unwrap();
            let epochs: Vec<_> =
                loaded.epochs.entries().iter().map(|e| (e.epoch.get(), e.start_offset.get())).collect();
            assert_eq!(epochs, [(3, 0), (5, 2)], "{:?}", String::from_utf8_lossy(bytes));
            assert_eq!(disk.read_file(&path).unwrap(), b"0\n2\n3 0\n5 2\n");
        }
    }
}

#[test]
fn a_forgotten_log_start_moves_no_epoch_over_a_gap() {
    let disk = SimDisk::new(1);
    // Epoch 2 began at 20, and its first batch that is left stands at 24; epoch 3 has none; epoch 4 began at 30.
    write_segments(
        &disk,
        &[
            vec![placed(plain(10, 5), 0, 0), placed(plain(10, 5), 10, 1)],
            vec![placed(plain(2, 5), 24, 2), placed(plain(2, 5), 32, 4)],
        ],
    );
    let path = Path::new(DIR).join("leader-epoch-checkpoint");
    disk.write_file(&path, b"0\n5\n0 0\n1 10\n2 20\n3 28\n4 30\n");
    let epochs = |log_start: i64| {
        let (loaded, _) =
            load(&disk, &RecoveryConfig { log_start_offset: offset(log_start), ..config() }).unwrap();
        let pair = |e: &weir_recovery::EpochEntry| (e.epoch.get(), e.start_offset.get());
        loaded.epochs.entries().iter().map(pair).collect::<Vec<_>>()
    };
    assert_eq!(epochs(15), [(1, 15), (2, 20), (3, 28), (4, 30)]);
    assert_eq!(
        epochs(0),
        [(0, 0), (1, 10), (2, 20), (3, 28), (4, 30)],
        "the checkpoint of the log start is lost"
    );
    assert_eq!(epochs(0), [(0, 0), (1, 10), (2, 20), (3, 28), (4, 30)]);
}

/// One record of each of some transactions, every second one aborted; a segment for each four offsets.
fn aborted_transactions(disk: &SimDisk) {
    let marker = |base: i64, commit: bool| {
        let mut batch = weir_format::BatchBuilder::end_transaction_marker(
            commit,
            weir_format::ProducerId::new(5).unwrap(),
            weir_format::ProducerEpoch::ZERO,
            Some(0),
            NOW,
        );
        weir_format::set_base_offset(&mut batch, offset(base)).unwrap();
        weir_format::set_leader_epoch(&mut batch, weir_format::LeaderEpoch::ZERO).unwrap();
        batch.to_vec()
    };
    let segments: Vec<Vec<Vec<u8>>> = (0..4_i32)
        .map(|segment| {
            let base = i64::from(segment) * 4;
            vec![
                placed(produced(5, segment * 2, 1).transactional(), base, 0),
                marker(base + 1, false),
                placed(produced(5, segment * 2 + 1, 1).transactional(), base + 2, 0),
                // The third segment has two.
                marker(base + 3, segment != 2),
            ]
        })
        .collect();
    write_segments(disk, &segments);
}

#[test]
fn a_transaction_index_that_is_lost_or_spoilt_below_the_newest_snapshot_is_built_again() {
    let disk = SimDisk::new(1);
    aborted_transactions(&disk);
    // The snapshot stands where the last segment begins, as a roll leaves it.
    let last = disk.read_file(&log_path(12)).unwrap();
    assert!(disk.remove_file(&log_path(12)));
    load(&disk, &config()).unwrap();
    disk.write_file(&log_path(12), &last);
    load(&disk, &RecoveryConfig { recovery_point: offset(12), ..config() }).unwrap();
    let right: BTreeMap<PathBuf, Vec<u8>> = disk.contents();
    let size = |base| right[&file(base, "txnindex")].len();
    assert_eq!([size(0), size(4), size(8), size(12)], [34, 34, 68, 34]);
    for (clean_shutdown, recovery_point) in [(true, 16), (false, 16), (false, 12)] {
        let config = RecoveryConfig { clean_shutdown, recovery_point: offset(recovery_point), ..config() };
        // Nothing is wrong: nothing is rebuilt, and the first segments are not read.
        let undisturbed = disk.fork();
        let (_, report) = load(&undisturbed, &config).unwrap();
        assert_eq!(report.walked_from, Some(offset(12)), "{clean_shutdown}");
        for base in [0, 4, 8, 12] {
            let path = file(base, "txnindex");
            let good = right[&path].clone();
            let mut other_last = good.clone();
            let at = other_last.len() - 1;
            other_last[at] ^= 1;
            let mut spoilt = vec![
                ("missing", None),
                ("empty", Some(vec![])),
                ("cut inside an entry", Some(good[..good.len() - 1].to_vec())),
                ("an entry more", Some([&good[..], &good[..34]].concat())),
                ("another last stable offset", Some(other_last)),
                ("garbage", Some(vec![0xff; 100])),
                ("of another segment", Some(right[&file(if base == 0 { 4 } else { 0 }, "txnindex")].clone())),
            ];
            if good.len() > 34 {
                spoilt.push(("cut between two entries", Some(good[..34].to_vec())));
            }
            for (what, bytes) in spoilt {
                let disk = disk.fork();
                match &bytes {
                    None => assert!(disk.remove_file(&path)),
                    Some(bytes) => disk.write_file(&path, bytes),
                }
                load(&disk, &config).unwrap();
                assert_eq!(
                    disk.read_file(&path),
                    Some(good.clone()),
                    "{what} in {base}, clean {clean_shutdown}"
                );
                // It is mended for good: the next start trusts the notes again.
                let (_, report) = load(&disk, &config).unwrap();
                assert_eq!(
                    report
                        .rebuilt
                        .iter()
                        .filter(|rebuilt| matches!(rebuilt, weir_recovery::Rebuilt::TransactionIndex { .. }))
                        .count(),
                    0,
                    "{what} in {base}"
                );
                assert_eq!(report.walked_from, Some(offset(12)), "{what} in {base}, clean {clean_shutdown}");
            }
        }
        // A note that is wrong, of an index that is right: everything is walked, once.
        let disk = disk.fork();
        let path = Path::new(SIDE_DIR).join("partition");
        let text = String::from_utf8(disk.read_file(&path).unwrap()).unwrap();
        let body = text[..text.len() - 16].replace("transactions 4 1 5 ", "transactions 4 2 5 ");
        let crc = weir_recovery::partition_file::crc32c(body.as_bytes());
        assert_ne!(body, text[..text.len() - 16]);
        disk.write_file(&path, format!("{body}crc32c {crc:08x}\n").as_bytes());
        for walked_from in [0, 12] {
            let (_, report) = load(&disk, &config).unwrap();
            assert_eq!(report.walked_from, Some(offset(walked_from)), "clean {clean_shutdown}");
        }
        // One where none belongs.
        let disk = SimDisk::new(1);
        write_segments(&disk, &[vec![placed(plain(2, 5), 0, 0)], vec![placed(plain(2, 5), 2, 0)]]);
        load(&disk, &self::config()).unwrap();
        disk.write_file(&file(0, "txnindex"), &right[&file(0, "txnindex")]);
        let config = RecoveryConfig { recovery_point: offset(4), ..config };
        load(&disk, &config).unwrap();
        assert_eq!(disk.read_file(&file(0, "txnindex")), None);
    }
}

/// Two records at an offset, later ones with later timestamps.
fn rising(base: i64) -> Vec<u8> {
    let at = |n| weir_format::TimestampMs::new(NOW.get() + base + n);
    let builder = weir_format::BatchBuilder::new().record(at(0), None, Some(&[b'v'; 60]));
    placed(builder.record(at(1), None, Some(&[b'v'; 60])), base, 0)
}

/// Offset and time indexes of every kind of damage: the log reads the same, and they are right on the disk afterwards.
#[test]
fn index_files_that_are_missing_empty_or_garbage_change_no_answer() {
    // TAIL-2, TAIL-7.
    let start = SimDisk::new(1);
    let segments: Vec<Vec<Vec<u8>>> =
        (0..3).map(|segment| (0..20).map(|n| rising(segment * 40 + n * 2)).collect()).collect();
    write_segments(&start, &segments);
    let mut io = start.io();
    let (loaded, _) = weir_recovery::LogLoader::load(&mut io, Path::new(DIR), &config()).unwrap();
    loaded.log.close(&mut io).unwrap();
    let right = start.contents();
    let batches = |disk: &SimDisk, config: &RecoveryConfig| {
        let mut io = disk.io();
        let (loaded, _) = weir_recovery::LogLoader::load(&mut io, Path::new(DIR), config).unwrap();
        let mut log = loaded.log;
        let end = log.log_end_offset();
        let read = |at| {
            let read = log.read(&mut io, offset(at), 1, end, true).unwrap();
            RecordBatch::parse(&read.bytes).unwrap().base_offset().get()
        };
        (0..120).map(read).collect::<Vec<_>>()
    };
    let expected: Vec<i64> = (0..120).map(|at| at / 2 * 2).collect();
    for base in [0, 80] {
        for kind in ["index", "timeindex"] {
            let path = file(base, kind);
            let good = &right[&path];
            assert!(good.len() > 40, "{}", path.display());
            let other = &right[&file(40, kind)];
            for (what, bytes) in [
                ("missing", None),
                ("empty", Some(vec![])),
                ("zeros", Some(vec![0; good.len()])),
                ("preallocated", Some([&good[..], &[0; 4096]].concat())),
                ("cut inside an entry", Some(good[..good.len() - 3].to_vec())),
                ("cut", Some(good[..24].to_vec())),
                ("garbage", Some(vec![0xa5; good.len()])),
                ("of another segment", Some(other.clone())),
            ] {
                for (clean_shutdown, recovery_point) in [(true, 120), (false, 120), (false, 0)] {
                    let disk = start.fork();
                    match &bytes {
                        None => assert!(disk.remove_file(&path)),
                        Some(bytes) => disk.write_file(&path, bytes),
                    }
                    let config =
                        RecoveryConfig { clean_shutdown, recovery_point: offset(recovery_point), ..config() };
                    let what = format!("{what} {} {clean_shutdown} {recovery_point}", path.display());
                    assert_eq!(batches(&disk, &config), expected, "{what}");
                    let distrusted = !clean_shutdown && (base == 80 || recovery_point == 0);
                    if distrusted && base == 0 {
                        assert_eq!(disk.read_file(&path).as_ref(), Some(good), "{what}");
                    }
                }
            }
        }
    }
}
