//! snappy, bare or in the framing of snappy-java ("Xerial"): sixteen bytes, then blocks behind 32-bit sizes.
//!
//! Java's clients and kafka-python frame it, librdkafka does not.

use std::fmt;

use super::{copy, take, take_array};
use crate::batch::Codec;
use crate::error::CodecError;

const CODEC: Codec = Codec::Snappy;

/// What a framed stream starts with, before two 32-bit versions.
const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];

/// The versions behind the magic; what they say has never changed.
const VERSIONS_SIZE: usize = 8;

/// No element of the format yields more than 64 bytes from three.
const LARGEST_RATIO: usize = 22;

pub(super) struct Snappy<'a> {
    rest: &'a [u8],
    framed: bool,
    block: Vec<u8>,
    start: usize,
}

impl<'a> Snappy<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, CodecError> {
        let mut rest = bytes;
        let framed = bytes.starts_with(&MAGIC);
        if framed {
            take(&mut rest, MAGIC.len().saturating_add(VERSIONS_SIZE), CODEC)?;
        }
        Ok(Self { rest, framed, block: Vec::new(), start: 0 })
    }

    pub(super) fn read(&mut self, into: &mut [u8], left: usize) -> Result<usize, CodecError> {
        loop {
            let mut unread = self.block.get(self.start..).unwrap_or_default();
            if !unread.is_empty() {
                let size = copy(&mut unread, into);
                self.start = self.start.saturating_add(size);
                return Ok(size);
            }
            if self.rest.is_empty() {
                return Ok(0);
            }
            let block = self.next_block()?;
            self.decompress(block, left)?;
        }
    }

    /// The compressed bytes of the next block; of a bare stream that is all of it.
    fn next_block(&mut self) -> Result<&'a [u8], CodecError> {
        if !self.framed {
            return Ok(std::mem::take(&mut self.rest));
        }
        // Streams may stand one behind the other, each with its sixteen bytes.
        while self.rest.starts_with(&MAGIC) {
            take(&mut self.rest, MAGIC.len().saturating_add(VERSIONS_SIZE), CODEC)?;
        }
        if self.rest.is_empty() {
            return Ok(&[]);
        }
        let length = i32::from_be_bytes(take_array(&mut self.rest, CODEC)?);
        let size = usize::try_from(length)
            .map_err(|_| CodecError::Malformed { codec: CODEC, reason: "a block of negative size" })?;
        take(&mut self.rest, size, CODEC)
    }

    fn decompress(&mut self, block: &[u8], left: usize) -> Result<(), CodecError> {
        let malformed = |_| CodecError::Malformed { codec: CODEC, reason: "a block that is not snappy" };
        let size = snap::raw::decompress_len(block).map_err(malformed)?;
        if size > block.len().saturating_mul(LARGEST_RATIO) {
            let reason = "a block that claims more than its bytes can hold";
            return Err(CodecError::Malformed { codec: CODEC, reason });
        }
        if size > left {
            return Err(CodecError::LimitExceeded { limit: left });
        }
        self.start = 0;
        self.block.clear();
        self.block.resize(size, 0);
        let written = snap::raw::Decoder::new().decompress(block, &mut self.block).map_err(malformed)?;
        self.block.truncate(written);
        Ok(())
    }
}

impl fmt::Debug for Snappy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snappy").field("framed", &self.framed).field("left", &self.rest.len()).finish()
    }
}
