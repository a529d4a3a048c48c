//! Cron expressions: what is accepted and what it means, what is refused and how, and what happens when clocks change.

mod daylight;
mod expression;
mod meaning;
mod reference;
mod refusals;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use taskwheel_model::{Cron, Time, zone};

fn cron(text: &str) -> Cron {
    Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn zone(name: &str) -> TimeZone {
    zone::find("timezone", name).unwrap()
}

/// A time by RFC 3339.
fn at(text: &str) -> Time {
    Time(text.parse::<Timestamp>().unwrap_or_else(|error| panic!("{text}: {error}")).as_millisecond())
}

/// A time as a clock in the zone shows it, with the zone's offset.
fn shown(time: Time, zone: &TimeZone) -> String {
    let timestamp = Timestamp::from_millisecond(time.0).unwrap();
    format!("{}{}", zone.to_datetime(timestamp), zone.to_offset(timestamp))
}

/// The first firings after a time, as clocks show them.
fn firings(text: &str, zone_name: &str, after: &str, count: usize) -> Vec<String> {
    let (cron, zone) = (cron(text), zone(zone_name));
    let first = cron.next_after(at(after), &zone);
    let all = std::iter::successors(first, |due| cron.next_after(*due, &zone));
    all.take(count).map(|due| shown(due, &zone)).collect()
}
