//! Reading tasks as they are shown.

use super::claim::exec_id;
use super::fault;
use crate::rows::{read_policy, status};
use crate::search::{Statement, Value};
use crate::session::Attempted;
use crate::task::{Attempt, Task, TaskDetail};
use crate::verbs::{Count, Outlived, Upcoming};
use sqlx::postgres::{PgArguments, PgConnection, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Row};
use taskwheel_model::{Outcome, Slot, Status, TaskId, Time};

/// Every column that a shown task is made of, from `task t`, `task_waiting w`, `task_running r`, `task_history h` and
/// `task_worker k`.
const COLUMNS: &str = "
SELECT t.id, t.tenant, t.type, t.task_key, t.payload::text AS payload, t.priority,
  (date_part('epoch', t.run_at) * 1000)::bigint AS run_at, (date_part('epoch', t.expire_at) * 1000)::bigint AS expire_at,
  t.max_attempts, t.retry::text AS retry, t.timeout_ms, t.category, t.creator, t.route_key, t.slot, t.unique_key,
  t.schedule_id, t.run_id, t.parent_id, t.root_id, t.token_id, t.remark,
  (date_part('epoch', t.created_at) * 1000)::bigint AS created_at,
  COALESCE(w.status, r.status, h.status) AS status, COALESCE(w.round, r.round, h.round) AS round,
  COALESCE(w.attempts, r.attempts, h.attempts) AS attempts,
  COALESCE(w.error_count, r.error_count, h.error_count) AS error_count,
  COALESCE(w.error_info, r.error_info, h.error_info) AS error_info, COALESCE(w.result, r.result, h.result) AS result,
  COALESCE(w.checkpoint, r.checkpoint, h.checkpoint) AS checkpoint,
  COALESCE(w.progress, r.progress, h.progress) AS progress, COALESCE(w.affinity, r.affinity, h.affinity) AS affinity,
  COALESCE(r.host, h.host) AS host, COALESCE(r.worker_id, h.worker_id) AS worker_id,
  COALESCE(r.exec_id, h.exec_id) AS exec_id, COALESCE(r.started_at, h.started_at) AS started_at, h.finished_at,
  COALESCE(r.lease_until, GREATEST(r.started_at, CASE WHEN r.named = 1 THEN k.seen_at END) + 3 * r.heartbeat_ms) AS lease_until,
  h.outcome, COALESCE(w.updated_at, r.updated_at, h.updated_at) AS updated_at";

const SHOW: &str = " FROM task t LEFT JOIN task_waiting w ON w.id = t.id LEFT JOIN task_running r ON r.id = t.id
LEFT JOIN task_history h ON h.id = t.id LEFT JOIN task_worker k ON k.worker_id = r.worker_id WHERE t.id = $1";

const ATTEMPTS: &str = "
SELECT round, attempt, exec_id, host, worker_id, started_at, finished_at, outcome, error
FROM task_attempt WHERE task_id = $1 ORDER BY round, attempt, started_at, finished_at, exec_id";

pub(super) async fn show(connection: &mut PgConnection, id: TaskId) -> Attempted<Option<TaskDetail>> {
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

fn attempt(row: &PgRow) -> sqlx::Result<Attempt> {
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

fn task(row: &PgRow) -> sqlx::Result<Task> {
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

fn time(row: &PgRow, column: &str) -> sqlx::Result<Option<Time>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(Time))
}

fn count(row: &PgRow, column: &str) -> sqlx::Result<u32> {
    Ok(u32::try_from(row.try_get::<i32, _>(column)?).unwrap_or(0))
}

/// Searches differ from call to call: their statements are not kept prepared.
fn bound(columns: &str, statement: &Statement) -> Query<'static, Postgres, PgArguments> {
    let query = sqlx::query(AssertSqlSafe(format!("{columns}{}", statement.text))).persistent(false);
    statement.values.iter().fold(query, |query, value| match value {
        Value::Text(text) => query.bind(text.clone()),
        Value::Number(number) => query.bind(*number),
    })
}

pub(super) async fn select_tasks(connection: &mut PgConnection, statement: &Statement) -> Attempted<Vec<Task>> {
    let rows = bound(COLUMNS, statement).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| task(row).map_err(fault)).collect()
}

pub(super) async fn select_keys(
    connection: &mut PgConnection,
    statement: &Statement,
) -> Attempted<Vec<(TaskId, Time)>> {
    let columns = "SELECT t.id, (date_part('epoch', t.run_at) * 1000)::bigint";
    let rows = bound(columns, statement).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| Ok((TaskId(row.try_get(0).map_err(fault)?), Time(row.try_get(1).map_err(fault)?)))).collect()
}

const COUNTS: &str = "
SELECT type, status, sum(tasks)::bigint FROM (
  SELECT type, status, count(*) AS tasks FROM task_waiting WHERE $1::text IS NULL OR tenant = $1 GROUP BY type, status
  UNION ALL
  SELECT type, status, count(*) FROM task_running WHERE $1::text IS NULL OR tenant = $1 GROUP BY type, status
  UNION ALL
  SELECT t.type, h.status, count(*) FROM task_history h JOIN task t ON t.id = h.id
  WHERE $1::text IS NULL OR h.tenant = $1 GROUP BY t.type, h.status) n
GROUP BY type, status ORDER BY type, status";

pub(super) async fn counts(connection: &mut PgConnection, tenant: Option<&str>) -> Attempted<Vec<Count>> {
    let rows = sqlx::query(COUNTS).bind(tenant).fetch_all(connection).await.map_err(fault)?;
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

pub(super) async fn highest_id(connection: &mut PgConnection) -> Attempted<TaskId> {
    let sql = "SELECT COALESCE(max(id), 0) FROM task";
    sqlx::query(sql).fetch_one(connection).await.and_then(|row| row.try_get(0)).map(TaskId).map_err(fault)
}

const UPCOMING: &str = "
SELECT n.type, z.due FROM unnest($1::text[]) AS n(type) CROSS JOIN generate_series(0, 8) AS r(rank) CROSS JOIN LATERAL (
  SELECT due FROM task_waiting w WHERE w.lane = n.type AND w.rank = r.rank AND w.due > $2 AND w.due <= $3
  ORDER BY due LIMIT $4) z
ORDER BY z.due LIMIT $4";

pub(super) async fn upcoming(
    connection: &mut PgConnection,
    types: &[String],
    now: Time,
    until: Time,
    max: usize,
) -> Attempted<Vec<Upcoming>> {
    let query = sqlx::query(UPCOMING).bind(types).bind(now.0).bind(until.0).bind(max as i64);
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    rows.iter()
        .map(|row| {
            Ok(Upcoming { task_type: row.try_get(0).map_err(fault)?, due: Time(row.try_get(1).map_err(fault)?) })
        })
        .collect()
}

pub(super) async fn outlived(
    connection: &mut PgConnection,
    status: Status,
    before: Time,
    max: usize,
) -> Attempted<Vec<Outlived>> {
    let sql = "SELECT id, round, updated_at FROM task_history WHERE finished_at < $1 AND status = $2 LIMIT $3";
    let query = sqlx::query(sql).bind(before.0).bind(status.code()).bind(max as i64);
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    let outlived = |row: &PgRow| {
        let round = row.try_get::<i32, _>(1)?.unsigned_abs();
        Ok(Outlived { id: TaskId(row.try_get(0)?), round, updated_at: Time(row.try_get(2)?) })
    };
    rows.iter().map(outlived).collect::<sqlx::Result<_>>().map_err(fault)
}
