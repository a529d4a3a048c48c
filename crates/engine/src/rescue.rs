//! Rescue: executions whose time limit or lease ran out, workers that went silent, and waiting tasks that expired.
//!
//! The authority is the store, by the database's clock: each transaction ends exactly those executions that are still there
//! and whose clock ran out. Every engine on a database does it, and none needs to know of the others. When the store does not
//! answer, the next look makes up for it.

use crate::{Inner, rest};
use std::sync::Arc;
use taskwheel_store::Rescued;
use tokio::sync::watch;

pub(crate) async fn run(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    while rest(inner.options.rescue_every, &mut stopped).await {
        loop {
            let rescued = inner.store.rescue().await;
            inner.looked("rescue", &rescued);
            let Ok(rescued) = rescued else { break };
            if rescued != Rescued::default() {
                tracing::info!(
                    timed_out = rescued.timed_out,
                    lost = rescued.lost,
                    released = rescued.released,
                    expired = rescued.expired,
                    "clocks ran out"
                );
                inner.due.look_now();
            }
            if !rescued.more || *stopped.borrow() {
                break;
            }
        }
    }
}
