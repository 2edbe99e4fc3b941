use super::*;
use crate::RecordBatch;

const CODECS: [(Codec, &str); 4] =
    [(Codec::Gzip, "gzip"), (Codec::Snappy, "snappy"), (Codec::Lz4, "lz4"), (Codec::Zstd, "zstd")];

fn batch(name: &str) -> Vec<u8> {
    let path = format!("{}/testdata/batches/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The compressed records of Kafka's batch of this codec, and what they are.
fn compressed(name: &str) -> (Vec<u8>, Vec<u8>) {
    let (bytes, plain) = (batch(&format!("v2-{name}")), batch("v2-none"));
    let bytes = RecordBatch::parse(&bytes).expect("a batch").bytes()[61..].to_vec();
    (bytes, plain[61..].to_vec())
}

#[test]
fn every_codec_yields_what_kafka_compressed_up_to_the_limit() {
    for (codec, name) in CODECS {
        let (bytes, plain) = compressed(name);
        let size = plain.len();
        for limit in [size, size + 1, usize::MAX] {
            assert_eq!(decompress(codec, &bytes, limit), Ok(plain.clone()), "{name}, limit {limit}");
        }
        for limit in 0..size {
            let error = Err(CodecError::LimitExceeded { limit });
            assert_eq!(decompress(codec, &bytes, limit), error, "{name}");
        }
        assert_eq!(decompress(codec, &[], 0), Ok(Vec::new()), "{name}: nothing is nothing");
    }
    assert_eq!(decompress(Codec::Unknown(5), b"x", 9), Err(CodecError::Unknown { id: 5 }));
    assert_eq!(decompress(Codec::None, b"plain", 5), Ok(b"plain".to_vec()));
    assert_eq!(decompress(Codec::None, b"plain", 4), Err(CodecError::LimitExceeded { limit: 4 }));
}

#[test]
fn every_cut_is_an_error() {
    for (codec, name) in CODECS {
        let (bytes, _) = compressed(name);
        for size in 1..bytes.len() {
            let cut = decompress(codec, &bytes[..size], 1 << 20);
            // A framed snappy stream says nowhere that it has ended, nor does Kafka's reader miss anything.
            let framed_end = name == "snappy" && size == 16;
            assert_eq!(cut.is_ok(), framed_end, "{name} cut at {size}: {cut:?}");
        }
    }
}

#[test]
fn every_flipped_bit_of_a_codec_with_a_checksum_is_an_error_or_changes_nothing() {
    // gzip sums its content; of the other three Kafka's writers sum at most a frame's header.
    let (bytes, plain) = compressed("gzip");
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(got) = decompress(Codec::Gzip, &flipped, 1 << 20) {
            assert_eq!(got, plain, "bit {bit}");
        }
    }
    let (bytes, plain) = compressed("lz4");
    for bit in 0..7 * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let got = decompress(Codec::Lz4, &flipped, 1 << 20);
        assert!(got.is_err(), "bit {bit}: {}", got == Ok(plain.clone()));
    }
}

#[test]
fn two_streams_one_behind_the_other_are_both_read_where_kafka_reads_both() {
    for (codec, name) in CODECS {
        let (bytes, plain) = compressed(name);
        let got = decompress(codec, &[&bytes[..], &bytes].concat(), 1 << 20);
        if codec == Codec::Lz4 {
            let reason = "bytes behind the frame";
            assert_eq!(got, Err(CodecError::Malformed { codec, reason }));
        } else {
            assert_eq!(got, Ok([&plain[..], &plain].concat()), "{name}");
        }
    }
}

#[test]
fn gzip_header_fields_are_skipped_up_to_64_kib() {
    // Kafka skips longer ones as well; nobody writes any into a batch, and the library keeps them while it reads.
    let (bytes, plain) = compressed("gzip");
    for size in [0, 1, 60_000, 70_000, 1 << 20] {
        let mut long = bytes[..10].to_vec();
        long[3] |= 0x08 | 0x10;
        for _ in 0..2 {
            long.resize(long.len() + size, b'n');
            long.push(0);
        }
        long.extend_from_slice(&bytes[10..]);
        let got = decompress(Codec::Gzip, &long, 1 << 20);
        assert_eq!(got == Ok(plain.clone()), size < 1 << 16, "{size}: {got:?}");
    }
}

#[test]
fn bytes_of_no_codec_are_refused_by_all() {
    for (codec, name) in CODECS {
        for bytes in
            [&[0xff; 40][..], &[0x00; 40], &[0x1f; 3], b"not compressed at all, not even a little bit"]
        {
            let got = decompress(codec, bytes, 1 << 20);
            assert!(got.is_err(), "{name}: {got:?}");
        }
    }
}

#[test]
fn snappy_is_read_bare_as_librdkafka_writes_it() {
    let plain: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_be_bytes()).collect();
    let bare = snap::raw::Encoder::new().compress_vec(&plain).expect("it fits");
    assert_eq!(decompress(Codec::Snappy, &bare, plain.len()), Ok(plain));
    // A claim of 4 GiB − 1 in a handful of bytes.
    let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, 0x61];
    let error = decompress(Codec::Snappy, &claim, usize::MAX).expect_err("a lie");
    assert!(matches!(error, CodecError::Malformed { .. }), "{error}");
}

fn lz4_frame(flags: u8, descriptor: u8, behind_header: &[u8]) -> Vec<u8> {
    let checksum = twox_hash::XxHash32::oneshot(0, &[flags, descriptor]).to_le_bytes()[1];
    [&[0x04, 0x22, 0x4d, 0x18, flags, descriptor, checksum][..], behind_header].concat()
}

