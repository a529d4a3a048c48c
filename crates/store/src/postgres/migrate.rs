//! Brings the schema up to date.
//!
//! Each migration is one transaction under one lock: twenty processes that start at once do it once, and one that is
//! killed in the middle has done nothing.

use super::fault;
use crate::{Options, Result, StoreError};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};

/// The migrations, oldest first: what they are called, their SQL, and the oldest schema version that a program must know
/// to run on what they leave behind.
const MIGRATIONS: &[(&str, i32)] = &[(SCHEMA, 1)];

/// The schema as the first migration makes it.
pub(super) const SCHEMA: &str = include_str!("migrations/0001_tasks.sql");

/// Any number, as long as no other program locks it.
const LOCK: i64 = 0x7461_736b_7768_6565;

pub(super) async fn migrate(connect: &PgConnectOptions, options: &Options) -> Result<()> {
    let number = options.number;
    let mut connection = connect.connect().await.map_err(unavailable)?;
    let mut transaction = connection.begin().await.map_err(unavailable)?;
    let begin = format!("SELECT pg_advisory_xact_lock({LOCK})");
    transaction.execute(AssertSqlSafe(begin)).await.map_err(unavailable)?;
    // Where it is there, a user who may make no tables can go on.
    let find = "SELECT to_regclass(quote_ident(current_schema()) || '.taskwheel_schema') IS NOT NULL";
    let found = sqlx::query(find).fetch_one(&mut *transaction).await;
    if !found.and_then(|row| row.try_get::<bool, _>(0)).map_err(unavailable)? {
        transaction
            .execute(
                "CREATE TABLE taskwheel_schema (version integer NOT NULL, oldest_program integer NOT NULL,
                 database_number integer NOT NULL, only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row))",
            )
            .await
            .map_err(unavailable)?;
    }
    let row = sqlx::query("SELECT version, oldest_program, database_number FROM taskwheel_schema")
        .fetch_optional(&mut *transaction)
        .await
        .map_err(unavailable)?;
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    let version = match row {
        None => 0,
        Some(row) => {
            let (version, oldest, stored): (i32, i32, i32) = (row.get(0), row.get(1), row.get(2));
            crate::verb::check_schema(known, version, oldest, stored, number)?;
            version
        }
    };
    // What was created above goes with the transaction.
    crate::verb::check_migration(version, known, options.makes_schema)?;
    for (sql, oldest_program) in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute(*sql).await.map_err(unavailable)?;
        transaction
            .execute(AssertSqlSafe(format!(
                "INSERT INTO taskwheel_schema (version, oldest_program, database_number) VALUES (0, 0, {0})
                 ON CONFLICT (only_row) DO NOTHING;
                 UPDATE taskwheel_schema SET version = version + 1, oldest_program = {oldest_program}",
                number.get()
            )))
            .await
            .map_err(unavailable)?;
    }
    if version == 0 {
        let first = number.first_id().0;
        transaction
            .execute(AssertSqlSafe(format!(
                "ALTER TABLE task ALTER COLUMN id RESTART WITH {first}; UPDATE task_sequence SET next_id = {first}"
            )))
            .await
            .map_err(unavailable)?;
    }
    transaction.commit().await.map_err(unavailable)
}

fn unavailable(error: sqlx::Error) -> StoreError {
    fault(error).into_error()
}
