//! What is accepted, and what it means.

use super::{at, cron, firings, zone};
use taskwheel_model::{Time, limits};

/// The first firings in UTC after the start of 2026, a Thursday.
fn in_2026(text: &str, count: usize) -> Vec<String> {
    firings(text, "UTC", "2025-12-31T23:59:59Z", count)
        .into_iter()
        .map(|shown| shown.trim_end_matches("+00").to_owned())
        .collect()
}

/// The days of the first firings after the start of 2026.
fn days(text: &str, count: usize) -> Vec<String> {
    in_2026(text, count).into_iter().map(|shown| shown.split('T').next().unwrap()["2026-".len()..].to_owned()).collect()
}

/// The times of day of the first firings after the start of 2026.
fn times(text: &str, count: usize) -> Vec<String> {
    in_2026(text, count).into_iter().map(|shown| shown.split('T').nth(1).unwrap().to_owned()).collect()
}

#[track_caller]
fn assert_same(texts: &[&str]) {
    for text in texts {
        assert_eq!(in_2026(text, 40), in_2026(texts[0], 40), "{text} is not {}", texts[0]);
    }
}

#[test]
fn both_expressions_of_the_seed_are_accepted() {
    assert_eq!(times("0/5 * * * * * ?", 3), ["00:00:00", "00:00:05", "00:00:10"]);
    assert_eq!(in_2026("12 12 12 0/2 * *", 3), ["2026-01-01T12:12:12", "2026-01-03T12:12:12", "2026-01-05T12:12:12"]);
    assert_same(&["12 12 12 0/2 * *", "12 12 12 1/2 * ?", "12 12 12 */2 * *"]);
}

#[test]
fn the_number_of_fields_chooses_the_weekdays() {
    assert_eq!(days("0 0 * * 1", 2), ["01-05", "01-12"], "POSIX: Monday");
    assert_eq!(days("0 0 0 ? * 1", 2), ["01-04", "01-11"], "Quartz: Sunday");
    assert_eq!(days("0 0 0 ? * 1 2026", 2), ["01-04", "01-11"], "Quartz: Sunday");
    assert_same(&["0 0 * * 0", "0 0 * * 7", "0 0 * * SUN", "0 0 0 ? * 1", "0 0 0 * * sun"]);
    assert_same(&["0 0 * * 6", "0 0 * * Sat", "0 0 0 ? * 7", "0 0 0 ? * SAT", "0 0 * * L", "0 0 0 ? * L"]);
}

#[test]
fn posix_takes_either_day_or_weekday_where_both_are_given() {
    assert_eq!(days("0 0 10,20 * FRI", 6), ["01-02", "01-09", "01-10", "01-16", "01-20", "01-23"]);
    assert_eq!(days("0 0 10,20 * *", 2), ["01-10", "01-20"]);
    assert_eq!(days("0 0 10,20 * ?", 2), ["01-10", "01-20"]);
    assert_eq!(days("0 0 * * FRI", 2), ["01-02", "01-09"]);
    assert_eq!(days("0 0 ? * FRI", 2), ["01-02", "01-09"]);
    assert_eq!(days("0 0 */10 * FRI", 4), ["01-01", "01-02", "01-09", "01-11"], "a step is given, too");
    assert_eq!(days("0 0 */1 * FRI", 2), ["01-02", "01-09"], "a step of 1 is not");
    assert_eq!(days("0 0 30 2 FRI", 2), ["02-06", "02-13"], "the weekday alone can fire");
}

#[test]
fn lists_ranges_and_steps_are_understood() {
    assert_eq!(times("5,10,7 0 * * *", 3), ["00:05:00", "00:07:00", "00:10:00"]);
    assert_eq!(times("3-5 0 * * *", 3), ["00:03:00", "00:04:00", "00:05:00"]);
    assert_eq!(times("*/25 0 * * *", 4), ["00:00:00", "00:25:00", "00:50:00", "00:00:00"]);
    assert_eq!(times("10/25 0 * * *", 3), ["00:10:00", "00:35:00", "00:10:00"]);
    assert_eq!(times("10-40/25 0 * * *", 3), ["00:10:00", "00:35:00", "00:10:00"]);
    assert_eq!(times("1-3,30/20 0 * * *", 6), ["00:01:00", "00:02:00", "00:03:00", "00:30:00", "00:50:00", "00:01:00"]);
    assert_eq!(times("10-20/59 0 * * *", 2), ["00:10:00", "00:10:00"], "a step may leave its range");
    assert_eq!(days("0 0 1 */5 *", 4), ["01-01", "06-01", "11-01", "01-01"]);
    assert_same(&["*,5 * * * *", "* * * * *", "*/1 * * * *", "0-59 * * * *", "0 * * * * ?"]);
}

