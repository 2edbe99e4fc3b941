//! What several modules need: the test data, and batches that are wrong on purpose.

use std::path::PathBuf;
use std::sync::LazyLock;

use weir_format::crc;

pub(crate) fn manifest_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn testdata(path: &str) -> Vec<u8> {
    let path = manifest_dir().join("testdata").join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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

/// The constants of SHA-256: of its rounds, and what it starts from.
static SHA256: LazyLock<([u32; 64], [u32; 8])> = LazyLock::new(|| {
    // The fractional parts of cube and square roots of the first primes.
    let primes: Vec<u128> = (2_u128..).filter(|n| (2..*n).all(|d| n % d != 0)).take(64).collect();
    let root = |value: u128, power: u32| -> u32 {
        let (mut low, mut high) = (0_u128, 1 << 40);
        while low + 1 < high {
            let middle = (low + high) / 2;
            let fits = middle.checked_pow(power).is_some_and(|power| power <= value);
            if fits { low = middle } else { high = middle }
        }
        u32::try_from(low & 0xffff_ffff).expect("32 bits")
    };
    let rounds = std::array::from_fn(|at| root(primes[at] << 96, 3));
    (rounds, std::array::from_fn(|at| root(primes[at] << 64, 2)))
});

/// SHA-256, in hex: in this form are the longer bytes in Kafka's answers.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let (k, mut state) = *SHA256;
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(u64::try_from(bytes.len()).expect("a size") * 8).to_be_bytes());
    for block in padded.chunks(64) {
        let mut w: Vec<u32> =
            block.chunks(4).map(|word| u32::from_be_bytes(word.try_into().expect("four bytes"))).collect();
        for at in 16..64 {
            let (x, y) = (w[at - 15], w[at - 2]);
            let small = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
            let large = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
            w.push(w[at - 16].wrapping_add(small).wrapping_add(w[at - 7]).wrapping_add(large));
        }
        let mut s = state;
        for at in 0..64 {
            let (a, e) = (s[0], s[4]);
            let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = (e & s[5]) ^ (!e & s[6]);
            let first = s[7].wrapping_add(sum).wrapping_add(choice).wrapping_add(k[at]).wrapping_add(w[at]);
            let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let second = sum.wrapping_add((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
            s = [first.wrapping_add(second), a, s[1], s[2], s[3].wrapping_add(first), e, s[5], s[6]];
        }
        for (state, add) in state.iter_mut().zip(s) {
            *state = state.wrapping_add(add);
        }
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

#[test]
fn the_digest_of_abc_is_right() {
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
