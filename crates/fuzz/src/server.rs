//! A server in this process, on a database of its own, that answers one request after the other.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_engine::{Engine, EngineOptions};
use taskwheel_store::Options;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// After so many requests there is a new database, so that the last ones are answered as fast as the first.
const REQUESTS_MAX: usize = 5_000;
/// Whoever is not answered within this time never is. It takes a slow machine to need a second.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A claim may wait for a minute. Its caller does not.
const PATIENCE: Duration = Duration::from_millis(50);

struct Server {
    router: Router,
    runtime: Runtime,
    requests: usize,
    _directory: TempDir,
}

thread_local! {
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
}

impl Server {
    fn start() -> Server {
        let directory = tempfile::tempdir().expect("there is room for a database");
        let url = format!("sqlite://{}", directory.path().join("tasks.db").display());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let router = runtime.block_on(async {
            let store = taskwheel_store::open(Options::new(url)).await.expect("the database opens");
            let engine = Engine::start(store, EngineOptions::default());
            taskwheel_server::router(Arc::new(engine), taskwheel_server::Spans::default(), "UTC".to_owned())
        });
        Server { router, runtime, requests: 0, _directory: directory }
    }
}

/// Takes a new database where the old one has seen enough. Never in the middle of an input.
pub(crate) fn refresh() {
    SERVER.with_borrow_mut(|kept| kept.take_if(|server| server.requests >= REQUESTS_MAX));
}

/// The status and the body of the answer to a request.
///
/// # Panics
/// When there is no answer, the server says that it is at fault, or an error has not the shape that every error has.
pub(crate) fn ask(request: Request<Body>) -> (StatusCode, Vec<u8>) {
    answer(ANSWER_MAX, request)
}

/// Asks what may take as long as it likes, and goes away soon. What is answered until then is looked at.
pub(crate) fn ask_briefly(request: Request<Body>) {
    within(PATIENCE, request);
}

fn answer(at_most: Duration, request: Request<Body>) -> (StatusCode, Vec<u8>) {
    let asked = format!("{} {}", request.method(), request.uri());
    within(at_most, request).unwrap_or_else(|| panic!("{asked} was not answered within {at_most:?}"))
}

fn within(patience: Duration, request: Request<Body>) -> Option<(StatusCode, Vec<u8>)> {
    let asked = format!("{} {}", request.method(), request.uri());
    let has_body = request.method() != Method::HEAD;
    let (status, body) = SERVER.with_borrow_mut(|kept| {
        let server = kept.get_or_insert_with(Server::start);
        server.requests += 1;
        server.runtime.block_on(async {
            let answered = async {
                let answer = server.router.clone().oneshot(request).await.expect("a router always answers");
                let status = answer.status();
                let body = answer.into_body().collect().await.expect("a body is there").to_bytes();
                (status, body.to_vec())
            };
            tokio::time::timeout(patience, answered).await.ok()
        })
    })?;
    let text = String::from_utf8_lossy(&body);
    assert!(!status.is_server_error(), "{asked} was answered {status}: {text}");
    if status.is_client_error() && has_body {
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("an error is JSON");
        let is_told = problem["title"].is_string() || problem["msg"].is_string();
        assert!(is_told, "{asked} was answered {status} without a reason: {text}");
    }
    Some((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "POST /v1/worker/claim was not answered within 50ms")]
    fn what_is_not_answered_in_time_is_a_fault() {
        let claim = r#"{"worker_id": "w", "host": "h", "types": ["t"], "wait_ms": 60000}"#;
        let request = Request::post("/v1/worker/claim").body(Body::from(claim)).expect("the request is a good one");
        answer(PATIENCE, request);
    }
}
