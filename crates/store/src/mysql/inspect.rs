//! How the database stands.

use super::{fault, number};
use crate::indexes::{self, Index};
use crate::parts::{self, Kind};
use crate::session::Attempted;
use crate::verbs::{Inspection, WeakSetting};
use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Row};
use std::collections::HashSet;
use taskwheel_model::Time;

/// Settings that must have one of these values for an acknowledged task to survive a crash of the machine. The last one
/// matters where there is a binary log.
const DURABLE: &[(&str, &[&str])] =
    &[("innodb_flush_log_at_trx_commit", &["1", "3"]), ("innodb_doublewrite", &["1", "ON"]), ("sync_binlog", &["1"])];

/// Tasks that are in more than one place, or in none, and what triggers wrote of others than those that it is true of.
const CONTRADICTIONS: &str = "
SELECT (SELECT count(*) FROM task_waiting w JOIN task_running r ON r.id = w.id)
     + (SELECT count(*) FROM task_waiting w JOIN task_history h ON h.id = w.id)
     + (SELECT count(*) FROM task_running r JOIN task_history h ON h.id = r.id)
     + (SELECT count(*) FROM task t WHERE NOT EXISTS (SELECT 1 FROM task_waiting w WHERE w.tenant = t.tenant AND w.id = t.id)
          AND NOT EXISTS (SELECT 1 FROM task_running r WHERE r.id = t.id)
          AND NOT EXISTS (SELECT 1 FROM task_history h WHERE h.id = t.id))
     + (SELECT count(*) - count(DISTINCT id) FROM task_waiting)
     + (SELECT count(*) FROM task_label l LEFT JOIN task t ON t.id = l.id AND t.tenant = l.tenant AND l.label IN (
          CONCAT('creator:', t.creator), CONCAT('category:', t.category), CONCAT('schedule:', t.schedule_id))
        WHERE t.id IS NULL)
     + (SELECT count(*) FROM task_waiting_check c LEFT JOIN task t ON t.id = c.id
          LEFT JOIN task_waiting w ON w.tenant = t.tenant AND w.id = t.id AND w.check_at = c.check_at
        WHERE w.id IS NULL)
     + (SELECT count(*) FROM task_waiting_status s LEFT JOIN task_waiting w
          ON w.tenant = s.tenant AND w.id = s.id AND w.status = s.status
        WHERE w.id IS NULL)
     + (SELECT count(*) FROM task_waiting_category c LEFT JOIN task_waiting w
          ON w.tenant = c.tenant AND w.id = c.id AND w.category = c.category AND w.lane = c.lane AND w.`rank` = c.`rank` AND w.due = c.due
        WHERE w.id IS NULL)
     + ABS((SELECT count(*) FROM task_label) - (SELECT count(creator) + count(category) + count(schedule_id) FROM task))
     + ABS((SELECT count(*) FROM task_waiting_check) - (SELECT count(check_at) FROM task_waiting))
     + ABS((SELECT count(*) FROM task_waiting_status) - (SELECT count(*) FROM task_waiting WHERE status <> 1))
     + ABS((SELECT count(*) FROM task_waiting_category) - (SELECT count(category) FROM task_waiting WHERE lane <> ''))";

pub(super) async fn inspect(connection: &mut MySqlConnection, now: Time) -> Attempted<Inspection> {
    let version: String = scalar(connection, "SELECT VERSION()").await?;
    let logs: i64 = scalar(connection, "SELECT CAST(@@log_bin AS SIGNED)").await?;
    let mut weak_settings = Vec::new();
    for (name, values) in DURABLE.iter().filter(|(name, _)| logs != 0 || *name != "sync_binlog") {
        let sql = AssertSqlSafe(format!("SELECT CAST(@@{name} AS CHAR)"));
        let row = sqlx::query(sql).fetch_one(&mut *connection).await.map_err(fault)?;
        let value: String = row.try_get(0).map_err(fault)?;
        if !values.contains(&value.as_str()) {
            weak_settings.push(WeakSetting { name: (*name).into(), value, wanted: values[0].into() });
        }
    }
    let (findings, notes) = findings(connection).await?;
    Ok(Inspection {
        database: if version.contains("MariaDB") { version } else { format!("MySQL {version}") },
        schema_version: scalar(connection, "SELECT version FROM taskwheel_schema").await?,
        weak_settings,
        now,
        findings,
        notes,
    })
}

