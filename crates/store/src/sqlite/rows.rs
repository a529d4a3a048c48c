//! Loading tasks for a decision, and writing what was decided.

use crate::StoreError;
use crate::rows::{AttemptRow, Change, ContentRow, HistoryRow, LiveRow, Place, Record, Writes};
use crate::session::Attempted;
use rusqlite::types::{FromSql, Type};
use rusqlite::{Connection, OptionalExtension, Row, params};
use taskwheel_model::{ExecId, Outcome, TaskId, Time};

/// The columns of a row, one after the other: finding each by its name would cost more than reading it.
pub(super) struct Columns<'r, 's> {
    row: &'r Row<'s>,
    at: usize,
}

impl<'r, 's> Columns<'r, 's> {
    pub(super) fn of(row: &'r Row<'s>) -> Columns<'r, 's> {
        Columns { row, at: 0 }
    }

    pub(super) fn next<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.at += 1;
        self.row.get(self.at - 1)
    }

    pub(super) fn exec_id(&mut self) -> rusqlite::Result<Option<ExecId>> {
        let text: Option<String> = self.next()?;
        text.map(|text| exec_id(&text, self.at - 1)).transpose()
    }
}

pub(super) fn time(ms: Option<i64>) -> Option<Time> {
    ms.map(Time)
}

pub(super) fn text(exec_id: ExecId) -> String {
    exec_id.to_string()
}

