//! The command line against a real server.

use crate::support::{Dialect, Server};
use serde_json::Value;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use tokio::process::Command;

/// Runs the binary as a client of a server.
pub(crate) async fn run(server: &Server, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_taskwheel"))
        .args(arguments)
        .env("TASKWHEEL_SERVER", server.url())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap()
}

/// The output of a command that went well, as JSON.
pub(crate) async fn json(server: &Server, arguments: &[&str]) -> Value {
    let output = run(server, &[&["--json"], arguments].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

/// The output of a command that went well.
pub(crate) async fn text(server: &Server, arguments: &[&str]) -> String {
    let output = run(server, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_task_is_submitted_worked_on_and_shown() {
    let server = Server::start(Dialect::Sqlite).await;
    let task =
        json(&server, &["submit", "hello", "--key", "k", "--payload", r#"{"name": "you"}"#, "--priority", "5"]).await;
    let id = task["id"].to_string();
    let worked = run(&server, &["work", "--type", "hello", "--drain", "--", "cat"]).await;
    assert!(worked.status.success(), "{worked:?}");
    let shown = json(&server, &["tasks", "show", &id]).await;
    assert_eq!(shown["status"], "Success");
    assert_eq!(shown["result"], serde_json::json!({"name": "you"}));
    assert!(text(&server, &["tasks", "show", &id]).await.contains("Success"));
    assert!(text(&server, &["tasks", "list", "--status", "finished"]).await.contains("hello"));
    server.end().await;
}

#[tokio::test]
async fn a_command_that_fails_is_an_error_with_its_words() {
    let server = Server::start(Dialect::Sqlite).await;
    let task = json(&server, &["submit", "hello", "--max-attempts", "1"]).await;
    let id = task["id"].to_string();
    run(&server, &["work", "--type", "hello", "--drain", "--", "sh", "-c", "echo no route >&2; exit 7"]).await;
    let shown = json(&server, &["tasks", "show", &id]).await;
    assert_eq!(shown["status"], "Failure");
    let error = shown["error_info"].as_str().unwrap();
    assert!(error.contains('7') && error.contains("no route"), "{error}");
    json(&server, &["tasks", "retry", &id]).await;
    json(&server, &["tasks", "edit", &id, "--priority", "9", "--remark", "look"]).await;
    assert_eq!(json(&server, &["tasks", "show", &id]).await["priority"], 9);
    json(&server, &["tasks", "cancel", "--type", "hello"]).await;
    assert_eq!(json(&server, &["tasks", "show", &id]).await["status"], "Cancelled");
    server.end().await;
}

#[tokio::test]
async fn a_command_over_its_time_is_killed_at_once() {
    let server = Server::start(Dialect::Sqlite).await;
    let task = json(&server, &["submit", "slow", "--timeout", "1s", "--max-attempts", "1"]).await;
    let id = task["id"].to_string();
    let began = Instant::now();
    // The next heartbeat, which would tell, is a minute away.
    let work = ["work", "--type", "slow", "--drain", "--heartbeat", "60s", "--", "sleep", "50"];
    let worked = run(&server, &work).await;
    assert!(began.elapsed() < Duration::from_secs(30), "{worked:?}");
    assert!(String::from_utf8_lossy(&worked.stderr).contains("its time was over"), "{worked:?}");
    while json(&server, &["tasks", "show", &id]).await["status"] == "Executing" {
        assert!(began.elapsed() < Duration::from_secs(30), "the server ends it by its own clock");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let shown = json(&server, &["tasks", "show", &id]).await;
    assert_eq!((&shown["status"], &shown["attempts"]), (&"Failure".into(), &1.into()));
    server.end().await;
}

#[tokio::test]
async fn many_tasks_are_rescheduled_and_given_a_priority_at_once() {
    let server = Server::start(Dialect::Sqlite).await;
    for task_type in ["mail", "mail", "fax"] {
        json(&server, &["submit", task_type, "--delay", "1d"]).await;
    }
    let at = "2040-01-31T08:00:00.000Z";
    let counted = json(&server, &["tasks", "reschedule", "--type", "mail", "--to", at, "--dry-run"]).await;
    assert_eq!((&counted["matched"], &counted["changed"]), (&2.into(), &0.into()));
    assert_eq!(
        text(&server, &["tasks", "reschedule", "--type", "mail", "--to", at]).await,
        "reschedule changed 2 of 2 tasks\n"
    );
    json(&server, &["tasks", "set-priority", "--type", "mail", "--to", "7"]).await;
    let shown = async |id: &str| {
        let task = json(&server, &["tasks", "show", id]).await;
        (task["run_at"].as_str().unwrap().to_owned(), task["priority"].as_i64().unwrap())
    };
    assert_eq!(shown("1").await, (at.to_owned(), 7));
    assert_eq!(shown("2").await, (at.to_owned(), 7));
    assert_eq!(shown("3").await.1, 1, "it does not match");
    text(&server, &["tasks", "reschedule", "3", "--to", at]).await;
    text(&server, &["tasks", "set-priority", "3", "1", "--to", "9"]).await;
    assert_eq!((shown("3").await, shown("1").await), ((at.to_owned(), 9), (at.to_owned(), 9)));
    text(&server, &["tasks", "reschedule", "3", "--delay", "1h"]).await;
    assert!(shown("3").await.0.as_str() < at);
    server.end().await;
}

/// Nothing that people need is in the JSON alone.
#[tokio::test]
async fn tables_are_for_people() {
    let server = Server::start(Dialect::Sqlite).await;
    let nothing = run(&server, &["stats"]).await;
    assert!(nothing.stdout.is_empty() && !nothing.stderr.is_empty(), "an empty table is said to be: {nothing:?}");
    json(&server, &["submit", "hello"]).await;
    assert!(!text(&server, &["tasks", "list"]).await.contains("TENANT"), "there is one alone");
    run(&server, &["work", "--type", "hello", "--drain", "--", "cat"]).await;
    json(&server, &["submit", "later", "--delay", "1d"]).await;
    json(&server, &["tasks", "cancel", "--type", "later"]).await;
    let log = text(&server, &["audit"]).await;
    for part in ["DETAIL", "action=cancel", "changed=1", "filter=(type=later)", "matched=1"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let began = Instant::now();
    loop {
        let shown = text(&server, &["stats"]).await;
        if let Some(row) = shown.lines().nth(1) {
            assert!(shown.contains("WAIT_MS P50/P90/P99") && !shown.contains('{'), "{shown}");
            let run = row.split_whitespace().last().unwrap();
            assert_eq!(run.split('/').filter(|ms| ms.parse::<u64>().is_ok()).count(), 3, "{shown}");
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "what ended is counted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let acme = crate::access::token(&server, &["--role", "submitter", "--tenant", "acme"]).await;
    let admin = crate::access::token(&server, &["--role", "admin"]).await;
    crate::access::post(&server, &acme, "/v1/tasks", serde_json::json!({"type": "mail"})).await.ok();
    let mut list = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
    list.args(["tasks", "list"]).env("TASKWHEEL_SERVER", server.url()).env("TASKWHEEL_TOKEN", admin);
    let list = String::from_utf8(list.output().await.unwrap().stdout).unwrap();
    assert!(list.contains("TENANT") && list.contains("acme") && list.contains("default"), "{list}");
    server.end().await;
}

#[tokio::test]
async fn a_secret_in_the_address_of_a_server_is_not_shown() {
    for line in [&["tasks", "list"][..], &["tasks", "list", "--help"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
        let said = command.args(line).env("TASKWHEEL_SERVER", "http://me:SECRET@127.0.0.1:1").output().await.unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        assert!(said.contains("--server") && !said.contains("SECRET"), "{said}");
    }
}

#[tokio::test]
async fn failures_have_their_exit_codes_and_say_what_to_do() {
    let server = Server::start(Dialect::Sqlite).await;
    let missing = run(&server, &["tasks", "show", "999"]).await;
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    let refused = run(&server, &["submit", "no spaces"]).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("type"), "{refused:?}");
    let no_time = run(&server, &["submit", "mail", "--run-at", "tomorrow"]).await;
    assert!(String::from_utf8_lossy(&no_time.stderr).contains("must be like 2030"), "{no_time:?}");
    let no_url = run(&server, &["check", "--database", "other.db"]).await;
    assert!(String::from_utf8_lossy(&no_url.stderr).contains("is sqlite://other.db meant"), "{no_url:?}");
    let usage = run(&server, &["submit"]).await;
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
    let nobody = run(&server, &["--server", "http://127.0.0.1:1", "tasks", "list"]).await;
    assert_eq!(nobody.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("taskwheel serve"), "{nobody:?}");
    server.end().await;
}

#[tokio::test]
async fn the_database_is_checked() {
    let server = Server::start(Dialect::Sqlite).await;
    let checked = json(&server, &["check", "--database", &server.database.url]).await;
    assert_eq!(checked["problems"], serde_json::json!([]));
    assert!(text(&server, &["migrate", "--database", &server.database.url]).await.contains("version 1"));
    server.end().await;
}
