//! For whoever watches: metrics, traces, logs.

use crate::support::{Dialect, Server, claim, eventually};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The value of a line of the metrics; none where there is no such line.
async fn metric(server: &Server, line: &str) -> Option<f64> {
    let page = server.get("/metrics").await.ok();
    let page = page.as_str().expect("metrics are text").to_owned();
    let found = page.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
    found.map(|value| value.parse().expect("a number"))
}

async fn metrics_say_what_a_person_on_call_needs(server: &Server) {
    server.put("/v1/types/mail", json!({"max_attempts": 2, "retry": {"strategy": "fixed", "delay_ms": 0}})).await.ok();
    for _ in 0..3 {
        server.submit(json!({"type": "mail"})).await;
    }
    server.submit(json!({"type": "later", "delay_ms": 3_600_000})).await;
    assert_eq!(metric(server, "taskwheel_due_tasks{type=\"mail\"}").await, Some(3.0));
    assert!(metric(server, "taskwheel_oldest_due_seconds{type=\"mail\"}").await.is_some());
    assert_eq!(metric(server, "taskwheel_due_tasks{type=\"later\"}").await, None, "what is not due is no backlog");
    assert_eq!(metric(server, "taskwheel_submitted_total{type=\"mail\"}").await, Some(3.0));
    let first = server.claim(claim("w1", "mail")).await.remove(0);
    server.report(&first, "error").await;
    server.report(&first, "success").await;
    for _ in 0..3 {
        let task = server.claim(claim("w1", "mail")).await.remove(0);
        server.report(&task, "success").await;
    }
    let wanted = [
        ("taskwheel_claimed_total{type=\"mail\"}", 4.0),
        ("taskwheel_executions_total{type=\"mail\",outcome=\"success\"}", 3.0),
        ("taskwheel_executions_total{type=\"mail\",outcome=\"error\"}", 1.0),
        ("taskwheel_retries_total{type=\"mail\"}", 1.0),
        ("taskwheel_reports_superseded_total", 1.0),
        ("taskwheel_lateness_seconds_count{type=\"mail\"}", 4.0),
        ("taskwheel_run_seconds_bucket{type=\"mail\",le=\"+Inf\"}", 4.0),
        ("taskwheel_ready", 1.0),
        ("taskwheel_calls_total{method=\"POST\",route=\"/v1/worker/claim\",status=\"200\"}", 4.0),
    ];
    for (line, value) in wanted {
        assert_eq!(metric(server, line).await, Some(value), "{line}");
    }
    assert!(metric(server, "taskwheel_store_seconds_count{verb=\"claim\"}").await.unwrap() >= 4.0);
    assert_eq!(metric(server, "taskwheel_store_errors_total{verb=\"claim\"}").await, Some(0.0));
    server.get("/v1/made/up").await;
    server.call(reqwest::Method::from_bytes(b"MADEUP").unwrap(), "/v1/tasks", None).await;
    let page = server.get("/metrics").await.ok();
    assert!(!page.as_str().unwrap().to_lowercase().contains("made"), "what callers make up is no label");
    let within = Duration::from_secs(8);
    eventually("the backlog is gone", within, async || {
        metric(server, "taskwheel_due_tasks{type=\"mail\"}").await.is_none()
    })
    .await;
}

