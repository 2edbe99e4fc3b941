//! Mirror a seeded topic, compare every byte, stop, read and write again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::handover;
use super::kafka::Kafka;
use super::logs::{self, Log, Model};
use super::node::Node;
use super::process::{Ended, wait_until};
use super::raw::{self, Raw};
use super::{LIVE, MIRROR, PARTITIONS, TOPIC, World};

const RECORDS: &str = "40";
const VALUE_BYTES: &str = "2000";

/// The source, filled.
pub(super) struct Source {
    pub(super) kafka: Kafka,
    seeded: Seeded,
}

/// What the programs say they wrote: partition, offset and key.
#[derive(Debug, Default, Clone)]
pub(super) struct Seeded {
    committed: BTreeSet<(i32, i64, String)>,
    others: BTreeSet<(i32, i64, String)>,
    open: BTreeSet<(i32, i64, String)>,
}

impl Seeded {
    fn add(&mut self, printed: &str) -> Result<()> {
        for line in printed.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [kind, partition, offset, key] = words.as_slice() else { continue };
            let record = (partition.parse()?, offset.parse()?, (*key).to_owned());
            if *kind == "committed" {
                self.committed.insert(record);
                continue;
            }
            if *kind == "open" {
                self.open.insert(record.clone());
            }
            self.others.insert(record);
        }
        Ok(())
    }
}

/// Starts Kafka, creates two topics and fills the first one from Java and from librdkafka.
pub(super) fn start_source(world: &mut World) -> Result<Source> {
    let folder = world.work.join("a");
    let kafka = Kafka::start(&world.tools, &folder)?;
    let address = kafka.address();
    for topic in [TOPIC, LIVE] {
        world
            .tools
            .run_java(
                &world.work,
                "org.apache.kafka.tools.TopicCommand",
                &[
                    "--bootstrap-server",
                    &address,
                    "--create",
                    "--topic",
                    topic,
                    "--partitions",
                    &PARTITIONS.to_string(),
                    "--replication-factor",
                    "1",
                    "--config",
                    "segment.bytes=1048576",
                    "--config",
                    "index.interval.bytes=1024",
                ],
                "",
            )?
            .must_succeed("creating a topic on the source")?;
    }
    handover::create_topics(world, &kafka)?;
    let partitions = PARTITIONS.to_string();
    let arguments = [address.as_str(), TOPIC, &partitions, RECORDS, VALUE_BYTES];
    let mut seeded = Seeded::default();
    let java =
        world.tools.run_java(&world.work, "Seed", &arguments, "")?.must_succeed("the Java producer")?;
    seeded.add(&java.stdout)?;
    let python = world.tools.run_python(&world.work, "seed.py", &arguments)?.must_succeed("seed.py")?;
    seeded.add(&python.stdout)?;
    let result = check_source(&kafka, &seeded);
    world.report.check("source.has_every_codec_and_two_open_transactions", result);
    let result = Log::read(&kafka.partition(TOPIC, 0)).and_then(|log| collides_at_the_source(&kafka, &log));
    world.report.check("control.the_ids_do_collide_at_the_source", result);
    Ok(Source { kafka, seeded })
}

/// The test is worth nothing unless the source holds what it should.
fn check_source(kafka: &Kafka, seeded: &Seeded) -> Result<()> {
    for partition in 0..PARTITIONS {
        let log = Log::read(&kafka.partition(TOPIC, partition))?;
        let codecs: BTreeSet<i16> =
            log.batches.iter().filter(|batch| batch.control.is_none()).map(logs::Batch::codec).collect();
        ensure!(codecs == BTreeSet::from([0, 1, 2, 3, 4]), "partition {partition} has codecs {codecs:?}");
        ensure!(log.segments >= 2, "partition {partition} has one segment only");
        let model = Model::of(&log.batches);
        ensure!(model.open.len() == 2, "partition {partition} has {} open transactions", model.open.len());
        ensure!(!model.aborted.is_empty(), "partition {partition} has no aborted transaction");
        let first = seeded.open.iter().filter(|open| open.0 == partition).map(|open| open.1).min();
        ensure!(
            first == Some(model.last_stable_offset()),
            "the LSO is not the first open transaction's offset"
        );
    }
    Ok(())
}

