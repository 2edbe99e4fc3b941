//! The end of the active segment while it grows: gathered, written in blocks, synced in groups.
//!
//! What is appended is copied once into an aligned buffer of up to 256 KiB, or taken as it is, and goes out in writes that
//! end at a border of [`BLOCK_SIZE`], as many at a time as the queue takes: full ones at once, so that the disk works
//! while more is gathered. The last block, which is not full, goes out when somebody flushes. The next write that contains
//! it waits until it was reaped (D11), and takes along what arrives meanwhile. A file that is written past the page cache
//! gets that block again from its start; one that is not gets what is new.
//!
//! A write in flight is a frozen copy: nothing of it changes before it was reaped.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use weir_format::Offset;

use crate::io::buffer::{BufferPool, PoolBuffer};
use crate::io::{At, BLOCK_SIZE, Done, FileId, Io, IoError, Op, Operation, SyncKind, Ticket};
use crate::units::{block_start, to_u64, to_usize};

/// The most that one write carries, in bytes.
const MAX_WRITE: usize = 1 << 20;

/// The most that is gathered for one write, in bytes. What is copied is in the processor's cache then when the disk takes
/// it, and a disk that gets the first quarter of a MiB while the second is copied is done earlier.
const MAX_GATHER: usize = 256 << 10;

/// From here on, bytes that need no copy are not copied. A last block goes out alone behind as much as this.
const LARGE: usize = 64 << 10;

/// How many numbers of tickets an owner has. Tickets are looked at together with their file, so they may start over.
const TICKETS: u64 = 1 << 31;

/// How many bytes of one log may wait in memory until they are written. An append that would exceed it waits.
pub(crate) const MAX_UNWRITTEN: u64 = 8 << 20;

/// The ticket `number` of an owner, for operations of its own on other files: they are told apart by their file.
pub fn ticket(owner: u32, number: u64) -> Ticket {
    Ticket::new(u64::from(owner) * TICKETS + number % TICKETS)
}

/// Whose a ticket is that a [`LocalLog`](crate::LocalLog) submitted.
///
/// Only meaningful for completions on the file of a log: others count their tickets as they like.
pub fn ticket_owner(ticket: Ticket) -> u32 {
    u32::try_from(ticket.get() / TICKETS).unwrap_or(u32::MAX)
}

/// The same error once more, for whoever asks later.
pub(crate) fn again(error: &IoError) -> IoError {
    match error {
        IoError::Os { at, source } => {
            let source = match source.raw_os_error() {
                Some(code) => std::io::Error::from_raw_os_error(code),
                None => std::io::Error::new(source.kind(), source.to_string()),
            };
            IoError::Os { at: at.clone(), source }
        }
        IoError::Poisoned { at, cause } => IoError::Poisoned { at: at.clone(), cause: *cause },
        IoError::Short { at, done, wanted } => {
            IoError::Short { at: at.clone(), done: *done, wanted: *wanted }
        }
        IoError::Misuse { at, rule } => IoError::Misuse { at: at.clone(), rule },
    }
}

fn is_at_border(position: u64) -> bool {
    position.is_multiple_of(BLOCK_SIZE)
}

/// A write that has not been submitted.
#[derive(Debug)]
struct Write {
    at: u64,
    /// The first byte of it that is not in an earlier write.
    new_from: u64,
    bytes: Bytes,
}

impl Write {
    fn range(&self) -> (u64, u64) {
        (self.at, self.at.saturating_add(to_u64(self.bytes.len())))
    }
}

/// A write in flight.
#[derive(Debug)]
struct Flying {
    ticket: Ticket,
    at: u64,
    end: u64,
    new_from: u64,
}

#[derive(Debug)]
struct Gather {
    /// Where the buffer starts in the file.
    at: u64,
    buffer: PoolBuffer,
    /// How many bytes it takes: up to a border between blocks.
    limit: usize,
}

#[derive(Debug)]
struct SyncInFlight {
    ticket: Ticket,
    /// What is durable once it has succeeded.
    position: u64,
    end_offset: Offset,
}

