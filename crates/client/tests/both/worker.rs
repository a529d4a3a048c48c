//! What a worker does with handlers.

use crate::facts;
use crate::support::{Platform, in_time};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use taskwheel_client::{
    Error, Filter, Listing, NewTask, Outcome, Progress, Status, TaskContext, TaskError, TypeSettings,
};
use tokio::sync::{Barrier, mpsc};

/// Ends as its payload says.
async fn obey(ctx: TaskContext, order: String) -> Result<String, TaskError> {
    match order.as_str() {
        "succeed" => Ok(format!("attempt {} of task {}", ctx.attempt(), ctx.task_id())),
        "err" => Err("it went wrong".into()),
        "fail" => Err(TaskError::fail("never again")),
        "retry" if ctx.attempt() == 1 => Err(TaskError::retry_after(Duration::ZERO).because("not yet")),
        "retry" => Ok("at last".into()),
        "panic" => panic!("an order to panic"),
        other => Err(TaskError::new(format_args!("no such order: {other}"))),
    }
}

async fn a_task_ends_as_its_handler_says(platform: &Platform) {
    let orders = ["succeed", "err", "fail", "retry", "panic"];
    let submitted = platform.client.submit_batch(orders.map(|order| NewTask::new("obey", order))).await.unwrap();
    let unreadable = platform.submit(NewTask::new("obey", &json!({"not": "a word"}))).await;
    platform.worker().handle("obey", obey).run_until_idle().await.unwrap();

    let task = async |place: usize| platform.task(submitted[place].id).await;
    let succeeded = task(0).await;
    assert_eq!(succeeded.status, Status::Success);
    assert_eq!(succeeded.result_as::<String>().unwrap(), format!("attempt 1 of task {}", succeeded.id));
    assert_eq!(succeeded.attempts_log[0].outcome, Some(Outcome::Success));
    let erred = task(1).await;
    assert_eq!((erred.status, erred.error_info.as_deref()), (Status::Error, Some("it went wrong")));
    let failed = task(2).await;
    assert_eq!((failed.status, failed.error_info.as_deref()), (Status::Failure, Some("never again")));
    let retried = task(3).await;
    assert_eq!((retried.status, retried.attempts, retried.error_count), (Status::Success, 2, 0));
    let panicked = task(4).await;
    assert_eq!(panicked.error_info.as_deref(), Some("the handler panicked: an order to panic"));
    assert_eq!(panicked.status, Status::Error);
    let unreadable = platform.task(unreadable).await;
    assert!(unreadable.error_info.unwrap().starts_with("the payload is not what the handler takes"));
}

async fn a_result_that_cannot_be_stored_fails_its_task_alone(platform: &Platform) {
    let client = &platform.client;
    let submitted = client.submit_batch([10, 300_000, 10].map(|size| NewTask::new("fill", &size))).await.unwrap();
    let fill = async |_: TaskContext, size: usize| Ok::<_, TaskError>("x".repeat(size));
    platform.worker().handle("fill", fill).run_until_idle().await.unwrap();
    let mut statuses = Vec::new();
    for one in submitted {
        statuses.push(platform.task(one.id).await.status);
    }
    assert_eq!(statuses, [Status::Success, Status::Failure, Status::Success]);
}

async fn as_many_handlers_run_at_once_as_allowed(platform: &Platform) {
    const AT_ONCE: usize = 3;
    platform.client.submit_batch((0..4 * AT_ONCE).map(|_| NewTask::new("meet", &()))).await.unwrap();
    // Three at a time can pass it: fewer would wait for ever.
    let barrier = Arc::new(Barrier::new(AT_ONCE));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = most.clone();
    let meet = move |_: TaskContext, (): ()| {
        let (barrier, running, most) = (barrier.clone(), running.clone(), counted.clone());
        async move {
            most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            barrier.wait().await;
            running.fetch_sub(1, SeqCst);
            Ok::<(), TaskError>(())
        }
    };
    let worker = platform.worker().concurrency(AT_ONCE).handle("meet", meet);
    in_time("they meet", worker.run_until_idle()).await.unwrap();
    assert_eq!(most.load(SeqCst), AT_ONCE);
}

