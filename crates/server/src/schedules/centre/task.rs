//! A task of the scheduling centre: its JSON, and what it means as a schedule.

use super::super::target::TargetInput;
use super::super::timers::{self, RawTimer};
use crate::shapes::At;
use jiff::civil::{Date, DateTime};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use taskwheel_model::schedule::Child;
use taskwheel_model::{Definition, FieldError, Time, Timer, field, zone};
use utoipa::ToSchema;

/// A task to make, or with its id to change: all of its timers are replaced.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CentreInput {
    pub(super) task_info_conf: CentreTask,
    pub(super) task_schedule_conf: CentreSchedule,
}

/// A task of the centre.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CentreTask {
    /// 1 is on, -1 is off.
    pub(super) status: Option<i64>,
    /// Of a task that exists. In a subtask it says nothing.
    pub(super) task_id: Option<i64>,
    task_name: String,
    /// In milliseconds; without it, or -1, there is none.
    timeout: Option<i64>,
    /// In a subtask without it: that of the task.
    app_service_name: Option<String>,
    api_service_name: String,
    api_method_name: String,
    #[serde(default)]
    #[schema(no_recursion)]
    sub_task_list: Option<Vec<CentreTask>>,
}

/// When a task of the centre fires.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CentreSchedule {
    pub(super) timer_list: Vec<CentreTimer>,
}

/// A timer of the centre.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CentreTimer {
    /// 1 cron, 2 fixed rate, 3 fixed delay, 4 once.
    #[schema(minimum = 1, maximum = 4)]
    timer_type: i64,
    cron: Option<String>,
    /// Types 2 and 3, in milliseconds.
    period: Option<i64>,
    /// Types 2 and 3, in milliseconds.
    init_delay: Option<i64>,
    /// Type 4, in milliseconds.
    delay: Option<i64>,
    #[schema(value_type = Option<CentreTime>)]
    start_date_time: Option<Value>,
    #[schema(value_type = Option<CentreTime>)]
    end_date_time: Option<Value>,
    /// 1 is on, -1 is off.
    status: Option<i64>,
}

/// A time: milliseconds since 1970, `2021-08-09`, `2021-08-09 12:00:00`, or RFC 3339. The middle two are local times of the server's zone.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes what is read by hand")]
pub(crate) enum CentreTime {
    Milliseconds(i64),
    Text(String),
}

pub(super) fn definition(task: &CentreTask) -> Result<Definition, FieldError> {
    let app = task.app_service_name.as_deref();
    let app = app.ok_or_else(|| FieldError::new("app", "must be given"))?;
    Ok(Definition {
        name: task.task_name.clone(),
        task_type: target(app, task, "")?,
        timeout_ms: Some(task.timeout.unwrap_or(-1)),
        children: children(task, app, "")?,
        ..Definition::default()
    })
}

fn target(app: &str, task: &CentreTask, place: &str) -> Result<String, FieldError> {
    let (service, method) = (Some(task.api_service_name.as_str()), Some(task.api_method_name.as_str()));
    TargetInput { task_type: None, app: Some(app), service, method }.resolve(place)
}

fn children(task: &CentreTask, app: &str, place: &str) -> Result<Vec<Child>, FieldError> {
    let child = |(index, task): (usize, &CentreTask)| {
        let place = format!("{place}children[{index}].");
        let own = task.app_service_name.as_deref().unwrap_or(app);
        Ok(Child {
            name: Some(task.task_name.clone()),
            task_type: target(own, task, &place)?,
            payload: None,
            timeout_ms: Some(task.timeout.unwrap_or(-1)),
            enabled: task.status.map_or(Ok(true), |status| is_on(&format!("{place}status"), status))?,
            children: children(task, app, &place)?,
        })
    };
    task.sub_task_list.iter().flatten().enumerate().map(child).collect()
}

pub(super) fn is_on(field: &str, status: i64) -> Result<bool, FieldError> {
    match status {
        1 => Ok(true),
        -1 => Ok(false),
        _ => Err(FieldError::new(field, "must be 1 (on) or -1 (off)")),
    }
}

