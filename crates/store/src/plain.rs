//! Plain statements: SQL that every database understands, over small tables that no hot path touches. They are written once,
//! in the verbs, instead of once for each dialect.
//!
//! Such tables have numbers, texts and flags and nothing else, and their statements no more than `?` for each value.

use crate::StoreError;
use crate::session::Attempted;
use std::borrow::Cow;

/// A statement with its values.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    pub(crate) text: Cow<'static, str>,
    pub(crate) values: Vec<Cell>,
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
    Plain { text: Cow::Borrowed(text), values: Vec::new() }
}

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

    /// The statement with numbered places, `$1` and so on.
    pub(crate) fn numbered(&self) -> String {
        let mut parts = self.text.split('?');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (place, part) in parts.enumerate() {
            text.push_str(&format!("${}{part}", place + 1));
        }
        text
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

    #[test]
    fn places_are_numbered_from_left_to_right() {
        assert_eq!(plain("SELECT ? FROM a WHERE b = ?").numbered(), "SELECT $1 FROM a WHERE b = $2");
        assert_eq!(plain("SELECT 1").numbered(), "SELECT 1");
    }
}
