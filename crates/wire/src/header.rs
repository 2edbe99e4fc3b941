//! Request and response headers.

use bytes::Bytes;

use crate::api::{self, ApiKey, ApiRange};
use crate::codec::{Reader, Writer};
use crate::frame::{Frame, FrameBuilder};
use crate::message::Message;
use crate::{DecodeError, EncodeError, Limits, StrBytes};

/// What every request header starts with, whatever its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderStart {
    /// The API asked for.
    pub api_key: ApiKey,
    /// Its version.
    pub api_version: i16,
    /// The number that the answer repeats.
    pub correlation_id: i32,
}

/// A request header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// The API asked for.
    pub api_key: ApiKey,
    /// Its version.
    pub api_version: i16,
    /// The number that the answer repeats.
    pub correlation_id: i32,
    /// What the client calls itself, if anything.
    pub client_id: Option<StrBytes>,
}

/// A request that cannot be handed to a handler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The frame is shorter than eight bytes: nothing can be answered.
    #[error("a request of {size} bytes has no header")]
    TooShort {
        /// Bytes in the frame.
        size: usize,
    },
    /// Nobody knows how to answer this API: close the connection, as Kafka does.
    #[error("unknown API {}", start.api_key.get())]
    UnknownApi {
        /// The part of the header that was read.
        start: HeaderStart,
    },
    /// weir does not serve this version. ApiVersions is answered at version 0 with
    /// UNSUPPORTED_VERSION and the list; for any other API close the connection, as Kafka does.
    #[error("{} version {} is not served, only {} to {}", start.api_key, start.api_version, served.min, served.max)]
    UnsupportedVersion {
        /// The part of the header that was read.
        start: HeaderStart,
        /// What is served.
        served: ApiRange,
    },
    /// The rest of the header is malformed.
    #[error("malformed header of a {} request, version {}", start.api_key, start.api_version)]
    Malformed {
        /// The part of the header that was read.
        start: HeaderStart,
        /// What is wrong.
        source: DecodeError,
    },
}

/// The header version of a request: 1, or 2 when the API's version is flexible. (Version 0, without
/// a client id, belonged to an API that no Kafka serves any more.)
pub fn request_header_version(api_key: ApiKey, api_version: i16) -> Option<i16> {
    api_key.is_flexible(api_version).map(|flexible| if flexible { 2 } else { 1 })
}

/// The header version of a response: 0, or 1 when the API's version is flexible; always 0 for
/// ApiVersions, whose client does not know yet what the server speaks (KIP-511).
pub fn response_header_version(api_key: ApiKey, api_version: i16) -> Option<i16> {
    let flexible = api_key.is_flexible(api_version)?;
    Some(if flexible && api_key != ApiKey::API_VERSIONS { 1 } else { 0 })
}

impl HeaderStart {
    /// Reads the first eight bytes of a request.
    ///
    /// # Errors
    /// `TooShort`.
    pub fn decode(frame: &[u8]) -> Result<Self, HeaderError> {
        let Some(&[k0, k1, v0, v1, c0, c1, c2, c3]) = frame.first_chunk::<8>() else {
            return Err(HeaderError::TooShort { size: frame.len() });
        };
        Ok(Self {
            api_key: ApiKey::new(i16::from_be_bytes([k0, k1])),
            api_version: i16::from_be_bytes([v0, v1]),
            correlation_id: i32::from_be_bytes([c0, c1, c2, c3]),
        })
    }
}

impl RequestHeader {
    /// Reads the header of any API that weir serves, at any version it serves, and gives the body
    /// behind it. No copy.
    ///
    /// # Errors
    /// See [`HeaderError`]; each but `TooShort` carries what is needed to answer.
    pub fn decode(frame: Bytes) -> Result<(Self, Bytes), HeaderError> {
        let start = HeaderStart::decode(&frame)?;
        let served = api::served(start.api_key).ok_or(HeaderError::UnknownApi { start })?;
        if !served.contains(start.api_version) {
            return Err(HeaderError::UnsupportedVersion { start, served });
        }
        Self::decode_any(frame)
    }

    /// As [`RequestHeader::decode`], for every API that Kafka 4.4.0 or weir knows and any version.
    ///
    /// # Errors
    /// See [`HeaderError`]; never `UnsupportedVersion`.
    pub fn decode_any(frame: Bytes) -> Result<(Self, Bytes), HeaderError> {
        let start = HeaderStart::decode(&frame)?;
        let HeaderStart { api_key, api_version, correlation_id } = start;
        let flexible = api_key.is_flexible(api_version).ok_or(HeaderError::UnknownApi { start })?;
        let mut reader = Reader::new(frame.slice(8..), flexible, &Limits::SERVER);
        let client_id = reader
            .nullable_string_fixed("client id")
            .and_then(|client_id| reader.tagged(|_, _| Ok(false)).map(|()| client_id))
            .map_err(|source| HeaderError::Malformed { start, source })?;
        Ok((Self { api_key, api_version, correlation_id, client_id }, reader.rest()))
    }