async fn metrics_count_what_goes_wrong_with_workers(server: &Server) {
    let total = async |name: &str| metric(server, &format!("taskwheel_{name}")).await;
    let becomes = async |name: &str, count: f64| {
        eventually(&format!("{name} is {count}"), Duration::from_secs(30), async || total(name).await == Some(count))
            .await;
    };
    let wrong =
        ["leases_lost_total", "never_arrived_total", "timeouts_total", "expired_total", "reports_superseded_total"];
    for name in wrong {
        assert_eq!(total(name).await, Some(0.0), "{name}");
    }
    let with_heartbeat = |worker: &str| {
        let mut claim = claim(worker, "mail");
        claim["heartbeat_ms"] = json!(2_000);
        claim
    };
    server.submit(json!({"type": "mail"})).await;
    let lost = server.claim(with_heartbeat("w1")).await.remove(0);
    let item = json!({"id": lost["id"], "exec_id": lost["exec_id"]});
    let renewed = server.post("/v1/worker/renew", json!({"worker_id": "w1", "items": [item]})).await.ok();
    assert_eq!(renewed["items"][0]["state"], "ok");
    becomes("leases_lost_total", 1.0).await;
    becomes("executions_total{type=\"mail\",outcome=\"lost\"}", 1.0).await;
    becomes("retries_total{type=\"mail\"}", 1.0).await;
    assert_eq!(server.report(&lost, "success").await["state"], "superseded");
    becomes("reports_superseded_total", 1.0).await;

    server.claim(with_heartbeat("w2")).await.remove(0);
    eventually("what a worker that lives does not name is given back", Duration::from_secs(30), async || {
        server.post("/v1/worker/renew", json!({"worker_id": "w2"})).await.ok();
        total("never_arrived_total").await == Some(1.0)
    })
    .await;
    let given_back = server.claim(with_heartbeat("w2")).await.remove(0);
    server.report(&given_back, "success").await;

    server.submit(json!({"type": "slow", "timeout_ms": 1})).await;
    server.claim(claim("w3", "slow")).await.remove(0);
    becomes("timeouts_total", 1.0).await;
    let soon = jiff::Timestamp::now() + Duration::from_secs(3);
    server.submit(json!({"type": "stale", "expire_at": soon})).await;
    becomes("expired_total", 1.0).await;
    assert_eq!(total("leases_lost_total").await, Some(1.0), "each is counted once, under its own name");
    assert_eq!(total("retries_total{type=\"mail\"}").await, Some(1.0), "what is given back is not tried again");
}

async fn metrics_show_connections_that_are_in_use(server: &Server) {
    assert_eq!(metric(server, "taskwheel_store_connections_max").await, Some(8.0));
    let used = async || metric(server, "taskwheel_store_connections_used").await.unwrap();
    let (lock, unlock) = match server.database.dialect {
        Dialect::Mysql => ("LOCK TABLES task READ", "UNLOCK TABLES"),
        _ => ("BEGIN; LOCK TABLE task IN SHARE MODE", "ROLLBACK"),
    };
    let mut raw = server.database.raw().await;
    raw.run(lock).await;
    let watch = async {
        // The server's own looks use one now and then, but not each time.
        eventually("one is in use all the time", Duration::from_secs(30), async || {
            for _ in 0..20 {
                if used().await < 1.0 {
                    return false;
                }
            }
            true
        })
        .await;
        raw.run(unlock).await;
    };
    tokio::join!(server.submit(json!({"type": "mail"})), watch);
    eventually("none is in use", Duration::from_secs(30), async || used().await == 0.0).await;
}

/// Lanes, of a type and a host each, are as many as callers make up.
async fn no_crowd_of_lanes_or_types_hides_the_backlog_of_others(server: &Server) {
    let submit = async |tasks: Vec<Value>| server.post("/v1/tasks/batch", json!({"tasks": tasks})).await.ok();
    submit((0..400).map(|host| json!({"type": "crowd", "affinity": format!("h{host}")})).collect()).await;
    submit(vec![json!({"type": "mail"}), json!({"type": "mail", "affinity": "a"}), json!({"type": "crowd"})]).await;
    let due = async |task_type: &str| metric(server, &format!("taskwheel_due_tasks{{type=\"{task_type}\"}}")).await;
    assert_eq!((due("crowd").await, due("mail").await, due("(other)").await), (Some(401.0), Some(2.0), None));
    assert_eq!(metric(server, "taskwheel_due_tasks_cut_off").await, Some(0.0));
    submit((0..300).map(|number| json!({"type": format!("a{number:03}")})).collect()).await;
    eventually("what has no name is summed up", Duration::from_secs(8), async || {
        due("(other)").await == Some(300.0 + 401.0 + 2.0 - 200.0)
    })
    .await;
    assert_eq!((due("a199").await, due("a200").await), (Some(1.0), None));
    assert_eq!(metric(server, "taskwheel_due_tasks_cut_off").await, Some(0.0));
}

