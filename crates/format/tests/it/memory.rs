//! What reading hostile bytes costs, each case in a process of its own.
//!
//! Rust's allocator is limited by `cap`; what C allocates shows only in the peak of the process's resident memory.

use std::alloc::System;
use std::process::Command;

use cap::Cap;
use weir_format::{Codec, CodecError, RecordBatch, RecordError};

use crate::support::{raw_batch, testdata};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Runs the ignored test of this name alone, and answers what it printed behind `cost:`, in bytes.
fn child(name: &str) -> usize {
    let program = std::env::current_exe().expect("this program");
    let name = format!("memory::{name}");
    let output = Command::new(program)
        .args([&name, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
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
    let before = status("VmRSS");
    work();
    answer(status("VmHWM").saturating_sub(before));
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
    let cost = child("zstd_large_window");
    println!("{} KiB", cost / KIB);
    assert!(cost < 4 * MIB, "{cost} bytes");
}

#[test]
#[ignore = "a child of the test above"]
fn zstd_large_window() {
    let mut bytes = testdata("batches/bomb-zstd-1gib.bin")[61..].to_vec();
    assert_eq!(bytes[4] & 0x20, 0, "it has a window descriptor");
    bytes[5] = (27 - 10) << 3;
    measure(|| {
        let error = CodecError::LimitExceeded { limit: MIB };
        assert_eq!(weir_format::codec::decompress(Codec::Zstd, &bytes, MIB), Err(error));
    });
}
