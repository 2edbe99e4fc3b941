//! Frames: four bytes of length, big-endian, then that many bytes.
//!
//! [`FrameReader`] takes them off a byte stream with a limit, [`FrameBuilder`] makes them without
//! copying record bytes, [`Frame::write_to`] sends them with vectored writes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::EncodeError;

/// Bytes of the length prefix.
pub const LENGTH_SIZE: usize = 4;

/// Kafka's default of `socket.request.max.bytes`: the largest frame a server takes.
pub const DEFAULT_MAX_FRAME_BYTES: usize = 104_857_600;

/// First allocation for a frame whose peer has not yet sent that much.
const FIRST_CHUNK: usize = 64 << 10;
/// Room for a read at least; what arrives beyond one frame is kept for the next.
const SMALLEST_READ: usize = 4 << 10;
/// Most that one earlier frame lets the next one allocate at once.
const MOST_TRUSTED: usize = 16 << 20;
/// Record sets shorter than this are copied behind the head: cheaper than one more slice to send.
const COPY_BELOW: usize = 256;
/// Slices handed to one vectored write; the kernel takes at most 1,024.
const MAX_SLICES: usize = 64;

/// What can go wrong between two frames of a stream. The stream is unusable afterwards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The length is below zero.
    #[error("frame with the negative length {length}")]
    Negative {
        /// The length as read.
        length: i32,
    },
    /// The length is above the limit.
    #[error("frame of {size} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// The length as read.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The peer closed the stream inside a frame.
    #[error("stream closed after {have} of {need} bytes of a frame")]
    Truncated {
        /// Bytes that arrived, with the length prefix.
        have: usize,
        /// Bytes of the whole frame, with the length prefix; the prefix alone when it is not whole.
        need: usize,
    },
    /// Reading or writing failed.
    #[error("i/o on the stream failed")]
    Io(#[from] io::Error),
}

/// Reads the length prefix at the start of `bytes`: `None` while it is not whole.
///
/// # Errors
/// `Negative` and `TooLarge`: nothing behind the prefix can be trusted.
pub fn frame_size(bytes: &[u8], limit: usize) -> Result<Option<usize>, FrameError> {
    let Some(prefix) = bytes.first_chunk::<LENGTH_SIZE>() else { return Ok(None) };
    let length = i32::from_be_bytes(*prefix);
    let size = usize::try_from(length).map_err(|_| FrameError::Negative { length })?;
    if size > limit { Err(FrameError::TooLarge { size, limit }) } else { Ok(Some(size)) }
}

/// Takes one whole frame off the front of `buffer`, without its length prefix: `None` while it is
/// not whole. No copy.
///
/// # Errors
/// As [`frame_size`].
pub fn split_frame(buffer: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(size) = frame_size(buffer, limit)? else { return Ok(None) };
    if buffer.len() - LENGTH_SIZE < size {
        return Ok(None);
    }
    buffer.advance(LENGTH_SIZE);
    Ok(Some(buffer.split_to(size).freeze()))
}

