//! What schedules fire, as workers and callers see it: runs, trees, shards, overlap.

use crate::schedules::{made, place};
use crate::support::{Server, claim, eventually};
use serde_json::{Value, json};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// A claim that waits for a task of a type.
fn patient(worker: &str, task_type: &str) -> Value {
    let mut claim = claim(worker, task_type);
    (claim["wait_ms"], claim["heartbeat_ms"]) = (json!(10_000), json!(20_000));
    claim
}

/// A schedule without timers.
fn by_hand(task_type: &str, more: Value) -> Value {
    let mut schedule = json!({"name": format!("run {task_type}"), "type": task_type});
    schedule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    schedule
}

async fn run_now(server: &Server, schedule: &Value) -> Value {
    let answer = server.post(&format!("{}/run", place(schedule)), json!({})).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.body
}

async fn shown(server: &Server, run: &Value) -> Value {
    server.get(&format!("/v1/runs/{}", run["id"])).await.ok()
}

/// Works on one task of a type, and gives it.
async fn work(server: &Server, worker: &str, task_type: &str, result: Value) -> Value {
    let mut tasks = server.claim(patient(worker, task_type)).await;
    assert_eq!(tasks.len(), 1, "{task_type}");
    let task = tasks.remove(0);
    let item = json!({"id": task["id"], "exec_id": task["exec_id"], "outcome": "success", "result": result});
    let reported = server.post("/v1/worker/report", json!({"items": [item]})).await.ok();
    assert_eq!(reported["items"][0]["status"], "Success");
    task
}

async fn a_schedule_fires_and_its_task_knows_where_it_is_from(server: &Server) {
    let timers = json!([{"kind": "once", "delay_ms": 300}]);
    let schedule = made(server, by_hand("mail", json!({"timers": timers, "key": "k", "payload": {"a": 1}}))).await;
    let due = schedule["timers"][0]["next"].clone();
    let task = work(server, "w", "mail", json!("sent")).await;
    assert_eq!((&task["run_at"], &task["key"], &task["payload"]), (&due, &json!("k"), &json!({"a": 1})));
    for name in ["shard_index", "shard_total", "parent"] {
        assert_eq!(task[name], Value::Null, "{name}");
    }
    let listed = server.get(&format!("/v1/tasks?schedule_id={}", schedule["id"])).await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["items"][0]["id"], task["id"]);
    assert_eq!(server.get("/v1/tasks?schedule_id=999999").await.ok()["items"], json!([]));
    let runs = server.get(&format!("{}/runs", place(&schedule))).await.ok();
    assert_eq!(runs["items"].as_array().unwrap().len(), 1);
    let run = &runs["items"][0];
    assert_eq!(
        (&run["status"], &run["due_at"], &run["timer_id"]),
        (&json!("done"), &due, &schedule["timers"][0]["id"])
    );
    assert_eq!((&run["host"], &run["error"]), (&json!("host-of-w"), &Value::Null));
    assert!(run["started_at"].is_string() && run["finished_at"].is_string());
    assert_eq!((&run["tasks"][0]["id"], &run["tasks"][0]["status"]), (&task["id"], &json!("Success")));
    assert_eq!(listed["items"][0]["run_id"], run["id"]);
    assert_eq!(&shown(server, run).await, run);
    let after = server.get(&place(&schedule)).await.ok();
    assert_eq!((after["timers"].as_array().unwrap().len(), &after["timers"][0]["next"]), (1, &Value::Null), "it fired");
    assert_eq!(server.get(&format!("{}/next", place(&schedule))).await.ok()["firings"], json!([]));
}

async fn an_end_in_the_past_is_accepted_and_never_fires(server: &Server) {
    let window = json!({"start_at": "2021-08-09T00:00:00Z", "end_at": "2021-10-01T00:00:00Z"});
    let timer = |mut timer: Value| {
        timer.as_object_mut().unwrap().extend(window.as_object().unwrap().clone());
        timer
    };
    let timers = json!([
        timer(json!({"kind": "cron", "cron": "* * * * * *"})),
        timer(json!({"kind": "once", "delay_ms": 0})),
        timer(json!({"kind": "fixed_rate", "period_ms": 10}))
    ]);
    let past = made(server, by_hand("past", json!({"timers": timers}))).await;
    assert!(past["timers"].as_array().unwrap().iter().all(|timer| timer["next"].is_null()), "{past}");
    // Something that is due later fires, so this would have.
    made(server, by_hand("now", json!({"timers": [{"kind": "once", "delay_ms": 500}]}))).await;
    work(server, "w", "now", json!(null)).await;
    assert_eq!(server.get(&format!("/v1/tasks?schedule_id={}", past["id"])).await.ok()["items"], json!([]));
    assert_eq!(server.get(&format!("/v1/runs?schedule_id={}", past["id"])).await.ok()["items"], json!([]));
}

