//! Health: whether the loops get answers when they look into the store.
//!
//! Each loop has a state of its own, so that one that succeeds does not speak for one that fails. A database that hangs says
//! nothing: a look that has been under way for long counts as failed while it lasts.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use taskwheel_store::Result;
use tokio::time::Instant;

/// A look that takes longer counts as failed.
const LOOK_TIME_MAX: Duration = Duration::from_secs(5);

/// The loops that look into the store all the time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loop {
    Due,
    Rescue,
    Schedules,
}

/// How the looks of the loops went.
#[derive(Default)]
pub(crate) struct Health([Mutex<Looks>; 3]);

/// How the looks of a loop go.
#[derive(Clone, Copy, Default)]
struct Looks {
    /// Since when one is under way.
    under_way: Option<Instant>,
    /// The last one failed.
    has_failed: bool,
}

impl Health {
    /// Looks into the store for a loop, and notes how that goes.
    pub(crate) async fn look<T>(&self, of: Loop, look: impl Future<Output = Result<T>>) -> Result<T> {
        self.looks(of).under_way = Some(Instant::now());
        let result = look.await;
        let has_failed = result.is_err();
        let before = std::mem::replace(&mut *self.looks(of), Looks { under_way: None, has_failed });
        match &result {
            Err(error) if !before.has_failed => {
                tracing::error!(%error, what = ?of, "the store does not answer; it is tried again");
            }
            Ok(_) if before.has_failed => tracing::info!(what = ?of, "the store answers again"),
            _ => {}
        }
        result
    }

    /// A loop has nothing to look for: that its last look failed says nothing any more.
    pub(crate) fn rests(&self, of: Loop) {
        *self.looks(of) = Looks::default();
    }

    /// Whether the last look of each loop succeeded, and none hangs.
    pub(crate) fn is_good(&self) -> bool {
        [Loop::Due, Loop::Rescue, Loop::Schedules].into_iter().all(|of| {
            let looks = *self.looks(of);
            !looks.has_failed && looks.under_way.is_none_or(|since| since.elapsed() < LOOK_TIME_MAX)
        })
    }

    fn looks(&self, of: Loop) -> MutexGuard<'_, Looks> {
        self.0[of as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskwheel_store::StoreError;

    #[tokio::test]
    async fn a_loop_that_succeeds_does_not_speak_for_one_that_fails() {
        let health = Health::default();
        assert!(health.is_good());
        let fails = async || health.look(Loop::Due, async { Err::<(), _>(StoreError::Database("away".into())) }).await;
        fails().await.unwrap_err();
        health.look(Loop::Rescue, async { Ok(()) }).await.unwrap();
        assert!(!health.is_good());
        health.look(Loop::Due, async { Ok(()) }).await.unwrap();
        assert!(health.is_good());
        fails().await.unwrap_err();
        health.rests(Loop::Due);
        assert!(health.is_good(), "who looks no more has not failed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_hangs_counts_as_failed() {
        let health = Health::default();
        let hangs = health.look(Loop::Schedules, std::future::pending::<Result<()>>());
        let asks = async {
            tokio::time::sleep(LOOK_TIME_MAX / 2).await;
            assert!(health.is_good(), "it may take its time");
            tokio::time::sleep(LOOK_TIME_MAX).await;
            assert!(!health.is_good());
        };
        tokio::select! {
            biased;
            _ = hangs => panic!("it hangs"),
            () = asks => {}
        }
    }
}
