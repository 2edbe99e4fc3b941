//! The hot tail: recently appended bytes in memory, where most readers find what they ask for.
//!
//! [`HotTail`] is what a partition shows to readers on any thread: the published view, and the bytes from some offset on
//! to the log end. A reader takes the view and the bytes at one moment, so it never puts bytes of one history under the
//! bounds of another. What it is not given here, it asks the log for: below the first offset that is held here the disk
//! has everything, so a reader goes from the disk to the tail without a gap.
//!
//! The tails of many partitions share one [`TailMemory`], and whoever appends pushes out the oldest bytes of all of them.
//! Bytes are held as they came; only small appends are copied, once, so that what a reader gets is not made of crumbs.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::{BufMut, Bytes, BytesMut};
use weir_format::{Offset, header_of};
use weir_segment::{AbortedTransaction, TransactionIndex, batch_info};

use crate::unified_log::Read;
use crate::view::{Isolation, LogView};

/// Appends below this size are gathered in a chunk, in bytes; others are held as they came.
const SMALL: usize = 8 << 10;

/// Capacity of the first chunk of small appends, in bytes; each full one is followed by one of twice its size.
const FIRST_CHUNK: usize = 4 << 10;

/// Capacity of the largest chunk of small appends, in bytes.
const LARGEST_CHUNK: usize = 64 << 10;

/// How far apart the batches are that a chunk remembers the places of, in bytes.
const MARK_EVERY: usize = 4 << 10;

/// What a chunk costs besides its bytes, about.
const CHUNK_OVERHEAD: usize = 256;

/// Aborted transactions that are noted before readers get their turn.
const NOTED_AT_ONCE: usize = 256;

/// Dead entries of the queue that are kept before it is swept.
const SWEEP_AFTER: usize = 1_024;

/// How many bytes the tails that share it may hold together. A handle: clones share the bound.
#[derive(Clone)]
pub struct TailMemory {
    shared: Arc<MemoryShared>,
}

struct MemoryShared {
    max_bytes: u64,
    used: AtomicU64,
    chunk_count: AtomicU64,
    /// The chunks of all tails, the oldest first; those that are gone already do no harm.
    queue: Mutex<VecDeque<Queued>>,
}

struct Queued {
    tail: Weak<Mutex<State>>,
    number: u64,
}

impl TailMemory {
    /// Room for `max_bytes`; with 0, nothing is held.
    #[must_use]
    pub fn new(max_bytes: u64) -> TailMemory {
        let queue = Mutex::default();
        let (used, chunk_count) = (AtomicU64::new(0), AtomicU64::new(0));
        TailMemory { shared: Arc::new(MemoryShared { max_bytes, used, chunk_count, queue }) }
    }

    /// The bound, in bytes.
    #[must_use]
    pub fn max_bytes(&self) -> u64 {
        self.shared.max_bytes
    }

    /// What is held now, in bytes, with what it costs to hold it. Above the bound only while an append is under way.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    fn charge(&self, size: u64) {
        self.shared.used.fetch_add(size, Ordering::Relaxed);
        self.shared.chunk_count.fetch_add(1, Ordering::Relaxed);
    }

    fn release(&self, size: u64) {
        self.shared.used.fetch_sub(size, Ordering::Relaxed);
        self.shared.chunk_count.fetch_sub(1, Ordering::Relaxed);
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Queued>> {
        self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a new chunk, and lets the oldest ones go until everything fits. No tail may be locked by the caller.
    fn settle(&self, tail: &Arc<Mutex<State>>, number: u64) {
        let mut queue = self.queue();
        queue.push_back(Queued { tail: Arc::downgrade(tail), number });
        let live = usize::try_from(self.shared.chunk_count.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        if queue.len() > live.saturating_mul(2).saturating_add(SWEEP_AFTER) {
            queue.retain(Queued::is_live);
        }
        while self.used() > self.shared.max_bytes {
            let Some(oldest) = queue.pop_front() else { return };
            if let Some(tail) = oldest.tail.upgrade() {
                lock(&tail).drop_up_to(oldest.number);
            }
        }
    }
}

impl Queued {
    fn is_live(&self) -> bool {
        let Some(tail) = self.tail.upgrade() else { return false };
        let state = lock(&tail);
        state.chunks.front().is_some_and(|first| first.number <= self.number)
    }
}

impl fmt::Debug for TailMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TailMemory")
            .field("max_bytes", &self.max_bytes())
            .field("used", &self.used())
            .finish()
    }
}

