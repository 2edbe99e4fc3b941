//! Documents: one sentence a line, tests that are there, and the hashes that tie two of them to the code they describe.

use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

/// A document and the source whose change must be noticed there.
const TIED: [(&str, &str); 2] = [
    ("docs/on-disk-format.md", "crates/segment/src/layout.rs"),
    ("docs/barrier.md", "crates/format/src/barrier.rs"),
];

/// A document, the letter of the laws that it lists, and how many there are.
const LAWS: [(&str, char, usize); 2] = [("docs/barrier.md", 'B', 12), ("docs/on-disk-format.md", 'R', 8)];

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

/// Whether some source file has this as a text: the name of a metric, of a counter without what all of them end in.
fn is_said(sources: &[(String, String)], name: &str) -> bool {
    let texts = [name, name.strip_suffix("_total").unwrap_or(name)].map(|name| format!("\"{name}\""));
    sources.iter().any(|(_, source)| texts.iter().any(|text| source.contains(text)))
}

/// Finds names of tests in a document that are none: `package test_name` must be a test of that package, and a name of
/// four words or more by itself a function, or a text, of some source file.
pub(super) fn named_tests(name: &str, text: &str, sources: &[(String, String)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for quoted in quoted_in(line) {
            if let Some((folder, package, test)) = test_of(quoted) {
                match found(sources, &folder, test) {
                    None => {
                        findings.push(Finding::new(name, index + 1, format!("{package} has no test {test}")));
                    }
                    // Benches name what they measure.
                    Some(found) if !found.is_test && !folder.starts_with("benches") => {
                        findings.push(Finding::new(
                            name,
                            index + 1,
                            format!("{test} of {package} is no test"),
                        ));
                    }
                    Some(_) => {}
                }
            } else if is_name(quoted)
                && quoted.matches('_').count() >= 3
                && !name.starts_with("docs/decisions/")
                && found(sources, "", quoted).is_none()
                && !is_said(sources, quoted)
            {
                findings.push(Finding::new(name, index + 1, format!("nothing is called {quoted}")));
            }
        }
    }
    findings
}

/// Finds laws that are missing or out of order in the table of a document that lists them, and those that name something
/// else than tests of packages, or none that `cargo test` runs by itself.
pub(super) fn laws(name: &str, text: &str, sources: &[(String, String)]) -> Vec<Finding> {
    let Some((_, letter, count)) = LAWS.iter().find(|(document, ..)| *document == name) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut listed = 0;
    for (index, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", law, _, tests, ""] = cells[..] else { continue };
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !law.strip_prefix(*letter).is_some_and(is_number) {
            continue;
        }
        listed += 1;
        let mut finding = |what: String| findings.push(Finding::new(name, index + 1, what));
        if law != format!("{letter}{listed}") {
            finding(format!("{letter}{listed} is expected where {law} stands"));
        }
        let mut has_one = false;
        for quoted in quoted_in(tests) {
            match test_of(quoted) {
                Some((folder, _, test)) => {
                    has_one |= found(sources, &folder, test).is_some_and(|found| !found.is_ignored);
                }
                None => finding(format!("`{quoted}` beside {law} is not written as `package test_name`")),
            }
        }
        if !has_one {
            finding(format!("no test of {law} is run by cargo test"));
        }
    }
    if listed != *count {
        findings.push(Finding::new(name, 0, format!("lists {listed} laws {letter}, and there are {count}")));
    }
    findings
}

