//! Ten times: writers at work, SIGKILL, start again; nothing acknowledged is gone and the state is what the bytes say.
//!
//! "As before" is checked against the bytes that lay on the disk between the kill and the restart: a copy of the
//! folder is read by the naive model of `logs.rs`, and the restarted node must say the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::dump::agrees_with_files;
use super::logs::{self, Log, Model};
use super::mirror::{Source, compare_read, read, same_bytes};
use super::node::Node;
use super::process::{Running, tail, wait_until};
use super::raw::{self, Raw};
use super::{LIVE, PARTITIONS, TOPIC, World};

const ROUNDS: u32 = 10;
/// Records a second and partition of the librdkafka writer.
const RATE: &str = "200";

/// Runs the rounds, then compares the topic that stayed mirrored with its source.
pub(super) fn ten_rounds(world: &mut World, source: &Source, node: &mut Node) -> Result<()> {
    let partitions = PARTITIONS.to_string();
    let mut source_writer = Running::start(
        world.tools.python("source_writer.py").args([&source.kafka.address(), LIVE, &partitions, "live"]),
        &world.work,
        "source-writer",
    )?;
    let mut writer = Running::start(
        world.tools.python("writer.py").args([&node.address(), TOPIC, &partitions, "ledger", RATE]),
        &world.work,
        "writer",
    )?;
    let (id, epoch) = Raw::connect(&node.address())?.init_producer_id()?;
    let mut mine = Ledger { producer_id: id, producer_epoch: epoch, ..Ledger::default() };
    wait_until("the writers' first acknowledgements", Duration::from_secs(30), || {
        ensure!(!writer.has_ended(), "the writer ended: {}", tail(&writer.stderr(), 5));
        ensure!(
            !source_writer.has_ended(),
            "the source's writer ended: {}",
            tail(&source_writer.stderr(), 5)
        );
        Ok(writer.stdout().contains("acked ") && source_writer.stdout().contains("committed "))
    })?;
    for round in 1..=ROUNDS {
        let result = one_round(world, node, &writer, &mut mine, round);
        let failed = result.is_err();
        world.report.check(&format!("kill.round_{round}"), result);
        if failed {
            break;
        }
    }
    writer.close_stdin();
    let ended = writer.wait(Duration::from_secs(90));
    let result = ended.and_then(|status| {
        ensure!(status.success(), "the writer: {status}: {}", tail(&writer.stdout(), 2));
        ensure!(!writer.stdout().contains("lost "), "the writer lost records: {}", tail(&writer.stdout(), 3));
        Ok(())
    });
    world.report.check("kill.an_idempotent_client_survives_it_all", result);
    source_writer.close_stdin();
    let result = source_writer
        .wait(Duration::from_secs(60))
        .and_then(|status| {
            ensure!(status.success(), "the source's writer: {status}: {}", tail(&source_writer.stderr(), 3));
            Ok(())
        })
        .and_then(|()| live_is_mirrored(world, source, node, &source_writer.stdout()));
    world.report.check("kill.the_live_mirror_has_every_byte", result);
    let result = all_in_ledger_once(node, &writer.stdout());
    world.report.check("kill.every_acknowledged_record_is_there_once", result);
    Ok(())
}

/// What the producer inside this program sent and had acknowledged, to partition 0.
#[derive(Debug, Default)]
struct Ledger {
    producer_id: i64,
    producer_epoch: i16,
    sent: Vec<raw::Batch>,
    /// Base offsets of the acknowledged ones, a prefix of `sent`.
    acked: Vec<i64>,
}

impl Ledger {
    fn next(&mut self) -> raw::Batch {
        if let Some(batch) = self.sent.get(self.acked.len()) {
            return batch.clone();
        }
        let number = self.sent.len();
        let base_sequence = self.sent.iter().map(|batch| batch.records.len()).sum::<usize>();
        let batch = raw::Batch {
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: i32::try_from(base_sequence).unwrap_or(0),
            records: (0..3).map(|i| (format!("raw-{number}-{i}"), "x".repeat(100))).collect(),
        };
        self.sent.push(batch.clone());
        batch
    }

