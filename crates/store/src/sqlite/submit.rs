//! Submit on SQLite, in two ways that write the same rows.
//!
//! On a user's connection the triggers on `task` put each task where claims find it. On the writer's own the triggers are
//! switched off and the rows are written one by one, which takes half the time: a statement that fires a trigger keeps a
//! journal of its own, to be undone alone, and a savepoint does that already.

use crate::session::{Attempted, Insert, policy};
use rusqlite::{Connection, OptionalExtension, params};
use taskwheel_model::TaskId;

const INSERT: &str = "
INSERT INTO task (tenant, type, task_key, payload, priority, run_at, expire_at, max_attempts, retry, timeout_ms,
                  category, creator, route_key, slot, unique_key, affinity, token_id, trace_parent,
                  created_at, schedule_id, run_id, parent_id, root_id, context)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)";

/// Inserts tasks where the triggers do the rest.
pub(super) fn insert(connection: &Connection, tasks: &[Insert]) -> Attempted<Vec<TaskId>> {
    let mut statement = connection.prepare_cached(INSERT)?;
    let mut ids = Vec::with_capacity(tasks.len());
    for Insert { task, priority, run_at, slot, created_at, origin } in tasks {
        let id = statement.insert(params![
            task.tenant,
            task.task_type,
            task.key,
            task.payload,
            priority,
            run_at.0,
            task.expire_at.map(|time| time.0),
            task.max_attempts,
            task.retry.as_ref().map(policy),
            task.timeout_ms,
            task.category,
            task.creator,
            task.route_key,
            slot,
            task.unique_key,
            task.affinity,
            task.token_id,
            task.trace_parent,
            created_at.0,
            origin.as_ref().map(|origin| origin.schedule_id),
            origin.as_ref().and_then(|origin| origin.run_id),
            origin.as_ref().and_then(|origin| origin.parent_id).map(|id| id.0),
            origin.as_ref().and_then(|origin| origin.root_id).map(|id| id.0),
            origin.as_ref().and_then(|origin| origin.context.as_deref())
        ])?;
        ids.push(TaskId(id));
    }
    Ok(ids)
}

/// What the trigger `task_goes_live` writes.
const GO_LIVE: &str = "
INSERT INTO task_waiting (id, tenant, type, lane, rank, due, status, round, attempts, error_count, expire_at,
                          category, creator, unique_key, run_id, affinity, check_at, updated_at)
