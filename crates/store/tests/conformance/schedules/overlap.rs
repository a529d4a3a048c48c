//! A schedule that does not let two runs go on at once.

use super::{after, every, task_ids};
use crate::facts;
use crate::support::{Platform, worker};
use serde_json::json;
use std::time::Duration;
use taskwheel_model::{Outcome, RunStatus, Status, limits};
use taskwheel_store::access::{Actor, Quota};
use taskwheel_store::people::{Action, Edit};
use taskwheel_store::schedule::{RunNow, ScheduleEdit};
use taskwheel_store::worker::ClaimRequest;

fn reason(word: &str) -> Option<String> {
    Some(word.to_owned())
}

async fn skip_leaves_out_what_is_due_while_a_run_goes_on(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "skip"}), vec![every(1_000)]).await;
    for _ in 0..3 {
        platform.fire_after(1_000).await;
    }
    let running = (RunStatus::Running, None);
    let skipped = (RunStatus::Skipped, reason("overlap"));
    assert_eq!(platform.run_statuses(&schedule).await, [running, skipped.clone(), skipped.clone()]);
    assert_eq!(platform.run_now(&schedule).await, RunNow::Overlaps);
    let claimed = platform.claim_one("job").await;
    platform.finish(&claimed, Outcome::Success).await;
    platform.fire_after(1_000).await;
    assert_eq!(platform.run_statuses(&schedule).await[3], (RunStatus::Running, None));
}

async fn a_tenant_at_its_limit_of_live_tasks_begins_no_run(platform: &Platform) {
    let limit = async |live_max| {
        let quota = Quota { live_max, submits_per_s: None };
        platform.store.put_quota(Actor::application(), "default".into(), quota).await.unwrap();
    };
    limit(Some(5)).await;
    let schedule = platform.schedule(json!({"shards": 2}), vec![every(1_000)]).await;
    for _ in 0..3 {
        platform.fire_after(1_000).await;
    }
    let (running, skipped) = ((RunStatus::Running, None), (RunStatus::Skipped, reason("quota")));
    assert_eq!(platform.run_statuses(&schedule).await, [running.clone(), running.clone(), skipped.clone()]);
    let claimed = platform.claim("job").await;
    platform.finish(&claimed[0], Outcome::Success).await;
    platform.fire_after(1_000).await;
    platform.fire_after(1_000).await;
    assert_eq!(
        platform.run_statuses(&schedule).await[3..],
        [running.clone(), skipped],
        "who has room again begins at once"
    );
    limit(None).await;
    platform.fire_after(1_000).await;
    assert_eq!(platform.run_statuses(&schedule).await[5], running, "without a limit nothing holds it");
}

async fn queue_lets_them_run_one_after_the_other(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "queue"}), vec![every(1_000)]).await;
    for _ in 0..3 {
        platform.fire_after(1_000).await;
    }
    for done in 0..3 {
        let statuses: Vec<_> = platform.runs(&schedule).await.iter().map(|run| run.status).collect();
        let expected = [vec![RunStatus::Done; done], vec![RunStatus::Running], vec![RunStatus::Queued; 2 - done]];
        assert_eq!(statuses, expected.concat());
        let claimed = platform.claim_one("job").await;
        platform.finish(&claimed, Outcome::Success).await;
    }
    assert!(platform.claim("job").await.is_empty());
    assert!(platform.runs(&schedule).await.iter().all(|run| run.status == RunStatus::Done));
}

async fn a_queue_has_a_limit(platform: &Platform) {
    let fields = json!({"overlap": "queue", "misfire": {"policy": "catch_up", "max": 1_000}});
    let schedule = platform.schedule(fields, vec![every(10)]).await;
    platform.fire_after(10 * (limits::RUNS_QUEUED_MAX as i64 + 4)).await;
    let statuses = platform.run_statuses(&schedule).await;
    let count = |wanted: RunStatus| statuses.iter().filter(|(status, _)| *status == wanted).count();
    assert_eq!((count(RunStatus::Running), count(RunStatus::Queued)), (1, limits::RUNS_QUEUED_MAX));
    assert_eq!(count(RunStatus::Skipped), 3);
    assert_eq!(statuses.last(), Some(&(RunStatus::Skipped, reason("queue_full"))));
    assert_eq!(platform.run_now(&schedule).await, RunNow::QueueFull);
}

async fn replace_cancels_what_goes_on(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "replace"}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let first = platform.claim_one("job").await;
    platform.fire_after(1_000).await;
    let replaced = (RunStatus::Cancelled, reason("replaced"));
    assert_eq!(platform.run_statuses(&schedule).await, [replaced, (RunStatus::Running, None)]);
    assert_eq!(platform.status(first.id).await, Status::Cancelled);
    let second = platform.claim_one("job").await;
    platform.finish(&second, Outcome::Success).await;
    assert_eq!(platform.runs(&schedule).await[1].status, RunStatus::Done);
}

async fn of_several_due_at_once_the_last_replaces_the_others(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "replace"}), vec![every(1_000)]).await;
    platform.fire_after(3_000).await;
    let skipped = (RunStatus::Skipped, reason("replaced"));
    assert_eq!(platform.run_statuses(&schedule).await, [skipped.clone(), skipped, (RunStatus::Running, None)]);
    platform.claim_one("job").await;
}

async fn overlap_is_over_all_timers_of_a_schedule_and_over_runs_that_were_asked_for(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "skip"}), vec![every(1_000), every(1_500)]).await;
    assert!(matches!(platform.run_now(&schedule).await, RunNow::Run(_)));
    platform.fire_after(1_000).await;
    platform.fire_after(500).await;
    let statuses: Vec<_> = platform.runs(&schedule).await.iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Running, RunStatus::Skipped, RunStatus::Skipped]);
}

