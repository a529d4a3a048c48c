//! The due times of a timer.

use super::Timer;
use crate::{Cron, Time, limits};
use jiff::tz::TimeZone;

/// A timer that was checked and knows its due times.
#[derive(Clone, Debug)]
pub struct Rhythm {
    beat: Beat,
    start_at: Option<Time>,
    end_at: Option<Time>,
    is_enabled: bool,
}

/// A timer's specification with all that was text in it understood.
#[derive(Clone, Debug)]
pub(super) enum Beat {
    Cron { cron: Box<Cron>, zone: TimeZone },
    Rate { period_ms: i64, initial_delay_ms: i64 },
    Delay { period_ms: i64, initial_delay_ms: i64 },
    After { delay_ms: i64 },
    At(Time),
}

impl Rhythm {
    pub(super) fn new(timer: &Timer, beat: Beat) -> Rhythm {
        Rhythm { beat, start_at: timer.start_at, end_at: timer.end_at, is_enabled: timer.enabled }
    }

    /// The first due time of a timer that comes online for the first time, or was edited.
    ///
    /// Before its start a timer is not online yet, so that delays and the grid of a fixed rate count from the later of both.
    /// A fixed time that has passed is due: whoever asked for it wants it to happen.
    #[must_use]
    pub fn first_due(&self, online_at: Time) -> Option<Time> {
        let from = self.opening(online_at)?;
        let due = match &self.beat {
            Beat::Cron { cron, zone } => cron.next_from(from, zone)?,
            Beat::Rate { initial_delay_ms, .. } | Beat::Delay { initial_delay_ms, .. } => {
                from.plus_ms(*initial_delay_ms)
            }
            Beat::After { delay_ms } => from.plus_ms(*delay_ms),
            Beat::At(at) => *at,
        };
        self.if_valid(due)
    }

    /// The cursor of a timer that comes back online. What would have been due in between is not.
    ///
    /// A fixed rate keeps its grid. A fixed delay that was due in between is due at once, since no run will end that
    /// could bring its next one.
    #[must_use]
    pub fn resume(&self, cursor: Time, online_at: Time) -> Option<Time> {
        let from = self.opening(online_at)?;
        match self.beat {
            Beat::Delay { .. } => self.if_valid(cursor.max(from)),
            _ => self.due_from(cursor, from),
        }
    }

    /// The due time that follows another one. After a fixed delay there is none until its run has ended.
    #[must_use]
    pub fn next_due(&self, due: Time) -> Option<Time> {
        self.due_from(due, due.plus_ms(1))
    }

    /// The next due time of a fixed delay whose run has ended; `None` for every other timer, which does not wait for it.
    #[must_use]
    pub fn due_after_run(&self, ended_at: Time) -> Option<Time> {
        match self.beat {
            Beat::Delay { period_ms, .. } => self.if_valid(ended_at.plus_ms(period_ms)),
            _ => None,
        }
    }

    /// Whether its next due time is known only when its run has ended.
    #[must_use]
    pub fn waits_for_run(&self) -> bool {
        matches!(self.beat, Beat::Delay { .. })
    }

    /// The first due time of those that follow from the cursor, itself among them, that is not before a time.
    pub(super) fn due_from(&self, cursor: Time, from: Time) -> Option<Time> {
        if cursor >= from {
            return self.if_valid(cursor);
        }
        let due = match &self.beat {
            Beat::Cron { cron, zone } => cron.next_from(from, zone)?,
            Beat::Rate { period_ms, .. } => on_grid(cursor, *period_ms, from),
            Beat::Delay { .. } | Beat::After { .. } | Beat::At(_) => return None,
        };
        self.if_valid(due)
    }

    /// The last due time of those that follow from the cursor, itself among them, that is before a time.
    pub(super) fn due_before(&self, cursor: Time, before: Time) -> Option<Time> {
        if cursor >= before {
            return None;
        }
        Some(match &self.beat {
            // The cursor is due even if the zone's rules have changed since it was computed.
            Beat::Cron { cron, zone } => cron.last_before(before, zone).map_or(cursor, |due| due.max(cursor)),
            Beat::Rate { period_ms, .. } => {
                let last = before.plus_ms(-1);
                last.plus_ms(-(last.ms_since(cursor) % period_ms))
            }
            Beat::Delay { .. } | Beat::After { .. } | Beat::At(_) => cursor,
        })
    }

    /// How many due times follow from the cursor, itself among them, before a time.
    pub(super) fn count_before(&self, cursor: Time, before: Time) -> u64 {
        if cursor >= before {
            return 0;
        }
        match &self.beat {
            Beat::Cron { cron, zone } => 1 + cron.count_between(cursor.plus_ms(1), before, zone),
            Beat::Rate { period_ms, .. } => 1 + (before.plus_ms(-1).ms_since(cursor) / period_ms).unsigned_abs(),
            Beat::Delay { .. } | Beat::After { .. } | Beat::At(_) => 1,
        }
    }

    /// The due time to go on with when the cursor is dropped without a run, after `now`.
    pub(super) fn due_after_drop(&self, cursor: Time, now: Time) -> Option<Time> {
        match self.beat {
            // No run will end, so it goes on as if on a grid.
            Beat::Delay { period_ms, .. } => self.if_valid(on_grid(cursor, period_ms, now.plus_ms(1))),
            _ => self.due_from(cursor, now.plus_ms(1)),
        }
    }

    /// The end of its validity, or of time.
    pub(super) fn end(&self) -> Time {
        self.end_at.unwrap_or(Time(limits::TIME_MS_MAX + 1))
    }

    /// From when on it can be due, if at all.
    fn opening(&self, online_at: Time) -> Option<Time> {
        self.is_enabled.then(|| self.start_at.map_or(online_at, |start| start.max(online_at)))
    }

    fn if_valid(&self, due: Time) -> Option<Time> {
        (due < self.end() && due.0 <= limits::TIME_MS_MAX).then_some(due)
    }
}

/// The first point of a grid through `cursor` that is not before `from`, which is not before the cursor.
fn on_grid(cursor: Time, period_ms: i64, from: Time) -> Time {
    let past_ms = from.ms_since(cursor).max(0);
    let steps = past_ms / period_ms + i64::from(past_ms % period_ms != 0);
    cursor.plus_ms(steps.saturating_mul(period_ms))
}
