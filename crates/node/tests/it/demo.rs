//! `weir demo`, as somebody runs it who has just built it.

use std::process::Stdio;
use std::time::Duration;

use crate::support::instant;

#[test]
fn the_demo_tells_a_true_story_in_plain_text_and_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    let began = instant();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    // Its output is no terminal here; its directory is this one.
    let output = command.arg("demo").stdin(Stdio::null()).env("TMPDIR", temporary.path()).output().unwrap();
    let took = began.elapsed();
    let told = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}{errors}");
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(errors, "");
    assert!(told.chars().all(|c| c == '\n' || !c.is_control()), "plain text: {told}");
    assert!(!told.contains("FALSE"), "{told}");
    let table: Vec<&str> = told.lines().skip_while(|line| !line.starts_with("claim ")).collect();
    let head = table.first().expect("a table of claims ends the story");
    let holds = head.find("holds").expect("a column says what holds");
    assert_eq!(table[1..].iter().filter(|row| row[holds..].starts_with("yes ")).count(), 7, "{told}");
    assert_eq!(table.len(), 8, "every claim holds: {told}");
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
