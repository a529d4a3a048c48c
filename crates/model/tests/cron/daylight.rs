//! What happens when clocks change, place by place.

use super::{at, cron, firings, shown, zone};
use taskwheel_model::Time;

/// All firings of some hours around a change of clocks.
#[track_caller]
fn assert_fires(text: &str, zone_name: &str, from: &str, before: &str, expected: &[&str]) {
    let (cron, zone) = (cron(text), zone(zone_name));
    let first = cron.next_from(at(from), &zone);
    let all = std::iter::successors(first, |due| cron.next_after(*due, &zone));
    let shown: Vec<String> = all.take_while(|due| *due < at(before)).map(|due| shown(due, &zone)).collect();
    assert_eq!(shown, expected, "{text} in {zone_name}");
    let back = cron.last_before(at(before), &zone);
    let back = std::iter::successors(back, |due| cron.last_before(*due, &zone));
    let mut back: Vec<Time> = back.take_while(|due| *due >= at(from)).collect();
    back.reverse();
    assert_eq!(back.len(), expected.len(), "{text} in {zone_name}, backwards");
    assert_eq!(
        cron.count_between(at(from), at(before), &zone),
        expected.len() as u64,
        "{text} in {zone_name}, counted"
    );
}

#[test]
fn new_york_skips_an_hour() {
    // 10 March 2024, 02:00 becomes 03:00.
    let fires = |text, expected: &[&str]| {
        assert_fires(text, "America/New_York", "2024-03-10T00:30:00-05:00", "2024-03-10T05:30:00-04:00", expected);
    };
    fires("30 2 * * *", &["2024-03-10T03:00:00-04"]);
    fires("0,15,30,45 2 * * *", &["2024-03-10T03:00:00-04"]);
    fires("0 2 * * *", &["2024-03-10T03:00:00-04"]);
    fires("* * 2 * * ?", &["2024-03-10T03:00:00-04"]);
    fires("30 2,3 * * *", &["2024-03-10T03:00:00-04", "2024-03-10T03:30:00-04"]);
    fires("0 2,3 * * *", &["2024-03-10T03:00:00-04"]);
    fires("0 1-4 * * *", &["2024-03-10T01:00:00-05", "2024-03-10T03:00:00-04", "2024-03-10T04:00:00-04"]);
    fires(
        "30 1-4 * * *",
        &["2024-03-10T01:30:00-05", "2024-03-10T03:00:00-04", "2024-03-10T03:30:00-04", "2024-03-10T04:30:00-04"],
    );
    fires("30 2/22 * * *", &[]);
    fires(
        "30 * * * *",
        &["2024-03-10T00:30:00-05", "2024-03-10T01:30:00-05", "2024-03-10T03:30:00-04", "2024-03-10T04:30:00-04"],
    );
    fires("0 */2 * * *", &["2024-03-10T04:00:00-04"]);
}

#[test]
fn new_york_repeats_an_hour() {
    // 3 November 2024, 02:00 becomes 01:00.
    let fires = |text, expected: &[&str]| {
        assert_fires(text, "America/New_York", "2024-11-03T00:30:00-04:00", "2024-11-03T03:30:00-05:00", expected);
    };
    fires("30 1 * * *", &["2024-11-03T01:30:00-04"]);
    fires("0,59 1 * * *", &["2024-11-03T01:00:00-04", "2024-11-03T01:59:00-04"]);
    fires("0 2 * * *", &["2024-11-03T02:00:00-05"]);
    fires("30 1-2 * * *", &["2024-11-03T01:30:00-04", "2024-11-03T02:30:00-05"]);
    fires("30 1/23 * * *", &["2024-11-03T01:30:00-04", "2024-11-03T01:30:00-05"]);
    fires(
        "0 * * * *",
        &["2024-11-03T01:00:00-04", "2024-11-03T01:00:00-05", "2024-11-03T02:00:00-05", "2024-11-03T03:00:00-05"],
    );
    fires("0 */2 * * *", &["2024-11-03T02:00:00-05"]);
}

#[test]
fn a_repeated_hour_does_not_fire_again_for_those_who_ask_in_its_middle() {
    for minutes in [0, 1, 29, 30, 31, 59] {
        let after = at("2024-11-03T01:00:00-05:00").plus_ms(minutes * 60_000);
        let next = cron("30 1 * * *").next_after(after, &zone("America/New_York"));
        assert_eq!(next, Some(at("2024-11-04T01:30:00-05:00")), "{minutes}");
        let last = cron("30 1 * * *").last_before(after, &zone("America/New_York"));
        assert_eq!(last, Some(at("2024-11-03T01:30:00-04:00")), "{minutes}");
    }
}

