//! `recovery` with tiny settings: every section prints its rows, draws, and loads what was written.

use std::process::Command;

use weir_benches::append::open_backend;
use weir_benches::recovery::{input, plain};

use crate::append::backends;

#[test]
fn a_load_finds_what_was_written_and_the_plain_reads_read_all_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = input::Log::write(&folder.path().join("log"), 20_000, 3_000_000, 7).expect("a log");
    assert!(log.size >= 3_000_000 && log.end_offset.get() > 2_800, "{log:?}");
    let files = log.files().expect("files");
    for backend in backends() {
        let copy = tempfile::tempdir_in(folder.path()).expect("a folder");
        let dir = log.copy(copy.path()).expect("hard links");
        log.forget(false).expect("forgotten");
        let mut io = open_backend(backend).expect("a backend");
        let (loaded, report) =
            input::open(io.as_mut(), &dir, &copy.path().join("side"), false).expect("loaded");
        assert_eq!((loaded.log_end_offset(), report.checked_bytes), (log.end_offset, log.size), "{report}");
        assert_eq!(report.producer_count, 7, "{report}");
        assert_eq!(plain::ahead(&files, backend).expect("read").0, log.size, "{backend}");
    }
    if let Ok((bytes, _)) = plain::threads(&files, 64 << 10, 3) {
        assert_eq!(bytes, log.size);
    }
}

#[test]
fn every_section_prints_its_rows_and_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let charts = folder.path().join("charts");
    let output = Command::new(env!("CARGO_BIN_EXE_recovery"))
        .args(["--runs", "1", "--gb", "0.01", "--partitions", "5", "--stopped", "4", "--producers", "3"])
        .args(["--backends", &backends().join(",")])
        .arg("--dir")
        .arg(folder.path())
        .arg("--chart")
        .arg(&charts)
        .output()
        .expect("the benchmark runs");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
    for backend in backends() {
        for row in [
            format!("weir, {backend}, 16 KiB batches"),
            format!("weir, {backend}, 256 KiB batches"),
            format!("{backend}, read and not looked at, 16 KiB batches"),
            format!("{backend}, 16 KiB batches, cold"),
            format!("{backend}, after a kill, 2 threads"),
            "8 threads".to_owned(),
            format!("weir, {backend}, 16 KiB batches / plain direct read"),
        ] {
            assert!(printed.lines().any(|line| line.starts_with(&row)), "no {row}: {printed}");
        }
    }
    for chart in ["throughput", "cpu"] {
        let svg = std::fs::read_to_string(charts.join(format!("recovery-{chart}.svg"))).expect(chart);
        assert!(svg.contains("<circle") && svg.ends_with("</svg>\n"), "{chart}: {svg}");
    }
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["charts"]);
}
