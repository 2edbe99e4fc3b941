//! Torn tail or corruption: one question, one function, two very different answers.
//!
//! A walk over a segment stops at the first place that is not a valid batch.
//! [`judge_tail`] says what that place is; the loader acts on the answer and on nothing else.
//!
//! # The table
//!
//! *Place* is the first invalid byte, *behind* is everything from there to the end of the file, *valid* means a whole
//! batch with the right CRC and an offset not below the one expected at the place. Zeros at the end of the file are space
//! that was allocated ahead: they are read once, and neither scanned nor counted as what lies behind.
//!
//! | segment | offset expected at the place | behind | verdict | the loader |
//! |---|---|---|---|---|
//! | any but the last | any | zeros alone | [`TailVerdict::Zeros`] (unfinished preallocation) | cuts |
//! | any but the last | any | anything else | [`TailVerdict::Corrupt`] | stops |
//! | last | below the recovery point | anything, zeros too | [`TailVerdict::Corrupt`] | stops |
//! | last | at or above it | zeros alone | [`TailVerdict::Zeros`] | cuts |
//! | last | at or above it | nothing valid, up to the end of the file | [`TailVerdict::Torn`] | cuts |
//! | last | at or above it | nothing valid, but the place is a whole batch with the right CRC, of a lower offset | [`TailVerdict::Corrupt`] | stops |
//! | last | at or above it | something valid; a sector of the place is zeros; at most 64 MiB behind | [`TailVerdict::Hole`] | archives, then cuts |
//! | last | at or above it | something valid; a sector of the place is zeros; more behind | [`TailVerdict::Corrupt`] | stops |
//! | last | at or above it | something valid; no sector of the place is zeros (a flipped bit) | [`TailVerdict::Corrupt`] | stops |
//! | last | at or above it | more candidates than the work limit allows to check | [`TailVerdict::Corrupt`] | stops |
//!
//! *A sector of the place* is an aligned run of 512 bytes between the place and the first valid batch behind it, or the
//! rest of the sector in which the place starts if no batch begins with so many zeros, or all that lies between the place
//! and the valid batch. Such a run of zeros is what a write leaves that did not land while a later one did. No sync
//! covered it, or it would be there, so nothing behind it was acknowledged either: a sync that covered the later write
//! covers the earlier one too. A disk that lied about a sync looks the same, therefore the bytes are archived before they
//! are cut.
//!
//! *No batch begins with so many zeros* if at least two bits of it are missing that must be there: those of the offset
//! expected at the place, the length from 12 bytes on, the magic from 17 on. Where fewer than 8 bytes are left in the
//! sector, the rest of the offset must stand in the next one.
//!
//! A batch may hold a sector of zeros and be rotten elsewhere: if one flipped bit is all that is wrong with what lies
//! between the place and the valid batch, it is no lost write.
//!
//! Zeros that end with a sector and begin inside a batch show nothing: records hold as many. So a write that was cut short
//! inside a sector, of which the rest never landed while a later write did, is called corrupt. The file systems of Linux
//! cut a write short between two pages, if at all.
//!
//! A write that did not land whole leaves no batch with the right CRC. One of a lower offset at the place says that the
//! base offset of a batch in front of it rotted upward, or its own downward: it lies outside the CRC, and what follows was
//! acknowledged. Only where a sector ends inside its offset, and no batch begins with so many zeros, that sector did not
//! land. Lower offsets further behind are what an older file left on the disk, and say nothing.
//!
//! Kafka cuts in every one of these cases. Where the answers differ, ours is the stricter one.
//!
//! # Bounds
//!
//! The scan reads windows of 1 MiB and looks at each byte position once. Candidates, places that look like a batch
//! header, cost a CRC over what they claim to be; the sum of these is limited to eight times the bytes behind plus
//! 64 MiB. Bytes chosen to exceed it are called corrupt, never cut.

use weir_format::{Offset, RecordBatch};

