//! Watch: whether somebody has looked after the clocks all the time.
//!
//! While no node is up, workers have nobody to call, and their silence says nothing about them. So every look at the clocks is
//! written down, by whichever node looks. A node that has not looked for a while itself, because it has just started, was paused
//! or could not reach the database, reads when anybody did. Where nobody has, workers that may have missed a heartbeat meanwhile
//! count as having called just now, and have three heartbeats to do so.

use crate::session::{Attempted, Session};
use taskwheel_model::{Time, limits};

/// Notes a look; answers whether nobody has looked for a while after somebody had.
pub(super) async fn watch(session: &mut dyn Session, is_unbroken: bool) -> Attempted<bool> {
    let mut was_away = false;
    if !is_unbroken {
        let watched_at = session.watched_at().await?;
        let away_ms = session.now().ms_since(watched_at);
        // A look in the future was made before somebody set the database's clock back.
        if !(0..=limits::WATCH_GAP_MS).contains(&away_ms) {
            let away_ms = if away_ms < 0 { i64::MAX } else { away_ms };
            session.welcome_workers(away_ms).await?;
            was_away = watched_at != Time(0);
        }
    }
    session.note_watch().await?;
    Ok(was_away)
}