async fn children_follow_their_parent_with_its_result(server: &Server) {
    let children = json!([{"name": "left", "type": "left", "payload": {"p": 1}, "children": [{"name": "below", "type": "below"}]},
        {"name": "right", "type": "right"}, {"name": "off", "type": "off", "enabled": false, "children": [{"type": "under"}]}]);
    let schedule = made(server, by_hand("root", json!({"children": children}))).await;
    let run = run_now(server, &schedule).await;
    assert_eq!((&run["status"], &run["timer_id"]), (&json!("running"), &Value::Null));
    let started = |run: &Value| -> Vec<String> {
        let tasks = run["tasks"].as_array().unwrap().iter().filter(|task| !task["id"].is_null());
        tasks.map(|task| task["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(started(&run), ["root"]);
    assert_eq!(run["tasks"].as_array().unwrap().len(), 6, "the whole tree is shown: {}", run["tasks"]);
    let root = work(server, "w", "root", json!({"rows": 7})).await;
    let left = work(server, "w", "left", json!(null)).await;
    assert_eq!(left["parent"], json!({"id": root["id"], "result": {"rows": 7}}));
    assert_eq!(left["payload"], json!({"p": 1}));
    let below = work(server, "w", "below", json!(1)).await;
    assert_eq!(below["parent"], json!({"id": left["id"], "result": null}));
    assert_eq!(shown(server, &run).await["status"], "running", "the right one has not ended");
    let mut right = server.claim(patient("w", "right")).await;
    assert_eq!(right[0]["parent"]["result"]["rows"], 7);
    server.report(&right.remove(0), "failure").await;
    let ended = shown(server, &run).await;
    assert_eq!(ended["status"], "failed");
    assert_eq!(started(&ended), ["root", "left", "right", "below"]);
    let of = |name: &str| ended["tasks"].as_array().unwrap().iter().find(|task| task["name"] == name).unwrap().clone();
    assert_eq!((&of("right")["status"], &of("right")["parent_id"]), (&json!("Failure"), &root["id"]));
    assert_eq!((&of("below")["status"], &of("below")["parent_id"]), (&json!("Success"), &left["id"]));
    assert_eq!((&of("off")["status"], &of("off")["enabled"]), (&Value::Null, &json!(false)));
    let task = server.task(below["id"].as_i64().unwrap()).await;
    assert_eq!((&task["root_id"], &task["run_id"], &task["schedule_id"]), (&root["id"], &run["id"], &schedule["id"]));
}

async fn shards_know_their_index_and_their_results_go_to_the_child(server: &Server) {
    let schedule = made(server, by_hand("part", json!({"shards": 3, "children": [{"type": "sum"}]}))).await;
    let run = run_now(server, &schedule).await;
    let mut claim = patient("w", "part");
    claim["max"] = json!(10);
    let tasks = server.claim(claim).await;
    let mut seen: Vec<_> =
        tasks.iter().map(|task| (task["shard_index"].as_i64(), task["shard_total"].as_i64())).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(Some(0), Some(3)), (Some(1), Some(3)), (Some(2), Some(3))]);
    for task in &tasks {
        assert!(server.claim(super::support::claim("x", "sum")).await.is_empty(), "not before all of them");
        let item =
            json!({"id": task["id"], "exec_id": task["exec_id"], "outcome": "success", "result": task["shard_index"]});
        server.post("/v1/worker/report", json!({"items": [item]})).await.ok();
    }
    let sum = work(server, "w", "sum", json!(3)).await;
    let results: Vec<_> = sum["parent"].as_array().unwrap().iter().map(|parent| parent["result"].as_i64()).collect();
    assert_eq!(results, [Some(0), Some(1), Some(2)], "by shard");
    let ended = shown(server, &run).await;
    assert_eq!(ended["status"], "done");
    let indexes: Vec<_> = ended["tasks"].as_array().unwrap().iter().map(|task| task["shard_index"].as_i64()).collect();
    assert_eq!(indexes, [Some(0), Some(1), Some(2), None]);
}

async fn each_live_worker_has_its_shard(server: &Server) {
    let schedule = made(server, by_hand("each", json!({"shards": "per_worker"}))).await;
    let refused = server.post(&format!("{}/run", place(&schedule)), json!({})).await;
    assert_eq!(refused.status, 409);
    assert!(refused.body["detail"].as_str().unwrap().contains("no worker"), "{}", refused.body);
    for worker in ["a", "b"] {
        let mut hello = claim(worker, "each");
        (hello["heartbeat_ms"], hello["app"]) = (json!(20_000), json!("das"));
        assert!(server.claim(hello).await.is_empty());
    }
    run_now(server, &schedule).await;
    let first = server.claim(patient("a", "each")).await;
    assert_eq!((first.len(), &first[0]["shard_total"]), (1, &json!(2)));
    let workers = server.get("/v1/workers").await.ok();
    let of = |id: &str| workers["items"].as_array().unwrap().iter().find(|one| one["worker_id"] == id).unwrap().clone();
    let (a, b) = (of("a"), of("b"));
    assert_eq!((&a["running"], &b["running"]), (&json!(1), &json!(0)));
    assert_eq!((&b["app"], &b["host"], &b["types"]), (&json!("das"), &json!("host-of-b"), &json!(["each"])));
    assert!(b["seen_at"].is_string());
    let second = server.claim(patient("b", "each")).await;
    assert_eq!(second.len(), 1);
    assert_ne!(first[0]["shard_index"], second[0]["shard_index"]);
}

async fn a_run_that_would_overlap_is_refused_or_waits_or_takes_the_place(server: &Server) {
    let skip = made(server, by_hand("skip", json!({"overlap": "skip"}))).await;
    let first = run_now(server, &skip).await;
    let refused = server.post(&format!("{}/run", place(&skip)), json!({})).await;
    assert_eq!((refused.status.as_u16(), &refused.body["code"]), (409, &json!("conflict")));
    assert!(refused.body["detail"].as_str().unwrap().contains("overlap"), "{}", refused.body);
    work(server, "w", "skip", json!(null)).await;
    assert_eq!(shown(server, &first).await["status"], "done");
    run_now(server, &skip).await;

    let queue = made(server, by_hand("queue", json!({"overlap": "queue"}))).await;
    run_now(server, &queue).await;
    let mut queued = Vec::new();
    for _ in 0..100 {
        queued.push(run_now(server, &queue).await);
    }
    assert_eq!(queued[0]["status"], "queued");
    let full = server.post(&format!("{}/run", place(&queue)), json!({})).await;
    assert_eq!(full.status, 409);
    assert!(full.body["detail"].as_str().unwrap().contains("queue is full"), "{}", full.body);
    work(server, "w", "queue", json!(null)).await;
    assert_eq!(shown(server, &queued[0]).await["status"], "running", "the next one begins when the first has ended");
    assert_eq!(shown(server, &queued[1]).await["status"], "queued");
    let waiting = server.get(&format!("/v1/runs?schedule_id={}&status=queued&limit=500", queue["id"])).await.ok();
    assert_eq!(waiting["items"].as_array().unwrap().len(), 99);
    let page = server.get(&format!("/v1/runs?schedule_id={}&status=queued", queue["id"])).await.ok();
    assert_eq!(page["items"].as_array().unwrap().len(), 50);
    let path =
        format!("/v1/runs?schedule_id={}&status=queued&cursor={}", queue["id"], page["next_cursor"].as_str().unwrap());
    let rest = server.get(&path).await.ok();
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next_cursor"]), (49, &Value::Null));

    let replace = made(server, by_hand("replace", json!({"overlap": "replace"}))).await;
    let old = run_now(server, &replace).await;
    let new = run_now(server, &replace).await;
    let old = shown(server, &old).await;
    assert_eq!((&old["status"], &old["reason"]), (&json!("cancelled"), &json!("replaced")));
    assert_eq!(work(server, "w", "replace", json!(null)).await["id"], new["tasks"][0]["id"]);
}

async fn of_many_that_ask_at_once_one_begins(server: &Server) {
    let schedule = made(server, by_hand("once", json!({"overlap": "skip"}))).await;
    let asked: Vec<_> = (0..20)
        .map(|_| {
            let (client, url) = (server.client.clone(), format!("{}{}/run", server.url(), place(&schedule)));
            tokio::spawn(async move { client.post(url).send().await.unwrap().status().as_u16() })
        })
        .collect();
    let mut statuses = Vec::new();
    for asked in asked {
        statuses.push(asked.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![201], vec![409; 19]].concat());
    let tasks = server.get(&format!("/v1/tasks?schedule_id={}", schedule["id"])).await.ok();
    assert_eq!(tasks["items"].as_array().unwrap().len(), 1);
}

async fn a_cancelled_run_ends_all_that_has_not_ended(server: &Server) {
    let children = json!([{"type": "after"}]);
    let schedule = made(server, by_hand("long", json!({"children": children}))).await;
    let run = run_now(server, &schedule).await;
    let task = server.claim(patient("w", "long")).await.remove(0);
    let cancelled = server.post(&format!("/v1/runs/{}/cancel", run["id"]), json!({})).await.ok();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(server.task(task["id"].as_i64().unwrap()).await["status"], "Cancelled");
    assert_eq!(server.report(&task, "success").await["state"], "superseded");
    assert!(server.claim(claim("w", "after")).await.is_empty(), "nothing follows");
    let again = server.post(&format!("/v1/runs/{}/cancel", run["id"]), json!({})).await.ok();
    assert_eq!(again, cancelled, "once is enough");
    let log = server.get("/v1/audit?action=run.cancel").await.ok();
    assert_eq!(log["items"].as_array().unwrap().len(), 1);
}

async fn an_edit_a_stop_and_a_deletion_leave_runs_that_have_begun(server: &Server) {
    let timers = json!([{"kind": "fixed_rate", "period_ms": 300}]);
    let schedule = made(server, by_hand("tick", json!({"timers": timers}))).await;
    work(server, "w", "tick", json!(null)).await;
    let begun = server.claim(patient("w", "tick")).await.remove(0);
    server.post(&format!("{}/offline", place(&schedule)), json!({})).await.ok();
    let fired = server.get(&format!("/v1/runs?schedule_id={}&limit=500", schedule["id"])).await.ok();
    tokio::time::sleep(Duration::from_millis(900)).await;
    let after = server.get(&format!("/v1/runs?schedule_id={}&limit=500", schedule["id"])).await.ok();
    assert_eq!(fired["items"].as_array().unwrap().len(), after["items"].as_array().unwrap().len(), "it fires no more");
    assert_eq!(server.delete(&place(&schedule)).await.status, 204);
    assert_eq!(server.report(&begun, "success").await["state"], "accepted");
    let run = server.get(&format!("/v1/runs?schedule_id={}&status=done", schedule["id"])).await.ok();
    assert_eq!(run["items"].as_array().unwrap().len(), 2, "what was begun ended well");
    assert_eq!(server.get(&format!("{}/runs", place(&schedule))).await.status, 404);
}

async fn a_fixed_delay_counts_from_the_end_of_the_run(server: &Server) {
    let timers = json!([{"kind": "fixed_delay", "period_ms": 200}]);
    let schedule = made(server, by_hand("pause", json!({"timers": timers}))).await;
    let task = server.claim(patient("w", "pause")).await.remove(0);
    assert_eq!(server.get(&place(&schedule)).await.ok()["timers"][0]["next"], Value::Null, "it waits for the run");
    server.report(&task, "success").await;
    let finished = server.task(task["id"].as_i64().unwrap()).await["finished_at"].clone();
    eventually("the next due time is known", SOON, async || {
        let runs = server.get(&format!("{}/runs", place(&schedule))).await.ok();
        runs["items"].as_array().unwrap().len() > 1
    })
    .await;
    let second = work(server, "w", "pause", json!(null)).await;
    let at = |time: &Value| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
    assert_eq!(at(&second["run_at"]) - at(&finished), 200);
}

crate::facts![
    a_schedule_fires_and_its_task_knows_where_it_is_from,
    an_end_in_the_past_is_accepted_and_never_fires,
    children_follow_their_parent_with_its_result,
    shards_know_their_index_and_their_results_go_to_the_child,
    each_live_worker_has_its_shard,
    a_run_that_would_overlap_is_refused_or_waits_or_takes_the_place,
    of_many_that_ask_at_once_one_begins,
    a_cancelled_run_ends_all_that_has_not_ended,
    an_edit_a_stop_and_a_deletion_leave_runs_that_have_begun,
    a_fixed_delay_counts_from_the_end_of_the_run,
];
