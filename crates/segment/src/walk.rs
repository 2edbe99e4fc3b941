//! From batch to batch through a `.log` file: headers alone, or whole batches.

use bytes::{Bytes, BytesMut};
use weir_format::{
    BatchError, BatchHeader, FRAME_SIZE, HEADER_SIZE, LeaderEpoch, Message, Offset, TimestampMs, frame_size,
    header_of, message_size,
};

use crate::io::{FileId, Io, IoError, exact};
use crate::units::to_u64;

/// How much a walk over headers reads at first, in bytes.
const HEADER_CHUNK: usize = 16 * 1024;

/// How much it reads at once at most, in bytes: where one header follows close on another, a large read costs less than
/// many small ones.
const HEADER_CHUNK_MOST: usize = 1024 * 1024;

/// How much a walk over whole batches reads at once, in bytes.
const BATCH_CHUNK: usize = 1024 * 1024;

/// Why a walk stopped before its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// The disk.
    #[error(transparent)]
    Io(#[from] IoError),
    /// No batch starts here.
    #[error("no valid batch at byte {position}")]
    Invalid {
        /// Where it would start, in bytes.
        position: u64,
        /// What is wrong with it.
        #[source]
        source: BatchError,
    },
}

/// What the header of a batch says, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchInfo {
    /// Where the batch starts in the file, in bytes.
    pub position: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its first offset.
    pub base_offset: Offset,
    /// Its last offset.
    pub last_offset: Offset,
    /// The offset behind it.
    pub next_offset: Offset,
    /// Its leader epoch.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Its largest timestamp, as it stands there (-1: none).
    pub max_timestamp: TimestampMs,
}

impl BatchInfo {
    /// What a header says of its batch, which is at `position`.
    pub(crate) fn of(header: &BatchHeader<'_>, position: u64) -> BatchInfo {
        BatchInfo {
            position,
            size: to_u64(header.size()),
            base_offset: header.base_offset(),
            last_offset: header.last_offset(),
            next_offset: header.next_offset(),
            leader_epoch: header.leader_epoch(),
            max_timestamp: header.max_timestamp(),
        }
    }

    /// The position behind the batch.
    pub fn end(&self) -> u64 {
        self.position.saturating_add(self.size)
    }
}

/// Walks headers; the bytes between them are not read where they are large, and no CRC is checked.
///
/// Memory: one read, of 16 KiB at first and of 1 MiB at most.
#[derive(Debug)]
pub struct HeaderWalker {
    file: FileId,
    position: u64,
    end: u64,
    chunk: BytesMut,
    chunk_at: u64,
    /// How much is read next.
    step: usize,
}

impl HeaderWalker {
    /// From a position where a batch starts to `end`.
    pub fn new(file: FileId, position: u64, end: u64) -> HeaderWalker {
        HeaderWalker { file, position, end, chunk: BytesMut::new(), chunk_at: position, step: HEADER_CHUNK }
    }

    /// Where the next batch starts.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next header; `None` exactly at the end.
    ///
    /// # Errors
    /// [`WalkError::Invalid`] where no whole batch starts; asking again gives the same.
    pub fn next(&mut self, io: &mut dyn Io) -> Result<Option<BatchInfo>, WalkError> {
        let position = self.position;
        let rest = self.end.saturating_sub(position);
        if rest == 0 {
            return Ok(None);
        }
        let need = usize::try_from(rest).unwrap_or(usize::MAX).min(HEADER_SIZE);
        let mut skip = usize::try_from(position.wrapping_sub(self.chunk_at)).unwrap_or(usize::MAX);
        if skip.checked_add(need).is_none_or(|end| end > self.chunk.len()) {
            // Of large batches the bytes between headers are not wanted.
            let follows = !self.chunk.is_empty() && skip <= self.chunk.len().saturating_mul(2);
            self.step = if follows { (self.step * 2).min(HEADER_CHUNK_MOST) } else { HEADER_CHUNK };
            let size = usize::try_from(rest).unwrap_or(usize::MAX).min(self.step);
            self.chunk = exact::read_up_to(io, self.file, position, size)?;
            self.chunk_at = position;
            skip = 0;
        }
        let bytes = self.chunk.get(skip..).unwrap_or_default();
        let invalid = |source| WalkError::Invalid { position, source };
        let info = batch_info(bytes, position).map_err(invalid)?;
        if info.size > rest {
            let have = usize::try_from(rest).unwrap_or(usize::MAX);
            let need = usize::try_from(info.size).unwrap_or(usize::MAX);
            return Err(invalid(BatchError::Truncated { need, have }));
        }
        self.position = info.end();
        Ok(Some(info))
    }
}

