//! What can go wrong, by what the caller can do about it. A server and an embedded engine give the same errors.

use serde::Deserialize;
use std::fmt;
use thiserror::Error;

/// Why a call failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The input was refused, and nothing was changed: correct it.
    #[error("{}", join(.0))]
    Invalid(Vec<BadField>),
    /// There is no such task or type.
    #[error("{0}")]
    NotFound(String),
    /// The task's status does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// The token is missing or does not allow it.
    #[error("{0}")]
    Denied(String),
    /// Nobody answers for now, or is too busy, and nothing was changed: try again later.
    #[error("{0}")]
    Unavailable(String),
    /// The connection broke or nobody answered when the call was under way, or the database refused a statement of it: it
    /// may have happened or not.
    #[error("it is not known whether it happened: {0}")]
    OutcomeUnknown(String),
    /// Something is wrong that a caller cannot correct: a fault, or no Taskwheel server at the address.
    #[error("{0}")]
    Unexpected(String),
}

/// The results of calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A field that was refused, and why.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BadField {
    /// Which task of a batch, counted from 0.
    pub index: Option<usize>,
    /// The field's name.
    pub field: String,
    /// What is wrong with it, in words for a person.
    pub message: String,
}

impl fmt::Display for BadField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "item {index}, {}: {}", self.field, self.message),
            None => write!(f, "{}: {}", self.field, self.message),
        }
    }
}

fn join(fields: &[BadField]) -> String {
    fields.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl BadField {
    pub(crate) fn of(index: Option<usize>, error: taskwheel_model::FieldError) -> BadField {
        BadField { index, field: error.field, message: error.message }
    }
}

impl Error {
    pub(crate) fn field(field: &str, message: impl Into<String>) -> Error {
        Error::Invalid(vec![BadField { index: None, field: field.to_owned(), message: message.into() }])
    }

    /// Whether the same call may go through later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Unavailable(_) | Error::OutcomeUnknown(_))
    }
}
