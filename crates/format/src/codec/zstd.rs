//! zstd, as many frames as there are.

use std::fmt;

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation as _, OutBuffer};

use super::{take, take_array};
use crate::batch::Codec;
use crate::error::CodecError;

/// Frames that want a larger window are refused, as Kafka's library does.
pub const MAX_ZSTD_WINDOW_SIZE: u64 = 128 << 20;

const MAX_WINDOW_LOG: u32 = 27;

const CODEC: Codec = Codec::Zstd;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The second to fourth byte of a frame that carries no content; the first is 0x50 to 0x5f.
const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// Blocks are never larger than this or than the window, whichever is smaller, so a window is not made smaller.
const LARGEST_BLOCK: u64 = 128 << 10;

/// Magic, descriptor and window: what is given to the library in our own words.
const START_SIZE: usize = 6;

const SINGLE_SEGMENT_BIT: u8 = 0x20;

pub(super) struct Zstd<'a> {
    decoder: Decoder<'static>,
    // The first bytes of the current frame that the library has not seen yet, if they are not in `rest`.
    start: [u8; START_SIZE],
    start_left: usize,
    rest: &'a [u8],
    in_frame: bool,
}

fn malformed(reason: &'static str) -> CodecError {
    CodecError::Malformed { codec: CODEC, reason }
}

impl<'a> Zstd<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, CodecError> {
        let no_memory = |_| CodecError::Library { codec: CODEC };
        let mut decoder = Decoder::new().map_err(no_memory)?;
        decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).map_err(no_memory)?;
        Ok(Self { decoder, start: [0; START_SIZE], start_left: 0, rest: bytes, in_frame: false })
    }

    pub(super) fn read(&mut self, into: &mut [u8], left: usize) -> Result<usize, CodecError> {
        loop {
            if !self.in_frame {
                if self.rest.is_empty() {
                    return Ok(0);
                }
                if self.skip()? {
                    continue;
                }
                self.start_frame(left)?;
            }
            let (written, took) = self.step(into)?;
            if written > 0 {
                return Ok(written);
            }
            if self.in_frame && !took {
                // Nothing came out and nothing went in.
                return Err(CodecError::Truncated { codec: CODEC });
            }
        }
    }

    /// Goes behind a skippable frame, if one is next.
    fn skip(&mut self) -> Result<bool, CodecError> {
        let Some([first, rest @ ..]) = self.rest.first_chunk::<4>() else {
            return Err(CodecError::Truncated { codec: CODEC });
        };
        if first & 0xf0 != 0x50 || *rest != SKIPPABLE {
            return Ok(false);
        }
        take(&mut self.rest, MAGIC.len(), CODEC)?;
        let size = u32::from_le_bytes(take_array(&mut self.rest, CODEC)?);
        let size = usize::try_from(size).map_err(|_| CodecError::Truncated { codec: CODEC })?;
        take(&mut self.rest, size, CODEC)?;
        Ok(true)
    }

    /// Reads the frame's header and starts to decode it, with a window that is no larger than the output may be.
    fn start_frame(&mut self, left: usize) -> Result<(), CodecError> {
        let mut header = self.rest;
        if take_array(&mut header, CODEC)? != MAGIC {
            return Err(malformed("no zstd frame"));
        }
        let [descriptor] = take_array(&mut header, CODEC)?;
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        self.start_left = 0;
        if descriptor & SINGLE_SEGMENT_BIT != 0 {
            // The content is its own window.
            let size = content_size(descriptor, header)?;
            if size > left {
                return Err(CodecError::LimitExceeded { limit: usize::try_from(left).unwrap_or(usize::MAX) });
            }
            if size > MAX_ZSTD_WINDOW_SIZE {
                return Err(CodecError::WindowTooLarge { window_size: size });
            }
        } else {
            let [window] = take_array(&mut header, CODEC)?;
            let window_size = window_size(window);
            if window_size > MAX_ZSTD_WINDOW_SIZE {
                return Err(CodecError::WindowTooLarge { window_size });
            }
            let enough = left.max(LARGEST_BLOCK);
            if window_size > enough {
                // No match can reach back further than the output is long.
                let smaller = smallest_window(enough);
                let [a, b, c, d] = MAGIC;
                self.start = [a, b, c, d, descriptor, smaller];
                self.start_left = START_SIZE;
                self.rest = header;
            }
        }
        self.decoder.reinit().map_err(|_| CodecError::Library { codec: CODEC })?;
        self.in_frame = true;
        Ok(())
    }

    /// One call of the library: how many bytes came out, and whether any went in.
    fn step(&mut self, into: &mut [u8]) -> Result<(usize, bool), CodecError> {
        let from_start = START_SIZE.saturating_sub(self.start_left);
        let input = match self.start_left {
            0 => self.rest,
            _ => self.start.get(from_start..).unwrap_or_default(),
        };
        let mut input = InBuffer::around(input);
        let mut output = OutBuffer::around(into);
        let hint = self
            .decoder
            .run(&mut input, &mut output)
            .map_err(|_| malformed("a frame that is not zstd, or differs from its checksum"))?;
        let (took, written) = (input.pos(), output.pos());
        match self.start_left {
            0 => self.rest = self.rest.get(took..).unwrap_or_default(),
            left => self.start_left = left.saturating_sub(took),
        }
        self.in_frame = hint != 0;
        Ok((written, took > 0))
    }
}

/// What a window descriptor says: a power of two from 1 KiB and eighths of it.
fn window_size(descriptor: u8) -> u64 {
    let base = 1_u64.wrapping_shl(u32::from(descriptor >> 3).saturating_add(10));
    base.saturating_add((base >> 3).saturating_mul(u64::from(descriptor & 0x07)))
}

/// The descriptor of the smallest window of at least this size.
fn smallest_window(size: u64) -> u8 {
    (0..=u8::MAX).find(|descriptor| window_size(*descriptor) >= size).unwrap_or(u8::MAX)
}

/// The content size field of a frame of a single segment, which always has one.
fn content_size(descriptor: u8, mut header: &[u8]) -> Result<u64, CodecError> {
    let dictionary_id = match descriptor & 0x03 {
        0 => 0,
        1 => 1,
        2 => 2,
        _ => 4,
    };
    take(&mut header, dictionary_id, CODEC)?;
    Ok(match descriptor >> 6 {
        0 => {
            let [size] = take_array(&mut header, CODEC)?;
            u64::from(size)
        }
        // Two bytes start where one ends.
        1 => u64::from(u16::from_le_bytes(take_array(&mut header, CODEC)?)).saturating_add(256),
        2 => u64::from(u32::from_le_bytes(take_array(&mut header, CODEC)?)),
        _ => u64::from_le_bytes(take_array(&mut header, CODEC)?),
    })
}

impl fmt::Debug for Zstd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd").field("left", &self.rest.len()).field("in_frame", &self.in_frame).finish()
    }
}
