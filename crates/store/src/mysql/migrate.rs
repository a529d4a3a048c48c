//! Brings the schema up to date.
//!
//! DDL commits by itself here. So all of it runs on one connection that holds a lock, each statement can be run again, and
//! the version is written last: twenty processes that start at once do it once, and after one that was killed in the
//! middle the next one completes it.

use super::{SETTINGS, fault, number};
use crate::{Options, Result, StoreError};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row};

/// The migrations, oldest first: their SQL, and the oldest schema version that a program must know to run on what they
/// leave behind.
const MIGRATIONS: &[(&str, i32)] = &[(SCHEMA, 1)];

/// The schema as the first migration makes it.
pub(super) const SCHEMA: &str = include_str!("migrations/0001_tasks.sql");

/// Locks are the whole server's, and their names are short.
const LOCK: &str = "SELECT CAST(GET_LOCK(CONCAT('taskwheel.', MD5(DATABASE())), 300) AS SIGNED)";

/// The server's error where there is no such table.
const NO_TABLE: u16 = 1146;
/// The server's error where the binary log is on and creating a trigger takes more privileges than the user has.
const NEEDS_PRIVILEGE: u16 = 1419;

pub(super) async fn migrate(connect: &MySqlConnectOptions, options: &Options) -> Result<()> {
    // A connection of its own: the lock is bound to it, and goes with it whatever happens.
    let mut connection = connect.connect().await.map_err(unavailable)?;
    connection.execute(SETTINGS).await.map_err(unavailable)?;
    let server = Server::of(&mut connection).await?;
    let locked = connection.fetch_one(LOCK).await.and_then(|row| row.try_get::<Option<i64>, _>(0));
    if locked.map_err(unavailable)? != Some(1) {
        return Err(StoreError::Unavailable("another process has been changing the schema for minutes".into()));
    }
    let done = run(&mut connection, &server, options).await;
    connection.close().await.map_err(unavailable)?;
    done
}

async fn run(connection: &mut MySqlConnection, server: &Server, options: &Options) -> Result<()> {
    let number = options.number;
    let known = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    let stored = stored(connection).await?;
    crate::verb::check_migration(stored.map_or(0, |(version, ..)| version), known, options.makes_schema)?;
    // Where it is there, a user who may make no tables can go on.
    if stored.is_none() {
        connection
            .execute(
                "CREATE TABLE IF NOT EXISTS taskwheel_schema (version INT NOT NULL, oldest_program INT NOT NULL,
                 database_number INT NOT NULL, only_row BOOLEAN NOT NULL DEFAULT TRUE PRIMARY KEY CHECK (only_row = TRUE))
                 ENGINE = InnoDB",
            )
            .await
            .map_err(unavailable)?;
    }
    let version = match stored {
        None => 0,
        Some((version, oldest, stored)) => {
            crate::verb::check_schema(known, version, oldest, stored, number)?;
            version
        }
    };
    for (index, (sql, oldest_program)) in MIGRATIONS.iter().enumerate().skip(usize::try_from(version).unwrap_or(0)) {
        execute(connection, sql.replace("{bin}", server.collation)).await?;
        if index == 0 {
            let first = number.first_id().0;
            execute(connection, format!("ALTER TABLE task AUTO_INCREMENT = {first}")).await?;
            execute(connection, format!("UPDATE task_sequence SET next_id = {first} WHERE next_id < {first}")).await?;
        }
        let (version, number) = (index + 1, number.get());
        execute(
            connection,
            format!(
                "INSERT INTO taskwheel_schema (version, oldest_program, database_number)
                 VALUES ({version}, {oldest_program}, {number})
                 ON DUPLICATE KEY UPDATE version = {version}, oldest_program = {oldest_program}"
            ),
        )
        .await?;
    }
    Ok(())
}

/// The version of the schema, the oldest program for it, and the database's number, where there is one.
async fn stored(connection: &mut MySqlConnection) -> Result<Option<(i32, i32, i32)>> {
    let find = sqlx::query("SELECT version, oldest_program, database_number FROM taskwheel_schema");
    match find.fetch_optional(connection).await {
        Ok(row) => Ok(row.map(|row| (row.get(0), row.get(1), row.get(2)))),
        Err(error) if number(&error) == NO_TABLE => Ok(None),
        Err(error) => Err(unavailable(error)),
    }
}

async fn execute(connection: &mut MySqlConnection, sql: String) -> Result<()> {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.map(drop).map_err(unavailable)
}

/// What differs between the servers.
struct Server {
    /// Compares bytes, and does not ignore trailing spaces: the tenants `a` and `a ` are two.
    collation: &'static str,
}

impl Server {
    async fn of(connection: &mut MySqlConnection) -> Result<Server> {
        let row = connection.fetch_one("SELECT VERSION()").await.map_err(unavailable)?;
        Server::named(&row.try_get::<String, _>(0).map_err(unavailable)?)
    }

    fn named(version: &str) -> Result<Server> {
        let maria = version.contains("MariaDB");
        let mut parts = version.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        let mut part = || parts.next().unwrap_or(0_u32);
        let numbers = (part(), part(), part());
        let oldest = if maria { (10, 6, 0) } else { (8, 0, 17) };
        if numbers < oldest {
            let message =
                format!("MySQL 8.0.17 or MariaDB 10.6 is the oldest that taskwheel runs on; this is {version}");
            return Err(StoreError::Configuration(message));
        }
        Ok(Server { collation: if maria { "utf8mb4_nopad_bin" } else { "utf8mb4_0900_bin" } })
    }
}

fn unavailable(error: sqlx::Error) -> StoreError {
    if number(&error) == NEEDS_PRIVILEGE {
        return StoreError::Configuration(
            "the server writes a binary log, and then it takes a privilege to create the trigger that makes a plain \
             INSERT INTO task a whole submit: set log_bin_trust_function_creators = 1 on the server, or start \
             taskwheel once as a user with the SUPER privilege"
                .into(),
        );
    }
    fault(error).into_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_too_old_are_named() {
        for good in ["10.11.19-MariaDB-0+deb12u1", "10.6.0-MariaDB", "8.0.17", "8.4.3-log", "11.4.2-MariaDB-ubu2404"] {
            assert!(Server::named(good).is_ok(), "{good}");
        }
        for bad in ["10.5.27-MariaDB", "8.0.16", "5.7.44-log", "mystery"] {
            assert!(Server::named(bad).is_err(), "{bad}");
        }
        assert_eq!(Server::named("8.0.36").map(|server| server.collation).ok(), Some("utf8mb4_0900_bin"));
    }
}
