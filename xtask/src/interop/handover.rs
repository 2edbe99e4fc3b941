//! Kafka reads weir's files: its own partitions' files are exchanged for those that weir left, and it is started on them.
//!
//! Kafka 4.4 does not know the barrier, so most of what it gets is as a stop of weir leaves it: every transaction is ended
//! before the barrier behind it, and both see the same. Two checks state what is different where a transaction is open at a
//! barrier: with weir's indexes and snapshots Kafka lists it as aborted, and its readers then lose what the same id commits
//! later, which is why weir ends a response before such a barrier; from the bytes alone Kafka takes it for open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::kafka::Kafka;
use super::logs::{self, Log, Model, files};
use super::process::wait_until;
use super::raw::Raw;
use super::reading::{self, Client, Content, SIZES, Start};
use super::segments::only_sound;
use super::served::{HAND, Served, WHOLE};
use super::{LIVE, PARTITIONS, World, dump};

/// Kafka's topics that get weir's files: of a clean stop, of a kill and a recovery, of the log with a transaction that is
/// open at a barrier, and the last one's `.log` files alone.
const CLEAN: &str = "hand-clean";
const KILLED: &str = "hand-killed";
const OPEN: &str = "hand-open";
const BARE: &str = "hand-bare";

/// Words of Kafka about files that it does not take as they are.
const COMPLAINTS: &[&str] = &[
    " WARN ",
    " ERROR ",
    "orrupt",
    "ecovering",
    "ebuilding index",
    "Could not find",
    "Found invalid",
    "unflushed",
    "truncat",
];

/// Makes the topics on a Kafka that runs; their partitions' folders are exchanged when it has stopped.
///
/// # Errors
/// If they cannot be made.
pub(super) fn create_topics(world: &World, kafka: &Kafka) -> Result<()> {
    world
        .tools
        .run_python(&world.work, "topics.py", &[&kafka.address(), CLEAN, KILLED, OPEN, BARE])?
        .must_succeed("creating topics on Kafka")?;
    Ok(())
}

/// One partition that is exchanged.
struct Exchanged {
    topic: &'static str,
    partition: i32,
    /// weir's folder.
    from: PathBuf,
    /// Names and bytes of the segments, as weir left them.
    segments: BTreeMap<String, Vec<u8>>,
    /// Kafka has nothing to complain about.
    sound: bool,
}

impl Exchanged {
    fn new(topic: &'static str, partition: i32, from: PathBuf) -> Result<Self> {
        Ok(Self { topic, partition, segments: segments(&from)?, from, sound: topic != BARE })
    }

    fn name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }
}

/// Runs the checks whose names start with `handover.`: Kafka has been stopped, its data is in `kafka`; `live` is what a node
/// left that mirrored the live topic and was killed again and again.
///
/// # Errors
/// If Kafka does not start on weir's files, or anything else cannot be run.
pub(super) fn check(world: &mut World, kafka: &Path, served: &Served, live: Option<&Path>) -> Result<()> {
    let mut all = vec![
        Exchanged::new(CLEAN, 0, served.clean.join(format!("{HAND}-0")))?,
        Exchanged::new(KILLED, 0, served.killed.join(format!("{HAND}-0")))?,
        Exchanged::new(OPEN, 0, served.clean.join(format!("{WHOLE}-0")))?,
        Exchanged::new(BARE, 0, served.clean.join(format!("{WHOLE}-0")))?,
    ];
    for partition in 0..PARTITIONS {
        if let Some(live) = live {
            all.push(Exchanged::new(LIVE, partition, live.join(format!("{LIVE}-{partition}")))?);
        }
    }
    let hand = served.contents.get(HAND).context("no such content")?;
    world.report.check("handover.the_files_hold_what_they_should", worth_it(&all, hand));
    world.report.check("handover.kafka_finds_the_indexes_sane", sane(world, &all));
    for one in &all {
        exchange(&one.from, &kafka.join(one.name()), one.topic == BARE)?;
    }

    let folder = kafka.parent().context("no folder")?;
    let again = Kafka::start_again(&world.tools, folder)?;
    let mut raw = Raw::connect(&again.address())?;
    // It takes connections before it leads what it has loaded.
    wait_until("Kafka leads its partitions", Duration::from_secs(60), || {
        Ok(all.iter().all(|one| raw.end_offset(one.topic, one.partition, false).is_ok()))
    })?;
    let said = again.said();
    for one in all.iter().filter(|one| one.sound) {
        let name = one.name().replace('-', "_");
        world.report.check(&format!("handover.{name}_is_taken_as_it_is"), taken(one, &said));
        world.report.check(&format!("handover.{name}_ends_where_it_ended"), ends(&mut raw, one));
    }
    let result = complaints(&said, &format!("{BARE}-0"))
        .first()
        .map(|_| ())
        .context("missing indexes were not worth a word");
    world.report.check("handover.control_kafka_says_what_it_misses", result);

    let address = again.address();
    let mut jobs = Vec::new();
    for topic in [CLEAN, KILLED] {
        for committed in [true, false] {
            let starts: Vec<i64> = hand.offsets(committed).collect();
            for start in starts.iter().copied().step_by(starts.len().div_ceil(12).max(1)) {
                jobs.push(hand.job(topic, committed, 1 << 20, Start::Offset(start)));
            }
            jobs.push(hand.job(topic, committed, SIZES[0], Start::Offset(0)));
            for timestamp in hand.timestamps() {
                jobs.push(hand.job(topic, committed, 1 << 20, Start::Timestamp(timestamp)));
            }
        }
    }
    for client in Client::ALL {
        reading::check(world, "handover", client, &address, &jobs);
    }
    let whole = served.contents.get(WHOLE).context("no such content")?;
    let result = different(world, &address, &mut raw, whole);
    world.report.check("handover.difference_kafka_does_not_know_what_a_barrier_aborts", result);

    let data = again.stop().context("Kafka's clean stop on weir's files")?;
    for one in &all {
        let name = one.name().replace('-', "_");
        let result = unchanged(one, &data.join(one.name()));
        world.report.check(&format!("handover.{name}_is_unchanged"), result);
    }
    let result = all
        .iter()
        .filter(|one| [CLEAN, KILLED].contains(&one.topic))
        .try_for_each(|one| same_producers(one, &data.join(one.name())));
    world.report.check("handover.kafka_knows_the_producers_that_weir_knew", result);
    Ok(())
}

