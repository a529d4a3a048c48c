//! Due times that were missed.

use super::{at, cron, delay, once_after, once_at, rate, rhythm};
use proptest::prelude::*;
use taskwheel_model::timer::{Due, Missed};
use taskwheel_model::{Misfire, MisfirePolicy, Rhythm, Time, Timer, limits};

const CURSOR: Time = Time(1_000_000_000);
const SKIP: Misfire = Misfire { policy: MisfirePolicy::Skip, max: 100 };
const FIRE_ONCE: Misfire = Misfire { policy: MisfirePolicy::FireOnce, max: 100 };

fn catch_up(max: u32) -> Misfire {
    Misfire { policy: MisfirePolicy::CatchUp, max }
}

fn nothing(next: Time) -> Due {
    Due { fire: vec![], missed: None, next: Some(next) }
}

fn missed(first: Time, last: Time, count: u64, fired: u64) -> Option<Missed> {
    Some(Missed { first, last, count, fired })
}

/// Due times after the cursor, in milliseconds.
fn later(due_ms: &[i64]) -> Vec<Time> {
    due_ms.iter().map(|ms| CURSOR.plus_ms(*ms)).collect()
}

#[test]
fn nothing_happens_before_the_cursor() {
    for timer in [cron("* * * * *", "UTC"), rate(1_000, 0), delay(1_000, 0), once_after(0), once_at(CURSOR)] {
        assert_eq!(rhythm(&timer).misfire(CURSOR, CURSOR.plus_ms(-1), FIRE_ONCE), nothing(CURSOR), "{timer:?}");
    }
}

#[test]
fn a_due_time_fires_and_the_cursor_moves_on() {
    for policy in [SKIP, FIRE_ONCE, catch_up(100)] {
        let due = rhythm(&rate(10_000, 0)).misfire(CURSOR, CURSOR, policy);
        assert_eq!(due, Due { fire: later(&[0]), missed: None, next: Some(CURSOR.plus_ms(10_000)) });
        let due = rhythm(&cron("* * * * * *", "UTC")).misfire(CURSOR, CURSOR.plus_ms(999), policy);
        assert_eq!(due, Due { fire: later(&[0]), missed: None, next: Some(CURSOR.plus_ms(1_000)) });
        for single in [delay(10_000, 0), once_after(0), once_at(CURSOR)] {
            let due = rhythm(&single).misfire(CURSOR, CURSOR.plus_ms(5_000), policy);
            assert_eq!(due, Due { fire: later(&[0]), missed: None, next: None }, "{single:?}");
        }
    }
}

#[test]
fn five_seconds_are_not_late_and_a_millisecond_more_is() {
    let minutely = rhythm(&cron("* * * * *", "UTC"));
    let cursor = at("2026-01-01T12:00:00Z");
    let next = Some(at("2026-01-01T12:01:00Z"));
    assert_eq!(minutely.misfire(cursor, cursor.plus_ms(5_000), SKIP), Due { fire: vec![cursor], missed: None, next });
    let due = minutely.misfire(cursor, cursor.plus_ms(5_001), SKIP);
    assert_eq!(due, Due { fire: vec![], missed: missed(cursor, cursor, 1, 0), next });
}

#[test]
fn each_policy_fires_its_part_of_what_was_missed() {
    let grid = rhythm(&rate(10_000, 0));
    // Due at 0, 10, 20, 30, 40 s: the last one is on time.
    let now = CURSOR.plus_ms(42_000);
    let next = Some(CURSOR.plus_ms(50_000));
    let of = |fired| missed(CURSOR, CURSOR.plus_ms(30_000), 4, fired);
    assert_eq!(grid.misfire(CURSOR, now, SKIP), Due { fire: later(&[40_000]), missed: of(0), next });
    assert_eq!(grid.misfire(CURSOR, now, FIRE_ONCE), Due { fire: later(&[30_000, 40_000]), missed: of(1), next });
    let two = Due { fire: later(&[20_000, 30_000, 40_000]), missed: of(2), next };
    assert_eq!(grid.misfire(CURSOR, now, catch_up(2)), two);
    let all = Due { fire: later(&[0, 10_000, 20_000, 30_000, 40_000]), missed: of(4), next };
    assert_eq!(grid.misfire(CURSOR, now, catch_up(4)), all);
    assert_eq!(grid.misfire(CURSOR, now, catch_up(100)), all);
}

