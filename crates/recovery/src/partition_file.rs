//! weir's own file beside each partition: what no file of Kafka's says.
//!
//! It lies in the partition's *side directory*, beside the log directory and never inside it, under the name
//! [`PARTITION_FILE_NAME`], and is replaced durably as a whole. It holds
//!
//! * the offsets of all barriers below a *checked* offset, each marked if a transaction was aborted at it,
//! * what the transaction index of each segment says below an *indexed* offset, since a load from a snapshot does not see
//!   the batches that would tell,
//! * offset and CRC of every producer snapshot that weir wrote (a snapshot that is not named here is not loaded: a Kafka
//!   that does not know the barrier writes snapshots that survive it),
//! * while a cut of the log may not have reached the recovery-point checkpoint: the lower recovery point.
//!
//! # Bytes
//!
//! Text, one fact a line, in this order, each line ended by a line feed:
//!
//! ```text
//! weir-partition 2
//! checked 54
//! indexed 54
//! barrier 31
//! barrier 53 aborted
//! transactions 31 1 53 0c1d2e3f
//! snapshot 54 806d95cc
//! cut 20 60
//! crc32c 1f2e3d4c
//! ```
//!
//! Numbers are decimal, CRCs are eight lower-case hexadecimal digits. The last line holds the CRC-32C of all bytes
//! before it. Barriers, segments and snapshots ascend. `transactions B N L C` says: the first N entries of the transaction
//! index of the segment at B are those below the indexed offset, the last of them has last offset L, and C is the CRC-32C
//! of their bytes; a segment without a line has none. `cut A B` says: a recovery point in (A, B] counts as A.
//! A file that differs in anything is treated as absent; the log is then replayed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_format::Offset;
use weir_segment::TransactionIndex;

/// The name of the file in the side directory.
pub const PARTITION_FILE_NAME: &str = "partition";
/// The most that is read of it.
pub const PARTITION_FILE_LIMIT: usize = 256 << 20;

const FIRST_LINE: &str = "weir-partition 2";

/// What weir knows about a partition beside its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionFile {
    // INVARIANT: `barriers` holds every barrier of the log below `checked`.
    checked: Offset,
    // INVARIANT: `transactions` is right for every entry of a transaction index whose last offset is below `indexed`.
    indexed: Offset,
    barriers: BTreeMap<Offset, BarrierNote>,
    transactions: BTreeMap<Offset, TransactionsNote>,
    snapshots: BTreeMap<Offset, u32>,
    cut: Option<Cut>,
}

/// What is known about a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierNote {
    /// A transaction was still open when it was met and counts as aborted at it.
    pub aborted_transaction: bool,
}

/// What is known about the transaction index of a segment: its first entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TransactionsNote {
    /// How many entries, at least one.
    count: u64,
    /// The last offset of the last of them.
    last_offset: Offset,
    /// CRC-32C of their bytes.
    crc: u32,
}

impl TransactionsNote {
    /// Of the entries below `end`; `None` if there are none.
    fn of(index: &TransactionIndex, end: Offset) -> Option<Self> {
        let mut bytes = Vec::new();
        let (mut count, mut last_offset) = (0, None);
        for entry in index.entries().iter().take_while(|entry| entry.last_offset < end) {
            bytes.extend_from_slice(&entry.encode());
            count += 1;
            last_offset = Some(entry.last_offset);
        }
        Some(Self { count, last_offset: last_offset?, crc: crc32c(&bytes) })
    }
}

/// A cut that the recovery-point checkpoint may not know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Where the log was cut.
    pub to: Offset,
    /// The log end before: no recovery point above it can stem from before the cut.
    pub from: Offset,
}

/// Why bytes are not a partition file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionFileError {
    /// Not text, or the last line is missing.
    #[error("partition file is not whole")]
    NotWhole,
    /// The first line names no version that we know.
    #[error("partition file has an unknown version")]
    Version,
    /// The CRC differs.
    #[error("partition file crc is {found:08x}, stored {stored:08x}")]
    Crc {
        /// As the file says.
        stored: u32,
        /// As computed.
        found: u32,
    },
    /// A line is malformed or out of order.
    #[error("partition file line {line} is malformed")]
    Malformed {
        /// Counted from one.
        line: usize,
    },
}

