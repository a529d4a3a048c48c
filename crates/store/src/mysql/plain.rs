//! Plain statements, and statements that are put together for one call.
//!
//! Where there are few of a kind they are prepared, and kept so. Where every call has another, it is sent as text, with its values in it.
//! It could be prepared and closed again, but nothing answers a close, and the driver leaves Nagle's algorithm on: the next statement
//! would wait 40 ms for the other side's acknowledgement.

use super::rows::json;
use super::{fault, unique_fault};
use crate::options::Dialect;
use crate::plain::{self, Cell, Kind, Plain, PlainRow};
use crate::search::Value;
use crate::session::Attempted;
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Executor, MySql, Row};
use std::fmt::Write;

fn query(statement: &Plain) -> Query<'static, MySql, MySqlArguments> {
    let query = sqlx::query(AssertSqlSafe(statement.sql(Dialect::Mysql)));
    statement.values.iter().fold(query, |query, value| match value {
        plain::Value::One(Cell::Number(number)) => query.bind(*number),
        plain::Value::One(Cell::Text(text)) => query.bind(text.clone()),
        plain::Value::One(Cell::Flag(flag)) => query.bind(*flag),
        plain::Value::Rows(rows) => query.bind(json(rows)),
    })
}

pub(super) async fn execute(connection: &mut MySqlConnection, statement: &Plain) -> Attempted<u64> {
    query(statement).execute(connection).await.map(|done| done.rows_affected()).map_err(unique_fault)
}

pub(super) async fn rows(
    connection: &mut MySqlConnection,
    statement: &Plain,
    kinds: &[Kind],
) -> Attempted<Vec<PlainRow>> {
    let rows = query(statement).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| cells(row, kinds).map(PlainRow::new).map_err(fault)).collect()
}

fn cells(row: &MySqlRow, kinds: &[Kind]) -> sqlx::Result<Vec<Cell>> {
    let cell = |(place, kind): (usize, &Kind)| match kind {
        Kind::Number => row.try_get(place).map(Cell::Number),
        Kind::Text => row.try_get(place).map(Cell::Text),
        Kind::Flag => row.try_get(place).map(Cell::Flag),
    };
    kinds.iter().enumerate().map(cell).collect()
}

/// A statement, with `?` for each of its values.
#[derive(Clone, Debug, Default)]
pub(super) struct Built {
    pub(super) text: String,
    pub(super) values: Vec<Value>,
}

impl Built {
    pub(super) fn new(text: &str) -> Built {
        Built { text: text.to_owned(), values: Vec::new() }
    }

    pub(super) fn push(&mut self, part: &str) -> &mut Built {
        self.text.push_str(part);
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Built {
        self.value(Value::Text(text.to_owned()))
    }

    pub(super) fn number(&mut self, number: i64) -> &mut Built {
        self.value(Value::Number(number))
    }

    fn value(&mut self, value: Value) -> &mut Built {
        self.values.push(value);
        self.push("?")
    }

    /// Prepared, and kept so.
    pub(super) fn prepared(self) -> Query<'static, MySql, MySqlArguments> {
        self.values.into_iter().fold(sqlx::query(AssertSqlSafe(self.text)), |query, value| match value {
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
        })
    }

    /// Reads rows by the statement as text.
    pub(super) async fn read_once(self, connection: &mut MySqlConnection) -> Attempted<Vec<MySqlRow>> {
        connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(self.with_values()))).await.map_err(fault)
    }

    /// The statement with its values in it.
    fn with_values(&self) -> String {
        let mut parts = self.text.split('?');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (value, part) in self.values.iter().zip(parts) {
            match value {
                Value::Text(value) => push_text(&mut text, value),
                Value::Number(number) => push_number(&mut text, *number),
            }
            text.push_str(part);
        }
        text
    }
}

/// Writes a text into a statement: between quotes where nothing in it could be taken for more than a letter, and as hexadecimal
/// digits otherwise.
pub(super) fn push_text(sql: &mut String, text: &str) {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'\'' | b'\\')) {
        sql.push('\'');
        sql.push_str(text);
        sql.push('\'');
        return;
    }
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    sql.push_str("_utf8mb4 X'");
    for byte in text.bytes() {
        sql.push(DIGITS[usize::from(byte >> 4)].into());
        sql.push(DIGITS[usize::from(byte & 15)].into());
    }
    sql.push('\'');
}

/// Writes a number into a statement.
pub(super) fn push_number(sql: &mut String, number: i64) {
    // Writing to a string cannot fail.
    let _ = match number {
        // The least number has no literal: without its sign it is too large.
        i64::MIN => write!(sql, "(-{} - 1)", i64::MAX),
        number if number < 0 => write!(sql, "({number})"),
        number => write!(sql, "{number}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_value_can_be_taken_for_sql() {
        let mut built = Built::new("SELECT ");
        built
            .text("a'?é")
            .push(", ")
            .text(r"\")
            .push(", ")
            .text("{\"a?\": 1}")
            .push(", ")
            .number(-5)
            .push(", ")
            .number(i64::MIN)
            .push(" LIMIT 1");
        let text =
            "SELECT _utf8mb4 X'61273fc3a9', _utf8mb4 X'5c', '{\"a?\": 1}', (-5), (-9223372036854775807 - 1) LIMIT 1";
        assert_eq!(built.with_values(), text);
    }
}
