//! Loading tasks for a decision, and writing what was decided.

use super::claim::{Key, exec_id, keys_join_waiting};
use super::start::LEAVE_WAITING;
use super::{fault, unique_fault};
use crate::StoreError;
use crate::rows::{Change, ContentRow, HistoryRow, LiveRow, Place, Record, Writes};
use crate::session::Attempted;
use serde::Serialize;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;
use taskwheel_model::{ExecId, Outcome, TaskId, Time};

/// How often a task is looked for that moves from table to table while it is looked for.
const LOOKS_MAX: usize = 10;
/// Most bytes of rows in one statement, unless a single row has more: far below the usual `max_allowed_packet`.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

macro_rules! ids {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) n STRAIGHT_JOIN "
    };
}

const LOCK_RUNNING: &str =
    concat!("SELECT r.* FROM ", ids!(), "task_running r FORCE INDEX (PRIMARY) ON r.id = n.id FOR UPDATE");
const LOCK_HISTORY: &str =
    concat!("SELECT h.* FROM ", ids!(), "task_history h FORCE INDEX (PRIMARY) ON h.id = n.id FOR UPDATE");
const FIND_WAITING: &str = concat!(
    "SELECT w.lane, w.`rank`, w.due, w.id FROM ",
    ids!(),
    "task t FORCE INDEX (PRIMARY) ON t.id = n.id
     STRAIGHT_JOIN task_waiting w FORCE INDEX (task_waiting_id) ON w.tenant = t.tenant AND w.id = t.id"
);
const LOCK_WAITING: &str = concat!("SELECT w.* FROM ", keys_join_waiting!(), " FOR UPDATE");
const CONTENT: &str = concat!(
    "SELECT t.id, t.type, t.category, t.creator, t.unique_key, t.run_id, t.priority,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', t.run_at) DIV 1000 AS run_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', t.expire_at) DIV 1000 AS expire_at,
       t.max_attempts, t.retry, t.timeout_ms, t.remark
     FROM ",
    ids!(),
    "task t FORCE INDEX (PRIMARY) ON t.id = n.id"
);
const SEEN: &str = "
SELECT k.worker_id, k.seen_at + COALESCE(k.heartbeat_ms, 0) DIV 10 FROM JSON_TABLE(?, '$[*]' COLUMNS (worker_id VARCHAR(64) PATH '$')) n
STRAIGHT_JOIN task_worker k FORCE INDEX (PRIMARY) ON k.worker_id = n.worker_id";

/// Locks tasks wherever they are. A task that another transaction is just moving is waited for and then found in its new
/// place, which may be one that was looked at before: hence the repetition while a known task is in none.
///
/// A locking read locks every table it joins, so what else is wanted of a task is read after it.
pub(super) async fn load(connection: &mut MySqlConnection, ids: &[TaskId]) -> Attempted<Vec<Record>> {
    let mut missing: Vec<i64> = ids.iter().map(|id| id.0).collect();
    let mut records = Vec::with_capacity(ids.len());
    for _ in 0..LOOKS_MAX {
        let places = lock(connection, &missing).await?;
        let contents = fetch(connection, CONTENT, &missing).await?;
        let seen = seen(connection, &places).await?;
        missing.clear();
        for row in &contents {
            let id = row.try_get("id").map_err(fault)?;
            match places.get(&id) {
                Some(place) => records.push(record(row, place.clone(), &seen).map_err(fault)?),
                None => missing.push(id),
            }
        }
        if missing.is_empty() {
            records.sort_unstable_by_key(Record::id);
            return Ok(records);
        }
    }
    Err(StoreError::Database(format!("task {} is in no table, or never stays in one", missing[0])).into())
}

