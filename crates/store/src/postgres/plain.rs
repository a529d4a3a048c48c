//! Plain statements.

use super::fault;
use crate::options::Dialect;
use crate::plain::{Cell, Kind, Plain, PlainRow, Row as RowIn, Value, joined};
use crate::session::Attempted;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row};

type Bound = Query<'static, Postgres, PgArguments>;

fn query(statement: &Plain) -> Bound {
    bind(sqlx::query(AssertSqlSafe(statement.sql(Dialect::Postgres))).persistent(!statement.joins_rows()), statement)
}

fn bind(query: Bound, statement: &Plain) -> Bound {
    statement.values.iter().fold(query, |query, value| match value {
        Value::One(Cell::Number(number)) => query.bind(*number),
        Value::One(Cell::Text(text)) => query.bind(text.clone()),
        Value::One(Cell::Flag(flag)) => query.bind(*flag),
        Value::Rows(rows) => {
            let columns = statement.columns().iter().enumerate();
            columns.fold(query, |query, (place, (_, kind))| bind_column(query, *kind, rows, place))
        }
    })
}

/// A column of rows, as an array.
fn bind_column(query: Bound, kind: Kind, rows: &[RowIn], place: usize) -> Bound {
    let cells = rows.iter().map(|row| &row[place]);
    match kind {
        Kind::Text => query.bind(cells.map(Cell::as_text).collect::<Vec<_>>()),
        Kind::Number | Kind::Flag => query.bind(cells.map(Cell::as_number).collect::<Vec<_>>()),
    }
}

/// Runs several statements as one: a round trip, whatever their number.
pub(super) async fn execute_all(connection: &mut PgConnection, statements: &[Plain]) -> Attempted<()> {
    let query = sqlx::query(AssertSqlSafe(joined(statements))).persistent(!statements.iter().any(Plain::joins_rows));
    statements.iter().fold(query, bind).execute(connection).await.map(drop).map_err(fault)
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
