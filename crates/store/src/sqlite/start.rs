//! Start on SQLite: picked tasks become executions.

use super::rows::text;
use crate::StoreError;
use crate::session::{Attempted, Start, Starter};
use rusqlite::{Connection, params};
use taskwheel_model::Time;

/// Moves a picked task from those that wait to those that run. It was just picked in this transaction, so it must be
/// there.
const START: &str = "
INSERT OR FAIL INTO task_running (id, tenant, type, rank, due, status, round, attempts, error_count, error_info,
                                  checkpoint, progress, result, expire_at, category, creator, unique_key, run_id, affinity,
                                  exec_id, worker_id, host, started_at, deadline, heartbeat_ms, named, lease_until,
                                  check_at, updated_at)
SELECT id, tenant, type, rank, due, 2, round, attempts + 1, error_count, error_info, checkpoint, progress, result,
       expire_at, category, creator, unique_key, run_id, affinity, ?2, ?3, ?4, MAX(?5, updated_at), ?6, ?7, 0, ?8, ?9, ?5
FROM task_waiting WHERE id = ?1";

pub(super) fn start(connection: &Connection, starter: &Starter, starts: &[Start], now: Time) -> Attempted<()> {
    let mut enter = connection.prepare_cached(START)?;
    let mut leave = connection.prepare_cached("DELETE FROM task_waiting WHERE id = ?1")?;
    for start in starts {
        let entered = enter.execute(params![
            start.id.0,
            text(start.exec_id),
            starter.worker_id,
            starter.host,
            now.0,
            start.deadline.map(|time| time.0),
            starter.heartbeat_ms,
            start.lease_until.map(|time| time.0),
            start.check_at.0
        ])?;
        if entered != 1 || leave.execute([start.id.0])? != 1 {
            return Err(StoreError::Database(format!("task {} was picked and is not waiting", start.id)).into());
        }
    }
    Ok(())
}
