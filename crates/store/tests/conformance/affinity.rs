//! Affinity: a task goes to its host first, and waits for nobody who is not there.

use crate::facts;
use crate::support::{Platform, due_in, task, worker};
use taskwheel_model::{NewTask, Outcome, Status, limits};
use taskwheel_store::people::Action;
use taskwheel_store::worker::ClaimRequest;

fn on(host: &str) -> ClaimRequest {
    ClaimRequest { worker_id: format!("worker-on-{host}"), host: host.into(), ..worker(&["mail"]) }
}

fn kept_for(host: &str) -> NewTask {
    NewTask { affinity: Some(host.into()), ..task("mail") }
}

/// Rescue looks after tasks that were kept for a host; the engine does this all the time.
async fn claim_after_a_look(platform: &Platform, request: ClaimRequest) -> usize {
    platform.rescue().await;
    platform.claim_ids(request).await.len()
}

async fn while_its_host_has_a_worker_others_wait_for_thirty_seconds(platform: &Platform) {
    platform.claim_for(on("a")).await;
    platform.submit(kept_for("a")).await;
    assert_eq!(claim_after_a_look(platform, on("b")).await, 0);
    platform.advance_ms(limits::AFFINITY_GRACE_MS - 1);
    platform.claim_for(ClaimRequest { max: 1, types: vec!["other".into()], ..on("c") }).await;
    assert_eq!(claim_after_a_look(platform, on("b")).await, 0);
    platform.advance_ms(1);
    assert_eq!(claim_after_a_look(platform, on("b")).await, 1);
}

async fn its_own_host_gets_it_at_once(platform: &Platform) {
    platform.claim_for(on("a")).await;
    let id = platform.submit(kept_for("a")).await;
    assert_eq!(platform.claim_ids(on("a")).await, [id]);
}

async fn a_host_without_a_worker_is_not_waited_for(platform: &Platform) {
    let id = platform.submit(kept_for("nowhere")).await;
    platform.rescue().await;
    assert_eq!(platform.claim_ids(on("b")).await, [id]);
}

async fn a_worker_for_other_types_does_not_keep_a_task(platform: &Platform) {
    platform.claim_for(ClaimRequest { types: vec!["sms".into()], ..on("a") }).await;
    platform.submit(kept_for("a")).await;
    assert_eq!(claim_after_a_look(platform, on("b")).await, 1);
}

async fn a_dead_worker_does_not_keep_a_task(platform: &Platform) {
    platform.claim_for(ClaimRequest { heartbeat_ms: Some(1_000), ..on("a") }).await;
    platform.advance_ms(5_000);
    platform.submit(kept_for("a")).await;
    assert_eq!(claim_after_a_look(platform, on("b")).await, 1);
}

async fn a_released_task_is_offered_to_its_host_first(platform: &Platform) {
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(on("a")).await;
    platform.finish(&claimed, Outcome::Release).await;
    assert_eq!(platform.task(claimed.id).await.affinity.as_deref(), Some("a"));
    assert_eq!(claim_after_a_look(platform, on("b")).await, 0);
    assert_eq!(platform.claim_ids(on("a")).await, [claimed.id]);
}

async fn a_released_task_goes_to_others_after_thirty_seconds(platform: &Platform) {
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(on("a")).await;
    platform.finish(&claimed, Outcome::Release).await;
    platform.advance_ms(limits::AFFINITY_GRACE_MS);
    assert_eq!(claim_after_a_look(platform, on("b")).await, 1);
}

async fn a_released_task_goes_to_others_when_its_host_goes_away(platform: &Platform) {
    platform.submit(task("mail")).await;
    let a = ClaimRequest { heartbeat_ms: Some(1_000), ..on("a") };
    let claimed = platform.claim_one_for(a.clone()).await;
    platform.finish(&claimed, Outcome::Release).await;
    platform.advance_ms(2_000);
    platform.heartbeat(&a.worker_id).await;
    platform.advance_ms(2_000);
    assert_eq!(claim_after_a_look(platform, on("b")).await, 0, "it has called in between");
    platform.advance_ms(1_200);
    assert_eq!(claim_after_a_look(platform, on("b")).await, 1);
}

async fn a_lost_task_goes_to_others_at_once_when_its_host_is_dead(platform: &Platform) {
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(ClaimRequest { heartbeat_ms: Some(1_000), ..on("a") }).await;
    platform.advance_ms(5_000);
    assert_eq!(platform.rescue().await.lost, 1);
    assert_eq!(platform.task(claimed.id).await.affinity.as_deref(), Some("a"));
    assert_eq!(platform.claim_ids(on("b")).await, [claimed.id]);
}

