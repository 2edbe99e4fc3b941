//! The same walks by `kafka-protocol`, which is nobody's dependency but ours here.
//!
//! Its decoder takes `Bytes`, checks the CRC always (with the crate `crc32c`, in hardware), and answers a `Vec` of owned
//! records whose keys and values share the input's memory; headers are a map from key to value.

use bytes::Bytes;
use kafka_protocol::records::{Record, RecordBatchDecoder};
use weir_benches::format::input::{mix, mix_header};

/// Every record with its headers, batch by batch, each batch's records dropped before the next.
pub(crate) fn record_walk_with_crc(bytes: &Bytes) -> u64 {
    let mut rest = bytes.clone();
    let mut hash = 0_u64;
    while !rest.is_empty() {
        let set = RecordBatchDecoder::decode(&mut rest).expect("it is built");
        hash = set.records.iter().fold(hash, |hash, record| hash.wrapping_add(look(record)));
    }
    hash
}

#[inline]
fn look(record: &Record) -> u64 {
    let hash = mix(record.offset, record.timestamp, record.key.as_deref(), record.value.as_deref());
    record
        .headers
        .iter()
        .fold(hash, |hash, (key, value)| hash.wrapping_add(mix_header(key.as_bytes(), value.as_deref())))
}

/// The sum over each batch's covered bytes as its decoder computes it.
pub(crate) fn crc_alone(frames: &[&[u8]]) -> u64 {
    frames.iter().fold(0, |hash, frame| {
        hash.wrapping_add(u64::from(crc32c::crc32c(frame.get(21..).unwrap_or_default())))
    })
}
