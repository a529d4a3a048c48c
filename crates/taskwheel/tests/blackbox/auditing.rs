//! The log of changes: every action has its line, with what was so before, and every tenant sees its own.

use crate::access::{command, get, post, token};
use crate::support::{Server, claim};
use serde_json::{Value, json};

/// The last line of the log with an action.
async fn last(server: &Server, token: &str, action: &str) -> Value {
    get(server, token, &format!("/v1/audit?limit=1&action={action}")).await.ok()["items"][0].clone()
}

async fn what_people_do_to_a_task_is_in_the_log_with_what_was_before(server: &Server) {
    let made = command(server, &["tokens", "create", "--role", "operator"]).await;
    let operator = made["token"].as_str().unwrap().to_owned();
    let later = json!({"type": "mail", "run_at": "2099-01-01T00:00:00Z", "max_attempts": 1});
    let id = post(server, &operator, "/v1/tasks", later).await.ok()["id"].clone();
    let acts = async |action: &str, body: Value| {
        let path = format!("/v1/tasks/{id}/{}", action.replace('_', "-"));
        post(server, &operator, &path, body).await.ok();
        let line = last(server, &operator, &format!("task.{action}")).await;
        assert_eq!((&line["target"], &line["tenant"]), (&json!(id.to_string()), &json!("default")), "{line}");
        assert_eq!((&line["token_id"], &line["actor"]), (&made["id"], &json!("operator")), "{line}");
        line
    };
    let status = |line: &Value| (line["before"]["status"].clone(), line["after"]["status"].clone());
    assert_eq!(status(&acts("cancel", json!({})).await), (json!("New"), json!("Cancelled")));
    let retried = acts("retry", json!({})).await;
    assert_eq!(status(&retried), (json!("Cancelled"), json!("New")));
    assert_eq!((&retried["before"]["round"], &retried["after"]["round"]), (&json!(1), &json!(2)));
    let later = "2099-06-01T00:00:00Z";
    let edit = server.client.patch(format!("{}/v1/tasks/{id}", server.url())).bearer_auth(&operator);
    edit.json(&json!({"run_at": later})).send().await.unwrap().error_for_status().unwrap();
    let ran = acts("run_now", json!({})).await;
    assert!(ran["before"]["run_at"].as_str().unwrap().starts_with("2099-06-01T00:00:00"), "{ran}");
    assert!(ran["after"]["run_at"].as_str().unwrap() < later, "{ran}");
    let worker = token(server, &["--role", "worker"]).await;
    let task = post(server, &worker, "/v1/worker/claim", claim("w1", "mail")).await.ok()["tasks"][0].clone();
    let failed = json!({"items": [{"id": id, "exec_id": task["exec_id"], "outcome": "failure", "error": "no route"}]});
    post(server, &worker, "/v1/worker/report", failed).await.ok();
    let resolved = acts("resolve", json!({"remark": "by hand", "result": {"sent": true}})).await;
    assert_eq!(status(&resolved), (json!("Failure"), json!("ManuallyProcessed")));
    let remarks = (&resolved["before"]["remark"], &resolved["after"]["remark"]);
    assert_eq!(remarks, (&Value::Null, &json!("by hand")));
}

async fn a_quota_is_in_the_log_with_what_it_was_before(server: &Server) {
    let admin = token(server, &["--role", "admin"]).await;
    command(server, &["tenants", "limit", "acme", "--live-max", "2"]).await;
    command(server, &["tenants", "limit", "acme", "--live-max", "3", "--submits-per-s", "5"]).await;
    let line = last(server, &admin, "tenant.quota").await;
    assert_eq!(line["before"], json!({"live_max": 2, "submits_per_s": null}));
    assert_eq!(line["after"], json!({"live_max": 3, "submits_per_s": 5}));
    let (tenant, target, actor) = (&line["tenant"], &line["target"], &line["actor"]);
    assert_eq!((tenant, target, actor), (&json!("acme"), &json!("acme"), &json!("command line")));
}

async fn an_action_over_all_tenants_is_in_the_log_of_each(server: &Server) {
    let admin = token(server, &["--role", "admin"]).await;
    for tenant in ["acme", "other", "acme"] {
        post(server, &admin, &format!("/v1/tasks?tenant={tenant}"), json!({"type": "mail"})).await.ok();
    }
    let bulk = json!({"filter": {"type": "mail"}, "action": "cancel"});
    assert_eq!(post(server, &admin, "/v1/tasks/bulk", bulk).await.ok(), json!({"matched": 3, "changed": 3}));
    for (tenant, changed) in [("acme", 2), ("other", 1)] {
        let operator = token(server, &["--role", "operator", "--tenant", tenant]).await;
        let line = last(server, &operator, "task.bulk").await;
        assert_eq!((&line["tenant"], &line["actor"]), (&json!(tenant), &json!("admin")), "{line}");
        assert_eq!((&line["detail"]["action"], &line["detail"]["changed"]), (&json!("cancel"), &json!(changed)));
    }
}

crate::facts![
    what_people_do_to_a_task_is_in_the_log_with_what_was_before,
    a_quota_is_in_the_log_with_what_it_was_before,
    an_action_over_all_tenants_is_in_the_log_of_each,
];
