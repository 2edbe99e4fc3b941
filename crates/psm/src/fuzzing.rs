//! The oracle of the fuzz target for snapshot bytes. It panics if this crate is wrong about them.
//!
//! It looks at the bytes three ways: as they came, with the checksum made right (so that what lies behind it is reached),
//! and made into a snapshot of as many entries as they hold. A second reader, written for being obviously right, says
//! what each must be.
//!
//! It runs in ordinary tests as well, over the seeds in `fuzz/seeds` and over mutations of them.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "an oracle fails by panicking, and one that indexes wrongly should fail too"
)]

use weir_format::{
    BatchBuilder, ControlRecordType, MirrorPidReset, Offset, ProducerEpoch, ProducerId, RecordBatch,
    Sequence, TimestampMs, crc,
};

use crate::{
    AppendOrigin, Applied, Checked, ProducerStateEntry, ProducerStateManager, PsmConfig, SnapshotError,
    snapshot,
};

/// One oracle: it panics if this crate is wrong about these bytes.
pub type Oracle = fn(&[u8]);

/// Every target of `fuzz/` that is this crate's, and its oracle.
pub const TARGETS: &[(&str, Oracle)] = &[("snapshot", check_snapshot)];

const HEADER: usize = 10;
const ENTRY: usize = 46;

/// Any bytes as a snapshot: the naive reader agrees on every field and on what is refused, cuts and flips are refused,
/// what is read is written again, and what is loaded is a state that goes on as any other.
pub fn check_snapshot(data: &[u8]) {
    for bytes in [data, &with_right_crc(data), &made_a_snapshot(data)] {
        let known = snapshot_oracle(bytes);
        // Its offset, as a file's name would say it: in front of what is in it, and behind.
        let mut ends = vec![Offset::ZERO, Offset::MAX];
        let offsets = known.iter().flatten().flat_map(|entry| [entry.last_offset, entry.open_since]);
        ends.extend(offsets.take(8).filter_map(|at| Offset::new(at.saturating_add(1))));
        for end in ends {
            load_oracle(bytes, end, known.as_deref());
        }
    }
    let made = made_a_snapshot(data);
    assert!(
        !matches!(
            snapshot::decode(&made),
            Err(SnapshotError::Truncated { .. }
                | SnapshotError::Crc { .. }
                | SnapshotError::TrailingBytes { .. }
                | SnapshotError::UnsupportedVersion { .. })
        ),
        "a snapshot by construction"
    );
}

/// An entry as it stands in the bytes, anything negative as -1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Naive {
    producer_id: i64,
    epoch: i16,
    last_sequence: i32,
    last_offset: i64,
    offset_delta: i32,
    timestamp: i64,
    coordinator_epoch: i32,
    open_since: i64,
}

/// The entries, or `None` if it is no snapshot.
fn naive(bytes: &[u8]) -> Option<Vec<Naive>> {
    if bytes.len() < HEADER || bytes[..2] != [0, 1] || bytes[2..6] != crc::crc32c(&bytes[6..]).to_be_bytes() {
        return None;
    }
    let count = usize::try_from(i32::from_be_bytes(array(bytes, 6))).ok()?;
    let body = &bytes[HEADER..];
    if !body.len().is_multiple_of(ENTRY) || body.len() / ENTRY != count {
        return None;
    }
    body.chunks(ENTRY).map(naive_entry).collect()
}

fn naive_entry(bytes: &[u8]) -> Option<Naive> {
    let last_offset = i64::from_be_bytes(array(bytes, 14)).max(-1);
    let no_batch = last_offset == -1;
    let offset_delta = i32::from_be_bytes(array(bytes, 22));
    let entry = Naive {
        producer_id: i64::from_be_bytes(array(bytes, 0)),
        epoch: i16::from_be_bytes(array(bytes, 8)).max(-1),
        last_sequence: if no_batch { -1 } else { i32::from_be_bytes(array(bytes, 10)).max(-1) },
        last_offset,
        offset_delta: if no_batch { 0 } else { offset_delta },
        timestamp: i64::from_be_bytes(array(bytes, 26)),
        coordinator_epoch: i32::from_be_bytes(array(bytes, 34)).max(-1),
        open_since: i64::from_be_bytes(array(bytes, 38)).max(-1),
    };
    let fits = no_batch || (0..=last_offset).contains(&i64::from(offset_delta));
    (entry.producer_id >= 0 && fits).then_some(entry)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes")
}

