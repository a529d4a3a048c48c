//! Tasks that many submit at once, one by one.

use crate::support::{Platform, in_time};
use serde_json::{Value, json};
use std::time::Duration;
use taskwheel_client::{Client, Error, NewTask, Submitted};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

async fn submits_at_once_are_each_kept_and_answered_with_their_own_id(platform: &Platform) {
    let submits: Vec<_> = (0..200).map(|number| submit(&platform.client, number)).collect();
    for (number, submitted) in submits.into_iter().enumerate() {
        let submitted = in_time("it is answered", submitted).await.unwrap().unwrap();
        assert!(submitted.created);
        let task = platform.client.get(submitted.id).await.unwrap();
        assert_eq!(task.payload, Some(json!(number)));
    }
}

async fn a_unique_key_that_many_submit_at_once_is_taken_once(platform: &Platform) {
    let submit = |_| {
        let client = platform.client.clone();
        tokio::spawn(async move { client.submit(NewTask::new("mail", &()).unique_key("only")).await.unwrap() })
    };
    let submits: Vec<_> = (0..50).map(submit).collect();
    let mut answers = Vec::new();
    for submit in submits {
        answers.push(in_time("it is answered", submit).await.unwrap());
    }
    assert_eq!(answers.iter().filter(|submitted| submitted.created).count(), 1);
    assert!(answers.iter().all(|submitted| submitted.id == answers[0].id), "{answers:?}");
}

crate::facts!(
    submits_at_once_are_each_kept_and_answered_with_their_own_id,
    a_unique_key_that_many_submit_at_once_is_taken_once,
);

fn submit(client: &Client, number: i64) -> JoinHandle<taskwheel_client::Result<Submitted>> {
    let client = client.clone();
    tokio::spawn(async move { client.submit(NewTask::new("mail", &number)).await })
}

/// A call that a server was made, which waits for its answer.
struct Call {
    stream: TcpStream,
    /// The payloads of its tasks.
    tasks: Vec<i64>,
    is_batch: bool,
}

impl Call {
    async fn answer(mut self, status: u16, body: &Value) {
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
        self.stream.write_all((head + &body).as_bytes()).await.unwrap();
    }

    /// Each task gets its payload as its id.
    async fn accept(self) {
        let item = |(index, id): (usize, &i64)| json!({"index": index, "id": id, "created": true});
        let body = if self.is_batch {
            json!({"items": self.tasks.iter().enumerate().map(item).collect::<Vec<_>>(), "errors": []})
        } else {
            json!({"id": self.tasks[0]})
        };
        self.answer(201, &body).await;
    }
}

/// A server whose calls are answered by the test.
async fn server() -> (Client, mpsc::UnboundedReceiver<Call>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::connect(format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
            let mut body = vec![0; length.parse().unwrap()];
            stream.read_exact(&mut body).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let is_batch = head.starts_with("post /v1/tasks/batch ");
            let tasks = if is_batch { body["tasks"].as_array().unwrap().clone() } else { vec![body] };
            let tasks = tasks.iter().map(|task| task["payload"].as_i64().unwrap()).collect();
            tell.send(Call { stream, tasks, is_batch }).unwrap();
        }
    });
    (client, told)
}

async fn next(calls: &mut mpsc::UnboundedReceiver<Call>) -> Call {
    in_time("a call comes", calls.recv()).await.unwrap()
}

/// Two calls under way, with the tasks 0 and 1, behind which others wait.
async fn two_under_way() -> (Client, mpsc::UnboundedReceiver<Call>, [Call; 2]) {
    let (client, mut calls) = server().await;
    submit(&client, 0);
    let first = next(&mut calls).await;
    submit(&client, 1);
    let second = next(&mut calls).await;
    assert_eq!((&first.tasks[..], &second.tasks[..]), (&[0][..], &[1][..]));
    assert!(!first.is_batch && !second.is_batch, "one that comes alone goes as one");
    (client, calls, [first, second])
}

