//! Messages of magic 0 and 1: what a load, a look and a cut make of them, sound and damaged.

use std::path::Path;

use weir_format::{Message, MessageError};
use weir_recovery::cut::{self, CutConfig, CutError};
use weir_recovery::{CutKind, Invalid, LoadError, RecoveryConfig, Unwatched, inspect};
use weir_segment::io::sim::SimDisk;

use super::support::*;

/// A message by hand, as no encoder of ours makes it.
fn message(magic: u8, offset: i64, value: &[u8]) -> Vec<u8> {
    let mut covered = vec![magic, 0];
    if magic == 1 {
        covered.extend_from_slice(&(NOW.get() + offset).to_be_bytes());
    }
    covered.extend_from_slice(&(-1_i32).to_be_bytes());
    covered.extend_from_slice(&i32::try_from(value.len()).unwrap().to_be_bytes());
    covered.extend_from_slice(value);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &covered);
    let mut bytes = offset.to_be_bytes().to_vec();
    bytes.extend_from_slice(&i32::try_from(covered.len() + 4).unwrap().to_be_bytes());
    bytes.extend_from_slice(&u32::try_from(crc).unwrap().to_be_bytes());
    bytes.extend_from_slice(&covered);
    assert_eq!(Message::parse(&bytes).unwrap().offset(), self::offset(offset));
    bytes
}

/// The log end, how much was cut and whether as torn.
fn load_of(bytes: &[u8]) -> Result<(i64, u64, Option<CutKind>), LoadError> {
    let disk = SimDisk::new(1);
    disk.write_file(&log_path(0), bytes);
    let (loaded, report) = load(&disk, &config())?;
    // Twice is once.
    let again = load(&disk, &config()).unwrap();
    assert_eq!(again.0.log.log_end_offset(), loaded.log.log_end_offset());
    assert_eq!(again.1.cuts, []);
    Ok((
        loaded.log.log_end_offset().get(),
        report.cut_bytes(),
        report.cuts.first().map(|cut| cut.kind.clone()),
    ))
}

#[test]
fn messages_and_batches_in_any_order_are_one_log() {
    let disk = SimDisk::new(1);
    let batches = [
        message(0, 0, b"zero"),
        message(1, 1, b"one"),
        placed(produced(5, 0, 2), 2, 3),
        // The message format of the topic was set back.
        message(1, 4, b"four"),
        message(0, 9, b"a gap before"),
        placed(produced(5, 2, 1), 10, 4),
    ];
    disk.write_file(&log_path(0), &batches[..3].concat());
    disk.write_file(&log_path(4), &batches[3..].concat());
    let found = inspect(&mut disk.io(), Path::new(DIR), &config(), &mut Unwatched).unwrap();
    let (loaded, report) = load(&disk, &config()).unwrap();
    assert_eq!((&found.report, found.log_end_offset), (&report, loaded.log.log_end_offset()));
    assert_eq!((loaded.log.log_end_offset().get(), report.batch_count, report.cuts.len()), (11, 6, 0));
    let size: usize = batches.iter().map(Vec::len).sum();
    assert_eq!(report.checked_bytes, size as u64);
    let epochs: Vec<_> =
        loaded.epochs.entries().iter().map(|e| (e.epoch.get(), e.start_offset.get())).collect();
    assert_eq!(epochs, [(3, 2), (4, 10)], "messages have no leader epoch");
    let producers: Vec<_> = loaded
        .psm
        .entries()
        .map(|(id, entry)| (id.get(), entry.last_offset().map(|last| last.get())))
        .collect();
    assert_eq!(producers, [(5, Some(10))], "nor a producer (SNAP-8)");

    let last = loaded.last_batch.unwrap();
    assert_eq!((last.base_offset.get(), last.leader_epoch.map(|epoch| epoch.get())), (10, Some(4)));
    let shorter = disk.fork();
    shorter.write_file(&log_path(4), &batches[3..5].concat());
    for clean_shutdown in [false, true] {
        let config = RecoveryConfig { clean_shutdown, ..config() };
        let last = load(&shorter, &config).unwrap().0.last_batch.unwrap();
        assert_eq!((last.base_offset.get(), last.last_offset.get(), last.leader_epoch), (9, 9, None));
    }

    // Every offset is found, at the first of those that are not below it.
    let mut io = disk.io();
    let (mut loaded, _) = weir_recovery::LogLoader::load(
        &mut io,
        Path::new(DIR),
        &RecoveryConfig { clean_shutdown: true, ..config() },
    )
    .unwrap();
    for (at, index) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (5, 4), (9, 4), (10, 5)] {
        let read = loaded.log.read(&mut io, offset(at), 1, offset(11), true).unwrap();
        assert_eq!(read.bytes, batches[index], "{at}");
    }
    let read = loaded.log.read(&mut io, offset(0), 1 << 20, offset(11), true).unwrap();
    assert_eq!((&read.bytes[..], read.next_offset.get()), (&batches[..3].concat()[..], 4));
    // A last one that is not whole is left out.
    let read = loaded.log.read(&mut io, offset(0), batches[0].len() + 20, offset(11), true).unwrap();
    assert_eq!(read.bytes, batches[0]);
}

