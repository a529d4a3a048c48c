//! What a tenant may have, and what a token is for.

use crate::access::{command, get, post, token};
use crate::support::{Server, claim, eventually};
use serde_json::{Value, json};
use std::time::Duration;

const IN_TIME: Duration = Duration::from_secs(20);

async fn a_tenant_submits_as_many_tasks_a_second_as_it_may(server: &Server) {
    let limited = token(server, &["--role", "operator", "--tenant", "acme"]).await;
    let free = token(server, &["--role", "operator", "--tenant", "other"]).await;
    let submit = async |token: &str, tasks: usize| {
        let tasks = vec![json!({"type": "mail"}); tasks];
        post(server, token, "/v1/tasks/batch", json!({"tasks": tasks})).await
    };
    command(server, &["tenants", "limit", "acme", "--submits-per-s", "5"]).await;
    eventually("more than a second's worth is never taken", IN_TIME, async || submit(&limited, 6).await.status == 422)
        .await;
    let refused = submit(&limited, 6).await;
    assert_eq!(refused.body["errors"][0]["field"], "tasks", "{}", refused.body);

    eventually("a second's worth is taken", IN_TIME, async || submit(&limited, 5).await.status == 201).await;
    eventually("no more in the same second", IN_TIME, async || {
        let answer = submit(&limited, 5).await;
        let is_refused = answer.status == 429;
        assert!(!is_refused || answer.body["detail"].as_str().unwrap().contains("5 tasks a second"), "{answer:?}");
        is_refused
    })
    .await;
    submit(&free, 100).await.ok();
    eventually("the next second has room", IN_TIME, async || submit(&limited, 5).await.status == 201).await;
}

async fn runs_of_schedules_are_held_to_the_limits_of_their_tenant(server: &Server) {
    let acme = token(server, &["--role", "operator", "--tenant", "acme"]).await;
    let sharded = json!({"name": "s", "type": "mail", "shards": 5});
    let made = post(server, &acme, "/v1/schedules", sharded).await.ok();
    let run = format!("/v1/schedules/{}/run", made["id"]);
    let again = format!("/task-scheduler/task/execTaskImmediately?taskId={}", made["id"]);
    command(server, &["tenants", "limit", "acme", "--live-max", "9"]).await;
    eventually("the second run is too much", IN_TIME, async || {
        let answer = post(server, &acme, &run, json!({})).await;
        answer.status == 429 && answer.body["detail"].as_str().unwrap().contains("9 live tasks, and has")
    })
    .await;
    assert_eq!(post(server, &acme, &again, json!({})).await.status, 429);
    command(server, &["tenants", "limit", "acme", "--submits-per-s", "4"]).await;
    eventually("five in a second are never taken", IN_TIME, async || {
        let answer = post(server, &acme, &run, json!({})).await;
        answer.status == 422 && answer.body["errors"][0]["field"] == "shards"
    })
    .await;
    command(server, &["tenants", "limit", "acme", "--live-max", "1"]).await;
    let every = json!({"name": "t", "type": "sms", "timers": [{"kind": "fixed_rate", "period_ms": 1000}]});
    let made = post(server, &acme, "/v1/schedules", every).await.ok();
    let runs = format!("/v1/runs?tenant=acme&schedule_id={}", made["id"]);
    eventually("its timers begin nothing either", IN_TIME, async || {
        let runs = get(server, &acme, &runs).await.ok();
        runs["items"][0]["status"] == "skipped" && runs["items"][0]["reason"] == "quota"
    })
    .await;
}

/// A run has as many tasks as there are workers that would get one.
async fn workers_of_other_tenants_do_not_count_against_a_run_for_each_worker(server: &Server) {
    let acme = token(server, &["--role", "operator", "--tenant", "acme"]).await;
    let own = token(server, &["--role", "worker", "--tenant", "acme"]).await;
    let foreign = token(server, &["--role", "worker", "--tenant", "other"]).await;
    post(server, &own, "/v1/worker/claim", claim("by-type", "mail")).await.ok();
    let by_category = json!({"worker_id": "by-category", "host": "h", "categories": ["post"]});
    post(server, &own, "/v1/worker/claim", by_category).await.ok();
    for worker in ["x", "y", "z"] {
        post(server, &foreign, "/v1/worker/claim", claim(worker, "mail")).await.ok();
    }
    let each = json!({"name": "each", "type": "mail", "category": "post", "shards": "per_worker"});
    let made = post(server, &acme, "/v1/schedules", each).await.ok();
    let run = async || post(server, &acme, &format!("/v1/schedules/{}/run", made["id"]), json!({})).await;
    command(server, &["tenants", "limit", "acme", "--submits-per-s", "2"]).await;
    eventually("three in a second are never taken", IN_TIME, async || {
        let tasks = json!({"tasks": vec![json!({"type": "sms"}); 3]});
        post(server, &acme, "/v1/tasks/batch", tasks).await.status == 422
    })
    .await;
    assert_eq!(run().await.ok()["tasks"].as_array().unwrap().len(), 2, "one for each of its own");
    post(server, &own, "/v1/worker/claim", claim("third", "mail")).await.ok();
    let refused = run().await;
    assert_eq!((refused.status.as_u16(), &refused.body["errors"][0]["field"]), (422, &json!("shards")));
}