/// Takes frames off a byte stream.
///
/// Memory grows with the bytes that have arrived, never with the length that a frame claims: a
/// frame gets 64 KiB, then as much as it has already sent, and at once only what an earlier frame
/// of the same stream filled (up to 16 MiB).
#[derive(Debug)]
pub struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
    limit: usize,
    trusted: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader of frames of at most `limit` bytes each.
    pub fn new(stream: R, limit: usize) -> Self {
        Self { stream, buffer: BytesMut::new(), limit, trusted: 0 }
    }

    /// The size of the next frame, as its length prefix claims it, once that is there; the frame is
    /// left for [`next`](Self::next). `None` when the peer closed between two frames. For whoever
    /// wants to have room for a frame before it comes.
    ///
    /// Safe to cancel, like `next`.
    ///
    /// # Errors
    /// See [`FrameError`]; close the stream.
    pub async fn size(&mut self) -> Result<Option<usize>, FrameError> {
        loop {
            if let Some(size) = frame_size(&self.buffer, self.limit)? {
                return Ok(Some(size));
            }
            let have = self.buffer.len();
            if self.buffer.capacity() < LENGTH_SIZE {
                self.buffer.reserve(SMALLEST_READ);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let need = LENGTH_SIZE;
                return if have == 0 { Ok(None) } else { Err(FrameError::Truncated { have, need }) };
            }
        }
    }

    /// Bytes that have arrived and belong to no frame that was taken.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// The next frame without its length prefix; `None` when the peer closed between two frames.
    ///
    /// Safe to cancel: bytes that have arrived stay in the reader.
    ///
    /// # Errors
    /// See [`FrameError`]; close the stream.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        loop {
            if let Some(frame) = split_frame(&mut self.buffer, self.limit)? {
                self.trusted = frame.len().min(MOST_TRUSTED);
                if frame.len() > FIRST_CHUNK {
                    // Nothing was read beyond it: its memory goes when the caller is done with it.
                    self.buffer = BytesMut::new();
                }
                return Ok(Some(frame));
            }
            let have = self.buffer.len();
            let need = match frame_size(&self.buffer, self.limit)? {
                Some(size) => LENGTH_SIZE + size,
                None => LENGTH_SIZE,
            };
            let missing = need - have;
            if self.buffer.capacity() - have < missing.min(SMALLEST_READ) {
                let most = have.max(self.trusted).max(FIRST_CHUNK);
                self.buffer.reserve(missing.clamp(SMALLEST_READ, most));
            }
            let most = if need > FIRST_CHUNK { missing } else { usize::MAX };
            if self.stream.read_buf(&mut (&mut self.buffer).limit(most)).await? == 0 {
                return if have == 0 { Ok(None) } else { Err(FrameError::Truncated { have, need }) };
            }
        }
    }

    /// The stream, for writing answers to it.
    pub fn stream_mut(&mut self) -> &mut R {
        &mut self.stream
    }
}

/// A frame that is ready to be sent: length prefix first, then the rest in pieces.
///
/// ```
/// use bytes::Bytes;
/// use weir_wire::frame::FrameBuilder;
///
/// let records = Bytes::from(vec![7; 4096]);
/// let mut builder = FrameBuilder::new();
/// builder.head().extend_from_slice(b"head");
/// builder.append(records.clone());
/// let frame = builder.finish()?;
/// assert_eq!(frame.size(), 4 + 4 + 4096);
/// // The records are the caller's bytes, not a copy of them.
/// assert_eq!(frame.parts()[1].as_ptr(), records.as_ptr());
/// # Ok::<(), weir_wire::EncodeError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Frame {
    parts: Vec<Bytes>,
    size: usize,
}

impl Frame {
    /// The pieces in order, the length prefix at the start of the first.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Bytes to send, with the length prefix.
    pub fn size(&self) -> usize {
        self.size
    }

    /// All bytes in one piece, with the length prefix. Copies; for tests and small frames.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts.concat()
    }

    pub(crate) fn to_vec_without_length(&self) -> Vec<u8> {
        let mut bytes = self.to_vec();
        bytes.drain(..LENGTH_SIZE);
        bytes
    }

    /// Writes the whole frame, several pieces per call, and flushes.
    ///
    /// Not safe to cancel: a cancelled write leaves part of a frame on the stream, which then must
    /// be closed.
    ///
    /// # Errors
    /// That of the stream; part of the frame may have been sent.
    pub async fn write_to<W: AsyncWrite + Unpin>(self, stream: &mut W) -> io::Result<()> {
        let mut parts: VecDeque<Bytes> = self.parts.into_iter().filter(|part| !part.is_empty()).collect();
        while !parts.is_empty() {
            let mut written = {
                let slices: Vec<IoSlice<'_>> =
                    parts.iter().take(MAX_SLICES).map(|part| IoSlice::new(part)).collect();
                stream.write_vectored(&slices).await?
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            while let Some(front) = parts.front_mut() {
                if written < front.len() {
                    front.advance(written);
                    break;
                }
                written -= front.len();
                parts.pop_front();
            }
        }
        stream.flush().await
    }
}

