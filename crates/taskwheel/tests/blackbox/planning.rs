//! `taskwheel schedules` and `taskwheel runs` against a real server.

use crate::commands::{json, run, text};
use crate::support::{Dialect, Server, eventually};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn a_schedule_is_added_shown_run_edited_and_deleted() {
    let server = Server::start(Dialect::Sqlite).await;
    let payload = r#"{"n": 12345678901234567890123}"#;
    let line = ["schedules", "add", "nightly", "--cron", "0 2 * * *", "--tz", "Asia/Shanghai", "--type", "report"];
    let made = text(&server, &[&["--json"], &line[..], &["--payload", payload]].concat()).await;
    assert!(made.contains("12345678901234567890123"), "a payload stays as it was written: {made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let id = made["id"].to_string();
    assert_eq!(made["timers"][0]["timezone"], "Asia/Shanghai");
    let listed = text(&server, &["schedules", "list"]).await;
    assert!(listed.contains("nightly") && listed.contains("T18:00:00.000Z"), "{listed}");
    let ran = json(&server, &["schedules", "run", &id]).await;
    let worked = run(&server, &["work", "--type", "report", "--drain", "--", "sh", "-c", "echo 7"]).await;
    assert!(worked.status.success(), "{worked:?}");
    let shown = text(&server, &["schedules", "show", "nightly"]).await;
    assert!(shown.contains("next firings") && shown.contains("last runs") && shown.contains("done"), "{shown}");
    assert_eq!(shown.matches("T18:00:00.000Z").count(), 6, "one timer and five firings: {shown}");
    let lines = text(&server, &["--json", "schedules", "show", &id, "--count", "2"]).await;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["name"], lines[1]["firings"].as_array().unwrap().len()), (&json!("nightly"), 2));
    assert_eq!(lines[2]["items"][0]["id"], ran["id"]);
    assert!(text(&server, &["schedules", "runs", &id, "--status", "done"]).await.contains(&ran["id"].to_string()));
    assert!(text(&server, &["runs", "show", &ran["id"].to_string()]).await.contains("Success"));
    assert_eq!(json(&server, &["runs", "list", "--schedule-id", &id]).await["items"][0]["status"], "done");

    let edit = [
        "schedules",
        "edit",
        &id,
        "--name",
        "hourly",
        "--every",
        "1h",
        "--initial-delay",
        "1h",
        "--overlap",
        "skip",
        "--shards",
        "2",
    ];
    let edited = json(&server, &edit).await;
    assert_eq!((&edited["name"], &edited["type"], &edited["shards"]), (&json!("hourly"), &json!("report"), &json!(2)));
    assert_eq!((edited["timers"].as_array().unwrap().len(), &edited["timers"][0]["period_ms"]), (1, &json!(3_600_000)));
    json(&server, &["schedules", "run", &id]).await;
    let refused = run(&server, &["schedules", "run", &id]).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("overlap"), "{said}");
    let going = json(&server, &["runs", "list", "--status", "running"]).await["items"][0]["id"].to_string();
    assert_eq!(json(&server, &["runs", "cancel", &going]).await["status"], "cancelled");
    assert_eq!(text(&server, &["schedules", "offline", &id]).await, format!("schedule {id} is offline\n"));
    assert!(text(&server, &["schedules", "online", &id]).await.contains("it fires next at"));
    assert_eq!(text(&server, &["schedules", "delete", &id]).await, format!("schedule {id} is deleted\n"));
    for gone in [id.as_str(), "hourly"] {
        assert_eq!(run(&server, &["schedules", "show", gone]).await.status.code(), Some(3), "it is not there any more");
    }
    for _ in 0..2 {
        json(&server, &["schedules", "add", "twin", "--type", "t"]).await;
    }
    let twin = run(&server, &["schedules", "delete", "twin"]).await;
    assert!(String::from_utf8_lossy(&twin.stderr).contains("several"), "{twin:?}");
    let bad = run(&server, &["schedules", "add", "bad", "--cron", "61 * * * *", "--type", "t"]).await;
    assert!(String::from_utf8_lossy(&bad.stderr).contains("--cron: minute"), "{bad:?}");
    server.end().await;
}

#[tokio::test]
async fn once_fires_once() {
    let server = Server::start(Dialect::Sqlite).await;
    let once = json(&server, &["schedules", "add", "soon", "--in", "100ms", "--type", "soon"]).await;
    let at = json(&server, &["schedules", "add", "then", "--at", "2020-01-01T00:00:00Z", "--type", "then"]).await;
    for schedule in [once, at] {
        eventually("it has fired", Duration::from_secs(20), async || {
            let tasks = json(&server, &["tasks", "list", "--schedule-id", &schedule["id"].to_string()]).await;
            tasks["items"].as_array().unwrap().len() == 1
        })
        .await;
    }
    server.end().await;
}