pub(super) fn timers(timers: &[CentreTimer], timezone: &str) -> Result<Vec<(Option<i64>, Timer)>, FieldError> {
    let raw = |(place, timer): (usize, &CentreTimer)| raw_timer(&format!("timers[{place}]."), timer, timezone);
    timers::read(timers.iter().enumerate().map(raw).collect::<Result<_, _>>()?, timezone)
}

/// A timer in the words of `/v1`. What another type has is refused, unless it is the nought that some languages have for nothing.
fn raw_timer(place: &str, timer: &CentreTimer, timezone: &str) -> Result<RawTimer, FieldError> {
    let kind = match timer.timer_type {
        1 => "cron",
        2 => "fixed_rate",
        3 => "fixed_delay",
        4 => "once",
        _ => return Err(FieldError::new(format!("{place}timerType"), "must be 1, 2, 3 or 4")),
    };
    let mut raw = Map::new();
    raw.insert("kind".into(), json!(kind));
    if let Some(cron) = timer.cron.as_ref().filter(|cron| kind == "cron" || !cron.is_empty()) {
        raw.insert("cron".into(), json!(cron));
    }
    let is_periodic = matches!(kind, "fixed_rate" | "fixed_delay");
    let numbers = [
        ("period_ms", timer.period, is_periodic),
        ("initial_delay_ms", timer.init_delay, is_periodic),
        ("delay_ms", timer.delay, kind == "once"),
    ];
    for (name, value, belongs) in numbers {
        if let Some(value) = value.filter(|value| belongs || *value != 0) {
            raw.insert(name.into(), json!(value));
        }
    }
    if kind == "once" && timer.delay.is_none() {
        return Err(FieldError::new(format!("{place}delay_ms"), "must be given"));
    }
    for (name, time) in [("start_at", &timer.start_date_time), ("end_at", &timer.end_date_time)] {
        if let Some(time) = time {
            let at = read_time(&format!("{place}{name}"), time, timezone)?;
            raw.insert(name.into(), json!(At(at)));
        }
    }
    if let Some(status) = timer.status {
        raw.insert("enabled".into(), json!(is_on(&format!("{place}status"), status)?));
    }
    Ok(raw)
}

fn read_time(name: &str, time: &Value, timezone: &str) -> Result<Time, FieldError> {
    let bad = || {
        let message = "must be as 2021-08-09, 2021-08-09 12:00:00, RFC 3339, or milliseconds since 1970";
        FieldError::new(name, message)
    };
    let time = match time {
        Value::Number(ms) => Time(ms.as_i64().ok_or_else(bad)?),
        Value::String(text) => match (text.parse(), text.parse::<jiff::Timestamp>()) {
            (Ok(ms), _) => Time(ms),
            (_, Ok(timestamp)) => Time(timestamp.as_millisecond()),
            _ => {
                let date = |_| text.parse::<Date>().map(|date| date.at(0, 0, 0, 0));
                let local: DateTime = text.parse().or_else(date).map_err(|_: jiff::Error| bad())?;
                let zoned = local.to_zoned(zone::find(name, timezone)?).map_err(|_| bad())?;
                Time(zoned.timestamp().as_millisecond())
            }
        },
        _ => return Err(bad()),
    };
    field::time(name, time)?;
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: Value) -> Result<String, String> {
        let read = read_time("timers[0].start_at", &time, "Asia/Shanghai").map_err(|error| error.to_string())?;
        Ok(json!(At(read)).as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn times_are_read_in_the_servers_zone() {
        let noon = "2021-08-09T04:00:00.000Z";
        assert_eq!(at(json!("2021-08-09")).unwrap(), "2021-08-08T16:00:00.000Z");
        assert_eq!(at(json!("2021-08-09 12:00:00")).unwrap(), noon);
        assert_eq!(at(json!("2021-08-09T12:00:00+08:00")).unwrap(), noon);
        assert_eq!(at(json!("2021-08-09T04:00:00Z")).unwrap(), noon);
        assert_eq!(at(json!(1_628_481_600_000_i64)).unwrap(), noon);
        assert_eq!(at(json!("1628481600000")).unwrap(), noon);
        for bad in [json!("tomorrow"), json!("2021-13-01"), json!(1.5), json!([]), json!(""), json!(-1)] {
            assert!(at(bad.clone()).unwrap_err().starts_with("timers[0].start_at: "), "{bad}");
        }
    }
}
