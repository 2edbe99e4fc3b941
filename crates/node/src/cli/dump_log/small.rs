//! Small text files: checkpoints, identities, weir's partition file. Kafka's tool prints none of them.

use std::io::Read as _;

use serde_json::{Value, json};
use weir_recovery::{LeaderEpochCache, PartitionFile};
use weir_segment::checkpoint::OffsetCheckpoint;
use weir_segment::{CleanShutdown, MetaProperties, PartitionMetadata};

use super::item::Item;
use super::log_file::LogFile;
use super::{Dump, DumpError, MAX_SMALL_FILE_SIZE, Small};
use crate::shard::describe;

type Lines = Vec<(&'static str, Vec<(&'static str, Value)>)>;

impl Dump<'_, '_> {
    pub(super) fn small(&mut self, small: Small, file: LogFile) -> Result<(), DumpError> {
        let refused = |reason: String| DumpError::SmallFile { path: self.path.to_owned(), reason };
        let size = file.size();
        if size > MAX_SMALL_FILE_SIZE {
            return Err(refused(format!("{size} bytes are more than such a file has")));
        }
        let mut bytes = Vec::new();
        file.into_file()
            .take(MAX_SMALL_FILE_SIZE)
            .read_to_end(&mut bytes)
            .map_err(|source| self.io(source))?;
        let lines = lines(small, &bytes).map_err(refused)?;
        self.start()?;
        for (kind, fields) in lines {
            self.print(&Item::Fields { kind, fields })?;
        }
        Ok(())
    }
}

fn lines(small: Small, bytes: &[u8]) -> Result<Lines, String> {
    match small {
        Small::LeaderEpochs => {
            let cache = LeaderEpochCache::decode(bytes).map_err(|error| error.to_string())?;
            let line = |entry: &weir_recovery::EpochEntry| {
                let fields = vec![
                    ("epoch", json!(entry.epoch.get())),
                    ("startOffset", json!(entry.start_offset.get())),
                ];
                ("LeaderEpoch", fields)
            };
            Ok(cache.entries().iter().map(line).collect())
        }
        Small::PartitionFile => {
            let file = PartitionFile::decode(bytes).map_err(|error| error.to_string())?;
            let mut lines = vec![("PartitionFile", vec![("checkedOffset", json!(file.checked().get()))])];
            lines.extend(file.barriers().map(|(offset, note)| {
                let aborted = json!(note.aborted_transaction);
                ("Barrier", vec![("barrierOffset", json!(offset.get())), ("abortedTransaction", aborted)])
            }));
            lines.extend(file.snapshots().map(|(offset, crc)| {
                let crc = json!(format!("{crc:08x}"));
                ("WrittenSnapshot", vec![("snapshotOffset", json!(offset.get())), ("crc", crc)])
            }));
            lines.extend(file.cut().map(|cut| {
                ("Cut", vec![("cutTo", json!(cut.to.get())), ("cutFrom", json!(cut.from.get()))])
            }));
            Ok(lines)
        }
        Small::PartitionMetadata => {
            let metadata = PartitionMetadata::parse(bytes).map_err(|error| describe(&error))?;
            Ok(vec![("PartitionMetadata", vec![("topicId", json!(metadata.topic_id.to_string()))])])
        }
        Small::OffsetCheckpoint => {
            let checkpoint = OffsetCheckpoint::parse(bytes).map_err(|error| describe(&error))?;
            let lines = checkpoint.offsets.into_iter().map(|(name, offset)| {
                let fields = vec![
                    ("topic", json!(name.topic)),
                    ("partition", json!(name.partition)),
                    ("offset", json!(offset.get())),
                ];
                ("CheckpointEntry", fields)
            });
            Ok(lines.collect())
        }
        Small::MetaProperties => {
            let meta = MetaProperties::parse(bytes).map_err(|error| describe(&error))?;
            let fields = [
                Some(("version", json!(meta.version))),
                meta.cluster_id.map(|id| ("clusterId", json!(id))),
                meta.node_id.map(|id| ("nodeId", json!(id))),
                meta.directory_id.map(|id| ("directoryId", json!(id.to_string()))),
            ];
            Ok(vec![("MetaProperties", fields.into_iter().flatten().collect())])
        }
        Small::CleanShutdown => {
            let epoch = CleanShutdown::parse(bytes).broker_epoch;
            Ok(vec![(
                "CleanShutdown",
                epoch.map(|epoch| ("brokerEpoch", json!(epoch))).into_iter().collect(),
            )])
        }
    }
}
