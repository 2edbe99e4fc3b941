//! What can be wrong with the bytes of a message, or with a message that is to become bytes.

use crate::api::ApiKey;

/// Bytes that are not the message they claim to be. The peer is at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message is not decoded at this version.
    #[error("{message} version {version} is not supported, only {min} to {max}")]
    UnsupportedVersion {
        /// Kafka's name of the message.
        message: &'static str,
        /// The version asked for.
        version: i16,
        /// Oldest version decoded here.
        min: i16,
        /// Newest version decoded here.
        max: i16,
    },
    /// The body ends before a field does.
    #[error("{field} at byte {position} needs {need} bytes, only {have} are left")]
    Truncated {
        /// What was being read.
        field: &'static str,
        /// Byte in the body.
        position: usize,
        /// Bytes that the field needs.
        need: usize,
        /// Bytes that are left.
        have: usize,
    },
    /// A length or count is negative where that has no meaning.
    #[error("{field} at byte {position} has the length {length}")]
    BadLength {
        /// What was being read.
        field: &'static str,
        /// Byte in the body.
        position: usize,
        /// The length as found.
        length: i64,
    },
    /// A count is larger than the budget, or than the bytes that are left could hold.
    #[error("{field} at byte {position} claims {count} elements, at most {limit} are possible")]
    TooMany {
        /// What was being read.
        field: &'static str,
        /// Byte in the body.
        position: usize,
        /// The count as found.
        count: usize,
        /// The most that is taken.
        limit: usize,
    },
    /// The body, or a string in it, is larger than its budget.
    #[error("{field} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// What was being read.
        field: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The budget in bytes.
        limit: usize,
    },
    /// Null where the field cannot be null.
    #[error("{field} at byte {position} is null")]
    Null {
        /// What was being read.
        field: &'static str,
        /// Byte in the body.
        position: usize,
    },
    /// A string is not UTF-8.
    #[error("{field} at byte {position} is not UTF-8")]
    NotUtf8 {
        /// What was being read.
        field: &'static str,
        /// Byte in the body.
        position: usize,
    },
    /// A variable-length integer is longer than five bytes or above 2^32 − 1.
    #[error("malformed variable-length integer at byte {position}")]
    Varint {
        /// Byte in the body.
        position: usize,
    },
    /// Tagged fields are not strictly ascending.
    #[error("tagged field {tag} at byte {position} does not follow {previous}")]
    TagOrder {
        /// Byte in the body.
        position: usize,
        /// The tag before.
        previous: u32,
        /// The tag found.
        tag: u32,
    },
    /// A tagged field's value is not as long as the field says.
    #[error("tagged field {tag} at byte {position} does not fill its {size} bytes")]
    TagSize {
        /// Byte in the body.
        position: usize,
        /// The tag.
        tag: u32,
        /// Its size as claimed.
        size: usize,
    },
    /// Bytes are left behind the last field.
    #[error("{count} bytes are left behind the last field")]
    Trailing {
        /// How many.
        count: usize,
    },
    /// A message that `kafka-wire` decodes is malformed.
    #[error("malformed {message} version {version}")]
    Message {
        /// Kafka's name of the message.
        message: &'static str,
        /// The version it was decoded as.
        version: i16,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A message that cannot be written. We are at fault: its fields do not fit the version or the wire.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message is not encoded at this version.
    #[error("{message} version {version} is not supported, only {min} to {max}")]
    UnsupportedVersion {
        /// Kafka's name of the message.
        message: &'static str,
        /// The version asked for.
        version: i16,
        /// Oldest version encoded here.
        min: i16,
        /// Newest version encoded here.
        max: i16,
    },
    /// The API has no known header version.
    #[error("unknown API {api_key}")]
    UnknownApi {
        /// The key.
        api_key: ApiKey,
    },
    /// A length or count does not fit its prefix.
    #[error("{field} has the length {length}, more than its prefix can say")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        length: usize,
    },
    /// A field that matters would be lost at this version.
    #[error("{message}.{field} cannot be said in version {version}")]
    NotRepresentable {
        /// Kafka's name of the message.
        message: &'static str,
        /// The field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A message that `kafka-wire` encodes does not fit the version.
    #[error("cannot encode {message} version {version}")]
    Message {
        /// Kafka's name of the message.
        message: &'static str,
        /// The version it was encoded as.
        version: i16,
        /// What is wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
