//! Pages: the first page of every filter in every order, among a million live and five million finished tasks.
//!
//! Filters are tried with values that are common, that are rare and that match nothing, because each of the three can ruin
//! another plan. The table shows the worst of each filter; the JSON has them all.

mod cases;

use super::fill::{Filler, Standing};
use super::settings::Settings;
use super::work;
use crate::common::clock::now_ms;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::{median, milliseconds, percentile};
use crate::floor::{Result, State};
use cases::Case;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::{NewTask, TaskId};
use taskwheel_store::Store;
use taskwheel_store::search::{Listing, Sort};

const LIVE: u64 = 1_000_000;
const FINISHED: u64 = 5_000_000;
const EXECUTING: usize = 2_000;
const PAGE_ROWS: usize = 50;
const CALLS: u64 = 100;
const CALLS_MIN: usize = 10;
/// A case that is far too slow has shown so after this long.
const CASE_TIME_MAX: Duration = Duration::from_secs(4);
const READS: usize = 2_000;
const PAGE_MS_MAX: f64 = 50.0;
const READ_MS_MAX: f64 = 5.0;
const DAY_MS: i64 = 86_400_000;
const SORTS: [(&str, Sort); 4] = [
    ("-id", Sort::IdDescending),
    ("id", Sort::IdAscending),
    ("run_at", Sort::RunAtAscending),
    ("-run_at", Sort::RunAtDescending),
];

/// Measures pages and reads. The answer is the figures of every case.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<Value> {
    let (now, database) = (now_ms(), Database::create(&settings.url, "pages").await?);
    let store = database.open(true).await?;
    fill(settings, &database, &store, now).await?;
    let cases = cases::all(now, settings.scaled(FINISHED));
    let calls_max = usize::try_from(settings.scaled(CALLS))?.max(CALLS_MIN);
    let mut details = Vec::new();
    for (whose, tenant) in [("one tenant", Some(NewTask::TENANT_DEFAULT)), ("all tenants", None)] {
        let mut worst: Option<(&str, String, f64)> = None;
        for (place, case) in cases.iter().enumerate() {
            // By due time, tasks are indexed by tenant only, and the store refuses the order over all of them.
            let sorts = SORTS.iter().filter(|(name, _)| tenant.is_some() || !name.contains("run_at"));
            for &(sort_name, sort) in sorts {
                let mut runs = Vec::new();
                for _ in 0..settings.runs {
                    runs.push(pages(&store, tenant, case, sort, calls_max).await?);
                }
                let of_runs = |figure: fn(&[f64]) -> f64| {
                    median(&runs.iter().map(|(calls, _)| figure(calls)).collect::<Vec<_>>())
                };
                let p99 = of_runs(|calls| percentile(calls, 0.99));
                let name = format!("{} by {sort_name}", case.value);
                details.push(json!({
                    "whose": whose, "filter": case.filter, "value": case.value, "sort": sort_name,
                    "items": runs[0].1, "calls": runs[0].0.len(), "median_ms": of_runs(median), "p99_ms": p99,
                }));
                if worst.as_ref().is_none_or(|(_, _, known)| p99 > *known) {
                    worst = Some((case.filter, name, p99));
                }
            }
            let is_last = cases.get(place + 1).is_none_or(|next| next.filter != case.filter);
            if let Some((filter, name, p99)) = worst.take_if(|_| is_last) {
                progress(&format!("page by {filter}, {whose}: {p99:.1} ms ({name})"));
                let what = format!("page by {filter}, {whose}, p99 of the worst ({name})");
                rows.push(Row::alone(what, Unit::Milliseconds, p99, Some(Bar::Below(PAGE_MS_MAX))));
            }
        }
    }
    let mut p99s = Vec::new();
    for _ in 0..settings.runs {
        p99s.push(percentile(&reads(&store).await?, 0.99));
    }
    let bar = Some(Bar::Below(READ_MS_MAX));
    rows.push(Row::alone("read by id, p99".into(), Unit::Milliseconds, median(&p99s), bar));
    drop(store);
    database.remove().await?;
    Ok(Value::Array(details))
}

/// The times of a page's calls, and how many tasks it has.
async fn pages(
    store: &Arc<dyn Store>,
    tenant: Option<&str>,
    case: &Case,
    sort: Sort,
    calls_max: usize,
) -> Result<(Vec<f64>, usize)> {
    let listing = Listing {
        tenant: tenant.map(str::to_owned),
        filter: case.filtered.clone(),
        sort,
        limit: PAGE_ROWS,
        cursor: None,
    };
    let (clock, mut calls, mut items) = (Instant::now(), Vec::new(), 0);
    while calls.len() < calls_max && (calls.len() < CALLS_MIN || clock.elapsed() < CASE_TIME_MAX) {
        let began = Instant::now();
        let page = store.list(listing.clone()).await?;
        calls.push(milliseconds(began.elapsed()));
        items = page.items.len();
    }
    Ok((calls, items))
}

/// The times of reads by id, spread over all tasks.
async fn reads(store: &Arc<dyn Store>) -> Result<Vec<f64>> {
    let highest = store.highest_id().await?.0;
    let mut calls = Vec::new();
    for number in 1..=READS as i64 {
        // A large prime jumps over the table in no order that a cache could guess.
        let id = TaskId(1 + (number * 15_485_863) % highest);
        let began = Instant::now();
        store.get(None, id).await?;
        calls.push(milliseconds(began.elapsed()));
    }
    Ok(calls)
}

/// A month of finished tasks, then a day of live ones, then some that run.
async fn fill(settings: &Settings, database: &Database, store: &Arc<dyn Store>, now: i64) -> Result<()> {
    let (finished, live) = (settings.scaled(FINISHED), settings.scaled(LIVE));
    let mut filler = Filler::begin(database).await?;
    let month = format!("{} + n * {} / {finished}", now - 31 * DAY_MS, 30 * DAY_MS);
    let today = format!("{} + n * {DAY_MS} / {live}", now - DAY_MS);
    // Half is due, half waits for a time within the week.
    let run_at = format!("CASE WHEN n % 2 = 0 THEN {today} ELSE {now} + (n * 7919) % {} END", 7 * DAY_MS);
    let old = cases::varied(&month, &month, Standing::Finished { status: cases::FINISHED_STATUS, host: cases::HOST });
    filler.add("finished tasks", finished, &old).await?;
    let new = cases::varied(&today, &run_at, Standing::Waiting { status: cases::WAITING_STATUS });
    filler.add("live tasks", live, &new).await?;
    for number in 0..EXECUTING / 100 {
        let request = work::request(&format!("worker{number}"), &["type1", "type2"], 100);
        store.claim(vec![request]).await?;
    }
    progress("bringing the tables into the vacuumed state");
    database.bring_into(State::Vacuumed).await
}
