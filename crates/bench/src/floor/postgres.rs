//! The floor on PostgreSQL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor, Row};
use tokio::sync::Barrier;

use super::{Carried, Result, State};

pub(crate) const SCHEMA: &str = "
DROP TABLE IF EXISTS floor_live, floor_history;
CREATE TABLE floor_live (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  type text NOT NULL,
  task_key text,
  payload jsonb NOT NULL,
  priority smallint NOT NULL DEFAULT 5,
  status smallint NOT NULL DEFAULT 1,
  run_at timestamptz NOT NULL DEFAULT now(),
  attempts integer NOT NULL DEFAULT 0,
  worker text,
  started_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  remark text);
CREATE INDEX floor_claim ON floor_live (type, priority, run_at, id) WHERE status = 1;
CREATE TABLE floor_history (
  id bigint PRIMARY KEY,
  type text NOT NULL,
  task_key text,
  payload jsonb NOT NULL,
  priority smallint NOT NULL,
  status smallint NOT NULL,
  run_at timestamptz NOT NULL,
  attempts integer NOT NULL,
  worker text,
  started_at timestamptz,
  created_at timestamptz NOT NULL,
  remark text,
  finished_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX floor_history_time ON floor_history (type, finished_at)";

const LOAD: &str = "
INSERT INTO floor_live (type, task_key, payload)
SELECT 'mail', 'key' || g, jsonb_build_object('order', g, 'note', 'a small payload of about sixty bytes')
FROM generate_series(1, $1::bigint) g";

const LOAD_NUMBERS: &str = "
INSERT INTO floor_live (type, payload)
SELECT 'mail', jsonb_build_object('id', g) FROM generate_series(1, $1::bigint) g";

const CLAIM: &str = "
UPDATE floor_live SET status = 2, attempts = attempts + 1, worker = $1, started_at = now()
WHERE status = 1 AND id IN (
  SELECT id FROM floor_live WHERE type = 'mail' AND status = 1 AND run_at <= now()
  ORDER BY priority, run_at, id LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING id, payload::text";

/// DELETE and INSERT as one statement, which is one transaction and one round trip.
const FINISH: &str = "
WITH gone AS (DELETE FROM floor_live WHERE id = ANY($1) AND status = 2 AND worker = $2 RETURNING *)
INSERT INTO floor_history (id, type, task_key, payload, priority, status, run_at, attempts, worker, started_at, created_at, remark)
SELECT id, type, task_key, payload, priority, 3, run_at, attempts, worker, started_at, created_at, remark FROM gone";

/// Drains `tasks` preloaded tasks and returns how many were finished per second.
pub(crate) async fn drain(
    url: &str,
    tasks: u64,
    carried: Carried,
    batch: i64,
    clients: usize,
    state: State,
) -> Result<f64> {
    let mut setup = PgConnection::connect(url).await?;
    setup.execute(SCHEMA).await?;
    let load = match carried {
        Carried::KeyAndPayload => LOAD,
        Carried::Number => LOAD_NUMBERS,
    };
    sqlx::query(load).bind(i64::try_from(tasks)?).execute(&mut setup).await?;
    if state == State::Vacuumed {
        setup.execute("VACUUM ANALYZE floor_live").await?;
    }
    // An ordinary role may be refused this, and then the drain does without, as the store's does.
    let _ = setup.execute("CHECKPOINT").await;
    let start = Arc::new(Barrier::new(clients));
    let mut running = Vec::new();
    for number in 0..clients {
        let connection = PgConnection::connect(url).await?;
        running.push(tokio::spawn(client(connection, format!("worker{number}"), batch, start.clone())));
    }
    let (mut finished, mut elapsed) = (0, Duration::ZERO);
    for client in running {
        let (count, time) = client.await??;
        finished += count;
        elapsed = elapsed.max(time);
    }
    setup.execute("DROP TABLE floor_live, floor_history").await?;
    super::check(tasks, finished)?;
    Ok(finished as f64 / elapsed.as_secs_f64())
}

async fn client(
    mut connection: PgConnection,
    worker: String,
    batch: i64,
    start: Arc<Barrier>,
) -> Result<(u64, Duration)> {
    start.wait().await;
    let (clock, mut finished) = (Instant::now(), 0);
    loop {
        let rows = sqlx::query(CLAIM).bind(&worker).bind(batch).fetch_all(&mut connection).await?;
        if rows.is_empty() {
            return Ok((finished, clock.elapsed()));
        }
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        finished += sqlx::query(FINISH).bind(&ids).bind(&worker).execute(&mut connection).await?.rows_affected();
    }
}
