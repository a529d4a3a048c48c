//! When the local times of an expression come in a time zone.
//!
//! The changes of a zone's offset divide time into stretches. Within one, a wall clock runs evenly. Where a stretch begins,
//! the clocks jump ahead (a gap: local times that never come) or back (a fold: local times that come twice):
//!
//! ```text
//!  wall clock      gap                             fold
//!     before   ---------|                      -----------|
//!     after             :   |----------             |-----:------
//!                       ^   ^                       ^     ^
//!               before.end  after.begin    after.begin    before.end
//! ```
//!
//! An expression that goes by elapsed time looks at each stretch from its own begin. Any other one looks at it from the
//! end of the stretch before: in a fold this leaves out what has come already, in a gap it brings in what was skipped, which
//! then fires where the stretch begins.

use super::Cron;
use super::calendar::Wall;
use crate::{Time, limits};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// No zone is further from UTC, in seconds.
const OFFSET_S_MAX: i64 = 26 * 60 * 60;
/// The first and the last second in which anything can be due.
const SECOND_MIN: i64 = 0;
const SECOND_MAX: i64 = limits::TIME_MS_MAX / 1_000;
/// Most stretches that one search looks at. Two or three are enough, unless every local time it finds lies in a gap, as
/// with an hour that only the clocks' change skips each year.
const STRETCHES_MAX: usize = 100;

/// A time during which a zone keeps its offset. All numbers are seconds.
struct Stretch {
    /// When it begins; `None` where the zone has no change before.
    start: Option<i64>,
    /// When the next one begins; `None` where the zone has no change any more.
    end: Option<i64>,
    offset: i64,
    /// What the wall clock would show at the start, had it not been changed.
    begin_unchanged: Wall,
}

impl Stretch {
    fn at(zone: &TimeZone, second: i64) -> Option<Stretch> {
        let time = Timestamp::from_second(second).ok()?;
        let offset_at = |second| Some(i64::from(zone.to_offset(Timestamp::from_second(second).ok()?).seconds()));
        let start = zone.preceding(Timestamp::from_second(second + 1).ok()?).next();
        let start = start.map(|change| change.timestamp().as_second());
        Some(Stretch {
            start,
            end: zone.following(time).next().map(|change| change.timestamp().as_second()),
            offset: offset_at(second)?,
            begin_unchanged: match start {
                Some(start) => start + offset_at(start - 1)?,
                None => Wall::MIN,
            },
        })
    }

    /// What the wall clock shows at the start.
    fn begin(&self) -> Wall {
        self.start.map_or(Wall::MIN, |start| start + self.offset)
    }

    /// What the wall clock would show at the end, were it not changed then.
    fn wall_end(&self) -> Wall {
        self.end.map_or(Wall::MAX, |end| end + self.offset)
    }

    /// When a local time comes, or the start if it was skipped.
    fn second_of(&self, wall: Wall) -> i64 {
        (wall - self.offset).max(self.start.unwrap_or(i64::MIN))
    }
}

impl Cron {
    /// The first firing later than a time; `None` where there is none before the year 3000.
    ///
    /// Where the hour is `*` or has a step, firings follow elapsed time through daylight saving: an hour that the clocks
    /// repeat fires twice, one that they skip does not. Otherwise a skipped local time fires when the gap ends, once for
    /// all in it, and a repeated one fires the first time only.
    #[must_use]
    pub fn next_after(&self, after: Time, zone: &TimeZone) -> Option<Time> {
        let mut second = after.0.div_euclid(1_000).saturating_add(1).max(SECOND_MIN);
        for _ in 0..STRETCHES_MAX {
            if second > SECOND_MAX {
                return None;
            }
            let stretch = Stretch::at(zone, second)?;
            let from = self.first_wall(&stretch, second);
            let found = self.wall_from(from);
            if let Some(wall) = found.filter(|wall| *wall < stretch.wall_end()) {
                return time(stretch.second_of(wall));
            }
            let end = stretch.end?;
            // After a fold the clock shows again what it has shown.
            let next_offset = i64::from(zone.to_offset(Timestamp::from_second(end).ok()?).seconds());
            second = if self.is_elapsed && end + next_offset < from { end } else { end.max(found? - OFFSET_S_MAX) };
        }
        None
    }

    /// The first firing at a time or later.
    #[must_use]
    pub fn next_from(&self, from: Time, zone: &TimeZone) -> Option<Time> {
        self.next_after(from.plus_ms(-1), zone)
    }

    /// The last firing earlier than a time; `None` where there is none since 1970.
    #[must_use]
    pub fn last_before(&self, before: Time, zone: &TimeZone) -> Option<Time> {
        let mut second = before.0.saturating_sub(1).div_euclid(1_000).min(SECOND_MAX);
        for _ in 0..STRETCHES_MAX {
            if second < SECOND_MIN {
                return None;
            }
            let stretch = Stretch::at(zone, second)?;
            let shown = second + stretch.offset;
            let from = if self.is_elapsed { stretch.begin() } else { stretch.begin_unchanged };
            let found = self.wall_before(shown + 1);
            if let Some(wall) = found.filter(|wall| *wall >= from) {
                return time(stretch.second_of(wall));
            }
            let before = stretch.start? - 1;
            // Before a fold the clock showed already what comes after it.
            second = if stretch.begin_unchanged > shown { before } else { before.min(found? + OFFSET_S_MAX) };
        }
        None
    }

    /// How many firings there are from one time on and before another one.
    #[must_use]
    pub fn count_between(&self, from: Time, before: Time, zone: &TimeZone) -> u64 {
        let second = |time: Time| time.0.saturating_sub(1).div_euclid(1_000) + 1;
        let mut start = second(from).max(SECOND_MIN);
        let end = second(before).min(SECOND_MAX + 1);
        let mut count = 0;
        while start < end {
            let Some(stretch) = Stretch::at(zone, start) else { break };
            let stop = stretch.end.unwrap_or(end).min(end);
            let from = self.first_wall(&stretch, start);
            // All that a gap skipped is one firing, and what the clock shows at its end is the same one.
            let shown = start + stretch.offset;
            let skipped = u64::from(from < shown && self.wall_from(from).is_some_and(|wall| wall <= shown));
            let rest = if from < shown { shown + 1 } else { from };
            count += skipped + self.walls_between(rest, stop + stretch.offset);
            start = stop;
        }
        count
    }

    /// The first local time to look at when a search comes to a second of a stretch.
    fn first_wall(&self, stretch: &Stretch, second: i64) -> Wall {
        let shown = second + stretch.offset;
        match stretch.start {
            _ if self.is_elapsed => shown,
            Some(start) if start == second => stretch.begin_unchanged,
            _ => shown.max(stretch.begin_unchanged),
        }
    }
}

fn time(second: i64) -> Option<Time> {
    (SECOND_MIN..=SECOND_MAX).contains(&second).then_some(Time(second * 1_000))
}
