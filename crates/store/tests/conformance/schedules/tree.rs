//! Children: they start when their parent ended well, with its result.

use super::{every, tree};
use crate::facts;
use crate::support::{Platform, worker};
use serde_json::{Value, json};
use taskwheel_model::{Outcome, RunStatus, Status};
use taskwheel_store::people::Action;
use taskwheel_store::schedule::{Run, Schedule, ScheduleEdit};

/// a → (b → c, d → e).
fn family() -> Value {
    json!({"type": "a", "name": "a", "children": [
        {"type": "b", "payload": "\"for b\"", "children": [{"type": "c", "name": "third"}]},
        {"type": "d", "children": [{"type": "e"}]},
    ]})
}

async fn begun(platform: &Platform, fields: Value) -> (Schedule, i64) {
    let schedule = platform.schedule(fields, vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let id = platform.runs(&schedule).await[0].id;
    (schedule, id)
}

fn nodes(run: &Run) -> String {
    let word = |status: Option<Status>| status.map_or("-", Status::word).to_owned();
    tree(run).into_iter().map(|(name, status)| format!("{name} {}", word(status))).collect::<Vec<_>>().join(", ")
}

async fn children_start_side_by_side_with_the_result_of_their_parent(platform: &Platform) {
    let (schedule, id) = begun(platform, family()).await;
    assert_eq!(nodes(&platform.run(id).await), "a New, b -, third -, d -, e -");
    let root = platform.do_one("a", json!({"rows": 7})).await;
    assert_eq!(nodes(&platform.run(id).await), "a Success, b New, d New, third -, e -");
    let b = platform.do_one("b", json!("of b")).await;
    assert_eq!(b.context.parent, Some(json!({"id": root.id.0, "result": {"rows": 7}})));
    assert_eq!(b.payload.as_deref(), Some("\"for b\""));
    let c = platform.do_one("c", json!(null)).await;
    assert_eq!(c.context.parent, Some(json!({"id": b.id.0, "result": "of b"})));
    let task = platform.task(c.id).await;
    assert_eq!((task.parent_id, task.root_id, task.run_id), (Some(b.id), Some(root.id), Some(id)));
    assert_eq!(task.schedule_id, Some(schedule.id));
    assert_eq!(platform.run(id).await.status, RunStatus::Running, "d and e have not ended");
    platform.do_one("d", json!(1)).await;
    platform.do_one("e", json!(2)).await;
    let run = platform.run(id).await;
    assert_eq!((run.status, run.finished_at), (RunStatus::Done, Some(platform.now())));
}

async fn what_failed_stops_its_subtree_and_the_run_fails_when_all_has_ended(platform: &Platform) {
    let (_, id) = begun(platform, family()).await;
    platform.do_one("a", json!(1)).await;
    let b = platform.claim_one("b").await;
    let report = taskwheel_store::worker::Report::new(b.id, b.exec_id, Outcome::Failure);
    platform.report(taskwheel_store::worker::Report { error: Some("no paper".into()), ..report }).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Running);
    platform.do_one("d", json!(1)).await;
    platform.do_one("e", json!(1)).await;
    let run = platform.run(id).await;
    assert_eq!((run.status, run.error.as_deref()), (RunStatus::Failed, Some("no paper")));
    assert_eq!(nodes(&run), "a Success, b Failure, d Success, e Success, third -");
    assert!(platform.claim("c").await.is_empty());
}

async fn a_failed_node_that_is_retried_takes_its_run_up_again(platform: &Platform) {
    let (_, id) = begun(platform, json!({"type": "a", "children": [{"type": "b"}]})).await;
    let a = platform.claim_one("a").await;
    platform.finish(&a, Outcome::Failure).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Failed);
    platform.act(a.id, Action::Retry).await;
    let run = platform.run(id).await;
    assert_eq!((run.status, run.finished_at), (RunStatus::Running, None));
    platform.do_one("a", json!(1)).await;
    platform.do_one("b", json!(1)).await;
    let run = platform.run(id).await;
    assert_eq!((run.status, run.error), (RunStatus::Done, None));
}

async fn a_cancelled_task_that_is_retried_takes_its_run_up_again(platform: &Platform) {
    let (_, id) = begun(platform, json!({"type": "a", "children": [{"type": "b"}]})).await;
    let cancelled = platform.run(id).await.tasks[0].id.expect("its root has begun");
    platform.act(cancelled, Action::Cancel).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Cancelled);
    platform.act(cancelled, Action::Retry).await;
    let run = platform.run(id).await;
    assert_eq!((run.status, run.finished_at), (RunStatus::Running, None));
    platform.do_one("a", json!(1)).await;
    platform.do_one("b", json!(1)).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Done);
}

async fn a_run_of_one_cancelled_task_is_taken_up_again(platform: &Platform) {
    let (_, id) = begun(platform, json!({"type": "a"})).await;
    let cancelled = platform.run(id).await.tasks[0].id.expect("it has begun");
    platform.act(cancelled, Action::Cancel).await;
    platform.act(cancelled, Action::Retry).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Running);
    platform.do_one("a", json!(1)).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Done);
}

async fn a_cancelled_run_of_which_a_task_is_retried_goes_on_from_there(platform: &Platform) {
    let (_, id) = begun(platform, family()).await;
    platform.do_one("a", json!(1)).await;
    platform.do_one("b", json!(1)).await;
    let d = platform.claim_one("d").await;
    platform.cancel_run(id).await;
    platform.finish(&d, Outcome::Success).await;
    platform.act(d.id, Action::Retry).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Running);
    platform.do_one("d", json!(1)).await;
    platform.do_one("e", json!(1)).await;
    let run = platform.run(id).await;
    assert_eq!(nodes(&run), "a Success, b Success, d Success, third Cancelled, e Success");
    assert_eq!(run.status, RunStatus::Cancelled, "what else was cancelled stays so");
}

