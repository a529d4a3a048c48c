//! Edit: changed settings count from the next decision on.

use crate::facts;
use crate::support::{Platform, due_in, eventually, task, worker};
use taskwheel_model::{NewTask, Outcome, RetryPolicy, Status};
use taskwheel_store::Rescued;
use taskwheel_store::people::{Acted, Action, Edit};
use taskwheel_store::worker::{Renewed, Report, Reported};

async fn edit(platform: &Platform, id: taskwheel_model::TaskId, edit: Edit) {
    assert!(matches!(platform.act(id, Action::Edit(edit)).await, Acted::Changed(_)));
}

async fn every_field_of_a_waiting_task_can_be_edited(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    let now = platform.now();
    let changed = Edit {
        run_at: Some(now.plus_ms(9_000)),
        priority: Some(8),
        payload: Some(Some(r#"{"b": "é\u0000"}"#.into())),
        expire_at: Some(Some(now.plus_ms(90_000))),
        max_attempts: Some(Some(-1)),
        retry: Some(Some(RetryPolicy::Fixed { delay_ms: 3 })),
        timeout_ms: Some(Some(777)),
        remark: Some(Some("looked at".into())),
    };
    platform.advance_ms(5);
    edit(platform, id, changed).await;
    let shown = platform.task(id).await;
    assert_eq!((shown.run_at, shown.priority, shown.expire_at), (now.plus_ms(9_000), 8, Some(now.plus_ms(90_000))));
    assert_eq!(shown.payload.as_deref(), Some(r#"{"b": "é\u0000"}"#));
    assert_eq!((shown.max_attempts, shown.timeout_ms), (Some(-1), Some(777)));
    assert_eq!((shown.retry, shown.remark.as_deref()), (Some(RetryPolicy::Fixed { delay_ms: 3 }), Some("looked at")));
    assert_eq!((shown.created_at, shown.updated_at), (now, platform.now()));
    platform.advance_ms(8_995);
    let claimed = platform.claim_one("mail").await;
    assert_eq!((claimed.priority, claimed.timeout_ms), (8, 777));
    assert_eq!(claimed.payload.as_deref(), Some(r#"{"b": "é\u0000"}"#));
}

async fn cleared_fields_follow_the_type_again(platform: &Platform) {
    let given = NewTask {
        payload: Some("1".into()),
        expire_at: Some(platform.now().plus_ms(5)),
        max_attempts: Some(9),
        retry: Some(RetryPolicy::None),
        timeout_ms: Some(5),
        ..task("mail")
    };
    let id = platform.submit(given).await;
    let cleared = Edit {
        payload: Some(None),
        expire_at: Some(None),
        max_attempts: Some(None),
        retry: Some(None),
        timeout_ms: Some(None),
        ..Edit::default()
    };
    edit(platform, id, cleared).await;
    let shown = platform.task(id).await;
    assert_eq!((shown.payload, shown.expire_at, shown.max_attempts), (None, None, Some(3)));
    assert_eq!((shown.retry, shown.timeout_ms), (Some(RetryPolicy::BUILT_IN), Some(-1)));
}

async fn an_edited_time_and_priority_change_the_order_of_claims(platform: &Platform) {
    let ids = platform.submit_all(vec![task("mail"), task("mail"), due_in("mail", 60_000)]).await;
    edit(platform, ids[1], Edit { priority: Some(5), ..Edit::default() }).await;
    edit(platform, ids[2], Edit { run_at: Some(platform.now().plus_ms(-10)), ..Edit::default() }).await;
    assert_eq!(platform.claim_ids(worker(&["mail"])).await, [ids[1], ids[2], ids[0]]);
}

async fn a_task_moved_into_the_future_is_not_due(platform: &Platform) {
    let id = platform.submit(task("mail")).await;
    edit(platform, id, Edit { run_at: Some(platform.now().plus_ms(1_000)), ..Edit::default() }).await;
    assert!(platform.claim("mail").await.is_empty());
    platform.advance_ms(1_000);
    assert_eq!(platform.claim_one("mail").await.id, id);
}

async fn while_it_executes_an_edit_counts_from_the_next_attempt_on(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let changed = Edit {
        payload: Some(Some("2".into())),
        priority: Some(6),
        timeout_ms: Some(Some(50)),
        retry: Some(Some(RetryPolicy::Fixed { delay_ms: 7 })),
        ..Edit::default()
    };
    edit(platform, claimed.id, changed).await;
    assert!(matches!(platform.renew(&claimed).await, Renewed::Ok(_)));
    platform.advance_ms(1_000);
    assert_eq!(platform.rescue().await, Rescued::default(), "this attempt has no limit, and the lease of one without");
    assert_eq!(platform.finish(&claimed, Outcome::Error).await, Reported::Accepted(Status::Error));
    assert_eq!(platform.task(claimed.id).await.run_at, platform.now().plus_ms(7));
    platform.advance_ms(7);
    let next = platform.claim_one("mail").await;
    assert_eq!((next.payload.as_deref(), next.priority, next.timeout_ms), (Some("2"), 6, 50));
    platform.advance_ms(50);
    assert_eq!(platform.rescue().await.timed_out, 1);
}

async fn a_lowered_maximum_ends_the_task_at_its_next_claim(platform: &Platform) {
    platform.maximum_is_lowered();
    let claimed = platform.start(NewTask { max_attempts: Some(5), ..task("mail") }).await;
    platform.finish(&claimed, Outcome::Error).await;
    platform.advance_ms(10_000);
    let claimed = platform.claim_one("mail").await;
    platform.finish(&claimed, Outcome::Error).await;
    edit(platform, claimed.id, Edit { max_attempts: Some(Some(1)), ..Edit::default() }).await;
    platform.advance_ms(20_000);
    assert!(platform.claim("mail").await.is_empty(), "never a third attempt");
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.status, shown.attempts), (Status::Failure, 2));
    assert!(shown.error_info.is_some());
}

async fn a_raised_maximum_gives_more_attempts(platform: &Platform) {
    let claimed = platform.start(NewTask { max_attempts: Some(1), ..task("mail") }).await;
    edit(platform, claimed.id, Edit { max_attempts: Some(Some(2)), ..Edit::default() }).await;
    assert_eq!(platform.finish(&claimed, Outcome::Error).await, Reported::Accepted(Status::Error));
}

async fn a_pending_task_can_be_edited_and_then_retried(platform: &Platform) {
    let settings = taskwheel_model::TypeSettings { need_manual: true, max_attempts: Some(1), ..Default::default() };
    platform.store.put_type("mail".into(), settings).await.unwrap();
    let claimed = platform.start(NewTask { payload: Some("1".into()), ..task("mail") }).await;
    platform.finish(&claimed, Outcome::Error).await;
    let changed = Edit { payload: Some(Some("2".into())), priority: Some(9), ..Edit::default() };
    edit(platform, claimed.id, changed).await;
    assert_eq!(platform.status(claimed.id).await, Status::Pending);
    assert!(platform.claim("mail").await.is_empty());
    platform.act(claimed.id, Action::Retry).await;
    let next = platform.claim_one("mail").await;
    assert_eq!((next.payload.as_deref(), next.priority, next.round), (Some("2"), 9, 2));
}

async fn a_remark_does_not_touch_a_running_execution(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let before = platform.task(claimed.id).await;
    edit(platform, claimed.id, Edit { remark: Some(Some("slow".into())), ..Edit::default() }).await;
    let after = platform.task(claimed.id).await;
    assert_eq!((after.exec_id, after.lease_until, after.run_at), (before.exec_id, before.lease_until, before.run_at));
    assert_eq!(platform.finish(&claimed, Outcome::Success).await, Reported::Accepted(Status::Success));
    assert_eq!(platform.task(claimed.id).await.remark.as_deref(), Some("slow"));
}

/// An edit as another node makes it, which a report of the same task finds under way and waits for.
async fn an_edit_that_a_report_waited_for_stays(platform: &Platform) {
    let claimed = platform.start(task("mail")).await;
    let mut other = platform.raw().await;
    other.run("BEGIN").await;
    other.run("UPDATE task_running SET rank = 2, updated_at = updated_at + 1").await;
    other.run("UPDATE task SET priority = 7, max_attempts = 9, remark = 'raised'").await;
    let (store, report) = (platform.store.clone(), Report::new(claimed.id, claimed.exec_id, Outcome::Error));
    let waits = tokio::spawn(async move { store.finish(vec![report]).await });
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually("the report waits", || async { (platform.raw().await.number(waiting).await > 0).then_some(()) }).await;
    other.run("COMMIT").await;
    assert_eq!(waits.await.unwrap().unwrap(), [Reported::Accepted(Status::Error)]);
    let shown = platform.task(claimed.id).await;
    assert_eq!((shown.priority, shown.max_attempts, shown.remark.as_deref()), (7, Some(9), Some("raised")));
}

facts![
    every_field_of_a_waiting_task_can_be_edited,
    cleared_fields_follow_the_type_again,
    an_edited_time_and_priority_change_the_order_of_claims,
    a_task_moved_into_the_future_is_not_due,
    while_it_executes_an_edit_counts_from_the_next_attempt_on,
    a_lowered_maximum_ends_the_task_at_its_next_claim,
    a_raised_maximum_gives_more_attempts,
    a_pending_task_can_be_edited_and_then_retried,
    a_remark_does_not_touch_a_running_execution,
];

crate::facts! { in edits_of_postgres on Postgres: an_edit_that_a_report_waited_for_stays }
