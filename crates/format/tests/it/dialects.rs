//! Dialects and mistakes of compressed bytes: what comes out of each, or that nothing does, is what Kafka makes of it.

use weir_format::codec::decompress;
use weir_format::{Codec, CodecError, RecordBatch, RecordError, crc};

use crate::support::{raw_batch, testdata};

/// Where Kafka takes what is refused here, and why; whoever wrote it meant something that nobody would ever see.
const STRICTER: &[(&str, &str)] = &[
    ("gzip-trailing-garbage", BEHIND),
    ("gzip-trailing-zeros", BEHIND),
    ("gzip-trailing-one-byte", BEHIND),
    ("gzip-trailing-half-header", BEHIND),
    ("gzip-trailing-3-garbage", BEHIND),
    (
        "gzip-reserved-flags",
        "RFC 1952 wants them refused: they may mean fields that a reader would take for data",
    ),
    ("snappy-trailing-1", BEHIND),
    ("snappy-trailing-2", BEHIND),
    ("snappy-trailing-3", BEHIND),
    (
        "lz4-content-checksum-wrong",
        "the frame says itself that this is not what was compressed; Kafka does not look",
    ),
    ("lz4-content-size-wrong", "as a wrong content checksum"),
    ("lz4-content-size-huge", "as a wrong content checksum"),
    (
        "lz4-two-frames",
        "Kafka reads the first frame alone, so the second's records would be missing in silence",
    ),
    ("lz4-empty-frame-then-frame", "as lz4-two-frames"),
    ("lz4-stored-block-zero", "Kafka takes it for the frame's end; another reader would go on"),
    ("lz4-stored-zero-then-data", "as lz4-stored-block-zero: what stands behind it would not be seen"),
    ("lz4-offset-0", "a match with itself: the format forbids it, and what comes out is up to the library"),
    ("lz4-skippable-last", BEHIND),
    ("lz4-trailing-garbage", BEHIND),
    ("lz4-trailing-zeros", BEHIND),
    ("zstd-skippable-cut-last", CUT),
    ("zstd-second-cut", CUT),
];

const CUT: &str = "the bytes end within a frame; Kafka's library says so of the first frame only";

const BEHIND: &str =
    "Kafka stops reading before these bytes, and nobody would ever see what they were meant to be";

/// Where Kafka refuses what is taken here, and why.
const LOOSER: &[(&str, &str)] = &[("gzip-no-bytes", EMPTY), ("snappy-empty", EMPTY), ("lz4-no-bytes", EMPTY)];

const EMPTY: &str = "a batch that compaction emptied keeps its codec and has no byte; Kafka does not look into it, and \
                     one that counts records and has none is an error for both";

/// More than any of these yields.
const LIMIT: usize = 1 << 20;

struct Case {
    name: String,
    codec: Codec,
    /// Size and CRC-32 of what Kafka got out of it, if it got anything.
    kafka: Option<(usize, u32)>,
    bytes: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let text = String::from_utf8(testdata("codecs.txt")).expect("ASCII");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let kafka = match words[2] {
                "ok" => Some((
                    words[3].parse().expect("a size"),
                    u32::from_str_radix(words[4], 16).expect("a CRC"),
                )),
                "error" => None,
                other => panic!("{other}"),
            };
            let hex = words.last().expect("bytes").replace('-', "");
            let bytes =
                (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"));
            Case {
                name: words[0].to_owned(),
                codec: Codec::from_attributes(words[1].parse().expect("a number")),
                kafka,
                bytes: bytes.collect(),
            }
        })
        .collect()
}

fn reason(table: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    table.iter().find(|(listed, _)| *listed == name).map(|(_, reason)| *reason)
}

#[test]
fn every_dialect_and_every_mistake_is_read_as_kafka_reads_it_or_has_a_reason() {
    let cases = cases();
    assert_eq!(cases.len(), 128);
    for Case { name, codec, kafka, bytes } in &cases {
        let ours = decompress(*codec, bytes, LIMIT);
        let (stricter, looser) = (reason(STRICTER, name), reason(LOOSER, name));
        match (&ours, kafka) {
            (Ok(ours), Some(kafka)) => {
                assert_eq!((ours.len(), crc::crc32(ours)), *kafka, "{name}");
                assert!(stricter.is_none() && looser.is_none(), "{name} is listed and no different");
            }
            (Err(_), None) => {
                assert!(stricter.is_none() && looser.is_none(), "{name} is listed and no different")
            }
            (Err(error), Some(_)) => assert!(stricter.is_some(), "{name}: Kafka reads it, and we: {error}"),
            (Ok(_), None) => assert!(looser.is_some(), "{name}: Kafka refuses it, and we read it"),
        }
        if let Err(error) = ours {
            assert!(
                !matches!(error, CodecError::LimitExceeded { .. } | CodecError::Library { .. }),
                "{name}: {error}"
            );
        }
    }
    for (name, _) in STRICTER.iter().chain(LOOSER) {
        assert!(cases.iter().any(|case| case.name == *name), "{name} is no case");
    }
}

/// However the bytes come, a walk ends, and what it says is what the bytes say when they are decompressed at once.
#[test]
fn a_walk_over_any_dialect_says_what_decompressing_it_says() {
    for Case { name, codec, bytes, .. } in cases() {
        let attributes = (0..8).find(|id| Codec::from_attributes(*id) == codec).expect("a codec");
        let batch = raw_batch(attributes, 0, 1, &bytes);
        let batch = RecordBatch::parse(&batch).expect("a batch");
        let mut stream = batch.record_stream(LIMIT);
        let mut last = None;
        while let Some(record) = stream.next_record() {
            last = Some(record.map(|_| ()));
        }
        let walked = match batch.decompress(LIMIT) {
            Ok(records) => batch.records_in(&records).last().map(|record| record.map(|_| ())),
            // A walk may end earlier, over a record that is none, but never well.
            Err(_) => {
                assert!(matches!(last, Some(Err(_))), "{name}: {last:?}");
                continue;
            }
        };
        let same = match (&last, &walked) {
            // Where the bytes end is only known at the end.
            (Some(Err(RecordError::TrailingBytes { .. })), Some(Err(RecordError::TrailingBytes { .. }))) => {
                true
            }
            (last, walked) => last == walked,
        };
        assert!(same, "{name}: {last:?}, at once {walked:?}");
    }
}