/// The unit in which disks lose writes.
const SECTOR_SIZE: u64 = 512;
/// Where the length and the magic of a batch end: from so many zeros on they are among what is missing.
const LENGTH_END: u64 = 12;
const MAGIC_END: u64 = 17;
/// How much is read at a time.
const WINDOW_SIZE: usize = 1 << 20;
/// Magic-2 header size: nothing shorter can be a batch.
const HEADER_SIZE: usize = weir_format::HEADER_SIZE;
/// The CRC of a batch covers it from here on.
const CRC_FROM: u64 = 21;
/// The polynomial of CRC-32C, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Smallest frame of the old formats: offset, size, CRC, magic, attributes, key and value length.
const OLD_FRAME_MIN: usize = 26;

/// A file as the judge sees it: bytes at positions, nothing else.
pub trait TailRead {
    /// What a failed read is called.
    type Error;

    /// The size of the file in bytes.
    fn size(&self) -> u64;

    /// Fills `into` from `position`; the range lies inside the file.
    ///
    /// # Errors
    /// The read failed, or the file is shorter than it said.
    fn read_at(&mut self, position: u64, into: &mut [u8]) -> Result<(), Self::Error>;
}

impl TailRead for &[u8] {
    type Error = std::convert::Infallible;

    fn size(&self) -> u64 {
        u64::try_from(self.len()).unwrap_or(u64::MAX)
    }

    fn read_at(&mut self, position: u64, into: &mut [u8]) -> Result<(), Self::Error> {
        let start = usize::try_from(position).unwrap_or(usize::MAX);
        into.copy_from_slice(&self[start..start + into.len()]);
        Ok(())
    }
}

/// Where a walk stopped, and what was known there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidPlace {
    /// First byte that is not part of a valid batch.
    pub position: u64,
    /// The smallest offset a batch may have here: one above the last valid batch, or the segment's base offset.
    pub next_offset: Offset,
    /// Everything below was once synced.
    pub recovery_point: Offset,
    /// Whether the file is the newest segment.
    pub last_segment: bool,
    /// How much a partition may have unsynced, in bytes.
    pub max_unsynced: u64,
}

/// Valid batches behind an invalid place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidBehind {
    /// Where the first of them starts.
    pub position: u64,
    /// The lowest base offset among them.
    pub base_offset: Offset,
    /// One above the highest offset found.
    pub end_offset: Offset,
    /// Where the last of them ends.
    pub end_position: u64,
}

/// Why an invalid place is corruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorruptReason {
    /// It lies in a segment that has a successor, and was synced before the successor's first byte.
    SealedSegment,
    /// It lies below the recovery point, so it was once synced.
    BelowRecoveryPoint,
    /// Valid batches lie behind it and no sector of it is zeros.
    ValidBatchBehind,
    /// A whole batch stands there, of an offset that the log has passed.
    LowerOffset,
    /// It looks like a hole, but more lies behind it than can ever have been unsynced.
    TooMuchBehindHole,
    /// More places look like a batch than the work limit allows to check.
    Undecided,
}

impl std::fmt::Display for CorruptReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SealedSegment => "the segment has a successor",
            Self::BelowRecoveryPoint => "it lies below the recovery point",
            Self::ValidBatchBehind => "valid batches lie behind it",
            Self::LowerOffset => "it is whole, and the offsets in front of it are higher",
            Self::TooMuchBehindHole => "more lies behind it than can have been unsynced",
            Self::Undecided => "too many places behind it look like a batch",
        })
    }
}

/// What an invalid place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailVerdict {
    /// Zeros alone to the end of the file: preallocated space. Cut.
    Zeros,
    /// Torn tail: nothing valid of a higher offset lies behind. Cut.
    Torn,
    /// A write did not land and a later one did. Archive, then cut.
    Hole {
        /// Where the zeros are that show it.
        zeros_at: u64,
        /// What is cut away with it.
        behind: ValidBehind,
    },
    /// Not ours to cut.
    Corrupt {
        /// Why.
        reason: CorruptReason,
        /// What lies behind, if anything valid does.
        behind: Option<ValidBehind>,
    },
}

