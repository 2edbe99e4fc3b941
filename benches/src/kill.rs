//! Kill -9 on a real disk: a writer process reports what it wrote and what is durable, is killed, and a checker recovers
//! what lies there and compares every byte with what must be there.
//!
//! Question: is every acknowledged record there once, in order, and nothing that was not written?
//! Unit: records lost; the only good figure is 0.
//! Bound: a kill keeps what the page cache or the device has taken, so this proves that nothing is acknowledged before
//! its writes are complete, and that the files of a process that died at any instant are recovered. What a power failure
//! takes is the crash enumeration's part, on the simulated disk.
//! Run: `cargo xtask kill --rounds 50`.
//!
//! The writer appends batches of 200 bytes to 1.2 MiB into segments of 1 MiB, aborts transactions, truncates, deletes
//! from the front and rolls, all at random from a seed. Whoever knows seed, leader epoch and base offset can build every
//! batch again: that is how the checker knows each byte without asking the writer.

pub mod check;
pub mod ledger;
pub mod writer;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use weir_format::{BatchBuilder, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs};
use weir_log::{LogConfig, OpenOptions, UnifiedLog};
use weir_segment::SegmentConfig;

use crate::append::batches::{NOW, Random};
use crate::append::open_backend;
use ledger::{Kind, Ledger, Line, Written};

/// How long a writer may be silent before the round fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a partition's files are.
#[derive(Debug, Clone)]
pub struct Place {
    /// The partition's directory, as Kafka's tools want it named.
    pub dir: PathBuf,
    /// weir's own files of it.
    pub side_dir: PathBuf,
}

impl Place {
    /// In a folder.
    #[must_use]
    pub fn below(folder: &Path) -> Place {
        Place { dir: folder.join("data").join("kill-0"), side_dir: folder.join("data.weir").join("kill-0") }
    }
}

/// Segments small enough that a round starts several.
#[must_use]
pub fn config() -> LogConfig {
    LogConfig {
        segment: SegmentConfig {
            // The largest batch has room in one.
            segment_bytes: 3 << 19,
            index_interval_bytes: 4096,
            ..SegmentConfig::default()
        },
        max_message_bytes: 8 << 20,
        ..LogConfig::default()
    }
}

/// What an open is told after a kill.
#[must_use]
pub fn options(place: &Place, recovery_point: Offset, log_start_offset: Offset) -> OpenOptions {
    OpenOptions {
        side_dir: place.side_dir.clone(),
        clean_shutdown: false,
        recovery_point,
        log_start_offset,
        now: NOW,
    }
}

/// The batch that a writer with this seed appends under this epoch at this base offset.
///
/// # Errors
/// Never for what a writer made.
pub fn batch(seed: u64, written: &Written) -> Result<BytesMut> {
    let (base, epoch) = (written.base_offset, written.epoch);
    let stamp = |delta: i64| TimestampMs::new(NOW.get() + base.get() + delta);
    let producer = || ProducerId::new(written.producer_id).context("no producer id");
    let mixed = seed
        ^ u64::try_from(base.get())?.wrapping_mul(0xd6e8_feb8_6659_fd93)
        ^ u64::try_from(epoch.get())?.wrapping_mul(0xa076_1d64_78bd_642f);
    let mut random = Random::new(mixed);
    let mut builder = BatchBuilder::new().base_offset(base).leader_epoch(epoch);
    match written.kind {
        Kind::Abort => {
            let mut marker = BatchBuilder::end_transaction_marker(
                false,
                producer()?,
                ProducerEpoch::ZERO,
                Some(0),
                stamp(0),
            );
            weir_format::set_base_offset(&mut marker, base)?;
            weir_format::set_leader_epoch(&mut marker, epoch)?;
            return Ok(marker);
        }
        Kind::Transactional => {
            builder =
                builder.producer(producer()?, ProducerEpoch::ZERO, Some(Sequence::ZERO)).transactional();
        }
        Kind::Data => {}
    }
    let size = match random.below(100) {
        0..70 => 200 + random.below(2_000),
        70..95 => random.below(64 << 10),
        95..99 => random.below(300 << 10),
        _ => (1 << 20) + random.below(200 << 10),
    };
    let count = 1 + random.below(12);
    for number in 0..count {
        let value = random.bytes(usize::try_from(size / count)?);
        let key = format!("{}-{number}", epoch.get());
        builder = builder.record(stamp(i64::try_from(number)?), Some(key.as_bytes()), Some(&value));
    }
    Ok(builder.build()?)
}

