//! Submit on MySQL and MariaDB.
//!
//! Only an INSERT with its rows spelled out hands out ids one after the other on every server; one that selects its rows
//! does not. So there is a statement for each number of rows, up to a few dozen, and for some that are larger; each is prepared once.
//!
//! Triggers run row by row here. A statement of a few dozen rows is a transaction by itself and leaves the rest to the trigger: one
//! round trip. Where there are more, or where the transaction does other things too, it tells the trigger to do nothing, and one more
//! statement lets all tasks wait.

use super::rows::json;
use super::{fault, unique_fault};
use crate::session::{Attempted, Insert, Inserted, policy};
use serde_json::json;
use sqlx::Row;
use sqlx::mysql::{MySqlArguments, MySqlConnection};
use sqlx::query::Query;
use std::sync::OnceLock;
use taskwheel_model::{NewTask, TaskId};

/// Up to so many rows there is a statement for each number of them.
const ROWS_EACH_MAX: usize = 64;
/// Statements with more rows than that.
const LARGE: [usize; 3] = [512, 256, 128];
/// Most bytes of payloads in one statement of several rows: far below the smallest usual `max_allowed_packet`.
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// What is known of the ids that one statement hands out.
#[derive(Clone, Copy)]
pub(super) struct Ids {
    /// Their distance: more than 1 in a cluster where every node may insert.
    pub(super) step: i64,
    /// Whether that may be another at the next statement.
    pub(super) may_change: bool,
}

impl Ids {
    /// One after the other.
    pub(super) const SURE: Ids = Ids { step: 1, may_change: false };
}

/// What a statement says of each task. A statement that says less costs less.
#[derive(Clone, Copy)]
enum Shape {
    /// What nearly every task has.
    Plain,
    /// All that can be submitted.
    Whole,
    /// That, and what a task has that a schedule fired.
    Fired,
}

const COLUMNS: [&str; 3] = [
    "tenant, type, task_key, payload, priority, token_id, run_at, created_at",
    ", expire_at, max_attempts, retry, timeout_ms, category, creator, route_key, slot, unique_key, affinity, trace_parent",
    ", schedule_id, run_id, parent_id, root_id, context",
];
macro_rules! time {
    () => {
        "TIMESTAMPADD(MICROSECOND, ? * 1000, '1970-01-01 00:00:00')"
    };
}
const VALUES: [&str; 3] = [
    concat!("?, ?, ?, ?, ?, ?, ", time!(), ", ", time!()),
    concat!(", ", time!(), ", ?, ?, ?, ?, ?, ?, ?, ?, ?, ?"),
    ", ?, ?, ?, ?, ?",
];

impl Shape {
    fn of(tasks: &[Insert]) -> Shape {
        // Of one batch a schedule fired all or none.
        if tasks.first().is_some_and(|task| task.origin.is_some()) {
            return Shape::Fired;
        }
        if tasks.iter().all(|row| is_plain(&row.task)) { Shape::Plain } else { Shape::Whole }
    }

    fn statement(self, rows: usize) -> &'static str {
        static STATEMENTS: [[OnceLock<String>; LARGE.len() + ROWS_EACH_MAX]; 3] =
            [const { [const { OnceLock::new() }; LARGE.len() + ROWS_EACH_MAX] }; 3];
        let place = LARGE.iter().position(|large| *large == rows).unwrap_or(LARGE.len() + rows - 1);
        STATEMENTS[self as usize][place].get_or_init(|| {
            let parts = ..=self as usize;
            let row = format!("({})", VALUES[parts].concat());
            format!("INSERT INTO task ({}) VALUES {}", COLUMNS[parts].concat(), vec![row; rows].join(", "))
        })
    }
}

fn is_plain(task: &NewTask) -> bool {
    let NewTask { expire_at, max_attempts, retry, timeout_ms, category, creator, .. } = task;
    let NewTask { route_key, unique_key, affinity, trace_parent, .. } = task;
    let texts = [category, creator, route_key, unique_key, affinity, trace_parent];
    expire_at.is_none()
        && max_attempts.is_none()
        && retry.is_none()
        && timeout_ms.is_none()
        && texts.iter().all(|text| text.is_none())
}

/// What the trigger does, for many tasks.
const LET_WAIT: &str = "
INSERT INTO task_waiting (id, tenant, type, lane, `rank`, due, status, round, attempts, error_count, expire_at,
                          category, creator, unique_key, run_id, affinity, check_at, updated_at)
SELECT id, tenant, type, IF(affinity IS NULL, type, CONCAT(type, '@', affinity)), 9 - priority,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', run_at) DIV 1000, 1, 1, 0, 0,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', expire_at) DIV 1000, category, creator, unique_key, run_id,
       affinity,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', CASE WHEN affinity IS NULL THEN expire_at
           WHEN expire_at IS NULL THEN run_at ELSE LEAST(run_at, expire_at) END) DIV 1000,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', created_at) DIV 1000
FROM JSON_TABLE(?, '$[*]' COLUMNS (new_id BIGINT PATH '$')) n STRAIGHT_JOIN task FORCE INDEX (PRIMARY) ON id = new_id";
const TAKE_KEYS: &str = "
INSERT INTO task_unique (tenant, type, unique_key, id)
SELECT tenant, type, unique_key, id
FROM JSON_TABLE(?, '$[*]' COLUMNS (new_id BIGINT PATH '$')) n STRAIGHT_JOIN task FORCE INDEX (PRIMARY) ON id = new_id
WHERE unique_key IS NOT NULL";

