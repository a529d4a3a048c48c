//! Callers that are slow hold nobody up. Time is the test's: it jumps to the next deadline when nothing else happens.

use std::sync::Arc;
use std::time::Duration;
use taskwheel_engine::{Engine, EngineOptions};
use taskwheel_store::Options;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

/// A server in this process, and a connection to it.
struct Called {
    stream: TcpStream,
    _stop: watch::Sender<bool>,
    _directory: TempDir,
}

async fn called() -> Called {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("tasks.db").display());
    let engine = Engine::start(taskwheel_store::open(Options::new(url)).await.unwrap(), EngineOptions::default());
    let listener = taskwheel_server::bind("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let address = listener.address().unwrap();
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(
        listener.serve(
            taskwheel_server::router(Arc::new(engine), taskwheel_server::Spans::default(), "UTC".into()),
            stopped,
        ),
    );
    Called { stream: TcpStream::connect(address).await.unwrap(), _stop: stop, _directory: directory }
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

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_and_no_longer_waited_for() {
    let mut called = called().await;
    let stream = &mut called.stream;
    let head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n";
    stream.write_all(head).await.unwrap();
    read_until(stream, "100 Continue").await;
    stream.write_all(b"{\"type\":").await.unwrap();
    tokio::time::pause();
    let asked = Instant::now();
    let answer = read_until(stream, "too_slow").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!((25..=31).contains(&asked.elapsed().as_secs()), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_its_connection() {
    let mut called = called().await;
    called.stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
    read_until(&mut called.stream, "\r\n\r\n").await;
    called.stream.write_all(b"GET /healthz HTTP/1.1\r\nHost:").await.unwrap();
    tokio::time::pause();
    let asked = Instant::now();
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(600), called.stream.read_to_end(&mut rest))
        .await
        .expect("the server closes it")
        .unwrap();
    assert!((70..=76).contains(&asked.elapsed().as_secs()), "{:?}", asked.elapsed());
}

/// The head of a call that is refused, for it comes from elsewhere.
fn refused(length: usize) -> String {
    format!("POST /v1/tasks HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: {length}\r\n\r\n")
}

#[tokio::test]
async fn a_refused_call_leaves_its_connection_to_the_next_one_where_its_body_is_small() {
    let mut called = called().await;
    let stream = &mut called.stream;
    for _ in 0..2 {
        stream.write_all(refused(15).as_bytes()).await.unwrap();
        // The answer could be given before the body is there.
        tokio::time::sleep(Duration::from_millis(100)).await;
        stream.write_all(b"{\"type\":\"mail\"}").await.unwrap();
        let answer = read_until(stream, "}").await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && !answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn a_call_that_is_refused_without_its_body_says_that_its_connection_ends() {
    let is_closed = async |head: &str, sent: usize| {
        let mut called = called().await;
        called.stream.write_all(head.as_bytes()).await.unwrap();
        called.stream.write_all(&vec![b' '; sent]).await.unwrap();
        let answer = read_until(&mut called.stream, "\r\n\r\n").await.to_lowercase();
        assert!(answer.starts_with("http/1.1 4"), "{answer}");
        answer.contains("connection: close")
    };
    assert!(is_closed(&refused(1_000_000), 0).await, "too much to read it for nothing");
    assert!(is_closed(&refused(15), 0).await, "it does not come");
    let asks = refused(15).replace("Host", "Expect: 100-continue\r\nHost");
    assert!(is_closed(&asks, 0).await, "it is not to come");
    let large = refused(17 * 1024 * 1024).replace("elsewhere", "localhost");
    assert!(is_closed(&large, 16 * 1024 * 1024 + 1).await, "the rest of what is too large");
}
