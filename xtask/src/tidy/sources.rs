//! Source files: module docs, forbidden words, `unsafe`, known gaps, test modules that nobody compiles.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;

/// The one file that may hold `unsafe`.
pub(super) const UNSAFE_HOME: &str = "crates/segment/src/io/uring.rs";

/// Words that never belong in this tree, split so that this file does not hold them.
const FORBIDDEN: &[(&[&str], &str)] = &[
    (&["/ro", "ot/"], "a path of one machine"),
    (&["/wo", "rk/"], "a path of one machine"),
    (&["/home", "/"], "a path of one machine"),
    (&["repo1.", "maven"], "the host of a registry"),
    (&["repo.", "maven"], "the host of a registry"),
    (&["pypi", ".org"], "the host of a registry"),
    (&["pythonhosted", ".org"], "the host of a registry"),
    (&["static.", "crates.io"], "the host of a registry"),
    (&["index.", "crates.io"], "the host of a registry"),
    (&["registry.", "npmjs"], "the host of a registry"),
    (&["deb.", "debian.org"], "the host of a registry"),
    (&["proxy.", "golang.org"], "the host of a registry"),
    (&["to", "do!("], "unfinished code"),
    (&["unimple", "mented!("], "unfinished code"),
    (&["db", "g!("], "a debugging aid"),
];

/// Finds forbidden words in any text file.
pub(super) fn forbidden_words(name: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (parts, why) in FORBIDDEN {
            let word = parts.concat();
            if line.contains(&word) {
                findings.push(Finding::new(name, index + 1, format!("{word:?} is {why}")));
            }
        }
    }
    findings
}

/// Requires a `//!` comment before the first item of every module under a `src` folder.
pub(super) fn module_docs(name: &str, text: &str) -> Vec<Finding> {
    let in_src = name.contains("/src/");
    if !in_src || name.ends_with("/tests.rs") || name.contains("/tests/") {
        return Vec::new();
    }
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!["));
    if first.is_some_and(|line| line.starts_with("//!")) {
        Vec::new()
    } else {
        vec![Finding::new(name, 1, "the module has no //! comment at its top")]
    }
}

/// Finds `matches!(..);` as a statement: it compares and forgets the answer.
pub(super) fn bare_matches(name: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut before = '{';
    let mut at = 0;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with("matches!(") && matches!(before, ';' | '{' | '}') {
            let rest = text.get(at..).unwrap_or_default();
            if statement_is_one_call(rest) {
                findings.push(Finding::new(name, index + 1, "a bare matches!(..); asserts nothing"));
            }
        }
        if !trimmed.starts_with("//")
            && let Some(last) = trimmed.chars().last()
        {
            before = last;
        }
        at += line.len() + 1;
    }
    findings
}

/// True if the text starts (behind blanks) with one call whose closing bracket is followed by `;`.
fn statement_is_one_call(text: &str) -> bool {
    let mut depth = 0_u32;
    for (position, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return text.get(position + 1..).is_some_and(|rest| rest.starts_with(';'));
                }
            }
            _ => {}
        }
    }
    false
}

/// Lists the places of `unsafe` code: first where it is allowed, then where it is not.
pub(super) fn unsafe_places(name: &str, text: &str) -> (Vec<Finding>, Vec<Finding>) {
    let word = ["uns", "afe"].concat();
    let mut places = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if begins_something(code, &word) {
            places.push(Finding::new(name, index + 1, code.trim()));
        }
    }
    if name == UNSAFE_HOME {
        (places, Vec::new())
    } else {
        let refused = places
            .into_iter()
            .map(|place| Finding { what: format!("{word} outside {UNSAFE_HOME}: {}", place.what), ..place })
            .collect();
        (Vec::new(), refused)
    }
}

/// True if `word` stands alone and a block, a function, an implementation or the like follows it.
fn begins_something(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let alone = code
            .get(..at)
            .and_then(|before| before.chars().last())
            .is_none_or(|last| !last.is_alphanumeric() && last != '_');
        let rest = code.get(at + word.len()..).unwrap_or_default().trim_start();
        let follows = ["{", "fn ", "impl", "trait ", "extern "].iter().any(|start| rest.starts_with(start));
        alone && (follows || (rest.is_empty() && code.trim_end().ends_with(word) && code.trim() == word))
    })
}