fn flat(producer_id: ProducerId, entry: &ProducerStateEntry) -> Naive {
    Naive {
        producer_id: producer_id.get(),
        epoch: entry.producer_epoch().map_or(-1, ProducerEpoch::get),
        last_sequence: entry.last_sequence().map_or(-1, Sequence::get),
        last_offset: entry.last_offset().map_or(-1, Offset::get),
        offset_delta: entry.last_batch().map_or(0, |batch| batch.offset_delta()),
        timestamp: entry.last_timestamp().get(),
        coordinator_epoch: entry.coordinator_epoch().unwrap_or(-1),
        open_since: entry.transaction_first_offset().map_or(-1, Offset::get),
    }
}

/// What the bytes hold, if they are a snapshot.
fn snapshot_oracle(bytes: &[u8]) -> Option<Vec<Naive>> {
    let meant = naive(bytes);
    let read = snapshot::decode(bytes);
    let found: Option<Vec<Naive>> =
        read.as_ref().ok().map(|entries| entries.iter().map(|(id, entry)| flat(*id, entry)).collect());
    assert_eq!(found, meant, "{read:?}");
    let entries = read.ok()?;
    assert!(entries.capacity() <= bytes.len() / ENTRY, "no more room than the bytes have entries");

    let again = snapshot::encode(entries.len(), entries.iter().map(|(id, entry)| (*id, entry)));
    assert_eq!(again.len(), bytes.len());
    let reread = snapshot::decode(&again).expect("we wrote it");
    assert_eq!(reread, entries, "what was read is written again");

    // Some of the cuts and flips; all of them are tried elsewhere, over smaller bytes.
    let step = (bytes.len() / 16).max(1);
    for at in (0..bytes.len()).step_by(step) {
        assert!(
            matches!(snapshot::decode(&bytes[..at]), Err(SnapshotError::Truncated { .. })),
            "cut at {at}"
        );
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 1 << (at % 8);
        assert!(snapshot::decode(&flipped).is_err(), "a bit of byte {at} is flipped");
    }
    let mut longer = bytes.to_vec();
    longer.push(0);
    assert!(snapshot::decode(&longer).is_err(), "a byte too many");
    meant
}

/// Loads it as a file of this name, and goes on from it.
fn load_oracle(bytes: &[u8], end: Offset, known: Option<&[Naive]>) {
    let mut psm = ProducerStateManager::new(PsmConfig::default());
    let loaded = psm.load_snapshot(bytes, end);
    assert_eq!(loaded.is_ok(), known.is_some_and(|known| may_be_loaded(known, end.get())), "{loaded:?}");
    let (true, Some(known)) = (loaded.is_ok(), known) else {
        assert_eq!((psm.producer_count(), psm.map_end_offset()), (0, Offset::ZERO), "nothing changed");
        assert_eq!(psm.first_unstable_offset(), None);
        return;
    };
    let mut by_id = known.to_vec();
    by_id.sort_by_key(|entry| entry.producer_id);
    let found: Vec<Naive> = psm.entries().map(|(id, entry)| flat(id, entry)).collect();
    assert_eq!(found, by_id);
    let mut open: Vec<i64> = known.iter().map(|entry| entry.open_since).filter(|first| *first >= 0).collect();
    open.sort_unstable();
    let found: Vec<i64> = psm.open_transactions().map(|open| open.first_offset.get()).collect();
    assert_eq!(found, open);
    assert_eq!(psm.map_end_offset(), end);
    psm.on_high_watermark(end);
    assert_eq!(psm.last_stable_offset(end).get(), open.first().copied().unwrap_or(end.get()));

    let mut again = ProducerStateManager::new(PsmConfig::default());
    again.load_snapshot(&psm.snapshot(), end).expect("we wrote it");
    assert!(again.equal_state(&psm));
    if end < Offset::MAX {
        goes_on(psm, &by_id);
    }
}

/// What a snapshot needs besides its entries to be a state of a log that ends there.
fn may_be_loaded(known: &[Naive], end: i64) -> bool {
    let distinct = |mut numbers: Vec<i64>| {
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.len() == count
    };
    let open: Vec<i64> = known.iter().map(|entry| entry.open_since).filter(|first| *first >= 0).collect();
    known.iter().all(|entry| entry.last_offset < end && entry.open_since <= entry.last_offset)
        && distinct(known.iter().map(|entry| entry.producer_id).collect())
        && distinct(open)
}

