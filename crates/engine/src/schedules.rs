//! Schedules: timers fire within milliseconds of their due times.
//!
//! The authority is the store: one transaction locks the timers that are due by the database's clock, moves their cursors and inserts
//! what they begin. Here is only the time to look next: when the next timer is due, counted from a reading of the database's clock, or
//! after a while, for what came through another node. Any number of engines look; each due time fires once. When the store does not
//! answer, the next look finds what was missed, and the misfire policy says what of it fires.
//!
//! What fires again and again is handed to claims that wait for it in the transaction that fires it.

use crate::Inner;
use crate::dispatch::give_back;
use crate::health::Loop;
use crate::ticket::Kept;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_store::schedule::Fired;
use taskwheel_store::{Result, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;

/// Most timers that fire in one transaction.
const TIMERS_AT_ONCE: usize = 500;
/// How often it looks for what came through another node.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// After a look that fired something: what comes in the meantime fires in one transaction.
const PACE: Duration = Duration::from_millis(4);
/// For so long after a firing a claim is kept for what may fire next.
const FIRED_LATELY: Duration = Duration::from_secs(1);
/// After a look that failed.
const REST: Duration = Duration::from_secs(1);

/// Fires what is due.
pub(crate) async fn run(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    let (mut fired_last, mut fired_at) = (Vec::new(), Instant::now());
    while !*stopped.borrow() {
        let looked_at = Instant::now();
        if looked_at - fired_at > FIRED_LATELY {
            fired_last.clear();
        }
        let kept: Vec<_> =
            fired_last.iter().filter_map(|task_type: &String| inner.dispatch.keep_any(task_type)).collect();
        let fired = inner.health.look(Loop::Schedules, fire(&inner, kept)).await;
        if let Ok(fired) = &fired
            && fired.runs > 0
        {
            (fired_last, fired_at) = (fired.types.clone(), looked_at);
        }
        let next = match fired {
            Ok(fired) if fired.more => continue,
            Ok(fired) if fired.runs > 0 => looked_at + PACE,
            Ok(fired) => {
                let due_in = fired.next_due.map(|due| due.ms_since(fired.now).max(1).unsigned_abs());
                looked_at + due_in.map_or(LOOK_EVERY, Duration::from_millis).min(LOOK_EVERY)
            }
            Err(_) => looked_at + REST,
        };
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            () = inner.store.timers_moved() => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}

/// Fires what is due now, and hands of it what claims that wait can take, in a task of its own: what was claimed gets to its workers
/// whatever becomes of the loop.
async fn fire(inner: &Arc<Inner>, kept: Vec<Kept>) -> Result<Fired> {
    let inner = inner.clone();
    let running = tokio::spawn(async move {
        let requests = kept.iter().map(Kept::request).collect();
        let (fired, claimed) = inner.store.fire_and_claim(TIMERS_AT_ONCE, requests).await?;
        let unwanted = kept.into_iter().zip(claimed).flat_map(|(kept, tasks)| kept.hand(tasks)).collect();
        give_back(&inner, unwanted).await;
        Ok(fired)
    });
    running.await.map_err(|error| StoreError::Database(format!("a firing ended early: {error}")))?
}

/// Wakes who waits for what runs begin.
pub(crate) async fn wake(inner: Arc<Inner>, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            launched = inner.store.launched() => {
                for (task_type, tasks) in launched {
                    inner.dispatch.wake_for_all(&task_type, tasks);
                }
            }
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}
