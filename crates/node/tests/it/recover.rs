//! `weir recover`: what an operator says is cut, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use weir_psm::PsmConfig;
use weir_recovery::{LoadError, LogLoader, RecoveryConfig, RecoveryReport};
use weir_segment::SegmentConfig;
use weir_segment::io::pwrite::{PwriteConfig, PwriteIo};

use crate::golden::{Golden, testdata, tree};
use crate::inspect::documented;
use crate::support::{Process, TestNode, batch};

fn golden(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let log_dir = folder.path().join("data");
    fs::create_dir(&log_dir).unwrap();
    let dir = Golden::read(name).write_into(&log_dir);
    (folder, dir)
}

fn recover(dir: &Path, arguments: &[&str]) -> (i32, String, String) {
    weir(&[&["recover"], arguments].concat(), dir)
}

fn weir(arguments: &[&str], path: &Path) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).arg(path).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Where Kafka's log ends on the same bytes.
fn kafkas_end(name: &str) -> i64 {
    let expected = fs::read(testdata().join(name).join("expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    expected["load"]["logEndOffset"].as_i64().unwrap()
}

/// A load as a node does it, after a crash, with the directories that the command used.
fn load(dir: &Path, name: &str) -> Result<RecoveryReport, LoadError> {
    let golden = Golden::read(name);
    let metadata = String::from_utf8(golden.files["partition.metadata"].clone()).unwrap();
    let id = metadata.split("topic_id: ").nth(1).unwrap().trim();
    let log_dir = dir.parent().unwrap();
    let config = RecoveryConfig {
        segment: SegmentConfig::default(),
        psm: PsmConfig::default(),
        clean_shutdown: golden.clean_shutdown,
        recovery_point: weir_format::Offset::new(golden.recovery_point.max(0)).unwrap(),
        log_start_offset: weir_format::Offset::ZERO,
        side_dir: log_dir.with_file_name("data.weir").join("partitions").join(format!("{id}-0")),
        now: weir_format::TimestampMs::new(1),
    };
    let mut io = PwriteIo::new(PwriteConfig::default());
    LogLoader::load(&mut io, dir, &config).map(|(_, report)| report)
}

/// The issue's own case: weir keeps the partition offline where Kafka cuts, and after the word of an operator both have
/// the same log end.
#[test]
fn a_flipped_bit_is_cut_where_kafka_cuts_it_once_somebody_says_so() {
    let (_folder, dir) = golden("bitflip-active");
    let corruption = load(&dir, "bitflip-active").unwrap_err();
    assert!(matches!(corruption, LoadError::Corrupt(_)), "{corruption}");
    let log = dir.join("00000000000000000224.log");
    let before = fs::read(&log).unwrap();
    let (code, said, error) = recover(&dir, &["--accept-cut", "231", "--confirm", "bitflip-active-0"]);
    assert_eq!((code, error.as_str()), (0, ""), "{said}");
    assert!(said.starts_with("bitflip-active-0: a cut at offset 231 takes away "), "{said}");
    assert!(said.contains("bitflip-active-0: cut, the log ends at offset 231\n"), "{said}");
    assert_eq!(kafkas_end("bitflip-active"), 231);
    // What went is kept, byte for byte, and can be printed.
    let kept = fs::read(&log).unwrap();
    let archive = said.lines().find_map(|line| line.strip_prefix("kept in ")).unwrap();
    let archive = Path::new(archive.strip_suffix(": weir dump-log prints it").unwrap());
    assert_eq!([kept, fs::read(archive).unwrap()].concat(), before);
    let (code, dumped, error) = weir(&["dump-log"], archive);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(
        dumped.contains("baseOffset: 231 lastOffset: 237 ") && dumped.contains("isvalid: false"),
        "{dumped}"
    );
    assert!(dumped.contains("| offset: 239 "), "{dumped}");
    let (code, said, _) = weir(&["inspect"], &dir);
    assert!(code == 0 && said.starts_with("bitflip-active-0: healthy\n"), "{said}");
    assert!(said.contains(&format!("archive       {}", archive.display())), "{said}");
    // A start takes it, and the same command finds nothing left to do.
    let report = load(&dir, "bitflip-active").unwrap();
    assert_eq!((report.log_end_offset.get(), report.cut_bytes()), (231, 0));
    let (code, said, _) = recover(&dir, &["--accept-cut", "231", "--confirm", "bitflip-active-0"]);
    assert_eq!((code, said.as_str()), (0, "bitflip-active-0: nothing to cut: the log ends at offset 231\n"));
}

/// Later segments go whole; a clean stop is no reason to leave them.
#[test]
fn a_cut_in_a_sealed_segment_takes_the_later_ones_along() {
    for (name, end, archives) in
        [("bitflip-sealed", 56, 3), ("bitflip-sealed-unseen", 56, 3), ("bitflip-clean", 231, 1)]
    {
        let (_folder, dir) = golden(name);
        let (_, said, _) = weir(&["inspect"], &dir);
        assert!(said.contains(&format!("--accept-cut {end}\n")), "{name}: {said}");
        let partition = Golden::read(name).partition.to_string();
        let (code, said, error) = recover(&dir, &["--accept-cut", &end.to_string(), "--confirm", &partition]);
        assert_eq!(code, 0, "{name}: {said} {error}");
        assert_eq!(said.matches("kept in ").count(), archives, "{said}");
        let report = load(&dir, name).unwrap();
        assert_eq!(report.log_end_offset.get(), end, "{name}");
        assert_eq!(dir.join("00000000000000000112.log").exists(), end > 112);
    }
}

#[test]
fn a_wrong_offset_is_told_which_offsets_make_sense() {
    let (folder, dir) = golden("bitflip-active");
    let before = tree(folder.path());
    let command = |offset| format!("weir recover {} --accept-cut {offset}", dir.display());
    let rows = [
        ("240", "lies behind byte ", format!("the most that can be kept: {}", command(231))),
        ("235", "lies behind byte ", format!("the most that can be kept: {}", command(231))),
        (
            "228",
            "lies inside the batch of offsets 224 to 231",
            format!("{}, or {}", command(231), command(224)),
        ),
        ("-1", "--accept-cut -1 is no offset", "offsets begin at 0".to_owned()),
    ];
    for (offset, error, help) in rows {
        let (code, said, told) =
            recover(&dir, &[&format!("--accept-cut={offset}"), "--confirm", "bitflip-active-0"]);
        assert_eq!((code, said.as_str()), (2, ""), "{offset}: {told}");
        assert!(told.contains(error) && told.contains(&format!("help: {help}")), "{offset}: {told}");
    }
    let (code, _, told) = recover(&dir, &["--accept-cut", "0", "--dry-run"]);
    assert_eq!(code, 0, "everything may go, if somebody says so: {told}");
    let mut after = tree(folder.path());
    after.remove(&dir.with_file_name(".lock"));
    assert_eq!(after, before, "nothing was changed");
    let (_folder, dir) = golden("deleted-records");
    let partition = Golden::read("deleted-records").partition.to_string();
    let (code, _, told) = recover(&dir, &["--accept-cut", "3", "--confirm", &partition]);
    assert!(code == 2 && told.contains("offset 3 is not in the log, which holds "), "{told}");
}

#[test]
fn a_dry_run_says_what_would_go_and_changes_nothing() {
    let (folder, dir) = golden("bitflip-sealed");
    let before = tree(folder.path());
    let (code, said, error) = recover(&dir, &["--accept-cut", "56", "--dry-run"]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert_eq!(tree(folder.path()), before);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("bitflip-sealed-0: a cut at offset 56 takes away "), "{said}");
    assert!(
        lines[1].starts_with("not valid: ") && lines[1].contains(", where offset 56 is expected: crc "),
        "{said}"
    );
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(columns(lines[2])[..4], ["SEGMENT", "FROM", "BYTE", "BYTES"]);
    assert_eq!(columns(lines[3])[0], "00000000000000000000.log");
    assert_eq!(columns(lines[4])[..2], ["00000000000000000112.log", "all"]);
    assert_eq!(lines.len(), 6, "{said}");
    // Valid records that would go too are warned of.
    let (_, said, _) = recover(&dir, &["--accept-cut", "7", "--dry-run"]);
    assert!(
        said.contains("warning: offsets 7..56 are valid and go too: --accept-cut 56 keeps them\n"),
        "{said}"
    );
    let (_folder, dir) = golden("plain");
    let (_, said, _) = recover(&dir, &["--accept-cut", "231", "--dry-run"]);
    assert!(
        said.contains("warning: every batch behind the cut is valid: the cut only takes data away\n"),
        "{said}"
    );
    // What a switch rests on, and what can be read at all.
    let (_folder, dir) = golden("barrier");
    let starts = dir.parent().unwrap().join("log-start-offset-checkpoint");
    fs::write(starts, "0\n1\nbarrier 0 40\n").unwrap();
    let (_, said, _) = recover(&dir, &["--accept-cut", "31", "--dry-run"]);
    assert!(
        said.contains("warning: the barrier at offset 31 goes: ")
            && said.contains("; --accept-cut 32 keeps it\n"),
        "{said}"
    );
    assert!(
        said.contains("warning: the log starts at offset 40: nothing that can be read is left, "),
        "{said}"
    );
    let (_, said, _) = recover(&dir, &["--accept-cut", "40", "--dry-run"]);
    assert!(!said.contains("the log starts at") && !said.contains("barrier at offset 31"), "{said}");
}

#[test]
fn nothing_is_cut_that_was_not_confirmed() {
    let (folder, dir) = golden("bitflip-active");
    let before = tree(folder.path());
    // No terminal: nobody can be asked.
    let (code, said, error) = recover(&dir, &["--accept-cut", "231"]);
    assert_eq!(code, 2);
    assert!(
        said.starts_with("bitflip-active-0: a cut at offset 231 takes away "),
        "it says what it would do: {said}"
    );
    assert!(
        error.contains("was not confirmed") && error.contains("help: add --confirm bitflip-active-0"),
        "{error}"
    );
    let (code, said, error) = recover(&dir, &["--accept-cut", "231", "--confirm", "other-0"]);
    assert_eq!((code, said.as_str()), (2, ""));
    assert!(error.contains("--confirm other-0 is not the partition's name, bitflip-active-0"), "{error}");
    let mut after = tree(folder.path());
    after.remove(&dir.with_file_name(".lock"));
    assert_eq!(after, before);
    for (path, what) in [(dir.parent().unwrap().to_path_buf(), "data"), (dir.join("nowhere-0"), "nowhere-0")]
    {
        let (code, _, error) = recover(&path, &["--accept-cut", "1", "--confirm", "x-0"]);
        assert_eq!(code, 2, "{what}");
        assert!(error.contains("is not a partition's directory"), "{error}");
    }
}

#[test]
fn the_fields_of_a_recovery_are_those_of_the_document() {
    fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                paths(value, format!("{at}.{name}").trim_start_matches('.'), found);
            }),
            Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{at}[]"), found)),
            _ => drop(found.insert(at.to_owned())),
        }
    }
    let (_folder, dir) = golden("bitflip-sealed");
    let mut found = BTreeSet::new();
    for (arguments, applied) in [
        (&["--accept-cut", "56", "--dry-run", "--json"][..], false),
        (&["--accept-cut", "56", "--confirm", "bitflip-sealed-0", "--json"], true),
        (&["--accept-cut", "56", "--confirm", "bitflip-sealed-0", "--json"], false),
    ] {
        let (code, said, _) = recover(&dir, arguments);
        assert_eq!(code, 0);
        let object: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&object["apiVersion"], &object["kind"]), (&"weir/v1".into(), &"Recovery".into()));
        assert_eq!((&object["applied"], &object["logEndOffset"]), (&applied.into(), &56.into()));
        paths(&object, "", &mut found);
    }
    let (_folder, dir) = golden("barrier");
    let (_, said, _) = recover(&dir, &["--accept-cut", "31", "--dry-run", "--json"]);
    let object: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(object["barrierOffset"], 31);
    paths(&object, "", &mut found);
    assert_eq!(found, documented("Fields of `weir recover --json`"));
}

