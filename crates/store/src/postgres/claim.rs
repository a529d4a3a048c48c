//! Claim on PostgreSQL.
//!
//! Each rank of each lane is an index range of its own, cut off at now. So neither future tasks of a high priority nor due
//! tasks of other types are ever looked at. The planner reads the ranks in order and stops when there are enough;
//! `FOR UPDATE SKIP LOCKED` makes two claims at once take different tasks.
//!
//! That locks as many tasks of each range as are wanted in all. Where a claim names many, the keys of the earliest are read without
//! locks first, and those are locked; if others have locked some of them in between, the ranges are locked after all.

use super::fault;
use crate::session::{Attempted, Pick, Picked};
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};
use std::collections::HashMap;
use std::sync::LazyLock;
use taskwheel_model::{ExecId, TaskId, Time};

/// So many lanes and categories have their ranges locked.
const LOCKED_RANGES_MAX: usize = 4;
/// Fewest keys to read of each of many ranges.
const KEYS_MIN: usize = 8;

/// What a claim needs to know of a task that it has locked as `y`, with its content as `t`.
macro_rules! columns {
    () => {
        "SELECT y.id, y.tenant, y.type, y.lane, y.rank, y.due, y.expire_at, y.round, y.attempts, y.error_count, y.checkpoint,
       y.category, y.creator, t.task_key, t.payload::text AS payload, t.retry::text AS retry, t.max_attempts, t.timeout_ms,
       t.trace_parent, t.context, y.place::text"
    };
}

/// `$1` now, `$2` most, `$3` lanes, `$4` whether only tasks without a category of their own, by lane, `$5` and `$12` marks by lane and rank,
/// `$6` categories, `$7` paused types, `$8` host, `$9` creator, `$10` tenant, `$11` the lanes that are looked into whole.
const PICK: &str = concat!(
    columns!(),
    "
FROM (
  SELECT q.* FROM generate_series(0, 8) AS r(rank) CROSS JOIN LATERAL (
    SELECT x.* FROM (
      SELECT z.* FROM unnest($3::text[], $4::boolean[]) WITH ORDINALITY AS n(lane, plain_only, place) CROSS JOIN LATERAL (
        SELECT w.*, w.ctid AS place FROM task_waiting w
        WHERE w.lane = n.lane AND w.rank = r.rank AND w.due <= $1
          AND (w.due, w.id) > (($5::bigint[])[(n.place - 1) * 9 + r.rank + 1], ($12::bigint[])[(n.place - 1) * 9 + r.rank + 1])
          AND (NOT n.plain_only OR w.category IS NULL) AND ($9::text IS NULL OR w.creator = $9) {tenant}
        ORDER BY w.due, w.id LIMIT $2 FOR UPDATE SKIP LOCKED) z
      {categories}) x
    ORDER BY x.due, x.id LIMIT $2) q
  LIMIT $2) y
CROSS JOIN LATERAL (SELECT * FROM task t WHERE t.id = y.id OFFSET 0) t"
);
const BY_CATEGORY: &str = "UNION ALL
      SELECT z.* FROM unnest($6::text[]) AS n(category) CROSS JOIN LATERAL (
        SELECT w.*, w.ctid AS place FROM task_waiting w
        WHERE w.category = n.category AND w.rank = r.rank AND w.due <= $1 AND w.lane <> '' AND w.lane IN (w.type, w.type || '@' || $8)
          AND NOT w.lane = ANY($11::text[]) AND NOT w.type = ANY($7::text[]) AND ($9::text IS NULL OR w.creator = $9) {tenant}
        ORDER BY w.due, w.id LIMIT $2 FOR UPDATE SKIP LOCKED) z";

