//! Budgets for bytes that a peer chose.

/// How much one message from a peer may cost us.
///
/// A frame is checked before it is decoded, a decoder before it allocates. No number that a peer
/// sends sizes an allocation by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest frame, without its four length bytes. Kafka: `socket.request.max.bytes`.
    pub max_frame_bytes: usize,
    /// Largest body of any message that does not carry records. Such bodies expand when decoded
    /// (an empty string is one byte on the wire and 32 in memory), so they get less than a frame.
    pub max_message_bytes: usize,
    /// Longest string, in bytes.
    pub max_string_bytes: usize,
    /// Most array elements: in one message for the types decoded here, in one array for the others.
    pub max_array_elements: usize,
    /// Most unknown tagged fields in one structure.
    pub max_tagged_fields: usize,
    /// Whether bytes behind the last field of a `kafka-wire` message are ignored, as Kafka's own parser does. A server
    /// must: librdkafka 2.16 asks for all topics (Metadata 13) with a count of four bytes where one stands, and Kafka
    /// reads the first of them as the null that was meant.
    pub ignore_trailing_bytes: bool,
}

impl Limits {
    /// For requests that a server receives.
    pub const SERVER: Self = Self {
        max_frame_bytes: 104_857_600,
        max_message_bytes: 8 << 20,
        max_string_bytes: 1 << 20,
        max_array_elements: 1_000_000,
        max_tagged_fields: 256,
        ignore_trailing_bytes: true,
    };

    /// For responses that a client receives from a broker it chose.
    pub const CLIENT: Self = Self {
        max_frame_bytes: 128 << 20,
        max_message_bytes: 64 << 20,
        max_string_bytes: 1 << 20,
        max_array_elements: 1_000_000,
        max_tagged_fields: 256,
        ignore_trailing_bytes: false,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::SERVER
    }
}
