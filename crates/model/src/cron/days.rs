//! The days of a month that an expression means: by number, by weekday, and counted from the month's end.

use super::field::{Field, number};
use jiff::civil::Date;

/// The days of an expression, of its fields day and weekday together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Days {
    by_number: Option<Numbers>,
    by_weekday: Option<Weekdays>,
}

/// The field day, where it says something. Bit n of each stands for n.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Numbers {
    days: u32,
    /// `L`, `L-3`: so many days before the last one.
    before_last: u32,
    /// `15W`: the weekday nearest to the day.
    nearest: u32,
    /// `LW`: the month's last weekday.
    last_working: bool,
}

/// The field weekday, where it says something. Bit 0 stands for Sunday.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Weekdays {
    every: u32,
    /// `MON#2`: the second Monday, at index 1.
    nth: [u32; WEEKS],
    /// `FRIL`: the last Friday.
    last: u32,
}

/// In how many weeks of a month a weekday can lie.
const WEEKS: usize = 5;
const SATURDAY: u32 = 6;
/// Days 0, 7, 14, 21 and 28: moved to a weekday's first day, all days on which it falls.
const WEEKLY: u32 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;

impl Days {
    /// Reads both fields.
    pub(super) fn parse(day: Field<'_>, weekday: Field<'_>) -> Result<Days, String> {
        let by_number = if day.is_any()? { None } else { Some(Numbers::parse(day)?) };
        let by_weekday = if weekday.is_any()? { None } else { Some(Weekdays::parse(weekday)?) };
        Ok(Days { by_number, by_weekday })
    }

    /// Whether both fields say something.
    pub(super) fn are_given_twice(&self) -> bool {
        self.by_number.is_some() && self.by_weekday.is_some()
    }

    /// The days of a month, a bit for each.
    pub(super) fn in_month(&self, year: i16, month: i8) -> u32 {
        let Ok(first) = Date::new(year, month, 1) else { return 0 };
        let month = Month {
            length: first.days_in_month().unsigned_abs().into(),
            first_weekday: first.weekday().to_sunday_zero_offset().unsigned_abs().into(),
        };
        let days = match (&self.by_number, &self.by_weekday) {
            (None, None) => u32::MAX,
            (Some(numbers), None) => numbers.in_month(month),
            (None, Some(weekdays)) => weekdays.in_month(month),
            (Some(numbers), Some(weekdays)) => numbers.in_month(month) | weekdays.in_month(month),
        };
        days & month.all()
    }
}

/// What decides which days of a month are which.
#[derive(Clone, Copy)]
struct Month {
    length: u32,
    first_weekday: u32,
}

impl Month {
    fn all(self) -> u32 {
        ((1 << self.length) - 1) << 1
    }

    fn weekday(self, day: u32) -> u32 {
        (self.first_weekday + day - 1) % 7
    }

    /// The first day that is this weekday.
    fn first(self, weekday: u32) -> u32 {
        1 + (weekday + 7 - self.first_weekday) % 7
    }

    /// The working day nearest to a day, in the same month.
    fn nearest_working(self, day: u32) -> u32 {
        match self.weekday(day) {
            0 if day == self.length => day - 2,
            0 => day + 1,
            SATURDAY if day == 1 => day + 2,
            SATURDAY => day - 1,
            _ => day,
        }
    }

    fn last_working(self) -> u32 {
        match self.weekday(self.length) {
            0 => self.length - 2,
            SATURDAY => self.length - 1,
            _ => self.length,
        }
    }
}

/// The numbers of the bits that are set.
fn bits(mut set: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(bit)
    })
}

impl Numbers {
    fn parse(field: Field<'_>) -> Result<Numbers, String> {
        let mut numbers = Numbers::default();
        for item in field.items() {
            if item == "L" {
                numbers.before_last |= 1;
            } else if item == "LW" {
                numbers.last_working = true;
            } else if let Some(before) = item.strip_prefix("L-") {
                let before = number(before).filter(|before| (1..=30).contains(before));
                let why = "counts 1 to 30 days back from the month's last day, as in `L-3`";
                numbers.before_last |= 1 << before.ok_or_else(|| field.refuse(format!("`{item}` {why}")))?;
            } else if let Some(day) = item.strip_suffix('W') {
                numbers.nearest |= 1 << field.value(day)?;
            } else {
                // A day is at most 31.
                numbers.days |= field.bits_of(field.span(item)?) as u32;
            }
        }
        Ok(numbers)
    }

    fn in_month(&self, month: Month) -> u32 {
        let mut days = self.days;
        for before in bits(self.before_last & ((1 << month.length) - 1)) {
            days |= 1 << (month.length - before);
        }
        for day in bits(self.nearest & month.all()) {
            days |= 1 << month.nearest_working(day);
        }
        if self.last_working {
            days |= 1 << month.last_working();
        }
        days
    }
}

impl Weekdays {
    fn parse(field: Field<'_>) -> Result<Weekdays, String> {
        let mut weekdays = Weekdays::default();
        for item in field.items() {
            if item == "L" {
                // Alone it is the last day of the week.
                weekdays.every |= 1 << SATURDAY;
            } else if let Some(weekday) = item.strip_suffix('L') {
                weekdays.last |= 1 << (field.value(weekday)? % 7);
            } else if let Some((weekday, nth)) = item.split_once('#') {
                let nth = number(nth).filter(|nth| (1..=WEEKS as u32).contains(nth));
                let nth = nth.ok_or_else(|| field.refuse(format!("after `#` comes 1 to {WEEKS}, as in `MON#2`")))?;
                weekdays.nth[nth as usize - 1] |= 1 << (field.value(weekday)? % 7);
            } else {
                weekdays.every |= field.bits_of(field.span(item)?) as u32;
            }
        }
        Ok(weekdays)
    }

    fn in_month(&self, month: Month) -> u32 {
        let every = bits(self.every).fold(0, |days, weekday| days | WEEKLY << month.first(weekday));
        let last = bits(self.last).fold(0, |days, weekday| {
            let first = month.first(weekday);
            days | 1 << (first + (month.length - first) / 7 * 7)
        });
        let nth = (0u32..).step_by(7).zip(self.nth).fold(0u64, |days, (later, set)| {
            bits(set).fold(days, |days, weekday| days | 1u64 << (month.first(weekday) + later))
        });
        // A fifth one may lie beyond the month.
        every | last | nth as u32 & month.all()
    }
}
