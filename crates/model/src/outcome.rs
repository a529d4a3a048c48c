//! How an execution ends.

/// How an execution ended, by the word of its worker or of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Done, no callback.
    Success,
    /// Done, callback as the type says.
    Completed,
    /// Gone wrong: try again by policy.
    Error,
    /// Gone wrong for good: do not try again.
    Failure,
    /// Not now: try again later, without counting an error.
    Retry,
    /// Given back: the attempt does not count.
    Release,
    /// Its time limit ran out.
    Timeout,
    /// Its worker went silent.
    Lost,
    /// It was cancelled while it ran.
    Cancelled,
}

impl Outcome {
    /// All outcomes, in the order of their codes.
    pub const ALL: [Outcome; 9] = [
        Outcome::Success,
        Outcome::Completed,
        Outcome::Error,
        Outcome::Failure,
        Outcome::Retry,
        Outcome::Release,
        Outcome::Timeout,
        Outcome::Lost,
        Outcome::Cancelled,
    ];

    /// The number that stands for this outcome in the tables. Stored: never change one.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16 + 1
    }

    /// The outcome a stored number stands for.
    #[must_use]
    pub fn from_code(code: i16) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| outcome.code() == code)
    }

    /// The word for this outcome.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Completed => "completed",
            Outcome::Error => "error",
            Outcome::Failure => "failure",
            Outcome::Retry => "retry",
            Outcome::Release => "release",
            Outcome::Timeout => "timeout",
            Outcome::Lost => "lost",
            Outcome::Cancelled => "cancelled",
        }
    }

    /// Whether a worker may report this outcome; the others are found by the clocks or made by people.
    #[must_use]
    pub const fn is_reportable(self) -> bool {
        !matches!(self, Outcome::Timeout | Outcome::Lost | Outcome::Cancelled)
    }

    /// Whether the error that a task shows may be of an execution that ended so; otherwise it is of an earlier one.
    #[must_use]
    pub const fn has_error(self) -> bool {
        !matches!(self, Outcome::Success | Outcome::Completed | Outcome::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_back_and_words_differ() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(usize::try_from(outcome.code()), Ok(index + 1));
            assert_eq!(Outcome::from_code(outcome.code()), Some(outcome));
        }
        let words: std::collections::HashSet<_> = Outcome::ALL.iter().map(|outcome| outcome.word()).collect();
        assert_eq!(words.len(), Outcome::ALL.len());
        assert_eq!(Outcome::from_code(0), None);
    }
}
