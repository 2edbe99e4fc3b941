//! What clients must read of a partition, from wherever they begin, and the clients that do: Java, librdkafka, franz-go.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::World;
use super::logs::{ABORT, BARRIER, COMMIT};
use super::process::{self, Ended, tail};

/// How long one read from one place may take, in seconds.
const SECONDS: &str = "5";
/// Limits of a response in bytes: a batch each, two or three small batches each, everything at once.
pub(super) const SIZES: [u32; 4] = [1, 200, 300, 1 << 20];

/// A record as clients print it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    pub(super) key: String,
    pub(super) value: String,
}

/// A batch as it was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first_offset: i64,
    pub(super) last_offset: i64,
    /// −1: none.
    pub(super) producer_id: i64,
    pub(super) transactional: bool,
    /// The type of a control record.
    pub(super) control: Option<i16>,
    pub(super) records: Vec<Record>,
}

/// What a log's batches mean to its readers, worked out slowly and obviously.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    records: Vec<Shown>,
    pub(super) end: i64,
    /// Where read_committed ends.
    pub(super) stable: i64,
}

#[derive(Debug, Clone)]
struct Shown {
    record: Record,
    control: bool,
    /// Of a transaction that was not committed.
    hidden: bool,
}

impl Content {
    /// Applies the batches in log order; a barrier aborts what is open.
    pub(super) fn of(parts: &[Part]) -> Self {
        let mut content = Self::default();
        let mut open: BTreeMap<i64, (i64, Vec<usize>)> = BTreeMap::new();
        for part in parts {
            let first = content.records.len();
            content.records.extend(part.records.iter().map(|record| Shown {
                record: record.clone(),
                control: part.control.is_some(),
                hidden: false,
            }));
            let here = first..content.records.len();
            let ended: Vec<i64> = match part.control {
                Some(BARRIER) => open.keys().copied().collect(),
                Some(ABORT | COMMIT) => vec![part.producer_id],
                Some(_) => Vec::new(),
                None => {
                    if part.transactional {
                        let of_id = open.entry(part.producer_id).or_insert((part.first_offset, Vec::new()));
                        of_id.1.extend(here);
                    }
                    Vec::new()
                }
            };
            for id in ended {
                let (_, records) = open.remove(&id).unwrap_or_default();
                if part.control != Some(COMMIT) {
                    for index in records {
                        if let Some(shown) = content.records.get_mut(index) {
                            shown.hidden = true;
                        }
                    }
                }
            }
            content.end = part.last_offset + 1;
        }
        content.stable = open.values().map(|(first, _)| *first).min().unwrap_or(content.end);
        content
    }

    /// Every offset at which such a reader may begin: in gaps, at control batches, at the end.
    pub(super) fn offsets(&self, committed: bool) -> impl Iterator<Item = i64> + use<> {
        0..=self.end_for(committed)
    }

    fn end_for(&self, committed: bool) -> i64 {
        if committed { self.stable } else { self.end }
    }

    /// Timestamps of the records, of nobody, and of those before and behind all.
    pub(super) fn timestamps(&self) -> Vec<i64> {
        let all: Vec<i64> = self.records.iter().map(|shown| shown.record.timestamp).collect();
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return Vec::new() };
        let mut asked = vec![0, *first, first + 500, *last, last + 1];
        asked.extend(all.iter().step_by(all.len().div_ceil(8).max(1)));
        asked
    }

    /// What is to be read of `topic` from `start`.
    pub(super) fn job(&self, topic: &str, committed: bool, max_bytes: u32, start: Start) -> Job {
        let end = self.end_for(committed);
        let below = || self.records.iter().filter(|shown| shown.record.offset < end);
        let (from, found) = match start {
            Start::Offset(offset) => (offset, None),
            // A control record has a time as well, and is found by it.
            Start::Timestamp(timestamp) => {
                let found = below().find(|shown| shown.record.timestamp >= timestamp);
                let found = found.map_or(-1, |shown| shown.record.offset);
                (if found < 0 { end } else { found }, Some(found))
            }
        };
        let mut seen_end = from;
        let mut wanted = Vec::new();
        for shown in below().filter(|shown| shown.record.offset >= from) {
            if shown.control {
                seen_end = shown.record.offset + 1;
            } else if !(committed && shown.hidden) {
                seen_end = shown.record.offset + 1;
                wanted.push((shown.record.offset, shown.record.key.clone(), shown.record.value.clone()));
            }
        }
        Job { topic: topic.to_owned(), committed, max_bytes, start, from, end, seen_end, found, wanted }
    }
}

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Offset(i64),
    Timestamp(i64),
}

