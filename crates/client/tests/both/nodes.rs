//! Several nodes, and what may be repeated on another one.

use crate::support::{Platform, in_time};
use serde_json::json;
use std::time::Duration;
use taskwheel_client::{Client, Error, Filter, NewTask, Status, TaskContext, TaskError, Worker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

fn echo(_: TaskContext, word: String) -> std::future::Ready<Result<String, TaskError>> {
    std::future::ready(Ok(word))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_answer_is_passed_over() {
    let platform = Platform::remote().await;
    // Nobody listens on a port that was just given back.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = Client::builder().server(format!("http://{gone}")).server(&platform.urls()[0]).build().unwrap();
    let submitted = client.submit(NewTask::new("echo", "hello")).await.unwrap();
    in_time("it works", Worker::new(&client).handle("echo", echo).run_until_idle()).await.unwrap();
    assert_eq!(client.get(submitted.id).await.unwrap().result, Some(json!("hello")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_goes_on_with_another_node_when_its_own_dies() {
    let platform = Platform::remote().await;
    let dying = platform.another_node().await;
    let client = Client::builder().server(&dying.url).server(&platform.urls()[0]).build().unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let patient = move |ctx: TaskContext, (): ()| {
        let tell = tell.clone();
        async move {
            let _ = tell.send("begins");
            ctx.checkpoint(&1)?;
            // Only the other node can answer this.
            ctx.save().await?;
            let _ = tell.send("is saved");
            Ok::<(), TaskError>(())
        }
    };
    let first = platform.submit(NewTask::new("patient", &())).await;
    let mut dying = Some(dying);
    let stop = async {
        assert_eq!(told.recv().await, Some("begins"));
        drop(dying.take());
        assert_eq!(told.recv().await, Some("is saved"));
        platform.task_when(first, |task| task.status == Status::Success).await;
        let second = platform.submit(NewTask::new("patient", &())).await;
        platform.task_when(second, |task| task.status == Status::Success).await;
    };
    let worker = Worker::new(&client).heartbeat(Duration::from_secs(1)).handle("patient", patient);
    in_time("it goes on", worker.run_until(stop)).await.unwrap();
}

#[tokio::test]
async fn a_token_is_sent_with_every_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::builder().server(url).token("sesame").build().unwrap();
    assert!(!format!("{:?}", Client::builder().token("sesame")).contains("sesame"), "no token in a log");
    let call = tokio::spawn(async move { client.types().await });
    let (mut stream, _) = in_time("it calls", listener.accept()).await.unwrap();
    let head = head(&mut stream).await;
    assert!(head.starts_with("get /v1/types http/1.1"), "{head}");
    assert!(head.contains("authorization: bearer sesame\r\n"), "{head}");
    let problem = r#"{"title":"Unauthorized","status":401,"detail":"no such token","code":"unauthorized"}"#;
    let answer = format!("HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n{problem}", problem.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
    let denied = in_time("it is answered", call).await.unwrap();
    assert!(matches!(&denied, Err(Error::Denied(detail)) if detail == "no such token"), "{denied:?}");
}

#[tokio::test]
async fn a_worker_whose_reports_are_refused_for_good_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::connect(format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let task = json!({"tasks": [{"id": 1, "exec_id": "01a1e21f-32af-7e2a-b0a1-c193ea1b0e96", "type": "echo", "payload": "a",
        "round": 1, "attempt": 1, "checkpoint": null, "run_at": "2026-01-31T12:00:00.000Z"}]});
    let refusal = json!({"detail": "no", "errors": [{"field": "items", "message": "I take none"}]});
    // A server that hands out a task and takes no report, one call for each connection.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (task, refusal) = (task.to_string(), refusal.to_string());
            tokio::spawn(async move {
                let head = head(&mut stream).await;
                let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
                stream.read_exact(&mut vec![0; length.parse().unwrap()]).await.unwrap();
                let (status, body) = if head.contains("/claim ") { (200, task) } else { (422, refusal) };
                let head =
                    format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                // The worker may have stopped to listen.
                let _ = stream.write_all((head + &body).as_bytes()).await;
            });
        }
    });
    let worker = Worker::new(&client).concurrency(1).queue(0).handle("echo", echo);
    let ended = in_time("it ends", worker.run_until(std::future::pending())).await;
    assert!(matches!(&ended, Err(Error::Invalid(fields)) if fields[0].message == "I take none"), "{ended:?}");
}

/// What a call begins with.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_may_have_happened_is_not_repeated() {
    let platform = Platform::remote().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broken = format!("http://{}", listener.local_addr().unwrap());
    // Takes each call, and breaks the connection instead of answering.
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            head(&mut stream).await;
        }
    });
    let client = || Client::builder().server(&broken).server(&platform.urls()[0]).build().unwrap();
    let plain = client().submit(NewTask::new("mail", &())).await;
    assert!(matches!(plain, Err(Error::OutcomeUnknown(_))), "{plain:?}");
    assert!(platform.client.list(Filter::of_type("mail")).await.unwrap().items.is_empty());
    // Where a second call finds what the first has done, the next node is asked.
    assert!(client().submit(NewTask::new("mail", &()).unique_key("u")).await.unwrap().created);
    assert!(client().submit_once("call", NewTask::new("mail", &())).await.unwrap().created);
    assert_eq!(client().list(Filter::of_type("mail")).await.unwrap().items.len(), 2);
}
