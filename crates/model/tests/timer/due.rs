//! Due times: the first one, the next one, and those after time offline.

use super::{at, cron, delay, once_after, once_at, rate, rhythm};
use taskwheel_model::{Time, Timer, limits};

const ONLINE: Time = Time(1_000_000);

fn valid(start: i64, end: i64, timer: Timer) -> Timer {
    Timer { start_at: Some(Time(start)), end_at: Some(Time(end)), ..timer }
}

#[test]
fn cron_is_due_at_its_local_times() {
    let rhythm = rhythm(&cron("0 9 * * MON-FRI", "America/New_York"));
    let friday = at("2026-03-06T09:00:00-05:00");
    assert_eq!(rhythm.first_due(friday), Some(friday), "a time at which it comes online counts");
    assert_eq!(rhythm.next_due(friday), Some(at("2026-03-09T09:00:00-04:00")), "the clocks change on Sunday");
    assert_eq!(rhythm.due_after_run(friday), None);
    assert!(!rhythm.waits_for_run());
}

#[test]
fn fixed_rate_keeps_its_grid() {
    let rhythm = rhythm(&rate(1_000, 300));
    let first = rhythm.first_due(ONLINE).unwrap();
    assert_eq!(first, ONLINE.plus_ms(300));
    assert_eq!(rhythm.next_due(first), Some(first.plus_ms(1_000)));
    assert_eq!(rhythm.resume(first, ONLINE), Some(first), "not due yet");
    assert_eq!(rhythm.resume(first, first), Some(first));
    assert_eq!(rhythm.resume(first, first.plus_ms(1)), Some(first.plus_ms(1_000)));
    assert_eq!(rhythm.resume(first, first.plus_ms(86_399_500)), Some(first.plus_ms(86_400_000)));
    assert_eq!(rhythm.due_after_run(first), None);
}

#[test]
fn fixed_delay_counts_from_the_end_of_its_run() {
    let rhythm = rhythm(&delay(1_000, 300));
    let first = rhythm.first_due(ONLINE).unwrap();
    assert_eq!(first, ONLINE.plus_ms(300));
    assert_eq!(rhythm.next_due(first), None, "unknown until the run has ended");
    assert!(rhythm.waits_for_run());
    let ended = first.plus_ms(12_345);
    assert_eq!(rhythm.due_after_run(ended), Some(ended.plus_ms(1_000)));
    assert_eq!(rhythm.resume(first, ONLINE), Some(first));
    let back = first.plus_ms(5_000);
    assert_eq!(rhythm.resume(first, back), Some(back), "no run will end that could bring the next one");
}

#[test]
fn once_has_one_due_time() {
    let after = rhythm(&once_after(5_000));
    let due = after.first_due(ONLINE).unwrap();
    assert_eq!(due, ONLINE.plus_ms(5_000));
    assert_eq!(after.next_due(due), None);
    assert_eq!(after.resume(due, ONLINE.plus_ms(3_000)), Some(due), "it became a fixed time when it first came online");
    assert_eq!(after.resume(due, due.plus_ms(1)), None, "it would have been due while offline");
    let fixed = rhythm(&once_at(ONLINE));
    assert_eq!(fixed.first_due(ONLINE.plus_ms(-9)), Some(ONLINE));
    assert_eq!(fixed.first_due(ONLINE.plus_ms(9)), Some(ONLINE), "what was asked for shall happen");
    assert_eq!(fixed.next_due(ONLINE), None);
    assert_eq!(fixed.due_after_run(ONLINE), None);
}

#[test]
fn nothing_is_due_before_the_start() {
    let start = ONLINE.plus_ms(700);
    let from = |timer: Timer| rhythm(&Timer { start_at: Some(start), ..timer }).first_due(ONLINE);
    assert_eq!(from(rate(1_000, 0)), Some(start), "the grid begins there");
    assert_eq!(from(rate(1_000, 30)), Some(start.plus_ms(30)));
    assert_eq!(from(delay(1_000, 30)), Some(start.plus_ms(30)));
    assert_eq!(from(once_after(5)), Some(start.plus_ms(5)));
    assert_eq!(from(cron("* * * * * *", "UTC")), Some(Time(1_001_000)));
    let past = rhythm(&Timer { start_at: Some(Time(0)), ..rate(1_000, 30) });
    assert_eq!(past.first_due(ONLINE), Some(ONLINE.plus_ms(30)), "a start that has passed changes nothing");
}

#[test]
fn nothing_is_due_at_the_end_or_after_it() {
    let end = ONLINE.0 + 2_000;
    let grid = rhythm(&valid(0, end, rate(1_000, 0)));
    assert_eq!(grid.first_due(ONLINE), Some(ONLINE));
    assert_eq!(grid.next_due(ONLINE), Some(ONLINE.plus_ms(1_000)));
    assert_eq!(grid.next_due(ONLINE.plus_ms(1_000)), None);
    assert_eq!(grid.first_due(Time(end)), None);
    assert_eq!(grid.resume(ONLINE, Time(end - 1)), None);
    let seconds = rhythm(&valid(0, end, cron("* * * * * *", "UTC")));
    assert_eq!(seconds.next_due(ONLINE), Some(ONLINE.plus_ms(1_000)));
    assert_eq!(seconds.next_due(ONLINE.plus_ms(1_000)), None);
    let delayed = rhythm(&valid(0, end, delay(1_000, 0)));
    assert_eq!(delayed.due_after_run(Time(end - 1_001)), Some(Time(end - 1)));
    assert_eq!(delayed.due_after_run(Time(end - 1_000)), None);
    assert_eq!(rhythm(&valid(0, end, once_after(2_000))).first_due(ONLINE), None);
}

#[test]
fn a_timer_that_is_off_is_never_due() {
    for timer in [cron("* * * * *", "UTC"), rate(1, 0), delay(1, 0), once_after(1), once_at(ONLINE)] {
        let off = rhythm(&Timer { enabled: false, ..timer });
        assert_eq!(off.first_due(ONLINE), None);
        assert_eq!(off.resume(ONLINE, ONLINE), None);
    }
}

#[test]
fn time_offline_is_never_due_for_cron() {
    let hourly = rhythm(&cron("@hourly", "UTC"));
    let noon = at("2026-01-01T12:00:00Z");
    assert_eq!(hourly.resume(noon, noon.plus_ms(-1)), Some(noon));
    assert_eq!(hourly.resume(noon, noon.plus_ms(1)), Some(at("2026-01-01T13:00:00Z")));
    assert_eq!(hourly.resume(noon, at("2026-05-01T17:20:00Z")), Some(at("2026-05-01T18:00:00Z")));
}

#[test]
fn nothing_is_due_after_the_end_of_time() {
    let last = Time(limits::TIME_MS_MAX);
    assert_eq!(rhythm(&rate(1_000, 0)).next_due(last), None);
    assert_eq!(rhythm(&rate(limits::TIMER_MS_MAX, 0)).next_due(last), None);
    assert_eq!(rhythm(&delay(1, 0)).due_after_run(last), None);
    assert_eq!(rhythm(&once_after(1)).first_due(last), None);
    assert_eq!(rhythm(&cron("* * * * *", "UTC")).next_due(last), None);
}
