//! A worker as a process of its own, so that it can be killed and stopped. It speaks the worker protocol and nothing else, and does what
//! the payload of a task says. A lying one also reports twice, late and for others, and never shows that it is alive.

use crate::api::{Api, unanswered};
use crate::history::{Fact, History, now};
use crate::plan::{DIFFERENTLY, FOR_OTHERS, LATE, SILENT, TWICE};
use anyhow::Result;
use clap::Args;
use rand::RngExt;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a worker promises. Its lease lasts three times as long.
pub(crate) const HEARTBEAT_MS: i64 = 1_000;
pub(crate) const LEASE_MS: i64 = 3 * HEARTBEAT_MS;
pub(crate) const TYPES: [&str; 3] = ["work", "judged", "tick"];
const AT_ONCE_MAX: usize = 16;
const WAIT_MS: i64 = 500;
/// What a worker has done it reports until somebody takes it: nobody else would end what one that lives has in hand.
const UNTIL_ANSWERED: usize = usize::MAX;
/// A liar makes no call at all for so long, beyond its lease, and so often.
const SILENT_MS: i64 = LEASE_MS + 2_000;
const SILENT_EVERY_MS: i64 = 15_000;

#[derive(Clone, Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Where the servers are, with commas between them.
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    #[arg(long, env = "TASKWHEEL_TOKEN", hide_env_values = true)]
    token: String,
    /// The tenant of the token.
    #[arg(long)]
    tenant: String,
    #[arg(long)]
    name: String,
    /// Where its facts go.
    #[arg(long)]
    history: PathBuf,
    /// Whether it does what no worker should.
    #[arg(long)]
    lies: bool,
}

struct Worker {
    api: Api,
    history: History,
    id: String,
    args: WorkerArgs,
    /// The executions that it has in hand, with the ids of their tasks.
    held: Mutex<HashMap<String, i64>>,
    /// Until when it makes no call.
    silent_until: AtomicI64,
}

pub(crate) async fn run(args: WorkerArgs) -> Result<()> {
    let worker = Arc::new(Worker {
        api: Api::new(args.servers.clone(), args.token.clone())?,
        history: History::open(&args.history)?,
        // New at each start.
        id: format!("{}-{}", args.name, uuid::Uuid::new_v4()),
        held: Mutex::default(),
        silent_until: AtomicI64::new(0),
        args,
    });
    if !worker.args.lies {
        tokio::spawn(worker.clone().renew());
    }
    loop {
        let free = AT_ONCE_MAX.saturating_sub(worker.held().len());
        if free == 0 || !worker.claim(free).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if worker.args.lies {
            worker.fall_silent().await;
        }
    }
}

impl Worker {
    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<String, i64>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn claim(self: &Arc<Self>, max: usize) -> bool {
        let claim = json!({"worker_id": self.id, "host": self.args.name, "types": TYPES, "max": max, "wait_ms": WAIT_MS,
            "heartbeat_ms": HEARTBEAT_MS});
        let sent = now();
        let answer = match self.api.call(Method::POST, "/v1/worker/claim", Some(&claim)).await {
            Ok((status, answer)) if status.is_success() => answer,
            other => {
                self.history.note(unanswered("claim", other));
                return false;
            }
        };
        for task in answer["tasks"].as_array().into_iter().flatten() {
            let text = |field: &str| task[field].as_str().unwrap_or_default().to_owned();
            let (id, exec) = (task["id"].as_i64().unwrap_or(0), text("exec_id"));
            self.history.note(Fact::Claimed {
                worker: self.id.clone(),
                tenant: self.args.tenant.clone(),
                sent,
                id,
                exec: exec.clone(),
                attempt: task["attempt"].as_u64().unwrap_or(0) as u32,
                of_tenant: text("tenant"),
                timeout_ms: task["timeout_ms"].as_i64().filter(|ms| *ms >= 0),
            });
            self.held().insert(exec.clone(), id);
            tokio::spawn(self.clone().execute(task.clone(), id, exec, sent));
        }
        true
    }

    async fn execute(self: Arc<Self>, task: Value, id: i64, exec: String, sent: i64) {
        let payload = &task["payload"];
        let ms = payload["ms"].as_u64().unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        let attempt = task["attempt"].as_u64().unwrap_or(1);
        let outcome = match payload["do"].as_str() {
            Some("die") => std::process::abort(),
            Some("fail_before") if attempt < payload["attempt"].as_u64().unwrap_or(0) => "error",
            Some("release") if rand::random() => "release",
            Some("retry") if attempt < 2 => "retry",
            Some(outcome @ ("error" | "failure")) => outcome,
            _ => "success",
        };
        if self.args.lies {
            self.lie(id, &exec, outcome, sent).await;
        } else {
            self.report(id, &exec, outcome, UNTIL_ANSWERED).await;
        }
        self.held().remove(&exec);
    }