/// Says what the invalid place in `file` is, by the table above.
///
/// Cost: reads the file from the place to its end, in windows of 1 MiB; zeros at its end are compared, and no more.
///
/// # Errors
/// Only the reader's own.
///
/// Source: `docs/on-disk-format.md`, law R8.
pub fn judge_tail<R: TailRead>(file: &mut R, place: &InvalidPlace) -> Result<TailVerdict, R::Error> {
    let below_recovery_point = place.last_segment && place.next_offset < place.recovery_point;
    let data_end = data_end(file, place.position)?;
    if !below_recovery_point && data_end <= place.position {
        return Ok(TailVerdict::Zeros);
    }
    let mut row = Row { at: place.position, end: None, broken: None };
    let found = Scan::new(file, place, data_end).run(&mut row)?;
    let corrupt = |reason| TailVerdict::Corrupt { reason, behind: found.behind };
    if !place.last_segment {
        return Ok(corrupt(CorruptReason::SealedSegment));
    }
    if below_recovery_point {
        return Ok(corrupt(CorruptReason::BelowRecoveryPoint));
    }
    let Some(behind) = found.behind else {
        if found.exhausted {
            return Ok(corrupt(CorruptReason::Undecided));
        }
        let border = next_border(place.position);
        let is_whole = is_whole_batch(file, place, data_end)?
            && (border > data_end || !is_beginning_lost(file, place, border)?);
        return Ok(if is_whole { corrupt(CorruptReason::LowerOffset) } else { TailVerdict::Torn });
    };
    match lost_write(file, place, behind.position)? {
        None => Ok(corrupt(CorruptReason::ValidBatchBehind)),
        Some(_) if data_end.max(behind.end_position) - place.position > place.max_unsynced => {
            Ok(corrupt(CorruptReason::TooMuchBehindHole))
        }
        Some(zeros_at) => Ok(TailVerdict::Hole { zeros_at, behind }),
    }
}

/// Whether a batch with the right CRC stands at the place, whatever its offset.
fn is_whole_batch<R: TailRead>(file: &mut R, place: &InvalidPlace, data_end: u64) -> Result<bool, R::Error> {
    let any_offset = InvalidPlace { next_offset: Offset::ZERO, ..*place };
    let size = window_size(file.size() - place.position).min(HEADER_SIZE);
    let mut header = [0; HEADER_SIZE];
    file.read_at(place.position, &mut header[..size])?;
    let mut scan = Scan::new(file, &any_offset, data_end);
    Ok(scan.claim(&header[..size], place.position, &mut false)?.is_some())
}

/// Whether `position..end` holds zeros alone; an empty range does.
pub(crate) fn zeros_until<R: TailRead>(file: &mut R, position: u64, end: u64) -> Result<bool, R::Error> {
    let mut window = vec![0_u8; window_size(end.saturating_sub(position))];
    let mut at = position;
    while at < end {
        let size = window_size(end - at);
        file.read_at(at, &mut window[..size])?;
        if window[..size].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += to_u64(size);
    }
    Ok(true)
}

/// The position behind the last byte from `position` on that is not zero; `position` if all are.
pub(crate) fn data_end<R: TailRead>(file: &mut R, position: u64) -> Result<u64, R::Error> {
    let mut end = file.size();
    let mut window = vec![0_u8; window_size(end.saturating_sub(position))];
    while end > position {
        let size = window_size(end - position);
        let at = end - to_u64(size);
        file.read_at(at, &mut window[..size])?;
        if let Some(last) = window[..size].iter().rposition(|&byte| byte != 0) {
            return Ok(at + to_u64(last) + 1);
        }
        end = at;
    }
    Ok(position)
}

/// The first run of zeros between the place and the first valid batch behind it that shows a write that did not land.
fn lost_write<R: TailRead>(
    file: &mut R,
    place: &InvalidPlace,
    valid_at: u64,
) -> Result<Option<u64>, R::Error> {
    let position = place.position;
    if valid_at - position >= to_u64(HEADER_SIZE) && zeros_until(file, position, valid_at)? {
        return Ok(Some(position));
    }
    let mut at = next_border(position);
    if at <= valid_at && is_beginning_lost(file, place, at)? {
        return Ok(Some(position));
    }
    while at + SECTOR_SIZE <= valid_at {
        if zeros_until(file, at, at + SECTOR_SIZE)? {
            return Ok((!is_one_bit_wrong(file, place, valid_at)?).then_some(at));
        }
        at += SECTOR_SIZE;
    }
    Ok(None)
}

/// Where the sector of a byte ends.
fn next_border(position: u64) -> u64 {
    (position / SECTOR_SIZE + 1) * SECTOR_SIZE
}

