//! The local times that an expression means, whatever the zone: the next one, the last one, how many.
//!
//! A local time is the number of seconds that a wall clock is past 1970-01-01T00:00:00. Days are found month by month and
//! times of day by bits, so that no search goes through time second by second.

use super::Cron;
use super::field::YEARS;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;

/// What a wall clock shows, in seconds since it showed 1970-01-01T00:00:00.
pub(super) type Wall = i64;

const DAY_S: i64 = 24 * 60 * 60;
/// The first year that a search backwards looks at: west of Greenwich, 1970 begins in 1969.
const YEAR_FIRST: i16 = YEARS.0 as i16 - 1;
const YEAR_LAST: i16 = YEARS.1 as i16;

impl Cron {
    /// Whether there is any day for it at all.
    pub(super) fn can_fire(&self) -> bool {
        self.date_from(Date::constant(YEARS.0 as i16, 1, 1)).is_some()
    }

    /// The first local time that matches, not before `from`.
    pub(super) fn wall_from(&self, from: Wall) -> Option<Wall> {
        let today = date_of(from)?;
        let found = self.date_from(today)?;
        if found == today
            && let Some(second) = self.second_from(from.rem_euclid(DAY_S))
        {
            return Some(from - from.rem_euclid(DAY_S) + second);
        }
        let found = if found == today { self.date_from(today.tomorrow().ok()?)? } else { found };
        Some(midnight(found) + self.second_from(0)?)
    }

    /// The last local time that matches, before `before`.
    pub(super) fn wall_before(&self, before: Wall) -> Option<Wall> {
        let until = before - 1;
        let today = date_of(until)?;
        let found = self.date_until(today)?;
        if found == today
            && let Some(second) = self.second_until(until.rem_euclid(DAY_S))
        {
            return Some(until - until.rem_euclid(DAY_S) + second);
        }
        let found = if found == today { self.date_until(today.yesterday().ok()?)? } else { found };
        Some(midnight(found) + self.second_until(DAY_S - 1)?)
    }

    /// How many local times match, from `from` on and before `before`.
    pub(super) fn walls_between(&self, from: Wall, before: Wall) -> u64 {
        let (Some(first), Some(last)) = (date_of(from), date_of(before)) else { return 0 };
        if from >= before {
            return 0;
        }
        // Whole days up to the last one, without what lies before the start and with what lies before the end.
        let whole = self.dates_between(first, last) * self.seconds_before(DAY_S);
        let skipped = if self.has_date(first) { self.seconds_before(from.rem_euclid(DAY_S)) } else { 0 };
        let begun = if self.has_date(last) { self.seconds_before(before.rem_euclid(DAY_S)) } else { 0 };
        whole + begun - skipped
    }

    /// The days of a month that match, a bit for each.
    fn days_of(&self, year: i16, month: i8) -> u32 {
        let has_year = match &self.years {
            Some(years) => years.iter().any(|span| u32::try_from(year).is_ok_and(|year| span.contains(year))),
            None => year <= YEAR_LAST,
        };
        if has_year && self.months & 1 << month != 0 { self.days.in_month(year, month) } else { 0 }
    }

    fn has_date(&self, date: Date) -> bool {
        self.days_of(date.year(), date.month()) & 1 << date.day() != 0
    }

    fn date_from(&self, from: Date) -> Option<Date> {
        let (mut year, mut month, mut first) = (from.year(), from.month(), from.day());
        while year <= YEAR_LAST {
            let days = self.days_of(year, month) & u32::MAX << first;
            if days != 0 {
                return Date::new(year, month, days.trailing_zeros() as i8).ok();
            }
            (year, month, first) = if month == 12 { (year + 1, 1, 1) } else { (year, month + 1, 1) };
        }
        None
    }

    fn date_until(&self, until: Date) -> Option<Date> {
        let (mut year, mut month, mut last) = (until.year(), until.month(), until.day());
        while year >= YEAR_FIRST {
            let days = self.days_of(year, month) & bits_below(last.into(), 1) as u32;
            if days != 0 {
                return Date::new(year, month, days.ilog2() as i8).ok();
            }
            (year, month, last) = if month == 1 { (year - 1, 12, 31) } else { (year, month - 1, 31) };
        }
        None
    }

    /// How many days match, from `from` on and before `before`.
    fn dates_between(&self, from: Date, before: Date) -> u64 {
        let (mut year, mut month) = (from.year(), from.month());
        let mut count = 0;
        while (year, month) <= (before.year(), before.month()) {
            let mut days = self.days_of(year, month);
            if (year, month) == (from.year(), from.month()) {
                days &= u32::MAX << from.day();
            }
            if (year, month) == (before.year(), before.month()) {
                days &= bits_below(before.day().into(), 0) as u32;
            }
            count += u64::from(days.count_ones());
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        }
        count
    }

    /// The first second of a day that matches, not before `from`.
    fn second_from(&self, from: i64) -> Option<i64> {
        let (hour, minute, second) = clock(from);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = lowest(self.seconds, second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = lowest(self.minutes, minute + 1) {
                return Some(hour * 3600 + minute * 60 + lowest(self.seconds, 0)?);
            }
        }
        let hour = lowest(self.hours, hour + 1)?;
        Some(hour * 3600 + lowest(self.minutes, 0)? * 60 + lowest(self.seconds, 0)?)
    }

    /// The last second of a day that matches, not after `until`.
    fn second_until(&self, until: i64) -> Option<i64> {
        let (hour, minute, second) = clock(until);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = highest(self.seconds, second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = highest(self.minutes, minute - 1) {
                return Some(hour * 3600 + minute * 60 + highest(self.seconds, 59)?);
            }
        }
        let hour = highest(self.hours, hour - 1)?;
        Some(hour * 3600 + highest(self.minutes, 59)? * 60 + highest(self.seconds, 59)?)
    }

    /// How many seconds of a day match before `before`.
    fn seconds_before(&self, before: i64) -> u64 {
        let (hour, minute, second) = clock(before);
        let count = |set: u64| u64::from(set.count_ones());
        let seconds = count(self.seconds & bits_below(second, 0)) * u64::from(has(self.minutes, minute));
        let minutes = count(self.minutes & bits_below(minute, 0)) * count(self.seconds) + seconds;
        count(self.hours & bits_below(hour, 0)) * count(self.minutes) * count(self.seconds)
            + minutes * u64::from(has(self.hours, hour))
    }
}

fn date_of(wall: Wall) -> Option<Date> {
    Some(Offset::UTC.to_datetime(Timestamp::from_second(wall).ok()?).date())
}

fn midnight(date: Date) -> Wall {
    // Every date has a midnight in UTC; only the last day of the year 9999 has none in some zones.
    Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).map_or(Wall::MAX, Timestamp::as_second)
}

fn clock(second_of_day: i64) -> (i64, i64, i64) {
    (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60)
}

fn has(set: u64, value: i64) -> bool {
    set & 1 << value != 0
}

/// All bits below a number, and `and` more.
fn bits_below(number: i64, and: i64) -> u64 {
    (1 << (number + and)) - 1
}

/// The lowest value of a set that is not below `from`.
fn lowest(set: u64, from: i64) -> Option<i64> {
    let set = set & u64::MAX << from;
    (set != 0).then(|| set.trailing_zeros().into())
}

/// The highest value of a set that is not above `until`.
fn highest(set: u64, until: i64) -> Option<i64> {
    let set = set & bits_below(until, 1);
    (set != 0).then(|| set.ilog2().into())
}