async fn workers_that_went_silent_are_not_counted(server: &Server) {
    server.claim(claim("w1", "mail")).await;
    server.claim(claim("w2", "mail")).await;
    server.database.raw().await.run("UPDATE task_worker SET seen_at = seen_at - 3600000 WHERE worker_id = 'w1'").await;
    assert_eq!(metric(server, "taskwheel_workers").await, Some(1.0));
}

/// Alerts and the dashboard ask for metrics that exist.
async fn the_pages_name_metrics_that_exist(server: &Server) {
    let page = server.get("/metrics").await.ok();
    let families: Vec<_> =
        page.as_str().unwrap().lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    // What follows is about logs, and names parts of the program.
    let operations = include_str!("../../../../docs/operations.md").split("## Logs and traces").next().unwrap();
    for document in [operations, include_str!("../../../../docs/grafana.json")] {
        let words = document.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: Vec<_> = words.filter(|word| word.starts_with("taskwheel_")).collect();
        assert!(named.len() > 10);
        for name in named {
            let family = name.trim_end_matches("_bucket");
            assert!(families.contains(&family), "{name} is in a page and not in the metrics");
        }
    }
}

async fn a_trace_goes_with_the_task_to_its_worker(server: &Server) {
    let submit = async |trace: &str| {
        let request = server.client.post(format!("{}/v1/tasks", server.url())).header("traceparent", trace);
        request.json(&json!({"type": "mail"})).send().await.unwrap().error_for_status().unwrap();
        server.claim(claim("w1", "mail")).await.remove(0)["traceparent"].clone()
    };
    assert_eq!(submit(TRACE).await, TRACE);
    assert_eq!(submit("00-nonsense").await, Value::Null, "what is no trace is none");
    server.submit(json!({"type": "mail"})).await;
    assert_eq!(server.claim(claim("w1", "mail")).await[0]["traceparent"], Value::Null);
    let request = server.client.post(format!("{}/v1/tasks", server.url())).header("traceparent", TRACE);
    let task: Value = request.json(&json!({"type": "sh"})).send().await.unwrap().json().await.unwrap();
    let print = r#"printf '"%s"' "$TRACEPARENT""#;
    crate::commands::text(server, &["work", "--type", "sh", "--drain", "--", "sh", "-c", print]).await;
    assert_eq!(server.task(task["id"].as_i64().unwrap()).await["result"], TRACE, "a command has it too");
}

/// A collector that keeps what it is sent.
async fn collector() -> (String, tokio::sync::mpsc::UnboundedReceiver<Value>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (keep, kept) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            let (mut length, mut line) = (0, String::new());
            while stream.read_line(&mut line).await.unwrap() > 2 {
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            stream.get_mut().write_all(answer).await.unwrap();
            keep.send(serde_json::from_slice(&body).unwrap()).unwrap();
        }
    });
    (url, kept)
}

/// So many spans that a collector was sent.
async fn sent_spans(sent: &mut tokio::sync::mpsc::UnboundedReceiver<Value>, count: usize) -> Vec<Value> {
    let mut spans = Vec::new();
    while spans.len() < count {
        let body = tokio::time::timeout(Duration::from_secs(20), sent.recv()).await.expect("spans are sent").unwrap();
        spans.extend(body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone());
    }
    spans
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_report_came_too_late_is_shown_as_such() {
    let (collector, mut sent) = collector().await;
    let server = Server::start_with(Dialect::Sqlite, &[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector)]).await;
    let id = server.submit(json!({"type": "mail"})).await;
    let task = server.claim(claim("w1", "mail")).await.remove(0);
    server.post(&format!("/v1/tasks/{id}/cancel"), json!({})).await.ok();
    assert_eq!(server.report(&task, "success").await["state"], "superseded");
    server.signal(nix::sys::signal::Signal::SIGTERM);
    let spans = sent_spans(&mut sent, 3).await;
    let run = spans.iter().find(|span| span["name"] == "taskwheel run").expect("its run is told of");
    let outcome = json!({"key": "taskwheel.outcome", "value": {"stringValue": "superseded"}});
    assert!(run["attributes"].as_array().unwrap().contains(&outcome), "{run}");
    assert_eq!(run["status"]["code"], 2, "it is no success: {run}");
    server.end().await;
}

