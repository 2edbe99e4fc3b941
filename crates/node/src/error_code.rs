//! The one table from this node's errors to Kafka's codes.
//!
//! A code is chosen by what the oldest supported client does with it (`cases.md` of other brokers'
//! years): retriable where trying again helps, final where it does not, and never one that moves a
//! client's position unless the position is truly wrong (law O6).

use weir_format::BatchError;
use weir_log::{AppendError, ChangeError, ReadError};
use weir_psm::ProducerStateError;
use weir_wire::ErrorCode;

use crate::metadata::MetadataError;
use crate::shard::PartitionError;

/// The code for a partition's error, in answers to Produce, Fetch and their like.
pub fn of_partition(error: &PartitionError) -> ErrorCode {
    match error {
        // Both look to a client like a leader that is moving: it refreshes its metadata and tries again.
        PartitionError::Loading | PartitionError::ShutDown => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        PartitionError::Offline { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
        // Known to every client and retried by none.
        PartitionError::ReadOnly { .. } => ErrorCode::POLICY_VIOLATION,
        PartitionError::NotMirrored | PartitionError::EndMoved { .. } => ErrorCode::INVALID_REQUEST,
        PartitionError::Append(error) => of_append(error),
        PartitionError::Read(error) => of_read(error),
        PartitionError::Change(error) => of_change(error),
    }
}

/// The code for an append that the log refused.
pub fn of_append(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Batch { source, .. } => of_batch(source),
        AppendError::Message { .. } => ErrorCode::CORRUPT_MESSAGE,
        AppendError::NotOneBatch { .. } | AppendError::InvalidRecord { .. } | AppendError::Records { .. } => {
            ErrorCode::INVALID_RECORD
        }
        AppendError::RecordTooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
        AppendError::RecordBatchTooLarge { .. } => ErrorCode::RECORD_LIST_TOO_LARGE,
        AppendError::InvalidTimestamp { .. } | AppendError::LogAppendTimeFromClient => {
            ErrorCode::INVALID_TIMESTAMP
        }
        // A producer whose transaction a stop aborted recovers from this one; INVALID_TXN_STATE would be its end.
        // Kafka: KAFKA-19690.
        AppendError::TransactionNotOpen { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
        AppendError::LeaderEpochBelowNewest { .. } => ErrorCode::NOT_LEADER_OR_FOLLOWER,
        AppendError::ProducerState { source } => of_producer_state(source),
        AppendError::UnexpectedOffset { .. } | AppendError::OffsetsNotMonotonic { .. } => {
            ErrorCode::CORRUPT_MESSAGE
        }
        AppendError::LeaderEpochTooHigh { .. } => ErrorCode::UNKNOWN_LEADER_EPOCH,
        AppendError::TooMuchUnsynced { .. } => ErrorCode::REQUEST_TIMED_OUT,
        AppendError::Offline | AppendError::Log { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

/// The code for bytes that are not a batch.
///
/// Kafka: a wrong CRC or length is `CorruptRecordException`, another magic `InvalidRecordException`.
pub fn of_batch(error: &BatchError) -> ErrorCode {
    match error {
        BatchError::UnsupportedMagic { .. } => ErrorCode::INVALID_RECORD,
        _ => ErrorCode::CORRUPT_MESSAGE,
    }
}

/// The code for a rule of the producer's state.
pub fn of_producer_state(error: &ProducerStateError) -> ErrorCode {
    match error {
        // Kafka: PRODUCER_FENCED is for the coordinator's APIs; Produce says 47.
        ProducerStateError::InvalidProducerEpoch { .. }
        // Kafka says INVALID_TXN_STATE here, which Kafka Streams does not survive; see `TransactionNotOpen`.
        | ProducerStateError::NotVerified { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
        ProducerStateError::OutOfOrderSequence { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        ProducerStateError::InvalidTxnState { .. } => ErrorCode::INVALID_TXN_STATE,
        ProducerStateError::TransactionCoordinatorFenced { .. } => ErrorCode::TRANSACTION_COORDINATOR_FENCED,
        ProducerStateError::InvalidProducerId { .. }
        | ProducerStateError::MissingSequence { .. }
        | ProducerStateError::ControlBatchFromClient { .. }
        | ProducerStateError::NotAMarker { .. }
        | ProducerStateError::CompressedControlBatch { .. } => ErrorCode::INVALID_RECORD,
        ProducerStateError::OffsetBelowEnd { .. } | ProducerStateError::InvalidOffsetDelta { .. } => {
            ErrorCode::CORRUPT_MESSAGE
        }
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

/// The code for a read that the log refused.
pub fn of_read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        ReadError::Offline { .. } | ReadError::Log { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

/// The code for a change that the log refused.
pub fn of_change(error: &ChangeError) -> ErrorCode {
    match error {
        ChangeError::OffsetOutOfRange { .. } => ErrorCode::OFFSET_OUT_OF_RANGE,
        ChangeError::Offline | ChangeError::Log { .. } | ChangeError::Replay { .. } => {
            ErrorCode::KAFKA_STORAGE_ERROR
        }
        _ => ErrorCode::UNKNOWN_SERVER_ERROR,
    }
}

/// The code for metadata that could not be read or changed.
pub fn of_metadata(error: &MetadataError) -> ErrorCode {
    match error {
        MetadataError::Store(_) | MetadataError::Damaged { .. } => ErrorCode::KAFKA_STORAGE_ERROR,
        // Somebody else changed it at the same time: asked again, clients come to another answer.
        MetadataError::Conflict => ErrorCode::NOT_CONTROLLER,
        MetadataError::NotFormatted
        | MetadataError::ForeignRangesFull
        | MetadataError::ProducerIdsExhausted => ErrorCode::UNKNOWN_SERVER_ERROR,
        MetadataError::ShutDown => ErrorCode::NOT_CONTROLLER,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_format::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, RecordError, Sequence};
    use weir_log::InvalidRecord;

    use super::*;
    use crate::metadata::ReadOnly;

    fn offset(at: i64) -> Offset {
        Offset::new(at).unwrap()
    }

    /// Every variant of every error family stands here with its code: one that is added without a
    /// line in the table above is answered with UNKNOWN_SERVER_ERROR, which none of these may be.
    #[test]
    fn every_error_has_the_code_that_clients_know() {
        let batch = |source| AppendError::Batch { position: 0, source };
        let producer_id = ProducerId::new(5).unwrap();
        let epoch = ProducerEpoch::new(1);
        let at = offset(3);
        let sequence = Sequence::new(4).unwrap();
        let state = |source| AppendError::ProducerState { source };
        let appends = [
            (batch(BatchError::Truncated { need: 9, have: 3 }), ErrorCode::CORRUPT_MESSAGE),
            (batch(BatchError::UnsupportedMagic { magic: 1 }), ErrorCode::INVALID_RECORD),
            (AppendError::NotOneBatch { found: 2 }, ErrorCode::INVALID_RECORD),
            (AppendError::InvalidRecord { reason: InvalidRecord::NoRecords }, ErrorCode::INVALID_RECORD),
            (
                AppendError::Records { source: RecordError::Compressed { codec: weir_format::Codec::Gzip } },
                ErrorCode::INVALID_RECORD,
            ),
            (AppendError::RecordTooLarge { size: 2, max: 1 }, ErrorCode::MESSAGE_TOO_LARGE),
            (AppendError::RecordBatchTooLarge { size: 2, max: 1 }, ErrorCode::RECORD_LIST_TOO_LARGE),
            (AppendError::TransactionNotOpen { producer_id }, ErrorCode::INVALID_PRODUCER_EPOCH),
            (
                AppendError::InvalidTimestamp {
                    index: 0,
                    timestamp: weir_format::TimestampMs::new(9),
                    earliest: weir_format::TimestampMs::new(0),
                    latest: weir_format::TimestampMs::new(1),
                },
                ErrorCode::INVALID_TIMESTAMP,
            ),
            (AppendError::LogAppendTimeFromClient, ErrorCode::INVALID_TIMESTAMP),
            (
                AppendError::InvalidRecord { reason: InvalidRecord::NoKey { index: 0 } },
                ErrorCode::INVALID_RECORD,
            ),
            (
                state(ProducerStateError::NotVerified { producer_id, offset: at }),
                ErrorCode::INVALID_PRODUCER_EPOCH,
            ),
            (
                state(ProducerStateError::InvalidProducerEpoch {
                    producer_id,
                    offset: at,
                    epoch,
                    current_epoch: epoch,
                }),
                ErrorCode::INVALID_PRODUCER_EPOCH,
            ),
            (
                state(ProducerStateError::OutOfOrderSequence {
                    producer_id,
                    offset: at,
                    sequence,
                    expected: sequence,
                }),
                ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
            ),
            (
                state(ProducerStateError::InvalidTxnState {
                    producer_id,
                    offset: at,
                    transaction_first_offset: at,
                }),
                ErrorCode::INVALID_TXN_STATE,
            ),
            (
                state(ProducerStateError::TransactionCoordinatorFenced {
                    producer_id,
                    offset: at,
                    coordinator_epoch: None,
                    current_epoch: None,
                }),
                ErrorCode::TRANSACTION_COORDINATOR_FENCED,
            ),
            (
                state(ProducerStateError::InvalidProducerId { offset: at, producer_id: -7 }),
                ErrorCode::INVALID_RECORD,
            ),
            (
                state(ProducerStateError::MissingSequence { producer_id, offset: at }),
                ErrorCode::INVALID_RECORD,
            ),
            (state(ProducerStateError::ControlBatchFromClient { offset: at }), ErrorCode::INVALID_RECORD),
            (state(ProducerStateError::NotAMarker { producer_id, offset: at }), ErrorCode::INVALID_RECORD),
            (state(ProducerStateError::CompressedControlBatch { offset: at }), ErrorCode::INVALID_RECORD),
            (
                state(ProducerStateError::OffsetBelowEnd { base_offset: at, map_end_offset: at }),
                ErrorCode::CORRUPT_MESSAGE,
            ),
            (
                state(ProducerStateError::InvalidOffsetDelta { base_offset: at, last_offset_delta: -1 }),
                ErrorCode::CORRUPT_MESSAGE,
            ),
            (
                AppendError::UnexpectedOffset { first_offset: at, last_offset: at, log_end_offset: at },
                ErrorCode::CORRUPT_MESSAGE,
            ),
            (AppendError::OffsetsNotMonotonic { expected: at, found: at }, ErrorCode::CORRUPT_MESSAGE),
            (
                AppendError::LeaderEpochTooHigh {
                    epoch: LeaderEpoch::new(2).unwrap(),
                    max: LeaderEpoch::new(1).unwrap(),
                    offset: at,
                    position: 0,
                },
                ErrorCode::UNKNOWN_LEADER_EPOCH,
            ),
            (
                AppendError::LeaderEpochBelowNewest {
                    epoch: LeaderEpoch::new(1).unwrap(),
                    newest: LeaderEpoch::new(2).unwrap(),
                },
                ErrorCode::NOT_LEADER_OR_FOLLOWER,
            ),
            (AppendError::TooMuchUnsynced { unsynced: 2, max: 1 }, ErrorCode::REQUEST_TIMED_OUT),
            (AppendError::Offline, ErrorCode::KAFKA_STORAGE_ERROR),
        ];
        for (error, code) in appends {
            assert_eq!(of_append(&error), code, "{error}");
            assert_eq!(of_partition(&PartitionError::Append(error)), code);
        }
        let out_of_range = || ReadError::OffsetOutOfRange { asked: at, log_start_offset: at, end_offset: at };
        let read_only = ReadOnly { mirror: "dr".to_owned(), state: "MIRRORING".to_owned() };
        let partitions = [
            (PartitionError::Loading, ErrorCode::NOT_LEADER_OR_FOLLOWER),
            (PartitionError::ShutDown, ErrorCode::NOT_LEADER_OR_FOLLOWER),
            (PartitionError::Offline { reason: Arc::from("x") }, ErrorCode::KAFKA_STORAGE_ERROR),
            (PartitionError::ReadOnly { read_only }, ErrorCode::POLICY_VIOLATION),
            (PartitionError::NotMirrored, ErrorCode::INVALID_REQUEST),
            (PartitionError::Read(out_of_range()), ErrorCode::OFFSET_OUT_OF_RANGE),
            (PartitionError::Read(ReadError::Offline { asked: at }), ErrorCode::KAFKA_STORAGE_ERROR),
            (PartitionError::Change(ChangeError::Offline), ErrorCode::KAFKA_STORAGE_ERROR),
            (
                PartitionError::Change(ChangeError::OffsetOutOfRange { asked: at, first: at, last: at }),
                ErrorCode::OFFSET_OUT_OF_RANGE,
            ),
        ];
        for (error, code) in partitions {
            assert_eq!(of_partition(&error), code, "{error}");
        }
    }

    #[test]
    fn what_goes_away_by_itself_is_retriable_and_what_does_not_is_final() {
        let read_only = ReadOnly { mirror: "dr".to_owned(), state: "MIRRORING".to_owned() };
        assert!(of_partition(&PartitionError::Loading).is_retriable());
        assert!(!of_partition(&PartitionError::ReadOnly { read_only }).is_retriable());
        assert!(!of_append(&AppendError::RecordTooLarge { size: 2, max: 1 }).is_retriable());
    }

    #[test]
    fn metadata_that_changed_meanwhile_is_asked_again() {
        for error in [MetadataError::Conflict, MetadataError::ShutDown] {
            assert_eq!(of_metadata(&error), ErrorCode::NOT_CONTROLLER, "{error}");
            assert!(of_metadata(&error).is_retriable());
        }
    }
}
