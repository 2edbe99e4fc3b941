//! One file: what is durable of it, what a reader sees, and what a crash may make of the difference.

use std::ops::Range;

use bytes::Bytes;

use super::fate::{Chance, DataFate, SECTOR_SIZE};
use super::{place, size_of};

/// A file, by whatever names.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    /// What was acknowledged as durable.
    durable: Vec<u8>,
    /// What the page cache held at the last sync, if that is something else: a failed sync leaves pages that count as
    /// clean, and a sync of the data leaves a truncation for later.
    cached: Option<Vec<u8>>,
    /// What was changed since, by number, in order.
    unsynced: Vec<(u64, Change)>,
    // INVARIANT: `cached`, or else `durable`, after all of `unsynced`.
    live: Vec<u8>,
    /// Sectors that cannot be read.
    pub(super) bad: Vec<Range<u64>>,
    pub(super) modified_ns: u64,
}

/// A change of a file.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write {
        at: u64,
        bytes: Bytes,
    },
    /// A new length, shorter or longer.
    Length(u64),
    /// Space allocated ahead: at least this long.
    Grow(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write { at, bytes: new } => put(bytes, *at, new),
            Change::Length(size) => bytes.resize(place(*size), 0),
            Change::Grow(size) => bytes.resize(bytes.len().max(place(*size)), 0),
        }
    }
}

/// Overwrites, with zeros in a gap before `at`.
fn put(file: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let (start, end) = (place(at), place(at).saturating_add(bytes.len()));
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}

/// The numbers of the sectors that a range touches.
fn sectors(at: u64, size: u64) -> Range<u64> {
    if size == 0 { 0..0 } else { at / SECTOR_SIZE..at.saturating_add(size).div_ceil(SECTOR_SIZE) }
}

/// A disk that takes whole sectors from a page cache.
struct Platter<'a> {
    cache: Vec<u8>,
    disk: Vec<u8>,
    /// Length of the file on the disk; `disk` is as long or shorter.
    end: u64,
    chance: &'a mut Chance,
}

impl Platter<'_> {
    /// One sector as it is in the cache, with zeros behind the end of the file.
    fn write_sector(&mut self, sector: u64) {
        let start = place(sector * SECTOR_SIZE);
        let end = place((sector + 1) * SECTOR_SIZE);
        let cached = self.cache.get(start..end.min(self.cache.len())).unwrap_or_default();
        if self.disk.len() < start + cached.len() {
            self.disk.resize(start + cached.len(), 0);
        }
        let end = end.min(self.disk.len());
        if start < end {
            self.disk[start..end].fill(0);
            self.disk[start..start + cached.len()].copy_from_slice(cached);
        }
    }

    /// A change of the cache, of which the disk gets what its fate says.
    fn settle(&mut self, change: &Change, fate: DataFate) {
        change.apply(&mut self.cache);
        let (fate, scattered) = match fate {
            DataFate::Mixed => {
                let fates = [DataFate::Kept, DataFate::Dropped, DataFate::Cut, DataFate::Zeros];
                match fates.get(place(self.chance.below(5))) {
                    Some(fate) => (*fate, false),
                    None => (DataFate::Cut, true),
                }
            }
            fate => (fate, false),
        };
        match change {
            Change::Write { at, bytes } if scattered => self.scatter(*at, size_of(bytes)),
            Change::Write { at, bytes } => self.settle_write(*at, size_of(bytes), fate),
            Change::Length(size) => {
                if self.is_there(fate) {
                    self.disk.truncate(place(*size));
                    self.end = *size;
                }
            }
            Change::Grow(size) => {
                if self.is_there(fate) {
                    self.end = self.end.max(*size);
                }
            }
        }
    }

    fn is_there(&mut self, fate: DataFate) -> bool {
        match fate {
            DataFate::Dropped => false,
            DataFate::Kept | DataFate::Zeros => true,
            DataFate::Cut | DataFate::Mixed => self.chance.coin(),
        }
    }

    fn settle_write(&mut self, at: u64, size: u64, fate: DataFate) {
        let end = at.saturating_add(size);
        let landed = match fate {
            DataFate::Dropped => return,
            DataFate::Zeros => 0,
            DataFate::Kept | DataFate::Mixed => size,
            DataFate::Cut => {
                // A boundary inside the write, or its start where there is none.
                let (first, last) = (at / SECTOR_SIZE + 1, end / SECTOR_SIZE);
                if first > last {
                    return;
                }
                (first + self.chance.below(last - first + 1)) * SECTOR_SIZE - at
            }
        };
        for sector in sectors(at, landed) {
            self.write_sector(sector);
        }
        let reached = if fate == DataFate::Zeros { end } else { at.saturating_add(landed) };
        if size > 0 {
            self.end = self.end.max(reached);
        }
    }

    /// Each sector by itself.
    fn scatter(&mut self, at: u64, size: u64) {
        let end = at.saturating_add(size);
        for sector in sectors(at, size) {
            if self.chance.coin() {
                self.write_sector(sector);
                self.end = self.end.max(end.min((sector + 1) * SECTOR_SIZE));
            }
        }
        // The length is written by itself, too.
        if size > 0 && self.chance.coin() {
            self.end = self.end.max(end);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.disk.resize(place(self.end), 0);
        self.disk
    }
}

