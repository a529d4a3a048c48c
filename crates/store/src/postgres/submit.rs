//! Submit on PostgreSQL. The trigger on `task` puts each task where claims find it, but for one that is begun as it is inserted.

use super::claim::{of_tenants, place_of};
use super::fault;
use crate::session::{Attempted, Begun, Insert, Now, Pick, Start, Starter, policy};
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};
use std::sync::LazyLock;
use taskwheel_model::{TaskId, Time};

/// Rows come out in the order they went in: identities are handed out as the rows arrive. Tasks that a schedule fired have five
/// columns more, and one that is begun at once is inserted only beside a row that says it may be.
macro_rules! insert {
    ($columns:literal, $arrays:literal, $beside:literal) => {
        concat!(
            "
INSERT INTO task (tenant, type, task_key, payload, priority, run_at, expire_at, max_attempts, retry, timeout_ms,
                  category, creator, route_key, slot, unique_key, affinity, token_id, trace_parent, created_at",
            $columns,
            ")
SELECT tenant, type, task_key, payload::json, priority, to_timestamp(run_at / 1000.0), to_timestamp(expire_at / 1000.0),
       max_attempts, retry::json, timeout_ms, category, creator, route_key, slot, unique_key, affinity,
       token_id, trace_parent, to_timestamp($19::bigint / 1000.0)",
            $columns,
            "
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::bigint[], $7::bigint[], $8::integer[],
            $9::text[], $10::bigint[], $11::text[], $12::text[], $13::text[], $14::smallint[], $15::text[], $16::text[],
            $17::bigint[], $18::text[]",
            $arrays,
            ")
  AS n(tenant, type, task_key, payload, priority, run_at, expire_at, max_attempts, retry, timeout_ms,
       category, creator, route_key, slot, unique_key, affinity, token_id, trace_parent",
            $columns,
            ")",
            $beside,
            "
RETURNING id"
        )
    };
}
const INSERT: &str = insert!("", "", "");
const INSERT_FIRED: &str = insert!(
    ", schedule_id, run_id, parent_id, root_id, context",
    ", $20::bigint[], $21::bigint[], $22::bigint[], $23::bigint[], $24::text[]",
    ""
);

pub(super) async fn insert(connection: &mut PgConnection, tasks: &[Insert]) -> Attempted<Vec<TaskId>> {
    let Some(first) = tasks.first() else { return Ok(Vec::new()) };
    let is_fired = first.origin.is_some();
    let query = bind_tasks(sqlx::query(if is_fired { INSERT_FIRED } else { INSERT }), tasks, first.created_at);
    let query = if is_fired { bind_origins(query, tasks) } else { query };
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get(0).map(TaskId).map_err(fault)).collect()
}

fn bind_tasks<'q>(
    query: Query<'q, Postgres, PgArguments>,
    tasks: &'q [Insert],
    created_at: Time,
) -> Query<'q, Postgres, PgArguments> {
    macro_rules! column {
        ($of:expr) => {
            tasks.iter().map($of).collect::<Vec<_>>()
        };
    }
    query
        .bind(column!(|one| one.task.tenant.as_str()))
        .bind(column!(|one| one.task.task_type.as_str()))
        .bind(column!(|one| one.task.key.as_deref()))
        .bind(column!(|one| one.task.payload.as_deref()))
        .bind(column!(|one| i16::from(one.priority)))
        .bind(column!(|one| one.run_at.0))
        .bind(column!(|one| one.task.expire_at.map(|time| time.0)))
        .bind(column!(|one| one.task.max_attempts))
        .bind(column!(|one| one.task.retry.as_ref().map(policy)))
        .bind(column!(|one| one.task.timeout_ms))
        .bind(column!(|one| one.task.category.as_deref()))
        .bind(column!(|one| one.task.creator.as_deref()))
        .bind(column!(|one| one.task.route_key.as_deref()))
        .bind(column!(|one| one.slot.map(|slot| slot as i16)))
        .bind(column!(|one| one.task.unique_key.as_deref()))
        .bind(column!(|one| one.task.affinity.as_deref()))
        .bind(column!(|one| one.task.token_id))
        .bind(column!(|one| one.task.trace_parent.as_deref()))
        .bind(created_at.0)
}

fn bind_origins<'q>(query: Query<'q, Postgres, PgArguments>, tasks: &'q [Insert]) -> Query<'q, Postgres, PgArguments> {
    let origins = || tasks.iter().map(|one| one.origin.as_ref());
    query
        .bind(origins().map(|origin| origin.map(|origin| origin.schedule_id)).collect::<Vec<_>>())
        .bind(origins().map(|origin| origin?.run_id).collect::<Vec<_>>())
        .bind(origins().map(|origin| origin?.parent_id.map(|id| id.0)).collect::<Vec<_>>())
        .bind(origins().map(|origin| origin?.root_id.map(|id| id.0)).collect::<Vec<_>>())
        .bind(origins().map(|origin| origin?.context.as_deref()).collect::<Vec<_>>())
}

