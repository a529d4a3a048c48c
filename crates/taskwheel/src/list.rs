//! `taskwheel tasks list`: finding tasks, page by page.

use crate::api::Api;
use crate::output::{self, Fields};
use crate::progress;
use crate::selection::Filter;
use anyhow::Result;
use clap::{Args, ValueEnum};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;
use taskwheel_model::NewTask;
use tokio::time::Instant;

/// Rows of a page where nobody says how many.
const ROWS_DEFAULT: u32 = 50;
/// Rows asked for at once when all are wanted: as many as the server gives.
const ROWS_AT_ONCE: u32 = 500;
/// How long a page is looked for among tasks that do not match.
const LOOK_TIME_MAX: Duration = Duration::from_secs(10);

const COLUMNS: [&str; 9] = ["id", "type", "key", "status", "priority", "run_at", "attempts", "host", "error_info"];

#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    page: Page,
    /// List all pages.
    #[arg(long)]
    all: bool,
}

/// Which part of a list, in which order.
#[derive(Args, Serialize)]
struct Page {
    /// The order.
    #[arg(long, allow_hyphen_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    sort: Option<Sort>,
    /// Most tasks in a page, 50 unless given, 500 at most.
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    /// Where an earlier page ended.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

#[derive(Clone, Copy, ValueEnum, Serialize)]
enum Sort {
    /// Newest first.
    #[value(name = "-id")]
    #[serde(rename = "-id")]
    IdDescending,
    /// Oldest first.
    #[value(name = "id")]
    #[serde(rename = "id")]
    IdAscending,
    /// Earliest due first.
    #[value(name = "run_at")]
    #[serde(rename = "run_at")]
    RunAtAscending,
    /// Latest due first.
    #[value(name = "-run_at")]
    #[serde(rename = "-run_at")]
    RunAtDescending,
}

/// Tasks as the server wrote them.
#[derive(Serialize, Deserialize)]
struct Listed {
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

impl Listed {
    fn print(&self, is_json: bool) -> Result<()> {
        if is_json {
            return output::print(&serde_json::to_string(self)?);
        }
        if self.items.is_empty() {
            return Ok(());
        }
        let rows: Vec<Fields> =
            self.items.iter().map(|item| serde_json::from_str(item.get())).collect::<Result<_, _>>()?;
        output::print(&output::table(&columns(&rows), &rows))
    }
}

/// The columns of some tasks. Whose they are is shown where that is not `default` for all: to who looks over several tenants.
fn columns(rows: &[Fields]) -> Vec<&'static str> {
    let is_default = rows.iter().all(|row| output::text(row, "tenant") == NewTask::TENANT_DEFAULT);
    let (id, others) = COLUMNS.split_at(1);
    [id, if is_default { &[] } else { &["tenant"] }, others].concat()
}

pub(crate) async fn list(api: &Api, is_json: bool, ListArgs { filter, page, all }: ListArgs) -> Result<()> {
    let found = if all {
        list_all(api, is_json, &filter, page).await?
    } else {
        let wanted = page.limit.unwrap_or(ROWS_DEFAULT);
        let listed = progress::shown("looking", full_page(api, &filter, page, wanted)).await?;
        listed.print(is_json)?;
        let found = listed.items.len();
        match listed.next_cursor {
            Some(cursor) if found < wanted as usize => output::say(&format_args!(
                "{found} found so far; stopped looking after {LOOK_TIME_MAX:?}: go on with --cursor {cursor}, or --all"
            )),
            Some(cursor) if !is_json => {
                output::say(&format_args!("there may be more: add --cursor {cursor}, or --all"));
            }
            _ => {}
        }
        found
    };
    if found == 0 && !is_json {
        output::say("no task matches");
    }
    Ok(())
}

/// Prints page after page, and says how many tasks there were.
async fn list_all(api: &Api, is_json: bool, filter: &Filter, mut page: Page) -> Result<usize> {
    page.limit.get_or_insert(ROWS_AT_ONCE);
    let mut found = 0;
    loop {
        let listed = look(api, filter, &page).await?;
        listed.print(is_json)?;
        found += listed.items.len();
        match listed.next_cursor {
            Some(cursor) => page.cursor = Some(cursor),
            None => return Ok(found),
        }
    }
}

/// A page with as many tasks as are wanted. A call looks at so many rows and no further, and may find none although
/// there are some: it is made again from where it ended.
async fn full_page(api: &Api, filter: &Filter, mut page: Page, wanted: u32) -> Result<Listed> {
    let begin = Instant::now();
    let mut listed = look(api, filter, &page).await?;
    while let Some(cursor) = &listed.next_cursor {
        let missing = wanted.saturating_sub(u32::try_from(listed.items.len())?);
        if missing == 0 || begin.elapsed() >= LOOK_TIME_MAX {
            break;
        }
        (page.cursor, page.limit) = (Some(cursor.clone()), Some(missing));
        let more = look(api, filter, &page).await?;
        listed.items.extend(more.items);
        listed.next_cursor = more.next_cursor;
    }
    Ok(listed)
}

async fn look(api: &Api, filter: &Filter, page: &Page) -> Result<Listed> {
    Ok(api.read(api.request(Method::GET, &["tasks"]).query(filter).query(page)).await?)
}