#[test]
fn a_message_cut_at_any_byte_is_torn_and_those_before_it_stay() {
    for magic in [0, 1] {
        let (good, last) =
            ([message(0, 0, b"good"), message(magic, 1, b"kept")].concat(), message(magic, 2, b"torn"));
        for size in 1..last.len() {
            let (end, cut, kind) = load_of(&[&good[..], &last[..size]].concat()).unwrap();
            // The upper bytes of an offset are zeros.
            let zeros = size <= 7;
            assert_eq!((end, cut), (2, if zeros { 0 } else { size as u64 }), "{magic} {size}");
            assert_eq!(
                kind,
                Some(if zeros { CutKind::Preallocated } else { CutKind::Torn }),
                "{magic} {size}"
            );
        }
    }
}

#[test]
fn a_flipped_bit_in_a_message_is_corruption_before_valid_ones_and_torn_behind_them() {
    let parts = [message(1, 0, b"first"), message(1, 1, b"flipped"), message(1, 2, b"behind")];
    let start = parts[0].len();
    for bit in (12 * 8)..parts[1].len() * 8 {
        let mut bytes = parts.concat();
        bytes[start + bit / 8] ^= 1 << (bit % 8);
        match load_of(&bytes) {
            Err(LoadError::Corrupt(corruption)) => {
                assert_eq!((corruption.position, corruption.next_offset.get()), (start as u64, 1), "{bit}");
                assert_eq!(corruption.behind.map(|behind| behind.base_offset.get()), Some(2), "{bit}");
                // The bits that say that it is a message are among those.
                let magic = bit / 8 == 16;
                let crc = matches!(corruption.found, Invalid::Message(MessageError::CrcMismatch { .. }));
                assert!(crc || magic, "{bit}: {}", corruption.found);
            }
            other => panic!("{bit}: {other:?}"),
        }
        bytes.truncate(start + parts[1].len());
        assert_eq!(load_of(&bytes).unwrap().0, 1, "{bit}");
    }
}

#[test]
fn a_message_that_goes_back_or_reaches_over_its_segment_is_not_taken() {
    let back = [message(1, 5, b"five"), message(1, 3, b"three"), message(1, 6, b"six")].concat();
    match load_of(&back) {
        Err(LoadError::Corrupt(corruption)) => {
            assert_eq!(corruption.found, Invalid::OffsetBelowEnd { base_offset: offset(3) });
            assert_eq!(corruption.next_offset.get(), 6);
        }
        other => panic!("{other:?}"),
    }
    let disk = SimDisk::new(1);
    disk.write_file(&log_path(0), &message(1, 7, b"seven"));
    disk.write_file(&log_path(4), &message(1, 4, b"four"));
    match load(&disk, &config()) {
        Err(LoadError::Corrupt(corruption)) => {
            let beyond = Invalid::BeyondNextSegment { next_offset: offset(8), segment: offset(4) };
            assert_eq!(corruption.found, beyond);
        }
        other => panic!("{:?}", other.map(|(_, report)| report)),
    }
}

