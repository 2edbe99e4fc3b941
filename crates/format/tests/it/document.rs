//! `docs/barrier.md` says nothing that is not so.

use std::path::{Path, PathBuf};

use crate::support::{manifest_dir, worked};

fn workspace() -> PathBuf {
    manifest_dir().join("../..")
}

fn document() -> String {
    std::fs::read_to_string(workspace().join("docs/barrier.md")).expect("the document")
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

/// All Rust sources below `folder`, as one text.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            text.push_str(&sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("a source"));
        }
    }
    text
}

#[test]
fn every_law_of_the_barrier_names_tests_that_exist() {
    let document = document();
    let mut laws = 0;
    for row in document.lines().filter(|line| line.starts_with("| B")) {
        laws += 1;
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[1], format!("B{laws}"), "the laws stand in order");
        let mut tests = 0;
        for named in cells[3].split('`').filter(|part| part.starts_with("weir-")) {
            let (package, test) = named.split_once(' ').expect("package and test");
            let folder = workspace().join("crates").join(package.trim_start_matches("weir-"));
            let found = sources(&folder).contains(&format!("fn {test}("));
            assert!(found, "{}: {package} has no test {test}", cells[1]);
            tests += 1;
        }
        assert!(tests > 0, "{} names no test", cells[1]);
    }
    assert_eq!(laws, 12);
}
