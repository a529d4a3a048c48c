//! A task in memory goes by the rules of one on a server.

use super::*;
use crate::{Progress, RetryPolicy};

async fn count(ctx: TaskContext, up_to: u64) -> Result<u64, TaskError> {
    let from: u64 = ctx.restore()?.unwrap_or(0);
    for number in from..up_to {
        if ctx.is_cancelled() || ctx.is_stopping() {
            return Err(TaskError::release());
        }
        ctx.checkpoint(&(number + 1))?;
        ctx.progress((number + 1, up_to));
        if number == 2 && ctx.attempt() == 1 {
            ctx.save().await?;
            return Err(TaskError::retry_after(Duration::from_secs(60)));
        }
    }
    Ok(from)
}

#[tokio::test]
async fn a_handler_goes_on_from_its_checkpoint_when_its_time_comes() {
    let mut task = TestTask::new(NewTask::new("count", &10).delay(Duration::from_secs(5)));
    assert_eq!(task.due_in(), Some(Duration::from_secs(5)));
    task.advance(Duration::from_secs(5));
    assert_eq!(task.run(count).await.outcome, Some(Outcome::Retry));
    assert_eq!((task.status(), task.due_in()), (Status::New, Some(Duration::from_secs(60))));
    assert_eq!(task.checkpoint::<u64>().unwrap(), Some(3));
    assert_eq!(task.progress().unwrap()["done"], 3.0);
    task.advance(Duration::from_secs(60));
    let ran = task.run(count).await;
    assert_eq!((ran.result_as::<u64>().unwrap(), task.status(), task.attempts()), (3, Status::Success, 2));
}

