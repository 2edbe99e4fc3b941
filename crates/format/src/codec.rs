//! Looking into compressed bytes: five codecs in the framings that Kafka's clients write, pulled piece by piece.
//!
//! Every decoder reads from a slice, writes into the caller's buffer and is told how much may come out. What it holds
//! besides is bounded by what it was given and by its own format, never by a length that the input claims:
//!
//! | codec | held while decoding |
//! |---|---|
//! | gzip | a window of 32 KiB |
//! | snappy | one block, at most 22 times its compressed size |
//! | lz4 | one block, at most 4 MiB and 255 times its compressed size |
//! | zstd | the smaller of the frame's window (at most 128 MiB, [`MAX_ZSTD_WINDOW_SIZE`]) and the output limit, and a block |
//!
//! Where Kafka's decoders take bytes that these refuse: gzip and framed snappy with rubbish behind the last member or block,
//! gzip with reserved flags or a header field above 64 KiB, lz4 with a wrong content checksum or content size, with a stored block of no byte, or with bytes
//! behind its frame. Each of them is data that nobody would ever see, or another than was compressed. `testdata/codecs.txt`
//! has every dialect and mistake with Kafka's verdict, `tests/it/dialects.rs` ours and the reasons.
//!
//! Source: Kafka's `GzipCompression`, `SnappyCompression`, `Lz4BlockInputStream` and `ZstdCompression`.

mod gzip;
mod lz4;
mod snappy;
mod zstd;

pub use self::zstd::MAX_ZSTD_WINDOW_SIZE;

use crate::batch::Codec;
use crate::error::{CodecError, RecordError};

/// How far an output buffer grows before anything is known to fill it.
const CHUNK: usize = 16 * 1024;

/// Decompresses all of `bytes`, if they are at most `limit` bytes then. [`Codec::None`] is a copy.
///
/// No byte at all decompresses to none, whatever the codec.
///
/// Cost: memory for what comes out, grown as it comes, and for one block or window besides (see the module).
///
/// # Errors
/// [`CodecError::LimitExceeded`] as soon as more would come out: a larger limit may help. [`CodecError::Library`] is want of
/// memory. Any other means that the bytes are not of this codec, or that it is one that nobody reads, and stays so.
pub fn decompress(codec: Codec, bytes: &[u8], limit: usize) -> Result<Vec<u8>, CodecError> {
    let mut feed = Feed::new(Decoder::new(codec, bytes, limit, Descriptor::Checked)?);
    feed.fill(usize::MAX)?;
    Ok(feed.into_buffer())
}

/// Whether the checksum of an lz4 frame's header counts. In messages of magic 0 it was computed wrongly for years.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptor {
    Checked,
    Ignored,
}

/// One stream of compressed bytes and how much may still come out of it.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    format: Format<'a>,
    limit: usize,
    produced: usize,
}

