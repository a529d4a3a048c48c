//! Workers, and the clocks of what they run.

use super::fault;
use super::rows::json;
use crate::session::Attempted;
use crate::worker::Worker;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use taskwheel_model::{TaskId, Time};

/// Waiting tasks that expire or were kept for a host, and executions one of whose clocks has run out.
const CLOCKS: &str = "
(SELECT id FROM task_running FORCE INDEX (task_running_check) WHERE check_at <= ? ORDER BY check_at, id LIMIT ?)
UNION ALL
(SELECT id FROM task_waiting_check WHERE check_at <= ? ORDER BY check_at, id LIMIT ?) LIMIT ?";

pub(super) async fn clocks_run_out(connection: &mut MySqlConnection, now: Time, max: usize) -> Attempted<Vec<TaskId>> {
    let max = max as i64;
    let query = sqlx::query(CLOCKS).bind(now.0).bind(max).bind(now.0).bind(max).bind(max);
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get(0).map(TaskId).map_err(fault)).collect()
}

/// A heartbeat need not be written while the last one is younger than a tenth of the interval, so silence counts from that much
/// later. A worker without a heartbeat is forgotten after a day; its leases look after themselves.
const SILENT: &str = "
SELECT worker_id FROM task_worker
WHERE seen_at + COALESCE(3 * heartbeat_ms + heartbeat_ms DIV 10, 86400000) <= ?";

pub(super) async fn silent(connection: &mut MySqlConnection, now: Time) -> Attempted<Vec<String>> {
    let rows = sqlx::query(SILENT).bind(now.0).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get(0).map_err(fault)).collect()
}

/// Those that live by their worker's heartbeat. A lease looks after itself.
const EXECUTIONS: &str = "
SELECT r.id FROM task_running r
WHERE r.worker_id IN (SELECT n.worker_id FROM JSON_TABLE(?, '$[*]' COLUMNS (worker_id VARCHAR(64) PATH '$')) n)
  AND r.heartbeat_ms IS NOT NULL LIMIT ?";

pub(super) async fn executions_of(
    connection: &mut MySqlConnection,
    worker_ids: &[String],
    max: usize,
) -> Attempted<Vec<TaskId>> {
    let query = sqlx::query(EXECUTIONS).bind(json(worker_ids)).bind(max as i64);
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get(0).map(TaskId).map_err(fault)).collect()
}

const FORGET: &str = "
DELETE k FROM JSON_TABLE(?, '$[*]' COLUMNS (worker_id VARCHAR(64) PATH '$')) n
STRAIGHT_JOIN task_worker k FORCE INDEX (PRIMARY) ON k.worker_id = n.worker_id";

pub(super) async fn forget(connection: &mut MySqlConnection, worker_ids: &[String]) -> Attempted<()> {
    sqlx::query(FORGET).bind(json(worker_ids)).execute(connection).await.map_err(fault)?;
    Ok(())
}

const REGISTER: &str = "
INSERT INTO task_worker (worker_id, host, app, types, categories, heartbeat_ms, started_at, seen_at, tenant)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE host = VALUES(host), app = VALUES(app), types = VALUES(types), categories = VALUES(categories),
  heartbeat_ms = COALESCE(GREATEST(VALUES(heartbeat_ms), heartbeat_ms), VALUES(heartbeat_ms), heartbeat_ms), seen_at = GREATEST(seen_at, VALUES(seen_at)), tenant = VALUES(tenant)";

pub(super) async fn register(connection: &mut MySqlConnection, worker: &Worker) -> Attempted<()> {
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

const SEEN: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (worker_id VARCHAR(64) PATH '$')) n
STRAIGHT_JOIN task_worker k FORCE INDEX (PRIMARY) ON k.worker_id = n.worker_id SET k.seen_at = GREATEST(k.seen_at, ?)";

/// In the order of their ids, as every verb locks workers. A call that comes late does not take back what a later one wrote.
pub(super) async fn seen(connection: &mut MySqlConnection, worker_ids: &[String], now: Time) -> Attempted<usize> {
    let mut sorted: Vec<_> = worker_ids.iter().collect();
    sorted.sort_unstable();
    // Rows count as affected when they are found, changed or not.
    let query = sqlx::query(SEEN).bind(json(&sorted)).bind(now.0);
    Ok(query.execute(connection).await.map_err(fault)?.rows_affected() as usize)
}

/// A look that was noted a moment ago, in milliseconds, is not noted again.
const NOTED_MS: i64 = 400;

pub(super) async fn watched_at(connection: &mut MySqlConnection) -> Attempted<Time> {
    let query = sqlx::query("SELECT looked_at FROM task_watch FOR UPDATE");
    let row = query.fetch_one(connection).await.map_err(fault)?;
    row.try_get(0).map(Time).map_err(fault)
}

const HEARTBEATS: &str = "SELECT 1 FROM task_worker WHERE heartbeat_ms IS NOT NULL LIMIT 1";
const STALE: &str = "SELECT 1 FROM task_watch WHERE looked_at NOT BETWEEN ? AND ? FOR UPDATE SKIP LOCKED";
const NOTE: &str = "UPDATE task_watch SET looked_at = ?";

/// Looks for workers first: in one statement it would lock them, and hold up their heartbeats. Where the row is locked,
/// another node is just noting a look.
pub(super) async fn note_watch(connection: &mut MySqlConnection, now: Time) -> Attempted<()> {
    if sqlx::query(HEARTBEATS).fetch_optional(&mut *connection).await.map_err(fault)?.is_none() {
        return Ok(());
    }
    let stale = sqlx::query(STALE).bind(now.0 - NOTED_MS).bind(now.0);
    if stale.fetch_optional(&mut *connection).await.map_err(fault)?.is_some() {
        sqlx::query(NOTE).bind(now.0).execute(connection).await.map_err(fault)?;
    }
    Ok(())
}

const WELCOME: &str = "UPDATE task_worker SET seen_at = ? WHERE heartbeat_ms <= ?";
/// LEAST of something and NULL is NULL here.
const WELCOME_UNNAMED: &str = "
UPDATE task_running SET check_at = LEAST(COALESCE(deadline, ? + 3 * heartbeat_ms), ? + 3 * heartbeat_ms)
WHERE heartbeat_ms <= ? AND named = 0";

pub(super) async fn welcome(connection: &mut MySqlConnection, away_ms: i64, now: Time) -> Attempted<()> {
    let unnamed = sqlx::query(WELCOME_UNNAMED).bind(now.0).bind(now.0).bind(away_ms);
    unnamed.execute(&mut *connection).await.map_err(fault)?;
    sqlx::query(WELCOME).bind(now.0).bind(away_ms).execute(connection).await.map_err(fault)?;
    Ok(())
}

pub(super) async fn all(connection: &mut MySqlConnection) -> Attempted<Vec<Worker>> {
    let sql = "SELECT worker_id, host, app, types, categories, heartbeat_ms, started_at, seen_at, tenant FROM task_worker ORDER BY worker_id";
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| worker(row).map_err(fault)).collect()
}

fn worker(row: &MySqlRow) -> sqlx::Result<Worker> {
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

fn list(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap_or_default()
}
