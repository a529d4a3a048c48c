//! Drives graphile_worker by the commands of ../README.md.
//!
//! ```text
//! worker URL SETTING     what `drain` starts, one for each process
//! ```

mod drain;
mod timing;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, Worker, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const BULK: u64 = 1_000;

static DONE: AtomicU64 = AtomicU64::new(0);
/// When the first job ran, in microseconds since 1970; 0 before it did.
static FIRST: AtomicU64 = AtomicU64::new(0);
/// The times that jobs carry, and the times that they ran.
static RAN: Mutex<Vec<(f64, f64)>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noop {
    id: u64,
    /// What it is timed from, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<f64>,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        if DONE.fetch_add(1, Relaxed) == 0 {
            FIRST.store(now_micros(), Relaxed);
        }
        if let Some(from) = self.from {
            RAN.lock().expect("nobody panics with it").push((from, now_ms()));
        }
        Ok::<(), String>(())
    }
}

fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn now_ms() -> f64 {
    now_micros() as f64 / 1_000.0
}

async fn pool(url: &str, connections: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(connections).min_connections(connections.min(64)).connect(url).await?)
}

/// A worker that does not run yet.
async fn worker(pool: PgPool, setting: &str) -> Result<Worker> {
    let options = WorkerOptions::default().pg_pool(pool).define_job::<Noop>();
    // Its defaults fetch one job at a time. The first two fetch and complete in batches, which is what makes it fast.
    let batched = Duration::from_millis(5);
    let options = match setting {
        "small" => options
            .complete_job_batch_delay(batched)
            .concurrency(24)
            .local_queue(LocalQueueConfig::default().with_size(500)),
        "large" => options
            .complete_job_batch_delay(batched)
            .concurrency(500)
            .poll_interval(Duration::from_millis(5))
            .local_queue(LocalQueueConfig::default().with_size(5_000)),
        "latency" => options.concurrency(4),
        "delayed" => options.concurrency(4).poll_interval(Duration::from_millis(10)),
        "submit" => options,
        other => return Err(format!("no setting {other}").into()),
    };
    Ok(options.init().await?)
}

fn job(id: u64, from: Option<f64>, spec: JobSpec) -> RawJobSpec {
    RawJobSpec { identifier: Noop::IDENTIFIER.into(), payload: json!(Noop { id, from }), spec }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match arguments[..] {
        ["submit", url, clients, seconds, ref sharing @ ..] => {
            submit(url, clients.parse()?, seconds.parse()?, sharing == ["eight"]).await?
        }
        ["bulk", url, seconds] => bulk(url, seconds.parse()?).await?,
        ["load", url, jobs] => load(url, jobs.parse()?).await?,
        ["future", url, rows] => future(url, rows.parse()?).await?,
        ["worker", url, setting] => return drain::work(url, setting).await,
        ["drain", url, jobs, processes, setting] => {
            drain::drain(url, jobs.parse()?, processes.parse()?, setting).await?
        }
        ["latency", url, jobs] => timing::latency(url, jobs.parse()?).await?,
        ["delayed", url, jobs, seconds] => timing::delayed(url, jobs.parse()?, seconds.parse()?).await?,
        _ => return Err("the commands are in ../README.md".into()),
    };
    println!("{answer}");
    Ok(())
}

/// Each client has a connection, or eight are shared.
async fn submit(url: &str, clients: u32, seconds: f64, share: bool) -> Result<Value> {
    let pool = pool(url, if share { clients.min(8) } else { clients }).await?;
    let utils = worker(pool.clone(), "submit").await?.create_utils();
    for id in 0..u64::from(clients) {
        utils.add_job(Noop { id, from: None }, JobSpec::default()).await?;
    }
    let (start, until) = (Instant::now(), Instant::now() + Duration::from_secs_f64(seconds));
    let submitters: Vec<_> = (0..clients)
        .map(|_| {
            let utils = utils.clone();
            tokio::spawn(async move {
                let mut added = 0;
                while Instant::now() < until {
                    utils.add_job(Noop { id: added, from: None }, JobSpec::default()).await.expect("a job is added");
                    added += 1;
                }
                added
            })
        })
        .collect();
    let mut done = 0;
    for submitter in submitters {
        done += submitter.await?;
    }
    let rate = done as f64 / start.elapsed().as_secs_f64();
    expect(&pool, done + u64::from(clients)).await?;
    Ok(json!({ "done": done, "rate": rate }))
}

async fn expect(pool: &PgPool, jobs: u64) -> Result<()> {
    let stored: i64 = sqlx::query_scalar("select count(*) from graphile_worker._private_jobs").fetch_one(pool).await?;
    if stored as u64 == jobs { Ok(()) } else { Err(format!("{jobs} jobs should be stored; {stored} are").into()) }
}

async fn bulk(url: &str, seconds: f64) -> Result<Value> {
    let pool = pool(url, 2).await?;
    let utils = worker(pool.clone(), "submit").await?.create_utils();
    let batch: Vec<_> = (0..BULK).map(|id| job(id, None, JobSpec::default())).collect();
    utils.add_raw_jobs(&batch).await?;
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed().as_secs_f64() < seconds {
        utils.add_raw_jobs(&batch).await?;
        done += BULK;
    }
    let rate = done as f64 / start.elapsed().as_secs_f64();
    expect(&pool, done + BULK).await?;
    Ok(json!({ "done": done, "rate": rate }))
}

async fn load(url: &str, jobs: u64) -> Result<Value> {
    let utils = worker(pool(url, 2).await?, "submit").await?.create_utils();
    for first in (0..jobs).step_by(5_000) {
        let batch: Vec<_> = (first..jobs.min(first + 5_000)).map(|id| job(id, None, JobSpec::default())).collect();
        utils.add_raw_jobs(&batch).await?;
    }
    Ok(json!({}))
}

/// By a statement, as a million take minutes by the library.
async fn future(url: &str, rows: i64) -> Result<Value> {
    let pool = pool(url, 2).await?;
    let utils = worker(pool.clone(), "submit").await?.create_utils();
    utils.add_job(Noop { id: 0, from: None }, JobSpec::default()).await?;
    sqlx::query("delete from graphile_worker._private_jobs").execute(&pool).await?;
    sqlx::query(
        "insert into graphile_worker._private_jobs (task_id, payload, run_at)
         select (select id from graphile_worker._private_tasks where identifier = 'noop'), '{\"id\": 0}',
                now() + interval '1 day' + n * interval '1 ms'
         from generate_series(1, $1) as n",
    )
    .bind(rows)
    .execute(&pool)
    .await?;
    Ok(json!({}))
}
