//! Bad input gets a clear error that names the field, and changes nothing.

use crate::support::Server;
use reqwest::Method;
use serde_json::{Value, json};

/// A call, the status it is answered with, and the field that is named.
type Case = (Method, &'static str, Value, u16, Option<&'static str>);

async fn bad_calls_are_refused_by_name(server: &Server) {
    let worker = |more: Value| {
        let mut claim = json!({"worker_id": "w", "host": "h", "types": ["mail"]});
        claim.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claim
    };
    let uuid = "01890000-0000-7000-8000-000000000000";
    let cases: Vec<Case> = vec![
        (Method::POST, "/v1/tasks", json!({}), 422, Some("type")),
        (Method::POST, "/v1/tasks", json!({"type": ""}), 422, Some("type")),
        (Method::POST, "/v1/tasks", json!({"type": "a b"}), 422, Some("type")),
        (Method::POST, "/v1/tasks", json!({"type": 5}), 422, Some("type")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "typo": 1}), 422, Some("typo")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "priority": 0}), 422, Some("priority")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "priority": 10}), 422, Some("priority")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "priority": 300}), 422, Some("priority")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "delay_ms": -1}), 422, Some("delay_ms")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "run_at": "tomorrow"}), 422, Some("run_at")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "run_at": "9999-12-31T23:59:59Z"}), 422, Some("run_at")),
        (
            Method::POST,
            "/v1/tasks",
            json!({"type": "a", "run_at": "2030-01-01T00:00:00Z", "delay_ms": 1}),
            422,
            Some("delay_ms"),
        ),
        (Method::POST, "/v1/tasks", json!({"type": "a", "payload": "x".repeat(300 * 1024)}), 422, Some("payload")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "key": "a\u{0}"}), 422, Some("key")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "key": "k".repeat(201)}), 422, Some("key")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "max_attempts": 0}), 422, Some("max_attempts")),
        (Method::POST, "/v1/tasks", json!({"type": "a", "retry": {"strategy": "often"}}), 422, Some("retry.strategy")),
        (
            Method::POST,
            "/v1/tasks",
            json!({"type": "a", "retry": {"strategy": "fixed", "delay_ms": -5}}),
            422,
            Some("retry.delay_ms"),
        ),
        (Method::POST, "/v1/tasks/bulk", json!({"filter": {}, "action": "cancel"}), 422, Some("filter")),
        (Method::POST, "/v1/tasks/bulk", json!({"filter": {"type": "a"}, "action": "explode"}), 422, Some("action")),
        (
            Method::POST,
            "/v1/tasks/bulk",
            json!({"filter": {"colour": "red"}, "action": "cancel"}),
            422,
            Some("filter.colour"),
        ),
        (
            Method::POST,
            "/v1/tasks/bulk",
            json!({"filter": {"type": "a"}, "action": "set_priority"}),
            422,
            Some("priority"),
        ),
        (
            Method::POST,
            "/v1/tasks/bulk",
            json!({"filter": {"type": "a"}, "action": "cancel", "remark": "x"}),
            422,
            Some("remark"),
        ),
        (Method::GET, "/v1/tasks?status=Sleeping", Value::Null, 422, Some("status")),
        (Method::GET, "/v1/tasks?colour=red", Value::Null, 422, Some("colour")),
        (Method::GET, "/v1/tasks?limit=0", Value::Null, 422, Some("limit")),
        (Method::GET, "/v1/tasks?limit=501", Value::Null, 422, Some("limit")),
        (Method::GET, "/v1/tasks?limit=ten", Value::Null, 422, Some("limit")),
        (Method::GET, "/v1/tasks?cursor=x", Value::Null, 422, Some("cursor")),
        (Method::GET, "/v1/tasks?sort=payload", Value::Null, 422, Some("sort")),
        (Method::GET, "/v1/tasks?priority=high", Value::Null, 422, Some("priority")),
        (Method::GET, "/v1/tasks?run_at_from=now", Value::Null, 422, Some("run_at_from")),
        (Method::GET, "/v1/tasks?type=a&type=b", Value::Null, 422, Some("type")),
        (Method::GET, "/v1/tasks/999999999", Value::Null, 404, None),
        (Method::GET, "/v1/tasks/soon", Value::Null, 404, None),
        (Method::POST, "/v1/tasks/999999999/cancel", Value::Null, 404, None),
        (Method::DELETE, "/v1/tasks/999999999", Value::Null, 404, None),
        (Method::GET, "/v2/tasks", Value::Null, 404, None),
        (Method::PUT, "/v1/tasks", json!({}), 405, None),
        (Method::POST, "/v1/worker/claim", json!({"worker_id": "w", "host": "h"}), 422, Some("types")),
        (Method::POST, "/v1/worker/claim", json!({"host": "h", "types": ["a"]}), 422, Some("worker_id")),
        (Method::POST, "/v1/worker/claim", worker(json!({"tenant": ""})), 422, Some("tenant")),
        (Method::POST, "/v1/worker/claim", worker(json!({"max": 0})), 422, Some("max")),
        (Method::POST, "/v1/worker/claim", worker(json!({"max": 1001})), 422, Some("max")),
        (Method::POST, "/v1/worker/claim", worker(json!({"wait_ms": 60_001})), 422, Some("wait_ms")),
        (Method::POST, "/v1/worker/claim", worker(json!({"heartbeat_ms": 5})), 422, Some("heartbeat_ms")),
        (
            Method::POST,
            "/v1/worker/report",
            json!({"items": [{"id": 1, "exec_id": uuid, "outcome": "lost"}]}),
            422,
            Some("items[0].outcome"),
        ),
        (
            Method::POST,
            "/v1/worker/report",
            json!({"items": [{"id": 1, "exec_id": "x", "outcome": "success"}]}),
            422,
            Some("items[0].exec_id"),
        ),
        (
            Method::POST,
            "/v1/worker/report",
            json!({"items": [{"id": 1, "exec_id": uuid, "outcome": "retry", "retry_after_ms": -1}]}),
            422,
            Some("retry_after_ms"),
        ),
        (Method::PUT, "/v1/types/a%20b", json!({}), 422, Some("type")),
        (Method::PUT, "/v1/types/%f0", json!({}), 422, Some("type")),
        (Method::GET, "/v1/types/%f0", Value::Null, 422, Some("type")),
        (Method::GET, "/v1/tasks/%f0", Value::Null, 404, None),
        (Method::GET, "/v1/runs/%f0", Value::Null, 404, None),
        (Method::PUT, "/v1/types/a", json!({"callback": {}}), 422, Some("callback")),
        (Method::PUT, "/v1/types/a", json!({"concurrency": 5}), 422, Some("concurrency")),
        (Method::PUT, "/v1/types/a", json!({"priority": 11}), 422, Some("priority")),
    ];
    for (method, path, body, status, field) in cases {
        let what = format!("{method} {path} {}", body.to_string().chars().take(120).collect::<String>());
        let answer = server.call(method, path, (!body.is_null()).then_some(&body)).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.body);
        assert_eq!(answer.body["status"], status, "{what}: {}", answer.body);
        assert!(answer.body["code"].is_string() && answer.body["detail"].is_string(), "{what}: {}", answer.body);
        assert_eq!(answer.body["errors"][0]["field"].as_str(), field, "{what}: {}", answer.body);
    }
    assert_eq!(server.get("/v1/tasks").await.ok()["items"], json!([]), "nothing was stored");
    assert_eq!(server.get("/v1/types").await.ok()["items"], json!([]));
}

