//! Random expressions together with what they mean, so that a test need not trust the parser.

use jiff::ToSpan;
use jiff::civil::{Date, DateTime};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// An expression with seconds, and what it means.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    seconds: Part,
    minutes: Part,
    hours: Part,
    months: Part,
    day: Day,
}

/// A field and its values.
#[derive(Clone, Debug)]
struct Part {
    text: String,
    values: BTreeSet<i8>,
}

/// The fields day and weekday, one of which is `?`.
#[derive(Clone, Debug)]
enum Day {
    Any,
    Numbers(Part),
    BeforeLast(i8),
    NearestWorking(i8),
    LastWorking,
    /// From 1 = Sunday, as Quartz writes them.
    Weekdays(Part),
    Nth(i8, i8),
    Last(i8),
}

impl Expression {
    /// Whether firings follow elapsed time.
    pub(crate) fn is_elapsed(&self) -> bool {
        self.hours.text.contains(['*', '/'])
    }

    pub(crate) fn text(&self) -> String {
        let (day, weekday) = match &self.day {
            Day::Any => ("*".into(), "?".into()),
            Day::Numbers(part) => (part.text.clone(), "?".into()),
            Day::BeforeLast(0) => ("L".into(), "?".into()),
            Day::BeforeLast(days) => (format!("L-{days}"), "*".into()),
            Day::NearestWorking(day) => (format!("{day}W"), "?".into()),
            Day::LastWorking => ("LW".into(), "?".into()),
            Day::Weekdays(part) => ("?".to_owned(), part.text.clone()),
            Day::Nth(weekday, nth) => ("?".into(), format!("{weekday}#{nth}")),
            Day::Last(weekday) => ("*".into(), format!("{weekday}L")),
        };
        let Expression { seconds, minutes, hours, months, .. } = self;
        format!("{} {} {} {day} {} {weekday}", seconds.text, minutes.text, hours.text, months.text)
    }

    pub(crate) fn matches(&self, local: DateTime) -> bool {
        self.seconds.values.contains(&local.second())
            && self.minutes.values.contains(&local.minute())
            && self.hours.values.contains(&local.hour())
            && self.matches_date(local.date())
    }

    pub(crate) fn matches_date(&self, date: Date) -> bool {
        self.months.values.contains(&date.month()) && self.day.matches(date)
    }
}

impl Day {
    fn matches(&self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_one_offset();
        let month = || (1..=date.days_in_month()).map(|day| Date::new(date.year(), date.month(), day).unwrap());
        let is_working = |date: &Date| !matches!(date.weekday().to_sunday_one_offset(), 1 | 7);
        match self {
            Day::Any => true,
            Day::Numbers(part) => part.values.contains(&date.day()),
            Day::BeforeLast(days) => date.day() + days == date.days_in_month(),
            Day::NearestWorking(day) => {
                *day <= date.days_in_month()
                    && month().filter(is_working).min_by_key(|date| (date.day() - day).abs()) == Some(date)
            }
            Day::LastWorking => month().rfind(is_working) == Some(date),
            Day::Weekdays(part) => part.values.contains(&weekday),
            Day::Nth(wanted, nth) => {
                *wanted == weekday
                    && month().filter(|other| other.weekday() == date.weekday()).nth(*nth as usize - 1) == Some(date)
            }
            Day::Last(wanted) => *wanted == weekday && (date + 7.days()).month() != date.month(),
        }
    }
}

/// The values from one to another by a step, over the end of the field if need be.
fn walk(min: i8, max: i8, first: i8, last: i8, step: i8) -> BTreeSet<i8> {
    let mut values = BTreeSet::new();
    let (mut value, mut walked) = (first, 0);
    loop {
        if walked % step == 0 {
            values.insert(value);
        }
        if value == last {
            return values;
        }
        (value, walked) = (if value == max { min } else { value + 1 }, walked + 1);
    }
}

/// One item of a list.
fn item(min: i8, max: i8) -> impl Strategy<Value = Part> {
    let value = min..=max;
    let step = 1..=max;
    let part = |text: String, values| Part { text, values };
    prop_oneof![
        1 => Just(part("*".into(), walk(min, max, min, max, 1))),
        4 => value.clone().prop_map(move |value| part(value.to_string(), BTreeSet::from([value]))),
        3 => (value.clone(), value.clone())
            .prop_map(move |(a, b)| part(format!("{a}-{b}"), walk(min, max, a, b, 1))),
        2 => step.clone().prop_map(move |n| part(format!("*/{n}"), walk(min, max, min, max, n))),
        2 => (value.clone(), step.clone()).prop_map(move |(a, n)| part(format!("{a}/{n}"), walk(min, max, a, max, n))),
        2 => (value.clone(), value, step)
            .prop_map(move |(a, b, n)| part(format!("{a}-{b}/{n}"), walk(min, max, a, b, n))),
    ]
}

/// A list.
fn part(min: i8, max: i8) -> impl Strategy<Value = Part> {
    vec(item(min, max), 1..=3).prop_map(|items| Part {
        text: items.iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join(","),
        values: items.into_iter().flat_map(|item| item.values).collect(),
    })
}

fn fixed(value: i8) -> Just<Part> {
    Just(Part { text: value.to_string(), values: BTreeSet::from([value]) })
}

fn any(min: i8, max: i8) -> Just<Part> {
    Just(Part { text: "*".into(), values: (min..=max).collect() })
}

/// Hours near midnight, where clocks change, more often than others.
fn hours() -> impl Strategy<Value = Part> {
    prop_oneof![
        3 => part(0, 23),
        2 => (0..=3i8).prop_flat_map(fixed),
        2 => (0..=2i8, 1..=3i8).prop_map(|(a, n)| Part { text: format!("{a}-{}", a + n), values: (a..=a + n).collect() }),
        1 => any(0, 23),
    ]
}

fn day() -> impl Strategy<Value = Day> {
    prop_oneof![
        4 => Just(Day::Any),
        3 => part(1, 31).prop_map(Day::Numbers),
        1 => (0..=27i8).prop_map(Day::BeforeLast),
        1 => (1..=28i8).prop_map(Day::NearestWorking),
        1 => Just(Day::LastWorking),
        3 => part(1, 7).prop_map(Day::Weekdays),
        1 => (1..=7i8, 1..=4i8).prop_map(|(weekday, nth)| Day::Nth(weekday, nth)),
        1 => (1..=7i8).prop_map(Day::Last),
    ]
}

/// Any expression.
pub(crate) fn to_the_second() -> impl Strategy<Value = Expression> {
    (part(0, 59), part(0, 59), hours(), any(1, 12), Just(Day::Any))
        .prop_map(|(seconds, minutes, hours, months, day)| Expression { seconds, minutes, hours, months, day })
}

/// An expression that fires at full minutes only.
pub(crate) fn to_the_minute() -> impl Strategy<Value = Expression> {
    let months = prop_oneof![2 => any(1, 12).boxed(), 1 => part(1, 12).boxed()];
    (fixed(0), part(0, 59), hours(), months, day()).prop_map(|(seconds, minutes, hours, months, day)| Expression {
        seconds,
        minutes,
        hours,
        months,
        day,
    })
}

/// An expression that fires at midnight only.
pub(crate) fn to_the_day() -> impl Strategy<Value = Expression> {
    (fixed(0), fixed(0), fixed(0), part(1, 12), day()).prop_map(|(seconds, minutes, hours, months, day)| Expression {
        seconds,
        minutes,
        hours,
        months,
        day,
    })
}
