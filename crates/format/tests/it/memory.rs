//! What reading hostile bytes costs, each case in a process of its own.
//!
//! Rust's allocator is limited by `cap`; what C allocates shows only in the peak of the process's resident memory.

use std::alloc::System;
use std::process::Command;

use cap::Cap;
use weir_format::{Codec, CodecError, RecordBatch, RecordError};

use crate::support::{raw_batch, seal, testdata};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Where a child reads which of several it is.
const WHICH: &str = "WEIR_FORMAT_TEST_WHICH";

/// Runs the ignored test of this name alone, and answers what it printed behind `cost:`, in bytes.
fn child(name: &str) -> usize {
    child_of(name, "")
}

/// As [`child`], which is told `which` of several it is.
fn child_of(name: &str, which: &str) -> usize {
    let program = std::env::current_exe().expect("this program");
    let name = format!("memory::{name}");
    let output = Command::new(program)
        .args([&name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(WHICH, which)
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let cost = text.lines().find_map(|line| line.split("cost: ").nth(1)).unwrap_or_else(|| panic!("{text}"));
    cost.trim().parse().expect("a number")
}

/// A field of `/proc/self/status`, in bytes.
fn status(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number")
        * KIB
}

#[expect(clippy::print_stdout, reason = "it is how a child answers")]
fn answer(cost: usize) {
    println!("cost: {cost}");
}

/// Prints by how much the peak of resident memory lies above what is resident now.
fn measure(work: impl FnOnce()) {
    // The peak so far is that of building the input.
    std::fs::write("/proc/self/clear_refs", "5").expect("a process may forget its own peak");
    let before = status("VmRSS");
    work();
    answer(status("VmHWM").saturating_sub(before));
}

/// As [`measure`], of address space: memory that was asked for and not touched is no part of what is resident.
fn measure_reserved(work: impl FnOnce()) {
    let before = status("VmPeak");
    work();
    answer(status("VmPeak").saturating_sub(before));
}

#[test]
fn sixty_one_bytes_that_claim_two_thousand_million_records_cost_less_than_64_kib() {
    // The child may allocate no more than that: it would be aborted.
    assert!(child("two_thousand_million_records") < 64 * KIB);
}

#[test]
#[ignore = "a child of the test above"]
fn two_thousand_million_records() {
    for codec in [0, 1, 2, 3, 4] {
        let bytes = raw_batch(codec, i32::MAX, i32::MAX, &[]);
        assert_eq!(bytes.len(), 61);
        let before = ALLOCATOR.allocated();
        ALLOCATOR.set_limit(before + 64 * KIB).expect("not yet reached");
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        let missing = RecordError::MissingRecords { record_count: i32::MAX, found: 0 };
        let mut stream = batch.record_stream(usize::MAX);
        let first = stream.next_record().map(|record| record.map(|_| ()));
        let plain = batch.decompress(usize::MAX);
        let walk = batch.records_in(&[]).next().map(|record| record.map(|_| ()));
        ALLOCATOR.set_limit(usize::MAX).expect("more than before");
        assert_eq!((first, walk), (Some(Err(missing)), Some(Err(missing))));
        assert_eq!(plain, Ok(Vec::new()));
        assert!(stream.next_record().is_none());
    }
    answer(0);
}

#[test]
fn a_bomb_read_with_a_limit_of_1_mib_costs_less_than_4_mib() {
    for name in ["gzip_limited", "zstd_limited", "zstd_one_record_limited"] {
        let cost = child(name);
        println!("{name}: {} KiB", cost / KIB);
        assert!(cost < 4 * MIB, "{name} cost {cost} bytes");
    }
}

fn limited(name: &str) {
    let bytes = testdata(&format!("batches/{name}.bin"));
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    measure(|| {
        let error = CodecError::LimitExceeded { limit: MIB };
        assert_eq!(batch.decompress(MIB), Err(error));
        let mut stream = batch.record_stream(MIB);
        let error = loop {
            match stream.next_record() {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("{name} fits"),
            }
        };
        assert_eq!(error, RecordError::Codec(CodecError::LimitExceeded { limit: MIB }));
    });
}

#[test]
#[ignore = "a child of the test above"]
fn gzip_limited() {
    limited("bomb-gzip-64mib");
}

#[test]
#[ignore = "a child of the test above"]
fn zstd_limited() {
    limited("bomb-zstd-1gib");
}

#[test]
#[ignore = "a child of the test above"]
fn zstd_one_record_limited() {
    limited("bomb-zstd-one-record-256mib");
}

#[test]
fn a_walk_over_all_of_a_bomb_costs_less_than_4_mib_and_one_record() {
    for (name, record) in [("gzip_whole", MIB), ("zstd_whole", MIB), ("zstd_one_record_whole", 256 * MIB)] {
        let cost = child(name);
        println!("{name}: {} KiB", cost / KIB);
        assert!(cost < 4 * MIB + record, "{name} cost {cost} bytes");
    }
}

fn whole(name: &str, count: usize, size: usize) {
    let bytes = testdata(&format!("batches/{name}.bin"));
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    measure(|| {
        let mut stream = batch.record_stream(2 << 30);
        let mut found = 0;
        while let Some(record) = stream.next_record() {
            let value = record.expect("well formed").value.expect("a value");
            assert_eq!(value.len(), size);
            assert!(value.iter().step_by(4093).all(|byte| *byte == 0));
            found += 1;
        }
        assert_eq!(found, count);
    });
}

#[test]
#[ignore = "a child of the test above"]
fn gzip_whole() {
    whole("bomb-gzip-64mib", 64, MIB);
}

#[test]
#[ignore = "a child of the test above"]
fn zstd_whole() {
    whole("bomb-zstd-1gib", 1024, MIB);
}

#[test]
#[ignore = "a child of the test above"]
fn zstd_one_record_whole() {
    whole("bomb-zstd-one-record-256mib", 1, 256 * MIB);
}

#[test]
fn a_zstd_window_costs_no_more_than_the_limit() {
    // The frame declares 128 MiB and holds more; 1 MiB of it may come out.
    for name in ["zstd_large_window", "zstd_large_window_reserved"] {
        let cost = child(name);
        println!("{name}: {} KiB", cost / KIB);
        assert!(cost < 4 * MIB, "{name}: {cost} bytes");
    }
}

fn large_window() {
    let mut bytes = testdata("batches/bomb-zstd-1gib.bin")[61..].to_vec();
    assert_eq!(bytes[4] & 0x20, 0, "it has a window descriptor");
    bytes[5] = (27 - 10) << 3;
    let error = CodecError::LimitExceeded { limit: MIB };
    assert_eq!(weir_format::codec::decompress(Codec::Zstd, &bytes, MIB), Err(error));
}

#[test]
#[ignore = "a child of the test above"]
fn zstd_large_window() {
    measure(large_window);
}

#[test]
#[ignore = "a child of the test above"]
fn zstd_large_window_reserved() {
    measure_reserved(large_window);
}

#[test]
fn a_zstd_window_below_the_limit_costs_what_the_frame_declares() {
    let cost = child("zstd_declared_window");
    println!("{} KiB", cost / KIB);
    assert!(cost < 16 * MIB + 4 * MIB, "{cost} bytes");
    assert!(cost > 8 * MIB, "{cost} bytes: the window is what is measured");
}

#[test]
#[ignore = "a child of the test above"]
fn zstd_declared_window() {
    let mut bytes = testdata("batches/bomb-zstd-1gib.bin");
    assert_eq!(bytes[61 + 4] & 0x20, 0, "it has a window descriptor");
    bytes[61 + 5] = (24 - 10) << 3;
    let bytes = seal(bytes);
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    measure(|| {
        let mut stream = batch.record_stream(2 << 30);
        while let Some(record) = stream.next_record() {
            record.expect("well formed");
        }
    });
}

#[test]
fn no_bomb_of_another_make_costs_4_mib_at_a_limit_of_1_mib() {
    for (name, ..) in bombs() {
        let cost = child_of("another_bomb", name);
        println!("{name}: {} KiB", cost / KIB);
        assert!(cost < 4 * MIB, "{name} cost {cost} bytes");
    }
}

#[test]
#[ignore = "a child of the test above"]
fn another_bomb() {
    let which = std::env::var_os(WHICH).expect("the test above says which");
    let (name, codec, bytes) =
        bombs().into_iter().find(|(name, ..)| which.to_str() == Some(name)).expect("one of them");
    let attributes = (0..8).find(|id| Codec::from_attributes(*id) == codec).expect("a codec");
    let bytes = raw_batch(attributes, i32::MAX, i32::MAX, &bytes);
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    assert_eq!(batch.codec(), codec);
    measure(|| {
        assert_eq!(batch.decompress(MIB), Err(CodecError::LimitExceeded { limit: MIB }), "{name}");
        // What comes out is no record, so a walk ends at once.
        let mut stream = batch.record_stream(MIB);
        assert!(stream.next_record().is_some_and(|record| record.is_err()), "{name}");
        assert!(stream.next_record().is_none(), "{name}");
    });
}

/// Bytes that yield 64 MiB or claim to, or 4 MiB at once, each by another road than Kafka's codec libraries take.
fn bombs() -> Vec<(&'static str, Codec, Vec<u8>)> {
    let snappy = {
        // A varint of 64 MiB, a literal of one byte, then copies of 64 bytes from one byte back.
        let mut bytes = vec![0x80, 0x80, 0x80, 0x20, 0x00, b'a'];
        for _ in 0..MIB - 1 {
            bytes.extend_from_slice(&[0xfe, 0x01, 0x00]);
        }
        bytes.extend_from_slice(&[0xfa, 0x01, 0x00]);
        bytes
    };
    let framed = |blocks: &[&[u8]]| {
        let mut bytes = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
        for block in blocks {
            bytes.extend_from_slice(&u32::try_from(block.len()).expect("small").to_be_bytes());
            bytes.extend_from_slice(block);
        }
        bytes
    };
    let lz4 = {
        // Blocks of up to 4 MiB: one literal, one match, five literals.
        let mut block = vec![0x1f, b'a', 0x01, 0x00];
        block.resize(4 + (4 * MIB - 1000) / 255, 0xff);
        block.extend_from_slice(&[0x00, 0x50, b'a', b'a', b'a', b'a', b'a']);
        let mut bytes = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
        for _ in 0..16 {
            bytes.extend_from_slice(&u32::try_from(block.len()).expect("small").to_le_bytes());
            bytes.extend_from_slice(&block);
        }
        bytes.extend_from_slice(&[0; 4]);
        bytes
    };
    let stored = {
        // A block of 4 MiB as it is.
        let mut bytes = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73, 0x00, 0x00, 0x40, 0x80];
        bytes.resize(bytes.len() + 4 * MIB, b'a');
        bytes.extend_from_slice(&[0; 4]);
        bytes
    };
    // Frames of 1 MiB in eight blocks that repeat one byte: a single segment each, or a window of 128 MiB over all.
    let blocks = |last: bool| {
        let block = |last: bool| (((128 << 10) << 3) | 2 | u32::from(last)).to_le_bytes();
        let mut bytes = Vec::new();
        for number in 1..=8 {
            bytes.extend_from_slice(&block(last && number == 8)[..3]);
            bytes.push(b'a');
        }
        bytes
    };
    let single = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0x00, 0x00, 0x10, 0x00][..], &blocks(true)].concat();
    let wide =
        [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3][..], &blocks(false).repeat(63), &blocks(true)].concat();
    let skippable = [0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0].repeat(100_000);
    let member = testdata("batches/bomb-gzip-64mib.bin")[61..].to_vec();
    vec![
        ("snappy, bare", Codec::Snappy, snappy.clone()),
        ("snappy, one block", Codec::Snappy, framed(&[&snappy])),
        ("snappy, two blocks", Codec::Snappy, framed(&[&[0x01, 0x00, b'a'], &snappy])),
        ("lz4, blocks of 4 MiB", Codec::Lz4, lz4),
        ("lz4, a stored block of 4 MiB", Codec::Lz4, stored),
        ("zstd, 64 frames", Codec::Zstd, single.repeat(64)),
        ("zstd, a window of 128 MiB", Codec::Zstd, wide),
        ("zstd, behind 100,000 skippable frames", Codec::Zstd, [skippable, single.repeat(64)].concat()),
        ("gzip, 64 members", Codec::Gzip, member.repeat(64)),
    ]
}
