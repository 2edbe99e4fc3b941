//! `append` with tiny settings: every section prints its rows, draws, and what was written is what was meant.

use std::process::Command;

use weir_benches::append::batches::Source;
use weir_benches::append::shard::{self, Durability, append_to_one};
use weir_benches::append::{open_backend, sections};

/// The backends that run here: a kernel may refuse the ring, and then says so.
pub(crate) fn backends() -> Vec<&'static str> {
    match open_backend("uring") {
        Ok(_) => vec!["uring", "pwrite"],
        Err(error) => {
            eprintln!("without uring: {error:#}");
            vec!["pwrite"]
        }
    }
}

#[test]
fn what_is_appended_is_in_the_files() {
    for backend in backends() {
        for durability in [Durability::AtTheEnd, Durability::Group(20_000), Durability::Each] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut source = Source::new(5_000, 3).expect("a source");
            let (size, _) =
                append_to_one(backend, folder.path(), &mut source, 7, durability).expect("appended");
            assert_eq!(size, 7 * 3 * 5_000, "{backend} {durability:?}");
            let (records, found) = sections::records_in(folder.path(), 0).expect("whole batches");
            // Four records in each batch of 5,000 bytes.
            assert_eq!((records, found), (7 * 3 * 4, size), "{backend} {durability:?}");
        }
    }
}

#[test]
fn every_durable_append_is_timed_and_there() {
    for backend in backends() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut source = Source::new(1_000, 1).expect("a source");
        let (took, _) = shard::durable_appends(backend, folder.path(), &mut source, 12).expect("appended");
        assert_eq!(took.len(), 12, "{backend}");
        assert_eq!(sections::records_in(folder.path(), 0).expect("whole batches"), (12, 12_000), "{backend}");
    }
}

#[test]
fn an_open_loop_makes_every_append_durable_and_gives_its_space_back() {
    for backend in backends() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut source = Source::new(1_000, 1).expect("a source");
        let time = std::time::Duration::from_millis(100);
        let done = shard::open_loop(backend, folder.path(), &mut source, 10, 500, time).expect("a run");
        assert_eq!(done.took.len(), 50, "{backend}");
        assert!(done.syncs > 0, "{backend}: {done:?}");
        // Six batches in each of ten partitions: one before the run, five in it.
        assert_eq!(sections::records_in(folder.path(), 0).expect("whole batches"), (6, 6_000), "{backend}");
        assert!(done.preallocated <= 10 * (64 << 10), "{backend}: {done:?}");
        assert_eq!(done.preallocated_at_rest, 0, "{backend}: {done:?}");
    }
}

#[test]
fn every_section_prints_its_rows_and_draws() {
    let folder = tempfile::tempdir().expect("a folder");
    let charts = folder.path().join("charts");
    let output = Command::new(env!("CARGO_BIN_EXE_append"))
        .args(["--runs", "1", "--mib", "8", "--appends", "5", "--partitions", "4", "--seconds", "0.05"])
        .args(["--reader-rate", "1", "--behind", "1,2", "--backends", &backends().join(",")])
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
            ", group 4 MiB",
            ", 1 KiB, sync each",
            ", 1 MiB, no sync",
            "  p99 us",
            "  syncs/append",
            ", 2 s behind",
            ", 1 MiB appends, 64 KiB from memory",
            ", cold",
            ", closed segment",
            "  % of a core",
        ] {
            let found = printed.lines().any(|line| {
                line.starts_with(backend)
                    && line.split("median").next().is_some_and(|name| name.contains(row.trim()))
            });
            assert!(found, "no {backend}{row}: {printed}");
        }
    }
    for chart in ["groups-throughput", "groups-cpu", "sizes", "latency", "partitions", "readers", "scan"] {
        let svg = std::fs::read_to_string(charts.join(format!("append-{chart}.svg"))).expect(chart);
        assert!(svg.contains("<circle") && svg.ends_with("</svg>\n"), "{chart}: {svg}");
    }
    // Nothing stays behind.
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["charts"]);
}
