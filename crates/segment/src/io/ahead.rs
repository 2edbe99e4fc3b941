//! Reading a file from a position to its end, with several reads in flight: for walks over whole logs.
//!
//! Reads start at whole blocks and go into aligned memory, so that a backend that reads past the page cache puts the
//! bytes where they are looked at, without a copy.

use std::collections::VecDeque;
use std::fmt;

use bytes::BytesMut;

use super::buffer::ALIGNMENT;
use super::{At, Done, FileId, Io, IoError, Op, Operation, Ticket, Wait};
use crate::units::{block_start, to_u64, to_usize};

/// How much one read asks for, in bytes.
///
/// With [`DEPTH`], 4 MiB are in flight: where that was measured, 8 and 16 MiB were slower.
pub const PIECE_SIZE: usize = 512 << 10;

/// How many reads are in flight at most.
pub const DEPTH: usize = 8;

/// Its tickets begin here: apart from those of [`exact`](super::exact) and [`durable`](super::durable).
const TICKETS: u64 = (1 << 63) | (1 << 62);

/// A file that is read in order.
///
/// Memory: [`DEPTH`] + 1 pieces of [`PIECE_SIZE`], or what the file holds if that is less.
///
/// Whoever stops before the end, at an error for instance, calls [`ReadAhead::finish`], or completions of nobody are left
/// for the next reap.
pub struct ReadAhead {
    file: FileId,
    /// Where the caller begins: before it, the first piece has what else is in its first block.
    first: u64,
    /// Where the next read starts.
    next: u64,
    end: u64,
    piece_size: usize,
    // INVARIANT: ascending by position, and one behind the other in their numbers.
    reads: VecDeque<Read>,
    kept: Vec<BytesMut>,
    next_number: u64,
}

/// One read on its way.
struct Read {
    number: u64,
    at: u64,
    /// How many bytes of the file it is to hold.
    wanted: usize,
    /// What has come of it, with the rest of its memory once it is done.
    head: BytesMut,
    state: State,
}

enum State {
    /// To be submitted: the memory behind what has come.
    Waiting(BytesMut),
    Flying,
    Done,
    /// What to say once those before it were given out, and the memory behind what has come.
    Failed(IoError, BytesMut),
}

/// Bytes of the file: those behind the piece before.
pub struct Piece {
    memory: BytesMut,
    start: usize,
    end: usize,
}

impl Piece {
    /// The bytes; never none.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..self.end).unwrap_or_default()
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.bytes().len())
    }
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead")
            .field("file", &self.file)
            .field("next", &self.next)
            .field("end", &self.end)
            .field("reads", &self.reads.len())
            .finish_non_exhaustive()
    }
}

/// Memory whose first byte is aligned.
fn aligned(size: usize) -> BytesMut {
    let mut whole = BytesMut::zeroed(size + ALIGNMENT);
    let address = whole.as_ptr().addr();
    let mut bytes = whole.split_off(address.next_multiple_of(ALIGNMENT) - address);
    bytes.truncate(size);
    bytes
}

impl ReadAhead {
    /// From a position to `end`, which the file must reach. Nothing is submitted yet.
    pub fn new(file: FileId, position: u64, end: u64) -> ReadAhead {
        let next = if position < end { block_start(position) } else { end };
        let rest = to_usize(end - next);
        let piece_size = rest.min(PIECE_SIZE).next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        ReadAhead {
            file,
            first: position,
            next,
            end,
            piece_size,
            reads: VecDeque::new(),
            kept: Vec::new(),
            next_number: 0,
        }
    }

