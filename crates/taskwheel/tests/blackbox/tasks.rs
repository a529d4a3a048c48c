//! The life of a task, as callers see it.

use crate::support::{Server, claim, eventually};
use serde_json::{Value, json};
use std::time::Duration;

async fn a_task_is_submitted_claimed_renewed_and_done(server: &Server) {
    let submitted =
        server.post("/v1/tasks", json!({"type": "mail", "key": "order-7", "payload": {"to": ["a@b.c", 1.50]}})).await;
    assert_eq!(submitted.status, 201);
    let task = submitted.body;
    assert_eq!(task["status"], "New");
    assert_eq!((&task["tenant"], &task["priority"], &task["max_attempts"]), (&json!("default"), &json!(1), &json!(3)));
    assert_eq!(task["retry"]["strategy"], "exponential");
    let id = task["id"].as_i64().unwrap();

    let claimed = server.claim(claim("w1", "mail")).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0]["id"], id);
    assert_eq!(claimed[0]["payload"], json!({"to": ["a@b.c", 1.50]}));
    assert_eq!(claimed[0]["attempt"], 1);
    assert_eq!(server.task(id).await["status"], "Executing");

    let item = json!({"id": id, "exec_id": claimed[0]["exec_id"], "checkpoint": {"row": 5}, "progress": {"done": 5, "total": 9}});
    let renewed = server.post("/v1/worker/renew", json!({"worker_id": "w1", "items": [item]})).await.ok();
    assert_eq!(renewed["items"][0]["state"], "ok");
    assert!(renewed["items"][0]["lease_until"].is_string());
    assert_eq!(server.task(id).await["progress"]["done"], 5.0);

    let report = json!({"id": id, "exec_id": claimed[0]["exec_id"], "outcome": "success", "result": {"sent": true}});
    for _ in 0..2 {
        let reported = server.post("/v1/worker/report", json!({"items": [report]})).await.ok();
        assert_eq!(reported["items"][0], json!({"id": id, "state": "accepted", "status": "Success"}), "and again");
    }
    let done = server.task(id).await;
    assert_eq!(
        (&done["status"], &done["result"], &done["attempts"]),
        (&json!("Success"), &json!({"sent": true}), &json!(1))
    );
    assert_eq!(done["attempts_log"].as_array().unwrap().len(), 1);
    assert_eq!(done["attempts_log"][0]["outcome"], "success");
    assert!(server.claim(claim("w1", "mail")).await.is_empty());
}

async fn a_unique_key_is_live_once(server: &Server) {
    let task = json!({"type": "mail", "unique_key": "u"});
    let first = server.post("/v1/tasks", task.clone()).await;
    let second = server.post("/v1/tasks", task).await;
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 200));
    assert_eq!(first.body["id"], second.body["id"]);
}

async fn the_same_idempotency_key_is_answered_with_the_same_task(server: &Server) {
    let submit = async |key: &str, task_type: &str| {
        let url = format!("{}/v1/tasks", server.url());
        let request = server.client.post(url).header("Idempotency-Key", key).json(&json!({"type": task_type}));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, first) = submit("k", "mail").await;
    assert_eq!(status, 201);
    let task = server.claim(claim("w", "mail")).await.remove(0);
    server.report(&task, "success").await;
    let (status, again) = submit("k", "mail").await;
    assert_eq!((status, &again["id"], &again["status"]), (201, &first["id"], &json!("Success")));
    assert_ne!(submit("other", "mail").await.1["id"], first["id"]);
    let (status, refused) = submit(&"k".repeat(201), "mail").await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("Idempotency-Key")));
}

