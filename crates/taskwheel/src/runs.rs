//! `taskwheel runs`: what came of the firings of schedules.

use crate::api::Api;
use crate::output::{self, Fields, text};
use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::{Method, RequestBuilder};
use serde::{Deserialize, Serialize};

pub(crate) const COLUMNS: [&str; 9] =
    ["id", "schedule_id", "status", "reason", "due_at", "started_at", "finished_at", "host", "error"];
const TASK_COLUMNS: [&str; 7] = ["id", "name", "type", "status", "parent_id", "shard_index", "enabled"];

#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, the newest first.
    List {
        /// Of this schedule.
        #[arg(long, value_name = "ID")]
        schedule_id: Option<u64>,
        #[command(flatten)]
        filter: RunFilter,
    },
    /// Show a run with its whole tree.
    Show {
        /// The run's id.
        id: u64,
    },
    /// Call off what has not ended of a run.
    Cancel {
        /// The run's id.
        id: u64,
    },
}

/// Which runs, as flags and as the query of the call.
#[derive(Args, Serialize)]
pub(crate) struct RunFilter {
    /// How they stand: queued, running, done, failed, timed_out, skipped or cancelled.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// Most runs in a page, 500 at most.
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u32,
    /// Where an earlier page ended.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    items: Vec<Fields>,
    next_cursor: Option<String>,
}

pub(crate) async fn runs(api: &Api, is_json: bool, command: RunsCommand) -> Result<()> {
    match command {
        RunsCommand::List { schedule_id, filter } => {
            let mut request = api.request(Method::GET, &["runs"]).query(&filter);
            if let Some(id) = schedule_id {
                request = request.query(&[("schedule_id", id)]);
            }
            list(api, is_json, request).await
        }
        RunsCommand::Show { id } => show(api, is_json, id).await,
        RunsCommand::Cancel { id } => {
            standing(api, is_json, api.request(Method::POST, &["runs", &id.to_string(), "cancel"])).await
        }
    }
}

/// Sends a request that is answered with a page of runs, and shows that.
pub(crate) async fn list(api: &Api, is_json: bool, request: RequestBuilder) -> Result<()> {
    let answer = api.answer(request).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let listed: Listed = api.decode(&answer)?;
    if listed.items.is_empty() {
        output::say("no run matches");
        return Ok(());
    }
    output::print(&output::table(&COLUMNS, &listed.items))?;
    if let Some(cursor) = listed.next_cursor {
        output::say(&format_args!("there may be more: add --cursor {cursor}"));
    }
    Ok(())
}

/// Sends a request that is answered with a run, and says how that stands.
pub(crate) async fn standing(api: &Api, is_json: bool, request: RequestBuilder) -> Result<()> {
    let answer = api.answer(request).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let run: Fields = api.decode(&answer)?;
    output::print(&format_args!("run {} is {}", text(&run, "id"), text(&run, "status")))
}

async fn show(api: &Api, is_json: bool, id: u64) -> Result<()> {
    let answer = api.answer(api.request(Method::GET, &["runs", &id.to_string()])).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let mut run: Fields = api.decode(&answer)?;
    let tasks: Vec<Fields> = match run.remove("tasks") {
        Some(tasks) => serde_json::from_str(tasks.get())?,
        None => Vec::new(),
    };
    output::print(&output::record(&COLUMNS, &run))?;
    if !tasks.is_empty() {
        output::print(&format_args!("\n{}", output::table(&TASK_COLUMNS, &tasks)))?;
    }
    Ok(())
}
