//! The database goes away and comes back, while the server runs.

use crate::access::token;
use crate::support::{Dialect, Node, OwnServer, Server, call, claim, eventually};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

async fn the_server_outlives_its_database(dialect: Dialect) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut database = OwnServer::start(dialect).await;
    let node = Node::start(&database.url()).await;
    let client = Client::new();
    let post = async |path: &str, body: Value| call(&client, &node.url, Method::POST, path, Some(&body)).await;
    let ready = async || call(&client, &node.url, Method::GET, "/readyz", None).await.status;
    assert_eq!(ready().await, StatusCode::OK);

    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let (client, url, stop) = (client.clone(), node.url.clone(), stop.clone());
        callers.spawn(async move {
            let (mut acknowledged, mut refused) = (Vec::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                let answer = call(&client, &url, Method::POST, "/v1/tasks", Some(&json!({"type": "mail"}))).await;
                match answer.status {
                    StatusCode::CREATED => acknowledged.push(answer.body["id"].as_i64().unwrap()),
                    // The answer reads the task again, which may fail after it was stored.
                    StatusCode::SERVICE_UNAVAILABLE => refused += 1,
                    status => panic!("{status}: {}", answer.body),
                }
            }
            (acknowledged, refused)
        });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    database.kill();
    eventually("it says that it is not ready", Duration::from_secs(30), async || {
        ready().await == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    database.restart().await;
    eventually("it is ready again, by itself", Duration::from_secs(30), async || ready().await == StatusCode::OK).await;
    eventually("it takes tasks again", Duration::from_secs(30), async || {
        post("/v1/tasks", json!({"type": "other"})).await.status == StatusCode::CREATED
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let answers = callers.join_all().await;
    assert!(answers.iter().any(|(_, refused)| *refused > 0), "callers were told");
    let mut there = HashSet::new();
    loop {
        let mut request = claim("w", "mail");
        request["max"] = json!(1000);
        let tasks = post("/v1/worker/claim", request).await.ok()["tasks"].as_array().unwrap().clone();
        if tasks.is_empty() {
            break;
        }
        there.extend(tasks.iter().map(|task| task["id"].as_i64().unwrap()));
    }
    let lost = answers.iter().flat_map(|(acknowledged, _)| acknowledged).filter(|id| !there.contains(id)).count();
    assert_eq!(lost, 0, "what was acknowledged is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_outlives_a_kill_of_postgres() {
    the_server_outlives_its_database(Dialect::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_outlives_a_kill_of_mariadb() {
    the_server_outlives_its_database(Dialect::Mysql).await;
}

/// Who is on call must be able to see it: by a token, which cannot be looked up then.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_say_that_the_database_is_away() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut database = OwnServer::start(Dialect::Postgres).await;
    let node = Node::start(&database.url()).await;
    let client = Client::new();
    let made = tokio::process::Command::new(env!("CARGO_BIN_EXE_taskwheel"))
        .args(["tokens", "create", "--role", "viewer", "--json", "--database", &database.url()])
        .output()
        .await
        .unwrap();
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let token = made["token"].as_str().unwrap();
    let unseen = Node::start(&database.url()).await;
    let get_at = async |node: &Node, path: &str, token: &str| {
        let answer = client.get(format!("{}{path}", node.url)).bearer_auth(token).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let get = async |path: &str, token: &str| get_at(&node, path, token).await;
    let (status, page) = get("/metrics", token).await;
    assert!(status.is_success() && page.contains("\ntaskwheel_ready 1\n"), "{status}: {page}");
    assert!(page.contains("\ntaskwheel_workers 0\n"), "{page}");

    database.kill();
    eventually("it says so, and leaves out what nobody knows", Duration::from_secs(30), async || {
        let (status, page) = get("/metrics", token).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        page.contains("\ntaskwheel_ready 0\n") && !page.contains("taskwheel_workers")
    })
    .await;
    assert_eq!(get("/v1/tasks", token).await.0, StatusCode::SERVICE_UNAVAILABLE, "no other call goes by what was so");
    eventually("a first scrape is told too", Duration::from_secs(30), async || {
        let (status, page) = get_at(&unseen, "/metrics", token).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        page.contains("\ntaskwheel_ready 0\n")
    })
    .await;
    let (_, page) = get_at(&unseen, "/metrics", token).await;
    assert_eq!(page.lines().count(), 3, "and no more to whom nobody knows: {page}");
    let wrong = format!("{token}x");
    assert_eq!(get("/metrics", &wrong).await.0, StatusCode::UNAUTHORIZED, "a wrong token is none, even then");

    database.restart().await;
    eventually("all is told again", Duration::from_secs(30), async || {
        get("/metrics", token).await.1.contains("\ntaskwheel_workers 0\n")
    })
    .await;
}

/// A database that hangs does not say so: nothing fails, everything waits.
async fn a_database_that_hangs_is_away_too(server: &Server) {
    let viewer = token(server, &["--role", "viewer"]).await;
    let scrape = async || {
        let request = server.client.get(format!("{}/metrics", server.url())).bearer_auth(&viewer);
        let answer = request.timeout(Duration::from_secs(10)).send().await.expect("a scrape waits for ten seconds");
        answer.error_for_status().unwrap().text().await.unwrap()
    };
    assert!(scrape().await.contains("\ntaskwheel_ready 1\n"));
    let mut raw = server.database.raw().await;
    raw.run("BEGIN").await;
    raw.run("LOCK TABLE task_timer, task_token, task_waiting IN ACCESS EXCLUSIVE MODE").await;
    eventually("it is not ready", Duration::from_secs(60), async || {
        let page = scrape().await;
        page.contains("\ntaskwheel_ready 0\n") && !page.contains("taskwheel_workers")
    })
    .await;
    assert_eq!(server.get("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
    raw.run("ROLLBACK").await;
    eventually("it is ready again", Duration::from_secs(60), async || {
        scrape().await.contains("\ntaskwheel_ready 1\n") && server.get("/readyz").await.status == StatusCode::OK
    })
    .await;
}

crate::facts! { in postgres_alone on Postgres: a_database_that_hangs_is_away_too }
