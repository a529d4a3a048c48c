//! History: finished tasks, runs and lines of the log of changes that are past their retention are removed, and so are old answers to
//! idempotent calls.
//!
//! The authority is the store: what is finished, and since when, by the database's clock. It goes in small transactions with
//! pauses between them, so that live work is never held up, and whatever one engine or one failure leaves is found the next
//! time by any of them.

use crate::{EngineOptions, Inner, rest};
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
    let every = every(&inner.options);
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
fn every(options: &EngineOptions) -> Duration {
    let EngineOptions { retention, keep_runs_ms, keep_audit_ms, .. } = *options;
    let Retention { success_ms, failure_ms, manually_processed_ms, cancelled_ms } = retention;
    let times = [success_ms, failure_ms, manually_processed_ms, cancelled_ms, keep_runs_ms, keep_audit_ms];
    let shortest = times.into_iter().flatten().min();
    let kept = shortest.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
    kept.map_or(EVERY_MAX, |kept| (kept / LATE_SHARE).clamp(EVERY_MIN, EVERY_MAX))
}

async fn purge_chunk(inner: &Inner) -> Result<u64> {
    let mut forgotten = inner.store.forget_answers().await?;
    if let Some(keep_ms) = inner.options.keep_runs_ms {
        forgotten += inner.store.purge_runs(keep_ms).await?;
    }
    if let Some(keep_ms) = inner.options.keep_audit_ms {
        forgotten += inner.store.purge_audit(keep_ms).await?;
    }
    if inner.options.retention == Retention::default() {
        return Ok(forgotten);
    }
    let tasks = inner.store.outlived(inner.options.retention).await?;
    let purged = if tasks.is_empty() { 0 } else { inner.store.purge(tasks).await? };
    Ok(forgotten + purged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_seconds_is_looked_for_every_second() {
        let keep = |ms| {
            let retention = Retention { success_ms: Some(ms), failure_ms: Some(86_400_000), ..Retention::default() };
            EngineOptions { retention, ..EngineOptions::default() }
        };
        assert_eq!(every(&EngineOptions::default()), EVERY_MAX);
        assert_eq!(every(&keep(0)), EVERY_MIN);
        assert_eq!(every(&keep(100_000)), Duration::from_secs(10));
        assert_eq!(every(&keep(7 * 86_400_000)), EVERY_MAX);
        assert_eq!(every(&EngineOptions { keep_audit_ms: Some(5_000), ..keep(100_000) }), EVERY_MIN);
    }
}
