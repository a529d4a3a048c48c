//! Which tasks a command is about: some by their ids, or all that a filter matches.

use crate::api::Api;
use crate::output::{self, Fields, text};
use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use reqwest::Method;
use serde::Serialize;

/// The filter of a list and of a change of many, as flags, as query and as JSON.
#[derive(Args, Serialize)]
pub(crate) struct Filter {
    /// Statuses, separated by commas: New, Error, …, live, finished.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// The type.
    #[arg(long = "type", value_name = "TYPE")]
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    task_type: Option<String>,
    /// The category.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    /// The whole key.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// The creator.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    creator: Option<String>,
    /// The host that runs it, or that ended it.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    /// The priority.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    /// Due at this time or later.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at_from: Option<Timestamp>,
    /// Due before this time.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at_to: Option<Timestamp>,
    /// Submitted at this time or later.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    created_from: Option<Timestamp>,
    /// Submitted before this time.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    created_to: Option<Timestamp>,
    /// The schedule that fired it.
    #[arg(long, value_name = "ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule_id: Option<u64>,
    /// A part of the key, the payload, the error or the remark.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// The tasks to change.
#[derive(Args)]
pub(crate) struct Selection {
    /// The tasks' ids; or give a filter.
    #[arg(value_name = "ID", conflicts_with_all = ["Filter", "all", "dry_run"])]
    #[arg(required_unless_present_any = ["Filter", "all"])]
    ids: Vec<u64>,
    #[command(flatten)]
    filter: Filter,
    /// All tasks, without a filter.
    #[arg(long, conflicts_with = "Filter")]
    all: bool,
    /// Only say how many tasks match.
    #[arg(long)]
    dry_run: bool,
}

/// What can be done to a selection.
pub(crate) struct Action {
    /// As in the path of one task.
    pub(crate) path: &'static str,
    /// As in a change of many.
    pub(crate) name: &'static str,
    /// What a person says about it.
    pub(crate) remark: Option<String>,
}

/// The body of a change of one task.
#[derive(Serialize)]
struct One<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<&'a str>,
}

/// The body of a change of many tasks.
#[derive(Serialize)]
struct Many<'a> {
    filter: &'a Filter,
    action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remark: Option<&'a str>,
    all: bool,
    dry_run: bool,
}

impl Selection {
    /// Does this to all of them.
    pub(crate) async fn act(&self, api: &Api, is_json: bool, action: &Action) -> Result<()> {
        if self.ids.is_empty() {
            return self.act_on_matching(api, is_json, action).await;
        }
        // One that is refused does not keep the others from it. The last refusal is left to the caller to tell.
        let mut refused = None;
        for id in &self.ids {
            if let Err(error) = act_on(*id, api, is_json, action).await
                && let Some(earlier) = refused.replace(error)
            {
                output::complain(&earlier);
            }
        }
        refused.map_or(Ok(()), Err)
    }

    async fn act_on_matching(&self, api: &Api, is_json: bool, action: &Action) -> Result<()> {
        let Selection { filter, all, dry_run, .. } = self;
        let many = Many { filter, action: action.name, remark: action.remark.as_deref(), all: *all, dry_run: *dry_run };
        let answer = api.answer(api.request(Method::POST, &["tasks", "bulk"]).json(&many)).await?;
        if is_json {
            return output::print(&answer.json);
        }
        let counts: Fields = api.decode(&answer)?;
        let matched = text(&counts, "matched");
        if *dry_run {
            output::print(&format_args!("{} would look at {matched} tasks; nothing is changed", action.path))
        } else {
            output::print(&format_args!("{} changed {} of {matched} tasks", action.path, text(&counts, "changed")))
        }
    }
}

async fn act_on(id: u64, api: &Api, is_json: bool, action: &Action) -> Result<()> {
    let mut request = api.request(Method::POST, &["tasks", &id.to_string(), action.path]);
    if action.path == "resolve" {
        request = request.json(&One { remark: action.remark.as_deref() });
    }
    let answer = api.answer(request).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let task: Fields = api.decode(&answer)?;
    output::print(&output::standing(&task))
}