#[tokio::test]
async fn a_cancelled_run_is_dropped_and_a_stopped_one_given_back() {
    let mut task = TestTask::new(NewTask::new("count", &10));
    let stopped = task.start(count).stop().finish().await;
    assert_eq!((stopped.outcome, task.status(), task.attempts()), (Some(Outcome::Release), Status::New, 0));
    let cancelled = task.start(count).cancel().finish().await;
    assert_eq!((cancelled.outcome, task.status()), (None, Status::Cancelled));
    task.advance(Duration::from_secs(3_600));
    task.retry();
    assert_eq!(task.due_in(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_listen_is_dropped_after_the_grace_period() {
    let deaf = async |ctx: TaskContext, (): ()| {
        let page: u32 = ctx.restore()?.unwrap_or_default();
        ctx.checkpoint(&(page + 1))?;
        sleep(Duration::from_secs(60)).await;
        Ok::<_, TaskError>(page)
    };
    let mut task = TestTask::new(NewTask::new("deaf", &()).timeout(Duration::from_secs(90))).with_checkpoint(&6);
    let ran = task.start(deaf).stop().finish().await;
    assert_eq!((ran.outcome, task.status(), task.attempts()), (Some(Outcome::Release), Status::New, 0));
    assert_eq!(task.checkpoint::<u32>().unwrap(), Some(7), "it goes on from there");
    assert_eq!(task.now(), TestTask::START + Duration::from_secs(30));
    let ran = task.start(deaf).grace(Duration::from_secs(61)).stop().finish().await;
    assert_eq!((ran.outcome, ran.result_as::<u32>().unwrap()), (Some(Outcome::Success), 7), "it ended in time");
    let mut task = TestTask::new(NewTask::new("deaf", &()).timeout(Duration::from_secs(90)));
    let ran = task.start(deaf).time_out().finish().await;
    assert_eq!((ran.outcome, task.status(), task.attempts()), (None, Status::Error, 1));
    assert_eq!(task.due_in(), Some(Duration::ZERO), "its pause has passed with the grace period");
}

#[tokio::test(start_paused = true)]
async fn what_is_noted_when_the_task_is_lost_is_dropped() {
    let note = async |ctx: TaskContext, (): ()| {
        ctx.checkpoint(&7)?;
        ctx.progress(7);
        let was_saved = ctx.save().await.is_ok();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(ctx.save().await.is_ok(), was_saved, "lost once is lost for good");
        ctx.checkpoint(&8)?;
        ctx.progress(8);
        sleep(Duration::from_secs(60)).await;
        Ok::<(), TaskError>(())
    };
    let task = || TestTask::new(NewTask::new("note", &()).timeout(Duration::from_secs(20))).with_checkpoint(&6);
    let left = |task: &TestTask| (task.checkpoint::<u32>().unwrap(), task.progress().map(|told| told["done"].clone()));
    let mut lost = task();
    assert_eq!(lost.start(note).time_out().finish().await.outcome, None);
    assert_eq!(left(&lost), (Some(6), None), "nothing was saved");
    let mut late = task();
    let ran = late.start(note).stop().finish().await;
    assert_eq!((ran.outcome, late.status()), (None, Status::Error), "its time was over before the grace period");
    assert_eq!(left(&late), (Some(7), Some(7.0.into())), "what was saved before stays");
    let mut given_back = task();
    let ran = given_back.start(note).grace(Duration::from_secs(10)).stop().finish().await;
    assert_eq!((ran.outcome, left(&given_back)), (Some(Outcome::Release), (Some(8), Some(8.0.into()))));
}

#[tokio::test]
async fn a_handler_knows_its_shard_and_what_came_before_it() {
    let tell = async |ctx: TaskContext, (): ()| {
        let before = ctx.parents::<u32>()?.first().map(|parent| parent.result);
        Ok::<_, TaskError>((ctx.shard_index(), ctx.shard_total(), before))
    };
    let tells = async |mut task: TestTask| task.run(tell).await.result.unwrap();
    let task = || TestTask::new(NewTask::new("tell", &()));
    assert_eq!(tells(task()).await, serde_json::json!([null, null, null]));
    assert_eq!(tells(task().as_shard(2, 5).after(7)).await, serde_json::json!([2, 5, 7]));
    let mut unlike = task().after("seven");
    let ran = unlike.run(tell).await;
    assert!(ran.error.unwrap().starts_with("parent: is not what the handler takes"), "it says what is wrong");
}

#[tokio::test]
async fn odd_notes_harm_nobody() {
    let odd = async |ctx: TaskContext, (): ()| {
        ctx.progress(Progress { total: Some(f64::INFINITY), message: Some("\0".repeat(9_000)), ..Progress::from(3) });
        ctx.progress(Progress { done: f64::NAN, ..Progress::default() });
        ctx.checkpoint(&())
    };
    let mut task = TestTask::new(NewTask::new("odd", &()));
    assert!(task.run(odd).await.error.unwrap().starts_with("checkpoint: must not be null"));
    let progress = task.progress().unwrap().to_string();
    assert!(progress.len() < taskwheel_model::limits::PROGRESS_BYTES_MAX, "{}", progress.len());
    assert_eq!((&task.progress().unwrap()["done"], task.progress().unwrap().get("total")), (&3.0.into(), None));
}

#[tokio::test]
async fn what_is_used_up_or_expired_fails_as_on_a_server() {
    let bad = async |_: TaskContext, (): ()| Err::<(), _>("no");
    let fixed = RetryPolicy::Fixed { delay_ms: 1_000 };
    let mut task = TestTask::new(NewTask::new("bad", &()).max_attempts(2).retry(fixed));
    task.run(bad).await;
    task.advance(Duration::from_secs(1));
    task.run(bad).await;
    assert_eq!((task.status(), task.due_in()), (Status::Failure, None));
    let settings = TypeSettings { need_manual: true, max_attempts: Some(1), ..TypeSettings::default() };
    let mut task = TestTask::of_type(NewTask::new("bad", &()), settings);
    task.run(bad).await;
    assert_eq!(task.status(), Status::Pending);
    let soon = TestTask::START + Duration::from_secs(1);
    let mut task = TestTask::new(NewTask::new("bad", &()).expire_at(soon));
    task.advance(Duration::from_secs(1));
    assert_eq!(task.status(), Status::Failure);
}
