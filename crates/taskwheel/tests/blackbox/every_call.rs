//! Every call of the document: without a token, with each role, and on what another tenant has. A call that is new is among them.

use crate::access::{KNOWN, call, get, post, token};
use crate::support::{Server, claim, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// What calls name by its id.
#[derive(Clone, Copy)]
struct Ids {
    task: i64,
    schedule: i64,
    run: i64,
}

impl Ids {
    /// A schedule or run need not be there: what is refused is refused before anybody looks.
    fn all(id: i64) -> Ids {
        Ids { task: id, schedule: id, run: id }
    }

    fn of(self, path: &str) -> i64 {
        match path {
            path if path.starts_with("/v1/tasks") => self.task,
            path if path.starts_with("/v1/runs") => self.run,
            _ => self.schedule,
        }
    }
}

/// Every call that the document knows, with a body that would be good, on what has these ids.
async fn every_call(server: &Server, admin: &str, ids: Ids) -> Vec<(Method, String, Option<Value>)> {
    let document = get(server, admin, "/openapi.json").await.ok();
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let id = ids.of(path);
        for method in item.as_object().unwrap().keys() {
            let body = match (method.as_str(), path.as_str()) {
                ("post", "/v1/tasks") => Some(json!({"type": "mail"})),
                ("post", "/v1/tasks/batch") => Some(json!({"tasks": [{"type": "mail"}]})),
                ("post", "/v1/tasks/bulk") => Some(json!({"filter": {"type": "none"}, "action": "cancel"})),
                ("patch", "/v1/tasks/{id}") | ("post", "/v1/tasks/{id}/resolve") => Some(json!({"remark": "seen"})),
                ("post", "/v1/worker/claim") => Some(claim("w", "none")),
                ("post", "/v1/worker/renew") => Some(json!({"worker_id": "w"})),
                ("post", "/v1/worker/report") => Some(json!({"items": []})),
                ("put", "/v1/types/{type}") => Some(json!({})),
                ("post", "/v1/schedules") => Some(json!({"name": "s", "type": "mail"})),
                ("patch", "/v1/schedules/{id}") => Some(json!({"name": "t"})),
                ("post", "/v1/cron/preview") => Some(json!({"cron": "* * * * *"})),
                ("post", "/task-scheduler/task/submitTimerTask") => Some(json!({
                    "taskInfoConf": {"taskName": "t", "appServiceName": "a", "apiServiceName": "b", "apiMethodName": "c"},
                    "taskScheduleConf": {"timerList": []}})),
                ("post", path) if path.starts_with("/task-scheduler/") => Some(json!({"taskId": id})),
                _ => None,
            };
            let path = path.replace("{id}", &id.to_string()).replace("{type}", "mail");
            calls.push((Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), path, body));
        }
    }
    assert!(calls.len() > 40, "the document knows the whole API");
    calls
}

/// What each role may call, by path and method.
fn may(role: &str, method: &Method, path: &str) -> bool {
    let is_task_read = *method == Method::GET && path.starts_with("/v1/tasks");
    let is_submit = *method == Method::POST && (path == "/v1/tasks" || path == "/v1/tasks/batch");
    let is_of_schedules = ["/v1/schedules", "/v1/runs", "/task-scheduler/"].iter().any(|start| path.starts_with(start));
    let is_watch = path == "/v1/cron/preview"
        || *method == Method::GET
            && (is_of_schedules
                || path.starts_with("/v1/types")
                || matches!(path, "/v1/stats" | "/v1/workers" | "/metrics"));
    let is_schedule_change = is_of_schedules && !is_watch;
    let is_task_change = path.starts_with("/v1/tasks") && !is_task_read && !is_submit;
    match (role, path) {
        (_, "/openapi.json") | ("admin", _) => true,
        ("viewer", _) => is_task_read || is_watch,
        ("operator", "/v1/audit") => true,
        ("operator", _) => is_task_read || is_watch || is_submit || is_task_change || is_schedule_change,
        ("submitter", _) => is_task_read || is_submit,
        ("worker", _) => path.starts_with("/v1/worker/"),
        _ => unreachable!(),
    }
}

