//! Success on MySQL and MariaDB: from running to history, guarded by id and execution.
//!
//! There is no RETURNING: the rows are locked and read first, and what follows counts what it changes.

use super::rows::{UniqueKey, batches, expect, leave_unique};
use super::{fault, rows};
use crate::session::{Attempted, Done, Ended};
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use std::collections::HashSet;
use taskwheel_model::{Status, TaskId, Time};

/// In the order of the ids, so that two transactions never wait for each other crosswise.
const LOCK: &str = "
SELECT r.id, CASE WHEN r.heartbeat_ms IS NOT NULL THEN r.worker_id END, r.tenant, r.type, r.unique_key,
  r.attempts > 1 OR r.round > 1 OR r.affinity IS NOT NULL, r.attempts, r.due, r.started_at, r.run_id,
  CASE WHEN r.run_id IS NOT NULL THEN r.host END
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', exec_id CHAR(36) PATH '$[1]', tenant VARCHAR(64) PATH '$[2]')) n
STRAIGHT_JOIN task_running r FORCE INDEX (PRIMARY) ON r.id = n.id
WHERE r.exec_id = n.exec_id AND (n.tenant IS NULL OR r.tenant = n.tenant) FOR UPDATE";
const ENTER_HISTORY: &str = "
INSERT INTO task_history (id, tenant, status, round, attempts, error_count, error_info, checkpoint, progress, result,
                          affinity, exec_id, worker_id, host, started_at, outcome, finished_at, updated_at)
SELECT r.id, r.tenant, ?, r.round, r.attempts, r.error_count, r.error_info, r.checkpoint, r.progress,
  COALESCE(n.result, r.result), r.affinity, r.exec_id, r.worker_id, r.host, r.started_at, n.outcome, ?, ?
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', outcome SMALLINT PATH '$[1]', result LONGTEXT PATH '$[2]')) n
STRAIGHT_JOIN task_running r FORCE INDEX (PRIMARY) ON r.id = n.id";

/// What is locked of a task that was successful.
struct Locked {
    ended: Ended,
    unique: Option<UniqueKey>,
    /// Whether it may have a log: only a task that was tried, retried or given back before has one.
    logged: bool,
}

pub(super) async fn succeed(
    connection: &mut MySqlConnection,
    done: &[Done],
    keep: bool,
    now: Time,
) -> Attempted<Vec<Ended>> {
    let given: Vec<_> = done.iter().map(|one| (one.id, one.exec_id, one.tenant.as_deref())).collect();
    let mut ended = Vec::with_capacity(done.len());
    for batch in batches(&given) {
        for row in sqlx::query(LOCK).bind(batch).fetch_all(&mut *connection).await.map_err(fault)? {
            ended.push(read_locked(&row).map_err(fault)?);
        }
    }
    let ids: Vec<_> = ended.iter().map(|one| one.ended.id.0).collect();
    if keep {
        let found: HashSet<_> = ids.iter().copied().collect();
        let kept = done.iter().filter(|one| found.contains(&one.id.0));
        let kept: Vec<_> = kept.map(|one| (one.id, one.outcome.code(), one.result.as_deref())).collect();
        let mut entered = 0;
        for batch in batches(&kept) {
            let query = sqlx::query(ENTER_HISTORY).bind(Status::Success.code()).bind(now.0).bind(now.0).bind(batch);
            entered += query.execute(&mut *connection).await.map_err(fault)?.rows_affected();
        }
        expect(entered, ids.len())?;
    } else {
        let logged: Vec<_> = ended.iter().filter(|one| one.logged).map(|one| one.ended.id.0).collect();
        rows::on(connection, rows::DELETE_ATTEMPTS, &logged).await?;
        rows::on(connection, rows::DELETE_TASK, &ids).await?;
    }
    expect(rows::on(connection, rows::LEAVE_RUNNING, &ids).await?, ids.len())?;
    leave_unique(connection, ended.iter().filter_map(|one| one.unique.clone()).collect()).await?;
    Ok(ended.into_iter().map(|one| one.ended).collect())
}

fn read_locked(row: &MySqlRow) -> sqlx::Result<Locked> {
    let id = TaskId(row.try_get(0)?);
    let unique = match row.try_get(4)? {
        Some(unique_key) => Some(UniqueKey { tenant: row.try_get(2)?, task_type: row.try_get(3)?, unique_key, id }),
        None => None,
    };
    let ended = Ended {
        id,
        worker_id: row.try_get(1)?,
        tenant: row.try_get(2)?,
        task_type: row.try_get(3)?,
        attempt: row.try_get::<i32, _>(6)?.unsigned_abs(),
        due: Time(row.try_get(7)?),
        started_at: Time(row.try_get(8)?),
        run_id: row.try_get(9)?,
        host: row.try_get(10)?,
    };
    Ok(Locked { ended, unique, logged: row.try_get::<i64, _>(5)? != 0 })
}