pub(super) fn exec_id(text: &str, column: usize) -> rusqlite::Result<ExecId> {
    uuid::Uuid::parse_str(text)
        .map(ExecId)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

macro_rules! content {
    () => {
        "t.id, t.priority, t.run_at, t.expire_at, t.max_attempts, t.retry, t.timeout_ms, t.remark, t.type, t.category,
         t.creator, t.unique_key, t.run_id"
    };
}
macro_rules! live {
    () => {
        "x.tenant, x.rank, x.due, x.status, x.round, x.attempts, x.error_count, x.error_info, x.checkpoint, x.progress,
         x.result, x.expire_at, x.affinity, x.check_at, x.updated_at"
    };
}

const LOAD_RUNNING: &str = concat!(
    "SELECT ",
    content!(),
    ", k.seen_at + COALESCE(k.heartbeat_ms, 0) / 10, ",
    live!(),
    ", x.exec_id, x.worker_id, x.host, x.started_at, x.deadline, x.heartbeat_ms, x.named, x.lease_until
     FROM task_running x JOIN task t ON t.id = x.id LEFT JOIN task_worker k ON k.worker_id = x.worker_id WHERE x.id = ?1"
);
const LOAD_WAITING: &str = concat!(
    "SELECT ",
    content!(),
    ", NULL, ",
    live!(),
    ", x.lane, x.hold_exec_id, x.hold_until FROM task_waiting x JOIN task t ON t.id = x.id WHERE x.id = ?1"
);
const LOAD_HISTORY: &str = concat!(
    "SELECT ",
    content!(),
    ", NULL, x.tenant, x.status, x.round, x.attempts, x.error_count, x.error_info, x.checkpoint, x.progress, x.result,
     x.affinity, x.hold_until, x.exec_id, x.worker_id, x.host, x.started_at, x.outcome, x.finished_at, x.updated_at
     FROM task_history x JOIN task t ON t.id = x.id WHERE x.id = ?1"
);

/// Loads tasks wherever they are. Nobody else writes in the meantime, so that nothing moves.
pub(super) fn load(connection: &Connection, ids: &[TaskId]) -> Attempted<Vec<Record>> {
    let mut statements = [
        (connection.prepare_cached(LOAD_RUNNING)?, running as PlaceReader),
        (connection.prepare_cached(LOAD_WAITING)?, waiting),
        (connection.prepare_cached(LOAD_HISTORY)?, history),
    ];
    let mut known = connection.prepare_cached("SELECT 1 FROM task WHERE id = ?1")?;
    let mut records = Vec::with_capacity(ids.len());
    for id in ids {
        let mut found = None;
        for (statement, place) in &mut statements {
            found = statement.query_row([id.0], |row| record(row, *place)).optional()?;
            if found.is_some() {
                break;
            }
        }
        if found.is_none() && known.exists([id.0])? {
            return Err(StoreError::Database(format!("task {id} is in no table")).into());
        }
        records.extend(found);
    }
    records.sort_unstable_by_key(Record::id);
    Ok(records)
}

/// What a task row says, before the row of the place where the task is.
struct Head {
    content: ContentRow,
    task_type: String,
    category: Option<String>,
    creator: Option<String>,
    unique_key: Option<String>,
    run_id: Option<i64>,
    worker_seen_at: Option<Time>,
}

type PlaceReader = fn(&Head, &mut Columns<'_, '_>) -> rusqlite::Result<Place>;

fn record(row: &Row<'_>, place: PlaceReader) -> rusqlite::Result<Record> {
    let mut columns = Columns::of(row);
    let head = head(&mut columns)?;
    let place = place(&head, &mut columns)?;
    let Head { content, task_type, category, creator, unique_key, run_id, worker_seen_at } = head;
    Ok(Record { content, task_type, category, creator, unique_key, run_id, place, worker_seen_at })
}

fn head(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Head> {
    Ok(Head {
        content: ContentRow {
            id: TaskId(columns.next()?),
            priority: columns.next()?,
            run_at: Time(columns.next()?),
            expire_at: time(columns.next()?),
            max_attempts: columns.next()?,
            retry: columns.next()?,
            timeout_ms: columns.next()?,
            remark: columns.next()?,
        },
        task_type: columns.next()?,
        category: columns.next()?,
        creator: columns.next()?,
        unique_key: columns.next()?,
        run_id: columns.next()?,
        worker_seen_at: time(columns.next()?),
    })
}

/// What rows of waiting and running tasks have in common.
fn live(head: &Head, columns: &mut Columns<'_, '_>) -> rusqlite::Result<LiveRow> {
    Ok(LiveRow {
        id: head.content.id,
        task_type: head.task_type.clone(),
        lane: head.task_type.clone(),
        category: head.category.clone(),
        creator: head.creator.clone(),
        unique_key: head.unique_key.clone(),
        run_id: head.run_id,
        tenant: columns.next()?,
        rank: columns.next()?,
        due: Time(columns.next()?),
        status: columns.next()?,
        round: columns.next()?,
        attempts: columns.next()?,
        error_count: columns.next()?,
        error_info: columns.next()?,
        checkpoint: columns.next()?,
        progress: columns.next()?,
        result: columns.next()?,
        expire_at: time(columns.next()?),
        affinity: columns.next()?,
        check_at: time(columns.next()?),
        updated_at: Time(columns.next()?),
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
    })
}

fn waiting(head: &Head, columns: &mut Columns<'_, '_>) -> rusqlite::Result<Place> {
    let row = live(head, columns)?;
    Ok(Place::Live(LiveRow {
        lane: columns.next()?,
        hold_exec_id: columns.exec_id()?,
        hold_until: time(columns.next()?),
        ..row
    }))
}

fn running(head: &Head, columns: &mut Columns<'_, '_>) -> rusqlite::Result<Place> {
    let row = live(head, columns)?;
    Ok(Place::Live(LiveRow {
        exec_id: columns.exec_id()?,
        worker_id: columns.next()?,
        host: columns.next()?,
        started_at: time(columns.next()?),
        deadline: time(columns.next()?),
        heartbeat_ms: columns.next()?,
        named: columns.next()?,
        lease_until: time(columns.next()?),
        ..row
    }))
}

fn history(head: &Head, columns: &mut Columns<'_, '_>) -> rusqlite::Result<Place> {
    Ok(Place::History(HistoryRow {
        id: head.content.id,
        tenant: columns.next()?,
        run_id: head.run_id,
        status: columns.next()?,
        round: columns.next()?,
        attempts: columns.next()?,
        error_count: columns.next()?,
        error_info: columns.next()?,
        checkpoint: columns.next()?,
        progress: columns.next()?,
        result: columns.next()?,
        affinity: columns.next()?,
        hold_until: time(columns.next()?),
        exec_id: columns.exec_id()?,
        worker_id: columns.next()?,
        host: columns.next()?,
        started_at: time(columns.next()?),
        outcome: columns.next()?,
        finished_at: Time(columns.next()?),
        updated_at: Time(columns.next()?),
    }))
}

const FREE: &str = "
DELETE FROM task_unique WHERE id = ?1
  AND (tenant, type, unique_key) = (SELECT tenant, type, unique_key FROM task WHERE id = ?1)";
const TAKE: &str = "
INSERT OR FAIL INTO task_unique (tenant, type, unique_key, id)
SELECT tenant, type, unique_key, id FROM task WHERE id = ?1 AND unique_key IS NOT NULL";

/// Writes decisions about loaded tasks: each leaves the table it is in and enters its new one.
pub(super) fn write(connection: &Connection, changes: &[Change]) -> Attempted<()> {
    let writes = Writes::of(changes);
    expect(keep_running(connection, &writes.keep_running)?, writes.keep_running.len())?;
    for (sql, ids) in [
        ("DELETE FROM task_running WHERE id = ?1", &writes.leave_running),
        ("DELETE FROM task_waiting WHERE id = ?1", &writes.leave_waiting),
        ("DELETE FROM task_history WHERE id = ?1", &writes.leave_history),
    ] {
        expect(on(connection, sql, ids)?, ids.len())?;
    }
    on(connection, FREE, &writes.finish)?;
    on(connection, TAKE, &writes.revive)?;
    enter_waiting(connection, &writes.enter_waiting)?;
    enter_history(connection, &writes.enter_history)?;
    log(connection, &writes.attempts)?;
    set_content(connection, &writes.contents)?;
    for (id, payload) in &writes.payloads {
        connection.prepare_cached("UPDATE task SET payload = ?2 WHERE id = ?1")?.execute(params![id, payload])?;
    }
    on(connection, "DELETE FROM task_attempt WHERE task_id = ?1", &writes.remove)?;
    on(connection, "DELETE FROM task WHERE id = ?1", &writes.remove)?;
    Ok(())
}

fn on(connection: &Connection, sql: &str, ids: &[i64]) -> Attempted<usize> {
    let mut changed = 0;
    if !ids.is_empty() {
        let mut statement = connection.prepare_cached(sql)?;
        for id in ids {
            changed += statement.execute([id])?;
        }
    }
    Ok(changed)
}

/// The rows were loaded in this transaction, so that each statement must meet them all.
fn expect(changed: usize, wanted: usize) -> Attempted<()> {
    if changed != wanted {
        return Err(StoreError::Database(format!("{wanted} loaded tasks were to change, {changed} did")).into());
    }
    Ok(())
}

/// An execution that stays where it is. Whatever else changes, it keeps its worker and its start.
const KEEP_RUNNING: &str = "
UPDATE task_running SET rank = ?3, due = ?4, expire_at = ?5, named = ?6, lease_until = ?7, check_at = ?8, checkpoint = ?9,
  progress = ?10, updated_at = ?11
WHERE id = ?1 AND exec_id = ?2";

fn keep_running(connection: &Connection, rows: &[&LiveRow]) -> Attempted<usize> {
    let mut statement = connection.prepare_cached(KEEP_RUNNING)?;
    let mut changed = 0;
    for row in rows {
        changed += statement.execute(params![
            row.id.0,
            row.exec_id.map(text),
            row.rank,
            row.due.0,
            ms(row.expire_at),
            row.named,
            ms(row.lease_until),
            ms(row.check_at),
            row.checkpoint,
            row.progress,
            row.updated_at.0
        ])?;
    }
    Ok(changed)
}

const ENTER_WAITING: &str = "
INSERT OR FAIL INTO task_waiting (id, tenant, type, lane, rank, due, status, round, attempts, error_count, error_info,
                                  checkpoint, progress, result, expire_at, category, creator, unique_key, run_id,
                                  affinity, hold_exec_id, hold_until, check_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)";

fn enter_waiting(connection: &Connection, rows: &[&LiveRow]) -> Attempted<()> {
    let mut statement = connection.prepare_cached(ENTER_WAITING)?;
    for row in rows {
        statement.execute(params![
            row.id.0,
            row.tenant,
            row.task_type,
            row.lane,
            row.rank,
            row.due.0,
            row.status,
            row.round,
            row.attempts,
            row.error_count,
            row.error_info,
            row.checkpoint,
            row.progress,
            row.result,
            ms(row.expire_at),
            row.category,
            row.creator,
            row.unique_key,
            row.run_id,
            row.affinity,
            row.hold_exec_id.map(text),
            ms(row.hold_until),
            ms(row.check_at),
            row.updated_at.0
        ])?;
    }
    Ok(())
}

const ENTER_HISTORY: &str = "
INSERT OR FAIL INTO task_history (id, tenant, status, round, attempts, error_count, error_info, checkpoint, progress, result,
                                  affinity, hold_until, exec_id, worker_id, host, started_at, outcome, finished_at,
                                  updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

fn enter_history(connection: &Connection, rows: &[&HistoryRow]) -> Attempted<()> {
    let mut statement = connection.prepare_cached(ENTER_HISTORY)?;
    for row in rows {
        statement.execute(params![
            row.id.0,
            row.tenant,
            row.status,
            row.round,
            row.attempts,
            row.error_count,
            row.error_info,
            row.checkpoint,
            row.progress,
            row.result,
            row.affinity,
            ms(row.hold_until),
            row.exec_id.map(text),
            row.worker_id,
            row.host,
            ms(row.started_at),
            row.outcome,
            row.finished_at.0,
            row.updated_at.0
        ])?;
    }
    Ok(())
}

const LOG: &str = "
INSERT OR FAIL INTO task_attempt (task_id, exec_id, round, attempt, host, worker_id, started_at, finished_at, outcome, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

fn log(connection: &Connection, rows: &[&AttemptRow]) -> Attempted<()> {
    let mut statement = connection.prepare_cached(LOG)?;
    for row in rows {
        statement.execute(params![
            row.task_id.0,
            text(row.exec_id),
            row.round,
            row.attempt,
            row.host,
            row.worker_id,
            row.started_at.0,
            row.finished_at.0,
            row.outcome,
            row.error
        ])?;
    }
    Ok(())
}

const CONTENT: &str = "
UPDATE task SET priority = ?2, run_at = ?3, expire_at = ?4, max_attempts = ?5, retry = ?6, timeout_ms = ?7, remark = ?8
WHERE id = ?1";

fn set_content(connection: &Connection, rows: &[&ContentRow]) -> Attempted<()> {
    let mut statement = connection.prepare_cached(CONTENT)?;
    for row in rows {
        statement.execute(params![
            row.id.0,
            row.priority,
            row.run_at.0,
            ms(row.expire_at),
            row.max_attempts,
            row.retry,
            row.timeout_ms,
            row.remark
        ])?;
    }
    Ok(())
}

fn ms(time: Option<Time>) -> Option<i64> {
    time.map(|time| time.0)
}

const LOGGED: &str = "SELECT outcome FROM task_attempt WHERE task_id = ?1 AND exec_id = ?2";

pub(super) fn logged(
    connection: &Connection,
    executions: &[(TaskId, ExecId)],
) -> Attempted<Vec<(TaskId, ExecId, Outcome)>> {
    let mut statement = connection.prepare_cached(LOGGED)?;
    let mut ends = Vec::new();
    for (id, exec_id) in executions {
        let code: Option<i16> = statement.query_row(params![id.0, text(*exec_id)], |row| row.get(0)).optional()?;
        ends.extend(code.map(|code| (*id, *exec_id, Outcome::from_code(code).unwrap_or(Outcome::Error))));
    }
    Ok(ends)
}
