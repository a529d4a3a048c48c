//! The page on workers: its calls are taken, and its worker works.

use crate::page::{page, require, texts};
use crate::support::{Dialect, Server, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const PAGE: &str = "docs/workers.md";
const TIME_MAX: Duration = Duration::from_secs(60);

/// The worker of the page, in a file.
struct Script {
    _directory: TempDir,
    file: PathBuf,
}

impl Script {
    /// With faster heartbeats than on the page, so that work outlasts three of them.
    fn new() -> Script {
        let scripts = texts(&page(PAGE), "python");
        let [script] = scripts.as_slice() else { panic!("the page has {} workers", scripts.len()) };
        let fast = script.replace("HEARTBEAT_MS = 5000", "HEARTBEAT_MS = 300");
        assert_ne!(*script, fast, "the page says how often the worker calls");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("worker.py");
        std::fs::write(&file, fast).unwrap();
        Script { _directory: directory, file }
    }

    fn start(&self, server: &Server) -> Child {
        Command::new("python3")
            .arg(&self.file)
            .env("TASKWHEEL_SERVER", server.url())
            .env("no_proxy", "127.0.0.1")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("python3 starts")
    }
}

async fn has(server: &Server, id: i64, status: &str) {
    let what = format!("task {id} is {status}");
    eventually(&what, TIME_MAX, async || server.task(id).await["status"] == status).await;
}

/// Sends a signal, and expects the worker to end well.
async fn stop(worker: &mut Child, signal: Signal) {
    kill(Pid::from_raw(worker.id().expect("the worker runs").cast_signed()), signal).unwrap();
    let status = timeout(TIME_MAX, worker.wait()).await.expect("it stops in time").unwrap();
    assert!(status.success(), "{status}");
}

fn recipients(count: usize) -> Value {
    json!({"to": vec!["a@b.c"; count]})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_works_beats_fails_and_stops() {
    require("python3");
    let (server, script) = (Server::start(Dialect::Sqlite).await, Script::new());
    let mut worker = script.start(&server);
    let good = server.submit(json!({"type": "mail", "payload": recipients(1)})).await;
    let bad = server.submit(json!({"type": "mail", "payload": {}, "max_attempts": 1})).await;
    has(&server, good, "Success").await;
    assert_eq!(server.task(good).await["result"], json!({"sent": 1}));
    has(&server, bad, "Failure").await;
    assert_eq!(server.task(bad).await["error_info"], "KeyError('to')");

    let again =
        server.submit(json!({"type": "mail", "payload": {}, "retry": {"strategy": "fixed", "delay_ms": 100}})).await;
    has(&server, again, "Failure").await;
    assert_eq!(server.task(again).await["attempts"], 3);

    let long = server.submit(json!({"type": "mail", "payload": recipients(3)})).await;
    has(&server, long, "Success").await;
    assert_eq!(server.task(long).await["attempts"], 1, "its heartbeats kept it");

    let cut = server.submit(json!({"type": "mail", "payload": recipients(6)})).await;
    eventually("its checkpoint is saved", TIME_MAX, async || server.task(cut).await["checkpoint"] == 2).await;
    stop(&mut worker, Signal::SIGINT).await;
    let task = server.task(cut).await;
    assert_eq!((&task["status"], &task["attempts"]), (&json!("New"), &json!(0)), "it was given back");
    let mut worker = script.start(&server);
    has(&server, cut, "Success").await;
    let task = server.task(cut).await;
    assert_eq!(task["result"], json!({"sent": 6}));
    // Six would take a second each.
    assert!(task["exec_ms"].as_i64().unwrap() < 6_000, "it went on from its checkpoint: {task}");

    let called_off = server.submit(json!({"type": "mail", "payload": recipients(100)})).await;
    let next = server.submit(json!({"type": "mail", "payload": recipients(1)})).await;
    has(&server, called_off, "Executing").await;
    server.post(&format!("/v1/tasks/{called_off}/cancel"), json!({})).await.ok();
    has(&server, next, "Success").await;
    stop(&mut worker, Signal::SIGTERM).await;
    server.end().await;
}

/// An example of the page, about this execution instead of the page's.
fn about(example: &str, task: &Value) -> Value {
    let mut body: Value = serde_json::from_str(example).unwrap_or_else(|error| panic!("{error}: {example}"));
    for item in body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        (item["id"], item["exec_id"]) = (task["id"].clone(), task["exec_id"].clone());
    }
    body
}

/// Whether an answer has everything that the page shows, with the same values but for ids and times.
fn is_shown(shown: &Value, answer: &Value) -> bool {
    match (shown, answer) {
        (Value::Object(shown), Value::Object(answer)) => shown.iter().all(|(name, value)| {
            let varies = ["id", "exec_id", "lease_until"].contains(&name.as_str());
            answer.get(name).is_some_and(|answer| varies || is_shown(value, answer))
        }),
        (Value::Array(shown), Value::Array(answer)) => {
            shown.len() == answer.len() && shown.iter().zip(answer).all(|(shown, answer)| is_shown(shown, answer))
        }
        _ => shown == answer,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_the_page_are_answered_as_it_shows() {
    let server = Server::start(Dialect::Sqlite).await;
    server.submit(json!({"type": "mail", "key": "order-7", "payload": recipients(1)})).await;
    let examples = texts(&page(PAGE), "json");
    assert_eq!(examples.len(), 6, "a call and its answer, three times");
    let mut task = Value::Null;
    for (pair, path) in examples.chunks(2).zip(["claim", "renew", "report"]) {
        let answer = server.post(&format!("/v1/worker/{path}"), about(&pair[0], &task)).await.ok();
        let shown: Value = serde_json::from_str(&pair[1]).unwrap();
        assert!(is_shown(&shown, &answer), "{path}: the page shows {shown}, the server answers {answer}");
        if path == "claim" {
            task = answer["tasks"][0].clone();
        }
    }
    server.end().await;
}
