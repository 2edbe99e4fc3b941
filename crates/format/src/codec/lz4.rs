//! lz4 in its frame format, one frame of independent blocks, as Kafka writes and takes it.

use std::fmt;

use lz4_flex::block::{DecompressError, decompress_into};
use twox_hash::XxHash32;

use super::{Descriptor, copy, take, take_array};
use crate::batch::Codec;
use crate::error::CodecError;

const CODEC: Codec = Codec::Lz4;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

const CONTENT_CHECKSUM_BIT: u8 = 0x04;
const CONTENT_SIZE_BIT: u8 = 0x08;
const BLOCK_CHECKSUM_BIT: u8 = 0x10;
const INDEPENDENT_BIT: u8 = 0x20;

/// In a block's size: its bytes are not compressed.
const STORED_BIT: u32 = 0x8000_0000;

/// No byte of the format yields more than this many.
const LARGEST_RATIO: usize = 255;

pub(super) struct Lz4<'a> {
    rest: &'a [u8],
    block_checksums: bool,
    content_checksum: Option<XxHash32>,
    content_size: Option<u64>,
    max_block_size: usize,
    block: Vec<u8>,
    start: usize,
    produced: u64,
    ended: bool,
}

fn malformed(reason: &'static str) -> CodecError {
    CodecError::Malformed { codec: CODEC, reason }
}

impl<'a> Lz4<'a> {
    pub(super) fn new(bytes: &'a [u8], descriptor: Descriptor) -> Result<Self, CodecError> {
        let mut rest = bytes;
        if take_array(&mut rest, CODEC)? != MAGIC {
            return Err(malformed("no lz4 frame"));
        }
        let from_flags = rest;
        let [flags, block_descriptor] = take_array(&mut rest, CODEC)?;
        if flags >> 6 != 1 {
            return Err(malformed("a frame of unknown version"));
        }
        if flags & INDEPENDENT_BIT == 0 {
            return Err(malformed("a frame whose blocks depend on each other"));
        }
        if flags & 0x03 != 0 || block_descriptor & 0x8f != 0 {
            return Err(malformed("a frame with a dictionary or reserved bits"));
        }
        let max_block_size = match block_descriptor >> 4 {
            4 => 64 << 10,
            5 => 256 << 10,
            6 => 1 << 20,
            7 => 4 << 20,
            _ => return Err(malformed("a frame of unknown block size")),
        };
        let content_size = match flags & CONTENT_SIZE_BIT {
            0 => None,
            _ => Some(u64::from_le_bytes(take_array(&mut rest, CODEC)?)),
        };
        let described = from_flags.len().saturating_sub(rest.len());
        let described = from_flags.get(..described).unwrap_or_default();
        let [checksum] = take_array(&mut rest, CODEC)?;
        let [_, computed, ..] = XxHash32::oneshot(0, described).to_le_bytes();
        if descriptor == Descriptor::Checked && checksum != computed {
            return Err(malformed("a frame header that differs from its checksum"));
        }
        Ok(Self {
            rest,
            block_checksums: flags & BLOCK_CHECKSUM_BIT != 0,
            content_checksum: (flags & CONTENT_CHECKSUM_BIT != 0).then(|| XxHash32::with_seed(0)),
            content_size,
            max_block_size,
            block: Vec::new(),
            start: 0,
            produced: 0,
            ended: false,
        })
    }

    pub(super) fn read(&mut self, into: &mut [u8], left: usize) -> Result<usize, CodecError> {
        loop {
            let mut unread = self.block.get(self.start..).unwrap_or_default();
            if !unread.is_empty() {
                let size = copy(&mut unread, into);
                self.start = self.start.saturating_add(size);
                return Ok(size);
            }
            if self.ended {
                return Ok(0);
            }
            self.next_block(left)?;
        }
    }

    fn next_block(&mut self, left: usize) -> Result<(), CodecError> {
        self.block.clear();
        self.start = 0;
        let field = u32::from_le_bytes(take_array(&mut self.rest, CODEC)?);
        if field == 0 {
            self.ended = true;
            return self.end();
        }
        if field == STORED_BIT {
            // Kafka: a size of 0 is the end mark, stored or not, and what stands behind it would never be seen.
            return Err(malformed("a stored block of no byte, which Kafka takes for the end"));
        }
        let size =
            usize::try_from(field & !STORED_BIT).map_err(|_| malformed("a block of impossible size"))?;
        if size > self.max_block_size {
            return Err(malformed("a block larger than its frame allows"));
        }
        let bytes = take(&mut self.rest, size, CODEC)?;
        if self.block_checksums {
            let checksum = u32::from_le_bytes(take_array(&mut self.rest, CODEC)?);
            if checksum != XxHash32::oneshot(0, bytes) {
                return Err(malformed("a block that differs from its checksum"));
            }
        }
        if field & STORED_BIT != 0 {
            if size > left {
                return Err(CodecError::LimitExceeded { limit: left });
            }
            self.block.extend_from_slice(bytes);
        } else {
            self.decompress(bytes, left)?;
        }
        if let Some(checksum) = &mut self.content_checksum {
            std::hash::Hasher::write(checksum, &self.block);
        }
        let size = u64::try_from(self.block.len()).unwrap_or(u64::MAX);
        self.produced = self.produced.saturating_add(size);
        Ok(())
    }

    fn decompress(&mut self, bytes: &[u8], left: usize) -> Result<(), CodecError> {
        let most = bytes.len().saturating_mul(LARGEST_RATIO).min(self.max_block_size);
        self.block.resize(most.min(left), 0);
        match decompress_into(bytes, &mut self.block) {
            Ok(size) => {
                self.block.truncate(size);
                Ok(())
            }
            Err(DecompressError::OutputTooSmall { .. }) if left < most => {
                Err(CodecError::LimitExceeded { limit: left })
            }
            Err(_) => Err(malformed("a block that is not lz4, or larger than its frame allows")),
        }
    }

    fn end(&mut self) -> Result<(), CodecError> {
        if let Some(computed) = &self.content_checksum {
            let checksum = u32::from_le_bytes(take_array(&mut self.rest, CODEC)?);
            if checksum != computed.finish_32() {
                return Err(malformed("content that differs from its checksum"));
            }
        }
        if self.content_size.is_some_and(|size| size != self.produced) {
            return Err(malformed("content of another size than its frame says"));
        }
        if !self.rest.is_empty() {
            return Err(malformed("bytes behind the frame"));
        }
        Ok(())
    }
}

impl fmt::Debug for Lz4<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lz4").field("left", &self.rest.len()).field("produced", &self.produced).finish()
    }
}
