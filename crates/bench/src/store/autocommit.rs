//! What submit stands beside: connections that each insert one row a commit into the floor's live table.

use super::database::Database;
use super::submit::CALLERS;
use super::work::task;
use crate::floor::Result;
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::NewTask;
use taskwheel_store::Dialect;
use tokio::sync::Barrier;

const POSTGRES: &str = "
CREATE TABLE floor_live (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, type text NOT NULL, task_key text, payload jsonb NOT NULL,
  priority smallint NOT NULL DEFAULT 5, status smallint NOT NULL DEFAULT 1, run_at timestamptz NOT NULL DEFAULT now(),
  attempts integer NOT NULL DEFAULT 0, worker text, started_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(), remark text);
CREATE INDEX floor_claim ON floor_live (type, priority, run_at, id) WHERE status = 1";

const MYSQL: &str = "
CREATE TABLE floor_live (
  id bigint AUTO_INCREMENT PRIMARY KEY, type varchar(128) NOT NULL, task_key varchar(255), payload mediumtext NOT NULL,
  priority smallint NOT NULL DEFAULT 5, status smallint NOT NULL DEFAULT 1, run_at datetime(3) NOT NULL DEFAULT now(3),
  attempts int NOT NULL DEFAULT 0, worker varchar(64), started_at datetime(3),
  created_at datetime(3) NOT NULL DEFAULT now(3), remark varchar(255),
  KEY floor_claim (type, status, priority, run_at, id)) ENGINE = InnoDB";

const SQLITE: &str = "
PRAGMA journal_mode = WAL;
CREATE TABLE floor_live (
  id INTEGER PRIMARY KEY AUTOINCREMENT, type TEXT NOT NULL, task_key TEXT, payload TEXT NOT NULL,
  priority INTEGER NOT NULL DEFAULT 5, status INTEGER NOT NULL DEFAULT 1,
  run_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  attempts INTEGER NOT NULL DEFAULT 0, worker TEXT, started_at INTEGER,
  created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)), remark TEXT);
CREATE INDEX floor_claim ON floor_live (type, priority, run_at, id) WHERE status = 1";

/// How many rows all connections together insert per second.
pub(super) async fn rate(database: &Database, duration: Duration) -> Result<f64> {
    let table = match database.dialect {
        Dialect::Sqlite => SQLITE,
        Dialect::Postgres => POSTGRES,
        Dialect::Mysql => MYSQL,
    };
    let mut sql = database.sql().await?;
    sql.run(table).await?;
    let (inserted, elapsed) = match database.dialect {
        Dialect::Sqlite => sqlite(&database.url, duration)?,
        Dialect::Postgres | Dialect::Mysql => servers(database, duration).await?,
    };
    let found = sql.number("SELECT COUNT(*) FROM floor_live").await?;
    if u64::try_from(found)? != inserted {
        return Err(format!("inserted {inserted} rows, found {found}").into());
    }
    Ok(inserted as f64 / elapsed.as_secs_f64())
}

/// A connection to a server.
enum Connected {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

impl Connected {
    async fn insert(&mut self, task: &NewTask) -> Result<()> {
        match self {
            Connected::Postgres(connection) => {
                sqlx::query("INSERT INTO floor_live (type, task_key, payload) VALUES ($1, $2, $3::text::jsonb)")
                    .bind(&task.task_type)
                    .bind(&task.key)
                    .bind(&task.payload)
                    .execute(connection)
                    .await?;
            }
            Connected::Mysql(connection) => {
                sqlx::query("INSERT INTO floor_live (type, task_key, payload) VALUES (?, ?, ?)")
                    .bind(&task.task_type)
                    .bind(&task.key)
                    .bind(&task.payload)
                    .execute(connection)
                    .await?;
            }
        }
        Ok(())
    }
}

async fn servers(database: &Database, duration: Duration) -> Result<(u64, Duration)> {
    let start = Arc::new(Barrier::new(usize::try_from(CALLERS)? + 1));
    let mut running = Vec::new();
    for number in 0..CALLERS {
        let connected = match database.dialect {
            Dialect::Mysql => Connected::Mysql(MySqlConnection::connect(&database.url).await?),
            _ => Connected::Postgres(PgConnection::connect(&database.url).await?),
        };
        running.push(tokio::spawn(inserter(connected, number, duration, start.clone())));
    }
    start.wait().await;
    let (clock, mut inserted) = (Instant::now(), 0);
    for inserter in running {
        inserted += inserter.await??;
    }
    Ok((inserted, clock.elapsed()))
}

async fn inserter(mut connected: Connected, number: u64, duration: Duration, start: Arc<Barrier>) -> Result<u64> {
    start.wait().await;
    let (clock, mut inserted) = (Instant::now(), 0);
    while clock.elapsed() < duration {
        connected.insert(&task(number)).await?;
        inserted += 1;
    }
    Ok(inserted)
}

/// One thread for each connection, because SQLite blocks.
fn sqlite(url: &str, duration: Duration) -> Result<(u64, Duration)> {
    let path = url.trim_start_matches("sqlite://").to_owned();
    let clock = Instant::now();
    let threads: Vec<_> = (0..CALLERS)
        .map(|number| {
            let path = path.clone();
            std::thread::spawn(move || sqlite_inserter(&path, number, clock + duration))
        })
        .collect();
    let mut inserted = 0;
    for thread in threads {
        inserted += thread.join().map_err(|_| "an inserter panicked")??;
    }
    Ok((inserted, clock.elapsed()))
}

fn sqlite_inserter(path: &str, number: u64, until: Instant) -> Result<u64> {
    let connection = rusqlite::Connection::open(path)?;
    // Waiting is what an autocommit connection does here; giving up would lose the row.
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let task = task(number);
    let mut statement = connection.prepare("INSERT INTO floor_live (type, task_key, payload) VALUES (?1, ?2, ?3)")?;
    let mut inserted = 0;
    while Instant::now() < until {
        statement.execute((&task.task_type, &task.key, &task.payload))?;
        inserted += 1;
    }
    Ok(inserted)
}