async fn lock(connection: &mut MySqlConnection, ids: &[i64]) -> Attempted<HashMap<i64, Place>> {
    let mut places = HashMap::new();
    let missing = |places: &HashMap<i64, Place>| ids.iter().filter(|id| !places.contains_key(id)).copied().collect();
    for row in fetch(connection, LOCK_RUNNING, ids).await? {
        places.insert(row.try_get("id").map_err(fault)?, running(&row).map_err(fault)?);
    }
    let rest: Vec<i64> = missing(&places);
    let found = fetch(connection, FIND_WAITING, &rest).await?;
    let keys = found.iter().map(key).collect::<sqlx::Result<Vec<_>>>().map_err(fault)?;
    for row in fetch(connection, LOCK_WAITING, &keys).await? {
        places.insert(row.try_get("id").map_err(fault)?, waiting(&row).map_err(fault)?);
    }
    let rest: Vec<i64> = missing(&places);
    for row in fetch(connection, LOCK_HISTORY, &rest).await? {
        places.insert(row.try_get("id").map_err(fault)?, history(&row).map_err(fault)?);
    }
    Ok(places)
}

/// When the workers of executions last called.
async fn seen(connection: &mut MySqlConnection, places: &HashMap<i64, Place>) -> Attempted<HashMap<String, Time>> {
    let workers: HashSet<_> = places.values().filter_map(worker_id).collect();
    let rows = fetch(connection, SEEN, &workers.into_iter().collect::<Vec<_>>()).await?;
    let seen = rows.iter().map(|row| Ok((row.try_get(0)?, Time(row.try_get(1)?))));
    seen.collect::<sqlx::Result<_>>().map_err(fault)
}

/// Who executes a task.
fn worker_id(place: &Place) -> Option<&str> {
    match place {
        Place::Live(row) => row.worker_id.as_deref(),
        Place::History(_) => None,
    }
}

fn key(row: &MySqlRow) -> sqlx::Result<Key> {
    Ok(Key::new(row.try_get(0)?, row.try_get(1)?, Time(row.try_get(2)?), TaskId(row.try_get(3)?)))
}

fn record(row: &MySqlRow, place: Place, seen: &HashMap<String, Time>) -> sqlx::Result<Record> {
    let worker_seen_at = worker_id(&place).and_then(|worker_id| seen.get(worker_id)).copied();
    let (run_id, mut place) = (row.try_get("run_id")?, place);
    if let Place::History(history) = &mut place {
        history.run_id = run_id;
    }
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
        worker_seen_at,
    })
}

