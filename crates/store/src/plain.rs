//! Plain statements: SQL that every database understands. They are written once, in the verbs, instead of once for each dialect.
//!
//! Their tables have numbers, texts and flags and nothing else. A statement has `?` for each value. Where it takes many rows, it gets
//! them as one value, a table `n`; where it locks what it reads, it says so apart: there the databases differ, and only there.

use crate::StoreError;
use crate::options::Dialect;
use crate::session::Attempted;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use taskwheel_model::{TaskId, Time};

/// A statement with its values.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    text: Cow<'static, str>,
    pub(crate) values: Vec<Value>,
    lock: Option<Lock>,
    columns: &'static [Column],
    /// Of the columns, so many are the key by which rows are updated.
    keys: usize,
}

/// What a statement gets for one `?`, or for its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    One(Cell),
    Rows(Vec<Row>),
}

/// A row that goes in: a cell for each column.
pub(crate) type Row = Vec<Cell>;

/// A statement for each of several rows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowByRow<'s> {
    pub(crate) sql: String,
    /// Its first values, the same for all rows.
    pub(crate) same: &'s [Value],
    /// Its other values: the columns of each row.
    pub(crate) rows: &'s [Row],
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

/// Sets columns of the rows that have a key, each by a row that is given. So many of the columns, the first, are the key. The
/// transaction has them locked, by themselves or by what they belong to.
pub(crate) fn update(table: &'static str, keys: usize, columns: &'static [Column], rows: Vec<Row>) -> Plain {
    let mut statement = Plain { keys, columns, ..plain(UPDATE) }.and(table);
    statement.values.push(Value::Rows(rows));
    statement
}

/// The columns of rows that are ids and nothing else.
pub(crate) const IDS: &[Column] = &[("id", Kind::Number)];

/// Such rows.
pub(crate) fn ids(ids: impl IntoIterator<Item = i64>) -> Vec<Row> {
    ids.into_iter().map(|id| vec![id.into()]).collect()
}

/// A row of these values.
macro_rules! row {
    ($($value:expr),+ $(,)?) => {
        vec![$($crate::plain::Cell::from($value)),+]
    };
}
pub(crate) use row;

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
        self.values.push(Value::One(value.into()));
        self
    }

    /// Goes on with rows that have these columns, as a table `n`.
    pub(crate) fn rows(self, columns: &'static [Column], rows: Vec<Row>) -> Plain {
        let mut statement = Plain { columns, ..self }.and(ROWS);
        statement.values.push(Value::Rows(rows));
        statement
    }

    /// The columns of the rows that it takes.
    pub(crate) fn columns(&self) -> &'static [Column] {
        self.columns
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
        self.text.contains("{rows} JOIN")
    }

    /// Where it takes rows and they go in one by one.
    pub(crate) fn row_by_row(&self) -> Option<RowByRow<'_>> {
        let (Value::Rows(rows), same) = self.values.split_last()? else { return None };
        Some(RowByRow { sql: self.sql_of_a_row(), same, rows })
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
        let text = self.unnumbered(dialect);
        if dialect == Dialect::Postgres { numbered(&text) } else { text }
    }

    fn unnumbered(&self, dialect: Dialect) -> String {
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
        text.replace(ROWS, &table_of(self.columns, dialect))
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
            // Each row is looked up by itself, whatever the planner believes of the table, and met where it lies: it is locked.
            Dialect::Postgres => {
                let (on, set) = (equal(keys, "x.", " AND "), equal(rest, "", ", "));
                format!(
                    "UPDATE {table} SET {set} FROM (SELECT n.*, x.lies_at FROM {ROWS} CROSS JOIN LATERAL \
                     (SELECT x.ctid AS lies_at FROM {table} x WHERE {on} OFFSET 0) x OFFSET 0) n WHERE {table}.ctid = n.lies_at"
                )
            }
            Dialect::Sqlite => {
                let (on, set) = (equal(keys, &format!("{table}."), " AND "), equal(rest, "", ", "));
                format!("UPDATE {table} SET {set} FROM {ROWS} WHERE {on}")
            }
        }
    }
}

/// Several statements as one, which PostgreSQL can: all of them see what was there before.
pub(crate) fn joined(statements: &[Plain]) -> String {
    let Some((last, others)) = statements.split_last() else { return String::new() };
    let other = |(place, other): (usize, &Plain)| format!("s{place} AS ({})", other.unnumbered(Dialect::Postgres));
    let others: Vec<_> = others.iter().enumerate().map(other).collect();
    let with = if others.is_empty() { String::new() } else { format!("WITH {} ", others.join(", ")) };
    numbered(&(with + &last.unnumbered(Dialect::Postgres)))
}

