//! How the database stands.

use crate::indexes::{self, Index};
use crate::parts;
use crate::session::Attempted;
use crate::verbs::{Inspection, WeakSetting};
use rusqlite::{Connection, Row, types::FromSql};
use std::collections::HashSet;
use taskwheel_model::Time;

/// Tasks that are in more than one place, or in none.
const CONTRADICTIONS: &str = "
SELECT (SELECT count(*) FROM task_waiting w JOIN task_running r ON r.id = w.id)
     + (SELECT count(*) FROM task_waiting w JOIN task_history h ON h.id = w.id)
     + (SELECT count(*) FROM task_running r JOIN task_history h ON h.id = r.id)
     + (SELECT count(*) FROM task t WHERE NOT EXISTS (SELECT 1 FROM task_waiting w WHERE w.id = t.id)
          AND NOT EXISTS (SELECT 1 FROM task_running r WHERE r.id = t.id)
          AND NOT EXISTS (SELECT 1 FROM task_history h WHERE h.id = t.id))";

/// The settings are those of this connection; the store sets them alike on all of its own.
pub(super) fn inspect(connection: &Connection, now: Time) -> Attempted<Inspection> {
    let mut weak_settings = Vec::new();
    let mode: String = scalar(connection, "PRAGMA journal_mode")?;
    if mode != "wal" {
        weak_settings.push(weak("journal_mode", mode, "wal"));
    }
    let level: i64 = scalar(connection, "PRAGMA synchronous")?;
    if level < 2 {
        weak_settings.push(weak("synchronous", level.to_string(), "2 (FULL)"));
    }
    Ok(Inspection {
        database: format!("SQLite {}", rusqlite::version()),
        schema_version: scalar(connection, "SELECT version FROM taskwheel_schema")?,
        weak_settings,
        now,
        findings: findings(connection)?,
        notes: Vec::new(),
    })
}

fn findings(connection: &Connection) -> Attempted<Vec<String>> {
    let mut statement =
        connection.prepare("SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")?;
    let index = |row: &Row<'_>| {
        let columns = indexes::in_brackets(&row.get::<_, String>(2)?);
        // Unique ones belong to their tables here, and cannot be removed.
        Ok(Index { table: row.get(0)?, name: Some(row.get(1)?), columns, is_unique: false, is_whole: true })
    };
    let indexes = statement.query_map([], index)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut statement =
        connection.prepare("SELECT name FROM sqlite_master WHERE type IN ('table', 'trigger', 'view')")?;
    let there = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<HashSet<String>>>()?;
    let schema = super::migrate::SCHEMA;
    let mut findings = parts::faults(schema, |part| there.contains(part.name));
    findings.extend(indexes::faults(schema, &indexes, false, |table| there.contains(table)));
    Ok(findings)
}

fn weak(name: &str, value: String, wanted: &str) -> WeakSetting {
    WeakSetting { name: name.to_owned(), value, wanted: wanted.to_owned() }
}

pub(super) fn contradictions(connection: &Connection) -> Attempted<u64> {
    let count: i64 = scalar(connection, CONTRADICTIONS)?;
    Ok(count.unsigned_abs())
}

fn scalar<T: FromSql>(connection: &Connection, sql: &str) -> Attempted<T> {
    Ok(connection.query_row(sql, [], |row| row.get(0))?)
}