#[test]
fn lz4_headers_that_kafka_refuses_are_refused_by_name() {
    let end = [0; 4];
    assert_eq!(decompress(Codec::Lz4, &lz4_frame(0x60, 0x40, &end), 9), Ok(Vec::new()));
    for (flags, descriptor, want) in [
        (0x40, 0x40, "a frame whose blocks depend on each other"),
        (0xa0, 0x40, "a frame of unknown version"),
        (0x61, 0x40, "a frame with a dictionary or reserved bits"),
        (0x62, 0x40, "a frame with a dictionary or reserved bits"),
        (0x60, 0xc0, "a frame with a dictionary or reserved bits"),
        (0x60, 0x30, "a frame of unknown block size"),
    ] {
        let error = decompress(Codec::Lz4, &lz4_frame(flags, descriptor, &end), 9).expect_err("refused");
        assert_eq!(error, CodecError::Malformed { codec: Codec::Lz4, reason: want });
    }
}

#[test]
fn lz4_stored_blocks_and_checksums_are_read_and_checked() {
    let content = b"stored as it is";
    let size = u32::try_from(content.len()).expect("small") | 0x8000_0000;
    let checksum = twox_hash::XxHash32::oneshot(0, content).to_le_bytes();
    let behind =
        |block: [u8; 4], whole: [u8; 4]| [&size.to_le_bytes()[..], content, &block, &[0; 4], &whole].concat();
    let good = lz4_frame(0x74, 0x40, &behind(checksum, checksum));
    assert_eq!(decompress(Codec::Lz4, &good, 99), Ok(content.to_vec()));
    for (block, whole) in [([0; 4], checksum), (checksum, [0; 4])] {
        assert!(decompress(Codec::Lz4, &lz4_frame(0x74, 0x40, &behind(block, whole)), 99).is_err());
    }
}

#[test]
fn an_lz4_header_with_the_checksum_of_old_clients_is_read_in_messages_of_magic_0_alone() {
    let (mut bytes, plain) = compressed("lz4");
    bytes[6] ^= 0xff;
    assert!(decompress(Codec::Lz4, &bytes, 999).is_err());
    let decoder = Decoder::new(Codec::Lz4, &bytes, 999, Descriptor::Ignored).expect("a frame");
    let mut feed = Feed::new(decoder);
    assert_eq!(feed.fill(usize::MAX), Ok(&plain[..]));
}

fn zstd_frame(plain: &[u8], window_log: u32) -> Vec<u8> {
    use ::zstd::stream::raw::CParameter;
    let mut encoder = ::zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.set_parameter(CParameter::WindowLog(window_log)).expect("a window");
    std::io::Write::write_all(&mut encoder, plain).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn a_zstd_window_above_128_mib_is_refused_by_name_and_one_of_128_mib_is_read() {
    let plain = vec![7; 300_000];
    let mut frame = zstd_frame(&plain, 20);
    assert_eq!(frame[4] & 0x20, 0, "it has a window descriptor");
    frame[5] = (27 - 10) << 3;
    assert_eq!(decompress(Codec::Zstd, &frame, 1 << 20), Ok(plain));
    frame[5] |= 1;
    let window_size = (128 << 20) + (16 << 20);
    assert_eq!(decompress(Codec::Zstd, &frame, 1 << 20), Err(CodecError::WindowTooLarge { window_size }));
    // A single segment of 1 GiB is its own window.
    let single = [&MAGIC_AND_SINGLE[..], &(1_u32 << 30).to_le_bytes(), &[0; 9]].concat();
    let error = CodecError::WindowTooLarge { window_size: 1 << 30 };
    assert_eq!(decompress(Codec::Zstd, &single, usize::MAX), Err(error));
    assert_eq!(decompress(Codec::Zstd, &single, 1 << 20), Err(CodecError::LimitExceeded { limit: 1 << 20 }));
}

const MAGIC_AND_SINGLE: [u8; 5] = [0x28, 0xb5, 0x2f, 0xfd, 0xa0];

#[test]
fn a_window_larger_than_the_limit_changes_nothing_but_the_memory() {
    // Matches that reach far back, in a frame whose window is larger than all of it.
    let mut plain: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    plain.extend_from_within(..150_000);
    for window_log in [19, 22, 24] {
        let frame = zstd_frame(&plain, window_log);
        assert_eq!(decompress(Codec::Zstd, &frame, plain.len()), Ok(plain.clone()), "2^{window_log}");
        let limit = plain.len() - 1;
        assert_eq!(decompress(Codec::Zstd, &frame, limit), Err(CodecError::LimitExceeded { limit }));
    }
    let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd_frame(b"x", 20)].concat();
    assert_eq!(decompress(Codec::Zstd, &skippable, 9), Ok(b"x".to_vec()));
}

#[test]
fn pieces_of_any_size_make_the_same_whole() {
    for (codec, name) in CODECS {
        let (bytes, plain) = compressed(name);
        for piece in 1..plain.len() {
            let mut decoder =
                Decoder::new(codec, &bytes, plain.len(), Descriptor::Checked).expect("a stream");
            let mut whole = Vec::new();
            let mut into = vec![0; piece];
            loop {
                match decoder.read(&mut into).expect("well formed") {
                    0 => break,
                    size => whole.extend_from_slice(&into[..size]),
                }
            }
            assert_eq!(whole, plain, "{name} in pieces of {piece}");
        }
    }
}