/// From the bit that flips to the partition that takes writes again, with the commands that the tools themselves print.
#[tokio::test]
async fn a_partition_that_is_offline_serves_again_after_a_recovery() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let mut node = Process::start(&data_dir);
    let mut client = node.connect().await;
    client.create_topic("orders", 1, &[]).await;
    for value in ["a", "b", "c", "d"] {
        client.produce("orders", batch(&[value]), -1).await;
    }
    let dir = data_dir.join("orders-0");
    // Not under a node that runs.
    let (code, _, error) = recover(&dir, &["--accept-cut", "2", "--confirm", "orders-0"]);
    assert_eq!(code, 1);
    assert!(
        error.contains("is in use by another process") && error.contains("help: stop the node first"),
        "{error}"
    );
    let (code, said, error) = recover(&dir, &["--accept-cut", "2", "--dry-run"]);
    assert_eq!(code, 0);
    assert!(
        said.contains("orders-0: a cut at offset 2 takes away ") && error.contains("this may change"),
        "{error}"
    );
    node.signal(rustix::process::Signal::KILL);
    node.wait();

    let log = dir.join("00000000000000000000.log");
    let mut bytes = fs::read(&log).unwrap();
    let size = batch(&["c"]).len();
    bytes[2 * size + 65] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let node = TestNode::start(&data_dir).await;
    let mut client = node.connect().await;
    let refused = client.fetch(&crate::support::fetch_request("orders", 0)).await;
    assert!(!refused.error_code.is_none(), "it is offline");
    node.server.stop().await;

    let (code, said, _) = weir(&["inspect"], &dir);
    assert_eq!(code, 10);
    let remedy = said.lines().find_map(|line| line.trim().strip_prefix("remedy")).unwrap().trim();
    assert_eq!(remedy, format!("weir recover {} --accept-cut 2", dir.display()));
    let mut words: Vec<&str> = remedy.split(' ').skip(1).collect();
    words.extend(["--confirm", "orders-0"]);
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let node = TestNode::start(&data_dir).await;
    let mut client = node.connect().await;
    assert_eq!(client.values("orders", 0).await, ["a", "b"]);
    client.produce("orders", batch(&["e"]), -1).await;
    assert_eq!(client.values("orders", 0).await, ["a", "b", "e"]);
    assert!(node.server.stop().await);
}