/// A table `n` made of rows: of an array for each column on PostgreSQL, of a JSON array of arrays on the others.
fn table_of(columns: &[Column], dialect: Dialect) -> String {
    let column = |(place, (name, kind)): (usize, &Column)| match (dialect, kind) {
        (Dialect::Sqlite, _) => format!("value ->> {place} AS {name}"),
        (Dialect::Postgres, Kind::Text) => "?::text[]".to_owned(),
        (Dialect::Postgres, _) => "?::bigint[]".to_owned(),
        (Dialect::Mysql, Kind::Text) => format!("{name} LONGTEXT PATH '$[{place}]'"),
        (Dialect::Mysql, _) => format!("{name} BIGINT PATH '$[{place}]'"),
    };
    let list = columns.iter().enumerate().map(column).collect::<Vec<_>>().join(", ");
    match dialect {
        Dialect::Sqlite => format!("(SELECT {list} FROM json_each(?)) n"),
        Dialect::Postgres => {
            let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
            format!("unnest({list}) AS n({})", names.join(", "))
        }
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
    /// Of a column of texts.
    pub(crate) fn as_text(&self) -> Option<String> {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(_) | Cell::Flag(_) => unreachable!("a row has a text for each column of texts"),
        }
    }

    /// Of a column of numbers.
    pub(crate) fn as_number(&self) -> Option<i64> {
        match self {
            Cell::Number(number) => *number,
            Cell::Flag(flag) => Some(i64::from(*flag)),
            Cell::Text(_) => unreachable!("a row has a number for each column of numbers"),
        }
    }
}

/// As JSON, where a database takes rows so.
impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Number(number) => number.serialize(serializer),
            Cell::Text(text) => text.serialize(serializer),
            Cell::Flag(flag) => flag.serialize(serializer),
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

impl From<Time> for Cell {
    fn from(time: Time) -> Cell {
        time.0.into()
    }
}

impl From<Option<Time>> for Cell {
    fn from(time: Option<Time>) -> Cell {
        time.map(|time| time.0).into()
    }
}

impl From<TaskId> for Cell {
    fn from(id: TaskId) -> Cell {
        id.0.into()
    }
}

impl From<Option<TaskId>> for Cell {
    fn from(id: Option<TaskId>) -> Cell {
        id.map(|id| id.0).into()
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

    #[test]
    fn places_are_numbered_from_left_to_right() {
        let sql = |text| plain(text).sql(Dialect::Postgres);
        assert_eq!(sql("SELECT ? FROM a WHERE b = ?"), "SELECT $1 FROM a WHERE b = $2");
        assert_eq!(sql("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn rows_and_locks_are_what_each_database_has() {
        const COLUMNS: &[Column] = &[("id", Kind::Number), ("name", Kind::Text)];
        let find = plain("SELECT a.id FROM ").rows(COLUMNS, Vec::new()).and(" JOIN a ON a.id = n.id AND a.b = ?");
        assert_eq!(
            find.lock_free("a").sql(Dialect::Postgres),
            "SELECT a.id FROM unnest($1::bigint[], $2::text[]) AS n(id, name) JOIN a ON a.id = n.id AND a.b = $3 \
             FOR UPDATE OF a SKIP LOCKED"
        );
        let set = update("a", 1, COLUMNS, Vec::new());
        assert_eq!(
            set.sql(Dialect::Mysql),
            "UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', name LONGTEXT PATH '$[1]')) n \
             STRAIGHT_JOIN a x ON x.id = n.id SET x.name = n.name"
        );
    }

    #[test]
    fn several_statements_are_one_with_their_values_in_order() {
        let statements = [plain("DELETE FROM a WHERE b = ? AND c = ?"), plain("INSERT INTO d (e) VALUES (?)")];
        assert_eq!(
            joined(&statements),
            "WITH s0 AS (DELETE FROM a WHERE b = $1 AND c = $2) INSERT INTO d (e) VALUES ($3)"
        );
        assert_eq!(joined(&statements[1..]), "INSERT INTO d (e) VALUES ($1)");
    }

    #[test]
    fn rows_go_in_one_by_one_with_their_columns_in_order() {
        const COLUMNS: &[Column] = &[("id", Kind::Number), ("name", Kind::Text)];
        let rows = vec![row![7_i64, "a"], row![8_i64, None::<String>]];
        let set = update("a", 1, COLUMNS, rows.clone());
        let sql = "UPDATE a SET name = ?2 WHERE id = ?1".to_owned();
        assert_eq!(set.row_by_row(), Some(RowByRow { sql, same: &[], rows: &rows }));
        let insert = plain("INSERT INTO a (b, id, name) SELECT ?, n.id, n.name FROM ").bind(1_i64);
        let sql = "INSERT INTO a (b, id, name) SELECT ?, n.id, n.name FROM (SELECT ? AS id, ? AS name) n".to_owned();
        let same = &[Value::One(1_i64.into())];
        assert_eq!(insert.rows(COLUMNS, rows.clone()).row_by_row(), Some(RowByRow { sql, same, rows: &rows }));
        assert_eq!(plain("SELECT 1").row_by_row(), None);
    }
}
