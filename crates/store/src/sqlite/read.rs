//! Reading tasks as they are shown.

use super::rows::{exec_id, time};
use crate::rows::{read_policy, status};
use crate::search::{Statement, Value};
use crate::session::Attempted;
use crate::task::{Attempt, Task, TaskDetail};
use crate::verbs::{Count, Outlived, Upcoming};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter};
use taskwheel_model::{ExecId, Outcome, Slot, Status, TaskId, Time};

/// Every column that a shown task is made of, from `task t`, `task_waiting w`, `task_running r`, `task_history h` and
/// `task_worker k`.
const COLUMNS: &str = "
SELECT t.id, t.tenant, t.type, t.task_key, t.payload, t.priority, t.run_at, t.expire_at, t.max_attempts, t.retry,
  t.timeout_ms, t.category, t.creator, t.route_key, t.slot, t.unique_key, t.schedule_id, t.run_id, t.parent_id, t.root_id, t.token_id,
  t.remark, t.created_at,
  COALESCE(w.status, r.status, h.status) AS status, COALESCE(w.round, r.round, h.round) AS round,
  COALESCE(w.attempts, r.attempts, h.attempts) AS attempts,
  COALESCE(w.error_count, r.error_count, h.error_count) AS error_count,
  COALESCE(w.error_info, r.error_info, h.error_info) AS error_info, COALESCE(w.result, r.result, h.result) AS result,
  COALESCE(w.checkpoint, r.checkpoint, h.checkpoint) AS checkpoint,
  COALESCE(w.progress, r.progress, h.progress) AS progress, COALESCE(w.affinity, r.affinity, h.affinity) AS affinity,
  COALESCE(r.host, h.host) AS host, COALESCE(r.worker_id, h.worker_id) AS worker_id,
  COALESCE(r.exec_id, h.exec_id) AS exec_id, COALESCE(r.started_at, h.started_at) AS started_at, h.finished_at,
  COALESCE(r.lease_until, max(r.started_at, CASE WHEN r.named = 1 THEN COALESCE(k.seen_at, 0) ELSE 0 END)
                          + 3 * r.heartbeat_ms) AS lease_until,
  h.outcome, COALESCE(w.updated_at, r.updated_at, h.updated_at) AS updated_at";

const SHOW: &str = " FROM task t LEFT JOIN task_waiting w ON w.id = t.id LEFT JOIN task_running r ON r.id = t.id
LEFT JOIN task_history h ON h.id = t.id LEFT JOIN task_worker k ON k.worker_id = r.worker_id WHERE t.id = ?1";

const ATTEMPTS: &str = "
SELECT round, attempt, exec_id, host, worker_id, started_at, finished_at, outcome, error
FROM task_attempt WHERE task_id = ?1 ORDER BY round, attempt, started_at, finished_at, exec_id";

pub(super) fn show(connection: &Connection, id: TaskId) -> Attempted<Option<TaskDetail>> {
    let mut statement = connection.prepare_cached(&format!("{COLUMNS}{SHOW}"))?;
    let found =
        statement.query_row([id.0], |row| Ok((task(row)?, row.get::<_, Option<i16>>("outcome")?))).optional()?;
    let Some((task, outcome)) = found else { return Ok(None) };
    let mut statement = connection.prepare_cached(ATTEMPTS)?;
    let attempts = statement.query_map([id.0], attempt)?;
    let mut attempts_log = attempts.collect::<rusqlite::Result<Vec<_>>>()?;
    attempts_log.extend(task.last_attempt(outcome.and_then(Outcome::from_code)));
    Ok(Some(TaskDetail { task, attempts_log }))
}

fn attempt(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    Ok(Attempt {
        round: row.get("round")?,
        attempt: row.get("attempt")?,
        exec_id: exec_id(row.get_ref("exec_id")?.as_str()?, 2)?,
        host: row.get("host")?,
        worker_id: row.get("worker_id")?,
        started_at: Time(row.get("started_at")?),
        finished_at: time(row.get("finished_at")?),
        outcome: Outcome::from_code(row.get("outcome")?),
        error: row.get("error")?,
    })
}

fn task(row: &Row<'_>) -> rusqlite::Result<Task> {
    let id = TaskId(row.get("id")?);
    let (started_at, finished_at) = (time(row.get("started_at")?), time(row.get("finished_at")?));
    Ok(Task {
        id,
        tenant: row.get("tenant")?,
        task_type: row.get("type")?,
        key: row.get("task_key")?,
        payload: row.get("payload")?,
        status: status(row.get("status")?),
        priority: row.get("priority")?,
        run_at: Time(row.get("run_at")?),
        expire_at: time(row.get("expire_at")?),
        max_attempts: row.get("max_attempts")?,
        retry: read_policy(row.get_ref("retry")?.as_str_or_null()?),
        timeout_ms: row.get("timeout_ms")?,
        category: row.get("category")?,
        creator: row.get("creator")?,
        route_key: row.get("route_key")?,
        slot: row.get::<_, Option<u16>>("slot")?.unwrap_or_else(|| Slot::of_id(id).get()),
        unique_key: row.get("unique_key")?,
        affinity: row.get("affinity")?,
        round: row.get("round")?,
        attempts: row.get("attempts")?,
        error_count: row.get("error_count")?,
        error_info: row.get("error_info")?,
        result: row.get("result")?,
        checkpoint: row.get("checkpoint")?,
        progress: row.get("progress")?,
        host: row.get("host")?,
        worker_id: row.get("worker_id")?,
        exec_id: current_exec_id(row)?,
        lease_until: time(row.get("lease_until")?),
        started_at,
        finished_at,
        exec_ms: finished_at.zip(started_at).map(|(end, start)| end.ms_since(start)),
        created_at: Time(row.get("created_at")?),
        updated_at: Time(row.get("updated_at")?),
        remark: row.get("remark")?,
        schedule_id: row.get("schedule_id")?,
        run_id: row.get("run_id")?,
        parent_id: row.get::<_, Option<i64>>("parent_id")?.map(TaskId),
        root_id: row.get::<_, Option<i64>>("root_id")?.map(TaskId),
        token_id: row.get("token_id")?,
    })
}

