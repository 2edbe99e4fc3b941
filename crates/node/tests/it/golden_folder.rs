//! Directories that this repository does not carry (`cargo xtask golden --make`): `weir inspect` and `weir dump-log` over each
//! of them, as a person uses them. They end, say what a start then does, change nothing, and print what Kafka's tool prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weir_format::{Offset, TimestampMs};
use weir_node::cli::dump_log::{DumpOptions, dump};
use weir_node::cli::inspect::fuzzing;
use weir_node::cli::inspect::report::{Code, Verdict};
use weir_psm::PsmConfig;
use weir_recovery::{LogLoader, RecoveryConfig};
use weir_segment::SegmentConfig;
use weir_segment::io::sim::SimDisk;

use crate::golden::tree;

/// Longer than any of these takes, on a busy machine too.
const LIMIT_SECONDS: &str = "60";

fn weir(arguments: &[&str], path: &Path) -> Result<Output, String> {
    let mut command = Command::new("timeout");
    command.args([LIMIT_SECONDS, env!("CARGO_BIN_EXE_weir")]).args(arguments).arg(path);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        None => Err(format!("{arguments:?} died: {}", output.status)),
        Some(124) => Err(format!("{arguments:?} hangs")),
        Some(101) => Err(format!("{arguments:?} panicked: {said}")),
        Some(_) if said.contains("panicked") => Err(format!("{arguments:?} panicked: {said}")),
        Some(_) => Ok(output),
    }
}

fn exit_of(verdict: Verdict) -> i32 {
    match verdict {
        Verdict::Healthy => 0,
        _ => 10,
    }
}

/// What a panic said.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// What differs from what is right, a line each.
fn check(folder: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let expected: Value = serde_json::from_slice(&fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let dir = folder.join(expected["partition"].as_str().unwrap());
    let before = tree(folder);
    let report = super::inspect::partition(&dir);

    // Both outputs, and the whole log directory.
    for arguments in [&["inspect"][..], &["inspect", "--json"], &["inspect", "--all"]] {
        match weir(arguments, &dir) {
            Err(error) => wrong.push(error),
            Ok(output) => {
                let unreadable = report.findings.iter().any(|finding| finding.code == Code::Unreadable);
                let exit = if unreadable { 3 } else { exit_of(report.verdict) };
                if output.status.code() != Some(exit) || !output.stderr.is_empty() {
                    let stderr = String::from_utf8_lossy(&output.stderr);
                    wrong.push(format!(
                        "{arguments:?} of {:?} exits with {:?}: {stderr}",
                        report.verdict,
                        output.status.code()
                    ));
                }
                if arguments.contains(&"--json") {
                    let json: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
                    if json["summary"]["exitCode"].as_i64() != output.status.code().map(i64::from) {
                        wrong.push(format!("the summary has exit code {}", json["summary"]["exitCode"]));
                    }
                }
            }
        }
    }
    match weir(&["inspect", "--json"], folder) {
        Err(error) => wrong.push(error),
        Ok(output) => {
            if ![Some(0), Some(3), Some(10)].contains(&output.status.code()) {
                let stderr = String::from_utf8_lossy(&output.stderr);
                wrong.push(format!("the log directory: {:?} {stderr}", output.status.code()));
            }
        }
    }
    // The inputs of a start, as Kafka reads them.
    let inputs = &expected["inputs"];
    let kafkas = inputs["recoveryPointCheckpoint"].as_i64().unwrap();
    if report.recovery_point.unwrap_or(0) != kafkas {
        wrong.push(format!("recovery point {:?}, Kafka {kafkas}", report.recovery_point));
    }
    let clean = inputs["cleanShutdownMarker"].as_bool().unwrap();
    assert_eq!(report.clean_shutdown, clean);

    // What a start does.
    let disk = SimDisk::new(1);
    disk.import(&dir, &dir).unwrap();
    let number = |name: &str| Offset::new(inputs[name].as_i64().unwrap().max(0)).unwrap();
    let config = RecoveryConfig {
        segment: SegmentConfig::default(),
        psm: PsmConfig::default(),
        clean_shutdown: clean,
        recovery_point: Offset::new(report.recovery_point.unwrap_or(0)).unwrap(),
        log_start_offset: number("logStartOffsetCheckpoint"),
        side_dir: "/side".into(),
        now: TimestampMs::new(expected["clockMs"].as_i64().unwrap()),
    };
    let loaded = LogLoader::load(&mut disk.io(), &dir, &config);
    let compared =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fuzzing::compare(&report, loaded)));
    if let Err(panic) = compared {
        wrong.push(format!("a start does otherwise: {}", said(&*panic)));
    }

    // DumpLogSegments.
    let kafkas = fs::read(folder.join("dump.txt")).unwrap();
    let kafkas = String::from_utf8_lossy(&kafkas).into_owned();
    let mut files: Vec<PathBuf> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let root = format!("{}/", folder.display());
    for path in files {
        let mut out = Vec::new();
        // What cannot be dumped is an error of its own, checked below.
        let _ = dump(std::slice::from_ref(&path), DumpOptions::default(), &mut out);
        let ours = String::from_utf8_lossy(&out).replace(&root, "");
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let heading = format!("Dumping t-0/{name}\n");
        let Some(start) = kafkas.find(&heading) else { continue };
        let theirs = &kafkas[start..];
        let end = theirs[1..].find("\nDumping ").map_or(theirs.len(), |end| end + 2);
        compare_dumps(&name, &ours, &theirs[..end], &mut wrong);
    }
    for arguments in [&["dump-log"][..], &["dump-log", "--json"]] {
        match weir(arguments, &dir) {
            Err(error) => wrong.push(error),
            Ok(output) if ![Some(0), Some(1), Some(2)].contains(&output.status.code()) => {
                wrong.push(format!("{arguments:?} exits with {:?}", output.status.code()));
            }
            Ok(output) => {
                let is_zero = output.status.code() == Some(0);
                if is_zero != output.stderr.is_empty() {
                    wrong.push(format!(
                        "{arguments:?} exits with {:?} and says {:?}",
                        output.status.code(),
                        String::from_utf8_lossy(&output.stderr)
                    ));
                }
            }
        }
    }
    if tree(folder) != before {
        wrong.push("the directory was changed".to_owned());
    }
    wrong
}

