//! Changes: what an edit keeps, what it moves, and that the next firing honours it, wherever that is.

use super::{definition, every};
use crate::facts;
use crate::support::{Platform, Raw, eventually};
use serde_json::{Map, Value, json};
use taskwheel_model::{Outcome, RunStatus, ScheduleStatus, Timer, TimerSpec};
use taskwheel_store::StoreError;
use taskwheel_store::access::{Actor, AuditQuery};
use taskwheel_store::schedule::{NewSchedule, ScheduleEdit, ScheduleQuery};
use tokio::sync::Mutex;

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn with_timers(timers: Vec<(Option<i64>, Timer)>) -> ScheduleEdit {
    ScheduleEdit { timers: Some(timers), ..ScheduleEdit::default() }
}

async fn a_schedule_is_shown_as_it_was_made(platform: &Platform) {
    let made = platform.schedule(json!({"payload": "[1]", "children": [{"type": "b"}]}), vec![every(1_000)]).await;
    let (shown, now) = platform.store.schedule(Some("default".into()), made.id).await.unwrap().unwrap();
    assert_eq!((shown, now), (made.clone(), platform.now()));
    assert_eq!(platform.store.schedule(Some("other".into()), made.id).await.unwrap(), None);
    assert_eq!(platform.store.schedules(ScheduleQuery { limit: 10, ..Default::default() }).await.unwrap(), [made]);
}

async fn schedules_are_listed_page_by_page_and_by_what_they_are(platform: &Platform) {
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(platform.schedule(json!({"name": name, "type": format!("{name}-job")}), vec![every(1_000)]).await.id);
    }
    platform.set_schedule(ids[1], ScheduleStatus::Offline).await;
    let found = async |query: ScheduleQuery| -> Vec<i64> {
        let query = ScheduleQuery { limit: if query.limit == 0 { 10 } else { query.limit }, ..query };
        platform.store.schedules(query).await.unwrap().iter().map(|one| one.id).collect()
    };
    let all = ScheduleQuery::default;
    assert_eq!(found(ScheduleQuery { limit: 2, ..all() }).await, [ids[2], ids[1]]);
    assert_eq!(found(ScheduleQuery { before: Some(ids[1]), ..all() }).await, [ids[0]]);
    assert_eq!(found(ScheduleQuery { name: Some("b".into()), ..all() }).await, [ids[1]]);
    assert_eq!(found(ScheduleQuery { task_type: Some("c-job".into()), ..all() }).await, [ids[2]]);
    assert_eq!(found(ScheduleQuery { status: Some(ScheduleStatus::Offline), ..all() }).await, [ids[1]]);
    assert_eq!(found(ScheduleQuery { tenant: Some("other".into()), ..all() }).await, Vec::<i64>::new());
}

async fn offline_fires_nothing_and_what_passed_meanwhile_was_not_missed(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    let start = platform.now();
    platform.set_schedule(schedule.id, ScheduleStatus::Offline).await;
    assert_eq!(platform.fire_after(60_500).await, 0);
    let online = platform.set_schedule(schedule.id, ScheduleStatus::Online).await;
    assert_eq!(online.timers[0].next_due, Some(start.plus_ms(61_000)), "the grid stays");
    assert_eq!(platform.fire_after(500).await, 1);
    assert_eq!(platform.run_statuses(&schedule).await, [(RunStatus::Running, None)]);
}

async fn a_new_schedule_begins_when_it_comes_online(platform: &Platform) {
    let (definition, timers) = (definition(json!({})), vec![Timer::new(TimerSpec::OnceAfter { delay_ms: 1_000 })]);
    let new = NewSchedule { tenant: "default".into(), definition, timers, status: ScheduleStatus::New };
    let made = platform.store.create_schedule(Actor::application(), new).await.unwrap();
    assert_eq!((made.timers[0].next_due, made.timers[0].has_begun), (None, false));
    assert_eq!(platform.fire_after(5_000).await, 0);
    platform.set_schedule(made.id, ScheduleStatus::Online).await;
    assert_eq!(platform.fire_after(999).await, 0);
    assert_eq!(platform.fire_after(1).await, 1);
}

