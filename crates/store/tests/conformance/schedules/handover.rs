//! Firings with claims that wait: one transaction fires and hands out what is due.

use super::every;
use crate::facts;
use crate::support::{Platform, task, worker};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_model::{NewTask, Outcome, RunStatus, Status};
use taskwheel_store::schedule::Fired;
use taskwheel_store::worker::{ClaimRequest, ClaimedTask, Report, Reported};

async fn fire_for(platform: &Platform, requests: Vec<ClaimRequest>) -> (Fired, Vec<Vec<ClaimedTask>>) {
    platform.store.fire_and_claim(100, requests.into_iter().map(Arc::new).collect()).await.expect("it fires")
}

/// A claim that found nothing just now: its worker's call is written down.
async fn waiting(platform: &Platform, request: ClaimRequest) -> ClaimRequest {
    assert_eq!(platform.claim_ids(request.clone()).await, []);
    request
}

async fn what_fires_is_handed_to_the_claims_that_wait(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000); 3]).await;
    platform.advance_ms(1_000);
    let other = ClaimRequest { worker_id: "other".into(), ..worker(&["other"]) };
    let mine = ClaimRequest { max: 2, ..worker(&["job"]) };
    let unknown = ClaimRequest { worker_id: "unknown".into(), ..mine.clone() };
    let (other, mine) = (waiting(platform, other).await, waiting(platform, mine).await);
    let (fired, claimed) = fire_for(platform, vec![unknown, mine, other]).await;
    assert_eq!((fired.runs, fired.more, fired.types), (3, false, vec!["job".to_owned()]));
    let [unknown, mine, other] = &*claimed else { panic!("an answer for each, not {claimed:?}") };
    assert_eq!((unknown.len(), mine.len(), other.len()), (0, 2, 0), "no firing writes down who calls");
    for one in mine {
        assert_eq!((one.run_at, one.started_at, one.attempt), (platform.now(), platform.now(), 1));
        assert_eq!(platform.task(one.id).await.exec_id, Some(one.exec_id));
        platform.finish(one, Outcome::Success).await;
    }
    let launched = tokio::time::timeout(Duration::from_secs(10), platform.store.launched()).await;
    assert_eq!(launched.expect("one is left to be told of")["job"], 1);
    assert_eq!(platform.claim("job").await.len(), 1, "it waits for whoever comes");
    let statuses = platform.runs(&schedule).await.into_iter().map(|run| run.status);
    assert_eq!(statuses.filter(|status| *status == RunStatus::Done).count(), 2);
    assert_eq!(platform.store.contradictions().await.unwrap(), 0);
}

async fn who_takes_something_else_leaves_the_rest_to_others(platform: &Platform) {
    platform.schedule(json!({}), vec![every(1_000)]).await;
    platform.advance_ms(1_000);
    let request = waiting(platform, ClaimRequest { max: 1, ..worker(&["job"]) }).await;
    let urgent = platform.submit(NewTask { priority: Some(9), ..task("job") }).await;
    let (_, claimed) = fire_for(platform, vec![request]).await;
    assert_eq!(claimed.concat().iter().map(|task| task.id).collect::<Vec<_>>(), [urgent]);
    let launched = tokio::time::timeout(Duration::from_secs(10), platform.store.launched()).await;
    assert_eq!(launched.expect("what fired is told of")["job"], 1);
}

async fn where_nothing_fires_nobody_is_answered(platform: &Platform) {
    let request = waiting(platform, worker(&["job"])).await;
    let waits = platform.submit(task("job")).await;
    platform.schedule(json!({}), vec![every(1_000)]).await;
    let (fired, claimed) = fire_for(platform, vec![request]).await;
    assert_eq!((fired.runs, claimed.concat()), (0, Vec::new()));
    assert_eq!(platform.status(waits).await, Status::New);
}

async fn a_claim_that_is_refused_does_not_hold_up_the_firing(platform: &Platform) {
    let of_a = ClaimRequest { owner: Some("a".into()), ..worker(&["job"]) };
    platform.store.claim(vec![of_a.clone()]).await.unwrap();
    platform.schedule(json!({}), vec![every(1_000)]).await;
    platform.advance_ms(1_000);
    let of_b = ClaimRequest { owner: Some("b".into()), ..of_a.clone() };
    let (fired, claimed) = fire_for(platform, vec![of_b]).await;
    assert_eq!((fired.runs, claimed.concat()), (1, Vec::new()));
    assert_eq!(platform.claim_ids(of_a).await.len(), 1);
}

async fn successes_of_runs_and_of_single_tasks_end_together(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000); 5]).await;
    platform.fire_after(1_000).await;
    platform.submit_all((0..5).map(|_| task("job")).collect()).await;
    let claimed = platform.claim("job").await;
    let report = |one: &ClaimedTask| Report::new(one.id, one.exec_id, Outcome::Success);
    let mut reports: Vec<_> = claimed.iter().map(report).collect();
    let stale = Report { exec_id: claimed[1].exec_id, ..report(&claimed[0]) };
    reports.insert(3, stale);
    let mut answers = platform.store.finish(reports.clone()).await.unwrap();
    assert_eq!(answers.remove(3), Reported::Superseded(Some(Status::Success)));
    assert_eq!(answers, vec![Reported::Accepted(Status::Success); 10]);
    for one in &claimed {
        assert_eq!(platform.status(one.id).await, Status::Success);
    }
    assert!(platform.runs(&schedule).await.iter().all(|run| run.status == RunStatus::Done));
    reports.remove(3);
    let again = platform.store.finish(reports).await.unwrap();
    assert_eq!(again, vec![Reported::Accepted(Status::Success); 10], "a repeated report changes nothing");
    assert_eq!(platform.store.contradictions().await.unwrap(), 0);
}

facts![
    what_fires_is_handed_to_the_claims_that_wait,
    who_takes_something_else_leaves_the_rest_to_others,
    where_nothing_fires_nobody_is_answered,
    a_claim_that_is_refused_does_not_hold_up_the_firing,
    successes_of_runs_and_of_single_tasks_end_together,
];