VALUES (?1, ?2, ?3, ?4, 9 - ?5, ?6, 1, 1, 0, 0, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
/// What the trigger `task_takes_its_key` writes.
const TAKE_KEY: &str = "INSERT INTO task_unique (tenant, type, unique_key, id) VALUES (?1, ?2, ?3, ?4)";

/// Inserts tasks where no trigger does anything.
pub(super) fn insert_whole(connection: &Connection, tasks: &[Insert]) -> Attempted<Vec<TaskId>> {
    let ids = insert(connection, tasks)?;
    let mut go_live = connection.prepare_cached(GO_LIVE)?;
    for (id, Insert { task, priority, run_at, created_at, origin, .. }) in ids.iter().zip(tasks) {
        let (lane, look_at) = match &task.affinity {
            None => (None, task.expire_at),
            Some(host) => {
                let lane = format!("{}@{host}", task.task_type);
                (Some(lane), Some(task.expire_at.map_or(*run_at, |expiry| expiry.min(*run_at))))
            }
        };
        go_live.execute(params![
            id.0,
            task.tenant,
            task.task_type,
            lane.as_ref().unwrap_or(&task.task_type),
            priority,
            run_at.0,
            task.expire_at.map(|time| time.0),
            task.category,
            task.creator,
            task.unique_key,
            origin.as_ref().and_then(|origin| origin.run_id),
            task.affinity,
            look_at.map(|time| time.0),
            created_at.0
        ])?;
        if let Some(key) = &task.unique_key {
            connection.prepare_cached(TAKE_KEY)?.execute(params![task.tenant, task.task_type, key, id.0])?;
        }
    }
    Ok(ids)
}

const LIVE_UNIQUE: &str = "SELECT id FROM task_unique WHERE tenant = ?1 AND type = ?2 AND unique_key = ?3";

pub(super) fn live_unique(connection: &Connection, keys: &[(&str, &str, &str)]) -> Attempted<Vec<Option<TaskId>>> {
    let mut statement = connection.prepare_cached(LIVE_UNIQUE)?;
    let mut holders = Vec::with_capacity(keys.len());
    for key in keys {
        holders.push(statement.query_row(*key, |row| row.get(0).map(TaskId)).optional()?);
    }
    Ok(holders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{connect_all, submit_on};
    use rusqlite::Row;
    use rusqlite::types::Value;
    use taskwheel_model::Time;
    use taskwheel_model::{DatabaseNumber, NewTask};

    const EMPTY: &str = "DELETE FROM task; DELETE FROM task_waiting; DELETE FROM task_unique";

    fn rows(connection: &Connection, sql: &str) -> Vec<Vec<Value>> {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let row = |row: &Row<'_>| (0..columns).map(|column| row.get(column)).collect();
        statement.query_map([], row).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    #[test]
    fn the_writer_and_the_triggers_write_the_same_rows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tasks.db");
        let (writer, _) = connect_all(&path, DatabaseNumber::default(), true).unwrap();
        let user = Connection::open(path).unwrap();
        let all = || {
            let waiting = rows(&user, "SELECT * FROM task_waiting");
            (waiting, rows(&user, "SELECT * FROM task_unique"))
        };
        let task = NewTask { category: Some("c".into()), creator: Some("me".into()), ..NewTask::new("mail") };
        let (affinity, expire_at) = (Some("host".to_owned()), Some(Time(32_000_000_000_000)));
        for task in [
            NewTask { priority: Some(7), ..task.clone() },
            NewTask { unique_key: Some("k".into()), ..task.clone() },
            NewTask { affinity: affinity.clone(), ..task.clone() },
            NewTask { expire_at, ..task.clone() },
            NewTask { affinity, expire_at, ..task },
        ] {
            submit_on(&user, std::slice::from_ref(&task)).unwrap();
            let by_triggers = all();
            let created_at: i64 = user.query_row("SELECT created_at FROM task", [], |row| row.get(0)).unwrap();
            user.execute_batch(EMPTY).unwrap();
            user.execute_batch("UPDATE sqlite_sequence SET seq = seq - 1").unwrap();
            let (run_at, created_at) = (Time(created_at), Time(created_at));
            let insert = Insert {
                priority: task.priority.unwrap_or(1),
                run_at,
                slot: None,
                created_at,
                task: task.into(),
                origin: None,
            };
            insert_whole(&writer, &[insert]).unwrap();
            assert_eq!(all(), by_triggers);
            user.execute_batch(EMPTY).unwrap();
        }
    }

    #[test]
    fn no_kind_of_insert_makes_two_live_tasks_of_one_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tasks.db");
        let _store = connect_all(&path, DatabaseNumber::default(), true).unwrap();
        let user = Connection::open(path).unwrap();
        for (kind, may) in
            [("INSERT", true), ("INSERT", false), ("INSERT OR IGNORE", false), ("INSERT OR REPLACE", false)]
        {
            let inserted = user.execute(&format!("{kind} INTO task (type, unique_key) VALUES ('mail', 'k')"), []);
            assert_eq!(inserted.is_ok(), may, "{kind}: {inserted:?}");
            if let Err(error) = inserted {
                assert!(matches!(error.into(), crate::session::Fault::UniqueKey), "{kind}");
            }
        }
        assert_eq!(rows(&user, "SELECT id FROM task"), [[Value::Integer(1)]]);
        assert_eq!(rows(&user, "SELECT id FROM task_waiting"), [[Value::Integer(1)]]);
    }
}
