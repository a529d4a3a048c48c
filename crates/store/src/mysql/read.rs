//! Reading tasks as they are shown.

use super::claim::exec_id;
use super::fault;
use super::plain::Built;
use super::rows::json;
use crate::rows::{read_policy, status};
use crate::search::Statement;
use crate::session::{Attempted, Fault, Picked};
use crate::task::{Attempt, Task, TaskDetail};
use crate::verbs::{Count, Outlived, Upcoming};
use sqlx::mysql::{MySql, MySqlArguments, MySqlConnection, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Row};
use std::collections::HashMap;
use taskwheel_model::{Outcome, Slot, Status, TaskId, Time};

/// Every column that a shown task is made of, from `task t`, `task_waiting w`, `task_running r`, `task_history h` and
/// `task_worker k`.
const COLUMNS: &str = "
SELECT t.id, t.tenant, t.type, t.task_key, t.payload, t.priority,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', t.run_at) DIV 1000 AS run_at, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', t.expire_at) DIV 1000 AS expire_at,
  t.max_attempts, t.retry, t.timeout_ms, t.category, t.creator, t.route_key, t.slot, t.unique_key,
  t.schedule_id, t.run_id, t.parent_id, t.root_id, t.token_id, t.remark,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', t.created_at) DIV 1000 AS created_at,
  COALESCE(w.status, r.status, h.status) AS status, COALESCE(w.round, r.round, h.round) AS round,
  COALESCE(w.attempts, r.attempts, h.attempts) AS attempts,
  COALESCE(w.error_count, r.error_count, h.error_count) AS error_count,
  COALESCE(w.error_info, r.error_info, h.error_info) AS error_info, COALESCE(w.result, r.result, h.result) AS result,
  COALESCE(w.checkpoint, r.checkpoint, h.checkpoint) AS checkpoint,
  COALESCE(w.progress, r.progress, h.progress) AS progress, COALESCE(w.affinity, r.affinity, h.affinity) AS affinity,
  COALESCE(r.host, h.host) AS host, COALESCE(r.worker_id, h.worker_id) AS worker_id,
  COALESCE(r.exec_id, h.exec_id) AS exec_id, COALESCE(r.started_at, h.started_at) AS started_at, h.finished_at,
  COALESCE(r.lease_until, GREATEST(r.started_at, IF(r.named = 1, COALESCE(k.seen_at, 0), 0)) + 3 * r.heartbeat_ms) AS lease_until,
  h.outcome, COALESCE(w.updated_at, r.updated_at, h.updated_at) AS updated_at";

const SHOW: &str = " FROM task t LEFT JOIN task_waiting w ON w.tenant = t.tenant AND w.id = t.id
LEFT JOIN task_running r ON r.id = t.id LEFT JOIN task_history h ON h.id = t.id LEFT JOIN task_worker k ON k.worker_id = r.worker_id WHERE t.id = ?";

const ATTEMPTS: &str = "
SELECT round, attempt, exec_id, host, worker_id, started_at, finished_at, outcome, error
FROM task_attempt WHERE task_id = ? ORDER BY round, attempt, started_at, finished_at, exec_id";

pub(super) async fn show(connection: &mut MySqlConnection, id: TaskId) -> Attempted<Option<TaskDetail>> {
    let sql = AssertSqlSafe(format!("{COLUMNS}{SHOW}"));
    let row = sqlx::query(sql).bind(id.0).fetch_optional(&mut *connection).await.map_err(fault)?;
    let Some(row) = row else { return Ok(None) };
    let task = task(&row).map_err(fault)?;
    let rows = sqlx::query(ATTEMPTS).bind(id.0).fetch_all(connection).await.map_err(fault)?;
    let mut attempts_log = rows.iter().map(attempt).collect::<sqlx::Result<Vec<_>>>().map_err(fault)?;
    let outcome = row.try_get::<Option<i16>, _>("outcome").map_err(fault)?.and_then(Outcome::from_code);
    attempts_log.extend(task.last_attempt(outcome));
    Ok(Some(TaskDetail { task, attempts_log }))
}

fn attempt(row: &MySqlRow) -> sqlx::Result<Attempt> {
    Ok(Attempt {
        round: count(row, "round")?,
        attempt: count(row, "attempt")?,
        exec_id: exec_id(row, "exec_id")?.ok_or(sqlx::Error::RowNotFound)?,
        host: row.try_get("host")?,
        worker_id: row.try_get("worker_id")?,
        started_at: Time(row.try_get("started_at")?),
        finished_at: time(row, "finished_at")?,
        outcome: Outcome::from_code(row.try_get("outcome")?),
        error: row.try_get("error")?,
    })
}

