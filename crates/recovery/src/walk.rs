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
