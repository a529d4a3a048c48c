//! A node that hangs: it takes connections, and never answers.

use crate::support::{Platform, in_time};
use std::time::Duration;
use taskwheel_client::{Client, ClientBuilder, Error, Filter, NewTask, Status, TaskContext, TaskError, Worker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Long enough for a node that does answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);

fn mail() -> NewTask {
    NewTask::new("mail", &())
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

fn two_nodes(first: &str, platform: &Platform) -> ClientBuilder {
    Client::builder().server(first).server(&platform.urls()[0])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submit_goes_on_with_the_next_node() {
    let platform = Platform::remote().await;
    let (_hung, url) = listen().await;
    let client = two_nodes(&url, &platform).answer_time(ANSWER_TIME).build().unwrap();
    let submitted = in_time("it is submitted", client.submit(mail())).await.unwrap();
    assert!(submitted.created);
    assert_eq!(platform.task(submitted.id).await.status, Status::New);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_repeats_nothing_leaves_it_too() {
    let platform = Platform::remote().await;
    let (_hung, url) = listen().await;
    let client = two_nodes(&url, &platform).answer_time(ANSWER_TIME).build().unwrap();
    let unknown = in_time("it gives up", client.submit_batch([mail(), mail()])).await;
    assert!(matches!(unknown, Err(Error::OutcomeUnknown(_))), "{unknown:?}");
    assert!(platform.client.list(Filter::of_type("mail")).await.unwrap().items.is_empty());
    let submitted = client.submit_batch([mail(), mail()]).await.unwrap();
    assert_eq!(submitted.iter().filter(|one| one.created).count(), 2);
}

/// A node before another one, which hangs with each such call of a worker and passes on all else. It tells when it does.
async fn deaf_to(verb: &str, platform: &Platform) -> (String, mpsc::UnboundedReceiver<()>) {
    let (listener, url) = listen().await;
    let behind = platform.urls()[0].replace("http://", "");
    let ignored = format!("POST /v1/worker/{verb} ");
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let node = TcpStream::connect(&behind).await.unwrap();
            tokio::spawn(pass_on(stream, node, ignored.clone(), tell.clone()));
        }
    });
    (url, told)
}

async fn pass_on(
    mut stream: TcpStream,
    mut node: TcpStream,
    ignored: String,
    tell: mpsc::UnboundedSender<()>,
) -> std::io::Result<()> {
    let (mut asked, mut answered) = ([0; 16_384], [0; 16_384]);
    loop {
        tokio::select! {
            read = stream.read(&mut asked) => {
                let call = &asked[..read?];
                if call.is_empty() {
                    return Ok(());
                }
                if call.starts_with(ignored.as_bytes()) {
                    let _ = tell.send(());
                    std::future::pending::<()>().await;
                }
                node.write_all(call).await?;
            }
            read = node.read(&mut answered) => stream.write_all(&answered[..read?]).await?,
        }
    }
}

fn done(_: TaskContext, (): ()) -> std::future::Ready<Result<(), TaskError>> {
    std::future::ready(Ok(()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_goes_on_with_the_next_node() {
    let platform = Platform::remote().await;
    let (url, _told) = deaf_to("report", &platform).await;
    let client = two_nodes(&url, &platform).answer_time(ANSWER_TIME).build().unwrap();
    let id = platform.submit(mail()).await;
    let stop = async { drop(platform.task_when(id, |task| task.status == Status::Success).await) };
    in_time("it is reported", Worker::new(&client).handle("mail", done).run_until(stop)).await.unwrap();
    assert_eq!(platform.task(id).await.attempts_log.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_does_not_wait_for_progress_that_cannot_be_saved() {
    let platform = Platform::remote().await;
    let (url, mut told) = deaf_to("renew", &platform).await;
    let client = Client::connect(&url).unwrap();
    let id = platform.submit(mail()).await;
    let tell = async |ctx: TaskContext, (): ()| {
        ctx.progress((10, 10));
        Ok::<(), TaskError>(())
    };
    let stop = async { drop(platform.task_when(id, |task| task.status == Status::Success).await) };
    // No heartbeat and no interval comes.
    let (worker, never) = (Worker::new(&client), Duration::from_secs(600));
    let worker = worker.heartbeat(never).save_every(never).handle("mail", tell);
    in_time("it is reported", worker.run_until(stop)).await.unwrap();
    assert!(told.try_recv().is_ok(), "it was tried");
    assert_eq!(platform.task(id).await.progress, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_does_not_wait_for_it() {
    let platform = Platform::remote().await;
    let (url, mut told) = deaf_to("report", &platform).await;
    // So patient that the next node would be asked too late.
    let client = two_nodes(&url, &platform).answer_time(Duration::from_secs(3_600)).build().unwrap();
    let id = platform.submit(mail()).await;
    let stop = async { assert!(told.recv().await.is_some()) };
    let worker = Worker::new(&client).grace(Duration::ZERO).heartbeat(Duration::from_secs(600)).handle("mail", done);
    in_time("it stops", worker.run_until(stop)).await.unwrap();
    assert_eq!(platform.task(id).await.status, Status::Success);
}
