//! Logs with barriers, and Kafka's own, served by weir to clients that begin at every offset and read in small portions.
//!
//! One node finds the logs in its files and recovers them; a second one mirrors them from it; a third one does as well, is
//! killed, and starts again. What clients must read is worked out from what was written, by `reading.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use serde_json::Value;
use weir_format::{LeaderEpoch, Offset, TimestampMs};
use weir_log::{AppendParams, LogConfig, OpenOptions, UnifiedLog};
use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};

use super::World;
use super::dump::agrees_with_files;
use super::logs::{Log, Model, files};
use super::mirror::same_bytes;
use super::node::Node;
use super::process::wait_until;
use super::raw::Raw;
use super::reading::{self, Client, Content, Job, Part, Record, SIZES, Start};
use super::script::{Script, empty};
use crate::command;

const MIRROR: &str = "found";
/// The topic whose files a Kafka gets in place of its own.
pub(super) const HAND: &str = "hand";
/// `[T pid 5][T pid 6][barrier][T pid 5][COMMIT pid 5]`.
pub(super) const WHOLE: &str = "whole";
/// The same, in a topic whose segments hold one batch each.
const OPENS: &str = "opens";
/// Kafka's own logs, by the names of their folders. Those of magic 0 and 1 weir refuses by name.
const GOLDEN: &[&str] = &[
    "barrier",
    "barrier-unclean",
    "codec-broker-recompress",
    "codec-gzip",
    "codec-lz4",
    "codec-snappy",
    "codec-zstd",
    "compacted",
    "headers-nulls",
    "logappendtime",
    "timestamps",
    "txn-open",
];

/// What was served, and where the files of it are after clean stops.
pub(super) struct Served {
    pub(super) contents: BTreeMap<String, Content>,
    /// Of the node that mirrored and was stopped.
    pub(super) clean: PathBuf,
    /// Of the node that mirrored, was killed, recovered, and was stopped.
    pub(super) killed: PathBuf,
}

/// One log: what it means, and how it comes into a partition's folder.
struct Given {
    topic: String,
    /// Settings of the topic.
    config: &'static str,
    content: Content,
    source: Source,
}

enum Source {
    Script(Script),
    /// This log, cut to the first offset of the bytes by weir's library, which then appends them.
    Cut(Script, i64, Vec<u8>),
    /// Kafka's files, in this folder.
    Golden(PathBuf),
}

impl Given {
    fn script(topic: &str, config: &'static str, script: Script) -> Self {
        Self {
            topic: topic.to_owned(),
            config,
            content: Content::of(script.parts()),
            source: Source::Script(script),
        }
    }
}

/// Runs the checks whose names start with `served.`.
///
/// # Errors
/// If a node cannot be started or does not mirror.
pub(super) fn check(world: &mut World) -> Result<Served> {
    let given = given()?;
    let mut found = Node::start_new(world, "found")?;
    // Kafka's own logs are older than a broker keeps its logs by default.
    let topics =
        given.iter().map(|one| format!("{}:retention.ms=-1,{}", one.topic, one.config)).collect::<Vec<_>>();
    let address = found.address();
    let arguments: Vec<&str> =
        std::iter::once(address.as_str()).chain(topics.iter().map(String::as_str)).collect();
    world.tools.run_python(&world.work, "topics.py", &arguments)?.must_succeed("creating topics")?;
    found.kill();
    place(world, &found, &given)?;
    found.restart()?;
    world.report.check("served.found.ends", ends(&found, &given));

    let mirrored = mirror(world, "mirrored", &found, &given)?;
    let mut killed = mirror(world, "killed", &found, &given)?;
    let result = given.iter().try_for_each(|one| {
        same_bytes(found.partition(&one.topic, 0), mirrored.partition(&one.topic, 0))
            .with_context(|| one.topic.clone())
    });
    world.report.check("served.mirrored.bytes_equal", result);
    let result = opened_by_the_barrier(&mirrored);
    world.report.check("served.mirrored.a_barrier_opens_a_segment", result);
    killed.kill();
    killed.restart()?;
    world.report.check("served.killed.ends", ends(&killed, &given));

    for (name, node, places) in [
        ("found", &found, Places::Some),
        ("mirrored", &mirrored, Places::All),
        ("killed", &killed, Places::Some),
    ] {
        let jobs = jobs(&given, places);
        let prefix = format!("served.{name}");
        for client in Client::ALL {
            reading::check(world, &prefix, client, &node.address(), &jobs);
        }
        let result = scripts(&given).try_for_each(|one| {
            [true, false].into_iter().try_for_each(|committed| {
                reading::kcat(world, &node.address(), &one.topic, &one.content, committed)
                    .with_context(|| one.topic.clone())
            })
        });
        world.report.check(&format!("{prefix}.kcat"), result);
    }
    let clean = mirrored.stop()?;
    let killed = killed.stop()?;
    for (name, data) in [("mirrored", &clean), ("killed", &killed)] {
        let result = scripts(&given).try_for_each(|one| {
            let folder = data.join(format!("{}-0", one.topic));
            agrees_with_files(&folder, &Model::of(&Log::read(&folder)?.batches))
        });
        world.report.check(&format!("served.{name}.state_is_what_the_bytes_say"), result);
    }
    found.stop()?;
    let contents = given.into_iter().map(|one| (one.topic, one.content)).collect();
    Ok(Served { contents, clean, killed })
}

