//! What every backend must know about writes in flight: D11.

use std::collections::BTreeMap;

use super::{BLOCK_SIZE, Done, FileId, IoError, Op, Ticket};

/// The rule that an overlapping write breaks.
pub(crate) const OVERLAP: &str = "another write in flight touches the same block";

/// The writes in flight, per file.
#[derive(Debug, Default)]
pub(crate) struct WritesInFlight {
    ranges: BTreeMap<FileId, Vec<(Ticket, u64, u64)>>,
}

impl WritesInFlight {
    /// Notes a write; false, and not noted, if it shares a block with another one in flight.
    pub(crate) fn begin(&mut self, file: FileId, ticket: Ticket, at: u64, size: usize) -> bool {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        if size == 0 {
            return true;
        }
        let first = at / BLOCK_SIZE;
        let last = at.saturating_add(size - 1) / BLOCK_SIZE;
        let ranges = self.ranges.entry(file).or_default();
        if ranges.iter().any(|(_, a, b)| *a <= last && first <= *b) {
            return false;
        }
        ranges.push((ticket, first, last));
        true
    }

    /// Ends the write that a completion is about, if it is about one that was begun.
    pub(crate) fn end(&mut self, done: &Done) {
        let Op::Write { file, at, .. } = &done.op else { return };
        if matches!(done.result, Err(IoError::Misuse { .. })) {
            return;
        }
        let first = at / BLOCK_SIZE;
        if let Some(ranges) = self.ranges.get_mut(file) {
            ranges.retain(|(ticket, begun, _)| (*ticket, *begun) != (done.ticket, first));
            if ranges.is_empty() {
                self.ranges.remove(file);
            }
        }
    }

    /// Whether a write is in flight on this file.
    pub(crate) fn any(&self, file: FileId) -> bool {
        self.ranges.contains_key(&file)
    }
}
