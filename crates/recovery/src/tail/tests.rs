//! The table of `tail.rs`, row by row, and cases B5.

use weir_format::{BatchBuilder, TimestampMs};

use super::*;

fn offset(raw: i64) -> Offset {
    Offset::new(raw).unwrap()
}

/// A batch of one record with a value of `size` bytes.
fn batch(base: i64, size: usize) -> Vec<u8> {
    BatchBuilder::new()
        .base_offset(offset(base))
        .record(TimestampMs::new(1), None, Some(&vec![b'v'; size]))
        .build()
        .unwrap()
        .to_vec()
}

struct Case {
    /// What stands in front of the place.
    front: Vec<u8>,
    /// From the place on.
    behind: Vec<u8>,
    next_offset: i64,
    recovery_point: i64,
    last_segment: bool,
    max_unsynced: u64,
}

impl Case {
    fn last(front: Vec<u8>, behind: Vec<u8>) -> Self {
        Self { front, behind, next_offset: 1, recovery_point: 0, last_segment: true, max_unsynced: 64 << 20 }
    }

    fn judge(&self) -> TailVerdict {
        let bytes = [&self.front[..], &self.behind].concat();
        let place = InvalidPlace {
            position: self.front.len() as u64,
            next_offset: offset(self.next_offset),
            recovery_point: offset(self.recovery_point),
            last_segment: self.last_segment,
            max_unsynced: self.max_unsynced,
        };
        let Ok(verdict) = judge_tail(&mut &bytes[..], &place);
        verdict
    }
}

fn corrupt(verdict: TailVerdict) -> (CorruptReason, Option<ValidBehind>) {
    match verdict {
        TailVerdict::Corrupt { reason, behind } => (reason, behind),
        other => panic!("not called corrupt but {other:?}"),
    }
}

#[test]
fn zeros_alone_are_preallocation_in_every_segment() {
    for size in [1, 61, 512, 5000, (1 << 20) + 7] {
        let mut case = Case::last(batch(0, 10), vec![0; size]);
        assert_eq!(case.judge(), TailVerdict::Zeros, "{size}");
        case.last_segment = false;
        case.recovery_point = 100;
        assert_eq!(case.judge(), TailVerdict::Zeros, "{size}, sealed");
    }
}

#[test]
fn zeros_below_the_recovery_point_of_the_last_segment_are_corruption() {
    let mut case = Case::last(batch(0, 10), vec![0; 5000]);
    case.recovery_point = 2;
    assert_eq!(corrupt(case.judge()), (CorruptReason::BelowRecoveryPoint, None));
    case.recovery_point = 1;
    assert_eq!(case.judge(), TailVerdict::Zeros);
}

#[test]
fn a_batch_cut_at_any_byte_is_torn() {
    // TAIL-1, TAIL-2.
    let whole = batch(1, 40);
    for cut in 1..whole.len() {
        let mut case = Case::last(batch(0, 10), whole[..cut].to_vec());
        assert_eq!(case.judge(), if cut <= 7 { TailVerdict::Zeros } else { TailVerdict::Torn }, "{cut}");
        case.last_segment = false;
        case.behind.push(1);
        assert_eq!(corrupt(case.judge()), (CorruptReason::SealedSegment, None), "{cut}");
    }
}

#[test]
fn a_spoilt_length_is_torn_at_the_end_and_corrupt_before_a_valid_batch() {
    // TAIL-3.
    for length in [0_i32, 1, 48, -1, i32::MAX] {
        let mut spoilt = batch(1, 40);
        spoilt[8..12].copy_from_slice(&length.to_be_bytes());
        let mut case = Case::last(batch(0, 10), spoilt.clone());
        assert_eq!(case.judge(), TailVerdict::Torn, "{length}");
        case.behind.extend_from_slice(&batch(2, 5));
        case.behind.extend_from_slice(&batch(3, 5));
        let (reason, behind) = corrupt(case.judge());
        assert_eq!(reason, CorruptReason::ValidBatchBehind, "{length}");
        let position = (case.front.len() + spoilt.len()) as u64;
        let end_position = (case.front.len() + case.behind.len()) as u64;
        let expected = ValidBehind { position, base_offset: offset(2), end_offset: offset(4), end_position };
        assert_eq!(behind, Some(expected), "{length}");
    }
}

