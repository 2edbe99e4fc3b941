//! Log directories that Kafka wrote, as `crates/log/testdata` has them, ready to be opened.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_format::Offset;
use weir_segment::checkpoint::OffsetCheckpoint;
use weir_segment::layout::{
    CLEAN_SHUTDOWN_MARKER, DirectoryName, HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT, TopicPartition,
};

pub(crate) fn testdata() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../log/testdata")
}

/// Every directory that Kafka wrote.
pub(crate) fn names() -> Vec<String> {
    let entries = fs::read_dir(testdata()).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = entries
        .filter(|path| path.join("expected.json").is_file() || path.join("reads.json").is_file())
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() >= 50, "{names:?}");
    names
}

/// What is known of one of them besides its files.
#[derive(Debug, Clone)]
pub(crate) struct Golden {
    pub(crate) partition: TopicPartition,
    /// Its files by name.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) clean_shutdown: bool,
    pub(crate) recovery_point: i64,
    pub(crate) log_start: i64,
    pub(crate) high_watermark: i64,
}

impl Golden {
    pub(crate) fn read(name: &str) -> Self {
        let dir = testdata().join(name);
        let inputs = ["expected.json", "reads.json"].into_iter().find_map(|file| {
            let text = fs::read(dir.join(file)).ok()?;
            let value: Value = serde_json::from_slice(&text).unwrap();
            Some(value["inputs"].clone()).filter(Value::is_object)
        });
        let inputs = inputs.unwrap_or_else(|| panic!("{name} says how it was left"));
        let number = |key: &str| inputs[key].as_i64().unwrap_or(-1);
        let partition_dir = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let partition_dir = partition_dir.into_iter().find(|path| path.is_dir()).unwrap();
        let dir_name = partition_dir.file_name().unwrap().to_string_lossy().into_owned();
        let DirectoryName::Partition(partition) = DirectoryName::parse(&dir_name) else {
            panic!("{dir_name} is a partition's")
        };
        let files = fs::read_dir(&partition_dir).unwrap().map(|entry| entry.unwrap().path());
        let files = files.map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(path).unwrap())
        });
        Self {
            partition,
            files: files.collect(),
            clean_shutdown: inputs["cleanShutdownMarker"].as_bool().unwrap(),
            recovery_point: number("recoveryPointCheckpoint"),
            log_start: number("logStartOffsetCheckpoint"),
            high_watermark: number("highWatermarkCheckpoint"),
        }
    }

    /// Writes it into a log directory; the partition's directory.
    pub(crate) fn write_into(&self, log_dir: &Path) -> PathBuf {
        let dir = log_dir.join(self.partition.to_string());
        fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in &self.files {
            fs::write(dir.join(name), bytes).unwrap();
        }
        if self.clean_shutdown {
            fs::write(log_dir.join(CLEAN_SHUTDOWN_MARKER), []).unwrap();
        }
        let checkpoints = [
            (RECOVERY_POINT_CHECKPOINT, self.recovery_point),
            (LOG_START_CHECKPOINT, self.log_start),
            (HIGH_WATERMARK_CHECKPOINT, self.high_watermark),
        ];
        for (file, offset) in checkpoints {
            let Some(offset) = Offset::new(offset) else { continue };
            let mut checkpoint = OffsetCheckpoint::default();
            checkpoint.offsets.insert(self.partition.clone(), offset);
            fs::write(log_dir.join(file), checkpoint.encode()).unwrap();
        }
        dir
    }
}

/// Every file below a directory with its bytes: to see that nothing was changed.
pub(crate) fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.is_file() {
                let bytes = fs::read(&path).unwrap();
                files.insert(path, bytes);
            }
        }
    }
    files
}
