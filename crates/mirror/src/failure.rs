//! Why a mirrored partition is FAILED, with the facts that an operator needs.

use weir_format::{LeaderEpoch, Offset};

/// A reason that stops one partition and waits for an operator.
///
/// Nothing was cut and nothing was skipped when one of these is reported (M3, M7).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Retention of the source, or DeleteRecords, overtook the mirror.
    #[error(
        "gap: the source's log starts at {source_start}, the mirror ends at {log_end}; \
         offsets {log_end} to {source_start} (exclusive) were never mirrored"
    )]
    Gap {
        /// Our log end: the first offset that is missing.
        log_end: Offset,
        /// The source's log start: the first offset behind the gap.
        source_start: Offset,
    },
    /// The source has less than we have.
    #[error("the source ends at {source_end}, below the mirror's end {log_end}: it lost what was mirrored")]
    SourceEndsBelow {
        /// Our log end.
        log_end: Offset,
        /// The source's high watermark.
        source_end: Offset,
    },
    /// The source has another history below our end: an unclean election.
    #[error(
        "the source's history leaves the mirror's, which ends at {log_end}: the source's epoch {} ends at {}; \
         it lost what was mirrored, as by an unclean leader election",
        or_unknown(epoch.as_ref()), or_unknown(end_offset.as_ref())
    )]
    Diverged {
        /// Our log end.
        log_end: Offset,
        /// The newest epoch both know.
        epoch: Option<LeaderEpoch>,
        /// Where it ends at the source.
        end_offset: Option<Offset>,
    },
    /// The topic is gone at the source.
    #[error("topic {topic} does not exist at the source any more (asked {rounds} times)")]
    TopicDeleted {
        /// The topic.
        topic: String,
        /// In how many rounds in a row the source said so.
        rounds: u32,
    },
    /// Another topic has the name at the source.
    #[error("topic {topic} was recreated at the source: its id is {found}, mirrored is {expected}")]
    TopicRecreated {
        /// The topic.
        topic: String,
        /// The id that is mirrored.
        expected: String,
        /// The id that the source has now.
        found: String,
    },
    /// Another cluster answers at the source's address.
    #[error("the cluster at the source's address is {found}, this mirror is bound to {expected}")]
    WrongCluster {
        /// The cluster id stored at first contact.
        expected: String,
        /// The one that answers now.
        found: String,
    },
    /// A batch that cannot be taken, twice in a row, the second time over a new connection.
    #[error("corrupt batch from the source at fetch offset {offset}: {cause}")]
    CorruptBatch {
        /// The offset that was fetched.
        offset: Offset,
        /// What is wrong with it.
        cause: String,
    },
    /// A batch beyond the limit.
    #[error("batch at offset {offset} has {size} bytes, more than weir.mirror.max.batch.bytes ({limit})")]
    BatchTooLarge {
        /// The offset that was fetched.
        offset: Offset,
        /// The batch's size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A leader epoch that leaves no room above it.
    #[error("the source's leader epoch {epoch} is above {limit}, the largest that can be mirrored")]
    EpochTooHigh {
        /// The epoch.
        epoch: LeaderEpoch,
        /// The limit.
        limit: LeaderEpoch,
    },
    /// The log holds something that this session did not mirror.
    #[error(
        "the log is not empty (offsets {log_start} to {log_end}) and was not mirrored in this session; \
         nothing was cut"
    )]
    LogNotEmpty {
        /// Our log start.
        log_start: Offset,
        /// Our log end.
        log_end: Offset,
    },
    /// The source does not have our newest batch.
    #[error(
        "the source does not have the mirror's newest batch at offset {offset} (CRC {crc:#010x}): {found}"
    )]
    NewestBatchDiffers {
        /// The base offset of our newest batch.
        offset: Offset,
        /// Its CRC.
        crc: u32,
        /// What the source has there.
        found: String,
    },
    /// The log ends below what the store says was mirrored.
    #[error("the log ends at {log_end}, below the last mirrored offset {last_mirror_offset} that was stored")]
    LogShorterThanPosition {
        /// The log's end.
        log_end: Offset,
        /// The stored position.
        last_mirror_offset: Offset,
    },
    /// The source keeps answering with an error that is not known to pass.
    #[error("the source answered {code} {times} times in a row")]
    SourceRefuses {
        /// What it says.
        code: String,
        /// How often.
        times: u32,
    },
    /// The log or the store of this node could not take the data.
    #[error("the destination failed: {cause}")]
    Destination {
        /// What failed.
        cause: String,
    },
    /// Read back from the store: the words are all that is left.
    #[error("{text}")]
    Stored {
        /// The name of the original reason.
        name: String,
        /// Its words.
        text: String,
    },
}

fn or_unknown(value: Option<&impl std::fmt::Display>) -> String {
    value.map_or_else(|| "unknown".to_owned(), ToString::to_string)
}

impl Failure {
    /// A short fixed name, for metrics and programs.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Gap { .. } => "gap",
            Self::SourceEndsBelow { .. } => "source-ends-below",
            Self::Diverged { .. } => "diverged",
            Self::TopicDeleted { .. } => "topic-deleted",
            Self::TopicRecreated { .. } => "topic-recreated",
            Self::WrongCluster { .. } => "wrong-cluster",
            Self::CorruptBatch { .. } => "corrupt-batch",
            Self::BatchTooLarge { .. } => "batch-too-large",
            Self::EpochTooHigh { .. } => "epoch-too-high",
            Self::LogNotEmpty { .. } => "log-not-empty",
            Self::NewestBatchDiffers { .. } => "newest-batch-differs",
            Self::LogShorterThanPosition { .. } => "log-shorter-than-position",
            Self::SourceRefuses { .. } => "source-refuses",
            Self::Destination { .. } => "destination",
            Self::Stored { name, .. } => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_for_people() {
        let offset = |raw| Offset::new(raw).expect("not negative");
        let failure =
            Failure::Diverged { log_end: offset(9), epoch: LeaderEpoch::new(3), end_offset: Some(offset(7)) };
        assert_eq!(
            failure.to_string(),
            "the source's history leaves the mirror's, which ends at 9: the source's epoch 3 ends at 7; \
             it lost what was mirrored, as by an unclean leader election"
        );
        let failure = Failure::Diverged { log_end: offset(9), epoch: None, end_offset: None };
        assert!(failure.to_string().contains("epoch unknown ends at unknown"));
    }
}
