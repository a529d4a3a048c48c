//! What a schedule is, as flags and as the body of a call.

use crate::args::json;
use crate::duration::{limit_ms, milliseconds, period_ms, time};
use crate::output::Fields;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// The flags by the fields of timers that they fill. The period has two.
const FLAGS: [(&str, &str); 7] = [
    ("cron", "--cron"),
    ("timezone", "--tz"),
    ("initial_delay_ms", "--initial-delay"),
    ("delay_ms", "--in"),
    ("at", "--at"),
    ("start_at", "--start-at"),
    ("end_at", "--end-at"),
];

/// When it fires. Several of them are several timers.
#[derive(Args)]
#[command(next_help_heading = "When it fires")]
pub(crate) struct TimerArgs {
    /// At the times of a cron expression of 5, 6 or 7 fields; may be given several times.
    #[arg(long, value_name = "EXPRESSION")]
    cron: Vec<String>,
    /// The time zone of the cron expressions, like Asia/Shanghai; else the server's.
    #[arg(long, value_name = "ZONE", requires = "cron")]
    tz: Option<String>,
    /// At a fixed rate, like 10s.
    #[arg(long, value_name = "DURATION", value_parser = period_ms)]
    every: Option<i64>,
    /// So long after the end of each run, like 10s.
    #[arg(long, value_name = "DURATION", value_parser = period_ms)]
    delay_after: Option<i64>,
    /// So long after it came online for the first time; for --every and --delay-after.
    #[arg(long, value_name = "DURATION", value_parser = milliseconds)]
    initial_delay: Option<i64>,
    /// Once, at this time, like 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Timestamp>,
    /// Once, so long after it came online, like 10m.
    #[arg(long = "in", value_name = "DURATION", value_parser = milliseconds)]
    after: Option<i64>,
    /// Not before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    start_at: Option<Timestamp>,
    /// Not at this time, nor later.
    #[arg(long, value_name = "TIME", value_parser = time)]
    end_at: Option<Timestamp>,
    /// A timer as JSON, as the API has it; may be given several times.
    #[arg(long, value_name = "JSON", value_parser = json)]
    timer: Vec<Box<RawValue>>,
}

impl TimerArgs {
    /// The timers, as the API takes them.
    fn timers(&self) -> Result<Vec<Value>> {
        let mut timers = Vec::new();
        for cron in &self.cron {
            timers.push(json!({"kind": "cron", "cron": cron, "timezone": self.tz}));
        }
        for (kind, period) in [("fixed_rate", self.every), ("fixed_delay", self.delay_after)] {
            if let Some(period_ms) = period {
                timers.push(json!({"kind": kind, "period_ms": period_ms, "initial_delay_ms": self.initial_delay}));
            }
        }
        if let Some(at) = self.at {
            timers.push(json!({"kind": "once", "at": at}));
        }
        if let Some(delay_ms) = self.after {
            timers.push(json!({"kind": "once", "delay_ms": delay_ms}));
        }
        if timers.is_empty() && (self.start_at.is_some() || self.end_at.is_some() || self.initial_delay.is_some()) {
            bail!(
                "--start-at, --end-at and --initial-delay need a timer: give --cron, --every, --delay-after, --at or --in"
            );
        }
        for timer in &mut timers {
            (timer["start_at"], timer["end_at"]) = (json!(self.start_at), json!(self.end_at));
        }
        for timer in &self.timer {
            timers.push(serde_json::from_str(timer.get())?);
        }
        Ok(timers)
    }

    /// A refusal by the server, which knows no flags, with timers named by those that made them.
    pub(crate) fn by_flag(&self, mut refusal: String) -> String {
        let timers = self.timers().unwrap_or_default();
        for (index, timer) in timers.iter().enumerate().take(timers.len().saturating_sub(self.timer.len())) {
            let period = if timer["kind"] == "fixed_rate" { "--every" } else { "--delay-after" };
            for (field, flag) in FLAGS.into_iter().chain([("period_ms", period)]) {
                refusal = refusal.replace(&format!("timers[{index}].{field}: "), &format!("{flag}: "));
            }
        }
        refusal
    }
}

