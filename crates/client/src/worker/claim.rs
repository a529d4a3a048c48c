//! Claims, in the background while handlers run.

use super::{Shop, Until};
use crate::backend::Claim;
use crate::error::{Error, Result};
use crate::new_task::milliseconds;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// So many claims are under way at once, when there is a backlog.
pub(super) const CLAIMS_MAX: usize = 3;
/// How long a claim waits, where no heartbeat is due before.
const WAIT: Duration = Duration::from_secs(20);
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A claim that brings nothing takes so long at least, so that a server that does not wait is not asked all the time.
const EMPTY_CLAIM_TIME_MIN: Duration = Duration::from_millis(100);

/// Claims until it is aborted; ends by itself when nothing is left to do, or when the server refuses it for good.
pub(super) async fn run(shop: Arc<Shop>, is_first: bool) -> Result<()> {
    let mut pause = PAUSE_MIN;
    loop {
        let asked = shop.hands.room_for_claim(is_first).await;
        let (begin, settled) = (Instant::now(), shop.hands.settled());
        match claim(&shop, asked, is_first).await {
            Ok(0) if is_first && shop.until == Until::Idle => {
                shop.hands.idle().await;
                // What was reported since that look may be due again, so that there is one more.
                if shop.hands.settled() == settled {
                    return Ok(());
                }
            }
            Ok(0) => sleep_until(begin + EMPTY_CLAIM_TIME_MIN).await,
            Ok(_) => pause = PAUSE_MIN,
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "no tasks can be claimed; trying again until they can");
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(error) => return Err(error),
        }
    }
}

async fn claim(shop: &Shop, asked: usize, is_first: bool) -> Result<usize, Error> {
    let is_patient = is_first && shop.until == Until::Told;
    let wait = if is_patient { WAIT.min(shop.settings.heartbeat) } else { Duration::ZERO };
    let claim = Claim {
        worker_id: shop.worker_id.clone(),
        host: shop.host.clone(),
        app: shop.settings.app.clone(),
        types: shop.handlers.keys().cloned().collect(),
        heartbeat_ms: milliseconds(shop.settings.heartbeat),
        max: asked,
        wait_ms: milliseconds(wait),
    };
    match shop.client.backend.claim(&claim).await {
        Ok(tasks) => {
            let count = tasks.len();
            shop.hands.claimed(asked, tasks);
            Ok(count)
        }
        Err(error) => {
            shop.hands.claimed(asked, Vec::new());
            Err(error)
        }
    }
}