async fn an_unchanged_timer_keeps_its_cursor_and_a_changed_one_begins_anew(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(10_000), every(20_000)]).await;
    platform.advance_ms(3_000);
    let [kept, changed] = [&schedule.timers[0], &schedule.timers[1]];
    let given = vec![(Some(changed.id), every(5_000)), (Some(kept.id), every(10_000)), (None, every(7_000))];
    let edited = platform.edit_schedule(schedule.id, with_timers(given)).await;
    assert_eq!(edited.timers.len(), 3);
    assert_eq!(edited.timers[1], *kept);
    assert_eq!(edited.timers[0].next_due, Some(platform.now().plus_ms(5_000)));
    assert_eq!(edited.timers[2].next_due, Some(platform.now().plus_ms(7_000)));
    let (shown, _) = platform.store.schedule(None, schedule.id).await.unwrap().unwrap();
    assert_eq!(shown.timers, edited.timers);
    let nothing = platform.edit_schedule(schedule.id, with_timers(Vec::new())).await;
    assert!(nothing.timers.is_empty());
    assert_eq!(platform.fire_after(60_000).await, 0);
}

async fn a_timer_of_another_schedule_is_refused(platform: &Platform) {
    let (one, other) = (
        platform.schedule(json!({}), vec![every(1_000)]).await,
        platform.schedule(json!({}), vec![every(1_000)]).await,
    );
    let edit = with_timers(vec![(Some(other.timers[0].id), every(1_000))]);
    let refused = platform.store.edit_schedule(Actor::application(), None, one.id, edit).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Invalid { errors, .. } if errors[0].field == "timers[0].id"), "{refused}");
    assert_eq!(platform.store.schedule(None, one.id).await.unwrap().unwrap().0, one);
}

async fn the_next_firing_honours_an_edit_made_at_another_node(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    let other = platform.open_again(|_| ()).await.unwrap();
    let edit = ScheduleEdit { fields: fields(json!({"payload": "2", "priority": 9})), ..ScheduleEdit::default() };
    other.edit_schedule(Actor::application(), None, schedule.id, edit).await.unwrap().unwrap();
    platform.fire_after(1_000).await;
    let claimed = platform.claim_one("job").await;
    assert_eq!((claimed.payload.as_deref(), claimed.priority), (Some("2"), 9));
    assert!(other.delete_schedule(Actor::application(), None, schedule.id).await.unwrap());
    assert_eq!(platform.fire_after(10_000).await, 0);
    assert_eq!(platform.runs(&schedule).await[0].status, RunStatus::Running, "a run that has begun goes on");
    platform.finish(&claimed, Outcome::Success).await;
    assert_eq!(platform.runs(&schedule).await[0].status, RunStatus::Done);
}

async fn deleting_a_schedule_cancels_what_is_queued(platform: &Platform) {
    let schedule = platform.schedule(json!({"overlap": "queue"}), vec![every(1_000)]).await;
    platform.fire_after(2_000).await;
    assert!(platform.store.delete_schedule(Actor::application(), Some("default".into()), schedule.id).await.unwrap());
    let cancelled = (RunStatus::Cancelled, Some("schedule_deleted".to_owned()));
    assert_eq!(platform.run_statuses(&schedule).await, [(RunStatus::Running, None), cancelled]);
    let claimed = platform.claim_one("job").await;
    platform.finish(&claimed, Outcome::Success).await;
    assert!(platform.claim("job").await.is_empty());
    assert!(!platform.store.delete_schedule(Actor::application(), None, schedule.id).await.unwrap());
}

async fn bad_input_is_named_and_changes_nothing(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    for (given, field) in [
        (json!({"name": ""}), "name"),
        (json!({"type": "a b"}), "type"),
        (json!({"priority": 10}), "priority"),
        (json!({"timeout_ms": 0}), "timeout_ms"),
        (json!({"misfire": {"policy": "catch_up", "max": 0}}), "misfire.max"),
        (json!({"shards": 0}), "shards"),
        (json!({"children": [{"type": ""}]}), "children[0].type"),
    ] {
        let edit = ScheduleEdit { fields: fields(given), ..ScheduleEdit::default() };
        let refused = platform.store.edit_schedule(Actor::application(), None, schedule.id, edit).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Invalid { errors, .. } if errors[0].field == field), "{refused:?}");
    }
    let bad = Timer::new(TimerSpec::FixedRate { period_ms: 0, initial_delay_ms: 0 });
    let edit = with_timers(vec![(None, every(1_000)), (None, bad)]);
    let refused = platform.store.edit_schedule(Actor::application(), None, schedule.id, edit).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Invalid { errors, .. } if errors[0].field == "timers[1].period_ms"));
    let edit = with_timers(vec![(None, every(1_000)); 21]);
    assert!(platform.store.edit_schedule(Actor::application(), None, schedule.id, edit).await.is_err());
    assert_eq!(platform.store.schedule(None, schedule.id).await.unwrap().unwrap().0, schedule);
}