/// What a partition shows to readers on any thread. A handle: clones show the same.
///
/// It is empty, and answers nothing, until a log is attached to it
/// ([`UnifiedLog::attach_tail`](crate::UnifiedLog::attach_tail)), and again when that is closed.
#[derive(Clone)]
pub struct HotTail {
    state: Arc<Mutex<State>>,
}

struct State {
    /// `None`: there is no log.
    view: Option<Arc<LogView>>,
    /// How many logs were attached so far.
    attached: u64,
    memory: TailMemory,
    // INVARIANT: the chunks hold every batch of the log from `start` to `end`, in order.
    start: Offset,
    end: Offset,
    chunks: VecDeque<Chunk>,
    next_number: u64,
    /// Transactions whose ABORT or barrier lies at or behind `start`, or was not far before it.
    aborted: TransactionIndex,
    /// Those of the offsets at which they end that are barriers.
    barriers: BTreeSet<Offset>,
}

/// Whole batches that were appended one behind the other.
struct Chunk {
    number: u64,
    base_offset: Offset,
    next_offset: Offset,
    held: Held,
    charged: u64,
    /// Base offset and position of some batches, but not of the first.
    marks: Vec<(Offset, usize)>,
}

enum Held {
    Whole(Bytes),
    /// Small appends are copied behind these until it is full.
    Growing(BytesMut),
}

/// Bytes of one chunk, from the start of a batch on.
struct Piece {
    bytes: Bytes,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn to_u64(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// Size, base offset and next offset of the batch, or message of magic 0 or 1, that stands first in bytes of the log.
fn first_of(bytes: &[u8]) -> Option<(usize, Offset, Offset)> {
    if let Ok(header) = header_of(bytes) {
        return Some((header.size(), header.base_offset(), header.next_offset()));
    }
    let info = batch_info(bytes, 0).ok()?;
    Some((usize::try_from(info.size).ok()?, info.base_offset, info.next_offset))
}

impl HotTail {
    /// One without a log.
    #[must_use]
    pub fn new() -> HotTail {
        let state = State {
            view: None,
            attached: 0,
            memory: TailMemory::new(0),
            start: Offset::ZERO,
            end: Offset::ZERO,
            chunks: VecDeque::new(),
            next_number: 0,
            aborted: TransactionIndex::new(),
            barriers: BTreeSet::new(),
        };
        HotTail { state: Arc::new(Mutex::new(state)) }
    }

    /// What readers may see; `None` without a log.
    #[must_use]
    pub fn view(&self) -> Option<Arc<LogView>> {
        lock(&self.state).view.clone()
    }

    /// The first offset from which on everything is here.
    #[must_use]
    pub fn start_offset(&self) -> Offset {
        lock(&self.state).start
    }

    /// What [`UnifiedLog::read`](crate::UnifiedLog::read) would answer, if all that it takes is here; `None`: ask the log,
    /// also for offsets that are out of range.
    ///
    /// A read may end where bytes that were appended together end, though more would fit.
    ///
    /// Cost: no copy if at least half of `max_bytes` were appended together, else one of what is returned. No disk. The
    /// lock is held for a search and a handle for each append among them.
    #[must_use]
    pub fn read(
        &self,
        from: Offset,
        max_bytes: usize,
        isolation: Isolation,
        at_least_one: bool,
    ) -> Option<Read> {
        let state = lock(&self.state);
        let view = Arc::clone(state.view.as_ref()?);
        if from < view.log_start_offset || from < state.start || from > state.end {
            return None;
        }
        let end = view.end_for(isolation);
        let nothing = Read { bytes: Bytes::new(), view, aborted: Vec::new() };
        if from >= end {
            return Some(nothing);
        }
        let (pieces, upper) = state.pieces(from, end, max_bytes);
        let mut aborted = Vec::new();
        let mut barriers = BTreeSet::new();
        if isolation == Isolation::Committed {
            state.aborted.collect(from, upper, &mut aborted);
            let ends = aborted.iter().map(|entry| entry.last_offset);
            barriers.extend(ends.filter(|at| state.barriers.contains(at)));
        }
        drop(state);
        let Some(found) = gather(&pieces, from, end, max_bytes, at_least_one) else { return Some(nothing) };
        let (bytes, aborted) = crate::unified_log::bounded_by_barriers(
            found.bytes,
            aborted,
            found.first_base_offset,
            found.next_offset,
            |at| barriers.contains(&at),
        );
        Some(Read { bytes, aborted, ..nothing })
    }
}

impl Default for HotTail {
    fn default() -> HotTail {
        HotTail::new()
    }
}

impl fmt::Debug for HotTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("HotTail")
            .field("start", &state.start)
            .field("end", &state.end)
            .finish_non_exhaustive()
    }
}

