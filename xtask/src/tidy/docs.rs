//! Documents: one sentence a line, and the hashes that tie two of them to the code they describe.

use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

/// A document and the source whose change must be noticed there.
const TIED: [(&str, &str); 2] = [
    ("docs/on-disk-format.md", "crates/segment/src/layout.rs"),
    ("docs/barrier.md", "crates/format/src/barrier.rs"),
];

/// True for markdown that is written here; golden data and corpora bring their own.
pub(super) fn is_ours(name: &str) -> bool {
    name == "README.md" || name == "CHANGELOG.md" || name.starts_with("docs/")
}

/// Compares each tied document's hash line with its source.
pub(super) fn hashes(root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (document, source) in TIED {
        let Ok(text) = std::fs::read_to_string(root.join(document)) else {
            findings.push(Finding::new(document, 0, "is not there"));
            continue;
        };
        let Ok(code) = std::fs::read_to_string(root.join(source)) else {
            findings.push(Finding::new(source, 0, format!("is not there, and {document} describes it")));
            continue;
        };
        let wanted = hash_line(source, &code);
        if !text.lines().any(|line| line == wanted) {
            findings.push(Finding::new(
                document,
                0,
                format!("{source} has changed: correct the document, then run cargo xtask tidy --bless"),
            ));
        }
    }
    findings
}

/// Writes the hash lines; returns a line for each document that changed.
pub(super) fn bless(root: &Path) -> Result<Vec<String>> {
    let mut said = Vec::new();
    for (document, source) in TIED {
        let path = root.join(document);
        // What is not there is a finding of the check, not a reason to leave the others unwritten.
        let (Ok(text), Ok(code)) =
            (std::fs::read_to_string(&path), std::fs::read_to_string(root.join(source)))
        else {
            continue;
        };
        let wanted = hash_line(source, &code);
        let blessed = with_hash_line(&text, source, &wanted);
        if blessed != text {
            std::fs::write(&path, blessed).with_context(|| format!("cannot write {document}"))?;
            said.push(format!("{document}: {wanted}"));
        }
    }
    Ok(said)
}

fn prefix(source: &str) -> String {
    format!("<!-- tidy: {source} ")
}

fn hash_line(source: &str, code: &str) -> String {
    format!("{}{:016x} -->", prefix(source), hash_of_code(code))
}

fn with_hash_line(text: &str, source: &str, wanted: &str) -> String {
    let prefix = prefix(source);
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(&prefix)).collect();
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    format!("{}\n\n{wanted}\n", lines.join("\n"))
}

/// FNV-1a over the lines of code: comments, blank lines and tests may change freely.
fn hash_of_code(code: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for line in code.lines().map(str::trim) {
        if line == "#[cfg(test)]" {
            break;
        }
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        for byte in line.bytes().chain([b'\n']) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

/// Finds lines of prose that hold more than one sentence.
///
/// A heuristic: a word of three letters or more, or a closing mark, then `.`, `!` or `?`, a blank and a capital.
pub(super) fn one_sentence_a_line(name: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let prose = !fenced
            && !line.starts_with("    ")
            && !trimmed.starts_with('|')
            && !trimmed.starts_with('#')
            && !trimmed.starts_with("<!--");
        if prose && holds_two_sentences(trimmed) {
            findings.push(Finding::new(name, index + 1, "more than one sentence on a line"));
        }
    }
    findings
}

fn holds_two_sentences(line: &str) -> bool {
    let chars: Vec<char> = line.chars().collect();
    for end in 3..chars.len() {
        let (Some('.' | '!' | '?'), Some(' '), Some(next)) =
            (chars.get(end), chars.get(end + 1), chars.get(end + 2))
        else {
            continue;
        };
        let before = chars.get(end - 3..end).unwrap_or_default();
        let closes = before.iter().all(|letter| letter.is_alphabetic())
            || before
                .last()
                .is_some_and(|mark| matches!(mark, '`' | ')' | '*' | '"') || mark.is_ascii_digit());
        if closes && next.is_uppercase() && !line.starts_with(char::is_numeric) {
            return true;
        }
    }
    false
}

/// Finds names of tests in a document, written as `package test_name`, that no source file of that package has.
pub(super) fn named_tests(name: &str, text: &str, sources: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for quoted in line.split('`').skip(1).step_by(2) {
            let Some((package, test)) = quoted.split_once(' ') else { continue };
            let folder = match package.strip_prefix("weir-") {
                Some("benches") => "benches/".to_owned(),
                Some(folder) => format!("crates/{folder}/"),
                None if package == "xtask" => "xtask/".to_owned(),
                None => continue,
            };
            let is_name = test.contains('_')
                && test
                    .chars()
                    .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
            if !is_name {
                continue;
            }
            let heads = [format!("fn {test}("), format!("fn {test}<")];
            let known = sources
                .iter()
                .filter(|(file, _)| file.starts_with(&folder))
                .any(|(_, source)| heads.iter().any(|head| source.contains(head)));
            if !known {
                findings.push(Finding::new(name, index + 1, format!("{package} has no test {test}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sentences_on_a_line_are_found_in_prose_only() {
        let text = "One sentence.\nTwo of them. Here.\n| a table. May do so |\n```\ncode. Too\n```\n- A list item. And more.\n1. First.\n";
        let lines: Vec<usize> =
            one_sentence_a_line("docs/x.md", text).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 7]);
    }

    #[test]
    fn abbreviations_and_versions_are_not_sentence_ends() {
        for line in ["Kafka 4.4.0 Broker", "see e.g. Kafka", "a, b vs. C", "the file `x.rs` Then"] {
            assert!(!holds_two_sentences(line), "{line}");
        }
    }

    #[test]
    fn the_hash_sees_code_and_not_comments_or_tests() {
        let code = "//! Doc.\nconst A: u8 = 1;\n\n#[cfg(test)]\nmod tests {}\n";
        let same = "//! Other words.\n\n// Why.\n  const A: u8 = 1;\n#[cfg(test)]\nmod tests { fn t() {} }\n";
        let other = "//! Doc.\nconst A: u8 = 2;\n";
        assert_eq!(hash_of_code(code), hash_of_code(same));
        assert_ne!(hash_of_code(code), hash_of_code(other));
    }

    #[test]
    fn a_test_that_is_named_must_exist_in_that_package() {
        let sources = [("crates/psm/src/tests.rs".to_owned(), "fn b2_gone() {}\n".to_owned())];
        let text =
            "`weir-psm b2_gone`, `weir-psm b3_gone`, `weir-log b2_gone`, `weir serve`, `weir mirror stop`\n";
        let found: Vec<String> =
            named_tests("docs/x.md", text, &sources).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, ["weir-psm has no test b3_gone", "weir-log has no test b2_gone"]);
    }

    #[test]
    fn blessing_adds_or_replaces_one_line() {
        let first = with_hash_line("# Title\n\nText.\n", "a.rs", &hash_line("a.rs", "x"));
        let second = with_hash_line(&first, "a.rs", &hash_line("a.rs", "y"));
        assert_eq!(first.matches("tidy: a.rs").count(), 1);
        assert_eq!(second.matches("tidy: a.rs").count(), 1);
        assert!(second.starts_with("# Title\n\nText.\n"));
        assert_ne!(first, second);
    }
}
