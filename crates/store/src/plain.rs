//! Plain statements: SQL that every database understands. They are written once, in the verbs, instead of once for each dialect.
//!
//! Their tables have numbers, texts and flags and nothing else. A statement has `?` for each value. Where it takes many rows, it gets
//! them as one value, a table `n`; where it locks what it reads, it says so apart: there the databases differ, and only there.

use crate::StoreError;
use crate::options::Dialect;
use crate::session::Attempted;
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

/// A statement with its values.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    pub(crate) text: Cow<'static, str>,
    pub(crate) values: Vec<Cell>,
    lock: Option<Lock>,
    columns: &'static [Column],
    /// Of the columns, so many are the key by which rows are updated.
    keys: usize,
}

/// A statement for each of several rows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowByRow<'s> {
    pub(crate) sql: String,
    /// Its first values, the same for all rows.
    pub(crate) same: &'s [Cell],
    /// Its other values: the columns of each row.
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A column of the rows that a statement takes.
pub(crate) type Column = (&'static str, Kind);

/// Which of a statement's tables it locks, and how.
#[derive(Clone, Copy, Debug)]
struct Lock {
    table: &'static str,
    skips_locked: bool,
}

/// A value that goes in or comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    Number(Option<i64>),
    Text(Option<String>),
    Flag(bool),
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
    Text,
    Flag,
}

/// Starts a statement.
pub(crate) fn plain(text: &'static str) -> Plain {
    Plain { text: Cow::Borrowed(text), values: Vec::new(), lock: None, columns: &[], keys: 0 }
}

/// Sets columns of the rows that have a key, each by a row that is given. So many of the columns, the first, are the key.
pub(crate) fn update<T: Serialize>(table: &'static str, keys: usize, columns: &'static [Column], rows: &[T]) -> Plain {
    let statement = Plain { keys, columns, ..plain(UPDATE) }.and(table);
    statement.bind(serde_json::to_string(rows).expect("rows are plain JSON"))
}

/// Stands for the rows that a statement takes.
const ROWS: &str = "{rows}";
/// Begins a statement that sets columns by rows.
const UPDATE: &str = "UPDATE ";

impl Plain {
    /// Goes on with more of the statement.
    pub(crate) fn and(mut self, text: &'static str) -> Plain {
        self.text.to_mut().push_str(text);
        self
    }

    /// Gives the next value.
    pub(crate) fn bind(mut self, value: impl Into<Cell>) -> Plain {
        self.values.push(value.into());
        self
    }

    /// Goes on with rows, each an object with these columns, as a table `n`.
    pub(crate) fn rows<T: Serialize>(self, columns: &'static [Column], rows: &[T]) -> Plain {
        Plain { columns, ..self }.and(ROWS).bind(serde_json::to_string(rows).expect("rows are plain JSON"))
    }

    /// Locks the rows of a table that it reads.
    pub(crate) fn lock(self, table: &'static str) -> Plain {
        Plain { lock: Some(Lock { table, skips_locked: false }), ..self }
    }

    /// Locks the rows of a table that it reads, and leaves out those that others have locked.
    pub(crate) fn lock_free(self, table: &'static str) -> Plain {
        Plain { lock: Some(Lock { table, skips_locked: true }), ..self }
    }

    /// Whether it joins rows that it takes with a table: then how it is best run depends on how many there are.
    pub(crate) fn joins_rows(&self) -> bool {
        self.keys > 0 || self.text.contains("{rows} JOIN")
    }