    /// The bytes behind the last piece; `None` at the end. Give the piece back when it is looked at.
    ///
    /// It may run beside operations that the caller has in flight: their completions are kept for the next reap.
    ///
    /// Cost: one read for each 512 KiB; waits only if the disk is slower than the caller.
    ///
    /// # Errors
    /// That of a read; [`IoError::Short`] if the file ends before the end that was given. All bytes before that place were
    /// given out; whoever asks again has it read again.
    pub fn next(&mut self, io: &mut dyn Io) -> Result<Option<Piece>, IoError> {
        self.submit(io);
        // The disk goes on while the caller looks at what has come.
        self.reap(io, Wait::Poll)?;
        let Some(mut read) = self.reads.pop_front() else { return Ok(None) };
        if let State::Failed(error, rest) = read.state {
            read.state = State::Waiting(rest);
            self.reads.push_front(read);
            return Err(error);
        }
        let skipped = to_usize(self.first.saturating_sub(read.at));
        Ok(Some(Piece { memory: read.head, start: skipped, end: read.wanted }))
    }

    /// Gives a piece back, whose memory is then used for another.
    pub fn give_back(&mut self, piece: Piece) {
        self.kept.push(piece.memory);
    }

    /// Waits for what is in flight, so that nothing of it is left for others to reap.
    ///
    /// # Errors
    /// [`IoError::Os`] if the backend itself broke. What the reads say is of no use any more.
    pub fn finish(mut self, io: &mut dyn Io) -> Result<(), IoError> {
        self.reads.retain(|read| matches!(read.state, State::Flying));
        let (mut done, mut others) = (Vec::new(), Vec::new());
        let mut outcome = Ok(());
        while outcome.is_ok() && !self.reads.is_empty() {
            outcome = io.reap(Wait::Block, &mut done);
            for item in done.drain(..) {
                let number = self.number_of(&item);
                match self.reads.iter().position(|read| Some(read.number) == number) {
                    Some(index) => drop(self.reads.remove(index)),
                    None => others.push(item),
                }
            }
        }
        if !others.is_empty() {
            io.put_back(others);
        }
        outcome
    }

    /// Submits as many reads as there may be.
    fn submit(&mut self, io: &mut dyn Io) {
        while self.reads.len() < DEPTH && self.next < self.end {
            let wanted = to_usize(self.end - self.next).min(self.piece_size);
            let memory = self.kept.pop().unwrap_or_else(|| aligned(self.piece_size));
            self.reads.push_back(Read {
                number: self.next_number,
                at: self.next,
                wanted,
                head: BytesMut::new(),
                state: State::Waiting(memory),
            });
            self.next_number += 1;
            self.next += to_u64(wanted);
        }
        for read in &mut self.reads {
            let into = match &mut read.state {
                State::Waiting(into) => std::mem::take(into),
                State::Flying | State::Done | State::Failed(..) => continue,
            };
            let op = Op::Read { file: self.file, at: read.at + to_u64(read.head.len()), into };
            if let Err(Op::Read { into, .. }) = io.submit(Ticket(TICKETS | read.number), op) {
                // The queue is full: what is in flight makes room.
                read.state = State::Waiting(into);
                return;
            }
            read.state = State::Flying;
        }
    }

    /// Takes completions until the first read has ended, at least once.
    fn reap(&mut self, io: &mut dyn Io, first: Wait) -> Result<(), IoError> {
        let (mut done, mut others) = (Vec::new(), Vec::new());
        let mut wait = first;
        let outcome = loop {
            if let Err(error) = io.reap(wait, &mut done) {
                break Err(error);
            }
            for item in done.drain(..) {
                match self.number_of(&item) {
                    Some(number) => self.take(io, number, item),
                    None => others.push(item),
                }
            }
            // Those that came short.
            self.submit(io);
            match self.reads.front() {
                Some(Read { state: State::Waiting(_) | State::Flying, .. }) => wait = Wait::Block,
                _ => break Ok(()),
            }
        };
        if !others.is_empty() {
            io.put_back(others);
        }
        outcome
    }

    /// The number of a read of this file, if this is one.
    fn number_of(&self, done: &Done) -> Option<u64> {
        let is_mine = done.ticket.0 & TICKETS == TICKETS && done.op.file() == self.file;
        is_mine.then_some(done.ticket.0 & !TICKETS)
    }

