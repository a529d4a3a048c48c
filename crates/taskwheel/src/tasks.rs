//! `taskwheel tasks`: seeing and changing tasks.

use crate::api::Api;
use crate::args::json;
use crate::duration::{limit_ms, milliseconds, time};
use crate::list::{self, ListArgs};
use crate::output::{self, Fields};
use crate::selection::{Action, Details, Selection};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;

const ATTEMPT_COLUMNS: [&str; 7] = ["round", "attempt", "outcome", "started_at", "finished_at", "host", "error"];
/// The fields that say how a task stands; the others follow by name.
const SHOWN_FIRST: [&str; 8] = ["id", "type", "key", "status", "priority", "run_at", "error_info", "result"];

#[derive(Subcommand)]
pub(crate) enum TasksCommand {
    /// List tasks, the newest first.
    List(ListArgs),
    /// Show everything about a task, with its attempts.
    Show {
        /// The task's id.
        id: u64,
    },
    /// Call tasks off.
    Cancel(Selection),
    /// Run ended tasks again from the start.
    Retry(Selection),
    /// Make waiting tasks due now.
    RunNow(Selection),
    /// Mark failed or pending tasks as dealt with by a person.
    Resolve {
        #[command(flatten)]
        selection: Selection,
        /// What was done about it.
        #[arg(long)]
        remark: Option<String>,
    },
    /// Give waiting tasks another due time.
    Reschedule {
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        when: When,
    },
    /// Give tasks another priority.
    SetPriority {
        #[command(flatten)]
        selection: Selection,
        /// 1 to 9; higher ones are run first.
        #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=9))]
        to: u8,
    },
    /// Change the settings of a task.
    Edit {
        /// The task's id.
        id: u64,
        #[command(flatten)]
        changes: Changes,
    },
    /// Remove a finished task for good.
    Delete {
        /// The task's id.
        id: u64,
    },
}

impl TasksCommand {
    /// A change needs to be told what to change: all tasks are changed only by who says so.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let selection = match self {
            TasksCommand::Cancel(selection)
            | TasksCommand::Retry(selection)
            | TasksCommand::RunNow(selection)
            | TasksCommand::Resolve { selection, .. }
            | TasksCommand::Reschedule { selection, .. }
            | TasksCommand::SetPriority { selection, .. } => selection,
            _ => return None,
        };
        selection.is_empty().then_some("which tasks? Name their ids, give a filter like --type mail, or --all")
    }
}

/// A new due time.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct When {
    /// Run them at this time, like 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    to: Option<Timestamp>,
    /// Run them so much later than now, like 10s, 5m, 2h or 1d; now is by the clock of this machine, not the database's.
    #[arg(long = "delay", value_name = "DURATION", value_parser = milliseconds)]
    delay_ms: Option<i64>,
}

/// What shall change about a task.
#[derive(Args, Serialize)]
#[group(required = true, multiple = true)]
pub(crate) struct Changes {
    /// 1 to 9; higher ones are run first.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    /// Run it at this time, like 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "delay_ms", value_parser = time)]
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    /// Run it so much later than now, like 10s, 5m, 2h or 1d; now is by the clock of this machine, not the database's.
    #[arg(long = "delay", value_name = "DURATION", value_parser = milliseconds)]
    #[serde(skip)]
    delay_ms: Option<i64>,
    /// How often it is tried; -1 is without end.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    /// Its data: JSON, @FILE, or - for stdin.
    #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    /// When it is tried again, like {"strategy":"fixed","delay_ms":5000}.
    #[arg(long, value_name = "JSON", value_parser = json)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Box<RawValue>>,
    /// The hard limit of one attempt, like 30s, or none.
    #[arg(long = "timeout", value_name = "DURATION", value_parser = limit_ms)]
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
    /// Give it up when it has not begun by this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_at: Option<Timestamp>,
    /// What a person says about it.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<String>,
}

pub(crate) async fn tasks(api: &Api, is_json: bool, command: TasksCommand) -> Result<()> {
    let action = |name| Action { name, details: Details::default() };
    match command {
        TasksCommand::List(args) => list::list(api, is_json, args).await,
        TasksCommand::Show { id } => show(api, is_json, id).await,
        TasksCommand::Cancel(selection) => selection.act(api, is_json, &action("cancel")).await,
        TasksCommand::Retry(selection) => selection.act(api, is_json, &action("retry")).await,
        TasksCommand::RunNow(selection) => selection.act(api, is_json, &action("run_now")).await,
        TasksCommand::Resolve { selection, remark } => {
            let details = Details { remark, ..Details::default() };
            selection.act(api, is_json, &Action { name: "resolve", details }).await
        }
        TasksCommand::Reschedule { selection, when: When { to, delay_ms } } => {
            let details = Details { run_at: due(to, delay_ms)?, ..Details::default() };
            selection.act(api, is_json, &Action { name: "reschedule", details }).await
        }
        TasksCommand::SetPriority { selection, to } => {
            let details = Details { priority: Some(to), ..Details::default() };
            selection.act(api, is_json, &Action { name: "set_priority", details }).await
        }
        TasksCommand::Edit { id, changes } => edit(api, is_json, id, changes).await,
        TasksCommand::Delete { id } => delete(api, is_json, id).await,
    }
}

async fn show(api: &Api, is_json: bool, id: u64) -> Result<()> {
    let request = api.request(Method::GET, &["tasks", &id.to_string()]);
    let answer = api.answer(request).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let mut task: Fields = api.decode(&answer)?;
    let attempts: Vec<Fields> = match task.remove("attempts_log") {
        Some(log) => serde_json::from_str(log.get())?,
        None => Vec::new(),
    };
    output::print(&output::record(&SHOWN_FIRST, &task))?;
    if !attempts.is_empty() {
        output::print(&format_args!("\n{}", output::table(&ATTEMPT_COLUMNS, &attempts)))?;
    }
    Ok(())
}

/// A due time as the API takes it. A change, unlike a submit, knows no delay by the database's clock.
fn due(at: Option<Timestamp>, delay_ms: Option<i64>) -> Result<Option<Timestamp>> {
    let Some(delay_ms) = delay_ms else { return Ok(at) };
    let due = Timestamp::now().checked_add(SignedDuration::from_millis(delay_ms));
    due.context("--delay is too long").map(Some)
}

async fn edit(api: &Api, is_json: bool, id: u64, mut changes: Changes) -> Result<()> {
    changes.run_at = due(changes.run_at, changes.delay_ms)?;
    let request = api.request(Method::PATCH, &["tasks", &id.to_string()]).json(&changes);
    let answer = api.answer(request).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let task: Fields = api.decode(&answer)?;
    output::print(&output::standing(&task))
}

async fn delete(api: &Api, is_json: bool, id: u64) -> Result<()> {
    let request = api.request(Method::DELETE, &["tasks", &id.to_string()]);
    api.answer(request).await?;
    if is_json { Ok(()) } else { output::print(&format_args!("task {id} is deleted")) }
}
