//! Messages of magic 0 and 1 where a walk over batches finds none: a log may hold them in front of its first batches.

use bytes::Bytes;
use weir_format::{FRAME_SIZE, Message, MessageError, message_size};
use weir_segment::io::{IoError, exact};

use crate::error::Invalid;
use crate::walk::FileView;

/// How much is read at a time.
const CHUNK_SIZE: usize = 1 << 20;
/// A message that claims to be larger has its CRC computed in pieces before it gets a buffer of that size.
const LARGE_MESSAGE: usize = 8 << 20;

/// Where a row of messages ended.
pub(crate) struct Run {
    /// Behind the last one that was taken.
    pub(crate) position: u64,
    /// What is wrong with the message there, if one stands there.
    pub(crate) stopped: Option<Invalid>,
}

/// Hands each valid message from `position` on to `take`, until one is refused or none stands there.
///
/// Cost: one read for about a MiB of them. Memory: that, or one message whose CRC is right.
///
/// # Errors
/// Those of `take` and of the reader.
pub(crate) fn messages<E: From<IoError>>(
    view: &mut FileView<'_>,
    position: u64,
    mut take: impl FnMut(&Message<'_>) -> Result<Result<(), Invalid>, E>,
) -> Result<Run, E> {
    let (mut position, mut buffer) = (position, Bytes::new());
    loop {
        let size = match fill(view, position, &mut buffer)? {
            Ok(Some(size)) => size,
            Ok(None) => return Ok(Run { position, stopped: None }),
            Err(error) => return Ok(Run { position, stopped: Some(Invalid::Message(error)) }),
        };
        let message = match Message::parse(&buffer) {
            Ok(message) => message,
            Err(error) => return Ok(Run { position, stopped: Some(Invalid::Message(error)) }),
        };
        if let Err(found) = take(&message)? {
            return Ok(Run { position, stopped: Some(found) });
        }
        position += to_u64(size);
        let _taken = buffer.split_to(size);
    }
}

/// Brings the message at `position` into the buffer, and says how large it is; `None` if what stands there does not begin as
/// one does.
fn fill(
    view: &mut FileView<'_>,
    position: u64,
    buffer: &mut Bytes,
) -> Result<Result<Option<usize>, MessageError>, IoError> {
    let rest = usize::try_from(view.size.saturating_sub(position)).unwrap_or(usize::MAX);
    if buffer.len() < FRAME_SIZE.min(rest) {
        *buffer = exact::read_exact(view.io, view.file, position, rest.min(CHUNK_SIZE))?.freeze();
    }
    // Too few bytes for a frame, or none of these formats.
    let Ok(Some(size)) = message_size(buffer) else { return Ok(Ok(None)) };
    if size > rest {
        return Ok(Err(MessageError::Truncated { need: size, have: rest }));
    }
    if buffer.len() < size {
        if size > LARGE_MESSAGE
            && let Some(error) = large_crc_error(view, position, size, buffer)?
        {
            return Ok(Err(error));
        }
        *buffer = exact::read_exact(view.io, view.file, position, rest.min(CHUNK_SIZE.max(size)))?.freeze();
    }
    Ok(Ok(Some(size)))
}

/// What is wrong with the CRC of a message too large to be believed, read in pieces.
fn large_crc_error(
    view: &mut FileView<'_>,
    position: u64,
    size: usize,
    head: &Bytes,
) -> Result<Option<MessageError>, IoError> {
    let end = position + to_u64(size);
    let computed = crate::tail::crc(view, crc_fast::CrcAlgorithm::Crc32IsoHdlc, position + 16, end)?;
    let computed = u32::try_from(computed).expect("a 32-bit CRC fits 32 bits");
    let (Some(offset), Some(stored)) = (head.first_chunk::<8>(), head.get(12..16)) else { return Ok(None) };
    let offset = i64::from_be_bytes(*offset);
    let stored = stored.iter().fold(0, |stored, byte| stored << 8 | u32::from(*byte));
    Ok((computed != stored).then_some(MessageError::CrcMismatch { stored, computed, offset }))
}

fn to_u64(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
