//! What was read from the database, and how long it is believed.

use std::time::{Duration, Instant};

/// After so long it is read again, by one call; the others go by what is known.
const READ_EVERY: Duration = Duration::from_secs(1);
/// So old it is not believed any more, whoever was to read it: a caller that goes away reads nothing.
const BELIEVED_MAX: Duration = Duration::from_millis(1_500);

/// The age of what is known. Nothing is known by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Age {
    read_at: Option<Instant>,
    asked_at: Option<Instant>,
}

impl Age {
    /// Whether this call must read it.
    pub(crate) fn must_read(&mut self) -> bool {
        let is_asked = self.asked_at.is_some_and(|at| at.elapsed() < READ_EVERY);
        let is_known = self.is_within(READ_EVERY) || self.is_within(BELIEVED_MAX) && is_asked;
        if !is_known {
            self.asked_at = Some(Instant::now());
        }
        !is_known
    }

    /// Whether it was read within such a time.
    pub(crate) fn is_within(&self, time: Duration) -> bool {
        self.read_at.is_some_and(|at| at.elapsed() < time)
    }

    /// It was read, by a call that began then.
    pub(crate) fn read(&mut self, at: Instant) {
        self.read_at = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(ms: u64) -> Option<Instant> {
        Instant::now().checked_sub(Duration::from_millis(ms))
    }

    #[test]
    fn one_call_reads_what_has_become_old_and_others_go_by_what_is_known() {
        let mut age = Age { read_at: ago(1_100), asked_at: ago(1_100) };
        assert!(age.must_read());
        assert!(!age.must_read(), "another call is at it");
        age.read(Instant::now());
        assert!(!age.must_read());
    }

    #[test]
    fn what_is_too_old_is_not_believed_whoever_was_to_read_it() {
        let mut age = Age { read_at: ago(1_600), asked_at: ago(10) };
        assert!(age.must_read() && age.must_read());
        assert!(Age::default().must_read(), "nothing is known at first");
    }
}
