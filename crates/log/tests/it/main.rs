//! Everything about a partition that needs more than one of its parts, on SimDisk.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on should fail loudly")]

mod aborted;
mod b3;
mod cases;
mod crash;
mod crash_enumeration;
mod edges;
mod epochs;
mod golden;
mod golden_folder;
mod golden_reads;
mod laws;
mod retention;
mod simulation;
mod snapshots;
mod splits;
mod support;
mod tail;
mod timestamps;
mod validation;

#[test]
fn every_file_here_is_a_module() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(here).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not listed");
    }
}
