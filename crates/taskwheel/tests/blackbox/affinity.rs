//! A task that was given back goes to its old host first.

use crate::support::{Server, claim};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// Longer than others have to wait for a task that is kept for a host.
const LONG_AGO: Duration = Duration::from_secs(60);

/// A claim of a worker that is heard of often.
fn lively(worker: &str, heartbeat_ms: i64) -> Value {
    let mut claim = claim(worker, "mail");
    claim["heartbeat_ms"] = json!(heartbeat_ms);
    claim
}

/// Claims a task on a host, and gives it back.
async fn released_by(server: &Server, claim: Value) -> i64 {
    let task = server.claim(claim).await.remove(0);
    assert_eq!(server.report(&task, "release").await["state"], "accepted");
    task["id"].as_i64().unwrap()
}

async fn a_released_task_goes_to_its_host_first(server: &Server) {
    server.submit(json!({"type": "mail"})).await;
    let id = released_by(server, lively("a", 60_000)).await;
    assert!(server.claim(lively("b", 60_000)).await.is_empty(), "a worker of its host is alive");
    let task = server.claim(lively("a", 60_000)).await.remove(0);
    assert_eq!((&task["id"], &task["attempt"]), (&json!(id), &json!(1)));
}

async fn a_released_task_goes_to_others_when_its_host_is_gone(server: &Server) {
    server.submit(json!({"type": "mail"})).await;
    let id = released_by(server, lively("a", 300)).await;
    let mut patient = lively("b", 60_000);
    patient["wait_ms"] = json!(20_000);
    let tasks = server.claim(patient).await;
    assert_eq!(tasks[0]["id"], id, "while b waits, a is silent for too long");
}

async fn a_released_task_goes_to_others_after_a_while(server: &Server) {
    // It was due long ago, so that the time for which it is kept is over when it is given back.
    let due = jiff::Timestamp::try_from(SystemTime::now() - LONG_AGO).unwrap();
    server.submit(json!({"type": "mail", "run_at": due.to_string()})).await;
    let id = released_by(server, lively("a", 60_000)).await;
    let task = server.claim(lively("b", 60_000)).await.remove(0);
    assert_eq!(task["id"], id, "although a worker of its host is alive");
}

crate::facts![
    a_released_task_goes_to_its_host_first,
    a_released_task_goes_to_others_when_its_host_is_gone,
    a_released_task_goes_to_others_after_a_while,
];
