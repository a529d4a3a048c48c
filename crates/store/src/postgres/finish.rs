//! Success on PostgreSQL: one statement from running to history, guarded by id and execution.

use super::fault;
use crate::session::{Attempted, Done, Ended, Succeed};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use std::collections::HashSet;
use taskwheel_model::{Status, TaskId, Time};

macro_rules! columns {
    () => {
        "r.id, r.tenant, r.type, r.due, r.round, r.attempts, r.error_count, r.error_info, r.checkpoint, r.progress, r.result,
           r.unique_key, r.run_id, r.affinity, r.exec_id, r.worker_id, r.host, r.started_at, r.heartbeat_ms"
    };
}
/// The executions that end, guarded by id and execution: each is looked up by itself, by a lateral subquery that the planner cannot turn
/// round, and removed where it lies. A join could read all that runs, or hold each of the batch against each. One that a heartbeat
/// moves meanwhile is not met, and looked up again. Those of runs are left alone where `$8` says so.
macro_rules! gone {
    () => {
        concat!(
            "gone AS (DELETE FROM task_running r USING (
           SELECT n.outcome, n.result, x.place
           FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::smallint[], $5::text[])
             AS n(id, exec_id, tenant, outcome, result)
           CROSS JOIN LATERAL (
             SELECT x.ctid AS place FROM task_running x
             WHERE x.id = n.id AND x.exec_id = n.exec_id AND (n.tenant IS NULL OR x.tenant = n.tenant)
               AND (NOT $8 OR x.run_id IS NULL) OFFSET 0) x
           OFFSET 0) n
         WHERE r.ctid = n.place
         RETURNING ",
            columns!(),
            ", n.outcome, n.result AS reported)"
        )
    };
}
/// The unique keys of what ended, found by their index whatever the statistics say.
macro_rules! free {
    () => {
        "free AS (DELETE FROM task_unique WHERE ctid = ANY(ARRAY(
           SELECT k.ctid FROM gone g CROSS JOIN LATERAL (
             SELECT u.ctid FROM task_unique u
             WHERE u.tenant = g.tenant AND u.type = g.type AND u.unique_key = g.unique_key OFFSET 0) k
           WHERE g.unique_key IS NOT NULL)))"
    };
}

/// `$6` is now, `$7` the code of Success.
const KEEP: &str = concat!(
    "
WITH ",
    gone!(),
    ",
",
    free!(),
    ",
kept AS (
  INSERT INTO task_history (id, tenant, status, round, attempts, error_count, error_info, checkpoint, progress, result,
                            affinity, exec_id, worker_id, host, started_at, outcome, finished_at, updated_at)
  SELECT id, tenant, $7, round, attempts, error_count, error_info, checkpoint, progress, COALESCE(reported, result),
         affinity, exec_id, worker_id, host, started_at, outcome, GREATEST($6, started_at), $6
  FROM gone),
marked AS (
  INSERT INTO task_history_mark (tenant, mark, bucket)
  SELECT b.tenant, m.mark, b.bucket FROM (SELECT DISTINCT tenant, host, id >> 8 AS bucket FROM gone) b
  CROSS JOIN LATERAL (VALUES ('Success'), ('host:' || b.host)) AS m(mark))
SELECT id, CASE WHEN heartbeat_ms IS NOT NULL THEN worker_id END, type, attempts, due, started_at, tenant, run_id,
  CASE WHEN run_id IS NOT NULL THEN host END FROM gone"
);

/// The same where successful tasks are not kept. Only a task that was tried, retried or given back before has a log. `$6` and `$7` are
/// there so that both take the same values.
const DROP: &str = concat!(
    "
WITH ",
    gone!(),
    ",
",
    free!(),
    ",
log AS (DELETE FROM task_attempt WHERE task_id = ANY(ARRAY(
  SELECT g.id FROM gone g WHERE g.attempts > 1 OR g.round > 1 OR g.affinity IS NOT NULL))),
content AS (DELETE FROM task WHERE id = ANY(ARRAY(SELECT g.id FROM gone g)))
SELECT id, CASE WHEN heartbeat_ms IS NOT NULL THEN worker_id END, type, attempts, due, started_at, tenant, run_id,
  CASE WHEN run_id IS NOT NULL THEN host END
FROM gone WHERE $6::bigint IS NOT NULL AND $7::smallint > 0"
);

pub(super) async fn succeed(
    connection: &mut PgConnection,
    done: &[Done],
    how: Succeed,
    now: Time,
) -> Attempted<Vec<Ended>> {
    let mut all = end(connection, done, how, now).await?;
    // What a heartbeat has moved meanwhile is found where it is now. Without a transaction around it there is no second statement.
    if !how.leaves_runs && all.len() < done.len() {
        let ended: HashSet<_> = all.iter().map(|one| one.id).collect();
        let rest: Vec<_> = done.iter().filter(|one| !ended.contains(&one.id)).cloned().collect();
        all.extend(end(connection, &rest, how, now).await?);
    }
    Ok(all)
}

async fn end(connection: &mut PgConnection, done: &[Done], how: Succeed, now: Time) -> Attempted<Vec<Ended>> {
    let rows = sqlx::query(if how.keep { KEEP } else { DROP })
        .bind(done.iter().map(|one| one.id.0).collect::<Vec<_>>())
        .bind(done.iter().map(|one| one.exec_id.0).collect::<Vec<_>>())
        .bind(done.iter().map(|one| one.tenant.as_deref()).collect::<Vec<_>>())
        .bind(done.iter().map(|one| one.outcome.code()).collect::<Vec<_>>())
        .bind(done.iter().map(|one| one.result.as_deref()).collect::<Vec<_>>())
        .bind(now.0)
        .bind(Status::Success.code())
        .bind(how.leaves_runs)
        .fetch_all(connection)
        .await
        .map_err(fault)?;
    rows.iter().map(|row| ended(row).map_err(fault)).collect()
}

fn ended(row: &PgRow) -> sqlx::Result<Ended> {
    Ok(Ended {
        id: TaskId(row.try_get(0)?),
        worker_id: row.try_get(1)?,
        tenant: row.try_get(6)?,
        task_type: row.try_get(2)?,
        attempt: row.try_get::<i32, _>(3)?.unsigned_abs(),
        due: Time(row.try_get(4)?),
        started_at: Time(row.try_get(5)?),
        run_id: row.try_get(7)?,
        host: row.try_get(8)?,
    })
}
