//! `taskwheel stats`: how the executions of each type went.

use crate::api::Api;
use crate::duration::duration;
use crate::output::{self, Fields};
use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use std::time::Duration;

const COLUMNS: [&str; 8] =
    ["type", "success_first", "success_second", "success_later", "errors", "failures", "wait_ms", "run_ms"];

/// Which statistics.
#[derive(Args)]
pub(crate) struct StatsArgs {
    /// Only of this type.
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// Of so long ago until now; at most 7d.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    last: Duration,
}

#[derive(Deserialize)]
struct Listed {
    items: Vec<Fields>,
}

pub(crate) async fn stats(api: &Api, is_json: bool, args: StatsArgs) -> Result<()> {
    let from = Timestamp::now() - args.last;
    let mut query = vec![("from", from.to_string())];
    query.extend(args.task_type.map(|task_type| ("type", task_type)));
    let answer = api.answer(api.request(Method::GET, &["stats"]).query(&query)).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let listed: Listed = api.decode(&answer)?;
    output::print(&output::table(&COLUMNS, &listed.items))
}
