//! Waiting, waking, and workers that come and go.

use crate::access::{get, post, token};
use crate::support::{Server, claim, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A claim that waits, in the background: its answer, and when it came.
fn waiting(server: &Server, claim: Value) -> JoinHandle<(Value, Instant)> {
    let (client, url) = (server.client.clone(), server.url());
    tokio::spawn(async move {
        let answer = client.post(format!("{url}/v1/worker/claim")).json(&claim).send().await.unwrap();
        (answer.json().await.unwrap(), Instant::now())
    })
}

fn patient(worker: &str, task_type: &str, wait_ms: i64) -> Value {
    let mut claim = claim(worker, task_type);
    claim["wait_ms"] = json!(wait_ms);
    claim
}

/// Until so many claims wait at the server.
async fn wait(server: &Server, claims: usize) {
    let line = format!("\ntaskwheel_waiting_claims {claims}\n");
    eventually("the claims wait", Duration::from_secs(10), async || {
        server.get("/metrics").await.ok().as_str().unwrap().contains(&line)
    })
    .await;
}

async fn a_waiting_worker_has_a_new_task_at_once(server: &Server) {
    let waiting = waiting(server, patient("w", "mail", 20_000));
    wait(server, 1).await;
    let submitted = Instant::now();
    let id = server.submit(json!({"type": "mail"})).await;
    let (answer, came) = waiting.await.unwrap();
    assert_eq!(answer["tasks"][0]["id"], id);
    assert!(came - submitted < Duration::from_millis(500), "{:?}", came - submitted);
}

async fn a_waiting_worker_has_a_delayed_task_when_it_is_due(server: &Server) {
    let waiting = waiting(server, patient("w", "mail", 20_000));
    wait(server, 1).await;
    let submitted = Instant::now();
    let id = server.submit(json!({"type": "mail", "delay_ms": 1_000})).await;
    let (answer, came) = waiting.await.unwrap();
    assert_eq!(answer["tasks"][0]["id"], id);
    let after = came - submitted;
    assert!((Duration::from_millis(990)..Duration::from_millis(1_500)).contains(&after), "{after:?}");
}

async fn an_empty_claim_is_answered_in_time(server: &Server) {
    let asked = Instant::now();
    assert!(server.claim(patient("w", "mail", 300)).await.is_empty());
    assert!((Duration::from_millis(300)..Duration::from_secs(2)).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    let asked = Instant::now();
    let mut claim = patient("w", "mail", 30_000);
    claim["heartbeat_ms"] = json!(200);
    assert!(server.claim(claim).await.is_empty());
    assert!(asked.elapsed() < Duration::from_secs(2), "within its heartbeat: {:?}", asked.elapsed());
}

async fn each_task_goes_to_one_of_many_waiting_workers(server: &Server) {
    let workers: Vec<_> =
        (0..20).map(|number| waiting(server, patient(&format!("w{number}"), "mail", 3_000))).collect();
    wait(server, 20).await;
    let tasks: Vec<_> = (0..20).map(|number| json!({"type": "mail", "key": number.to_string()})).collect();
    server.post("/v1/tasks/batch", json!({"tasks": tasks})).await.ok();
    let mut ids = Vec::new();
    for worker in workers {
        let (answer, _) = worker.await.unwrap();
        ids.extend(answer["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_i64().unwrap()));
    }
    ids.sort_unstable();
    let all = ids.len();
    ids.dedup();
    assert_eq!((ids.len(), all), (20, 20), "every worker has one, and nobody another's");
}

async fn the_tasks_of_a_silent_worker_are_done_by_another(server: &Server) {
    let id = server.submit(json!({"type": "mail"})).await;
    let mut silent = claim("silent", "mail");
    silent["heartbeat_ms"] = json!(300);
    let lost = server.claim(silent).await.remove(0);
    let item = json!({"id": id, "exec_id": lost["exec_id"]});
    server.post("/v1/worker/renew", json!({"worker_id": "silent", "items": [item]})).await.ok();
    let silent_since = Instant::now();
    let (answer, came) = waiting(server, patient("other", "mail", 20_000)).await.unwrap();
    assert_eq!((&answer["tasks"][0]["id"], &answer["tasks"][0]["attempt"]), (&json!(id), &json!(2)));
    let after = came - silent_since;
    assert!(after >= Duration::from_millis(800), "its lease held: {after:?}");
    assert!(
        after < Duration::from_millis(3 * 300 + 1_000 + 1_000),
        "three heartbeats and a second, and slack: {after:?}"
    );
    assert_eq!(server.report(&lost, "success").await["state"], "superseded");
    assert_eq!(server.report(&answer["tasks"][0], "success").await["status"], "Success");
    assert_eq!(server.task(id).await["attempts_log"][0]["outcome"], "lost");
}

async fn a_worker_that_goes_away_while_it_waits_takes_nothing_along(server: &Server) {
    let gone = waiting(server, patient("gone", "mail", 20_000));
    wait(server, 1).await;
    gone.abort();
    let _ = gone.await;
    // Its connection ends in its own time, and until then nobody can know.
    wait(server, 0).await;
    let id = server.submit(json!({"type": "mail"})).await;
    let (answer, _) = waiting(server, patient("here", "mail", 5_000)).await.unwrap();
    assert_eq!(answer["tasks"][0]["id"], id);
}

async fn a_task_that_kills_its_worker_every_time_ends(server: &Server) {
    let id = server.submit(json!({"type": "mail", "max_attempts": 2})).await;
    for attempt in 1..=2 {
        let mut doomed = patient(&format!("doomed-{attempt}"), "mail", 20_000);
        doomed["heartbeat_ms"] = json!(200);
        let mut tasks = Vec::new();
        while tasks.is_empty() {
            tasks = server.claim(doomed.clone()).await;
        }
        assert_eq!(tasks[0]["attempt"], attempt);
        let item = json!({"id": id, "exec_id": tasks[0]["exec_id"]});
        server.post("/v1/worker/renew", json!({"worker_id": format!("doomed-{attempt}"), "items": [item]})).await.ok();
    }
    eventually("it ends", Duration::from_secs(10), async || server.task(id).await["status"] == "Failure").await;
}

async fn an_admin_sees_the_workers_that_serve_the_tenant_it_names(server: &Server) {
    let admin = token(server, &["--role", "admin"]).await;
    for (tenant, id) in [("acme", "w1"), ("other", "w2")] {
        let worker = token(server, &["--role", "worker", "--tenant", tenant]).await;
        post(server, &worker, "/v1/worker/claim", claim(id, "mail")).await.ok();
    }
    post(server, &admin, "/v1/worker/claim", claim("w3", "mail")).await.ok();
    let seen = async |path: &str| {
        let listed = get(server, &admin, path).await.ok()["items"].as_array().unwrap().clone();
        listed.iter().map(|worker| worker["worker_id"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    assert_eq!(seen("/v1/workers").await, ["w1", "w2", "w3"].map(str::to_owned).into());
    assert_eq!(seen("/v1/workers?tenant=acme").await, ["w1", "w3"].map(str::to_owned).into(), "the last serves all");
    assert_eq!(seen("/v1/workers?tenant=nobody").await, ["w3".to_owned()].into());
}

crate::facts![
    an_admin_sees_the_workers_that_serve_the_tenant_it_names,
    a_waiting_worker_has_a_new_task_at_once,
    a_waiting_worker_has_a_delayed_task_when_it_is_due,
    an_empty_claim_is_answered_in_time,
    each_task_goes_to_one_of_many_waiting_workers,
    the_tasks_of_a_silent_worker_are_done_by_another,
    a_worker_that_goes_away_while_it_waits_takes_nothing_along,
    a_task_that_kills_its_worker_every_time_ends,
];