async fn a_failed_node_that_a_person_resolves_lets_its_run_go_on(platform: &Platform) {
    let (_, id) = begun(platform, json!({"type": "a", "children": [{"type": "b"}]})).await;
    let a = platform.claim_one("a").await;
    platform.finish(&a, Outcome::Failure).await;
    let resolve = Action::Resolve { remark: Some("done by hand".into()), result: Some("5".into()) };
    platform.act(a.id, resolve).await;
    let b = platform.do_one("b", json!(1)).await;
    assert_eq!(b.context.parent, Some(json!({"id": a.id.0, "result": 5})));
    assert_eq!(platform.run(id).await.status, RunStatus::Done);
}

async fn who_waits_for_a_person_has_ended_for_its_run(platform: &Platform) {
    let settings = taskwheel_model::TypeSettings { need_manual: true, ..Default::default() };
    platform.store.put_type("a".into(), settings).await.unwrap();
    let (_, id) = begun(platform, json!({"type": "a", "max_attempts": 1, "children": [{"type": "b"}]})).await;
    let a = platform.claim_one("a").await;
    platform.finish(&a, Outcome::Error).await;
    assert_eq!(platform.status(a.id).await, Status::Pending);
    assert_eq!(platform.run(id).await.status, RunStatus::Failed);
    platform.act(a.id, Action::Resolve { remark: None, result: None }).await;
    platform.do_one("b", json!(1)).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Done);
}

async fn a_disabled_child_is_left_out_with_its_subtree(platform: &Platform) {
    let fields = json!({"type": "a", "children": [{"type": "b", "enabled": false, "children": [{"type": "c"}]}]});
    let (_, id) = begun(platform, fields).await;
    platform.do_one("a", json!(1)).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Done);
    assert!(platform.claim_for(worker(&["b", "c"])).await.is_empty());
}

async fn cancelling_a_run_cancels_what_has_not_ended(platform: &Platform) {
    let (_, id) = begun(platform, family()).await;
    platform.do_one("a", json!(1)).await;
    platform.do_one("b", json!(1)).await;
    let d = platform.claim_one("d").await;
    let run = platform.cancel_run(id).await;
    assert_eq!((run.status, run.finished_at), (RunStatus::Cancelled, Some(platform.now())));
    assert_eq!(nodes(&run), "a Success, b Success, d Cancelled, third Cancelled, e -");
    platform.finish(&d, Outcome::Success).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Cancelled);
    assert!(platform.claim_for(worker(&["c", "e"])).await.is_empty());
}

async fn an_edit_does_not_reach_a_run_that_has_begun(platform: &Platform) {
    let (schedule, id) = begun(platform, json!({"type": "a", "children": [{"type": "b"}]})).await;
    let fields = json!({"children": [{"type": "x"}]}).as_object().unwrap().clone();
    platform.edit_schedule(schedule.id, ScheduleEdit { fields, ..ScheduleEdit::default() }).await;
    platform.do_one("a", json!(1)).await;
    platform.do_one("b", json!(1)).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Done);
    platform.fire_after(1_000).await;
    platform.do_one("a", json!(1)).await;
    platform.do_one("x", json!(1)).await;
}

async fn a_run_whose_time_limit_ran_out_for_good_timed_out(platform: &Platform) {
    let (_, id) = begun(platform, json!({"type": "a", "timeout_ms": 1_000, "max_attempts": 1})).await;
    platform.claim_one("a").await;
    platform.advance_ms(1_001);
    platform.rescue().await;
    let run = platform.run(id).await;
    assert_eq!(run.status, RunStatus::TimedOut);
    assert_eq!(run.error.as_deref(), Some("the time limit of the attempt ran out"));
}

async fn children_start_exactly_once_when_all_shards_end_at_once(platform: &Platform) {
    let (_, id) = begun(platform, json!({"type": "a", "shards": 20, "children": [{"type": "b"}]})).await;
    let shards = platform.claim("a").await;
    assert_eq!(shards.len(), 20);
    let reports = shards.iter().map(|shard| {
        let store = platform.store.clone();
        let report = taskwheel_store::worker::Report::new(shard.id, shard.exec_id, Outcome::Success);
        tokio::spawn(async move { store.finish(vec![report]).await.expect("the report goes through") })
    });
    for report in reports.collect::<Vec<_>>() {
        report.await.unwrap();
    }
    platform.do_one("b", json!(1)).await;
    assert_eq!(platform.run(id).await.status, RunStatus::Done);
}

facts![
    children_start_side_by_side_with_the_result_of_their_parent,
    what_failed_stops_its_subtree_and_the_run_fails_when_all_has_ended,
    a_failed_node_that_is_retried_takes_its_run_up_again,
    a_cancelled_task_that_is_retried_takes_its_run_up_again,
    a_run_of_one_cancelled_task_is_taken_up_again,
    a_cancelled_run_of_which_a_task_is_retried_goes_on_from_there,
    a_failed_node_that_a_person_resolves_lets_its_run_go_on,
    who_waits_for_a_person_has_ended_for_its_run,
    a_disabled_child_is_left_out_with_its_subtree,
    cancelling_a_run_cancels_what_has_not_ended,
    an_edit_does_not_reach_a_run_that_has_begun,
    a_run_whose_time_limit_ran_out_for_good_timed_out,
    children_start_exactly_once_when_all_shards_end_at_once,
];