    /// Starts the frame of this request.
    ///
    /// # Errors
    /// `UnknownApi`; `TooLong` for a client id above 32,767 bytes.
    pub fn encode(&self) -> Result<FrameBuilder, EncodeError> {
        let api_key = self.api_key;
        let flexible = api_key.is_flexible(self.api_version).ok_or(EncodeError::UnknownApi { api_key })?;
        let mut builder = FrameBuilder::new();
        let mut writer = Writer::new(&mut builder, flexible);
        writer.i16(api_key.get());
        writer.i16(self.api_version);
        writer.i32(self.correlation_id);
        writer.nullable_string_fixed("client id", self.client_id.as_deref())?;
        writer.no_tags()?;
        Ok(builder)
    }

    /// The frame that answers this request: its API, version and correlation id.
    ///
    /// # Errors
    /// A response that its version cannot say.
    pub fn respond<M: Message>(&self, response: &M) -> Result<Frame, EncodeError> {
        encode_response(self.api_key, self.api_version, self.correlation_id, response)
    }
}

/// The frame of one response. Record sets are not copied.
///
/// # Errors
/// `UnknownApi`, or a response that its version cannot say.
pub fn encode_response<M: Message>(
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    response: &M,
) -> Result<Frame, EncodeError> {
    let version = response_header_version(api_key, api_version).ok_or(EncodeError::UnknownApi { api_key })?;
    let mut builder = FrameBuilder::new();
    let mut writer = Writer::new(&mut builder, version == 1);
    writer.i32(correlation_id);
    writer.no_tags()?;
    response.encode(api_version, &mut builder)?;
    builder.finish()
}

/// Reads the header of a response to `api_key` at `api_version`: correlation id and body. No copy.
///
/// # Errors
/// `Truncated` and malformed tagged fields.
pub fn decode_response_header(
    api_key: ApiKey,
    api_version: i16,
    frame: Bytes,
) -> Result<(i32, Bytes), DecodeError> {
    let flexible = response_header_version(api_key, api_version) == Some(1);
    let mut reader = Reader::new(frame, flexible, &Limits::CLIENT);
    let correlation_id = reader.i32("correlation id")?;
    reader.tagged(|_, _| Ok(false))?;
    Ok((correlation_id, reader.rest()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_versions_follow_the_api_and_apiversions_answers_with_0() {
        assert_eq!(request_header_version(ApiKey::PRODUCE, 8), Some(1));
        assert_eq!(request_header_version(ApiKey::PRODUCE, 9), Some(2));
        assert_eq!(request_header_version(ApiKey::API_VERSIONS, 3), Some(2));
        assert_eq!(response_header_version(ApiKey::API_VERSIONS, 3), Some(0));
        assert_eq!(response_header_version(ApiKey::METADATA, 9), Some(1));
        assert_eq!(response_header_version(ApiKey::METADATA, 8), Some(0));
        assert_eq!(request_header_version(ApiKey::new(30094), 0), Some(2));
        assert_eq!(request_header_version(ApiKey::new(4), 0), None);
    }

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        for (api_key, api_version) in [(ApiKey::METADATA, 1), (ApiKey::METADATA, 12), (ApiKey::new(30098), 0)]
        {
            for client_id in [None, Some(StrBytes::from("")), Some(StrBytes::from("me"))] {
                let header = RequestHeader { api_key, api_version, correlation_id: 77, client_id };
                let mut builder = header.encode().unwrap();
                builder.head().extend_from_slice(b"body");
                let frame = Bytes::from(builder.finish().unwrap().to_vec_without_length());
                let (read, body) = RequestHeader::decode(frame).unwrap();
                assert_eq!(read, header);
                assert_eq!(body, &b"body"[..]);
            }
        }
    }

    #[test]
    fn what_is_not_served_is_told_apart() {
        let frame = |key: i16, version: i16| {
            let mut bytes = key.to_be_bytes().to_vec();
            bytes.extend_from_slice(&version.to_be_bytes());
            bytes.extend_from_slice(&[0, 0, 0, 9, 0xff, 0xff, 0]);
            Bytes::from(bytes)
        };
        assert!(matches!(RequestHeader::decode(frame(9999, 0)), Err(HeaderError::UnknownApi { .. })));
        match RequestHeader::decode(frame(18, 99)) {
            Err(HeaderError::UnsupportedVersion { start, served }) => {
                assert_eq!((start.correlation_id, served.max), (9, 5));
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(RequestHeader::decode(frame(18, -1)), Err(HeaderError::UnsupportedVersion { .. })));
        assert!(matches!(RequestHeader::decode(frame(18, 0).slice(..9)), Err(HeaderError::Malformed { .. })));
        assert!(matches!(
            RequestHeader::decode(frame(18, 0).slice(..7)),
            Err(HeaderError::TooShort { size: 7 })
        ));
    }
}
