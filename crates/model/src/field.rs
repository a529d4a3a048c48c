//! Checks of single fields. Each answers with the field's name and what is wrong with it.

use crate::{Time, limits};
use serde::Serialize;
use thiserror::Error;

/// A field that was refused, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Error)]
#[error("{field}: {message}")]
pub struct FieldError {
    /// The field's name, as in the API.
    pub field: String,
    /// What is wrong with it, in words for a person.
    pub message: String,
}

impl FieldError {
    /// An error about a field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> FieldError {
        FieldError { field: field.into(), message: message.into() }
    }
}

/// A text with at most so many characters and without NUL, which not every database can store.
pub fn text(field: &str, value: &str, chars_max: usize) -> Result<(), FieldError> {
    if value.contains('\0') {
        return Err(FieldError::new(field, "must not contain a NUL character"));
    }
    if value.chars().count() > chars_max {
        return Err(FieldError::new(field, format!("must have at most {chars_max} characters")));
    }
    Ok(())
}

/// A text as above that is not empty.
pub fn name(field: &str, value: &str, chars_max: usize) -> Result<(), FieldError> {
    if value.is_empty() {
        return Err(FieldError::new(field, "must not be empty"));
    }
    text(field, value, chars_max)
}

/// A task type: 1 to 200 of `A-Z a-z 0-9 _ . : -`.
pub fn task_type(field: &str, value: &str) -> Result<(), FieldError> {
    name(field, value, limits::TYPE_CHARS_MAX)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    if !value.chars().all(allowed) {
        return Err(FieldError::new(field, "may only have letters, digits and the characters _ . : -"));
    }
    // In the path of a URL they mean something else.
    if matches!(value, "." | "..") {
        return Err(FieldError::new(field, "must not be . or .."));
    }
    Ok(())
}

/// How deep the brackets of a JSON text are nested.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// A JSON text of at most so many bytes.
pub fn json(field: &str, value: &str, bytes_max: usize) -> Result<(), FieldError> {
    if value.len() > bytes_max {
        return Err(FieldError::new(field, format!("must have at most {bytes_max} bytes, has {}", value.len())));
    }
    if depth(value) > limits::JSON_DEPTH_MAX {
        return Err(FieldError::new(field, format!("must not be nested deeper than {}", limits::JSON_DEPTH_MAX)));
    }
    // Escapes need the full parse: a lone surrogate is valid by syntax alone, and some databases refuse it.
    let parsed = if value.contains("\\u") {
        serde_json::from_str::<serde_json::Value>(value).map(drop)
    } else {
        serde_json::from_str::<serde::de::IgnoredAny>(value).map(drop)
    };
    parsed.map_err(|error| FieldError::new(field, format!("must be valid JSON: {error}")))
}

/// A time between 1970 and the latest one accepted.
pub fn time(field: &str, value: Time) -> Result<(), FieldError> {
    if !(0..=limits::TIME_MS_MAX).contains(&value.0) {
        return Err(FieldError::new(field, "must lie between the years 1970 and 2999"));
    }
    Ok(())
}

/// A number within bounds.
pub fn range(field: &str, value: i64, min: i64, max: i64) -> Result<(), FieldError> {
    if !(min..=max).contains(&value) {
        return Err(FieldError::new(field, format!("must be between {min} and {max}, is {value}")));
    }
    Ok(())
}

/// A number within bounds, or −1.
pub fn range_or_unlimited(field: &str, value: i64, min: i64, max: i64) -> Result<(), FieldError> {
    if value == -1 {
        return Ok(());
    }
    range(field, value, min, max).map_err(|error| FieldError::new(field, format!("{}, or -1 for none", error.message)))
}

/// Cuts a text to at most so many bytes, at a character's border, and takes out what a database cannot store.
///
/// For error texts: they come from anywhere, and none may be lost to its length or to a stray NUL.
#[must_use]
pub fn cut(value: &str, bytes_max: usize) -> String {
    let end = value.floor_char_boundary(bytes_max);
    value[..end].replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_their_field() {
        assert_eq!(name("type", "", 5).unwrap_err().field, "type");
        assert_eq!(text("key", "a\0b", 5).unwrap_err().to_string(), "key: must not contain a NUL character");
        assert!(text("key", "ééééé", 5).is_ok());
        assert!(text("key", "éééééé", 5).is_err());
        assert!(task_type("type", "mail.send:v2_x-1").is_ok());
        assert!(task_type("type", "mail send").is_err());
        assert!(task_type("type", "a@b").is_err());
        assert!(time("run_at", Time(253_402_300_799_000)).is_err(), "the year 9999");
        assert!(time("run_at", Time(-1)).is_err());
        assert!(range_or_unlimited("max_attempts", -1, 1, 9).is_ok());
        assert!(range_or_unlimited("max_attempts", 0, 1, 9).is_err());
    }

    #[test]
    fn json_is_checked_whole() {
        assert!(json("payload", r#"{"a":[1,2,{"b":"\u0000 \ud83d\ude00"}]}"#, 100).is_ok());
        assert!(json("payload", r#""\ud83d""#, 100).is_err(), "a lone surrogate");
        assert!(json("payload", "{\"a\":1", 100).is_err());
        assert!(json("payload", "{} {}", 100).is_err());
        assert!(json("payload", &format!("\"{}\"", "x".repeat(300)), 256).is_err());
    }

    #[test]
    fn cut_keeps_whole_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("a\0b", 10), "a\u{fffd}b");
    }
}
