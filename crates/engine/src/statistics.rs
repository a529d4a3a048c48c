//! Statistics: what the store counted of ended executions is written every few seconds.
//!
//! The store counts in memory as executions end; the tables are the authority for everybody who reads. What was not written
//! when the process dies is missing from the statistics, and from nothing else. A write that fails is done again with the next.

use crate::{Inner, rest};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const EVERY: Duration = Duration::from_secs(5);

pub(crate) async fn run(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    let mut going_on = true;
    while going_on {
        going_on = rest(EVERY, &mut stopped).await;
        if let Err(error) = inner.store.write_statistics().await {
            tracing::warn!(%error, "statistics could not be written; they are written with the next");
        }
    }
}
