//! Drives apalis on PostgreSQL or SQLite by the commands of ../README.md.
//!
//! ```text
//! worker URL SETTING     what `drain` starts, one for each process
//! ```

#[macro_use]
mod backend;
mod processes;

use apalis::prelude::BoxDynError;
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const QUEUE: &str = "noop";
const BULK: u64 = 1_000;
const WARM_UP: usize = 20;
/// How far apart the looks at the workers are; near the end they are closer, so that none is held against the peer.
const LOOK: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_millis(5);

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

impl Noop {
    fn new(id: u64) -> Noop {
        Noop { id, from: None }
    }
}

async fn noop(job: Noop) -> std::result::Result<(), BoxDynError> {
    if DONE.fetch_add(1, Relaxed) == 0 {
        FIRST.store(now_micros(), Relaxed);
    }
    if let Some(from) = job.from {
        RAN.lock().expect("nobody panics with it").push((from, now_ms()));
    }
    Ok(())
}

fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn now_ms() -> f64 {
    now_micros() as f64 / 1_000.0
}

async fn postgres_pool(url: &str, connections: u32) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(connections).min_connections(connections).connect(url).await?)
}

/// As durable as the others: each commit is on disk when it is answered.
async fn sqlite_pool(url: &str, connections: u32) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(60));
    // One writes at a time, whatever the number of connections.
    Ok(SqlitePoolOptions::new().max_connections(connections.min(16)).connect_with(options).await?)
}

driver!(postgres, apalis_postgres, PostgresStorage, sqlx::PgPool, crate::postgres_pool,
    count: "select count(*) from apalis.jobs",
    left: "select count(*) from apalis.jobs where status <> 'Done' and run_at <= now()",
    future: "insert into apalis.jobs (id, job_type, job, status, attempts, max_attempts, run_at, priority, metadata)
             select 'B' || lpad(n::text, 25, '0'), 'noop', '{\"id\":0}'::bytea, 'Pending', 0, 25,
                    now() + interval '1 day' + n * interval '1 ms', 0, ''
             from generate_series(1, $1) as n",
    latency: |storage: PostgresStorage<Noop>| storage.with_pubsub().poll_with_interval(std::time::Duration::from_secs(1)));

driver!(sqlite, apalis_sqlite, SqliteStorage, sqlx::SqlitePool, crate::sqlite_pool,
    count: "select count(*) from Jobs",
    left: "select count(*) from Jobs where status <> 'Done' and run_at <= strftime('%s', 'now')",
    future: "with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < $1)
             insert into Jobs (id, job_type, job, status, attempts, max_attempts, run_at, priority, metadata)
             select 'B' || printf('%025d', n), 'noop', cast('{\"id\":0}' as blob), 'Pending', 0, 25,
                    strftime('%s', 'now') + 86400 + n / 1000, 0, ''
             from numbers",
    latency: |storage: SqliteStorage<Noop>| storage.poll_with_interval(std::time::Duration::from_millis(10)));

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let sqlite = arguments.get(1).is_some_and(|url| url.starts_with("sqlite:"));
    let answer = if sqlite { sqlite::run(&arguments).await? } else { postgres::run(&arguments).await? };
    println!("{answer}");
    Ok(())
}
