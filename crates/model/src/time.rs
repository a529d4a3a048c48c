//! Points in time, as milliseconds since 1970 in UTC.

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub i64);

impl Time {
    /// This time, moved by a number of milliseconds. It saturates instead of wrapping.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Time {
        Time(self.0.saturating_add(ms))
    }

    /// How many milliseconds this time is after another one; negative when it is before.
    #[must_use]
    pub fn ms_since(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}
