//! CRC-32C (Castagnoli), which Kafka uses for batches and for producer snapshots, and CRC-32 of its older messages.

/// Where the bytes start that a batch's CRC covers: its attributes. They end with the batch.
pub const CRC_COVERS_FROM: usize = 21;

/// The CRC-32C of `bytes`.
///
/// Cost: one pass, no allocation.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32C of two runs of bytes, one behind the other, from the CRC-32C of each and the size of the second in bytes.
///
/// Cost: no pass over the bytes; some steps for each doubling of the size.
pub fn crc32c_joined(first: u32, second: u32, second_size: u64) -> u32 {
    let (first, second) = (u64::from(first), u64::from(second));
    let joined = crc_fast::checksum_combine(crc_fast::CrcAlgorithm::Crc32Iscsi, first, second, second_size);
    u32::try_from(joined).expect("a CRC-32C has 32 bits")
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
    fn the_sum_of_two_parts_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..3000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for cut in [0, 1, 6, 61, 1023, 2999, 3000] {
            let (first, second) = bytes.split_at(cut);
            let joined = crc32c_joined(crc32c(first), crc32c(second), second.len() as u64);
            assert_eq!(joined, crc32c(&bytes), "cut at {cut}");
        }
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
