//! Loading tasks for a decision, and writing what was decided.

use super::claim::exec_id;
use super::fault;
use crate::StoreError;
use crate::rows::{Change, ContentRow, HistoryRow, LiveRow, Place, Record, Writes};
use crate::session::Attempted;
use serde::Serialize;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use std::collections::HashMap;
use taskwheel_model::{ExecId, Outcome, TaskId, Time};

/// How often a task is looked for that moves from table to table while it is looked for.
const LOOKS_MAX: usize = 10;

const LOCK_WAITING: &str = "SELECT * FROM task_waiting WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const LOCK_RUNNING: &str = "SELECT * FROM task_running WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const LOCK_HISTORY: &str = "SELECT * FROM task_history WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const KNOWN: &str = "SELECT id FROM task WHERE id = ANY($1)";
/// Read once the rows are locked: a statement that waits for a lock sees all other rows as they were before it waited, and what
/// somebody just changed would be written back as it was.
const CONTENTS: &str = "
SELECT t.id, t.type, t.category, t.creator, t.unique_key, t.run_id, t.priority,
       (date_part('epoch', t.run_at) * 1000)::bigint AS run_at, (date_part('epoch', t.expire_at) * 1000)::bigint AS expire_at,
       t.max_attempts, t.retry::text AS retry, t.timeout_ms, t.remark,
       k.seen_at + COALESCE(k.heartbeat_ms, 0) / 10 AS seen_at
FROM unnest($1::bigint[], $2::text[]) AS n(id, worker_id)
CROSS JOIN LATERAL (SELECT * FROM task t WHERE t.id = n.id OFFSET 0) t
LEFT JOIN task_worker k ON k.worker_id = n.worker_id";

/// Locks tasks wherever they are. A task that another transaction is just moving is waited for and then found in its new
/// place, which may be one that was looked at before: hence the repetition while a known task is in none.
pub(super) async fn load(connection: &mut PgConnection, ids: &[TaskId]) -> Attempted<Vec<Record>> {
    let mut missing: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let mut places = HashMap::with_capacity(ids.len());
    for _ in 0..LOOKS_MAX {
        for (sql, read) in [
            (LOCK_RUNNING, running as fn(&PgRow) -> sqlx::Result<Place>),
            (LOCK_WAITING, waiting),
            (LOCK_HISTORY, history),
        ] {
            if missing.is_empty() {
                break;
            }
            for row in sqlx::query(sql).bind(&missing).fetch_all(&mut *connection).await.map_err(fault)? {
                places.insert(row.try_get::<i64, _>("id").map_err(fault)?, read(&row).map_err(fault)?);
            }
            missing.retain(|id| !places.contains_key(id));
        }
        if !missing.is_empty() {
            let known = sqlx::query(KNOWN).bind(&missing).fetch_all(&mut *connection).await.map_err(fault)?;
            missing = known.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>().map_err(fault)?;
        }
        if missing.is_empty() {
            return contents(connection, places).await;
        }
    }
    Err(StoreError::Database(format!("task {} is in no table, or never stays in one", missing[0])).into())
}

/// The tasks in their places, by id.
async fn contents(connection: &mut PgConnection, mut places: HashMap<i64, Place>) -> Attempted<Vec<Record>> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let worker = |place: &Place| match place {
        Place::Live(row) => row.worker_id.clone(),
        Place::History(_) => None,
    };
    let (ids, workers): (Vec<i64>, Vec<Option<String>>) = places.iter().map(|(id, place)| (*id, worker(place))).unzip();
    let rows = sqlx::query(CONTENTS).bind(ids).bind(workers).fetch_all(connection).await.map_err(fault)?;
    let mut records = Vec::with_capacity(rows.len());
    for row in &rows {
        if let Some(place) = places.remove(&row.try_get("id").map_err(fault)?) {
            records.push(record(row, place).map_err(fault)?);
        }
    }
    records.sort_unstable_by_key(Record::id);
    Ok(records)
}

