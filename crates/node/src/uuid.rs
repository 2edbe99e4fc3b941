//! Kafka's 16-byte ids and their text form.
//!
//! Cluster ids, topic ids and directory ids are all version 4 UUIDs, written as 22 characters of
//! URL-safe base64 without padding.
//! Kafka: `org.apache.kafka.common.Uuid`.

use std::fmt;
use std::io::Read as _;
use std::str::FromStr;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Characters of the text form.
pub const TEXT_LEN: usize = 22;

/// A 16-byte id: of a cluster, a topic or a log directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// All zeros: what the protocol sends where there is no id.
    pub const ZERO: Self = Self([0; 16]);

    /// Takes the bytes as they are.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The sixteen bytes, most significant first.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Whether this is the id that stands for none.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// A new random id, from the system's source of randomness.
    ///
    /// Ids that begin with a dash are not handed out, since they look like options on a command
    /// line; nor are the ids that Kafka reserves.
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn random() -> std::io::Result<Self> {
        let mut source = std::fs::File::open("/dev/urandom")?;
        loop {
            let mut bytes = [0_u8; 16];
            source.read_exact(&mut bytes)?;
            bytes[6] = (bytes[6] & 0x0f) | 0x40;
            bytes[8] = (bytes[8] & 0x3f) | 0x80;
            let id = Self(bytes);
            if !id.to_string().starts_with('-') {
                return Ok(id);
            }
        }
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(TEXT_LEN);
        for chunk in self.0.chunks(3) {
            let mut bits = 0_u32;
            for index in 0..3 {
                bits = (bits << 8) | u32::from(chunk.get(index).copied().unwrap_or(0));
            }
            for index in 0..=chunk.len() {
                let six = (bits >> (18 - 6 * index)) & 0x3f;
                let six = usize::try_from(six).unwrap_or(0);
                text.push(char::from(ALPHABET[six]));
            }
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// A text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an id: 22 characters of URL-safe base64 are expected")]
pub struct ParseUuidError {
    /// What was found.
    pub text: String,
}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseUuidError { text: text.chars().take(64).collect() };
        if text.len() != TEXT_LEN {
            return Err(wrong());
        }
        let mut bits = 0_u128;
        for (index, byte) in text.bytes().enumerate() {
            let six = ALPHABET.iter().position(|known| *known == byte).ok_or_else(wrong)?;
            let six = u128::try_from(six).map_err(|_| wrong())?;
            if index + 1 == TEXT_LEN {
                // The last character carries the two lowest bits, and nothing below them.
                if six & 0x0f != 0 {
                    return Err(wrong());
                }
                bits = (bits << 2) | (six >> 4);
            } else {
                bits = (bits << 6) | six;
            }
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_as_kafka_writes_it() {
        // From a real broker: the cluster id "Golden-cluster-1" in base64.
        let id: Uuid = "R29sZGVuLWNsdXN0ZXItMQ".parse().unwrap();
        assert_eq!(&id.to_bytes(), b"Golden-cluster-1");
        assert_eq!(id.to_string(), "R29sZGVuLWNsdXN0ZXItMQ");
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    }

    #[test]
    fn a_random_id_survives_its_text_and_is_version_four() {
        for _ in 0..200 {
            let id = Uuid::random().unwrap();
            let text = id.to_string();
            assert_eq!(text.len(), TEXT_LEN);
            assert!(!text.starts_with('-'));
            assert_eq!(text.parse::<Uuid>().unwrap(), id);
            assert_eq!(id.to_bytes()[6] >> 4, 4);
        }
        assert_ne!(Uuid::random().unwrap(), Uuid::random().unwrap());
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in ["", "R29sZGVuLWNsdXN0ZXItM", "R29sZGVuLWNsdXN0ZXItMR", "R29sZGVuLWNsdXN0ZXIt+Q"] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
