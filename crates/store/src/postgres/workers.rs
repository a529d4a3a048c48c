//! Workers, and the clocks of what they run.

use super::fault;
use crate::session::Attempted;
use crate::worker::Worker;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use taskwheel_model::{TaskId, Time};

/// Waiting tasks that expire or were kept for a host, and executions one of whose clocks has run out.
const CLOCKS: &str = "
(SELECT id FROM task_running WHERE check_at <= $1 ORDER BY check_at LIMIT $2)
UNION ALL
(SELECT id FROM task_waiting WHERE check_at <= $1 ORDER BY check_at LIMIT $2) LIMIT $2";

pub(super) async fn clocks_run_out(connection: &mut PgConnection, now: Time, max: usize) -> Attempted<Vec<TaskId>> {
    let rows = sqlx::query(CLOCKS).bind(now.0).bind(max as i64).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get(0).map(TaskId).map_err(fault)).collect()
}

/// A heartbeat need not be written while the last one is younger than a tenth of the interval, so silence counts from that much
/// later. A worker without a heartbeat is forgotten after a day; its leases look after themselves.
const SILENT: &str = "
SELECT worker_id FROM task_worker
WHERE seen_at + COALESCE(3 * heartbeat_ms + heartbeat_ms / 10, 86400000) <= $1";

pub(super) async fn silent(connection: &mut PgConnection, now: Time) -> Attempted<Vec<String>> {
    let rows = sqlx::query(SILENT).bind(now.0).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get(0).map_err(fault)).collect()
}

// Those that live by their worker's heartbeat. A lease looks after itself.
const EXECUTIONS: &str = "SELECT id FROM task_running WHERE worker_id = ANY($1) AND heartbeat_ms IS NOT NULL LIMIT $2";

pub(super) async fn executions_of(
    connection: &mut PgConnection,
    worker_ids: &[String],
    max: usize,
) -> Attempted<Vec<TaskId>> {
    let rows = sqlx::query(EXECUTIONS).bind(worker_ids).bind(max as i64).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get(0).map(TaskId).map_err(fault)).collect()
}

pub(super) async fn forget(connection: &mut PgConnection, worker_ids: &[String]) -> Attempted<()> {
    sqlx::query("DELETE FROM task_worker WHERE worker_id = ANY($1)")
        .bind(worker_ids)
        .execute(connection)
        .await
        .map_err(fault)?;
    Ok(())
}

const REGISTER: &str = "
INSERT INTO task_worker (worker_id, host, app, types, categories, heartbeat_ms, started_at, seen_at, tenant)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (worker_id) DO UPDATE SET host = excluded.host, app = excluded.app, types = excluded.types,
  categories = excluded.categories, heartbeat_ms = GREATEST(excluded.heartbeat_ms, task_worker.heartbeat_ms),
  seen_at = GREATEST(task_worker.seen_at, excluded.seen_at),
  tenant = excluded.tenant";

pub(super) async fn register(connection: &mut PgConnection, worker: &Worker) -> Attempted<()> {
    sqlx::query(REGISTER)
        .bind(&worker.worker_id)
        .bind(&worker.host)
        .bind(&worker.app)
        .bind(json(&worker.types))
        .bind(json(&worker.categories))
        .bind(worker.heartbeat_ms)
        .bind(worker.started_at.0)
        .bind(worker.seen_at.0)
        .bind(&worker.tenant)
        .execute(connection)
        .await
        .map_err(fault)?;
    Ok(())
}

/// In the order of their ids, as every verb locks workers. A call that comes late does not take back what a later one wrote.
const SEEN: &str = "
UPDATE task_worker SET seen_at = GREATEST(seen_at, $2) WHERE worker_id IN (
  SELECT worker_id FROM task_worker WHERE worker_id = ANY($1) ORDER BY worker_id FOR NO KEY UPDATE)";

pub(super) async fn seen(connection: &mut PgConnection, worker_ids: &[String], now: Time) -> Attempted<usize> {
    let query = sqlx::query(SEEN).bind(worker_ids).bind(now.0);
    Ok(query.execute(connection).await.map_err(fault)?.rows_affected() as usize)
}

/// A look that was noted a moment ago, in milliseconds, is not noted again.
const NOTED_MS: i64 = 400;

pub(super) async fn watched_at(connection: &mut PgConnection) -> Attempted<Time> {
    let query = sqlx::query("SELECT looked_at FROM task_watch FOR UPDATE");
    let row = query.fetch_one(connection).await.map_err(fault)?;
    row.try_get(0).map(Time).map_err(fault)
}

/// Where it is locked, another node is just noting a look. The note is not flushed: it would hold up whoever commits next, and after a crash
/// of the server an older one only gives workers more time.
const NOTE: &str = "
UPDATE task_watch SET looked_at = $1 WHERE only_row = (
  SELECT only_row FROM task_watch WHERE looked_at NOT BETWEEN $1 - $2 AND $1
    AND EXISTS (SELECT FROM task_worker WHERE heartbeat_ms IS NOT NULL) FOR UPDATE SKIP LOCKED)
RETURNING set_config('synchronous_commit', 'off', true)";

pub(super) async fn note_watch(connection: &mut PgConnection, now: Time) -> Attempted<()> {
    sqlx::query(NOTE).bind(now.0).bind(NOTED_MS).execute(connection).await.map_err(fault)?;
    Ok(())
}

// In the order of their ids, as every verb locks executions and then workers.
const WELCOME: &str = "
UPDATE task_worker SET seen_at = $1 WHERE worker_id IN (
  SELECT worker_id FROM task_worker WHERE heartbeat_ms <= $2 ORDER BY worker_id FOR NO KEY UPDATE)";
const WELCOME_UNNAMED: &str = "
UPDATE task_running SET check_at = LEAST(deadline, $1 + 3 * heartbeat_ms) WHERE id IN (
  SELECT id FROM task_running WHERE heartbeat_ms <= $2 AND named = 0 ORDER BY id FOR UPDATE)";

pub(super) async fn welcome(connection: &mut PgConnection, away_ms: i64, now: Time) -> Attempted<()> {
    for sql in [WELCOME_UNNAMED, WELCOME] {
        sqlx::query(sql).bind(now.0).bind(away_ms).execute(&mut *connection).await.map_err(fault)?;
    }
    Ok(())
}

pub(super) async fn all(connection: &mut PgConnection) -> Attempted<Vec<Worker>> {
    let sql = "SELECT worker_id, host, app, types, categories, heartbeat_ms, started_at, seen_at, tenant FROM task_worker ORDER BY worker_id";
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| worker(row).map_err(fault)).collect()
}

fn worker(row: &PgRow) -> sqlx::Result<Worker> {
    Ok(Worker {
        worker_id: row.try_get(0)?,
        host: row.try_get(1)?,
        app: row.try_get(2)?,
        types: list(row.try_get(3)?),
        categories: list(row.try_get(4)?),
        heartbeat_ms: row.try_get(5)?,
        started_at: Time(row.try_get(6)?),
        seen_at: Time(row.try_get(7)?),
        tenant: row.try_get(8)?,
    })
}

fn json(list: &[String]) -> String {
    serde_json::to_string(list).expect("names are plain JSON")
}

fn list(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap_or_default()
}
