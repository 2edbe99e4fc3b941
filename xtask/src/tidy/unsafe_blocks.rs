//! `docs/unsafe.md`: every place of `unsafe`, with the invariants that its comment cites.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Finding, sources};

/// The document.
const DOCUMENT: &str = "docs/unsafe.md";

/// One place.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    code: String,
    /// `U1` and the like, each once, in ascending order.
    invariants: Vec<String>,
}

/// Compares the document with the source, and wants every place to cite an invariant that the top of the file has.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let Ok(source) = std::fs::read_to_string(root.join(sources::UNSAFE_HOME)) else {
        return vec![Finding::new(sources::UNSAFE_HOME, 0, format!("is not there, and {DOCUMENT} lists it"))];
    };
    let mut findings = uncited(&source);
    let written = std::fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default();
    if written != document(&source) {
        let what =
            format!("{} has changed: review it, then run cargo xtask tidy --bless", sources::UNSAFE_HOME);
        findings.push(Finding::new(DOCUMENT, 0, what));
    }
    findings
}

/// Writes the document; returns a line if it changed.
pub(super) fn bless(root: &Path) -> Result<Option<String>> {
    let Ok(source) = std::fs::read_to_string(root.join(sources::UNSAFE_HOME)) else { return Ok(None) };
    let path = root.join(DOCUMENT);
    let wanted = document(&source);
    if std::fs::read_to_string(&path).is_ok_and(|written| written == wanted) {
        return Ok(None);
    }
    std::fs::write(&path, wanted).with_context(|| format!("cannot write {DOCUMENT}"))?;
    Ok(Some(format!("{DOCUMENT}: {} places", places(&source).len())))
}

fn places(source: &str) -> Vec<Place> {
    let lines: Vec<&str> = source.lines().collect();
    let (found, _) = sources::unsafe_places(sources::UNSAFE_HOME, source);
    found
        .into_iter()
        .map(|place| {
            let above = lines.get(..place.line - 1).unwrap_or_default().iter().rev();
            let comment: Vec<&str> = above
                .map(|line| line.trim())
                .take_while(|line| line.starts_with("//") && !line.starts_with("//!"))
                .collect();
            let mut invariants: Vec<String> = comment.iter().flat_map(|line| cited(line)).collect();
            invariants.sort();
            invariants.dedup();
            Place { line: place.line, code: place.what, invariants }
        })
        .collect()
}

/// The words of a line that are `U` and a number.
fn cited(line: &str) -> Vec<String> {
    line.split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| {
            word.strip_prefix('U').is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
            })
        })
        .map(str::to_owned)
        .collect()
}

/// The invariants that the top of the file states.
fn stated(source: &str) -> Vec<String> {
    let top = source.lines().take_while(|line| line.starts_with("//!"));
    top.filter(|line| line.starts_with("//! - **U"))
        .flat_map(|line| cited(line).into_iter().take(1))
        .collect()
}

fn uncited(source: &str) -> Vec<Finding> {
    let stated = stated(source);
    let mut findings = Vec::new();
    for place in places(source) {
        if place.invariants.is_empty() {
            findings.push(Finding::new(sources::UNSAFE_HOME, place.line, "cites no invariant of this file"));
        }
        for invariant in place.invariants {
            if !stated.contains(&invariant) {
                let what = format!("cites {invariant}, which the top of this file does not state");
                findings.push(Finding::new(sources::UNSAFE_HOME, place.line, what));
            }
        }
    }
    findings
}

fn document(source: &str) -> String {
    let mut text = format!(
        "# Unsafe code\n\n\
         Written by `cargo xtask tidy --bless`; a change here is to be reviewed by two people.\n\
         All of it is in `{home}`, and the invariants stand on top of that file.\n\
         New unsafe code needs a decision record with a measurement.\n\n\
         | file | line | code | invariants cited |\n|---|---|---|---|\n",
        home = sources::UNSAFE_HOME
    );
    for place in places(source) {
        let invariants = place.invariants.join(", ");
        text.push_str(&format!(
            "| `{}` | {} | `{}` | {invariants} |\n",
            sources::UNSAFE_HOME,
            place.line,
            place.code
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source text; `#` stands for the word, so that this file does not hold it.
    fn source(text: &str) -> String {
        text.replace('#', &["uns", "afe"].concat())
    }

    #[test]
    fn a_block_is_listed_with_what_its_comment_cites() {
        let text = source(
            "//! - **U1** one.\n//! - **U2** two, see U1.\n\nfn f() {\n    // SAFETY: by U2,\n    // and U1 (U2).\n    # { g() }\n}\n",
        );
        let code = source("# { g() }");
        let expected = Place { line: 7, code: code.clone(), invariants: vec!["U1".into(), "U2".into()] };
        assert_eq!(places(&text), [expected]);
        assert_eq!(uncited(&text), []);
        assert!(document(&text).ends_with(&format!("| 7 | `{code}` | U1, U2 |\n")));
    }

    #[test]
    fn a_block_that_cites_nothing_or_what_is_not_stated_is_found() {
        let text =
            source("//! - **U1** one.\n// SAFETY: it is fine.\n# { g() }\n// SAFETY: U3.\n# { g() }\n");
        let found: Vec<(usize, String)> =
            uncited(&text).into_iter().map(|finding| (finding.line, finding.what)).collect();
        assert_eq!(found[0], (3, "cites no invariant of this file".to_owned()));
        assert_eq!(found[1], (5, "cites U3, which the top of this file does not state".to_owned()));
        assert_eq!(found.len(), 2);
    }
}