/// The same values; `$2` are the most of each range. Ranges are numbered, so that it shows which has more.
const KEYS: &str = "
SELECT k.id, k.lane, k.rank, k.due, n.place FROM generate_series(0, 8) AS r(rank)
CROSS JOIN unnest($3::text[], $4::boolean[]) WITH ORDINALITY AS n(lane, plain_only, place) CROSS JOIN LATERAL (
  SELECT w.id, w.lane, w.rank, w.due FROM task_waiting w
  WHERE w.lane = n.lane AND w.rank = r.rank AND w.due <= $1
    AND (w.due, w.id) > (($5::bigint[])[(n.place - 1) * 9 + r.rank + 1], ($12::bigint[])[(n.place - 1) * 9 + r.rank + 1])
    AND (NOT n.plain_only OR w.category IS NULL) AND ($9::text IS NULL OR w.creator = $9) {tenant}
  ORDER BY w.due, w.id LIMIT $2) k
{categories}";
const KEYS_BY_CATEGORY: &str = "UNION ALL
SELECT k.id, k.lane, k.rank, k.due, -n.place FROM generate_series(0, 8) AS r(rank)
CROSS JOIN unnest($6::text[]) WITH ORDINALITY AS n(category, place) CROSS JOIN LATERAL (
  SELECT w.id, w.lane, w.rank, w.due FROM task_waiting w
  WHERE w.category = n.category AND w.rank = r.rank AND w.due <= $1 AND w.lane <> '' AND w.lane IN (w.type, w.type || '@' || $8)
    AND NOT w.lane = ANY($11::text[]) AND NOT w.type = ANY($7::text[]) AND ($9::text IS NULL OR w.creator = $9) {tenant}
  ORDER BY w.due, w.id LIMIT $2) k";

/// A task that was changed since its key was read is left to the next claim.
const LOCK: &str = concat!(
    columns!(),
    "
FROM unnest($1::bigint[], $2::text[], $3::smallint[], $4::bigint[]) AS n(id, lane, rank, due)
CROSS JOIN LATERAL (
  SELECT w.*, w.ctid AS place FROM task_waiting w
  WHERE w.id = n.id AND w.lane = n.lane AND w.rank = n.rank AND w.due = n.due OFFSET 0 FOR UPDATE SKIP LOCKED) y
CROSS JOIN LATERAL (SELECT * FROM task t WHERE t.id = y.id OFFSET 0) t"
);

/// A statement for claims of all tenants, of the default tenant, and of another one, with the number of the value that names it.
pub(super) fn of_tenants(sql: &str, number: &str) -> [String; 3] {
    [
        "AND {number}::text IS NULL",
        "AND w.tenant = {number}::text",
        // Repeats the predicate of the index over the tasks of all other tenants.
        "AND w.tenant = {number}::text AND w.tenant <> 'default'",
    ]
    .map(|condition| sql.replace("{tenant}", &condition.replace("{number}", number)))
}

/// Which of these is for a claim.
pub(super) fn place_of(tenant: Option<&str>) -> usize {
    match tenant {
        None => 0,
        Some("default") => 1,
        Some(_) => 2,
    }
}

/// A statement by tenants, without and with categories: a plan without them is set up in half the time.
type Statements = LazyLock<[[String; 3]; 2]>;
static PICKS: Statements = LazyLock::new(|| statements(PICK, BY_CATEGORY));
static ALL_KEYS: Statements = LazyLock::new(|| statements(KEYS, KEYS_BY_CATEGORY));

fn statements(all: &str, by_category: &str) -> [[String; 3]; 2] {
    ["", by_category].map(|categories| of_tenants(&all.replace("{categories}", categories), "$10"))
}

/// Picks tasks, and says where their rows lie.
pub(super) async fn pick(
    connection: &mut PgConnection,
    pick: &Pick,
    now: Time,
) -> Attempted<(Vec<Picked>, Vec<String>)> {
    if pick.lanes.len() + pick.categories.len() > LOCKED_RANGES_MAX {
        let keys = earliest(connection, pick, now).await?;
        let locked = if keys.is_empty() { Vec::new() } else { lock(connection, &keys).await? };
        if locked.len() == keys.len() {
            return read(&locked);
        }
    }
    read(&query(&PICKS, pick, pick.max, now).fetch_all(connection).await.map_err(fault)?)
}

fn query<'q>(
    statements: &'static Statements,
    pick: &'q Pick,
    most: usize,
    now: Time,
) -> Query<'q, Postgres, PgArguments> {
    let statements = &statements[usize::from(!pick.categories.is_empty())];
    let sql: &'static str = &statements[place_of(pick.tenant.as_deref())];
    sqlx::query(sql)
        .bind(now.0)
        .bind(most as i64)
        .bind(pick.lanes.iter().map(|lane| lane.lane.as_str()).collect::<Vec<_>>())
        .bind(pick.lanes.iter().map(|lane| lane.plain_only).collect::<Vec<_>>())
        .bind(pick.lanes.iter().flat_map(|lane| lane.marks.map(|(due, _)| due)).collect::<Vec<_>>())
        .bind(&pick.categories)
        .bind(&pick.paused)
        .bind(&pick.host)
        .bind(&pick.creator)
        .bind(&pick.tenant)
        .bind(pick.whole_lanes())
        .bind(pick.lanes.iter().flat_map(|lane| lane.marks.map(|(_, id)| id)).collect::<Vec<_>>())
}

