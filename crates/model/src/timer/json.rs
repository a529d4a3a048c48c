//! The JSON of a timer, as in the API: one flat object, whose fields depend on its kind.

use super::{Timer, TimerSpec};
use crate::{FieldError, Time};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;

/// Every field that any kind has. Which of them belong together is checked by hand, so that the error names the field.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    period_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_delay_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<At>,
    #[serde(default)]
    start_at: Option<At>,
    #[serde(default)]
    end_at: Option<At>,
    #[serde(default)]
    enabled: Option<bool>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Cron,
    FixedRate,
    FixedDelay,
    Once,
}

/// A point in time, as RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy)]
struct At(Time);

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let timestamp = Timestamp::from_millisecond(self.0.0).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&format_args!("{timestamp:.3}"))
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<At, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let message = || serde::de::Error::custom("must be a time as in 2026-01-31T12:00:00Z");
        let timestamp: Timestamp = text.parse().map_err(|_| message())?;
        Ok(At(Time(timestamp.as_millisecond())))
    }
}

impl Fields {
    /// Refuses what another kind has.
    fn check(&self) -> Result<(), FieldError> {
        let is_periodic = matches!(self.kind, Kind::FixedRate | Kind::FixedDelay);
        let given = [
            ("cron", self.cron.is_some(), self.kind == Kind::Cron, "cron"),
            ("timezone", self.timezone.is_some(), self.kind == Kind::Cron, "cron"),
            ("period_ms", self.period_ms.is_some(), is_periodic, "fixed_rate and fixed_delay"),
            ("initial_delay_ms", self.initial_delay_ms.is_some(), is_periodic, "fixed_rate and fixed_delay"),
            ("delay_ms", self.delay_ms.is_some(), self.kind == Kind::Once, "once"),
            ("at", self.at.is_some(), self.kind == Kind::Once, "once"),
        ];
        match given.into_iter().find(|(_, is_given, belongs, _)| *is_given && !belongs) {
            Some((field, _, _, kinds)) => Err(FieldError::new(field, format!("is only for kind {kinds}"))),
            None => Ok(()),
        }
    }

    fn spec(self) -> Result<TimerSpec, FieldError> {
        let needed = |field: &str| FieldError::new(field, "must be given");
        let period_ms = self.period_ms.ok_or_else(|| needed("period_ms"));
        let initial_delay_ms = self.initial_delay_ms.unwrap_or(0);
        match self.kind {
            Kind::Cron => {
                let cron = self.cron.ok_or_else(|| needed("cron"))?;
                Ok(TimerSpec::Cron { cron, timezone: self.timezone })
            }
            Kind::FixedRate => Ok(TimerSpec::FixedRate { period_ms: period_ms?, initial_delay_ms }),
            Kind::FixedDelay => Ok(TimerSpec::FixedDelay { period_ms: period_ms?, initial_delay_ms }),
            Kind::Once => match (self.delay_ms, self.at) {
                (Some(delay_ms), None) => Ok(TimerSpec::OnceAfter { delay_ms }),
                (None, Some(At(at))) => Ok(TimerSpec::OnceAt { at }),
                (Some(_), Some(_)) => Err(FieldError::new("at", "must not be given together with delay_ms")),
                (None, None) => Err(FieldError::new("at", "must be given, or delay_ms")),
            },
        }
    }
}

impl TryFrom<Fields> for Timer {
    type Error = FieldError;

    fn try_from(fields: Fields) -> Result<Timer, FieldError> {
        fields.check()?;
        let time = |at: Option<At>| at.map(|At(time)| time);
        let (start_at, end_at) = (time(fields.start_at), time(fields.end_at));
        let enabled = fields.enabled.unwrap_or(true);
        Ok(Timer { spec: fields.spec()?, start_at, end_at, enabled })
    }
}

impl From<&Timer> for Fields {
    fn from(timer: &Timer) -> Fields {
        let fields = Fields {
            start_at: timer.start_at.map(At),
            end_at: timer.end_at.map(At),
            enabled: Some(timer.enabled),
            ..Fields::default()
        };
        let periodic = |kind, period_ms, initial_delay_ms, fields| Fields {
            kind,
            period_ms: Some(period_ms),
            initial_delay_ms: Some(initial_delay_ms),
            ..fields
        };
        match timer.spec.clone() {
            TimerSpec::Cron { cron, timezone } => Fields { kind: Kind::Cron, cron: Some(cron), timezone, ..fields },
            TimerSpec::FixedRate { period_ms, initial_delay_ms } => {
                periodic(Kind::FixedRate, period_ms, initial_delay_ms, fields)
            }
            TimerSpec::FixedDelay { period_ms, initial_delay_ms } => {
                periodic(Kind::FixedDelay, period_ms, initial_delay_ms, fields)
            }
            TimerSpec::OnceAfter { delay_ms } => Fields { kind: Kind::Once, delay_ms: Some(delay_ms), ..fields },
            TimerSpec::OnceAt { at } => Fields { kind: Kind::Once, at: Some(At(at)), ..fields },
        }
    }
}

impl Serialize for Timer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Fields::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Timer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timer, D::Error> {
        Timer::try_from(Fields::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
