//! Schedules as files: JSON or TOML, to be kept with what they belong to.
//!
//! A file has what somebody decided, and nothing that a server made: no ids, no times of change, no next firings.

use super::page;
use crate::api::Api;
use crate::output;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Rows asked for at once.
const ROWS_AT_ONCE: u32 = 500;
/// What the server made of a schedule, or shows twice.
const NOT_DECIDED: [&str; 7] = ["id", "tenant", "created_at", "updated_at", "app", "service", "method"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Toml,
}

impl Format {
    /// As it was asked for, else by the end of the file's name, else JSON.
    fn of(asked: Option<Format>, file: Option<&Path>) -> Format {
        let is_toml = || file.and_then(Path::extension).is_some_and(|end| end.eq_ignore_ascii_case("toml"));
        asked.unwrap_or_else(|| if is_toml() { Format::Toml } else { Format::Json })
    }
}

#[derive(Args)]
pub(crate) struct ExportArgs {
    /// Which schedules, by their ids; all unless given.
    ids: Vec<u64>,
    /// The file to write; stdout unless given.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The format, where the end of the file's name does not say it.
    #[arg(long)]
    format: Option<Format>,
}

#[derive(Args)]
pub(crate) struct ImportArgs {
    /// The file to read, or - for stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The format, where the end of the file's name does not say it.
    #[arg(long)]
    format: Option<Format>,
}

