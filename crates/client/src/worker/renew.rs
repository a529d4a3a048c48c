//! The heartbeat: one call that names everything in hand, and saves what handlers noted.
//!
//! Between two heartbeats the same call saves the checkpoints that are new, at an interval or when a handler asks for it.

use super::Shop;
use crate::backend::{Claimed, Renewed};
use crate::error::Result;
use crate::execution::Execution;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// Items of one call.
const BATCH: usize = 1_000;
/// A call with more is made in several.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Renews until it is aborted, or until the server refuses it for good.
pub(super) async fn run(shop: Arc<Shop>) -> Result<()> {
    let (every, save_every) = (shop.settings.heartbeat, shop.settings.save_every);
    let mut heartbeat = ticking(every);
    let mut saves = ticking(save_every);
    loop {
        let renewed = tokio::select! {
            _ = heartbeat.tick() => renew(&shop, shop.hands.all(|_| true), every).await,
            _ = saves.tick() => save(&shop).await,
            () = shop.hands.bell.save.notified() => save(&shop).await,
        };
        match renewed {
            Ok(()) => {}
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "no heartbeat arrives; trying again");
                // Sooner than usual: three that are missed lose all tasks.
                heartbeat.reset_after(every / 5);
            }
            Err(error) => return Err(error),
        }
    }
}

fn ticking(every: Duration) -> tokio::time::Interval {
    let mut interval = interval_at(Instant::now() + every, every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

async fn save(shop: &Shop) -> Result<()> {
    let unsaved = shop.hands.all(Execution::is_unsaved);
    if unsaved.is_empty() { Ok(()) } else { renew(shop, unsaved, shop.settings.heartbeat).await }
}

/// Names executions, saves what they noted, and tells those that are lost.
pub(super) async fn renew(shop: &Shop, mut executions: Vec<Arc<Execution>>, time_max: Duration) -> Result<()> {
    while !executions.is_empty() {
        let (mut items, mut revisions, mut bytes) = (Vec::new(), Vec::new(), 0);
        for execution in executions.iter().take(BATCH) {
            let (item, revision) = execution.renewal();
            bytes += item.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.get().len());
            if bytes > BYTES_MAX && !items.is_empty() {
                break;
            }
            items.push(item);
            revisions.push(revision);
        }
        let answers = shop.client.backend.renew(&shop.worker_id, &items, time_max).await?;
        let named = executions.drain(..items.len());
        for ((execution, revision), answer) in named.zip(revisions).zip(answers) {
            match answer {
                Renewed::Ok => execution.was_saved(revision),
                Renewed::Cancelled | Renewed::Superseded => {
                    let Claimed { id, exec_id, .. } = &execution.task;
                    tracing::info!(task_id = id.0, %exec_id, ?answer, "the task is not ours any more");
                    execution.lose();
                }
            }
        }
    }
    Ok(())
}