fn record(row: &PgRow, place: Place) -> sqlx::Result<Record> {
    let run_id = row.try_get("run_id")?;
    let place = match place {
        Place::History(history) => Place::History(HistoryRow { run_id, ..history }),
        live @ Place::Live(_) => live,
    };
    Ok(Record {
        content: ContentRow {
            id: TaskId(row.try_get("id")?),
            priority: u8::try_from(row.try_get::<i16, _>("priority")?).unwrap_or(1),
            run_at: Time(row.try_get("run_at")?),
            expire_at: time(row, "expire_at")?,
            max_attempts: row.try_get("max_attempts")?,
            retry: row.try_get("retry")?,
            timeout_ms: row.try_get("timeout_ms")?,
            remark: row.try_get("remark")?,
        },
        task_type: row.try_get("type")?,
        category: row.try_get("category")?,
        creator: row.try_get("creator")?,
        unique_key: row.try_get("unique_key")?,
        run_id,
        place,
        worker_seen_at: time(row, "seen_at")?,
    })
}

/// What rows of waiting and running tasks have in common.
fn live(row: &PgRow) -> sqlx::Result<LiveRow> {
    Ok(LiveRow {
        id: TaskId(row.try_get("id")?),
        tenant: row.try_get("tenant")?,
        task_type: row.try_get("type")?,
        lane: row.try_get("type")?,
        rank: row.try_get("rank")?,
        due: Time(row.try_get("due")?),
        status: row.try_get("status")?,
        round: count(row, "round")?,
        attempts: count(row, "attempts")?,
        error_count: count(row, "error_count")?,
        error_info: row.try_get("error_info")?,
        checkpoint: row.try_get("checkpoint")?,
        progress: row.try_get("progress")?,
        result: row.try_get("result")?,
        expire_at: time(row, "expire_at")?,
        category: row.try_get("category")?,
        creator: row.try_get("creator")?,
        unique_key: row.try_get("unique_key")?,
        run_id: row.try_get("run_id")?,
        affinity: row.try_get("affinity")?,
        hold_exec_id: None,
        hold_until: None,
        exec_id: None,
        worker_id: None,
        host: None,
        started_at: None,
        deadline: None,
        heartbeat_ms: None,
        named: 0,
        lease_until: None,
        check_at: time(row, "check_at")?,
        updated_at: Time(row.try_get("updated_at")?),
    })
}

fn waiting(row: &PgRow) -> sqlx::Result<Place> {
    Ok(Place::Live(LiveRow {
        lane: row.try_get("lane")?,
        hold_exec_id: exec_id(row, "hold_exec_id")?,
        hold_until: time(row, "hold_until")?,
        ..live(row)?
    }))
}

fn running(row: &PgRow) -> sqlx::Result<Place> {
    Ok(Place::Live(LiveRow {
        exec_id: exec_id(row, "exec_id")?,
        worker_id: row.try_get("worker_id")?,
        host: row.try_get("host")?,
        started_at: time(row, "started_at")?,
        deadline: time(row, "deadline")?,
        heartbeat_ms: row.try_get("heartbeat_ms")?,
        named: row.try_get("named")?,
        lease_until: time(row, "lease_until")?,
        ..live(row)?
    }))
}

fn history(row: &PgRow) -> sqlx::Result<Place> {
    Ok(Place::History(HistoryRow {
        id: TaskId(row.try_get("id")?),
        tenant: row.try_get("tenant")?,
        run_id: None,
        status: row.try_get("status")?,
        round: count(row, "round")?,
        attempts: count(row, "attempts")?,
        error_count: count(row, "error_count")?,
        error_info: row.try_get("error_info")?,
        checkpoint: row.try_get("checkpoint")?,
        progress: row.try_get("progress")?,
        result: row.try_get("result")?,
        affinity: row.try_get("affinity")?,
        hold_until: time(row, "hold_until")?,
        exec_id: exec_id(row, "exec_id")?,
        worker_id: row.try_get("worker_id")?,
        host: row.try_get("host")?,
        started_at: time(row, "started_at")?,
        outcome: row.try_get("outcome")?,
        finished_at: Time(row.try_get("finished_at")?),
        updated_at: Time(row.try_get("updated_at")?),
    }))
}

fn time(row: &PgRow, column: &str) -> sqlx::Result<Option<Time>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(Time))
}

fn count(row: &PgRow, column: &str) -> sqlx::Result<u32> {
    Ok(u32::try_from(row.try_get::<i32, _>(column)?).unwrap_or(0))
}