/// What it fires, and how. What is not given is not sent.
#[derive(Args, Serialize)]
pub(crate) struct SettingArgs {
    /// The type of its tasks.
    #[arg(long = "type", value_name = "TYPE")]
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    task_type: Option<String>,
    /// Instead of the type: the app whose service it calls.
    #[arg(long, requires = "service", requires = "method")]
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<String>,
    /// The service of the app.
    #[arg(long, requires = "app")]
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    /// The method of the service.
    #[arg(long, requires = "app")]
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    /// The data of its tasks: JSON, @FILE, or - for stdin.
    #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    /// The key of its tasks.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Who or what asked for them.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    creator: Option<String>,
    /// The category of its tasks.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    /// The priority of its tasks, 1 to 9.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    /// How often its tasks are tried; -1 is without end.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    /// When its tasks are tried again, like {"strategy":"fixed","delay_ms":5000}.
    #[arg(long, value_name = "JSON", value_parser = json)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Box<RawValue>>,
    /// The hard limit of one attempt, like 30s, or none.
    #[arg(long = "timeout", value_name = "DURATION", value_parser = limit_ms)]
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
    /// Whether it fires.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// What is recorded of its firings: nothing, each, or each with how its run ended.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Recorded>,
    /// Which firings that were missed are made up for: none, the latest, or the newest ones.
    #[arg(long, value_name = "POLICY")]
    #[serde(skip)]
    misfire: Option<Misfire>,
    /// With catch_up: how many at most.
    #[arg(long, value_name = "COUNT", requires = "misfire")]
    #[serde(skip)]
    misfire_max: Option<u32>,
    /// What is done when a run is due while another goes on.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<Overlap>,
    /// One task for each live worker (per_worker), a number of tasks, or none for one task.
    #[arg(long, value_parser = shards)]
    #[serde(skip_serializing_if = "Option::is_none")]
    shards: Option<Value>,
    /// What follows when its task ended well: a list as JSON, @FILE, or - for stdin.
    #[arg(long, value_name = "JSON", value_parser = json)]
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Box<RawValue>>,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    New,
    Online,
    Offline,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
enum Recorded {
    None,
    TriggerLog,
    TransLog,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
enum Misfire {
    Skip,
    FireOnce,
    CatchUp,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Overlap {
    Allow,
    Skip,
    Queue,
    Replace,
}

fn shards(text: &str) -> Result<Value, String> {
    match text {
        "none" => Ok(Value::Null),
        "per_worker" => Ok(json!(text)),
        _ => text.parse::<u32>().map(|count| json!(count)).map_err(|_| "must be per_worker, a number, or none".into()),
    }
}

/// The body of a call: what the flags say, and the timers where they name some.
pub(crate) fn body(name: Option<&str>, settings: &SettingArgs, timers: &TimerArgs) -> Result<Fields> {
    // By its text, so that a payload is sent as it was written.
    let mut body: Fields = serde_json::from_str(&serde_json::to_string(settings)?)?;
    if let Some(name) = name {
        body.insert("name".into(), to_raw_value(name)?);
    }
    if let Some(policy) = settings.misfire {
        let mut misfire = json!({"policy": policy});
        if let Some(max) = settings.misfire_max {
            misfire["max"] = json!(max);
        }
        body.insert("misfire".into(), to_raw_value(&misfire)?);
    }
    let timers = timers.timers()?;
    if !timers.is_empty() {
        body.insert("timers".into(), to_raw_value(&timers)?);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: SettingArgs,
        #[command(flatten)]
        timers: TimerArgs,
    }

    fn read(line: &[&str]) -> Value {
        let line = Line::try_parse_from([&["add"], line].concat()).unwrap();
        json!(body(Some("n"), &line.settings, &line.timers).unwrap())
    }

    #[test]
    fn flags_are_the_fields_of_the_call() {
        let read = read(&[
            "--type",
            "mail",
            "--cron",
            "0 8 * * *",
            "--tz",
            "Asia/Shanghai",
            "--every",
            "10s",
            "--misfire",
            "catch_up",
            "--misfire-max",
            "5",
            "--shards",
            "none",
            "--log",
            "trigger_log",
            "--end-at",
            "2030-01-31T08:00:00Z",
        ]);
        let end = json!("2030-01-31T08:00:00Z");
        assert_eq!(
            read,
            json!({"name": "n", "type": "mail", "log": "trigger_log", "shards": null, "misfire": {"policy": "catch_up", "max": 5},
                "timers": [
                    {"kind": "cron", "cron": "0 8 * * *", "timezone": "Asia/Shanghai", "start_at": null, "end_at": end},
                    {"kind": "fixed_rate", "period_ms": 10_000, "initial_delay_ms": null, "start_at": null, "end_at": end}]})
        );
    }

    #[test]
    fn what_the_server_refuses_of_a_timer_is_named_by_its_flag() {
        let line = [
            "add",
            "--cron",
            "x",
            "--every",
            "1s",
            "--delay-after",
            "1s",
            "--at",
            "2030-01-31T08:00:00Z",
            "--timer",
            "{}",
        ];
        let timers = Line::try_parse_from(line).unwrap().timers;
        let by_flag = |refusal: &str| timers.by_flag(refusal.to_owned());
        assert_eq!(by_flag("timers[0].cron: has 1 field; name: too long"), "--cron: has 1 field; name: too long");
        assert_eq!(by_flag("timers[1].period_ms: too long"), "--every: too long");
        assert_eq!(by_flag("timers[2].period_ms: too long"), "--delay-after: too long");
        assert_eq!(by_flag("timers[3].at: too late"), "--at: too late");
        assert_eq!(by_flag("timers[4].cron: none"), "timers[4].cron: none", "it was written as JSON");
    }

    #[test]
    fn what_belongs_together_is_given_together() {
        let accepts = |line: &[&str]| Line::try_parse_from([&["add"], line].concat()).is_ok();
        assert!(accepts(&["--app", "a", "--service", "b", "--method", "c"]));
        assert!(!accepts(&["--app", "a", "--service", "b"]));
        assert!(!accepts(&["--service", "b"]));
        assert!(!accepts(&["--tz", "UTC"]));
        assert!(!accepts(&["--misfire-max", "5"]));
        assert!(!accepts(&["--shards", "many"]));
        assert!(!accepts(&["--every", "0s"]));
        let line = Line::try_parse_from(["add", "--end-at", "2030-01-31T08:00:00Z"]).unwrap();
        assert!(body(None, &line.settings, &line.timers).is_err(), "a window needs a timer");
    }
}
