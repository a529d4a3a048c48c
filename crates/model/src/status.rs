//! The nine statuses of a task.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The status of a task, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Waiting for its time or a worker; no attempt of this round has gone wrong.
    New,
    /// A worker has it.
    Executing,
    /// Done.
    Success,
    /// Done; its callback is still owed.
    Completed,
    /// Waiting for its next attempt after an error.
    Error,
    /// Gone wrong for good.
    Failure,
    /// Gone wrong, and a person is asked to look at it.
    Pending,
    /// A person has dealt with it.
    ManuallyProcessed,
    /// Called off.
    Cancelled,
}

impl Status {
    /// All statuses, in the order of their codes.
    pub const ALL: [Status; 9] = [
        Status::New,
        Status::Executing,
        Status::Success,
        Status::Completed,
        Status::Error,
        Status::Failure,
        Status::Pending,
        Status::ManuallyProcessed,
        Status::Cancelled,
    ];

    /// The number that stands for this status in the tables. Stored: never change one.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16 + 1
    }

    /// The status a stored number stands for.
    #[must_use]
    pub fn from_code(code: i16) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.code() == code)
    }

    /// The word for this status, in the API and in the view.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Status::New => "New",
            Status::Executing => "Executing",
            Status::Success => "Success",
            Status::Completed => "Completed",
            Status::Error => "Error",
            Status::Failure => "Failure",
            Status::Pending => "Pending",
            Status::ManuallyProcessed => "ManuallyProcessed",
            Status::Cancelled => "Cancelled",
        }
    }

    /// Whether the task can still change by itself or by a worker, or waits for a person.
    #[must_use]
    pub const fn is_live(self) -> bool {
        !self.is_finished()
    }

    /// Whether the task has ended. Only an explicit retry brings it back.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(self, Status::Success | Status::Failure | Status::ManuallyProcessed | Status::Cancelled)
    }

    /// Whether the task waits to be claimed.
    #[must_use]
    pub const fn is_waiting(self) -> bool {
        matches!(self, Status::New | Status::Error)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Status {
    type Err = ();

    fn from_str(word: &str) -> Result<Status, ()> {
        Status::ALL.into_iter().find(|status| status.word() == word).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_words_lead_back() {
        for (index, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(usize::try_from(status.code()), Ok(index + 1));
            assert_eq!(Status::from_code(status.code()), Some(status));
            assert_eq!(status.word().parse(), Ok(status));
            assert_ne!(status.is_live(), status.is_finished());
        }
        assert_eq!(Status::from_code(0), None);
        assert_eq!(Status::from_code(10), None);
    }
}
