//! How a worker stops.

use crate::facts;
use crate::support::{Platform, in_time};
use serde_json::json;
use std::time::Duration;
use taskwheel_client::{NewTask, Outcome, Status, TaskContext, TaskError, Worker};
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
