//! History: finished tasks that are past their retention are removed, and so are old answers to idempotent calls.
//!
//! The authority is the store: what is finished, and since when, by the database's clock. It goes in small transactions with
//! pauses between them, so that live work is never held up, and whatever one engine or one failure leaves is found the next
//! time by any of them.

use crate::{Inner, rest};
use std::sync::Arc;
use std::time::Duration;
use taskwheel_store::{Result, Retention};
use tokio::sync::watch;

const EVERY: Duration = Duration::from_secs(60);
/// The pause between two chunks.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn run(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    loop {
        let pause = match purge_chunk(&inner).await {
            Ok(0) => EVERY,
            Ok(purged) => {
                tracing::debug!(purged, "what is past its retention is gone");
                PAUSE
            }
            Err(error) => {
                tracing::warn!(%error, "history could not be purged; it is tried again");
                EVERY
            }
        };
        if !rest(pause, &mut stopped).await {
            return;
        }
    }
}

async fn purge_chunk(inner: &Inner) -> Result<u64> {
    let forgotten = inner.store.forget_answers().await?;
    if inner.options.retention == Retention::default() {
        return Ok(forgotten);
    }
    let ids = inner.store.outlived(inner.options.retention).await?;
    let purged = if ids.is_empty() { 0 } else { inner.store.purge(ids).await? };
    Ok(forgotten + purged)
}