/// The key of a waiting task, in the order in which they are taken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    rank: i16,
    due: i64,
    id: i64,
    lane: String,
}

/// The earliest keys of many ranges: few of each first, and as many as are wanted where that does not tell them all.
async fn earliest(connection: &mut PgConnection, pick: &Pick, now: Time) -> Attempted<Vec<Key>> {
    let ranges = pick.lanes.len() + pick.categories.len();
    // Half of the lanes are for tasks kept for a host, and empty.
    let mut each = (4 * pick.max / ranges).max(KEYS_MIN).min(pick.max);
    loop {
        let rows = query(&ALL_KEYS, pick, each, now).fetch_all(&mut *connection).await.map_err(fault)?;
        let mut ranges: HashMap<(i16, i64), Vec<Key>> = HashMap::new();
        for row in &rows {
            let (key, place) = key(row).map_err(fault)?;
            ranges.entry((key.rank, place)).or_default().push(key);
        }
        // Beyond the last key of a range that may have more, nothing can be said yet.
        let open = ranges.values().filter(|keys| keys.len() == each && each < pick.max);
        let known_to = open.filter_map(|keys| keys.iter().max()).min().cloned();
        let mut keys: Vec<_> = ranges.into_values().flatten().collect();
        keys.retain(|key| known_to.as_ref().is_none_or(|last| key <= last));
        keys.sort_unstable();
        if known_to.is_none() || keys.len() >= pick.max {
            keys.truncate(pick.max);
            return Ok(keys);
        }
        each = pick.max;
    }
}

fn key(row: &PgRow) -> sqlx::Result<(Key, i64)> {
    let key = Key { id: row.try_get(0)?, lane: row.try_get(1)?, rank: row.try_get(2)?, due: row.try_get(3)? };
    Ok((key, row.try_get(4)?))
}

async fn lock(connection: &mut PgConnection, keys: &[Key]) -> Attempted<Vec<PgRow>> {
    sqlx::query(LOCK)
        .bind(keys.iter().map(|key| key.id).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.lane.as_str()).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.rank).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.due).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(fault)
}

fn read(rows: &[PgRow]) -> Attempted<(Vec<Picked>, Vec<String>)> {
    let picked = rows.iter().map(picked).collect::<sqlx::Result<_>>().map_err(fault)?;
    let places = rows.iter().map(|row| row.try_get(20)).collect::<sqlx::Result<_>>().map_err(fault)?;
    Ok((picked, places))
}

fn picked(row: &PgRow) -> sqlx::Result<Picked> {
    Ok(Picked {
        id: TaskId(row.try_get(0)?),
        tenant: row.try_get(1)?,
        task_type: row.try_get(2)?,
        lane: row.try_get(3)?,
        rank: row.try_get(4)?,
        due: Time(row.try_get(5)?),
        expire_at: row.try_get::<Option<i64>, _>(6)?.map(Time),
        round: row.try_get::<i32, _>(7)? as u32,
        attempts: row.try_get::<i32, _>(8)? as u32,
        error_count: row.try_get::<i32, _>(9)? as u32,
        checkpoint: row.try_get(10)?,
        category: row.try_get(11)?,
        creator: row.try_get(12)?,
        key: row.try_get(13)?,
        payload: row.try_get(14)?,
        retry: row.try_get(15)?,
        max_attempts: row.try_get(16)?,
        timeout_ms: row.try_get(17)?,
        trace_parent: row.try_get(18)?,
        context: row.try_get(19)?,
    })
}

/// Reads an execution id.
pub(super) fn exec_id(row: &PgRow, column: &str) -> sqlx::Result<Option<ExecId>> {
    Ok(row.try_get::<Option<uuid::Uuid>, _>(column)?.map(ExecId))
}
