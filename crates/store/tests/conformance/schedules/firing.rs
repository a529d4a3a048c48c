//! Each due time fires once, whoever looks and however late.

use super::{after, every};
use crate::facts;
use crate::support::Platform;
use serde_json::json;
use std::collections::HashSet;
use taskwheel_model::{Outcome, RunStatus, Status, Time, Timer, TimerSpec};
use taskwheel_store::people::Action;

async fn a_due_timer_begins_a_run_with_its_task(platform: &Platform) {
    let fields = json!({"payload": "{\"to\":1}", "key": "k", "creator": "me", "priority": 7, "max_attempts": 5});
    let schedule = platform.schedule(fields, vec![every(1_000)]).await;
    let due = platform.now().plus_ms(1_000);
    assert_eq!(schedule.timers[0].next_due, Some(due));
    assert_eq!(platform.fire_after(999).await, 0);
    assert_eq!(platform.fire_after(1).await, 1);
    let claimed = platform.claim_one("job").await;
    assert_eq!((claimed.run_at, claimed.priority, claimed.key.as_deref()), (due, 7, Some("k")));
    assert_eq!(claimed.payload.as_deref(), Some("{\"to\":1}"));
    let run = platform.runs(&schedule).await.remove(0);
    assert_eq!((run.due_at, run.status, run.started_at), (due, RunStatus::Running, Some(platform.now())));
    let task = platform.task(claimed.id).await;
    assert_eq!((task.schedule_id, task.run_id, task.max_attempts), (Some(schedule.id), Some(run.id), Some(5)));
    platform.advance_ms(7);
    platform.finish(&claimed, Outcome::Success).await;
    let run = platform.run(run.id).await;
    assert_eq!(
        (run.status, run.finished_at, run.host.as_deref()),
        (RunStatus::Done, Some(platform.now()), Some("host"))
    );
}

async fn nothing_fires_twice_and_nothing_is_left_out_when_many_look_at_once(platform: &Platform) {
    const SCHEDULES: usize = 20;
    let mut schedules = Vec::new();
    for _ in 0..SCHEDULES {
        schedules.push(platform.schedule(json!({}), vec![every(1_000), every(1_500)]).await);
    }
    let stores = [platform.open_again(|_| ()).await, platform.open_again(|_| ()).await].map(Result::unwrap);
    for _ in 0..6 {
        platform.advance_ms(1_500);
        let looks = [&platform.store, &stores[0], &stores[1], &platform.store].map(|store| {
            let store = store.clone();
            // What others had locked is found by the next look, as an engine's.
            tokio::spawn(async move {
                loop {
                    let fired = store.fire(7).await.expect("the firing goes through");
                    let is_late = fired.next_due.is_some_and(|due| due <= fired.now);
                    if !fired.more && fired.runs == 0 && !is_late {
                        break;
                    }
                }
            })
        });
        for look in looks {
            look.await.unwrap();
        }
    }
    for schedule in &schedules {
        let runs = platform.runs(schedule).await;
        let dues: Vec<_> = runs.iter().map(|run| (run.timer_id, run.due_at)).collect();
        assert_eq!(dues.iter().collect::<HashSet<_>>().len(), dues.len(), "a due time fired twice");
        assert_eq!(runs.len(), 9 + 6, "9 times every second and 6 times every one and a half");
    }
    assert_eq!(platform.claim("job").await.len(), SCHEDULES * 15);
}

