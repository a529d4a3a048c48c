//! More calls than the server takes at once, and more claims than may wait.

use crate::support::{Dialect, Server, claim, eventually};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use reqwest::StatusCode;
use serde_json::json;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// As many as the server has under way at once.
const CALLS_MAX: usize = 4_096;
/// As many claims as may wait at once.
const WAITING_MAX: usize = 4_096;
const IN_TIME: Duration = Duration::from_secs(60);

/// A server, and room for many connections to it: the server raises its own limit.
async fn server() -> Server {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    Server::start(Dialect::Sqlite).await
}

/// Begins calls, each on a connection of its own, and waits for no answer.
async fn begin(server: &Server, calls: usize, request: &str) -> Vec<TcpStream> {
    let address = server.url().replace("http://", "");
    let mut begun = Vec::new();
    for _ in 0..calls {
        let mut call = TcpStream::connect(&address).await.unwrap();
        call.write_all(request.as_bytes()).await.unwrap();
        begun.push(call);
    }
    begun
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_too_many_is_told_to_come_again() {
    let server = server().await;
    // A call whose body has not come yet is under way, and costs nobody anything.
    let without_body = "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
    let calls = begin(&server, CALLS_MAX + 100, without_body).await;
    let get = async |path: &str| server.client.get(format!("{}{path}", server.url())).send().await.unwrap();
    eventually("a call is turned away", IN_TIME, async || {
        get("/v1/types").await.status() == StatusCode::TOO_MANY_REQUESTS
    })
    .await;
    let refused = get("/v1/types").await;
    let after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    for probe in ["/healthz", "/readyz"] {
        assert_eq!(get(probe).await.status(), StatusCode::OK, "{probe} is answered however full the server is");
    }
    drop(calls);
    eventually("calls are taken again", IN_TIME, async || get("/v1/types").await.status() == StatusCode::OK).await;
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_wait_keep_no_other_calls_out() {
    let server = server().await;
    let mut patient = claim("w", "mail");
    patient["wait_ms"] = json!(60_000);
    let (body, head) = (patient.to_string(), "POST /v1/worker/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length:");
    let waiting = begin(&server, WAITING_MAX, &format!("{head} {}\r\n\r\n{body}", body.len())).await;
    eventually("they wait", IN_TIME, async || {
        let answer = server.get("/metrics").await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        answer.body.as_str().unwrap().contains(&format!("\ntaskwheel_waiting_claims {WAITING_MAX}\n"))
    })
    .await;
    let refused = server.post("/v1/worker/claim", patient.clone()).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "one too many does not wait: {}", refused.body);
    patient["types"] = json!(["fax"]);
    let id = server.submit(json!({"type": "fax"})).await;
    assert_eq!(server.claim(patient).await[0]["id"], id, "but it gets what is there");
    drop(waiting);
    server.end().await;
}