#[test]
fn every_flipped_bit_before_a_valid_batch_is_corruption() {
    let good = batch(1, 3);
    for bit in 0..good.len() * 8 {
        let mut flipped = good.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // Base offset and leader epoch are outside the CRC: such a batch may be valid, and is not judged then.
        if weir_format::RecordBatch::parse(&flipped).is_ok() {
            continue;
        }
        let mut case = Case::last(batch(0, 10), flipped);
        assert_eq!(case.judge(), TailVerdict::Torn, "bit {bit}");
        case.behind.extend_from_slice(&batch(2, 600));
        assert_eq!(corrupt(case.judge()).0, CorruptReason::ValidBatchBehind, "bit {bit}");
    }
}

/// Base offsets lie outside the CRC: one that rotted upward makes all that follow it look old.
#[test]
fn a_whole_batch_of_a_lower_offset_is_corruption() {
    for high in [12, 1 << 40] {
        let behind = [batch(7, 40), batch(8, 40)].concat();
        let mut case = Case::last(batch(high, 10), behind);
        case.next_offset = high + 1;
        let (reason, behind) = corrupt(case.judge());
        assert_eq!((reason, behind), (CorruptReason::LowerOffset, None), "{high}");
        // As the last one, and one whose own rotted downward.
        case.behind = batch(7, 40);
        assert_eq!(corrupt(case.judge()).0, CorruptReason::LowerOffset, "{high}");
        // Cut by a byte it is what a crash leaves.
        case.behind.pop();
        assert_eq!(case.judge(), TailVerdict::Torn, "{high}");
    }
}

#[test]
fn stale_batches_of_lower_offsets_do_not_make_a_tail_corrupt() {
    let mut behind = batch(7, 40);
    behind[30] ^= 1;
    behind.extend_from_slice(&batch(3, 40));
    let mut case = Case::last(batch(6, 10), behind);
    case.next_offset = 7;
    assert_eq!(case.judge(), TailVerdict::Torn);
}

#[test]
fn a_write_that_did_not_land_before_one_that_did_is_a_hole() {
    // The lost write is shorter than a sector, ends in the next one, and spans several.
    for lost in [70, 500, 900, 5000] {
        let behind = [vec![0; lost], batch(3, 100)].concat();
        let case = Case::last(batch(0, 10), behind);
        let place = case.front.len() as u64;
        let TailVerdict::Hole { zeros_at, behind } = case.judge() else {
            panic!("{lost}: {:?}", case.judge())
        };
        assert_eq!(zeros_at, place, "{lost}");
        assert_eq!(behind.position, place + lost as u64);
        assert_eq!((behind.base_offset, behind.end_offset), (offset(3), offset(4)));
    }
}

#[test]
fn a_write_cut_at_a_sector_before_one_that_landed_is_a_hole() {
    let front = batch(0, 10);
    let mut torn = batch(1, 3000);
    let first_border = 512 * (front.len() / 512 + 2) - front.len();
    torn[first_border..].fill(0);
    let case = Case::last(front, [torn, batch(2, 10)].concat());
    assert!(matches!(case.judge(), TailVerdict::Hole { .. }), "{:?}", case.judge());
}

#[test]
fn zeros_that_are_no_sector_are_not_a_hole() {
    let front = batch(0, 10);
    let mut spoilt = batch(1, 3000);
    // 512 zeros, but across a border: no disk loses that.
    let border = 1024 - front.len();
    spoilt[border + 100..border + 612].fill(0);
    let case = Case::last(front, [spoilt, batch(2, 10)].concat());
    assert_eq!(corrupt(case.judge()).0, CorruptReason::ValidBatchBehind);
}

