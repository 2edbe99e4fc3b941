//! `cargo xtask tidy`: what the compiler cannot say about this tree.
//!
//! Each check reads text and returns findings (file, line, what); none of them changes a file, except that
//! `--bless` writes the hash lines of the two format documents, the table of options and `docs/unsafe.md`. The whole is also a test of this package.

mod docs;
mod layers;
mod options;
mod sources;
mod unsafe_blocks;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::command;

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) file: String,
    /// One-based; 0 when the finding is about the whole file.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

/// What tidy found, and the two inventories it always prints.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    unsafe_blocks: Vec<Finding>,
    durable: usize,
    known_gaps: Vec<Finding>,
}

impl Report {
    /// Prints findings as `file:line: what`, then the inventories.
    pub(crate) fn print(&self) {
        for finding in &self.findings {
            println!("{}:{}: {}", finding.file, finding.line, finding.what);
        }
        println!("unsafe: {} places", self.unsafe_blocks.len());
        for place in &self.unsafe_blocks {
            println!("  {}:{}: {}", place.file, place.line, place.what);
        }
        println!("DURABLE: {} places", self.durable);
        println!("FIXME: {} places", self.known_gaps.len());
        for place in &self.known_gaps {
            println!("  {}:{}: {}", place.file, place.line, place.what);
        }
        println!("tidy: {} findings", self.findings.len());
    }
}

/// Runs the checks, or with `bless` writes the hash lines first.
///
/// # Errors
/// If the tree cannot be read. Findings are not an error here but the exit code.
pub(crate) fn run(bless: bool) -> Result<ExitCode> {
    let root = command::root();
    if bless {
        let unsafe_blocks = unsafe_blocks::bless(&root)?;
        for line in docs::bless(&root)?.into_iter().chain(options::bless(&root)?).chain(unsafe_blocks) {
            println!("{line}");
        }
    }
    let report = check(&root)?;
    report.print();
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs every check over the tree at `root`.
///
/// # Errors
/// If a file, git or cargo cannot be read.
pub(crate) fn check(root: &Path) -> Result<Report> {
    let files = files(root)?;
    let mut report = Report::default();
    report.findings.extend(root_listing(&files));
    report.findings.extend(layers::check(root)?);
    let mut sources = Vec::new();
    let mut documents = Vec::new();
    for path in &files {
        let Some(name) = path.to_str() else {
            report.findings.push(Finding::new(&path.to_string_lossy(), 0, "the name is not UTF-8"));
            continue;
        };
        let Ok(text) = std::fs::read_to_string(root.join(path)) else {
            continue; // Golden data is not text, and a file may be gone since git listed it.
        };
        report.findings.extend(sources::forbidden_words(name, &text));
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => {
                report.findings.extend(sources::module_docs(name, &text));
                report.findings.extend(sources::bare_matches(name, &text));
                let (allowed, refused) = sources::unsafe_places(name, &text);
                report.unsafe_blocks.extend(allowed);
                report.findings.extend(refused);
                let (gaps, bad) = sources::known_gaps(name, &text);
                report.known_gaps.extend(gaps);
                report.findings.extend(bad);
                report.durable += text.lines().filter(|line| line.contains("// DURABLE:")).count();
                sources.push((name.to_owned(), text));
            }
            Some("md") if docs::is_ours(name) => {
                report.findings.extend(docs::one_sentence_a_line(name, &text));
                documents.push((name.to_owned(), text));
            }
            _ => {}
        }
    }
    for (name, text) in &documents {
        report.findings.extend(docs::named_tests(name, text, &sources));
        report.findings.extend(docs::laws(name, text, &sources));
    }
    report.findings.extend(sources::listed_test_modules(root, &files)?);
    report.findings.extend(docs::hashes(root));
    report.findings.extend(options::check(root));
    report.findings.extend(unsafe_blocks::check(root));
    report.findings.sort();
    Ok(report)
}

/// What git knows or would take, relative to the root; without git, everything but build output.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output();
    if let Ok(listed) = listed
        && listed.status.success()
    {
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut files: Vec<PathBuf> =
            text.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
        files.retain(|file| root.join(file).is_file());
        files.sort();
        files.dedup();
        return Ok(files);
    }
    let mut files = Vec::new();
    walk(root, Path::new(""), &mut files)?;
    files.sort();
    Ok(files)
}

fn walk(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let folder = root.join(below);
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            let name = entry.file_name();
            if name != "target" && name != ".git" && name != "corpus" && name != "artifacts" {
                walk(root, &path, files)?;
            }
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// What may stand at the top of the tree.
const ROOT: &[&str] = &[
    ".cargo",
    ".ci",
    ".gitattributes",
    ".gitignore",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "benches",
    "clippy.toml",
    "crates",
    "docs",
    "fuzz",
    "rustfmt.toml",
    "xtask",
];

fn root_listing(files: &[PathBuf]) -> Vec<Finding> {
    let mut top: Vec<String> = files
        .iter()
        .filter_map(|file| file.iter().next())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    top.sort();
    top.dedup();
    top.into_iter()
        .filter(|name| !ROOT.contains(&name.as_str()))
        .map(|name| Finding::new(&name, 0, "does not belong at the root"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let report = check(&command::root()).expect("the tree can be read");
        let lines: Vec<String> = report
            .findings
            .iter()
            .map(|finding| format!("{}:{}: {}", finding.file, finding.line, finding.what))
            .collect();
        assert!(lines.is_empty(), "{} findings\n{}", lines.len(), lines.join("\n"));
    }

    #[test]
    fn a_stranger_at_the_root_is_found() {
        let files = [PathBuf::from("notes.txt"), PathBuf::from("docs/a.md"), PathBuf::from("scripts/x.sh")];
        let found: Vec<String> = root_listing(&files).into_iter().map(|finding| finding.file).collect();
        assert_eq!(found, ["notes.txt", "scripts"]);
    }
}