/// Also where another node takes the report than the one that handed out the task.
async fn one_trace_shows_submit_wait_and_run(server: &Server) {
    let (collector, mut sent) = collector().await;
    let start = async || {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector)];
        crate::support::Node::start_with(&server.database.url, &[], &variables).await
    };
    let (node, other) = (start().await, start().await);
    let call = async |node: &crate::support::Node, path: &str, body: Value| {
        let request = server.client.post(format!("{}{path}", node.url)).header("traceparent", TRACE).json(&body);
        request.send().await.unwrap().error_for_status().unwrap().json::<Value>().await.unwrap()
    };
    let mut claimed = Vec::new();
    for reports_to in [&node, &other] {
        let id = call(&node, "/v1/tasks", json!({"type": "mail"})).await["id"].clone();
        let task = call(&node, "/v1/worker/claim", claim("w1", "mail")).await["tasks"][0].clone();
        let item = json!({"id": id, "exec_id": task["exec_id"], "outcome": "success"});
        call(reports_to, "/v1/worker/report", json!({"items": [item]})).await;
        claimed.push(task);
    }
    // What was gathered until the end is sent before it.
    node.signal(nix::sys::signal::Signal::SIGTERM);
    other.signal(nix::sys::signal::Signal::SIGTERM);
    let spans = sent_spans(&mut sent, 6).await;
    assert!(spans.iter().all(|span| span["traceId"] == TRACE[3..35]), "one trace: {spans:?}");
    for task in claimed {
        let of = |name: &str| {
            let id = json!({"key": "taskwheel.task_id", "value": {"stringValue": task["id"].to_string()}});
            let is_of_task = |span: &&Value| span["attributes"].as_array().unwrap().contains(&id);
            let found = spans.iter().filter(|span| span["name"] == name).find(is_of_task);
            found.unwrap_or_else(|| panic!("{name} of {task}: {spans:?}"))
        };
        let (wait, run) = (of("taskwheel wait"), of("taskwheel run"));
        let submit = spans.iter().find(|span| span["spanId"] == wait["parentSpanId"]).expect("it hangs below a span");
        assert_eq!((&submit["name"], &submit["parentSpanId"]), (&json!("taskwheel submit"), &json!(TRACE[36..52])));
        assert_eq!(run["parentSpanId"], submit["spanId"]);
        assert_eq!(run["startTimeUnixNano"], wait["endTimeUnixNano"], "the wait is over when the run begins");
        let below = format!("00-{}-{}-01", &TRACE[3..35], run["spanId"].as_str().unwrap());
        assert_eq!(task["traceparent"], below, "the worker's own spans hang below the run");
    }
}

/// A collector that is none does not keep the server from its work; what is no address at all is a mistake.
async fn what_is_wrong_with_a_collector_is_said(server: &Server) {
    let directory = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}", directory.path().join("own.db").display());
    let serve = |endpoint: &str| {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--database", &database]).kill_on_drop(true);
        serve.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).stdout(Stdio::piped()).stderr(Stdio::piped());
        serve
    };
    let refused = serve("collector:4318").output().await.unwrap();
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && complaint.contains("OTEL_EXPORTER_OTLP_ENDPOINT must be"), "{complaint}");
    let mut node = serve("http://127.0.0.1:1").spawn().unwrap();
    let mut said = BufReader::new(node.stdout.take().unwrap()).lines();
    let url = said.next_line().await.unwrap().unwrap().split_whitespace().last().unwrap().to_owned();
    let submit = server.client.post(format!("{url}/v1/tasks")).json(&json!({"type": "mail"}));
    submit.send().await.unwrap().error_for_status().unwrap();
    let mut log = BufReader::new(node.stderr.take().unwrap()).lines();
    loop {
        let line = log.next_line().await.unwrap().expect("the log goes on");
        if line.contains("spans could not be sent") {
            assert!(line.to_lowercase().contains("connection refused"), "{line}");
            return;
        }
    }
}