#[test]
fn the_zeros_that_a_batch_begins_with_are_not_a_hole() {
    // The place starts 7 bytes before a sector ends, and those are the upper bytes of an offset.
    let front = batch(0, 505 - 70);
    let front_size = front.len();
    assert!((500..512).contains(&front_size), "{front_size}");
    let mut flipped = batch(1, 100);
    flipped[80] ^= 1;
    let case = Case::last(front, [flipped, batch(2, 10)].concat());
    assert_eq!(corrupt(case.judge()).0, CorruptReason::ValidBatchBehind);
}

/// A batch at `base` whose first `lost` bytes end a sector, behind another one, and one more behind it; where it starts.
fn at_the_end_of_a_sector(base: i64, lost: usize, size: usize) -> (Vec<u8>, usize) {
    // Two varints are a byte longer than those of an empty batch.
    let front = batch(base - 1, 1024 - lost - batch(base - 1, 0).len() - 2);
    assert_eq!(front.len(), 1024 - lost);
    let place = front.len();
    ([front, batch(base, size), batch(base + 1, 10)].concat(), place)
}

fn judge_at(bytes: &[u8], place: usize, next_offset: i64) -> TailVerdict {
    let (front, behind) = bytes.split_at(place);
    Case { next_offset, ..Case::last(front.to_vec(), behind.to_vec()) }.judge()
}

#[test]
fn a_write_whose_first_sector_did_not_land_is_a_hole_wherever_in_it_the_write_began() {
    for base in [4, 0x13, 0x1_0203, 0x0605_0403_0201, 3 << 48] {
        for lost in 1..=40 {
            let (mut bytes, place) = at_the_end_of_a_sector(base, lost, 900);
            bytes[place..1024].fill(0);
            // The offset's upper bytes may be zeros anyway, and one missing bit may as well be a flipped one.
            let of_offset = (base.cast_unsigned() >> (64 - 8 * lost.min(8))).count_ones();
            let verdict = judge_at(&bytes, place, base);
            // With nothing behind it, it may have the right CRC, and is torn all the same.
            let alone = judge_at(&bytes[..bytes.len() - batch(base + 1, 10).len()], place, base);
            match (of_offset, lost) {
                (0, ..8) => {}
                (1, ..11) => assert_eq!(corrupt(alone).0, CorruptReason::LowerOffset, "{base:#x} {lost}"),
                _ => assert_eq!(alone, TailVerdict::Torn, "{base:#x} {lost}"),
            }
            match (of_offset, lost) {
                (0, ..8) => assert!(weir_format::RecordBatch::parse(&bytes[place..]).is_ok()),
                (1, ..12) => {
                    assert_eq!(corrupt(verdict).0, CorruptReason::ValidBatchBehind, "{base:#x} {lost}")
                }
                _ => match verdict {
                    TailVerdict::Hole { zeros_at, behind } => {
                        let found = (zeros_at, behind.base_offset.get());
                        assert_eq!(found, (place as u64, base + 1), "{base:#x} {lost}");
                    }
                    other => panic!("{base:#x}, {lost} bytes in the first sector: {other:?}"),
                },
            }
        }
    }
}

#[test]
fn no_flipped_bit_at_the_end_of_a_sector_looks_like_a_lost_write() {
    for base in [16, 0x13, 0x1_0203] {
        for lost in [1, 5, 6, 7, 8, 11, 12, 16, 17] {
            let (good, place) = at_the_end_of_a_sector(base, lost, 900);
            for bit in 0..61 * 8 {
                let mut bytes = good.clone();
                bytes[place + bit / 8] ^= 1 << (bit % 8);
                let verdict = judge_at(&bytes, place, base);
                assert!(
                    !matches!(verdict, TailVerdict::Hole { .. }),
                    "{base:#x} {lost} bit {bit}: {verdict:?}"
                );
            }
        }
    }
}

