//! Task types.

use super::fault;
use crate::rows::read_policy;
use crate::session::Attempted;
use crate::verbs::TaskType;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use taskwheel_model::{Time, TypeSettings};

pub(super) async fn all(connection: &mut MySqlConnection) -> Attempted<Vec<TaskType>> {
    let sql = "SELECT type, name, category, retry, max_attempts, timeout_ms, need_manual, priority, paused FROM task_type ORDER BY type";
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| task_type(row).map_err(fault)).collect()
}

fn task_type(row: &MySqlRow) -> sqlx::Result<TaskType> {
    Ok(TaskType {
        task_type: row.try_get(0)?,
        settings: TypeSettings {
            name: row.try_get(1)?,
            category: row.try_get(2)?,
            retry: read_policy(row.try_get(3)?),
            max_attempts: row.try_get(4)?,
            timeout_ms: row.try_get(5)?,
            need_manual: row.try_get(6)?,
            priority: row.try_get::<Option<i16>, _>(7)?.and_then(|priority| u8::try_from(priority).ok()),
        },
        paused: row.try_get(8)?,
    })
}

const PUT: &str = "
INSERT INTO task_type (type, name, category, retry, max_attempts, timeout_ms, need_manual, priority, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE name = VALUES(name), category = VALUES(category), retry = VALUES(retry),
  max_attempts = VALUES(max_attempts), timeout_ms = VALUES(timeout_ms), need_manual = VALUES(need_manual),
  priority = VALUES(priority), updated_at = VALUES(updated_at)";
const PAUSE: &str = "
INSERT INTO task_type (type, paused, updated_at) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE paused = VALUES(paused), updated_at = VALUES(updated_at)";

pub(super) async fn put(
    connection: &mut MySqlConnection,
    task_type: &str,
    settings: Option<&TypeSettings>,
    paused: Option<bool>,
    now: Time,
) -> Attempted<()> {
    if let Some(settings) = settings {
        let retry =
            settings.retry.as_ref().map(|policy| serde_json::to_string(policy).expect("a policy is plain JSON"));
        sqlx::query(PUT)
            .bind(task_type)
            .bind(&settings.name)
            .bind(&settings.category)
            .bind(retry)
            .bind(settings.max_attempts)
            .bind(settings.timeout_ms)
            .bind(settings.need_manual)
            .bind(settings.priority.map(i16::from))
            .bind(now.0)
            .execute(&mut *connection)
            .await
            .map_err(fault)?;
    }
    if let Some(paused) = paused {
        sqlx::query(PAUSE).bind(task_type).bind(paused).bind(now.0).execute(connection).await.map_err(fault)?;
    }
    Ok(())
}