/// That everything is there already is no news.
async fn a_start_on_a_schema_that_is_there_has_nothing_to_note(server: &Server) {
    let mut node = Command::new(env!("CARGO_BIN_EXE_taskwheel"))
        .args(["serve", "--listen", "127.0.0.1:0", "--database", &server.database.url])
        .env("TASKWHEEL_LOG", "info")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(node.stdout.take().unwrap()).lines();
    said.next_line().await.unwrap().expect("it starts");
    let pid = nix::unistd::Pid::from_raw(node.id().unwrap().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let mut log = String::new();
    node.stderr.take().unwrap().read_to_string(&mut log).await.unwrap();
    assert!(log.contains("stopping") && !log.contains("already exists"), "{log}");
}

async fn the_log_names_tasks_and_executions_as_json(server: &Server) {
    let directory = tempfile::tempdir().unwrap();
    let mut node = Command::new(env!("CARGO_BIN_EXE_taskwheel"))
        .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"])
        .args(["--database", &format!("sqlite://{}", directory.path().join("own.db").display())])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(node.stdout.take().unwrap()).lines();
    let url = said.next_line().await.unwrap().unwrap().split_whitespace().last().unwrap().to_owned();
    let call = async |path: &str, body: Value| {
        let answer = server.client.post(format!("{url}{path}")).json(&body).send().await.unwrap();
        answer.json::<Value>().await.unwrap()
    };
    call("/v1/tasks", json!({"type": "mail"})).await;
    let task = call("/v1/worker/claim", claim("w1", "mail")).await["tasks"][0].clone();
    let item = json!({"id": task["id"], "exec_id": task["exec_id"], "outcome": "error"});
    call("/v1/worker/report", json!({"items": [item]})).await;
    call("/v1/tasks", json!({"type": "slow", "timeout_ms": 1})).await;
    let slow = call("/v1/worker/claim", claim("w1", "slow")).await["tasks"][0].clone();
    let mut log = BufReader::new(node.stderr.take().unwrap()).lines();
    for (message, task, outcome) in [("an execution ended", task, "error"), ("a clock ran out", slow, "timeout")] {
        loop {
            let line = log.next_line().await.unwrap().expect("the log goes on");
            let line: Value = serde_json::from_str(&line).expect("each line is JSON");
            if line["message"] == message {
                assert_eq!(
                    (&line["task_id"], &line["exec_id"], &line["outcome"]),
                    (&task["id"], &task["exec_id"], &json!(outcome))
                );
                break;
            }
        }
    }
}

crate::facts![
    metrics_say_what_a_person_on_call_needs,
    metrics_count_what_goes_wrong_with_workers,
    no_crowd_of_lanes_or_types_hides_the_backlog_of_others,
    workers_that_went_silent_are_not_counted,
    a_trace_goes_with_the_task_to_its_worker,
];
crate::facts! { in postgres_alone on Postgres:
a_start_on_a_schema_that_is_there_has_nothing_to_note, one_trace_shows_submit_wait_and_run, metrics_show_connections_that_are_in_use }
crate::facts! { in mysql_alone on Mysql: metrics_show_connections_that_are_in_use }
crate::facts! { in sqlite_alone on Sqlite:
the_pages_name_metrics_that_exist, the_log_names_tasks_and_executions_as_json, what_is_wrong_with_a_collector_is_said }
