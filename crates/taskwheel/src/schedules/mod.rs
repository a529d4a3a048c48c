//! `taskwheel schedules`: what fires when.

mod files;
mod settings;

use crate::api::{Api, ApiError};
use crate::output::{self, Fields, text};
use crate::runs::{self, RunFilter};
use anyhow::Result;
use clap::{Args, Subcommand};
use files::{ExportArgs, ImportArgs};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::{SettingArgs, TimerArgs};

const LIST_COLUMNS: [&str; 6] = ["id", "name", "type", "status", "next", "timers"];
const TIMER_COLUMNS: [&str; 9] =
    ["id", "kind", "cron", "timezone", "period_ms", "start_at", "end_at", "enabled", "next"];
const FIRING_COLUMNS: [&str; 2] = ["due_at", "timer_id"];
/// The fields that say what a schedule is; the others follow by name.
const SHOWN_FIRST: [&str; 6] = ["id", "name", "type", "status", "payload", "children"];
/// Runs that are shown with a schedule.
const LAST_RUNS: &str = "5";

#[derive(Subcommand)]
pub(crate) enum SchedulesCommand {
    /// Make a schedule.
    Add(Box<AddArgs>),
    /// List schedules, the newest first.
    List(ListArgs),
    /// Show a schedule with its next firings and its last runs.
    Show {
        /// The schedule's id or name.
        schedule: String,
        /// How many of the coming firings.
        #[arg(long, default_value_t = 5)]
        count: u32,
    },
    /// Change a schedule, from its next firing on; what is not named stays.
    Edit(Box<EditArgs>),
    /// Let a schedule fire.
    Online {
        /// The schedule's id or name.
        schedule: String,
    },
    /// Keep a schedule from firing.
    Offline {
        /// The schedule's id or name.
        schedule: String,
    },
    /// Run a schedule now.
    Run {
        /// The schedule's id or name.
        schedule: String,
    },
    /// Remove a schedule; what has begun goes on.
    Delete {
        /// The schedule's id or name.
        schedule: String,
    },
    /// List the runs of a schedule, the newest first.
    Runs {
        /// The schedule's id or name.
        schedule: String,
        #[command(flatten)]
        filter: RunFilter,
    },
    /// Make the schedules of a file, and change those whose names are there already.
    Import(ImportArgs),
    /// Write schedules as JSON or TOML.
    Export(ExportArgs),
}

#[derive(Args)]
pub(crate) struct AddArgs {
    /// A name for people.
    name: String,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    timers: TimerArgs,
}

#[derive(Args)]
pub(crate) struct EditArgs {
    /// The schedule's id or name.
    schedule: String,
    /// A name for people.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    timers: TimerArgs,
}

impl EditArgs {
    /// A change of nothing is a mistake.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let body = settings::body(self.name.as_deref(), &self.settings, &self.timers);
        let is_empty = body.is_ok_and(|body| body.is_empty());
        is_empty.then_some("there is nothing to change: give a setting, a timer or --name")
    }
}

/// Which schedules, as flags and as the query of the call.
#[derive(Args, Serialize)]
pub(crate) struct ListArgs {
    /// The whole name.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The type that they fire.
    #[arg(long = "type", value_name = "TYPE")]
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    task_type: Option<String>,
    /// Whether they fire.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<settings::Status>,
    /// Most schedules in a page, 500 at most.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u32,
    /// Where an earlier page ended.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
    next_cursor: Option<String>,
}

pub(crate) async fn schedules(api: &Api, is_json: bool, command: SchedulesCommand) -> Result<()> {
    let to = async |method: Method, schedule: &str, verb: &str| -> Result<RequestBuilder, ApiError> {
        let id = id_of(api, schedule).await?;
        let path = ["schedules", &id, verb];
        Ok(api.request(method, if verb.is_empty() { &path[..2] } else { &path }))
    };
    match command {
        SchedulesCommand::Add(args) => {
            let body = settings::body(Some(&args.name), &args.settings, &args.timers)?;
            let request = api.request(Method::POST, &["schedules"]).json(&body);
            standing(api, is_json, request).await.map_err(|error| by_flag(error, &args.timers))
        }
        SchedulesCommand::Edit(args) => {
            let body = settings::body(args.name.as_deref(), &args.settings, &args.timers)?;
            let request = to(Method::PATCH, &args.schedule, "").await?.json(&body);
            standing(api, is_json, request).await.map_err(|error| by_flag(error, &args.timers))
        }
        SchedulesCommand::Online { schedule } => {
            standing(api, is_json, to(Method::POST, &schedule, "online").await?).await
        }
        SchedulesCommand::Offline { schedule } => {
            standing(api, is_json, to(Method::POST, &schedule, "offline").await?).await
        }
        SchedulesCommand::Run { schedule } => {
            runs::standing(api, is_json, to(Method::POST, &schedule, "run").await?).await
        }
        SchedulesCommand::Runs { schedule, filter } => {
            runs::list(api, is_json, to(Method::GET, &schedule, "runs").await?.query(&filter)).await
        }
        SchedulesCommand::Show { schedule, count } => {
            let id = id_of(api, &schedule).await?;
            let get = |path: &[&str]| api.request(Method::GET, path);
            let next = get(&["schedules", &id, "next"]).query(&[("count", count)]);
            let last = get(&["schedules", &id, "runs"]).query(&[("limit", LAST_RUNS)]);
            show(api, is_json, [get(&["schedules", &id]), next, last]).await
        }
        SchedulesCommand::Delete { schedule } => {
            api.answer(to(Method::DELETE, &schedule, "").await?).await?;
            if is_json { Ok(()) } else { output::print(&format_args!("schedule {schedule} is deleted")) }
        }
        SchedulesCommand::List(args) => list(api, is_json, args).await,
        SchedulesCommand::Import(args) => files::import(api, is_json, args).await,
        SchedulesCommand::Export(args) => files::export(api, args).await,
    }
}