/// What is handed over has what this is about.
fn worth_it(all: &[Exchanged], hand: &Content) -> Result<()> {
    for one in all.iter().filter(|one| [CLEAN, KILLED].contains(&one.topic)) {
        let log = Log::read(&one.from)?;
        let model = Model::of(&log.batches);
        let name = one.name();
        ensure!(log.segments > 8, "{name} has {} segments", log.segments);
        ensure!(model.barriers.len() > 2, "{name} has {} barriers", model.barriers.len());
        ensure!(model.aborted.len() > 9, "{name} has {} aborted transactions", model.aborted.len());
        ensure!(model.open.len() == 1, "{name} has open transactions {:?}", model.open);
        let epochs: Vec<i32> = model.epochs.iter().map(|(epoch, _)| *epoch).collect();
        ensure!(epochs == [0, 1, 2], "{name} has leader epochs {epochs:?}");
        ensure!(logs::read_epochs(&one.from)? == model.epochs, "{name} has another epoch checkpoint");
        let gaps = log.batches.windows(2).filter(|pair| match pair {
            [before, after] => after.base_offset > before.last_offset + 1,
            _ => false,
        });
        ensure!(gaps.count() > 5, "{name} has too few gaps");
        for kind in ["index", "timeindex", "txnindex"] {
            let count = files(&one.from, kind)?.len();
            ensure!(count > 8, "{name} has {count} {kind} files");
        }
        ensure!((model.end, model.last_stable_offset()) == (hand.end, hand.stable), "{name} is another log");
    }
    Ok(())
}

/// Kafka's own check of every index.
fn sane(world: &World, all: &[Exchanged]) -> Result<()> {
    let mut indexes = Vec::new();
    for one in all.iter().filter(|one| one.sound) {
        for kind in ["index", "timeindex"] {
            indexes.extend(files(&one.from, kind)?);
        }
    }
    let said = dump::said_of_files(world, &indexes, &["--index-sanity-check"])?;
    ensure!(said.files == indexes.len(), "{} of {} indexes were checked", said.files, indexes.len());
    only_sound(&said.complaints)
}

/// Files of a partition, in place of what is there.
fn exchange(from: &Path, to: &Path, logs_alone: bool) -> Result<()> {
    super::script::empty(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if name != "partition.metadata" && (is_log || !logs_alone) {
            std::fs::copy(&path, to.join(name))
                .with_context(|| format!("{} could not be copied", path.display()))?;
        }
    }
    Ok(())
}

fn segments(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    files(folder, "log")?
        .into_iter()
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, std::fs::read(&path)?))
        })
        .collect()
}

/// What Kafka said of a partition beyond what it says of every one.
fn complaints<'a>(said: &'a str, partition: &str) -> Vec<&'a str> {
    said.lines()
        .filter(|line| line.contains(partition))
        .filter(|line| COMPLAINTS.iter().any(|complaint| line.contains(complaint)))
        .collect()
}

/// No complaint; and the producers came from the snapshot that weir wrote at the log's end.
fn taken(one: &Exchanged, said: &str) -> Result<()> {
    let name = one.name();
    let complaints = complaints(said, &name);
    ensure!(complaints.is_empty(), "Kafka says {complaints:?}");
    let end = Log::read(&one.from)?.end();
    let snapshot = format!("{name}/{end:020}.snapshot");
    let loaded = said
        .lines()
        .any(|line| line.contains("Loading producer state from snapshot file") && line.contains(&snapshot));
    ensure!(loaded, "{snapshot} was not loaded");
    Ok(())
}

