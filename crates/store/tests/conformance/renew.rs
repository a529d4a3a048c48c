//! Renew: executions that their workers keep, and the ones they no longer have.

use crate::facts;
use crate::support::platform::renewal;
use crate::support::{Platform, task, worker};
use taskwheel_model::{ExecId, NewTask, Outcome, Status, TaskId, limits};
use taskwheel_store::people::Action;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Renewal, Renewed};

async fn a_renewal_extends_the_lease(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    assert_eq!(claimed.lease_until, platform.now().plus_ms(limits::LEASE_MS_DEFAULT));
    platform.advance_ms(60_000);
    let until = platform.now().plus_ms(limits::LEASE_MS_DEFAULT);
    assert_eq!(platform.renew(&claimed).await, Renewed::Ok(until));
    assert_eq!(platform.task(claimed.id).await.lease_until, Some(until));
    platform.advance_ms(limits::LEASE_MS_DEFAULT - 1);
    assert_eq!(platform.rescue().await.lost, 0);
    assert_eq!(platform.status(claimed.id).await, Status::Executing);
}

async fn checkpoint_and_progress_are_kept_and_shown(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let item = Renewal {
        checkpoint: Some(r#"{"row": 7, "é": "\u0000"}"#.into()),
        progress: Some(r#"{"done":7,"total":10}"#.into()),
        ..renewal(&claimed)
    };
    assert!(matches!(platform.renew_with(item.clone()).await, Renewed::Ok(_)));
    platform.renew(&claimed).await;
    let shown = platform.task(claimed.id).await;
    assert_eq!(
        (shown.checkpoint, shown.progress),
        (item.checkpoint.clone(), item.progress),
        "saying nothing clears nothing"
    );
    platform.finish(&claimed, Outcome::Error).await;
    platform.advance_ms(60_000);
    assert_eq!(platform.claim_one("mail").await.checkpoint, item.checkpoint, "the next attempt goes on from there");
}

/// The first execution of a task that a second one runs now.
async fn stale(platform: &Platform) -> (ClaimedTask, ClaimedTask) {
    let first = platform.start(task("mail")).await;
    platform.finish(&first, Outcome::Release).await;
    let second = platform.claim_one("mail").await;
    assert_eq!(first.id, second.id);
    assert_ne!(first.exec_id, second.exec_id);
    (first, second)
}

async fn a_stale_execution_cannot_renew(platform: &Platform) {
    let (first, second) = stale(platform).await;
    platform.advance_ms(1_000);
    assert_eq!(platform.renew(&first).await, Renewed::Superseded);
    assert_eq!(platform.task(first.id).await.lease_until, Some(second.lease_until));
}

async fn a_stale_execution_cannot_save_a_checkpoint(platform: &Platform) {
    let (first, second) = stale(platform).await;
    let save = |claimed, text: &str| Renewal {
        checkpoint: Some(text.into()),
        progress: Some(text.into()),
        ..renewal(claimed)
    };
    platform.renew_with(save(&second, "2")).await;
    assert_eq!(platform.renew_with(save(&first, "1")).await, Renewed::Superseded);
    let shown = platform.task(first.id).await;
    assert_eq!((shown.checkpoint.as_deref(), shown.progress.as_deref()), (Some("2"), Some("2")));
}

async fn an_ended_execution_cannot_renew(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.finish(&claimed, Outcome::Success).await;
    assert_eq!(platform.renew(&claimed).await, Renewed::Superseded);
    let claimed = platform.start(task("sms")).await;
    platform.finish(&claimed, Outcome::Error).await;
    assert_eq!(platform.renew(&claimed).await, Renewed::Superseded);
}

async fn an_unknown_or_foreign_task_is_superseded(platform: &Platform) {
    let claimed = platform.start(NewTask { tenant: "acme".into(), ..task("mail") }).await;
    let unknown = Renewal { id: TaskId(4_711), ..renewal(&claimed) };
    assert_eq!(platform.renew_with(unknown).await, Renewed::Superseded);
    let foreign = Renewal { tenant: Some("other".into()), checkpoint: Some("1".into()), ..renewal(&claimed) };
    assert_eq!(platform.renew_with(foreign).await, Renewed::Superseded);
    assert_eq!(platform.task(claimed.id).await.checkpoint, None);
    let own = Renewal { tenant: Some("acme".into()), ..renewal(&claimed) };
    assert!(matches!(platform.renew_with(own).await, Renewed::Ok(_)));
    let nobodys = Renewal { exec_id: ExecId::new(platform.now(), [7; 10]), ..renewal(&claimed) };
    assert_eq!(platform.renew_with(nobodys).await, Renewed::Superseded);
}

async fn a_cancelled_execution_is_told_to_stop(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.act(claimed.id, Action::Cancel).await;
    assert_eq!(platform.renew(&claimed).await, Renewed::Cancelled);
    assert_eq!(platform.renew(&claimed).await, Renewed::Cancelled, "and again, if the answer got lost");
    assert_eq!(platform.status(claimed.id).await, Status::Cancelled);
}

async fn items_of_a_batch_are_answered_each(platform: &Platform) {
    platform.submit_all(vec![task("mail"), task("mail"), task("mail")]).await;
    let claimed = platform.claim("mail").await;
    platform.finish(&claimed[1], Outcome::Success).await;
    platform.act(claimed[2].id, Action::Cancel).await;
    let until = platform.now().plus_ms(limits::LEASE_MS_DEFAULT);
    let items = [0, 1, 2, 0].map(|n| renewal(&claimed[n])).to_vec();
    let answers = platform.store.renew(vec!["worker".into()], items).await.unwrap();
    assert_eq!(answers, [Renewed::Ok(until), Renewed::Superseded, Renewed::Cancelled, Renewed::Ok(until)]);
}

async fn one_task_named_twice_in_a_batch_keeps_the_last_checkpoint(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let save = |text: &str| Renewal { checkpoint: Some(text.into()), ..renewal(&claimed) };
    let answers = platform.store.renew(vec!["worker".into()], vec![save("1"), save("2")]).await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, Renewed::Ok(_))), "{answers:?}");
    assert_eq!(platform.task(claimed.id).await.checkpoint.as_deref(), Some("2"));
}

async fn with_a_heartbeat_the_lease_ends_three_heartbeats_after_the_call(platform: &Platform) {
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(ClaimRequest { heartbeat_ms: Some(1_000), ..worker(&["mail"]) }).await;
    assert_eq!(claimed.lease_until, platform.now().plus_ms(3_000));
    platform.advance_ms(1_000);
    let until = platform.now().plus_ms(3_000);
    assert_eq!(platform.renew(&claimed).await, Renewed::Ok(until));
    assert_eq!(platform.task(claimed.id).await.lease_until, Some(until));
}

facts![
    a_renewal_extends_the_lease,
    checkpoint_and_progress_are_kept_and_shown,
    a_stale_execution_cannot_renew,
    a_stale_execution_cannot_save_a_checkpoint,
    an_ended_execution_cannot_renew,
    an_unknown_or_foreign_task_is_superseded,
    a_cancelled_execution_is_told_to_stop,
    items_of_a_batch_are_answered_each,
    one_task_named_twice_in_a_batch_keeps_the_last_checkpoint,
    with_a_heartbeat_the_lease_ends_three_heartbeats_after_the_call,
];