#[derive(Debug)]
enum Format<'a> {
    Plain(&'a [u8]),
    Gzip(Box<gzip::Gzip<'a>>),
    Snappy(snappy::Snappy<'a>),
    Lz4(Box<lz4::Lz4<'a>>),
    Zstd(zstd::Zstd<'a>),
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(
        codec: Codec,
        bytes: &'a [u8],
        limit: usize,
        descriptor: Descriptor,
    ) -> Result<Self, CodecError> {
        let format = match codec {
            Codec::Unknown(id) => return Err(CodecError::Unknown { id }),
            _ if bytes.is_empty() => Format::Plain(bytes),
            Codec::None => Format::Plain(bytes),
            Codec::Gzip => Format::Gzip(Box::new(gzip::Gzip::new(bytes))),
            Codec::Snappy => Format::Snappy(snappy::Snappy::new(bytes)?),
            Codec::Lz4 => Format::Lz4(Box::new(lz4::Lz4::new(bytes, descriptor)?)),
            Codec::Zstd => Format::Zstd(zstd::Zstd::new(bytes)?),
        };
        Ok(Self { format, limit, produced: 0 })
    }

    /// Writes at least one byte to the start of `into`, which is not empty, and answers how many; 0 at the end.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<usize, CodecError> {
        let left = self.left();
        if left == 0 {
            // Whether that was all is known only by asking for more.
            return match self.step(&mut [0], 1) {
                Ok(0) => Ok(0),
                Ok(_) | Err(CodecError::LimitExceeded { .. }) => {
                    Err(CodecError::LimitExceeded { limit: self.limit })
                }
                Err(error) => Err(error),
            };
        }
        let most = into.len().min(left);
        let size = match self.step(into.get_mut(..most).unwrap_or_default(), left) {
            Err(CodecError::LimitExceeded { .. }) => {
                return Err(CodecError::LimitExceeded { limit: self.limit });
            }
            step => step?,
        };
        self.produced = self.produced.saturating_add(size);
        Ok(size)
    }

    /// How many bytes may still come out.
    fn left(&self) -> usize {
        self.limit.saturating_sub(self.produced)
    }

    /// As [`Self::read`]; `left` is how much may come out at all, which bounds what is held for it.
    fn step(&mut self, into: &mut [u8], left: usize) -> Result<usize, CodecError> {
        match &mut self.format {
            Format::Plain(bytes) => Ok(copy(bytes, into)),
            Format::Gzip(gzip) => gzip.read(into),
            Format::Snappy(snappy) => snappy.read(into, left),
            Format::Lz4(lz4) => lz4.read(into, left),
            Format::Zstd(zstd) => zstd.read(into, left),
        }
    }
}

/// Moves as many bytes as fit from the front of `from`.
fn copy(from: &mut &[u8], into: &mut [u8]) -> usize {
    let size = from.len().min(into.len());
    let (front, rest) = from.split_at_checked(size).unwrap_or_default();
    if let Some(place) = into.get_mut(..size) {
        place.copy_from_slice(front);
    }
    *from = rest;
    size
}

/// Takes `size` bytes from the front of `from`.
fn take<'a>(from: &mut &'a [u8], size: usize, codec: Codec) -> Result<&'a [u8], CodecError> {
    let (front, rest) = from.split_at_checked(size).ok_or(CodecError::Truncated { codec })?;
    *from = rest;
    Ok(front)
}

fn take_array<const N: usize>(from: &mut &[u8], codec: Codec) -> Result<[u8; N], CodecError> {
    let (front, rest) = from.split_first_chunk::<N>().ok_or(CodecError::Truncated { codec })?;
    *from = rest;
    Ok(*front)
}

/// Decompressed bytes that have not been consumed: as few as were asked for, and a chunk.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    decoder: Decoder<'a>,
    buffer: Vec<u8>,
    // INVARIANT: start..end lies within the buffer; behind it are bytes without a meaning.
    start: usize,
    end: usize,
    position: usize,
    ended: bool,
}

impl<'a> Feed<'a> {
    pub(crate) fn new(decoder: Decoder<'a>) -> Self {
        Self { decoder, buffer: Vec::new(), start: 0, end: 0, position: 0, ended: false }
    }

    /// Where the first unconsumed byte lies in all that was decompressed.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The unconsumed bytes: at least `need`, or all that are left.
    ///
    /// Memory grows with the bytes that really come, whatever `need` says.
    pub(crate) fn fill(&mut self, need: usize) -> Result<&[u8], CodecError> {
        while !self.ended && self.unread().len() < need {
            let have = self.unread().len();
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, have);
            let size = have.saturating_mul(2).min(need).max(have.saturating_add(CHUNK));
            let size = size.min(have.saturating_add(self.decoder.left().max(1)));
            if let Some(more) = size.checked_sub(self.buffer.len()) {
                self.buffer.reserve_exact(more);
                self.buffer.resize(size, 0);
            }
            let size = self.decoder.read(self.buffer.get_mut(have..).unwrap_or_default())?;
            self.end = have.saturating_add(size);
            self.ended = size == 0;
        }
        Ok(self.unread())
    }

    /// Consumes up to `size` of the bytes that [`Self::fill`] answered, and gives them once more.
    pub(crate) fn consume(&mut self, size: usize) -> &[u8] {
        let start = self.start;
        self.start = start.saturating_add(size).min(self.end);
        self.position = self.position.saturating_add(self.start.saturating_sub(start));
        self.buffer.get(start..self.start).unwrap_or_default()
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// The buffer with all that was not consumed, if nothing was.
    fn into_buffer(mut self) -> Vec<u8> {
        self.buffer.truncate(self.end);
        self.buffer
    }
}

impl From<CodecError> for RecordError {
    fn from(error: CodecError) -> Self {
        Self::Codec(error)
    }
}

#[cfg(test)]
mod tests;
