//! What is refused, and what the error says.

use taskwheel_model::{Cron, limits};

/// The message of an expression that is refused.
fn refused(text: &str) -> String {
    match Cron::parse(text) {
        Ok(_) => panic!("{text} is accepted"),
        Err(error) => {
            assert_eq!(error.field, "cron", "{text}");
            error.message
        }
    }
}

#[track_caller]
fn assert_says(text: &str, words: &[&str]) {
    let message = refused(text);
    for word in words {
        assert!(message.contains(word), "{text}: {message}: says nothing of {word}");
    }
}

#[test]
fn the_error_is_about_the_given_field() {
    let error = Cron::parse_field("timers[1].cron", "* * *").unwrap_err();
    assert_eq!(error.field, "timers[1].cron");
    assert_eq!(Cron::parse("").unwrap_err().to_string(), "cron: must not be empty");
}

#[test]
fn a_wrong_number_of_fields_is_refused() {
    for (text, count) in
        [("*", "1 field:"), ("* * * *", "4 fields"), ("* * * * * * * *", "8 fields"), ("   ", "0 fields")]
    {
        assert_says(text, &[count, "minute hour day month weekday"]);
    }
}

#[test]
fn a_step_larger_than_its_field_is_refused_with_what_to_write() {
    assert_says(
        "*/90 * * * *",
        &["minute `*/90`", "90 is larger", "`0` alone", "fixed_rate timer for every 90 minutes"],
    );
    assert_says("*/60 * * * *", &["minute `*/60`", "`0` alone"]);
    assert_says("0 5/24 * * *", &["hour `5/24`", "`5` alone"]);
    assert_says("0 0 1-5/32 * *", &["day `1-5/32`"]);
    assert_says("0 0 1 */13 *", &["month `*/13`", "every 13 months"]);
    assert_says("0 0 * * */8", &["weekday `*/8`"]);
    assert_says("0/61 * * * * ?", &["second `0/61`"]);
    assert_says("0 0 0 1 1 ? */1030", &["year `*/1030`"]);
}

#[test]
fn a_step_of_nothing_is_refused() {
    for text in ["*/0 * * * *", "5/0 * * * *", "1-9/0 * * * *"] {
        assert_says(text, &["minute", "at least 1"]);
    }
    for text in ["*/ * * * *", "*/x * * * *", "*/-1 * * * *", "*/1/2 * * * *"] {
        assert_says(text, &["minute", "is not a number"]);
    }
}

#[test]
fn values_out_of_range_are_refused() {
    assert_says("60 * * * *", &["minute `60`", "between 0 and 59"]);
    assert_says("0 24 * * *", &["hour `24`", "between 0 and 23"]);
    assert_says("0 0 0 * *", &["day `0`", "between 1 and 31"]);
    assert_says("0 0 32 * *", &["day `32`", "between 1 and 31"]);
    assert_says("0 0 32W * *", &["day `32W`", "between 1 and 31"]);
    assert_says("0 0 1 0 *", &["month `0`", "between 1 and 12"]);
    assert_says("0 0 1 13 *", &["month `13`", "between 1 and 12"]);
    assert_says("0 0 * * 8", &["weekday `8`", "between 0 and 7"]);
    assert_says("60 0 0 * * ?", &["second `60`", "between 0 and 59"]);
    assert_says("0 0 0 ? * 8", &["weekday `8`", "between 1 and 7"]);
    assert_says("0 0 0 1 1 ? 1969", &["year `1969`", "between 1970 and 2999"]);
    assert_says("0 0 0 1 1 ? 3000", &["year `3000`", "between 1970 and 2999"]);
    assert_says("10-70 * * * *", &["minute `10-70`", "`70`"]);
}