/// What the rounds came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Rounds that ended well.
    pub rounds: u32,
    /// Batches that were acknowledged as durable.
    pub acknowledged: u64,
    /// Batches whose bytes were compared.
    pub compared: u64,
    /// Truncations that the writers began.
    pub truncations: u64,
    /// Of these, cut short by the kill.
    pub truncations_cut_short: u64,
    /// Deletions from the front that the writers began.
    pub deletions: u64,
    /// Segments found.
    pub segments: u64,
    /// Bytes that recovery cut from the end of a log: a torn tail.
    pub cut_bytes: u64,
    /// Rounds in which something was cut.
    pub torn: u32,
    /// Batches found beyond what was acknowledged.
    pub unacknowledged: u64,
    /// Rounds in which all index files were removed, or garbled, and rebuilt.
    pub reindexed: u32,
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Rounds {
    /// This program, which is also the writer.
    pub program: PathBuf,
    /// Where the partition lies.
    pub folder: PathBuf,
    /// `uring` or `pwrite`, for the writer.
    pub backend: String,
    /// The backends of the checker, by turns.
    pub checkers: Vec<String>,
    /// How many rounds.
    pub count: u32,
    /// For everything random.
    pub seed: u64,
}

/// Runs the rounds over one directory.
///
/// # Errors
/// The first law that a round broke, with the round's number; the directory stays as it was found.
pub fn run(rounds: &Rounds, mut progress: impl FnMut(u32, &Totals)) -> Result<Totals> {
    let place = Place::below(&rounds.folder);
    let mut ledger = Ledger::default();
    let mut random = Random::new(rounds.seed);
    let mut totals = Totals::default();
    for round in 1..=rounds.count {
        let result = one_round(rounds, &place, &mut ledger, &mut random, &mut totals, round);
        result.with_context(|| {
            format!("round {round} of {}, seed {}, {}", rounds.backend, rounds.seed, place.dir.display())
        })?;
        totals.rounds += 1;
        progress(round, &totals);
    }
    Ok(totals)
}

/// Recovers the log in a folder and ends it cleanly: exact sizes, every index on the disk.
///
/// # Errors
/// If it cannot be recovered, or the disk fails.
pub fn close(folder: &Path, backend: &str) -> Result<()> {
    let place = Place::below(folder);
    let mut io = open_backend(backend)?;
    let options = options(&place, Offset::ZERO, Offset::ZERO);
    let (log, _) = UnifiedLog::open(io.as_mut(), &place.dir, config(), options)?;
    log.close(io.as_mut())?;
    Ok(())
}

/// When to kill.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// After this many lines of the writer.
    Lines(u64),
    /// Once it has begun to truncate.
    Truncating,
    /// Once it has begun to delete from the front.
    Deleting,
}

