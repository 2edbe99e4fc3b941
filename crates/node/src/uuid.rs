//! Ids of clusters, topics and log directories: making them, and the wire's form of them.

use std::io::Read as _;

pub use weir_segment::layout::Uuid;

/// All zeros: what the protocol sends where there is no id.
pub const ZERO: Uuid = Uuid([0; 16]);

/// A new random id (version 4), from the system's source of randomness.
///
/// None begins with a dash, which would look like an option on a command line.
/// Kafka: `Uuid.randomUuid`.
///
/// # Errors
/// If the system has no randomness to give.
pub fn random() -> std::io::Result<Uuid> {
    let mut source = std::fs::File::open("/dev/urandom")?;
    loop {
        let mut bytes = [0_u8; 16];
        source.read_exact(&mut bytes)?;
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let id = Uuid(bytes);
        if !id.to_string().starts_with('-') {
            return Ok(id);
        }
    }
}

/// The id as the protocol's messages have it.
pub fn to_wire(id: Uuid) -> weir_wire::Uuid {
    weir_wire::Uuid::from_bytes(id.0)
}

/// The id of a protocol's message.
pub fn from_wire(id: weir_wire::Uuid) -> Uuid {
    Uuid(id.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_id_is_new_each_time_and_of_version_four() {
        for _ in 0..200 {
            let id = random().unwrap();
            assert!(!id.to_string().starts_with('-'));
            assert_eq!(id.0[6] >> 4, 4);
            assert_eq!(from_wire(to_wire(id)), id);
        }
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
