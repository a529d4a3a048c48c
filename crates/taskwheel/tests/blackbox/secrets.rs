//! What nobody may find out from what the server tells.

use crate::access::token;
use crate::support::{Server, claim};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::Method;
use serde_json::{Value, json};
use std::fs::File;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// However much is logged.
async fn no_token_payload_or_result_is_in_the_log_or_the_metrics(server: &Server) {
    let admin = token(server, &["--role", "admin"]).await;
    // An SQLite file has one server.
    server.signal(Signal::SIGTERM);
    server.ended().await;
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut node = Command::new(env!("CARGO_BIN_EXE_taskwheel"))
        .args(["serve", "--listen", "127.0.0.1:0", "--database", &server.database.url])
        .env("TASKWHEEL_LOG", "trace")
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(node.stdout.take().unwrap()).lines();
    let url = said.next_line().await.unwrap().unwrap().split_whitespace().last().unwrap().to_owned();
    let call = async |method: Method, path: &str, shown: &str, body: Value| {
        let request = server.client.request(method, format!("{url}{path}")).header("authorization", shown);
        let answer = request.json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let shown = format!("Bearer {admin}");
    let post = async |path: &str, body: Value| {
        let (status, text) = call(Method::POST, path, &shown, body).await;
        assert!(status < 300, "{path}: {status} {text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    post("/v1/tasks", json!({"type": "mail", "payload": "Rumpelstilzchen"})).await;
    let task = post("/v1/worker/claim", claim("w1", "mail")).await["tasks"][0].clone();
    let item = json!({"id": task["id"], "exec_id": task["exec_id"], "outcome": "success", "result": "Schneewittchen"});
    post("/v1/worker/report", json!({"items": [item]})).await;
    let (number, secret) = admin.rsplit_once('_').unwrap();
    let nobody = format!("Bearer {number}_x{secret}");
    assert_eq!(call(Method::GET, "/v1/tasks", &nobody, Value::Null).await.0, 401);
    assert_eq!(call(Method::GET, "/v1/tasks", &format!("Basic {admin}"), Value::Null).await.0, 401);
    assert_eq!(call(Method::GET, "/nowhere", &shown, Value::Null).await.0, 404);
    let (status, metrics) = call(Method::GET, "/metrics", &shown, Value::Null).await;
    assert!(status == 200 && metrics.contains("taskwheel_ready 1"), "{metrics}");
    kill(Pid::from_raw(node.id().unwrap().cast_signed()), Signal::SIGTERM).unwrap();
    node.wait().await.unwrap();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("DEBUG taskwheel_server::worker: a task is done"), "much is logged: {log}");
    for hidden in [secret, "Rumpelstilzchen", "Schneewittchen"] {
        let line = log.lines().chain(metrics.lines()).find(|line| line.contains(hidden));
        assert_eq!(line, None, "{hidden}");
    }
}

crate::facts![no_token_payload_or_result_is_in_the_log_or_the_metrics];