#[test]
fn ranges_wrap() {
    assert_eq!(times("0 22-2 * * *", 5), ["00:00:00", "01:00:00", "02:00:00", "22:00:00", "23:00:00"]);
    assert_eq!(times("0 22-3/2 * * *", 3), ["00:00:00", "02:00:00", "22:00:00"]);
    assert_eq!(times("0 21-3/2 * * *", 4), ["01:00:00", "03:00:00", "21:00:00", "23:00:00"]);
    assert_eq!(days("0 0 * * FRI-MON", 5), ["01-02", "01-03", "01-04", "01-05", "01-09"]);
    assert_same(&["0 0 * * FRI-MON", "0 0 * * 5-1", "0 0 * * 5-7,1", "0 0 0 ? * 6-2", "0 0 0 ? * FRI-MON"]);
    assert_same(&["0 0 * * SUN-TUE", "0 0 * * 0-2", "0 0 * * 7-2", "0 0 0 ? * 1-3"]);
    assert_same(&["0 0 * * 0-7", "0 0 * * 0-6", "0 0 * * 3-2", "0 0 0 ? * 1-7", "@daily"]);
    assert_same(&["0 0 * * 7-7", "0 0 * * 7-0", "0 0 * * 7"]);
    assert_same(&["0 0 * * 0/2", "0 0 * * */2", "0 0 * * 0,2,4,6", "0 0 0 ? * 1/2"]);
    assert_eq!(days("0 0 30-2 * *", 6), ["01-01", "01-02", "01-30", "01-31", "02-01", "02-02"]);
    assert_eq!(days("0 0 1 NOV-FEB *", 5), ["01-01", "02-01", "11-01", "12-01", "01-01"]);
    assert_eq!(times("58-1 0 0 * * *", 5), ["00:00:00", "00:00:01", "00:00:58", "00:00:59", "00:00:00"]);
}

#[test]
fn names_are_understood_in_any_case() {
    assert_same(&["0 0 1 JAN,jul *", "0 0 1 1,7 *", "0 0 1 Jan/6 *", "0 0 1 jan-dec/6 *"]);
    assert_same(&["0 0 * * mon-fri", "0 0 * * MON-FRI", "0 0 * * 1-5", "0 0 0 ? * 2-6"]);
}

#[test]
fn days_count_from_the_end_of_the_month() {
    assert_eq!(days("0 0 L * *", 4), ["01-31", "02-28", "03-31", "04-30"]);
    assert_eq!(days("0 0 L-3 * *", 3), ["01-28", "02-25", "03-28"]);
    assert_eq!(days("0 0 L-28 2 *", 1).len(), 1, "29 days back fit a leap year alone");
    assert_eq!(days("0 0 l,1 * *", 4), ["01-01", "01-31", "02-01", "02-28"]);
    // 31 January 2026 is a Saturday, 28 February one, too; 31 May is a Sunday.
    assert_eq!(days("0 0 LW * *", 5), ["01-30", "02-27", "03-31", "04-30", "05-29"]);
}

#[test]
fn the_nearest_working_day_stays_in_its_month() {
    // In 2026, 15 February, 15 March and 15 November are Sundays, 15 August is a Saturday.
    assert_eq!(days("0 0 15W 2,3,8,11 *", 4), ["02-16", "03-16", "08-14", "11-16"]);
    // 1 August 2026 is a Saturday, 1 February, 1 March and 1 November are Sundays.
    assert_eq!(days("0 0 1W 2,3,8,11 *", 4), ["02-02", "03-02", "08-03", "11-02"]);
    // 31 May 2026 is a Sunday, 31 January and 31 October are Saturdays; April has no 31st.
    assert_eq!(days("0 0 31W 1,4,5,10 *", 3), ["01-30", "05-29", "10-30"]);
    assert_same(&["0 0 0 1W,15W * ?", "0 0 1W,15W * *"]);
}

#[test]
fn weekdays_count_within_the_month() {
    assert_eq!(days("0 0 * * MON#2", 3), ["01-12", "02-09", "03-09"]);
    assert_same(&["0 0 * * MON#2", "0 0 * * 1#2", "0 0 0 ? * 2#2", "0 0 0 ? * MON#2"]);
    assert_eq!(days("0 0 0 ? * 2#3", 2), ["01-19", "02-16"]);
    assert_eq!(days("0 0 * * THU#5", 3), ["01-29", "04-30", "07-30"], "most months have no fifth one");
    assert_eq!(days("0 0 * * FRIL", 3), ["01-30", "02-27", "03-27"]);
    assert_same(&["0 0 * * FRIL", "0 0 * * 5L", "0 0 0 ? * 6L", "0 0 0 ? * FRIL"]);
    assert_same(&["0 0 * * SUNL", "0 0 * * 0L", "0 0 * * 7L", "0 0 0 ? * 1L"]);
    assert_eq!(days("0 0 * * MON#1,MONL,WED", 5), ["01-05", "01-07", "01-14", "01-21", "01-26"]);
}