#[test]
fn weekday_0_beside_seconds_is_refused_with_what_to_write() {
    for text in ["0 0 12 ? * 0", "0 0 12 ? * 0-5", "0 0 12 ? * 0/2", "0 0 12 ? * 0L", "0 0 12 ? * 0#1 2026"] {
        assert_says(text, &["weekday `0", "1 = Sunday", "`1` or `SUN`"]);
    }
}

#[test]
fn day_and_weekday_beside_seconds_are_refused_with_both_rewrites() {
    assert_says("0 0 12 1 * mon", &["both given", "`0 0 12 1 * ?`", "`0 0 12 ? * MON`"]);
    assert_says("0 0 12 L JAN 2 2027", &["`0 0 12 L JAN ? 2027`", "`0 0 12 ? JAN 2 2027`"]);
    assert_says("0 0 12 */2 * MON", &["both given"]);
}

#[test]
fn what_never_fires_is_refused() {
    for text in [
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 0 30 FEB ?",
        "0 0 0 31W 2,4 ?",
        "0 0 0 L-29 2 ?",
        "0 0 0 L-30 4 ?",
        "0 0 0 29 2 ? 2025-2027",
        "0 0 0 ? 2 MON#5 2027",
    ] {
        assert_says(text, &["never fires"]);
    }
}

#[test]
fn question_marks_have_their_places() {
    assert_says("? * * * *", &["minute `?`", "`*`"]);
    assert_says("0 ? * * *", &["hour `?`", "`*`"]);
    assert_says("0 0 1 ? *", &["month `?`", "`*`"]);
    assert_says("0 0 ?,5 * *", &["day `?,5`", "stands alone"]);
    assert_says("0 0 ?/5 * *", &["day `?/5`", "stands alone"]);
}

#[test]
fn words_that_mean_nothing_are_refused() {
    assert_says("x * * * *", &["minute `X`", "0 to 59"]);
    assert_says("0 0 1 JANUARY *", &["month `JANUARY`", "JAN to DEC"]);
    assert_says("0 0 * * MOND", &["weekday `MOND`", "SUN to SAT"]);
    assert_says("0 0 MON * *", &["day `MON`", "`LW`"]);
    assert_says("1,,2 * * * *", &["minute `1,,2`", "missing"]);
    assert_says("1- * * * *", &["minute `1-`", "missing"]);
    assert_says("-1 * * * *", &["minute `-1`", "missing"]);
    assert_says("+1 * * * *", &["minute `+1`"]);
    assert_says("1-2-3 * * * *", &["minute `1-2-3`", "`2-3`"]);
    assert_says("00001 * * * *", &["minute `00001`"]);
    assert_says("99999999999999999999 * * * *", &["minute"]);
    assert_says("é * * * *", &["minute"]);
    assert_says("L * * * *", &["minute `L`"]);
    assert_says("0 0 W * *", &["day `W`", "missing"]);
    assert_says("0 0 L-0 * *", &["day `L-0`", "1 to 30"]);
    assert_says("0 0 L-31 * *", &["day `L-31`", "1 to 30"]);
    assert_says("0 0 1-5W * *", &["day `1-5W`"]);
    assert_says("0 0 L/2 * *", &["day `L/2`"]);
    assert_says("0 0 * * MON#0", &["weekday `MON#0`", "1 to 5"]);
    assert_says("0 0 * * MON#6", &["weekday `MON#6`", "1 to 5"]);
    assert_says("0 0 * * #2", &["weekday `#2`", "missing"]);
    assert_says("0 0 * * MON-FRI#2", &["weekday `MON-FRI#2`"]);
    assert_says("0 0 0 1 1 ? 2030-2026", &["year `2030-2026`", "`2026-2030`"]);
    assert_says("@reboot", &["`@reboot`", "@daily"]);
    assert_says("@", &["@daily"]);
}

#[test]
fn an_endless_expression_is_refused() {
    let long = format!("{} * * * *", vec!["1"; limits::CRON_CHARS_MAX].join(","));
    assert_says(&long, &["at most 200 characters"]);
}
