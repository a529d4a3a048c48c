//! Statistics.

use super::fault;
use crate::rows::{read_histogram, write_histogram};
use crate::session::Attempted;
use crate::verbs::Statistics;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use taskwheel_model::{Tally, Time};

const PUT: &str = "
REPLACE INTO task_statistics (minute, type, node, success_first, success_second, success_later, errors, failures,
                              wait_ms, run_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const READ: &str = "
SELECT minute, type, success_first, success_second, success_later, errors, failures, wait_ms, run_ms
FROM task_statistics WHERE minute >= ? AND minute < ? AND (? IS NULL OR type = ?) ORDER BY minute, type";
const FORGET: &str = "
DELETE FROM task_statistics WHERE minute < ? LIMIT ?";

pub(super) async fn put(connection: &mut MySqlConnection, node: &str, counted: &[Statistics]) -> Attempted<()> {
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
    connection: &mut MySqlConnection,
    from: Time,
    to: Time,
    task_type: Option<&str>,
) -> Attempted<Vec<Statistics>> {
    let query = sqlx::query(READ).bind(from.0).bind(to.0).bind(task_type).bind(task_type);
    let rows = query.fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| statistics(row).map_err(fault)).collect()
}

fn statistics(row: &MySqlRow) -> sqlx::Result<Statistics> {
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

pub(super) async fn forget(connection: &mut MySqlConnection, before: Time, max: usize) -> Attempted<()> {
    let query = sqlx::query(FORGET).bind(before.0).bind(max as i64);
    query.execute(connection).await.map(drop).map_err(fault)
}
