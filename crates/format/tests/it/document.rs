//! `docs/barrier.md` and the hex dump of `docs/on-disk-format.md` say nothing that is not so.

use weir_format::{
    BatchBuilder, LeaderEpoch, MirrorPidReset, Offset, ProducerEpoch, ProducerId, RecordBatch, Sequence,
    TimestampMs, set_base_offset, set_leader_epoch,
};

use crate::support::{manifest_dir, worked};

fn text(name: &str) -> String {
    std::fs::read_to_string(manifest_dir().join("../../docs").join(name)).expect("the document")
}

fn document() -> String {
    text("barrier.md")
}

/// The bytes of the document's one hex block, whose lines say where they stand.
fn dump(document: &str) -> Vec<u8> {
    let mut blocks = document.split("```").filter_map(|block| block.strip_prefix("hex\n"));
    let (dump, none) = (blocks.next().expect("a hex block"), blocks.next());
    assert_eq!(none, None, "one hex block");
    let mut bytes = Vec::new();
    for line in dump.lines() {
        let (hex, legend) = line.split_at(25);
        let position = legend.split_whitespace().next().expect("a position");
        assert_eq!(position, bytes.len().to_string(), "{line}");
        bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("two digits")));
    }
    bytes
}

#[test]
fn the_hex_dump_in_the_document_is_the_worked_barrier() {
    let bytes = dump(&document());
    assert_eq!(bytes, worked("barrier-3byte"));
    // And what is built, with what a leader stamps.
    let mut built = MirrorPidReset::build(TimestampMs::new(1_767_225_600_000));
    set_base_offset(&mut built, Offset::new(42).expect("not negative")).expect("a batch");
    set_leader_epoch(&mut built, LeaderEpoch::new(12).expect("not negative")).expect("a batch");
    assert_eq!(bytes, built);
}

#[test]
fn the_hex_dump_of_a_batch_in_the_document_is_what_is_built() {
    let bytes = dump(&text("on-disk-format.md"));
    let built = BatchBuilder::new()
        .base_offset(Offset::new(42).expect("not negative"))
        .leader_epoch(LeaderEpoch::new(12).expect("not negative"))
        .producer(ProducerId::new(5).expect("not negative"), ProducerEpoch::ZERO, Sequence::new(7))
        .transactional()
        .record_with_headers(TimestampMs::new(1_767_225_600_000), Some(b"k0"), Some(b"v"), &[(b"h", None)])
        .record(TimestampMs::new(1_767_225_600_002), None, Some(b""))
        .build()
        .expect("a batch");
    assert_eq!(bytes, built, "{:02x?}", &built[..]);
    assert!(RecordBatch::parse(&bytes).is_ok());
}

#[test]
fn every_law_of_the_barrier_stands_in_order_and_names_a_test() {
    // That the tests exist is checked by `cargo xtask tidy`, which sees every crate.
    let document = document();
    let laws: Vec<&str> = document.lines().filter(|line| line.starts_with("| B")).collect();
    assert_eq!(laws.len(), 12);
    for (number, law) in (1..).zip(laws) {
        let cells: Vec<&str> = law.split('|').map(str::trim).collect();
        assert_eq!(cells[1], format!("B{number}"));
        assert!(cells[3].contains("`weir-"), "B{number} names no test");
    }
}
