//! Plain statements. Rows are written one by one: to take them out of JSON would be a third of the work.

use crate::options::Dialect;
use crate::plain::{Cell, Kind, Plain, PlainRow, RowByRow, Value};
use crate::session::Attempted;
use rusqlite::types::{ToSql, ToSqlOutput};
use rusqlite::{Connection, Row, params_from_iter};

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Cell::Number(number) => number.to_sql(),
            Cell::Text(text) => text.to_sql(),
            Cell::Flag(flag) => flag.to_sql(),
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Value::One(cell) => cell.to_sql(),
            Value::Rows(rows) => Ok(serde_json::to_string(rows).expect("rows are plain JSON").into()),
        }
    }
}

pub(super) fn execute(connection: &Connection, statement: &Plain) -> Attempted<u64> {
    let Some(RowByRow { sql, same, rows }) = statement.row_by_row() else {
        let mut prepared = connection.prepare_cached(&statement.sql(Dialect::Sqlite))?;
        return Ok(prepared.execute(params_from_iter(&statement.values))? as u64);
    };
    let mut prepared = connection.prepare_cached(&sql)?;
    let mut changed = 0;
    for row in rows {
        let same = same.iter().map(|value| value as &dyn ToSql);
        changed += prepared.execute(params_from_iter(same.chain(row.iter().map(|cell| cell as &dyn ToSql))))? as u64;
    }
    Ok(changed)
}

pub(super) fn rows(connection: &Connection, statement: &Plain, kinds: &[Kind]) -> Attempted<Vec<PlainRow>> {
    let mut prepared = connection.prepare_cached(&statement.sql(Dialect::Sqlite))?;
    let rows = prepared.query_map(params_from_iter(&statement.values), |row| cells(row, kinds).map(PlainRow::new))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn cells(row: &Row<'_>, kinds: &[Kind]) -> rusqlite::Result<Vec<Cell>> {
    let cell = |(place, kind): (usize, &Kind)| match kind {
        Kind::Number => row.get(place).map(Cell::Number),
        Kind::Text => row.get(place).map(Cell::Text),
        Kind::Flag => row.get(place).map(Cell::Flag),
    };
    kinds.iter().enumerate().map(cell).collect()
}
