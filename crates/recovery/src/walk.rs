//! From batch to batch through a `.log` file that may hold anything.

use bytes::{Buf, BytesMut};
use weir_format::{BatchError, HEADER_SIZE, RecordBatch, frame_size};
use weir_segment::io::ahead::{Piece, ReadAhead};
use weir_segment::io::{FileId, Io, IoError, exact};

use crate::tail::TailRead;

/// A frame that claims to be larger has its CRC computed in pieces before it gets a buffer of that size.
const LARGE_FRAME: usize = 8 << 20;

/// Where the CRC of a batch is, and from where it covers.
const CRC: std::ops::Range<usize> = 17..21;

/// An open file and the part of it that counts.
pub(crate) struct FileView<'a> {
    pub(crate) io: &'a mut dyn Io,
    pub(crate) file: FileId,
    pub(crate) size: u64,
}

impl TailRead for FileView<'_> {
    type Error = IoError;

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, position: u64, into: &mut [u8]) -> Result<(), IoError> {
        let bytes = exact::read_exact(self.io, self.file, position, into.len())?;
        into.copy_from_slice(&bytes);
        Ok(())
    }
}

/// What stands at one position of a file.
pub(crate) enum Frame<'a> {
    /// A whole batch with the right CRC.
    Batch(RecordBatch<'a>),
    /// The end of the file.
    End,
    /// Anything else.
    Invalid(BatchError),
}

/// Walks the batches of a file; stops at the first byte that is not a valid one.
///
/// One pass: every byte is read once, several reads are in flight, and the CRC is computed where a read has put it. Only
/// a batch that lies on the border of two reads is copied, and one of more than 8 MiB is read a second time.
///
/// Memory: that of [`ReadAhead`]; a batch on a border, of at most 8 MiB; or one larger batch whose CRC is right.
pub(crate) struct Walker {
    position: u64,
    ahead: Option<ReadAhead>,
    // INVARIANT: of the bytes from `position` on, first those of `piece` from `at` on come, then those of `ahead`.
    piece: Option<Piece>,
    at: usize,
    /// A batch that lies on a border, as far as it was gathered.
    carry: Vec<u8>,
    /// A batch larger than the carry may be.
    large: BytesMut,
}

/// Where the bytes of the next batch are.
enum Place {
    Piece { start: usize, size: usize },
    Carry,
    Large,
}

impl Walker {
    /// From a position where a batch starts.
    pub(crate) fn new(position: u64) -> Self {
        Self { position, ahead: None, piece: None, at: 0, carry: Vec::new(), large: BytesMut::new() }
    }

