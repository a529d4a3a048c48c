//! How the database stands.

use super::fault;
use crate::indexes::{self, Index};
use crate::parts::{self, Kind};
use crate::session::Attempted;
use crate::verbs::{Inspection, WeakSetting};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use std::collections::HashSet;
use taskwheel_model::Time;

/// Settings that must have one of these values for an acknowledged task to survive a crash of the machine.
const DURABLE: &[(&str, &[&str])] = &[
    ("fsync", &["on"]),
    ("synchronous_commit", &["on", "remote_write", "remote_apply", "local"]),
    ("full_page_writes", &["on"]),
];

/// Tasks that are in more than one place, or in none.
const CONTRADICTIONS: &str = "
SELECT (SELECT count(*) FROM task_waiting w JOIN task_running r ON r.id = w.id)
     + (SELECT count(*) FROM task_waiting w JOIN task_history h ON h.id = w.id)
     + (SELECT count(*) FROM task_running r JOIN task_history h ON h.id = r.id)
     + (SELECT count(*) FROM task t WHERE NOT EXISTS (SELECT 1 FROM task_waiting w WHERE w.id = t.id)
          AND NOT EXISTS (SELECT 1 FROM task_running r WHERE r.id = t.id)
          AND NOT EXISTS (SELECT 1 FROM task_history h WHERE h.id = t.id))
     + (SELECT count(*) FROM task_history h WHERE
          (h.host IS NOT NULL AND NOT EXISTS (SELECT 1 FROM task_history_mark m
             WHERE m.tenant = h.tenant AND m.mark = 'host:' || h.host AND m.bucket = h.id >> 8))
          OR (h.status = 3 AND NOT EXISTS (SELECT 1 FROM task_history_mark m
             WHERE m.tenant = h.tenant AND m.mark = 'Success' AND m.bucket = h.id >> 8)))";

pub(super) async fn inspect(connection: &mut PgConnection, now: Time) -> Attempted<Inspection> {
    let version: String = scalar(connection, "SELECT 'PostgreSQL ' || current_setting('server_version')").await?;
    let mut weak_settings = Vec::new();
    for (name, values) in DURABLE {
        let row =
            sqlx::query("SELECT current_setting($1)").bind(name).fetch_one(&mut *connection).await.map_err(fault)?;
        let value: String = row.try_get(0).map_err(fault)?;
        if !values.contains(&value.as_str()) {
            weak_settings.push(WeakSetting { name: (*name).into(), value, wanted: values[0].into() });
        }
    }
    Ok(Inspection {
        database: version,
        schema_version: scalar(connection, "SELECT version FROM taskwheel_schema").await?,
        weak_settings,
        now,
        findings: findings(connection).await?,
        notes: texts(connection, UNSEEN).await?,
    })
}

/// Who keeps the server from removing dead rows, and where those have become many.
const HORIZON: &str = "
SELECT format('process %s (user %s, application %s, state %s) has kept the server from removing dead rows for %s: end it '
              'with SELECT pg_terminate_backend(%s), and set idle_in_transaction_session_timeout',
              pid, usename, application_name, state, date_trunc('second', now() - xact_start), pid)
FROM pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND datname = current_database()
  AND xact_start < now() - interval '5 minutes' AND backend_type = 'client backend'
  AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
UNION ALL
SELECT format('the prepared transaction %s of user %s has kept the server from removing dead rows since %s: end it with '
              'ROLLBACK PREPARED %L', gid, owner, date_trunc('second', prepared), gid)
FROM pg_prepared_xacts WHERE database = current_database() AND prepared < now() - interval '5 minutes'
UNION ALL
SELECT format('nobody reads the replication slot %s, and it keeps the server from removing dead rows: remove it with '
              'SELECT pg_drop_replication_slot(%L)', slot_name, slot_name)
FROM pg_replication_slots WHERE NOT active AND xmin IS NOT NULL";
/// Transactions of others, whose age only some may see.
const UNSEEN: &str = "
SELECT format('process %s of user %s is in a transaction, and how long it has kept the server from removing dead rows is not '
              'shown to this user: GRANT pg_read_all_stats TO %I lets it look', pid, usename, current_user)
FROM pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND datname = current_database() AND usename IS NOT NULL
  AND xact_start IS NULL";
const DEAD_ROWS: &str = "
SELECT format('%s has %s dead rows beside %s live ones: run VACUUM %s, and see that autovacuum is on', relname, n_dead_tup,
              n_live_tup, relname)
FROM pg_stat_user_tables
WHERE relname = ANY($1) AND pg_table_is_visible(relid) AND n_dead_tup > 200000 AND n_dead_tup > 5 * n_live_tup";
const INDEXES: &str = "
SELECT t.relname::text, CASE WHEN NOT x.indisprimary THEN i.relname::text END,
       array_to_string(ARRAY(SELECT pg_get_indexdef(i.oid, place, true) FROM generate_series(1, x.indnkeyatts) place), ', '),
       x.indisunique, x.indisvalid
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
WHERE pg_table_is_visible(t.oid)";

/// Tables and views, and triggers that are on.
const PARTS: &str = "
SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p', 'v') AND pg_table_is_visible(oid)
UNION ALL
SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgenabled IN ('O', 'A') AND pg_table_is_visible(tgrelid)";

async fn findings(connection: &mut PgConnection) -> Attempted<Vec<String>> {
    let schema = super::migrate::SCHEMA;
    let mut findings = texts(connection, HORIZON).await?;
    let tables = parts::parts(schema).into_iter().filter(|part| part.kind == Kind::Table);
    let tables: Vec<_> = tables.map(|table| table.name).collect();
    for row in sqlx::query(DEAD_ROWS).bind(tables).fetch_all(&mut *connection).await.map_err(fault)? {
        findings.push(row.try_get(0).map_err(fault)?);
    }
    let there: HashSet<_> = texts(connection, PARTS).await?.into_iter().collect();
    findings.extend(parts::faults(schema, |part| match part.kind {
        Kind::Trigger => there.contains(&format!("trigger {}", part.name)),
        Kind::Table | Kind::View => there.contains(part.name),
    }));
    let rows = sqlx::query(INDEXES).fetch_all(connection).await.map_err(fault)?;
    let indexes = rows.iter().map(index).collect::<sqlx::Result<Vec<_>>>().map_err(fault)?;
    findings.extend(indexes::faults(schema, &indexes, true, |table| there.contains(table)));
    Ok(findings)
}

fn index(row: &PgRow) -> sqlx::Result<Index> {
    Ok(Index {
        table: row.try_get(0)?,
        name: row.try_get(1)?,
        columns: row.try_get(2)?,
        is_unique: row.try_get(3)?,
        is_whole: row.try_get(4)?,
    })
}

async fn texts(connection: &mut PgConnection, sql: &'static str) -> Attempted<Vec<String>> {
    let rows = sqlx::query(sql).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get(0).map_err(fault)).collect()
}

pub(super) async fn contradictions(connection: &mut PgConnection) -> Attempted<u64> {
    let count: i64 = scalar(connection, CONTRADICTIONS).await?;
    Ok(count.unsigned_abs())
}

async fn scalar<T>(connection: &mut PgConnection, sql: &'static str) -> Attempted<T>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query(sql).fetch_one(connection).await.and_then(|row| row.try_get(0)).map_err(fault)
}
