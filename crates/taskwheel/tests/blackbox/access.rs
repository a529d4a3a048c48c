//! Who may do what: tokens, roles, tenants, limits, the log.

use crate::support::{Answer, Dialect, Server, claim, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;

/// As long as a node may believe what it knew.
pub(crate) const KNOWN: Duration = Duration::from_secs(2);

/// Runs the command line on the server's database, and reads what it prints.
pub(crate) async fn command(server: &Server, line: &[&str]) -> Value {
    let ran = tokio::process::Command::new(env!("CARGO_BIN_EXE_taskwheel"))
        .args(line)
        .args(["--json", "--database", &server.database.url])
        .stderr(Stdio::piped())
        .output()
        .await
        .unwrap();
    assert!(ran.status.success(), "{line:?}: {}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap_or_default()
}

/// Makes a token.
pub(crate) async fn token(server: &Server, line: &[&str]) -> String {
    let made = command(server, &[&["tokens", "create"], line].concat()).await;
    made["token"].as_str().expect("it is shown").to_owned()
}

/// Makes a call with a token, or with what stands in its place.
pub(crate) async fn call(
    server: &Server,
    token: Option<&str>,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Answer {
    let mut request = server.client.request(method, format!("{}{path}", server.url()));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if let Some(body) = body {
        request = request.json(body);
    }
    let response = request.send().await.expect("the server answers");
    let status = response.status();
    let text = response.text().await.unwrap();
    Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
}

pub(crate) async fn get(server: &Server, token: &str, path: &str) -> Answer {
    call(server, Some(token), Method::GET, path, None).await
}

pub(crate) async fn post(server: &Server, token: &str, path: &str, body: Value) -> Answer {
    call(server, Some(token), Method::POST, path, Some(&body)).await
}

async fn another_tenants_schedules_are_not_there(server: &Server) {
    let acme = token(server, &["--role", "operator", "--tenant", "acme"]).await;
    let other = token(server, &["--role", "operator", "--tenant", "other"]).await;
    let admin = token(server, &["--role", "admin"]).await;
    let made = post(server, &acme, "/v1/schedules", json!({"name": "s", "type": "mail"})).await.ok();
    assert_eq!(made["tenant"], "acme");
    let place = format!("/v1/schedules/{}", made["id"]);
    post(server, &acme, &format!("{place}/run"), json!({})).await.ok();
    for path in ["/v1/schedules", "/v1/runs", &format!("/v1/runs?schedule_id={}", made["id"])] {
        assert_eq!(get(server, &other, path).await.ok()["items"], json!([]), "{path}");
        assert_eq!(get(server, &acme, path).await.ok()["items"].as_array().unwrap().len(), 1, "{path}");
        assert_eq!(get(server, &admin, path).await.ok()["items"].as_array().unwrap().len(), 1, "{path}");
    }
    assert_eq!(get(server, &admin, "/v1/schedules?tenant=other").await.ok()["items"], json!([]));
    assert_eq!(get(server, &other, "/v1/schedules?tenant=acme").await.status, StatusCode::FORBIDDEN);
    assert_eq!(get(server, &acme, &place).await.ok()["status"], "online", "nothing was done");
    let for_other = post(server, &admin, "/v1/schedules?tenant=other", json!({"name": "o", "type": "mail"})).await.ok();
    assert_eq!(for_other["tenant"], "other");
    let task = get(server, &acme, &format!("/v1/tasks?schedule_id={}", made["id"])).await.ok()["items"][0].clone();
    assert_eq!(task["tenant"], "acme", "its tasks are its tenant's");
    let refused = call(server, None, Method::POST, "/task-scheduler/task/enableTask", None).await;
    assert_eq!((refused.status.as_u16(), &refused.body["code"]), (401, &json!(401)), "{}", refused.body);
    let log = get(server, &acme, "/v1/audit").await.ok();
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|line| &line["action"]).collect();
    assert_eq!(actions, ["schedule.run", "schedule.create", "token.create"]);
}

async fn another_tenants_tasks_are_not_there(server: &Server) {
    let acme = token(server, &["--role", "operator", "--tenant", "acme"]).await;
    let other = token(server, &["--role", "operator", "--tenant", "other"]).await;
    let id = post(server, &acme, "/v1/tasks", json!({"type": "mail", "key": "k"})).await.ok()["id"].as_i64().unwrap();
    assert_eq!(get(server, &other, "/v1/tasks?key=k").await.ok()["items"], json!([]));
    let bulk = json!({"filter": {}, "all": true, "action": "cancel"});
    assert_eq!(post(server, &other, "/v1/tasks/bulk", bulk).await.ok(), json!({"matched": 0, "changed": 0}));
    assert_eq!(get(server, &other, "/v1/tasks?tenant=acme").await.status, 403, "the tenant comes from the token");
    assert_eq!(get(server, &other, "/metrics").await.status, 403, "they are over all tenants");
    let log = get(server, &other, "/v1/audit").await.ok()["items"].clone();
    assert!(log.as_array().unwrap().iter().all(|line| line["tenant"] == "other"), "{log}");
    let task = get(server, &acme, &format!("/v1/tasks/{id}")).await.ok();
    assert_eq!((&task["status"], &task["tenant"]), (&json!("New"), &json!("acme")));
}

async fn a_worker_of_a_tenant_gets_and_ends_only_its_own(server: &Server) {
    let submits = async |tenant: &str| {
        let operator = token(server, &["--role", "operator", "--tenant", tenant]).await;
        post(server, &operator, "/v1/tasks", json!({"type": "mail"})).await.ok()["id"].as_i64().unwrap()
    };
    let (of_acme, of_other) = (submits("acme").await, submits("other").await);
    let acme = token(server, &["--role", "worker", "--tenant", "acme"]).await;
    let all = token(server, &["--role", "worker"]).await;
    let mut wanted = claim("w1", "mail");
    wanted["max"] = json!(10);
    let got = post(server, &acme, "/v1/worker/claim", wanted.clone()).await.ok()["tasks"].clone();
    assert_eq!(got.as_array().unwrap().iter().map(|task| task["id"].as_i64().unwrap()).collect::<Vec<_>>(), [of_acme]);
    wanted["tenant"] = json!("other");
    assert_eq!(post(server, &acme, "/v1/worker/claim", wanted.clone()).await.status, 403);
    wanted["worker_id"] = json!("w2");
    wanted.as_object_mut().unwrap().remove("tenant");
    let theirs = post(server, &all, "/v1/worker/claim", wanted).await.ok()["tasks"][0].clone();
    assert_eq!((&theirs["id"], &theirs["tenant"]), (&json!(of_other), &json!("other")), "one for all sees whose it is");
    let items = json!({"items": [
        {"id": got[0]["id"], "exec_id": got[0]["exec_id"], "outcome": "success"},
        {"id": theirs["id"], "exec_id": theirs["exec_id"], "outcome": "success"}]});
    let reported = post(server, &acme, "/v1/worker/report", items.clone()).await.ok()["items"].clone();
    assert_eq!(reported[0]["state"], "accepted");
    assert_eq!(reported[1], json!({"id": of_other, "state": "superseded", "status": null}), "each by itself");
    assert_eq!(post(server, &all, "/v1/worker/report", items).await.ok()["items"][1]["state"], "accepted");
}

async fn a_worker_for_some_types_claims_no_others(server: &Server) {
    let mails = token(server, &["--role", "worker", "--types", "mail,sms"]).await;
    assert_eq!(post(server, &mails, "/v1/worker/claim", claim("w", "mail")).await.status, 200);
    assert_eq!(post(server, &mails, "/v1/worker/claim", claim("w", "pay")).await.status, 403);
    let by_category = json!({"worker_id": "w", "host": "h", "categories": ["any"]});
    assert_eq!(post(server, &mails, "/v1/worker/claim", by_category).await.status, 403);
}

async fn a_submitter_sees_only_what_it_submitted_itself(server: &Server) {
    let (one, two) = (token(server, &["--role", "submitter"]).await, token(server, &["--role", "submitter"]).await);
    let submit = async |token: &str, task: Value| post(server, token, "/v1/tasks", task).await;
    let own = submit(&one, json!({"type": "mail", "unique_key": "u"})).await.ok()["id"].as_i64().unwrap();
    let batch = post(server, &one, "/v1/tasks/batch", json!({"tasks": [{"type": "mail"}]})).await.ok();
    let listed = get(server, &one, "/v1/tasks?sort=id").await.ok()["items"].clone();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|task| task["id"].clone()).collect();
    assert_eq!(ids, [json!(own), batch["items"][0]["id"].clone()]);
    assert_eq!(get(server, &one, &format!("/v1/tasks/{own}")).await.status, 200);
    assert_eq!(get(server, &two, &format!("/v1/tasks/{own}")).await.status, 404);
    assert_eq!(get(server, &two, "/v1/tasks").await.ok()["items"], json!([]));
    let same = submit(&two, json!({"type": "mail", "unique_key": "u", "payload": 1})).await;
    assert_eq!(same.status, 409, "whose it is, is not told: {}", same.body);
}

async fn an_admin_is_in_every_tenant_or_over_all_of_them(server: &Server) {
    let admin = token(server, &["--role", "admin"]).await;
    for tenant in ["acme", "other"] {
        let task = post(server, &admin, &format!("/v1/tasks?tenant={tenant}"), json!({"type": "mail"})).await.ok();
        assert_eq!(task["tenant"], tenant);
    }
    let tenants = async |path: &str| {
        let items = get(server, &admin, path).await.ok()["items"].as_array().unwrap().clone();
        items.iter().map(|task| task["tenant"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(tenants("/v1/tasks?sort=id").await, ["acme", "other"]);
    assert_eq!(tenants("/v1/tasks?tenant=other").await, ["other"]);
    assert_eq!(tenants("/v1/tasks?sort=run_at").await, ["acme", "other"]);
    let local = token(server, &["--role", "admin", "--tenant", "acme"]).await;
    let put = call(server, Some(&local), Method::PUT, "/v1/types/mail", Some(&json!({}))).await;
    assert_eq!(put.status, 403, "types are everybody's");
}

async fn a_revoked_or_expired_token_is_worth_nothing_on_any_node(server: &Server) {
    let made = command(server, &["tokens", "create", "--role", "viewer"]).await;
    let (id, viewer) = (made["id"].to_string(), made["token"].as_str().unwrap().to_owned());
    let short = token(server, &["--role", "viewer", "--expires", "1s"]).await;
    // An SQLite file has one node.
    let is_shared = server.database.dialect != Dialect::Sqlite;
    let another = if is_shared { Some(server.another_node().await) } else { None };
    let nodes: Vec<_> = [server.url()].into_iter().chain(another.iter().map(|node| node.url.clone())).collect();
    let statuses = async || {
        let mut statuses = Vec::new();
        for node in &nodes {
            let request = server.client.get(format!("{node}/v1/tasks")).bearer_auth(&viewer);
            statuses.push(request.send().await.unwrap().status());
        }
        statuses
    };
    assert!(statuses().await.iter().all(|status| *status == 200));
    command(server, &["tokens", "revoke", &id]).await;
    let is_refused = async || statuses().await.iter().all(|status| *status == 401);
    eventually("a revoked token is refused by all nodes, each from the same time on", KNOWN, is_refused).await;
    let refused = async |token: &str| get(server, token, "/v1/tasks").await.status == 401;
    eventually("an expired token is refused", Duration::from_secs(4), || refused(&short)).await;
    assert_eq!(server.get("/v1/tasks").await.status, 401, "without any token left it stays closed");
    let listed = command(server, &["tokens", "list"]).await;
    let revoked = listed["items"].as_array().unwrap().iter().find(|token| token["id"] == made["id"]).unwrap();
    assert!(revoked["revoked_at"].is_string() && revoked["last_used_at"].is_string(), "{revoked}");
    assert!(!listed.to_string().contains(viewer.rsplit('_').next().unwrap()), "a secret is shown once");
}

async fn a_token_and_a_tenant_have_limits(server: &Server) {
    let slow = token(server, &["--role", "viewer", "--rate-per-s", "2"]).await;
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(get(server, &slow, "/v1/tasks").await.status.as_u16());
    }
    assert!(answers[0] == 200 && answers.contains(&429), "{answers:?}");
    let operator = token(server, &["--role", "operator", "--tenant", "acme"]).await;
    command(server, &["tenants", "limit", "acme", "--live-max", "2"]).await;
    let submit = async || post(server, &operator, "/v1/tasks", json!({"type": "mail"})).await;
    let limited = async || submit().await.status == 429;
    eventually("no more than two live tasks", Duration::from_secs(5), limited).await;
    let refused = submit().await;
    assert_eq!(refused.body["code"], "too_many_requests", "{}", refused.body);
    let live = get(server, &operator, "/v1/tasks?status=live").await.ok();
    let all: Vec<_> = live["items"].as_array().unwrap().iter().map(|task| task["id"].clone()).collect();
    for id in &all {
        post(server, &operator, &format!("/v1/tasks/{id}/cancel"), json!({})).await.ok();
    }
    eventually("there is room again", Duration::from_secs(5), async || submit().await.status == 201).await;
}

async fn who_changed_what_is_in_the_log(server: &Server) {
    let made = command(server, &["tokens", "create", "--role", "admin"]).await;
    let admin = made["token"].as_str().unwrap().to_owned();
    let id = post(server, &admin, "/v1/tasks", json!({"type": "mail"})).await.ok()["id"].as_i64().unwrap();
    call(server, Some(&admin), Method::PATCH, &format!("/v1/tasks/{id}"), Some(&json!({"priority": 8}))).await.ok();
    let bulk = json!({"filter": {"type": "mail"}, "action": "cancel"});
    post(server, &admin, "/v1/tasks/bulk", bulk.clone()).await.ok();
    call(server, Some(&admin), Method::DELETE, &format!("/v1/tasks/{id}"), None).await;
    let settings = json!({"max_attempts": 2});
    call(server, Some(&admin), Method::PUT, "/v1/types/mail", Some(&settings)).await.ok();
    let items = get(server, &admin, "/v1/audit").await.ok()["items"].as_array().unwrap().clone();
    let actions: Vec<_> = items.iter().map(|line| line["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["type.put", "task.delete", "task.bulk", "task.edit", "token.create"]);
    assert!(items[..4].iter().all(|line| line["token_id"] == made["id"] && line["actor"] == "admin"), "{items:?}");
    assert_eq!((&items[3]["before"], &items[3]["after"]), (&json!({"priority": 1}), &json!({"priority": 8})));
    assert_eq!((&items[2]["detail"]["filter"], &items[2]["detail"]["changed"]), (&bulk["filter"], &json!(1)));
    let one = get(server, &admin, "/v1/audit?limit=1&action=task.edit").await.ok();
    assert_eq!(one["items"][0]["target"], id.to_string());
}

async fn a_worker_speaks_for_itself_alone(server: &Server) {
    let acme = token(server, &["--role", "worker", "--tenant", "acme"]).await;
    let other = token(server, &["--role", "worker", "--tenant", "other"]).await;
    let viewer = token(server, &["--role", "viewer", "--tenant", "acme"]).await;
    assert_eq!(post(server, &acme, "/v1/worker/claim", claim("w1", "mail")).await.status, 200);
    let taken = post(server, &other, "/v1/worker/claim", claim("w1", "mail")).await;
    assert_eq!((taken.status.as_u16(), &taken.body["errors"][0]["field"]), (422, &json!("worker_id")));
    let mut beating = claim("w2", "mail");
    beating["heartbeat_ms"] = json!(300);
    post(server, &acme, "/v1/worker/claim", beating).await.ok();
    let is_known = async || {
        let known = get(server, &viewer, "/v1/workers").await.ok()["items"].clone();
        known.as_array().unwrap().iter().any(|worker| worker["worker_id"] == "w2")
    };
    assert!(is_known().await);
    eventually("another's word does not keep it alive", Duration::from_secs(20), async || {
        post(server, &other, "/v1/worker/renew", json!({"worker_id": "w2"})).await.ok();
        !is_known().await
    })
    .await;
}

async fn a_claim_that_waits_ends_with_its_token(server: &Server) {
    let made = command(server, &["tokens", "create", "--role", "worker"]).await;
    let (id, worker) = (made["id"].to_string(), made["token"].as_str().unwrap().to_owned());
    let mut waiting = claim("w1", "mail");
    waiting["wait_ms"] = json!(30_000);
    let admin = token(server, &["--role", "admin"]).await;
    let revoke = async {
        eventually("the claim waits", Duration::from_secs(20), async || {
            let page = get(server, &admin, "/metrics").await.ok();
            page.as_str().unwrap().contains("taskwheel_waiting_claims 1\n")
        })
        .await;
        command(server, &["tokens", "revoke", &id]).await;
        std::time::Instant::now()
    };
    let (answer, revoked_at) = tokio::join!(post(server, &worker, "/v1/worker/claim", waiting), revoke);
    assert_eq!(answer.status, 401);
    let outlived = revoked_at.elapsed();
    assert!(outlived < KNOWN, "it outlived its token by {outlived:?}");
}

async fn a_web_page_elsewhere_cannot_use_an_open_server(server: &Server) {
    let ask = async |name: &str, value: &str| {
        let request = server.client.post(format!("{}/v1/tasks", server.url())).header(name, value);
        request.body("{\"type\": \"mail\"}").send().await.unwrap().status().as_u16()
    };
    assert_eq!(ask("origin", "https://evil.example").await, 403);
    assert_eq!(ask("host", "evil.example:9222").await, 403, "by a name of its own for this machine");
    for (name, value) in [("origin", "http://localhost:3000"), ("host", "localhost:9222"), ("host", "[::1]:9222")] {
        assert_eq!(ask(name, value).await, 201, "{name}: {value}");
    }
}

async fn what_a_call_does_not_know_is_refused(server: &Server) {
    let admin = token(server, &["--role", "admin"]).await;
    let bulk = json!({"filter": {}, "all": true, "action": "cancel"});
    for query in ["?Tenant=acme", "?tenant=acme&tenant=other", "?tenant="] {
        assert_eq!(post(server, &admin, &format!("/v1/tasks/bulk{query}"), bulk.clone()).await.status, 422, "{query}");
    }
    for path in ["/v1/tasks/bulk", "/v1/tasks", "/v1/worker/report"] {
        assert_eq!(post(server, &admin, path, json!(["mail", null])).await.status, 422, "a list is no object: {path}");
    }
    assert_eq!(get(server, &admin, "/v1/audit?target=%00").await.status, 422);
    let deep = format!("{{\"type\": \"mail\", \"payload\": {}{}}}", "[".repeat(200), "]".repeat(200));
    let request = server.client.post(format!("{}/v1/tasks", server.url())).bearer_auth(&admin).body(deep);
    assert_eq!(request.send().await.unwrap().status(), 422);
}

async fn a_change_that_only_a_worker_would_see_is_in_the_log(server: &Server) {
    let admin = token(server, &["--role", "admin"]).await;
    let id =
        post(server, &admin, "/v1/tasks", json!({"type": "mail", "payload": {"to": "bob"}})).await.ok()["id"].clone();
    let edit = async |payload: &str| {
        let request = server.client.patch(format!("{}/v1/tasks/{id}", server.url())).bearer_auth(&admin);
        request.body(format!("{{\"payload\": {payload}}}")).send().await.unwrap().error_for_status().unwrap();
    };
    edit("{\"to\": \"evil\", \"to\": \"bob\"}").await;
    edit(&format!("\"{}\"", "x".repeat(100_000))).await;
    let lines = get(server, &admin, "/v1/audit?action=task.edit").await.ok()["items"].clone();
    assert!(lines[1]["after"]["payload"].as_str().unwrap().contains("evil"), "{lines}");
    assert_eq!(lines[0]["after"]["payload"]["bytes"], 100_002, "what is long is there in short");
}

async fn a_repeated_call_is_answered_the_same_at_the_limit(server: &Server) {
    let operator = token(server, &["--role", "operator", "--tenant", "acme"]).await;
    let submit = async |key: &str| {
        let request = server.client.post(format!("{}/v1/tasks", server.url())).bearer_auth(&operator);
        let answer = request.header("idempotency-key", key).json(&json!({"type": "mail"})).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap()["id"].clone())
    };
    let first = submit("a").await;
    command(server, &["tenants", "limit", "acme", "--live-max", "1"]).await;
    let mut others = 0;
    eventually("another one is too much", Duration::from_secs(20), || {
        others += 1;
        let key = format!("other-{others}");
        async move { submit(&key).await.0 == 429 }
    })
    .await;
    assert_eq!((first.0, submit("a").await), (201, first.clone()));
    post(server, &operator, &format!("/v1/tasks/{}/cancel", first.1), json!({})).await.ok();
    call(server, Some(&operator), Method::DELETE, &format!("/v1/tasks/{}", first.1), None).await;
    assert_eq!(submit("a").await.0, 404, "its task is gone, and no other is made");
}

crate::facts![
    another_tenants_schedules_are_not_there,
    another_tenants_tasks_are_not_there,
    a_worker_of_a_tenant_gets_and_ends_only_its_own,
    a_worker_for_some_types_claims_no_others,
    a_submitter_sees_only_what_it_submitted_itself,
    an_admin_is_in_every_tenant_or_over_all_of_them,
    a_revoked_or_expired_token_is_worth_nothing_on_any_node,
    a_token_and_a_tenant_have_limits,
    who_changed_what_is_in_the_log,
    a_worker_speaks_for_itself_alone,
    a_claim_that_waits_ends_with_its_token,
    a_web_page_elsewhere_cannot_use_an_open_server,
    what_a_call_does_not_know_is_refused,
    a_change_that_only_a_worker_would_see_is_in_the_log,
    a_repeated_call_is_answered_the_same_at_the_limit,
];