    /// Sends until told to end or the connection breaks, as it does when the node is killed.
    fn write_until(
        mut self,
        address: String,
        end: Arc<AtomicBool>,
        progress: Arc<AtomicUsize>,
    ) -> JoinHandle<(Self, Result<()>)> {
        std::thread::spawn(move || {
            let result = self.write(&address, &end, &progress);
            (self, result)
        })
    }

    fn write(&mut self, address: &str, end: &AtomicBool, progress: &AtomicUsize) -> Result<()> {
        let Ok(mut raw) = Raw::connect(address) else { return Ok(()) };
        while !end.load(Ordering::Relaxed) {
            let batch = self.next();
            match raw.produce(TOPIC, 0, &batch) {
                Ok((0, offset)) => {
                    self.acked.push(offset);
                    progress.fetch_add(1, Ordering::Relaxed);
                }
                Ok((error, _)) => return Err(anyhow!("produce answered error {error}")),
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }
}

fn one_round(world: &World, node: &mut Node, writer: &Running, mine: &mut Ledger, round: u32) -> Result<()> {
    let epochs_before = Raw::connect(&node.address())?.leader_epochs(TOPIC)?;
    let live_epochs_before = Raw::connect(&node.address())?.leader_epochs(LIVE)?;

    // Write, and kill in the middle of it; the moment differs from round to round.
    let end = Arc::new(AtomicBool::new(false));
    let ledger = std::mem::take(mine);
    let acked_before = ledger.acked.len();
    let progress = Arc::new(AtomicUsize::new(0));
    let thread = ledger.write_until(node.address(), Arc::clone(&end), Arc::clone(&progress));
    let printed_before = writer.stdout().len();
    let written = wait_until("the writers go on", Duration::from_secs(60), || {
        Ok(progress.load(Ordering::Relaxed) > 2 && writer.stdout().len() > printed_before + 500)
    });
    std::thread::sleep(Duration::from_millis(100 + 37 * u64::from(round)));
    node.kill();
    end.store(true, Ordering::Relaxed);
    let (ledger, result) = thread.join().map_err(|_| anyhow!("the writing thread failed"))?;
    *mine = ledger;
    written?;
    result?;
    ensure!(mine.acked.len() > acked_before, "nothing of ours was acknowledged in this round");
    let acknowledged = acked(&writer.stdout())?;

    let copy = world.work.join(format!("round-{round}"));
    copy_node(node.data(), &copy)?;
    node.restart()?;

    let copied = copy.join("data");
    let mut raw = Raw::connect(&node.address())?;
    for topic in [TOPIC, LIVE] {
        for partition in 0..PARTITIONS {
            let what = || format!("{topic}-{partition}");
            let before = Log::read(&copied.join(what())).with_context(what)?;
            compare_partition(&mut raw, node, &copied, topic, partition, &before).with_context(what)?;
        }
    }
    let epochs = raw.leader_epochs(TOPIC)?;
    ensure!(
        epochs.iter().zip(&epochs_before).all(|(after, before)| *after == *before + 1),
        "a start after a kill raises the epoch of a writable partition by one: {epochs_before:?}, then {epochs:?}"
    );
    let live_epochs = raw.leader_epochs(LIVE)?;
    ensure!(
        live_epochs == live_epochs_before,
        "a mirrored partition keeps its epochs: {live_epochs_before:?}, then {live_epochs:?}"
    );
    ledger_is_there(&copied, &acknowledged, mine)?;
    retries_are_duplicates(&mut raw, mine)?;
    snapshot_of_copy(world, &copy, round)?;
    std::fs::remove_dir_all(&copy)?;
    Ok(())
}

/// The restarted node holds the bytes that lay there, and its wire answers follow from them.
fn compare_partition(
    raw: &mut Raw,
    node: &Node,
    copied: &Path,
    topic: &str,
    partition: i32,
    before: &Log,
) -> Result<()> {
    let folder = format!("{topic}-{partition}");
    let model = Model::of(&before.batches);
    let after = Log::read(&node.partition(topic, partition))?;
    ensure!(
        after.bytes.starts_with(&before.bytes),
        "{} valid bytes lay there, the restarted node does not keep them",
        before.bytes.len()
    );
    let first = raw.fetch(topic, partition, 0, true)?;
    let fetched = raw.fetch_all(topic, partition, true)?;
    // The writers go on at once: what the node says now lies between what lay there and what lies here in the end.
    let after = Log::read(&node.partition(topic, partition))?;
    let now = Model::of(&after.batches);
    ensure!(first.error == 0, "Fetch answered error {}", first.error);
    ensure!(
        first.high_watermark >= before.end(),
        "high watermark {} below the end {} of what lay on the disk",
        first.high_watermark,
        before.end()
    );
    ensure!(
        fetched.last_stable_offset >= model.last_stable_offset(),
        "LSO {} below {}",
        fetched.last_stable_offset,
        model.last_stable_offset()
    );
    // A writable topic has no transactions of its own here, so nothing but its end holds the LSO.
    ensure!(
        topic == LIVE || fetched.last_stable_offset == fetched.high_watermark,
        "LSO {} and high watermark {}: nothing is open",
        fetched.last_stable_offset,
        fetched.high_watermark
    );
    let served: BTreeSet<(i64, i64)> = fetched.aborted.iter().copied().collect();
    let wanted: BTreeSet<(i64, i64)> = model
        .aborted
        .iter()
        .filter(|one| !model.barriers.contains(&one.last_offset))
        .map(|one| (one.producer_id, one.first_offset))
        .collect();
    ensure!(
        wanted.is_subset(&served),
        "aborted transactions are gone: {:?}",
        wanted.difference(&served).collect::<Vec<_>>()
    );
    let known: BTreeSet<(i64, i64)> =
        now.aborted.iter().map(|one| (one.producer_id, one.first_offset)).collect();
    ensure!(served.is_subset(&known), "aborted transactions that the bytes do not hold: {served:?}");
    ensure!(after.bytes.starts_with(&fetched.records), "what Fetch serves is not what lies on the disk");
    for (entry, next) in model.epochs.iter().zip(model.epochs.iter().skip(1)) {
        let answer = raw.end_of_epoch(topic, partition, entry.0)?;
        ensure!(
            answer == (entry.0, next.1),
            "epoch {} ends at {}, the node answers {answer:?}; the bytes have {:?}",
            entry.0,
            next.1,
            model.epochs
        );
    }
    // A node that was killed may not have written its checkpoint yet.
    let before_epochs = logs::read_epochs(&copied.join(&folder)).unwrap_or_default();
    let after_epochs = logs::read_epochs(&node.partition(topic, partition))?;
    let kept: Vec<_> = before_epochs.iter().filter(|(_, start)| *start < before.end()).collect();
    ensure!(
        kept.iter().all(|entry| after_epochs.contains(entry)),
        "epochs before {before_epochs:?}, after {after_epochs:?}"
    );
    Ok(())
}

/// Every record that any writer was told is durable lay on the disk when the node was dead.
fn ledger_is_there(copied: &Path, acknowledged: &[(i32, i64, String)], mine: &Ledger) -> Result<()> {
    for partition in 0..PARTITIONS {
        let found = records_of(&copied.join(format!("{TOPIC}-{partition}")))?;
        for record in acknowledged.iter().filter(|record| record.0 == partition) {
            ensure!(found.contains(&(record.1, record.2.clone())), "{record:?} was acknowledged and is gone");
        }
        if partition == 0 {
            for (base, batch) in mine.acked.iter().zip(&mine.sent) {
                for (offset, (key, _)) in (*base..).zip(&batch.records) {
                    ensure!(
                        found.contains(&(offset, key.clone())),
                        "{key} at {offset} was acknowledged and is gone"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Offsets and keys of the writable topic's own, uncompressed records.
fn records_of(folder: &Path) -> Result<BTreeSet<(i64, String)>> {
    let log = Log::read(folder)?;
    let mut found = BTreeSet::new();
    for batch in log.batches.iter().filter(|batch| batch.control.is_none() && batch.codec() == 0) {
        found.extend(logs::keys(&log.bytes, batch)?);
    }
    Ok(found)
}

/// The node remembers the producer: its last acknowledged batch is a duplicate, the unanswered one lands once.
fn retries_are_duplicates(raw: &mut Raw, mine: &mut Ledger) -> Result<()> {
    let (last, offset) = match (mine.acked.len().checked_sub(1), mine.acked.last()) {
        (Some(index), Some(offset)) => (mine.sent.get(index).context("sent what was acknowledged")?, *offset),
        _ => return Ok(()),
    };
    let answer = raw.produce(TOPIC, 0, last)?;
    ensure!(
        answer == (0, offset),
        "the batch at {offset}, sent again after the restart, was answered {answer:?}"
    );
    let next = mine.next();
    let (error, landed) = raw.produce(TOPIC, 0, &next)?;
    ensure!(error == 0 && landed > offset, "the next batch was answered error {error}, offset {landed}");
    mine.acked.push(landed);
    Ok(())
}

/// Starts a node on the copy and ends it cleanly: its snapshots and transaction indexes must be the model's.
fn snapshot_of_copy(world: &World, copy: &Path, round: u32) -> Result<()> {
    let data = copy.join("data");
    let models: Vec<(PathBuf, Model)> = (0..PARTITIONS)
        .map(|partition| {
            let folder = data.join(format!("{TOPIC}-{partition}"));
            let log = Log::read(&folder)?;
            Ok((folder, Model::of(&log.batches)))
        })
        .collect::<Result<_>>()?;
    Node::start_on(world, &format!("copy-{round}"), &data)?.stop()?;
    for (folder, model) in models {
        agrees_with_files(&folder, &model)?;
    }
    Ok(())
}

/// Copies a node's two folders: the log directory and what lies beside it.
fn copy_node(data: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let beside = PathBuf::from(format!("{}.weir", data.display()));
    copy_tree(data, &to.join("data"))?;
    copy_tree(&beside, &to.join("data.weir"))
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The `acked` lines of a writer.
fn acked(printed: &str) -> Result<Vec<(i32, i64, String)>> {
    let mut records = Vec::new();
    let whole = printed.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["acked", partition, offset, key] = words.as_slice() {
            records.push((partition.parse()?, offset.parse()?, (*key).to_owned()));
        }
    }
    Ok(records)
}

fn live_is_mirrored(world: &World, source: &Source, node: &Node, printed: &str) -> Result<()> {
    let mut last = Err(anyhow!("not compared"));
    let caught_up = wait_until("the live topic's bytes", Duration::from_secs(60), || {
        std::thread::sleep(Duration::from_millis(100));
        last = (0..PARTITIONS).try_for_each(|partition| {
            same_bytes(source.kafka.partition(LIVE, partition), node.partition(LIVE, partition))
        });
        Ok(last.is_ok())
    });
    last?;
    caught_up?;
    let committed: BTreeSet<(i32, i64, String)> = printed
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["committed", partition, offset, key] => {
                    Some((partition.parse().ok()?, offset.parse().ok()?, (*key).to_owned()))
                }
                _ => None,
            }
        })
        .collect();
    ensure!(!committed.is_empty(), "the source's writer committed nothing");
    let ended = read(world, "consume.py", node, "read_committed", LIVE)?;
    compare_read(&ended, &committed, node, LIVE)
}

fn all_in_ledger_once(node: &Node, printed: &str) -> Result<()> {
    let acknowledged = acked(printed)?;
    ensure!(acknowledged.len() > 100, "only {} records were acknowledged", acknowledged.len());
    for partition in 0..PARTITIONS {
        let found = records_of(&node.partition(TOPIC, partition))?;
        let keys: BTreeSet<&String> =
            found.iter().map(|(_, key)| key).filter(|key| key.starts_with("ledger-")).collect();
        let count = found.iter().filter(|(_, key)| key.starts_with("ledger-")).count();
        ensure!(keys.len() == count, "partition {partition} has a record of the idempotent writer twice");
        for record in acknowledged.iter().filter(|record| record.0 == partition) {
            ensure!(found.contains(&(record.1, record.2.clone())), "{record:?} was acknowledged and is gone");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_still_being_printed_is_no_acknowledgement() {
        let records = acked("acked 0 5 a-1\nlost 1 X a-2\nacked 1 1").expect("they parse");
        assert_eq!(records, [(0, 5, "a-1".to_owned())]);
    }

    #[test]
    fn an_unanswered_batch_is_sent_again_with_its_sequence() {
        let mut ledger = Ledger { producer_id: 9, ..Ledger::default() };
        let first = ledger.next();
        assert_eq!(ledger.next().records, first.records);
        ledger.acked.push(0);
        assert_eq!(ledger.next().base_sequence, 3);
    }
}