#[tokio::test]
async fn what_is_exported_is_imported_the_same() {
    let server = Server::start(Dialect::Sqlite).await;
    let children =
        r#"[{"name": "pack", "type": "pack", "payload": {"deep": [1, {"x": true}]}, "children": [{"type": "ship"}]}]"#;
    let timer = r#"{"kind": "once", "at": "2035-01-31T08:00:00Z", "enabled": false}"#;
    let line =
        ["schedules", "add", "whole", "--app", "das", "--service", "build", "--method", "run", "--cron", "0 0 1 1 *"];
    let more =
        ["--every", "1h", "--initial-delay", "30m", "--timer", timer, "--children", children, "--misfire", "catch_up"];
    json(&server, &[&line[..], &more, &["--misfire-max", "7", "--priority", "5", "--timeout", "none"]].concat()).await;
    json(&server, &["schedules", "add", "plain", "--type", "t", "--status", "new"]).await;
    let decided = |schedules: &Value| -> Vec<Value> {
        let mut items = schedules["items"].as_array().unwrap().clone();
        for schedule in &mut items {
            for made in ["id", "created_at", "updated_at"] {
                schedule.as_object_mut().unwrap().remove(made);
            }
            for timer in schedule["timers"].as_array_mut().unwrap() {
                timer.as_object_mut().unwrap().remove("id");
                timer.as_object_mut().unwrap().remove("next");
            }
        }
        items.sort_by_key(|schedule| schedule["name"].to_string());
        items
    };
    let before = json(&server, &["schedules", "list"]).await;
    let folder = tempfile::tempdir().unwrap();
    for name in ["all.json", "all.toml"] {
        let file = folder.path().join(name);
        let file = file.to_str().unwrap();
        text(&server, &["schedules", "export", "--file", file]).await;
        let other = Server::start(Dialect::Sqlite).await;
        assert!(text(&other, &["schedules", "import", file]).await.contains("made"));
        let after = json(&other, &["schedules", "list"]).await;
        assert_eq!(decided(&after), decided(&before), "{name}");
        // Once more changes nothing, not even when the timers fire.
        assert!(text(&other, &["schedules", "import", file]).await.contains("changed"));
        assert_eq!(json(&other, &["schedules", "list"]).await, after, "{name}");
        let whole = after["items"].as_array().unwrap().iter().find(|one| one["name"] == "whole").unwrap();
        json(&other, &["schedules", "edit", &whole["id"].to_string(), "--every", "2h", "--key", "k"]).await;
        text(&other, &["schedules", "import", file]).await;
        assert_eq!(
            decided(&json(&other, &["schedules", "list"]).await),
            decided(&before),
            "{name} sets it right again"
        );
        other.end().await;
    }
    let toml = text(&server, &["schedules", "export", "--format", "toml"]).await;
    assert!(toml.contains("[[schedules]]") && toml.contains("name = \"whole\""), "{toml}");
    server.end().await;
}

#[tokio::test]
async fn a_command_knows_its_shard_and_what_came_before_it() {
    let server = Server::start(Dialect::Sqlite).await;
    let children = r#"[{"type": "sum"}]"#;
    let line = ["schedules", "add", "parts", "--type", "part", "--shards", "2", "--children", children];
    let id = json(&server, &line).await["id"].to_string();
    let ran = json(&server, &["schedules", "run", &id]).await["id"].to_string();
    let part =
        ["work", "--type", "part", "--drain", "--", "sh", "-c", "echo $TASKWHEEL_SHARD_INDEX$TASKWHEEL_SHARD_TOTAL"];
    run(&server, &part).await;
    let sum =
        ["work", "--type", "sum", "--drain", "--", "sh", "-c", r#"echo "$TASKWHEEL_PARENT$TASKWHEEL_SHARD_INDEX""#];
    run(&server, &sum).await;
    let shown = json(&server, &["runs", "show", &ran]).await;
    assert_eq!(shown["status"], "done");
    let sum = json(&server, &["tasks", "show", &shown["tasks"][2]["id"].to_string()]).await;
    let parents: Vec<_> = sum["result"].as_array().unwrap().iter().map(|parent| parent["result"].to_string()).collect();
    // 02 is no JSON, and so a text.
    assert_eq!(parents, ["\"02\"", "12"]);
    server.end().await;
}
