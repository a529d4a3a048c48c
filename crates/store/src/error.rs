//! What can go wrong in the store, by what the caller can do about it.

use taskwheel_model::FieldError;
use thiserror::Error;

/// An error of the store.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// The input was refused; nothing was changed.
    #[error("item {index}: {}", list(.errors))]
    Invalid {
        /// Which item of the batch, counted from 0.
        index: usize,
        /// Every field that is wrong, and why.
        errors: Vec<FieldError>,
    },
    /// The database cannot be reached, or is too busy, for now. Nothing was changed.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The connection broke while the transaction was being committed: it may have happened or not.
    #[error("the connection broke during the commit, so that its outcome is unknown: {0}")]
    OutcomeUnknown(String),
    /// The schema in the database does not fit this program.
    #[error("{0}")]
    Schema(String),
    /// The database URL or an option is wrong.
    #[error("{0}")]
    Configuration(String),
    /// The database refused a statement of ours: a fault to be reported.
    #[error("the database refused a statement: {0}")]
    Database(String),
}

fn list(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The store's results.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

impl StoreError {
    /// One field of the only item was refused.
    #[must_use]
    pub fn field(error: FieldError) -> StoreError {
        StoreError::Invalid { index: 0, errors: vec![error] }
    }

    /// Whether the same call may go through later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Unavailable(_) | StoreError::OutcomeUnknown(_))
    }
}

impl From<FieldError> for StoreError {
    fn from(error: FieldError) -> StoreError {
        StoreError::field(error)
    }
}
