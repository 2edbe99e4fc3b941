//! The layer table of `docs/architecture.md` against what cargo knows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;
use crate::command;

const DOCUMENT: &str = "docs/architecture.md";
/// Packages that may use anything and that nothing may use.
const TOOLS: [&str; 3] = ["xtask", "weir-benches", "weir-fuzz"];

/// One row: package name to the packages it may use; `None` means all.
type Table = BTreeMap<String, Option<BTreeSet<String>>>;

/// Compares the table with `cargo metadata`.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let path = root.join(DOCUMENT);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return Ok(vec![Finding::new(DOCUMENT, 0, format!("cannot be read: {error}"))]),
    };
    let (table, mut findings) = parse(&text);
    let edges = edges(&command::metadata()?).context("cargo metadata has another shape")?;
    findings.extend(compare(&table, &edges));
    Ok(findings)
}

/// Reads the rows under the heading `Layers`: folder, package, what it may depend on.
fn parse(text: &str) -> (Table, Vec<Finding>) {
    let mut table = Table::new();
    let mut findings = Vec::new();
    let mut names = BTreeMap::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            inside = line.trim_start_matches('#').trim() == "Layers";
            continue;
        }
        if !inside || !line.starts_with('|') {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [folder, package, uses, ..] = cells.as_slice() else { continue };
        if folder.starts_with("crate") || folder.starts_with("--") || folder.starts_with(":-") {
            continue;
        }
        let package = package.split_whitespace().next().unwrap_or_default().trim_matches('`');
        names.insert((*folder).to_owned(), package.to_owned());
        let uses = match *uses {
            "all" => None,
            "–" | "-" | "" => Some(BTreeSet::new()),
            list => Some(list.split(',').map(|name| name.trim().to_owned()).collect()),
        };
        if table.insert(package.to_owned(), uses).is_some() {
            findings.push(Finding::new(DOCUMENT, index + 1, format!("{package} has two rows")));
        }
    }
    if table.is_empty() {
        findings.push(Finding::new(DOCUMENT, 0, "has no layer table under a heading \"Layers\""));
    }
    // The table names folders; cargo names packages.
    for uses in table.values_mut().flatten() {
        *uses = uses.iter().map(|folder| names.get(folder).unwrap_or(folder).clone()).collect();
    }
    (table, findings)
}

/// Every edge between packages of the workspace, of every kind.
fn edges(metadata: &serde_json::Value) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let packages = metadata["packages"].as_array().context("no packages")?;
    let ours: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut edges = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().context("a package without a name")?;
        let uses = package["dependencies"]
            .as_array()
            .context("a package without dependencies")?
            .iter()
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|dependency| ours.contains(dependency) && *dependency != name)
            .map(str::to_owned)
            .collect();
        edges.insert(name.to_owned(), uses);
    }
    Ok(edges)
}

fn compare(table: &Table, edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (package, uses) in edges {
        if TOOLS.contains(&package.as_str()) {
            continue;
        }
        let Some(allowed) = table.get(package) else {
            findings.push(Finding::new(DOCUMENT, 0, format!("the layer table has no row for {package}")));
            continue;
        };
        for used in uses {
            let fine = !TOOLS.contains(&used.as_str())
                && allowed.as_ref().is_none_or(|allowed| allowed.contains(used));
            if !fine {
                findings.push(Finding::new(DOCUMENT, 0, format!("{package} must not depend on {used}")));
            }
        }
    }
    for package in table.keys().filter(|package| !edges.contains_key(*package)) {
        findings.push(Finding::new(DOCUMENT, 0, format!("{package} has a row and is not a package")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
## Layers

| crate | package | may depend on (ours) | holds |
|---|---|---|---|
| format | weir-format | – | bytes |
| psm | weir-psm | format | rules |
| node | weir-node (binary `weir`) | all | everything |

## Threads

| not | a-row | here |
";

    fn edges_of(list: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        list.iter()
            .map(|(name, uses)| ((*name).to_owned(), uses.iter().map(|used| (*used).to_owned()).collect()))
            .collect()
    }

    fn check_says(edges: &[(&str, &[&str])], expected: &[&str]) {
        let (table, findings) = parse(TEXT);
        assert!(findings.is_empty(), "{findings:?}");
        let found: Vec<String> =
            compare(&table, &edges_of(edges)).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_right_edges_pass() {
        check_says(
            &[
                ("weir-format", &[]),
                ("weir-psm", &["weir-format"]),
                ("weir-node", &["weir-format", "weir-psm"]),
                ("xtask", &["weir-node"]),
            ],
            &[],
        );
    }

    #[test]
    fn a_wrong_edge_is_named() {
        check_says(
            &[("weir-format", &["weir-psm"]), ("weir-psm", &["xtask"]), ("weir-node", &["weir-benches"])],
            &[
                "weir-format must not depend on weir-psm",
                "weir-node must not depend on weir-benches",
                "weir-psm must not depend on xtask",
            ],
        );
    }

    #[test]
    fn a_package_without_a_row_and_a_row_without_a_package_are_named() {
        check_says(
            &[("weir-format", &[]), ("weir-psm", &[]), ("weir-wire", &[])],
            &["the layer table has no row for weir-wire", "weir-node has a row and is not a package"],
        );
    }

    #[test]
    fn a_document_without_a_table_is_a_finding() {
        let (table, findings) = parse("# Architecture\n\ntext\n");
        assert!(table.is_empty());
        assert_eq!(findings.len(), 1);
    }
}