#[test]
fn a_batch_that_goes_back_at_the_end_of_a_sector_is_no_lost_write() {
    // The upper bytes of its offset are zeros and end the sector, but the rest is not that of the offset expected.
    let (bytes, place) = at_the_end_of_a_sector(5, 6, 900);
    assert!(bytes[place..1024].iter().all(|byte| *byte == 0));
    let behind = [&bytes[..bytes.len() - batch(6, 10).len()], &batch(0x3_0204, 10)[..]].concat();
    assert_eq!(corrupt(judge_at(&behind, place, 0x3_0203)).0, CorruptReason::ValidBatchBehind);
}

#[test]
fn a_flipped_bit_in_a_batch_that_holds_sectors_of_zeros_is_corruption() {
    let record = TimestampMs::new(1);
    let value = [&[b'v'; 300][..], &[0; 3000], &[b'v'; 900]].concat();
    let good = BatchBuilder::new().base_offset(offset(1)).record(record, None, Some(&value)).build().unwrap();
    let size = good.len();
    for bit in (0..61 * 8).chain((61 * 8..size * 8).step_by(97)) {
        let mut flipped = good.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if weir_format::RecordBatch::parse(&flipped).is_ok() {
            continue;
        }
        let case = Case::last(batch(0, 10), [flipped, batch(2, 600)].concat());
        assert_eq!(corrupt(case.judge()).0, CorruptReason::ValidBatchBehind, "bit {bit}");
    }
    // Of a write that lost a sector with something in it, more is wrong than one bit.
    let front = batch(0, 10);
    let mut holes = 0;
    for border in (512 - front.len()..size - 512).step_by(512) {
        let mut torn = good.to_vec();
        torn[border..border + 512].fill(0);
        if torn != good {
            holes += 1;
            let verdict = Case::last(front.clone(), [torn, batch(2, 600)].concat()).judge();
            assert!(matches!(verdict, TailVerdict::Hole { .. }), "{border}: {verdict:?}");
        }
    }
    assert!(holes > 0);
}

#[test]
fn a_hole_with_more_behind_it_than_may_be_unsynced_is_corruption() {
    let mut case = Case::last(batch(0, 10), [vec![0; 600], batch(3, 1000)].concat());
    case.max_unsynced = case.behind.len() as u64;
    assert!(matches!(case.judge(), TailVerdict::Hole { .. }));
    case.max_unsynced -= 1;
    assert_eq!(corrupt(case.judge()).0, CorruptReason::TooMuchBehindHole);
}

#[test]
fn a_hole_below_the_recovery_point_or_in_a_sealed_segment_is_corruption() {
    let mut case = Case::last(batch(0, 10), [vec![0; 600], batch(3, 100)].concat());
    case.recovery_point = 2;
    assert_eq!(corrupt(case.judge()).0, CorruptReason::BelowRecoveryPoint);
    case.recovery_point = 0;
    case.last_segment = false;
    let (reason, behind) = corrupt(case.judge());
    assert_eq!(reason, CorruptReason::SealedSegment);
    assert_eq!(behind.map(|found| found.base_offset), Some(offset(3)));
}

#[test]
fn a_valid_batch_is_found_across_the_border_of_two_windows() {
    for shift in 0..80 {
        let mut behind = vec![0xff_u8; WINDOW_SIZE - 60 + shift];
        behind.extend_from_slice(&batch(5, 2_000_000));
        behind.extend_from_slice(&batch(6, 10));
        let (reason, behind) = corrupt(Case::last(Vec::new(), behind).judge());
        assert_eq!(reason, CorruptReason::ValidBatchBehind);
        assert_eq!(behind.map(|found| (found.base_offset, found.end_offset)), Some((offset(5), offset(7))));
    }
}