    fn take(&mut self, io: &dyn Io, number: u64, done: Done) {
        let first = self.reads.front().map_or(0, |read| read.number);
        let index = number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
        let Some(read) = index.and_then(|index| self.reads.get_mut(index)) else {
            unreachable!("a read stays until it is done")
        };
        let Op::Read { mut into, .. } = done.op else { unreachable!("only reads were submitted") };
        let before = read.head.len();
        read.state = match done.result {
            Err(error) => State::Failed(error, into),
            Ok(0) => {
                let position = Some(read.at + to_u64(before));
                let at = At { operation: Operation::Read, path: io.path(self.file), position };
                let (done, wanted) = (to_u64(before), to_u64(read.wanted));
                State::Failed(IoError::Short { at, done, wanted }, into)
            }
            Ok(count) => {
                let rest = into.split_off(to_usize(count.into()).min(into.len()));
                read.head.unsplit(into);
                if read.head.len() < read.wanted {
                    State::Waiting(rest)
                } else {
                    read.head.unsplit(rest);
                    State::Done
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::io::sim::SimDisk;
    use crate::io::{Open, exact};

    fn content(size: usize) -> Vec<u8> {
        (0_u32..).flat_map(u32::to_be_bytes).take(size).collect()
    }

    /// All bytes from a position, the most reads that were in flight, and the sizes of the pieces.
    fn read(disk: &SimDisk, position: u64, end: u64) -> (Vec<u8>, usize, Vec<usize>) {
        let mut io = disk.io();
        let file = io.open(Path::new("/a"), Open::Append).unwrap();
        let mut ahead = ReadAhead::new(file, position, end);
        let (mut all, mut most, mut sizes) = (Vec::new(), 0, Vec::new());
        while let Some(piece) = ahead.next(&mut io).unwrap() {
            most = most.max(io.in_flight() + 1);
            assert_eq!(piece.memory.as_ptr().addr() % ALIGNMENT, 0);
            assert!(!piece.bytes().is_empty());
            all.extend_from_slice(piece.bytes());
            sizes.push(piece.bytes().len());
            ahead.give_back(piece);
        }
        assert_eq!(io.in_flight(), 0);
        io.close(file).unwrap();
        (all, most, sizes)
    }

    #[test]
    fn every_byte_comes_in_order_whatever_the_disk_does() {
        let bytes = content(PIECE_SIZE * 11 + 777);
        for (seed, short) in [(1, false), (2, true), (3, true)] {
            let disk = SimDisk::new(seed);
            disk.write_file(Path::new("/a"), &bytes);
            disk.short(short);
            disk.reorder(true);
            for position in [0, 1, 4096, PIECE_SIZE + 5, bytes.len() - 1, bytes.len()] {
                let (all, ..) = read(&disk, to_u64(position), to_u64(bytes.len()));
                assert!(all == bytes[position..], "from {position}, seed {seed}");
            }
            let (all, ..) = read(&disk, 10, 5_000);
            assert!(all == bytes[10..5_000], "seed {seed}");
        }
    }

    #[test]
    fn reads_are_large_and_several_are_in_flight() {
        let disk = SimDisk::new(7);
        disk.write_file(Path::new("/a"), &content(PIECE_SIZE * 20));
        disk.slow(Some(100_000..200_000));
        let (_, most, sizes) = read(&disk, 0, to_u64(PIECE_SIZE * 20));
        assert!(most >= DEPTH / 2, "{most} in flight");
        assert_eq!(sizes, [PIECE_SIZE; 20]);
    }

    #[test]
    fn a_small_file_needs_little_memory() {
        let disk = SimDisk::new(7);
        disk.write_file(Path::new("/a"), &content(5_000));
        let mut io = disk.io();
        let file = io.open(Path::new("/a"), Open::Read).unwrap();
        let mut ahead = ReadAhead::new(file, 0, 5_000);
        let piece = ahead.next(&mut io).unwrap().unwrap();
        assert_eq!((piece.memory.len(), piece.bytes().len()), (8_192, 5_000));
        assert!(ahead.next(&mut io).unwrap().is_none());
    }

    #[test]
    fn completions_of_others_are_kept_and_none_of_its_own_are_left() {
        let disk = SimDisk::new(3);
        disk.write_file(Path::new("/a"), &content(PIECE_SIZE * 12));
        disk.write_file(Path::new("/b"), b"other");
        disk.reorder(true);
        let mut io = disk.io();
        let file = io.open(Path::new("/a"), Open::Append).unwrap();
        let other = io.open(Path::new("/b"), Open::Read).unwrap();
        let ticket = Ticket::new(5);
        io.submit(ticket, Op::Read { file: other, at: 0, into: BytesMut::zeroed(5) }).unwrap();
        let mut ahead = ReadAhead::new(file, 0, to_u64(PIECE_SIZE * 12));
        for _ in 0..3 {
            let piece = ahead.next(&mut io).unwrap().unwrap();
            ahead.give_back(piece);
            // Whoever waits for something else in between takes nothing away.
            assert_eq!(&exact::read_exact(&mut io, other, 1, 3).unwrap()[..], b"the");
        }
        ahead.finish(&mut io).unwrap();
        let mut done = Vec::new();
        io.reap(Wait::Block, &mut done).unwrap();
        assert_eq!(done.iter().map(|done| done.ticket).collect::<Vec<_>>(), [ticket]);
        assert_eq!(io.in_flight(), 0);
    }

    #[test]
    fn a_file_that_ends_too_soon_or_fails_is_an_error_with_its_place() {
        let disk = SimDisk::new(3);
        disk.write_file(Path::new("/a"), &content(PIECE_SIZE + 100));
        let mut io = disk.io();
        let file = io.open(Path::new("/a"), Open::Read).unwrap();
        let mut ahead = ReadAhead::new(file, 0, to_u64(PIECE_SIZE + 200));
        let piece = ahead.next(&mut io).unwrap().unwrap();
        ahead.give_back(piece);
        match ahead.next(&mut io) {
            Err(IoError::Short { at, done: 100, wanted: 200 }) => {
                assert_eq!(at.position, Some(to_u64(PIECE_SIZE + 100)));
            }
            other => panic!("{other:?}"),
        }
        ahead.finish(&mut io).unwrap();
        assert_eq!(io.in_flight(), 0);
    }

    #[test]
    fn a_read_that_fails_is_said_in_its_place_and_as_often_as_it_is_asked_for() {
        for seed in 0..20 {
            let bytes = content(PIECE_SIZE * 6 + 100);
            let disk = SimDisk::new(seed);
            disk.write_file(Path::new("/a"), &bytes);
            disk.slow(Some(100_000..900_000));
            disk.short(seed % 2 == 1);
            let bad = to_u64(PIECE_SIZE * 3 + 5_000);
            disk.read_error(Path::new("/a"), bad..bad + 1);
            let mut io = disk.io();
            let file = io.open(Path::new("/a"), Open::Append).unwrap();
            // The file is cut where it is to end, too: that is behind.
            let mut ahead = ReadAhead::new(file, 0, to_u64(bytes.len()) + 1);
            let mut all = Vec::new();
            for _ in 0..3 {
                let piece = ahead.next(&mut io).unwrap().unwrap();
                all.extend_from_slice(piece.bytes());
                ahead.give_back(piece);
            }
            assert!(all == bytes[..PIECE_SIZE * 3], "seed {seed}");
            for _ in 0..3 {
                let error = ahead.next(&mut io).unwrap_err();
                assert!(matches!(error, IoError::Os { .. }), "{error}");
                let position = error.at().position.unwrap();
                assert!((to_u64(PIECE_SIZE * 3)..=bad).contains(&position), "{position}");
            }
            ahead.finish(&mut io).unwrap();
            assert_eq!(io.in_flight(), 0);
        }
    }
}