    /// Makes no call for a while, with something in hand, now and then.
    async fn fall_silent(&self) {
        if !self.held().is_empty() && now() - self.silent_until.load(Ordering::Relaxed) > SILENT_EVERY_MS - SILENT_MS {
            self.silent_until.store(now() + SILENT_MS, Ordering::Relaxed);
            self.stay_silent().await;
        }
    }

    async fn stay_silent(&self) {
        let left = self.silent_until.load(Ordering::Relaxed) - now();
        tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0))).await;
    }

    /// One of the ways in which workers go wrong. Each counts when it was answered.
    async fn lie(&self, id: i64, exec: &str, outcome: &str, sent: i64) {
        let told = |name: &str, answer: Option<String>| {
            if answer.is_some() {
                self.history.note(Fact::Fault { name: name.to_owned() });
            }
        };
        let way = rand::rng().random_range(0..5);
        if way == 0 {
            tokio::time::sleep(Duration::from_millis(LEASE_MS as u64 + 2_000)).await;
        }
        self.stay_silent().await;
        if way == 1 {
            told(FOR_OTHERS, self.report(id + 1, exec, "success", 1).await);
            told(FOR_OTHERS, self.report(id, &uuid::Uuid::now_v7().to_string(), "success", 1).await);
            return;
        }
        let first = self.report(id, exec, outcome, UNTIL_ANSWERED).await;
        // It has not shown that it is alive, and was taken for dead.
        let is_given_up = first.as_deref() == Some("superseded") && now() - sent > LEASE_MS;
        told(SILENT, first.clone().filter(|_| is_given_up));
        match way {
            0 => told(LATE, first),
            2 => {
                let other = if outcome == "error" { "success" } else { "error" };
                told(DIFFERENTLY, self.report(id, exec, other, 1).await.and(first));
            }
            _ => told(TWICE, self.report(id, exec, outcome, 1).await.and(first)),
        }
    }

    /// Reports until it is answered, and says how.
    async fn report(&self, id: i64, exec: &str, outcome: &str, tries: usize) -> Option<String> {
        let (exec, outcome) = (exec.to_owned(), outcome.to_owned());
        self.history.note(Fact::Reporting { id, exec: exec.clone(), outcome: outcome.clone() });
        let item = json!({"id": id, "exec_id": exec, "outcome": outcome,
            "result": (outcome == "success").then(|| json!({"exec": exec})), "error": (outcome != "success").then_some("as it was told")});
        let report = json!({"items": [item]});
        for _ in 0..tries {
            match self.api.call(Method::POST, "/v1/worker/report", Some(&report)).await {
                Ok((status, answer)) if status.is_success() => {
                    let state = answer["items"][0]["state"].as_str().unwrap_or("none").to_owned();
                    self.history.note(Fact::Reported { id, exec, outcome, state: state.clone() });
                    return Some(state);
                }
                other => self.history.note(unanswered("report", other)),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        None
    }

    /// Shows that it is alive, and names what it has in hand.
    async fn renew(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(HEARTBEAT_MS as u64 / 2)).await;
            let held: Vec<_> = self.held().iter().map(|(exec, id)| (exec.clone(), *id)).collect();
            let items: Vec<_> = held.iter().map(|(exec, id)| json!({"id": id, "exec_id": exec})).collect();
            self.history.note(Fact::Renewing { execs: held.iter().map(|(exec, _)| exec.clone()).collect() });
            let (renew, sent) = (json!({"worker_id": self.id, "items": items}), now());
            match self.api.call(Method::POST, "/v1/worker/renew", Some(&renew)).await {
                Ok((status, answer)) if status.is_success() => {
                    let state = |place: usize| answer["items"][place]["state"].as_str().unwrap_or("none").to_owned();
                    let named = held.into_iter().enumerate();
                    let items = named.map(|(place, (exec, id))| (id, exec, state(place))).collect();
                    self.history.note(Fact::Renewed { worker: self.id.clone(), sent, items });
                }
                other => self.history.note(unanswered("renew", other)),
            }
        }
    }
}
