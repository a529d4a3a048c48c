//! Submit on SQLite. The triggers on `task` put each task where claims find it.

use crate::session::{Attempted, Insert};
use rusqlite::{Connection, OptionalExtension, params};
use taskwheel_model::{RetryPolicy, TaskId};

/// `OR FAIL` spares the journal that would undo a single statement: the savepoint around all of them does that.
const INSERT: &str = "
INSERT OR FAIL INTO task (tenant, type, task_key, payload, priority, run_at, expire_at, max_attempts, retry, timeout_ms,
                          category, creator, route_key, slot, unique_key, affinity, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

pub(super) fn insert(connection: &Connection, tasks: &[Insert]) -> Attempted<Vec<TaskId>> {
    let mut statement = connection.prepare_cached(INSERT)?;
    let mut ids = Vec::with_capacity(tasks.len());
    for Insert { task, priority, run_at, slot, created_at } in tasks {
        let id = statement.insert(params![
            task.tenant,
            task.task_type,
            task.key,
            task.payload,
            priority,
            run_at.0,
            task.expire_at.map(|time| time.0),
            task.max_attempts,
            task.retry.as_ref().map(policy),
            task.timeout_ms,
            task.category,
            task.creator,
            task.route_key,
            slot,
            task.unique_key,
            task.affinity,
            created_at.0
        ])?;
        ids.push(TaskId(id));
    }
    Ok(ids)
}

fn policy(policy: &RetryPolicy) -> String {
    serde_json::to_string(policy).expect("a policy is plain JSON")
}

const LIVE_UNIQUE: &str = "SELECT id FROM task_unique WHERE tenant = ?1 AND type = ?2 AND unique_key = ?3";

pub(super) fn live_unique(connection: &Connection, keys: &[(&str, &str, &str)]) -> Attempted<Vec<Option<TaskId>>> {
    let mut statement = connection.prepare_cached(LIVE_UNIQUE)?;
    let mut holders = Vec::with_capacity(keys.len());
    for key in keys {
        holders.push(statement.query_row(*key, |row| row.get(0).map(TaskId)).optional()?);
    }
    Ok(holders)
}
