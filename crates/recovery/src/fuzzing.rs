//! The oracle of the fuzz target for the small text files of a partition and of a log directory. It panics if this crate is
//! wrong about their bytes.
//!
//! It runs in ordinary tests as well, over the seeds in `fuzz/seeds` and over mutations of them.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "an oracle fails by panicking, and one that unwraps wrongly should fail too"
)]

use weir_format::{LeaderEpoch, Offset};
use weir_segment::checkpoint::OffsetCheckpoint;

use crate::partition_file::{PartitionFile, crc32c};
use crate::{BarrierNote, LeaderEpochCache};

/// One oracle: it panics if this crate is wrong about these bytes.
pub type Oracle = fn(&[u8]);

/// Every target of `fuzz/` that is this crate's, and its oracle.
pub const TARGETS: &[(&str, Oracle)] = &[("checkpoint", check_checkpoint)];

/// Any bytes as a leader-epoch checkpoint, as an offset checkpoint, and as a side file, also with the checksum that it
/// should have: the naive reader agrees on every entry and on what is refused, what is read is written again, lookups are
/// those of a search from the front, and truncations keep what they must.
pub fn check_checkpoint(data: &[u8]) {
    check_epochs(data);
    if let Ok(checkpoint) = OffsetCheckpoint::parse(data) {
        assert_eq!(OffsetCheckpoint::parse(&checkpoint.encode()), Ok(checkpoint));
    }
    check_partition_file(data);
    let sum = format!("crc32c {:08x}\n", crc32c(data));
    check_partition_file(&[data, sum.as_bytes()].concat());
}

/// Epochs and their start offsets, or `None` if it is no such file.
fn naive_epochs(data: &[u8]) -> Option<Vec<(i32, i64)>> {
    let text = std::str::from_utf8(data).ok()?;
    let mut lines: Vec<&str> = text.split('\n').collect();
    // What is behind the last line feed is a line only if there is something, and its carriage return ends nothing.
    let last = lines.pop().filter(|last| !last.is_empty());
    let mut lines: Vec<&str> =
        lines.into_iter().map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    lines.extend(last);
    if *lines.first()? != "0" {
        return None;
    }
    let count: usize = lines.get(1)?.parse().ok()?;
    let mut epochs: Vec<(i32, i64)> = Vec::new();
    for line in &lines[2..] {
        let (epoch, start) = line.split_once(' ')?;
        let entry: (i32, i64) = (epoch.parse().ok()?, start.parse().ok()?);
        if entry.0 < 0 || entry.1 < 0 {
            return None;
        }
        if epochs.last().is_some_and(|last| last.0 >= entry.0 || last.1 >= entry.1) {
            return None;
        }
        epochs.push(entry);
    }
    (epochs.len() == count).then_some(epochs)
}

fn pairs(cache: &LeaderEpochCache) -> Vec<(i32, i64)> {
    cache.entries().iter().map(|entry| (entry.epoch.get(), entry.start_offset.get())).collect()
}

fn check_epochs(data: &[u8]) {
    let read = LeaderEpochCache::decode(data).ok();
    let naive = naive_epochs(data);
    assert_eq!(read.as_ref().map(pairs), naive);
    let (Some(cache), Some(entries)) = (read, naive) else { return };
    assert_eq!(LeaderEpochCache::decode(&cache.encode()).as_ref(), Ok(&cache));
    let end = entries.last().map_or(0, |last| last.1).saturating_add(3);
    let around = |values: Vec<i64>| {
        let mut all: Vec<i64> =
            values.iter().flat_map(|value| [value - 1, *value, value.saturating_add(1)]).collect();
        all.extend([0, i64::MAX]);
        all.into_iter().filter(|value| *value >= 0).take(40)
    };
    for asked in around(entries.iter().map(|entry| i64::from(entry.0)).collect()) {
        let Some(asked) = i32::try_from(asked).ok().and_then(LeaderEpoch::new) else { continue };
        let found = cache.end_offset_for(asked, Offset::new(end).unwrap()).map(|(e, at)| (e.get(), at.get()));
        assert_eq!(found, naive_end(&entries, asked.get(), end));
    }
    for at in around(entries.iter().map(|entry| entry.1).collect()) {
        let offset = Offset::new(at).unwrap();
        let in_force = entries.iter().rfind(|entry| entry.1 <= at).map(|entry| entry.0);
        assert_eq!(cache.epoch_for_offset(offset).map(LeaderEpoch::get), in_force);
        let mut cut = cache.clone();
        assert_eq!(cut.truncate_from_end(offset), cut != cache);
        assert_eq!(pairs(&cut), entries.iter().copied().filter(|entry| entry.1 < at).collect::<Vec<_>>());
        let mut above = cache.clone();
        assert_eq!(above.truncate_above(offset), above != cache);
        assert_eq!(pairs(&above), entries.iter().copied().filter(|entry| entry.1 <= at).collect::<Vec<_>>());
        let mut started = cache.clone();
        assert_eq!(started.truncate_from_start(offset), started != cache);
        // The epoch in force stays in force, and nothing before it is left.
        assert_eq!(started.epoch_for_offset(offset), cache.epoch_for_offset(offset));
        assert_eq!(started.latest().map(|latest| latest.epoch), cache.latest().map(|latest| latest.epoch));
        assert!(
            started.entries().iter().filter(|entry| entry.start_offset < offset).count() == 0
                || in_force.is_none()
        );
        // Assigning what is known changes nothing; a new epoch is the newest afterwards, and everything ascends.
        let newest = cache.latest().map_or(0, |latest| latest.epoch.get());
        if let Some(next) = newest.checked_add(1).and_then(LeaderEpoch::new) {
            let mut assigned = cache.clone();
            assert!(assigned.assign(next, offset));
            assert_eq!(
                assigned.latest().map(|entry| (entry.epoch, entry.start_offset)),
                Some((next, offset))
            );
            assert_eq!(LeaderEpochCache::decode(&assigned.encode()).as_ref(), Ok(&assigned));
        }
    }
}