impl Default for PartitionFile {
    fn default() -> Self {
        Self::new(Offset::ZERO)
    }
}

impl PartitionFile {
    /// Nothing known; no barrier lies below `checked`.
    #[must_use]
    pub fn new(checked: Offset) -> Self {
        Self {
            checked,
            indexed: Offset::ZERO,
            barriers: BTreeMap::new(),
            transactions: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            cut: None,
        }
    }

    /// All barriers below this offset are listed.
    #[must_use]
    pub fn checked(&self) -> Offset {
        self.checked
    }

    /// The barriers, ascending by offset.
    pub fn barriers(&self) -> impl DoubleEndedIterator<Item = (Offset, BarrierNote)> + '_ {
        self.barriers.iter().map(|(&offset, &note)| (offset, note))
    }

    /// Below this offset, what every transaction index holds is known.
    #[must_use]
    pub fn indexed(&self) -> Offset {
        self.indexed
    }

    /// Whether this can be the transaction index of the segment at `base`: below `end` it holds what it held when it was
    /// noted. Nothing is known, and false said, above the indexed offset.
    pub(crate) fn knows_transactions(&self, base: Offset, index: &TransactionIndex, end: Offset) -> bool {
        if end > self.indexed {
            return false;
        }
        TransactionsNote::of(index, self.indexed) == self.transactions.get(&base).copied()
    }

    /// Below `end`, the transaction index of the segment at `base` is this one.
    pub fn note_transactions(&mut self, base: Offset, index: &TransactionIndex, end: Offset) {
        match TransactionsNote::of(index, end) {
            Some(note) => self.transactions.insert(base, note),
            None => self.transactions.remove(&base),
        };
    }

    /// Every segment below `indexed` is noted, with [`PartitionFile::note_transactions`], as its index is on the disk.
    pub fn set_indexed(&mut self, indexed: Offset) {
        self.indexed = indexed;
    }

    /// The transaction indexes from `from` on, and what they say about offsets from there on, will be looked at again.
    fn forget_transactions_from(&mut self, from: Offset) {
        // Where a segment's entries are partly kept, its note is not.
        let broken = self.transactions.iter().find(|(base, note)| **base >= from || note.last_offset >= from);
        let first = broken.map_or(from, |(base, _)| from.min(*base));
        self.transactions.split_off(&first);
        self.indexed = self.indexed.min(first);
    }

    /// Every transaction index will be looked at again.
    pub(crate) fn forget_transactions(&mut self) {
        self.forget_transactions_from(Offset::ZERO);
    }

    /// Whether the batch at `offset` is a barrier at which a transaction was aborted.
    #[must_use]
    pub fn aborted_at_barrier(&self, offset: Offset) -> bool {
        self.barriers.get(&offset).is_some_and(|note| note.aborted_transaction)
    }

    /// Offset and CRC of the snapshots that weir wrote, ascending by offset.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = (Offset, u32)> + '_ {
        self.snapshots.iter().map(|(&offset, &crc)| (offset, crc))
    }

    /// The snapshots that a replay up to `limit` may start from, ascending, where the first segment begins at `first`.
    ///
    /// None from before the first segment: the batches in between are gone. None above the checked offset: the barriers
    /// below it would not be known (law B7).
    pub(crate) fn usable_snapshots(
        &self,
        first: Offset,
        limit: Offset,
    ) -> impl DoubleEndedIterator<Item = (Offset, u32)> + '_ {
        let limit = limit.min(self.checked);
        self.snapshots().filter(move |&(offset, _)| offset >= first && offset <= limit)
    }

    /// The CRC of the snapshot at `offset`, if weir wrote one there.
    #[must_use]
    pub fn snapshot(&self, offset: Offset) -> Option<u32> {
        self.snapshots.get(&offset).copied()
    }

    /// The cut that the recovery-point checkpoint may not know of.
    #[must_use]
    pub fn cut(&self) -> Option<Cut> {
        self.cut
    }

    /// A recovery point, lowered if it may stem from before the cut: to where the log was cut, or to the newest snapshot
    /// that was written since. What lies below a snapshot was synced before it was named, and a cut forgets all above it.
    #[must_use]
    pub fn effective_recovery_point(&self, checkpoint: Offset) -> Offset {
        match self.cut {
            Some(cut) if checkpoint > cut.to && checkpoint <= cut.from => {
                let synced = self.snapshots.keys().next_back().copied().unwrap_or(cut.to);
                checkpoint.min(synced.max(cut.to))
            }
            _ => checkpoint,
        }
    }

    /// A barrier was met.
    pub fn note_barrier(&mut self, offset: Offset, note: BarrierNote) {
        self.barriers.insert(offset, note);
    }

    /// The bytes from `from` on will be looked at again.
    pub(crate) fn forget_barriers_from(&mut self, from: Offset) {
        self.barriers.split_off(&from);
        self.checked = self.checked.min(from);
    }

    /// Everything below `checked` was looked at.
    pub fn set_checked(&mut self, checked: Offset) {
        self.checked = checked;
    }

    /// A snapshot was written durably.
    pub fn note_snapshot(&mut self, offset: Offset, crc: u32) {
        self.snapshots.insert(offset, crc);
    }

    /// A snapshot is gone or must not be loaded any more.
    pub fn forget_snapshot(&mut self, offset: Offset) {
        self.snapshots.remove(&offset);
    }

    /// The log is about to be cut from `from` to `to`.
    pub fn truncate(&mut self, to: Offset, from: Offset) {
        self.barriers.split_off(&to);
        let above: Vec<Offset> = self.snapshots.keys().copied().filter(|&offset| offset > to).collect();
        for offset in above {
            self.snapshots.remove(&offset);
        }
        self.checked = self.checked.min(to);
        self.forget_transactions_from(to);
        let from = self.cut.map_or(from, |cut| cut.from.max(from));
        let to = self.cut.map_or(to, |cut| cut.to.min(to));
        self.cut = (to < from).then_some(Cut { to, from });
    }

    /// Everything below `durable_end` is synced: a cut below it no longer matters.
    pub fn forget_cut_below(&mut self, durable_end: Offset) {
        if self.cut.is_some_and(|cut| cut.from <= durable_end) {
            self.cut = None;
        }
    }

    /// The recovery-point checkpoint was written since the last cut: whatever it says stems from behind it.
    pub fn forget_cut(&mut self) {
        self.cut = None;
    }

    /// The segments below `start` are gone, and what is known about them with them.
    pub fn delete_below(&mut self, start: Offset) {
        self.barriers = self.barriers.split_off(&start);
        self.transactions = self.transactions.split_off(&start);
        self.snapshots = self.snapshots.split_off(&start);
    }

    /// The bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut text =
            format!("{FIRST_LINE}\nchecked {}\nindexed {}\n", self.checked.get(), self.indexed.get());
        // Writing to a string cannot fail.
        for (offset, note) in &self.barriers {
            let mark = if note.aborted_transaction { " aborted" } else { "" };
            let _infallible = writeln!(text, "barrier {}{mark}", offset.get());
        }
        for (base, note) in &self.transactions {
            let TransactionsNote { count, last_offset, crc } = note;
            let _infallible =
                writeln!(text, "transactions {} {count} {} {crc:08x}", base.get(), last_offset.get());
        }
        for (offset, crc) in &self.snapshots {
            let _infallible = writeln!(text, "snapshot {} {crc:08x}", offset.get());
        }
        if let Some(cut) = self.cut {
            let _infallible = writeln!(text, "cut {} {}", cut.to.get(), cut.from.get());
        }
        let crc = crc32c(text.as_bytes());
        let _infallible = writeln!(text, "crc32c {crc:08x}");
        text.into_bytes()
    }

    /// Reads the bytes of the file.
    ///
    /// # Errors
    /// The bytes differ from what [`PartitionFile::encode`] writes; the caller replays the log.
    pub fn decode(bytes: &[u8]) -> Result<Self, PartitionFileError> {
        let body = bytes.strip_suffix(b"\n").ok_or(PartitionFileError::NotWhole)?;
        let body_size = body.iter().rposition(|&byte| byte == b'\n').ok_or(PartitionFileError::NotWhole)? + 1;
        let (body, last) = bytes.split_at(body_size);
        let last = std::str::from_utf8(last).map_err(|_| PartitionFileError::NotWhole)?;
        let stored = last
            .strip_prefix("crc32c ")
            .and_then(|hex| hex.strip_suffix('\n'))
            .and_then(parse_crc)
            .ok_or(PartitionFileError::NotWhole)?;
        let found = crc32c(body);
        let body = std::str::from_utf8(body).map_err(|_| PartitionFileError::NotWhole)?;
        let mut lines = body.lines().enumerate().map(|(index, line)| (index + 1, line)).peekable();
        // The version comes first, so that a file of a later version is called that and not corrupt.
        if lines.next().map(|(_, line)| line) != Some(FIRST_LINE) {
            return Err(PartitionFileError::Version);
        }
        if stored != found {
            return Err(PartitionFileError::Crc { stored, found });
        }
        let checked = lines
            .next()
            .and_then(|(_, line)| line.strip_prefix("checked "))
            .and_then(parse_offset)
            .ok_or(PartitionFileError::Malformed { line: 2 })?;
        let mut file = Self::new(checked);
        file.indexed = lines
            .next()
            .and_then(|(_, line)| line.strip_prefix("indexed "))
            .and_then(parse_offset)
            .ok_or(PartitionFileError::Malformed { line: 3 })?;
        while let Some((line, rest)) = lines.peek().and_then(|(n, l)| Some((*n, l.strip_prefix("barrier ")?)))
        {
            let malformed = PartitionFileError::Malformed { line };
            let (offset, aborted_transaction) = match rest.strip_suffix(" aborted") {
                Some(offset) => (offset, true),
                None => (rest, false),
            };
            let offset = parse_offset(offset).ok_or(malformed)?;
            if file.barriers.last_key_value().is_some_and(|(&last, _)| last >= offset) {
                return Err(malformed);
            }
            file.barriers.insert(offset, BarrierNote { aborted_transaction });
            lines.next();
        }
        while let Some((line, rest)) =
            lines.peek().and_then(|(n, l)| Some((*n, l.strip_prefix("transactions ")?)))
        {
            let malformed = PartitionFileError::Malformed { line };
            let (base, note) = parse_transactions(rest).ok_or(malformed)?;
            if file.transactions.last_key_value().is_some_and(|(&last, _)| last >= base) {
                return Err(malformed);
            }
            file.transactions.insert(base, note);
            lines.next();
        }
        while let Some((line, rest)) =
            lines.peek().and_then(|(n, l)| Some((*n, l.strip_prefix("snapshot ")?)))
        {
            let malformed = PartitionFileError::Malformed { line };
            let (offset, crc) = rest.split_once(' ').ok_or(malformed)?;
            let (offset, crc) = parse_offset(offset).zip(parse_crc(crc)).ok_or(malformed)?;
            if file.snapshots.last_key_value().is_some_and(|(&last, _)| last >= offset) {
                return Err(malformed);
            }
            file.snapshots.insert(offset, crc);
            lines.next();
        }
        if let Some((line, rest)) = lines.peek().and_then(|(n, l)| Some((*n, l.strip_prefix("cut ")?))) {
            let malformed = PartitionFileError::Malformed { line };
            let (to, from) = rest.split_once(' ').ok_or(malformed)?;
            let (to, from) = parse_offset(to).zip(parse_offset(from)).ok_or(malformed)?;
            if to >= from {
                return Err(malformed);
            }
            file.cut = Some(Cut { to, from });
            lines.next();
        }
        match lines.next() {
            Some((line, _)) => Err(PartitionFileError::Malformed { line }),
            None => Ok(file),
        }
    }
}

/// CRC-32C, as noted for snapshots and for the file itself.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(crc).expect("a 32-bit CRC fits 32 bits")
}

fn parse_transactions(text: &str) -> Option<(Offset, TransactionsNote)> {
    let mut words = text.split(' ');
    let base = parse_offset(words.next()?)?;
    // Written as an offset is: digits alone, and no more than are needed.
    let count = u64::try_from(parse_offset(words.next()?)?.get()).ok().filter(|&count| count > 0)?;
    let last_offset = parse_offset(words.next()?)?;
    let crc = parse_crc(words.next()?)?;
    words.next().is_none().then_some((base, TransactionsNote { count, last_offset, crc }))
}

fn parse_offset(text: &str) -> Option<Offset> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().and_then(Offset::new)
}

fn parse_crc(text: &str) -> Option<u32> {
    if text.len() != 8 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
