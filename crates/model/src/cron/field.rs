//! One field of an expression: its values, and how lists, ranges and steps of them are written.

/// How weekdays are numbered. Everything else is the same in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// 5 fields: 0 or 7 is Sunday.
    Posix,
    /// 6 or 7 fields: 1 is Sunday.
    Quartz,
}

/// What a field counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Month,
    Weekday,
    Year,
}

/// First and last year that an expression can name; the last one in which anything can be due.
pub(super) const YEARS: (u32, u32) = (1970, 2999);

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Unit {
    fn word(self) -> &'static str {
        match self {
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
            Unit::Month => "month",
            Unit::Weekday => "weekday",
            Unit::Year => "year",
        }
    }

    /// The smallest and the largest number that may be written.
    fn bounds(self, dialect: Dialect) -> (u32, u32) {
        match (self, dialect) {
            (Unit::Second | Unit::Minute, _) => (0, 59),
            (Unit::Hour, _) => (0, 23),
            (Unit::Day, _) => (1, 31),
            (Unit::Month, _) => (1, 12),
            (Unit::Weekday, Dialect::Posix) => (0, 7),
            (Unit::Weekday, Dialect::Quartz) => (1, 7),
            (Unit::Year, _) => YEARS,
        }
    }

    /// The values behind the numbers, in order. Those of weekdays count from 0 = Sunday in both dialects.
    fn cycle(self) -> (u32, u32) {
        match self {
            Unit::Weekday => (0, 6),
            _ => self.bounds(Dialect::Posix),
        }
    }

    fn names(self) -> &'static [&'static str] {
        match self {
            Unit::Month => &MONTHS,
            Unit::Weekday => &WEEKDAYS,
            _ => &[],
        }
    }
}

/// A field as it was written, in capitals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) unit: Unit,
    pub(super) dialect: Dialect,
    pub(super) text: &'a str,
}

/// Values from one to another by a step. In a wrapped range `last` lies beyond the end of the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) step: u32,
}

impl Span {
    pub(super) fn contains(self, value: u32) -> bool {
        (self.first..=self.last).contains(&value) && (value - self.first).is_multiple_of(self.step)
    }
}

impl<'a> Field<'a> {
    /// A message about this field.
    pub(super) fn refuse(self, why: impl std::fmt::Display) -> String {
        format!("{} `{}`: {why}", self.unit.word(), self.text)
    }

    /// The parts of the list.
    pub(super) fn items(self) -> impl Iterator<Item = &'a str> {
        self.text.split(',')
    }

    /// Whether the field says nothing: `*`, `?`, or a list with `*` in it.
    pub(super) fn is_any(self) -> Result<bool, String> {
        if self.text == "?" {
            return match self.unit {
                Unit::Day | Unit::Weekday | Unit::Year => Ok(true),
                _ => Err(self.refuse("`?` is for day, weekday and year: write `*`")),
            };
        }
        if self.text.contains('?') {
            return Err(self.refuse("`?` stands alone: leave it out, or write nothing else"));
        }
        Ok(self.items().any(|item| matches!(item, "*" | "*/1")))
    }

    /// The values of the whole list, a bit for each.
    pub(super) fn bits(self) -> Result<u64, String> {
        self.is_any()?;
        self.items().try_fold(0, |bits, item| Ok(bits | self.bits_of(self.span(item)?)))
    }

    pub(super) fn bits_of(self, span: Span) -> u64 {
        let (min, max) = self.unit.cycle();
        let wrap = |value: u32| if value > max { value - (max - min + 1) } else { value };
        (span.first..=span.last).step_by(span.step as usize).fold(0, |bits, value| bits | 1 << wrap(value))
    }

    /// The values of one part of the list: `*`, `a`, `a-b`, and each with `/n`.
    pub(super) fn span(self, item: &str) -> Result<Span, String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(self.step(range, step)?)),
            None => (item, None),
        };
        let (min, max) = self.unit.cycle();
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (min, max),
            Some((first, last)) => self.range(first, last)?,
            // Seed 001 counts days from 0 where it steps through them.
            None if range == "0" && self.unit == Unit::Day && step.is_some() => (min, max),
            None => {
                let first = self.value(range)? % (max + 1);
                (first, if step.is_some() { max } else { first })
            }
        };
        Ok(Span { first, last, step: step.unwrap_or(1) })
    }

    fn range(self, first: &str, last: &str) -> Result<(u32, u32), String> {
        let (from, to) = (self.value(first)?, self.value(last)?);
        let (min, max) = self.unit.cycle();
        // A POSIX 7 ends a week as the day after Saturday, but begins one as 0.
        let (from, to) = if from > max { (min, to % (max + 1)) } else { (from, to) };
        if from <= to {
            return Ok((from, to));
        }
        if self.unit == Unit::Year {
            return Err(self.refuse(format!("years do not start again: write `{last}-{first}`")));
        }
        Ok((from, to + (max - min + 1)))
    }

    fn step(self, range: &str, step: &str) -> Result<u32, String> {
        let number = number(step).ok_or_else(|| self.refuse(format!("the step `{step}` is not a number")))?;
        if number == 0 {
            return Err(self.refuse("a step must be at least 1"));
        }
        let (min, max) = self.unit.bounds(self.dialect);
        let step_max = if self.unit == Unit::Year { max - min } else { max };
        if number > step_max {
            let word = self.unit.word();
            let once = if range == "*" { min.to_string() } else { range.to_owned() };
            return Err(self.refuse(format!(
                "the step {number} is larger than the field, whose steps end at {step_max}: write `{once}` alone, \
                 or use a fixed_rate timer for every {number} {word}s"
            )));
        }
        Ok(number)
    }

    /// A single value by number or name. Weekdays count from 0 = Sunday; only POSIX can also write it 7.
    pub(super) fn value(self, text: &str) -> Result<u32, String> {
        let (min, max) = self.unit.bounds(self.dialect);
        let (first, _) = self.unit.cycle();
        if let Some(index) = self.unit.names().iter().position(|name| *name == text) {
            return Ok(first + index as u32);
        }
        let Some(number) = number(text) else {
            return Err(self.refuse(self.not_a_value(text)));
        };
        if self.unit == Unit::Weekday && self.dialect == Dialect::Quartz {
            if number == 0 {
                let why = "with seconds, weekdays count from 1 = Sunday to 7 = Saturday: write `1` or `SUN` for Sunday";
                return Err(self.refuse(why));
            }
            return if number <= max { Ok(number - 1) } else { Err(self.out_of_range(text)) };
        }
        if (min..=max).contains(&number) { Ok(number) } else { Err(self.out_of_range(text)) }
    }

    fn out_of_range(self, text: &str) -> String {
        let (min, max) = self.unit.bounds(self.dialect);
        self.refuse(format!("`{text}` must be between {min} and {max}"))
    }

    fn not_a_value(self, text: &str) -> String {
        let (min, max) = self.unit.bounds(self.dialect);
        let names = match self.unit.names() {
            [first, .., last] => format!(", or {first} to {last}"),
            _ => String::new(),
        };
        let special = match self.unit {
            Unit::Day => ", or `L`, `L-3`, `LW` or `15W`",
            Unit::Weekday => ", or as in `FRIL` or `MON#2`",
            _ => "",
        };
        match text {
            "" => format!("a value is missing: write {min} to {max}{names}{special}"),
            _ => format!("`{text}` is not a value: write {min} to {max}{names}{special}"),
        }
    }
}

/// A number of at most four digits.
pub(super) fn number(text: &str) -> Option<u32> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}
