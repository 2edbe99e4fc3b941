//! Kafka's DumpLogSegments over both sides' files after a clean stop: it must say nothing of ours that it does not
//! also say of Kafka's own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::logs::{self, Log, Model, files};
use super::mirror::Source;
use super::node::Node;
use super::{LIVE, PARTITIONS, TOPIC, World};

const TOOL: &str = "org.apache.kafka.tools.DumpLogSegments";

/// Stops Kafka cleanly and asks its own snapshots and transaction indexes whether our naive model is right.
pub(super) fn stop_source(world: &mut World, source: Source) -> Result<PathBuf> {
    let data = source.kafka.stop().context("Kafka's clean stop")?;
    for topic in [TOPIC, LIVE] {
        let result = (0..PARTITIONS).try_for_each(|partition| {
            let folder = data.join(format!("{topic}-{partition}"));
            let log = Log::read(&folder)?;
            if log.batches.is_empty() {
                return Ok(());
            }
            let model = Model::of(&log.batches);
            agrees_with_files(&folder, &model)?;
            ensure!(
                logs::read_epochs(&folder)? == model.epochs,
                "{}: the epoch checkpoint has {:?}, the model {:?}",
                folder.display(),
                logs::read_epochs(&folder)?,
                model.epochs
            );
            Ok(())
        });
        world.report.check(&format!("control.the_model_agrees_with_kafka_{topic}"), result);
    }
    Ok(data)
}

/// The newest snapshot and the transaction indexes of a cleanly closed log hold what its bytes say.
pub(super) fn agrees_with_files(folder: &Path, model: &Model) -> Result<()> {
    let newest = files(folder, "snapshot")?.pop().context("a clean stop left no snapshot")?;
    let name = newest.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    ensure!(
        name.parse::<i64>()? == model.end,
        "{}: the snapshot is at {name}, the log ends at {}",
        folder.display(),
        model.end
    );
    let producers = logs::read_snapshot(&newest)?;
    for (id, wanted) in &model.producers {
        ensure!(
            producers.get(id) == Some(wanted),
            "{}: producer {id} is {:?} in the snapshot, the bytes say {wanted:?}",
            folder.display(),
            producers.get(id)
        );
    }
    ensure!(
        producers.len() == model.producers.len(),
        "{}: the snapshot has producers {:?}, the bytes say {:?}",
        folder.display(),
        producers.keys(),
        model.producers.keys()
    );
    let aborted = logs::read_aborted(folder)?;
    ensure!(
        aborted == model.aborted,
        "{}: the transaction index has {aborted:?}, the bytes say {:?}",
        folder.display(),
        model.aborted
    );
    Ok(())
}

/// Stops weir cleanly and dumps every file of the mirrored topics on both sides; says where weir's files are.
pub(super) fn compare(world: &mut World, theirs: &Path, node: Node) -> Result<PathBuf> {
    let ours = node.stop().context("weir's clean stop")?;
    world.report.check("dump.weir_leaves_a_clean_marker", clean_marker(&ours));
    for topic in [TOPIC, LIVE] {
        let result = (0..PARTITIONS).try_for_each(|partition| {
            let folder = ours.join(format!("{topic}-{partition}"));
            agrees_with_files(&folder, &Model::of(&Log::read(&folder)?.batches))
        });
        world.report.check(&format!("dump.weirs_state_is_what_its_bytes_say_{topic}"), result);
    }
    for (name, extensions, options) in [
        ("logs", ["log"].as_slice(), ["--print-data-log", "--deep-iteration"].as_slice()),
        ("indexes_pass_the_sanity_check", &["index", "timeindex"], &["--index-sanity-check"]),
        ("indexes_and_snapshots", &["index", "timeindex", "txnindex", "snapshot"], &[]),
    ] {
        let result = said_of(world, theirs, extensions, options)
            .and_then(|theirs| Ok((theirs, said_of(world, &ours, extensions, options)?)))
            .and_then(|(theirs, ours)| {
                let new: Vec<_> = ours.complaints.difference(&theirs.complaints).take(5).collect();
                ensure!(new.is_empty(), "of weir's files, not of Kafka's: {new:?}");
                ensure!(
                    ours.files >= theirs.files,
                    "{} files of weir, {} of Kafka",
                    ours.files,
                    theirs.files
                );
                ensure!(name != "logs" || ours.batches > 0, "no batch of weir's logs was printed");
                Ok(())
            });
        world.report.check(&format!("dump.{name}"), result);
    }
    Ok(ours)
}

