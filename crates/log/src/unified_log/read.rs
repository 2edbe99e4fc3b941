//! Reading: whole batches under an isolation level, and the aborted transactions among them.

use std::sync::Arc;

use bytes::Bytes;
use weir_format::Offset;
use weir_segment::io::Io;
use weir_segment::{AbortedTransaction, batch_info};

use super::UnifiedLog;
use crate::error::ReadError;
use crate::view::{Isolation, LogView};

/// What a read returned.
#[derive(Debug, Clone)]
pub struct Read {
    /// Whole batches, as they lie on disk.
    pub bytes: Bytes,
    /// The view that the read was bounded by.
    pub view: Arc<LogView>,
    /// The aborted transactions that a `read_committed` reader needs for these bytes, ascending by first offset.
    pub aborted: Vec<AbortedTransaction>,
}

impl UnifiedLog {
    /// Reads whole batches from the one that holds `from`, at most `max_bytes`, or one batch if `at_least_one`.
    ///
    /// An uncommitted read ends at the high watermark, a committed one at the last stable offset; both may end sooner, at
    /// a segment's end or where an append ended. A committed read lists the aborted transactions that overlap the bytes,
    /// ascending by first offset. If one of them was aborted at a barrier, the bytes end just before that barrier: clients
    /// keep an aborted producer id until they see a marker in the same response, and a barrier is none (law B4).
    ///
    /// Cost: none of the disk if all of it is in memory ([`UnifiedLog::attach_tail`]); else one read of the batches, and
    /// small ones to find them and to list aborted transactions, however many of these there are.
    ///
    /// # Errors
    /// [`ReadError::OffsetOutOfRange`] below the log start or above the log end, [`ReadError::Offline`] if the log has
    /// failed; [`ReadError::Log`].
    ///
    /// Source: Kafka's `LocalLog.read`.
    pub fn read(
        &mut self,
        io: &mut dyn Io,
        from: Offset,
        max_bytes: usize,
        isolation: Isolation,
        at_least_one: bool,
    ) -> Result<Read, ReadError> {
        if let Some(read) = self.tail.reader().read(from, max_bytes, isolation, at_least_one) {
            return Ok(read);
        }
        let view = self.view();
        // Kafka: a position between the high watermark and the log end is in range, and answered with nothing.
        let end_offset = self.log.log_end_offset();
        if from < view.log_start_offset || from > end_offset {
            // Law O6: neither end is final then.
            if self.offline {
                return Err(ReadError::Offline { asked: from });
            }
            return Err(ReadError::OffsetOutOfRange {
                asked: from,
                log_start_offset: view.log_start_offset,
                end_offset,
            });
        }
        let end = view.end_for(isolation);
        if from >= end {
            return Ok(Read { bytes: Bytes::new(), view, aborted: Vec::new() });
        }
        let failed = |source| ReadError::Log { source };
        let slice = self.log.read(io, from, max_bytes, end, at_least_one).map_err(failed)?;
        let (Some(first_base_offset), Isolation::Committed) = (slice.first_base_offset, isolation) else {
            return Ok(Read { bytes: slice.bytes, view, aborted: Vec::new() });
        };
        let upper_bound = self.upper_bound(slice.next_offset);
        let aborted = self.log.aborted_in_range(io, from, upper_bound).map_err(failed)?;
        let at_barrier = |at| self.file.aborted_at_barrier(at);
        let (bytes, aborted) =
            bounded_by_barriers(slice.bytes, aborted, first_base_offset, slice.next_offset, at_barrier);
        Ok(Read { bytes, view, aborted })
    }

    /// How far the list of aborted transactions reaches, for bytes that end at `end`.
    ///
    /// Kafka: `LogSegment.fetchUpperBoundOffset`. In the active segment, whose index is in memory, it is the next index
    /// entry or the log end, as in Kafka. A longer list than needed does no harm.
    fn upper_bound(&self, end: Offset) -> Offset {
        let active = self.log.active();
        if end <= active.base_offset() {
            return end;
        }
        let next_entry = active.indexes().and_then(|(offsets, _)| offsets.ceiling(end));
        next_entry.unwrap_or_else(|| self.log.log_end_offset()).max(end)
    }
}

/// What of these bytes a committed reader gets, and with which aborted transactions, ascending by first offset.
///
/// Inputs: the transactions that overlap the bytes, which begin with the batch at `first_base_offset` and end at
/// `next_offset`; `at_barrier` says whether one that ends there was aborted at a barrier, and not by an ABORT.
///
/// Law B4: one that was aborted at a barrier is listed only if its records may be among the bytes, and then the bytes end
/// before the barrier.
pub(crate) fn bounded_by_barriers(
    bytes: Bytes,
    mut aborted: Vec<AbortedTransaction>,
    first_base_offset: Offset,
    next_offset: Offset,
    at_barrier: impl Fn(Offset) -> bool,
) -> (Bytes, Vec<AbortedTransaction>) {
    let concerns = |entry: &AbortedTransaction, end: Offset| {
        entry.last_offset > first_base_offset && entry.first_offset < end
    };
    let ends_at = aborted
        .iter()
        .filter(|entry| at_barrier(entry.last_offset) && concerns(entry, next_offset))
        .map(|entry| entry.last_offset)
        .fold(next_offset, Offset::min);
    aborted.retain(|entry| !at_barrier(entry.last_offset) || concerns(entry, ends_at));
    aborted.sort_by_key(|entry| (entry.first_offset, entry.last_offset));
    (if ends_at < next_offset { cut_at(&bytes, ends_at) } else { bytes }, aborted)
}

/// The batches that end at or below `end`.
fn cut_at(bytes: &Bytes, end: Offset) -> Bytes {
    let mut size = 0;
    while let Ok(batch) = batch_info(&bytes[size..], 0) {
        let whole = usize::try_from(batch.size).ok().and_then(|batch| size.checked_add(batch));
        match whole.filter(|whole| batch.next_offset <= end && *whole <= bytes.len()) {
            Some(whole) => size = whole,
            None => break,
        }
    }
    bytes.slice(..size)
}