/// Inserts a task and begins it in the same statement, unless something is due in these lanes. The trigger is told that the task waits
/// nowhere, and nobody else: its condition is looked at when the row is in, before the last line takes the setting back. One that has no
/// condition would not listen, so there nothing is done.
///
/// Where now was counted on (`$30`), the execution begins when the statement does, by the database's clock, and so do its times: its claim
/// was sent before that.
const INSERT_BEGUN: &str = concat!(
    "
WITH free AS MATERIALIZED (
  SELECT set_config('taskwheel.begun', 'on', true),
    CASE WHEN $30 THEN GREATEST(floor(date_part('epoch', statement_timestamp()) * 1000)::bigint - $21, 0) ELSE 0 END AS lag
  WHERE NOT EXISTS (
    SELECT FROM unnest($20::text[]) AS n(lane) CROSS JOIN generate_series(0, 8) AS r(rank) CROSS JOIN LATERAL (
      SELECT FROM task_waiting w WHERE w.lane = n.lane AND w.rank = r.rank {tenant}
        AND w.due <= GREATEST($21, (date_part('epoch', statement_timestamp()) * 1000)::bigint) LIMIT 1) AS due)
    AND EXISTS (
      SELECT FROM pg_trigger WHERE tgrelid = 'task'::regclass AND tgname = 'task_goes_live' AND tgqual IS NOT NULL)),
fresh AS (",
    insert!("", "", " CROSS JOIN free"),
    "),
begun AS (
  INSERT INTO task_running (id, tenant, type, rank, due, status, round, attempts, error_count, expire_at, category, creator, affinity,
                            exec_id, worker_id, host, started_at, deadline, heartbeat_ms, named, lease_until, check_at, updated_at)
  SELECT fresh.id, ($1::text[])[1], ($2::text[])[1], 9 - ($5::smallint[])[1], ($6::bigint[])[1], 2, 1, 1, 0, ($7::bigint[])[1],
         ($11::text[])[1], ($12::text[])[1], ($16::text[])[1], $23, $24, $25, $21 + lag, $26 + lag, $27, 0, $28 + lag, $29 + lag, $21
  FROM fresh CROSS JOIN free)
SELECT max(fresh.id), max(lag), set_config('taskwheel.begun', '', true) FROM fresh CROSS JOIN free HAVING count(*) > 0"
);
static INSERTS_BEGUN: LazyLock<[String; 3]> = LazyLock::new(|| of_tenants(INSERT_BEGUN, "$22"));

pub(super) async fn insert_begun(
    connection: &mut PgConnection,
    task: &Insert,
    starter: &Starter,
    start: &Start,
    pick: &Pick,
    now: Now,
) -> Attempted<Option<Begun>> {
    let sql: &'static str = &INSERTS_BEGUN[place_of(pick.tenant.as_deref())];
    let row = bind_tasks(sqlx::query(sql), std::slice::from_ref(task), task.created_at)
        .bind(pick.lanes.iter().map(|lane| lane.lane.as_str()).collect::<Vec<_>>())
        .bind(now.time.0)
        .bind(&pick.tenant)
        .bind(start.exec_id.0)
        .bind(&starter.worker_id)
        .bind(&starter.host)
        .bind(start.deadline.map(|time| time.0))
        .bind(starter.heartbeat_ms)
        .bind(start.lease_until.map(|time| time.0))
        .bind(start.check_at.0)
        .bind(now.lags)
        .fetch_optional(connection)
        .await
        .map_err(fault)?;
    let begun = |row: PgRow| Ok(Begun { id: TaskId(row.try_get(0)?), lag_ms: row.try_get(1)? });
    row.map(begun).transpose().map_err(fault)
}

const LIVE_UNIQUE: &str = "
SELECT u.id FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS n(tenant, type, unique_key, place)
LEFT JOIN LATERAL (SELECT k.id FROM task_unique k
  WHERE k.tenant = n.tenant AND k.type = n.type AND k.unique_key = n.unique_key OFFSET 0) u ON true
ORDER BY n.place";

pub(super) async fn live_unique(
    connection: &mut PgConnection,
    keys: &[(&str, &str, &str)],
) -> Attempted<Vec<Option<TaskId>>> {
    let rows = sqlx::query(LIVE_UNIQUE)
        .bind(keys.iter().map(|key| key.0).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.1).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.2).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(fault)?;
    rows.iter().map(|row| row.try_get::<Option<i64>, _>(0).map(|id| id.map(TaskId)).map_err(fault)).collect()
}
