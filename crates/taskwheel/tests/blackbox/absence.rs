//! Schedules while no node is there, and schedules whose tasks are slow while two are.

use crate::schedules::{made, place};
use crate::support::{Server, call, claim, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longer than what is not yet missed.
const AWAY: Duration = Duration::from_millis(9_500);
const PERIOD_MS: i64 = 1_000;

fn ms(time: &Value) -> i64 {
    time.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()).expect("a time").as_millisecond()
}

async fn runs(server: &Server, schedule: &Value) -> Vec<Value> {
    let page = server.get(&format!("{}/runs?limit=500", place(schedule))).await.ok();
    page["items"].as_array().expect("a page").clone()
}

fn is_misfire(run: &Value) -> bool {
    run["reason"] == "misfire"
}

/// The first and the last due time that a record of a misfire speaks of.
fn span(run: &Value) -> (i64, i64) {
    let words = run["error"].as_str().expect("a misfire says what it is about").split_whitespace();
    let times: Vec<_> = words.filter_map(|word| word.parse::<jiff::Timestamp>().ok()).collect();
    assert_eq!(times.len(), 2, "{run}");
    (times[0].as_millisecond(), times[1].as_millisecond())
}

async fn what_fell_due_while_no_node_was_there_is_as_the_policy_says(server: &Server) {
    let mut schedules = Vec::new();
    for (policy, max, fired) in [("skip", 1, 0), ("fire_once", 1, 1), ("catch_up", 2, 2)] {
        let timers = json!([{"kind": "fixed_rate", "period_ms": PERIOD_MS, "initial_delay_ms": PERIOD_MS}]);
        let schedule = json!({"name": policy, "type": "tick", "timers": timers,
            "misfire": {"policy": policy, "max": max}});
        schedules.push((made(server, schedule).await, policy, fired));
    }
    let first = &schedules[2].0;
    eventually("it fires", Duration::from_secs(20), || async { !runs(server, first).await.is_empty() }).await;
    server.signal(nix::sys::signal::Signal::SIGKILL);
    server.ended().await;
    tokio::time::sleep(AWAY).await;
    server.restart().await;
    for (schedule, policy, fired) in &schedules {
        eventually("it says what was missed", Duration::from_secs(20), || async {
            runs(server, schedule).await.iter().any(is_misfire)
        })
        .await;
        server.post(&format!("{}/offline", place(schedule)), json!({})).await.ok();
        let runs = runs(server, schedule).await;
        let missed: Vec<_> = runs.iter().filter(|run| is_misfire(run)).map(span).collect();
        assert_eq!(missed.len(), 1, "{policy}: {runs:?}");
        let (from, to) = missed[0];
        assert!(to - from >= 2 * PERIOD_MS, "{policy}: {AWAY:?} away, and only {from} to {to} missed");
        let mut dues: Vec<_> = runs.iter().filter(|run| !is_misfire(run)).map(|run| ms(&run["due_at"])).collect();
        dues.sort_unstable();
        assert!(dues.windows(2).all(|pair| pair[0] < pair[1]), "{policy}: fired twice: {dues:?}");
        // Of what was missed, the newest.
        let made_up: Vec<_> = dues.iter().copied().filter(|due| (from..=to).contains(due)).collect();
        let newest: Vec<_> = (0..*fired).rev().map(|back| to - back * PERIOD_MS).collect();
        assert_eq!(made_up, newest, "{policy}");
        // And all of the rest, from the first to the last.
        for due in (dues[0]..=dues[dues.len() - 1]).step_by(PERIOD_MS as usize) {
            assert!(dues.contains(&due) || (from..=to).contains(&due), "{policy}: {due} did not fire");
        }
    }
}

/// Works on the tasks of a type, each for so long, at any of the nodes.
async fn work_slowly(client: reqwest::Client, nodes: Vec<String>, task_type: String, until: Instant) {
    let mut turn = 0;
    while Instant::now() < until {
        let node = &nodes[turn % nodes.len()];
        turn += 1;
        let mut request = claim("w", &task_type);
        request["worker_id"] = json!(format!("{task_type}-{turn}"));
        request["wait_ms"] = json!(300);
        let claimed = call(&client, node, Method::POST, "/v1/worker/claim", Some(&request)).await.ok();
        for task in claimed["tasks"].as_array().expect("tasks") {
            tokio::time::sleep(Duration::from_millis(700)).await;
            let item = json!({"id": task["id"], "exec_id": task["exec_id"], "outcome": "success"});
            let report = json!({"items": [item]});
            call(&client, node, Method::POST, "/v1/worker/report", Some(&report)).await.ok();
        }
    }
}

async fn slow_tasks_overlap_as_the_policy_says_with_two_nodes(server: &Server) {
    let other = server.another_node().await;
    let until = Instant::now() + Duration::from_secs(6);
    let (mut schedules, mut workers) = (Vec::new(), Vec::new());
    for policy in ["skip", "queue", "replace"] {
        let timers = json!([{"kind": "fixed_rate", "period_ms": 250}]);
        let schedule = json!({"name": policy, "type": policy, "timers": timers, "overlap": policy});
        schedules.push((made(server, schedule).await, policy));
        for _ in 0..2 {
            let nodes = vec![server.url(), other.url.clone()];
            workers.push(tokio::spawn(work_slowly(server.client.clone(), nodes, policy.to_owned(), until)));
        }
    }
    for worker in workers {
        worker.await.expect("a worker works to its end");
    }
    for (schedule, policy) in &schedules {
        server.post(&format!("{}/offline", place(schedule)), json!({})).await.ok();
        let runs = runs(server, schedule).await;
        let count = |status: &str| runs.iter().filter(|run| run["status"] == status).count();
        let mut lives: Vec<_> = runs
            .iter()
            .filter(|run| run["started_at"].is_string() && run["status"] != "skipped")
            .map(|run| {
                let end = if run["finished_at"].is_string() { ms(&run["finished_at"]) } else { i64::MAX };
                (ms(&run["started_at"]), end)
            })
            .collect();
        lives.sort_unstable();
        assert!(lives.len() >= 3, "{policy}: {runs:?}");
        assert!(lives.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{policy}: two at once: {lives:?}");
        match *policy {
            "skip" => assert!(count("skipped") > 0 && count("done") > 2, "{runs:?}"),
            "queue" => assert!(count("queued") > 0 && count("done") > 2, "{runs:?}"),
            _ => assert!(count("cancelled") > 2, "{runs:?}"),
        }
    }
}

crate::facts! { in sqlite on Sqlite: what_fell_due_while_no_node_was_there_is_as_the_policy_says }
crate::facts! { in postgres on Postgres: what_fell_due_while_no_node_was_there_is_as_the_policy_says,
slow_tasks_overlap_as_the_policy_says_with_two_nodes }
crate::facts! { in mysql on Mysql: what_fell_due_while_no_node_was_there_is_as_the_policy_says,
slow_tasks_overlap_as_the_policy_says_with_two_nodes }