#[test]
fn an_old_message_behind_counts_as_valid() {
    let mut message = vec![0_u8; OLD_FRAME_MIN + 4];
    message[7] = 9;
    message[8..12].copy_from_slice(&18_i32.to_be_bytes());
    message[16] = 1;
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &message[16..]);
    message[12..16].copy_from_slice(&u32::try_from(crc).unwrap().to_be_bytes());
    let behind = |message: &[u8]| Case::last(batch(0, 10), [&[7; 100], message].concat()).judge();
    assert_eq!(corrupt(behind(&message)).0, CorruptReason::ValidBatchBehind);
    for index in 12..message.len() {
        message[index] ^= 0x10;
        assert_eq!(behind(&message), TailVerdict::Torn, "{index}");
        message[index] ^= 0x10;
    }
}

#[test]
fn bytes_that_claim_a_batch_at_every_position_are_called_corrupt_and_end() {
    // Each 17-byte step looks like a header whose length reaches far ahead: quadratic work if nobody counted.
    let size = 3 << 20;
    let mut behind = vec![0_u8; size];
    let mut at = 0;
    while at + HEADER_SIZE < size {
        behind[at + 7] = 1;
        let length = i32::try_from(size - at - 12).unwrap();
        behind[at + 8..at + 12].copy_from_slice(&length.to_be_bytes());
        behind[at + 16] = 2;
        at += 17;
    }
    let case = Case::last(batch(0, 10), behind);
    assert_eq!(corrupt(case.judge()), (CorruptReason::Undecided, None));
}

#[test]
fn space_allocated_ahead_changes_no_verdict_and_counts_as_nothing_behind() {
    // After a kill the file ends in up to 16 MiB of zeros.
    let ahead = vec![0; (16 << 20) + 17];
    let with = |behind: Vec<u8>| Case::last(batch(0, 10), [behind, ahead.clone()].concat());
    assert_eq!(with(Vec::new()).judge(), TailVerdict::Zeros);
    let whole = batch(1, 40);
    for cut in 8..whole.len() - 1 {
        let case = Case::last(batch(0, 10), [&whole[..cut], &[0; 70_000]].concat());
        assert_eq!(case.judge(), TailVerdict::Torn, "{cut}");
    }
    assert_eq!(with(whole[..50].to_vec()).judge(), TailVerdict::Torn);
    let mut flipped = whole.clone();
    flipped[70] ^= 1;
    let corrupted = with([flipped, batch(2, 600)].concat());
    assert_eq!(corrupt(corrupted.judge()).0, CorruptReason::ValidBatchBehind);
    // A hole: the zeros behind what landed are not part of what may have been unsynced.
    let landed = [vec![0; 600], batch(3, 1000)].concat();
    let size = landed.len() as u64;
    let mut case = with(landed);
    case.max_unsynced = size;
    let TailVerdict::Hole { behind, .. } = case.judge() else { panic!("{:?}", case.judge()) };
    assert_eq!(behind.end_position, case.front.len() as u64 + size);
    case.max_unsynced -= 1;
    assert_eq!(corrupt(case.judge()).0, CorruptReason::TooMuchBehindHole);
}

#[test]
fn a_valid_batch_that_ends_in_zeros_is_found_in_front_of_space_allocated_ahead() {
    // Its last bytes are zeros, and its header lies close to them.
    let mut value = vec![0; 5_000];
    value[0] = 1;
    let record = TimestampMs::new(1);
    let zeros =
        BatchBuilder::new().base_offset(offset(2)).record(record, None, Some(&value)).build().unwrap();
    let mut flipped = batch(1, 40);
    flipped[70] ^= 1;
    for ahead in [0, 1, 4_096, 3 << 20] {
        let case = Case::last(batch(0, 10), [flipped.clone(), zeros.to_vec(), vec![0; ahead]].concat());
        let (reason, behind) = corrupt(case.judge());
        assert_eq!(
            (reason, behind.unwrap().base_offset),
            (CorruptReason::ValidBatchBehind, offset(2)),
            "{ahead}"
        );
    }
}