    /// Where the next batch starts: behind every valid one.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch. What follows one that is not [`Frame::Batch`] has no meaning.
    ///
    /// Cost: one read for about 512 KiB of batches, before it is needed; their CRC.
    pub(crate) fn next(&mut self, view: &mut FileView<'_>) -> Result<Frame<'_>, IoError> {
        let rest = usize::try_from(view.size.saturating_sub(self.position)).unwrap_or(usize::MAX);
        if rest == 0 {
            return Ok(Frame::End);
        }
        let place = match self.find(view, rest)? {
            Ok(place) => place,
            Err(error) => return Ok(Frame::Invalid(error)),
        };
        let parsed = match place {
            Place::Piece { start, size } => {
                let piece = self.piece.as_ref().map_or(&[][..], Piece::bytes);
                RecordBatch::parse(&piece[start..start + size])
            }
            Place::Carry => RecordBatch::parse(&self.carry),
            Place::Large => RecordBatch::parse_without_crc(&self.large),
        };
        match parsed {
            Ok(batch) => {
                self.position += to_u64(batch.size());
                Ok(Frame::Batch(batch))
            }
            Err(error) => Ok(Frame::Invalid(error)),
        }
    }

    /// Waits for what is in flight: the file may then be closed, and nothing is left for others to reap.
    pub(crate) fn finish(self, io: &mut dyn Io) -> Result<(), IoError> {
        match self.ahead {
            Some(ahead) => ahead.finish(io),
            None => Ok(()),
        }
    }

    /// Brings the bytes of the next frame together, of `rest` bytes in the file.
    fn find(&mut self, view: &mut FileView<'_>, rest: usize) -> Result<Result<Place, BatchError>, IoError> {
        self.carry.clear();
        self.large = BytesMut::new();
        let needed = HEADER_SIZE.min(rest);
        let bytes = self.unread(view)?;
        let have = bytes.len();
        let framed = (have >= needed).then(|| frame_of(bytes, rest));
        let framed = match framed {
            Some(framed) => framed,
            None => {
                self.gather(view, needed)?;
                frame_of(&self.carry, rest)
            }
        };
        let size = match framed {
            Ok(size) => size,
            Err(error) => return Ok(Err(error)),
        };
        if self.carry.is_empty() && size <= have {
            let start = self.at;
            self.at += size;
            return Ok(Ok(Place::Piece { start, size }));
        }
        if size > LARGE_FRAME {
            return self.large(view, size);
        }
        self.gather(view, size)?;
        Ok(Ok(Place::Carry))
    }

    /// What is unread of a piece: at least one byte. The file must hold more.
    fn unread(&mut self, view: &mut FileView<'_>) -> Result<&[u8], IoError> {
        if self.piece.as_ref().is_none_or(|piece| self.at >= piece.bytes().len()) {
            let (file, position, size) = (view.file, self.position, view.size);
            let ahead = self.ahead.get_or_insert_with(|| ReadAhead::new(file, position, size));
            if let Some(piece) = self.piece.take() {
                ahead.give_back(piece);
            }
            self.piece = ahead.next(view.io)?;
            self.at = 0;
        }
        let bytes = self.piece.as_ref().map_or(&[][..], Piece::bytes);
        assert!(self.at < bytes.len(), "the file holds more");
        Ok(&bytes[self.at..])
    }

    /// Copies what comes next into the carry, until that has so many bytes.
    fn gather(&mut self, view: &mut FileView<'_>, size: usize) -> Result<(), IoError> {
        while self.carry.len() < size {
            let mut carry = std::mem::take(&mut self.carry);
            let taken = self.unread(view).map(|bytes| {
                let taken = bytes.len().min(size - carry.len());
                carry.extend_from_slice(&bytes[..taken]);
                taken
            });
            self.carry = carry;
            self.at += taken?;
        }
        Ok(())
    }

    /// A frame too large to be believed: its CRC first, in pieces; only if that is right, memory for all of it.
    fn large(&mut self, view: &mut FileView<'_>, size: usize) -> Result<Result<Place, BatchError>, IoError> {
        self.gather(view, HEADER_SIZE)?;
        let stored = (&self.carry[CRC]).get_u32();
        let base_offset = (&self.carry[..8]).get_i64();
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&self.carry[CRC.end..]);
        let mut left = size - HEADER_SIZE;
        while left > 0 {
            let bytes = self.unread(view)?;
            let taken = bytes.len().min(left);
            digest.update(&bytes[..taken]);
            self.at += taken;
            left -= taken;
        }
        let computed = u32::try_from(digest.finalize()).expect("a 32-bit CRC fits 32 bits");
        if computed != stored {
            return Ok(Err(BatchError::CrcMismatch { stored, computed, base_offset }));
        }
        self.large = exact::read_exact(view.io, view.file, self.position, size)?;
        Ok(Ok(Place::Large))
    }

    /// Bytes of batches that it holds beside what was read ahead.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.carry.capacity() + self.large.len()
    }
}

/// The size of the frame that begins with these bytes, of which the file has `rest`.
fn frame_of(bytes: &[u8], rest: usize) -> Result<usize, BatchError> {
    match frame_size(bytes)? {
        Some(size) if size <= rest => Ok(size),
        Some(size) => Err(BatchError::Truncated { need: size, have: rest }),
        None => Err(BatchError::Truncated { need: HEADER_SIZE, have: rest }),
    }
}