/// How tasks are inserted on a connection.
#[derive(Clone, Copy)]
pub(super) struct Inserting {
    ids: Ids,
    trigger: Trigger,
}

/// What the trigger on `task` does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trigger {
    /// It lets tasks wait.
    Works,
    /// The same, until it is told otherwise.
    MayBeStopped,
    /// Nothing: it was told that the transaction lets its tasks wait by itself.
    Stopped,
}

impl Inserting {
    pub(super) fn by_trigger(ids: Ids) -> Inserting {
        Inserting { ids, trigger: Trigger::Works }
    }

    /// In a transaction that sets the variable back at its end, and may have set it at its beginning.
    pub(super) fn in_transaction(ids: Ids, is_stopped: bool) -> Inserting {
        Inserting { ids, trigger: if is_stopped { Trigger::Stopped } else { Trigger::MayBeStopped } }
    }

    /// What a later statement on the connection may insert by itself: several tasks where their ids are known beforehand.
    pub(super) fn at_once_max(&self) -> Inserted {
        let are_sure = self.ids.step == 1 && !self.ids.may_change;
        Inserted { tasks: if are_sure { ROWS_EACH_MAX } else { 1 }, payload_bytes: PAYLOAD_BYTES_MAX }
    }
}

pub(super) async fn insert(
    connection: &mut MySqlConnection,
    tasks: &[Insert],
    inserting: &mut Inserting,
) -> Attempted<Vec<TaskId>> {
    if inserting.trigger == Trigger::MayBeStopped && tasks.len() > 1 {
        sqlx::raw_sql("SET @taskwheel_lets_wait = 1").execute(&mut *connection).await.map_err(fault)?;
        inserting.trigger = Trigger::Stopped;
    }
    let Inserting { ids: Ids { step, .. }, trigger } = *inserting;
    let mut ids = Vec::with_capacity(tasks.len());
    let mut rest = tasks;
    while !rest.is_empty() {
        let (rows, later) = rest.split_at(next(rest));
        let shape = Shape::of(rows);
        let query = rows.iter().fold(sqlx::query(shape.statement(rows.len())), |query, row| bind(query, row, shape));
        let first = query.execute(&mut *connection).await.map_err(unique_fault)?.last_insert_id() as i64;
        ids.extend((0..rows.len() as i64).map(|place| TaskId(first + place * step)));
        rest = later;
    }
    if trigger == Trigger::Stopped {
        let new_ids = json(&ids);
        let keys = tasks.iter().any(|row| row.task.unique_key.is_some()).then_some(TAKE_KEYS);
        for statement in keys.into_iter().chain([LET_WAIT]) {
            sqlx::query(statement).bind(&new_ids).execute(&mut *connection).await.map_err(unique_fault)?;
        }
    }
    Ok(ids)
}

/// How many of the next tasks one statement takes.
fn next(tasks: &[Insert]) -> usize {
    let bytes =
        |rows: &[Insert]| rows.iter().map(|row| row.task.payload.as_ref().map_or(0, String::len)).sum::<usize>();
    let large = LARGE.into_iter().find(|size| *size <= tasks.len());
    let mut size = large.unwrap_or(tasks.len().min(ROWS_EACH_MAX));
    while size > 1 && bytes(&tasks[..size]) > PAYLOAD_BYTES_MAX {
        size /= 2;
    }
    size
}

type Inserts<'q> = Query<'q, sqlx::MySql, MySqlArguments>;

fn bind<'q>(query: Inserts<'q>, one: &'q Insert, shape: Shape) -> Inserts<'q> {
    let Insert { task, priority, run_at, slot, created_at, origin } = one;
    let mut query = query
        .bind(task.tenant.as_str())
        .bind(task.task_type.as_str())
        .bind(task.key.as_deref())
        .bind(task.payload.as_deref())
        .bind(i16::from(*priority))
        .bind(task.token_id)
        .bind(run_at.0)
        .bind(created_at.0);
    if let Shape::Whole | Shape::Fired = shape {
        query = query
            .bind(task.expire_at.map(|time| time.0))
            .bind(task.max_attempts)
            .bind(task.retry.as_ref().map(policy))
            .bind(task.timeout_ms)
            .bind(task.category.as_deref())
            .bind(task.creator.as_deref())
            .bind(task.route_key.as_deref())
            .bind(*slot)
            .bind(task.unique_key.as_deref())
            .bind(task.affinity.as_deref())
            .bind(task.trace_parent.as_deref());
    }
    match origin {
        Some(origin) => query
            .bind(origin.schedule_id)
            .bind(origin.run_id)
            .bind(origin.parent_id.map(|id| id.0))
            .bind(origin.root_id.map(|id| id.0))
            .bind(origin.context.as_deref()),
        None => query,
    }
}

const LIVE_UNIQUE: &str = "
SELECT u.id FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY, tenant VARCHAR(64) PATH '$[0]',
  type VARCHAR(200) PATH '$[1]', unique_key VARCHAR(200) PATH '$[2]')) n
LEFT JOIN task_unique u FORCE INDEX (PRIMARY) ON u.tenant = n.tenant AND u.type = n.type AND u.unique_key = n.unique_key
ORDER BY n.place";

pub(super) async fn live_unique(
    connection: &mut MySqlConnection,
    keys: &[(&str, &str, &str)],
) -> Attempted<Vec<Option<TaskId>>> {
    let rows = sqlx::query(LIVE_UNIQUE).bind(json!(keys).to_string()).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get::<Option<i64>, _>(0).map(|id| id.map(TaskId)).map_err(fault)).collect()
}
