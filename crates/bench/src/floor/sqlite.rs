//! The floor on SQLite: one writer, WAL, `synchronous=FULL`.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior, params};

use super::{Carried, Result, State};

pub(crate) const SCHEMA: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE floor_live (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  type TEXT NOT NULL,
  task_key TEXT,
  payload TEXT NOT NULL,
  priority INTEGER NOT NULL DEFAULT 5,
  status INTEGER NOT NULL DEFAULT 1,
  run_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  attempts INTEGER NOT NULL DEFAULT 0,
  worker TEXT,
  started_at INTEGER,
  created_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)),
  remark TEXT);
CREATE INDEX floor_claim ON floor_live (type, priority, run_at, id) WHERE status = 1;
CREATE TABLE floor_history (
  id INTEGER PRIMARY KEY,
  type TEXT NOT NULL,
  task_key TEXT,
  payload TEXT NOT NULL,
  priority INTEGER NOT NULL,
  status INTEGER NOT NULL,
  run_at INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  worker TEXT,
  started_at INTEGER,
  created_at INTEGER NOT NULL,
  remark TEXT,
  finished_at INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER)));
CREATE INDEX floor_history_time ON floor_history (type, finished_at)";

const LOAD: &str = "INSERT INTO floor_live (type, task_key, payload) VALUES ('mail', ?1, ?2)";

/// The `+` keeps the guard from being taken as a way to find the rows: after ANALYZE, SQLite would walk every waiting row.
const CLAIM: &str = "
UPDATE floor_live SET status = 2, attempts = attempts + 1, worker = ?1, started_at = CAST(unixepoch('subsec') * 1000 AS INTEGER)
WHERE id IN (
  SELECT id FROM floor_live WHERE type = 'mail' AND status = 1 AND run_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER)
  ORDER BY priority, run_at, id LIMIT ?2) AND +status = 1
RETURNING id, payload";

const KEEP: &str = "
INSERT INTO floor_history (id, type, task_key, payload, priority, status, run_at, attempts, worker, started_at, created_at, remark)
SELECT id, type, task_key, payload, priority, 3, run_at, attempts, worker, started_at, created_at, remark
FROM floor_live WHERE id = ?1 AND status = 2 AND worker = ?2";

const DELETE: &str = "DELETE FROM floor_live WHERE id = ?1 AND status = 2 AND worker = ?2";

/// Drains `tasks` preloaded tasks from a fresh file at `path` and returns how many were finished per second.
pub(crate) fn drain(path: &Path, tasks: u64, carried: Carried, batch: u64, state: State) -> Result<f64> {
    remove(path);
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch(SCHEMA)?;
    load(&mut connection, tasks, carried)?;
    if state == State::Vacuumed {
        connection.execute_batch("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE)")?;
    }
    let (clock, mut finished) = (Instant::now(), 0);
    loop {
        let ids = claim(&mut connection, batch)?;
        if ids.is_empty() {
            break;
        }
        finished += finish(&mut connection, &ids)?;
    }
    let elapsed = clock.elapsed();
    drop(connection);
    remove(path);
    super::check(tasks, finished)?;
    Ok(finished as f64 / elapsed.as_secs_f64())
}

fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        // It may not exist, which is what is wanted.
        let _ = std::fs::remove_file(name);
    }
}

fn load(connection: &mut Connection, tasks: u64, carried: Carried) -> Result<()> {
    for first in (0..tasks).step_by(1000) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for n in first..tasks.min(first + 1000) {
            transaction.prepare_cached(LOAD)?.execute(params![carried.key(n), carried.payload(n)])?;
        }
        transaction.commit()?;
    }
    Ok(())
}

fn claim(connection: &mut Connection, batch: u64) -> Result<Vec<i64>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let claimed: Vec<(i64, String)> = {
        let mut statement = transaction.prepare_cached(CLAIM)?;
        let rows =
            statement.query_map(params!["worker", i64::try_from(batch)?], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    transaction.commit()?;
    Ok(claimed.into_iter().map(|(id, _)| id).collect())
}

fn finish(connection: &mut Connection, ids: &[i64]) -> Result<u64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut finished = 0;
    {
        let (mut keep, mut delete) = (transaction.prepare_cached(KEEP)?, transaction.prepare_cached(DELETE)?);
        for id in ids {
            finished += keep.execute(params![id, "worker"])?;
            delete.execute(params![id, "worker"])?;
        }
    }
    transaction.commit()?;
    Ok(finished as u64)
}