async fn at_most_one_run_begins_when_many_fire_at_once(platform: &Platform) {
    for overlap in ["skip", "queue", "replace"] {
        let schedule = platform.schedule(json!({"overlap": overlap}), vec![every(1_000); 10]).await;
        platform.advance_ms(1_000);
        let mut looks = Vec::new();
        for _ in 0..4 {
            let store = platform.open_again(|_| ()).await.unwrap();
            looks.push(tokio::spawn(async move { while store.fire(3).await.expect("it fires").more {} }));
        }
        for look in looks {
            look.await.unwrap();
        }
        // What another had locked just when the last of them looked is left to the next look.
        platform.fire().await;
        let runs = platform.runs(&schedule).await;
        assert_eq!(runs.len(), 10, "{overlap}");
        let live = runs.iter().filter(|run| run.status == RunStatus::Running).count();
        assert_eq!(live, 1, "{overlap}: {runs:?}");
        platform.set_schedule(schedule.id, taskwheel_model::ScheduleStatus::Offline).await;
    }
}

async fn a_skipped_fixed_delay_comes_again(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "skip"}), vec![after(1_000)]).await;
    platform.run_now(&schedule).await;
    platform.fire_after(1_000).await;
    platform.fire_after(1_000).await;
    let statuses: Vec<_> = platform.runs(&schedule).await.iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Running, RunStatus::Skipped, RunStatus::Skipped]);
}

async fn a_fixed_delay_that_another_timer_replaces_at_once_comes_again(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "replace"}), vec![after(1_000), every(1_000)]).await;
    assert_eq!(platform.fire_after(1_000).await, 2);
    assert_eq!(platform.run_statuses(&schedule).await[0], (RunStatus::Skipped, Some("replaced".into())));
    let (shown, _) = platform.store.schedule(None, schedule.id).await.unwrap().unwrap();
    assert_eq!(shown.timers[0].next_due, Some(platform.now().plus_ms(1_000)));
}

async fn what_is_queued_behind_a_run_that_began_before_the_edit_begins(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let first = platform.claim_one("job").await;
    let fields = json!({"overlap": "queue"}).as_object().cloned().unwrap_or_default();
    platform.edit_schedule(schedule.id, ScheduleEdit { fields, ..ScheduleEdit::default() }).await;
    platform.fire_after(1_000).await;
    let statuses = async || platform.runs(&schedule).await.iter().map(|run| run.status).collect::<Vec<_>>();
    assert_eq!(statuses().await, [RunStatus::Running, RunStatus::Queued]);
    platform.finish(&first, Outcome::Success).await;
    assert_eq!(statuses().await, [RunStatus::Done, RunStatus::Running]);
}

async fn a_queue_moves_on_after_a_failure_and_after_a_cancel(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "queue", "max_attempts": 1}), vec![every(1_000)]).await;
    for _ in 0..4 {
        platform.fire_after(1_000).await;
    }
    let claimed = platform.claim_one("job").await;
    platform.finish(&claimed, Outcome::Error).await;
    let runs = platform.runs(&schedule).await;
    platform.cancel_run(runs[2].id).await;
    platform.cancel_run(runs[1].id).await;
    let statuses: Vec<_> = platform.runs(&schedule).await.iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Failed, RunStatus::Cancelled, RunStatus::Cancelled, RunStatus::Running]);
    platform.claim_one("job").await;
}

async fn what_begins_because_a_claim_met_expired_tasks_is_told(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "queue", "shards": 2}), vec![every(1_000)]).await;
    let launched = async || tokio::time::timeout(Duration::from_secs(10), platform.store.launched()).await;
    for _ in 0..2 {
        platform.fire_after(1_000).await;
    }
    assert_eq!(launched().await.expect("the first run is told of")["job"], 2);
    let first = platform.runs(&schedule).await[0].id;
    for id in task_ids(&platform.run(first).await) {
        let expire_at = Some(Some(platform.now().plus_ms(500)));
        platform.act(id, Action::Edit(Edit { expire_at, ..Edit::default() })).await;
    }
    platform.advance_ms(500);
    // It takes one of the two shards that begin; who waits for the other must hear of it.
    let claimed = platform.claim_one_for(ClaimRequest { max: 1, ..worker(&["job"]) }).await;
    let statuses: Vec<_> = platform.runs(&schedule).await.iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Failed, RunStatus::Running]);
    let second = platform.runs(&schedule).await[1].id;
    assert!(task_ids(&platform.run(second).await).contains(&claimed.id));
    assert!(launched().await.expect("the second run is told of")["job"] >= 2);
}

facts![
    a_tenant_at_its_limit_of_live_tasks_begins_no_run,
    skip_leaves_out_what_is_due_while_a_run_goes_on,
    queue_lets_them_run_one_after_the_other,
    a_queue_has_a_limit,
    replace_cancels_what_goes_on,
    of_several_due_at_once_the_last_replaces_the_others,
    overlap_is_over_all_timers_of_a_schedule_and_over_runs_that_were_asked_for,
    at_most_one_run_begins_when_many_fire_at_once,
    a_skipped_fixed_delay_comes_again,
    a_fixed_delay_that_another_timer_replaces_at_once_comes_again,
    what_is_queued_behind_a_run_that_began_before_the_edit_begins,
    a_queue_moves_on_after_a_failure_and_after_a_cancel,
    what_begins_because_a_claim_met_expired_tasks_is_told,
];