fn scripts(given: &[Given]) -> impl Iterator<Item = &Given> {
    given.iter().filter(|one| !matches!(one.source, Source::Golden(_)))
}

/// Where readers begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Places {
    /// At every offset, with every size.
    All,
    /// At every offset, a batch at a time.
    Some,
}

fn jobs(given: &[Given], places: Places) -> Vec<Job> {
    let mut jobs = Vec::new();
    for one in given {
        for committed in [true, false] {
            let all: Vec<i64> = one.content.offsets(committed).collect();
            let mut add = |start, size| jobs.push(one.content.job(&one.topic, committed, size, start));
            if one.topic == HAND || matches!(one.source, Source::Golden(_)) {
                let every = if places == Places::All { 9 } else { 3 };
                for start in all.iter().copied().step_by(all.len().div_ceil(every).max(1)) {
                    add(Start::Offset(start), 1 << 20);
                }
                if one.topic == HAND && places == Places::All {
                    one.content.timestamps().into_iter().for_each(|at| add(Start::Timestamp(at), 1 << 20));
                }
                continue;
            }
            for start in all {
                for size in SIZES {
                    if places == Places::All || size == SIZES[0] || start == 0 {
                        add(Start::Offset(start), size);
                    }
                }
            }
        }
    }
    jobs
}

/// Every log.
fn given() -> Result<Vec<Given>> {
    let now = i64::try_from(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis())?;
    // Young enough that no producer is forgotten for its age, and nothing lies in the future.
    let begin = now - 900_000;
    let new = || Script::new(begin);
    let open = |script: Script| script.transaction(5, 2).transaction(6, 2);
    let whole = || open(new()).barrier().transaction(5, 2).commit(5);
    let mut all = vec![
        Given::script(WHOLE, "", whole()),
        Given::script("compacted", "", new().skip(4).barrier().transaction(5, 2).commit(5)),
        Given::script(OPENS, "segment.bytes=150", open(new()).roll().barrier().transaction(5, 2).commit(5)),
        Given::script("more", "", more(new())),
        Given::script(HAND, "segment.bytes=4096,index.interval.bytes=512", hand(new().values_of(60))),
    ];
    // The barrier is cut away, and in its place stands what ends a transaction from before it.
    for (topic, on) in [("cut", false), ("cut-on", true)] {
        let kept = open(new());
        let before = kept.clone().barrier().transaction(5, 2);
        let mut after = kept.clone().leader_epoch(1).commit(5);
        if on {
            after = after.abort(6).transaction(5, 2).commit(5);
        }
        let behind = after.bytes().split_off(kept.bytes().len());
        all.push(Given {
            topic: topic.to_owned(),
            config: "",
            content: Content::of(after.parts()),
            source: Source::Cut(before, kept.end(), behind),
        });
    }
    for name in GOLDEN {
        let folder = command::root().join("crates/format/testdata/logs").join(name);
        let parts = golden(&folder).with_context(|| (*name).to_owned())?;
        all.push(Given {
            topic: format!("golden.{name}"),
            config: "",
            content: Content::of(&parts),
            source: Source::Golden(folder),
        });
    }
    Ok(all)
}

