//! gzip, as many members as there are.

use std::fmt;
use std::io::{ErrorKind, Read as _};

use flate2::bufread::MultiGzDecoder;

use crate::batch::Codec;
use crate::error::CodecError;

pub(super) struct Gzip<'a>(MultiGzDecoder<&'a [u8]>);

impl<'a> Gzip<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(MultiGzDecoder::new(bytes))
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> Result<usize, CodecError> {
        let codec = Codec::Gzip;
        self.0.read(into).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => CodecError::Truncated { codec },
            _ => CodecError::Malformed {
                codec,
                reason: "no gzip member, or one that differs from its checksum",
            },
        })
    }
}

impl fmt::Debug for Gzip<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gzip")
    }
}
