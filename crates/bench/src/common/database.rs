//! Databases of our own, made beside the one that was given, and plain SQL on them.

use crate::floor::{Result, State};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use taskwheel_store::{Dialect, Options, Store};

/// The tables that work on tasks changes.
const TABLES: &str =
    "task, task_waiting, task_running, task_unique, task_history, task_attempt, task_type, task_worker";
/// What a load leaves to the background on MariaDB (purge, flushing) gets as long here as in the floor.
const MYSQL_REST: Duration = Duration::from_secs(2);

static FILES: AtomicU64 = AtomicU64::new(0);

/// A database that is made for a measurement.
pub(crate) struct Database {
    pub(crate) dialect: Dialect,
    /// For the store and for plain connections.
    pub(crate) url: String,
    server: String,
    name: String,
}

impl Database {
    /// Makes an empty database `taskwheel_bench_…` on the server of a URL, or an empty SQLite file beside the one it names.
    /// What an earlier run left under that name is removed.
    pub(crate) async fn create(server: &str, purpose: &str) -> Result<Database> {
        Database::make(server, purpose, "").await
    }

    /// Makes another with all that this one has, where the database can do that at once. Nobody may be connected to this one, and what was
    /// written must be in its file.
    pub(crate) async fn copy(&self, purpose: &str) -> Result<Database> {
        let copy = Database::make(&self.server, purpose, &format!(" TEMPLATE {}", self.name)).await?;
        if self.dialect == Dialect::Sqlite {
            std::fs::copy(sqlite_path(&self.url)?, sqlite_path(&copy.url)?)?;
        }
        Ok(copy)
    }

    async fn make(server: &str, purpose: &str, template: &str) -> Result<Database> {
        let dialect = Dialect::of(server)?;
        let name = format!("taskwheel_bench_{purpose}");
        let url = match dialect {
            // Never the same file twice: a store that is still closing removes the log of its file by name.
            Dialect::Sqlite => format!("{server}.{name}_{}", FILES.fetch_add(1, Relaxed)),
            Dialect::Postgres | Dialect::Mysql => with_name(server, &name)?,
        };
        let database = Database { dialect, url, server: server.to_owned(), name };
        database.remove().await?;
        if dialect != Dialect::Sqlite {
            let mut server = Sql::connect(dialect, server).await?;
            server.run(&format!("CREATE DATABASE {}{template}", database.name)).await?;
        }
        Ok(database)
    }

    /// A database that somebody else has made.
    pub(crate) fn at(url: &str) -> Result<Database> {
        let (server, name) = (url.to_owned(), String::new());
        Ok(Database { dialect: Dialect::of(url)?, url: url.to_owned(), server, name })
    }

    /// The database server and its version, as the store sees them.
    pub(crate) async fn version(server: &str) -> Result<String> {
        let database = Database::create(server, "version").await?;
        let version = database.open(true).await?.inspect().await?.database;
        database.remove().await?;
        Ok(version)
    }

    /// Removes the database. A store on it must have been dropped, but may still be closing its connections.
    pub(crate) async fn remove(&self) -> Result<()> {
        let drop = format!("DROP DATABASE IF EXISTS {}", self.name);
        match self.dialect {
            Dialect::Sqlite => {
                let path = sqlite_path(&self.url)?;
                for suffix in ["", "-wal", "-shm", ".lock"] {
                    // It may not exist, which is what is wanted.
                    let _ = std::fs::remove_file(format!("{path}{suffix}"));
                }
                Ok(())
            }
            Dialect::Mysql => Sql::connect(self.dialect, &self.server).await?.run(&drop).await,
            Dialect::Postgres => {
                let mut server = Sql::connect(self.dialect, &self.server).await?;
                match server.run(&format!("{drop} WITH (FORCE)")).await {
                    Ok(()) => Ok(()),
                    // An ordinary role may not end a vacuum that is under way; without FORCE the server waits for it.
                    Err(_) => server.run(&drop).await,
                }
            }
        }
    }

    /// Opens the store on it.
    pub(crate) async fn open(&self, keep_success: bool) -> Result<Arc<dyn Store>> {
        Ok(taskwheel_store::open(Options { keep_success, ..Options::new(&self.url) }).await?)
    }

    /// A plain connection to it.
    pub(crate) async fn sql(&self) -> Result<Sql> {
        Sql::connect(self.dialect, &self.url).await
    }

    /// Brings the store's tables into a state, as the floor does with its own.
    pub(crate) async fn bring_into(&self, state: State) -> Result<()> {
        // Marks of the history are there on PostgreSQL alone.
        let marks = if self.dialect == Dialect::Postgres { ", task_history_mark" } else { "" };
        self.sql().await?.bring_into(state, &format!("{TABLES}{marks}")).await
    }
}

/// The same server, another database.
fn with_name(url: &str, name: &str) -> Result<String> {
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let (server, _) = address.rsplit_once('/').ok_or("the URL must name a database")?;
    Ok(query.map_or_else(|| format!("{server}/{name}"), |query| format!("{server}/{name}?{query}")))
}

fn sqlite_path(url: &str) -> Result<&str> {
    Ok(url.strip_prefix("sqlite://").ok_or("an SQLite URL starts with sqlite://")?)
}

/// A plain connection.
pub(crate) enum Sql {
    Sqlite(rusqlite::Connection),
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

impl Sql {
    async fn connect(dialect: Dialect, url: &str) -> Result<Sql> {
        Ok(match dialect {
            Dialect::Sqlite => {
                let connection = rusqlite::Connection::open(sqlite_path(url)?)?;
                connection.busy_timeout(Duration::from_secs(60))?;
                Sql::Sqlite(connection)
            }
            Dialect::Postgres => Sql::Postgres(PgConnection::connect(url).await?),
            Dialect::Mysql => Sql::Mysql(MySqlConnection::connect(url).await?),
        })
    }

    /// Runs statements.
    pub(crate) async fn run(&mut self, sql: &str) -> Result<()> {
        let statement = || sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match self {
            Sql::Sqlite(connection) => connection.execute_batch(sql)?,
            Sql::Postgres(connection) => {
                connection.execute(statement()).await?;
            }
            Sql::Mysql(connection) => {
                connection.execute(statement()).await?;
            }
        }
        Ok(())
    }

    /// The only value of the only row.
    pub(crate) async fn number(&mut self, sql: &str) -> Result<i64> {
        let statement = || sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        Ok(match self {
            Sql::Sqlite(connection) => connection.query_row(sql, [], |row| row.get(0))?,
            Sql::Postgres(connection) => connection.fetch_one(statement()).await?.try_get(0)?,
            Sql::Mysql(connection) => connection.fetch_one(statement()).await?.try_get(0)?,
        })
    }

    /// Brings tables into a state.
    pub(crate) async fn bring_into(&mut self, state: State, tables: &str) -> Result<()> {
        let vacuumed = state == State::Vacuumed;
        match self {
            Sql::Sqlite(_) if vacuumed => self.run("ANALYZE; PRAGMA wal_checkpoint(TRUNCATE)").await,
            Sql::Mysql(_) if vacuumed => {
                self.run(&format!("ANALYZE TABLE {tables}")).await?;
                tokio::time::sleep(MYSQL_REST).await;
                Ok(())
            }
            Sql::Sqlite(_) | Sql::Mysql(_) => Ok(()),
            Sql::Postgres(_) => {
                if vacuumed {
                    self.run(&format!("VACUUM ANALYZE {tables}")).await?;
                }
                // An ordinary role may be refused this, and then the drain does without.
                let _ = self.run("CHECKPOINT").await;
                Ok(())
            }
        }
    }
}
