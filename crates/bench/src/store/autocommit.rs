//! What submit stands beside: connections that each insert one row a commit.

use super::submit::CALLERS;
use super::work::task;
use crate::common::database::Database;
use crate::floor::{self, Result};
use sqlx::{Connection, MySqlConnection, PgConnection};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taskwheel_model::NewTask;
use taskwheel_store::Dialect;
use tokio::sync::Barrier;

/// What the connections insert into.
#[derive(Clone, Copy, Debug)]
pub(super) enum Table {
    /// The store's own: each row is a whole submit by plain SQL.
    Task,
    /// The floor's live table, which has one index.
    Floor,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Task => "task",
            Table::Floor => "floor_live",
        }
    }

    async fn create(self, database: &Database) -> Result<()> {
        match (self, database.dialect) {
            (Table::Task, _) => database.open(true).await.map(drop),
            (Table::Floor, Dialect::Sqlite) => database.sql().await?.run(floor::sqlite::SCHEMA).await,
            (Table::Floor, Dialect::Postgres) => database.sql().await?.run(floor::postgres::SCHEMA).await,
            (Table::Floor, Dialect::Mysql) => database.sql().await?.run(floor::mysql::LIVE).await,
        }
    }
}

/// How many rows all connections together insert per second into an empty table.
pub(super) async fn rate(server: &str, table: Table, duration: Duration) -> Result<f64> {
    let database = Database::create(server, "autocommit").await?;
    table.create(&database).await?;
    let (inserted, elapsed) = match database.dialect {
        Dialect::Sqlite => sqlite(&database.url, table, duration)?,
        Dialect::Postgres | Dialect::Mysql => servers(&database, table, duration).await?,
    };
    let found = database.sql().await?.number(&format!("SELECT COUNT(*) FROM {}", table.name())).await?;
    if u64::try_from(found)? != inserted {
        return Err(format!("inserted {inserted} rows, found {found}").into());
    }
    database.remove().await?;
    Ok(inserted as f64 / elapsed.as_secs_f64())
}

/// A connection to a server.
enum Connected {
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

impl Connected {
    async fn insert(&mut self, table: Table, task: &NewTask) -> Result<()> {
        macro_rules! insert {
            ($connection:expr, $sql:expr) => {
                sqlx::query($sql)
                    .bind(&task.task_type)
                    .bind(&task.key)
                    .bind(&task.payload)
                    .execute($connection)
                    .await
                    .map(drop)?
            };
        }
        match (self, table) {
            (Connected::Postgres(connection), Table::Task) => {
                insert!(connection, "INSERT INTO task (type, task_key, payload) VALUES ($1, $2, $3::text::json)");
            }
            (Connected::Postgres(connection), Table::Floor) => {
                insert!(
                    connection,
                    "INSERT INTO floor_live (type, task_key, payload) VALUES ($1, $2, $3::text::jsonb)"
                );
            }
            (Connected::Mysql(connection), Table::Task) => {
                insert!(connection, "INSERT INTO task (type, task_key, payload) VALUES (?, ?, ?)");
            }
            (Connected::Mysql(connection), Table::Floor) => {
                insert!(connection, "INSERT INTO floor_live (type, task_key, payload) VALUES (?, ?, ?)");
            }
        }
        Ok(())
    }
}

async fn servers(database: &Database, table: Table, duration: Duration) -> Result<(u64, Duration)> {
    let start = Arc::new(Barrier::new(usize::try_from(CALLERS)? + 1));
    let mut running = Vec::new();
    for number in 0..CALLERS {
        let connected = match database.dialect {
            Dialect::Mysql => Connected::Mysql(MySqlConnection::connect(&database.url).await?),
            _ => Connected::Postgres(PgConnection::connect(&database.url).await?),
        };
        running.push(tokio::spawn(inserter(connected, table, number, duration, start.clone())));
    }
    start.wait().await;
    let (clock, mut inserted) = (Instant::now(), 0);
    for inserter in running {
        inserted += inserter.await??;
    }
    Ok((inserted, clock.elapsed()))
}

async fn inserter(
    mut connected: Connected,
    table: Table,
    number: u64,
    duration: Duration,
    start: Arc<Barrier>,
) -> Result<u64> {
    start.wait().await;
    let (clock, mut inserted) = (Instant::now(), 0);
    while clock.elapsed() < duration {
        connected.insert(table, &task(number)).await?;
        inserted += 1;
    }
    Ok(inserted)
}

/// One thread for each connection, because SQLite blocks.
fn sqlite(url: &str, table: Table, duration: Duration) -> Result<(u64, Duration)> {
    let path = url.trim_start_matches("sqlite://").to_owned();
    let clock = Instant::now();
    let threads: Vec<_> = (0..CALLERS)
        .map(|number| {
            let path = path.clone();
            std::thread::spawn(move || sqlite_inserter(&path, table, number, clock + duration))
        })
        .collect();
    let mut inserted = 0;
    for thread in threads {
        inserted += thread.join().map_err(|_| "an inserter panicked")??;
    }
    Ok((inserted, clock.elapsed()))
}

fn sqlite_inserter(path: &str, table: Table, number: u64, until: Instant) -> Result<u64> {
    let connection = rusqlite::Connection::open(path)?;
    // Waiting is what an autocommit connection does here; giving up would lose the row.
    connection.busy_timeout(Duration::from_secs(60))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let task = task(number);
    let sql = format!("INSERT INTO {} (type, task_key, payload) VALUES (?1, ?2, ?3)", table.name());
    let mut statement = connection.prepare(&sql)?;
    let mut inserted = 0;
    while Instant::now() < until {
        statement.execute((&task.task_type, &task.key, &task.payload))?;
        inserted += 1;
    }
    Ok(inserted)
}
