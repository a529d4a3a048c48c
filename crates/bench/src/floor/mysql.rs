//! The floor on MariaDB and MySQL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::sync::Barrier;

use super::{Carried, Result, State};

const TABLES: &str = "DROP TABLE IF EXISTS floor_live, floor_history";

pub(crate) const LIVE: &str = "
CREATE TABLE floor_live (
  id bigint AUTO_INCREMENT PRIMARY KEY,
  type varchar(128) NOT NULL,
  task_key varchar(255),
  payload mediumtext NOT NULL,
  priority smallint NOT NULL DEFAULT 5,
  status smallint NOT NULL DEFAULT 1,
  run_at datetime(3) NOT NULL DEFAULT now(3),
  attempts int NOT NULL DEFAULT 0,
  worker varchar(64),
  started_at datetime(3),
  created_at datetime(3) NOT NULL DEFAULT now(3),
  remark varchar(255),
  KEY floor_claim (type, status, priority, run_at, id)) ENGINE = InnoDB";

const HISTORY: &str = "
CREATE TABLE floor_history (
  id bigint PRIMARY KEY,
  type varchar(128) NOT NULL,
  task_key varchar(255),
  payload mediumtext NOT NULL,
  priority smallint NOT NULL,
  status smallint NOT NULL,
  run_at datetime(3) NOT NULL,
  attempts int NOT NULL,
  worker varchar(64),
  started_at datetime(3),
  created_at datetime(3) NOT NULL,
  remark varchar(255),
  finished_at datetime(3) NOT NULL DEFAULT now(3),
  KEY floor_history_time (type, finished_at)) ENGINE = InnoDB";

const COPIED: &str = "id, type, task_key, payload, priority, run_at, attempts, worker, started_at, created_at, remark";

/// Drains `tasks` preloaded tasks and returns how many were finished per second.
pub(crate) async fn drain(
    url: &str,
    tasks: u64,
    carried: Carried,
    batch: u64,
    clients: usize,
    state: State,
) -> Result<f64> {
    let mut setup = MySqlConnection::connect(url).await?;
    for statement in [TABLES, LIVE, HISTORY] {
        send(&mut setup, statement.into()).await?;
    }
    load(&mut setup, tasks, carried).await?;
    if state == State::Vacuumed {
        send(&mut setup, "ANALYZE TABLE floor_live".into()).await?;
        // What the load left to the background (purge, flushing) is not part of the drain.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let start = Arc::new(Barrier::new(clients));
    let mut running = Vec::new();
    for number in 0..clients {
        let mut connection = MySqlConnection::connect(url).await?;
        send(&mut connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".into()).await?;
        running.push(tokio::spawn(client(connection, format!("worker{number}"), batch, start.clone())));
    }
    let (mut finished, mut elapsed) = (0, Duration::ZERO);
    for client in running {
        let (count, time) = client.await??;
        finished += count;
        elapsed = elapsed.max(time);
    }
    send(&mut setup, TABLES.into()).await?;
    super::check(tasks, finished)?;
    Ok(finished as f64 / elapsed.as_secs_f64())
}

/// Sends several statements as one message, so that a transaction costs as few round trips as it can.
async fn send(connection: &mut MySqlConnection, sql: String) -> sqlx::Result<Vec<MySqlRow>> {
    sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await
}

async fn load(connection: &mut MySqlConnection, tasks: u64, carried: Carried) -> Result<()> {
    let row = |n| {
        let key = carried.key(n).map_or_else(|| "NULL".to_owned(), |key| format!("'{key}'"));
        format!("('mail',{key},'{}')", carried.payload(n))
    };
    for first in (0..tasks).step_by(1000) {
        let rows: Vec<String> = (first..tasks.min(first + 1000)).map(row).collect();
        send(connection, format!("INSERT INTO floor_live (type, task_key, payload) VALUES {}", rows.join(","))).await?;
    }
    Ok(())
}

async fn client(
    mut connection: MySqlConnection,
    worker: String,
    batch: u64,
    start: Arc<Barrier>,
) -> Result<(u64, Duration)> {
    start.wait().await;
    let (clock, mut finished) = (Instant::now(), 0);
    loop {
        match claim(&mut connection, &worker, batch).await {
            Ok(ids) if ids.is_empty() => return Ok((finished, clock.elapsed())),
            Ok(ids) => {
                while let Err(error) = finish(&mut connection, &worker, &ids).await {
                    again(&mut connection, error).await?;
                }
                finished += ids.len() as u64;
            }
            Err(error) => again(&mut connection, error).await?,
        }
    }
}

async fn claim(connection: &mut MySqlConnection, worker: &str, batch: u64) -> sqlx::Result<Vec<i64>> {
    let rows = send(
        connection,
        format!(
            "BEGIN; SELECT id, payload FROM floor_live WHERE type = 'mail' AND status = 1 AND run_at <= now(3)
             ORDER BY priority, run_at, id LIMIT {batch} FOR UPDATE SKIP LOCKED"
        ),
    )
    .await?;
    let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    if ids.is_empty() {
        send(connection, "ROLLBACK".into()).await?;
        return Ok(ids);
    }
    send(
        connection,
        format!(
            "UPDATE floor_live SET status = 2, attempts = attempts + 1, worker = '{worker}', started_at = now(3)
             WHERE id IN ({}) AND status = 1; COMMIT",
            list(&ids)
        ),
    )
    .await?;
    Ok(ids)
}

async fn finish(connection: &mut MySqlConnection, worker: &str, ids: &[i64]) -> sqlx::Result<()> {
    let mine = format!("id IN ({}) AND status = 2 AND worker = '{worker}'", list(ids));
    send(
        connection,
        format!(
            "BEGIN; INSERT INTO floor_history ({COPIED}, status) SELECT {COPIED}, 3 FROM floor_live WHERE {mine} FOR UPDATE;
             DELETE FROM floor_live WHERE {mine}; COMMIT"
        ),
    )
    .await?;
    Ok(())
}

/// Rolls back after a deadlock or a lock wait time-out; any other error ends the benchmark.
async fn again(connection: &mut MySqlConnection, error: sqlx::Error) -> sqlx::Result<()> {
    let text = error.to_string();
    if !text.contains("1213") && !text.contains("1205") {
        return Err(error);
    }
    send(connection, "ROLLBACK".into()).await?;
    Ok(())
}

fn list(ids: &[i64]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
