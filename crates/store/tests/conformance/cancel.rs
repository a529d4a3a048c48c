//! Cancel, and the retry of what was cancelled while it ran: the old execution may still be running somewhere.

use crate::facts;
use crate::support::platform::renewal;
use crate::support::{Platform, task, worker};
use taskwheel_model::{NewTask, Outcome, Status, limits};
use taskwheel_store::people::{Acted, Action, Edit};
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Renewed, Report, Reported};

/// A task that was cancelled while it ran, and retried.
async fn cancelled_and_retried(platform: &Platform) -> ClaimedTask {
    let claimed = platform.start(task("mail")).await;
    assert_eq!(platform.act(claimed.id, Action::Cancel).await, Acted::Changed(Status::Cancelled));
    assert_eq!(platform.act(claimed.id, Action::Retry).await, Acted::Changed(Status::New));
    claimed
}

async fn a_cancelled_execution_is_in_the_log(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.advance_ms(5);
    platform.act(claimed.id, Action::Cancel).await;
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.status, shown.finished_at, shown.attempts), (Status::Cancelled, Some(platform.now()), 1));
    let log = platform.log(claimed.id).await;
    assert_eq!((log.len(), log[0].outcome, log[0].exec_id), (1, Some(Outcome::Cancelled), claimed.exec_id));
    platform.act(claimed.id, Action::Retry).await;
    assert_eq!(platform.log(claimed.id).await, log, "and stays there");
}

async fn a_retried_task_is_held_until_the_old_lease_ends(platform: &Platform) {
    let claimed = cancelled_and_retried(platform).await;
    platform.advance_ms(limits::LEASE_MS_DEFAULT - 1);
    platform.rescue().await;
    assert!(platform.claim("mail").await.is_empty(), "the old execution may still run");
    platform.advance_ms(1);
    assert_eq!(platform.claim_one("mail").await.id, claimed.id);
}

async fn a_retried_task_is_free_once_its_old_worker_renews(platform: &Platform) {
    let claimed = cancelled_and_retried(platform).await;
    platform.advance_ms(1_000);
    assert_eq!(platform.renew(&claimed).await, Renewed::Cancelled);
    let next = platform.claim_one("mail").await;
    assert_eq!((next.id, next.round, next.attempt), (claimed.id, 2, 1));
    assert_eq!(platform.renew(&claimed).await, Renewed::Superseded);
}

async fn a_retried_task_is_free_once_its_old_worker_reports(platform: &Platform) {
    for outcome in [Outcome::Success, Outcome::Error, Outcome::Release] {
        let claimed = cancelled_and_retried(platform).await;
        assert!(platform.claim("mail").await.is_empty());
        assert_eq!(platform.finish(&claimed, outcome).await, Reported::Superseded(Some(Status::New)), "{outcome:?}");
        let next = platform.claim_one("mail").await;
        assert_eq!(next.id, claimed.id, "{outcome:?}");
        platform.finish(&next, Outcome::Success).await;
    }
}

async fn a_worker_that_answered_before_the_retry_leaves_nothing_to_wait_for(platform: &Platform) {
    for by_report in [true, false] {
        let claimed = platform.start(task("mail")).await;
        platform.act(claimed.id, Action::Cancel).await;
        if by_report {
            platform.finish(&claimed, Outcome::Success).await;
        } else {
            platform.renew(&claimed).await;
        }
        platform.act(claimed.id, Action::Retry).await;
        let next = platform.claim_one("mail").await;
        platform.finish(&next, Outcome::Success).await;
    }
}

async fn with_a_heartbeat_the_hold_ends_when_its_worker_would_count_as_dead(platform: &Platform) {
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(ClaimRequest { heartbeat_ms: Some(1_000), ..worker(&["mail"]) }).await;
    platform.renew(&claimed).await;
    platform.act(claimed.id, Action::Cancel).await;
    platform.act(claimed.id, Action::Retry).await;
    let other = ClaimRequest { worker_id: "other".into(), ..worker(&["mail"]) };
    platform.advance_ms(3_099);
    assert!(platform.claim_for(other.clone()).await.is_empty());
    platform.advance_ms(1);
    assert_eq!(platform.claim_one_for(other).await.id, claimed.id);
}

async fn a_hold_outlives_a_promise_that_was_not_written(platform: &Platform) {
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(ClaimRequest { heartbeat_ms: Some(60_000), ..worker(&["mail"]) }).await;
    platform.renew(&claimed).await;
    platform.advance_ms(2_900);
    let Renewed::Ok(promised) = platform.renew(&claimed).await else { panic!("it is renewed") };
    platform.advance_ms(100_000);
    platform.act(claimed.id, Action::Cancel).await;
    platform.act(claimed.id, Action::Retry).await;
    platform.advance_ms(promised.ms_since(platform.now()) - 1);
    let other = ClaimRequest { worker_id: "other".into(), ..worker(&["mail"]) };
    assert!(platform.claim_for(other).await.is_empty());
}

