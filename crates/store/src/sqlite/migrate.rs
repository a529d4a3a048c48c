//! Brings the schema up to date.
//!
//! All of it is one transaction that begins with the write lock: twenty processes that start at once do it once, and one
//! that is killed in the middle has done nothing.

use crate::session::Attempted;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};
use taskwheel_model::DatabaseNumber;

/// The migrations, oldest first: their SQL, and the oldest schema version that a program must know to run on what they
/// leave behind.
const MIGRATIONS: &[(&str, i32)] = &[(SCHEMA, 1)];

/// The schema as the first migration makes it.
pub(super) const SCHEMA: &str = include_str!("migrations/0001_tasks.sql");

pub(super) fn migrate(connection: &Connection, number: DatabaseNumber, makes_schema: bool) -> Attempted<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS taskwheel_schema (version INTEGER NOT NULL, oldest_program INTEGER NOT NULL,
         database_number INTEGER NOT NULL, only_row INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1)) STRICT",
    )?;
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    let stored: Option<(i32, i32, i32)> = transaction
        .query_row("SELECT version, oldest_program, database_number FROM taskwheel_schema", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let version = match stored {
        None => 0,
        Some((version, oldest, stored)) => {
            crate::verb::check_schema(known, version, oldest, stored, number)?;
            version
        }
    };
    // What was created above goes with the transaction.
    crate::verb::check_migration(version, known, makes_schema)?;
    for (sql, oldest_program) in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(sql)?;
        transaction.execute(
            "INSERT INTO taskwheel_schema (version, oldest_program, database_number) VALUES (0, 0, ?1)
             ON CONFLICT (only_row) DO NOTHING",
            [number.get()],
        )?;
        transaction
            .execute("UPDATE taskwheel_schema SET version = version + 1, oldest_program = ?1", [oldest_program])?;
    }
    if version == 0 {
        // The next id is one more than this.
        let before_first = number.first_id().0 - 1;
        transaction.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('task', ?1)", [before_first])?;
        transaction.execute("UPDATE task_sequence SET next_id = ?1", [before_first + 1])?;
    }
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use crate::sqlite::connect_all;
    use taskwheel_model::DatabaseNumber;

    /// Plain SQL comes from whatever SQLite its writer has: an old one must find no function it does not know.
    #[test]
    fn the_schema_needs_no_new_sqlite() {
        let sql = include_str!("migrations/0001_tasks.sql");
        for newer in ["octet_length(", "subsec", "concat(", "CHECK (json_valid("] {
            assert!(!sql.contains(newer), "{newer} is newer than SQLite 3.37, or means something else there");
        }
    }

    #[test]
    fn twenty_that_open_a_new_file_at_once_migrate_it_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tasks.db");
        let number = DatabaseNumber::new(3).unwrap();
        std::thread::scope(|scope| {
            let opening: Vec<_> = (0..20).map(|_| scope.spawn(|| connect_all(&path, number, true).map(drop))).collect();
            for opened in opening {
                opened.join().unwrap().unwrap();
            }
        });
        let (writer, _) = connect_all(&path, number, true).unwrap();
        let version: i32 = writer.query_row("SELECT version FROM taskwheel_schema", [], |row| row.get(0)).unwrap();
        assert_eq!(version, super::MIGRATIONS.len() as i32);
        writer.execute("INSERT INTO task (type) VALUES ('mail')", []).unwrap();
        assert_eq!(writer.last_insert_rowid(), number.first_id().0);
        assert!(connect_all(&path, DatabaseNumber::default(), true).is_err(), "a database keeps its number");
    }
}