/// Whether the rest of the sector in which the place starts is zeros where a batch cannot have had so many.
///
/// One missing bit may be a flipped one, so at least two are asked for.
fn is_beginning_lost<R: TailRead>(
    file: &mut R,
    place: &InvalidPlace,
    sector_end: u64,
) -> Result<bool, R::Error> {
    let zeros = sector_end - place.position;
    if !zeros_until(file, place.position, sector_end)? {
        return Ok(false);
    }
    let expected = place.next_offset.get().to_be_bytes();
    let of_offset = usize::try_from(zeros).unwrap_or(usize::MAX).min(expected.len());
    let (lost, landed) = expected.split_at(of_offset);
    let missing = lost.iter().map(|byte| byte.count_ones()).sum::<u32>()
        + u32::from(zeros >= LENGTH_END)
        + u32::from(zeros >= MAGIC_END);
    let mut rest = vec![0; landed.len()];
    if to_u64(rest.len()) > file.size() - sector_end {
        return Ok(false);
    }
    file.read_at(sector_end, &mut rest)?;
    Ok(missing >= 2 && rest == landed)
}

/// Whether one flipped bit explains that no valid batch stands at the place, with a valid one right behind it or with the
/// length that it claims.
fn is_one_bit_wrong<R: TailRead>(
    file: &mut R,
    place: &InvalidPlace,
    valid_at: u64,
) -> Result<bool, R::Error> {
    let most = (file.size() - place.position).min(place.max_unsynced);
    if most < to_u64(HEADER_SIZE) {
        return Ok(false);
    }
    let mut header = [0; HEADER_SIZE];
    file.read_at(place.position, &mut header)?;
    let until_valid = valid_at - place.position;
    let claimed = u64::try_from(be_i32(&header, 8)).map_or(until_valid, |length| length + 12);
    let other = (claimed != until_valid).then_some(claimed);
    for size in [until_valid].into_iter().chain(other) {
        if !(to_u64(HEADER_SIZE)..=most).contains(&size) {
            continue;
        }
        let (from, end) = (place.position + CRC_FROM, place.position + size);
        let crc = crc(file, crc_fast::CrcAlgorithm::Crc32Iscsi, from, end)?;
        let wrong = u32::try_from(crc).expect("a 32-bit CRC fits 32 bits") ^ be_u32(&header, 17);
        // Outside of what the CRC covers, or in the CRC itself.
        if wrong == 0 || wrong.is_power_of_two() {
            return Ok(true);
        }
        // A CRC is linear: what a flipped bit changes in it follows from how many bits come behind alone.
        let mut state = wrong;
        for _ in 0..(size - CRC_FROM) * 8 {
            state = if state >> 31 == 1 { (state ^ POLYNOMIAL) << 1 | 1 } else { state << 1 };
            if state == 1 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn window_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX).min(WINDOW_SIZE)
}

fn to_u64(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// The valid batches in a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// How many they are, control batches included; a message of magic 0 or 1 counts as one.
    pub batch_count: u64,
    /// Records in data batches; a message of magic 0 or 1 counts as one, compressed or not.
    pub record_count: u64,
    /// Their bytes.
    pub valid_bytes: u64,
    /// The lowest of their offsets, and one above the highest.
    pub offsets: Option<(Offset, Offset)>,
    /// The lowest offset of a barrier among them.
    pub barrier: Option<Offset>,
    /// Whether all bytes were looked at. Else more places look like a batch than the work limit allows to check.
    pub counted: bool,
}

/// What a range of bytes holds, and where its row of batches breaks.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) contents: Contents,
    /// Where the last valid batch ends.
    pub(crate) end_position: Option<u64>,
    /// The first place where a batch should begin and none does; the end of the range is one, if zeros alone lie behind.
    pub(crate) invalid_at: Option<u64>,
    /// One above the last offset in front of it, if a batch stands there.
    pub(crate) end_before_invalid: Option<Offset>,
}