/// Creates and starts the mirror, waits for lag 0, compares bytes, and tries to produce.
pub(super) fn mirror_to_lag_0(world: &mut World, source: &Source, node: &Node) -> Result<Seeded> {
    let config = world.work.join("mirror.properties");
    std::fs::write(&config, format!("bootstrap.servers={}\n", source.kafka.address()))?;
    let config = config.display().to_string();
    node.mirror("create", &["--mirror", MIRROR, "--mirror-config", &config])?
        .must_succeed("weir mirror create")?;
    node.mirror("start", &["--mirror", MIRROR, "--topics", &format!("{TOPIC},{LIVE}")])?
        .must_succeed("weir mirror start")?;
    let caught_up = wait_for_lag_0(node);
    let mirrored = caught_up.is_ok();
    world.report.check("mirror.reaches_lag_0", caught_up);
    ensure!(mirrored, "without a caught-up mirror nothing can be compared");

    let (source_log, node_log) = (source.kafka.partition(TOPIC, 0), node.partition(TOPIC, 0));
    for partition in 0..PARTITIONS {
        let result = same_bytes(source.kafka.partition(TOPIC, partition), node.partition(TOPIC, partition));
        world.report.check(&format!("mirror.bytes_equal_{partition}"), result);
    }
    let result = same_metadata(source_log, node_log);
    world.report.check("mirror.topic_id_is_the_sources", result);

    for (name, program) in [("java", "Send"), ("librdkafka", "send.py")] {
        let result = send(world, program, &node.address(), "early").and_then(|answer| {
            let wanted = if name == "java" { "PolicyViolationException" } else { "POLICY_VIOLATION" };
            let refused =
                answer.lines().filter(|line| line.starts_with("refused ") && line.contains(wanted)).count();
            ensure!(i32::try_from(refused)? == PARTITIONS, "not refused with {wanted}: {answer}");
            Ok(())
        });
        world.report.check(&format!("mirror.produce_refused_{name}"), result);
    }
    let result = unchanged_by_refusals(source, node);
    world.report.check("mirror.refused_writes_left_no_trace", result);
    Ok(source.seeded.clone())
}

fn unchanged_by_refusals(source: &Source, node: &Node) -> Result<()> {
    for partition in 0..PARTITIONS {
        same_bytes(source.kafka.partition(TOPIC, partition), node.partition(TOPIC, partition))?;
    }
    Ok(())
}

fn wait_for_lag_0(node: &Node) -> Result<()> {
    let mut last = String::new();
    wait_until("lag 0", Duration::from_secs(60), || {
        let partitions = node.describe()?;
        last = format!("{partitions:?}");
        if let Some(failed) = partitions.iter().find(|one| one.state == "FAILED") {
            bail!("{} FAILED: {}", failed.topic, failed.error);
        }
        std::thread::sleep(Duration::from_millis(100));
        Ok(i32::try_from(partitions.len())? == 2 * PARTITIONS
            && partitions.iter().all(|one| one.state == "MIRRORING" && one.lag == Some(0)))
    })
    .with_context(|| last.clone())
}

/// Every batch of the source's files is in ours, at the same place of the log, and nothing else.
pub(super) fn same_bytes(source: PathBuf, ours: PathBuf) -> Result<()> {
    let (source, ours) = (Log::read(&source)?, Log::read(&ours)?);
    ensure!(!source.dirty_tail, "the source's log has a tail that is no batch");
    ensure!(!ours.dirty_tail, "weir's log has a tail that is no batch");
    for (theirs, mine) in source.batches.iter().zip(&ours.batches) {
        let bytes = |log: &Log, batch: &logs::Batch| {
            log.bytes.get(batch.position..batch.position + batch.size).map(<[u8]>::to_vec)
        };
        ensure!(
            bytes(&source, theirs) == bytes(&ours, mine),
            "the batch at offset {} differs: theirs {theirs:?}, ours {mine:?}",
            theirs.base_offset
        );
    }
    ensure!(
        source.bytes == ours.bytes,
        "the source has {} batches up to offset {}, weir {} up to {}",
        source.batches.len(),
        source.end(),
        ours.batches.len(),
        ours.end()
    );
    Ok(())
}

/// `partition.metadata` names the topic's id in both.
fn same_metadata(source: PathBuf, ours: PathBuf) -> Result<()> {
    let id = |folder: PathBuf| -> Result<String> {
        let path = folder.join("partition.metadata");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("topic_id: ")).context("no topic id")?;
        Ok(line.to_owned())
    };
    let (theirs, mine) = (id(source)?, id(ours)?);
    ensure!(theirs == mine, "the source's id is {theirs}, weir's {mine}");
    Ok(())
}

fn send(world: &World, program: &str, address: &str, prefix: &str) -> Result<String> {
    let partitions = PARTITIONS.to_string();
    let arguments = [address, TOPIC, &partitions, prefix];
    let ended = if program.ends_with(".py") {
        world.tools.run_python(&world.work, program, &arguments)?
    } else {
        world.tools.run_java(&world.work, program, &arguments, "")?
    };
    Ok(ended.must_succeed(program)?.stdout)
}

