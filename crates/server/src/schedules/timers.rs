//! Timers as they come and go, and the firings they bring.

use crate::input::named;
use crate::shapes::At;
use serde::Serialize;
use serde_json::{Map, Value, json};
use taskwheel_model::timer::{Coming, preview};
use taskwheel_model::{FieldError, Rhythm, ScheduleStatus, Time, Timer};
use taskwheel_store::schedule::{Schedule, TimerState};
use utoipa::ToSchema;

/// When a schedule fires. Which fields belong together depends on the kind.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) struct TimerInput {
    /// That of a timer that the schedule has already: unchanged, it goes on where it is.
    id: Option<i64>,
    kind: TimerKind,
    /// Kind cron: 5 fields, 6 with seconds first, or 7 with the year last.
    cron: Option<String>,
    /// Kind cron: the zone's name; without it the server's.
    timezone: Option<String>,
    /// Kinds fixed_rate and fixed_delay.
    #[schema(minimum = 1)]
    period_ms: Option<i64>,
    /// Kinds fixed_rate and fixed_delay: from coming online to the first firing.
    #[schema(minimum = 0)]
    initial_delay_ms: Option<i64>,
    /// Kind once: from coming online to the firing.
    #[schema(minimum = 0)]
    delay_ms: Option<i64>,
    /// Kind once: the time.
    at: Option<At>,
    /// It is not due before this.
    start_at: Option<At>,
    /// It is not due at this time or after it.
    end_at: Option<At>,
    /// Whether it fires at all; true where it is not said.
    enabled: Option<bool>,
}

/// What makes a timer fire.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes the model's own type")]
pub(crate) enum TimerKind {
    /// Local times.
    Cron,
    /// A grid.
    FixedRate,
    /// Some time after the end of the run before.
    FixedDelay,
    /// One time.
    Once,
}

/// A timer of a schedule, with the time that it fires next.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what is made from the model's own type")]
pub(crate) struct TimerView {
    id: i64,
    kind: TimerKind,
    cron: Option<String>,
    timezone: Option<String>,
    period_ms: Option<i64>,
    initial_delay_ms: Option<i64>,
    delay_ms: Option<i64>,
    at: Option<At>,
    start_at: Option<At>,
    end_at: Option<At>,
    enabled: bool,
    /// Null while the schedule is not online, after the last firing, and while a fixed delay waits for its run to end.
    next: Option<At>,
}

/// A timer as it came, not understood yet.
pub(super) type RawTimer = Map<String, Value>;

/// Reads a list of timers, each with the id it was given. Each expression is put into its time zone.
pub(super) fn read(timers: Vec<RawTimer>, timezone: &str) -> Result<Vec<(Option<i64>, Timer)>, FieldError> {
    let read = |(place, timer): (usize, RawTimer)| read_one(&format!("timers[{place}]"), timer, timezone);
    timers.into_iter().enumerate().map(read).collect()
}

fn read_one(place: &str, mut timer: RawTimer, timezone: &str) -> Result<(Option<i64>, Timer), FieldError> {
    let id = match timer.remove("id") {
        None | Some(Value::Null) => None,
        Some(id) => Some(id.as_i64().ok_or_else(|| FieldError::new(format!("{place}.id"), "must be a whole number"))?),
    };
    let timer: Timer = serde_path_to_error::deserialize(Value::Object(timer)).map_err(|error| {
        let FieldError { field, message } = named(&error.path().to_string(), &error.inner().to_string());
        // What only the timer as a whole shows is said as `field: message`.
        match message.split_once(": ").filter(|_| field == "body") {
            Some((inner, message)) => FieldError::new(format!("{place}.{inner}"), message),
            None => FieldError::new(format!("{place}.{field}"), message),
        }
    })?;
    let timer = timer.in_zone(timezone);
    timer.validate(place)?;
    Ok((id, timer))
}

