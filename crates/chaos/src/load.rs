//! The load: tasks of two tenants, submitted one by one, of every kind that a fault could do something to.

use crate::api::{Api, unanswered};
use crate::cluster::TENANTS;
use crate::history::{Fact, History};
use rand::RngExt;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Between two submits of a client.
const PAUSE_MS: std::ops::Range<u64> = 40..120;
/// So few unique keys that they are often live already.
const UNIQUE_KEYS: u32 = 8;
const ATTEMPTS_MAX: u32 = 3;
const TRIES_MAX: usize = 40;

/// In percent of the submits: a person steps in, the call is made again, a task of the other tenant is asked for.
const MEDDLE_PERCENT: u32 = 8;
/// A person steps in where the task is to wait, and can be called off before anybody has it.
const MEDDLE_DELAYED_PERCENT: u32 = 40;
const REPEAT_PERCENT: u32 = 5;
const TRESPASS_PERCENT: u32 = 3;

/// The last task of each tenant.
pub(crate) type Latest = [AtomicI64; TENANTS.len()];

/// One who submits.
pub(crate) struct Submitter {
    pub(crate) name: String,
    /// The place of its tenant.
    pub(crate) place: usize,
    pub(crate) api: Api,
    pub(crate) history: Arc<History>,
    pub(crate) latest: Arc<Latest>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Submits until it is told to stop. When it ends, nobody it has sent steps in any more.
pub(crate) async fn run(submitter: Submitter) {
    let Submitter { name, place, api, history, latest, stop } = submitter;
    let tenant = TENANTS[place];
    let mut number = 0;
    let mut people = JoinSet::new();
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let key = format!("{tenant} {name} {number}");
        let (task, unique, attempts_max) = task(&key);
        history.note(Fact::Submitting {
            key: key.clone(),
            tenant: tenant.to_owned(),
            unique: unique.clone(),
            attempts_max,
        });
        // Some repeat the call until it is answered, which takes an idempotency key; the others give up.
        let once = rand::random::<bool>().then_some(key.as_str());
        for _ in 0..once.map_or(1, |_| TRIES_MAX) {
            match api.call_once(Method::POST, "/v1/tasks", Some(&task), once).await {
                Ok((status, answer)) if status.is_success() => {
                    let id = answer["id"].as_i64().unwrap_or(0);
                    history.note(Fact::Submitted { key: key.clone(), id, created: status == StatusCode::CREATED });
                    latest[place].store(id, Ordering::Relaxed);
                    let percent = if task["delay_ms"].is_number() { MEDDLE_DELAYED_PERCENT } else { MEDDLE_PERCENT };
                    if unique.is_none() && is_chosen(percent) {
                        people.spawn(meddle(id, api.clone(), history.clone()));
                    }
                    if once.is_some() && is_chosen(REPEAT_PERCENT) {
                        repeat(&key, &task, &api, &history).await;
                    }
                    break;
                }
                // Nothing is wrong with it, so whoever refuses it has lost something.
                other => history.note(unanswered("submit", other)),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let foreign = latest[(place + 1) % TENANTS.len()].load(Ordering::Relaxed);
        if foreign > 0 && is_chosen(TRESPASS_PERCENT) {
            trespass(tenant, foreign, &api, &history).await;
        }
        let pause = rand::rng().random_range(PAUSE_MS);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    people.join_all().await;
}

fn is_chosen(percent: u32) -> bool {
    rand::rng().random_range(0..100) < percent
}

/// Makes a call again that was answered: the answer is the same.
async fn repeat(key: &str, task: &Value, api: &Api, history: &History) {
    match api.call_once(Method::POST, "/v1/tasks", Some(task), Some(key)).await {
        Ok((status, answer)) if status.is_success() => {
            let id = answer["id"].as_i64().unwrap_or(0);
            history.note(Fact::Repeated { key: key.to_owned(), id });
        }
        other => history.note(unanswered("submit", other)),
    }
}

/// Tries to cancel a task of another tenant.
async fn trespass(tenant: &str, id: i64, api: &Api, history: &History) {
    match api.call(Method::POST, &format!("/v1/tasks/{id}/cancel"), None).await {
        Ok((status, _)) => {
            history.note(Fact::Trespassed { tenant: tenant.to_owned(), id, status: status.as_u16() });
        }
        other => history.note(unanswered("trespass", other)),
    }
}

/// Any task: what it shall do, its unique key where it has one, and its maximum of attempts.
fn task(key: &str) -> (Value, Option<String>, u32) {
    let mut random = rand::rng();
    let mut task = json!({"type": "work", "key": key, "max_attempts": ATTEMPTS_MAX,
        "retry": {"strategy": "fixed", "delay_ms": 100}});
    let mut attempts_max = ATTEMPTS_MAX;
    task["payload"] = match random.random_range(0..100) {
        0..8 => json!({"ms": random.random_range(2_000..6_000)}),
        8..18 => json!({"ms": 5, "do": "fail_before", "attempt": 2}),
        18..22 => json!({"do": "error"}),
        22..24 => json!({"do": "failure"}),
        24..27 => json!({"do": "retry"}),
        27..30 => json!({"do": "release"}),
        30 => {
            attempts_max = 2;
            json!({"ms": 20, "do": "die"})
        }
        31..33 => {
            // Beyond its time limit.
            (task["timeout_ms"], attempts_max) = (json!(1_000), 2);
            json!({"ms": 4_000})
        }
        33..35 => {
            task["type"] = json!("judged");
            json!({"do": "error"})
        }
        _ => json!({"ms": random.random_range(0..50)}),
    };
    task["max_attempts"] = json!(attempts_max);
    if random.random_range(0..10) == 0 {
        task["delay_ms"] = json!(random.random_range(500..3_000));
    }
    let unique = (random.random_range(0..10) == 0).then(|| format!("unique {}", random.random_range(0..UNIQUE_KEYS)));
    if let Some(unique) = &unique {
        task["unique_key"] = json!(unique);
        // The key is one of the tenant and the type.
        task["type"] = json!("work");
    }
    (task, unique, attempts_max)
}

/// A person who cancels a task, and may think better of it.
async fn meddle(id: i64, api: Api, history: Arc<History>) {
    let actions: &[&str] = if rand::random() { &["cancel"] } else { &["cancel", "retry"] };
    for action in actions {
        let pause = rand::rng().random_range(0..1_000);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        history.note(Fact::Acting { id, action: (*action).to_owned() });
        match api.call(Method::POST, &format!("/v1/tasks/{id}/{action}"), None).await {
            Ok((status, _)) if status.is_success() => {
                history.note(Fact::Acted { id, action: (*action).to_owned() });
            }
            // What has become of the task does not allow it.
            Ok(_) => {}
            trouble @ Err(_) => history.note(unanswered(action, trouble)),
        }
    }
}
