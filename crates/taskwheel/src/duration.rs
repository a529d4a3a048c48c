//! Times and durations as people write them: `2030-01-31T08:00:00Z`; `250ms`, `10s`, `5m`, `2h`, `1d`.

use jiff::Timestamp;
use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// What the API means by no limit.
const UNLIMITED_MS: i64 = -1;

/// A duration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, unit_ms) =
        UNITS.into_iter().find(|(name, _)| *name == unit).ok_or("must be like 250ms, 10s, 5m, 2h or 1d")?;
    let number: u64 = number.parse().map_err(|_| "must begin with a whole number")?;
    let milliseconds = number.checked_mul(unit_ms).filter(|ms| i64::try_from(*ms).is_ok()).ok_or("is too long")?;
    Ok(Duration::from_millis(milliseconds))
}

/// A duration after which something happens again: with none it would never end.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|length| if length.is_zero() { Err("must not be zero".into()) } else { Ok(length) })
}

/// A period in the API's unit.
pub(crate) fn period_ms(text: &str) -> Result<i64, String> {
    period(text).map(in_milliseconds)
}

/// A duration in the API's unit.
pub(crate) fn milliseconds(text: &str) -> Result<i64, String> {
    duration(text).map(in_milliseconds)
}

/// A limit in the API's unit: a duration, or `none`.
pub(crate) fn limit_ms(text: &str) -> Result<i64, String> {
    if text == "none" { Ok(UNLIMITED_MS) } else { milliseconds(text) }
}

/// A time, with its offset from UTC.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "must be like 2030-01-31T08:00:00Z or 2030-01-31T08:00:00+01:00".to_owned())
}

/// A duration as the API has it.
pub(crate) fn in_milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_understood() {
        let read = [("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("0s", 0)];
        for (text, expected) in read {
            assert_eq!(milliseconds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "10", "s", "-1s", "1.5s", "1 s", "10S", "1w", "1h30m", "99999999999999d", "99999999999999999999s"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_period_is_not_zero() {
        assert_eq!(period_ms("1ms"), Ok(1));
        assert!(period_ms("0s").is_err());
    }

    #[test]
    fn a_limit_can_be_none() {
        assert_eq!(limit_ms("none"), Ok(-1));
        assert_eq!(limit_ms("30s"), Ok(30_000));
        assert!(milliseconds("none").is_err());
    }
}
