//! The guard between the question to the transaction coordinator and the batch that opens a transaction.

use weir_format::{ProducerEpoch, Sequence, TimestampMs};
use weir_psm::{AppendOrigin, ProducerStateError, TransactionVersion, VerificationGuard};

use crate::support::{Data, Gate, Outcome, abort, commit, data, offset, pid};

fn ask(gate: &mut Gate, data: Data, version: TransactionVersion) -> Option<VerificationGuard> {
    gate.psm.start_verification(
        pid(data.pid),
        ProducerEpoch::new(data.epoch),
        Sequence::new(data.seq),
        version,
        TimestampMs::new(data.timestamp),
    )
}

fn ask_legacy(gate: &mut Gate, data: Data) -> VerificationGuard {
    ask(gate, data, TransactionVersion::Legacy).expect("nothing is open")
}

fn not_verified(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refused(ProducerStateError::NotVerified { .. }))
}

fn first() -> Data {
    data(5, 0, 0, 1).transactional()
}

/// Kafka: `UnifiedLogTest.testTransactionIsOngoingAndVerificationGuard`.
#[test]
fn a_transaction_is_opened_with_the_guard_that_was_made_for_it() {
    let mut gate = Gate::new();
    assert!(not_verified(&gate.verified(first(), None)));
    let guard = ask_legacy(&mut gate, first());
    assert!(not_verified(&gate.verified(first(), None)), "it is under way");
    assert_eq!(ask_legacy(&mut gate, first()), guard, "asked again, it is the same question");
    let mut other = Gate::new();
    let foreign = ask_legacy(&mut other, first());
    assert_ne!(guard, foreign);
    assert!(not_verified(&gate.verified(first(), Some(&foreign))), "of another partition");
    let of_other_id = ask_legacy(&mut gate, data(6, 0, 0, 1));
    assert!(not_verified(&gate.verified(first(), Some(&of_other_id))), "of another producer");
    gate.verified(first(), Some(&guard)).applied();
    // It is open now: nothing to ask, and the next batch needs no guard.
    let next = data(5, 0, 1, 1).transactional();
    assert_eq!(ask(&mut gate, next, TransactionVersion::Legacy), None);
    gate.verified(next, None).applied();
}

/// KIP-890: the marker overtook the batch, which would open a transaction that nobody ends (LSO-3).
#[test]
fn a_guard_from_before_a_marker_or_a_barrier_fits_nothing() {
    let endings: [fn(&mut Gate); 5] = [
        |gate| drop(gate.mirrored_marker(abort(5, 0, 0))),
        |gate| drop(gate.append_marker(commit(5, 0, 0), TransactionVersion::Legacy).applied()),
        |gate| drop(gate.barrier()),
        |gate| gate.psm.truncate_fully_and_start_at(offset(7)),
        |gate| {
            let snapshot = gate.psm.snapshot();
            gate.psm.load_snapshot(&snapshot, offset(0)).expect("we wrote it");
        },
    ];
    for (index, end) in endings.into_iter().enumerate() {
        let mut gate = Gate::new();
        let stale = ask_legacy(&mut gate, first());
        end(&mut gate);
        assert!(not_verified(&gate.verified(first(), Some(&stale))), "ending {index}");
        // Asked again, it is another guard, and the old one still fits nothing.
        let fresh = ask_legacy(&mut gate, first());
        assert_ne!(stale, fresh);
        assert!(not_verified(&gate.verified(first(), Some(&stale))), "ending {index}");
        gate.verified(first(), Some(&fresh)).applied();
    }
}

/// Kafka: the guard goes with any transactional batch, also one that came by replication.
#[test]
fn a_guard_is_good_for_one_transaction() {
    let mut gate = Gate::new();
    let guard = ask_legacy(&mut gate, first());
    gate.verified(first(), Some(&guard)).applied();
    gate.append_marker(commit(5, 0, 0), TransactionVersion::Legacy).applied();
    let late = data(5, 0, 1, 1).transactional();
    assert!(not_verified(&gate.verified(late, Some(&guard))));
}

#[test]
fn what_opens_no_transaction_needs_no_guard() {
    let mut gate = Gate::new();
    gate.verified(data(5, 0, 0, 1), None).applied();
    gate.verified(data(-1, -1, -1, 1).transactional(), None).applied();
    let batch = first().bytes();
    let batch = weir_format::RecordBatch::parse(&batch).expect("a batch");
    let end = gate.psm.map_end_offset();
    let mirrored = gate.psm.check_verified(&batch, end, AppendOrigin::Replication, None);
    assert!(matches!(mirrored, Ok(weir_psm::Checked::Append(_))), "{mirrored:?}");
    let coordinated = gate.psm.check_verified(&batch, end, AppendOrigin::Coordinator, None);
    assert!(matches!(coordinated, Err(ProducerStateError::NotVerified { .. })), "{coordinated:?}");
    // A batch that is there is answered, whatever became of its transaction.
    assert!(matches!(gate.verified(data(5, 0, 0, 1).transactional(), None), Outcome::Duplicate(_)));
}

