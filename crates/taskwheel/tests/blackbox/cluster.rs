//! Several nodes on one database.

use crate::support::{Server, call, claim};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::json;
use std::time::{Duration, Instant};

async fn a_worker_at_one_node_gets_what_another_was_given(server: &Server) {
    let other = server.another_node().await;
    let (client, url) = (server.client.clone(), other.url.clone());
    let waiting = tokio::spawn(async move {
        let mut request = claim("w", "mail");
        request["wait_ms"] = json!(20_000);
        let answer = call(&client, &url, Method::POST, "/v1/worker/claim", Some(&request)).await;
        (answer.ok(), Instant::now())
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let submitted = Instant::now();
    let id = server.submit(json!({"type": "mail"})).await;
    let (answer, came) = waiting.await.unwrap();
    assert_eq!(answer["tasks"][0]["id"], id);
    assert!(came - submitted < Duration::from_secs(1), "{:?}", came - submitted);
    // And what the one handed out, the other takes back.
    assert_eq!(server.report(&answer["tasks"][0], "success").await["status"], "Success");
}

async fn work_goes_on_when_a_node_is_paused_beyond_its_leases(server: &Server) {
    let other = server.another_node().await;
    let id = server.submit(json!({"type": "mail"})).await;
    let mut request = claim("w", "mail");
    request["heartbeat_ms"] = json!(300);
    let answer = call(&server.client, &other.url, Method::POST, "/v1/worker/claim", Some(&request)).await.ok();
    let lost = answer["tasks"][0].clone();
    assert_eq!(lost["id"], id);
    let item = json!({"id": id, "exec_id": lost["exec_id"]});
    server.post("/v1/worker/renew", json!({"worker_id": "w", "items": [item]})).await.ok();
    other.signal(Signal::SIGSTOP);
    let mut next = claim("w2", "mail");
    next["wait_ms"] = json!(10_000);
    let tasks = server.claim(next).await;
    assert_eq!((&tasks[0]["id"], &tasks[0]["attempt"]), (&json!(id), &json!(2)));
    other.signal(Signal::SIGCONT);
    let item = json!({"id": id, "exec_id": lost["exec_id"], "outcome": "success"});
    let late =
        call(&server.client, &other.url, Method::POST, "/v1/worker/report", Some(&json!({"items": [item]}))).await.ok();
    assert_eq!(late["items"][0]["state"], "superseded");
    assert_eq!(server.report(&tasks[0], "success").await["status"], "Success");
}

/// A node is stopped in the middle of a transaction that has locked two executions.
async fn a_node_that_is_paused_in_a_transaction_keeps_its_tasks_for_seconds_only(server: &Server) {
    let other = server.another_node().await;
    for _ in 0..2 {
        server.submit(json!({"type": "mail"})).await;
    }
    let mut request = claim("w", "mail");
    request["max"] = json!(2);
    let tasks = server.claim(request).await;
    let ids: Vec<_> = tasks.iter().map(|task| task["id"].as_i64().expect("an id")).collect();
    let (first, last) = (ids[0].min(ids[1]), ids[0].max(ids[1]));
    let (mut holder, mut probe) = (server.database.raw().await, server.database.raw().await);
    holder.run("BEGIN").await;
    holder.rows(&format!("SELECT type FROM task_running WHERE id = {last} FOR UPDATE")).await;
    let items: Vec<_> = tasks.iter().map(|task| json!({"id": task["id"], "exec_id": task["exec_id"]})).collect();
    let (client, url) = (server.client.clone(), other.url.clone());
    let renewing = tokio::spawn(async move {
        let renew = json!({"worker_id": "w", "items": items});
        call(&client, &url, Method::POST, "/v1/worker/renew", Some(&renew)).await
    });
    let free = format!("SELECT type FROM task_running WHERE id = {first} FOR UPDATE SKIP LOCKED");
    while !probe.rows(&free).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    other.signal(Signal::SIGSTOP);
    holder.run("ROLLBACK").await;
    let (began, own) = (Instant::now(), tasks.iter().find(|task| task["id"] == first).expect("it was claimed"));
    assert_eq!(server.report(own, "success").await["status"], "Success");
    let waited = began.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(9)).contains(&waited), "{waited:?}");
    other.signal(Signal::SIGCONT);
    // Its call is answered in some way, and changes nothing.
    renewing.await.unwrap();
    assert_eq!(server.task(first).await["status"], "Success");
}

crate::facts! { in postgres on Postgres: a_worker_at_one_node_gets_what_another_was_given,
work_goes_on_when_a_node_is_paused_beyond_its_leases,
a_node_that_is_paused_in_a_transaction_keeps_its_tasks_for_seconds_only }
crate::facts! { in mysql on Mysql: a_worker_at_one_node_gets_what_another_was_given,
work_goes_on_when_a_node_is_paused_beyond_its_leases,
a_node_that_is_paused_in_a_transaction_keeps_its_tasks_for_seconds_only }
