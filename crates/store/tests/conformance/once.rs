//! Calls with an idempotency key: the same key is answered the same, for a day.

use crate::facts;
use crate::support::{Platform, due_in, task};
use taskwheel_model::{NewTask, Outcome, Status, TaskId};
use taskwheel_store::StoreError;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

async fn the_same_key_is_answered_the_same_even_after_the_task_finished(platform: &Platform) {
    let first = platform.store.submit_once("k".into(), task("mail")).await.unwrap();
    assert!(first.created);
    let claimed = platform.claim_one("mail").await;
    platform.finish(&claimed, Outcome::Success).await;
    assert_eq!(platform.task(first.id).await.status, Status::Success);
    platform.advance_ms(DAY_MS);
    let again = platform.store.submit_once("k".into(), task("mail")).await.unwrap();
    assert_eq!(again, first);
    assert_eq!(platform.store.readings().types["mail"].submitted, 1, "it is counted once");
    assert!(platform.store.submit_once("other".into(), task("mail")).await.unwrap().created);
}

async fn a_key_is_a_tenants_own(platform: &Platform) {
    let ours = platform.store.submit_once("k".into(), task("mail")).await.unwrap();
    let theirs = NewTask { tenant: "acme".into(), ..task("mail") };
    let theirs = platform.store.submit_once("k".into(), theirs).await.unwrap();
    assert_ne!(ours.id, theirs.id);
}

fn is_refused<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    match answer {
        Err(StoreError::Invalid { errors, .. }) => assert_eq!(errors[0].field, "Idempotency-Key"),
        other => panic!("{other:?}"),
    }
}

async fn a_key_is_refused_for_another_task(platform: &Platform) {
    let mail = || NewTask { payload: Some("{\"to\": 1}".into()), ..due_in("mail", 60_000) };
    let first = platform.store.submit_once("k".into(), mail()).await.unwrap();
    let others = [
        NewTask { payload: Some("{\"to\": 2}".into()), ..mail() },
        NewTask { priority: Some(9), ..mail() },
        NewTask { run_at: due_in("mail", 60_001).run_at, ..mail() },
    ];
    for other in others {
        is_refused(platform.store.answer(other.tenant.clone(), "k".into(), other.fingerprint()).await);
        is_refused(platform.store.submit_once("k".into(), other).await);
    }
    // The delay is the same, although it would end later now.
    platform.advance_ms(1_000);
    assert_eq!(platform.store.submit_once("k".into(), mail()).await.unwrap(), first);
    let answer = platform.store.answer(mail().tenant, "k".into(), mail().fingerprint()).await.unwrap();
    assert_eq!(answer.map(|answer| answer.id), Some(first.id));
    assert_eq!(platform.all_tasks().await.iter().map(|task| task.id).collect::<Vec<TaskId>>(), [first.id]);
    platform.advance_ms(DAY_MS);
    assert!(platform.store.submit_once("k".into(), task("other")).await.unwrap().created, "it is free again");
}

async fn a_key_is_free_again_after_a_day(platform: &Platform) {
    let first = platform.store.submit_once("k".into(), task("mail")).await.unwrap();
    platform.advance_ms(DAY_MS + 1);
    let second = platform.store.submit_once("k".into(), task("mail")).await.unwrap();
    assert!(second.created && second.id != first.id);
    assert_eq!(platform.store.submit_once("k".into(), task("mail")).await.unwrap(), second);
}

async fn old_answers_are_forgotten(platform: &Platform) {
    for key in ["a", "b"] {
        platform.store.submit_once(key.into(), task("mail")).await.unwrap();
    }
    assert_eq!(platform.store.forget_answers().await.unwrap(), 0);
    platform.advance_ms(DAY_MS + 1);
    platform.store.submit_once("c".into(), task("mail")).await.unwrap();
    assert_eq!(platform.store.forget_answers().await.unwrap(), 2);
    let mut raw = platform.raw().await;
    assert_eq!(raw.number("SELECT count(*) FROM task_answer").await, 1);
}

async fn a_live_unique_key_is_answered_with_its_task_again(platform: &Platform) {
    let unique = NewTask { unique_key: Some("u".into()), ..task("mail") };
    let holder = platform.submit(unique.clone()).await;
    for _ in 0..2 {
        let answer = platform.store.submit_once("k".into(), unique.clone()).await.unwrap();
        assert_eq!((answer.id, answer.created), (holder, false));
    }
}

async fn of_many_calls_at_once_one_creates_the_task(platform: &Platform) {
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let store = platform.store.clone();
            tokio::spawn(async move { store.submit_once("k".into(), task("mail")).await.unwrap().id })
        })
        .collect();
    let mut ids = Vec::new();
    for call in calls {
        ids.push(call.await.unwrap());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    let mut raw = platform.raw().await;
    assert_eq!(raw.number("SELECT count(*) FROM task").await, 1);
}

async fn a_bad_key_is_named(platform: &Platform) {
    for key in [String::new(), "k".repeat(201), "a\0".into()] {
        is_refused(platform.store.submit_once(key, task("mail")).await);
    }
}

facts![
    the_same_key_is_answered_the_same_even_after_the_task_finished,
    a_key_is_a_tenants_own,
    a_key_is_refused_for_another_task,
    a_key_is_free_again_after_a_day,
    old_answers_are_forgotten,
    a_live_unique_key_is_answered_with_its_task_again,
    of_many_calls_at_once_one_creates_the_task,
    a_bad_key_is_named,
];
