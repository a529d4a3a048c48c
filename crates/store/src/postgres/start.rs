//! Start on PostgreSQL: picked tasks become executions.

use super::fault;
use crate::StoreError;
use crate::session::{Attempted, Start, Starter};
use sqlx::postgres::PgConnection;
use std::collections::HashMap;
use taskwheel_model::{TaskId, Time};

/// Moves picked tasks from those that wait to those that run. They are locked, so each must be there, and lie where they were picked:
/// no index is asked for them again. A transaction that began before another one gave a task back starts it after that.
const START: &str = "
WITH gone AS (DELETE FROM task_waiting WHERE ctid = ANY($5::text[]::tid[]))
INSERT INTO task_running (id, tenant, type, rank, due, status, round, attempts, error_count, error_info, checkpoint,
                          progress, result, expire_at, category, creator, unique_key, run_id, affinity, exec_id, worker_id,
                          host,
                          started_at, deadline, heartbeat_ms, named, lease_until, check_at, updated_at)
SELECT w.id, w.tenant, w.type, w.rank, w.due, 2, w.round, w.attempts + 1, w.error_count, w.error_info, w.checkpoint,
       w.progress, w.result, w.expire_at, w.category, w.creator, w.unique_key, w.run_id, w.affinity, n.exec_id, $1, $2,
       GREATEST($3, w.updated_at), n.deadline, $4, 0, n.lease_until, n.check_at, $3
FROM unnest($5::text[]::tid[], $6::bigint[], $7::uuid[], $8::bigint[], $9::bigint[], $10::bigint[])
  AS n(place, id, exec_id, deadline, lease_until, check_at)
CROSS JOIN LATERAL (SELECT * FROM task_waiting w WHERE w.ctid = n.place AND w.id = n.id OFFSET 0) w";

pub(super) async fn start(
    connection: &mut PgConnection,
    starter: &Starter,
    starts: &[Start],
    places: &HashMap<TaskId, String>,
    now: Time,
) -> Attempted<()> {
    let started = sqlx::query(START)
        .bind(&starter.worker_id)
        .bind(&starter.host)
        .bind(now.0)
        .bind(starter.heartbeat_ms)
        .bind(starts.iter().map(|start| places.get(&start.id)).collect::<Vec<_>>())
        .bind(starts.iter().map(|start| start.id.0).collect::<Vec<_>>())
        .bind(starts.iter().map(|start| start.exec_id.0).collect::<Vec<_>>())
        .bind(starts.iter().map(|start| start.deadline.map(|time| time.0)).collect::<Vec<_>>())
        .bind(starts.iter().map(|start| start.lease_until.map(|time| time.0)).collect::<Vec<_>>())
        .bind(starts.iter().map(|start| start.check_at.0).collect::<Vec<_>>())
        .execute(connection)
        .await
        .map_err(fault)?
        .rows_affected();
    if started != starts.len() as u64 {
        return Err(StoreError::Database(format!("{} locked tasks were to start, {started} did", starts.len())).into());
    }
    Ok(())
}
