//! The page on operations: its service starts, and its alerts and its dashboard ask for what the server tells.

use crate::page::{page, require, texts};
use crate::support::{Dialect, Node, Server, claim, eventually};
use reqwest::Url;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

const PAGE: &str = "docs/operations.md";
const DASHBOARD: &str = "docs/grafana.json";

/// The words of PromQL that the expressions use, and what Prometheus itself adds to what it scrapes.
const PROMETHEUS: [&str; 11] =
    ["and", "by", "histogram_quantile", "increase", "job", "max", "min", "or", "rate", "sum", "up"];
/// How long a graceful end takes at most.
const STOP_SECONDS_MAX: u64 = 30;

/// The value of a setting of the service.
fn setting<'s>(service: &'s str, name: &str) -> &'s str {
    let found = service.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("the service has no {name}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_of_the_page_starts() {
    let services = texts(&page(PAGE), "ini");
    let [service] = services.as_slice() else { panic!("the page has {} services", services.len()) };
    for line in service.lines().filter(|line| !line.is_empty()) {
        assert!(line.contains('=') || (line.starts_with('[') && line.ends_with(']')), "systemd does not take {line}");
    }
    let words: Vec<_> = setting(service, "ExecStart").split(' ').collect();
    let ["/usr/local/bin/taskwheel", "serve", "--database", database, flags @ ..] = words.as_slice() else {
        panic!("the service runs {words:?}")
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let made_by_systemd = format!("/var/lib/{}", setting(service, "StateDirectory"));
    let here = database.replace(&made_by_systemd, &directory.path().to_string_lossy());
    assert_ne!(*database, here, "its database is in the directory that systemd makes for it");
    drop(Node::start_with(&here, flags, &[]).await);
    assert!(setting(service, "TimeoutStopSec").parse::<u64>().unwrap() > STOP_SECONDS_MAX, "it may end gracefully");
}

/// Runs a line of the page about backups on a database of ours.
async fn on_database(line: &str, server: &Server, directory: &Path) {
    if server.database.dialect == Dialect::Sqlite {
        require("sqlite3");
        let file = Path::new(server.database.url.trim_start_matches("sqlite://"));
        let line = line.replace("taskwheel.db", &file.file_name().unwrap().to_string_lossy());
        return bash(&line, server, file.parent().unwrap()).await;
    }
    let url = Url::parse(&server.database.url).expect("a database has a URL");
    let name = url.path().trim_start_matches('/');
    let [host, port] = [url.host_str().unwrap().to_owned(), url.port().unwrap().to_string()];
    let (user, password) = (url.username(), url.password().unwrap());
    let account = format!("[client]\nhost={host}\nport={port}\nuser={user}\npassword={password}\n");
    std::fs::write(directory.join(".my.cnf"), account).unwrap();
    let line = line.replace("mariadb taskwheel", &format!("mariadb {name}"));
    bash(&line.replace("--routines taskwheel", &format!("--routines {name}")), server, directory).await;
}

async fn bash(line: &str, server: &Server, directory: &Path) {
    let mut bash = Command::new("bash");
    bash.args(["-euc", line]).current_dir(directory).env("HOME", directory);
    let ran = bash.env("TASKWHEEL_DATABASE", &server.database.url).output().await.unwrap();
    assert!(ran.status.success(), "{line}: {ran:?}");
}

async fn a_backup_of_the_page_can_be_restored(dialect: Dialect, line: usize) {
    let blocks = texts(&page(PAGE), "bash");
    let [backup, restore] = blocks.as_slice() else { panic!("the page has {} blocks about backups", blocks.len()) };
    let line_of = |block: &str| block.lines().nth(line).expect("a line for each database").to_owned();
    let server = Server::start(dialect).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kept = server.submit(json!({"type": "mail"})).await;
    on_database(&line_of(backup), &server, directory.path()).await;
    let later = server.submit(json!({"type": "mail"})).await;
    server.signal(nix::sys::signal::Signal::SIGTERM);
    server.ended().await;
    on_database(&line_of(restore), &server, directory.path()).await;
    if dialect == Dialect::Sqlite {
        let file = Path::new(server.database.url.trim_start_matches("sqlite://"));
        for file in [file.to_owned(), file.with_file_name("copy.db")] {
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
        }
    }
    server.restart().await;
    assert_eq!(server.task(kept).await["status"], "New");
    assert_eq!(server.get(&format!("/v1/tasks/{later}")).await.status, 404, "it is as it was");
    let task = server.claim(claim("w", "mail")).await.remove(0);
    assert_eq!(server.report(&task, "success").await["state"], "accepted");
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_postgres_can_be_restored() {
    a_backup_of_the_page_can_be_restored(Dialect::Postgres, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_mariadb_can_be_restored() {
    a_backup_of_the_page_can_be_restored(Dialect::Mysql, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_sqlite_can_be_restored() {
    a_backup_of_the_page_can_be_restored(Dialect::Sqlite, 2).await;
}

/// The alerts, each as its keys and values. No more of YAML is read than the page needs.
fn alerts(block: &str) -> Vec<Vec<(String, String)>> {
    let rules = block.strip_prefix("groups:\n  - name: taskwheel\n    rules:\n").expect("it is one group of rules");
    let mut alerts: Vec<Vec<(String, String)>> = Vec::new();
    for line in rules.lines() {
        let line = line.split(" #").next().unwrap_or(line).trim_end();
        if line.starts_with("      - ") {
            alerts.push(Vec::new());
        }
        let alert = alerts.last_mut().expect("a rule begins with a dash");
        let inside = line.get("        ".len()..).expect("what belongs to a rule is indented");
        match inside.split_once(": ") {
            Some((key, value)) => alert.push((key.to_owned(), value.to_owned())),
            None => alert.last_mut().expect("a value goes on").1 += inside,
        }
    }
    alerts
}

/// What alerts and panels ask Prometheus.
fn expressions() -> Vec<String> {
    let blocks = texts(&page(PAGE), "yaml");
    let [scrape, rules] = blocks.as_slice() else { panic!("the page has {} blocks of YAML", blocks.len()) };
    assert!(scrape.contains("  - job_name: taskwheel\n"), "an alert goes by the name of the job");
    let mut expressions = Vec::new();
    for alert in alerts(rules) {
        let keys: Vec<_> = alert.iter().map(|(key, _)| key.as_str()).collect();
        assert!(["alert expr", "alert expr for"].contains(&keys.join(" ").as_str()), "{alert:?}");
        expressions.push(alert[1].1.clone());
    }
    let dashboard: Value = serde_json::from_str(&page(DASHBOARD)).expect("the dashboard is JSON");
    for panel in dashboard["panels"].as_array().expect("it has panels") {
        let targets = panel["targets"].as_array().expect("a panel asks for something");
        expressions.extend(targets.iter().map(|target| target["expr"].as_str().unwrap().to_owned()));
    }
    expressions
}

async fn metrics(server: &Server) -> String {
    server.get("/metrics").await.ok().as_str().expect("metrics are text").to_owned()
}

/// A task that nobody takes, and executions of each kind that an alert asks for.
async fn make_history(server: &Server) {
    server.submit(json!({"type": "left"})).await;
    let mut ask = claim("w", "mail");
    for outcome in ["error", "failure"] {
        server.submit(json!({"type": "mail"})).await;
        server.report(&server.claim(ask.clone()).await[0], outcome).await;
    }
    ask["wait_ms"] = json!(60_000);
    let submit = async {
        eventually("the claim waits", Duration::from_secs(30), async || {
            metrics(server).await.contains("\ntaskwheel_waiting_claims 1\n")
        })
        .await;
        server.submit(json!({"type": "mail", "timeout_ms": 1})).await;
    };
    tokio::join!(server.claim(ask), submit);
    eventually("its time limit runs out", Duration::from_secs(30), async || {
        metrics(server).await.contains("outcome=\"timeout\"")
    })
    .await;
}

/// Looks whether everything in an expression is told: metrics, labels and the values that labels shall have.
fn check(expression: &str, told: &str) {
    let parts: Vec<_> = expression.split('"').collect();
    let code = parts.iter().step_by(2).copied().collect::<Vec<_>>().concat();
    for (left, right) in [('(', ')'), ('[', ']'), ('{', '}')] {
        assert_eq!(code.matches(left).count(), code.matches(right).count(), "{left} and {right}: {expression}");
    }
    // What begins with a digit or a dollar is a number, a duration or a variable of the dashboard.
    let words = code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != '$');
    for word in words.filter(|word| word.starts_with(|letter: char| letter.is_ascii_lowercase())) {
        let is_told = [format!("\n{word}{{"), format!("\n{word} "), format!("{word}=\"")];
        let is_known = PROMETHEUS.contains(&word) || is_told.iter().any(|form| told.contains(form));
        assert!(is_known, "the server does not tell {word}: {expression}");
    }
    for pair in parts.chunks_exact(2) {
        let label = pair[0].rsplit(['{', ',']).next().unwrap_or_default().trim_end_matches(['=', '~']);
        for value in pair[1].split('|').filter(|_| label != "job") {
            assert!(told.contains(&format!("{label}=\"{value}\"")), "no {label} is {value}: {expression}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_and_panels_ask_for_what_the_server_tells() {
    let server = Server::start(Dialect::Sqlite).await;
    make_history(&server).await;
    let told = metrics(&server).await;
    let expressions = expressions();
    assert!(expressions.len() > 20, "alerts and panels: {expressions:?}");
    expressions.iter().for_each(|expression| check(expression, &told));
    server.end().await;
}