#[test]
fn a_length_that_lies_about_a_message_is_cut_and_gets_no_buffer() {
    let mut bytes = [message(1, 0, b"good"), message(1, 1, b"lies")].concat();
    let at = message(1, 0, b"good").len();
    for length in [0, 13, 21, -1, i32::MAX, 10 << 20] {
        bytes[at + 8..at + 12].copy_from_slice(&length.to_be_bytes());
        assert_eq!(load_of(&bytes).unwrap().0, 1, "{length}");
        // A file that is large enough: the CRC is computed in pieces, and differs.
        if length == 10 << 20 {
            let grown = [&bytes[..], &vec![7; 11 << 20]].concat();
            assert_eq!(load_of(&grown).unwrap().0, 1);
        }
    }
    let large = [message(1, 0, &vec![b'v'; 9 << 20]), message(1, 1, b"behind")].concat();
    assert_eq!(load_of(&large).unwrap(), (2, 0, None), "one that large and sound is taken");
}

#[test]
fn a_log_of_messages_is_cut_where_the_operator_says() {
    let start = SimDisk::new(1);
    golden(&start, "magic-v1");
    let config = CutConfig { side_dir: SIDE_DIR.into(), recovery_point: offset(0) };
    let plan =
        |disk: &SimDisk, at| cut::plan(&mut disk.io(), Path::new(DIR), &config, offset(at), &mut Unwatched);
    let (mut inside, mut cuts) = (0, 0);
    for at in 1..330 {
        let disk = start.fork();
        match plan(&disk, at) {
            // Wrappers hold ten or more messages.
            Err(CutError::InsideBatch { base_offset, next_offset, .. }) => {
                assert!(base_offset.get() < at && at < next_offset.get(), "{at}");
                inside += 1;
            }
            Err(error) => panic!("{at}: {error}"),
            Ok(plan) => {
                cuts += 1;
                assert_eq!((plan.log_end_offset.get(), &plan.invalid), (at, &None), "{at}");
                assert!(plan.batch_count() > 0 && plan.unreadable_size() == 0, "{at}");
                cut::apply(&mut disk.io(), &plan, &mut Unwatched).unwrap();
                assert_eq!(load(&disk, &self::config()).unwrap().0.log.log_end_offset().get(), at);
            }
        }
    }
    assert!(inside > 100 && cuts > 60, "{inside} {cuts}");
    assert!(matches!(plan(&start, 330), Err(CutError::NothingToCut { .. })));
}

#[test]
fn an_index_that_leads_behind_the_snapshot_leaves_no_message_out() {
    let disk = SimDisk::new(1);
    let messages: Vec<_> = (0..8).map(|n| message(1, n, b"value")).collect();
    disk.write_file(&log_path(0), &messages[..4].concat());
    load(&disk, &config()).unwrap();
    // A snapshot stands at 4, and the index says that 4 is where 6 is.
    disk.write_file(&log_path(0), &messages.concat());
    let clean = RecoveryConfig { clean_shutdown: true, ..config() };
    assert_eq!(load(&disk.fork(), &clean).unwrap().1.batch_count, 8, "no index: from the first");
    let position = u32::try_from(messages[..6].concat().len()).unwrap();
    disk.write_file(&file(0, "index"), &[4_u32.to_be_bytes(), position.to_be_bytes()].concat());
    let (loaded, report) = load(&disk, &clean).unwrap();
    assert_eq!((loaded.log.log_end_offset().get(), report.batch_count), (8, 8));
    // One that leads in front of it is followed.
    let position = u32::try_from(messages[..3].concat().len()).unwrap();
    disk.write_file(&file(0, "index"), &[3_u32.to_be_bytes(), position.to_be_bytes()].concat());
    assert_eq!(load(&disk, &clean).unwrap().1.batch_count, 5);
}
