//! `taskwheel submit`: a task from the command line.

use crate::api::Api;
use crate::args::json;
use crate::duration::{limit_ms, milliseconds, time};
use crate::output::{self, Fields, text};
use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use reqwest::Method;
use serde::Serialize;
use serde_json::value::RawValue;

/// The flags, and with them the body of the call. What is not given is not sent.
#[derive(Args, Serialize)]
pub(crate) struct SubmitArgs {
    /// The task's type: what kind of work it is.
    #[arg(value_name = "TYPE")]
    #[serde(rename = "type")]
    task_type: String,
    /// What it is about, for people and searches.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Its data: JSON, @FILE, or - for stdin.
    #[arg(long, value_name = "JSON", value_parser = json, allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    /// Run it so much later, like 10s, 5m, 2h or 1d.
    #[arg(long = "delay", value_name = "DURATION", value_parser = milliseconds)]
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<i64>,
    /// Run it at this time, like 2030-01-31T08:00:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "delay_ms", value_parser = time)]
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    /// 1 to 9; higher ones are run first.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    /// Submit nothing while a task of this type with this key is live.
    #[arg(long, value_name = "KEY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<String>,
    /// How often it is tried; -1 is without end.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    /// The hard limit of one attempt, like 30s, or none.
    #[arg(long = "timeout", value_name = "DURATION", value_parser = limit_ms)]
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
    /// Give it up when it has not begun by this time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_at: Option<Timestamp>,
    /// The group of types that workers can ask for as one.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    /// Who or what asked for it.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    creator: Option<String>,
    /// The host that should run it, if a worker there is alive.
    #[arg(long, value_name = "HOST")]
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity: Option<String>,
    /// What belongs together can have the same one, and so the same slot; nothing goes by slots yet.
    #[arg(long, value_name = "KEY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    route_key: Option<String>,
    /// When it is tried again, like {"strategy":"fixed","delay_ms":5000}.
    #[arg(long, value_name = "JSON", value_parser = json)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Box<RawValue>>,
}

pub(crate) async fn submit(api: &Api, is_json: bool, args: &SubmitArgs) -> Result<()> {
    let answer = api.answer(api.request(Method::POST, &["tasks"]).json(args)).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let task: Fields = api.decode(&answer)?;
    if answer.is_created {
        output::print(&output::standing(&task))
    } else {
        output::print(&format_args!("task {} is live already", text(&task, "id")))
    }
}