/// One read of one partition 0, and what must come of it.
#[derive(Debug, Clone)]
pub(super) struct Job {
    topic: String,
    committed: bool,
    max_bytes: u32,
    start: Start,
    from: i64,
    end: i64,
    /// Behind the last record that a client may be shown, control records among them.
    seen_end: i64,
    found: Option<i64>,
    /// Offset, key and value.
    pub(super) wanted: Vec<(i64, String, String)>,
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let isolation = if self.committed { "committed" } else { "uncommitted" };
        let Self { topic, start, max_bytes, .. } = self;
        write!(f, "{topic} read {isolation} from {start:?}, {max_bytes} bytes at a time")
    }
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    Java,
    Librdkafka,
    FranzGo,
}

impl Client {
    pub(super) const ALL: [Self; 3] = [Self::Java, Self::Librdkafka, Self::FranzGo];

    fn name(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Librdkafka => "librdkafka",
            Self::FranzGo => "franz_go",
        }
    }

    /// franz-go does not say that nothing is so late: it waits at the end.
    fn can(self, job: &Job) -> bool {
        self != Self::FranzGo || job.found != Some(-1)
    }
}

/// Lets a client read from all places, and reports a check for each group of topics: what stands before the first dot
/// of their names.
pub(super) fn check(world: &mut World, prefix: &str, client: Client, address: &str, jobs: &[Job]) {
    let start = Instant::now();
    let answers = read(world, client, address, jobs);
    println!("# {prefix}: {} reads by {}, {:.1} s", jobs.len(), client.name(), start.elapsed().as_secs_f64());
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => return world.report.check(&format!("{prefix}.{}", client.name()), Err(error)),
    };
    let mut results: BTreeMap<String, Result<()>> = BTreeMap::new();
    for (number, job) in jobs.iter().enumerate().filter(|(_, job)| client.can(job)) {
        let group = job.topic.split('.').next().unwrap_or_default();
        let name = format!("{prefix}.{group}_{}", client.name());
        let result = results.entry(name).or_insert(Ok(()));
        if result.is_err() {
            continue;
        }
        *result = as_wanted(job, client, answers.get(&number)).with_context(|| job.to_string());
    }
    for (name, result) in results {
        world.report.check(&name, result);
    }
}

/// What a client printed for one job.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) records: Vec<(i64, String, String)>,
    pub(super) position: Option<i64>,
    found: Option<i64>,
}

/// Runs a client over all jobs; the answers are by the jobs' places.
///
/// # Errors
/// If the client cannot be run, fails, or prints something else.
pub(super) fn read(
    world: &World,
    client: Client,
    address: &str,
    jobs: &[Job],
) -> Result<BTreeMap<usize, Answer>> {
    let mut input = String::new();
    for (number, job) in jobs.iter().enumerate().filter(|(_, job)| client.can(job)) {
        let isolation = if job.committed { "read_committed" } else { "read_uncommitted" };
        let start = match job.start {
            Start::Offset(offset) => offset.to_string(),
            Start::Timestamp(timestamp) => format!("@{timestamp}"),
        };
        let end = match client {
            // It says what it was shown, and is asked for no more.
            Client::FranzGo => job.seen_end,
            Client::Java | Client::Librdkafka => job.end,
        };
        writeln!(input, "{number} {} {isolation} {} {start} {end}", job.topic, job.max_bytes)?;
    }
    let arguments = [address, SECONDS];
    let mut command = match client {
        Client::Java => world.tools.java("ReadFrom", 256),
        Client::Librdkafka => world.tools.python("read_from.py"),
        Client::FranzGo => Command::new(world.tools.read_from()),
    };
    let ended = process::run(command.args(arguments), &world.work, Duration::from_secs(120), &input)?
        .must_succeed(client.name())?;
    answers(&ended)
}

fn answers(ended: &Ended) -> Result<BTreeMap<usize, Answer>> {
    let mut answers: BTreeMap<usize, Answer> = BTreeMap::new();
    for line in ended.stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let name = words.get(1).and_then(|name| name.parse().ok());
        let answer = answers.entry(name.with_context(|| format!("{line:?} was printed"))?).or_default();
        match words.as_slice() {
            ["record", _, offset, key, value] => {
                answer.records.push((offset.parse()?, (*key).to_owned(), (*value).to_owned()));
            }
            ["found", _, offset] => answer.found = Some(offset.parse()?),
            ["end", _, position] => answer.position = Some(position.parse()?),
            _ => anyhow::bail!("{line:?} was printed"),
        }
    }
    Ok(answers)
}

fn as_wanted(job: &Job, client: Client, answer: Option<&Answer>) -> Result<()> {
    let answer = answer.context("it was given up")?;
    let seen: Vec<i64> = answer.records.iter().map(|(offset, _, _)| *offset).collect();
    let wanted: Vec<i64> = job.wanted.iter().map(|(offset, _, _)| *offset).collect();
    ensure!(seen == wanted, "read offsets {seen:?}, wanted {wanted:?}");
    let differs = answer.records.iter().zip(&job.wanted).find(|(seen, wanted)| seen != wanted);
    ensure!(differs.is_none(), "read another key or value: {differs:?}");
    let end = if client == Client::FranzGo { job.seen_end } else { job.end }.max(job.from);
    ensure!(answer.position == Some(end), "it came to {:?}, the end is {end}", answer.position);
    if client != Client::FranzGo {
        ensure!(answer.found == job.found, "found {:?} by its time, {:?} is there", answer.found, job.found);
    }
    Ok(())
}

