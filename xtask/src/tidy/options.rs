//! The table of options in `docs/operations.md`, written from the node's own table of keys.

use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

const DOCUMENT: &str = "docs/operations.md";
const SOURCE: &str = "crates/node/src/config/keys.rs";
const BEGIN: &str = "<!-- tidy: options from crates/node/src/config/keys.rs -->";
const END: &str = "<!-- tidy: end of options -->";

/// One effective option.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    default: Option<String>,
    takes: String,
    meaning: String,
}

/// Compares the table between the two marks with what the source says.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    let (Ok(text), Ok(source)) =
        (std::fs::read_to_string(root.join(DOCUMENT)), std::fs::read_to_string(root.join(SOURCE)))
    else {
        return vec![Finding::new(DOCUMENT, 0, format!("it or {SOURCE} is not there"))];
    };
    match with_table(&text, &source) {
        None => vec![Finding::new(DOCUMENT, 0, "has no marks around the table of options")],
        Some(wanted) if wanted != text => {
            vec![Finding::new(DOCUMENT, 0, "the options have changed: run cargo xtask tidy --bless")]
        }
        Some(_) => Vec::new(),
    }
}

/// Writes the table; returns a line if the document changed.
pub(super) fn bless(root: &Path) -> Result<Option<String>> {
    let path = root.join(DOCUMENT);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let source =
        std::fs::read_to_string(root.join(SOURCE)).with_context(|| format!("cannot read {SOURCE}"))?;
    let wanted = with_table(&text, &source).with_context(|| format!("{DOCUMENT} has no marks"))?;
    if wanted == text {
        return Ok(None);
    }
    std::fs::write(&path, wanted).with_context(|| format!("cannot write {DOCUMENT}"))?;
    Ok(Some(format!("{DOCUMENT}: the table of options")))
}

fn with_table(text: &str, source: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let mut table = "| option | default | takes | meaning |\n|---|---|---|---|\n".to_owned();
    for entry in entries(source) {
        let default = entry.default.map_or_else(|| "–".to_owned(), |default| format!("`{default}`"));
        table.push_str(&format!("| `{}` | {default} | {} | {} |\n", entry.name, entry.takes, entry.meaning));
    }
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

/// The calls of `key` and `bare` inside the constant `KEYS`.
fn entries(source: &str) -> Vec<Entry> {
    let Some((_, keys)) = source.split_once("pub const KEYS") else { return Vec::new() };
    let keys = keys.split_once("\n];").map_or(keys, |(keys, _)| keys);
    let mut entries = Vec::new();
    for (call, has_default) in calls(keys) {
        let strings = strings(call);
        let [(_, name_end, name), .., (doc_start, _, meaning)] = strings.as_slice() else { continue };
        let default = if has_default { strings.get(1) } else { None };
        let takes_from = default.map_or(*name_end, |(_, end, _)| *end);
        let takes = call.get(takes_from..*doc_start).unwrap_or_default();
        entries.push(Entry {
            name: name.clone(),
            default: default.map(|(_, _, default)| default.clone()),
            takes: in_words(takes.trim_matches(|edge: char| edge == ',' || edge.is_whitespace())),
            meaning: meaning.clone(),
        });
    }
    entries
}

/// The arguments of each call, and whether it is one with a default.
fn calls(text: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for (name, has_default) in [("key(", true), ("bare(", false)] {
        for (at, _) in text.match_indices(name) {
            let before = text.get(..at).and_then(|before| before.chars().last());
            if before.is_some_and(|before| before.is_alphanumeric() || before == '_') {
                continue;
            }
            let rest = text.get(at + name.len()..).unwrap_or_default();
            if let Some(end) = closing(rest) {
                found.push((at, rest.get(..end).unwrap_or_default(), has_default));
            }
        }
    }
    found.sort_by_key(|(at, _, _)| *at);
    found.into_iter().map(|(_, call, has_default)| (call, has_default)).collect()
}

/// Where the bracket opened before `text` closes.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quoted) = (1_u32, false);
    for (at, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Each string literal: where it starts, where it ends, what it holds.
fn strings(call: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let mut from = None;
    for (at, _) in call.match_indices('"') {
        match from.take() {
            None => from = Some(at),
            Some(start) => {
                found.push((start, at + 1, call.get(start + 1..at).unwrap_or_default().to_owned()))
            }
        }
    }
    found
}

/// A `Kind` as a person would say it.
fn in_words(kind: &str) -> String {
    let kind = kind.trim_start_matches("Kind::");
    let arguments = kind.split_once('(').map(|(_, rest)| rest.trim_end_matches(')')).unwrap_or_default();
    let range = |largest: &str| {
        let mut ends = arguments.split(',').map(str::trim);
        let (low, high) = (ends.next().unwrap_or_default(), ends.next().unwrap_or_default());
        if high == largest {
            format!("a number from {low}")
        } else {
            format!("a number from {low} to {high}")
        }
    };
    let choices = || {
        strings(arguments)
            .into_iter()
            .map(|(_, _, choice)| format!("`{choice}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match kind.split('(').next().unwrap_or_default() {
        "Bool" => "`true` or `false`".to_owned(),
        "Int" => range("INT"),
        "Long" => range("LONG"),
        "Double" => "a number".to_owned(),
        "Choice" => choices(),
        "ListOf" => format!("a list of {}", choices()),
        "List" => "a list".to_owned(),
        _ => "text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
const fn key(name: &'static str) -> Key { panic("no") }
pub const KEYS: &[Key] = &[
    bare("log.dirs", Kind::List, "Log directories."),
    key(
        "weir.flush",
        "acks-all",
        Kind::Choice(&["acks-all", "os"]),
        "When it is answered (or not).",
    ),
    inert("num.io.threads", Kind::Int(1, INT)),
    key("weir.shards", "2", Kind::Int(1, 256), "Threads."),
];
pub const TOPIC_KEYS: &[TopicKey] = &[topic("x", "", "y", Kind::Bool, "z")];
"#;

    #[test]
    fn effective_keys_become_rows_in_order() {
        let text = format!("# T\n\n{BEGIN}\nold\n{END}\nrest\n");
        let written = with_table(&text, SOURCE).expect("marks");
        let rows: Vec<&str> = written.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(
            rows,
            [
                "| `log.dirs` | – | a list | Log directories. |",
                "| `weir.flush` | `acks-all` | `acks-all`, `os` | When it is answered (or not). |",
                "| `weir.shards` | `2` | a number from 1 to 256 | Threads. |",
            ]
        );
        assert_eq!(with_table(&written, SOURCE), Some(written.clone()), "writing twice changes nothing");
        assert!(written.ends_with("\nrest\n"));
    }

    #[test]
    fn without_marks_there_is_no_table() {
        assert_eq!(with_table("# T\n", SOURCE), None);
    }
}
