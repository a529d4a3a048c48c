//! Task types.

use crate::rows::read_policy;
use crate::session::Attempted;
use crate::verbs::TaskType;
use rusqlite::{Connection, Row, params};
use taskwheel_model::{Time, TypeSettings};

const ALL: &str = "
SELECT type, name, category, retry, max_attempts, timeout_ms, need_manual, priority, paused FROM task_type ORDER BY type";

pub(super) fn all(connection: &Connection) -> Attempted<Vec<TaskType>> {
    let mut statement = connection.prepare_cached(ALL)?;
    let types = statement.query_map([], task_type)?;
    Ok(types.collect::<rusqlite::Result<_>>()?)
}

fn task_type(row: &Row<'_>) -> rusqlite::Result<TaskType> {
    Ok(TaskType {
        task_type: row.get(0)?,
        settings: TypeSettings {
            name: row.get(1)?,
            category: row.get(2)?,
            retry: read_policy(row.get_ref(3)?.as_str_or_null()?),
            max_attempts: row.get(4)?,
            timeout_ms: row.get(5)?,
            need_manual: row.get(6)?,
            priority: row.get::<_, Option<i64>>(7)?.and_then(|priority| u8::try_from(priority).ok()),
        },
        paused: row.get(8)?,
    })
}

const PUT: &str = "
INSERT INTO task_type (type, name, category, retry, max_attempts, timeout_ms, need_manual, priority, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (type) DO UPDATE SET name = excluded.name, category = excluded.category, retry = excluded.retry,
  max_attempts = excluded.max_attempts, timeout_ms = excluded.timeout_ms, need_manual = excluded.need_manual,
  priority = excluded.priority, updated_at = excluded.updated_at";
const PAUSE: &str = "
INSERT INTO task_type (type, paused, updated_at) VALUES (?1, ?2, ?3)
ON CONFLICT (type) DO UPDATE SET paused = excluded.paused, updated_at = excluded.updated_at";

pub(super) fn put(
    connection: &Connection,
    task_type: &str,
    settings: Option<&TypeSettings>,
    paused: Option<bool>,
    now: Time,
) -> Attempted<()> {
    if let Some(settings) = settings {
        let retry =
            settings.retry.as_ref().map(|policy| serde_json::to_string(policy).expect("a policy is plain JSON"));
        connection.prepare_cached(PUT)?.execute(params![
            task_type,
            settings.name,
            settings.category,
            retry,
            settings.max_attempts,
            settings.timeout_ms,
            settings.need_manual,
            settings.priority,
            now.0
        ])?;
    }
    if let Some(paused) = paused {
        connection.prepare_cached(PAUSE)?.execute(params![task_type, paused, now.0])?;
    }
    Ok(())
}