/// An idempotent batch of the source whose producer may meet a stranger with the same numbers.
fn collision(log: &Log) -> Result<raw::Batch> {
    let batch = log
        .batches
        .iter()
        .rev()
        .find(|batch| batch.control.is_none() && batch.producer_id >= 0 && !batch.is_transactional())
        .context("the source has no idempotent batch")?;
    let records =
        (0..batch.count).map(|i| (format!("colliding-{i}"), "another producer's".to_owned())).collect();
    Ok(raw::Batch {
        producer_id: batch.producer_id,
        producer_epoch: batch.producer_epoch,
        base_sequence: batch.base_sequence,
        records,
    })
}

/// Stops the mirror and checks where the log ends and who can read it.
pub(super) fn stop_and_check(world: &mut World, source: &Source, node: &Node, seeded: &Seeded) -> Result<()> {
    let logs: Vec<Log> = (0..PARTITIONS)
        .map(|partition| Log::read(&source.kafka.partition(TOPIC, partition)))
        .collect::<Result<_>>()?;
    node.mirror("stop", &["--mirror", MIRROR, "--topics", TOPIC, "--confirm", MIRROR])?
        .must_succeed("weir mirror stop")?;
    wait_until("STOPPED", Duration::from_secs(60), || {
        let partitions = node.describe()?;
        std::thread::sleep(Duration::from_millis(50));
        Ok(partitions.iter().filter(|one| one.topic == TOPIC).all(|one| one.state == "STOPPED"))
    })?;
    for (partition, log) in (0..).zip(&logs) {
        let result = ends_as_it_should(node, partition, log);
        world.report.check(&format!("stop.ends_with_aborts_and_barrier_{partition}"), result);
    }
    for (name, program) in [("java", "Consume"), ("librdkafka", "consume.py")] {
        let result = read(world, program, node, "read_committed", TOPIC)
            .and_then(|ended| compare_read(&ended, &seeded.committed, node, TOPIC));
        world.report.check(&format!("stop.read_committed_{name}"), result);
        let everything: BTreeSet<_> = seeded.committed.union(&seeded.others).cloned().collect();
        let result = read(world, program, node, "read_uncommitted", TOPIC)
            .and_then(|ended| compare_read(&ended, &everything, node, TOPIC));
        world.report.check(&format!("stop.read_uncommitted_{name}"), result);
    }
    Ok(())
}

/// A real Kafka takes the colliding batch for a duplicate: answered with the old offset, and not appended.
fn collides_at_the_source(kafka: &Kafka, log: &Log) -> Result<()> {
    let batch = collision(log)?;
    let mut raw = Raw::connect(&kafka.address())?;
    let (error, offset) = raw.produce(TOPIC, 0, &batch)?;
    ensure!(error == 0 && offset < log.end(), "error {error}, offset {offset}: no false duplicate");
    ensure!(raw.end_offset(TOPIC, 0, false)? == log.end(), "the source's log has grown");
    Ok(())
}

fn ends_as_it_should(node: &Node, partition: i32, source: &Log) -> Result<()> {
    let before = Model::of(&source.batches);
    let ours = Log::read(&node.partition(TOPIC, partition))?;
    let model = Model::of(&ours.batches);
    ensure!(ours.bytes.starts_with(&source.bytes), "the mirrored bytes have changed");
    let added = ours.batches.get(source.batches.len()..).unwrap_or_default();
    let kinds: Vec<Option<i16>> = added.iter().map(|batch| batch.control).collect();
    let mut wanted = vec![Some(logs::ABORT); before.open.len()];
    wanted.push(Some(logs::BARRIER));
    ensure!(
        kinds == wanted,
        "behind the source's end lie {kinds:?}, not one ABORT per open transaction and a barrier"
    );
    let ids: Vec<i64> = added.iter().take(before.open.len()).map(|batch| batch.producer_id).collect();
    let open: Vec<i64> = before.open.values().copied().collect();
    ensure!(ids == open, "ABORTs are for {ids:?}, open in order of their first offset were {open:?}");
    let newest = source.batches.last().map_or(-1, |batch| batch.leader_epoch);
    let epochs: BTreeSet<i32> = added.iter().map(|batch| batch.leader_epoch).collect();
    ensure!(
        epochs.len() == 1 && epochs.first().is_some_and(|epoch| *epoch >= newest + 1000),
        "the stop wrote under epochs {epochs:?}, the source's newest is {newest}"
    );
    ensure!(
        model.producers.is_empty() && model.open.is_empty(),
        "the model still knows producers: {model:?}"
    );
    let end = source.end() + i64::try_from(before.open.len())? + 1;
    let mut raw = Raw::connect(&node.address())?;
    let (log_end, stable) =
        (raw.end_offset(TOPIC, partition, false)?, raw.end_offset(TOPIC, partition, true)?);
    ensure!(
        (ours.end(), log_end, stable) == (end, end, end),
        "the log ends at {}, high watermark {log_end}, LSO {stable}; all should be {end}",
        ours.end()
    );
    Ok(())
}

