//! Counting checks: a line each, and the closing line.

use std::process::ExitCode;

use anyhow::Result;

/// What came of the checks so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    only: Option<String>,
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Report {
    pub(super) fn new(only: Option<String>) -> Self {
        Self { only, ..Self::default() }
    }

    /// Counts one check and prints its line.
    pub(super) fn check(&mut self, name: &str, result: Result<()>) {
        if self.only.as_ref().is_some_and(|only| !name.starts_with(only.as_str())) && result.is_ok() {
            return;
        }
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("ok {name}");
            }
            Err(error) => {
                self.failed += 1;
                println!("not ok {name}: {}", one_line(&format!("{error:#}")));
            }
        }
    }

    /// Counts a check that another program made and printed as `ok NAME` or `not ok NAME: why`.
    pub(super) fn check_line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("ok ") {
            self.check(name, Ok(()));
        } else if let Some(rest) = line.strip_prefix("not ok ") {
            let (name, why) = rest.split_once(": ").unwrap_or((rest, "no reason given"));
            self.check(name, Err(anyhow::anyhow!("{why}")));
        }
    }

    /// Counts what could not be tried.
    pub(super) fn skip(&mut self, name: &str, why: &str) {
        self.skipped += 1;
        println!("skip {name}: {}", one_line(why));
    }

    pub(super) fn failed(&self) -> u32 {
        self.failed
    }

    /// Prints the closing line. Nothing passed is a failure, and so is a skip where `CI` is set.
    pub(super) fn finish(&self) -> ExitCode {
        let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        if self.good(ci) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn good(&self, ci: bool) -> bool {
        self.failed == 0 && if ci { self.skipped == 0 && self.passed > 0 } else { true }
    }
}

fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > 1200 {
        let end = (0..=1200).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_a_failure_in_ci_only() {
        let mut report = Report::new(None);
        report.check("a", Ok(()));
        assert!(report.good(true));
        report.skip("b", "no Java");
        assert!(report.good(false));
        assert!(!report.good(true));
    }

    #[test]
    fn nothing_passed_is_not_good_in_ci() {
        assert!(!Report::new(None).good(true));
    }

    #[test]
    fn lines_of_other_programs_count() {
        let mut report = Report::new(None);
        report.check_line("ok kcat.list");
        report.check_line("not ok kcat.produce: refused: twice");
        report.check_line("anything else");
        assert_eq!((report.passed, report.failed), (1, 1));
    }

    #[test]
    fn a_failure_counts_whatever_was_asked_for() {
        let mut report = Report::new(Some("mirror".to_owned()));
        report.check("kill.x", Ok(()));
        report.check("kill.y", Err(anyhow::anyhow!("gone")));
        assert_eq!((report.passed, report.failed), (0, 1));
    }
}