/// What stands in the runbook is what the commands print, one after the other, on a log of Kafka's with one flipped bit.
#[test]
fn the_outputs_of_the_runbook_are_those_of_the_commands() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let mut golden = Golden::read("bitflip-active");
    golden.partition.topic = "orders".to_owned();
    golden.log_start = -1;
    fs::create_dir(root.join("weir")).unwrap();
    golden.write_into(&root.join("weir"));
    let doc = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let doc = fs::read_to_string(doc).unwrap();
    let (_, section) = doc.split_once("\n## A partition is offline: what now\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut blocks = 0;
    for block in section.split("```text\n").skip(1) {
        let (block, _) = block.split_once("```").unwrap();
        let (command, expected) = block.split_once('\n').unwrap();
        let command =
            command.strip_prefix("$ weir ").unwrap().replace("/var/lib", &root.display().to_string());
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(command.split(' ')).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap().replace(&root.display().to_string(), "/var/lib");
        match expected.strip_suffix("...\n") {
            Some(start) => assert!(said.starts_with(start), "{command}\n{said}"),
            None => assert_eq!(said, expected, "{command}"),
        }
        blocks += 1;
    }
    assert_eq!(blocks, 4);
}

/// A command whose standard input and error are a terminal: what it says there, until it has said `text`.
struct OnTerminal {
    child: std::process::Child,
    terminal: fs::File,
    said: String,
    /// Ends a command that does not end by itself; not once this is gone.
    _watchdog: mpsc::Sender<()>,
}