/// Data and a marker of everybody, then a barrier: nobody is left, and nothing is open.
fn goes_on(mut psm: ProducerStateManager, known: &[Naive]) {
    let now = TimestampMs::new(1);
    for entry in known.iter().take(4) {
        let id = ProducerId::new(entry.producer_id).expect("it was read");
        let was_open = psm.open_transaction(id).map(|open| open.first_offset);
        let epoch = ProducerEpoch::new(entry.epoch).unwrap_or(ProducerEpoch::ZERO);
        let data = BatchBuilder::new().transactional().producer(id, epoch, Some(Sequence::ZERO));
        let data = data.record(now, None, None).build().expect("a batch");
        let at = psm.map_end_offset();
        if append(&mut psm, &data).is_none() {
            return;
        }
        let open = psm.open_transaction(id).expect("it is open");
        assert_eq!(open.first_offset, was_open.unwrap_or(at));
        let marker = BatchBuilder::new().transactional().producer(id, epoch, None);
        let marker = marker.control_record(now, ControlRecordType::Abort, &[0; 6]).build().expect("a marker");
        let Some(applied) = append(&mut psm, &marker) else { return };
        let completed = applied.completed.expect("it was open");
        assert_eq!((completed.first_offset, completed.aborted), (open.first_offset, true));
    }
    let open = psm.open_transactions().count();
    let count = psm.producer_count();
    let Some(applied) = append(&mut psm, &MirrorPidReset::build(now)) else { return };
    let barrier = applied.barrier.expect("it is one");
    assert_eq!((barrier.producers_expired, barrier.transactions_aborted.len()), (count, open));
    assert_eq!(psm.producer_count(), 0);
    let end = psm.map_end_offset();
    psm.on_high_watermark(end);
    assert_eq!(psm.last_stable_offset(end), end);
}

/// `None` if no offset is left.
fn append(psm: &mut ProducerStateManager, bytes: &[u8]) -> Option<Applied> {
    let batch = RecordBatch::parse(bytes).expect("a batch");
    match psm.check(&batch, psm.map_end_offset(), AppendOrigin::Replication) {
        Ok(Checked::Append(transition)) => Some(psm.commit(transition)),
        Ok(Checked::Duplicate(duplicate)) => panic!("replication has no duplicates: {duplicate:?}"),
        Err(_) => None,
    }
}

fn with_right_crc(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if bytes.len() >= 6 {
        bytes[..2].copy_from_slice(&snapshot::VERSION.to_be_bytes());
        let crc = crc::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
    }
    bytes
}

/// The header, and as many whole entries as there are bytes for.
fn made_a_snapshot(data: &[u8]) -> Vec<u8> {
    let body = data.get(HEADER..).unwrap_or_default();
    let count = body.len() / ENTRY;
    let mut bytes = vec![0; 6];
    bytes.extend(i32::try_from(count).expect("few").to_be_bytes());
    bytes.extend(&body[..count * ENTRY]);
    with_right_crc(&bytes)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;

    use super::*;

    fn folder(kind: &str, target: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target)
    }

    fn inputs(kind: &str, target: &str) -> Vec<Vec<u8>> {
        let Ok(entries) = std::fs::read_dir(folder(kind, target)) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.retain(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')));
        paths.sort();
        paths.into_iter().map(|path| std::fs::read(path).expect("a file")).collect()
    }

    #[test]
    fn seeds_and_regressions_of_every_target_hold() {
        for (target, oracle) in TARGETS {
            let seeds = inputs("seeds", target);
            assert!(seeds.len() >= 10, "{target} has {} seeds", seeds.len());
            for input in seeds.into_iter().chain(inputs("regressions", target)) {
                oracle(&input);
            }
        }
    }

    #[test]
    fn every_oracle_has_a_target_in_the_fuzz_package() {
        for (target, _) in TARGETS {
            let path = folder("fuzz_targets", "").join(format!("{target}.rs"));
            let source = std::fs::read_to_string(path).expect("a target");
            assert!(source.contains(&format!("weir_psm::fuzzing::check_{target}(data)")), "{source}");
        }
    }

    /// The seeds reach what the oracle has to say of a state that was loaded.
    #[test]
    fn some_seeds_are_loaded_and_some_are_not() {
        let seeds = inputs("seeds", "snapshot");
        let loaded = |bytes: &&Vec<u8>| {
            let mut psm = ProducerStateManager::new(PsmConfig::default());
            psm.load_snapshot(bytes, Offset::MAX).is_ok() && psm.open_transactions().count() > 0
        };
        assert!(seeds.iter().filter(loaded).count() >= 2);
        assert!(seeds.iter().filter(|bytes| snapshot::decode(bytes).is_err()).count() >= 4);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn changed_seeds_hold(
            which in any::<prop::sample::Index>(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = which.get(&inputs("seeds", "snapshot")).clone();
            for (at, byte) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            check_snapshot(&bytes);
            bytes.truncate(cut.index(bytes.len() + 1));
            check_snapshot(&bytes);
        }
    }
}
