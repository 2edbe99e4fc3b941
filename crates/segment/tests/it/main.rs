//! Integration tests of weir-segment.
#![allow(clippy::unwrap_used, reason = "a test that unwraps wrongly should fail loudly")]

mod append;
mod conformance;
mod crash;
mod golden;
mod local_log;
mod many;
mod model;
mod mutants;
mod pwrite;
mod reads;
#[cfg(target_os = "linux")]
mod select;
mod sim;
mod support;
mod system_calls;
mod unkind;
#[cfg(target_os = "linux")]
mod uring;

#[test]
fn every_file_of_this_folder_is_a_module_here() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is not listed");
    }
}
