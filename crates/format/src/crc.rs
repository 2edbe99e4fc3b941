//! CRC-32C (Castagnoli), which Kafka uses for batches and for producer snapshots, and CRC-32 of its older messages.

/// Where the bytes start that a batch's CRC covers: its attributes. They end with the batch.
pub const CRC_COVERS_FROM: usize = 21;

/// The CRC-32C of `bytes`.
///
/// Cost: one pass, no allocation.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32 of `bytes`, as gzip has it: what messages of magic 0 and 1 are summed with.
///
/// Cost: one pass, no allocation.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iso_hdlc(bytes)
}

/// The CRC-32C that belongs into the header of `batch`, which must be exactly one batch.
///
/// Cost: one pass over the batch, no allocation.
pub fn batch_crc(batch: &[u8]) -> u32 {
    crc32c(batch.get(CRC_COVERS_FROM..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_is_right() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn every_size_agrees_with_the_sum_bit_by_bit() {
        // The fast path changes its method with the size; the slow one has no method.
        let bytes: Vec<u8> = (0..1100_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut slow = u32::MAX;
        for size in 0..bytes.len() {
            assert_eq!(crc32c(&bytes[..size]), !slow, "{size} bytes");
            slow ^= u32::from(bytes[size]);
            for _ in 0..8 {
                slow = (slow >> 1) ^ (0x82f6_3b78 & (slow & 1).wrapping_neg());
            }
        }
    }
}