fn current_exec_id(row: &Row<'_>) -> rusqlite::Result<Option<ExecId>> {
    let column = row.as_ref().column_index("exec_id")?;
    row.get_ref(column)?.as_str_or_null()?.map(|text| exec_id(text, column)).transpose()
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Number(number) => ValueRef::Integer(*number),
        }))
    }
}

/// Searches differ from call to call: their statements are not kept prepared.
fn select<T>(
    connection: &Connection,
    columns: &str,
    statement: &Statement,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Attempted<Vec<T>> {
    let mut prepared = connection.prepare(&format!("{columns}{}", statement.text))?;
    let rows = prepared.query_map(params_from_iter(&statement.values), read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn select_tasks(connection: &Connection, statement: &Statement) -> Attempted<Vec<Task>> {
    select(connection, COLUMNS, statement, task)
}

pub(super) fn select_keys(connection: &Connection, statement: &Statement) -> Attempted<Vec<(TaskId, Time)>> {
    select(connection, "SELECT t.id, t.run_at", statement, |row| Ok((TaskId(row.get(0)?), Time(row.get(1)?))))
}

const COUNTS: &str = "
SELECT type, status, sum(tasks) FROM (
  SELECT type, status, count(*) AS tasks FROM task_waiting WHERE ?1 IS NULL OR tenant = ?1 GROUP BY type, status
  UNION ALL
  SELECT type, status, count(*) FROM task_running WHERE ?1 IS NULL OR tenant = ?1 GROUP BY type, status
  UNION ALL
  SELECT t.type, h.status, count(*) FROM task_history h JOIN task t ON t.id = h.id
  WHERE ?1 IS NULL OR h.tenant = ?1 GROUP BY t.type, h.status) n
GROUP BY type, status ORDER BY type, status";

pub(super) fn counts(connection: &Connection, tenant: Option<&str>) -> Attempted<Vec<Count>> {
    let mut statement = connection.prepare_cached(COUNTS)?;
    let counts = statement.query_map([tenant], |row| {
        Ok(Count { task_type: row.get(0)?, status: status(row.get(1)?), tasks: row.get::<_, i64>(2)?.unsigned_abs() })
    })?;
    Ok(counts.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn highest_id(connection: &Connection) -> Attempted<TaskId> {
    let mut statement = connection.prepare_cached("SELECT COALESCE(max(id), 0) FROM task")?;
    Ok(statement.query_row([], |row| row.get(0).map(TaskId))?)
}

/// Ranks that a type has no tasks in answer at once.
const UPCOMING: &str = "
SELECT due FROM task_waiting INDEXED BY task_waiting_claim
WHERE lane = ?1 AND rank = ?2 AND due > ?3 AND due <= ?4 ORDER BY due LIMIT ?5";

pub(super) fn upcoming(
    connection: &Connection,
    types: &[String],
    now: Time,
    until: Time,
    max: usize,
) -> Attempted<Vec<Upcoming>> {
    let mut statement = connection.prepare_cached(UPCOMING)?;
    let mut found = Vec::new();
    for task_type in types {
        for rank in 0..9 {
            let dues = statement
                .query_map(params![task_type, rank, now.0, until.0, max as i64], |row| row.get(0).map(Time))?;
            for due in dues {
                found.push(Upcoming { task_type: task_type.clone(), due: due? });
            }
        }
    }
    found.sort_by_key(|one| one.due);
    found.truncate(max);
    Ok(found)
}

/// The expression is the one that the index is on.
const OUTLIVED: &str = "
SELECT id, round, updated_at FROM task_history INDEXED BY task_history_by_end WHERE status + 0 = ?2 AND finished_at < ?1
ORDER BY finished_at LIMIT ?3";

pub(super) fn outlived(connection: &Connection, status: Status, before: Time, max: usize) -> Attempted<Vec<Outlived>> {
    let mut statement = connection.prepare_cached(OUTLIVED)?;
    let outlived =
        |row: &Row<'_>| Ok(Outlived { id: TaskId(row.get(0)?), round: row.get(1)?, updated_at: Time(row.get(2)?) });
    let rows = statement.query_map(params![before.0, status.code(), max as i64], outlived)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