/// Batches and records, entries of indexes and producers of snapshots: those that Kafka's tool prints before it gives up.
fn compare_dumps(name: &str, ours: &str, theirs: &str, wrong: &mut Vec<String>) {
    let is_content = |line: &&str| {
        let starts = ["baseOffset: ", "| offset", "offset: ", "timestamp: ", "producerId: ", "version: "];
        starts.iter().any(|start| line.starts_with(start))
    };
    let barrier = |line: &str| match line.split_once("controlType: MIRROR_PID_RESET(7) (") {
        Some((front, _)) => format!("{front}controlType: UNKNOWN(7)"),
        None => line.to_owned(),
    };
    let ours: Vec<String> = ours.lines().filter(is_content).map(barrier).collect();
    let gives_up = theirs.contains("# thrown") || theirs.contains("invalid bytes at the end");
    let theirs: Vec<String> = theirs.lines().filter(is_content).map(less_than_none).collect();
    let mut batch = "";
    for (at, theirs) in theirs.iter().enumerate() {
        if !theirs.starts_with('|') {
            batch = theirs;
        }
        if ours.get(at).is_some_and(|ours| ours == theirs) {
            continue;
        }
        // Of a batch with a wrong CRC and of what no reader of ours takes for one, Kafka's tool prints what it can.
        let is_sound = batch.ends_with("isvalid: true")
            && !batch.contains(" lastOffset: -")
            && ["magic: 0 ", "magic: 1 ", "magic: 2 "].iter().any(|magic| batch.contains(magic));
        let is_log = Path::new(name).extension().is_some_and(|end| end == "log");
        if !is_log || (is_sound && !theirs.contains("# thrown")) {
            wrong.push(format!("{name}, line {at}:\n    ours  {:?}\n    Kafka {theirs}", ours.get(at)));
        }
        return;
    }
    if ours.len() > theirs.len() && !gives_up {
        wrong.push(format!("{name}: more than Kafka prints: {}", ours[theirs.len()]));
    }
}

/// A negative epoch or sequence is none, and weir prints it so.
fn less_than_none(line: &str) -> String {
    let names = ["baseSequence:", "lastSequence:", "producerEpoch:", "partitionLeaderEpoch:"];
    let mut before = "";
    let words = line.split(' ').map(|word| {
        let is_less = names.contains(&before) && word.starts_with('-');
        before = word;
        if is_less { "-1" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "it needs a folder of golden data; cargo xtask golden DIR"]
fn inspections_of_a_folder_end_well_and_say_what_a_start_does() {
    let folder =
        PathBuf::from(std::env::var_os("WEIR_GOLDEN_DIR").expect("WEIR_GOLDEN_DIR names the folder"));
    let Ok(entries) = fs::read_dir(folder.join("logs")) else { return };
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| {
        let text = fs::read_to_string(path.join("expected.json"));
        text.is_ok_and(|text| text.contains("\"made\": "))
    });
    folders.sort();
    let mut failed = 0;
    for folder in folders {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let wrong = std::panic::catch_unwind(|| check(&folder)).unwrap_or_else(|panic| vec![said(&*panic)]);
        for wrong in &wrong {
            println!("{name}: {wrong}");
        }
        let word = if wrong.is_empty() { "inspected" } else { "failed" };
        failed += usize::from(!wrong.is_empty());
        println!("golden {word} inspections/{name}");
    }
    assert_eq!(failed, 0, "{failed} failed");
}