/// Counts the valid batches from `position` to the end of the file, whatever lies between them.
///
/// # Errors
/// Only the reader's own.
pub(crate) fn survey<R: TailRead>(
    file: &mut R,
    position: u64,
    next_offset: Offset,
) -> Result<Survey, R::Error> {
    let place = InvalidPlace {
        position,
        next_offset,
        recovery_point: Offset::ZERO,
        last_segment: true,
        max_unsynced: 0,
    };
    let data_end = data_end(file, position)?;
    let mut row = Row { at: position, end: None, broken: None };
    let found = Scan::new(file, &place, data_end).run(&mut row)?;
    let offsets = found.behind.map(|behind| (behind.base_offset, behind.end_offset));
    let contents = Contents {
        batch_count: found.batch_count,
        record_count: found.record_count,
        valid_bytes: found.valid_bytes,
        offsets,
        barrier: found.barrier,
        counted: !found.exhausted,
    };
    Ok(Survey {
        contents,
        end_position: found.behind.map(|behind| behind.end_position),
        invalid_at: row.broken.or((row.at < data_end).then_some(row.at)),
        end_before_invalid: row.end,
    })
}

/// Batches one behind the other, until the row breaks.
struct Row {
    /// Where the next one should begin.
    at: u64,
    /// One above the last offset.
    end: Option<Offset>,
    broken: Option<u64>,
}

impl Row {
    fn meet(&mut self, position: u64, claim: &Claim) {
        if self.broken.is_some() {
            return;
        }
        if position != self.at {
            self.broken = Some(self.at);
        } else if self.end.is_some_and(|end| claim.base_offset < end) {
            self.broken = Some(position);
        } else {
            self.at = position + claim.size;
            self.end = Some(claim.next_offset);
        }
    }
}

/// What the bytes at one position claim to be, once their CRC agrees.
struct Claim {
    size: u64,
    base_offset: Offset,
    next_offset: Offset,
    /// Records, if it is no control batch.
    record_count: u64,
    is_barrier: bool,
}

#[derive(Default)]
struct Found {
    behind: Option<ValidBehind>,
    barrier: Option<Offset>,
    exhausted: bool,
    batch_count: u64,
    record_count: u64,
    valid_bytes: u64,
}

struct Scan<'a, R> {
    file: &'a mut R,
    end: u64,
    /// Behind it are zeros alone, in which no batch begins: the magic of none of them is their first byte.
    data_end: u64,
    place: InvalidPlace,
    crc_budget: u64,
}

impl<'a, R: TailRead> Scan<'a, R> {
    fn new(file: &'a mut R, place: &InvalidPlace, data_end: u64) -> Self {
        let end = file.size();
        let behind = data_end.saturating_sub(place.position);
        let crc_budget = behind.saturating_mul(8).saturating_add(64 << 20);
        Self { file, end, data_end, place: *place, crc_budget }
    }

