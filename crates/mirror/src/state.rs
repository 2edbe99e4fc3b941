//! The states of a mirrored partition, and which may follow which.
//!
//! Names, codes and transitions are those of KIP-1279. The KIP still moves, so all that
//! may be renumbered stands in this one file, beside the revision it was taken from.
//!
//! ```
//! use weir_mirror::state::MirrorPartitionState::{LogAlignment, Mirroring, Stopped, Stopping};
//! assert!(Stopping.may_follow(Mirroring));
//! assert!(!Stopped.may_follow(Mirroring), "the stop sequence cannot be jumped over");
//! assert_eq!(LogAlignment.code(), 0);
//! ```

use std::fmt;

/// The revision of the KIP's reference implementation that the codes were taken from.
pub const REVISION: &str = "KIP-1279 fork, numbering with LOG_ALIGNMENT = 0 and UNKNOWN = -1";

/// Where a mirrored partition stands.
///
/// Source: KIP-1279, `MirrorPartitionState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MirrorPartitionState {
    /// Nothing is known: never mirrored, or not loaded yet. Read-only until it is known.
    Unknown,
    /// The last common position with the source is looked for.
    LogAlignment,
    /// Our leader epoch is being raised above the source's.
    EpochFencing,
    /// An unclean election was seen at the source. Not entered by this version.
    UleRecovery,
    /// The fetcher runs.
    Mirroring,
    /// The fetcher is being removed. Not entered by this version.
    Pausing,
    /// Read-only, nothing is fetched. Not entered by this version.
    Paused,
    /// The stop sequence runs: position, epoch, ABORTs, barrier.
    Stopping,
    /// The barrier is durable. The only state in which clients may write.
    Stopped,
    /// Something an operator must look at; the reason is stored with it.
    Failed,
}

use MirrorPartitionState as S;

/// Target state, and the states it may be entered from.
///
/// Staying in a state is always allowed ("re-assert") and is not listed. `FAILED` may be
/// entered from everywhere, `UNKNOWN` from nowhere.
pub const TRANSITIONS: [(S, &[S]); 10] = [
    (S::Unknown, &[]),
    (S::LogAlignment, &[S::Unknown, S::Stopped, S::Failed]),
    (S::EpochFencing, &[S::Mirroring]),
    (S::UleRecovery, &[S::Mirroring]),
    (S::Mirroring, &[S::LogAlignment, S::EpochFencing, S::UleRecovery, S::Paused, S::Failed]),
    (S::Pausing, &[S::Mirroring]),
    (S::Paused, &[S::Pausing]),
    (
        S::Stopping,
        &[S::LogAlignment, S::EpochFencing, S::UleRecovery, S::Mirroring, S::Pausing, S::Paused, S::Failed],
    ),
    (S::Stopped, &[S::Stopping]),
    (
        S::Failed,
        &[
            S::Unknown,
            S::LogAlignment,
            S::EpochFencing,
            S::UleRecovery,
            S::Mirroring,
            S::Pausing,
            S::Paused,
            S::Stopping,
            S::Stopped,
        ],
    ),
];

impl MirrorPartitionState {
    /// Every state, in the order of its code; `UNKNOWN` first.
    pub const ALL: [Self; 10] = [
        S::Unknown,
        S::LogAlignment,
        S::EpochFencing,
        S::UleRecovery,
        S::Mirroring,
        S::Pausing,
        S::Paused,
        S::Stopping,
        S::Stopped,
        S::Failed,
    ];

    /// The number that stands for this state on the wire and in the store.
    #[must_use]
    pub const fn code(self) -> i8 {
        match self {
            S::Unknown => -1,
            S::LogAlignment => 0,
            S::EpochFencing => 1,
            S::UleRecovery => 2,
            S::Mirroring => 3,
            S::Pausing => 4,
            S::Paused => 5,
            S::Stopping => 6,
            S::Stopped => 7,
            S::Failed => 8,
        }
    }