fn one_round(
    rounds: &Rounds,
    place: &Place,
    ledger: &mut Ledger,
    random: &mut Random,
    totals: &mut Totals,
    round: u32,
) -> Result<()> {
    let moment = match random.below(4) {
        0 => Moment::Truncating,
        1 => Moment::Deleting,
        _ => Moment::Lines(20 + random.below(4_000)),
    };
    let epoch = ledger.next_epoch();
    let recovery_point = if round.is_multiple_of(2) { ledger.acknowledged() } else { Offset::ZERO };
    let acknowledged_before = ledger.acknowledged_batches;
    write_and_kill(rounds, ledger, random, epoch, recovery_point, moment)?;
    totals.acknowledged += ledger.acknowledged_batches - acknowledged_before;
    totals.truncations += ledger.truncations_begun;
    totals.truncations_cut_short += u64::from(ledger.is_truncating());
    totals.deletions += ledger.deletions_begun;
    (ledger.truncations_begun, ledger.deletions_begun) = (0, 0);

    let turn = usize::try_from(round)? % rounds.checkers.len().max(1);
    let backend = rounds.checkers.get(turn).unwrap_or(&rounds.backend);
    // A node knows the end of its last sync, or less.
    let recovery_point = if round.is_multiple_of(2) { Offset::ZERO } else { ledger.acknowledged() };
    let found = check::recover_and_check(place, backend, rounds.seed, ledger, recovery_point, random)?;
    totals.cut_bytes += found.cut_bytes;
    totals.torn += u32::from(found.cut_bytes > 0);
    totals.segments += found.segments;
    totals.compared += found.batches;
    totals.unacknowledged += found.unacknowledged;
    if round.is_multiple_of(3) {
        let whole = round.is_multiple_of(2);
        check::spoil_indexes(place, random, whole)?;
        let recovery_point = if whole { Offset::ZERO } else { ledger.acknowledged() };
        check::recover_and_check(place, backend, rounds.seed, ledger, recovery_point, random)
            .context("after the index files were spoiled")?;
        totals.reindexed += 1;
    }
    Ok(())
}

fn write_and_kill(
    rounds: &Rounds,
    ledger: &mut Ledger,
    random: &mut Random,
    epoch: LeaderEpoch,
    recovery_point: Offset,
    moment: Moment,
) -> Result<()> {
    let errors = rounds.folder.join("writer.err");
    let mut child = Command::new(&rounds.program)
        .arg("write")
        .arg(&rounds.folder)
        .args(["--backend", &rounds.backend])
        .args(["--seed", &rounds.seed.to_string()])
        .args(["--epoch", &epoch.get().to_string()])
        .args(["--recovery-point", &recovery_point.get().to_string()])
        .args(["--log-start", &ledger.log_start().get().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&errors)?)
        .spawn()
        .with_context(|| format!("cannot start {}", rounds.program.display()))?;
    let pipe = child.stdout.take().context("no pipe")?;
    let mut killer = Killer { child, patience: PATIENCE };
    let mut reader = BufReader::new(pipe);
    let (mut lines, mut killed) = (0_u64, false);
    let mut text = String::new();
    loop {
        text.clear();
        if reader.read_line(&mut text)? == 0 {
            break;
        }
        // The last line may be cut by the kill.
        let Some(whole) = text.strip_suffix('\n') else { break };
        let line = Line::parse(whole)?;
        lines += 1;
        ledger.apply(&line)?;
        let now = match moment {
            Moment::Lines(count) => lines >= count,
            // Not for ever: a short run may not get there.
            Moment::Truncating => matches!(line, Line::Truncate(_)) || lines > 20_000,
            Moment::Deleting => matches!(line, Line::Delete(_)) || lines > 20_000,
        };
        if now && !killed {
            killed = true;
            pause(Duration::from_micros(random.below(1_500)));
            killer.kill()?;
        }
    }
    killer.reap()?;
    let said = std::fs::read_to_string(&errors).unwrap_or_default();
    ensure!(killed, "the writer ended by itself: {}", said.trim());
    ensure!(said.trim().is_empty(), "the writer complained: {}", said.trim());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the moment of a kill is a matter of time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// A child that does not outlive the round.
struct Killer {
    child: std::process::Child,
    patience: Duration,
}

impl Killer {
    fn kill(&mut self) -> Result<()> {
        // SIGKILL: nothing of the writer runs after this.
        self.child.kill().context("cannot kill the writer")
    }

    fn reap(&mut self) -> Result<()> {
        let step = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        while self.child.try_wait()?.is_none() {
            if waited > self.patience {
                bail!("the writer does not end");
            }
            pause(step);
            waited += step;
        }
        Ok(())
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        // It may be gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
