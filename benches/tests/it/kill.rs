//! A few kill -9 rounds with each backend, and a checker that finds what it must find.

use std::path::Path;
use std::process::Command;

use weir_benches::append::batches::{NOW, Random};
use weir_benches::append::open_backend;
use weir_benches::kill::ledger::{Kind, Ledger, Line, Written};
use weir_benches::kill::{Place, batch, check, config, options};
use weir_format::{LeaderEpoch, Offset};
use weir_log::{AppendParams, UnifiedLog};

use crate::append::backends;

const SEED: u64 = 7;

#[test]
fn nothing_acknowledged_is_lost_in_five_rounds() {
    for backend in backends() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = Command::new(env!("CARGO_BIN_EXE_kill"))
            .arg("rounds")
            .arg(folder.path().join("rounds"))
            // The files are the same, so either backend recovers what the other left.
            .args(["--backend", backend, "--checkers", &backends().join(","), "--rounds", "5"])
            .output()
            .expect("the rounds run");
        let (printed, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{printed}{errors}");
        let last = printed.lines().last().expect("a line");
        assert!(
            last.starts_with(&format!("{backend}: 5 rounds, ")) && last.ends_with(" 0 lost"),
            "{printed}"
        );
        assert!(!last.contains(" 0 batches"), "nothing was acknowledged: {printed}");
    }
}

/// Twenty batches, all acknowledged, as a writer would leave them.
fn twenty(place: &Place) -> Ledger {
    let mut ledger = Ledger::default();
    let mut io = open_backend("pwrite").expect("always there");
    let opened =
        UnifiedLog::open(io.as_mut(), &place.dir, config(), options(place, Offset::ZERO, Offset::ZERO));
    let (mut log, _) = opened.expect("an empty folder");
    let epoch = LeaderEpoch::new(1).expect("an epoch");
    for _ in 0..20 {
        let base_offset = log.log_end_offset();
        let mut written =
            Written { base_offset, last_offset: base_offset, epoch, kind: Kind::Data, producer_id: -1 };
        let mut bytes = batch(SEED, &written).expect("a batch");
        written.last_offset = weir_format::header_of(&bytes).expect("a header").last_offset();
        ledger.apply(&Line::Write(written)).expect("in order");
        weir_format::set_base_offset(&mut bytes, Offset::ZERO).expect("a header");
        log.append(io.as_mut(), bytes, &AppendParams::client(epoch, NOW)).expect("appended");
    }
    log.sync(io.as_mut()).expect("synced");
    ledger.apply(&Line::Durable(log.log_end_offset())).expect("it is the end");
    ledger
}

/// What the checker says about the twenty, after something was done to the last `.log` file.
fn check_after(spoil: impl FnOnce(&mut Vec<u8>, &Ledger)) -> Result<check::Found, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let place = Place::below(folder.path());
    let mut ledger = twenty(&place);
    let path = last_log(&place.dir);
    let mut bytes = std::fs::read(&path).expect("it is there");
    // Space that was allocated ahead is no part of the log.
    let mut end = 0;
    while let Ok(header) = weir_format::header_of(&bytes[end..]) {
        end += header.size();
    }
    bytes.truncate(end);
    spoil(&mut bytes, &ledger);
    std::fs::write(&path, bytes).expect("written");
    let mut random = Random::new(1);
    check::recover_and_check(&place, "pwrite", SEED, &mut ledger, Offset::ZERO, &mut random)
        .map_err(|error| format!("{error:#}"))
}

fn last_log(dir: &Path) -> std::path::PathBuf {
    let mut logs: Vec<_> = std::fs::read_dir(dir)
        .expect("a folder")
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    logs.sort();
    logs.pop().expect("a log file")
}

#[test]
fn a_checker_takes_what_is_whole() {
    let found = check_after(|_, _| {}).expect("all is there");
    assert_eq!((found.batches, found.unacknowledged, found.cut_bytes), (20, 0, 0));
}

#[test]
fn a_checker_misses_what_was_acknowledged() {
    let error = check_after(|bytes, _| {
        let end = bytes.len() - 1;
        bytes.truncate(end);
    });
    let error = error.expect_err("the last batch is cut");
    assert!(error.contains("was acknowledged, the log ends at"), "{error}");
}

#[test]
fn a_checker_sees_what_nobody_wrote() {
    let error = check_after(|bytes, ledger| {
        let base_offset = ledger.end();
        let epoch = LeaderEpoch::new(1).expect("an epoch");
        let written =
            Written { base_offset, last_offset: base_offset, epoch, kind: Kind::Data, producer_id: -1 };
        bytes.extend_from_slice(&batch(SEED, &written).expect("a batch"));
    });
    let error = error.expect_err("one batch is too much");
    assert!(error.contains("only Offset"), "{error}");
}

#[test]
fn a_checker_sees_other_bytes_under_the_same_offsets() {
    let error = check_after(|bytes, ledger| {
        // The last batch as another seed makes it, cut or filled to be one batch at the same offsets.
        let last = *ledger.batches.last().expect("twenty");
        let size = batch(SEED, &last).expect("a batch").len();
        let start = bytes.len() - size;
        let mut builder =
            weir_format::BatchBuilder::new().base_offset(last.base_offset).leader_epoch(last.epoch);
        for _ in last.base_offset.get()..=last.last_offset.get() {
            builder = builder.record(NOW, None, Some(b"other"));
        }
        bytes.truncate(start);
        bytes.extend_from_slice(&builder.build().expect("a batch"));
    });
    let error = error.expect_err("other bytes");
    assert!(error.contains(" is not Written"), "{error}");
}
