//! What it takes to be a message here, and the messages that `kafka-wire` brings.
//!
//! `kafka-wire`'s types are reached only through [`Message`], so that its decoder always runs under
//! our [`Limits`] and its errors are ours.

use bytes::Bytes;
use kafka_wire::{KafkaMessage, RequestResponsePair};
use kafka_wire_core::{ApiVersion, DecodeLimits, Decoder, KafkaDecode};

use crate::api::ApiKey;
use crate::frame::{Frame, FrameBuilder};
use crate::header::RequestHeader;
use crate::{DecodeError, EncodeError, Limits, StrBytes};

/// A request or response body.
pub trait Message: Sized {
    /// Kafka's name of the message.
    const NAME: &'static str;
    /// Oldest and newest version that is encoded and decoded.
    const VERSIONS: (i16, i16);

    /// Reads the message from a whole body.
    ///
    /// Cost: strings and records are slices of `body`, not copies.
    ///
    /// # Errors
    /// See [`DecodeError`]; the peer is at fault.
    fn decode(body: Bytes, version: i16, limits: &Limits) -> Result<Self, DecodeError>;

    /// Appends the message to a frame.
    ///
    /// # Errors
    /// See [`EncodeError`]; the message does not fit the version or the wire.
    fn encode(&self, version: i16, out: &mut FrameBuilder) -> Result<(), EncodeError>;
}

/// A request, and what answers it.
pub trait Request: Message {
    /// The API.
    const API_KEY: ApiKey;
    /// What answers it, at the same version.
    type Response: Message;
    /// Oldest and newest version that a client of ours may use: those of both directions, without
    /// any that Kafka calls unstable.
    const CLIENT_VERSIONS: (i16, i16) = Self::VERSIONS;
}

/// Reads a whole body as a message.
///
/// ```
/// use bytes::Bytes;
/// use weir_wire::{Limits, decode, msg::MetadataRequest};
///
/// // Four bytes that claim 2^31 - 1 topics cost nothing.
/// let body = Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff]);
/// assert!(decode::<MetadataRequest>(body, 1, &Limits::SERVER).is_err());
/// ```
///
/// # Errors
/// See [`DecodeError`]; the peer is at fault.
pub fn decode<M: Message>(body: Bytes, version: i16, limits: &Limits) -> Result<M, DecodeError> {
    M::decode(body, version, limits)
}

/// The body of a message, without header and length.
///
/// # Errors
/// See [`EncodeError`].
pub fn encode<M: Message>(message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut builder = FrameBuilder::new();
    message.encode(version, &mut builder)?;
    Ok(Bytes::from(builder.finish()?.to_vec_without_length()))
}

/// The frame of one request. Record sets are not copied.
///
/// # Errors
/// See [`EncodeError`].
pub fn encode_request<R: Request>(
    request: &R,
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
) -> Result<Frame, EncodeError> {
    let client_id = client_id.map(StrBytes::from);
    let header = RequestHeader { api_key: R::API_KEY, api_version: version, correlation_id, client_id };
    let mut builder = header.encode()?;
    request.encode(version, &mut builder)?;
    builder.finish()
}

pub(crate) fn check_decode(
    message: &'static str,
    version: i16,
    (min, max): (i16, i16),
) -> Result<(), DecodeError> {
    if (min..=max).contains(&version) {
        Ok(())
    } else {
        Err(DecodeError::UnsupportedVersion { message, version, min, max })
    }
}

pub(crate) fn check_encode(
    message: &'static str,
    version: i16,
    (min, max): (i16, i16),
) -> Result<(), EncodeError> {
    if (min..=max).contains(&version) {
        Ok(())
    } else {
        Err(EncodeError::UnsupportedVersion { message, version, min, max })
    }
}

fn kafka_wire_limits(limits: &Limits) -> DecodeLimits {
    let mut out = DecodeLimits::default();
    out.max_frame_bytes = limits.max_message_bytes;
    out.max_string_bytes = limits.max_string_bytes;
    out.max_bytes_bytes = limits.max_message_bytes;
    out.max_array_elements = limits.max_array_elements;
    out.max_tagged_fields = limits.max_tagged_fields;
    out.max_tag_bytes = limits.max_message_bytes;
    out.max_total_tag_bytes = limits.max_message_bytes;
    out
}

impl<T: KafkaMessage> Message for T {
    const NAME: &'static str = <T as KafkaMessage>::NAME;
    const VERSIONS: (i16, i16) = (T::SUPPORTED_VERSIONS.min().value(), T::SUPPORTED_VERSIONS.max().value());

    fn decode(body: Bytes, version: i16, limits: &Limits) -> Result<Self, DecodeError> {
        let message = <Self as Message>::NAME;
        check_decode(message, version, Self::VERSIONS)?;
        if body.len() > limits.max_message_bytes {
            let limit = limits.max_message_bytes;
            return Err(DecodeError::TooLarge { field: message, size: body.len(), limit });
        }
        let decoded = Decoder::new(body, kafka_wire_limits(limits)).and_then(|mut decoder| {
            let decoded = <T as KafkaDecode>::decode(&mut decoder, ApiVersion::new(version))?;
            if !limits.ignore_trailing_bytes {
                decoder.finish()?;
            }
            Ok(decoded)
        });
        decoded.map_err(|error| DecodeError::Message { message, version, source: Box::new(error) })
    }

    fn encode(&self, version: i16, out: &mut FrameBuilder) -> Result<(), EncodeError> {
        let message = <Self as Message>::NAME;
        check_encode(message, version, Self::VERSIONS)?;
        self.encode_into(out.head(), ApiVersion::new(version))
            .map(|_| ())
            .map_err(|error| EncodeError::Message { message, version, source: Box::new(error) })
    }
}

impl<T: RequestResponsePair> Request for T {
    const API_KEY: ApiKey = ApiKey::new(<T as kafka_wire::KafkaRequest>::API_KEY.value());
    type Response = <T as RequestResponsePair>::Response;
    const CLIENT_VERSIONS: (i16, i16) = {
        let min = T::SUPPORTED_VERSIONS.min().value();
        match T::API_DESCRIPTOR.latest_stable_version() {
            Some(newest) => (min, newest.value()),
            None => (min, min),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msg::MetadataRequest;

    #[test]
    fn librdkafkas_request_for_all_topics_is_read_as_kafka_reads_it() {
        // As librdkafka 2.16.0 sent it: an int32 0 for the topics, then the two flags and the tags.
        let body = Bytes::from_static(&[0, 0, 0, 0, 1, 0, 0]);
        let request: MetadataRequest = decode(body.clone(), 13, &Limits::SERVER).unwrap();
        assert_eq!(request.topics, None);
        assert!(decode::<MetadataRequest>(body, 13, &Limits::CLIENT).is_err());
    }
}