fn task(row: &MySqlRow) -> sqlx::Result<Task> {
    let id = TaskId(row.try_get("id")?);
    let (started_at, finished_at) = (time(row, "started_at")?, time(row, "finished_at")?);
    let slot = row.try_get::<Option<i16>, _>("slot")?.and_then(|slot| u16::try_from(slot).ok());
    Ok(Task {
        id,
        tenant: row.try_get("tenant")?,
        task_type: row.try_get("type")?,
        key: row.try_get("task_key")?,
        payload: row.try_get("payload")?,
        status: status(row.try_get("status")?),
        priority: u8::try_from(row.try_get::<i16, _>("priority")?).unwrap_or(1),
        run_at: Time(row.try_get("run_at")?),
        expire_at: time(row, "expire_at")?,
        max_attempts: row.try_get("max_attempts")?,
        retry: read_policy(row.try_get("retry")?),
        timeout_ms: row.try_get("timeout_ms")?,
        category: row.try_get("category")?,
        creator: row.try_get("creator")?,
        route_key: row.try_get("route_key")?,
        slot: slot.unwrap_or_else(|| Slot::of_id(id).get()),
        unique_key: row.try_get("unique_key")?,
        affinity: row.try_get("affinity")?,
        round: count(row, "round")?,
        attempts: count(row, "attempts")?,
        error_count: count(row, "error_count")?,
        error_info: row.try_get("error_info")?,
        result: row.try_get("result")?,
        checkpoint: row.try_get("checkpoint")?,
        progress: row.try_get("progress")?,
        host: row.try_get("host")?,
        worker_id: row.try_get("worker_id")?,
        exec_id: exec_id(row, "exec_id")?,
        lease_until: time(row, "lease_until")?,
        started_at,
        finished_at,
        exec_ms: finished_at.zip(started_at).map(|(end, start)| end.ms_since(start)),
        created_at: Time(row.try_get("created_at")?),
        updated_at: Time(row.try_get("updated_at")?),
        remark: row.try_get("remark")?,
        schedule_id: row.try_get("schedule_id")?,
        run_id: row.try_get("run_id")?,
        parent_id: row.try_get::<Option<i64>, _>("parent_id")?.map(TaskId),
        root_id: row.try_get::<Option<i64>, _>("root_id")?.map(TaskId),
        token_id: row.try_get("token_id")?,
    })
}

fn time(row: &MySqlRow, column: &str) -> sqlx::Result<Option<Time>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(Time))
}

fn count(row: &MySqlRow, column: &str) -> sqlx::Result<u32> {
    Ok(u32::try_from(row.try_get::<i32, _>(column)?).unwrap_or(0))
}

fn search(columns: &str, statement: &Statement) -> Query<'static, MySql, MySqlArguments> {
    Built { text: format!("{columns}{}", statement.text), values: statement.values.clone() }.prepared()
}

pub(super) async fn select_tasks(connection: &mut MySqlConnection, statement: &Statement) -> Attempted<Vec<Task>> {
    let rows = search(COLUMNS, statement).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| task(row).map_err(fault)).collect()
}

pub(super) async fn select_keys(
    connection: &mut MySqlConnection,
    statement: &Statement,
) -> Attempted<Vec<(TaskId, Time)>> {
    let columns = "SELECT t.id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', t.run_at) DIV 1000";
    let rows = search(columns, statement).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| Ok((TaskId(row.try_get(0).map_err(fault)?), Time(row.try_get(1).map_err(fault)?)))).collect()
}

const COUNTS: &str = "
SELECT type, status, CAST(SUM(tasks) AS SIGNED) FROM (
  SELECT type, status, count(*) AS tasks FROM task_waiting WHERE ? IS NULL OR tenant = ? GROUP BY type, status
  UNION ALL
  SELECT type, status, count(*) FROM task_running WHERE ? IS NULL OR tenant = ? GROUP BY type, status
  UNION ALL
  SELECT t.type, h.status, count(*) FROM task_history h JOIN task t ON t.id = h.id
  WHERE ? IS NULL OR h.tenant = ? GROUP BY t.type, h.status) n
GROUP BY type, status ORDER BY type, status";

pub(super) async fn counts(connection: &mut MySqlConnection, tenant: Option<&str>) -> Attempted<Vec<Count>> {
    let query = (0..6).fold(sqlx::query(COUNTS), |query, _| query.bind(tenant));
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    rows.iter()
        .map(|row| {
            Ok(Count {
                task_type: row.try_get(0).map_err(fault)?,
                status: status(row.try_get(1).map_err(fault)?),
                tasks: row.try_get::<i64, _>(2).map_err(fault)?.unsigned_abs(),
            })
        })
        .collect()
}

