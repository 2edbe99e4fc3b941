//! The checker: recovers a directory and compares every byte of it with what the ledger says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use weir_format::{Offset, TimestampMs};
use weir_log::{Isolation, OffsetSpec, UnifiedLog};
use weir_segment::io::Io;

use super::ledger::{Kind, Ledger, Written};
use super::{Place, batch, config, options};
use crate::append::batches::{NOW, Random};
use crate::append::open_backend;

/// How many offsets and timestamps are looked up.
const LOOKUPS: usize = 40;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// Segments.
    pub segments: u64,
    /// Batches whose bytes were compared.
    pub batches: u64,
    /// Of these, never acknowledged.
    pub unacknowledged: u64,
    /// Bytes that recovery cut.
    pub cut_bytes: u64,
}

/// Recovers the directory, compares it with the ledger, recovers it again, and lets the ledger know what is there.
///
/// # Errors
/// What is missing, wrong or too much.
pub fn recover_and_check(
    place: &Place,
    backend: &str,
    seed: u64,
    ledger: &mut Ledger,
    recovery_point: Offset,
    random: &mut Random,
) -> Result<Found> {
    let mut io = open_backend(backend)?;
    let opened = UnifiedLog::open(
        io.as_mut(),
        &place.dir,
        config(),
        options(place, recovery_point, ledger.log_start()),
    );
    let (mut log, report) = opened.context("recovery refuses what the kill left")?;
    let end = log.log_end_offset();
    let segments: Vec<Offset> = log.segments().iter().map(|segment| segment.base_offset).collect();
    let first = *segments.first().context("a log without segments")?;

    ensure!(
        end >= ledger.acknowledged(),
        "{:?} was acknowledged, the log ends at {end:?}",
        ledger.acknowledged()
    );
    ensure!(end >= ledger.complete(), "{:?} was written, the log ends at {end:?}", ledger.complete());
    ensure!(end <= ledger.end(), "the log ends at {end:?}, only {:?} was written", ledger.end());
    ensure!(first <= ledger.highest_log_start(), "the log starts at {first:?}: more was deleted than asked");
    if let Some(second) = segments.get(1) {
        ensure!(*second > ledger.log_start(), "a segment below {:?} is still there", ledger.log_start());
    }

    let there: Vec<Written> = ledger
        .batches
        .iter()
        .copied()
        .filter(|batch| batch.base_offset >= first && batch.last_offset < end)
        .collect();
    let mut bytes = Vec::new();
    for written in &there {
        bytes.push(batch(seed, written)?.freeze());
    }
    let expected: Vec<(Written, &[u8])> = there.iter().copied().zip(bytes.iter().map(|b| &b[..])).collect();
    compare_files(&place.dir, &segments, &expected)?;
    ensure!(
        expected.last().map_or(first, |(last, _)| last.last_offset.next().unwrap_or(last.last_offset)) == end,
        "the files end elsewhere than at {end:?}"
    );
    look_up(&mut log, io.as_mut(), &expected, random)?;
    compare_transactions(&mut log, io.as_mut(), &segments, first, &there)?;
    let log_start = log.view().log_start_offset;
    let acknowledged = ledger.acknowledged();
    drop(log);
    drop(io);

    let before = contents(place)?;
    let mut io = open_backend(backend)?;
    let again = UnifiedLog::open(
        io.as_mut(),
        &place.dir,
        config(),
        options(place, recovery_point, ledger.log_start()),
    );
    let (log, second) = again.context("the second recovery")?;
    ensure!(
        log.log_end_offset() == end,
        "the second recovery ends at {:?}, not {end:?}",
        log.log_end_offset()
    );
    ensure!(second.cuts.is_empty(), "the second recovery cuts {:?}", second.cuts);
    drop(log);
    drop(io);
    let after = contents(place)?;
    for (path, bytes) in &before {
        ensure!(after.get(path) == Some(bytes), "the second recovery changed {}", path.display());
    }
    ensure!(before.len() == after.len(), "the second recovery added files");

    ledger.found(first, end, log_start);
    Ok(Found {
        segments: u64::try_from(segments.len())?,
        batches: u64::try_from(expected.len())?,
        unacknowledged: u64::try_from(
            expected.iter().filter(|(written, _)| written.last_offset >= acknowledged).count(),
        )?,
        cut_bytes: report.cut_bytes(),
    })
}

/// The `.log` files are the expected batches, each once, in order, and nothing else.
fn compare_files(dir: &Path, segments: &[Offset], expected: &[(Written, &[u8])]) -> Result<()> {
    let mut rest = expected.iter().peekable();
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    found.sort();
    ensure!(found.len() == segments.len(), "{} files for {} segments", found.len(), segments.len());
    for (path, base) in found.iter().zip(segments) {
        let name = format!("{:020}.log", base.get());
        ensure!(
            path.file_name().is_some_and(|found| found == name.as_str()),
            "{} is not {name}",
            path.display()
        );
        let bytes = std::fs::read(path)?;
        let mut at = 0;
        while at < bytes.len() {
            let Some((written, wanted)) = rest.next() else {
                bail!("{} has {} bytes that nobody wrote", path.display(), bytes.len() - at);
            };
            ensure!(at > 0 || written.base_offset >= *base, "{} starts with {written:?}", path.display());
            ensure!(
                bytes.get(at..at + wanted.len()) == Some(wanted),
                "{} at byte {at} is not {written:?}",
                path.display()
            );
            at += wanted.len();
        }
    }
    match rest.next() {
        None => Ok(()),
        Some((written, _)) => bail!("{written:?} is missing"),
    }
}

