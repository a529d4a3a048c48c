//! Rescue: executions whose time limit or lease ran out, workers that went silent, and waiting tasks that expired.
//!
//! The authority is the store, by the database's clock: each transaction ends exactly those executions that are still there
//! and whose clock ran out. Every engine on a database does it, and none needs to know of the others. Each look is noted there
//! first, so that workers are not blamed for a time in which no engine looked: see `Store::watch`. When the store does not
//! answer, the next look makes up for it.

use crate::health::Loop;
use crate::{Inner, rest};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use taskwheel_model::{Outcome, limits};
use taskwheel_store::clock::wall_clock;
use taskwheel_store::{RanOut, Rescued, Result};
use tokio::sync::watch;

/// Most tasks that the log names after one look.
const TASKS_LOGGED_MAX: usize = 100;

pub(crate) async fn run(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    // By the clock on the wall: a machine that slept has not looked.
    let mut looked_at = None::<SystemTime>;
    // At once: after a time in which nobody looked all that runs is written to, and by and by there is more of it.
    loop {
        if look(&inner, looked_at.is_some_and(is_recent), &stopped).await.is_ok() {
            looked_at = Some(wall_clock());
        }
        if !rest(inner.options.rescue_every, &mut stopped).await {
            return;
        }
    }
}

/// Whether nothing came between a look and now but the pause that belongs there.
fn is_recent(looked_at: SystemTime) -> bool {
    wall_clock()
        .duration_since(looked_at)
        .is_ok_and(|passed| passed.as_millis() <= u128::from(limits::WATCH_GAP_MS.unsigned_abs()))
}

async fn look(inner: &Inner, is_unbroken: bool, stopped: &watch::Receiver<bool>) -> Result<()> {
    if inner.health.look(Loop::Rescue, inner.store.watch(is_unbroken)).await? {
        tracing::info!("no server looked after workers for a while: they have three heartbeats from now on to call");
    }
    loop {
        let rescued = inner.health.look(Loop::Rescue, inner.store.rescue()).await?;
        if rescued != Rescued::default() {
            for RanOut { id, exec_id, outcome } in rescued.tasks.iter().take(TASKS_LOGGED_MAX) {
                tracing::info!(
                    task_id = id.0,
                    exec_id = exec_id.map(tracing::field::display),
                    outcome = outcome.map_or("expired", Outcome::word),
                    "a clock ran out"
                );
            }
            tracing::info!(
                timed_out = rescued.timed_out,
                lost = rescued.lost,
                released = rescued.released,
                expired = rescued.expired,
                "clocks ran out"
            );
            for (counter, more) in [
                (&inner.counters.leases_lost, rescued.lost),
                (&inner.counters.timed_out, rescued.timed_out),
                (&inner.counters.never_arrived, rescued.released),
                (&inner.counters.expired, rescued.expired),
            ] {
                counter.fetch_add(more, Ordering::Relaxed);
            }
            inner.due.look_now();
        }
        if !rescued.more || *stopped.borrow() {
            return Ok(());
        }
    }
}