/// Kafka: KAFKA-19690; N-PID-1. An epoch that is over is said first, since the client recovers from that.
#[test]
fn an_old_epoch_is_fenced_and_not_unverified() {
    let mut gate = Gate::new();
    gate.mirrored(data(5, 3, 0, 1));
    let outcome = gate.verified(data(5, 2, 1, 1).transactional(), None);
    let Outcome::Refused(error) = outcome else { panic!("{outcome:?}") };
    assert!(matches!(error, ProducerStateError::InvalidProducerEpoch { .. }), "{error}");
    // Another epoch than that of the open transaction has nothing open.
    gate.mirrored(data(5, 3, 1, 1).transactional());
    assert!(not_verified(&gate.verified(data(5, 4, 0, 1).transactional(), None)));
}

fn refused_for(outcome: &Outcome) -> i32 {
    match outcome {
        Outcome::Refused(ProducerStateError::OutOfOrderSequence { expected, .. }) => expected.get(),
        other => panic!("{other:?}"),
    }
}

/// Kafka: KAFKA-14920, `VerificationStateEntry.maybeUpdateLowestSequenceAndEpoch`.
#[test]
fn the_lowest_sequence_that_asked_is_the_first_to_land() {
    let batch = |epoch, seq| data(5, epoch, seq, 1).transactional();
    let mut gate = Gate::new();
    let guard = ask_legacy(&mut gate, batch(1, 4));
    ask_legacy(&mut gate, batch(1, 2));
    ask_legacy(&mut gate, batch(1, 3));
    ask_legacy(&mut gate, batch(0, 0));
    assert_eq!(refused_for(&gate.verified(batch(1, 4), Some(&guard))), 2);
    // Also of a batch without a transaction: it is the same producer's.
    assert_eq!(refused_for(&gate.client(data(5, 1, 3, 1))), 2);
    // A new epoch counts from its own.
    ask_legacy(&mut gate, batch(2, 9));
    assert_eq!(refused_for(&gate.verified(batch(2, 10), Some(&guard))), 9);
    gate.verified(batch(2, 9), Some(&guard)).applied();
    gate.verified(batch(2, 10), None).applied();
}

/// PID-12. The sequence behind 2^31 - 1 is 0, which is not before it.
#[test]
fn the_lowest_sequence_is_the_earliest_one_also_where_they_wrap() {
    let batch = |seq| data(5, 1, seq, 1).transactional();
    for (order, known) in [([i32::MAX, 0], false), ([0, i32::MAX], false), ([i32::MAX, 0], true)] {
        let mut gate = Gate::new();
        if known {
            gate.mirrored(data(5, 1, i32::MAX - 1, 1));
        }
        let guards = order.map(|seq| ask_legacy(&mut gate, batch(seq)));
        assert_eq!(refused_for(&gate.verified(batch(0), Some(&guards[0]))), i32::MAX);
        gate.verified(batch(i32::MAX), Some(&guards[0])).applied();
        gate.verified(batch(0), None).applied();
    }
}

/// Kafka: KIP-890, "transactions v2 idempotent producer with no existing state".
#[test]
fn under_version_2_an_unknown_producer_starts_at_0() {
    let batch = |seq| data(5, 1, seq, 1).transactional();
    let mut gate = Gate::new();
    let guard = ask(&mut gate, batch(3), TransactionVersion::V2).expect("nothing is open");
    assert_eq!(refused_for(&gate.verified(batch(3), Some(&guard))), 0);
    let mut legacy = Gate::new();
    let guard = ask_legacy(&mut legacy, batch(3));
    legacy.verified(batch(3), Some(&guard)).applied();
    // One that is known goes on where it was.
    let mut known = Gate::new();
    known.mirrored(data(5, 1, 0, 3));
    let guard = ask(&mut known, batch(3), TransactionVersion::V2).expect("nothing is open");
    known.verified(batch(3), Some(&guard)).applied();
}

/// Kafka: `ProducerStateManager.removeExpiredProducers`.
#[test]
fn a_question_without_an_answer_expires() {
    const DAY: i64 = 24 * 60 * 60 * 1_000;
    let mut gate = Gate::new();
    gate.mirrored(data(5, 0, 0, 1).at(0));
    gate.psm.on_high_watermark(offset(gate.end()));
    let asked = data(5, 0, 1, 1).transactional().at(10);
    let guard = ask_legacy(&mut gate, asked);
    // A request in flight keeps its producer.
    assert_eq!((gate.psm.expire(TimestampMs::new(DAY + 9)), gate.ids()), (0, vec![5]));
    assert_eq!((gate.psm.expire(TimestampMs::new(DAY + 10)), gate.ids()), (1, vec![]));
    assert!(not_verified(&gate.verified(asked, Some(&guard))));
}
