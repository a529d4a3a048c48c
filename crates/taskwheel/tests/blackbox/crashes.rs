//! Workers that die: `taskwheel work` killed in the middle of its commands.

use crate::support::{Server, eventually};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::process::{Child, Command};

const TASKS: usize = 4;
const HEARTBEAT: Duration = Duration::from_millis(500);
const IN_TIME: Duration = Duration::from_secs(30);

/// Says which attempt has begun. At the first one it then waits for as long as the file `wait` is there.
const COMMAND: &str = r#"echo "$TASKWHEEL_TASK_ID $TASKWHEEL_ATTEMPT" >> begun
while [ "$TASKWHEEL_ATTEMPT" = 1 ] && [ -e wait ]; do sleep 0.1; done"#;

fn worker(server: &Server, directory: &Path, command: &str) -> Child {
    let heartbeat = format!("{}ms", HEARTBEAT.as_millis());
    let concurrency = TASKS.to_string();
    Command::new(env!("CARGO_BIN_EXE_taskwheel"))
        .args(["work", "--type", "mail", "--concurrency", &concurrency, "--heartbeat", &heartbeat])
        .args(["--", "sh", "-c", command])
        .env("TASKWHEEL_SERVER", server.url())
        .current_dir(directory)
        // Commands that outlive their worker shall not hold the output of the test.
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary starts")
}

/// The attempts that have begun, as task and number.
fn begun(directory: &Path) -> Vec<(i64, u32)> {
    let lines = std::fs::read_to_string(directory.join("begun")).unwrap_or_default();
    let words = |line: &str| line.split_once(' ').map(|(id, attempt)| (id.parse().unwrap(), attempt.parse().unwrap()));
    lines.lines().filter_map(words).collect()
}

fn milliseconds(time: &Value) -> i64 {
    time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

async fn the_tasks_of_a_killed_worker_are_done_once_more(server: &Server) {
    let directory = TempDir::new().unwrap();
    let directory = directory.path();
    std::fs::write(directory.join("wait"), "").unwrap();
    let tasks: Vec<_> = (0..TASKS).map(|_| json!({"type": "mail"})).collect();
    server.post("/v1/tasks/batch", json!({"tasks": tasks})).await.ok();

    let mut killed = worker(server, directory, COMMAND);
    eventually("all commands run", IN_TIME, async || begun(directory).len() == TASKS).await;
    killed.kill().await.unwrap();
    let killed_at = jiff::Timestamp::try_from(SystemTime::now()).unwrap().as_millisecond();
    let mut other = worker(server, directory, COMMAND);
    eventually("all tasks are done", IN_TIME, async || {
        server.get("/v1/tasks?status=Success").await.ok()["items"].as_array().unwrap().len() == TASKS
    })
    .await;
    other.kill().await.unwrap();
    // What is left of the first worker's commands ends with it.
    std::fs::remove_file(directory.join("wait")).unwrap();

    let mut attempts = begun(directory);
    attempts.sort_unstable();
    let ids: Vec<_> = attempts.iter().map(|(id, _)| *id).step_by(2).collect();
    let expected: Vec<_> = ids.iter().flat_map(|id| [(*id, 1), (*id, 2)]).collect();
    assert_eq!((ids.len(), &attempts), (TASKS, &expected), "each is begun twice");
    for id in ids {
        let log = server.task(id).await["attempts_log"].clone();
        assert_eq!((&log[0]["outcome"], &log[1]["outcome"]), (&json!("lost"), &json!("success")), "{log}");
        let after = milliseconds(&log[0]["finished_at"]) - killed_at;
        let promised = i64::try_from(3 * HEARTBEAT.as_millis()).unwrap() + 1_000;
        assert!(after < promised + 1_000, "three heartbeats and a second, and slack: {after} ms");
    }
}

async fn a_command_that_kills_its_worker_every_time_fails_in_the_end(server: &Server) {
    let directory = TempDir::new().unwrap();
    let id = server.submit(json!({"type": "mail", "max_attempts": 2})).await;
    for _ in 0..2 {
        // The shell's parent is the worker.
        let mut doomed = worker(server, directory.path(), "kill -9 $PPID");
        tokio::time::timeout(IN_TIME, doomed.wait()).await.expect("it is killed").unwrap();
    }
    eventually("the task fails", IN_TIME, async || server.task(id).await["status"] == "Failure").await;
    let task = server.task(id).await;
    assert_eq!((&task["attempts"], &task["error_count"]), (&json!(2), &json!(2)));
    let mut next = worker(server, directory.path(), "true");
    let other = server.submit(json!({"type": "mail"})).await;
    eventually("others are done", IN_TIME, async || server.task(other).await["status"] == "Success").await;
    next.kill().await.unwrap();
    assert_eq!(server.task(id).await["status"], "Failure");
}

crate::facts![
    the_tasks_of_a_killed_worker_are_done_once_more,
    a_command_that_kills_its_worker_every_time_fails_in_the_end,
];
