//! Watch: whether somebody has looked after the clocks all the time.
//!
//! While no node is up, workers have nobody to call, and their silence says nothing about them. So every look at the clocks is
//! written down, by whichever node looks. A node that has not looked for a while itself, because it has just started, was paused
//! or could not reach the database, reads when anybody did. Where nobody has, workers that may have missed a heartbeat meanwhile
//! count as having called just now, and have three heartbeats to do so.

use crate::session::{Attempted, Session};
use taskwheel_model::{Time, limits};

/// Notes a look after a while without; answers whether nobody has looked meanwhile, after somebody had.
pub(super) async fn resume(session: &mut dyn Session) -> Attempted<bool> {
    let watched_at = session.watched_at().await?;
    let away_ms = session.now().ms_since(watched_at);
    // A look in the future was made before somebody set the database's clock back.
    let was_unwatched = !(0..=limits::WATCH_GAP_MS).contains(&away_ms);
    if was_unwatched {
        session.welcome_workers(if away_ms < 0 { i64::MAX } else { away_ms }).await?;
    }
    session.note_watch().await?;
    Ok(was_unwatched && watched_at != Time(0))
}
