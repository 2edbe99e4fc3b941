//! Kafka's rules for producers as a table; each row names where its rule comes from.

use weir_format::{
    BatchBuilder, ControlRecordType, Offset, ProducerEpoch, RecordBatch, Sequence, TimestampMs,
};
use weir_psm::{AppendOrigin, CompletedTransaction, DuplicateBatch, ProducerStateError, TransactionVersion};

use crate::support::{
    Data, Gate, Marker, Outcome, abort, barrier, commit, control, data, offset, pid, seal, set_base,
};

#[derive(Clone, Debug)]
enum Step {
    Client(Data),
    /// A data batch of a coordinator, such as a transactional offset commit.
    Coordinated(Data),
    Mirrored(Data),
    Marker(Marker),
    MarkerV2(Marker),
    MirroredMarker(Marker),
    Barrier,
    Bytes(AppendOrigin, Vec<u8>),
}

use Step::{Barrier, Bytes, Client, Coordinated, MarkerV2, Mirrored, MirroredMarker};

impl Step {
    fn run(&self, gate: &mut Gate) -> Outcome {
        match self {
            Client(data) => gate.append(&data.bytes(), AppendOrigin::Client),
            Coordinated(data) => gate.append(&data.bytes(), AppendOrigin::Coordinator),
            Mirrored(data) => gate.append(&data.bytes(), AppendOrigin::Replication),
            Self::Marker(marker) => gate.append_marker(*marker, TransactionVersion::Legacy),
            MarkerV2(marker) => gate.append_marker(*marker, TransactionVersion::V2),
            MirroredMarker(marker) => gate.append(&marker.bytes(), AppendOrigin::Replication),
            Barrier => gate.append(&barrier(), AppendOrigin::Coordinator),
            Bytes(origin, bytes) => gate.append(bytes, *origin),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Want {
    Taken,
    /// Taken, and (epoch, last sequence, last offset) of the producer afterwards.
    State(i16, i32, i64),
    /// Taken, although a client would have been refused.
    Tolerated(&'static str),
    /// Answered with the first copy's first and last offset.
    Duplicate(i64, i64),
    Refused(&'static str),
}

use Want::{Duplicate, Refused, State, Taken, Tolerated};

/// The error's Kafka name.
fn name(error: &ProducerStateError) -> &'static str {
    match error {
        ProducerStateError::InvalidProducerEpoch { .. } => "INVALID_PRODUCER_EPOCH",
        ProducerStateError::OutOfOrderSequence { .. } => "OUT_OF_ORDER_SEQUENCE_NUMBER",
        ProducerStateError::InvalidTxnState { .. } => "INVALID_TXN_STATE",
        ProducerStateError::TransactionCoordinatorFenced { .. } => "TRANSACTION_COORDINATOR_FENCED",
        ProducerStateError::InvalidProducerId { .. } => "negative producer id",
        ProducerStateError::MissingSequence { .. } => "no sequence",
        ProducerStateError::ControlBatchFromClient { .. } => "control batch from a client",
        ProducerStateError::NotAMarker { .. } => "not a marker",
        ProducerStateError::CompressedControlBatch { .. } => "compressed control batch",
        ProducerStateError::OffsetBelowEnd { .. } => "offset below end",
        _ => "another",
    }
}

const MAX: i32 = i32::MAX;

fn repeat(step: impl Fn(i32) -> Step, times: i32) -> Vec<Step> {
    (0..times).map(step).collect()
}

fn table() -> Vec<(&'static str, &'static str, Vec<Step>, Step, Want)> {
    let sequence = "ProducerAppendInfo.checkSequence";
    let epoch = "ProducerAppendInfo.checkProducerEpoch";
    let duplicate = "ProducerStateEntry.findDuplicateBatch";
    let transaction = "ProducerAppendInfo.appendDataBatch";
    let marker = "ProducerAppendInfo.appendEndTxnMarker";
    let coordinator = "ProducerAppendInfo.checkCoordinatorEpoch";
    let tv2 = "KIP-890, ProducerAppendInfo.checkProducerEpoch";
    let validator = "LogValidator.validateBatch";
    let barrier_rule = "KIP-1279";
    vec![
        // Sequences.
        (
            "an unknown producer starts anywhere (PID-7)",
            sequence,
            vec![],
            Client(data(7, 0, 55, 1)),
            State(0, 55, 0),
        ),
        (
            "an unknown producer starts in any epoch",
            sequence,
            vec![],
            Client(data(7, 9, 3, 1)),
            State(9, 3, 0),
        ),
        (
            "the next sequence is taken",
            sequence,
            vec![Client(data(5, 0, 0, 3))],
            Client(data(5, 0, 3, 2)),
            State(0, 4, 4),
        ),
        (
            "a gap is refused",
            sequence,
            vec![Client(data(5, 0, 0, 3))],
            Client(data(5, 0, 4, 1)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "a step back is refused",
            sequence,
            vec![Client(data(5, 0, 10, 3))],
            Client(data(5, 0, 9, 1)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "starting again at 0 in the same epoch is refused",
            sequence,
            vec![Client(data(5, 0, 10, 3))],
            Client(data(5, 0, 0, 1)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "after the largest sequence comes 0 (PID-12)",
            sequence,
            vec![Client(data(9, 0, MAX - 1, 2))],
            Client(data(9, 0, 0, 3)),
            State(0, 2, 4),
        ),
        (
            "after the largest sequence does not come 1",
            sequence,
            vec![Client(data(9, 0, MAX - 1, 2))],
            Client(data(9, 0, 1, 3)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "a batch may span the wrap (PID-12)",
            sequence,
            vec![],
            Client(data(9, 0, MAX - 2, 5)),
            State(0, 1, 4),
        ),
        (
            "behind a batch that spans the wrap",
            sequence,
            vec![Client(data(9, 0, MAX - 2, 5))],
            Client(data(9, 0, 2, 1)),
            State(0, 2, 5),
        ),
        (
            "a new epoch starts at 0",
            sequence,
            vec![Client(data(5, 0, 7, 1))],
            Client(data(5, 1, 0, 2)),
            State(1, 1, 2),
        ),
        (
            "a new epoch does not start elsewhere",
            sequence,
            vec![Client(data(5, 0, 7, 1))],
            Client(data(5, 1, 8, 1)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "epochs may skip",
            sequence,
            vec![Client(data(5, 0, 7, 1))],
            Client(data(5, 32_767, 0, 1)),
            State(32_767, 0, 1),
        ),
        (
            "the state of another producer does not matter",
            sequence,
            vec![Client(data(5, 3, 7, 1))],
            Client(data(6, 0, 40, 1)),
            State(0, 40, 1),
        ),
        (
            "without an epoch any sequence is taken",
            sequence,
            vec![Client(data(5, -1, 7, 1))],
            Client(data(5, -1, 3, 1)),
            State(-1, 3, 1),
        ),
        (
            "from no epoch to one, any sequence is taken",
            sequence,
            vec![Client(data(5, -1, 7, 1))],
            Client(data(5, 0, 3, 1)),
            State(0, 3, 1),
        ),
        (
            "a client with an id has a sequence",
            validator,
            vec![],
            Client(data(5, 0, -1, 1)),
            Refused("no sequence"),
        ),
        (
            "a coordinator's records have none",
            sequence,
            vec![],
            Coordinated(data(5, 0, -1, 2).transactional()),
            State(0, -1, 1),
        ),
        (
            "after records without a sequence comes 0",
            sequence,
            vec![Coordinated(data(5, 0, -1, 2))],
            Client(data(5, 0, 0, 1)),
            State(0, 0, 2),
        ),
        (
            "a coordinator's sequence is not checked",
            sequence,
            vec![Client(data(5, 0, 0, 1))],
            Coordinated(data(5, 0, 40, 1)),
            State(0, 40, 1),
        ),
        // Epochs.
        (
            "an older epoch is refused",
            epoch,
            vec![Client(data(5, 2, 0, 1))],
            Client(data(5, 1, 0, 1)),
            Refused("INVALID_PRODUCER_EPOCH"),
        ),
        (
            "no epoch is older than any",
            epoch,
            vec![Client(data(5, 0, 0, 1))],
            Client(data(5, -1, 1, 1)),
            Refused("INVALID_PRODUCER_EPOCH"),
        ),
        (
            "an older epoch is refused from a coordinator too",
            epoch,
            vec![Client(data(5, 2, 0, 1))],
            Coordinated(data(5, 1, -1, 1)),
            Refused("INVALID_PRODUCER_EPOCH"),
        ),
        (
            "a marker's epoch counts",
            epoch,
            vec![Client(data(5, 2, 0, 1)), Step::Marker(abort(5, 3, 0))],
            Client(data(5, 2, 1, 1)),
            Refused("INVALID_PRODUCER_EPOCH"),
        ),
        // Duplicates.
        (
            "the same batch again is a duplicate",
            duplicate,
            vec![Client(data(5, 0, 0, 3))],
            Client(data(5, 0, 0, 3)),
            Duplicate(0, 2),
        ),
        (
            "an older retained batch is a duplicate",
            duplicate,
            repeat(|i| Client(data(5, 0, 2 * i, 2)), 5),
            Client(data(5, 0, 0, 2)),
            Duplicate(0, 1),
        ),
        (
            "the sixth batch drops the first",
            duplicate,
            repeat(|i| Client(data(5, 0, 2 * i, 2)), 6),
            Client(data(5, 0, 0, 2)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "and not the second",
            duplicate,
            repeat(|i| Client(data(5, 0, 2 * i, 2)), 6),
            Client(data(5, 0, 2, 2)),
            Duplicate(2, 3),
        ),
        (
            "a part of a batch is no duplicate",
            duplicate,
            vec![Client(data(5, 0, 0, 3))],
            Client(data(5, 0, 0, 2)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "two batches in one are no duplicate",
            duplicate,
            vec![Client(data(5, 0, 0, 1)), Client(data(5, 0, 1, 1))],
            Client(data(5, 0, 0, 2)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "the same sequences in a new epoch are new",
            duplicate,
            vec![Client(data(5, 0, 0, 3))],
            Client(data(5, 1, 0, 3)),
            State(1, 2, 5),
        ),
        (
            "the same sequences in an old epoch are fenced",
            duplicate,
            vec![Client(data(5, 0, 0, 3)), Client(data(5, 1, 0, 1))],
            Client(data(5, 0, 0, 3)),
            Refused("INVALID_PRODUCER_EPOCH"),
        ),
        (
            "a batch that spans the wrap is recognised",
            duplicate,
            vec![Client(data(9, 0, MAX - 2, 5))],
            Client(data(9, 0, MAX - 2, 5)),
            Duplicate(0, 4),
        ),
        (
            "a mirrored batch is recognised (PID-1 without a barrier)",
            duplicate,
            vec![Mirrored(data(1, 0, 0, 10))],
            Client(data(1, 0, 0, 10)),
            Duplicate(0, 9),
        ),
        (
            "and a shorter one is out of order (PID-1b without a barrier)",
            duplicate,
            vec![Mirrored(data(1, 0, 0, 10))],
            Client(data(1, 0, 0, 4)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "a coordinator's records are never duplicates",
            duplicate,
            vec![Coordinated(data(5, 0, -1, 1))],
            Coordinated(data(5, 0, -1, 1)),
            State(0, -1, 1),
        ),
        (
            "replication takes the same batch again",
            duplicate,
            vec![Mirrored(data(5, 0, 0, 3))],
            Mirrored(data(5, 0, 0, 3)),
            State(0, 2, 5),
        ),
        // Replication and replay take everything.
        (
            "sequences may go backwards",
            sequence,
            vec![Mirrored(data(5, 0, 50, 1))],
            Mirrored(data(5, 0, 10, 1)),
            State(0, 10, 1),
        ),
        (
            "epochs may go backwards (N-PID-5)",
            epoch,
            vec![Mirrored(data(5, 3, 0, 1))],
            Mirrored(data(5, 2, 0, 1)),
            Tolerated("INVALID_PRODUCER_EPOCH"),
        ),
        (
            "a batch outside of its producer's transaction is taken",
            transaction,
            vec![Mirrored(data(5, 0, 0, 1).transactional())],
            Mirrored(data(5, 0, 1, 1)),
            Tolerated("INVALID_TXN_STATE"),
        ),
        (
            "coordinator epochs may go backwards (N-PID-5)",
            coordinator,
            vec![MirroredMarker(abort(5, 3, 9))],
            MirroredMarker(commit(5, 3, 4)),
            Tolerated("TRANSACTION_COORDINATOR_FENCED"),
        ),
        (
            "an empty batch counts (GAP-3)",
            transaction,
            vec![],
            Mirrored(data(7, 0, 20, 10).emptied()),
            State(0, 29, 9),
        ),
        (
            "an empty batch in a transaction opens it",
            transaction,
            vec![Mirrored(data(7, 0, 0, 1).transactional().emptied())],
            Client(data(7, 0, 1, 1)),
            Refused("INVALID_TXN_STATE"),
        ),
        // Negative producer ids.
        (
            "-1 is no producer",
            "RecordBatch.hasProducerId",
            vec![Client(data(-1, -1, -1, 1))],
            Client(data(-1, -1, -1, 1)),
            Taken,
        ),
        (
            "a client without an id may be transactional",
            validator,
            vec![],
            Client(data(-1, -1, -1, 1).transactional()),
            Taken,
        ),
        (
            "a client may not have a negative id (PID-6)",
            "weir",
            vec![],
            Client(data(-7, 0, 0, 1)),
            Refused("negative producer id"),
        ),
        (
            "nor may a coordinator",
            "weir",
            vec![],
            Coordinated(data(-2, 0, 0, 1)),
            Refused("negative producer id"),
        ),
        (
            "mirrored, it is no producer (PID-6)",
            "RecordBatch.hasProducerId",
            vec![],
            Mirrored(data(-7, 0, 0, 1).transactional()),
            Tolerated("negative producer id"),
        ),
        // Transactions.
        (
            "a transaction goes on",
            transaction,
            vec![Client(data(5, 0, 0, 1).transactional())],
            Client(data(5, 0, 1, 1).transactional()),
            State(0, 1, 1),
        ),
        (
            "outside of it nothing is taken",
            transaction,
            vec![Client(data(5, 0, 0, 1).transactional())],
            Client(data(5, 0, 1, 1)),
            Refused("INVALID_TXN_STATE"),
        ),
        (
            "nor from a coordinator",
            transaction,
            vec![Coordinated(data(5, 0, -1, 1).transactional())],
            Coordinated(data(5, 0, -1, 1)),
            Refused("INVALID_TXN_STATE"),
        ),
        (
            "also in a new epoch",
            transaction,
            vec![Client(data(5, 0, 0, 1).transactional())],
            Client(data(5, 1, 0, 1)),
            Refused("INVALID_TXN_STATE"),
        ),
        (
            "other producers are free",
            transaction,
            vec![Client(data(5, 0, 0, 1).transactional())],
            Client(data(6, 0, 0, 1)),
            State(0, 0, 1),
        ),
        (
            "behind its marker all is",
            transaction,
            vec![Client(data(5, 0, 0, 1).transactional()), Step::Marker(commit(5, 0, 0))],
            Client(data(5, 0, 1, 1)),
            State(0, 1, 2),
        ),
        // Markers of versions 0 and 1.
        (
            "a marker leaves epoch and batches",
            marker,
            vec![Client(data(5, 0, 0, 3).transactional())],
            Step::Marker(commit(5, 0, 0)),
            State(0, 2, 2),
        ),
        (
            "the producer goes on behind it",
            marker,
            vec![Client(data(5, 0, 0, 3).transactional()), Step::Marker(commit(5, 0, 0))],
            Client(data(5, 0, 3, 1).transactional()),
            State(0, 3, 4),
        ),
        (
            "a duplicate is known behind it",
            marker,
            vec![Client(data(5, 0, 0, 3).transactional()), Step::Marker(commit(5, 0, 0))],
            Client(data(5, 0, 0, 3).transactional()),
            Duplicate(0, 2),
        ),
        (
            "an older epoch is fenced",
            epoch,
            vec![Client(data(5, 3, 0, 1).transactional())],
            Step::Marker(commit(5, 2, 0)),
            Refused("INVALID_PRODUCER_EPOCH"),
        ),
        (
            "a newer one drops the batches",
            "ProducerStateEntry.maybeUpdateProducerEpoch",
            vec![Client(data(5, 3, 0, 1).transactional())],
            Step::Marker(abort(5, 4, 0)),
            State(4, -1, -1),
        ),
        (
            "a marker of an unknown producer makes an entry",
            marker,
            vec![],
            Step::Marker(abort(5, 4, 0)),
            State(4, -1, -1),
        ),
        (
            "whose next sequence is 0",
            sequence,
            vec![Step::Marker(abort(5, 4, 0))],
            Client(data(5, 4, 1, 1)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "or a new epoch's 0",
            sequence,
            vec![Step::Marker(abort(5, 4, 0))],
            Client(data(5, 5, 0, 1)),
            State(5, 0, 1),
        ),
        (
            "a marker twice is no error",
            marker,
            vec![Client(data(5, 0, 0, 1).transactional()), Step::Marker(commit(5, 0, 0))],
            Step::Marker(commit(5, 0, 0)),
            State(0, 0, 0),
        ),
        // Coordinator epochs.
        (
            "an older coordinator is fenced",
            coordinator,
            vec![Step::Marker(commit(5, 0, 7))],
            Step::Marker(commit(5, 0, 6)),
            Refused("TRANSACTION_COORDINATOR_FENCED"),
        ),
        (
            "also for another epoch",
            coordinator,
            vec![Step::Marker(commit(5, 0, 7))],
            Step::Marker(commit(5, 1, 6)),
            Refused("TRANSACTION_COORDINATOR_FENCED"),
        ),
        (
            "the same one goes on",
            coordinator,
            vec![Step::Marker(commit(5, 0, 7))],
            Step::Marker(commit(5, 0, 7)),
            State(0, -1, -1),
        ),
        (
            "a newer one takes over",
            coordinator,
            vec![Step::Marker(commit(5, 0, 7))],
            Step::Marker(commit(5, 0, 8)),
            State(0, -1, -1),
        ),
        (
            "no coordinator is older than any",
            coordinator,
            vec![Step::Marker(commit(5, 0, 7))],
            Step::Marker(abort(5, 0, -1)),
            Refused("TRANSACTION_COORDINATOR_FENCED"),
        ),
        (
            "a stop's ABORT without a coordinator is taken",
            barrier_rule,
            vec![Mirrored(data(5, 0, 0, 1).transactional())],
            Step::Marker(abort(5, 0, -1)),
            State(0, 0, 0),
        ),
        (
            "a stop's ABORT with the stored one is taken",
            barrier_rule,
            vec![MirroredMarker(commit(5, 0, 7)), Mirrored(data(5, 0, 0, 1).transactional())],
            Step::Marker(abort(5, 0, 7)),
            State(0, 0, 1),
        ),
        (
            "a stop's ABORT keeps the epoch of a version 2 producer",
            barrier_rule,
            vec![MirroredMarker(commit(5, 8, 0)), Mirrored(data(5, 8, 0, 1).transactional())],
            Step::Marker(abort(5, 8, 0)),
            State(8, 0, 1),
        ),
        (
            "a stop's ABORT of a producer without an epoch",
            barrier_rule,
            vec![Mirrored(data(5, -1, 0, 1).transactional())],
            Step::Marker(abort(5, -1, -1)),
            State(-1, 0, 0),
        ),
        // Markers of version 2.
        (
            "the next epoch is right",
            tv2,
            vec![Client(data(5, 0, 0, 1).transactional())],
            MarkerV2(commit(5, 1, 0)),
            State(1, -1, -1),
        ),
        (
            "the same epoch is fenced while the transaction is open",
            tv2,
            vec![Client(data(5, 1, 0, 1).transactional())],
            MarkerV2(commit(5, 1, 0)),
            Refused("INVALID_PRODUCER_EPOCH"),
        ),
        (
            "an older epoch is fenced by version 2",
            tv2,
            vec![Client(data(5, 1, 0, 1).transactional())],
            MarkerV2(commit(5, 0, 0)),
            Refused("INVALID_PRODUCER_EPOCH"),
        ),
        (
            "a marker written again is taken",
            "KAFKA-19999",
            vec![Client(data(5, 0, 0, 1).transactional()), MarkerV2(commit(5, 1, 0))],
            MarkerV2(commit(5, 1, 0)),
            State(1, -1, -1),
        ),
        (
            "a late marker does not end the next transaction",
            tv2,
            vec![
                Client(data(5, 0, 0, 1).transactional()),
                MarkerV2(commit(5, 1, 0)),
                Client(data(5, 1, 0, 1).transactional()),
            ],
            MarkerV2(commit(5, 1, 0)),
            Refused("INVALID_PRODUCER_EPOCH"),
        ),
        (
            "behind the marker comes sequence 0",
            tv2,
            vec![Client(data(5, 0, 0, 1).transactional()), MarkerV2(commit(5, 1, 0))],
            Client(data(5, 1, 0, 1).transactional()),
            State(1, 0, 2),
        ),
        (
            "and no other",
            tv2,
            vec![Client(data(5, 0, 0, 1).transactional()), MarkerV2(commit(5, 1, 0))],
            Client(data(5, 1, 1, 1).transactional()),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        // Other control batches.
        (
            "a client may not end a transaction",
            validator,
            vec![Client(data(5, 0, 0, 1).transactional())],
            Bytes(AppendOrigin::Client, commit(5, 0, 0).bytes()),
            Refused("control batch from a client"),
        ),
        (
            "a client may not write a barrier",
            validator,
            vec![],
            Bytes(AppendOrigin::Client, barrier()),
            Refused("control batch from a client"),
        ),
        (
            "an unknown type changes no transaction",
            "weir (Kafka cannot load it)",
            vec![Mirrored(data(5, 0, 0, 1).transactional())],
            Bytes(AppendOrigin::Replication, control(5, 9, ControlRecordType::Unknown(99), &[0; 6], 5)),
            Tolerated("not a marker"),
        ),
        (
            "a short value changes no transaction",
            "weir (Kafka cannot load it)",
            vec![Mirrored(data(5, 0, 0, 1).transactional())],
            Bytes(AppendOrigin::Replication, control(5, 9, ControlRecordType::Commit, &[0, 0, 0], 5)),
            Tolerated("not a marker"),
        ),
        (
            "a coordinator writes no unknown type",
            marker,
            vec![],
            Bytes(AppendOrigin::Coordinator, control(5, 0, ControlRecordType::Unknown(99), &[], 5)),
            Refused("not a marker"),
        ),
        (
            "nor a short value",
            "EndTransactionMarker.deserializeValue",
            vec![],
            Bytes(AppendOrigin::Coordinator, control(5, 0, ControlRecordType::Abort, &[0, 0], 5)),
            Refused("not a marker"),
        ),
        (
            "without an id an unknown type is nothing",
            "RecordBatch.hasProducerId",
            vec![],
            Bytes(AppendOrigin::Replication, control(-1, -1, ControlRecordType::LeaderChange, &[], 5)),
            Taken,
        ),
        (
            "a compressed control batch is none",
            barrier_rule,
            vec![],
            Bytes(AppendOrigin::Replication, compressed(commit(5, 0, 0).bytes())),
            Refused("compressed control batch"),
        ),
        (
            "a compressed barrier is none",
            barrier_rule,
            vec![],
            Bytes(AppendOrigin::Coordinator, compressed(barrier())),
            Refused("compressed control batch"),
        ),
        (
            "an emptied control batch is nothing",
            marker,
            vec![Mirrored(data(5, 0, 0, 1).transactional())],
            Bytes(AppendOrigin::Replication, emptied_control(5)),
            Taken,
        ),
        // Behind a barrier.
        (
            "the colliding batch is taken (PID-1)",
            barrier_rule,
            vec![Mirrored(data(1, 0, 0, 10)), Barrier],
            Client(data(1, 0, 0, 10)),
            State(0, 9, 20),
        ),
        (
            "also a shorter one (PID-1b)",
            barrier_rule,
            vec![Mirrored(data(1, 0, 0, 10)), Barrier],
            Client(data(1, 0, 0, 4)),
            State(0, 3, 14),
        ),
        (
            "also in an older epoch",
            barrier_rule,
            vec![Mirrored(data(1, 6, 0, 10)), Barrier],
            Client(data(1, 0, 0, 4)),
            State(0, 3, 14),
        ),
        (
            "a surviving producer goes on where it was (N-PID-9)",
            barrier_rule,
            vec![Mirrored(data(5, 0, 990, 10)), Barrier],
            Client(data(5, 0, 1_000, 5)),
            State(0, 1_004, 15),
        ),
        (
            "and in order from there",
            barrier_rule,
            vec![Mirrored(data(5, 0, 990, 10)), Barrier, Client(data(5, 0, 1_000, 5))],
            Client(data(5, 0, 1_006, 5)),
            Refused("OUT_OF_ORDER_SEQUENCE_NUMBER"),
        ),
        (
            "no transaction is left to be outside of",
            barrier_rule,
            vec![Mirrored(data(5, 0, 0, 1).transactional()), Barrier],
            Client(data(5, 0, 0, 1)),
            State(0, 0, 2),
        ),
        (
            "a later marker only sets the epochs",
            barrier_rule,
            vec![Mirrored(data(5, 0, 0, 1).transactional()), Barrier],
            MirroredMarker(commit(5, 0, 4)),
            State(0, -1, -1),
        ),
    ]
}

fn compressed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[22] |= 1;
    seal(&mut bytes);
    bytes
}

fn emptied_control(id: i64) -> Vec<u8> {
    let mut bytes = BatchBuilder::new().control().transactional().build().expect("a batch").to_vec();
    crate::support::set_producer(&mut bytes, id, 0, -1);
    bytes
}

/// The raw producer id that a step's batch carries.
fn producer_of(step: &Step) -> i64 {
    match step {
        Client(data) | Coordinated(data) | Mirrored(data) => data.pid,
        Step::Marker(marker) | MarkerV2(marker) | MirroredMarker(marker) => marker.pid,
        Barrier => -1,
        Bytes(_, bytes) => i64::from_be_bytes(bytes[43..51].try_into().expect("eight bytes")),
    }
}

fn check_case(proves: &str, source: &str, history: &[Step], step: &Step, want: Want) {
    let what = format!("{proves} ({source})");
    let mut gate = Gate::new();
    for step in history {
        assert!(matches!(step.run(&mut gate), Outcome::Appended(_)), "{what}: {step:?}");
    }
    let before = format!("{:?}", gate.psm);
    let end = gate.end();
    let outcome = step.run(&mut gate);
    match (&outcome, want) {
        (Outcome::Appended(applied), Taken) => assert_eq!(applied.tolerated, [], "{what}"),
        (Outcome::Appended(applied), State(epoch, last_sequence, last_offset)) => {
            assert_eq!(applied.tolerated, [], "{what}");
            let state = gate.producer(producer_of(step));
            assert_eq!(state, Some((epoch, last_sequence, last_offset)), "{what}");
        }
        (Outcome::Appended(applied), Tolerated(kind)) => {
            assert_eq!(applied.tolerated.iter().map(name).collect::<Vec<_>>(), [kind], "{what}");
        }
        (Outcome::Duplicate(duplicate), Duplicate(first, last)) => {
            assert_eq!((duplicate.base_offset.get(), duplicate.last_offset.get()), (first, last), "{what}");
        }
        (Outcome::Refused(error), Refused(kind)) => assert_eq!(name(error), kind, "{what}: {error}"),
        _ => panic!("{what}: wanted {want:?}, got {outcome:?}"),
    }
    if matches!(outcome, Outcome::Appended(_)) {
        assert!(gate.end() > end, "{what}: the end moved");
    } else {
        assert_eq!(format!("{:?}", gate.psm), before, "{what}: refused leaves no trace");
    }
}

#[test]
fn the_rules_of_kafka_hold() {
    for (proves, source, history, step, want) in table() {
        check_case(proves, source, &history, &step, want);
    }
}

#[test]
fn every_row_of_the_table_proves_something_else() {
    let mut names: Vec<_> = table().iter().map(|row| row.0).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn errors_carry_the_facts_and_read_like_a_sentence() {
    let mut gate = Gate::new();
    gate.mirrored(data(5, 2, 10, 3).transactional());
    gate.append_marker(abort(6, 0, 7), TransactionVersion::Legacy).applied();
    let (epoch, sequence) = (ProducerEpoch::new, |raw| Sequence::new(raw).expect("not negative"));
    let (id, other, at) = (pid(5), pid(6), offset(4));
    let rows = [
        (
            Client(data(5, 1, 0, 1)),
            ProducerStateError::InvalidProducerEpoch {
                producer_id: id,
                offset: at,
                epoch: epoch(1),
                current_epoch: epoch(2),
            },
            "epoch of producer 5 at offset 4 is 1, the last seen is 2",
        ),
        (
            Client(data(5, 2, 14, 1).transactional()),
            ProducerStateError::OutOfOrderSequence {
                producer_id: id,
                offset: at,
                sequence: sequence(14),
                expected: sequence(13),
            },
            "first sequence of producer 5 at offset 4 is 14, expected 13",
        ),
        (
            Client(data(5, 2, 13, 1)),
            ProducerStateError::InvalidTxnState {
                producer_id: id,
                offset: at,
                transaction_first_offset: offset(0),
            },
            "expected transactional write from producer 5 at offset 4: its transaction from offset 0 is open",
        ),
        (
            Step::Marker(abort(6, 0, -1)),
            ProducerStateError::TransactionCoordinatorFenced {
                producer_id: other,
                offset: at,
                coordinator_epoch: None,
                current_epoch: Some(7),
            },
            "coordinator epoch for producer 6 at offset 4 is none, the last seen is 7",
        ),
        (
            Client(data(-7, 0, 0, 1)),
            ProducerStateError::InvalidProducerId { offset: at, producer_id: -7 },
            "producer id -7 at offset 4 is negative",
        ),
    ];
    for (step, error, text) in rows {
        assert_eq!(error.to_string(), text);
        assert_eq!(step.run(&mut gate), Outcome::Refused(error));
    }
}

#[test]
fn a_duplicate_is_answered_with_the_originals_offsets_and_time() {
    let mut gate = Gate::new();
    gate.client(data(-1, -1, -1, 40)).applied();
    gate.client(data(5, 0, 0, 3).at(77)).applied();
    gate.client(data(5, 0, 3, 3).at(78)).applied();
    let first =
        DuplicateBatch { base_offset: offset(40), last_offset: offset(42), timestamp: TimestampMs::new(77) };
    assert_eq!(gate.client(data(5, 0, 0, 3).at(99)), Outcome::Duplicate(first));
    // The window of a snapshot is one batch.
    let snapshot = gate.psm.snapshot();
    gate.psm.load_snapshot(&snapshot, offset(46)).expect("we wrote it");
    let Outcome::Refused(error) = gate.client(data(5, 0, 0, 3)) else { panic!("it is forgotten") };
    assert_eq!(name(&error), "OUT_OF_ORDER_SEQUENCE_NUMBER");
    let second =
        DuplicateBatch { base_offset: offset(43), last_offset: offset(45), timestamp: TimestampMs::new(78) };
    assert_eq!(gate.client(data(5, 0, 3, 3)), Outcome::Duplicate(second));
}

/// LSO-6: a transaction holds the last stable offset until its marker is below the high watermark.
#[test]
fn the_last_stable_offset_waits_for_the_marker_to_be_replicated() {
    let mut gate = Gate::new();
    gate.client(data(5, 0, 0, 5).transactional()).applied();
    gate.append_marker(commit(5, 0, 0), TransactionVersion::Legacy).applied();
    gate.psm.on_high_watermark(offset(5));
    assert_eq!(gate.psm.last_stable_offset(offset(5)), offset(0));
    gate.psm.on_high_watermark(offset(6));
    assert_eq!(gate.psm.last_stable_offset(offset(6)), offset(6));
}

/// LSO-3: a late batch opens a transaction that nobody owns; a stop has to see it.
#[test]
fn a_late_batch_opens_a_transaction_that_can_be_seen() {
    let mut gate = Gate::new();
    gate.mirrored(data(5, 0, 0, 1).transactional());
    gate.mirrored_marker(commit(5, 0, 3));
    gate.mirrored(data(5, 0, 1, 1).transactional().at(4_711));
    gate.psm.on_high_watermark(offset(3));
    assert_eq!(gate.psm.last_stable_offset(offset(3)), offset(2));
    let open: Vec<_> = gate.psm.open_transactions().collect();
    assert_eq!(open.len(), 1);
    assert_eq!((open[0].producer_id, open[0].first_offset), (pid(5), offset(2)));
    assert_eq!((open[0].producer_epoch, open[0].coordinator_epoch), (ProducerEpoch::new(0), Some(3)));
    assert_eq!(open[0].last_timestamp, TimestampMs::new(4_711));
    assert_eq!(gate.psm.open_transaction(pid(5)), Some(open[0]));
    assert_eq!(gate.psm.open_transaction(pid(6)), None);
}

/// Kafka: `ProducerStateManager.lastStableOffset(CompletedTxn)`.
#[test]
fn a_completed_transaction_names_the_earliest_that_is_still_open() {
    let mut gate = Gate::new();
    gate.mirrored(data(1, 0, 0, 2).transactional());
    gate.mirrored(data(2, 0, 0, 2).transactional());
    gate.mirrored(data(3, 0, 0, 2).transactional());
    let completed = |id, first, last, aborted, stable| {
        Some(CompletedTransaction {
            producer_id: pid(id),
            first_offset: offset(first),
            last_offset: offset(last),
            aborted,
            last_stable_offset: offset(stable),
        })
    };
    assert_eq!(gate.mirrored_marker(abort(2, 0, 0)).completed, completed(2, 2, 6, true, 0));
    assert_eq!(gate.mirrored_marker(commit(1, 0, 0)).completed, completed(1, 0, 7, false, 4));
    assert_eq!(gate.mirrored_marker(abort(3, 0, 0)).completed, completed(3, 4, 8, true, 9));
    assert_eq!(gate.mirrored_marker(abort(3, 0, 0)).completed, None, "nothing is left to complete");
}

/// N-PID-1: what opens a transaction can be seen, and refused, before it is done.
#[test]
fn the_caller_sees_what_would_open_a_transaction() {
    let mut gate = Gate::new();
    let check = |gate: &Gate, data: Data| {
        let bytes = data.bytes();
        let batch = RecordBatch::parse(&bytes).expect("a batch");
        match gate.psm.check(&batch, gate.psm.map_end_offset(), AppendOrigin::Client) {
            Ok(weir_psm::Checked::Append(transition)) => transition.starts_transaction(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(check(&gate, data(5, 0, 0, 1)), None);
    assert_eq!(check(&gate, data(5, 0, 0, 1).transactional()), Some(pid(5)));
    gate.client(data(5, 0, 0, 1).transactional()).applied();
    assert_eq!(check(&gate, data(5, 0, 1, 1).transactional()), None, "it is open already");
    // Behind the stop nothing is open, whatever the client believes.
    gate.append_marker(abort(5, 0, -1), TransactionVersion::Legacy).applied();
    gate.barrier();
    assert_eq!(check(&gate, data(5, 0, 1, 1).transactional()), Some(pid(5)));
}

/// PID-15: expiry by the wall clock against the producer's last timestamp, never of an open transaction.
#[test]
fn idle_producers_expire_by_the_wall_clock() {
    const DAY: i64 = 24 * 60 * 60 * 1_000;
    let mut gate = Gate::new();
    gate.client(data(1, 0, 0, 1).at(1_000)).applied();
    gate.client(data(2, 0, 0, 1).at(1_001)).applied();
    gate.client(data(3, 0, 0, 1).at(0).transactional()).applied();
    gate.client(data(4, 0, 0, 1).at(0)).applied();
    gate.append_marker(Marker { timestamp: 1_002, ..commit(4, 0, 0) }, TransactionVersion::Legacy).applied();
    gate.psm.on_high_watermark(offset(gate.end()));
    let known = |gate: &Gate| gate.psm.entries().map(|(id, _)| id.get()).collect::<Vec<_>>();
    assert_eq!(gate.psm.expire(TimestampMs::new(999 + DAY)), 0);
    assert_eq!(known(&gate), [1, 2, 3, 4]);
    // The same before and after a restart.
    let mut restarted = Gate::new();
    restarted.psm.load_snapshot(&gate.psm.snapshot(), gate.psm.map_end_offset()).expect("we wrote it");
    restarted.psm.on_high_watermark(offset(restarted.end()));
    for gate in [&mut gate, &mut restarted] {
        assert_eq!(gate.psm.expire(TimestampMs::new(1_000 + DAY)), 1);
        assert_eq!(known(gate), [2, 3, 4]);
        assert_eq!(gate.psm.expire(TimestampMs::new(1_002 + DAY)), 2, "a marker counts as seen (N-PID-5)");
        assert_eq!(known(gate), [3], "a transaction is open");
        assert_eq!(gate.psm.expire(TimestampMs::new(i64::MAX)), 0);
    }
    // A clock that stands wrong, and a timestamp that a producer made up.
    gate.client(data(7, 0, 0, 1).at(i64::MIN)).applied();
    gate.client(data(8, 0, 0, 1).at(i64::MAX)).applied();
    gate.psm.on_high_watermark(offset(gate.end()));
    assert_eq!(gate.psm.expire(TimestampMs::new(i64::MAX)), 1);
    assert_eq!(known(&gate), [3, 8]);
    assert_eq!(gate.psm.expire(TimestampMs::new(i64::MIN)), 0);
    // Who is left goes on.
    assert!(matches!(gate.client(data(8, 0, 1, 1)), Outcome::Appended(_)));
}

/// SNAP-6: what was known outlives the records, until it expires.
#[test]
fn deleting_all_records_forgets_no_producer() {
    let mut gate = Gate::new();
    gate.client(data(5, 0, 0, 3).transactional()).applied();
    gate.append_marker(commit(5, 0, 0), TransactionVersion::Legacy).applied();
    gate.psm.on_log_start_offset(offset(3));
    assert_eq!(gate.psm.last_stable_offset(offset(4)), offset(0), "the marker is still there");
    gate.psm.on_log_start_offset(offset(9));
    assert_eq!((gate.end(), gate.psm.last_stable_offset(offset(9))), (9, offset(9)));
    assert_eq!(gate.client(data(5, 0, 3, 1)).applied().tolerated, []);
    assert_eq!(gate.producer(5), Some((0, 3, 9)));
}

#[test]
fn a_log_that_starts_anew_knows_nobody() {
    let mut gate = Gate::new();
    gate.client(data(5, 0, 0, 3).transactional()).applied();
    gate.client(data(6, 0, 0, 3).transactional()).applied();
    gate.append_marker(commit(6, 0, 0), TransactionVersion::Legacy).applied();
    gate.psm.truncate_fully_and_start_at(offset(2));
    assert_eq!((gate.psm.producer_count(), gate.end()), (0, 2));
    assert_eq!(gate.psm.first_unstable_offset(), None);
    assert_eq!(gate.psm.open_transactions().count(), 0);
    gate.client(data(5, 0, 77, 1)).applied();
}

#[test]
fn a_batch_follows_the_log_whatever_its_own_bytes_say() {
    let mut gate = Gate::new();
    gate.client(data(5, 0, 0, 3)).applied();
    let mut bytes = data(5, 0, 3, 1).bytes();
    set_base(&mut bytes, 4_711);
    assert!(matches!(gate.append(&bytes, AppendOrigin::Client), Outcome::Appended(_)));
    assert_eq!(gate.producer(5), Some((0, 3, 3)), "the assigned offset counts");

    let batch = RecordBatch::parse(&bytes).expect("a batch");
    for origin in [AppendOrigin::Client, AppendOrigin::Coordinator, AppendOrigin::Replication] {
        let error = gate.psm.check(&batch, offset(3), origin).expect_err("below the end");
        assert_eq!(
            error,
            ProducerStateError::OffsetBelowEnd { base_offset: offset(3), map_end_offset: offset(4) }
        );
        let error = gate.psm.check(&batch, Offset::MAX, origin).expect_err("nothing fits behind it");
        assert_eq!(
            error,
            ProducerStateError::InvalidOffsetDelta { base_offset: Offset::MAX, last_offset_delta: 0 }
        );
    }
}

/// Gathering over a record set is how entries from before a barrier come back.
#[test]
#[should_panic(expected = "a transition is committed to the state it was checked against")]
fn what_was_checked_before_another_commit_is_not_committed() {
    let mut gate = Gate::new();
    let bytes = data(5, 0, 0, 1).bytes();
    let batch = RecordBatch::parse(&bytes).expect("a batch");
    let Ok(weir_psm::Checked::Append(early)) = gate.psm.check(&batch, offset(1), AppendOrigin::Replication)
    else {
        panic!("taken")
    };
    gate.barrier();
    let _ = gate.psm.commit(early);
}

#[test]
#[should_panic(expected = "moves forward only")]
fn the_end_does_not_move_back() {
    let mut gate = Gate::new();
    gate.client(data(5, 0, 0, 3)).applied();
    gate.psm.update_map_end_offset(offset(2));
}
