//! What breaks: the server killed in the middle of calls, told to stop under load, and started where it must not be.

use crate::support::{Dialect, Node, Server, TestDatabase, call, claim, eventually};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tokio::process::Command;
use tokio::task::JoinSet;

/// Callers that submit until they are told to stop or the server is gone; the ids that were acknowledged.
fn submitters(server: &Server, stop: &Arc<AtomicBool>) -> JoinSet<Vec<i64>> {
    let mut callers = JoinSet::new();
    for _ in 0..8 {
        let (client, url, stop) = (server.client.clone(), server.url(), stop.clone());
        callers.spawn(async move {
            let mut acknowledged = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let answer = client.post(format!("{url}/v1/tasks")).json(&json!({"type": "mail"})).send().await;
                let Ok(answer) = answer else { break };
                if answer.status() == 201
                    && let Ok(task) = answer.json::<Value>().await
                {
                    acknowledged.extend(task["id"].as_i64());
                }
            }
            acknowledged
        });
    }
    callers
}

/// Works on everything there is, and gives what was claimed.
async fn drain(server: &Server) -> Vec<i64> {
    let mut done = Vec::new();
    loop {
        let mut request = claim("drain", "mail");
        request["max"] = json!(500);
        let tasks = server.claim(request).await;
        if tasks.is_empty() {
            return done;
        }
        let item = |task: &Value| json!({"id": task["id"], "exec_id": task["exec_id"], "outcome": "success"});
        let items: Vec<_> = tasks.iter().map(item).collect();
        let reported = server.post("/v1/worker/report", json!({"items": items})).await.ok();
        assert!(reported["items"].as_array().unwrap().iter().all(|item| item["state"] == "accepted"));
        done.extend(tasks.iter().map(|task| task["id"].as_i64().unwrap()));
    }
}

async fn what_was_acknowledged_survives_the_kill_of_the_server(server: &Server) {
    let stop = Arc::new(AtomicBool::new(false));
    let callers = submitters(server, &stop);
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.kill_and_restart().await;
    stop.store(true, Ordering::Relaxed);
    let acknowledged: Vec<_> = callers.join_all().await.concat();
    assert!(acknowledged.len() > 20, "the load was there: {}", acknowledged.len());
    let done = drain(server).await;
    let once: HashSet<_> = done.iter().copied().collect();
    assert_eq!(once.len(), done.len(), "none is handed out twice");
    let lost: Vec<_> = acknowledged.iter().filter(|id| !once.contains(id)).collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
}

async fn a_stop_answers_every_call_and_ends_well(server: &Server) {
    let (client, url) = (server.client.clone(), server.url());
    let waiting = tokio::spawn(async move {
        let mut request = claim("w", "other");
        request["wait_ms"] = json!(30_000);
        client
            .post(format!("{url}/v1/worker/claim"))
            .json(&request)
            .send()
            .await
            .unwrap()
            .json::<Value>()
            .await
            .unwrap()
    });
    let stop = Arc::new(AtomicBool::new(false));
    let callers = submitters(server, &stop);
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.signal(Signal::SIGTERM);
    let status = server.ended().await;
    assert!(status.success(), "{status}");
    assert_eq!(waiting.await.unwrap(), json!({"tasks": []}), "who waits is answered");
    let acknowledged: Vec<_> = callers.join_all().await.concat();
    assert!(!acknowledged.is_empty());
    server.restart().await;
    let done: HashSet<_> = drain(server).await.into_iter().collect();
    assert!(acknowledged.iter().all(|id| done.contains(id)));
}