/// Ids that come again behind several barriers, transactions that end at one, behind one, and not at all.
fn more(script: Script) -> Script {
    script
        .plain(1)
        .transaction(5, 2)
        .transaction(6, 1)
        .transaction(7, 1)
        .commit(7)
        .barrier()
        .transaction(5, 1)
        .commit(5)
        .transaction(6, 2)
        .transaction(5, 1)
        .abort(6)
        .transaction(6, 1)
        .barrier()
        .barrier()
        .transaction(6, 1)
        .transaction(5, 2)
        .abort(5)
        .commit(6)
        .skip(3)
        .transaction(5, 1)
        .barrier()
        .plain(2)
        .transaction(5, 1)
        .commit(5)
}

/// What a mirror that was stopped and mirrored on leaves: every transaction is ended before the barrier that follows it,
/// so that a Kafka that does not know the barrier sees the same. The last transaction is open.
fn hand(mut script: Script) -> Script {
    for (epoch, id) in [(0, 5), (1, 6), (2, 7)] {
        script = script.leader_epoch(epoch);
        for round in 0..4 {
            script = script
                .plain(7)
                .transaction(id, 9)
                .idempotent(2000 + id, 5)
                .transaction(id + 10, 3)
                .skip(round)
                .commit(id)
                .transaction(id + 10, 6)
                .abort(id + 10)
                .transaction(id, 4)
                .abort(id);
        }
        script = script.transaction(id, 8).transaction(id + 10, 2).abort(id).abort(id + 10).barrier();
    }
    script.idempotent(2005, 5).transaction(5, 3).commit(5).plain(4).transaction(6, 2).idempotent(2005, 2)
}

/// Kafka's word on its own batches.
fn golden(folder: &Path) -> Result<Vec<Part>> {
    let said: Value = serde_json::from_slice(&std::fs::read(folder.join("expected.json"))?)?;
    let mut parts = Vec::new();
    for segment in said["segments"].as_array().context("no segments")? {
        for batch in segment["batches"].as_array().context("no batches")? {
            let number = |name: &str| batch[name].as_i64().with_context(|| format!("{name} of {batch}"));
            let records = batch["records"].as_array().context("no records")?;
            let control = match (batch["control"].as_bool(), records.first()) {
                (Some(true), Some(record)) => {
                    Some(i16::try_from(record["controlTypeId"].as_i64().context("controlTypeId")?)?)
                }
                _ => None,
            };
            parts.push(Part {
                first_offset: number("baseOffset")?,
                last_offset: number("lastOffset")?,
                producer_id: number("producerId")?,
                transactional: batch["transactional"].as_bool().context("transactional")?,
                control,
                records: records.iter().map(golden_record).collect::<Result<_>>()?,
            });
        }
    }
    Ok(parts)
}

fn golden_record(record: &Value) -> Result<Record> {
    let bytes = |name: &str| -> Result<String> {
        let said = &record[name];
        if said.is_null() {
            return Ok(reading::say(None));
        }
        if let Some(text) = said["b64"].as_str() {
            return Ok(reading::say(Some(&unbase64(text)?)));
        }
        let size = said["len"].as_i64().with_context(|| format!("{name} of {record}"))?;
        Ok(format!("{size}:{}", said["sha256"].as_str().context("sha256")?))
    };
    Ok(Record {
        offset: record["offset"].as_i64().context("offset")?,
        timestamp: record["timestamp"].as_i64().context("timestamp")?,
        key: bytes("key")?,
        value: bytes("value")?,
    })
}

fn unbase64(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0_u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => bail!("{text} is not base64"),
        };
        word = (word << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((word >> bits) & 0xff)?);
        }
    }
    Ok(bytes)
}

