//! Claim on PostgreSQL.
//!
//! Each rank of each lane is an index range of its own, cut off at now. So neither future tasks of a high priority nor due
//! tasks of other types are ever looked at. The planner reads the ranks in order and stops when there are enough;
//! `FOR UPDATE SKIP LOCKED` makes two claims at once take different tasks.

use super::fault;
use crate::session::{Attempted, Pick, Picked};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use std::sync::LazyLock;
use taskwheel_model::{ExecId, TaskId, Time};

/// `$1` now, `$2` most, `$3` lanes, `$4` whether only tasks without a category of their own, by lane, `$5` marks by lane and rank,
/// `$6` categories, `$7` paused types, `$8` host, `$9` creator, `$10` tenant, `$11` the lanes that are looked into whole.
const PICK: &str = "
SELECT y.id, y.tenant, y.type, y.lane, y.rank, y.due, y.expire_at, y.round, y.attempts, y.error_count, y.checkpoint,
       y.category, y.creator, t.task_key, t.payload::text AS payload, t.retry::text AS retry, t.max_attempts, t.timeout_ms,
       t.trace_parent, t.context, y.place::text
FROM (
  SELECT q.* FROM generate_series(0, 8) AS r(rank) CROSS JOIN LATERAL (
    SELECT x.* FROM (
      SELECT z.* FROM unnest($3::text[], $4::boolean[]) WITH ORDINALITY AS n(lane, plain_only, place) CROSS JOIN LATERAL (
        SELECT w.*, w.ctid AS place FROM task_waiting w
        WHERE w.lane = n.lane AND w.rank = r.rank AND w.due <= $1
          AND w.due >= ($5::bigint[])[(n.place - 1) * 9 + r.rank + 1]
          AND (NOT n.plain_only OR w.category IS NULL) AND ($9::text IS NULL OR w.creator = $9) {tenant}
        ORDER BY w.due, w.id LIMIT $2 FOR UPDATE SKIP LOCKED) z
      {categories}) x
    ORDER BY x.due, x.id LIMIT $2) q
  LIMIT $2) y
CROSS JOIN LATERAL (SELECT * FROM task t WHERE t.id = y.id OFFSET 0) t";
const BY_CATEGORY: &str = "UNION ALL
      SELECT z.* FROM unnest($6::text[]) AS n(category) CROSS JOIN LATERAL (
        SELECT w.*, w.ctid AS place FROM task_waiting w
        WHERE w.category = n.category AND w.rank = r.rank AND w.due <= $1 AND w.lane IN (w.type, w.type || '@' || $8)
          AND NOT w.lane = ANY($11::text[]) AND NOT w.type = ANY($7::text[]) AND ($9::text IS NULL OR w.creator = $9) {tenant}
        ORDER BY w.due, w.id LIMIT $2 FOR UPDATE SKIP LOCKED) z";

/// Which tenants a claim is for.
const TENANTS: [&str; 3] = [
    "AND $10::text IS NULL",
    "AND w.tenant = $10::text",
    // Repeats the predicate of the index over the tasks of all other tenants.
    "AND w.tenant = $10::text AND w.tenant <> 'default'",
];

/// By tenants; most claims name no categories, and a plan without them is set up in half the time.
static PICK_BY_TYPE: LazyLock<[String; 3]> =
    LazyLock::new(|| TENANTS.map(|tenant| PICK.replace("{categories}", "").replace("{tenant}", tenant)));
static PICK_BY_CATEGORY: LazyLock<[String; 3]> =
    LazyLock::new(|| TENANTS.map(|tenant| PICK.replace("{categories}", BY_CATEGORY).replace("{tenant}", tenant)));

/// Picks tasks, and says where their rows lie.
pub(super) async fn pick(
    connection: &mut PgConnection,
    pick: &Pick,
    now: Time,
) -> Attempted<(Vec<Picked>, Vec<String>)> {
    let statements: &'static [String; 3] = if pick.categories.is_empty() { &PICK_BY_TYPE } else { &PICK_BY_CATEGORY };
    let sql: &'static str = match pick.tenant.as_deref() {
        None => &statements[0],
        Some("default") => &statements[1],
        Some(_) => &statements[2],
    };
    let rows = sqlx::query(sql)
        .bind(now.0)
        .bind(pick.max as i64)
        .bind(pick.lanes.iter().map(|lane| lane.lane.as_str()).collect::<Vec<_>>())
        .bind(pick.lanes.iter().map(|lane| lane.plain_only).collect::<Vec<_>>())
        .bind(pick.lanes.iter().flat_map(|lane| lane.marks).collect::<Vec<_>>())
        .bind(&pick.categories)
        .bind(&pick.paused)
        .bind(&pick.host)
        .bind(&pick.creator)
        .bind(&pick.tenant)
        .bind(pick.whole_lanes())
        .fetch_all(connection)
        .await
        .map_err(fault)?;
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
