//! Horizon: whether submit and drain keep their speed while an idle transaction keeps the database from cleaning up.
//!
//! A forgotten transaction with a snapshot makes every claimed task stay behind as a dead row, and a queue that walks over
//! its dead gets slower by the minute. The bar is PostgreSQL's; on MariaDB the same is shown without one, and on SQLite
//! there is nothing to clean up.

use super::settings::Settings;
use super::work;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::median;
use crate::floor::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use taskwheel_store::{Dialect, Store};

const SECONDS: f64 = 120.0;
/// What is compared is the first and the last quarter.
const QUARTERS: usize = 4;
const RATIO_MIN: f64 = 0.7;
const BATCH: usize = 500;
const WORKERS: usize = 2;
/// Submits keep this far ahead of the workers and no further, so that the backlog says nothing about the end.
const AHEAD_MAX: u64 = 20_000;

#[derive(Default)]
struct Progress {
    submitted: AtomicU64,
    finished: AtomicU64,
}

/// Measures submit and drain behind a held horizon.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let hold = match Dialect::of(&settings.url)? {
        Dialect::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM task",
        Dialect::Mysql => "START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT count(*) FROM task",
        Dialect::Sqlite => return Ok(()),
    };
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for _ in 0..settings.runs {
        let rates = quarters(settings, hold).await?;
        first.push(rates[0]);
        last.push(rates[rates.len() - 1]);
    }
    let bar = matches!(Dialect::of(&settings.url)?, Dialect::Postgres).then_some(Bar::RatioAtLeast(RATIO_MIN));
    rows.push(Row::beside(
        "submit and drain, horizon held, last quarter".into(),
        Unit::PerSecond,
        median(&last),
        "the first quarter".into(),
        median(&first),
        bar,
    ));
    Ok(())
}

/// The rate in each quarter of a run.
async fn quarters(settings: &Settings, hold: &str) -> Result<[f64; QUARTERS]> {
    let database = Database::create(&settings.url, "horizon").await?;
    let store = database.open(true).await?;
    let mut idle = database.sql().await?;
    idle.run(hold).await?;
    let whole = Duration::from_secs_f64(settings.seconds(SECONDS));
    let quarter = whole / QUARTERS as u32;
    let (counts, until) = (Arc::new(Progress::default()), Instant::now() + whole);
    let mut running = vec![tokio::spawn(submitter(store.clone(), counts.clone(), until))];
    for number in 0..WORKERS {
        running.push(tokio::spawn(worker(store.clone(), format!("worker{number}"), counts.clone(), until)));
    }
    let (mut rates, mut before) = ([0.0; QUARTERS], 0);
    for (place, rate) in rates.iter_mut().enumerate() {
        tokio::time::sleep(quarter).await;
        let finished = counts.finished.load(Relaxed);
        *rate = (finished - before) as f64 / quarter.as_secs_f64();
        progress(&format!("horizon, quarter {}: {rate:.0}/s", place + 1));
        before = finished;
    }
    for one in running {
        one.await??;
    }
    idle.run("ROLLBACK").await?;
    drop((store, idle));
    database.remove().await?;
    Ok(rates)
}

async fn submitter(store: Arc<dyn Store>, counts: Arc<Progress>, until: Instant) -> Result<()> {
    while Instant::now() < until {
        let submitted = counts.submitted.load(Relaxed);
        if submitted > counts.finished.load(Relaxed) + AHEAD_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        store.submit((submitted..submitted + BATCH as u64).map(work::task).collect()).await?;
        counts.submitted.fetch_add(BATCH as u64, Relaxed);
    }
    Ok(())
}

async fn worker(store: Arc<dyn Store>, name: String, counts: Arc<Progress>, until: Instant) -> Result<()> {
    while Instant::now() < until {
        let claimed = work::claim(store.as_ref(), &name, BATCH).await?;
        if claimed.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        work::finish(store.as_ref(), &claimed).await?;
        counts.finished.fetch_add(claimed.len() as u64, Relaxed);
    }
    Ok(())
}