    /// The state with this number, if there is one.
    #[must_use]
    pub fn from_code(code: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The KIP's name, as shown to people and in responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            S::Unknown => "UNKNOWN",
            S::LogAlignment => "LOG_ALIGNMENT",
            S::EpochFencing => "EPOCH_FENCING",
            S::UleRecovery => "ULE_RECOVERY",
            S::Mirroring => "MIRRORING",
            S::Pausing => "PAUSING",
            S::Paused => "PAUSED",
            S::Stopping => "STOPPING",
            S::Stopped => "STOPPED",
            S::Failed => "FAILED",
        }
    }

    /// The state with this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the table allows to enter this state from `from`.
    #[must_use]
    pub fn may_follow(self, from: Self) -> bool {
        self == from || TRANSITIONS.iter().any(|(target, sources)| *target == self && sources.contains(&from))
    }

    /// Whether clients may write. True for STOPPED alone.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(self, S::Stopped)
    }

    /// Whether a fetcher belongs to this state, now or after the step that is under way.
    #[must_use]
    pub const fn wants_fetcher(self) -> bool {
        matches!(self, S::LogAlignment | S::EpochFencing | S::UleRecovery | S::Mirroring)
    }
}

impl fmt::Display for MirrorPartitionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The transition table as text, one target a line: what the documentation shows.
#[must_use]
pub fn draw_transitions() -> String {
    let mut text = String::new();
    for (target, sources) in TRANSITIONS {
        let from = if sources.is_empty() {
            "(never entered)".to_owned()
        } else if sources.len() + 1 == S::ALL.len() {
            "(any)".to_owned()
        } else {
            sources.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ")
        };
        text.push_str(&format!("{:<14} <- {from}\n", target.name()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_table_is_drawn_as_documented() {
        expect![[r#"
            UNKNOWN        <- (never entered)
            LOG_ALIGNMENT  <- UNKNOWN, STOPPED, FAILED
            EPOCH_FENCING  <- MIRRORING
            ULE_RECOVERY   <- MIRRORING
            MIRRORING      <- LOG_ALIGNMENT, EPOCH_FENCING, ULE_RECOVERY, PAUSED, FAILED
            PAUSING        <- MIRRORING
            PAUSED         <- PAUSING
            STOPPING       <- LOG_ALIGNMENT, EPOCH_FENCING, ULE_RECOVERY, MIRRORING, PAUSING, PAUSED, FAILED
            STOPPED        <- STOPPING
            FAILED         <- (any)
        "#]]
        .assert_eq(&draw_transitions());
    }

    #[test]
    fn every_pair_of_states_is_either_in_the_table_or_refused() {
        let mut legal = 0;
        for from in S::ALL {
            for to in S::ALL {
                let listed = TRANSITIONS.iter().any(|(t, s)| *t == to && s.contains(&from));
                assert_eq!(to.may_follow(from), listed || from == to, "{from} -> {to}");
                legal += usize::from(listed);
            }
        }
        assert_eq!(legal, 3 + 1 + 1 + 5 + 1 + 1 + 7 + 1 + 9);
    }

    #[test]
    fn stopped_is_entered_from_stopping_alone_and_only_it_is_writable() {
        for from in S::ALL {
            let expected = from == S::Stopping || from == S::Stopped;
            assert_eq!(S::Stopped.may_follow(from), expected, "{from}");
            assert_eq!(from.is_writable(), from == S::Stopped);
        }
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let document = include_str!("../../../docs/architecture.md");
        assert!(
            document.contains(&draw_transitions()),
            "docs/architecture.md must have:\n{}",
            draw_transitions()
        );
    }

    #[test]
    fn the_wire_has_the_same_codes_and_names() {
        use weir_wire::kip1279::MirrorPartitionState as Wire;
        assert_eq!(Wire::ALL.len(), S::ALL.len());
        for state in Wire::ALL {
            let ours = S::from_code(state.code()).expect("known here");
            assert_eq!(ours.name(), state.name());
        }
    }

    #[test]
    fn codes_and_names_are_unique_and_come_back() {
        for state in S::ALL {
            assert_eq!(S::from_code(state.code()), Some(state));
            assert_eq!(S::from_name(state.name()), Some(state));
        }
        assert_eq!(S::from_code(9), None);
        assert_eq!(S::from_code(16), None, "an older numbering is not guessed at");
    }
}
