//! The coming firings of a schedule.

use super::Rhythm;
use crate::{Time, limits};

/// A coming firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// Which timer, by its place in the list.
    pub timer: usize,
    /// When it is due.
    pub due: Time,
}

/// The coming firings of a list of timers from a time on, each given with its cursor. The earliest is first.
///
/// A timer that is not online has no cursor yet: give its [`Rhythm::first_due`] at the time it might come online. A fixed
/// delay is shown once, since nobody knows how long its runs will take.
#[must_use]
pub fn preview(timers: &[(Rhythm, Option<Time>)], from: Time, count: usize) -> Vec<Coming> {
    let mut coming: Vec<Option<Time>> =
        timers.iter().map(|(rhythm, cursor)| rhythm.due_from((*cursor)?, from)).collect();
    let mut firings = Vec::new();
    while firings.len() < count.min(limits::PREVIEW_MAX) {
        let earliest = (0..).zip(&coming).filter_map(|(timer, due)| Some(Coming { timer, due: (*due)? }));
        let Some(firing) = earliest.min_by_key(|firing| firing.due) else { break };
        coming[firing.timer] = timers[firing.timer].0.next_due(firing.due);
        firings.push(firing);
    }
    firings
}
