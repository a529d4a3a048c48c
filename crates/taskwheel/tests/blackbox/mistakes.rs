//! Mistakes at the command line: each is refused before anything happens, and called by the name that was typed.

use crate::commands::{json, run, text};
use crate::support::{Dialect, Server};
use serde_json::json;
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;
use tokio::process::Command;

/// Runs the binary in a directory, where no server is known.
async fn run_in(directory: &Path, line: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
    command.args(line.split(' ')).current_dir(directory).env_remove("TASKWHEEL_LOG").envs(variables.iter().copied());
    command.kill_on_drop(true).output().await.unwrap()
}

/// What a command that was refused says.
#[track_caller]
fn complaint(output: Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[tokio::test]
async fn a_mistyped_database_is_not_made() {
    let directory = tempfile::tempdir().unwrap();
    for command in ["tokens list", "tokens revoke 1", "tenants list", "tenants limit acme", "check"] {
        let said = complaint(run_in(directory.path(), &format!("{command} --database sqlite://nope.db"), &[]).await);
        assert!(said.contains("there is no database nope.db"), "{command}: {said}");
        assert!(said.contains("taskwheel migrate --database sqlite://nope.db"), "{command}: {said}");
    }
    assert!(is_empty(directory.path()));
}

#[tokio::test]
async fn the_first_token_is_made_before_the_server_starts() {
    let directory = tempfile::tempdir().unwrap();
    let made = run_in(directory.path(), "tokens create --role admin --database sqlite://new.db", &[]).await;
    assert!(made.status.success(), "{made:?}");
    assert!(String::from_utf8_lossy(&made.stderr).contains("warning: there was no database new.db"), "{made:?}");
    assert!(made.stdout.starts_with(b"taskwheel_"));
    let listed = run_in(directory.path(), "tokens list --database sqlite://new.db", &[]).await;
    assert!(String::from_utf8_lossy(&listed.stdout).contains("admin"), "{listed:?}");
}

#[tokio::test]
async fn a_server_that_cannot_start_leaves_no_database() {
    let directory = tempfile::tempdir().unwrap();
    let serve = async |line: &str, variables: &[(&str, &str)]| {
        complaint(run_in(directory.path(), &format!("serve {line}"), variables).await)
    };
    let said = serve("--listen 127.0.0.1:0", &[("TASKWHEEL_LOG", "debgu")]).await;
    assert!(said.contains("TASKWHEEL_LOG must be off, error, warn, info, debug or trace"), "{said}");
    let said = serve("--database sqlite://nowhere/tasks.db", &[]).await;
    assert!(said.contains("the directory nowhere does not exist"), "{said}");
    for (url, hint) in [("", "is empty"), ("sqlite:/x.db", "is sqlite:///x.db meant?"), ("sqlit://x", "not sqlit://")] {
        let said = serve("--listen 127.0.0.1:0", &[("TASKWHEEL_DATABASE", url)]).await;
        assert!(said.contains("--database must be like sqlite://FILE") && said.contains(hint), "{url}: {said}");
    }
    assert!(is_empty(directory.path()));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = serve(&format!("--listen {}", taken.local_addr().unwrap()), &[]).await;
    assert!(said.contains("end what listens there"), "{said}");
    assert!(!directory.path().join("taskwheel.db").exists());
}

#[tokio::test]
async fn what_is_refused_is_named_as_it_was_typed() {
    let server = Server::start(Dialect::Sqlite).await;
    let database = &server.database.url;
    let id = json(&server, &["submit", "mail"]).await["id"].to_string();
    json(&server, &["work", "--type", "mail", "--drain", "--", "true"]).await;
    for (line, expected) in [
        (["tokens", "create", "--role=viewer", "--rate-per-s=0", "--database", database], "--rate-per-s must be"),
        (["tenants", "limit", "acme", "--live-max=-1", "--database", database], "--live-max must be"),
        (["stats", "--last", "30d", "--type", "mail", "--json"], "must be at most 7d"),
        (["schedules", "add", "s", "--type=mail", "--every", "0s"], "'--every <DURATION>': must not be zero"),
        (["schedules", "add", "s", "--type=mail", "--cron", "x"], "--cron: has 1 field"),
        (["tasks", "run-now", &id, &id, &id, &id], &format!("`taskwheel tasks show {id}`")),
    ] {
        let said = complaint(run(&server, &line).await);
        assert!(said.contains(expected) && !said.contains("item 0"), "{line:?}: {said}");
    }
    json(&server, &["stats", "--last", "7d"]).await;
    server.end().await;
}

#[tokio::test]
async fn a_command_says_what_holds_after_it() {
    let server = Server::start(Dialect::Sqlite).await;
    let database = server.database.url.as_str();
    let id = json(&server, &["submit", "mail", "--delay", "1h"]).await["id"].to_string();
    assert!(text(&server, &["tasks", "retry", &id]).await.contains("nothing is changed"));
    assert_eq!(text(&server, &["tasks", "cancel", &id]).await, format!("task {id} is Cancelled\n"));
    assert_eq!(text(&server, &["tasks", "cancel", &id]).await, format!("task {id} is Cancelled; nothing is changed\n"));
    let limited = text(&server, &["tenants", "limit", "acme", "--live-max", "5", "--database", database]).await;
    assert!(limited.starts_with("tenant acme may have at most 5 live tasks"), "{limited}");
    let limited = json(&server, &["tenants", "limit", "acme", "--database", database]).await;
    assert_eq!(limited, json!({"tenant": "acme", "live_max": null, "submits_per_s": null}));
    server.end().await;
}

#[tokio::test]
async fn a_list_goes_on_until_its_page_is_full() {
    let server = Server::start(Dialect::Sqlite).await;
    let wanted = server.submit(json!({"type": "mail", "payload": "needle"})).await;
    let others: Vec<_> = (0..6_000).map(|_| json!({"type": "mail"})).collect();
    server.post("/v1/tasks/batch", json!({"tasks": others})).await.ok();
    let call = server.get("/v1/tasks?text=needle").await.ok();
    assert!(call["items"] == json!([]) && call["next_cursor"].is_string(), "one call does not look so far: {call}");
    let listed = json(&server, &["tasks", "list", "--text", "needle"]).await;
    assert_eq!((&listed["items"][0]["id"], &listed["next_cursor"]), (&json!(wanted), &json!(null)));
    let page = json(&server, &["tasks", "list", "--limit", "7"]).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 7);
    assert!(page["next_cursor"].is_string());
    let none = run(&server, &["tasks", "list", "--text", "haystack"]).await;
    assert_eq!(String::from_utf8_lossy(&none.stderr), "no task matches\n");
    server.end().await;
}

#[tokio::test]
async fn a_result_that_is_cut_is_told() {
    let server = Server::start(Dialect::Sqlite).await;
    let id = json(&server, &["submit", "long"]).await["id"].to_string();
    let print = "head -c 300000 /dev/zero | tr '\\0' a";
    let worked = run(&server, &["work", "--type", "long", "--drain", "--", "sh", "-c", print]).await;
    let said = String::from_utf8_lossy(&worked.stderr);
    assert!(said.contains(&format!("warning: the result of task {id} is longer than 262144 bytes")), "{said}");
    assert!(said.contains("Success, its result was cut"), "{said}");
    let shown = json(&server, &["tasks", "show", &id]).await;
    assert_eq!(shown["result"].as_str().unwrap().len(), 262_142, "its quotes count");
    server.end().await;
}
