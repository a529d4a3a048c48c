//! Submit on MySQL and MariaDB.
//!
//! Only an INSERT with its rows spelled out hands out ids one after the other on every server; one that selects its rows
//! does not. So a batch is cut into statements of a few fixed sizes, each of which is prepared once.
//!
//! Triggers run row by row here and cost as much as the insert itself. In a transaction of the store that inserts many, which
//! has told the trigger so, one more statement lets all tasks wait; for a single one and on a user's own the trigger does it.

use super::rows::json;
use super::{fault, unique_fault};
use crate::session::{Attempted, Insert, policy};
use serde_json::json;
use sqlx::Row;
use sqlx::mysql::{MySqlArguments, MySqlConnection};
use sqlx::query::Query;
use std::sync::LazyLock;
use taskwheel_model::TaskId;

/// How many rows a statement may have.
const SIZES: [usize; 15] = [512, 256, 128, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1];
/// Most bytes of payloads in one statement of several rows: far below the smallest usual `max_allowed_packet`.
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

const INTO: &str = "
INSERT INTO task (tenant, type, task_key, payload, priority, run_at, expire_at, max_attempts, retry, timeout_ms,
                  category, creator, route_key, slot, unique_key, affinity, token_id, trace_parent,
                  created_at";
const ROW: &str = "(?, ?, ?, ?, ?, TIMESTAMPADD(MICROSECOND, ? * 1000, '1970-01-01 00:00:00'),
 TIMESTAMPADD(MICROSECOND, ? * 1000, '1970-01-01 00:00:00'), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
 TIMESTAMPADD(MICROSECOND, ? * 1000, '1970-01-01 00:00:00')";

static STATEMENTS: LazyLock<[String; SIZES.len()]> = LazyLock::new(|| statements("", ""));
/// For tasks that a schedule fired.
static FIRED: LazyLock<[String; SIZES.len()]> =
    LazyLock::new(|| statements(", schedule_id, run_id, parent_id, root_id, context", ", ?, ?, ?, ?, ?"));

fn statements(columns: &str, values: &str) -> [String; SIZES.len()] {
    let row = format!("{ROW}{values})");
    SIZES.map(|rows| format!("{INTO}{columns}) VALUES {}", vec![row.as_str(); rows].join(", ")))
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
    /// The distance of ids that one statement hands out: more than 1 in a cluster where every node may insert.
    id_step: i64,
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
    pub(super) fn by_trigger(id_step: i64) -> Inserting {
        Inserting { id_step, trigger: Trigger::Works }
    }

    /// In a transaction that sets the variable back at its end, and may have set it at its beginning.
    pub(super) fn in_transaction(id_step: i64, is_stopped: bool) -> Inserting {
        Inserting { id_step, trigger: if is_stopped { Trigger::Stopped } else { Trigger::MayBeStopped } }
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
    let Inserting { id_step, trigger } = *inserting;
    let mut ids = Vec::with_capacity(tasks.len());
    let mut rest = tasks;
    while !rest.is_empty() {
        let (size, statement) = next(rest);
        let (rows, later) = rest.split_at(size);
        let query = rows.iter().fold(sqlx::query(statement), bind);
        let first = query.execute(&mut *connection).await.map_err(unique_fault)?.last_insert_id() as i64;
        ids.extend((0..size as i64).map(|place| TaskId(first + place * id_step)));
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

/// The largest statement that the next tasks fill. Of one batch a schedule fired all or none.
fn next(tasks: &[Insert]) -> (usize, &'static str) {
    let bytes =
        |rows: &[Insert]| rows.iter().map(|row| row.task.payload.as_ref().map_or(0, String::len)).sum::<usize>();
    let fits = |size: usize| size == 1 || (size <= tasks.len() && bytes(&tasks[..size]) <= PAYLOAD_BYTES_MAX);
    let place = SIZES.iter().position(|size| fits(*size)).unwrap_or(SIZES.len() - 1);
    let is_fired = tasks.first().is_some_and(|task| task.origin.is_some());
    (SIZES[place], if is_fired { &FIRED[place] } else { &STATEMENTS[place] })
}

fn bind<'q>(query: Query<'q, sqlx::MySql, MySqlArguments>, one: &'q Insert) -> Query<'q, sqlx::MySql, MySqlArguments> {
    let query = query
        .bind(one.task.tenant.as_str())
        .bind(one.task.task_type.as_str())
        .bind(one.task.key.as_deref())
        .bind(one.task.payload.as_deref())
        .bind(i16::from(one.priority))
        .bind(one.run_at.0)
        .bind(one.task.expire_at.map(|time| time.0))
        .bind(one.task.max_attempts)
        .bind(one.task.retry.as_ref().map(policy))
        .bind(one.task.timeout_ms)
        .bind(one.task.category.as_deref())
        .bind(one.task.creator.as_deref())
        .bind(one.task.route_key.as_deref())
        .bind(one.slot)
        .bind(one.task.unique_key.as_deref())
        .bind(one.task.affinity.as_deref())
        .bind(one.task.token_id)
        .bind(one.task.trace_parent.as_deref())
        .bind(one.created_at.0);
    match &one.origin {
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