#[test]
fn a_year_that_ends_in_a_repeated_hour_fires_twice_by_elapsed_time() {
    let fires = firings("0 30 1/23 3 11 ? 2024", "America/New_York", "2024-11-03T01:15:00-04:00", 9);
    assert_eq!(fires, ["2024-11-03T01:30:00-04", "2024-11-03T01:30:00-05"]);
    let fires = firings("0 30 1/23 3 11 ? 2024", "America/New_York", "2024-11-03T01:45:00-04:00", 9);
    assert_eq!(fires, ["2024-11-03T01:30:00-05"]);
}

#[test]
fn an_hour_that_is_skipped_each_year_never_fires_by_elapsed_time() {
    // The clocks of New York skip it on the second Sunday of March, every year since 2007.
    let skipped = cron("0 30 2/23 ? 3 SUN#2");
    assert_eq!(skipped.next_after(at("2008-01-01T00:00:00Z"), &zone("America/New_York")), None);
    assert_eq!(firings("0 30 2 ? 3 SUN#2", "America/New_York", "2026-01-01T00:00:00Z", 1), ["2026-03-08T03:00:00-04"]);
}

#[test]
fn london_changes_at_one() {
    // 31 March 2024, 01:00 becomes 02:00; 27 October 2024, 02:00 becomes 01:00.
    let spring = |text, expected: &[&str]| {
        assert_fires(text, "Europe/London", "2024-03-31T00:30:00Z", "2024-03-31T03:00:00Z", expected);
    };
    spring("30 1 * * *", &["2024-03-31T02:00:00+01"]);
    spring("0 1,2 * * *", &["2024-03-31T02:00:00+01"]);
    spring("45 * * * *", &["2024-03-31T00:45:00+00", "2024-03-31T02:45:00+01", "2024-03-31T03:45:00+01"]);
    let autumn = |text, expected: &[&str]| {
        assert_fires(text, "Europe/London", "2024-10-26T23:30:00Z", "2024-10-27T02:30:00Z", expected);
    };
    autumn("30 1 * * *", &["2024-10-27T01:30:00+01"]);
    autumn("45 * * * *", &["2024-10-27T00:45:00+01", "2024-10-27T01:45:00+01", "2024-10-27T01:45:00+00"]);
    // From 1968 to 1971 it was an hour ahead all year.
    assert_fires(
        "30 2 * * *",
        "Europe/London",
        "1971-10-31T00:00:00Z",
        "1971-10-31T06:00:00Z",
        &["1971-10-31T02:30:00+01"],
    );
}

#[test]
fn lord_howe_changes_by_half_an_hour() {
    // 6 October 2024, 02:00 becomes 02:30; 7 April 2024, 02:00 becomes 01:30.
    let spring = |text, expected: &[&str]| {
        assert_fires(text, "Australia/Lord_Howe", "2024-10-06T01:00:00+10:30", "2024-10-06T04:00:00+11:00", expected);
    };
    spring("15 2 * * *", &["2024-10-06T02:30:00+11"]);
    spring("0,15,45 2 * * *", &["2024-10-06T02:30:00+11", "2024-10-06T02:45:00+11"]);
    spring("15 * * * *", &["2024-10-06T01:15:00+10:30", "2024-10-06T03:15:00+11"]);
    spring("45 * * * *", &["2024-10-06T01:45:00+10:30", "2024-10-06T02:45:00+11", "2024-10-06T03:45:00+11"]);
    let autumn = |text, expected: &[&str]| {
        assert_fires(text, "Australia/Lord_Howe", "2024-04-07T01:00:00+11:00", "2024-04-07T03:00:00+10:30", expected);
    };
    autumn("45 1 * * *", &["2024-04-07T01:45:00+11"]);
    autumn("15 1 * * *", &["2024-04-07T01:15:00+11"]);
    autumn("45 * * * *", &["2024-04-07T01:45:00+11", "2024-04-07T01:45:00+10:30", "2024-04-07T02:45:00+10:30"]);
    autumn("15 * * * *", &["2024-04-07T01:15:00+11", "2024-04-07T02:15:00+10:30"]);
}