/// Offsets and timestamps are found where they are.
fn look_up(
    log: &mut UnifiedLog,
    io: &mut dyn Io,
    expected: &[(Written, &[u8])],
    random: &mut Random,
) -> Result<()> {
    let start = log.view().log_start_offset;
    for _ in 0..LOOKUPS {
        let Some((written, bytes)) = pick(expected, random) else { return Ok(()) };
        let span = u64::try_from(written.last_offset.get() - written.base_offset.get() + 1)?;
        let offset = written.base_offset.get() + i64::try_from(random.below(span))?;
        let offset = Offset::new(offset).context("an offset")?;
        if offset < start {
            continue;
        }
        let read = log.read(io, offset, 1, Isolation::Uncommitted, true)?;
        ensure!(read.bytes == bytes, "a read from {offset:?} does not give {written:?}");
        // Every record has its offset in its timestamp.
        let stamp = TimestampMs::new(NOW.get() + offset.get());
        let answer = log.offset_for(io, OffsetSpec::Timestamp(stamp), Isolation::Uncommitted)?;
        ensure!(
            answer.as_ref().map(|answer| answer.offset) == Some(offset),
            "the timestamp of {offset:?} is found at {answer:?}"
        );
    }
    Ok(())
}

fn pick<'a>(expected: &[(Written, &'a [u8])], random: &mut Random) -> Option<(Written, &'a [u8])> {
    let index = random.below(u64::try_from(expected.len()).ok()?);
    expected.get(usize::try_from(index).ok()?).copied()
}

/// The transaction indexes hold what the batches say.
fn compare_transactions(
    log: &mut UnifiedLog,
    io: &mut dyn Io,
    segments: &[Offset],
    first: Offset,
    there: &[Written],
) -> Result<()> {
    let mut indexed = Vec::new();
    for base in segments {
        for entry in log.segment_transactions(io, *base)? {
            indexed.push((entry.producer_id.get(), entry.first_offset, entry.last_offset));
        }
    }
    let (mut wanted, mut open) = (Vec::new(), BTreeMap::new());
    for written in there {
        match written.kind {
            Kind::Data => {}
            Kind::Transactional => {
                open.insert(written.producer_id, written.base_offset);
            }
            Kind::Abort => {
                if let Some(from) = open.remove(&written.producer_id) {
                    wanted.push((written.producer_id, from, written.base_offset));
                }
            }
        }
    }
    // One whose records were deleted from the front may still be listed.
    indexed.retain(|(_, from, _)| *from >= first);
    ensure!(indexed == wanted, "the transaction indexes hold {indexed:?}, the log {wanted:?}");
    let still_open: Vec<i64> = log.open_transactions().iter().map(|one| one.producer_id.get()).collect();
    ensure!(still_open == open.keys().copied().collect::<Vec<_>>(), "open are {still_open:?}, not {open:?}");
    Ok(())
}

/// Removes, empties, cuts, garbles or zeroes every index file, so that all have to be built again. Without `missing` the
/// transaction indexes are not removed or emptied: as for Kafka, none means that nothing was aborted, and only a walk over
/// the batches knows better.
///
/// # Errors
/// If the disk fails.
pub fn spoil_indexes(place: &Place, random: &mut Random, missing: bool) -> Result<()> {
    for path in files(&place.dir)? {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if !matches!(extension, "index" | "timeindex" | "txnindex") {
            continue;
        }
        let mut bytes = std::fs::read(&path)?;
        let kept = extension == "txnindex" && !missing;
        match random.below(5) {
            0 | 1 if kept => {}
            0 => {
                std::fs::remove_file(&path)?;
                continue;
            }
            1 => bytes.clear(),
            2 => bytes.truncate(bytes.len() / 2 + 1),
            // As an old broker leaves it: allocated, and zeros behind the entries.
            3 => bytes.resize(bytes.len() + 4_096, 0),
            _ => bytes.iter_mut().for_each(|byte| *byte ^= 0x5a),
        }
        std::fs::write(&path, bytes)?;
    }
    Ok(())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    found.sort();
    Ok(found)
}

/// Every file of the partition with its bytes.
fn contents(place: &Place) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for dir in [&place.dir, &place.side_dir] {
        if dir.is_dir() {
            for path in files(dir)?.into_iter().filter(|path| path.is_file()) {
                let bytes = std::fs::read(&path)?;
                all.insert(path, bytes);
            }
        }
    }
    Ok(all)
}
