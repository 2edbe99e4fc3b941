//! What the barrier (`MIRROR_PID_RESET`, KIP-1279) does to entries and open transactions.
//!
//! Two clusters hand out the same producer ids. After a failover they would meet in one log, and a
//! new producer's first batch would be taken for a duplicate of a mirrored one: answered, and
//! lost. So wherever a barrier stands in a log, what was known about producers before it is
//! forgotten; no exemption, also not for a partition that is still being mirrored.
//!
//! A transaction that is open at the barrier can never be ended by a marker afterwards, since the
//! marker would find no entry. It counts as aborted at the barrier, as if its ABORT stood at the
//! barrier's offset, so that the last stable offset moves on.

use std::sync::Arc;

use weir_format::Offset;

use crate::manager::{CompletedTransaction, ProducerStateManager};
use crate::producers::Producers;

/// What a barrier changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BarrierApplied {
    /// Where the barrier stands.
    pub offset: Offset,
    /// How many entries were forgotten.
    pub producers_expired: usize,
    /// The transactions that were open, aborted at the barrier, ascending by first offset. Each is
    /// one entry of the transaction index of the barrier's segment, in this order. A stop leaves
    /// none; one that is here belongs into a report.
    pub transactions_aborted: Vec<CompletedTransaction>,
}

/// The memory of the entries that a barrier forgot.
///
/// Forgetting a million producers takes microseconds, giving their memory back takes
/// milliseconds, and dropping this is what gives it back. Whoever may not wait for that sends it
/// to a thread that may. It says nothing about the state, so any two are equal.
#[derive(Clone, Default)]
pub struct Forgotten(Option<Arc<Producers>>);

impl std::fmt::Debug for Forgotten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Forgotten({})", self.0.as_ref().map_or(0, |producers| producers.len()))
    }
}

impl PartialEq for Forgotten {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Forgotten {}

impl ProducerStateManager {
    /// Forgets every entry and verification, and aborts every open transaction at `offset`.
    ///
    /// Transactions that were completed before stay unreplicated until the high watermark passes
    /// them, and so do these.
    pub(crate) fn apply_barrier(&mut self, offset: Offset, after: Offset) -> (BarrierApplied, Forgotten) {
        let producers_expired = self.producers.len();
        let nobody = self.producers.emptied();
        let forgotten = Forgotten(Some(Arc::new(std::mem::replace(&mut self.producers, nobody))));
        self.verifications.end_all();
        self.expiry = None;

        let open = std::mem::take(&mut self.open_transactions);
        let mut transactions_aborted = Vec::with_capacity(open.len());
        let mut open = open.into_iter().peekable();
        while let Some((first_offset, producer_id)) = open.next() {
            let next_open = open.peek().map(|(next, _)| *next);
            transactions_aborted.push(CompletedTransaction {
                producer_id,
                first_offset,
                last_offset: offset,
                aborted: true,
                last_stable_offset: next_open.unwrap_or(after),
            });
        }
        // All are replicated at once, so the earliest stands for them.
        if let Some(earliest) = transactions_aborted.first() {
            self.unreplicated.complete(earliest.first_offset, offset);
        }
        (BarrierApplied { offset, producers_expired, transactions_aborted }, forgotten)
    }
}