async fn a_worker_holds_no_more_than_runs_and_waits(platform: &Platform) {
    const TASKS: usize = 40;
    const HELD: usize = 2 + 3;
    platform.client.submit_batch((0..TASKS).map(|_| NewTask::new("hold", &()))).await.unwrap();
    let hold = async |ctx: TaskContext, ()| {
        ctx.stopping().await;
        Ok::<(), TaskError>(())
    };
    let done = async |_: TaskContext, ()| Ok::<(), TaskError>(());
    let of = async |status| {
        let listing = Listing { limit: 500, ..Filter::of_type("hold").status(status).into() };
        platform.client.list(listing).await.unwrap().items.len()
    };
    let stop = async {
        while of(Status::Executing).await < HELD {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Another one is left all the rest.
        platform.worker().handle("hold", done).run_until_idle().await.unwrap();
        assert_eq!((of(Status::Executing).await, of(Status::Success).await), (HELD, TASKS - HELD));
    };
    let worker = platform.worker().concurrency(2).queue(3).handle("hold", hold);
    in_time("they are held", worker.run_until(stop)).await.unwrap();
}

async fn a_flood_is_drained_without_loss(platform: &Platform) {
    const TASKS: usize = 2_500;
    platform.client.submit_batch((0..TASKS).map(|n| NewTask::new("count", &n))).await.unwrap();
    let sum = Arc::new(AtomicUsize::new(0));
    let counted = sum.clone();
    let count = move |_: TaskContext, number: usize| {
        counted.fetch_add(number, SeqCst);
        async { Ok::<(), TaskError>(()) }
    };
    let worker = platform.worker().handle("count", count).concurrency(8).queue(200);
    in_time("all are done", worker.run_until_idle()).await.unwrap();
    assert_eq!(sum.load(SeqCst), (0..TASKS).sum::<usize>(), "each ran once");
    let mut listing = Listing { limit: 500, ..Filter::of_type("count").status(Status::Success).into() };
    let mut found = 0;
    loop {
        let page = platform.client.list(listing.clone()).await.unwrap();
        found += page.items.len();
        listing.cursor = page.next_cursor;
        if listing.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, TASKS);
}

async fn a_waiting_worker_gets_what_comes(platform: &Platform) {
    let (seen, mut sees) = mpsc::unbounded_channel();
    let tell = move |_: TaskContext, number: u32| {
        let _ = seen.send(number);
        async { Ok::<(), TaskError>(()) }
    };
    let worker = platform.worker().handle("tell", tell);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    for number in 0..3 {
        platform.submit(NewTask::new("tell", &number)).await;
        assert_eq!(in_time("it comes", sees.recv()).await, Some(number));
    }
    stop.send(()).unwrap();
    in_time("it stops", running).await.unwrap().unwrap();
}

/// Tells when it begins and when it is told to stop.
async fn patient(ctx: TaskContext, tell: mpsc::UnboundedSender<&'static str>) -> Result<&'static str, TaskError> {
    let _ = tell.send("begins");
    ctx.cancelled().await;
    let _ = tell.send("is cancelled");
    Ok("too late")
}

async fn a_cancelled_task_is_told_so_and_its_result_is_dropped(platform: &Platform) {
    let id = platform.submit(NewTask::new("patient", &())).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let worker = platform.attentive_worker().handle("patient", move |ctx, (): ()| patient(ctx, tell.clone()));
    let stop = async {
        assert_eq!(told.recv().await, Some("begins"));
        platform.client.cancel(id).await.unwrap();
        assert_eq!(told.recv().await, Some("is cancelled"));
    };
    in_time("it is told", worker.run_until(stop)).await.unwrap();
    let task = platform.task(id).await;
    assert_eq!((task.status, task.result), (Status::Cancelled, None));
}

async fn a_task_beyond_its_time_limit_is_told_so(platform: &Platform) {
    let task = NewTask::new("patient", &()).timeout(Duration::from_millis(50)).max_attempts(1);
    let id = platform.submit(task).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let worker = platform.attentive_worker().handle("patient", move |ctx, (): ()| patient(ctx, tell.clone()));
    let stop = async {
        assert_eq!(told.recv().await, Some("begins"));
        assert_eq!(told.recv().await, Some("is cancelled"));
    };
    in_time("it is told", worker.run_until(stop)).await.unwrap();
    let task = platform.task(id).await;
    assert_eq!((task.status, task.attempts_log[0].outcome), (Status::Failure, Some(Outcome::Timeout)));
}

async fn a_handler_that_ignores_its_cancelling_is_dropped(platform: &Platform) {
    struct Tell(mpsc::UnboundedSender<&'static str>);
    impl Drop for Tell {
        fn drop(&mut self) {
            let _ = self.0.send("is dropped");
        }
    }
    let id = platform.submit(NewTask::new("deaf", &())).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let deaf = move |_: TaskContext, (): ()| {
        let tell = Tell(tell.clone());
        async move {
            let _ = tell.0.send("begins");
            std::future::pending::<()>().await;
            Ok::<(), TaskError>(())
        }
    };
    // Its only slot is free again for the next task.
    let worker = platform.attentive_worker().concurrency(1).queue(0).grace(Duration::ZERO);
    let worker = worker.handle("deaf", deaf).handle("obey", obey);
    let stop = async {
        assert_eq!(told.recv().await, Some("begins"));
        platform.client.cancel(id).await.unwrap();
        assert_eq!(told.recv().await, Some("is dropped"));
        let next = platform.submit(NewTask::new("obey", "succeed")).await;
        platform.task_when(next, |task| task.status == Status::Success).await;
    };
    in_time("it is dropped", worker.run_until(stop)).await.unwrap();
    assert_eq!(platform.task(id).await.status, Status::Cancelled);
}

async fn heartbeats_keep_a_long_handler_alive(platform: &Platform) {
    let id = platform.submit(NewTask::new("long", &())).await;
    let (go, gone) = tokio::sync::watch::channel(false);
    let long = move |_: TaskContext, (): ()| {
        let mut gone = gone.clone();
        async move {
            gone.wait_for(|gone| *gone).await?;
            Ok::<(), TaskError>(())
        }
    };
    let worker = platform.worker().heartbeat(Duration::from_secs(1)).handle("long", long);
    let stop = async {
        let claimed = platform.task_when(id, |task| task.lease_until.is_some()).await.lease_until.unwrap();
        // Far beyond the lease of a claim that no heartbeat follows.
        let beyond = claimed + Duration::from_secs(4);
        platform.task_when(id, |task| task.lease_until.is_some_and(|until| until > beyond)).await;
        go.send_replace(true);
        platform.task_when(id, |task| task.status.is_finished()).await;
    };
    in_time("it lives", worker.run_until(stop)).await.unwrap();
    let task = platform.task(id).await;
    assert_eq!((task.status, task.attempts_log.len()), (Status::Success, 1));
}

async fn what_is_noted_is_saved_at_an_interval(platform: &Platform) {
    let id = platform.submit(NewTask::new("note", &())).await;
    let note = async |ctx: TaskContext, ()| {
        ctx.checkpoint(&json!({"row": 3}))?;
        ctx.progress(Progress { message: Some("three".into()), ..Progress::from((3, 10)) });
        ctx.cancelled().await;
        Ok::<(), TaskError>(())
    };
    let worker = platform.attentive_worker().save_every(Duration::from_millis(10)).handle("note", note);
    let stop = async {
        let task = platform.task_when(id, |task| task.checkpoint.is_some()).await;
        assert_eq!(task.checkpoint, Some(json!({"row": 3})));
        let progress: Progress = serde_json::from_value(task.progress.unwrap()).unwrap();
        assert_eq!((progress.done, progress.total, progress.message.as_deref()), (3.0, Some(10.0), Some("three")));
        assert_eq!(task.status, Status::Executing);
        platform.client.cancel(id).await.unwrap();
    };
    in_time("it is saved", worker.run_until(stop)).await.unwrap();
}

async fn progress_is_there_when_its_task_has_ended(platform: &Platform) {
    let orders = ["succeed", "err", "fail"];
    let submitted = platform.client.submit_batch(orders.map(|order| NewTask::new("obey", order))).await.unwrap();
    let tell = async |ctx: TaskContext, order: String| {
        ctx.progress((10, 10));
        obey(ctx, order).await
    };
    // No interval comes, so that the end of the execution alone can have saved it.
    let worker = platform.worker().save_every(Duration::from_secs(3_600)).handle("obey", tell);
    in_time("they end", worker.run_until_idle()).await.unwrap();
    for (order, one) in orders.into_iter().zip(submitted) {
        let task = platform.task(one.id).await;
        let progress: Progress = serde_json::from_value(task.progress.unwrap()).unwrap();
        assert_eq!((progress, task.attempts_log.len()), (Progress::from((10, 10)), 1), "{order}");
    }
}

async fn what_is_saved_is_there_for_the_next_attempt(platform: &Platform) {
    let id = platform.submit(NewTask::new("step", &())).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let client = platform.client.clone();
    let step = move |ctx: TaskContext, (): ()| {
        let (tell, client) = (tell.clone(), client.clone());
        async move {
            let step: u32 = ctx.restore()?.unwrap_or(0);
            let _ = tell.send(step);
            ctx.checkpoint(&(step + 1))?;
            if step == 0 {
                ctx.save().await?;
                let saved = client.get(ctx.task_id()).await?.checkpoint;
                assert_eq!(saved, Some(json!(1)), "it is stored when save returns");
            }
            if step < 3 { Err(TaskError::retry_after(Duration::ZERO)) } else { Ok(ctx.restore::<u32>()?) }
        }
    };
    platform.client.put_type("step", TypeSettings { max_attempts: Some(-1), ..TypeSettings::default() }).await.unwrap();
    // The interval never comes: reports alone bring the steps after the first.
    let worker = platform.worker().save_every(Duration::from_secs(3_600)).handle("step", step);
    in_time("all steps are made", worker.run_until_idle()).await.unwrap();
    told.close();
    let mut steps = Vec::new();
    while let Some(step) = told.recv().await {
        steps.push(step);
    }
    assert_eq!(steps, [0, 1, 2, 3]);
    assert_eq!(platform.task(id).await.result, Some(json!(4)), "what was noted is restored too");
}

async fn a_checkpoint_that_is_too_large_is_refused_by_name(platform: &Platform) {
    let id = platform.submit(NewTask::new("large", &()).max_attempts(1)).await;
    let large = async |ctx: TaskContext, ()| ctx.checkpoint(&"x".repeat(300_000));
    platform.worker().handle("large", large).run_until_idle().await.unwrap();
    assert!(platform.task(id).await.error_info.unwrap().starts_with("checkpoint: must have at most"));
}

async fn a_worker_is_listed_with_its_app_and_its_host(platform: &Platform) {
    let worker = platform.worker().app("shop").host("here").handle("obey", obey);
    worker.run_until_idle().await.unwrap();
    let listed = platform.store().workers().await.unwrap();
    let [worker] = listed.as_slice() else { panic!("one has called: {listed:?}") };
    assert_eq!((worker.app.as_deref(), worker.host.as_str()), (Some("shop"), "here"));
    assert!(worker.worker_id.starts_with("here-"), "{}", worker.worker_id);
}

async fn a_mistake_in_the_worker_ends_it(platform: &Platform) {
    let worker = platform.worker().handle("no spaces", obey);
    let ended = in_time("it ends", worker.run_until(std::future::pending())).await;
    assert!(matches!(&ended, Err(Error::Invalid(fields)) if fields[0].field == "types"), "{ended:?}");
    let ended = in_time("it ends", platform.worker().run_until(std::future::pending())).await;
    assert!(matches!(&ended, Err(Error::Invalid(fields)) if fields[0].field == "handlers"), "{ended:?}");
}

facts! {
    a_task_ends_as_its_handler_says,
    a_result_that_cannot_be_stored_fails_its_task_alone,
    as_many_handlers_run_at_once_as_allowed,
    a_worker_holds_no_more_than_runs_and_waits,
    a_flood_is_drained_without_loss,
    a_waiting_worker_gets_what_comes,
    a_cancelled_task_is_told_so_and_its_result_is_dropped,
    a_task_beyond_its_time_limit_is_told_so,
    a_handler_that_ignores_its_cancelling_is_dropped,
    heartbeats_keep_a_long_handler_alive,
    what_is_noted_is_saved_at_an_interval,
    progress_is_there_when_its_task_has_ended,
    what_is_saved_is_there_for_the_next_attempt,
    a_checkpoint_that_is_too_large_is_refused_by_name,
    a_worker_is_listed_with_its_app_and_its_host,
    a_mistake_in_the_worker_ends_it,
}