/// Who keeps the server from removing dead rows. The server tells the time of its machine there, whatever the zone of the session is. What is
/// prepared has no connection any more.
const HORIZON: &str = "
SELECT CONCAT(IF(trx_mysql_thread_id = 0, 'a prepared transaction', CONCAT('connection ', trx_mysql_thread_id)),
              ' has been in a transaction since ', CONVERT_TZ(trx_started, 'SYSTEM', '+00:00'),
              ' UTC and keeps the server from removing dead rows: end it with ',
              IF(trx_mysql_thread_id = 0, 'XA ROLLBACK and its name, which XA RECOVER tells', CONCAT('KILL ', trx_mysql_thread_id)))
FROM information_schema.innodb_trx
WHERE trx_started < CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM') - INTERVAL 5 MINUTE";
/// Tables and views, and triggers.
const PARTS: &str = "
SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()
UNION ALL
SELECT CONCAT('trigger ', trigger_name) FROM information_schema.triggers WHERE trigger_schema = DATABASE()";
const INDEXES: &str = "
SELECT table_name, index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', '), CAST(MAX(non_unique) AS SIGNED)
FROM information_schema.statistics WHERE table_schema = DATABASE() GROUP BY table_name, index_name";
/// What a primary key is called.
const PRIMARY: &str = "PRIMARY";

/// The number of "access denied".
const DENIED: u16 = 1227;

/// What this user is not shown, and need not be.
const UNSEEN: &str =
    "who keeps the server from removing dead rows is not shown to this user: GRANT PROCESS ON *.* lets it look";

/// Whether this user has a privilege without which no trigger is shown.
const SEES_TRIGGERS: &str = "
SELECT (SELECT count(*) FROM information_schema.user_privileges WHERE privilege_type = 'TRIGGER')
     + (SELECT count(*) FROM information_schema.schema_privileges WHERE privilege_type = 'TRIGGER')
     + (SELECT count(*) FROM information_schema.table_privileges WHERE privilege_type = 'TRIGGER')";
const TRIGGERS_UNSEEN: &str =
    "whether the triggers are there is not shown to this user: GRANT TRIGGER on the database lets it look";

/// What is wrong, and what could not be looked at.
async fn findings(connection: &mut MySqlConnection) -> Attempted<(Vec<String>, Vec<String>)> {
    let (mut findings, mut notes) = match texts(connection, HORIZON).await {
        Err(error) if number(&error) == DENIED => (Vec::new(), vec![UNSEEN.into()]),
        looked => (looked.map_err(fault)?, Vec::new()),
    };
    let schema = super::migrate::SCHEMA;
    let there: HashSet<_> = texts(connection, PARTS).await.map_err(fault)?.into_iter().collect();
    let sees_triggers = scalar::<i64>(connection, SEES_TRIGGERS).await? > 0;
    notes.extend((!sees_triggers).then(|| TRIGGERS_UNSEEN.into()));
    findings.extend(parts::faults(schema, |part| match part.kind {
        Kind::Trigger => !sees_triggers || there.contains(&format!("trigger {}", part.name)),
        Kind::Table | Kind::View => there.contains(part.name),
    }));
    let rows = sqlx::query(INDEXES).fetch_all(connection).await.map_err(fault)?;
    let indexes = rows.iter().map(index).collect::<sqlx::Result<Vec<_>>>().map_err(fault)?;
    findings.extend(indexes::faults(schema, &indexes, true, |table| there.contains(table)));
    Ok((findings, notes))
}

fn index(row: &MySqlRow) -> sqlx::Result<Index> {
    let name = Some(row.try_get(1)?).filter(|name| name != PRIMARY);
    let is_unique = row.try_get::<i64, _>(3)? == 0;
    Ok(Index { table: row.try_get(0)?, name, columns: row.try_get(2)?, is_unique, is_whole: true })
}

async fn texts(connection: &mut MySqlConnection, sql: &'static str) -> sqlx::Result<Vec<String>> {
    let rows = sqlx::query(sql).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

pub(super) async fn contradictions(connection: &mut MySqlConnection) -> Attempted<u64> {
    let count: i64 = scalar(connection, CONTRADICTIONS).await?;
    Ok(count.unsigned_abs())
}

async fn scalar<T>(connection: &mut MySqlConnection, sql: &'static str) -> Attempted<T>
where
    T: for<'r> sqlx::Decode<'r, sqlx::MySql> + sqlx::Type<sqlx::MySql>,
{
    sqlx::query(sql).fetch_one(connection).await.and_then(|row| row.try_get(0)).map_err(fault)
}