/// Builds one frame: small fields into one head, record sets beside it without a copy.
#[derive(Debug)]
pub struct FrameBuilder {
    /// All small fields of the frame, one after the other; four bytes for the length come first.
    head: BytesMut,
    /// Pieces that stand in the frame at these positions of the head.
    inserts: Vec<(usize, Bytes)>,
}

impl Default for FrameBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameBuilder {
    /// An empty frame.
    pub fn new() -> Self {
        Self { head: BytesMut::zeroed(LENGTH_SIZE), inserts: Vec::new() }
    }

    /// Where small fields are appended. Nothing may be taken out of it.
    pub fn head(&mut self) -> &mut BytesMut {
        &mut self.head
    }

    /// Appends a piece. It is copied only when it is shorter than 256 bytes.
    pub fn append(&mut self, piece: Bytes) {
        if piece.len() < COPY_BELOW {
            self.head.extend_from_slice(&piece);
        } else {
            self.inserts.push((self.head.len(), piece));
        }
    }

    /// The frame with its length written.
    ///
    /// # Errors
    /// `TooLong` when the frame is larger than an int32 can say.
    pub fn finish(mut self) -> Result<Frame, EncodeError> {
        let size = self.inserts.iter().map(|(_, piece)| piece.len()).sum::<usize>() + self.head.len();
        let body = size - LENGTH_SIZE;
        let length =
            i32::try_from(body).map_err(|_| EncodeError::TooLong { field: "frame", length: body })?;
        self.head[..LENGTH_SIZE].copy_from_slice(&length.to_be_bytes());
        let head = self.head.freeze();
        let mut parts = Vec::with_capacity(self.inserts.len() * 2 + 1);
        let mut from = 0;
        for (at, piece) in self.inserts {
            parts.push(head.slice(from..at));
            parts.push(piece);
            from = at;
        }
        if from < head.len() {
            parts.push(head.slice(from..));
        }
        Ok(Frame { parts, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_only_when_it_is_whole() {
        let mut buffer = BytesMut::new();
        for byte in [0, 0, 0, 2, 7] {
            buffer.extend_from_slice(&[byte]);
            assert!(split_frame(&mut buffer, 10).unwrap().is_none());
        }
        buffer.extend_from_slice(&[8, 9]);
        assert_eq!(split_frame(&mut buffer, 10).unwrap().unwrap(), &[7, 8][..]);
        assert_eq!(buffer, &[9][..]);
    }

    #[test]
    fn negative_and_oversized_lengths_are_errors_with_names() {
        assert!(matches!(frame_size(&[0xff; 4], 10), Err(FrameError::Negative { length: -1 })));
        assert!(matches!(frame_size(&[0, 0, 0, 11], 10), Err(FrameError::TooLarge { size: 11, limit: 10 })));
        assert_eq!(frame_size(&[0, 0, 0, 10], 10).unwrap(), Some(10));
    }

    #[tokio::test]
    async fn frames_come_out_however_the_bytes_arrive() {
        for chunk in [1, 3, 7, 4096] {
            let (mut near, far) = tokio::io::duplex(chunk);
            let writer = tokio::spawn(async move {
                for size in [0_usize, 1, 5, 100_000] {
                    let mut builder = FrameBuilder::new();
                    builder.append(Bytes::from(vec![42; size]));
                    builder.finish().unwrap().write_to(&mut near).await.unwrap();
                }
            });
            let mut reader = FrameReader::new(far, 100_000);
            for size in [0, 1, 5, 100_000] {
                assert_eq!(reader.next().await.unwrap().unwrap(), vec![42; size]);
            }
            assert!(reader.next().await.unwrap().is_none());
            writer.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_inside_a_frame_is_truncated() {
        for (bytes, have, need) in [(&[0, 0][..], 2, 4), (&[0, 0, 0, 9, 1], 5, 13)] {
            let mut reader = FrameReader::new(bytes, 100);
            match reader.next().await {
                Err(FrameError::Truncated { have: h, need: n }) => assert_eq!((h, n), (have, need)),
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_claimed_length_allocates_no_more_than_the_first_chunk() {
        let (mut near, far) = tokio::io::duplex(64);
        near.write_all(&i32::MAX.to_be_bytes()).await.unwrap();
        near.write_all(&[1; 8]).await.unwrap();
        let mut reader = FrameReader::new(far, usize::MAX);
        let waited = tokio::time::timeout(std::time::Duration::from_millis(20), reader.next()).await;
        assert!(waited.is_err(), "the frame cannot be whole");
        assert!(reader.buffer.capacity() <= 2 * FIRST_CHUNK, "{}", reader.buffer.capacity());
    }

    #[tokio::test]
    async fn a_cancelled_read_loses_no_byte() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = FrameReader::new(far, 100);
        near.write_all(&[0, 0, 0, 3, 1]).await.unwrap();
        let short = std::time::Duration::from_millis(10);
        assert!(tokio::time::timeout(short, reader.next()).await.is_err());
        near.write_all(&[2, 3]).await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap(), &[1, 2, 3][..]);
    }

    #[tokio::test]
    async fn a_large_frame_is_held_by_its_taker_alone() {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let writer = tokio::spawn(async move {
            for size in [3_usize, 100_000, 300_000, 100_000, 5] {
                let mut builder = FrameBuilder::new();
                builder.append(Bytes::from(vec![42; size]));
                builder.finish().unwrap().write_to(&mut near).await.unwrap();
            }
        });
        let mut reader = FrameReader::new(far, 1 << 20);
        for size in [3_usize, 100_000, 300_000, 100_000, 5] {
            assert_eq!(reader.size().await.unwrap(), Some(size));
            let frame = reader.next().await.unwrap().unwrap();
            assert_eq!(frame, vec![42; size]);
            assert!(size <= FIRST_CHUNK || frame.is_unique(), "{size}");
        }
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn a_size_is_known_before_its_frame_and_takes_nothing_from_it() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = FrameReader::new(far, 100);
        let short = std::time::Duration::from_millis(10);
        near.write_all(&[0, 0]).await.unwrap();
        assert!(tokio::time::timeout(short, reader.size()).await.is_err());
        near.write_all(&[0, 3, 1]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(reader.size().await.unwrap(), Some(3));
        }
        assert_eq!(reader.buffered(), 5);
        near.write_all(&[2, 3, 0, 0, 0, 0]).await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap(), &[1, 2, 3][..]);
        assert_eq!(reader.size().await.unwrap(), Some(0));
        assert_eq!(reader.next().await.unwrap().unwrap(), &[][..]);
        near.write_all(&[0, 0, 0, 101]).await.unwrap();
        assert!(matches!(reader.size().await, Err(FrameError::TooLarge { size: 101, limit: 100 })));
        for (bytes, ends) in [(&[][..], true), (&[0, 0], false)] {
            let found = FrameReader::new(bytes, 100).size().await;
            match found {
                Ok(None) => assert!(ends),
                Err(FrameError::Truncated { have: 2, need: 4 }) => assert!(!ends),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn pieces_stand_where_they_were_appended() {
        let mut builder = FrameBuilder::new();
        let big = Bytes::from(vec![9; 1000]);
        builder.head().extend_from_slice(b"ab");
        builder.append(big.clone());
        builder.append(Bytes::from_static(b"cd"));
        builder.append(big.clone());
        let frame = builder.finish().unwrap();
        let mut expected = 2004_i32.to_be_bytes().to_vec();
        expected.extend_from_slice(b"ab");
        expected.extend_from_slice(&big);
        expected.extend_from_slice(b"cd");
        expected.extend_from_slice(&big);
        assert_eq!(frame.to_vec(), expected);
        assert_eq!(frame.size(), expected.len());
    }
}