/// What rows of waiting and running tasks have in common.
fn live(row: &MySqlRow) -> sqlx::Result<LiveRow> {
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

fn waiting(row: &MySqlRow) -> sqlx::Result<Place> {
    Ok(Place::Live(LiveRow {
        lane: row.try_get("lane")?,
        hold_exec_id: exec_id(row, "hold_exec_id")?,
        hold_until: time(row, "hold_until")?,
        ..live(row)?
    }))
}

fn running(row: &MySqlRow) -> sqlx::Result<Place> {
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

fn history(row: &MySqlRow) -> sqlx::Result<Place> {
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

fn time(row: &MySqlRow, column: &str) -> sqlx::Result<Option<Time>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(Time))
}

fn count(row: &MySqlRow, column: &str) -> sqlx::Result<u32> {
    Ok(u32::try_from(row.try_get::<i32, _>(column)?).unwrap_or(0))
}

/// A batch of rows as one JSON parameter: the columns of the rows with their types.
fn table(columns: &[(&str, &str)]) -> String {
    let column = |(name, kind): &(&str, &str)| format!("`{name}` {kind} PATH '$.{name}'");
    let columns: Vec<_> = columns.iter().map(column).collect();
    format!("JSON_TABLE(?, '$[*]' COLUMNS ({})) n", columns.join(", "))
}

fn insert(into: &str, columns: &[(&str, &str)]) -> String {
    let names: Vec<_> = columns.iter().map(|(name, _)| format!("`{name}`")).collect();
    let names = names.join(", ");
    format!("INSERT INTO {into} ({names}) SELECT {names} FROM {}", table(columns))
}

const WAITING: &[(&str, &str)] = &[
    ("id", "BIGINT"),
    ("tenant", "VARCHAR(64)"),
    ("type", "VARCHAR(200)"),
    ("lane", "VARCHAR(265)"),
    ("rank", "SMALLINT"),
    ("due", "BIGINT"),
    ("status", "SMALLINT"),
    ("round", "INT"),
    ("attempts", "INT"),
    ("error_count", "INT"),
    ("error_info", "LONGTEXT"),
    ("checkpoint", "LONGTEXT"),
    ("progress", "LONGTEXT"),
    ("result", "LONGTEXT"),
    ("expire_at", "BIGINT"),
    ("category", "VARCHAR(200)"),
    ("creator", "VARCHAR(64)"),
    ("unique_key", "VARCHAR(200)"),
    ("run_id", "BIGINT"),
    ("affinity", "VARCHAR(64)"),
    ("hold_exec_id", "CHAR(36)"),
    ("hold_until", "BIGINT"),
    ("check_at", "BIGINT"),
    ("updated_at", "BIGINT"),
];
const HISTORY: &[(&str, &str)] = &[
    ("id", "BIGINT"),
    ("tenant", "VARCHAR(64)"),
    ("status", "SMALLINT"),
    ("round", "INT"),
    ("attempts", "INT"),
    ("error_count", "INT"),
    ("error_info", "LONGTEXT"),
    ("checkpoint", "LONGTEXT"),
    ("progress", "LONGTEXT"),
    ("result", "LONGTEXT"),
    ("affinity", "VARCHAR(64)"),
    ("hold_until", "BIGINT"),
    ("exec_id", "CHAR(36)"),
    ("worker_id", "VARCHAR(64)"),
    ("host", "VARCHAR(64)"),
    ("started_at", "BIGINT"),
    ("outcome", "SMALLINT"),
    ("finished_at", "BIGINT"),
    ("updated_at", "BIGINT"),
];
const ATTEMPT: &[(&str, &str)] = &[
    ("task_id", "BIGINT"),
    ("exec_id", "CHAR(36)"),
    ("round", "INT"),
    ("attempt", "INT"),
    ("host", "VARCHAR(64)"),
    ("worker_id", "VARCHAR(64)"),
    ("started_at", "BIGINT"),
    ("finished_at", "BIGINT"),
    ("outcome", "SMALLINT"),
    ("error", "LONGTEXT"),
];

static ENTER_WAITING: LazyLock<String> = LazyLock::new(|| insert("task_waiting", WAITING));
static ENTER_HISTORY: LazyLock<String> = LazyLock::new(|| insert("task_history", HISTORY));
static LOG: LazyLock<String> = LazyLock::new(|| insert("task_attempt", ATTEMPT));

/// An execution that stays where it is. Whatever else changes, it keeps its worker and its start.
const KEEP_RUNNING: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$.id', `rank` SMALLINT PATH '$.rank', due BIGINT PATH '$.due',
  expire_at BIGINT PATH '$.expire_at', named SMALLINT PATH '$.named', lease_until BIGINT PATH '$.lease_until',
  check_at BIGINT PATH '$.check_at', checkpoint LONGTEXT PATH '$.checkpoint', progress LONGTEXT PATH '$.progress',
  updated_at BIGINT PATH '$.updated_at', exec_id CHAR(36) PATH '$.exec_id')) n
STRAIGHT_JOIN task_running r FORCE INDEX (PRIMARY) ON r.id = n.id
SET r.`rank` = n.`rank`, r.due = n.due, r.expire_at = n.expire_at, r.named = n.named, r.lease_until = n.lease_until,
  r.check_at = n.check_at, r.checkpoint = n.checkpoint, r.progress = n.progress, r.updated_at = n.updated_at
WHERE r.exec_id = n.exec_id";
pub(super) const LEAVE_RUNNING: &str =
    concat!("DELETE r FROM ", ids!(), "task_running r FORCE INDEX (PRIMARY) ON r.id = n.id");
const LEAVE_HISTORY: &str = concat!("DELETE h FROM ", ids!(), "task_history h FORCE INDEX (PRIMARY) ON h.id = n.id");
pub(super) const DELETE_ATTEMPTS: &str =
    concat!("DELETE a FROM ", ids!(), "task_attempt a FORCE INDEX (PRIMARY) ON a.task_id = n.id");
