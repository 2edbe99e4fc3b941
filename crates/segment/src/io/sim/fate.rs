//! What a crash may do, and what was promised before it.

use std::path::PathBuf;

/// The unit in which a disk keeps or loses what was written, in bytes: each sector has one of the contents that it had
/// since the last sync, whole.
pub const SECTOR_SIZE: u64 = 512;

/// What a crash does to each change of a file since its last sync.
///
/// Whatever it does, an overwrite of durable bytes leaves old or new in each sector, never zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DataFate {
    /// It is there.
    Kept,
    /// It is not there.
    Dropped,
    /// A write is there up to a boundary of 512 bytes; a truncation, or space allocated ahead, by the toss of a coin.
    Cut,
    /// Behind the old end there are zeros where the write was to be; a truncation, or space allocated ahead, is there.
    Zeros,
    /// Any of these, or any choice of its sectors, for each change by itself.
    Mixed,
}

/// What a crash does to each change of a directory since it was last synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameFate {
    /// It is there.
    Kept,
    /// It is not there.
    Undone,
    /// Either, for each change by itself.
    Mixed,
}

/// What a crash leaves of everything that was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CrashPolicy {
    /// Of writes and truncations.
    pub data: DataFate,
    /// Of names.
    pub names: NameFate,
}

impl CrashPolicy {
    /// Everything is there: a process that was killed.
    pub const KEEP_ALL: CrashPolicy = CrashPolicy { data: DataFate::Kept, names: NameFate::Kept };
    /// Nothing is there.
    pub const DROP_ALL: CrashPolicy = CrashPolicy { data: DataFate::Dropped, names: NameFate::Undone };
    /// Every combination.
    pub const ALL: [CrashPolicy; 15] = {
        let data = [DataFate::Kept, DataFate::Dropped, DataFate::Cut, DataFate::Zeros, DataFate::Mixed];
        let names = [NameFate::Kept, NameFate::Undone, NameFate::Mixed];
        let mut all = [CrashPolicy::KEEP_ALL; 15];
        let mut at = 0;
        while at < all.len() {
            all[at] = CrashPolicy { data: data[at % data.len()], names: names[at / data.len()] };
            at += 1;
        }
        all
    };
}

/// Something that was acknowledged as durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The number of the operation that did it; see [`SimDisk::op_count`](super::SimDisk::op_count).
    pub op: u64,
    /// The file or directory.
    pub path: PathBuf,
    /// What is durable of it.
    pub what: Acknowledged,
}

/// What a sync made durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acknowledged {
    /// A file with this size and this sum of its bytes: equal for equal bytes.
    File {
        /// Size in bytes.
        size: u64,
        /// Sum of the bytes.
        sum: u64,
    },
    /// A directory with these names.
    Names(Vec<String>),
}

/// Chance that follows from a seed (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// Goes on from here by what happened.
    pub(super) fn stir(&mut self, what: u64) {
        self.0 ^= what;
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}
