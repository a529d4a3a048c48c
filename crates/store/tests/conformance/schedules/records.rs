//! Records: what is kept of runs, for how long, and who sees it.

use super::{every, task_ids};
use crate::facts;
use crate::support::Platform;
use serde_json::json;
use taskwheel_model::{Outcome, RunStatus, Status};
use taskwheel_store::people::{Acted, Action};
use taskwheel_store::schedule::{RunNow, RunQuery};

async fn without_a_log_nothing_is_written_beyond_the_task(platform: &Platform) {
    let schedule = platform.schedule(json!({"log": "none"}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let claimed = platform.claim_one("job").await;
    let task = platform.task(claimed.id).await;
    assert_eq!((task.schedule_id, task.run_id), (Some(schedule.id), None));
    platform.finish(&claimed, Outcome::Success).await;
    let mut raw = platform.raw().await;
    assert_eq!(raw.number("SELECT COUNT(*) FROM task_run").await, 0);
    assert_eq!(raw.number("SELECT COUNT(*) FROM task_step").await, 0);
    assert!(matches!(platform.run_now(&schedule).await, RunNow::Run(_)));
}

async fn without_a_log_a_run_that_must_be_followed_is_forgotten_at_its_end(platform: &Platform) {
    let schedule = platform.schedule(json!({"log": "none", "overlap": "skip"}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    assert_eq!(platform.runs(&schedule).await.len(), 1);
    platform.fire_after(1_000).await;
    assert_eq!(platform.runs(&schedule).await.len(), 1, "a skipped one is not recorded");
    platform.do_one("job", json!(1)).await;
    let mut raw = platform.raw().await;
    assert_eq!(raw.number("SELECT COUNT(*) FROM task_run").await, 0);
    assert_eq!(raw.number("SELECT COUNT(*) FROM task_step").await, 0);
    assert_eq!(platform.fire_after(1_000).await, 1);
    platform.do_one("job", json!(1)).await;
}

async fn a_trigger_log_records_the_firing_and_not_what_became_of_it(platform: &Platform) {
    let schedule = platform.schedule(json!({"log": "trigger_log", "max_attempts": 1}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let run = platform.runs(&schedule).await.remove(0);
    assert_eq!((run.status, run.finished_at), (RunStatus::Done, Some(platform.now())));
    let claimed = platform.claim_one("job").await;
    assert_eq!(platform.task(claimed.id).await.run_id, Some(run.id));
    platform.finish(&claimed, Outcome::Error).await;
    assert_eq!(platform.runs(&schedule).await, [run]);
}

async fn a_run_of_one_task_ends_as_its_task_does(platform: &Platform) {
    let fields = json!({"max_attempts": 1});
    let schedule = platform.schedule(fields, vec![every(1_000)]).await;
    for (place, (outcome, status)) in [
        (Outcome::Success, RunStatus::Done),
        (Outcome::Failure, RunStatus::Failed),
        (Outcome::Error, RunStatus::Failed),
    ]
    .into_iter()
    .enumerate()
    {
        platform.fire_after(1_000).await;
        let claimed = platform.claim_one("job").await;
        platform.finish(&claimed, outcome).await;
        assert_eq!(platform.runs(&schedule).await[place].status, status);
    }
    platform.fire_after(1_000).await;
    let task = task_ids(&platform.runs(&schedule).await[3])[0];
    platform.act(task, Action::Cancel).await;
    assert_eq!(platform.runs(&schedule).await[3].status, RunStatus::Cancelled);
}

async fn a_released_or_retried_task_does_not_end_its_run(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    for outcome in [Outcome::Release, Outcome::Error] {
        let claimed = platform.claim_one("job").await;
        platform.finish(&claimed, outcome).await;
        assert_eq!(platform.runs(&schedule).await[0].status, RunStatus::Running);
        platform.advance_ms(20_000);
    }
}

async fn a_run_knows_its_task_after_that_was_purged(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let claimed = platform.do_one("job", json!(1)).await;
    assert!(matches!(platform.act(claimed.id, Action::Delete).await, Acted::Changed(_)));
    let run = platform.runs(&schedule).await.remove(0);
    assert_eq!((run.tasks[0].id, run.tasks[0].status), (Some(claimed.id), Some(Status::Success)));
}

async fn old_runs_are_purged_and_living_ones_stay(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    platform.fire_after(2_000).await;
    let claimed = platform.claim("job").await;
    platform.finish(&claimed[0], Outcome::Success).await;
    assert_eq!(platform.store.purge_runs(10_000).await.unwrap(), 0);
    platform.advance_ms(10_001);
    assert_eq!(platform.store.purge_runs(10_000).await.unwrap(), 1);
    assert_eq!(platform.run_statuses(&schedule).await, [(RunStatus::Running, None)]);
    assert_eq!(platform.raw().await.number("SELECT COUNT(*) FROM task_run").await, 1);
    platform.finish(&claimed[1], Outcome::Success).await;
    assert_eq!(platform.runs(&schedule).await[0].status, RunStatus::Done);
}

async fn runs_are_listed_newest_first_page_by_page_and_only_to_their_tenant(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    platform.fire_after(3_000).await;
    let ids: Vec<_> = platform.runs(&schedule).await.iter().map(|run| run.id).collect();
    let found = async |query: RunQuery| -> Vec<i64> {
        platform.store.runs(query).await.unwrap().iter().map(|run| run.id).collect()
    };
    let all = || RunQuery { limit: 10, ..RunQuery::default() };
    assert_eq!(found(RunQuery { limit: 2, ..all() }).await, [ids[2], ids[1]]);
    assert_eq!(found(RunQuery { before: Some(ids[1]), ..all() }).await, [ids[0]]);
    assert_eq!(found(RunQuery { tenant: Some("other".into()), ..all() }).await, Vec::<i64>::new());
    assert_eq!(found(RunQuery { status: Some(RunStatus::Done), ..all() }).await, Vec::<i64>::new());
    assert_eq!(platform.store.run(Some("other".into()), ids[0]).await.unwrap(), None);
}

async fn tasks_are_found_by_their_schedule(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    platform.submit(crate::support::task("job")).await;
    platform.fire_after(1_000).await;
    let filter = taskwheel_store::search::Filter { schedule_id: Some(schedule.id), ..Default::default() };
    let listing = taskwheel_store::search::Listing { filter, limit: 10, ..Default::default() };
    let found = platform.store.list(listing).await.unwrap().items;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].run_id, Some(platform.runs(&schedule).await[0].id));
}

facts![
    without_a_log_nothing_is_written_beyond_the_task,
    without_a_log_a_run_that_must_be_followed_is_forgotten_at_its_end,
    a_trigger_log_records_the_firing_and_not_what_became_of_it,
    a_run_of_one_task_ends_as_its_task_does,
    a_released_or_retried_task_does_not_end_its_run,
    a_run_knows_its_task_after_that_was_purged,
    old_runs_are_purged_and_living_ones_stay,
    runs_are_listed_newest_first_page_by_page_and_only_to_their_tenant,
    tasks_are_found_by_their_schedule,
];