/// The growing end of one file.
#[derive(Debug)]
pub(crate) struct Appender {
    file: FileId,
    owner: u32,
    pool: BufferPool,
    /// Whether a block that was not full is sent again from its start.
    resends: bool,
    next_ticket: u64,
    /// Where everything that was taken ends.
    end: u64,
    /// Where what stands in writes ends; the rest is in `gather`.
    frozen: u64,
    gather: Option<Gather>,
    // INVARIANT: ascending. None shares a block with another, but for the first new bytes behind a last block.
    queue: VecDeque<Write>,
    flying: Vec<Flying>,
    /// The first byte of a write that failed.
    broken_at: Option<u64>,
    /// What is known of the block in which `frozen` lies, from this position on, if it is to be sent again.
    last_block: (u64, Vec<u8>),
    /// Capacity of the next buffer: about what the last group needed.
    capacity: usize,
    group: usize,
    /// Where appends end, in bytes and in offsets, that are not written.
    marks: VecDeque<(u64, Offset)>,
    /// The last one that is written.
    written_mark: (u64, Offset),
    sync: Option<SyncInFlight>,
    synced: u64,
    synced_end_offset: Offset,
}

/// What a completion was.
#[derive(Debug)]
pub(crate) enum Settled {
    Write,
    Sync,
    /// The first error of a write, or any of a sync.
    Failed(IoError),
}

impl Appender {
    /// Appends to a file that ends at a position, where `end_offset` comes next. Up to there everything is durable.
    pub(crate) fn new(
        io: &dyn Io,
        file: FileId,
        owner: u32,
        pool: BufferPool,
        end: u64,
        end_offset: Offset,
    ) -> Appender {
        Appender {
            file,
            owner,
            pool,
            resends: io.write_alignment(file) > 1,
            next_ticket: 0,
            end,
            frozen: end,
            gather: None,
            queue: VecDeque::new(),
            flying: Vec::new(),
            broken_at: None,
            last_block: (end, Vec::new()),
            capacity: 0,
            group: 0,
            marks: VecDeque::new(),
            written_mark: (end, end_offset),
            sync: None,
            synced: end,
            synced_end_offset: end_offset,
        }
    }

    pub(crate) fn set_owner(&mut self, owner: u32) {
        self.owner = owner;
    }

    /// Up to where every append has been written.
    pub(crate) fn written_end_offset(&self) -> Offset {
        self.written_mark.1
    }

    /// The same in bytes: where its last batch ends.
    pub(crate) fn written_end_position(&self) -> u64 {
        self.written_mark.0
    }

    /// Up to where everything is durable.
    pub(crate) fn synced_end_offset(&self) -> Offset {
        self.synced_end_offset
    }

    /// Up to where everything has been written, in bytes.
    pub(crate) fn written(&self) -> u64 {
        let unfinished = self.flying.iter().map(|write| write.new_from);
        let waiting = self.queue.iter().map(|write| write.new_from);
        unfinished.chain(waiting).chain(self.broken_at).fold(self.frozen, u64::min)
    }

    /// Where everything that was taken ends, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes taken and not written.
    pub(crate) fn unwritten(&self) -> u64 {
        self.end - self.written()
    }

    /// Bytes taken and not durable.
    pub(crate) fn unsynced(&self) -> u64 {
        self.end - self.synced
    }

