//! Plain SQL on a connection of the test's own, as any user of the database has one.

use super::Dialect;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row};
use std::time::Duration;

/// A plain connection. Values come back as the text that the database writes them as.
pub(crate) enum Raw {
    Sqlite(rusqlite::Connection),
    Postgres(PgConnection),
    Mysql(MySqlConnection),
}

/// A row, as texts.
pub(crate) type TextRow = Vec<Option<String>>;

impl Raw {
    pub(crate) async fn connect(dialect: Dialect, url: &str) -> Raw {
        match dialect {
            Dialect::Sqlite => {
                let path = url.strip_prefix("sqlite://").expect("an SQLite URL");
                let connection = rusqlite::Connection::open(path).expect("the SQLite file opens");
                connection.busy_timeout(Duration::from_secs(10)).expect("a busy timeout can be set");
                Raw::Sqlite(connection)
            }
            Dialect::Postgres => Raw::Postgres(PgConnection::connect(url).await.expect("PostgreSQL answers")),
            Dialect::Mysql => Raw::Mysql(MySqlConnection::connect(url).await.expect("MySQL answers")),
        }
    }

    /// Runs a statement and answers how many rows it changed, or the database's words.
    pub(crate) async fn execute(&mut self, sql: &str) -> Result<u64, String> {
        match self {
            Raw::Sqlite(connection) => {
                connection.execute_batch(sql).map(|()| connection.changes()).map_err(|error| error.to_string())
            }
            Raw::Postgres(connection) => {
                let done = connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
                done.map(|done| done.rows_affected()).map_err(|error| error.to_string())
            }
            Raw::Mysql(connection) => {
                let done = connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
                done.map(|done| done.rows_affected()).map_err(|error| error.to_string())
            }
        }
    }

    /// Runs a statement that must go through.
    pub(crate) async fn run(&mut self, sql: &str) -> u64 {
        self.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) async fn rows(&mut self, sql: &str) -> Vec<TextRow> {
        let rows = match self {
            Raw::Sqlite(connection) => sqlite_rows(connection, sql).map_err(|error| error.to_string()),
            Raw::Postgres(connection) => {
                let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
                rows.and_then(|rows| rows.iter().map(texts).collect()).map_err(|error| error.to_string())
            }
            Raw::Mysql(connection) => {
                let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
                rows.and_then(|rows| rows.iter().map(texts).collect()).map_err(|error| error.to_string())
            }
        };
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The only value of the only row, as a number.
    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        let text = self.rows(sql).await[0][0].clone().expect("a number");
        text.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
    }
}

fn texts<'r, R: Row>(row: &'r R) -> sqlx::Result<TextRow>
where
    usize: sqlx::ColumnIndex<R>,
    Option<String>: sqlx::Decode<'r, R::Database>,
{
    (0..row.len()).map(|column| row.try_get_unchecked(column)).collect()
}

fn sqlite_rows(connection: &rusqlite::Connection, sql: &str) -> rusqlite::Result<Vec<TextRow>> {
    use rusqlite::types::ValueRef;
    let mut statement = connection.prepare(sql)?;
    let columns = statement.column_count();
    let text = |value: ValueRef<'_>| match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
    };
    let rows = statement.query_map([], |row| (0..columns).map(|column| row.get_ref(column).map(text)).collect())?;
    rows.collect()
}