pub(super) const DELETE_TASK: &str = concat!("DELETE t FROM ", ids!(), "task t FORCE INDEX (PRIMARY) ON t.id = n.id");
const SET_CONTENT: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$.id', priority SMALLINT PATH '$.priority',
  run_at BIGINT PATH '$.run_at', expire_at BIGINT PATH '$.expire_at', max_attempts INT PATH '$.max_attempts',
  retry LONGTEXT PATH '$.retry', timeout_ms BIGINT PATH '$.timeout_ms', remark LONGTEXT PATH '$.remark')) n
STRAIGHT_JOIN task t FORCE INDEX (PRIMARY) ON t.id = n.id
SET t.priority = n.priority, t.run_at = TIMESTAMPADD(MICROSECOND, n.run_at * 1000, '1970-01-01 00:00:00'),
  t.expire_at = TIMESTAMPADD(MICROSECOND, n.expire_at * 1000, '1970-01-01 00:00:00'), t.max_attempts = n.max_attempts,
  t.retry = n.retry, t.timeout_ms = n.timeout_ms, t.remark = n.remark";
const PAYLOAD: &str = "UPDATE task SET payload = ? WHERE id = ?";

macro_rules! unique_keys {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (tenant VARCHAR(64) PATH '$.tenant', type VARCHAR(200) PATH '$.type',
           unique_key VARCHAR(200) PATH '$.unique_key', id BIGINT PATH '$.id')) n"
    };
}
const FREE: &str = concat!(
    "DELETE u FROM ",
    unique_keys!(),
    " STRAIGHT_JOIN task_unique u FORCE INDEX (PRIMARY)
      ON u.tenant = n.tenant AND u.type = n.type AND u.unique_key = n.unique_key WHERE u.id = n.id"
);
const TAKE: &str = concat!(
    "INSERT INTO task_unique (tenant, type, unique_key, id) SELECT n.tenant, n.type, n.unique_key, n.id FROM ",
    unique_keys!()
);

/// A row of `task_unique`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct UniqueKey {
    pub(super) tenant: String,
    #[serde(rename = "type")]
    pub(super) task_type: String,
    pub(super) unique_key: String,
    pub(super) id: TaskId,
}

impl UniqueKey {
    fn of(row: &LiveRow) -> Option<UniqueKey> {
        let unique_key = row.unique_key.clone()?;
        Some(UniqueKey { tenant: row.tenant.clone(), task_type: row.task_type.clone(), unique_key, id: row.id })
    }
}

/// Writes decisions about loaded, and so locked, tasks: each leaves the table it is in and enters its new one.
pub(super) async fn write(connection: &mut MySqlConnection, changes: &[Change]) -> Attempted<()> {
    let writes = Writes::of(changes);
    expect(on(connection, KEEP_RUNNING, &writes.keep_running).await?, writes.keep_running.len())?;
    expect(on(connection, LEAVE_RUNNING, &writes.leave_running).await?, writes.leave_running.len())?;
    let waited = keys_before(changes);
    expect(on(connection, LEAVE_WAITING, &waited).await?, writes.leave_waiting.len())?;
    expect(on(connection, LEAVE_HISTORY, &writes.leave_history).await?, writes.leave_history.len())?;
    leave_unique(connection, changes.iter().filter_map(freed).collect()).await?;
    take_unique(connection, changes.iter().filter_map(taken).collect()).await?;
    on(connection, &ENTER_WAITING, &writes.enter_waiting).await?;
    on(connection, &ENTER_HISTORY, &writes.enter_history).await?;
    on(connection, &LOG, &writes.attempts).await?;
    on(connection, SET_CONTENT, &writes.contents).await?;
    for (id, payload) in &writes.payloads {
        sqlx::query(PAYLOAD).bind(payload).bind(id).execute(&mut *connection).await.map_err(fault)?;
    }
    on(connection, DELETE_ATTEMPTS, &writes.remove).await?;
    on(connection, DELETE_TASK, &writes.remove).await?;
    Ok(())
}

/// Where tasks waited that wait no longer, or elsewhere.
fn keys_before(changes: &[Change]) -> Vec<Key> {
    let waiting = |change: &Change| match &change.before {
        Place::Live(row) if row.exec_id.is_none() => Some(Key::new(&row.lane, row.rank, row.due, row.id)),
        _ => None,
    };
    changes.iter().filter_map(waiting).collect()
}

