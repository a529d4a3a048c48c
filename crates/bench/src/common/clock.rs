//! The clock that tasks are due by.

/// The time by the clock of this machine, in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The same with a fraction. It is one clock for all processes of a measurement.
pub(crate) fn now_exact_ms() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64() * 1_000.0
}