    /// Looks at every position from the place to the last byte that is not zero.
    fn run(mut self, row: &mut Row) -> Result<Found, R::Error> {
        let mut found = Found::default();
        let mut window = Vec::new();
        let mut at = self.place.position;
        // A header that begins below it may end in the zeros behind it.
        let limit = self.data_end.saturating_add(to_u64(HEADER_SIZE)).min(self.end);
        'windows: while at < self.data_end && limit.saturating_sub(at) >= to_u64(OLD_FRAME_MIN) {
            let size = window_size(limit - at);
            window.resize(size, 0);
            self.file.read_at(at, &mut window)?;
            // Positions whose header does not fit into this window are looked at in the next.
            let last_window = at + to_u64(size) == limit;
            let positions = if last_window { size } else { size - HEADER_SIZE + 1 };
            let mut index = 0;
            while index < positions {
                let Some(claim) = self.claim(&window[index..], at + to_u64(index), &mut found.exhausted)?
                else {
                    if found.exhausted {
                        return Ok(found);
                    }
                    index += 1;
                    continue;
                };
                let position = at + to_u64(index);
                let end_position = position + claim.size;
                row.meet(position, &claim);
                found.batch_count += 1;
                found.record_count += claim.record_count;
                found.valid_bytes += claim.size;
                if claim.is_barrier && found.barrier.is_none_or(|lowest| claim.base_offset < lowest) {
                    found.barrier = Some(claim.base_offset);
                }
                match &mut found.behind {
                    Some(behind) => {
                        behind.base_offset = behind.base_offset.min(claim.base_offset);
                        behind.end_offset = behind.end_offset.max(claim.next_offset);
                        behind.end_position = end_position;
                    }
                    none => {
                        *none = Some(ValidBehind {
                            position,
                            base_offset: claim.base_offset,
                            end_offset: claim.next_offset,
                            end_position,
                        });
                    }
                }
                let next = usize::try_from(claim.size).unwrap_or(usize::MAX).saturating_add(index);
                if next >= positions {
                    at = position + claim.size;
                    continue 'windows;
                }
                index = next;
            }
            at += to_u64(positions);
        }
        Ok(found)
    }

    /// What stands at `position`, if it is a valid batch or old message of an offset that may follow.
    fn claim(
        &mut self,
        header: &[u8],
        position: u64,
        exhausted: &mut bool,
    ) -> Result<Option<Claim>, R::Error> {
        let Some(&magic) = header.get(16) else { return Ok(None) };
        let (crc_from, min_size) = match magic {
            2 => (21_u64, HEADER_SIZE),
            0 | 1 => (16, OLD_FRAME_MIN),
            _ => return Ok(None),
        };
        if header.len() < min_size {
            return Ok(None);
        }
        let Ok(length) = u64::try_from(be_i32(header, 8)) else { return Ok(None) };
        let size = length + 12;
        if size < to_u64(min_size) || size > self.end - position {
            return Ok(None);
        }
        let Some(base_offset) = Offset::new(be_i64(header, 0)) else { return Ok(None) };
        // A compressed control batch is no valid batch (law B9).
        if magic == 2 && header[22] & 0x20 != 0 && header[22] & 0x07 != 0 {
            return Ok(None);
        }
        let delta = if magic == 2 { i64::from(be_i32(header, 23)) } else { 0 };
        if base_offset < self.place.next_offset || delta < 0 {
            return Ok(None);
        }
        let Some(next_offset) = base_offset.checked_add(delta).and_then(Offset::next) else {
            return Ok(None);
        };
        if self.crc_budget < size {
            *exhausted = true;
            return Ok(None);
        }
        self.crc_budget -= size;
        let (algorithm, stored) = if magic == 2 {
            (crc_fast::CrcAlgorithm::Crc32Iscsi, be_u32(header, 17))
        } else {
            (crc_fast::CrcAlgorithm::Crc32IsoHdlc, be_u32(header, 12))
        };
        let crc = crc(self.file, algorithm, position + crc_from, position + size)?;
        if crc != u64::from(stored) {
            return Ok(None);
        }
        let is_control = magic == 2 && header[22] & 0x20 != 0;
        let record_count = match magic {
            _ if is_control => 0,
            2 => u64::try_from(be_i32(header, 57)).unwrap_or(0),
            _ => 1,
        };
        let is_barrier = is_control && self.is_barrier(position, size)?;
        Ok(Some(Claim { size, base_offset, next_offset, record_count, is_barrier }))
    }

    /// Whether a whole control batch is the barrier. One that is larger than any that was ever built is not looked into.
    fn is_barrier(&mut self, position: u64, size: u64) -> Result<bool, R::Error> {
        if size > to_u64(WINDOW_SIZE) {
            return Ok(false);
        }
        let mut bytes = vec![0; window_size(size)];
        self.file.read_at(position, &mut bytes)?;
        Ok(RecordBatch::parse_without_crc(&bytes).is_ok_and(|batch| batch.is_barrier()))
    }
}

/// A CRC over a range of a file, in windows.
pub(crate) fn crc<R: TailRead>(
    file: &mut R,
    algorithm: crc_fast::CrcAlgorithm,
    from: u64,
    end: u64,
) -> Result<u64, R::Error> {
    let mut digest = crc_fast::Digest::new(algorithm);
    let mut window = vec![0_u8; window_size(end.saturating_sub(from))];
    let mut at = from;
    while at < end {
        let size = window_size(end - at);
        file.read_at(at, &mut window[..size])?;
        digest.update(&window[..size]);
        at += to_u64(size);
    }
    Ok(digest.finalize())
}

fn be_i32(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be_i64(bytes: &[u8], at: usize) -> i64 {
    let mut raw = [0_u8; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    i64::from_be_bytes(raw)
}

#[cfg(test)]
mod tests;
