//! What happens to due times that nobody saw in time.

use super::Rhythm;
use crate::field::{self, FieldError};
use crate::{Time, limits};
use serde::{Deserialize, Serialize};

/// What a schedule does about due times that it missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Misfire {
    /// Which of them fire.
    pub policy: MisfirePolicy,
    /// How many of them a schedule that catches up fires at most.
    #[serde(default = "catch_up_default")]
    pub max: u32,
}

/// Which missed due times fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MisfirePolicy {
    /// None.
    Skip,
    /// The latest.
    FireOnce,
    /// The newest ones, up to a maximum.
    CatchUp,
}

/// What is to be done about a timer now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The due times that fire, oldest first.
    pub fire: Vec<Time>,
    /// The due times that were found too late, whether they fire or not.
    pub missed: Option<Missed>,
    /// The new cursor: the due time that comes next, after `now`.
    pub next: Option<Time>,
}

/// Due times that were found too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The oldest.
    pub first: Time,
    /// The newest.
    pub last: Time,
    /// How many there are.
    pub count: u64,
    /// How many of them fire all the same: the newest.
    pub fired: u64,
}

fn catch_up_default() -> u32 {
    limits::CATCH_UP_DEFAULT
}

impl Default for Misfire {
    fn default() -> Misfire {
        Misfire { policy: MisfirePolicy::FireOnce, max: limits::CATCH_UP_DEFAULT }
    }
}

impl Misfire {
    /// Checks the maximum. `field` is the name of the policy in the request.
    pub fn validate(&self, field: &str) -> Result<(), FieldError> {
        field::range(&format!("{field}.max"), self.max.into(), 1, limits::CATCH_UP_MAX.into())
    }

    fn late_max(&self) -> usize {
        match self.policy {
            MisfirePolicy::Skip => 0,
            MisfirePolicy::FireOnce => 1,
            MisfirePolicy::CatchUp => self.max.min(limits::CATCH_UP_MAX) as usize,
        }
    }
}

impl Rhythm {
    /// What is to be done about a timer whose next due time is `cursor`.
    ///
    /// A due time that is found more than five seconds late is missed, and the policy says whether it fires. All others
    /// fire, up to `now`. However many were missed, the work is that of those that fire: at most
    /// [`limits::CATCH_UP_MAX`], and as many as come in five seconds.
    #[must_use]
    pub fn misfire(&self, cursor: Time, now: Time, misfire: Misfire) -> Due {
        // Everything before `stop` is due, and everything before `late` was missed.
        let stop = now.plus_ms(1).min(self.end());
        let late = now.plus_ms(-limits::MISSED_AFTER_MS).min(stop);
        let mut fire = self.newest(cursor, late, misfire.late_max());
        let missed = self.due_before(cursor, late).map(|last| Missed {
            first: cursor,
            last,
            count: self.count_before(cursor, late),
            fired: fire.len() as u64,
        });
        let mut due = self.due_from(cursor, late);
        while let Some(time) = due.filter(|time| *time < stop) {
            fire.push(time);
            due = self.next_due(time);
        }
        let next = match fire.last() {
            Some(last) => self.due_from(*last, stop.max(last.plus_ms(1))),
            None if cursor < stop => self.due_after_drop(cursor, now),
            None => due,
        };
        Due { fire, missed, next }
    }

    /// The newest due times before a time, oldest first.
    fn newest(&self, cursor: Time, before: Time, count_max: usize) -> Vec<Time> {
        let older = |due: &Time| self.due_before(cursor, *due);
        let mut newest: Vec<Time> =
            std::iter::successors(self.due_before(cursor, before), older).take(count_max).collect();
        newest.reverse();
        newest
    }
}
