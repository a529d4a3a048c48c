//! Timers: their JSON, what is refused, their due times, and what happens to those that were missed.

mod due;
mod json;
mod misfire;
mod preview;

use jiff::Timestamp;
use taskwheel_model::{Rhythm, Time, Timer, TimerSpec};

/// A time by RFC 3339.
fn at(text: &str) -> Time {
    Time(text.parse::<Timestamp>().unwrap_or_else(|error| panic!("{text}: {error}")).as_millisecond())
}

fn cron(text: &str, timezone: &str) -> Timer {
    Timer::new(TimerSpec::Cron { cron: text.into(), timezone: Some(timezone.into()) })
}

fn rate(period_ms: i64, initial_delay_ms: i64) -> Timer {
    Timer::new(TimerSpec::FixedRate { period_ms, initial_delay_ms })
}

fn delay(period_ms: i64, initial_delay_ms: i64) -> Timer {
    Timer::new(TimerSpec::FixedDelay { period_ms, initial_delay_ms })
}

fn once_after(delay_ms: i64) -> Timer {
    Timer::new(TimerSpec::OnceAfter { delay_ms })
}

fn once_at(at: Time) -> Timer {
    Timer::new(TimerSpec::OnceAt { at })
}

fn rhythm(timer: &Timer) -> Rhythm {
    timer.rhythm("timer", "UTC").unwrap_or_else(|error| panic!("{timer:?}: {error}"))
}
