//! The worker's life: it works, then it stops in steps.
//!
//! | step | what happens | it ends |
//! |---|---|---|
//! | working | all loops run | when it is told to, when nothing is left to do, or at an error that no later call can mend |
//! | stopping | nothing is claimed, what waits is given back, handlers go on | when all have ended, or after the grace period |
//! | dropping | handlers are dropped where they wait, and given back with their checkpoints | when all have ended, or soon |
//! | reporting | the last reports are sent | when all are answered, or after the grace period, but not too soon |
//!
//! Heartbeats go on through all of them. Whoever drops the worker's future ends all of it at once: what was in hand is given to
//! others when its lease runs out.

use super::{Shop, claim, renew, report, slot};
use crate::backend::HURRIED_ANSWER_TIME_MAX;
use crate::error::{Error, Result};
use crate::handler::TaskError;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long dropped handlers may take, and the last reports at least.
const LAST_STEP_TIME_MAX: Duration = Duration::from_secs(5);

/// Works until it is told to stop. `now` ends the grace period.
pub(super) async fn run(shop: Arc<Shop>, stop: impl Future<Output = ()>, now: impl Future<Output = ()>) -> Result<()> {
    let (mut slots, mut calls, mut reports) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    for _ in 0..shop.settings.concurrency {
        slots.spawn(slot::run(shop.clone()));
    }
    for number in 0..claim::CLAIMS_MAX {
        calls.spawn(claim::run(shop.clone(), number == 0));
    }
    for _ in 0..report::REPORTS_MAX {
        reports.spawn(report::run(shop.clone()));
    }
    let mut heartbeat = JoinSet::new();
    heartbeat.spawn(renew::run(shop.clone()));

    let mut now = pin!(now);
    let mut is_now = false;
    let outcome = tokio::select! {
        () = stop => Ok(()),
        outcome = ended(&mut calls) => outcome,
        outcome = ended(&mut heartbeat) => outcome,
        outcome = ended(&mut reports) => outcome,
        // None does while the worker works, unless it dies.
        outcome = ended(&mut slots) => outcome,
        () = &mut now => {
            is_now = true;
            Ok(())
        }
    };
    // A claim that is answered all the same is given back by the server, since nobody names its tasks.
    calls.shutdown().await;
    // A server that has not seen yet that the claim is gone could hand it what is given back now, and would find out only after
    // three heartbeats. With this call it has had the time.
    let time_max = HURRIED_ANSWER_TIME_MAX.min(shop.settings.heartbeat);
    let _ = timeout(LAST_STEP_TIME_MAX, renew::renew(&shop, shop.hands.all(|_| true), time_max)).await;
    shop.hands.stop(|execution| slot::report(execution, Err(TaskError::release())));
    let grace_over = async {
        if !is_now {
            let _ = timeout(shop.settings.grace, now).await;
        }
    };
    end(&shop, slots, reports, grace_over).await;
    outcome
}

/// Lets handlers and reports end.
async fn end(
    shop: &Shop,
    mut slots: JoinSet<Result<()>>,
    mut reports: JoinSet<Result<()>>,
    grace_over: impl Future<Output = ()>,
) {
    let mut grace_over = pin!(grace_over);
    let in_time = tokio::select! {
        biased;
        () = all_ended(&mut slots) => true,
        () = &mut grace_over => false,
    };
    if !in_time {
        tracing::warn!(tasks = shop.hands.count(), "handlers are dropped, and their tasks given back");
        shop.hands.all(|_| true).iter().for_each(|execution| execution.abort());
        // One that blocks its thread cannot be dropped.
        let _ = timeout(LAST_STEP_TIME_MAX, all_ended(&mut slots)).await;
    }
    // Handlers that ended early leave the rest of the grace period to their reports.
    let grace_left = async {
        if in_time {
            grace_over.await;
        }
    };
    tokio::select! {
        () = shop.hands.empty() => {}
        // Refused for good: nobody is left to send the rest.
        () = all_ended(&mut reports) => {}
        () = last_reports_time(grace_left) => {}
    }
    if shop.hands.count() > 0 {
        tracing::warn!(tasks = shop.hands.count(), "not everything could be reported; it is run again");
    }
}