/// The unique key of a task that is live no longer.
fn freed(change: &Change) -> Option<UniqueKey> {
    let (Place::Live(row), Some(Place::History(_))) = (&change.before, &change.after) else { return None };
    UniqueKey::of(row)
}

/// The unique key of a task that is live again.
fn taken(change: &Change) -> Option<UniqueKey> {
    let (Place::History(_), Some(Place::Live(row))) = (&change.before, &change.after) else { return None };
    UniqueKey::of(row)
}

pub(super) async fn leave_unique(connection: &mut MySqlConnection, mut keys: Vec<UniqueKey>) -> Attempted<()> {
    keys.sort_unstable();
    on(connection, FREE, &keys).await.map(drop)
}

async fn take_unique(connection: &mut MySqlConnection, mut keys: Vec<UniqueKey>) -> Attempted<()> {
    keys.sort_unstable();
    if !keys.is_empty() {
        sqlx::query(TAKE).bind(json(&keys)).execute(connection).await.map_err(unique_fault)?;
    }
    Ok(())
}

/// Runs a statement over rows that it gets as one JSON array.
pub(super) async fn on<T: Serialize>(
    connection: &mut MySqlConnection,
    sql: &'static str,
    rows: &[T],
) -> Attempted<u64> {
    let mut changed = 0;
    for batch in batches(rows) {
        changed += sqlx::query(sql).bind(batch).execute(&mut *connection).await.map_err(fault)?.rows_affected();
    }
    Ok(changed)
}

/// Rows as JSON arrays, none of them too long for a statement.
pub(super) fn batches<T: Serialize>(rows: &[T]) -> Vec<String> {
    let mut batches: Vec<String> = Vec::new();
    for row in rows {
        let row = serde_json::to_string(row).expect("rows are plain JSON");
        match batches.last_mut() {
            Some(batch) if batch.len() + row.len() <= BATCH_BYTES_MAX => batch.push(','),
            _ => batches.push("[".into()),
        }
        batches.last_mut().expect("one was just pushed").push_str(&row);
    }
    batches.iter_mut().for_each(|batch| batch.push(']'));
    batches
}

/// The same for a statement that answers.
async fn fetch<T: Serialize>(
    connection: &mut MySqlConnection,
    sql: &'static str,
    rows: &[T],
) -> Attempted<Vec<MySqlRow>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query(sql).bind(json(rows)).fetch_all(connection).await.map_err(fault)
}

pub(super) fn json<T: Serialize>(rows: &[T]) -> String {
    serde_json::to_string(rows).expect("rows are plain JSON")
}

/// The rows are locked, so that each statement must meet them all.
pub(super) fn expect(changed: u64, wanted: usize) -> Attempted<()> {
    if changed != wanted as u64 {
        return Err(StoreError::Database(format!("{wanted} locked tasks were to change, {changed} did")).into());
    }
    Ok(())
}

const LOGGED: &str = "
SELECT a.task_id, a.exec_id, a.outcome
FROM JSON_TABLE(?, '$[*]' COLUMNS (task_id BIGINT PATH '$[0]', exec_id CHAR(36) PATH '$[1]')) n
STRAIGHT_JOIN task_attempt a FORCE INDEX (PRIMARY) ON a.task_id = n.task_id WHERE a.exec_id = n.exec_id";

pub(super) async fn logged(
    connection: &mut MySqlConnection,
    executions: &[(TaskId, ExecId)],
) -> Attempted<Vec<(TaskId, ExecId, Outcome)>> {
    let mut logged = Vec::new();
    for row in fetch(connection, LOGGED, executions).await? {
        let id = TaskId(row.try_get("task_id").map_err(fault)?);
        let outcome = Outcome::from_code(row.try_get("outcome").map_err(fault)?).unwrap_or(Outcome::Error);
        logged.extend(exec_id(&row, "exec_id").map_err(fault)?.map(|exec_id| (id, exec_id, outcome)));
    }
    Ok(logged)
}