#[test]
fn the_cursor_stays_on_the_grid_however_late_it_is_found() {
    let grid = rhythm(&rate(7_000, 0));
    for late_ms in [0, 1, 6_999, 7_000, 7_001, 1_234_567_890] {
        let now = CURSOR.plus_ms(late_ms);
        for policy in [SKIP, FIRE_ONCE, catch_up(3)] {
            let next = grid.misfire(CURSOR, now, policy).next.unwrap();
            assert!(next > now && next.ms_since(now) <= 7_000, "{late_ms}");
            assert_eq!(next.ms_since(CURSOR) % 7_000, 0, "{late_ms}");
        }
    }
}

#[test]
fn a_missed_fixed_delay_goes_on() {
    let rhythm = rhythm(&delay(10_000, 0));
    let now = CURSOR.plus_ms(25_000);
    let late = |fired| missed(CURSOR, CURSOR, 1, fired);
    let skipped = Due { fire: vec![], missed: late(0), next: Some(CURSOR.plus_ms(30_000)) };
    assert_eq!(rhythm.misfire(CURSOR, now, SKIP), skipped, "no run will end that could bring the next one");
    let fired = Due { fire: later(&[0]), missed: late(1), next: None };
    assert_eq!(rhythm.misfire(CURSOR, now, FIRE_ONCE), fired);
    assert_eq!(rhythm.misfire(CURSOR, now, catch_up(100)), fired);
}

#[test]
fn a_missed_once_fires_late_or_never() {
    for timer in [once_after(0), once_at(CURSOR)] {
        let rhythm = rhythm(&timer);
        let now = CURSOR.plus_ms(60_000);
        let late = |fired| missed(CURSOR, CURSOR, 1, fired);
        assert_eq!(rhythm.misfire(CURSOR, now, SKIP), Due { fire: vec![], missed: late(0), next: None });
        assert_eq!(rhythm.misfire(CURSOR, now, FIRE_ONCE), Due { fire: later(&[0]), missed: late(1), next: None });
    }
}

#[test]
fn what_was_due_before_the_end_is_missed_but_nothing_after_it() {
    let ended = |timer: Timer| rhythm(&Timer { end_at: Some(CURSOR.plus_ms(20_000)), ..timer });
    let now = CURSOR.plus_ms(60_000);
    let due = ended(rate(10_000, 0)).misfire(CURSOR, now, FIRE_ONCE);
    assert_eq!(due, Due { fire: later(&[10_000]), missed: missed(CURSOR, CURSOR.plus_ms(10_000), 2, 1), next: None });
    let due = ended(cron("0/10 * * * * *", "UTC")).misfire(CURSOR, now, SKIP);
    assert_eq!(due, Due { fire: vec![], missed: missed(CURSOR, CURSOR.plus_ms(10_000), 2, 0), next: None });
    let due = ended(rate(10_000, 0)).misfire(CURSOR.plus_ms(20_000), now, FIRE_ONCE);
    assert_eq!(due, Due { fire: vec![], missed: None, next: None });
    let due = ended(rate(10_000, 0)).misfire(CURSOR.plus_ms(10_000), CURSOR.plus_ms(14_000), FIRE_ONCE);
    assert_eq!(due, Due { fire: later(&[10_000]), missed: None, next: None });
}