    /// Where it takes rows and they go in one by one.
    pub(crate) fn row_by_row(&self) -> Option<RowByRow<'_>> {
        let (Cell::Text(Some(rows)), same) = self.values.split_last().filter(|_| !self.columns.is_empty())? else {
            return None;
        };
        let rows: Vec<HashMap<Cow<'_, str>, Value>> = serde_json::from_str(rows).expect("rows are plain JSON");
        let cells = |mut row: HashMap<_, Value>| {
            self.columns.iter().map(|(name, _)| row.remove(*name).map_or(Cell::Number(None), Cell::of)).collect()
        };
        Some(RowByRow { sql: self.sql_of_a_row(), same, rows: rows.into_iter().map(cells).collect() })
    }

    fn sql_of_a_row(&self) -> String {
        match self.text.strip_prefix(UPDATE) {
            Some(table) if self.keys > 0 => {
                let columns = self.columns.iter().enumerate();
                let equal: Vec<_> = columns.map(|(place, (name, _))| format!("{name} = ?{}", place + 1)).collect();
                let (keys, rest) = equal.split_at(self.keys);
                format!("UPDATE {table} SET {} WHERE {}", rest.join(", "), keys.join(" AND "))
            }
            _ => {
                let columns: Vec<_> = self.columns.iter().map(|(name, _)| format!("? AS {name}")).collect();
                self.text.replace(ROWS, &format!("(SELECT {}) n", columns.join(", ")))
            }
        }
    }

    /// The statement as a database has it.
    pub(crate) fn sql(&self, dialect: Dialect) -> String {
        let mut text = match self.text.strip_prefix(UPDATE) {
            Some(table) if self.keys > 0 => self.update_by_rows(table, dialect),
            _ => self.text.to_string(),
        };
        if let Some(Lock { table, skips_locked }) = self.lock {
            match dialect {
                Dialect::Sqlite => {}
                Dialect::Postgres => text.push_str(&format!(" FOR UPDATE OF {table}")),
                Dialect::Mysql => text.push_str(" FOR UPDATE"),
            }
            if skips_locked && dialect != Dialect::Sqlite {
                text.push_str(" SKIP LOCKED");
            }
        }
        if dialect == Dialect::Mysql {
            // The rows are few: they lead.
            text = text.replace("{rows} JOIN", "{rows} STRAIGHT_JOIN");
        }
        let text = text.replace(ROWS, &table_of(self.columns, dialect));
        if dialect == Dialect::Postgres { numbered(&text) } else { text }
    }

    fn update_by_rows(&self, table: &str, dialect: Dialect) -> String {
        let (keys, rest) = self.columns.split_at(self.keys);
        let equal = |columns: &[Column], prefix: &str, between: &str| {
            let equal: Vec<_> = columns.iter().map(|(name, _)| format!("{prefix}{name} = n.{name}")).collect();
            equal.join(between)
        };
        match dialect {
            Dialect::Mysql => {
                let (on, set) = (equal(keys, "x.", " AND "), equal(rest, "x.", ", "));
                format!("UPDATE {ROWS} JOIN {table} x ON {on} SET {set}")
            }
            _ => {
                let (on, set) = (equal(keys, &format!("{table}."), " AND "), equal(rest, "", ", "));
                format!("UPDATE {table} SET {set} FROM {ROWS} WHERE {on}")
            }
        }
    }
}

/// A table `n` made of the objects in a JSON array.
fn table_of(columns: &[Column], dialect: Dialect) -> String {
    let column = |(name, kind): &Column| match (dialect, kind) {
        (Dialect::Sqlite, _) => format!("value ->> '$.{name}' AS {name}"),
        (Dialect::Postgres, Kind::Text) => format!("{name} text"),
        (Dialect::Postgres, _) => format!("{name} bigint"),
        (Dialect::Mysql, Kind::Text) => format!("{name} LONGTEXT PATH '$.{name}'"),
        (Dialect::Mysql, _) => format!("{name} BIGINT PATH '$.{name}'"),
    };
    let list = columns.iter().map(column).collect::<Vec<_>>().join(", ");
    match dialect {
        Dialect::Sqlite => format!("(SELECT {list} FROM json_each(?)) n"),
        Dialect::Postgres => format!("json_to_recordset(?::json) AS n({list})"),
        Dialect::Mysql => format!("JSON_TABLE(?, '$[*]' COLUMNS ({list})) n"),
    }
}

/// A statement with numbered places, `$1` and so on.
fn numbered(text: &str) -> String {
    let mut parts = text.split('?');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (place, part) in parts.enumerate() {
        text.push_str(&format!("${}{part}", place + 1));
    }
    text
}

