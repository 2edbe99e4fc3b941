//! Kafka's numbers as types: an offset cannot be passed where a sequence is meant, and a "none" of −1 cannot be
//! mistaken for a value.

use std::fmt;

macro_rules! non_negative {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($raw);

        impl $name {
            /// The smallest value, 0.
            pub const ZERO: Self = Self(0);
            /// The largest value.
            pub const MAX: Self = Self(<$raw>::MAX);

            /// The value, or `None` if `raw` is negative (Kafka's "none" is −1).
            pub const fn new(raw: $raw) -> Option<Self> {
                if raw >= 0 { Some(Self(raw)) } else { None }
            }

            /// The number as Kafka writes it; never negative.
            pub const fn get(self) -> $raw {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

non_negative! {
    /// A record's place in its partition.
    Offset(i64)
}

non_negative! {
    /// The number of a partition leader's term of office.
    LeaderEpoch(i32)
}

non_negative! {
    /// An idempotent producer. The number is unique within one cluster only, which is why there is a barrier.
    ProducerId(i64)
}

non_negative! {
    /// The generation of a producer id; a higher one fences the lower.
    ProducerEpoch(i16)
}

non_negative! {
    /// The number of a record within its producer id and epoch. After `i32::MAX` comes 0.
    Sequence(i32)
}

impl Offset {
    /// The offset `delta` further on (or back), or `None` where there is none.
    pub const fn checked_add(self, delta: i64) -> Option<Self> {
        match self.0.checked_add(delta) {
            Some(raw) => Self::new(raw),
            None => None,
        }
    }

    /// The offset behind this one, or `None` at the largest.
    pub const fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    /// How many offsets lie from `earlier` to this one; negative if this one is the earlier. Cannot overflow, since
    /// neither is negative.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl LeaderEpoch {
    /// The epoch `delta` further on (or back), or `None` where there is none.
    pub const fn checked_add(self, delta: i32) -> Option<Self> {
        match self.0.checked_add(delta) {
            Some(raw) => Self::new(raw),
            None => None,
        }
    }
}

impl ProducerId {
    /// The id behind this one, or `None` at the largest.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }
}

impl ProducerEpoch {
    /// The epoch behind this one, or `None` at the largest.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }
}

impl Sequence {
    /// The sequence `count` records further on, wrapping from `i32::MAX` to 0.
    ///
    /// Source: Kafka's `DefaultRecordBatch.incrementSequence`.
    pub const fn plus(self, count: u32) -> Self {
        // 2^32 is a multiple of 2^31, so wrapping in 32 bits and dropping the top bit is the sum modulo 2^31.
        let sum = self.0.cast_unsigned().wrapping_add(count) & i32::MAX.cast_unsigned();
        Self(sum.cast_signed())
    }

    /// Whether the way up from this one to `other`, wrapping, is the shorter one. Of two sequences that a producer has in
    /// flight this says which is the earlier: there are few of them.
    pub const fn is_before(self, other: Self) -> bool {
        // As in `plus`: the difference modulo 2^31.
        let up = other.0.wrapping_sub(self.0) & i32::MAX;
        up > 0 && up < 1 << 30
    }
}

/// Milliseconds since the epoch, as found: Kafka keeps whatever a producer sent, also negative numbers. −1 means that
/// the record has no timestamp.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimestampMs(i64);

impl TimestampMs {
    /// Kafka's "no timestamp".
    pub const NONE: Self = Self(-1);

    /// The timestamp of that many milliseconds.
    pub const fn new(raw: i64) -> Self {
        Self(raw)
    }

    /// Milliseconds since the epoch.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Milliseconds from `earlier` to this one, at most `i64::MAX` and at least `i64::MIN`.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for TimestampMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for TimestampMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimestampMs({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_wraps_from_the_largest_to_zero() {
        let table = [
            (0, 0, 0),
            (0, 1, 1),
            (i32::MAX, 0, i32::MAX),
            (i32::MAX, 1, 0),
            (i32::MAX - 1, 2, 0),
            (2_147_483_645, 4, 1),
            (7, i32::MAX.cast_unsigned(), 6),
            (i32::MAX, u32::MAX, i32::MAX - 1),
        ];
        for (from, count, want) in table {
            let from = Sequence::new(from).expect("not negative");
            assert_eq!(from.plus(count).get(), want, "{from} + {count}");
        }
    }

    #[test]
    fn a_sequence_is_before_those_that_follow_also_where_they_wrap() {
        let of = |raw| Sequence::new(raw).expect("not negative");
        for first in [0, 1, 7, 1 << 30, i32::MAX - 1, i32::MAX] {
            for count in [1, 2, 5, (1 << 30) - 1] {
                let (first, later) = (of(first), of(first).plus(count));
                assert!(first.is_before(later) && !later.is_before(first), "{first} + {count}");
            }
            assert!(!of(first).is_before(of(first)));
        }
    }

    #[test]
    fn negative_numbers_are_no_ids() {
        assert_eq!(Offset::new(-1), None);
        assert_eq!(LeaderEpoch::new(-1), None);
        assert_eq!(ProducerId::new(-7), None);
        assert_eq!(ProducerEpoch::new(-1), None);
        assert_eq!(Sequence::new(-1), None);
        assert_eq!(TimestampMs::new(-1), TimestampMs::NONE);
    }

    #[test]
    fn offset_arithmetic_never_leaves_the_range() {
        assert_eq!(Offset::MAX.next(), None);
        assert_eq!(Offset::ZERO.checked_add(-1), None);
        assert_eq!(Offset::ZERO.next(), Offset::new(1));
        assert_eq!(Offset::MAX.since(Offset::ZERO), i64::MAX);
        assert_eq!(Offset::ZERO.since(Offset::MAX), -i64::MAX);
        assert_eq!(LeaderEpoch::MAX.checked_add(1), None);
        assert_eq!(ProducerEpoch::MAX.next(), None);
        assert_eq!(ProducerId::MAX.next(), None);
    }
}
