//! More calls than the server takes at once.

use crate::support::{Dialect, Server, eventually};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use reqwest::StatusCode;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// As many as the server has under way at once.
const CALLS_MAX: usize = 4_096;
const IN_TIME: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_call_too_many_is_told_to_come_again() {
    // Each call is a connection. The server raises its own limit.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let server = Server::start(Dialect::Sqlite).await;
    let address = server.url().replace("http://", "");
    let mut calls = Vec::new();
    for _ in 0..CALLS_MAX {
        // A call whose body has not come yet is under way, and costs nobody anything.
        let mut call = TcpStream::connect(&address).await.unwrap();
        call.write_all(b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n").await.unwrap();
        calls.push(call);
    }
    let healthz = async || server.client.get(format!("{}/healthz", server.url())).send().await.unwrap();
    eventually("a call is turned away", IN_TIME, async || healthz().await.status() == StatusCode::TOO_MANY_REQUESTS)
        .await;
    let refused = healthz().await;
    let after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    drop(calls);
    eventually("calls are taken again", IN_TIME, async || healthz().await.status() == StatusCode::OK).await;
    server.end().await;
}