struct Gathered {
    bytes: Bytes,
    first_base_offset: Offset,
    next_offset: Offset,
}

/// The whole batches below `end` in these pieces, from the first that holds `from` or a higher offset: see
/// [`HotTail::read`].
fn gather(
    pieces: &[Piece],
    from: Offset,
    end: Offset,
    max_bytes: usize,
    at_least_one: bool,
) -> Option<Gathered> {
    let mut parts: Vec<Bytes> = Vec::new();
    let (mut total, mut first_base_offset, mut next_offset) = (0_usize, None, from);
    for piece in pieces {
        let (mut start, mut at, mut is_full) = (0, 0, false);
        // The log has checked these headers.
        while let Some((size, base_offset, next)) = first_of(piece.bytes.get(at..).unwrap_or_default()) {
            if at + size > piece.bytes.len() {
                // The copy of a chunk that grows ends within a batch.
                is_full = true;
                break;
            }
            if next <= from {
                at += size;
                start = at;
                continue;
            }
            let taken = total + (at - start);
            let fits = taken.saturating_add(size) <= max_bytes;
            if next > end || !(fits || (taken == 0 && at_least_one)) {
                is_full = true;
                break;
            }
            first_base_offset.get_or_insert(base_offset);
            next_offset = next;
            at += size;
        }
        total += at - start;
        if at > start {
            parts.push(piece.bytes.slice(start..at));
        }
        // What was appended together goes out without a copy, if that is not too little.
        if is_full || total >= max_bytes || (parts.len() == 1 && total >= max_bytes / 2) {
            break;
        }
    }
    let first_base_offset = first_base_offset?;
    let bytes = match <[Bytes; 1]>::try_from(parts) {
        Ok([one]) => one,
        Err(parts) => {
            let mut all = BytesMut::with_capacity(total);
            parts.iter().for_each(|part| all.put_slice(part));
            all.freeze()
        }
    };
    Some(Gathered { bytes, first_base_offset, next_offset })
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match &self.held {
            Held::Whole(bytes) => bytes,
            Held::Growing(bytes) => bytes,
        }
    }

    /// Where to look for `offset`: the start of a batch that is not behind it.
    fn floor(&self, offset: Offset) -> usize {
        let count = self.marks.partition_point(|(base, _)| *base <= offset);
        count.checked_sub(1).and_then(|last| self.marks.get(last)).map_or(0, |(_, position)| *position)
    }

    /// Remembers the places of batches from `position` on.
    fn mark_from(&mut self, position: usize) {
        let mut at = position;
        let mut last = self.marks.last().map_or(0, |(_, position)| *position);
        let mut found = Vec::new();
        while let Some((size, base_offset, _)) = first_of(self.bytes().get(at..).unwrap_or_default()) {
            if at >= last + MARK_EVERY {
                found.push((base_offset, at));
                last = at;
            }
            at += size;
        }
        self.marks.append(&mut found);
    }
}