fn clean_marker(data: &Path) -> Result<()> {
    let marker = data.join(".kafka_cleanshutdown");
    ensure!(marker.is_file(), "{} is not there", marker.display());
    Ok(())
}

/// What the tool printed besides the contents.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) complaints: BTreeSet<String>,
    pub(super) files: usize,
    pub(super) batches: usize,
}

fn said_of(world: &World, data: &Path, extensions: &[&str], options: &[&str]) -> Result<Said> {
    let mut all: Vec<PathBuf> = Vec::new();
    for topic in [TOPIC, LIVE] {
        for partition in 0..PARTITIONS {
            for extension in extensions {
                all.extend(files(&data.join(format!("{topic}-{partition}")), extension)?);
            }
        }
    }
    ensure!(!all.is_empty(), "no {extensions:?} files under {}", data.display());
    said_of_files(world, &all, options)
}

/// What the tool says of these files.
pub(super) fn said_of_files(world: &World, files: &[PathBuf], options: &[&str]) -> Result<Said> {
    let list = files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",");
    let mut arguments = vec!["--files", list.as_str()];
    arguments.extend_from_slice(options);
    let ended = world.tools.run_java(&world.work, TOOL, &arguments, "")?;
    let mut said = sort_out(&ended.all());
    if !ended.status.success() {
        said.complaints.insert(format!("the tool ended with {}", ended.status));
    }
    Ok(said)
}

/// Takes the contents away; what stays is a complaint, with its numbers and names blanked.
fn sort_out(printed: &str) -> Said {
    let mut said = Said::default();
    for line in printed.lines().map(str::trim).filter(|line| !line.is_empty()) {
        said.files += usize::from(line.starts_with("Dumping "));
        if line.starts_with("baseOffset: ") {
            said.batches += 1;
            if !line.contains("isvalid: true") {
                said.complaints.insert("a batch is not valid".to_owned());
            }
            continue;
        }
        let contents = [
            "Dumping ",
            "Log starting offset: ",
            "| offset: ",
            "offset: ",
            "timestamp: ",
            "version: ",
            "producerId: ",
            "Snapshot at offset ",
        ]
        .iter()
        .any(|start| line.starts_with(start));
        if !contents {
            said.complaints.insert(blank(line));
        }
    }
    said
}

/// A complaint without what differs between any two files.
fn blank(line: &str) -> String {
    line.split_whitespace()
        .map(|word| {
            if word.contains('/') {
                "PATH".to_owned()
            } else if word.chars().any(|character| character.is_ascii_digit()) {
                "N".to_owned()
            } else {
                word.to_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_no_complaints_and_the_rest_is() {
        let said = sort_out(
            "Dumping /x/orders-0/00000000000000000000.log\nLog starting offset: 0\n\
             baseOffset: 0 lastOffset: 2 count: 3 crc: 1 isvalid: true\n| offset: 0 keySize: 3\n\
             baseOffset: 3 lastOffset: 3 count: 1 crc: 1 isvalid: false\n\
             Non-consecutive offsets in /x/orders-0/00000000000000000000.log:\n",
        );
        assert_eq!(said.batches, 2);
        let complaints: Vec<_> = said.complaints.into_iter().collect();
        assert_eq!(complaints, ["Non-consecutive offsets in PATH", "a batch is not valid"]);
    }
}