async fn what_is_no_json_is_malformed(server: &Server) {
    for body in ["", "{", "{\"type\": \"a\"} {}", "{\"type\": \"a\",}"] {
        let answer = server.client.post(format!("{}/v1/tasks", server.url())).body(body).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{body}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
}

async fn a_body_that_is_too_large_is_refused(server: &Server) {
    let body = format!("{{\"type\": \"a\", \"payload\": \"{}\"}}", "x".repeat(17 * 1024 * 1024));
    let answer = server.client.post(format!("{}/v1/tasks", server.url())).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 413);
    assert_eq!(answer.json::<Value>().await.unwrap()["code"], "payload_too_large");
}

async fn reports_on_what_is_not_there_are_superseded(server: &Server) {
    let item = json!({"id": 999_999, "exec_id": "01890000-0000-7000-8000-000000000000", "outcome": "success"});
    let reported = server.post("/v1/worker/report", json!({"items": [item]})).await.ok();
    assert_eq!(reported["items"][0], json!({"id": 999_999, "state": "superseded", "status": null}));
}

/// A refusal says what would have been right.
async fn a_refusal_says_what_would_be_right(server: &Server) {
    let detail = async |method: Method, path: &str, body: Value| {
        let answer = server.call(method, path, (!body.is_null()).then_some(&body)).await;
        (answer.status.as_u16(), answer.body["detail"].as_str().expect("it has a detail").to_owned())
    };
    let report = json!({"items": [{"id": 1, "exec_id": "x", "outcome": "success"}]});
    let said = detail(Method::POST, "/v1/worker/report", report).await;
    assert_eq!(said, (422, "items[0].exec_id: must be the exec_id of the claim".into()));
    let (status, said) = detail(Method::GET, "/v1/stats?colour=red", Value::Null).await;
    assert_eq!(status, 422);
    assert!(said.ends_with("expected one of `from`, `tenant`, `to`, `type`"), "{said}");
    for path in ["/v1/tasks/abc", "/v1/runs/abc"] {
        let (status, said) = detail(Method::GET, path, Value::Null).await;
        assert!(status == 404 && said.contains("number"), "{status} {said}");
    }
    let (status, said) = detail(Method::GET, "/", Value::Null).await;
    assert!(status == 404 && said.contains("/openapi.json"), "{status} {said}");
    for partial in [false, true] {
        let nothing = json!({"tasks": [], "partial": partial});
        let said = detail(Method::POST, "/v1/tasks/batch", nothing).await;
        assert_eq!(said, (422, "tasks: must not be empty".into()));
    }
}