impl State {
    /// What may be returned for `from`, and an offset behind all of it.
    fn pieces(&self, from: Offset, end: Offset, max_bytes: usize) -> (Vec<Piece>, Offset) {
        let mut pieces = Vec::new();
        let (mut total, mut upper) = (0_usize, from);
        let first = self.chunks.partition_point(|chunk| chunk.next_offset <= from);
        for chunk in self.chunks.range(first..) {
            if chunk.base_offset >= end {
                break;
            }
            let start = if pieces.is_empty() { chunk.floor(from) } else { 0 };
            let bytes = match &chunk.held {
                Held::Whole(bytes) => bytes.slice(start..),
                Held::Growing(bytes) => {
                    // What is passed over lies within one mark; behind it one batch, and what was asked for.
                    let most = max_bytes.saturating_add(MARK_EVERY + 2 * SMALL);
                    let rest = bytes.get(start..).unwrap_or_default();
                    Bytes::copy_from_slice(rest.get(..most).unwrap_or(rest))
                }
            };
            total = total.saturating_add(bytes.len());
            upper = chunk.next_offset;
            pieces.push(Piece { bytes });
            // The first may have been for what is passed over alone.
            if total >= max_bytes.saturating_add(MARK_EVERY + SMALL) && pieces.len() > 1 {
                break;
            }
        }
        (pieces, upper)
    }

    fn drop_up_to(&mut self, number: u64) {
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.number <= number) {
            self.memory.release(chunk.charged);
            self.start = chunk.next_offset;
        }
        // Rarely, so that it costs nothing for each: entries that no reader here can need.
        let entries = self.aborted.entries();
        let dead = entries.partition_point(|entry| entry.last_offset < self.start);
        if dead > 0 && dead >= entries.len() / 2 {
            let mut kept = TransactionIndex::new();
            for entry in entries.get(dead..).unwrap_or_default() {
                kept.append(*entry);
            }
            self.aborted = kept;
            self.barriers = self.barriers.split_off(&self.start);
        }
    }

    fn clear(&mut self, end: Offset) {
        for chunk in self.chunks.drain(..) {
            self.memory.release(chunk.charged);
        }
        (self.start, self.end) = (end, end);
        self.aborted = TransactionIndex::new();
        self.barriers.clear();
    }

    /// Takes bytes behind the others; the number of the chunk that was made for them, if one was.
    fn push(&mut self, bytes: &Bytes, next_offset: Offset) -> Option<u64> {
        let before = self.end;
        self.end = next_offset;
        let Some((_, base_offset, _)) = first_of(bytes) else {
            unreachable!("what was appended are batches")
        };
        let most = self.memory.max_bytes();
        if to_u64(bytes.len() + CHUNK_OVERHEAD) > most {
            self.clear(next_offset);
            return None;
        }
        if self.chunks.is_empty() {
            self.start = before;
        }
        let mut capacity = FIRST_CHUNK;
        if bytes.len() < SMALL
            && let Some(Chunk { held: Held::Growing(grown), .. }) = self.chunks.back()
        {
            if grown.capacity() - grown.len() >= bytes.len() {
                self.grow(bytes, next_offset);
                return None;
            }
            capacity = grown.capacity().saturating_mul(2).min(LARGEST_CHUNK);
        }
        if let Some(last) = self.chunks.back_mut()
            && let Held::Growing(grown) = &mut last.held
        {
            last.held = Held::Whole(std::mem::take(grown).freeze());
        }
        let (held, size) = if bytes.len() < SMALL {
            let capacity = capacity.max(bytes.len());
            let capacity = if to_u64(capacity + CHUNK_OVERHEAD) > most { bytes.len() } else { capacity };
            let mut grown = BytesMut::with_capacity(capacity);
            grown.put_slice(bytes);
            (Held::Growing(grown), capacity)
        } else {
            (Held::Whole(bytes.clone()), bytes.len())
        };
        let charged = to_u64(size.saturating_add(CHUNK_OVERHEAD));
        self.memory.charge(charged);
        let number = self.next_number;
        self.next_number += 1;
        let mut chunk = Chunk { number, base_offset, next_offset, held, charged, marks: Vec::new() };
        chunk.mark_from(0);
        self.chunks.push_back(chunk);
        Some(number)
    }

    /// Copies bytes into the last chunk, which has room for them.
    fn grow(&mut self, bytes: &Bytes, next_offset: Offset) {
        let Some(last) = self.chunks.back_mut() else { return };
        let Held::Growing(grown) = &mut last.held else { return };
        let position = grown.len();
        grown.put_slice(bytes);
        last.next_offset = next_offset;
        last.mark_from(position);
    }
}

