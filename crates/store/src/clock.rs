//! The clock of this machine. Nothing that matters rests on it: the database's counts, and every node may be off by as much as it
//! likes. It says when something is worth another look, and it is shown to people.

use std::time::SystemTime;
use taskwheel_model::Time;

/// What the clock shows.
pub fn wall_clock() -> SystemTime {
    crate::faults::wall_clock()
}

/// The same as a time.
pub fn here() -> Time {
    Time(here_us().div_euclid(1_000))
}

/// The same in microseconds since 1970.
pub(crate) fn here_us() -> i64 {
    let here = wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(here.as_micros()).unwrap_or(i64::MAX)
}