/// Lists `FIXME` with its issue number; one without, or any other such word, is a finding.
pub(super) fn known_gaps(name: &str, text: &str) -> (Vec<Finding>, Vec<Finding>) {
    let (fix, later, hack) = (["FIX", "ME"].concat(), ["TO", "DO"].concat(), ["XX", "X"].concat());
    let mut gaps = Vec::new();
    let mut bad = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some((_, comment)) = line.split_once("//") else { continue };
        let comment = comment.trim_start_matches(['/', '!']).trim();
        if let Some(rest) = comment.strip_prefix(&fix) {
            if rest.chars().take(12).any(|character| character.is_ascii_digit()) {
                gaps.push(Finding::new(name, index + 1, comment));
            } else {
                bad.push(Finding::new(name, index + 1, format!("{fix} without the number of an issue")));
            }
        } else if comment.starts_with(&later) || comment.starts_with(&hack) {
            bad.push(Finding::new(name, index + 1, "a known gap is a FIXME with the number of an issue"));
        }
    }
    (gaps, bad)
}

/// Requires every `tests/it/*.rs` to be a module of that folder's `main.rs`.
pub(super) fn listed_test_modules(root: &Path, files: &[PathBuf]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in files {
        let Some(name) = file.to_str() else { continue };
        let Some((folder, module)) = name.rsplit_once('/') else { continue };
        if !folder.ends_with("tests/it") || module == "main.rs" || !module.ends_with(".rs") {
            continue;
        }
        let main = root.join(folder).join("main.rs");
        let text =
            std::fs::read_to_string(&main).with_context(|| format!("cannot read {}", main.display()))?;
        if !lists_module(&text, module.trim_end_matches(".rs")) {
            findings.push(Finding::new(name, 0, format!("{folder}/main.rs does not list it")));
        }
    }
    Ok(findings)
}

fn lists_module(main: &str, module: &str) -> bool {
    main.lines().map(str::trim).any(|line| {
        line.strip_prefix("pub ")
            .unwrap_or(line)
            .strip_prefix("mod ")
            .is_some_and(|rest| rest.trim_end_matches([';', ' ', '{']) == module)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_word_is_found_with_its_line() {
        let text = format!("fine\nlet p = \"{}x\";\n", ["/wo", "rk/"].concat());
        let found = forbidden_words("a.rs", &text);
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_module_without_docs_is_found() {
        assert_eq!(module_docs("crates/x/src/a.rs", "use std::fs;\n").len(), 1);
        assert!(module_docs("crates/x/src/a.rs", "#![forbid(x)]\n//! Says it.\n").is_empty());
        assert!(module_docs("crates/x/src/foo/tests.rs", "use super::*;\n").is_empty());
    }

    #[test]
    fn only_a_statement_of_matches_is_found() {
        let macro_call = ["matches", "!("].concat();
        let text = format!(
            "fn f() {{\n    {macro_call}x, Some(_));\n    let y = {macro_call}x, Some(_));\n    foo(\n        {macro_call}x, Some(_)));\n    {macro_call}\n        x,\n        None\n    );\n    {macro_call}x, None)\n}}\n"
        );
        let lines: Vec<usize> = bare_matches("a.rs", &text).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 6]);
    }

    #[test]
    fn code_that_the_compiler_does_not_check_has_one_home() {
        let text = ["    uns", "afe { call() };\n// uns", "afe in a comment\n#![forbid(uns", "afe_code)]\n"]
            .concat();
        let (allowed, refused) = unsafe_places("crates/node/src/a.rs", &text);
        assert_eq!((allowed.len(), refused.len()), (0, 1));
        let (allowed, refused) = unsafe_places(UNSAFE_HOME, &text);
        assert_eq!((allowed.len(), refused.len()), (1, 0));
    }

    #[test]
    fn a_known_gap_needs_a_number() {
        let (fix, later) = (["// FIX", "ME"].concat(), ["// TO", "DO"].concat());
        let (gaps, bad) = known_gaps("a.rs", &format!("{fix}(#12): slow\n{fix} slow\n{later} fast\n"));
        assert_eq!((gaps.len(), bad.len()), (1, 2));
    }

    #[test]
    fn a_test_module_that_is_not_listed_is_seen() {
        assert!(lists_module("mod append;\npub mod crash;\n", "crash"));
        assert!(!lists_module("mod append;\n// mod crash;\n", "crash"));
    }
}
