//! Workers, and the clocks of what they run.

use crate::session::Attempted;
use crate::worker::Worker;
use rusqlite::{Connection, Params, Row, params};
use taskwheel_model::{TaskId, Time};

/// Executions one of whose clocks has run out, and waiting tasks that expire or were kept for a host.
const CLOCKS: [&str; 2] = [
    "SELECT id FROM task_running WHERE check_at <= ?1 ORDER BY check_at, id LIMIT ?2",
    "SELECT id FROM task_waiting WHERE check_at <= ?1 ORDER BY check_at, id LIMIT ?2",
];

pub(super) fn clocks_run_out(connection: &Connection, now: Time, max: usize) -> Attempted<Vec<TaskId>> {
    let mut found = Vec::new();
    for sql in CLOCKS {
        found.extend(ids(connection, sql, params![now.0, (max - found.len()) as i64])?);
    }
    Ok(found)
}

pub(super) fn ids(connection: &Connection, sql: &str, params: impl Params) -> Attempted<Vec<TaskId>> {
    let mut statement = connection.prepare_cached(sql)?;
    let ids = statement.query_map(params, |row| row.get(0).map(TaskId))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

/// A heartbeat need not be written while the last one is younger than a tenth of the interval, so silence counts from that much
/// later. A worker without a heartbeat is forgotten after a day; its leases look after themselves.
const SILENT: &str = "
SELECT worker_id FROM task_worker
WHERE seen_at + COALESCE(3 * heartbeat_ms + heartbeat_ms / 10, 86400000) <= ?1";

pub(super) fn silent(connection: &Connection, now: Time) -> Attempted<Vec<String>> {
    let mut statement = connection.prepare_cached(SILENT)?;
    let workers = statement.query_map([now.0], |row| row.get(0))?;
    Ok(workers.collect::<rusqlite::Result<_>>()?)
}

/// Those that live by their worker's heartbeat; a lease looks after itself. One walk over the executions, of which there are few,
/// whatever the number of workers.
const EXECUTIONS: &str = "
SELECT id FROM task_running WHERE worker_id IN (SELECT value FROM json_each(?1)) AND heartbeat_ms IS NOT NULL LIMIT ?2";

pub(super) fn executions_of(connection: &Connection, worker_ids: &[String], max: usize) -> Attempted<Vec<TaskId>> {
    ids(connection, EXECUTIONS, params![json(worker_ids), max as i64])
}

pub(super) fn forget(connection: &Connection, worker_ids: &[String]) -> Attempted<()> {
    let mut statement = connection.prepare_cached("DELETE FROM task_worker WHERE worker_id = ?1")?;
    for worker_id in worker_ids {
        statement.execute([worker_id])?;
    }
    Ok(())
}

const REGISTER: &str = "
INSERT INTO task_worker (worker_id, host, app, types, categories, heartbeat_ms, started_at, seen_at, tenant)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (worker_id) DO UPDATE SET host = excluded.host, app = excluded.app, types = excluded.types,
  categories = excluded.categories, heartbeat_ms = COALESCE(MAX(excluded.heartbeat_ms, heartbeat_ms), excluded.heartbeat_ms, heartbeat_ms), seen_at = MAX(seen_at, excluded.seen_at),
  tenant = excluded.tenant";

pub(super) fn register(connection: &Connection, worker: &Worker) -> Attempted<()> {
    connection.prepare_cached(REGISTER)?.execute(params![
        worker.worker_id,
        worker.host,
        worker.app,
        json(&worker.types),
        json(&worker.categories),
        worker.heartbeat_ms,
        worker.started_at.0,
        worker.seen_at.0,
        worker.tenant
    ])?;
    Ok(())
}

pub(super) fn seen(connection: &Connection, worker_ids: &[String], now: Time) -> Attempted<usize> {
    let mut statement =
        connection.prepare_cached("UPDATE task_worker SET seen_at = MAX(seen_at, ?2) WHERE worker_id = ?1")?;
    let mut known = 0;
    for worker_id in worker_ids {
        known += statement.execute(params![worker_id, now.0])?;
    }
    Ok(known)
}

/// A look that was noted a moment ago, in milliseconds, is not noted again.
const NOTED_MS: i64 = 400;

pub(super) fn watched_at(connection: &Connection) -> Attempted<Time> {
    let mut statement = connection.prepare_cached("SELECT looked_at FROM task_watch")?;
    Ok(statement.query_one([], |row| row.get(0).map(Time))?)
}

const NOTE: &str = "
UPDATE task_watch SET looked_at = ?1 WHERE looked_at NOT BETWEEN ?1 - ?2 AND ?1
  AND EXISTS (SELECT 1 FROM task_worker WHERE heartbeat_ms IS NOT NULL)";

pub(super) fn note_watch(connection: &Connection, now: Time) -> Attempted<()> {
    connection.prepare_cached(NOTE)?.execute([now.0, NOTED_MS])?;
    Ok(())
}

const WELCOME: &str = "UPDATE task_worker SET seen_at = ?1 WHERE heartbeat_ms <= ?2";
/// MIN of something and NULL is NULL here.
const WELCOME_UNNAMED: &str = "
UPDATE task_running SET check_at = MIN(COALESCE(deadline, ?1 + 3 * heartbeat_ms), ?1 + 3 * heartbeat_ms)
WHERE heartbeat_ms <= ?2 AND named = 0";

pub(super) fn welcome(connection: &Connection, away_ms: i64, now: Time) -> Attempted<()> {
    for sql in [WELCOME_UNNAMED, WELCOME] {
        connection.prepare_cached(sql)?.execute([now.0, away_ms])?;
    }
    Ok(())
}

const ALL: &str = "
SELECT worker_id, host, app, types, categories, heartbeat_ms, started_at, seen_at, tenant FROM task_worker ORDER BY worker_id";

pub(super) fn all(connection: &Connection) -> Attempted<Vec<Worker>> {
    let mut statement = connection.prepare_cached(ALL)?;
    let workers = statement.query_map([], worker)?;
    Ok(workers.collect::<rusqlite::Result<_>>()?)
}

fn worker(row: &Row<'_>) -> rusqlite::Result<Worker> {
    Ok(Worker {
        worker_id: row.get(0)?,
        host: row.get(1)?,
        app: row.get(2)?,
        types: list(row.get_ref(3)?.as_str()?),
        categories: list(row.get_ref(4)?.as_str()?),
        heartbeat_ms: row.get(5)?,
        started_at: Time(row.get(6)?),
        seen_at: Time(row.get(7)?),
        tenant: row.get(8)?,
    })
}

fn json(list: &[String]) -> String {
    serde_json::to_string(list).expect("names are plain JSON")
}

fn list(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap_or_default()
}