    /// Whether a flush has something to submit, now or once a write in flight was reaped.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.queue.is_empty() || self.frozen < self.end
    }

    /// Whether writes or a sync are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.sync.is_some() || !self.flying.is_empty()
    }

    pub(crate) fn is_syncing(&self) -> bool {
        self.sync.is_some()
    }

    /// Whether a sync would make something durable, and none is in flight.
    pub(crate) fn needs_sync(&self) -> bool {
        self.sync.is_none() && self.synced_end_offset < self.written_end_offset()
    }

    /// Whether everything that was taken is written.
    pub(crate) fn is_written(&self) -> bool {
        self.flying.is_empty() && !self.has_unsent()
    }

    // Taking.

    /// Takes bytes behind the others; `end_offset` is what comes next. Submits nothing.
    ///
    /// Cost: one copy, or none for much at a time that the backend takes as it is.
    pub(crate) fn take(&mut self, mut bytes: Bytes, end_offset: Offset) {
        self.group = self.group.saturating_add(bytes.len());
        while !bytes.is_empty() {
            if bytes.len() >= LARGE && self.pass(&mut bytes) {
                continue;
            }
            self.copy(&mut bytes);
        }
        self.marks.push_back((self.end, end_offset));
    }

    /// Makes writes of whole blocks without a copy, as far as that goes; false if it does not.
    fn pass(&mut self, bytes: &mut Bytes) -> bool {
        let to_border = to_usize(self.end.next_multiple_of(BLOCK_SIZE) - self.end);
        if self.resends {
            let aligned = bytes.as_ptr().addr().wrapping_add(to_border).is_multiple_of(to_usize(BLOCK_SIZE));
            if !aligned || bytes.len() - to_border < LARGE {
                return false;
            }
        }
        if to_border > 0 && (self.resends || self.gather.is_some()) {
            let mut head = bytes.split_to(to_border);
            while !head.is_empty() {
                self.copy(&mut head);
            }
        }
        self.freeze(self.end);
        loop {
            let at = self.end;
            // All but the last end at a border between blocks, so that they may be in flight together.
            let most = MAX_WRITE - to_usize(at - block_start(at));
            let size = match bytes.len() {
                size if size > most => most,
                size if self.resends => size - size % to_usize(BLOCK_SIZE),
                size => size,
            };
            if size == 0 {
                return true;
            }
            self.queue.push_back(Write { at, new_from: at, bytes: bytes.split_to(size) });
            self.end += to_u64(size);
            self.frozen = self.end;
            self.last_block = (self.end, Vec::new());
            if bytes.is_empty() {
                return true;
            }
        }
    }

    /// Copies what fits into the buffer, which becomes a write if it is full.
    fn copy(&mut self, bytes: &mut Bytes) {
        if self.gather.is_none() {
            self.gather = Some(self.start_gather(bytes.len()));
        }
        let Some(gather) = &mut self.gather else { unreachable!("it was made above") };
        let room = gather.limit - gather.buffer.len();
        let count = gather.buffer.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        bytes.advance(count);
        self.end += to_u64(count);
        if gather.buffer.len() == gather.limit {
            self.freeze(self.end);
        }
    }

    fn start_gather(&mut self, more: usize) -> Gather {
        let (at, known) = if self.resends {
            let (at, known) = std::mem::take(&mut self.last_block);
            (at, known)
        } else {
            (self.frozen, Vec::new())
        };
        let inside = to_usize(at - block_start(at));
        let wanted = more.saturating_add(known.len()).saturating_add(inside).max(self.capacity);
        let mut buffer = self.pool.take(wanted.clamp(LARGE, MAX_GATHER));
        let limit = buffer.capacity() - inside;
        let copied = buffer.extend_from_slice(&known);
        assert_eq!(copied, known.len(), "a buffer holds a block");
        self.capacity = buffer.capacity().saturating_mul(2).min(MAX_GATHER);
        Gather { at, buffer, limit }
    }

    /// Makes one write, or two, of what is gathered. It ends at `end`.
    fn freeze(&mut self, end: u64) {
        let Some(Gather { at, buffer, .. }) = self.gather.take() else { return };
        let bytes = buffer.freeze();
        let new_from = self.frozen;
        self.frozen = end;
        if is_at_border(end) {
            self.last_block = (end, Vec::new());
            self.queue.push_back(Write { at, new_from, bytes });
            return;
        }
        let split = block_start(end).max(at);
        let whole_size = to_usize(split - at);
        if self.resends {
            let last = bytes.slice(whole_size..);
            self.last_block = (split, last.to_vec());
            // The next write waits for the last block alone, and not for all that was sent with it.
            if whole_size >= LARGE {
                self.queue.push_back(Write { at, new_from, bytes: bytes.slice(..whole_size) });
                self.queue.push_back(Write { at: split, new_from: split, bytes: last });
                return;
            }
        }
        self.queue.push_back(Write { at, new_from, bytes });
    }

    // Writing.

    /// Submits everything, as far as D11 and the queue allow. The rest goes out with a later flush.
    pub(crate) fn flush(&mut self, io: &mut dyn Io) {
        if self.frozen < self.end {
            let at = self.gather.as_ref().map_or(self.end, |gather| gather.at);
            let begun = block_start(at);
            let in_flight = self.flying.iter().map(|write| write.end);
            let waiting = self.queue.iter().map(|write| write.range().1);
            // Else it waits for the block in which it starts, and takes along what arrives meanwhile.
            if in_flight.chain(waiting).all(|end| end <= begun) {
                self.capacity = self.group.next_power_of_two().clamp(LARGE, MAX_GATHER);
                self.group = 0;
                self.freeze(self.end);
            }
        }
        self.submit(io);
    }

    /// Submits what stands in writes, as far as D11 and the queue allow.
    pub(crate) fn submit(&mut self, io: &mut dyn Io) {
        if self.broken_at.is_some() {
            return;
        }
        let mut later: VecDeque<Write> = VecDeque::new();
        while let Some(write) = self.queue.pop_front() {
            let (at, end) = write.range();
            let shares = |other: (u64, u64)| {
                block_start(at) < other.1.next_multiple_of(BLOCK_SIZE) && block_start(other.0) < end
            };
            if self.flying.iter().any(|other| shares((other.at, other.end)))
                || later.iter().any(|other| shares(other.range()))
            {
                later.push_back(write);
                continue;
            }
            let ticket = self.ticket();
            let Write { at, new_from, bytes } = write;
            match io.submit(ticket, Op::Write { file: self.file, at, bytes }) {
                Ok(()) => self.flying.push(Flying { ticket, at, end, new_from }),
                Err(Op::Write { bytes, .. }) => {
                    // The queue is full.
                    later.push_back(Write { at, new_from, bytes });
                    break;
                }
                Err(_) => unreachable!("the backend returned another operation"),
            }
        }
        later.append(&mut self.queue);
        self.queue = later;
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        ticket(self.owner, self.next_ticket)
    }

    // Syncing.

    /// Submits a sync of everything whose write was reaped (D3); false if there is nothing to sync, one is in flight, or
    /// the queue is full.
    pub(crate) fn sync_begin(&mut self, io: &mut dyn Io) -> bool {
        if !self.needs_sync() || self.broken_at.is_some() {
            return false;
        }
        let ticket = self.ticket();
        if io.submit(ticket, Op::Sync { file: self.file, what: SyncKind::Data }).is_err() {
            return false;
        }
        self.sync =
            Some(SyncInFlight { ticket, position: self.written(), end_offset: self.written_end_offset() });
        true
    }

    /// Takes note that everything is durable.
    pub(crate) fn synced_whole(&mut self) {
        assert!(self.is_written() && self.sync.is_none(), "nothing is in flight when all is durable");
        self.synced = self.end;
        self.synced_end_offset = self.written_end_offset();
    }

    // Completions.

    /// Takes a completion in; gives it back if it is another's.
    #[expect(clippy::result_large_err, reason = "a completion that is given back is a value, not a failure")]
    pub(crate) fn on_done(&mut self, done: Done) -> Result<Settled, Done> {
        if done.op.file() != self.file {
            return Err(done);
        }
        if self.sync.as_ref().is_some_and(|sync| sync.ticket == done.ticket) {
            let Some(sync) = self.sync.take() else { return Err(done) };
            return Ok(match done.result {
                Ok(_) => {
                    self.synced = sync.position;
                    self.synced_end_offset = sync.end_offset;
                    Settled::Sync
                }
                Err(error) => Settled::Failed(error),
            });
        }
        let Some(index) = self.flying.iter().position(|write| write.ticket == done.ticket) else {
            return Err(done);
        };
        let Op::Write { at, bytes, .. } = done.op else { return Err(done) };
        let write = self.flying.swap_remove(index);
        let count = match done.result {
            Ok(count) => usize::try_from(count).unwrap_or(usize::MAX),
            Err(error) => {
                self.broken_at = Some(self.broken_at.map_or(write.new_from, |at| at.min(write.new_from)));
                self.advance();
                return Ok(Settled::Failed(error));
            }
        };
        assert!(count <= bytes.len(), "{count} bytes of {} written at {at}", bytes.len());
        if count == 0 && !bytes.is_empty() {
            // D1 says that this is an error; whoever forgets it must not make us write forever.
            let at = At { operation: Operation::Write, path: std::path::PathBuf::new(), position: Some(at) };
            self.broken_at = Some(self.broken_at.map_or(write.new_from, |at| at.min(write.new_from)));
            return Ok(Settled::Failed(IoError::Short { at, done: 0, wanted: to_u64(bytes.len()) }));
        }
        if count < bytes.len() {
            // D1: the rest goes out with the next flush, before anything behind it.
            let at = at + to_u64(count);
            let rest = Write { at, new_from: write.new_from.max(at), bytes: bytes.slice(count..) };
            let place = self.queue.partition_point(|other| other.new_from < rest.new_from);
            self.queue.insert(place, rest);
        }
        self.advance();
        Ok(Settled::Write)
    }

    fn advance(&mut self) {
        let written = self.written();
        while let Some(mark) = self.marks.pop_front_if(|(end, _)| *end <= written) {
            self.written_mark = mark;
        }
    }
}
