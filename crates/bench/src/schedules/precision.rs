//! Precision: how late a firing's task comes into the hands of a worker that waits for it.
//!
//! The workers run on an engine in this process. Their clock and the database's are one machine's, so that lateness is the time by that
//! clock minus the time that the firing was due.

use super::online::{self, TYPE};
use super::settings::Settings;
use crate::common::clock::now_ms;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::{median, percentile};
use crate::floor::Result;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use taskwheel_engine::{Engine, EngineOptions};
use taskwheel_model::Outcome;
use taskwheel_store::Dialect;
use taskwheel_store::worker::{ClaimRequest, Report};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const SCHEDULES: u64 = 10_000;
const PERIOD_MS: i64 = 10_000;
const SECONDS: f64 = 30.0;
/// From the start of the engine until the first is due.
const LEAD_MS: i64 = 3_000;
const WORKERS: usize = 8;
const CLAIM_MAX: usize = 200;
const LATENESS_P99_MS_MAX: f64 = 20.0;
const BURST_SECONDS_MAX: f64 = 2.0;

/// Every schedule fires every ten seconds, a millisecond after the one before it.
pub(super) async fn spread(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let (schedules, seconds) = (settings.scaled(SCHEDULES), settings.seconds(SECONDS));
    let (mut p50s, mut p99s) = (Vec::new(), Vec::new());
    for _ in 0..settings.runs {
        let database = Database::create(&settings.url, "precision").await?;
        let store = database.open(true).await?;
        let step_ms = PERIOD_MS as f64 / schedules as f64;
        // Behind the filling, which takes a while.
        let first = now_ms() + LEAD_MS + 20_000;
        online::fill(&database, schedules, PERIOD_MS, |number| first + (number as f64 * step_ms) as i64).await?;
        sleep_until(first - LEAD_MS).await?;
        let engine = Arc::new(Engine::start(store.clone(), EngineOptions::default()));
        let mut workers = Workers::start(&engine);
        let wanted = (schedules as f64 * seconds * 1_000.0 / PERIOD_MS as f64) as usize;
        let lateness = workers.lateness(wanted, Duration::from_secs_f64(seconds * 2.0 + 30.0)).await?;
        drop(workers);
        engine.stop().await;
        drop((engine, store));
        database.remove().await?;
        let (p50, p99) = (percentile(&lateness, 0.5), percentile(&lateness, 0.99));
        let worst = percentile(&lateness, 1.0);
        progress(&format!("precision: p50 {p50:.2} ms, p99 {p99:.2} ms, worst {worst:.2} ms of {wanted}"));
        p50s.push(p50);
        p99s.push(p99);
    }
    let row = |share: &str, values: &[f64], bar| {
        let rate = schedules as f64 * 1_000.0 / PERIOD_MS as f64;
        let what = format!("lateness of {rate:.0} firings/s over {seconds:.0} s, {schedules} schedules, {share}");
        Row::alone(what, Unit::Milliseconds, median(values), bar)
    };
    let bar = (Dialect::of(&settings.url)? == Dialect::Postgres).then_some(Bar::Below(LATENESS_P99_MS_MAX));
    rows.push(row("p50", &p50s, None));
    rows.push(row("p99", &p99s, bar));
    Ok(())
}

/// Every schedule fires at one instant.
pub(super) async fn burst(settings: &Settings, rows: &mut Vec<Row>) -> Result<()> {
    let schedules = settings.scaled(SCHEDULES);
    let mut bursts = Vec::new();
    for _ in 0..settings.runs {
        let database = Database::create(&settings.url, "burst").await?;
        let store = database.open(true).await?;
        let due = now_ms() + LEAD_MS + 20_000;
        online::fill(&database, schedules, 3_600_000, |_| due).await?;
        sleep_until(due - LEAD_MS).await?;
        let engine = Arc::new(Engine::start(store.clone(), EngineOptions::default()));
        let mut workers = Workers::start(&engine);
        let lateness = workers.lateness(schedules as usize, Duration::from_secs(90)).await?;
        drop(workers);
        engine.stop().await;
        drop((engine, store));
        database.remove().await?;
        let last = percentile(&lateness, 1.0) / 1_000.0;
        progress(&format!("burst: {schedules} in hands after {last:.2} s"));
        bursts.push(last);
    }
    let bar = (Dialect::of(&settings.url)? == Dialect::Postgres).then_some(Bar::Below(BURST_SECONDS_MAX));
    let what = format!("{schedules} schedules due at one instant: all tasks in hands after");
    rows.push(Row::alone(what, Unit::Seconds, median(&bursts), bar));
    Ok(())
}

async fn sleep_until(time_ms: i64) -> Result<()> {
    match u64::try_from(time_ms - now_ms()) {
        Ok(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        Err(_) => return Err("the schedules were due before all were there".into()),
    }
    Ok(())
}

/// Workers that wait for tasks and do them at once. They end when this is dropped.
struct Workers {
    _workers: JoinSet<()>,
    lateness: mpsc::UnboundedReceiver<Result<Vec<f64>>>,
}

impl Workers {
    fn start(engine: &Arc<Engine>) -> Workers {
        let (sender, lateness) = mpsc::unbounded_channel();
        let mut set = JoinSet::new();
        for number in 0..WORKERS {
            let (engine, sender) = (engine.clone(), sender.clone());
            set.spawn(async move {
                loop {
                    let taken = work(&engine, number).await;
                    let is_over = taken.is_err();
                    if sender.send(taken).is_err() || is_over {
                        return;
                    }
                }
            });
        }
        Workers { _workers: set, lateness }
    }

    /// How late so many tasks came, in milliseconds.
    async fn lateness(&mut self, tasks: usize, wait: Duration) -> Result<Vec<f64>> {
        let mut all = Vec::with_capacity(tasks);
        let take = async {
            while all.len() < tasks {
                all.extend(self.lateness.recv().await.ok_or("the workers have gone")??);
            }
            Result::Ok(())
        };
        match tokio::time::timeout(wait, take).await {
            Ok(done) => done.map(|()| all),
            Err(_) => Err(format!("{} of {tasks} tasks came in {} s", all.len(), wait.as_secs()).into()),
        }
    }
}

async fn work(engine: &Engine, number: usize) -> Result<Vec<f64>> {
    let request = ClaimRequest {
        worker_id: format!("worker{number}"),
        host: "bench".into(),
        types: vec![TYPE.into()],
        max: CLAIM_MAX,
        ..ClaimRequest::default()
    };
    let claimed = engine.claim(request, Duration::from_secs(10)).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1_000.0;
    let reports = claimed.iter().map(|task| Report::new(task.id, task.exec_id, Outcome::Success));
    if !claimed.is_empty() {
        engine.report(reports.collect()).await?;
    }
    Ok(claimed.iter().map(|task| now - task.run_at.0 as f64).collect())
}
