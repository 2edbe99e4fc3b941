//! The real clock: the only place of the node that asks the system for the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use weir_format::TimestampMs;

/// Milliseconds since 1970, as the system's clock has them.
pub fn now() -> TimestampMs {
    #[expect(clippy::disallowed_methods, reason = "this file is the clock of the node")]
    let now = SystemTime::now();
    let millis = match now.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| millis.saturating_neg())
        }
    };
    TimestampMs::new(millis)
}
