//! Latency: how long a task waits from its submit to its claim at a steady rate of single submits.
//!
//! Submits come by the clock and wait for nobody, so that a slow answer does not thin them out. Each task carries the time
//! of its submit in its payload.

use super::settings::Settings;
use super::work;
use crate::common::database::Database;
use crate::common::report::{Bar, Row, Unit, progress};
use crate::common::statistics::{median, percentile};
use crate::floor::Result;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use taskwheel_model::NewTask;
use taskwheel_store::{Dialect, Store};
use tokio::sync::mpsc;

const SECONDS: f64 = 60.0;
const SUBMITS_PER_SECOND: u64 = 3_000;
/// The part at the end that counts, in which a backlog would have built up.
const LAST_SHARE: f64 = 1.0 / 6.0;
const CLAIMERS: usize = 2;
const CLAIM_MAX: usize = 100;
const POLL: Duration = Duration::from_millis(2);
const P99_MS_MAX: f64 = 50.0;
/// After the last submit the claimers get so long to reach it.
const REST_MAX: Duration = Duration::from_secs(30);

/// When a task was submitted, in seconds from the start, and how long it waited, in milliseconds.
type Wait = (f64, f64);

/// Measures the wait. The answer is the figures of every run.
pub(super) async fn measure(settings: &Settings, rows: &mut Vec<Row>) -> Result<Value> {
    let (mut rates, mut p50s, mut p99s) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.runs {
        let (rate, p50, p99) = wait(settings).await?;
        progress(&format!("latency: {rate:.0} submits/s, p50 {p50:.1} ms, p99 {p99:.1} ms"));
        rates.push(rate);
        p50s.push(p50);
        p99s.push(p99);
    }
    let bar = (Dialect::of(&settings.url)? == Dialect::Postgres).then_some(Bar::Below(P99_MS_MAX));
    let what = format!("submit to claim at {:.0}/s, p99 in the last sixth", median(&rates));
    rows.push(Row::alone(what, Unit::Milliseconds, median(&p99s), bar));
    Ok(json!({ "submits_per_second": rates, "last_p50_ms": p50s, "last_p99_ms": p99s }))
}

/// Submits a second, and the 50th and 99th percentile of what tasks waited at the end of a run.
async fn wait(settings: &Settings) -> Result<(f64, f64, f64)> {
    let database = Database::create(&settings.url, "latency").await?;
    let store = database.open(true).await?;
    let (start, seconds) = (Instant::now(), settings.seconds(SECONDS));
    let tasks = (seconds * SUBMITS_PER_SECOND as f64) as u64;
    let claimed = Arc::new(AtomicU64::new(0));
    let until = start + Duration::from_secs_f64(seconds) + REST_MAX;
    let claimers: Vec<_> = (0..CLAIMERS)
        .map(|number| {
            tokio::spawn(claimer(store.clone(), format!("worker{number}"), start, claimed.clone(), tasks, until))
        })
        .collect();
    let submitted_by = submit(&store, start, tasks).await?;
    let mut waits: Vec<Wait> = Vec::new();
    for claimer in claimers {
        waits.extend(claimer.await??);
    }
    if waits.len() as u64 != tasks {
        return Err(format!("submitted {tasks} tasks, claimed {}", waits.len()).into());
    }
    let from = seconds * (1.0 - LAST_SHARE);
    let last: Vec<f64> = waits.iter().filter(|(at, _)| *at >= from).map(|(_, wait)| *wait).collect();
    let (p50, p99) = (percentile(&last, 0.5), percentile(&last, 0.99));
    drop(store);
    database.remove().await?;
    Ok((tasks as f64 / submitted_by.as_secs_f64(), p50, p99))
}

/// Submits tasks one by one, by the clock, and answers when the last was acknowledged.
async fn submit(store: &Arc<dyn Store>, start: Instant, tasks: u64) -> Result<Duration> {
    let (sender, mut acknowledged) = mpsc::unbounded_channel();
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let mut sent = 0;
    while sent < tasks {
        ticks.tick().await;
        let due = (start.elapsed().as_secs_f64() * SUBMITS_PER_SECOND as f64) as u64;
        while sent < due.min(tasks) {
            let (store, sender) = (store.clone(), sender.clone());
            tokio::spawn(async move {
                let payload = Some(start.elapsed().as_micros().to_string());
                let done = store.submit(vec![NewTask { payload, ..NewTask::new(work::TYPE) }]).await;
                // Nobody listens any more once another submit has failed.
                let _ = sender.send(done);
            });
            sent += 1;
        }
    }
    drop(sender);
    while let Some(done) = acknowledged.recv().await {
        done?;
    }
    Ok(start.elapsed())
}

async fn claimer(
    store: Arc<dyn Store>,
    name: String,
    start: Instant,
    claimed: Arc<AtomicU64>,
    tasks: u64,
    until: Instant,
) -> Result<Vec<Wait>> {
    let mut waits = Vec::new();
    while claimed.load(Relaxed) < tasks && Instant::now() < until {
        let batch = work::claim(store.as_ref(), &name, CLAIM_MAX).await?;
        let now = start.elapsed();
        if batch.is_empty() {
            tokio::time::sleep(POLL).await;
            continue;
        }
        for task in &batch {
            let submitted: f64 = task.payload.as_deref().unwrap_or_default().parse::<f64>()? / 1e6;
            waits.push((submitted, (now.as_secs_f64() - submitted) * 1_000.0));
        }
        claimed.fetch_add(batch.len() as u64, Relaxed);
        work::finish(store.as_ref(), &batch).await?;
    }
    Ok(waits)
}