/// The misfire policies, after ten due times of which nine are too late.
async fn what_was_missed_fires_as_the_policy_says(platform: &Platform) {
    let policies = [
        (json!({"policy": "skip"}), vec![10], "9 due times"),
        (json!({"policy": "fire_once"}), vec![9, 10], "9 due times"),
        (json!({"policy": "catch_up", "max": 3}), vec![7, 8, 9, 10], "9 due times"),
    ];
    let start = platform.now();
    let mut schedules = Vec::new();
    for (misfire, fired, told) in policies {
        schedules.push((platform.schedule(json!({"misfire": misfire}), vec![every(10_000)]).await, fired, told));
    }
    platform.fire_after(100_000).await;
    for (schedule, fired, told) in schedules {
        let runs = platform.runs(&schedule).await;
        let begun = runs.iter().filter(|run| run.status == RunStatus::Running);
        let begun: Vec<_> = begun.map(|run| run.due_at.ms_since(start) / 10_000).collect();
        assert_eq!(begun, fired);
        let skipped: Vec<_> = runs.iter().filter(|run| run.status == RunStatus::Skipped).collect();
        assert_eq!(skipped.len(), 1);
        assert_eq!(skipped[0].reason.as_deref(), Some("misfire"));
        assert!(skipped[0].error.as_deref().unwrap_or_default().starts_with(told), "{:?}", skipped[0].error);
    }
}

async fn all_that_was_missed_is_caught_up_without_a_word(platform: &Platform) {
    let schedule = platform.schedule(json!({"misfire": {"policy": "catch_up"}}), vec![every(10_000)]).await;
    platform.fire_after(100_000).await;
    assert!(platform.runs(&schedule).await.iter().all(|run| run.status == RunStatus::Running));
    assert_eq!(platform.runs(&schedule).await.len(), 10);
}

async fn a_fixed_delay_counts_from_the_end_of_its_run_with_its_retries(platform: &Platform) {
    let fields = json!({"retry": {"strategy": "fixed", "delay_ms": 3_000}});
    let schedule = platform.schedule(fields, vec![after(1_000)]).await;
    assert_eq!(platform.fire_after(1_000).await, 1);
    assert_eq!(platform.fire_after(60_000).await, 0, "its run has not ended");
    let first = platform.claim_one("job").await;
    platform.finish(&first, Outcome::Error).await;
    assert_eq!(platform.fire_after(3_000).await, 0, "it is tried again");
    let second = platform.claim_one("job").await;
    platform.finish(&second, Outcome::Success).await;
    assert_eq!(platform.fire_after(999).await, 0);
    assert_eq!(platform.fire_after(1).await, 1);
    assert_eq!(platform.runs(&schedule).await.len(), 2);
}

async fn an_old_run_that_ends_again_sets_no_timer_while_another_goes_on(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![after(1_000)]).await;
    platform.fire_after(1_000).await;
    let old = platform.claim_one("job").await;
    platform.finish(&old, Outcome::Failure).await;
    platform.fire_after(1_000).await;
    let going = platform.claim_one("job").await;
    let next_due = async || platform.store.schedule(None, schedule.id).await.unwrap().unwrap().0.timers[0].next_due;
    assert_eq!(next_due().await, None);
    platform.act(old.id, Action::Resolve { remark: None, result: None }).await;
    assert_eq!(next_due().await, None, "the newer run goes on");
    platform.finish(&going, Outcome::Success).await;
    assert_eq!(next_due().await, Some(platform.now().plus_ms(1_000)));
}

async fn a_fixed_delay_goes_on_after_a_failure_too(platform: &Platform) {
    platform.schedule(json!({"max_attempts": 1}), vec![after(1_000)]).await;
    platform.fire_after(1_000).await;
    let claimed = platform.claim_one("job").await;
    platform.finish(&claimed, Outcome::Error).await;
    assert_eq!(platform.fire_after(1_000).await, 1);
}

async fn once_fires_once_and_stays(platform: &Platform) {
    let at = platform.now().plus_ms(2_000);
    let timers = vec![Timer::new(TimerSpec::OnceAfter { delay_ms: 1_000 }), Timer::new(TimerSpec::OnceAt { at })];
    let schedule = platform.schedule(json!({}), timers).await;
    assert_eq!(platform.fire_after(1_000).await, 1);
    assert_eq!(platform.fire_after(1_000).await, 1);
    assert_eq!(platform.fire_after(1_000_000).await, 0);
    let (shown, _) = platform.store.schedule(None, schedule.id).await.unwrap().unwrap();
    assert!(shown.timers.iter().all(|timer| timer.next_due.is_none()));
}

