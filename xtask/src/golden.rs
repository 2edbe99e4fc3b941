//! `cargo xtask golden DIR`: golden data that the repository does not carry, made by Kafka's classes if asked for, read and
//! compared with Kafka's word.
//!
//! What is compared, and how, stands in the tests below: batches and records, loads and reads of partition directories,
//! and what the tools say of them. This command hands them a folder and says what came of it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use crate::command;
use crate::flags::GoldenOptions;
use crate::interop;

/// Packages and the tests of them that do the work; each prints a line for what it has compared.
const TESTS: [(&str, &str); 3] = [
    ("weir-format", "golden::golden_data_in_a_folder_reads_as_kafka_reads_it"),
    ("weir-log", "golden_folder::logs_in_a_folder_load_as_kafka_loads_them"),
    ("weir-node", "golden_folder::inspections_of_a_folder_end_well_and_say_what_a_start_does"),
];

/// Makes what is asked for, reads all of the folder and prints a line for each thing compared, then the sums.
///
/// # Errors
/// If the folder is no golden data, with what belongs into it, or if a test cannot be built or run. What differs
/// from Kafka's word is the exit code.
pub(crate) fn run(options: &GoldenOptions) -> Result<ExitCode> {
    let folder = Path::new(&options.folder);
    make(folder, options)?;
    check_folder(folder)?;
    let folder = folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?;
    let mut sums = Sums::default();
    for (package, test) in TESTS {
        read(&folder, package, test, &mut sums)?;
    }
    println!("{}", sums.text());
    ensure!(sums.compared() + sums.failed > 0, "nothing was compared in {}", folder.display());
    Ok(if sums.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lets Kafka's classes make directories in the folder.
fn make(folder: &Path, options: &GoldenOptions) -> Result<()> {
    let seed = options.seed.to_string();
    let lives = (options.make > 0).then(|| vec![seed.clone(), options.make.to_string()]);
    let sweeps =
        (options.sweep > 0).then(|| vec!["sweep".to_owned(), seed.clone(), options.sweep.to_string()]);
    if lives.is_none() && sweeps.is_none() {
        return Ok(());
    }
    let work = tempfile::Builder::new().prefix("weir-golden-").tempdir()?;
    for words in [lives, sweeps].into_iter().flatten() {
        let mut java = interop::directories_for_golden(work.path())?;
        command::run(java.arg(folder).args(words))?;
    }
    Ok(())
}

/// Runs one of the tests over the folder.
fn read(folder: &Path, package: &str, test: &str, sums: &mut Sums) -> Result<()> {
    let mut cargo = command::cargo();
    cargo
        .args(["test", "--quiet", "--package", package, "--all-features", "--test", "it"])
        .args([test, "--", "--exact", "--ignored", "--nocapture"])
        .env("WEIR_GOLDEN_DIR", folder)
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped());
    let line = command::describe(&cargo);
    let mut child = cargo.spawn().with_context(|| format!("cannot start {line}"))?;
    let failed = sums.failed;
    for text in BufReader::new(child.stdout.take().context("no output")?).split(b'\n') {
        let text = text.with_context(|| format!("cannot read what {line} prints"))?;
        if let Some(said) = sums.add(&String::from_utf8_lossy(&text)) {
            println!("{said}");
        }
    }
    let status = child.wait()?;
    ensure!(sums.failed > failed || status.success(), "{line}: {status}");
    Ok(())
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

/// What the tests' lines add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    ok: usize,
    failed: usize,
    batches: u64,
    records: u64,
    differ: u64,
    loaded: usize,
    answers: u64,
    inspected: usize,
}

impl Sums {
    /// Counts one line; the line to print instead, if it is one of a test's.
    fn add(&mut self, line: &str) -> Option<String> {
        // The harness writes the test's name in front of the first line.
        let words = ["ok", "failed", "loaded", "inspected", "reason"];
        let at = words.iter().find_map(|word| line.find(&format!("golden {word} ")))?;
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
            ["golden", "loaded", name, same, kinds] => {
                self.loaded += 1;
                self.answers += same.parse::<u64>().ok()?;
                let note = if *kinds == "0" { "" } else { ", others for a written reason" };
                Some(format!("ok {name}: {same} answers are Kafka's{note}"))
            }
            ["golden", "inspected", name] => {
                self.inspected += 1;
                Some(format!("ok {name}"))
            }
            ["golden", "reason", count, reason @ ..] => Some(format!("{count} loads: {}", reason.join(" "))),
            ["golden", "failed", name] => {
                self.failed += 1;
                Some(format!("not ok {name}: not as Kafka has it, see above"))
            }
            _ => None,
        }
    }

    fn compared(&self) -> usize {
        self.ok + self.loaded + self.inspected
    }

    fn text(&self) -> String {
        let Self { ok, failed, batches, records, differ, loaded, answers, inspected } = self;
        format!(
            "{ok} as Kafka reads them or for a written reason otherwise ({differ}); {batches} batches, {records} records \
             compared; {loaded} directories loaded, {answers} answers as Kafka's; {inspected} inspected; {failed} wrong"
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
        assert_eq!(
            sums.add("golden loaded loads/000001-cut 88 2").as_deref(),
            Some("ok loads/000001-cut: 88 answers are Kafka's, others for a written reason")
        );
        assert_eq!(sums.add("golden inspected inspections/a").as_deref(), Some("ok inspections/a"));
        assert_eq!(sums.add("golden reason 3 R8: a bit").as_deref(), Some("3 loads: R8: a bit"));
        let (ok, batches, records, differ) = (2, 25, 243, 1);
        let wanted = Sums { ok, failed: 1, batches, records, differ, loaded: 1, answers: 88, inspected: 1 };
        assert_eq!(sums, wanted);
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
