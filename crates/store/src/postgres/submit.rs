//! Submit on PostgreSQL. The trigger on `task` puts each task where claims find it.

use super::fault;
use crate::session::{Attempted, Insert, policy};
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::{Postgres, Row};
use taskwheel_model::TaskId;

/// Rows come out in the order they went in: identities are handed out as the rows arrive. Tasks that a schedule fired have five
/// columns more.
macro_rules! insert {
    ($columns:literal, $arrays:literal) => {
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
            ")
RETURNING id"
        )
    };
}
const INSERT: &str = insert!("", "");
const INSERT_FIRED: &str = insert!(
    ", schedule_id, run_id, parent_id, root_id, context",
    ", $20::bigint[], $21::bigint[], $22::bigint[], $23::bigint[], $24::text[]"
);

pub(super) async fn insert(connection: &mut PgConnection, tasks: &[Insert]) -> Attempted<Vec<TaskId>> {
    let Some(first) = tasks.first() else { return Ok(Vec::new()) };
    let created_at = first.created_at.0;
    macro_rules! column {
        ($of:expr) => {
            tasks.iter().map($of).collect::<Vec<_>>()
        };
    }
    let is_fired = first.origin.is_some();
    let query = sqlx::query(if is_fired { INSERT_FIRED } else { INSERT })
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
        .bind(created_at);
    let query = if is_fired { bind_origins(query, tasks) } else { query };
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get(0).map(TaskId).map_err(fault)).collect()
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