/// The largest epoch not above the asked one, and where it ended (KIP-279), from the front.
fn naive_end(entries: &[(i32, i64)], asked: i32, end: i64) -> Option<(i32, i64)> {
    let newest = entries.last()?.0;
    if asked == newest {
        return Some((asked, end));
    }
    let next = entries.iter().find(|entry| entry.0 > asked)?;
    let floor = entries.iter().rfind(|entry| entry.0 <= asked);
    Some((floor.map_or(asked, |floor| floor.0), next.1))
}

fn check_partition_file(data: &[u8]) {
    let Ok(file) = PartitionFile::decode(data) else { return };
    assert_eq!(PartitionFile::decode(&file.encode()).as_ref(), Ok(&file));
    // A cut and a flipped bit of what we write are noticed.
    let whole = file.encode();
    for size in (0..whole.len()).step_by(1 + whole.len() / 16) {
        assert!(PartitionFile::decode(&whole[..size]).is_err(), "cut at {size}");
    }
    for at in (0..whole.len()).step_by(1 + whole.len() / 16) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 7);
        assert!(PartitionFile::decode(&flipped).map_or(true, |read| read == file), "flipped at {at}");
    }
    // Whatever is noted is there, and read again.
    let mut more = file.clone();
    more.note_barrier(Offset::new(7).unwrap(), BarrierNote { aborted_transaction: true });
    more.note_snapshot(Offset::new(9).unwrap(), 0xff);
    let read = PartitionFile::decode(&more.encode()).unwrap();
    assert!(read.aborted_at_barrier(Offset::new(7).unwrap()));
    assert_eq!(read.snapshot(Offset::new(9).unwrap()), Some(0xff));
    for point in [0, 1, 50, i64::MAX] {
        let point = Offset::new(point).unwrap();
        assert!(file.effective_recovery_point(point) <= point);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn folder(kind: &str, target: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target)
    }

    fn seeds() -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        for kind in ["seeds", "regressions"] {
            let Ok(entries) = std::fs::read_dir(folder(kind, "checkpoint")) else { continue };
            let paths = entries.map(|entry| entry.unwrap().path());
            let named =
                |path: &std::path::PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
            seeds.extend(paths.filter(named).map(|path| std::fs::read(path).unwrap()));
        }
        seeds
    }

    #[test]
    fn seeds_and_regressions_of_every_target_hold() {
        let seeds = seeds();
        assert!(seeds.len() >= 8, "{} seeds", seeds.len());
        for seed in &seeds {
            check_checkpoint(seed);
            // And every change of one byte of the small ones.
            for at in 0..seed.len().min(200) {
                for to in [b'0', b'9', b' ', b'\n', b'-', seed[at] ^ 1] {
                    let mut changed = seed.clone();
                    changed[at] = to;
                    check_checkpoint(&changed);
                }
            }
        }
    }

    #[test]
    fn every_oracle_has_a_target_in_the_fuzz_package() {
        for (target, _) in TARGETS {
            let source = std::fs::read_to_string(folder("fuzz_targets", &format!("{target}.rs"))).unwrap();
            assert!(source.contains(&format!("weir_recovery::fuzzing::check_{target}(data)")), "{source}");
        }
    }
}