/// The log's side of a [`HotTail`]. Without one that is attached it holds nothing. When it is dropped the tail is empty.
pub(crate) struct TailWriter {
    tail: HotTail,
    attached: u64,
}

impl TailWriter {
    /// Shows a log that is in this state, with nothing of it in memory.
    pub(crate) fn attach(tail: HotTail, memory: TailMemory, view: Arc<LogView>, end: Offset) -> TailWriter {
        let mut state = lock(&tail.state);
        state.clear(end);
        state.memory = memory;
        state.view = Some(view);
        state.attached += 1;
        let attached = state.attached;
        drop(state);
        TailWriter { tail, attached }
    }

    pub(crate) fn reader(&self) -> &HotTail {
        &self.tail
    }

    /// From here on readers are bounded by this view.
    pub(crate) fn publish(&self, view: &Arc<LogView>) {
        lock(&self.tail.state).view = Some(Arc::clone(view));
    }

    /// Takes what was appended, which is whole batches behind all others; `next_offset` is the log end. Nobody reads it
    /// before a view says so.
    pub(crate) fn push(&self, bytes: &Bytes, next_offset: Offset) {
        let mut state = lock(&self.tail.state);
        let number = state.push(bytes, next_offset);
        let memory = state.memory.clone();
        drop(state);
        if let Some(number) = number {
            memory.settle(&self.tail.state, number);
        }
    }

    /// Takes note of transactions that were aborted by what was appended, `at_barrier` or by their ABORT.
    ///
    /// A barrier may bring as many as there are producers: no reader waits for all of them. It needs none before a view
    /// says that their end may be read.
    pub(crate) fn push_aborted(&self, entries: &[AbortedTransaction], at_barrier: bool) {
        for entries in entries.chunks(NOTED_AT_ONCE) {
            let mut state = lock(&self.tail.state);
            if state.memory.max_bytes() == 0 {
                return;
            }
            for entry in entries {
                state.aborted.append(*entry);
                if at_barrier {
                    state.barriers.insert(entry.last_offset);
                }
            }
        }
    }

    /// Lets everything go: the log ends, or is going to end, at `end`.
    pub(crate) fn clear(&self, end: Offset) {
        lock(&self.tail.state).clear(end);
    }
}

impl Drop for TailWriter {
    fn drop(&mut self) {
        let mut state = lock(&self.tail.state);
        // Another log may have been attached meanwhile.
        if state.attached == self.attached {
            state.view = None;
            let end = state.end;
            state.clear(end);
        }
    }
}

impl fmt::Debug for TailWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tail.fmt(f)
    }
}