/// Puts the logs where a killed node finds them, and takes its own files beside them away: they know other bytes.
fn place(world: &World, node: &Node, given: &[Given]) -> Result<()> {
    let beside = node.data().with_extension("weir").join("partitions");
    if beside.is_dir() {
        std::fs::remove_dir_all(&beside)?;
    }
    for one in given {
        let folder = node.partition(&one.topic, 0);
        match &one.source {
            Source::Script(script) => script.place(&folder)?,
            Source::Cut(script, at, behind) => {
                script.place(&folder)?;
                cut(&folder, &world.work.join(format!("side-{}", one.topic)), *at, behind)
                    .with_context(|| one.topic.clone())?;
            }
            Source::Golden(from) => {
                empty(&folder)?;
                for log in files(from, "log")? {
                    std::fs::copy(&log, folder.join(log.file_name().unwrap_or_default()))?;
                }
            }
        }
    }
    Ok(())
}

/// Cuts a log by weir's library, as a truncation of a running node does, and appends what stands there now.
fn cut(folder: &Path, side: &Path, at: i64, behind: &[u8]) -> Result<()> {
    let now = TimestampMs::new(0);
    let at = Offset::new(at).context("an offset")?;
    let mut io = PwriteIo::new(PwriteConfig::default());
    let options = OpenOptions {
        side_dir: side.to_path_buf(),
        clean_shutdown: false,
        recovery_point: Offset::ZERO,
        log_start_offset: Offset::ZERO,
        now,
    };
    let (mut log, _) = UnifiedLog::open(&mut io, folder, LogConfig::default(), options)?;
    ensure!(log.log_end_offset() > at, "there is nothing to cut");
    log.truncate_to(&mut io, at)?;
    let epoch = LeaderEpoch::new(1).context("an epoch")?;
    log.append(&mut io, BytesMut::from(behind), &AppendParams::replication(epoch, now))?;
    log.sync(&mut io)?;
    log.close(&mut io)?;
    Ok(())
}

/// Starts a node that mirrors all topics of another.
fn mirror(world: &World, name: &str, source: &Node, given: &[Given]) -> Result<Node> {
    let node = Node::start_new(world, name)?;
    let config = world.work.join(format!("{name}.properties"));
    std::fs::write(&config, format!("bootstrap.servers={}\n", source.address()))?;
    let config = config.display().to_string();
    node.mirror("create", &["--mirror", MIRROR, "--mirror-config", &config])?
        .must_succeed("weir mirror create")?;
    let topics = given.iter().map(|one| one.topic.as_str()).collect::<Vec<_>>().join(",");
    node.mirror("start", &["--mirror", MIRROR, "--topics", &topics])?.must_succeed("weir mirror start")?;
    let mut last = String::new();
    wait_until("lag 0", Duration::from_secs(30), || {
        let partitions = node.describe()?;
        last = format!("{partitions:?}");
        if let Some(failed) = partitions.iter().find(|one| one.state == "FAILED") {
            bail!("{} FAILED: {}", failed.topic, failed.error);
        }
        std::thread::sleep(Duration::from_millis(50));
        Ok(partitions.len() == given.len()
            && partitions.iter().all(|one| one.state == "MIRRORING" && one.lag == Some(0)))
    })
    .with_context(|| last.clone())?;
    Ok(node)
}

/// High watermark and last stable offset, as the wire says them.
fn ends(node: &Node, given: &[Given]) -> Result<()> {
    let mut raw = Raw::connect(&node.address())?;
    for one in given {
        let (end, stable) = (raw.end_offset(&one.topic, 0, false)?, raw.end_offset(&one.topic, 0, true)?);
        ensure!(
            (end, stable) == (one.content.end, one.content.stable),
            "{} ends at {end} and {stable}, it should be {} and {}",
            one.topic,
            one.content.end,
            one.content.stable
        );
    }
    Ok(())
}

/// The check of responses that begin with a barrier is worth more if a file does as well.
fn opened_by_the_barrier(node: &Node) -> Result<()> {
    let folder = node.partition(OPENS, 0);
    let log = Log::read(&folder)?;
    let barrier = Model::of(&log.batches).barriers.first().copied().context("no barrier")?;
    let segment = folder.join(format!("{barrier:020}.log"));
    ensure!(segment.is_file(), "{} is not there", segment.display());
    Ok(())
}