impl Cell {
    fn of(value: Value) -> Cell {
        match value {
            Value::Null => Cell::Number(None),
            Value::Bool(flag) => Cell::Flag(flag),
            Value::Number(number) => Cell::Number(number.as_i64()),
            Value::String(text) => Cell::Text(Some(text)),
            Value::Array(_) | Value::Object(_) => Cell::Text(Some(value.to_string())),
        }
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Cell {
        Cell::Number(Some(number))
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Cell {
        Cell::Flag(flag)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Cell {
        Cell::Number(Some(i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl From<Option<i64>> for Cell {
    fn from(number: Option<i64>) -> Cell {
        Cell::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(Some(text.to_owned()))
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(Some(text))
    }
}

impl From<Option<&str>> for Cell {
    fn from(text: Option<&str>) -> Cell {
        Cell::Text(text.map(str::to_owned))
    }
}

impl From<Option<String>> for Cell {
    fn from(text: Option<String>) -> Cell {
        Cell::Text(text)
    }
}

/// A row that was read. Its columns are taken from left to right.
pub(crate) struct PlainRow(std::vec::IntoIter<Cell>);

impl PlainRow {
    pub(crate) fn new(cells: Vec<Cell>) -> PlainRow {
        PlainRow(cells.into_iter())
    }

    pub(crate) fn number(&mut self) -> Attempted<i64> {
        self.maybe_number()?.ok_or_else(unexpected)
    }

    pub(crate) fn maybe_number(&mut self) -> Attempted<Option<i64>> {
        match self.0.next() {
            Some(Cell::Number(number)) => Ok(number),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn flag(&mut self) -> Attempted<bool> {
        match self.0.next() {
            Some(Cell::Flag(flag)) => Ok(flag),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn text(&mut self) -> Attempted<String> {
        self.maybe_text()?.ok_or_else(unexpected)
    }

    pub(crate) fn maybe_text(&mut self) -> Attempted<Option<String>> {
        match self.0.next() {
            Some(Cell::Text(text)) => Ok(text),
            _ => Err(unexpected()),
        }
    }
}

fn unexpected() -> crate::session::Fault {
    StoreError::Database("a row has other columns than were asked for".into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_are_numbered_from_left_to_right() {
        let sql = |text| plain(text).sql(Dialect::Postgres);
        assert_eq!(sql("SELECT ? FROM a WHERE b = ?"), "SELECT $1 FROM a WHERE b = $2");
        assert_eq!(sql("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn rows_and_locks_are_what_each_database_has() {
        const COLUMNS: &[Column] = &[("id", Kind::Number), ("name", Kind::Text)];
        let find = plain("SELECT a.id FROM ").rows(COLUMNS, &[()]).and(" JOIN a ON a.id = n.id").lock_free("a");
        assert_eq!(
            find.sql(Dialect::Postgres),
            "SELECT a.id FROM json_to_recordset($1::json) AS n(id bigint, name text) JOIN a ON a.id = n.id \
             FOR UPDATE OF a SKIP LOCKED"
        );
        let set = update("a", 1, COLUMNS, &[()]);
        assert_eq!(
            set.sql(Dialect::Mysql),
            "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$.id', name LONGTEXT PATH '$.name')) n \
             STRAIGHT_JOIN a x ON x.id = n.id SET x.name = n.name"
        );
    }

    #[test]
    fn rows_go_in_one_by_one_with_their_columns_in_order() {
        const COLUMNS: &[Column] = &[("id", Kind::Number), ("name", Kind::Text)];
        let rows = [json!({"name": "a", "id": 7}), json!({"id": 8, "name": null})];
        let cells = vec![vec![7_i64.into(), "a".into()], vec![8_i64.into(), Cell::Number(None)]];
        let set = update("a", 1, COLUMNS, &rows);
        let sql = "UPDATE a SET name = ?2 WHERE id = ?1".to_owned();
        assert_eq!(set.row_by_row(), Some(RowByRow { sql, same: &[], rows: cells.clone() }));
        let insert = plain("INSERT INTO a (b, id, name) SELECT ?, n.id, n.name FROM ").bind(1_i64).rows(COLUMNS, &rows);
        let sql = "INSERT INTO a (b, id, name) SELECT ?, n.id, n.name FROM (SELECT ? AS id, ? AS name) n".to_owned();
        assert_eq!(insert.row_by_row(), Some(RowByRow { sql, same: &[1_i64.into()], rows: cells }));
        assert_eq!(plain("SELECT 1").row_by_row(), None);
    }
}
