//! Three nodes share the work of one database. One is killed, one is paused beyond its leases and comes back: nothing is
//! lost, and nothing is done twice at a time.

use crate::support::{Node, Server, claim, eventually};
use nix::sys::signal::Signal;
use reqwest::Client;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const TASKS: usize = 120;
const HEARTBEAT_MS: u64 = 500;
const LEASE: Duration = Duration::from_millis(3 * HEARTBEAT_MS);
const WORK: Duration = Duration::from_millis(50);
const IN_TIME: Duration = Duration::from_secs(60);

/// What all workers know together.
#[derive(Default)]
struct Ledger {
    /// Until when each task is in a worker's hands, by which execution.
    held: HashMap<i64, (String, Instant)>,
    /// Reports of a success that were accepted, by task.
    done: HashMap<i64, HashSet<String>>,
}

impl Ledger {
    /// A worker has got a task: nobody else may have it. Its lease counts from when it asked at the earliest.
    fn take(&mut self, id: i64, exec_id: &str, asked: Instant) {
        let until = asked + LEASE;
        if let Some((other, other_until)) = self.held.insert(id, (exec_id.to_owned(), until)) {
            assert!(other_until <= Instant::now(), "task {id} is with {other} and with {exec_id}");
        }
    }

    /// A worker is through with a task.
    fn leave(&mut self, id: i64, exec_id: &str) {
        self.held.retain(|held, (holder, _)| *held != id || holder != exec_id);
    }
}

/// A worker at one node, as the protocol wants it: it names what it got, works, and reports.
struct Worker {
    client: Client,
    name: String,
    /// Its node, and where it goes when that one is gone.
    nodes: [String; 2],
    ledger: Arc<Mutex<Ledger>>,
}

impl Worker {
    /// An answer; nothing when the node is gone or does not answer before the lease is over.
    async fn call(&self, node: &str, path: &str, body: &Value) -> Option<Value> {
        let call = self.client.post(format!("{node}{path}")).json(body).timeout(LEASE).send();
        call.await.ok()?.error_for_status().ok()?.json().await.ok()
    }

    /// Works until everything is done.
    async fn run(self) {
        let mut node = 0;
        while self.ledger.lock().unwrap().done.len() < TASKS {
            let asked = Instant::now();
            let mut request = claim(&self.name, "mail");
            request["max"] = json!(3);
            request["wait_ms"] = json!(200);
            request["heartbeat_ms"] = json!(HEARTBEAT_MS);
            match self.call(&self.nodes[node], "/v1/worker/claim", &request).await {
                Some(answer) => self.work(&answer["tasks"], asked).await,
                None => node = 1 - node,
            }
        }
    }

    /// Reports until there is an answer: one that was lost on the way may have been accepted.
    async fn report(&self, items: &Value) -> Value {
        for node in self.nodes.iter().cycle() {
            if let Some(answer) = self.call(node, "/v1/worker/report", items).await {
                return answer;
            }
        }
        unreachable!("it does not give up")
    }

    async fn work(&self, tasks: &Value, asked: Instant) {
        let tasks = tasks.as_array().unwrap();
        let exec = |task: &Value| task["exec_id"].as_str().unwrap().to_owned();
        for task in tasks {
            self.ledger.lock().unwrap().take(task["id"].as_i64().unwrap(), &exec(task), asked);
        }
        tokio::time::sleep(WORK).await;
        let item = |task: &Value| json!({"id": task["id"], "exec_id": task["exec_id"], "outcome": "success"});
        let items: Vec<_> = tasks.iter().map(item).collect();
        for task in tasks {
            self.ledger.lock().unwrap().leave(task["id"].as_i64().unwrap(), &exec(task));
        }
        let answer = self.report(&json!({"items": items})).await;
        for (task, reported) in tasks.iter().zip(answer["items"].as_array().unwrap()) {
            if reported["state"] == "accepted" {
                let id = task["id"].as_i64().unwrap();
                self.ledger.lock().unwrap().done.entry(id).or_default().insert(exec(task));
            }
        }
    }
}

fn workers(server: &Server, nodes: &[&str], ledger: &Arc<Mutex<Ledger>>) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    for (number, node) in nodes.iter().cycle().take(2 * nodes.len()).enumerate() {
        let worker = Worker {
            client: server.client.clone(),
            name: format!("w{number}"),
            nodes: [(*node).to_owned(), server.url()],
            ledger: ledger.clone(),
        };
        workers.spawn(worker.run());
    }
    workers
}

/// Claims a task through a node and names it.
async fn hold(client: &Client, node: &Node, worker: &str) -> Value {
    let post = async |path: &str, body: Value| -> Value {
        client.post(format!("{}{path}", node.url)).json(&body).send().await.unwrap().json().await.unwrap()
    };
    let mut request = claim(worker, "mail");
    request["heartbeat_ms"] = json!(HEARTBEAT_MS);
    let task = post("/v1/worker/claim", request).await["tasks"][0].clone();
    let item = json!({"id": task["id"], "exec_id": task["exec_id"]});
    let renewed = post("/v1/worker/renew", json!({"worker_id": worker, "items": [item]})).await;
    assert_eq!(renewed["items"][0]["state"], "ok", "{renewed}");
    task
}

async fn nothing_is_lost_when_of_three_nodes_one_is_killed_and_one_is_paused(server: &Server) {
    let (killed, paused) = (server.another_node().await, server.another_node().await);
    let tasks: Vec<_> = (0..TASKS).map(|_| json!({"type": "mail"})).collect();
    server.post("/v1/tasks/batch", json!({"tasks": tasks})).await.ok();
    // These two workers are never heard of again through their nodes.
    let orphan = hold(&server.client, &killed, "orphan").await;
    let late = hold(&server.client, &paused, "late").await;
    assert_ne!(orphan["id"], late["id"]);

    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let done = || ledger.lock().unwrap().done.len();
    let mut workers = workers(server, &[&server.url(), &killed.url, &paused.url], &ledger);
    eventually("work is under way", IN_TIME, async || done() >= TASKS / 8).await;
    killed.signal(Signal::SIGKILL);
    paused.signal(Signal::SIGSTOP);
    eventually("everything is done", IN_TIME, async || done() == TASKS).await;
    paused.signal(Signal::SIGCONT);
    while let Some(worker) = workers.join_next().await {
        worker.expect("no task was in two hands");
    }

    let item = json!({"id": late["id"], "exec_id": late["exec_id"], "outcome": "success"});
    let report = server.client.post(format!("{}/v1/worker/report", paused.url)).json(&json!({"items": [item]}));
    let answer: Value = report.send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["items"][0]["state"], "superseded", "who comes too late is told so");
    let page = server.get("/v1/tasks?status=Success&limit=500").await.ok();
    assert_eq!(page["items"].as_array().unwrap().len(), TASKS);
    let twice: Vec<_> = ledger.lock().unwrap().done.iter().filter(|(_, by)| by.len() > 1).map(|(id, _)| *id).collect();
    assert!(twice.is_empty(), "accepted from two executions: {twice:?}");
}

crate::facts! { in postgres on Postgres: nothing_is_lost_when_of_three_nodes_one_is_killed_and_one_is_paused }
crate::facts! { in mysql on Mysql: nothing_is_lost_when_of_three_nodes_one_is_killed_and_one_is_paused }
