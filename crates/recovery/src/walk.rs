//! From batch to batch through a `.log` file that may hold anything.

use bytes::{Buf, Bytes};
use weir_format::{BatchError, HEADER_SIZE, RecordBatch, frame_size};
use weir_segment::io::{FileId, Io, IoError, exact};

use crate::tail::TailRead;

/// How much is read at a time.
const CHUNK_SIZE: usize = 1 << 20;
/// A frame that claims to be larger has its CRC computed in pieces before it gets a buffer of that size.
const LARGE_FRAME: usize = 8 << 20;

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
pub(crate) enum Frame {
    /// A whole batch with the right CRC.
    Batch(Bytes),
    /// The end of the file.
    End,
    /// Anything else.
    Invalid(BatchError),
}

/// Walks the batches of a file; stops at the first byte that is not a valid one.
pub(crate) struct Walker {
    position: u64,
    // INVARIANT: the bytes of the file from `position` on.
    buffer: Bytes,
}

impl Walker {
    /// From a position where a batch starts.
    pub(crate) fn new(position: u64) -> Self {
        Self { position, buffer: Bytes::new() }
    }

    /// Where the next batch starts: behind every valid one.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch.
    ///
    /// Cost: one read for about a MiB of batches. Memory: that, or one batch whose CRC is right.
    pub(crate) fn next(&mut self, view: &mut FileView<'_>) -> Result<Frame, IoError> {
        let rest = usize::try_from(view.size.saturating_sub(self.position)).unwrap_or(usize::MAX);
        if rest == 0 {
            return Ok(Frame::End);
        }
        if self.buffer.len() < HEADER_SIZE.min(rest) {
            self.fill(view, rest.min(CHUNK_SIZE))?;
        }
        let size = match frame_size(&self.buffer) {
            Ok(Some(size)) if size <= rest => size,
            Ok(Some(size)) => return Ok(Frame::Invalid(BatchError::Truncated { need: size, have: rest })),
            Ok(None) => return Ok(Frame::Invalid(BatchError::Truncated { need: HEADER_SIZE, have: rest })),
            Err(error) => return Ok(Frame::Invalid(error)),
        };
        if self.buffer.len() < size {
            if size > LARGE_FRAME
                && let Some(error) = self.large_crc_error(view, size)?
            {
                return Ok(Frame::Invalid(error));
            }
            self.fill(view, rest.min(CHUNK_SIZE.max(size)))?;
        }
        if let Err(error) = RecordBatch::parse(&self.buffer) {
            return Ok(Frame::Invalid(error));
        }
        let frame = self.buffer.split_to(size);
        self.position += u64::try_from(size).expect("a frame lies inside its file");
        Ok(Frame::Batch(frame))
    }

    /// What is wrong with the CRC of a frame too large to be believed, read in pieces.
    fn large_crc_error(&self, view: &mut FileView<'_>, size: usize) -> Result<Option<BatchError>, IoError> {
        let header = self.buffer.clone();
        let stored = (&header[17..21]).get_u32();
        let end = self.position + u64::try_from(size).expect("a frame lies inside its file");
        let computed = crate::tail::crc(view, crc_fast::CrcAlgorithm::Crc32Iscsi, self.position + 21, end)?;
        let computed = u32::try_from(computed).expect("a 32-bit CRC fits 32 bits");
        let base_offset = (&header[..8]).get_i64();
        Ok((computed != stored).then_some(BatchError::CrcMismatch { stored, computed, base_offset }))
    }

    /// Reads from the position on.
    fn fill(&mut self, view: &mut FileView<'_>, size: usize) -> Result<(), IoError> {
        self.buffer = exact::read_exact(view.io, view.file, self.position, size)?.freeze();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weir_format::{BatchBuilder, Offset, TimestampMs};
    use weir_segment::io::Open;
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
        let file = io.open(Path::new("/a"), Open::Read).unwrap();
        let mut view = FileView { io: &mut io, file, size: bytes.len() as u64 };
        let mut walker = Walker::new(0);
        let (mut sizes, mut largest) = (Vec::new(), 0);
        loop {
            let next = walker.next(&mut view).unwrap();
            largest = largest.max(walker.buffer.len());
            match next {
                Frame::Batch(batch) => sizes.push(batch.len()),
                Frame::End => return (sizes, None, largest),
                Frame::Invalid(error) => return (sizes, Some(error), largest),
            }
        }
    }

    #[test]
    fn batches_of_every_size_are_found_across_chunks() {
        let sizes = [1, 100, CHUNK_SIZE - 200, CHUNK_SIZE, 3, CHUNK_SIZE * 2, LARGE_FRAME + 5, 7];
        let batches: Vec<_> = sizes.iter().zip(0..).map(|(&size, base)| batch(base, size)).collect();
        let (found, stopped, _) = walk(&batches.concat());
        assert_eq!(found, batches.iter().map(Vec::len).collect::<Vec<_>>());
        assert_eq!(stopped, None);
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
        assert!(largest <= CHUNK_SIZE, "{largest} bytes held");
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
