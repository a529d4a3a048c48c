//! `taskwheel types`: how the tasks of a type are treated.

use crate::api::{Api, ApiError};
use crate::args::json;
use crate::duration::limit_ms;
use crate::output::{self, Fields};
use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::{Method, RequestBuilder};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const COLUMNS: [&str; 9] =
    ["type", "name", "category", "paused", "priority", "max_attempts", "timeout_ms", "need_manual", "retry"];

#[derive(Subcommand)]
pub(crate) enum TypesCommand {
    /// List the types that have been configured.
    List,
    /// Show a type.
    Show {
        /// The type.
        #[arg(value_name = "TYPE")]
        task_type: String,
    },
    /// Change the settings of a type; those not named stay.
    Set {
        /// The type.
        #[arg(value_name = "TYPE")]
        task_type: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// Hand out no more tasks of a type.
    Pause {
        /// The type.
        #[arg(value_name = "TYPE")]
        task_type: String,
    },
    /// Hand out tasks of a type again.
    Resume {
        /// The type.
        #[arg(value_name = "TYPE")]
        task_type: String,
    },
}

/// The settings of a type, as flags and as the body of the call.
#[derive(Args, Serialize, Deserialize, Default)]
#[group(required = true, multiple = true)]
pub(crate) struct Settings {
    /// A name for people.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The category of its tasks.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    /// How often its tasks are tried; -1 is without end.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    /// The hard limit of one attempt, like 30s, or none.
    #[arg(long = "timeout", value_name = "DURATION", value_parser = limit_ms)]
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<i64>,
    /// Let a person decide when the attempts are used up.
    #[arg(long, value_name = "BOOLEAN", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    need_manual: Option<bool>,
    /// The priority of its tasks, 1 to 9.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    /// When its tasks are tried again, like {"strategy":"fixed","delay_ms":5000}.
    #[arg(long, value_name = "JSON", value_parser = json)]
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<Box<RawValue>>,
}

impl Settings {
    /// These settings, and where they say nothing, the others.
    fn or(self, others: Settings) -> Settings {
        Settings {
            name: self.name.or(others.name),
            category: self.category.or(others.category),
            max_attempts: self.max_attempts.or(others.max_attempts),
            timeout_ms: self.timeout_ms.or(others.timeout_ms),
            need_manual: self.need_manual.or(others.need_manual),
            priority: self.priority.or(others.priority),
            retry: self.retry.or(others.retry),
        }
    }
}

#[derive(Deserialize)]
struct Listed {
    items: Vec<Fields>,
}

pub(crate) async fn types(api: &Api, is_json: bool, command: TypesCommand) -> Result<()> {
    match command {
        TypesCommand::List => list(api, is_json).await,
        TypesCommand::Show { task_type } => show(api, is_json, api.request(Method::GET, &["types", &task_type])).await,
        TypesCommand::Set { task_type, settings } => {
            // A PUT replaces all settings, so those that shall stay are sent again.
            let settings = settings.or(current(api, &task_type).await?);
            show(api, is_json, api.request(Method::PUT, &["types", &task_type]).json(&settings)).await
        }
        TypesCommand::Pause { task_type } => {
            show(api, is_json, api.request(Method::POST, &["types", &task_type, "pause"])).await
        }
        TypesCommand::Resume { task_type } => {
            show(api, is_json, api.request(Method::POST, &["types", &task_type, "resume"])).await
        }
    }
}

async fn list(api: &Api, is_json: bool) -> Result<()> {
    let answer = api.answer(api.request(Method::GET, &["types"])).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let listed: Listed = api.decode(&answer)?;
    if listed.items.is_empty() {
        output::say("no type has been configured: all have the defaults");
        return Ok(());
    }
    output::print(&output::table(&COLUMNS, &listed.items))
}

/// Sends a request that is answered with the type, and shows that.
async fn show(api: &Api, is_json: bool, request: RequestBuilder) -> Result<()> {
    let answer = api.answer(request).await?;
    if is_json {
        return output::print(&answer.json);
    }
    output::print(&output::record(&COLUMNS, &api.decode(&answer)?))
}

/// The settings that a type has; none for one that was never configured.
async fn current(api: &Api, task_type: &str) -> Result<Settings, ApiError> {
    match api.read(api.request(Method::GET, &["types", task_type])).await {
        Err(error) if error.is_not_found() => Ok(Settings::default()),
        answer => answer,
    }
}
