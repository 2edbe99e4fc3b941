//! The producer state manager from outside.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a test that indexes wrongly should fail loudly"
)]

mod b3;
mod barrier;
mod cases;
mod differential;
mod forgetting;
mod golden;
mod history;
mod model;
mod snapshot;
mod support;
mod verification;

/// A file that is not listed above is not compiled, and its tests pass by not running.
#[test]
fn every_file_here_is_a_module() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let listing = include_str!("main.rs");
    for file in std::fs::read_dir(here).expect("the folder of this file") {
        let path = file.expect("readable").path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(stem == "main" || listing.contains(&format!("\nmod {stem};\n")), "{stem} is not listed");
    }
}
