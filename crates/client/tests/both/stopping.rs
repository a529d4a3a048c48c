//! How a worker stops, and what it does while servers are away.

use crate::facts;
use crate::support::{Platform, in_time};
use serde_json::json;
use std::time::Duration;
use taskwheel_client::{Client, NewTask, Outcome, Status, TaskContext, TaskError, Worker};
use tokio::sync::mpsc;

async fn a_stopping_worker_lets_handlers_end_and_gives_back_the_rest(platform: &Platform) {
    let (tell, mut told) = mpsc::unbounded_channel();
    let orderly = move |ctx: TaskContext, (): ()| {
        let _ = tell.send(());
        async move {
            ctx.stopping().await;
            Ok::<_, TaskError>("ended in time")
        }
    };
    let submitted = platform.client.submit_batch((0..3).map(|_| NewTask::new("orderly", &()))).await.unwrap();
    let worker = platform.worker().concurrency(1).queue(8).handle("orderly", orderly);
    let stop = async {
        told.recv().await;
        // The others are in the queue once all are claimed.
        for one in &submitted {
            platform.task_when(one.id, |task| task.status == Status::Executing).await;
        }
    };
    in_time("it stops", worker.run_until(stop)).await.unwrap();
    let (first, rest) = submitted.split_first().unwrap();
    assert_eq!(platform.task(first.id).await.result, Some(json!("ended in time")));
    for one in rest {
        // At once, or later if the server handed it to the worker's last claim before it saw that nobody waits there.
        let task = platform.task_when(one.id, |task| task.status == Status::New).await;
        assert_eq!(task.attempts, 0, "given back, and the attempt does not count");
    }
}

async fn what_does_not_end_in_time_is_given_back_with_its_checkpoint(platform: &Platform) {
    let (tell, mut told) = mpsc::unbounded_channel();
    let endless = move |ctx: TaskContext, (): ()| {
        let tell = tell.clone();
        async move {
            ctx.checkpoint(&json!({"row": 42}))?;
            let _ = tell.send(());
            std::future::pending::<()>().await;
            Ok::<(), TaskError>(())
        }
    };
    let id = platform.submit(NewTask::new("endless", &())).await;
    // No interval comes, so that the end of the worker alone can have saved it.
    let worker = Worker::new(&platform.client).grace(Duration::ZERO).save_every(Duration::from_secs(3_600));
    let worker = worker.heartbeat(Duration::from_secs(3_600)).handle("endless", endless);
    let stop = async { assert!(told.recv().await.is_some()) };
    in_time("it stops", worker.run_until(stop)).await.unwrap();
    let task = platform.task(id).await;
    assert_eq!(task.checkpoint, Some(json!({"row": 42})));
    assert_eq!(task.attempts_log[0].outcome, Some(Outcome::Release));
}

facts! {
    a_stopping_worker_lets_handlers_end_and_gives_back_the_rest,
    what_does_not_end_in_time_is_given_back_with_its_checkpoint,
}

fn echo(_: TaskContext, word: String) -> std::future::Ready<Result<String, TaskError>> {
    std::future::ready(Ok(word))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_answer_is_passed_over() {
    let platform = Platform::remote().await;
    // Nobody listens on a port that was just given back.
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = Client::builder().server(url).token("sesame").build().unwrap();
    assert!(!format!("{:?}", Client::builder().token("sesame")).contains("sesame"), "no token in a log");
    let call = tokio::spawn(async move { client.types().await });
    let (mut stream, _) = in_time("it calls", listener.accept()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    assert!(head.starts_with("get /v1/types http/1.1"), "{head}");
    assert!(head.contains("authorization: bearer sesame\r\n"), "{head}");
    let problem = r#"{"title":"Unauthorized","status":401,"detail":"no such token","code":"unauthorized"}"#;
    let answer = format!("HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n{problem}", problem.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
    let denied = in_time("it is answered", call).await.unwrap();
    assert!(matches!(&denied, Err(taskwheel_client::Error::Denied(detail)) if detail == "no such token"), "{denied:?}");
}
