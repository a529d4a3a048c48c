//! Cron expressions: `ZONE TIME EXPRESSION`, where the time is in seconds and the zone one of a few with odd days.

use jiff::tz::TimeZone;
use taskwheel_model::{Cron, Time, limits, zone};

const ZONES: [&str; 5] = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Shanghai", "America/St_Johns"];
/// An expression that fires rarely is searched through many years, so a few firings are enough.
const FIRINGS: usize = 4;

pub(crate) fn cron(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut words = text.splitn(3, ' ');
    let (Some(zone), Some(seconds), Some(expression)) = (words.next(), words.next(), words.next()) else { return };
    let (Ok(zone), Ok(seconds)) = (zone.parse::<usize>(), seconds.parse::<i64>()) else { return };
    let Ok(cron) = Cron::parse(expression) else { return };
    assert_eq!(Cron::parse(cron.text()).as_ref(), Ok(&cron), "an expression that is shown is read as the same");
    let zone = zone::find("zone", ZONES[zone % ZONES.len()]).expect("the zone is a known one");
    firings(&cron, &zone, Time(seconds.saturating_mul(1_000).clamp(0, limits::TIME_MS_MAX)));
}

/// Each firing is later than the one before, and found from both sides.
fn firings(cron: &Cron, zone: &TimeZone, from: Time) {
    let mut before = from;
    for _ in 0..FIRINGS {
        let Some(next) = cron.next_after(before, zone) else { return };
        assert!(next > before, "{next:?} does not come after {before:?}");
        assert_eq!(cron.next_from(next, zone), Some(next), "a firing is the first from itself on");
        assert_eq!(cron.last_before(next.plus_ms(1), zone), Some(next), "and the last up to itself");
        assert_eq!(cron.count_between(before.plus_ms(1), next.plus_ms(1), zone), 1, "and alone there");
        before = next;
    }
}
