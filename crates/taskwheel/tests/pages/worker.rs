//! The page on workers: its calls are taken, and its workers work.

use crate::page::{page, part, require, texts};
use crate::support::{Dialect, Server, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const PAGE: &str = "docs/workers.md";
const TIME_MAX: Duration = Duration::from_secs(60);

/// A worker of the page, in a file.
struct Script {
    _directory: TempDir,
    program: &'static str,
    file: PathBuf,
}

impl Script {
    /// With faster heartbeats than on the page, so that work outlasts three of them.
    fn python() -> Script {
        let script = only_block("python");
        let fast = script.replace("HEARTBEAT_MS = str(uuid.uuid4()), 5000", "HEARTBEAT_MS = str(uuid.uuid4()), 300");
        assert_ne!(script, fast, "the page says how often the worker calls");
        Script::new("python3", "worker.py", &fast)
    }

    fn node() -> Script {
        Script::new("node", "worker.mjs", &only_block("js"))
    }

    fn new(program: &'static str, name: &str, text: &str) -> Script {
        require(program);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join(name);
        std::fs::write(&file, text).unwrap();
        Script { _directory: directory, program, file }
    }

    fn command(&self, url: &str) -> Command {
        let mut command = Command::new(self.program);
        command.arg(&self.file).env("TASKWHEEL_SERVER", url).env("no_proxy", "127.0.0.1").env_remove("TASKWHEEL_TOKEN");
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    fn start(&self, url: &str) -> Child {
        self.command(url).spawn().expect("the worker starts")
    }
}

/// The only block of the page in a language.
fn only_block(language: &str) -> String {
    let blocks = texts(&page(PAGE), language);
    assert_eq!(blocks.len(), 1, "the page has one worker in {language}");
    blocks.concat()
}

/// An address at which the server goes away under the first call, and is there from then on.
async fn away_at_first(server: &Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let address = server.url().replace("http://", "");
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.expect("the worker calls");
        let mut call = Vec::new();
        // Its body is JSON.
        while !call.ends_with(b"}") {
            first.read_buf(&mut call).await.expect("it asks for something");
        }
        drop(first);
        while let Ok((mut caller, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&address).await.expect("the server is there");
            tokio::spawn(async move { copy_bidirectional(&mut caller, &mut server).await });
        }
    });
    url
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
    let (server, script) = (Server::start(Dialect::Sqlite).await, Script::python());
    let mut worker = script.start(&away_at_first(&server).await);
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
    let mut worker = script.start(&server.url());
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

/// What the page says that the Python worker prints, for what the page submits.
#[tokio::test(flavor = "multi_thread")]
async fn the_python_worker_prints_what_the_page_shows() {
    let server = Server::start(Dialect::Sqlite).await;
    let page = page(PAGE);
    let story = part(&page, "Save it as `worker.py`", "When you have seen enough");
    let (submits, shown) = (texts(story, "sh").concat(), texts(story, "text").concat());
    crate::shell::run(PAGE, &submits, &server).await;
    let script = Script::python();
    let mut worker = script.command(&server.url()).stdout(Stdio::piped()).spawn().expect("the worker starts");
    eventually("the third runs", TIME_MAX, async || server.task(3).await["checkpoint"] == 1).await;
    stop(&mut worker, Signal::SIGINT).await;
    let mut printed = String::new();
    worker.stdout.take().expect("its output").read_to_string(&mut printed).await.unwrap();
    assert_eq!(printed, shown);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_worker_works_and_fails() {
    let (server, script) = (Server::start(Dialect::Sqlite).await, Script::node());
    let _worker = script.start(&away_at_first(&server).await);
    let good = server.submit(json!({"type": "mail", "payload": recipients(1)})).await;
    let bad = server.submit(json!({"type": "mail", "max_attempts": 1})).await;
    has(&server, good, "Success").await;
    assert_eq!(server.task(good).await["result"], recipients(1));
    has(&server, bad, "Failure").await;
    let why = server.task(bad).await["error_info"].to_string();
    assert!(why.contains("TypeError"), "the page's work throws where there is no payload: {why}");
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workers_of_the_page_show_their_token() {
    let server = Server::start(Dialect::Sqlite).await;
    for _ in 0..2 {
        server.submit(json!({"type": "mail", "payload": recipients(1)})).await;
    }
    let create = ["tokens", "create", "--role", "worker", "--database", &server.database.url];
    let made = Command::new(env!("CARGO_BIN_EXE_taskwheel")).args(create).output().await.unwrap();
    let token = String::from_utf8(made.stdout).unwrap();
    let mut tables = server.database.raw().await;
    for (script, done) in [(Script::python(), 1), (Script::node(), 2)] {
        let mut worker = script.command(&server.url()).env("TASKWHEEL_TOKEN", token.trim()).spawn().unwrap();
        let deadline = tokio::time::Instant::now() + TIME_MAX;
        while tables.rows("SELECT id FROM task_history").await.len() < done {
            assert!(tokio::time::Instant::now() < deadline, "{} is let in", script.program);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        worker.kill().await.unwrap();
    }
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
