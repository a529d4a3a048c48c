//! Statistics.

use super::fault;
use crate::rows::{read_histogram, write_histogram};
use crate::session::Attempted;
use crate::verbs::Statistics;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use taskwheel_model::{Tally, Time};

const PUT: &str = "
INSERT INTO task_statistics (minute, type, node, success_first, success_second, success_later, errors, failures,
                             wait_ms, run_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (minute, type, node) DO UPDATE SET success_first = EXCLUDED.success_first,
  success_second = EXCLUDED.success_second, success_later = EXCLUDED.success_later, errors = EXCLUDED.errors,
  failures = EXCLUDED.failures, wait_ms = EXCLUDED.wait_ms, run_ms = EXCLUDED.run_ms";
const READ: &str = "
SELECT minute, type, success_first, success_second, success_later, errors, failures, wait_ms, run_ms
FROM task_statistics WHERE minute >= $1 AND minute < $2 AND ($3::text IS NULL OR type = $3) ORDER BY minute, type";
const FORGET: &str = "
DELETE FROM task_statistics WHERE (minute, type, node) IN (
  SELECT minute, type, node FROM task_statistics WHERE minute < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)";

pub(super) async fn put(connection: &mut PgConnection, node: &str, counted: &[Statistics]) -> Attempted<()> {
    for Statistics { minute, task_type, tally } in counted {
        sqlx::query(PUT)
            .bind(minute.0)
            .bind(task_type)
            .bind(node)
            .bind(tally.success_first as i64)
            .bind(tally.success_second as i64)
            .bind(tally.success_later as i64)
            .bind(tally.errors as i64)
            .bind(tally.failures as i64)
            .bind(write_histogram(&tally.wait))
            .bind(write_histogram(&tally.run))
            .execute(&mut *connection)
            .await
            .map_err(fault)?;
    }
    Ok(())
}

pub(super) async fn read(
    connection: &mut PgConnection,
    from: Time,
    to: Time,
    task_type: Option<&str>,
) -> Attempted<Vec<Statistics>> {
    let query = sqlx::query(READ).bind(from.0).bind(to.0).bind(task_type);
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| statistics(row).map_err(fault)).collect()
}

fn statistics(row: &PgRow) -> sqlx::Result<Statistics> {
    let count = |column: usize| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    Ok(Statistics {
        minute: Time(row.try_get(0)?),
        task_type: row.try_get(1)?,
        tally: Tally {
            success_first: count(2)?,
            success_second: count(3)?,
            success_later: count(4)?,
            errors: count(5)?,
            failures: count(6)?,
            wait: read_histogram(row.try_get(7)?),
            run: read_histogram(row.try_get(8)?),
        },
    })
}

pub(super) async fn forget(connection: &mut PgConnection, before: Time, max: usize) -> Attempted<()> {
    let query = sqlx::query(FORGET).bind(before.0).bind(max as i64);
    query.execute(connection).await.map(drop).map_err(fault)
}
