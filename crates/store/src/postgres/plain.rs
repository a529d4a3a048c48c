//! Plain statements.

use super::fault;
use crate::options::Dialect;
use crate::plain::{Cell, Kind, Plain, PlainRow};
use crate::session::Attempted;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row};

fn query(statement: &Plain) -> Query<'static, Postgres, PgArguments> {
    let query = sqlx::query(AssertSqlSafe(statement.sql(Dialect::Postgres))).persistent(!statement.joins_rows());
    statement.values.iter().fold(query, |query, value| match value {
        Cell::Number(number) => query.bind(*number),
        Cell::Text(text) => query.bind(text.clone()),
        Cell::Flag(flag) => query.bind(*flag),
    })
}

pub(super) async fn execute(connection: &mut PgConnection, statement: &Plain) -> Attempted<u64> {
    query(statement).execute(connection).await.map(|done| done.rows_affected()).map_err(fault)
}

pub(super) async fn rows(connection: &mut PgConnection, statement: &Plain, kinds: &[Kind]) -> Attempted<Vec<PlainRow>> {
    let rows = query(statement).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| cells(row, kinds).map(PlainRow::new).map_err(fault)).collect()
}

fn cells(row: &PgRow, kinds: &[Kind]) -> sqlx::Result<Vec<Cell>> {
    let cell = |(place, kind): (usize, &Kind)| match kind {
        Kind::Number => row.try_get(place).map(Cell::Number),
        Kind::Text => row.try_get(place).map(Cell::Text),
        Kind::Flag => row.try_get(place).map(Cell::Flag),
    };
    kinds.iter().enumerate().map(cell).collect()
}
