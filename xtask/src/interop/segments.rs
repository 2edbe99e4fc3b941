//! Kafka's DumpLogSegments over segments and indexes of the storage crates alone, without a node: as recovery leaves them
//! after kill -9, and after a clean close; with each backend.
//!
//! The program that writes, kills and recovers is `weir-benches`' `kill`; it has compared every byte by then. Here Kafka
//! reads them: every batch valid, every index entry where it says.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::logs::{self, Log, files};
use super::{World, dump, process};
use crate::kill;

/// Enough to leave a dozen segments, few enough for every run of the checks.
/// The third spoils index files, and only those that are asked are looked at; the fourth walks the whole log.
const ROUNDS: &str = "4";

/// What the tool says of a sound file. Its check of offsets begins at −1, so a segment that does not start at 0 draws the
/// first two; an index without entries, as of a segment with one batch, the third.
const SOUND: &[&str] =
    &["Non-consecutive offsets in PATH", "N is followed by N", "PATH is empty.", "PATH passed sanity check."];

/// Runs the checks whose names start with `segments.`.
///
/// # Errors
/// If they cannot be run.
pub(super) fn check(world: &mut World) -> Result<()> {
    let program = kill::build(&[])?;
    for backend in ["uring", "pwrite"] {
        let folder = world.work.join(format!("segments-{backend}"));
        let run = |world: &World, words: &[&str]| {
            let mut command = Command::new(&program);
            command.arg(words.first().copied().unwrap_or_default()).arg(&folder);
            command.args(["--backend", backend]).args(words.get(1..).unwrap_or_default());
            process::run(&mut command, &world.work, Duration::from_secs(300), "")
        };
        let rounds = run(world, &["rounds", "--rounds", ROUNDS])?;
        let said = rounds.all();
        if !rounds.status.success() && said.contains(&format!("no {backend} here")) {
            // A kernel or a container may refuse the ring, and weir then does not use it either.
            println!("# segments: {}", process::tail(&said, 1));
            continue;
        }
        let result = rounds.must_succeed("the kill rounds").map(|_| ());
        let failed = result.is_err();
        world.report.check(&format!("segments.{backend}_nothing_is_lost_by_kill_9"), result);
        if failed {
            continue;
        }
        let partition = folder.join("data").join("kill-0");
        let result = by_kafka(world, &partition);
        world.report.check(&format!("segments.{backend}_kafka_verifies_what_kill_9_left"), result);
        let result = run(world, &["close"])
            .and_then(|ended| ended.must_succeed("the clean close"))
            .and_then(|_| every_segment_has_indexes(&partition))
            .and_then(|()| by_kafka(world, &partition));
        world.report.check(&format!("segments.{backend}_kafka_verifies_a_clean_close"), result);
        if backend == "pwrite" {
            let result = a_wrong_entry_is_seen(world, &partition);
            world.report.check("segments.control_kafka_sees_a_wrong_index_entry", result);
        }
    }
    Ok(())
}

/// The tool is not silent about everything: an entry that points one byte too far is named.
fn a_wrong_entry_is_seen(world: &World, partition: &Path) -> Result<()> {
    let indexes = files(partition, "index")?;
    let (index, mut bytes) = indexes
        .into_iter()
        .filter_map(|path| std::fs::read(&path).ok().map(|bytes| (path, bytes)))
        .find(|(_, bytes)| bytes.len() >= 16)
        .context("no index with two entries")?;
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    std::fs::write(&index, bytes)?;
    let said = dump::said_of_files(world, &[index], &["--verify-index-only"])?;
    ensure!(only_sound(&said.complaints).is_err(), "Kafka says nothing");
    Ok(())
}

/// Batches, then indexes, by each of the tool's ways.
fn by_kafka(world: &World, partition: &Path) -> Result<()> {
    let log = Log::read(partition)?;
    ensure!(!log.dirty_tail, "the last segment has a tail that is no batch");
    let all = |kinds: &[&str]| -> Result<Vec<_>> {
        let mut all = Vec::new();
        for kind in kinds {
            all.extend(files(partition, kind)?);
        }
        Ok(all)
    };
    let deep = dump::said_of_files(world, &all(&["log"])?, &["--deep-iteration"])?;
    ensure!(deep.batches == log.batches.len(), "{} batches of {}", deep.batches, log.batches.len());
    only_sound(&deep.complaints)?;
    // Offsets follow each other without a gap, so the tool's word on them means nothing but its own beginning.
    for pair in log.batches.windows(2) {
        if let [before, after] = pair {
            ensure!(after.base_offset == before.last_offset + 1, "a gap at {}", after.base_offset);
        }
    }
    let indexes = all(&["index", "timeindex"])?;
    let checked = dump::said_of_files(world, &indexes, &["--index-sanity-check"])?;
    only_sound(&checked.complaints)?;
    ensure!(checked.files == indexes.len(), "{} of {} indexes were checked", checked.files, indexes.len());
    let verified = dump::said_of_files(world, &indexes, &["--verify-index-only"])?;
    only_sound(&verified.complaints)?;
    let printed = dump::said_of_files(world, &all(&["index", "timeindex", "txnindex", "snapshot"])?, &[])?;
    only_sound(&printed.complaints)?;
    for snapshot in files(partition, "snapshot")? {
        logs::read_snapshot(&snapshot)?;
    }
    Ok(())
}

pub(super) fn only_sound(complaints: &BTreeSet<String>) -> Result<()> {
    let unsound: Vec<_> = complaints.iter().filter(|line| !SOUND.contains(&line.as_str())).take(5).collect();
    ensure!(unsound.is_empty(), "Kafka says {unsound:?}");
    Ok(())
}

/// After a clean close every segment has both indexes on the disk.
fn every_segment_has_indexes(partition: &Path) -> Result<()> {
    let logs = files(partition, "log")?;
    ensure!(logs.len() > 1, "{} segments", logs.len());
    for log in logs {
        for kind in ["index", "timeindex"] {
            let index = log.with_extension(kind);
            std::fs::metadata(&index).with_context(|| format!("{} is missing", index.display()))?;
        }
    }
    Ok(())
}
