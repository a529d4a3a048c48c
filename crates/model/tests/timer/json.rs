//! The JSON of timers, and what is refused.

use super::{at, cron, delay, once_after, once_at, rate};
use serde_json::{Value, json};
use taskwheel_model::{Misfire, MisfirePolicy, Time, Timer, TimerSpec, limits};

fn read(value: Value) -> Timer {
    let text = value.to_string();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(value: Value) -> String {
    let text = value.to_string();
    match serde_json::from_value::<Timer>(value) {
        Ok(timer) => panic!("{text} is accepted as {timer:?}"),
        Err(error) => error.to_string(),
    }
}

/// The field that is wrong with a timer.
fn bad_field(timer: &Timer) -> String {
    timer.validate("timers[0]").unwrap_err().field
}

#[test]
fn each_kind_is_read_as_the_contract_writes_it() {
    assert_eq!(read(json!({"kind": "cron", "cron": "0 0 * * *", "timezone": "UTC"})), cron("0 0 * * *", "UTC"));
    assert_eq!(read(json!({"kind": "fixed_rate", "period_ms": 5, "initial_delay_ms": 7})), rate(5, 7));
    assert_eq!(read(json!({"kind": "fixed_delay", "period_ms": 5, "initial_delay_ms": 7})), delay(5, 7));
    assert_eq!(read(json!({"kind": "once", "delay_ms": 5})), once_after(5));
    let noon = at("2026-01-01T12:00:00Z");
    assert_eq!(read(json!({"kind": "once", "at": "2026-01-01T12:00:00Z"})), once_at(noon));
    assert_eq!(read(json!({"kind": "once", "at": "2026-01-01T20:00:00+08:00"})), once_at(noon));
}

#[test]
fn what_is_left_out_has_its_default() {
    assert_eq!(read(json!({"kind": "fixed_rate", "period_ms": 5})), rate(5, 0));
    let timer = read(json!({"kind": "cron", "cron": "@daily"}));
    assert_eq!(timer.spec, TimerSpec::Cron { cron: "@daily".into(), timezone: None });
    assert!(timer.enabled);
    assert_eq!(timer.clone().in_zone("Asia/Shanghai"), cron("@daily", "Asia/Shanghai"));
    assert_eq!(timer.clone().in_zone("UTC").in_zone("Asia/Shanghai"), cron("@daily", "UTC"));
    assert_eq!(rate(5, 0).in_zone("UTC"), rate(5, 0));
    let first = |zone: &str| timer.rhythm("timer", zone).unwrap().first_due(at("2026-01-01T12:00:00Z"));
    assert_eq!(first("Asia/Shanghai"), Some(at("2026-01-02T00:00:00+08:00")), "the server's zone");
}

#[test]
fn each_kind_is_written_as_the_contract_has_it() {
    let write = |timer: &Timer| serde_json::to_value(timer).unwrap();
    let always = |value: Value| {
        let mut value = value;
        value.as_object_mut().unwrap().extend([
            ("start_at".to_owned(), Value::Null),
            ("end_at".to_owned(), Value::Null),
            ("enabled".to_owned(), true.into()),
        ]);
        value
    };
    let daily = json!({"kind": "cron", "cron": "@daily", "timezone": "UTC"});
    assert_eq!(write(&cron("@daily", "UTC")), always(daily));
    assert_eq!(write(&rate(5, 7)), always(json!({"kind": "fixed_rate", "period_ms": 5, "initial_delay_ms": 7})));
    assert_eq!(write(&delay(5, 0)), always(json!({"kind": "fixed_delay", "period_ms": 5, "initial_delay_ms": 0})));
    assert_eq!(write(&once_after(5)), always(json!({"kind": "once", "delay_ms": 5})));
    let noon = once_at(at("2026-01-01T12:00:00.5Z"));
    assert_eq!(write(&noon), always(json!({"kind": "once", "at": "2026-01-01T12:00:00.500Z"})));
    let timer = Timer { start_at: Some(Time(0)), end_at: Some(Time(1)), enabled: false, ..rate(5, 7) };
    let value = json!({
        "kind": "fixed_rate", "period_ms": 5, "initial_delay_ms": 7, "enabled": false,
        "start_at": "1970-01-01T00:00:00.000Z", "end_at": "1970-01-01T00:00:00.001Z",
    });
    assert_eq!(write(&timer), value);
    assert_eq!(read(value), timer);
    for timer in [cron("@daily", "UTC"), rate(1, 2), delay(1, 2), once_after(3), noon, timer] {
        assert_eq!(read(write(&timer)), timer);
    }
}

#[test]
fn fields_that_do_not_belong_are_refused_by_name() {
    assert!(refused(json!({"kind": "cron", "cron": "@daily", "zone": "UTC"})).contains("`zone`"));
    assert!(refused(json!({"kind": "weekly"})).contains("`weekly`"));
    assert!(refused(json!({"cron": "@daily"})).contains("`kind`"));
    let wrong = [
        (json!({"kind": "cron", "cron": "@daily", "period_ms": 5}), "period_ms: is only for"),
        (json!({"kind": "fixed_rate", "period_ms": 5, "timezone": "UTC"}), "timezone: is only for kind cron"),
        (json!({"kind": "fixed_rate", "period_ms": 5, "cron": "@daily"}), "cron: is only for kind cron"),
        (json!({"kind": "fixed_delay", "period_ms": 5, "delay_ms": 5}), "delay_ms: is only for kind once"),
        (json!({"kind": "fixed_delay", "period_ms": 5, "at": "2026-01-01T12:00:00Z"}), "at: is only for kind once"),
        (json!({"kind": "once", "delay_ms": 5, "initial_delay_ms": 5}), "initial_delay_ms: is only for"),
    ];
    for (value, message) in wrong {
        assert!(refused(value.clone()).contains(message), "{value}");
    }
}

#[test]
fn fields_that_are_missing_are_named() {
    assert_eq!(refused(json!({"kind": "cron"})), "cron: must be given");
    assert_eq!(refused(json!({"kind": "fixed_rate"})), "period_ms: must be given");
    assert_eq!(refused(json!({"kind": "fixed_delay", "initial_delay_ms": 1})), "period_ms: must be given");
    assert_eq!(refused(json!({"kind": "once"})), "at: must be given, or delay_ms");
    let both = json!({"kind": "once", "delay_ms": 1, "at": "2026-01-01T12:00:00Z"});
    assert_eq!(refused(both), "at: must not be given together with delay_ms");
}

#[test]
fn times_that_are_none_are_refused() {
    for time in ["tomorrow", "2026-01-01", "2026-01-01T12:00:00", "2026-02-30T12:00:00Z"] {
        assert!(refused(json!({"kind": "once", "at": time})).contains("must be a time as in"), "{time}");
        assert!(
            refused(json!({"kind": "once", "delay_ms": 1, "end_at": time})).contains("must be a time as in"),
            "{time}"
        );
    }
}

#[test]
fn bad_values_are_named() {
    let window =
        |start: i64, end: i64, timer: Timer| Timer { start_at: Some(Time(start)), end_at: Some(Time(end)), ..timer };
    assert_eq!(bad_field(&rate(0, 0)), "timers[0].period_ms");
    assert_eq!(bad_field(&rate(-1, 0)), "timers[0].period_ms");
    assert_eq!(bad_field(&rate(limits::TIMER_MS_MAX + 1, 0)), "timers[0].period_ms");
    assert_eq!(bad_field(&rate(1, -1)), "timers[0].initial_delay_ms");
    assert_eq!(bad_field(&delay(0, 0)), "timers[0].period_ms");
    assert_eq!(bad_field(&delay(1, -1)), "timers[0].initial_delay_ms");
    assert_eq!(bad_field(&once_after(-1)), "timers[0].delay_ms");
    assert_eq!(bad_field(&once_at(Time(-1))), "timers[0].at");
    assert_eq!(bad_field(&once_at(Time(limits::TIME_MS_MAX + 1))), "timers[0].at");
    assert_eq!(bad_field(&cron("* * *", "UTC")), "timers[0].cron");
    assert_eq!(bad_field(&cron("@daily", "Mars/Olympus")), "timers[0].timezone");
    assert_eq!(bad_field(&window(5, 4, rate(1, 0))), "timers[0].end_at");
    assert_eq!(bad_field(&window(5, 5, rate(1, 0))), "timers[0].end_at", "nothing lies between");
    assert_eq!(bad_field(&window(-1, 5, rate(1, 0))), "timers[0].start_at");
    assert_eq!(bad_field(&window(1, limits::TIME_MS_MAX + 1, rate(1, 0))), "timers[0].end_at");
    assert_eq!(bad_field(&window(5, 9, once_at(Time(4)))), "timers[0].at");
    assert_eq!(bad_field(&window(5, 9, once_at(Time(9)))), "timers[0].at");
    assert_eq!(window(5, 9, once_at(Time(5))).validate("timers[0]"), Ok(()));
    assert_eq!(window(5, 9, once_at(Time(8))).validate("timers[0]"), Ok(()));
}

#[test]
fn misfire_is_read_as_the_contract_writes_it() {
    let read = |value: Value| serde_json::from_value::<Misfire>(value);
    assert_eq!(read(json!({"policy": "skip"})).unwrap().policy, MisfirePolicy::Skip);
    assert_eq!(read(json!({"policy": "fire_once"})).unwrap(), Misfire::default());
    let catch_up = Misfire { policy: MisfirePolicy::CatchUp, max: 100 };
    assert_eq!(read(json!({"policy": "catch_up"})).unwrap(), catch_up);
    assert_eq!(serde_json::to_value(catch_up).unwrap(), json!({"policy": "catch_up", "max": 100}));
    assert!(read(json!({"policy": "catch_up", "maximum": 5})).is_err());
    assert!(read(json!({"policy": "later"})).is_err());
    assert_eq!(Misfire { max: 0, ..catch_up }.validate("misfire").unwrap_err().field, "misfire.max");
    assert_eq!(
        Misfire { max: limits::CATCH_UP_MAX + 1, ..catch_up }.validate("misfire").unwrap_err().field,
        "misfire.max"
    );
    assert_eq!(Misfire { max: limits::CATCH_UP_MAX, ..catch_up }.validate("misfire"), Ok(()));
}
