//! The HTTP API, asked by way of the router: lists, every other call, and checkpoints.

use crate::server::{ask, ask_briefly};
use axum::body::Body;
use axum::http::{Method, Request, Uri};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Everything that reads a query.
const LISTS: [&str; 8] = [
    "/v1/tasks",
    "/v1/runs",
    "/v1/schedules",
    "/v1/schedules/1/runs",
    "/v1/schedules/1/next",
    "/v1/stats",
    "/v1/audit",
    "/v1/workers",
];

/// The only call that may take long.
const CLAIM: &str = "/v1/worker/claim";

/// A query, tried on every list.
pub(crate) fn listing(bytes: &[u8]) {
    let Ok(query) = std::str::from_utf8(bytes) else { return };
    for path in LISTS {
        let Ok(uri) = format!("{path}?{query}").parse::<Uri>() else { return };
        ask(Request::get(uri).body(Body::empty()).expect("the request is a good one"));
    }
}

/// A whole request, as on the wire: method and path, headers, an empty line, the body.
pub(crate) fn call(bytes: &[u8]) {
    let split = bytes.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = split.map_or((bytes, &[][..]), |at| (&bytes[..at], &bytes[at + 2..]));
    let Ok(head) = std::str::from_utf8(head) else { return };
    let mut lines = head.lines();
    let Some((method, path)) = lines.next().and_then(|line| line.split_once(' ')) else { return };
    let (Ok(method), Ok(uri)) = (method.parse::<Method>(), path.parse::<Uri>()) else { return };
    let may_wait = method == Method::POST && uri.path() == CLAIM && waits(body);
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    match request.body(Body::from(body.to_vec())) {
        Ok(request) if may_wait => ask_briefly(request),
        Ok(request) => drop(ask(request)),
        Err(_) => {}
    }
}

/// Whether a claim of these words waits where there is nothing for it.
fn waits(body: &[u8]) -> bool {
    let claim: Option<Value> = serde_json::from_slice(body).ok();
    claim.is_some_and(|claim| claim["wait_ms"].as_i64().is_some_and(|wait_ms| wait_ms > 0))
}

#[derive(Deserialize)]
struct Claimed {
    tasks: Vec<Task>,
}

/// A task in a worker's hands. Its checkpoint may have numbers that no machine has, so it is kept as it is written.
#[derive(Deserialize)]
struct Task {
    id: i64,
    exec_id: String,
    checkpoint: Option<Box<RawValue>>,
}

impl Task {
    fn claim() -> Task {
        let claim = json!({"worker_id": "w", "host": "h", "types": ["checkpointed"]});
        let claimed: Option<Claimed> = post(CLAIM, claim.to_string().into_bytes());
        claimed.and_then(|mut claimed| claimed.tasks.pop()).expect("what waits is handed out")
    }

    fn report(self, outcome: &str) {
        let report = json!({"items": [{"id": self.id, "exec_id": self.exec_id, "outcome": outcome}]});
        post::<IgnoredAny>("/v1/worker/report", report.to_string().into_bytes()).expect("a report is taken");
    }
}

fn post<T: DeserializeOwned>(path: &str, body: Vec<u8>) -> Option<T> {
    let request = Request::post(path).body(Body::from(body)).expect("the request is a good one");
    let (status, body) = ask(request);
    status.is_success().then(|| serde_json::from_slice(&body).expect("an answer is JSON"))
}

/// A checkpoint, saved as it is by an execution that is then given back: the next one gets the same.
pub(crate) fn checkpoint(bytes: &[u8]) {
    let submit = json!({"type": "checkpointed"}).to_string();
    post::<IgnoredAny>("/v1/tasks", submit.into_bytes()).expect("a submit is taken");
    let task = Task::claim();
    let head = format!(r#"{{"worker_id":"w","items":[{{"id":{},"exec_id":"{}","checkpoint":"#, task.id, task.exec_id);
    let saved: Option<Value> = post("/v1/worker/renew", [head.as_bytes(), bytes, b"}]}"].concat());
    task.report("release");
    let next = Task::claim();
    // The bytes may have closed the item and begun others; only a plain value has one meaning. Null saves nothing.
    let sent = serde_json::from_slice::<&RawValue>(bytes).ok().filter(|sent| sent.get() != "null");
    if let (Some(saved), Some(sent)) = (saved, sent) {
        assert_eq!(saved["items"][0]["state"], "ok", "an execution that lives is kept");
        assert_eq!(next.checkpoint.as_deref().map(RawValue::get), Some(sent.get()), "what was saved comes back");
    }
    next.report("success");
}

#[cfg(test)]
mod tests {
    use super::waits;

    #[test]
    fn only_a_claim_that_says_so_may_wait() {
        assert!(waits(br#"{"worker_id": "w", "wait_ms": 1}"#));
        for claim in
            [&br#"{"worker_id": "w", "wait_ms": 0}"#[..], br#"{"worker_id": "w"}"#, br#"{"wait_ms": "1"}"#, b"{", b""]
        {
            assert!(!waits(claim), "{}", String::from_utf8_lossy(claim));
        }
    }
}