async fn a_lost_task_waits_for_another_worker_of_its_host(platform: &Platform) {
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(ClaimRequest { heartbeat_ms: Some(1_000), ..on("a") }).await;
    platform.advance_ms(4_000);
    let sibling = ClaimRequest { worker_id: "sibling".into(), heartbeat_ms: Some(1_000), ..on("a") };
    platform.claim_for(sibling.clone()).await;
    assert_eq!(platform.rescue().await.lost, 1);
    assert_eq!(claim_after_a_look(platform, on("b")).await, 0);
    assert_eq!(platform.claim_ids(sibling).await, [claimed.id]);
}

async fn an_error_sets_no_affinity(platform: &Platform) {
    platform.submit(task("mail")).await;
    let claimed = platform.claim_one_for(on("a")).await;
    platform.finish(&claimed, Outcome::Error).await;
    platform.advance_ms(10_000);
    assert_eq!(platform.claim_ids(on("b")).await, [claimed.id]);
}

async fn a_future_task_is_kept_from_when_it_is_due(platform: &Platform) {
    platform.submit(NewTask { run_at: due_in("mail", 120_000).run_at, ..kept_for("a") }).await;
    platform.advance_ms(119_999);
    platform.claim_for(on("a")).await;
    platform.advance_ms(1);
    assert_eq!(claim_after_a_look(platform, on("b")).await, 0);
    platform.advance_ms(limits::AFFINITY_GRACE_MS);
    assert_eq!(claim_after_a_look(platform, on("b")).await, 1);
}

async fn a_future_task_goes_to_anybody_when_its_host_is_not_there_then(platform: &Platform) {
    platform.claim_for(ClaimRequest { heartbeat_ms: Some(1_000), ..on("a") }).await;
    platform.submit(NewTask { run_at: due_in("mail", 120_000).run_at, ..kept_for("a") }).await;
    platform.advance_ms(120_000);
    assert_eq!(claim_after_a_look(platform, on("b")).await, 1);
}

async fn affinity_counts_for_claims_by_category_too(platform: &Platform) {
    let by_category = |host: &str| ClaimRequest { types: Vec::new(), categories: vec!["mails".into()], ..on(host) };
    platform.claim_for(by_category("a")).await;
    let id = platform.submit(NewTask { category: Some("mails".into()), ..kept_for("a") }).await;
    platform.rescue().await;
    assert_eq!(platform.claim_ids(by_category("b")).await, []);
    assert_eq!(platform.claim_ids(by_category("a")).await, [id]);
}

async fn a_run_now_of_a_kept_task_keeps_it_for_its_host(platform: &Platform) {
    platform.claim_for(on("a")).await;
    let id = platform.submit(NewTask { run_at: due_in("mail", 120_000).run_at, ..kept_for("a") }).await;
    platform.act(id, Action::RunNow).await;
    assert_eq!(claim_after_a_look(platform, on("b")).await, 0);
    assert_eq!(platform.claim_ids(on("a")).await, [id]);
    assert_eq!(platform.status(id).await, Status::Executing);
}

async fn a_retried_task_is_kept_for_the_host_it_was_submitted_for(platform: &Platform) {
    platform.claim_for(on("a")).await;
    let id = platform.submit(kept_for("a")).await;
    platform.act(id, Action::Cancel).await;
    platform.act(id, Action::Retry).await;
    assert_eq!(claim_after_a_look(platform, on("b")).await, 0);
    assert_eq!(platform.claim_ids(on("a")).await, [id]);
}

facts![
    a_retried_task_is_kept_for_the_host_it_was_submitted_for,
    while_its_host_has_a_worker_others_wait_for_thirty_seconds,
    its_own_host_gets_it_at_once,
    a_host_without_a_worker_is_not_waited_for,
    a_worker_for_other_types_does_not_keep_a_task,
    a_dead_worker_does_not_keep_a_task,
    a_released_task_is_offered_to_its_host_first,
    a_released_task_goes_to_others_after_thirty_seconds,
    a_released_task_goes_to_others_when_its_host_goes_away,
    a_lost_task_goes_to_others_at_once_when_its_host_is_dead,
    a_lost_task_waits_for_another_worker_of_its_host,
    an_error_sets_no_affinity,
    a_future_task_is_kept_from_when_it_is_due,
    a_future_task_goes_to_anybody_when_its_host_is_not_there_then,
    affinity_counts_for_claims_by_category_too,
    a_run_now_of_a_kept_task_keeps_it_for_its_host,
];