async fn statistics_count_how_executions_went(server: &Server) {
    let retry = json!({"strategy": "fixed", "delay_ms": 0});
    for outcomes in [&["success"][..], &["error", "success"], &["error", "error"]] {
        server.submit(json!({"type": "mail", "max_attempts": 2, "retry": retry})).await;
        for outcome in outcomes {
            let task = server.claim(claim("w", "mail")).await.remove(0);
            server.report(&task, outcome).await;
        }
    }
    eventually("they are written", Duration::from_secs(20), async || {
        let counted = server.get("/v1/stats?type=mail").await.ok()["items"][0].clone();
        let numbers = ["success_first", "success_second", "success_later", "errors", "failures"];
        numbers.map(|name| counted[name].as_u64().unwrap_or(99)) == [1, 1, 0, 3, 1]
    })
    .await;
    let all = server.get("/v1/stats").await.ok();
    assert!(all["items"][0]["run_ms"]["p99"].is_u64() && all["items"][0]["wait_ms"]["p50"].is_u64(), "{all}");
    assert_eq!(server.get("/v1/stats?type=other").await.ok()["items"], json!([]));
    assert_eq!(server.get("/v1/stats?from=2020-01-01T00:00:00Z").await.status, 422);
}

async fn a_batch_is_all_or_none_unless_it_is_partial(server: &Server) {
    let batch = |partial: bool| {
        json!({"tasks": [{"type": "a"}, {"type": "no spaces"}, {"type": "a", "unique_key": "u"},
                                                 {"type": "a", "unique_key": "u"}], "partial": partial})
    };
    let refused = server.post("/v1/tasks/batch", batch(false)).await;
    assert_eq!(refused.status, 422);
    assert_eq!((&refused.body["errors"][0]["index"], &refused.body["errors"][0]["field"]), (&json!(1), &json!("type")));
    assert_eq!(server.get("/v1/tasks").await.ok()["items"], json!([]), "nothing of it is stored");

    let stored = server.post("/v1/tasks/batch", batch(true)).await;
    assert_eq!(stored.status, 201);
    let items = stored.body["items"].as_array().unwrap();
    let indexes: Vec<_> = items.iter().map(|item| item["index"].as_i64().unwrap()).collect();
    assert_eq!(indexes, [0, 2, 3]);
    assert_eq!(items[1]["id"], items[2]["id"]);
    assert_eq!((&items[1]["created"], &items[2]["created"]), (&json!(true), &json!(false)));
    assert_eq!(stored.body["errors"][0]["index"], 1);
}

async fn an_error_is_tried_again_until_the_attempts_are_used_up(server: &Server) {
    let retry = json!({"strategy": "fixed", "delay_ms": 0});
    let id = server.submit(json!({"type": "mail", "max_attempts": 2, "retry": retry})).await;
    for (attempt, status) in [(1, "Error"), (2, "Failure")] {
        let task = server.claim(claim("w", "mail")).await.remove(0);
        assert_eq!(task["attempt"], attempt);
        let item = json!({"id": id, "exec_id": task["exec_id"], "outcome": "error", "error": "no route"});
        let reported = server.post("/v1/worker/report", json!({"items": [item]})).await.ok();
        assert_eq!(reported["items"][0]["status"], status);
    }
    let task = server.task(id).await;
    assert_eq!((&task["error_count"], &task["error_info"]), (&json!(2), &json!("no route")));
    assert_eq!(task["attempts_log"].as_array().unwrap().len(), 2);

    let again = server.post(&format!("/v1/tasks/{id}/retry"), json!({})).await.ok();
    assert_eq!((&again["status"], &again["round"], &again["attempts"]), (&json!("New"), &json!(2), &json!(0)));
}

async fn a_cancelled_execution_is_told_so(server: &Server) {
    let id = server.submit(json!({"type": "mail"})).await;
    let task = server.claim(claim("w", "mail")).await.remove(0);
    assert_eq!(server.post(&format!("/v1/tasks/{id}/cancel"), json!(null)).await.ok()["status"], "Cancelled");
    let item = json!({"id": id, "exec_id": task["exec_id"]});
    let renewed = server.post("/v1/worker/renew", json!({"worker_id": "w", "items": [item]})).await.ok();
    assert_eq!(renewed["items"][0]["state"], "cancelled");
    assert_eq!(server.report(&task, "success").await["state"], "superseded");
    assert_eq!(server.task(id).await["status"], "Cancelled");
}

