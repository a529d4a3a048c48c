//! What was read from the database, and how long it is believed.

use crate::App;
use crate::problem::Answer;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After so long one call has it read again on the side; all go by what is known meanwhile.
const READ_EVERY: Duration = Duration::from_secs(1);
/// So old it is not believed any more: every call reads it first.
const BELIEVED_MAX: Duration = Duration::from_millis(1_500);

/// The age of what is known. Nothing is known by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Age {
    read_at: Option<Instant>,
    asked_at: Option<Instant>,
}

/// What a call has to do before it goes by what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    Refresh,
    Read,
}

impl Age {
    pub(crate) fn need(&mut self) -> Need {
        if self.is_within(READ_EVERY) {
            return Need::Nothing;
        }
        if !self.is_within(BELIEVED_MAX) {
            return Need::Read;
        }
        if self.asked_at.is_some_and(|at| at.elapsed() < READ_EVERY) {
            return Need::Nothing;
        }
        self.asked_at = Some(Instant::now());
        Need::Refresh
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

impl Need {
    /// Does it. Where a refresh fails nobody is told: a later call reads, and is.
    pub(crate) async fn meet<R, F>(self, app: &Arc<App>, read: R) -> Answer<()>
    where
        R: FnOnce(Arc<App>) -> F,
        F: Future<Output = Answer<()>> + Send + 'static,
    {
        match self {
            Need::Nothing => Ok(()),
            Need::Refresh => {
                tokio::spawn(read(app.clone()));
                Ok(())
            }
            Need::Read => read(app.clone()).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(ms: u64) -> Option<Instant> {
        Instant::now().checked_sub(Duration::from_millis(ms))
    }

    #[test]
    fn one_call_has_what_becomes_old_read_and_all_go_by_what_is_known() {
        let mut age = Age { read_at: ago(1_100), asked_at: ago(1_100) };
        assert_eq!(age.need(), Need::Refresh);
        assert_eq!(age.need(), Need::Nothing, "another call is at it");
        age.read(Instant::now());
        assert_eq!(age.need(), Need::Nothing);
    }

    #[test]
    fn what_is_too_old_is_not_believed_whoever_was_to_read_it() {
        let mut age = Age { read_at: ago(1_600), asked_at: ago(10) };
        assert_eq!((age.need(), age.need()), (Need::Read, Need::Read));
        assert_eq!(Age::default().need(), Need::Read, "nothing is known at first");
    }
}
