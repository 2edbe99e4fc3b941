//! Who waits for the disk: the thread that asked, or another one.
//!
//! Handing a sync over costs two wake-ups, which is as much as a fast disk takes for the sync itself. A thread that has
//! nothing left to do but to wait does it by itself, as long as that was short of late. If the disk becomes slow, others
//! wait for it, and the thread hears of whatever else happens.

use std::time::{Duration, Instant};

/// How many of the last measurements count.
const LAST: u32 = 8;

/// How long the disk took of late.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: Duration,
    average: Duration,
}

impl Pace {
    /// Work that takes less than `limit` on average is short. Zero: none is.
    pub(crate) fn new(limit: Duration) -> Pace {
        Pace { limit, average: Duration::ZERO }
    }

    /// Now, to measure with.
    pub(crate) fn now() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "a backend measures how long its own disk takes")]
        Instant::now()
    }

    /// Whether the next piece of work may be done by the thread that would wait for it.
    pub(crate) fn is_short(&self) -> bool {
        self.average < self.limit
    }

    /// Takes note of how long a piece of work took.
    pub(crate) fn took(&mut self, time: Duration) {
        self.average = self.average.saturating_mul(LAST - 1).saturating_add(time) / LAST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_is_left_to_others_until_it_is_fast_again() {
        let mut pace = Pace::new(Duration::from_millis(1));
        assert!(pace.is_short());
        pace.took(Duration::from_micros(100));
        assert!(pace.is_short());
        pace.took(Duration::from_millis(30));
        assert!(!pace.is_short());
        let mut count = 0;
        while !pace.is_short() {
            pace.took(Duration::from_micros(10));
            count += 1;
        }
        assert!((8..40).contains(&count), "{count}");
        assert!(!Pace::new(Duration::ZERO).is_short());
    }
}
