//! `taskwheel audit`: who changed what.

use crate::api::Api;
use crate::output::{self, Fields};
use anyhow::Result;
use clap::Args;
use reqwest::Method;
use serde::{Deserialize, Serialize};

const COLUMNS: [&str; 8] = ["at", "actor", "token_id", "tenant", "action", "target", "before", "after"];

/// Which changes, as flags and as the query of the call.
#[derive(Args, Serialize)]
pub(crate) struct AuditArgs {
    /// What was done, like task.cancel.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    /// To what: the id of a task, the name of a type, the number of a token.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Most lines.
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Where the last page ended.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    items: Vec<Fields>,
    next_cursor: Option<String>,
}

pub(crate) async fn audit(api: &Api, is_json: bool, args: AuditArgs) -> Result<()> {
    let answer = api.answer(api.request(Method::GET, &["audit"]).query(&args)).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let listed: Listed = api.decode(&answer)?;
    output::print(&output::table_with(&COLUMNS, &listed.items, "detail", detail))?;
    if let Some(cursor) = listed.next_cursor {
        output::say(&format!("older ones: --cursor {cursor}"));
    }
    Ok(())
}

/// What else there is to say: filter and counts of an action on many tasks.
fn detail(line: &Fields) -> String {
    let detail = line.get("detail").and_then(|detail| serde_json::from_str(detail.get()).ok());
    output::words(&detail.unwrap_or_default())
}
