//! `cargo xtask golden DIR`: golden data that the repository does not carry, read and compared with Kafka's word.
//!
//! What is compared, and how, is in `crates/format/tests/it/golden.rs`, which the same data of `testdata/` goes through
//! in every test run; this command hands it a folder and says what came of it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::command;

/// The test that does the work; it prints a line for each log and record set.
const TEST: &str = "golden::golden_data_in_a_folder_reads_as_kafka_reads_it";

/// Reads all of `folder` and prints a line a log and record set, then the sums.
///
/// # Errors
/// If `folder` is no golden data, with what belongs into it, or if the test cannot be built or run. What differs
/// from Kafka's word is the exit code.
pub(crate) fn run(folder: &str) -> Result<ExitCode> {
    let folder = Path::new(folder);
    check_folder(folder)?;
    let folder = folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?;
    let mut cargo = command::cargo();
    cargo
        .args(["test", "--quiet", "--package", "weir-format", "--all-features", "--test", "it"])
        .args([TEST, "--", "--exact", "--ignored", "--nocapture"])
        .env("WEIR_GOLDEN_DIR", &folder)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped());
    let line = command::describe(&cargo);
    let mut child = cargo.spawn().with_context(|| format!("cannot start {line}"))?;
    let mut sums = Sums::default();
    for text in BufReader::new(child.stdout.take().context("no output")?).lines() {
        if let Some(said) = sums.add(&text.with_context(|| format!("cannot read what {line} prints"))?) {
            println!("{said}");
        }
    }
    let status = child.wait()?;
    println!("{}", sums.text());
    ensure!(sums.failed > 0 || status.success(), "{line}: {status}");
    ensure!(sums.ok + sums.failed > 0, "nothing was compared: {line} found nothing in {}", folder.display());
    Ok(if sums.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether there is anything to compare.
fn check_folder(folder: &Path) -> Result<()> {
    let holds = |sub: &str, wanted: &dyn Fn(&Path) -> bool| {
        std::fs::read_dir(folder.join(sub))
            .is_ok_and(|entries| entries.flatten().any(|entry| wanted(&entry.path())))
    };
    let log = |path: &Path| path.join("expected.json").is_file();
    let item =
        |path: &Path| path.extension().is_some_and(|it| it == "bin") && path.with_extension("json").is_file();
    ensure!(folder.is_dir(), "{} is no folder; name one that has logs/ or batches/ in it", folder.display());
    ensure!(
        holds("logs", &log) || holds("batches", &item),
        "{} is no golden data; it holds logs/NAME/expected.json beside a partition's folder, or batches/NAME.bin and \
         NAME.json, as crates/format/testdata does",
        folder.display()
    );
    Ok(())
}

/// What the test's lines add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    ok: usize,
    failed: usize,
    batches: u64,
    records: u64,
    differ: u64,
}

impl Sums {
    /// Counts one line; the line to print instead, if it is one of the test's.
    fn add(&mut self, line: &str) -> Option<String> {
        // The harness writes the test's name in front of the first line.
        let at = line.find("golden ok ").or_else(|| line.find("golden failed "))?;
        let words: Vec<&str> = line.get(at..)?.split_whitespace().collect();
        match words.as_slice() {
            ["golden", "ok", name, batches, records, differ] => {
                let differing = differ.parse::<u64>().ok()?;
                self.ok += 1;
                self.batches += batches.parse::<u64>().ok()?;
                self.records += records.parse::<u64>().ok()?;
                self.differ += differing;
                let note = if differing > 0 { ", refused or kept for a written reason" } else { "" };
                Some(format!("ok {name}: {batches} batches, {records} records{note}"))
            }
            ["golden", "failed", name] => {
                self.failed += 1;
                Some(format!("not ok {name}: read otherwise than Kafka reads it, see above"))
            }
            _ => None,
        }
    }

    fn text(&self) -> String {
        let Self { ok, failed, batches, records, differ } = self;
        format!(
            "{ok} as Kafka reads them or for a written reason otherwise ({differ}), {failed} wrong; {batches} batches, \
             {records} records compared"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_lines_are_counted_and_others_are_not() {
        let mut sums = Sums::default();
        assert_eq!(
            sums.add("test golden::x ... golden ok logs/plain 24 240 0").as_deref(),
            Some("ok logs/plain: 24 batches, 240 records")
        );
        assert_eq!(
            sums.add("golden ok batches/bad-count-zero 1 3 1").as_deref(),
            Some("ok batches/bad-count-zero: 1 batches, 3 records, refused or kept for a written reason")
        );
        assert!(
            sums.add("golden failed batches/bad-crc")
                .is_some_and(|said| said.starts_with("not ok batches/bad-crc"))
        );
        assert_eq!(sums.add("running 1 test"), None);
        assert_eq!(sums, Sums { ok: 2, failed: 1, batches: 25, records: 243, differ: 1 });
    }

    #[test]
    fn a_folder_of_something_else_is_refused_with_what_belongs_into_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = check_folder(folder.path()).expect_err("it is empty");
        assert!(error.to_string().contains("logs/NAME/expected.json"), "{error}");
        let error = check_folder(&folder.path().join("gone")).expect_err("it is not there");
        assert!(error.to_string().contains("is no folder"), "{error}");
        let batches = folder.path().join("batches");
        std::fs::create_dir(&batches).expect("made");
        std::fs::write(batches.join("a.bin"), []).expect("written");
        assert!(check_folder(folder.path()).is_err(), "nothing says what it is");
        std::fs::write(batches.join("a.json"), b"{}").expect("written");
        assert!(check_folder(folder.path()).is_ok());
    }
}