impl OnTerminal {
    fn run(dir: &Path, arguments: &[&str]) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let theirs = fs::File::options().read(true).write(true).open(name).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("recover")
            .args(arguments)
            .arg(dir)
            .stdin(theirs.try_clone().unwrap())
            .stdout(Stdio::piped())
            .stderr(theirs)
            .spawn()
            .unwrap();
        let (watchdog, over) = mpsc::channel::<()>();
        let pid = rustix::process::Pid::from_child(&child);
        let watch = move || {
            if over.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        };
        std::thread::Builder::new().spawn(watch).unwrap();
        Self { child, terminal: terminal.into(), said: String::new(), _watchdog: watchdog }
    }

    fn until(&mut self, text: &str) {
        let mut bytes = [0; 1_024];
        while !self.said.contains(text) {
            // An error is the end: nobody has the other side open any more.
            let count = self.terminal.read(&mut bytes).unwrap_or(0);
            assert!(count > 0, "ended without {text:?}: {}", self.said);
            self.said.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    /// The code, what was printed, and what was said, once it has ended.
    fn end(mut self) -> (i32, String, String) {
        let mut rest = Vec::new();
        // Ends with an error, once nobody has the other side open any more.
        let _ = self.terminal.read_to_end(&mut rest);
        self.said.push_str(&String::from_utf8_lossy(&rest));
        let output = self.child.wait_with_output().unwrap();
        let code = output.status.code().expect("it ended by itself");
        (code, String::from_utf8(output.stdout).unwrap(), self.said)
    }
}

#[test]
fn somebody_at_a_terminal_is_asked_and_only_a_yes_cuts() {
    enum Answer {
        Types(&'static [u8]),
        Interrupts,
    }
    let answers = [
        (Answer::Types(b"\n"), 1, "was not confirmed"),
        (Answer::Types(b"bitflip-active-0\n"), 1, "was not confirmed"),
        // The end of the input: Ctrl-D.
        (Answer::Types(b"\x04"), 1, "was not confirmed"),
        (Answer::Interrupts, 130, "interrupted: nothing was cut"),
        (Answer::Types(b"y\n"), 0, ""),
    ];
    for json in [false, true] {
        let (_folder, dir) = golden("bitflip-active");
        let before = tree(&dir);
        for (answer, code, word) in &answers {
            let arguments: &[&str] =
                if json { &["--accept-cut", "231", "--json"] } else { &["--accept-cut", "231"] };
            let mut asked = OnTerminal::run(&dir, arguments);
            asked.until("Cut bitflip-active-0 at offset 231? [y/N] ");
            match answer {
                Answer::Types(bytes) => asked.terminal.write_all(bytes).unwrap(),
                Answer::Interrupts => {
                    let child = rustix::process::Pid::from_child(&asked.child);
                    rustix::process::kill_process(child, rustix::process::Signal::INT).unwrap();
                }
            }
            let (found, printed, said) = asked.end();
            assert_eq!(found, *code, "{said}");
            assert!(said.contains(word), "{said}");
            if *code == 0 {
                break;
            }
            assert_eq!(tree(&dir), before, "{said}");
            assert!(!json || printed.is_empty(), "{printed}");
        }
        assert_ne!(tree(&dir), before);
    }
}
