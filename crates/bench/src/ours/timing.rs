//! Timing: how long until a handler runs, from the submit of a task when nothing else goes on, and from the time that a delayed
//! one was due.
//!
//! Every task carries the time that it is measured from, by the clock of this machine.

use super::site::Site;
use super::{CONCURRENCY, TYPE};
use crate::common::clock::now_exact_ms as now;
use crate::floor::Result;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;
use taskwheel_client::{NewTask, TaskContext, Worker};
use tokio::sync::mpsc;

/// The first ones open connections and prepare statements.
const WARM_UP: usize = 20;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(30);
/// From the submit of delayed tasks until the first is due.
const LEAD_MS: f64 = 4_000.0;
/// Tasks get so long after the last was due.
const REST_MAX: Duration = Duration::from_secs(60);
const BATCH: usize = 1_000;

/// Tasks one by one, with pauses of random length between them: how long each took to run, in milliseconds.
pub(super) async fn latency(site: &Site, jobs: usize) -> Result<Value> {
    let (mut ran, worker) = work(site);
    let submit = async {
        for _ in 0..jobs + WARM_UP {
            let share = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
            tokio::time::sleep(PAUSE_MIN + (PAUSE_MAX - PAUSE_MIN).mul_f64(share)).await;
            site.client.submit(NewTask::new(TYPE, &now())).await?;
        }
        Result::Ok(())
    };
    let (waits, submitted) = tokio::join!(receive(&mut ran, jobs + WARM_UP, Duration::ZERO), submit);
    submitted?;
    worker.abort();
    let waits: Vec<f64> = waits?.into_iter().skip(WARM_UP).map(|(from, at)| at - from).collect();
    Ok(json!({ "done": waits.len(), "ms": waits }))
}

/// Tasks that fall due one by one: how late each ran, in milliseconds, in the order that they were due.
pub(super) async fn delayed(site: &Site, jobs: usize, seconds: f64) -> Result<Value> {
    let (mut ran, worker) = work(site);
    let (first, step) = (now() + LEAD_MS, seconds * 1_000.0 / jobs as f64);
    let due: Vec<f64> = (0..jobs).map(|number| (first + number as f64 * step).floor()).collect();
    for batch in due.chunks(BATCH) {
        let tasks =
            batch.iter().map(|due| Ok(NewTask::new(TYPE, due).run_at(Timestamp::from_millisecond(*due as i64)?)));
        site.client.submit_batch(tasks.collect::<Result<Vec<_>>>()?).await?;
    }
    if now() > first {
        return Err("the first task was due before the last was submitted".into());
    }
    let mut ran = receive(&mut ran, jobs, Duration::from_secs_f64(seconds)).await?;
    worker.abort();
    ran.sort_by(|one, other| one.0.total_cmp(&other.0));
    let late: Vec<f64> = ran.into_iter().map(|(due, at)| at - due).collect();
    Ok(json!({ "done": late.len(), "ms": late }))
}

type Ran = (f64, f64);

/// A worker in this process. Each task gives the time that it carries, and the time that it ran.
fn work(site: &Site) -> (mpsc::UnboundedReceiver<Ran>, tokio::task::JoinHandle<()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let handler = move |_: TaskContext, from: f64| {
        // Nobody listens any more at the end.
        let _ = sender.send((from, now()));
        std::future::ready(taskwheel_client::Result::<()>::Ok(()))
    };
    let worker = Worker::new(&site.client).handle(TYPE, handler).concurrency(CONCURRENCY).queue(0).host("bench");
    (receiver, tokio::spawn(async move { drop(worker.run_until(std::future::pending()).await) }))
}

async fn receive(ran: &mut mpsc::UnboundedReceiver<Ran>, jobs: usize, last_due: Duration) -> Result<Vec<Ran>> {
    let mut all = Vec::new();
    let take = async {
        while all.len() < jobs {
            all.push(ran.recv().await.ok_or("the worker has gone")?);
        }
        Result::Ok(())
    };
    let most = last_due + REST_MAX + Duration::from_secs_f64(LEAD_MS / 1_000.0);
    match tokio::time::timeout(most, take).await {
        Ok(taken) => taken.map(|()| all),
        Err(_) => Err(format!("{} of {jobs} tasks ran", all.len()).into()),
    }
}
