//! Purging finished tasks that have outlived their retention, with an export first if wanted.

use crate::task::{Attempt, TaskDetail};
use crate::verbs::{Retention, Store};
use crate::{Result, StoreError};
use serde_json::{Map, Value, json};
use std::io::Write;
use taskwheel_model::{Outcome, Time};

/// Removes finished tasks past their retention, in chunks of one short transaction each, and answers how many.
///
/// With an `export` each task is written there first, as one line of JSON, and the writer is flushed before anything of the
/// chunk is removed. Hand in a writer whose flush reaches the disk where that matters. A purge that is cut off may
/// leave tasks both exported and kept, never neither.
pub async fn purge(
    store: &dyn Store,
    retention: Retention,
    mut export: Option<&mut (dyn Write + Send)>,
) -> Result<u64> {
    let mut purged = 0;
    loop {
        let tasks = store.outlived(retention).await?;
        if tasks.is_empty() {
            return Ok(purged);
        }
        if let Some(writer) = &mut export {
            for task in &tasks {
                // One that has changed since is not removed, and comes again.
                if let Some(detail) = store.get(None, task.id).await?.filter(|detail| task.is(&detail.task)) {
                    writeln!(writer, "{}", line(&detail)).map_err(not_written)?;
                }
            }
            writer.flush().map_err(not_written)?;
        }
        let removed = store.purge(tasks).await?;
        if removed == 0 {
            return Ok(purged);
        }
        purged += removed;
    }
}

fn not_written(error: std::io::Error) -> StoreError {
    StoreError::Configuration(format!("the export could not be written, so that nothing more was purged: {error}"))
}

/// A task as one line of JSON, with the names of the API.
#[must_use]
pub fn line(detail: &TaskDetail) -> String {
    value(detail).to_string()
}

/// A task as a JSON value, with the names of the API.
pub(crate) fn value(detail: &TaskDetail) -> Value {
    let task = &detail.task;
    json!({
        "id": task.id, "tenant": task.tenant, "type": task.task_type, "key": task.key, "payload": raw(&task.payload),
        "status": task.status.word(), "priority": task.priority, "run_at": rfc3339(task.run_at),
        "expire_at": task.expire_at.map(rfc3339), "max_attempts": task.max_attempts, "retry": task.retry,
        "timeout_ms": task.timeout_ms, "category": task.category, "creator": task.creator,
        "route_key": task.route_key, "slot": task.slot, "unique_key": task.unique_key, "affinity": task.affinity,
        "round": task.round, "attempts": task.attempts, "error_count": task.error_count,
        "error_info": task.error_info, "result": raw(&task.result), "checkpoint": raw(&task.checkpoint),
        "progress": raw(&task.progress), "host": task.host, "worker_id": task.worker_id, "exec_id": task.exec_id,
        "started_at": task.started_at.map(rfc3339), "finished_at": task.finished_at.map(rfc3339),
        "exec_ms": task.exec_ms, "created_at": rfc3339(task.created_at), "updated_at": rfc3339(task.updated_at),
        "remark": task.remark, "schedule_id": task.schedule_id, "run_id": task.run_id,
        "parent_id": task.parent_id, "root_id": task.root_id,
        "attempts_log": detail.attempts_log.iter().map(attempt).collect::<Vec<_>>(),
    })
}

fn attempt(attempt: &Attempt) -> Value {
    let mut value = Map::new();
    value.insert("round".into(), attempt.round.into());
    value.insert("attempt".into(), attempt.attempt.into());
    value.insert("exec_id".into(), attempt.exec_id.to_string().into());
    value.insert("host".into(), attempt.host.clone().into());
    value.insert("worker_id".into(), attempt.worker_id.clone().into());
    value.insert("started_at".into(), rfc3339(attempt.started_at).into());
    value.insert("finished_at".into(), attempt.finished_at.map(rfc3339).into());
    value.insert("outcome".into(), attempt.outcome.map(Outcome::word).into());
    value.insert("error".into(), attempt.error.clone().into());
    Value::Object(value)
}

/// JSON text as the value it stands for. What a plain INSERT got past the database's own check stays a text.
fn raw(text: &Option<String>) -> Value {
    match text {
        None => Value::Null,
        Some(text) => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone())),
    }
}

/// A time as RFC 3339 in UTC with milliseconds.
#[must_use]
pub fn rfc3339(time: Time) -> String {
    let timestamp = jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::MAX);
    format!("{timestamp:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_a_z() {
        assert_eq!(rfc3339(Time(1_700_000_000_000)), "2023-11-14T22:13:20.000Z");
        assert_eq!(rfc3339(Time(1_700_000_000_007)), "2023-11-14T22:13:20.007Z");
        assert_eq!(rfc3339(Time(taskwheel_model::limits::TIME_MS_MAX)), "2999-12-31T23:59:59.999Z");
    }
}
