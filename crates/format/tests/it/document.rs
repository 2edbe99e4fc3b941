//! `docs/barrier.md` says nothing that is not so.

use crate::support::{manifest_dir, worked};

fn document() -> String {
    std::fs::read_to_string(manifest_dir().join("../../docs/barrier.md")).expect("the document")
}

#[test]
fn the_hex_dump_in_the_document_is_the_worked_barrier() {
    let document = document();
    let dump = document.split("```").find_map(|block| block.strip_prefix("hex\n")).expect("a hex block");
    let mut bytes = Vec::new();
    for line in dump.lines() {
        let (hex, legend) = line.split_at(25);
        let position = legend.split_whitespace().next().expect("a position");
        assert_eq!(position, bytes.len().to_string(), "{line}");
        bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("two digits")));
    }
    assert_eq!(bytes, worked("barrier-3byte"));
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