pub(super) fn read(world: &World, program: &str, node: &Node, isolation: &str, topic: &str) -> Result<Ended> {
    let (address, partitions) = (node.address(), PARTITIONS.to_string());
    let arguments = [address.as_str(), topic, &partitions, isolation, "40"];
    let ended = if program.ends_with(".py") {
        world.tools.run_python(&world.work, program, &arguments)?
    } else {
        world.tools.run_java(&world.work, program, &arguments, "")?
    };
    ended.must_succeed(program)
}

/// Exactly these records were read, in order, and every partition's end was reached.
pub(super) fn compare_read(
    ended: &Ended,
    wanted: &BTreeSet<(i32, i64, String)>,
    node: &Node,
    topic: &str,
) -> Result<()> {
    let mut seen = BTreeSet::new();
    let mut ends = BTreeMap::new();
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    for line in ended.stdout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["record", partition, offset, key] => {
                let (partition, offset): (i32, i64) = (partition.parse()?, offset.parse()?);
                if let Some(before) = last.insert(partition, offset) {
                    ensure!(before < offset, "partition {partition} gave {offset} behind {before}");
                }
                ensure!(seen.insert((partition, offset, (*key).to_owned())), "offset {offset} came twice");
            }
            ["end", partition, position, _] => {
                ends.insert(partition.parse::<i32>()?, position.parse::<i64>()?);
            }
            _ => {}
        }
    }
    let missing: Vec<_> = wanted.difference(&seen).take(3).collect();
    let extra: Vec<_> = seen.difference(wanted).take(3).collect();
    ensure!(
        missing.is_empty() && extra.is_empty(),
        "read {} records, wanted {}; missing {missing:?}, not wanted {extra:?}",
        seen.len(),
        wanted.len()
    );
    let mut raw = Raw::connect(&node.address())?;
    for partition in 0..PARTITIONS {
        let end = raw.end_offset(topic, partition, false)?;
        ensure!(
            ends.get(&partition) == Some(&end),
            "partition {partition} was read up to {:?}, its log ends at {end}",
            ends.get(&partition)
        );
    }
    Ok(())
}

/// Ordinary producers, and one whose numbers are the source's, all land.
pub(super) fn writes_after(world: &mut World, source: &Source, node: &Node, seeded: &Seeded) -> Result<()> {
    let mut wanted = seeded.committed.clone();
    for (name, program) in [("java_idempotent", "Send"), ("librdkafka", "send.py")] {
        let result = send(world, program, &node.address(), name).and_then(|answer| {
            let mut landed = 0;
            for line in answer.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                if let ["acked", partition, offset, key] = words.as_slice() {
                    wanted.insert((partition.parse()?, offset.parse()?, (*key).to_owned()));
                    landed += 1;
                }
            }
            ensure!(landed == PARTITIONS, "{answer}");
            Ok(())
        });
        world.report.check(&format!("after.{name}_lands"), result);
    }
    for partition in 0..PARTITIONS {
        let log = Log::read(&source.kafka.partition(TOPIC, partition))?;
        let batch = collision(&log)?;
        let result = colliding_lands(node, partition, &batch, &mut wanted);
        world.report.check(&format!("after.colliding_producer_lands_{partition}"), result);
    }
    let result = read(world, "Consume", node, "read_committed", TOPIC)
        .and_then(|ended| compare_read(&ended, &wanted, node, TOPIC));
    world.report.check("after.everything_is_read", result);
    Ok(())
}

fn colliding_lands(
    node: &Node,
    partition: i32,
    batch: &raw::Batch,
    wanted: &mut BTreeSet<(i32, i64, String)>,
) -> Result<()> {
    let mut raw = Raw::connect(&node.address())?;
    let end = raw.end_offset(TOPIC, partition, false)?;
    // Kafka lets an id that it does not know start at any sequence.
    let (error, offset) = raw.produce(TOPIC, partition, batch)?;
    ensure!(error == 0 && offset == end, "error {error}, offset {offset}; the log ended at {end}");
    let grown = raw.end_offset(TOPIC, partition, false)?;
    ensure!(grown == end + i64::try_from(batch.records.len())?, "the log ends at {grown}");
    for (offset, (key, _)) in (end..).zip(&batch.records) {
        wanted.insert((partition, offset, key.clone()));
    }
    let again = raw.produce(TOPIC, partition, batch)?;
    ensure!(again == (0, end), "sent twice it was answered {again:?}, not as a duplicate of {end}");
    Ok(())
}