async fn people_step_in(server: &Server) {
    let id = server.submit(json!({"type": "mail", "delay_ms": 3_600_000})).await;
    let path = format!("/v1/tasks/{id}");
    let edited = server
        .patch(&path, json!({"priority": 7, "remark": "look here", "payload": [1], "max_attempts": null}))
        .await
        .ok();
    assert_eq!(
        (&edited["priority"], &edited["remark"], &edited["payload"]),
        (&json!(7), &json!("look here"), &json!([1]))
    );
    assert!(server.claim(claim("w", "mail")).await.is_empty(), "it is not due for an hour");
    server.post(&format!("{path}/run-now"), json!({})).await.ok();
    let task = server.claim(claim("w", "mail")).await.remove(0);
    assert_eq!(server.report(&task, "failure").await["status"], "Failure");
    assert_eq!(server.patch(&path, json!({"priority": 1})).await.status, 409);
    let resolved = server.post(&format!("{path}/resolve"), json!({"remark": "sent by hand", "result": 5})).await.ok();
    assert_eq!((&resolved["status"], &resolved["remark"]), (&json!("ManuallyProcessed"), &json!("sent by hand")));
    assert_eq!(server.delete(&path).await.status, 204);
    assert_eq!(server.get(&path).await.status, 404);
}

async fn a_type_settles_what_its_tasks_do_not(server: &Server) {
    let settings = json!({"name": "Mail", "category": "out", "max_attempts": 1, "need_manual": true, "priority": 4,
                          "retry": {"strategy": "none"}, "timeout_ms": 60_000});
    let put = server.put("/v1/types/mail", settings).await.ok();
    assert_eq!((&put["type"], &put["paused"]), (&json!("mail"), &json!(false)));
    let id = server.submit(json!({"type": "mail"})).await;
    let task = server.task(id).await;
    assert_eq!((&task["priority"], &task["timeout_ms"], &task["category"]), (&json!(4), &json!(60_000), &json!("out")));

    server.post("/v1/types/mail/pause", json!(null)).await.ok();
    assert!(server.claim(claim("w", "mail")).await.is_empty());
    assert_eq!(server.get("/v1/types/mail").await.ok()["paused"], true);
    server.post("/v1/types/mail/resume", json!(null)).await.ok();
    let by_category = json!({"worker_id": "w", "host": "h", "categories": ["out"]});
    let task = server.claim(by_category).await.remove(0);
    assert_eq!(server.report(&task, "error").await["status"], "Pending");
    assert_eq!(server.get("/v1/types").await.ok()["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.get("/v1/types/other").await.status, 404);
}

async fn a_plain_insert_reaches_a_waiting_worker_within_a_second(server: &Server) {
    let (client, url) = (server.client.clone(), server.url());
    let waiting = tokio::spawn(async move {
        let mut claim = claim("w", "mail");
        claim["wait_ms"] = json!(10_000);
        client.post(format!("{url}/v1/worker/claim")).json(&claim).send().await.unwrap().json::<Value>().await.unwrap()
    });
    eventually("the worker waits", Duration::from_secs(5), async || {
        !server.get("/v1/workers").await.ok()["items"].as_array().unwrap().is_empty()
    })
    .await;
    let mut raw = server.database.raw().await;
    raw.run("INSERT INTO task (type, task_key, payload) VALUES ('mail', 'order-9', '{\"to\":\"x\"}')").await;
    let inserted = std::time::Instant::now();
    let answer = waiting.await.unwrap();
    assert!(inserted.elapsed() < Duration::from_secs(1), "{:?}", inserted.elapsed());
    assert_eq!(answer["tasks"][0]["key"], "order-9");
    assert_eq!(answer["tasks"][0]["payload"], json!({"to": "x"}));
}

crate::facts![
    a_task_is_submitted_claimed_renewed_and_done,
    a_unique_key_is_live_once,
    the_same_idempotency_key_is_answered_with_the_same_task,
    statistics_count_how_executions_went,
    a_batch_is_all_or_none_unless_it_is_partial,
    an_error_is_tried_again_until_the_attempts_are_used_up,
    a_cancelled_execution_is_told_so,
    people_step_in,
    a_type_settles_what_its_tasks_do_not,
    a_plain_insert_reaches_a_waiting_worker_within_a_second,
];
