//! Expiry: after its time a task is not started any more.

use crate::facts;
use crate::support::{Platform, due_in, task};
use taskwheel_model::{NewTask, Outcome, Status, TypeSettings, limits};
use taskwheel_store::people::{Acted, Action, Edit};
use taskwheel_store::worker::Reported;
use taskwheel_store::{RanOut, Rescued};

fn expiring(platform: &Platform, in_ms: i64) -> NewTask {
    NewTask { expire_at: Some(platform.now().plus_ms(in_ms)), ..task("mail") }
}

async fn a_waiting_task_expires_into_failure(platform: &Platform) {
    let id = platform.submit(NewTask { run_at: due_in("mail", 60_000).run_at, ..expiring(platform, 1_000) }).await;
    platform.advance_ms(999);
    assert_eq!(platform.rescue().await, Rescued::default());
    platform.advance_ms(1);
    let tasks = vec![RanOut { id, exec_id: None, outcome: None }];
    assert_eq!(platform.rescue_by_name().await, Rescued { expired: 1, tasks, ..Rescued::default() });
    let shown = platform.task(id).await;
    assert_eq!((shown.status, shown.error_info.as_deref()), (Status::Failure, Some("expired")));
    assert_eq!((shown.attempts, shown.error_count), (0, 0));
    assert_eq!(platform.log(id).await, []);
}

async fn an_expired_task_is_not_handed_out_even_before_the_rescue(platform: &Platform) {
    let expired = platform.submit(NewTask { priority: Some(9), ..expiring(platform, 1_000) }).await;
    let fresh = platform.submit(task("mail")).await;
    platform.advance_ms(1_000);
    assert_eq!(platform.claim_one("mail").await.id, fresh);
    let shown = platform.task(expired).await;
    assert_eq!((shown.status, shown.error_info.as_deref()), (Status::Failure, Some("expired")));
}

async fn a_task_submitted_after_its_expiry_ends_at_once(platform: &Platform) {
    let id = platform.submit(expiring(platform, -1)).await;
    assert!(platform.claim("mail").await.is_empty());
    platform.rescue().await;
    assert_eq!(platform.status(id).await, Status::Failure);
}

async fn an_attempt_already_begun_runs_on(platform: &Platform) {
    let claimed = platform.start(expiring(platform, 1_000)).await;
    platform.advance_ms(2_000);
    assert_eq!(platform.rescue().await, Rescued::default());
    assert_eq!(platform.finish(&claimed, Outcome::Success).await, Reported::Accepted(Status::Success));
}

async fn an_error_after_the_expiry_leads_to_failure(platform: &Platform) {
    let claimed = platform.start(expiring(platform, 1_000)).await;
    platform.advance_ms(2_000);
    platform.finish(&claimed, Outcome::Error).await;
    platform.rescue().await;
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.status, shown.error_info.as_deref()), (Status::Failure, Some("expired")));
    assert_eq!((shown.attempts, shown.error_count), (1, 1));
    assert_eq!(platform.log(claimed.id).await.len(), 1);
}

async fn expiry_is_failure_even_where_a_person_could_help(platform: &Platform) {
    platform
        .store
        .put_type("mail".into(), TypeSettings { need_manual: true, ..TypeSettings::default() })
        .await
        .unwrap();
    let id = platform.submit(expiring(platform, 1)).await;
    platform.advance_ms(1);
    platform.rescue().await;
    assert_eq!(platform.status(id).await, Status::Failure);
}

async fn a_retry_clears_a_past_expiry(platform: &Platform) {
    let id = platform.submit(expiring(platform, 1_000)).await;
    platform.advance_ms(1_000);
    platform.rescue().await;
    assert_eq!(platform.act(id, Action::Retry).await, Acted::Changed(Status::New));
    let shown = platform.task(id).await;
    assert_eq!((shown.expire_at, shown.round), (None, 2));
    assert_eq!(platform.claim_one("mail").await.id, id);
}

async fn a_retry_keeps_a_future_expiry(platform: &Platform) {
    let id = platform.submit(expiring(platform, 60_000)).await;
    platform.act(id, Action::Cancel).await;
    platform.act(id, Action::Retry).await;
    assert_eq!(platform.task(id).await.expire_at, Some(platform.now().plus_ms(60_000)));
    platform.advance_ms(60_000);
    assert_eq!(platform.rescue().await.expired, 1);
}

async fn an_edited_expiry_counts(platform: &Platform) {
    let ids = platform.submit_all(vec![expiring(platform, 1_000), task("mail")]).await;
    let edit = |expire_at| Action::Edit(Edit { expire_at: Some(expire_at), ..Edit::default() });
    platform.act(ids[0], edit(None)).await;
    platform.act(ids[1], edit(Some(platform.now().plus_ms(500)))).await;
    platform.advance_ms(1_000);
    assert_eq!(platform.rescue().await, Rescued { expired: 1, ..Rescued::default() });
    assert_eq!(platform.status(ids[0]).await, Status::New);
    assert_eq!(platform.status(ids[1]).await, Status::Failure);
}

async fn a_person_waiting_task_does_not_expire(platform: &Platform) {
    let settings = TypeSettings { need_manual: true, max_attempts: Some(1), ..TypeSettings::default() };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    let claimed = platform.start(expiring(platform, 1_000)).await;
    platform.finish(&claimed, Outcome::Error).await;
    platform.advance_ms(10_000);
    assert_eq!(platform.rescue().await, Rescued::default());
    assert_eq!(platform.status(claimed.id).await, Status::Pending);
}

async fn many_expire_in_chunks(platform: &Platform) {
    let many = limits::CHUNK_ROWS_MAX + 100;
    platform.submit_all((0..many).map(|_| expiring(platform, 1)).collect()).await;
    platform.advance_ms(1);
    let mut expired = 0;
    loop {
        let rescued = platform.rescue().await;
        expired += rescued.expired;
        if !rescued.more {
            break;
        }
    }
    assert_eq!(expired, many as u64);
}

async fn a_claim_passes_over_many_expired_tasks(platform: &Platform) {
    let urgent = NewTask { priority: Some(9), ..expiring(platform, 1) };
    platform.submit_all(vec![urgent; 20]).await;
    let fresh = platform.submit(task("mail")).await;
    platform.advance_ms(1);
    let request = taskwheel_store::worker::ClaimRequest { max: 10, ..crate::support::worker(&["mail"]) };
    assert_eq!(platform.claim_ids(request).await, [fresh]);
}

facts![
    a_waiting_task_expires_into_failure,
    an_expired_task_is_not_handed_out_even_before_the_rescue,
    a_task_submitted_after_its_expiry_ends_at_once,
    an_attempt_already_begun_runs_on,
    an_error_after_the_expiry_leads_to_failure,
    expiry_is_failure_even_where_a_person_could_help,
    a_retry_clears_a_past_expiry,
    a_retry_keeps_a_future_expiry,
    an_edited_expiry_counts,
    a_person_waiting_task_does_not_expire,
    many_expire_in_chunks,
    a_claim_passes_over_many_expired_tasks,
];