fn ends(raw: &mut Raw, one: &Exchanged) -> Result<()> {
    let model = Model::of(&Log::read(&one.from)?.batches);
    let ends =
        (raw.end_offset(one.topic, one.partition, false)?, raw.end_offset(one.topic, one.partition, true)?);
    let wanted = (model.end, model.last_stable_offset());
    ensure!(ends == wanted, "log end and last stable offset are {ends:?}, they were {wanted:?}");
    let own = raw.leader_epochs(one.topic)?;
    let newest = model.epochs.last().map_or(-1, |(epoch, _)| *epoch);
    ensure!(
        own.iter().all(|epoch| *epoch >= newest),
        "Kafka's own epochs are {own:?}, the log's newest {newest}"
    );
    Ok(())
}

/// What readers of Kafka are given of a log with a transaction that is open at a barrier.
fn different(world: &World, address: &str, raw: &mut Raw, whole: &Content) -> Result<()> {
    let read = |topic: &str, committed: bool| -> Result<(Vec<i64>, Option<i64>)> {
        let job = whole.job(topic, committed, 1 << 20, Start::Offset(0));
        let mut answers = reading::read(world, Client::Java, address, &[job])?;
        let answer = answers.remove(&0).context("no answer")?;
        Ok((answer.records.into_iter().map(|(offset, _, _)| offset).collect(), answer.position))
    };
    let everything = vec![0, 1, 2, 3, 5, 6];
    ensure!(whole.end == 8 && whole.stable == 8, "the log is another one");
    for topic in [OPEN, BARE] {
        ensure!(read(topic, false)? == (everything.clone(), Some(8)), "{topic} is not read whole");
    }
    // weir's indexes and snapshot: Kafka's readers are told of two aborted ids, and meet no marker that ends them.
    let stable = raw.end_offset(OPEN, 0, true)?;
    ensure!(stable == 8, "the last stable offset of {OPEN} is {stable}");
    let seen = read(OPEN, true)?;
    ensure!(seen == (Vec::new(), Some(8)), "{OPEN}: {seen:?}");
    // The bytes alone: the COMMIT behind the barrier ends the transaction before it, and pid 6 stays open.
    let stable = raw.end_offset(BARE, 0, true)?;
    ensure!(stable == 2, "the last stable offset of {BARE} is {stable}");
    Ok(())
}

/// Every segment is there and has the same bytes, and nothing else has come; closed segments have the same indexes.
fn unchanged(one: &Exchanged, folder: &Path) -> Result<()> {
    let now = segments(folder)?;
    let names = |segments: &BTreeMap<String, Vec<u8>>| segments.keys().cloned().collect::<Vec<_>>();
    ensure!(names(&now) == names(&one.segments), "the segments are {:?}", names(&now));
    for (name, bytes) in &one.segments {
        ensure!(now.get(name) == Some(bytes), "{name} has changed");
    }
    if !one.sound {
        return Ok(());
    }
    for kind in ["index", "timeindex", "txnindex"] {
        for path in files(&one.from, kind)? {
            let name = path.file_name().unwrap_or_default();
            let before = std::fs::read(&path)?;
            let after = std::fs::read(folder.join(name)).with_context(|| format!("{name:?} is gone"))?;
            ensure!(before == after, "{name:?} has changed: {} bytes, now {}", before.len(), after.len());
        }
    }
    Ok(())
}

/// The snapshot that Kafka wrote at its stop says what weir's did.
fn same_producers(one: &Exchanged, folder: &Path) -> Result<()> {
    let newest = |folder: &Path| files(folder, "snapshot")?.pop().context("no snapshot");
    let (ours, theirs) = (newest(&one.from)?, newest(folder)?);
    ensure!(ours.file_name() == theirs.file_name(), "Kafka's newest is {}", theirs.display());
    let (ours, theirs) = (logs::read_snapshot(&ours)?, logs::read_snapshot(&theirs)?);
    ensure!(!ours.is_empty() && ours == theirs, "weir knew {ours:?}, Kafka knows {theirs:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_of_the_partition_and_not_of_every_start() {
        let said = "2026 INFO UnifiedLog: [LogLoader partition=hand-clean-0, dir=/d] Loading producer state till offset 9\n\
                    2026 WARN LogLoader: [LogLoader partition=hand-bare-0, dir=/d] Could not find offset index file\n\
                    2026 INFO LogLoader: [LogLoader partition=hand-killed-0, dir=/d] Recovering unflushed segment 0\n";
        assert!(complaints(said, "hand-clean-0").is_empty());
        assert_eq!(complaints(said, "hand-bare-0").len(), 1);
        assert_eq!(complaints(said, "hand-killed-0").len(), 1);
    }
}
