//! Proof that a transaction coordinator was asked, for the batch that opens a transaction.
//!
//! A transactional batch that comes late, behind its transaction's marker, would open a
//! transaction that nobody ends. So before one is opened the coordinator is asked whether it knows
//! of it, and between question and append the answer may turn wrong. The guard that is made with
//! the question fits only as long as nothing of that producer was appended since.
//!
//! It is known to the leader alone: it is in no snapshot, no log, and no comparison of states.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_format::{ProducerEpoch, ProducerId, Sequence, TimestampMs};

use crate::append_info::TransactionVersion;

/// Made by [`start_verification`](crate::ProducerStateManager::start_verification) with the
/// question to the coordinator, and given back with the batch once it said yes.
///
/// No two guards are alike, and none can be made otherwise: one from before a marker, a barrier, a
/// restart or of another partition fits nothing.
///
/// Kafka: `VerificationGuard`.
#[derive(Clone, Debug)]
pub struct VerificationGuard(Arc<()>);

/// Whether both are of one verification.
impl PartialEq for VerificationGuard {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for VerificationGuard {}

/// One producer's verification.
///
/// Kafka: `VerificationStateEntry`.
#[derive(Clone, Debug)]
pub(crate) struct Verification {
    guard: VerificationGuard,
    epoch: Option<ProducerEpoch>,
    /// The lowest first sequence of those that asked: none above it may be the first to land, or
    /// the lower one, which is only late, would be out of order for ever.
    pub(crate) lowest_sequence: Option<Sequence>,
    pub(crate) version: TransactionVersion,
    started_at: TimestampMs,
}

/// The verifications of one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verifications(BTreeMap<ProducerId, Verification>);

impl Verifications {
    pub(crate) fn get(&self, producer_id: ProducerId) -> Option<&Verification> {
        self.0.get(&producer_id)
    }

    pub(crate) fn fits(&self, producer_id: ProducerId, guard: Option<&VerificationGuard>) -> bool {
        self.get(producer_id).map(|verification| &verification.guard) == guard && guard.is_some()
    }

    /// Kafka: `ProducerStateManager.maybeCreateVerificationStateEntry`,
    /// `VerificationStateEntry.maybeUpdateLowestSequenceAndEpoch`.
    pub(crate) fn start(
        &mut self,
        producer_id: ProducerId,
        epoch: Option<ProducerEpoch>,
        first_sequence: Option<Sequence>,
        version: TransactionVersion,
        now: TimestampMs,
    ) -> VerificationGuard {
        let verification = self.0.entry(producer_id).or_insert_with(|| Verification {
            guard: VerificationGuard(Arc::new(())),
            epoch,
            lowest_sequence: first_sequence,
            version,
            started_at: now,
        });
        if epoch > verification.epoch {
            verification.epoch = epoch;
            verification.lowest_sequence = first_sequence;
        } else if epoch == verification.epoch {
            // Kafka: compares the numbers, and refuses a producer whose requests in flight lie on both sides of the wrap.
            let known = verification.lowest_sequence.zip(first_sequence);
            verification.lowest_sequence =
                known.map(|(lowest, first)| if first.is_before(lowest) { first } else { lowest });
        }
        verification.guard.clone()
    }

    pub(crate) fn end(&mut self, producer_id: ProducerId) {
        // Most have none, and then there is nothing to search.
        if !self.0.is_empty() {
            self.0.remove(&producer_id);
        }
    }

    pub(crate) fn end_all(&mut self) {
        self.0.clear();
    }

    /// Ends those that started so long ago. Returns how many.
    pub(crate) fn expire(&mut self, now: TimestampMs, limit_ms: i64) -> usize {
        let before = self.0.len();
        self.0.retain(|_, verification| now.get().saturating_sub(verification.started_at.get()) < limit_ms);
        before.saturating_sub(self.0.len())
    }
}