async fn every_change_is_in_the_log(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    let edit = ScheduleEdit { fields: fields(json!({"priority": 3})), ..ScheduleEdit::default() };
    // The order of the log is that of time.
    platform.advance_ms(1);
    platform.edit_schedule(schedule.id, edit.clone()).await;
    platform.edit_schedule(schedule.id, edit).await;
    platform.advance_ms(1);
    platform.set_schedule(schedule.id, ScheduleStatus::Offline).await;
    platform.advance_ms(1);
    platform.run_now(&schedule).await;
    platform.advance_ms(1);
    platform.cancel_run(platform.runs(&schedule).await[0].id).await;
    platform.advance_ms(1);
    platform.store.delete_schedule(Actor::application(), None, schedule.id).await.unwrap();
    let log = platform.store.audit(AuditQuery { limit: 20, ..AuditQuery::default() }).await.unwrap();
    let actions: Vec<_> = log.iter().rev().map(|line| line.action.as_str()).collect();
    assert_eq!(
        actions,
        ["schedule.create", "schedule.edit", "schedule.offline", "schedule.run", "run.cancel", "schedule.delete"]
    );
    assert_eq!(log[4].after["priority"], json!(3));
}

/// Waits until somebody waits for what a connection has locked.
async fn is_waited_for(holder: &mut Raw, looker: &mut Raw) {
    let pid = holder.number("SELECT pg_backend_pid()").await;
    let looker = Mutex::new(looker);
    let waits = format!("SELECT count(*) FROM pg_stat_activity WHERE {pid} = ANY(pg_blocking_pids(pid))");
    eventually("somebody waits", || async { (looker.lock().await.number(&waits).await > 0).then_some(()) }).await;
}

async fn an_edit_reaches_timers_that_came_and_fired_while_it_waited(platform: &Platform) {
    let id = platform.schedule(json!({}), vec![every(10_000)]).await.id;
    let (mut other_edit, mut holder) = (platform.raw().await, platform.raw().await);
    let (mut firing, mut looker) = (platform.raw().await, platform.raw().await);
    other_edit.run("BEGIN").await;
    other_edit.rows("SELECT id FROM task_timer FOR UPDATE").await;
    let add = "INSERT INTO task_timer (id, schedule_id, version, place, spec, has_begun, cursor_at, next_due)
               SELECT id + 1, schedule_id, version, 1, spec, has_begun, cursor_at, next_due FROM task_timer";
    other_edit.run(add).await;
    holder.run("BEGIN").await;
    holder.rows("SELECT id FROM task_schedule FOR UPDATE").await;
    let (store, offline) = (platform.store.clone(), Some(ScheduleStatus::Offline));
    let edit = ScheduleEdit { status: offline, ..ScheduleEdit::default() };
    let edit = tokio::spawn(async move { store.edit_schedule(Actor::application(), None, id, edit).await });
    is_waited_for(&mut other_edit, &mut looker).await;
    other_edit.run("COMMIT").await;
    is_waited_for(&mut holder, &mut looker).await;
    firing.run("BEGIN").await;
    firing
        .run("UPDATE task_timer SET cursor_at = cursor_at + 10000, next_due = next_due + 10000 WHERE place = 1")
        .await;
    holder.run("ROLLBACK").await;
    is_waited_for(&mut firing, &mut looker).await;
    firing.run("COMMIT").await;
    edit.await.expect("it ends").expect("the edit goes through");
    assert_eq!(looker.number("SELECT count(*) FROM task_timer WHERE next_due IS NOT NULL").await, 0, "none may fire");
}

crate::facts! { in crossed_on_postgres on Postgres: an_edit_reaches_timers_that_came_and_fired_while_it_waited }

facts![
    a_schedule_is_shown_as_it_was_made,
    schedules_are_listed_page_by_page_and_by_what_they_are,
    offline_fires_nothing_and_what_passed_meanwhile_was_not_missed,
    a_new_schedule_begins_when_it_comes_online,
    an_unchanged_timer_keeps_its_cursor_and_a_changed_one_begins_anew,
    a_timer_of_another_schedule_is_refused,
    the_next_firing_honours_an_edit_made_at_another_node,
    deleting_a_schedule_cancels_what_is_queued,
    bad_input_is_named_and_changes_nothing,
    every_change_is_in_the_log,
];