async fn a_worker_for_some_types_renews_and_reports_no_others(server: &Server) {
    let all = token(server, &["--role", "worker", "--tenant", "default"]).await;
    let mails = token(server, &["--role", "worker", "--tenant", "default", "--types", "mail,sms"]).await;
    let operator = token(server, &["--role", "operator"]).await;
    let mut got = Vec::new();
    for task_type in ["mail", "pay"] {
        post(server, &operator, "/v1/tasks", json!({"type": task_type})).await.ok();
        got.push(post(server, &all, "/v1/worker/claim", claim("w", task_type)).await.ok()["tasks"][0].clone());
    }
    let items = |outcome: Option<&str>| -> Value {
        let item = |task: &Value| match outcome {
            Some(outcome) => json!({"id": task["id"], "exec_id": task["exec_id"], "outcome": outcome}),
            None => json!({"id": task["id"], "exec_id": task["exec_id"], "checkpoint": {"page": 7}}),
        };
        got.iter().rev().map(item).collect()
    };
    let renewal = json!({"worker_id": "w", "items": items(None)});
    let renewed = post(server, &mails, "/v1/worker/renew", renewal.clone()).await.ok()["items"].clone();
    assert_eq!(renewed[0], json!({"id": got[1]["id"], "state": "superseded", "lease_until": null}));
    assert_eq!((&renewed[1]["id"], &renewed[1]["state"]), (&got[0]["id"], &json!("ok")));
    let reports = json!({"items": items(Some("success"))});
    let reported = post(server, &mails, "/v1/worker/report", reports.clone()).await.ok()["items"].clone();
    assert_eq!(reported[0], json!({"id": got[1]["id"], "state": "superseded", "status": null}));
    assert_eq!(reported[1], json!({"id": got[0]["id"], "state": "accepted", "status": "Success"}));
    let pay = get(server, &operator, &format!("/v1/tasks/{}", got[1]["id"])).await.ok();
    assert_eq!((&pay["status"], &pay["checkpoint"]), (&json!("Executing"), &Value::Null), "nothing was changed");
    assert_eq!(post(server, &all, "/v1/worker/report", reports).await.ok()["items"][0]["state"], "accepted");
}

async fn a_batch_does_not_tell_of_another_tokens_tasks(server: &Server) {
    let (one, two) = (token(server, &["--role", "submitter"]).await, token(server, &["--role", "submitter"]).await);
    let unique = |key: &str| json!({"type": "mail", "unique_key": key});
    let id = post(server, &one, "/v1/tasks", unique("u")).await.ok()["id"].clone();
    let batch = async |token: &str, partial: bool| {
        let tasks = json!({"tasks": [unique("v"), unique("u"), unique("v")], "partial": partial});
        post(server, token, "/v1/tasks/batch", tasks).await
    };
    let refused = batch(&two, false).await;
    assert_eq!((refused.status.as_u16(), &refused.body["code"]), (409, &json!("conflict")), "{}", refused.body);
    assert_eq!(get(server, &two, "/v1/tasks").await.ok()["items"], json!([]), "all or none");
    let partly = batch(&two, true).await.ok();
    assert_eq!((&partly["errors"][0]["index"], &partly["errors"][0]["field"]), (&json!(1), &json!("unique_key")));
    assert_eq!(partly["items"][1], json!({"index": 2, "id": partly["items"][0]["id"], "created": false}));
    let told = partly["items"].as_array().unwrap();
    assert!(told.len() == 2 && told.iter().all(|item| item["id"] != id), "{partly}");
    let own = batch(&one, true).await.ok();
    assert_eq!(own["items"][0], json!({"index": 1, "id": id, "created": false}), "the own is told: {own}");
}

async fn a_bad_cursor_of_the_log_is_refused(server: &Server) {
    let admin = token(server, &["--role", "admin"]).await;
    let refused = get(server, &admin, "/v1/audit?cursor=x").await;
    assert_eq!((refused.status.as_u16(), &refused.body["errors"][0]["field"]), (422, &json!("cursor")));
    let first = get(server, &admin, "/v1/audit?limit=1").await.ok();
    let next = format!("/v1/audit?cursor={}", first["next_cursor"].as_str().unwrap());
    assert_eq!(get(server, &admin, &next).await.ok()["items"], json!([]));
}

crate::facts![
    a_tenant_submits_as_many_tasks_a_second_as_it_may,
    runs_of_schedules_are_held_to_the_limits_of_their_tenant,
    workers_of_other_tenants_do_not_count_against_a_run_for_each_worker,
    a_worker_for_some_types_renews_and_reports_no_others,
    a_batch_does_not_tell_of_another_tokens_tasks,
    a_bad_cursor_of_the_log_is_refused,
];