async fn workers_are_not_lost_while_the_server_is_away(server: &Server) {
    let id = server.submit(json!({"type": "mail"})).await;
    let mut request = claim("w", "mail");
    request["heartbeat_ms"] = json!(1_000);
    let task = server.claim(request).await.remove(0);
    let renew = async || {
        let item = json!({"id": id, "exec_id": task["exec_id"]});
        let renewed = server.post("/v1/worker/renew", json!({"worker_id": "w", "items": [item]})).await.ok();
        renewed["items"][0].clone()
    };
    let lease: jiff::Timestamp = renew().await["lease_until"].as_str().unwrap().parse().unwrap();
    server.signal(Signal::SIGKILL);
    server.ended().await;
    // Its lease is over before there is a server again, and with it the tenth of a heartbeat that is added to it.
    let over = lease.as_duration().unsigned_abs() + Duration::from_millis(200);
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    tokio::time::sleep(over.saturating_sub(now())).await;
    server.restart().await;
    eventually("the server has looked at its workers", Duration::from_secs(20), async || {
        let worker = server.get("/v1/workers").await.ok()["items"][0].clone();
        let seen = worker["seen_at"].as_str().map(|seen| seen.parse::<jiff::Timestamp>().unwrap());
        seen.is_some_and(|seen| seen > lease)
    })
    .await;
    assert_eq!(renew().await["state"], "ok", "it had nobody to call");
    assert_eq!(server.report(&task, "success").await["status"], "Success");
    assert_eq!(server.task(id).await["attempts_log"].as_array().unwrap().len(), 1);
}

crate::facts![
    what_was_acknowledged_survives_the_kill_of_the_server,
    a_stop_answers_every_call_and_ends_well,
    workers_are_not_lost_while_the_server_is_away,
];

/// Starts the binary with arguments and gives what it says on stderr when it ends in failure.
async fn refused(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_taskwheel")).args(arguments).stdin(Stdio::null()).output();
    let output = tokio::time::timeout(Duration::from_secs(30), output).await.expect("it ends").unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn a_second_server_on_one_sqlite_file_is_refused() {
    let server = Server::start(Dialect::Sqlite).await;
    let words = refused(&["serve", "--listen", "127.0.0.1:0", "--database", &server.database.url]).await;
    assert!(words.contains("another taskwheel serves"), "{words}");
    server.end().await;
}

#[tokio::test]
async fn after_a_stop_everything_is_in_the_one_file() {
    let server = Server::start(Dialect::Sqlite).await;
    let id = server.submit(json!({"type": "mail"})).await;
    server.signal(Signal::SIGTERM);
    assert!(server.ended().await.success());
    let file = server.database.url.strip_prefix("sqlite://").unwrap();
    assert!(!std::path::Path::new(&format!("{file}-wal")).exists(), "the journal is still there");
    let copy = tempfile::tempdir().unwrap();
    let copied = copy.path().join("copy.db");
    std::fs::copy(file, &copied).unwrap();
    let other = Node::start(&format!("sqlite://{}", copied.display())).await;
    let task = call(&server.client, &other.url, Method::GET, &format!("/v1/tasks/{id}"), None).await.ok();
    assert_eq!(task["type"], "mail");
    server.end().await;
}

#[tokio::test]
async fn a_start_that_cannot_be_says_what_to_do() {
    let server = Server::start(Dialect::Sqlite).await;
    let address = server.url().replace("http://", "");
    let other = TestDatabase::create(Dialect::Sqlite).await;
    let words = refused(&["serve", "--listen", &address, "--database", &other.url]).await;
    assert!(words.contains("--listen"), "{words}");
    let words = refused(&["serve", "--listen", "0.0.0.0:0", "--database", &other.url]).await;
    assert!(words.contains("127.0.0.1"), "{words}");
    let words =
        refused(&["serve", "--listen", "127.0.0.1:0", "--database", "postgres://nobody:secret@127.0.0.1:1/none"]).await;
    assert!(words.contains("cannot open postgres://127.0.0.1:1/none") && !words.contains("secret"), "{words}");
    let words = refused(&["serve", "--listen", "127.0.0.1:0", "--database", "oracle://x"]).await;
    assert!(words.contains("sqlite://"), "{words}");
    server.end().await;
}