/// A timer as it is shown.
pub(super) fn shown(state: &TimerState) -> Value {
    let mut shown = json!(state.timer);
    shown["id"] = json!(state.id);
    shown["next"] = json!(state.next_due.map(At));
    shown
}

/// Coming firings, the earliest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Firings {
    firings: Vec<FiringView>,
}

/// A coming firing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FiringView {
    due_at: At,
    timer_id: i64,
}

/// The coming firings of a schedule. Where it is not online: as if it came online now.
pub(super) fn firings(schedule: &Schedule, now: Time, count: usize) -> Result<Firings, FieldError> {
    let mut timers = Vec::with_capacity(schedule.timers.len());
    for state in &schedule.timers {
        let rhythm = state.timer.rhythm("timer", "UTC")?;
        let cursor = match schedule.status {
            ScheduleStatus::Online => state.next_due,
            ScheduleStatus::New | ScheduleStatus::Offline => online_now(state, &rhythm, now),
        };
        timers.push((rhythm, cursor));
    }
    let shown = |Coming { timer, due }: Coming| FiringView { due_at: At(due), timer_id: schedule.timers[timer].id };
    Ok(Firings { firings: preview(&timers, now, count).into_iter().map(shown).collect() })
}

/// Where a timer would go on if its schedule came online.
fn online_now(state: &TimerState, rhythm: &Rhythm, now: Time) -> Option<Time> {
    match state.cursor {
        _ if !state.has_begun => rhythm.first_due(now),
        Some(cursor) => rhythm.resume(cursor, now),
        None if rhythm.waits_for_run() => rhythm.first_due(now),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(timer: Value) -> FieldError {
        let Value::Object(timer) = timer else { panic!("a timer is an object") };
        read(vec![timer], "UTC").unwrap_err()
    }

    #[test]
    fn whatever_is_wrong_with_a_timer_is_named_with_its_place() {
        for (timer, field) in [
            (json!({}), "timers[0].kind"),
            (json!({"kind": "monthly"}), "timers[0].kind"),
            (json!({"kind": "cron"}), "timers[0].cron"),
            (json!({"kind": "cron", "cron": 5}), "timers[0].cron"),
            (json!({"kind": "cron", "cron": "61 * * * *"}), "timers[0].cron"),
            (json!({"kind": "cron", "cron": "* * * * *", "timezone": "Mars/Olympus"}), "timers[0].timezone"),
            (json!({"kind": "cron", "cron": "* * * * *", "period_ms": 5}), "timers[0].period_ms"),
            (json!({"kind": "cron", "cron": "* * * * *", "next": null}), "timers[0].next"),
            (json!({"kind": "cron", "cron": "* * * * *", "id": "x"}), "timers[0].id"),
            (json!({"kind": "fixed_rate", "period_ms": 0}), "timers[0].period_ms"),
            (json!({"kind": "fixed_delay", "period_ms": 5, "initial_delay_ms": -1}), "timers[0].initial_delay_ms"),
            (json!({"kind": "once"}), "timers[0].at"),
            (json!({"kind": "once", "at": "yesterday"}), "timers[0].at"),
            (
                json!({"kind": "once", "delay_ms": 1, "start_at": "2030-01-02T00:00:00Z", "end_at": "2030-01-01T00:00:00Z"}),
                "timers[0].end_at",
            ),
        ] {
            let error = error(timer.clone());
            assert_eq!(error.field, field, "{timer}: {}", error.message);
            assert!(!error.message.is_empty() && !error.message.contains(" at line "), "{timer}: {}", error.message);
        }
    }

    #[test]
    fn an_expression_is_stored_with_the_zone_it_means() {
        let Value::Object(timer) = json!({"kind": "cron", "cron": "* * * * *", "id": 7}) else { panic!() };
        let read = read(vec![timer], "Asia/Shanghai").unwrap();
        assert_eq!(read[0].0, Some(7));
        assert_eq!(json!(read[0].1)["timezone"], "Asia/Shanghai");
    }
}