fn to_u64(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weir_format::{BatchBuilder, Offset, TimestampMs};
    use weir_segment::io::Open;
    use weir_segment::io::ahead::PIECE_SIZE;
    use weir_segment::io::sim::SimDisk;

    use super::*;

    fn batch(base: i64, size: usize) -> Vec<u8> {
        let value = vec![b'v'; size];
        let base = Offset::new(base).unwrap();
        let batch = BatchBuilder::new().base_offset(base).record(TimestampMs::new(1), None, Some(&value));
        batch.build().unwrap().to_vec()
    }

    /// Walks a file of these bytes; the sizes of its batches, why it stopped, and the largest buffer held.
    fn walk(bytes: &[u8]) -> (Vec<usize>, Option<BatchError>, usize) {
        let disk = SimDisk::new(1);
        disk.short(true);
        disk.write_file(Path::new("/a"), bytes);
        let mut io = disk.io();
        let file = io.open(Path::new("/a"), Open::Append).unwrap();
        let mut view = FileView { io: &mut io, file, size: bytes.len() as u64 };
        let mut walker = Walker::new(0);
        let (mut sizes, mut largest, mut at) = (Vec::new(), 0, 0);
        let stopped = loop {
            match walker.next(&mut view).unwrap() {
                Frame::Batch(batch) => {
                    assert!(batch.bytes() == &bytes[at..at + batch.size()], "the bytes at {at}");
                    at += batch.size();
                    sizes.push(batch.size());
                }
                Frame::End => break None,
                Frame::Invalid(error) => break Some(error),
            }
            largest = largest.max(walker.held());
            assert_eq!(walker.position(), at as u64);
        };
        largest = largest.max(walker.held());
        walker.finish(&mut io).unwrap();
        assert_eq!(io.in_flight(), 0, "nothing is left for others");
        (sizes, stopped, largest)
    }

    #[test]
    fn batches_of_every_size_are_found_across_chunks() {
        let sizes = [1, 100, PIECE_SIZE - 200, PIECE_SIZE, 3, PIECE_SIZE * 2, LARGE_FRAME + 5, 7];
        let batches: Vec<_> = sizes.iter().zip(0..).map(|(&size, base)| batch(base, size)).collect();
        let (found, stopped, _) = walk(&batches.concat());
        assert_eq!(found, batches.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!(stopped, None);
    }

    #[test]
    fn every_byte_is_read_once_and_large_reads_are_in_flight() {
        let batches: Vec<_> = (0..200).map(|base| batch(base, 100_000)).collect();
        let bytes = batches.concat();
        let disk = SimDisk::new(1);
        disk.write_file(Path::new("/a"), &bytes);
        disk.slow(Some(100_000..200_000));
        let mut io = disk.io();
        let file = io.open(Path::new("/a"), Open::Append).unwrap();
        disk.keep_trace(true);
        let mut view = FileView { io: &mut io, file, size: bytes.len() as u64 };
        let (mut walker, mut count, mut most) = (Walker::new(0), 0, 0);
        while let Frame::Batch(_) = walker.next(&mut view).unwrap() {
            count += 1;
            most = most.max(view.io.in_flight());
        }
        assert_eq!(count, 200);
        assert!(most >= 4, "{most} in flight");
        let reads = disk.trace().iter().filter(|line| line.starts_with("done")).count();
        assert_eq!(reads, bytes.len().div_ceil(PIECE_SIZE), "reads of the disk");
        walker.finish(&mut io).unwrap();
    }

    #[test]
    fn a_walk_may_begin_anywhere() {
        let batches: Vec<_> = (0..50).map(|base| batch(base, 70_000)).collect();
        let bytes = batches.concat();
        let disk = SimDisk::new(1);
        disk.write_file(Path::new("/a"), &bytes);
        let mut io = disk.io();
        let file = io.open(Path::new("/a"), Open::Append).unwrap();
        for skipped in [1, 20, 49, 50] {
            let start = batches[..skipped].iter().map(Vec::len).sum::<usize>();
            let mut view = FileView { io: &mut io, file, size: bytes.len() as u64 };
            let mut walker = Walker::new(start as u64);
            let mut offsets = Vec::new();
            while let Frame::Batch(batch) = walker.next(&mut view).unwrap() {
                offsets.push(batch.base_offset().get());
            }
            let expected: Vec<i64> = (0..50).skip(skipped).collect();
            assert_eq!(offsets, expected);
            walker.finish(&mut io).unwrap();
        }
    }

    #[test]
    fn a_length_that_lies_gets_no_buffer_of_that_size() {
        let mut bytes = batch(0, 10);
        let first = bytes.len();
        bytes.extend_from_slice(&batch(1, 10));
        bytes.resize(first + LARGE_FRAME + 1000, 7);
        let length = i32::try_from(LARGE_FRAME + 100).unwrap();
        bytes[first + 8..first + 12].copy_from_slice(&length.to_be_bytes());
        let (found, stopped, largest) = walk(&bytes);
        assert_eq!(found, [first]);
        assert!(matches!(stopped, Some(BatchError::CrcMismatch { base_offset: 1, .. })), "{stopped:?}");
        assert!(largest <= PIECE_SIZE, "{largest} bytes held");
        // One that does not lie gets it.
        let bytes = [batch(0, 10), batch(1, LARGE_FRAME), batch(2, 10)].concat();
        let (found, stopped, largest) = walk(&bytes);
        assert_eq!((found.len(), stopped), (3, None));
        assert!(largest > LARGE_FRAME, "{largest} bytes held");
    }

    #[test]
    fn a_file_cut_at_any_byte_gives_its_whole_batches() {
        let whole = [batch(0, 20), batch(1, 30), batch(2, 5)];
        let bytes = whole.concat();
        for size in 0..bytes.len() {
            let (found, stopped, _) = walk(&bytes[..size]);
            let mut end = 0;
            let expected: Vec<_> = whole
                .iter()
                .map(Vec::len)
                .take_while(|batch| {
                    end += batch;
                    end <= size
                })
                .collect();
            assert_eq!(found, expected, "{size}");
            assert_eq!(stopped.is_none(), expected.iter().sum::<usize>() == size, "{size}");
        }
    }
}