async fn a_task_cancelled_after_its_lease_ended_is_not_held(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    platform.advance_ms(limits::LEASE_MS_DEFAULT);
    platform.act(claimed.id, Action::Cancel).await;
    platform.act(claimed.id, Action::Retry).await;
    assert_eq!(platform.claim_one("mail").await.id, claimed.id);
}

async fn neither_run_now_nor_an_edit_breaks_the_hold(platform: &Platform) {
    let claimed = cancelled_and_retried(platform).await;
    platform.act(claimed.id, Action::RunNow).await;
    let edit = Edit { run_at: Some(platform.now()), priority: Some(9), ..Edit::default() };
    platform.act(claimed.id, Action::Edit(edit)).await;
    assert!(platform.claim("mail").await.is_empty());
    platform.advance_ms(limits::LEASE_MS_DEFAULT);
    assert_eq!(platform.claim_one("mail").await.priority, 9);
}

async fn a_hold_outlives_a_second_cancel_and_retry(platform: &Platform) {
    let claimed = cancelled_and_retried(platform).await;
    platform.act(claimed.id, Action::Cancel).await;
    platform.act(claimed.id, Action::Retry).await;
    assert!(platform.claim("mail").await.is_empty());
    assert_eq!(platform.renew(&claimed).await, Renewed::Cancelled);
    let next = platform.claim_one("mail").await;
    assert_eq!((next.id, next.round), (claimed.id, 3));
}

async fn a_hold_outlives_the_expiry_of_its_task(platform: &Platform) {
    let expire_at = Some(platform.now().plus_ms(60_000));
    let claimed = platform.start(NewTask { expire_at, ..task("mail") }).await;
    platform.act(claimed.id, Action::Cancel).await;
    platform.act(claimed.id, Action::Retry).await;
    platform.advance_ms(60_000);
    assert_eq!(platform.rescue().await.expired, 1);
    assert_eq!(platform.act(claimed.id, Action::Retry).await, Acted::Changed(Status::New));
    assert!(platform.claim("mail").await.is_empty(), "the old execution may still run");
    assert_eq!(platform.renew(&claimed).await, Renewed::Cancelled);
    assert_eq!(platform.claim_one("mail").await.id, claimed.id);
}

async fn a_cancelled_execution_named_twice_in_a_batch_is_told_twice(platform: &Platform) {
    let claimed = cancelled_and_retried(platform).await;
    let items = vec![renewal(&claimed), renewal(&claimed)];
    let answers = platform.store.renew(vec!["worker".into()], items).await.unwrap();
    assert_eq!(answers[0], Renewed::Cancelled);
    assert!(!matches!(answers[1], Renewed::Ok(_)));
    let other = platform.start(task("sms")).await;
    platform.act(other.id, Action::Cancel).await;
    let reports = vec![Report::new(other.id, other.exec_id, Outcome::Success); 2];
    let answers = platform.store.finish(reports).await.unwrap();
    assert_eq!(answers, [Reported::Superseded(Some(Status::Cancelled)); 2]);
}

async fn a_cancelled_waiting_task_is_never_handed_out(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    assert_eq!(platform.act(id, Action::Cancel).await, Acted::Changed(Status::Cancelled));
    platform.advance_ms(86_400_000);
    assert!(platform.claim("mail").await.is_empty());
    assert_eq!(platform.log(id).await, [], "it never ran");
    assert_eq!(platform.act(id, Action::Retry).await, Acted::Changed(Status::New));
    assert_eq!(platform.claim_one("mail").await.id, id, "and after a retry it is at once");
}

facts![
    a_cancelled_execution_is_in_the_log,
    a_retried_task_is_held_until_the_old_lease_ends,
    a_retried_task_is_free_once_its_old_worker_renews,
    a_retried_task_is_free_once_its_old_worker_reports,
    a_worker_that_answered_before_the_retry_leaves_nothing_to_wait_for,
    with_a_heartbeat_the_hold_ends_when_its_worker_would_count_as_dead,
    a_hold_outlives_a_promise_that_was_not_written,
    a_task_cancelled_after_its_lease_ended_is_not_held,
    neither_run_now_nor_an_edit_breaks_the_hold,
    a_hold_outlives_a_second_cancel_and_retry,
    a_hold_outlives_the_expiry_of_its_task,
    a_cancelled_execution_named_twice_in_a_batch_is_told_twice,
    a_cancelled_waiting_task_is_never_handed_out,
];
