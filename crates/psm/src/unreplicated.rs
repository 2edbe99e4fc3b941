//! Transactions that ended, whose end is not below the high watermark yet.

use std::collections::VecDeque;

use weir_format::Offset;

/// What of them the last stable offset asks: the earliest start of those whose end is not
/// replicated.
///
/// One that starts at or above another's start and ends no later can never be the answer again,
/// so it is not kept: a barrier that aborts a million transactions adds one here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unreplicated {
    /// INVARIANT: both ascend, since transactions end in log order.
    transactions: VecDeque<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    first_offset: Offset,
    last_offset: Offset,
}

impl Unreplicated {
    /// Adds one that ends no earlier than all before it.
    pub(crate) fn complete(&mut self, first_offset: Offset, last_offset: Offset) {
        while self.transactions.pop_back_if(|ended| ended.first_offset >= first_offset).is_some() {}
        self.transactions.push_back(Ended { first_offset, last_offset });
    }

    pub(crate) fn first_offset(&self) -> Option<Offset> {
        self.transactions.front().map(|ended| ended.first_offset)
    }

    pub(crate) fn remove_below(&mut self, offset: Offset) {
        while self.transactions.pop_front_if(|ended| ended.last_offset < offset).is_some() {}
    }
}
