//! Schedules over HTTP: making, showing, changing and removing them, and when they would fire.

use crate::support::{Dialect, Server};
use serde_json::{Value, json};

/// A schedule that fires in years.
pub(crate) fn yearly(name: &str) -> Value {
    json!({"name": name, "type": "mail", "timers": [{"kind": "cron", "cron": "0 0 1 1 *"}]})
}

/// Makes a schedule and gives it as it is shown.
pub(crate) async fn made(server: &Server, schedule: Value) -> Value {
    let answer = server.post("/v1/schedules", schedule).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.body
}

/// Where a schedule is.
pub(crate) fn place(schedule: &Value) -> String {
    format!("/v1/schedules/{}", schedule["id"])
}

/// The fields that a call was refused for.
fn bad_fields(answer: &Value) -> Vec<&str> {
    answer["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect()
}

async fn a_schedule_is_made_shown_edited_listed_and_deleted(server: &Server) {
    let first = made(server, yearly("first")).await;
    let defaults = json!({"status": "online", "log": "trans_log", "overlap": "allow", "shards": null, "children": [],
        "misfire": {"policy": "fire_once", "max": 100}, "tenant": "default", "app": null});
    for (name, value) in defaults.as_object().unwrap() {
        assert_eq!(&first[name], value, "{name}");
    }
    assert_eq!(first["timers"][0]["timezone"], "UTC");
    let next = first["timers"][0]["next"].as_str().unwrap();
    assert!(next.ends_with("-01-01T00:00:00.000Z"), "{next}");
    let second = made(
        server,
        json!({"name": "second", "app": "das", "service": "build", "method": "run", "payload": {"n": 1.50}, "key": "k",
            "creator": "c", "category": "night", "priority": 7, "max_attempts": 2, "timeout_ms": 60_000, "status": "new",
            "retry": {"strategy": "fixed", "delay_ms": 5}, "log": "trigger_log", "overlap": "queue", "shards": 3,
            "misfire": {"policy": "catch_up", "max": 5},
            "timers": [{"kind": "fixed_rate", "period_ms": 1000, "initial_delay_ms": 5}, {"kind": "once", "delay_ms": 9, "enabled": false}],
            "children": [{"name": "then", "service": "build", "method": "pack", "payload": [1], "timeout_ms": 5, "enabled": false,
                "children": [{"type": "other"}]}]}),
    )
    .await;
    assert_eq!(
        (&second["type"], &second["app"], &second["method"]),
        (&json!("das:build:run"), &json!("das"), &json!("run"))
    );
    assert_eq!(second["children"][0]["type"], "das:build:pack");
    assert_eq!(second["children"][0]["service"], "build");
    assert_eq!(
        second["children"][0]["children"][0],
        json!({"name": null, "type": "other", "service": null, "method": null,
        "payload": null, "timeout_ms": null, "enabled": true, "children": []})
    );
    assert_eq!(second["timers"][0]["next"], Value::Null, "it has never been online");
    assert_eq!(server.get(&place(&second)).await.ok(), second, "it is shown as it was answered");

    let edited =
        server.patch(&place(&second), json!({"key": null, "name": "renamed", "shards": null, "payload": null})).await;
    let edited = edited.ok();
    for (name, value) in second.as_object().unwrap() {
        match name.as_str() {
            "key" | "shards" | "payload" => assert_eq!(edited[name], Value::Null, "{name}"),
            "name" => assert_eq!(edited[name], "renamed"),
            "updated_at" => assert!(edited[name].as_str() >= value.as_str()),
            _ => assert_eq!(&edited[name], value, "{name} stays"),
        }
    }
    let children = json!({"children": [{"service": "s", "method": "m"}]});
    let edited = server.patch(&place(&second), children).await.ok();
    assert_eq!(edited["children"][0]["type"], "das:s:m", "the app is the schedule's");
    let both = json!({"type": edited["type"], "app": "das", "service": "build", "method": "run"});
    let edited = server.patch(&place(&second), both).await.ok();
    assert_eq!(edited["type"], "das:build:run", "what was shown can be sent back");

    let names = async |query: &str| -> Vec<String> {
        let page = server.get(&format!("/v1/schedules?{query}")).await.ok();
        page["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("").await, ["renamed", "first"], "the newest is first");
    assert_eq!(names("name=first").await, ["first"]);
    assert_eq!(names("status=new").await, ["renamed"]);
    assert_eq!(names("type=mail").await, ["first"]);
    let page = server.get("/v1/schedules?limit=1").await.ok();
    let cursor = page["next_cursor"].as_str().unwrap();
    assert_eq!(names(&format!("limit=1&cursor={cursor}")).await, ["first"]);

    assert_eq!(server.delete(&place(&second)).await.status, 204);
    assert_eq!(server.delete(&place(&second)).await.status, 404);
    assert_eq!(server.get(&place(&second)).await.status, 404);
    assert_eq!(names("").await, ["first"]);
    let log = server.get(&format!("/v1/audit?target={}", second["id"])).await.ok();
    let actions: Vec<_> =
        log["items"].as_array().unwrap().iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["schedule.delete", "schedule.edit", "schedule.edit", "schedule.create"]);
}

async fn whatever_is_wrong_with_a_schedule_is_named(server: &Server) {
    let with = |change: Value| {
        let mut schedule = yearly("s");
        schedule.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        schedule
    };
    let timer = |timer: Value| with(json!({"timers": [timer]}));
    let deep = (0..25).fold(json!({"type": "x"}), |below, _| json!({"type": "x", "children": [below]}));
    let window = json!({"kind": "fixed_rate", "period_ms": 5, "start_at": "2030-01-02T00:00:00Z", "end_at": "2030-01-01T00:00:00Z"});
    let cases = [
        (with(json!({"name": ""})), "name"),
        (with(json!({"type": "a b"})), "type"),
        (json!({"name": "s", "timers": []}), "type"),
        (with(json!({"app": "a", "service": "b", "method": "c"})), "app"),
        (json!({"name": "s", "app": "a", "method": "c"}), "service"),
        (with(json!({"nonsense": 1})), "nonsense"),
        (with(json!({"priority": 10})), "priority"),
        (with(json!({"timeout_ms": 0})), "timeout_ms"),
        (with(json!({"status": "paused"})), "status"),
        (with(json!({"log": "all"})), "log"),
        (with(json!({"overlap": null})), "overlap"),
        (with(json!({"misfire": {"policy": "catch_up", "max": 0}})), "misfire.max"),
        (with(json!({"misfire": {"policy": "never"}})), "misfire.policy"),
        (with(json!({"shards": 0})), "shards"),
        (with(json!({"shards": 1001})), "shards"),
        (with(json!({"shards": "each"})), "shards"),
        (with(json!({"children": [{"type": "x", "payloads": 1}]})), "children[0].payloads"),
        (with(json!({"children": [{"type": "x"}, {"service": "b", "method": "c"}]})), "children[1].service"),
        (
            with(json!({"children": [{"type": "x", "children": [{"type": "y", "timeout_ms": 0}]}]})),
            "children[0].children[0].timeout_ms",
        ),
        (with(json!({"children": vec![json!({"type": "x"}); 10_000]})), "children"),
        (with(json!({"children": [deep]})), "children"),
        (with(json!({"timers": vec![json!({"kind": "once", "delay_ms": 1}); 21]})), "timers"),
        (timer(json!({"kind": "cron", "cron": "61 * * * *"})), "timers[0].cron"),
        (timer(json!({"kind": "cron", "cron": "0 0 30 2 *"})), "timers[0].cron"),
        (timer(json!({"kind": "cron", "cron": "* * * * *", "timezone": "Mars/Olympus"})), "timers[0].timezone"),
        (timer(json!({"kind": "fixed_rate", "period_ms": 0})), "timers[0].period_ms"),
        (timer(json!({"kind": "fixed_delay"})), "timers[0].period_ms"),
        (timer(json!({"kind": "once", "at": "soon"})), "timers[0].at"),
        (timer(json!({"kind": "cron", "cron": "* * * * *", "colour": "red"})), "timers[0].colour"),
        (timer(json!({"kind": "once", "delay_ms": 1, "id": 5})), "timers[0].id"),
        (timer(window), "timers[0].end_at"),
    ];
    for (schedule, field) in cases {
        let answer = server.post("/v1/schedules", schedule).await;
        assert_eq!(answer.status, 422, "{field}: {}", answer.body);
        assert_eq!(bad_fields(&answer.body), [field], "{}", answer.body);
    }
    assert_eq!(server.get("/v1/schedules").await.ok()["items"], json!([]), "nothing was made");
    let good = made(server, yearly("good")).await;
    for (edit, field) in [
        (json!({"name": null}), "name"),
        (json!({"log": null}), "log"),
        (json!({"timers": null}), "timers"),
        (json!({"priority": 0}), "priority"),
        (json!({"shards": "all"}), "shards"),
        (json!({"timers": [{"kind": "cron", "cron": "x"}]}), "timers[0].cron"),
        (json!({"timers": [{"kind": "once", "delay_ms": 5, "id": 999_999}]}), "timers[0].id"),
        (json!({"children": [{"service": "b", "method": "c"}]}), "children[0].service"),
        (json!({"method": "m"}), "app"),
    ] {
        let answer = server.patch(&place(&good), edit).await;
        assert_eq!(answer.status, 422, "{field}: {}", answer.body);
        assert_eq!(bad_fields(&answer.body), [field], "{}", answer.body);
    }
    assert_eq!(server.get(&place(&good)).await.ok(), good, "nothing was changed");
    for (path, field) in [
        ("/v1/schedules?limit=0", "limit"),
        ("/v1/schedules?limit=501", "limit"),
        ("/v1/schedules?status=on", "status"),
        ("/v1/schedules?cursor=x", "cursor"),
        ("/v1/runs?status=ok", "status"),
        ("/v1/runs?schedule_id=x", "schedule_id"),
        ("/v1/runs?sort=id", "sort"),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 422, "{path}: {}", answer.body);
        assert_eq!(bad_fields(&answer.body), [field], "{path}");
    }
    for path in
        ["/v1/schedules/x", "/v1/schedules/0", "/v1/schedules/999999999/next", "/v1/runs/x", "/v1/runs/999999999"]
    {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
    assert_eq!(server.post("/v1/runs/999999999/cancel", json!({})).await.status, 404);
}

async fn a_timer_that_is_given_with_its_id_and_unchanged_goes_on(server: &Server) {
    let timers = json!([{"kind": "fixed_rate", "period_ms": 3_600_000, "initial_delay_ms": 1_800_000},
        {"kind": "cron", "cron": "0 0 1 1 *", "timezone": "Asia/Shanghai"}]);
    let schedule = made(server, json!({"name": "s", "type": "mail", "timers": timers})).await;
    let [rate, cron] = [0, 1].map(|place| schedule["timers"][place].clone());
    let sent_back = |timer: &Value| {
        let mut timer = timer.clone();
        timer.as_object_mut().unwrap().remove("next");
        timer
    };
    let edited = server.patch(&place(&schedule), json!({"timers": [sent_back(&cron), sent_back(&rate)]})).await.ok();
    assert_eq!(edited["timers"], json!([cron, rate]), "the same timers, in another order");
    let mut other = sent_back(&rate);
    other["period_ms"] = json!(7_200_000);
    let edited = server.patch(&place(&schedule), json!({"timers": [other]})).await.ok();
    assert_eq!(edited["timers"].as_array().unwrap().len(), 1, "the list is replaced");
    assert_ne!(edited["timers"][0]["id"], rate["id"], "another timer starts anew");
    assert!(edited["timers"][0]["next"].as_str() >= rate["next"].as_str());
}

async fn coming_firings_are_shown(server: &Server) {
    let timers = json!([{"kind": "cron", "cron": "0 12 * * *", "timezone": "Asia/Shanghai"}, {"kind": "once", "at": "2035-01-01T00:00:00Z"}]);
    let schedule = made(server, json!({"name": "s", "type": "mail", "timers": timers, "status": "new"})).await;
    let next =
        async |query: &str| server.get(&format!("{}/next{query}", place(&schedule))).await.ok()["firings"].clone();
    let shown = next("").await;
    assert_eq!(shown.as_array().unwrap().len(), 10, "as many as are wanted where nothing is said");
    for firing in shown.as_array().unwrap() {
        assert_eq!(firing["timer_id"], schedule["timers"][0]["id"]);
        assert!(firing["due_at"].as_str().unwrap().ends_with("T04:00:00.000Z"), "noon in Shanghai: {firing}");
    }
    server.post(&format!("{}/online", place(&schedule)), json!({})).await.ok();
    assert_eq!(next("?count=3").await, json!(shown.as_array().unwrap()[..3]), "online it fires as it was foretold");
    let online = server.get(&place(&schedule)).await.ok();
    assert_eq!(online["timers"][0]["next"], shown[0]["due_at"]);
    assert_eq!(online["timers"][1]["next"], "2035-01-01T00:00:00.000Z");
    let offline = server.post(&format!("{}/offline", place(&schedule)), json!({})).await.ok();
    assert_eq!((&offline["status"], &offline["timers"][0]["next"]), (&json!("offline"), &Value::Null));
    for count in ["0", "1001", "x"] {
        assert_eq!(server.get(&format!("{}/next?count={count}", place(&schedule))).await.status, 422, "{count}");
    }
    assert_eq!(next("?count=1000").await.as_array().unwrap().len(), 1_000);
}

async fn an_expression_can_be_tried(server: &Server) {
    let preview = async |body: Value| server.post("/v1/cron/preview", body).await;
    let from = "2021-08-01T00:00:00Z";
    let seconds = preview(json!({"cron": "0/5 * * * * * ?", "count": 3, "from": from})).await.ok();
    assert_eq!(
        seconds["firings"],
        json!(["2021-08-01T00:00:00.000Z", "2021-08-01T00:00:05.000Z", "2021-08-01T00:00:10.000Z"])
    );
    let days =
        preview(json!({"cron": "12 12 12 0/2 * *", "count": 3, "from": from, "timezone": "Asia/Shanghai"})).await.ok();
    assert_eq!(
        days["firings"],
        json!(["2021-08-01T04:12:12.000Z", "2021-08-03T04:12:12.000Z", "2021-08-05T04:12:12.000Z"])
    );
    assert_eq!(preview(json!({"cron": "* * * * *"})).await.ok()["firings"].as_array().unwrap().len(), 10);
    let last = preview(json!({"cron": "0 0 0 1 1 ? 2030", "from": from})).await.ok();
    assert_eq!(last["firings"], json!(["2030-01-01T00:00:00.000Z"]), "and no more");
    for (body, field) in [
        (json!({"cron": "* * *"}), "cron"),
        (json!({"cron": "* * * * *", "timezone": "Nowhere"}), "timezone"),
        (json!({"cron": "* * * * *", "count": 1001}), "count"),
        (json!({"cron": "* * * * *", "from": "1960-01-01T00:00:00Z"}), "from"),
        (json!({"cron": "* * * * *", "zone": "UTC"}), "zone"),
    ] {
        let answer = preview(body).await;
        assert_eq!((answer.status.as_u16(), bad_fields(&answer.body)), (422, vec![field]));
    }
}

crate::facts![
    a_schedule_is_made_shown_edited_listed_and_deleted,
    whatever_is_wrong_with_a_schedule_is_named,
    a_timer_that_is_given_with_its_id_and_unchanged_goes_on,
    coming_firings_are_shown,
    an_expression_can_be_tried,
];

#[tokio::test]
async fn the_servers_zone_is_that_of_expressions_without_one() {
    let server = Server::start_with(Dialect::Sqlite, &["--timezone", "Asia/Shanghai"], &[]).await;
    let schedule = made(&server, yearly("s")).await;
    assert_eq!(schedule["timers"][0]["timezone"], "Asia/Shanghai");
    let next = schedule["timers"][0]["next"].as_str().unwrap();
    assert!(next.ends_with("-12-31T16:00:00.000Z"), "{next}");
    let preview = json!({"cron": "0 0 1 1 *", "count": 1, "from": "2021-08-01T00:00:00Z"});
    let firings = server.post("/v1/cron/preview", preview).await.ok()["firings"].clone();
    assert_eq!(firings, json!(["2021-12-31T16:00:00.000Z"]));
    // Another zone does not move what is there.
    server.kill_and_restart().await;
    assert_eq!(server.get(&place(&schedule)).await.ok(), schedule);
    server.end().await;
}