/// kcat, whose librdkafka is another one, reads a topic from its beginning.
///
/// # Errors
/// If it reads other keys or comes to another end.
pub(super) fn kcat(
    world: &World,
    address: &str,
    topic: &str,
    content: &Content,
    committed: bool,
) -> Result<()> {
    let isolation = if committed { "read_committed" } else { "read_uncommitted" };
    let mut command = Command::new("kcat");
    command.args(["-C", "-b", address, "-t", topic, "-p", "0", "-o", "beginning", "-e"]);
    command.args(["-X", &format!("isolation.level={isolation}"), "-X", "fetch.wait.max.ms=20"]);
    command.args(["-f", "%o %k\\n"]);
    let ended = process::run(&mut command, &world.work, Duration::from_secs(30), "")?.must_succeed("kcat")?;
    let job = content.job(topic, committed, 0, Start::Offset(0));
    let seen: Vec<(i64, String)> = ended
        .stdout
        .lines()
        .map(|line| {
            let (offset, key) = line.split_once(' ').with_context(|| format!("kcat printed {line:?}"))?;
            Ok((offset.parse()?, say(Some(key.as_bytes()))))
        })
        .collect::<Result<_>>()?;
    let wanted: Vec<(i64, String)> = job.wanted.into_iter().map(|(offset, key, _)| (offset, key)).collect();
    ensure!(seen == wanted, "{isolation}: kcat read {seen:?}, wanted {wanted:?}");
    let end = format!("at offset {}", job.end);
    ensure!(ended.stderr.contains(&end), "{isolation}: not {end}: {}", tail(&ended.stderr, 2));
    Ok(())
}

/// Bytes as the clients print them; what is longer than 64 bytes is not to be said here.
pub(super) fn say(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "-".to_owned(),
        Some([]) => "=".to_owned(),
        Some(bytes) => bytes.iter().fold(String::new(), |mut text, byte| {
            let _never_fails = write!(text, "{byte:02x}");
            text
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interop::script::Script;

    fn offsets(job: &Job) -> Vec<i64> {
        job.wanted.iter().map(|(offset, _, _)| *offset).collect()
    }

    #[test]
    fn committed_readers_see_what_was_committed() {
        let script = Script::new(0).transaction(5, 2).transaction(6, 2).barrier().transaction(5, 2).commit(5);
        let content = Content::of(script.parts());
        let read = |committed, start| content.job("t", committed, 1, Start::Offset(start));
        assert_eq!(offsets(&read(true, 0)), [5, 6]);
        assert_eq!(offsets(&read(false, 0)), [0, 1, 2, 3, 5, 6]);
        assert_eq!(offsets(&read(true, 6)), [6]);
        assert_eq!((read(true, 0).end, read(true, 0).seen_end), (8, 8));
    }

    #[test]
    fn an_open_transaction_ends_the_committed() {
        let script = Script::new(0).transaction(5, 1).transaction(6, 1).commit(5).plain(1);
        let content = Content::of(script.parts());
        assert_eq!((content.stable, content.end), (1, 4));
        let job = content.job("t", true, 1, Start::Offset(0));
        assert_eq!((offsets(&job), job.end, job.seen_end), (vec![0], 1, 1));
        assert_eq!(content.offsets(true).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_time_finds_the_first_record_that_is_not_older() {
        let script = Script::new(1000).plain(2).barrier().plain(2);
        let content = Content::of(script.parts());
        for (timestamp, found) in [(0, 0), (1001, 1), (1002, 2), (2001, 3), (3001, 4), (3002, -1)] {
            let job = content.job("t", true, 1, Start::Timestamp(timestamp));
            assert_eq!(job.found, Some(found), "{timestamp}");
        }
    }

    #[test]
    fn what_a_client_says_is_compared_whole() {
        let content = Content::of(Script::new(0).plain(1).plain(1).parts());
        let job = content.job("t", true, 1, Start::Offset(0));
        let answer = |records: &[_], position| Answer {
            records: records.to_vec(),
            position: Some(position),
            found: None,
        };
        let check = |answer: &Answer| as_wanted(&job, Client::Java, Some(answer));
        check(&answer(&job.wanted, 2)).expect("as wanted");
        assert!(check(&answer(&job.wanted, 1)).is_err(), "the end was not reached");
        assert!(check(&answer(&job.wanted[..1], 2)).is_err(), "one is missing");
        let mut other = job.wanted.clone();
        other[1].2 = "00".to_owned();
        assert!(check(&answer(&other, 2)).is_err(), "another value");
        assert!(as_wanted(&job, Client::Java, None).is_err(), "no answer");
    }
}
