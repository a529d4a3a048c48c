//! The load: tasks of two tenants, submitted one by one, of every kind that a fault could do something to.

use crate::api::Api;
use crate::history::{Fact, History};
use rand::RngExt;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two submits of a client.
const PAUSE_MS: std::ops::Range<u64> = 20..60;
/// So few unique keys that they are often live already.
const UNIQUE_KEYS: u32 = 8;
const ATTEMPTS_MAX: u32 = 3;
const TRIES_MAX: usize = 40;

/// Submits until it is told to stop.
pub(crate) async fn run(name: String, tenant: String, api: Api, history: Arc<History>, stop: Arc<AtomicBool>) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let key = format!("{tenant} {name} {number}");
        let (task, unique, attempts_max) = task(&key);
        history.note(Fact::Submitting {
            key: key.clone(),
            tenant: tenant.clone(),
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
                    if unique.is_none() && rand::rng().random_range(0..100) < 4 {
                        tokio::spawn(meddle(id, api.clone(), history.clone()));
                    }
                    break;
                }
                // Nothing is wrong with it, so whoever refuses it has lost something.
                Ok(_) | Err(_) => history.note(Fact::Unanswered { call: "submit".into() }),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let pause = rand::rng().random_range(PAUSE_MS);
        tokio::time::sleep(Duration::from_millis(pause)).await;
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
        if api.call(Method::POST, &format!("/v1/tasks/{id}/{action}"), None).await.is_err() {
            history.note(Fact::Unanswered { call: (*action).to_owned() });
        }
    }
}
