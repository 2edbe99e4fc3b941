//! Tests of `weir-format` through its public door.

#[cfg(feature = "codec")]
mod dialects;
mod document;
mod flips;
mod golden;
#[cfg(feature = "codec")]
mod memory;
#[cfg(feature = "codec")]
mod messages;
mod properties;
mod support;
mod traps;
mod worked;

#[test]
fn every_file_of_this_folder_is_a_module_of_this_binary() {
    let folder = support::manifest_dir().join("tests/it");
    let source = std::fs::read_to_string(folder.join("main.rs")).expect("this file");
    for entry in std::fs::read_dir(folder).expect("this folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("ASCII names");
        let module = name.strip_suffix(".rs").expect("only Rust files");
        assert!(module == "main" || source.contains(&format!("mod {module};")), "{name} is not compiled");
    }
}