/// Waits for as long as the last reports may take.
async fn last_reports_time(grace_left: impl Future<Output = ()>) {
    tokio::join!(grace_left, sleep(LAST_STEP_TIME_MAX));
}

async fn all_ended<T: 'static>(loops: &mut JoinSet<T>) {
    while loops.join_next().await.is_some() {}
}

/// How the first of some loops ended.
async fn ended(loops: &mut JoinSet<Result<()>>) -> Result<()> {
    match loops.join_next().await {
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => Err(Error::Unexpected(format!("a loop of the worker ended: {error}"))),
        None => Ok(()),
    }
}

/// SIGTERM and Ctrl-C.
pub(super) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Signals> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let terminate = signal(SignalKind::terminate());
            Ok(Signals { terminate: terminate.map_err(|error| Error::Unexpected(error.to_string()))? })
        }
        #[cfg(not(unix))]
        Ok(Signals {})
    }

    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// The machine's name.
pub(super) fn host_name() -> String {
    #[cfg(unix)]
    let name = nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned());
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").ok();
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".into());
    name.chars().take(taskwheel_model::limits::NAME_CHARS_MAX).collect()
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use super::*;
    use crate::handler::Running;
    use crate::worker::Until;
    use crate::{Client, NewTask, TaskContext, Worker};
    use tokio::sync::watch;
    use tokio::time::Instant;

    #[tokio::test]
    async fn a_second_signal_ends_the_grace_period() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("tasks.db").display());
        let client = Client::embedded(url).await.unwrap();
        let id = client.submit(NewTask::new("deaf", &())).await.unwrap().id;
        let (step, steps) = watch::channel("waits");
        let deaf = move |ctx: TaskContext, (): ()| {
            let step = step.clone();
            async move {
                step.send_replace("runs");
                ctx.stopping().await;
                step.send_replace("is to stop");
                std::future::pending::<()>().await;
                Ok::<(), TaskError>(())
            }
        };
        let worker = Worker::new(&client).grace(Duration::from_secs(3_600)).handle("deaf", deaf);
        let once = |wanted| {
            let mut steps = steps.clone();
            async move { drop(steps.wait_for(|step| *step == wanted).await) }
        };
        let work = worker.work(Until::Told, once("runs"), once("is to stop"));
        timeout(Duration::from_secs(60), work).await.expect("it does not wait an hour").unwrap();
        let task = client.get(id).await.unwrap();
        assert_eq!(task.attempts_log[0].outcome, Some(crate::Outcome::Release));
    }

    #[tokio::test]
    async fn a_worker_ends_when_a_slot_dies() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("tasks.db").display());
        let client = Client::embedded(url).await.unwrap();
        client.submit(NewTask::new("dead", &())).await.unwrap();
        let mut worker = Worker::new(&client).concurrency(2).grace(Duration::ZERO);
        // No handler of an application can do this: theirs are caught.
        let dead = |_: TaskContext| -> Running {
            // From here on waiting takes no time.
            tokio::time::pause();
            panic!("the slot dies")
        };
        worker.handlers.insert("dead".into(), Arc::new(dead));
        let ended = timeout(Duration::from_secs(3_600), worker.run_until(std::future::pending())).await;
        let Ok(Err(Error::Unexpected(words))) = ended else { panic!("{ended:?}") };
        assert!(words.contains("the slot dies"), "{words}");
    }

    #[tokio::test(start_paused = true)]
    async fn reports_have_what_is_left_of_the_grace_period() {
        let time = async |left: u64| {
            let begin = Instant::now();
            last_reports_time(sleep(Duration::from_secs(left))).await;
            begin.elapsed().as_secs()
        };
        assert_eq!((time(0).await, time(20).await), (LAST_STEP_TIME_MAX.as_secs(), 20));
    }
}
