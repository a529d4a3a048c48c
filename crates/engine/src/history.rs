//! History: finished tasks and runs that are past their retention are removed, and so are old answers to idempotent calls.
//!
//! The authority is the store: what is finished, and since when, by the database's clock. It goes in small transactions with
//! pauses between them, so that live work is never held up, and whatever one engine or one failure leaves is found the next
//! time by any of them.

use crate::{Inner, rest};
use std::sync::Arc;
use std::time::Duration;
use taskwheel_store::{Result, Retention};
use tokio::sync::watch;

/// How often it looks, at least.
const EVERY_MAX: Duration = Duration::from_secs(60);
/// How often it looks, at most.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// A task is kept longer than it was asked to by this part of the time.
const LATE_SHARE: u32 = 10;
/// The pause between two chunks.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn run(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    let every = every(&inner.options.retention, inner.options.keep_runs_ms);
    loop {
        let pause = match purge_chunk(&inner).await {
            Ok(0) => every,
            Ok(purged) => {
                tracing::debug!(purged, "what is past its retention is gone");
                PAUSE
            }
            Err(error) => {
                tracing::warn!(%error, "history could not be purged; it is tried again");
                every
            }
        };
        if !rest(pause, &mut stopped).await {
            return;
        }
    }
}

/// How often to look: often where tasks are kept for seconds, and not more than needed where they are kept for days.
fn every(retention: &Retention, keep_runs_ms: Option<i64>) -> Duration {
    let Retention { success_ms, failure_ms, manually_processed_ms, cancelled_ms } = *retention;
    let shortest =
        [success_ms, failure_ms, manually_processed_ms, cancelled_ms, keep_runs_ms].into_iter().flatten().min();
    let kept = shortest.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    kept.map_or(EVERY_MAX, |kept| (kept / LATE_SHARE).clamp(EVERY_MIN, EVERY_MAX))
}

async fn purge_chunk(inner: &Inner) -> Result<u64> {
    let mut forgotten = inner.store.forget_answers().await?;
    if let Some(keep_ms) = inner.options.keep_runs_ms {
        forgotten += inner.store.purge_runs(keep_ms).await?;
    }
    if inner.options.retention == Retention::default() {
        return Ok(forgotten);
    }
    let ids = inner.store.outlived(inner.options.retention).await?;
    let purged = if ids.is_empty() { 0 } else { inner.store.purge(ids).await? };
    Ok(forgotten + purged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_seconds_is_looked_for_every_second() {
        let keep = |ms| Retention { success_ms: Some(ms), failure_ms: Some(86_400_000), ..Retention::default() };
        assert_eq!(every(&Retention::default(), None), EVERY_MAX);
        assert_eq!(every(&keep(0), None), EVERY_MIN);
        assert_eq!(every(&keep(100_000), None), Duration::from_secs(10));
        assert_eq!(every(&keep(7 * 86_400_000), None), EVERY_MAX);
    }
}
