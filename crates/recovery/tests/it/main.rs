//! The integration tests of `weir-recovery`: one binary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail loudly")]

mod cut;
mod hook;
mod inspect;
mod leftovers;
mod old_formats;
mod support;
mod watch;

#[test]
fn every_file_of_this_folder_is_a_module_of_it() {
    let listed = include_str!("main.rs");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(module == "main" || listed.contains(&format!("mod {module};")), "{module} is not listed");
    }
}