#[test]
fn a_year_of_seconds_is_counted_without_walking_through_it() {
    const YEAR_S: i64 = 365 * 86_400;
    let cursor = at("2025-01-01T00:00:00Z");
    let now = cursor.plus_ms(YEAR_S * 1_000);
    for timer in [cron("* * * * * *", "America/New_York"), rate(1_000, 0)] {
        let rhythm = rhythm(&timer);
        let due = rhythm.misfire(cursor, now, catch_up(limits::CATCH_UP_MAX));
        let (seconds, caught_up) = (YEAR_S as u64, u64::from(limits::CATCH_UP_MAX));
        assert_eq!(due.missed, missed(cursor, now.plus_ms(-6_000), seconds - 5, caught_up), "{timer:?}");
        assert_eq!(due.fire.len() as u64, caught_up + 6, "{timer:?}");
        assert_eq!(due.fire.last(), Some(&now));
        assert!(due.fire.windows(2).all(|pair| pair[1] == pair[0].plus_ms(1_000)), "{timer:?}");
        assert_eq!(due.next, Some(now.plus_ms(1_000)));
    }
}

#[test]
fn a_cursor_that_the_rules_of_its_zone_left_behind_is_still_due() {
    let hourly = rhythm(&cron("@hourly", "UTC"));
    let odd = at("2026-01-01T12:20:00Z");
    let due = hourly.misfire(odd, odd, FIRE_ONCE);
    assert_eq!(due, Due { fire: vec![odd], missed: None, next: Some(at("2026-01-01T13:00:00Z")) });
    let due = hourly.misfire(odd, at("2026-01-01T14:30:00Z"), catch_up(100));
    assert_eq!(due.fire, [odd, at("2026-01-01T13:00:00Z"), at("2026-01-01T14:00:00Z")]);
    assert_eq!(due.missed, missed(odd, at("2026-01-01T14:00:00Z"), 3, 3));
}

/// The same decision by walking from due time to due time.
fn walked(rhythm: &Rhythm, cursor: Time, now: Time, misfire: Misfire) -> Due {
    let all: Vec<Time> =
        std::iter::successors(Some(cursor), |due| rhythm.next_due(*due)).take_while(|due| *due <= now).collect();
    let (late, on_time): (Vec<Time>, Vec<Time>) = all.iter().partition(|due| now.ms_since(**due) > 5_000);
    let fired = match misfire.policy {
        MisfirePolicy::Skip => 0,
        MisfirePolicy::FireOnce => late.len().min(1),
        MisfirePolicy::CatchUp => late.len().min(misfire.max as usize),
    };
    let fire = late[late.len() - fired..].iter().chain(&on_time).copied().collect();
    let missed = late.first().map(|first| Missed {
        first: *first,
        last: late[late.len() - 1],
        count: late.len() as u64,
        fired: fired as u64,
    });
    let next = all.last().map_or(Some(cursor), |last| rhythm.next_due(*last));
    Due { fire, missed, next }
}

proptest! {
    #[test]
    fn misfires_are_those_of_a_walk(
        timer in prop_oneof![
            (500..20_000i64).prop_map(|period_ms| rate(period_ms, 0)),
            Just(cron("* * * * * *", "UTC")),
            Just(cron("5/7 */3 * * * ?", "Europe/London")),
            Just(cron("*/2 1 * * *", "Europe/London")),
            Just(cron("0,20 * * * *", "Australia/Lord_Howe")),
        ],
        start_s in 0..10_000i64,
        late_ms in prop_oneof![-3_000..12_000i64, 0..7_200_000i64],
        policy in prop_oneof![Just(SKIP), Just(FIRE_ONCE), (1..50u32).prop_map(catch_up)],
        end_ms in prop_oneof![Just(None), (1..7_000_000i64).prop_map(Some)],
    ) {
        // The clocks of London are put back at 01:00.
        let online = at("2024-10-26T23:00:00Z").plus_ms(start_s * 1_000);
        let timer = Timer { end_at: end_ms.map(|ms| online.plus_ms(ms)), ..timer };
        let rhythm = rhythm(&timer);
        if let Some(cursor) = rhythm.first_due(online) {
            let now = cursor.plus_ms(late_ms);
            prop_assert_eq!(rhythm.misfire(cursor, now, policy), walked(&rhythm, cursor, now, policy));
        }
    }
}
