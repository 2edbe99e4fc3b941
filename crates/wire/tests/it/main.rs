//! Tests of `weir-wire` through its public door.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod client;
mod golden;
mod hostile;
mod lost_fields;
mod oracle;

#[test]
fn every_file_of_this_folder_is_a_module_of_this_binary() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let source = std::fs::read_to_string(folder.join("main.rs")).expect("this file");
    for entry in std::fs::read_dir(folder).expect("this folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("ASCII names");
        let module = name.strip_suffix(".rs").expect("only Rust files");
        assert!(module == "main" || source.contains(&format!("mod {module};")), "{name} is not compiled");
    }
}
