//! Timers: what makes a schedule fire, as the API has them.
//!
//! A [`Timer`] is data. [`Timer::rhythm`] checks it and makes it a [`Rhythm`], which knows its due times. The store keeps
//! one number for each timer, the *cursor*: the due time that comes next. Every other due time is computed from it, never
//! from a clock, so that a due time is the same whichever node finds it and however late.

mod json;
mod misfire;
mod preview;
mod rhythm;

pub use misfire::{Due, Misfire, MisfirePolicy, Missed};
pub use preview::{Coming, preview};
pub use rhythm::Rhythm;

use crate::field::{self, FieldError};
use crate::{Cron, Time, limits, zone};
use jiff::tz::TimeZone;
use rhythm::Beat;

/// One timer of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// When it fires.
    pub spec: TimerSpec,
    /// It is not due before this.
    pub start_at: Option<Time>,
    /// It is not due at this time or after it.
    pub end_at: Option<Time>,
    /// Whether it fires at all.
    pub enabled: bool,
}

/// When a timer fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerSpec {
    /// At local times.
    Cron {
        /// The expression.
        cron: String,
        /// The zone's name; `None` is the server's.
        timezone: Option<String>,
    },
    /// On a grid that starts when the timer comes online.
    FixedRate {
        /// The distance of two firings, in milliseconds.
        period_ms: i64,
        /// From coming online to the first firing, in milliseconds.
        initial_delay_ms: i64,
    },
    /// Some time after the run before has ended.
    FixedDelay {
        /// From the end of a run to the next firing, in milliseconds.
        period_ms: i64,
        /// From coming online to the first firing, in milliseconds.
        initial_delay_ms: i64,
    },
    /// Once, some time after the timer comes online.
    OnceAfter {
        /// From coming online to the firing, in milliseconds.
        delay_ms: i64,
    },
    /// Once, at a fixed time.
    OnceAt {
        /// The time.
        at: Time,
    },
}

impl Timer {
    /// A timer that is on, and always valid.
    #[must_use]
    pub fn new(spec: TimerSpec) -> Timer {
        Timer { spec, start_at: None, end_at: None, enabled: true }
    }

    /// The same timer with a time zone in its expression, where it had none.
    ///
    /// For what is stored: a server that is started with another zone must not move the schedules it has.
    #[must_use]
    pub fn in_zone(mut self, timezone_default: &str) -> Timer {
        if let TimerSpec::Cron { timezone, .. } = &mut self.spec {
            timezone.get_or_insert_with(|| timezone_default.to_owned());
        }
        self
    }

    /// Checks every field, and makes the timer one that knows its due times.
    ///
    /// `field` is the name of the timer in the request, as in `timers[0]`; `timezone_default` is the server's.
    pub fn rhythm(&self, field: &str, timezone_default: &str) -> Result<Rhythm, FieldError> {
        for (name, time) in [("start_at", self.start_at), ("end_at", self.end_at)] {
            time.map_or(Ok(()), |time| field::time(&format!("{field}.{name}"), time))?;
        }
        if let (Some(start), Some(end)) = (self.start_at, self.end_at)
            && end <= start
        {
            return Err(FieldError::new(format!("{field}.end_at"), "must be later than start_at"));
        }
        let beat = self.spec.beat(field, timezone_default)?;
        if let Beat::At(at) = beat
            && !self.is_valid_at(at)
        {
            return Err(FieldError::new(format!("{field}.at"), "must not be before start_at, nor at end_at or later"));
        }
        Ok(Rhythm::new(self, beat))
    }

    /// Checks every field.
    pub fn validate(&self, field: &str) -> Result<(), FieldError> {
        self.rhythm(field, "UTC").map(drop)
    }

    fn is_valid_at(&self, time: Time) -> bool {
        self.start_at.is_none_or(|start| start <= time) && self.end_at.is_none_or(|end| time < end)
    }
}

impl TimerSpec {
    fn beat(&self, field: &str, timezone_default: &str) -> Result<Beat, FieldError> {
        let ms = |name: &str, value: i64, min: i64| {
            field::range(&format!("{field}.{name}"), value, min, limits::TIMER_MS_MAX).map(|()| value)
        };
        match self {
            TimerSpec::Cron { cron, timezone } => Ok(Beat::Cron {
                cron: Box::new(Cron::parse_field(&format!("{field}.cron"), cron)?),
                zone: zone_of(field, timezone.as_deref().unwrap_or(timezone_default))?,
            }),
            TimerSpec::FixedRate { period_ms, initial_delay_ms } => Ok(Beat::Rate {
                period_ms: ms("period_ms", *period_ms, 1)?,
                initial_delay_ms: ms("initial_delay_ms", *initial_delay_ms, 0)?,
            }),
            TimerSpec::FixedDelay { period_ms, initial_delay_ms } => Ok(Beat::Delay {
                period_ms: ms("period_ms", *period_ms, 1)?,
                initial_delay_ms: ms("initial_delay_ms", *initial_delay_ms, 0)?,
            }),
            TimerSpec::OnceAfter { delay_ms } => Ok(Beat::After { delay_ms: ms("delay_ms", *delay_ms, 0)? }),
            TimerSpec::OnceAt { at } => field::time(&format!("{field}.at"), *at).map(|()| Beat::At(*at)),
        }
    }
}

fn zone_of(field: &str, name: &str) -> Result<TimeZone, FieldError> {
    zone::find(&format!("{field}.timezone"), name)
}
