//! A database of its own for each test.

use super::{Dialect, Raw};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};
use std::env;
use tempfile::TempDir;
use uuid::Uuid;

/// A fresh, empty database that only one test knows.
pub(crate) struct TestDatabase {
    pub(crate) dialect: Dialect,
    pub(crate) url: String,
    name: String,
    /// Where an SQLite file is; gone when dropped.
    _directory: Option<TempDir>,
}

impl TestDatabase {
    pub(crate) async fn create(dialect: Dialect) -> TestDatabase {
        let name = format!("taskwheel_{}", Uuid::new_v4().simple());
        let mut directory = None;
        let url = match dialect {
            Dialect::Sqlite => {
                let made = tempfile::tempdir().expect("a temporary directory");
                let url = format!("sqlite://{}", made.path().join("tasks.db").display());
                directory = Some(made);
                url
            }
            Dialect::Postgres | Dialect::Mysql => with_name(&server(dialect), &name),
        };
        let database = TestDatabase { dialect, url, name, _directory: directory };
        database.administer("CREATE DATABASE").await;
        database
    }

    /// A connection of the test's own, past the store.
    pub(crate) async fn raw(&self) -> Raw {
        Raw::connect(self.dialect, &self.url).await
    }

    /// Removes the database. To be called after the store is gone.
    pub(crate) async fn remove(&self) {
        self.administer("DROP DATABASE").await;
    }

    async fn administer(&self, verb: &str) {
        let server = match self.dialect {
            Dialect::Sqlite => return,
            Dialect::Postgres | Dialect::Mysql => server(self.dialect),
        };
        let done = match self.dialect {
            Dialect::Mysql => {
                let sql = AssertSqlSafe(format!("{verb} {}", self.name));
                let mut connection = MySqlConnection::connect(&server).await.expect("the MySQL test server answers");
                connection.execute(sql).await.map(drop)
            }
            _ => {
                let mut connection = PgConnection::connect(&server).await.expect("the PostgreSQL test server answers");
                let sql = |how: &str| AssertSqlSafe(format!("{verb} {}{how}", self.name));
                if verb.starts_with("DROP") {
                    // Force ends connections that the dropped store or the test is still closing. Where autovacuum is at work it
                    // is refused; the plain form sends that away, and then force goes through.
                    match connection.execute(sql(" WITH (FORCE)")).await {
                        Ok(_) => Ok(()),
                        Err(_) => match connection.execute(sql("")).await {
                            Ok(_) => Ok(()),
                            Err(_) => connection.execute(sql(" WITH (FORCE)")).await.map(drop),
                        },
                    }
                } else {
                    connection.execute(sql(" TEMPLATE template0")).await.map(drop)
                }
            }
        };
        done.unwrap_or_else(|error| panic!("{verb} {}: {error}", self.name));
    }
}

/// The URL of the server to make databases on.
fn server(dialect: Dialect) -> String {
    let variable = match dialect {
        Dialect::Postgres => "TASKWHEEL_TEST_POSTGRES",
        Dialect::Mysql => "TASKWHEEL_TEST_MYSQL",
        Dialect::Sqlite => unreachable!("SQLite has no server"),
    };
    env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run the tests with ./test, which starts servers"))
}

/// The same server, another database.
fn with_name(url: &str, name: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let (server, _) = address.rsplit_once('/').expect("a database URL names a database");
    query.map_or_else(|| format!("{server}/{name}"), |query| format!("{server}/{name}?{query}"))
}
