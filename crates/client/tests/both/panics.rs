//! Handlers that panic where nobody looks for it: when they are dropped.

use crate::facts;
use crate::support::{Platform, in_time};
use std::panic::panic_any;
use std::time::Duration;
use taskwheel_client::{NewTask, Outcome, Status, TaskContext, TaskError};
use tokio::sync::mpsc;

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a bomb is dropped");
    }
}

async fn echo(_: TaskContext, word: String) -> Result<String, TaskError> {
    Ok(word)
}

/// Tells when it runs, and waits for ever with a bomb.
async fn carry(tell: mpsc::UnboundedSender<()>) -> Result<(), TaskError> {
    let _bomb = Bomb;
    let _ = tell.send(());
    std::future::pending::<()>().await;
    Ok(())
}

async fn a_cancelled_handler_that_panics_frees_its_slot(platform: &Platform) {
    let id = platform.submit(NewTask::new("carry", &())).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let worker = platform.attentive_worker().concurrency(1).queue(0).grace(Duration::ZERO);
    let worker = worker.handle("carry", move |_, (): ()| carry(tell.clone())).handle("echo", echo);
    let stop = async {
        assert_eq!(told.recv().await, Some(()));
        platform.client.cancel(id).await.unwrap();
        let next = platform.submit(NewTask::new("echo", "next")).await;
        platform.task_when(next, |task| task.status == Status::Success).await;
    };
    in_time("its slot goes on", worker.run_until(stop)).await.unwrap();
    assert_eq!(platform.task(id).await.status, Status::Cancelled);
}

async fn a_handler_that_panics_when_the_worker_stops_is_given_back(platform: &Platform) {
    let id = platform.submit(NewTask::new("carry", &())).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let worker = platform.worker().concurrency(1).queue(0).grace(Duration::ZERO);
    let worker = worker.handle("carry", move |_, (): ()| carry(tell.clone()));
    in_time("it stops", worker.run_until(async { assert!(told.recv().await.is_some()) })).await.unwrap();
    assert_eq!(platform.task(id).await.attempts_log[0].outcome, Some(Outcome::Release));
}

async fn what_panics_at_the_end_is_an_error_of_its_task_alone(platform: &Platform) {
    let orders = ["a bomb", "a panic with a bomb", "nothing"];
    let submitted = platform.client.submit_batch(orders.map(|order| NewTask::new("carry", order))).await.unwrap();
    let carry = async |_: TaskContext, order: String| {
        let _bomb = (order == "a bomb").then(|| Bomb);
        if order == "a panic with a bomb" {
            panic_any(Bomb);
        }
        Ok::<_, TaskError>(order)
    };
    let worker = platform.worker().concurrency(1).handle("carry", carry);
    in_time("all are done", worker.run_until_idle()).await.unwrap();
    let mut ends = Vec::new();
    for one in submitted {
        let task = platform.task(one.id).await;
        ends.push((task.status, task.error_info.unwrap_or_default()));
    }
    let panicked = |why: &str| (Status::Error, format!("the handler panicked: {why}"));
    assert_eq!(ends, [panicked("a bomb is dropped"), panicked("it says not why"), (Status::Success, String::new())]);
}

facts! {
    a_cancelled_handler_that_panics_frees_its_slot,
    a_handler_that_panics_when_the_worker_stops_is_given_back,
    what_panics_at_the_end_is_an_error_of_its_task_alone,
}