/// Writes schedules to a file.
pub(crate) async fn export(api: &Api, args: ExportArgs) -> Result<()> {
    let mut schedules = Vec::new();
    if args.ids.is_empty() {
        let mut cursor = None;
        loop {
            let (items, next) = page(api, cursor, ROWS_AT_ONCE, None).await?;
            schedules.extend(items);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        // As they were made.
        schedules.reverse();
    }
    for id in &args.ids {
        schedules.push(api.read(api.request(Method::GET, &["schedules", &id.to_string()])).await?);
    }
    let count = schedules.len();
    let schedules: Vec<Value> = schedules.into_iter().map(decided).collect();
    let text = write(Format::of(args.format, args.file.as_deref()), &json!({"schedules": schedules}))?;
    match &args.file {
        None => output::print(text.trim_end()),
        Some(file) => {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
            output::say(&format_args!("{count} schedules are in {}", file.display()));
            Ok(())
        }
    }
}

/// Makes the schedules of a file, and changes those whose names are there already.
pub(crate) async fn import(api: &Api, is_json: bool, args: ImportArgs) -> Result<()> {
    let text = if args.file.as_os_str() == "-" {
        io::read_to_string(io::stdin()).context("cannot read stdin")?
    } else {
        fs::read_to_string(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?
    };
    let read = read(Format::of(args.format, Some(&args.file)), &text)?;
    for schedule in schedules(read)? {
        let name = schedule.get("name").and_then(Value::as_str).context("each schedule needs a name")?.to_owned();
        let (known, _) = page(api, None, 2, Some(&name)).await?;
        let (request, done) = match &known[..] {
            [] => (api.request(Method::POST, &["schedules"]).json(&schedule), "made"),
            [known] => {
                let id = known["id"].to_string();
                (api.request(Method::PATCH, &["schedules", &id]).json(&replacing(schedule, known)), "changed")
            }
            _ => bail!("there are several schedules named {name}: which one is meant?"),
        };
        let answer = api.answer(request).await.with_context(|| format!("the schedule {name} was not {done}"))?;
        if is_json {
            output::print(&answer.json)?;
        } else {
            let shown: Value = api.decode(&answer)?;
            output::print(&format_args!("schedule {} ({}) was {done}", shown["id"], output::cell(&name)))?;
        }
    }
    Ok(())
}

/// A schedule without what a server made of it, and without what is empty.
fn decided(mut schedule: Value) -> Value {
    if let Value::Object(fields) = &mut schedule {
        fields.retain(|name, _| !NOT_DECIDED.contains(&name.as_str()));
        if let Some(Value::Array(timers)) = fields.get_mut("timers") {
            timers.iter_mut().for_each(|timer| *timer = decided_timer(timer.take()));
        }
        tidy(fields);
        for child in fields.get_mut("children").and_then(Value::as_array_mut).into_iter().flatten() {
            *child = decided(child.take());
        }
    }
    schedule
}

fn decided_timer(mut timer: Value) -> Value {
    if let Value::Object(fields) = &mut timer {
        fields.remove("id");
        fields.remove("next");
        tidy(fields);
    }
    timer
}

/// Without what is empty. What a payload has stays as it is.
fn tidy(fields: &mut Map<String, Value>) {
    fields.retain(|name, value| !(value.is_null() || name == "children" && *value == json!([])));
}

/// The edit that makes a schedule what a file says. What the file does not name is as it was at first; its status stays.
fn replacing(schedule: Map<String, Value>, known: &Value) -> Map<String, Value> {
    let first = json!({"payload": null, "key": null, "creator": null, "category": null, "priority": null, "max_attempts": null,
        "retry": null, "timeout_ms": null, "log": "trans_log", "misfire": {"policy": "fire_once"}, "overlap": "allow",
        "shards": null, "children": [], "timers": []});
    let mut edit = match first {
        Value::Object(first) => first,
        _ => Map::new(),
    };
    edit.extend(schedule);
    // A timer that did not change goes on where it is.
    let mut own: Vec<Value> = known["timers"].as_array().cloned().unwrap_or_default();
    for timer in edit.get_mut("timers").and_then(Value::as_array_mut).into_iter().flatten() {
        let wanted = decided_timer(timer.clone());
        if let Some(place) = own.iter().position(|one| decided_timer(one.clone()) == wanted) {
            timer["id"] = own.remove(place)["id"].take();
        }
    }
    edit
}

/// The schedules of a file: a list of them, alone or under its name, or one.
fn schedules(read: Value) -> Result<Vec<Map<String, Value>>> {
    let list = match read {
        Value::Object(mut file) if file.contains_key("schedules") => match file.remove("schedules") {
            Some(Value::Array(list)) if file.is_empty() => list,
            _ => bail!("the file must have a list `schedules` and nothing else"),
        },
        Value::Array(list) => list,
        one => vec![one],
    };
    let object = |schedule| match schedule {
        Value::Object(fields) => Ok(fields),
        _ => bail!("a schedule must be an object"),
    };
    list.into_iter().map(object).collect()
}

fn write(format: Format, value: &Value) -> Result<String> {
    match format {
        Format::Json => Ok(serde_json::to_string_pretty(value)? + "\n"),
        Format::Toml => toml::to_string_pretty(value)
            .context("these schedules have what TOML has no word for, as null in a payload: use JSON"),
    }
}

fn read(format: Format, text: &str) -> Result<Value> {
    match format {
        Format::Json => serde_json::from_str(text).context("the file is not valid JSON"),
        Format::Toml => {
            let table: toml::Table = toml::from_str(text).context("the file is not valid TOML")?;
            Ok(plain(toml::Value::Table(table)))
        }
    }
}

/// TOML as JSON. A time is its text.
fn plain(value: toml::Value) -> Value {
    match value {
        toml::Value::Datetime(time) => json!(time.to_string()),
        toml::Value::Array(list) => list.into_iter().map(plain).collect(),
        toml::Value::Table(table) => {
            Value::Object(table.into_iter().map(|(name, value)| (name, plain(value))).collect())
        }
        toml::Value::String(text) => json!(text),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) => json!(number),
        toml::Value::Boolean(is_true) => json!(is_true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> Value {
        json!({"id": 5, "tenant": "default", "name": "nightly", "type": "a:b:c", "app": "a", "service": "b", "method": "c",
            "payload": {"n": 1.5, "deep": [{"x": true}]}, "key": null, "status": "online", "log": "none",
            "misfire": {"policy": "catch_up", "max": 7}, "shards": null, "created_at": "x", "updated_at": "y",
            "timers": [{"id": 6, "kind": "cron", "cron": "0 0 1 1 *", "timezone": "UTC", "start_at": null, "enabled": true, "next": null}],
            "children": [{"name": null, "type": "a:b:d", "service": "b", "method": "d", "enabled": true, "children": []}]})
    }

    #[test]
    fn a_file_has_what_was_decided_in_both_formats() {
        let file = json!({"schedules": [decided(shown())]});
        assert_eq!(
            file["schedules"][0],
            json!({"name": "nightly", "type": "a:b:c", "payload": {"n": 1.5, "deep": [{"x": true}]}, "status": "online",
                "log": "none", "misfire": {"policy": "catch_up", "max": 7},
                "timers": [{"kind": "cron", "cron": "0 0 1 1 *", "timezone": "UTC", "enabled": true}],
                "children": [{"type": "a:b:d", "enabled": true}]})
        );
        for format in [Format::Json, Format::Toml] {
            assert_eq!(read(format, &write(format, &file).unwrap()).unwrap(), file, "{format:?}");
        }
        let with_null = json!({"schedules": [{"name": "n", "payload": {"a": null}}]});
        assert!(write(Format::Toml, &with_null).is_err(), "TOML has no null");
    }

    #[test]
    fn a_timer_that_did_not_change_keeps_its_id() {
        let Value::Object(mut same) = decided(shown()) else { panic!() };
        let edit = replacing(same.clone(), &shown());
        assert_eq!(
            (&edit["timers"][0]["id"], &edit["key"], &edit["overlap"]),
            (&json!(6), &Value::Null, &json!("allow"))
        );
        same["timers"][0]["cron"] = json!("0 0 2 1 *");
        assert_eq!(replacing(same, &shown())["timers"][0].get("id"), None);
    }

    #[test]
    fn toml_is_read_with_its_own_times() {
        let file =
            "[[schedules]]\nname = 'n'\ntype = 't'\n[[schedules.timers]]\nkind = 'once'\nat = 2030-01-31T08:00:00Z\n";
        let read = schedules(read(Format::Toml, file).unwrap()).unwrap();
        assert_eq!(read[0]["timers"][0]["at"], "2030-01-31T08:00:00Z");
        assert_eq!(Format::of(None, Some(Path::new("a.TOML"))), Format::Toml);
        assert_eq!(Format::of(Some(Format::Json), Some(Path::new("a.toml"))), Format::Json);
        assert_eq!(Format::of(None, None), Format::Json);
    }
}
