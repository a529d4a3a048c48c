//! The coming firings of several timers.

use super::{at, cron, delay, once_after, rate, rhythm};
use taskwheel_model::timer::{Coming, preview};
use taskwheel_model::{Rhythm, Time, Timer, limits};

const NOW: Time = Time(1_000_000);

fn online(timer: &Timer) -> (Rhythm, Option<Time>) {
    let rhythm = rhythm(timer);
    let cursor = rhythm.first_due(NOW);
    (rhythm, cursor)
}

fn coming(timers: &[Timer], from: Time, count: usize) -> Vec<(usize, i64)> {
    let timers: Vec<_> = timers.iter().map(online).collect();
    let relative = |Coming { timer, due }: Coming| (timer, due.ms_since(NOW));
    preview(&timers, from, count).into_iter().map(relative).collect()
}

#[test]
fn the_earliest_of_all_timers_is_first() {
    let timers = [rate(1_000, 0), rate(1_500, 100), once_after(1_000), delay(10, 2_050)];
    let expected = [(0, 0), (1, 100), (0, 1_000), (2, 1_000), (1, 1_600), (0, 2_000), (3, 2_050), (0, 3_000)];
    assert_eq!(coming(&timers, NOW, 8), expected);
    assert_eq!(coming(&timers, NOW, 3), expected[..3]);
    assert_eq!(coming(&timers, NOW.plus_ms(1_000), 6), expected[2..]);
}

#[test]
fn what_is_over_or_off_does_not_come() {
    let off = Timer { enabled: false, ..rate(1, 0) };
    let over = Timer { end_at: Some(NOW), ..rate(1, 0) };
    let short = Timer { end_at: Some(NOW.plus_ms(20)), ..rate(10, 0) };
    assert_eq!(coming(&[off, over, short], NOW, 10), [(2, 0), (2, 10)]);
    assert_eq!(coming(&[], NOW, 10), []);
    assert_eq!(coming(&[rate(1, 0)], NOW, 0), []);
}

#[test]
fn firings_at_the_change_of_clocks_are_shown_as_they_will_be() {
    let rhythm = rhythm(&cron("30 1 * * *", "Europe/London"));
    let cursor = rhythm.first_due(at("2024-10-26T12:00:00Z"));
    let due: Vec<Time> =
        preview(&[(rhythm, cursor)], at("2024-10-26T12:00:00Z"), 2).iter().map(|next| next.due).collect();
    assert_eq!(due, [at("2024-10-27T01:30:00+01:00"), at("2024-10-28T01:30:00Z")]);
}

#[test]
fn a_preview_has_a_maximum() {
    assert_eq!(coming(&[rate(1, 0)], NOW, usize::MAX).len(), limits::PREVIEW_MAX);
}