/// What the batch, or message of magic 0 or 1, at the start of `bytes` says of itself. `position` is where they are.
///
/// Of a message, base and last offset are its own; a wrapper may hold lower ones. No CRC of a batch is checked.
///
/// # Errors
/// Those of [`header_of`].
pub fn batch_info(bytes: &[u8], position: u64) -> Result<BatchInfo, BatchError> {
    if let Ok(Some(need)) = message_size(bytes) {
        if let Some(info) = message_info(bytes, position, need) {
            return Ok(info);
        }
        if need > bytes.len() {
            return Err(BatchError::Truncated { need, have: bytes.len() });
        }
    }
    Ok(BatchInfo::of(&header_of(bytes)?, position))
}

/// The same for messages of magic 0 and 1. Bytes that are none look like one easily, so the CRC is checked where the whole
/// message is there.
fn message_info(bytes: &[u8], position: u64, size: usize) -> Option<BatchInfo> {
    if size <= bytes.len() && Message::parse(bytes).is_err() {
        return None;
    }
    let offset = Offset::new(i64::from_be_bytes(*bytes.first_chunk()?))?;
    let max_timestamp = match bytes.get(16)? {
        1 => TimestampMs::new(i64::from_be_bytes(bytes.get(18..26)?.try_into().ok()?)),
        _ => TimestampMs::NONE,
    };
    Some(BatchInfo {
        position,
        size: to_u64(size),
        base_offset: offset,
        last_offset: offset,
        next_offset: offset.next()?,
        leader_epoch: None,
        max_timestamp,
    })
}

/// Walks whole batches by their frames; what is in a frame is for the caller to check.
#[derive(Debug)]
pub struct BatchWalker {
    file: FileId,
    position: u64,
    end: u64,
    buffer: Bytes,
}

impl BatchWalker {
    /// From a position where a batch starts to `end`.
    pub fn new(file: FileId, position: u64, end: u64) -> BatchWalker {
        BatchWalker { file, position, end, buffer: Bytes::new() }
    }

    /// Where the next batch starts: behind everything that was returned.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next frame and its position; `None` exactly at the end. It is a slice of a larger buffer.
    ///
    /// Cost: one read for about a MiB of batches. Memory: that, or one batch if it is larger; a length in the file
    /// never asks for more than the file holds.
    ///
    /// # Errors
    /// [`WalkError::Invalid`] where no whole frame starts; asking again gives the same.
    pub fn next(&mut self, io: &mut dyn Io) -> Result<Option<(u64, Bytes)>, WalkError> {
        let position = self.position;
        let rest = usize::try_from(self.end.saturating_sub(position)).unwrap_or(usize::MAX);
        if rest == 0 {
            return Ok(None);
        }
        let invalid = |source| WalkError::Invalid { position, source };
        if self.buffer.len() < FRAME_SIZE.min(rest) {
            self.fill(io, rest.min(BATCH_CHUNK))?;
        }
        let size = match frame_size(&self.buffer).map_err(invalid)? {
            Some(size) if size <= rest => size,
            Some(size) => return Err(invalid(BatchError::Truncated { need: size, have: rest })),
            None => return Err(invalid(BatchError::Truncated { need: HEADER_SIZE, have: rest })),
        };
        if self.buffer.len() < size {
            self.fill(io, rest.min(BATCH_CHUNK.max(size)))?;
        }
        if self.buffer.len() < size {
            // The file is shorter than `end`.
            return Err(invalid(BatchError::Truncated { need: size, have: self.buffer.len() }));
        }
        let frame = self.buffer.split_to(size);
        self.position = position.saturating_add(to_u64(size));
        Ok(Some((position, frame)))
    }

    fn fill(&mut self, io: &mut dyn Io, size: usize) -> Result<(), IoError> {
        self.buffer = exact::read_up_to(io, self.file, self.position, size)?.freeze();
        Ok(())
    }
}
