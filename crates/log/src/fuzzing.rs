//! The oracles of the fuzz targets for a whole partition, and what they are made of: a naive [`History`] that says what a
//! log must be, and a [`World`] that does the same to both, cuts the power, and compares.
//!
//! They run in ordinary tests as well: crash enumeration and random seeds use the same world.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    reason = "an oracle fails by panicking, and one that unwraps wrongly should fail too"
)]

mod directory;
mod history;
mod lives;
mod world;

pub use directory::check_directory;
pub use history::{Batch, Ended, History, Producer, Retention, Verdict, What};
pub use lives::{Choices, bytes_of_seed, live};
pub use world::{Ledger, Machine, Mirrored, Mutant, Op, Stop, Tally, World};

/// One oracle: it panics if this crate is wrong about these bytes.
pub type Oracle = fn(&[u8]);

/// Every target of `fuzz/` that is this crate's, and its oracle.
pub const TARGETS: &[(&str, Oracle)] = &[("directory", check_directory), ("operations", check_operations)];

/// Any bytes as the lives of a partition: what is done, what fails and when the power is cut. The naive history says what
/// must be there afterwards, byte for byte, and what must be known (R1 to R6, R8, B2 to B10).
pub fn check_operations(data: &[u8]) {
    // A longer life shows nothing that a shorter one does not, and takes a square of the time.
    let (_, result) = live(&data[..data.len().min(2_000)], Mutant::Right);
    if let Err(wrong) = result {
        panic!("{wrong}");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn folder(kind: &str, target: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target)
    }

    #[test]
    fn seeds_and_regressions_of_every_target_hold() {
        for (target, oracle) in TARGETS {
            let mut count = 0;
            for kind in ["seeds", "regressions"] {
                let Ok(entries) = std::fs::read_dir(folder(kind, target)) else { continue };
                for entry in entries {
                    let path = entry.unwrap().path();
                    if path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')) {
                        oracle(&std::fs::read(path).unwrap());
                        count += 1;
                    }
                }
            }
            assert!(count >= 5, "{target} has {count} seeds");
        }
    }

    #[test]
    fn every_oracle_has_a_target_in_the_fuzz_package() {
        for (target, _) in TARGETS {
            let source = std::fs::read_to_string(folder("fuzz_targets", &format!("{target}.rs"))).unwrap();
            assert!(source.contains(&format!("weir_log::fuzzing::check_{target}(data)")), "{source}");
        }
    }
}
