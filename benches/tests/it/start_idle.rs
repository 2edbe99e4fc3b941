//! `start-idle` runs to its end against the real binary and prints every figure.

use std::process::Command;

/// Builds the binary if the workspace's test run has not done so yet, and asks cargo where it is.
fn weir() -> String {
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "--package",
            "weir-node",
            "--bin",
            "weir",
            "--message-format",
            "json-render-diagnostics",
        ])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "weir")
        .find_map(|message| message["executable"].as_str().map(str::to_owned))
        .expect("cargo says where the binary is")
}

#[test]
fn every_figure_is_printed() {
    let output = Command::new(env!("CARGO_BIN_EXE_start-idle"))
        .args(["--weir", &weir(), "--runs", "1", "--idle-seconds", "1"])
        .output()
        .expect("the benchmark runs");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
    for row in ["to serving", "CPU to serving", "resident", "idle, %"] {
        assert!(
            printed.lines().any(|line| line.starts_with("weir") && line.contains(row)),
            "no {row}: {printed}"
        );
    }
    assert_eq!(printed.lines().filter(|line| line.starts_with("goal ")).count(), 3, "{printed}");
}
