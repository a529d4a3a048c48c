//! Which tasks a command is about: some by their ids, or all that a filter matches.

use crate::api::Api;
use crate::duration::time;
use crate::output::{self, Fields, text};
use crate::progress;
use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use reqwest::{Method, RequestBuilder};
use serde::Serialize;
use serde_json::json;

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
    #[arg(long, value_name = "TIME", value_parser = time)]
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at_from: Option<Timestamp>,
    /// Due before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at_to: Option<Timestamp>,
    /// Submitted at this time or later.
    #[arg(long, value_name = "TIME", value_parser = time)]
    #[serde(skip_serializing_if = "Option::is_none")]
    created_from: Option<Timestamp>,
    /// Submitted before this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
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
    /// As in a change of many; in the path of one task and for people it has a hyphen.
    pub(crate) name: &'static str,
    pub(crate) details: Details,
}

/// What an action needs to know.
#[derive(Default, Serialize)]
pub(crate) struct Details {
    /// To resolve: what a person says about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remark: Option<String>,
    /// To reschedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_at: Option<Timestamp>,
    /// To set the priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<u8>,
}

/// The body of a change of many tasks.
#[derive(Serialize)]
struct Many<'a> {
    filter: &'a Filter,
    action: &'a str,
    #[serde(flatten)]
    details: &'a Details,
    all: bool,
    dry_run: bool,
}

impl Action {
    /// What people call it.
    fn words(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The call that does it to one task.
    fn call(&self, api: &Api, id: u64) -> RequestBuilder {
        let id = id.to_string();
        match self.name {
            "reschedule" | "set_priority" => api.request(Method::PATCH, &["tasks", &id]).json(&self.details),
            "resolve" => api.request(Method::POST, &["tasks", &id, self.name]).json(&self.details),
            _ => api.request(Method::POST, &["tasks", &id, &self.words()]),
        }
    }
}

impl Filter {
    fn is_empty(&self) -> bool {
        serde_json::to_value(self).is_ok_and(|filter| filter == json!({}))
    }
}

impl Selection {
    /// Whether nothing was named.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty() && !self.all && self.filter.is_empty()
    }

    /// Does this to all of them.
    pub(crate) async fn act(&self, api: &Api, is_json: bool, action: &Action) -> Result<()> {
        if self.ids.is_empty() {
            return self.act_on_matching(api, is_json, action).await;
        }
        // One that is refused does not keep the others from it. The last refusal is left to the caller to tell.
        let mut refused = None;
        for (done, id) in self.ids.iter().enumerate() {
            let what = format!("{}: {done} of {} tasks", action.words(), self.ids.len());
            if let Err(error) = act_on(*id, api, is_json, action, &what).await
                && let Some(earlier) = refused.replace(error)
            {
                output::complain(&earlier);
            }
        }
        refused.map_or(Ok(()), Err)
    }

    async fn act_on_matching(&self, api: &Api, is_json: bool, action: &Action) -> Result<()> {
        let Selection { filter, all, dry_run, .. } = self;
        let many = Many { filter, action: action.name, details: &action.details, all: *all, dry_run: *dry_run };
        let words = action.words();
        let answer = api.answer(api.request(Method::POST, &["tasks", "bulk"]).json(&many));
        let answer = progress::shown(&words, answer).await?;
        if is_json {
            return output::print(&answer.json);
        }
        let counts: Fields = api.decode(&answer)?;
        let matched = text(&counts, "matched");
        if *dry_run {
            output::print(&format_args!("{words} would look at {matched} tasks; nothing is changed"))
        } else {
            output::print(&format_args!("{words} changed {} of {matched} tasks", text(&counts, "changed")))
        }
    }
}

async fn act_on(id: u64, api: &Api, is_json: bool, action: &Action, what: &str) -> Result<()> {
    if is_json {
        let answer = progress::shown(what, api.answer(action.call(api, id))).await?;
        return output::print(&answer.json);
    }
    // To ask for the status that a task has already is answered like a change: only how it was before tells. Where that
    // cannot be seen, the call itself says why.
    let before: Option<Fields> = api.read(api.request(Method::GET, &["tasks", &id.to_string()])).await.ok();
    let task: Fields = progress::shown(what, api.read(action.call(api, id))).await?;
    let is_same = |name: &str| before.as_ref().is_some_and(|before| text(before, name) == text(&task, name));
    let note = if ["status", "round", "updated_at"].into_iter().all(is_same) { "; nothing is changed" } else { "" };
    output::print(&format_args!("{}{note}", output::standing(&task)))
}
