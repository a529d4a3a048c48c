//! History: finished tasks that are past their retention are removed.
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
    if inner.options.retention == Retention::default() {
        return;
    }
    loop {
        match purge_chunk(&inner).await {
            Ok(0) => {
                if !rest(EVERY, &mut stopped).await {
                    return;
                }
            }
            Ok(purged) => {
                tracing::debug!(purged, "finished tasks past their retention are gone");
                if !rest(PAUSE, &mut stopped).await {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "history could not be purged; it is tried again");
                if !rest(EVERY, &mut stopped).await {
                    return;
                }
            }
        }
    }
}

async fn purge_chunk(inner: &Inner) -> Result<u64> {
    let ids = inner.store.outlived(inner.options.retention).await?;
    if ids.is_empty() { Ok(0) } else { inner.store.purge(ids).await }
}