/// Waits until tasks that were submitted are in the queue; on one thread a few turns are enough.
async fn settled() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_comes_while_calls_are_under_way_shares_the_next() {
    let (client, mut calls, under_way) = two_under_way().await;
    let submits: Vec<_> = (2..12).map(|number| submit(&client, number)).collect();
    settled().await;
    assert!(calls.try_recv().is_err(), "two calls are under way");
    for call in under_way {
        call.accept().await;
    }
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < 10 {
        let call = next(&mut calls).await;
        sizes.push(call.tasks.len());
        call.accept().await;
    }
    assert!(sizes.len() <= 3, "{sizes:?}");
    for (number, submitted) in (2..12).zip(submits) {
        assert_eq!(in_time("it is answered", submitted).await.unwrap().unwrap().id.0, number);
    }
}

#[tokio::test]
async fn what_one_is_refused_for_the_others_are_not() {
    let (client, mut calls, [first, second]) = two_under_way().await;
    let mut submits: Vec<_> = (2..5).map(|number| submit(&client, number)).collect();
    settled().await;
    first.accept().await;
    let refused = next(&mut calls).await;
    let refusal = json!({"detail": "no", "errors": [{"index": 0, "field": "type", "message": "not for you"}]});
    let mut left = refused.tasks.clone();
    assert!(refused.is_batch);
    refused.answer(422, &refusal).await;
    second.accept().await;
    while !left.is_empty() {
        let call = next(&mut calls).await;
        left.retain(|task| !call.tasks.contains(task));
        if call.tasks == [2] { call.answer(422, &refusal).await } else { call.accept().await }
    }
    let bad = in_time("it is answered", submits.remove(0)).await.unwrap();
    assert!(matches!(&bad, Err(Error::Invalid(fields)) if fields[0].message == "not for you"), "{bad:?}");
    // The last one may have gone with another call.
    tokio::spawn(async move {
        while let Some(call) = calls.recv().await {
            call.accept().await;
        }
    });
    for (number, submitted) in (3..5).zip(submits) {
        assert_eq!(in_time("it is answered", submitted).await.unwrap().unwrap().id.0, number);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_not_asked_for_each_task() {
    let (client, mut calls, [first, second]) = two_under_way().await;
    let submits: Vec<_> = (2..6).map(|number| submit(&client, number)).collect();
    settled().await;
    first.accept().await;
    second.accept().await;
    let busy = json!({"code": "unavailable", "detail": "too busy"});
    let mut asked = 0;
    let answers = async {
        let mut answers = Vec::new();
        for submitted in submits {
            answers.push(submitted.await.unwrap());
        }
        answers
    };
    let mut answers = std::pin::pin!(in_time("all are answered", answers));
    let answers = loop {
        tokio::select! {
            call = calls.recv() => {
                asked += 1;
                call.unwrap().answer(503, &busy).await;
            }
            answers = &mut answers => break answers,
        }
    };
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Unavailable(_)))), "{answers:?}");
    assert!(asked <= 4, "four tasks in two calls, and one of each by itself: {asked}");
}

#[tokio::test]
async fn what_is_not_known_of_a_call_nobody_is_told_and_nothing_is_sent_again() {
    let (client, mut calls, [first, second]) = two_under_way().await;
    let submits: Vec<_> = (2..4).map(|number| submit(&client, number)).collect();
    settled().await;
    first.accept().await;
    let broken = next(&mut calls).await;
    assert_eq!(broken.tasks, [2, 3]);
    drop(broken);
    for submitted in submits {
        let unknown = in_time("it is answered", submitted).await.unwrap();
        assert!(matches!(unknown, Err(Error::OutcomeUnknown(_))), "{unknown:?}");
    }
    second.accept().await;
    let last = submit(&client, 9);
    let call = next(&mut calls).await;
    assert_eq!(call.tasks, [9]);
    call.accept().await;
    in_time("it is answered", last).await.unwrap().unwrap();
}

#[tokio::test]
async fn who_goes_away_before_its_task_was_sent_takes_it_along() {
    let (client, mut calls, under_way) = two_under_way().await;
    let gone = tokio::time::timeout(Duration::from_millis(20), client.submit(NewTask::new("mail", &2))).await;
    assert!(gone.is_err(), "{gone:?}");
    let stays = submit(&client, 3);
    settled().await;
    for call in under_way {
        call.accept().await;
    }
    let call = next(&mut calls).await;
    assert_eq!(call.tasks, [3]);
    call.accept().await;
    in_time("it is answered", stays).await.unwrap().unwrap();
}