/// An execution that stays where it is. Whatever else changes, it keeps its worker and its start.
const KEEP_RUNNING: &str = "
UPDATE task_running r SET rank = n.rank, due = n.due, expire_at = n.expire_at, named = n.named,
  lease_until = n.lease_until, check_at = n.check_at, checkpoint = n.checkpoint, progress = n.progress, updated_at = n.updated_at
FROM json_populate_recordset(NULL::task_running, $1::json) n WHERE r.id = n.id AND r.exec_id = n.exec_id";
/// The marks of finished tasks: what they are found by in `task_history_mark`.
macro_rules! marks {
    ($tasks:literal) => {
        concat!(
            "SELECT DISTINCT t.tenant, m.mark, t.id >> 8 AS bucket FROM ",
            $tasks,
            " t CROSS JOIN LATERAL (VALUES (CASE WHEN t.status = 3 THEN 'Success' END), ('host:' || t.host)) AS m(mark)
             WHERE m.mark IS NOT NULL"
        )
    };
}
/// Inserts rows that come as one JSON array. The columns are named: those that a later version adds get their defaults.
macro_rules! enter {
    ($table:literal, $columns:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (",
            $columns,
            ") SELECT ",
            $columns,
            " FROM json_populate_recordset(NULL::",
            $table,
            ", $1::json)"
        )
    };
}
const ENTER_WAITING: &str = enter!(
    "task_waiting",
    "id, tenant, type, lane, rank, due, status, round, attempts, error_count, error_info, checkpoint, progress, result, expire_at,
     category, creator, unique_key, run_id, affinity, hold_exec_id, hold_until, check_at, updated_at"
);
const ENTER_HISTORY: &str = concat!(
    "WITH entered AS (",
    enter!(
        "task_history",
        "id, tenant, status, round, attempts, error_count, error_info, checkpoint, progress, result, affinity, hold_until, exec_id,
     worker_id, host, started_at, outcome, finished_at, updated_at"
    ),
    " RETURNING id, tenant, status, host)
INSERT INTO task_history_mark (tenant, mark, bucket) ",
    marks!("entered")
);
/// A bucket that has none of a mark's tasks left loses the mark. What others enter meanwhile brings its own.
const LEAVE_HISTORY: &str = concat!(
    "WITH gone AS (DELETE FROM task_history WHERE id = ANY($1) RETURNING id, tenant, status, host),
marked AS (",
    marks!("gone"),
    "),
unmarked AS (DELETE FROM task_history_mark WHERE ctid = ANY(ARRAY(
  SELECT k.ctid FROM marked m CROSS JOIN LATERAL (
    SELECT k.ctid FROM task_history_mark k WHERE k.tenant = m.tenant AND k.mark = m.mark AND k.bucket = m.bucket OFFSET 0) k
  WHERE NOT EXISTS (
    SELECT FROM task_history h WHERE h.id >= m.bucket << 8 AND h.id < (m.bucket + 1) << 8 AND h.id <> ALL($1)
      AND h.tenant = m.tenant AND CASE WHEN m.mark = 'Success' THEN h.status = 3 ELSE 'host:' || h.host = m.mark END))))
SELECT id FROM gone"
);
const LOG: &str = enter!(
    "task_attempt",
    "task_id, exec_id, round, attempt, host, worker_id, started_at, finished_at, outcome, error"
);
const CONTENT: &str = "
UPDATE task t SET priority = n.priority, run_at = to_timestamp(n.run_at / 1000.0),
  expire_at = to_timestamp(n.expire_at / 1000.0), max_attempts = n.max_attempts, retry = n.retry::json,
  timeout_ms = n.timeout_ms, remark = n.remark
FROM json_to_recordset($1::json) AS n(id bigint, priority smallint, run_at bigint, expire_at bigint, max_attempts integer,
  retry text, timeout_ms bigint, remark text) WHERE t.id = n.id";
const PAYLOAD: &str = "UPDATE task SET payload = $2::json WHERE id = $1";
const FREE: &str = "
DELETE FROM task_unique WHERE ctid = ANY(ARRAY(
  SELECT k.ctid FROM task t CROSS JOIN LATERAL (
    SELECT u.ctid FROM task_unique u
    WHERE u.tenant = t.tenant AND u.type = t.type AND u.unique_key = t.unique_key AND u.id = t.id OFFSET 0) k
  WHERE t.id = ANY($1) AND t.unique_key IS NOT NULL))";
const TAKE: &str = "
INSERT INTO task_unique (tenant, type, unique_key, id)
SELECT tenant, type, unique_key, id FROM task WHERE id = ANY($1) AND unique_key IS NOT NULL";

/// Writes decisions about loaded, and so locked, tasks: each leaves the table it is in and enters its new one.
pub(super) async fn write(connection: &mut PgConnection, changes: &[Change]) -> Attempted<()> {
    let writes = Writes::of(changes);
    expect(set(connection, KEEP_RUNNING, &writes.keep_running).await?, writes.keep_running.len())?;
    for (sql, ids) in [
        ("DELETE FROM task_running WHERE id = ANY($1)", &writes.leave_running),
        ("DELETE FROM task_waiting WHERE id = ANY($1)", &writes.leave_waiting),
        (LEAVE_HISTORY, &writes.leave_history),
    ] {
        expect(on(connection, sql, ids).await?, ids.len())?;
    }
    on(connection, FREE, &writes.finish).await?;
    on(connection, TAKE, &writes.revive).await?;
    set(connection, ENTER_WAITING, &writes.enter_waiting).await?;
    set(connection, ENTER_HISTORY, &writes.enter_history).await?;
    set(connection, LOG, &writes.attempts).await?;
    set(connection, CONTENT, &writes.contents).await?;
    for (id, payload) in &writes.payloads {
        sqlx::query(PAYLOAD).bind(id).bind(payload).execute(&mut *connection).await.map_err(fault)?;
    }
    on(connection, "DELETE FROM task_attempt WHERE task_id = ANY($1)", &writes.remove).await?;
    on(connection, "DELETE FROM task WHERE id = ANY($1)", &writes.remove).await?;
    Ok(())
}

async fn on(connection: &mut PgConnection, sql: &'static str, ids: &[i64]) -> Attempted<u64> {
    if ids.is_empty() {
        return Ok(0);
    }
    Ok(sqlx::query(sql).bind(ids).execute(connection).await.map_err(fault)?.rows_affected())
}

/// Runs a statement over rows that it gets as one JSON array. It is planned each time.
async fn set<T: Serialize>(connection: &mut PgConnection, sql: &'static str, rows: &[T]) -> Attempted<u64> {
    if rows.is_empty() {
        return Ok(0);
    }
    let json = serde_json::to_string(rows).expect("rows are plain JSON");
    Ok(sqlx::query(sql).persistent(false).bind(json).execute(connection).await.map_err(fault)?.rows_affected())
}

/// The rows are locked, so that each statement must meet them all.
fn expect(changed: u64, wanted: usize) -> Attempted<()> {
    if changed != wanted as u64 {
        return Err(StoreError::Database(format!("{wanted} locked tasks were to change, {changed} did")).into());
    }
    Ok(())
}

const LOGGED: &str = "
SELECT a.task_id, a.exec_id, a.outcome FROM unnest($1::bigint[], $2::uuid[]) AS n(task_id, exec_id)
CROSS JOIN LATERAL (SELECT * FROM task_attempt a WHERE a.task_id = n.task_id AND a.exec_id = n.exec_id OFFSET 0) a";

pub(super) async fn logged(
    connection: &mut PgConnection,
    executions: &[(TaskId, ExecId)],
) -> Attempted<Vec<(TaskId, ExecId, Outcome)>> {
    let rows = sqlx::query(LOGGED)
        .bind(executions.iter().map(|(id, _)| id.0).collect::<Vec<_>>())
        .bind(executions.iter().map(|(_, exec_id)| exec_id.0).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(fault)?;
    rows.iter()
        .map(|row| {
            let outcome = Outcome::from_code(row.try_get(2).map_err(fault)?).unwrap_or(Outcome::Error);
            Ok((TaskId(row.try_get(0).map_err(fault)?), ExecId(row.try_get(1).map_err(fault)?), outcome))
        })
        .collect()
}