async fn a_method_that_is_not_taken_is_answered_with_those_that_are(server: &Server) {
    let cases = [
        ("/v1/tasks", ["GET", "HEAD", "POST"].as_slice()),
        ("/v1/tasks/1", &["DELETE", "GET", "HEAD", "PATCH"]),
        ("/task-scheduler/task/submitTimerTask", &["POST"]),
    ];
    for (path, methods) in cases {
        let answer = server.client.put(format!("{}{path}", server.url())).send().await.unwrap();
        assert_eq!(answer.status(), 405, "{path}");
        let mut allowed: Vec<_> = answer.headers()["allow"].to_str().unwrap().split(',').map(str::to_owned).collect();
        allowed.sort();
        assert_eq!(allowed, methods, "{path}");
        let said = answer.text().await.unwrap();
        assert!(methods.iter().all(|method| said.contains(method)), "{path}: {said}");
    }
}

async fn a_key_that_was_used_for_another_task_is_refused(server: &Server) {
    let submit = async |task: Value| {
        let request = server.client.post(format!("{}/v1/tasks", server.url())).header("Idempotency-Key", "k");
        let answer = request.json(&task).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let task = json!({"type": "mail", "key": "order-7", "creator": "shop", "payload": {"to": 1}, "delay_ms": 60_000});
    let (status, first) = submit(task.clone()).await;
    assert_eq!(status, 201);
    let others = [
        ("type", json!("fax")),
        ("key", json!("order-8")),
        ("creator", Value::Null),
        ("payload", json!({"to": 2})),
        ("priority", json!(9)),
        ("delay_ms", json!(60_001)),
    ];
    for (name, value) in others {
        let mut other = task.clone();
        other[name] = value;
        let (status, refused) = submit(other).await;
        assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("Idempotency-Key")), "{name}: {refused}");
        assert_eq!(refused["code"], "invalid_field", "{name}");
    }
    server.patch(&format!("/v1/tasks/{}", first["id"]), json!({"payload": 2, "priority": 3})).await.ok();
    let (status, again) = submit(task).await;
    assert_eq!((status, &again["id"]), (201, &first["id"]), "what was changed since is no other call");
    assert_eq!(server.get("/v1/tasks").await.ok()["items"].as_array().unwrap().len(), 1);
}

crate::facts![
    a_key_that_was_used_for_another_task_is_refused,
    a_refusal_says_what_would_be_right,
    a_method_that_is_not_taken_is_answered_with_those_that_are,
    bad_calls_are_refused_by_name,
    what_is_no_json_is_malformed,
    a_body_that_is_too_large_is_refused,
    reports_on_what_is_not_there_are_superseded,
];
