//! The search beside one that walks through time step by step and watches a wall clock.

use super::expression::{Expression, to_the_day, to_the_minute, to_the_second};
use super::{at, zone};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;
use taskwheel_model::{Cron, Time};

/// Changes of clocks: by an hour and by half, at midnight, by a day, by a quarter of an hour for good, and from an offset
/// with seconds in it.
const CHANGES: [(&str, &str); 14] = [
    ("America/New_York", "2024-03-10T07:00:00Z"),
    ("America/New_York", "2024-11-03T06:00:00Z"),
    ("Europe/London", "2024-03-31T01:00:00Z"),
    ("Europe/London", "2024-10-27T01:00:00Z"),
    ("Australia/Lord_Howe", "2024-04-06T15:00:00Z"),
    ("Australia/Lord_Howe", "2024-10-05T15:30:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("Asia/Shanghai", "1986-05-03T18:00:00Z"),
    ("Asia/Shanghai", "1991-09-14T17:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Asia/Kathmandu", "1985-12-31T18:30:00Z"),
    ("Africa/Monrovia", "1972-01-07T00:44:30Z"),
    ("UTC", "2024-02-29T00:00:00Z"),
];

fn change() -> impl Strategy<Value = (TimeZone, Time)> {
    (0..CHANGES.len()).prop_map(|index| (zone(CHANGES[index].0), at(CHANGES[index].1)))
}

/// What a wall clock shows, in seconds.
fn wall(time: Time, zone: &TimeZone) -> i64 {
    let timestamp = Timestamp::from_millisecond(time.0).unwrap();
    timestamp.as_second() + i64::from(zone.to_offset(timestamp).seconds())
}

/// All firings of a time, found by walking through it. `step_s` divides all that the expression and the zone do.
fn walk(expression: &Expression, zone: &TimeZone, from: Time, before: Time, step_s: i64) -> Vec<Time> {
    let matches = |wall: i64| expression.matches(Offset::UTC.to_datetime(Timestamp::from_second(wall).unwrap()));
    let mut fired = Vec::new();
    let mut time = from;
    // The latest that the clock has shown so far.
    let mut seen = wall(from.plus_ms(-step_s * 1_000), zone);
    while time < before {
        let shown = wall(time, zone);
        let fires = if expression.is_elapsed() {
            matches(shown)
        } else {
            // All that the clock has passed since it was looked at, which is nothing where it was put back.
            (seen + 1..=shown).filter(|wall| wall % step_s == 0).any(matches)
        };
        if fires {
            fired.push(time);
        }
        seen = seen.max(shown);
        time = time.plus_ms(step_s * 1_000);
    }
    fired
}

fn found(cron: &Cron, zone: &TimeZone, from: Time, before: Time) -> Vec<Time> {
    let all = std::iter::successors(cron.next_from(from, zone), |due| cron.next_after(*due, zone));
    all.take_while(|due| *due < before).collect()
}

fn found_backwards(cron: &Cron, zone: &TimeZone, from: Time, before: Time) -> Vec<Time> {
    let all = std::iter::successors(cron.last_before(before, zone), |due| cron.last_before(*due, zone));
    let mut found: Vec<Time> = all.take_while(|due| *due >= from).collect();
    found.reverse();
    found
}

/// The expression as the parser understands it, or nothing where it rightly says that it never fires.
fn parsed(expression: &Expression) -> Option<Cron> {
    let text = expression.text();
    Cron::parse(&text)
        .map_err(|error| {
            assert!(error.message.contains("never fires"), "{text}: {error}");
            // A leap year is among them.
            let date = (0..4 * 366).map(|day| jiff::civil::date(2024, 1, 1) + day.days());
            assert_eq!(date.filter(|date| expression.matches_date(*date)).count(), 0, "{text}: {error}");
        })
        .ok()
}

fn agrees(
    expression: &Expression,
    zone: &TimeZone,
    from: Time,
    before: Time,
    step_s: i64,
) -> Result<(), TestCaseError> {
    let text = expression.text();
    let Some(cron) = parsed(expression) else { return Ok(()) };
    let walked = walk(expression, zone, from, before, step_s);
    prop_assert_eq!(&found(&cron, zone, from, before), &walked, "{}", text);
    prop_assert_eq!(&found_backwards(&cron, zone, from, before), &walked, "{} backwards", text);
    prop_assert_eq!(cron.count_between(from, before, zone), walked.len() as u64, "{} counted", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn firings_to_the_second_are_those_of_a_walk(
        expression in to_the_second(),
        (zone, change) in change(),
        before_s in 5_400..7_200i64,
    ) {
        let from = change.plus_ms(-before_s * 1_000);
        agrees(&expression, &zone, from, change.plus_ms(7_200_000), 1)?;
    }

    #[test]
    fn firings_of_twelve_years_are_those_of_a_walk(expression in to_the_day()) {
        let first = jiff::civil::date(2023, 1, 1);
        let days = (0..12 * 365).map(|day| first + day.days()).filter(|date| expression.matches_date(*date));
        let walked: Vec<Time> =
            days.map(|date| Time(Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).unwrap().as_millisecond())).collect();
        let (from, utc) = (at("2023-01-01T00:00:00Z"), zone("UTC"));
        let before = from.plus_ms(12 * 365 * 86_400_000);
        let text = expression.text();
        let Some(cron) = parsed(&expression) else { return Ok(()) };
        prop_assert_eq!(&found(&cron, &utc, from, before), &walked, "{}", text);
        prop_assert_eq!(&found_backwards(&cron, &utc, from, before), &walked, "{} backwards", text);
        prop_assert_eq!(cron.count_between(from, before, &utc), walked.len() as u64, "{} counted", text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, ..ProptestConfig::default() })]

    #[test]
    fn firings_to_the_minute_are_those_of_a_walk(expression in to_the_minute(), index in 0..CHANGES.len() - 2) {
        let zone = zone(CHANGES[index].0);
        let change = at(CHANGES[index].1);
        let days = |days: i64| change.plus_ms(days * 86_400_000);
        agrees(&expression, &zone, days(-5), days(9), 60)?;
    }
}
