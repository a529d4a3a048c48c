//! The database goes away and comes back, while the server runs.

use crate::support::{Dialect, Node, OwnServer, call, claim, eventually};
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
