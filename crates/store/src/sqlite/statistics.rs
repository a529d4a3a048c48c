//! Statistics.

use crate::rows::{read_histogram, write_histogram};
use crate::session::Attempted;
use crate::verbs::Statistics;
use rusqlite::{Connection, Row, params};
use taskwheel_model::{Tally, Time};

const PUT: &str = "
INSERT OR REPLACE INTO task_statistics (minute, type, node, success_first, success_second, success_later, errors,
                                        failures, wait_ms, run_ms)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const READ: &str = "
SELECT minute, type, success_first, success_second, success_later, errors, failures, wait_ms, run_ms
FROM task_statistics WHERE minute >= ?1 AND minute < ?2 AND (?3 IS NULL OR type = ?3) ORDER BY minute, type";
const FORGET: &str = "
DELETE FROM task_statistics WHERE (minute, type, node) IN (
  SELECT minute, type, node FROM task_statistics WHERE minute < ?1 LIMIT ?2)";

pub(super) fn put(connection: &Connection, node: &str, counted: &[Statistics]) -> Attempted<()> {
    let mut statement = connection.prepare_cached(PUT)?;
    for Statistics { minute, task_type, tally } in counted {
        statement.execute(params![
            minute.0,
            task_type,
            node,
            tally.success_first as i64,
            tally.success_second as i64,
            tally.success_later as i64,
            tally.errors as i64,
            tally.failures as i64,
            write_histogram(&tally.wait),
            write_histogram(&tally.run)
        ])?;
    }
    Ok(())
}

pub(super) fn read(
    connection: &Connection,
    from: Time,
    to: Time,
    task_type: Option<&str>,
) -> Attempted<Vec<Statistics>> {
    let mut statement = connection.prepare_cached(READ)?;
    let rows = statement.query_map(params![from.0, to.0, task_type], statistics)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn statistics(row: &Row<'_>) -> rusqlite::Result<Statistics> {
    let count = |column: usize| row.get::<_, i64>(column).map(i64::unsigned_abs);
    Ok(Statistics {
        minute: Time(row.get(0)?),
        task_type: row.get(1)?,
        tally: Tally {
            success_first: count(2)?,
            success_second: count(3)?,
            success_later: count(4)?,
            errors: count(5)?,
            failures: count(6)?,
            wait: read_histogram(&row.get::<_, String>(7)?),
            run: read_histogram(&row.get::<_, String>(8)?),
        },
    })
}

pub(super) fn forget(connection: &Connection, before: Time, max: usize) -> Attempted<()> {
    connection.prepare_cached(FORGET)?.execute(params![before.0, max as i64])?;
    Ok(())
}
