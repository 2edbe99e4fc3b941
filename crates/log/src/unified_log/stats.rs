//! Numbers of one log, for metrics and tools.

use weir_format::Offset;
use weir_psm::Applied;

use super::{UnifiedLog, append::to_u64};

/// What happened to a log since it was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) snapshots_written: u64,
    pub(super) segments_deleted: u64,
    pub(super) bytes_deleted: u64,
    producers_evicted: u64,
    producers_expired: u64,
    barriers: u64,
    producers_forgotten_at_barriers: u64,
    transactions_aborted_at_barriers: u64,
}

impl Counters {
    pub(super) fn count(&mut self, applied: &Applied) {
        self.producers_evicted += to_u64(applied.producers_evicted);
        if let Some(barrier) = &applied.barrier {
            self.barriers += 1;
            self.producers_forgotten_at_barriers += to_u64(barrier.producers_expired);
            self.transactions_aborted_at_barriers += to_u64(barrier.transactions_aborted.len());
        }
    }

    pub(super) fn expired(&mut self, count: usize) {
        self.producers_expired += to_u64(count);
    }
}

/// Numbers of one log. What is counted is counted since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStats {
    /// Segments.
    pub segment_count: usize,
    /// Their size in bytes.
    pub size: u64,
    /// Producers known now.
    pub producers: usize,
    /// Transactions open now.
    pub open_transactions: usize,
    /// Producers evicted by the cap ([`weir_psm::PsmConfig::max_producers`]).
    pub producers_evicted: u64,
    /// Producers forgotten because they were idle.
    pub producers_expired: u64,
    /// Barriers appended.
    pub barriers: u64,
    /// Producers forgotten at those barriers.
    pub producers_forgotten_at_barriers: u64,
    /// Transactions that were open at those barriers and were aborted by them.
    pub transactions_aborted_at_barriers: u64,
    /// Offset of the newest producer snapshot that a start may use.
    pub newest_snapshot: Option<Offset>,
    /// Producer snapshots written at rolls.
    pub snapshots_written: u64,
    /// Segments deleted.
    pub segments_deleted: u64,
    /// Their size in bytes.
    pub bytes_deleted: u64,
}

impl UnifiedLog {
    /// Numbers for metrics and tools.
    ///
    /// Cost: a walk over the list of segments.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        let counters = self.counters;
        LogStats {
            segment_count: self.log.segments().len(),
            size: self.log.size(),
            producers: self.psm.producer_count(),
            open_transactions: self.psm.open_transaction_count(),
            producers_evicted: counters.producers_evicted,
            producers_expired: counters.producers_expired,
            barriers: counters.barriers,
            producers_forgotten_at_barriers: counters.producers_forgotten_at_barriers,
            transactions_aborted_at_barriers: counters.transactions_aborted_at_barriers,
            newest_snapshot: self.file.snapshots().next_back().map(|(offset, _)| offset),
            snapshots_written: counters.snapshots_written,
            segments_deleted: counters.segments_deleted,
            bytes_deleted: counters.bytes_deleted,
        }
    }
}
