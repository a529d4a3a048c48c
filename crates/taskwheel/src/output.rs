//! What people see: lines, tables and complaints.
//!
//! Nothing that came from elsewhere reaches a terminal with its control characters.

use crate::api::ApiError;
use anyhow::Result;
use comfy_table::{Table, presets};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};

/// A longer cell would tear its table apart.
const CELL_CHARS_MAX: usize = 60;

/// Something with named fields as the server showed it, each as it was written.
pub(crate) type Fields = BTreeMap<String, Box<RawValue>>;

/// Writes a line to stdout.
pub(crate) fn print(line: &(impl Display + ?Sized)) -> Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

/// Writes a line to stderr. When nobody hears it, that is no reason to stop.
pub(crate) fn say(line: &(impl Display + ?Sized)) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says what went wrong, and what to do next.
pub(crate) fn complain(error: &anyhow::Error) {
    say(&format_args!("error: {}", on_one_line(&format!("{error:#}"))));
    if let Some(error) = error.downcast_ref::<ApiError>() {
        say(&error.advice());
    }
}

/// The fields of a value that was made here.
pub(crate) fn fields(value: &Value) -> Result<Fields> {
    Ok(serde_json::from_str(&value.to_string())?)
}

/// A field as text: strings without quotes, everything else as JSON, nothing for null.
pub(crate) fn text(fields: &Fields, name: &str) -> String {
    let json = fields.get(name).map_or("null", |value| value.get());
    match json {
        "null" => String::new(),
        _ => serde_json::from_str(json).unwrap_or_else(|_| json.to_owned()),
    }
}

/// How a task stands, in a line.
pub(crate) fn standing(task: &Fields) -> String {
    let (id, status) = (text(task, "id"), text(task, "status"));
    match status.as_str() {
        "New" | "Error" => format!("task {id} is {status}, due {}", text(task, "run_at")),
        _ => format!("task {id} is {status}"),
    }
}

/// A table of these fields, one row for each.
pub(crate) fn table(columns: &[&str], rows: &[Fields]) -> String {
    let mut table = plain();
    table.set_header(columns.iter().map(|column| column.to_uppercase()));
    table.add_rows(rows.iter().map(|row| columns.iter().map(|column| cell(&text(row, column)))));
    lines(table)
}

/// The same, with a last column of these texts, however long they are.
pub(crate) fn table_with(columns: &[&str], rows: &[Fields], last: &str, text_of: impl Fn(&Fields) -> String) -> String {
    let mut table = plain();
    table.set_header(columns.iter().chain([&last]).map(|column| column.to_uppercase()));
    for row in rows {
        let cells = columns.iter().map(|column| cell(&text(row, column)));
        table.add_row(cells.chain([on_one_line(&text_of(row))]));
    }
    lines(table)
}

/// JSON in words: `action=cancel filter=(type=mail) matched=2`.
pub(crate) fn words(value: &Value) -> String {
    let pair = |(name, value): (&String, &Value)| match value {
        Value::Object(_) => format!("{name}=({})", words(value)),
        _ => format!("{name}={}", words(value)),
    };
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => fields.iter().map(pair).collect::<Vec<_>>().join(" "),
        _ => value.to_string(),
    }
}

/// One thing with all of its fields, these first, without those that are null.
pub(crate) fn record(first: &[&str], fields: &Fields) -> String {
    let mut table = plain();
    let others = fields.keys().map(String::as_str).filter(|name| !first.contains(name));
    for name in first.iter().copied().chain(others) {
        let value = text(fields, name);
        if !value.is_empty() {
            table.add_row([name, &printable(&value)]);
        }
    }
    lines(table)
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// A table's text. Two spaces between columns, none at the start of a line.
fn lines(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// A text that fits into a cell.
pub(crate) fn cell(text: &str) -> String {
    let line = on_one_line(text);
    if line.chars().count() <= CELL_CHARS_MAX {
        return line;
    }
    let start: String = line.chars().take(CELL_CHARS_MAX - 1).collect();
    format!("{start}…")
}

fn on_one_line(text: &str) -> String {
    text.trim_end().replace(char::is_control, " ")
}

fn printable(text: &str) -> String {
    let is_harmful = |letter: char| letter.is_control() && letter != '\n';
    text.trim_end().replace(is_harmful, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Fields {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn fields_are_shown_as_they_were_written() {
        let fields = fields(r#"{"key":"a\"b","payload":{"n": 12345678901234567890123},"host":null}"#);
        assert_eq!(text(&fields, "key"), "a\"b");
        assert_eq!(text(&fields, "payload"), r#"{"n": 12345678901234567890123}"#);
        assert_eq!(text(&fields, "host"), "");
        assert_eq!(text(&fields, "missing"), "");
    }

    #[test]
    fn cells_have_no_control_characters_and_end() {
        assert_eq!(cell("two\nlines\u{1b}[2J"), "two lines [2J");
        let long = cell(&"é".repeat(100));
        assert_eq!(long.chars().count(), CELL_CHARS_MAX);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn words_say_what_json_says() {
        let detail = serde_json::json!({"action": "cancel", "changed": 1, "filter": {"key": null, "type": "mail"}});
        assert_eq!(words(&detail), "action=cancel changed=1 filter=(key= type=mail)");
        assert_eq!(words(&Value::Null), "");
    }

    #[test]
    fn a_last_column_is_as_long_as_its_text() {
        let text = "x".repeat(200);
        let shown = table_with(&["id"], &[fields(r#"{"id":7}"#)], "detail", |_| text.clone());
        assert!(shown.starts_with("ID") && shown.contains("DETAIL") && shown.contains(&text), "{shown}");
    }

    #[test]
    fn a_record_has_the_named_fields_first_and_no_nulls() {
        let shown = record(&["id", "status"], &fields(r#"{"a":1,"status":"New","id":7,"z":null}"#));
        let names: Vec<&str> = shown.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(names, ["id", "status", "a"]);
    }
}