async fn a_timer_fires_only_between_its_start_and_its_end_and_while_it_is_on(platform: &Platform) {
    let now = platform.now();
    let window = Timer { start_at: Some(now.plus_ms(10_000)), end_at: Some(now.plus_ms(12_001)), ..every(1_000) };
    let off = Timer { enabled: false, ..every(1_000) };
    let over = Timer { end_at: Some(now.plus_ms(-1)), ..every(1_000) };
    let schedule = platform.schedule(json!({}), vec![window, off, over]).await;
    for _ in 0..30 {
        platform.fire_after(1_000).await;
    }
    let dues: Vec<_> = platform.runs(&schedule).await.iter().map(|run| run.due_at.ms_since(now)).collect();
    assert_eq!(dues, [11_000, 12_000]);
}

async fn a_schedule_that_nobody_can_read_does_not_hold_up_the_others(platform: &Platform) {
    let spoilt = platform.schedule(json!({}), vec![every(1_000)]).await;
    let sound = platform.schedule(json!({}), vec![every(1_000)]).await;
    let sql = format!("UPDATE task_timer SET spec = 'nonsense' WHERE schedule_id = {}", spoilt.id);
    platform.raw().await.run(&sql).await;
    platform.fire_after(1_000).await;
    assert_eq!(platform.runs(&sound).await.len(), 1);
    platform.fire_after(1_000).await;
    assert_eq!(platform.runs(&sound).await.len(), 2);
    assert_eq!(platform.fire().await, 0);
    let next = platform.store.fire(10).await.unwrap().next_due;
    assert_eq!(next, Some(platform.now().plus_ms(1_000)), "the spoilt one is not tried for ever");
}

async fn a_thousand_timers_at_one_instant_all_fire_in_a_few_transactions(platform: &Platform) {
    for _ in 0..50 {
        platform.schedule(json!({}), vec![every(1_000); 20]).await;
    }
    platform.advance_ms(1_000);
    let mut looks = 0;
    loop {
        looks += 1;
        if !platform.store.fire(500).await.unwrap().more {
            break;
        }
    }
    assert!(looks <= 3, "{looks} looks");
    assert_eq!(platform.claim("job").await.len(), 1_000);
}

async fn the_next_due_time_of_all_is_told(platform: &Platform) {
    assert_eq!(platform.store.fire(10).await.unwrap().next_due, None);
    platform.schedule(json!({}), vec![every(5_000)]).await;
    platform.schedule(json!({}), vec![every(3_000)]).await;
    let fired = platform.store.fire(10).await.unwrap();
    assert_eq!((fired.runs, fired.next_due, fired.now), (0, Some(platform.now().plus_ms(3_000)), platform.now()));
}

async fn a_missed_task_that_a_worker_never_took_expires_nobody_else(platform: &Platform) {
    let schedule = platform.schedule(json!({}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    platform.fire_after(1_000).await;
    let claimed = platform.claim("job").await;
    platform.finish(&claimed[1], Outcome::Success).await;
    let statuses: Vec<_> = platform.runs(&schedule).await.iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Running, RunStatus::Done]);
    assert_eq!(platform.status(claimed[0].id).await, Status::Executing);
    assert!(claimed[0].run_at < claimed[1].run_at && claimed[0].run_at > Time(0));
}

facts![
    a_due_timer_begins_a_run_with_its_task,
    nothing_fires_twice_and_nothing_is_left_out_when_many_look_at_once,
    what_was_missed_fires_as_the_policy_says,
    all_that_was_missed_is_caught_up_without_a_word,
    a_fixed_delay_counts_from_the_end_of_its_run_with_its_retries,
    an_old_run_that_ends_again_sets_no_timer_while_another_goes_on,
    a_fixed_delay_goes_on_after_a_failure_too,
    once_fires_once_and_stays,
    a_timer_fires_only_between_its_start_and_its_end_and_while_it_is_on,
    a_schedule_that_nobody_can_read_does_not_hold_up_the_others,
    a_thousand_timers_at_one_instant_all_fire_in_a_few_transactions,
    the_next_due_time_of_all_is_told,
    a_missed_task_that_a_worker_never_took_expires_nobody_else,
];
