//! What several modules need: the test data, and batches that are wrong on purpose.

use std::path::PathBuf;

use weir_format::crc;

pub(crate) fn manifest_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn testdata(path: &str) -> Vec<u8> {
    let path = manifest_dir().join("testdata").join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn json(path: &str) -> serde_json::Value {
    serde_json::from_slice(&testdata(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The bytes of a `.hex` file: two digits a byte, up to the first word that is none.
pub(crate) fn worked(name: &str) -> Vec<u8> {
    let text = String::from_utf8(testdata(&format!("worked/{name}.hex"))).expect("ASCII");
    let mut bytes = Vec::new();
    for line in text.lines() {
        let columns = line.split("  ").next().expect("a first column");
        for byte in columns.split_whitespace() {
            bytes.push(u8::from_str_radix(byte, 16).unwrap_or_else(|_| panic!("{name}: {line}")));
        }
    }
    bytes
}

/// Makes batch length and CRC right again after a test has changed what is in a batch.
pub(crate) fn seal(mut batch: Vec<u8>) -> Vec<u8> {
    let length = i32::try_from(batch.len() - 12).expect("a small batch");
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc::batch_crc(&batch);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// A batch of base offset 42 with these attributes, last offset delta, record count and record bytes.
pub(crate) fn raw_batch(
    attributes: i16,
    last_offset_delta: i32,
    record_count: i32,
    records: &[u8],
) -> Vec<u8> {
    let mut batch = Vec::new();
    batch.extend_from_slice(&42_i64.to_be_bytes());
    batch.extend_from_slice(&0_i32.to_be_bytes());
    batch.extend_from_slice(&12_i32.to_be_bytes());
    batch.push(2);
    batch.extend_from_slice(&0_u32.to_be_bytes());
    batch.extend_from_slice(&attributes.to_be_bytes());
    batch.extend_from_slice(&last_offset_delta.to_be_bytes());
    batch.extend_from_slice(&1_000_i64.to_be_bytes());
    batch.extend_from_slice(&2_000_i64.to_be_bytes());
    batch.extend_from_slice(&(-1_i64).to_be_bytes());
    batch.extend_from_slice(&(-1_i16).to_be_bytes());
    batch.extend_from_slice(&(-1_i32).to_be_bytes());
    batch.extend_from_slice(&record_count.to_be_bytes());
    batch.extend_from_slice(records);
    seal(batch)
}

pub(crate) fn base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut bits = 0_u32;
    let mut count = 0;
    for digit in text.bytes().filter(|digit| *digit != b'=') {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            other => panic!("{other} is no base64 digit"),
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).expect("eight bits"));
        }
    }
    bytes
}