impl Inode {
    /// An empty file.
    pub(super) fn empty(modified_ns: u64) -> Inode {
        Inode { modified_ns, ..Inode::default() }
    }

    /// A file that durably holds these bytes.
    pub(super) fn durably(bytes: &[u8]) -> Inode {
        Inode { durable: bytes.to_vec(), live: bytes.to_vec(), ..Inode::default() }
    }

    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn change(&mut self, number: u64, change: Change) {
        change.apply(&mut self.live);
        self.unsynced.push((number, change));
    }

    /// A write that was in flight: the disk may have it, no reader saw it.
    pub(super) fn may_have(&mut self, number: u64, at: u64, bytes: Bytes) {
        self.unsynced.push((number, Change::Write { at, bytes }));
    }

    /// Changes a byte wherever it is.
    pub(super) fn flip(&mut self, position: u64, bits: u8) {
        for bytes in
            [Some(&mut self.live), Some(&mut self.durable), self.cached.as_mut()].into_iter().flatten()
        {
            if let Some(byte) = bytes.get_mut(place(position)) {
                *byte ^= bits;
            }
        }
    }

    fn platter<'a>(&mut self, chance: &'a mut Chance) -> Platter<'a> {
        let disk = std::mem::take(&mut self.durable);
        let cache = self.cached.take().unwrap_or_else(|| disk.clone());
        Platter { end: size_of(&disk), cache, disk, chance }
    }

    fn take_covered(&mut self, covers: u64) -> Vec<(u64, Change)> {
        let covered = self.unsynced.iter().take_while(|(number, _)| *number <= covers).count();
        self.unsynced.drain(..covered).collect()
    }

    /// The changes up to a number are durable; without `everything`, a file does not get shorter by it.
    pub(super) fn sync(&mut self, covers: u64, everything: bool, chance: &mut Chance) {
        let changes = self.take_covered(covers);
        let mut platter = self.platter(chance);
        // The last truncation, and the shortest length that the file had.
        let mut shortened: Option<(u64, u64)> = None;
        for (number, change) in changes {
            match change {
                Change::Length(size) if !everything && size < size_of(&platter.cache) => {
                    change.apply(&mut platter.cache);
                    shortened = Some((number, shortened.map_or(size, |(_, shortest)| shortest.min(size))));
                }
                Change::Length(size) if !everything => platter.settle(&Change::Grow(size), DataFate::Kept),
                change => platter.settle(&change, DataFate::Kept),
            }
        }
        if let Some((_, shortest)) = shortened {
            // What was cut off and is inside the file again, is zeros there or was written.
            let again = size_of(&platter.cache).saturating_sub(shortest);
            for sector in sectors(shortest, again) {
                platter.write_sector(sector);
            }
        }
        let mut cache = std::mem::take(&mut platter.cache);
        self.durable = platter.finish();
        if let Some((number, _)) = shortened
            && let Some(longer) = self.durable.get(cache.len()..).filter(|longer| !longer.is_empty())
        {
            self.unsynced.insert(0, (number, Change::Length(size_of(&cache))));
            cache.extend_from_slice(longer);
        }
        self.cached = Some(cache).filter(|cached| *cached != self.durable);
    }

    /// The pages of the changes up to a number count as clean, and never reach the disk.
    pub(super) fn lose(&mut self, covers: u64) {
        let changes = self.take_covered(covers);
        let mut cache = self.cached.take().unwrap_or_else(|| self.durable.clone());
        for (_, change) in changes {
            change.apply(&mut cache);
        }
        self.cached = Some(cache).filter(|cached| *cached != self.durable);
    }

    /// What is on the disk after a power cut.
    pub(super) fn crash(&mut self, fate: DataFate, chance: &mut Chance) {
        let changes = std::mem::take(&mut self.unsynced);
        let mut platter = self.platter(chance);
        for (_, change) in &changes {
            platter.settle(change, fate);
        }
        let left = platter.finish();
        self.live.clone_from(&left);
        self.durable = left;
        self.cached = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64, fill: u8, size: usize) -> Change {
        Change::Write { at, bytes: Bytes::from(vec![fill; size]) }
    }

    fn file(changes: &[Change]) -> Inode {
        let mut inode = Inode::durably(&[b'a'; 1_000]);
        for (number, change) in (1..).zip(changes) {
            inode.change(number, change.clone());
        }
        inode
    }

    fn crashed(changes: &[Change], fate: DataFate, seed: u64) -> Vec<u8> {
        let mut inode = file(changes);
        inode.crash(fate, &mut Chance::new(seed));
        assert_eq!(inode.live(), inode.durable());
        inode.live
    }

    #[test]
    fn a_sector_of_two_writes_is_old_or_first_or_second_and_nothing_else() {
        // Both lie in the sector 1,024 to 1,536.
        let changes = [write(1_000, b'b', 100), write(1_100, b'c', 100)];
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..400 {
            let mut left = crashed(&changes, DataFate::Mixed, seed);
            left.resize(1_536, 0);
            let sector = &left[1_024..1_536];
            let old = vec![0; 512];
            let first = [&[b'b'; 76][..], &[0; 436]].concat();
            let second = [&[b'b'; 76][..], &[b'c'; 100], &[0; 336]].concat();
            let which = [old, first, second].iter().position(|known| known == sector);
            seen.insert(which.unwrap_or_else(|| panic!("seed {seed}: {sector:?}")));
        }
        assert_eq!(seen, [0, 1, 2].into());
    }

    #[test]
    fn durable_bytes_become_old_or_new_in_each_sector_and_never_zeros() {
        let changes = [write(100, b'b', 700), write(300, b'c', 400)];
        for fate in [DataFate::Kept, DataFate::Dropped, DataFate::Cut, DataFate::Zeros, DataFate::Mixed] {
            let mut contents = std::collections::BTreeSet::new();
            for seed in 0..100 {
                let left = crashed(&changes, fate, seed);
                assert_eq!(left.len(), 1_000);
                assert!(!left.contains(&0), "{fate:?} {seed}");
                contents.insert(left);
            }
            assert_eq!(contents.len() > 3, fate == DataFate::Mixed, "{fate:?}");
        }
    }

    #[test]
    fn a_sync_of_the_data_does_not_make_a_file_shorter() {
        let mut inode = file(&[Change::Length(10), write(10, b'b', 4)]);
        inode.sync(9, false, &mut Chance::new(0));
        assert_eq!(inode.live(), [&[b'a'; 10][..], b"bbbb"].concat());
        let undone = {
            let mut inode = inode.clone();
            inode.crash(DataFate::Dropped, &mut Chance::new(0));
            inode.live
        };
        // The block that was written has zeros behind the end of the file.
        assert_eq!(undone, [&[b'a'; 10][..], b"bbbb", &[0; 498], &[b'a'; 488]].concat());
        let kept = {
            let mut inode = inode.clone();
            inode.crash(DataFate::Kept, &mut Chance::new(0));
            inode.live
        };
        assert_eq!(kept, inode.live());
        inode.sync(9, true, &mut Chance::new(0));
        inode.crash(DataFate::Dropped, &mut Chance::new(0));
        assert_eq!(inode.live(), [&[b'a'; 10][..], b"bbbb"].concat());
    }

    #[test]
    fn what_a_failed_sync_lost_stays_visible_and_goes_with_its_sector() {
        let mut inode = file(&[write(0, b'b', 10), write(600, b'b', 10)]);
        inode.lose(9);
        inode.change(10, write(20, b'c', 10));
        inode.sync(10, false, &mut Chance::new(0));
        let live = inode.live().to_vec();
        assert_eq!((&live[..10], &live[600..610]), (&[b'b'; 10][..], &[b'b'; 10][..]));
        // The sector that was written again has all that the cache had in it, the other one has nothing of it.
        assert_eq!((&inode.durable()[..10], &inode.durable()[600..610]), (&[b'b'; 10][..], &[b'a'; 10][..]));
        assert_eq!(inode.durable()[20..30], [b'c'; 10]);
    }

    #[test]
    fn space_allocated_ahead_is_there_or_not_and_reads_as_zeros() {
        let changes = [Change::Grow(4_096), write(1_000, b'b', 100)];
        assert_eq!(crashed(&changes, DataFate::Dropped, 0).len(), 1_000);
        let kept = crashed(&changes, DataFate::Kept, 0);
        assert_eq!(kept, [&[b'a'; 1_000][..], &[b'b'; 100], &[0; 2_996]].concat());
        let lengths: std::collections::BTreeSet<usize> =
            (0..50).map(|seed| crashed(&changes, DataFate::Mixed, seed).len()).collect();
        assert!(lengths.len() > 2 && lengths.contains(&4_096), "{lengths:?}");
        // Synced, it is there.
        let mut inode = file(&changes);
        inode.sync(9, false, &mut Chance::new(0));
        inode.crash(DataFate::Dropped, &mut Chance::new(0));
        assert_eq!(inode.live().len(), 4_096);
    }

    #[test]
    fn what_is_live_follows_from_the_changes_whatever_was_synced() {
        for seed in 0..300 {
            let mut chance = Chance::new(seed);
            let mut inode = file(&[]);
            let mut model = vec![b'a'; 1_000];
            for number in 1..30 {
                let at = chance.below(3_000);
                let change = match chance.below(6) {
                    0 => Change::Length(at),
                    1 => Change::Grow(at),
                    _ => write(at, b'b' + u8::try_from(number % 20).unwrap(), place(chance.below(900))),
                };
                change.apply(&mut model);
                inode.change(number, change);
                match chance.below(6) {
                    0 => {
                        inode.sync(number.saturating_sub(chance.below(3)), chance.coin(), &mut Chance::new(1))
                    }
                    1 => inode.lose(number.saturating_sub(chance.below(3))),
                    _ => {}
                }
                assert_eq!(inode.live(), model, "seed {seed}");
                let mut cache = inode.cached.clone().unwrap_or_else(|| inode.durable.clone());
                inode.unsynced.iter().for_each(|(_, change)| change.apply(&mut cache));
                assert_eq!(cache, model, "seed {seed}, change {number}");
            }
            inode.sync(99, true, &mut Chance::new(1));
            let mut kept = inode.clone();
            kept.crash(DataFate::Kept, &mut Chance::new(1));
            assert_eq!(kept.live(), inode.durable(), "seed {seed}");
        }
    }
}
