//! `taskwheel stats`: how the executions of each type went.

use crate::api::Api;
use crate::duration::duration;
use crate::output::{self, Fields};
use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde_json::value::to_raw_value;
use std::time::Duration;

const COLUMNS: [&str; 8] = [
    "type",
    "success_first",
    "success_second",
    "success_later",
    "errors",
    "failures",
    "wait_ms p50/p90/p99",
    "run_ms p50/p90/p99",
];

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
    let mut listed: Listed = api.decode(&answer)?;
    if listed.items.is_empty() {
        output::say("nothing ended in that time");
        return Ok(());
    }
    for row in &mut listed.items {
        in_one_cell(row)?;
    }
    output::print(&output::table(&COLUMNS, &listed.items))
}

/// Durations that a share of all did not exceed; none where there was nothing.
#[derive(Deserialize)]
struct Percentiles {
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
}

/// Writes the percentiles of a row as its columns name them: `4/8/16`.
fn in_one_cell(row: &mut Fields) -> Result<()> {
    for column in &COLUMNS[6..] {
        let field = column.split(' ').next().unwrap_or_default();
        let Some(json) = row.get(field) else { continue };
        let Percentiles { p50, p90, p99 } = serde_json::from_str(json.get())?;
        let cell = [p50, p90, p99].map(|ms| ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string())).join("/");
        row.insert((*column).to_owned(), to_raw_value(&cell)?);
    }
    Ok(())
}
