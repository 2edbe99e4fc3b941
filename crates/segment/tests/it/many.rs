//! Many segments in many partitions, under a small limit of descriptors.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};
use weir_segment::layout::{FileKind, file_path};
use weir_segment::{LocalLog, SegmentConfig, TimeIndex, TimestampOffset};

use crate::support::{NOW, at, batch};

fn partitions(root: &Path) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    dirs.sort();
    dirs
}

/// Partitions of closed segments, one record each.
fn build(root: &Path, partition_count: usize, segment_count: i64) {
    for partition in 0..partition_count {
        let dir = root.join(format!("t-{partition}"));
        std::fs::create_dir(&dir).unwrap();
        for base in 0..segment_count {
            let bytes = batch(base, 1, 10, NOW.get());
            let mut times = TimeIndex::new(at(base));
            assert!(times.append(TimestampOffset { timestamp: NOW, offset: at(base) }));
            std::fs::write(file_path(&dir, at(base), FileKind::Log), bytes).unwrap();
            std::fs::write(file_path(&dir, at(base), FileKind::OffsetIndex), b"").unwrap();
            std::fs::write(file_path(&dir, at(base), FileKind::TimeIndex), times.encode()).unwrap();
        }
    }
}

/// A line of `/proc/self/status`, in KiB.
fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "run by the tests below, as a process of its own with a limit, in a folder of partitions"]
fn open_every_partition_of_this_folder() {
    let dirs = partitions(Path::new("."));
    let mut io = PwriteIo::new(PwriteConfig { max_open_files: 48, ..PwriteConfig::default() });
    let before = status("VmRSS:");
    let mut logs: Vec<LocalLog> = dirs
        .iter()
        .map(|dir| LocalLog::open(&mut io, dir, SegmentConfig::default(), at(0)).unwrap())
        .collect();
    let memory = (status("VmRSS:") - before) * 1_024;
    let segments: usize = logs.iter().map(|log| log.segments().len()).sum();
    let count = u64::try_from(segments).unwrap();
    // Each tenth one is read from its first segment and appended to.
    for log in logs.iter_mut().step_by(10) {
        let end = log.log_end_offset();
        assert_eq!(log.read(&mut io, at(0), 1 << 20, end, true).unwrap().bytes, batch(0, 1, 10, NOW.get()));
        log.append_bytes(&mut io, batch(end.get(), 1, 10, NOW.get()), NOW).unwrap();
        log.sync(&mut io).unwrap();
    }
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("00000000000000000000."), "no file of a log is mapped");
    println!(
        "opened {segments} segments in {} partitions: {} bytes of memory per segment, {} per partition, {descriptors} descriptors",
        logs.len(),
        memory / count,
        memory / u64::try_from(logs.len()).unwrap(),
    );
    assert!(io.open_descriptors() <= 48 + logs.len().div_ceil(10));
}

fn child(root: &Path, limit: u32) -> String {
    let test = std::env::current_exe().unwrap();
    let command = format!(
        "ulimit -n {limit} && exec '{}' --exact many::open_every_partition_of_this_folder --ignored --nocapture",
        test.display()
    );
    let output = Command::new("sh").args(["-c", &command]).current_dir(root).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.contains("opened "));
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = line.unwrap();
    line[line.find("opened").unwrap()..].to_string()
}

#[test]
fn thousands_of_segments_open_with_few_descriptors() {
    let root = tempfile::tempdir().unwrap();
    build(root.path(), 150, 20);
    let line = child(root.path(), 96);
    assert!(line.starts_with("opened 3000 segments in 150 partitions"), "{line}");
}

/// Kafka maps every index into memory, and its brokers died of the kernel's limit of maps (KAFKA-6343).
#[test]
#[ignore = "makes 600,000 files"]
fn two_hundred_thousand_segments_open_with_a_limit_of_1024_descriptors() {
    let root = tempfile::tempdir().unwrap();
    build(root.path(), 10_000, 20);
    let line = child(root.path(), 1_024);
    println!("{line}");
    assert!(line.starts_with("opened 200000 segments in 10000 partitions"), "{line}");
}
