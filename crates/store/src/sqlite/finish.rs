//! Success on SQLite: from running to history, guarded by id and execution.

use super::rows::text;
use crate::session::{Attempted, Done, Ended};
use rusqlite::{Connection, OptionalExtension, params};
use taskwheel_model::{Status, TaskId, Time};

/// The guard: what follows concerns this very execution.
const FIND: &str = "
SELECT CASE WHEN heartbeat_ms IS NOT NULL THEN worker_id END, unique_key IS NOT NULL,
       attempts > 1 OR round > 1 OR affinity IS NOT NULL, type, attempts, due, started_at, tenant, run_id,
       CASE WHEN run_id IS NOT NULL THEN host END
FROM task_running WHERE id = ?1 AND exec_id = ?2 AND (?3 IS NULL OR tenant = ?3)";
const KEEP: &str = "
INSERT OR FAIL INTO task_history (id, tenant, status, round, attempts, error_count, error_info, checkpoint, progress, result,
                                  affinity, exec_id, worker_id, host, started_at, outcome, finished_at, updated_at)
SELECT id, tenant, ?2, round, attempts, error_count, error_info, checkpoint, progress, COALESCE(?3, result), affinity,
       exec_id, worker_id, host, started_at, ?4, ?5, ?5
FROM task_running WHERE id = ?1";
const FREE: &str = "
DELETE FROM task_unique WHERE (tenant, type, unique_key) = (SELECT tenant, type, unique_key FROM task_running WHERE id = ?1)";

pub(super) fn succeed(connection: &Connection, done: &[Done], keep: bool, now: Time) -> Attempted<Vec<Ended>> {
    let mut find = connection.prepare_cached(FIND)?;
    let mut history = connection.prepare_cached(KEEP)?;
    let mut leave = connection.prepare_cached("DELETE FROM task_running WHERE id = ?1")?;
    let mut ended = Vec::with_capacity(done.len());
    for Done { id, exec_id, tenant, outcome, result } in done {
        let found = find
            .query_row(params![id.0, text(*exec_id), tenant], |row| {
                let ended = Ended {
                    id: *id,
                    worker_id: row.get(0)?,
                    tenant: row.get(7)?,
                    task_type: row.get(3)?,
                    attempt: row.get(4)?,
                    due: Time(row.get(5)?),
                    started_at: Time(row.get(6)?),
                    run_id: row.get(8)?,
                    host: row.get(9)?,
                };
                Ok((ended, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let Some((one, is_unique, has_log)) = found else { continue };
        if is_unique {
            connection.prepare_cached(FREE)?.execute([id.0])?;
        }
        if keep {
            history.execute(params![id.0, Status::Success.code(), result, outcome.code(), now.0])?;
        } else {
            remove(connection, *id, has_log)?;
        }
        leave.execute([id.0])?;
        ended.push(one);
    }
    Ok(ended)
}

/// Where successful tasks are not kept. Only a task that was tried, retried or given back before has a log.
fn remove(connection: &Connection, id: TaskId, has_log: bool) -> Attempted<()> {
    if has_log {
        connection.prepare_cached("DELETE FROM task_attempt WHERE task_id = ?1")?.execute([id.0])?;
    }
    connection.prepare_cached("DELETE FROM task WHERE id = ?1")?.execute([id.0])?;
    Ok(())
}