#[test]
fn macros_stand_for_expressions() {
    assert_same(&["@yearly", "@annually", "0 0 1 1 *"]);
    assert_same(&["@monthly", "0 0 1 * *"]);
    assert_same(&["@weekly", "0 0 * * 0"]);
    assert_same(&["@daily", "@midnight", "@Daily", " @daily ", "0 0 * * *"]);
    assert_same(&["@hourly", "0 * * * *"]);
}

#[test]
fn years_limit_it() {
    assert_eq!(in_2026("0 0 0 1 1 ? 2027/500", 3), ["2027-01-01T00:00:00", "2527-01-01T00:00:00"]);
    assert_eq!(in_2026("0 0 0 1 1 ? 2024-2030/3,2040", 3).len(), 3);
    assert_eq!(in_2026("0 0 0 29 2 ?", 2), ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]);
    assert_eq!(in_2026("0 0 0 29 2 ? *", 2), in_2026("0 0 0 29 2 ? ?", 2));
}

#[test]
fn a_year_that_is_over_is_accepted_and_has_no_next_firing() {
    let past = cron("0 0 0 1 1 ? 2020-2022");
    assert_eq!(past.next_after(at("2026-01-01T00:00:00Z"), &zone("UTC")), None);
    assert_eq!(past.last_before(at("2026-01-01T00:00:00Z"), &zone("UTC")), Some(at("2022-01-01T00:00:00Z")));
    assert_eq!(past.next_after(at("2020-06-01T00:00:00Z"), &zone("UTC")), Some(at("2021-01-01T00:00:00Z")));
}

#[test]
fn the_next_firing_is_later_and_the_last_one_earlier() {
    let minutely = cron("* * * * *");
    let utc = zone("UTC");
    let noon = at("2026-01-01T12:00:00Z");
    assert_eq!(minutely.next_after(noon, &utc), Some(noon.plus_ms(60_000)));
    assert_eq!(minutely.next_after(noon.plus_ms(-1), &utc), Some(noon));
    assert_eq!(minutely.next_from(noon, &utc), Some(noon));
    assert_eq!(minutely.next_from(noon.plus_ms(1), &utc), Some(noon.plus_ms(60_000)));
    assert_eq!(minutely.last_before(noon, &utc), Some(noon.plus_ms(-60_000)));
    assert_eq!(minutely.last_before(noon.plus_ms(1), &utc), Some(noon));
    assert_eq!(minutely.count_between(noon, noon.plus_ms(60_000), &utc), 1);
    assert_eq!(minutely.count_between(noon, noon.plus_ms(60_001), &utc), 2);
    assert_eq!(minutely.count_between(noon.plus_ms(1), noon.plus_ms(60_000), &utc), 0);
    assert_eq!(minutely.count_between(noon, noon, &utc), 0);
}

#[test]
fn no_time_is_too_early_or_too_late_to_ask_for() {
    let yearly = cron("@yearly");
    for name in ["UTC", "America/New_York", "Asia/Tokyo", "Pacific/Kiritimati", "Etc/GMT+12"] {
        let zone = zone(name);
        let first = yearly.next_after(Time(i64::MIN), &zone).unwrap();
        assert!((0..366 * 86_400_000).contains(&first.0), "{name}");
        assert_eq!(yearly.last_before(first, &zone), None, "{name}");
        assert_eq!(yearly.next_after(Time(i64::MAX), &zone), None, "{name}");
        assert_eq!(yearly.next_after(Time(limits::TIME_MS_MAX), &zone), None, "{name}");
        assert_eq!(yearly.last_before(Time(i64::MIN), &zone), None, "{name}");
        let last = yearly.last_before(Time(i64::MAX), &zone).unwrap();
        assert_eq!(yearly.next_after(last, &zone), None, "{name}");
        let count = yearly.count_between(Time(i64::MIN), Time(i64::MAX), &zone);
        let all = std::iter::successors(Some(first), |due| yearly.next_after(*due, &zone));
        assert_eq!(all.count() as u64, count, "{name}");
    }
}

#[test]
fn an_expression_keeps_its_text() {
    assert_eq!(cron(" 0 0 * * mon ").text(), "0 0 * * mon");
    assert_eq!(cron("@daily").text(), "@daily");
}