pub(super) async fn highest_id(connection: &mut MySqlConnection) -> Attempted<TaskId> {
    let sql = "SELECT COALESCE(max(id), 0) FROM task";
    sqlx::query(sql).fetch_one(connection).await.and_then(|row| row.try_get(0)).map(TaskId).map_err(fault)
}

/// Which ranks of which lanes have a task at all: the first one of each is looked up.
const OCCUPIED: &str = "
SELECT n.place, r.`rank`, (SELECT w.due FROM task_waiting w FORCE INDEX (PRIMARY)
  WHERE w.lane = n.lane AND w.`rank` = r.`rank` ORDER BY w.due LIMIT 1) AS earliest
FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY, lane VARCHAR(265) PATH '$')) n
STRAIGHT_JOIN (SELECT 0 AS `rank` UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
  UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8) r
HAVING earliest <= ?";
/// Most ranges in one statement.
const RANGES_MAX: usize = 100;

/// Each range is cut by values, not by columns of a join, or the optimizer would not cut it at all.
pub(super) async fn upcoming(
    connection: &mut MySqlConnection,
    types: &[String],
    now: Time,
    until: Time,
    max: usize,
) -> Attempted<Vec<Upcoming>> {
    let occupied = sqlx::query(OCCUPIED).bind(json(types)).bind(until.0);
    let occupied = occupied.fetch_all(&mut *connection).await.map_err(fault)?;
    let mut upcoming = Vec::new();
    for rows in occupied.chunks(RANGES_MAX) {
        let mut query = Built::default();
        for (place, row) in rows.iter().enumerate() {
            let lane = &types[row.try_get::<i64, _>(0).map_err(fault)? as usize - 1];
            query.push(if place == 0 { "(" } else { " UNION ALL (" });
            query.push("SELECT w.lane, w.due FROM task_waiting w FORCE INDEX (PRIMARY) WHERE w.lane = ").text(lane);
            query.push(" AND w.`rank` = ").number(row.try_get(1).map_err(fault)?);
            query.push(" AND w.due > ").number(now.0).push(" AND w.due <= ").number(until.0);
            query.push(" ORDER BY w.due LIMIT ").number(max as i64).push(")");
        }
        for row in query.read_once(&mut *connection).await? {
            let (task_type, due) = (row.try_get(0).map_err(fault)?, Time(row.try_get(1).map_err(fault)?));
            upcoming.push(Upcoming { task_type, due });
        }
    }
    upcoming.sort_by_key(|one| one.due);
    upcoming.truncate(max);
    Ok(upcoming)
}

pub(super) async fn outlived(
    connection: &mut MySqlConnection,
    status: Status,
    before: Time,
    max: usize,
) -> Attempted<Vec<Outlived>> {
    let sql = "SELECT id, round, updated_at FROM task_history FORCE INDEX (task_history_by_end)
         WHERE finished_at < ? AND status = ? LIMIT ?";
    let query = sqlx::query(sql).bind(before.0).bind(status.code()).bind(max as i64);
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    let outlived = |row: &MySqlRow| {
        let round = row.try_get::<i32, _>(1)?.unsigned_abs();
        Ok(Outlived { id: TaskId(row.try_get(0)?), round, updated_at: Time(row.try_get(2)?) })
    };
    rows.iter().map(outlived).collect::<sqlx::Result<_>>().map_err(fault)
}

const CONTENT: &str = "
SELECT t.id, t.task_key, t.payload, t.retry, t.max_attempts, t.timeout_ms, t.trace_parent, t.context
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) n STRAIGHT_JOIN task t FORCE INDEX (PRIMARY) ON t.id = n.id";

/// Fills in what `task` says about picked tasks.
pub(super) async fn read_content(connection: &mut MySqlConnection, picked: &mut [Picked]) -> Attempted<()> {
    if picked.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = picked.iter().map(|task| task.id).collect();
    let rows = sqlx::query(CONTENT).bind(json(&ids)).fetch_all(connection).await.map_err(fault)?;
    let mut places: HashMap<_, _> = picked.iter_mut().map(|task| (task.id, task)).collect();
    for row in &rows {
        if let Some(task) = places.remove(&TaskId(row.try_get(0).map_err(fault)?)) {
            task.key = row.try_get(1).map_err(fault)?;
            task.payload = row.try_get(2).map_err(fault)?;
            task.retry = row.try_get(3).map_err(fault)?;
            task.max_attempts = row.try_get(4).map_err(fault)?;
            task.timeout_ms = row.try_get(5).map_err(fault)?;
            task.trace_parent = row.try_get(6).map_err(fault)?;
            task.context = row.try_get(7).map_err(fault)?;
        }
    }
    match places.keys().next() {
        Some(id) => Err(Fault::Again(format!("task {id} waits, and is not seen in the table of tasks"))),
        None => Ok(()),
    }
}
