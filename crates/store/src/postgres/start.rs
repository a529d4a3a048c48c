//! Start on PostgreSQL: picked tasks become executions.

use super::{PLANNED_ANEW_MIN, fault};
use crate::StoreError;
use crate::session::{Attempted, Start, Starter};
use sqlx::postgres::PgConnection;
use taskwheel_model::Time;

/// Moves picked tasks from those that wait to those that run. They are locked, so each must be there. A transaction that began before
/// another one gave a task back starts it after that.
macro_rules! start {
    ($gone:literal) => {
        concat!(
            "
WITH gone AS (",
            $gone,
            ")
INSERT INTO task_running (id, tenant, type, rank, due, status, round, attempts, error_count, error_info, checkpoint,
                          progress, result, expire_at, category, creator, unique_key, run_id, affinity, exec_id, worker_id,
                          host,
                          started_at, deadline, heartbeat_ms, named, lease_until, check_at, updated_at)
SELECT id, tenant, type, rank, due, 2, round, attempts + 1, error_count, error_info, checkpoint, progress, result,
       expire_at, category, creator, unique_key, run_id, affinity, exec_id, $1, $2, GREATEST($3, updated_at), deadline,
       $4, 0, lease_until, next_check_at, $3
FROM gone"
        )
    };
}
const START_FEW: &str = start!(
    "DELETE FROM task_waiting w WHERE w.id = ANY($5::bigint[])
     RETURNING w.*, ($6::uuid[])[array_position($5::bigint[], w.id)] AS exec_id,
       ($7::bigint[])[array_position($5::bigint[], w.id)] AS deadline,
       ($8::bigint[])[array_position($5::bigint[], w.id)] AS lease_until,
       ($9::bigint[])[array_position($5::bigint[], w.id)] AS next_check_at"
);
const START_MANY: &str = start!(
    "DELETE FROM task_waiting w USING unnest($5::bigint[], $6::uuid[], $7::bigint[], $8::bigint[], $9::bigint[])
       AS n(id, exec_id, deadline, lease_until, check_at)
     WHERE w.id = n.id
     RETURNING w.*, n.exec_id, n.deadline, n.lease_until, n.check_at AS next_check_at"
);

pub(super) async fn start(
    connection: &mut PgConnection,
    starter: &Starter,
    starts: &[Start],
    now: Time,
) -> Attempted<()> {
    let few = starts.len() < PLANNED_ANEW_MIN;
    let started = sqlx::query(if few { START_FEW } else { START_MANY })
        .persistent(few)
        .bind(&starter.worker_id)
        .bind(&starter.host)
        .bind(now.0)
        .bind(starter.heartbeat_ms)
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
