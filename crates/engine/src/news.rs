//! News: what became due by plain SQL or through another node wakes a claim as if it had been submitted here.
//!
//! The authority is the store; its news are hints, and on some databases there are none. Whatever is not heard is found by the
//! next look of `due`.

use crate::Inner;
use std::sync::Arc;
use taskwheel_model::submit::RunAt;
use tokio::sync::watch;

pub(crate) async fn run(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            upcoming = inner.store.news() => inner.arrived(&upcoming.task_type, RunAt::At(upcoming.due)),
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}