fn quoted_in(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_name(text: &str) -> bool {
    let letters = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    text.contains('_') && text.chars().all(letters)
}

/// Folder, package and test of `package test_name`.
fn test_of(quoted: &str) -> Option<(String, &str, &str)> {
    let (package, test) = quoted.split_once(' ')?;
    let folder = match package.strip_prefix("weir-") {
        Some("benches") => "benches/".to_owned(),
        Some(folder) => format!("crates/{folder}/"),
        None if package == "xtask" => "xtask/".to_owned(),
        None => return None,
    };
    is_name(test).then_some((folder, package, test))
}

struct Function {
    is_test: bool,
    is_ignored: bool,
}

/// The function of this name in the files below a folder: a test, if there is one.
fn found(sources: &[(String, String)], folder: &str, name: &str) -> Option<Function> {
    let heads = [format!("fn {name}("), format!("fn {name}<")];
    let mut other = None;
    for (_, source) in sources.iter().filter(|(file, _)| file.starts_with(folder)) {
        for at in heads.iter().flat_map(|head| source.match_indices(head)).map(|(at, _)| at) {
            let function = function(source, at);
            if function.is_test {
                return Some(function);
            }
            other = Some(function);
        }
    }
    other
}

/// What the lines above a function's head say of it.
fn function(source: &str, head: usize) -> Function {
    let above = source[..head].rfind('\n').map_or("", |end| &source[..end]);
    let mut function = Function { is_test: false, is_ignored: false };
    for line in above.lines().rev().map(str::trim) {
        if !line.starts_with("//") && (line.is_empty() || line.ends_with(['{', '}', ';'])) {
            break;
        }
        function.is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        function.is_ignored |= line.starts_with("#[ignore");
    }
    function
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

    fn whats(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_test_that_is_named_must_exist_in_that_package() {
        let code =
            "/// Why; and how.\n#[test]\n#[ignore = \"long\"]\nfn b2_gone() {}\n\nfn helper_of_it() {}\n";
        let sources = [("crates/psm/src/tests.rs".to_owned(), code.to_owned())];
        let text = "`weir-psm b2_gone`, `weir-psm b3_gone`, `weir-log b2_gone`, `weir serve`, `weir mirror stop`, \
                    `weir-psm helper_of_it`\n";
        let found = whats(named_tests("docs/x.md", text, &sources));
        assert_eq!(
            found,
            [
                "weir-psm has no test b3_gone",
                "weir-log has no test b2_gone",
                "helper_of_it of weir-psm is no test"
            ]
        );
    }

    #[test]
    fn a_name_of_four_words_by_itself_must_be_somewhere() {
        let code = "    fn what_is_still_here() {}\n    say(\"a_metric_of_ours\");\n";
        let sources = [("crates/psm/src/tests.rs".to_owned(), code.to_owned())];
        let text = "`what_is_still_here`, `what_was_once_here`, `two_words`, `a_metric_of_ours_total`\n";
        assert_eq!(whats(named_tests("docs/x.md", text, &sources)), ["nothing is called what_was_once_here"]);
        assert_eq!(whats(named_tests("docs/decisions/x.md", text, &sources)), [""; 0]);
    }

    #[test]
    fn laws_stand_in_order_and_name_tests_that_are_run() {
        let code = "#[tokio::test]\nasync fn r_runs() {}\n\n#[test]\n#[ignore]\nfn r_by_hand() {}\n";
        let sources = [("crates/log/src/tests.rs".to_owned(), code.to_owned())];
        let right: String = (1..=8).map(|n| format!("| R{n} | short | `weir-log r_runs` |\n")).collect();
        let check = |text: &str| whats(laws("docs/on-disk-format.md", text, &sources));
        assert_eq!(check(&right), [""; 0]);
        assert_eq!(
            check(
                &right.replace("| R3 | short | `weir-log r_runs` |", "| R3 | short | `weir-log r_by_hand` |")
            ),
            ["no test of R3 is run by cargo test"]
        );
        assert_eq!(
            check(&right.replacen("`weir-log r_runs`", "`weir-log r_runs`, `r_runs`", 1)),
            ["`r_runs` beside R1 is not written as `package test_name`"]
        );
        let without = right.replace("| R8 | short | `weir-log r_runs` |\n", "");
        assert_eq!(check(&without), ["lists 7 laws R, and there are 8"]);
        let swapped = right.replace("| R8 |", "| R9 |");
        assert_eq!(check(&swapped), ["R8 is expected where R9 stands"]);
        assert_eq!(whats(laws("docs/other.md", &without, &sources)), [""; 0]);
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
