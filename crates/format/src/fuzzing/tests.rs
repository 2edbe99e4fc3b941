use std::path::{Path, PathBuf};

use super::*;

fn folder(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target)
}

/// Every input in `fuzz/<kind>/<target>`, by name.
fn inputs(kind: &str, target: &str) -> Vec<(String, Vec<u8>)> {
    let mut inputs = Vec::new();
    let folder = folder(kind, target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("ASCII names");
        if !name.starts_with('.') {
            inputs.push((format!("{kind}/{target}/{name}"), std::fs::read(entry.path()).expect("a file")));
        }
    }
    inputs.sort();
    inputs
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    inputs("seeds", target).into_iter().map(|(_, input)| input).collect()
}

#[test]
fn seeds_and_regressions_of_every_target_hold() {
    for (target, oracle) in TARGETS {
        let seeds = inputs("seeds", target);
        assert!(seeds.len() > 10, "{target} has {} seeds", seeds.len());
        for (name, input) in seeds.into_iter().chain(inputs("regressions", target)) {
            let verdict = smoke(*oracle, &[input], 0, 0);
            assert!(verdict.is_ok(), "{name}");
        }
    }
}

#[test]
#[cfg(feature = "codec")]
fn every_dialect_of_compressed_bytes_holds_before_its_oracle() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/codecs.txt");
    let text = std::fs::read_to_string(path).expect("test data");
    let mut count = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['-', ' ']).next().expect("a codec");
        let (_, oracle) = TARGETS.iter().find(|(target, _)| *target == name).expect("a target of that name");
        let hex = line.rsplit(' ').next().expect("bytes").replace('-', "");
        let bytes =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"));
        assert_eq!(smoke(*oracle, &[bytes.collect()], 0, 0), Ok(()), "{line}");
        count += 1;
    }
    assert!(count > 100, "only {count}");
}

#[test]
fn a_seeded_loop_over_every_target_finds_nothing() {
    for (target, oracle) in TARGETS {
        // Decompressing and compressing takes its time; `cargo xtask fuzz` goes on for longer.
        let slow = ["gzip", "lz4", "message_set", "snappy", "zstd"].contains(target);
        let finding = smoke(*oracle, &seeds(target), 1279, if slow { 700 } else { 4_000 }).err();
        assert_eq!(finding, None, "{target}");
    }
}

#[test]
fn the_canary_is_found_and_found_again() {
    let seeds = seeds("batch");
    let seeds: Vec<_> = seeds.into_iter().filter(|seed| !seed.contains(&CANARY_BYTE)).collect();
    let finding = smoke(canary, &seeds, 7, 100_000).expect_err("the canary sings");
    assert!(finding.input.contains(&CANARY_BYTE));
    assert_eq!(smoke(canary, &seeds, 7, 100_000), Err(finding.clone()), "the same seed finds the same");
    assert!(smoke(canary, &[finding.input], 0, 0).is_err(), "as a regression it is found at once");
}

#[test]
fn every_oracle_has_a_target_in_the_fuzz_package() {
    for (target, _) in TARGETS {
        let path = folder("fuzz_targets", &format!("{target}.rs"));
        let source =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(source.contains(&format!("weir_format::fuzzing::check_{target}(data)")), "{source}");
    }
}

#[test]
fn an_oracle_notices_a_reader_that_is_wrong() {
    // Each stands for a mistake that the two readers could disagree about.
    let good = MirrorPidReset::build(TimestampMs::new(1));
    let batch = RecordBatch::parse(&good).expect("a batch");
    assert_eq!(naive::first_control_key(batch.bytes()), Some((0, 7)));
    assert_eq!(naive::behind_first_key(batch.bytes()), Some(70));
    assert_eq!(naive::records(&batch).map(|records| records.len()), Some(1));
    let mut short = good.to_vec();
    short[61] = 0x18;
    seal(&mut short);
    let short = RecordBatch::parse(&short).expect("a batch");
    assert!(naive::records(&short).is_none(), "a byte is left behind the record");
    assert_eq!(naive::first_control_key(short.bytes()), Some((0, 7)), "and it is a barrier all the same");
}