async fn without_a_token_or_with_a_wrong_one_every_call_is_401(server: &Server) {
    let id = server.submit(json!({"type": "mail"})).await;
    let admin = token(server, &["--role", "admin"]).await;
    eventually("a token is asked for", KNOWN, async || server.get("/v1/tasks").await.status == 401).await;
    let other_secret = format!("{}0", &admin[..admin.len() - 1]);
    let wrong = [
        None,
        Some("nonsense"),
        Some("taskwheel_1_x"),
        Some(if other_secret == admin { "taskwheel_2_x" } else { other_secret.as_str() }),
    ];
    for (method, path, body) in every_call(server, &admin, Ids::all(id)).await {
        let is_open = matches!(path.as_str(), "/healthz" | "/readyz");
        for token in wrong {
            let answer = call(server, token, method.clone(), &path, body.as_ref()).await;
            let wanted = if is_open { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            assert_eq!(answer.status, wanted, "{method} {path} with {token:?}");
        }
    }
    assert_eq!(server.get("/v1/there/is/nothing").await.status, 401, "what does not exist is no exception");
    assert_eq!(get(server, &admin, &format!("/v1/tasks/{id}")).await.ok()["status"], "New", "nothing was done");
}

async fn each_role_may_what_it_is_for_and_gets_403_for_the_rest(server: &Server) {
    let admin = token(server, &["--role", "admin"]).await;
    for role in ["viewer", "operator", "submitter", "worker", "admin"] {
        let own = token(server, &["--role", role]).await;
        let id = post(server, &admin, "/v1/tasks", json!({"type": "mail"})).await.ok()["id"].as_i64().unwrap();
        for (method, path, body) in every_call(server, &admin, Ids::all(id)).await {
            if path.starts_with("/healthz") || path.starts_with("/readyz") {
                continue;
            }
            let answer = call(server, Some(&own), method.clone(), &path, body.as_ref()).await;
            let is_refused = answer.status == StatusCode::FORBIDDEN;
            assert_eq!(is_refused, !may(role, &method, &path), "{role}: {method} {path}: {}", answer.status);
            assert_ne!(answer.status, StatusCode::UNAUTHORIZED, "{role}: {method} {path}");
        }
    }
}

/// Every call that names something by its id.
async fn what_another_tenant_has_is_404_by_every_call(server: &Server) {
    let acme = token(server, &["--role", "operator", "--tenant", "acme"]).await;
    let admin = token(server, &["--role", "admin"]).await;
    let task = post(server, &acme, "/v1/tasks", json!({"type": "mail"})).await.ok();
    let schedule = post(server, &acme, "/v1/schedules", json!({"name": "s", "type": "mail"})).await.ok();
    let run = post(server, &acme, &format!("/v1/schedules/{}/run", schedule["id"]), json!({})).await.ok();
    let [task, schedule, run] = [task, schedule, run].map(|one| one["id"].as_i64().expect("an id"));
    let calls = every_call(server, &admin, Ids { task, schedule, run }).await;
    for role in ["operator", "admin"] {
        let other = token(server, &["--role", role, "--tenant", "other"]).await;
        let mut named = 0;
        for (method, path, mut body) in calls.clone() {
            if let Some(Value::Object(info)) = body.as_mut().and_then(|body| body.get_mut("taskInfoConf")) {
                info.insert("taskId".into(), json!(schedule));
            }
            let names_it =
                path.split('/').any(|part| part.parse::<i64>().is_ok()) || path.starts_with("/task-scheduler/");
            if names_it {
                let answer = call(server, Some(&other), method.clone(), &path, body.as_ref()).await;
                assert_eq!(answer.status, StatusCode::NOT_FOUND, "{role}: {method} {path}: {}", answer.body);
                named += 1;
            }
        }
        assert!(named >= 20, "{named} calls name something");
    }
    let shown = async |path: String| get(server, &acme, &path).await.ok()["status"].clone();
    assert_eq!(shown(format!("/v1/tasks/{task}")).await, "New", "nothing was done");
    assert_eq!(shown(format!("/v1/schedules/{schedule}")).await, "online");
    assert_eq!(shown(format!("/v1/runs/{run}")).await, "running");
}

crate::facts![
    without_a_token_or_with_a_wrong_one_every_call_is_401,
    each_role_may_what_it_is_for_and_gets_403_for_the_rest,
    what_another_tenant_has_is_404_by_every_call,
];