/// The id of a schedule that is named by it, or by its name.
async fn id_of(api: &Api, schedule: &str) -> Result<String, ApiError> {
    if schedule.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(schedule.to_owned());
    }
    let (known, _) = page(api, None, 2, Some(schedule)).await?;
    match &known[..] {
        [one] => Ok(one["id"].to_string()),
        [] => {
            let message = format!("there is no schedule named {schedule}");
            Err(ApiError::Refused { status: StatusCode::NOT_FOUND, message, seen_by: None })
        }
        _ => {
            let message = format!("there are several schedules named {schedule}: say which one by its id");
            let seen_by = Some(format!("taskwheel schedules list --name {schedule:?}"));
            Err(ApiError::Refused { status: StatusCode::CONFLICT, message, seen_by })
        }
    }
}

/// A page of schedules, as the server shows them.
async fn page(
    api: &Api,
    cursor: Option<String>,
    limit: u32,
    name: Option<&str>,
) -> Result<(Vec<Value>, Option<String>), ApiError> {
    let mut request = api.request(Method::GET, &["schedules"]).query(&[("limit", limit)]);
    for (field, value) in [("cursor", cursor.as_deref()), ("name", name)] {
        if let Some(value) = value {
            request = request.query(&[(field, value)]);
        }
    }
    let page: Page<Value> = api.read(request).await?;
    Ok((page.items, page.next_cursor))
}

/// Sends a request that is answered with a schedule, and says how that stands.
async fn standing(api: &Api, is_json: bool, request: RequestBuilder) -> Result<()> {
    let answer = api.answer(request).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let schedule: Value = api.decode(&answer)?;
    let (id, status) = (&schedule["id"], schedule["status"].as_str().unwrap_or_default());
    match next_of(&schedule) {
        Some(next) => output::print(&format_args!("schedule {id} is {status}, it fires next at {next}")),
        None => output::print(&format_args!("schedule {id} is {status}")),
    }
}

/// What the server refused, by the flags of the timers.
fn by_flag(error: anyhow::Error, timers: &TimerArgs) -> anyhow::Error {
    match error.downcast() {
        Ok(ApiError::Refused { status, message, seen_by }) => {
            ApiError::Refused { status, message: timers.by_flag(message), seen_by }.into()
        }
        Ok(error) => error.into(),
        Err(error) => error,
    }
}

/// The earliest time at which a timer of a schedule fires.
fn next_of(schedule: &Value) -> Option<&str> {
    schedule["timers"].as_array()?.iter().filter_map(|timer| timer["next"].as_str()).min()
}

async fn list(api: &Api, is_json: bool, args: ListArgs) -> Result<()> {
    let answer = api.answer(api.request(Method::GET, &["schedules"]).query(&args)).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let mut page: Page<Value> = api.decode(&answer)?;
    if page.items.is_empty() {
        output::say("no schedule matches");
        return Ok(());
    }
    for schedule in &mut page.items {
        let timers = schedule["timers"].as_array().map_or(0, Vec::len);
        (schedule["next"], schedule["timers"]) = (next_of(schedule).into(), timers.into());
    }
    let rows = page.items.iter().map(output::fields).collect::<Result<Vec<_>>>()?;
    output::print(&output::table(&LIST_COLUMNS, &rows))?;
    if let Some(cursor) = page.next_cursor {
        output::say(&format_args!("there may be more: add --cursor {cursor}"));
    }
    Ok(())
}

async fn show(api: &Api, is_json: bool, [schedule, next, last]: [RequestBuilder; 3]) -> Result<()> {
    let schedule = api.answer(schedule).await?;
    let (next, last) = (api.answer(next).await?, api.answer(last).await?);
    if is_json {
        return [schedule, next, last].iter().try_for_each(|answer| output::print(&answer.json));
    }
    #[derive(Deserialize)]
    struct Firings {
        firings: Vec<Fields>,
    }
    let mut fields: Fields = api.decode(&schedule)?;
    let timers: Vec<Fields> = match fields.remove("timers") {
        Some(timers) => serde_json::from_str(timers.get())?,
        None => Vec::new(),
    };
    if text(&fields, "children") == "[]" {
        fields.remove("children");
    }
    output::print(&output::record(&SHOWN_FIRST, &fields))?;
    let (Firings { firings }, last): (_, Page<Fields>) = (api.decode(&next)?, api.decode(&last)?);
    for (title, columns, rows) in [
        ("timers", &TIMER_COLUMNS[..], timers),
        ("next firings", &FIRING_COLUMNS, firings),
        ("last runs", &runs::COLUMNS, last.items),
    ] {
        if !rows.is_empty() {
            output::print(&format_args!("\n{title}\n{}", output::table(columns, &rows)))?;
        }
    }
    Ok(())
}
