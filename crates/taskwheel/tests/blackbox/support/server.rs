//! The binary as a child process, and calls to it.

use super::{Dialect, TestDatabase};
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use std::process::{ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A server and its database.
pub(crate) struct Server {
    pub(crate) database: TestDatabase,
    pub(crate) client: Client,
    node: Mutex<Option<Node>>,
}

/// One process.
pub(crate) struct Node {
    pub(crate) url: String,
    process: Child,
}

/// What a call was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of a call that went well.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{}: {}", self.status, self.body);
        self.body
    }
}

impl Server {
    pub(crate) async fn start(dialect: Dialect) -> Server {
        Server::start_with(dialect, &[], &[]).await
    }

    /// A server that is told more, by flags and by variables of its environment.
    pub(crate) async fn start_with(dialect: Dialect, flags: &[&str], variables: &[(&str, &str)]) -> Server {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let database = TestDatabase::create(dialect).await;
        let node = Node::start_with(&database.url, flags, variables).await;
        Server { database, client: Client::new(), node: Mutex::new(Some(node)) }
    }

    /// Another node on the same database.
    pub(crate) async fn another_node(&self) -> Node {
        Node::start(&self.database.url).await
    }

    /// Ends the server and removes its database.
    pub(crate) async fn end(self) {
        drop(self.take());
        self.database.remove().await;
    }

    pub(crate) fn url(&self) -> String {
        self.node.lock().unwrap().as_ref().expect("the server runs").url.clone()
    }

    fn take(&self) -> Option<Node> {
        self.node.lock().unwrap().take()
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        self.node.lock().unwrap().as_ref().expect("the server runs").signal(signal);
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&self) -> ExitStatus {
        let mut node = self.take().expect("the server runs");
        tokio::time::timeout(Duration::from_secs(40), node.process.wait()).await.expect("it ends").unwrap()
    }

    /// kill -9, and a new process on the same database.
    pub(crate) async fn kill_and_restart(&self) {
        let mut node = self.take().expect("the server runs");
        node.process.kill().await.unwrap();
        self.restart().await;
    }

    /// A new process on the same database.
    pub(crate) async fn restart(&self) {
        let node = Node::start(&self.database.url).await;
        *self.node.lock().unwrap() = Some(node);
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        call(&self.client, &self.url(), method, path, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, Some(&body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.call(Method::PATCH, path, Some(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.call(Method::PUT, path, Some(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, None).await
    }

    /// Submits a task and gives its id.
    pub(crate) async fn submit(&self, task: Value) -> i64 {
        self.post("/v1/tasks", task).await.ok()["id"].as_i64().unwrap()
    }

    /// A task as it is shown.
    pub(crate) async fn task(&self, id: i64) -> Value {
        self.get(&format!("/v1/tasks/{id}")).await.ok()
    }

    /// The tasks that a claim gets.
    pub(crate) async fn claim(&self, claim: Value) -> Vec<Value> {
        self.post("/v1/worker/claim", claim).await.ok()["tasks"].as_array().unwrap().clone()
    }

    /// Reports an outcome of a claimed task.
    pub(crate) async fn report(&self, task: &Value, outcome: &str) -> Value {
        let item = serde_json::json!({"id": task["id"], "exec_id": task["exec_id"], "outcome": outcome});
        self.post("/v1/worker/report", serde_json::json!({"items": [item]})).await.ok()["items"][0].clone()
    }
}

impl Node {
    pub(crate) async fn start(database: &str) -> Node {
        Node::start_with(database, &[], &[]).await
    }

    pub(crate) async fn start_with(database: &str, flags: &[&str], variables: &[(&str, &str)]) -> Node {
        let mut process = Command::new(env!("CARGO_BIN_EXE_taskwheel"))
            .args(["serve", "--listen", "127.0.0.1:0", "--database", database])
            .args(flags)
            .envs(variables.iter().copied())
            .env("TASKWHEEL_LOG", "warn")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await.expect("it starts in time");
        let first = first.unwrap().expect("it says where it listens");
        let url = first.split_whitespace().last().unwrap().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{first}");
        // What it prints later has somewhere to go.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Node { url, process }
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.process.id().expect("it runs").cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
    }
}

pub(crate) async fn call(client: &Client, url: &str, method: Method, path: &str, body: Option<&Value>) -> Answer {
    let mut request = client.request(method, format!("{url}{path}"));
    if let Some(body) = body {
        request = request.json(body);
    }
    let response = request.send().await.expect("the server answers");
    let status = response.status();
    let text = response.text().await.unwrap();
    Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
}
