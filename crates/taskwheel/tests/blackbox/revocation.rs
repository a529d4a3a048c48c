//! A token that is revoked in the middle of a call.

use crate::access::{command, get, post, token};
use crate::support::{Server, claim, eventually};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const IN_TIME: Duration = Duration::from_secs(20);

/// Makes a token and answers its number too.
async fn made(server: &Server, role: &str) -> (String, String) {
    let made = command(server, &["tokens", "create", "--role", role]).await;
    (made["id"].to_string(), made["token"].as_str().unwrap().to_owned())
}

/// Reads up to here.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.contains(end) {
        let mut bytes = [0; 1_024];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "it was closed after {text:?}");
        text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    text
}

async fn a_call_whose_token_is_revoked_before_its_body_has_come_does_nothing(server: &Server) {
    let (id, operator) = made(server, "operator").await;
    let (first, rest) = (r#"{"type": "#, r#""mail"}"#);
    let mut call = TcpStream::connect(server.url().replace("http://", "")).await.unwrap();
    let head = format!(
        "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {operator}\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        first.len() + rest.len()
    );
    call.write_all(head.as_bytes()).await.unwrap();
    read_until(&mut call, "100 Continue").await;
    call.write_all(first.as_bytes()).await.unwrap();
    command(server, &["tokens", "revoke", &id]).await;
    eventually("it is refused", IN_TIME, async || get(server, &operator, "/v1/tasks").await.status == 401).await;
    call.write_all(rest.as_bytes()).await.unwrap();
    let answer = read_until(&mut call, "}").await;
    assert!(answer.contains("HTTP/1.1 401 "), "{answer}");
    assert!(server.database.raw().await.rows("SELECT id FROM task").await.is_empty(), "nothing was stored");
}

/// How many tasks an action on many has cancelled, and how many it says it has.
async fn cancelled(server: &Server) -> (usize, Value) {
    let both = "SELECT (SELECT count(*) FROM task_history), detail FROM task_audit WHERE action = 'task.bulk'";
    let Some(mut row) = server.database.raw().await.rows(both).await.pop() else { return (0, Value::Null) };
    let detail: Value = serde_json::from_str(&row.pop().flatten().unwrap()).unwrap();
    (row.pop().flatten().unwrap().parse().unwrap(), detail["changed"].clone())
}

async fn an_action_on_many_ends_with_its_token(server: &Server) {
    const CHUNK: usize = 1_000;
    let (id, operator) = made(server, "operator").await;
    let tasks = json!({"tasks": vec![json!({"type": "mail"}); 3 * CHUNK]});
    post(server, &operator, "/v1/tasks/batch", tasks).await.ok();
    // A task of the second chunk is somebody else's for a while, and the action waits for it.
    let mut holder = server.database.raw().await;
    let second = format!("SELECT id FROM task_waiting ORDER BY id LIMIT 1 OFFSET {}", CHUNK + CHUNK / 2);
    let held = holder.rows(&second).await.remove(0).remove(0).unwrap();
    holder.run("BEGIN").await;
    holder.run(&format!("SELECT id FROM task_waiting WHERE id = {held} FOR UPDATE")).await;
    let revoke = async {
        eventually("the first chunk is done", IN_TIME, async || cancelled(server).await.0 == CHUNK).await;
        command(server, &["tokens", "revoke", &id]).await;
    };
    let bulk = json!({"filter": {}, "all": true, "action": "cancel"});
    let (answer, ()) = tokio::join!(post(server, &operator, "/v1/tasks/bulk", bulk), revoke);
    assert_eq!(answer.status, 401, "{}", answer.body);
    holder.run("ROLLBACK").await;
    // What the database was at goes on; nothing begins after it.
    let two = (2 * CHUNK, json!(2 * CHUNK));
    eventually("what was done is in the log", IN_TIME, async || cancelled(server).await == two).await;
}

/// Who was let in before there were tokens is nobody afterwards.
async fn a_claim_that_waits_without_a_token_ends_with_the_first_token(server: &Server) {
    let mut waiting = claim("w1", "mail");
    waiting["wait_ms"] = json!(30_000);
    let close = async {
        eventually("the claim waits", IN_TIME, async || {
            let page = server.get("/metrics").await.ok();
            page.as_str().unwrap().contains("taskwheel_waiting_claims 1\n")
        })
        .await;
        token(server, &["--role", "admin"]).await;
    };
    let (answer, ()) = tokio::join!(server.post("/v1/worker/claim", waiting), close);
    assert_eq!(answer.status, 401, "{}", answer.body);
}

crate::facts![
    a_call_whose_token_is_revoked_before_its_body_has_come_does_nothing,
    a_claim_that_waits_without_a_token_ends_with_the_first_token,
];
// Here one row of the second chunk can be held without holding up the first.
crate::facts! { in postgres_alone on Postgres: an_action_on_many_ends_with_its_token }
