//! Snapshot bytes that are not what they say.

use proptest::prelude::*;
use weir_format::crc;
use weir_psm::{SnapshotError, snapshot};

use crate::support::{Gate, commit, data, offset, pid};

const ENTRY_SIZE: usize = 46;

fn taken() -> (Gate, Vec<u8>) {
    let mut gate = Gate::new();
    gate.mirrored(data(5, 0, 0, 3));
    gate.mirrored(data(6, 2, 9, 2).transactional());
    gate.mirrored_marker(commit(7, 1, 4));
    let bytes = gate.psm.snapshot();
    (gate, bytes)
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc::crc32c(&bytes[6..]);
    bytes[2..6].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// The bytes with one field of one entry set, and the checksum right.
fn with_field(entry: usize, at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = taken().1;
    let at = 10 + entry * ENTRY_SIZE + at;
    bytes[at..at + field.len()].copy_from_slice(field);
    sealed(bytes)
}

/// The bytes with offsets set: which entry, where in it, what.
fn with_fields(fields: &[(usize, usize, i64)]) -> Vec<u8> {
    let mut bytes = taken().1;
    for (entry, at, value) in fields {
        let at = 10 + entry * ENTRY_SIZE + at;
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
    }
    sealed(bytes)
}

#[test]
fn the_bytes_are_those_of_kafkas_format() {
    let mut gate = Gate::new();
    gate.mirrored(data(258, 3, 7, 2).at(1_000).transactional());
    let expected = [
        &[0, 1, 0, 0, 0, 0, 0, 0, 0, 1][..],
        &[0, 0, 0, 0, 0, 0, 1, 2, 0, 3, 0, 0, 0, 8],
        &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
        &[0, 0, 0, 0, 0, 0, 3, 232, 255, 255, 255, 255],
        &[0, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    assert_eq!(gate.psm.snapshot(), sealed(expected));
    assert_eq!(Gate::new().psm.snapshot(), sealed(vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn what_was_taken_is_loaded() {
    let (gate, bytes) = taken();
    let mut loaded = Gate::new();
    loaded.psm.load_snapshot(&bytes, offset(6)).expect("we wrote it");
    assert!(loaded.psm.equal_state(&gate.psm));
    assert!(loaded.psm.open_transactions().eq(gate.psm.open_transactions()));
    assert_eq!((loaded.end(), loaded.psm.snapshot()), (6, bytes));
    assert_eq!(loaded.psm.last_stable_offset(offset(6)), offset(3));
}

/// SNAP-2: pages that did not reach the disk.
#[test]
fn a_snapshot_that_was_cut_anywhere_is_refused() {
    let (_, bytes) = taken();
    for size in 0..bytes.len() {
        let error = snapshot::decode(&bytes[..size]).expect_err("it is cut");
        let needed = if size < 10 { 10 } else { bytes.len() as u64 };
        assert_eq!(error, SnapshotError::Truncated { needed, found: size as u64 });
        let mut zeros = bytes[..size].to_vec();
        zeros.resize(bytes.len(), 0);
        assert!(snapshot::decode(&zeros).is_err() || zeros == bytes, "zeros from {size}");
    }
}

#[test]
fn a_flipped_bit_is_noticed() {
    let (_, bytes) = taken();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = snapshot::decode(&flipped).expect_err("a bit is wrong");
        let named = match bit / 8 {
            0 | 1 => matches!(error, SnapshotError::UnsupportedVersion { .. }),
            6..10 => true,
            _ => matches!(error, SnapshotError::Crc { .. }),
        };
        assert!(named, "bit {bit}: {error}");
    }
}

#[test]
fn what_nobody_writes_is_refused_by_name() {
    let (gate, bytes) = taken();
    let entry = |index, field, value| SnapshotError::InvalidEntry { index, field, value };
    let huge = sealed([&[0, 1, 0, 0, 0, 0], &i32::MAX.to_be_bytes()[..]].concat());
    let negative = sealed([&[0, 1, 0, 0, 0, 0], &(-1_i32).to_be_bytes()[..]].concat());
    let trailing = sealed([&bytes[..], &[0, 0]].concat());
    let mut version = bytes.clone();
    version[1] = 99;
    let rows = [
        (version, SnapshotError::UnsupportedVersion { found: 99 }),
        (trailing, SnapshotError::TrailingBytes { count: 2 }),
        (huge, SnapshotError::Truncated { needed: 10 + 46 * (i32::MAX as u64), found: 10 }),
        (negative, entry(0, "entry_count", -1)),
        (with_field(1, 0, &(-6_i64).to_be_bytes()), entry(1, "producer_id", -6)),
        (with_field(0, 22, &(-1_i32).to_be_bytes()), entry(0, "offset_delta", -1)),
        (with_field(0, 22, &3_i32.to_be_bytes()), entry(0, "offset_delta", 3)),
        (with_field(0, 14, &6_i64.to_be_bytes()), entry(0, "last_offset", 6)),
        (with_field(1, 38, &6_i64.to_be_bytes()), entry(1, "current_txn_first_offset", 6)),
        (with_field(1, 0, &5_i64.to_be_bytes()), SnapshotError::DuplicateProducer { producer_id: pid(5) }),
        (
            with_fields(&[(0, 38, 1), (1, 38, 1)]),
            SnapshotError::DuplicateTransaction { first_offset: offset(1) },
        ),
        (with_field(0, 38, &3_i64.to_be_bytes()), entry(0, "current_txn_first_offset", 3)),
        (with_field(2, 38, &0_i64.to_be_bytes()), entry(2, "current_txn_first_offset", 0)),
        (vec![], SnapshotError::Truncated { needed: 10, found: 0 }),
    ];
    for (bytes, error) in rows {
        let mut loading = gate.clone();
        assert_eq!(loading.psm.load_snapshot(&bytes, offset(6)), Err(error.clone()));
        assert_eq!(format!("{:?}", loading.psm), format!("{:?}", gate.psm), "{error}: nothing changed");
    }
}

#[test]
fn errors_read_like_a_sentence() {
    let rows = [
        (SnapshotError::Truncated { needed: 10, found: 3 }, "producer snapshot has 3 bytes, needs 10"),
        (
            SnapshotError::Crc { stored: 1, computed: 0xabc },
            "producer snapshot has CRC 00000001, its entries have 00000abc",
        ),
        (
            SnapshotError::InvalidEntry { index: 2, field: "producer_id", value: -5 },
            "entry 2 of the producer snapshot has producer_id -5",
        ),
    ];
    for (error, text) in rows {
        assert_eq!(error.to_string(), text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// R7: no bytes panic, and what is taken for a snapshot is written again as the same entries.
    #[test]
    fn any_snapshot_bytes_are_read_or_refused(
        count in prop_oneof![0..4_i32, any::<i32>()],
        body in prop::collection::vec(any::<u8>(), 0..200),
        trim in any::<bool>(),
        end in 0..i64::MAX,
    ) {
        let mut bytes = vec![0, 1, 0, 0, 0, 0];
        bytes.extend(count.to_be_bytes());
        bytes.extend(&body);
        if trim {
            bytes.truncate(10 + body.len() / 46 * 46);
            bytes[6..10].copy_from_slice(&i32::try_from(body.len() / 46).expect("few").to_be_bytes());
        }
        let crc = weir_format::crc::crc32c(&bytes[6..]);
        bytes[2..6].copy_from_slice(&crc.to_be_bytes());
        let mut gate = Gate::new();
        if gate.psm.load_snapshot(&bytes, offset(end)).is_ok() {
            let mut again = Gate::new();
            again.psm.load_snapshot(&gate.psm.snapshot(), offset(end)).expect("we wrote it");
            prop_assert!(again.psm.equal_state(&gate.psm));
        } else {
            prop_assert_eq!(gate.psm.producer_count(), 0);
        }
    }
}