#[test]
fn sao_paulo_skipped_and_repeated_midnight() {
    // 4 November 2018, 00:00 became 01:00; 18 February 2018, 00:00 became 23:00 of the 17th. None since 2019.
    let spring = |text, expected: &[&str]| {
        assert_fires(text, "America/Sao_Paulo", "2018-11-03T22:00:00-03:00", "2018-11-04T03:00:00-02:00", expected);
    };
    spring("0 0 * * *", &["2018-11-04T01:00:00-02"]);
    spring("@daily", &["2018-11-04T01:00:00-02"]);
    spring("0 0 0 4 11 ?", &["2018-11-04T01:00:00-02"]);
    spring("30 0,1 * * *", &["2018-11-04T01:00:00-02", "2018-11-04T01:30:00-02"]);
    spring(
        "@hourly",
        &["2018-11-03T22:00:00-03", "2018-11-03T23:00:00-03", "2018-11-04T01:00:00-02", "2018-11-04T02:00:00-02"],
    );
    let autumn = |text, expected: &[&str]| {
        assert_fires(text, "America/Sao_Paulo", "2018-02-17T22:00:00-02:00", "2018-02-18T01:30:00-03:00", expected);
    };
    autumn("30 23 * * *", &["2018-02-17T23:30:00-02"]);
    autumn("0 0 * * *", &["2018-02-18T00:00:00-03"]);
    autumn("30 23 17 2 *", &["2018-02-17T23:30:00-02"]);
    autumn(
        "@hourly",
        &[
            "2018-02-17T22:00:00-02",
            "2018-02-17T23:00:00-02",
            "2018-02-17T23:00:00-03",
            "2018-02-18T00:00:00-03",
            "2018-02-18T01:00:00-03",
        ],
    );
    assert_eq!(firings("0 0 * * *", "America/Sao_Paulo", "2026-11-01T12:00:00Z", 1), ["2026-11-02T00:00:00-03"]);
}

#[test]
fn shanghai_had_summers_from_1986_to_1991() {
    // 4 May 1986, 02:00 became 03:00; 14 September 1986, 02:00 became 01:00; for the last time on 15 September 1991.
    let spring = |text, expected: &[&str]| {
        assert_fires(text, "Asia/Shanghai", "1986-05-04T01:00:00+08:00", "1986-05-04T05:00:00+09:00", expected);
    };
    spring("30 2 * * *", &["1986-05-04T03:00:00+09"]);
    spring("30 * * * *", &["1986-05-04T01:30:00+08", "1986-05-04T03:30:00+09", "1986-05-04T04:30:00+09"]);
    for day in ["1986-09-14", "1991-09-15"] {
        let (from, before) = (format!("{day}T00:00:00+09:00"), format!("{day}T02:30:00+08:00"));
        let twice = [format!("{day}T00:30:00+09"), format!("{day}T01:30:00+09"), format!("{day}T01:30:00+08")];
        assert_fires("30 1 * * *", "Asia/Shanghai", &from, &before, &[&twice[1]]);
        assert_fires("30 * * * *", "Asia/Shanghai", &from, &before, &twice.each_ref().map(String::as_str));
    }
    for year in ["1992", "2026"] {
        let fires = firings("30 2 * 5 *", "Asia/Shanghai", &format!("{year}-01-01T00:00:00Z"), 31);
        assert!(fires.iter().all(|shown| shown.ends_with("T02:30:00+08")), "{fires:?}");
    }
}

#[test]
fn samoa_skipped_a_day() {
    // 30 December 2011 did not happen in Apia.
    let fires = |text, expected: &[&str]| {
        assert_fires(text, "Pacific/Apia", "2011-12-29T06:00:00-10:00", "2011-12-31T20:00:00+14:00", expected);
    };
    fires("0 12 * * *", &["2011-12-29T12:00:00-10", "2011-12-31T00:00:00+14", "2011-12-31T12:00:00+14"]);
    fires("0 */12 * * *", &["2011-12-29T12:00:00-10", "2011-12-31T00:00:00+14", "2011-12-31T12:00:00+14"]);
    fires("0 0 0 30 12 ? 2011", &["2011-12-31T00:00:00+14"]);
    fires("0 0 0/23 30 12 ? 2011", &[]);
}
