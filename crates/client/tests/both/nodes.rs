//! Several nodes, and what may be repeated on another one.

use crate::support::{Platform, in_time};
use serde_json::{Value, json};
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
async fn a_certificate_that_is_not_trusted_is_named() {
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&certificate, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let client = |url: String| Client::connect(url).unwrap();
    // A client settles how it is encrypted, for both.
    drop(client("https://127.0.0.1".into()));
    let tls = taskwheel_server::tls(&certificate, &key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(format!("https://{}", listener.local_addr().unwrap()));
    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        tls.accept(stream).await.is_ok()
    };
    let (called, is_trusted) = tokio::join!(client.types(), serving);
    let Err(Error::Unavailable(words)) = called else { panic!("{called:?}") };
    assert!(words.contains("is not trusted: ") && words.contains("SSL_CERT_FILE"), "{words}");
    assert!(!is_trusted && !words.contains("no server answers"), "{words}");
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

/// A node that hands out tasks and refuses reports, one call for each connection. It tells what it was called with.
async fn refusing(status: u16, refusal: Value) -> (Client, mpsc::UnboundedReceiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::connect(format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let task = json!({"tasks": [{"id": 1, "exec_id": "01a1e21f-32af-7e2a-b0a1-c193ea1b0e96", "tenant": "default",
        "type": "echo", "payload": "a", "round": 1, "attempt": 1, "checkpoint": null,
        "run_at": "2026-01-31T12:00:00.000Z"}]});
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (task, refusal, tell) = (task.to_string(), refusal.to_string(), tell.clone());
            tokio::spawn(async move {
                let head = head(&mut stream).await;
                let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
                let mut call = vec![0; length.parse().unwrap()];
                stream.read_exact(&mut call).await.unwrap();
                let _ = tell.send(serde_json::from_slice(&call).unwrap());
                let (status, body) = if head.contains("/claim ") { (200, task) } else { (status, refusal) };
                let head =
                    format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                // The worker may have stopped to listen.
                let _ = stream.write_all((head + &body).as_bytes()).await;
            });
        }
    });
    (client, told)
}

#[tokio::test]
async fn a_worker_whose_reports_are_refused_for_good_ends() {
    let refusal = json!({"detail": "no", "errors": [{"field": "items", "message": "I take none"}]});
    let (client, _told) = refusing(422, refusal).await;
    let worker = Worker::new(&client).concurrency(1).queue(0).handle("echo", echo);
    let ended = in_time("it ends", worker.run_until(std::future::pending())).await;
    assert!(matches!(&ended, Err(Error::Invalid(fields)) if fields[0].message == "I take none"), "{ended:?}");
}

#[tokio::test]
async fn a_refusal_of_the_worker_makes_no_error_of_its_results() {
    let (client, mut told) = refusing(403, json!({"detail": "not you"})).await;
    let worker = Worker::new(&client).concurrency(1).queue(0).handle("echo", echo);
    let ended = in_time("it ends", worker.run_until(std::future::pending())).await;
    assert!(matches!(&ended, Err(Error::Denied(_))), "{ended:?}");
    let mut outcomes = Vec::new();
    while let Ok(call) = told.try_recv() {
        outcomes.extend(call.pointer("/items/0/outcome").cloned());
    }
    assert!(!outcomes.is_empty() && outcomes.iter().all(|outcome| outcome == "success"), "{outcomes:?}");
}

/// What a call begins with.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// A node that takes each call, and breaks the connection instead of answering. Where there is one behind it, that one
/// has done it then.
async fn broken(behind: Option<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let Some(behind) = &behind else {
                head(&mut stream).await;
                continue;
            };
            let mut node = TcpStream::connect(behind).await.unwrap();
            let mut call = vec![0; 16_384];
            let bytes = stream.read(&mut call).await.unwrap();
            node.write_all(&call[..bytes]).await.unwrap();
            assert!(node.read(&mut call).await.unwrap() > 0, "it is done when it is answered");
        }
    });
    url
}

fn mail() -> NewTask {
    NewTask::new("mail", &())
}

/// Clients that call a node that breaks, and then one that does not.
fn clients(broken: String, platform: &Platform) -> impl Fn() -> Client {
    let whole = platform.urls()[0].clone();
    move || Client::builder().server(&broken).server(&whole).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_that_may_have_happened_is_not_repeated() {
    let platform = Platform::remote().await;
    let client = clients(broken(None).await, &platform);
    let batch = client().submit_batch([mail().unique_key("a"), mail().unique_key("b")]).await;
    assert!(matches!(batch, Err(Error::OutcomeUnknown(_))), "{batch:?}");
    assert!(platform.client.list(Filter::of_type("mail")).await.unwrap().items.is_empty());
    // Where the next node knows by a key what has been done, it is asked.
    assert!(client().submit(mail()).await.unwrap().created);
    assert!(client().submit_once("call", mail()).await.unwrap().created);
    assert_eq!(client().list(Filter::of_type("mail")).await.unwrap().items.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_on_a_second_node_finds_what_the_first_has_done() {
    let platform = Platform::remote().await;
    let client = clients(broken(Some(platform.urls()[0].replace("http://", ""))).await, &platform);
    let delayed = NewTask::new("mail", &json!({"to": "a@b.c", "copies": [1, 2]})).delay(Duration::from_secs(60));
    for task in [mail(), mail().unique_key("u"), delayed] {
        let submitted = client().submit(task).await.unwrap();
        assert!(submitted.created, "by this very call");
        let found = platform.client.list(Filter::of_type("mail").live()).await.unwrap().items;
        assert_eq!(found.iter().map(|task| task.id).collect::<Vec<_>>(), [submitted.id]);
        platform.client.cancel(submitted.id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_start_a_task_twice_is_not_repeated() {
    let platform = Platform::remote().await;
    let client = clients(broken(None).await, &platform);
    let id = platform.submit(mail().delay(Duration::from_secs(3_600))).await;
    let waiting = platform.task(id).await;
    let unknown = client().run_now(id).await;
    assert!(matches!(unknown, Err(Error::OutcomeUnknown(_))), "{unknown:?}");
    assert_eq!(platform.task(id).await.run_at, waiting.run_at);
    assert_eq!(client().cancel(id).await.unwrap().status, Status::Cancelled, "a second time changes nothing");
    let unknown = client().retry(id).await;
    assert!(matches!(unknown, Err(Error::OutcomeUnknown(_))), "{unknown:?}");
    assert_eq!(platform.task(id).await.status, Status::Cancelled);
}
