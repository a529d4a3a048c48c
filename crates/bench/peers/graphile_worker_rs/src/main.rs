//! Drives graphile_worker and prints one line of JSON.
//!
//! ```text
//! load URL JOBS                        puts no-op jobs into a fresh schema
//! drain URL JOBS PROCESSES SETTING     works them off: {"rate": jobs per second}
//! worker URL SETTING                   what `drain` starts, one for each process
//! submit URL CLIENTS SECONDS           adds jobs one by one: {"rate": jobs per second}
//! ```
//!
//! The state of the table between load and drain is the caller's business. The clock starts with the first job that runs and stops
//! when the last one is gone from the table, so that the start of processes and pools is not held against it.

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

static DONE: AtomicU64 = AtomicU64::new(0);
/// When the first job ran, in microseconds since 1970; 0 before it did.
static FIRST: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Noop {
    id: u64,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        if DONE.fetch_add(1, Relaxed) == 0 {
            FIRST.store(now_micros(), Relaxed);
        }
        Ok::<(), String>(())
    }
}

fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

async fn pool(url: &str, connections: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(connections).min_connections(connections.min(4)).connect(url).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["load", url, jobs] => load(url, jobs.parse()?).await,
        ["worker", url, setting] => work(url, setting).await,
        ["drain", url, jobs, processes, setting] => drain(url, jobs.parse()?, processes.parse()?, setting).await,
        ["submit", url, clients, seconds] => submit(url, clients.parse()?, seconds.parse()?).await,
        _ => Err("usage: load URL JOBS | drain URL JOBS PROCESSES SETTING | submit URL CLIENTS SECONDS".into()),
    }
}

async fn load(url: &str, jobs: u64) -> Result<()> {
    let worker = WorkerOptions::default().pg_pool(pool(url, 2).await?).define_job::<Noop>().init().await?;
    let utils = worker.create_utils();
    for first in (0..jobs).step_by(5_000) {
        let spec = |id| RawJobSpec {
            identifier: Noop::IDENTIFIER.into(),
            payload: json!(Noop { id }),
            spec: JobSpec::default(),
        };
        let chunk: Vec<_> = (first..jobs.min(first + 5_000)).map(spec).collect();
        utils.add_raw_jobs(&chunk).await?;
    }
    Ok(())
}

/// Works until it is killed, and answers each line it is sent with its progress.
async fn work(url: &str, setting: &str) -> Result<()> {
    std::thread::spawn(|| {
        for _ in std::io::stdin().lock().lines() {
            println!("{}", json!([DONE.load(Relaxed), FIRST.load(Relaxed)]));
        }
        std::process::exit(0);
    });
    // Its defaults fetch one job at a time. These fetch and complete in batches, which is what makes it fast.
    let options = WorkerOptions::default()
        .pg_pool(pool(url, 25).await?)
        .define_job::<Noop>()
        .complete_job_batch_delay(Duration::from_millis(5));
    let options = match setting {
        "small" => options.concurrency(24).local_queue(LocalQueueConfig::default().with_size(500)),
        "large" => options
            .concurrency(500)
            .poll_interval(Duration::from_millis(5))
            .local_queue(LocalQueueConfig::default().with_size(5_000)),
        other => return Err(format!("no setting {other}").into()),
    };
    Ok(options.init().await?.run().await?)
}

/// A worker process.
struct Worker {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(url: &str, setting: &str) -> Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", url, setting])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = BufReader::new(child.stdout.take().ok_or("a worker without output")?);
        Ok(Worker { child, answers })
    }

    /// How many jobs it has done, and when it began.
    fn progress(&mut self) -> Result<(u64, u64)> {
        writeln!(self.child.stdin.as_mut().ok_or("a worker without input")?, "progress")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself, and there is nobody left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn left(pool: &PgPool) -> Result<i64> {
    Ok(sqlx::query_scalar("select count(*) from graphile_worker._private_jobs").fetch_one(pool).await?)
}

async fn drain(url: &str, jobs: u64, processes: usize, setting: &str) -> Result<()> {
    let pool = pool(url, 1).await?;
    let mut workers = (0..processes).map(|_| Worker::start(url, setting)).collect::<Result<Vec<_>>>()?;
    let first = loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let progress = workers.iter_mut().map(Worker::progress).collect::<Result<Vec<_>>>()?;
        if progress.iter().map(|(done, _)| done).sum::<u64>() >= jobs {
            break progress.into_iter().map(|(_, first)| first).filter(|first| *first > 0).min();
        }
    };
    while left(&pool).await? > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let micros = now_micros() - first.ok_or("no job ran")?;
    println!("{}", json!({ "rate": jobs as f64 / (micros as f64 / 1e6) }));
    Ok(())
}

async fn submit(url: &str, clients: u32, seconds: f64) -> Result<()> {
    let pool = PgPoolOptions::new().max_connections(clients).min_connections(clients).connect(url).await?;
    let worker = WorkerOptions::default().pg_pool(pool).define_job::<Noop>().init().await?;
    let utils = worker.create_utils();
    for id in 0..u64::from(clients) {
        utils.add_job(Noop { id }, JobSpec::default()).await?;
    }
    let (start, until) = (Instant::now(), Instant::now() + Duration::from_secs_f64(seconds));
    let submitters: Vec<_> = (0..clients)
        .map(|_| {
            let utils = utils.clone();
            tokio::spawn(async move {
                let mut added = 0;
                while Instant::now() < until {
                    utils.add_job(Noop { id: added }, JobSpec::default()).await.expect("a job is added");
                    added += 1;
                }
                added
            })
        })
        .collect();
    let mut added = 0;
    for submitter in submitters {
        added += submitter.await?;
    }
    println!("{}", json!({ "rate": added as f64 / start.elapsed().as_secs_f64() }));
    Ok(())
}
