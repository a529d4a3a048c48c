//! `taskwheel work` and a connection that hangs: a report is taken and never answered.

use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

const IN_TIME: Duration = Duration::from_secs(30);

/// A call as it came in: its path and its body.
type Call = (String, Value);

async fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Call> {
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let before = head.len();
        if stream.read_line(&mut head).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = head[before..].to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let path = head.split(' ').nth(1).unwrap().to_owned();
    Ok((path, serde_json::from_slice(&body).unwrap()))
}

/// Hands out one task, never answers its report, and tells of every call.
async fn answer(stream: TcpStream, calls: UnboundedSender<Call>) {
    let mut stream = BufReader::new(stream);
    while let Ok((path, body)) = read(&mut stream).await {
        let answer = match path.as_str() {
            "/v1/worker/claim" => json!({"tasks": [{"id": 7, "exec_id": "a", "type": "mail", "attempt": 1}]}),
            "/v1/worker/renew" => json!({"items": [{"id": 7, "state": "ok"}]}),
            _ => Value::Null,
        };
        let _ = calls.send((path, body));
        if answer.is_null() {
            std::future::pending::<()>().await;
        }
        let answer = answer.to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
        stream.write_all((head + &answer).as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn a_task_that_has_ended_is_named_until_its_report_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, mut calls) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, sender.clone()));
        }
    });
    let line = ["work", "--server", &url, "--type", "mail", "--concurrency", "1", "--heartbeat", "50ms", "--", "true"];
    let mut worker = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
    let _worker = worker.args(line).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let mut next = async |wanted: &str| loop {
        let call = tokio::time::timeout(IN_TIME, calls.recv()).await.expect("it calls").expect("the server runs");
        if call.0 == wanted {
            return call.1;
        }
    };
    assert_eq!(next("/v1/worker/report").await["items"][0]["outcome"], "success");
    for _ in 0..3 {
        assert_eq!(next("/v1/worker/renew").await["items"], json!([{"id": 7, "exec_id": "a"}]));
    }
}
