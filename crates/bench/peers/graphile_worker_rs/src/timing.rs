//! Timing: a worker in this process, and jobs that carry the time that they are measured from.

use super::{Noop, RAN, Result, job, now_micros, now_ms, pool, worker};
use graphile_worker::{JobSpec, JobSpecBuilder, WorkerUtils};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const WARM_UP: usize = 20;
const REST_MAX: Duration = Duration::from_secs(60);

/// Starts the worker, and answers what submits to it.
async fn start(url: &str, setting: &'static str) -> Result<WorkerUtils> {
    let running = worker(pool(url, 10).await?, setting).await?;
    let utils = running.create_utils();
    tokio::spawn(async move { running.run().await.expect("a worker works") });
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(utils)
}

/// Waits until so many ran.
async fn ran(jobs: usize) -> Vec<(f64, f64)> {
    let until = Instant::now() + REST_MAX;
    loop {
        let ran = RAN.lock().expect("nobody panics with it").clone();
        if ran.len() >= jobs || Instant::now() > until {
            return ran;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn latency(url: &str, jobs: usize) -> Result<Value> {
    let utils = start(url, "latency").await?;
    for id in 0..(jobs + WARM_UP) as u64 {
        let pause = 10_000 + now_micros() % 20_000;
        tokio::time::sleep(Duration::from_micros(pause)).await;
        utils.add_job(Noop { id, from: Some(now_ms()) }, JobSpec::default()).await?;
    }
    let ms: Vec<f64> = ran(jobs + WARM_UP).await.into_iter().skip(WARM_UP).map(|(from, at)| at - from).collect();
    Ok(json!({ "done": ms.len(), "ms": ms }))
}

pub(crate) async fn delayed(url: &str, jobs: usize, seconds: f64) -> Result<Value> {
    let utils = start(url, "delayed").await?;
    let (first, step) = (now_ms().ceil() + 4_000.0, seconds * 1_000.0 / jobs as f64);
    let due: Vec<f64> = (0..jobs).map(|number| (first + number as f64 * step).floor()).collect();
    for batch in due.chunks(1_000) {
        let specs = batch.iter().map(|due| {
            let at = chrono::DateTime::from_timestamp_millis(*due as i64).ok_or("no such time")?;
            Ok(job(0, Some(*due), JobSpecBuilder::new().run_at(at).build()))
        });
        utils.add_raw_jobs(&specs.collect::<Result<Vec<_>>>()?).await?;
    }
    if now_ms() > first {
        return Err("the first job was due before the last was submitted".into());
    }
    tokio::time::sleep(Duration::from_secs_f64((first - now_ms()) / 1_000.0 + seconds)).await;
    let mut ran = ran(jobs).await;
    ran.sort_by(|one, other| one.0.total_cmp(&other.0));
    let ms: Vec<f64> = ran.into_iter().map(|(due, at)| at - due).collect();
    Ok(json!({ "done": ms.len(), "ms": ms }))
}
