//! Start on MySQL and MariaDB: picked tasks become executions.

use super::claim::{Key, keys_join_waiting};
use super::fault;
use super::rows::json;
use crate::session::{Attempted, Fault, Start, Starter};
use sqlx::mysql::MySqlConnection;
use std::collections::HashMap;
use taskwheel_model::{ExecId, TaskId, Time};

const ENTER_RUNNING: &str = "
INSERT INTO task_running (id, tenant, type, `rank`, due, status, round, attempts, error_count, error_info, checkpoint,
                          progress, result, expire_at, category, creator, unique_key, run_id, affinity, exec_id, worker_id,
                          host,
                          started_at, deadline, heartbeat_ms, named, lease_until, check_at, updated_at)
SELECT w.id, w.tenant, w.type, w.`rank`, w.due, 2, w.round, w.attempts + 1, w.error_count, w.error_info, w.checkpoint,
       w.progress, w.result, w.expire_at, w.category, w.creator, w.unique_key, w.run_id, w.affinity, n.exec_id, ?, ?,
       GREATEST(?, w.updated_at), n.deadline, ?, 0, n.lease_until, n.check_at, ?
FROM JSON_TABLE(?, '$[*]' COLUMNS (lane VARCHAR(265) PATH '$[0]', `rank` SMALLINT PATH '$[1]', due BIGINT PATH '$[2]',
  id BIGINT PATH '$[3]', exec_id CHAR(36) PATH '$[4]', deadline BIGINT PATH '$[5]', lease_until BIGINT PATH '$[6]',
  check_at BIGINT PATH '$[7]')) n
STRAIGHT_JOIN task_waiting w FORCE INDEX (PRIMARY)
ON w.lane = n.lane AND w.`rank` = n.`rank` AND w.due = n.due AND w.id = n.id";
pub(super) const LEAVE_WAITING: &str = concat!("DELETE w FROM ", keys_join_waiting!());

type StartRow<'a> = (&'a str, i16, i64, i64, ExecId, Option<Time>, Option<Time>, Time);

fn start_row<'a>(key: &'a Key, start: &Start) -> StartRow<'a> {
    let Start { exec_id, deadline, lease_until, check_at, .. } = *start;
    (&key.lane, key.rank, key.due, key.id, exec_id, deadline, lease_until, check_at)
}

/// Moves picked tasks from those that wait to those that run. They are locked, so each must be there.
pub(super) async fn start(
    connection: &mut MySqlConnection,
    starter: &Starter,
    starts: &[Start],
    keys: &HashMap<TaskId, Key>,
    now: Time,
) -> Attempted<()> {
    let wanted = starts.len() as u64;
    let mut starts: Vec<_> = starts.iter().filter_map(|start| Some((keys.get(&start.id)?, start))).collect();
    starts.sort_unstable_by_key(|(key, _)| key.id);
    let rows: Vec<_> = starts.iter().map(|(key, start)| start_row(key, start)).collect();
    let started = sqlx::query(ENTER_RUNNING)
        .bind(&starter.worker_id)
        .bind(&starter.host)
        .bind(now.0)
        .bind(starter.heartbeat_ms)
        .bind(now.0)
        .bind(json(&rows))
        .execute(&mut *connection)
        .await
        .map_err(fault)?
        .rows_affected();
    let keys: Vec<_> = starts.iter().map(|(key, _)| key).collect();
    let left = sqlx::query(LEAVE_WAITING).bind(json(&keys)).execute(connection).await.map_err(fault)?.rows_affected();
    if (started, left) != (wanted, wanted) {
        let message = format!("{wanted} locked tasks were to start, {started} did and {left} stopped waiting");
        return Err(Fault::Again(message));
    }
    Ok(())
}
