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

/// The longest range that the server reads.
const LAST_MAX: Duration = Duration::from_hours(7 * 24);
/// That range has the minute in it that goes on. Another one is for clocks that differ.
const LAST_AGO_MAX: Duration = LAST_MAX.saturating_sub(Duration::from_mins(2));

/// Which statistics.
#[derive(Args)]
pub(crate) struct StatsArgs {
    /// Only of this type.
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// Of so long ago until now; at most 7d.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = range)]
    last: Duration,
}

fn range(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|last| if last <= LAST_MAX { Ok(last) } else { Err("must be at most 7d".into()) })
}

#[derive(Deserialize)]
struct Listed {
    items: Vec<Fields>,
}

pub(crate) async fn stats(api: &Api, is_json: bool, args: StatsArgs) -> Result<()> {
    let from = Timestamp::now() - args.last.min(LAST_AGO_MAX);
    let mut query = vec![("from", from.to_string())];
    query.extend(args.task_type.map(|task_type| ("type", task_type)));
    let answer = api.answer(api.request(Method::GET, &["stats"]).query(&query)).await?;
    if is_json {
        return output::print(&answer.json);
    }
    let listed: Listed = api.decode(&answer)?;
    output::print(&output::table(&COLUMNS, &listed.items))
}
