//! Finished tasks go when they are past their retention, and the others stay.

use crate::support::{Dialect, Server, claim, eventually};
use reqwest::StatusCode;
use serde_json::json;
use std::time::Duration;

const IN_TIME: Duration = Duration::from_secs(30);

/// Submits a task of a type of its own and ends it so.
async fn ended(server: &Server, outcome: &str) -> i64 {
    let id = server.submit(json!({"type": outcome})).await;
    let task = server.claim(claim("w", outcome)).await.remove(0);
    assert_eq!(server.report(&task, outcome).await["state"], "accepted");
    id
}

async fn is_gone(server: &Server, id: i64) -> bool {
    server.get(&format!("/v1/tasks/{id}")).await.status == StatusCode::NOT_FOUND
}

async fn a_finished_task_goes_after_its_retention(dialect: Dialect) {
    let server = Server::start_with(dialect, &["--keep-success", "1s"], &[]).await;
    let waiting = server.submit(json!({"type": "other"})).await;
    let failed = ended(&server, "failure").await;
    let done = ended(&server, "success").await;
    assert_eq!(server.task(done).await["status"], "Success", "it is kept for a while");
    eventually("it is gone", IN_TIME, async || is_gone(&server, done).await).await;
    assert_eq!(server.task(failed).await["status"], "Failure", "what has no retention is kept");
    assert_eq!(server.task(waiting).await["status"], "New");
    server.end().await;
}

async fn a_success_that_is_not_kept_goes_as_it_finishes(dialect: Dialect) {
    let server = Server::start_with(dialect, &[], &[("TASKWHEEL_KEEP_SUCCESS", "0")]).await;
    let failed = ended(&server, "failure").await;
    let done = ended(&server, "success").await;
    assert!(is_gone(&server, done).await);
    assert_eq!(server.task(failed).await["status"], "Failure");
    server.end().await;
}

async fn the_record_of_a_run_goes_after_its_retention(dialect: Dialect) {
    let server = Server::start_with(dialect, &["--keep-runs", "1s"], &[]).await;
    let schedule = server.post("/v1/schedules", json!({"name": "s", "type": "t"})).await.ok();
    let run = format!("/v1/schedules/{}/run", schedule["id"]);
    let ended = server.post(&run, json!({})).await.ok();
    let task = server.claim(claim("w", "t")).await.remove(0);
    server.report(&task, "success").await;
    let begun = server.post(&run, json!({})).await.ok();
    let shown = async |run: &serde_json::Value| server.get(&format!("/v1/runs/{}", run["id"])).await;
    assert_eq!(shown(&ended).await.ok()["status"], "done", "it is kept for a while");
    eventually("it is gone", IN_TIME, async || shown(&ended).await.status == StatusCode::NOT_FOUND).await;
    assert_eq!(shown(&begun).await.ok()["status"], "running", "what has not ended stays");
    assert_eq!(
        server.task(task["id"].as_i64().unwrap()).await["status"],
        "Success",
        "its task has a retention of its own"
    );
    server.end().await;
}

async fn the_log_of_changes_goes_after_its_retention(dialect: Dialect) {
    let server = Server::start_with(dialect, &["--keep-audit", "3s"], &[]).await;
    let lines = async || server.get("/v1/audit").await.ok()["items"].as_array().unwrap().len();
    let id = server.submit(json!({"type": "t"})).await;
    server.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.ok();
    assert_eq!(lines().await, 1, "it is kept for a while");
    eventually("it is gone", IN_TIME, async || lines().await == 0).await;
    assert_eq!(server.task(id).await["status"], "Cancelled", "the task has a retention of its own");
    server.end().await;
}

async fn a_purge_writes_down_what_it_removes(dialect: Dialect) {
    let server = Server::start(dialect).await;
    let failed = ended(&server, "failure").await;
    let done = ended(&server, "success").await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "{\"half a li").unwrap();
    let purge = async |line: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_taskwheel"));
        command.arg("purge").args(line).args(["--database", &server.database.url, "--json"]).output().await.unwrap()
    };
    let nothing_said = purge(&[]).await;
    assert!(!nothing_said.status.success() && !is_gone(&server, done).await, "{nothing_said:?}");
    let kept = purge(&["--keep-success", "1h"]).await;
    assert_eq!(String::from_utf8_lossy(&kept.stdout).trim(), r#"{"audit":0,"runs":0,"tasks":0}"#);
    let purged = purge(&["--keep-success", "0", "--export", file.path().to_str().unwrap()]).await;
    assert_eq!(String::from_utf8_lossy(&purged.stdout).trim(), r#"{"audit":0,"runs":0,"tasks":1}"#, "{purged:?}");
    assert!(is_gone(&server, done).await && !is_gone(&server, failed).await);
    let lines = std::fs::read_to_string(file.path()).unwrap();
    let written: serde_json::Value = serde_json::from_str(lines.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&written["id"], &written["status"]), (&json!(done), &json!("Success")));
    server.end().await;
}

macro_rules! on_each {
    ($($fact:ident),*) => {
        on_each! { in sqlite on Sqlite: $($fact),* }
        on_each! { in postgres on Postgres: $($fact),* }
        on_each! { in mysql on Mysql: $($fact),* }
    };
    (in $module:ident on $dialect:ident: $($fact:ident),*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $fact() {
                    super::$fact($crate::support::Dialect::$dialect).await;
                }
            )*
        }
    };
}

on_each![
    a_finished_task_goes_after_its_retention,
    a_success_that_is_not_kept_goes_as_it_finishes,
    the_record_of_a_run_goes_after_its_retention,
    the_log_of_changes_goes_after_its_retention,
    a_purge_writes_down_what_it_removes
];
